//! A point in time, given to the machines from outside: they never read a clock.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// Nanoseconds on a clock that counts suspended time too (`CLOCK_BOOTTIME`).
///
/// Only differences mean anything, and only within one process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Before every other point in time.
    pub const ZERO: Timestamp = Timestamp(0);
    /// After every other point in time.
    pub const MAX: Timestamp = Timestamp(u64::MAX);

    /// The point `nanos` nanoseconds after the clock's origin.
    pub const fn from_nanos(nanos: u64) -> Timestamp {
        Timestamp(nanos)
    }

    /// Nanoseconds since the clock's origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long ago `earlier` was; zero if it is not in the past.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Timestamp;
    fn add(self, by: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(nanos(by)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Timestamp;
    fn sub(self, by: Duration) -> Timestamp {
        Timestamp(self.0.saturating_sub(nanos(by)))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000 / 1_000)
    }
}

/// As many as there is room for.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
