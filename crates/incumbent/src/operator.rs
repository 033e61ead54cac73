//! Acting on an election from outside: transfer, resign, depose, pause, resume, end.
//!
//! Every act is a change of the office record, or the removal of exactly the entry that was seen, followed by reading
//! until it has come to pass. Nothing here is a candidate, and nothing here is trusted: the store's guards decide.

use std::sync::Arc;
use std::time::Duration;

use incumbent_core::{
    Cas, Cursor, ElectionName, Ended, Entry, Handover, Heir, Incarnation, Line, MAX_LINE, MAX_REASON_BYTES, Nonce,
    Office, Paused, Settings, Target, Token,
};
use incumbent_store::{Fut, Store, StoreError};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::error::{OperatorError, ReadError, TransferRefused};
use crate::observer::{Leader, Reading};
use crate::port::Port;

/// How long an operator's reads and writes are tried, unless the act has its own time.
const PATIENCE: Duration = Duration::from_secs(5);

/// A candidate, named by its name or its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member(String);

impl<T: Into<String>> From<T> for Member {
    fn from(text: T) -> Member {
        Member(text.into())
    }
}

impl Member {
    fn fits(&self, entry: &Entry) -> bool {
        entry.name.as_deref() == Some(&self.0) || self.id().is_some_and(|id| entry.incarnation == Some(id))
    }

    fn id(&self) -> Option<Incarnation> {
        (self.0.len() == 32).then(|| self.0.parse().ok()).flatten()
    }
}

/// The one candidate in line that is meant.
pub(crate) fn find_heir(line: &Line, to: &Member) -> Result<Heir, TransferRefused> {
    let fitting: Vec<_> = line.entries.iter().filter(|entry| to.fits(entry)).collect();
    match fitting[..] {
        [] => Err(TransferRefused::NoSuchCandidate(to.0.clone())),
        [entry] => match entry.incarnation {
            Some(incarnation) => Ok(Heir { incarnation, entry: entry.id.clone(), token: entry.token }),
            None => Err(TransferRefused::Foreign),
        },
        _ => {
            let id =
                |entry: &&Entry| entry.incarnation.map_or_else(|| entry.id.as_str().to_owned(), |id| id.to_string());
            Err(TransferRefused::Ambiguous { name: to.0.clone(), ids: fitting.iter().map(id).collect() })
        }
    }
}

/// Reads the line and the office record, and writes the latter: with retries, within a time.
#[derive(Clone, Debug)]
pub(crate) struct Roll {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) election: ElectionName,
    pub(crate) settings: Settings,
    pub(crate) port: Port,
}

/// How the wait for an heir ended.
pub(crate) enum Outcome {
    Other(Option<Leader>),
    Unknown(ReadError),
}

impl<F: crate::election::Fencing> crate::error::TransferError<F> {
    pub(crate) fn from_outcome(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Other(leader) => crate::error::TransferError::Other { leader },
            Outcome::Unknown(error) => crate::error::TransferError::Unknown(error),
        }
    }
}

impl Roll {
    /// One attempt, cut off after `limit`.
    pub(crate) async fn line_within(&self, entries: usize, limit: Duration) -> Result<Line, StoreError> {
        match timeout(limit, self.store.line(&self.election, entries)).await {
            Ok(answer) => answer,
            Err(_) => Err(StoreError::Unavailable { what: format!("no answer within {limit:?}"), source: None }),
        }
    }

    pub(crate) async fn read(&self) -> Result<Line, ReadError> {
        self.read_until(MAX_LINE, Instant::now() + PATIENCE).await
    }

    pub(crate) async fn reading(&self, entries: usize) -> Result<Reading<Line>, ReadError> {
        let sent_at = self.port.now();
        let line = self.read_until(entries, Instant::now() + PATIENCE).await?;
        Ok(Reading::new(line, sent_at, self.port.clone()))
    }

    async fn read_until(&self, entries: usize, until: Instant) -> Result<Line, ReadError> {
        let limit = self.settings.renew_every.min(PATIENCE);
        self.retry(until, || Box::pin(self.line_within(entries, limit))).await
    }

