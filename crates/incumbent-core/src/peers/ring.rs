//! The ring election: a list goes round, each adds itself, and the highest on it leads.
//!
//! Members are a ring in the order of their ranks. A neighbour that does not confirm a message is
//! skipped. Elections that meet are merged: the one of the higher starter goes on. A list that
//! comes back to anyone on it has been all the way round, also when its starter has died. The
//! winner is told directly, for the way round may end before it, and is followed once it is heard.
//! A partition has a leader in each part: no token, no promise.

use bytes::Bytes;

use super::group::{Group, MAX_MEMBERS, MemberId};
use super::machine::{Input, Output, TermRules, Wish};
use super::pulse::{Due, Pulse, PulseMessage, RankSettings, RankSettingsError};
use crate::office::Refusal;
use crate::rng::Rng;
use crate::time::Timestamp;

/// What members say to each other.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Message {
    /// An election on its way round.
    Election {
        /// For [`Message::Passed`].
        hop: u64,
        /// Who started it.
        starter: MemberId,
        /// Who has passed it on.
        seen: Vec<MemberId>,
        /// The highest of them that is fit to lead.
        best: Option<MemberId>,
    },
    /// The result on its way round.
    Coordinator {
        /// For [`Message::Passed`].
        hop: u64,
        /// Who leads.
        leader: MemberId,
        /// Who has passed it on.
        seen: Vec<MemberId>,
    },
    /// To the neighbour that sent it: I have it.
    Passed {
        /// From the message.
        hop: u64,
    },
    /// Heartbeats.
    Pulse(PulseMessage),
}

impl From<PulseMessage> for Message {
    fn from(message: PulseMessage) -> Message {
        Message::Pulse(message)
    }
}

