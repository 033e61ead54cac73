//! The clock that counts suspended time, and the one that tests can pause.

use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use incumbent_core::Timestamp;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
    timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, Sleep, sleep_until};

/// Where time comes from. The library is given one. A store that dates something has the boot
/// clock, or one that it is given when it is made. They may be two: moments never cross the seam,
/// lengths do.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Timestamp;

    /// A timer on this clock. Needs a tokio runtime.
    fn alarm(&self) -> io::Result<Box<dyn Alarm>>;
}

/// One timer.
pub trait Alarm: Send {
    /// Rings at `at`, or never. Replaces what was set before.
    fn set(&mut self, at: Option<Timestamp>);

    /// Ready once the time that was set has come.
    fn poll_ring(&mut self, cx: &mut Context<'_>) -> Poll<()>;
}

/// `CLOCK_BOOTTIME`: it goes on while the machine sleeps, unlike [`std::time::Instant`] and tokio's
/// timers.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl BootClock {
    /// Which boot of the host this is. Zero: the kernel does not say.
    pub fn boot_id() -> u128 {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        u128::from_str_radix(&text.trim().replace('-', ""), 16).unwrap_or(0)
    }

    /// All processes with the same number read the same clock, to the nanosecond. Zero: unknown.
    /// Containers may have one of their own (a time namespace): same boot, another offset.
    pub fn id() -> u128 {
        match (BootClock::boot_id(), std::fs::metadata("/proc/self/ns/time")) {
            (0, _) => 0,
            (boot, Ok(namespace)) => boot ^ u128::from(namespace.ino()),
            // A kernel that has no such namespaces has one clock.
            (boot, Err(error)) if error.kind() == io::ErrorKind::NotFound => boot,
            (_, Err(_)) => 0,
        }
    }
}

/// The wall clock, in milliseconds since 1970: for what people read. Nothing decides by it.
pub fn wall_clock_ms() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
}

impl Clock for BootClock {
    #[inline]
    fn now(&self) -> Timestamp {
        let now = clock_gettime(ClockId::Boottime);
        // The boot-time clock counts from boot: neither part is ever negative.
        Timestamp::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
    }

    fn alarm(&self) -> io::Result<Box<dyn Alarm>> {
        let fd = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        #[allow(deprecated, reason = "its successor is unsafe, for descriptors that change hands; an OwnedFd cannot")]
        let timer = AsyncFd::with_interest(fd, Interest::READABLE)?;
        Ok(Box::new(BootAlarm { timer, at: None }))
    }
}

struct BootAlarm {
    timer: AsyncFd<rustix::fd::OwnedFd>,
    at: Option<Timestamp>,
}

impl Alarm for BootAlarm {
    fn set(&mut self, at: Option<Timestamp>) {
        if self.at == at {
            return;
        }
        self.at = at;
        // A zero time would switch the timer off: the past is one nanosecond after boot.
        let nanos = at.map_or(0, |at| at.as_nanos().clamp(1, i64::MAX as u64));
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as _ };
        let spec = Itimerspec { it_interval: zero, it_value: value };
        // It cannot fail: the descriptor is a timer of ours and the times are well formed.
        let set = timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::ABSTIME, &spec);
        debug_assert!(set.is_ok(), "{set:?}");
    }

    fn poll_ring(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let Poll::Ready(guard) = self.timer.poll_read_ready(cx) else { return Poll::Pending };
            let Ok(mut guard) = guard else {
                // The runtime is shutting down: nobody will be woken any more.
                return Poll::Pending;
            };
            let mut ticks = [0; 8];
            match guard.try_io(|fd| rustix::io::read(fd, &mut ticks).map_err(io::Error::from)) {
                Ok(Ok(_)) => {
                    self.at = None;
                    return Poll::Ready(());
                }
                Ok(Err(_)) => return Poll::Pending,
                // Not ready after all: ask again, so that the waker is kept.
                Err(_) => {}
            }
        }
    }
}

/// Tokio's clock, which tests can pause and which then jumps to the next timer by itself.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    origin: Instant,
}

impl TokioClock {
    /// A clock that starts at one hour now: times before the start can be written down, too.
    pub fn new() -> TokioClock {
        TokioClock { origin: Instant::now() }
    }

    const START: Duration = Duration::from_secs(3600);
}

impl Default for TokioClock {
    fn default() -> TokioClock {
        TokioClock::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        Timestamp::ZERO + TokioClock::START + self.origin.elapsed()
    }

    fn alarm(&self) -> io::Result<Box<dyn Alarm>> {
        Ok(Box::new(TokioAlarm { origin: self.origin, sleep: None }))
    }
}

struct TokioAlarm {
    origin: Instant,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Alarm for TokioAlarm {
    fn set(&mut self, at: Option<Timestamp>) {
        let Some(at) = at.filter(|at| *at != Timestamp::MAX) else {
            self.sleep = None;
            return;
        };
        let at = self.origin + at.since(Timestamp::ZERO + TokioClock::START);
        match &mut self.sleep {
            Some(sleep) if sleep.deadline() == at => {}
            Some(sleep) => sleep.as_mut().reset(at),
            None => self.sleep = Some(Box::pin(sleep_until(at))),
        }
    }

    fn poll_ring(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(sleep) = &mut self.sleep else { return Poll::Pending };
        match sleep.as_mut().poll(cx) {
            Poll::Ready(()) => {
                self.sleep = None;
                Poll::Ready(())
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Set in processes that this test starts of itself: they only say what their clock is.
    const SAYS: &str = "INCUMBENT_TEST_SAYS_ITS_CLOCK";

    #[test]
    fn processes_share_a_clock_unless_they_have_a_time_namespace_of_their_own() {
        if std::env::var_os(SAYS).is_some() {
            return println!("the clock is {:032x}", BootClock::id());
        }
        let this = "clock::tests::processes_share_a_clock_unless_they_have_a_time_namespace_of_their_own";
        let said = |around: &[&str]| {
            let test = std::env::current_exe().unwrap();
            let mut command = Command::new(around.first().map_or(test.as_os_str(), |program| program.as_ref()));
            if let Some((_, options)) = around.split_first() {
                command.args(options).arg(&test);
            }
            let output = command.env(SAYS, "").args(["--exact", this, "--nocapture"]).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let id = text.split("the clock is ").nth(1).and_then(|rest| rest.get(..32));
            u128::from_str_radix(id.unwrap_or_else(|| panic!("{output:?}")), 16).unwrap()
        };
        assert!(BootClock::id() != 0 && said(&[]) == BootClock::id());
        let other = said(&["unshare", "--user", "--map-root-user", "--time", "--boottime", "100000"]);
        assert!(other != 0 && other != BootClock::id(), "{other:032x}");
    }
}
