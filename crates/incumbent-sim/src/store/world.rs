//! The event loop: one queue, ordered by global time and then by when a thing was put there.

use std::collections::BTreeSet;
use std::time::Duration;

use incumbent_core::{Answer, CandidacyId, ElectionName, Event, Fault, Input, Output, Participant, Rng, Token};
use incumbent_store::LineKind;

use super::causes::Cause;
use super::checker::Checker;
use super::faults::Mishap;
use super::operator::Operator;
use super::process::{Message, Process};
use super::scenario::{Kind, Scenario, Weather};
use super::server::{Ask, Sender, Server, Watch, at};
use super::users::Deed;
use crate::clock::LocalClock;
use crate::queue::Queue;
use crate::report::{Counts, Outcome};
use crate::trace::{Trace, trace};
use crate::variant::Variant;

/// Runs one seed to its end, or to the first broken rule.
pub(crate) fn run(seed: u64, variant: Variant, tracing: bool) -> Outcome {
    let mut world = World::new(seed, variant, tracing);
    world.start();
    world.run();
    let counts = Counts::from([("events", world.events), ("terms", world.checker.terms)]);
    let (trace, violation) = world.checker.trace.finish();
    Outcome { seed, violation, counts, trace }
}

/// No run gets here: a bound on the loop.
const MOST_EVENTS: u64 = 2_000_000;

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) from: Sender,
    pub(crate) ask: Ask,
}

/// What happens at a moment.
#[derive(Debug)]
pub(crate) enum Happening {
    Tick {
        process: usize,
        serial: u64,
    },
    Arrive(Box<Request>),
    Deliver {
        process: usize,
        boot: u32,
        message: Box<Message>,
    },
    NodeEvent {
        operator: usize,
        attempt: u64,
        answer: Box<Result<Answer, Fault>>,
    },
    RetryOperation {
        operator: usize,
        attempt: u64,
    },
    BecomeVisible(Box<Request>, Token),
    Expire,
    Raise {
        process: usize,
        boot: u32,
        candidacy: CandidacyId,
        call: incumbent_core::CallId,
        election: usize,
        token: Token,
    },
    Shot {
        process: usize,
        boot: u32,
        candidacy: CandidacyId,
        call: incumbent_core::CallId,
        election: usize,
        term: Token,
    },
    Write {
        election: usize,
        token: Token,
    },
    Deed(Deed),
    Mishap(Mishap),
    Phase(Phase),
}

/// The stages of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Heal,
    Settled,
    Stable,
    Over,
    /// Of the elections in this set, each has a leader again.
    Replaced(u8),
    /// An operator gives an order, and it is obeyed.
    Order,
    Obeyed {
        election: usize,
        operator: usize,
        led_before: Option<Token>,
    },
}

pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) scenario: Scenario,
    pub(crate) variant: Variant,
    pub(crate) rng: Rng,
    pub(crate) names: Vec<ElectionName>,
    /// Which elections have a resource that compares tokens, and the largest token that it has
    /// seen.
    pub(crate) fences: Vec<Option<u64>>,
    /// In which elections candidates ask for a record of terms. Most do.
    pub(crate) recorded: Vec<bool>,
    /// Whether the candidates of each election have priorities.
    pub(crate) ranked: Vec<bool>,
    /// Leaders fall ill soon, and are well again when they lead no more.
    pub(crate) flapping: bool,
    /// What makes all of an election unwell.
    pub(crate) causes: Vec<Cause>,
    /// For what is drawn beside everything else.
    pub(crate) dice: Rng,
    pub(crate) server: Server,
    pub(crate) processes: Vec<Process>,
    pub(crate) operators: Vec<Operator>,
    pub(crate) checker: Checker,
    pub(crate) weather: Weather,
    /// Those that cannot reach the server.
    pub(crate) cut_off: BTreeSet<usize>,
    /// Those that talk to a server which is no longer the server.
    pub(crate) on_stale_server: BTreeSet<usize>,
    pub(crate) server_down: bool,
    /// The terms of which those that left said that they stay open.
    pub(crate) left_open: BTreeSet<(usize, Token)>,
    /// It has no room for anything new.
    pub(crate) server_full: bool,
    /// Users act and faults happen.
    pub(crate) stormy: bool,
    /// Operators go on with what they began.
    pub(crate) under_operation: bool,
    /// Everyone leaves.
    pub(crate) closing: bool,
    pub(crate) changes_when_settled: Vec<u64>,
    queue: Queue<Happening>,
    events: u64,
    expiry: Option<u64>,
    over: bool,
}

