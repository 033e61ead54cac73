//! Acting on an election from outside: transfer, resign, depose, pause, resume, freeze, unfreeze,
//! bench, unbench, acknowledge, end.
//!
//! Every act is a change of the office record, or the removal of exactly the entry that was seen,
//! followed by reading until it has taken effect. Nothing here is a candidate, and nothing here is
//! trusted: the store's guards decide. A group of peers has no office record: there the leader
//! itself is asked, and most acts do not exist.

mod bench;

use std::sync::Arc;
use std::time::Duration;

use incumbent_core::{
    Cas, Deposed, Ended, Entry, Frozen, Handover, Heir, Incarnation, LONGEST, Line, MAX_LINE, MAX_NAME_BYTES,
    MAX_REASON_BYTES, Nonce, Office, Order, Paused, Pending, Preparation, Recovery, Shot, ShotResult, Token,
};
use incumbent_store::wall_clock_ms;
use tokio::time::Instant;

pub use bench::BenchForecast;

use crate::backend::{Backend, ElectionReader, PATIENCE, end_of};
use crate::error::{OperatorError, TransferRefused, Unfinished};
use crate::forecast::Forecast;
use crate::observer::CandidateInfo;
use crate::office_record::OfficeRecord;

/// A candidate, named by its name or its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CandidateRef(pub(crate) String);

impl<T: Into<String>> From<T> for CandidateRef {
    fn from(text: T) -> CandidateRef {
        CandidateRef(text.into())
    }
}

impl CandidateRef {
    fn fits(&self, entry: &Entry) -> bool {
        entry.name.as_deref() == Some(&self.0) || self.id().is_some_and(|id| entry.incarnation == Some(id))
    }

    pub(crate) fn id(&self) -> Option<Incarnation> {
        (self.0.len() == 32).then(|| self.0.parse().ok()).flatten()
    }
}

/// How far a transfer has come. Where it takes no time to get ready, it is never seen doing so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum TransferPhase {
    /// The leader is asked, and those between step aside.
    Asked,
    /// The heir is next in line and gets ready; the leader leads on.
    Preparing,
    /// The heir is ready, so the leader stops its work, unless it hangs. There is no way back from
    /// that.
    Draining,
    /// The leader has given its office up: the heir is first in line.
    Released,
}

impl TransferPhase {
    /// That of this request to the leader with this token, as far as the line tells.
    fn of(line: &Line, from: Token, heir: &Heir, nonce: Nonce) -> Option<TransferPhase> {
        let head = line.entries.first()?;
        if Heir::of(head).as_ref() == Some(heir) {
            return Some(TransferPhase::Released);
        }
        let heir =
            line.entries.iter().filter(|_| head.token == from).find(|entry| Heir::of(entry).as_ref() == Some(heir))?;
        Some(match heir.merit.preparation {
            _ if heir.ready == Some(nonce) => TransferPhase::Draining,
            Some(Preparation::Preparing(known)) if known == nonce => TransferPhase::Preparing,
            _ => TransferPhase::Asked,
        })
    }
}

/// The one candidate in line that is meant.
pub(crate) fn find_heir(line: &Line, to: &CandidateRef) -> Result<Heir, TransferRefused> {
    let fitting: Vec<_> = line.entries.iter().filter(|entry| to.fits(entry)).collect();
    match fitting[..] {
        [] => Err(TransferRefused::NoSuchCandidate(to.0.clone())),
        [entry] => Heir::of(entry).ok_or(TransferRefused::Foreign),
        _ => {
            let id =
                |entry: &&Entry| entry.incarnation.map_or_else(|| entry.id.as_str().to_owned(), |id| id.to_string());
            Err(TransferRefused::Ambiguous { name: to.0.clone(), ids: fitting.iter().map(id).collect() })
        }
    }
}

