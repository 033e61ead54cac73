//! The memory store as its own server: a task that removes what has expired, while there is
//! something that can.
//!
//! It holds no store alive: it ends when the last handle is dropped, and when nothing is left that
//! can expire.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;

use incumbent_core::Timestamp;
use tokio::sync::Notify;

use super::store::Shared;
use crate::Alarm;

/// Whether the expiry task runs, and for when it has set its alarm.
#[derive(Clone, Copy, Debug)]
pub(super) enum Alarmed {
    /// There is no task.
    No,
    /// There is one, and it rings then.
    At(Timestamp),
}

impl Alarmed {
    /// Sees to it that the task wakes by `at`. `true`: there is none, and it has to be started.
    pub(super) fn must_start(&mut self, at: Timestamp, expires_earlier: &Notify) -> bool {
        match *self {
            Alarmed::At(set) if set <= at => false,
            Alarmed::At(_) => {
                *self = Alarmed::At(at);
                expires_earlier.notify_one();
                false
            }
            Alarmed::No if tokio::runtime::Handle::try_current().is_err() => false,
            Alarmed::No => {
                *self = Alarmed::At(at);
                true
            }
        }
    }
}

/// Starts the task in the current runtime.
pub(super) fn start(store: &Arc<Shared>) {
    let running = Running { store: Arc::downgrade(store), marked: true };
    let expires_earlier = store.expires_earlier().clone();
    match store.clock().alarm() {
        // Dropping `running` takes it back: what has expired is then removed with the next call.
        Err(_) => drop(running),
        Ok(alarm) => drop(tokio::spawn(run(running, expires_earlier, alarm))),
    }
}

/// Takes the mark that a task runs back when it is dropped, as when its runtime shuts down.
struct Running {
    store: Weak<Shared>,
    marked: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.marked
            && let Some(store) = self.store.upgrade()
        {
            store.alarm_is_off();
        }
    }
}

async fn run(mut running: Running, expires_earlier: Arc<Notify>, mut alarm: Box<dyn Alarm>) {
    loop {
        let Some(store) = running.store.upgrade() else { return };
        let Some(next) = store.expire() else {
            // The mark was taken back with the last look at the table, and by now it may be another
            // task's.
            running.marked = false;
            return;
        };
        drop(store);
        alarm.set(Some(next));
        let mut earlier = pin!(expires_earlier.notified());
        poll_fn(|cx| if earlier.as_mut().poll(cx).is_ready() { Poll::Ready(()) } else { alarm.poll_ring(cx) }).await;
    }
}
