//! All that happened, in the order of the host's clock: what members said, what became of them, and what was done to them.
//! From it follows who leads, and what may be claimed.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use incumbent::store::{BootClock, Clock};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::report::{Frame, News, Report};
use super::troupe::name;
use crate::failure::Failure;
use crate::span::show;

/// How much is written down at most: a demonstration that says more has run wild.
const MAX_ENTRIES: usize = 500_000;

/// Something that happened, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) at: u64,
    pub(super) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    Sent(Frame),
    Received(Frame),
    /// A member was told something by its own machine.
    News(u16, News),
    /// The lease of one that no longer led, or was dead, was over.
    Lapsed(u16),
    Deed(Deed),
}

/// What the demonstration does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    Started(u16),
    Killed(u16),
    Back(u16),
    Cut,
    Healed,
}

/// A leadership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Office {
    pub(super) member: u16,
    pub(super) term: Option<u64>,
    pub(super) from: u64,
    /// Until when it may be believed. [`u64::MAX`]: nothing bounds it.
    pub(super) deadline: u64,
    /// When its holder was told that it was over, or died.
    pub(super) ended: Option<u64>,
    died: bool,
}

impl Office {
    /// When it was over for everybody. The lease of a dead leader lasts until its deadline: nobody else knows of its death.
    pub(super) fn until(&self) -> u64 {
        match self.ended {
            Some(ended) if !self.died || self.deadline == u64::MAX => ended.min(self.deadline),
            _ => self.deadline,
        }
    }

    /// For how long both were in office within this span.
    fn overlap(&self, other: &Office, (begin, end): (u64, u64)) -> u64 {
        if self.member == other.member {
            return 0;
        }
        self.until().min(other.until()).min(end).saturating_sub(self.from.max(other.from).max(begin))
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
    entries: Vec<Entry>,
    views: BTreeMap<u16, View>,
    offices: Vec<Office>,
    broken: Option<String>,
}

/// Shared by those who listen to processes and those who wait for something.
#[derive(Clone, Default)]
pub(super) struct Chronicle(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    changed: Notify,
}

/// The host's clock, which members use, too.
pub(super) fn now() -> u64 {
    BootClock.now().as_nanos()
}

impl Chronicle {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // Every change is complete before anything can panic.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A member's process said something.
    pub(super) fn hear(&self, member: u16, report: Report) {
        self.state().hear(member, report);
        self.0.changed.notify_waiters();
    }

    /// The demonstration does something, now.
    pub(super) fn note(&self, deed: Deed) -> u64 {
        let at = now();
        self.state().on_deed(at, deed);
        self.0.changed.notify_waiters();
        at
    }

    /// Waits until there is an answer.
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
                let so_far = self.state().describe();
                return Err(Failure::error(format!("never seen within {within:?}: {what} ({so_far})")));
            }
        }
    }
}

impl State {
    fn hear(&mut self, member: u16, report: Report) {
        if self.entries.len() >= MAX_ENTRIES {
            self.broken = Some("the members say more than can be written down".to_owned());
            return;
        }
        let (at, what) = match report {
            Report::Ready { port } => {
                self.views.entry(member).or_default().port = Some(port);
                return;
            }
            Report::Broken { what } => {
                self.broken = Some(format!("{} failed: {what}", name(member)));
                return;
            }
            Report::Sent { at, frame } => (at, What::Sent(frame)),
            Report::Received { at, frame } => (at, What::Received(frame)),
            Report::News { at, news } => {
                self.on_news(at, member, &news);
                (at, What::News(member, news))
            }
        };
        self.entries.push(Entry { at, what });
    }

    fn on_deed(&mut self, at: u64, deed: Deed) {
        match deed {
            Deed::Started(member) | Deed::Back(member) => {
                let port = self.views.get(&member).and_then(|view| view.port);
                self.views.insert(member, View { lives: true, port, ..View::default() });
            }
            Deed::Killed(member) => {
                self.views.insert(member, View::default());
                for office in self.offices.iter_mut().filter(|office| office.member == member && office.ended.is_none())
                {
                    (office.ended, office.died) = (Some(at), true);
                }
            }
            Deed::Cut | Deed::Healed => {}
        }
        self.entries.push(Entry { at, what: What::Deed(deed) });
    }

