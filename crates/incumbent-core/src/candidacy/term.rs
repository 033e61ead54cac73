//! The term: how it begins, what it lives on, and every way in which it ends.

use super::{Candidacy, Draining, Following, State};
use crate::entry::{EntryId, Held};
use crate::flaw::Flaw;
use crate::machine::{Event, Loss};
use crate::outbox::Outbox;
use crate::standing::Fault;
use crate::time::Timestamp;

impl Candidacy {
    /// Lets time pass. It comes before every input, so that a late answer never meets a term that should be over.
    pub(super) fn on_time(&mut self, now: Timestamp, out: &mut Outbox) {
        self.check_deadline(now, out);
        if self.call.as_ref().is_some_and(|call| now >= call.until)
            && let Some(call) = self.give_up_call(out)
        {
            self.on_fault(now, call.op, Fault::OutcomeUnknown, out);
        }
    }

    fn check_deadline(&mut self, now: Timestamp, out: &mut Outbox) {
        if self.term().is_none() || self.settings.flaws.has(Flaw::RenewalRevives) {
            return;
        }
        if now >= self.deadline {
            return self.lose(Loss::LocalDeadline, out);
        }
        match &self.state {
            State::Leading(_) if now >= self.deadline - self.settings.grace => {
                self.drain(now, Loss::LocalDeadline, None, out);
            }
            State::Draining(draining) if now >= draining.hard_stop => {
                let why = draining.why;
                self.lose(why, out);
            }
            _ => {}
        }
    }

    /// We are first in line. In office, unless something stands against it.
    pub(super) fn on_first_in_line(&mut self, now: Timestamp, held: Held, out: &mut Outbox) {
        if self.must_leave_line().is_some() {
            self.withdraw(held, None, out);
        } else if now >= self.deadline - self.settings.grace {
            self.state = State::Unproven(held);
        } else if self.who.fenced && !self.settings.flaws.has(Flaw::FencesRaisedLate) {
            self.state = State::TakingOffice(held);
        } else {
            self.take_office(held, out);
        }
    }

    /// The fences are raised. A term begins if there is still time for one.
    pub(super) fn on_fences_raised(&mut self, now: Timestamp, out: &mut Outbox) {
        if let State::TakingOffice(held) = &self.state {
            let held = held.clone();
            if now >= self.deadline - self.settings.grace {
                self.state = State::Unproven(held);
            } else {
                self.take_office(held, out);
            }
        }
    }

    fn take_office(&mut self, held: Held, out: &mut Outbox) {
        self.disarm(out);
        self.event(Event::Elected { held: held.clone(), deadline: self.deadline }, out);
        self.wishes.unstopped = true;
        // What was to be proclaimed is in the entry already.
        self.wishes.proclaim = None;
        self.handover = super::Handing::default();
        self.state = State::Leading(held);
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
        self.deadline = deadline;
        if self.term().is_some() {
            self.event(Event::Deadline(deadline), out);
        }
        if matches!(self.state, State::Unproven(_)) {
            self.look = true;
        }
    }

    /// The deadline moves back. What follows from that, the time that passes brings.
    pub(super) fn on_shortened(&mut self, deadline: Timestamp, out: &mut Outbox) {
        self.session_ends = true;
        self.deadline = self.deadline.min(deadline);
        if self.term().is_some() {
            self.event(Event::Deadline(self.deadline), out);
        }
    }

    /// Asks the user to stop the work. The term goes on until the user says so, or until the hard stop.
    pub(super) fn drain(&mut self, now: Timestamp, why: Loss, heir: Option<EntryId>, out: &mut Outbox) {
        let State::Leading(held) = &self.state else { return };
        let hard_stop = self.deadline.min(now + self.settings.grace);
        let held = held.clone();
        self.event(Event::Stopping { why, hard_stop }, out);
        self.refuse_own_transfer(crate::office::Refusal::Leaving, out);
        if self.settings.flaws.has(Flaw::ReleaseBeforeStop) {
            return self.withdraw(held, heir, out);
        }
        self.state = State::Draining(Draining { held, why, hard_stop, heir });
        self.disarm(out);
    }

