//! Who made an entry.
//!
//! A session introduces itself once, in one step with an entry: it has a key of its own for that, which lives as long
//! as its lease. From then on an entry under that name needs nothing beside it, which saves the servers half of their
//! writes. What tells its stay in line from others is made of the introduction and the entry's token.
//!
//! A record beside the entry says what the introduction does not: another name, the readiness for a handover, or which
//! of several enlistments made it, where one that was not answered may still arrive.
//!
//! An introduction never changes, and is there before the first entry that needs it. So it is remembered; and an entry
//! that has neither when both are looked for in one step is another library's.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use etcd_client::{KeyValue, TxnOp};
use incumbent_store::record::CandidateRecord;
use incumbent_store::{ElectionName, Entry, Incarnation, NewEntry, StoreError, Token};

use crate::answer::{self, Answer};
use crate::keys;
use crate::store::Inner;

/// How many are remembered.
const MOST: usize = 4096;
/// So many are read along with a line. Few entries have a record; where more do, or where there are more sessions, the
/// one that matters is asked for by name when it is met first.
const RECORDS: i64 = 8;
const INTRODUCTIONS: i64 = 16;

/// What those said who were met: by the last part of their keys.
#[derive(Debug, Default)]
pub(crate) struct Introductions(Mutex<HashMap<Vec<u8>, Met>>);

#[derive(Clone, Debug)]
enum Met {
    Introduced(CandidateRecord),
    /// The entry that was created then is another library's.
    Foreign(i64),
}

impl Introductions {
    fn lock(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Met>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers what was found where an introduction would be. `entry` was seen in the same step, with no record.
    pub(crate) fn note(&self, suffix: &[u8], entry: &KeyValue, found: Option<&KeyValue>) {
        let introduction = found.and_then(|found| CandidateRecord::decode(found.value()));
        let mut all = self.lock();
        // Whoever has introduced itself did so for good, whatever somebody has deleted since.
        if introduction.is_none() && matches!(all.get(suffix), Some(Met::Introduced(_))) {
            return;
        }
        if all.len() >= MOST {
            all.clear();
        }
        let met = introduction.map_or(Met::Foreign(entry.create_revision()), Met::Introduced);
        all.insert(suffix.to_vec(), met);
    }

    fn author(&self, suffix: &[u8], token: Token) -> Author {
        match self.lock().get(suffix) {
            Some(Met::Introduced(said)) => {
                let incarnation = stay_of(said.incarnation, token);
                Author::Ours(CandidateRecord { incarnation, name: said.name.clone(), ready: None })
            }
            Some(Met::Foreign(created)) if *created == answer::revision(token) => Author::Foreign,
            Some(Met::Foreign(_)) | None => Author::Unknown,
        }
    }
}

/// What tells an entry of an introduced session from every other.
pub(crate) fn stay_of(session: Incarnation, token: Token) -> Incarnation {
    Incarnation::from_bits(session.to_bits() ^ u128::from(token.get()))
}

/// Who made an entry, and what it says.
enum Author {
    Ours(CandidateRecord),
    Foreign,
    Unknown,
}

impl Author {
    fn said(self) -> Option<CandidateRecord> {
        match self {
            Author::Ours(said) => Some(said),
            Author::Foreign | Author::Unknown => None,
        }
    }
}

/// The records that were found in an election.
pub(crate) struct Records {
    pub(crate) found: Vec<KeyValue>,
    /// Not all that there are.
    pub(crate) cut: bool,
}

/// What a key in a line is.
#[allow(clippy::large_enum_variant, reason = "the large one is the usual one, and lives for a moment")]
pub(crate) enum Seen {
    Entry(Entry),
    /// An entry, but whose has to be asked.
    Unknown,
    /// It is in the line of an election with a longer name.
    Elsewhere,
}

impl Inner {
    /// What to read along with a line.
    pub(crate) fn to_know_whose(&self, election: &ElectionName) -> [TxnOp; 2] {
        let (records, introductions) = (self.keys.records(election), self.keys.introductions());
        [answer::some(records, RECORDS), answer::some(introductions, INTRODUCTIONS)]
    }

    /// A key of a line, by what the answer goes on with.
    pub(crate) fn whose(
        &self,
        election: &ElectionName,
        kv: &KeyValue,
        answer: &mut Answer,
    ) -> Result<Seen, StoreError> {
        let records = answer.next_records()?;
        let (found, cut) = answer.next_cut()?;
        if let Some(suffix) = self.keys.suffix(election, kv.key()) {
            let key = self.keys.introduction(suffix);
            let introduction = found.iter().find(|kv| kv.key() == key);
            if introduction.is_some() || !cut {
                self.introductions.note(suffix, kv, introduction);
            }
        }
        self.seen(election, kv, &records)
    }

    /// An entry that was read, along with all that may be said about it. It is there, whoever made it and whatever was
    /// remembered or forgotten meanwhile: memory only adds a name.
    pub(crate) fn read_entry(
        &self,
        suffix: &[u8],
        kv: &KeyValue,
        record: Option<&KeyValue>,
        introduction: Option<&KeyValue>,
    ) -> Result<Entry, StoreError> {
        let token = answer::token_of(kv)?;
        self.introductions.note(suffix, kv, introduction);
        let said = record.and_then(|record| record_of(kv, record)).or_else(|| {
            let said = introduction.and_then(|introduction| CandidateRecord::decode(introduction.value()));
            match said {
                Some(said) => Some(CandidateRecord { incarnation: stay_of(said.incarnation, token), ..said }),
                None => self.introductions.author(suffix, token).said(),
            }
        });
        Ok(answer::entry(keys::id_of(suffix, token), token, kv, said))
    }

