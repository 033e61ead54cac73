//! The heir of a handover: it gets ready, and says so, or that it will not take the office.
//!
//! A candidate with nothing to do first says that it is ready once it is next in line. One that has
//! something to do (`Candidate::prepares`) says that it is getting ready, has its program do it,
//! once for each request, and says what came of it. The leader leads on meanwhile, and refuses the
//! request at once if the heir declines.
//!
//! The program is told when that is of no use any more (`Event::CalledOff`): the request is refused
//! or gone, is for another, or we are no longer in line. Not when the leader is gone and we are
//! first: then we take office, ready or not, and nobody waits for it. An answer counts for the
//! request that it answers and for no other.
//!
//! At a vacancy nobody leads meanwhile, so nothing is done first there.
//!
//! *Why a word that is old when the leader gets to it is not asked for again:* the leader acts on
//! the hint, or with its next periodic look, or the time of the request is over. One that is no
//! longer fit says so in its entry, which the leader reads with that word, or has left the line.

use std::time::Duration;

use super::{Candidacy, Following, State};
use crate::entry::{Decline, Entry, Nonce, Preparation};
use crate::machine::{Event, Op};
use crate::office::Handover;
use crate::outbox::Outbox;
use crate::time::Timestamp;

/// How long an heir may be getting ready for a leader that is unwell.
const PREPARED_WITHIN: Duration = Duration::from_secs(60);

/// What this candidacy does to get ready, as an heir.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Preparing {
    /// The request for which its program was told to get ready.
    for_request: Option<Nonce>,
    /// What came of it.
    answer: Option<Result<(), Decline>>,
    /// What our entry says of it, as far as that was answered.
    said: Option<Preparation>,
}

impl Preparing {
    /// What our entry is to say, beside that it is ready.
    pub(super) fn word(&self) -> Option<Preparation> {
        match (self.for_request?, self.answer) {
            (request, None) => Some(Preparation::Preparing(request)),
            (request, Some(Err(why))) => Some(Preparation::Declined(request, why)),
            (_, Some(Ok(()))) => None,
        }
    }
}

/// Why this entry declines that handover, if it does.
pub(super) fn declined(entry: &Entry, handover: Nonce) -> Option<Decline> {
    match entry.merit.preparation {
        Some(Preparation::Declined(nonce, why)) if nonce == handover => Some(why),
        _ => None,
    }
}

impl Candidacy {
    /// Tells the program to get ready, or that this is of no use any more.
    pub(super) fn update_preparation(&mut self, out: &mut Outbox) {
        let asked = self.asked_as_heir();
        if let Some(known) = self.preparing.for_request
            && asked.map(|(nonce, _)| nonce) != Some(known)
        {
            match &self.state {
                // First in line: on the way into office. There it is no longer an heir.
                State::Unproven(_) => {}
                State::Office(_) if !self.tenure.in_office() => {}
                State::Office(_) => self.preparing = Preparing::default(),
                _ => {
                    self.preparing = Preparing::default();
                    self.event(Event::CalledOff(known), out);
                }
            }
        }
        let Some((nonce, is_next)) = asked.filter(|_| self.preparing.for_request.is_none()) else { return };
        let handover = self.office.handover.as_ref().filter(|handover| self.who.prepares && !handover.at_vacancy);
        let within = |handover: &Handover| match handover.is_unasked() {
            true => handover.within.max(PREPARED_WITHIN),
            false => handover.within,
        };
        let Some(within) = handover.filter(|_| is_next).map(within) else { return };
        self.preparing.for_request = Some(nonce);
        self.event(Event::Prepare { nonce, within }, out);
    }

    /// The request that names us, if there is one, and whether we are next in line.
    fn asked_as_heir(&self) -> Option<(Nonce, bool)> {
        let State::Following(Following { held: Some(held), ahead, .. }) = &self.state else { return None };
        let handover = self.office.handover.as_ref().filter(|handover| handover.refused.is_none())?;
        let is_heir = handover.heir.as_ref().is_some_and(|heir| heir.is(held));
        is_heir.then_some((handover.nonce, ahead.token == handover.from))
    }

    /// What the program has come to.
    pub(super) fn on_prepared(&mut self, nonce: Nonce, answer: Result<(), Decline>) {
        let is_ours = self.preparing.for_request == Some(nonce) || !self.settings.policy.matches_answers();
        if is_ours && self.preparing.for_request.is_some() {
            self.preparing.answer.get_or_insert(answer);
        }
    }

    /// As the leader: the heir is next, and is not ready. One that says that it is getting ready
    /// has longer where nobody but us has said how long: more than a moment if we are unwell, and
    /// all of the time if we are about to leave.
    pub(super) fn wait_for_preparing(&mut self, now: Timestamp, handover: &Handover, heir: &Entry) {
        let nonce = handover.nonce;
        if heir.merit.preparation != Some(Preparation::Preparing(nonce)) || self.notices.prepares == Some(nonce) {
            return;
        }
        let unasked = handover.is_unasked().then(|| now + handover.within.max(PREPARED_WITHIN));
        if let Some(until) = self.departure_until(handover).or(unasked) {
            self.notices.prepares = Some(nonce);
            self.notices.seen = Some((nonce, until));
        }
    }

    /// What the heir says next of the request that names it, if it is next in line.
    pub(super) fn heir_duty(&self) -> Option<Op> {
        let State::Following(Following { held: Some(held), .. }) = &self.state else { return None };
        let (nonce, _) = self.asked_as_heir().filter(|(_, is_next)| *is_next)?;
        let word = self.preparing.word();
        let (ready, is_said) = match word {
            Some(_) => (None, self.preparing.said == word),
            None => (Some(nonce), self.notices.said_ready == Some(nonce)),
        };
        (!is_said).then(|| Op::Publish(held.clone(), self.published, self.publication(ready)))
    }

    /// Our entry says this now.
    pub(super) fn note_preparation_said(&mut self, said: Option<Preparation>) {
        self.preparing.said = said;
    }
}
