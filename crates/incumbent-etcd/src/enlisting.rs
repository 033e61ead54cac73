//! Entering a line.

use std::sync::atomic::Ordering;

use etcd_client::{Compare, CompareOp, KeyValue, TxnOp};
use incumbent_store::record::CandidateRecord;
use incumbent_store::{
    ElectionName, Held, Incarnation, NewEntry, Office, Place, Standing, StoreError, check_candidate_name, check_value,
};

use crate::answer::{self, Answer, Header, created};
use crate::batch::Step;
use crate::introductions::{Manner, Seen, record_of, stay_of};
use crate::session::EtcdSession;
use crate::stays::{At, Stay};

impl EtcdSession {
    pub(crate) async fn enlist(&self, election: &ElectionName, entry: &NewEntry) -> Result<Standing, StoreError> {
        check_candidate_name(&entry.name)?;
        check_value(&entry.value)?;
        if self.expects_nobody.load(Ordering::Relaxed)
            && let Some(standing) = self.enlist_first(election, entry).await?
        {
            return Ok(standing);
        }
        let wrote = self.write_entry(election, entry, |puts| self.enlistment(election, puts)).await?;
        match self.enlisted(election, entry, wrote)? {
            Enlisted::Stands(standing) => Ok(standing),
            Enlisted::LookFor(held) => self.standing(&held).await,
            Enlisted::Behind(held, ahead) => self.standing_from(&held, &ahead).await,
            Enlisted::Blocked(held, why) => {
                self.withdraw(&held, None).await?;
                Err(why)
            }
        }
    }

    /// Those who found nobody in line last time often find nobody again: then all that is to be read is known, and
    /// less is asked of the servers. `None`: somebody is there, or an office record; nothing was written.
    async fn enlist_first(&self, election: &ElectionName, entry: &NewEntry) -> Result<Option<Standing>, StoreError> {
        let keys = &self.store.keys;
        let nothing = |(start, end)| Compare::create_revision(start, CompareOp::Equal, 0).with_range(end);
        let guards = vec![nothing(keys.line(election)), nothing(keys.all_own(election))];
        let step = |puts| Step { guards, then: puts, otherwise: vec![] };
        let Wrote { answer, held } = self.write_entry(election, entry, step).await?;
        let Some(held) = held else {
            self.expects_nobody.store(false, Ordering::Relaxed);
            return Ok(None);
        };
        Ok(Some(Standing { place: Place::Leading(held), office: Office::default(), cursor: answer.header.cursor() }))
    }

    /// A write that may make us an entry, by what it puts. Unless it is answered, it may arrive at any time.
    async fn write_entry(
        &self,
        election: &ElectionName,
        entry: &NewEntry,
        step: impl FnOnce(Vec<TxnOp>) -> Step,
    ) -> Result<Wrote, StoreError> {
        let doubt = self.stays.doubt(election);
        let manner = if doubt.alone { self.introduction.manner(entry) } else { Manner::Record };
        if !matches!(manner, Manner::Record) {
            doubt.is_unrecorded(entry.incarnation);
        }
        let puts = self.puts(election, entry, &manner);
        let put = puts.len();
        let wrote = match self.write("enlisting", election, step(puts), entry.value.len()).await {
            Ok(mut answer) if answer.succeeded => {
                (0..put).for_each(|_| answer.skip());
                let held = self.stands(election, entry, answer.header, manner)?;
                Ok(Wrote { answer, held: Some(held) })
            }
            Ok(answer) => Ok(Wrote { answer, held: None }),
            Err(unknown @ StoreError::OutcomeUnknown { .. }) => return Err(unknown),
            Err(error) => Err(error),
        };
        // Not before it is known: there is no moment in which an entry that is there is nobody's.
        doubt.settle();
        wrote
    }

    fn puts(&self, election: &ElectionName, entry: &NewEntry, manner: &Manner<'_>) -> Vec<TxnOp> {
        let keys = &self.store.keys;
        let put = |key, value| TxnOp::put(key, value, self.attached());
        let entry_put = put(keys.entry(election, &self.suffix), entry.value.to_vec());
        match manner {
            Manner::Introduced(_) => vec![entry_put],
            Manner::Introducing(saying) => {
                vec![entry_put, put(keys.introduction(&self.suffix), saying.words.encode())]
            }
            Manner::Record => {
                let record = CandidateRecord { incarnation: entry.incarnation, name: entry.name.clone(), ready: None };
                vec![entry_put, put(keys.record(election, &self.suffix), record.encode())]
            }
        }
    }

    /// One transaction: put, unless there is an entry, and see who is ahead.
    fn enlistment(&self, election: &ElectionName, puts: Vec<TxnOp>) -> Step {
        let keys = &self.store.keys;
        let key = keys.entry(election, &self.suffix);
        let mut then = puts;
        then.extend([answer::newest(keys.line(election), None, 2), answer::all(keys.office_range(election))]);
        then.extend(self.store.to_know_whose(election));
        Step {
            guards: vec![created(&key, 0)],
            then,
            otherwise: vec![answer::look(key), answer::get(keys.record(election, &self.suffix))],
        }
    }

