//! Elections in Redis, beside three libraries of locks on the same server, turn and turn about:
//! rslock, `@sesamecare-oss/redlock` and pottery. Who waits for one of their locks polls, each at
//! its default.
//!
//! `redis REDLOCK POTTERY [SVG]`: REDLOCK and POTTERY are the folders that `make bench-redis` makes
//! from `bench/peers/redlock` and `bench/peers/pottery`; SVG is where to put the chart.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark that cannot measure stops")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use incumbent::Client;
use incumbent_bench::ours::{SETTLE, elected, handover};
use incumbent_bench::plot::Plot;
use incumbent_bench::{Table, Times};
use incumbent_redis::redis::aio::MultiplexedConnection;
use incumbent_redis::redis::{self, AsyncConnectionConfig, PushInfo};
use incumbent_redis::{RedisStore, RedlockStore};
use incumbent_testkit::servers::RedisServer;
use rslock::LockManager;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

const TURNS: usize = 5;
const CAMPAIGNS: usize = 200;
/// The servers of a Redlock, and how often it is campaigned there.
const SERVERS: usize = 5;
const REDLOCK_CAMPAIGNS: usize = 50;
const HANDOVERS: usize = 20;
/// Of each that polls: each takes half a second.
const POLLED_HANDOVERS: usize = 10;
const ELECTIONS: usize = 500;
/// What the others have, too.
const TTL: Duration = Duration::from_secs(15);
const FOLLOWERS: usize = 100;
/// How long those are watched who have nothing to do: two renewals of those who renew least often.
const IDLE: Duration = Duration::from_secs(30);
/// For one that polls to look at any time, and the longest that rslock pauses.
const POLLS: Duration = Duration::from_millis(300);
const PAUSES: Duration = Duration::from_millis(200);

/// Which of the columns.
const OURS: usize = 0;
const RSLOCK: usize = 1;

#[tokio::main]
async fn main() {
    let args: Vec<_> = std::env::args().collect();
    let [_, redlock, pottery, svg @ ..] = &args[..] else { panic!("the programs to compare with") };
    let server = RedisServer::start().await;
    let peers = [
        ["node".to_owned(), format!("{redlock}/peer.js")],
        [format!("{pottery}/bin/python"), format!("{pottery}/peer.py")],
    ];
    let bench = Bench { url: server.url(), peers };
    let mut report = Report {
        table: Table::new(
            "Redis, which writes to no disk: ours, rslock, @sesamecare-oss/redlock, pottery",
            &["", "ours", "rslock", "redlock", "pottery", "yardstick", "ours / yardstick"],
        ),
        plot: Plot::new("Elections in Redis", ["Incumbent", "rslock", "redlock", "pottery"]),
        aims: Vec::new(),
    };
    bench.campaigns(&mut report).await;
    bench.redlock_campaigns(&mut report).await;
    bench.handovers(&mut report).await;
    bench.elections(&mut report).await;
    bench.idle(&mut report).await;
    print!("{}", report.table.render());
    println!(
        "  yardsticks: a bare script that sets a key (on five servers: two, one after the other, on each at once); a \
         PUBLISH that\n  another connection hears; as many bare scripts at once\n  commands in scripts are counted, too. rslock and redlock renew half a second before their TTL ({TTL:?}) \
         ends;\n  pottery does not renew by itself, and is made to do it then; ours renews when a third has passed"
    );
    for aim in report.aims {
        println!("  {aim}");
    }
    if let [path, ..] = svg {
        std::fs::write(path, report.plot.render()).expect("the chart is written");
    }
}

struct Bench {
    url: String,
    /// The programs of others: redlock's and pottery's.
    peers: [[String; 2]; 2],
}

struct Report {
    table: Table,
    plot: Plot<4>,
    /// What was aimed at, and what came of it.
    aims: Vec<String>,
}

impl Report {
    /// What nobody who does the same as ours can be faster than.
    fn least(&mut self, label: &str, value: f64, yardstick: f64) {
        let [value, ratio, yardstick] = [value, value / yardstick, yardstick].map(shown);
        self.table.row([label.to_owned(), value, String::new(), String::new(), String::new(), yardstick, ratio]);
    }

    fn compare(&mut self, label: &str, values: [f64; 4], yardstick: Option<f64>) {
        let beside =
            yardstick.map_or_else(Default::default, |yardstick| [yardstick, values[OURS] / yardstick].map(shown));
        let row = [label.to_owned()].into_iter().chain(values.map(shown)).chain(beside);
        self.table.row(row);
        self.plot.group(label, values);
    }

