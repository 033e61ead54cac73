//! A member that has no vote yet refuses requests. Whoever meets it asks another one.

use std::time::Duration;

use incumbent_etcd::{EtcdOptions, EtcdStore};
use incumbent_store::Store;
use incumbent_testkit::proxy::Proxy;
use incumbent_testkit::servers::EtcdCluster;

use crate::harness::{TTL, entry, held, lead, name, within};

/// A member that votes and one that learns, each behind a proxy.
struct Members {
    _cluster: EtcdCluster,
    voter: Proxy,
    learner: Proxy,
}

impl Members {
    async fn start() -> Members {
        let mut cluster = EtcdCluster::start(1).await;
        let voter = Proxy::start(&cluster.endpoints()[0]).await;
        let learner = Proxy::start(&cluster.add_learner().await.endpoint()).await;
        Members { _cluster: cluster, voter, learner }
    }

    /// It begins with an endpoint of its own choice.
    fn store(&self) -> EtcdStore {
        let endpoints = [self.learner.endpoint(), self.voter.endpoint()];
        EtcdStore::connect(&endpoints, &EtcdOptions::new()).unwrap()
    }
}

#[tokio::test]
async fn a_call_that_a_learner_refuses_is_answered_by_another_member() {
    let members = Members::start().await;
    for _ in 0..200 {
        let store = members.store();
        let before = members.learner.requests();
        let session = store.open_session(Duration::from_secs(60)).await.unwrap();
        if members.learner.requests() == before {
            continue;
        }
        let held = held(&session.enlist(&name("refused"), &entry(1)).await.unwrap());
        session.renew(&[held]).await.unwrap();
        return;
    }
    panic!("no store begins with the learner");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn candidates_with_a_learner_among_their_endpoints_are_elected_and_stay_in_office() {
    let members = Members::start().await;
    let election = name("learner");
    let stand = async |candidate: &str| {
        let client = incumbent::Client::builder().ttl(TTL * 5).with_store(members.store()).await.unwrap();
        within(client.election(election.as_str()).unwrap().candidate(candidate).stand()).await.unwrap()
    };
    let mut leading = stand("leader").await;
    let office = lead(&mut leading).await;
    let mut waiting = stand("next").await;

    let mut deadline = office.term().deadline();
    for _ in 0..2 {
        // Streams end, and those who had one try the next endpoint.
        members.voter.reset();
        let renewed = within(office.term().deadline_after(deadline)).await;
        assert!(renewed > deadline, "it has ended");
        deadline = renewed;
    }
    assert!(members.learner.requests() > 0);

    office.leave().await.unwrap();
    lead(&mut waiting).await;
}
