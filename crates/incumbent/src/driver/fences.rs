//! The fences of one candidacy, and the task that raises them.
//!
//! Fences are the user's code. They run in a task of their own, so that one that blocks stops no renewal, no heartbeat and
//! no vote.

use std::future::Future;
use std::sync::Arc;

use futures_util::future::{AbortHandle, Abortable};
use incumbent_core::{ElectionName, Fault};
use incumbent_store::StoreId;
use tokio::sync::oneshot;

use crate::error::CandidacyError;
use crate::fence::{Fence, FenceError, FencingToken};
use crate::hooks::Hooks;

pub(super) struct Fences {
    election: ElectionName,
    fences: Arc<[Arc<dyn Fence>]>,
    /// A fence has called the token stale that we are taking office with.
    called_stale: bool,
}

/// Ends a task when it is dropped.
struct Abort(AbortHandle);

impl Drop for Abort {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Fences {
    pub(super) fn new(election: ElectionName, fences: Vec<Arc<dyn Fence>>) -> Fences {
        Fences { election, fences: fences.into(), called_stale: false }
    }

    /// Another leader is known: what a fence said of the last token is of no interest.
    pub(super) fn forget(&mut self) {
        self.called_stale = false;
    }

    /// Raises all of them, in order. Dropping what is answered ends it.
    pub(super) fn raise(
        &self,
        hooks: &Hooks,
        token: FencingToken,
    ) -> impl Future<Output = Result<(), FenceError>> + Send + use<> {
        let (election, fences) = (self.election.clone(), self.fences.clone());
        let (done, raised) = oneshot::channel();
        let (handle, registration) = AbortHandle::new_pair();
        let raise = async move {
            for fence in fences.iter() {
                fence.raise(&election, token.clone()).await?;
            }
            Ok(())
        };
        hooks.spawn(async move {
            if let Ok(result) = Abortable::new(raise, registration).await {
                // Nobody waits for it any more, if this fails.
                let _ = done.send(result);
            }
        });
        let abort = Abort(handle);
        async move {
            let result = raised.await;
            drop(abort);
            // It ended without an answer: it has panicked, or the runtime is going.
            result.unwrap_or_else(|_| {
                Err(FenceError::Unavailable { what: "the fence has ended without an answer".to_owned(), source: None })
            })
        }
    }

    /// What to make of a fence that could not be raised.
    ///
    /// One that calls us stale knows a newer leader, or the history of another store. The machine makes sure once more
    /// that we are the one: if we are, then there is no newer leader.
    pub(super) fn on_error(&mut self, store: &StoreId, error: FenceError) -> (Fault, CandidacyError) {
        let stale = matches!(error, FenceError::Stale { .. });
        let again = std::mem::replace(&mut self.called_stale, stale);
        match (stale, again) {
            (true, false) => (Fault::Unavailable, CandidacyError::Fence(error)),
            (true, true) => (Fault::Permanent, CandidacyError::Fence(error.seen_leading(store))),
            (false, _) => (error.fault(), CandidacyError::Fence(error)),
        }
    }
}
