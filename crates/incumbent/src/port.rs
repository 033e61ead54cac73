//! The sealed seam inside the library: what the user's handles say to the driver, and what they
//! share with it. Whether it drives a participant in the elections of a store or a member of a
//! group they do not know.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use incumbent_core::{
    CandidacyId, Candidate, Command, Incarnation, LastTerm, LossReason, Nonce, Refusal, Rng, TermNo, Timestamp,
};
use incumbent_store::{Awaited, Clock, Session, lock};
use tokio::sync::{Notify, broadcast, mpsc, oneshot};

use crate::candidacy::{CandidacyEvent, Role};
use crate::deadline::{Deadline, Lapse};
use crate::error::{CandidacyError, TransferRefused};
use crate::fence::{Fence, FencingToken};
use crate::flaw::Flaws;
use crate::health::{Fitness, Health, Monitor};
use crate::heir::ReadyHook;
use crate::origin::HasStopped;
use crate::stonith::Stonith;

/// How many events a slow listener may be behind before it is told that it missed some.
const EVENTS: usize = 64;

/// What handles say to the driver.
#[derive(Debug)]
pub(crate) enum Request {
    Stand(Box<Stand>),
    Command(CandidacyId, Command),
    /// The work of this term has stopped. Said late, it is not about the term after it.
    Release(CandidacyId, TermNo),
    /// Answered with whether nothing is left in the store.
    Close(oneshot::Sender<bool>),
}

/// A candidate that stands.
#[derive(Debug)]
pub(crate) struct Stand {
    pub(crate) id: CandidacyId,
    pub(crate) candidate: Candidate,
    pub(crate) fences: Vec<Arc<dyn Fence>>,
    pub(crate) stonith: Option<Arc<Stonith>>,
    pub(crate) ready_hook: Option<ReadyHook>,
    pub(crate) has_stopped: Option<HasStopped>,
    pub(crate) shared: Arc<SharedCandidacy>,
}

/// The handles' end of the driver. The driver ends some time after the last one has been dropped.
///
/// The queue is not bounded by itself, but by the handles: each has a fixed number of things to
/// say.
#[derive(Clone, Debug)]
pub(crate) struct Port(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    requests: mpsc::UnboundedSender<Request>,
    next_candidacy: AtomicU64,
    clock: Arc<dyn Clock>,
    nonces: Mutex<Rng>,
    flaws: Flaws,
    /// The client was closed, and nothing of it is left in the store.
    closed: AtomicBool,
}

impl Port {
    /// `nonces`: what tells the requests of this client from all others.
    pub(crate) fn new(clock: Arc<dyn Clock>, nonces: Rng, flaws: Flaws) -> (Port, mpsc::UnboundedReceiver<Request>) {
        let (requests, receiver) = mpsc::unbounded_channel();
        let inner = Inner {
            requests,
            next_candidacy: AtomicU64::new(0),
            clock,
            nonces: Mutex::new(nonces),
            flaws,
            closed: AtomicBool::new(false),
        };
        (Port(Arc::new(inner)), receiver)
    }

    /// A new nonce, unlike every other.
    pub(crate) fn nonce(&self) -> Nonce {
        lock(&self.0.nonces).nonce()
    }

    /// A source of randomness of its own.
    pub(crate) fn rng(&self) -> Rng {
        lock(&self.0.nonces).fork()
    }

    /// For those who must not keep the driver from ending.
    pub(crate) fn downgrade(&self) -> WeakPort {
        WeakPort(Arc::downgrade(&self.0))
    }

    #[inline]
    pub(crate) fn flaws(&self) -> Flaws {
        self.0.flaws
    }

