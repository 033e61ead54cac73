//! The users of candidacies: what they do when they are told something, and what they do on their
//! own.

use bytes::Bytes;
use incumbent_core::{
    CandidacyId, Candidate, Command, Decline, Event, Heir, Held, Input, LossReason, Nonce, Successor, TermNo,
    Timestamp, Title, Token,
};

use super::causes::Shared;
use super::checker::Belief;
use super::operator::{Act, Operator};
use super::process::{Term, Told, User, name_of};
use super::scenario::Kind;
use super::server::{Ask, Sender};
use super::world::{Happening, World};
use crate::trace::trace;
use crate::variant::AroundFlaw;

/// What a user does at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deed {
    Stand {
        process: usize,
        boot: u32,
        election: usize,
    },
    /// The work of this term has stopped.
    Stopped {
        process: usize,
        boot: u32,
        candidacy: CandidacyId,
        token: Token,
    },
    Write {
        process: usize,
        boot: u32,
        candidacy: CandidacyId,
        token: Token,
    },
    Recover {
        process: usize,
        boot: u32,
        candidacy: CandidacyId,
    },
    FallIll {
        process: usize,
        boot: u32,
        candidacy: CandidacyId,
    },
    GetWell {
        process: usize,
        boot: u32,
        candidacy: CandidacyId,
    },
    /// The fences hang: the candidate leaves, and perhaps stands anew.
    Leave {
        process: usize,
        boot: u32,
        candidacy: CandidacyId,
    },
    /// It has got ready for this handover, or has not.
    Readied {
        process: usize,
        boot: u32,
        candidacy: CandidacyId,
        nonce: Nonce,
    },
    /// Something makes all of an election unwell.
    Shared(Shared),
    /// Anything.
    Random,
    /// An operator does something.
    Operate,
}

impl World {
    pub(crate) fn plan_acts(&mut self) {
        let luck = self.scenario.luck;
        for _ in 0..luck.acts {
            let at = self.rng.below(self.scenario.chaos);
            self.after(at, Happening::Deed(Deed::Random));
        }
        for _ in 0..luck.operations {
            let at = self.rng.below(self.scenario.chaos);
            self.after(at, Happening::Deed(Deed::Operate));
        }
    }

    pub(crate) fn on_deed(&mut self, deed: Deed) {
        match deed {
            Deed::Stand { process, boot, election } if self.runs(process, boot) => self.stand(process, election),
            Deed::Stopped { process, boot, candidacy, token } if self.runs(process, boot) => {
                self.stopped(process, candidacy, token);
            }
            Deed::Write { process, boot, candidacy, token } if self.runs(process, boot) => {
                let state = &self.processes[process];
                let now = state.clock.read(self.now);
                let term = state.users.get(&candidacy).and_then(|user| user.term.as_ref());
                if let Some(election) = term
                    .filter(|term| term.token == token && now < term.deadline)
                    .and(state.users.get(&candidacy).map(|user| user.election))
                {
                    let late = if self.stormy { self.scenario.ttl() * 2 } else { 1_000_000 };
                    let delay = self.rng.below(late);
                    self.after(delay, Happening::Write { election, token });
                }
            }
            Deed::Recover { process, boot, candidacy } if self.runs(process, boot) => {
                self.set_healthy(process, candidacy, true)
            }
            Deed::FallIll { process, boot, candidacy } if self.runs(process, boot) && self.stormy => {
                self.set_unwell_alone(process, candidacy, true)
            }
            Deed::GetWell { process, boot, candidacy } if self.runs(process, boot) => {
                self.set_unwell_alone(process, candidacy, false)
            }
            Deed::Leave { process, boot, candidacy } if self.runs(process, boot) => self.leave(process, candidacy),
            Deed::Readied { process, boot, candidacy, nonce } if self.runs(process, boot) => {
                self.readied(process, boot, candidacy, nonce);
            }
            Deed::Stand { .. }
            | Deed::Readied { .. }
            | Deed::Stopped { .. }
            | Deed::Write { .. }
            | Deed::Recover { .. }
            | Deed::FallIll { .. }
            | Deed::GetWell { .. }
            | Deed::Leave { .. } => {}
            Deed::Shared(shared) => self.on_shared(shared),
            Deed::Random => self.act_at_random(),
            Deed::Operate => self.operate(),
        }
    }

