//! A session: one lease, one keep-alive stream, and the requests that act on its entries.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use incumbent_store::{
    Cas, Cursor, Effect, ElectionName, EntryId, Fut, Held, Liveness, NewEntry, Publication, Renewal, Session, Standing,
    StoreError, StoreId, Token, Version, Wake, Watched, check_value, lock,
};
use tokio::time::timeout;

use crate::batch::Batches;
use crate::heartbeat::{Beat, Heartbeat};
use crate::keys;
use crate::own_entries::OwnEntries;
use crate::rpc::{Compare, CompareResult, KeyValue, RequestOp, TxnRequest, With};
use crate::store::Inner;
use crate::txn::{self, Answer, changed, created, leased, revision};

/// Servers take 128 operations in a transaction.
const LOOKS_PER_TXN: usize = 100;

/// How many members a renewal can ask in a TTL. There is a third of it until the next renewal.
const TRIES_PER_TTL: u32 = 6;

pub(crate) struct EtcdSession {
    pub(crate) store: Arc<Inner>,
    pub(crate) lease: i64,
    cluster_id: u64,
    liveness: Liveness,
    pub(crate) heartbeat: Heartbeat,
    batches: Batches,
    /// The line that was met last was empty.
    pub(crate) expects_empty_line: AtomicBool,
    pub(crate) own_entries: OwnEntries,
    /// The entries that have a record of their readiness or fitness. What is forgotten here goes
    /// with the lease.
    ready: Mutex<BTreeSet<EntryId>>,
}

impl EtcdSession {
    pub(crate) fn new(store: Arc<Inner>, lease: i64, ttl: Duration, cluster_id: u64) -> EtcdSession {
        let liveness = Liveness::new(ttl);
        EtcdSession {
            batches: Batches::new(store.endpoints.clone()),
            store,
            lease,
            cluster_id,
            liveness,
            heartbeat: Heartbeat::new(lease),
            expects_empty_line: AtomicBool::new(false),
            own_entries: OwnEntries::new(ttl),
            ready: Mutex::default(),
        }
    }

    pub(crate) fn ttl(&self) -> Duration {
        self.liveness.ttl
    }

    pub(crate) async fn txn(&self, what: &str, effect: Effect, txn: TxnRequest) -> Result<Answer, StoreError> {
        self.same_cluster(self.store.endpoints.txn(what, effect, txn).await?)
    }

    /// A transaction that writes to this election's line, two keys at most, and to nothing else.
    pub(crate) async fn write(
        &self,
        what: &'static str,
        election: &ElectionName,
        txn: TxnRequest,
    ) -> Result<Answer, StoreError> {
        self.same_cluster(self.batches.txn(what, election, txn).await?)
    }

    fn same_cluster(&self, answer: Answer) -> Result<Answer, StoreError> {
        // Another cluster knows nothing of our lease, whatever its revisions look like.
        if answer.header.cluster_id != self.cluster_id {
            return Err(StoreError::SessionGone);
        }
        Ok(answer)
    }

    /// Holds while the entry is there and ours. A foreign write keeps the creation and takes the
    /// lease away.
    pub(crate) fn ours(&self, key: &[u8], token: Token) -> [Compare; 2] {
        [created(key, revision(token)), leased(key, self.lease)]
    }

    /// The key that the entry would have if it were ours: another session's is never there with our
    /// lease.
    pub(crate) fn key_of(&self, held: &Held) -> Vec<u8> {
        let suffix = keys::parse_id(&held.entry).map_or_else(|| self.prefix(), |(suffix, _)| suffix);
        self.store.keys.entry(&held.election, &suffix)
    }

    /// The last part of the key of an entry that this session may have made; `None` if it cannot.
    fn own_suffix(&self, held: &Held) -> Option<Vec<u8>> {
        let (suffix, token) = keys::parse_id(&held.entry)?;
        (token == held.token && suffix.starts_with(&self.prefix())).then_some(suffix)
    }

