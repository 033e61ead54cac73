//! What a candidate does before it takes over from a leader that hands over to it.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use incumbent_core::ElectionName;

use crate::fence::BoxFuture;

/// A leader is to hand over to this candidate, once it is ready.
///
/// It says nothing of a token. The candidate has none before it is in office: one early write with
/// the token that it is going to have would raise a fence's mark, and lock out the leader.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HeirRequest {
    /// The election.
    pub election: ElectionName,
    /// How long the leader waits, counted since it has read the request.
    pub within: Duration,
    /// What a known-bad variant gives away.
    #[cfg(feature = "flaws")]
    #[doc(hidden)]
    pub token: Option<crate::fence::FencingToken>,
}

/// What was got ready: dropped when it is of no use any more.
pub(crate) type Readiness = Box<dyn Any + Send>;

type Hook = dyn Fn(HeirRequest) -> BoxFuture<'static, Result<Readiness, String>> + Send + Sync;

/// Gets a candidate ready.
#[derive(Clone)]
pub(crate) struct ReadyHook(Arc<Hook>);

impl fmt::Debug for ReadyHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadyHook")
    }
}

impl ReadyHook {
    pub(crate) fn new<W, R, E>(hook: impl Fn(HeirRequest) -> W + Send + Sync + 'static) -> ReadyHook
    where
        W: Future<Output = Result<R, E>> + Send + 'static,
        R: Send + 'static,
        E: fmt::Display,
    {
        ReadyHook(Arc::new(move |request| {
            let work = hook(request);
            Box::pin(async move {
                match work.await {
                    Ok(readiness) => Ok(Box::new(readiness) as Readiness),
                    Err(why) => Err(why.to_string()),
                }
            })
        }))
    }

    pub(crate) fn run(&self, request: HeirRequest) -> BoxFuture<'static, Result<Readiness, String>> {
        (self.0)(request)
    }
}
