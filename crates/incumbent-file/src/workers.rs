//! Where the file work runs: on threads of the store's own, never on those that drive tasks.
//!
//! Most calls take microseconds, but a sync can take seconds when the disk is busy, and a thread
//! that hangs in it must not be one that has to stop a leader's work in time. The first thread is
//! made when the store is opened, where a failure is an error like any other; the rest come and go,
//! and if the host has none left, the first does all. So nothing that happens later can fail for
//! want of a thread.
//!
//! A job that has begun cannot be dropped: its effect is then unknown to the caller, and found by
//! the next renewal. One that has not begun goes with its caller.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use incumbent_store::{StoreError, lock};
use tokio::sync::oneshot;

/// How long a thread that is not the first waits for more to do.
const LINGER: Duration = Duration::from_secs(1);
/// Far more than any job needs.
const STACK_BYTES: usize = 512 * 1024;

/// At so many waiting jobs, those whose callers have gone are thrown away for the first time.
const FIRST_CLEARANCE: usize = 64;

struct Job {
    work: Box<dyn FnOnce() + Send>,
    /// Dead once the caller has gone. `None`: there is no caller, and the job is always done.
    caller: Option<Weak<()>>,
}

impl Job {
    fn is_wanted(&self) -> bool {
        self.caller.as_ref().is_none_or(|caller| caller.strong_count() > 0)
    }
}

/// A few threads and what they have to do. They end when it is dropped, once all is done.
#[derive(Debug)]
pub(crate) struct Workers {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    name: &'static str,
    most: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// How many may wait before the next clearance: on a disk that hangs, callers give up and come
    /// again, without end.
    clear_at: usize,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Workers {
    /// Makes the first thread. There are never more than `most`.
    pub(crate) fn start(name: &'static str, most: usize) -> Result<Workers, StoreError> {
        let shared = Shared { name, most, state: Mutex::default(), changed: Condvar::new() };
        let workers = Workers { shared: Arc::new(shared) };
        workers.shared.add_thread(&mut workers.shared.state()).map_err(|error| {
            let what = "no thread can be made for the file work: look at the limits of this user (ulimit -u), of \
                        this control group (pids.max) and at the memory";
            StoreError::unavailable(what, error)
        })?;
        Ok(workers)
    }

    /// Runs `job` where it may block.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        what: &'static str,
        job: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let here = Arc::new(());
        let work = move || {
            // The caller may have stopped waiting.
            let _ = reply.send(job());
        };
        self.push(Job { work: Box::new(work), caller: Some(Arc::downgrade(&here)) });
        let answer = answer.await;
        drop(here);
        match answer {
            Ok(answer) => answer,
            Err(panicked) => Err(StoreError::unknown(what, panicked)),
        }
    }

    /// Runs `job` where it may block, without a caller that waits for it.
    pub(crate) fn later(&self, work: impl FnOnce() + Send + 'static) {
        self.push(Job { work: Box::new(work), caller: None });
    }

    fn push(&self, job: Job) {
        let mut state = self.shared.state();
        // Thrown away outside the lock: with a job may go the last of a session, or of a store.
        let mut unwanted = VecDeque::new();
        if state.jobs.len() >= state.clear_at {
            let jobs = std::mem::take(&mut state.jobs);
            (state.jobs, unwanted) = jobs.into_iter().partition(Job::is_wanted);
            state.clear_at = (state.jobs.len() * 2).max(FIRST_CLEARANCE);
        }
        state.jobs.push_back(job);
        if state.idle < state.jobs.len() && state.threads < self.shared.most {
            // If it fails, those that are there come to it.
            let _ = self.shared.add_thread(&mut state);
        }
        // The thread that is woken needs the lock.
        drop(state);
        self.shared.changed.notify_one();
        drop(unwanted);
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.state().closed = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Jobs run outside the lock: nothing in it is half done.
        lock(&self.state)
    }

