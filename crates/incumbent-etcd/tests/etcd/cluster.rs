//! Three servers: the loss of their leader, and of their quorum.

use std::time::Duration;

use incumbent_etcd::EtcdMark;
use incumbent_store::Store;
use incumbent_testkit::servers::EtcdCluster;

use crate::harness::{TTL, client, entry, held, lead, lease_of, name, raw, store, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leadership_outlives_the_clusters_leader() {
    let mut cluster = EtcdCluster::start(3).await;
    let store = store(&cluster);
    let election = name("outlives");
    let client = incumbent::Client::builder().ttl(TTL * 4).with_store(store.clone()).await.unwrap();
    let ours = client.election(election.as_str()).unwrap();
    let mut seat = ours.candidate("leader").stand().await.unwrap();
    let office = lead(&mut seat).await;
    let token = office.term().token().token;

    let killed = cluster.leader().await;
    cluster.node(killed).kill();
    cluster.leader().await;

    until("the line can be read", async || {
        let line = tokio::time::timeout(TTL, store.line(&election, 9)).await;
        line.is_ok_and(|line| line.is_ok_and(|line| line.entries.iter().any(|entry| entry.token == token)))
    })
    .await;
    office.term().check().unwrap();
    office.resign().await.unwrap();
    let again = lead(&mut seat).await;
    assert!(again.term().token().token > token);
}

/// The cluster's leader has lost the others and does not know it yet. It answers keep-alives, as one with a stalled disk
/// does; whoever believes it stays in office while the others elect a new leader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keep_alive_of_a_leader_without_its_quorum_proves_nothing() {
    // A leader looks every ten seconds whether it still has a quorum.
    let cluster = EtcdCluster::start_with(3, &["--election-timeout=10000", "--heartbeat-interval=500"]).await;
    let leader = cluster.leader().await;
    let endpoints = vec![cluster.nodes()[leader].endpoint()];
    let store = incumbent_etcd::EtcdStore::connect(&endpoints, &incumbent_etcd::EtcdOptions::new()).unwrap();
    let session = store.open_session(Duration::from_secs(60)).await.unwrap();
    let election = name("no-quorum");
    let held = held(&session.enlist(&election, &entry(1)).await.unwrap());
    session.renew(std::slice::from_ref(&held)).await.unwrap();
    let lease = lease_of(&held);
    let mut other = raw(&endpoints).await;
    let mark = EtcdMark::new(&store, &election, "mark/no-quorum");
    let (store_id, token) = (session.store_id(), held.token);
    mark.write(&store_id, token, []).await.unwrap();

    let others: Vec<_> = (0..3).filter(|number| *number != leader).collect();
    others.iter().for_each(|number| cluster.nodes()[*number].pause());

    let (mut keeper, mut answers) = other.lease_keep_alive(lease).await.unwrap();
    keeper.keep_alive().await.unwrap();
    assert!(answers.message().await.unwrap().unwrap().ttl() > 0, "it still answers keep-alives");
    let renewal = tokio::time::timeout(Duration::from_secs(3), session.renew(std::slice::from_ref(&held))).await;
    assert!(!matches!(renewal, Ok(Ok(_))), "{renewal:?}");
    // Nor is a write behind a mark answered from what this one knows, even if there is nothing to
    // write.
    let written = tokio::time::timeout(Duration::from_secs(1), mark.write(&store_id, token, [])).await;
    assert!(!matches!(written, Ok(Ok(_))), "{written:?}");

    others.iter().for_each(|number| cluster.nodes()[*number].resume());
    until("the quorum is back", async || {
        let renewal = tokio::time::timeout(TTL, session.renew(std::slice::from_ref(&held))).await;
        matches!(renewal, Ok(Ok(_)))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_hangs_is_left_for_another() {
    let cluster = EtcdCluster::start(3).await;
    let store = store(&cluster);
    let election = name("hangs");
    let ours = client(&store).await.election(election.as_str()).unwrap();
    let mut seat = ours.candidate("leader").stand().await.unwrap();
    drop(lead(&mut seat).await);
    for number in 0..3 {
        cluster.nodes()[number].pause();
        until("another member answers", async || {
            matches!(tokio::time::timeout(Duration::from_secs(2), store.line(&election, 9)).await, Ok(Ok(_)))
        })
        .await;
        drop(lead(&mut seat).await);
        cluster.nodes()[number].resume();
        cluster.nodes()[number].healthy().await;
    }
}
