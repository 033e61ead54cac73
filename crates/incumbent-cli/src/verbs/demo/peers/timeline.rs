//! All that members have reported, on the host's clock: the messages for people, and the terms from
//! which every claim of the demonstration is checked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use incumbent::store::{BootClock, Clock, lock};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::group::name;
use super::member::Report;
use crate::duration::show;
use crate::failure::Failure;

/// How many messages are kept: members that send more have run wild.
const MAX_MESSAGES: usize = 500_000;

/// A message that a member has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) at: u64,
    pub(super) from: u16,
    pub(super) to: u16,
    pub(super) kind: String,
    pub(super) about: String,
}

/// A member's time in office.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Term {
    pub(super) member: u16,
    pub(super) number: Option<u64>,
    pub(super) from: u64,
    /// [`u64::MAX`]: nothing bounds it.
    deadline: u64,
    /// When the member stopped leading, or died.
    pub(super) ended: Option<u64>,
    died: bool,
}

impl Term {
    /// When it was over for all members. The lease of a dead leader lasts until its deadline: no
    /// other member knows of its death.
    pub(super) fn until(&self) -> u64 {
        match self.ended {
            Some(ended) if !self.died || self.deadline == u64::MAX => ended.min(self.deadline),
            _ => self.deadline,
        }
    }

    fn overlap(&self, other: &Term) -> u64 {
        if self.member == other.member {
            return 0;
        }
        self.until().min(other.until()).saturating_sub(self.from.max(other.from))
    }
}

/// What one member believes.
#[derive(Clone, Debug, Default)]
struct View {
    lives: bool,
    leader: Option<(u16, Option<u64>)>,
    abstains: bool,
    port: Option<u16>,
}

#[derive(Default)]
pub(super) struct State {
    messages: Vec<Message>,
    views: BTreeMap<u16, View>,
    terms: Vec<Term>,
    broken: Option<String>,
}

/// Shared by the tasks that listen to members and the one that waits for something to happen.
#[derive(Clone, Default)]
pub(super) struct Timeline(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    changed: Notify,
}

/// The host's clock, which members use, too.
pub(super) fn now() -> u64 {
    BootClock.now().as_nanos()
}

impl Timeline {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }

    /// Changes what is known, and wakes whatever waits for it.
    pub(super) fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.0.changed.notify_waiters();
    }

    /// Waits until `want` has an answer.
    pub(super) async fn until<T>(
        &self,
        within: Duration,
        what: &str,
        mut want: impl FnMut(&State) -> Option<T>,
    ) -> Result<T, Failure> {
        let until = Instant::now() + within;
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let state = self.state();
                if let Some(broken) = &state.broken {
                    return Err(Failure::error(broken.clone()));
                }
                if let Some(answer) = want(&state) {
                    return Ok(answer);
                }
            }
            if timeout_at(until, changed).await.is_err() {
                let views = format!("{:?}", self.state().views);
                return Err(Failure::error(format!("never seen within {within:?}: {what} ({views})")));
            }
        }
    }
}

impl State {
    pub(super) fn on_started(&mut self, member: u16) {
        self.views.insert(member, View { lives: true, ..View::default() });
    }

    pub(super) fn on_killed(&mut self, at: u64, member: u16) {
        self.views.insert(member, View::default());
        for term in self.terms.iter_mut().filter(|term| term.member == member && term.ended.is_none()) {
            (term.ended, term.died) = (Some(at), true);
        }
    }

    pub(super) fn on_report(&mut self, member: u16, report: Report) {
        let view = self.views.entry(member).or_default();
        // What a member reported last may be read after its death.
        let term =
            self.terms.iter_mut().rev().find(|term| term.member == member && (term.ended.is_none() || term.died));
        match report {
            Report::Ready { port } => view.port = Some(port),
            Report::Sent { at, to, kind, about } => {
                self.messages.push(Message { at, from: member, to, kind, about });
                if self.messages.len() > MAX_MESSAGES {
                    self.broken = Some("the members send more than can be kept".to_owned());
                }
            }
            Report::Elected { at, term: number, deadline } => {
                view.leader = Some((member, number));
                self.terms.push(Term { member, number, from: at, deadline, ended: None, died: false });
            }
            Report::Deadline { until } => {
                if let Some(term) = term {
                    term.deadline = until;
                }
            }
            Report::Unelected { at } => {
                view.leader = None;
                if let Some(term) = term.filter(|term| !term.died) {
                    term.ended = Some(at);
                }
            }
            Report::Follows { leader, term } => view.leader = Some((leader, term)),
            Report::Vacant => view.leader = None,
            Report::Votes { does } => view.abstains = !does,
            Report::Broken { what } => self.broken = Some(format!("{} failed: {what}", name(member))),
        }
    }

    /// Where this member listens, once it does.
    pub(super) fn port(&self, member: u16) -> Option<u16> {
        self.views.get(&member).and_then(|view| view.port)
    }

