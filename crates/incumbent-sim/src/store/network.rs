//! What lies between the processes and the server: it delays, loses and doubles, and it can be cut.

use incumbent_core::{
    Answer, Attempt, CallId, CandidacyId, Cas, ElectionName, EntryId, Epoch, Fault, Held, Hint, Input, Op, Place,
    ShotResult, TermEnd, TermRecord, Token, WatchId,
};

use super::checker::{Fields, Maker, Withdrawal};
use super::process::{FirstInLine, Message, Process, name_of};
use super::scenario::Kind;
use super::server::{Ask, Reply, Sender, held_in};
use super::users::Deed;
use super::world::{Happening, Request, World};
use crate::trace::trace;
use crate::variant::AroundFlaw;

/// No candidacy gets this far.
const NOBODYS_CALL: u64 = u64::MAX - 1;

impl World {
    fn delay(&mut self) -> u64 {
        let (shortest, longest) = self.weather.delay;
        let usual = shortest + self.rng.below(longest - shortest + 1);
        if !self.chance(self.weather.late) {
            return usual;
        }
        // Most that are late are still in time for somebody who waits; some come when nobody does
        // any more.
        let latest = if self.chance(600) { self.weather.latest / 8 } else { self.weather.latest };
        usual + self.rng.below(latest)
    }

    /// Sends a request to the server, or not.
    pub(crate) fn send(&mut self, from: Sender, ask: Ask) {
        if self.is_cut_off(from) {
            if self.chance(500) {
                self.reply(from, fault(&ask, Fault::Unavailable));
            }
            return;
        }
        if self.chance(self.weather.lost) {
            trace!(self, "network", "loses {ask:?}");
            if self.chance(300) {
                self.reply(from, fault(&ask, Fault::OutcomeUnknown));
            }
            return;
        }
        if self.chance(self.weather.doubled) {
            let copy = Request { from, ask: ask.clone() };
            let delay = self.delay() + self.rng.below(self.weather.latest / 2 + 1);
            self.after(delay, Happening::Arrive(Box::new(copy)));
        }
        let delay = self.delay();
        self.after(delay, Happening::Arrive(Box::new(Request { from, ask })));
    }

    fn is_cut_off(&self, sender: Sender) -> bool {
        matches!(sender, Sender::Process { process, .. } if self.cut_off.contains(&process))
    }

    /// A request is at the server. Its sender may have crashed since: that changes nothing here.
    pub(crate) fn arrive(&mut self, request: Request) {
        let Request { from, ask } = &request;
        if self.server_down {
            if self.chance(500) {
                self.reply(*from, fault(ask, Fault::Unavailable));
            }
            return;
        }
        if self.server_full && takes_room(ask) {
            return self.reply(*from, fault(ask, Fault::Unavailable));
        }
        if matches!(from, Sender::Process { process, .. } if self.on_stale_server.contains(process)) {
            if let (Ask::Renew(attempt, ..), true) = (ask, self.variant.has(AroundFlaw::StaleServerBelieved)) {
                let reply = self.server.acknowledge(*attempt);
                self.reply(*from, reply);
            }
            return;
        }
        if let (Ask::Watch(watch), Sender::Process { process, boot }) = (ask, *from) {
            if self.processes[process].boot == boot && self.server.watch(process, boot, watch) {
                self.hint(process, boot, watch.candidacy, watch.watch, Hint::Changed);
            }
            return;
        }
        if let (Ask::Call(_, _, _, Op::Enlist(..)), true) = (ask, self.variant.has(AroundFlaw::TokenDrawnEarly)) {
            let token = self.server.table.draw_token();
            let delay = self.rng.below(self.scenario.ttl() / 20);
            return self.after(delay, Happening::BecomeVisible(Box::new(request), token));
        }
        let reply = self.execute(*from, ask);
        trace!(self, "server", "{from:?} {ask:?} => {reply:?}");
        self.reply(*from, reply);
        self.after_step();
    }

    pub(crate) fn become_visible(&mut self, request: &Request, token: Token) {
        let Ask::Call(candidacy, call, Some(session), Op::Enlist(election, entry)) = &request.ask else { return };
        let answer = self.server.enlist_late(self.now, *session, election, entry, token);
        self.note_place(request.from, *candidacy, *call, &answer);
        self.reply(request.from, Reply::Called(*candidacy, *call, answer));
        self.after_step();
    }

