//! A mark in ZooKeeper that refuses older tokens, for what is written to ZooKeeper.

use incumbent_core::{ElectionName, StoreId};
use incumbent_zookeeper::zookeeper_client::{Error, MultiWriter};
use incumbent_zookeeper::{ZooKeeperMark, ZooKeeperStore};

use super::mark::{answer, check_election};
use super::{BoxFuture, Fence, FenceError, FencingToken};

/// Guards what is written to ZooKeeper: every write checks the mark in the same transaction.
///
/// The mark may be in the same ensemble as the election or in another. In the same ensemble,
/// [`ZooKeeperStore::guard`] does without a mark.
#[derive(Clone, Debug)]
pub struct ZooKeeperFence {
    mark: ZooKeeperMark,
}

impl ZooKeeperFence {
    /// Keeps its mark at `path`, for the leaders of `election`.
    pub fn new(store: &ZooKeeperStore, election: &ElectionName, path: impl Into<String>) -> ZooKeeperFence {
        ZooKeeperFence { mark: ZooKeeperMark::new(store, election, path) }
    }

    /// Checks the token and commits the operations that `fill` adds, in one step. A token above the mark raises it.
    ///
    /// If the answer is lost, [`FenceError::Unavailable`] leaves open whether they were committed.
    pub async fn write<F>(&self, token: &FencingToken, fill: F) -> Result<(), FenceError>
    where
        F: Fn(&mut MultiWriter<'_>) -> Result<(), Error> + Send + Sync,
    {
        answer(token, self.mark.write(&token.store, token.token, fill).await?)
    }

    /// An operator's act, for a store that was replaced or restored: from now on the tokens of `store` count, from the
    /// first one. Make sure that no leader of the old store still runs. It is logged as a warning.
    pub async fn reset(&self, store: &StoreId, reason: &str) -> Result<(), FenceError> {
        tracing::warn!(election = %self.mark.election(), %store, reason, "the fence is reset");
        Ok(self.mark.reset(store).await?)
    }
}

impl Fence for ZooKeeperFence {
    fn raise<'a>(&'a self, election: &'a ElectionName, to: FencingToken) -> BoxFuture<'a, Result<(), FenceError>> {
        Box::pin(async move {
            check_election(self.mark.election(), election)?;
            answer(&to, self.mark.raise(&to.store, to.token).await?)
        })
    }
}