/// Someone who acts on an election from outside. Every act returns once it has taken effect, or
/// fails.
///
/// ```
/// use std::time::Duration;
/// use incumbent::Client;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let url = "memory://operator";
/// # let election = Client::connect(url).await?.election("jobs")?;
/// # for name in ["node-1", "node-2"] {
/// #     let mut candidacy = Client::connect(url).await?.election("jobs")?.candidate(name).stand().await?;
/// #     tokio::spawn(async move {
/// #         while let Ok(Some(leadership)) = candidacy.elected().await {
/// #             leadership.stopping().await;
/// #         }
/// #     });
/// # }
/// let (operator, within) = (election.operator(), Duration::from_secs(30));
///
/// operator.transfer("node-2", within).await?; // by name, or by id where two have the same
/// assert_eq!(election.leader().await?.get().as_ref().unwrap().name.as_deref(), Some("node-2"));
///
/// operator.clone().reason("upgrade").pause(within).await?; // the leader drains; nobody is in line any more
/// operator.resume(within).await?; // they come back by themselves
/// operator.end(within).await?; // and now they do not
/// # Ok(())
/// # }
/// ```
///
/// An act that is dropped half-way stops waiting; what it has written stays.
#[derive(Clone, Debug)]
pub struct Operator {
    reader: ElectionReader,
    ttl: Duration,
    keep: Duration,
    by: String,
    reason: String,
    recovery: Option<Arc<str>>,
}

impl Operator {
    pub(crate) fn new(reader: ElectionReader, ttl: Duration) -> Operator {
        let keep = ttl.saturating_mul(2).max(Duration::from_secs(60)).min(LONGEST);
        Operator { reader, ttl, keep, by: String::new(), reason: String::new(), recovery: None }
    }

    /// Who gives the orders, e.g. `ada@ops1`: 255 bytes at most. It stands in the election's record
    /// with each order, and in the leader's log.
    #[must_use]
    pub fn by(mut self, by: impl Into<String>) -> Operator {
        self.by = by.into();
        self
    }

    /// Why: 1 KiB at most. It stands beside [who](Operator::by).
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Operator {
        self.reason = reason.into();
        self
    }

    /// For the recovery with this id, which holds back what others order: see
    /// [`recover`](Operator::recover).
    #[must_use]
    pub fn recovering(mut self, id: impl Into<Arc<str>>) -> Operator {
        self.recovery = Some(id.into());
        self
    }

    /// While one is under way, only its own operators let candidates back, or end the election.
    fn refuse_during_recovery(&self, office: &Office) -> Result<(), OperatorError> {
        match &office.recovery {
            Some(other) if Some(&other.id) != self.recovery.as_ref() => {
                Err(OperatorError::Recovering(Box::new(other.clone())))
            }
            _ => Ok(()),
        }
    }

    /// What goes into the record, with the time on this host's wall clock: for people.
    fn order(&self) -> Result<Order, OperatorError> {
        let says = |text: &str, most| text.len() <= most && !text.chars().any(char::is_control);
        if !says(&self.by, MAX_NAME_BYTES) || !says(&self.reason, MAX_REASON_BYTES) {
            return Err(OperatorError::Reason);
        }
        Ok(Order::new(self.by.as_str(), wall_clock_ms(), self.reason.as_str()))
    }

    /// The election's records in its store. Peers have none.
    #[cfg_attr(not(feature = "peers"), allow(unused_variables, reason = "only peers refuse an act"))]
    fn record(&self, act: &'static str) -> Result<OfficeRecord, OperatorError> {
        match &self.reader.backend {
            Backend::Store(store) => Ok(OfficeRecord::new(store.clone(), &self.reader)),
            #[cfg(feature = "peers")]
            Backend::Peers(group_client) => Err(group_client.cannot(act)),
        }
    }

    /// How long the tombstone of an ended election stays: at least the longest TTL that any
    /// candidate uses. Twice our own, and a minute at least, unless set. A year at most.
    #[must_use]
    pub fn keep_tombstone(mut self, keep: Duration) -> Operator {
        self.keep = keep.min(LONGEST);
        self
    }

