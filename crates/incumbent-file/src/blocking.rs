//! Where the file work runs: on the runtime's threads for blocking work, never on those that drive tasks.
//!
//! Most calls take microseconds, but a sync can take seconds when the disk is busy, and a thread that hangs in it must
//! not be one that has to stop a leader's work in time. A future that is dropped leaves its job running: its effect
//! is then unknown to the caller, and found by the next renewal.

use std::sync::Arc;

use incumbent_store::StoreError;
use tokio::runtime::Handle;

use crate::directory::Directory;

/// Runs `job` where it may block, and afterwards what it has left for later.
pub(crate) async fn on_disk<T: Send + 'static>(
    what: &'static str,
    directory: Arc<Directory>,
    job: impl FnOnce(&Arc<Directory>) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let Ok(runtime) = Handle::try_current() else {
        return Err(StoreError::Misuse { what: format!("{what} needs a tokio runtime") });
    };
    let later = runtime.clone();
    let job = move || {
        let answer = job(&directory);
        if directory.has_chores() {
            later.spawn_blocking(move || directory.do_chores());
        }
        answer
    };
    match runtime.spawn_blocking(job).await {
        Ok(answer) => answer,
        Err(error) => Err(StoreError::unknown(what, error)),
    }
}