    /// Whether a user that lives has not confirmed yet that the work of this term has stopped.
    pub(crate) fn work_goes_on(&self, election: usize, token: Token) -> bool {
        let users = self.processes.iter().flat_map(|process| process.users.values());
        users.filter(|user| user.election == election).any(|user| user.unconfirmed == Some(token))
    }

    pub(crate) fn runs(&self, process: usize, boot: u32) -> bool {
        let state = &self.processes[process];
        state.boot == boot && state.machine.is_some()
    }

    pub(crate) fn stand(&mut self, process: usize, election: usize) {
        if self.closing {
            return;
        }
        let name = self.names[election].clone();
        let state = &mut self.processes[process];
        // A stopped process stands nowhere: its user is stopped, too.
        if state.paused || !state.machine.as_ref().is_some_and(|machine| machine.may_stand(&name)) {
            return;
        }
        let id = CandidacyId(state.next_candidacy);
        state.next_candidacy += 1;
        let fenced = self.fences[election].is_some();
        let hold_until_stopped = self.rng.below(3) == 0;
        let is_outage = self.scenario.kind == Kind::Outage;
        let recorded = self.recorded[election] && (self.dice.below(3) > 0 || is_outage);
        let fences = recorded && (is_outage || self.scenario.kind == Kind::Chaos && self.dice.below(2) == 0);
        let priority = self.ranked[election].then(|| self.dice.below(4) as i32 - 1);
        let prepares = self.dice.below(2) == 0;
        let settings = &self.scenario.settings;
        let fence_delay = fences.then(|| settings.fence_delay());
        // Some stand again through the handle that they have; others open the election anew.
        let known = self.chance(500);
        let first_contact = self.processes[process].contacts.get(&election).copied().filter(|_| known);
        let user = User {
            election,
            fenced,
            recorded,
            term: None,
            unconfirmed: None,
            stopping: false,
            leaving: false,
            failed: false,
            healthy: true,
            unwell: false,
            chose: None,
            prepares,
            readied: Default::default(),
            departure: None,
            transferring: false,
            priority,
            told: Told::default(),
            told_before: None,
            enlisted: None,
            last_call: u64::MAX,
            awaits_answer: false,
            answered_at: None,
            last_executed: u64::MAX,
            raise: None,
            last_withdrawn: None,
            ceding: None,
            ceded: None,
            shot: None,
            closing: Default::default(),
            first_contact,
        };
        self.processes[process].users.insert(id, user);
        let candidate = Candidate {
            value: Bytes::from_static(b"value"),
            fenced,
            hold_until_stopped,
            priority,
            unfit: self.causes[election].is_there(),
            settles: self.causes[election].settles,
            prepares,
            recorded,
            fence_delay,
            first_contact,
            ..Candidate::new(name, name_of(process))
        };
        self.command(process, Input::Stand(id, candidate));
        self.find_cause(process, id, election);
    }

    fn stopped(&mut self, process: usize, candidacy: CandidacyId, token: Token) {
        let state = &mut self.processes[process];
        if state.paused {
            // The user is stopped with its process, and goes on with it.
            let boot = state.boot;
            let delay = self.scenario.ttl() / 20;
            return self.after(delay, Happening::Deed(Deed::Stopped { process, boot, candidacy, token }));
        }
        let Some(user) = state.users.get_mut(&candidacy) else { return };
        if user.unconfirmed == Some(token) {
            user.unconfirmed = None;
            self.release(process, candidacy);
        }
    }

