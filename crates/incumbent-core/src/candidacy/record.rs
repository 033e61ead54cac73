//! The record of terms: ours is opened before we are in office, and closed after its work has
//! stopped and before our entry goes.

use super::{Candidacy, State};
use crate::entry::{Held, Version};
use crate::machine::{LossReason, Op};
use crate::office::{Office, Order};
use crate::outbox::Outbox;
use crate::standing::Cas;
use crate::terms::{TermEnd, TermRecord};
use crate::time::Timestamp;

/// A term of ours that may be open in the office record.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Unclosed {
    /// As it is to be closed, once it has ended.
    term: TermRecord,
    /// While nobody has said that it was opened: the version of the record that the opening was
    /// compared with. In a record of any other version, an opening that is not there never comes.
    compared: Option<Version>,
}

impl Candidacy {
    /// Whether the election keeps a record of its terms: we ask for it, or somebody has before.
    fn is_recorded(&self) -> bool {
        self.who.recorded || !self.office.terms.is_empty()
    }

    /// What has to be written before we are in office: that our term is open. `None`: nothing.
    pub(super) fn opening(&mut self, held: &Held) -> Option<Op> {
        let is_open = self.office.terms.get(held.token).is_some_and(|term| term.is_open_of(held.incarnation));
        if is_open && let Some(unclosed) = &mut self.unclosed {
            unclosed.compared = None;
        }
        if is_open || !self.is_recorded() || !self.settings.policy.opens_before_office() {
            return None;
        }
        let last = self.office.terms.iter().rev().find(|term| term.token < held.token);
        let open = last.filter(|last| last.end == TermEnd::Open);
        let died = match (open, self.examined) {
            (Some(open), Some((token, died))) if token == open.token => died,
            (Some(open), _) => return Some(Op::Examine(Box::new(open.clone()))),
            (None, _) => false,
        };
        let died = open.filter(|_| died).map(|open| open.clone().ended(TermEnd::Died { at_ms: 0 }));
        let before = self.led_before.as_deref().filter(|before| self.office.terms.get(before.token).is_none());
        let terms = before.cloned().into_iter().chain(died).fold(self.office.terms.clone(), |all, term| all.with(term));
        let term = TermRecord::open(held.token, held.incarnation, self.who.name.clone(), (*self.who.origin).clone());
        self.unclosed = Some(Box::new(Unclosed { term: term.clone(), compared: Some(self.office.version) }));
        Some(self.set_office(self.office.clone().with_terms(terms.with(term))))
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
        let Some(token) = self.unclosed.as_ref().map(|unclosed| unclosed.term.token) else { return };
        let office = &self.office;
        let order = match why {
            LossReason::Transferred | LossReason::Resigned => office.handover_from(token).map(|asked| &asked.order),
            LossReason::Paused => office.paused.as_ref().map(|paused| &paused.order),
            LossReason::Ended => office.ended.as_ref().map(|ended| &ended.order),
            LossReason::Deposed => office.deposed.as_ref().map(|deposed| &deposed.order),
            _ => None,
        };
        let order = order.map_or_else(Order::default, Order::clone);
        if let Some(unclosed) = self.unclosed.as_mut().filter(|unclosed| unclosed.term.end == TermEnd::Open) {
            unclosed.term.end = TermEnd::Closed { why, order, at_ms: 0 };
        }
    }

    /// What has to be written of a term of ours whose work has stopped, or never began. `None`:
    /// nothing, or not yet.
    pub(super) fn closing(&mut self) -> Option<Op> {
        let policy = self.settings.policy;
        let stopped = match self.tenure.is_unstopped() {
            true => !policy.hard_stop_is_no_close(),
            false => self.tenure.is_settled() || !policy.closes_after_stop(),
        };
        if self.unclosed.is_none() || !stopped {
            return None;
        }
        if self.look {
            return Some(Op::Line(self.who.election.clone(), 1));
        }
        // One that was opened, and never taken.
        self.note_end(self.must_leave_line().unwrap_or(LossReason::LocalDeadline));
        let Unclosed { term, compared } = self.unclosed.as_deref()?;
        let closed = match self.office.terms.get(term.token) {
            Some(known) => {
                let is_open = known.end == TermEnd::Open && known.incarnation == term.incarnation;
                // When it was opened stands there alone.
                is_open.then(|| known.clone().ended(term.end.clone()))
            }
            // Written as closed, it keeps an opening that is still under way from coming.
            None => (*compared == Some(self.office.version)).then(|| term.clone()),
        };
        let Some(closed) = closed else {
            self.unclosed = None;
            return None;
        };
        let terms = self.office.terms.with(closed);
        Some(self.set_office(self.office.clone().with_terms(terms)))
    }

    /// Whether a term of ours has still to be closed: a candidate that leaves waits for the word
    /// that its work has stopped.
    pub(super) fn owes_closing(&self) -> bool {
        self.unclosed.is_some()
    }

    /// Nothing can be written of our last term.
    pub(super) fn drop_closing(&mut self) -> bool {
        self.unclosed.take().is_some()
    }

    /// The office record was written, or has moved on since it was read.
    pub(super) fn on_office_set(&mut self, now: Timestamp, to: &Office, cas: Cas, out: &mut Outbox) {
        if cas == Cas::Done {
            let ended = |unclosed: &mut Box<Unclosed>| {
                to.terms.get(unclosed.term.token).is_some_and(|term| term.end != TermEnd::Open)
            };
            self.unclosed.take_if(ended);
        }
        if self.tenure.is_taking() {
            match cas {
                Cas::Done => {
                    self.office.terms = to.terms.clone();
                    self.take_office(now, out);
                }
                Cas::Refused => self.step_back(),
            }
        }
        self.look = true;
    }
}
