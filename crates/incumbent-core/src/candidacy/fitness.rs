//! Fitness: what our entry says of it, and what a leader does that is unwell.
//!
//! Unwell means that somebody else would be better. An entry says whether its candidate is
//! unwell, from its first moment on; what was published with no answer is published again. A
//! leader that is unwell reads the first 64 in line and writes the notice with which any office
//! is handed over (`Handover::for_health`) to the best that is fit and not behind a foreign
//! one: from there on it is a handover, and the term ends as `Unwell`.
//!
//! *Why it waits before it looks* (`Candidate::settles`): what makes a leader unwell may be shared,
//! and each candidate notices by a timer of its own. One that has not noticed yet would be taken
//! for fit, and an office would change hands for nothing. For the same reason it looks for nobody
//! while what is found of it is better again, and only has to last: others that share the cause may
//! count as fit before it does. Where that went on for long enough, and ends, it waits anew. A
//! bench waits for neither, nor does the choice at a vacancy.
//!
//! It gives the handover up when it is well again, or its heir is unwell by then. Refused,
//! timed out or nobody fit: it stays, says why once, and looks again after a TTL (15 s at
//! most), at those first whom it has not tried (a dead entry that nobody has removed yet says
//! that it is fit).
//!
//! An heir has 2 s, and after two attempts in vain four periodic looks, which is what it takes
//! where a store has no watches. Attempts become rarer: where rivals forget the dead, those
//! that step aside each time would never be behind a dead one for long enough to see that it is
//! dead.
//!
//! An operator's order replaces such a notice.
//!
//! What changes hands again and again helps nobody. Every candidate counts the notices for
//! health that it has read and that were not refused, on its own clock. An unwell leader that
//! has read of three within ten minutes writes `held_back` into the record instead of a fourth;
//! one that has read it moves no office for health, until an operator takes it out, which also
//! empties the counts. Counting can only keep an office where it is: it never decides who
//! leads, and an unfit leader leaves all the same.

use std::mem;
use std::time::Duration;

use super::{Candidacy, State};
use crate::entry::{Entry, Held, Merit, Nonce, Publication, Token};
use crate::machine::{Event, Op, Stay};
use crate::office::{Handover, Heir, HeldBack, Office, Refusal};
use crate::outbox::Outbox;
use crate::standing::Line;
use crate::time::Timestamp;

/// How long an heir has to be next in line and to say that it is ready.
pub(super) const HANDED_OVER_WITHIN: Duration = Duration::from_secs(2);
/// How many periodic looks it has once this many attempts were in vain: where hints do not come,
/// those between look, then the heir does, then the leader.
const PATIENT_LOOKS: u32 = 4;
const PATIENT_AFTER: u32 = 2;
/// How often an heir is looked for, where the TTL is not shorter. Each attempt that was in vain
/// doubles it, eight times as long at most: those that step aside each time would never have the
/// one ahead before them for long enough to see that it is dead.
const SEARCHED_EVERY: Duration = Duration::from_secs(15);
const MOST_DOUBLINGS: u32 = 3;
/// Among how many in line an heir is looked for.
pub(super) const LOOKED_AT: usize = 64;
/// How often an office may change hands for health, and within which time.
const MOST_CHANGES: usize = 3;
const CHANGES_COUNT_FOR: Duration = Duration::from_secs(600);

/// What this candidacy has said and done about its fitness.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct FitnessProgress {
    /// Whether our entry says that we are unwell. `None`: nobody knows before a publication is
    /// answered.
    pub(super) said_unwell: Option<bool>,
    /// Whether our entry says that we keep our place until our work has stopped.
    pub(super) said_holding: bool,
    /// Since when we are unwell; or since when we are not improving any more.
    unwell_since: Timestamp,
    improving_since: Option<Timestamp>,
    /// As an unwell leader: when to look for an heir.
    search_at: Timestamp,
    /// As an unwell leader: whom it has tried to hand over to.
    tried: Vec<Token>,
    /// As an unwell leader: how often it has tried.
    attempts: u32,
    /// As an unwell leader: why it stays, as it was last told.
    stays: Option<Stay>,
    /// The leaders that were seen to hand over for health and not to refuse it, and when: each
    /// leaves once, however often it has tried.
    changes: Vec<(Token, Timestamp)>,
}

impl Candidacy {
    /// What we are to those who choose a leader.
    pub(super) fn merit(&self) -> Merit {
        let merit = Merit::new(self.is_unwell(), self.who.priority.unwrap_or(0));
        let merit = merit.gave_way(self.gave_way).preparation(self.preparing.word());
        merit.fences(self.who.fence_delay.is_some()).holding(self.tenure.is_holding())
    }

    /// What our entry is to say now.
    pub(super) fn publication(&self, ready: Option<Nonce>) -> Publication {
        Publication::new(self.who.value.clone()).ready(ready).merit(self.merit())
    }

