//! A candidacy: a place in line that looks after itself.

use std::sync::{Arc, Weak};

use incumbent_core::{CandidacyId, Command, Incarnation, LossReason, Token};
use tokio::sync::broadcast;

use crate::election::{Election, Fenced, Fencing};
use crate::error::{CandidacyError, StandError};
use crate::health::{Fitness, Health, HealthChecks, Monitor};
use crate::leadership::Leadership;
use crate::observer::{CandidateInfo, Observation, Observer};
use crate::port::{CandidacyState, SharedCandidacy, TermState};
use crate::term::Term;
use crate::witness::Sighting;

/// A place in line. It gets back in line by itself after an expired session, a lost entry, a pause
/// or a term.
///
/// ```
/// use incumbent::{Client, Role};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let url = "memory://candidacy";
/// let mut first = Client::connect(url).await?.election("jobs")?.candidate("node-1").stand().await?;
/// let mut second = Client::connect(url).await?.election("jobs")?.candidate("node-2").stand().await?;
///
/// let leadership = first.elected().await?.ok_or("the election has ended")?;
/// assert!(matches!(second.role(), Role::Following { .. }));
///
/// leadership.resign().await?; // node-1 goes to the end of the line
/// let next = second.elected().await?.ok_or("the election has ended")?;
/// assert!(next.check().is_ok());
/// # Ok(())
/// # }
/// ```
///
/// [`elected`](Candidacy::elected) is safe to cancel: use it in `tokio::select!` as you like, the
/// place in line and an office that was won in the meantime stay. Dropping the candidacy leaves the
/// line; a [`Leadership`] that was taken from it lasts until it is given back.
#[derive(Debug)]
pub struct Candidacy<F: Fencing = Fenced> {
    election: Election<F>,
    name: Arc<str>,
    id: CandidacyId,
    pub(crate) shared: Arc<SharedCandidacy>,
}

/// What a candidate is at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// Not in line, and why.
    Out(LossReason),
    /// In line behind somebody. Among peers, where there is no line: following the leader, or
    /// waiting for one.
    Following {
        /// The name of the one right ahead, if it has one and is known.
        ahead: Option<Arc<str>>,
        /// The token of the one right ahead, if it has one.
        token: Option<Token>,
    },
    /// In office.
    Leading {
        /// The fencing token, where there are tokens.
        token: Option<Token>,
    },
}

/// What happened to a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CandidacyEvent {
    /// It is in office, with this token where there are tokens.
    Elected(Option<Token>),
    /// Its work is to stop, and why.
    Stopping(LossReason),
    /// Its term is over, and why.
    Unelected(LossReason),
    /// It is out of the line, or in it behind another.
    Role(Role),
    /// It is less fit than before, or fitter.
    Health(Health),
    /// Somebody leads now, perhaps this candidate itself. It coalesces, as an
    /// [`Observer`](crate::Observer) does.
    NewLeader(CandidateInfo),
    /// The election has ended. Nothing follows.
    Ended,
    /// This many events were missed, because they were not taken in time.
    Missed(u64),
}

/// What tells one term from the next: the token, and who holds it where there is none.
type Rank = (Option<Token>, Option<Incarnation>);

/// Events of one candidacy. See [`Candidacy::events`].
#[derive(Debug)]
pub struct Events {
    receiver: broadcast::Receiver<CandidacyEvent>,
    observer: Observer,
    leads: Option<Rank>,
    /// There is nothing more to observe; the candidacy itself has the last word.
    blind: bool,
    over: bool,
}

impl Events {
    /// The next one; `None` when the candidacy is over. Safe to cancel.
    pub async fn next(&mut self) -> Option<CandidacyEvent> {
        while !self.over {
            let event = tokio::select! {
                biased;
                event = self.receiver.recv() => match event {
                    Ok(event) => event,
                    Err(broadcast::error::RecvError::Lagged(missed)) => CandidacyEvent::Missed(missed),
                    Err(broadcast::error::RecvError::Closed) => break,
                },
                seen = self.observer.next(), if !self.blind => match seen {
                    // A leader that proclaims another value is no new leader.
                    Some(Observation::Leader(leader)) if self.leads != Some((leader.token, leader.id)) => {
                        self.leads = Some((leader.token, leader.id));
                        CandidacyEvent::NewLeader(leader)
                    }
                    Some(_) => continue,
                    None => {
                        self.blind = true;
                        continue;
                    }
                },
            };
            self.over = event == CandidacyEvent::Ended;
            return Some(event);
        }
        self.over = true;
        None
    }
}

/// The role of one candidacy, each time that it is another. See [`Candidacy::roles`].
#[derive(Debug)]
pub struct Roles {
    shared: Arc<SharedCandidacy>,
    seen: Option<Role>,
}

impl Roles {
    /// The role now, at first; then each one that differs from the last that was given. It
    /// coalesces. When the candidacy is over it waits for ever: [`Candidacy::elected`] says that.
    /// Safe to cancel.
    pub async fn next(&mut self) -> Role {
        let shared = self.shared.clone();
        let role = shared.wait(|state| (self.seen.as_ref() != Some(&state.role)).then(|| state.role.clone())).await;
        self.seen = Some(role.clone());
        role
    }
}

impl<F: Fencing> Candidacy<F> {
    pub(crate) fn new(
        election: Election<F>,
        name: Arc<str>,
        id: CandidacyId,
        shared: Arc<SharedCandidacy>,
    ) -> Candidacy<F> {
        Candidacy { election, name, id, shared }
    }