    /// What the last parts of this session's keys begin with.
    fn prefix(&self) -> Vec<u8> {
        format!("{:x}.", self.lease).into_bytes()
    }

    pub(crate) fn ready(&self) -> MutexGuard<'_, BTreeSet<EntryId>> {
        lock(&self.ready)
    }

    async fn publish(&self, held: &Held, was: Version, said: &Publication) -> Result<Option<Version>, StoreError> {
        check_value(&said.value)?;
        let Some(suffix) = self.own_suffix(held) else { return Ok(None) };
        let key = self.store.keys.entry(&held.election, &suffix);
        let ready_key = self.store.keys.ready(&held.election, &suffix);
        // The entry each time: watches of it are told of its readiness, too.
        let mut success = vec![RequestOp::put(key.clone(), said.value.to_vec(), self.lease)];
        if let Some(record) = txn::encode_beside(said.ready, said.merit) {
            self.ready().insert(held.entry.clone());
            success.push(RequestOp::put(ready_key, record, self.lease));
        } else if self.ready().contains(&held.entry) {
            success.push(RequestOp::delete(ready_key));
        }
        let mut compare = vec![changed(&key, i64::try_from(was.0).unwrap_or(i64::MAX))];
        compare.extend(self.ours(&key, held.token));
        let txn = TxnRequest { compare, success, failure: vec![] };
        let answer = self.write("publishing", &held.election, txn).await?;
        Ok(answer.succeeded.then(|| Version(answer.header.revision.unsigned_abs())))
    }

    pub(crate) async fn withdraw(&self, held: &Held, heir: Option<&EntryId>) -> Result<Cas, StoreError> {
        let keys = &self.store.keys;
        let Some(suffix) = self.own_suffix(held) else { return Ok(Cas::Done) };
        self.store.watcher.cancel_now();
        let key = keys.entry(&held.election, &suffix);
        // The lease is not compared: an entry of ours that was overwritten from outside would block
        // the line for ever.
        let mut compare = vec![created(&key, revision(held.token))];
        match heir.map(keys::parse_id) {
            None => {}
            Some(Some((suffix, token))) => compare.push(created(&keys.entry(&held.election, &suffix), revision(token))),
            // No such entry can be there: no key has a negative version.
            Some(None) => compare.push(Compare::new(key.clone(), CompareResult::Less, With::Version(0))),
        }
        let mut success = vec![RequestOp::delete(key.clone())];
        // What was never written need not be removed.
        let ready = self.ready().contains(&held.entry).then(|| keys.ready(&held.election, &suffix));
        success.extend(ready.map(RequestOp::delete));
        let txn = TxnRequest { compare, success, failure: vec![txn::look(key)] };
        let mut answer = self.write("withdrawing", &held.election, txn).await?;
        if !answer.succeeded {
            let there = answer.next_one()?.map_or(0, |entry| entry.create_revision);
            if there == revision(held.token) {
                return Ok(Cas::Refused);
            }
        }
        self.own_entries.remove(&held.entry);
        self.ready().remove(&held.entry);
        Ok(Cas::Done)
    }

    /// A member that hangs must not cost an office while others are well: a renewal goes on to the
    /// next one while there is time for it.
    async fn renew(&self, held: &[Held]) -> Result<Renewal, StoreError> {
        let endpoints = &self.store.endpoints;
        for _ in 1..endpoints.len() {
            let asked = endpoints.current();
            match timeout(self.ttl() / TRIES_PER_TTL, self.renew_there(held)).await {
                Ok(renewal) => return renewal,
                Err(_) => endpoints.give_up(asked),
            }
        }
        self.renew_there(held).await
    }

    /// A keep-alive counts only if after its answer a linearizable read succeeds in the same term:
    /// a leader that was replaced goes on answering keep-alives, but cannot answer such a read
    /// (etcd#15247).
    async fn renew_there(&self, held: &[Held]) -> Result<Renewal, StoreError> {
        let beat = match self.heartbeat.beat(&self.store.endpoints).await {
            Err(StoreError::SessionGone) if self.is_gone().await? => return Err(StoreError::SessionGone),
            Err(StoreError::SessionGone) => {
                let what = "the cluster's leader does not know the lease yet".to_owned();
                return Err(StoreError::Unavailable { what, source: None });
            }
            beat => beat?,
        };
        if beat.header.cluster_id != self.cluster_id {
            return Err(StoreError::SessionGone);
        }
        let beside = self.own_entries.beside(held);
        let asked = if beside.is_some() { self.keys_of_lease().await } else { None };
        let held_keys = held.iter().filter_map(|held| Some((held, self.own_key(held)?)));
        let held_keys: BTreeMap<_, _> = held_keys.map(|(held, key)| (key, held)).collect();
        let others = asked.iter().flatten().filter(|key| !held_keys.contains_key(*key));
        let looked_at: Vec<_> = held_keys.keys().chain(others).cloned().collect();
        let found = self.entries_at(&looked_at, &beat).await?;
        let is_there = |held: &&Held| {
            let found = self.own_key(held).and_then(|key| found.get(&key));
            found.is_some_and(|kv| kv.create_revision == revision(held.token))
        };
        let gone = held.iter().filter(|held| !is_there(held)).cloned().collect();
        let named: BTreeSet<_> = held.iter().filter(is_there).map(|held| &held.entry).collect();
        let mut stray = Vec::new();
        for kv in found.values() {
            let Some((election, _)) = self.store.keys.split(&kv.key) else { continue };
            stray.extend(self.found_entry(&election, kv)?.filter(|held| !named.contains(&held.entry)));
        }
        if let (Some(beside), true) = (beside, asked.is_some()) {
            self.own_entries.asked(&beside, &stray);
        }
        let mut renewal = Renewal::alive(beat.ttl);
        renewal.gone = gone;
        renewal.stray = stray;
        Ok(renewal)
    }

    fn own_key(&self, held: &Held) -> Option<Vec<u8>> {
        Some(self.store.keys.entry(&held.election, &self.own_suffix(held)?))
    }

    /// Whether the lease is gone. What a leader of the cluster says of it is no proof: a new one
    /// may not have caught up yet. All members refuse a write that hangs on a lease that is gone.
    pub(crate) async fn is_gone(&self) -> Result<bool, StoreError> {
        let put = RequestOp::put(self.store.keys.proof(self.lease), "", self.lease);
        match self.txn("asking whether the lease is gone", Effect::None, txn::always([put])).await {
            Ok(_) => Ok(false),
            Err(StoreError::SessionGone) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// All entries that hang on our lease, in every election. `None`: they cannot be told; the next
    /// renewal asks again.
    async fn keys_of_lease(&self) -> Option<Vec<Vec<u8>>> {
        let lease = self.store.endpoints.time_to_live("asking what hangs on the lease", self.lease, true).await.ok()?;
        let is_own =
            |key: &&Vec<u8>| self.store.keys.split(key).is_some_and(|(_, suffix)| suffix.starts_with(&self.prefix()));
        Some(lease.keys.iter().filter(is_own).cloned().collect())
    }

    /// Those of these keys that are there and hang on our lease, as the leader that answered the
    /// beat sees them.
    async fn entries_at(&self, keys: &[Vec<u8>], beat: &Beat) -> Result<BTreeMap<Vec<u8>, KeyValue>, StoreError> {
        let mut found = BTreeMap::new();
        for keys in chunks(keys) {
            // With none, for the answer's header.
            let nothing = keys.is_empty().then(|| self.store.up_to_date());
            let ops: Vec<_> = keys.iter().cloned().map(txn::look).chain(nothing).collect();
            let mut answer = self.txn("proving that we live", Effect::None, txn::always(ops)).await?;
            if beat.header.raft_term != answer.header.raft_term {
                let what = "the cluster changed its leader during the renewal".to_owned();
                return Err(StoreError::Unavailable { what, source: None });
            }
            for key in keys {
                if let Some(kv) = answer.next_one()?.filter(|kv| kv.lease == self.lease) {
                    found.insert(key.clone(), kv);
                }
            }
        }
        Ok(found)
    }
}

/// At least one chunk, if only an empty one.
fn chunks(keys: &[Vec<u8>]) -> impl Iterator<Item = &[Vec<u8>]> {
    let none: Option<&[Vec<u8>]> = keys.is_empty().then_some(&[]);
    none.into_iter().chain(keys.chunks(LOOKS_PER_TXN))
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
        txn::store_id(self.cluster_id)
    }

    fn renew<'a>(&'a self, held: &'a [Held]) -> Fut<'a, Renewal> {
        Box::pin(self.renew(held))
    }

    fn enlist<'a>(&'a self, election: &'a ElectionName, entry: &'a NewEntry) -> Fut<'a, Standing> {
        Box::pin(self.enlist(election, entry))
    }

    fn standing<'a>(&'a self, held: &'a Held, behind: Option<&'a EntryId>) -> Fut<'a, Standing> {
        Box::pin(self.standing(held, behind))
    }

    fn watch(&self, watched: &Watched, from: Cursor) -> Wake {
        self.store.watch_entry(watched, from)
    }

    fn publish<'a>(&'a self, held: &'a Held, was: Version, said: &'a Publication) -> Fut<'a, Option<Version>> {
        Box::pin(self.publish(held, was, said))
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

