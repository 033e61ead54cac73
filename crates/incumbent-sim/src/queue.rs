//! What is going to happen in a world: ordered by global time, and then by when it was put there.

use std::collections::BTreeMap;

/// A moment in nanoseconds of global time, and the order in which things of that moment came.
pub(crate) type When = (u64, u64);

#[derive(Debug)]
pub(crate) struct Queue<T> {
    pending: BTreeMap<When, T>,
    order: u64,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Queue<T> {
        Queue { pending: BTreeMap::new(), order: 0 }
    }

    pub(crate) fn push(&mut self, at: u64, what: T) -> When {
        self.order += 1;
        self.pending.insert((at, self.order), what);
        (at, self.order)
    }

    /// What happens next, and when.
    pub(crate) fn pop(&mut self) -> Option<(u64, T)> {
        self.pending.pop_first().map(|((at, _), what)| (at, what))
    }

    pub(crate) fn remove(&mut self, when: When) {
        self.pending.remove(&when);
    }
}