    /// It takes a while to get ready, and may fail, or end when that is of no use any more.
    fn get_ready(&mut self, process: usize, candidacy: CandidacyId, nonce: Nonce) {
        let boot = self.processes[process].boot;
        let delay = self.dice.below(if self.stormy { self.scenario.ttl() * 3 / 2 } else { self.scenario.ttl() / 50 });
        self.after(delay, Happening::Deed(Deed::Readied { process, boot, candidacy, nonce }));
    }

    fn readied(&mut self, process: usize, boot: u32, candidacy: CandidacyId, nonce: Nonce) {
        if self.processes[process].paused {
            let delay = self.scenario.ttl() / 20;
            return self.after(delay, Happening::Deed(Deed::Readied { process, boot, candidacy, nonce }));
        }
        let fails = self.stormy && self.dice.below(4) == 0;
        let Some(user) = self.processes[process].users.get_mut(&candidacy) else { return };
        let answer = if fails { Err(Decline::Failed) } else { Ok(()) };
        user.readied.extend(answer.ok().map(|()| nonce));
        self.command(process, Input::Command(candidacy, Command::Prepared(nonce, answer)));
    }

    fn release(&mut self, process: usize, candidacy: CandidacyId) {
        // A user that gives the office back no longer believes to have it.
        if !self.processes[process].paused {
            let boot = self.processes[process].boot;
            self.checker.unelected((process, boot, candidacy));
        }
        self.command(process, Input::Command(candidacy, Command::Release));
    }

    pub(crate) fn set_healthy(&mut self, process: usize, candidacy: CandidacyId, healthy: bool) {
        if let Some(user) = self.processes[process].users.get_mut(&candidacy) {
            user.healthy = healthy;
            self.command(process, Input::Command(candidacy, Command::Healthy(healthy)));
        }
    }

    pub(crate) fn set_unwell(&mut self, process: usize, candidacy: CandidacyId, unwell: bool) {
        if let Some(user) = self.processes[process].users.get_mut(&candidacy) {
            user.unwell = unwell;
            self.command(process, Input::Command(candidacy, Command::Unwell(unwell)));
        }
    }

    fn act_at_random(&mut self) {
        if !self.stormy {
            return;
        }
        let process = self.rng.below(self.processes.len() as u64) as usize;
        let election = self.rng.below(self.names.len() as u64) as usize;
        let state = &self.processes[process];
        if state.machine.is_none() || state.paused {
            return;
        }
        let Some(candidacy) = state.candidacy_in(election) else { return self.stand(process, election) };
        let Some(user) = state.users.get(&candidacy) else { return };
        let term = user.term.clone().filter(|_| !user.stopping);
        let boot = state.boot;
        if self.dice.below(6) == 0 {
            self.set_unwell_alone(process, candidacy, true);
            let delay = self.dice.below(self.scenario.ttl() * 6);
            return self.after(delay, Happening::Deed(Deed::GetWell { process, boot, candidacy }));
        }
        if user.term.is_some() && !user.stopping && self.dice.below(4) == 0 {
            return self.depart(process, candidacy);
        }
        match (self.rng.below(10), term) {
            (0 | 1, Some(term)) => {
                if let Some(user) = self.processes[process].users.get_mut(&candidacy) {
                    user.unconfirmed.take_if(|token| *token == term.token);
                }
                self.release(process, candidacy);
            }
            (2 | 3, Some(_)) => {
                self.transfer(process, candidacy, election);
            }
            (4, _) => {
                self.set_healthy(process, candidacy, false);
                let delay = self.rng.below(self.scenario.ttl() * 2);
                self.after(delay, Happening::Deed(Deed::Recover { process, boot, candidacy }));
            }
            (5, _) => {
                let value = Bytes::from(self.now.to_string());
                self.command(process, Input::Command(candidacy, Command::Proclaim(self.now, value)));
            }
            (6..=8, _) => self.leave(process, candidacy),
            (_, Some(term)) if self.processes[process].clock.read(self.now) >= term.deadline => {
                self.command(process, Input::Command(candidacy, Command::Lapsed(term.number)));
            }
            _ => {}
        }
    }

