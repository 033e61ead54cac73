//! A server that is stopped without warning at random moments, hangs, and loses its connections,
//! and a pooler that is restarted and ends connections when they are a second old. Candidates come
//! and go meanwhile, and write through a fence: tokens are given once, nobody believes that it
//! leads once a higher token has, and no write of a lower token comes after one of a higher.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use incumbent::Leadership;
use incumbent_postgres::tokio_postgres::{self, NoTls};
use incumbent_testkit::fuzz::Rng;
use incumbent_testkit::servers::{PgBouncer, PostgresServer};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::harness::{TTL, store, until};

const IMMEDIATE_STOPS: u64 = 50;
const SEED: u64 = 14;

/// What the candidates saw of each other.
#[derive(Default)]
struct Ledger {
    tokens: Mutex<BTreeSet<u64>>,
    highest: AtomicU64,
    written: AtomicU64,
    over: AtomicBool,
}

impl Ledger {
    fn elected(&self, token: u64) {
        assert!(self.tokens.lock().unwrap().insert(token), "the token {token} was given twice");
        self.highest.fetch_max(token, Ordering::SeqCst);
    }

    fn terms(&self) -> usize {
        self.tokens.lock().unwrap().len()
    }

    /// A leader believes that it leads only before a higher token has led.
    fn check(&self, office: &Leadership) {
        let (own, highest) = (office.token().get(), self.highest.load(Ordering::SeqCst));
        assert!(office.term().check().is_err() || highest <= own, "{own} believes that it leads after {highest} has");
    }
}

/// Leads again and again, until the storm is over.
async fn campaign(url: String, direct: String, ledger: Arc<Ledger>) {
    let client = incumbent::Client::builder().ttl(TTL).with_store(store(&url)).await.unwrap();
    let mut candidacy = client.election("storm").unwrap().candidate("a").stand().await.unwrap();
    while !ledger.over.load(Ordering::SeqCst) {
        let elected = timeout(Duration::from_secs(1), candidacy.elected()).await;
        let Ok(elected) = elected else { continue };
        let office = elected.unwrap().unwrap();
        ledger.elected(office.token().get());
        ledger.check(&office);
        // One that does not get through is no less of a leader.
        if let Ok(Ok(())) = timeout(TTL, write(&direct, office.token().get())).await {
            ledger.written.fetch_add(1, Ordering::SeqCst);
        }
        ledger.check(&office);
        let _ = office.resign().await;
    }
    candidacy.withdraw().await.unwrap();
}

/// What a leader does with its office: the fence first, and a row.
async fn write(url: &str, token: u64) -> Result<(), tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    let sql = format!(
        "BEGIN; SELECT incumbent.fence('storm', {token}); INSERT INTO written (token) VALUES ({token}); COMMIT"
    );
    client.batch_execute(&sql).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_and_no_stale_write_comes_through_whatever_happens_to_the_server_and_the_pooler() {
    let mut server = PostgresServer::start().await;
    let mut pooler = PgBouncer::start_with(&server, 4, &["server_lifetime = 1"]).await;
    server.sql("CREATE TABLE written (id bigserial, token bigint)");
    let ledger = Arc::new(Ledger::default());
    let mut candidates = JoinSet::new();
    for url in [server.url(), server.url(), pooler.url(), pooler.url()] {
        candidates.spawn(campaign(url, server.url(), ledger.clone()));
    }
    let mut random = Rng::from_number(SEED);
    for _ in 0..IMMEDIATE_STOPS {
        // Between two blows there is time for nothing, or for a term or two.
        let enough = ledger.terms() + usize::try_from(random.below(3)).unwrap();
        until("terms go on", async || {
            while let Some(ended) = candidates.try_join_next() {
                ended.unwrap();
            }
            ledger.terms() >= enough
        })
        .await;
        match random.below(4) {
            0 => {
                server.pause();
                // For how long it hangs: sometimes for longer than the TTL.
                tokio::time::sleep(Duration::from_millis(100 * random.below(40))).await;
                server.resume();
            }
            1 => {
                let all = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()";
                server.psql().arg(all).output().unwrap();
            }
            2 => pooler.restart().await,
            _ => {}
        }
        server.restart().await;
    }
    let (terms, written) = (ledger.terms() + 2, ledger.written.load(Ordering::SeqCst));
    until("terms go on after the storm, and writes", async || {
        ledger.terms() >= terms && ledger.written.load(Ordering::SeqCst) > written
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
