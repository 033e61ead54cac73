//! What a simulation of the library needs to decide: the randomness, who runs the tasks, and which
//! known-bad variant is tried. Nobody else does: the randomness is the system's, tasks are tokio's,
//! and nothing is wrong.

use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use incumbent_store::random_words;

use crate::flaw::Flaws;

/// Runs the tasks of a client, in place of [`tokio::spawn`]: one that is simulated can be paused,
/// delayed and killed.
pub trait Spawn: Debug + Send + Sync + 'static {
    /// Runs a task to its end, unless it is killed.
    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>);
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Hooks {
    pub(crate) seed: Option<[u64; 4]>,
    pub(crate) spawn: Option<Arc<dyn Spawn>>,
    pub(crate) flaws: Flaws,
}

impl Hooks {
    /// What the randomness of a client comes from.
    pub(crate) fn seed(&self) -> io::Result<[u64; 4]> {
        self.seed.map_or_else(random_words, Ok)
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        match &self.spawn {
            Some(simulated) => simulated.spawn(Box::pin(task)),
            None => drop(tokio::spawn(task)),
        }
    }
}
