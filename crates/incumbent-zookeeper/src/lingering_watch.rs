//! A watch that is armed at the server. Knows nothing of elections.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use zookeeper_client::{OneshotWatcher, WatchedEvent};

/// How long a watch that is given up stays at the server.
const LINGER: Duration = Duration::from_secs(1);

/// A watch that is armed, and waited for.
///
/// The client takes a watch back when it is dropped, with a request of its own. Watches are given
/// up when something has happened, and then other requests are in a hurry: on the same connection
/// they would wait for the answer to that one (the client leaves Nagle's algorithm on). So a watch
/// that is given up lives on for a while; many fire in that time.
pub(crate) struct LingeringWatch(Option<Pin<Box<dyn Future<Output = WatchedEvent> + Send>>>);

impl LingeringWatch {
    pub(crate) fn new(watcher: OneshotWatcher) -> LingeringWatch {
        LingeringWatch(Some(Box::pin(watcher.changed())))
    }
}

impl Future for LingeringWatch {
    type Output = WatchedEvent;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<WatchedEvent> {
        let Some(fires) = &mut self.0 else { return Poll::Pending };
        let event = ready!(fires.as_mut().poll(cx));
        self.0 = None;
        Poll::Ready(event)
    }
}

impl Drop for LingeringWatch {
    fn drop(&mut self) {
        let Some(fires) = self.0.take() else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // It holds no client, so that it keeps no session alive.
            runtime.spawn(async move { tokio::time::timeout(LINGER, fires).await });
        }
    }
}

impl fmt::Debug for LingeringWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LingeringWatch").field(&self.0.is_some()).finish()
    }
}
