//! The memory store: a table behind a lock, and those who wait for it to change.

use std::fmt;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use incumbent_core::{Cas, Cursor, ElectionName, Entry, Line, Office, Seen, StoreId, Timestamp, Version};
use tokio::sync::Notify;

use super::expiry;
use super::session::MemorySession;
use super::table::{Shape, Table, Touch};
use super::waiters::{WaiterId, Waiters};
use crate::{BootClock, Clock, Fut, Promises, Session, Store, StoreError, TokenStrength, Wake, lock, random_words};

/// A store in this process's memory.
///
/// It answers every call at once, and it is its own server: in a tokio runtime, which needs its
/// timers and its I/O driver, a task removes the sessions and tombstones whose time has passed, as
/// long as there are any. Clones are handles to the same store.
///
/// ```
/// # use std::time::Duration;
/// # use incumbent_store::memory::{MemoryStore, Shape};
/// # use incumbent_store::{ElectionName, Incarnation, NewEntry, Place, Store};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new(Shape::FAIR);
/// let session = store.open_session(Duration::from_secs(15)).await?;
/// let entry = NewEntry::new(Incarnation::from_bits(7), "node-1", "10.0.0.7");
/// let standing = session.enlist(&ElectionName::new("jobs/nightly")?, &entry).await?;
/// assert!(matches!(standing.place, Place::Leading(_)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

impl MemoryStore {
    /// An empty store that lives by the boot-time clock.
    pub fn new(shape: Shape) -> MemoryStore {
        MemoryStore::with_clock(shape, Arc::new(BootClock))
    }

    /// An empty store that lives by `clock`: with [`TokioClock`](crate::TokioClock) it follows
    /// paused time.
    pub fn with_clock(shape: Shape, clock: Arc<dyn Clock>) -> MemoryStore {
        MemoryStore::with_id(shape, clock, new_id())
    }

    /// The same with a given identity, for a simulation that can be run again. Two stores must not
    /// share one.
    #[doc(hidden)]
    pub fn with_id(shape: Shape, clock: Arc<dyn Clock>, id: StoreId) -> MemoryStore {
        let state =
            State { table: Table::new(shape, id.clone()), waiters: Waiters::default(), alarm: expiry::Alarmed::No };
        let shared = Shared {
            id,
            shape,
            clock,
            state: Mutex::new(state),
            expires_earlier: Arc::new(Notify::new()),
            calls: AtomicU64::new(0),
            wakes: AtomicU64::new(0),
        };
        MemoryStore { shared: Arc::new(shared) }
    }

    /// How it behaves.
    pub fn shape(&self) -> Shape {
        self.shared.shape
    }

    /// For tests: puts a candidate of another library in line. It has no incarnation, no name and
    /// no session, and stays until somebody evicts it.
    pub fn enlist_foreign(&self, election: &ElectionName, value: impl Into<Bytes>) -> Entry {
        self.shared.step(|table, _| table.enlist_foreign(election, value.into()))
    }

    /// For tests: forgets every session at once, and with them their entries, as if every TTL had
    /// passed.
    pub fn forget_sessions(&self) {
        self.shared.step(|table, _| table.forget_sessions());
    }

    /// For tests: whether nothing is left, no entry, no office record, no session.
    pub fn is_empty(&self) -> bool {
        self.shared.step(|table, now| {
            table.expire(now);
            table.is_empty()
        })
    }

    /// For tests and benchmarks: how many calls the store and its sessions have got so far, watches
    /// included.
    pub fn calls(&self) -> u64 {
        self.shared.calls.load(Ordering::Relaxed)
    }

    /// For tests and benchmarks: how many watches have resolved so far.
    #[doc(hidden)]
    pub fn wakes(&self) -> u64 {
        self.shared.wakes.load(Ordering::Relaxed)
    }

    /// For tests and benchmarks: how many watches are armed now.
    #[doc(hidden)]
    pub fn watches(&self) -> usize {
        self.shared.lock().waiters.len()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { id, shape, .. } = &*self.shared;
        f.debug_struct("MemoryStore").field("id", id).field("shape", shape).finish_non_exhaustive()
    }
}

impl Store for MemoryStore {
    fn promises(&self) -> Fut<'_, Promises> {
        Box::pin(async move {
            self.shared.count_call();
            let shape = self.shared.shape;
            let mut promises = Promises::new(self.shared.id.clone());
            promises.tokens = TokenStrength::Process;
            promises.line = shape.line;
            promises.forgotten_by = shape.forgotten_by;
            promises.watches = shape.watches;
            // Tokio's timers count whole milliseconds.
            promises.granularity = Duration::from_millis(1);
            promises.caveats.push("Everything is forgotten when the process ends.".to_owned());
            Ok(promises)
        })
    }

    fn open_session(&self, ttl: Duration) -> Fut<'_, Arc<dyn Session>> {
        Box::pin(async move {
            let (key, liveness) = self.shared.call(|table, now| table.open_session(now, ttl));
            Ok(Arc::new(MemorySession::new(self.shared.clone(), key, liveness)) as Arc<dyn Session>)
        })
    }

    fn elections(&self, limit: usize) -> Fut<'_, Vec<ElectionName>> {
        Box::pin(async move { Ok(self.shared.call(|table, now| table.elections(now, limit))) })
    }

    fn line<'a>(&'a self, election: &'a ElectionName, limit: usize) -> Fut<'a, Line> {
        Box::pin(async move { Ok(self.shared.call(|table, now| table.line(now, election, limit))) })
    }

    fn watch(&self, election: &ElectionName, seen: &Seen, from: Cursor) -> Wake {
        self.shared.watch(election, Touch::of_election(seen), |table| table.looks_different(election, seen, from))
    }

    fn set_office<'a>(&'a self, election: &'a ElectionName, was: Version, to: &'a Office) -> Fut<'a, Cas> {
        Box::pin(async move { Ok(self.shared.call(|table, now| table.set_office(now, election, was, to))) })
    }

    fn evict<'a>(&'a self, election: &'a ElectionName, seen: &'a Entry) -> Fut<'a, Cas> {
        Box::pin(async move { Ok(self.shared.call(|table, now| table.evict(now, election, seen))) })
    }
}

