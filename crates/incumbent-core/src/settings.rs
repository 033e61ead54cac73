//! The times that everything else follows from, and the arithmetic that says whether they can be
//! safe.

use std::fmt;
use std::time::Duration;

use crate::policy::Policy;
use crate::standing::Liveness;

/// A lost hint and a failed call must not cost more for a longer TTL: that says how long a dead
/// leader may stay, no more.
const LONGEST_UNTIL_REREAD: Duration = Duration::from_secs(30);
const LONGEST_REST: Duration = Duration::from_secs(5);

/// The longest time that anybody may ask for or wait: a year. Longer ones are slips of the hand,
/// and overflow clocks.
pub const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// The times of a session and of the terms that it carries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// How long a session outlives its last proof of life.
    pub ttl: Duration,
    /// How long the work of a leader may take to stop.
    pub grace: Duration,
    /// The grace is the usual share of the TTL and not what somebody asked for: where a store
    /// grants a shorter TTL, it is a share of that.
    pub grace_is_share: bool,
    /// How often the session is renewed.
    pub renew_every: Duration,
    /// How far this host's clock may be off the store's, in parts per million of the time that
    /// passes.
    pub drift_ppm: u32,
    /// Taken off every deadline, for what the arithmetic does not know (scheduling, the store's
    /// granularity).
    pub margin: Duration,
    /// How often a candidate looks again although nothing told it to: hints get lost.
    pub reread_every: Duration,
    pub(crate) policy: Policy,
}

impl Settings {
    /// Settings for a TTL, with the usual shares of it: renewed every third, a fifth for the grace
    /// (3 s of 15 s).
    pub fn for_ttl(ttl: Duration) -> Settings {
        Settings {
            ttl,
            grace: ttl / 5,
            grace_is_share: true,
            renew_every: ttl / 3,
            drift_ppm: 1_000,
            margin: ttl / 50,
            reread_every: ttl.saturating_mul(2).min(LONGEST_UNTIL_REREAD),
            policy: Policy::SOUND,
        }
    }

    /// How long the last leader has to say late that its work has stopped before that is done from
    /// outside: it hears of its end with a renewal, its work may take the grace, and its closing
    /// some round trips.
    pub fn fence_delay(&self) -> Duration {
        self.grace + self.renew_every * 2
    }

    /// The same, with known-bad rules.
    #[cfg(feature = "flaws")]
    pub fn with_policy(self, policy: Policy) -> Settings {
        Settings { policy, ..self }
    }

    /// The longest rest after calls that failed.
    pub(crate) fn longest_rest(&self) -> Duration {
        (self.renew_every / 2).min(LONGEST_REST)
    }

    /// The settings of a session that a store has granted: with the TTL in force, renewals and a
    /// grace that fit it, and the store's own margin. They are checked.
    pub fn granted(&self, liveness: &Liveness) -> Result<Settings, SettingsError> {
        let usual = Settings::for_ttl(liveness.ttl);
        let granted = Settings {
            ttl: liveness.ttl,
            grace: if self.grace_is_share { self.grace.min(usual.grace) } else { self.grace },
            renew_every: self.renew_every.min(usual.renew_every),
            margin: self.margin.saturating_add(liveness.margin),
            ..*self
        };
        match granted.check() {
            Ok(()) => Ok(granted),
            Err(SettingsError::Unsafe(shortfall)) => Err(SettingsError::Granted { asked: self.ttl, shortfall }),
            Err(error) => Err(error),
        }
    }

