//! A leader whose program is about to leave: it hands its office to the best in line first, while
//! the work goes on.
//!
//! The best by the rule that holds everywhere (`Merit`: fit before unwell, then the priority, then
//! the line), among the first 64 and up to the first of another library. It is asked with the
//! notice with which any office is handed over. One that is gone, not ready in time, or unwell by
//! then while a fit one is in line, is passed over, and the next best is asked, each once: one that
//! says that it is getting ready has all of the time, another half of it. When
//! nobody is left to ask, the program is told so (`Event::NoHeir`): it leaves as it would have.
//!
//! The program counts the time that all of that may take, and calls it off. Until the heir is next
//! and ready nothing has happened to the office, and from then on it is a handover like any other.
//!
//! A handover that is under way already is as good: then nobody else is asked. One that is frozen,
//! or cannot read its line or write the record, has nobody to ask.

use std::time::Duration;

use super::Candidacy;
use super::fitness::{HANDED_OVER_WITHIN, LOOKED_AT};
use crate::entry::{Entry, Held, Nonce, Token};
use crate::machine::{Event, Op};
use crate::office::{Handover, Heir, Office, Refusal};
use crate::outbox::Outbox;
use crate::standing::Line;
use crate::time::Timestamp;

/// How many notices are known to be ours: more than are under way at a time.
const MOST_ASKED: usize = 16;

/// How far a leader that is about to leave has come with handing over. It is about one term.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Departure {
    /// An heir is looked for, and that may take so long.
    within: Option<Duration>,
    /// Our own notices that were written last, or may have been: one whose answer was lost may come
    /// to be read after another was tried.
    asked: Vec<Nonce>,
    /// Until when the one that was asked last may be getting ready.
    until: Timestamp,
    /// Whom our notices have named.
    tried: Vec<Token>,
    /// Why the last one that was asked did not take the office.
    why: Option<Refusal>,
}

impl Departure {
    /// Whether this notice is ours.
    pub(super) fn is_by(&self, handover: &Handover) -> bool {
        self.asked.contains(&handover.nonce)
    }

    fn note_asked(&mut self, nonce: Nonce) {
        if self.asked.len() == MOST_ASKED {
            self.asked.remove(0);
        }
        self.asked.push(nonce);
    }
}

impl Candidacy {
    /// The program is about to leave, or has thought better of it.
    pub(super) fn on_hand_over(&mut self, within: Option<Duration>, out: &mut Outbox) {
        if within.is_some() && !self.tenure.serves() {
            return self.event(Event::NoHeir(Refusal::Leaving), out);
        }
        self.departure = Departure { within, asked: std::mem::take(&mut self.departure.asked), ..Departure::default() };
    }

    /// As the leader: looks for somebody to ask.
    pub(super) fn departure_duty(&mut self, out: &mut Outbox) -> Option<Op> {
        self.departure.within?;
        if self.is_frozen() {
            self.end_departure(Refusal::Frozen, out);
            return None;
        }
        Some(Op::Line(self.who.election.clone(), LOOKED_AT))
    }

    /// Whether the line is read to find somebody to ask.
    pub(super) fn is_departing(&self) -> bool {
        self.departure.within.is_some()
    }

    /// The line was read: asks the best that was not asked before.
    pub(super) fn on_line_to_depart(&mut self, held: &Held, line: &Line, out: &mut Outbox) -> Option<Op> {
        let within = self.departure.within?;
        let Some(behind) = line.behind(held) else {
            // Not first, or not there: verify.
            self.look = true;
            return None;
        };
        let best = match self.settings.policy.departs_to_the_best() {
            true => self.pick(self.untried(behind)),
            false => self.untried(behind).next(),
        };
        let Some(heir) = best.and_then(Heir::of) else {
            // Nobody may come any more who would take it out.
            let mut office = self.office.clone();
            office.handover.take_if(|handover| handover.from < held.token || handover.refused.is_some());
            if office != self.office {
                return Some(self.set_office(office));
            }
            let why = self.departure.why.unwrap_or(Refusal::NoHeir);
            self.end_departure(why, out);
            return None;
        };
        let nonce = self.rng.nonce();
        self.departure.note_asked(nonce);
        let handover = Handover::new(held.token, heir, nonce, within);
        Some(self.set_office(self.office.clone().with_handover(handover)))
    }

    /// One of another library does not step aside, and nobody gets past it.
    fn untried<'a>(&self, behind: &'a [Entry]) -> impl Iterator<Item = &'a Entry> {
        let ours = behind.iter().take_while(|entry| !entry.is_foreign());
        ours.filter(|entry| !self.departure.tried.contains(&entry.token))
    }

    /// Until when the one that this notice names has to be next and ready: in our own, the next
    /// best is to have its turn, too.
    pub(super) fn patience_for(&mut self, now: Timestamp, handover: &Handover) -> Timestamp {
        let until = now + handover.within;
        if !self.departure.is_by(handover) {
            return until;
        }
        self.departure.tried.extend(handover.heir.as_ref().map(|heir| heir.token));
        self.departure.until = until;
        until.min(now + (handover.within / 2).max(HANDED_OVER_WITHIN))
    }

    /// Until when one that this notice names may be getting ready, if it is our own.
    pub(super) fn departure_until(&self, handover: &Handover) -> Option<Timestamp> {
        self.departure.is_by(handover).then_some(self.departure.until)
    }

    /// Whether our notice names one that is unwell by now, and another is better.
    pub(super) fn knows_a_fitter_heir(&self, handover: &Handover, heir: &Entry, behind: &[Entry]) -> bool {
        let has_to = self.departure.is_by(handover) && self.settings.policy.departs_to_the_best();
        has_to && heir.merit.unwell && self.untried(behind).any(|entry| !entry.merit.unwell)
    }

    /// Our own notice, if it is to be taken out of the record again.
    pub(super) fn departure_called_off(&self, held: &Held) -> Option<Op> {
        let ours = self.office.handover.as_ref().filter(|handover| self.departure.is_by(handover));
        let ours = ours.filter(|handover| handover.from == held.token && self.notices.unable != Some(handover.nonce));
        (ours.is_some() && !self.is_departing()).then(|| self.set_office(self.office.clone().with_handover(None)))
    }

    /// The office record was read: the one that was asked will not take the office.
    pub(super) fn note_departure_refused(&mut self, before: &Office) {
        let Some(handover) = self.office.handover.as_ref().filter(|handover| self.departure.is_by(handover)) else {
            return;
        };
        let was_refused = before.handover.as_ref().is_some_and(|known| known.refused.is_some());
        if !was_refused {
            self.departure.why = handover.refused.or(self.departure.why);
        }
    }

    /// Nobody is asked any more.
    pub(super) fn end_departure(&mut self, why: Refusal, out: &mut Outbox) {
        if self.departure.within.take().is_some() {
            self.event(Event::NoHeir(why), out);
        }
    }

    /// The term is over, or its work is to stop.
    pub(super) fn forget_departure(&mut self) {
        self.departure = Departure::default();
    }
}