    /// Makes this candidate the leader: others step aside for it, and the leader hands over. `Ok`:
    /// it leads.
    ///
    /// Not with bully and ring: rank decides there.
    pub async fn transfer(&self, to: impl Into<CandidateRef>, within: Duration) -> Result<(), OperatorError> {
        self.transfer_and_tell(to, within, |_| {}).await
    }

    /// The same, and tells how far it has come, each phase once. Some may be over before they were
    /// seen. Peers have none.
    pub async fn transfer_and_tell(
        &self,
        to: impl Into<CandidateRef>,
        within: Duration,
        mut tell: impl FnMut(TransferPhase),
    ) -> Result<(), OperatorError> {
        let to = to.into();
        #[cfg(feature = "peers")]
        if let Backend::Peers(group_client) = &self.reader.backend {
            return group_client.transfer(&self.reader, &to, within).await;
        }
        let record = self.record("transfer")?;
        let until = end_of(within);
        record.refuse_transfer_without_record(until).await?;
        let nonce = record.port.nonce();
        let line = record.read_until(MAX_LINE, until).await?;
        let (leader, heir) = leader_and_heir(&line, &to)?;
        let is_heir = |entry: &Entry| Heir::of(entry).as_ref() == Some(&heir);
        // Where terms are on record, the first in line may not be in office yet.
        let leads = |line: &Line| line.entries.first().is_some_and(|head| line.office.pending(head).is_none());
        if is_heir(leader) && leads(&line) {
            return Ok(());
        }
        let from = leader.token;
        let handover = Handover::new(from, heir.clone(), nonce, within).ordered(self.order()?);
        if !is_heir(leader) {
            refuse_fencing(&line)?;
            ask(&record, until, handover).await?;
            tell(TransferPhase::Asked);
        }
        let mut request = Request::new(nonce);
        let mut told = TransferPhase::Asked;
        let outcome = record.wait_until(until, Unfinished::HeirLeads, |line| {
            if let Some(phase) = TransferPhase::of(line, from, &heir, nonce).filter(|phase| *phase > told) {
                told = phase;
                tell(phase);
            }
            let head = line.entries.first();
            if head.is_some_and(is_heir) {
                return leads(line).then_some(Ok(()));
            }
            if head.is_some_and(|head| head.token != from) && !line.entries.iter().any(is_heir) {
                return Some(Err(OperatorError::Other { leader: head.map(CandidateInfo::from) }));
            }
            request.look(line, from).err().map(Err)
        });
        let outcome = outcome.await;
        clear_handover(&record, nonce).await;
        outcome
    }

    /// What [`transfer`](Operator::transfer) would do now, and nothing is done. Refused where that
    /// would be refused at once.
    pub async fn foresee_transfer(
        &self,
        to: impl Into<CandidateRef>,
        within: Duration,
    ) -> Result<Forecast, OperatorError> {
        let to = to.into();
        #[cfg(feature = "peers")]
        if let Backend::Peers(group_client) = &self.reader.backend {
            return group_client.foresee_transfer(&self.reader, &to, within).await;
        }
        let (record, until) = (self.record("transfer")?, end_of(within));
        record.refuse_transfer_without_record(until).await?;
        let line = record.read_until(MAX_LINE, until).await?;
        let (leader, heir) = leader_and_heir(&line, &to)?;
        if Heir::of(leader).as_ref() != Some(&heir) {
            self.order()?;
            refuse_request(&line, leader.token)?;
        }
        Ok(Forecast::new(&line, leader, &heir))
    }

    /// Takes back an operator's [`transfer`](Operator::transfer) or [`resign`](Operator::resign)
    /// that is under way; the operator that waits for it is told. `Ok`: the request is out of the
    /// record. A leader that has begun to stop its work hands over all the same: there is no way
    /// back from that.
    pub async fn call_off(&self, within: Duration) -> Result<(), OperatorError> {
        let record = self.record("call off a transfer")?;
        let until = end_of(within);
        let asked = asked_by_operator(&record.read_until(1, until).await?).map(|asked| asked.nonce);
        let asked = asked.ok_or(OperatorError::NotHandingOver)?;
        record
            .change_office(until, |line| {
                // Gone by now, or another: what was seen is over.
                let there = asked_by_operator(line).filter(|there| there.nonce == asked);
                Ok(there.map(|_| line.office.clone().with_handover(None)))
            })
            .await
    }

