//! Elections on etcd, beside Go's `concurrency.Election` on the same server, turn and turn about.
//!
//! `etcd PEER [SVG]`: PEER is the program made from `bench/peers/etcd`; SVG is where to put the
//! chart.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark that cannot measure stops")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use incumbent::Client;
use incumbent_bench::ours::{elected, handover};
use incumbent_bench::plot::Plot;
use incumbent_bench::{Table, Times, resident_bytes};
use incumbent_etcd::rpc::{
    self, Compare, CompareResult, LeaseGrantRequest, PutRequest, RangeRequest, RequestOp, TxnRequest, TxnResponse,
    WatchCreateRequest, With,
};
use incumbent_etcd::{Channel, EtcdOptions, EtcdStore};
use incumbent_testkit::servers::EtcdCluster;

const TURNS: usize = 5;
const CAMPAIGNS: usize = 200;
const HANDOVERS: usize = 20;
const RATE_MILLIS: u64 = 1500;
const RATES: usize = 3;
const WAITING: usize = 1000;
const FAILOVERS: usize = 3;
/// What Go's sessions for the failover have, too.
const TTL: Duration = Duration::from_secs(5);

/// On one thread: the machine is shared with the server that is asked.
#[tokio::main(flavor = "current_thread")]
async fn main() {
    let args: Vec<_> = std::env::args().collect();
    match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [_, "follow", endpoint, election] => return stand_until_killed(endpoint, election).await,
        [_, "memory", endpoint] => return println!("memory {}", waiting_bytes(endpoint).await),
        _ => {}
    }
    let peer = Peer { program: args.get(1).expect("the program to compare with").clone() };
    let cluster = EtcdCluster::start_on_disk(1).await;
    let bench = Bench { endpoint: cluster.endpoints().remove(0), peer };
    let mut table = Table::new("etcd: ours and Go's concurrency.Election", &["", "ours", "Go", "Go / ours"]);
    let mut plot = Plot::new("Elections on etcd", ["Incumbent", "Go"]);
    bench.campaigns(&mut table, &mut plot).await;
    bench.handovers(&mut table, &mut plot).await;
    bench.rates(&mut table, &mut plot).await;
    bench.memory(&mut table, &mut plot).await;
    bench.failovers(&mut table, &mut plot).await;
    print!("{}", table.render());
    if let Some(path) = args.get(2) {
        std::fs::write(path, plot.render()).expect("the chart is written");
    }
}

/// Campaigns of ours, and what they are measured in.
#[derive(Default)]
struct Campaigns {
    ours: Times,
    puts: Times,
    txns: Times,
}

impl Campaigns {
    fn in_puts(&self, times: &Times) -> String {
        format!("{:.2}", times.millis(50) / self.puts.millis(50))
    }

    /// In a task, as programs do their work: what a runtime blocks on has its turn last.
    async fn go_on(self, bench: &Bench, place: String) -> Campaigns {
        let (client, bare) = (bench.client().await, bench.bare());
        tokio::spawn(self.turn(client, bare, place)).await.expect("they were measured")
    }

    /// Beside each campaign a bare put, and a bare transaction that does what a campaign has to: if
    /// nothing is there, neither in line nor about the office, put an entry.
    async fn turn(mut self, client: Client, bare: rpc::Client, place: String) -> Campaigns {
        let lease = bare.lease_grant(LeaseGrantRequest { ttl: 600, id: 0 }).await.expect("a lease").id;
        for round in 0..CAMPAIGNS {
            let election = client.election(&format!("campaign-{place}-{round}")).expect("a name");
            let start = Instant::now();
            let office = election.candidate("a").value("value").try_once().await.expect("a store");
            self.ours.push(start.elapsed());
            office.expect("nobody else stands").resign().await.expect("certain");
            let start = Instant::now();
            let key = format!("put-{place}-{round}").into();
            bare.put(PutRequest { key, value: "value".into(), lease: 0 }).await.expect("a put");
            self.puts.push(start.elapsed());
            self.txns.push(bare_campaign(&bare, &format!("bare-{place}-{round}"), lease).await);
        }
        self
    }
}

struct Bench {
    endpoint: String,
    peer: Peer,
}

/// Go's side.
struct Peer {
    program: String,
}

impl Peer {
    fn ask(&self, endpoint: &str, args: &[&str]) -> Vec<u64> {
        let output = Command::new(&self.program).arg(endpoint).args(args).output().expect("the peer runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        said.split_whitespace().skip(1).map(|number| number.parse().expect("a number")).collect()
    }

    fn times(&self, endpoint: &str, what: &str, rounds: usize, times: &mut Times) {
        let numbers = self.ask(endpoint, &[what, &rounds.to_string()]);
        numbers.into_iter().for_each(|nanos| times.push(Duration::from_nanos(nanos)));
    }
}

impl Bench {
    fn store(&self) -> EtcdStore {
        EtcdStore::connect(&[&self.endpoint], &EtcdOptions::new()).expect("a store")
    }

