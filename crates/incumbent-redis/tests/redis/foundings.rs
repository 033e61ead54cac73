//! What is known of those who may lead when a store is founded anew, or another history of its
//! server begins, more than once: for how long nobody takes office, and which token comes next. The
//! time is set by hand.

use std::time::Duration;

use incumbent_redis::RedisStore;
use incumbent_store::{Place, Standing, Store, StoreError};

use crate::harness::{entry, held, jobs};
use crate::timed::{KEYS, TimedServer};

const SHORT: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(60);
const PREFIX: &str = "founded";

async fn enlisted_anew(store: &RedisStore) -> Result<Standing, StoreError> {
    store.open_session(SHORT).await.unwrap().enlist(&jobs(), &entry(9)).await
}

fn must_wait(enlisted: Result<Standing, StoreError>) {
    match enlisted {
        Err(error @ StoreError::Unavailable { .. }) => {
            assert!(error.to_string().contains("takes office for another"), "{error}")
        }
        other => panic!("{other:?}"),
    }
}

fn leads(enlisted: Result<Standing, StoreError>) {
    assert!(matches!(&enlisted, Ok(Standing { place: Place::Leading(_), .. })), "{enlisted:?}");
}

/// The second time nothing is left of the session that was forgotten the first time.
#[tokio::test]
async fn a_store_that_is_founded_anew_twice_still_waits_for_those_it_forgot_the_first_time() {
    let server = TimedServer::start(&[]).await;
    let store = server.open(PREFIX);
    leads(store.open_session(LONG).await.unwrap().enlist(&jobs(), &entry(1)).await);
    let mut id = store.identity().await.unwrap();
    for founded in [SHORT * 10, SHORT * 20] {
        server.set_time(founded).await;
        server.forget(PREFIX, &["l"]).await;
        let anew = store.identity().await.unwrap();
        assert_ne!(anew, id);
        id = anew;
    }
    // Several times its own TTL later.
    server.set_time(LONG).await;
    must_wait(enlisted_anew(&store).await);
}

/// Nobody can be expired by a wall clock that jumps while no session is open, but one who was
/// forgotten may be in office.
#[tokio::test]
async fn a_jump_while_no_session_is_open_ends_no_time_in_which_nobody_takes_office() {
    let server = TimedServer::start(&[]).await;
    let store = server.open(PREFIX);
    leads(store.open_session(LONG).await.unwrap().enlist(&jobs(), &entry(1)).await);
    server.forget(PREFIX, &["l"]).await;
    store.identity().await.unwrap();
    server.set_time(LONG * 60).await;
    // One that comes fresh, and can say nothing of the time that has passed.
    must_wait(enlisted_anew(&server.open(PREFIX)).await);
    // Where nothing is known of those who were forgotten, each waits for its own TTL.
    server.forget(PREFIX, &KEYS).await;
    store.identity().await.unwrap();
    server.set_time(LONG * 120).await;
    must_wait(server.open(PREFIX).open_session(LONG).await.unwrap().enlist(&jobs(), &entry(2)).await);
}

/// Each of those would have the store's clock follow by half its own TTL.
#[tokio::test]
async fn those_with_a_short_ttl_who_die_keep_no_dead_leader_in_office() {
    let server = TimedServer::start(&[]).await;
    let [leaders, others] = [0; 2].map(|_| server.open(PREFIX));
    leads(leaders.open_session(LONG).await.unwrap().enlist(&jobs(), &entry(1)).await);
    let follower = leaders.open_session(LONG).await.unwrap();
    let waiting = held(&follower.enlist(&jobs(), &entry(2)).await.unwrap());
    for second in 1..u64::MAX {
        let now = Duration::from_secs(second);
        server.set_time(now).await;
        // A process that crashes as soon as it is started.
        drop(others.open_session(SHORT / 10).await.unwrap());
        if second % 20 == 0 {
            follower.renew(std::slice::from_ref(&waiting)).await.unwrap();
            if matches!(follower.standing(&waiting, None).await.unwrap().place, Place::Leading(_)) {
                break;
            }
        }
        assert!(now < LONG * 2, "the leader has been dead for {now:?}");
    }
}

#[tokio::test]
async fn tokens_do_not_come_again_where_nobody_is_left_who_knew_them() {
    let server = TimedServer::start(&[]).await;
    let token = async || {
        let session = server.open(PREFIX).open_session(SHORT).await.unwrap();
        held(&session.enlist(&jobs(), &entry(1)).await.unwrap()).token
    };
    let before = token().await;
    server.forget(PREFIX, &KEYS).await;
    server.set_time(SHORT).await;
    let after = token().await;
    assert!(after > before, "{after} after {before}");
}

/// The longest TTL counts that was granted since the last time, and no older one.
#[tokio::test]
async fn a_session_that_was_gone_before_the_last_failover_is_not_waited_for_after_the_next() {
    let server = TimedServer::start(&[]).await;
    let store = server.open(PREFIX);
    store.open_session(LONG).await.unwrap().close().await.unwrap();
    server.fail_over(PREFIX, false).await;
    must_wait(enlisted_anew(&store).await);
    let mut now = Duration::ZERO;
    // By the store's clock, which goes on by half a TTL at most while that session is there.
    while now < LONG + SHORT * 2 {
        now += SHORT / 2;
        server.set_time(now).await;
        store.identity().await.unwrap();
    }
    server.fail_over(PREFIX, false).await;
    must_wait(enlisted_anew(&store).await);
    for _ in 0..4 {
        now += SHORT / 2;
        server.set_time(now).await;
        store.identity().await.unwrap();
    }
    leads(enlisted_anew(&store).await);
}

/// Somebody has put an old copy back of what says which TTLs were granted.
#[tokio::test]
async fn a_failover_waits_for_the_longest_ttl_of_the_sessions_that_are_known_whatever_else_it_finds() {
    let server = TimedServer::start(&[]).await;
    let store = server.open(PREFIX);
    store.identity().await.unwrap();
    server.keep(PREFIX).await;
    store.open_session(LONG).await.unwrap();
    server.put_back(PREFIX, &["m"]).await;
    server.fail_over(PREFIX, false).await;
    store.identity().await.unwrap();
    server.set_time(SHORT * 5).await;
    must_wait(enlisted_anew(&store).await);
}

/// After a failover a mark says of each session that its owner has not been heard of since.
#[tokio::test]
async fn of_a_session_that_ends_after_a_failover_no_mark_is_left() {
    let server = TimedServer::start(&[]).await;
    let store = server.open(PREFIX);
    let (closed, lasting) = (store.open_session(SHORT).await.unwrap(), store.open_session(LONG).await.unwrap());
    let _silent = store.open_session(SHORT).await.unwrap();
    server.fail_over(PREFIX, false).await;
    store.identity().await.unwrap();
    assert_eq!(server.sessions(PREFIX).await.len(), 6, "three sessions, and a mark for each");
    closed.close().await.unwrap();
    assert_eq!(server.sessions(PREFIX).await.len(), 4);
    for passed in 1..5 {
        server.set_time(SHORT / 2 * passed).await;
        store.identity().await.unwrap();
    }
    assert_eq!(server.sessions(PREFIX).await.len(), 2, "one was silent");
    lasting.renew(&[]).await.unwrap();
    assert_eq!(server.sessions(PREFIX).await.len(), 1, "one was heard of");
}
