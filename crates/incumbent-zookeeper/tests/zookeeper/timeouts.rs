//! Servers that grant sessions of different lengths: a session is worth no more than the shortest
//! that it may be moved to.

use std::sync::Arc;
use std::time::Duration;

use incumbent::{Candidacy, CandidacyError};
use incumbent_store::{Proof, Session, Store, StoreError};
use incumbent_testkit::proxy::{Proxy, Way};
use incumbent_testkit::servers::ZooKeeperEnsemble;
use incumbent_zookeeper::zookeeper_client::Client;
use incumbent_zookeeper::{Dialect, ZooKeeperOptions, ZooKeeperStore};

#[cfg(feature = "faults")]
use crate::harness::TICK;
use crate::harness::{ZooKeeper, in_line, lead, name, shared, until, within};

/// What the servers grant at first.
const LONG: Duration = Duration::from_secs(20);
/// What some server grants, or grants later.
const SHORT: Duration = Duration::from_secs(4);
const SHORT_LINE: &str = "maxSessionTimeout=4000";
/// Nobody asks for sessions so short that a shorter one would show.
const SLOW_TICK: Duration = Duration::from_millis(600);

/// A candidate that can live with sessions of either length.
async fn stand(store: &ZooKeeperStore, candidate: &str) -> Candidacy {
    let builder = incumbent::Client::builder().ttl(LONG).grace(Duration::from_millis(200));
    let client = builder.with_store(store.clone()).await.unwrap();
    within(client.election("timeouts").unwrap().candidate(candidate).stand()).await.unwrap()
}

/// A session, though a busy server does not answer at the first attempt.
async fn opened(store: &ZooKeeperStore, ttl: Duration) -> Arc<dyn Session> {
    within(async {
        loop {
            match store.open_session(ttl).await {
                Err(StoreError::Unavailable { .. }) => {}
                opened => return opened.unwrap(),
            }
        }
    })
    .await
}

async fn connection(server: &str, timeout: Duration) -> Client {
    within(Client::connector().with_session_timeout(timeout).connect(server)).await.unwrap()
}

/// A leader on a store that sees the server through a proxy, one who waits, and a server that comes
/// back with shorter sessions. Then the leader is cut off.
async fn a_server_grants_less_than_before(make: impl AsyncFnOnce(&str, &ZooKeeperOptions) -> ZooKeeperStore) {
    let mut server = ZooKeeperEnsemble::start(1).await;
    let proxy = Proxy::start(&server.endpoints()[0]).await;
    let zookeeper = ZooKeeper::on(&server);
    let ours = make(&proxy.endpoint(), &zookeeper.options()).await;
    let mut leading = stand(&ours, "leader").await;
    let office = lead(&mut leading).await;
    let others = zookeeper.open();
    let mut waiting = stand(&others, "next").await;
    in_line(&others, &name("timeouts"), 2).await;

    server.node(0).configure(SHORT_LINE);
    server.node(0).restart().await;
    // What it takes to notice. A leader that does not notice leads on, with a session that is
    // shorter than it believes.
    _ = tokio::time::timeout(LONG, office.term().lost()).await;
    proxy.set(Way::Stall);

    lead(&mut waiting).await;
    assert!(office.term().check().is_err(), "two lead at once");
}

#[tokio::test]
async fn a_server_that_comes_back_with_shorter_sessions_makes_no_second_leader() {
    a_server_grants_less_than_before(async |server, options| ZooKeeperStore::connect(&[server], options).unwrap())
        .await;
}

#[tokio::test]
async fn nor_does_it_on_a_connection_of_the_users_own() {
    a_server_grants_less_than_before(async |server, options| {
        ZooKeeperStore::with_client(connection(server, LONG).await, options).unwrap()
    })
    .await;
}

