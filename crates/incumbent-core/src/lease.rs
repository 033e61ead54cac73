//! When may I believe that my session lives? The deadline arithmetic, and nothing else.

use std::collections::VecDeque;
use std::time::Duration;

use crate::settings::{Settings, shrink};
use crate::standing::{Liveness, Proof};
use crate::time::Timestamp;

/// Where renewals come so fast that more than these may yet be proven, some prove nothing.
const MOST: usize = 64;

/// What the answered renewals of one session prove.
///
/// `deadline = sent_at + ttl_granted * (1 - drift) - margin`. `sent_at` is read before the attempt
/// that is proven: the store counts from some moment after it, so it can never forget us before the
/// deadline.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Lease {
    settings: Settings,
    proof: Proof,
    margin: Duration,
    /// The first is the one that counts, if it is proven; the others were answered since.
    renewals: VecDeque<Answered>,
    /// Whether the first of them is proven.
    proven: bool,
    deadline: Timestamp,
}

/// A renewal that was answered, or the opening.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Answered {
    sent_at: Timestamp,
    at: Timestamp,
    ttl_granted: Duration,
}

impl Lease {
    /// The lease of a session whose opening was sent at `sent_at` and answered at `answered_at`.
    pub fn opened(settings: &Settings, liveness: &Liveness, sent_at: Timestamp, answered_at: Timestamp) -> Lease {
        let opening = Answered { sent_at, at: answered_at, ttl_granted: liveness.ttl };
        let mut lease = Lease {
            settings: *settings,
            proof: liveness.proof,
            margin: settings.margin + liveness.margin,
            renewals: VecDeque::from([opening]),
            proven: !matches!(liveness.proof, Proof::Earlier { opening_proves: false, .. }),
            deadline: Timestamp::ZERO,
        };
        lease.count();
        lease
    }

    /// A renewal that was sent at `sent_at` has been answered with this TTL. Older ones than the
    /// newest prove nothing.
    pub fn renewed(&mut self, sent_at: Timestamp, answered_at: Timestamp, ttl_granted: Duration) {
        if self.newest().is_some_and(|newest| sent_at <= newest.sent_at) {
            return;
        }
        match self.proof {
            Proof::Answered => self.renewals.clear(),
            Proof::Earlier { apart, .. } => self.prove_older(sent_at, apart),
        }
        self.renewals.push_back(Answered { sent_at, at: answered_at, ttl_granted });
        self.count();
    }

    /// From now on the session counts with this TTL at most, also what was answered before.
    pub fn shorten(&mut self, ttl: Duration) {
        self.renewals.iter_mut().for_each(|renewal| renewal.ttl_granted = renewal.ttl_granted.min(ttl));
        self.count();
    }

    /// Until when the store cannot have forgotten us.
    pub fn deadline(&self) -> Timestamp {
        self.deadline
    }

    /// From when on another renewal proves one that is not proven yet.
    pub fn proves_more_from(&self) -> Timestamp {
        match (self.proof, self.newest()) {
            (Proof::Earlier { apart, .. }, Some(newest)) => newest.at + apart,
            _ => Timestamp::ZERO,
        }
    }

    fn newest(&self) -> Option<&Answered> {
        self.renewals.back()
    }

    /// The newest that was answered `apart` before `sent_at` is what an answer to that proves.
    fn prove_older(&mut self, sent_at: Timestamp, apart: Duration) {
        let is_proven = |renewal: &Answered| renewal.at + apart <= sent_at;
        while self.renewals.get(1).is_some_and(is_proven) {
            self.renewals.pop_front();
        }
        self.proven |= self.renewals.front().is_some_and(is_proven);
        if self.renewals.len() == MOST
            && let Some(forgotten) = self.renewals.remove(1)
            && let Some(next) = self.renewals.get_mut(1)
        {
            next.ttl_granted = next.ttl_granted.min(forgotten.ttl_granted);
        }
    }