    fn aim(&mut self, aim: &str, factor: f64, is_met: bool) {
        let met = if is_met { "met" } else { "missed" };
        self.aims.push(format!("aim: {aim}: {factor:.2} ({met})"));
    }
}

impl Bench {
    fn store(&self) -> RedisStore {
        RedisStore::from_url(&self.url).expect("a store")
    }

    async fn client(&self) -> Client {
        Client::builder().ttl(TTL).with_store(self.store()).await.expect("a client")
    }

    /// A connection that has been used.
    async fn raw(&self) -> MultiplexedConnection {
        connect(&self.url).await
    }

    /// The same, of rslock.
    async fn rslock(&self) -> LockManager {
        let manager = LockManager::new(vec![self.url.as_str()]);
        manager.lock("first", TTL).await.expect("nobody else is there").release().await;
        manager
    }

    /// A program of others, on these servers, with commas between them.
    fn peer(&self, peer: usize, urls: &str, what: &str, count: usize) -> Command {
        let [program, script] = &self.peers[peer];
        let mut command = Command::new(program);
        command.args([script.as_str(), urls, what, &count.to_string()]);
        command
    }

    /// What the programs of others measure, one after the other.
    fn measure_peers(&self, urls: &str, what: &str, count: usize, times: &mut [Times; 4]) {
        for (peer, times) in times[2..].iter_mut().enumerate() {
            times.add_from(&mut self.peer(peer, urls, what, count));
        }
    }

    /// Nobody else stands; the session is there. Beside it a bare script.
    async fn campaigns(&self, report: &mut Report) {
        let (mut times, mut scripts, mut least) = (<[Times; 4]>::default(), Times::default(), Times::default());
        let (client, rslock, mut raw) = (self.client().await, self.rslock().await, self.raw().await);
        least_script(&mut raw, CAMPAIGN, "first").await;
        for turn in 0..TURNS {
            for round in 0..CAMPAIGNS {
                let name = format!("campaign-{turn}-{round}");
                times[OURS].push(campaign(&client, &name).await);
                times[RSLOCK].push(rslock_campaign(&rslock, &name).await);
                let start = Instant::now();
                assert!(bare_script(&mut raw, &name).await);
                scripts.push(start.elapsed());
                let start = Instant::now();
                least_script(&mut raw, CAMPAIGN, &name).await;
                least.push(start.elapsed());
                least_script(&mut raw, END_OF_CAMPAIGN, &name).await;
            }
            self.measure_peers(&self.url, "campaign", CAMPAIGNS, &mut times);
        }
        for percent in [50, 99] {
            let label = format!("uncontended campaign, p{percent}, ms");
            report.compare(&label, times.each_ref().map(|times| times.millis(percent)), Some(scripts.millis(percent)));
        }
        report.least("  the least: the same commands, and nothing else, p50, ms", least.millis(50), scripts.millis(50));
        let factor = times[OURS].millis(50) / scripts.millis(50);
        report.aim("a campaign takes at most 1.5 times a bare script", factor, factor <= 1.5);
    }

    /// The same by a majority of five servers. Ours takes two rounds: the second one is for the
    /// token, which the others do not have.
    async fn redlock_campaigns(&self, report: &mut Report) {
        let mut servers = Vec::new();
        for _ in 0..SERVERS {
            servers.push(RedisServer::start().await);
        }
        let urls: Vec<String> = servers.iter().map(RedisServer::url).collect();
        let endpoints: Vec<String> = servers.iter().map(RedisServer::endpoint).collect();
        let store = RedlockStore::from_url(&format!("redlock://{}", endpoints.join(","))).expect("a store");
        let client = Client::builder().ttl(TTL).with_store(store).await.expect("a client");
        // Nobody leads for a TTL after it was founded.
        campaign(&client, "first").await;
        let rslock = LockManager::new(urls.iter().map(String::as_str).collect());
        rslock.lock("first", TTL).await.expect("nobody else is there").release().await;
        let mut raw = Vec::new();
        for url in &urls {
            raw.push(connect(url).await);
        }
        let (mut times, mut scripts) = (<[Times; 4]>::default(), Times::default());
        for turn in 0..TURNS {
            for round in 0..REDLOCK_CAMPAIGNS {
                let name = format!("campaign-{turn}-{round}");
                times[OURS].push(campaign(&client, &name).await);
                times[RSLOCK].push(rslock_campaign(&rslock, &name).await);
                let start = Instant::now();
                for _ in 0..2 {
                    let set = join_all(raw.iter_mut().map(|raw| bare_script(raw, &name))).await;
                    assert!(set.into_iter().all(|set| set));
                }
                scripts.push(start.elapsed());
            }
            self.measure_peers(&urls.join(","), "campaign", REDLOCK_CAMPAIGNS, &mut times);
        }
        for percent in [50, 99] {
            let label = format!("uncontended campaign by {SERVERS} servers, p{percent}, ms");
            report.compare(&label, times.each_ref().map(|times| times.millis(percent)), Some(scripts.millis(percent)));
        }
    }

