//! The term: how it begins, what it lives on, and every way in which it ends.

use super::choice::Choice;
use super::record::Opening;
use super::{Candidacy, Following, State};
use crate::entry::{EntryId, Held};
use crate::machine::{Event, LossReason, Title};
use crate::office::{Act, Refusal};
use crate::outbox::Outbox;
use crate::standing::Fault;
use crate::tenure::{Step, Then};
use crate::time::Timestamp;

impl Candidacy {
    /// Lets time pass. It comes before every input, so that a late answer never meets a term that
    /// should be over.
    pub(super) fn on_time(&mut self, now: Timestamp, out: &mut Outbox) {
        self.check_deadline(now, out);
        if self.call_ends_at().is_some_and(|until| now >= until)
            && let Some(call) = self.give_up_call(out)
        {
            self.on_fault(now, call.op, Fault::OutcomeUnknown, out);
        }
    }

    fn check_deadline(&mut self, now: Timestamp, out: &mut Outbox) {
        if self.settings.policy.ends_at_the_deadline() {
            let step = self.tenure.on_time(now);
            self.carry_out(step, out);
        }
    }

    /// We are first in line. In office, unless something stands against it, or somebody is better.
    pub(super) fn on_first_in_line(&mut self, now: Timestamp, held: Held, out: &mut Outbox) {
        if self.must_leave_line().is_some() {
            return self.withdraw(held, None, out);
        }
        self.update_choice(now, &held);
        if self.is_choosing(&held) || self.tenure.begin(now).is_err() {
            self.state = State::Unproven(held);
        } else {
            self.state = State::Office(held);
            self.settle_choice();
            if !self.who.fenced || !self.settings.policy.raises_fences_first() {
                self.take_office(now, out);
            }
        }
    }

    /// The fences are raised, or there are none. A term begins if it is open in the record, where
    /// one is kept, and there is still time for one.
    pub(super) fn take_office(&mut self, now: Timestamp, out: &mut Outbox) {
        let State::Office(held) = &self.state else { return };
        let held = held.clone();
        if !self.tenure.is_taking() {
            return;
        }
        match self.opening(now, &held) {
            Opening::Done => {}
            Opening::Call(op) => return self.call(now, op, out),
            Opening::Wait => return self.wait_to_fence(held),
        }
        if self.tenure.take_office(now).is_err() {
            self.state = State::Unproven(held);
            return;
        }
        self.take_office_by = None;
        self.gave_way = false;
        self.backoff.succeeded();
        self.forget_last_term();
        self.disarm(out);
        let (term, deadline) = (self.tenure.term(), self.tenure.deadline());
        let last_term = self.office.terms.last_term(held.token, held.incarnation);
        self.event(Event::Elected { term, title: Title::Entry(held), last_term, deadline }, out);
        // What was to be proclaimed is in the entry already.
        self.requested.proclaim = None;
        self.notices = super::NoticeProgress::default();
        self.forget_search();
        // It has read this as a follower; from now on it obeys it.
        if let Some(frozen) = &self.office.frozen {
            self.event(Event::Ordered(Act::Freeze, frozen.order.clone()), out);
        }
    }

    pub(super) fn on_proven(&mut self, deadline: Timestamp, out: &mut Outbox) {
        // A renewal that did not ask about our entry proves the session, but the entry may have
        // been removed. One that is being enlisted may be there already.
        let unasked = match (&self.state, self.entry()) {
            (_, Some(held)) => self.named != Some(held.token),
            (State::Enlisting { sent, .. } | State::Following(Following { trying: sent, .. }), None) => *sent,
            _ => false,
        };
        self.passed_over = unasked;
        if unasked {
            return;
        }
        self.prove(deadline, out);
        if matches!(self.state, State::Unproven(_)) {
            self.look = true;
        }
    }

    /// The deadline moves back. What follows from that, the time that passes brings.
    pub(super) fn on_shortened(&mut self, deadline: Timestamp, out: &mut Outbox) {
        self.session_ends = true;
        self.prove(self.tenure.deadline().min(deadline), out);
    }

    fn prove(&mut self, deadline: Timestamp, out: &mut Outbox) {
        if self.tenure.prove(deadline) {
            self.event(Event::Deadline(deadline), out);
        }
    }

    /// Asks the user to stop the work.
    pub(super) fn drain(&mut self, now: Timestamp, why: LossReason, heir: Option<EntryId>, out: &mut Outbox) {
        let step = self.tenure.must_stop(now, why, heir);
        self.carry_out(step, out);
    }

    /// The work has stopped, says the user.
    pub(super) fn on_release(&mut self, out: &mut Outbox) {
        let step = self.tenure.stopped();
        self.carry_out(step, out);
    }

    /// Ends the term, at once.
    pub(super) fn lose(&mut self, why: LossReason, out: &mut Outbox) {
        let step = self.tenure.end(why);
        self.carry_out(step, out);
    }