    /// One step of the server, with everything that the checker has to see around it.
    fn execute(&mut self, from: Sender, ask: &Ask) -> Reply {
        let op = match ask {
            Ask::Call(_, _, _, op) | Ask::Operate(_, op) => op,
            Ask::Open(..) | Ask::Renew(..) | Ask::Close(_) | Ask::Watch(_) => {
                return self.server.execute(self.now, ask);
            }
        };
        match op {
            Op::Evict(name, seen) => self.evict(from, ask, name, seen.token),
            Op::SetOffice(name, ..) => self.set_office(from, ask, name),
            Op::Withdraw(held, heir) => self.withdraw(ask, held, heir.as_ref()),
            _ => {
                let reply = self.server.execute(self.now, ask);
                if let Reply::Called(candidacy, call, answer) = &reply {
                    self.note_place(from, *candidacy, *call, answer);
                }
                reply
            }
        }
    }

    fn evict(&mut self, from: Sender, ask: &Ask, name: &ElectionName, token: Token) -> Reply {
        let election = self.election(name);
        let before = self.server.tokens(self.now, name);
        let forgets_at = self.server.forgets_entry_at(token);
        let reply = self.server.execute(self.now, ask);
        let after = self.server.tokens(self.now, name);
        self.checker.removed(self.now, election, token, &before, &after);
        let gone = before.contains(&token) && !after.contains(&token);
        match from {
            Sender::Operator(_) if gone => self.checker.removed_early(self.now, election, token),
            Sender::Process { process, .. } if gone => self.checker.silenced(self.now, process, token, forgets_at),
            Sender::Operator(_) | Sender::Process { .. } => {}
        }
        reply
    }

    fn set_office(&mut self, from: Sender, ask: &Ask, name: &ElectionName) -> Reply {
        let election = self.election(name);
        let was = self.server.office(self.now, name);
        let reply = self.server.execute(self.now, ask);
        let is = self.server.office(self.now, name);
        let fields = match from {
            Sender::Operator(operator) => self.operators[operator].fields(),
            Sender::Process { process, .. } => {
                // The others have waited for this one to lead.
                let paused = was.paused.as_ref().is_some_and(|paused| !paused.bars(&name_of(process)));
                Fields { handover: true, terms: true, paused, ..Fields::default() }
            }
        };
        self.checker.office_written(self.now, election, fields, &was, &is);
        match from {
            Sender::Process { .. } => self.checker.place_offered(self.now, election, &was, &is),
            Sender::Operator(_) => self.checker.notice_replaced(election, &was, &is),
        }
        for token in self.checker.terms_written(self.now, election, &was.terms, &is.terms) {
            if self.work_goes_on(election, token) {
                self.checker.closed_early(self.now, election, token);
            }
        }
        reply
    }

    fn withdraw(&mut self, ask: &Ask, held: &Held, heir: Option<&EntryId>) -> Reply {
        let election = self.election(&held.election);
        let before = self.server.tokens(self.now, &held.election);
        let reply = self.server.execute(self.now, ask);
        let after = self.server.tokens(self.now, &held.election);
        self.checker.removed(self.now, election, held.token, &before, &after);
        let outcome = match &reply {
            Reply::Called(_, _, Ok(Answer::Cas(Cas::Done))) if before.contains(&held.token) => {
                let head = self.server.head(self.now, &held.election).map(|head| head.id);
                let office = self.server.office(self.now, &held.election);
                let notice = office.handover_from(held.token).and_then(|handover| handover.heir.as_ref());
                if heir.is_some()
                    && let Some(notice) = notice
                {
                    self.checker.place_given(self.now, election, held.token, notice.token);
                }
                let heir = heir.or(notice.map(|heir| &heir.entry));
                Withdrawal::Done { heir_first: head.as_ref() == heir }
            }
            Reply::Called(_, _, Ok(Answer::Cas(Cas::Refused))) => Withdrawal::Refused,
            _ => return reply,
        };
        self.checker.withdrawn(self.now, election, held.token, outcome);
        reply
    }

    fn note_place(&mut self, from: Sender, candidacy: CandidacyId, call: CallId, answer: &Result<Answer, Fault>) {
        let (Ok(Answer::Standing(standing)), Sender::Process { process, boot }) = (answer, from) else { return };
        // What a doubled request does the second time, nobody asked for.
        let state = Some(&mut self.processes[process]).filter(|state| state.boot == boot);
        let executed = state.and_then(|state| state.users.get_mut(&candidacy)).map(|user| &mut user.last_executed);
        let doubled = executed.is_some_and(|last| std::mem::replace(last, call.0) == call.0);
        if let Some(held) = held_in(standing) {
            let election = self.election(&held.election);
            let maker = Some((process, boot, candidacy, if doubled { NOBODYS_CALL } else { call.0 }));
            self.checker.in_line(self.now, election, held.token, Some(held.incarnation), maker);
        }
    }

