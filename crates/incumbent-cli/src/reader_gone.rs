//! Notices that the reader of standard output has gone, although there is nothing to write:
//! `observe | head -1` ends.

use std::io;
use std::os::fd::AsFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Resolves once the reader of our standard output has gone: a pipe without readers, a socket or a
/// terminal that was hung up. Never for a file, which has no reader that could go. Safe to cancel.
pub(crate) async fn reader_gone() {
    // What cannot be watched for it (a file, /dev/null) is refused, and goes on being written to.
    if wait().await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn wait() -> io::Result<()> {
    let interest = Interest::WRITABLE | Interest::ERROR;
    let copy = io::stdout().as_fd().try_clone_to_owned()?;
    #[allow(deprecated, reason = "its successor is unsafe, for descriptors that change hands; an OwnedFd cannot")]
    let output = AsyncFd::with_interest(copy, interest)?;
    loop {
        let mut guard = output.ready(interest).await?;
        if guard.ready().is_error() || guard.ready().is_write_closed() {
            return Ok(());
        }
        guard.clear_ready();
    }
}
