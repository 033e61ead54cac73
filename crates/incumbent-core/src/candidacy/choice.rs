//! Who takes a vacant office: the first in line, or one behind it that is better.
//!
//! The first in line that is not in office yet, and is unwell or has a priority, reads the
//! first 64 in line before it takes office (before its fences are raised). Fit comes before
//! unwell, then the higher priority, then the line. If one behind it is better, it writes the
//! notice with which any office is handed over, waits for 2 s (a renewal interval, if that is
//! shorter), and withdraws guarded by the heir's entry.
//!
//! Whatever comes between, it takes office itself, so that somebody leads, however bad all of
//! them are, and refuses its own notice then: an heir that is gone, not ready in time or no
//! better any more, a foreign one between, a line that cannot be read, a record that cannot be
//! written.
//!
//! A guarded withdrawal that is refused leaves it first: the heir's entry is gone for good. One
//! without an answer is repeated, and no office follows under that token, whatever is said
//! later: the heir may have led by then, and a store that loses its last moment would put both
//! back where they were.
//!
//! Nobody gives up the first place *because another is better* without a named, present, ready
//! and better heir (PLACE, in the simulation): everybody who is worse would go to the end for
//! ever. It asks once, and one that comes first while the record says that a place before it
//! was handed on asks nobody: a vacancy costs one handover, and those that were asked in vain
//! and stand again keep nobody else from office.
//!
//! In an election that is frozen or held back it does not ask. Nobody is asked while somebody
//! leads: there is no preemption. Nor where terms are on record: the one who saw the last
//! leader go sees to what it left behind.
//!
//! One that could not take office for a TTL, or was ordered to resign, says so in its next
//! entry (`gave_way`) and counts as the worst until it has led: else it would be asked again
//! for ever.
//!
//! *Why only those that are unwell or have a priority look:* nobody else pays for a read that
//! is nearly always in vain; so all candidates of an election need a priority, or those without
//! take what comes.

use super::fitness::{HANDED_OVER_WITHIN, LOOKED_AT};
use super::{Candidacy, State};
use crate::entry::{Entry, EntryId, Held, Nonce};
use crate::machine::Op;
use crate::office::{Handover, Heir, Order, Refusal};
use crate::outbox::Outbox;
use crate::standing::{Cas, Line};
use crate::time::Timestamp;

/// Why the first in line hands its place on, for people who read the record.
const REASON: &str = "first in line at a vacancy, and another is better";

/// How far the first in line has come with it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) enum Choice {
    /// Nobody was looked at.
    #[default]
    Open,
    /// One that is better is asked by this notice, until then.
    Asked {
        nonce: Nonce,
        until: Timestamp,
        /// The record had moved on: the notice was not written.
        refused: bool,
    },
    /// It was ready: our place goes to it.
    Ceding(Nonce),
    /// Our place may have gone to it, and that may have been forgotten since, by a store that loses
    /// its last moment: whatever we are told, we have no place any more.
    Ceded,
    /// We take office ourselves. A notice of ours may still be in the record: in office we refuse
    /// it, for this.
    Made(Option<(Nonce, Refusal)>),
}

impl Choice {
    /// When the one that was asked is waited for no longer.
    pub(super) fn ends_at(self) -> Option<Timestamp> {
        match self {
            Choice::Asked { until, .. } => Some(until),
            _ => None,
        }
    }

    /// Whether this notice is ours.
    pub(super) fn is_by(self, handover: &Handover) -> bool {
        match self {
            Choice::Asked { nonce, .. } | Choice::Ceding(nonce) | Choice::Made(Some((nonce, _))) => {
                nonce == handover.nonce
            }
            Choice::Open | Choice::Ceded | Choice::Made(None) => false,
        }
    }

    /// As a leader: why our own notice came to nothing.
    pub(super) fn refusal_of(self, handover: &Handover) -> Option<Refusal> {
        match self {
            Choice::Made(Some((nonce, why))) if nonce == handover.nonce => Some(why),
            _ => None,
        }
    }
}

