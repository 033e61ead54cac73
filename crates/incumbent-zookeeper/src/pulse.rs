//! Which renewal does an answered one prove? The arithmetic, and nothing else.
//!
//! Only the ensemble's leader expires sessions, and it hears of the living through the servers they are connected to:
//! each reports whom it has heard from, every half tick. So an answered write proves that the write before it has been
//! reported, but only if there was time for a report between the two: a tick.

use std::collections::VecDeque;
use std::time::Duration;

use incumbent_store::Timestamp;

/// Renewals that come so fast that more than these are within a tick prove the older ones all the same.
const MOST: usize = 64;

/// The answered renewals of a session, the newest last.
#[derive(Debug)]
pub(crate) struct Pulse {
    tick: Duration,
    beats: VecDeque<Timestamp>,
}

impl Pulse {
    /// A session whose opening was sent after `opened_at`. The opening proves itself: it is committed by the leader.
    pub(crate) fn new(tick: Duration, opened_at: Timestamp) -> Pulse {
        Pulse { tick, beats: VecDeque::from([opened_at]) }
    }

    /// A renewal that was sent after `sent_at` has been answered. By how much the renewal before it came too late to be
    /// what is proven: those who count from it have to take this off the TTL.
    pub(crate) fn answered(&mut self, sent_at: Timestamp) -> Duration {
        while self.beats.len() > 1 && self.beats.get(1).is_some_and(|next| *next + self.tick <= sent_at) {
            self.beats.pop_front();
        }
        let proven = self.beats.front().copied().unwrap_or(sent_at);
        let before = self.beats.back().copied().unwrap_or(sent_at);
        if sent_at > before {
            if self.beats.len() == MOST {
                // Not the first: it is the one that is proven.
                self.beats.remove(1);
            }
            self.beats.push_back(sent_at);
        }
        before.since(proven)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(millis)
    }

    fn pulse() -> Pulse {
        Pulse::new(Duration::from_millis(100), at(1000))
    }

    #[test]
    fn renewals_a_tick_apart_prove_the_one_before() {
        let mut pulse = pulse();
        for millis in [1100, 1200, 1500] {
            assert_eq!(pulse.answered(at(millis)), Duration::ZERO, "{millis}");
        }
    }

    #[test]
    fn one_that_follows_too_soon_proves_the_last_that_is_a_tick_older() {
        let mut pulse = pulse();
        assert_eq!(pulse.answered(at(1500)), Duration::ZERO);
        assert_eq!(pulse.answered(at(1510)), Duration::from_millis(500), "1500 is not proven yet: 1000 is");
        assert_eq!(pulse.answered(at(1590)), Duration::from_millis(510));
        assert_eq!(pulse.answered(at(1605)), Duration::from_millis(90), "1500 is, and 1590 is not");
        assert_eq!(pulse.answered(at(2000)), Duration::ZERO);
    }

    #[test]
    fn a_flood_of_renewals_is_forgotten_but_for_the_one_that_is_proven() {
        let mut pulse = pulse();
        pulse.answered(at(2000));
        for millis in 0..90 {
            assert_eq!(pulse.answered(at(2001 + millis)), Duration::from_millis(1000 + millis));
        }
        assert!(pulse.beats.len() <= MOST);
    }
}
