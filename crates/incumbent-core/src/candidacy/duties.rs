//! Notices in the office record that this candidate has to act on: handing over, being the heir,
//! stepping aside.

use super::heir::declined;
use super::record::Opening;
use super::{Candidacy, CountedOrder, Following, State};
use crate::entry::Held;
use crate::machine::{Event, LossReason, Op};
use crate::name::MAX_LINE;
use crate::office::{Act, Handover, Heir, Office, Refusal};
use crate::outbox::Outbox;
use crate::standing::Line;
use crate::time::Timestamp;

impl Candidacy {
    /// What a leader owes to the office record, one call at a time.
    pub(super) fn leader_duty(&mut self, now: Timestamp, held: &Held, out: &mut Outbox) -> Option<Op> {
        if let Some(op) = self.freeze_that_is_over(now).or_else(|| self.benches_that_are_over(now)) {
            return Some(op);
        }
        if let Some(office) = self.office_without_wait().filter(|_| !self.notices.keeps_others_out) {
            return Some(self.set_office(office));
        }
        if let Some(op) = self.own_transfer_notice(held, out) {
            return Some(op);
        }
        if let Some(op) = self.departure_called_off(held) {
            return Some(op);
        }
        let Some(handover) = self.handover_to_carry_out(held).cloned() else {
            // Carried out, refused or withdrawn: there is nothing to give up any more, and no alarm
            // for it.
            if self.settings.policy.clears_alarms() {
                self.notices.seen = None;
            }
            let op = self.departure_duty(out).or_else(|| self.leftovers(now, held));
            return op.or_else(|| self.search_for_heir(now, held, out));
        };
        // What comes to be refused is to be read by others before our next periodic look.
        self.notices.tidies = false;
        if let Some(why) = self.choice.refusal_of(&handover) {
            return Some(self.refusal(why));
        }
        if self.is_frozen() {
            return Some(self.refusal(Refusal::Frozen));
        }
        if handover.for_health && !self.requested.unwell {
            return Some(self.refusal(Refusal::Recovered));
        }
        if handover.for_bench && !self.is_benched() {
            return Some(self.refusal(Refusal::Unbenched));
        }
        let give_up_at = match self.notices.seen {
            Some((nonce, until)) if nonce == handover.nonce => until,
            _ => {
                // The watch that is armed knows nothing of the heir.
                self.disarm(out);
                self.notices.line_read = false;
                let until = self.patience_for(now, &handover);
                self.notices.seen = Some((handover.nonce, until));
                until
            }
        };
        if handover.heir.is_none() {
            self.gave_way = true;
            self.drain(now, LossReason::Resigned, None, out);
            return None;
        }
        if now >= give_up_at {
            return Some(self.refusal(Refusal::TimedOut));
        }
        (!self.notices.line_read).then(|| Op::Line(self.who.election.clone(), MAX_LINE))
    }

    /// Takes out of the office record what it says about terms that are over, and a handover that
    /// was refused. Its readers have had the time between two of our periodic looks.
    fn leftovers(&mut self, now: Timestamp, held: &Held) -> Option<Op> {
        if !std::mem::take(&mut self.notices.tidies) {
            return None;
        }
        // A record that was begun after we had looked does not say yet that we lead.
        if let Opening::Call(opening) = self.opening(now, held) {
            return Some(opening);
        }
        // Where that was refused before: rights come back.
        let mut office = self.office_without_wait().unwrap_or_else(|| self.office.clone());
        office.handover.take_if(|handover| handover.from < held.token || handover.refused.is_some());
        office.deposed.take_if(|deposed| deposed.token < held.token);
        (office != self.office).then(|| self.set_office(office))
    }

    /// The record without the pause that kept the others out until we lead. `None`: there is none.
    fn office_without_wait(&self) -> Option<Office> {
        let waited = self.office.paused.as_ref().is_some_and(|paused| !paused.bars(&self.who.name));
        (waited && self.settings.policy.lets_others_back()).then(|| self.office.clone().with_paused(None))
    }

    /// Whether an operator has ordered that nothing but a crash moves the office.
    pub(super) fn is_frozen(&self) -> bool {
        self.office.frozen.is_some() && self.settings.policy.heeds_freezes()
    }

    /// Notes until when the freeze counts that was just read, if it was not read before. What
    /// stands in the record is obeyed: this only says when a leader takes it out.
    pub(super) fn count_freeze(&mut self, now: Timestamp) {
        let Some(frozen) = &self.office.frozen else {
            self.freeze = None;
            return;
        };
        if self.freeze.is_none_or(|known| known.id != frozen.id) {
            let until = frozen.lasts.map_or(Timestamp::MAX, |lasts| now + lasts);
            self.freeze = Some(CountedOrder { id: frozen.id, until, stays: false });
        }
    }

    /// When the freeze in the record has lasted as long as it was to.
    pub(super) fn freeze_ends(&self) -> Option<Timestamp> {
        let until = self.freeze?.until;
        self.settings.policy.ends_freezes().then_some(until)
    }

