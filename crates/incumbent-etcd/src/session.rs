//! A session: one lease, one keep-alive stream, and the requests that act on its entries.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use etcd_client::{Compare, CompareOp, KeyValue, PutOptions, Txn, TxnOp};
use incumbent_store::record::CandidateRecord;
use incumbent_store::{
    Cas, ElectionName, EntryId, ForgottenBy, Fut, Held, Incarnation, Liveness, NewEntry, Nonce, Office, Place, Proof,
    Renewal, Session, Standing, StoreError, StoreId, Token, check_candidate_name, check_value,
};

use crate::answer::{self, Answer, Header};
use crate::batch::{Batches, Step, Write};
use crate::fault::Effect;
use crate::heartbeat::Heartbeat;
use crate::keys;
use crate::store::Inner;

/// Servers take 128 operations in a transaction.
const LOOKS_PER_TXN: usize = 100;
/// How many keys of elections with longer names are passed over at a time, and how often.
const PAGE: i64 = 512;
const MAX_PAGES: usize = 64;
/// An enlistment that finds leftovers removes them and tries again, this often.
const MAX_SWEEPS: usize = 3;

pub(crate) struct EtcdSession {
    store: Arc<Inner>,
    lease: i64,
    suffix: Vec<u8>,
    cluster_id: u64,
    liveness: Liveness,
    heartbeat: Heartbeat,
    batches: Batches,
    /// The line that was met last was empty.
    expects_nobody: AtomicBool,
    stood: Mutex<Stood>,
}

/// Where this session may have entries. Its lease is nobody else's, so nobody else makes any.
#[derive(Default)]
struct Stood {
    /// Those that were answered, with what their records say. An incarnation may come again, a token never does.
    known: BTreeMap<ElectionName, (Held, Arc<str>)>,
    /// Those with an enlistment that was not answered: it may still arrive, at any time.
    doubtful: BTreeSet<ElectionName>,
}

impl EtcdSession {
    pub(crate) fn new(store: Arc<Inner>, lease: i64, ttl: Duration, cluster_id: u64) -> EtcdSession {
        let liveness = Liveness {
            ttl,
            forgotten_by: ForgottenBy::Store,
            proof: Proof::Answered,
            margin: Duration::ZERO,
            rest: Duration::ZERO,
        };
        store.leases().insert(lease);
        EtcdSession {
            batches: Batches::new(store.clone(), keys::suffix_of(lease)),
            store,
            lease,
            suffix: keys::suffix_of(lease),
            cluster_id,
            liveness,
            heartbeat: Heartbeat::new(lease),
            expects_nobody: AtomicBool::new(false),
            stood: Mutex::default(),
        }
    }

    fn stood(&self) -> MutexGuard<'_, Stood> {
        self.stood.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn txn(&self, what: &str, effect: Effect, txn: Txn) -> Result<Answer, StoreError> {
        self.same_cluster(Answer::read(&self.store.endpoints.txn(what, effect, txn).await?)?)
    }

    /// A write to this election's line, and to nothing else.
    async fn write(
        &self,
        what: &'static str,
        election: &ElectionName,
        step: Step,
        value_bytes: usize,
    ) -> Result<Answer, StoreError> {
        // The election's name is in it a dozen times; what else there is has a bound.
        let bytes = value_bytes + 12 * election.as_str().len() + 2048;
        let write = Write { what, election: election.clone(), step, bytes };
        self.same_cluster(self.batches.txn(write).await?)
    }

    fn same_cluster(&self, answer: Answer) -> Result<Answer, StoreError> {
        // Another cluster knows nothing of our lease, whatever its revisions look like.
        if answer.header.cluster_id != self.cluster_id {
            return Err(StoreError::SessionGone);
        }
        Ok(answer)
    }

    fn attached(&self) -> Option<PutOptions> {
        Some(PutOptions::new().with_lease(self.lease))
    }

    /// Holds while the entry is there and ours. A foreign write keeps the creation and takes the lease away.
    fn ours(&self, key: &[u8], token: Token) -> [Compare; 2] {
        [created(key, token.get()), Compare::lease(key, CompareOp::Equal, self.lease)]
    }

    fn held(&self, election: &ElectionName, token: Token, incarnation: Incarnation) -> Held {
        Held { election: election.clone(), entry: keys::id_of(&self.suffix, token), token, incarnation }
    }

