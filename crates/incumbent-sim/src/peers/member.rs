//! One member: the machine, and the process, disk and application around it.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use incumbent_core::peers::consensus::{
    Boot, Consensus, ConsensusSettings, Input, Message, Output, PeerRole, PersistId, Stored,
};
use incumbent_core::peers::{Group, MemberId, OperatorRequest, TermRules};
use incumbent_core::{Cas, Command, Event, Fault, LossReason, Rng, TermNo, Token};

use super::checker::Checker;
use super::faults::Mishap;
use super::network::{MS, Network};
use super::records::{Data, Ledger, Records};
use super::world::{Happening, Inner, Packet, TROUBLE, World};
use crate::clock::LocalClock;
use crate::trace::trace;

/// One member and its host.
pub(crate) struct Member {
    who: usize,
    of: usize,
    settings: ConsensusSettings,
    pub(crate) clock: LocalClock,
    rng: Rng,
    pub(crate) life: u32,
    /// `None`: down.
    pub(crate) machine: Option<Consensus>,
    pub(crate) paused_until: u64,
    disk: Option<Stored>,
    writing: VecDeque<(PersistId, Stored)>,
    records: Records,
    ledger: Option<Ledger>,
    timer: u64,
    led: bool,
    wiped: bool,
    /// Whether it has a candidate, and how that stands.
    pub(crate) stands: bool,
    rules: TermRules,
    /// The term that it works in, and whether the end of that work is due.
    work: Option<(TermNo, bool)>,
    /// The token of the last such term.
    works_in: u64,
    /// Numbers the raises of its fences; and whether the last one is out.
    raise: (u64, bool),
    /// What it advertises.
    pub(crate) value: Bytes,
    /// Who leads, in which term, and with which value, as far as its user knows.
    pub(crate) knows: Option<(MemberId, u64, Bytes)>,
    /// Whom its candidate follows, and in which term.
    pub(crate) follows: (Option<MemberId>, Option<Token>),
    pub(crate) votes: bool,
}

impl Member {
    pub(crate) fn new(who: usize, of: usize, settings: ConsensusSettings, clock: LocalClock, rng: Rng) -> Member {
        Member {
            who,
            of,
            settings,
            clock,
            rng,
            life: 0,
            machine: None,
            paused_until: 0,
            disk: None,
            writing: VecDeque::new(),
            records: Records::default(),
            ledger: None,
            timer: 0,
            led: false,
            wiped: false,
            stands: true,
            rules: TermRules::default(),
            work: None,
            works_in: 0,
            raise: (0, false),
            value: Bytes::from(format!("value of m{who}")),
            knows: None,
            follows: (None, None),
            votes: true,
        }
    }

    /// Up, with its disk, taking part, and with every committed record and all that it was told to
    /// catch up with: so that another may lose its own.
    pub(crate) fn is_whole(&self, checker: &Checker) -> bool {
        let caught_up = self.disk.is_none_or(|stored| stored.catch_up <= self.records.position());
        checker.is_complete(self.records.log())
            && caught_up
            && self.machine.as_ref().is_some_and(|machine| machine.role() != PeerRole::Rejoining)
            && self.votes
    }

    fn start(&mut self, now: u64, first: bool) -> Option<Consensus> {
        let boot = match self.disk {
            Some(stored) => Boot::Restarted(stored),
            None if first => Boot::New,
            None => Boot::Lost,
        };
        let group = Group::new(MemberId(self.who as u16), (0..self.of as u16).map(MemberId)).ok()?;
        let rng = self.rng.fork();
        let candidate = (Some(self.draw_rules()), self.value.clone());
        Consensus::new(self.clock.read(now), group, self.settings, boot, candidate, rng).ok()
    }

    /// Half of all candidates have fences, and a third hold on to their office until their work has
    /// stopped.
    fn draw_rules(&mut self) -> TermRules {
        self.rules =
            TermRules { fenced: self.rng.below(2) == 0, hold_until_stopped: self.rng.below(3) == 0, unfit: false };
        self.rules
    }
}

impl World {
    pub(crate) fn boot(&mut self, who: usize, first: bool) {
        let now = self.now;
        let member = &mut self.members[who];
        if member.machine.is_some() {
            return;
        }
        member.life += 1;
        member.machine = member.start(now, first);
        trace!(self, format!("m{who}"), "starts");
        let position = self.members[who].records.position();
        self.input(who, Input::Position(position));
    }