    /// The leader hands over to an heir that is next in line, its work having stopped already.
    pub(super) fn cede(&mut self, heir: EntryId, out: &mut Outbox) {
        self.requested.transfer = None;
        let step = self.tenure.cede(heir);
        self.carry_out(step, out);
    }

    /// Does what the tenure says. The term ends before the withdrawal is sent: the next leader may
    /// be in office before its answer is here.
    pub(super) fn carry_out(&mut self, step: Option<Step<EntryId>>, out: &mut Outbox) {
        let (State::Office(held), Some(step)) = (&self.state, step) else { return };
        let held = held.clone();
        match step {
            Step::Stopping { why, hard_stop } => {
                self.event(Event::Stopping { why, hard_stop }, out);
                self.refuse_own_transfer(Refusal::Leaving, out);
                self.forget_departure();
                self.disarm(out);
                if !self.settings.policy.stops_before_release() {
                    self.withdraw(held, None, out);
                }
            }
            Step::Unelected(why, then) => {
                self.refuse_own_transfer(Refusal::Leaving, out);
                self.forget_departure();
                self.note_end(why);
                self.event(Event::Unelected(why), out);
                match then {
                    Then::Kept => self.disarm(out),
                    Then::GivenUp(heir) => self.withdraw(held, heir, out),
                    Then::Gone => self.leave_line(out),
                }
            }
            Step::GiveUp { why, heir } => {
                self.note_end(why);
                self.withdraw(held, heir, out);
            }
        }
    }

    /// Our entry is no longer there, or no longer ours.
    pub(super) fn on_entry_gone(&mut self, now: Timestamp, out: &mut Outbox) {
        let Some(token) = self.entry().map(|held| held.token) else { return };
        let deposed = self.office.deposed.as_ref().filter(|deposed| deposed.token == token);
        if let (Some(deposed), Some(_)) = (deposed, self.term()) {
            self.event(Event::Ordered(Act::Depose, deposed.order.clone()), out);
        }
        let why = if deposed.is_some() { LossReason::Deposed } else { LossReason::EntryDeleted };
        self.on_title_gone(now, why, out);
    }

    /// The store has forgotten the session, and with it our entry.
    pub(super) fn on_session_down(&mut self, now: Timestamp, out: &mut Outbox) {
        self.session = None;
        self.session_ends = false;
        self.tell_benched_anew();
        self.give_up_call(out);
        self.backoff.succeeded();
        self.on_title_gone(now, LossReason::Expired, out);
        self.tenure.prove(Timestamp::ZERO);
        self.event(Event::Out(LossReason::NoSession), out);
    }

    /// Nothing of ours is in line any more.
    fn on_title_gone(&mut self, now: Timestamp, why: LossReason, out: &mut Outbox) {
        let step = self.tenure.title_gone(why);
        match &self.state {
            State::Office(_) if step.is_some() => self.carry_out(step, out),
            // The entry was only kept until the work has stopped.
            State::Office(_) if self.tenure.is_unstopped() => self.on_withdrawn(now, out),
            State::Withdrawing(..) => self.on_withdrawn(now, out),
            _ => self.leave_line(out),
        }
    }

    /// We have no entry. Back in line with the next step, as another incarnation.
    pub(super) fn leave_line(&mut self, out: &mut Outbox) {
        self.give_up_place(State::Out, out);
    }

    fn give_up_place(&mut self, state: State, out: &mut Outbox) {
        self.disarm(out);
        // A call about the entry that goes, or is gone, has no answer worth having.
        self.give_up_call(out);
        self.take_office_by = None;
        self.close_by = None;
        self.forget_last_term();
        self.choice = Choice::Open;
        self.look = false;
        self.state = state;
    }

    /// Nothing has to be known any more of the term before ours.
    fn forget_last_term(&mut self) {
        self.led_before = None;
        self.examined = None;
        self.fencing = None;
        self.fence_at = None;
    }

    pub(super) fn withdraw(&mut self, held: Held, heir: Option<EntryId>, out: &mut Outbox) {
        // What failed before was something else.
        self.backoff.succeeded();
        self.give_up_place(State::Withdrawing(held, heir), out);
    }

    /// The entry has certainly left the line.
    pub(super) fn on_withdrawn(&mut self, now: Timestamp, out: &mut Outbox) {
        self.stay_out_until = now + self.rest;
        self.leave_line(out);
        self.event(Event::Released, out);
    }

    /// Trying again will not help: leave the line, and say so.
    pub(super) fn fail(&mut self, now: Timestamp, out: &mut Outbox) {
        if !self.requested.failed {
            self.requested.failed = true;
            self.requested.leave = true;
            self.event(Event::Failed, out);
        }
        self.drain(now, LossReason::Refused, None, out);
    }
}
