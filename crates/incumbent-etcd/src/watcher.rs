//! One watch stream for all watches of a store.
//!
//! A watch here waits for several ranges of keys at once, from the revision after the one that was read, and resolves
//! once. Whatever happens to it or to the stream (compaction, cancellation, a lost connection) resolves it as well:
//! the waiting task reads again.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use incumbent_store::{Cursor, StoreError};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tonic::Streaming;

use crate::endpoints::Endpoints;
use crate::error;
use crate::keys::KeyRange;
use crate::rpc::{
    Client, Event, EventType, Stream, WatchCancelRequest, WatchCreateRequest, WatchRequest, WatchResponse,
};

const WHAT: &str = "watching";

/// How long what can wait does. Many leaderships are over by then, and cost the server no watch.
const LATER: Duration = Duration::from_millis(20);

/// The sender is not woken for fewer cancellations than these: they go with the next request, or when the server tells of
/// a watch that is to be cancelled.
const CANCELLATIONS: usize = 64;

/// What counts as a change of a range of keys.
#[derive(Clone, Debug)]
pub(crate) enum Rule {
    /// Anything.
    Any,
    /// Anything but what belongs to elections with longer names: keys with a `/` after this many bytes.
    Line(usize),
    /// The entry goes, or becomes another one: another creation, or another lease.
    Gone { created: i64, lease: Option<i64> },
}

impl Rule {
    fn counts(&self, event: &Event) -> bool {
        let Some(kv) = &event.kv else { return true };
        match self {
            Rule::Any => true,
            Rule::Line(prefix_len) => !kv.key.get(*prefix_len..).is_some_and(|suffix| suffix.contains(&b'/')),
            Rule::Gone { created, lease } => {
                event.r#type() == EventType::Delete
                    || kv.create_revision != *created
                    || lease.map_or(kv.lease == 0, |lease| kv.lease != lease)
            }
        }
    }
}

/// What to wait for.
#[derive(Clone, Debug)]
pub(crate) struct Interest {
    /// An empty end: the one key.
    pub(crate) range: KeyRange,
    pub(crate) rule: Rule,
    /// A candidate takes office on this news. What reaches the server late is served late, too: every 100 ms.
    pub(crate) urgent: bool,
}

/// The watches of a store.
#[derive(Clone)]
pub(crate) struct Watcher {
    shared: Arc<Shared>,
}

struct Shared {
    endpoints: Arc<Endpoints>,
    state: Mutex<State>,
    /// Something is to be sent, or the store is gone.
    stir: Arc<Notify>,
}

#[derive(Default)]
struct State {
    last_number: i64,
    waiting: HashMap<i64, Waiting>,
    armed: HashMap<i64, Armed>,
    to_send: VecDeque<WatchCreateRequest>,
    later: VecDeque<WatchCreateRequest>,
    to_cancel: VecDeque<i64>,
    /// The sender will look again without being woken.
    sender_returns: bool,
    /// What could wait has waited, cancellations included.
    hurrying: bool,
    task: Option<JoinHandle<()>>,
}

/// A wait, and the server's watches that it waits for.
struct Waiting {
    armed: Box<[i64]>,
    tell: oneshot::Sender<Result<(), StoreError>>,
}

/// One watch on the server.
struct Armed {
    waiting: i64,
    rule: Rule,
    sent: bool,
}

impl Watcher {
    pub(crate) fn new(endpoints: Arc<Endpoints>) -> Watcher {
        let shared = Shared { endpoints, state: Mutex::default(), stir: Arc::new(Notify::new()) };
        Watcher { shared: Arc::new(shared) }
    }

    /// Waits for the first change after `from`.
    pub(crate) fn watch(&self, interests: Vec<Interest>, from: Cursor) -> Watch {
        let (tell, heard) = oneshot::channel();
        // A watch that starts in the future is served at once; one that starts in the past waits for its turn.
        let from = i64::try_from(from.0).unwrap_or(i64::MAX).saturating_add(1);
        let mut state = self.shared.lock();
        let waiting = state.next_number();
        let armed = interests.into_iter().map(|interest| state.arm(waiting, interest, from)).collect();
        state.waiting.insert(waiting, Waiting { armed, tell });
        // A task that ended ended with its runtime.
        if state.task.as_ref().is_none_or(JoinHandle::is_finished) {
            state.task = Some(tokio::spawn(run(Arc::downgrade(&self.shared), self.shared.stir.clone())));
        }
        self.shared.stir_for(state);
        Watch { shared: self.shared.clone(), waiting, heard }
    }

