//! How a lock is taken everywhere in the project.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock, also where a thread has panicked while it had it.
///
/// For what is changed in whole steps: nothing that can panic comes between two halves of a change,
/// so that a panic leaves nothing half-made behind.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_taken_after_a_thread_that_had_it_has_panicked() {
        let mutex = Mutex::new(1);
        let panicked = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let mut number = lock(&mutex);
                *number = 2;
                panic!("with the lock in hand");
            });
            thread.join().is_err()
        });
        assert!(panicked && mutex.is_poisoned());
        assert_eq!(*lock(&mutex), 2);
    }
}
