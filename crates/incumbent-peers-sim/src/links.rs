//! Bully and ring in virtual time, over links that may be cut: how often the office changes hands,
//! and for how long two are in it. The same plan gives the same run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use incumbent_core::peers::{Group, Input, MemberId, Output, RankSettings, TermRules, Wish};
use incumbent_core::{Command, Event, LossReason, Rng, TermNo, Timestamp};

use crate::check::ranks::ByRank;

/// How long a message is on its way.
const DELAY: Duration = Duration::from_millis(2);
/// No run takes more steps than this.
const MAX_STEPS: usize = 2_000_000;

/// What a run is made from.
#[derive(Clone, Debug)]
pub struct Plan {
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

impl Plan {
    /// So many members that all start at once, and nothing goes wrong.
    pub fn new(members: u16, settings: RankSettings) -> Plan {
        Plan {
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

/// A moment, and the order in which things of that moment came to be.
type When = (Duration, u64);

struct World<R: ByRank> {
    plan: Plan,
    now: Duration,
    members: BTreeMap<u16, R>,
    queue: BTreeMap<When, (u16, Happening<R::Message>)>,
    next: u64,
    /// The tick that each member waits for.
    armed: BTreeMap<u16, When>,
    in_office: BTreeSet<u16>,
    asked_to_stop: BTreeSet<u16>,
    /// Who is at work, in which term, and whether the end of it is due.
    at_work: BTreeMap<u16, (TermNo, bool)>,
    outcome: Outcome,
}

/// Runs a plan to its end.
pub fn run<R: ByRank>(plan: Plan) -> Outcome {
    let mut world = World::<R> {
        plan,
        now: Duration::ZERO,
        members: BTreeMap::new(),
        queue: BTreeMap::new(),
        next: 0,
        armed: BTreeMap::new(),
        in_office: BTreeSet::new(),
        asked_to_stop: BTreeSet::new(),
        at_work: BTreeMap::new(),
        outcome: Outcome::default(),
    };
    for who in 1..=world.plan.members {
        let at = world.plan.starts.get(&who).copied().unwrap_or_default();
        world.at(at, who, Happening::Start);
    }
    for (who, at) in world.plan.crashes.clone() {
        world.at(at, who, Happening::Crash);
    }
    for (who, at) in world.plan.resigns.clone() {
        world.at(at, who, Happening::Resign);
    }
    for (who, at) in world.plan.asked.clone() {
        world.at(at, who, Happening::Asked);
    }
    for _ in 0..MAX_STEPS {
        let Some(((at, _), (who, what))) = world.queue.pop_first() else { break };
        if at > world.plan.until {
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
    fn at(&mut self, at: Duration, who: u16, what: Happening<R::Message>) {
        self.next += 1;
        self.queue.insert((at, self.next), (who, what));
    }

    fn time(&self) -> Timestamp {
        Timestamp::ZERO + self.now
    }

    fn happen(&mut self, who: u16, what: Happening<R::Message>) {
        let now = self.time();
        let input = match what {
            Happening::Start => {
                let group = Group::new(MemberId(who), (1..=self.plan.members).map(MemberId));
                let rng = Rng::from_number(u64::from(who));
                let rules = TermRules { hold_until_stopped: self.plan.hold, ..TermRules::default() };
                let machine = group.ok().and_then(|group| R::start(now, group, self.plan.settings, rules, rng));
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
                    let _ = machine.wish(now, Wish::Resign);
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
                Output::Send(to, message) if !self.plan.cut.contains(&(who, to.0)) => {
                    self.at(self.now + DELAY, to.0, Happening::Said(MemberId(who), message));
                }
                Output::Event(event) => self.on_event(who, event),
                _ => {}
            }
        }
        if let Some(due) = self.members.get(&who).and_then(R::timeout) {
            let at = due.since(Timestamp::ZERO).max(self.now);
            self.at(at, who, Happening::Tick);
            if let Some(before) = self.armed.insert(who, (at, self.next)) {
                self.queue.remove(&before);
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
            _ => {}
        }
    }

    /// The work stops, which takes its time.
    fn stop_work(&mut self, who: u16) {
        if let Some((term, due)) = self.at_work.get_mut(&who)
            && !std::mem::replace(due, true)
        {
            let term = *term;
            self.at(self.now + self.plan.work, who, Happening::Stopped(term));
        }
    }
}
