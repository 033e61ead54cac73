//! Members talking to each other directly, message by message.

use std::collections::VecDeque;

use super::*;
use crate::entry::Nonce;
use crate::machine::{TermNo, Title};
use crate::peers::machine::OperatorRequest;
use crate::standing::{Cas, Fault};
use crate::terms::LastTerm;

const MS: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(60);

fn at(ms: u64) -> Timestamp {
    Timestamp::ZERO + MS * u32::try_from(ms).unwrap()
}

fn member(number: u16, boot: Boot, settings: ConsensusSettings, now: Timestamp) -> Consensus {
    let group = Group::new(MemberId(number), (0..3).map(MemberId)).unwrap();
    let value = candidate(&format!("value {number}"));
    Consensus::new(now, group, settings, boot, value, Rng::from_number(u64::from(number) + 1)).unwrap()
}

/// One that has no fences, and does not hold on to its office.
fn candidate(value: &str) -> (Option<TermRules>, Bytes) {
    (Some(TermRules::default()), Bytes::copy_from_slice(value.as_bytes()))
}

fn fresh(number: u16) -> Consensus {
    member(number, Boot::New, ConsensusSettings::default(), at(0))
}

fn term(number: u64) -> Token {
    Token::new(number).unwrap()
}

/// Takes the outputs; the disk answers at once.
fn outputs(member: &mut Consensus, now: Timestamp) -> Vec<Output> {
    let mut taken = Vec::new();
    while let Some(output) = member.poll_output() {
        if let Output::Persist(id, _) = output {
            member.handle(now, Input::Persisted(id));
        }
        taken.push(output);
    }
    taken
}

/// What a candidate is shown that waits for a leader.
const NOBODY_LEADS: Event = Event::Follows { leader: None, term: None };

fn events(outputs: &[Output]) -> Vec<Event> {
    outputs
        .iter()
        .filter_map(|output| if let Output::Event(event) = output { Some(event.clone()) } else { None })
        .collect()
}

/// A vote, whatever is said with it of who was in office last.
fn voted(term: Token, granted: bool) -> Message {
    Message::Voted { term, granted, last: LastOffice::default() }
}

fn says(outputs: &[Output], to: u16, message: &Message) -> bool {
    outputs.iter().any(|output| match output {
        Output::Send(of, Message::Voted { term, granted, .. }) if *of == MemberId(to) => {
            voted(*term, *granted) == *message
        }
        Output::Send(of, said) => *of == MemberId(to) && said == message,
        _ => false,
    })
}

/// Delivers everything between the members, at one moment, until nothing is left to say. The answer
/// is what the users were told.
fn talk(members: &mut [Consensus], now: Timestamp) -> Vec<(u16, Event)> {
    let mut told = Vec::new();
    let mut flying = VecDeque::new();
    for _ in 0..10_000 {
        for member in members.iter_mut() {
            let me = member.group().me();
            for output in outputs(member, now) {
                match output {
                    Output::Send(to, message) => flying.push_back((me, to, message)),
                    Output::Event(event) => told.push((me.0, event)),
                    _ => {}
                }
            }
        }
        let Some((from, to, message)) = flying.pop_front() else { return told };
        if let Some(member) = members.iter_mut().find(|member| member.group().me() == to) {
            member.handle(now, Input::Message(from, message));
        }
    }
    panic!("they talk without end");
}

/// Three members of which the first leads term 1, elected at the returned moment.
fn with_leader() -> (Vec<Consensus>, Timestamp) {
    let mut members: Vec<_> = (0..3).map(fresh).collect();
    talk(&mut members, at(0));
    let now = members[0].poll_timeout().unwrap();
    members[0].handle(now, Input::Tick);
    talk(&mut members, now);
    assert_eq!(members[0].office(), Some(term(1)));
    (members, now)
}

#[test]
fn a_silent_group_elects_one_and_all_learn_its_value() {
    let mut members: Vec<_> = (0..3).map(fresh).collect();
    talk(&mut members, at(0));
    let now = members[0].poll_timeout().unwrap();
    members[0].handle(now, Input::Tick);
    let told = talk(&mut members, now);
    let lease = ConsensusSettings::default().lease_of(MS * 1_500);
    let (title, last_term, deadline) = (Title::Term(term(1)), LastTerm::None, now + lease - MS * 50);
    let elected = Event::Elected { term: TermNo(1), title, last_term, deadline };
    assert!(told.contains(&(0, elected)), "{told:?}");
    let news = Event::Led { leader: MemberId(0), term: Some(term(1)), value: "value 0".into() };
    assert!(told.contains(&(1, news.clone())) && told.contains(&(2, news)), "{told:?}");
}

/// How the last term ended, as the leader is told who is elected last.
fn told_last(told: &[(u16, Event)]) -> Option<LastTerm> {
    told.iter().rev().find_map(|(_, event)| match event {
        Event::Elected { last_term, .. } => Some(*last_term),
        _ => None,
    })
}

#[test]
fn the_next_leader_is_told_whether_the_work_of_the_last_one_has_stopped() {
    // It says so, and hands over.
    let (mut members, now) = with_leader();
    members[0].handle(now, Input::Command(Command::Release));
    assert_eq!(told_last(&talk(&mut members, now)), Some(LastTerm::Closed));
    // All members know, and not only the heir.
    let heir = members.iter().position(|member| member.office().is_some()).unwrap();
    let second = LastOffice { term: 2, is_closed: false };
    assert!(members.iter().all(|member| member.stored.last == second), "each has written down who leads now");
    // It dies, and says nothing.
    let mut others: Vec<_> = members.into_iter().enumerate().filter(|(at, _)| *at != heir).map(|(_, m)| m).collect();
    let mut told = Vec::new();
    let mut later = now;
    while told_last(&told).is_none() {
        later = others.iter().filter_map(Consensus::poll_timeout).min().unwrap().max(later);
        for member in &mut others {
            member.handle(later, Input::Tick);
        }
        told.extend(talk(&mut others, later));
    }
    assert_eq!(told_last(&told), Some(LastTerm::Unfenced));
}

