//! Raft's election without Raft's log: one leader per term, terms as tokens, a lease that a quorum
//! has promised.
//!
//! [`Consensus`] is one member of a fixed group; one group holds one election. It does no I/O:
//! messages, states to be written and events come out of [`Consensus::poll_output`], and what
//! happened goes into [`Consensus::handle`].
//!
//! What makes two leaders at a time impossible, as long as clocks keep within the drift:
//! - A vote is durable before it is answered, so each member has one vote per term.
//! - An acknowledged heartbeat is a promise to vote for nobody else for `election_min`. Such a
//!   voter refuses a [`Message::Vote`] and does not even adopt its term: a request whose pre-vote
//!   was won earlier may come late.
//! - The leader counts a promise from when the heartbeat was *sent*, shortened by drift on both
//!   sides. Once a quorum's promises are over, so is the term.
//! - A restarted member abstains for `election_max`, for it may have promised something that it
//!   forgot.
//! - [`Message::TimeoutNow`] is sent after the term has ended at the sender. It frees voters from
//!   promises made in exactly that term, for one candidacy.
//!
//! A member whose state is lost does not vote. It comes back by itself once ALL others have told it
//! the highest term, in which it abstains ([`Boot::Lost`]). `rejoin.rs` says what happens if others
//! have lost theirs, too.

mod disk;
mod message;
mod rejoin;
mod settings;
mod term;
#[cfg(test)]
mod tests;
mod vote;

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;

pub use message::{Ballot, Boot, LastOffice, Message, PersistId, Position, Report, SealId, Stored};
pub use rejoin::TERMS_SKIPPED;
pub use settings::{ConsensusSettings, ConsensusSettingsError};

use crate::entry::Token;
use crate::machine::{Command, Event, LossReason, Successor};
use crate::office::Refusal;
use crate::peers::group::{Group, MemberId};
use crate::peers::machine::{Abstention, TermRules};
use crate::peers::role::{ShownRole, role};
use crate::rng::Rng;
use crate::settings::stretch;
use crate::tenure::{Rules, Tenure};
use crate::time::{Timestamp, nanos};
use disk::Disk;
use message::{Contact, Known};
use rejoin::{Rejoining, Told};
use term::{Leading, Raise};
use vote::Asked;

/// What happened.
pub type Input = crate::peers::machine::Input<Message>;

/// What is to be done.
pub type Output = crate::peers::machine::Output<Message>;

/// One member of a consensus group.
///
/// After each [`Consensus::handle`], take every [`Consensus::poll_output`], in order, then wait
/// until [`Consensus::poll_timeout`] at the latest. A tick that comes early does nothing.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Consensus {
    group: Group,
    settings: ConsensusSettings,
    rng: Rng,
    stored: Stored,
    disk: Disk,
    role: Role,
    /// Until when this member votes for nobody, having just restarted.
    abstains_until: Timestamp,
    /// The last leader that was heard in this life.
    contact: Option<Contact>,
    /// When this member stands, unless it hears something.
    stands_at: Timestamp,
    /// Having given the office away, it does not stand before then by itself: all others come
    /// first.
    rests_until: Timestamp,
    /// A request for our vote that waits for the data path.
    asked: Option<Asked>,
    next_seal: u64,
    known: Known,
    /// As last heard from the application.
    position: Position,
    value: Bytes,
    /// The office of this member's candidate.
    tenure: Tenure<MemberId>,
    /// The raise of fences that is out.
    raise: Option<Raise>,
    /// The term whose work has not stopped yet.
    work: Option<Token>,
    /// How the candidate stands, if there is one.
    candidate: Option<TermRules>,
    /// The candidate does not stand again, and goes once its work has stopped.
    leaving: bool,
    healthy: bool,
    closing: bool,
    /// What was last said about voting.
    said: Option<Abstention>,
    shown: ShownRole,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Role {
    /// The state is lost; the others are being asked.
    Rejoining(Rejoining),
    Follower,
    /// Asking whether an election would be won, so that a member that was cut off does not disturb.
    Sounding {
        round: Timestamp,
        would: BTreeSet<MemberId>,
        repeat_at: Timestamp,
    },
    /// Standing in the present term. `position` is there once the data path is sealed.
    Candidate {
        position: Option<Position>,
        forfeited: Option<Token>,
        votes: BTreeSet<MemberId>,
        repeat_at: Timestamp,
        /// It has won after this one: that is being written down.
        before: Option<LastOffice>,
    },
    Leader(Leading),
    /// Takes no part any more.
    Out,
}

/// What a member does at present.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PeerRole {
    /// It lost its state, and asks the others for the highest term.
    Rejoining,
    /// It follows a leader or waits for one.
    Follower,
    /// It asks whether it would be elected.
    Sounding,
    /// It asks for votes.
    Candidate,
    /// It was elected in its term. It is in office only between [`Event::Elected`] and
    /// [`Event::Unelected`].
    Leader,
    /// It takes no part any more.
    Out,
}

