//! How long to wait before the next try: doubling, with jitter, and never past the time that
//! remains.

use std::time::Duration;

use crate::rng::Rng;
use crate::time::Timestamp;

/// Failures in a row, and when to try again.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
    until: Option<Timestamp>,
}

impl Backoff {
    /// Notes a failure. `longest` bounds the wait, `remaining` the time in which trying still
    /// helps.
    pub(crate) fn failed(&mut self, now: Timestamp, rng: &mut Rng, longest: Duration, remaining: Option<Duration>) {
        let first = longest / 64;
        let doubled = first.saturating_mul(1 << self.failures.min(6));
        // A quarter of what remains leaves room for several tries before it is too late; once it
        // is, there is no hurry.
        let bound = remaining.filter(|left| !left.is_zero()).map_or(longest, |left| longest.min(left / 4));
        self.failures = self.failures.saturating_add(1);
        self.until = Some(now + rng.jitter(doubled.min(bound).max(first)));
    }

    pub(crate) fn succeeded(&mut self) {
        *self = Backoff::default();
    }

    /// Whether it is too early to try. Forgets the wait once it is over, so that it asks for no
    /// more wake-ups.
    pub(crate) fn resting(&mut self, now: Timestamp) -> bool {
        if self.until.is_some_and(|until| now >= until) {
            self.until = None;
        }
        self.until.is_some()
    }

    pub(crate) fn until(&self) -> Option<Timestamp> {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_the_bound_and_stay_within_the_time_that_remains() {
        let mut rng = Rng::from_number(1);
        let longest = Duration::from_secs(2);
        let mut backoff = Backoff::default();
        let now = Timestamp::ZERO;
        let mut waits = Vec::new();
        for _ in 0..20 {
            backoff.failed(now, &mut rng, longest, None);
            waits.push(backoff.until().unwrap().since(now));
        }
        assert!(waits[0] <= longest / 64);
        assert!(waits[19] >= longest / 2 && waits.iter().all(|wait| *wait <= longest));
        backoff.failed(now, &mut rng, longest, Some(Duration::from_millis(400)));
        assert!(backoff.until().unwrap().since(now) <= Duration::from_millis(100));
        backoff.failed(now, &mut rng, longest, Some(Duration::ZERO));
        assert!(backoff.until().unwrap().since(now) >= longest / 2, "too late already: no hot loop");
    }

    #[test]
    fn a_success_starts_again_from_the_shortest_wait() {
        let mut rng = Rng::from_number(1);
        let mut backoff = Backoff::default();
        for _ in 0..9 {
            backoff.failed(Timestamp::ZERO, &mut rng, Duration::from_secs(1), None);
        }
        backoff.succeeded();
        assert!(!backoff.resting(Timestamp::ZERO));
        backoff.failed(Timestamp::ZERO, &mut rng, Duration::from_secs(1), None);
        assert!(backoff.until().unwrap() <= Timestamp::ZERO + Duration::from_secs(1) / 64);
    }
}
