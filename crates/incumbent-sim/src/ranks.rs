//! Bully and ring in virtual time, over links that may be cut: how often the office changes hands,
//! and for how long two are in it. The same scenario gives the same run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use bytes::Bytes;
use incumbent_core::peers::bully::{self, Bully};
use incumbent_core::peers::ring::{self, Ring};
use incumbent_core::peers::{Group, Input, MemberId, OperatorRequest, Output, RankMessage, RankSettings, TermRules};
use incumbent_core::{Command, Event, LossReason, Refusal, Rng, TermNo, Timestamp};

use crate::queue::{Queue, When};

/// How long a message is on its way.
const DELAY: Duration = Duration::from_millis(2);
/// No run takes more steps than this.
const MAX_STEPS: usize = 2_000_000;

/// An election by rank.
pub trait ByRank: Clone + PartialEq + Eq + Hash + Debug + Send + Sync + Sized + 'static {
    /// What its members say.
    type Message: Clone + PartialEq + Eq + PartialOrd + Ord + Hash + Debug + Send + Sync;
    /// A member that starts now.
    fn start(now: Timestamp, group: Group, settings: RankSettings, rules: TermRules, rng: Rng) -> Option<Self>;
    /// Something happened.
    fn input(&mut self, now: Timestamp, input: Input<Self::Message>);
    /// An operator wants something.
    fn request(&mut self, now: Timestamp, request: OperatorRequest) -> Result<(), Refusal>;
    /// What is to be done.
    fn output(&mut self) -> Option<Output<Self::Message>>;
    /// When a tick is due.
    fn timeout(&self) -> Option<Timestamp>;
    /// Whether it has been chosen.
    fn chosen(&self) -> bool;
    /// Whether a message of this kind only notes something, so that its place among others of its
    /// unit of time is all the same.
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
            fn request(&mut self, now: Timestamp, request: OperatorRequest) -> Result<(), Refusal> {
                self.request(now, request)
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

by_rank!(Bully, bully::Message, bully::Message::Rank(RankMessage::Heard { .. }));
by_rank!(Ring, ring::Message, ring::Message::Passed { .. } | ring::Message::Rank(RankMessage::Heard { .. }));

/// What a run is made from.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// How many members there are, from 1 on.
    pub members: u16,
    /// Their settings.
    pub settings: RankSettings,
    /// Directions that are cut: from, to.
    pub cut: Vec<(u16, u16)>,
    /// When each member starts; those that are not here start at once.
    pub starts: BTreeMap<u16, Duration>,
    /// When each member ends without a word.
    pub crashes: BTreeMap<u16, Duration>,
    /// When a member gives the office back, if it has it.
    pub resigns: Vec<(u16, Duration)>,
    /// When an operator asks a member to give the office back, if it has it.
    pub asked: Vec<(u16, Duration)>,
    /// How long the work of a leader takes to stop.
    pub work: Duration,
    /// Whether the office is kept until the work has stopped.
    pub hold: bool,
    /// How long the run is.
    pub until: Duration,
}

impl Scenario {
    /// So many members that all start at once, and nothing goes wrong.
    pub fn new(members: u16, settings: RankSettings) -> Scenario {
        Scenario {
            members,
            settings,
            cut: Vec::new(),
            starts: BTreeMap::new(),
            crashes: BTreeMap::new(),
            resigns: Vec::new(),
            asked: Vec::new(),
            work: Duration::from_millis(100),
            hold: false,
            until: Duration::from_secs(120),
        }
    }
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Who was elected, and when.
    pub elected: Vec<(Duration, u16)>,
    /// Who lost the office without having been asked to stop first.
    pub unasked: Vec<(Duration, u16)>,
    /// Who was shown that another leads while it was at work.
    pub shown_at_work: Vec<(Duration, u16)>,
    /// For how long two were in office at a time.
    pub overlap: Duration,
    /// For how long two were at work at a time.
    pub both_work: Duration,
}

enum Happening<M> {
    Start,
    Crash,
    Tick,
    Resign,
    Asked,
    /// The work of this term has stopped.
    Stopped(TermNo),
    Said(MemberId, M),
}

struct World<R: ByRank> {
    scenario: Scenario,
    now: Duration,
    members: BTreeMap<u16, R>,
    queue: Queue<(u16, Happening<R::Message>)>,
    /// The tick that each member waits for.
    armed: BTreeMap<u16, When>,
    in_office: BTreeSet<u16>,
    asked_to_stop: BTreeSet<u16>,
    /// Who is at work, in which term, and whether the end of it is due.
    at_work: BTreeMap<u16, (TermNo, bool)>,
    outcome: Outcome,
}

