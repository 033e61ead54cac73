//! Steps that count only when a replica has confirmed them (`?wait=1`).

use std::time::Duration;

use incumbent_redis::{GuardedScript, RedisFence, RedisStore, RedisWrite};
use incumbent_store::fence::{Fence, FenceError, FencingToken};
use incumbent_store::{Ended, Nonce, Office, Place, Store, StoreError, StoreId, Token, Version, Watched};
use incumbent_testkit::servers::RedisServer;

use crate::harness::{LONG, entry, held, jobs, named, until, within};

/// Replicas are waited for during a quarter of it.
const TTL: Duration = Duration::from_secs(20);

/// A primary, and a replica that has everything.
struct Replicated {
    primary: RedisServer,
    replica: RedisServer,
}

impl Replicated {
    async fn start() -> Replicated {
        let primary = RedisServer::start().await;
        let follows = format!("127.0.0.1 {}", primary.port());
        let replica = RedisServer::start_with(&["--replicaof", &follows]).await;
        until("it follows", async || replica.cli(&["INFO", "replication"]).contains("master_link_status:up")).await;
        Replicated { primary, replica }
    }

    fn store(&self) -> RedisStore {
        RedisStore::from_url(&format!("{}?wait=1", self.primary.url())).unwrap()
    }
}

#[tokio::test]
async fn a_step_counts_only_when_the_replica_has_it() {
    let servers = Replicated::start().await;
    let store = servers.store();
    let caveats = store.promises().await.unwrap().caveats.join(" ");
    assert!(caveats.contains("a failover loses none"), "{caveats}");
    let session = store.open_session(TTL).await.unwrap();
    let leading = held(&session.enlist(&jobs(), &entry(1)).await.unwrap());
    assert_eq!(servers.replica.cli(&["HLEN", "{incumbent}:e"]), "2", "it is there, too");

    servers.replica.pause();
    let mut renewal = Box::pin(session.renew(std::slice::from_ref(&leading)));
    // What does not count is not held up by what is waited for.
    let election = jobs();
    let line = tokio::select! {
        biased;
        early = &mut renewal => panic!("{early:?}"),
        line = store.line(&election, 9) => line.unwrap(),
    };
    assert_eq!(line.entries.len(), 1);
    match within(renewal).await {
        Err(error @ StoreError::Unavailable { .. }) => {
            assert!(error.to_string().contains("0 of 1 replicas"), "{error}")
        }
        other => panic!("{other:?}"),
    }
    servers.replica.resume();
    until("the replica is back", async || session.renew(std::slice::from_ref(&leading)).await.is_ok()).await;
    servers.replica.pause();
    let withdrawn = within(session.withdraw(&leading, None)).await;
    assert!(matches!(withdrawn, Err(StoreError::OutcomeUnknown { .. })), "{withdrawn:?}");
    servers.replica.resume();
}

/// What operators do, too: what a failover undoes was never done.
#[tokio::test]
async fn an_order_and_an_eviction_count_only_when_the_replica_has_them() {
    let servers = Replicated::start().await;
    let store = servers.store();
    let session = store.open_session(TTL).await.unwrap();
    let leading = held(&session.enlist(&jobs(), &entry(1)).await.unwrap());
    let seen = store.line(&jobs(), 9).await.unwrap().entries.remove(0);
    let (election, order) = (jobs(), Office::default().with_ended(Ended::new(Nonce(1), TTL)));

    servers.replica.pause();
    let ordered = within(store.set_office(&election, Version::NONE, &order)).await;
    assert!(matches!(ordered, Err(StoreError::OutcomeUnknown { .. })), "{ordered:?}");
    let evicted = within(store.evict(&election, &seen)).await;
    assert!(matches!(evicted, Err(StoreError::OutcomeUnknown { .. })), "{evicted:?}");
    servers.replica.resume();
    until("the replica is back", async || session.renew(&[]).await.is_ok()).await;
    assert_eq!(session.renew(std::slice::from_ref(&leading)).await.unwrap().gone, [leading]);
}

/// A replica confirms what a connection has written; there are servers where one that has written
/// nothing is confirmed at once.
#[tokio::test]
async fn a_new_connection_proves_nothing_that_the_replica_has_not_confirmed() {
    let servers = Replicated::start().await;
    let session = servers.store().open_session(TTL).await.unwrap();
    let leading = held(&session.enlist(&jobs(), &entry(1)).await.unwrap());
    let written = || servers.primary.cli(&["HGET", "{incumbent}:m", "waited"]);
    let before = written();
    let standing = within(session.standing(&leading, None)).await.unwrap();
    assert_eq!(standing.place, Place::Leading(leading.clone()));
    assert_ne!(written(), before, "a step that only reads writes something, too");
    servers.replica.pause();
    servers.primary.cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    // The first notices that the connection is lost, the second makes another.
    for _ in 0..2 {
        let standing = within(session.standing(&leading, None)).await;
        assert!(matches!(standing, Err(StoreError::Unavailable { .. })), "{standing:?}");
    }
    servers.replica.resume();
}

