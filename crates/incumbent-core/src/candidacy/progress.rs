//! What to do next, and what answers, faults, hints and commands change.

use super::{Call, Candidacy, Following, State};
use crate::entry::{Entry, Publication, Version};
use crate::machine::{Answer, CallId, Command, Event, Hint, LossReason, Op, Successor, WatchId};
use crate::office::{Office, Refusal};
use crate::outbox::Outbox;
use crate::standing::{Cas, Fault, Place, Standing, StillBehind};
use crate::time::Timestamp;

impl Candidacy {
    /// Decides what to do next. Does nothing while a call is out or a failed one is being rested
    /// from.
    pub(super) fn step(&mut self, now: Timestamp, out: &mut Outbox) {
        // What stands against being in line comes first, whatever else is under way.
        self.heed_bars(now, out);
        self.update_preparation(out);
        // A rest that is over asks for no more wake-ups, also where no watch is wanted any more.
        self.watch_backoff.resting(now);
        self.close_backoff.resting(now);
        if self.call.is_some() || self.backoff.resting(now) {
            return;
        }
        match &self.state {
            State::Out => self.step_out(now, out),
            State::Enlisting { stray: Some(stray), .. } => self.call(now, Op::Withdraw(stray.clone(), None), out),
            State::Enlisting { stray: None, .. } => self.enlist(now, out),
            State::Following(_) => self.step_following(now, out),
            State::Unproven(_) => self.step_first(now, out),
            State::Office(held) if self.tenure.is_taking() && self.raise.is_none() => {
                self.call(now, Op::RaiseFences(held.token), out);
            }
            State::Office(_) if self.tenure.serves() => self.step_leading(now, out),
            State::Office(_) if !self.settings.policy.closes_after_stop() => self.close_early(now, out),
            State::Office(_) if self.tenure.is_holding() => self.step_holding(now, out),
            State::Office(_) | State::Done => {}
            State::Withdrawing(held, heir) => {
                let withdrawal = Op::Withdraw(held.clone(), heir.clone());
                let next = self.closing_before_withdrawal(now).unwrap_or(withdrawal);
                self.call(now, next, out);
            }
        }
    }

    fn heed_bars(&mut self, now: Timestamp, out: &mut Outbox) {
        // Fences that do not answer here, and a record that cannot be written from here, may be
        // within reach of the next in line.
        let too_late = self.take_office_by.is_some_and(|by| now >= by).then_some(LossReason::Refused);
        self.gave_way |= too_late.is_some();
        let Some(why) = self.must_leave_line().or(too_late) else { return };
        if self.leads_benched(why) && !self.is_to_leave_for_bench(now) {
            return;
        }
        match &self.state {
            // A candidacy that was let go leads on until its term is over, and so does one on a
            // session that is to be replaced.
            State::Office(_)
                if self.tenure.in_office() && matches!(why, LossReason::Resigned | LossReason::NoSession) => {}
            // An operator has said that it stays.
            State::Office(_) if self.tenure.in_office() && why == LossReason::Unhealthy && self.is_frozen() => {}
            State::Office(_) => self.drain(now, why, None, out),
            State::Following(Following { held: Some(held), .. }) | State::Unproven(held) => {
                let held = held.clone();
                self.withdraw(held, None, out);
            }
            // The try under way is settled first: it may have made us an entry.
            State::Following(Following { held: None, trying: true, .. }) if self.settings.policy.settles_tries() => {
                self.state = State::Enlisting { stray: None, sent: true };
            }
            State::Following(Following { held: None, .. }) => self.leave_line(out),
            State::Enlisting { sent: false, .. } => self.leave_line(out),
            State::Enlisting { sent: true, .. } if !self.settings.policy.settles_enlistments() => self.leave_line(out),
            _ => {}
        }
    }

    fn step_out(&mut self, now: Timestamp, out: &mut Outbox) {
        let may_close = self.close_backoff.until().is_none() && !self.is_too_late_to_close(now);
        if may_close && let Some(closing) = self.closing() {
            return self.call(now, closing, out);
        }
        let has_ended = self.has_ended();
        if has_ended || self.requested.leave {
            if !self.is_done_with_terms(now, out) {
                return;
            }
            if has_ended {
                self.event(Event::Ended, out);
            }
            return self.finish(true, out);
        }
        if let Some(why) = self.barred() {
            if why == LossReason::Benched {
                self.tell_benched(out);
            }
            // A hint is answered with a look whatever bars us: armed again from the old cursor, the
            // watch would fire at once.
            let rereads = matches!(why, LossReason::Paused | LossReason::Benched);
            if self.look || (rereads && now >= self.reread_at) {
                return self.call(now, Op::Line(self.who.election.clone(), 1), out);
            }
            if let Some(op) = self.benches_that_are_over(now).filter(|_| why == LossReason::Benched) {
                return self.call(now, op, out);
            }
            return self.arm(now, out);
        }
        if !self.may_rejoin() || now < self.stay_out_until {
            return;
        }
        self.disarm(out);
        self.incarnation = self.rng.incarnation();
        self.say_fitness_anew();
        self.tell_benched_anew();
        self.state = State::Enlisting { stray: None, sent: false };
        self.enlist(now, out);
    }

