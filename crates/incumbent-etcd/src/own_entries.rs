//! When a renewal has to ask the lease for its keys: it costs a request, and is needed only when
//! the session may have an entry that no candidacy knows of. What is remembered here decides
//! nothing else.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use incumbent_store::{EntryId, Held};

/// How many renewals still ask after an enlistment was not answered: 80 s with the default TTL,
/// less with a shorter one. It may be on its way for as long as an unused connection takes to end,
/// which is tens of seconds.
const RENEWALS: u32 = 16;

/// The entries that a session knows itself to have, and whether there may be more.
#[derive(Default)]
pub(crate) struct OwnEntries(Mutex<State>);

#[derive(Default)]
struct State {
    /// Those that an answer told of, and that were not withdrawn.
    told: BTreeSet<EntryId>,
    renewals_left: u32,
}

impl OwnEntries {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of the state is whole before anything can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An enlistment is about to be sent.
    pub(crate) fn enlistment(&self) -> Unanswered<'_> {
        Unanswered(self)
    }

    /// An answer told of this entry.
    pub(crate) fn add(&self, entry: &EntryId) {
        self.lock().told.insert(entry.clone());
    }

    /// It is certainly gone.
    pub(crate) fn remove(&self, entry: &EntryId) {
        self.lock().told.remove(entry);
    }

    /// Whether there may be others than `held`, and which of them were told of.
    pub(crate) fn beside(&self, held: &[Held]) -> Option<BTreeSet<EntryId>> {
        let state = self.lock();
        let named: BTreeSet<_> = held.iter().map(|held| &held.entry).collect();
        let unnamed: BTreeSet<_> = state.told.iter().filter(|entry| !named.contains(entry)).cloned().collect();
        (state.renewals_left > 0 || !unnamed.is_empty()).then_some(unnamed)
    }

    /// The lease was asked, and these are there beside the ones that were held.
    pub(crate) fn asked(&self, unnamed: &BTreeSet<EntryId>, found: &[Held]) {
        let mut state = self.lock();
        if found.is_empty() {
            state.renewals_left = state.renewals_left.saturating_sub(1);
        }
        for entry in unnamed {
            if !found.iter().any(|held| held.entry == *entry) {
                state.told.remove(entry);
            }
        }
    }
}

/// An enlistment on its way. Unless it is answered, it may still arrive at any time.
pub(crate) struct Unanswered<'a>(&'a OwnEntries);

impl Unanswered<'_> {
    /// What became of it is known.
    pub(crate) fn answered(self) {
        std::mem::forget(self);
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.0.lock().renewals_left = RENEWALS;
    }
}

#[cfg(test)]
mod tests {
    use incumbent_store::{ElectionName, Incarnation, Token};

    use super::*;

    fn held(entry: &str) -> Held {
        Held {
            election: ElectionName::new("jobs").unwrap(),
            entry: EntryId::new(entry),
            token: Token::new(1).unwrap(),
            incarnation: Incarnation::from_bits(1),
        }
    }

    #[test]
    fn nobody_asks_while_every_enlistment_was_answered_and_every_entry_is_named() {
        let own = OwnEntries::default();
        own.enlistment().answered();
        own.add(&EntryId::new("a"));
        assert_eq!(own.beside(&[held("a")]), None);
        assert_eq!(own.beside(&[]), Some([EntryId::new("a")].into()), "nobody speaks for it");
        own.remove(&EntryId::new("a"));
        assert_eq!(own.beside(&[]), None);
    }

    #[test]
    fn one_that_was_not_answered_is_looked_for_a_while_and_not_for_ever() {
        let own = OwnEntries::default();
        drop(own.enlistment());
        for _ in 0..RENEWALS {
            let unnamed = own.beside(&[]).expect("it may still arrive");
            own.asked(&unnamed, &[]);
        }
        assert_eq!(own.beside(&[]), None);
        drop(own.enlistment());
        for _ in 0..2 * RENEWALS {
            let unnamed = own.beside(&[]).expect("there are some to sweep");
            own.asked(&unnamed, &[held("stray")]);
        }
        assert!(own.beside(&[]).is_some());
    }

    #[test]
    fn what_somebody_else_has_removed_is_asked_for_once() {
        let own = OwnEntries::default();
        own.add(&EntryId::new("evicted"));
        let unnamed = own.beside(&[]).unwrap();
        own.asked(&unnamed, &[]);
        assert_eq!(own.beside(&[]), None);
    }
}
