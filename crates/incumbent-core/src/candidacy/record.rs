//! The record of terms: ours is opened before we are in office, and closed after its work has
//! stopped and before our entry goes.
//!
//! In elections where a candidate asked for it, every later leader goes on with it. A term is
//! opened after the fences are raised and before anybody is elected, by a write that is
//! compared with the record of the very look that said first; without a certain answer the
//! machine looks again, and finds its own open term or repeats it.
//!
//! It is closed once the work has confirmed its stop, before the withdrawal is sent: dying in
//! between leaves "closed" and an entry that expires, the other order would leave a clean
//! host's term open.
//!
//! But the next in line must not depend on a store that takes no more writes: after a renewal
//! interval the entry goes, and the term is closed late. A hard stop confirms nothing.
//!
//! One whose entry or session is gone closes its term late: it tries once before it stands
//! again, then with rests while it waits in line, and at last in the write that opens its next
//! term. One that leaves for good tries for a TTL, and logs what stays open. A term that was
//! opened and never taken is closed, too, and that write keeps an opening that is still under
//! way from coming.
//!
//! Opening has no such exception: a store that takes no writes has no leader in such an
//! election, since an office that nobody can see to be held is what the record is there to rule
//! out.
//!
//! A last term that is open is looked at before ours is opened (`Op::Examine`): if its work
//! ended with a process of this start of this host, in our namespaces (of processes and of
//! time), and that process is no more, the same write says that it died.
//!
//! Work of `incumbent run` ends with its guardian: there the process has to be gone, and the
//! guardian's last word to be there, a file that it writes when the kernel has told it that
//! nothing is left (`claims/last_word.rs`). That a search for the work's environment finds
//! nothing is no such word: a program can replace its environment, and another user's is
//! hidden. Another start of a host of that name proves nothing: names are not unique.
//!
//! A term is known by token and incarnation. Names, hosts, reasons and times are for people
//! (the core has no wall clock: the driver stamps what has no time yet). 32 terms and 12 KiB at
//! most, since every look reads them. They stand in the order in which they were written down:
//! in a record that was copied to another store, tokens say nothing about it.
//!
//! For observers and operators the first in line of such an election leads while its own term
//! is open (`Office::pending`); one that finds its term missing, because the record was begun
//! after its look, adds it at its next periodic look.

use super::fencing::FencingStep;
use super::{Candidacy, State};
use crate::entry::{Held, Version};
use crate::machine::{Event, LossReason, Op};
use crate::office::{Office, Order};
use crate::outbox::Outbox;
use crate::standing::Cas;
use crate::terms::{MAX_TERMS, TermEnd, TermRecord};
use crate::time::Timestamp;

/// A term of ours that may be open in the office record.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Unclosed {
    /// As it is to be closed, once it has ended.
    term: TermRecord,
    /// While nobody has said that it was opened: the version of the record that the opening was
    /// compared with. In a record of any other version, an opening that is not there never comes;
    /// but a record that says nothing has the same version again and again.
    compared: Option<Version>,
}

/// What comes before the office.
pub(super) enum Opening {
    /// Nothing any more: our term is open, or there is no record.
    Done,
    Call(Op),
    /// The work of the last leader has to be stopped first, and it is too early for that.
    Wait,
}

impl Candidacy {
    /// Whether the election keeps a record of its terms: we ask for it, or somebody has before.
    pub(super) fn is_recorded(&self) -> bool {
        self.who.recorded || !self.office.terms.is_empty()
    }

