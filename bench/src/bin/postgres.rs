//! Elections in PostgreSQL, beside what people write themselves and tooz's locks, on the same
//! server, turn and turn about: a loop around `pg_try_advisory_lock`, and a loop around a table
//! with one row for each election, as River's.
//!
//! `postgres TOOZ [SVG]`: TOOZ is the program of `bench/peers/tooz`; SVG is where to put the chart.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark that cannot measure stops")]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use incumbent::Client;
use incumbent_bench::ours::{SETTLE, elected, handover};
use incumbent_bench::plot::Plot;
use incumbent_bench::{Table, Times};
use incumbent_postgres::PostgresStore;
use incumbent_postgres::tokio_postgres::{self, AsyncMessage, Client as Raw, NoTls};
use incumbent_testkit::servers::PostgresServer;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

const TURNS: usize = 5;
const CAMPAIGNS: usize = 200;
const HANDOVERS: usize = 20;
const ELECTIONS: usize = 500;
/// Of each loop, all at once: each takes seconds.
const LOOP_HANDOVERS: usize = 40;
/// What is usual for those who write such a loop, and River's default.
const ADVISORY_INTERVAL: Duration = Duration::from_secs(1);
const TABLE_INTERVAL: Duration = Duration::from_secs(5);
const TTL: Duration = Duration::from_secs(15);
const FOLLOWERS: usize = 100;
/// Until all are connected, and have renewed once.
const CONNECTED: Duration = Duration::from_secs(8);
/// How long those are watched who have nothing to do: a few renewals.
const IDLE: Duration = Duration::from_secs(20);

const TABLE: &str = "CREATE TABLE leader (name text PRIMARY KEY, id text NOT NULL, expires_at timestamptz NOT NULL);\
    CREATE TABLE bare (name text PRIMARY KEY, value text, session text UNIQUE)";
const TABLE_TRY: &str = "INSERT INTO leader VALUES ($1, $2, now() + interval '15 s') ON CONFLICT (name) DO UPDATE \
    SET id = $2, expires_at = now() + interval '15 s' WHERE leader.id = $2 OR leader.expires_at < now()";