    /// Counts with the smallest TTL since the renewal that is proven: any of them may be in force.
    fn count(&mut self) {
        let ttl = self.renewals.iter().map(|renewal| renewal.ttl_granted).min();
        if let (Some(proven), Some(ttl), true) = (self.renewals.front(), ttl, self.proven) {
            let ttl = self.settings.policy.ttl(self.settings.ttl, ttl);
            self.deadline = proven.sent_at + shrink(ttl, self.settings.drift_ppm) - self.margin;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::standing::ForgottenBy;

    const SECOND: Duration = Duration::from_secs(1);
    const TTL: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + SECOND * seconds as u32
    }

    fn at_millis(millis: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(millis)
    }

    fn settings() -> Settings {
        Settings { drift_ppm: 0, margin: SECOND, ..Settings::for_ttl(TTL) }
    }

    fn liveness(proof: Proof) -> Liveness {
        Liveness { ttl: TTL, forgotten_by: ForgottenBy::Store, proof, margin: Duration::ZERO, rest: Duration::ZERO }
    }

    /// A lease whose opening was sent and answered at 100 s.
    fn lease(proof: Proof) -> Lease {
        Lease::opened(&settings(), &liveness(proof), at(100), at(100))
    }

    fn earlier(opening_proves: bool) -> Proof {
        Proof::Earlier { apart: SECOND, opening_proves }
    }

    /// The deadline after a renewal that was answered as soon as it was sent.
    fn renewed(lease: &mut Lease, millis: u64) -> Timestamp {
        lease.renewed(at_millis(millis), at_millis(millis), TTL);
        lease.deadline()
    }

    #[test]
    fn the_deadline_counts_from_when_the_renewal_was_sent_with_the_ttl_that_was_granted() {
        let mut lease = lease(Proof::Answered);
        assert_eq!(lease.deadline(), at(109));
        lease.renewed(at(103), at(104), SECOND * 20);
        assert_eq!(lease.deadline(), at(122));
    }

    #[test]
    fn a_shorter_grant_brings_the_deadline_forward() {
        let mut lease = lease(Proof::Answered);
        lease.renewed(at(101), at(101), SECOND * 4);
        assert_eq!(lease.deadline(), at(104));
    }

    #[test]
    fn an_older_answer_that_comes_late_or_twice_proves_nothing() {
        let mut lease = lease(Proof::Answered);
        lease.renewed(at(105), at(106), TTL);
        lease.renewed(at(103), at(107), SECOND * 30);
        lease.renewed(at(105), at(108), SECOND * 30);
        assert_eq!(lease.deadline(), at(114));
    }

    #[test]
    fn where_an_answer_proves_only_the_renewal_before_the_deadline_lags_by_one() {
        let mut lease = lease(earlier(true));
        assert_eq!(lease.deadline(), at(109), "the opening proves itself");
        assert_eq!(renewed(&mut lease, 103_000), at(109), "counts from the opening");
        assert_eq!(renewed(&mut lease, 106_000), at(112), "counts from the first renewal");
    }

    #[test]
    fn renewals_that_follow_each_other_too_soon_prove_an_older_one() {
        let mut lease = lease(earlier(true));
        assert_eq!(renewed(&mut lease, 105_000), at(109));
        assert_eq!(renewed(&mut lease, 105_100), at(109), "that of 105.0 is not proven yet");
        assert_eq!(renewed(&mut lease, 105_900), at(109));
        assert_eq!(renewed(&mut lease, 106_050), at(114), "that of 105.0 is, and that of 105.1 is not");
        assert_eq!(renewed(&mut lease, 109_000), at_millis(115_050));
    }

    #[test]
    fn what_counts_is_how_long_the_older_one_has_been_answered_not_sent() {
        let mut lease = lease(earlier(true));
        lease.renewed(at(102), at(105), TTL);
        assert_eq!(renewed(&mut lease, 105_900), at(109), "it may have arrived just before its answer came");
        assert_eq!(renewed(&mut lease, 106_000), at(111));
    }

    #[test]
    fn an_opening_that_proves_nothing_is_proven_by_the_first_renewal_that_is_late_enough() {
        let mut lease = lease(earlier(false));
        assert_eq!(lease.deadline(), Timestamp::ZERO);
        assert_eq!(lease.proves_more_from(), at(101));
        assert_eq!(renewed(&mut lease, 100_900), Timestamp::ZERO, "too soon");
        assert_eq!(renewed(&mut lease, 101_000), at(109), "the opening is proven");
    }

    #[test]
    fn the_smallest_ttl_since_the_one_that_is_proven_counts() {
        let mut lease = lease(earlier(true));
        lease.renewed(at(102), at(102), SECOND * 5);
        assert_eq!(lease.deadline(), at(104), "it may have been in force since the opening was heard");
        lease.renewed(at(104), at(104), TTL);
        assert_eq!(lease.deadline(), at(106), "it was in force when the one that is proven was heard");
        lease.renewed(at(106), at(106), TTL);
        assert_eq!(lease.deadline(), at(113));
    }

    #[test]
    fn a_lease_that_is_shortened_counts_with_the_shorter_ttl_from_the_last_proof() {
        let mut lease = lease(earlier(true));
        renewed(&mut lease, 103_000);
        renewed(&mut lease, 106_000);
        lease.shorten(SECOND * 6);
        assert_eq!(lease.deadline(), at(108));
        lease.shorten(SECOND * 30);
        assert_eq!(lease.deadline(), at(108), "never longer");
        lease.shorten(Duration::ZERO);
        assert_eq!(lease.deadline(), at(102), "over");
    }

    #[test]
    fn a_flood_of_renewals_is_forgotten_but_for_the_one_that_is_proven_and_the_smallest_ttl() {
        let mut lease = lease(earlier(true));
        renewed(&mut lease, 105_000);
        lease.renewed(at_millis(105_001), at_millis(105_001), SECOND * 6);
        for millis in 2..990 {
            assert_eq!(renewed(&mut lease, 105_000 + millis), at(105));
        }
        assert!(lease.renewals.len() <= MOST);
    }

    #[test]
    fn drift_and_the_stores_own_margin_shorten_it() {
        let settings = Settings { drift_ppm: 100_000, ..settings() };
        let liveness = Liveness { margin: SECOND * 2, ..liveness(Proof::Answered) };
        assert_eq!(Lease::opened(&settings, &liveness, at(100), at(100)).deadline(), at(100 + 9 - 3));
    }
}