#[cfg(test)]
mod tests {
    use incumbent_store::{Incarnation, Place};
    use incumbent_testkit::servers::EtcdCluster;

    use super::*;
    use crate::{EtcdOptions, EtcdStore};

    #[tokio::test]
    async fn a_session_is_gone_when_its_lease_is_and_not_when_a_new_leader_has_not_heard_of_it_yet() {
        let cluster = EtcdCluster::start(1).await;
        let inner = EtcdStore::connect(&cluster.endpoints(), &EtcdOptions::new()).unwrap().inner;
        let lease = inner.endpoints.grant("a lease", 60).await.unwrap();
        let cluster_id = lease.header.unwrap().cluster_id;
        let mut session = EtcdSession::new(inner.clone(), lease.id, Duration::from_secs(60), cluster_id);
        // A leader that has not caught up answers like one that never heard of the lease.
        let unknown = inner.endpoints.grant("another", 60).await.unwrap().id;
        session.heartbeat = Heartbeat::new(unknown);
        session.renew(&[]).await.unwrap();
        inner.endpoints.revoke("the other", unknown).await.unwrap();
        let election = ElectionName::new("caught-up").unwrap();
        let entry = NewEntry::new(Incarnation::from_bits(1), "a", "");
        let standing = session.enlist(&election, &entry).await.unwrap();
        let Place::Leading(held) = standing.place else { panic!("{standing:?}") };

        // On the open stream, and on a new one.
        for _ in 0..2 {
            let renewal = session.renew(std::slice::from_ref(&held)).await;
            assert!(matches!(renewal, Err(StoreError::Unavailable { .. })), "{renewal:?}");
        }
        // With no entry either: others of the session may be there.
        session.withdraw(&held, None).await.unwrap();
        let renewal = session.renew(std::slice::from_ref(&held)).await;
        assert!(matches!(renewal, Err(StoreError::Unavailable { .. })), "{renewal:?}");
        assert_eq!(session.standing(&held, None).await.unwrap().place, Place::Gone);

        inner.endpoints.revoke("the session's", lease.id).await.unwrap();
        let renewal = session.renew(std::slice::from_ref(&held)).await;
        assert!(matches!(renewal, Err(StoreError::SessionGone)), "{renewal:?}");
        let standing = session.standing(&held, None).await;
        assert!(matches!(standing, Err(StoreError::SessionGone)), "{standing:?}");
    }
}