impl Consensus {
    /// A member that starts now, with or without a candidate, advertising `value`. The seed must be
    /// fresh in each life.
    pub fn new(
        now: Timestamp,
        group: Group,
        settings: ConsensusSettings,
        boot: Boot,
        (candidate, value): (Option<TermRules>, Bytes),
        rng: Rng,
    ) -> Result<Consensus, ConsensusSettingsError> {
        settings.check()?;
        let boot = match boot {
            Boot::Lost if !settings.policy.rejoins_when_wiped() => Boot::New,
            boot => boot,
        };
        let stored = match boot {
            Boot::Restarted(stored) => stored,
            Boot::New | Boot::Lost => Stored { abstain: settings.election_max, ..Stored::default() },
        };
        let hold_until_stopped = candidate.is_some_and(|rules| rules.hold_until_stopped);
        let mut member = Consensus {
            group,
            settings,
            rng,
            stored,
            disk: Disk::default(),
            role: Role::Follower,
            abstains_until: now,
            contact: None,
            stands_at: now,
            rests_until: now,
            asked: None,
            next_seal: 0,
            known: Known::default(),
            position: Position::NONE,
            value,
            tenure: Tenure::new(Rules { grace: settings.grace, hold_until_stopped }),
            raise: None,
            work: None,
            candidate,
            leaving: false,
            healthy: candidate.is_none_or(|rules| !rules.unfit),
            closing: false,
            said: None,
            shown: ShownRole::default(),
        };
        member.boot(now, boot);
        Ok(member)
    }

    fn boot(&mut self, now: Timestamp, boot: Boot) {
        // A promise of an earlier life was as long as the settings of that life said.
        let abstain = self.stored.abstain.max(self.settings.election_max);
        if boot != Boot::New && self.settings.policy.abstains() {
            self.abstains_until = now + stretch(abstain, self.settings.drift_ppm);
        }
        match boot {
            Boot::Lost => self.role = Role::Rejoining(Rejoining::new(now, self.rng.nonce())),
            Boot::New => self.persist(),
            Boot::Restarted(_) if self.stored.abstain < self.settings.election_max => {
                self.stored.abstain = self.settings.election_max;
                self.persist();
            }
            Boot::Restarted(_) => {}
        }
        self.rest(now);
        self.on_time(now);
        self.show_role();
    }

    /// Something happened, or time has passed.
    pub fn handle(&mut self, now: Timestamp, input: Input) {
        if let Role::Out = self.role {
            // The user of one that has failed may still be at work.
            if let Input::Command(command) = input {
                self.on_command(now, command);
            }
            return self.finish_leaving();
        }
        // Time first: a late answer must never meet a term that should be over.
        self.on_time(now);
        match input {
            // Only a tick makes silence count: after a pause, what has arrived meanwhile is heard
            // first.
            Input::Tick if now >= self.stands_at => self.on_silence(now),
            Input::Tick => {}
            Input::Message(from, message) => {
                if self.group.contains(from) && from != self.group.me() {
                    self.on_message(now, from, message);
                }
            }
            Input::Persisted(id) => {
                self.disk.on_persisted(id);
                self.count_votes(now);
                self.after_rejoining(now);
            }
            Input::PersistFailed(_) => self.fail(now),
            Input::Sealed(id, position) => self.on_sealed(now, id, position),
            Input::Position(position) => self.position = position,
            Input::Stand(rules, value) => self.on_stand(now, rules, value),
            Input::Command(command) => self.on_command(now, command),
            Input::Fences(token, result) => self.on_fences(now, token, result),
            Input::Close => {
                self.closing = true;
                self.drain(now, LossReason::Closing);
                self.give_up_standing(now);
            }
            Input::Readmit => self.on_readmitted(),
        }
        self.tend_fences(now);
        self.say_abstention(now);
        self.finish_leaving();
        self.show_role();
        self.close_if_idle();
    }

