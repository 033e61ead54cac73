//! Bully and ring with a few members, exhaustively within [`Bounds`].
//!
//! Here the network is in time: a unit of time passes only once every message has arrived (or was
//! lost) and every timer that was due has fired; their order is tried in every way, and so is the
//! moment of every crash, restart, loss and partition. What is looked at is the end: long after the
//! last fault, who leads?

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use incumbent_core::peers::bully::Bully;
use incumbent_core::peers::ring::Ring;
use incumbent_core::peers::{Group, Input, MemberId, Output, RankSettings, TermRules};
use incumbent_core::{Command, Event, Rng, Timestamp};
use incumbent_sim::ranks::ByRank;
use stateright::{Checker, Model, Property};

/// One unit of time.
const UNIT: Duration = Duration::from_secs(1);

/// How far the exploration goes.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// Members.
    members: u16,
    /// Units of time in which all start and agree, in one order, before everything is tried. Zero:
    /// the start is explored too, with all elections that it begins at once.
    settled: u64,
    /// Faults happen before this unit of time.
    trouble: u64,
    /// The last unit of time, at which all must agree.
    until: u64,
    /// Crashes, each of any member.
    crashes: u8,
    /// Restarts of those that crashed.
    restarts: u8,
    /// Messages that are lost.
    losses: u8,
    /// Whether the highest member is cut off at some moment, for good.
    partition: bool,
    /// The majority rule.
    majority: bool,
    /// Whether higher ranks take over.
    take_over: bool,
}

/// The model.
#[derive(Clone, Debug)]
struct RankModel<R> {
    /// How far to go.
    bounds: Bounds,
    machine: PhantomData<R>,
}

impl<R> RankModel<R> {
    /// A model within these bounds.
    fn new(bounds: Bounds) -> RankModel<R> {
        RankModel { bounds, machine: PhantomData }
    }
}

/// Everything that there is at one moment.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Peers<R: ByRank> {
    nodes: Vec<Arc<Node<R>>>,
    flying: BTreeSet<(MemberId, MemberId, R::Message)>,
    now: u64,
    crashes: u8,
    restarts: u8,
    losses: u8,
    split: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Node<R> {
    machine: Option<R>,
    in_office: bool,
}

/// One step.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Action<M> {
    /// A message arrives.
    Deliver(MemberId, MemberId, M),
    /// A message is lost.
    Lose(MemberId, MemberId, M),
    /// A timer fires.
    Tick(usize),
    /// A member stops.
    Crash(usize),
    /// A member that is down starts.
    Restart(usize),
    /// The highest member is cut off.
    Split,
    /// A unit of time passes.
    Pass,
}

fn time(units: u64) -> Timestamp {
    Timestamp::ZERO + UNIT * units as u32
}

impl<R: ByRank> Peers<R> {
    fn drain(&mut self, at: usize) {
        let me = MemberId(at as u16);
        let cut_off = MemberId(self.nodes.len() as u16 - 1);
        let node = Arc::make_mut(&mut self.nodes[at]);
        while let Some(output) = node.machine.as_mut().and_then(R::output) {
            match output {
                Output::Send(to, message) if !self.split || (to == cut_off) == (me == cut_off) => {
                    self.flying.insert((me, to, message));
                }
                Output::Event(Event::Elected { .. }) => node.in_office = true,
                Output::Event(Event::Unelected(_)) => {
                    node.in_office = false;
                    // Its work stops at once.
                    if let Some(machine) = node.machine.as_mut() {
                        machine.input(time(self.now), Input::Command(Command::Release));
                    }
                }
                _ => {}
            }
        }
    }

    fn input(&mut self, at: usize, input: Input<R::Message>) {
        if let Some(machine) = Arc::make_mut(&mut self.nodes[at]).machine.as_mut() {
            machine.input(time(self.now), input);
        }
        self.drain(at);
    }

    fn due(&self, at: usize) -> bool {
        let timeout = self.nodes[at].machine.as_ref().and_then(R::timeout);
        timeout.is_some_and(|due| due <= time(self.now))
    }

    fn is_quiet(&self) -> bool {
        self.flying.is_empty() && (0..self.nodes.len()).all(|at| !self.due(at))
    }

    /// Members that have been chosen.
    fn leaders(&self) -> Vec<usize> {
        let chosen = |at: &usize| self.nodes[*at].machine.as_ref().is_some_and(R::chosen);
        (0..self.nodes.len()).filter(chosen).collect()
    }

    /// Members in office.
    fn in_office(&self) -> usize {
        self.nodes.iter().filter(|node| node.in_office).count()
    }

