//! One member of an election by rank. Bully and ring differ in how a leader is chosen, and in
//! nothing else.

use bytes::Bytes;

use super::group::{Group, MemberId};
use super::machine::{Input, OperatorRequest, Output, TermRules};
use super::rank_state::{Due, RankMessage, RankSettings, RankSettingsError, RankState};
use crate::office::Refusal;
use crate::rng::Rng;
use crate::time::Timestamp;

/// How a leader is chosen. An election that is under way is kept here; who leads, and who follows,
/// by the [`RankState`].
pub trait Choice: Sized {
    /// What members say to each other.
    type Message: From<RankMessage>;
    /// No election is under way.
    fn new(rng: &mut Rng) -> Self;
    /// A message that is the same in every election by rank, or another one.
    fn rank_message(message: Self::Message) -> Result<RankMessage, Self::Message>;
    /// Begins an election.
    fn start(&mut self, rank_state: &mut RankState<Self::Message>, now: Timestamp);
    /// A leader is followed: the election is over.
    fn end(&mut self);
    /// Whether to follow one who is said to lead.
    fn accepts(&mut self, rank_state: &mut RankState<Self::Message>, now: Timestamp, leader: MemberId) -> bool;
    /// Time has passed.
    fn on_tick(&mut self, rank_state: &mut RankState<Self::Message>, now: Timestamp);
    /// A member says something about an election.
    fn on_message(
        &mut self,
        rank_state: &mut RankState<Self::Message>,
        now: Timestamp,
        from: MemberId,
        message: Self::Message,
    );
    /// When [`Choice::on_tick`] is due.
    fn next_timeout(&self) -> Option<Timestamp>;
}

/// One member of an election by rank.
///
/// After each [`RankMachine::handle`], take every [`RankMachine::poll_output`], in order, then wait
/// until [`RankMachine::poll_timeout`] at the latest. A tick that comes early does nothing.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RankMachine<C: Choice> {
    rank_state: RankState<C::Message>,
    choice: C,
}

impl<C: Choice> RankMachine<C> {
    /// A member that starts now, with or without a candidate, advertising `value`.
    pub fn new(
        now: Timestamp,
        group: Group,
        settings: RankSettings,
        (candidate, value): (Option<TermRules>, Bytes),
        mut rng: Rng,
    ) -> Result<RankMachine<C>, RankSettingsError> {
        settings.check()?;
        let choice = C::new(&mut rng);
        let mut machine =
            RankMachine { rank_state: RankState::new(now, group, settings, (candidate, value), rng), choice };
        if settings.take_over {
            machine.choice.start(&mut machine.rank_state, now);
        }
        machine.rank_state.finish(now);
        Ok(machine)
    }

    /// Something happened, or time has passed.
    pub fn handle(&mut self, now: Timestamp, input: Input<C::Message>) {
        let RankMachine { rank_state, choice } = self;
        match rank_state.take_in(now, input) {
            Some(Due::Tick) => choice.on_tick(rank_state, now),
            Some(Due::Message(from, message)) => match C::rank_message(message) {
                Ok(message) => self.on_rank_message(now, from, message),
                Err(message) => choice.on_message(rank_state, now, from, message),
            },
            // It may take over, as one that starts may.
            Some(Due::Stand) if rank_state.settings.take_over => choice.start(rank_state, now),
            Some(Due::Stand) | None => {}
        }
        self.rank_state.finish(now);
    }

    fn on_rank_message(&mut self, now: Timestamp, from: MemberId, message: RankMessage) {
        let RankMachine { rank_state, choice } = self;
        match message {
            RankMessage::Beat { echo, version, value, grace } => {
                rank_state.note_beat(now, from, grace);
                if choice.accepts(rank_state, now, from) {
                    choice.end();
                    rank_state.hear(now, from, echo, version, value);
                }
            }
            RankMessage::Heard { echo, version } => rank_state.on_heard(now, from, echo, version),
            RankMessage::Leaving { grace } => rank_state.on_leaving(now, from, grace),
            RankMessage::Left => {
                if rank_state.on_left(now, from) {
                    choice.start(rank_state, now);
                }
            }
        }
    }

    /// What an operator wants of this member, which has to be in office. Accepted: the work is
    /// asked to stop, and who leads next shows what came of it.
    pub fn request(&mut self, now: Timestamp, request: OperatorRequest) -> Result<(), Refusal> {
        self.handle(now, Input::Tick);
        self.rank_state.request(now, request)
    }

    /// What is to be done next.
    pub fn poll_output(&mut self) -> Option<Output<C::Message>> {
        self.rank_state.pop()
    }

    /// When [`Input::Tick`] is due.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let rank_state = self.rank_state.next_timeout()?;
        Some(self.choice.next_timeout().map_or(rank_state, |choice| choice.min(rank_state)))
    }

    /// Whether this member has been chosen. It is in office only between its events.
    pub fn leads(&self) -> bool {
        self.rank_state.leads()
    }

    /// The leader that this member follows.
    pub fn follows(&self, now: Timestamp) -> Option<MemberId> {
        self.rank_state.healthy_leader(now)
    }
}
