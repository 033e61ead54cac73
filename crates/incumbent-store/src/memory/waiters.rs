//! Who waits for what. It knows nothing of elections: what was touched comes in, whom to wake comes
//! out.
//!
//! A waiter is found by what it waits for, so that waking costs as much as there are waiters to
//! wake: of ten thousand followers, the one that follows the entry that left.

use std::collections::btree_map::BTreeMap;
use std::collections::hash_map::{Entry, HashMap};
use std::collections::{BTreeSet, btree_map};
use std::task::Waker;

use incumbent_core::ElectionName;

use super::table::Touch;

/// One armed watch. Numbers are not reused, and grow: those who wait longest are woken first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct WaiterId(u64);

#[derive(Debug, Default)]
pub(super) struct Waiters {
    next: u64,
    rows: BTreeMap<WaiterId, Row>,
    waiting: HashMap<(ElectionName, Touch), Waiting>,
}

#[derive(Debug)]
struct Row {
    election: ElectionName,
    touches: Vec<Touch>,
    /// Set by the first poll.
    waker: Option<Waker>,
}

/// Most entries are followed by one candidate: only the office and the head have a crowd.
#[derive(Debug)]
enum Waiting {
    One(WaiterId),
    #[expect(clippy::box_collection, reason = "there are many of one, and few of these")]
    Many(Box<BTreeSet<WaiterId>>),
}

impl Waiters {
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Waits for any of `touches`.
    pub(super) fn arm(&mut self, election: &ElectionName, touches: Vec<Touch>) -> WaiterId {
        self.next += 1;
        let id = WaiterId(self.next);
        for touch in &touches {
            match self.waiting.entry((election.clone(), touch.clone())) {
                Entry::Vacant(vacant) => drop(vacant.insert(Waiting::One(id))),
                Entry::Occupied(mut occupied) => occupied.get_mut().add(id),
            }
        }
        self.rows.insert(id, Row { election: election.clone(), touches, waker: None });
        id
    }

    /// Swaps the waker that is kept with another; `false` if the waiter has been released.
    ///
    /// Wakers come out, here and below, so that they are dropped after the lock is open again:
    /// dropping one may drop a whole task, and with it a session or a watch, which takes the lock.
    pub(super) fn swap_waker(&mut self, id: WaiterId, waker: &mut Option<Waker>) -> bool {
        let Some(row) = self.rows.get_mut(&id) else { return false };
        std::mem::swap(&mut row.waker, waker);
        true
    }

    /// Removes a waiter.
    pub(super) fn disarm(&mut self, id: WaiterId) -> Option<Waker> {
        self.take(id)?.waker
    }

    /// Removes all who wait for this and adds their wakers. Answers how many they were: one that
    /// was never polled has no waker.
    pub(super) fn release(&mut self, touched: (ElectionName, Touch), wakers: &mut Vec<Waker>) -> u64 {
        let released: Vec<_> = match self.waiting.get(&touched) {
            None => return 0,
            Some(Waiting::One(id)) => vec![*id],
            Some(Waiting::Many(ids)) => ids.iter().copied().collect(),
        };
        wakers.extend(released.iter().filter_map(|id| self.disarm(*id)));
        released.len() as u64
    }

    fn take(&mut self, id: WaiterId) -> Option<Row> {
        let btree_map::Entry::Occupied(row) = self.rows.entry(id) else { return None };
        let row = row.remove();
        for touch in &row.touches {
            if let Entry::Occupied(mut waiting) = self.waiting.entry((row.election.clone(), touch.clone()))
                && waiting.get_mut().is_empty_without(id)
            {
                waiting.remove();
            }
        }
        Some(row)
    }
}

impl Waiting {
    fn add(&mut self, id: WaiterId) {
        match self {
            Waiting::One(first) if *first == id => {}
            Waiting::One(first) => *self = Waiting::Many(Box::new(BTreeSet::from([*first, id]))),
            Waiting::Many(ids) => drop(ids.insert(id)),
        }
    }

    fn is_empty_without(&mut self, id: WaiterId) -> bool {
        match self {
            Waiting::One(first) => *first == id,
            Waiting::Many(ids) => {
                ids.remove(&id);
                ids.is_empty()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use incumbent_core::EntryId;

    use super::*;

    fn election(name: &str) -> ElectionName {
        ElectionName::new(name).unwrap()
    }

    fn gone(id: &str) -> Touch {
        Touch::Gone(EntryId::new(id))
    }

    #[test]
    fn only_those_who_wait_for_what_was_touched_are_released() {
        let mut waiters = Waiters::default();
        let first = waiters.arm(&election("a"), vec![gone("1"), Touch::Office]);
        let second = waiters.arm(&election("a"), vec![gone("2"), Touch::Office]);
        let elsewhere = waiters.arm(&election("b"), vec![gone("1"), Touch::Office]);
        let mut wakers = Vec::new();
        let waker = || Some(Waker::noop().clone());
        assert!(waiters.swap_waker(first, &mut waker()));
        assert_eq!(waiters.release((election("a"), gone("1")), &mut wakers), 1);
        assert_eq!(wakers.len(), 1);
        assert!(!waiters.swap_waker(first, &mut waker()), "it was released");
        assert!(waiters.swap_waker(second, &mut waker()));
        assert!(waiters.swap_waker(elsewhere, &mut waker()));
    }

    #[test]
    fn a_waiter_that_left_leaves_nothing_behind() {
        let mut waiters = Waiters::default();
        let many: Vec<_> = (0..3).map(|_| waiters.arm(&election("a"), vec![Touch::Head, Touch::Head])).collect();
        for id in many {
            waiters.disarm(id);
            waiters.disarm(id);
        }
        assert_eq!(waiters.len(), 0);
        assert!(waiters.waiting.is_empty());
    }

    #[test]
    fn a_crowd_is_released_at_once_and_in_the_order_it_came() {
        let mut waiters = Waiters::default();
        for _ in 0..100 {
            waiters.arm(&election("a"), vec![Touch::Office]);
        }
        assert_eq!(waiters.release((election("a"), Touch::Office), &mut Vec::new()), 100);
        assert_eq!(waiters.release((election("a"), Touch::Office), &mut Vec::new()), 0);
        assert!(waiters.waiting.is_empty());
    }
}