#[test]
fn work_that_stops_after_the_hard_stop_closes_its_term_unless_another_has_led_since() {
    let (mut members, now) = with_leader();
    members[0].handle(now, Input::Command(Command::Healthy(false)));
    let hard_stop = now + ConsensusSettings::default().grace;
    members[0].handle(hard_stop, Input::Tick);
    // Its work goes on. The next one is elected before it says anything.
    assert_eq!(told_last(&talk(&mut members, hard_stop)), Some(LastTerm::Unfenced));
    members[0].handle(hard_stop, Input::Command(Command::Release));
    let said = outputs(&mut members[0], hard_stop);
    assert!(!said.iter().any(|output| matches!(output, Output::Send(_, Message::Closed { .. }))), "{said:?}");
    assert_eq!(members[1].stored.last, LastOffice { term: 2, is_closed: false });
}

#[test]
fn nothing_is_said_before_the_state_that_it_depends_on_is_durable() {
    let mut voter = fresh(1);
    outputs(&mut voter, at(0));
    let ask = Message::Vote { term: term(1), position: Position::NONE, forfeited: None };
    voter.handle(at(1), Input::Message(MemberId(0), ask));
    let mut ids = Vec::new();
    while let Some(output) = voter.poll_output() {
        match output {
            Output::Persist(id, stored) => ids.push((id, stored)),
            other => panic!("said before it was durable: {other:?}"),
        }
    }
    let (last, stored) = *ids.last().unwrap();
    assert_eq!((stored.term, stored.ballot), (1, Ballot::For(MemberId(0))));
    voter.handle(at(2), Input::Persisted(ids[0].0));
    assert_eq!(voter.poll_output(), None, "the term is durable, the vote is not");
    voter.handle(at(3), Input::Persisted(last));
    assert!(says(&outputs(&mut voter, at(3)), 0, &voted(term(1), true)));
}

#[test]
fn a_member_whose_disk_fails_falls_silent_and_says_so() {
    let mut voter = fresh(1);
    outputs(&mut voter, at(0));
    let ask = Message::Vote { term: term(1), position: Position::NONE, forfeited: None };
    voter.handle(at(1), Input::Message(MemberId(0), ask));
    voter.handle(at(2), Input::PersistFailed(PersistId(2)));
    let said = outputs(&mut voter, at(2));
    let failed = [Event::NotVoting(Abstention::CannotPersist), Event::Failed, Event::Done { certain: true }];
    assert_eq!(events(&said), failed);
    assert!(!said.iter().any(|output| matches!(output, Output::Send(..))));
    assert_eq!(voter.poll_timeout(), None);
}

#[test]
fn a_voter_that_hears_a_leader_refuses_a_later_term_and_does_not_adopt_it() {
    let (mut members, now) = with_leader();
    let late = Message::Vote { term: term(9), position: Position::NONE, forfeited: None };
    members[1].handle(now + MS * 1_499, Input::Message(MemberId(2), late.clone()));
    let said = outputs(&mut members[1], now);
    assert!(says(&said, 2, &voted(term(9), false)));
    assert_eq!(members[1].term(), 1);
    members[1].handle(now + MS * 1_500, Input::Message(MemberId(2), late));
    let said = outputs(&mut members[1], now);
    assert!(says(&said, 2, &voted(term(9), true)), "the promise is over: {said:?}");
}

#[test]
fn a_leader_with_a_lease_refuses_votes_and_one_without_quorum_drains_and_ends_at_its_deadline() {
    let (mut members, now) = with_leader();
    let settings = ConsensusSettings::default();
    let deadline = now + settings.lease_of(settings.election_min) - settings.margin;
    let leader = &mut members[0];
    let ask = Message::Vote { term: term(2), position: Position::NONE, forfeited: None };
    leader.handle(now + MS, Input::Message(MemberId(2), ask));
    assert_eq!(leader.office(), Some(term(1)));
    leader.handle(deadline - settings.grace, Input::Tick);
    let said = outputs(leader, now);
    assert!(
        events(&said).contains(&Event::Stopping { why: LossReason::LocalDeadline, hard_stop: deadline }),
        "{said:?}"
    );
    leader.handle(deadline, Input::Tick);
    assert_eq!(events(&outputs(leader, now)), [Event::Unelected(LossReason::LocalDeadline), Event::Released]);
    assert_eq!(leader.office(), None);
}

#[test]
fn an_acknowledgement_counts_from_when_its_heartbeat_was_sent_and_a_late_one_revives_nothing() {
    let (mut members, now) = with_leader();
    let settings = ConsensusSettings::default();
    let leader = &mut members[0];
    let ack = |echo: Timestamp| {
        let promise = 1_500_000_000;
        Message::Ack {
            term: term(1),
            echo: echo.as_nanos(),
            promise,
            position: Position::NONE,
            version: 1,
            stands: true,
        }
    };
    let sent = now + MS * 250;
    leader.handle(sent, Input::Tick);
    outputs(leader, sent);
    leader.handle(sent + MS * 500, Input::Message(MemberId(1), ack(sent)));
    let deadline = sent + settings.lease_of(MS * 1_500) - settings.margin;
    assert!(events(&outputs(leader, now)).contains(&Event::Deadline(deadline)));
    leader.handle(deadline + MS, Input::Message(MemberId(1), ack(sent + MS * 500)));
    assert_eq!(leader.office(), None, "the term was over when the answer came");
}

