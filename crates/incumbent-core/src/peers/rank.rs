//! One member of an election by rank. Bully and ring differ in how a leader is chosen, and in
//! nothing else.

use bytes::Bytes;

use super::group::{Group, MemberId};
use super::machine::{Input, Output, TermRules, Wish};
use super::pulse::{Due, Pulse, PulseMessage, RankSettings, RankSettingsError};
use crate::office::Refusal;
use crate::rng::Rng;
use crate::time::Timestamp;

/// How a leader is chosen. An election that is under way is kept here; who leads, and who follows,
/// by the [`Pulse`].
pub trait Choice: Sized {
    /// What members say to each other.
    type Message: From<PulseMessage>;
    /// No election is under way.
    fn new(rng: &mut Rng) -> Self;
    /// A message that is the same in every election by rank, or another one.
    fn pulse_of(message: Self::Message) -> Result<PulseMessage, Self::Message>;
    /// Begins an election.
    fn start(&mut self, pulse: &mut Pulse<Self::Message>, now: Timestamp);
    /// A leader is followed: the election is over.
    fn end(&mut self);
    /// Whether to follow one who is said to lead.
    fn accepts(&mut self, pulse: &mut Pulse<Self::Message>, now: Timestamp, leader: MemberId) -> bool;
    /// Time has passed.
    fn on_tick(&mut self, pulse: &mut Pulse<Self::Message>, now: Timestamp);
    /// A member says something about an election.
    fn on_message(&mut self, pulse: &mut Pulse<Self::Message>, now: Timestamp, from: MemberId, message: Self::Message);
    /// When [`Choice::on_tick`] is due.
    fn next_timeout(&self) -> Option<Timestamp>;
}

/// One member of an election by rank.
///
/// After each [`RankMachine::handle`], take every [`RankMachine::poll_output`], in order, then wait
/// until [`RankMachine::poll_timeout`] at the latest. A tick that comes early does nothing.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RankMachine<C: Choice> {
    pulse: Pulse<C::Message>,
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
        let mut machine = RankMachine { pulse: Pulse::new(now, group, settings, (candidate, value), rng), choice };
        if settings.take_over {
            machine.choice.start(&mut machine.pulse, now);
        }
        machine.pulse.finish(now);
        Ok(machine)
    }

    /// Something happened, or time has passed.
    pub fn handle(&mut self, now: Timestamp, input: Input<C::Message>) {
        let RankMachine { pulse, choice } = self;
        match pulse.take_in(now, input) {
            Some(Due::Tick) => choice.on_tick(pulse, now),
            Some(Due::Message(from, message)) => match C::pulse_of(message) {
                Ok(message) => self.on_pulse(now, from, message),
                Err(message) => choice.on_message(pulse, now, from, message),
            },
            // It may take over, as one that starts may.
            Some(Due::Stand) if pulse.settings.take_over => choice.start(pulse, now),
            Some(Due::Stand) | None => {}
        }
        self.pulse.finish(now);
    }

    fn on_pulse(&mut self, now: Timestamp, from: MemberId, message: PulseMessage) {
        let RankMachine { pulse, choice } = self;
        match message {
            PulseMessage::Beat { echo, version, value, grace } => {
                pulse.note_beat(now, from, grace);
                if choice.accepts(pulse, now, from) {
                    choice.end();
                    pulse.hear(now, from, echo, version, value);
                }
            }
            PulseMessage::Heard { echo, version } => pulse.on_heard(now, from, echo, version),
            PulseMessage::Leaving { grace } => pulse.on_leaving(now, from, grace),
            PulseMessage::Left => {
                if pulse.on_left(now, from) {
                    choice.start(pulse, now);
                }
            }
        }
    }

    /// What an operator wants of this member, which has to be in office. Accepted: the work is
    /// asked to stop, and who leads next shows what came of it.
    pub fn wish(&mut self, now: Timestamp, wish: Wish) -> Result<(), Refusal> {
        self.handle(now, Input::Tick);
        self.pulse.wish(now, wish)
    }

    /// What is to be done next.
    pub fn poll_output(&mut self) -> Option<Output<C::Message>> {
        self.pulse.pop()
    }

    /// When [`Input::Tick`] is due.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let pulse = self.pulse.next_timeout()?;
        Some(self.choice.next_timeout().map_or(pulse, |choice| choice.min(pulse)))
    }

    /// Whether this member has been chosen. It is in office only between its events.
    pub fn leads(&self) -> bool {
        self.pulse.leads()
    }

    /// The leader that this member follows.
    pub fn follows(&self, now: Timestamp) -> Option<MemberId> {
        self.pulse.healthy_leader(now)
    }
}