    async fn client(&self) -> Client {
        session_on(self.store()).await
    }

    fn bare(&self) -> rpc::Client {
        let channel = Channel::from_shared(format!("http://{}", self.endpoint)).expect("an address");
        rpc::Client::new(channel.connect_lazy(), None)
    }

    /// Nobody else stands; the session is there.
    async fn campaigns(&self, table: &mut Table, plot: &mut Plot) {
        let mut gos = Times::default();
        let mut turns = Campaigns::default();
        for turn in 0..TURNS {
            turns = turns.go_on(self, format!("one-{turn}")).await;
            self.peer.times(&self.endpoint, "campaign", CAMPAIGNS, &mut gos);
        }
        compare(table, plot, "uncontended campaign, p50, ms", turns.ours.millis(50), gos.millis(50));
        compare(table, plot, "uncontended campaign, p99, ms", turns.ours.millis(99), gos.millis(99));
        let go = format!("{:.2}", gos.millis(50) / turns.puts.millis(50));
        let mut row = |what: &str, ours: String, go: String| table.row([what.to_owned(), ours, go, String::new()]);
        row("campaign / bare put, p50", turns.in_puts(&turns.ours), go);
        row("  the least: the same by a bare client", turns.in_puts(&turns.txns), String::new());
        let threaded = self.campaigns_on_two_threads();
        row("campaign / bare put, p50, both on two threads", threaded.in_puts(&threaded.ours), String::new());
        row("  the least: the same by a bare client", threaded.in_puts(&threaded.txns), String::new());
    }