    /// Refuses settings under which a leader could not renew twice before it has to stop its work.
    pub fn check(&self) -> Result<(), SettingsError> {
        if self.renew_every.is_zero() || self.reread_every.is_zero() {
            return Err(SettingsError::ZeroInterval);
        }
        if self.drift_ppm >= 500_000 {
            return Err(SettingsError::Drift { ppm: self.drift_ppm });
        }
        if self.ttl > LONGEST {
            return Err(SettingsError::TooLong { ttl: self.ttl });
        }
        let lasts = shrink(self.ttl, self.drift_ppm);
        let spent = self.margin.saturating_add(self.grace).saturating_add(self.renew_every.saturating_mul(2));
        if lasts < spent {
            return Err(SettingsError::Unsafe(Shortfall {
                ttl: self.ttl,
                lasts,
                margin: self.margin,
                grace: self.grace,
                renew_every: self.renew_every,
                short_by: spent - lasts,
            }));
        }
        Ok(())
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings::for_ttl(Duration::from_secs(15))
    }
}

/// The part of `duration` that has surely passed on another clock when all of it has passed on
/// ours.
pub(crate) fn shrink(duration: Duration, drift_ppm: u32) -> Duration {
    duration - scaled(duration, drift_ppm)
}

/// What has to pass on our clock so that `duration` has surely passed on another.
pub fn stretch(duration: Duration, drift_ppm: u32) -> Duration {
    duration + scaled(duration, drift_ppm)
}

fn scaled(duration: Duration, ppm: u32) -> Duration {
    let nanos = duration.as_nanos().saturating_mul(u128::from(ppm)) / 1_000_000;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).min(duration)
}

/// Why settings are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// An interval of zero would never rest.
    #[error("an interval is zero: renewals and re-reads need time between them")]
    ZeroInterval,
    /// The drift is out of range.
    #[error("a drift of {ppm} ppm leaves nothing of the TTL: at most 499999 are allowed")]
    Drift {
        /// The drift that was asked for.
        ppm: u32,
    },
    /// The TTL is longer than [`LONGEST`].
    #[error("a TTL of {} days is too long: a leader that falls silent is replaced after that time; at most {} are allowed",
        .ttl.as_secs() / 86_400, LONGEST.as_secs() / 86_400)]
    TooLong {
        /// The TTL that was asked for.
        ttl: Duration,
    },
    /// A leader could not renew twice before it has to stop its work.
    #[error("these settings cannot be safe: {0}; raise the TTL, or lower the grace or the renewal interval")]
    Unsafe(Shortfall),
    /// The same, with the TTL that the store grants and what its granularity takes of it.
    #[error(
        "these settings cannot be safe with this store: a TTL of {asked:?} was asked for, and {:?} granted; {shortfall}; {}",
        .shortfall.ttl, advice(*.asked, .shortfall)
    )]
    Granted {
        /// The TTL asked for.
        asked: Duration,
        /// The arithmetic, with the TTL that was granted.
        shortfall: Shortfall,
    },
}

/// A longer TTL does not help where the store grants no longer one.
fn advice(asked: Duration, shortfall: &Shortfall) -> &'static str {
    if shortfall.ttl < asked {
        "the store's own limit is the reason: raise that, or lower the grace"
    } else {
        "the store's own granularity is part of the margin: raise the TTL, or lower the grace or the renewal interval"
    }
}

