//! Work that must come to its end although it panics: the end of a watch would let the office go
//! while the command lives.
//!
//! Knows nothing of processes. In a program that is built so that a panic aborts, none of this has
//! any effect.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

/// Time between two runs of the fallback. Each panic has been printed to standard error.
const PAUSE: Duration = Duration::from_millis(100);

/// How the work is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Normal,
    /// The normal way has panicked and would most likely panic again: only what is necessary, in
    /// another way.
    Fallback,
}

/// Does the work. If it panics, the fallback follows, again and again until it returns: as long as
/// it is unknown whether the command is gone, not returning is the safe answer.
pub(crate) fn run_to_completion(mut work: impl FnMut(Mode)) {
    let mut mode = Mode::Normal;
    // State that the panic left half-done is seen by the fallback alone, which relies on little of
    // it.
    while catch_unwind(AssertUnwindSafe(|| work(mode))).is_err() {
        if mode == Mode::Fallback {
            thread::sleep(PAUSE);
        }
        mode = Mode::Fallback;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_panics_is_not_tried_again_but_the_fallback_is() {
        let mut ways = Vec::new();
        run_to_completion(|mode| {
            ways.push(mode);
            assert_eq!(ways.len(), 4);
        });
        assert_eq!(ways, [Mode::Normal, Mode::Fallback, Mode::Fallback, Mode::Fallback]);
    }

    #[test]
    fn work_that_ends_needs_no_fallback() {
        let mut ways = Vec::new();
        run_to_completion(|mode| ways.push(mode));
        assert_eq!(ways, [Mode::Normal]);
    }
}
