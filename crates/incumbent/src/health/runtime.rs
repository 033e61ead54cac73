//! How long a runtime takes to run a task, measured from outside it.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use super::limits::Limits;
use super::{Health, HealthCheck};

/// How long a tokio runtime takes to get to a new task. Work that blocks its threads also keeps
/// this process from stopping in time.
#[derive(Clone, Debug)]
pub struct RuntimeCheck {
    runtime: Handle,
    limits: Limits,
}

impl RuntimeCheck {
    /// Unwell if a task waits for longer than `limit`, and unfit above ten times as long, or if it
    /// is not run in the time that checks have. Half of the grace is a good value for
    /// [`unfit_above`](RuntimeCheck::unfit_above): beyond it, work may no longer stop in time.
    pub fn at_most(runtime: Handle, limit: Duration) -> RuntimeCheck {
        let limit = limit.as_secs_f64();
        RuntimeCheck { runtime, limits: Limits::at_most(limit, limit * 10.0) }
    }

    /// Unfit if a task waits for longer than this.
    pub fn unfit_above(mut self, limit: Duration) -> RuntimeCheck {
        self.limits.set_unfit(limit.as_secs_f64());
        self
    }
}

impl HealthCheck for RuntimeCheck {
    fn name(&self) -> String {
        "lag of the runtime".into()
    }

    fn check(&mut self, within: Duration) -> Health {
        let (ran, waiting) = channel();
        let began = Instant::now();
        // It may be too late for anybody to hear of it.
        self.runtime.spawn(async move { ran.send(()).ok() });
        match waiting.recv_timeout(within) {
            Ok(()) => {
                let lag = began.elapsed().as_secs_f64();
                let (fitness, limit) = self.limits.judge(lag);
                Health::new(fitness, format!("{:.0} ms, {:.0} ms is the limit", lag * 1e3, limit * 1e3))
            }
            Err(RecvTimeoutError::Timeout) => Health::unfit(format!("no task was run for {within:?}")),
            Err(RecvTimeoutError::Disconnected) => Health::unfit("the runtime has ended"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Fitness;

    #[test]
    fn a_runtime_whose_thread_is_blocked_is_seen_from_outside_and_so_is_its_recovery() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let patient = Duration::from_secs(600);
        let mut check = RuntimeCheck::at_most(runtime.handle().clone(), patient);
        assert_eq!(check.check(patient), Health::fit());

        let (unblock, blocked) = channel::<()>();
        let (begun, began) = channel();
        let blocking = runtime.spawn(async move {
            begun.send(()).unwrap();
            blocked.recv().unwrap();
        });
        began.recv().unwrap();
        let found = check.check(Duration::from_millis(50));
        assert_eq!(found.to_string(), "unfit: no task was run for 50ms");
        unblock.send(()).unwrap();
        runtime.block_on(blocking).unwrap();
        assert_eq!(check.check(patient), Health::fit());

        let mut impatient = RuntimeCheck::at_most(runtime.handle().clone(), Duration::ZERO).unfit_above(patient);
        assert_eq!(impatient.check(patient).fitness, Fitness::Unwell);
        runtime.shutdown_background();
        assert_eq!(check.check(patient).to_string(), "unfit: the runtime has ended");
    }
}
