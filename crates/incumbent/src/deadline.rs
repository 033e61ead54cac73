//! Until when a term lasts: one atomic, which the driver moves and every copy of the term reads.
//!
//! `tests/deadline.rs` compiles this file once more, with loom's atomics, and tries every order of
//! its steps.

use incumbent_core::Timestamp;

use crate::atomics::{AtomicU64, Ordering};

/// Nanoseconds; zero once the term is over, and then for ever.
#[derive(Debug)]
pub(crate) struct Deadline(AtomicU64);

/// What somebody who looked at the clock has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lapse {
    Serving,
    Over,
    /// It is over, and this was the first to see it.
    Noticed,
}

impl Deadline {
    pub(crate) fn new(at: Timestamp) -> Deadline {
        Deadline(AtomicU64::new(at.as_nanos()))
    }

    /// [`Timestamp::ZERO`]: the term is over.
    #[inline]
    pub(crate) fn get(&self) -> Timestamp {
        Timestamp::from_nanos(self.0.load(Ordering::Acquire))
    }

    /// Moves it, forward or back, unless the term is over: a late answer never revives one. Whether
    /// it has moved.
    pub(crate) fn move_to(&self, to: Timestamp) -> bool {
        let mut seen = self.0.load(Ordering::Acquire);
        while seen != 0 {
            match self.0.compare_exchange_weak(seen, to.as_nanos(), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Ends the term if its deadline has passed. Answers whether it is over, and whether this was
    /// the call that noticed.
    pub(crate) fn lapse(&self, now: Timestamp) -> Lapse {
        let mut seen = self.0.load(Ordering::Acquire);
        loop {
            if seen == 0 {
                return Lapse::Over;
            }
            if now.as_nanos() < seen {
                return Lapse::Serving;
            }
            // A renewal may have moved the deadline since we looked: then it counts, for nobody has
            // been told yet.
            match self.0.compare_exchange_weak(seen, 0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Lapse::Noticed,
                Err(now) => seen = now,
            }
        }
    }

    /// Ends the term.
    pub(crate) fn end(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// A known-bad way to move it.
    #[cfg(feature = "flaws")]
    pub(crate) fn revive(&self, to: Timestamp) {
        self.0.store(to.as_nanos(), Ordering::Release);
    }
}