/// Why a TTL is too short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Shortfall {
    /// The TTL.
    pub ttl: Duration,
    /// What drift leaves of it.
    pub lasts: Duration,
    /// The margin: the one asked for and, in a session, the store's own.
    pub margin: Duration,
    /// The grace asked for.
    pub grace: Duration,
    /// The renewal interval.
    pub renew_every: Duration,
    /// By how much the TTL is too short.
    pub short_by: Duration,
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shortfall { ttl, lasts, margin, grace, renew_every, short_by } = self;
        write!(
            f,
            "a TTL of {ttl:?} lasts {lasts:?} after clock drift, but margin {margin:?} + grace {grace:?} + two renewals \
             of {renew_every:?} need {short_by:?} more"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_shares_are_safe_for_every_ttl() {
        for ms in [1, 10, 100, 2_000, 15_000, 3_600_000] {
            Settings::for_ttl(Duration::from_millis(ms)).check().unwrap();
        }
    }

    #[test]
    fn a_long_ttl_makes_nobody_wait_longer_for_a_lost_hint_or_after_a_failed_call() {
        let (day, short) = (Settings::for_ttl(Duration::from_secs(86_400)), Settings::for_ttl(Duration::from_secs(3)));
        assert_eq!((day.reread_every, day.longest_rest()), (LONGEST_UNTIL_REREAD, LONGEST_REST));
        assert_eq!((short.reread_every, short.longest_rest()), (Duration::from_secs(6), Duration::from_millis(500)));
    }

    #[test]
    fn times_without_measure_are_refused_with_a_sentence() {
        let long = Settings::for_ttl(Duration::MAX).check().unwrap_err();
        assert_eq!(long, SettingsError::TooLong { ttl: Duration::MAX });
        assert!(long.to_string().contains("at most 365"), "{long}");
        Settings::for_ttl(LONGEST).check().unwrap();
        let usual = Settings::default();
        for settings in [
            Settings { grace: Duration::MAX, ..usual },
            Settings { margin: Duration::MAX, ..usual },
            Settings { grace: Duration::MAX, margin: Duration::MAX, renew_every: Duration::MAX, ..usual },
        ] {
            let error = settings.check().unwrap_err();
            assert!(matches!(error, SettingsError::Unsafe(_)), "{error}");
        }
    }

    #[test]
    fn settings_that_leave_no_room_for_two_renewals_are_refused_with_the_arithmetic() {
        let settings = Settings { grace: Duration::from_secs(6), ..Settings::default() };
        let error = settings.check().unwrap_err();
        assert!(matches!(error, SettingsError::Unsafe { .. }));
        let text = error.to_string();
        for part in ["15s", "14.985s", "300ms", "6s", "5s", "1.315s"] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
    }

    #[test]
    fn with_a_store_the_refusal_says_what_was_asked_for_what_was_granted_and_whose_limit_it_is() {
        let seconds = Duration::from_secs;
        let refusal = |grace, ttl, margin| {
            let asked = Settings { grace: seconds(grace), grace_is_share: false, ..Settings::for_ttl(seconds(60)) };
            asked.granted(&Liveness { margin: seconds(margin), ..Liveness::new(seconds(ttl)) }).unwrap_err().to_string()
        };
        let less = refusal(12, 40, 2);
        assert!(less.contains("a TTL of 60s was asked for, and 40s granted"), "{less}");
        assert!(less.contains("the store's own limit") && !less.contains("raise the TTL"), "{less}");
        let coarse = refusal(12, 62, 20);
        assert!(coarse.contains("a TTL of 60s was asked for, and 62s granted"), "{coarse}");
        assert!(coarse.contains("the store's own granularity") && coarse.contains("raise the TTL"), "{coarse}");
    }

    #[test]
    fn a_grace_that_nobody_asked_for_is_a_share_of_the_ttl_that_is_granted() {
        let seconds = Duration::from_secs;
        let liveness = |ttl| Liveness { margin: seconds(2), ..Liveness::new(seconds(ttl)) };
        let asked = Settings::for_ttl(seconds(60));
        let granted = asked.granted(&liveness(40)).unwrap();
        assert_eq!((granted.ttl, granted.grace, granted.renew_every), (seconds(40), seconds(8), seconds(40) / 3));
        assert_eq!(asked.granted(&liveness(62)).unwrap().grace, seconds(12), "more time to stop than was shown");
        let wanted = Settings { grace: seconds(9), grace_is_share: false, ..asked };
        assert_eq!(wanted.granted(&liveness(40)).unwrap().grace, seconds(9));
    }

    #[test]
    fn drift_shortens_our_own_time_and_lengthens_what_we_wait_for_others() {
        let ttl = Duration::from_secs(10);
        assert_eq!(shrink(ttl, 1_000), Duration::from_millis(9_990));
        assert_eq!(stretch(ttl, 1_000), Duration::from_millis(10_010));
    }
}
