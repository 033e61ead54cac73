//! The library's suite on the memory store: in each of its shapes in virtual time, and once with threads and real time.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test speaks by panicking")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use incumbent::store::memory::{MemoryStore, Shape};
use incumbent::store::{ElectionName, Entry, Store, TokioClock};
use incumbent_testkit::conformance::{Harness, Time};
use incumbent_testkit::elections;

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
        Duration::from_secs(2)
    }

    async fn enlist_foreign(&self, election: &ElectionName, value: Bytes) -> Option<Entry> {
        Some(self.0.enlist_foreign(election, value))
    }
}

elections!(fair, Time::Virtual, Memory::new(Shape::FAIR));
elections!(single, Time::Virtual, Memory::new(Shape::SINGLE));
elections!(observed, Time::Virtual, Memory::new(Shape::OBSERVED));
elections!(threads, Time::Real, Memory(MemoryStore::new(Shape::FAIR)));
