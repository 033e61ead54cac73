//! The boot-time clock and a timer on it. The same clock as the library's deadlines: it goes on
//! while the machine sleeps.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use incumbent_core::Timestamp;
use rustix::io;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
    timerfd_settime,
};

/// Killing begins so long before a deadline, so that at the deadline no process is left: it takes
/// some milliseconds, more on a busy machine.
pub const HEAD_START: Duration = Duration::from_millis(50);

/// Now, in the supervisor's terms too: `CLOCK_BOOTTIME` is one clock for the whole machine.
pub(crate) fn now() -> Timestamp {
    let now = clock_gettime(ClockId::Boottime);
    // It counts from boot: neither part is ever negative.
    Timestamp::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// When to begin killing, so as to be done by the deadline.
pub(crate) fn kill_at(deadline: Timestamp) -> Timestamp {
    if deadline == Timestamp::MAX { deadline } else { deadline - HEAD_START }
}

/// A timer whose descriptor is readable once the time that was set has come.
#[derive(Debug)]
pub(crate) struct Timer {
    fd: OwnedFd,
    at: Option<Timestamp>,
}

impl Timer {
    pub(crate) fn new() -> io::Result<Timer> {
        let fd = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(Timer { fd, at: None })
    }

    /// Rings at `at`, or never. Replaces what was set before, also if that has rung.
    pub(crate) fn set(&mut self, at: Option<Timestamp>) -> io::Result<()> {
        // Setting it anew is what clears an expiry that was not read, so that also an unchanged
        // time is set again.
        self.at = at.filter(|at| *at != Timestamp::MAX);
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A zero time would switch the timer off: the past is one nanosecond after boot.
        let nanos = self.at.map_or(0, |at| at.as_nanos().clamp(1, i64::MAX as u64));
        let value = Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as _ };
        timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval: zero, it_value: value })?;
        Ok(())
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
