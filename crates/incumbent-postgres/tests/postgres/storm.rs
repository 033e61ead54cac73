//! A server that is stopped without warning at random moments, hangs, and loses its connections,
//! and a pooler that is restarted and ends connections when they are a second old. Candidates come
//! and go meanwhile, directly and through the pooler, and what each has begun in its office writes
//! on for a while, at every level of isolation: tokens are given once, nobody believes that it
//! leads once a higher token has, no write of a lower token comes after one of a higher, and each
//! time somebody leads again soon: after a server that was stopped, after one that hung, after
//! connections that were ended, and through a pooler that was restarted.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use incumbent::Leadership;
use incumbent_store::ElectionName;
use incumbent_testkit::fuzz::Rng;
use incumbent_testkit::servers::{PgBouncer, PostgresServer};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::fence::LEVELS;
use crate::harness::{TTL, connect, sqlstate, stand, until};

const IMMEDIATE_STOPS: u64 = 50;
const SEED: u64 = 14;
/// How long the work of a leader writes on, whoever leads by then.
const WRITES_FOR: Duration = Duration::from_secs(1);
/// What L1 says is a TTL, and a retry. The rest is for a dial that hangs until it is given up,
/// which takes ten seconds, and for a machine that is busy.
const SOON: Duration = TTL.saturating_mul(8);
/// Between two writes: the server is to do other things, too.
const WRITES_EVERY: Duration = Duration::from_millis(10);

/// How a candidate goes to the server.
#[derive(Clone, Copy)]
enum Way {
    Direct,
    Pooled,
}

const EITHER: &[Way] = &[Way::Direct, Way::Pooled];

/// What the candidates saw of each other.
#[derive(Default)]
struct Ledger {
    tokens: Mutex<BTreeSet<u64>>,
    highest: AtomicU64,
    terms: [AtomicU64; 2],
    /// At each level.
    written: [AtomicU64; LEVELS.len()],
    refused: [AtomicU64; LEVELS.len()],
    over: AtomicBool,
}

impl Ledger {
    fn elected(&self, way: Way, token: u64) {
        assert!(self.tokens.lock().unwrap().insert(token), "the token {token} was given twice");
        self.highest.fetch_max(token, Ordering::SeqCst);
        self.terms[way as usize].fetch_add(1, Ordering::SeqCst);
    }

    /// How often candidates have led that go to the server in one of these ways.
    fn terms(&self, ways: &[Way]) -> u64 {
        ways.iter().map(|way| self.terms[*way as usize].load(Ordering::SeqCst)).sum()
    }

    /// Terms by each way, and what was written and refused at each level.
    fn counts(&self) -> Vec<u64> {
        let all = self.terms.iter().chain(&self.written).chain(&self.refused);
        all.map(|count| count.load(Ordering::SeqCst)).collect()
    }

    /// A leader believes that it leads only before a higher token has led.
    fn check(&self, office: &Leadership) {
        let (own, highest) = (office.token().get(), self.highest.load(Ordering::SeqCst));
        assert!(office.term().check().is_err() || highest <= own, "{own} believes that it leads after {highest} has");
    }
}

/// Leads again and again, until the storm is over.
async fn campaign(way: Way, url: String, direct: String, ledger: Arc<Ledger>) {
    let election = ElectionName::new("storm").unwrap();
    let mut candidacy = stand(&url, &election, "a").await;
    while !ledger.over.load(Ordering::SeqCst) {
        let elected = timeout(Duration::from_secs(1), candidacy.elected()).await;
        let Ok(elected) = elected else { continue };
        let office = elected.unwrap().unwrap();
        let token = office.token().get();
        ledger.elected(way, token);
        ledger.check(&office);
        let mut work = JoinSet::new();
        for level in 0..LEVELS.len() {
            work.spawn(write_on(direct.clone(), level, token, ledger.clone()));
        }
        ledger.check(&office);
        let _ = office.resign().await;
        while let Some(ended) = work.join_next().await {
            ended.unwrap();
        }
    }
    candidacy.withdraw().await.unwrap();
}

