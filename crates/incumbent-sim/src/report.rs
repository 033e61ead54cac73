//! One run, many runs on all cores, and what they came to.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use crate::trace::Violation;
use crate::variant::{Variant, World};
use crate::{library, peers, store};

/// What one run came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed that it can be replayed from.
    pub seed: u64,
    /// The first rule that was broken.
    pub violation: Option<Violation>,
    /// How often what happened: `terms` that began, `events` that it took, and more in some worlds.
    pub counts: Counts,
    /// What happened, if it was asked for.
    pub trace: String,
}

/// How often what happened.
pub type Counts = BTreeMap<&'static str, u64>;

/// Runs one seed to its end, or to the first broken rule.
pub fn run(world: World, variant: Variant, seed: u64, tracing: bool) -> Outcome {
    match world {
        World::Store => store::run(seed, variant, tracing),
        World::Library => library::run(seed, variant, tracing),
        World::Peers => peers::run(seed, variant, tracing),
    }
}

/// What many runs came to.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// How many runs there were.
    pub runs: u64,
    /// What happened in all of them.
    pub counts: Counts,
    /// The seeds in which a rule was broken, in order, and how.
    pub violations: Vec<(u64, Violation)>,
}

/// Stops after this many broken runs: the rest would say the same.
const ENOUGH: usize = 10;

/// Runs `count` seeds from `from` on, on all cores. `progress` is told now and then how many are
/// done.
pub fn run_many(world: World, variant: Variant, from: u64, count: u64, progress: &mut dyn FnMut(u64)) -> Summary {
    let threads = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let next = AtomicU64::new(0);
    let mut summary = Summary::default();
    thread::scope(|scope| {
        let (send, outcomes) = mpsc::sync_channel(1_024);
        for _ in 0..threads {
            let (send, next) = (send.clone(), &next);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count || send.send(run(world, variant, from + number, false)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(send);
        for outcome in outcomes {
            summary.runs += 1;
            for (what, times) in outcome.counts {
                *summary.counts.entry(what).or_default() += times;
            }
            if let Some(violation) = outcome.violation {
                summary.violations.push((outcome.seed, violation));
            }
            if summary.violations.len() >= ENOUGH {
                break;
            }
            progress(summary.runs);
        }
    });
    summary.violations.sort_by_key(|(seed, _)| *seed);
    summary
}

/// The first seed from `from` on, of at most `most`, that catches a known-bad variant, and what it
/// broke.
pub fn catch(world: World, variant: Variant, from: u64, most: u64) -> Option<(u64, Violation)> {
    (from..from.saturating_add(most))
        .find_map(|seed| run(world, variant, seed, false).violation.map(|violation| (seed, violation)))
}