    /// Repeats what fails for the moment, with growing pauses, until `until`.
    async fn retry<'a, T>(&self, until: Instant, attempt: impl Fn() -> Fut<'a, T>) -> Result<T, ReadError> {
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
            sleep_until(Instant::now() + pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    /// Changes the office record, reading it anew as long as others change it, too. `None` from `change`: leave it.
    async fn change_office(
        &self,
        until: Instant,
        change: impl Fn(&Line) -> Result<Option<Office>, OperatorError>,
    ) -> Result<(), OperatorError> {
        loop {
            let line = self.read_until(MAX_LINE, until).await?;
            let Some(to) = change(&line)? else { return Ok(()) };
            let was = line.office.version;
            let written = self.retry(until, || self.store.set_office(&self.election, was, &to)).await?;
            // A write that was repeated may have been refused because its first try had got through: the next look
            // finds it done.
            if written == Cas::Done {
                return Ok(());
            }
            if Instant::now() >= until {
                let what = "others kept changing the office record".to_owned();
                return Err(OperatorError::TimedOut { waited: Duration::ZERO, what });
            }
        }
    }

    /// Reads until `done` answers something.
    async fn wait_until<T>(
        &self,
        until: Instant,
        what: &str,
        mut done: impl FnMut(&Line) -> Option<Result<T, OperatorError>>,
    ) -> Result<T, OperatorError> {
        let began = Instant::now();
        loop {
            let line = self.read_until(MAX_LINE, until).await?;
            if let Some(outcome) = done(&line) {
                return outcome;
            }
            if Instant::now() >= until {
                return Err(OperatorError::TimedOut { waited: began.elapsed(), what: what.to_owned() });
            }
            self.wait_for_change(&line, until).await;
        }
    }

    /// Waits for a hint; where the last entry in line is what matters, a hint may not come, so not for long.
    async fn wait_for_change(&self, line: &Line, until: Instant) {
        let mut targets = vec![Target::Head, Target::Office];
        targets.extend(line.entries.last().map(|entry| Target::Gone(entry.id.clone())));
        let look_again = Instant::now() + (self.settings.renew_every / 10).max(Duration::from_millis(10));
        let wake = self.watch(&targets, line.cursor);
        match timeout_at(until.min(look_again), wake).await {
            Ok(Ok(())) | Err(_) => {}
            Ok(Err(_)) => sleep_until(until.min(look_again)).await,
        }
    }

    fn watch(&self, targets: &[Target], from: Cursor) -> incumbent_store::Wake {
        self.store.watch(&self.election, targets, from)
    }

    /// Waits until the heir has been read as leading, or somebody else is.
    pub(crate) async fn until_leads(&self, heir: &Heir, within: Duration) -> Result<(), Outcome> {
        let until = Instant::now() + within;
        let outcome = self.wait_until(until, "the heir does not lead yet", |line| match line.entries.first() {
            Some(head) if head.incarnation == Some(heir.incarnation) => Some(Ok(Ok(()))),
            Some(head) if !line.entries.iter().any(|entry| entry.incarnation == Some(heir.incarnation)) => {
                Some(Ok(Err(Some(Leader::from(head)))))
            }
            Some(_) | None => None,
        });
        match outcome.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(leader)) => Err(Outcome::Other(leader)),
            Err(OperatorError::Read(error)) => Err(Outcome::Unknown(error)),
            Err(_) => Err(Outcome::Other(None)),
        }
    }
}

/// Someone who acts on an election from outside. Every act returns when it has come to pass, or fails.
#[derive(Clone, Debug)]
pub struct Operator {
    roll: Roll,
    ttl: Duration,
    keep: Duration,
}

impl Operator {
    pub(crate) fn new(roll: Roll, ttl: Duration) -> Operator {
        Operator { roll, ttl, keep: (ttl * 2).max(Duration::from_secs(60)) }
    }

    /// How long the tombstone of an ended election stays: at least the longest TTL that any candidate uses. Twice our
    /// own, and a minute at least, unless set.
    #[must_use]
    pub fn keep_tombstone(mut self, keep: Duration) -> Operator {
        self.keep = keep;
        self
    }

