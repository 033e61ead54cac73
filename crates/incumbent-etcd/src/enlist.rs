//! Entering a line.

use std::sync::atomic::Ordering;

use incumbent_store::{
    ElectionName, Held, Incarnation, NewEntry, Office, Place, Standing, StoreError, Version, check_candidate_name,
    check_value,
};

use crate::keys::{self, Owner};
use crate::rpc::{KeyValue, RequestOp, TxnRequest};
use crate::session::EtcdSession;
use crate::standing::stands;
use crate::txn::{self, Answer, nothing_in};

impl EtcdSession {
    pub(crate) async fn enlist(&self, election: &ElectionName, entry: &NewEntry) -> Result<Standing, StoreError> {
        check_candidate_name(&entry.name)?;
        check_value(&entry.value)?;
        if self.expects_empty_line.load(Ordering::Relaxed)
            && let Some(standing) = self.enlist_first(election, entry).await?
        {
            return Ok(standing);
        }
        let Wrote { mut answer, held } =
            self.write_entry(election, entry, |put| self.enlistment(election, put)).await?;
        let Some(held) = held else {
            let held = self.already(election, entry, &answer.next_found()?)?;
            self.note_beside(&held, entry);
            return self.standing(&held, None).await;
        };
        let published = Some(Version(held.token.get()));
        let line = answer.next_found()?;
        let beside = answer.next_found()?;
        // The newest is our own.
        let ahead = line.get(1);
        self.expects_empty_line.store(ahead.is_none(), Ordering::Relaxed);
        let Some(ahead) = ahead else {
            let office = txn::office(&self.store.keys, election, &beside)?;
            return Ok(stands(Place::Leading(held), published, office, answer.header.cursor()));
        };
        match self.standing_behind(&held, published, ahead, &beside, answer.header).await {
            Ok(Some(standing)) => Ok(standing),
            Ok(None) => self.standing(&held, None).await,
            Err(blocked @ StoreError::Corrupt { .. }) => {
                self.withdraw(&held, None).await?;
                Err(blocked)
            }
            Err(error) => Err(error),
        }
    }

    /// A session that found a line empty often finds the next one empty, too: then all that is to
    /// be read is known, and less is asked of the servers. `None`: the line is not empty, or there
    /// is an office record; nothing was written.
    async fn enlist_first(&self, election: &ElectionName, entry: &NewEntry) -> Result<Option<Standing>, StoreError> {
        let keys = &self.store.keys;
        let compare = vec![nothing_in(keys.line(election)), nothing_in(keys.beside(election))];
        let txn = |put| TxnRequest { compare, success: vec![put], failure: vec![] };
        let Wrote { answer, held } = self.write_entry(election, entry, txn).await?;
        let Some(held) = held else {
            self.expects_empty_line.store(false, Ordering::Relaxed);
            return Ok(None);
        };
        let published = Some(Version(held.token.get()));
        Ok(Some(stands(Place::Leading(held), published, Office::default(), answer.header.cursor())))
    }

    /// A write that may make us an entry, by what it puts first. Unless it is answered, it may
    /// arrive at any time.
    async fn write_entry(
        &self,
        election: &ElectionName,
        entry: &NewEntry,
        txn: impl FnOnce(RequestOp) -> TxnRequest,
    ) -> Result<Wrote, StoreError> {
        let owner = Owner { lease: self.lease, incarnation: entry.incarnation, name: entry.name.clone() };
        let suffix = owner.suffix();
        let key = self.store.keys.entry(election, &suffix);
        let put = RequestOp::put(key, entry.value.to_vec(), self.lease);
        let mut txn = txn(put);
        // Behind all that is read of the answer.
        let beside = txn::encode_beside(None, entry.merit);
        let ready_key = self.store.keys.ready(election, &suffix);
        txn.success.extend(beside.map(|record| RequestOp::put(ready_key, record, self.lease)));
        let on_its_way = self.own_entries.enlistment();
        let wrote = match self.write("enlisting", election, txn).await {
            Ok(mut answer) if answer.succeeded => {
                answer.skip();
                // All that a transaction creates has the answer's revision.
                let token = txn::token_at(answer.header.revision)?;
                let (election, entry_id) = (election.clone(), keys::id_of(&suffix, token));
                self.own_entries.add(&entry_id);
                let held = Held::new(election, entry_id, token, entry.incarnation);
                self.note_beside(&held, entry);
                Ok(Wrote { answer, held: Some(held) })
            }
            Ok(answer) => Ok(Wrote { answer, held: None }),
            Err(unknown @ StoreError::OutcomeUnknown { .. }) => return Err(unknown),
            Err(error) => Err(error),
        };
        // Not before the entry is known: at no moment is there an entry that neither knows of.
        on_its_way.answered();
        wrote
    }

    /// One that came with something to say of itself has a record beside its entry.
    fn note_beside(&self, held: &Held, entry: &NewEntry) {
        if !entry.merit.is_blank() {
            self.ready().insert(held.entry.clone());
        }
    }

    /// One transaction: put, unless this session has an entry, and see who is ahead.
    fn enlistment(&self, election: &ElectionName, put: RequestOp) -> TxnRequest {
        let keys = &self.store.keys;
        let own = keys.entries_of(election, self.lease);
        TxnRequest {
            compare: vec![nothing_in(own.clone())],
            success: vec![put, txn::newest(keys.line(election), None, 2), txn::all(keys.beside(election))],
            failure: vec![txn::look_at_all(own)],
        }
    }

    /// This session has entries: the one that was asked for, or one that has to go first.
    /// A `put` from outside may have made more than one.
    fn already(&self, election: &ElectionName, entry: &NewEntry, found: &[KeyValue]) -> Result<Held, StoreError> {
        let mut asked_for = None;
        for kv in found {
            let Some(held) = self.found_entry(election, kv)? else { continue };
            if held.incarnation != entry.incarnation || kv.lease != self.lease {
                return Err(StoreError::AlreadyInLine(held));
            }
            asked_for = Some(held);
        }
        let held = asked_for.ok_or_else(|| StoreError::Foreign {
            what: format!("an election below {:?} has the name of our session", election.as_str()),
        })?;
        self.own_entries.add(&held.entry);
        Ok(held)
    }

    /// A key under our own lease's name. One that says nothing more about itself is ours to
    /// withdraw all the same.
    pub(crate) fn found_entry(&self, election: &ElectionName, kv: &KeyValue) -> Result<Option<Held>, StoreError> {
        let Some(suffix) = self.store.keys.suffix(election, &kv.key) else { return Ok(None) };
        let token = txn::token_of(kv)?;
        let incarnation = Owner::read(suffix).map_or(Incarnation::from_bits(0), |owner| owner.incarnation);
        Ok(Some(Held::new(election.clone(), keys::id_of(suffix, token), token, incarnation)))
    }
}

/// What a write of an entry led to.
struct Wrote {
    /// What came after the put.
    answer: Answer,
    /// `None`: nothing was written.
    held: Option<Held>,
}