    /// Runs these checks until the candidacy is over. A `Leadership` that was taken from it is
    /// checked as long as it lasts.
    pub(crate) fn start_checks(&self, checks: HealthChecks) -> Result<(), StandError> {
        self.shared.state().checked = None;
        let (name, election) = (self.name.clone(), self.election.name.clone());
        let (shared, port, id): (Weak<_>, _, _) =
            (Arc::downgrade(&self.shared), self.election.client.port.downgrade(), self.id);
        let monitor = Monitor::start(checks, self.election.client.port.rng(), move |found, improves| {
            let (Some(shared), Some(port)) = (shared.upgrade(), port.upgrade()) else { return };
            let change = |state: &mut CandidacyState| (state.checked, state.improves) = (Some(found.clone()), improves);
            match shared.change_health(&port, id, change) {
                Some((Some(_), health)) if health.fitness == Fitness::Fit => {
                    tracing::info!(%election, "{name} is fit again");
                }
                Some((_, health)) if health.fitness != Fitness::Fit => tracing::warn!(%election, "{name} is {health}"),
                _ => {}
            }
        });
        let monitor = monitor.map_err(|error| StandError::Checks(Arc::new(error)))?;
        self.shared.change(|state| state.monitor = state.done.is_none().then_some(monitor));
        Ok(())
    }

    /// The name under which others see this candidate: its own, or that of the member that it is in
    /// a group of peers.
    pub fn name(&self) -> &str {
        self.shared.name.get().unwrap_or(&self.name)
    }

    /// Waits until this candidate is in office. `Ok(None)`: the election has ended. Safe to cancel.
    pub async fn elected(&mut self) -> Result<Option<Leadership<F>>, CandidacyError> {
        let next = self.shared.wait(|state| {
            if let Some(term) = state.elected.take() {
                return Some(Ok(Some(term)));
            }
            match (&state.failed, state.ended, state.done) {
                (Some(error), _, _) => Some(Err(error.clone())),
                (None, true, _) => Some(Ok(None)),
                (None, false, Some(_)) => Some(Err(CandidacyError::Closed)),
                (None, false, None) => None,
            }
        });
        next.await?.map(|term| self.leadership(term)).transpose()
    }

    fn leadership(&self, state: Arc<TermState>) -> Result<Leadership<F>, CandidacyError> {
        // A client of this type is not made for an election without tokens: it would have been
        // refused.
        let token = F::shown(state.token.clone()).ok_or(CandidacyError::Closed)?;
        self.note(&state);
        let port = self.election.client.port.clone();
        let term = Term { state, candidacy: self.shared.clone(), id: self.id, port, token };
        Ok(Leadership::new(term, self.election.reader(), self.election.client.settings.ttl))
    }

    /// Has the witness of this host remember that we lead, and says so if the store is older than
    /// what that has seen. Nobody waits for it: a disk that hangs keeps nobody from office.
    fn note(&self, state: &TermState) {
        let (Some(witness), Some(token)) = (self.election.client.witness.clone(), state.token.clone()) else { return };
        let (election, leads) = (state.election.clone(), Sighting::new(token.token, state.id));
        tokio::task::spawn_blocking(move || {
            if let Ok(Some(seen)) = witness.seen(&token.store, &election)
                && seen.is_later_than(&leads)
            {
                let (seen, now) = (seen.token, leads.token);
                tracing::warn!(%election, store = %token.store, "token {seen} was seen here, and {now} leads: the \
                    store is older than it was");
            }
            if let Err(error) = witness.note(&token.store, &election, leads) {
                tracing::debug!(%error, "cannot write down who leads");
            }
        });
    }

    /// What this candidate is at the moment.
    pub fn role(&self) -> Role {
        self.shared.state().role.clone()
    }

    /// What happens to this candidate from now on.
    pub fn events(&self) -> Events {
        let observer = self.election.observe();
        Events { receiver: self.shared.events(), observer, leads: None, blind: false, over: false }
    }

    /// What this candidate is, as it changes. Unlike [`events`](Candidacy::events) it does not
    /// watch who leads, so it costs the store nothing, however long the line is.
    pub fn roles(&self) -> Roles {
        Roles { shared: self.shared.clone(), seen: None }
    }

    /// How fit this candidate is: what the worst of its checks says, and its program. One that
    /// nobody checks is fit.
    pub fn health(&self) -> Health {
        // A candidacy that can be asked has been waited for, until its health was known.
        self.shared.state().health().unwrap_or_else(Health::fit)
    }

    /// Whether this candidate is fit to lead. An unfit one leaves the line, and an unfit leader its
    /// office, after draining; a fit one gets back in line. One that has checks has to be fit by
    /// those, too.
    pub fn set_healthy(&self, healthy: bool) {
        self.set_fitness(if healthy { Fitness::Fit } else { Fitness::Unfit });
    }

    /// How fit this candidate is to lead, as its program knows: see [`health`](crate::health) for
    /// what follows. One that has checks is what the worse of the two says.
    pub fn set_fitness(&self, fitness: Fitness) {
        self.shared.change_health(&self.election.client.port, self.id, |state| state.said = fitness);
    }

    /// Leaves the line for good, and waits until nothing is left in it. A leadership that was taken
    /// from here lasts until it is given back, and so does this wait.
    pub async fn withdraw(self) -> Result<(), CandidacyError> {
        if !self.election.client.port.command(self.id, Command::Leave) {
            return Err(CandidacyError::Closed);
        }
        let certain = self.shared.wait(|state| match (&state.failed, state.done) {
            (Some(error), Some(_)) => Some(Err(error.clone())),
            (None, Some(true)) => Some(Ok(())),
            (None, Some(false)) => Some(Err(CandidacyError::Closed)),
            (_, None) => None,
        });
        certain.await
    }
}

impl<F: Fencing> Drop for Candidacy<F> {
    fn drop(&mut self) {
        self.election.client.port.command(self.id, Command::Leave);
    }
}