    fn enlist(&mut self, now: Timestamp, out: &mut Outbox) {
        if let State::Enlisting { sent: tried, .. } | State::Following(Following { trying: tried, .. }) =
            &mut self.state
        {
            *tried = true;
        }
        self.call(now, Op::Enlist(self.who.election.clone(), self.new_entry()), out);
    }

    fn step_following(&mut self, now: Timestamp, out: &mut Outbox) {
        let State::Following(following) = &self.state else { return };
        let silent_until = self.evict_at(following).filter(|at| now >= *at);
        let due = now >= self.reread_at || following.look_again_at.is_some_and(|at| now >= at);
        // A look comes before an eviction: nearly always the one ahead has renewed since it was
        // last read, and after an eviction only a look tells who is ahead now.
        let unread = silent_until.is_some_and(|at| following.read_at < at);
        if self.look || due || (unread && self.settings.policy.reads_before_evicting()) {
            return match following.held.clone() {
                Some(held) => {
                    let behind = following.ahead.id.clone();
                    self.call(now, Op::Standing(held, Some(behind)), out)
                }
                None => self.enlist(now, out),
            };
        }
        if silent_until.is_some() {
            let op = Op::Evict(self.who.election.clone(), following.ahead.clone());
            return self.call(now, op, out);
        }
        // We were first and are no longer, or could not close our term in its time.
        let closing = if self.close_backoff.until().is_none() { self.closing() } else { None };
        let op = closing.or_else(|| self.follower_duty()).or_else(|| self.fitness_to_publish());
        if matches!(op, None | Some(Op::Publish(..))) {
            // What is said changes the store: a watch that came after it would begin in the past,
            // which etcd serves up to 100 ms late. For an heir that is when its leader goes.
            self.arm(now, out);
        }
        if let Some(op) = op {
            self.call(now, op, out);
        }
    }

    /// First in line, and not on the way into office.
    fn step_first(&mut self, now: Timestamp, out: &mut Outbox) {
        let State::Unproven(held) = &self.state else { return };
        let held = held.clone();
        let is_due = self.fence_at.take_if(|at| now >= *at).is_some();
        let reread = now >= self.reread_at;
        if self.look || is_due || reread {
            // The hint that the heir is ready may have been lost.
            self.notices.line_read &= !reread;
            return self.call(now, Op::Standing(held, None), out);
        }
        match self.choice_duty(now, &held) {
            Some(op) => self.call(now, op, out),
            None => self.arm(now, out),
        }
    }

    fn step_leading(&mut self, now: Timestamp, out: &mut Outbox) {
        let State::Office(held) = &self.state else { return };
        let held = held.clone();
        let reread = now >= self.reread_at;
        if self.look || reread {
            self.notices.tidies |= reread;
            // The hint that the heir is ready may have been lost.
            self.notices.line_read &= !reread;
            return self.call(now, Op::Standing(held, None), out);
        }
        self.requested.proclaiming = self.requested.proclaim.as_ref().map(|(number, _)| *number);
        if self.requested.proclaiming.is_some() {
            return self.call(now, Op::Publish(held, self.published, self.publication(None)), out);
        }
        if let Some(op) = self.fitness_to_publish() {
            return self.call(now, op, out);
        }
        if let Some(op) = self.leader_duty(now, &held, out) {
            return self.call(now, op, out);
        }
        self.arm(now, out);
    }

    /// Over for the user, who has not said yet that the work has stopped: our entry says why nobody
    /// else leads. That is for people. Nobody waits for it, and nobody decides by it.
    fn step_holding(&mut self, now: Timestamp, out: &mut Outbox) {
        let State::Office(held) = &self.state else { return };
        if self.look {
            return self.call(now, Op::Standing(held.clone(), None), out);
        }
        if let Some(op) = self.fitness_to_publish() {
            self.call(now, op, out);
        }
    }