/// One member of a ring election.
///
/// After each [`Ring::handle`], take every [`Ring::poll_output`], in order, then wait until [`Ring::poll_timeout`] at the
/// latest. A tick that comes early does nothing.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ring {
    pulse: Pulse<Message>,
    /// The election under way: who started it, and until when it may take.
    election: Option<(MemberId, Timestamp)>,
    /// Messages that no neighbour has confirmed yet: at most one election and one result.
    hops: Vec<Hop>,
    next_hop: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Hop {
    message: Passing,
    number: u64,
    /// How many neighbours have been skipped.
    skipped: usize,
    until: Timestamp,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Passing {
    Election { starter: MemberId, seen: Vec<MemberId>, best: Option<MemberId> },
    Coordinator { leader: MemberId, seen: Vec<MemberId> },
}

impl Passing {
    fn numbered(self, hop: u64) -> Message {
        match self {
            Passing::Election { starter, seen, best } => Message::Election { hop, starter, seen, best },
            Passing::Coordinator { leader, seen } => Message::Coordinator { hop, leader, seen },
        }
    }
}

impl Ring {
    /// A member that starts now, with or without a candidate, advertising `value`.
    pub fn new(
        now: Timestamp,
        group: Group,
        settings: RankSettings,
        candidate: (Option<TermRules>, Bytes),
        mut rng: Rng,
    ) -> Result<Ring, RankSettingsError> {
        settings.check()?;
        // Numbers of one life are never taken for those of another.
        let next_hop = rng.next_u64() >> 1;
        let pulse = Pulse::new(now, group, settings, candidate, rng);
        let mut ring = Ring { pulse, election: None, hops: Vec::new(), next_hop };
        if settings.take_over {
            ring.start(now);
        }
        Ok(ring)
    }

    /// Something happened, or time has passed.
    pub fn handle(&mut self, now: Timestamp, input: Input<Message>) {
        match self.pulse.take_in(now, input) {
            Some(Due::Tick) => self.on_tick(now),
            Some(Due::Message(from, message)) => self.on_message(now, from, message),
            // It may take over, as one that starts may.
            Some(Due::Stand) if self.pulse.settings.take_over => self.start(now),
            Some(Due::Stand) | None => {}
        }
        self.pulse.finish(now);
    }

    /// What an operator wants of this member, which has to be in office. Accepted: the work is asked to stop, and who leads
    /// next shows what came of it.
    pub fn wish(&mut self, now: Timestamp, wish: Wish) -> Result<(), Refusal> {
        self.handle(now, Input::Tick);
        self.pulse.wish(now, wish)
    }

    /// What is to be done next.
    pub fn poll_output(&mut self) -> Option<Output<Message>> {
        self.pulse.pop()
    }

    /// When [`Input::Tick`] is due.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let pulse = self.pulse.next_timeout()?;
        let hops = self.hops.iter().map(|hop| hop.until).min();
        let election = self.election.map(|(_, until)| until);
        Some([hops, election].into_iter().flatten().fold(pulse, Timestamp::min))
    }

    /// Whether this member has been chosen. It is in office only between its events.
    pub fn leads(&self) -> bool {
        self.pulse.leads()
    }

    /// The leader that this member follows.
    pub fn follows(&self, now: Timestamp) -> Option<MemberId> {
        self.pulse.healthy_leader(now)
    }

    fn on_tick(&mut self, now: Timestamp) {
        self.skip_dead_neighbours(now);
        let overdue = self.election.take_if(|(_, until)| now >= *until).is_some();
        if overdue || self.pulse.suspects(now) {
            self.pulse.give_up_leader(now);
            self.start(now);
        }
    }

    /// Sends a new list on its way, unless an election is under way already.
    fn start(&mut self, now: Timestamp) {
        if self.election.is_some() || self.pulse.leads() {
            return;
        }
        let me = self.pulse.group.me();
        self.election = Some((me, self.overdue_at(now)));
        let best = self.pulse.is_fit(now).then_some(me);
        self.pass(now, Passing::Election { starter: me, seen: vec![me], best });
    }

    /// Every hop of an election may wait for every dead neighbour.
    fn overdue_at(&self, now: Timestamp) -> Timestamp {
        let members = u32::try_from(self.pulse.group.members().len()).unwrap_or(u32::MAX);
        now + self.pulse.settings.answer_timeout.saturating_mul(members.saturating_mul(2))
    }

    /// Hands a message to the next neighbour. It replaces an unconfirmed one of its kind.
    fn pass(&mut self, now: Timestamp, message: Passing) {
        let kind = std::mem::discriminant(&message);
        self.hops.retain(|hop| std::mem::discriminant(&hop.message) != kind);
        self.try_hop(now, message, 0);
    }

    fn try_hop(&mut self, now: Timestamp, message: Passing, skipped: usize) {
        let Some(neighbour) = self.pulse.group.after_me().nth(skipped) else {
            return self.on_nobody_there(now, message);
        };
        let number = self.next_hop;
        self.next_hop += 1;
        self.pulse.send(neighbour, message.clone().numbered(number));
        let until = now + self.pulse.settings.answer_timeout;
        self.hops.push(Hop { message, number, skipped, until });
    }

    fn skip_dead_neighbours(&mut self, now: Timestamp) {
        let (due, waiting) = std::mem::take(&mut self.hops).into_iter().partition(|hop| now >= hop.until);
        self.hops = waiting;
        let due: Vec<Hop> = due;
        for hop in due {
            self.try_hop(now, hop.message, hop.skipped + 1);
        }
    }

    /// All neighbours are dead: the list ends here.
    fn on_nobody_there(&mut self, now: Timestamp, message: Passing) {
        if let Passing::Election { best, .. } = message {
            self.conclude(now, best);
        }
    }

    fn on_message(&mut self, now: Timestamp, from: MemberId, message: Message) {
        match message {
            Message::Election { hop, starter, seen, best } => {
                self.pulse.send(from, Message::Passed { hop });
                if self.is_sound(&seen, best) && self.pulse.group.contains(starter) {
                    self.on_election(now, starter, seen, best);
                }
            }
            Message::Coordinator { hop, leader, seen } => {
                self.pulse.send(from, Message::Passed { hop });
                if self.is_sound(&seen, Some(leader)) {
                    self.on_result(now, leader, seen);
                }
            }
            Message::Passed { hop } => self.hops.retain(|waiting| waiting.number != hop),
            Message::Pulse(PulseMessage::Beat { echo, version, value, grace }) => {
                self.pulse.note_beat(now, from, grace);
                if self.accepts(now, from) {
                    self.election = None;
                    self.pulse.hear(now, from, echo, version, value);
                }
            }
            Message::Pulse(PulseMessage::Heard { echo, version }) => self.pulse.on_heard(now, from, echo, version),
            Message::Pulse(PulseMessage::Leaving { grace }) => self.pulse.on_leaving(now, from, grace),
            Message::Pulse(PulseMessage::Left) => {
                if self.pulse.on_left(now, from) {
                    self.start(now);
                }
            }
        }
    }

    fn is_sound(&self, seen: &[MemberId], named: Option<MemberId>) -> bool {
        let group = &self.pulse.group;
        seen.len() <= MAX_MEMBERS && seen.iter().chain(&named).all(|member| group.contains(*member))
    }

    fn on_election(&mut self, now: Timestamp, starter: MemberId, mut seen: Vec<MemberId>, best: Option<MemberId>) {
        let me = self.pulse.group.me();
        if self.pulse.leads() && !self.pulse.settings.take_over {
            // The leader that was suspected is here and well.
            return self.pass(now, Passing::Coordinator { leader: me, seen: vec![me] });
        }
        if seen.contains(&me) {
            return self.conclude(now, best);
        }
        if self.election.is_some_and(|(under_way, _)| under_way > starter) {
            // The other election goes on for both.
            return;
        }
        self.election = Some((starter, self.overdue_at(now)));
        seen.push(me);
        let best = best.max(self.pulse.is_fit(now).then_some(me));
        self.pass(now, Passing::Election { starter, seen, best });
    }

    /// The list has been all the way round. The winner is told directly, too: the result's way
    /// round may end before it.
    fn conclude(&mut self, now: Timestamp, best: Option<MemberId>) {
        self.election = None;
        let Some(leader) = best else { return };
        let me = self.pulse.group.me();
        if leader != me && !self.follows_results() {
            let hop = self.next_hop;
            self.next_hop += 1;
            let seen = self.pulse.group.members().iter().copied().filter(|member| *member != leader).collect();
            self.pulse.send(leader, Message::Coordinator { hop, leader, seen });
        }
        self.apply(now, leader);
        self.pass(now, Passing::Coordinator { leader, seen: vec![me] });
    }

    fn on_result(&mut self, now: Timestamp, leader: MemberId, mut seen: Vec<MemberId>) {
        let me = self.pulse.group.me();
        if seen.contains(&me) {
            return;
        }
        self.apply(now, leader);
        seen.push(me);
        if seen.len() < self.pulse.group.members().len() {
            self.pass(now, Passing::Coordinator { leader, seen });
        }
    }

    /// Whether the word of others makes a leader: a known-bad variant.
    fn follows_results(&self) -> bool {
        !self.pulse.settings.policy.waits_for_the_winner()
    }

    /// Takes a result in. Only the winner acts on it: one that never hears of its election must not
    /// be followed, and the leader that sits must not step down for it.
    fn apply(&mut self, now: Timestamp, leader: MemberId) {
        if leader == self.pulse.group.me() {
            if self.pulse.is_fit(now) {
                self.election = None;
                self.pulse.lead(now);
            }
        } else if self.accepts(now, leader) {
            self.election = None;
            if self.follows_results() {
                self.pulse.follow(now, leader);
            }
            self.pulse.listen_anew(now);
        }
    }

    /// Whether to follow one who is said to lead. Of two leaders the higher stays.
    fn accepts(&mut self, now: Timestamp, leader: MemberId) -> bool {
        let me = self.pulse.group.me();
        if self.pulse.leads() {
            return leader > me;
        }
        if leader < me && self.pulse.takes_over(now) {
            self.start(now);
            return false;
        }
        self.pulse.healthy_leader(now).is_none_or(|followed| followed <= leader)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::machine::{Claim, Event, TermNo};

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u32) -> Timestamp {
        Timestamp::ZERO + MS * ms
    }

    fn ids(numbers: &[u16]) -> Vec<MemberId> {
        numbers.iter().copied().map(MemberId).collect()
    }

    fn member(number: u16) -> Ring {
        let group = Group::new(MemberId(number), (1..=4).map(MemberId)).unwrap();
        let settings = RankSettings { take_over: false, ..RankSettings::default() };
        Ring::new(at(0), group, settings, (Some(TermRules::default()), Bytes::new()), Rng::from_number(1)).unwrap()
    }

    fn said(member: &mut Ring) -> Vec<Output<Message>> {
        std::iter::from_fn(|| member.poll_output()).collect()
    }

    /// The lists that it passed on, and to whom.
    fn passed(outputs: &[Output<Message>]) -> Vec<(u16, Vec<MemberId>)> {
        let list = |output: &Output<Message>| match output {
            Output::Send(to, Message::Election { seen, .. }) => Some((to.0, seen.clone())),
            _ => None,
        };
        outputs.iter().filter_map(list).collect()
    }

    fn election(starter: u16, seen: &[u16], best: u16) -> Message {
        Message::Election { hop: 9, starter: MemberId(starter), seen: ids(seen), best: Some(MemberId(best)) }
    }

    fn hears(member: &mut Ring, now: Timestamp, from: u16, message: Message) -> Vec<Output<Message>> {
        member.handle(now, Input::Message(MemberId(from), message));
        said(member)
    }

    #[test]
    fn each_adds_itself_and_dead_neighbours_are_skipped() {
        let mut third = member(3);
        let outputs = hears(&mut third, at(100), 2, election(2, &[2], 2));
        assert!(outputs.contains(&Output::Send(MemberId(2), Message::Passed { hop: 9 })));
        assert_eq!(passed(&outputs), [(4, ids(&[2, 3]))]);
        third.handle(at(600), Input::Tick);
        assert_eq!(passed(&said(&mut third)), [(1, ids(&[2, 3]))], "the fourth did not confirm");
    }

    #[test]
    fn the_starter_picks_the_highest_and_sends_the_result_round() {
        let mut second = member(2);
        second.handle(at(1_500), Input::Tick);
        assert_eq!(passed(&said(&mut second)), [(3, ids(&[2]))]);
        let outputs = hears(&mut second, at(1_600), 1, election(2, &[2, 3, 4, 1], 4));
        let told = |output: &Output<Message>| {
            matches!(output, Output::Send(MemberId(3), Message::Coordinator { leader: MemberId(4), .. }))
        };
        assert!(outputs.iter().any(told), "{outputs:?}");
        let directly = |output: &Output<Message>| matches!(output, Output::Send(MemberId(4), _));
        assert!(outputs.iter().any(directly), "the way round may end before the winner: {outputs:?}");
        assert_eq!(second.follows(at(1_600)), None, "not before it is heard");
        hears(&mut second, at(1_700), 4, beat());
        assert_eq!(second.follows(at(1_700)), Some(MemberId(4)));
    }

    #[test]
    fn a_leader_does_not_step_down_for_a_winner_that_it_does_not_hear() {
        let mut second = member(2);
        second.handle(at(1_500), Input::Tick);
        hears(&mut second, at(1_600), 1, Message::Coordinator { hop: 1, leader: MemberId(2), seen: ids(&[1]) });
        assert!(second.leads());
        hears(&mut second, at(1_700), 1, Message::Coordinator { hop: 2, leader: MemberId(4), seen: ids(&[1]) });
        assert!(second.leads());
        let outputs = hears(&mut second, at(1_800), 4, beat());
        assert!(!second.leads() && second.follows(at(1_800)) == Some(MemberId(4)), "{outputs:?}");
    }

    fn beat() -> Message {
        PulseMessage::Beat { echo: 0, version: 1, value: Some(Bytes::new()), grace: 0 }.into()
    }

    #[test]
    fn a_list_whose_starter_died_ends_with_the_first_that_meets_it_again() {
        let mut third = member(3);
        hears(&mut third, at(100), 2, election(2, &[2], 2));
        let outputs = hears(&mut third, at(200), 1, election(2, &[2, 3, 4, 1], 4));
        assert_eq!(passed(&outputs), [], "it does not circle for ever");
        let result = |output: &Output<Message>| {
            matches!(output, Output::Send(_, Message::Coordinator { leader: MemberId(4), .. }))
        };
        assert!(outputs.iter().any(result), "{outputs:?}");
    }

    #[test]
    fn elections_that_meet_are_merged_into_the_higher_starters() {
        let mut second = member(2);
        second.handle(at(1_500), Input::Tick);
        said(&mut second);
        assert_eq!(passed(&hears(&mut second, at(1_510), 1, election(1, &[1], 1))), [], "ours goes on for both");
        let outputs = hears(&mut second, at(1_520), 1, election(4, &[4, 1], 4));
        assert_eq!(passed(&outputs), [(3, ids(&[4, 1, 2]))], "theirs goes on for both");
    }

    #[test]
    fn a_member_with_no_living_neighbour_leads_alone() {
        let mut second = member(2);
        for ms in [1_500, 2_000, 2_500, 3_000] {
            second.handle(at(ms), Input::Tick);
        }
        assert!(second.leads());
        let elected = Event::Elected { term: TermNo(1), claim: Claim::Rank, deadline: Timestamp::MAX };
        assert!(said(&mut second).contains(&Output::Event(elected)));
    }

    #[test]
    fn a_healthy_leader_that_meets_an_election_answers_with_the_result() {
        let mut leader = member(2);
        hears(&mut leader, at(10), 1, Message::Coordinator { hop: 1, leader: MemberId(2), seen: ids(&[1]) });
        assert!(leader.leads());
        let outputs = hears(&mut leader, at(20), 1, election(1, &[4, 1], 4));
        assert_eq!(passed(&outputs), []);
        let result = |output: &Output<Message>| {
            matches!(output, Output::Send(_, Message::Coordinator { leader: MemberId(2), .. }))
        };
        assert!(outputs.iter().any(result), "{outputs:?}");
    }

    #[test]
    fn lists_with_strangers_are_dropped() {
        let mut third = member(3);
        assert_eq!(passed(&hears(&mut third, at(100), 2, election(2, &[2, 77], 77))), []);
        assert_eq!(passed(&hears(&mut third, at(100), 2, election(99, &[2], 2))), []);
    }
}