#[test]
fn a_restarted_member_keeps_its_vote_and_votes_for_nobody_until_old_promises_are_over() {
    let stored = Stored { term: 4, ballot: Ballot::For(MemberId(0)), abstain: MS * 3_000, ..Stored::default() };
    let mut voter = member(1, Boot::Restarted(stored), ConsensusSettings::default(), at(0));
    assert_eq!(events(&outputs(&mut voter, at(0))), [Event::NotVoting(Abstention::Restarted), NOBODY_LEADS]);
    let ask = |number| Message::Vote { term: term(number), position: Position::NONE, forfeited: Some(term(4)) };
    voter.handle(at(3_002), Input::Message(MemberId(2), ask(5)));
    assert!(says(&outputs(&mut voter, at(0)), 2, &voted(term(5), false)));
    // 3 s and what drift may add to them.
    voter.handle(at(3_003), Input::Message(MemberId(2), ask(4)));
    let said = outputs(&mut voter, at(0));
    assert_eq!(events(&said), [Event::Voting]);
    assert!(says(&said, 2, &voted(term(4), false)), "that vote is given");
    voter.handle(at(3_004), Input::Message(MemberId(2), ask(5)));
    assert!(says(&outputs(&mut voter, at(0)), 2, &voted(term(5), true)));
}

#[test]
fn the_abstention_of_a_longer_timeout_outlives_the_change_of_settings() {
    let stored = Stored { term: 1, abstain: MS * 10_000, ..Stored::default() };
    let mut voter = member(1, Boot::Restarted(stored), ConsensusSettings::default(), at(0));
    voter.handle(at(10_000), Input::Tick);
    assert_eq!(events(&outputs(&mut voter, at(0))), [Event::NotVoting(Abstention::Restarted), NOBODY_LEADS]);
    voter.handle(at(10_010), Input::Tick);
    let written = outputs(&mut voter, at(0)).into_iter().find_map(|output| match output {
        Output::Persist(_, stored) => Some(stored.abstain),
        _ => None,
    });
    assert_eq!(written, Some(MS * 3_000), "now the shorter time will do");
}

#[test]
fn a_wiped_member_waits_for_all_others_and_abstains_in_the_highest_term() {
    let mut wiped = member(1, Boot::Lost, ConsensusSettings::default(), at(0));
    let said = outputs(&mut wiped, at(0));
    assert_eq!(events(&said), [Event::NotVoting(Abstention::StateLost), NOBODY_LEADS]);
    let nonce = said
        .iter()
        .find_map(|output| match output {
            Output::Send(_, Message::AskTerm { nonce }) => Some(*nonce),
            _ => None,
        })
        .unwrap();
    let told = |term| LastOffice { term: term - 3, is_closed: term == 5 };
    let tell = |nonce, term| Message::TellTerm { nonce, term, position: Position::NONE, last: told(term) };
    wiped.handle(at(1), Input::Message(MemberId(0), tell(nonce, 7)));
    wiped.handle(at(2), Input::Message(MemberId(2), tell(Nonce(nonce.0 ^ 1), 9)));
    let ask = |number| Message::Vote { term: term(number), position: Position::NONE, forfeited: None };
    wiped.handle(at(9_000), Input::Message(MemberId(0), ask(8)));
    assert_eq!(wiped.role(), PeerRole::Rejoining, "one other has not answered in this life");
    assert!(
        !outputs(&mut wiped, at(9_000)).iter().any(|output| matches!(output, Output::Send(_, Message::Voted { .. })))
    );
    wiped.handle(at(9_001), Input::Message(MemberId(2), tell(nonce, 5)));
    outputs(&mut wiped, at(9_001));
    assert_eq!((wiped.role(), wiped.term()), (PeerRole::Follower, 7));
    assert_eq!(wiped.stored.last, told(7), "a leader that it has voted for may have been in office");
    wiped.handle(at(9_002), Input::Message(MemberId(0), ask(7)));
    assert!(says(&outputs(&mut wiped, at(9_002)), 0, &voted(term(7), false)));
    wiped.handle(at(9_003), Input::Message(MemberId(0), ask(8)));
    assert!(says(&outputs(&mut wiped, at(9_003)), 0, &voted(term(8), true)));
}

#[test]
fn a_group_of_one_leads_alone_and_cannot_come_back_from_a_lost_state() {
    let group = Group::new(MemberId(0), [MemberId(0)]).unwrap();
    let start = |boot| {
        let settings = ConsensusSettings::default();
        Consensus::new(at(0), group.clone(), settings, boot, candidate(""), Rng::from_number(1)).unwrap()
    };
    let mut alone = start(Boot::New);
    outputs(&mut alone, at(0));
    alone.handle(at(3_000), Input::Tick);
    let said = outputs(&mut alone, at(3_000));
    assert!(said.contains(&Output::Event(Event::Elected {
        term: TermNo(1),
        title: Title::Term(term(1)),
        last_term: LastTerm::None,
        deadline: Timestamp::MAX
    })));
    let mut lost = start(Boot::Lost);
    lost.handle(at(100_000), Input::Tick);
    let failed = [Event::NotVoting(Abstention::StateLostAlone), Event::Failed, Event::Done { certain: true }];
    assert_eq!(events(&outputs(&mut lost, at(0))), failed);
    assert_eq!(lost.role(), PeerRole::Rejoining);
}

#[test]
fn a_transfer_ends_the_term_before_the_heir_stands_and_the_heir_wins_at_once() {
    let (mut members, now) = with_leader();
    members[0].handle(now, Input::Command(Command::Transfer(Successor::Member(MemberId(2)), PATIENCE)));
    let said = outputs(&mut members[0], now);
    let ended = said.iter().position(|output| *output == Output::Event(Event::Unelected(LossReason::Transferred)));
    let sent = said.iter().position(|output| matches!(output, Output::Send(_, Message::TimeoutNow { .. })));
    assert!(ended.unwrap() < sent.unwrap());
    members[2].handle(now, Input::Message(MemberId(0), Message::TimeoutNow { term: term(1) }));
    let told = talk(&mut members, now);
    assert!(told.iter().any(|(who, event)| *who == 2 && matches!(event, Event::Elected { .. })), "{told:?}");
    assert_eq!((members[0].office(), members[2].office()), (None, Some(term(2))));
}

