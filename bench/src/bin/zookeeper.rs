//! Elections on ZooKeeper, beside Curator's `LeaderLatch` and kazoo's `Election` on the same
//! server, turn and turn about.
//!
//! `zookeeper CURATOR KAZOO [SVG]`: CURATOR is the folder with the classes made from
//! `bench/peers/curator`, KAZOO is `bench/peers/kazoo/peer.py`; SVG is where to put the chart.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark that cannot measure stops")]

use std::process::Command;
use std::time::{Duration, Instant};

use incumbent::Client;
use incumbent_bench::ours::{SETTLE, elected, handover};
use incumbent_bench::plot::Plot;
use incumbent_bench::{Table, Times};
use incumbent_testkit::servers::ZooKeeperEnsemble;
use incumbent_zookeeper::zookeeper_client::{self as raw, Acls, CreateMode};
use incumbent_zookeeper::{ZooKeeperOptions, ZooKeeperStore};

const TURNS: usize = 5;
const CAMPAIGNS: usize = 200;
const HANDOVERS: usize = 40;
const ELECTIONS: usize = 1000;
/// Rounds that are not counted, in each process of the others: Java gets faster while it runs.
const WARM_UP_CAMPAIGNS: usize = 600;
const WARM_UP_HANDOVERS: usize = 100;
const WARM_UP_ELECTIONS: usize = 1000;
/// What the others have, too.
const TTL: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() {
    let args: Vec<_> = std::env::args().collect();
    let [_, classes, script, svg @ ..] = &args[..] else { panic!("the programs to compare with") };
    let server = ZooKeeperEnsemble::builder().tick(Duration::from_secs(2)).on_disk().start(1).await;
    let class_path = format!("/usr/share/java/curator-recipes.jar:/usr/share/java/slf4j-simple.jar:{classes}");
    let quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error";
    let peers = [
        Peer { program: ["java", quiet, "-cp", &class_path, "Peer"].map(str::to_owned).into() },
        Peer { program: ["/usr/bin/python3", script].map(str::to_owned).into() },
    ];
    let bench = Bench { endpoint: server.endpoints().remove(0), peers };
    let mut report = Report {
        table: Table::new(
            "ZooKeeper: ours, Curator's LeaderLatch and kazoo's Election",
            &["", "ours", "Curator", "kazoo", "Curator / ours", "kazoo / ours", "yardstick", "ours / yardstick"],
        ),
        plot: Plot::new("Elections on ZooKeeper", ["Incumbent", "Curator", "kazoo"]),
    };
    bench.campaigns(&mut report).await;
    bench.handovers(&mut report).await;
    bench.elections(&mut report).await;
    print!("{}", report.table.render());
    println!("  yardsticks: a bare create; a delete, its notification and one read");
    if let [path, ..] = svg {
        std::fs::write(path, report.plot.render()).expect("the chart is written");
    }
}

struct Bench {
    endpoint: String,
    peers: [Peer; 2],
}

/// A program of others.
struct Peer {
    program: Vec<String>,
}

impl Peer {
    /// Its times, by its own clock.
    fn times(&self, endpoint: &str, what: &str, [warm_up, rounds]: [usize; 2], times: &mut Times) {
        let rounds = [warm_up, rounds].map(|rounds| rounds.to_string());
        times.add_from(Command::new(&self.program[0]).args(&self.program[1..]).args([endpoint, what]).args(rounds));
    }
}

struct Report {
    table: Table,
    plot: Plot<3>,
}

impl Report {
    fn compare(&mut self, label: &str, values: [f64; 3], yardstick: Option<f64>) {
        let [ours, curator, kazoo] = values;
        let two = |value: f64| format!("{value:.2}");
        let mut row =
            vec![label.to_owned(), two(ours), two(curator), two(kazoo), two(curator / ours), two(kazoo / ours)];
        row.extend(yardstick.into_iter().flat_map(|yardstick| [two(yardstick), two(ours / yardstick)]));
        self.table.row(row);
        self.plot.group(label, values);
    }
}

impl Bench {
    fn store(&self) -> ZooKeeperStore {
        ZooKeeperStore::connect(&[&self.endpoint], &ZooKeeperOptions::new()).expect("a store")
    }

    async fn client(&self) -> Client {
        Client::builder().ttl(TTL).with_store(self.store()).await.expect("a client")
    }

    async fn raw(&self) -> raw::Client {
        raw::Client::connector().with_session_timeout(TTL).connect(&self.endpoint).await.expect("a client")
    }

