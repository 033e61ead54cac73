//! The memory store in its three shapes, held to what every store must do.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use incumbent_store::memory::{MemoryStore, Shape};
use incumbent_store::{ElectionName, Entry, Store, TokioClock};
use incumbent_testkit::conformance;
use incumbent_testkit::conformance::{Harness, Time};

struct Memory(MemoryStore);

impl Memory {
    fn new(shape: Shape) -> Memory {
        Memory(MemoryStore::with_clock(shape, Arc::new(TokioClock::new())))
    }
}

impl Harness for Memory {
    async fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.0.clone())
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(10)
    }

    async fn enlist_foreign(&self, election: &ElectionName, value: Bytes) -> Option<Entry> {
        Some(self.0.enlist_foreign(election, value))
    }

    fn watches(&self) -> Option<usize> {
        Some(self.0.watches())
    }
}

conformance!(fair, Time::Virtual, Memory::new(Shape::FAIR));
conformance!(single, Time::Virtual, Memory::new(Shape::SINGLE));
conformance!(observed, Time::Virtual, Memory::new(Shape::OBSERVED));

/// By the wall clock and on two threads: what virtual time, on one thread, cannot show.
mod threads {
    use super::*;

    struct Real(MemoryStore);

    impl Harness for Real {
        async fn store(&self) -> Arc<dyn Store> {
            Arc::new(self.0.clone())
        }

        fn ttl(&self) -> Duration {
            Duration::from_secs(2)
        }
    }

    conformance!(fair, Time::Real, Real(MemoryStore::new(Shape::FAIR)));
}