    /// Beside it a message that another connection hears.
    async fn handovers(&self, report: &mut Report) {
        let (mut times, mut heard_after) = (<[Times; 4]>::default(), Times::default());
        let (one, other, store) = (self.client().await, self.client().await, self.store());
        let managers = [self.rslock().await, self.rslock().await];
        let (mut raw, (_subscribed, mut heard)) = (self.raw().await, self.subscribe().await);
        for turn in 0..TURNS {
            for round in 0..HANDOVERS {
                times[OURS].push(handover(&store, [&one, &other], &format!("handover-{turn}-{round}"), SETTLE).await);
                let start = Instant::now();
                let publish = redis::cmd("PUBLISH").arg("bench").arg("other").exec_async(&mut raw).await;
                publish.expect("it is published");
                heard.recv().await.expect("it is heard");
                heard_after.push(start.elapsed());
            }
            for round in 0..POLLED_HANDOVERS {
                times[RSLOCK].push(rslock_handover(&managers, &format!("rslock-handover-{turn}-{round}"), round).await);
            }
            self.measure_peers(&self.url, "handover", POLLED_HANDOVERS, &mut times);
        }
        for percent in [50, 90] {
            let label = format!("handover to a waiting follower, p{percent}, ms");
            let yardstick = Some(heard_after.millis(percent));
            report.compare(&label, times.each_ref().map(|times| times.millis(percent)), yardstick);
        }
        let [ours, theirs @ ..] = times.each_ref().map(|times| times.millis(50));
        let factor = theirs.into_iter().fold(f64::INFINITY, f64::min) / ours;
        report.aim("a handover is at least 20 times faster than the fastest poller's", factor, factor >= 20.0);
    }

    /// A subscribed connection, and what it hears.
    async fn subscribe(&self) -> (MultiplexedConnection, mpsc::UnboundedReceiver<PushInfo>) {
        let client = redis::Client::open(format!("{}?protocol=resp3", self.url)).expect("a URL");
        let (hears, mut heard) = mpsc::unbounded_channel();
        let config = AsyncConnectionConfig::new().set_push_sender(hears);
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection = connection.expect("a connection");
        connection.subscribe("bench").await.expect("it is subscribed");
        heard.recv().await.expect("it is told so");
        (connection, heard)
    }

    /// From the first call until all are won: on one session, and on one connection of the others.
    async fn elections(&self, report: &mut Report) {
        let (mut times, mut scripts) = (<[Times; 4]>::default(), Times::default());
        let (rslock, raw) = (self.rslock().await, self.raw().await);
        for turn in 0..TURNS {
            let client = self.client().await;
            let name = |number| format!("many-{turn}-{number}");
            let (taken, offices) = all_at_once(|number| {
                let election = client.election(&name(number)).expect("a name");
                async move {
                    let mut candidacy = election.candidate("a").value("value").stand().await.expect("a place");
                    (elected(&mut candidacy).await, candidacy)
                }
            })
            .await;
            times[OURS].push(taken);
            drop(offices);
            client.close(TTL).await.expect("all is given back");
            let (taken, locks) = all_at_once(|number| {
                let (rslock, name) = (rslock.clone(), name(number));
                async move { rslock.lock(name.as_str(), TTL).await.expect("nobody else is there") }
            })
            .await;
            times[RSLOCK].push(taken);
            for lock in locks {
                lock.release().await;
            }
            let (taken, set) = all_at_once(|number| {
                let (mut raw, name) = (raw.clone(), name(number));
                async move { bare_script(&mut raw, &name).await }
            })
            .await;
            scripts.push(taken);
            assert!(set.into_iter().all(|set| set));
            self.measure_peers(&self.url, "many", ELECTIONS, &mut times);
        }
        let per_second = |times: &Times| ELECTIONS as f64 / times.percentile(50).as_secs_f64();
        let label = "elections won per second, one session";
        report.compare(label, times.each_ref().map(per_second), Some(per_second(&scripts)));
    }

