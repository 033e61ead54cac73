//! Elections in PostgreSQL, beside what people write themselves and tooz's locks, on the same
//! server, turn and turn about: a loop around `pg_try_advisory_lock`; a loop around a table with
//! one row for each election; and a loop around an unlogged table that is told of a resignation, as
//! River's electors are.
//!
//! `postgres TOOZ [SVG]`: TOOZ is the program of `bench/peers/tooz`; SVG is where to put the chart.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark that cannot measure stops")]

use std::io::{BufRead as _, BufReader};
use std::ops::Range;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use incumbent::Client;
use incumbent_bench::ours::{SETTLE, elected, handover};
use incumbent_bench::plot::Plot;
use incumbent_bench::{Table, Times};
use incumbent_postgres::PostgresStore;
use incumbent_postgres::tokio_postgres::types::{ToSql, Type};
use incumbent_postgres::tokio_postgres::{self, AsyncMessage, Client as Raw, NoTls};
use incumbent_testkit::fuzz::Rng;
use incumbent_testkit::servers::PostgresServer;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const TURNS: usize = 5;
const CAMPAIGNS: usize = 200;
const HANDOVERS: usize = 20;
const ELECTIONS: usize = 500;
/// Of each loop, all at once: each takes seconds.
const LOOP_HANDOVERS: usize = 40;
/// What is usual for those who write such a loop, and River's default.
const ADVISORY_INTERVAL: Duration = Duration::from_secs(1);
const TABLE_INTERVAL: Duration = Duration::from_secs(5);
/// By how much one of River's that waits rests longer at most, and how long it rests at most when
/// somebody has resigned: not all are to bid at once.
const RIVER_JITTER_MS: u64 = 1_000;
const RIVER_REST_MS: u64 = 50;
const TTL: Duration = Duration::from_secs(15);
const FOLLOWERS: usize = 100;
/// Until all are connected, and have renewed once.
const CONNECTED: Duration = Duration::from_secs(8);
/// How long those are watched who have nothing to do: a few renewals.
const IDLE: Duration = Duration::from_secs(20);

/// How the server's log names it.
const RIVER: &str = "river";

const TABLES: &str = "CREATE TABLE leader (name text PRIMARY KEY, id text NOT NULL, expires_at timestamptz NOT NULL);\
    CREATE UNLOGGED TABLE river (name text PRIMARY KEY, id text NOT NULL, expires_at timestamptz NOT NULL);\
    CREATE TABLE bare (name text PRIMARY KEY, value text, session text UNIQUE)";
const TABLE_TRY: &str = "INSERT INTO leader VALUES ($1, $2, now() + interval '15 s') ON CONFLICT (name) DO UPDATE \
    SET id = $2, expires_at = now() + interval '15 s' WHERE leader.id = $2 OR leader.expires_at < now()";
const RIVER_EXPIRED: &str = "DELETE FROM river WHERE name = $1 AND expires_at < now()";
const RIVER_TRY: &str = "INSERT INTO river VALUES ($1, $2, now() + interval '15 s') ON CONFLICT (name) DO NOTHING";
const RIVER_AGAIN: &str = "INSERT INTO river VALUES ($1, $2, now() + interval '15 s') ON CONFLICT (name) DO UPDATE \
    SET expires_at = now() + interval '15 s' WHERE river.id = $2";
const RIVER_RESIGN: &str = "WITH resigned AS (DELETE FROM river WHERE name = $1 AND id = $2 RETURNING name) \
    SELECT pg_notify('river', name) FROM resigned";