#[test]
fn a_forced_vote_frees_only_those_who_heard_a_leader_in_exactly_the_forfeited_term() {
    let (mut members, now) = with_leader();
    let forced = |number, forfeited| Message::Vote {
        term: term(number),
        position: Position::NONE,
        forfeited: Some(term(forfeited)),
    };
    let refused = voted(term(3), false);
    members[1].handle(now, Input::Message(MemberId(2), forced(3, 2)));
    assert!(says(&outputs(&mut members[1], now), 2, &refused), "another term was forfeited");
    members[1].handle(now, Input::Message(MemberId(2), forced(2, 1)));
    assert!(says(&outputs(&mut members[1], now), 2, &voted(term(2), true)));
}

#[test]
fn a_late_or_doubled_timeout_now_does_nothing() {
    let (mut members, now) = with_leader();
    let order = Input::Message(MemberId(0), Message::TimeoutNow { term: term(1) });
    members[2].handle(now, order.clone());
    assert_eq!((members[2].role(), members[2].term()), (PeerRole::Candidate, 2));
    members[2].handle(now, order.clone());
    assert_eq!(members[2].term(), 2);
    let mut stranger = fresh(1);
    stranger.handle(now, order);
    assert_eq!((stranger.role(), stranger.term()), (PeerRole::Follower, 0), "it never heard that leader");
}

#[test]
fn a_transfer_to_nobody_to_the_silent_or_to_one_behind_is_refused_and_the_leader_leads_on() {
    let (mut members, now) = with_leader();
    let leader = &mut members[0];
    leader.handle(now, Input::Position(Position { token: 1, index: 3 }));
    let mut refusal = |heir, now| {
        leader.handle(now, Input::Command(Command::Transfer(Successor::Member(MemberId(heir)), PATIENCE)));
        events(&outputs(leader, now))
    };
    assert_eq!(refusal(7, now), [Event::TransferRefused(Refusal::NotAMember)]);
    assert_eq!(refusal(0, now), [Event::TransferRefused(Refusal::NotAMember)]);
    assert_eq!(refusal(1, now), [Event::TransferRefused(Refusal::HeirBehind)]);
    assert_eq!(leader.office(), Some(term(1)));
    members[1].handle(now, Input::Command(Command::Transfer(Successor::Member(MemberId(2)), PATIENCE)));
    let said = events(&outputs(&mut members[1], now));
    assert_eq!(said, [Event::TransferRefused(Refusal::NotInOffice)]);
}

#[test]
fn a_vote_waits_for_the_seal_and_compares_what_was_read_after_it() {
    let settings = ConsensusSettings { positions: true, ..ConsensusSettings::default() };
    let mut voter = member(1, Boot::New, settings, at(0));
    outputs(&mut voter, at(0));
    let ours = Position { token: 2, index: 7 };
    for (theirs, granted) in [(Position { token: 1, index: 10 }, false), (Position { token: 2, index: 7 }, true)] {
        let number = voter.term() + 3;
        let ask = Message::Vote { term: term(number), position: theirs, forfeited: None };
        voter.handle(at(1), Input::Message(MemberId(0), ask));
        let said = outputs(&mut voter, at(1));
        let seal = said.iter().find_map(|output| match output {
            Output::Seal(id, floor) if floor.get() == number => Some(*id),
            _ => None,
        });
        assert!(!said.iter().any(|output| matches!(output, Output::Send(..))), "not before the seal: {said:?}");
        voter.handle(at(2), Input::Sealed(seal.unwrap(), ours));
        let said = outputs(&mut voter, at(2));
        assert!(says(&said, 0, &voted(term(number), granted)), "{theirs:?}: {said:?}");
    }
}

#[test]
fn an_unhealthy_leader_drains_and_does_not_stand_but_votes() {
    let (mut members, now) = with_leader();
    members[0].handle(now, Input::Command(Command::Healthy(false)));
    assert!(matches!(events(&outputs(&mut members[0], now))[..], [Event::Stopping { why: LossReason::Unhealthy, .. }]));
    members[0].handle(now, Input::Command(Command::Release));
    let told = talk(&mut members, now);
    assert!(told.contains(&(0, Event::Unelected(LossReason::Unhealthy))), "{told:?}");
    assert_eq!(members[0].office(), None);
    assert!(members[1..].iter().any(|member| member.office() == Some(term(2))), "the fittest stood at once: {told:?}");
}

#[test]
fn a_candidate_that_is_unfit_to_begin_with_stands_once_it_is_fit_and_votes_before() {
    let unfit = TermRules { unfit: true, ..TermRules::default() };
    let (mut members, now) = with_leader();
    for member in &mut members {
        member.handle(now, Input::Stand(unfit, Bytes::new()));
    }
    let told = talk(&mut members, now);
    assert!(told.contains(&(1, Event::Out(LossReason::Unhealthy))), "{told:?}");
    members[0].handle(now, Input::Command(Command::Release));
    talk(&mut members, now);
    members[1].handle(now, Input::Command(Command::Healthy(true)));
    let later = members[1].poll_timeout().unwrap() + ConsensusSettings::default().election_max;
    for member in &mut members {
        member.handle(later, Input::Tick);
    }
    talk(&mut members, later);
    let offices: Vec<_> = members.iter().map(|member| member.office().is_some()).collect();
    assert_eq!(offices.iter().position(|leads| *leads), Some(1), "{offices:?}");
}

#[test]
fn closing_drains_ends_the_term_and_is_the_last_that_is_heard() {
    let (mut members, now) = with_leader();
    members[0].handle(now, Input::Close);
    members[0].handle(now, Input::Command(Command::Release));
    let said = outputs(&mut members[0], now);
    assert!(events(&said).contains(&Event::Unelected(LossReason::Closing)), "{said:?}");
    assert_eq!(said.last(), Some(&Output::Closed));
    assert_eq!((members[0].poll_timeout(), members[0].role()), (None, PeerRole::Out));
}

#[test]
fn a_member_cut_off_and_back_deposes_nobody() {
    let (mut members, now) = with_leader();
    let alone = &mut members[2];
    for _ in 0..5 {
        let due = alone.poll_timeout().unwrap();
        alone.handle(due, Input::Tick);
        outputs(alone, due);
    }
    assert_eq!((alone.role(), alone.term()), (PeerRole::Sounding, 1), "it only asked whether it would win");
    let ask = Message::PreVote { term: term(2), round: 1, position: Position::NONE };
    members[1].handle(now + MS, Input::Message(MemberId(2), ask));
    let said = outputs(&mut members[1], now);
    assert!(says(&said, 2, &Message::PreVoted { round: 1, term: 1, granted: false }), "{said:?}");
}

