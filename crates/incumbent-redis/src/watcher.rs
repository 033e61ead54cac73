//! Who waits for what, and the connection of its own on which it is told that something has
//! changed.
//!
//! A connection with subscriptions is one that the server closes when too much waits on it, and
//! what comes on it says only that something happened. So steps have another one, and a watch
//! asks what has changed once the server has confirmed that news would come. When the connection is
//! lost, everybody is told, and reads again.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use incumbent_store::{Effect, StoreError, lock};
use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, RedisError, Value};
use tokio::sync::{mpsc, oneshot};

use crate::connection::Connection;
use crate::error::classify;
use crate::on_demand::OnDemand;

/// How long the server may take to confirm that news will come. After that the connection is taken
/// for dead.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(3);

/// What somebody waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Interest {
    pub(crate) channel: Vec<u8>,
    pub(crate) on: On,
}

/// Which news of a channel count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum On {
    Any,
    /// Only that the entry is gone, not that it says something else.
    Gone,
}

/// Everybody who waits.
pub(crate) struct Watcher {
    connection: Arc<Connection>,
    feed: OnDemand<Feed>,
    waiting: Mutex<Waiting>,
}

/// Where to ask for channels.
type Feed = mpsc::UnboundedSender<Order>;

enum Order {
    /// Somebody waits for these, and is told when the server has confirmed them.
    Want(Vec<Vec<u8>>, oneshot::Sender<()>),
    /// Nobody waits for these on that account any more.
    Leave(Vec<Vec<u8>>),
}

#[derive(Default)]
struct Waiting {
    next: u64,
    /// By the waiter's number.
    told: HashMap<u64, oneshot::Sender<Result<(), StoreError>>>,
    /// By channel.
    interests: HashMap<Vec<u8>, Vec<(u64, On)>>,
}

impl Watcher {
    pub(crate) fn new(connection: Arc<Connection>) -> Arc<Watcher> {
        Arc::new(Watcher { connection, feed: OnDemand::new(), waiting: Mutex::default() })
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.lock().told.len()
    }

    /// Waits for the first of these. `has_changed` is asked once news would come.
    pub(crate) async fn wait(
        self: Arc<Watcher>,
        interests: Vec<Interest>,
        has_changed: impl Future<Output = Result<bool, StoreError>>,
    ) -> Result<(), StoreError> {
        let (mut waiter, mut told) = Waiter::register(&self, interests);
        waiter.subscribe().await?;
        // Steps have another connection, which may hang for longer than this one.
        let changed = tokio::select! {
            biased;
            told = &mut told => return told.unwrap_or_else(|_| Err(lost())),
            changed = has_changed => changed?,
        };
        if changed {
            return Ok(());
        }
        told.await.unwrap_or_else(|_| Err(lost()))
    }

    async fn feed(self: &Arc<Watcher>) -> Result<(u64, Feed), StoreError> {
        let open = |generation| {
            let (watcher, told) = (Arc::downgrade(self), Arc::downgrade(self));
            let hear = move |push| hear(&watcher, generation, push);
            let connection = self.connection.for_watches(hear);
            let store = self.connection.keys.store_channel();
            async move {
                let mut connection = connection.await?;
                // A user without rights on our channels is told now. It also keeps the connection
                // in the state of one that has subscriptions.
                confirmed(connection.subscribe(&store)).await?;
                let (feed, orders) = mpsc::unbounded_channel();
                tokio::spawn(async move {
                    let kept = keep(connection, orders).await;
                    if let (Err(_), Some(watcher)) = (kept, told.upgrade()) {
                        watcher.tell_all_that_news_are_lost(generation);
                    }
                });
                Ok(feed)
            }
        };
        self.feed.get(open).await
    }

    fn tell(&self, channel: &[u8], gone: bool) {
        let mut waiting = self.lock();
        let Some(interests) = waiting.interests.get(channel) else { return };
        let concerned: Vec<_> =
            interests.iter().filter(|(_, on)| gone || *on == On::Any).map(|(number, _)| *number).collect();
        for told in concerned.iter().filter_map(|number| waiting.told.remove(number)).collect::<Vec<_>>() {
            _ = told.send(Ok(()));
        }
    }

    fn tell_all_that_news_are_lost(&self, generation: u64) {
        self.feed.forget(generation);
        self.tell_all(lost);
    }

    /// News from elsewhere are of more use: everybody is told, and reads again.
    pub(crate) fn leave(&self) {
        self.feed.forget_current();
        self.tell_all(lost);
    }

