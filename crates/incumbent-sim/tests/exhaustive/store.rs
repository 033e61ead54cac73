//! Exhaustive checks, within stated bounds, of small elections: participants over a table, every
//! order of events.
//!
//! What is exhaustive: all orders in which messages arrive at the server and at the candidates,
//! with at most `losses` messages lost, at most `late` messages on the way while time passes (what
//! a frozen candidate cannot take in is not counted), time in steps of a quarter of the TTL up to
//! `steps`, and at most one of each order of users and operators that the bounds name. Clocks agree
//! here; drift is the simulation's part.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use incumbent_core::{
    Answer, Attempt, CallId, CandidacyId, Candidate, Command, ElectionName, Event, Fault, Flaw, Handover, Held, Hint,
    Input, Nonce, Office, Op, Output, Participant, Paused, Policy, Settings, StoreId, Timestamp, Title, Token,
    WatchFor, WatchId,
};
use incumbent_store::memory::{SessionKey, Shape, Table, Touch};
use stateright::{Checker, Model, Property};

const TTL: Duration = Duration::from_secs(6);
const STEP: Duration = Duration::from_millis(1_500);
const CANDIDACY: CandidacyId = CandidacyId(0);

/// The bounds within which everything is tried.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    candidates: usize,
    shape: Shape,
    policy: Policy,
    steps: u64,
    losses: u8,
    late: usize,
    freezes: u8,
    resignations: u8,
    pauses: u8,
    requests_to_resign: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Process {
    machine: Participant,
    sessions: BTreeMap<u64, SessionKey>,
    /// The token and the deadline that it was told last.
    term: Option<(Token, Timestamp)>,
    stopping: bool,
    /// The work of a term that is over has still to stop.
    unconfirmed: bool,
    frozen: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Flying {
    Open(usize, Attempt),
    Renew(usize, Attempt, SessionKey, Vec<Held>),
    Call(usize, CallId, Option<SessionKey>, Op),
    Answer(usize, Box<Input>),
    Opened(usize, Attempt, SessionKey, incumbent_core::Liveness),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct World {
    step: u64,
    processes: Vec<Process>,
    table: Table,
    flying: Vec<Flying>,
    watches: BTreeMap<usize, (WatchId, WatchFor)>,
    losses: u8,
    freezes: u8,
    resignations: u8,
    pauses: u8,
    paused: bool,
    requests_to_resign: u8,
    last_token: Option<Token>,
    leaders: u8,
    broken: Option<&'static str>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    Deliver(usize),
    Lose(usize),
    TimePasses,
    Freeze(usize),
    Thaw(usize),
    /// The user gives the office back, or confirms that the work has stopped.
    Release(usize),
    Pause,
    Resume,
    AskToResign,
}

fn election() -> ElectionName {
    match ElectionName::new("e") {
        Ok(name) => name,
        Err(error) => panic!("{error}"),
    }
}

impl World {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(1_000_000_000) + STEP * self.step as u32
    }

    fn believes(&self, process: &Process) -> bool {
        process.term.is_some_and(|(_, deadline)| self.now() < deadline)
    }

    fn feed(&mut self, index: usize, input: Input) {
        let now = self.now();
        self.processes[index].machine.handle(now, input);
        while let Some(output) = self.processes[index].machine.poll_output() {
            self.put_out(index, output);
        }
    }

    fn put_out(&mut self, index: usize, output: Output) {
        let session = |epoch: incumbent_core::Epoch| self.processes[index].sessions.get(&epoch.0).copied();
        match output {
            Output::OpenSession(attempt, _) => self.flying.push(Flying::Open(index, attempt)),
            Output::Renew { attempt, epoch, held } => match session(epoch) {
                Some(session) => self.flying.push(Flying::Renew(index, attempt, session, held)),
                None => self.broken = Some("a session is renewed that was never opened"),
            },
            Output::Call(_, call, epoch, op) => {
                let session = epoch.and_then(session);
                self.flying.push(Flying::Call(index, call, session, op));
            }
            Output::Watch { watch, what, from, .. } => {
                if self.table.wakes(&what, from) {
                    self.wake(index, watch);
                } else {
                    self.watches.insert(index, (watch, what));
                }
            }
            Output::Unwatch(_) => {
                self.watches.remove(&index);
            }
            Output::Event(_, event) => self.on_event(index, event),
            Output::GiveUpAttempt(_)
            | Output::GiveUpCall(_)
            | Output::ReplaceSession(_)
            | Output::CloseSession(_)
            | Output::Closed => {}
            Output::SettingsRefused(_) => self.broken = Some("settings were refused"),
        }
    }

    fn on_event(&mut self, index: usize, event: Event) {
        let process = &mut self.processes[index];
        match event {
            Event::Elected { title: Title::Entry(held), deadline, .. } => {
                if process.term.is_some() || process.unconfirmed {
                    self.broken = Some("elected before the last term was over");
                }
                process.term = Some((held.token, deadline));
                process.stopping = false;
                if self.last_token >= Some(held.token) {
                    self.broken = Some("tokens do not grow");
                }
                self.last_token = Some(held.token);
                self.leaders += 1;
            }
            Event::Deadline(deadline) => match &mut process.term {
                Some((_, until)) => *until = deadline,
                None => self.broken = Some("a deadline for a term that is over"),
            },
            Event::Stopping { .. } => process.stopping = true,
            Event::Unelected(_) => {
                if process.term.take().is_none() {
                    self.broken = Some("unelected without having been elected");
                }
                process.unconfirmed = true;
                process.stopping = false;
            }
            Event::Failed => self.broken = Some("a candidacy failed for good"),
            _ => {}
        }
    }

    fn wake(&mut self, index: usize, watch: WatchId) {
        self.flying.push(Flying::Answer(index, Box::new(Input::Wake(CANDIDACY, watch, Hint::Changed))));
    }

    fn after_step(&mut self) {
        let touched = self.table.take_touched();
        let hit = |what: &WatchFor| {
            let touches = Touch::of(what);
            touched.iter().any(|(_, touched)| touches.contains(touched))
        };
        let fired: Vec<_> =
            self.watches.iter().filter(|(_, (_, what))| hit(what)).map(|(i, (w, _))| (*i, *w)).collect();
        for (index, watch) in fired {
            self.watches.remove(&index);
            self.wake(index, watch);
        }
    }

    fn deliver(&mut self, flying: Flying) {
        let now = self.now();
        match flying {
            Flying::Open(index, attempt) => {
                let (session, liveness) = self.table.open_session(now, TTL);
                self.flying.push(Flying::Opened(index, attempt, session, liveness));
            }
            Flying::Renew(index, attempt, session, held) => {
                let answer = self.table.renew(now, session, &held).map_err(|error| error.fault());
                self.flying.push(Flying::Answer(index, Box::new(Input::Renewed(attempt, answer))));
            }
            Flying::Call(index, call, session, op) => {
                let answer = self.call(session, &op);
                self.flying.push(Flying::Answer(index, Box::new(Input::Answer(CANDIDACY, call, answer))));
            }
            Flying::Answer(index, input) => self.feed(index, *input),
            Flying::Opened(index, attempt, session, liveness) => {
                self.processes[index].sessions.insert(attempt.0, session);
                self.feed(index, Input::Opened(attempt, Ok(liveness)));
            }
        }
        self.after_step();
    }

    fn call(&mut self, session: Option<SessionKey>, op: &Op) -> Result<Answer, Fault> {
        let now = self.now();
        let session = session.ok_or(Fault::SessionGone);
        match op {
            Op::Enlist(name, entry) => {
                let standing = self.table.enlist(now, session?, name, entry);
                standing.map(|standing| Answer::Standing(Box::new(standing))).map_err(|error| error.fault())
            }
            Op::Standing(held, _) => {
                let standing = self.table.standing(now, session?, held);
                standing.map(|standing| Answer::Standing(Box::new(standing))).map_err(|error| error.fault())
            }
            Op::Withdraw(held, heir) => {
                let cas = self.table.withdraw(now, session?, held, heir.as_ref());
                cas.map(Answer::Cas).map_err(|error| error.fault())
            }
            Op::Publish(held, was, said) => {
                let published = self.table.publish(now, session?, held, *was, said);
                published.map(Answer::Published).map_err(|error| error.fault())
            }
            Op::Line(name, limit) => Ok(Answer::Line(Box::new(self.table.line(now, name, *limit)))),
            Op::SetOffice(name, was, to) => Ok(Answer::Cas(self.table.set_office(now, name, *was, to))),
            Op::Evict(name, seen) => Ok(Answer::Cas(self.table.evict(now, name, seen))),
            Op::Examine(_) => Ok(Answer::Examined { died: false }),
            Op::Shoot(..) => Err(Fault::Permanent),
            Op::RaiseFences(_) => Ok(Answer::Raised),
        }
    }

    fn office(&mut self, change: impl FnOnce(&mut Office, Option<Token>)) {
        let now = self.now();
        let line = self.table.line(now, &election(), 1);
        let mut office = line.office;
        let was = office.version;
        change(&mut office, line.entries.first().map(|head| head.token));
        self.table.set_office(now, &election(), was, &office);
        self.after_step();
    }

    fn time_passes(&mut self) {
        self.step += 1;
        let now = self.now();
        self.table.expire(now);
        self.after_step();
        for index in 0..self.processes.len() {
            if !self.processes[index].frozen {
                self.feed(index, Input::Tick);
            }
        }
    }

    fn target(&self, flying: &Flying) -> Option<usize> {
        match flying {
            Flying::Answer(index, _) | Flying::Opened(index, ..) => Some(*index),
            Flying::Open(..) | Flying::Renew(..) | Flying::Call(..) => None,
        }
    }

    fn deliverable(&self, flying: &Flying) -> bool {
        self.target(flying).is_none_or(|index| !self.processes[index].frozen)
    }
}

impl Model for Bounds {
    type State = World;
    type Action = Act;

    fn init_states(&self) -> Vec<World> {
        let mut settings = Settings::for_ttl(TTL).with_policy(self.policy);
        settings.drift_ppm = 0;
        let processes = (0..self.candidates).map(|index| Process {
            machine: Participant::new(settings, [index as u64 + 1; 4]),
            sessions: BTreeMap::new(),
            term: None,
            stopping: false,
            unconfirmed: false,
            frozen: false,
        });
        let mut world = World {
            step: 0,
            processes: processes.collect(),
            table: Table::new(self.shape, StoreId::new("model")),
            flying: Vec::new(),
            watches: BTreeMap::new(),
            losses: self.losses,
            freezes: self.freezes,
            resignations: self.resignations,
            pauses: self.pauses,
            paused: false,
            requests_to_resign: self.requests_to_resign,
            last_token: None,
            leaders: 0,
            broken: None,
        };
        for index in 0..self.candidates {
            world.feed(index, Input::Stand(CANDIDACY, Candidate::new(election(), "c")));
        }
        vec![world]
    }

    fn actions(&self, world: &World, acts: &mut Vec<Act>) {
        let late = world.flying.iter().filter(|flying| world.deliverable(flying)).count();
        for (number, flying) in world.flying.iter().enumerate() {
            if world.deliverable(flying) {
                acts.push(Act::Deliver(number));
                if world.losses > 0 {
                    acts.push(Act::Lose(number));
                }
            }
        }
        if world.step < self.steps && late <= self.late {
            acts.push(Act::TimePasses);
        }
        for (index, process) in world.processes.iter().enumerate() {
            if process.frozen {
                acts.push(Act::Thaw(index));
                continue;
            }
            if world.freezes > 0 {
                acts.push(Act::Freeze(index));
            }
            if process.stopping || process.unconfirmed || (process.term.is_some() && world.resignations > 0) {
                acts.push(Act::Release(index));
            }
        }
        if world.pauses > 0 {
            acts.push(Act::Pause);
        } else if world.paused {
            acts.push(Act::Resume);
        }
        if world.requests_to_resign > 0 && world.leaders > 0 {
            acts.push(Act::AskToResign);
        }
    }

    fn next_state(&self, world: &World, act: Act) -> Option<World> {
        let mut next = world.clone();
        match act {
            Act::Deliver(number) => {
                let flying = next.flying.remove(number);
                next.deliver(flying);
            }
            Act::Lose(number) => {
                next.flying.remove(number);
                next.losses -= 1;
            }
            Act::TimePasses => next.time_passes(),
            Act::Freeze(index) => {
                next.processes[index].frozen = true;
                next.freezes -= 1;
            }
            Act::Thaw(index) => {
                next.processes[index].frozen = false;
                next.feed(index, Input::Tick);
            }
            Act::Release(index) => {
                let process = &mut next.processes[index];
                let asked = process.stopping || process.unconfirmed;
                process.stopping = false;
                next.resignations -= u8::from(!asked);
                next.feed(index, Input::Command(CANDIDACY, Command::Release));
                next.processes[index].unconfirmed = false;
            }
            Act::Pause => {
                next.pauses -= 1;
                next.paused = true;
                next.office(|office, _| office.paused = Some(Paused::new("")));
            }
            Act::Resume => {
                next.paused = false;
                next.office(|office, _| office.paused = None);
            }
            Act::AskToResign => {
                next.requests_to_resign -= 1;
                next.office(|office, head| {
                    let ask = |from| Handover::new(from, None, Nonce(7), TTL);
                    office.handover = head.map(ask);
                });
            }
        }
        // The order in which messages were sent does not matter: only which ones are on the way.
        next.flying.sort_by_cached_key(fingerprint);
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Bounds>> {
        vec![
            Property::always("at most one believes to lead", |_, world: &World| {
                world.processes.iter().filter(|process| world.believes(process)).count() <= 1
            }),
            Property::always("terms begin and end in turn, and tokens grow", |_, world: &World| world.broken.is_none()),
            Property::sometimes("somebody leads", |_, world: &World| world.leaders == 1),
            Property::sometimes("leadership passes on", |_, world: &World| world.leaders == 2),
        ]
    }
}

fn fingerprint(flying: &Flying) -> u64 {
    let mut hasher = DefaultHasher::new();
    flying.hash(&mut hasher);
    hasher.finish()
}

fn check(bounds: Bounds) {
    let checker = bounds.checker().threads(2).spawn_bfs().join();
    println!("{bounds:?}: {} states, {} of them unique", checker.state_count(), checker.unique_state_count());
    checker.assert_properties();
}

const CALM: Bounds = Bounds {
    candidates: 2,
    shape: Shape::FAIR,
    policy: Policy::SOUND,
    steps: 6,
    losses: 0,
    late: 0,
    freezes: 0,
    resignations: 0,
    pauses: 0,
    requests_to_resign: 0,
};

#[test]
fn two_candidates_with_a_lost_message_never_both_lead() {
    check(Bounds { losses: 1, resignations: 1, steps: 3, ..CALM });
}

#[test]
fn two_candidates_with_late_messages_never_both_lead() {
    check(Bounds { late: 1, resignations: 1, steps: 3, ..CALM });
}

#[test]
fn two_candidates_of_which_one_stands_still_never_both_lead() {
    check(Bounds { freezes: 1, steps: 7, ..CALM });
}

#[test]
fn two_candidates_that_are_asked_to_resign_never_both_lead() {
    check(Bounds { requests_to_resign: 1, steps: 3, ..CALM });
}

#[test]
fn two_candidates_in_an_election_that_is_paused_never_both_lead() {
    check(Bounds { pauses: 1, steps: 1, ..CALM });
}

#[test]
fn two_candidates_that_time_each_other_never_both_lead() {
    check(Bounds { shape: Shape::OBSERVED, freezes: 1, steps: 6, ..CALM });
}

#[test]
fn one_that_takes_a_hint_for_a_victory_is_found() {
    let policy = Policy::SOUND.with(Flaw::WinWithoutVerifying);
    let bounds = Bounds { policy, requests_to_resign: 1, steps: 0, ..CALM };
    let checker = bounds.checker().threads(2).spawn_bfs().join();
    assert!(checker.discovery("at most one believes to lead").is_some());
}

#[test]
fn three_candidates_never_lead_together() {
    check(Bounds { candidates: 3, resignations: 1, steps: 1, ..CALM });
}

#[test]
fn three_candidates_with_a_lost_message_never_lead_together() {
    check(Bounds { candidates: 3, losses: 1, resignations: 1, steps: 0, ..CALM });
}

#[test]
fn three_candidates_that_are_asked_to_resign_never_lead_together() {
    check(Bounds { candidates: 3, requests_to_resign: 1, steps: 0, ..CALM });
}