    fn finish(&mut self, certain: bool, out: &mut Outbox) {
        self.disarm(out);
        self.state = State::Done;
        self.event(Event::Done { certain }, out);
    }

    pub(super) fn on_command(&mut self, now: Timestamp, command: Command, out: &mut Outbox) {
        match command {
            Command::Release => self.on_release(out),
            Command::Leave => self.requested.leave = true,
            Command::Proclaim(number, value) if self.term().is_some() => {
                self.who.value = value.clone();
                self.requested.proclaim = Some((number, value));
            }
            Command::Proclaim(number, _) => self.event(Event::Proclaimed(number, Cas::Refused), out),
            Command::Transfer(Successor::Member(_), _) => {
                self.event(Event::TransferRefused(Refusal::NotAMember), out);
            }
            Command::Transfer(Successor::Candidate(heir), within) => {
                let nonce = self.rng.nonce();
                match &self.state {
                    State::Office(_) if !self.tenure.serves() => {
                        self.event(Event::TransferRefused(Refusal::Leaving), out);
                    }
                    State::Office(_) if self.requested.transfer.is_some() => {
                        self.event(Event::TransferRefused(Refusal::Busy), out);
                    }
                    State::Office(held) if heir.is(held) => {
                        self.event(Event::TransferRefused(Refusal::LeadsAlready), out);
                    }
                    State::Office(_) => self.requested.transfer = Some((heir, within, nonce)),
                    _ => self.event(Event::TransferRefused(Refusal::Leaving), out),
                }
            }
            Command::Prepared(nonce, answer) => self.on_prepared(nonce, answer),
            Command::HandOver(within) => self.on_hand_over(within, out),
            Command::Healthy(healthy) => self.requested.unhealthy = !healthy,
            Command::Unwell(unwell) => self.on_unwell(now, unwell),
            Command::Improving(improving) => self.on_improving(now, improving),
            Command::Lapsed(term) => {
                let step = self.tenure.lapsed(term);
                self.carry_out(step, out);
            }
        }
    }

    pub(super) fn on_wake(&mut self, now: Timestamp, id: WatchId, hint: Hint, out: &mut Outbox) {
        if self.watch != Some(id) {
            return;
        }
        self.watch = None;
        self.notices.line_read = false;
        match hint {
            Hint::Changed => {
                self.watch_backoff.succeeded();
                self.look = true;
            }
            Hint::Lost => self.on_watch_lost(now),
        }
        if !self.settings.policy.verifies_wins() {
            self.win_unverified(now, out);
        }
    }

    pub(super) fn on_answer(&mut self, now: Timestamp, id: CallId, answer: Result<Answer, Fault>, out: &mut Outbox) {
        self.raise.take_if(|raise| *raise == id);
        let Some(call) = self.call.take_if(|call| call.id == id) else { return };
        let answer = match answer {
            Ok(answer) => answer,
            Err(fault) => return self.on_fault(now, call.op, fault, out),
        };
        // On the way into office looks go well while a fence or the record refuses: only the
        // office ends the rests between tries.
        if self.take_office_by.is_none() {
            self.backoff.succeeded();
        }
        match (&call.op, answer) {
            (Op::Enlist(..) | Op::Standing(..), Answer::Standing(standing)) => {
                self.on_standing(now, &call, *standing, out)
            }
            (Op::Withdraw(..), Answer::Cas(cas)) => self.on_withdrawal(now, cas, out),
            (Op::Publish(.., said), Answer::Published(published)) => self.on_published(said, published, out),
            (Op::SetOffice(_, _, to), Answer::Cas(cas)) => self.on_office_set(now, to, cas, out),
            (Op::Evict(..), Answer::Cas(cas)) => self.on_evicted(now, cas),
            (Op::Line(..), Answer::Line(line)) => self.on_line(now, *line, out),
            (Op::Examine(term), Answer::Examined { died }) => self.on_examined(now, term, died, out),
            (Op::Shoot(..), Answer::Shot { result, again, why }) => self.on_shot(now, result, again, why),
            (Op::RaiseFences(_), Answer::Raised) => self.take_office(now, out),
            // An answer that does not fit its question says nothing.
            (op, _) => self.on_fault(now, op.clone(), Fault::OutcomeUnknown, out),
        }
    }