    /// A session is about to end an entry, which is news for the successor: the watches that the
    /// session has given up are cancelled first, so that the server does not tell it what it knows.
    pub(crate) fn cancel_now(&self) {
        let mut state = self.shared.lock();
        if state.cancels_now() {
            self.shared.stir_for(state);
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
        let mut state = self.shared.lock();
        state.forget(self.waiting);
        self.shared.stir_for(state);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of the state is whole before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the sender, if it has something to do.
    fn stir_for(&self, mut state: MutexGuard<'_, State>) {
        let wake = state.needs_sender();
        drop(state);
        if wake {
            self.stir.notify_one();
        }
    }

    /// Tells everyone that the stream is gone.
    fn lose_all(&self, why: &StoreError) {
        let mut state = self.lock();
        let waiting = std::mem::take(&mut state.waiting);
        state.armed.clear();
        state.to_send.clear();
        state.later.clear();
        state.to_cancel.clear();
        drop(state);
        for (_, waiting) in waiting {
            // A wait that was dropped is not told.
            _ = waiting.tell.send(Err(why.clone()));
        }
    }

    /// Takes in what the server said. An error ends the stream.
    fn hear(&self, heard: &WatchResponse) -> Result<(), StoreError> {
        let mut state = self.lock();
        let number = heard.watch_id;
        if heard.canceled {
            let compacted = heard.compact_revision > 0;
            if let Some(armed) = state.armed.get_mut(&number) {
                armed.sent = false;
                let waiting = armed.waiting;
                // What was compacted is read again at once.
                state.tell(waiting, if compacted { Ok(()) } else { Err(lost(Some(&heard.cancel_reason))) });
                return refused_at_creation(heard, compacted);
            }
            return if number < 0 { Err(lost(Some(&heard.cancel_reason))) } else { Ok(()) };
        }
        let Some(armed) = state.armed.get(&number) else {
            if !heard.events.is_empty() && !state.sender_returns {
                self.stir.notify_one();
            }
            return Ok(());
        };
        if heard.events.iter().any(|event| armed.rule.counts(event)) {
            let waiting = armed.waiting;
            state.tell(waiting, Ok(()));
            self.stir_for(state);
        }
        Ok(())
    }
}

/// A stream keeps the credentials that it was opened with: when they no longer do, a new one is needed.
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
        self.stir.notify_one();
    }
}

impl State {
    fn next_number(&mut self) -> i64 {
        self.last_number += 1;
        self.last_number
    }

    fn arm(&mut self, waiting: i64, interest: Interest, from: i64) -> i64 {
        let number = self.next_number();
        let Interest { range: (key, range_end), rule, urgent } = interest;
        let queue = if urgent { &mut self.to_send } else { &mut self.later };
        queue.push_back(WatchCreateRequest { key, range_end, start_revision: from, watch_id: number });
        self.armed.insert(number, Armed { waiting, rule, sent: false });
        number
    }

    fn tell(&mut self, waiting: i64, news: Result<(), StoreError>) {
        if let Some(waiting) = self.forget(waiting) {
            _ = waiting.tell.send(news);
        }
    }

    fn forget(&mut self, waiting: i64) -> Option<Waiting> {
        let waiting = self.waiting.remove(&waiting)?;
        for number in &waiting.armed {
            if self.armed.remove(number).is_some_and(|armed| armed.sent) {
                self.to_cancel.push_back(*number);
            }
        }
        // What was not sent yet is passed over when its turn comes; without a sender it must not pile up.
        for queue in [&mut self.to_send, &mut self.later] {
            if queue.len() > 2 * self.armed.len() + 64 {
                queue.retain(|watch| self.armed.contains_key(&watch.watch_id));
            }
        }
        Some(waiting)
    }

    /// Whether the sender must be woken. Not if it comes back early enough by itself: most of what can wait is forgotten
    /// again soon, and each waking costs the candidates that take office at that moment.
    fn needs_sender(&mut self) -> bool {
        let urgent = !self.to_send.is_empty() || (self.hurrying && !self.to_cancel.is_empty());
        let later = !self.later.is_empty() || self.to_cancel.len() >= CANCELLATIONS;
        let wake = urgent || (later && !self.sender_returns);
        self.sender_returns |= wake;
        wake
    }

    /// Cancellations wait no longer, if there are any.
    fn cancels_now(&mut self) -> bool {
        self.hurrying |= !self.to_cancel.is_empty();
        self.hurrying
    }

    fn has_later(&self) -> bool {
        !self.later.is_empty() || !self.to_cancel.is_empty()
    }

    /// What could wait has waited.
    fn hurry(&mut self) {
        self.hurrying = true;
        self.to_send.append(&mut self.later);
    }