    pub(crate) fn crash(&mut self, who: usize, wiped: bool, down: u64) {
        let now = self.now;
        self.checker.ended(who);
        self.work_stopped(who);
        let member = &mut self.members[who];
        if member.machine.take().is_none() {
            return;
        }
        // Of the writes under way, some got to the disk: the first so many.
        let done = member.rng.below(member.writing.len() as u64 + 1) as usize;
        let last = member.writing.drain(..).take(done).next_back();
        member.disk = last.map(|(_, stored)| stored).or(member.disk);
        (member.ledger, member.led, member.knows, member.votes) = (None, false, None, true);
        (member.work, member.stands, member.raise.1) = (None, true, false);
        member.paused_until = now;
        if wiped {
            (member.disk, member.records, member.wiped) = (None, Records::default(), true);
            self.checker.wiped(who);
        }
        self.at(now + down, Happening::Restart(who));
    }

    pub(crate) fn within(&mut self, who: usize, what: Inner) {
        match what {
            Inner::Timer(timer) => {
                if self.members[who].timer == timer {
                    self.input(who, Input::Tick);
                }
            }
            Inner::Written(id) => {
                let member = &mut self.members[who];
                while let Some((written, stored)) = member.writing.pop_front() {
                    member.disk = Some(stored);
                    if written == id {
                        break;
                    }
                }
                self.input(who, Input::Persisted(id));
            }
            Inner::Sealed(id, token) => {
                let position = self.members[who].records.seal(token);
                self.input(who, Input::Sealed(id, position));
            }
            Inner::Write => self.write(who),
            Inner::Command(command) => self.command_now(who, command),
            Inner::OperatorRequest(request) => self.request(who, request),
            Inner::Unhealthy(span) => {
                self.command_now(who, Command::Healthy(false));
                let (life, what) = (self.members[who].life, Inner::Command(Command::Healthy(true)));
                self.at(self.now + span, Happening::Within { who, life, what });
            }
            // One candidate at a time: the one that leaves may still be at work.
            Inner::Stand if self.members[who].stands => {
                let life = self.members[who].life;
                self.at(self.now + 200 * MS, Happening::Within { who, life, what: Inner::Stand });
            }
            Inner::Stand => {
                self.members[who].stands = true;
                let rules = self.members[who].draw_rules();
                let value = self.members[who].value.clone();
                trace!(self, format!("m{who}"), "has another candidate");
                self.input(who, Input::Stand(rules, value));
            }
            Inner::Fences(raise, token, dropped) if self.members[who].raise == (raise, true) => {
                self.members[who].raise.1 = false;
                self.raise_fences(who, token, dropped);
            }
            Inner::Fences(..) => {}
            Inner::Stopped(term) => {
                if self.members[who].work.is_some_and(|(now, _)| now == term) {
                    self.work_stopped(who);
                    trace!(self, format!("m{who}"), "has stopped its work");
                    self.input(who, Input::Command(Command::Release));
                }
            }
        }
    }

    fn work_stopped(&mut self, who: usize) {
        let member = &mut self.members[who];
        if member.work.take().is_some() {
            self.checker.stopped(member.works_in);
        }
    }

    fn command_now(&mut self, who: usize, command: Command) {
        if command == Command::Release {
            // Its work has stopped first.
            self.work_stopped(who);
        }
        trace!(self, format!("m{who}"), "is told {command:?}");
        self.input(who, Input::Command(command));
    }

    fn request(&mut self, who: usize, request: OperatorRequest) {
        let member = &mut self.members[who];
        let shown = member.clock.read(self.now);
        let Some(machine) = member.machine.as_mut() else { return };
        let answer = machine.request(shown, request);
        self.count("requests granted", answer.is_ok());
        trace!(self, format!("m{who}"), "is asked for {request:?}: {answer:?}");
        // Does what follows from it.
        self.input(who, Input::Tick);
    }

    fn raise_fences(&mut self, who: usize, token: Token, dropped: bool) {
        let fails = dropped || self.members[who].rng.below(8) == 0;
        let result = match !fails && self.checker.raise_fence(token.get()) {
            true => Ok(()),
            false => Err(Fault::Unavailable),
        };
        self.count("fences raised", result.is_ok());
        trace!(self, format!("m{who}"), "raises its fences to {token}: {result:?}");
        self.input(who, Input::Fences(token, result));
    }

    /// The work stops: of some in time, of some not. Where it is waited for, it takes longer.
    fn stop_work(&mut self, who: usize) {
        let (now, member) = (self.now, &mut self.members[who]);
        let longest = if member.rules.hold_until_stopped { 2_500 } else { 600 };
        if let Some((term, due)) = member.work.as_mut()
            && !std::mem::replace(due, true)
        {
            let (after, term, life) = (member.rng.below(longest) * MS, *term, member.life);
            self.at(now + after, Happening::Within { who, life, what: Inner::Stopped(term) });
        }
    }