    fn campaigns_on_two_threads(&self) -> Campaigns {
        let measure = || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let mut turns = Campaigns::default();
                for turn in 0..TURNS {
                    turns = turns.go_on(self, format!("two-{turn}")).await;
                }
                turns
            })
        };
        std::thread::scope(|scope| scope.spawn(measure).join()).expect("they were measured")
    }

    async fn handovers(&self, table: &mut Table, plot: &mut Plot) {
        // Long enough for a follower to have begun to wait: before that there is nothing to hand
        // over.
        for (what, wait) in [("fresh", Duration::from_millis(5)), ("waited", Duration::from_millis(300))] {
            let (mut ours, mut gos, mut least) = <(Times, Times, Times)>::default();
            // Two sessions of one connection, as Go's are.
            let store = self.store();
            let (one, other) = (session_on(store.clone()).await, session_on(store.clone()).await);
            let bare = self.bare();
            for turn in 0..TURNS {
                for round in 0..HANDOVERS {
                    let name = format!("handover-{what}-{turn}-{round}");
                    ours.push(handover(&store, [&one, &other], &name, wait).await);
                    least.push(bare_handover(&bare, &name, wait).await);
                }
                self.peer.times(&self.endpoint, what, HANDOVERS, &mut gos);
            }
            let label = if what == "fresh" { "that has just joined" } else { "that has waited" };
            for percent in [50, 90] {
                let label = format!("handover to a follower {label}, p{percent}, ms");
                compare(table, plot, &label, ours.millis(percent), gos.millis(percent));
            }
            let least = format!("{:.2}", least.millis(50));
            table.row(["  the least: the same by bare clients, p50".to_owned(), least, String::new(), String::new()]);
        }
    }

    async fn rates(&self, table: &mut Table, plot: &mut Plot) {
        let seconds = RATE_MILLIS as f64 / 1000.0;
        for at in [16, 128] {
            let (mut ours, mut gos, mut our_cpu, mut gos_cpu) = <(Vec<_>, Vec<_>, Vec<_>, Vec<_>)>::default();
            for turn in 0..RATES {
                let (_server, there) = self.elsewhere().await;
                let before = CpuTime::now();
                ours.push(there.rate(at, turn).await);
                our_cpu.push(before.own() * 1e6 / (ours[turn] * seconds));
                let (_server, there) = self.elsewhere().await;
                let before = CpuTime::now();
                let args = ["rate", &RATE_MILLIS.to_string(), &at.to_string()];
                gos.push(there.peer.ask(&there.endpoint, &args)[0] as f64);
                gos_cpu.push(before.children() * 1e6 / (gos[turn] * seconds));
            }
            let (ours, gos, our_cpu, gos_cpu) = (median(ours), median(gos), median(our_cpu), median(gos_cpu));
            let label = format!("elections won per second, {at} at once");
            table.row([label.clone(), format!("{ours:.0}"), format!("{gos:.0}"), format!("{:.2}", gos / ours)]);
            plot.pair(label, [ours, gos]);
            let label = "  CPU time of the client for one of them, µs".to_owned();
            table.row([label, format!("{our_cpu:.0}"), format!("{gos_cpu:.0}"), format!("{:.2}", gos_cpu / our_cpu)]);
        }
    }

    /// On a new server: one that has seen many elections is slower, and the side that holds more
    /// would slow down the other.
    async fn elsewhere(&self) -> (EtcdCluster, Bench) {
        let cluster = EtcdCluster::start_on_disk(1).await;
        let endpoint = cluster.endpoints().remove(0);
        (cluster, Bench { endpoint, peer: Peer { program: self.peer.program.clone() } })
    }

    async fn rate(&self, at: usize, turn: usize) -> f64 {
        let client = Arc::new(self.client().await);
        let won = Arc::new(AtomicU64::new(0));
        let start = Instant::now();
        let campaigns = (0..at).map(|number| {
            let (client, won) = (client.clone(), won.clone());
            tokio::spawn(async move {
                for round in 0.. {
                    if start.elapsed() >= Duration::from_millis(RATE_MILLIS) {
                        return;
                    }
                    let election = client.election(&format!("rate-{at}-{turn}-{number}-{round}")).expect("a name");
                    let office = election.candidate("a").value("value").try_once().await.expect("a store");
                    won.fetch_add(1, Ordering::Relaxed);
                    office.expect("nobody else stands").resign().await.expect("certain");
                }
            })
        });
        for campaign in campaigns.collect::<Vec<_>>() {
            campaign.await.expect("no panic");
        }
        won.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64()
    }

    /// Each in a process of its own, so that nothing is left over from before.
    async fn memory(&self, table: &mut Table, plot: &mut Plot) {
        let this = Peer { program: std::env::current_exe().expect("a path").display().to_string() };
        let ours = this.ask("memory", &[&self.endpoint])[0] as f64 / 1024.0;
        let gos = self.peer.ask(&self.endpoint, &["memory", &WAITING.to_string()])[0] as f64 / 1024.0;
        compare(table, plot, "memory per waiting candidacy, KiB", ours, gos);
    }

    /// From kill -9 of the leader's process to the follower in office; the TTL is five seconds for
    /// both.
    async fn failovers(&self, table: &mut Table, plot: &mut Plot) {
        let (mut ours, mut gos) = (Times::default(), Times::default());
        let this = std::env::current_exe().expect("a path").display().to_string();
        for round in 0..FAILOVERS {
            ours.push(failover(&this, &["follow", &self.endpoint, &format!("failover-{round}")]));
            gos.push(failover(&self.peer.program, &[&self.endpoint, "follow", "0", &format!("go-failover-{round}")]));
        }
        compare(table, plot, "failover after kill -9, TTL 5 s, p50, ms", ours.millis(50), gos.millis(50));
    }
}

async fn session_on(store: EtcdStore) -> Client {
    Client::builder().ttl(TTL * 6).with_store(store).await.expect("a client")
}

/// Bytes in memory per candidacy that waits.
async fn waiting_bytes(endpoint: &str) -> u64 {
    let client = async || session_on(EtcdStore::connect(&[endpoint], &EtcdOptions::new()).expect("a store")).await;
    let (leaders, followers) = (client().await, client().await);
    let mut offices = Vec::new();
    for number in 0..WAITING {
        let election = leaders.election(&format!("memory-{number}")).expect("a name");
        let mut candidacy = election.candidate("leader").stand().await.expect("a place");
        offices.push((elected(&mut candidacy).await, candidacy));
    }
    let before = resident_bytes().expect("Linux");
    let mut candidacies = Vec::new();
    for number in 0..WAITING {
        let election = followers.election(&format!("memory-{number}")).expect("a name");
        candidacies.push(election.candidate("follower").stand().await.expect("a place"));
    }
    // Until the watches are armed.
    tokio::time::sleep(Duration::from_millis(500)).await;
    resident_bytes().expect("Linux").saturating_sub(before) / WAITING as u64
}

/// The processor's time that this process has had, and those whose end it has awaited.
struct CpuTime([f64; 2]);

impl CpuTime {
    fn now() -> CpuTime {
        /// Of the kernel's clock that processes are counted with.
        const TICKS_PER_SECOND: f64 = 100.0;
        let text = std::fs::read_to_string("/proc/self/stat").expect("Linux");
        let after_name = text.rsplit(')').next().expect("a name");
        let numbers: Vec<f64> = after_name.split_whitespace().skip(11).take(4).filter_map(|n| n.parse().ok()).collect();
        let [user, system, children_user, children_system] = numbers[..] else { panic!("{text}") };
        CpuTime([(user + system) / TICKS_PER_SECOND, (children_user + children_system) / TICKS_PER_SECOND])
    }