    fn add_thread(self: &Arc<Shared>, state: &mut State) -> io::Result<()> {
        let (shared, first) = (self.clone(), state.threads == 0);
        let builder = std::thread::Builder::new().name(self.name.into()).stack_size(STACK_BYTES);
        builder.spawn(move || shared.work(first))?;
        state.threads += 1;
        Ok(())
    }

    fn work(&self, first: bool) {
        while let Some(job) = self.next(first) {
            if job.is_wanted() {
                // A panic is a bug, and told to the one whose job it was; the next job is
                // another's.
                let _ = catch_unwind(AssertUnwindSafe(job.work));
            }
        }
        self.state().threads -= 1;
    }

    /// The next job; `None`: this thread is no longer needed. The first one waits without a limit,
    /// and so without waking up for nothing.
    fn next(&self, first: bool) -> Option<Job> {
        let mut state = self.state();
        let mut waited = false;
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.closed || (waited && !first) {
                return None;
            }
            state.idle += 1;
            state = if first {
                self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else {
                let (state, waiting) = self.changed.wait_timeout(state, LINGER).unwrap_or_else(PoisonError::into_inner);
                waited = waiting.timed_out();
                state
            };
            state.idle -= 1;
        }
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let State { jobs, threads, .. } = self;
        f.debug_struct("State").field("jobs", &jobs.len()).field("threads", threads).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future, poll_fn};
    use std::sync::mpsc;
    use std::task::Poll;

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn one_thread_does_one_thing_at_a_time_and_drops_what_nobody_waits_for_any_more() {
        let workers = Workers::start("test", 1).unwrap();
        let (done, order) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let first = done.clone();
        workers.later(move || {
            may_go_on.recv().unwrap();
            first.send(1).unwrap();
        });
        runtime().block_on(async {
            let given_up = done.clone();
            let mut never_begun = Box::pin(workers.run("a test", move || given_up.send(2).map_err(unexpected)));
            let answer = poll_fn(|cx| Poll::Ready(never_begun.as_mut().poll(cx))).await;
            assert!(answer.is_pending(), "the first job has not ended");
            drop(never_begun);
            go_on.send(()).unwrap();
            workers.run("a test", move || done.send(3).map_err(unexpected)).await.unwrap();
        });
        assert_eq!(order.iter().collect::<Vec<_>>(), [1, 3]);
    }

    fn unexpected(error: mpsc::SendError<i32>) -> StoreError {
        StoreError::unknown("a test", error)
    }

    #[test]
    fn a_job_that_hangs_holds_up_no_other_where_there_may_be_more_threads() {
        let workers = Workers::start("test", 2).unwrap();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        workers.later(move || assert!(may_go_on.recv().is_err()));
        assert_eq!(runtime().block_on(workers.run("a test", || Ok(7))).unwrap(), 7);
        drop(go_on);
    }

    #[test]
    fn callers_that_give_up_and_come_again_leave_no_growing_queue_behind() {
        let workers = Workers::start("test", 1).unwrap();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        workers.later(move || assert!(may_go_on.recv().is_err()));
        runtime().block_on(async {
            for _ in 0..100 * FIRST_CLEARANCE {
                let mut given_up = Box::pin(workers.run("a test", || Ok(())));
                assert!(poll_fn(|cx| Poll::Ready(given_up.as_mut().poll(cx))).await.is_pending());
            }
        });
        assert!(workers.shared.state().jobs.len() <= FIRST_CLEARANCE);
        drop(go_on);
    }

    #[test]
    fn a_job_that_panics_is_told_to_its_caller_and_the_thread_goes_on() {
        let workers = Workers::start("test", 1).unwrap();
        let panicked = runtime().block_on(workers.run::<()>("a test", || panic!("on purpose")));
        assert!(matches!(panicked, Err(StoreError::OutcomeUnknown { .. })), "{panicked:?}");
        assert_eq!(runtime().block_on(workers.run("a test", || Ok(7))).unwrap(), 7);
    }
}
