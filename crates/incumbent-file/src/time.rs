//! The clock that a store was given, and who else reads the same one.

use std::sync::Arc;

use incumbent_store::{BootClock, Clock, StoreError, Timestamp, random_id};

/// A clock, and two numbers by which processes find out whether they share it.
#[derive(Clone, Debug)]
pub(crate) struct Time {
    clock: Arc<dyn Clock>,
    /// Which boot of the host this is: what tombstones are dated with.
    pub(crate) boot: u128,
    /// All that show the same number share one clock, to the nanosecond. Zero: unknown.
    pub(crate) shared: u128,
}

impl Time {
    /// The boot-time clock.
    pub(crate) fn of_host() -> Time {
        Time { clock: Arc::new(BootClock), boot: BootClock::boot_id(), shared: BootClock::id() }
    }

    /// A clock of the user's, which nobody else is known to read.
    pub(crate) fn by(clock: Arc<dyn Clock>) -> Result<Time, StoreError> {
        Ok(Time { clock, boot: random_id()?, shared: random_id()? })
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}
