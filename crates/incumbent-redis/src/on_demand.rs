//! Something that is made when it is needed, once for all who ask at the same time, and again when
//! it was lost.

use std::fmt;
use std::future::Future;
use std::sync::{Mutex, MutexGuard};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use incumbent_store::{StoreError, lock};

type Making<T> = Shared<BoxFuture<'static, Result<T, StoreError>>>;

/// A connection, as a rule.
pub(crate) struct OnDemand<T> {
    state: Mutex<State<T>>,
}

struct State<T> {
    /// How many were made: what was lost is forgotten only while it is still the present one.
    generation: u64,
    making: Option<Making<T>>,
}

impl<T: Clone + Send + 'static> OnDemand<T> {
    pub(crate) fn new() -> OnDemand<T> {
        OnDemand { state: Mutex::new(State { generation: 0, making: None }) }
    }

    /// What there is, or what `make` gives, which is told its number. If it cannot be made, all who
    /// have waited for it are told, and the next one tries again.
    pub(crate) async fn get<F>(&self, make: impl FnOnce(u64) -> F) -> Result<(u64, T), StoreError>
    where
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let (generation, making) = {
            let mut state = self.lock();
            if state.making.is_none() {
                state.generation += 1;
                state.making = Some(make(state.generation).boxed().shared());
            }
            (state.generation, state.making.clone())
        };
        let Some(making) = making else { return Err(lost()) };
        let made = making.await;
        if made.is_err() {
            self.forget(generation);
        }
        made.map(|made| (generation, made))
    }

    /// How many were made so far.
    pub(crate) fn generation(&self) -> u64 {
        self.lock().generation
    }

    /// This one is of no use any more.
    pub(crate) fn forget(&self, generation: u64) {
        let mut state = self.lock();
        if state.generation == generation {
            state.making = None;
        }
    }

    /// Whichever there is is of no use any more.
    pub(crate) fn forget_current(&self) {
        self.lock().making = None;
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        lock(&self.state)
    }
}

fn lost() -> StoreError {
    StoreError::Unavailable { what: "the connection was lost".to_owned(), source: None }
}

impl<T> fmt::Debug for OnDemand<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnDemand").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn those_who_ask_together_share_one_attempt_and_a_failed_one_is_not_kept() {
        let lazy = OnDemand::new();
        let made = |number| async move {
            tokio::task::yield_now().await;
            Ok(number)
        };
        let both = tokio::join!(lazy.get(made), lazy.get(made));
        assert_eq!((both.0.unwrap(), both.1.unwrap()), ((1, 1), (1, 1)));
        lazy.forget(1);
        assert!(lazy.get(|_| async { Err(lost()) }).await.is_err());
        assert_eq!(lazy.get(made).await.unwrap(), (3, 3));
        lazy.forget(2);
        assert_eq!(lazy.get(made).await.unwrap(), (3, 3), "only what is there can be lost");
    }
}