    /// Hands something to a machine and does what it says.
    pub(crate) fn input(&mut self, who: usize, input: Input) {
        let member = &mut self.members[who];
        let shown = member.clock.read(self.now);
        let Some(machine) = member.machine.as_mut() else { return };
        machine.handle(shown, input);
        let leads = machine.role() == PeerRole::Leader;
        let term = machine.term();
        let won = leads && !std::mem::replace(&mut member.led, leads);
        member.led = leads;
        if won {
            trace!(self, format!("m{who}"), "wins the vote of term {term}");
        }
        while let Some(output) = self.members[who].machine.as_mut().and_then(Consensus::poll_output) {
            self.act(who, output);
        }
        if won {
            self.checker.won(self.now, who, term);
            self.mute_winner(who);
        }
        self.arm(who);
    }

    /// Now and then the winner of a vote is not heard for a while, and others stand meanwhile.
    fn mute_winner(&mut self, who: usize) {
        let (now, hosts) = (self.now, self.members.len());
        let rng = &mut self.members[who].rng;
        if rng.below(6) != 0 {
            return;
        }
        let until = now + rng.below(2_500) * MS;
        let after = Network { late: rng.below(500), late_by_ms: 1_500, ..Network::default() };
        self.at(now, Happening::Mishap(Mishap::Weather(Network::mute(who, hosts))));
        self.at(until, Happening::Mishap(Mishap::Weather(after)));
    }

    fn arm(&mut self, who: usize) {
        let member = &mut self.members[who];
        let Some(due) = member.machine.as_ref().and_then(Consensus::poll_timeout) else { return };
        member.timer += 1;
        let late = member.rng.below(3 * MS);
        let at = member.clock.when(due).max(self.now) + late;
        let (life, timer) = (member.life, member.timer);
        self.at(at, Happening::Within { who, life, what: Inner::Timer(timer) });
    }

    fn act(&mut self, who: usize, output: Output) {
        let (now, life) = (self.now, self.members[who].life);
        match output {
            Output::Send(to, message) => {
                self.checker.said(now, who, to, &message);
                if let Message::TimeoutNow { .. } = message {
                    let member = &self.members[who];
                    self.checker.gives_up(now, who, member.rules.hold_until_stopped && member.work.is_some());
                }
                trace!(self, format!("m{who}"), "-> {to:?} {message:?}");
                self.send(who, usize::from(to.0), &Packet::Peer(message));
            }
            Output::Persist(id, stored) => {
                let member = &mut self.members[who];
                member.writing.push_back((id, stored));
                let at = now + member.rng.below(20 * MS);
                self.at(at, Happening::Within { who, life, what: Inner::Written(id) });
            }
            Output::Seal(id, token) => {
                let at = now + self.members[who].rng.below(10 * MS);
                self.at(at, Happening::Within { who, life, what: Inner::Sealed(id, token.get()) });
            }
            Output::RaiseFences(token) => {
                if std::mem::replace(&mut self.members[who].raise.1, true) {
                    let seen = format!("m{who} raises its fences to {token} while an earlier raise is not dropped");
                    self.checker.fail(now, "RAISE", seen);
                }
                // Now and then it takes longer than the lease lasts, or hangs until it is dropped.
                let Member { rng, raise, .. } = &mut self.members[who];
                raise.0 += 1;
                let longest = if rng.below(8) == 0 { 2_500 } else { 40 };
                let (at, raise) = (now + rng.below(longest) * MS, raise.0);
                if rng.below(8) > 0 || now >= TROUBLE {
                    self.at(at, Happening::Within { who, life, what: Inner::Fences(raise, token, false) });
                }
            }
            Output::GiveUpFences(token) => {
                // Now and then it blocks, and cannot be dropped.
                let Member { rng, raise, .. } = &mut self.members[who];
                let longest = if rng.below(4) == 0 { 12_000 } else { 10 };
                let (at, raise) = (now + rng.below(longest) * MS, raise.0);
                self.at(at, Happening::Within { who, life, what: Inner::Fences(raise, token, true) });
            }
            Output::Event(event) => self.on_event(who, event),
            Output::Closed => {}
        }
    }

    fn on_event(&mut self, who: usize, event: Event) {
        trace!(self, format!("m{who}"), "** {event:?}");
        let now = self.now;
        let member = &mut self.members[who];
        match event {
            Event::Elected { term, title, deadline, last_term } => {
                member.work = Some((term, false));
                let token = title.token().map_or(0, Token::get);
                member.works_in = token;
                let was_closed = self.checker.told(now, who, token, last_term);
                self.count("terms after one that was closed", was_closed);
                self.on_elected(who, token, deadline);
            }
            Event::Deadline(deadline) => {
                let until = member.clock.when(deadline);
                self.checker.extended(now, who, until);
            }
            Event::Stopping { .. } => self.stop_work(who),
            Event::Unelected(why) => self.on_unelected(who, why),
            Event::Led { leader, term, value } => {
                member.knows = Some((leader, term.map_or(0, Token::get), value));
            }
            Event::Vacant => member.knows = None,
            Event::Follows { leader, term } => {
                member.follows = (leader, term);
                self.on_shown(who, &event);
            }
            Event::Out(_) => self.on_shown(who, &event),
            // Values are proclaimed under themselves as their numbers.
            Event::Proclaimed(number, Cas::Done) => {
                member.value = number.to_string().into();
                if let Some(known) = member.knows.as_mut().filter(|known| usize::from(known.0.0) == who) {
                    known.2 = member.value.clone();
                }
            }
            Event::Done { .. } => member.stands = false,
            Event::NotVoting(_) => member.votes = false,
            Event::Voting => {
                member.votes = true;
                let rejoined = std::mem::take(&mut member.wiped);
                self.count("wiped members back", rejoined);
            }
            _ => {}
        }
    }

