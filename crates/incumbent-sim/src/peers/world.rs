//! The event loop of a group, and what must be true when everything is mended.

use std::time::Duration;

use incumbent_core::peers::consensus::{ConsensusSettings, Input, Message};
use incumbent_core::peers::{ConsensusPolicy, MemberId, OperatorRequest};
use incumbent_core::{Command, Rng, Successor, TermNo, Token};

use super::checker::Checker;
use super::faults::{self, Mishap};
use super::member::Member;
use super::network::{MS, Network};
use super::records::Data;
use crate::clock::LocalClock;
use crate::queue::Queue;
use crate::report::{Counts, Outcome};
use crate::trace::{Trace, trace};
use crate::variant::Variant;

/// How long things go wrong.
pub(crate) const TROUBLE: u64 = 60_000 * MS;
/// How long the world has after that to get well.
const RECOVERY: u64 = 20_000 * MS;
/// A message that takes longer than this is late: the usual ones take a few milliseconds.
pub(crate) const LATE: u64 = 100 * MS;
/// No run takes more steps than this.
const MAX_STEPS: u64 = 2_000_000;

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
    Mishap(Mishap),
}

#[derive(Clone, Debug)]
pub(crate) enum Inner {
    Timer(u64),
    Written(incumbent_core::peers::consensus::PersistId),
    Sealed(incumbent_core::peers::consensus::SealId, u64),
    Write,
    Command(Command),
    OperatorRequest(OperatorRequest),
    /// The candidate is unfit for this long.
    Unhealthy(u64),
    /// Another candidate comes.
    Stand,
    /// This raise is over, or dropped if `true`.
    Fences(u64, Token, bool),
    /// The work of this term has stopped.
    Stopped(TermNo),
}

pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) rng: Rng,
    queue: Queue<Happening>,
    network: Network,
    pub(crate) members: Vec<Member>,
    pub(crate) checker: Checker,
    counts: Counts,
    pub(crate) transferred_at: Option<u64>,
    steps: u64,
}

/// Runs one seed to its end, or to the first broken rule.
pub(crate) fn run(seed: u64, variant: Variant, tracing: bool) -> Outcome {
    let sound = ConsensusPolicy::SOUND;
    let policy = if let Variant::Peers(flaw) = variant { sound.with(flaw) } else { sound };
    let mut world = World::new(seed, settings(policy), tracing);
    world.run();
    let World { mut checker, mut counts, steps, .. } = world;
    counts.extend([("events", steps), ("terms", checker.terms), ("records committed", checker.records() as u64)]);
    let (trace, violation) = checker.trace.finish();
    Outcome { seed, violation, counts, trace }
}

/// Short times, and clocks that are as bad as the settings allow: five of a hundred.
fn settings(policy: ConsensusPolicy) -> ConsensusSettings {
    let mut settings = ConsensusSettings::default().with_policy(policy);
    settings.election_min = Duration::from_millis(1_500);
    settings.election_max = Duration::from_millis(3_000);
    settings.heartbeat = Duration::from_millis(250);
    settings.drift_ppm = 50_000;
    settings.margin = Duration::from_millis(1);
    settings.grace = Duration::from_millis(300);
    settings.pre_vote = true;
    settings.positions = true;
    settings
}

impl World {
    fn new(seed: u64, settings: ConsensusSettings, tracing: bool) -> World {
        let mut rng = Rng::from_number(seed);
        let count = [5, 5, 5, 5, 5, 5, 3, 3, 4, 2][rng.below(10) as usize];
        let drift = i64::from(settings.drift_ppm);
        let members = (0..count).map(|who| {
            let ppm = match rng.below(3) {
                0 => -drift,
                1 => drift,
                _ => rng.below(2 * drift as u64) as i64 - drift,
            };
            let clock = LocalClock::new(rng.below(1 << 40), ppm);
            Member::new(who, count, settings, clock, rng.fork())
        });
        let members = members.collect();
        World {
            now: 0,
            rng,
            queue: Queue::new(),
            network: Network::default(),
            members,
            checker: Checker::new(Trace::new(tracing)),
            counts: Counts::new(),
            transferred_at: None,
            steps: 0,
        }
    }

    fn run(&mut self) {
        for who in 0..self.members.len() {
            self.boot(who, true);
        }
        self.at(500 * MS, Happening::Trouble);
        while let Some((at, happening)) = self.queue.pop() {
            if at > TROUBLE + RECOVERY || self.checker.trace.is_broken() || self.steps == MAX_STEPS {
                break;
            }
            self.now = at;
            self.steps += 1;
            self.happen(happening);
        }
        if !self.checker.trace.is_broken() {
            self.check_progress();
        }
    }

    pub(crate) fn at(&mut self, when: u64, happening: Happening) {
        self.queue.push(when, happening);
    }