#[tokio::main]
async fn main() {
    let args: Vec<_> = std::env::args().collect();
    let [_, tooz, svg @ ..] = &args[..] else { panic!("the program to compare with") };
    let server = PostgresServer::start_on_disk().await;
    server.sql(TABLES);
    let bench = Bench { server, tooz: tooz.clone() };
    let mut report = Report {
        table: Table::new(
            "PostgreSQL: ours, a loop around an advisory lock (1 s), a loop around a table (5 s), one as River's (5 s and \
             NOTIFY), tooz's locks",
            &["", "ours", "advisory lock", "table", "River's", "tooz", "yardstick", "ours / yardstick"],
        ),
        plot: Plot::new(
            "Elections in PostgreSQL",
            ["Incumbent", "advisory lock, 1 s", "table, 5 s", "River's loop", "tooz"],
        ),
        aims: Vec::new(),
    };
    let commit = bench.campaigns(&mut report).await;
    bench.handovers(&mut report, commit).await;
    bench.elections(&mut report).await;
    bench.idle(&mut report).await;
    print!("{}", report.table.render());
    println!(
        "  yardsticks: a bare insert, committed, into a table with two indexes; a NOTIFY that another connection hears, \
         with nothing durable in it; the least that hands over for good; and one statement for each renewal\n  \
         River's loop bids in a transaction of four statements, on a table that a crash empties; who resigns notifies, \
         and who hears it bids after a random 0 to {RIVER_REST_MS} ms\n  \
         tooz connects for each lock, and cannot have {ELECTIONS} of them: a server has no room for so many. One who \
         waits for it waits in the server, on a connection of its own"
    );
    for aim in report.aims {
        println!("  {aim}");
    }
    if let [path, ..] = svg {
        std::fs::write(path, report.plot.render()).expect("the chart is written");
    }
}

struct Bench {
    server: PostgresServer,
    tooz: String,
}

struct Report {
    table: Table,
    plot: Plot<5>,
    /// What was aimed at, and what came of it.
    aims: Vec<String>,
}

impl Report {
    fn compare(&mut self, label: &str, values: [Option<f64>; 5], yardstick: Option<f64>) {
        let two = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.2}"));
        let ratio = values[0].zip(yardstick).map(|(ours, yardstick)| ours / yardstick);
        let cells = values.into_iter().chain([yardstick, ratio]).map(two);
        self.table.row([label.to_owned()].into_iter().chain(cells));
        if let [Some(ours), Some(advisory), Some(table), Some(river), Some(tooz)] = values {
            self.plot.group(label, [ours, advisory, table, river, tooz]);
        }
    }
}

impl Report {
    fn aim(&mut self, aim: &str, factor: f64, is_met: bool) {
        let met = if is_met { "met" } else { "missed" };
        self.aims.push(format!("aim: {aim}: {factor:.2} ({met})"));
    }
}

impl Bench {
    fn store(&self) -> PostgresStore {
        PostgresStore::from_url(&self.server.url()).expect("a store")
    }

    async fn client(&self) -> Client {
        Client::builder().ttl(TTL).with_store(self.store()).await.expect("a client")
    }

    async fn raw(&self) -> Raw {
        raw(&self.server.url()).await
    }

    fn tooz(&self, what: &str, rounds: usize, times: &mut Times) {
        let args = [&self.tooz, &self.server.endpoint(), what, &rounds.to_string()];
        times.add_from(Command::new("/usr/bin/python3").args(args));
    }

    /// Nobody else stands; the session is there. Beside it a bare insert: how long it takes, in ms.
    async fn campaigns(&self, report: &mut Report) -> f64 {
        let (mut times, mut inserts) = (<[Times; 5]>::default(), Times::default());
        let (client, raw) = (self.client().await, self.raw().await);
        for turn in 0..TURNS {
            for round in 0..CAMPAIGNS {
                let name = format!("campaign-{turn}-{round}");
                let election = client.election(&name).expect("a name");
                let start = Instant::now();
                let mut candidacy = election.candidate("a").value("value").stand().await.expect("a place");
                let office = elected(&mut candidacy).await;
                times[0].push(start.elapsed());
                office.resign().await.expect("certain");
                candidacy.withdraw().await.expect("certain");
                times[1].push(timed(try_lock(&raw, &name)).await);
                times[2].push(timed(try_table(&raw, &name, "a")).await);
                times[3].push(timed(try_river(&raw, &name, "a", RIVER_TRY)).await);
                let insert = "INSERT INTO bare VALUES ($1, 'value', $1)";
                inserts.push(timed(changed(&raw, insert, &[&name])).await);
            }
            self.tooz("campaign", CAMPAIGNS, &mut times[4]);
        }
        for percent in [50, 99] {
            let label = format!("uncontended campaign, p{percent}, ms");
            report.compare(
                &label,
                times.each_ref().map(|times| Some(times.millis(percent))),
                Some(inserts.millis(percent)),
            );
        }
        let factor = times[0].millis(50) / inserts.millis(50);
        report.aim("a campaign takes at most 2 times a bare insert, committed", factor, factor <= 2.0);
        inserts.millis(50)
    }