    #[inline]
    pub(crate) fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    pub(crate) fn next_candidacy(&self) -> CandidacyId {
        CandidacyId(self.0.next_candidacy.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether there is somebody to hear it: the driver is gone once the client is closed or the
    /// runtime ends.
    pub(crate) fn send(&self, request: Request) -> bool {
        self.0.requests.send(request).is_ok()
    }

    pub(crate) fn note_closed(&self, closed: bool) {
        self.0.closed.fetch_or(closed, Ordering::Relaxed);
    }

    pub(crate) fn was_closed(&self) -> bool {
        self.0.closed.load(Ordering::Relaxed)
    }

    pub(crate) fn command(&self, candidacy: CandidacyId, command: Command) -> bool {
        self.send(Request::Command(candidacy, command))
    }
}

/// The same, as long as somebody else has it.
#[derive(Debug)]
pub(crate) struct WeakPort(Weak<Inner>);

impl WeakPort {
    pub(crate) fn upgrade(&self) -> Option<Port> {
        self.0.upgrade().map(Port)
    }
}

/// What a candidacy's handles and the driver share.
#[derive(Debug)]
pub(crate) struct SharedCandidacy {
    state: Mutex<CandidacyState>,
    changed: Notify,
    events: OnceLock<broadcast::Sender<CandidacyEvent>>,
    /// The name that others see, if it is not the candidate's own.
    pub(crate) name: OnceLock<Arc<str>>,
    /// The election's first contact, shared with the `Election` handle.
    first_contact: Arc<OnceLock<Option<Nonce>>>,
}

#[derive(Debug)]
pub(crate) struct CandidacyState {
    pub(crate) role: Role,
    /// A leadership that nobody has taken yet.
    pub(crate) elected: Option<Arc<TermState>>,
    pub(crate) ended: bool,
    pub(crate) failed: Option<CandidacyError>,
    /// The candidacy is over; whether nothing of it is left in the store.
    pub(crate) done: Option<bool>,
    /// How many proclamations were asked for.
    pub(crate) proclaims: u64,
    /// Why the last transfer was refused, and how many have been.
    pub(crate) refused: (u64, Option<TransferRefused>),
    /// Why there was nobody to hand over to, the last time, and how often there was not.
    pub(crate) no_heir: (u64, Option<Refusal>),
    /// What its checks have found. `None`: not known yet.
    pub(crate) checked: Option<Health>,
    /// What they have found lately is better than that, and only has to last.
    pub(crate) improves: bool,
    /// What its program says.
    pub(crate) said: Fitness,
    /// The machine was told that it is not fit, and that it improves.
    told_unwell: bool,
    told_improving: bool,
    /// Runs its checks.
    pub(crate) monitor: Option<Monitor>,
}

impl CandidacyState {
    /// `None`: not known yet.
    pub(crate) fn health(&self) -> Option<Health> {
        // One that is unfit by its program's word is so whatever its checks will say.
        let checked = match self.said {
            Fitness::Unfit => None,
            _ => Some(self.checked.clone()?),
        };
        let said = Health::new(self.said, "its program says so");
        Some(checked.filter(|checked| checked.fitness >= said.fitness).unwrap_or(said))
    }

    pub(crate) fn is_unfit(&self) -> bool {
        self.health().is_some_and(|health| health.fitness == Fitness::Unfit)
    }

    /// The candidacy is over, and nothing is left in the store if `certain`.
    pub(crate) fn finish(&mut self, certain: bool) {
        self.done = Some(certain);
        self.monitor = None;
    }
}

impl SharedCandidacy {
    pub(crate) fn new(first_contact: Arc<OnceLock<Option<Nonce>>>) -> Arc<SharedCandidacy> {
        let state = CandidacyState {
            role: Role::Out(LossReason::NoSession),
            elected: None,
            ended: false,
            failed: None,
            done: None,
            proclaims: 0,
            refused: (0, None),
            no_heir: (0, None),
            checked: Some(Health::fit()),
            improves: false,
            said: Fitness::Fit,
            told_unwell: false,
            told_improving: false,
            monitor: None,
        };
        Arc::new(SharedCandidacy {
            state: Mutex::new(state),
            changed: Notify::new(),
            events: OnceLock::new(),
            name: OnceLock::new(),
            first_contact,
        })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, CandidacyState> {
        lock(&self.state)
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut CandidacyState)) {
        change(&mut self.state());
        self.changed.notify_waiters();
    }

    /// Something else is said about the health of this candidate. What it was and what it is now,
    /// if it is not as fit as before.
    pub(crate) fn change_health(
        &self,
        port: &Port,
        id: CandidacyId,
        change: impl FnOnce(&mut CandidacyState),
    ) -> Option<(Option<Health>, Health)> {
        let mut state = self.state();
        let was = state.health();
        change(&mut state);
        let is = state.health()?;
        let (is_unwell, may_stand) = (is.fitness != Fitness::Fit, is.fitness != Fitness::Unfit);
        let might_stand = was.as_ref().is_some_and(|was| was.fitness != Fitness::Unfit);
        // What it was need not be known, though the machine was told.
        let was_unwell = std::mem::replace(&mut state.told_unwell, is_unwell);
        let unwell = (is_unwell != was_unwell).then_some(Command::Unwell(is_unwell));
        let healthy = (may_stand != might_stand).then_some(Command::Healthy(may_stand));
        // A program's word has to be taken back.
        let improves = is.fitness == Fitness::Unwell && state.improves && state.said == Fitness::Fit;
        let was_improving = std::mem::replace(&mut state.told_improving, improves);
        let improving = (improves != was_improving).then_some(Command::Improving(improves));
        // One that is to leave says nothing else first, and one that comes back says in line how it
        // is.
        let commands = if may_stand { [unwell, healthy] } else { [healthy, unwell] };
        for command in commands.into_iter().chain([improving]).flatten() {
            // With the lock in hand: the driver hears of it in the order in which it was said.
            port.command(id, command);
        }
        drop(state);
        self.changed.notify_waiters();
        if was.as_ref().map(|was| was.fitness) == Some(is.fitness) {
            return None;
        }
        self.tell(|| CandidacyEvent::Health(is.clone()));
        Some((was, is))
    }

    /// Waits until `ready` answers something. Safe to cancel.
    pub(crate) async fn wait<T>(&self, mut ready: impl FnMut(&mut CandidacyState) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            if let Some(value) = ready(&mut self.state()) {
                return value;
            }
            changed.await;
        }
    }

    pub(crate) fn events(&self) -> broadcast::Receiver<CandidacyEvent> {
        self.events.get_or_init(|| broadcast::Sender::new(EVENTS)).subscribe()
    }

    pub(crate) fn tell(&self, event: impl FnOnce() -> CandidacyEvent) {
        if let Some(events) = self.events.get() {
            // Nobody listens: nobody misses it.
            let _ = events.send(event());
        }
    }

    pub(crate) fn on_first_contact(&self, tombstone: Option<Nonce>) {
        let _ = self.first_contact.set(tombstone);
    }
}

/// How far a term has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Serving,
    Stopping(LossReason, Timestamp),
    Over(LossReason),
}