    /// Whether somebody else would be better. So it is, too, where we are unfit and an operator
    /// keeps us in office.
    pub(super) fn is_unwell(&self) -> bool {
        let is_kept = self.requested.unhealthy && self.tenure.in_office() && self.is_frozen();
        self.requested.unwell || is_kept
    }

    /// A new entry is about to be made, and says how we are: also when it is sent again.
    pub(super) fn say_fitness_anew(&mut self) {
        self.fitness.said_holding = false;
        if self.settings.policy.forgets_fitness() {
            self.fitness.said_unwell = Some(self.is_unwell());
        }
    }

    /// Whether a new entry says that we are unwell.
    pub(super) fn enlists_unwell(&self) -> bool {
        self.settings.policy.forgets_fitness() && self.fitness.said_unwell == Some(true)
    }

    /// Says how we are, if our entry may say something else.
    pub(super) fn fitness_to_publish(&self) -> Option<Op> {
        let held = self.entry()?;
        let news =
            self.fitness.said_unwell != Some(self.is_unwell()) || self.fitness.said_holding != self.tenure.is_holding();
        // What was said of a handover is said again: a publication replaces all that was said.
        news.then(|| Op::Publish(held.clone(), self.published, self.publication(self.notices.said_ready)))
    }

    pub(super) fn on_unwell(&mut self, now: Timestamp, unwell: bool) {
        if mem::replace(&mut self.requested.unwell, unwell) != unwell {
            (self.fitness.unwell_since, self.fitness.improving_since) = (now, None);
        }
        if !self.would_rather_go() {
            self.forget_search();
        }
    }

    pub(super) fn on_improving(&mut self, now: Timestamp, improving: bool) {
        let since = self.fitness.improving_since;
        self.fitness.improving_since = improving.then(|| since.unwrap_or(now));
        // A check that goes up and down is not to put the search off for ever.
        let lasted = since.is_some_and(|since| now.since(since) >= self.who.settles);
        if lasted && !improving {
            self.fitness.unwell_since = now;
        }
    }

    /// From when on a leader that would rather go looks for an heir. `None`: not while it improves.
    fn searches_from(&self) -> Option<Timestamp> {
        if self.is_benched() {
            return Some(Timestamp::ZERO);
        }
        let policy = self.settings.policy;
        let waits = self.fitness.improving_since.is_some() && policy.heeds_improvement();
        let settles = if policy.lets_others_notice() { self.who.settles } else { Duration::ZERO };
        (!waits).then(|| self.fitness.unwell_since + settles)
    }

    /// The next search begins anew, as soon as it may.
    pub(super) fn forget_search(&mut self) {
        self.fitness.search_at = Timestamp::ZERO;
        self.fitness.tried.clear();
        self.fitness.attempts = 0;
        self.fitness.stays = None;
    }

    /// When an unwell leader looks for an heir again.
    pub(super) fn next_search(&self, held: &Held) -> Option<Timestamp> {
        // What is held back is health. A bench is an order.
        let is_held = self.is_frozen() || (self.is_held_back() && !self.is_benched());
        let is_free = !is_held && self.handover_to_carry_out(held).is_none();
        let from = self.searches_from().filter(|_| self.would_rather_go() && is_free)?;
        Some(from.max(self.fitness.search_at))
    }

    /// As an unwell leader: looks who in line is fit, now and then.
    pub(super) fn search_for_heir(&mut self, now: Timestamp, held: &Held, out: &mut Outbox) -> Option<Op> {
        if self.would_rather_go() && self.is_frozen() {
            self.stay(Stay::Frozen, out);
        } else if self.requested.unwell && self.is_held_back() && !self.is_benched() {
            self.stay(Stay::HeldBack, out);
        }
        if self.next_search(held).is_none_or(|at| now < at) {
            return None;
        }
        self.fitness.search_at = now + self.search_every();
        Some(Op::Line(self.who.election.clone(), LOOKED_AT))
    }

    /// The line was read by a leader that nobody has asked to hand over: it looks for an heir.
    pub(super) fn on_line_searched(&mut self, now: Timestamp, held: &Held, line: &Line, out: &mut Outbox) {
        let is_too_early = self.searches_from().is_some_and(|from| now < from);
        if self.next_search(held).is_none() || is_too_early {
            return;
        }
        let Some(behind) = line.behind(held) else {
            // Not first, or not there: verify.
            self.look = true;
            return;
        };
        let Some(heir) = self.choose_heir(behind) else {
            if !self.leave_unfollowed(now, out) {
                self.stay(Stay::NobodyFit, out);
            }
            return;
        };
        let office = self.office.clone();
        let benched = self.is_benched();
        let to = if self.has_changed_too_often(now) && !benched {
            office.with_held_back(HeldBack::new(held.token))
        } else {
            let handover = Handover::new(held.token, heir, self.rng.nonce(), self.patience());
            let handover = if benched { handover.for_bench() } else { handover.for_health() };
            self.fitness.search_at = now + self.search_every();
            self.fitness.attempts += 1;
            office.with_handover(handover)
        };
        let op = self.set_office(to);
        self.call(now, op, out);
    }