    async fn enlist(&self, election: &ElectionName, entry: &NewEntry) -> Result<Standing, StoreError> {
        check_candidate_name(&entry.name)?;
        check_value(&entry.value)?;
        if self.expects_nobody.load(Ordering::Relaxed)
            && let Some(standing) = self.enlist_first(election, entry).await?
        {
            return Ok(standing);
        }
        for _ in 0..MAX_SWEEPS {
            let answer = self.write_entry(election, self.enlistment(election, entry), entry).await?;
            match self.enlisted(election, entry, answer)? {
                Enlisted::Stands(standing) => return Ok(standing),
                Enlisted::LookFor(held) => return self.standing(&held).await,
                Enlisted::Blocked(held, why) => {
                    self.withdraw(&held, None).await?;
                    return Err(why);
                }
                Enlisted::Leftover(record) => self.sweep(election, &record).await?,
            }
        }
        let what = format!("the leftovers at {} keep changing", String::from_utf8_lossy(&self.suffix));
        Err(StoreError::Unavailable { what, source: None })
    }

    /// Those who found nobody in line last time often find nobody again: then all that is to be read is known, and
    /// less is asked of the servers. `None`: somebody is there, or an office record; nothing was written.
    async fn enlist_first(&self, election: &ElectionName, entry: &NewEntry) -> Result<Option<Standing>, StoreError> {
        let keys = &self.store.keys;
        let nothing = |(start, end)| Compare::create_revision(start, CompareOp::Equal, 0).with_range(end);
        let step = Step {
            guards: vec![nothing(keys.line(election)), nothing(keys.all_own(election))],
            then: self.entry_and_record(election, entry).into(),
            otherwise: vec![],
        };
        let answer = self.write_entry(election, step, entry).await?;
        if !answer.succeeded {
            self.expects_nobody.store(false, Ordering::Relaxed);
            return Ok(None);
        }
        let held = self.stands(election, entry, answer.header)?;
        Ok(Some(Standing { place: Place::Leading(held), office: Office::default(), cursor: answer.header.cursor() }))
    }

    /// A write that may make us an entry. Unless it is answered, it may arrive at any time.
    async fn write_entry(&self, election: &ElectionName, step: Step, entry: &NewEntry) -> Result<Answer, StoreError> {
        let doubt = Doubt { session: self, election };
        let answer = self.write("enlisting", election, step, entry.value.len()).await;
        if !matches!(answer, Err(StoreError::OutcomeUnknown { .. })) {
            doubt.settle();
        }
        answer
    }

    fn entry_and_record(&self, election: &ElectionName, entry: &NewEntry) -> [TxnOp; 2] {
        let keys = &self.store.keys;
        let record = CandidateRecord { incarnation: entry.incarnation, name: entry.name.clone(), ready: None };
        [
            TxnOp::put(keys.entry(election, &self.suffix), entry.value.to_vec(), self.attached()),
            TxnOp::put(keys.record(election, &self.suffix), record.encode(), self.attached()),
        ]
    }

    /// One transaction: put, unless there is an entry or a record, and see who is ahead.
    fn enlistment(&self, election: &ElectionName, entry: &NewEntry) -> Step {
        let keys = &self.store.keys;
        let (key, record_key) = (keys.entry(election, &self.suffix), keys.record(election, &self.suffix));
        let [put_entry, put_record] = self.entry_and_record(election, entry);
        Step {
            guards: vec![created(&key, 0), created(&record_key, 0)],
            then: vec![
                put_entry,
                put_record,
                answer::newest(keys.line(election), None, 2),
                answer::newest(keys.records(election), None, 2),
                answer::all(keys.office_range(election)),
            ],
            otherwise: vec![answer::look(key), answer::get(record_key)],
        }
    }

    fn enlisted(&self, election: &ElectionName, entry: &NewEntry, mut answer: Answer) -> Result<Enlisted, StoreError> {
        let keys = &self.store.keys;
        if !answer.succeeded {
            return self.already(election, entry, answer.next_one()?, answer.next_one()?);
        }
        let held = self.stands(election, entry, answer.header)?;
        answer.skip();
        answer.skip();
        let (line, records) = (answer.next_found()?, answer.next_found()?);
        let office = answer::office(keys, election, &answer.next_found()?)?;
        let cursor = answer.header.cursor();
        // The newest is our own.
        let ahead = line.get(1);
        self.expects_nobody.store(ahead.is_none(), Ordering::Relaxed);
        let Some(ahead) = ahead else {
            return Ok(Enlisted::Stands(Standing { place: Place::Leading(held), office, cursor }));
        };
        match answer::entry(keys, election, ahead, &records)? {
            Some(_) if ahead.lease() == 0 => Ok(Enlisted::Blocked(held, answer::leaseless(ahead))),
            Some(ahead) => {
                let place = Place::Behind { held: Some(held), ahead, look_again: None };
                Ok(Enlisted::Stands(Standing { place, office, cursor }))
            }
            None => Ok(Enlisted::LookFor(held)),
        }
    }

