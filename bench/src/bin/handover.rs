//! Planned handovers while a client writes, on each store and among peers, beside Go's
//! `concurrency.Election` with the same client and the same drain.
//!
//! `handover HANDOVERS PEER SVG [STORE...]`: so many of each kind, on these stores or on all; PEER
//! is the program made from `bench/peers/etcd`, SVG is where to put the chart.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark that cannot measure stops")]

use std::any::Any;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use incumbent::Client;
use incumbent_bench::handover::{CANDIDATES, Contest, Order, Outcome, candidate};
use incumbent_bench::plot::Plot;
use incumbent_bench::{Table, members};
use incumbent_testkit::servers::{EtcdCluster, PostgresServer, RedisServer, Scratch, ZooKeeperEnsemble};
use tokio::runtime::Runtime;

const STORES: [&str; 6] = ["directory", "etcd", "ZooKeeper", "Redis", "PostgreSQL", "consensus"];
/// The most that the median of the gap may be, in milliseconds.
const AIM: f64 = 20.0;
/// Before each handover, for followers to have begun to wait. Go's watch may take a tenth of a
/// second for that.
const WAIT: Duration = Duration::from_millis(150);

fn main() {
    let args: Vec<_> = std::env::args().skip(1).collect();
    if let Some(("candidate", rest)) = args.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return runtime(1).block_on(candidate::live(rest));
    }
    let [handovers, peer, chart, stores @ ..] = &args[..] else { panic!("HANDOVERS PEER SVG [STORE...]") };
    let handovers = handovers.parse().expect("a number");
    let load_before = load_average();
    let mut report = Report::new();
    for store in STORES.into_iter().filter(|store| stores.is_empty() || stores.iter().any(|name| name == store)) {
        measure(store, peer, handovers, &mut report);
    }
    print!("{}", report.table.render());
    println!(
        "  the gap: the longest time between two writes that the resource took, at one handover. Each store has one \
         server,\n  \
         on this machine and on its disk; consensus has {CANDIDATES} members. The fence is the resource's own, in \
         memory.\n  \
         Load average before: {load_before}, after: {}",
        load_average()
    );
    std::fs::write(chart, report.plot.render()).expect("the chart is written");
    assert!(report.broken.is_empty(), "not as it has to be: {:?}", report.broken);
}

fn runtime(threads: usize) -> Runtime {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    runtime.expect("a runtime")
}

/// All contests on a store, turn and turn about.
fn measure(store: &str, peer: &str, handovers: usize, report: &mut Report) {
    let runtime = runtime(2);
    let folder = Scratch::on_disk("bench-handover");
    let place = runtime.block_on(Place::start(store, folder.path()));
    let mut contests = vec![
        (format!("{store}, transfer"), place.contest(&runtime, Order::Transfer, None)),
        (format!("{store}, the leader leaves"), place.contest(&runtime, Order::Leave, None)),
    ];
    if store == "etcd" {
        contests.push((format!("{store}, Go, the leader leaves"), place.contest(&runtime, Order::Leave, Some(peer))));
    }
    for _ in 0..handovers {
        for (_, contest) in &mut contests {
            std::thread::sleep(WAIT);
            contest.hand_over(&runtime);
        }
    }
    for (label, contest) in contests {
        report.add(&label, &contest.finish());
    }
}

/// A store while its server runs, or a folder for groups of peers.
struct Place<'a> {
    /// Peers have none.
    url: Option<String>,
    folder: &'a Path,
    _server: Box<dyn Any>,
}

