//! Consensus with three members, every interleaving within the bounds of each test.
//!
//! Each test says what it covers; together: crash and restart, a lost disk, slow disks, loss, delay, reordering
//! and doubling of messages, transfers, and timers that fire at any time at or after the smallest timeout.

use incumbent_core::peers::{PeerFlaw, PeerFlaws};
use incumbent_peers_sim::check::consensus::{Bounds, ConsensusModel};
use stateright::{Checker, HasDiscoveries, Model};

const BASE: Bounds =
    Bounds { members: 3, terms: 2, until: 4, crashes: 0, wipes: 0, transfers: 0, slow_disks: false, doubling: true };

const SAFETY: [&str; 4] =
    ["at most one leader per term", "terms never go back", "no vote is lost", "no two leases at a time"];

/// Explores everything; nothing may be broken, and at least so many states must have been seen.
fn holds(model: ConsensusModel, at_least: usize) {
    let bounds = model.bounds;
    let checker = model.checker().spawn_bfs().join();
    assert!(checker.is_done());
    for name in SAFETY {
        if let Some(path) = checker.discovery(name) {
            panic!("{name}: broken within {bounds:?}:\n{:#?}", path.into_actions());
        }
    }
    assert!(checker.discovery("somebody leads").is_some(), "the check saw no leader at all");
    let states = checker.unique_state_count();
    println!("{states} states within {bounds:?}");
    assert!(states >= at_least, "only {states} states: the bounds no longer mean what they did");
}

/// Explores until something is broken, which must happen.
fn is_caught(bounds: Bounds, flaws: PeerFlaws, leases: bool) {
    let model = ConsensusModel { bounds, flaws, leases };
    let checker = model.checker().finish_when(HasDiscoveries::AnyFailures).spawn_dfs().join();
    let broken: Vec<_> = SAFETY.into_iter().filter(|name| checker.discovery(name).is_some()).collect();
    assert!(!broken.is_empty(), "nothing is broken by {flaws:?} within {bounds:?}");
}

fn sound(bounds: Bounds) -> ConsensusModel {
    ConsensusModel { bounds, flaws: PeerFlaws::NONE, leases: true }
}

#[test]
fn three_terms_and_two_timeouts_without_crashes() {
    holds(sound(Bounds { terms: 3, ..BASE }), 50_000);
}

#[test]
fn a_crash_of_anyone_at_any_moment_and_a_restart_at_any_later_one() {
    holds(sound(Bounds { crashes: 1, ..BASE }), 300_000);
}

#[test]
fn a_transfer_to_anyone_and_a_crash_of_anyone() {
    holds(sound(Bounds { until: 3, crashes: 1, transfers: 1, ..BASE }), 100_000);
}

#[test]
fn two_transfers_and_three_terms() {
    holds(sound(Bounds { terms: 3, until: 2, transfers: 2, ..BASE }), 1_000);
}

#[test]
fn writes_to_disk_that_take_time_while_other_things_happen() {
    holds(sound(Bounds { until: 3, crashes: 1, slow_disks: true, ..BASE }), 20_000);
    holds(sound(Bounds { until: 3, transfers: 1, slow_disks: true, ..BASE }), 20_000);
}

/// Restarted members vote at once here, so that votes after a restart fit into the bounds: what votes must keep does not
/// depend on abstention (leases do, and are not looked at).
fn votes(bounds: Bounds) -> ConsensusModel {
    ConsensusModel { bounds, flaws: PeerFlaws::only(PeerFlaw::NoAbstention), leases: false }
}

#[test]
fn two_crashes_lose_no_vote() {
    holds(votes(Bounds { until: 3, crashes: 2, ..BASE }), 50_000);
}

#[test]
fn a_crash_with_slow_disks_loses_no_vote() {
    holds(votes(Bounds { until: 3, crashes: 1, slow_disks: true, ..BASE }), 20_000);
    holds(votes(Bounds { until: 2, crashes: 2, slow_disks: true, ..BASE }), 5_000);
}

#[test]
fn a_member_that_lost_its_disk_breaks_no_vote() {
    holds(votes(Bounds { until: 3, crashes: 1, wipes: 1, ..BASE }), 100_000);
}

#[test]
fn the_check_finds_a_vote_that_is_not_persisted() {
    let flaws = PeerFlaws::only(PeerFlaw::NoAbstention).and(PeerFlaw::VoteNotPersisted);
    is_caught(Bounds { until: 2, crashes: 1, ..BASE }, flaws, false);
}

#[test]
fn the_check_finds_a_wiped_member_that_starts_afresh() {
    let flaws = PeerFlaws::only(PeerFlaw::NoAbstention).and(PeerFlaw::WipedStartsAfresh);
    is_caught(Bounds { until: 3, crashes: 1, wipes: 1, ..BASE }, flaws, false);
}

#[test]
fn the_check_finds_a_lease_from_the_response() {
    is_caught(BASE, PeerFlaws::only(PeerFlaw::LeaseFromResponse), true);
}

#[test]
fn the_check_finds_a_restart_without_abstention() {
    is_caught(Bounds { crashes: 1, ..BASE }, PeerFlaws::only(PeerFlaw::NoAbstention), true);
}

#[test]
fn the_check_finds_voters_that_break_their_promise() {
    is_caught(BASE, PeerFlaws::only(PeerFlaw::NoStickyVoters), true);
}

#[test]
fn the_check_finds_a_lease_kept_after_a_transfer() {
    is_caught(Bounds { until: 3, transfers: 1, ..BASE }, PeerFlaws::only(PeerFlaw::LeaseKeptAfterTransfer), true);
}

#[test]
fn the_check_finds_a_winner_in_office_without_a_promise() {
    is_caught(BASE, PeerFlaws::only(PeerFlaw::ElectedUnconfirmed), true);
}
