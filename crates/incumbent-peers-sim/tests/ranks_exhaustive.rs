//! Bully and ring, every interleaving within the bounds of each test.

use incumbent_core::peers::bully::Bully;
use incumbent_core::peers::ring::Ring;
use incumbent_peers_sim::check::ranks::{Bounds, ByRank, RankModel};
use stateright::{Checker, Model};

const BASE: Bounds = Bounds {
    members: 3,
    settled: 3,
    trouble: 7,
    until: 18,
    crashes: 1,
    restarts: 1,
    losses: 0,
    partition: false,
    majority: false,
    take_over: true,
};

const ALWAYS: [&str; 3] =
    ["all agree in the end", "the highest leads in the end", "with the majority rule one is in office in the end"];

/// Explores everything. The answer is whether two were found in office in the end.
fn explore<R: ByRank>(bounds: Bounds) -> bool {
    let checker = RankModel::<R>::new(bounds).checker().spawn_bfs().join();
    for name in ALWAYS {
        if let Some(path) = checker.discovery(name) {
            let last = format!("{:#?}", path.last_state());
            panic!("{name}: broken within {bounds:?}:\n{:#?}\n{last}", path.into_actions());
        }
    }
    assert!(checker.discovery("the end is reached").is_some(), "the check never came to an end");
    println!("{} states within {bounds:?}", checker.unique_state_count());
    checker.discovery("two are in office in the end").is_some()
}

#[test]
fn bully_members_agree_on_the_highest_after_a_crash_and_a_restart() {
    assert!(!explore::<Bully>(BASE));
}

#[test]
fn bully_members_that_all_start_at_once_agree() {
    assert!(!explore::<Bully>(Bounds { settled: 0, trouble: 3, until: 12, ..BASE }));
}

#[test]
fn bully_members_agree_after_lost_messages() {
    assert!(!explore::<Bully>(Bounds { crashes: 0, losses: 2, ..BASE }));
}

#[test]
fn bully_members_that_do_not_take_over_agree() {
    assert!(!explore::<Bully>(Bounds { take_over: false, ..BASE }));
}

#[test]
fn a_partition_gives_a_bully_election_two_leaders() {
    assert!(explore::<Bully>(Bounds { crashes: 0, partition: true, ..BASE }));
}

#[test]
fn with_the_majority_rule_a_partitioned_bully_election_ends_with_one() {
    assert!(!explore::<Bully>(Bounds { crashes: 0, partition: true, majority: true, ..BASE }));
}

#[test]
fn ring_members_agree_on_the_highest_after_a_crash_and_a_restart() {
    assert!(!explore::<Ring>(BASE));
}

#[test]
fn ring_members_that_all_start_at_once_agree() {
    assert!(!explore::<Ring>(Bounds { settled: 0, trouble: 0, until: 12, crashes: 0, ..BASE }));
}

#[test]
fn ring_members_agree_after_lost_messages() {
    assert!(!explore::<Ring>(Bounds { crashes: 0, losses: 3, ..BASE }));
}

#[test]
fn a_ring_election_survives_the_death_of_the_leader_and_of_the_starter() {
    assert!(!explore::<Ring>(Bounds { members: 4, crashes: 2, restarts: 0, ..BASE }));
}

#[test]
fn ring_members_that_do_not_take_over_agree() {
    assert!(!explore::<Ring>(Bounds { take_over: false, ..BASE }));
}

#[test]
fn a_partition_gives_a_ring_election_two_leaders() {
    assert!(explore::<Ring>(Bounds { crashes: 0, partition: true, ..BASE }));
}

#[test]
fn with_the_majority_rule_a_partitioned_ring_election_ends_with_one() {
    assert!(!explore::<Ring>(Bounds { crashes: 0, partition: true, majority: true, ..BASE }));
}