    /// Makes the leader step down and go to the end of the line. `Ok`: it no longer leads. One that
    /// is not in office, since it stops the last leader from outside first, is not asked.
    pub async fn resign(&self, within: Duration) -> Result<(), OperatorError> {
        #[cfg(feature = "peers")]
        if let Backend::Peers(group_client) = &self.reader.backend {
            return group_client.resign(&self.reader, within).await;
        }
        let record = self.record("resign")?;
        let until = end_of(within);
        let nonce = record.port.nonce();
        let line = record.read_until(MAX_LINE, until).await?;
        let leader = line.entries.first().ok_or(OperatorError::Vacant)?;
        refuse_foreign([leader])?;
        refuse_fencing(&line)?;
        let from = leader.token;
        ask(&record, until, Handover::new(from, None, nonce, within).ordered(self.order()?)).await?;
        let mut request = Request::new(nonce);
        let outcome = record.wait_until(until, Unfinished::LeaderLeft, |line| {
            if line.entries.first().is_none_or(|head| head.token != from) {
                return Some(Ok(()));
            }
            request.look(line, from).err().map(Err)
        });
        let outcome = outcome.await;
        clear_handover(&record, nonce).await;
        outcome
    }

    /// Declares a consensus group founded with the members that are up, a majority at least,
    /// although others never came. `Ok`: it is founded, and elects. Members that had agreed to a
    /// founding which cannot be completed, because a disk on its list was lost, give it up first.
    ///
    /// The caller asserts that **no member of this group has ever voted** on a disk that still
    /// exists: not one that is down now, not one whose directory is elsewhere. Otherwise there are
    /// two groups of the same name, with two leaders.
    #[cfg(feature = "peers")]
    pub async fn found(&self, within: Duration) -> Result<(), OperatorError> {
        match &self.reader.backend {
            Backend::Peers(group_client) => group_client.found(&self.reader, within).await,
            Backend::Store(_) => Err(OperatorError::NotAGroup),
        }
    }

    /// Lets a member of a consensus group that lost its state come back, although other members do
    /// not answer or have lost theirs as well. `Ok`: it votes, once what it may have promised
    /// before is over.
    ///
    /// It needs the answer of one member that still has its state, and begins [a million
    /// terms](incumbent_core::peers::consensus::TERMS_SKIPPED) after the highest that is known. The
    /// caller asserts that the process that had the lost state is dead, and that fewer than a
    /// million elections were held which none of the members that answer has heard of. Otherwise a
    /// token may be used twice.
    #[cfg(feature = "peers")]
    pub async fn readmit(&self, member: impl Into<CandidateRef>, within: Duration) -> Result<(), OperatorError> {
        match &self.reader.backend {
            Backend::Peers(group_client) => group_client.readmit(&self.reader, &member.into(), within).await,
            Backend::Store(_) => Err(OperatorError::NotAGroup),
        }
    }

