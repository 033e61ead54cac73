//! What stands between tokio and the tasks of one boot of a host: it stops them, delays them and
//! kills them.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use incumbent::Spawn;
use incumbent_core::Rng;
use incumbent_store::lock;
use tokio::time::{Sleep, sleep};

use super::checker::Checker;
use super::clock::HostClock;

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Whose task it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Whose {
    Driver,
    User,
}

#[derive(Debug)]
pub(crate) struct Gate {
    state: Mutex<State>,
    clock: Arc<HostClock>,
    checker: Arc<Checker>,
}

#[derive(Debug)]
struct State {
    paused: bool,
    dead: bool,
    /// The driver alone is dead, as when the runtime that it ran on has ended.
    driver_dead: bool,
    rng: Rng,
    /// How often, of a thousand polls, one is late, and how late it is at most.
    delayed: (u64, Duration),
    /// How often, of a thousand turns, a driver is interrupted after it has read the clock, and for
    /// how long at most.
    interrupted: (u64, Duration),
    next: u64,
    wakers: BTreeMap<u64, Option<Waker>>,
}

impl Gate {
    pub(crate) fn new(rng: Rng, clock: Arc<HostClock>, checker: Arc<Checker>) -> Arc<Gate> {
        let state = State {
            paused: false,
            dead: false,
            driver_dead: false,
            rng,
            delayed: (0, Duration::ZERO),
            interrupted: (0, Duration::ZERO),
            next: 0,
            wakers: BTreeMap::new(),
        };
        Arc::new(Gate { state: Mutex::new(state), clock, checker })
    }

    pub(crate) fn delay(&self, delayed: (u64, Duration), interrupted: (u64, Duration)) {
        let mut state = self.state();
        state.delayed = delayed;
        state.interrupted = interrupted;
    }

    pub(crate) fn pause(&self) {
        self.state().paused = true;
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.state().paused
    }

    pub(crate) fn resume(&self) {
        self.state().paused = false;
        self.wake_all();
    }

    /// Every task is dropped before it is polled again.
    pub(crate) fn kill(&self) {
        self.state().dead = true;
        self.wake_all();
    }

    pub(crate) fn kill_driver(&self) {
        self.state().driver_dead = true;
        self.wake_all();
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.state().dead
    }

    pub(crate) fn driver_is_dead(&self) -> bool {
        self.state().driver_dead
    }

    /// How many tasks there are.
    pub(crate) fn tasks(&self) -> usize {
        self.state().wakers.len()
    }

    pub(crate) fn spawn_user(self: &Arc<Gate>, task: impl Future<Output = ()> + Send + 'static) {
        self.begin(Whose::User, Box::pin(task));
    }

    fn begin(self: &Arc<Gate>, whose: Whose, task: Task) {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.wakers.insert(number, None);
        drop(state);
        tokio::spawn(Gated { gate: self.clone(), whose, number, task: Some(task), rest: None });
    }

    fn wake_all(&self) {
        let wakers: Vec<_> = self.state().wakers.values().flatten().cloned().collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// For a client of this boot.
#[derive(Debug)]
pub(crate) struct DriverGate(pub(crate) Arc<Gate>);

impl Spawn for DriverGate {
    fn spawn(&self, task: Task) {
        self.0.begin(Whose::Driver, task);
    }
}

/// What to do with a task that is polled.
enum Turn {
    Kill,
    Wait,
    Rest(Duration),
    /// Poll it; time jumps so far when it has read the clock.
    Go(Duration),
}

struct Gated {
    gate: Arc<Gate>,
    whose: Whose,
    number: u64,
    task: Option<Task>,
    rest: Option<Pin<Box<Sleep>>>,
}

impl Gated {
    fn turn(&self, waker: &Waker) -> Turn {
        let mut state = self.gate.state();
        if state.dead || (state.driver_dead && self.whose == Whose::Driver) {
            return Turn::Kill;
        }
        state.wakers.insert(self.number, Some(waker.clone()));
        if state.paused {
            return Turn::Wait;
        }
        let (often, longest) = state.delayed;
        if self.rest.is_none() && state.rng.below(1000) < often {
            let nanos = state.rng.below(longest.as_nanos() as u64 + 1);
            return Turn::Rest(Duration::from_nanos(nanos));
        }
        let (often, longest) = state.interrupted;
        let interrupted = self.whose == Whose::Driver && state.rng.below(1000) < often;
        let nanos = if interrupted { state.rng.below(longest.as_nanos() as u64 + 1) } else { 0 };
        Turn::Go(Duration::from_nanos(nanos))
    }

    fn poll_task(&mut self, cx: &mut Context<'_>, jump: Duration) -> Poll<()> {
        let Some(task) = &mut self.task else { return Poll::Ready(()) };
        let driver = self.whose == Whose::Driver;
        if driver {
            self.gate.clock.begin_turn(jump);
        }
        let polled = catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(cx)));
        if driver {
            self.gate.clock.end_turn();
        }
        match polled {
            Ok(polled) => polled,
            Err(_) => {
                self.gate.checker.fail("PANIC", format!("a task of a {:?} panicked", self.whose));
                Poll::Ready(())
            }
        }
    }
}

impl Future for Gated {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(rest) = &mut self.rest
            && rest.as_mut().poll(cx).is_pending()
            && !self.gate.is_dead()
        {
            return Poll::Pending;
        }
        match self.turn(cx.waker()) {
            Turn::Kill => {
                self.task = None;
                Poll::Ready(())
            }
            Turn::Wait => Poll::Pending,
            Turn::Rest(duration) => {
                let mut rest = Box::pin(sleep(duration));
                if rest.as_mut().poll(cx).is_ready() {
                    cx.waker().wake_by_ref();
                }
                self.rest = Some(rest);
                Poll::Pending
            }
            Turn::Go(jump) => {
                self.rest = None;
                let polled = self.poll_task(cx, jump);
                if polled.is_ready() {
                    self.task = None;
                }
                polled
            }
        }
    }
}

impl Drop for Gated {
    fn drop(&mut self) {
        self.task = None;
        self.gate.state().wakers.remove(&self.number);
    }
}
