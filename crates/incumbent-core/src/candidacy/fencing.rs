//! Stopping the work of the last leader from outside, before its successor is in office.
//!
//! It is done where the candidate is told to and the last term is open, or unknown and of
//! another library, and has not certainly died. It comes after the fences and before the
//! opening, in the first place of the line.
//!
//! The candidate keeps that place for as long as it proves that it is first: nobody else is to
//! lead meanwhile. Only where the fences cannot be raised, or the record not be written, for a
//! TTL, does it make room as ever.
//!
//! It waits for the term to be closed late (that ends the wait); claims the attempt in that
//! term's record, by compare-and-set; fires it once (`Op::Shoot`, which is not cut off at the
//! renewal interval as other calls are, while the session is renewed); then looks again, and
//! opens its own term in the step that says what came of the shot.
//!
//! Whether to try again, and after how long, is the driver's to say; what failed is on record
//! before that. A candidate that is removed, or told to leave, gives the shot up (a pause it
//! meets at the look after it); its claim stays, and the next one counts on from it: a shot may
//! have been fired.
//!
//! Remembered are the attempt that this candidacy fired itself, what came of it and until when
//! to wait, so that no attempt is fired twice; all else is read from the record. Only the last
//! term is shot at, never one of our own whose work is known to have stopped.
//!
//! F1 A shot is claimed in the record before. F2 An attempt is fired once. F3 No shot at a term
//! that had ended when it was claimed.

use std::sync::Arc;
use std::time::Duration;

use super::{Candidacy, State};
use crate::entry::{Held, Token};
use crate::machine::Op;
use crate::office::Order;
use crate::terms::{Shot, ShotResult, TermRecord};
use crate::time::Timestamp;

/// What this candidacy knows of a term whose work it has to stop.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Fencing {
    term: Token,
    /// Not to be claimed before.
    until: Timestamp,
    /// The attempt that was fired last.
    fired: Option<u32>,
    outcome: Option<Outcome>,
}

impl Fencing {
    fn new(last: &TermRecord, now: Timestamp, delay: Duration, ttl: Duration) -> Fencing {
        // Those before us have tried, and may have been ended for it: it is not tried more often
        // for that.
        let tried = last.fence.as_ref().map_or(0, |shot| shot.attempt.saturating_sub(1).min(20));
        Fencing { term: last.token, until: now + delay.max(ttl * tried), fired: None, outcome: None }
    }
}

/// What came of a shot.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Outcome {
    result: ShotResult,
    /// After how long to try again. `None`: not again.
    again: Option<Duration>,
    why: Arc<str>,
}

impl Outcome {
    /// One that ended without an answer may have stopped it, or not.
    fn unanswered() -> Outcome {
        let why = "it ended without an answer".into();
        Outcome { result: ShotResult::TimedOut, again: Some(Duration::ZERO), why }
    }

    /// The claim of the shot, with what came of it.
    fn of(self, claim: Shot) -> Shot {
        let order = Order { reason: self.why, ..claim.order.clone() };
        claim.ended(self.result).ordered(order)
    }
}

/// What stands between us and the opening of our term.
pub(super) enum FencingStep {
    /// Nothing any more. With what the record is to say of the last term, if it does not yet.
    Settled(Option<TermRecord>),
    Call(Op),
    Wait,
}

impl Candidacy {
    /// What to do about the last term, which is not known to have ended.
    pub(super) fn fence(&mut self, now: Timestamp, held: &Held, last: TermRecord) -> FencingStep {
        let Some(delay) = self.who.fence_delay.filter(|_| self.tenure.is_taking()) else {
            return FencingStep::Settled(None);
        };
        if !last.has_target() {
            return FencingStep::Settled(None);
        }
        let policy = self.settings.policy;
        let fencing = match &mut self.fencing {
            Some(fencing) if fencing.term == last.token => fencing,
            other => {
                let delay = if policy.waits_for_late_word() { delay } else { Duration::ZERO };
                other.insert(Box::new(Fencing::new(&last, now, delay, self.settings.ttl)))
            }
        };
        if !policy.claims_before_shot() {
            let is_first = fencing.fired.replace(1).is_none();
            let shot = Op::Shoot(Box::new(last), 1);
            return if is_first { FencingStep::Call(shot) } else { FencingStep::Settled(None) };
        }
        let known = fencing.fired.filter(|_| policy.shoots_once() || fencing.outcome.is_some());
        match last.fence.as_ref().filter(|shot| shot.by == held.token) {
            Some(ours) if known == Some(ours.attempt) => {
                let outcome = fencing.outcome.clone().unwrap_or_else(Outcome::unanswered);
                let is_settled = outcome.again.is_none();
                let told = last.clone().with_fence(outcome.of(ours.clone()));
                if is_settled {
                    return FencingStep::Settled(Some(told));
                }
                if ours.result == ShotResult::Claimed {
                    return FencingStep::Call(self.put_on_record(told));
                }
            }
            Some(ours) if ours.result == ShotResult::Claimed => {
                if !self.tenure.has_time(now) {
                    return FencingStep::Wait;
                }
                fencing.fired = Some(ours.attempt);
                fencing.outcome = None;
                // For one that ends without an answer.
                fencing.until = now + self.settings.ttl;
                let attempt = ours.attempt;
                return FencingStep::Call(Op::Shoot(Box::new(last), attempt));
            }
            _ => {}
        }
        if now < fencing.until {
            self.fence_at = Some(fencing.until);
            return FencingStep::Wait;
        }
        // One that cannot be counted on from was written by nobody of ours.
        let Some(attempt) = last.fence.as_ref().map_or(0, |shot| shot.attempt).checked_add(1) else {
            self.fence_at = Some(now + self.settings.ttl);
            return FencingStep::Wait;
        };
        FencingStep::Call(self.put_on_record(last.with_fence(Shot::claimed(held.token, attempt))))
    }

    fn put_on_record(&self, term: TermRecord) -> Op {
        self.set_office(self.office.clone().with_terms(self.office.terms.with(term)))
    }

    /// Waits in the first place of the line: the record is watched, and the session renewed.
    pub(super) fn wait_to_fence(&mut self, held: Held) {
        self.tenure.step_back();
        // It may die, or be stopped by hand, while we wait.
        self.examined = self.examined.filter(|(_, died)| *died);
        // Nobody else is to lead meanwhile: that is the point.
        self.take_office_by = None;
        self.state = State::Unproven(held);
    }

    /// The shot has ended. Whether we are still first, and what the record says, the next look
    /// tells.
    pub(super) fn on_shot(&mut self, now: Timestamp, result: ShotResult, again: Option<Duration>, why: Arc<str>) {
        if let Some(fencing) = &mut self.fencing {
            fencing.outcome = Some(Outcome { result, again, why });
            fencing.until = now + again.unwrap_or_default();
        }
        self.step_back();
    }
}