    /// Beside it a NOTIFY that another connection hears; and the least that hands over for good: a
    /// commit, a NOTIFY behind it, and a read of the one who hears it.
    async fn handovers(&self, report: &mut Report, commit: f64) {
        let (mut times, mut notified, mut least) = (<[Times; 5]>::default(), Times::default(), Times::default());
        let (one, other, store) = (self.client().await, self.client().await, self.store());
        let raw = self.raw().await;
        let (listening, mut heard) = self.listen("bench").await;
        let mut river = River::start(self).await;
        for turn in 0..TURNS {
            for round in 0..HANDOVERS {
                times[0].push(handover(&store, [&one, &other], &format!("handover-{turn}-{round}"), SETTLE).await);
                // Whoever has rested is slower than one who has just worked: ours has rested, too.
                tokio::time::sleep(SETTLE).await;
                let start = Instant::now();
                raw.batch_execute("NOTIFY bench").await.expect("a notification");
                heard.recv().await.expect("it is heard");
                notified.push(start.elapsed());
                raw.batch_execute("INSERT INTO bare VALUES ('office')").await.expect("a row");
                tokio::time::sleep(SETTLE).await;
                let start = Instant::now();
                raw.batch_execute("BEGIN; DELETE FROM bare WHERE name = 'office'; COMMIT; NOTIFY bench")
                    .await
                    .expect("gone");
                heard.recv().await.expect("it is heard");
                listening.simple_query("SELECT FROM bare WHERE name = 'office'").await.expect("an answer");
                least.push(start.elapsed());
                times[3].push(river.handover(&format!("handover-{turn}-{round}")).await);
            }
            self.tooz("handover", HANDOVERS, &mut times[4]);
        }
        let loops: Vec<_> = (0..2 * LOOP_HANDOVERS)
            .map(|number| tokio::spawn(loop_handover(self.server.url(), number / 2, number % 2 == 0)))
            .collect();
        for (number, handover) in loops.into_iter().enumerate() {
            times[1 + number % 2].push(handover.await.expect("no panic"));
        }
        for percent in [50, 90] {
            let label = format!("handover to a waiting follower, p{percent}, ms");
            let values = times.each_ref().map(|times| Some(times.millis(percent)));
            report.compare(&label, values, Some(notified.millis(percent)));
            let label = format!("the same beside a commit, NOTIFY and a read, p{percent}, ms");
            report.compare(&label, [values[0], None, None, None, None], Some(least.millis(percent)));
        }
        let [ours, advisory, table, river, _] = times.each_ref().map(|times| times.millis(50));
        let (factor, commit) = (ours / notified.millis(50), commit / notified.millis(50));
        let aim = "a handover takes at most 2 times a bare NOTIFY";
        let in_its_way = format!("{aim}, of which the commit alone takes {commit:.2}");
        report.aim(if commit < 1.0 { aim } else { &in_its_way }, factor, factor <= 2.0);
        for (which, theirs) in [("around the lock", advisory), ("around the table", table), ("as River's", river)] {
            let factor = theirs / ours;
            report.aim(
                &format!("a handover is at least 20 times faster than with the loop {which}"),
                factor,
                factor >= 20.0,
            );
        }
    }