/// What the handles, the sessions and the watches of one store share.
pub(super) struct Shared {
    id: StoreId,
    shape: Shape,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Tells the expiry task that there is something to do before its alarm rings.
    expires_earlier: Arc<Notify>,
    calls: AtomicU64,
    wakes: AtomicU64,
}

struct State {
    table: Table,
    waiters: Waiters,
    alarm: expiry::Alarmed,
}

impl Shared {
    /// One call to the store: one step, counted.
    pub(super) fn call<T>(self: &Arc<Self>, step: impl FnOnce(&mut Table, Timestamp) -> T) -> T {
        self.count_call();
        self.step(step)
    }

    /// Waits for the first of these, unless something has `changed` already.
    pub(super) fn watch(
        self: &Arc<Self>,
        election: &ElectionName,
        touches: Vec<Touch>,
        changed: impl FnOnce(&Table) -> bool,
    ) -> Wake {
        self.count_call();
        if !self.shape.watches {
            return Box::pin(pending());
        }
        let mut state = self.lock();
        if changed(&state.table) {
            self.wakes.fetch_add(1, Ordering::Relaxed);
            return Box::pin(std::future::ready(Ok(())));
        }
        let waiter = state.waiters.arm(election, touches);
        drop(state);
        Box::pin(Watch { shared: self.clone(), waiter: Some(waiter) })
    }

    fn count_call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// One atomic step, and whatever it wakes.
    pub(super) fn step<T>(self: &Arc<Self>, step: impl FnOnce(&mut Table, Timestamp) -> T) -> T {
        // Inside the lock: a later step must not come with an earlier time.
        let mut state = self.lock();
        let answer = step(&mut state.table, self.clock.now());
        let next = state.table.next_expiry();
        let start = next.is_some_and(|at| state.alarm.must_start(at, &self.expires_earlier));
        self.wake_touched(state);
        if start {
            expiry::start(self);
        }
        answer
    }

    /// What the expiry task does when its alarm rings. The time at which it is to ring next;
    /// `None`: never, and the task is no longer needed.
    pub(super) fn expire(&self) -> Option<Timestamp> {
        let mut state = self.lock();
        state.table.expire(self.clock.now());
        let next = state.table.next_expiry();
        state.alarm = next.map_or(expiry::Alarmed::No, expiry::Alarmed::At);
        self.wake_touched(state);
        next
    }

    /// The expiry task is gone: the next step starts another one if it is needed.
    pub(super) fn alarm_is_off(&self) {
        self.lock().alarm = expiry::Alarmed::No;
    }

    pub(super) fn id(&self) -> &StoreId {
        &self.id
    }

    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    pub(super) fn expires_earlier(&self) -> &Arc<Notify> {
        &self.expires_earlier
    }

    /// Wakes the watches of what was touched, after the lock is open again.
    fn wake_touched(&self, mut state: MutexGuard<'_, State>) {
        let touched = state.table.take_touched();
        if touched.is_empty() || state.waiters.len() == 0 {
            return;
        }
        let mut wakers = Vec::new();
        let released = touched.into_iter().map(|touched| state.waiters.release(touched, &mut wakers)).sum();
        drop(state);
        self.wakes.fetch_add(released, Ordering::Relaxed);
        wakers.into_iter().for_each(|waker| waker.wake());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The expiry task finds that the store is gone, and ends.
        self.expires_earlier.notify_one();
    }
}

/// An armed watch: released when what it waits for is touched, removed when it is dropped.
struct Watch {
    shared: Arc<Shared>,
    waiter: Option<WaiterId>,
}

impl Future for Watch {
    type Output = Result<(), StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(waiter) = self.waiter {
            let mut waker = Some(cx.waker().clone());
            if self.shared.lock().waiters.swap_waker(waiter, &mut waker) {
                return Poll::Pending;
            }
            self.waiter = None;
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter {
            let waker = self.shared.lock().waiters.disarm(waiter);
            drop(waker);
        }
    }
}

/// A new identity: another store, in this process or after it, never has the same one.
fn new_id() -> StoreId {
    static STORES: AtomicU64 = AtomicU64::new(0);
    let number = STORES.fetch_add(1, Ordering::Relaxed);
    // Without randomness, the process and the number still tell it from every other that runs.
    let [random] = random_words().unwrap_or_default();
    StoreId::new(format!("memory-{}-{number}-{random:016x}", std::process::id()))
}
