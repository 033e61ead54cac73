//! A candidate, before it stands.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use incumbent_core::{LossReason, Origin, check_candidate_name, check_value};
use incumbent_store::{LineKind, Promises, StoreError};

use crate::backend::{PATIENCE, cut_off};
use crate::candidacy::{Candidacy, Role};
use crate::election::{Election, Fenced, Fencing};
use crate::error::{CandidacyError, LeadershipLost, StandError};
use crate::fence::Fence;
use crate::health::HealthChecks;
use crate::heir::{HeirRequest, ReadyHook};
use crate::leadership::Leadership;
use crate::origin::{HasStopped, this_guarded_process, this_host, this_process};
use crate::port::{Request, SharedCandidacy, Stand};
use crate::stonith::Stonith;
use crate::term::Term;

/// One who may stand in an election: a name for people, a value that it advertises, and the fences
/// to raise.
///
/// There are three ways to stand: [`stand`](Candidate::stand), for a loop of your own over terms;
/// [`run`](Candidate::run), for a closure that is called in each term until it returns; and
/// [`try_once`](Candidate::try_once), which does not wait.
///
/// ```
/// use std::sync::Arc;
/// use incumbent::fence::MemoryFence;
/// use incumbent::{Client, ElectionName};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let ledger = Arc::new(MemoryFence::new(&ElectionName::new("jobs")?, Vec::new()));
/// let election = Client::connect("memory://candidate").await?.election("jobs")?;
/// let candidate = election.candidate("node-1").value("10.0.0.7:80").fence(ledger.clone());
///
/// let leadership = candidate.try_once().await?.ok_or("somebody else leads")?;
/// ledger.write(leadership.token(), |lines| lines.push("done"))?;
///
/// // A second candidate of another process would be told so, and leave nothing behind.
/// let other = Client::connect("memory://candidate").await?.election("jobs")?;
/// assert!(other.candidate("node-2").try_once().await?.is_none());
/// # Ok(())
/// # }
/// ```
///
/// Dropping the future of any of the three leaves the line.
#[derive(Clone, Debug)]
#[must_use = "a candidate does nothing until it stands"]
pub struct Candidate<F: Fencing = Fenced> {
    election: Election<F>,
    name: String,
    value: Bytes,
    fences: Vec<Arc<dyn Fence>>,
    hold_until_stopped: bool,
    priority: Option<i32>,
    health: HealthChecks,
    recorded: bool,
    work_outlives_process: bool,
    guarded: Option<HasStopped>,
    stonith: Option<Arc<Stonith>>,
    ready_hook: Option<ReadyHook>,
    target: Arc<str>,
}

impl Candidate<Fenced> {
    /// A fence to raise before this candidate is in office: from then on the resource refuses every
    /// older leader. May be called several times. If one cannot be raised, the candidate does not
    /// take office. One that is shared comes as an `Arc`.
    pub fn fence(mut self, fence: impl Fence) -> Candidate {
        self.fences.push(Arc::new(fence));
        self
    }
}

impl<F: Fencing> Candidate<F> {
    pub(crate) fn new(election: Election<F>, name: String) -> Candidate<F> {
        let (value, fences, health) = (Bytes::new(), Vec::new(), HealthChecks::new());
        Candidate {
            election,
            name,
            value,
            fences,
            hold_until_stopped: false,
            priority: None,
            recorded: false,
            work_outlives_process: false,
            guarded: None,
            stonith: None,
            ready_hook: None,
            target: "".into(),
            health,
        }
    }

    /// What it advertises: an address, for instance. At most 64 KiB.
    pub fn value(mut self, value: impl Into<Bytes>) -> Candidate<F> {
        self.value = value.into();
        self
    }

    /// Keeps the place in line after a term until its [`Leadership`] has been dropped or given
    /// back, however long that takes. For supervisors, which know when the work has really stopped.
    /// Unless this is set, the place is given up at the hard stop, when the grace is over.
    pub fn hold_until_stopped(mut self) -> Candidate<F> {
        self.hold_until_stopped = true;
        self
    }

    /// Checks that tell whether this candidate is fit to lead, from now until its candidacy is
    /// over: see [`health`](crate::health).
    pub fn health(mut self, checks: HealthChecks) -> Candidate<F> {
        self.health = checks;
        self
    }

