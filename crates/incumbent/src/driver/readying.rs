//! What a candidate does to get ready as an heir, and the task in which it does that.
//!
//! It is the user's code, as fences are: it runs in a task of its own, and what it has got ready is
//! dropped in one. One that blocks stops no renewal.

use futures_util::future::AbortHandle;
use incumbent_core::{Decline, LONGEST, Nonce};

use super::fences::in_task;
use crate::heir::{HeirRequest, Readiness, ReadyHook};
use crate::hooks::Hooks;

/// What is being got ready for a handover, or has been.
#[derive(Debug)]
pub(super) struct Readying {
    hooks: Hooks,
    nonce: Nonce,
    work: AbortHandle,
    readiness: Option<Readiness>,
}

/// What came of it.
pub(super) type Readied = Result<Readiness, Decline>;

impl Readying {
    /// Begins. The future answers when it has ended, or was given up by dropping this.
    pub(super) fn begin(
        hooks: &Hooks,
        hook: &ReadyHook,
        nonce: Nonce,
        request: HeirRequest,
    ) -> (Readying, impl Future<Output = Readied> + Send + use<>) {
        let (election, within) = (request.election.clone(), request.within.min(LONGEST));
        let hook = hook.clone();
        let (handle, ended) = in_task(hooks, async move { tokio::time::timeout(within, hook.run(request)).await });
        let readied = async move {
            let (why, decline) = match ended.await {
                Some(Ok(Ok(readiness))) => return Ok(readiness),
                Some(Ok(Err(why))) => (why, Decline::Failed),
                Some(Err(_)) => (format!("it took longer than {within:?}"), Decline::TimedOut),
                None => ("it was given up, or has panicked".to_owned(), Decline::Failed),
            };
            tracing::warn!(%election, "not ready to take over: {why}");
            Err(decline)
        };
        (Readying { hooks: hooks.clone(), nonce, work: handle, readiness: None }, readied)
    }

    /// It has ended. What to tell the machine of it, unless it is of an earlier handover.
    pub(super) fn end(&mut self, nonce: Nonce, readied: Readied) -> Option<Result<(), Decline>> {
        if nonce != self.nonce {
            discard(&self.hooks, readied.ok());
            return None;
        }
        Some(readied.map(|readiness| self.readiness = Some(readiness)))
    }

    /// Whether it is of this handover.
    pub(super) fn is_for(&self, nonce: Nonce) -> bool {
        self.nonce == nonce
    }

    pub(super) fn is_ready(&self) -> bool {
        self.readiness.is_some()
    }
}

impl Drop for Readying {
    fn drop(&mut self) {
        self.work.abort();
        discard(&self.hooks, self.readiness.take());
    }
}

/// Drops it where that holds up nobody.
pub(super) fn discard(hooks: &Hooks, readiness: Option<Readiness>) {
    if let Some(readiness) = readiness {
        // A runtime that is going runs nothing any more.
        if hooks.spawn.is_some() || tokio::runtime::Handle::try_current().is_ok() {
            hooks.spawn(async move { drop(readiness) });
        }
    }
}
