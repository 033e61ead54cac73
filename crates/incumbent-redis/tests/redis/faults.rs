//! A server that is killed, stopped, and loses its connections and its scripts at random moments,
//! and candidates that come and go in between. It writes to its disk before it answers: tokens grow
//! and no two lead at once, as was promised.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use incumbent_redis::RedisStore;
use incumbent_store::{Store, TokenStrength};
use incumbent_testkit::fuzz::Rng;
use incumbent_testkit::servers::RedisServer;

use crate::harness::{Redis, client, until};

const BLOWS: u64 = 24;
const CANDIDATES: usize = 4;

/// What the candidates saw of each other.
#[derive(Default)]
struct Ledger {
    highest: AtomicU64,
    terms: AtomicU64,
    leads: AtomicBool,
    over: AtomicBool,
}

/// Leads again and again, until the faults are over.
async fn campaign(store: RedisStore, ledger: Arc<Ledger>) {
    let election = client(&store).await.election("faults").unwrap();
    let mut candidacy = election.candidate("a").stand().await.unwrap();
    while !ledger.over.load(Ordering::SeqCst) {
        let elected = tokio::time::timeout(Duration::from_secs(1), candidacy.elected()).await;
        let Ok(elected) = elected else { continue };
        let office = elected.unwrap().unwrap();
        let token = office.term().token().get();
        let before = ledger.highest.fetch_max(token, Ordering::SeqCst);
        assert!(before < token, "{token} came after {before}");
        assert!(!ledger.leads.swap(true, Ordering::SeqCst), "two lead at once");
        ledger.terms.fetch_add(1, Ordering::SeqCst);
        _ = tokio::time::timeout(Duration::from_millis(50), office.term().stopping()).await;
        ledger.leads.store(false, Ordering::SeqCst);
        _ = office.resign().await;
    }
    candidacy.withdraw().await.unwrap();
}

/// A number that looks random and is the same for the same blow.
fn dice(blow: u64, sides: u64) -> u64 {
    Rng::from_number(blow).below(sides)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_and_no_two_lead_whatever_happens_to_a_server_that_keeps_everything() {
    let mut server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let redis = Redis::on(&server);
    assert_eq!(redis.open().promises().await.unwrap().tokens, TokenStrength::Durable);
    let ledger = Arc::new(Ledger::default());
    let mut candidates = tokio::task::JoinSet::new();
    for _ in 0..CANDIDATES {
        candidates.spawn(campaign(redis.open(), ledger.clone()));
    }
    for blow in 0..BLOWS {
        // Between two blows there is time for nothing, or for a term or two.
        let enough = ledger.terms.load(Ordering::SeqCst) + dice(blow, 3);
        until("terms go on", async || {
            while let Some(ended) = candidates.try_join_next() {
                ended.unwrap();
            }
            ledger.terms.load(Ordering::SeqCst) >= enough
        })
        .await;
        match dice(blow, 4) {
            0 => server.restart().await,
            1 => {
                server.pause();
                // For how long it hangs.
                tokio::time::sleep(Duration::from_millis(100 * dice(blow, 7))).await;
                server.resume();
            }
            2 => drop(server.cli(&["CLIENT", "KILL", "TYPE", "normal"])),
            _ => drop(server.cli(&["SCRIPT", "FLUSH"])),
        }
    }
    let enough = ledger.terms.load(Ordering::SeqCst) + 2;
    until("terms go on after the faults", async || ledger.terms.load(Ordering::SeqCst) >= enough).await;
    ledger.over.store(true, Ordering::SeqCst);
    while let Some(ended) = candidates.join_next().await {
        ended.unwrap();
    }
}
