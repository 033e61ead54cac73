//! Bully and ring with a few members, exhaustively within [`Bounds`].
//!
//! Here the network is in time: a unit of time passes only once every message has arrived (or was lost) and every timer
//! that was due has fired; their order is tried in every way, and so is the moment of every crash, restart, loss and
//! partition. What is looked at is the end: long after the last fault, who leads?

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use incumbent_core::peers::bully::{self, Bully};
use incumbent_core::peers::ring::{self, Ring};
use incumbent_core::peers::{Group, Input, MemberId, Output, PeerFlaws, PulseMessage, RankSettings, TermRules, Wish};
use incumbent_core::{Command, Event, Refusal, Rng, Timestamp};
use stateright::{Model, Property};

/// One unit of time.
pub const UNIT: Duration = Duration::from_secs(1);

/// An election by rank.
pub trait ByRank: Clone + PartialEq + Eq + Hash + Debug + Send + Sync + Sized + 'static {
    /// What its members say.
    type Message: Clone + PartialEq + Eq + PartialOrd + Ord + Hash + Debug + Send + Sync;
    /// A member that starts now.
    fn start(now: Timestamp, group: Group, settings: RankSettings, rules: TermRules, rng: Rng) -> Option<Self>;
    /// Something happened.
    fn input(&mut self, now: Timestamp, input: Input<Self::Message>);
    /// An operator wants something.
    fn wish(&mut self, now: Timestamp, wish: Wish) -> Result<(), Refusal>;
    /// What is to be done.
    fn output(&mut self) -> Option<Output<Self::Message>>;
    /// When a tick is due.
    fn timeout(&self) -> Option<Timestamp>;
    /// Whether it has been chosen.
    fn chosen(&self) -> bool;
    /// Whether a message of this kind only notes something, so that its place among others of its unit of time is all the
    /// same.
    fn only_notes(message: &Self::Message) -> bool;
    /// Whom it follows.
    fn followed(&self, now: Timestamp) -> Option<MemberId>;
}

macro_rules! by_rank {
    ($machine:ident, $message:ty, $notes:pat) => {
        impl ByRank for $machine {
            type Message = $message;
            fn start(now: Timestamp, group: Group, settings: RankSettings, rules: TermRules, rng: Rng) -> Option<Self> {
                $machine::new(now, group, settings, (Some(rules), Bytes::new()), rng).ok()
            }
            fn wish(&mut self, now: Timestamp, wish: Wish) -> Result<(), Refusal> {
                self.wish(now, wish)
            }
            fn input(&mut self, now: Timestamp, input: Input<Self::Message>) {
                self.handle(now, input);
            }
            fn output(&mut self) -> Option<Output<Self::Message>> {
                self.poll_output()
            }
            fn timeout(&self) -> Option<Timestamp> {
                self.poll_timeout()
            }
            fn chosen(&self) -> bool {
                self.leads()
            }
            fn only_notes(message: &Self::Message) -> bool {
                matches!(message, $notes)
            }
            fn followed(&self, now: Timestamp) -> Option<MemberId> {
                self.follows(now)
            }
        }
    };
}

by_rank!(Bully, bully::Message, bully::Message::Pulse(PulseMessage::Heard { .. }));
by_rank!(Ring, ring::Message, ring::Message::Passed { .. } | ring::Message::Pulse(PulseMessage::Heard { .. }));

/// How far the exploration goes.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Members.
    pub members: u16,
    /// Units of time in which all start and agree, in one order, before everything is tried. Zero: the start is explored
    /// too, with all elections that it begins at once.
    pub settled: u64,
    /// Faults happen before this unit of time.
    pub trouble: u64,
    /// The last unit of time, at which all must agree.
    pub until: u64,
    /// Crashes, each of any member.
    pub crashes: u8,
    /// Restarts of those that crashed.
    pub restarts: u8,
    /// Messages that are lost.
    pub losses: u8,
    /// Whether the highest member is cut off at some moment, for good.
    pub partition: bool,
    /// The majority rule.
    pub majority: bool,
    /// Whether higher ranks take over.
    pub take_over: bool,
}

/// The model.
#[derive(Clone, Debug)]
pub struct RankModel<R> {
    /// How far to go.
    pub bounds: Bounds,
    machine: PhantomData<R>,
}

impl<R> RankModel<R> {
    /// A model within these bounds.
    pub fn new(bounds: Bounds) -> RankModel<R> {
        RankModel { bounds, machine: PhantomData }
    }
}

/// Everything that there is at one moment.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Peers<R: ByRank> {
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
pub enum Action<M> {
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
    pub fn leaders(&self) -> Vec<usize> {
        let chosen = |at: &usize| self.nodes[*at].machine.as_ref().is_some_and(R::chosen);
        (0..self.nodes.len()).filter(chosen).collect()
    }

    /// Members in office.
    pub fn in_office(&self) -> usize {
        self.nodes.iter().filter(|node| node.in_office).count()
    }

    /// Whether one leads and all others that live follow it.
    pub fn agrees(&self) -> bool {
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
        let settings = RankSettings {
            heartbeat: UNIT,
            leader_timeout: UNIT * 3,
            answer_timeout: UNIT,
            grace: Duration::ZERO,
            majority: self.bounds.majority,
            take_over: self.bounds.take_over,
            flaws: PeerFlaws::NONE,
        };
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