    /// A connection that listens to this channel, and what it hears.
    async fn listen(&self, channel: &str) -> (Raw, mpsc::UnboundedReceiver<()>) {
        let (client, mut connection) = tokio_postgres::connect(&self.server.url(), NoTls).await.expect("a connection");
        let (hears, heard) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
                if matches!(message, AsyncMessage::Notification(_)) && hears.send(()).is_err() {
                    return;
                }
            }
        });
        client.batch_execute(&format!("LISTEN {channel}")).await.expect("it listens");
        (client, heard)
    }

    /// From the first call until all are won: on one session, and with one connection each way.
    async fn elections(&self, report: &mut Report) {
        let mut rates = <[Times; 4]>::default();
        let raw = self.raw().await;
        for turn in 0..TURNS {
            let client = self.client().await;
            let stand = |number| {
                let election = client.election(&format!("many-{turn}-{number}")).expect("a name");
                tokio::spawn(async move {
                    let mut candidacy = election.candidate("a").value("value").stand().await.expect("a place");
                    (elected(&mut candidacy).await, candidacy)
                })
            };
            let start = Instant::now();
            let standing: Vec<_> = (0..ELECTIONS).map(stand).collect();
            let mut offices = Vec::new();
            for office in standing {
                offices.push(office.await.expect("no panic"));
            }
            rates[0].push(start.elapsed());
            drop(offices);
            client.close(TTL).await.expect("all is given back");
            for (way, rate) in rates[1..].iter_mut().enumerate() {
                let start = Instant::now();
                for number in 0..ELECTIONS {
                    let name = format!("many-{turn}-{number}");
                    assert!(match way {
                        0 => try_lock(&raw, &name).await,
                        1 => try_table(&raw, &name, "a").await,
                        _ => try_river(&raw, &name, "a", RIVER_TRY).await,
                    });
                }
                rate.push(start.elapsed());
            }
        }
        let per_second = |times: &Times| Some(ELECTIONS as f64 / times.percentile(50).as_secs_f64());
        let [ours, advisory, table, river] = rates.each_ref().map(per_second);
        report.compare("elections won per second, one client", [ours, advisory, table, river, None], None);
    }

    /// Statements that those cost who have nothing to do: all of them, as the server logs them.
    async fn idle(&self, report: &mut Report) {
        self.server.sql("ALTER SYSTEM SET log_statement = 'all'");
        // Not every statement of River's loop names its table.
        self.server.sql("ALTER SYSTEM SET log_line_prefix = '%a: '");
        self.server.sql("SELECT pg_reload_conf()");
        let tooz = [0, FOLLOWERS].map(|followers| {
            let (mut peer, before) = (ToozIdle::start(self, followers), self.logged(""));
            std::thread::sleep(IDLE);
            let logged = self.logged("") - before;
            peer.end();
            logged / IDLE.as_secs_f64()
        });
        let leader = self.client().await;
        let mut candidacy =
            leader.election("idle").expect("a name").candidate("leader").stand().await.expect("a place");
        let office = elected(&mut candidacy).await;
        let loops = [(true, ADVISORY_INTERVAL), (false, TABLE_INTERVAL)];
        let mut looping = Vec::new();
        for (advisory, interval) in loops {
            looping.push(self.idle_loops(advisory, 1, interval).await);
        }
        looping.push(self.idle_river(0..1).await);
        tokio::time::sleep(CONNECTED).await;
        let alone = self.statements(tooz[0]).await;
        // Each has a session of its own; the connections are shared, of which a server has few.
        let (store, mut followers) = (self.store(), Vec::new());
        for number in 0..FOLLOWERS {
            let client = Client::builder().ttl(TTL).with_store(store.clone()).await.expect("a client");
            let candidate = client.election("idle").expect("a name").candidate(number.to_string()).stand();
            followers.push((candidate.await.expect("a place"), client));
        }
        for (advisory, interval) in loops {
            looping.push(self.idle_loops(advisory, FOLLOWERS, interval).await);
        }
        looping.push(self.idle_river(1..FOLLOWERS + 1).await);
        tokio::time::sleep(CONNECTED).await;
        let all = self.statements(tooz[1]).await;
        let renewals = 3.0 / TTL.as_secs_f64();
        report.compare("statements a second, one idle leader", alone, Some(renewals));
        let label = format!("statements a second, and {FOLLOWERS} idle followers");
        let all_renewals = (FOLLOWERS as f64 + 1.0) * renewals;
        report.compare(&label, all, Some(all_renewals));
        let factor = all[0].unwrap_or(f64::INFINITY) / all_renewals;
        let more = 1.0 / (IDLE.as_secs_f64() * renewals);
        // One renewal of each may fall out of the time that is watched, or into it.
        report.aim("who is idle costs one statement for each renewal", factor, factor <= 1.0 + more);
        looping.into_iter().flatten().for_each(|task| task.abort());
        office.resign().await.expect("certain");
    }

    /// Those who hold an office by a loop, or wait for it, each beginning at another time.
    async fn idle_loops(&self, advisory: bool, members: usize, interval: Duration) -> Vec<JoinHandle<()>> {
        // Each would have a connection of its own, which tells nothing of its statements.
        let shared = Arc::new(self.raw().await);
        let id = format!("{members}");
        let each = (0..members).map(|number| {
            let (raw, id) = (shared.clone(), format!("{id}-{number}"));
            tokio::spawn(async move {
                tokio::time::sleep(interval.mul_f64(number as f64 / members as f64)).await;
                loop {
                    if advisory {
                        try_lock(&raw, "idle").await;
                    } else {
                        try_table(&raw, "idle", &id).await;
                    }
                    tokio::time::sleep(interval).await;
                }
            })
        });
        each.collect()
    }

    /// Those of River's with these numbers, of which the first leads.
    async fn idle_river(&self, numbers: Range<usize>) -> Vec<JoinHandle<()>> {
        let url = format!("{}?application_name={RIVER}", self.server.url());
        // One at a time: their transactions are not to mix.
        let (shared, members) = (Arc::new(Mutex::new(raw(&url).await)), numbers.len());
        let each = numbers.enumerate().map(|(place, number)| {
            let shared = shared.clone();
            tokio::spawn(async move {
                let mut random = Rng::from_number(number as u64);
                tokio::time::sleep(TABLE_INTERVAL.mul_f64(place as f64 / members as f64)).await;
                loop {
                    let bid = if number == 0 { RIVER_AGAIN } else { RIVER_TRY };
                    let leads = try_river(&*shared.lock().await, "idle", &number.to_string(), bid).await;
                    tokio::time::sleep(if leads { TABLE_INTERVAL } else { river_interval(&mut random) }).await;
                }
            })
        });
        each.collect()
    }

    /// How many come in a second of ours and of the loops', each a round trip; beside tooz's.
    async fn statements(&self, tooz: f64) -> [Option<f64>; 5] {
        let river = format!("{RIVER}: ");
        let count =
            || [r#"FROM "incumbent"."#, "pg_try_advisory_lock", "INTO leader", &river].map(|what| self.logged(what));
        let before = count();
        tokio::time::sleep(IDLE).await;
        let after = count();
        let [ours, advisory, table, river] = std::array::from_fn(|way| (after[way] - before[way]) / IDLE.as_secs_f64());
        [ours, advisory, table, river, tooz].map(Some)
    }

    /// How many statements were logged that contain this.
    fn logged(&self, what: &str) -> f64 {
        let logs = self.server.logs();
        let of_a_statement = |line: &&str| line.contains("LOG:  statement: ") || line.contains("LOG:  execute ");
        logs.lines().filter(of_a_statement).filter(|line| line.contains(what)).count() as f64
    }
}

