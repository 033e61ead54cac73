//! The ring election: a list goes round, each adds itself, and the highest on it leads.
//!
//! Members are a ring in the order of their ranks. A neighbour that does not confirm a message is
//! skipped. Elections that meet are merged: the one of the higher starter goes on. A list that
//! comes back to anyone on it has been all the way round, also when its starter has died. The
//! winner is told directly, for the way round may end before it, and is followed once it is heard.
//! A partition has a leader in each part: no token, no promise.

use super::group::{MAX_MEMBERS, MemberId};
use super::rank::{Choice, RankMachine};
use super::rank_state::{RankMessage, RankState};
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
    Rank(RankMessage),
}

impl From<RankMessage> for Message {
    fn from(message: RankMessage) -> Message {
        Message::Rank(message)
    }
}

/// One member of a ring election.
pub type Ring = RankMachine<HighestOnTheList>;

/// How a ring election chooses: by a list that goes round.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HighestOnTheList {
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

impl Choice for HighestOnTheList {
    type Message = Message;

    fn new(rng: &mut Rng) -> HighestOnTheList {
        // Numbers of one life are never taken for those of another.
        HighestOnTheList { election: None, hops: Vec::new(), next_hop: rng.next_u64() >> 1 }
    }

    fn rank_message(message: Message) -> Result<RankMessage, Message> {
        if let Message::Rank(message) = message { Ok(message) } else { Err(message) }
    }

    /// Sends a new list on its way, unless an election is under way already.
    fn start(&mut self, rank_state: &mut RankState<Message>, now: Timestamp) {
        if self.election.is_some() || rank_state.leads() {
            return;
        }
        let me = rank_state.group.me();
        self.election = Some((me, self.overdue_at(rank_state, now)));
        let best = rank_state.is_fit(now).then_some(me);
        self.pass(rank_state, now, Passing::Election { starter: me, seen: vec![me], best });
    }

    fn end(&mut self) {
        self.election = None;
    }

    /// Whether to follow one who is said to lead. Of two leaders the higher stays.
    fn accepts(&mut self, rank_state: &mut RankState<Message>, now: Timestamp, leader: MemberId) -> bool {
        let me = rank_state.group.me();
        if rank_state.leads() {
            return leader > me;
        }
        if leader < me && rank_state.takes_over(now) {
            self.start(rank_state, now);
            return false;
        }
        rank_state.healthy_leader(now).is_none_or(|followed| followed <= leader)
    }

    fn on_tick(&mut self, rank_state: &mut RankState<Message>, now: Timestamp) {
        self.skip_dead_neighbours(rank_state, now);
        let overdue = self.election.take_if(|(_, until)| now >= *until).is_some();
        if overdue || rank_state.suspects(now) {
            rank_state.give_up_leader(now);
            self.start(rank_state, now);
        }
    }

    fn on_message(&mut self, rank_state: &mut RankState<Message>, now: Timestamp, from: MemberId, message: Message) {
        match message {
            Message::Election { hop, starter, seen, best } => {
                rank_state.send(from, Message::Passed { hop });
                if self.is_sound(rank_state, &seen, best) && rank_state.group.contains(starter) {
                    self.on_election(rank_state, now, starter, seen, best);
                }
            }
            Message::Coordinator { hop, leader, seen } => {
                rank_state.send(from, Message::Passed { hop });
                if self.is_sound(rank_state, &seen, Some(leader)) {
                    self.on_result(rank_state, now, leader, seen);
                }
            }
            Message::Passed { hop } => self.hops.retain(|waiting| waiting.number != hop),
            // The machine around it hears these.
            Message::Rank(_) => {}
        }
    }

    fn next_timeout(&self) -> Option<Timestamp> {
        let hops = self.hops.iter().map(|hop| hop.until).min();
        let election = self.election.map(|(_, until)| until);
        [hops, election].into_iter().flatten().min()
    }
}

impl HighestOnTheList {
    /// Every hop of an election may wait for every dead neighbour.
    fn overdue_at(&self, rank_state: &RankState<Message>, now: Timestamp) -> Timestamp {
        let members = u32::try_from(rank_state.group.members().len()).unwrap_or(u32::MAX);
        now + rank_state.settings.answer_timeout.saturating_mul(members.saturating_mul(2))
    }

    /// Hands a message to the next neighbour. It replaces an unconfirmed one of its kind.
    fn pass(&mut self, rank_state: &mut RankState<Message>, now: Timestamp, message: Passing) {
        let kind = std::mem::discriminant(&message);
        self.hops.retain(|hop| std::mem::discriminant(&hop.message) != kind);
        self.try_hop(rank_state, now, message, 0);
    }

