//! The fences of one candidacy, and the task that raises them.
//!
//! Fences are the user's code. They run in a task of their own, so that one that blocks stops no
//! renewal, no heartbeat and no vote. One that blocks cannot be dropped either: a raise that was
//! given up is over when its task is, and the machine begins no other before it has been told so.

use std::future::Future;
use std::sync::Arc;

use futures_util::future::{AbortHandle, Abortable};
use incumbent_core::{ElectionName, Fault, Token};
use incumbent_store::StoreId;
use tokio::sync::oneshot;

use crate::error::CandidacyError;
use crate::fence::{Fence, FenceError, FencingToken};
use crate::hooks::Hooks;

pub(super) struct Fences {
    pub(super) election: ElectionName,
    fences: Arc<[Arc<dyn Fence>]>,
    /// The token that a fence has called stale.
    called_stale: Option<Token>,
    /// The token of which it was logged that an operator has to settle it.
    told_of: Option<Token>,
}

/// Ends a task when it is dropped.
struct Abort(AbortHandle);

impl Drop for Abort {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs the user's code in a task of its own. The handle gives it up, and so does dropping the
/// future, which answers when nothing is left of it. `None`: it was given up or has panicked, or
/// the runtime is going.
pub(super) fn in_task<T: Send + 'static, W: Future<Output = T> + Send + 'static>(
    hooks: &Hooks,
    work: W,
) -> (AbortHandle, impl Future<Output = Option<T>> + Send + use<T, W>) {
    let (done, ended) = oneshot::channel();
    let (handle, registration) = AbortHandle::new_pair();
    hooks.spawn(async move {
        if let Ok(result) = Abortable::new(work, registration).await {
            // Nobody waits for it any more, if this fails.
            let _ = done.send(result);
        }
    });
    let abort = Abort(handle.clone());
    let ended = async move {
        let result = ended.await;
        drop(abort);
        result.ok()
    };
    (handle, ended)
}

impl Fences {
    pub(super) fn new(election: ElectionName, fences: Vec<Arc<dyn Fence>>) -> Fences {
        Fences { election, fences: fences.into(), called_stale: None, told_of: None }
    }

    /// Another leader is known: what a fence said of the last token is of no interest.
    pub(super) fn forget(&mut self) {
        self.called_stale = None;
    }

    /// Raises all of them, in order. The handle gives that up, and so does dropping the future. It
    /// answers when nothing is left of the raise.
    pub(super) fn raise(
        &self,
        hooks: &Hooks,
        token: FencingToken,
    ) -> (AbortHandle, impl Future<Output = Result<(), FenceError>> + Send + use<>) {
        let (election, fences) = (self.election.clone(), self.fences.clone());
        let (handle, raised) = in_task(hooks, async move {
            for fence in fences.iter() {
                fence.raise(&election, token.clone()).await?;
            }
            Ok(())
        });
        let raised = async move {
            let what = || "the fence has ended without an answer".to_owned();
            raised.await.unwrap_or_else(|| Err(FenceError::Unavailable { what: what(), source: None }))
        };
        (handle, raised)
    }

    /// What to make of a fence that could not be raised to this token.
    ///
    /// One that calls us stale knows a newer leader, or the history of another store. The machine
    /// makes sure once more that we are the one: if we are, then there is no newer leader.
    ///
    /// A store that was replaced is for an operator to settle, who resets the fence. Until then
    /// nobody is in office, and somebody has to be left who can be elected afterwards: it is tried
    /// again, like a fence that does not answer.
    pub(super) fn on_error(&mut self, store: &StoreId, token: Token, error: FenceError) -> (Fault, CandidacyError) {
        let stale = matches!(error, FenceError::Stale { .. });
        let again = std::mem::replace(&mut self.called_stale, stale.then_some(token)) == Some(token);
        let error = if stale && again { error.seen_leading(store) } else { error };
        let fault = match &error {
            FenceError::Stale { .. } => Fault::Unavailable,
            FenceError::StoreReplaced { .. } => {
                if self.told_of.replace(token) != Some(token) {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(
                        error,
                        "nobody is in office until an operator has reset the fence \
                         (docs/runbooks.md#the-store-was-restored)"
                    );
                }
                Fault::Unavailable
            }
            other => other.fault(),
        };
        (fault, CandidacyError::Fence(error))
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::Mutex;
    use std::task::{Context, Waker};

    use super::*;
    use crate::fence::BoxFuture;
    use crate::hooks::Spawn;

    type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

    /// Tasks run when a test says so: one that does not run blocks its thread.
    #[derive(Default)]
    struct ByHand(Mutex<Vec<Task>>);

    impl std::fmt::Debug for ByHand {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("ByHand")
        }
    }

    impl Spawn for ByHand {
        fn spawn(&self, task: Task) {
            self.0.lock().unwrap_or_else(|error| panic!("{error}")).push(task);
        }
    }

    impl ByHand {
        fn run(&self) {
            let mut cx = Context::from_waker(Waker::noop());
            self.0
                .lock()
                .unwrap_or_else(|error| panic!("{error}"))
                .retain_mut(|task| task.as_mut().poll(&mut cx).is_pending());
        }
    }

    /// A fence that never answers.
    #[derive(Debug)]
    struct Hung;

    impl Fence for Hung {
        fn raise<'a>(&'a self, _: &'a ElectionName, _: FencingToken) -> BoxFuture<'a, Result<(), FenceError>> {
            Box::pin(std::future::pending())
        }
    }

    fn fences() -> Fences {
        let election = ElectionName::new("e").unwrap_or_else(|error| panic!("{error}"));
        Fences::new(election, vec![Arc::new(Hung)])
    }

    fn token(number: u64) -> Token {
        Token::new(number).unwrap_or_else(|| panic!("a token"))
    }

    #[test]
    fn a_raise_that_was_given_up_is_answered_once_its_task_has_ended() {
        let tasks = Arc::new(ByHand::default());
        let hooks = Hooks { spawn: Some(tasks.clone()), ..Hooks::default() };
        let (raise, raised) = fences().raise(&hooks, FencingToken::new(token(5), StoreId::new("s")));
        let (mut raised, mut cx) = (Box::pin(raised), Context::from_waker(Waker::noop()));
        tasks.run();
        raise.abort();
        assert!(raised.as_mut().poll(&mut cx).is_pending(), "it is still in the user's hands");
        tasks.run();
        assert!(raised.as_mut().poll(&mut cx).is_ready());
    }

    #[test]
    fn a_fence_is_at_odds_with_the_store_when_it_calls_the_same_token_stale_twice() {
        let (mut fences, store) = (fences(), StoreId::new("s"));
        let stale = || FenceError::Stale { token: token(5), mark: token(9) };
        assert_eq!(fences.on_error(&store, token(5), stale()).0, Fault::Unavailable);
        // Said late, of an earlier term: the next one has been called stale by nobody yet.
        assert_eq!(fences.on_error(&store, token(6), stale()).0, Fault::Unavailable);
        let (fault, error) = fences.on_error(&store, token(6), stale());
        assert!(matches!(error, CandidacyError::Fence(FenceError::StoreReplaced { .. })), "{error:?}");
        assert_eq!(fault, Fault::Unavailable, "an operator may reset the fence, and then it is let in");
        let denied = FenceError::Denied { what: "no".to_owned(), source: None };
        assert_eq!(fences.on_error(&store, token(6), denied).0, Fault::Permanent);
    }
}
