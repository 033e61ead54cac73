//! The simulations themselves: in every world fixed seeds break no rule, every known-bad variant is
//! caught, and a seed replays exactly.

use incumbent_core::Flaw;
use incumbent_core::peers::ConsensusFlaw;
use incumbent_sim::{Summary, Variant, Violation, World, catch, run, run_many};

/// Runs so many seeds of a world as it is.
fn all_hold(world: World, seeds: u64) -> Summary {
    let summary = run_many(world, Variant::Sound, 1, seeds, &mut |_| {});
    assert!(summary.violations.is_empty(), "{:#?}", summary.violations);
    assert_eq!(summary.runs, seeds);
    assert!(summary.counts["terms"] > 3 * seeds, "leaders come and go in these runs: {summary:?}");
    summary
}

/// Catches every known-bad variant of a world, each within so many seeds.
fn all_are_caught(world: World, most: u64) -> Vec<(Variant, Violation)> {
    let catch = |variant| {
        let (seed, violation) = catch(world, variant, 1, most).unwrap_or_else(|| panic!("{variant} was not caught"));
        assert_eq!(run(world, variant, seed, true).violation.as_ref(), Some(&violation), "{variant} replays");
        (variant, violation)
    };
    world.variants().into_iter().map(catch).collect()
}

fn replays(world: World, lines: usize) {
    for seed in 1..40 {
        let (first, again) = (run(world, Variant::Sound, seed, true), run(world, Variant::Sound, seed, true));
        assert!(first.trace.lines().count() > lines, "seed {seed} tells its story");
        assert_eq!(first.trace, again.trace, "seed {seed}");
        assert_eq!(first.counts, run(world, Variant::Sound, seed, false).counts, "tracing changes nothing");
    }
}

#[test]
fn fixed_seeds_of_the_store_break_no_rule() {
    all_hold(World::Store, 3_000);
}

#[test]
fn fixed_seeds_of_the_library_break_no_rule() {
    all_hold(World::Library, 400);
}

#[test]
fn fixed_seeds_of_peers_break_no_rule_and_much_happens_meanwhile() {
    let summary = all_hold(World::Peers, 800);
    for (what, at_least) in [
        ("transfers", 50),
        ("terms without a quorum", 500),
        ("records committed", 100_000),
        ("wiped members back", 100),
        ("offices held", 100),
        ("fences raised", 500),
        ("requests granted", 50),
        ("candidates shown a leader", 5_000),
        ("candidates shown that they are unfit", 100),
        ("one-way cuts", 1_000),
        ("pauses", 1_000),
        ("late votes", 1_000),
        ("late orders to stand", 30),
    ] {
        assert!(summary.counts[what] > at_least, "{what}: {summary:?}");
    }
}

#[test]
fn every_known_bad_variant_of_the_store_is_caught() {
    let caught = all_are_caught(World::Store, 5_000);
    // What keeps a host from being shot for nothing, and an office from changing hands for nothing,
    // is caught by what says so.
    for (flaw, rule) in [
        (Flaw::ElectedBeforeOpening, "TERMS"),
        (Flaw::ClosesBeforeStop, "TERMS"),
        (Flaw::HardStopCloses, "TERMS"),
        (Flaw::WithdrawsBeforeClosing, "TERMS"),
        (Flaw::ShotWithoutClaim, "F1"),
        (Flaw::ShotAtEachInterval, "F2"),
        (Flaw::ShotAtOnce, "SHOT"),
        (Flaw::HeadGoesAway, "PLACE"),
        (Flaw::HandsOnAgain, "PLACE"),
        (Flaw::UnfitHeir, "FITNESS"),
        (Flaw::StaleFitness, "FITNESS"),
        (Flaw::SearchesAtOnce, "FITNESS"),
        (Flaw::SearchesAsItImproves, "FITNESS"),
    ] {
        let (_, violation) = caught.iter().find(|(variant, _)| *variant == Variant::Core(flaw)).expect("it is one");
        assert_eq!(violation.rule, rule, "{flaw:?}: {violation}");
    }
}

#[test]
fn every_known_bad_variant_of_the_library_is_caught() {
    all_are_caught(World::Library, 2_000);
}

#[test]
fn every_known_bad_variant_of_peers_is_caught() {
    // A fence that hangs is in nobody's way but the next leader's; every other variant breaks a
    // rule of safety.
    let stalls = Variant::Peers(ConsensusFlaw::HungFenceAwaited);
    for (variant, violation) in all_are_caught(World::Peers, 5_000) {
        assert_eq!(violation.rule == "L1", variant == stalls, "{variant}: {violation}");
    }
}

#[test]
fn the_same_seed_of_the_store_gives_the_same_trace_to_the_last_line() {
    replays(World::Store, 100);
}

#[test]
fn the_same_seed_of_the_library_gives_the_same_trace_to_the_last_line() {
    replays(World::Library, 50);
}

#[test]
fn the_same_seed_of_peers_gives_the_same_trace_to_the_last_line() {
    replays(World::Peers, 500);
}
