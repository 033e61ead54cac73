//! The library on the memory store: no network, so what is left is what the library itself costs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use incumbent::store::memory::{MemoryStore, Shape};
use incumbent::{Candidacy, Client};
use incumbent_bench::{Table, Times, resident_bytes};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

const ROUNDS: usize = 5;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let mut table = Table::new("The library, on the memory store", &["what", "ours", "yardstick", "ratio", "aim"]);
    campaigns(&mut table).await?;
    checks(&mut table).await?;
    waiting(&mut table).await?;
    failover(&mut table).await?;
    println!("{}", table.render());
    Ok(())
}

async fn client(store: &MemoryStore) -> Result<Client, BoxError> {
    // A long session: renewals are not what is measured here.
    Ok(Client::builder().ttl(Duration::from_secs(600)).with_store(store.clone()).await?)
}

/// Campaign and resign, over and over, beside taking and releasing a lock of tokio's that another
/// task waits for.
async fn campaigns(table: &mut Table) -> Result<(), BoxError> {
    const CAMPAIGNS: u32 = 100_000;
    let store = MemoryStore::new(Shape::FAIR);
    let election = client(&store).await?.election("bench/campaign")?;
    let mut candidacy = election.candidate("a").stand().await?;
    let (mut ours, mut theirs) = (Times::default(), Times::default());
    for _ in 0..ROUNDS {
        let began = Instant::now();
        for _ in 0..CAMPAIGNS {
            let office = candidacy.elected().await?.ok_or("the election has ended")?;
            office.resign().await?;
        }
        ours.push(began.elapsed() / CAMPAIGNS);
        theirs.push(lock_by_message(CAMPAIGNS).await?);
    }
    let (ours, theirs) = (ours.percentile(50), theirs.percentile(50));
    table.row([
        "campaign + resign".into(),
        format!("{:.0}/s ({ours:?} each)", 1.0 / ours.as_secs_f64()),
        format!("{theirs:?}: a lock granted and released by messages to a task"),
        format!("{:.2} x", ours.as_secs_f64() / theirs.as_secs_f64()),
        "over 100,000/s".into(),
    ]);
    Ok(())
}

/// What any design with a task of its own costs: ask, be told, give back, be told.
async fn lock_by_message(rounds: u32) -> Result<Duration, BoxError> {
    use tokio::sync::{mpsc, oneshot};
    let (ask, mut asked) = mpsc::unbounded_channel::<oneshot::Sender<()>>();
    let keeper = tokio::spawn(async move {
        while let Some(reply) = asked.recv().await {
            let _ = reply.send(());
        }
    });
    let began = Instant::now();
    for _ in 0..rounds {
        for _ in 0..2 {
            let (reply, granted) = oneshot::channel();
            ask.send(reply)?;
            granted.await?;
        }
    }
    let each = began.elapsed() / rounds;
    drop(ask);
    keeper.await?;
    Ok(each)
}

/// The question that every step of a leader asks, beside a bare look at the clock.
async fn checks(table: &mut Table) -> Result<(), BoxError> {
    const CHECKS: u32 = 5_000_000;
    let store = MemoryStore::new(Shape::FAIR);
    let mut candidacy = client(&store).await?.election("bench/check")?.candidate("a").stand().await?;
    let office = candidacy.elected().await?.ok_or("the election has ended")?;
    let term = office.term();
    let (mut ours, mut theirs) = (Times::default(), Times::default());
    for _ in 0..ROUNDS {
        let began = Instant::now();
        for _ in 0..CHECKS {
            std::hint::black_box(&term).check()?;
        }
        ours.push(began.elapsed() * 1000 / CHECKS);
        let began = Instant::now();
        for _ in 0..CHECKS {
            std::hint::black_box(Instant::now());
        }
        theirs.push(began.elapsed() * 1000 / CHECKS);
    }
    // Thousandfold, since a Duration counts whole nanoseconds.
    let nanos = |times: &Times| times.percentile(50).as_nanos() as f64 / 1000.0;
    table.row([
        "term.check()".into(),
        format!("{:.1} ns", nanos(&ours)),
        format!("{:.1} ns: Instant::now()", nanos(&theirs)),
        format!("{:.2} x", nanos(&ours) / nanos(&theirs)),
        "under 50 ns".into(),
    ]);
    Ok(())
}

/// Memory for candidacies that wait, each in an election of its own, the store's share included.
async fn waiting(table: &mut Table) -> Result<(), BoxError> {
    const WAITING: usize = 10_000;
    let store = MemoryStore::new(Shape::FAIR);
    let leaders = client(&store).await?;
    let followers = client(&store).await?;
    let mut leading = Vec::with_capacity(WAITING);
    for number in 0..WAITING {
        leading.push(leaders.election(&format!("bench/wait/{number}"))?.candidate("leader").stand().await?);
    }
    let mut candidacies: Vec<Candidacy> = Vec::with_capacity(WAITING);
    let before = resident_bytes()?;
    for number in 0..WAITING {
        candidacies.push(followers.election(&format!("bench/wait/{number}"))?.candidate("follower").stand().await?);
    }
    let each = resident_bytes()?.saturating_sub(before) / WAITING as u64;
    // A task that does nothing but wait is the least that a waiting candidacy of another design
    // has.
    let before = resident_bytes()?;
    let never = Arc::new(tokio::sync::Notify::new());
    let tasks: Vec<_> = (0..WAITING)
        .map(|_| {
            let never = never.clone();
            tokio::spawn(async move { never.notified().await })
        })
        .collect();
    tokio::task::yield_now().await;
    let task = resident_bytes()?.saturating_sub(before).max(1) / WAITING as u64;
    tasks.iter().for_each(|task| task.abort());
    table.row([
        "a waiting candidacy, of 10,000".into(),
        format!("{each} B"),
        format!("{task} B: an idle tokio task"),
        format!("{:.1} x", each as f64 / task.max(1) as f64),
        "under 4096 B".into(),
    ]);
    Ok(())
}

/// From one resignation to the next leadership, with so many in line.
async fn failover(table: &mut Table) -> Result<(), BoxError> {
    let mut first = None;
    for candidates in [10, 100, 1_000, 10_000] {
        let store = MemoryStore::new(Shape::FAIR);
        let mut candidacies = Vec::with_capacity(candidates);
        for number in 0..candidates {
            let election = client(&store).await?.election("bench/failover")?;
            candidacies.push(election.candidate(format!("node-{number}")).stand().await?);
        }
        let mut times = Times::default();
        let wakes = store.wakes();
        let rounds = candidates.min(200) - 1;
        let mut office = candidacies[0].elected().await?.ok_or("the election has ended")?;
        for next in &mut candidacies[1..=rounds] {
            let began = Instant::now();
            drop(office);
            office = next.elected().await?.ok_or("the election has ended")?;
            times.push(began.elapsed());
        }
        let each = times.percentile(50);
        let yardstick = *first.get_or_insert(each);
        let woken = (store.wakes() - wakes) as f64 / rounds as f64;
        table.row([
            format!("failover, {candidates} in line"),
            format!("{each:?} (p50), {woken:.1} woken"),
            format!("{yardstick:?}: with 10 in line"),
            format!("{:.2} x", each.as_secs_f64() / yardstick.as_secs_f64()),
            "flat".into(),
        ]);
    }
    Ok(())
}
