//! `incumbent-campaign STORE FAULTS SEED CHART`: random faults on a store, and what became of it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a campaign speaks by panicking")]

use incumbent_campaign::campaign::{Settings, run};
use incumbent_campaign::candidate;
use incumbent_campaign::report::Report;

fn main() {
    let args: Vec<_> = std::env::args().skip(1).collect();
    if let Some(("candidate", rest)) = args.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return candidate::main(rest);
    }
    let [store, faults, seed, chart] = args.as_slice() else {
        panic!("incumbent-campaign STORE FAULTS SEED CHART, and not {args:?}")
    };
    let program = std::env::current_exe().expect("this program").display().to_string();
    let settings = Settings {
        kind: store.parse().unwrap_or_else(|error| panic!("{error}")),
        faults: faults.parse().expect("a number of faults"),
        seed: seed.parse().expect("a seed"),
        program,
        flawed: false,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let report = runtime.expect("a runtime").block_on(run(settings));
    std::fs::write(chart, report.chart()).expect("a file for the chart");
    println!("{}\n{}", Report::HEADING, report.row());
}