    fn enlisted(&self, election: &ElectionName, entry: &NewEntry, wrote: Wrote) -> Result<Enlisted, StoreError> {
        let Wrote { mut answer, held } = wrote;
        let Some(held) = held else {
            return self.already(election, entry, answer.next_one()?, answer.next_one()?);
        };
        let mut line = answer.next_found()?;
        let office = answer::office(&self.store.keys, election, &answer.next_found()?)?;
        let cursor = answer.header.cursor();
        // The newest is our own.
        let ahead = line.drain(..).nth(1);
        self.expects_nobody.store(ahead.is_none(), Ordering::Relaxed);
        let Some(ahead) = ahead else {
            return Ok(Enlisted::Stands(Standing { place: Place::Leading(held), office, cursor }));
        };
        match self.store.whose(election, &ahead, &mut answer)? {
            Seen::Elsewhere => Ok(Enlisted::LookFor(held)),
            _ if ahead.lease() == 0 => Ok(Enlisted::Blocked(held, answer::leaseless(&ahead))),
            Seen::Entry(ahead) => {
                let place = Place::Behind { held: Some(held), ahead, look_again: None };
                Ok(Enlisted::Stands(Standing { place, office, cursor }))
            }
            Seen::Unknown => Ok(Enlisted::Behind(held, ahead)),
        }
    }

    /// Our key is taken.
    fn already(
        &self,
        election: &ElectionName,
        entry: &NewEntry,
        found: Option<KeyValue>,
        record: Option<KeyValue>,
    ) -> Result<Enlisted, StoreError> {
        let found = found.ok_or_else(|| StoreError::Foreign { what: "a refusal without a reason".to_owned() })?;
        let (held, stay) = self.stay(election, &found, record.as_ref())?;
        match stay {
            Some(stay) if held.incarnation == entry.incarnation && found.lease() == self.lease => {
                self.stays.note(stay);
                Ok(Enlisted::LookFor(held))
            }
            _ => {
                self.stays.suspect(election);
                Err(StoreError::AlreadyInLine(held))
            }
        }
    }

    /// An entry under our own lease's name, and which of our enlistments made it. One that says nothing about itself
    /// is ours to withdraw all the same.
    pub(crate) fn stay(
        &self,
        election: &ElectionName,
        found: &KeyValue,
        record: Option<&KeyValue>,
    ) -> Result<(Held, Option<Stay>), StoreError> {
        let token = answer::token_of(found)?;
        let stay = |incarnation, seen_as, name, recorded| {
            let held = self.held(election, token, incarnation);
            (held.clone(), Some(Stay { held, seen_as, name, recorded }))
        };
        let unrecorded = match self.stays.at(election, token) {
            At::Known(stay) => return Ok((stay.held.clone(), Some(stay))),
            At::Unrecorded(incarnation) => incarnation,
        };
        if let Some(record) = record.and_then(|record| record_of(found, record)) {
            return Ok(stay(record.incarnation, record.incarnation, record.name, true));
        }
        Ok(match (unrecorded, self.introduction.words()) {
            (Some(incarnation), Some(words)) => stay(incarnation, stay_of(words.incarnation, token), words.name, false),
            _ => (self.held(election, token, Incarnation::from_bits(0)), None),
        })
    }

    /// What was written has made us an entry: all that a transaction creates has the answer's revision.
    fn stands(
        &self,
        election: &ElectionName,
        entry: &NewEntry,
        header: Header,
        manner: Manner<'_>,
    ) -> Result<Held, StoreError> {
        let token = answer::token_at(header.revision)?;
        let recorded = matches!(manner, Manner::Record);
        let seen_as = match manner {
            Manner::Record => entry.incarnation,
            Manner::Introduced(session) => stay_of(session, token),
            Manner::Introducing(saying) => {
                let session = saying.words.incarnation;
                saying.said();
                stay_of(session, token)
            }
        };
        let held = self.held(election, token, entry.incarnation);
        self.stays.note(Stay { held: held.clone(), seen_as, name: entry.name.clone(), recorded });
        Ok(held)
    }
}

/// What a write of an entry led to.
struct Wrote {
    /// What came after the puts.
    answer: Answer,
    /// `None`: nothing was written.
    held: Option<Held>,
}

/// What an enlistment led to.
#[allow(clippy::large_enum_variant, reason = "the large one is the usual one, and lives for a moment")]
enum Enlisted {
    Stands(Standing),
    /// It is in line; where, another look tells.
    LookFor(Held),
    /// It is in line behind one that has not been met before.
    Behind(Held, KeyValue),
    /// It is in line behind something that nobody's death removes.
    Blocked(Held, StoreError),
}
