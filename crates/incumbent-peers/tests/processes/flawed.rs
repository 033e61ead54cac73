//! Members that are wrong on purpose: the judge of all other tests here must catch them.

use incumbent_core::peers::ConsensusFlaw;
use incumbent_peers::{Algorithm, MemberId};
use incumbent_testkit::proxy::Way;

use crate::cluster::Cluster;

/// How often a group gets the chance to show what is wrong with it.
const CHANCES: usize = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_hands_over_and_leads_on_is_caught() {
    let flaw = Some(ConsensusFlaw::LeaseKeptAfterTransfer);
    let mut cluster = Cluster::start_flawed(Algorithm::Consensus, 5, flaw).await;
    for _ in 0..CHANCES {
        let (leader, term) = cluster.agreed().await;
        let heir = leader % 5 + 1;
        // It would hear at once that somebody stands, and whether it believes in itself until
        // somebody is elected would be chance.
        cluster.link(heir, leader, Way::Stall);
        if cluster.query_client.transfer(MemberId(heir)).await.is_ok() {
            cluster.elected_after(term, &cluster.everyone()).await;
        }
        if cluster.look().check().is_err() {
            return;
        }
        cluster.heal();
    }
    panic!("two leaders at a time were not noticed\n{}", cluster.account());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn voters_that_break_their_promise_are_caught() {
    let flaw = Some(ConsensusFlaw::NoStickyVoters);
    let mut cluster = Cluster::start_flawed(Algorithm::Consensus, 5, flaw).await;
    for _ in 0..CHANCES {
        let (leader, term) = cluster.agreed().await;
        // One that does not hear the leader is elected by those who do.
        let rival = leader % 5 + 1;
        cluster.link(leader, rival, Way::Stall);
        cluster.link(rival, leader, Way::Stall);
        cluster.elected_after(term, &cluster.everyone()).await;
        if cluster.look().check().is_err() {
            return;
        }
        cluster.heal();
    }
    panic!("two leaders at a time were not noticed\n{}", cluster.account());
}
