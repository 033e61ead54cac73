//! How long to wait for a lock of a file whose holder has a few small writes to make.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// A process that was stopped holds its locks for as long as it is.
const LONGEST: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Tries until it has the lock, for a second at most. `None`: another process or thread has it.
pub(crate) fn lock_within_a_second<T>(mut try_lock: impl FnMut() -> io::Result<Option<T>>) -> io::Result<Option<T>> {
    let started = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        let lock = try_lock()?;
        if lock.is_some() || started.elapsed() >= LONGEST {
            return Ok(lock);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