    fn tell_all(&self, why: fn() -> StoreError) {
        for (_, told) in self.lock().told.drain() {
            _ = told.send(Err(why()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        lock(&self.waiting)
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").field("waiting", &self.len()).finish_non_exhaustive()
    }
}

/// Called by the connection with all that the server says unasked.
fn hear(watcher: &Weak<Watcher>, generation: u64, push: PushInfo) -> Result<(), ()> {
    let watcher = watcher.upgrade().ok_or(())?;
    match (push.kind, push.data.as_slice()) {
        (PushKind::Message, [Value::BulkString(channel), Value::BulkString(said)]) => match said.as_slice() {
            b"founded" if *channel == watcher.connection.keys.store_channel() => watcher.tell_all(founded),
            said => watcher.tell(channel, said == b"gone"),
        },
        (PushKind::Disconnection, _) => watcher.tell_all_that_news_are_lost(generation),
        _ => {}
    }
    Ok(())
}

/// Somebody who waits. Dropped, it leaves nothing behind.
struct Waiter {
    watcher: Arc<Watcher>,
    number: u64,
    channels: Vec<Vec<u8>>,
    /// Where its channels were asked for.
    feed: Option<Feed>,
}

impl Waiter {
    fn register(
        watcher: &Arc<Watcher>,
        interests: Vec<Interest>,
    ) -> (Waiter, oneshot::Receiver<Result<(), StoreError>>) {
        let (tell, told) = oneshot::channel();
        let mut waiting = watcher.lock();
        waiting.next += 1;
        let number = waiting.next;
        waiting.told.insert(number, tell);
        let mut channels = Vec::new();
        for Interest { channel, on } in interests {
            waiting.interests.entry(channel.clone()).or_default().push((number, on));
            channels.push(channel);
        }
        drop(waiting);
        (Waiter { watcher: watcher.clone(), number, channels, feed: None }, told)
    }

    /// Returns when the server has confirmed that news of all channels come.
    async fn subscribe(&mut self) -> Result<(), StoreError> {
        let (generation, feed) = self.watcher.feed().await?;
        let (confirm, confirmed) = oneshot::channel();
        let sent = feed.send(Order::Want(self.channels.clone(), confirm)).is_ok();
        self.feed = Some(feed);
        let confirmed = sent && matches!(tokio::time::timeout(CONFIRM_TIMEOUT, confirmed).await, Ok(Ok(())));
        if !confirmed {
            self.watcher.tell_all_that_news_are_lost(generation);
            return Err(lost());
        }
        Ok(())
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut waiting = self.watcher.lock();
        waiting.told.remove(&self.number);
        for channel in &self.channels {
            let Some(interests) = waiting.interests.get_mut(channel) else { continue };
            interests.retain(|(number, _)| *number != self.number);
            if interests.is_empty() {
                waiting.interests.remove(channel);
            }
        }
        drop(waiting);
        if let Some(feed) = &self.feed {
            // If the connection is gone, so are its subscriptions.
            _ = feed.send(Order::Leave(std::mem::take(&mut self.channels)));
        }
    }
}

/// Keeps the subscriptions of one connection as they are wanted, until it is lost or nobody has its
/// feed any more. What is asked for at the same time travels together.
///
/// An error: the server no longer answers, and nobody will hear of anything on it.
async fn keep(
    mut connection: MultiplexedConnection,
    mut orders: mpsc::UnboundedReceiver<Order>,
) -> Result<(), StoreError> {
    let mut wanted: HashMap<Vec<u8>, usize> = HashMap::new();
    while let Some(order) = orders.recv().await {
        let (mut fresh, mut left, mut confirmations) = (Vec::new(), HashSet::new(), Vec::new());
        let mut next = Some(order);
        while let Some(order) = next {
            match order {
                Order::Want(channels, confirm) => {
                    for channel in channels {
                        let count = wanted.entry(channel.clone()).or_default();
                        *count += 1;
                        // One that was left a moment ago is still subscribed to.
                        if *count == 1 && !left.remove(&channel) {
                            fresh.push(channel);
                        }
                    }
                    confirmations.push(confirm);
                }
                Order::Leave(channels) => {
                    for channel in channels {
                        let Some(count) = wanted.get_mut(&channel) else { continue };
                        *count -= 1;
                        if *count == 0 {
                            wanted.remove(&channel);
                            left.insert(channel);
                        }
                    }
                }
            }
            next = orders.try_recv().ok();
        }
        confirmed(confirm(&mut connection, &fresh, !confirmations.is_empty())).await?;
        confirmations.into_iter().for_each(|confirm| _ = confirm.send(()));
        let left: Vec<_> = left.into_iter().collect();
        if !left.is_empty() {
            confirmed(connection.unsubscribe(&left)).await?;
        }
    }
    Ok(())
}

async fn confirmed(confirmation: impl Future<Output = Result<(), RedisError>>) -> Result<(), StoreError> {
    let confirmed = tokio::time::timeout(CONFIRM_TIMEOUT, confirmation).await.map_err(|_| lost())?;
    confirmed.map_err(|error| classify(error, Effect::None, "subscribing to news"))
}

/// Subscribes. Where nothing is to be added, the server still has to show that it is there.
async fn confirm(connection: &mut MultiplexedConnection, fresh: &[Vec<u8>], asked: bool) -> Result<(), RedisError> {
    match (fresh, asked) {
        ([], true) => redis::cmd("PING").exec_async(connection).await,
        ([], false) => Ok(()),
        (fresh, _) => connection.subscribe(fresh).await,
    }
}

/// What was seen is of no use any more, and who sees the new one first asks which it is.
pub(crate) fn founded() -> StoreError {
    StoreError::Unavailable { what: "the store was founded anew".to_owned(), source: None }
}

fn lost() -> StoreError {
    StoreError::Unavailable { what: "the connection for news was lost".to_owned(), source: None }
}