    /// Our key is taken, or our record is.
    fn already(
        &self,
        election: &ElectionName,
        entry: &NewEntry,
        found: Option<KeyValue>,
        record: Option<KeyValue>,
    ) -> Result<Enlisted, StoreError> {
        let Some(found) = found else {
            let what = || StoreError::Foreign { what: "a refusal without a reason".to_owned() };
            return record.map(Enlisted::Leftover).ok_or_else(what);
        };
        let record = record.and_then(|record| answer::record_of(&found, &record));
        // An entry under our own lease's name that says nothing about itself is ours to withdraw all the same.
        let incarnation = record.map_or(Incarnation::from_bits(0), |record| record.incarnation);
        let held = self.held(election, answer::token_of(&found)?, incarnation);
        if incarnation == entry.incarnation && found.lease() == self.lease {
            self.note(&held, entry);
            return Ok(Enlisted::LookFor(held));
        }
        self.stood().doubtful.insert(election.clone());
        Err(StoreError::AlreadyInLine(held))
    }

    /// What was written has made us an entry: all that a transaction creates has the answer's revision.
    fn stands(&self, election: &ElectionName, entry: &NewEntry, header: Header) -> Result<Held, StoreError> {
        let Header { revision, .. } = header;
        let token = u64::try_from(revision).ok().and_then(Token::new);
        let token = token.ok_or_else(|| StoreError::Foreign { what: format!("a revision of {revision}") })?;
        let held = self.held(election, token, entry.incarnation);
        self.note(&held, entry);
        Ok(held)
    }

    fn note(&self, held: &Held, entry: &NewEntry) {
        self.stood().known.insert(held.election.clone(), (held.clone(), entry.name.clone()));
    }

    /// Removes the record of an entry that somebody deleted from outside. Entry and record are made in one step, so
    /// that their creation is the same; that is how they are told to belong together.
    async fn sweep(&self, election: &ElectionName, record: &KeyValue) -> Result<(), StoreError> {
        let key = self.store.keys.entry(election, &self.suffix);
        let orphaned = Compare::create_revision(key, CompareOp::NotEqual, record.create_revision());
        let unchanged = Compare::mod_revision(record.key(), CompareOp::Equal, record.mod_revision());
        let txn = Txn::new().when([orphaned, unchanged]).and_then([TxnOp::delete(record.key(), None)]);
        self.txn("removing a leftover record", Effect::None, txn).await?;
        Ok(())
    }

    async fn standing(&self, held: &Held) -> Result<Standing, StoreError> {
        let keys = &self.store.keys;
        let election = &held.election;
        let key = self.key_of(held);
        let (line, token) = (keys.line(election), revision(held.token));
        let (office_start, office_end) = keys.office_range(election);
        // First in line, with nothing said about the office: the guards have seen it all.
        let [created, leased] = self.ours(&key, held.token);
        let first = Compare::create_revision(line.0.clone(), CompareOp::Greater, token - 1).with_range(line.1.clone());
        let no_office = Compare::create_revision(office_start, CompareOp::Equal, 0).with_range(office_end);
        let txn = Txn::new().when([created, leased, first, no_office]).or_else([
            answer::look(key.clone()),
            answer::newest(line, Some(token), 1),
            answer::newest(keys.records(election), Some(token), 1),
            answer::all(keys.office_range(election)),
        ]);
        let mut answer = self.txn("looking where we stand", Effect::None, txn).await?;
        let cursor = answer.header.cursor();
        if answer.succeeded {
            return Ok(Standing { place: Place::Leading(held.clone()), office: Office::default(), cursor });
        }
        let own = answer.next_one()?;
        let (line, records) = (answer.next_found()?, answer.next_found()?);
        if own.is_none_or(|own| own.create_revision() != token || own.lease() != self.lease) {
            return self.gone(election, answer).await;
        }
        let office = answer::office(keys, election, &answer.next_found()?)?;
        let Some(ahead) = line.first() else {
            return Ok(Standing { place: Place::Leading(held.clone()), office, cursor });
        };
        match answer::entry(keys, election, ahead, &records)? {
            Some(_) if ahead.lease() == 0 => Err(answer::leaseless(ahead)),
            Some(ahead) => {
                let place = Place::Behind { held: Some(held.clone()), ahead, look_again: None };
                Ok(Standing { place, office, cursor })
            }
            None => self.standing_past(held, &key, ahead.create_revision()).await,
        }
    }