/// Runs a scenario to its end.
pub fn run<R: ByRank>(scenario: Scenario) -> Outcome {
    let mut world = World::<R> {
        scenario,
        now: Duration::ZERO,
        members: BTreeMap::new(),
        queue: Queue::new(),
        armed: BTreeMap::new(),
        in_office: BTreeSet::new(),
        asked_to_stop: BTreeSet::new(),
        at_work: BTreeMap::new(),
        outcome: Outcome::default(),
    };
    for who in 1..=world.scenario.members {
        let at = world.scenario.starts.get(&who).copied().unwrap_or_default();
        world.at(at, who, Happening::Start);
    }
    for (who, at) in world.scenario.crashes.clone() {
        world.at(at, who, Happening::Crash);
    }
    for (who, at) in world.scenario.resigns.clone() {
        world.at(at, who, Happening::Resign);
    }
    for (who, at) in world.scenario.asked.clone() {
        world.at(at, who, Happening::Asked);
    }
    for _ in 0..MAX_STEPS {
        let Some((at, (who, what))) = world.queue.pop() else { break };
        let at = Duration::from_nanos(at);
        if at > world.scenario.until {
            break;
        }
        if world.in_office.len() > 1 {
            world.outcome.overlap += at - world.now;
        }
        if world.at_work.len() > 1 {
            world.outcome.both_work += at - world.now;
        }
        world.now = at;
        world.happen(who, what);
    }
    world.outcome
}

impl<R: ByRank> World<R> {
    fn at(&mut self, at: Duration, who: u16, what: Happening<R::Message>) -> When {
        self.queue.push(at.as_nanos() as u64, (who, what))
    }

    fn time(&self) -> Timestamp {
        Timestamp::ZERO + self.now
    }

    fn happen(&mut self, who: u16, what: Happening<R::Message>) {
        let now = self.time();
        let input = match what {
            Happening::Start => {
                let group = Group::new(MemberId(who), (1..=self.scenario.members).map(MemberId));
                let rng = Rng::from_number(u64::from(who));
                let rules = TermRules { hold_until_stopped: self.scenario.hold, ..TermRules::default() };
                let machine = group.ok().and_then(|group| R::start(now, group, self.scenario.settings, rules, rng));
                self.members.extend(machine.map(|machine| (who, machine)));
                return self.drain(who);
            }
            Happening::Crash => {
                self.members.remove(&who);
                self.in_office.remove(&who);
                self.at_work.remove(&who);
                return;
            }
            Happening::Tick => Input::Tick,
            Happening::Resign => {
                self.at_work.remove(&who);
                Input::Command(Command::Release)
            }
            Happening::Asked => {
                if let Some(machine) = self.members.get_mut(&who) {
                    // Whether it leads is not known here.
                    let _ = machine.request(now, OperatorRequest::Resign);
                }
                return self.drain(who);
            }
            Happening::Stopped(term) => {
                if self.at_work.get(&who).is_none_or(|(now, _)| *now != term) {
                    return;
                }
                self.at_work.remove(&who);
                Input::Command(Command::Release)
            }
            Happening::Said(from, message) => Input::Message(from, message),
        };
        if let Some(machine) = self.members.get_mut(&who) {
            machine.input(now, input);
            self.drain(who);
        }
    }

    fn drain(&mut self, who: u16) {
        while let Some(output) = self.members.get_mut(&who).and_then(R::output) {
            match output {
                Output::Send(to, message) if !self.scenario.cut.contains(&(who, to.0)) => {
                    self.at(self.now + DELAY, to.0, Happening::Said(MemberId(who), message));
                }
                Output::Event(event) => self.on_event(who, event),
                _ => {}
            }
        }
        if let Some(due) = self.members.get(&who).and_then(R::timeout) {
            let at = due.since(Timestamp::ZERO).max(self.now);
            let tick = self.at(at, who, Happening::Tick);
            if let Some(before) = self.armed.insert(who, tick) {
                self.queue.remove(before);
            }
        }
    }

    fn on_event(&mut self, who: u16, event: Event) {
        match event {
            Event::Elected { term, .. } => {
                self.in_office.insert(who);
                self.asked_to_stop.remove(&who);
                self.at_work.insert(who, (term, false));
                self.outcome.elected.push((self.now, who));
            }
            Event::Stopping { .. } => {
                self.asked_to_stop.insert(who);
                self.stop_work(who);
            }
            Event::Unelected(why) => {
                self.in_office.remove(&who);
                if why != LossReason::Resigned && !self.asked_to_stop.contains(&who) {
                    self.outcome.unasked.push((self.now, who));
                }
                self.stop_work(who);
            }
            Event::Follows { .. } | Event::Out(_) if self.at_work.contains_key(&who) => {
                self.outcome.shown_at_work.push((self.now, who));
            }
            _ => {}
        }
    }

    /// The work stops, which takes its time.
    fn stop_work(&mut self, who: u16) {
        if let Some((term, due)) = self.at_work.get_mut(&who)
            && !std::mem::replace(due, true)
        {
            let term = *term;
            self.at(self.now + self.scenario.work, who, Happening::Stopped(term));
        }
    }
}
