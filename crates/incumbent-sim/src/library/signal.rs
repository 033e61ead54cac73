//! A value that tasks of a simulation wait for. Those who wait are woken in the order in which they
//! came: tokio's `watch` draws lots.

use std::sync::Mutex;

use incumbent_store::lock;
use tokio::sync::Notify;

#[derive(Debug)]
pub(crate) struct Signal<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T: Copy> Signal<T> {
    pub(crate) fn new(value: T) -> Signal<T> {
        Signal { value: Mutex::new(value), changed: Notify::new() }
    }

    pub(crate) fn get(&self) -> T {
        *lock(&self.value)
    }

    pub(crate) fn set(&self, to: T) {
        *lock(&self.value) = to;
        self.changed.notify_waiters();
    }

    pub(crate) async fn until(&self, is: impl Fn(T) -> bool) {
        loop {
            let changed = self.changed.notified();
            if is(self.get()) {
                return;
            }
            changed.await;
        }
    }
}
