//! A value in this process that refuses older tokens.

use std::fmt;
use std::sync::{Mutex, MutexGuard};

use incumbent_core::{ElectionName, StoreId};
use incumbent_store::fence::{Mark, check_election, log_reset};

use super::{BoxFuture, Fence, FenceError, FencingToken};

/// Guards a value of this process for one election. Its mark lives as long as it does.
///
/// ```
/// use std::sync::Arc;
/// use incumbent::fence::{ElectionName, Fence, FenceError, FencingToken, MemoryFence, StoreId, Token};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let election = ElectionName::new("jobs/nightly")?;
/// let store = StoreId::new("store-1");
/// let earlier = FencingToken::new(Token::new(100).unwrap(), store.clone());
/// let later = FencingToken::new(Token::new(101).unwrap(), store);
///
/// let ledger = Arc::new(MemoryFence::new(&election, Vec::new()));
/// ledger.write(&earlier, |lines| lines.push("from the first leader"))?;
///
/// // The next leader raises the fence before it sees its office ...
/// ledger.raise(&election, later).await?;
///
/// // ... so the late write of the first one is refused, although the second has not written yet.
/// let late = ledger.write(&earlier, |lines| lines.push("too late"));
/// assert!(matches!(late, Err(FenceError::Stale { .. })));
/// assert_eq!(ledger.read(|lines| lines.len())?, 1);
/// # Ok(())
/// # }
/// ```
pub struct MemoryFence<T> {
    election: ElectionName,
    guarded: Mutex<Guarded<T>>,
}

struct Guarded<T> {
    mark: Option<Mark>,
    value: T,
}

impl<T> MemoryFence<T> {
    /// Guards `value` for the leaders of `election`.
    pub fn new(election: &ElectionName, value: T) -> MemoryFence<T> {
        MemoryFence { election: election.clone(), guarded: Mutex::new(Guarded { mark: None, value }) }
    }

    /// Checks the token and changes the value, in one step. A token above the mark raises it.
    ///
    /// With an older token nothing happens: `work` is not called. Everybody else waits while it
    /// runs, so keep it short.
    pub fn write<R>(&self, token: &FencingToken, work: impl FnOnce(&mut T) -> R) -> Result<R, FenceError> {
        let mut guarded = self.lock()?;
        guarded.mark = Some(Mark::admit(guarded.mark.as_ref(), token)?);
        Ok(work(&mut guarded.value))
    }

    /// Looks at the value. Anybody may.
    pub fn read<R>(&self, read: impl FnOnce(&T) -> R) -> Result<R, FenceError> {
        Ok(read(&self.lock()?.value))
    }

    /// The highest token that was shown, if there was one.
    pub fn mark(&self) -> Result<Option<FencingToken>, FenceError> {
        Ok(self.lock()?.mark.as_ref().and_then(Mark::fencing_token))
    }

    /// An operator's act, for a store that was replaced or restored: from now on the tokens of
    /// `store` count, from the first one, and those of any other store are refused.
    ///
    /// Make sure that no leader of the old store still runs: where the identity of the store is the
    /// same (a restored backup), the fence can no longer tell that leader's token from a good one.
    /// It is logged as a warning.
    pub fn reset(&self, store: &StoreId, reason: &str) -> Result<(), FenceError> {
        let mark = Mark::reset(store, reason)?;
        let mut guarded = self.lock()?;
        log_reset(&self.election, guarded.mark.as_ref(), store, reason);
        guarded.mark = Some(mark);
        Ok(())
    }

    /// Gives the value back.
    pub fn into_inner(self) -> T {
        // The value is given back even if a write panicked, after which the fence refuses every
        // other access to it.
        self.guarded.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()).value
    }

    fn lock(&self) -> Result<MutexGuard<'_, Guarded<T>>, FenceError> {
        self.guarded.lock().map_err(|_| FenceError::Corrupt {
            what: format!("a write to the value guarded for {:?} panicked half-way", self.election),
        })
    }
}

