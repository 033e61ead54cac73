//! How our elections are measured, whichever the store.

#![allow(clippy::expect_used, reason = "a benchmark that cannot measure stops")]

use std::time::{Duration, Instant};

use incumbent::store::Store;
use incumbent::{Candidacy, Client, Leadership};

/// For a follower to begin to wait, once it is in line.
pub const SETTLE: Duration = Duration::from_millis(20);

/// From the leader's resignation to the follower in office, which has waited for so long. They have
/// a client each.
///
/// # Panics
///
/// If the store fails.
pub async fn handover(store: &dyn Store, [one, other]: [&Client; 2], name: &str, wait: Duration) -> Duration {
    let (leader, follower) = (one.election(name).expect("a name"), other.election(name).expect("a name"));
    // One that does not stand again at once, as those of others do not.
    let office = leader.candidate("leader").value("leader").try_once().await.expect("a store");
    let office = office.expect("nobody else stands");
    let mut waiting = follower.candidate("follower").value("follower").stand().await.expect("a place");
    let task = tokio::spawn(async move {
        let office = elected(&mut waiting).await;
        (Instant::now(), office, waiting)
    });
    while store.line(leader.name(), 2).await.expect("a line").entries.len() < 2 {}
    tokio::time::sleep(wait).await;
    let start = Instant::now();
    office.resign().await.expect("certain");
    let (end, office, waiting) = task.await.expect("no panic");
    office.resign().await.expect("certain");
    waiting.withdraw().await.expect("certain");
    end - start
}

/// Its next office.
///
/// # Panics
///
/// If the candidacy fails or ends.
pub async fn elected(candidacy: &mut Candidacy) -> Leadership {
    candidacy.elected().await.expect("a place").expect("an election")
}
