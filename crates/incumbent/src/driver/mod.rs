//! Runs what elects, a participant in the elections of a store or a member of a group, for the
//! handles of a client: the only place where the machine, the clock and the network meet.
//!
//! One task per client. It hands what handles want to the machine, and tells them what has
//! happened. It decides nothing. Whatever a machine says is carried out in one order, while one
//! queue is drained: an event that ends a term has ended it for every handle before anything that
//! the machine said after it is begun. Events are never collected and told later. Telling one may
//! give the machine something new to say (an office that nobody has taken is given back): then the
//! rest of the queue is drained in there, in the same order, and the outer loop finds it empty.

#[cfg(feature = "flaws")]
mod distorted;
mod fences;
#[cfg(feature = "peers")]
mod group;
mod handles;
mod readying;
mod store;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::AbortHandle;
use incumbent_core::peers::MemberId;
use incumbent_core::{CandidacyId, Cas, Command, ElectionName, Event, Settings, Timestamp, Title};
use incumbent_store::{Alarm, Clock, Session};
use tokio::sync::{mpsc, oneshot};

use crate::candidacy::{CandidacyEvent, Role};
use crate::error::CandidacyError;
use crate::fence::FencingToken;
use crate::flaw::Flaws;
use crate::port::{Request, Stand, TermState};
use handles::Handles;

#[cfg(feature = "peers")]
pub(crate) use group::GroupSide;
pub(crate) use store::StoreSide;

/// How many things are taken in before other tasks get a turn.
const TURN: usize = 128;

/// What a machine has to say to the handles.
pub(crate) enum SideEvent {
    Event(CandidacyId, Event),
    /// All is closed, and nothing is left if `true`.
    Closed(bool),
}