#[test]
fn a_proclaimed_value_reaches_members_and_those_who_ask_them() {
    let (mut members, now) = with_leader();
    members[0].handle(now, Input::Command(Command::Proclaim(7, "new".into())));
    let told = talk(&mut members, now);
    for who in [1, 2] {
        let news = Event::Led { leader: MemberId(0), term: Some(term(1)), value: "new".into() };
        assert!(told.contains(&(who, news)), "{told:?}");
        let member = &members[usize::from(who)];
        let report = Report { term: 1, leader: Some(MemberId(0)), value: "new".into() };
        assert_eq!(member.report(now), report);
        let later = now + ConsensusSettings::default().election_max * 2;
        assert_eq!(member.report(later).leader, None, "a leader that was not heard for so long may have lost office");
        assert_eq!(member.report(later).term, 1);
    }
}

#[test]
fn a_follower_that_restarted_is_told_the_value_again() {
    let (mut members, now) = with_leader();
    let stored = Stored { term: 1, ballot: Ballot::For(MemberId(0)), abstain: MS * 3_000, ..Stored::default() };
    members[1] = member(1, Boot::Restarted(stored), ConsensusSettings::default(), now);
    let mut told = Vec::new();
    for beat in 1..=2 {
        let now = now + MS * 250 * beat;
        members[0].handle(now, Input::Tick);
        told.extend(talk(&mut members, now));
    }
    assert!(told.iter().any(|(who, event)| *who == 1 && matches!(event, Event::Led { .. })), "{told:?}");
}

#[test]
fn an_heir_that_could_not_stand_gets_no_office_and_one_that_could_gets_it_at_once() {
    let (mut members, now) = with_leader();
    members[2].handle(now, Input::Command(Command::Healthy(false)));
    let later = now + MS * 250;
    members[0].handle(later, Input::Tick);
    talk(&mut members, later);
    members[0].handle(later, Input::Command(Command::Transfer(Successor::Member(MemberId(2)), PATIENCE)));
    let refused = (0, Event::TransferRefused(Refusal::HeirUnfit));
    let mut later = later;
    for beat in 1..=8 {
        assert!(!talk(&mut members, later).contains(&refused), "it may be fit in a moment: {beat}");
        later = later + MS * 250;
        members[0].handle(later, Input::Tick);
    }
    assert!(talk(&mut members, later).contains(&refused));
    assert_eq!(members[0].office(), Some(term(1)), "it leads on");
    members[0].handle(later, Input::Command(Command::Release));
    talk(&mut members, later);
    assert_eq!(members[1].office(), Some(term(2)), "the other one stands at once");
}

#[test]
fn a_restarted_heir_is_waited_for_until_it_votes() {
    let (mut members, now) = with_leader();
    let abstain = MS * 1_200;
    let stored = Stored { term: 1, ballot: Ballot::For(MemberId(0)), abstain, ..Stored::default() };
    let settings =
        ConsensusSettings { election_min: MS * 1_100, election_max: abstain, ..ConsensusSettings::default() };
    members[1] = member(1, Boot::Restarted(stored), settings, now);
    let now = now + MS * 250;
    members[0].handle(now, Input::Tick);
    talk(&mut members, now);
    members[0].handle(now, Input::Command(Command::Transfer(Successor::Member(MemberId(1)), PATIENCE)));
    for beat in 1..=7 {
        let now = now + MS * 250 * beat;
        members[0].handle(now, Input::Tick);
        let told = talk(&mut members, now);
        assert!(!told.iter().any(|(_, event)| matches!(event, Event::TransferRefused(_))), "{told:?}");
    }
    assert_eq!(members[1].office(), Some(term(2)));
}

#[test]
fn who_resigns_leaves_it_to_all_others_first() {
    let (mut members, now) = with_leader();
    for other in [1, 2] {
        members[other].handle(now, Input::Command(Command::Healthy(false)));
    }
    let later = now + MS * 250;
    members[0].handle(later, Input::Tick);
    talk(&mut members, later);
    members[0].handle(later, Input::Command(Command::Release));
    let said = outputs(&mut members[0], later);
    assert!(!said.iter().any(|output| matches!(output, Output::Send(_, Message::TimeoutNow { .. }))), "{said:?}");
    let longest = ConsensusSettings::default().election_max;
    assert!(members[0].poll_timeout().unwrap() > later + longest, "everybody else may stand before");
}

/// Ticks everybody that is due, and delivers everything, until this is so.
fn until(members: &mut [Consensus], mut now: Timestamp, done: impl Fn(&[Consensus]) -> bool) -> Option<Timestamp> {
    for _ in 0..2_000 {
        talk(members, now);
        if done(members) {
            return Some(now);
        }
        now = members.iter().filter_map(Consensus::poll_timeout).min()?.max(now);
        for member in members.iter_mut().filter(|member| member.poll_timeout().is_some_and(|due| due <= now)) {
            member.handle(now, Input::Tick);
        }
    }
    None
}

fn in_group_of(size: u16, number: u16, boot: Boot) -> Consensus {
    let group = Group::new(MemberId(number), (0..size).map(MemberId)).unwrap();
    let rng = Rng::from_number(u64::from(number) + 1);
    Consensus::new(at(0), group, ConsensusSettings::default(), boot, candidate(""), rng).unwrap()
}

