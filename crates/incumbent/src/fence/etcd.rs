//! A mark in etcd that refuses older tokens, for what is written to etcd.

use incumbent_core::{ElectionName, StoreId};
use incumbent_etcd::{EtcdMark, EtcdStore, EtcdWrite};

use super::mark::{answer, check_election};
use super::{BoxFuture, Fence, FenceError, FencingToken};

/// Guards what is written to etcd: every write compares the mark in the same transaction.
///
/// The mark may be in the same cluster as the election or in another. In the same cluster,
/// [`EtcdStore::guard`] does without a mark.
#[derive(Clone, Debug)]
pub struct EtcdFence {
    mark: EtcdMark,
}

impl EtcdFence {
    /// Keeps its mark at `key`, for the leaders of `election`.
    pub fn new(store: &EtcdStore, election: &ElectionName, key: impl Into<Vec<u8>>) -> EtcdFence {
        EtcdFence { mark: EtcdMark::new(store, election, key) }
    }

    /// Checks the token and commits `writes`, in one step. A token above the mark raises it.
    ///
    /// If the answer is lost, [`FenceError::Unavailable`] leaves open whether they were committed.
    pub async fn write(&self, token: &FencingToken, writes: impl Into<Vec<EtcdWrite>>) -> Result<(), FenceError> {
        answer(token, self.mark.write(&token.store, token.token, writes).await?)
    }

    /// An operator's act, for a store that was replaced or restored: from now on the tokens of `store` count, from the
    /// first one. Make sure that no leader of the old store still runs. It is logged as a warning.
    pub async fn reset(&self, store: &StoreId, reason: &str) -> Result<(), FenceError> {
        tracing::warn!(election = %self.mark.election(), %store, reason, "the fence is reset");
        Ok(self.mark.reset(store).await?)
    }
}

impl Fence for EtcdFence {
    fn raise<'a>(&'a self, election: &'a ElectionName, to: FencingToken) -> BoxFuture<'a, Result<(), FenceError>> {
        Box::pin(async move {
            check_election(self.mark.election(), election)?;
            answer(&to, self.mark.raise(&to.store, to.token).await?)
        })
    }
}
