//! Consensus in a hostile world, from fixed seeds. `incumbent-peers-sim --seed S --trace` replays one.

use incumbent_core::peers::{PeerFlaw, PeerFlaws};
use incumbent_peers_sim::world::oracle::Rule;
use incumbent_peers_sim::world::{Outcome, Plan, run};

/// No flaw needs more seeds than this to be caught. The rarest, `NoStickyVoters`, shows in one of 150.
const SEEDS_PER_FLAW: u64 = 5_000;

fn all_hold(members: usize, seeds: std::ops::Range<u64>) -> Outcome {
    let mut sum = Outcome::default();
    for seed in seeds {
        let (outcome, _) = run(Plan { members, ..Plan::new(seed) });
        if let Some(violation) = &outcome.broken {
            panic!("seed {seed}: {violation}");
        }
        sum.add(&outcome);
    }
    sum
}

#[test]
fn five_members_keep_every_rule_and_much_happens_meanwhile() {
    let sum = all_hold(5, 1..401);
    assert!(sum.elections > 2_000, "{sum:?}");
    assert!(sum.transfers > 50, "{sum:?}");
    assert!(sum.deadlines > 500, "{sum:?}");
    assert!(sum.records > 100_000, "{sum:?}");
    assert!(sum.rejoined > 100, "{sum:?}");
    assert!(sum.held > 100 && sum.fences > 500 && sum.wishes > 50, "{sum:?}");
    assert!(sum.one_way_cuts > 1_000 && sum.pauses > 1_000, "{sum:?}");
    assert!(sum.late_votes > 1_000 && sum.late_orders > 30, "{sum:?}");
}

#[test]
fn three_members_keep_every_rule() {
    let sum = all_hold(3, 1..201);
    assert!(sum.elections > 1_000, "{sum:?}");
}

#[test]
fn four_members_and_two_keep_every_rule() {
    all_hold(4, 1..101);
    all_hold(2, 1..101);
}

#[test]
fn a_seed_gives_the_same_run_again() {
    let plan = Plan { trace: true, ..Plan::new(7) };
    let (_, first) = run(plan);
    let (_, second) = run(plan);
    assert!(first.len() > 1_000);
    assert_eq!(first, second);
}

fn is_caught(flaw: PeerFlaw) {
    let caught = (1..=SEEDS_PER_FLAW).find_map(|seed| {
        let (outcome, _) = run(Plan { flaws: PeerFlaws::only(flaw), ..Plan::new(seed) });
        outcome.broken
    });
    let violation = caught.unwrap_or_else(|| panic!("{flaw:?} is not caught within {SEEDS_PER_FLAW} seeds"));
    assert_ne!(violation.rule, Rule::Progress, "{flaw:?} must break a rule of safety: {violation}");
}

#[test]
fn a_vote_that_is_not_persisted_is_caught() {
    is_caught(PeerFlaw::VoteNotPersisted);
}

#[test]
fn a_lease_from_the_response_is_caught() {
    is_caught(PeerFlaw::LeaseFromResponse);
}

#[test]
fn a_restart_without_abstention_is_caught() {
    is_caught(PeerFlaw::NoAbstention);
}

#[test]
fn voters_that_break_their_promise_are_caught() {
    is_caught(PeerFlaw::NoStickyVoters);
}

#[test]
fn a_lease_kept_after_a_transfer_is_caught() {
    is_caught(PeerFlaw::LeaseKeptAfterTransfer);
}

#[test]
fn a_forced_vote_that_is_retried_is_caught() {
    is_caught(PeerFlaw::ForcedVoteRetried);
}

#[test]
fn positions_compared_by_index_alone_are_caught() {
    is_caught(PeerFlaw::IndexOnlyPosition);
}

#[test]
fn a_winner_in_office_without_a_promise_is_caught() {
    is_caught(PeerFlaw::ElectedUnconfirmed);
}

#[test]
fn a_wiped_member_that_starts_afresh_is_caught() {
    is_caught(PeerFlaw::WipedStartsAfresh);
}

#[test]
fn a_lease_that_ignores_drift_is_caught() {
    is_caught(PeerFlaw::DriftIgnored);
}

#[test]
fn a_wiped_member_that_believes_the_first_term_it_hears_is_caught() {
    is_caught(PeerFlaw::FirstTermBelieved);
}

#[test]
fn an_office_before_its_fences_is_caught() {
    is_caught(PeerFlaw::FencesRaisedLate);
}

#[test]
fn an_office_given_up_before_its_work_has_stopped_is_caught() {
    is_caught(PeerFlaw::ReleasedBeforeStopped);
}
