//! A connection: whether it is up, and how far into the store's history anyone here has seen.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard};

use incumbent_store::{Cursor, Effect, ElectionName, StoreError, lock};
use zookeeper_client::{Client, SessionState, Stat, StateWatcher};

/// The newest change that any answer to this store has shown.
///
/// An answer behind a `sync` is at least as new as everything that was seen before the `sync` was
/// sent: that is what a cursor needs. ZooKeeper tells a reader no better number.
#[derive(Debug, Default)]
pub(crate) struct HighestZxid(AtomicI64);

impl HighestZxid {
    pub(crate) fn note(&self, stat: &Stat) {
        self.note_change(stat.mzxid.max(stat.pzxid).max(stat.czxid));
    }

    pub(crate) fn note_change(&self, zxid: i64) {
        self.0.fetch_max(zxid, Ordering::AcqRel);
    }

    pub(crate) fn cursor(&self) -> Cursor {
        Cursor(self.0.load(Ordering::Acquire).unsigned_abs())
    }
}

/// Whether a change came after the cursor.
pub(crate) fn is_after(zxid: i64, from: Cursor) -> bool {
    zxid.unsigned_abs() > from.0
}

/// Refuses to wait in a queue: a request that is given up there would be sent all the same, some
/// time.
pub(crate) fn check_up(client: &Client) -> Result<(), StoreError> {
    match client.state() {
        SessionState::SyncConnected | SessionState::ConnectedReadOnly => Ok(()),
        SessionState::Disconnected => {
            let what = "the connection to ZooKeeper is down; it is being made again".to_owned();
            Err(StoreError::Unavailable { what, source: None })
        }
        SessionState::AuthFailed => {
            let what = "ZooKeeper did not accept our credentials: check the user and the password".to_owned();
            Err(StoreError::Denied { what, source: None })
        }
        SessionState::Expired | SessionState::Closed => Err(StoreError::SessionGone),
    }
}

/// Until the connection is lost.
pub(crate) async fn cut(state: &mut StateWatcher) -> StoreError {
    loop {
        match state.changed().await {
            SessionState::SyncConnected | SessionState::ConnectedReadOnly => {}
            SessionState::Disconnected => {
                let what = "the connection to ZooKeeper was lost meanwhile".to_owned();
                return StoreError::Unavailable { what, source: None };
            }
            SessionState::AuthFailed | SessionState::Expired | SessionState::Closed => return StoreError::SessionGone,
        }
    }
}

/// Gives up with the connection. A request that is made in the moment in which it is lost is
/// neither sent nor refused: it would wait until there is another one.
pub(crate) async fn or_cut<T>(
    client: &Client,
    effect: Effect,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let mut state = client.state_watcher();
    check_up(client)?;
    tokio::select! {
        biased;
        done = call => done,
        lost = cut(&mut state) => Err(match (lost, effect) {
            (StoreError::Unavailable { what, source }, Effect::Write) => StoreError::OutcomeUnknown { what, source },
            (lost, _) => lost,
        }),
    }
}

/// What a watch has told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum News {
    /// The one ahead is gone.
    AheadIsGone,
    Other,
}

/// The connection of a session.
#[derive(Debug)]
pub(crate) struct SessionConnection {
    /// `None`: the session is over.
    client: Mutex<Option<Client>>,
    /// In which elections a watch on this connection has told of a change that nobody has looked at
    /// yet.
    woken: Mutex<BTreeMap<ElectionName, News>>,
}

impl SessionConnection {
    pub(crate) fn new(client: Client) -> SessionConnection {
        SessionConnection { client: Mutex::new(Some(client)), woken: Mutex::default() }
    }

    pub(crate) fn client(&self) -> Result<Client, StoreError> {
        let client = self.lock().clone().ok_or(StoreError::SessionGone)?;
        check_up(&client)?;
        Ok(client)
    }

    /// Ends the session for all who use it.
    pub(crate) fn take(&self) -> Option<Client> {
        self.lock().take()
    }

    /// A watch on this connection has told of a change: its server knows of it, and so does the
    /// next answer.
    pub(crate) fn wake(&self, election: &ElectionName, news: News) {
        self.woken().insert(election.clone(), news);
    }

    /// What a watch has told since this was last asked: then the look that follows is the answer to
    /// it, and need not catch up with the ensemble first.
    pub(crate) fn take_news(&self, election: &ElectionName) -> Option<News> {
        self.woken().remove(election)
    }

    fn woken(&self) -> MutexGuard<'_, BTreeMap<ElectionName, News>> {
        lock(&self.woken)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Client>> {
        lock(&self.client)
    }
}