    pub(super) fn lives(&self, member: u16) -> bool {
        self.views.get(&member).is_some_and(|view| view.lives)
    }

    /// Whether this member takes no part in votes for the time being.
    pub(super) fn abstains(&self, member: u16) -> bool {
        self.views.get(&member).is_some_and(|view| view.abstains)
    }

    /// The term of the only leader among these members, if all of them follow it.
    pub(super) fn settled(&self, members: &[u16]) -> Option<&Term> {
        let mut leaders = self.terms.iter().filter(|term| term.ended.is_none() && members.contains(&term.member));
        let leader = leaders.next().filter(|_| leaders.next().is_none())?;
        let follows = |member: &u16| self.views.get(member)?.leader.filter(|_| self.lives(*member));
        let all = members.iter().all(|member| follows(member) == Some((leader.member, leader.number)));
        all.then_some(leader)
    }

    /// The term in which this member led at that moment, by its own belief.
    pub(super) fn term_at(&self, at: u64, member: u16) -> Option<&Term> {
        let held =
            |term: &&Term| term.member == member && term.from <= at && term.ended.is_none_or(|ended| at <= ended);
        self.terms.iter().rev().find(held)
    }

    /// For how long two members led at once, by their own clocks and deadlines.
    pub(super) fn two_at_once(&self) -> Duration {
        let pairs = self.terms.iter().enumerate();
        let overlaps = pairs.flat_map(|(at, one)| self.terms[at + 1..].iter().map(move |two| one.overlap(two)));
        Duration::from_nanos(overlaps.sum())
    }

    /// The numbers of all terms, if each is higher than the one before and no two leases
    /// overlapped.
    pub(super) fn one_leader_per_term(&self) -> Result<Vec<u64>, String> {
        let mut terms: Vec<_> = self.terms.iter().collect();
        terms.sort_by_key(|term| term.from);
        let numbers: Vec<u64> = terms.iter().map(|term| term.number.unwrap_or(0)).collect();
        if !numbers.is_sorted_by(|earlier, later| earlier < later) {
            return Err(format!("terms do not grow: {numbers:?}"));
        }
        let two = self.two_at_once();
        if two.is_zero() { Ok(numbers) } else { Err(format!("two led at once for {}", show(two))) }
    }

    /// Messages sent since then, in order.
    pub(super) fn messages_since(&self, begin: u64) -> Vec<Message> {
        let mut messages: Vec<_> = self.messages.iter().filter(|message| message.at >= begin).cloned().collect();
        messages.sort_by_key(|message| message.at);
        messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elected(state: &mut State, at: u64, member: u16, term: u64, deadline: u64) {
        state.on_report(member, Report::Elected { at, term: Some(term), deadline });
    }

    #[test]
    fn the_lease_of_a_dead_leader_counts_until_its_deadline() {
        let mut state = State::default();
        elected(&mut state, 100, 1, 1, 1_000);
        state.on_report(1, Report::Deadline { until: 1_200 });
        state.on_killed(300, 1);
        elected(&mut state, 1_150, 2, 2, 2_000);
        assert_eq!(state.two_at_once(), Duration::from_nanos(50));
    }

    #[test]
    fn two_leaders_of_one_term_and_leases_that_overlap_are_found() {
        let mut state = State::default();
        elected(&mut state, 100, 1, 1, 1_000);
        elected(&mut state, 1_000, 2, 2, 2_000);
        assert_eq!(state.one_leader_per_term(), Ok(vec![1, 2]));
        elected(&mut state, 1_999, 3, 3, 3_000);
        assert!(state.one_leader_per_term().unwrap_err().contains("two led at once"));
        let mut state = State::default();
        elected(&mut state, 100, 1, 1, 1_000);
        elected(&mut state, 1_000, 2, 1, 2_000);
        assert!(state.one_leader_per_term().unwrap_err().contains("do not grow"));
    }

    #[test]
    fn a_group_is_settled_when_all_follow_the_one_in_office() {
        let mut state = State::default();
        [1, 2, 3].into_iter().for_each(|member| state.on_started(member));
        elected(&mut state, 10, 1, 4, u64::MAX);
        let follows = |leader, term| Report::Follows { leader, term: Some(term) };
        state.on_report(2, follows(1, 4));
        assert_eq!(state.settled(&[1, 2, 3]), None, "the third has not heard of it");
        assert_eq!(state.settled(&[1, 2]).map(|term| term.member), Some(1));
        state.on_report(3, follows(1, 3));
        assert_eq!(state.settled(&[1, 2, 3]), None, "the third follows an earlier term");
        state.on_report(3, follows(1, 4));
        assert_eq!(state.settled(&[1, 2, 3]).map(|term| term.number), Some(Some(4)));
        state.on_killed(20, 3);
        assert_eq!(state.settled(&[1, 2, 3]), None, "the third is dead");
    }
}
