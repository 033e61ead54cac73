//! One watch stream for all watches of a store.
//!
//! A watch here waits for several ranges of keys at once, from the revision after the one that was
//! read, and resolves once. Whatever happens to it or to the stream (compaction, cancellation, a
//! lost connection) resolves it as well: the waiting task reads again.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use incumbent_store::{Cursor, Effect, StoreError, lock};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tonic::Streaming;

use crate::endpoints::Endpoints;
use crate::error;
use crate::rpc::{Client, Stream, WatchCreateRequest, WatchRequest, WatchResponse};
use crate::watch_queue::{Interest, Next, Waiting, WatchQueue};

const WHAT: &str = "watching";

/// How long what is not urgent is deferred. Many leaderships are over by then, and cost the server
/// no watch.
const DEFER_FOR: Duration = Duration::from_millis(20);

/// The watches of a store.
#[derive(Clone)]
pub(crate) struct Watcher {
    shared: Arc<Shared>,
}

struct Shared {
    endpoints: Arc<Endpoints>,
    queue: Mutex<WatchQueue>,
    /// Wakes the sender: something is to be sent, or the store is gone.
    to_sender: Arc<Notify>,
}

impl Watcher {
    pub(crate) fn new(endpoints: Arc<Endpoints>) -> Watcher {
        let shared = Shared { endpoints, queue: Mutex::default(), to_sender: Arc::new(Notify::new()) };
        Watcher { shared: Arc::new(shared) }
    }

    /// Waits for the first change after `from`.
    pub(crate) fn watch(&self, interests: Vec<Interest>, from: Cursor) -> Watch {
        let (tell, heard) = oneshot::channel();
        // A watch that starts in the future is served at once; one that starts in the past waits
        // for its turn.
        let from = i64::try_from(from.0).unwrap_or(i64::MAX).saturating_add(1);
        let mut queue = self.shared.lock();
        let waiting = queue.next_number();
        let server_watches = interests.into_iter().map(|interest| queue.add(waiting, interest, from)).collect();
        queue.waiting.insert(waiting, Waiting { server_watches, tell });
        // A task that ended ended with its runtime.
        if queue.task.as_ref().is_none_or(JoinHandle::is_finished) {
            queue.task = Some(tokio::spawn(run(Arc::downgrade(&self.shared), self.shared.to_sender.clone())));
        }
        self.shared.wake_sender(queue);
        Watch { shared: self.shared.clone(), waiting, heard }
    }

    /// A session is about to end an entry, which is news for the successor: the watches that the
    /// session has given up are cancelled first, so that the server does not tell it what it knows.
    pub(crate) fn cancel_now(&self) {
        let mut queue = self.shared.lock();
        if queue.flush_cancellations() {
            self.shared.wake_sender(queue);
        }
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.shared.lock().waiting.len()
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").field("waiting", &self.len()).finish()
    }
}

/// A wait. Dropping it ends it.
pub(crate) struct Watch {
    shared: Arc<Shared>,
    waiting: i64,
    heard: oneshot::Receiver<Result<(), StoreError>>,
}

impl Future for Watch {
    type Output = Result<(), StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.heard).poll(cx).map(|heard| heard.unwrap_or_else(|_| Err(lost(None))))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.forget(self.waiting);
        self.shared.wake_sender(queue);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, WatchQueue> {
        lock(&self.queue)
    }

    /// Wakes the sender, if it has something to do.
    fn wake_sender(&self, mut queue: MutexGuard<'_, WatchQueue>) {
        let wake = queue.needs_sender();
        drop(queue);
        if wake {
            self.to_sender.notify_one();
        }
    }

    /// Tells everyone that the stream is gone.
    fn lose_all(&self, why: &StoreError) {
        let mut queue = self.lock();
        let waiting = std::mem::take(&mut queue.waiting);
        queue.server_watches.clear();
        queue.to_send.clear();
        queue.deferred.clear();
        queue.to_cancel.clear();
        drop(queue);
        for (_, waiting) in waiting {
            // A wait that was dropped is not told.
            _ = waiting.tell.send(Err(why.clone()));
        }
    }

    /// Takes in what the server said. An error ends the stream.
    fn on_response(&self, heard: &WatchResponse) -> Result<(), StoreError> {
        let mut queue = self.lock();
        let number = heard.watch_id;
        if heard.canceled {
            let compacted = heard.compact_revision > 0;
            if let Some(watch) = queue.server_watches.get_mut(&number) {
                watch.sent = false;
                let waiting = watch.waiting;
                // What was compacted is read again at once.
                queue.tell(waiting, if compacted { Ok(()) } else { Err(lost(Some(&heard.cancel_reason))) });
                return refused_at_creation(heard, compacted);
            }
            return if number < 0 { Err(lost(Some(&heard.cancel_reason))) } else { Ok(()) };
        }
        let Some(watch) = queue.server_watches.get(&number) else {
            if !heard.events.is_empty() && !queue.sender_will_look {
                self.to_sender.notify_one();
            }
            return Ok(());
        };
        if heard.events.iter().any(|event| watch.rule.counts(event)) {
            let waiting = watch.waiting;
            queue.tell(waiting, Ok(()));
            self.wake_sender(queue);
        }
        Ok(())
    }
}

