//! A resource that all leaders of one election share: it takes time to reach, and now and then it
//! cannot be.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use incumbent::fence::{BoxFuture, MemoryFence};
use incumbent::{Fence, FenceError, FencingToken};
use incumbent_core::{ElectionName, Rng, StoreId};
use incumbent_store::lock;
use tokio::time::sleep;

use super::checker::{Checker, term_id};

#[derive(Debug)]
pub(crate) struct Resource {
    election: usize,
    guarded: MemoryFence<()>,
    checker: Arc<Checker>,
    rng: Mutex<Rng>,
    /// How long it takes at most, and how often of a thousand it fails.
    luck: Mutex<(Duration, u64)>,
}

impl Resource {
    pub(crate) fn new(checker: &Arc<Checker>, election: usize, rng: Rng, luck: (Duration, u64)) -> Arc<Resource> {
        let guarded = MemoryFence::new(checker.name(election), ());
        Arc::new(Resource { election, guarded, checker: checker.clone(), rng: Mutex::new(rng), luck: Mutex::new(luck) })
    }

    pub(crate) fn heal(&self) {
        *lock(&self.luck) = (Duration::from_millis(2), 0);
    }

    /// An operator has seen that the store was replaced, and lets the new one in.
    pub(crate) fn reset(&self, store: &StoreId) {
        if let Err(error) = self.guarded.reset(store, "another store answers") {
            self.checker.fail("S3", format!("a fence cannot be reset: {error}"));
        }
    }

    /// A leader writes.
    pub(crate) fn write(&self, token: &FencingToken) {
        if self.guarded.write(token, |()| ()).is_ok() {
            self.checker.written(self.election, token);
        }
    }

    /// A leader is in office: every older one must be shut out by now.
    pub(crate) fn check_raised(&self, token: &FencingToken) {
        let mark = self.guarded.mark().ok().flatten();
        // An older store's token counts no more, and is refused as such.
        let outdated = term_id(token).0 < self.checker.generation();
        if !outdated && mark.as_ref().is_none_or(|mark| term_id(mark) < term_id(token)) {
            self.checker.fail("S3", format!("{token} is in office, and the fence stands at {mark:?}"));
        }
    }

    fn draw(&self) -> (Duration, bool) {
        let (longest, failing) = *lock(&self.luck);
        let mut rng = lock(&self.rng);
        (Duration::from_nanos(rng.below(longest.as_nanos() as u64 + 1)), rng.below(1000) < failing)
    }
}

impl Fence for Resource {
    fn raise<'a>(&'a self, election: &'a ElectionName, to: FencingToken) -> BoxFuture<'a, Result<(), FenceError>> {
        Box::pin(async move {
            let (before, fails) = self.draw();
            sleep(before).await;
            if fails {
                return Err(FenceError::Unavailable { what: "the resource".to_owned(), source: None });
            }
            let raised = self.guarded.raise(election, to).await;
            sleep(self.draw().0).await;
            raised
        })
    }
}