    /// It is about to leave, and asks for an heir; some think better of it.
    fn depart(&mut self, process: usize, candidacy: CandidacyId) {
        let within = self.scenario.settings.ttl;
        let stays = self.dice.below(4) == 0;
        let Some(user) = self.processes[process].users.get_mut(&candidacy).filter(|user| !user.transferring) else {
            return;
        };
        let asked = user.departure.get_or_insert_default();
        trace!(self, format!("p{process}"), "is about to leave, and has asked {asked:?}");
        let command = Command::HandOver((!stays).then_some(within));
        self.command(process, Input::Command(candidacy, command));
    }

    fn leave(&mut self, process: usize, candidacy: CandidacyId) {
        let Some(user) = self.processes[process].users.get_mut(&candidacy) else { return };
        user.leaving = true;
        let election = user.election;
        self.command(process, Input::Command(candidacy, Command::Leave));
        // Some come back at once, before the old candidacy has left.
        if self.chance(500) {
            self.stand(process, election);
        }
    }

    /// Asks for a handover to somebody in line, and says to whom.
    pub(crate) fn transfer(&mut self, process: usize, candidacy: CandidacyId, election: usize) -> Option<Token> {
        let line = self.server.line(self.now, &self.names[election].clone());
        if line.is_empty() {
            return None;
        }
        // Mostly to another; to oneself now and then.
        let first = u64::from(line.len() > 1 && self.chance(900));
        let pick = (first + self.rng.below(line.len() as u64 - first)) as usize;
        let entry = line.get(pick)?;
        let heir = Heir::of(entry)?;
        let within = self.scenario.settings.ttl;
        if let Some(user) = self.processes[process].users.get_mut(&candidacy) {
            // Which of the two a notice is for cannot be seen from here.
            (user.departure, user.transferring) = (None, true);
        }
        self.command(process, Input::Command(candidacy, Command::Transfer(Successor::Candidate(heir), within)));
        Some(entry.token)
    }

    fn operate(&mut self) {
        if !self.stormy {
            return;
        }
        let acts = [
            Act::Pause,
            Act::Resume,
            Act::End,
            Act::Transfer,
            Act::Transfer,
            Act::Resign,
            Act::Depose,
            Act::Freeze,
            Act::Unfreeze,
            Act::Acknowledge,
            Act::Bench,
            Act::Bench,
            Act::Unbench,
        ];
        let act = acts[self.rng.below(acts.len() as u64) as usize];
        let election = self.rng.below(self.names.len() as u64) as usize;
        if act == Act::Pause {
            // Most pauses are taken back.
            let delay = self.rng.below(self.scenario.ttl() * 4);
            let back = self.resumption();
            let operator = self.hire(back, election);
            self.after(delay, Happening::RetryOperation { operator, attempt: 0 });
        }
        let operator = self.hire(act, election);
        self.retry_operation(operator, 0);
    }

    /// How a pause ends.
    pub(crate) fn resumption(&mut self) -> Act {
        if self.dice.below(3) == 0 { Act::ResumeFirst } else { Act::Resume }
    }

    /// An operator that has not begun yet.
    pub(crate) fn hire(&mut self, act: Act, election: usize) -> usize {
        let mut dice = self.rng.fork();
        let name = self.names[election].clone();
        let stands = |process: &usize| self.processes[*process].candidacy_in(election).is_some();
        let standing: Vec<usize> = (0..self.processes.len()).filter(stands).collect();
        let first = standing.get(dice.fork().below(standing.len().max(1) as u64) as usize).copied().unwrap_or(0);
        self.operators.push(Operator::new(act, name, self.scenario.settings.ttl, first, dice));
        self.operators.len() - 1
    }

    pub(crate) fn retry_operation(&mut self, operator: usize, attempt: u64) {
        if self.operators[operator].attempt != attempt || !self.under_operation {
            return;
        }
        if let Some(op) = self.operators[operator].begin() {
            self.ask_as_operator(operator, op);
        }
    }