    /// Removes the leader's entry, without asking it: exactly the entry with this token, or the
    /// leader's as it is read now. It loses its office at its next look, at its deadline at the
    /// latest; its token is refused from the moment the next leader is in office. Answers with the
    /// token that was removed. One that is stopping the last leader from outside has to be named by
    /// its token: the next in line may lead without having stopped anybody.
    pub async fn depose(&self, token: Option<Token>, within: Duration) -> Result<Token, OperatorError> {
        let record = self.record("depose")?;
        let until = end_of(within);
        let line = record.read_until(1, until).await?;
        let leads = line.entries.first().map(|entry| entry.token);
        let asked = match (token, leads) {
            (Some(token), leads) if leads != Some(token) => {
                return Err(OperatorError::NotLeading { asked: token, leads });
            }
            (Some(token), _) => token,
            (None, Some(leads)) => refuse_fencing(&line).map(|()| leads)?,
            (None, None) => return Err(OperatorError::Vacant),
        };
        let deposed = Deposed::new(asked).ordered(self.order()?);
        // It is told why first: once its entry is gone it looks no further.
        record
            .change_office(until, |line| {
                let told = line.office.deposed.as_ref().is_some_and(|deposed| deposed.token == asked);
                Ok((!told).then(|| line.office.clone().with_deposed(deposed.clone())))
            })
            .await?;
        loop {
            let line = record.read_until(1, until).await?;
            let Some(head) = line.entries.first().filter(|head| head.token == asked) else { break };
            if record.evict(until, head).await? == Cas::Done {
                break;
            }
            if Instant::now() >= until {
                return Err(OperatorError::TimedOut { waited: within, missing: Unfinished::EntryRemoved });
            }
        }
        Ok(asked)
    }

    /// Stops the election: the leader drains and leaves, nobody takes office. `Ok`: nobody is in
    /// line any more. To keep the leader where it is, [`freeze`](Operator::freeze).
    pub async fn pause(&self, within: Duration) -> Result<(), OperatorError> {
        let record = self.record("pause")?;
        let until = end_of(within);
        let paused = Paused::new(self.order()?);
        record
            .change_office(until, |line| {
                refuse_foreign(&line.entries)?;
                let there = line.office.paused.as_ref() == Some(&paused);
                Ok((!there).then(|| line.office.clone().with_paused(paused.clone())))
            })
            .await?;
        until_line_is_empty(&record, until, false).await
    }

    /// Lets a paused election go on.
    pub async fn resume(&self, within: Duration) -> Result<(), OperatorError> {
        let is_paused = |office: &Office| office.paused.is_some();
        self.take_out("resume", within, is_paused, OperatorError::NotPaused, |office| office.with_paused(None)).await
    }

    /// Lets a paused election go on, with the candidate of this name first: only it stands until it
    /// leads, and the others come back after that. `Ok`: it leads. Out of time, what was ordered
    /// stays: [`resume`](Operator::resume) lets everybody stand instead.
    pub async fn resume_first(&self, name: impl Into<String>, within: Duration) -> Result<(), OperatorError> {
        let first = name.into();
        let record = self.record("resume")?;
        let until = end_of(within);
        let paused = Paused::new(self.order()?).until_leads(first.as_str());
        let office = record.read_until(1, until).await?.office;
        if office.paused.is_none() {
            return Err(OperatorError::NotPaused);
        }
        refuse_benched(&office, &first)?;
        record
            .change_office(until, |line| {
                self.refuse_during_recovery(&line.office)?;
                // Gone by now: it leads already, or another operator let everybody back.
                let to_change = line.office.paused.as_ref().filter(|there| **there != paused);
                Ok(to_change.map(|_| line.office.clone().with_paused(paused.clone())))
            })
            .await?;
        record
            .wait_until(until, Unfinished::FirstLeads, |line| {
                let head = line.entries.first();
                if head.is_some_and(|head| {
                    head.name.as_deref() == Some(first.as_str()) && line.office.pending(head).is_none()
                }) {
                    // It lets the others back itself.
                    return line.office.paused.is_none().then_some(Ok(()));
                }
                let goes_on = line.office.paused.is_none() && head.is_some();
                let leader = head.map(CandidateInfo::from);
                goes_on.then(|| Err(OperatorError::NotFirst { leader }))
            })
            .await
    }

    /// Takes something out of the office record. One that is not there to begin with is an error;
    /// one that goes meanwhile is done with.
    async fn take_out(
        &self,
        act: &'static str,
        within: Duration,
        is_there: impl Fn(&Office) -> bool,
        missing: OperatorError,
        without: impl Fn(Office) -> Office,
    ) -> Result<(), OperatorError> {
        let record = self.record(act)?;
        let until = end_of(within);
        if !is_there(&record.read_until(1, until).await?.office) {
            return Err(missing);
        }
        let change = |line: &Line| {
            self.refuse_during_recovery(&line.office)?;
            Ok(is_there(&line.office).then(|| without(line.office.clone())))
        };
        record.change_office(until, change).await
    }

