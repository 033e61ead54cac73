//! Waiting for what must come, in real time. How long a wait may last is for a machine that is very
//! busy: nothing lasts so long unless it is broken, and no test says how fast anything is.

use std::future::Future;
use std::time::Duration;

/// Nothing takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
/// The time between two looks.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Looks are counted, not timed: on a busy machine each takes longer.
pub(crate) const LOOKS: usize = 3000;

/// What the future answers. Panics if it does not.
pub async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("timed out")
}

/// Looks again until it is so. Panics, and says what was waited for, if it never is.
pub async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    for _ in 0..LOOKS {
        if so().await {
            return;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    panic!("timed out: {what}");
}

/// Looks again until there is something to be found. `None`: there never is. In a task of its own,
/// too, where [`until`] cannot be.
pub async fn found<T, F: Future<Output = Option<T>>>(mut look: impl FnMut() -> F) -> Option<T> {
    for _ in 0..LOOKS {
        let found = look().await;
        if found.is_some() {
            return found;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "timed out")]
    async fn what_never_answers_is_not_waited_for_for_ever() {
        within(std::future::pending::<()>()).await;
    }

    #[tokio::test(start_paused = true)]
    async fn one_looks_until_it_is_so_and_no_longer() {
        let mut looks = 0;
        let so = async || {
            looks += 1;
            looks == 3
        };
        until("the third look", so).await;
        assert_eq!(looks, 3);
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "timed out: the end of time")]
    async fn what_never_becomes_so_is_named() {
        until("the end of time", async || false).await;
    }
}