    /// Makes this candidate the leader: others step aside for it, and the leader hands over. `Ok`: it leads.
    pub async fn transfer(&self, to: impl Into<Member>, within: Duration) -> Result<(), OperatorError> {
        let to = to.into();
        let until = Instant::now() + within;
        let nonce = fresh_nonce(&self.roll);
        let line = self.roll.read_until(MAX_LINE, until).await?;
        let leader = line.entries.first().ok_or(OperatorError::Vacant)?;
        let heir = find_heir(&line, &to)?;
        if leader.incarnation == Some(heir.incarnation) {
            return Ok(());
        }
        self.refuse_foreign(line.entries.iter().take_while(|entry| entry.id != heir.entry))
            .map_err(|_| TransferRefused::Leader(incumbent_core::Refusal::ForeignBetween))?;
        let from = leader.token;
        let handover = Handover { from, heir: Some(heir.clone()), nonce, within, refused: None };
        self.ask(until, handover).await?;
        let outcome = self.roll.wait_until(until, "the heir does not lead yet", |line| {
            let head = line.entries.first();
            if head.is_some_and(|head| head.incarnation == Some(heir.incarnation)) {
                return Some(Ok(()));
            }
            if head.is_some_and(|head| head.token != from) && !line.entries.iter().any(|entry| entry.id == heir.entry) {
                return Some(Err(OperatorError::Other { leader: head.map(Leader::from) }));
            }
            refusal_of(line, nonce).map(|why| Err(TransferRefused::Leader(why).into()))
        });
        let outcome = outcome.await;
        self.clear_handover(nonce).await;
        outcome
    }

    /// Makes the leader step down and go to the end of the line. `Ok`: it does not lead any more.
    pub async fn resign(&self, within: Duration) -> Result<(), OperatorError> {
        let until = Instant::now() + within;
        let nonce = fresh_nonce(&self.roll);
        let line = self.roll.read_until(MAX_LINE, until).await?;
        let leader = line.entries.first().ok_or(OperatorError::Vacant)?;
        self.refuse_foreign([leader])?;
        let from = leader.token;
        self.ask(until, Handover { from, heir: None, nonce, within, refused: None }).await?;
        let outcome = self.roll.wait_until(until, "the leader has not stepped down yet", |line| {
            if line.entries.first().is_none_or(|head| head.token != from) {
                return Some(Ok(()));
            }
            refusal_of(line, nonce).map(|why| Err(TransferRefused::Leader(why).into()))
        });
        let outcome = outcome.await;
        self.clear_handover(nonce).await;
        outcome
    }

    /// Writes down a request to hand over, unless another one is under way.
    async fn ask(&self, until: Instant, handover: Handover) -> Result<(), OperatorError> {
        self.roll
            .change_office(until, |line| {
                let head = line.entries.first().map(|head| head.token);
                if line.office.handover.as_ref().is_some_and(|there| there.nonce == handover.nonce) {
                    return Ok(None);
                }
                if head != Some(handover.from) {
                    return Err(OperatorError::NotLeading { asked: handover.from, leads: head });
                }
                if line.office.handover_from(handover.from).is_some() {
                    return Err(TransferRefused::Leader(incumbent_core::Refusal::Busy).into());
                }
                Ok(Some(Office { handover: Some(handover.clone()), ..line.office.clone() }))
            })
            .await
    }

    /// Takes our request back. It is void by itself once its leader is gone, so a failure does no harm.
    async fn clear_handover(&self, nonce: Nonce) {
        let until = Instant::now() + PATIENCE;
        let cleared = self.roll.change_office(until, |line| {
            let ours = line.office.handover.as_ref().is_some_and(|handover| handover.nonce == nonce);
            Ok(ours.then(|| Office { handover: None, ..line.office.clone() }))
        });
        if let Err(error) = cleared.await {
            tracing::debug!(%error, "a request that is over stays in the office record");
        }
    }

    /// Removes the leader's entry, without asking it: exactly the entry with this token, or the leader's as it is
    /// read now. It loses its office at its next look, at its deadline at the latest; its token is refused from the
    /// moment the next leader is in office. Answers with the token that was removed.
    pub async fn depose(&self, token: Option<Token>) -> Result<Token, OperatorError> {
        let until = Instant::now() + PATIENCE;
        let line = self.roll.read_until(1, until).await?;
        let leads = line.entries.first().map(|entry| entry.token);
        let asked = match (token, leads) {
            (Some(token), leads) if leads != Some(token) => {
                return Err(OperatorError::NotLeading { asked: token, leads });
            }
            (_, Some(leads)) => leads,
            (_, None) => return Err(OperatorError::Vacant),
        };
        // It is told why first: once its entry is gone it looks no further.
        self.roll
            .change_office(until, |line| {
                let told = line.office.deposed == Some(asked);
                Ok((!told).then(|| Office { deposed: Some(asked), ..line.office.clone() }))
            })
            .await?;
        loop {
            let line = self.roll.read_until(1, until).await?;
            let Some(head) = line.entries.first().filter(|head| head.token == asked) else { break };
            if self.roll.retry(until, || self.roll.store.evict(&self.roll.election, head)).await? == Cas::Done {
                break;
            }
            if Instant::now() >= until {
                let what = "the entry kept changing".to_owned();
                return Err(OperatorError::TimedOut { waited: PATIENCE, what });
            }
        }
        Ok(asked)
    }