    /// Writes down that this election is being healed, with an id that tells the recovery from
    /// every other, and the step that it is at; again for each step. From then on
    /// [`resume`](Operator::resume), [`resume_first`](Operator::resume_first),
    /// [`unfreeze`](Operator::unfreeze), [`unbench`](Operator::unbench),
    /// [`acknowledge`](Operator::acknowledge) and [`end`](Operator::end) are refused to everyone
    /// but an operator that is [`recovering`](Operator::recovering) with this id, and so is another
    /// recovery: two of them could each let another candidate lead. One that is under way is
    /// replaced only by who knows its id: `instead_of`.
    pub async fn recover(
        &self,
        id: &str,
        step: &str,
        instead_of: Option<&str>,
        within: Duration,
    ) -> Result<(), OperatorError> {
        let record = self.record("recover")?;
        let recovery = Recovery::new(id, step, self.order()?);
        record
            .change_office(end_of(within), |line| {
                let there = line.office.recovery.as_ref();
                if let Some(other) = there.filter(|there| *there.id != *id && Some(&*there.id) != instead_of) {
                    return Err(OperatorError::Recovering(Box::new(other.clone())));
                }
                Ok((there != Some(&recovery)).then(|| line.office.clone().with_recovery(recovery.clone())))
            })
            .await
    }

    /// The recovery with this id is over.
    pub async fn recovered(&self, id: &str, within: Duration) -> Result<(), OperatorError> {
        let record = self.record("recover")?;
        record
            .change_office(end_of(within), |line| match &line.office.recovery {
                Some(other) if *other.id != *id => Err(OperatorError::Recovering(Box::new(other.clone()))),
                there => Ok(there.is_some().then(|| line.office.clone().with_recovery(None))),
            })
            .await
    }

    /// Keeps the office where it is: a leader that is unfit stays, and handovers are refused. One
    /// that crashes, or whose own program leaves, is followed by the next in line as ever;
    /// pause, depose and end are stronger. `Ok`: it is written down, and counts for a leader from
    /// when it reads it. It lasts until [`unfreeze`](Operator::unfreeze), or `lasts` from when the
    /// leader has first read it. Freezing again replaces the order.
    pub async fn freeze(&self, lasts: Option<Duration>, within: Duration) -> Result<(), OperatorError> {
        let record = self.record("freeze")?;
        let frozen = Frozen::new(record.port.nonce(), lasts.map(|lasts| lasts.min(LONGEST)), self.order()?);
        record
            .change_office(end_of(within), |line| {
                refuse_foreign(line.entries.first())?;
                let there = line.office.frozen.as_ref() == Some(&frozen);
                Ok((!there).then(|| line.office.clone().with_frozen(frozen.clone())))
            })
            .await
    }

    /// Lets the office move again.
    pub async fn unfreeze(&self, within: Duration) -> Result<(), OperatorError> {
        let is_frozen = |office: &Office| office.frozen.is_some();
        self.take_out("unfreeze", within, is_frozen, OperatorError::NotFrozen, |office| office.with_frozen(None)).await
    }

    /// Says that the work of this term, which is on record and not known to have ended, has
    /// stopped: somebody has checked. A candidate that waits for that with
    /// [STONITH](crate::Stonith) goes on. `Ok`: it is written down.
    ///
    /// It is the caller's word that counts: if that work goes on, two do it.
    pub async fn fenced(&self, token: Token, within: Duration) -> Result<(), OperatorError> {
        let record = self.record("fenced")?;
        let order = self.order()?;
        record
            .change_office(end_of(within), |line| {
                let term = line.office.terms.get(token);
                if term.and_then(|term| term.fence.as_ref()).is_some_and(|shot| shot.result.is_final()) {
                    return Ok(None);
                }
                // One that is in line leads, or is about to: a word too early would count later.
                let in_line = line.entries.iter().any(|entry| entry.token == token);
                let term = term.filter(|term| term.is_at_large() && !in_line);
                let term = term.ok_or(OperatorError::NotAtLarge { token })?;
                let shot = term.fence.clone().unwrap_or_else(|| Shot::claimed(token, 0));
                let said = term.clone().with_fence(shot.ended(ShotResult::Released).ordered(order.clone()));
                Ok(Some(line.office.clone().with_terms(line.office.terms.with(said))))
            })
            .await
    }