    /// Counts what happened, for the report.
    pub(crate) fn count(&mut self, what: &'static str, happened: bool) {
        *self.counts.entry(what).or_default() += u64::from(happened);
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
            Happening::Mishap(mishap) => self.inflict(mishap),
        }
    }

    /// Puts a packet on the network.
    pub(crate) fn send(&mut self, from: usize, to: usize, packet: &Packet) {
        let about_election = matches!(packet, Packet::Peer(_));
        for at in self.network.arrivals(&mut self.rng, self.now, from, to, about_election) {
            let late = at - self.now > LATE;
            match packet {
                Packet::Peer(Message::Vote { .. } | Message::Voted { .. }) => self.count("late votes", late),
                Packet::Peer(Message::TimeoutNow { .. }) => self.count("late orders to stand", late),
                _ => {}
            }
            self.at(at, Happening::Arrival { from, to, packet: packet.clone() });
        }
    }

    fn arrive(&mut self, from: usize, to: usize, packet: Packet) {
        match packet {
            _ if self.members[to].machine.is_none() => {}
            Packet::Peer(message) => {
                trace!(self, format!("m{to}"), "<- m{from} {message:?}");
                self.input(to, Input::Message(MemberId(from as u16), message));
            }
            Packet::Data(data) => self.on_data(to, from, data),
        }
    }

    /// Lets something go wrong, and says when the next thing does. After the time of trouble
    /// everything is mended.
    fn trouble(&mut self) {
        if self.now >= TROUBLE {
            return self.mend();
        }
        let leader = self.checker.leader(self.now).map(|(who, _)| who);
        // A majority must keep its disks: what it does not know nobody does.
        let whole = self.members.iter().filter(|member| member.is_whole(&self.checker)).count();
        let may_wipe = whole > self.members.len() / 2 + 1 || whole == self.members.len();
        let mishap = faults::draw(&mut self.rng, self.members.len(), leader, may_wipe);
        // A script is played to its end: another fault in the middle would spoil it.
        let script = if let Mishap::Script(steps) = &mishap { steps.iter().map(|step| step.0).max() } else { None };
        let next = self.now + script.unwrap_or(0) + (50 + self.rng.below(1_500)) * MS;
        self.at(next.min(TROUBLE), Happening::Trouble);
        self.inflict(mishap);
    }

    fn inflict(&mut self, mishap: Mishap) {
        if self.now >= TROUBLE {
            return;
        }
        trace!(self, "world", "{mishap:?}");
        let leader = self.checker.leader(self.now).map(|(who, _)| who);
        match mishap {
            Mishap::Script(steps) => {
                for (after, mishap) in steps {
                    self.at(self.now + after, Happening::Mishap(mishap));
                }
            }
            Mishap::Crash { who, wiped, down } => self.crash(who, wiped, down),
            Mishap::Pause { who, span } => {
                self.count("pauses", true);
                self.members[who].paused_until = self.now + span;
            }
            Mishap::Weather(network) => {
                self.count("one-way cuts", network.is_one_way());
                self.network = network;
            }
            Mishap::Transfer(heir) => {
                if let Some(leader) = leader {
                    self.transferred_at = Some(self.now);
                    let heir = Successor::Member(MemberId(heir as u16));
                    self.command(leader, Command::Transfer(heir, Duration::from_secs(1)));
                }
            }
            Mishap::Release => {
                if let Some(leader) = leader {
                    self.command(leader, Command::Release);
                }
            }
            Mishap::OperatorRequest(heir) => {
                if let Some(leader) = leader {
                    let request =
                        heir.map_or(OperatorRequest::Resign, |heir| OperatorRequest::Transfer(MemberId(heir as u16)));
                    self.unless_paused(leader, Inner::OperatorRequest(request));
                }
            }
            Mishap::Leave { who, away } => {
                self.command(who, Command::Leave);
                let life = self.members[who].life;
                self.at(self.now + away, Happening::Within { who, life, what: Inner::Stand });
            }
            Mishap::Unhealthy { who, span } => self.unless_paused(who, Inner::Unhealthy(span)),
            Mishap::Proclaim(value) => {
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
        trace!(self, "world", "everything is mended");
        self.network.heal();
        for member in &mut self.members {
            member.paused_until = member.paused_until.min(self.now);
        }
    }

    /// With the faults gone: one leader, known to all with its value, and everybody votes.
    fn check_progress(&mut self) {
        let Some((leader, token)) = self.checker.leader(self.now) else {
            return self.checker.fail(self.now, "L1", "nobody leads, long after the last fault".into());
        };
        let value = self.members[leader].value.clone();
        let expected = (MemberId(leader as u16), token, value);
        for (who, member) in self.members.iter().enumerate() {
            let reported = member.machine.as_ref().map(|machine| machine.report(member.clock.read(self.now)));
            let reported = reported.and_then(|report| Some((report.leader?, report.term, report.value)));
            for knows in [&member.knows, &reported] {
                if knows.as_ref() != Some(&expected) {
                    let seen = format!("m{who} knows {knows:?}, not {expected:?}");
                    return self.checker.fail(self.now, "L1", seen);
                }
            }
            let follows = (Some(MemberId(leader as u16)), Token::new(token));
            if who != leader && member.stands && member.follows != follows {
                let seen = format!("the candidate of m{who} is shown {:?}, not {follows:?}", member.follows);
                return self.checker.fail(self.now, "L1", seen);
            }
        }
        if let Some(who) = self.members.iter().position(|member| !member.votes) {
            self.checker.fail(self.now, "L1", format!("m{who} does not vote, long after the last fault"));
        }
    }
}