    /// Where we stand when entries of elections with longer names are among the older ones.
    ///
    /// What is older than us only ever goes, so looking further and further back, with our own entry checked each
    /// time, ends with an answer that was true in one step: the last.
    async fn standing_past(&self, held: &Held, key: &[u8], mut before: i64) -> Result<Standing, StoreError> {
        let keys = &self.store.keys;
        let election = &held.election;
        for _ in 0..MAX_PAGES {
            let txn = Txn::new()
                .when(self.ours(key, held.token))
                .and_then([
                    answer::newest_keys(keys.line(election), Some(before), PAGE),
                    answer::all(keys.office_range(election)),
                ])
                .or_else([answer::all(keys.office_range(election))]);
            let mut answer = self.txn("looking where we stand", Effect::None, txn).await?;
            if !answer.succeeded {
                return self.gone(election, answer).await;
            }
            let older = answer.next_found()?;
            let Some(last) = older.last() else {
                let office = answer::office(keys, election, &answer.next_found()?)?;
                return Ok(Standing { place: Place::Leading(held.clone()), office, cursor: answer.header.cursor() });
            };
            before = last.create_revision();
            if let Some(ahead) = older.iter().find(|kv| keys.suffix(election, kv.key()).is_some()) {
                before = ahead.create_revision();
                if let Some(standing) = self.standing_behind(held, key, ahead).await? {
                    return Ok(standing);
                }
            }
        }
        let what = format!("too many elections have names that begin with {:?} and a slash", election.as_str());
        Err(StoreError::Limit { what })
    }

    /// Reads the one ahead. `None`: it has gone meanwhile.
    async fn standing_behind(&self, held: &Held, key: &[u8], ahead: &KeyValue) -> Result<Option<Standing>, StoreError> {
        let keys = &self.store.keys;
        let election = &held.election;
        let Some(suffix) = keys.suffix(election, ahead.key()) else { return Ok(None) };
        let txn = Txn::new()
            .when(self.ours(key, held.token))
            .and_then([
                answer::get(ahead.key().to_vec()),
                answer::get(keys.record(election, suffix)),
                answer::all(keys.office_range(election)),
            ])
            .or_else([answer::all(keys.office_range(election))]);
        let mut answer = self.txn("looking who is ahead", Effect::None, txn).await?;
        if !answer.succeeded {
            return self.gone(election, answer).await.map(Some);
        }
        let (there, records) = (answer.next_one()?, answer.next_found()?);
        let Some(there) = there.filter(|there| there.create_revision() == ahead.create_revision()) else {
            return Ok(None);
        };
        if there.lease() == 0 {
            return Err(answer::leaseless(&there));
        }
        let office = answer::office(keys, election, &answer.next_found()?)?;
        let Some(ahead) = answer::entry(keys, election, &there, &records)? else { return Ok(None) };
        let place = Place::Behind { held: Some(held.clone()), ahead, look_again: None };
        Ok(Some(Standing { place, office, cursor: answer.header.cursor() }))
    }

    /// Our entry is not there: whether the session is.
    async fn gone(&self, election: &ElectionName, mut answer: Answer) -> Result<Standing, StoreError> {
        let lease = self.store.endpoints.time_to_live("asking for the lease", self.lease).await?;
        if lease.ttl() <= 0 {
            return Err(StoreError::SessionGone);
        }
        let office = answer::office(&self.store.keys, election, &answer.next_found()?)?;
        Ok(Standing { place: Place::Gone, office, cursor: answer.header.cursor() })
    }

    /// The key that the entry would have if it were ours: another session's is never there with our lease.
    fn key_of(&self, held: &Held) -> Vec<u8> {
        let suffix = keys::parse_id(&held.entry).map_or_else(|| self.suffix.clone(), |(suffix, _)| suffix);
        self.store.keys.entry(&held.election, &suffix)
    }