    /// Its priority: at a vacancy the first in line gives its place to the best that is behind it,
    /// fit before [unwell](crate::health), then by priority; among equals the line decides. It asks
    /// that one once, for two seconds at most, and takes office itself if that comes to nothing.
    ///
    /// A priority counts when the office is vacant, and never while somebody leads: a higher one
    /// that comes back waits. Taking the office back is a planned handover
    /// ([`Operator::transfer`](crate::Operator::transfer)). A lower one comes into office only when
    /// no higher one is in line, or when the higher one was not ready in time. Where terms are on
    /// record ([`recorded`](Candidate::recorded)) priorities do not count yet.
    ///
    /// Every candidate of the election has to have one, 0 for instance: one that has none takes the
    /// office that comes to it. Where there is no line (a Redlock, a group of peers) such a
    /// candidate is refused.
    pub fn priority(mut self, priority: i32) -> Candidate<F> {
        self.priority = Some(priority);
        self
    }

    /// Keeps a record of the election's terms: each is opened in the store before its leader is
    /// elected, and closed after its work has stopped and before its place in line goes. So people
    /// see in [`Status::terms`](crate::Status::terms) who led, from when to when, why it ended, and
    /// whether its work has certainly stopped.
    ///
    /// Once one candidate has asked for it, every later leader keeps it up. The work of a
    /// term has stopped when its [`Leadership`] is dropped or given back; one that the hard stop
    /// ended before that stays open until then. It takes two more writes for each term. Where there
    /// is no office record (a Redlock, a group of peers) such a candidate is refused.
    pub fn recorded(mut self) -> Candidate<F> {
        self.recorded = true;
        self
    }

    /// Says in the record of terms that the work does not end with this process: a supervisor's
    /// command may outlive it, if the supervisor is killed.
    pub fn work_outlives_process(mut self) -> Candidate<F> {
        self.work_outlives_process = true;
        self
    }

    /// Says in the record of terms that the work does not end with this process, but is ended by a
    /// guardian then. A later candidate on the same start of this host to which this was told, too,
    /// asks `has_stopped` of the process that led, once that is certainly gone: by its number, and
    /// its start in the kernel's ticks since boot. If nothing of its work is left for certain, its
    /// term is on record as died.
    pub fn work_is_guarded(mut self, has_stopped: fn(u32, u64) -> bool) -> Candidate<F> {
        self.guarded = Some(has_stopped);
        self
    }

    /// Says in the record of terms what this candidate's work is called by those who can stop it
    /// from outside: the name of a plug, for instance. At most 64 bytes.
    pub fn stopped_as(mut self, target: impl Into<Arc<str>>) -> Candidate<F> {
        self.target = target.into();
        self
    }

    /// Stops the work of the last leader from outside (STONITH) before this candidate is in office,
    /// where that leader's term is on record and neither closed nor known to have died. Keeps a
    /// [record](Candidate::recorded) of the election's terms.
    ///
    /// Every candidate of the election has to have it: one that stands without leads with no shot.
    ///
    /// For work that no fence guards: a resource with a [`Fence`] refuses the last leader as it is.
    /// The candidate is first in line meanwhile, its fences are raised, its session is renewed, and
    /// nobody else leads, however long the wait and the shot take. It waits for a late word that
    /// the work has stopped, says in the record that it is about to shoot, shoots once, and looks
    /// again.
    pub fn stonith(mut self, stonith: Stonith) -> Candidate<F> {
        self.recorded = true;
        self.stonith = Some(Arc::new(stonith));
        self
    }