    /// Sends an answer back, or not.
    fn reply(&mut self, to: Sender, reply: Reply) {
        let message = match (to, reply) {
            (_, Reply::None) => return,
            (Sender::Operator(operator), Reply::Operated(attempt, answer)) => {
                if !self.chance(self.weather.lost) {
                    let delay = self.delay();
                    self.after(delay, Happening::NodeEvent { operator, attempt, answer: Box::new(answer) });
                }
                return;
            }
            (Sender::Operator(_), _) | (_, Reply::Operated(..)) => return,
            (Sender::Process { .. }, Reply::Opened(attempt, answer)) => Message::Opened(attempt, answer),
            (Sender::Process { .. }, Reply::Renewed(attempt, answer)) => {
                Message::Input(Input::Renewed(attempt, answer))
            }
            (Sender::Process { .. }, Reply::Called(candidacy, call, answer)) => {
                Message::Input(Input::Answer(candidacy, call, answer))
            }
        };
        if let Sender::Process { process, boot } = to {
            self.send_to_process(process, boot, message);
        }
    }

    pub(crate) fn send_to_process(&mut self, process: usize, boot: u32, message: Message) {
        if self.chance(self.weather.lost) {
            trace!(self, "network", "loses {message:?} for p{process}");
            return;
        }
        if self.chance(self.weather.doubled) {
            let delay = self.delay();
            self.after(delay, Happening::Deliver { process, boot, message: Box::new(message.clone()) });
        }
        let delay = self.delay();
        self.after(delay, Happening::Deliver { process, boot, message: Box::new(message) });
    }

    /// A watch has something to say. Hints get lost more easily than answers, and nobody notices.
    pub(crate) fn hint(&mut self, process: usize, boot: u32, candidacy: CandidacyId, watch: WatchId, hint: Hint) {
        if self.chance(self.weather.hints_lost) || self.cut_off.contains(&process) {
            return;
        }
        self.send_to_process(process, boot, Message::Input(Input::Wake(candidacy, watch, hint)));
    }

    /// Sends a candidacy's call to where it belongs.
    pub(crate) fn put_out_call(
        &mut self,
        process: usize,
        candidacy: CandidacyId,
        call: CallId,
        epoch: Option<Epoch>,
        op: Op,
    ) {
        self.count_call(process);
        let boot = self.processes[process].boot;
        if let Some(state) = self.processes[process].users.get_mut(&candidacy) {
            state.last_call = call.0;
            state.awaits_answer = true;
            state.told_before = None;
            state.answered_at = None;
            state.raise = matches!(op, Op::RaiseFences(_)).then_some(call);
            state.ceding = None;
            if let Op::Enlist(_, entry) = &op {
                state.enlisted = Some(entry.incarnation);
            }
            if let Op::SetOffice(_, _, to) = &op {
                for closed in to.terms.iter().filter(|term| matches!(term.end, TermEnd::Closed { .. })) {
                    state.closing.entry(closed.token).or_insert(self.now);
                }
            }
            if let Op::Withdraw(held, heir) = &op {
                state.ceding = heir.is_some().then_some(held.token);
                let is_first_try = state.last_withdrawn.replace(held.clone()).as_ref() != Some(held);
                let (election, stopped) = (state.election, state.unconfirmed != Some(held.token));
                let tried = state.closing.get(&held.token).map(|since| self.now - since);
                // By the fastest clock, and with the shortest interval that the store may grant.
                let long_enough = self.scenario.granted.min(self.scenario.settings.ttl) / 3 * 9 / 10;
                if stopped && tried.is_none_or(|tried| u128::from(tried) < long_enough.as_nanos()) {
                    let terms = self.server.office(self.now, &held.election).terms;
                    self.checker.withdraws(self.now, election, held, &terms);
                }
                if is_first_try {
                    self.check_place(process, candidacy, held, heir.as_ref());
                }
            }
        }
        if let Op::Publish(held, _, said) = &op {
            self.check_readiness(process, candidacy, held, said.ready);
        }
        if let Op::SetOffice(name, _, to) = &op {
            self.check_departure(process, candidacy, name, to);
            self.note_unwell_choice(process, candidacy, to);
        }
        if let Some(epoch) = epoch {
            self.processes[process].epoch = epoch.0;
        }
        if let Op::Shoot(term, attempt) = &op {
            return self.begin_shot(process, candidacy, call, term.token, *attempt);
        }
        if let Op::Examine(term) = &op {
            let message = Message::Input(Input::Answer(candidacy, call, Ok(self.examine(process, candidacy, term))));
            let delay = self.delay();
            return self.after(delay, Happening::Deliver { process, boot, message: Box::new(message) });
        }
        if let Op::RaiseFences(token) = op {
            let Some(election) = self.processes[process].users.get(&candidacy).map(|user| user.election) else {
                return;
            };
            if let Some((other, _)) = self.processes[process].raises.insert(election, (candidacy, call)) {
                let seen =
                    format!("p{process} {candidacy:?} raises its fences while a raise of {other:?} is not dropped");
                self.fail("RAISE", seen);
            }
            if self.stormy && self.chance(20) {
                // It hangs, and its user does not wait for it.
                let delay = self.rng.below(self.scenario.ttl() / 4);
                return self.after(delay, Happening::Deed(Deed::Leave { process, boot, candidacy }));
            }
            if !self.chance(self.weather.lost) {
                let times = 1 + u64::from(self.chance(self.weather.doubled));
                for copy in 0..times {
                    let delay = self.delay() + copy * self.rng.below(self.weather.latest / 2 + 1);
                    self.after(delay, Happening::Raise { process, boot, candidacy, call, election, token });
                }
            }
            return;
        }
        let session = epoch.and_then(|epoch| self.processes[process].sessions.get(&epoch.0).copied());
        if let Op::Withdraw(held, Some(heir)) = &op
            && self.stormy
            && self.dice.below(4) == 0
        {
            self.heir_leaves(held, heir);
            let ask = Ask::Call(candidacy, call, session, op);
            return self.reply(Sender::Process { process, boot }, fault(&ask, Fault::OutcomeUnknown));
        }
        self.send(Sender::Process { process, boot }, Ask::Call(candidacy, call, session, op));
    }