    /// Seconds since then.
    fn own(&self) -> f64 {
        CpuTime::now().0[0] - self.0[0]
    }

    fn children(&self) -> f64 {
        CpuTime::now().0[1] - self.0[1]
    }
}

/// One operation by itself.
async fn ask(bare: &rpc::Client, operation: RequestOp) -> TxnResponse {
    let txn = TxnRequest { success: vec![operation], ..TxnRequest::default() };
    bare.txn(txn).await.expect("an answer")
}

async fn bare_campaign(bare: &rpc::Client, name: &str, lease: i64) -> Duration {
    let key = format!("{name}/{lease:x}");
    let nothing = |start: String, end: String| Compare::equal(start, With::CreateRevision(0)).up_to(end);
    let start = Instant::now();
    let txn = TxnRequest {
        compare: vec![
            nothing(format!("{name}/"), format!("{name}0")),
            nothing(format!("//{name}/"), format!("//{name}0")),
        ],
        success: vec![RequestOp::put(key.clone(), "value", lease)],
        failure: vec![],
    };
    assert!(bare.txn(txn).await.expect("an answer").succeeded);
    let taken = start.elapsed();
    ask(bare, RequestOp::delete(key)).await;
    taken
}

/// A guarded delete, the news of it, and a read: there is nothing that a handover could do without.
async fn bare_handover(bare: &rpc::Client, name: &str, wait: Duration) -> Duration {
    let [first, second] = ["1", "2"].map(|number| format!("bare-{name}/{number}"));
    ask(bare, RequestOp::put(first.clone(), "leader", 0)).await;
    let put = ask(bare, RequestOp::put(second, "follower", 0)).await;
    let start_revision = put.header.expect("a header").revision + 1;
    let watch = WatchCreateRequest { key: first.clone().into(), start_revision, ..WatchCreateRequest::default() };
    let mut news = bare.watch(watch).await.expect("a watch").answers;
    let (key, range_end) = (format!("bare-{name}/").into(), format!("bare-{name}0").into());
    let follower = bare.clone();
    let task = tokio::spawn(async move {
        while news.message().await.expect("a stream").expect("news").events.is_empty() {}
        ask(&follower, RequestOp::range(RangeRequest { key, range_end, ..RangeRequest::default() })).await;
        Instant::now()
    });
    tokio::time::sleep(wait).await;
    let start = Instant::now();
    let there = Compare::new(first.clone(), CompareResult::Greater, With::Version(0));
    let txn = TxnRequest { compare: vec![there], success: vec![RequestOp::delete(first)], failure: vec![] };
    bare.txn(txn).await.expect("an answer");
    task.await.expect("no panic") - start
}

/// Two processes; the first one leads and is killed.
fn failover(program: &str, args: &[&str]) -> Duration {
    let start = || {
        let mut child = Command::new(program).args(args).stdout(Stdio::piped()).spawn().expect("it runs");
        let said = BufReader::new(child.stdout.take().expect("a pipe"));
        (child, said)
    };
    let leads = |said: &mut BufReader<_>| {
        let mut line = String::new();
        said.read_line(&mut line).expect("a line");
        assert_eq!(line, "leads\n");
    };
    let (mut leader, mut leader_said) = start();
    leads(&mut leader_said);
    let (mut follower, mut follower_said) = start();
    // A follower of either kind says nothing when it is in line: a second is plenty for that.
    std::thread::sleep(Duration::from_secs(1));
    leader.kill().expect("it is ours");
    let killed = Instant::now();
    leads(&mut follower_said);
    let taken = killed.elapsed();
    follower.kill().expect("it is ours");
    leader.wait().expect("it is ours");
    follower.wait().expect("it is ours");
    taken
}

async fn stand_until_killed(endpoint: &str, election: &str) {
    let store = EtcdStore::connect(&[endpoint], &EtcdOptions::new()).expect("a store");
    let client = Client::builder().ttl(TTL).with_store(store).await.expect("a client");
    let mut candidacy = client.election(election).expect("a name").candidate("a").stand().await.expect("a place");
    let _office = elected(&mut candidacy).await;
    println!("leads");
    std::future::pending::<()>().await;
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

fn compare(table: &mut Table, plot: &mut Plot, label: &str, ours: f64, gos: f64) {
    table.row([label.to_owned(), format!("{ours:.2}"), format!("{gos:.2}"), format!("{:.2}", gos / ours)]);
    plot.pair(label, [ours, gos]);
}
