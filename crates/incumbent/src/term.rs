//! A term: the cheap copy of a leadership, for the work that is done under it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use incumbent_core::{CandidacyId, Command, ElectionName, LastTerm, LossReason, Timestamp, check_value};

use crate::deadline::Lapse;
use crate::election::{Fenced, Fencing, Unfenced};
use crate::error::{LeadershipLost, ProclaimError};
use crate::fence::FencingToken;
use crate::port::{Phase, Port, SharedCandidacy, TermState};

/// One period in office. Cheap to clone, `Send` and `'static`: give a copy to everything that works
/// under it.
///
/// ```
/// use std::time::Duration;
/// use incumbent::{Client, LossReason};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let election = Client::connect("memory://term").await?.election("jobs")?;
/// # let mut candidacy = election.candidate("node-1").stand().await?;
/// # let leadership = candidacy.elected().await?.ok_or("the election has ended")?;
/// let term = leadership.term();
/// let work = tokio::spawn(async move {
///     loop {
///         tokio::select! {
///             why = term.stopping() => return why.reason(), // drain: there is the grace for it
///             () = tokio::time::sleep(Duration::from_millis(1)) => {
///                 if let Err(lost) = term.check() { // by the clock, at this moment
///                     return lost.reason();
///                 }
///                 // ... a step; what is written carries `term.token()`
///             }
///         }
///     }
/// });
/// leadership.resign().await?;
/// assert_eq!(work.await?, LossReason::Resigned);
/// # Ok(())
/// # }
/// ```
///
/// A term ends for all its copies at once, and never comes back. There is no `is_leader()` to keep
/// in a variable: ask [`check`](Term::check) right before each step that only a leader may take,
/// and give [`token`](Term::token) to the resource, which refuses older ones.
#[derive(Clone)]
pub struct Term<F: Fencing = Fenced> {
    pub(crate) state: Arc<TermState>,
    pub(crate) candidacy: Arc<SharedCandidacy>,
    pub(crate) id: CandidacyId,
    pub(crate) port: Port,
    pub(crate) token: F::Shown,
}

impl<F: Fencing> std::fmt::Debug for Term<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Term")
            .field("election", &self.state.election)
            .field("token", &self.token)
            .field("phase", &self.state.phase.get())
            .finish()
    }
}

impl Term<Fenced> {
    /// The fencing token: give it to the resource with every write. It is higher than that of every
    /// earlier leader.
    pub fn token(&self) -> &FencingToken {
        &self.token
    }
}

impl Term<Unfenced> {
    /// The fencing token, if there happens to be one. Not with bully and ring.
    pub fn token_if_any(&self) -> Option<&FencingToken> {
        self.token.as_ref()
    }
}

impl<F: Fencing> Term<F> {
    /// The election.
    pub fn election(&self) -> &ElectionName {
        &self.state.election
    }

    /// How the term before this one ended, as far as its record says
    /// ([`Candidate::recorded`](crate::Candidate::recorded)), or the disks of a group that elects
    /// by consensus: whether the work of the last leader may still go on. For work that no fence
    /// guards.
    pub fn last_term(&self) -> LastTerm {
        self.state.last_term
    }

    /// Fails at once when the term is over, by the clock, whether or not anybody had time to notice
    /// yet.
    ///
    /// It costs a look at the clock. It says nothing about the next moment: what must not be done
    /// by a former leader has to be refused by the resource, by the token.
    #[inline]
    pub fn check(&self) -> Result<(), LeadershipLost> {
        if self.port.now() < self.state.deadline() { Ok(()) } else { self.check_slowly() }
    }

    #[cold]
    fn check_slowly(&self) -> Result<(), LeadershipLost> {
        match self.state.lapse(self.port.now()) {
            Lapse::Serving => Ok(()),
            Lapse::Over => Err(self.lost_now()),
            Lapse::Noticed => {
                // The machine hears of it too: it must never extend what a user has seen end.
                if self.port.flaws().tells_lapses() {
                    self.port.command(self.id, Command::Lapsed(self.state.number));
                }
                self.state.end(LossReason::LocalDeadline);
                Err(self.lost_now())
            }
        }
    }