    /// Some of the processes are on one host, where the kernel says who has died.
    fn examine(&self, asker: usize, candidacy: CandidacyId, term: &TermRecord) -> Answer {
        let user = self.processes[asker].users.get(&candidacy);
        let maker = user.and_then(|user| self.checker.maker(user.election, term.token));
        let has_died = |(process, boot, ..): Maker| {
            let state = &self.processes[process];
            process % 2 == asker % 2 && (state.boot != boot || state.machine.is_none())
        };
        Answer::Examined { died: maker.is_some_and(has_died) }
    }

    /// A command begins that stops the process of the last leader. It takes its time.
    fn begin_shot(&mut self, process: usize, candidacy: CandidacyId, call: CallId, term: Token, attempt: u32) {
        let boot = self.processes[process].boot;
        let Some(user) = self.processes[process].users.get_mut(&candidacy) else { return };
        user.shot = Some(call);
        let (election, by) = (user.election, user.told.first_in_line.as_ref().map(|first| first.token));
        self.checker.shot(self.now, election, term, attempt, by);
        if self.scenario.kind == Kind::Outage {
            self.fail("SHOT", format!("p{process} shoots at {term:?} of e{election}, and nobody has died"));
        }
        let ttl = self.scenario.ttl();
        let delay = self.dice.below(if self.stormy { 2 * ttl } else { ttl / 4 });
        self.after(delay, Happening::Shot { process, boot, candidacy, call, election, term });
    }

    /// The command has done what it does, or has not. One that was given up was killed before, or
    /// a moment too late.
    pub(crate) fn on_shot(
        &mut self,
        (process, boot, candidacy): (usize, u32, CandidacyId),
        call: CallId,
        at: (usize, Token),
    ) {
        let is_awaited = self.processes[process].boot == boot
            && self.processes[process].users.get(&candidacy).is_some_and(|user| user.shot == Some(call));
        let target = self.checker.maker(at.0, at.1).filter(|(target, ..)| *target != process);
        let hits = !self.stormy || self.dice.below(2) == 0;
        if let Some((target, target_boot, ..)) = target.filter(|_| hits)
            && self.processes[target].boot == target_boot
        {
            self.shot_down(target);
        }
        let is_own = self.checker.maker(at.0, at.1).is_some_and(|(target, ..)| target == process);
        let again = (self.stormy && self.dice.below(2) == 0).then(|| self.scenario.settings.ttl / 8);
        let (result, again) = match (hits && !is_own, self.dice.below(2)) {
            (true, _) => (ShotResult::Stopped, None),
            (false, 0) => (ShotResult::Failed, again),
            (false, _) => (ShotResult::TimedOut, again),
        };
        if is_awaited {
            self.command(process, Input::Answer(candidacy, call, Ok(Answer::Shot { result, again, why: "".into() })));
        }
    }

