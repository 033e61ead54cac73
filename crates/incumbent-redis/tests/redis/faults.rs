//! A server that is killed, stopped, and loses its connections and its scripts at random moments,
//! and candidates that come and go in between. It writes to its disk before it answers: tokens
//! grow, no two lead at once, and none writes behind a fence once its successor is in office, as
//! was promised. And one that loses what it wrote last: a fence on it would lose as much.

use std::fs::OpenOptions;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use incumbent_redis::{RedisFence, RedisStore, RedisWrite};
use incumbent_store::fence::{FenceError, FencingToken};
use incumbent_store::{Store, TokenStrength, lock};
use incumbent_testkit::fuzz::Rng;
use incumbent_testkit::servers::RedisServer;
use tokio::task::JoinSet;

use crate::harness::{Redis, appended, client, until};

const BLOWS: u64 = 24;
const CRASHES: u64 = 6;
const CANDIDATES: usize = 4;
/// What leaders write to, behind their fence.
const WRITTEN: &str = "written";

/// What the candidates saw of each other.
#[derive(Default)]
struct Ledger {
    highest: AtomicU64,
    terms: AtomicU64,
    leads: AtomicBool,
    over: AtomicBool,
    /// What the last of them led by.
    last: Mutex<Option<FencingToken>>,
    /// How many writes of a predecessor's were refused.
    refused: AtomicU64,
}

impl Ledger {
    /// Writes as a leader that has just taken office, after its predecessor has tried to.
    async fn write(&self, fence: &RedisFence, token: FencingToken) {
        let push = |who: &str| {
            let what = format!("{who}{:019}", token.token.get());
            [RedisWrite::new("RPUSH", WRITTEN, [what.into()])]
        };
        let before = lock(&self.last).replace(token.clone());
        if let Some(before) = before {
            match fence.write(&before, push("late")).await {
                Err(FenceError::Stale { .. }) => _ = self.refused.fetch_add(1, Ordering::SeqCst),
                Err(FenceError::Unavailable { .. }) => {}
                other => panic!("{before} wrote after {token} had taken office: {other:?}"),
            }
        }
        _ = fence.write(&token, push("")).await;
    }
}

/// Leads again and again, until the faults are over.
async fn campaign(store: RedisStore, is_fenced: bool, ledger: Arc<Ledger>) {
    let election = client(&store).await.election("faults").unwrap();
    let fence = RedisFence::new(&store, election.name(), "mark");
    let mut candidate = election.candidate("a");
    if is_fenced {
        candidate = candidate.fence(Arc::new(fence.clone()));
    }
    let mut candidacy = candidate.stand().await.unwrap();
    while !ledger.over.load(Ordering::SeqCst) {
        let elected = tokio::time::timeout(Duration::from_secs(1), candidacy.elected()).await;
        let Ok(elected) = elected else { continue };
        let office = elected.unwrap().unwrap();
        let term = office.term().clone();
        let fenced_by = term.token().clone();
        let token = fenced_by.token.get();
        let before = ledger.highest.fetch_max(token, Ordering::SeqCst);
        assert!(before < token, "{token} came after {before}");
        assert!(!ledger.leads.swap(true, Ordering::SeqCst), "two lead at once");
        ledger.terms.fetch_add(1, Ordering::SeqCst);
        let work = async {
            if is_fenced {
                ledger.write(&fence, fenced_by).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = work => {}
            _ = term.stopping() => {}
            () = tokio::time::sleep(Duration::from_millis(50)) => {}
        }
        ledger.leads.store(false, Ordering::SeqCst);
        _ = office.resign().await;
    }
    candidacy.withdraw().await.unwrap();
}

/// A number that looks random and is the same for the same blow.
fn dice(blow: u64, sides: u64) -> u64 {
    Rng::from_number(blow).below(sides)
}

/// Candidates that campaign until they are told that the faults are over.
struct Campaign {
    ledger: Arc<Ledger>,
    candidates: JoinSet<()>,
}

impl Campaign {
    fn start(redis: &Redis, is_fenced: bool) -> Campaign {
        let (ledger, mut candidates) = (Arc::new(Ledger::default()), JoinSet::new());
        for _ in 0..CANDIDATES {
            candidates.spawn(campaign(redis.open(), is_fenced, ledger.clone()));
        }
        Campaign { ledger, candidates }
    }

    /// Waits for so many more terms.
    async fn more(&mut self, terms: u64) {
        let enough = self.ledger.terms.load(Ordering::SeqCst) + terms;
        until("terms go on", async || {
            while let Some(ended) = self.candidates.try_join_next() {
                ended.unwrap();
            }
            self.ledger.terms.load(Ordering::SeqCst) >= enough
        })
        .await;
    }

    async fn end(mut self) {
        self.more(2).await;
        self.ledger.over.store(true, Ordering::SeqCst);
        while let Some(ended) = self.candidates.join_next().await {
            ended.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_and_no_two_lead_whatever_happens_to_a_server_that_keeps_everything() {
    let mut server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let redis = Redis::on(&server);
    assert_eq!(redis.open().promises().await.unwrap().tokens, TokenStrength::Durable);
    let mut campaign = Campaign::start(&redis, true);
    for blow in 0..BLOWS {
        // Between two blows there is time for nothing, or for a term or two.
        campaign.more(dice(blow, 3)).await;
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
    let ledger = campaign.ledger.clone();
    campaign.end().await;
    assert!(ledger.refused.load(Ordering::SeqCst) > 0, "some came late");
    let written = server.cli(&["LRANGE", WRITTEN, "0", "-1"]);
    let written: Vec<_> = written.lines().collect();
    let is_late = |who: &&str| who.starts_with("late");
    assert!(!written.is_empty() && written.is_sorted() && !written.iter().any(is_late), "{written:?}");
}

/// A crash of the host takes with it what was not on the disk yet: terms, and with them leaders
/// that believe for a TTL that they lead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_and_no_two_lead_though_a_server_loses_the_newest_terms_again_and_again() {
    let mut server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "everysec"]).await;
    let redis = Redis::on(&server);
    let promises = redis.open().promises().await.unwrap();
    assert_eq!(promises.tokens, TokenStrength::Volatile);
    assert!(promises.caveats.join(" ").contains("loses up to a second of writes"), "{promises:?}");
    let mut campaign = Campaign::start(&redis, false);
    for crash in 0..CRASHES {
        campaign.more(1 + dice(crash, 2)).await;
        let written = std::fs::metadata(appended(&server)).unwrap().len();
        campaign.more(dice(crash, 3)).await;
        server.kill();
        OpenOptions::new().write(true).open(appended(&server)).unwrap().set_len(written).unwrap();
        server.restart().await;
    }
    campaign.end().await;
}
