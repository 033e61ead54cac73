//! Fault points: a test can kill or stop this process before the nth change that it makes to the
//! directory.
//!
//! Without the cargo feature `fault-points` there is nothing here.

/// A change to the directory is about to be made.
#[cfg(not(feature = "fault-points"))]
#[inline]
pub(crate) fn point(_what: &str, _path: &str) {}

#[cfg(feature = "fault-points")]
pub(crate) use on::point;
#[cfg(feature = "fault-points")]
pub use on::start_fault_points;

#[cfg(feature = "fault-points")]
mod on {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use rustix::process::{Signal, getpid, kill_process};

    static STARTED: AtomicBool = AtomicBool::new(false);
    static PASSED: AtomicU64 = AtomicU64::new(0);

    /// Counts from here where `INCUMBENT_FAULT` says `late`.
    pub fn start_fault_points() {
        STARTED.store(true, Ordering::SeqCst);
    }

    /// `INCUMBENT_FAULT` is `list` (say each point on stderr), `kill:N` or `stop:N`: at the Nth
    /// point, counted from 1. With `:late` after it, counting starts when the process says so.
    pub(crate) fn point(what: &str, path: &str) {
        let Ok(wanted) = std::env::var("INCUMBENT_FAULT") else { return };
        let late = wanted.strip_suffix(":late");
        if late.is_some() && !STARTED.load(Ordering::SeqCst) {
            return;
        }
        let passed = PASSED.fetch_add(1, Ordering::SeqCst) + 1;
        if wanted == "list" {
            eprintln!("point {passed} {what} {path}");
            return;
        }
        let Some((how, at)) = late.unwrap_or(&wanted).split_once(':') else { return };
        if at.parse() != Ok(passed) {
            return;
        }
        let signal = if how == "stop" { Signal::STOP } else { Signal::KILL };
        let _ = kill_process(getpid(), signal);
        // The signal is for the whole process, and a thread other than this one may be the first to
        // heed it.
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