impl World {
    fn new(seed: u64, variant: Variant, tracing: bool) -> World {
        let mut rng = Rng::from_number(seed);
        let scenario = Scenario::draw(&mut rng, variant);
        let drift = i64::from(if scenario.settings.drift_ppm == 0 { 50_000 } else { scenario.settings.drift_ppm });
        let one_clock = scenario.shape.one_clock;
        let clock = |rng: &mut Rng| match one_clock {
            // The server's, too: it is a directory of the same host.
            true => LocalClock::new(0, 0),
            false => LocalClock::new(1 + rng.below(1 << 40), rng.below(2 * drift as u64 + 1) as i64 - drift),
        };
        let mut dice = Rng::from_number(!seed);
        let mut fate = Rng::from_number(seed.rotate_left(32));
        // The bounds of deaths and orders have no room for another handover.
        let is_ranked = matches!(scenario.kind, Kind::Quiet | Kind::Chaos) && scenario.shape.line == LineKind::Fair;
        let names = ["jobs/a", "jobs/b", "c", "d", "e"]
            .iter()
            .take(scenario.elections)
            .filter_map(|name| ElectionName::new(name).ok());
        World {
            now: 0,
            names: names.collect(),
            fences: (0..scenario.elections).map(|_| (rng.below(3) > 0).then_some(0)).collect(),
            recorded: (0..scenario.elections).map(|_| dice.below(2) == 0 || scenario.kind == Kind::Outage).collect(),
            ranked: (0..scenario.elections).map(|_| is_ranked && dice.below(2) == 0).collect(),
            flapping: dice.below(6) == 0 && scenario.kind == Kind::Chaos,
            causes: (0..scenario.elections).map(|_| Cause::new(&scenario, fate.fork())).collect(),
            dice,
            server: Server::new(scenario.shape, scenario.granted, scenario.proof, variant),
            processes: (0..scenario.processes).map(|_| Process::new(clock(&mut rng))).collect(),
            operators: Vec::new(),
            checker: Checker::new(scenario.elections, Trace::new(tracing)),
            weather: scenario.weather,
            cut_off: BTreeSet::new(),
            on_stale_server: BTreeSet::new(),
            server_down: false,
            server_full: false,
            left_open: BTreeSet::new(),
            stormy: scenario.kind == Kind::Chaos,
            under_operation: true,
            closing: false,
            changes_when_settled: Vec::new(),
            queue: Queue::new(),
            events: 0,
            expiry: None,
            over: false,
            scenario,
            variant,
            rng,
        }
    }

    fn start(&mut self) {
        trace!(self, "world", "{:?}, {}", self.scenario, self.variant);
        for process in 0..self.processes.len() {
            self.boot(process);
        }
        self.plan_mishaps();
        if self.scenario.kind == Kind::Orders {
            self.after(self.scenario.longest_ttl() * 2, Happening::Phase(Phase::Order));
        }
        self.plan_acts();
        self.plan_causes();
        self.after(self.scenario.chaos, Happening::Phase(Phase::Heal));
    }