    /// The work has stopped, says the user.
    pub(super) fn on_release(&mut self, out: &mut Outbox) {
        self.wishes.unstopped = false;
        match &self.state {
            State::Leading(_) => self.lose(Loss::Resigned, out),
            State::Draining(draining) => {
                let why = draining.why;
                self.lose(why, out);
            }
            State::Holding(held, heir) => {
                let (held, heir) = (held.clone(), heir.clone());
                self.withdraw(held, heir, out);
            }
            _ => {}
        }
    }

    /// Ends the term, at once. The entry goes next, unless it is gone already.
    ///
    /// The term ends before the withdrawal is sent: the next leader may be in office before its answer is here.
    pub(super) fn lose(&mut self, why: Loss, out: &mut Outbox) {
        let (held, heir) = match &self.state {
            State::Leading(held) => (held.clone(), None),
            State::Draining(draining) => (draining.held.clone(), draining.heir.clone()),
            _ => return,
        };
        self.end_term(why, out);
        let entry_is_gone = matches!(why, Loss::Expired | Loss::EntryDeleted | Loss::Deposed);
        if entry_is_gone {
            self.leave_line(out);
        } else if self.who.hold_until_stopped && self.wishes.unstopped {
            self.state = State::Holding(held, heir);
            self.disarm(out);
        } else {
            self.withdraw(held, heir, out);
        }
    }

    /// The leader hands over to an heir that is next in line, its work having stopped already.
    pub(super) fn cede(&mut self, held: Held, heir: EntryId, out: &mut Outbox) {
        self.wishes.transfer = None;
        self.wishes.unstopped = false;
        self.end_term(Loss::Transferred, out);
        self.withdraw(held, Some(heir), out);
    }

    fn end_term(&mut self, why: Loss, out: &mut Outbox) {
        self.refuse_own_transfer(crate::office::Refusal::Leaving, out);
        self.event(Event::Unelected(why), out);
    }

    /// Our entry is no longer there, or no longer ours.
    pub(super) fn on_entry_gone(&mut self, now: Timestamp, out: &mut Outbox) {
        let Some(token) = self.entry().map(|held| held.token) else { return };
        match &self.state {
            State::Leading(_) | State::Draining(_) => {
                let deposed = self.office.deposed == Some(token);
                self.lose(if deposed { Loss::Deposed } else { Loss::EntryDeleted }, out);
            }
            State::Withdrawing(..) | State::Holding(..) => self.on_withdrawn(now, out),
            _ => self.leave_line(out),
        }
    }

    /// The store has forgotten the session, and with it our entry.
    pub(super) fn on_session_down(&mut self, now: Timestamp, out: &mut Outbox) {
        self.session = None;
        self.session_ends = false;
        self.deadline = Timestamp::ZERO;
        self.give_up_call(out);
        self.backoff.succeeded();
        match &self.state {
            State::Leading(_) | State::Draining(_) => self.lose(Loss::Expired, out),
            State::Withdrawing(..) | State::Holding(..) => self.on_withdrawn(now, out),
            State::Done => {}
            State::Out
            | State::Enlisting { .. }
            | State::Following(_)
            | State::Unproven(_)
            | State::TakingOffice(_) => {
                self.leave_line(out);
            }
        }
        if !matches!(self.state, State::Done) {
            self.event(Event::Out(Loss::NoSession), out);
        }
    }

    /// We have no entry. Back in line with the next step, as another incarnation.
    pub(super) fn leave_line(&mut self, out: &mut Outbox) {
        self.disarm(out);
        // A call about the entry that is gone has no answer worth having.
        self.give_up_call(out);
        self.look = false;
        self.state = State::Out;
    }

    pub(super) fn withdraw(&mut self, held: Held, heir: Option<EntryId>, out: &mut Outbox) {
        self.disarm(out);
        self.give_up_call(out);
        self.look = false;
        self.state = State::Withdrawing(held, heir);
    }

    /// The entry has certainly left the line.
    pub(super) fn on_withdrawn(&mut self, now: Timestamp, out: &mut Outbox) {
        self.stay_out_until = now + self.rest;
        self.leave_line(out);
        self.event(Event::Released, out);
    }

    /// Trying again will not help: leave the line, and say so.
    pub(super) fn fail(&mut self, now: Timestamp, out: &mut Outbox) {
        if !self.wishes.failed {
            self.wishes.failed = true;
            self.wishes.leave = true;
            self.event(Event::Failed, out);
        }
        self.drain(now, Loss::Refused, None, out);
    }
}