    pub(crate) fn on_told(
        &mut self,
        operator: usize,
        attempt: u64,
        answer: Result<incumbent_core::Answer, incumbent_core::Fault>,
    ) {
        if self.operators[operator].attempt != attempt || !self.under_operation {
            return;
        }
        if let Some(op) = self.operators[operator].on_answer(answer) {
            self.ask_as_operator(operator, op);
        }
    }

    fn ask_as_operator(&mut self, operator: usize, op: incumbent_core::Op) {
        let attempt = self.operators[operator].attempt;
        trace!(self, "operator", "{:?} {op:?}", self.operators[operator].act);
        self.send(Sender::Operator(operator), Ask::Operate(attempt, op));
        self.after(self.scenario.ttl() / 2, Happening::RetryOperation { operator, attempt });
    }

    /// A write reaches the resource.
    pub(crate) fn write(&mut self, election: usize, token: Token) {
        let Some(level) = self.fences[election] else { return };
        if token.get() >= level || self.variant.has(AroundFlaw::ResourceUnfenced) {
            self.fences[election] = Some(level.max(token.get()));
            self.checker.accepted(self.now, election, token);
        }
    }

    pub(crate) fn raise(&mut self, election: usize, token: Token) {
        if let Some(level) = &mut self.fences[election] {
            let back = self.variant.has(AroundFlaw::FenceSetBack);
            *level = if back { token.get() } else { token.get().max(*level) };
            let level = *level;
            self.checker.fence_moved(self.now, election, level);
        }
    }

    pub(crate) fn on_user_event(&mut self, process: usize, candidacy: CandidacyId, event: Event) {
        match event {
            Event::Elected { term, title: Title::Entry(held), deadline, .. } => {
                self.on_elected(process, candidacy, term, &held, deadline);
            }
            Event::Deadline(deadline) => {
                let boot = self.processes[process].boot;
                self.check_deadline(process, deadline);
                let (clock, ttl) = (&self.processes[process].clock, self.scenario.granted.as_nanos() as u64);
                self.checker.extended(self.now, (process, boot, candidacy), deadline, clock, ttl);
                let term = self.processes[process].users.get_mut(&candidacy).and_then(|user| user.term.as_mut());
                if let Some(term) = term {
                    term.deadline = deadline;
                }
            }
            Event::Stopping { why, .. } => self.on_stopping(process, candidacy, why),
            Event::Unelected(why) => self.on_unelected(process, candidacy, why),
            Event::Released => self.on_released(process, candidacy),
            Event::Prepare { nonce, .. } => self.get_ready(process, candidacy, nonce),
            Event::FirstContact(tombstone) => {
                let state = &mut self.processes[process];
                if let Some(user) = state.users.get_mut(&candidacy) {
                    user.first_contact = Some(tombstone);
                    state.contacts.insert(user.election, tombstone);
                }
            }
            Event::Failed => self.fail("FAILED", format!("p{process} {candidacy:?} failed for good, for no reason")),
            Event::LeftOpen(token) => {
                if let Some(user) = self.processes[process].users.get(&candidacy) {
                    self.left_open.insert((user.election, token));
                }
            }
            Event::Done { certain } => self.on_done(process, candidacy, certain),
            Event::Ended => {
                let state = &mut self.processes[process];
                if let Some(user) = state.users.get_mut(&candidacy) {
                    user.leaving = true;
                    state.contacts.remove(&user.election);
                }
            }
            Event::Following(_)
            | Event::Out(_)
            | Event::TransferRefused(_)
            | Event::NoHeir(_)
            | Event::CalledOff(_)
            | Event::Proclaimed(..)
            | Event::Ordered(..)
            | Event::Stays(_)
            | Event::StaysBenched(_)
            | Event::OrderStays(..) => {}
            // Of groups.
            Event::Elected { .. }
            | Event::Led { .. }
            | Event::Vacant
            | Event::Follows { .. }
            | Event::NotVoting(_)
            | Event::Voting => {}
        }
    }

