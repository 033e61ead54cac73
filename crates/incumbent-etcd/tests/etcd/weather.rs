//! Compaction, restarts, cut and stalled connections: one server.

use std::time::Duration;

use incumbent_etcd::{EtcdOptions, EtcdStore};
use incumbent_store::{Cursor, Place, Store, StoreError, Version, Watched};
use incumbent_testkit::proxy::{Proxy, Way};
use incumbent_testkit::servers::EtcdCluster;

use crate::harness::{TTL, client, compact, entry, held, lead, name, shared, store, until, within};

#[tokio::test]
async fn a_watch_from_before_a_compaction_wakes() {
    let cluster = EtcdCluster::start(1).await;
    let store = store(&cluster);
    let session = store.open_session(TTL).await.unwrap();
    let election = name("compacted");
    let standing = session.enlist(&election, &entry(1)).await.unwrap();
    // Deleted and compacted before anybody watches: there will be no event.
    session.withdraw(&held(&standing), None).await.unwrap();
    assert!(compact(&cluster));
    let wake = session.watch(&Watched::new(held(&standing), Version::NONE), standing.cursor);
    within(wake).await.unwrap();
    let empty = store.line(&election, 1).await.unwrap();
    let long_ago = store.watch(&election, &empty.seen(), Cursor(1));
    within(long_ago).await.unwrap();
}

#[tokio::test]
async fn a_compaction_in_the_middle_of_a_wait_changes_nothing() {
    let cluster = EtcdCluster::start(1).await;
    let store = store(&cluster);
    let election = name("compaction");
    let leader = client(&store).await.election(election.as_str()).unwrap();
    let follower = client(&store).await.election(election.as_str()).unwrap();
    let mut leading = leader.candidate("leader").stand().await.unwrap();
    let office = lead(&mut leading).await;
    let mut waiting = follower.candidate("follower").stand().await.unwrap();
    until("both are in line", async || store.line(&election, 9).await.unwrap().entries.len() == 2).await;
    assert!(compact(&cluster));
    office.term().check().unwrap();
    office.resign().await.unwrap();
    drop(leading);
    lead(&mut waiting).await;
}

#[tokio::test]
async fn a_restart_of_the_server_ends_nothing() {
    let mut cluster = EtcdCluster::start(1).await;
    let store = store(&cluster);
    let election = name("restart");
    let leader = client(&store).await.election(election.as_str()).unwrap();
    let follower = client(&store).await.election(election.as_str()).unwrap();
    let mut leading = leader.candidate("leader").stand().await.unwrap();
    let office = lead(&mut leading).await;
    let mut waiting = follower.candidate("follower").stand().await.unwrap();
    until("both are in line", async || store.line(&election, 9).await.unwrap().entries.len() == 2).await;
    let token = office.term().token().token;

    cluster.node(0).restart().await;

    until("the line can be read", async || store.line(&election, 9).await.is_ok()).await;
    // Unless the machine was so slow that the TTL has passed, nothing has changed; either way one
    // leads.
    drop(office);
    drop(leading);
    let next = lead(&mut waiting).await;
    assert!(next.term().token().token > token);
}

#[tokio::test]
async fn a_lost_connection_resolves_every_watch_and_the_next_one_works() {
    let proxy = Proxy::start(&shared().await.endpoints()[0]).await;
    let ours = EtcdStore::connect(&[proxy.endpoint()], &EtcdOptions::new()).unwrap();
    let session = ours.open_session(TTL * 5).await.unwrap();
    let election = name("lost");
    let standing = session.enlist(&election, &entry(1)).await.unwrap();
    let watch = || session.watch(&Watched::new(held(&standing), Version::NONE), standing.cursor);
    let watches: Vec<_> = (0..3).map(|_| watch()).collect();
    until("the watch stream is open", async || proxy.open_streams() == 1).await;

    proxy.reset();

    for wake in watches {
        let lost = within(wake).await;
        assert!(matches!(lost, Err(StoreError::Unavailable { .. })), "{lost:?}");
    }
    assert_eq!(ours.watches(), 0);
    until("the connection is back", async || session.standing(&held(&standing), None).await.is_ok()).await;
    let wake = watch();
    session.withdraw(&held(&standing), None).await.unwrap();
    within(wake).await.unwrap();
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_said_to_be_so() {
    let proxy = Proxy::start(&shared().await.endpoints()[0]).await;
    let store = EtcdStore::connect(&[proxy.endpoint()], &EtcdOptions::new()).unwrap();
    let session = store.open_session(TTL).await.unwrap();
    proxy.set(Way::Cut);
    let election = name("unreachable");
    let failed = session.enlist(&election, &entry(1)).await.unwrap_err();
    assert!(matches!(failed, StoreError::Unavailable { .. } | StoreError::OutcomeUnknown { .. }), "{failed:?}");
    let failed = session.renew(&[]).await.unwrap_err();
    assert!(matches!(failed, StoreError::Unavailable { .. }), "{failed:?}");
    proxy.set(Way::Forward);
    until("it is back", async || session.enlist(&election, &entry(1)).await.is_ok()).await;
}

#[tokio::test]
async fn a_keep_alive_that_was_given_up_is_not_taken_for_the_next_ones_answer() {
    let proxy = Proxy::start(&shared().await.endpoints()[0]).await;
    let store = EtcdStore::connect(&[proxy.endpoint()], &EtcdOptions::new()).unwrap();
    let session = store.open_session(TTL * 5).await.unwrap();
    session.renew(&[]).await.unwrap();
    let streams = proxy.requests();
    proxy.set(Way::Stall);
    let stalled = tokio::time::timeout(Duration::from_millis(100), session.renew(&[])).await;
    assert!(stalled.is_err(), "{stalled:?}");
    proxy.set(Way::Forward);
    within(session.renew(&[])).await.unwrap();
    // A new stream and a read: the old stream went with the answer that nobody awaited.
    assert_eq!(proxy.requests() - streams, 2);
}

#[tokio::test]
async fn a_write_to_nobody_is_known_not_to_have_arrived() {
    let nobody = format!("127.0.0.1:{}", incumbent_testkit::free_port());
    let nowhere = EtcdStore::connect(&[nobody], &EtcdOptions::new()).unwrap();
    let office = incumbent_store::Office::default()
        .with_deposed(incumbent_store::Token::new(7).map(incumbent_store::Deposed::new));
    let failed = nowhere.set_office(&name("nobody"), Version::NONE, &office).await.unwrap_err();
    assert!(matches!(failed, StoreError::Unavailable { .. }), "{failed:?}");
}

#[tokio::test]
async fn dead_endpoints_are_passed_over() {
    let cluster = shared().await;
    let dead = format!("127.0.0.1:{}", incumbent_testkit::free_port());
    let mut endpoints = cluster.endpoints();
    endpoints.insert(0, dead.clone());
    endpoints.push(dead);
    let store = EtcdStore::connect(&endpoints, &EtcdOptions::new()).unwrap();
    let election = name("dead-endpoint");
    let session = store.open_session(TTL).await.unwrap();
    assert!(matches!(session.enlist(&election, &entry(1)).await.unwrap().place, Place::Leading(_)));
}
