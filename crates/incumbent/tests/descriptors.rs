//! Clients leave nothing open. A process of its own: nobody else opens anything meanwhile.

#![allow(clippy::unwrap_used, reason = "a test speaks by panicking")]

use std::fs;
use std::time::Duration;

use incumbent::Client;
use incumbent::store::memory::{MemoryStore, Shape};
use incumbent_testkit::patience::until;

const CLIENTS: usize = 50;

fn open_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// A client that leads.
async fn leader(store: &MemoryStore, election: usize) -> (Client, incumbent::Candidacy) {
    let client = Client::builder().with_store(store.clone()).await.unwrap();
    let election = client.election(&format!("jobs/{election}")).unwrap();
    let mut candidacy = election.candidate("node-1").stand().await.unwrap();
    candidacy.elected().await.unwrap().unwrap().resign().await.unwrap();
    (client, candidacy)
}

#[tokio::test]
async fn fifty_clients_leave_no_descriptor_open_whether_they_are_closed_or_dropped() {
    let store = MemoryStore::new(Shape::FAIR);
    // What the runtime and the store open for themselves.
    let (client, candidacy) = leader(&store, CLIENTS).await;
    drop(candidacy);
    client.close(Duration::from_secs(60)).await.unwrap();
    until("the store is empty", async || store.is_empty()).await;
    let before = open_descriptors();
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        clients.push(leader(&store, number).await);
    }
    assert!(open_descriptors() >= before + CLIENTS, "each has an alarm of its own");
    for (number, (client, candidacy)) in clients.into_iter().enumerate() {
        drop(candidacy);
        if number % 2 == 0 {
            client.close(Duration::from_secs(60)).await.unwrap();
        }
    }
    until("nothing is open that was not open before", async || open_descriptors() <= before).await;
}
