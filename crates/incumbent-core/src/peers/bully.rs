//! The bully election: the highest rank that answers leads.
//!
//! A member that suspects the leader asks all higher ranks. An answer hands the election over to
//! them; silence makes the asker leader. A partition has a leader in each part: no token, no
//! promise.

use super::group::MemberId;
use super::rank::{Choice, RankMachine};
use super::rank_state::{RankMessage, RankState};
use crate::rng::Rng;
use crate::time::Timestamp;

/// What members say to each other.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Message {
    /// To higher ranks: does any of you live?
    Election,
    /// To a lower rank: I do; leave it to me.
    Alive,
    /// I lead from now on, as soon as you have left if it is you who leads.
    Coordinator,
    /// Heartbeats.
    Rank(RankMessage),
}

impl From<RankMessage> for Message {
    fn from(message: RankMessage) -> Message {
        Message::Rank(message)
    }
}

/// One member of a bully election.
pub type Bully = RankMachine<HighestAnswers>;

/// How a bully election chooses: by asking.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HighestAnswers {
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Stage {
    Quiet,
    /// Higher ranks have been asked.
    Asking {
        until: Timestamp,
    },
    /// A higher rank lives: it has this long to become leader.
    Deferring {
        until: Timestamp,
    },
}

impl Choice for HighestAnswers {
    type Message = Message;

    fn new(_: &mut Rng) -> HighestAnswers {
        HighestAnswers { stage: Stage::Quiet }
    }

    fn rank_message(message: Message) -> Result<RankMessage, Message> {
        if let Message::Rank(message) = message { Ok(message) } else { Err(message) }
    }

    /// Asks all higher ranks. With none there, this member leads.
    fn start(&mut self, rank_state: &mut RankState<Message>, now: Timestamp) {
        self.stage = Stage::Quiet;
        if !rank_state.is_fit(now) || rank_state.leads() {
            return;
        }
        let me = rank_state.group.me();
        let higher: Vec<_> = rank_state.group.others().filter(|member| *member > me).collect();
        if higher.is_empty() {
            return self.win(rank_state, now);
        }
        for member in higher {
            rank_state.send(member, Message::Election);
        }
        self.stage = Stage::Asking { until: now + rank_state.settings.answer_timeout };
    }

    fn end(&mut self) {
        self.stage = Stage::Quiet;
    }

    /// Whether to follow one who says that it leads. Of two leaders the higher stays.
    fn accepts(&mut self, rank_state: &mut RankState<Message>, now: Timestamp, leader: MemberId) -> bool {
        let me = rank_state.group.me();
        if rank_state.leads() && leader < me {
            rank_state.send(leader, Message::Coordinator);
            return false;
        }
        if leader < me && rank_state.takes_over(now) {
            if self.stage == Stage::Quiet {
                self.start(rank_state, now);
            }
            return false;
        }
        rank_state.healthy_leader(now).is_none_or(|followed| followed <= leader)
    }

    fn on_tick(&mut self, rank_state: &mut RankState<Message>, now: Timestamp) {
        match self.stage {
            Stage::Asking { until } if now >= until => self.win(rank_state, now),
            Stage::Deferring { until } if now >= until => self.start(rank_state, now),
            Stage::Quiet if rank_state.suspects(now) => {
                rank_state.give_up_leader(now);
                self.start(rank_state, now);
            }
            _ => {}
        }
        if rank_state.suspects(now) {
            // An election is under way: no second alarm.
            rank_state.give_up_leader(now);
        }
    }

    fn on_message(&mut self, rank_state: &mut RankState<Message>, now: Timestamp, from: MemberId, message: Message) {
        match message {
            Message::Election => self.on_asked(rank_state, now, from),
            Message::Alive => {
                if let Stage::Asking { .. } = self.stage {
                    self.stage = Stage::Deferring { until: now + rank_state.settings.leader_timeout };
                }
            }
            Message::Coordinator => {
                if self.accepts(rank_state, now, from) {
                    self.stage = Stage::Quiet;
                    rank_state.follow(now, from);
                }
            }
            // The machine around it hears these.
            Message::Rank(_) => {}
        }
    }

    fn next_timeout(&self) -> Option<Timestamp> {
        match self.stage {
            Stage::Asking { until } | Stage::Deferring { until } => Some(until),
            Stage::Quiet => None,
        }
    }
}