    /// What those cost who have nothing to do.
    async fn idle(&self, report: &mut Report) {
        let mut raw = self.raw().await;
        let leader = self.client().await;
        let mut candidacy =
            leader.election("idle").expect("a name").candidate("leader").stand().await.expect("a place");
        let office = elected(&mut candidacy).await;
        let alone = Load::measure(&mut raw).await;
        let mut followers = Vec::new();
        for number in 0..FOLLOWERS {
            let client = self.client().await;
            let candidate = client.election("idle").expect("a name").candidate(number.to_string()).stand();
            followers.push((candidate.await.expect("a place"), client));
        }
        let all = Load::measure(&mut raw).await;
        office.resign().await.expect("certain");
        followers.push((candidacy, leader));
        for (candidacy, client) in followers {
            candidacy.withdraw().await.expect("certain");
            client.close(TTL).await.expect("all is given back");
        }
        let mut loads = vec![[alone, all], self.idle_rslock(&mut raw).await];
        for peer in 0..2 {
            loads.push([self.idle_peer(peer, 0, &mut raw).await, self.idle_peer(peer, FOLLOWERS, &mut raw).await]);
        }
        let loads: [[Load; 2]; 4] = loads.try_into().expect("four");
        let others = [String::from("one idle leader"), format!("and {FOLLOWERS} idle followers")];
        for (many, who) in others.iter().enumerate() {
            report.compare(&format!("requests a second, {who}"), loads.map(|load| load[many].requests), None);
            report.compare(&format!("commands a second, {who}"), loads.map(|load| load[many].commands), None);
        }
        for (many, who) in others.iter().enumerate() {
            let [ours, theirs @ ..] = loads.map(|load| load[many].commands);
            let factor = theirs.into_iter().fold(f64::INFINITY, f64::min) / ours;
            let aim = format!("commands a second, {who}: every other library costs more, at least so many times");
            report.aim(&aim, factor, factor > 1.0);
        }
    }

    /// With a leader alone, and with followers.
    async fn idle_rslock(&self, raw: &mut MultiplexedConnection) -> [Load; 2] {
        let manager = self.rslock().await;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            manager.using(b"idle", TTL, async || std::future::pending::<()>().await).await.expect("it leads")
        });
        let alone = Load::measure(raw).await;
        for _ in 0..FOLLOWERS {
            let manager = self.rslock().await;
            tasks.spawn(async move { drop(manager.acquire("idle", TTL).await) });
        }
        let all = Load::measure(raw).await;
        tasks.shutdown().await;
        [alone, all]
    }

    async fn idle_peer(&self, peer: usize, followers: usize, raw: &mut MultiplexedConnection) -> Load {
        let mut command = self.peer(peer, &self.url, "idle", followers);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the peer runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        let load = Load::measure(raw).await;
        drop(child.stdin.take());
        child.wait().expect("it is ours");
        load
    }
}

/// What the server is asked in a second.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// How often it has something to read.
    requests: f64,
    /// Those in scripts among them.
    commands: f64,
}

impl Load {
    async fn measure(raw: &mut MultiplexedConnection) -> Load {
        // Until those who have just come have done what comes once.
        tokio::time::sleep(POLLS).await;
        let before = Load::until_now(raw).await;
        tokio::time::sleep(IDLE).await;
        let after = Load::until_now(raw).await;
        // One question of ours is counted, too.
        let per_second = |after: f64, before: f64| (after - before - 1.0) / IDLE.as_secs_f64();
        Load {
            requests: per_second(after.requests, before.requests),
            commands: per_second(after.commands, before.commands),
        }
    }

    async fn until_now(raw: &mut MultiplexedConnection) -> Load {
        let stats: String = redis::cmd("INFO").arg("stats").query_async(raw).await.expect("an answer");
        let count = |name: &str| {
            let count = stats.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            count.expect("a count").trim().parse().expect("a number")
        };
        Load { requests: count("total_reads_processed"), commands: count("total_commands_processed") }
    }
}

fn shown(value: f64) -> String {
    match value {
        ..1.0 => format!("{value:.3}"),
        ..1000.0 => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    }
}

/// A connection that has been used.
async fn connect(url: &str) -> MultiplexedConnection {
    let client = redis::Client::open(url).expect("a URL");
    let mut raw = client.get_multiplexed_async_connection().await.expect("a connection");
    assert!(bare_script(&mut raw, "first").await);
    raw
}