/// Two of River's electors, of which one leads and the other listens.
struct River {
    leader: Raw,
    follower: Raw,
    _listening: Raw,
    heard: mpsc::UnboundedReceiver<()>,
    random: Rng,
}

impl River {
    async fn start(bench: &Bench) -> River {
        let (_listening, heard) = bench.listen("river").await;
        let random = Rng::from_number(0);
        River { leader: bench.raw().await, follower: bench.raw().await, _listening, heard, random }
    }

    /// From the leader's resignation until the one that listens leads.
    async fn handover(&mut self, name: &str) -> Duration {
        assert!(try_river(&self.leader, name, "leader", RIVER_TRY).await);
        assert!(!try_river(&self.follower, name, "follower", RIVER_TRY).await);
        tokio::time::sleep(SETTLE).await;
        let start = Instant::now();
        let resigns = async { changed(&self.leader, RIVER_RESIGN, &[name, "leader"]).await };
        let bids = async {
            loop {
                if timeout(river_interval(&mut self.random), self.heard.recv()).await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(self.random.below(RIVER_REST_MS + 1))).await;
                }
                if try_river(&self.follower, name, "follower", RIVER_TRY).await {
                    return start.elapsed();
                }
            }
        };
        let (resigned, took) = tokio::join!(resigns, bids);
        assert!(resigned, "it led");
        took
    }
}