#[tokio::main]
async fn main() {
    let args: Vec<_> = std::env::args().collect();
    let [_, tooz, svg @ ..] = &args[..] else { panic!("the program to compare with") };
    let server = PostgresServer::start_on_disk().await;
    server.sql(TABLE);
    let bench = Bench { server, tooz: tooz.clone() };
    let mut report = Report {
        table: Table::new(
            "PostgreSQL: ours, a loop around an advisory lock (1 s), a loop around a table (5 s), tooz's locks",
            &["", "ours", "advisory lock", "table", "tooz", "yardstick", "ours / yardstick"],
        ),
        plot: Plot::new("Elections in PostgreSQL", ["Incumbent", "advisory lock, 1 s", "table, 5 s", "tooz"]),
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
    plot: Plot<4>,
    /// What was aimed at, and what came of it.
    aims: Vec<String>,
}

impl Report {
    fn compare(&mut self, label: &str, values: [Option<f64>; 4], yardstick: Option<f64>) {
        let two = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.2}"));
        let ratio = values[0].zip(yardstick).map(|(ours, yardstick)| ours / yardstick);
        let cells = values.into_iter().chain([yardstick, ratio]).map(two);
        self.table.row([label.to_owned()].into_iter().chain(cells));
        if let [Some(ours), Some(advisory), Some(table), Some(tooz)] = values {
            self.plot.group(label, [ours, advisory, table, tooz]);
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
        let (mut times, mut inserts) = (<[Times; 4]>::default(), Times::default());
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
                let insert = "INSERT INTO bare VALUES ($1, 'value', $1)";
                inserts.push(timed(async { raw.execute(insert, &[&name]).await.expect("a row") == 1 }).await);
            }
            self.tooz("campaign", CAMPAIGNS, &mut times[3]);
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
        let (mut times, mut notified, mut least) = (<[Times; 4]>::default(), Times::default(), Times::default());
        let (one, other, store) = (self.client().await, self.client().await, self.store());
        let raw = self.raw().await;
        let (listening, mut heard) = self.listen().await;
        for turn in 0..TURNS {
            for round in 0..HANDOVERS {
                times[0].push(handover(&store, [&one, &other], &format!("handover-{turn}-{round}"), SETTLE).await);
                let start = Instant::now();
                raw.batch_execute("NOTIFY bench").await.expect("a notification");
                heard.recv().await.expect("it is heard");
                notified.push(start.elapsed());
                raw.batch_execute("INSERT INTO bare VALUES ('office')").await.expect("a row");
                let start = Instant::now();
                raw.batch_execute("BEGIN; DELETE FROM bare WHERE name = 'office'; COMMIT; NOTIFY bench")
                    .await
                    .expect("gone");
                heard.recv().await.expect("it is heard");
                listening.simple_query("SELECT FROM bare WHERE name = 'office'").await.expect("an answer");
                least.push(start.elapsed());
            }
            self.tooz("handover", HANDOVERS, &mut times[3]);
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
            report.compare(&label, [values[0], None, None, None], Some(least.millis(percent)));
        }
        let [ours, advisory, table, _] = times.each_ref().map(|times| times.millis(50));
        let (factor, commit) = (ours / notified.millis(50), commit / notified.millis(50));
        let aim = "a handover takes at most 2 times a bare NOTIFY";
        let in_its_way = format!("{aim}, of which the commit alone takes {commit:.2}");
        report.aim(if commit < 1.0 { aim } else { &in_its_way }, factor, factor <= 2.0);
        let factor = advisory.min(table) / ours;
        report.aim("a handover is at least 20 times faster than the faster loop's", factor, factor >= 20.0);
    }

    /// A listening connection, and what it hears.
    async fn listen(&self) -> (Raw, mpsc::UnboundedReceiver<()>) {
        let (client, mut connection) = tokio_postgres::connect(&self.server.url(), NoTls).await.expect("a connection");
        let (hears, heard) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
                if matches!(message, AsyncMessage::Notification(_)) && hears.send(()).is_err() {
                    return;
                }
            }
        });
        client.batch_execute("LISTEN bench").await.expect("it listens");
        (client, heard)
    }

    /// From the first call until all are won: on one session, and with one connection each way.
    async fn elections(&self, report: &mut Report) {
        let mut rates = <[Times; 3]>::default();
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
                    let led = if way == 0 { try_lock(&raw, &name).await } else { try_table(&raw, &name, "a").await };
                    assert!(led);
                }
                rate.push(start.elapsed());
            }
        }
        let per_second = |times: &Times| Some(ELECTIONS as f64 / times.percentile(50).as_secs_f64());
        let [ours, advisory, table] = rates.each_ref().map(per_second);
        report.compare("elections won per second, one client", [ours, advisory, table, None], None);
    }

    /// Statements that those cost who have nothing to do: all of them, as the server logs them.
    async fn idle(&self, report: &mut Report) {
        self.server.sql("ALTER SYSTEM SET log_statement = 'all'");
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
        let loops = [(true, 1, ADVISORY_INTERVAL), (false, 1, TABLE_INTERVAL)];
        let mut looping = Vec::new();
        for (advisory, members, interval) in loops {
            looping.push(self.idle_loops(advisory, members, interval).await);
        }
        tokio::time::sleep(CONNECTED).await;
        let alone = self.statements(tooz[0]).await;
        // Each has a session of its own; the connections are shared, of which a server has few.
        let (store, mut followers) = (self.store(), Vec::new());
        for number in 0..FOLLOWERS {
            let client = Client::builder().ttl(TTL).with_store(store.clone()).await.expect("a client");
            let candidate = client.election("idle").expect("a name").candidate(number.to_string()).stand();
            followers.push((candidate.await.expect("a place"), client));
        }
        for (advisory, _, interval) in loops {
            looping.push(self.idle_loops(advisory, FOLLOWERS, interval).await);
        }
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

    /// How many come in a second of ours and of the loops', each a round trip; beside tooz's.
    async fn statements(&self, tooz: f64) -> [Option<f64>; 4] {
        let count = || [r#"FROM "incumbent"."#, "pg_try_advisory_lock", "INTO leader"].map(|what| self.logged(what));
        let before = count();
        tokio::time::sleep(IDLE).await;
        let after = count();
        let [ours, advisory, table] = std::array::from_fn(|way| (after[way] - before[way]) / IDLE.as_secs_f64());
        [ours, advisory, table, tooz].map(Some)
    }

    /// How many statements were logged that contain this.
    fn logged(&self, what: &str) -> f64 {
        let logs = self.server.logs();
        let of_a_statement = |line: &&str| line.contains("LOG:  statement: ") || line.contains("LOG:  execute ");
        logs.lines().filter(of_a_statement).filter(|line| line.contains(what)).count() as f64
    }
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
    raw.query_one(sql, &[&name]).await.expect("an answer").get(0)
}

async fn try_table(raw: &Raw, name: &str, id: &str) -> bool {
    raw.execute(TABLE_TRY, &[&name, &id]).await.expect("an answer") == 1
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