/// Beside the probe once per TTL, of which none is due here before the test is over.
#[tokio::test]
async fn servers_are_asked_again_at_each_reconnect() {
    const TTL: Duration = Duration::from_secs(200);
    let mut server = ZooKeeperEnsemble::start(1).await;
    let proxy = Proxy::start(&server.endpoints()[0]).await;
    let zookeeper = ZooKeeper::at(vec![proxy.endpoint()], Dialect::Incumbent);
    let session = opened(&zookeeper.open(), TTL).await;
    let mut shortened = session.shortened();
    let dials = proxy.connections();
    tokio::select! {
        left = &mut shortened => panic!("it grants as much as before: {left:?}"),
        () = until("the server is asked", async || proxy.connections() > dials) => {}
    }

    server.node(0).configure(SHORT_LINE);
    server.node(0).restart().await;

    assert_eq!(within(shortened).await, SHORT);
}

/// Each of them asks the server for what it needs itself. A short session that is granted says
/// nothing about longer ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_of_different_lengths_that_are_opened_together_are_all_granted() {
    // Without a tick that is declared it is asked for, too.
    let server = &shared().await.endpoints()[0];
    let store = ZooKeeperStore::connect(&[server], &ZooKeeperOptions::new().chroot("/together")).unwrap();
    for _ in 0..20 {
        let (long, short, other) = tokio::join!(opened(&store, LONG), opened(&store, SHORT / 4), store.promises());
        let granted = long.liveness().ttl;
        assert!(granted >= LONG, "{granted:?}");
        assert!(short.liveness().ttl < SHORT);
        assert_eq!(other.unwrap().longest_ttl, Duration::from_secs(300));
    }
}

/// Nobody can ask what the next server grants.
#[tokio::test]
async fn losing_a_connection_of_the_users_own_ends_the_term_and_says_what_to_do() {
    let server = shared().await;
    let proxy = Proxy::start(&server.endpoints()[0]).await;
    let zookeeper = ZooKeeper::on(server);
    let ours = ZooKeeperStore::with_client(connection(&proxy.endpoint(), LONG).await, &zookeeper.options()).unwrap();
    let mut leading = stand(&ours, "leader").await;
    let office = lead(&mut leading).await;

    proxy.reset();

    within(office.term().lost()).await;
    drop(office);
    match within(leading.elected()).await {
        Err(CandidacyError::Store(StoreError::Misuse { what })) => {
            assert!(what.contains("max_session_timeout"), "{what}")
        }
        other => panic!("{other:?}"),
    }
    in_line(&zookeeper.open(), &name("timeouts"), 0).await;
    let again = ours.open_session(LONG).await;
    assert!(matches!(again, Err(StoreError::Misuse { .. })), "{again:?}");
}

#[tokio::test]
async fn a_connection_of_the_users_own_may_be_lost_if_it_is_said_what_every_server_grants() {
    let server = shared().await;
    let proxy = Proxy::start(&server.endpoints()[0]).await;
    let options = ZooKeeper::on(server).options().max_session_timeout(LONG);
    let ours = ZooKeeperStore::with_client(connection(&proxy.endpoint(), LONG * 2).await, &options).unwrap();
    let mut leading = stand(&ours, "leader").await;
    let office = lead(&mut leading).await;
    for _ in 0..3 {
        proxy.reset();
        until("the connection is lost and back", async || ours.line(&name("timeouts"), 1).await.is_ok()).await;
        office.term().check().unwrap();
    }
    let session = ours.open_session(LONG).await.unwrap();
    assert_eq!(session.liveness().ttl, LONG, "and not the {:?} that were granted", LONG * 2);
    within(office.resign()).await.unwrap();
}

#[tokio::test]
async fn a_connection_of_the_users_own_needs_to_be_told_the_tick() {
    let server = shared().await;
    let connection = connection(&server.endpoints()[0], LONG).await;
    let refused = ZooKeeperStore::with_client(connection, &ZooKeeperOptions::new());
    assert!(matches!(&refused, Err(StoreError::Misuse { what }) if what.contains("tick")), "{refused:?}");
}