    /// Both of the others, one after the other.
    fn peers(&self, what: &str, rounds: [usize; 2], times: &mut [Times; 3]) {
        for (peer, times) in self.peers.iter().zip(&mut times[1..]) {
            peer.times(&self.endpoint, what, rounds, times);
        }
    }

    /// Nobody else stands; the session is there. Beside it a bare create.
    async fn campaigns(&self, report: &mut Report) {
        let (mut times, mut creates) = (<[Times; 3]>::default(), Times::default());
        let (client, raw) = (self.client().await, self.raw().await);
        let mode = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        for turn in 0..TURNS {
            for round in 0..CAMPAIGNS {
                let election = client.election(&format!("campaign-{turn}-{round}")).expect("a name");
                let start = Instant::now();
                let mut candidacy = election.candidate("a").value("value").stand().await.expect("a place");
                let office = elected(&mut candidacy).await;
                times[0].push(start.elapsed());
                office.resign().await.expect("certain");
                candidacy.withdraw().await.expect("certain");
                let start = Instant::now();
                raw.create("/bare-", b"value", &mode).await.expect("a node");
                creates.push(start.elapsed());
            }
            self.peers("campaign", [WARM_UP_CAMPAIGNS, CAMPAIGNS], &mut times);
        }
        for percent in [50, 99] {
            let label = format!("uncontended campaign, p{percent}, ms");
            report.compare(&label, each(&times, percent), Some(creates.millis(percent)));
        }
    }

    /// Beside it a delete, its notification at another client, and one read there.
    async fn handovers(&self, report: &mut Report) {
        let (mut times, mut bare) = (<[Times; 3]>::default(), Times::default());
        let (one, other, store) = (self.client().await, self.client().await, self.store());
        let raw = [self.raw().await, self.raw().await];
        for turn in 0..TURNS {
            for round in 0..HANDOVERS {
                let name = format!("handover-{turn}-{round}");
                times[0].push(handover(&store, [&one, &other], &name, SETTLE).await);
                bare.push(delete_and_read(&raw, &format!("/bare-{name}")).await);
            }
            self.peers("handover", [WARM_UP_HANDOVERS, HANDOVERS], &mut times);
        }
        for percent in [50, 90] {
            let label = format!("handover to a waiting follower, p{percent}, ms");
            report.compare(&label, each(&times, percent), Some(bare.millis(percent)));
        }
    }

    /// From the first call until all are won, on one session.
    async fn elections(&self, report: &mut Report) {
        let mut times = <[Times; 3]>::default();
        for turn in 0..TURNS {
            let client = self.client().await;
            let elections: Vec<_> = (0..ELECTIONS)
                .map(|number| client.election(&format!("many-{turn}-{number}")).expect("a name"))
                .collect();
            let start = Instant::now();
            let stand = |election: incumbent::Election| {
                tokio::spawn(async move {
                    let mut candidacy = election.candidate("a").value("value").stand().await.expect("a place");
                    (elected(&mut candidacy).await, candidacy)
                })
            };
            let standing: Vec<_> = elections.into_iter().map(stand).collect();
            let mut offices = Vec::new();
            for office in standing {
                offices.push(office.await.expect("no panic"));
            }
            times[0].push(start.elapsed());
            drop(offices);
            client.close(TTL).await.expect("all is given back");
            self.peers("many", [WARM_UP_ELECTIONS, ELECTIONS], &mut times);
        }
        report.compare("1,000 elections on one session, p50, ms", each(&times, 50), None);
    }
}

/// From the call to delete until the other client has read what there is now.
async fn delete_and_read([one, other]: &[raw::Client; 2], path: &str) -> Duration {
    let acls = Acls::anyone_all();
    one.create(path, b"", &CreateMode::Persistent.with_acls(acls)).await.expect("a node");
    let child = format!("{path}/child");
    one.create(&child, b"leader", &CreateMode::Ephemeral.with_acls(acls)).await.expect("a node");
    let (_, watcher) = other.check_and_watch_stat(&child).await.expect("a watch");
    let (reader, parent) = (other.clone(), path.to_owned());
    let task = tokio::spawn(async move {
        watcher.changed().await;
        reader.get_children(&parent).await.expect("a read");
        Instant::now()
    });
    tokio::time::sleep(SETTLE).await;
    let start = Instant::now();
    one.delete(&child, None).await.expect("it was there");
    task.await.expect("no panic") - start
}

fn each(times: &[Times; 3], percent: usize) -> [f64; 3] {
    [0, 1, 2].map(|number| times[number].millis(percent))
}
