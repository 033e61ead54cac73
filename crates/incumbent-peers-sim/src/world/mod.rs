//! Five members in a world with clocks that drift, disks that take time, an application with records, and a network and a
//! fate that mean ill. All from a seed: the same seed gives the same run.

pub mod clock;
pub mod faults;
mod member;
pub mod network;
pub mod oracle;
pub mod records;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use incumbent_core::peers::consensus::{ConsensusSettings, Input, Message};
use incumbent_core::peers::{MemberId, PeerFlaws, Wish};
use incumbent_core::{Command, Rng, Successor, TermNo, Token};

use clock::{HostClock, True};
use faults::Fault;
use member::Member;
use network::{MS, Network};
use oracle::{Oracle, Rule, Violation};
use records::Data;

/// How long things go wrong.
const TROUBLE: True = 60_000 * MS;
/// How long the world has after that to get well.
const RECOVERY: True = 20_000 * MS;
/// A message that takes longer than this is late: the usual ones take a few milliseconds.
pub const LATE: True = 100 * MS;
/// No run takes more steps than this.
const MAX_STEPS: u64 = 2_000_000;

/// What a run is made from.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Everything else follows from it.
    pub seed: u64,
    /// Members: three or five, usually.
    pub members: usize,
    /// The flaws that are switched on.
    pub flaws: PeerFlaws,
    /// Whether to write down what happens.
    pub trace: bool,
}

impl Plan {
    /// Five members, nothing flawed.
    pub fn new(seed: u64) -> Plan {
        Plan { seed, members: 5, flaws: PeerFlaws::NONE, trace: false }
    }
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The first rule that was broken.
    pub broken: Option<Violation>,
    /// Terms that began.
    pub elections: u64,
    /// Terms that began within 100 ms of a transfer.
    pub transfers: u64,
    /// Records that were committed.
    pub records: usize,
    /// Terms that were over while their work went on, and its end was waited for.
    pub held: u64,
    /// Fences that were raised before a term began.
    pub fences: u64,
    /// Operators' wishes that were accepted.
    pub wishes: u64,
    /// Wiped members that came back.
    pub rejoined: u64,
    /// Terms that ended because no quorum answered in time.
    pub deadlines: u64,
    /// Requests for votes, and votes, that were on their way for longer than [`LATE`].
    pub late_votes: u64,
    /// Orders to stand at once that were on their way for longer than [`LATE`].
    pub late_orders: u64,
    /// Times at which the network was cut in one direction and not in the other.
    pub one_way_cuts: u64,
    /// Times at which a member did nothing for a while.
    pub pauses: u64,
    /// Steps that it took.
    pub steps: u64,
}

impl Outcome {
    /// Adds what came of another run, but for what was broken.
    pub fn add(&mut self, other: &Outcome) {
        self.elections += other.elections;
        self.transfers += other.transfers;
        self.records += other.records;
        self.held += other.held;
        self.fences += other.fences;
        self.wishes += other.wishes;
        self.rejoined += other.rejoined;
        self.deadlines += other.deadlines;
        self.late_votes += other.late_votes;
        self.late_orders += other.late_orders;
        self.one_way_cuts += other.one_way_cuts;
        self.pauses += other.pauses;
        self.steps += other.steps;
    }
}

impl Outcome {
    fn note_late(&mut self, packet: &Packet) {
        match packet {
            Packet::Peer(Message::Vote { .. } | Message::Voted { .. }) => self.late_votes += 1,
            Packet::Peer(Message::TimeoutNow { .. }) => self.late_orders += 1,
            _ => {}
        }
    }
}

/// What is on its way from one host to another.
#[derive(Clone, Debug)]
pub(crate) enum Packet {
    Peer(Message),
    Data(Data),
}

/// What is going to happen.
#[derive(Clone, Debug)]
pub(crate) enum Happening {
    Arrival {
        from: usize,
        to: usize,
        packet: Packet,
    },
    /// Something within a member; void if the member's life is another by then.
    Within {
        who: usize,
        life: u32,
        what: Inner,
    },
    Restart(usize),
    Trouble,
    Fault(Fault),
}

#[derive(Clone, Debug)]
pub(crate) enum Inner {
    Timer(u64),
    Written(incumbent_core::peers::consensus::PersistId),
    Sealed(incumbent_core::peers::consensus::SealId, u64),
    Write,
    Command(Command),
    Wish(Wish),
    /// Another candidate comes.
    Stand,
    Fences(Token),
    /// The work of this term has stopped.
    Stopped(TermNo),
}

pub(crate) struct Queued(True, u64, Happening);