#[tokio::test]
async fn the_tick_is_asked_for_if_nobody_says_it() {
    let server = ZooKeeperEnsemble::builder().tick(SLOW_TICK).start(1).await;
    let store = ZooKeeperStore::connect(&server.endpoints(), &ZooKeeperOptions::new()).unwrap();
    let liveness = store.open_session(LONG).await.unwrap().liveness();
    assert_eq!((liveness.ttl, liveness.margin), (LONG + SLOW_TICK, SLOW_TICK));
    assert!(matches!(liveness.proof, Proof::Earlier { apart: SLOW_TICK, .. }), "{liveness:?}");
    assert_eq!(store.promises().await.unwrap().granularity, SLOW_TICK);
}

#[tokio::test]
async fn what_every_server_grants_is_counted_on_if_it_is_said() {
    let store = ZooKeeperStore::connect(
        &shared().await.endpoints(),
        &ZooKeeper::on(shared().await).options().max_session_timeout(SHORT),
    )
    .unwrap();
    assert_eq!(store.open_session(LONG).await.unwrap().liveness().ttl, SHORT);
    let caveats = store.promises().await.unwrap().caveats;
    assert!(caveats.iter().any(|caveat| caveat.contains("max-session-timeout")), "{caveats:?}");
}

/// It costs a moment, when a session is opened, and nothing after that.
#[tokio::test]
async fn a_server_that_does_not_answer_keeps_nobody_from_office() {
    let server = shared().await;
    let silent = Proxy::start(&server.endpoints()[0]).await;
    silent.set(Way::Stall);
    let zookeeper = ZooKeeper::at(vec![silent.endpoint(), server.endpoints()[0].clone()], Dialect::Incumbent);
    let mut leading = stand(&zookeeper.open(), "leader").await;
    let office = lead(&mut leading).await;
    office.term().check().unwrap();
    within(office.resign()).await.unwrap();
}

/// It is asked again and again beside the renewals, and never answers.
#[tokio::test]
async fn a_server_that_does_not_answer_holds_up_no_renewal() {
    const TTL: Duration = Duration::from_secs(6);
    let server = shared().await;
    let silent = Proxy::start(&server.endpoints()[0]).await;
    silent.set(Way::Stall);
    let zookeeper = ZooKeeper::at(vec![silent.endpoint(), server.endpoints()[0].clone()], Dialect::Incumbent);
    let client = incumbent::Client::builder().ttl(TTL).with_store(zookeeper.open()).await.unwrap();
    let mut leading = within(client.election("timeouts").unwrap().candidate("leader").stand()).await.unwrap();
    let office = lead(&mut leading).await;
    let first = office.term().deadline();
    let mut deadline = first;
    while deadline.since(first) < TTL * 2 {
        deadline = within(office.term().deadline_after(deadline)).await;
        assert!(deadline > first, "it has ended");
    }
    within(office.resign()).await.unwrap();
}

/// It would cut the session to what it grants itself, and nobody would hear of it.
#[cfg(feature = "faults")]
#[tokio::test]
async fn no_session_is_moved_to_a_server_that_hears_and_was_never_heard() {
    let mut ensemble = ZooKeeperEnsemble::start(3).await;
    let leader = ensemble.leader().await;
    let (kept, short) = ((leader + 1) % 3, (leader + 2) % 3);
    ensemble.node(short).configure(SHORT_LINE);
    ensemble.node(short).restart().await;
    let endpoints = ensemble.endpoints();
    let (heard, unheard) = (Proxy::start(&endpoints[kept]).await, Proxy::start(&endpoints[short]).await);
    unheard.set(Way::HoldAnswers);
    let servers = [heard.endpoint(), unheard.endpoint()];
    let ours = ZooKeeperStore::connect(&servers, &ZooKeeperOptions::new()).unwrap();
    let mut leading = stand(&ours, "leader").await;
    let office = lead(&mut leading).await;
    let others = ZooKeeperStore::connect(&[endpoints[leader].clone()], &ZooKeeperOptions::new()).unwrap();
    let mut waiting = stand(&others, "next").await;
    in_line(&others, &name("timeouts"), 2).await;

    heard.set(Way::Cut);

    lead(&mut waiting).await;
    assert!(office.term().check().is_err(), "two lead at once");
}

