//! When may I believe that my session lives? The deadline arithmetic, and nothing else.

use std::time::Duration;

use crate::flaw::Flaw;
use crate::settings::{Settings, shrink};
use crate::standing::{Liveness, Proof};
use crate::time::Timestamp;

/// What the answered renewals of one session prove.
///
/// `deadline = sent_at + ttl_granted * (1 - drift) - margin`. `sent_at` is read before the attempt that was
/// answered: the store counts from some moment after it, so it can never forget us before the deadline.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Lease {
    settings: Settings,
    proof: Proof,
    margin: Duration,
    newest_sent_at: Timestamp,
    deadline: Timestamp,
}

impl Lease {
    /// The lease of a session whose opening was sent at `sent_at`.
    pub fn opened(settings: &Settings, liveness: &Liveness, sent_at: Timestamp) -> Lease {
        let mut lease = Lease {
            settings: *settings,
            proof: liveness.proof,
            margin: settings.margin + liveness.margin,
            newest_sent_at: sent_at,
            deadline: Timestamp::ZERO,
        };
        lease.deadline = lease.deadline_from(sent_at, liveness.ttl);
        lease
    }

    /// A renewal that was sent at `sent_at` has been answered with this TTL. Older ones than the newest prove nothing.
    pub fn renewed(&mut self, sent_at: Timestamp, ttl_granted: Duration) {
        if sent_at <= self.newest_sent_at {
            return;
        }
        let counts_from = match self.proof {
            Proof::Answered => sent_at,
            Proof::OneBefore => self.newest_sent_at,
        };
        self.newest_sent_at = sent_at;
        self.deadline = self.deadline_from(counts_from, ttl_granted);
    }

    /// Until when the store cannot have forgotten us.
    pub fn deadline(&self) -> Timestamp {
        self.deadline
    }

    fn deadline_from(&self, sent_at: Timestamp, ttl_granted: Duration) -> Timestamp {
        let flawed = self.settings.flaws.has(Flaw::TtlAsAsked);
        let ttl = if flawed { self.settings.ttl } else { ttl_granted };
        sent_at + shrink(ttl, self.settings.drift_ppm) - self.margin
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::standing::ForgottenBy;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + SECOND * seconds as u32
    }

    fn settings() -> Settings {
        Settings { drift_ppm: 0, margin: SECOND, ..Settings::for_ttl(SECOND * 10) }
    }

    fn liveness(proof: Proof) -> Liveness {
        Liveness {
            ttl: SECOND * 10,
            forgotten_by: ForgottenBy::Store,
            proof,
            margin: Duration::ZERO,
            rest: Duration::ZERO,
        }
    }

    #[test]
    fn the_deadline_counts_from_when_the_renewal_was_sent_with_the_ttl_that_was_granted() {
        let mut lease = Lease::opened(&settings(), &liveness(Proof::Answered), at(100));
        assert_eq!(lease.deadline(), at(109));
        lease.renewed(at(103), SECOND * 20);
        assert_eq!(lease.deadline(), at(122));
    }

    #[test]
    fn a_shorter_grant_brings_the_deadline_forward() {
        let mut lease = Lease::opened(&settings(), &liveness(Proof::Answered), at(100));
        lease.renewed(at(101), SECOND * 4);
        assert_eq!(lease.deadline(), at(104));
    }

    #[test]
    fn an_older_answer_that_comes_late_or_twice_proves_nothing() {
        let mut lease = Lease::opened(&settings(), &liveness(Proof::Answered), at(100));
        lease.renewed(at(105), SECOND * 10);
        lease.renewed(at(103), SECOND * 30);
        lease.renewed(at(105), SECOND * 30);
        assert_eq!(lease.deadline(), at(114));
    }

    #[test]
    fn where_an_answer_proves_only_the_renewal_before_the_deadline_lags_by_one() {
        let mut lease = Lease::opened(&settings(), &liveness(Proof::OneBefore), at(100));
        lease.renewed(at(103), SECOND * 10);
        assert_eq!(lease.deadline(), at(109), "counts from the opening");
        lease.renewed(at(106), SECOND * 10);
        assert_eq!(lease.deadline(), at(112), "counts from the first renewal");
    }

    #[test]
    fn drift_and_the_stores_own_margin_shorten_it() {
        let settings = Settings { drift_ppm: 100_000, ..settings() };
        let liveness = Liveness { margin: SECOND * 2, ..liveness(Proof::Answered) };
        assert_eq!(Lease::opened(&settings, &liveness, at(100)).deadline(), at(100 + 9 - 3));
    }
}
