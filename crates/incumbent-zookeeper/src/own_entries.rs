//! The entries that a session has made, or may have made.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use incumbent_store::{ElectionName, Held, Incarnation, Token, Version};

use crate::paths::parse_id;

/// The entries of one session, by election.
#[derive(Debug, Default)]
pub(crate) struct OwnEntries(Mutex<BTreeMap<ElectionName, Vec<OwnEntry>>>);

/// An entry that this session has made, or may have made.
#[derive(Clone, Debug)]
pub(crate) struct OwnEntry {
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
    pub(crate) fn begin<'a>(&'a self, election: &'a ElectionName, entry: OwnEntry) -> PendingEnlistment<'a> {
        let incarnation = entry.incarnation;
        self.lock().entry(election.clone()).or_default().push(entry);
        PendingEnlistment { entries: self, election, incarnation }
    }

    /// `None`: there is no such entry.
    pub(crate) fn set_state(&self, election: &ElectionName, incarnation: Incarnation, state: Option<EntryState>) {
        let mut entries = self.lock();
        let Some(of_election) = entries.get_mut(election) else { return };
        let ours = |entry: &&mut OwnEntry| entry.incarnation == incarnation;
        match state {
            Some(state) => of_election.iter_mut().filter(ours).for_each(|entry| entry.state = state.clone()),
            None => of_election.retain(|entry| entry.incarnation != incarnation),
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
        // Every change is whole before anything can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An enlistment on its way. Unless it is settled, it may arrive whenever it likes.
pub(crate) struct PendingEnlistment<'a> {
    entries: &'a OwnEntries,
    election: &'a ElectionName,
    incarnation: Incarnation,
}

impl PendingEnlistment<'_> {
    pub(crate) fn settle(self, state: Option<EntryState>) {
        self.entries.set_state(self.election, self.incarnation, state);
        std::mem::forget(self);
    }
}

impl Drop for PendingEnlistment<'_> {
    fn drop(&mut self) {
        self.entries.set_state(self.election, self.incarnation, Some(EntryState::Doubtful));
    }
}