    fn freeze_that_is_over(&self, now: Timestamp) -> Option<Op> {
        let over = self.freeze_ends().is_some_and(|until| now >= until);
        over.then(|| self.set_office(self.office.clone().with_frozen(None)))
    }

    /// The record may not be written. A freeze that is over stays in it, and is obeyed; it is tried
    /// again now and then, since rights come back.
    fn on_freeze_stays(&mut self, now: Timestamp, out: &mut Outbox) {
        let again_at = now + self.settings.reread_every;
        let Some(freeze) = self.freeze.as_mut().filter(|freeze| now >= freeze.until) else { return };
        freeze.until = again_at;
        let told = std::mem::replace(&mut freeze.stays, true);
        if let Some(frozen) = self.office.frozen.as_ref().filter(|_| !told) {
            self.event(Event::OrderStays(Act::Freeze, frozen.order.clone()), out);
        }
    }

    /// Tells the log of this leader what operators have ordered it.
    pub(super) fn log_orders(&self, before: &Office, out: &mut Outbox) {
        let Some(token) = self.term() else { return };
        let own = self.requested.transfer.as_ref().map(|(_, _, nonce)| *nonce);
        for (act, order) in self.office.news_since(before, token) {
            let is_own = |handover: &Handover| {
                Some(handover.nonce) == own || self.choice.is_by(handover) || self.departure.is_by(handover)
            };
            if act != Act::Transfer || !self.office.handover.as_ref().is_some_and(is_own) {
                self.event(Event::Ordered(act, order), out);
            }
        }
    }

    pub(super) fn handover_to_carry_out(&self, held: &Held) -> Option<&Handover> {
        if !self.settings.policy.knows_void_handovers() {
            return self.office.handover.as_ref();
        }
        self.office.handover_from(held.token).filter(|handover| self.notices.unable != Some(handover.nonce))
    }

    /// A notice cannot be acted on, and trying again cannot cure it. Our own place does not depend
    /// on it: the request is refused, and we stay where we are.
    pub(super) fn on_duty_failed(&mut self, now: Timestamp, failed: &Op, out: &mut Outbox) {
        // A term that cannot be opened is not taken, nor one before which something else has to be
        // written, and cannot be. One that cannot be closed is in nobody's way.
        if self.tenure.is_taking() {
            self.leave_open(out);
            return self.fail(now, out);
        }
        if !matches!(self.state, State::Office(_)) && self.leave_open(out) {
            return;
        }
        let asked = self.office.handover.as_ref().map(|handover| handover.nonce);
        match (&self.state, failed) {
            (State::Office(held), Op::Line(..)) if self.handover_to_carry_out(held).is_some() => {
                let op = self.refusal(Refusal::Unable);
                self.call(now, op, out);
            }
            (State::Office(_), _) => {
                self.on_search_failed(out);
                self.end_departure(Refusal::Unable, out);
                self.notices.unable = asked;
                self.notices.keeps_others_out = self.office_without_wait().is_some();
                self.on_freeze_stays(now, out);
                self.on_benches_stay(now, out);
                self.refuse_own_transfer(Refusal::Unable, out);
            }
            (State::Following(_), _) => self.notices.found_void = asked,
            (State::Out, Op::SetOffice(..)) => self.on_benches_stay(now, out),
            _ => self.fail(now, out),
        }
    }

    /// Writes down the handover that our own user asked for, so that the others make room.
    fn own_transfer_notice(&mut self, held: &Held, out: &mut Outbox) -> Option<Op> {
        let (heir, within, nonce) = self.requested.transfer.clone()?;
        if self.is_frozen() {
            self.refuse_own_transfer(Refusal::Frozen, out);
            return None;
        }
        let is_ours = |ours: &&Handover| ours.is_unasked() || self.choice.is_by(ours) || self.departure.is_by(ours);
        if let Some(under_way) = self.office.handover_from(held.token).filter(|under_way| !is_ours(under_way)) {
            if under_way.nonce != nonce {
                self.refuse_own_transfer(Refusal::Busy, out);
            }
            return None;
        }
        if let Some(refused) = self.office.handover.as_ref().filter(|handover| handover.nonce == nonce) {
            let why = refused.refused.unwrap_or(Refusal::TimedOut);
            self.refuse_own_transfer(why, out);
            return None;
        }
        let handover = Handover::new(held.token, heir, nonce, within);
        Some(self.set_office(self.office.clone().with_handover(handover)))
    }

    pub(super) fn refuse_own_transfer(&mut self, why: Refusal, out: &mut Outbox) {
        if self.requested.transfer.take().is_some() {
            self.event(Event::TransferRefused(why), out);
        }
    }

    fn refusal(&self, why: Refusal) -> Op {
        let mut office = self.office.clone();
        if let Some(handover) = &mut office.handover {
            handover.refused = Some(why);
        }
        self.set_office(office)
    }

