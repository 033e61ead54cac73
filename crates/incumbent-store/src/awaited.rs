//! A value that others wait for.

use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::lock;

/// Like tokio's `watch`, but those who wait are woken in the order in which they came: tokio draws
/// lots, and a simulation could not be run again.
#[derive(Debug)]
pub struct Awaited<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T: Copy> Awaited<T> {
    /// Begins with this value.
    pub fn new(value: T) -> Awaited<T> {
        Awaited { value: Mutex::new(value), changed: Notify::new() }
    }

    /// The value at this moment.
    pub fn get(&self) -> T {
        *self.value()
    }

    /// Replaces the value.
    pub fn set(&self, to: T) {
        self.change(|_| Some(to));
    }

    /// Replaces the value, unless `change` leaves it as it is.
    pub fn change(&self, change: impl FnOnce(T) -> Option<T>) {
        let mut value = self.value();
        let Some(to) = change(*value) else { return };
        *value = to;
        drop(value);
        self.changed.notify_waiters();
    }

    /// Waits until the value is as asked for, and answers with it. Safe to cancel.
    pub async fn wait_for(&self, is: impl Fn(T) -> bool) -> T {
        loop {
            let changed = self.changed.notified();
            let value = self.get();
            if is(value) {
                return value;
            }
            changed.await;
        }
    }

    fn value(&self) -> MutexGuard<'_, T> {
        lock(&self.value)
    }
}
