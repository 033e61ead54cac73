//! The store's own clock. Steps of the server's wall clock are imitated where the store keeps it:
//! what it was at the last step. And the clock that a client gives its store.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use incumbent_redis::{RedisOptions, RedisStore};
use incumbent_store::{Alarm, Cas, Clock, Ended, Nonce, Office, Place, Store, StoreError, Timestamp, Version};
use incumbent_testkit::proxy::{Proxy, Way};
use incumbent_testkit::servers::RedisServer;

use crate::harness::{LONG, Redis, TTL, entry, held, jobs, shared, until, within};

const HOUR: Duration = Duration::from_secs(3600);

/// The wall clock jumps by an hour.
fn step_clock(server: &RedisServer, redis: &Redis, ahead: bool) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    set_clock(server, redis, if ahead { now - HOUR } else { now + HOUR });
}

/// The last step was made so long ago.
fn let_pass(server: &RedisServer, redis: &Redis, time: Duration) {
    set_clock(server, redis, SystemTime::now().duration_since(UNIX_EPOCH).unwrap() - time);
}

fn set_clock(server: &RedisServer, redis: &Redis, was: Duration) {
    server.cli(&["HSET", &redis.key("m"), "wall", &was.as_millis().to_string()]);
}

#[tokio::test]
async fn a_wall_clock_that_jumps_expires_nobody_who_renews_and_gives_the_dead_no_more_time() {
    let server = shared().await;
    for ahead in [true, false] {
        let redis = Redis::on(server);
        let store = redis.open();
        let promised = store.promises().await.unwrap().caveats.join(" ");
        assert!(promised.contains("jumps ahead may cost a session that does not renew up to half"), "{promised}");
        let (dead, living) = (store.open_session(TTL).await.unwrap(), store.open_session(TTL * 4).await.unwrap());
        let leading = held(&dead.enlist(&jobs(), &entry(1)).await.unwrap());
        let waiting = held(&living.enlist(&jobs(), &entry(2)).await.unwrap());
        for _ in 0..3 {
            dead.renew(&[]).await.unwrap();
            step_clock(server, &redis, ahead);
            // Half the shortest TTL at most has passed for the store.
            dead.renew(std::slice::from_ref(&leading)).await.unwrap();
        }
        until("the dead one is gone, and the living one leads", async || {
            living.renew(std::slice::from_ref(&waiting)).await.unwrap();
            matches!(living.standing(&waiting, None).await.unwrap().place, Place::Leading(_))
        })
        .await;
        assert!(matches!(dead.renew(&[]).await, Err(StoreError::SessionGone)), "ahead: {ahead}");
    }
}

#[tokio::test]
async fn a_jump_that_is_short_beside_the_ttls_so_far_expires_no_later_session_with_a_shorter_one() {
    let server = shared().await;
    let redis = Redis::on(server);
    let store = redis.open();
    let long = store.open_session(LONG).await.unwrap();
    let short = store.open_session(TTL).await.unwrap();
    short.renew(&[]).await.unwrap();
    let_pass(server, &redis, LONG / 10);
    long.renew(&[]).await.unwrap();
    short.renew(&[]).await.unwrap();
}

#[tokio::test]
async fn readers_alone_see_a_dead_leader_go() {
    let redis = Redis::on(shared().await);
    let store = redis.open();
    let dead = store.open_session(TTL).await.unwrap();
    dead.enlist(&jobs(), &entry(1)).await.unwrap();
    // They come so rarely that each finds more time passed than the clock may advance by at once.
    for _ in 0..4 {
        step_clock(shared().await, &redis, true);
        store.line(&jobs(), 9).await.unwrap();
    }
    assert_eq!(store.line(&jobs(), 9).await.unwrap().entries, []);
}

#[tokio::test]
async fn an_entry_that_asks_where_it_stands_meets_no_tombstone_whose_time_has_passed() {
    let server = shared().await;
    let redis = Redis::on(server);
    let store = redis.open();
    let session = store.open_session(LONG).await.unwrap();
    let leading = held(&session.enlist(&jobs(), &entry(1)).await.unwrap());
    let ended = Office::default().with_ended(Ended::new(Nonce(1), TTL));
    assert_eq!(store.set_office(&jobs(), Version::NONE, &ended).await.unwrap(), Cas::Done);
    assert!(session.standing(&leading, None).await.unwrap().office.ended.is_some());
    let_pass(server, &redis, TTL * 2);
    assert_eq!(session.standing(&leading, None).await.unwrap().office, Office::default());
}

