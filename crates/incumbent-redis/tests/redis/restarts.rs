//! Servers that are killed, lose what was not written, or are replaced by a replica that lags
//! behind: each with what was promised beforehand.

use std::fs::OpenOptions;
use std::path::PathBuf;

use incumbent_redis::RedisStore;
use incumbent_store::{Held, Place, Session, Store, StoreError, TokenStrength};
use incumbent_testkit::proxy::Proxy;
use incumbent_testkit::servers::RedisServer;

use crate::harness::{LONG, Redis, TTL, entry, held, jobs, until, within};

/// The file to which the server appends, if it has written to one.
fn appended(server: &RedisServer) -> PathBuf {
    let folder = server.scratch().path().join("appendonlydir");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files.filter(|path| path.to_string_lossy().ends_with(".incr.aof")).max().unwrap()
}

/// A connection that was lost is noticed by the next step, which fails.
async fn renewed(session: &dyn Session, held: &Held) {
    until("the session is renewed", async || match session.renew(std::slice::from_ref(held)).await {
        Ok(renewal) => {
            assert_eq!(renewal.gone, []);
            true
        }
        Err(StoreError::Unavailable { .. }) => false,
        Err(other) => panic!("{other:?}"),
    })
    .await;
}

#[tokio::test]
async fn a_leader_outlives_a_server_that_is_killed_and_those_behind_it_come_again() {
    let mut server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let redis = Redis::on(&server);
    let store = redis.open();
    assert_eq!(store.promises().await.unwrap().tokens, TokenStrength::Durable);
    let (first, second) = (store.open_session(TTL).await.unwrap(), store.open_session(TTL).await.unwrap());
    let leading = held(&first.enlist(&jobs(), &entry(1)).await.unwrap());
    let waiting = held(&second.enlist(&jobs(), &entry(2)).await.unwrap());

    server.restart().await;

    renewed(&*first, &leading).await;
    assert_eq!(first.standing(&leading, None).await.unwrap().place, Place::Leading(leading.clone()));
    assert_eq!(first.store_id(), store.identity().await.unwrap(), "it is the same store");
    assert_eq!(second.renew(std::slice::from_ref(&waiting)).await.unwrap().gone, std::slice::from_ref(&waiting));
    let again = held(&second.enlist(&jobs(), &entry(3)).await.unwrap());
    assert!(again.token > waiting.token);
    // Nobody takes office before a leader that may be forgotten has given up.
    first.close().await.unwrap();
    let refused = second.standing(&again, None).await;
    match &refused {
        Err(error @ StoreError::Unavailable { .. }) => assert!(error.to_string().contains("takes office"), "{error}"),
        other => panic!("{other:?}"),
    }
    takes_office(&*second, &again).await;
}

async fn takes_office(session: &dyn Session, held: &Held) {
    until("it takes office", async || {
        session.renew(&[]).await.unwrap();
        matches!(session.standing(held, None).await, Ok(standing) if matches!(standing.place, Place::Leading(_)))
    })
    .await;
}

#[tokio::test]
async fn tokens_grow_over_a_power_failure_that_lost_the_newest_of_them() {
    let mut server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "everysec"]).await;
    let redis = Redis::on(&server);
    let store = redis.open();
    assert_eq!(store.promises().await.unwrap().tokens, TokenStrength::Volatile);
    let before = store.identity().await.unwrap();
    let length = std::fs::metadata(appended(&server)).unwrap().len();
    let mut newest = None;
    for number in 0..100 {
        let session = store.open_session(LONG).await.unwrap();
        newest = newest.max(Some(held(&session.enlist(&jobs(), &entry(number)).await.unwrap()).token));
    }
    server.kill();
    // What the power failure took with it.
    OpenOptions::new().write(true).open(appended(&server)).unwrap().set_len(length).unwrap();
    server.restart().await;

    let store = redis.open();
    assert_eq!(store.identity().await.unwrap(), before, "the same store, as far as it knows");
    let session = store.open_session(LONG).await.unwrap();
    let next = held(&session.enlist(&jobs(), &entry(1000)).await.unwrap());
    assert!(Some(next.token) > newest, "{next:?} after {newest:?}");
}

#[tokio::test]
async fn a_server_that_writes_nothing_down_is_another_store_after_a_restart() {
    let mut server = RedisServer::start().await;
    let redis = Redis::on(&server);
    let store = redis.open();
    let session = store.open_session(LONG).await.unwrap();
    let leading = held(&session.enlist(&jobs(), &entry(1)).await.unwrap());
    server.restart().await;
    until("it answers", async || store.identity().await.is_ok()).await;
    assert_ne!(store.identity().await.unwrap(), session.store_id());
    assert!(matches!(session.renew(&[]).await, Err(StoreError::SessionGone)));
    let session = store.open_session(LONG).await.unwrap();
    let next = held(&session.enlist(&jobs(), &entry(2)).await.unwrap());
    assert!(next.token > leading.token, "{next:?} after {leading:?}");
}