    fn on_elected(&mut self, process: usize, candidacy: CandidacyId, number: TermNo, held: &Held, deadline: Timestamp) {
        let boot = self.processes[process].boot;
        let Some(user) = self.processes[process].users.get_mut(&candidacy) else { return };
        let election = user.election;
        let (twice, unconfirmed, fenced) = (user.term.is_some(), user.unconfirmed, user.fenced);
        let (asked, ceded) = (user.recorded, user.ceded == Some(held.token));
        user.term = Some(Term { number, token: held.token, deadline });
        user.unconfirmed = Some(held.token);
        user.stopping = false;
        (user.departure, user.transferring) = (None, false);
        let said = user.told.first_in_line.clone().filter(|said| said.token == held.token);
        trace!(self, format!("p{process}"), "** leads {} with {:?}", held.election, held.token);
        if twice {
            self.fail("EVENTS", format!("p{process} {candidacy:?} is elected twice in a row"));
        }
        if ceded {
            self.fail("PLACE", format!("{:?} of e{election} leads in a place that may be another's", held.token));
        }
        if let Some(token) = unconfirmed {
            self.fail(
                "EVENTS",
                format!("p{process} {candidacy:?} is elected before the work of {token:?} has stopped"),
            );
        }
        match said {
            Some(said) => {
                self.checker.barred(self.now, said.paused, said.benched, said.ended);
                if asked || said.recorded {
                    self.checker.opened(self.now, election, held.token);
                }
            }
            None => self.fail("WINNING", format!("p{process} leads with {:?}, but no answer said so", held.token)),
        }
        if fenced {
            let level = self.fences[election].unwrap_or(0);
            self.checker.fence(self.now, election, held.token, level);
        }
        self.check_deadline(process, deadline);
        let belief = Belief { election, process, boot, candidacy, token: held.token, deadline };
        let (processes, now) = (&self.processes, self.now);
        self.checker.elected(now, belief, &|process| processes[process].clock.read(now));
        if self.flapping {
            let delay = self.dice.below(self.scenario.ttl() / 2);
            self.after(delay, Happening::Deed(Deed::FallIll { process, boot, candidacy }));
        }
        let span = self.scenario.ttl() * 3;
        for _ in 0..2 {
            let delay = self.rng.below(span);
            self.after(delay, Happening::Deed(Deed::Write { process, boot, candidacy, token: held.token }));
        }
    }

    fn check_deadline(&mut self, process: usize, deadline: Timestamp) {
        let state = &self.processes[process];
        let ends_at = state.clock.when(deadline);
        let forgets_at = state.session().map_or(0, |session| self.server.forgets_at(session));
        self.checker.deadline(self.now, process, ends_at, forgets_at);
    }

    fn on_stopping(&mut self, process: usize, candidacy: CandidacyId, why: LossReason) {
        let boot = self.processes[process].boot;
        let now = self.processes[process].clock.read(self.now);
        let Some(user) = self.processes[process].users.get_mut(&candidacy) else { return };
        let Some(Term { token, .. }) = user.term else {
            return self.fail("EVENTS", format!("p{process} {candidacy:?} is to stop work that it does not do"));
        };
        user.stopping = true;
        let (election, frozen, fit) = (user.election, user.told.frozen, user.told.fit_in_line());
        let benched = user.told.benched;
        let changes = user.told.changes_lately(now, token);
        if why == LossReason::Transferred {
            self.check_heir(process, candidacy, token);
        }
        if why == LossReason::Benched {
            match benched {
                None => self.checker.benched(self.now, election, token, "is benched no longer, and leaves for it"),
                // It goes to one that is fit; or leaves although nobody follows, as it was ordered.
                Some((_, false)) => self.checker.handed_over_for_health(self.now, election, token, &fit),
                Some((_, true)) => {}
            }
        }
        if why == LossReason::Unwell {
            self.checker.handed_over_for_health(self.now, election, token, &fit);
            self.checker.changes_for_health(self.now, election, token, &changes);
            self.check_cause(process, candidacy, election, token);
        }
        if matches!(why, LossReason::Transferred | LossReason::Resigned | LossReason::Unwell) {
            self.checker.asked_to_go(self.now, election, token);
        }
        let asked = [LossReason::Transferred, LossReason::Resigned, LossReason::Unhealthy, LossReason::Unwell];
        if asked.contains(&why) || why == LossReason::Benched {
            self.checker.moved(self.now, election, token, why, frozen);
        }
        self.stop_work(process, boot, candidacy, token);
    }