    /// The only place where a role changes for better or for worse because of what the store says.
    fn on_standing(&mut self, now: Timestamp, call: &Call, standing: Standing, out: &mut Outbox) {
        let waited_for = self.watch_for();
        self.on_office(now, standing.office, out);
        if self.tenure.is_holding() {
            (self.published, self.look) = (standing.published, false);
            if standing.place == Place::Gone {
                self.on_entry_gone(now, out);
            }
            return;
        }
        let over = matches!(self.state, State::Office(_)) && !self.tenure.in_office();
        if over || matches!(self.state, State::Done | State::Withdrawing(..) | State::Out) {
            return;
        }
        self.cursor = standing.cursor;
        self.published = standing.published;
        self.look = false;
        self.on_place(now, call, standing.place, out);
        // A watch that was armed for an earlier answer may wait for the wrong entry, or may have
        // told its change in a hint that was lost. Where nothing has changed, it waits on.
        if self.watch_for() != waited_for {
            self.disarm(out);
        }
    }

    fn on_place(&mut self, now: Timestamp, call: &Call, place: Place, out: &mut Outbox) {
        match place {
            Place::Leading(_) if self.term().is_some() => {}
            Place::Leading(held) => {
                self.note_predecessor();
                self.on_first_in_line(now, held, out);
            }
            Place::Behind { held, ahead, look_again } => {
                if self.term().is_some() {
                    return self.lose(LossReason::Superseded, out);
                }
                let seen_at = self.settings.policy.rival_timed_from(call.sent_at, now);
                let since = self.silent_since(&ahead, seen_at);
                let news = !matches!(&self.state, State::Following(before) if before.ahead.token == ahead.token);
                // One that is benched leaves again, and waits for nobody's office.
                if news && !self.is_benched() {
                    self.event(Event::Following(Box::new(ahead.clone())), out);
                }
                self.take_office_by = None;
                let look_again_at = look_again.map(|wait| now + wait);
                self.state = State::Following(Following {
                    held,
                    ahead: Box::new(ahead),
                    since,
                    read_at: now,
                    look_again_at,
                    trying: false,
                });
            }
            Place::Gone => {
                if self.term().is_none() || self.settings.policy.checks_own_entry() {
                    self.on_entry_gone(now, out);
                }
            }
        }
    }

    /// A renewal has seen that nothing has changed: that saves the next look, and times the one
    /// ahead anew. Where a watch was lost, what it would have told may have come after the renewal
    /// had looked: there the look stays due.
    pub(super) fn on_still_behind(&mut self, now: Timestamp, seen: StillBehind) {
        let State::Following(following) = &self.state else { return };
        let same = following.held.as_ref() == Some(&seen.held)
            && following.ahead.token == seen.ahead.token
            && self.office.version == seen.office;
        if !same || self.watch.is_none() {
            return;
        }
        let since = self.silent_since(&seen.ahead, now);
        if let State::Following(following) = &mut self.state {
            *following = Following { ahead: Box::new(seen.ahead), since, read_at: now, ..following.clone() };
        }
        self.reread_at = self.reread_at.max(now + self.settings.reread_every);
    }

    /// Since when the one ahead has been silent. Where its last beat can be read, several that
    /// stopped in a row have been silent at the same time, and are evicted one right after the
    /// other; else each is timed once it is directly ahead.
    fn silent_since(&self, ahead: &Entry, seen_at: Timestamp) -> Timestamp {
        let at_once = self.settings.policy.counts_silence_at_once();
        if let Some(silent) = ahead.observed.and_then(|observed| observed.silent).filter(|_| at_once) {
            return seen_at - silent;
        }
        match &self.state {
            State::Following(before) if before.ahead.id == ahead.id && before.ahead.version == ahead.version => {
                before.since
            }
            _ => seen_at,
        }
    }

    /// Takes in the office record, and with it when to read again.
    pub(super) fn on_office(&mut self, now: Timestamp, office: Office, out: &mut Outbox) {
        if self.who.first_contact.is_none() {
            let tombstone = office.ended.as_ref().map(|ended| ended.id);
            self.who.first_contact = Some(tombstone);
            self.event(Event::FirstContact(tombstone), out);
        }
        let before = std::mem::replace(&mut self.office, office);
        self.settle_unclosed();
        self.log_orders(&before, out);
        self.count_freeze(now);
        self.count_benches(now, &before, out);
        self.note_refusal(&before, out);
        self.note_departure_refused(&before);
        self.count_changes(now, &before);
        let bars = |office: &Office| office.paused.as_ref().is_some_and(|paused| self.is_barred_by(paused));
        if bars(&self.office) && !bars(&before) {
            self.event(Event::Out(LossReason::Paused), out);
        }
        let reread_at = now + self.rng.jitter(self.settings.reread_every);
        self.reread_at = if self.settings.policy.rereads() { reread_at } else { Timestamp::MAX };
    }

