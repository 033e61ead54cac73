//! A short campaign on each store, and one with candidates that are wrong on purpose.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use incumbent_campaign::campaign::{Settings, run};
use incumbent_campaign::ground::Kind;
use incumbent_campaign::report::Report;

/// Different faults each time: the seed is printed.
fn settings(kind: Kind, faults: usize) -> Settings {
    let seed = u64::from(std::process::id());
    println!("SEED={seed}");
    let program = env!("CARGO_BIN_EXE_incumbent-campaign").to_owned();
    Settings { kind, faults, seed, program, flawed: false }
}

async fn twenty_faults(kind: Kind) {
    let report = run(settings(kind, 20)).await;
    println!("{}\n{}", Report::HEADING, report.row());
    assert!(report.terms() > 1, "nothing happened");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_directory() {
    twenty_faults(Kind::Directory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_etcd() {
    twenty_faults(Kind::Etcd).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_zookeeper() {
    twenty_faults(Kind::ZooKeeper).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_redis() {
    twenty_faults(Kind::Redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_redlock() {
    twenty_faults(Kind::Redlock).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres() {
    twenty_faults(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn among_peers() {
    twenty_faults(Kind::Consensus).await;
}

/// They believe that each renewal succeeds. Links go bad often enough to show it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn candidates_that_believe_in_their_renewals_are_caught() {
    let flawed = Settings { flawed: true, ..settings(Kind::Etcd, 500) };
    let ended = tokio::spawn(run(flawed)).await;
    let said = ended.expect_err("two leaders at a time were not noticed").into_panic();
    let said = said.downcast_ref::<String>().expect("what was broken");
    assert!(said.starts_with("Overlap"), "{said}");
}
