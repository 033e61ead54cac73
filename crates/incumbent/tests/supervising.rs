//! What supervisors and operators need beyond a leadership: deadlines as they move, roles as they
//! change, the state of an election as a whole.

#![allow(clippy::unwrap_used, reason = "a test speaks by panicking")]

use std::sync::Arc;
use std::time::Duration;

use incumbent::store::TokioClock;
use incumbent::store::memory::{MemoryStore, Shape};
use incumbent::{Candidacy, Client, LossReason, Role, Timestamp};

const TTL: Duration = Duration::from_secs(3);
const WITHIN: Duration = Duration::from_secs(60);

/// A store in virtual time, and clients of it.
struct World {
    store: MemoryStore,
    clock: Arc<TokioClock>,
}

impl World {
    fn new() -> World {
        let clock = Arc::new(TokioClock::new());
        World { store: MemoryStore::with_clock(Shape::FAIR, clock.clone()), clock }
    }

    async fn client(&self) -> Client {
        let builder = Client::builder().ttl(TTL).clock(self.clock.clone());
        builder.with_store(self.store.clone()).await.unwrap()
    }

    async fn stand(&self, name: &str) -> Candidacy {
        self.client().await.election("jobs/x").unwrap().candidate(name).stand().await.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn each_renewal_moves_the_deadline_and_the_end_of_the_term_makes_it_zero() {
    let world = World::new();
    let mut candidacy = world.stand("a").await;
    let office = candidacy.elected().await.unwrap().unwrap();
    let term = office.term();
    let mut seen = term.deadline();
    for _ in 0..3 {
        let moved = term.deadline_after(seen).await;
        assert!(moved > seen, "{moved:?} after {seen:?}");
        seen = moved;
    }
    office.resign().await.unwrap();
    assert_eq!(term.deadline_after(seen).await, Timestamp::ZERO);
    assert_eq!(term.deadline(), Timestamp::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_store_without_descriptors_has_no_lifeline() {
    let world = World::new();
    let mut candidacy = world.stand("a").await;
    let office = candidacy.elected().await.unwrap().unwrap();
    assert!(office.term().lifeline().unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn roles_are_told_when_they_change_and_only_then() {
    let world = World::new();
    let mut first = world.stand("a").await;
    let office = first.elected().await.unwrap().unwrap();
    let second = world.stand("b").await;
    let mut roles = second.roles();
    assert!(matches!(roles.next().await, Role::Following { ahead: Some(ahead), .. } if &*ahead == "a"));
    // Many renewals and re-reads later it is still the same one.
    assert!(tokio::time::timeout(TTL * 20, roles.next()).await.is_err());
    drop((office, first));
    loop {
        match roles.next().await {
            Role::Leading { .. } => break,
            Role::Following { .. } | Role::Out(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_status_of_an_election_shows_its_line_and_what_was_ordered() {
    let world = World::new();
    let election = world.client().await.election("jobs/x").unwrap();
    let status = election.status().await.unwrap().into_inner();
    assert!(status.candidates.is_empty() && status.paused.is_none() && !status.ended);

    let candidacy = world.stand("a").await;
    let status = election.status().await.unwrap().into_inner();
    assert_eq!(status.candidates[0].name.as_deref(), Some("a"));

    election.operator().by("ada@ops1").reason("tea").pause(WITHIN).await.unwrap();
    let status = election.status().await.unwrap().into_inner();
    let order = status.paused.unwrap();
    assert_eq!((status.candidates.len(), &*order.by, &*order.reason), (0, "ada@ops1", "tea"));
    assert_eq!(candidacy.role(), Role::Out(LossReason::Paused));

    election.operator().end(WITHIN).await.unwrap();
    assert!(election.status().await.unwrap().get().ended);
}
