//! The line and the office record of one election in a store, for those who act on it: with
//! retries, within a time.

use std::sync::Arc;
use std::time::Duration;

use incumbent_core::{Cas, ElectionName, Entry, Heir, Line, MAX_LINE, Office, Settings, Token, Version};
use incumbent_store::{LineKind, Promises, Store, StoreError};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::backend::{ElectionReader, PATIENCE, cut_off, cut_off_write, end_of, retry};
use crate::error::{OperatorError, ReadError, Unfinished};
use crate::observer::CandidateInfo;
use crate::port::Port;

/// Reads the line and the office record, and writes the latter.
#[derive(Clone, Debug)]
pub(crate) struct OfficeRecord {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) election: ElectionName,
    pub(crate) settings: Settings,
    pub(crate) port: Port,
}

/// How the wait for an heir ended.
pub(crate) enum Outcome {
    Other(Option<CandidateInfo>),
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

impl OfficeRecord {
    pub(crate) fn new(store: Arc<dyn Store>, reader: &ElectionReader) -> OfficeRecord {
        let ElectionReader { backend: _, election, settings, port } = reader.clone();
        OfficeRecord { store, election, settings, port }
    }

    pub(crate) async fn read(&self) -> Result<Line, ReadError> {
        self.read_until(MAX_LINE, Instant::now() + PATIENCE).await
    }

    pub(crate) async fn read_until(&self, entries: usize, until: Instant) -> Result<Line, ReadError> {
        retry(until, || Box::pin(self.line(entries))).await
    }

    /// One attempt.
    async fn line(&self, entries: usize) -> Result<Line, StoreError> {
        cut_off(self.settings.renew_every.min(PATIENCE), self.store.line(&self.election, entries)).await
    }

    /// Whether candidates of another library leave when the election ends.
    pub(crate) async fn foreign_heed_end(&self, until: Instant) -> Result<bool, ReadError> {
        Ok(self.promises(until).await?.foreign_heed_end)
    }

    /// Refuses a transfer where there is no record to ask for it in. Looking for the heir first
    /// would blame the heir: no line shows it there.
    pub(crate) async fn refuse_transfer_without_record(&self, until: Instant) -> Result<(), ReadError> {
        if self.promises(until).await?.office_record {
            return Ok(());
        }
        let what = "this store has no office record, and no office is handed over in it: to move the office, stop the \
                    leader's process";
        Err(StoreError::Unsupported { what: what.to_owned() }.into())
    }

    /// Refuses to bench anybody where that means nothing: without a record, or without a line in
    /// which others wait.
    pub(crate) async fn refuse_bench_without_line(&self, until: Instant) -> Result<(), ReadError> {
        let promises = self.promises(until).await?;
        if promises.office_record && promises.line == LineKind::Fair {
            return Ok(());
        }
        let what = "in this store nobody waits in a line, and there is no bench: to keep a candidate from leading, stop \
                    its process";
        Err(StoreError::Unsupported { what: what.to_owned() }.into())
    }

    async fn promises(&self, until: Instant) -> Result<Promises, ReadError> {
        let attempt = self.settings.renew_every.min(PATIENCE);
        retry(until, || Box::pin(cut_off(attempt, self.store.promises()))).await
    }

    /// How long one attempt at a write may take, which is small: a server that hangs must not keep
    /// us from asking another.
    fn write_attempt(&self) -> Duration {
        self.settings.renew_every.min(PATIENCE / 2)
    }

    /// Removes exactly the entry that was seen.
    pub(crate) async fn evict(&self, until: Instant, seen: &Entry) -> Result<Cas, ReadError> {
        retry(until, || Box::pin(cut_off_write(self.write_attempt(), self.store.evict(&self.election, seen)))).await
    }

    /// No token up to `floor` is given from now on.
    pub(crate) async fn raise_tokens(&self, until: Instant, floor: Token) -> Result<(), ReadError> {
        let raise = || cut_off_write(self.write_attempt(), self.store.raise_tokens(&self.election, floor));
        retry(until, || Box::pin(raise())).await
    }

    async fn set_office(&self, until: Instant, was: Version, to: &Office) -> Result<Cas, ReadError> {
        retry(until, || Box::pin(cut_off_write(self.write_attempt(), self.store.set_office(&self.election, was, to))))
            .await
    }

    /// Changes the office record, reading it anew as long as others change it, too. `None` from
    /// `change`: leave it.
    pub(crate) async fn change_office(
        &self,
        until: Instant,
        change: impl Fn(&Line) -> Result<Option<Office>, OperatorError>,
    ) -> Result<(), OperatorError> {
        let began = Instant::now();
        loop {
            let line = self.read_until(MAX_LINE, until).await?;
            let Some(to) = change(&line)? else { return Ok(()) };
            let written = self.set_office(until, line.office.version, &to).await?;
            // A write that was repeated may have been refused because its first try had got
            // through: the next look finds it done.
            if written == Cas::Done {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(OperatorError::TimedOut { waited: began.elapsed(), missing: Unfinished::RecordWritten });
            }
        }
    }

    /// Reads until `done` answers something.
    pub(crate) async fn wait_until<T>(
        &self,
        until: Instant,
        missing: Unfinished,
        mut done: impl FnMut(&Line) -> Option<Result<T, OperatorError>>,
    ) -> Result<T, OperatorError> {
        let began = Instant::now();
        loop {
            let line = self.read_until(MAX_LINE, until).await?;
            if let Some(outcome) = done(&line) {
                return outcome;
            }
            if Instant::now() >= until {
                return Err(OperatorError::TimedOut { waited: began.elapsed(), missing });
            }
            self.wait_for_change(&line, until).await;
        }
    }

    /// Waits for a hint; where the last entry in line is what matters, a hint may not come, so not
    /// for long.
    async fn wait_for_change(&self, line: &Line, until: Instant) {
        let mut seen = line.seen();
        seen.last = line.entries.last().map(|entry| entry.id.clone());
        let look_again = Instant::now() + (self.settings.renew_every / 10).max(Duration::from_millis(10));
        let wake = self.store.watch(&self.election, &seen, line.cursor);
        match timeout_at(until.min(look_again), wake).await {
            Ok(Ok(())) | Err(_) => {}
            Ok(Err(_)) => sleep_until(until.min(look_again)).await,
        }
    }

    /// Waits until the heir has been read as leading, or somebody else is.
    pub(crate) async fn until_leads(&self, heir: &Heir, within: Duration) -> Result<(), Outcome> {
        let until = end_of(within);
        let outcome = self.wait_until(until, Unfinished::HeirLeads, |line| match line.entries.first() {
            Some(head) if Heir::of(head).as_ref() == Some(heir) => Some(Ok(Ok(()))),
            Some(head) if !line.entries.iter().any(|entry| Heir::of(entry).as_ref() == Some(heir)) => {
                Some(Ok(Err(Some(CandidateInfo::from(head)))))
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