#[test]
fn two_of_three_that_lost_their_state_come_back_by_an_operators_word_to_one_of_them() {
    let kept = Boot::Restarted(Stored { term: 7, abstain: MS * 3_000, ..Stored::default() });
    let mut members: Vec<_> = [kept, Boot::Lost, Boot::Lost]
        .into_iter()
        .zip(0..)
        .map(|(boot, number)| in_group_of(3, number, boot))
        .collect();
    assert_eq!(until(&mut members, at(0), |members| members[1].role() != PeerRole::Rejoining), None);
    let now = at(600_000);
    members[1].handle(now, Input::Readmit);
    talk(&mut members, now);
    assert_eq!((members[1].role(), members[1].term()), (PeerRole::Follower, 7 + TERMS_SKIPPED));
    let somebody = LastOffice { term: 7 + TERMS_SKIPPED, is_closed: false };
    assert_eq!(members[1].stored.last, somebody, "one whom nobody knows may be in office");
    let vote = Message::Vote { term: term(7 + TERMS_SKIPPED), position: Position::NONE, forfeited: None };
    members[1].handle(now, Input::Message(MemberId(0), vote));
    let refused = voted(term(7 + TERMS_SKIPPED), false);
    assert!(says(&outputs(&mut members[1], now), 0, &refused));
    let led = until(&mut members, now, |members| {
        members.iter().any(|member| member.office().is_some())
            && members.iter().all(|member| member.role() != PeerRole::Rejoining)
    });
    assert!(led.is_some(), "the other one comes back by itself");
    let token = members.iter().find_map(Consensus::office).unwrap();
    assert!(token.get() > 7 + TERMS_SKIPPED, "{token}");
}

#[test]
fn readmitted_with_nobody_left_who_knows_a_term_it_goes_on_waiting() {
    let mut lost = in_group_of(3, 1, Boot::Lost);
    outputs(&mut lost, at(0));
    lost.handle(at(1), Input::Readmit);
    outputs(&mut lost, at(1));
    assert_eq!(lost.role(), PeerRole::Rejoining);
}

#[test]
fn two_of_five_that_lost_their_state_come_back_by_themselves_above_all_terms_that_may_have_been() {
    let kept = |term| Boot::Restarted(Stored { term, abstain: MS * 3_000, ..Stored::default() });
    let boots = [kept(4), kept(9), kept(6), Boot::Lost, Boot::Lost];
    let mut members: Vec<_> = boots.into_iter().zip(0..).map(|(boot, number)| in_group_of(5, number, boot)).collect();
    let back = until(&mut members, at(0), |members| members[3..].iter().all(|lost| lost.role() != PeerRole::Rejoining));
    assert!(back.is_some());
    assert!(members[3..].iter().all(|lost| lost.term() >= 9 + TERMS_SKIPPED));
}

#[test]
fn what_was_told_before_another_was_known_to_be_lost_does_not_count() {
    let mut lost = in_group_of(5, 3, Boot::Lost);
    let nonce = |said: &[Output]| {
        let nonces = said.iter().filter_map(|output| match output {
            Output::Send(_, Message::AskTerm { nonce }) => Some(*nonce),
            _ => None,
        });
        nonces.last().unwrap()
    };
    let first = nonce(&outputs(&mut lost, at(0)));
    let tell = |from, nonce, term| {
        Input::Message(
            MemberId(from),
            Message::TellTerm { nonce, term, position: Position::NONE, last: LastOffice::default() },
        )
    };
    for from in 0..3 {
        lost.handle(at(1), tell(from, first, 4));
    }
    lost.handle(at(2), Input::Message(MemberId(4), Message::LostToo { nonce: first }));
    let second = nonce(&outputs(&mut lost, at(2)));
    assert_ne!(first, second);
    assert_eq!(lost.role(), PeerRole::Rejoining, "all are asked again");
    for from in 0..3 {
        lost.handle(at(3), tell(from, second, 4 + u64::from(from)));
    }
    outputs(&mut lost, at(3));
    assert_eq!((lost.role(), lost.term()), (PeerRole::Follower, 6 + TERMS_SKIPPED));
}

/// Three members of which the first leads, with these rules.
fn with_leader_that(rules: TermRules) -> (Vec<Consensus>, Timestamp) {
    let mut members: Vec<_> = (0..3).map(fresh).collect();
    talk(&mut members, at(0));
    members[0].handle(at(0), Input::Stand(rules, "value 0".into()));
    let now = members[0].poll_timeout().unwrap();
    members[0].handle(now, Input::Tick);
    talk(&mut members, now);
    (members, now)
}

const FENCED: TermRules = TermRules { fenced: true, hold_until_stopped: false, unfit: false };
const HOLDS: TermRules = TermRules { fenced: false, hold_until_stopped: true, unfit: false };

/// Lets everybody beat and answer for so long. What the users were told.
fn pass(members: &mut [Consensus], now: &mut Timestamp, time: Duration) -> Vec<(u16, Event)> {
    let until = *now + time;
    let mut told = Vec::new();
    while *now < until {
        *now = (*now + MS * 50).min(until);
        for member in members.iter_mut().filter(|member| member.poll_timeout().is_some_and(|due| due <= *now)) {
            member.handle(*now, Input::Tick);
        }
        told.extend(talk(members, *now));
    }
    told
}

#[test]
fn nobody_is_in_office_before_the_fences_are_raised_and_meanwhile_the_lease_is_kept() {
    let (mut members, mut now) = with_leader_that(FENCED);
    assert_eq!((members[0].role(), members[0].office()), (PeerRole::Leader, None));
    let told = pass(&mut members, &mut now, MS * 5_000);
    assert!(!told.iter().any(|(_, event)| matches!(event, Event::Elected { .. } | Event::Led { .. })), "{told:?}");
    assert_eq!(members[0].role(), PeerRole::Leader, "the others go on promising");
    members[0].handle(now, Input::Fences(term(7), Ok(())));
    assert_eq!(members[0].office(), None, "those were another term's");
    members[0].handle(now, Input::Fences(term(1), Ok(())));
    let told = talk(&mut members, now);
    assert_eq!(members[0].office(), Some(term(1)));
    assert!(told.iter().any(|(who, event)| *who == 1 && matches!(event, Event::Led { .. })), "{told:?}");
}

