//! The share of what a program does that fails, as the program itself says.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::limits::Limits;
use super::{Health, HealthCheck};

/// The share of failures among what the program reports. Keep a clone, and report to it.
///
/// ```
/// use incumbent::health::{ErrorRate, HealthChecks};
///
/// let requests = ErrorRate::at_most(0.2); // unwell if more than one in five fails
/// let checks = HealthChecks::new().check(requests.clone());
/// // in the program:
/// requests.report(true);
/// requests.report(false);
/// ```
#[derive(Clone, Debug)]
pub struct ErrorRate {
    counts: Arc<Counts>,
    least: u64,
    limits: Limits,
    /// What was found last, and how many reports there were then that have not been judged.
    last: (Health, u64),
}

#[derive(Debug, Default)]
struct Counts {
    good: AtomicU64,
    failed: AtomicU64,
}

impl ErrorRate {
    /// Unwell if a greater share than this fails, of 20 reports or more.
    pub fn at_most(share: f64) -> ErrorRate {
        let limits = Limits::at_most(share, f64::INFINITY);
        ErrorRate { counts: Arc::default(), least: 20, limits, last: (Health::fit(), 0) }
    }

    /// Unfit if a greater share than this fails.
    pub fn unfit_above(mut self, share: f64) -> ErrorRate {
        self.limits.set_unfit(share);
        self
    }

    /// How many reports it takes to say something new: fewer are kept for the next look. If there
    /// is no report at all between two looks, nothing fails.
    pub fn of_at_least(mut self, reports: u64) -> ErrorRate {
        self.least = reports.max(1);
        self
    }

    /// Something that the program did has gone well, or failed. Cheap: one atomic step.
    pub fn report(&self, good: bool) {
        let count = if good { &self.counts.good } else { &self.counts.failed };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

impl HealthCheck for ErrorRate {
    fn name(&self) -> String {
        "error rate".into()
    }

    fn check(&mut self, _within: Duration) -> Health {
        let seen = self.counts.good.load(Ordering::Relaxed) + self.counts.failed.load(Ordering::Relaxed);
        if seen < self.least {
            // One that no longer leads may have nothing to report: it must not stay unwell for
            // ever.
            let found = if seen == self.last.1 { Health::fit() } else { self.last.0.clone() };
            self.last = (found.clone(), seen);
            return found;
        }
        // A report that comes in between is in the next look.
        let good = self.counts.good.swap(0, Ordering::Relaxed);
        let failed = self.counts.failed.swap(0, Ordering::Relaxed);
        let all = good + failed;
        let (fitness, limit) = self.limits.judge(failed as f64 / all as f64);
        let reason = format!("{failed} of {all} failed, {:.0} % is the limit", limit * 100.0);
        self.last = (Health::new(fitness, reason), 0);
        self.last.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Fitness;

    #[test]
    fn a_rate_crosses_its_limits_and_comes_back_and_a_few_reports_say_nothing() {
        let program = ErrorRate::at_most(0.2).unfit_above(0.8);
        let mut check = program.clone();
        let mut after = |good: u64, failed: u64| {
            (0..good).for_each(|_| program.report(true));
            (0..failed).for_each(|_| program.report(false));
            check.check(Duration::ZERO)
        };
        assert_eq!(after(0, 0), Health::fit());
        assert_eq!(after(0, 19), Health::fit(), "too few to say anything");
        assert_eq!(after(1, 0).to_string(), "unfit: 19 of 20 failed, 80 % is the limit", "they were kept");
        assert_eq!(after(1, 1).fitness, Fitness::Unfit, "too few to say anything else");
        assert_eq!(after(58, 40).fitness, Fitness::Unwell);
        assert_eq!(after(81, 19).fitness, Fitness::Unwell, "not a tenth better yet");
        assert_eq!(after(90, 10), Health::fit());
        assert_eq!(after(0, 100).fitness, Fitness::Unfit);
        assert_eq!(after(0, 0), Health::fit(), "where nothing is done, nothing fails");
    }
}