    /// For a store that was restored from an old copy, and would give tokens a second time: no
    /// token up to `floor` is given in this election from now on. Those in line keep theirs, so
    /// [`pause`](Operator::pause) first. A directory can do that;
    /// [`StoreError::Unsupported`](incumbent_store::StoreError::Unsupported) elsewhere.
    pub async fn raise_tokens(&self, floor: Token, within: Duration) -> Result<(), OperatorError> {
        Ok(self.record("raise tokens")?.raise_tokens(end_of(within), floor).await?)
    }

    /// Lets health move the office again, which had changed hands for it too often. What every
    /// candidate has counted is forgotten.
    pub async fn acknowledge(&self, within: Duration) -> Result<(), OperatorError> {
        let is_there = |office: &Office| office.held_back.is_some();
        self.take_out("ack", within, is_there, OperatorError::NotHeldBack, |office| office.with_held_back(None)).await
    }

    /// Ends the election for all who know it: everyone is told, and leaves. `Ok`: nobody is in line
    /// any more. What remains is a tombstone for those who are out of reach now, and it goes by
    /// itself.
    pub async fn end(&self, within: Duration) -> Result<(), OperatorError> {
        let record = self.record("end")?;
        let until = end_of(within);
        let ended = Ended::new(record.port.nonce(), self.keep.max(self.ttl)).ordered(self.order()?);
        let heeded = record.foreign_heed_end(until).await?;
        record
            .change_office(until, |line| {
                self.refuse_during_recovery(&line.office)?;
                refuse_foreign(line.entries.iter().filter(|_| !heeded))?;
                let there = line.office.ended.as_ref() == Some(&ended);
                // Whatever else stood there concerned an election that is no more.
                Ok((!there).then(|| Office::default().with_ended(ended.clone())))
            })
            .await?;
        until_line_is_empty(&record, until, heeded).await
    }
}

/// Writes down a request to hand over, unless another one is under way.
async fn ask(record: &OfficeRecord, until: Instant, handover: Handover) -> Result<(), OperatorError> {
    record
        .change_office(until, |line| {
            if line.office.handover.as_ref().is_some_and(|there| there.nonce == handover.nonce) {
                return Ok(None);
            }
            refuse_request(line, handover.from)?;
            Ok(Some(line.office.clone().with_handover(handover.clone())))
        })
        .await
}

/// Who hands over, and to whom, if the line allows it.
fn leader_and_heir<'a>(line: &'a Line, to: &CandidateRef) -> Result<(&'a Entry, Heir), OperatorError> {
    let leader = line.entries.first().ok_or(OperatorError::Vacant)?;
    refuse_benched(&line.office, &to.0)?;
    let heir = find_heir(line, to)?;
    let before = line.entries.iter().take_while(|entry| Heir::of(entry).as_ref() != Some(&heir));
    refuse_foreign(before).map_err(|_| TransferRefused::Leader(incumbent_core::Refusal::ForeignBetween))?;
    Ok((leader, heir))
}

/// One that is kept out of the line leads nobody.
fn refuse_benched(office: &Office, name: &str) -> Result<(), OperatorError> {
    match office.benched.get(name) {
        None => Ok(()),
        Some(order) => Err(OperatorError::IsBenched { name: name.to_owned(), order: order.order.clone() }),
    }
}