    /// What is to be done next.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.disk.pop()
    }

    /// When [`Input::Tick`] is due.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        match &self.role {
            Role::Out => None,
            Role::Rejoining(rejoining) => rejoining.next_timeout(),
            Role::Follower => Some(self.stands_at),
            Role::Sounding { repeat_at, .. } | Role::Candidate { repeat_at, .. } => {
                Some(self.stands_at.min(*repeat_at))
            }
            Role::Leader(leading) => Some(self.next_timeout_of(leading)),
        }
    }

    /// This member and its group.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// The highest term that this member knows; zero before the first.
    pub fn term(&self) -> u64 {
        self.stored.term
    }

    /// The term in which this member is in office, whether or not it is draining.
    pub fn office(&self) -> Option<Token> {
        if self.tenure.in_office() { Token::new(self.stored.term) } else { None }
    }

    /// What this member does at present.
    pub fn role(&self) -> PeerRole {
        match &self.role {
            Role::Rejoining(_) => PeerRole::Rejoining,
            Role::Follower => PeerRole::Follower,
            Role::Sounding { .. } => PeerRole::Sounding,
            Role::Candidate { .. } => PeerRole::Candidate,
            Role::Leader(_) => PeerRole::Leader,
            Role::Out => PeerRole::Out,
        }
    }

    fn on_time(&mut self, now: Timestamp) {
        match &self.role {
            Role::Out | Role::Follower => {}
            Role::Rejoining(_) => self.ask_for_terms(now),
            Role::Leader(_) => self.lead_on(now),
            Role::Sounding { .. } | Role::Candidate { .. } => self.stand_on(now),
        }
        if now >= self.abstains_until && self.stored.abstain > self.settings.election_max {
            // Every promise of the life with the longer timeout is over.
            self.stored.abstain = self.settings.election_max;
            self.persist();
        }
        self.say_abstention(now);
    }

    fn on_message(&mut self, now: Timestamp, from: MemberId, message: Message) {
        if let Role::Rejoining(_) = self.role {
            // Whatever else is said here could break a promise that was forgotten.
            match message {
                Message::TellTerm { nonce, term, position, last } => {
                    self.on_term_told(from, nonce, Told { term, position, last });
                }
                Message::LostToo { nonce } => self.on_lost_too(now, from, nonce),
                Message::AskTerm { nonce } => self.send(from, Message::LostToo { nonce }),
                _ => {}
            }
            return;
        }
        match message {
            Message::PreVote { term, round, position } => self.on_pre_vote_asked(now, from, term, round, position),
            Message::PreVoted { round, term, granted } => self.on_pre_voted(now, from, round, term, granted),
            Message::Vote { term, position, forfeited } => self.on_vote_asked(now, from, term, position, forfeited),
            Message::Voted { term, granted, last } => self.on_voted(now, from, term, granted, last),
            Message::Closed { term } => {
                self.note_last(LastOffice { term: term.get(), is_closed: true });
            }
            Message::Heartbeat { term, echo, in_office, version, value } => {
                self.on_heartbeat(now, from, term, echo, in_office, (version, value));
            }
            Message::Ack { term, echo, promise, position, version, stands } => {
                let promise = Duration::from_nanos(promise);
                self.on_ack(now, from, term, Timestamp::from_nanos(echo), promise, (position, version, stands));
            }
            Message::Stale { term } => self.observe(now, term),
            Message::TimeoutNow { term } => self.on_timeout_now(now, from, term),
            Message::AskTerm { nonce } => {
                let (term, position, last) = (self.stored.term, self.position, self.stored.last);
                let tell = Message::TellTerm { nonce, term, position, last };
                self.send(from, tell);
            }
            Message::TellTerm { .. } | Message::LostToo { .. } => {}
        }
    }

    /// This member has a candidate, perhaps another one than before.
    fn on_stand(&mut self, now: Timestamp, rules: TermRules, value: Bytes) {
        self.candidate = Some(rules);
        self.leaving = false;
        self.healthy = !rules.unfit;
        self.tenure.set_hold(rules.hold_until_stopped);
        self.set_value(now, value);
    }

    fn on_command(&mut self, now: Timestamp, command: Command) {
        match command {
            Command::Release => {
                self.close_work();
                let step = self.tenure.stopped();
                self.carry_out(now, step);
            }
            Command::Lapsed(term) => {
                let step = self.tenure.lapsed(term);
                self.carry_out(now, step);
            }
            Command::Transfer(Successor::Member(heir), within) => self.on_transfer(now, heir, within),
            Command::Transfer(Successor::Candidate(_), _) => {
                self.event(Event::TransferRefused(Refusal::NotAMember));
            }
            Command::Proclaim(number, value) => self.on_proclaim(now, number, value),
            Command::Healthy(healthy) => {
                self.healthy = healthy;
                if !healthy {
                    self.drain(now, LossReason::Unhealthy);
                    self.give_up_standing(now);
                }
            }
            // One that gives its office back hands it to an heir as it is.
            Command::HandOver(Some(_)) => self.event(Event::NoHeir(Refusal::NoHeir)),
            Command::HandOver(None) | Command::Prepared(..) | Command::Unwell(_) | Command::Improving(_) => {}
            Command::Leave => self.leave(now, LossReason::Resigned),
        }
    }

    /// The candidate does not stand again. One in office leads on until its term is over.
    fn leave(&mut self, now: Timestamp, why: LossReason) {
        self.leaving = true;
        if !self.tenure.in_office() {
            self.drain(now, why);
            self.give_up_standing(now);
        }
    }

    fn finish_leaving(&mut self) {
        if self.leaving && self.candidate.is_some() && self.tenure.is_settled() {
            (self.leaving, self.candidate) = (false, None);
            self.event(Event::Done { certain: true });
        }
    }

    /// Shows the candidate whom it follows, if that has changed.
    fn show_role(&mut self) {
        let leader = self.known.leader;
        let followed = (leader, leader.and_then(|_| Token::new(self.known.term)));
        let (waits, stands) = (self.settings.policy.waits_for_the_work(), self.candidate.is_some() && !self.leaving);
        let role = role(&self.tenure, waits, self.healthy, followed).filter(|_| stands);
        if let Some(role) = self.shown.change(role) {
            self.event(role);
        }
    }

    /// Whether there is a candidate that may lead. One whose last work has not stopped yet may not,
    /// and neither may one whose fences are still being raised for an earlier term.
    fn is_fit(&self) -> bool {
        let free = self.tenure.is_settled() && self.raise.is_none();
        self.candidate.is_some() && !self.leaving && self.healthy && !self.closing && free
    }

    /// A higher term is known: whatever this member was, it is a follower in that term.
    fn observe(&mut self, now: Timestamp, term: Token) {
        if term.get() <= self.stored.term {
            return;
        }
        self.lose(now, LossReason::Superseded);
        self.stored.term = term.get();
        self.stored.ballot = Ballot::Free;
        self.asked = None;
        self.become_follower(now);
        self.persist();
    }

    fn become_follower(&mut self, now: Timestamp) {
        if !matches!(self.role, Role::Follower) {
            self.role = Role::Follower;
            // Nothing is promised to a follower.
            self.tenure.prove(Timestamp::ZERO);
            self.rest(now);
        }
    }

    /// Draws when to stand, unless something is heard before.
    fn rest(&mut self, now: Timestamp) {
        let spread = self.settings.election_max - self.settings.election_min;
        let nanos = nanos(spread);
        let drawn = if nanos > 1 { self.rng.below(nanos) } else { 0 };
        let at = now + self.settings.election_min + Duration::from_nanos(drawn);
        self.stands_at = at.max(self.abstains_until).max(self.rests_until);
    }

    fn persist(&mut self) {
        let id = self.disk.next_id();
        self.disk.push(Output::Persist(id, self.stored));
    }

    fn send(&mut self, to: MemberId, message: Message) {
        self.disk.push_when_durable(Output::Send(to, message));
    }

    fn event(&mut self, event: Event) {
        self.disk.push(Output::Event(event));
    }

    /// Why this member may not vote, if it may not.
    fn abstention(&self, now: Timestamp) -> Option<Abstention> {
        match &self.role {
            Role::Out => Some(Abstention::CannotPersist),
            Role::Rejoining(_) if self.group.members().len() == 1 => Some(Abstention::StateLostAlone),
            Role::Rejoining(_) => Some(Abstention::StateLost),
            _ if now < self.abstains_until => Some(Abstention::Restarted),
            _ => None,
        }
    }

    fn say_abstention(&mut self, now: Timestamp) {
        let abstention = self.abstention(now);
        if abstention != self.said && !matches!(self.role, Role::Out) {
            self.said = abstention;
            self.event(abstention.map_or(Event::Voting, Event::NotVoting));
            if abstention == Some(Abstention::StateLostAlone) {
                self.fail_candidate(now);
            }
        }
    }

    /// The disk has failed: what was promised in memory may be forgotten, so nothing more is
    /// promised.
    fn fail(&mut self, now: Timestamp) {
        self.lose(now, LossReason::Refused);
        self.disk.drop_held();
        self.event(Event::NotVoting(Abstention::CannotPersist));
        self.fail_candidate(now);
        self.role = Role::Out;
    }

    /// Something that trying again cannot mend.
    fn fail_candidate(&mut self, now: Timestamp) {
        if self.candidate.is_some() && !self.leaving {
            self.event(Event::Failed);
            self.leave(now, LossReason::Refused);
        }
    }

    fn close_if_idle(&mut self) {
        if self.closing && !matches!(self.role, Role::Leader(_) | Role::Out) {
            self.disk.push(Output::Closed);
            self.role = Role::Out;
        }
    }

    /// Who leads, as far as this member knows now, for those who ask it.
    pub fn report(&self, now: Timestamp) -> Report {
        let heard = self.contact.is_some_and(|contact| now < contact.promised_until);
        let leader = self.known.leader.filter(|leader| *leader == self.group.me() || heard);
        Report { term: self.known.term, leader, value: self.known.value.clone() }
    }
}