#[test]
fn fences_that_fail_are_raised_again_and_one_that_refuses_for_good_ends_the_candidacy() {
    let (mut members, now) = with_leader_that(FENCED);
    let raises = |said: &[Output]| said.iter().filter(|output| matches!(output, Output::RaiseFences(_))).count();
    members[0].handle(now, Input::Fences(term(1), Err(Fault::Unavailable)));
    assert_eq!(raises(&outputs(&mut members[0], now)), 0, "not at once");
    members[0].handle(now + MS * 250, Input::Tick);
    assert_eq!(raises(&outputs(&mut members[0], now)), 1);
    members[0].handle(now + MS * 260, Input::Fences(term(1), Err(Fault::Permanent)));
    let said = outputs(&mut members[0], now);
    assert_eq!(events(&said), [Event::Failed, Event::Released, Event::Done { certain: true }]);
    assert!(said.iter().any(|output| matches!(output, Output::Send(_, Message::TimeoutNow { .. }))), "{said:?}");
}

#[test]
fn fences_that_are_raised_when_the_lease_is_over_make_nobody_a_leader() {
    let (mut members, now) = with_leader_that(FENCED);
    let late = now + MS * 1_400;
    members[0].handle(late, Input::Fences(term(1), Ok(())));
    assert_eq!(members[0].office(), None);
    assert!(events(&outputs(&mut members[0], late)).is_empty());
}

#[test]
fn a_member_that_holds_on_keeps_the_others_from_electing_until_its_work_has_stopped() {
    let (mut members, mut now) = with_leader_that(HOLDS);
    assert_eq!(members[0].request(now, OperatorRequest::Resign), Ok(()));
    let told = pass(&mut members, &mut now, MS * 20_000);
    let over = told.iter().position(|told| *told == (0, Event::Unelected(LossReason::Resigned)));
    assert!(over.is_some(), "{told:?}");
    for follower in [1, 2] {
        assert!(told.contains(&(follower, Event::Vacant)), "they hear that nobody leads: {told:?}");
    }
    assert!(!told.iter().any(|(_, event)| matches!(event, Event::Elected { .. } | Event::Released)), "{told:?}");
    members[0].handle(now, Input::Command(Command::Release));
    let told = talk(&mut members, now);
    assert!(told.contains(&(0, Event::Released)), "{told:?}");
    assert!(members[1..].iter().any(|member| member.office() == Some(term(2))), "{told:?}");
}

#[test]
fn what_was_lost_bars_the_next_term_of_this_member_until_its_work_has_stopped() {
    let (mut members, now) = with_leader();
    members[0].handle(now, Input::Message(MemberId(1), Message::Stale { term: term(5) }));
    let said = outputs(&mut members[0], now);
    assert_eq!(events(&said), [Event::Unelected(LossReason::Superseded), Event::Released]);
    let later = now + MS * 10_000;
    members[0].handle(later, Input::Tick);
    assert_eq!(members[0].role(), PeerRole::Follower);
    members[0].handle(later, Input::Command(Command::Release));
    let due = members[0].poll_timeout().unwrap();
    members[0].handle(due, Input::Tick);
    assert_eq!(members[0].role(), PeerRole::Sounding);
}

#[test]
fn a_candidate_is_shown_whom_it_follows_and_one_at_work_not_before_its_work_has_stopped() {
    let follows = |leader| Event::Follows { leader: Some(MemberId(leader)), term: Some(term(u64::from(leader) + 1)) };
    let (mut members, now) = with_leader();
    let beat = Message::Heartbeat { term: term(2), echo: 0, in_office: true, version: 1, value: Some(Bytes::new()) };
    let hear = Input::Message(MemberId(1), beat);
    members[2].handle(now, hear.clone());
    assert!(events(&outputs(&mut members[2], now)).contains(&follows(1)), "another leads");
    members[0].handle(now, hear);
    let told = events(&outputs(&mut members[0], now));
    assert!(matches!(told[..], [Event::Unelected(_), Event::Released, Event::Led { .. }]), "{told:?}");
    members[0].handle(now, Input::Command(Command::Healthy(false)));
    assert_eq!(events(&outputs(&mut members[0], now)), []);
    members[0].handle(now, Input::Command(Command::Release));
    assert_eq!(events(&outputs(&mut members[0], now)), [Event::Out(LossReason::Unhealthy)]);
    members[0].handle(now, Input::Command(Command::Healthy(true)));
    assert_eq!(events(&outputs(&mut members[0], now)), [follows(1)]);
    members[0].handle(now, Input::Command(Command::Healthy(true)));
    assert_eq!(events(&outputs(&mut members[0], now)), [], "it has been shown that");
}

#[test]
fn an_operators_wish_stops_the_work_first_and_then_hands_over() {
    let (mut members, now) = with_leader();
    assert_eq!(members[1].request(now, OperatorRequest::Resign), Err(Refusal::NotInOffice));
    assert_eq!(members[0].request(now, OperatorRequest::Transfer(MemberId(9))), Err(Refusal::NotAMember));
    assert_eq!(members[0].request(now, OperatorRequest::Transfer(MemberId(2))), Ok(()));
    let said = outputs(&mut members[0], now);
    assert!(matches!(events(&said)[..], [Event::Stopping { why: LossReason::Transferred, .. }]), "{said:?}");
    assert!(!said.iter().any(|output| matches!(output, Output::Send(_, Message::TimeoutNow { .. }))), "{said:?}");
    assert_eq!(members[0].request(now, OperatorRequest::Resign), Err(Refusal::Busy));
    members[0].handle(now, Input::Command(Command::Release));
    talk(&mut members, now);
    assert_eq!(members[2].office(), Some(term(2)));
}