impl HighestAnswers {
    fn win(&mut self, rank_state: &mut RankState<Message>, now: Timestamp) {
        self.stage = Stage::Quiet;
        if !rank_state.is_fit(now) {
            return;
        }
        for member in rank_state.group.others() {
            rank_state.send(member, Message::Coordinator);
        }
        rank_state.lead(now);
    }

    fn on_asked(&mut self, rank_state: &mut RankState<Message>, now: Timestamp, from: MemberId) {
        if from > rank_state.group.me() || !(rank_state.leads() || rank_state.is_fit(now)) {
            return;
        }
        rank_state.send(from, Message::Alive);
        // The question may be an old one: a member that has just started does not know yet that
        // another leads.
        let keeps_leader = !rank_state.takes_over(now) && rank_state.may_be_led(now);
        if rank_state.leads() {
            rank_state.send(from, Message::Coordinator);
        } else if self.stage == Stage::Quiet && !keeps_leader {
            self.start(rank_state, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::machine::{Command, Event, LossReason, TermNo, Title};
    use crate::peers::policy::RankPolicy;
    use crate::peers::{Group, Input, Output, RankSettings, TermRules};
    use crate::standing::Cas;
    use crate::terms::LastTerm;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u32) -> Timestamp {
        Timestamp::ZERO + MS * ms
    }

    fn member(number: u16, settings: RankSettings) -> Bully {
        let group = Group::new(MemberId(number), (1..=5).map(MemberId)).unwrap();
        Bully::new(at(0), group, settings, (Some(TermRules::default()), Bytes::new()), Rng::from_number(1)).unwrap()
    }

    /// What the member says, but for whom its candidate follows.
    fn said(member: &mut Bully) -> Vec<Output<Message>> {
        let outputs = std::iter::from_fn(|| member.poll_output());
        outputs.filter(|output| !matches!(output, Output::Event(Event::Follows { .. } | Event::Out(_)))).collect()
    }

    /// What its candidate is shown.
    fn shown(member: &mut Bully) -> Vec<Output<Message>> {
        let outputs = std::iter::from_fn(|| member.poll_output());
        outputs.filter(|output| matches!(output, Output::Event(Event::Follows { .. } | Event::Out(_)))).collect()
    }

    fn send(to: u16, message: Message) -> Output<Message> {
        Output::Send(MemberId(to), message)
    }

    fn beat() -> Message {
        RankMessage::Beat { echo: 0, version: 1, value: Some(Bytes::new()), grace: 700_000_000 }.into()
    }

    fn hears(member: &mut Bully, now: Timestamp, from: u16, message: Message) -> Vec<Output<Message>> {
        member.handle(now, Input::Message(MemberId(from), message));
        said(member)
    }

    const PATIENT: RankSettings = RankSettings {
        heartbeat: Duration::from_millis(250),
        leader_timeout: Duration::from_millis(1_500),
        answer_timeout: Duration::from_millis(500),
        grace: Duration::from_millis(500),
        majority: false,
        take_over: false,
        policy: RankPolicy::SOUND,
    };

    #[test]
    fn who_suspects_the_leader_asks_the_higher_ranks_and_leaves_it_to_one_that_answers() {
        let mut third = member(3, PATIENT);
        hears(&mut third, at(0), 5, beat());
        third.handle(at(1_500), Input::Tick);
        let asked = [Output::Event(Event::Vacant), send(4, Message::Election), send(5, Message::Election)];
        assert_eq!(said(&mut third), asked);
        hears(&mut third, at(1_600), 4, Message::Alive);
        third.handle(at(2_000), Input::Tick);
        assert!(!third.leads(), "the fourth has the election now");
        hears(&mut third, at(2_100), 4, Message::Coordinator);
        assert_eq!(third.follows(at(2_100)), Some(MemberId(4)));
    }

    #[test]
    fn silence_of_all_higher_ranks_makes_a_leader_that_says_so_to_all() {
        let mut fourth = member(4, PATIENT);
        let answer = hears(&mut fourth, at(1_500), 3, Message::Election);
        assert_eq!(answer, [send(3, Message::Alive), send(5, Message::Election)]);
        fourth.handle(at(2_000), Input::Tick);
        let outputs = said(&mut fourth);
        for other in [1, 2, 3, 5] {
            assert!(outputs.contains(&send(other, Message::Coordinator)));
        }
        let elected = Event::Elected {
            term: TermNo(1),
            title: Title::Rank,
            last_term: LastTerm::Unknown,
            deadline: Timestamp::MAX,
        };
        assert!(outputs.contains(&Output::Event(elected)));
    }

    #[test]
    fn a_higher_rank_takes_over_a_healthy_leader_only_where_that_is_wanted() {
        let mut patient = member(5, PATIENT);
        hears(&mut patient, at(10), 3, beat());
        assert_eq!(patient.follows(at(10)), Some(MemberId(3)));
        let mut bully = member(5, RankSettings { take_over: true, ..PATIENT });
        assert!(bully.leads(), "the highest asks nobody");
        assert!(hears(&mut bully, at(10), 3, beat()).contains(&send(3, Message::Coordinator)));
    }

    #[test]
    fn a_question_from_before_its_start_does_not_make_the_highest_take_over_where_that_is_not_wanted() {
        let mut highest = member(5, PATIENT);
        assert_eq!(hears(&mut highest, at(10), 3, Message::Election), [send(3, Message::Alive)]);
        assert!(!highest.leads());
        hears(&mut highest, at(20), 4, beat());
        assert_eq!(highest.follows(at(20)), Some(MemberId(4)));
        let mut alone = member(5, PATIENT);
        hears(&mut alone, at(10), 3, Message::Election);
        alone.handle(at(1_500), Input::Tick);
        assert!(alone.leads(), "nobody was heard in time");
    }

    #[test]
    fn of_two_leaders_the_lower_steps_down() {
        let mut fourth = member(4, PATIENT);
        fourth.handle(at(1_500), Input::Tick);
        fourth.handle(at(2_000), Input::Tick);
        assert!(fourth.leads());
        said(&mut fourth);
        let outputs = hears(&mut fourth, at(2_100), 5, Message::Coordinator);
        let leaving = || send(5, RankMessage::Leaving { grace: 500_000_000 }.into());
        let stopping = Event::Stopping { why: LossReason::Superseded, hard_stop: at(2_600) };
        assert_eq!(outputs, [Output::Event(stopping), leaving()], "its work gets the grace");
        assert!(!fourth.leads() && fourth.follows(at(2_100)) == Some(MemberId(5)));
        assert_eq!(hears(&mut fourth, at(2_200), 5, beat()), [leaving()], "it does not follow yet");
        fourth.handle(at(2_300), Input::Command(Command::Release));
        let over = [Event::Unelected(LossReason::Superseded), Event::Released].map(Output::Event);
        let outputs = said(&mut fourth);
        assert_eq!(outputs, [&over[..], &[send(5, RankMessage::Left.into())]].concat());
        let outputs = hears(&mut fourth, at(2_350), 5, beat());
        assert!(outputs.iter().any(|output| matches!(output, Output::Event(Event::Led { .. }))));
    }

    #[test]
    fn a_candidate_is_shown_whom_it_follows_and_one_at_work_not_before_its_work_has_stopped() {
        let follows = |leader| Output::Event(Event::Follows { leader, term: None });
        let mut fourth = member(4, PATIENT);
        fourth.handle(at(1_500), Input::Tick);
        assert_eq!(shown(&mut fourth), [follows(None)]);
        fourth.handle(at(2_000), Input::Tick);
        assert!(fourth.leads());
        fourth.handle(at(2_100), Input::Message(MemberId(5), Message::Coordinator));
        // The hard stop has passed, and the fifth leads.
        fourth.handle(at(2_600), Input::Message(MemberId(5), beat()));
        fourth.handle(at(2_700), Input::Message(MemberId(5), beat()));
        assert_eq!(shown(&mut fourth), []);
        fourth.handle(at(2_800), Input::Command(Command::Release));
        assert_eq!(shown(&mut fourth), [follows(Some(MemberId(5)))]);
        fourth.handle(at(2_900), Input::Command(Command::Healthy(false)));
        assert_eq!(shown(&mut fourth), [Output::Event(Event::Out(LossReason::Unhealthy))]);
    }

    #[test]
    fn a_candidate_that_is_unfit_to_begin_with_is_elected_once_it_is_fit() {
        let mut first = member(1, PATIENT);
        let unfit = TermRules { unfit: true, ..TermRules::default() };
        first.handle(at(1), Input::Stand(unfit, Bytes::new()));
        assert_eq!(shown(&mut first).last(), Some(&Output::Event(Event::Out(LossReason::Unhealthy))));
        for now in (100..10_000).step_by(100) {
            first.handle(at(now), Input::Tick);
            assert!(!first.leads(), "at {now} ms");
        }
        first.handle(at(10_000), Input::Command(Command::Healthy(true)));
        (10_100..20_000).step_by(100).for_each(|now| first.handle(at(now), Input::Tick));
        assert!(first.leads());
    }

    /// What the member was told.
    fn events(outputs: &[Output<Message>]) -> Vec<&Event> {
        outputs.iter().filter_map(|output| if let Output::Event(event) = output { Some(event) } else { None }).collect()
    }

    #[test]
    fn who_takes_over_is_in_office_once_the_one_before_has_left_or_has_had_its_time() {
        let elected = Event::Elected {
            term: TermNo(1),
            title: Title::Rank,
            last_term: LastTerm::Unknown,
            deadline: Timestamp::MAX,
        };
        let taker = || {
            let mut taker = member(5, RankSettings { take_over: true, ..PATIENT });
            let outputs = said(&mut taker);
            assert!(taker.leads() && events(&outputs).is_empty(), "somebody may lead: {outputs:?}");
            hears(&mut taker, at(100), 4, RankMessage::Leaving { grace: 700_000_000 }.into());
            for other in 1..4 {
                let outputs = hears(&mut taker, at(110), other, RankMessage::Heard { echo: 0, version: 0 }.into());
                assert!(events(&outputs).is_empty(), "{outputs:?}");
            }
            taker.handle(at(1_600), Input::Tick);
            assert!(events(&said(&mut taker)).is_empty(), "the fourth is still at work");
            taker
        };
        let outputs = hears(&mut taker(), at(1_700), 4, RankMessage::Left.into());
        assert_eq!(events(&outputs), [&elected]);
        let outputs = hears(&mut taker(), at(1_700), 4, RankMessage::Heard { echo: 0, version: 0 }.into());
        assert_eq!(events(&outputs), [&elected], "a member that follows has left office");
        // 100 ms, the fourth's grace, the timeout.
        let mut silent = taker();
        silent.handle(at(2_299), Input::Tick);
        assert!(events(&said(&mut silent)).is_empty());
        silent.handle(at(2_550), Input::Tick);
        assert_eq!(events(&said(&mut silent)), [&elected]);
    }

    #[test]
    fn a_leader_that_was_heard_and_not_followed_is_waited_for_too() {
        let mut fifth = member(5, RankSettings { take_over: true, ..PATIENT });
        fifth.handle(at(0), Input::Command(Command::Healthy(false)));
        assert!(!fifth.leads());
        said(&mut fifth);
        fifth.handle(at(2_000), Input::Command(Command::Healthy(true)));
        let outputs = hears(&mut fifth, at(2_010), 3, beat());
        assert!(fifth.leads() && events(&outputs).is_empty(), "{outputs:?}");
        let outputs = hears(&mut fifth, at(2_100), 3, RankMessage::Left.into());
        assert!(matches!(events(&outputs)[..], [Event::Elected { .. }]), "{outputs:?}");
    }

    #[test]
    fn with_the_majority_rule_office_needs_answers_and_ends_without_them() {
        let mut highest = member(5, RankSettings { take_over: true, majority: true, ..PATIENT });
        assert!(highest.leads());
        assert!(!said(&mut highest).iter().any(|output| matches!(output, Output::Event(_))));
        for other in 1..4 {
            hears(&mut highest, at(10), other, RankMessage::Heard { echo: 0, version: 0 }.into());
        }
        let heard = hears(&mut highest, at(20), 4, RankMessage::Heard { echo: 0, version: 0 }.into());
        let elected =
            Event::Elected { term: TermNo(1), title: Title::Rank, last_term: LastTerm::Unknown, deadline: at(1_500) };
        assert_eq!(heard, [Output::Event(elected)]);
        highest.handle(at(1_000), Input::Tick);
        highest.handle(at(1_500), Input::Tick);
        let events: Vec<_> =
            said(&mut highest).into_iter().filter(|output| matches!(output, Output::Event(_))).collect();
        let stopping = Event::Stopping { why: LossReason::LocalDeadline, hard_stop: at(1_500) };
        let unelected = Event::Unelected(LossReason::LocalDeadline);
        assert_eq!(events, [stopping, unelected, Event::Released].map(Output::Event));
    }

    #[test]
    fn a_leader_that_gives_up_tells_the_others_who_elect_at_once_and_it_rests() {
        let mut highest = member(5, RankSettings { take_over: true, ..PATIENT });
        highest.handle(at(1_500), Input::Tick);
        said(&mut highest);
        highest.handle(at(1_600), Input::Command(Command::Release));
        let outputs = said(&mut highest);
        assert!(outputs.contains(&send(1, RankMessage::Left.into())), "{outputs:?}");
        assert_eq!(hears(&mut highest, at(1_700), 4, Message::Election), [], "it rests");
        for ms in (2_000..20_000).step_by(500) {
            hears(&mut highest, at(ms), 4, beat());
            assert_eq!(highest.follows(at(ms)), Some(MemberId(4)), "the leader after it is left alone");
        }
        highest.handle(at(21_100), Input::Tick);
        assert!(highest.leads(), "nobody leads any more");
        let mut fourth = member(4, PATIENT);
        hears(&mut fourth, at(50), 5, beat());
        let outputs = hears(&mut fourth, at(110), 5, RankMessage::Left.into());
        assert!(outputs.contains(&send(5, Message::Election)), "{outputs:?}");
    }

    /// In office with a majority, then without one: its work is asked to stop.
    fn without_majority() -> Bully {
        let mut highest = member(5, RankSettings { take_over: true, majority: true, ..PATIENT });
        for other in 1..5 {
            hears(&mut highest, at(10), other, RankMessage::Heard { echo: 0, version: 0 }.into());
        }
        highest.handle(at(1_000), Input::Tick);
        let outputs = said(&mut highest);
        assert!(events(&outputs).iter().any(|event| matches!(event, Event::Stopping { .. })), "{outputs:?}");
        highest
    }

    fn majority_returns(highest: &mut Bully) -> Vec<Output<Message>> {
        let mut outputs = said(highest);
        for ms in (1_250u32..60_000).step_by(250) {
            highest.handle(at(ms), Input::Tick);
            outputs.extend(said(highest));
            for other in 1..5 {
                let echo = u64::from(ms) * 1_000_000;
                outputs.extend(hears(highest, at(ms), other, RankMessage::Heard { echo, version: 0 }.into()));
            }
        }
        outputs
    }

    #[test]
    fn one_that_leaves_after_the_majority_was_lost_is_gone_and_not_elected_again() {
        let mut highest = without_majority();
        highest.handle(at(1_100), Input::Command(Command::Leave));
        highest.handle(at(1_100), Input::Command(Command::Release));
        let outputs = majority_returns(&mut highest);
        let told = events(&outputs);
        assert!(!told.iter().any(|event| matches!(event, Event::Elected { .. })), "{told:?}");
        assert!(told.iter().any(|event| matches!(event, Event::Done { .. })), "{told:?}");
    }

    #[test]
    fn one_that_is_unhealthy_after_the_majority_was_lost_is_not_elected_again() {
        let mut highest = without_majority();
        highest.handle(at(1_100), Input::Command(Command::Healthy(false)));
        highest.handle(at(1_100), Input::Command(Command::Release));
        let outputs = majority_returns(&mut highest);
        let told = events(&outputs);
        assert!(!told.iter().any(|event| matches!(event, Event::Elected { .. })), "{told:?}");
    }

    #[test]
    fn one_that_closes_after_the_majority_was_lost_closes() {
        let mut highest = without_majority();
        highest.handle(at(1_100), Input::Close);
        highest.handle(at(1_100), Input::Command(Command::Release));
        let outputs = majority_returns(&mut highest);
        let told = events(&outputs);
        assert!(!told.iter().any(|event| matches!(event, Event::Elected { .. })), "{told:?}");
        assert!(outputs.iter().any(|output| matches!(output, Output::Closed)));
    }

    #[test]
    fn a_proclamation_that_is_refused_is_not_advertised_later() {
        let mut highest = member(5, PATIENT);
        hears(&mut highest, at(0), 4, beat());
        highest.handle(at(1), Input::Command(Command::Proclaim(7, "new".into())));
        assert_eq!(events(&said(&mut highest)), [&Event::Proclaimed(7, Cas::Refused)]);
        highest.handle(at(1_501), Input::Tick);
        let outputs = said(&mut highest);
        let values = |output: &Output<Message>| match output {
            Output::Send(_, Message::Rank(RankMessage::Beat { value, .. })) => value.clone(),
            _ => None,
        };
        let advertised: Vec<_> = outputs.iter().filter_map(values).collect();
        assert_eq!(advertised, vec![Bytes::new(); 4], "{outputs:?}");
    }
}