impl Place<'_> {
    async fn start<'a>(store: &str, folder: &'a Path) -> Place<'a> {
        let (url, server): (String, Box<dyn Any>) = match store {
            "directory" => (format!("file://{}/store", folder.display()), Box::new(())),
            "etcd" => {
                let cluster = EtcdCluster::start_on_disk(1).await;
                (cluster.url(), Box::new(cluster))
            }
            "ZooKeeper" => {
                let ensemble = ZooKeeperEnsemble::builder().tick(Duration::from_secs(2)).on_disk().start(1).await;
                (ensemble.url(), Box::new(ensemble))
            }
            "Redis" => {
                let server = RedisServer::start_on_disk(&["--appendonly", "yes", "--appendfsync", "always"]).await;
                (server.url(), Box::new(server))
            }
            "PostgreSQL" => {
                let server = PostgresServer::start_on_disk().await;
                (server.url(), Box::new(server))
            }
            _ => return Place { url: None, folder, _server: Box::new(()) },
        };
        Place { url: Some(url), folder, _server: server }
    }

    /// Ours, or Go's with its program.
    fn contest(&self, runtime: &Runtime, order: Order, go: Option<&str>) -> Contest {
        let name = format!("{}-{order:?}", if go.is_some() { "go" } else { "ours" });
        let urls = self.urls(&name);
        let client = runtime.block_on(Client::connect(&urls[0])).unwrap_or_else(|error| panic!("{error}"));
        let election = client.election(&name).expect("a name");
        let this = std::env::current_exe().expect("a path").display().to_string();
        let command = |who: u16| {
            let url = &urls[usize::from(who)];
            let (program, args) = match go {
                Some(program) => {
                    (program, [url.trim_start_matches("etcd://"), "lead", "0"].map(str::to_owned).to_vec())
                }
                None => (&*this, ["candidate", url, &who.to_string(), "none"].map(str::to_owned).to_vec()),
            };
            (program.to_owned(), args)
        };
        Contest::start(runtime, election, order, command, self.folder)
    }

    /// Where the election is for one who looks on, and for each candidate. A group of peers holds
    /// one election: each has its own.
    fn urls(&self, election: &str) -> Vec<String> {
        if let Some(url) = &self.url {
            return vec![url.clone(); usize::from(CANDIDATES) + 1];
        }
        let folder = self.folder.join(election);
        std::fs::create_dir(&folder).expect("a folder");
        let secret = folder.join("secret");
        let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&secret);
        file.expect("a file").write_all(b"nobody else is on this loopback").expect("a secret");
        let group = format!(
            "consensus://?members={}&secret-file={}",
            members::list(&members::addresses(CANDIDATES)),
            secret.display()
        );
        let member = |who| format!("{group}&rank={who}&data={}/{who}", folder.display());
        std::iter::once(group.clone()).chain((1..=CANDIDATES).map(member)).collect()
    }
}

struct Report {
    table: Table,
    plot: Plot<3>,
    /// What may not happen at a planned handover, and did.
    broken: Vec<String>,
}

impl Report {
    fn new() -> Report {
        let columns = [
            "",
            "handovers",
            "writes",
            "taken twice",
            "lost",
            "refused by the fence",
            "sent again",
            "gap p50, ms",
            "gap p99, ms",
            "aim: p50 < 20 ms",
        ];
        Report {
            table: Table::new("Planned handovers while a client writes", &columns),
            plot: Plot::new("The longest gap between writes at a planned handover, ms", ["p50", "p99", "aim for p50"]),
            broken: Vec::new(),
        }
    }

    fn add(&mut self, label: &str, outcome: &Outcome) {
        let [p50, p99] = [50, 99].map(|percent| outcome.gaps.millis(percent));
        let Outcome { handovers, terms, writes, twice, lost, refused, resent, .. } = outcome;
        let counts = [*handovers as u64, *writes, *twice as u64, *lost as u64, *refused as u64, *resent];
        let cells = counts.iter().map(u64::to_string).chain([p50, p99].map(|millis| format!("{millis:.2}")));
        let met = if p50 < AIM { "met" } else { "MISSED" };
        self.table.row([label.to_owned()].into_iter().chain(cells).chain([met.to_owned()]));
        self.plot.group(label, [p50, p99, AIM]);
        if (*twice, *lost, *refused, *terms) != (0, 0, 0, handovers + 1) {
            self.broken.push(format!("{label}: {outcome:?}"));
        }
    }
}

/// Over the last one, five and fifteen minutes.
fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").expect("Linux");
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}
