//! Who is woken by what, and what waiting costs.

use std::time::Duration;

use incumbent_postgres::tokio_postgres;
use incumbent_store::{Place, Store, Watched};

use crate::harness::{TTL, entry, held, name, raw, shared, store, until, within};

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

/// The statements that were run in this schema, by the server's own count of calls.
async fn calls(client: &tokio_postgres::Client, schema: &str) -> i64 {
    let sql = "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_user_functions \
        WHERE schemaname = $1 AND funcname IN ('standing_1', 'renew_1', 'enlist_1', 'changed_1', 'line_1', 'tell_1')";
    client.query_one(sql, &[&schema]).await.unwrap().get(0)
}

#[tokio::test]
async fn an_idle_follower_costs_its_renewals_and_little_else() {
    let server = shared().await;
    let url = format!("{}?schema=idle&options=-c%20track_functions%3Dall", server.url());
    let (_follower, leadership) = follow(&url, "idle").await;
    let client = raw(&server.url()).await;
    let before = calls(&client, "idle").await;
    let began = tokio::time::Instant::now();
    let counted = "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_user_functions \
        WHERE schemaname = 'idle' AND funcname = 'renew_1'";
    let renewals = async || client.query_one(counted, &[]).await.unwrap().get::<_, i64>(0);
    let at_first = renewals().await;
    until("both have renewed several times", async || renewals().await >= at_first + 12).await;
    let (all, renewed) = (calls(&client, "idle").await - before, renewals().await - at_first);
    // What is looked at again, slowly, in case that everything was lost.
    let rereads = 2 * (began.elapsed().as_secs_f64() / TTL.as_secs_f64()).ceil() as i64;
    assert!(all <= renewed + rereads + 4, "{all} statements for {renewed} renewals");
    drop(leadership);
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
