//! Asking for votes and giving them.

use std::collections::BTreeSet;

use super::message::{Ballot, Contact, LastOffice, Message, Position, SealId};
use super::{Consensus, Output, Role};
use crate::entry::Token;
use crate::machine::{Event, LossReason};
use crate::peers::group::MemberId;
use crate::time::Timestamp;

/// Someone asked for our vote, and the data path is being sealed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Asked {
    seal: SealId,
    by: MemberId,
    position: Position,
    forfeited: Option<Token>,
}

impl Consensus {
    /// Silence for too long: asks whether an election would be won, which disturbs nobody.
    pub(super) fn sound_out(&mut self, now: Timestamp) {
        if self.known.leader.take().is_some() {
            self.event(Event::Vacant);
        }
        self.rest(now);
        if !self.may_stand(now) {
            return self.give_up_standing(now);
        }
        if !self.settings.pre_vote {
            return self.stand(now, None);
        }
        let would = BTreeSet::from([self.group.me()]);
        self.role = Role::Sounding { round: now, would, repeat_at: now };
        self.stand_on(now);
        self.count_pre_votes(now);
    }

    pub(super) fn may_stand(&self, now: Timestamp) -> bool {
        // A member that lost its records would be elected by others that never had them.
        let caught_up = self.position >= self.stored.catch_up;
        self.is_fit() && caught_up && self.abstention(now).is_none() && self.stored.term < Token::MAX
    }

    /// An unfit member leaves the running; it does not leave the voters.
    pub(super) fn give_up_standing(&mut self, now: Timestamp) {
        if matches!(self.role, Role::Sounding { .. } | Role::Candidate { .. }) {
            self.become_follower(now);
        }
    }

    /// The time for answers, or for a leader to be heard, is up.
    pub(super) fn on_silence(&mut self, now: Timestamp) {
        match &self.role {
            Role::Leader(_) if self.tenure.is_settled() => self.become_follower(now),
            Role::Candidate { forfeited: Some(_), .. } if !self.settings.policy.stands_forced_once() => {
                self.stand(now, Token::new(self.stored.term));
            }
            Role::Follower | Role::Sounding { .. } | Role::Candidate { .. } => self.sound_out(now),
            Role::Leader(_) | Role::Rejoining(_) | Role::Out => {}
        }
    }

    /// Repeats the requests that were not answered.
    pub(super) fn stand_on(&mut self, now: Timestamp) {
        let Some(term) = Token::new(self.stored.term.max(1)) else { return };
        let next = Token::new(self.stored.term + 1);
        let heartbeat = self.settings.heartbeat;
        let (request, answered) = match &mut self.role {
            Role::Sounding { round, would, repeat_at } if now >= *repeat_at => {
                *repeat_at = now + heartbeat;
                let Some(term) = next else { return };
                (Message::PreVote { term, round: round.as_nanos(), position: self.position }, would.clone())
            }
            Role::Candidate { position, forfeited, votes, repeat_at, .. } if now >= *repeat_at => {
                *repeat_at = now + heartbeat;
                let Some(position) = *position else { return };
                (Message::Vote { term, position, forfeited: *forfeited }, votes.clone())
            }
            _ => return,
        };
        for member in self.group.others().filter(|member| !answered.contains(member)) {
            self.send(member, request.clone());
        }
    }

    pub(super) fn on_pre_vote_asked(
        &mut self,
        now: Timestamp,
        from: MemberId,
        term: Token,
        round: u64,
        position: Position,
    ) {
        let granted = term.get() > self.stored.term
            && self.abstention(now).is_none()
            && !self.is_bound(now, None)
            && self.reaches(position, self.position);
        self.send(from, Message::PreVoted { round, term: self.stored.term, granted });
    }

    pub(super) fn on_pre_voted(&mut self, now: Timestamp, from: MemberId, round: u64, term: u64, granted: bool) {
        if let Some(term) = Token::new(term).filter(|term| term.get() > self.stored.term) {
            return self.observe(now, term);
        }
        if let Role::Sounding { round: ours, would, .. } = &mut self.role
            && ours.as_nanos() == round
            && granted
        {
            would.insert(from);
            self.count_pre_votes(now);
        }
    }

    fn count_pre_votes(&mut self, now: Timestamp) {
        if let Role::Sounding { would, .. } = &self.role
            && would.len() >= self.group.quorum()
        {
            self.stand(now, None);
        }
    }

    /// Stands in the next term, with this member's own vote.
    fn stand(&mut self, now: Timestamp, forfeited: Option<Token>) {
        let me = self.group.me();
        self.stored.term += 1;
        self.stored.ballot = Ballot::For(me);
        self.asked = None;
        self.role =
            Role::Candidate { position: None, forfeited, votes: BTreeSet::from([me]), repeat_at: now, before: None };
        self.persist();
        self.rest(now);
        if self.seal().is_none() {
            self.on_own_position(now, Position::NONE);
        }
    }

    fn on_own_position(&mut self, now: Timestamp, read: Position) {
        let Role::Candidate { position, repeat_at, .. } = &mut self.role else { return };
        if read < self.stored.catch_up {
            return self.become_follower(now);
        }
        *position = Some(read);
        *repeat_at = now;
        self.stand_on(now);
        self.count_votes(now);
    }

    /// Has the data path refuse older tokens and read its position. `None` where there is no data
    /// path.
    fn seal(&mut self) -> Option<SealId> {
        if !self.settings.positions {
            return None;
        }
        self.next_seal += 1;
        let id = SealId(self.next_seal);
        let term = Token::new(self.stored.term)?;
        self.disk.push(Output::Seal(id, term));
        Some(id)
    }

