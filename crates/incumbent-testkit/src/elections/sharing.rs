//! One store under many clients, on as many threads as the runtime has.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use incumbent::store::TokioClock;
use incumbent::{Candidacy, Client};
use tokio::task::JoinSet;

use super::fixture::{Fixture, WITHIN, lead};
use crate::conformance::Harness;

const CLIENTS: usize = 6;
const ELECTIONS: usize = 3;
/// How often each candidate leads.
const TERMS: usize = 4;

/// What the leaders of one election touch.
#[derive(Default)]
struct Resource {
    entered: AtomicU64,
    highest_token: AtomicU64,
}

/// A store is made once in a process, and everybody uses it: each office is held by one client at a
/// time, tokens grow, every candidate gets its terms, and nothing is left.
pub async fn clients_that_share_a_store_on_threads_hold_each_office_alone(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let resources: [Arc<Resource>; ELECTIONS] = Default::default();
    let mut clients = Vec::new();
    let mut candidates = JoinSet::new();
    for number in 0..CLIENTS {
        let builder = Client::builder().ttl(harness.ttl()).clock(Arc::new(TokioClock::new()));
        let client = builder.with_store(fixture.store.clone()).await.expect("a client");
        for (place, resource) in resources.iter().enumerate() {
            let election = client.election(&format!("{}/{place}", fixture.election)).expect("a well-formed name");
            let resource = resource.clone();
            candidates.spawn(async move {
                let candidacy = election.candidate(format!("c{number}")).stand().await.expect("a place in line");
                lead_often(candidacy, &resource).await;
            });
        }
        clients.push(client);
    }
    while let Some(candidate) = candidates.join_next().await {
        candidate.expect("a candidate that leads alone");
    }
    for client in clients {
        client.close(WITHIN).await.expect("nothing is left");
    }
}

async fn lead_often(mut candidacy: Candidacy, resource: &Resource) {
    for _ in 0..TERMS {
        let leadership = lead(&mut candidacy).await;
        let token = leadership.token().get();
        let highest = resource.highest_token.fetch_max(token, Ordering::SeqCst);
        let before = resource.entered.fetch_add(1, Ordering::SeqCst);
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        let since = resource.entered.load(Ordering::SeqCst) - before;
        // On a machine that stood still a deadline may have passed: then a successor may be in
        // office, and is to be.
        if leadership.check().is_ok() {
            assert_eq!(since, 1, "somebody else leads, too");
            assert!(token > highest, "{token} after {highest}");
        }
        leadership.resign().await.expect("certain");
    }
    candidacy.withdraw().await.expect("certain");
}