    fn on_news(&mut self, at: u64, member: u16, news: &News) {
        let view = self.views.entry(member).or_default();
        // The last words of the dead may be heard after their death.
        let office = |office: &&mut Office| office.member == member && (office.ended.is_none() || office.died);
        let office = self.offices.iter_mut().rev().find(office);
        match news {
            News::Elected { term, deadline } => {
                view.leader = Some((member, *term));
                let (term, deadline) = (*term, *deadline);
                self.offices.push(Office { member, term, from: at, deadline, ended: None, died: false });
            }
            News::Deadline { until } => {
                if let Some(office) = office {
                    office.deadline = *until;
                }
            }
            News::Unelected { .. } => {
                view.leader = None;
                if let Some(office) = office.filter(|office| !office.died) {
                    office.ended = Some(at);
                }
            }
            News::NewLeader { leader, term } => view.leader = Some((*leader, *term)),
            News::Vacant => view.leader = None,
            News::NotVoting => view.abstains = true,
            News::Voting => view.abstains = false,
        }
    }

    /// Where this member listens, once it does.
    pub(super) fn port(&self, member: u16) -> Option<u16> {
        self.views.get(&member).and_then(|view| view.port)
    }

    pub(super) fn lives(&self, member: u16) -> bool {
        self.views.get(&member).is_some_and(|view| view.lives)
    }

    /// Whether this member votes for nobody for the time being.
    pub(super) fn abstains(&self, member: u16) -> bool {
        self.views.get(&member).is_some_and(|view| view.abstains)
    }

    /// The one that is in office among these and that all of them follow.
    pub(super) fn settled(&self, members: &[u16]) -> Option<&Office> {
        let mut leaders =
            self.offices.iter().filter(|office| office.ended.is_none() && members.contains(&office.member));
        let leader = leaders.next().filter(|_| leaders.next().is_none())?;
        let follows = |member: &u16| self.views.get(member)?.leader.filter(|_| self.lives(*member));
        let all = members.iter().all(|member| follows(member) == Some((leader.member, leader.term)));
        all.then_some(leader)
    }

    pub(super) fn offices(&self) -> &[Office] {
        &self.offices
    }

    /// Those in office at this time, by their own belief.
    pub(super) fn in_office(&self, at: u64) -> impl Iterator<Item = &Office> {
        self.offices.iter().filter(move |office| office.from <= at && at < office.ended.unwrap_or(u64::MAX))
    }

    /// For how long two were in office at once within this span, by their own clocks and deadlines.
    pub(super) fn two_at_once(&self, span: (u64, u64)) -> Duration {
        let pairs = self.offices.iter().enumerate();
        let overlaps = pairs.flat_map(|(at, one)| self.offices[at + 1..].iter().map(move |two| one.overlap(two, span)));
        Duration::from_nanos(overlaps.sum())
    }

    /// That every term had one leader and was higher than the one before, and that no two leases overlapped. Answers with the
    /// terms.
    pub(super) fn one_leader_per_term(&self) -> Result<Vec<u64>, String> {
        let mut offices: Vec<_> = self.offices.iter().collect();
        offices.sort_by_key(|office| office.from);
        let terms: Vec<u64> = offices.iter().map(|office| office.term.unwrap_or(0)).collect();
        if !terms.is_sorted_by(|earlier, later| earlier < later) {
            return Err(format!("terms do not grow: {terms:?}"));
        }
        let two = self.two_at_once((0, u64::MAX));
        if two.is_zero() { Ok(terms) } else { Err(format!("two led at once for {}", show(two))) }
    }

    /// What happened in this span, in order, each message with whether it arrived.
    pub(super) fn between(&self, (begin, end): (u64, u64)) -> Vec<(Entry, bool)> {
        let left = self.offices.iter().filter(|office| office.ended.is_some_and(|ended| ended < office.deadline));
        let lapsed = left.map(|office| Entry { at: office.deadline, what: What::Lapsed(office.member) });
        let lapsed: Vec<Entry> = lapsed.collect();
        let mut all: Vec<&Entry> = self.entries.iter().chain(&lapsed).collect();
        // At the same moment, a message is sent before it is received.
        all.sort_by_key(|entry| (entry.at, matches!(entry.what, What::Received(_))));
        let arrived = arrivals(&all);
        let told = all.into_iter().zip(arrived).filter(|(entry, _)| (begin..=end).contains(&entry.at));
        told.map(|(entry, arrived)| (entry.clone(), arrived)).collect()
    }

    fn describe(&self) -> String {
        let says = |(member, view): (&u16, &View)| match view.leader {
            _ if !view.lives => format!("{member} is dead"),
            Some((leader, Some(term))) => format!("{member} follows {leader} in term {term}"),
            Some((leader, None)) => format!("{member} follows {leader}"),
            None => format!("{member} follows nobody"),
        };
        self.views.iter().map(says).collect::<Vec<_>>().join(", ")
    }
}