#[test]
fn a_candidate_that_leaves_leads_on_until_its_term_is_over_and_its_member_still_votes() {
    let (mut members, mut now) = with_leader();
    members[0].handle(now, Input::Command(Command::Leave));
    let told = pass(&mut members, &mut now, MS * 3_000);
    assert_eq!(members[0].office(), Some(term(1)), "{told:?}");
    members[0].handle(now, Input::Command(Command::Release));
    let told = talk(&mut members, now);
    assert!(told.contains(&(0, Event::Done { certain: true })), "{told:?}");
    members.remove(2);
    let told = pass(&mut members, &mut now, MS * 30_000);
    assert_eq!(members[1].office(), Some(term(members[1].term())), "it has a majority: {told:?}");
    members[1].handle(now, Input::Command(Command::Proclaim(3, "new".into())));
    assert!(talk(&mut members, now).contains(&(1, Event::Proclaimed(3, Cas::Done))));
}

#[test]
fn a_proclamation_that_is_refused_is_not_advertised_later() {
    let (mut members, now) = with_leader();
    members[1].handle(now, Input::Command(Command::Proclaim(7, "new".into())));
    assert!(talk(&mut members, now).contains(&(1, Event::Proclaimed(7, Cas::Refused))));
    let transfer = Command::Transfer(Successor::Member(MemberId(1)), PATIENCE);
    members[0].handle(now, Input::Command(transfer));
    talk(&mut members, now);
    assert_eq!(members[2].report(now).value, "value 1");
}

/// A group of which everybody has fences. The first member is about to be elected in term 1: its
/// fences are being raised.
fn with_fences_out() -> (Vec<Consensus>, Timestamp) {
    let mut members: Vec<_> = (0..3).map(fresh).collect();
    for member in &mut members {
        let fenced = TermRules { fenced: true, ..TermRules::default() };
        member.handle(at(0), Input::Stand(fenced, Bytes::new()));
    }
    talk(&mut members, at(0));
    let now = members[0].poll_timeout().unwrap();
    members[0].handle(now, Input::Tick);
    assert_eq!(talk_of_fences(&mut members, now), [(0, Output::RaiseFences(term(1)))]);
    (members, now)
}

/// As [`talk`]; the answer is what was said about fences.
fn talk_of_fences(members: &mut [Consensus], now: Timestamp) -> Vec<(u16, Output)> {
    let mut fences = Vec::new();
    let mut flying = VecDeque::new();
    loop {
        for member in members.iter_mut() {
            let me = member.group().me();
            for output in outputs(member, now) {
                match output {
                    Output::Send(to, message) => flying.push_back((me, to, message)),
                    Output::RaiseFences(_) | Output::GiveUpFences(_) => fences.push((me.0, output)),
                    _ => {}
                }
            }
        }
        let Some((from, to, message)) = flying.pop_front() else { return fences };
        members[usize::from(to.0)].handle(now, Input::Message(from, message));
    }
}

/// Lets time pass until something is said about fences.
fn until_fences(members: &mut [Consensus], now: &mut Timestamp) -> Vec<(u16, Output)> {
    let until = *now + PATIENCE;
    while *now < until {
        *now = members.iter().filter_map(Consensus::poll_timeout).min().unwrap().max(*now + MS);
        members.iter_mut().for_each(|member| member.handle(*now, Input::Tick));
        let said = talk_of_fences(members, *now);
        if !said.is_empty() {
            return said;
        }
    }
    Vec::new()
}

#[test]
fn a_fence_that_hangs_is_given_up_and_raised_again_once_it_is_dropped() {
    let (mut members, mut now) = with_fences_out();
    let began = now;
    assert_eq!(until_fences(&mut members, &mut now), [(0, Output::GiveUpFences(term(1)))]);
    assert!(now.since(began) <= ConsensusSettings::default().election_max + MS * 10);
    members[0].handle(now, Input::Fences(term(1), Err(Fault::Unavailable)));
    assert_eq!(until_fences(&mut members, &mut now), [(0, Output::RaiseFences(term(1)))], "the same term");
    members[0].handle(now, Input::Fences(term(1), Ok(())));
    talk(&mut members, now);
    assert_eq!(members[0].office(), Some(term(1)));
}

#[test]
fn a_member_whose_fence_cannot_be_dropped_lets_another_lead_and_does_not_stand() {
    let (mut members, mut now) = with_fences_out();
    assert_eq!(until_fences(&mut members, &mut now), [(0, Output::GiveUpFences(term(1)))]);
    // It is never dropped: another one raises its fences instead.
    let said = until_fences(&mut members, &mut now);
    let [(other, Output::RaiseFences(token))] = said[..] else { panic!("{said:?}") };
    assert!(other != 0 && token == term(2), "{said:?}");
    members[usize::from(other)].handle(now, Input::Fences(token, Ok(())));
    talk(&mut members, now);
    assert_eq!(members[usize::from(other)].office(), Some(token));
    // With the leader gone, only those stand whose fences are free.
    members.retain(|member| member.group().me() != MemberId(other));
    let told = pass(&mut members, &mut now, PATIENCE);
    assert_eq!(members[0].role(), PeerRole::Follower, "{told:?}");
}

#[test]
fn a_member_whose_fences_fail_again_and_again_lets_another_lead() {
    let (mut members, mut now) = with_fences_out();
    let began = now;
    let other = loop {
        members[0].handle(now, Input::Fences(term(1), Err(Fault::Unavailable)));
        match until_fences(&mut members, &mut now)[..] {
            [(0, Output::RaiseFences(token))] => assert_eq!(token, term(1)),
            [(other, Output::RaiseFences(_))] => break other,
            ref said => panic!("{said:?}"),
        }
    };
    assert!(other != 0);
    assert!(now.since(began) <= ConsensusSettings::default().election_max * 4, "{:?}", now.since(began));
}

#[test]
fn what_fences_say_of_an_earlier_term_is_not_taken_for_this_one() {
    let (mut members, mut now) = with_fences_out();
    members[0].handle(now, Input::Message(MemberId(1), Message::Stale { term: term(4) }));
    assert_eq!(talk_of_fences(&mut members, now), [(0, Output::GiveUpFences(term(1)))], "nobody waits for it");
    members[0].handle(now, Input::Fences(term(1), Ok(())));
    assert_eq!(members[0].office(), None);
    let said = until_fences(&mut members, &mut now);
    assert!(matches!(said[..], [(_, Output::RaiseFences(_))]), "{said:?}");
}
