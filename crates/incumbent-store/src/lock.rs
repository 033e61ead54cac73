//! How a lock is taken everywhere in the project.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock, also where a thread has panicked while it had it.
///
/// For what is changed in whole steps: nothing that can panic comes between two halves of a change,
/// so that a panic leaves nothing half-made behind.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