    pub(super) fn on_sealed(&mut self, now: Timestamp, id: SealId, position: Position) {
        self.position = position;
        if id.0 != self.next_seal {
            return;
        }
        match (&self.role, self.asked.take_if(|asked| asked.seal == id)) {
            (Role::Candidate { position: None, .. }, _) => self.on_own_position(now, position),
            (_, Some(asked)) => self.decide(now, asked.by, asked.position, asked.forfeited, position),
            _ => {}
        }
    }

    pub(super) fn on_vote_asked(
        &mut self,
        now: Timestamp,
        from: MemberId,
        term: Token,
        position: Position,
        forfeited: Option<Token>,
    ) {
        if let Some(mine) = Token::new(self.stored.term).filter(|mine| *mine > term) {
            return self.send(from, Message::Stale { term: mine });
        }
        // Its term is not adopted either: that would end the term of a leader that we have promised
        // to.
        if self.abstention(now).is_some() || self.is_bound(now, forfeited) {
            return self.answer(from, term, false);
        }
        self.adopt_for_vote(now, term);
        match self.stored.ballot {
            Ballot::For(member) if member == from => self.answer(from, term, true),
            Ballot::For(_) | Ballot::Forfeit => self.answer(from, term, false),
            Ballot::Free => match self.seal() {
                Some(seal) => self.asked = Some(Asked { seal, by: from, position, forfeited }),
                None => self.decide(now, from, position, forfeited, Position::NONE),
            },
        }
    }

    fn adopt_for_vote(&mut self, now: Timestamp, term: Token) {
        if term.get() > self.stored.term && !self.settings.policy.persists_votes() {
            self.lose(now, LossReason::Superseded);
            self.become_follower(now);
            (self.stored.term, self.stored.ballot) = (term.get(), Ballot::Free);
        }
        self.observe(now, term);
    }

    /// Votes, now that the data path refuses whatever could move our position behind our back.
    fn decide(&mut self, now: Timestamp, by: MemberId, theirs: Position, forfeited: Option<Token>, ours: Position) {
        let Some(term) = Token::new(self.stored.term) else { return };
        let granted = self.stored.ballot == Ballot::Free
            && self.abstention(now).is_none()
            && !self.is_bound(now, forfeited)
            && self.reaches(theirs, ours);
        if granted {
            self.stored.ballot = Ballot::For(by);
            if self.settings.policy.persists_votes() {
                self.persist();
            }
            self.become_follower(now);
            self.rest(now);
        }
        self.answer(by, term, granted);
    }

    fn answer(&mut self, to: MemberId, term: Token, granted: bool) {
        self.send(to, Message::Voted { term, granted, last: self.stored.last });
    }

    /// Whether a candidate has all that this member may have helped to commit, also in a life whose
    /// records are lost.
    fn reaches(&self, theirs: Position, ours: Position) -> bool {
        let ours = ours.max(self.stored.catch_up);
        if self.settings.policy.compares_tokens() { theirs >= ours } else { theirs.index >= ours.index }
    }

    /// Whether a promise keeps us from voting: our own lease, or one that we acknowledged. A leader
    /// that has forfeited its lease frees those who last heard a leader in exactly its term.
    pub(super) fn is_bound(&self, now: Timestamp, forfeited: Option<Token>) -> bool {
        let leads = matches!(self.role, Role::Leader(_)) && self.tenure.has_title();
        let freed = |contact: &Contact| forfeited == Some(contact.term);
        let promised = self.contact.is_some_and(|contact| now < contact.promised_until && !freed(&contact));
        (leads || promised) && self.settings.policy.keeps_promises()
    }

    pub(super) fn on_voted(&mut self, now: Timestamp, from: MemberId, term: Token, granted: bool, last: LastOffice) {
        if let Role::Candidate { votes, .. } = &mut self.role
            && term.get() == self.stored.term
            && granted
        {
            votes.insert(from);
            self.learn_of(last);
            self.count_votes(now);
        }
    }

    /// Somebody knows of this one who was in office. The newest counts, and that it has closed its
    /// term. Says whether that is new.
    pub(super) fn learn_of(&mut self, last: LastOffice) -> bool {
        // In this order a later term is larger, and so is the same one that is closed.
        let is_new = last > self.stored.last && self.settings.policy.keeps_the_last_office();
        if is_new {
            self.stored.last = last;
        }
        is_new
    }

    /// Wins with a quorum of votes, this member's own included once it is durable, and that it may
    /// be in office from now on.
    pub(super) fn count_votes(&mut self, now: Timestamp) {
        let before = self.stored.last;
        if let Role::Candidate { votes, position: Some(_), before: said, .. } = &mut self.role
            && votes.len() >= self.group.quorum()
            && self.disk.is_settled()
        {
            let before = *said.get_or_insert(before);
            // If that is new, it leads once it is written: see `Input::Persisted`.
            if !self.note_last(LastOffice { term: self.stored.term, is_closed: false }) {
                self.lead(now, before);
            }
        }
    }

    /// The leader that we hear has forfeited its term in our favour: stand at once, this one time.
    pub(super) fn on_timeout_now(&mut self, now: Timestamp, from: MemberId, term: Token) {
        let heard = self.contact.is_some_and(|contact| contact.leader == from && contact.term == term);
        let follows = matches!(self.role, Role::Follower | Role::Sounding { .. });
        if heard && follows && term.get() == self.stored.term && self.may_stand(now) {
            self.stand(now, Some(term));
        }
    }
}