    async fn publish(&self, held: &Held, value: &Bytes, ready: Option<Nonce>) -> Result<Cas, StoreError> {
        check_value(value)?;
        let known = self.stood().known.get(&held.election).cloned();
        let Some((_, name)) = known.filter(|(known, _)| known == held) else {
            return Ok(Cas::Refused);
        };
        let key = self.key_of(held);
        let record = CandidateRecord { incarnation: held.incarnation, name, ready };
        // Both each time: whoever watches the entry is told of its readiness, too.
        let step = Step {
            guards: self.ours(&key, held.token).into(),
            then: vec![
                TxnOp::put(key, value.to_vec(), self.attached()),
                TxnOp::put(self.store.keys.record(&held.election, &self.suffix), record.encode(), self.attached()),
            ],
            otherwise: vec![],
        };
        let answer = self.write("publishing", &held.election, step, value.len()).await?;
        Ok(if answer.succeeded { Cas::Done } else { Cas::Refused })
    }

    async fn withdraw(&self, held: &Held, heir: Option<&EntryId>) -> Result<Cas, StoreError> {
        let keys = &self.store.keys;
        match keys::parse_id(&held.entry) {
            Some((suffix, token)) if suffix == self.suffix && token == held.token => {}
            _ => return Ok(Cas::Done),
        }
        let key = keys.entry(&held.election, &self.suffix);
        let record = keys.record(&held.election, &self.suffix);
        // The lease is not compared: an entry that we made and somebody overwrote would block the line for ever.
        let mut guards = vec![created(&key, held.token.get())];
        match heir.map(keys::parse_id) {
            None => {}
            Some(Some((suffix, token))) => guards.push(created(&keys.entry(&held.election, &suffix), token.get())),
            // No such entry can be there: no key has a negative version.
            Some(None) => guards.push(Compare::version(key.clone(), CompareOp::Less, 0)),
        }
        let step = Step {
            guards,
            then: vec![TxnOp::delete(key.clone(), None), TxnOp::delete(record.clone(), None)],
            otherwise: vec![answer::look(key), answer::look(record)],
        };
        let mut answer = self.write("withdrawing", &held.election, step, 0).await?;
        if !answer.succeeded {
            let is_its = |kv: &KeyValue| kv.create_revision() == revision(held.token);
            let (entry, record) = (answer.next_one()?, answer.next_one()?);
            if entry.as_ref().is_some_and(is_its) {
                return Ok(Cas::Refused);
            }
            if let Some(orphan) = record.filter(is_its) {
                self.sweep(&held.election, &orphan).await?;
            }
        }
        let mut stood = self.stood();
        if stood.known.get(&held.election).is_some_and(|(known, _)| known == held) {
            stood.known.remove(&held.election);
        }
        Ok(Cas::Done)
    }

    /// A keep-alive counts only if after its answer a linearizable read succeeds in the same term: a leader that was
    /// replaced goes on answering keep-alives, but cannot answer such a read (etcd#15247).
    async fn renew(&self, held: &[Held]) -> Result<Renewal, StoreError> {
        let beat = self.heartbeat.beat(&self.store.endpoints).await?;
        if beat.cluster_id != self.cluster_id {
            return Err(StoreError::SessionGone);
        }
        let elections = self.elections_to_look_at(held);
        let mut found = BTreeMap::new();
        for elections in chunks(&elections) {
            let ops: Vec<_> = match elections {
                [] => vec![answer::look(self.store.keys.nothing())],
                some => {
                    some.iter().map(|election| answer::look(self.store.keys.entry(election, &self.suffix))).collect()
                }
            };
            let mut answer = self.txn("proving that we live", Effect::None, Txn::new().and_then(ops)).await?;
            if answer.header.raft_term != beat.raft_term {
                let what = "the cluster changed its leader during the renewal".to_owned();
                return Err(StoreError::Unavailable { what, source: None });
            }
            for election in elections {
                if let Some(kv) = answer.next_one()?.filter(|kv| kv.lease() == self.lease) {
                    found.insert(election.clone(), answer::token_of(&kv)?);
                }
            }
        }
        let is_there = |held: &&Held| found.get(&held.election) == Some(&held.token) && self.is_mine(held);
        let gone = held.iter().filter(|held| !is_there(held)).cloned().collect();
        let named: BTreeSet<_> = held.iter().filter(is_there).map(|held| &held.election).collect();
        let unnamed: Vec<_> = found.iter().filter(|(election, _)| !named.contains(election)).collect();
        let stray = self.strays(&unnamed).await?;
        Ok(Renewal { ttl: beat.ttl, gone, unproven: Vec::new(), stray })
    }