    /// What this candidate does before it takes over from a leader that hands over to it, e.g. to
    /// fill its caches. It runs once for each request, when this candidate is next in line, and for
    /// as long as the request allows; the leader leads on meanwhile. An error, and a hook that
    /// takes too long, make this candidate decline, and the leader stays.
    ///
    /// What it answers is kept until the term that follows is over. If there will be none (the
    /// leader refused, or the request is for another now) it is dropped, as the future is before it
    /// has ended. Drop undoes what was done.
    ///
    /// It is not asked for when there is nobody to hand over: after a crash the next in line takes
    /// office at once, even while its hook runs. [`Leadership::was_ready`] tells. A candidate that
    /// has one where there is no line (a Redlock, a group of peers) is refused.
    ///
    /// ```
    /// use std::time::Duration;
    /// use incumbent::Client;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let url = "memory://ready-hook";
    /// let mut first = Client::connect(url).await?.election("jobs")?.candidate("node-1").stand().await?;
    /// let leadership = first.elected().await?.ok_or("the election has ended")?;
    /// let election = Client::connect(url).await?.election("jobs")?;
    /// let warm = election.candidate("node-2").ready_hook(|_| async {
    ///     Ok::<_, std::io::Error>(vec!["a warm cache"])
    /// });
    /// let mut second = warm.stand().await?;
    ///
    /// leadership.transfer_to("node-2", Duration::from_secs(60)).await?;
    /// assert!(second.elected().await?.ok_or("the election has ended")?.was_ready());
    /// # Ok(())
    /// # }
    /// ```
    pub fn ready_hook<W, R, E>(mut self, hook: impl Fn(HeirRequest) -> W + Send + Sync + 'static) -> Candidate<F>
    where
        W: Future<Output = Result<R, E>> + Send + 'static,
        R: Send + 'static,
        E: fmt::Display,
    {
        self.ready_hook = Some(ReadyHook::new(hook));
        self
    }

    /// Enters the line, and answers once it follows somebody or leads (or the election turns out to
    /// be paused, or this candidate unfit). One that is first in line leads once its fences are
    /// raised, and this waits for that, too.
    ///
    /// While the store cannot be reached this waits; dropping the future leaves the line. Among
    /// peers it makes this process a member of the group, and answers once it listens.
    pub async fn stand(self) -> Result<Candidacy<F>, StandError> {
        check_candidate_name(&self.name)?;
        check_value(&self.value)?;
        let client = &self.election.client;
        if self.priority.is_some() || self.recorded || self.ready_hook.is_some() {
            // One that cannot be asked now is let be: a priority only counts for nothing there, and
            // a term that cannot be recorded is refused when its turn comes.
            if let Ok(promises) = cut_off(PATIENCE, client.backend.promises()).await {
                self.priority.map_or(Ok(()), |_| check_priority(promises.line))?;
                self.ready_hook.as_ref().map_or(Ok(()), |_| check_ready_hook(promises.line))?;
                check_record(self.recorded, &promises)?;
            }
        }
        let (stonith, has_stopped, origin) = (self.stonith.clone(), self.guarded, self.origin());
        let shared = SharedCandidacy::new(self.election.first_contact.clone());
        let id = client.port.next_candidacy();
        let name: Arc<str> = self.name.into();
        let is_checked = !self.health.checks.is_empty();
        let candidate = incumbent_core::Candidate {
            value: self.value,
            fenced: !self.fences.is_empty(),
            hold_until_stopped: self.hold_until_stopped,
            unfit: is_checked,
            settles: if is_checked { self.health.timing.settles() } else { Duration::ZERO },
            priority: self.priority,
            recorded: self.recorded,
            origin,
            first_contact: self.election.first_contact.get().copied(),
            ..incumbent_core::Candidate::new(self.election.name.clone(), name.clone())
        };
        let (fences, ready_hook) = (self.fences, self.ready_hook);
        let stand = Stand { id, candidate, fences, stonith, ready_hook, has_stopped, shared: shared.clone() };
        let request = Request::Stand(Box::new(stand));
        if !client.port.send(request) {
            return Err(CandidacyError::Closed.into());
        }
        // From here on dropping the future drops the candidacy, which leaves the line.
        let candidacy = Candidacy::new(self.election, name, id, shared.clone());
        if is_checked {
            candidacy.start_checks(self.health)?;
        }
        let standing = shared.wait(|state| match (&state.failed, state.done, &state.role) {
            (Some(error), _, _) => Some(Err(error.clone())),
            (None, Some(_), _) => Some(Err(if state.ended { CandidacyError::Ended } else { CandidacyError::Closed })),
            (None, None, _) if state.health().is_none() => None,
            (None, None, Role::Out(LossReason::NoSession)) => None,
            // It has just been found fit, and is about to get in line.
            (None, None, Role::Out(LossReason::Unhealthy)) if !state.is_unfit() => None,
            (None, None, _) => Some(Ok(())),
        });
        standing.await?;
        Ok(candidacy)
    }

    /// What is put on record of where the work is done.
    fn origin(&self) -> Arc<Origin> {
        let origin = match (self.guarded, self.work_outlives_process) {
            (Some(_), _) => this_guarded_process(),
            (None, true) => this_host(),
            (None, false) => this_process(),
        };
        if self.target.is_empty() { origin } else { Arc::new((*origin).clone().with_target(self.target.clone())) }
    }

    /// Leads if nobody else does. `None`: somebody else leads, and nothing is left in the line.
    /// Among peers it waits until somebody leads, which takes a majority. One that is unfit leaves
    /// nothing behind either, and is an error.
    pub async fn try_once(self) -> Result<Option<Leadership<F>>, StandError> {
        let mut candidacy = self.stand().await?;
        let elected = candidacy.shared.wait(|state| match &state.role {
            _ if state.failed.is_some() || state.done.is_some() || state.elected.is_some() => Some(Ok(true)),
            // Among peers: nobody leads yet, and it may be this one.
            Role::Following { ahead: None, token: None } => None,
            Role::Following { .. } | Role::Out(LossReason::Paused | LossReason::Benched) => Some(Ok(false)),
            Role::Out(LossReason::Unhealthy) if state.is_unfit() => state.health().map(Err),
            Role::Out(_) | Role::Leading { .. } => None,
        });
        let elected = elected.await;
        if elected == Ok(true) {
            return candidacy.elected().await.map_err(StandError::from);
        }
        match candidacy.withdraw().await {
            Ok(()) | Err(CandidacyError::Ended) => elected.map(|_| None).map_err(StandError::Unfit),
            Err(error) => Err(error.into()),
        }
    }

    /// Stands, and does the work for each term, until the work ends by itself or the election ends.
    ///
    /// The work is dropped when its term is lost (watch [`Term::stopping`] inside to stop
    /// gracefully before that), and begins anew with the next term. When it returns, the office is
    /// given back for good, and what it returned is returned here. `Ok(None)`: the election has
    /// ended.
    ///
    /// In a spawned task the closure has to own what it uses (`async move`); to borrow from around
    /// it there, write the loop with [`Candidacy::elected`].
    ///
    /// ```
    /// # async fn example() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// # let client = incumbent::Client::connect("memory://run").await?;
    /// let mut terms = 0;
    /// let done = client.election("jobs/nightly")?.candidate("node-1").run(async |term| {
    ///     terms += 1; // borrowed state lives across terms
    ///     term.check()?;
    ///     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(term.token().get())
    /// }).await?;
    /// assert_eq!(terms, 1);
    /// assert!(done.is_some());
    /// # Ok(()) }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
    /// ```
    pub async fn run<T, E>(self, mut work: impl AsyncFnMut(Term<F>) -> Result<T, E>) -> Result<Option<T>, E>
    where
        E: From<StandError>,
    {
        let mut candidacy = self.stand().await?;
        loop {
            let office = match candidacy.elected().await {
                Ok(Some(office)) => office,
                Ok(None) => return Ok(None),
                Err(error) => return Err(StandError::from(error).into()),
            };
            let term = office.term();
            let lost = lost(term.clone());
            let done = tokio::select! {
                biased;
                _ = lost => continue,
                done = work(term) => done,
            };
            // Whether the entry is certainly gone does not change what the work returned.
            let _ = office.leave().await;
            return done.map(Some);
        }
    }
}

/// Where nobody stands in line, nobody is there to choose from.
fn check_priority(line: LineKind) -> Result<(), CandidacyError> {
    let what = match line {
        LineKind::Fair => return Ok(()),
        LineKind::Rank => "a priority means nothing here: the rank of a member is its priority",
        LineKind::Votes => "a priority means nothing here: a majority of the members votes",
        _ => "a priority means nothing here: there is no line to choose from",
    };
    Err(CandidacyError::Store(StoreError::Unsupported { what: what.to_owned() }))
}

/// Where nobody hands over to a certain candidate, none is asked to get ready.
fn check_ready_hook(line: LineKind) -> Result<(), CandidacyError> {
    if line == LineKind::Fair {
        return Ok(());
    }
    let what = "nobody is asked to get ready here: leave --ready-cmd out (in the library, `ready_hook`)";
    Err(CandidacyError::Store(StoreError::Unsupported { what: what.to_owned() }))
}

/// One that waits for a term which cannot be opened would look like a sound standby until then.
/// Peers say so themselves.
fn check_record(recorded: bool, promises: &Promises) -> Result<(), CandidacyError> {
    let is_peers = matches!(promises.line, LineKind::Votes | LineKind::Rank);
    if !recorded || promises.office_record || is_peers {
        return Ok(());
    }
    let what = "this store has no office record, and keeps no record of terms: leave --record and --fence-cmd out \
                (in the library, `recorded` and `stonith`)";
    Err(CandidacyError::Store(StoreError::Unsupported { what: what.to_owned() }))
}

/// Boxed, so that a spawned [`Candidate::run`] is seen to be `Send`: the compiler cannot look
/// through both a borrow and an async closure that is called again and again.
fn lost<F: Fencing>(term: Term<F>) -> Pin<Box<dyn Future<Output = LeadershipLost> + Send>> {
    Box::pin(async move { term.lost().await })
}
