//! Many runs on all cores, and what they came to.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use crate::checker::Violation;
use crate::variant::Variant;
use crate::world::run;

/// What many runs came to.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// How many runs there were.
    pub runs: u64,
    /// How many events they took together.
    pub events: u64,
    /// How many terms began.
    pub terms: u64,
    /// The seeds in which a rule was broken, in order, and how.
    pub violations: Vec<(u64, Violation)>,
}

/// Stops after this many broken runs: the rest would say the same.
const ENOUGH: usize = 10;

/// Runs `count` seeds from `from` on, on all cores. `progress` is told now and then how many are done.
pub fn run_many(from: u64, count: u64, variant: Variant, progress: &mut dyn FnMut(u64)) -> Summary {
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
                    if number >= count || send.send(run(from + number, variant, false)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(send);
        for outcome in outcomes {
            summary.runs += 1;
            summary.events += outcome.events;
            summary.terms += outcome.terms;
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

/// How a known-bad variant was caught.
#[derive(Clone, Debug)]
pub struct Catch {
    /// The variant.
    pub variant: Variant,
    /// The seed that caught it.
    pub seed: u64,
    /// How many seeds it took.
    pub seeds: u64,
    /// What it broke.
    pub violation: Violation,
}

/// Looks for the first seed from `from` on, of at most `most`, that catches a known-bad variant.
pub fn catch(variant: Variant, from: u64, most: u64) -> Option<Catch> {
    (0..most).find_map(|number| {
        let outcome = run(from + number, variant, false);
        outcome.violation.map(|violation| Catch { variant, seed: outcome.seed, seeds: number + 1, violation })
    })
}