    /// Whether one leads and all others that live follow it.
    fn agrees(&self) -> bool {
        let &[leader] = self.leaders().as_slice() else { return false };
        let follows =
            |machine: &R| machine.chosen() || machine.followed(time(self.now)) == Some(MemberId(leader as u16));
        self.nodes.iter().filter_map(|node| node.machine.as_ref()).all(follows)
    }

    fn highest_alive(&self) -> Option<usize> {
        (0..self.nodes.len()).rev().find(|at| self.nodes[*at].machine.is_some())
    }
}

impl<R: ByRank> RankModel<R> {
    fn machine(&self, now: u64, at: usize) -> Option<R> {
        let mut settings = RankSettings::default();
        settings.heartbeat = UNIT;
        settings.leader_timeout = UNIT * 3;
        settings.answer_timeout = UNIT;
        settings.grace = Duration::ZERO;
        settings.majority = self.bounds.majority;
        settings.take_over = self.bounds.take_over;
        let group = Group::new(MemberId(at as u16), (0..self.bounds.members).map(MemberId)).ok()?;
        R::start(time(now), group, settings, TermRules::default(), Rng::from_number(now))
    }

    fn is_over(&self, state: &Peers<R>) -> bool {
        state.now == self.bounds.until && state.is_quiet()
    }
}

impl<R: ByRank> Model for RankModel<R> {
    type State = Peers<R>;
    type Action = Action<R::Message>;

    fn init_states(&self) -> Vec<Peers<R>> {
        let count = usize::from(self.bounds.members);
        let nodes = (0..count).map(|at| Arc::new(Node { machine: self.machine(0, at), in_office: false }));
        let mut peers = Peers {
            nodes: nodes.collect(),
            flying: BTreeSet::new(),
            now: 0,
            crashes: 0,
            restarts: 0,
            losses: 0,
            split: false,
        };
        for at in 0..count {
            peers.drain(at);
        }
        while peers.now < self.bounds.settled {
            let mut actions = Vec::new();
            self.actions(&peers, &mut actions);
            let calm = |action: &Self::Action| matches!(action, Action::Deliver(..) | Action::Tick(_) | Action::Pass);
            let next = actions.into_iter().find(calm).and_then(|action| self.next_state(&peers, action));
            let Some(next) = next else { return Vec::new() };
            peers = next;
        }
        vec![peers]
    }

    fn actions(&self, state: &Peers<R>, actions: &mut Vec<Self::Action>) {
        let trouble = state.now < self.bounds.trouble;
        let to_the_dead = |to: &MemberId| state.nodes[usize::from(to.0)].machine.is_none();
        let may_lose = trouble && (state.losses < self.bounds.losses || (self.bounds.partition && !state.split));
        let first = |(_, to, message): &&(MemberId, MemberId, R::Message)| R::only_notes(message) || to_the_dead(to);
        if let Some((from, to, message)) = state.flying.iter().find(first).filter(|_| !may_lose) {
            return actions.push(Action::Deliver(*from, *to, message.clone()));
        }
        for (from, to, message) in &state.flying {
            actions.push(Action::Deliver(*from, *to, message.clone()));
            if trouble && state.losses < self.bounds.losses {
                actions.push(Action::Lose(*from, *to, message.clone()));
            }
        }
        for (at, node) in state.nodes.iter().enumerate() {
            if state.due(at) {
                actions.push(Action::Tick(at));
            }
            if trouble && node.machine.is_some() && state.crashes < self.bounds.crashes {
                actions.push(Action::Crash(at));
            }
            if trouble && node.machine.is_none() && state.restarts < self.bounds.restarts {
                actions.push(Action::Restart(at));
            }
        }
        if trouble && self.bounds.partition && !state.split {
            actions.push(Action::Split);
        }
        if state.now < self.bounds.until && state.is_quiet() {
            actions.push(Action::Pass);
        }
    }

