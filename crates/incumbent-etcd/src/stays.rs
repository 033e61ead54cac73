//! Where a session may have entries, from memory: its lease is nobody else's, so nobody else makes any.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use incumbent_store::{ElectionName, Held, Incarnation, Token};

/// The entries of one session.
#[derive(Default)]
pub(crate) struct Stays(Mutex<State>);

#[derive(Default)]
struct State {
    /// Those that were answered. An incarnation may come again, a token never does.
    known: BTreeMap<ElectionName, Stay>,
    doubts: BTreeMap<ElectionName, Doubtful>,
}

/// One stay in line.
#[derive(Clone)]
pub(crate) struct Stay {
    pub(crate) held: Held,
    /// What others see in the place of our incarnation.
    pub(crate) seen_as: Incarnation,
    pub(crate) name: Arc<str>,
    /// There may be a record.
    pub(crate) recorded: bool,
}

/// Which enlistment made an entry of ours.
#[allow(clippy::large_enum_variant, reason = "the large one is the usual one, and lives for a moment")]
pub(crate) enum At {
    Known(Stay),
    /// If it has no record, this one, if any.
    Unrecorded(Option<Incarnation>),
}

/// An election with an enlistment that was not answered.
#[derive(Default)]
struct Doubtful {
    /// The one whose entry would have no record. While it is in doubt, all others have one: so it can be told.
    unrecorded: Option<Incarnation>,
    /// It may arrive whenever it likes.
    lasts: bool,
}

impl Stays {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of the state is whole before anything can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An enlistment is about to be sent.
    pub(crate) fn doubt<'a>(&'a self, election: &'a ElectionName) -> Doubt<'a> {
        let mut state = self.lock();
        let alone = !state.doubts.contains_key(election);
        if alone {
            state.doubts.insert(election.clone(), Doubtful::default());
        }
        Doubt { stays: self, election, alone }
    }

    /// An entry of ours may be there that we have not asked for.
    pub(crate) fn suspect(&self, election: &ElectionName) {
        self.lock().doubts.entry(election.clone()).or_default().lasts = true;
    }

    /// What is known of an entry of ours.
    pub(crate) fn at(&self, election: &ElectionName, token: Token) -> At {
        // In one step: what is known now was in doubt before.
        let state = self.lock();
        match state.known.get(election).filter(|stay| stay.held.token == token) {
            Some(stay) => At::Known(stay.clone()),
            None => At::Unrecorded(state.doubts.get(election).and_then(|doubtful| doubtful.unrecorded)),
        }
    }

    pub(crate) fn note(&self, stay: Stay) {
        self.lock().known.insert(stay.held.election.clone(), stay);
    }

    pub(crate) fn known(&self, held: &Held) -> Option<Stay> {
        self.lock().known.get(&held.election).filter(|stay| stay.held == *held).cloned()
    }

    /// It is about to get a record.
    pub(crate) fn note_record(&self, held: &Held) {
        if let Some(stay) = self.lock().known.get_mut(&held.election).filter(|stay| stay.held == *held) {
            stay.recorded = true;
        }
    }

    pub(crate) fn forget(&self, held: &Held) {
        let mut state = self.lock();
        if state.known.get(&held.election).is_some_and(|stay| stay.held == *held) {
            state.known.remove(&held.election);
        }
    }

    /// All elections where we may have entries, these among them. What is on its way is not awaited.
    pub(crate) fn elections(&self, held: &[Held]) -> Vec<ElectionName> {
        let state = self.lock();
        let named = held.iter().map(|held| &held.election);
        let doubtful = state.doubts.iter().filter(|(_, doubt)| doubt.lasts).map(|(election, _)| election);
        let all: BTreeSet<_> = named.chain(state.known.keys()).chain(doubtful).collect();
        all.into_iter().cloned().collect()
    }
}

/// An enlistment on its way. Unless it is settled, it may arrive whenever it likes.
pub(crate) struct Doubt<'a> {
    stays: &'a Stays,
    election: &'a ElectionName,
    /// No other one of this session is in doubt.
    pub(crate) alone: bool,
}

impl Doubt<'_> {
    /// Its entry will have no record: only for one that is alone.
    pub(crate) fn is_unrecorded(&self, incarnation: Incarnation) {
        self.stays.lock().doubts.entry(self.election.clone()).or_default().unrecorded = Some(incarnation);
    }

    /// It was answered.
    pub(crate) fn settle(self) {
        let mut state = self.stays.lock();
        if self.alone
            && let Some(doubtful) = state.doubts.get_mut(self.election)
        {
            doubtful.unrecorded = None;
            if !doubtful.lasts {
                state.doubts.remove(self.election);
            }
        }
        drop(state);
        std::mem::forget(self);
    }
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        self.stays.suspect(self.election);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn election() -> ElectionName {
        ElectionName::new("jobs").unwrap()
    }

    impl Stays {
        fn unrecorded(&self, election: &ElectionName) -> Option<Incarnation> {
            match self.at(election, Token::new(1).unwrap()) {
                At::Known(_) => None,
                At::Unrecorded(incarnation) => incarnation,
            }
        }
    }

    const FIRST: Incarnation = Incarnation::from_bits(1);

    #[test]
    fn an_entry_without_a_record_is_the_only_one_that_could_have_none() {
        let (stays, election) = (Stays::default(), election());
        let first = stays.doubt(&election);
        assert!(first.alone);
        first.is_unrecorded(FIRST);
        let second = stays.doubt(&election);
        assert!(!second.alone, "the first may still arrive");
        drop(first);
        second.settle();
        assert_eq!(stays.unrecorded(&election), Some(FIRST));
        assert!(!stays.doubt(&election).alone);
        assert_eq!(stays.elections(&[]), [election]);
    }

    #[test]
    fn what_was_answered_leaves_nothing_behind() {
        let (stays, election) = (Stays::default(), election());
        let first = stays.doubt(&election);
        first.is_unrecorded(FIRST);
        first.settle();
        assert_eq!(stays.unrecorded(&election), None);
        assert!(stays.elections(&[]).is_empty() && stays.doubt(&election).alone);
    }

    #[test]
    fn one_that_is_lost_stays_in_doubt_when_a_later_one_is_answered() {
        let (stays, election) = (Stays::default(), election());
        let first = stays.doubt(&election);
        let second = stays.doubt(&election);
        first.settle();
        let third = stays.doubt(&election);
        third.is_unrecorded(FIRST);
        drop(second);
        third.settle();
        assert_eq!(stays.elections(&[]), std::slice::from_ref(&election));
        assert_eq!(stays.unrecorded(&election), None);
    }
}