    /// How long the term lasts if no further renewal succeeds. Zero when it is over; effectively
    /// unlimited where nothing bounds it: bully and ring without the majority rule.
    pub fn remaining(&self) -> Duration {
        self.state.deadline().since(self.port.now())
    }

    /// When the term is over if no further renewal succeeds, on the client's clock.
    /// [`Timestamp::ZERO`] when it is over.
    pub fn deadline(&self) -> Timestamp {
        self.state.deadline()
    }

    /// Waits until the deadline is another than `seen`, and answers with it: for those who enforce
    /// it from outside, such as a guardian of processes. [`Timestamp::ZERO`]: the term is over.
    /// Safe to cancel.
    pub async fn deadline_after(&self, seen: Timestamp) -> Timestamp {
        self.state.deadline_after(seen).await
    }

    /// Reads the deadline, and keeps nothing alive: neither the session nor the driver. For a
    /// simulation that looks on.
    #[doc(hidden)]
    pub fn deadline_reader(&self) -> impl Fn() -> Timestamp + Send + Sync + use<F> {
        let state = self.state.clone();
        move || state.deadline()
    }

    /// A copy of the descriptor that stands for the session where the store has one (the file
    /// store: its lock). As long as any process has a copy open, the office is not handed on before
    /// the TTL has passed, even if this process is killed: a guardian keeps one until the work has
    /// stopped.
    pub fn lifeline(&self) -> io::Result<Option<OwnedFd>> {
        let Some(session) = self.state.session() else { return Ok(None) };
        session.lifeline().map(|descriptor| descriptor.try_clone_to_owned()).transpose()
    }

    /// Waits until the work should stop: drain, and then give the office back. There is the grace
    /// for it.
    ///
    /// Resolves at once when the term is over. Safe to cancel.
    pub async fn stopping(&self) -> LeadershipLost {
        self.state.phase.wait_for(|phase| phase != Phase::Serving).await;
        self.lost_now()
    }

    /// Whether the work should stop, without waiting.
    pub fn is_stopping(&self) -> bool {
        self.state.phase.get() != Phase::Serving
    }

    /// Waits until the term is over. Safe to cancel.
    pub async fn lost(&self) -> LeadershipLost {
        self.state.phase.wait_for(|phase| matches!(phase, Phase::Over(_))).await;
        self.lost_now()
    }

    /// Advertises another value under the same token, and waits until others can see it. Dropped
    /// half-way, the value may or may not be seen.
    pub async fn proclaim(&self, value: impl Into<Bytes>) -> Result<(), ProclaimError> {
        let value = value.into();
        check_value(&value).map_err(ProclaimError::Value)?;
        self.check()?;
        let Some(number) = self.ask_to_proclaim(value) else {
            return Err(ProclaimError::Lost(LeadershipLost::new(LossReason::Closing)));
        };
        let published = self.state.proclaimed.wait_for(|(settled, _)| settled >= number);
        tokio::select! {
            biased;
            (_, published) = published => if published { Ok(()) } else { Err(self.lost_now().into()) },
            lost = self.lost() => Err(lost.into()),
        }
    }

    /// Values are published in the order of their numbers, so they are numbered and sent in one
    /// step.
    fn ask_to_proclaim(&self, value: Bytes) -> Option<u64> {
        let mut state = self.candidacy.state();
        let number = state.proclaims + 1;
        if !self.port.command(self.id, Command::Proclaim(number, value)) {
            return None;
        }
        state.proclaims = number;
        Some(number)
    }

    fn lost_now(&self) -> LeadershipLost {
        match self.state.phase.get() {
            Phase::Over(why) | Phase::Stopping(why, _) => LeadershipLost::new(why),
            // The deadline is latched a moment before the phase is.
            Phase::Serving => LeadershipLost::new(LossReason::LocalDeadline),
        }
    }
}