impl<T: Send + 'static> Fence for MemoryFence<T> {
    fn raise<'a>(&'a self, election: &'a ElectionName, to: FencingToken) -> BoxFuture<'a, Result<(), FenceError>> {
        Box::pin(async move {
            check_election(&self.election, election)?;
            self.write(&to, |_| ())
        })
    }
}

impl<T> fmt::Debug for MemoryFence<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryFence").field("election", &self.election).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::thread;

    use incumbent_core::Token;

    use super::*;

    fn election() -> ElectionName {
        ElectionName::new("jobs/nightly").unwrap()
    }

    fn token(number: u64) -> FencingToken {
        FencingToken::new(Token::new(number).unwrap(), StoreId::new("s"))
    }

    #[tokio::test]
    async fn once_raised_an_older_leader_cannot_write_even_if_the_new_one_has_not() {
        let fence = MemoryFence::new(&election(), 0);
        fence.write(&token(100), |value| *value = 1).unwrap();
        fence.raise(&election(), token(101)).await.unwrap();

        let late = fence.write(&token(100), |value| *value = 2);

        assert!(matches!(late, Err(FenceError::Stale { .. })), "{late:?}");
        assert_eq!(fence.read(|value| *value).unwrap(), 1);
        assert_eq!(fence.mark().unwrap(), Some(token(101)));
    }

    #[tokio::test]
    async fn raising_twice_changes_nothing_and_raising_to_less_is_stale() {
        let fence = MemoryFence::new(&election(), ());
        fence.raise(&election(), token(7)).await.unwrap();
        fence.raise(&election(), token(7)).await.unwrap();
        assert!(matches!(fence.raise(&election(), token(6)).await, Err(FenceError::Stale { .. })));
        assert_eq!(fence.mark().unwrap(), Some(token(7)));
    }

    #[tokio::test]
    async fn another_election_cannot_raise_it() {
        let fence = Arc::new(MemoryFence::new(&election(), ()));
        let other = ElectionName::new("jobs/hourly").unwrap();
        assert!(matches!(fence.raise(&other, token(7)).await, Err(FenceError::Misuse { .. })));
        assert_eq!(fence.mark().unwrap(), None);
    }

    #[test]
    fn leaders_that_write_at_once_leave_the_value_of_the_newest() {
        let fence = MemoryFence::new(&election(), 0);
        thread::scope(|scope| {
            for number in 1..=64 {
                let fence = &fence;
                scope.spawn(move || fence.write(&token(number), |value| *value = number));
            }
        });
        assert_eq!(fence.read(|value| *value).unwrap(), 64);
    }

    #[test]
    fn a_write_that_panicked_closes_the_fence() {
        let fence = MemoryFence::new(&election(), 0);
        let panicked = catch_unwind(AssertUnwindSafe(|| fence.write(&token(1), |_| panic!("half-way"))));
        assert!(panicked.is_err());
        assert!(matches!(fence.write(&token(2), |_| ()), Err(FenceError::Corrupt { .. })));
        assert_eq!(fence.into_inner(), 0);
    }

    #[test]
    fn a_reset_lets_the_new_store_in_and_keeps_the_old_one_out() {
        let fence = MemoryFence::new(&election(), 0);
        fence.write(&token(100), |value| *value = 1).unwrap();
        let new = FencingToken::new(Token::new(1).unwrap(), StoreId::new("new"));
        assert!(matches!(fence.write(&new, |_| ()), Err(FenceError::StoreReplaced { .. })));

        fence.reset(&new.store, "the cluster was rebuilt").unwrap();

        fence.write(&new, |value| *value = 2).unwrap();
        assert!(matches!(fence.write(&token(100), |_| ()), Err(FenceError::StoreReplaced { .. })));
        assert_eq!(fence.read(|value| *value).unwrap(), 2);
    }
}