/// Until it leads. It gives the office back afterwards.
async fn campaign(client: &Client, name: &str) -> Duration {
    let election = client.election(name).expect("a name");
    let start = Instant::now();
    let mut candidacy = election.candidate("a").value("value").stand().await.expect("a place");
    let office = elected(&mut candidacy).await;
    let taken = start.elapsed();
    office.resign().await.expect("certain");
    candidacy.withdraw().await.expect("certain");
    taken
}

async fn rslock_campaign(rslock: &LockManager, name: &str) -> Duration {
    let start = Instant::now();
    let lock = rslock.lock(name, TTL).await.expect("nobody else is there");
    let taken = start.elapsed();
    lock.release().await;
    taken
}

/// One round trip, and one write.
async fn bare_script(raw: &mut MultiplexedConnection, name: &str) -> bool {
    let script = redis::Script::new("redis.call('SET', KEYS[1], ARGV[1]) return 1");
    script.key(format!("bare-{name}")).arg("value").invoke_async(raw).await.expect("an answer")
}

/// What a campaign asks the server and writes there, with no thought given to the answers: is it
/// the primary, and of which history; what time is it; what is this store, and is all of it there;
/// does the session live, has it a place, is anybody ahead, what do operators say; then the token,
/// the entry, its place in the line and in the session, that it leads, and the news of it.
const CAMPAIGN: &str = "
    local call, name, token, session, incarnation = redis.call, unpack(ARGV)
    call('INFO', 'replication')
    call('TIME')
    call('HMGET', KEYS[1], 'format', 'id', 'change', 'lineage', 'clock', 'wall', 'hold', 'taken_over', 'longest', 'shortest')
    call('HGET', KEYS[4], '')
    call('EXISTS', unpack(KEYS))
    call('ZMSCORE', KEYS[2], session, incarnation)
    call('ZRANGEBYLEX', KEYS[5], '[' .. name, '(' .. name .. '~', 'LIMIT', 0, 1)
    call('ZREVRANGEBYLEX', KEYS[3], '(' .. name .. '~', '[' .. name, 'LIMIT', 0, 1)
    call('HSET', KEYS[1], 'change', token)
    call('HSET', KEYS[4], name .. token, token .. session .. incarnation .. 'value', '', token)
    call('ZADD', KEYS[5], 0, session .. name .. token .. incarnation)
    call('ZADD', KEYS[3], 0, name .. token)
    call('HSET', KEYS[8], name, token)
    redis.pcall('PUBLISH', KEYS[1] .. name, 'other')
    call('HGET', KEYS[6], name)
    return {'leads', session, token, '', '', token, token, incarnation}";
const END_OF_CAMPAIGN: &str = "
    local name, token, session, incarnation = unpack(ARGV)
    redis.call('HDEL', KEYS[4], name .. token)
    redis.call('ZREM', KEYS[5], session .. name .. token .. incarnation)
    redis.call('ZREM', KEYS[3], name .. token)
    redis.call('HDEL', KEYS[8], name)";

/// One of these scripts.
async fn least_script(raw: &mut MultiplexedConnection, text: &str, name: &str) {
    let script = redis::Script::new(text);
    let mut call = script.prepare_invoke();
    for key in ["m", "s", "l", "e", "p", "o", "z", "h"] {
        call.key(format!("{{least}}:{key}"));
    }
    call.arg(name).arg("0".repeat(16)).arg("0".repeat(27)).arg("0".repeat(32));
    let _: redis::Value = call.invoke_async(raw).await.expect("an answer");
}

/// How long it took until all was done, and what came of it.
async fn all_at_once<T, F>(start: impl Fn(usize) -> F) -> (Duration, Vec<T>)
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let started = Instant::now();
    let tasks: Vec<_> = (0..ELECTIONS).map(|number| tokio::spawn(start(number))).collect();
    let mut done = Vec::new();
    for task in tasks {
        done.push(task.await.expect("no panic"));
    }
    (started.elapsed(), done)
}

/// From the holder's release until the one that polls has the lock. They begin at different times.
async fn rslock_handover([one, other]: &[LockManager; 2], name: &str, round: usize) -> Duration {
    let held = one.lock(name, TTL).await.expect("nobody else is there");
    let (other, wanted) = (other.clone(), name.to_owned());
    let waiting = tokio::spawn(async move {
        let lock = other.acquire(wanted.as_str(), TTL).await.expect("a lock");
        (Instant::now(), lock)
    });
    tokio::time::sleep(POLLS + PAUSES.mul_f64((round as f64 + 0.5) / POLLED_HANDOVERS as f64)).await;
    let start = Instant::now();
    held.release().await;
    let (end, lock) = waiting.await.expect("no panic");
    lock.release().await;
    end - start
}
