//! The store's own clock. Steps of the server's wall clock are imitated where the store keeps it:
//! what it was at the last step.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use incumbent_store::{Place, Store, StoreError};
use incumbent_testkit::servers::RedisServer;

use crate::harness::{Redis, TTL, entry, held, jobs, shared, until};

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

/// The host's own clock tells an hour in which nobody asked from a wall clock that jumped by one.
#[tokio::test]
async fn the_first_who_asks_after_idle_time_finds_no_dead_leader() {
    let server = shared().await;
    for (has_passed, shown) in [(true, 0), (false, 1)] {
        let redis = Redis::on(server);
        let store = redis.open();
        let dead = store.open_session(TTL).await.unwrap();
        dead.enlist(&jobs(), &entry(1)).await.unwrap();
        let_pass(server, &redis, HOUR);
        if has_passed {
            let hosts = server.cli(&["HGET", &redis.key("m"), "hosts"]);
            let (host, ahead) = hosts.split_at(32);
            let ahead = ahead.parse::<i64>().unwrap() + i64::try_from(HOUR.as_millis()).unwrap();
            server.cli(&["HSET", &redis.key("m"), "hosts", &format!("{host}{ahead:+017}")]);
        }
        assert_eq!(store.line(&jobs(), 9).await.unwrap().entries.len(), shown, "has passed: {has_passed}");
    }
}

#[tokio::test]
async fn the_hosts_whose_clocks_are_compared_are_a_few() {
    let server = shared().await;
    let redis = Redis::on(server);
    let store = redis.open();
    store.open_session(TTL).await.unwrap();
    let others: String = (0..16).map(|host| format!("{host:032}{:+017}", 7)).collect();
    let hosts = server.cli(&["HGET", &redis.key("m"), "hosts"]);
    server.cli(&["HSET", &redis.key("m"), "hosts", &(others + &hosts)]);
    store.open_session(TTL).await.unwrap();
    let kept = server.cli(&["HGET", &redis.key("m"), "hosts"]);
    assert!(kept.len() == 16 * 49 && kept[..32] == hosts[..32] && !kept[32..].contains(&hosts[..32]), "{kept}");
}

#[tokio::test]
async fn time_in_which_nobody_asked_for_anything_is_not_given_to_those_who_come_after_it() {
    let server = shared().await;
    // With nobody there at all, and with one who renews so rarely that the clock was not set yet.
    for (before, time) in [(None, HOUR), (Some(4 * HOUR), HOUR / 4)] {
        let redis = Redis::on(server);
        let store = redis.open();
        store.identity().await.unwrap();
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
