//! Who is woken by what, and what waiting costs.

use std::time::Duration;

use incumbent_store::{Place, Store, Version, Watched};

use crate::harness::{TTL, entry, held, name, shared, store, until, within};

/// One follower behind a leader, with a watch; whether it wakes.
async fn follow(url: &str, test: &str) -> (incumbent::Candidacy, incumbent::Leadership) {
    let client = incumbent::Client::builder().ttl(TTL).with_store(store(url)).await.unwrap();
    let election = client.election(name(test).as_str()).unwrap();
    let mut leading = election.candidate("leader").stand().await.unwrap();
    let leadership = crate::harness::lead(&mut leading).await;
    let other = incumbent::Client::builder().ttl(TTL).with_store(store(url)).await.unwrap();
    let follower = other.election(leadership.election().as_str()).unwrap().candidate("follower").stand().await.unwrap();
    let (reader, election) = (store(url), leadership.election().clone());
    until("both are in line", async || reader.line(&election, 9).await.unwrap().entries.len() == 2).await;
    drop(leading);
    (follower, leadership)
}

#[tokio::test]
async fn a_notification_that_is_lost_is_made_up_for_by_a_renewal() {
    let server = shared().await;
    let url = format!("{}?schema=tells_nobody", server.url());
    store(&url).identity().await.unwrap();
    server.sql(
        "CREATE OR REPLACE FUNCTION tells_nobody.tell_1(e bytea, what text, t bigint) RETURNS void \
         LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'SELECT'",
    );
    // At the seam, where nothing else looks again.
    let (leader_store, store) = (store(&url), store(&url));
    let election = name("lost");
    let leader = leader_store.open_session(20 * TTL).await.unwrap();
    let leads = held(&leader.enlist(&election, &entry(1)).await.unwrap());
    let follower = store.open_session(20 * TTL).await.unwrap();
    let standing = follower.enlist(&election, &entry(2)).await.unwrap();
    let mut watched = Watched::new(held(&standing), standing.office.version);
    watched.ahead = Some(leads.entry.clone());
    let wake = tokio::spawn(follower.watch(&watched, standing.cursor));
    until("it waits", async || store.watches() == 1).await;
    assert!(store.promises().await.unwrap().watches);
    leader.withdraw(&leads, None).await.unwrap();
    let own = [held(&standing)];
    until("it is woken", async || {
        follower.renew(&own).await.unwrap();
        wake.is_finished()
    })
    .await;
    wake.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_connection_that_stops_listening_is_made_again() {
    let server = shared().await;
    let url = format!("{}?schema=listens_again&application_name=listens_again", server.url());
    let (mut follower, leadership) = follow(&url, "again").await;
    let killed = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
        WHERE application_name = 'listens_again' AND query LIKE '%idle_session_timeout%'";
    until("it listens", async || server.sql(killed) != "0").await;
    leadership.resign().await.unwrap();
    crate::harness::lead(&mut follower).await;
}

#[tokio::test]
async fn an_idle_follower_costs_its_renewals_and_nothing_else() {
    let server = shared().await;
    let url = format!("{}?schema=idle", server.url());
    let leader = store(&url).open_session(40 * TTL).await.unwrap();
    let leads = held(&leader.enlist(&name("idle"), &entry(1)).await.unwrap());
    let logged = format!("{url}&options=-c%20log_statement%3Dall");
    let client = incumbent::Client::builder().ttl(TTL).with_store(store(&logged)).await.unwrap();
    let _follows = client.election(leads.election.as_str()).unwrap().candidate("follower").stand().await.unwrap();
    // What the follower alone asks for: all of it, and renewals.
    let run = || {
        let logs = server.logs();
        ["", "renew_1("].map(|function| logs.matches(&format!("FROM \"idle\".{function}")).count())
    };
    until("it waits", async || server.logs().contains("FROM \"idle\".changed_1(") && run()[1] > 0).await;
    let before = run();
    // For longer than a candidate waits that is told nothing before it looks for itself.
    until("it has renewed several times", async || run()[1] >= before[1] + 8).await;
    let after = run();
    assert_eq!(after[0] - before[0], after[1] - before[1]);
}

#[tokio::test]
async fn a_renewal_sees_whether_what_is_ahead_is_as_it_was() {
    let store = store(&shared().await.url());
    let election = name("as-it-was");
    let leader = store.open_session(40 * TTL).await.unwrap();
    let leads = held(&leader.enlist(&election, &entry(1)).await.unwrap());
    let follower = store.open_session(20 * TTL).await.unwrap();
    let standing = follower.enlist(&election, &entry(2)).await.unwrap();
    let follows = held(&standing);
    let behind = async || follower.renew(std::slice::from_ref(&follows)).await.unwrap().behind;
    let seen = behind().await;
    let [seen] = &seen[..] else { panic!("{seen:?}") };
    assert!(seen.held == follows && seen.ahead.is(&leads) && seen.office == standing.office.version, "{seen:?}");
    assert_eq!(leader.renew(std::slice::from_ref(&leads)).await.unwrap().behind, [], "nobody is ahead of it");

    let published = store.line(&election, 1).await.unwrap().entries[0].version;
    leader.publish(&leads, published, &"another".into(), None).await.unwrap().unwrap();
    assert_eq!(behind().await, [], "it says something else");
    follower.standing(&follows, None).await.unwrap();
    assert_eq!(behind().await.len(), 1);

    let mut office = standing.office.clone();
    office.deposed = Some(leads.token);
    store.set_office(&election, Version::NONE, &office).await.unwrap();
    assert_eq!(behind().await, [], "the office record says something else");
    follower.standing(&follows, None).await.unwrap();
    assert_eq!(behind().await.len(), 1);

    leader.withdraw(&leads, None).await.unwrap();
    assert_eq!(behind().await, [], "nobody is ahead");
}

#[tokio::test]
async fn the_end_of_a_silent_leader_is_timed_and_not_told() {
    let store = store(&shared().await.url());
    let election = name("silent");
    let silent = store.open_session(Duration::from_secs(2)).await.unwrap();
    let leads = held(&silent.enlist(&election, &entry(1)).await.unwrap());
    let follower = store.open_session(20 * TTL).await.unwrap();
    let standing = follower.enlist(&election, &entry(2)).await.unwrap();
    let mut watched = Watched::new(held(&standing), standing.office.version);
    watched.ahead = Some(leads.entry.clone());
    within(follower.watch(&watched, standing.cursor)).await.unwrap();
    until("it leads", async || {
        matches!(follower.standing(&held(&standing), None).await.unwrap().place, Place::Leading(_))
    })
    .await;
    assert!(silent.renew(&[leads]).await.is_err(), "what was removed is not revived");
}