/// As one is that became a replica itself a moment after the step.
#[tokio::test]
async fn what_a_server_that_cannot_ask_its_replicas_has_done_is_not_confirmed() {
    let server = RedisServer::start_with(&["--rename-command", "WAIT", ""]).await;
    let session = RedisStore::from_url(&format!("{}?wait=1", server.url())).unwrap().open_session(TTL).await.unwrap();
    match session.renew(&[]).await {
        Err(error @ StoreError::Unavailable { .. }) => {
            assert!(error.to_string().contains("unknown command"), "{error}")
        }
        other => panic!("{other:?}"),
    }
    let enlisted = session.enlist(&jobs(), &entry(1)).await;
    assert!(matches!(enlisted, Err(StoreError::OutcomeUnknown { .. })), "{enlisted:?}");
    session.close().await.unwrap_err();
}

/// A fence whose server has a replica.
struct Guarded {
    servers: Replicated,
    fence: RedisFence,
}

fn token(number: u64) -> FencingToken {
    FencingToken::new(Token::new(number).unwrap(), StoreId::new("some-store"))
}

impl Guarded {
    async fn start() -> Guarded {
        let servers = Replicated::start().await;
        let fence = RedisFence::new(&servers.store(), &jobs(), "mark");
        fence.raise(&jobs(), token(5)).await.unwrap();
        assert_eq!(servers.replica.cli(&["EXISTS", "mark"]), "1", "it is there, too");
        Guarded { servers, fence }
    }
}

/// The replica is paused: it confirms nothing.
async fn is_unconfirmed<T: std::fmt::Debug>(what: impl Future<Output = Result<T, FenceError>>) {
    match within(what).await {
        Err(error @ FenceError::Unavailable { .. }) => {
            assert!(error.to_string().contains("0 of 1 replicas"), "{error}")
        }
        other => panic!("{other:?}"),
    }
}

/// A mark that a failover loses lets an older leader in.
#[tokio::test]
async fn a_mark_counts_only_when_the_replica_has_it() {
    let Guarded { servers, fence } = Guarded::start().await;
    let election = jobs();
    servers.replica.pause();
    // One that stands there already may not have been confirmed, either.
    for number in [5, 6] {
        is_unconfirmed(fence.raise(&election, token(number))).await;
    }
    is_unconfirmed(fence.reset(&StoreId::new("another"), "a test")).await;
    servers.replica.resume();
    let reset = async || fence.reset(&StoreId::new("some-store"), "a test").await.is_ok();
    until("the replica is back", reset).await;
    assert!(servers.replica.cli(&["GET", "mark"]).starts_with(&format!("{:019}", 0)), "it was reset there, too");
    fence.raise(&election, token(6)).await.unwrap();
}

#[tokio::test]
async fn what_is_written_behind_a_mark_counts_only_when_the_replica_has_it() {
    let Guarded { servers, fence } = Guarded::start().await;
    let write = async |value: &str| fence.write(&token(5), [RedisWrite::set("key", value)]).await;
    write("first").await.unwrap();
    assert_eq!(servers.replica.cli(&["GET", "key"]), "first", "it is there, too");
    servers.replica.pause();
    is_unconfirmed(write("second")).await;
    // Asked for again, this finds that it was done, and writes nothing; the replica has nothing.
    let once = GuardedScript::new("return redis.call('SETNX', KEYS[1], 'done')");
    let run_once = async || fence.run(&token(5), &once, &["once".into()], &[]).await;
    is_unconfirmed(run_once()).await;
    servers.primary.cli(&["CONFIG", "RESETSTAT"]);
    is_unconfirmed(run_once()).await;
    let commands = servers.primary.cli(&["INFO", "commandstats"]);
    assert!(commands.contains("cmdstat_set:calls=1,"), "there is something to confirm: the mark: {commands}");
    servers.replica.resume();
    until("the replica is back", async || write("third").await.is_ok()).await;
    assert_eq!(servers.replica.cli(&["MGET", "key", "once"]), "third\ndone");
}

