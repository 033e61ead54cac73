//! Someone who is not a member and wants to know who leads: asks one member after the other.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use super::message::Report;
use crate::entry::{Nonce, Token};
use crate::peers::group::MemberId;
use crate::rng::Rng;
use crate::time::Timestamp;

/// Watches a group from outside.
///
/// It asks one member per interval and goes round, so that one member that is cut off cannot keep it in the dark.
/// What it tells never goes back: an answer about an older term or value is passed over.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Observer {
    members: Vec<MemberId>,
    every: Duration,
    nonces: Rng,
    next: usize,
    asked: Option<(MemberId, Nonce)>,
    ask_at: Timestamp,
    /// Members in a row that did not answer.
    silent: usize,
    /// The user was told that nobody answers, and nothing since.
    unreachable: bool,
    seen: (u64, u64),
    leader: Option<MemberId>,
    out: VecDeque<ObserverOutput>,
}

/// What is to be done, or has come to pass.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ObserverOutput {
    /// Ask this member who leads.
    Ask(MemberId, Nonce),
    /// Tell the user.
    Event(ObserverEvent),
}

/// What an observer is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ObserverEvent {
    /// This member leads, or proclaims another value.
    Leader {
        /// Who leads.
        leader: MemberId,
        /// In which term.
        term: Token,
        /// What it proclaims.
        value: Bytes,
    },
    /// The one who was asked knows of no leader.
    Vacant,
    /// No member has answered in a whole round: what was told last may be stale.
    Unreachable,
}

impl Observer {
    /// Watches the group with these members, asking one of them per interval.
    pub fn new(now: Timestamp, members: &[MemberId], every: Duration, nonces: Rng) -> Observer {
        Observer {
            members: members.to_vec(),
            every: every.max(Duration::from_millis(1)),
            nonces,
            next: 0,
            asked: None,
            ask_at: now,
            silent: 0,
            unreachable: false,
            seen: (0, 0),
            leader: None,
            out: VecDeque::new(),
        }
    }

    /// Time has passed.
    pub fn on_time(&mut self, now: Timestamp) {
        if now < self.ask_at || self.members.is_empty() {
            return;
        }
        if self.asked.is_some() {
            self.silent += 1;
            if self.silent == self.members.len() {
                self.unreachable = true;
                self.out.push_back(ObserverOutput::Event(ObserverEvent::Unreachable));
            }
        }
        let (member, nonce) = (self.members[self.next], self.nonces.nonce());
        self.next = (self.next + 1) % self.members.len();
        self.asked = Some((member, nonce));
        self.ask_at = now + self.every;
        self.out.push_back(ObserverOutput::Ask(member, nonce));
    }

    /// A member has answered.
    pub fn on_report(&mut self, from: MemberId, report: Report) {
        if self.asked != Some((from, report.nonce)) {
            return;
        }
        self.asked = None;
        self.silent = 0;
        let seen = (report.term, report.version);
        let Some(term) = Token::new(report.term).filter(|_| seen >= self.seen) else { return };
        let news = seen > self.seen || report.leader != self.leader || self.unreachable;
        self.seen = seen;
        self.leader = report.leader;
        self.unreachable = false;
        if news {
            self.out.push_back(ObserverOutput::Event(match report.leader {
                Some(leader) => ObserverEvent::Leader { leader, term, value: report.value },
                None => ObserverEvent::Vacant,
            }));
        }
    }

    /// What is to be done next.
    pub fn poll_output(&mut self) -> Option<ObserverOutput> {
        self.out.pop_front()
    }

    /// When [`Observer::on_time`] is due.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        (!self.members.is_empty()).then_some(self.ask_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn asked(observer: &mut Observer) -> (MemberId, Nonce) {
        match observer.poll_output() {
            Some(ObserverOutput::Ask(member, nonce)) => (member, nonce),
            other => panic!("expected a question, got {other:?}"),
        }
    }

    fn report(nonce: Nonce, term: u64, version: u64, leader: Option<u16>) -> Report {
        Report { nonce, term, leader: leader.map(MemberId), version, value: Bytes::from_static(b"v") }
    }

    #[test]
    fn members_are_asked_in_turn_and_old_news_is_passed_over() {
        let members = [MemberId(1), MemberId(2)];
        let mut observer = Observer::new(Timestamp::ZERO, &members, SECOND, Rng::from_number(1));
        observer.on_time(Timestamp::ZERO);
        let (first, nonce) = asked(&mut observer);
        observer.on_report(first, report(nonce, 5, 2, Some(2)));
        assert!(matches!(
            observer.poll_output(),
            Some(ObserverOutput::Event(ObserverEvent::Leader { leader: MemberId(2), .. }))
        ));
        observer.on_time(Timestamp::ZERO + SECOND);
        let (second, nonce) = asked(&mut observer);
        assert_ne!(first, second);
        observer.on_report(second, report(nonce, 5, 1, Some(2)));
        observer.on_report(second, report(nonce, 9, 1, Some(1)));
        assert_eq!(observer.poll_output(), None, "older news, and an answer to no question");
    }

    #[test]
    fn a_round_of_silence_is_told_once_and_so_is_its_end() {
        let mut observer = Observer::new(Timestamp::ZERO, &[MemberId(1)], SECOND, Rng::from_number(1));
        let mut told = 0;
        let mut last = None;
        for at in 0..5 {
            observer.on_time(Timestamp::ZERO + SECOND * at);
            while let Some(output) = observer.poll_output() {
                match output {
                    ObserverOutput::Event(ObserverEvent::Unreachable) => told += 1,
                    ObserverOutput::Ask(_, nonce) => last = Some(nonce),
                    other => panic!("{other:?}"),
                }
            }
        }
        assert_eq!(told, 1);
        observer.on_report(MemberId(1), report(last.unwrap(), 1, 1, Some(1)));
        assert!(matches!(observer.poll_output(), Some(ObserverOutput::Event(ObserverEvent::Leader { .. }))));
    }

    #[test]
    fn the_leader_is_told_again_after_silence_even_if_the_first_answer_is_old_news() {
        let mut observer = Observer::new(Timestamp::ZERO, &[MemberId(1)], SECOND, Rng::from_number(1));
        for (at, answer) in [Some(5), None, None, Some(4), Some(5)].into_iter().enumerate() {
            observer.on_time(Timestamp::ZERO + SECOND * at as u32);
            let (member, nonce) = loop {
                match observer.poll_output() {
                    Some(ObserverOutput::Ask(member, nonce)) => break (member, nonce),
                    Some(_) => {}
                    None => panic!("nobody is asked"),
                }
            };
            if let Some(term) = answer {
                observer.on_report(member, report(nonce, term, 1, Some(1)));
            }
        }
        let last = std::iter::from_fn(|| observer.poll_output()).last();
        assert!(matches!(last, Some(ObserverOutput::Event(ObserverEvent::Leader { .. }))), "{last:?}");
    }
}
