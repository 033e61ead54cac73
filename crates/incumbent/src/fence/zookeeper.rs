//! A mark in ZooKeeper that refuses older tokens, for what is written to ZooKeeper.

use incumbent_core::{ElectionName, StoreId};
use incumbent_store::StoreError;
use incumbent_zookeeper::zookeeper_client::{Error, MultiWriter};
use incumbent_zookeeper::{Marked, ZooKeeperMark, ZooKeeperStore};

use super::mark::check_election;
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
        answer(token, self.mark.write(&token.store, token.token, fill).await)
    }

    /// An operator's act, for a store that was replaced or restored: from now on the tokens of `store` count, from the
    /// first one. Make sure that no leader of the old store still runs. It is logged as a warning.
    pub async fn reset(&self, store: &StoreId, reason: &str) -> Result<(), FenceError> {
        tracing::warn!(election = %self.mark.election(), %store, reason, "the fence is reset");
        self.mark.reset(store).await.map_err(sorted)
    }
}

impl Fence for ZooKeeperFence {
    fn raise<'a>(&'a self, election: &'a ElectionName, to: FencingToken) -> BoxFuture<'a, Result<(), FenceError>> {
        Box::pin(async move {
            check_election(self.mark.election(), election)?;
            answer(&to, self.mark.raise(&to.store, to.token).await)
        })
    }
}

fn answer(shown: &FencingToken, marked: Result<Marked, StoreError>) -> Result<(), FenceError> {
    match marked.map_err(sorted)? {
        Marked::Done => Ok(()),
        Marked::Stale(mark) => Err(FenceError::Stale { token: shown.token, mark }),
        Marked::StoreReplaced { mark, store } => {
            Err(FenceError::StoreReplaced { mark, mark_store: store, token: shown.token, store: shown.store.clone() })
        }
    }
}

/// A mark that may or may not have been raised is raised again.
fn sorted(error: StoreError) -> FenceError {
    match error {
        StoreError::Unavailable { what, source } | StoreError::OutcomeUnknown { what, source } => {
            FenceError::Unavailable { what, source }
        }
        StoreError::Corrupt { what } | StoreError::Foreign { what } => FenceError::Corrupt { what },
        StoreError::Denied { what, source } => FenceError::Denied { what, source },
        StoreError::Limit { what } => FenceError::Limit { what },
        other => FenceError::Misuse { what: other.to_string() },
    }
}