/// Each read is a dial of its own, and half of them meet the silent server first.
#[tokio::test]
async fn a_server_that_takes_connections_and_says_nothing_holds_up_no_read() {
    let server = shared().await;
    let silent = Proxy::start(&server.endpoints()[0]).await;
    silent.set(Way::Stall);
    let zookeeper = ZooKeeper::at(vec![silent.endpoint(), server.endpoints()[0].clone()], Dialect::Incumbent);
    for _ in 0..8 {
        let client = incumbent::Client::builder().ttl(LONG).with_store(zookeeper.open()).await.unwrap();
        let leader = client.election("timeouts").unwrap().leader().await.unwrap();
        assert!(leader.get().is_none());
    }
}

#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_of_three_with_shorter_sessions_and_a_longer_tick_is_what_counts_from_the_opening_on() {
    let mut ensemble = ZooKeeperEnsemble::start(3).await;
    ensemble.node(2).configure(SHORT_LINE);
    ensemble.node(2).configure("tickTime=600");
    ensemble.node(2).restart().await;
    let endpoints = ensemble.endpoints();
    let (first, second) = (Proxy::start(&endpoints[0]).await, Proxy::start(&endpoints[2]).await);
    let zookeeper = ZooKeeper::at(vec![first.endpoint(), second.endpoint()], Dialect::Incumbent);
    let options = ZooKeeperOptions::new().chroot(&zookeeper.chroot);
    let ours = ZooKeeperStore::connect(&[first.endpoint(), second.endpoint()], &options).unwrap();
    let liveness = ours.open_session(LONG).await.unwrap().liveness();
    assert_eq!((liveness.ttl, liveness.margin), (SHORT, SLOW_TICK));

    let mut leading = stand(&ours, "leader").await;
    let office = lead(&mut leading).await;
    let others = ZooKeeperStore::connect(&[endpoints[1].clone()], &zookeeper.options()).unwrap();
    let mut waiting = stand(&others, "next").await;
    in_line(&others, &name("timeouts"), 2).await;
    // Wherever it was: it is at the server with the shorter sessions then, and is cut off.
    first.set(Way::Cut);
    until("it is moved", async || ours.line(&name("timeouts"), 1).await.is_ok()).await;
    second.set(Way::Stall);

    lead(&mut waiting).await;
    assert!(office.term().check().is_err(), "two lead at once");
}

/// Nothing happens to the connection: only who asks learns of it.
#[cfg(feature = "faults")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_grants_less_than_it_did_is_found_before_the_session_is_moved_to_it() {
    let mut ensemble = ZooKeeperEnsemble::start(3).await;
    let leader = ensemble.leader().await;
    let [kept, changed] = [1, 2].map(|next| (leader + next) % 3);
    let endpoints = ensemble.endpoints();
    let proxy = Proxy::start(&endpoints[changed]).await;
    proxy.set(Way::Cut);
    let zookeeper = ZooKeeper::at(vec![endpoints[kept].clone(), proxy.endpoint()], Dialect::Incumbent);
    let ttl = SHORT * 2;
    let session = zookeeper.open().open_session(ttl).await.unwrap();
    assert_eq!(session.liveness().ttl, ttl + TICK);
    proxy.set(Way::Forward);
    let mut shortened = session.shortened();
    let alive = async {
        loop {
            session.renew(&[]).await.unwrap();
            tokio::time::sleep(TICK).await;
        }
    };
    let story = async {
        let early = tokio::time::timeout(SHORT, &mut shortened).await;
        assert!(early.is_err(), "it grants as much as the others: {early:?}");
        ensemble.node(changed).configure(SHORT_LINE);
        ensemble.node(changed).restart().await;
        within(shortened).await
    };
    let left = tokio::select! {
        left = story => left,
        () = alive => unreachable!("it goes on"),
    };
    assert_eq!(left, SHORT);
}