    fn search_every(&self) -> Duration {
        self.settings.ttl.min(SEARCHED_EVERY) * (1 << self.fitness.attempts.min(MOST_DOUBLINGS))
    }

    /// How long the next heir has.
    fn patience(&self) -> Duration {
        let patient = PATIENT_LOOKS * self.settings.reread_every;
        if self.fitness.attempts < PATIENT_AFTER { HANDED_OVER_WITHIN } else { patient.max(HANDED_OVER_WITHIN) }
    }

    pub(super) fn is_held_back(&self) -> bool {
        self.office.held_back.is_some() && self.settings.policy.holds_back()
    }

    fn has_changed_too_often(&self, now: Timestamp) -> bool {
        let lately = self.fitness.changes.iter().filter(|(_, at)| now.since(*at) < CHANGES_COUNT_FOR);
        lately.count() >= MOST_CHANGES && self.settings.policy.holds_back()
    }

    /// The office record was read: counts the handover for health that it speaks of. One that was
    /// refused is no change, and what an operator has acknowledged counts no more.
    pub(super) fn count_changes(&mut self, now: Timestamp, before: &Office) {
        let changes = &mut self.fitness.changes;
        if before.held_back.is_some() && self.office.held_back.is_none() {
            changes.clear();
            self.fitness.search_at = now;
        }
        changes.retain(|(_, at)| now.since(*at) < CHANGES_COUNT_FOR);
        let Some(handover) = self.office.handover.as_ref().filter(|handover| handover.for_health) else { return };
        if handover.refused.is_some() {
            changes.retain(|(from, _)| *from != handover.from);
        } else if changes.iter().all(|(from, _)| *from != handover.from) {
            changes.push((handover.from, now));
        }
    }

    /// The best that is fit. One that was tried in vain may be dead, where nobody has removed it
    /// yet, or hang: the others have their turn before it is tried again.
    fn choose_heir(&mut self, behind: &[Entry]) -> Option<Heir> {
        let any = !self.settings.policy.picks_fit_heirs();
        // One of another library does not step aside, and nobody gets past it.
        let ours = behind.iter().take_while(|entry| !entry.is_foreign());
        let fit = ours.filter(|entry| any || !entry.merit.unwell);
        let untried = self.pick(fit.clone().filter(|entry| !self.fitness.tried.contains(&entry.token)));
        if untried.is_none() {
            self.fitness.tried.clear();
        }
        let heir = untried.or_else(|| self.pick(fit)).and_then(Heir::of)?;
        self.fitness.tried.push(heir.token);
        Some(heir)
    }

    /// The best of these; of equals the one that came first.
    pub(super) fn pick<'a>(&self, mut entries: impl Iterator<Item = &'a Entry>) -> Option<&'a Entry> {
        if !self.settings.policy.picks_fit_heirs() {
            return entries.next();
        }
        entries.reduce(|best, other| if other.merit.is_better_than(best.merit) { other } else { best })
    }

    /// Whether the one that was chosen for its fitness is not fit any more.
    pub(super) fn has_fallen_ill(&self, handover: &Handover, heir: &Entry) -> bool {
        handover.is_unasked() && heir.merit.unwell && self.settings.policy.picks_fit_heirs()
    }

    /// The office record was read: tells that a handover of our own accord was refused, once.
    pub(super) fn note_refusal(&mut self, before: &Office, out: &mut Outbox) {
        let Some(handover) = &self.office.handover else { return };
        let is_ours = handover.is_unasked() && self.would_rather_go() && self.term() == Some(handover.from);
        let is_news = before.handover.as_ref().is_some_and(|known| known.refused.is_none());
        if let Some(why) = handover.refused.filter(|why| is_ours && is_news && *why != Refusal::Frozen) {
            self.stay(Stay::Refused(why), out);
        }
    }

    /// The line cannot be read, or the record not be written.
    pub(super) fn on_search_failed(&mut self, out: &mut Outbox) {
        if let State::Office(_) = &self.state
            && self.would_rather_go()
        {
            self.stay(Stay::Refused(Refusal::Unable), out);
        }
    }

    fn stay(&mut self, why: Stay, out: &mut Outbox) {
        if self.fitness.stays.replace(why) != Some(why) {
            let stays = if self.is_benched() { Event::StaysBenched(why) } else { Event::Stays(why) };
            self.event(stays, out);
        }
    }
}
