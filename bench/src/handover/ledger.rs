//! What the resource has taken, and when.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use incumbent::store::fence::Mark;
use incumbent::{FenceError, FencingToken};
use incumbent_testkit::resource::RAISE;

/// One write that was taken.
#[derive(Clone, Copy, Debug)]
struct Taken {
    at: Instant,
    id: u64,
    token: u64,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    mark: Option<Mark>,
    taken: Vec<Taken>,
    refused: usize,
}

impl Ledger {
    /// Raises the mark, or takes a write, unless the token is older. It keeps no write from being
    /// taken again: to count these is what it is for.
    pub(super) fn answer(&mut self, what: &str, token: &FencingToken) -> Result<(), FenceError> {
        let admitted = Mark::admit(self.mark.as_ref(), token);
        if what != RAISE {
            let id = what.strip_prefix("write ").and_then(|id| id.parse().ok()).expect("a write and its number");
            match &admitted {
                Ok(_) => self.taken.push(Taken { at: Instant::now(), id, token: token.get() }),
                Err(_) => self.refused += 1,
            }
        }
        self.mark = Some(admitted?);
        Ok(())
    }

    /// The last write's. Zero if there is none.
    pub(super) fn token(&self) -> u64 {
        self.taken.last().map_or(0, |taken| taken.token)
    }

    /// How many writes it has taken under a higher token.
    pub(super) fn taken_above(&self, token: u64) -> usize {
        self.taken.iter().rev().take_while(|taken| taken.token > token).count()
    }

    /// The longest time between two writes that were taken, of which the later one came after this.
    pub(super) fn longest_gap_since(&self, since: Instant) -> Duration {
        let after = self.taken.iter().rev().take_while(|taken| taken.at > since).count();
        let from = self.taken.len().saturating_sub(after + 1);
        let gaps = self.taken[from..].windows(2).map(|pair| pair[1].at - pair[0].at);
        gaps.max().unwrap_or_default()
    }

    pub(super) fn terms(&self) -> usize {
        self.taken.iter().map(|taken| taken.token).collect::<BTreeSet<_>>().len()
    }

    pub(super) fn twice(&self) -> usize {
        self.taken.len() - self.ids().len()
    }

    /// How many are missing of the writes from the first one to this.
    pub(super) fn lost(&self, last: u64) -> usize {
        let ids = self.ids();
        (1..=last).filter(|id| !ids.contains(id)).count()
    }

    pub(super) fn refused(&self) -> usize {
        self.refused
    }

    fn ids(&self) -> BTreeSet<u64> {
        self.taken.iter().map(|taken| taken.id).collect()
    }
}

#[cfg(test)]
mod tests {
    use incumbent::{StoreId, Token};

    use super::*;

    #[test]
    fn a_gap_is_counted_from_the_last_write_before_the_order_and_is_the_longest() {
        let began = Instant::now();
        let at = |millis| began + Duration::from_millis(millis);
        let taken = [0, 50, 53, 54, 64, 66].map(|millis| Taken { at: at(millis), id: 1, token: 1 });
        let ledger = Ledger { taken: taken.to_vec(), ..Ledger::default() };
        assert_eq!(ledger.longest_gap_since(at(54)), Duration::from_millis(10));
        assert_eq!(ledger.longest_gap_since(at(1)), Duration::from_millis(50));
        assert_eq!(ledger.longest_gap_since(at(66)), Duration::ZERO);
    }

    #[test]
    fn what_is_taken_twice_or_missing_or_refused_is_counted() {
        let mut ledger = Ledger::default();
        let mut ask = |what: &str, number| {
            let token = FencingToken::new(Token::new(number).unwrap(), StoreId::new("a-store"));
            ledger.answer(what, &token)
        };
        for (what, token) in [("write 1", 1), (RAISE, 2), ("write 2", 2), ("write 2", 2), ("write 4", 2)] {
            ask(what, token).unwrap();
        }
        assert!(matches!(ask("write 3", 1), Err(FenceError::Stale { .. })));
        assert_eq!((ledger.twice(), ledger.lost(4), ledger.refused(), ledger.terms()), (1, 1, 1, 2));
        assert_eq!((ledger.token(), ledger.taken_above(1), ledger.taken_above(2)), (2, 3, 0));
    }
}
