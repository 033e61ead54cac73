//! When a renewal has to ask the lease for its keys: it costs a request, and is needed only when
//! the session may have an entry that no candidacy knows of. What is remembered here decides
//! nothing else.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use incumbent_store::{EntryId, Held, lock};

/// For how long every renewal asks after an enlistment was not answered. It may be on its way for
/// as long as an unused connection takes to end, which is tens of seconds.
const LOOKED_FOR: Duration = Duration::from_secs(80);
/// How many renewals there are to one that asks after that, for as long as the session lives: a
/// network may hold a request back for longer, and a stray entry would block its line for ever.
const RARELY: u32 = 16;

/// The entries that a session knows itself to have, and whether there may be more.
pub(crate) struct OwnEntries {
    /// How many renewals fall into [`LOOKED_FOR`].
    renewals_that_ask: u32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Those that an answer has named and that were not withdrawn.
    known: BTreeSet<EntryId>,
    /// How many renewals there have been since an enlistment was not answered.
    unanswered: Option<u32>,
}

impl OwnEntries {
    /// Of a session with this TTL, which is renewed three times in it.
    pub(crate) fn new(ttl: Duration) -> OwnEntries {
        let renewals = (LOOKED_FOR.as_millis() * 3).div_ceil(ttl.as_millis().max(1));
        OwnEntries { renewals_that_ask: renewals.try_into().unwrap_or(u32::MAX), state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// An enlistment is about to be sent.
    pub(crate) fn enlistment(&self) -> Unanswered<'_> {
        Unanswered(self)
    }

    /// An answer has named this entry.
    pub(crate) fn add(&self, entry: &EntryId) {
        self.lock().known.insert(entry.clone());
    }

    /// It is certainly gone.
    pub(crate) fn remove(&self, entry: &EntryId) {
        self.lock().known.remove(entry);
    }

    /// Once for each renewal: whether there may be others than `held`, and which of them were
    /// named.
    pub(crate) fn beside(&self, held: &[Held]) -> Option<BTreeSet<EntryId>> {
        let mut state = self.lock();
        let named: BTreeSet<_> = held.iter().map(|held| &held.entry).collect();
        let unnamed: BTreeSet<_> = state.known.iter().filter(|entry| !named.contains(entry)).cloned().collect();
        let due = state.unanswered.as_mut().is_some_and(|renewals| {
            *renewals = renewals.saturating_add(1);
            *renewals <= self.renewals_that_ask || renewals.is_multiple_of(RARELY)
        });
        (due || !unnamed.is_empty()).then_some(unnamed)
    }

    /// The lease was asked, and these are there beside the ones that were held.
    pub(crate) fn asked(&self, unnamed: &BTreeSet<EntryId>, found: &[Held]) {
        let mut state = self.lock();
        if !found.is_empty() {
            // Where one has come late, others may.
            state.unanswered = Some(0);
        }
        for entry in unnamed {
            if !found.iter().any(|held| held.entry == *entry) {
                state.known.remove(entry);
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
        self.0.lock().unanswered = Some(0);
    }
}

#[cfg(test)]
mod tests {
    use incumbent_store::{ElectionName, Incarnation, Token};

    use super::*;

    const TTL: Duration = Duration::from_secs(15);

    fn held(entry: &str) -> Held {
        let election = ElectionName::new("jobs").unwrap();
        Held::new(election, EntryId::new(entry), Token::new(1).unwrap(), Incarnation::from_bits(1))
    }

    #[test]
    fn nobody_asks_while_every_enlistment_was_answered_and_every_entry_is_named() {
        let own = OwnEntries::new(TTL);
        own.enlistment().answered();
        own.add(&EntryId::new("a"));
        assert_eq!(own.beside(&[held("a")]), None);
        assert_eq!(own.beside(&[]), Some([EntryId::new("a")].into()), "nobody speaks for it");
        own.remove(&EntryId::new("a"));
        assert_eq!(own.beside(&[]), None);
    }

    #[test]
    fn one_that_was_not_answered_is_looked_for_a_while_and_then_rarely() {
        let own = OwnEntries::new(TTL);
        drop(own.enlistment());
        for _ in 0..own.renewals_that_ask {
            let unnamed = own.beside(&[]).expect("it may still arrive");
            own.asked(&unnamed, &[]);
        }
        let asked = (0..10 * RARELY).filter(|_| own.beside(&[]).is_some()).count();
        assert_eq!(asked, 10, "rarely, but for ever");
        drop(own.enlistment());
        for _ in 0..2 * own.renewals_that_ask {
            let unnamed = own.beside(&[]).expect("there are some to sweep");
            own.asked(&unnamed, &[held("stray")]);
        }
        assert!(own.beside(&[]).is_some());
    }

    #[test]
    fn one_of_a_short_session_is_looked_for_as_long() {
        assert_eq!(OwnEntries::new(TTL).renewals_that_ask, 16);
        assert_eq!(OwnEntries::new(TTL / 15).renewals_that_ask, 240);
    }

    #[test]
    fn what_somebody_else_has_removed_is_asked_for_once() {
        let own = OwnEntries::new(TTL);
        own.add(&EntryId::new("evicted"));
        let unnamed = own.beside(&[]).unwrap();
        own.asked(&unnamed, &[]);
        assert_eq!(own.beside(&[]), None);
    }
}