/// For each entry, whether it is a message that arrived. Links keep the order; what has not arrived when a link is made
/// anew never will.
fn arrivals(entries: &[&Entry]) -> Vec<bool> {
    let mut arrived = vec![false; entries.len()];
    let mut on_the_way: HashMap<(u16, u16), VecDeque<usize>> = HashMap::new();
    for (place, entry) in entries.iter().enumerate() {
        match &entry.what {
            What::Sent(frame) => on_the_way.entry((frame.from, frame.to)).or_default().push_back(place),
            What::Received(frame) => {
                let queue = on_the_way.entry((frame.from, frame.to)).or_default();
                let same = |sent: &usize| matches!(&entries[*sent].what, What::Sent(sent) if sent == frame);
                if let Some(at) = queue.iter().position(same) {
                    queue.drain(..=at).next_back().into_iter().for_each(|sent| arrived[sent] = true);
                }
            }
            What::Deed(Deed::Healed) => on_the_way.clear(),
            What::Deed(Deed::Back(member) | Deed::Started(member)) => {
                on_the_way.retain(|(from, to), _| from != member && to != member);
            }
            What::News(..) | What::Lapsed(_) | What::Deed(Deed::Killed(_) | Deed::Cut) => {}
        }
    }
    arrived
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn frame(from: u16, to: u16, kind: &str, term: Option<u64>) -> Frame {
        Frame { from, to, kind: kind.to_owned(), term, about: String::new() }
    }

    impl State {
        pub(in super::super) fn hear_for_test(&mut self, at: u64, member: u16, news: News) {
            self.hear(member, Report::News { at, news });
        }
    }

    fn elected(state: &mut State, at: u64, member: u16, term: u64, deadline: u64) {
        state.hear_for_test(at, member, News::Elected { term: Some(term), deadline });
    }

    #[test]
    fn a_message_into_a_cut_did_not_arrive_even_if_one_like_it_did_later() {
        let mut state = State::default();
        let beat = || frame(1, 2, "heartbeat", Some(1));
        state.hear(1, Report::Sent { at: 10, frame: beat() });
        state.hear(2, Report::Received { at: 11, frame: beat() });
        state.on_deed(12, Deed::Cut);
        state.hear(1, Report::Sent { at: 13, frame: beat() });
        state.on_deed(14, Deed::Healed);
        state.hear(1, Report::Sent { at: 15, frame: beat() });
        state.hear(2, Report::Received { at: 16, frame: beat() });
        let told = state.between((0, 99));
        let sent = told.iter().filter(|(entry, _)| matches!(entry.what, What::Sent(_)));
        assert_eq!(
            sent.map(|(entry, arrived)| (entry.at, *arrived)).collect::<Vec<_>>(),
            [(10, true), (13, false), (15, true)]
        );
    }

    #[test]
    fn the_lease_of_a_dead_leader_counts_until_its_deadline() {
        let mut state = State::default();
        elected(&mut state, 100, 1, 1, 1_000);
        state.hear(1, Report::News { at: 200, news: News::Deadline { until: 1_200 } });
        state.on_deed(300, Deed::Killed(1));
        elected(&mut state, 1_150, 2, 2, 2_000);
        assert_eq!(state.two_at_once((0, u64::MAX)), Duration::from_nanos(50));
        assert_eq!(state.two_at_once((1_180, u64::MAX)), Duration::from_nanos(20));
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
        [1, 2, 3].into_iter().for_each(|member| state.on_deed(1, Deed::Started(member)));
        elected(&mut state, 10, 1, 4, u64::MAX);
        let follows = |leader, term| Report::News { at: 11, news: News::NewLeader { leader, term: Some(term) } };
        state.hear(2, follows(1, 4));
        assert_eq!(state.settled(&[1, 2, 3]), None, "the third has not heard of it");
        assert_eq!(state.settled(&[1, 2]).map(|office| office.member), Some(1));
        state.hear(3, follows(1, 3));
        assert_eq!(state.settled(&[1, 2, 3]), None, "the third follows an earlier term");
        state.hear(3, follows(1, 4));
        assert_eq!(state.settled(&[1, 2, 3]).map(|office| office.term), Some(Some(4)));
        state.on_deed(20, Deed::Killed(3));
        assert_eq!(state.settled(&[1, 2, 3]), None, "the third is dead");
    }
}
