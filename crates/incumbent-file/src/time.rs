//! The clock that a store was given, and who else reads the same one.

use std::os::unix::fs::MetadataExt;
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
    /// The boot-time clock. Containers may have one of their own: same boot, another offset.
    pub(crate) fn of_host() -> Time {
        let boot = boot_id();
        let namespace = std::fs::metadata("/proc/self/ns/time").map_or(0, |namespace| u128::from(namespace.ino()));
        Time { clock: Arc::new(BootClock), boot, shared: boot ^ namespace }
    }

    /// A clock of the user's, which nobody else is known to read.
    pub(crate) fn by(clock: Arc<dyn Clock>) -> Result<Time, StoreError> {
        Ok(Time { clock, boot: random_id()?, shared: random_id()? })
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// Which boot of the host this is; zero where the kernel does not say.
fn boot_id() -> u128 {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    u128::from_str_radix(&text.trim().replace('-', ""), 16).unwrap_or(0)
}
