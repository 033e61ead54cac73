//! A session: one lease, one keep-alive stream, and the requests that act on its entries.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use etcd_client::{Compare, CompareOp, KeyValue, PutOptions, Txn, TxnOp};
use incumbent_store::record::CandidateRecord;
use incumbent_store::{
    Cas, ElectionName, EntryId, ForgottenBy, Fut, Held, Incarnation, Liveness, NewEntry, Nonce, Proof, Renewal,
    Session, Standing, StoreError, StoreId, Token, check_value,
};

use crate::answer::{self, Answer, created, revision};
use crate::batch::{Batches, Step, Write};
use crate::fault::Effect;
use crate::heartbeat::Heartbeat;
use crate::introductions::Introduction;
use crate::keys;
use crate::stays::{Stay, Stays};
use crate::store::Inner;

/// Servers take 128 operations in a transaction.
const LOOKS_PER_TXN: usize = 100;

pub(crate) struct EtcdSession {
    pub(crate) store: Arc<Inner>,
    pub(crate) lease: i64,
    pub(crate) suffix: Vec<u8>,
    cluster_id: u64,
    liveness: Liveness,
    heartbeat: Heartbeat,
    batches: Batches,
    /// The line that was met last was empty.
    pub(crate) expects_nobody: AtomicBool,
    pub(crate) introduction: Introduction,
    pub(crate) stays: Stays,
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
            introduction: Introduction::default(),
            stays: Stays::default(),
        }
    }

    pub(crate) async fn txn(&self, what: &str, effect: Effect, txn: Txn) -> Result<Answer, StoreError> {
        self.same_cluster(Answer::read(&self.store.endpoints.txn(what, effect, txn).await?)?)
    }

    /// A write to this election's line, and to nothing else.
    pub(crate) async fn write(
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

    pub(crate) fn attached(&self) -> Option<PutOptions> {
        Some(PutOptions::new().with_lease(self.lease))
    }

    /// Holds while the entry is there and ours. A foreign write keeps the creation and takes the lease away.
    pub(crate) fn ours(&self, key: &[u8], token: Token) -> [Compare; 2] {
        [created(key, revision(token)), Compare::lease(key, CompareOp::Equal, self.lease)]
    }

    pub(crate) fn held(&self, election: &ElectionName, token: Token, incarnation: Incarnation) -> Held {
        Held { election: election.clone(), entry: keys::id_of(&self.suffix, token), token, incarnation }
    }

    /// The key that the entry would have if it were ours: another session's is never there with our lease.
    pub(crate) fn key_of(&self, held: &Held) -> Vec<u8> {
        let suffix = keys::parse_id(&held.entry).map_or_else(|| self.suffix.clone(), |(suffix, _)| suffix);
        self.store.keys.entry(&held.election, &suffix)
    }

    async fn publish(&self, held: &Held, value: &Bytes, ready: Option<Nonce>) -> Result<Cas, StoreError> {
        check_value(value)?;
        let Some(Stay { seen_as, name, recorded, .. }) = self.stays.known(held) else {
            return Ok(Cas::Refused);
        };
        let key = self.key_of(held);
        // The entry each time: whoever watches it is told of its readiness, too.
        let mut then = vec![TxnOp::put(key.clone(), value.to_vec(), self.attached())];
        if recorded || ready.is_some() {
            self.stays.note_record(held);
            let record = CandidateRecord { incarnation: seen_as, name, ready };
            let record_key = self.store.keys.record(&held.election, &self.suffix);
            then.push(TxnOp::put(record_key, record.encode(), self.attached()));
        }
        let step = Step { guards: self.ours(&key, held.token).into(), then, otherwise: vec![] };
        let answer = self.write("publishing", &held.election, step, value.len()).await?;
        Ok(if answer.succeeded { Cas::Done } else { Cas::Refused })
    }

    /// Removes a record whose entry somebody deleted from outside, unless another entry has come: `there` is its
    /// creation, or zero.
    async fn sweep(&self, election: &ElectionName, record: &KeyValue, there: i64) -> Result<(), StoreError> {
        let key = self.store.keys.entry(election, &self.suffix);
        let unchanged = Compare::mod_revision(record.key(), CompareOp::Equal, record.mod_revision());
        let txn = Txn::new().when([created(&key, there), unchanged]).and_then([TxnOp::delete(record.key(), None)]);
        self.txn("removing a leftover record", Effect::None, txn).await?;
        Ok(())
    }

    pub(crate) async fn withdraw(&self, held: &Held, heir: Option<&EntryId>) -> Result<Cas, StoreError> {
        let keys = &self.store.keys;
        match keys::parse_id(&held.entry) {
            Some((suffix, token)) if suffix == self.suffix && token == held.token => {}
            _ => return Ok(Cas::Done),
        }
        let key = keys.entry(&held.election, &self.suffix);
        let record = keys.record(&held.election, &self.suffix);
        // The lease is not compared: an entry that we made and somebody overwrote would block the line for ever.
        let mut guards = vec![created(&key, revision(held.token))];
        match heir.map(keys::parse_id) {
            None => {}
            Some(Some((suffix, token))) => guards.push(created(&keys.entry(&held.election, &suffix), revision(token))),
            // No such entry can be there: no key has a negative version.
            Some(None) => guards.push(Compare::version(key.clone(), CompareOp::Less, 0)),
        }
        // What was never written need not be removed.
        let record = self.stays.known(held).is_none_or(|stay| stay.recorded).then_some(record);
        let all = || std::iter::once(key.clone()).chain(record.clone());
        let step = Step {
            guards,
            then: all().map(|key| TxnOp::delete(key, None)).collect(),
            otherwise: all().map(answer::look).collect(),
        };
        let mut answer = self.write("withdrawing", &held.election, step, 0).await?;
        if !answer.succeeded {
            let there = answer.next_one()?.map_or(0, |entry| entry.create_revision());
            if there == revision(held.token) {
                return Ok(Cas::Refused);
            }
            if record.is_some()
                && let Some(orphan) = answer.next_one()?.filter(|record| there == 0 || record.mod_revision() < there)
            {
                self.sweep(&held.election, &orphan, there).await?;
            }
        }
        self.stays.forget(held);
        Ok(Cas::Done)
    }

    /// A keep-alive counts only if after its answer a linearizable read succeeds in the same term: a leader that was
    /// replaced goes on answering keep-alives, but cannot answer such a read (etcd#15247).
    async fn renew(&self, held: &[Held]) -> Result<Renewal, StoreError> {
        let beat = self.heartbeat.beat(&self.store.endpoints).await?;
        if beat.cluster_id != self.cluster_id {
            return Err(StoreError::SessionGone);
        }
        let said = self.introduction.said();
        let elections = self.stays.elections(held);
        let mut found = BTreeMap::new();
        let mut introduced = false;
        for elections in chunks(&elections) {
            let mut ops = vec![answer::look(self.store.keys.introduction(&self.suffix))];
            ops.extend(elections.iter().map(|election| answer::look(self.store.keys.entry(election, &self.suffix))));
            let mut answer = self.txn("proving that we live", Effect::None, Txn::new().and_then(ops)).await?;
            if answer.header.raft_term != beat.raft_term {
                let what = "the cluster changed its leader during the renewal".to_owned();
                return Err(StoreError::Unavailable { what, source: None });
            }
            introduced = answer.next_one()?.is_some();
            for election in elections {
                if let Some(kv) = answer.next_one()?.filter(|kv| kv.lease() == self.lease) {
                    found.insert(election.clone(), kv);
                }
            }
        }
        if let Some(words) = said.filter(|_| !introduced) {
            // Somebody has removed it. If this fails, the next renewal does it.
            _ = self.introduce_again(&words).await;
        }
        let token_at = |election: &ElectionName| found.get(election).map(KeyValue::create_revision);
        let is_there = |held: &&Held| token_at(&held.election) == Some(revision(held.token)) && self.is_mine(held);
        let gone = held.iter().filter(|held| !is_there(held)).cloned().collect();
        let named: BTreeSet<_> = held.iter().filter(is_there).map(|held| &held.election).collect();
        let unnamed: Vec<_> = found.iter().filter(|(election, _)| !named.contains(election)).collect();
        let stray = self.strays(&unnamed).await?;
        Ok(Renewal { ttl: beat.ttl, gone, unproven: Vec::new(), stray })
    }

    fn is_mine(&self, held: &Held) -> bool {
        held.entry == keys::id_of(&self.suffix, held.token)
    }

    /// The entries of ours that were not named.
    async fn strays(&self, unnamed: &[(&ElectionName, &KeyValue)]) -> Result<Vec<Held>, StoreError> {
        let mut strays = Vec::new();
        for unnamed in unnamed.chunks(LOOKS_PER_TXN) {
            let record = |election: &ElectionName| self.store.keys.record(election, &self.suffix);
            let ops: Vec<_> = unnamed.iter().map(|(election, _)| answer::get(record(election))).collect();
            let mut answer = self.txn("reading our records", Effect::None, Txn::new().and_then(ops)).await?;
            for (election, found) in unnamed {
                let record = answer.next_one()?;
                strays.push(self.stay(election, found, record.as_ref())?.0);
            }
        }
        Ok(strays)
    }

    async fn introduce_again(&self, words: &CandidateRecord) -> Result<(), StoreError> {
        let key = self.store.keys.introduction(&self.suffix);
        let txn = Txn::new().and_then([TxnOp::put(key, words.encode(), self.attached())]);
        self.txn("introducing the session again", Effect::Write, txn).await?;
        Ok(())
    }
}

/// At least one chunk, if only an empty one.
fn chunks(elections: &[ElectionName]) -> impl Iterator<Item = &[ElectionName]> {
    let none: Option<&[ElectionName]> = elections.is_empty().then_some(&[]);
    none.into_iter().chain(elections.chunks(LOOKS_PER_TXN))
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