/// How long one that waits rests if it hears nothing.
fn river_interval(random: &mut Rng) -> Duration {
    TABLE_INTERVAL + Duration::from_millis(random.below(RIVER_JITTER_MS + 1))
}

/// tooz's locks, of which one is held and the others are waited for, until this ends.
struct ToozIdle(Child);

impl ToozIdle {
    /// Waits until all are there.
    fn start(bench: &Bench, followers: usize) -> ToozIdle {
        let mut peer = Command::new("/usr/bin/python3")
            .args([&bench.tooz, &bench.server.endpoint(), "idle", &followers.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("tooz");
        let mut ready = String::new();
        BufReader::new(peer.stdout.take().expect("it speaks")).read_line(&mut ready).expect("it says so");
        assert_eq!(ready.trim(), "ready");
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory'";
        while bench.server.sql(waiting) != followers.to_string() {
            std::thread::sleep(Duration::from_millis(100));
        }
        ToozIdle(peer)
    }

    fn end(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

async fn raw(url: &str) -> Raw {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

async fn try_lock(raw: &Raw, name: &str) -> bool {
    let sql = "SELECT pg_try_advisory_lock(hashtextextended($1, 0))";
    raw.query_typed_one(sql, &[(&name, Type::TEXT)]).await.expect("an answer").get(0)
}

async fn try_table(raw: &Raw, name: &str, id: &str) -> bool {
    changed(raw, TABLE_TRY, &[name, id]).await
}

/// In a transaction: who has expired goes, and there is a row or there is none.
async fn try_river(raw: &Raw, name: &str, id: &str, bid: &str) -> bool {
    raw.batch_execute("BEGIN").await.expect("a transaction");
    changed(raw, RIVER_EXPIRED, &[name]).await;
    let leads = changed(raw, bid, &[name, id]).await;
    raw.batch_execute("COMMIT").await.expect("a commit");
    leads
}

/// Whether a statement changed a row: in one round trip, as with one that was prepared before.
async fn changed(raw: &Raw, sql: &str, texts: &[&str]) -> bool {
    let typed: Vec<(&(dyn ToSql + Sync), _)> = texts.iter().map(|text| (text as _, Type::TEXT)).collect();
    raw.execute_typed(sql, &typed).await.expect("an answer") == 1
}

/// From the leader's release until the one that looks at its interval leads. They began at
/// different times.
async fn loop_handover(url: String, number: usize, advisory: bool) -> Duration {
    let (one, other) = (raw(&url).await, raw(&url).await);
    let name = format!("loop-{advisory}-{number}");
    let interval = if advisory { ADVISORY_INTERVAL } else { TABLE_INTERVAL };
    assert!(if advisory { try_lock(&one, &name).await } else { try_table(&one, &name, "one").await });
    let follower = tokio::spawn({
        let name = name.clone();
        async move {
            let leads = async || {
                if advisory { try_lock(&other, &name).await } else { try_table(&other, &name, "other").await }
            };
            while !leads().await {
                tokio::time::sleep(interval).await;
            }
            Instant::now()
        }
    });
    tokio::time::sleep(interval.mul_f64((number as f64 + 0.5) / LOOP_HANDOVERS as f64)).await;
    let start = Instant::now();
    let release = if advisory {
        "SELECT pg_advisory_unlock(hashtextextended($1, 0))"
    } else {
        "DELETE FROM leader WHERE name = $1"
    };
    one.execute(release, &[&name]).await.expect("an answer");
    follower.await.expect("no panic") - start
}

async fn timed(what: impl Future<Output = bool>) -> Duration {
    let start = Instant::now();
    assert!(what.await, "nobody else is there");
    start.elapsed()
}