/// A stream keeps the credentials that it was opened with: when they no longer do, a new one is
/// needed.
fn refused_at_creation(heard: &WatchResponse, compacted: bool) -> Result<(), StoreError> {
    if heard.created && !compacted { Err(lost(Some(&heard.cancel_reason))) } else { Ok(()) }
}

fn lost(why: Option<&str>) -> StoreError {
    let why = why.filter(|why| !why.is_empty());
    let what = why.map_or_else(|| format!("{WHAT}: the stream ended"), |why| format!("{WHAT}: {why}"));
    StoreError::Unavailable { what, source: None }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The task finds that the store is gone, and ends.
        self.to_sender.notify_one();
    }
}

/// Keeps a stream open while the store is there, from the first watch on, at the endpoint that is
/// asked.
async fn run(shared: Weak<Shared>, to_sender: Arc<Notify>) {
    loop {
        let Some((endpoints, first)) = first_watch(&shared, &to_sender).await else { return };
        let asked = endpoints.current();
        let streaming = async {
            match endpoints.watch(WHAT, &first).await {
                Ok((client, stream)) => Some(renewing_token(&client, serve(&shared, &to_sender, stream).await?).await),
                Err(error) => Some(error),
            }
        };
        let ended = tokio::select! {
            ended = streaming => ended,
            // A member that hangs ends no stream.
            () = endpoints.left(asked) => Some(lost(Some("another endpoint is asked now"))),
        };
        let (Some(why), Some(shared)) = (ended, shared.upgrade()) else { return };
        shared.lose_all(&why);
    }
}

/// `None`: the store is gone.
async fn first_watch(shared: &Weak<Shared>, to_sender: &Notify) -> Option<(Arc<Endpoints>, WatchCreateRequest)> {
    loop {
        let there = shared.upgrade()?;
        let first = {
            let mut queue = there.lock();
            // There is no stream to cancel anything on.
            queue.to_cancel.clear();
            queue.flush();
            queue.sender_will_look = false;
            queue.next_watch()
        };
        if let Some(first) = first {
            return Some((there.endpoints.clone(), first));
        }
        drop(there);
        to_sender.notified().await;
    }
}

/// A refusal may come from credentials that have expired.
async fn renewing_token(client: &Client, why: StoreError) -> StoreError {
    let text = why.to_string();
    if error::is_about_a_token(&text) || text.contains("permission denied") {
        client.forget_token().await;
    }
    why
}

/// Sends and receives until the stream ends: why it did. `None`: the store is gone.
async fn serve(
    shared: &Weak<Shared>,
    to_sender: &Notify,
    stream: Stream<WatchRequest, WatchResponse>,
) -> Option<StoreError> {
    let Stream { requests, answers } = stream;
    // Both at once: a server whose answers are not read stops reading requests.
    tokio::select! {
        ended = send(shared, to_sender, requests) => ended,
        ended = receive(shared, answers) => ended,
    }
}

async fn send(shared: &Weak<Shared>, to_sender: &Notify, requests: mpsc::Sender<WatchRequest>) -> Option<StoreError> {
    let mut pause = pin!(sleep(DEFER_FOR));
    loop {
        let next = shared.upgrade()?.lock().next_request();
        let sent = match next {
            Next::Request(request) => requests.send(request).await,
            Next::Deferred => {
                // What is urgent in the meantime goes first, and what is not joins those that wait.
                tokio::select! {
                    () = to_sender.notified() => {}
                    () = &mut pause => {
                        shared.upgrade()?.lock().flush();
                        pause.as_mut().reset(Instant::now() + DEFER_FOR);
                    }
                }
                continue;
            }
            Next::None => {
                to_sender.notified().await;
                pause.as_mut().reset(Instant::now() + DEFER_FOR);
                continue;
            }
        };
        if sent.is_err() {
            return Some(lost(None));
        }
    }
}

async fn receive(shared: &Weak<Shared>, mut answers: Streaming<WatchResponse>) -> Option<StoreError> {
    loop {
        let heard = match answers.message().await {
            Ok(Some(heard)) => heard,
            Ok(None) => return Some(lost(None)),
            Err(status) => return Some(error::classify(status, Effect::None, WHAT)),
        };
        if let Err(why) = shared.upgrade()?.on_response(&heard) {
            return Some(why);
        }
    }
}
