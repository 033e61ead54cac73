//! The load test, with few handovers and on a directory: nothing is written twice, lost or refused.
//! Candidates that are wrong on purpose show that it would be seen.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use incumbent::Client;
use incumbent_bench::handover::candidate::Flaw;
use incumbent_bench::handover::{Contest, Order, Outcome};
use incumbent_testkit::TempDir;

const HANDOVERS: usize = 4;

fn contest(order: Order, flaw: Option<Flaw>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let folder = TempDir::new("handover");
    let url = format!("file://{}/store", folder.path().display());
    let election = runtime.block_on(Client::connect(&url)).unwrap().election("load").unwrap();
    let flaw = flaw.map_or("none".to_owned(), |flaw| format!("{flaw:?}"));
    let command = |who: u16| {
        let args = vec!["candidate".to_owned(), url.clone(), format!("node-{who}"), flaw.clone()];
        (env!("CARGO_BIN_EXE_handover").to_owned(), args)
    };
    let mut contest = Contest::start(&runtime, election, order, command, folder.path());
    for _ in 0..HANDOVERS {
        contest.hand_over(&runtime);
    }
    contest.finish()
}

fn nothing_goes_wrong(order: Order) {
    let outcome = contest(order, None);
    assert_eq!((outcome.twice, outcome.lost, outcome.refused), (0, 0, 0), "{outcome:?}");
    // And nothing else moved the office.
    assert_eq!((outcome.handovers, outcome.terms), (HANDOVERS, HANDOVERS + 1), "{outcome:?}");
}

#[test]
fn a_transfer_loses_doubles_and_refuses_no_write() {
    nothing_goes_wrong(Order::Transfer);
}

#[test]
fn a_leader_that_leaves_loses_doubles_and_refuses_no_write() {
    nothing_goes_wrong(Order::Leave);
}

#[test]
fn a_leader_that_forgets_a_write_is_seen() {
    let outcome = contest(Order::Transfer, Some(Flaw::Forgets));
    assert_eq!((outcome.twice, outcome.refused), (0, 0), "{outcome:?}");
    assert!(outcome.lost > 0, "{outcome:?}");
}

#[test]
fn a_leader_that_denies_what_it_wrote_is_seen() {
    let outcome = contest(Order::Transfer, Some(Flaw::Denies));
    assert_eq!((outcome.lost, outcome.refused), (0, 0), "{outcome:?}");
    assert!(outcome.twice > 0, "{outcome:?}");
}

#[test]
fn a_leader_that_does_not_stop_its_work_is_refused_by_the_fence() {
    for order in [Order::Transfer, Order::Leave] {
        let outcome = contest(order, Some(Flaw::GoesOn));
        assert_eq!((outcome.twice, outcome.lost), (0, 0), "{outcome:?}");
        assert!(outcome.refused > 0, "{order:?}: {outcome:?}");
    }
}
