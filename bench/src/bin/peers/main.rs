//! Elections among peers: how long a group is without a leader, against its own election timeout,
//! and how many messages an election takes.
//!
//! `peers [TIMES.svg [MESSAGES.svg]]`: where to put the charts. There is nothing to compare with
//! but the timeout itself: a leader that dies without a word cannot be missed earlier.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark that cannot measure stops")]

mod member;
mod messages;
mod processes;

use std::time::Duration;

use incumbent_bench::plot::Plot;
use incumbent_bench::{Table, Times};
use incumbent_peers::{Algorithm, ConsensusSettings, RankSettings, Rules};

use processes::Processes;

/// Members in the groups whose times are taken.
const MEMBERS: u16 = 5;
const FAILOVERS: usize = 20;
const TRANSFERS: usize = 50;

#[tokio::main]
async fn main() {
    let args: Vec<_> = std::env::args().skip(1).collect();
    if let [first, rest @ ..] = &args[..]
        && first == "member"
    {
        return member::live(rest).await;
    }
    let mut report = Report {
        table: Table::new(
            "Without a leader: groups of 5 processes, state on disk",
            &["", "timeout, ms", "p50, ms", "p90, ms", "p50 / timeout", "p90 / timeout", "aim", ""],
        ),
        plot: Plot::new("Time without a leader, beside the election timeout, ms", ["measured", "election timeout"]),
    };
    for timeout in [Duration::from_millis(1_500), Duration::from_millis(300)] {
        consensus(timeout, &mut report).await;
    }
    for algorithm in [Algorithm::Bully, Algorithm::Ring] {
        ranks(algorithm, &mut report).await;
    }
    print!("{}", report.table.render());
    println!(
        "  failover: from kill -9 of the leader to the next one in office; transfer: from the end of one term to the next.\n  \
         The timeout is the smallest election timeout of consensus, and how long bully and ring wait for the leader."
    );
    let (table, messages) = messages::count().await;
    print!("{}", table.render());
    println!(
        "  From the death of the leader until all others know the next one, heartbeats included; the median of {} elections.",
        messages::ELECTIONS
    );
    let charts = [report.plot.render(), messages.render()];
    for (path, chart) in args.iter().zip(charts) {
        std::fs::write(path, chart).expect("the chart is written");
    }
}

struct Report {
    table: Table,
    plot: Plot,
}

impl Report {
    /// One line, and its place in the chart. `aim` is the most that the median may be.
    fn line(&mut self, label: &str, times: &Times, timeout: Duration, aim: Option<(&str, Duration)>) {
        let millis = |time: Duration| time.as_secs_f64() * 1000.0;
        let (p50, p90) = (times.percentile(50), times.percentile(90));
        let ratio = |time: Duration| format!("{:.3}", time.as_secs_f64() / timeout.as_secs_f64());
        let met = aim.map_or("", |(_, most)| if p50 < most { "met" } else { "MISSED" });
        self.table.row([
            label.to_owned(),
            format!("{:.0}", millis(timeout)),
            format!("{:.1}", millis(p50)),
            format!("{:.1}", millis(p90)),
            ratio(p50),
            ratio(p90),
            aim.map_or(String::new(), |(aim, _)| aim.to_owned()),
            met.to_owned(),
        ]);
        self.plot.pair(format!("{label}, p50, timeout {:.1} s", timeout.as_secs_f64()), [millis(p50), millis(timeout)]);
        self.plot.pair(format!("{label}, p90, timeout {:.1} s", timeout.as_secs_f64()), [millis(p90), millis(timeout)]);
    }
}

/// The times of a consensus group, in the proportions of the defaults.
pub(crate) fn consensus_rules(timeout: Duration) -> Rules {
    let usual = ConsensusSettings::default();
    let part = |time: Duration| timeout.mul_f64(time.as_secs_f64() / usual.election_min.as_secs_f64());
    let mut settings = usual;
    settings.election_min = timeout;
    settings.election_max = part(usual.election_max);
    settings.heartbeat = part(usual.heartbeat);
    settings.margin = part(usual.margin);
    settings.grace = part(usual.grace);
    Rules::Consensus(settings)
}

async fn consensus(timeout: Duration, report: &mut Report) {
    let mut group = Processes::start(Algorithm::Consensus, MEMBERS, timeout).await;
    let (mut failovers, mut transfers) = (Times::default(), Times::default());
    for _ in 0..FAILOVERS {
        failovers.push(group.failover().await);
    }
    for _ in 0..TRANSFERS {
        transfers.push(group.transfer().await);
    }
    report.line("consensus, failover", &failovers, timeout, Some(("p50 < 2 timeouts", timeout * 2)));
    report.line("consensus, transfer", &transfers, timeout, Some(("p50 < 20 ms", Duration::from_millis(20))));
}

async fn ranks(algorithm: Algorithm, report: &mut Report) {
    let timeout = RankSettings::default().leader_timeout;
    let mut group = Processes::start(algorithm, MEMBERS, timeout).await;
    let mut failovers = Times::default();
    for _ in 0..FAILOVERS {
        failovers.push(group.failover().await);
    }
    report.line(&format!("{algorithm}, failover"), &failovers, timeout, None);
}
