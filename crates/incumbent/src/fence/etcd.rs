//! A mark in etcd that refuses older tokens, for what is written to etcd.

use incumbent_core::{ElectionName, StoreId};
use incumbent_etcd::etcd_client::TxnOp;
use incumbent_etcd::{EtcdMark, EtcdStore, Marked};
use incumbent_store::StoreError;

use super::mark::check_election;
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

    /// Checks the token and commits `operations`, in one step. A token above the mark raises it.
    ///
    /// If the answer is lost, [`FenceError::Unavailable`] leaves open whether they were committed.
    pub async fn write(&self, token: &FencingToken, operations: impl Into<Vec<TxnOp>>) -> Result<(), FenceError> {
        answer(token, self.mark.write(&token.store, token.token, operations).await)
    }

    /// An operator's act, for a store that was replaced or restored: from now on the tokens of `store` count, from the
    /// first one. Make sure that no leader of the old store still runs. It is logged as a warning.
    pub async fn reset(&self, store: &StoreId, reason: &str) -> Result<(), FenceError> {
        tracing::warn!(election = %self.mark.election(), %store, reason, "the fence is reset");
        self.mark.reset(store).await.map_err(sorted)
    }
}

impl Fence for EtcdFence {
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