    pub(super) fn set_office(&self, to: Office) -> Op {
        Op::SetOffice(self.who.election.clone(), self.office.version, Box::new(to))
    }

    /// The line has been read: by a leader that hands over, by the first in line before it takes
    /// office, by one who may have to step aside, or while paused.
    pub(super) fn on_line(&mut self, now: Timestamp, line: Line, out: &mut Outbox) {
        match &self.state {
            State::Office(held) => {
                let held = held.clone();
                self.notices.line_read = true;
                self.on_line_behind_us(now, &held, &line, out);
            }
            State::Following(Following { held: Some(held), .. }) => {
                let held = held.clone();
                self.on_head_known(&held, &line, out);
            }
            State::Unproven(held) => {
                let held = held.clone();
                self.notices.line_read = true;
                self.on_line_to_choose_from(now, held, &line, out);
            }
            State::Out | State::Withdrawing(..) => {
                self.cursor = line.cursor;
                self.look = false;
                self.on_office(now, line.office, out);
            }
            _ => {}
        }
    }

    /// Hands over if the heir is next and ready; refuses if it never will be; else waits for a
    /// hint.
    fn on_line_behind_us(&mut self, now: Timestamp, held: &Held, line: &Line, out: &mut Outbox) {
        let Some(handover) = self.handover_to_carry_out(held).cloned() else {
            return match self.on_line_to_depart(held, line, out) {
                Some(op) => self.call(now, op, out),
                None if self.is_departing() => {}
                None => self.on_line_searched(now, held, line, out),
            };
        };
        let Some(heir) = &handover.heir else { return };
        if line.office.frozen.is_some() && !self.is_frozen() && self.settings.policy.heeds_freezes() {
            // Frozen since the request was read: look at the record first.
            self.look = true;
            return;
        }
        let Some(behind) = line.behind(held) else {
            // Not first, or not there: verify.
            self.look = true;
            return;
        };
        let place = behind.iter().position(|entry| Heir::of(entry).as_ref() == Some(heir));
        if let Some(why) = place.and_then(|place| declined(&behind[place], handover.nonce)) {
            let op = self.refusal(Refusal::HeirDeclined(why));
            return self.call(now, op, out);
        }
        let why = match place {
            None if line.more => Refusal::TooFar,
            None => Refusal::HeirGone,
            Some(place)
                if self.has_fallen_ill(&handover, &behind[place])
                    || self.knows_a_fitter_heir(&handover, &behind[place], behind) =>
            {
                Refusal::HeirUnfit
            }
            Some(0) if behind[0].ready == Some(handover.nonce) => {
                let ours = self.requested.transfer.as_ref().is_some_and(|(_, _, nonce)| *nonce == handover.nonce);
                let guard = self.settings.policy.guards_handovers().then(|| heir.entry.clone());
                return match (ours, guard) {
                    (true, Some(guard)) => self.cede(guard, out),
                    (_, guard) if handover.for_bench => self.drain(now, LossReason::Benched, guard, out),
                    (_, guard) if handover.for_health => self.drain(now, LossReason::Unwell, guard, out),
                    (_, guard) => self.drain(now, LossReason::Transferred, guard, out),
                };
            }
            Some(0) => return self.wait_for_preparing(now, &handover, &behind[0]),
            Some(place) if behind[..place].iter().any(|entry| entry.is_foreign()) => Refusal::ForeignBetween,
            Some(_) => return,
        };
        let op = self.refusal(why);
        self.call(now, op, out);
    }

    /// What a follower owes to the office record: to be ready as the heir, or to step aside for it.
    pub(super) fn follower_duty(&self) -> Option<Op> {
        let State::Following(Following { held: Some(held), .. }) = &self.state else { return None };
        let handover = self.office.handover.as_ref().filter(|handover| handover.refused.is_none())?;
        let heir = handover.heir.as_ref()?;
        let nonce = handover.nonce;
        if heir.is(held) {
            return self.heir_duty();
        }
        let between = handover.from < held.token && held.token < heir.token && self.settings.policy.steps_aside();
        let settled = self.notices.stepped_aside == Some(nonce) || self.notices.found_void == Some(nonce);
        // Whether the one that is asked leads at all: else the notice is void, and our place is
        // ours.
        (between && !settled).then(|| Op::Line(self.who.election.clone(), 1))
    }

    fn on_head_known(&mut self, held: &Held, line: &Line, out: &mut Outbox) {
        let Some(handover) = &self.office.handover else { return };
        let nonce = handover.nonce;
        let asked_leads = line.entries.first().is_some_and(|head| head.token == handover.from);
        let still_asked = line.office.handover.as_ref().is_some_and(|now| now.nonce == nonce && now.refused.is_none());
        if asked_leads && still_asked {
            self.notices.stepped_aside = Some(nonce);
            self.withdraw(held.clone(), None, out);
        } else {
            self.notices.found_void = Some(nonce);
        }
    }
}