/// What a leader has begun with its office, and nobody stops: the fence first, and a row.
async fn write_on(url: String, level: usize, token: u64, ledger: Arc<Ledger>) {
    let sql = format!(
        "ROLLBACK; BEGIN ISOLATION LEVEL {}; SELECT incumbent.fence('storm', {token}); \
         INSERT INTO written (token) VALUES ({token}); COMMIT",
        LEVELS[level]
    );
    let ends = Instant::now() + WRITES_FOR;
    let mut client = None;
    while Instant::now() < ends {
        sleep(WRITES_EVERY).await;
        let Some(connected) = client.take() else {
            client = timeout(WRITES_FOR, connect(&url)).await.ok().and_then(Result::ok);
            continue;
        };
        // One that does not get through, or hangs, is tried again by another connection.
        match timeout(WRITES_FOR, connected.batch_execute(&sql)).await {
            Ok(Ok(())) => drop(ledger.written[level].fetch_add(1, Ordering::SeqCst)),
            Ok(refused) => match sqlstate(refused).as_deref() {
                Some("IN409") => drop(ledger.refused[level].fetch_add(1, Ordering::SeqCst)),
                // Found to be stale by its older snapshot.
                Some("40001") => {}
                _ => continue,
            },
            Err(_) => continue,
        }
        client = Some(connected);
    }
}

/// Who stands in the storm, and how long nobody led.
struct Storm {
    ledger: Arc<Ledger>,
    candidates: JoinSet<()>,
    /// The longest, and after what.
    worst: (Duration, &'static str),
}

impl Storm {
    /// Waits for so many terms of candidates that go to the server in one of these ways, from when
    /// that is possible again. How long nobody led is how long the first of them took to come.
    async fn until_led(&mut self, terms: u64, ways: &[Way], after: &'static str) {
        let (possible, before) = (Instant::now(), self.ledger.terms(ways));
        for terms in 1..=terms {
            until(after, async || {
                while let Some(ended) = self.candidates.try_join_next() {
                    ended.unwrap();
                }
                self.ledger.terms(ways) >= before + terms
            })
            .await;
            if terms == 1 {
                self.worst = self.worst.max((possible.elapsed(), after));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_and_no_stale_write_comes_through_whatever_happens_to_the_server_and_the_pooler() {
    let mut server = PostgresServer::start().await;
    let mut pooler = PgBouncer::start_with(&server, 4, &["server_lifetime = 1"]).await;
    server.sql("CREATE TABLE written (id bigserial, token bigint)");
    let ledger = Arc::new(Ledger::default());
    let mut candidates = JoinSet::new();
    for way in [Way::Direct, Way::Pooled, Way::Direct, Way::Pooled] {
        let url = if let Way::Direct = way { server.url() } else { pooler.url() };
        candidates.spawn(campaign(way, url, server.url(), ledger.clone()));
    }
    let mut storm = Storm { ledger, candidates, worst: (Duration::ZERO, "nothing") };
    let mut random = Rng::from_number(SEED);
    for _ in 0..IMMEDIATE_STOPS {
        // Between two blows there is time for nothing, or for a term or two.
        storm.until_led(random.below(3), EITHER, "an immediate stop").await;
        // The next one comes while this one lasts, or once somebody has led in spite of it.
        let terms = random.below(2);
        match random.below(4) {
            0 => {
                server.pause();
                // For how long it hangs: sometimes for longer than the TTL.
                sleep(Duration::from_millis(100 * random.below(40))).await;
                server.resume();
                storm.until_led(terms, EITHER, "a server that hung").await;
            }
            1 => {
                server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()");
                storm.until_led(terms, EITHER, "connections that were ended").await;
            }
            2 => {
                pooler.restart().await;
                // Those who go past it would lead without it, too.
                storm.until_led(terms, &[Way::Pooled], "a pooler that was restarted").await;
            }
            _ => {}
        }
        server.restart().await;
    }
    let Storm { ledger, mut candidates, worst: (worst, after) } = storm;
    println!("the longest that nobody led, once the server answered: {worst:?}, after {after}");
    assert!(worst <= SOON, "nobody led for {worst:?} after {after}, though the server answered");
    let before = ledger.counts();
    until("candidates lead by each way after the storm, and write and are refused at each level", async || {
        ledger.counts().iter().zip(&before).all(|(now, before)| now > before)
    })
    .await;
    ledger.over.store(true, Ordering::SeqCst);
    while let Some(ended) = candidates.join_next().await {
        ended.unwrap();
    }
    let stale =
        "SELECT count(*) FROM (SELECT token < lag(token) OVER (ORDER BY id) AS stale FROM written) w WHERE stale";
    assert_eq!(server.sql(stale), "0");
    assert_eq!(server.sql("SELECT count(*) FROM incumbent.entry"), "0", "nothing is stuck");
}