    /// Stops the election: the leader drains and leaves, nobody takes office. `Ok`: nobody is in line any more.
    pub async fn pause(&self, reason: &str, within: Duration) -> Result<(), OperatorError> {
        if reason.len() > MAX_REASON_BYTES || reason.chars().any(char::is_control) {
            let what = format!("the reason for a pause has at most {MAX_REASON_BYTES} bytes and no control characters");
            return Err(OperatorError::Misuse { what });
        }
        let until = Instant::now() + within;
        let paused = Paused { reason: reason.into() };
        self.roll
            .change_office(until, |line| {
                self.refuse_foreign(&line.entries)?;
                let there = line.office.paused.as_ref() == Some(&paused);
                Ok((!there).then(|| Office { paused: Some(paused.clone()), ..line.office.clone() }))
            })
            .await?;
        self.until_line_is_empty(until).await
    }

    /// Lets a paused election go on.
    pub async fn resume(&self) -> Result<(), OperatorError> {
        let until = Instant::now() + PATIENCE;
        let line = self.roll.read_until(1, until).await?;
        if line.office.paused.is_none() {
            return Err(OperatorError::Nothing { what: "the election is not paused".into() });
        }
        self.roll
            .change_office(until, |line| {
                let paused = line.office.paused.is_some();
                Ok(paused.then(|| Office { paused: None, ..line.office.clone() }))
            })
            .await
    }

    /// Ends the election for all who know it: everyone is told, and leaves. `Ok`: nobody is in line any more. What
    /// remains is a tombstone for those who are out of reach now, and it goes by itself.
    pub async fn end(&self, within: Duration) -> Result<(), OperatorError> {
        let until = Instant::now() + within;
        let ended = Ended { id: fresh_nonce(&self.roll), keep: self.keep.max(self.ttl) };
        self.roll
            .change_office(until, |line| {
                self.refuse_foreign(&line.entries)?;
                let there = line.office.ended.as_ref() == Some(&ended);
                // Whatever else stood there concerned an election that is no more.
                Ok((!there).then(|| Office { ended: Some(ended.clone()), ..Office::default() }))
            })
            .await?;
        self.until_line_is_empty(until).await
    }

    async fn until_line_is_empty(&self, until: Instant) -> Result<(), OperatorError> {
        self.roll
            .wait_until(until, "candidates are still in line", |line| {
                if let Err(foreign) = self.refuse_foreign(&line.entries) {
                    return Some(Err(foreign));
                }
                line.entries.is_empty().then_some(Ok(()))
            })
            .await
    }

    /// Candidates of another library obey no notices.
    fn refuse_foreign<'a>(&self, entries: impl IntoIterator<Item = &'a Entry>) -> Result<(), OperatorError> {
        let foreign = entries.into_iter().filter(|entry| entry.is_foreign());
        let entries: Vec<_> = foreign.map(|entry| entry.id.as_str().to_owned()).collect();
        if entries.is_empty() { Ok(()) } else { Err(OperatorError::Foreign { entries }) }
    }
}

fn refusal_of(line: &Line, nonce: Nonce) -> Option<incumbent_core::Refusal> {
    line.office.handover.as_ref().filter(|handover| handover.nonce == nonce)?.refused
}

fn fresh_nonce(roll: &Roll) -> Nonce {
    // Unique enough to tell requests apart: two operators would have to read the same nanosecond on two hosts, and
    // the hash keys of two processes would have to agree.
    use std::hash::{BuildHasher, RandomState};
    Nonce(RandomState::new().hash_one(roll.port.now().as_nanos()))
}