    fn is_mine(&self, held: &Held) -> bool {
        held.entry == keys::id_of(&self.suffix, held.token)
    }

    fn elections_to_look_at(&self, held: &[Held]) -> Vec<ElectionName> {
        let stood = self.stood();
        let named = held.iter().map(|held| &held.election);
        let all: BTreeSet<_> = named.chain(stood.known.keys()).chain(&stood.doubtful).collect();
        all.into_iter().cloned().collect()
    }

    /// The entries of ours that were not named, with what their records say.
    async fn strays(&self, unnamed: &[(&ElectionName, &Token)]) -> Result<Vec<Held>, StoreError> {
        let mut strays = Vec::new();
        for unnamed in unnamed.chunks(LOOKS_PER_TXN) {
            let record = |election: &ElectionName| self.store.keys.record(election, &self.suffix);
            let ops: Vec<_> = unnamed.iter().map(|(election, _)| answer::get(record(election))).collect();
            let mut answer = self.txn("reading our records", Effect::None, Txn::new().and_then(ops)).await?;
            for (election, token) in unnamed {
                let kv = answer.next_one()?.filter(|kv| kv.create_revision() == revision(**token));
                let record = kv.and_then(|kv| CandidateRecord::decode(kv.value()));
                let incarnation = record.map_or(Incarnation::from_bits(0), |record| record.incarnation);
                strays.push(self.held(election, **token, incarnation));
            }
        }
        Ok(strays)
    }
}

/// At least one chunk, if only an empty one.
fn chunks(elections: &[ElectionName]) -> impl Iterator<Item = &[ElectionName]> {
    let none: Option<&[ElectionName]> = elections.is_empty().then_some(&[]);
    none.into_iter().chain(elections.chunks(LOOKS_PER_TXN))
}

/// What an enlistment led to.
#[allow(clippy::large_enum_variant, reason = "the large one is the usual one, and lives for a moment")]
enum Enlisted {
    Stands(Standing),
    /// It is in line; where, another look tells.
    LookFor(Held),
    /// It is in line behind something that nobody's death removes.
    Blocked(Held, StoreError),
    /// The record of an entry that is gone is in the way.
    Leftover(KeyValue),
}

/// An enlistment on its way. Unless it is settled, it may arrive whenever it likes.
struct Doubt<'a> {
    session: &'a EtcdSession,
    election: &'a ElectionName,
}

impl Doubt<'_> {
    fn settle(self) {
        std::mem::forget(self);
    }
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        self.session.stood().doubtful.insert(self.election.clone());
    }
}

fn created(key: &[u8], at: u64) -> Compare {
    Compare::create_revision(key, CompareOp::Equal, i64::try_from(at).unwrap_or(i64::MAX))
}

/// A token as etcd counts.
fn revision(token: Token) -> i64 {
    i64::try_from(token.get()).unwrap_or(i64::MAX)
}

impl Drop for EtcdSession {
    fn drop(&mut self) {
        self.store.leases().remove(&self.lease);
    }
}

impl fmt::Debug for EtcdSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdSession").field("lease", &format_args!("{:x}", self.lease)).finish_non_exhaustive()
    }
}

impl Session for EtcdSession {
    fn liveness(&self) -> Liveness {
        self.liveness
    }

    fn store_id(&self) -> StoreId {
        answer::store_id(self.cluster_id)
    }

    fn renew<'a>(&'a self, held: &'a [Held]) -> Fut<'a, Renewal> {
        Box::pin(self.renew(held))
    }

    fn enlist<'a>(&'a self, election: &'a ElectionName, entry: &'a NewEntry) -> Fut<'a, Standing> {
        Box::pin(self.enlist(election, entry))
    }

    fn standing<'a>(&'a self, held: &'a Held) -> Fut<'a, Standing> {
        Box::pin(self.standing(held))
    }

    fn publish<'a>(&'a self, held: &'a Held, value: &'a Bytes, ready: Option<Nonce>) -> Fut<'a, Cas> {
        Box::pin(self.publish(held, value, ready))
    }

    fn withdraw<'a>(&'a self, held: &'a Held, heir: Option<&'a EntryId>) -> Fut<'a, Cas> {
        Box::pin(self.withdraw(held, heir))
    }

    fn close(&self) -> Fut<'_, ()> {
        Box::pin(async move {
            self.store.endpoints.revoke("closing the session", self.lease).await?;
            Ok(())
        })
    }
}