    /// What has to be written before we are in office: that our term is open, and that those of
    /// ours are closed which could not be closed in their time.
    pub(super) fn opening(&mut self, now: Timestamp, held: &Held) -> Opening {
        let is_open = self.office.terms.get(held.token).is_some_and(|term| term.is_open_of(held.incarnation));
        if is_open || !self.is_recorded() || !self.settings.policy.opens_before_office() {
            return Opening::Done;
        }
        let before = self.led_before.as_deref().filter(|before| self.office.terms.get(before.token).is_none());
        let last = before.or_else(|| self.office.terms.before(held.token, held.incarnation));
        let mut unclosed = self.unclosed.iter().map(|unclosed| &unclosed.term);
        let mut is_ours =
            |term: &TermRecord| unclosed.any(|ours| term.token == ours.token && term.incarnation == ours.incarnation);
        let at_large = last.filter(|last| last.is_at_large() && !is_ours(last));
        let has_died = match (at_large, self.examined) {
            (Some(last), Some((token, has_died))) if token == last.token => has_died,
            (Some(last), _) if last.end == TermEnd::Open => {
                return Opening::Call(Op::Examine(Box::new(last.clone())));
            }
            _ => false,
        };
        let mut news: Vec<TermRecord> = before.cloned().into_iter().collect();
        match at_large.cloned() {
            Some(last) if has_died => news.push(last.ended(TermEnd::Died { at_ms: 0 })),
            Some(last) => match self.fence(now, held, last) {
                FencingStep::Settled(told) => news.extend(told),
                FencingStep::Call(op) => return Opening::Call(op),
                FencingStep::Wait => return Opening::Wait,
            },
            None => {}
        }
        self.unclosed.retain(|unclosed| unclosed.term.token != held.token);
        self.note_end(LossReason::LocalDeadline);
        let terms = news.into_iter().fold(self.office.terms.clone(), |all, term| all.with(term));
        let terms = self.closed().fold(terms, |all, term| all.with_late(term));
        let term = TermRecord::open(held.token, held.incarnation, self.who.name.clone(), (*self.who.origin).clone());
        self.unclosed.push(Unclosed { term: term.clone(), compared: Some(self.office.version) });
        // A record keeps no more than that, either.
        self.unclosed.drain(..self.unclosed.len().saturating_sub(MAX_TERMS));
        Opening::Call(self.set_office(self.office.clone().with_terms(terms.with(term))))
    }

    /// The last term on record before ours was looked at.
    pub(super) fn on_examined(&mut self, now: Timestamp, term: &TermRecord, died: bool, out: &mut Outbox) {
        self.examined = Some((term.token, died));
        self.take_office(now, out);
    }

    /// We are first: notes whom we followed, if nobody has written down that it led.
    pub(super) fn note_predecessor(&mut self) {
        if let State::Following(following) = &self.state
            && self.is_recorded()
            && (following.ahead.is_foreign() || self.office.terms.is_empty())
        {
            let ahead = &following.ahead;
            let name = ahead.name.clone().unwrap_or_default();
            self.led_before = Some(Box::new(TermRecord::unknown(ahead.token, ahead.incarnation, name)));
        }
    }

    /// Our term has ended, or will not begin: notes why, and by whose order.
    pub(super) fn note_end(&mut self, why: LossReason) {
        let benched = self.bench_order().map(|benched| benched.order.clone());
        let office = &self.office;
        for Unclosed { term, .. } in self.unclosed.iter_mut().filter(|unclosed| unclosed.term.end == TermEnd::Open) {
            let order = match why {
                LossReason::Transferred | LossReason::Resigned => {
                    office.handover_from(term.token).map(|asked| &asked.order)
                }
                LossReason::Paused => office.paused.as_ref().map(|paused| &paused.order),
                LossReason::Benched => benched.as_ref(),
                LossReason::Ended => office.ended.as_ref().map(|ended| &ended.order),
                LossReason::Deposed => office.deposed.as_ref().map(|deposed| &deposed.order),
                _ => None,
            };
            let order = order.map_or_else(Order::default, Order::clone);
            term.end = TermEnd::Closed { why, order, at_ms: 0 };
        }
    }

    /// The record was read. What it says has ended is done with, and so is what was never opened
    /// and can no longer be.
    pub(super) fn settle_unclosed(&mut self) {
        let office = &self.office;
        self.unclosed.retain_mut(|Unclosed { term, compared }| match office.terms.get(term.token) {
            Some(known) => {
                *compared = None;
                known.end == TermEnd::Open && known.incarnation == term.incarnation
            }
            None => *compared == Some(office.version) || *compared == Some(Version::NONE),
        });
    }