/// A primary, a replica that has everything, and a store that reaches the primary through a proxy.
struct Pair {
    primary: RedisServer,
    replica: RedisServer,
    proxy: Proxy,
    redis: Redis,
}

impl Pair {
    async fn start() -> Pair {
        let primary = RedisServer::start().await;
        let follows = format!("127.0.0.1 {}", primary.port());
        let replica = RedisServer::start_with(&["--replicaof", &follows]).await;
        let proxy = Proxy::start(&primary.endpoint()).await;
        let redis = Redis::at(&proxy.endpoint());
        let pair = Pair { primary, replica, proxy, redis };
        pair.synchronised().await;
        pair
    }

    async fn synchronised(&self) {
        let offset = |server: &RedisServer, field: &str| {
            let info = server.cli(&["INFO", "replication"]);
            info.lines().find_map(|line| line.strip_prefix(field)).map(|offset| offset.trim().to_owned())
        };
        until("the replica has everything", async || {
            let link = offset(&self.replica, "master_link_status:").as_deref() == Some("up");
            link && offset(&self.primary, "master_repl_offset:") == offset(&self.replica, "slave_repl_offset:")
        })
        .await;
    }

    /// From now on the replica hears nothing.
    fn cut_off(&self) {
        self.replica.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    }

    fn promote(&self) {
        self.replica.cli(&["REPLICAOF", "NO", "ONE"]);
        self.proxy.turn_to(&self.replica.endpoint());
    }

    /// A client of the old primary that has heard of nothing.
    fn left_behind(&self) -> RedisStore {
        self.redis.moved_to(&self.primary.endpoint()).open()
    }
}

#[tokio::test]
async fn a_replica_that_lags_behind_and_takes_over_gives_no_token_twice_and_makes_no_second_leader() {
    let pair = Pair::start().await;
    let store = pair.redis.open();
    let (first, second) = (store.open_session(TTL).await.unwrap(), store.open_session(TTL).await.unwrap());
    let leading = held(&first.enlist(&jobs(), &entry(1)).await.unwrap());
    let waiting = held(&second.enlist(&jobs(), &entry(2)).await.unwrap());
    pair.synchronised().await;
    pair.cut_off();
    // What the replica never hears of: the leader leaves, and the next one takes office.
    let old = pair.left_behind();
    first.withdraw(&leading, None).await.unwrap();
    let lost = old.open_session(TTL).await.unwrap();
    let elected = second.standing(&waiting, None).await.unwrap();
    assert_eq!(elected.place, Place::Leading(waiting.clone()));
    let last = held(&lost.enlist(&jobs(), &entry(3)).await.unwrap());

    pair.promote();

    // The new primary knows the old leader, who knows better, and not that the next one leads.
    until("the connection is made again", async || second.renew(&[]).await.is_ok()).await;
    assert_eq!(second.renew(std::slice::from_ref(&waiting)).await.unwrap().gone, std::slice::from_ref(&waiting));
    assert_eq!(first.renew(&[]).await.unwrap().stray, std::slice::from_ref(&leading));
    first.withdraw(&leading, None).await.unwrap();
    let third = store.open_session(TTL).await.unwrap();
    // Meanwhile the one who leads may still believe so: nobody is elected.
    let refused = third.enlist(&jobs(), &entry(4)).await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    assert_eq!(store.line(&jobs(), 9).await.unwrap().entries, [], "and nothing was changed");
    // Whatever the old primary still gives is below all that the new one gives.
    let late = held(&lost.enlist(&incumbent_store::ElectionName::new("late").unwrap(), &entry(5)).await.unwrap());
    let mut next = None;
    until("somebody takes office", async || {
        third.renew(&[]).await.unwrap();
        next = third.enlist(&jobs(), &entry(4)).await.ok().map(|standing| held(&standing));
        next.is_some()
    })
    .await;
    assert!(next.unwrap().token > last.token.max(late.token), "after {last:?} and {late:?}");
}

#[tokio::test]
async fn a_failover_costs_neither_the_leader_its_office_nor_a_session_its_life() {
    let pair = Pair::start().await;
    let store = pair.redis.open();
    let session = store.open_session(TTL).await.unwrap();
    let leading = held(&session.enlist(&jobs(), &entry(1)).await.unwrap());
    pair.synchronised().await;
    pair.cut_off();
    pair.replica.cli(&["REPLICAOF", "NO", "ONE"]);
    // Its time has passed, as far as the new primary knows: the last renewals may be lost.
    let (meta, sessions) = (pair.redis.key("m"), pair.redis.key("s"));
    let clock = pair.replica.cli(&["HGET", &meta, "clock"]);
    let name = pair.replica.cli(&["ZRANGE", &sessions, "0", "0"]);
    assert_eq!(pair.replica.cli(&["ZADD", &sessions, "XX", "CH", &clock, &name]), "1");
    pair.proxy.turn_to(&pair.replica.endpoint());
    renewed(&*session, &leading).await;
    let standing = within(session.standing(&leading, None)).await.unwrap();
    assert_eq!(standing.place, Place::Leading(leading));
}