    fn run(&mut self) {
        while let Some((at, what)) = self.queue.pop() {
            debug_assert!(at >= self.now, "time does not run backwards");
            self.now = at;
            self.events += 1;
            self.happen(what);
            if self.events >= MOST_EVENTS {
                self.fail("SPIN", "the run does not end".into());
            }
            if self.over || self.checker.trace.is_broken() {
                break;
            }
        }
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Tick { process, serial } => self.on_tick(process, serial),
            Happening::Arrive(request) => self.arrive(*request),
            Happening::Deliver { process, boot, message } => self.deliver(process, boot, *message),
            Happening::NodeEvent { operator, attempt, answer } => self.on_told(operator, attempt, *answer),
            Happening::RetryOperation { operator, attempt } => self.retry_operation(operator, attempt),
            Happening::BecomeVisible(request, token) => self.become_visible(&request, token),
            Happening::Expire => {
                self.expiry = None;
                self.server.table.expire(at(self.now));
                self.after_step();
            }
            Happening::Raise { process, boot, candidacy, call, election, token } => {
                self.raise(election, token);
                let answer = Input::Answer(candidacy, call, Ok(Answer::Raised));
                self.send_to_process(process, boot, Message::Input(answer));
            }
            Happening::Shot { process, boot, candidacy, call, election, term } => {
                self.on_shot((process, boot, candidacy), call, (election, term));
            }
            Happening::Write { election, token } => self.write(election, token),
            Happening::Deed(deed) => self.on_deed(deed),
            Happening::Mishap(mishap) => self.on_mishap(mishap),
            Happening::Phase(phase) => self.on_phase(phase),
        }
    }

    pub(crate) fn after(&mut self, delay: u64, what: Happening) {
        self.queue.push(self.now.saturating_add(delay), what);
    }

    pub(crate) fn fail(&mut self, rule: &'static str, text: String) {
        self.checker.fail(self.now, rule, text);
    }

    pub(crate) fn end(&mut self) {
        self.over = true;
    }

    /// True in `share` of a thousand cases.
    pub(crate) fn chance(&mut self, share: u64) -> bool {
        share > 0 && self.rng.below(1_000) < share
    }

    pub(crate) fn election(&self, name: &ElectionName) -> usize {
        self.names.iter().position(|known| known == name).unwrap_or(0)
    }

    /// Starts a process that is not running.
    pub(crate) fn boot(&mut self, process: usize) {
        let seed = std::array::from_fn(|_| self.rng.next_u64());
        self.processes[process].start(Participant::new(self.scenario.settings, seed));
        trace!(self, format!("p{process}"), "starts");
        for election in 0..self.names.len() {
            if self.scenario.kind != Kind::Chaos || !self.stormy || self.chance(850) {
                let boot = self.processes[process].boot;
                let delay = self.rng.below(self.scenario.ttl() / 4);
                self.after(delay, Happening::Deed(Deed::Stand { process, boot, election }));
            }
        }
    }

    /// Gives a process something to handle, or keeps it until the process is no longer stopped.
    pub(crate) fn deliver(&mut self, process: usize, boot: u32, message: Message) {
        let state = &mut self.processes[process];
        if state.boot != boot || state.machine.is_none() {
            return;
        }
        if state.paused {
            return state.inbox.push_back(message);
        }
        self.feed(process, message);
        self.pump(process);
    }

    /// Lets the machine handle one message; its outputs are taken afterwards.
    fn feed(&mut self, process: usize, message: Message) {
        if let Message::Input(input) = &message {
            trace!(self, format!("p{process}"), "<- {input:?}");
            self.note_answer(process, input);
        }
        let state = &mut self.processes[process];
        let now = state.clock.read(self.now);
        let Some(machine) = &mut state.machine else { return };
        match message {
            Message::Input(input) => machine.handle(now, input),
            Message::Opened(attempt, answer) => {
                let session = answer.as_ref().ok().map(|(session, _)| *session);
                // A doubled opening makes two sessions: the first answer counts, the other session
                // lapses.
                if let Some(session) = session {
                    state.sessions.entry(attempt.0).or_insert(session);
                }
                machine.handle(now, Input::Opened(attempt, answer.map(|(_, liveness)| liveness)));
                trace!(self, format!("p{process}"), "<- Opened({attempt:?}, {session:?})");
            }
        }
    }

    /// Resumes a stopped process: what came meanwhile comes now.
    pub(crate) fn resume(&mut self, process: usize) {
        let state = &mut self.processes[process];
        if !state.paused {
            return;
        }
        state.paused = false;
        if state.suspended {
            state.suspended = false;
            state.clock.thaw(self.now);
        }
        trace!(self, format!("p{process}"), "goes on");
        let inbox = std::mem::take(&mut self.processes[process].inbox);
        for message in inbox {
            self.feed(process, message);
            self.pump(process);
        }
        self.command(process, Input::Tick);
    }

    /// Hands a process something from its own host.
    pub(crate) fn command(&mut self, process: usize, input: Input) {
        let boot = self.processes[process].boot;
        self.deliver(process, boot, Message::Input(input));
    }

    fn on_tick(&mut self, process: usize, serial: u64) {
        let state = &mut self.processes[process];
        if state.tick_serial != serial || state.machine.is_none() || state.paused {
            return;
        }
        state.next_tick = None;
        state.ticks_now = if state.ticks_now.0 == self.now { (self.now, state.ticks_now.1 + 1) } else { (self.now, 1) };
        if state.ticks_now.1 > 8 {
            let text = format!("p{process} asks for a tick at the same moment again and again");
            return self.fail("SPIN", text);
        }
        let now = state.clock.read(self.now);
        if let Some(machine) = &mut state.machine {
            machine.handle(now, Input::Tick);
        }
        self.pump(process);
    }

    /// Carries out what the machine wants, and sets its alarm.
    fn pump(&mut self, process: usize) {
        while let Some(output) = self.processes[process].machine.as_mut().and_then(Participant::poll_output) {
            self.put_out(process, output);
        }
        self.check_departures(process);
        self.set_alarm(process);
    }

    /// A leader that is benched, and is to leave in any case, has a TTL for that.
    fn check_departures(&mut self, process: usize) {
        let state = &self.processes[process];
        let (now, within) = (state.clock.read(self.now), Duration::from_nanos(self.scenario.longest_ttl()));
        let stays = state.users.values().find_map(|user| {
            let term = user.term.as_ref().filter(|_| !user.stopping)?;
            let (_, since) = user.told.is_to_leave_since?;
            (now.since(since) > within).then_some((user.election, term.token))
        });
        if let Some((election, token)) = stays {
            self.checker.benched(self.now, election, token, "stays longer than it may");
        }
    }

    pub(crate) fn set_alarm(&mut self, process: usize) {
        let slack = self.scenario.timer_slack;
        let slack = if slack > 0 && self.stormy { self.rng.below(slack) } else { 0 };
        let state = &mut self.processes[process];
        let due = state.machine.as_ref().and_then(Participant::poll_timeout).map(|due| state.clock.when(due));
        let due = due.map(|due| due.max(self.now));
        if due == state.next_tick {
            return;
        }
        state.next_tick = due;
        state.tick_serial += 1;
        let serial = state.tick_serial;
        if let Some(due) = due.filter(|due| *due < u64::MAX) {
            self.after(due - self.now + slack, Happening::Tick { process, serial });
        }
    }

    fn put_out(&mut self, process: usize, output: Output) {
        trace!(self, format!("p{process}"), "-> {output:?}");
        let boot = self.processes[process].boot;
        let from = Sender::Process { process, boot };
        match output {
            Output::OpenSession(attempt, _) => {
                self.count_call(process);
                self.send(from, Ask::Open(attempt));
            }
            Output::Renew { attempt, epoch, held } => {
                self.count_call(process);
                self.processes[process].epoch = epoch.0;
                match self.processes[process].sessions.get(&epoch.0) {
                    Some(session) => self.send(from, Ask::Renew(attempt, *session, held)),
                    None => self.fail("DRIVER", format!("p{process} renews {epoch:?}, which was never opened")),
                }
            }
            Output::ReplaceSession(epoch) | Output::CloseSession(epoch) => {
                if let Some(session) = self.processes[process].sessions.get(&epoch.0) {
                    self.send(from, Ask::Close(*session));
                }
            }
            Output::Call(candidacy, call, epoch, op) => self.put_out_call(process, candidacy, call, epoch, op),
            Output::Watch { candidacy, watch, what, from: cursor } => {
                self.count_call(process);
                self.server.unwatch((process, boot, candidacy));
                self.send(from, Ask::Watch(Watch { candidacy, watch, what, from: cursor }));
            }
            // What was given up may still arrive: the network drops nothing for it.
            Output::GiveUpAttempt(_) => {}
            Output::GiveUpCall(candidacy) => {
                if let Some(user) = self.processes[process].users.get_mut(&candidacy) {
                    if std::mem::take(&mut user.awaits_answer) {
                        user.ceded = user.ceding.or(user.ceded);
                    }
                    if let Some(before) = user.told_before.take() {
                        user.told = before;
                    }
                    user.shot = None;
                }
                self.drop_raise(process, candidacy);
            }
            Output::Unwatch(candidacy) => self.server.unwatch((process, boot, candidacy)),
            Output::Event(candidacy, event) => self.on_event(process, candidacy, event),
            Output::SettingsRefused(error) => self.fail("SETTINGS", error.to_string()),
            Output::Closed => self.processes[process].closed = true,
        }
    }

    /// No machine calls without end.
    pub(crate) fn count_call(&mut self, process: usize) {
        let second = self.now / 1_000_000_000;
        let most = 150 * self.names.len() as u32;
        let calls = &mut self.processes[process].calls_in;
        *calls = if calls.0 == second { (second, calls.1 + 1) } else { (second, 1) };
        if calls.1 > most {
            self.fail("SPIN", format!("p{process} made more than {most} calls in a second"));
        }
    }

    fn on_event(&mut self, process: usize, candidacy: CandidacyId, event: Event) {
        // Those that sweep up after late writes have no user.
        if self.processes[process].users.contains_key(&candidacy) {
            self.on_user_event(process, candidacy, event);
        }
    }

    /// After every step of the server: tell those who wait, look at who is first, and set the
    /// server's own alarm.
    pub(crate) fn after_step(&mut self) {
        let (touched, fired) = self.server.touched();
        for (name, touch) in &touched {
            if *touch == incumbent_store::memory::Touch::Head {
                let election = self.election(name);
                let head = self.server.head(self.now, name).map(|head| head.token);
                self.checker.head(self.now, election, head);
                trace!(self, "server", "{name}: first in line is {head:?}");
            }
        }
        for ((process, boot, candidacy), watch) in fired {
            self.hint(process, boot, candidacy, watch, incumbent_core::Hint::Changed);
        }
        if let Some(next) = self.server.table.next_expiry().map(incumbent_core::Timestamp::as_nanos)
            && self.expiry.is_none_or(|set| next < set)
        {
            self.expiry = Some(next);
            self.after(next.saturating_sub(self.now), Happening::Expire);
        }
    }
}
