//! Three servers: the loss of their leader, and of their quorum.

use std::time::Duration;

use incumbent_etcd::rpc::LeaseGrantRequest;
use incumbent_etcd::{EtcdFence, EtcdOptions, EtcdStore};
use incumbent_store::fence::FencingToken;
use incumbent_store::{Publication, Store, StoreError, Version};
use incumbent_testkit::proxy::{Proxy, Way};
use incumbent_testkit::servers::EtcdCluster;

use crate::harness::{TTL, client, entry, held, key_of, lead, lease_of, name, put, raw, read, store, until, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leadership_outlives_the_clusters_leader() {
    let mut cluster = EtcdCluster::start(3).await;
    let store = store(&cluster);
    let election = name("outlives");
    let client = incumbent::Client::builder().ttl(TTL * 4).with_store(store.clone()).await.unwrap();
    let ours = client.election(election.as_str()).unwrap();
    let mut candidacy = ours.candidate("leader").stand().await.unwrap();
    let office = lead(&mut candidacy).await;
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
    let again = lead(&mut candidacy).await;
    assert!(again.term().token().token > token);
}

/// The cluster's leader has lost the others and does not know it yet. It answers keep-alives, as
/// one with a stalled disk does; a candidate that believes it stays in office while the others
/// elect a new leader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keep_alive_of_a_leader_without_its_quorum_proves_nothing() {
    // A leader looks every ten seconds whether it still has a quorum.
    let cluster = EtcdCluster::start_with(3, &["--election-timeout=10000", "--heartbeat-interval=500"]).await;
    let leader = cluster.leader().await;
    let endpoints = vec![cluster.nodes()[leader].endpoint()];
    let store = EtcdStore::connect(&endpoints, &EtcdOptions::new()).unwrap();
    let session = store.open_session(Duration::from_secs(60)).await.unwrap();
    let election = name("no-quorum");
    let held = held(&session.enlist(&election, &entry(1)).await.unwrap());
    session.renew(std::slice::from_ref(&held)).await.unwrap();
    let lease = lease_of(&held);
    let other = raw(&endpoints);
    let fence = EtcdFence::new(&store, &election, "mark/no-quorum");
    let token = FencingToken::new(held.token, session.store_id());
    fence.write(&token, []).await.unwrap();

    let others: Vec<_> = (0..3).filter(|number| *number != leader).collect();
    others.iter().for_each(|number| cluster.nodes()[*number].pause());

    let mut keep_alives = other.lease_keep_alive(lease).await.unwrap();
    assert!(keep_alives.answers.message().await.unwrap().unwrap().ttl > 0, "it still answers keep-alives");
    let renewal = tokio::time::timeout(Duration::from_secs(3), session.renew(std::slice::from_ref(&held))).await;
    assert!(!matches!(renewal, Ok(Ok(_))), "{renewal:?}");
    // Nor is a write behind a mark answered from what this one knows, even if there is nothing to
    // write.
    let written = tokio::time::timeout(Duration::from_secs(1), fence.write(&token, [])).await;
    assert!(!matches!(written, Ok(Ok(_))), "{written:?}");

    others.iter().for_each(|number| cluster.nodes()[*number].resume());
    until("the quorum is back", async || {
        let renewal = tokio::time::timeout(TTL, session.renew(std::slice::from_ref(&held))).await;
        matches!(renewal, Ok(Ok(_)))
    })
    .await;
}

/// The read that is to prove a keep-alive is answered by the successor of the leader that answered
/// the keep-alive: in between, the old one may have been replaced for so long that the lease has
/// expired.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keep_alive_of_one_leader_is_not_proven_by_the_next() {
    let cluster = EtcdCluster::start(3).await;
    let leader = cluster.leader().await;
    let proxy = Proxy::start(&cluster.nodes()[leader].endpoint()).await;
    let store = EtcdStore::connect(&[proxy.endpoint()], &EtcdOptions::new()).unwrap();
    let session = store.open_session(TTL * 20).await.unwrap();
    session.renew(&[]).await.unwrap();
    let before = proxy.requests();
    proxy.set(Way::HoldRequests);
    let renewing = tokio::spawn({
        let session = session.clone();
        async move { session.renew(&[]).await }
    });
    // The keep-alive is answered on its stream; the read is on its way.
    until("the read waits", async || proxy.requests() > before).await;

    let next = (leader + 1) % 3;
    let members = cluster.ctl(&["member", "list"]);
    let member = members.lines().find(|line| line.contains(&format!(" n{next},"))).expect("a member");
    let member = member.split(',').next().expect("an id");
    until("another leads", async || {
        // The servers may say that it takes too long, and do it all the same.
        let leads = cluster.leader().await == next;
        leads || cluster.etcdctl().args(["move-leader", member]).output().is_ok_and(|moved| moved.status.success())
    })
    .await;
    until("it knows that it leads", async || cluster.leader().await == next).await;
    proxy.set(Way::Forward);

    let renewal = within(renewing).await.unwrap();
    assert!(matches!(renewal, Err(StoreError::Unavailable { .. })), "{renewal:?}");
    until("the next one is proven", async || session.renew(&[]).await.is_ok()).await;
}

/// Another cluster behind the same address, with the same lease and the same key, made at the same
/// revision.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_cluster_knows_nothing_of_us_whatever_it_holds() {
    let (one, other) = (EtcdCluster::start(1).await, EtcdCluster::start(1).await);
    let proxy = Proxy::start(&one.endpoints()[0]).await;
    let store = EtcdStore::connect(&[proxy.endpoint()], &EtcdOptions::new()).unwrap();
    let session = store.open_session(Duration::from_secs(600)).await.unwrap();
    let election = name("another-cluster");
    let held = held(&session.enlist(&election, &entry(1)).await.unwrap());
    session.renew(std::slice::from_ref(&held)).await.unwrap();
    let client = raw(&other.endpoints());
    client.lease_grant(LeaseGrantRequest { ttl: 600, id: lease_of(&held) }).await.unwrap();
    put(&client, &key_of(&held), "10.0.0.7:80", lease_of(&held)).await;
    let there = read(&client, &key_of(&held), "").await;
    assert_eq!(there[0].create_revision.unsigned_abs(), held.token.get(), "nothing tells them apart");

    proxy.turn_to(&other.endpoints()[0]);

    until("the connection is back", async || store.line(&election, 1).await.is_ok()).await;
    let gone = |answer: Option<StoreError>| assert!(matches!(answer, Some(StoreError::SessionGone)), "{answer:?}");
    gone(session.standing(&held, None).await.err());
    let was = Version(held.token.get());
    gone(session.publish(&held, was, &Publication::new("again")).await.err());
    gone(session.enlist(&election, &entry(2)).await.err());
    until("the renewal is answered", async || match session.renew(std::slice::from_ref(&held)).await {
        Err(StoreError::Unavailable { .. }) => false,
        answer => {
            gone(answer.err());
            true
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_hangs_is_left_for_another() {
    let cluster = EtcdCluster::start(3).await;
    let store = store(&cluster);
    let election = name("hangs");
    let ours = client(&store).await.election(election.as_str()).unwrap();
    let mut candidacy = ours.candidate("leader").stand().await.unwrap();
    drop(lead(&mut candidacy).await);
    for number in 0..3 {
        cluster.nodes()[number].pause();
        until("another member answers", async || {
            matches!(tokio::time::timeout(Duration::from_secs(2), store.line(&election, 9)).await, Ok(Ok(_)))
        })
        .await;
        drop(lead(&mut candidacy).await);
        cluster.nodes()[number].resume();
        cluster.nodes()[number].healthy().await;
    }
}
