//! The times of a consensus group, and the arithmetic that says whether they can be safe.

use std::time::Duration;

use crate::peers::policy::ConsensusPolicy;

/// The times of one member. Members may differ: each says in its acknowledgements how long its
/// promise lasts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct ConsensusSettings {
    /// How long a member that hears a leader refuses to vote for another: the promise that the
    /// lease lives on. Also the shortest silence after which it asks for an election.
    pub election_min: Duration,
    /// The longest silence after which a member asks for an election; each draws between the two.
    /// Must be the largest that any member uses: it is how long a restarted member abstains.
    pub election_max: Duration,
    /// How often a leader sends a heartbeat, and a candidate repeats its requests.
    pub heartbeat: Duration,
    /// How far any member's clock may be off true time, in parts per million of the time that
    /// passes.
    pub drift_ppm: u32,
    /// Taken off every deadline, for what the arithmetic does not know (scheduling).
    pub margin: Duration,
    /// How long the work of a leader may take to stop.
    pub grace: Duration,
    /// Whether a member asks first whether it would win, so that one that was cut off does not
    /// depose a leader when it comes back. Nothing that must always be true depends on it.
    pub pre_vote: bool,
    /// Whether the application has records whose [`Position`](super::Position) restricts who may be
    /// elected.
    pub positions: bool,
    pub(crate) policy: ConsensusPolicy,
}

impl ConsensusSettings {
    /// The same, with known-bad rules.
    #[cfg(feature = "flaws")]
    pub fn with_policy(self, policy: ConsensusPolicy) -> ConsensusSettings {
        ConsensusSettings { policy, ..self }
    }

    /// Refuses settings under which a leader could not miss a heartbeat, or members would vote in
    /// step.
    pub fn check(&self) -> Result<(), ConsensusSettingsError> {
        if self.heartbeat.is_zero() {
            return Err(ConsensusSettingsError::ZeroHeartbeat);
        }
        if self.drift_ppm >= 500_000 {
            return Err(ConsensusSettingsError::Drift { ppm: self.drift_ppm });
        }
        if self.election_max <= self.election_min {
            return Err(ConsensusSettingsError::NoSpread { min: self.election_min, max: self.election_max });
        }
        let lasts = self.lease_of(self.election_min);
        let spent = self.margin.saturating_add(self.grace).saturating_add(self.heartbeat.saturating_mul(2));
        if lasts < spent {
            return Err(ConsensusSettingsError::Unsafe {
                election_min: self.election_min,
                lasts,
                margin: self.margin,
                grace: self.grace,
                heartbeat: self.heartbeat,
                short_by: spent - lasts,
            });
        }
        Ok(())
    }

    /// How long a leader may count on a promise, by its own clock: `promise * (1 - drift) / (1 +
    /// drift)`.
    ///
    /// The follower's clock may be fast, so that its promise is over early, and the leader's slow,
    /// so that it notices late.
    pub fn lease_of(&self, promise: Duration) -> Duration {
        let ppm = if self.policy.counts_drift() { u128::from(self.drift_ppm.min(999_999)) } else { 0 };
        let nanos = promise.as_nanos().saturating_mul(1_000_000 - ppm) / (1_000_000 + ppm);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl Default for ConsensusSettings {
    fn default() -> ConsensusSettings {
        ConsensusSettings {
            election_min: Duration::from_millis(1_500),
            election_max: Duration::from_millis(3_000),
            heartbeat: Duration::from_millis(250),
            drift_ppm: 1_000,
            margin: Duration::from_millis(50),
            grace: Duration::from_millis(500),
            pre_vote: true,
            positions: false,
            policy: ConsensusPolicy::SOUND,
        }
    }
}

/// Why settings are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ConsensusSettingsError {
    /// Heartbeats need time between them.
    #[error("the heartbeat interval is zero: heartbeats need time between them")]
    ZeroHeartbeat,
    /// The drift is out of range.
    #[error("a drift of {ppm} ppm leaves too little of any promise: at most 499999 are allowed")]
    Drift {
        /// The drift that was asked for.
        ppm: u32,
    },
    /// All members would stand at the same moment, again and again.
    #[error(
        "election timeouts from {min:?} to {max:?} leave nothing to draw from: the largest must exceed the smallest"
    )]
    NoSpread {
        /// The smallest timeout.
        min: Duration,
        /// The largest timeout.
        max: Duration,
    },
    /// A leader could not miss a heartbeat before it has to stop its work.
    #[error(
        "these settings cannot be safe: an election timeout of at least {election_min:?} gives a lease of {lasts:?} after clock drift, but margin \
         {margin:?} + grace {grace:?} + two heartbeats of {heartbeat:?} need {short_by:?} more; raise the smallest election timeout, or lower the \
         grace or the heartbeat interval"
    )]
    Unsafe {
        /// The smallest election timeout asked for.
        election_min: Duration,
        /// What drift leaves of it.
        lasts: Duration,
        /// The margin asked for.
        margin: Duration,
        /// The grace asked for.
        grace: Duration,
        /// The heartbeat interval asked for.
        heartbeat: Duration,
        /// By how much the timeout is too short.
        short_by: Duration,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_safe() {
        ConsensusSettings::default().check().unwrap();
    }

    #[test]
    fn a_lease_too_short_for_a_missed_heartbeat_is_refused_with_the_arithmetic() {
        let settings = ConsensusSettings { drift_ppm: 0, grace: Duration::from_secs(1), ..Default::default() };
        let text = settings.check().unwrap_err().to_string();
        for part in ["1.5s", "50ms", "1s", "250ms", "need 50ms more"] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
    }

    #[test]
    fn equal_timeouts_no_rest_and_mad_clocks_are_refused() {
        let base = ConsensusSettings::default();
        let equal = ConsensusSettings { election_max: base.election_min, ..base };
        assert!(matches!(equal.check(), Err(ConsensusSettingsError::NoSpread { .. })));
        let restless = ConsensusSettings { heartbeat: Duration::ZERO, ..base };
        assert_eq!(restless.check(), Err(ConsensusSettingsError::ZeroHeartbeat));
        let mad = ConsensusSettings { drift_ppm: 500_000, ..base };
        assert_eq!(mad.check(), Err(ConsensusSettingsError::Drift { ppm: 500_000 }));
    }

    #[test]
    fn a_lease_is_over_on_a_slow_clock_before_the_promise_is_on_a_fast_one() {
        let settings = ConsensusSettings { drift_ppm: 100_000, ..Default::default() };
        let promise = Duration::from_secs(11);
        // True seconds: the promise lasts 11 / 1.1 = 10, the lease of 9 lasts 9 / 0.9 = 10.
        assert_eq!(settings.lease_of(promise), Duration::from_secs(9));
    }
}
