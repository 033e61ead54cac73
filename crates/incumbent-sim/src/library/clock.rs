//! The clock of one simulated host: tokio's paused time at a rate of its own.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use incumbent_core::Timestamp;
use incumbent_store::{Alarm, Clock, lock};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::clock::LocalClock;

type Look = Arc<dyn Fn() + Send + Sync>;

/// A host's clock, which all its threads read.
///
/// Tokio runs one task at a time, but a driver shares its host with other threads: it may be
/// stopped right after it has read the clock, for a while, and others look at the time before it
/// goes on. That is played here: in such a turn the driver gets its reading, then time jumps, then
/// everybody else on the host looks.
pub(crate) struct HostClock {
    time: Time,
    /// This turn of the driver is interrupted after each reading, and the first time for so long.
    interrupted: AtomicBool,
    jump: AtomicU64,
    looks: Mutex<(u64, BTreeMap<u64, Look>)>,
}

/// Tokio's time, as this clock shows it.
#[derive(Clone, Debug)]
struct Time {
    start: Instant,
    local: Arc<Mutex<LocalClock>>,
}

impl Time {
    fn local(&self) -> (u64, MutexGuard<'_, LocalClock>) {
        (self.start.elapsed().as_nanos() as u64, lock(&self.local))
    }

    fn read(&self) -> Timestamp {
        let (now, local) = self.local();
        local.read(now)
    }

    /// When it shows `local`, on tokio's clock.
    fn when(&self, local: Timestamp) -> Instant {
        // No simulation lasts longer.
        let far = u64::MAX / 4;
        self.start + Duration::from_nanos(self.local().1.when(local).min(far))
    }

    fn jump(&self, by: u64) {
        let (now, mut local) = self.local();
        local.step(now, i64::try_from(by).unwrap_or(i64::MAX));
    }
}

impl HostClock {
    pub(crate) fn new(start: Instant, origin: u64, ppm: i64) -> HostClock {
        HostClock {
            time: Time { start, local: Arc::new(Mutex::new(LocalClock::new(origin, ppm))) },
            interrupted: AtomicBool::new(false),
            jump: AtomicU64::new(0),
            looks: Mutex::default(),
        }
    }

    /// The time on this host.
    pub(crate) fn read(&self) -> Timestamp {
        self.time.read()
    }

    /// A driver's turn begins. With a jump it is interrupted.
    pub(crate) fn begin_turn(&self, jump: Duration) {
        self.interrupted.store(!jump.is_zero(), Ordering::Relaxed);
        self.jump.store(jump.as_nanos() as u64, Ordering::Relaxed);
    }

    pub(crate) fn end_turn(&self) {
        self.interrupted.store(false, Ordering::Relaxed);
    }

    /// Somebody on this host who looks whenever the driver is interrupted, until the answer is
    /// dropped.
    pub(crate) fn look_on(self: &Arc<HostClock>, look: impl Fn() + Send + Sync + 'static) -> LooksOn {
        let mut looks = self.looks();
        looks.0 += 1;
        let number = looks.0;
        looks.1.insert(number, Arc::new(look));
        drop(looks);
        LooksOn(self.clone(), number)
    }

    fn looks(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Look>)> {
        lock(&self.looks)
    }
}

impl fmt::Debug for HostClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.time.fmt(f)
    }
}

/// See [`HostClock::look_on`].
pub(crate) struct LooksOn(Arc<HostClock>, u64);

impl Drop for LooksOn {
    fn drop(&mut self) {
        let look = self.0.looks().1.remove(&self.1);
        drop(look);
    }
}

impl Clock for HostClock {
    fn now(&self) -> Timestamp {
        let now = self.read();
        if self.interrupted.swap(false, Ordering::Relaxed) {
            self.time.jump(self.jump.swap(0, Ordering::Relaxed));
            let looks: Vec<_> = self.looks().1.values().cloned().collect();
            looks.iter().for_each(|look| look());
            self.interrupted.store(true, Ordering::Relaxed);
        }
        now
    }

    fn alarm(&self) -> io::Result<Box<dyn Alarm>> {
        Ok(Box::new(HostAlarm { time: self.time.clone(), at: None, sleep: None }))
    }
}

struct HostAlarm {
    time: Time,
    at: Option<Timestamp>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Alarm for HostAlarm {
    fn set(&mut self, at: Option<Timestamp>) {
        self.at = at.filter(|at| *at != Timestamp::MAX);
    }

    fn poll_ring(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(at) = self.at else { return Poll::Pending };
        // The clock may have jumped since the last time.
        let when = self.time.when(at);
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(when)));
        if sleep.deadline() != when {
            sleep.as_mut().reset(when);
        }
        std::task::ready!(sleep.as_mut().poll(cx));
        self.at = None;
        self.sleep = None;
        Poll::Ready(())
    }
}