impl Candidacy {
    /// Brings the choice up to date: one that was asked is waited for no longer once its time is
    /// over, or something keeps the office in place.
    pub(super) fn update_choice(&mut self, now: Timestamp, held: &Held) {
        let asked = self.office.handover_from(held.token).map(|handover| handover.nonce);
        self.choice = match self.choice {
            Choice::Asked { nonce, until, .. } if asked == Some(nonce) && now < until && !self.is_kept_in_place() => {
                return;
            }
            Choice::Asked { refused: true, .. } if asked.is_none() => Choice::Open,
            Choice::Asked { nonce, .. } => Choice::Made(Some((nonce, Refusal::TimedOut))),
            Choice::Made(Some(_)) if !self.settings.policy.hands_on_once() => Choice::Open,
            other => other,
        };
    }

    /// Whether the first in line chooses, or waits for the one that it has asked, before it takes
    /// office: as of the last update.
    pub(super) fn is_choosing(&self, held: &Held) -> bool {
        let has_reason = self.requested.unwell || self.who.priority.is_some();
        let is_asked = self.office.handover_from(held.token).is_some() || self.was_handed_on(held);
        let may_ask = !is_asked || !self.settings.policy.hands_on_once();
        // Where terms are on record, the one who saw the last leader go sees to what it left.
        let is_free = !self.is_recorded() && !self.is_kept_in_place();
        match self.choice {
            Choice::Asked { .. } => true,
            Choice::Open => has_reason && may_ask && is_free,
            Choice::Ceding(_) | Choice::Ceded | Choice::Made(_) => false,
        }
    }

    /// Whether an operator has said that nothing moves the office, or is asked to say that it may.
    fn is_kept_in_place(&self) -> bool {
        self.is_frozen() || self.is_held_back()
    }

    /// Whether one before us has handed its place on, to us or to another, and nobody has led since
    /// for long enough to take that out of the record. One that was asked in vain may stand again,
    /// as another candidate that looks just as good.
    fn was_handed_on(&self, held: &Held) -> bool {
        let handover = self.office.handover.as_ref().filter(|handover| handover.refused.is_none());
        handover.is_some_and(|handover| handover.from < held.token)
    }

    /// We are on the way into office: nobody else is asked any more.
    pub(super) fn settle_choice(&mut self) {
        if self.choice == Choice::Open {
            self.choice = Choice::Made(None);
        }
    }

    /// What the first in line does about it next.
    pub(super) fn choice_duty(&mut self, now: Timestamp, held: &Held) -> Option<Op> {
        let waited = matches!(self.choice, Choice::Asked { .. });
        self.update_choice(now, held);
        if self.is_choosing(held) {
            let unread = self.choice == Choice::Open || !self.notices.line_read;
            return unread.then(|| Op::Line(self.who.election.clone(), LOOKED_AT));
        }
        // In vain. Whether we are still first is looked at before we take office.
        waited.then(|| Op::Standing(held.clone(), None))
    }

    /// The heir whose readiness is waited for.
    pub(super) fn heir_waited_for(&self, held: &Held) -> Option<EntryId> {
        let is_waited_for = |handover: &&Handover| self.choice.ends_at().is_some() && self.choice.is_by(handover);
        let handover = self.office.handover_from(held.token).filter(is_waited_for)?;
        handover.heir.as_ref().map(|heir| heir.entry.clone())
    }

    /// The line was read by the first in it, which is not in office.
    pub(super) fn on_line_to_choose_from(&mut self, now: Timestamp, held: Held, line: &Line, out: &mut Outbox) {
        let is_news = line.office.version != self.office.version;
        let made = match (self.choice, line.behind(&held)) {
            (Choice::Open, Some(behind)) => match self.choose(behind) {
                Some(heir) => return self.ask(now, held, heir, out),
                None => None,
            },
            (Choice::Asked { nonce, .. }, Some(behind)) if !is_news => match self.look_for_heir(&held, nonce, behind) {
                Ok(Some(heir)) => {
                    self.withdraw(held, Some(heir), out);
                    self.choice = Choice::Ceding(nonce);
                    return;
                }
                // A hint says when it is.
                Ok(None) => return,
                Err(why) => Some((nonce, why)),
            },
            // The record has changed since, or we are not first: verify.
            (Choice::Asked { .. }, _) => {
                self.look = true;
                return;
            }
            (Choice::Open, None) => return self.on_choice_failed(),
            (Choice::Ceding(_) | Choice::Ceded | Choice::Made(_), _) => return,
        };
        self.choice = Choice::Made(made);
        if is_news {
            // Something may stand against it.
            self.look = true;
        } else {
            self.on_first_in_line(now, held, out);
        }
    }

