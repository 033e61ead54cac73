//! The entries that a session has made, or may have made.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use incumbent_store::{ElectionName, Held, Incarnation, Token, Version, lock};

use crate::paths::parse_id;

/// The entries of one session, by election.
#[derive(Debug, Default)]
pub(crate) struct OwnEntries {
    by_election: Mutex<BTreeMap<ElectionName, Vec<OwnEntry>>>,
    begun: AtomicU64,
}

/// An entry that this session has made, or may have made.
#[derive(Clone, Debug)]
pub(crate) struct OwnEntry {
    /// Which enlistment of this session: one that is repeated keeps its incarnation, and what was
    /// seen of the first says nothing of the second.
    pub(crate) number: u64,
    pub(crate) incarnation: Incarnation,
    /// The candidate's name.
    pub(crate) name: Arc<str>,
    /// The candidate's record beside its entry, its value included. Empty where that is in the
    /// entry.
    pub(crate) record: Arc<[u8]>,
    /// How often it was about to publish something.
    pub(crate) publications: u64,
    pub(crate) state: EntryState,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum EntryState {
    /// The request is on its way, and somebody waits for the answer.
    Sent,
    /// Nobody waits any more, and nobody knows.
    Doubtful,
    /// The node's name.
    Known(String, Token),
}

impl OwnEntries {
    pub(crate) fn all(&self) -> BTreeMap<ElectionName, Vec<OwnEntry>> {
        self.lock().clone()
    }

    pub(crate) fn of(&self, election: &ElectionName) -> Vec<OwnEntry> {
        self.lock().get(election).cloned().unwrap_or_default()
    }

    /// An enlistment is about to be sent.
    pub(crate) fn begin<'a>(
        &'a self,
        election: &'a ElectionName,
        incarnation: Incarnation,
        name: Arc<str>,
        record: Arc<[u8]>,
    ) -> PendingEnlistment<'a> {
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let entry = OwnEntry { number, incarnation, name, record, publications: 0, state: EntryState::Sent };
        self.lock().entry(election.clone()).or_default().push(entry);
        PendingEnlistment { entries: self, election, number }
    }

    /// `None`: there is no such entry.
    pub(crate) fn set_state(&self, election: &ElectionName, number: u64, state: Option<EntryState>) {
        let mut entries = self.lock();
        let Some(of_election) = entries.get_mut(election) else { return };
        match state {
            Some(state) => {
                if let Some(entry) = of_election.iter_mut().find(|entry| entry.number == number) {
                    entry.state = state;
                }
            }
            None => of_election.retain(|entry| entry.number != number),
        }
        if of_election.is_empty() {
            entries.remove(election);
        }
    }

    /// The entry of ours that `held` speaks of: nobody acts on another session's entries.
    pub(crate) fn get(&self, held: &Held) -> Option<OwnEntry> {
        self.with(held, |entry| entry.clone())
    }

    /// The entry, which is about to publish something, if it has published as much before as the
    /// caller knows of.
    pub(crate) fn publish(&self, held: &Held, was: Version) -> Option<OwnEntry> {
        self.with(held, |entry| {
            (entry.publications == was.0).then(|| {
                entry.publications += 1;
                entry.clone()
            })
        })?
    }

    /// What stands beside the entry from now on.
    pub(crate) fn set_record(&self, held: &Held, record: &[u8]) {
        _ = self.with(held, |entry| entry.record = record.into());
    }

    fn with<T>(&self, held: &Held, act: impl FnOnce(&mut OwnEntry) -> T) -> Option<T> {
        let (name, token) = parse_id(&held.entry).filter(|(_, token)| *token == held.token)?;
        let state = EntryState::Known(name.to_owned(), token);
        self.lock().get_mut(&held.election)?.iter_mut().find(|entry| entry.state == state).map(act)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ElectionName, Vec<OwnEntry>>> {
        lock(&self.by_election)
    }
}

/// An enlistment on its way. Unless it is settled, it may arrive whenever it likes.
pub(crate) struct PendingEnlistment<'a> {
    entries: &'a OwnEntries,
    election: &'a ElectionName,
    number: u64,
}

impl PendingEnlistment<'_> {
    pub(crate) fn settle(self, state: Option<EntryState>) {
        self.entries.set_state(self.election, self.number, state);
        std::mem::forget(self);
    }
}

impl Drop for PendingEnlistment<'_> {
    fn drop(&mut self) {
        self.entries.set_state(self.election, self.number, Some(EntryState::Doubtful));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::id_of;

    /// A renewal has seen an enlistment in doubt, and waits for answers about other elections.
    /// Meanwhile the enlistment is settled (it never arrived), repeated as the same incarnation,
    /// and answered.
    #[test]
    fn what_was_seen_of_an_enlistment_does_not_make_us_forget_the_one_that_repeats_it() {
        let entries = OwnEntries::default();
        let election = ElectionName::new("e").unwrap();
        let incarnation = Incarnation::from_bits(7);
        let begin = || entries.begin(&election, incarnation, "n".into(), [].into());
        drop(begin());
        let seen = entries.of(&election).remove(0);
        assert_eq!(seen.state, EntryState::Doubtful);
        entries.set_state(&election, seen.number, None);
        let token = Token::new(9).unwrap();
        begin().settle(Some(EntryState::Known("n-0000000001".to_owned(), token)));
        let held = Held::new(election.clone(), id_of("n-0000000001", token), token, incarnation);
        entries.set_state(&election, seen.number, None);
        assert!(entries.get(&held).is_some(), "it is in line, and nobody else would take it out");
    }
}