    fn on_elected(&mut self, who: usize, token: u64, deadline: incumbent_core::Timestamp) {
        let (now, member) = (self.now, &mut self.members[who]);
        let until = member.clock.when(deadline);
        member.knows = Some((MemberId(who as u16), token, member.value.clone()));
        member.ledger = Some(Ledger::new(token));
        let (log, life, fenced) = (member.records.log().clone(), member.life, member.rules.fenced);
        let transferred = self.transferred_at.take().is_some_and(|at| now - at < 100 * MS);
        self.count("transfers", transferred);
        if fenced {
            self.checker.fenced(now, who, token);
        }
        self.checker.elected(now, who, life, token, until, &log);
        self.write(who);
    }

    /// A candidate is shown that it does not lead.
    fn on_shown(&mut self, who: usize, event: &Event) {
        let at_work = self.members[who].work.is_some();
        self.count("candidates shown a leader", matches!(event, Event::Follows { leader: Some(_), .. }));
        self.count("candidates shown that they are unfit", matches!(event, Event::Out(_)));
        if at_work {
            self.checker.fail(self.now, "SHOWN", format!("m{who} is told {event:?} while it is at work"));
        }
    }

    fn on_unelected(&mut self, who: usize, why: LossReason) {
        let (now, member) = (self.now, &mut self.members[who]);
        member.knows = None;
        // A leader that hands over has stopped before; an operator's request asks for that first.
        if why == LossReason::Transferred && member.work.is_some_and(|(_, due)| !due) {
            self.work_stopped(who);
        }
        let member = &mut self.members[who];
        let held = member.rules.hold_until_stopped && member.work.is_some();
        self.count("terms without a quorum", why == LossReason::LocalDeadline);
        self.count("offices held", held);
        if !self.checker.ended(who) {
            self.checker.fail(now, "S6", format!("m{who} left an office that it did not hold"));
        }
        self.stop_work(who);
    }

    /// The application of a member in office writes a record and sends its log to the others; again
    /// and again.
    fn write(&mut self, who: usize) {
        let (now, id) = (self.now, self.rng.next_u64());
        let leads = self.checker.leader(now).map(|(leader, _)| leader) == Some(who);
        let member = &mut self.members[who];
        let Some(token) = member.ledger.as_ref().map(|ledger| ledger.token).filter(|_| leads) else { return };
        if !member.records.write(token, id) {
            return;
        }
        let (position, log, life) = (member.records.position(), member.records.log().clone(), member.life);
        let again = now + (40 + member.rng.below(120)) * MS;
        self.note_stored(who, who, token, position);
        self.input(who, Input::Position(position));
        for to in (0..self.members.len()).filter(|to| *to != who) {
            self.send(who, to, &Packet::Data(Data::Log(token, log.clone())));
        }
        self.at(again, Happening::Within { who, life, what: Inner::Write });
    }

    pub(crate) fn on_data(&mut self, who: usize, from: usize, data: Data) {
        match data {
            Data::Log(token, log) => {
                let Some(stored) = self.members[who].records.take_over(token, &log) else { return };
                let position = self.members[who].records.position();
                self.input(who, Input::Position(position));
                self.send(who, from, &Packet::Data(Data::Stored(token, stored)));
            }
            Data::Stored(token, position) => self.note_stored(who, from, token, position),
        }
    }

    fn note_stored(&mut self, who: usize, by: usize, token: u64, position: incumbent_core::peers::consensus::Position) {
        let quorum = self.members.len() / 2 + 1;
        let member = &mut self.members[who];
        let Some(ledger) = member.ledger.as_mut().filter(|ledger| ledger.token == token) else { return };
        ledger.note(by, position);
        let committed = ledger.committed(quorum);
        let log = Arc::clone(member.records.log());
        // The log may have been taken over from another leader since.
        let own = log.get(committed.wrapping_sub(1)).is_some_and(|record| record.token == token);
        if own {
            self.checker.committed(self.now, who, &log[..committed]);
        }
    }
}