/// What a term's handles and the driver share.
#[derive(Debug)]
pub(crate) struct TermState {
    pub(crate) election: incumbent_core::ElectionName,
    /// Names it to the machine.
    pub(crate) number: TermNo,
    /// None where there are no tokens: bully and ring.
    pub(crate) token: Option<FencingToken>,
    /// The enlistment that it is held by, if by one.
    pub(crate) id: Option<Incarnation>,
    /// How the term before it ended.
    pub(crate) last_term: LastTerm,
    /// The candidate had got ready for it.
    pub(crate) readied: bool,
    deadline: Deadline,
    moved: Notify,
    /// The session that carries it. Terms are copied far and wide: they must not keep it open.
    session: Option<Weak<dyn Session>>,
    pub(crate) phase: Awaited<Phase>,
    /// The number of the last proclamation of this term that is settled, and with it all before it;
    /// and whether others can see it. What a later term has published is not this one's.
    pub(crate) proclaimed: Awaited<(u64, bool)>,
    /// The user has stopped its work to hand the office over, and that has not been refused.
    pub(crate) ceding: AtomicBool,
    /// Whether the entry has certainly left the line.
    pub(crate) released: Awaited<Option<bool>>,
}

impl TermState {
    pub(crate) fn new(
        election: incumbent_core::ElectionName,
        number: TermNo,
        token: Option<FencingToken>,
        deadline: Timestamp,
        session: Option<Weak<dyn Session>>,
    ) -> TermState {
        TermState {
            election,
            number,
            token,
            id: None,
            last_term: LastTerm::Unknown,
            readied: false,
            deadline: Deadline::new(deadline),
            moved: Notify::new(),
            session,
            phase: Awaited::new(Phase::Serving),
            proclaimed: Awaited::new((0, false)),
            ceding: AtomicBool::new(false),
            released: Awaited::new(None),
        }
    }

