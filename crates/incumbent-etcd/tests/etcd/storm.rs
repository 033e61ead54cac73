//! The two practical problems of every etcd election, compaction and restarted servers, a hundred
//! times at random moments; and candidates that come and go in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use incumbent_etcd::EtcdStore;
use incumbent_store::{ElectionName, Store};
use incumbent_testkit::servers::EtcdCluster;

use crate::harness::{client, compact, name, store, until};

const BLOWS: u32 = 100;
const CANDIDATES: usize = 4;

/// What the candidates saw of each other.
#[derive(Default)]
struct Ledger {
    highest: AtomicU64,
    terms: AtomicU64,
    over: AtomicBool,
}

/// Leads again and again, until the storm is over.
async fn campaign(store: EtcdStore, election: ElectionName, ledger: Arc<Ledger>) {
    let election = client(&store).await.election(election.as_str()).unwrap();
    let mut candidacy = election.candidate("a").stand().await.unwrap();
    while !ledger.over.load(Ordering::SeqCst) {
        let elected = tokio::time::timeout(Duration::from_secs(2), candidacy.elected()).await;
        let Ok(elected) = elected else { continue };
        let office = elected.unwrap().unwrap();
        let token = office.term().token().get();
        let before = ledger.highest.fetch_max(token, Ordering::SeqCst);
        assert!(before < token, "{token} came after {before}");
        ledger.terms.fetch_add(1, Ordering::SeqCst);
        let _ = tokio::time::timeout(Duration::from_millis(50), office.term().lost()).await;
        let _ = office.resign().await;
    }
    candidacy.withdraw().await.unwrap();
}

/// A number that looks random and is the same for the same blow.
fn dice(blow: u32, sides: u64) -> u64 {
    let mut number = u64::from(blow).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (number ^ (number >> 31)) % sides
}

async fn rage(mut cluster: EtcdCluster, test: &str) {
    let election = name(test);
    let ledger = Arc::new(Ledger::default());
    let mut candidates = tokio::task::JoinSet::new();
    for _ in 0..CANDIDATES {
        candidates.spawn(campaign(store(&cluster), election.clone(), ledger.clone()));
    }
    let observing = store(&cluster);
    for blow in 0..BLOWS {
        let terms = ledger.terms.load(Ordering::SeqCst);
        // Between two blows there is time for nothing, or for a term or two.
        let patience = dice(blow, 3);
        until("the election goes on", async || {
            assert!(candidates.try_join_next().is_none(), "a candidate gave up");
            ledger.terms.load(Ordering::SeqCst) >= terms + patience
        })
        .await;
        let node = dice(blow + 1000, cluster.nodes().len() as u64) as usize;
        match dice(blow + 2000, 4) {
            0 => cluster.node(node).restart().await,
            1 => {
                _ = compact(&cluster);
                cluster.node(node).restart().await;
            }
            _ => _ = compact(&cluster),
        }
    }
    let terms = ledger.terms.load(Ordering::SeqCst);
    until("somebody leads after the storm", async || ledger.terms.load(Ordering::SeqCst) > terms).await;
    let line = observing.line(&election, 99).await.unwrap().entries;
    assert!(line.len() <= CANDIDATES, "everybody is in line once at most: {line:?}");
    ledger.over.store(true, Ordering::SeqCst);
    while let Some(ended) = candidates.join_next().await {
        ended.unwrap();
    }
    until("no entry is left behind", async || {
        observing.line(&election, 99).await.is_ok_and(|line| line.entries.is_empty())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_compactions_and_restarts_of_one_server_break_nothing() {
    rage(EtcdCluster::start(1).await, "storm-of-one").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_compactions_and_restarts_of_three_servers_break_nothing() {
    rage(EtcdCluster::start(3).await, "storm-of-three").await;
}
