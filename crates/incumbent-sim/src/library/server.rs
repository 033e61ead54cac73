//! The store behind all links: a memory store on virtual time, which can be replaced by another
//! one.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use incumbent_core::{ElectionName, Line, MAX_LINE, Office, StoreId};
use incumbent_store::memory::{MemoryStore, Shape};
use incumbent_store::{Awaited, Clock, Store, StoreError, lock};

#[derive(Debug)]
pub(crate) struct Server {
    shape: Shape,
    clock: Arc<dyn Clock>,
    store: Mutex<MemoryStore>,
    /// How often it was replaced by another.
    generation: Awaited<u32>,
}

impl Server {
    pub(crate) fn new(shape: Shape, clock: Arc<dyn Clock>) -> Server {
        let store = Mutex::new(MemoryStore::with_id(shape, clock.clone(), id(0)));
        Server { shape, clock, store, generation: Awaited::new(0) }
    }

    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    pub(crate) fn store(&self) -> MemoryStore {
        lock(&self.store).clone()
    }

    pub(crate) fn generation(&self) -> u32 {
        self.generation.get()
    }

    /// Waits until another store answers than this one.
    pub(crate) async fn replaced(&self, generation: u32) {
        self.generation.wait_for(|now| now != generation).await;
    }

    /// Another store answers from now on, with nothing in it and another identity.
    pub(crate) fn replace(&self) -> StoreId {
        let generation = self.generation() + 1;
        let store = MemoryStore::with_id(self.shape, self.clock.clone(), id(generation));
        *lock(&self.store) = store;
        self.generation.set(generation);
        id(generation)
    }

    pub(crate) fn line(&self, election: &ElectionName) -> Line {
        match at_once(self.store().line(election, MAX_LINE)) {
            Ok(line) => line,
            Err(error) => unreachable!("the memory store can always be read: {error}"),
        }
    }

    /// Removes what operators have left in the office record.
    pub(crate) fn clear_office(&self, election: &ElectionName) {
        let version = self.line(election).office.version;
        let _ = at_once(self.store().set_office(election, version, &Office::default()));
    }
}

fn id(generation: u32) -> StoreId {
    StoreId::new(format!("store-{generation}"))
}

/// Which of the stores it is.
pub(crate) fn generation_of(id: &StoreId) -> u32 {
    id.as_str().rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(u32::MAX)
}

/// The memory store answers every call when it is polled first.
pub(crate) fn at_once<T>(call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => unreachable!("the memory store answers at once"),
    }
}
