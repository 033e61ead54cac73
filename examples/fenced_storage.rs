//! A leader is paused, loses its office, wakes up, and writes: the storage refuses it.
//!
//! Run it with `cargo run --example fenced_storage`. It takes about two seconds: the time that a
//! store waits before it takes a silent leader for dead.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use incumbent::fence::MemoryFence;
use incumbent::{Client, Election, ElectionName, FenceError, FencingToken};
use tokio::sync::oneshot;

type BoxError = Box<dyn Error + Send + Sync>;
type Storage = Arc<MemoryFence<BTreeMap<String, String>>>;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let storage: Storage = Arc::new(MemoryFence::new(&ElectionName::new("accounts")?, BTreeMap::new()));

    // A has a thread and a runtime of its own, so that all of it can be paused, its renewals too.
    let (a_leads, a_leading) = oneshot::channel();
    let (wake_a, pause) = mpsc::channel();
    let a = thread::spawn({
        let storage = storage.clone();
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(first_leader(storage, a_leads, pause))
        }
    });
    println!("A leads with token {}", a_leading.await?);

    // The candidate raises the fence before it sees its office: from then on A is shut out.
    let mut candidacy = election().await?.candidate("B").fence(storage.clone()).stand().await?;
    println!("A is paused. B waits until A's session has expired ...");
    let leadership = candidacy.elected().await?.ok_or("the election has ended")?;
    println!("B leads with token {}", leadership.token());
    write(&storage, "balance", "200, by B", leadership.token())?;

    wake_a.send(())?;
    let refused = a.join().map_err(|_| "A panicked")??;
    println!("A wakes up and writes. The storage says: {refused}");

    let balance = storage.read(|data| data.get("balance").cloned())?;
    println!("balance: {}", balance.as_deref().unwrap_or("none"));
    if balance.as_deref() != Some("200, by B") {
        return Err("a stale write was accepted".into());
    }
    leadership.resign().await?;
    Ok(())
}

/// Takes office, writes, is paused, and writes again as if nothing had happened. Answers with why
/// that was refused.
async fn first_leader(
    storage: Storage,
    leads: oneshot::Sender<FencingToken>,
    pause: mpsc::Receiver<()>,
) -> Result<FenceError, BoxError> {
    let mut candidacy = election().await?.candidate("A").fence(storage.clone()).stand().await?;
    let leadership = candidacy.elected().await?.ok_or("the election has ended")?;
    write(&storage, "balance", "100, by A", leadership.token())?;
    leads.send(leadership.token().clone()).map_err(|_| "nobody waits for A")?;

    // A long collection of garbage, a swapped-out page, a suspended machine: the thread stands
    // still, and with it everything that could have noticed that time goes by.
    pause.recv()?;

    match write(&storage, "balance", "150, by A", leadership.token()) {
        Ok(()) => Err("the write of a stale leader was accepted".into()),
        Err(refused) => Ok(refused),
    }
}

/// Every write carries the token; the storage checks it and writes in one step.
fn write(storage: &Storage, key: &str, value: &str, token: &FencingToken) -> Result<(), FenceError> {
    storage.write(token, |data| {
        data.insert(key.to_owned(), value.to_owned());
    })
}

/// Each candidate has a client, and so a session, of its own.
async fn election() -> Result<Election, BoxError> {
    let client = Client::builder().ttl(Duration::from_secs(2)).connect("memory://fenced-storage").await?;
    Ok(client.election("accounts")?)
}
