//! Ensembles of three whose servers are killed and cut off from each other.

use std::time::Duration;

use incumbent::Role;
use incumbent_store::{Cursor, ElectionName, Place, Store};
use incumbent_testkit::servers::ZooKeeperEnsemble;
use incumbent_zookeeper::{Dialect, ZooKeeperStore};

use crate::harness::{TTL, ZooKeeper, entry, held, in_line, lead, name, raw, stand, store, until, within};

/// Long enough for an ensemble to elect its own leader on a slow machine.
const LONG: Duration = Duration::from_secs(60);

/// The session that an entry belongs to.
async fn owner(servers: &[String], zookeeper: &ZooKeeper, name: &ElectionName, id: &str) -> i64 {
    let node = id.split('@').next().unwrap();
    let path = format!("{}/{name}/{node}", zookeeper.chroot);
    raw(servers).await.check_stat(&path).await.unwrap().unwrap().ephemeral_owner
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leaders_server_is_killed_again_and_again_and_it_leads_on() {
    let mut ensemble = ZooKeeperEnsemble::start(3).await;
    let servers = ensemble.endpoints();
    let zookeeper = ZooKeeper::at(servers.clone(), Dialect::Incumbent);
    let (store, name) = (zookeeper.open(), name("survivor"));
    let long = || incumbent::Client::builder().ttl(LONG).with_store(store.clone());
    let mut leading = long().await.unwrap().election(name.as_str()).unwrap().candidate("leader").stand().await.unwrap();
    let office = lead(&mut leading).await;
    let mut waiting = long().await.unwrap().election(name.as_str()).unwrap().candidate("next").stand().await.unwrap();
    in_line(&store, &name, 2).await;
    let line = store.line(&name, 9).await.unwrap().entries;
    let session = owner(&servers, &zookeeper, &name, line[0].id.as_str()).await;
    for _ in 0..3 {
        let mut server = None;
        until("it is connected somewhere", async || {
            server = ensemble.server_of(session).await;
            server.is_some()
        })
        .await;
        let server = server.unwrap();

        ensemble.node(server).kill();

        until("its session is at another server", async || ensemble.server_of(session).await.is_some()).await;
        until("the line can be read", async || store.line(&name, 9).await.is_ok()).await;
        office.term().check().unwrap();
        assert_eq!(store.line(&name, 9).await.unwrap().entries, line, "the same two, in the same order");
        assert!(matches!(waiting.role(), Role::Following { .. }), "{:?}", waiting.role());
        ensemble.node(server).restart().await;
    }
    // And the next election works.
    within(office.resign()).await.unwrap();
    leading.withdraw().await.unwrap();
    lead(&mut waiting).await;
}

/// The obvious proof of life is wrong: reads of our own entry, on the connection that made it, go
/// on showing it first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_server_is_cut_off_and_still_answers_reads_steps_down_before_another_leads() {
    // A server bears with the silence of the others for so long that it answers reads until the
    // test is over.
    let ensemble = ZooKeeperEnsemble::builder().divisible().sync_ticks(600).start(3).await;
    let leader = ensemble.leader().await;
    let cut_off = (0..3).find(|number| *number != leader).unwrap();
    let endpoints = ensemble.endpoints();
    let others: Vec<_> = (0..3).filter(|number| *number != cut_off).map(|number| endpoints[number].clone()).collect();
    let zookeeper = ZooKeeper::at(vec![endpoints[cut_off].clone()], Dialect::Incumbent);
    let name = name("cut-off");
    let ours = zookeeper.open();
    let theirs = ZooKeeperStore::connect(&others, &zookeeper.options()).unwrap();
    let mut leading = stand(&ours, &name, "cut off").await;
    let office = lead(&mut leading).await;
    let mut waiting = stand(&theirs, &name, "next").await;
    in_line(&theirs, &name, 2).await;
    let node = ours.line(&name, 9).await.unwrap().entries[0].id.as_str().split('@').next().unwrap().to_owned();
    let reader = raw(&[endpoints[cut_off].clone()]).await;
    reader.check_stat("/").await.unwrap();

    ensemble.cut_off(cut_off);

    let next = lead(&mut waiting).await;
    assert!(office.term().check().is_err(), "two lead at once");
    let stale = within(reader.list_children(&format!("{}/{name}", zookeeper.chroot))).await.unwrap();
    assert!(stale.contains(&node), "the server that is cut off still shows our entry: {stale:?}");
    next.term().check().unwrap();

    // A candidate that lets go of a lost office is back in line as soon as it can be.
    drop(office);
    ensemble.rejoin(cut_off);
    in_line(&theirs, &name, 2).await;
    drop(next);
    drop(waiting);
    lead(&mut leading).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat_through_a_server_that_is_cut_off_is_not_answered() {
    let ensemble = ZooKeeperEnsemble::builder().divisible().sync_ticks(600).start(3).await;
    let leader = ensemble.leader().await;
    let cut_off = (0..3).find(|number| *number != leader).unwrap();
    let store = ZooKeeper::at(vec![ensemble.endpoints()[cut_off].clone()], Dialect::Incumbent).open();
    let name = name("heartbeat");
    let session = store.open_session(LONG).await.unwrap();
    let held = held(&session.enlist(&name, &entry(1)).await.unwrap());
    session.renew(std::slice::from_ref(&held)).await.unwrap();

    ensemble.cut_off(cut_off);

    let renewal = tokio::time::timeout(Duration::from_secs(2), session.renew(std::slice::from_ref(&held))).await;
    assert!(!matches!(renewal, Ok(Ok(_))), "{renewal:?}");
    let standing = tokio::time::timeout(Duration::from_secs(2), session.standing(&held, None)).await;
    assert!(!matches!(standing, Ok(Ok(_))), "nobody learns that it leads there: {standing:?}");
    let line = tokio::time::timeout(Duration::from_secs(2), store.line(&name, 1)).await;
    assert!(!matches!(line, Ok(Ok(_))), "nobody is told who leads there: {line:?}");

    ensemble.rejoin(cut_off);
    until("it is answered again", async || {
        let renewal = tokio::time::timeout(TTL, session.renew(std::slice::from_ref(&held))).await;
        matches!(renewal, Ok(Ok(_)))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_follow_on_when_the_ensembles_leader_is_killed() {
    let mut ensemble = ZooKeeperEnsemble::start(3).await;
    let (store, name) = (store(&ensemble), name("followers"));
    let first = store.open_session(LONG).await.unwrap();
    let leading = held(&first.enlist(&name, &entry(1)).await.unwrap());
    let before = store.line(&name, 1).await.unwrap();
    let long = incumbent::Client::builder().ttl(LONG).with_store(store.clone()).await.unwrap();
    let mut waiting = long.election(name.as_str()).unwrap().candidate("next").stand().await.unwrap();
    in_line(&store, &name, 2).await;

    let leader = ensemble.leader().await;
    ensemble.node(leader).kill();
    ensemble.leader().await;

    until("the survivors answer", async || {
        matches!(tokio::time::timeout(TTL, first.renew(std::slice::from_ref(&leading))).await, Ok(Ok(_)))
    })
    .await;
    until("our place is the same", async || {
        matches!(tokio::time::timeout(TTL, first.standing(&leading, None)).await, Ok(Ok(standing)) if standing.place == Place::Leading(leading.clone()))
    })
    .await;
    until("the leader leaves", async || first.withdraw(&leading, None).await.is_ok()).await;
    lead(&mut waiting).await;
    let long_ago = store.watch(&name, &before.seen(), Cursor(1));
    within(long_ago).await.unwrap();
}
