//! What handles read of an election, whether a store keeps it or the members of a group of peers.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use incumbent_core::{
    Cursor, Deposed, ElectionName, Frozen, Handover, HeldBack, LONGEST, Line, Nonce, Order, Pending, Recovery, Seen,
    Settings, Terms,
};
use incumbent_store::{Fut, Promises, Store, StoreError, StoreId, Wake};
use tokio::time::{Instant, sleep_until, timeout};

use crate::error::ReadError;
use crate::observer::{CandidateInfo, GroupStatus, Reading, Silence};
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
    /// Those in line, or the members that answer. The first one leads, unless nobody does.
    pub(crate) candidates: Vec<CandidateInfo>,
    pub(crate) vacant: bool,
    pub(crate) pending: Option<Pending>,
    pub(crate) paused: Option<Order>,
    pub(crate) first: Option<Arc<str>>,
    pub(crate) tombstone: Option<Nonce>,
    pub(crate) handover: Option<Handover>,
    pub(crate) deposed: Option<Deposed>,
    pub(crate) frozen: Option<Frozen>,
    pub(crate) terms: Terms,
    pub(crate) held_back: Option<HeldBack>,
    pub(crate) recovery: Option<Recovery>,
    pub(crate) silence: Option<Silence>,
    /// Among peers: how many of them there are.
    pub(crate) group: Option<GroupStatus>,
    /// What a watch goes on from, in a store.
    pub(crate) seen: Option<(Seen, Cursor)>,
}

impl Snapshot {
    pub(crate) fn leader(&self) -> Option<&CandidateInfo> {
        self.candidates.first().filter(|_| !self.vacant)
    }

    pub(crate) fn into_leader(self) -> Option<CandidateInfo> {
        self.candidates.into_iter().next().filter(|_| !self.vacant)
    }
}

impl From<Line> for Snapshot {
    fn from(line: Line) -> Snapshot {
        let seen = (line.seen(), line.cursor);
        let leads = line.entries.first().map(|head| head.token);
        let observed = line.entries.first().and_then(|head| head.observed);
        let silence = observed.and_then(|observed| Some(Silence { lasts: observed.silent?, ttl: observed.ttl }));
        let handover = leads.and_then(|token| line.office.handover_from(token)).cloned();
        let pending = line.entries.first().and_then(|head| line.office.pending(head));
        let (paused, first) = line.office.paused.map(|paused| (paused.order, paused.first)).unzip();
        Snapshot {
            candidates: line.entries.iter().map(CandidateInfo::from).collect(),
            vacant: leads.is_none() || pending.is_some(),
            pending,
            handover,
            paused,
            first: first.flatten(),
            tombstone: line.office.ended.map(|ended| ended.id),
            deposed: line.office.deposed,
            frozen: line.office.frozen,
            terms: line.office.terms,
            held_back: line.office.held_back,
            recovery: line.office.recovery,
            silence,
            group: None,
            seen: Some(seen),
        }
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

    pub(crate) async fn reading(&self, candidates: usize) -> Result<Reading<Snapshot>, ReadError> {
        #[cfg(feature = "peers")]
        if let Backend::Peers(group_client) = &self.backend {
            group_client.prepare(&self.election)?;
        }
        let sent_at = self.port.now();
        let limit = self.attempt();
        let until = Instant::now() + PATIENCE;
        let snapshot = retry(until, || Box::pin(self.look_within(candidates, limit))).await?;
        Ok(Reading::new(snapshot, sent_at, self.port.clone()))
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
