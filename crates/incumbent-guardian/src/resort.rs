//! What a panic leads to: never to the end of a watch. Whoever waits for its end would let the office go while the command lives.
//!
//! Knows nothing of processes. Where a panic aborts (a setting of whoever builds the program), nothing in here comes to pass.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

/// Time between two tries of the last resort. Each has told on standard error what it panicked about.
const PAUSE: Duration = Duration::from_millis(100);

/// How to go about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Usual,
    /// Something of ours is wrong, and would most likely be wrong again: only what is needed, and another way.
    LastResort,
}

/// Does the work. If it panics, the last resort follows, again and again until one has come to its end: as long as nobody can tell that the
/// command is gone, not returning is the safe answer.
pub(crate) fn see_through(mut work: impl FnMut(Way)) {
    let mut way = Way::Usual;
    // What the panic left half-done is seen by the last resort alone, which relies on little of it.
    while catch_unwind(AssertUnwindSafe(|| work(way))).is_err() {
        if way == Way::LastResort {
            thread::sleep(PAUSE);
        }
        way = Way::LastResort;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_panics_is_not_tried_again_but_the_last_resort_is() {
        let mut ways = Vec::new();
        see_through(|way| {
            ways.push(way);
            assert_eq!(ways.len(), 4);
        });
        assert_eq!(ways, [Way::Usual, Way::LastResort, Way::LastResort, Way::LastResort]);
    }

    #[test]
    fn work_that_ends_needs_no_last_resort() {
        let mut ways = Vec::new();
        see_through(|way| ways.push(way));
        assert_eq!(ways, [Way::Usual]);
    }
}