    /// What the record should say of our terms that are over.
    fn closed(&self) -> impl Iterator<Item = TermRecord> {
        self.unclosed.iter().map(|Unclosed { term, .. }| match self.office.terms.get(term.token) {
            // When it was opened stands there alone.
            Some(known) => known.clone().ended(term.end.clone()),
            // Written as closed, it keeps an opening that is still under way from coming.
            None => term.clone(),
        })
    }

    /// What has to be written of terms of ours whose work has stopped, or never began. `None`:
    /// nothing, or not yet.
    pub(super) fn closing(&mut self) -> Option<Op> {
        let policy = self.settings.policy;
        let stopped = match self.tenure.is_unstopped() {
            true => !policy.hard_stop_is_no_close(),
            false => self.tenure.is_settled() || !policy.closes_after_stop(),
        };
        if self.unclosed.is_empty() || !stopped {
            return None;
        }
        if self.look {
            return Some(Op::Line(self.who.election.clone(), 1));
        }
        // Those that were opened, and never taken.
        self.note_end(self.must_leave_line().unwrap_or(LossReason::LocalDeadline));
        self.settle_unclosed();
        if self.unclosed.is_empty() {
            return None;
        }
        let terms = self.closed().fold(self.office.terms.clone(), |all, term| all.with_late(term));
        Some(self.set_office(self.office.clone().with_terms(terms)))
    }

    /// The same, while our entry waits for it. After a renewal interval it waits no longer: the
    /// next in line must not depend on a store that takes no more writes, and the term is closed
    /// late.
    pub(super) fn closing_before_withdrawal(&mut self, now: Timestamp) -> Option<Op> {
        if !self.settings.policy.closes_before_withdrawing() || self.is_too_late_to_close(now) {
            return None;
        }
        let closing = self.closing()?;
        self.close_by.get_or_insert(now + self.settings.renew_every);
        Some(closing)
    }

    /// Whether nothing waits any longer for our term to be closed.
    pub(super) fn is_too_late_to_close(&self, now: Timestamp) -> bool {
        self.close_by.is_some_and(|by| now >= by)
    }

    /// Whether one that leaves has said all that there is to say of its terms. It waits for the
    /// word that their work has stopped, and then for the store, but not for ever.
    pub(super) fn is_done_with_terms(&mut self, now: Timestamp, out: &mut Outbox) -> bool {
        if !self.unclosed.is_empty() && self.tenure.is_settled() {
            self.close_by.get_or_insert(now + self.settings.ttl);
            if self.is_too_late_to_close(now) {
                self.leave_open(out);
            }
        }
        self.unclosed.is_empty()
    }

    /// Nothing can be written of our terms: the log is told. Says whether there were any.
    pub(super) fn leave_open(&mut self, out: &mut Outbox) -> bool {
        let left = std::mem::take(&mut self.unclosed);
        left.iter().for_each(|unclosed| self.event(Event::LeftOpen(unclosed.term.token), out));
        !left.is_empty()
    }

    /// The office record was written, or has moved on since it was read.
    pub(super) fn on_office_set(&mut self, now: Timestamp, to: &Office, cas: Cas, out: &mut Outbox) {
        self.close_backoff.succeeded();
        self.note_unwritten_choice(cas);
        if cas == Cas::Done {
            let has_ended = |token| to.terms.get(token).is_some_and(|term| term.end != TermEnd::Open);
            self.unclosed.retain(|unclosed| !has_ended(unclosed.term.token));
            for unclosed in self.unclosed.iter_mut().filter(|unclosed| to.terms.get(unclosed.term.token).is_some()) {
                unclosed.compared = None;
            }
            self.office.terms = to.terms.clone();
        }
        if self.tenure.is_taking() {
            match cas {
                Cas::Done => self.take_office(now, out),
                Cas::Refused => self.step_back(),
            }
        }
        self.look = true;
    }
}