    /// Work takes a while to stop, at times longer than the grace.
    fn stop_work(&mut self, process: usize, boot: u32, candidacy: CandidacyId, token: Token) {
        let grace = self.scenario.settings.grace.as_nanos() as u64;
        let delay = self.rng.below(if self.stormy { grace * 3 / 2 } else { grace / 2 });
        self.after(delay, Happening::Deed(Deed::Stopped { process, boot, candidacy, token }));
    }

    fn on_unelected(&mut self, process: usize, candidacy: CandidacyId, why: LossReason) {
        let boot = self.processes[process].boot;
        self.checker.unelected((process, boot, candidacy));
        let Some(user) = self.processes[process].users.get_mut(&candidacy) else { return };
        let Some(term) = user.term.take() else {
            return self.fail("EVENTS", format!("p{process} {candidacy:?} is unelected without having been elected"));
        };
        let (election, stopping, frozen) = (user.election, user.stopping, user.told.frozen);
        let by_own_transfer = why == LossReason::Transferred && !stopping;
        if by_own_transfer {
            // The work had stopped before it asked.
            user.unconfirmed = None;
        }
        let unconfirmed = user.unconfirmed;
        if by_own_transfer {
            self.checker.moved(self.now, election, term.token, why, frozen);
        }
        trace!(self, format!("p{process}"), "** no longer leads with {:?}: {why}", term.token);
        if self.flapping {
            self.after(0, Happening::Deed(Deed::GetWell { process, boot, candidacy }));
        }
        self.checker.term_ended(election, term.token, why);
        if !stopping && let Some(token) = unconfirmed {
            self.stop_work(process, boot, candidacy, token);
        }
    }

    /// `Released` means that the entry is gone, for certain.
    fn on_released(&mut self, process: usize, candidacy: CandidacyId) {
        let Some(user) = self.processes[process].users.get(&candidacy) else { return };
        if let Some(held) = user.last_withdrawn.clone().filter(|held| self.server.has(held)) {
            let text =
                format!("p{process} {candidacy:?} is told that {:?} is released, and it is still in line", held.token);
            self.fail("S8", text);
        }
    }

    /// `Done` means that nothing is left, save what a late message may still bring.
    fn on_done(&mut self, process: usize, candidacy: CandidacyId, certain: bool) {
        let boot = self.processes[process].boot;
        let Some(user) = self.processes[process].users.remove(&candidacy) else { return };
        if user.term.is_some() {
            self.fail("EVENTS", format!("p{process} {candidacy:?} is done while it leads"));
        }
        let name = self.names[user.election].clone();
        for entry in self.server.line(self.now, &name) {
            let last = (process, boot, candidacy, user.last_call);
            let made_it = self.checker.maker(user.election, entry.token) == Some(last);
            // The second of a doubled message may bring one after the first was answered.
            let doubled =
                user.answered_at.is_some_and(|at| self.checker.made_at(user.election, entry.token) > Some(at));
            if certain && made_it && !doubled {
                let text =
                    format!("p{process} {candidacy:?} is done for certain, and its {:?} is in line", entry.token);
                self.fail("S8", text);
            }
        }
        let back = if self.stormy { self.chance(800) } else { self.under_operation || !user.leaving };
        if back {
            let delay = self.rng.below(self.scenario.ttl());
            self.after(delay, Happening::Deed(Deed::Stand { process, boot, election: user.election }));
        }
    }
}
