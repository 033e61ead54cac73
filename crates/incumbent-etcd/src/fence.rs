//! A mark in etcd that refuses older tokens, for what is written to etcd.

use incumbent_store::fence::{BoxFuture, Fence, FenceError, FencingToken, Mark, check_election, log_reset};
use incumbent_store::{Effect, ElectionName, StoreError, StoreId};

use crate::guard::operations;
use crate::rpc::{Compare, RequestOp, TxnRequest, With};
use crate::txn::{self, changed};
use crate::{EtcdStore, EtcdWrite};

/// Guards what is written to etcd: every write compares the mark in the same transaction.
///
/// The mark may be in the same cluster as the election or in another. In the same cluster,
/// [`EtcdStore::guard`] does without a mark.
///
/// ```no_run
/// # use incumbent_etcd::{EtcdFence, EtcdStore, EtcdWrite};
/// # use incumbent_store::ElectionName;
/// # use incumbent_store::fence::FencingToken;
/// # type Done = Result<(), Box<dyn std::error::Error>>;
/// # async fn example(store: EtcdStore, election: ElectionName, token: FencingToken) -> Done {
/// let fence = EtcdFence::new(&store, &election, "orders/mark");
/// // Attached to a candidate, it is raised when that is elected. From then on:
/// fence.write(&token, [EtcdWrite::put("orders/last", "42")]).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct EtcdFence {
    store: EtcdStore,
    election: ElectionName,
    key: Vec<u8>,
}

impl EtcdFence {
    /// Keeps its mark at `key`, for the leaders of `election`.
    pub fn new(store: &EtcdStore, election: &ElectionName, key: impl Into<Vec<u8>>) -> EtcdFence {
        EtcdFence { store: store.clone(), election: election.clone(), key: key.into() }
    }

    /// Checks the token and commits `writes`, in one step. A token above the mark raises it.
    ///
    /// If the answer is lost, [`FenceError::Unavailable`] leaves open whether they were committed.
    pub async fn write(&self, token: &FencingToken, writes: impl Into<Vec<EtcdWrite>>) -> Result<(), FenceError> {
        let success = operations(writes);
        let mark = Mark::admit(None, token)?.encode(&self.election);
        for _ in 0..2 {
            let txn = TxnRequest {
                compare: vec![Compare::equal(self.key.clone(), With::Value(mark.clone()))],
                success: success.clone(),
                failure: vec![self.store.inner.up_to_date()],
            };
            if self.store.inner.endpoints.txn("writing behind a mark", Effect::Write, txn).await?.succeeded {
                return Ok(());
            }
            self.raise_to(token).await?;
        }
        Err(FenceError::mark_keeps_changing())
    }

    /// An operator's act, for a store that was replaced or restored: from now on the tokens of
    /// `store` count, from the first one. Make sure that no leader of the old store still runs. It
    /// is logged as a warning, with the reason.
    pub async fn reset(&self, store: &StoreId, reason: &str) -> Result<(), FenceError> {
        let mark = Mark::reset(store, reason)?;
        for _ in 0..Mark::MAX_RAISES {
            let (record, revision) = self.read().await?;
            if self.replace(revision, &mark).await? {
                // One that cannot be read is replaced, too.
                let was = record.and_then(|record| self.decode(&record).ok());
                log_reset(&self.election, was.as_ref(), store, reason);
                return Ok(());
            }
        }
        Err(FenceError::mark_keeps_changing())
    }

    async fn raise_to(&self, token: &FencingToken) -> Result<(), FenceError> {
        for _ in 0..Mark::MAX_RAISES {
            let (record, revision) = self.read().await?;
            let found = record.map(|record| self.decode(&record)).transpose()?;
            let mark = Mark::admit(found.as_ref(), token)?;
            if found.as_ref() == Some(&mark) || self.replace(revision, &mark).await? {
                return Ok(());
            }
        }
        Err(FenceError::mark_keeps_changing())
    }

    fn decode(&self, record: &[u8]) -> Result<Mark, FenceError> {
        Mark::decode(record, &self.election, &String::from_utf8_lossy(&self.key))
    }

    /// What is there, and since which revision; zero: nothing.
    async fn read(&self) -> Result<(Option<Vec<u8>>, i64), StoreError> {
        let found = self.store.inner.read("reading a mark", [txn::get(self.key.clone())]).await?.next_one()?;
        let revision = found.as_ref().map_or(0, |kv| kv.mod_revision);
        Ok((found.map(|kv| kv.value), revision))
    }

    async fn replace(&self, was: i64, mark: &Mark) -> Result<bool, StoreError> {
        let txn = TxnRequest {
            compare: vec![changed(&self.key, was)],
            success: vec![RequestOp::put(self.key.clone(), mark.encode(&self.election), 0)],
            failure: vec![],
        };
        Ok(self.store.inner.endpoints.txn("raising a mark", Effect::Write, txn).await?.succeeded)
    }
}

impl Fence for EtcdFence {
    fn raise<'a>(&'a self, election: &'a ElectionName, to: FencingToken) -> BoxFuture<'a, Result<(), FenceError>> {
        Box::pin(async move {
            check_election(&self.election, election)?;
            self.raise_to(&to).await
        })
    }
}