    fn try_hop(&mut self, rank_state: &mut RankState<Message>, now: Timestamp, message: Passing, skipped: usize) {
        let Some(neighbour) = rank_state.group.after_me().nth(skipped) else {
            return self.on_nobody_there(rank_state, now, message);
        };
        let number = self.next_hop;
        self.next_hop += 1;
        rank_state.send(neighbour, message.clone().numbered(number));
        let until = now + rank_state.settings.answer_timeout;
        self.hops.push(Hop { message, number, skipped, until });
    }

    fn skip_dead_neighbours(&mut self, rank_state: &mut RankState<Message>, now: Timestamp) {
        let (due, waiting) = std::mem::take(&mut self.hops).into_iter().partition(|hop| now >= hop.until);
        self.hops = waiting;
        let due: Vec<Hop> = due;
        for hop in due {
            self.try_hop(rank_state, now, hop.message, hop.skipped + 1);
        }
    }

    /// All neighbours are dead: the list ends here.
    fn on_nobody_there(&mut self, rank_state: &mut RankState<Message>, now: Timestamp, message: Passing) {
        if let Passing::Election { best, .. } = message {
            self.conclude(rank_state, now, best);
        }
    }

    fn is_sound(&self, rank_state: &RankState<Message>, seen: &[MemberId], named: Option<MemberId>) -> bool {
        let group = &rank_state.group;
        seen.len() <= MAX_MEMBERS && seen.iter().chain(&named).all(|member| group.contains(*member))
    }

    fn on_election(
        &mut self,
        rank_state: &mut RankState<Message>,
        now: Timestamp,
        starter: MemberId,
        mut seen: Vec<MemberId>,
        best: Option<MemberId>,
    ) {
        let me = rank_state.group.me();
        if rank_state.leads() && !rank_state.settings.take_over {
            // The leader that was suspected is here and well.
            return self.pass(rank_state, now, Passing::Coordinator { leader: me, seen: vec![me] });
        }
        if seen.contains(&me) {
            return self.conclude(rank_state, now, best);
        }
        if self.election.is_some_and(|(under_way, _)| under_way > starter) {
            // The other election goes on for both.
            return;
        }
        self.election = Some((starter, self.overdue_at(rank_state, now)));
        seen.push(me);
        let best = best.max(rank_state.is_fit(now).then_some(me));
        self.pass(rank_state, now, Passing::Election { starter, seen, best });
    }

    /// The list has been all the way round. The winner is told directly, too: the result's way
    /// round may end before it.
    fn conclude(&mut self, rank_state: &mut RankState<Message>, now: Timestamp, best: Option<MemberId>) {
        self.election = None;
        let Some(leader) = best else { return };
        let me = rank_state.group.me();
        if leader != me && !self.follows_results(rank_state) {
            let hop = self.next_hop;
            self.next_hop += 1;
            let seen = rank_state.group.members().iter().copied().filter(|member| *member != leader).collect();
            rank_state.send(leader, Message::Coordinator { hop, leader, seen });
        }
        self.apply(rank_state, now, leader);
        self.pass(rank_state, now, Passing::Coordinator { leader, seen: vec![me] });
    }

    fn on_result(
        &mut self,
        rank_state: &mut RankState<Message>,
        now: Timestamp,
        leader: MemberId,
        mut seen: Vec<MemberId>,
    ) {
        let me = rank_state.group.me();
        if seen.contains(&me) {
            return;
        }
        self.apply(rank_state, now, leader);
        seen.push(me);
        if seen.len() < rank_state.group.members().len() {
            self.pass(rank_state, now, Passing::Coordinator { leader, seen });
        }
    }

    /// Whether the word of others makes a leader: a known-bad variant.
    fn follows_results(&self, rank_state: &RankState<Message>) -> bool {
        !rank_state.settings.policy.waits_for_the_winner()
    }

    /// Takes a result in. Only the winner acts on it: one that never hears of its election must not
    /// be followed, and the leader that sits must not step down for it.
    fn apply(&mut self, rank_state: &mut RankState<Message>, now: Timestamp, leader: MemberId) {
        if leader == rank_state.group.me() {
            if rank_state.is_fit(now) {
                self.election = None;
                rank_state.lead(now);
            }
        } else if self.accepts(rank_state, now, leader) {
            self.election = None;
            if self.follows_results(rank_state) {
                rank_state.follow(now, leader);
            }
            rank_state.listen_anew(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::machine::{Event, TermNo, Title};
    use crate::peers::{Group, Input, Output, RankSettings, TermRules};
    use crate::terms::LastTerm;

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
        RankMessage::Beat { echo: 0, version: 1, value: Some(Bytes::new()), grace: 0 }.into()
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
        let elected = Event::Elected {
            term: TermNo(1),
            title: Title::Rank,
            last_term: LastTerm::Unknown,
            deadline: Timestamp::MAX,
        };
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