/// What the driver drives: a machine, and what it takes to do what the machine says.
pub(crate) trait Side: Send + 'static {
    /// A candidate stands, or may not.
    fn stand(&mut self, stand: Stand) -> Result<(), CandidacyError>;
    /// The user of a candidacy wants something.
    fn command(&mut self, id: CandidacyId, command: Command);
    /// Every candidacy leaves, and all is closed. [`SideEvent::Closed`] follows.
    fn close(&mut self);
    /// Time has passed.
    fn tick(&mut self);
    /// When it is to be ticked.
    fn next_timeout(&self) -> Option<Timestamp>;
    /// Takes in one thing that has happened elsewhere. `false`: nothing has.
    fn poll_work(&mut self, cx: &mut Context<'_>) -> bool;
    /// Does what the machine says, in order, up to the next thing that handles have to be told.
    fn next_event(&mut self, cx: &mut Context<'_>) -> Option<SideEvent>;
    /// Nothing more has happened. `true`: it wants another turn soon.
    fn end_turn(&mut self) -> bool {
        false
    }
    /// What a resource knows the holder of an office by.
    fn fencing_token(&self, title: &Title) -> Option<FencingToken>;
    /// The session that carries terms.
    fn session(&self) -> Option<Weak<dyn Session>> {
        None
    }
    /// Whether this candidacy has got ready as an heir.
    fn is_ready(&self, _: CandidacyId) -> bool {
        false
    }
    /// The name of a member.
    fn name_of(&self, member: MemberId) -> Arc<str>;
    /// Why a candidacy has failed.
    fn error(&mut self, id: CandidacyId) -> CandidacyError;
    /// How long cleaning up may take once every handle is gone.
    fn patience(&self) -> Duration;
}

pub(crate) struct Driver<S> {
    side: S,
    clock: Arc<dyn Clock>,
    alarm: Box<dyn Alarm>,
    alarm_at: Option<Timestamp>,
    /// How much too early it may ring.
    early: Duration,
    requests: mpsc::UnboundedReceiver<Request>,
    hung_up: bool,
    /// Every handle is gone: when to stop cleaning up, whether or not that is done.
    give_up_at: Option<Timestamp>,
    candidacies: BTreeMap<CandidacyId, Handles>,
    closing: Vec<oneshot::Sender<bool>>,
    over: bool,
    flaws: Flaws,
    /// What a known-bad variant tells in the next turn.
    #[cfg(feature = "flaws")]
    to_tell: Vec<(CandidacyId, Event)>,
}

impl<S: Side> Driver<S> {
    pub(crate) fn new(
        side: S,
        clock: Arc<dyn Clock>,
        requests: mpsc::UnboundedReceiver<Request>,
        settings: Settings,
        flaws: Flaws,
    ) -> io::Result<Driver<S>> {
        Ok(Driver {
            side,
            alarm: clock.alarm()?,
            alarm_at: None,
            early: settings.renew_every / 4,
            clock,
            requests,
            hung_up: false,
            give_up_at: None,
            candidacies: BTreeMap::new(),
            closing: Vec::new(),
            over: false,
            flaws,
            #[cfg(feature = "flaws")]
            to_tell: Vec::new(),
        })
    }

    pub(crate) async fn run(mut self) {
        poll_fn(|cx| self.poll(cx)).await;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        #[cfg(feature = "flaws")]
        self.tell_late(cx);
        for _ in 0..TURN {
            if self.over {
                return Poll::Ready(());
            }
            if !self.poll_once(cx) {
                if self.side.end_turn() {
                    cx.waker().wake_by_ref();
                }
                return Poll::Pending;
            }
        }
        self.side.end_turn();
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Takes in one thing that has happened. `false`: nothing has.
    fn poll_once(&mut self, cx: &mut Context<'_>) -> bool {
        // Time first: a deadline that has passed is heeded before anything that came late.
        self.set_alarm();
        if self.alarm.poll_ring(cx).is_ready() {
            self.alarm_at = None;
            self.over |= self.give_up_at.is_some_and(|at| self.clock.now() >= at);
            self.side.tick();
        } else if !self.hung_up
            && let Poll::Ready(request) = self.requests.poll_recv(cx)
        {
            self.on_request(cx, request);
        } else if !self.side.poll_work(cx) {
            return false;
        }
        self.drain(cx);
        true
    }

    /// An alarm that rings a little early does no harm, and is cheaper than setting it anew for
    /// each step. One that rings long before anything is due wakes a process that sleeps.
    fn set_alarm(&mut self) {
        let next = [self.side.next_timeout(), self.give_up_at].into_iter().flatten().min();
        let Some(at) = next else { return };
        if self.alarm_at.is_none_or(|set| at < set || set + self.early < at) {
            self.alarm_at = Some(at);
            self.alarm.set(Some(at));
        }
    }

    fn on_request(&mut self, cx: &mut Context<'_>, request: Option<Request>) {
        match request {
            Some(Request::Stand(stand)) => self.on_stand(*stand),
            Some(Request::Command(id, command)) => {
                if command == Command::Leave {
                    self.give_back_unclaimed(cx, id);
                }
                // Before the term may end by it. A refusal takes it back.
                if let Command::Transfer(..) = command {
                    self.note_ceding(id, true);
                }
                self.take_in(cx, id, command);
            }
            Some(Request::Release(id, term)) => {
                let last = self.candidacies.get(&id).and_then(|handles| handles.term.as_ref());
                if last.is_some_and(|last| last.number == term) {
                    self.take_in(cx, id, Command::Release);
                }
            }
            Some(Request::Close(reply)) => {
                self.closing.push(reply);
                self.side.close();
            }
            None => {
                // Every handle is gone: clean up, and go, too.
                self.hung_up = true;
                self.give_up_at = Some(self.clock.now() + self.side.patience());
                self.side.close();
            }
        }
    }

    fn on_stand(&mut self, stand: Stand) {
        let (id, shared, election) = (stand.id, stand.shared.clone(), stand.candidate.election.clone());
        // One that stands while the client is being closed would be in line after it is.
        let stands = if self.closing.is_empty() { self.side.stand(stand) } else { Err(CandidacyError::Closed) };
        match stands {
            Ok(()) => {
                self.candidacies.insert(id, Handles::new(election, shared));
            }
            Err(error) => shared.change(|state| {
                state.failed = Some(error);
                state.finish(true);
            }),
        }
    }

    /// Hands something to the machine, and does all that follows from it.
    fn take_in(&mut self, cx: &mut Context<'_>, id: CandidacyId, command: Command) {
        self.side.command(id, command);
        self.drain(cx);
    }

    fn drain(&mut self, cx: &mut Context<'_>) {
        while let Some(event) = self.side.next_event(cx) {
            match event {
                SideEvent::Event(id, event) => {
                    #[cfg(feature = "flaws")]
                    let Some(event) = self.distort(cx, id, event) else { continue };
                    self.tell(cx, id, event);
                }
                SideEvent::Closed(closed) => self.on_closed(closed),
            }
        }
    }

    fn on_closed(&mut self, closed: bool) {
        for reply in self.closing.drain(..) {
            // The caller may have stopped waiting.
            let _ = reply.send(closed);
        }
        self.over = true;
    }

    /// An office that nobody has taken, and nobody will, is given back.
    fn give_back_unclaimed(&mut self, cx: &mut Context<'_>, id: CandidacyId) {
        let unclaimed = self.candidacies.get(&id).and_then(|handles| handles.shared.state().elected.take());
        if unclaimed.is_some() {
            self.take_in(cx, id, Command::Release);
        }
    }

    fn note_ceding(&self, id: CandidacyId, ceding: bool) {
        if let Some(term) = self.candidacies.get(&id).and_then(|handles| handles.term.as_ref()) {
            term.ceding.store(ceding, Ordering::Release);
        }
    }

    fn tell(&mut self, cx: &mut Context<'_>, id: CandidacyId, event: Event) {
        let Some(handles) = self.candidacies.get_mut(&id) else { return };
        match event {
            Event::FirstContact(tombstone) => handles.shared.on_first_contact(tombstone),
            Event::Following(ahead) => handles.role(Role::Following { ahead: ahead.name, token: Some(ahead.token) }),
            Event::Follows { leader, term } => {
                let ahead = leader.map(|leader| self.side.name_of(leader));
                handles.role(Role::Following { ahead, token: term });
            }
            Event::Out(why) => handles.role(Role::Out(why)),
            Event::Elected { term, title, last_term, deadline } => {
                let (token, session) = (self.side.fencing_token(&title), self.side.session());
                let term = TermState::new(handles.election.clone(), term, token, deadline, session);
                let held_by = match &title {
                    Title::Entry(held) => Some(held.incarnation),
                    _ => None,
                };
                handles.on_elected(term.held_by(held_by, last_term).readied(self.side.is_ready(id)));
            }
            Event::Deadline(deadline) => {
                if let Some(term) = &handles.term {
                    term.move_to(deadline);
                }
            }
            Event::Stopping { why, hard_stop } => {
                handles.on_stopping(why, hard_stop);
                self.give_back_unclaimed(cx, id);
            }
            Event::Unelected(why) => {
                handles.on_unelected(why);
                self.give_back_unclaimed(cx, id);
            }
            Event::Released => handles.released(true),
            Event::TransferRefused(why) => {
                handles.shared.change(|state| state.refused = (state.refused.0 + 1, Some(why.into())));
                self.note_ceding(id, false);
            }
            Event::NoHeir(why) => handles.shared.change(|state| state.no_heir = (state.no_heir.0 + 1, Some(why))),
            Event::Proclaimed(number, cas) => {
                if let Some(term) = &handles.term {
                    term.proclaimed.set((number, cas == Cas::Done));
                }
            }
            Event::Ended => {
                handles.shared.change(|state| state.ended = true);
                handles.shared.tell(|| CandidacyEvent::Ended);
            }
            event @ (Event::Ordered(..)
            | Event::Stays(_)
            | Event::StaysBenched(_)
            | Event::OrderStays(..)
            | Event::LeftOpen(_)) => {
                log(&handles.election, &event);
            }
            Event::Failed => {
                let error = self.side.error(id);
                handles.shared.change(|state| state.failed = Some(error));
            }
            // Of the member, not of its candidate.
            Event::Led { .. } | Event::Vacant | Event::NotVoting(_) | Event::Voting => {}
            // The side has seen to it.
            Event::Prepare { .. } | Event::CalledOff(_) => {}
            Event::Done { certain } => {
                if let Some(handles) = self.candidacies.remove(&id) {
                    handles.finish(certain);
                }
            }
        }
    }
}

/// What nobody but a person has to know.
fn log(election: &ElectionName, event: &Event) {
    match event {
        Event::Ordered(act, order) => tracing::info!(%election, "ordered: {act} {order}"),
        Event::Stays(why) => tracing::info!(%election, "unwell, and in office all the same: {why}"),
        Event::StaysBenched(why) => tracing::info!(%election, "benched, and in office all the same: {why}"),
        Event::OrderStays(act, order) => tracing::warn!(
            %election,
            "the time of the {act} {order} is over, but the store refuses to take it out of the record, and it counts \
             on: let this client write there, or take it back with one that may (`incumbent un{act}`)"
        ),
        Event::LeftOpen(token) => tracing::warn!(
            %election,
            "the term with token {token} is over, but the store does not take that into its record: history shows the \
             term as open (docs/runbooks.md#two-claim-to-lead)"
        ),
        _ => {}
    }
}

impl<S> Drop for Driver<S> {
    /// However the driver ends (its work is done, the runtime goes, a store has panicked), nobody
    /// waits for it in vain.
    fn drop(&mut self) {
        if !self.flaws.tells_when_dropped() {
            return;
        }
        self.requests.close();
        while let Ok(request) = self.requests.try_recv() {
            if let Request::Stand(stand) = request {
                stand.shared.change(|state| state.finish(true));
            }
        }
        for handles in std::mem::take(&mut self.candidacies).into_values() {
            handles.finish(false);
        }
    }
}

/// Puts something in a slot, and drops what was there.
fn replace(slot: &mut Option<AbortHandle>, by: Option<AbortHandle>) {
    if let Some(before) = std::mem::replace(slot, by) {
        before.abort();
    }
}
