//! Writes to etcd itself that only a sitting leader can make.

use etcd_client::{Compare, CompareOp, Txn, TxnOp, TxnResponse};
use incumbent_store::record::{Mark, Marked};
use incumbent_store::{ElectionName, StoreError, StoreId, Token};

use crate::EtcdStore;
use crate::answer::{self, Answer};
use crate::fault::Effect;
use crate::keys;

/// How a guarded transaction went.
#[derive(Clone, Debug)]
pub enum Guarded {
    /// The leadership was there, and the operations were committed.
    Committed(TxnResponse),
    /// The entry with this token is gone, or no longer its owner's: nothing was written.
    Refused,
}

impl EtcdStore {
    /// Commits `operations` only while the entry with this token is in line, in one step: if its leader has lost office,
    /// nothing is written.
    ///
    /// Compared are the entry's creation **and** its lease: a foreign write to the entry keeps the one and takes the
    /// other away, after which nobody's death would remove it.
    ///
    /// ```no_run
    /// # use incumbent_etcd::{EtcdStore, Guarded};
    /// # use incumbent_store::{ElectionName, Token};
    /// # async fn example(store: EtcdStore, election: ElectionName, token: Token) -> Result<(), Box<dyn std::error::Error>> {
    /// let done = store.guard(&election, token, [etcd_client::TxnOp::put("jobs/last", "2031-04-01", None)]).await?;
    /// if let Guarded::Refused = done {
    ///     // Another leads.
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn guard(
        &self,
        election: &ElectionName,
        token: Token,
        operations: impl Into<Vec<TxnOp>>,
    ) -> Result<Guarded, StoreError> {
        let Some(guards) = self.guards(election, token).await? else { return Ok(Guarded::Refused) };
        let txn = Txn::new().when(guards).and_then(operations).or_else([self.inner.up_to_date()]);
        let response = self.inner.endpoints.txn("committing under guard", Effect::Write, txn).await?;
        Ok(if response.succeeded() { Guarded::Committed(response) } else { Guarded::Refused })
    }

    /// What holds only while the entry with this token is in line, to put into transactions of one's own. `None`: it is
    /// not.
    pub async fn guards(&self, election: &ElectionName, token: Token) -> Result<Option<Vec<Compare>>, StoreError> {
        let created = answer::revision(token);
        let (start, end) = self.inner.keys.line(election);
        let options = etcd_client::GetOptions::new()
            .with_range(end)
            .with_min_create_revision(created)
            .with_max_create_revision(created)
            .with_keys_only();
        let mut answer = self.inner.read("looking for the entry", [TxnOp::get(start, Some(options))]).await?;
        // One transaction may have made several keys, among them entries in elections with longer names.
        let found = answer.next_found()?;
        let mut ours = found.iter().filter_map(|kv| Some((kv, self.inner.keys.suffix(election, kv.key())?)));
        let Some((entry, suffix)) = ours.next() else { return Ok(None) };
        let Some(lease) = keys::lease_of(suffix) else { return Ok(None) };
        Ok(Some(vec![
            Compare::create_revision(entry.key(), CompareOp::Equal, created),
            Compare::lease(entry.key(), CompareOp::Equal, lease),
        ]))
    }
}

/// A mark in etcd that keeps older leaders out: in the same cluster as the election or in another.
///
/// Every write compares the mark in the same step. `incumbent` makes a fence of it.
#[derive(Clone, Debug)]
pub struct EtcdMark {
    store: EtcdStore,
    election: ElectionName,
    key: Vec<u8>,
}

impl EtcdMark {
    /// A mark at `key` for the leaders of `election`.
    pub fn new(store: &EtcdStore, election: &ElectionName, key: impl Into<Vec<u8>>) -> EtcdMark {
        EtcdMark { store: store.clone(), election: election.clone(), key: key.into() }
    }

    /// The election whose leaders it knows.
    pub fn election(&self) -> &ElectionName {
        &self.election
    }

    /// Raises the mark to `token`, if it is not there already.
    pub async fn raise(&self, store: &StoreId, token: Token) -> Result<Marked, StoreError> {
        for _ in 0..Mark::MAX_RAISES {
            let (mark, changed) = self.read().await?;
            if let Some(said) = mark.and_then(|mark| mark.says(store, token)) {
                return Ok(said);
            }
            if self.replace(changed, &Mark { store: store.clone(), token: Some(token) }).await? {
                return Ok(Marked::Done);
            }
        }
        Err(Mark::keeps_changing())
    }

    /// Commits `operations` if the mark stands at `token`, in one step. A mark that is lower is raised first.
    pub async fn write(
        &self,
        store: &StoreId,
        token: Token,
        operations: impl Into<Vec<TxnOp>>,
    ) -> Result<Marked, StoreError> {
        let operations = operations.into();
        let mark = Mark { store: store.clone(), token: Some(token) }.encode(&self.election);
        for _ in 0..2 {
            let txn = Txn::new()
                .when([Compare::value(self.key.clone(), CompareOp::Equal, mark.clone())])
                .and_then(operations.clone())
                .or_else([self.store.inner.up_to_date()]);
            let answer = self.store.inner.endpoints.txn("writing behind a mark", Effect::Write, txn).await?;
            if answer.succeeded() {
                return Ok(Marked::Done);
            }
            match self.raise(store, token).await? {
                Marked::Done => {}
                refused => return Ok(refused),
            }
        }
        Err(Mark::keeps_changing())
    }

    /// An operator's act, for a store that was replaced or restored: from now on the tokens of `store` count, from the
    /// first one. Make sure that no leader of the old store still runs.
    pub async fn reset(&self, store: &StoreId) -> Result<(), StoreError> {
        for _ in 0..Mark::MAX_RAISES {
            let (_, changed) = self.read_raw().await?;
            if self.replace(changed, &Mark { store: store.clone(), token: None }).await? {
                return Ok(());
            }
        }
        Err(Mark::keeps_changing())
    }

    async fn read(&self) -> Result<(Option<Mark>, i64), StoreError> {
        let (raw, changed) = self.read_raw().await?;
        let Some(raw) = raw else { return Ok((None, changed)) };
        let place = format!("{:?}", String::from_utf8_lossy(&self.key));
        Ok((Some(Mark::decode(&raw, &self.election, &place)?), changed))
    }

    async fn read_raw(&self) -> Result<(Option<Vec<u8>>, i64), StoreError> {
        let mut answer: Answer = self.store.inner.read("reading a mark", [answer::get(self.key.clone())]).await?;
        let found = answer.next_one()?;
        let changed = found.as_ref().map_or(0, |kv| kv.mod_revision());
        Ok((found.map(|kv| kv.value().to_vec()), changed))
    }

    async fn replace(&self, was: i64, mark: &Mark) -> Result<bool, StoreError> {
        let txn = Txn::new()
            .when([Compare::mod_revision(self.key.clone(), CompareOp::Equal, was)])
            .and_then([TxnOp::put(self.key.clone(), mark.encode(&self.election), None)]);
        Ok(self.store.inner.endpoints.txn("raising a mark", Effect::Write, txn).await?.succeeded())
    }
}