    /// The same, held by this enlistment, after a term that ended like this.
    pub(crate) fn held_by(self, id: Option<Incarnation>, last_term: LastTerm) -> TermState {
        TermState { id, last_term, ..self }
    }

    /// The same, of a candidate that had got ready for it, or not.
    pub(crate) fn readied(self, readied: bool) -> TermState {
        TermState { readied, ..self }
    }

    pub(crate) fn deadline(&self) -> Timestamp {
        self.deadline.get()
    }

    /// Waits until the deadline is another than the one that was seen. Safe to cancel.
    pub(crate) async fn deadline_after(&self, seen: Timestamp) -> Timestamp {
        loop {
            let moved = self.moved.notified();
            let deadline = self.deadline();
            if deadline != seen {
                return deadline;
            }
            moved.await;
        }
    }

    pub(crate) fn session(&self) -> Option<Arc<dyn Session>> {
        self.session.as_ref().and_then(Weak::upgrade)
    }

    /// Moves the deadline, forward or back, unless the term is over.
    pub(crate) fn move_to(&self, to: Timestamp) {
        if self.deadline.move_to(to) {
            self.moved.notify_waiters();
        }
    }

    /// A known-bad way to move it.
    #[cfg(feature = "flaws")]
    pub(crate) fn revive(&self, to: Timestamp) {
        self.deadline.revive(to);
        self.moved.notify_waiters();
    }

    /// Ends the term for all its handles if the deadline has passed.
    pub(crate) fn lapse(&self, now: Timestamp) -> Lapse {
        let lapse = self.deadline.lapse(now);
        if lapse == Lapse::Noticed {
            self.moved.notify_waiters();
        }
        lapse
    }

    pub(crate) fn end(&self, why: LossReason) {
        self.deadline.end();
        self.moved.notify_waiters();
        self.phase.change(|phase| (!matches!(phase, Phase::Over(_))).then_some(Phase::Over(why)));
    }

    /// The work is to stop, unless it was told so before, or the term is over: a user may have seen
    /// that first.
    pub(crate) fn stop(&self, why: LossReason, hard_stop: Timestamp) {
        self.phase.change(|phase| (phase == Phase::Serving).then_some(Phase::Stopping(why, hard_stop)));
    }

    /// The entry has left the line, if `certain`; else nobody will ever know. The first word
    /// counts.
    pub(crate) fn release(&self, certain: bool) {
        self.released.change(|released| released.is_none().then_some(Some(certain)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term() -> TermState {
        let election = incumbent_core::ElectionName::new("e").unwrap_or_else(|error| panic!("{error}"));
        TermState::new(election, TermNo(1), None, Timestamp::from_nanos(10), None)
    }

    #[test]
    fn a_renewal_revives_no_term_that_was_seen_to_end() {
        let term = term();
        assert_eq!(term.lapse(Timestamp::from_nanos(9)), Lapse::Serving);
        assert_eq!(term.lapse(Timestamp::from_nanos(10)), Lapse::Noticed);
        term.move_to(Timestamp::from_nanos(20));
        assert_eq!(term.deadline(), Timestamp::ZERO);
        assert_eq!(term.lapse(Timestamp::from_nanos(1)), Lapse::Over);
    }

    #[test]
    fn a_term_that_a_user_has_seen_end_is_not_asked_to_stop() {
        let term = term();
        term.end(LossReason::LocalDeadline);
        term.stop(LossReason::Paused, Timestamp::MAX);
        assert_eq!(term.phase.get(), Phase::Over(LossReason::LocalDeadline));
    }

    #[test]
    fn a_deadline_moves_both_ways_while_the_term_lasts() {
        let term = term();
        term.move_to(Timestamp::from_nanos(20));
        assert_eq!(term.lapse(Timestamp::from_nanos(15)), Lapse::Serving);
        term.move_to(Timestamp::from_nanos(12));
        assert_eq!(term.lapse(Timestamp::from_nanos(15)), Lapse::Noticed);
    }
}