    /// A raise of fences that was given up is said to be dropped, sooner or later.
    pub(crate) fn drop_raise(&mut self, process: usize, candidacy: CandidacyId) {
        let Process { boot, users, .. } = &mut self.processes[process];
        let (boot, raise) = (*boot, users.get_mut(&candidacy).and_then(|user| user.raise.take()));
        if let Some(call) = raise {
            let message = Message::Input(Input::Answer(candidacy, call, Err(Fault::OutcomeUnknown)));
            // Now and then it blocks, and cannot be dropped.
            let blocks = self.stormy && self.chance(250);
            let delay = self.delay() + if blocks { self.rng.below(3 * self.scenario.ttl()) } else { 0 };
            self.after(delay, Happening::Deliver { process, boot, message: Box::new(message) });
        }
    }

    /// Notes what an answer said, as it reaches the one who acts on it.
    pub(crate) fn note_answer(&mut self, process: usize, input: &Input) {
        if let Input::Answer(candidacy, call, _) = input {
            self.processes[process].raises.retain(|_, raise| *raise != (*candidacy, *call));
        }
        if let Input::Answer(candidacy, call, Ok(_)) = input
            && let Some(state) = self.processes[process].users.get_mut(candidacy)
            && state.last_call == call.0
        {
            state.answered_at.get_or_insert(self.now);
        }
        let now = self.processes[process].clock.read(self.now);
        if let Input::Answer(candidacy, call, answer) = input
            && let Some(state) = self.processes[process].users.get_mut(candidacy)
            && state.last_call == call.0
            && std::mem::take(&mut state.awaits_answer)
        {
            state.told_before = Some(state.told.clone());
            match answer {
                Ok(Answer::Standing(standing)) => {
                    state.told.frozen = standing.office.frozen.is_some();
                    state.told.note_bench(now, &standing.office, &name_of(process), state.term.is_some());
                    state.told.count_changes(now, &standing.office);
                    let offer = standing.office.handover.as_ref().filter(|handover| handover.at_vacancy);
                    state.told.at_vacancy.extend(offer.map(|offer| offer.nonce));
                }
                Ok(Answer::Line(line)) => {
                    state.told.note_hold(&line.office);
                    let ours = line.entries.iter().take_while(|entry| !entry.is_foreign());
                    state.told.line = ours.cloned().collect();
                }
                Err(Fault::OutcomeUnknown) => state.ceded = state.ceding.or(state.ceded),
                _ => {}
            }
        }
        if let Input::Answer(candidacy, call, Ok(Answer::Standing(standing))) = input
            && let Place::Leading(held) = &standing.place
            && let Some(state) = self.processes[process].users.get_mut(candidacy)
            && state.term.is_none()
            && state.last_call == call.0
        {
            let met = state.first_contact.flatten();
            let ended = standing.office.ended.as_ref().map(|ended| ended.id);
            // Without first contact, this answer is it: the tombstone in it is from before our
            // time.
            let ended = ended.filter(|id| state.first_contact.is_some() && Some(*id) != met);
            let paused = standing.office.paused.as_ref().is_some_and(|paused| paused.bars(&name_of(process)));
            let benched = standing.office.benched.get(&name_of(process)).is_some();
            let recorded = !standing.office.terms.is_empty();
            state.told.first_in_line = Some(FirstInLine { token: held.token, paused, benched, ended, recorded });
        }
    }
}

/// Whether a server that is full refuses it: leaders may renew there, and all may leave.
fn takes_room(ask: &Ask) -> bool {
    matches!(ask, Ask::Call(_, _, _, Op::Enlist(..) | Op::SetOffice(..)) | Ask::Operate(_, Op::SetOffice(..)))
}

/// The answer of a network that could not carry the question.
fn fault(ask: &Ask, fault: Fault) -> Reply {
    match ask {
        Ask::Open(attempt) => Reply::Opened(Attempt(attempt.0), Err(fault)),
        Ask::Renew(attempt, ..) => Reply::Renewed(*attempt, Err(fault)),
        Ask::Call(candidacy, call, ..) => Reply::Called(*candidacy, *call, Err(fault)),
        Ask::Operate(attempt, _) => Reply::Operated(*attempt, Err(fault)),
        Ask::Close(_) | Ask::Watch(_) => Reply::None,
    }
}