impl PartialEq for Queued {
    fn eq(&self, other: &Queued) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Queued {}
impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Queued) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Queued {
    fn cmp(&self, other: &Queued) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// The world.
pub struct World {
    plan: Plan,
    rng: Rng,
    now: True,
    next: u64,
    queue: BinaryHeap<Reverse<Queued>>,
    network: Network,
    members: Vec<Member>,
    oracle: Oracle,
    outcome: Outcome,
    transferred_at: Option<True>,
    lines: Vec<String>,
}

/// Runs a plan to its end, or to the first broken rule. The lines are there if the plan asks for a trace.
pub fn run(plan: Plan) -> (Outcome, Vec<String>) {
    let mut world = World::new(plan);
    world.run();
    (world.outcome, world.lines)
}

impl World {
    fn new(plan: Plan) -> World {
        let mut rng = Rng::from_number(plan.seed);
        let settings = World::settings(plan.flaws);
        let drift = i64::from(settings.drift_ppm);
        let members = (0..plan.members).map(|who| {
            let fast_ppm = match rng.below(3) {
                0 => -drift,
                1 => drift,
                _ => rng.below(2 * drift as u64) as i64 - drift,
            };
            let clock = HostClock { offset: rng.below(1 << 40), fast_ppm };
            Member::new(who, plan.members, settings, clock, rng.fork())
        });
        let members = members.collect();
        World {
            plan,
            rng,
            now: 0,
            next: 0,
            queue: BinaryHeap::new(),
            network: Network::default(),
            members,
            oracle: Oracle::default(),
            outcome: Outcome::default(),
            transferred_at: None,
            lines: Vec::new(),
        }
    }

    /// Short times, and clocks that are as bad as the settings allow: five of a hundred.
    fn settings(flaws: PeerFlaws) -> ConsensusSettings {
        ConsensusSettings {
            election_min: Duration::from_millis(1_500),
            election_max: Duration::from_millis(3_000),
            heartbeat: Duration::from_millis(250),
            drift_ppm: 50_000,
            margin: Duration::from_millis(1),
            grace: Duration::from_millis(300),
            pre_vote: true,
            positions: true,
            flaws,
        }
    }

    fn run(&mut self) {
        for who in 0..self.members.len() {
            self.boot(who, true);
        }
        self.at(500 * MS, Happening::Trouble);
        while let Some(Reverse(Queued(at, _, happening))) = self.queue.pop() {
            if at > TROUBLE + RECOVERY || self.oracle.broken().is_some() || self.outcome.steps == MAX_STEPS {
                break;
            }
            self.now = at;
            self.outcome.steps += 1;
            self.happen(happening);
        }
        if self.oracle.broken().is_none() {
            self.check_progress();
        }
        self.outcome.broken = self.oracle.broken().cloned();
        self.outcome.elections = self.oracle.elections;
        self.outcome.records = self.oracle.records();
    }

    pub(crate) fn at(&mut self, when: True, happening: Happening) {
        self.next += 1;
        self.queue.push(Reverse(Queued(when, self.next, happening)));
    }

    pub(crate) fn trace(&mut self, line: impl FnOnce() -> String) {
        if self.plan.trace {
            let line = format!("{:>11.6} {}", self.now as f64 / 1e9, line());
            self.lines.push(line);
        }
    }

    fn happen(&mut self, happening: Happening) {
        let host = match &happening {
            Happening::Arrival { to, .. } => Some(*to),
            Happening::Within { who, .. } => Some(*who),
            _ => None,
        };
        if let Some(member) = host.and_then(|host| self.members.get(host))
            && self.now < member.paused_until
        {
            // A paused process finds everything waiting, in order.
            let until = member.paused_until;
            return self.at(until, happening);
        }
        match happening {
            Happening::Arrival { from, to, packet } => self.arrive(from, to, packet),
            Happening::Within { who, life, what } => {
                if self.members[who].life == life && self.members[who].machine.is_some() {
                    self.within(who, what);
                }
            }
            Happening::Restart(who) => self.boot(who, false),
            Happening::Trouble => self.trouble(),
            Happening::Fault(fault) => self.inflict(fault),
        }
    }

    /// Puts a packet on the network.
    pub(crate) fn send(&mut self, from: usize, to: usize, packet: &Packet) {
        let about_election = matches!(packet, Packet::Peer(_));
        for at in self.network.arrivals(&mut self.rng, self.now, from, to, about_election) {
            if at - self.now > LATE {
                self.outcome.note_late(packet);
            }
            self.at(at, Happening::Arrival { from, to, packet: packet.clone() });
        }
    }

    fn arrive(&mut self, from: usize, to: usize, packet: Packet) {
        match packet {
            _ if self.members[to].machine.is_none() => {}
            Packet::Peer(message) => {
                self.trace(|| format!("m{to} <- m{from} {message:?}"));
                self.input(to, Input::Message(MemberId(from as u16), message));
            }
            Packet::Data(data) => self.on_data(to, from, data),
        }
    }

    /// Lets something go wrong, and says when the next thing does. After the time of trouble everything is mended.
    fn trouble(&mut self) {
        if self.now >= TROUBLE {
            return self.mend();
        }
        let leader = self.oracle.leader(self.now).map(|(who, _)| who);
        // A majority must keep its disks: what it does not know nobody does.
        let whole = self.members.iter().filter(|member| member.is_whole(&self.oracle)).count();
        let may_wipe = whole > self.members.len() / 2 + 1 || whole == self.members.len();
        let fault = faults::draw(&mut self.rng, self.members.len(), leader, may_wipe);
        // A script is played to its end: another fault in the middle would spoil it.
        let script = if let Fault::Script(steps) = &fault { steps.iter().map(|step| step.0).max() } else { None };
        let next = self.now + script.unwrap_or(0) + (50 + self.rng.below(1_500)) * MS;
        self.at(next.min(TROUBLE), Happening::Trouble);
        self.inflict(fault);
    }

    fn inflict(&mut self, fault: Fault) {
        if self.now >= TROUBLE {
            return;
        }
        self.trace(|| format!("-- {fault:?}"));
        let leader = self.oracle.leader(self.now).map(|(who, _)| who);
        match fault {
            Fault::Script(steps) => {
                for (after, fault) in steps {
                    self.at(self.now + after, Happening::Fault(fault));
                }
            }
            Fault::Crash { who, wiped, down } => self.crash(who, wiped, down),
            Fault::Pause { who, span } => {
                self.outcome.pauses += 1;
                self.members[who].paused_until = self.now + span;
            }
            Fault::Weather(network) => {
                self.outcome.one_way_cuts += u64::from(network.is_one_way());
                self.network = network;
            }
            Fault::Transfer(heir) => {
                if let Some(leader) = leader {
                    self.transferred_at = Some(self.now);
                    let heir = Successor::Member(MemberId(heir as u16));
                    self.command(leader, Command::Transfer(heir, Duration::from_secs(1)));
                }
            }
            Fault::Release => {
                if let Some(leader) = leader {
                    self.command(leader, Command::Release);
                }
            }
            Fault::Wish(heir) => {
                if let Some(leader) = leader {
                    let wish = heir.map_or(Wish::Resign, |heir| Wish::Transfer(MemberId(heir as u16)));
                    self.unless_paused(leader, Inner::Wish(wish));
                }
            }
            Fault::Leave { who, away } => {
                self.command(who, Command::Leave);
                let life = self.members[who].life;
                self.at(self.now + away, Happening::Within { who, life, what: Inner::Stand });
            }
            Fault::Proclaim(value) => {
                if let Some(leader) = leader {
                    self.command(leader, Command::Proclaim(value, value.to_string().into()));
                }
            }
        }
    }

    fn command(&mut self, who: usize, command: Command) {
        self.unless_paused(who, Inner::Command(command));
    }

    fn unless_paused(&mut self, who: usize, what: Inner) {
        let life = self.members[who].life;
        self.at(self.now, Happening::Within { who, life, what });
    }

    fn mend(&mut self) {
        self.trace(|| "-- everything is mended".into());
        self.network.heal();
        for member in &mut self.members {
            member.paused_until = member.paused_until.min(self.now);
        }
    }

    /// With the faults gone: one leader, known to all with its value, and everybody votes.
    fn check_progress(&mut self) {
        let Some((leader, token)) = self.oracle.leader(self.now) else {
            return self.oracle.breaks(Rule::Progress, self.now, "nobody leads, long after the last fault".into());
        };
        let value = self.members[leader].value.clone();
        let expected = (MemberId(leader as u16), token, value);
        for (who, member) in self.members.iter().enumerate() {
            let reported = member.machine.as_ref().map(|machine| machine.report(member.clock.shows(self.now)));
            let reported = reported.and_then(|report| Some((report.leader?, report.term, report.value)));
            for knows in [&member.knows, &reported] {
                if knows.as_ref() != Some(&expected) {
                    let seen = format!("m{who} knows {knows:?}, not {expected:?}");
                    return self.oracle.breaks(Rule::Progress, self.now, seen);
                }
            }
        }
        if let Some(who) = self.members.iter().position(|member| !member.votes) {
            self.oracle.breaks(Rule::Progress, self.now, format!("m{who} does not vote, long after the last fault"));
        }
    }
}