/// What keeps a request to the leader with this token from being written down.
fn refuse_request(line: &Line, from: Token) -> Result<(), OperatorError> {
    let head = line.entries.first().map(|head| head.token);
    if head != Some(from) {
        return Err(OperatorError::NotLeading { asked: from, leads: head });
    }
    if line.office.frozen.is_some() {
        return Err(TransferRefused::Leader(incumbent_core::Refusal::Frozen).into());
    }
    // What the leader does by itself an order replaces.
    if line.office.handover_from(from).is_some_and(|there| !there.is_unasked()) {
        return Err(TransferRefused::Leader(incumbent_core::Refusal::Busy).into());
    }
    Ok(())
}

/// Withdraws our request, unless it is being carried out. It is void by itself once its leader is
/// gone, so a failure does no harm.
async fn clear_handover(record: &OfficeRecord, nonce: Nonce) {
    let until = Instant::now() + PATIENCE;
    let cleared = record.change_office(until, |line| {
        let ours = line.office.handover.as_ref().filter(|handover| handover.nonce == nonce);
        // Where the heir is ready, the leader may have begun to stop its work, and the heir is not
        // to undo what it got ready: the leader carries the request out, or refuses it.
        let leads = |from| line.entries.first().is_some_and(|head| head.token == from);
        let is_taken_up = |there: &Handover| {
            leads(there.from) && there.refused.is_none() && line.entries.iter().any(|entry| entry.ready == Some(nonce))
        };
        Ok(ours.filter(|there| !is_taken_up(there)).map(|_| line.office.clone().with_handover(None)))
    });
    if let Err(error) = cleared.await {
        tracing::debug!(%error, "a request that is over stays in the office record");
    }
}

async fn until_line_is_empty(record: &OfficeRecord, until: Instant, foreign_leave: bool) -> Result<(), OperatorError> {
    record
        .wait_until(until, Unfinished::LineEmpty, |line| {
            if let Err(foreign) = refuse_foreign(line.entries.iter().filter(|_| !foreign_leave)) {
                return Some(Err(foreign));
            }
            line.entries.is_empty().then_some(Ok(()))
        })
        .await
}

/// The first in line keeps its place until the work of the last leader has stopped.
fn refuse_fencing(line: &Line) -> Result<(), OperatorError> {
    match line.entries.first().filter(|head| line.office.pending(head) == Some(Pending::Fencing)) {
        Some(head) => {
            let last = line.office.terms.iter().rev().find(|term| term.is_at_large()).map(|term| term.token);
            Err(OperatorError::Fencing { token: head.token, last })
        }
        None => Ok(()),
    }
}

/// Candidates of another library ignore operators.
fn refuse_foreign<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Result<(), OperatorError> {
    let foreign = entries.into_iter().filter(|entry| entry.is_foreign());
    let entries: Vec<_> = foreign.map(|entry| entry.id.as_str().to_owned()).collect();
    if entries.is_empty() { Ok(()) } else { Err(OperatorError::Foreign { entries }) }
}

/// A request of ours that the leader is to carry out.
struct Request {
    nonce: Nonce,
    /// A store may answer with what was so a moment before it was written.
    seen: bool,
}

impl Request {
    fn new(nonce: Nonce) -> Request {
        Request { nonce, seen: false }
    }

    /// Whether it may still be carried out by the leader that was asked, and leads on.
    fn look(&mut self, line: &Line, from: Token) -> Result<(), OperatorError> {
        match line.office.handover.as_ref().filter(|handover| handover.nonce == self.nonce) {
            Some(handover) => {
                self.seen = true;
                handover.refused.map_or(Ok(()), |why| Err(TransferRefused::Leader(why).into()))
            }
            None if self.seen && line.entries.first().is_some_and(|head| head.token == from) => {
                Err(OperatorError::CalledOff)
            }
            None => Ok(()),
        }
    }
}

/// What an operator has asked the leader for, and the leader may still carry out. Not what it does
/// by itself, or what its own program has asked for: it would ask again.
fn asked_by_operator(line: &Line) -> Option<&Handover> {
    let handover = line.office.handover_from(line.entries.first()?.token)?;
    (!handover.is_unasked() && handover.order != Order::default()).then_some(handover)
}