    fn on_withdrawal(&mut self, now: Timestamp, cas: Cas, out: &mut Outbox) {
        if cas == Cas::Refused && self.keep_place() {
            return;
        }
        match (&mut self.state, cas) {
            (State::Enlisting { stray, .. }, _) => *stray = None,
            // The heir is gone. The term is over all the same, and a token never becomes valid
            // again: make room.
            (State::Withdrawing(_, heir @ Some(_)), Cas::Refused) => *heir = None,
            (State::Withdrawing(..), _) => self.on_withdrawn(now, out),
            _ => {}
        }
    }

    fn on_published(&mut self, said: &Publication, published: Option<Version>, out: &mut Outbox) {
        let Some(version) = published else {
            // An earlier try has got through after all, or the entry is no longer ours: the next
            // look tells.
            self.look = true;
            return;
        };
        self.published = version;
        (self.fitness.said_unwell, self.fitness.said_holding) = (Some(said.merit.unwell), said.merit.holding);
        self.note_preparation_said(said.merit.preparation);
        if said.ready.is_some() {
            self.notices.said_ready = said.ready;
            return;
        }
        let Some(number) = self.requested.proclaiming.take() else { return };
        // A newer value may have been asked for since: it is published next.
        self.requested.proclaim.take_if(|(waiting, _)| *waiting == number);
        self.event(Event::Proclaimed(number, Cas::Done), out);
    }

    fn on_evicted(&mut self, now: Timestamp, cas: Cas) {
        self.look = true;
        if let (Cas::Refused, State::Following(following)) = (cas, &mut self.state) {
            // It has shown life since: the next read says with which version. Until then it is not
            // silent.
            following.since = now;
        }
    }

    pub(super) fn on_fault(&mut self, now: Timestamp, op: Op, fault: Fault, out: &mut Outbox) {
        if !self.settings.policy.settles_ceding() && self.keep_place() {
            return;
        }
        if let (Op::Withdraw(..), Fault::OutcomeUnknown) = (&op, &fault) {
            self.on_ceding_unanswered();
        }
        match (op, fault) {
            // The participant tells everyone that the session is gone.
            (_, Fault::SessionGone) => {}
            (Op::Line(..) | Op::SetOffice(..), fault) if matches!(self.state, State::Unproven(_)) => {
                self.on_choice_failed();
                if fault != Fault::Permanent {
                    self.back_off(now);
                }
            }
            (Op::Enlist(..), Fault::AlreadyInLine(held)) => {
                self.state = State::Enlisting { stray: Some(held), sent: true };
            }
            (Op::Withdraw(..), Fault::Permanent) => {
                self.fail(now, out);
                self.finish(false, out);
            }
            (Op::Withdraw(..), _) if !self.settings.policy.repeats_withdrawals() => self.on_withdrawn(now, out),
            (Op::Enlist(..), Fault::Permanent) => {
                // Nothing was written; a place that is tried for again and again may be ours to
                // leave all the same.
                if let State::Enlisting { sent, .. } = &mut self.state {
                    *sent = false;
                }
                self.fail(now, out);
            }
            // The place is kept all the same, and nobody is told why.
            (Op::Publish(..), Fault::Permanent) if self.tenure.is_holding() => {
                (self.fitness.said_unwell, self.fitness.said_holding) = (Some(self.is_unwell()), true);
            }
            (op @ (Op::Line(..) | Op::SetOffice(..)), Fault::Permanent) => self.on_duty_failed(now, &op, out),
            (_, Fault::Permanent) => self.fail(now, out),
            // Our entry goes now.
            (Op::Line(..) | Op::SetOffice(..), _) if self.is_too_late_to_close(now) => {}
            (Op::SetOffice(..), _) if matches!(self.state, State::Out | State::Following(_)) => {
                self.close_backoff.failed(now, &mut self.rng, self.settings.longest_rest(), None);
            }
            (_, Fault::Unavailable | Fault::OutcomeUnknown | Fault::AlreadyInLine(_)) => {
                self.step_back();
                self.back_off(now);
            }
        }
    }

    /// Something stands between us and office. A fence that refuses may know a newer leader, and an
    /// opening with no answer may have been written: see whether we are still first before trying
    /// again.
    pub(super) fn step_back(&mut self) {
        if let State::Office(held) = &self.state
            && self.tenure.is_taking()
        {
            self.tenure.step_back();
            self.state = State::Unproven(held.clone());
            self.look = true;
        }
    }
}