    fn next_watch(&mut self) -> Option<WatchCreateRequest> {
        loop {
            let watch = self.to_send.pop_front()?;
            let Some(armed) = self.armed.get_mut(&watch.watch_id) else { continue };
            armed.sent = true;
            return Some(watch);
        }
    }
}

/// What is to be sent next.
#[derive(PartialEq, Debug)]
enum Next {
    Request(WatchRequest),
    /// Only what can wait.
    Later,
    None,
}

impl State {
    /// Watches first: no task waits for a cancellation.
    fn next_request(&mut self) -> Next {
        if let Some(watch) = self.next_watch() {
            return Next::Request(watch.into());
        }
        if self.hurrying
            && let Some(watch_id) = self.to_cancel.pop_front()
        {
            return Next::Request(WatchCancelRequest { watch_id }.into());
        }
        self.hurrying = false;
        self.sender_returns = self.has_later();
        if self.sender_returns { Next::Later } else { Next::None }
    }
}

/// Keeps a stream open while the store is there, from the first watch on, at the endpoint that is
/// asked.
async fn run(shared: Weak<Shared>, stir: Arc<Notify>) {
    loop {
        let Some((endpoints, first)) = first_watch(&shared, &stir).await else { return };
        let asked = endpoints.current();
        let streaming = async {
            match endpoints.watch(WHAT, &first).await {
                Ok((client, stream)) => Some(renewing_token(&client, serve(&shared, &stir, stream).await?).await),
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
async fn first_watch(shared: &Weak<Shared>, stir: &Notify) -> Option<(Arc<Endpoints>, WatchCreateRequest)> {
    loop {
        let there = shared.upgrade()?;
        let first = {
            let mut state = there.lock();
            // There is no stream to cancel anything on.
            state.to_cancel.clear();
            state.hurry();
            state.sender_returns = false;
            state.next_watch()
        };
        if let Some(first) = first {
            return Some((there.endpoints.clone(), first));
        }
        drop(there);
        stir.notified().await;
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
    stir: &Notify,
    stream: Stream<WatchRequest, WatchResponse>,
) -> Option<StoreError> {
    let Stream { requests, answers } = stream;
    // Both at once: a server whose answers are not read stops reading requests.
    tokio::select! {
        ended = send(shared, stir, requests) => ended,
        ended = receive(shared, answers) => ended,
    }
}

async fn send(shared: &Weak<Shared>, stir: &Notify, requests: mpsc::Sender<WatchRequest>) -> Option<StoreError> {
    let mut pause = pin!(sleep(LATER));
    loop {
        let next = shared.upgrade()?.lock().next_request();
        let sent = match next {
            Next::Request(request) => requests.send(request).await,
            Next::Later => {
                // What is urgent in the meantime goes first, and what is not joins those that wait.
                tokio::select! {
                    () = stir.notified() => {}
                    () = &mut pause => {
                        shared.upgrade()?.lock().hurry();
                        pause.as_mut().reset(Instant::now() + LATER);
                    }
                }
                continue;
            }
            Next::None => {
                stir.notified().await;
                pause.as_mut().reset(Instant::now() + LATER);
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
            Err(status) => return Some(error::classify(status, error::Effect::None, WHAT)),
        };
        if let Err(why) = shared.upgrade()?.hear(&heard) {
            return Some(why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl State {
        /// A wait for this, which the server knows of.
        fn waits(&mut self, rule: Rule, urgent: bool) -> i64 {
            let interest = Interest { range: Default::default(), rule, urgent };
            let number = self.next_number();
            let armed = [self.arm(number, interest, 1)].into();
            self.waiting.insert(number, Waiting { armed, tell: oneshot::channel().0 });
            self.hurry();
            while self.next_watch().is_some() {}
            assert_eq!(self.next_request(), Next::None);
            number
        }
    }

    const GONE: Rule = Rule::Gone { created: 1, lease: Some(1) };

    #[test]
    fn the_sender_is_not_woken_for_cancellations_before_a_session_ends_its_entry() {
        let mut state = State::default();
        for (rule, urgent) in [(Rule::Any, false), (GONE, true), (GONE, false)] {
            let waiting = state.waits(rule, urgent);
            state.forget(waiting);
            assert!(!state.needs_sender());
            assert!(state.cancels_now() && state.needs_sender());
            assert!(matches!(state.next_request(), Next::Request(_)), "a cancellation");
            assert_eq!(state.next_request(), Next::None);
        }
        assert!(!state.cancels_now() && !state.needs_sender(), "there is nothing to cancel");
    }
}