    /// The one that was asked, once it is next and ready; or what keeps it from our place for good.
    fn look_for_heir(&self, held: &Held, nonce: Nonce, behind: &[Entry]) -> Result<Option<EntryId>, Refusal> {
        let handover = self.office.handover_from(held.token).filter(|handover| handover.nonce == nonce);
        let Some(heir) = handover.and_then(|handover| handover.heir.as_ref()) else { return Err(Refusal::TimedOut) };
        let place = behind.iter().position(|entry| Heir::of(entry).as_ref() == Some(heir));
        let place = place.ok_or(Refusal::HeirGone)?;
        if !self.is_better(&behind[place]) {
            return Err(Refusal::HeirUnfit);
        }
        if behind[..place].iter().any(Entry::is_foreign) {
            return Err(Refusal::ForeignBetween);
        }
        let is_ready = place == 0 && behind[0].ready == Some(nonce);
        Ok(is_ready.then(|| heir.entry.clone()))
    }

    /// The best of those behind us that are better than we are. One of another library does not
    /// step aside, and nobody gets past it.
    fn choose(&self, behind: &[Entry]) -> Option<Heir> {
        let ours = behind.iter().take_while(|entry| !entry.is_foreign());
        self.pick(ours.filter(|entry| self.is_better(entry))).and_then(Heir::of)
    }

    fn is_better(&self, entry: &Entry) -> bool {
        entry.merit.is_better_than(self.merit().gave_way(false)) || !self.settings.policy.picks_fit_heirs()
    }

    fn ask(&mut self, now: Timestamp, held: Held, heir: Heir, out: &mut Outbox) {
        if !self.settings.policy.keeps_its_place() {
            return self.withdraw(held, None, out);
        }
        let nonce = self.rng.nonce();
        // Nobody leads meanwhile: no longer than another try at something that failed.
        let within = HANDED_OVER_WITHIN.min(self.settings.renew_every);
        self.choice = Choice::Asked { nonce, until: now + within, refused: false };
        self.notices.line_read = false;
        let order = Order::new(self.who.name.clone(), 0, REASON);
        let handover = Handover::new(held.token, heir, nonce, within).ordered(order).at_vacancy();
        let op = self.set_office(self.office.clone().with_handover(handover));
        self.call(now, op, out);
    }

    /// The record was not written, for certain.
    pub(super) fn note_unwritten_choice(&mut self, cas: Cas) {
        if let (Choice::Asked { refused, .. }, Cas::Refused) = (&mut self.choice, cas) {
            *refused = true;
        }
    }

    /// The line could not be read, or the record not be written: nobody waits for that.
    pub(super) fn on_choice_failed(&mut self) {
        self.choice = match self.choice {
            Choice::Asked { nonce, .. } => Choice::Made(Some((nonce, Refusal::Unable))),
            Choice::Open => Choice::Made(None),
            other => other,
        };
        self.look = true;
    }

    /// What hands our place on has no answer.
    pub(super) fn on_ceding_unanswered(&mut self) {
        if let Choice::Ceding(_) = self.choice
            && self.settings.policy.cedes_for_good()
        {
            self.choice = Choice::Ceded;
        }
    }

    /// Our entry has stayed, since the heir's is gone for good, and nothing that we sent is without
    /// an answer. Says whether it was our place that we gave up, and not an office.
    pub(super) fn keep_place(&mut self) -> bool {
        let (State::Withdrawing(held, Some(_)), Choice::Ceding(nonce)) = (&self.state, self.choice) else {
            return false;
        };
        self.state = State::Unproven(held.clone());
        self.choice = Choice::Made(Some((nonce, Refusal::HeirGone)));
        self.close_by = None;
        self.look = true;
        true
    }
}