    /// A key of a line, as others see it.
    pub(crate) fn seen(&self, election: &ElectionName, kv: &KeyValue, records: &Records) -> Result<Seen, StoreError> {
        let Some(suffix) = self.keys.suffix(election, kv.key()) else { return Ok(Seen::Elsewhere) };
        let token = answer::token_of(kv)?;
        let record_key = self.keys.record(election, suffix);
        let record = records.found.iter().find(|record| record.key() == record_key);
        let author = match record.and_then(|record| record_of(kv, record)) {
            Some(record) => Author::Ours(record),
            None if records.cut && record.is_none() => Author::Unknown,
            None => self.introductions.author(suffix, token),
        };
        let said = match author {
            Author::Ours(said) => Some(said),
            Author::Foreign => None,
            Author::Unknown => return Ok(Seen::Unknown),
        };
        Ok(Seen::Entry(answer::entry(keys::id_of(suffix, token), token, kv, said)))
    }
}

/// What the record says about this entry; one that cannot be read, or that is about another entry, says nothing.
///
/// Records are written in one step with the entry, or while it is there: one that is older than the entry is about
/// another, which somebody deleted from outside.
pub(crate) fn record_of(entry: &KeyValue, record: &KeyValue) -> Option<CandidateRecord> {
    if record.mod_revision() < entry.create_revision() {
        return None;
    }
    CandidateRecord::decode(record.value())
}

/// What a session has said of itself.
#[derive(Default)]
pub(crate) struct Introduction(Mutex<Own>);

#[derive(Default)]
struct Own {
    /// Made with the first entry, and never another one.
    words: Option<CandidateRecord>,
    state: Said,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Said {
    #[default]
    No,
    /// Two in one transaction would be refused.
    OnItsWay,
    Yes,
}

/// How a new entry says whose it is.
pub(crate) enum Manner<'a> {
    /// In a record of its own.
    Record,
    /// The session has introduced itself.
    Introduced(Incarnation),
    /// The session introduces itself along with it.
    Introducing(Saying<'a>),
}

/// An introduction on its way. Dropped, it was not said.
pub(crate) struct Saying<'a> {
    own: &'a Introduction,
    pub(crate) words: CandidateRecord,
}

impl Introduction {
    fn lock(&self) -> MutexGuard<'_, Own> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn manner(&self, entry: &NewEntry) -> Manner<'_> {
        let mut own = self.lock();
        let first = || CandidateRecord { incarnation: entry.incarnation, name: entry.name.clone(), ready: None };
        let words = own.words.get_or_insert_with(first).clone();
        match own.state {
            _ if words.name != entry.name => Manner::Record,
            Said::Yes => Manner::Introduced(words.incarnation),
            Said::OnItsWay => Manner::Record,
            Said::No => {
                own.state = Said::OnItsWay;
                drop(own);
                Manner::Introducing(Saying { own: self, words })
            }
        }
    }

    /// What was said, or is about to be.
    pub(crate) fn words(&self) -> Option<CandidateRecord> {
        self.lock().words.clone()
    }

    /// What was said, and should be there.
    pub(crate) fn said(&self) -> Option<CandidateRecord> {
        let own = self.lock();
        own.words.clone().filter(|_| own.state == Said::Yes)
    }
}

impl Saying<'_> {
    /// It has been written.
    pub(crate) fn said(self) {
        self.own.lock().state = Said::Yes;
    }
}

impl Drop for Saying<'_> {
    fn drop(&mut self) {
        let mut own = self.own.lock();
        if own.state == Said::OnItsWay {
            own.state = Said::No;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u128, name: &str) -> NewEntry {
        NewEntry { incarnation: Incarnation::from_bits(number), name: name.into(), value: "value".into() }
    }

    #[test]
    fn a_session_introduces_itself_once_it_has_been_heard() {
        let own = Introduction::default();
        let Manner::Introducing(lost) = own.manner(&entry(1, "a")) else { panic!("nobody knows it") };
        assert!(matches!(own.manner(&entry(2, "a")), Manner::Record), "while it is on its way");
        assert_eq!(own.said(), None);
        drop(lost);
        let Manner::Introducing(again) = own.manner(&entry(3, "a")) else { panic!("it was lost") };
        assert_eq!(again.words.incarnation, Incarnation::from_bits(1), "and never says anything else");
        let words = again.words.clone();
        again.said();
        assert_eq!(own.said(), Some(words));
        assert!(matches!(own.manner(&entry(4, "a")), Manner::Introduced(first) if first == Incarnation::from_bits(1)));
        assert!(matches!(own.manner(&entry(5, "b")), Manner::Record), "another name");
    }

    #[test]
    fn each_stay_of_a_session_is_told_from_its_others() {
        let session = Incarnation::from_bits(u128::MAX / 3);
        let stay = |token| stay_of(session, Token::new(token).unwrap());
        assert_ne!(stay(1), stay(2));
        assert_ne!(stay(1), session);
        assert_eq!(stay(7), stay(7));
    }
}