/// What is sent after a `WAIT` waits with it.
#[tokio::test]
async fn renewals_do_not_wait_with_what_is_written_behind_a_mark() {
    let servers = Replicated::start().await;
    let store = servers.store();
    let session = store.open_session(TTL).await.unwrap();
    let fence = RedisFence::new(&store, &jobs(), "mark");
    fence.raise(&jobs(), token(5)).await.unwrap();
    session.renew(&[]).await.unwrap();
    let connections = servers.primary.cli(&["CLIENT", "LIST", "TYPE", "normal"]);
    let have_waited = connections.lines().filter(|connection| connection.contains(" cmd=wait ")).count();
    assert_eq!(have_waited, 2, "each has waited on a connection of its own: {connections}");
}

/// The primary is cut off from its replicas and from the Sentinels, and not from us.
#[tokio::test]
async fn a_primary_whose_replicas_confirm_nothing_is_left_for_the_one_that_took_over() {
    let servers = Replicated::start().await;
    let follows = format!("127.0.0.1 {}", servers.replica.port());
    let third = RedisServer::start_with(&["--replicaof", &follows]).await;
    let sentinel = RedisServer::start_sentinel(&servers.primary).await;
    let store = RedisStore::from_url(&format!("{}?sentinel=primary&wait=1", sentinel.url())).unwrap();
    let session = store.open_session(TTL).await.unwrap();
    let leading = held(&session.enlist(&jobs(), &entry(1)).await.unwrap());
    let watched = Watched::new(leading.clone(), Default::default());
    let wake = tokio::spawn(session.watch(&watched, Default::default()));
    until("it waits", async || store.watches() == 1).await;

    sentinel.cli(&["SENTINEL", "REMOVE", "primary"]);
    servers.replica.cli(&["REPLICAOF", "NO", "ONE"]);
    let port = servers.replica.port().to_string();
    assert_eq!(sentinel.cli(&["SENTINEL", "MONITOR", "primary", "127.0.0.1", &port, "1"]), "OK");
    until("a replica follows", async || third.cli(&["INFO", "replication"]).contains("master_link_status:up")).await;

    let renewed = until("it is renewed", async || match session.renew(std::slice::from_ref(&leading)).await {
        Ok(renewal) => renewal.gone.is_empty(),
        Err(StoreError::Unavailable { .. }) => false,
        Err(other) => panic!("{other:?}"),
    });
    within(renewed).await;
    // All connections are to the new one: a session that is opened can be enlisted, and news
    // arrives.
    drop(within(wake).await.unwrap());
    let second = store.open_session(TTL).await.unwrap();
    within(second.enlist(&jobs(), &entry(2))).await.unwrap();
    assert!(servers.primary.cli(&["ROLE"]).starts_with("master"), "it was told nothing");
}

/// What a primary that was cut off from its replicas must do: nothing.
#[tokio::test]
async fn a_primary_that_must_have_a_replica_makes_no_step_without_one() {
    let primary = RedisServer::start_with(&["--min-replicas-to-write", "1", "--min-replicas-max-lag", "60"]).await;
    let follows = format!("127.0.0.1 {}", primary.port());
    let mut replica = RedisServer::start_with(&["--replicaof", &follows]).await;
    let store = RedisStore::from_url(&primary.url()).unwrap();
    until("it follows", async || store.identity().await.is_ok()).await;
    let promised = store.promises().await.unwrap().caveats.join(" ");
    assert!(promised.contains("Writes stop unless 1 replica is at most 60 s behind"), "{promised}");
    let session = store.open_session(LONG).await.unwrap();
    let leading = held(&session.enlist(&jobs(), &entry(1)).await.unwrap());

    replica.kill();
    let refused = async || {
        [
            session.renew(std::slice::from_ref(&leading)).await.map(drop),
            session.enlist(&named("elsewhere"), &entry(2)).await.map(drop),
            store.open_session(LONG).await.map(drop),
            session.withdraw(&leading, None).await.map(drop),
        ]
    };
    // A moment passes before the primary has noticed.
    until("it has noticed", async || store.open_session(LONG).await.is_err()).await;
    for answer in refused().await {
        let Err(error @ StoreError::Unavailable { .. }) = answer else { panic!("{answer:?}") };
        assert!(format!("{error:?}").contains("NOREPLICAS"), "{error:?}");
    }
    replica.restart().await;
    until("it follows again", async || store.open_session(LONG).await.is_ok()).await;
    let renewal = session.renew(std::slice::from_ref(&leading)).await.unwrap();
    assert_eq!((renewal.gone, renewal.stray), (vec![], vec![]), "nothing was changed");
}
