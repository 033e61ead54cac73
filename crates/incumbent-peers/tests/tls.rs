//! A group whose members talk TLS with each other, and with nobody else.

#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use incumbent_core::ElectionName;
use incumbent_peers::{
    Algorithm, GroupConfig, Member, MemberId, Members, Node, NodeConfig, NodeEvent, QueryClient, RefusedFrame, Rules,
    Secret, Tls,
};
use incumbent_testkit::servers::Certificates;

const PATIENCE: Duration = Duration::from_secs(120);

fn tls() -> Tls {
    let certificates = Certificates::new("IP:127.0.0.1");
    let [ca, chain, key] = ["ca.pem", "server.pem", "server.key"].map(|file| PathBuf::from(certificates.file(file)));
    Tls::read(&ca, &chain, &key).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_elect_one_of_them_over_tls_and_those_without_a_certificate_stay_out() {
    let ours = tls();
    let listeners: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let members = listeners.iter().zip(1..).map(|(listener, number)| Member {
        id: MemberId(number),
        name: format!("n{number}").into(),
        address: listener.local_addr().unwrap().to_string().into(),
    });
    let members = Members::new(members).unwrap();
    let secret = Secret::new("a secret that the members share").unwrap();
    let election = ElectionName::new("e").unwrap();
    let mut group = GroupConfig::new(election, members, Algorithm::Bully, secret);
    let plain = group.clone();
    group.tls = Some(ours);
    let (mut nodes, mut running) = (Vec::new(), tokio::task::JoinSet::new());
    for (listener, number) in listeners.into_iter().zip(1..) {
        let config = NodeConfig::new(group.clone(), MemberId(number), Rules::defaults(Algorithm::Bully));
        let mut node = Node::start_on(config, listener).await.unwrap();
        nodes.push(node.view());
        running.spawn(async move { while node.event().await != NodeEvent::Closed {} });
    }
    for node in &nodes {
        let mut state = node.state();
        let led = state.wait_for(|state| state.leader.as_ref().is_some_and(|leader| leader.member == MemberId(3)));
        tokio::time::timeout(PATIENCE, led).await.expect("the third leads").unwrap();
    }
    let status = QueryClient::new(group.clone()).unwrap().status(MemberId(1)).await.unwrap();
    assert_eq!(status.member, MemberId(1));

    let before = nodes[0].counters().refused_in_total();
    let in_the_clear = QueryClient::new(plain).unwrap().status(MemberId(1)).await;
    assert!(in_the_clear.is_err(), "{in_the_clear:?}");
    let mut theirs = group;
    theirs.tls = Some(tls());
    let with_another_ca = QueryClient::new(theirs).unwrap().status(MemberId(1)).await;
    assert!(with_another_ca.is_err(), "{with_another_ca:?}");
    tokio::time::timeout(PATIENCE, async {
        while nodes[0].counters().refused_in_total() < before + 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("both are counted");
    assert!(nodes[0].counters().refused(RefusedFrame::Proof) > 0);
}