    fn next_state(&self, last: &Peers<R>, action: Self::Action) -> Option<Peers<R>> {
        let mut next = last.clone();
        match action {
            Action::Deliver(from, to, message) => {
                next.flying.remove(&(from, to, message.clone()));
                next.input(usize::from(to.0), Input::Message(from, message));
            }
            Action::Lose(from, to, message) => {
                next.losses += 1;
                next.flying.remove(&(from, to, message));
            }
            Action::Tick(at) => next.input(at, Input::Tick),
            Action::Crash(at) => {
                next.crashes += 1;
                next.nodes[at] = Arc::new(Node { machine: None, in_office: false });
            }
            Action::Restart(at) => {
                next.restarts += 1;
                next.nodes[at] = Arc::new(Node { machine: self.machine(last.now, at), in_office: false });
                next.drain(at);
            }
            Action::Split => {
                next.split = true;
                let cut_off = MemberId(self.bounds.members - 1);
                next.flying.retain(|(from, to, _)| (*from == cut_off) == (*to == cut_off));
            }
            Action::Pass => next.now += 1,
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("all agree in the end", |model: &Self, state: &Peers<R>| {
                state.split || !model.is_over(state) || state.agrees()
            }),
            Property::always("the highest leads in the end", |model: &Self, state: &Peers<R>| {
                let highest = || state.leaders().first().copied() == state.highest_alive();
                !model.bounds.take_over || state.split || !model.is_over(state) || highest()
            }),
            Property::always("with the majority rule one is in office in the end", |model: &Self, state: &Peers<R>| {
                !model.bounds.majority || !model.is_over(state) || state.in_office() == 1
            }),
            Property::sometimes("the end is reached", |model: &Self, state: &Peers<R>| model.is_over(state)),
            Property::sometimes("two are in office in the end", |model: &Self, state: &Peers<R>| {
                model.is_over(state) && state.in_office() == 2
            }),
        ]
    }
}

const BASE: Bounds = Bounds {
    members: 3,
    settled: 3,
    trouble: 7,
    until: 18,
    crashes: 1,
    restarts: 1,
    losses: 0,
    partition: false,
    majority: false,
    take_over: true,
};

const ALWAYS: [&str; 3] =
    ["all agree in the end", "the highest leads in the end", "with the majority rule one is in office in the end"];

/// Explores everything. The answer is whether two were found in office in the end.
fn explore<R: ByRank>(bounds: Bounds) -> bool {
    let checker = RankModel::<R>::new(bounds).checker().spawn_bfs().join();
    for name in ALWAYS {
        if let Some(path) = checker.discovery(name) {
            let last = format!("{:#?}", path.last_state());
            panic!("{name}: broken within {bounds:?}:\n{:#?}\n{last}", path.into_actions());
        }
    }
    assert!(checker.discovery("the end is reached").is_some(), "the check never came to an end");
    println!("{} states within {bounds:?}", checker.unique_state_count());
    checker.discovery("two are in office in the end").is_some()
}

#[test]
fn bully_members_agree_on_the_highest_after_a_crash_and_a_restart() {
    assert!(!explore::<Bully>(BASE));
}

#[test]
fn bully_members_that_all_start_at_once_agree() {
    assert!(!explore::<Bully>(Bounds { settled: 0, trouble: 3, until: 12, ..BASE }));
}

#[test]
fn bully_members_agree_after_lost_messages() {
    assert!(!explore::<Bully>(Bounds { crashes: 0, losses: 2, ..BASE }));
}

#[test]
fn bully_members_that_do_not_take_over_agree() {
    assert!(!explore::<Bully>(Bounds { take_over: false, ..BASE }));
}

#[test]
fn a_partition_gives_a_bully_election_two_leaders() {
    assert!(explore::<Bully>(Bounds { crashes: 0, partition: true, ..BASE }));
}

#[test]
fn with_the_majority_rule_a_partitioned_bully_election_ends_with_one() {
    assert!(!explore::<Bully>(Bounds { crashes: 0, partition: true, majority: true, ..BASE }));
}

#[test]
fn ring_members_agree_on_the_highest_after_a_crash_and_a_restart() {
    assert!(!explore::<Ring>(BASE));
}

#[test]
fn ring_members_that_all_start_at_once_agree() {
    assert!(!explore::<Ring>(Bounds { settled: 0, trouble: 0, until: 12, crashes: 0, ..BASE }));
}

#[test]
fn ring_members_agree_after_lost_messages() {
    assert!(!explore::<Ring>(Bounds { crashes: 0, losses: 3, ..BASE }));
}

#[test]
fn a_ring_election_survives_the_death_of_the_leader_and_of_the_starter() {
    assert!(!explore::<Ring>(Bounds { members: 4, crashes: 2, restarts: 0, ..BASE }));
}

#[test]
fn ring_members_that_do_not_take_over_agree() {
    assert!(!explore::<Ring>(Bounds { take_over: false, ..BASE }));
}

#[test]
fn a_partition_gives_a_ring_election_two_leaders() {
    assert!(explore::<Ring>(Bounds { crashes: 0, partition: true, ..BASE }));
}

#[test]
fn with_the_majority_rule_a_partitioned_ring_election_ends_with_one() {
    assert!(!explore::<Ring>(Bounds { crashes: 0, partition: true, majority: true, ..BASE }));
}
