//! What handles read of an election, whether a store keeps it or the members of a group of peers.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use incumbent_core::{Cursor, ElectionName, LONGEST, Line, Nonce, Seen, Settings};
use incumbent_store::{Fut, Promises, Store, StoreError, StoreId, Wake};
use tokio::time::{Instant, sleep_until, timeout};

use crate::error::ReadError;
use crate::observer::{Reading, Status};
use crate::port::Port;

/// How long reads and writes are tried, unless the act has its own time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Who keeps the elections of a client.
#[derive(Clone, Debug)]
pub(crate) enum Backend {
    Store(Arc<dyn Store>),
    #[cfg(feature = "peers")]
    Peers(Arc<crate::peers::GroupClient>),
}

/// An election, seen in one step.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) status: Status,
    pub(crate) tombstone: Option<Nonce>,
    /// What a watch goes on from, in a store.
    pub(crate) seen: Option<(Seen, Cursor)>,
}

impl From<Line> for Snapshot {
    fn from(line: Line) -> Snapshot {
        let seen = Some((line.seen(), line.cursor));
        let tombstone = line.office.ended.as_ref().map(|ended| ended.id);
        Snapshot { status: Status::of(line), tombstone, seen }
    }
}

impl Backend {
    pub(crate) fn promises(&self) -> Fut<'_, Promises> {
        match self {
            Backend::Store(store) => store.promises(),
            #[cfg(feature = "peers")]
            Backend::Peers(group_client) => Box::pin(std::future::ready(Ok(group_client.promises()))),
        }
    }

    pub(crate) fn elections(&self, limit: usize) -> Fut<'_, Vec<ElectionName>> {
        match self {
            Backend::Store(store) => store.elections(limit),
            #[cfg(feature = "peers")]
            Backend::Peers(_) => {
                let what = "a group of peers holds one election, and cannot be asked which: name it".to_owned();
                Box::pin(std::future::ready(Err(StoreError::Unsupported { what })))
            }
        }
    }

    pub(crate) fn identity(&self) -> Fut<'_, StoreId> {
        match self {
            Backend::Store(store) => store.identity(),
            #[cfg(feature = "peers")]
            Backend::Peers(group_client) => Box::pin(std::future::ready(Ok(group_client.promises().store))),
        }
    }
}

/// One election, for those who read it: with retries, within a time.
#[derive(Clone, Debug)]
pub(crate) struct ElectionReader {
    pub(crate) backend: Backend,
    pub(crate) election: ElectionName,
    pub(crate) settings: Settings,
    pub(crate) port: Port,
}

impl ElectionReader {
    /// One attempt, cut off after `limit`.
    pub(crate) async fn look_within(&self, candidates: usize, limit: Duration) -> Result<Snapshot, StoreError> {
        let snapshot = async {
            match &self.backend {
                Backend::Store(store) => store.line(&self.election, candidates).await.map(Snapshot::from),
                #[cfg(feature = "peers")]
                Backend::Peers(group_client) => group_client.snapshot(&self.election, candidates).await,
            }
        };
        cut_off(limit, snapshot).await
    }

    pub(crate) async fn reading(&self, candidates: usize) -> Result<Reading<Status>, ReadError> {
        #[cfg(feature = "peers")]
        if let Backend::Peers(group_client) = &self.backend {
            group_client.prepare(&self.election)?;
        }
        let sent_at = self.port.now();
        let limit = self.attempt();
        let until = Instant::now() + PATIENCE;
        let snapshot = retry(until, || Box::pin(self.look_within(candidates, limit))).await?;
        Ok(Reading::new(snapshot.status, sent_at, self.port.clone()))
    }

    /// How long one attempt may take.
    pub(crate) fn attempt(&self) -> Duration {
        match &self.backend {
            Backend::Store(_) => self.settings.renew_every.min(PATIENCE),
            // The times of peers are short, but a member that is dead must not keep us from asking
            // the next one.
            #[cfg(feature = "peers")]
            Backend::Peers(_) => PATIENCE,
        }
    }

    /// Waits for a hint that somebody else leads, or that the office record has changed.
    pub(crate) fn watch(&self, snapshot: &Snapshot) -> Wake {
        match &self.backend {
            Backend::Store(store) => match &snapshot.seen {
                Some((seen, from)) => store.watch(&self.election, seen, *from),
                None => Box::pin(std::future::pending()),
            },
            #[cfg(feature = "peers")]
            Backend::Peers(group_client) => group_client.watch(),
        }
    }
}

/// When this time will be over. A caller may give one that no clock reaches.
pub(crate) fn end_of(within: Duration) -> Instant {
    Instant::now() + within.min(LONGEST)
}

/// One attempt at reading. An answer that does not come in time is no answer.
pub(crate) async fn cut_off<T>(
    limit: Duration,
    attempt: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let no_answer = || StoreError::Unavailable { what: format!("no answer within {limit:?}"), source: None };
    timeout(limit, attempt).await.unwrap_or_else(|_| Err(no_answer()))
}

/// One attempt at writing. Without an answer in time its outcome is unknown.
pub(crate) async fn cut_off_write<T>(
    limit: Duration,
    attempt: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let unknown = || StoreError::OutcomeUnknown { what: format!("no answer within {limit:?}"), source: None };
    timeout(limit, attempt).await.unwrap_or_else(|_| Err(unknown()))
}

/// Repeats what fails for the moment, with growing pauses, until `until`.
pub(crate) async fn retry<'a, T>(until: Instant, attempt: impl Fn() -> Fut<'a, T>) -> Result<T, ReadError> {
    let began = Instant::now();
    let mut pause = Duration::from_millis(10);
    loop {
        let error = match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        use incumbent_core::Fault;
        if !matches!(error.fault(), Fault::Unavailable | Fault::OutcomeUnknown) {
            return Err(ReadError::Store(error));
        }
        if Instant::now() + pause >= until {
            return Err(ReadError::TimedOut { waited: began.elapsed(), last: error });
        }
        tracing::debug!(error = &error as &dyn Error, "tried again");
        sleep_until(Instant::now() + pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}