/// No clock of a caller tells an hour in which nobody asked from a wall clock that jumped by one:
/// what a caller has read is old when it arrives.
#[tokio::test]
async fn a_request_that_was_long_under_way_lets_no_jump_of_the_clock_expire_one_who_renews() {
    let server = shared().await;
    let proxy = Proxy::start(&server.endpoint()).await;
    let redis = Redis::on(server);
    let (store, late) = (redis.open(), redis.moved_to(&proxy.endpoint()).open());
    let (first, second) = (store.open_session(TTL).await.unwrap(), store.open_session(TTL * 10).await.unwrap());
    let leading = held(&first.enlist(&jobs(), &entry(1)).await.unwrap());
    let waiting = held(&second.enlist(&jobs(), &entry(2)).await.unwrap());
    late.identity().await.unwrap();
    proxy.set(Way::Stall);
    let under_way = tokio::spawn(async move { late.open_session(TTL * 10).await });
    let sent = Instant::now();
    while sent.elapsed() < TTL * 2 {
        first.renew(&[]).await.unwrap();
        tokio::time::sleep(TTL / 20).await;
    }
    proxy.set(Way::Forward);
    within(under_way).await.unwrap().unwrap();
    first.renew(&[]).await.unwrap();
    step_clock(server, &redis, true);
    let standing = second.standing(&waiting, None).await.unwrap();
    assert!(matches!(standing.place, Place::Behind { .. }), "{standing:?}");
    assert_eq!(first.renew(std::slice::from_ref(&leading)).await.unwrap().gone, []);
}

#[tokio::test]
async fn time_in_which_nobody_asked_for_anything_is_not_given_to_those_who_come_after_it() {
    let server = shared().await;
    // With nobody there at all, and with one who renews so rarely that the clock was not set yet.
    for (before, time) in [(None, HOUR), (Some(4 * HOUR), HOUR / 4)] {
        let redis = Redis::on(server);
        let store = redis.open();
        let promised = store.promises().await.unwrap().caveats.join(" ");
        assert!(promised.contains("A leader that died while nobody asked for anything is shown"), "{promised}");
        if let Some(ttl) = before {
            store.open_session(ttl).await.unwrap();
        }
        let_pass(server, &redis, time);
        let (dead, living) = (store.open_session(TTL).await.unwrap(), store.open_session(TTL * 4).await.unwrap());
        dead.enlist(&jobs(), &entry(1)).await.unwrap();
        let waiting = held(&living.enlist(&jobs(), &entry(2)).await.unwrap());
        until("the dead one is gone, and the living one leads", async || {
            living.renew(&[]).await.unwrap();
            matches!(living.standing(&waiting, None).await.unwrap().place, Place::Leading(_))
        })
        .await;
    }
}

/// After a restart everybody waits for the longest TTL: none may shut all elections for days.
#[tokio::test]
async fn a_session_is_granted_an_hour_at_most() {
    let redis = Redis::on(shared().await);
    let session = redis.open().open_session(HOUR * 24 * 30).await.unwrap();
    assert_eq!(session.liveness().ttl, HOUR);
    session.close().await.unwrap();
}

/// Nothing expires at the server unless it is asked something.
#[tokio::test]
async fn one_who_stands_behind_is_told_when_the_time_of_the_one_ahead_ends() {
    let store = Redis::on(shared().await).open();
    let (ahead, behind) = (store.open_session(LONG).await.unwrap(), store.open_session(HOUR).await.unwrap());
    ahead.enlist(&jobs(), &entry(1)).await.unwrap();
    let enlisted = behind.enlist(&jobs(), &entry(2)).await.unwrap();
    for standing in [behind.standing(&held(&enlisted), None).await.unwrap(), enlisted] {
        let Place::Behind { look_again: Some(look_again), .. } = standing.place else { panic!("{standing:?}") };
        assert!(look_again <= LONG + Duration::from_millis(1), "{look_again:?}");
    }
}

/// A clock that a test moves by hand.
#[derive(Debug, Default)]
pub(crate) struct ByHand(AtomicU64);

impl ByHand {
    pub(crate) fn set(&self, now: Duration) {
        self.0.store(now.as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Clock for ByHand {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.0.load(Ordering::Relaxed))
    }

    fn alarm(&self) -> io::Result<Box<dyn Alarm>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The server cannot tell: it may have lost the newest renewals.
#[tokio::test]
async fn after_a_failover_a_session_lives_if_by_the_clock_that_its_store_was_given_it_was_renewed_in_time() {
    let server = RedisServer::start().await;
    let clock = Arc::new(ByHand::default());
    let client = redis::Client::open(server.url()).unwrap();
    let store = RedisStore::with_clock(&client, &RedisOptions::new(), clock.clone()).unwrap();
    for (passes, lives) in [(LONG / 2, true), (LONG, false)] {
        let session = store.open_session(LONG).await.unwrap();
        clock.0.fetch_add(passes.as_nanos() as u64, Ordering::Relaxed);
        server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
        server.cli(&["REPLICAOF", "NO", "ONE"]);
        let renewed = session.renew(&[]).await;
        assert_eq!(renewed.is_ok(), lives, "{renewed:?}");
        assert!(lives || matches!(renewed, Err(StoreError::SessionGone)), "{renewed:?}");
    }
}
