//! The memory store as the suites want it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use incumbent_store::memory::{MemoryStore, Shape};
use incumbent_store::{ElectionName, Entry, Store, TokioClock};

use crate::conformance::{Harness, Time};

/// A [`Harness`] around a memory store.
#[derive(Debug)]
pub struct Memory {
    store: MemoryStore,
    ttl: Duration,
}

impl Memory {
    /// A store of this shape in which sessions last `ttl`, by the clock of tests that live by
    /// `time`.
    pub fn new(shape: Shape, time: Time, ttl: Duration) -> Memory {
        let store = match time {
            Time::Virtual => MemoryStore::with_clock(shape, Arc::new(TokioClock::new())),
            Time::Real => MemoryStore::new(shape),
        };
        Memory { store, ttl }
    }
}

impl Harness for Memory {
    async fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    fn ttl(&self) -> Duration {
        self.ttl
    }

    async fn enlist_foreign(&self, election: &ElectionName, value: Bytes) -> Option<Entry> {
        Some(self.store.enlist_foreign(election, value))
    }

    fn watches(&self) -> Option<usize> {
        Some(self.store.watches())
    }
}
