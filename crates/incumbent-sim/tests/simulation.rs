//! The simulations themselves, of the machines and of the library: fixed seeds break no rule, every
//! known-bad variant is caught, and a seed replays exactly.

use incumbent_sim::{Variant, catch, run, run_many};

#[test]
fn fixed_seeds_break_no_rule() {
    let summary = run_many(1, 3_000, Variant::Sound, &mut |_| {});
    assert!(summary.violations.is_empty(), "{:#?}", summary.violations);
    assert_eq!(summary.runs, 3_000);
    assert!(summary.terms > 3 * summary.runs, "leaders come and go in these runs: {summary:?}");
}

#[test]
fn every_known_bad_variant_is_caught() {
    let variants: Vec<_> = Variant::all_bad().collect();
    assert!(variants.len() >= 10);
    for variant in variants {
        let caught = catch(variant, 1, 5_000);
        assert!(caught.is_some(), "{variant} was not caught");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace_to_the_last_line() {
    for seed in 1..40 {
        let (first, again) = (run(seed, Variant::Sound, true), run(seed, Variant::Sound, true));
        assert!(first.trace.lines().count() > 100, "seed {seed} tells its story");
        assert_eq!(first.trace, again.trace, "seed {seed}");
        assert_eq!(first.events, run(seed, Variant::Sound, false).events, "tracing changes nothing");
    }
}

#[test]
fn fixed_seeds_of_the_library_break_no_rule() {
    let summary = run_many(1, 400, Variant::Library(None), &mut |_| {});
    assert!(summary.violations.is_empty(), "{:#?}", summary.violations);
    assert!(summary.terms > 3 * summary.runs, "leaders come and go in these runs: {summary:?}");
}

#[test]
fn every_known_bad_variant_of_the_library_is_caught() {
    for variant in Variant::all_bad_libraries() {
        let caught = catch(variant, 1, 2_000);
        assert!(caught.is_some(), "{variant} was not caught");
    }
}

#[test]
fn the_same_seed_of_the_library_gives_the_same_trace_to_the_last_line() {
    for seed in 1..40 {
        let (first, again) = (run(seed, Variant::Library(None), true), run(seed, Variant::Library(None), true));
        assert!(first.trace.lines().count() > 50, "seed {seed} tells its story");
        assert_eq!(first.trace, again.trace, "seed {seed}");
        assert_eq!(first.events, run(seed, Variant::Library(None), false).events, "tracing changes nothing");
    }
}

#[test]
fn a_violation_names_its_seed_and_replays() {
    let bad = Variant::all_bad().next().expect("there are known-bad variants");
    let caught = catch(bad, 1, 5_000).expect("it is caught");
    assert_eq!(run(caught.seed, bad, true).violation, Some(caught.violation));
}
