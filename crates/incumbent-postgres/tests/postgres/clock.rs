//! A server whose wall clock is wrong for a while, and right again.

use std::time::Duration;

use incumbent_store::{Deposed, Ended, Nonce, Office, Place, Store, StoreError, Token, Version};
use incumbent_testkit::servers::{PostgresServer, WallClock};

use crate::harness::{TTL, asked, entry, held, lead, make, name, stand, store, until, within};

const HOUR: Duration = Duration::from_secs(3_600);

/// A server that lives by a clock of its own.
async fn with_a_clock() -> (PostgresServer, WallClock) {
    let clock = WallClock::new();
    let mut server = PostgresServer::start_with(&["fsync=off"]).await;
    server.set_environment(clock.environment());
    server.restart().await;
    (server, clock)
}

/// With nothing left of the record, and with a part of it.
#[tokio::test]
async fn an_election_that_began_after_a_tombstone_was_over_goes_on_though_the_clock_is_put_back() {
    let (server, clock) = with_a_clock().await;
    let store = store(&server.url());
    let mut deposed = Office::default();
    deposed.deposed = Some(Deposed::new(Token::new(7).unwrap()));
    for left in [Office::default(), deposed] {
        let election = name("tombstone");
        let ended = left.clone().with_ended(Ended::new(Nonce(1), HOUR));
        store.set_office(&election, Version::NONE, &ended).await.unwrap();
        clock.set(7_200);
        let before = store.line(&election, 1).await.unwrap().office;
        let session = store.open_session(20 * TTL).await.unwrap();
        let elected = session.enlist(&election, &entry(1)).await.unwrap();
        assert!(matches!(elected.place, Place::Leading(_)), "{elected:?}");
        clock.set(0);
        let after = session.standing(&held(&elected), None).await.unwrap();
        assert!(matches!(after.place, Place::Leading(_)), "{after:?}");
        for office in [&before, &elected.office, &after.office] {
            assert_eq!((&office.ended, &office.deposed), (&None, &left.deposed));
            assert_eq!(office.version, before.version, "it is one and the same record");
        }
    }
}

/// The wait after another server has taken over counts from when the clock is right again.
#[tokio::test]
async fn a_leap_while_the_clock_was_ahead_keeps_nobody_out_for_longer_than_the_longest_ttl() {
    let (server, clock) = with_a_clock().await;
    let store = store(&server.url());
    make(&store).await;
    clock.set(3_600);
    server.sql("UPDATE incumbent.store SET history = 'another'");
    let session = store.open_session(20 * TTL).await.unwrap();
    session.enlist(&name("leap"), &entry(1)).await.expect_err("another server has taken over");
    clock.set(0);
    session.renew(&[]).await.unwrap();
    let quiet = "SELECT quiet_until > clock_timestamp(), \
        quiet_until <= clock_timestamp() + longest_us * interval '1 microsecond' FROM incumbent.store";
    assert_eq!(server.sql(quiet), "t|t", "neither none of it, nor an hour");
    session.enlist(&name("leap"), &entry(2)).await.expect_err("who led before may believe so");
}

/// In all elections: what one of them took for dead does not lead in another.
#[tokio::test]
async fn a_leader_that_was_removed_while_the_clock_was_ahead_does_not_live_again() {
    let (server, clock) = with_a_clock().await;
    let store = store(&server.url());
    let [visited, unvisited] = [name("visited"), name("unvisited")];
    let removed = store.open_session(HOUR / 4).await.unwrap();
    removed.enlist(&visited, &entry(1)).await.unwrap();
    removed.enlist(&unvisited, &entry(2)).await.unwrap();
    clock.set(3_600);
    let session = store.open_session(HOUR / 4).await.unwrap();
    let next = session.enlist(&visited, &entry(3)).await.unwrap();
    assert!(matches!(next.place, Place::Leading(_)), "{next:?}");
    clock.set(0);
    let renewal = removed.renew(&[]).await;
    assert!(matches!(renewal, Err(StoreError::SessionGone)), "{renewal:?}");
    let next = session.enlist(&unvisited, &entry(4)).await.unwrap();
    assert!(matches!(next.place, Place::Leading(_)), "{next:?}");
}

/// Set forward it costs the office, of which its holder learns too late; the fence knows.
#[tokio::test]
async fn somebody_leads_and_the_fence_refuses_those_before_when_the_clock_is_set_forward_and_back() {
    let (server, clock) = with_a_clock().await;
    let election = name("steps");
    let mut first = stand(&server.url(), &election, "a").await;
    let mut leadership = lead(&mut first).await;
    let mut second = stand(&server.url(), &election, "a").await;
    for seconds_off in [3_600, 0] {
        let before = leadership.token().get();
        clock.set(seconds_off);
        if seconds_off > 0 {
            until("the office is lost", async || leadership.term().check().is_err()).await;
            drop(leadership);
        } else {
            // It is lost on a machine that is too busy to renew.
            let _ = within(leadership.resign()).await;
        }
        leadership = tokio::select! {
            leadership = lead(&mut first) => leadership,
            leadership = lead(&mut second) => leadership,
        };
        let token = leadership.token().get();
        assert!(token > before, "{token} after {before}");
        assert_eq!(asked(&server, &election, before).await.as_deref(), Some("IN409"), "{seconds_off}");
    }
}

#[tokio::test]
async fn a_silent_leader_from_while_the_clock_was_ahead_is_led_past() {
    let (server, clock) = with_a_clock().await;
    let election = name("ahead");
    clock.set(3_600);
    let silent = store(&server.url()).open_session(2 * TTL).await.unwrap();
    let leads = held(&silent.enlist(&election, &entry(1)).await.unwrap());
    assert_eq!(asked(&server, &election, leads.token.get()).await, None);
    let mut candidacy = stand(&server.url(), &election, "a").await;
    let in_line = format!("SELECT count(*) FROM incumbent.entry WHERE token > {}", leads.token);
    until("it is in line", async || server.sql(&in_line) != "0").await;
    clock.set(0);
    let leadership = lead(&mut candidacy).await;
    assert!(leadership.token().token > leads.token, "{leadership:?} after {leads:?}");
    assert_eq!(asked(&server, &election, leads.token.get()).await.as_deref(), Some("IN409"));
}
