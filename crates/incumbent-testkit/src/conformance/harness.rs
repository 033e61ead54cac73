//! What the suite has to know of the store that it tests, and how a test runs.

use std::collections::hash_map::RandomState;
use std::future::Future;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use incumbent_store::{ElectionName, Entry, Store};

/// A backing system that stores can be opened on.
pub trait Harness: Send + Sync + 'static {
    /// A handle to the backing system, always the same one. Handles that share as little as
    /// possible with each other test the most.
    fn store(&self) -> impl Future<Output = Arc<dyn Store>> + Send;

    /// The TTL that sessions ask for: long enough for a slow machine, short enough to wait for.
    fn ttl(&self) -> Duration;

    /// An election that nobody has used.
    fn election(&self) -> ElectionName {
        ElectionName::new(&format!("conformance/{:016x}", unique())).expect("a well-formed name")
    }

    /// Puts a candidate of another library in line. `None`: there is no such library, or it cannot
    /// be imitated.
    fn enlist_foreign(&self, election: &ElectionName, value: Bytes) -> impl Future<Output = Option<Entry>> + Send {
        let _ = (election, value);
        async { None }
    }

    /// How many watches the store holds open. `None`: it cannot be told.
    fn watches(&self) -> Option<usize> {
        None
    }

    /// How many sessions stand where the suite wants a crowd: fewer where each needs a connection
    /// and those are few.
    fn crowd(&self) -> usize {
        100
    }

    /// How many random histories are compared with the table.
    fn histories(&self) -> u32 {
        24
    }
}

/// Which time a test lives by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Time {
    /// Paused: it jumps to the next timer when nothing else is to be done.
    Virtual,
    /// The clock on the wall, and two threads.
    Real,
}

/// No behaviour takes longer, in whichever time.
const BOUND: Duration = Duration::from_secs(300);

/// Runs one behaviour in a runtime of its own.
pub fn run<H: Harness>(time: Time, harness: impl Future<Output = H>, behaviour: impl AsyncFnOnce(&H)) {
    let mut builder = match time {
        Time::Virtual => tokio::runtime::Builder::new_current_thread(),
        Time::Real => tokio::runtime::Builder::new_multi_thread(),
    };
    match time {
        Time::Virtual => builder.start_paused(true),
        Time::Real => builder.worker_threads(2),
    };
    let runtime = builder.enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let harness = harness.await;
        let ended = tokio::time::timeout(BOUND, behaviour(&harness)).await;
        assert!(ended.is_ok(), "it did not end within {BOUND:?}");
    });
}

/// A number that no other call gives, in this process or in another.
pub fn unique() -> u64 {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u64(CALLS.fetch_add(1, Ordering::Relaxed));
    hasher.finish()
}
