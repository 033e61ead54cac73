//! What goes wrong, when it heals, and what must be true after that.

use std::time::Duration;

use bytes::Bytes;
use incumbent_core::{
    BenchOrder, Benched, CandidacyId, Entry, Epoch, ForgottenBy, Hint, Input, Office, TermEnd, TermRecord,
};
use incumbent_store::LineKind;

use super::checker::Belief;
use super::process::name_of;
use super::scenario::{Kind, Weather};
use super::server::at;
use super::users::Deed;
use super::world::{Happening, Phase, World};
use crate::trace::trace;
use crate::variant::AroundFlaw;

/// What goes wrong at a moment.
#[derive(Clone, Debug)]
pub(crate) enum Mishap {
    Crash(usize),
    Restart(usize),
    /// It stands still: a signal, or a host that is suspended.
    Stop {
        process: usize,
        suspend: bool,
    },
    GoOn(usize),
    CutOff(usize),
    Reconnect(usize),
    ServerDown,
    ServerUp,
    /// It is gone for three TTLs.
    Outage,
    ServerFull,
    ServerRoomy,
    FailOver,
    Stale(usize),
    NotStale(usize),
    Reattach(usize),
    Clock(usize),
    Foreign,
    ForeignGone(usize, Box<Entry>),
    /// Leaders die: of certain death their session is closed.
    Death {
        certain: bool,
    },
}

impl Mishap {
    /// Whether it belongs to the storm: after that, only what was begun in it comes to its end.
    fn is_of_the_storm(&self) -> bool {
        use Mishap::*;
        matches!(
            self,
            Crash(_)
                | Stop { .. }
                | CutOff(_)
                | ServerDown
                | ServerFull
                | FailOver
                | Stale(_)
                | Reattach(_)
                | Clock(_)
                | Foreign
        )
    }
}

/// Makes a mishap that befalls a process; some have two forms.
type MishapTo = fn(usize, bool) -> Mishap;

impl World {
    pub(crate) fn plan_mishaps(&mut self) {
        match self.scenario.kind {
            Kind::Deaths => self.plan_death(),
            Kind::Outage => {
                let at = self.scenario.longest_ttl() * 2 + self.rng.below(self.scenario.longest_ttl());
                self.after(at, Happening::Mishap(Mishap::Outage));
            }
            Kind::Quiet | Kind::Orders | Kind::Chaos => {}
        }
        let luck = self.scenario.luck;
        let processes = self.processes.len() as u64;
        let plans: [(u64, MishapTo); 9] = [
            (luck.crashes, |process, _| Mishap::Crash(process)),
            (luck.pauses, |process, suspend| Mishap::Stop { process, suspend }),
            (luck.partitions, |process, _| Mishap::CutOff(process)),
            (luck.outages, |_, _| Mishap::ServerDown),
            (luck.failovers, |_, _| Mishap::FailOver),
            (luck.stale_servers, |process, _| Mishap::Stale(process)),
            (luck.reconnects, |process, _| Mishap::Reattach(process)),
            (luck.clock_changes, |process, _| Mishap::Clock(process)),
            (luck.foreigners, |_, _| Mishap::Foreign),
        ];
        for (times, make) in plans {
            for _ in 0..times {
                let at = self.rng.below(self.scenario.chaos);
                let process = self.rng.below(processes) as usize;
                let suspend = self.chance(500);
                self.after(at, Happening::Mishap(make(process, suspend)));
            }
        }
        if self.scenario.kind == Kind::Chaos {
            for _ in 0..self.dice.below(3) {
                let at = self.dice.below(self.scenario.chaos);
                self.after(at, Happening::Mishap(Mishap::ServerFull));
            }
        }
    }

    /// The next death comes when the last one is behind us.
    fn plan_death(&mut self) {
        let certain = self.chance(500);
        self.after(2 * self.scenario.longest_ttl(), Happening::Mishap(Mishap::Death { certain }));
    }

    pub(crate) fn on_mishap(&mut self, mishap: Mishap) {
        trace!(self, "world", "{mishap:?}");
        if !self.stormy && mishap.is_of_the_storm() {
            return;
        }
        let ttl = self.scenario.ttl();
        match mishap {
            Mishap::Crash(process) => {
                self.crash(process);
                self.later(ttl * 3, Mishap::Restart(process));
            }
            Mishap::Stop { process, suspend } => {
                self.stop(process, suspend);
                self.later(ttl * 5 / 2, Mishap::GoOn(process));
            }
            Mishap::CutOff(process) => {
                self.cut_off.insert(process);
                self.lose_watches(Some(process));
                self.later(ttl * 5 / 2, Mishap::Reconnect(process));
            }
            Mishap::ServerDown => {
                self.server_down = true;
                self.lose_watches(None);
                self.later(ttl * 3 / 2, Mishap::ServerUp);
            }
            Mishap::Stale(process) => {
                self.on_stale_server.insert(process);
                self.lose_watches(Some(process));
                self.later(ttl * 5 / 2, Mishap::NotStale(process));
            }
            Mishap::Foreign => self.foreign_candidate(),
            Mishap::FailOver => {
                let by = Duration::from_nanos(self.rng.below(ttl));
                self.server.fail_over(self.now, by);
                self.after_step();
            }
            Mishap::Reattach(process) => self.reattach(process),
            Mishap::Clock(process) => self.change_clock(process),
            Mishap::Restart(process) => self.restart(process),
            Mishap::GoOn(process) => self.resume(process),
            Mishap::Reconnect(process) => {
                self.cut_off.remove(&process);
            }
            Mishap::ServerUp => self.server_down = false,
            Mishap::Outage => {
                self.server_down = true;
                self.lose_watches(None);
                self.after(3 * self.scenario.longest_ttl(), Happening::Mishap(Mishap::ServerUp));
            }
            Mishap::ServerFull => {
                self.server_full = true;
                let delay = self.dice.below(ttl * 5 / 2);
                self.after(delay, Happening::Mishap(Mishap::ServerRoomy));
            }
            Mishap::ServerRoomy => self.server_full = false,
            Mishap::NotStale(process) => {
                self.on_stale_server.remove(&process);
            }
            Mishap::ForeignGone(election, entry) => {
                self.server.table.evict(at(self.now), &self.names[election].clone(), &entry);
                self.after_step();
            }
            Mishap::Death { certain } => self.leaders_die(certain),
        }
    }

    /// Within `longest` from now.
    fn later(&mut self, longest: u64, mishap: Mishap) {
        let delay = self.rng.below(longest);
        self.after(delay, Happening::Mishap(mishap));
    }

    fn crash(&mut self, process: usize) {
        if self.processes[process].suspended {
            self.processes[process].suspended = false;
            self.processes[process].clock.thaw(self.now);
        }
        self.processes[process].crash();
        self.checker.died(process);
        self.server.drop_watches(Some(process));
    }

    /// Another has stopped this process.
    pub(crate) fn shot_down(&mut self, process: usize) {
        trace!(self, "world", "p{process} is shot");
        self.crash(process);
        let delay = self.dice.below(self.scenario.ttl());
        self.after(delay, Happening::Mishap(Mishap::Restart(process)));
    }

    fn restart(&mut self, process: usize) {
        if self.processes[process].machine.is_none() {
            self.boot(process);
        }
    }

    fn stop(&mut self, process: usize, suspend: bool) {
        let state = &mut self.processes[process];
        if state.machine.is_none() || state.paused {
            return;
        }
        state.paused = true;
        if suspend && self.variant.has(AroundFlaw::ClockStopsInSuspend) {
            state.suspended = true;
            state.clock.freeze(self.now);
        }
        // Its alarm is set again when it goes on.
        state.next_tick = None;
        state.tick_serial += 1;
    }

    /// The connection is lost, and made again. A process that stands still does neither.
    fn reattach(&mut self, process: usize) {
        let state = &self.processes[process];
        let session = state.session().filter(|_| state.machine.is_some() && !state.paused);
        let Some(session) = session.filter(|_| self.scenario.shape.forgotten_by == ForgottenBy::Store) else { return };
        if !self.variant.has(AroundFlaw::ReconnectUnnoticed) {
            self.command(process, Input::Shortened(Epoch(state.epoch), Duration::ZERO));
        }
        self.server.reattach(self.now, session);
        self.after_step();
    }

    /// Some who watched are told that their watch is lost; the others wait in vain.
    fn lose_watches(&mut self, of: Option<usize>) {
        for ((process, boot, candidacy), watch) in self.server.drop_watches(of) {
            if self.chance(600) {
                let delay = self.rng.below(self.scenario.ttl() / 10);
                let wake = Box::new(super::process::Message::Input(Input::Wake(candidacy, watch, Hint::Lost)));
                self.after(delay, Happening::Deliver { process, boot, message: wake });
            }
        }
    }

    fn foreign_candidate(&mut self) {
        let election = self.rng.below(self.names.len() as u64) as usize;
        let name = self.names[election].clone();
        let single = self.scenario.shape.line == LineKind::Single;
        if single && self.server.head(self.now, &name).is_some() {
            return;
        }
        let entry = self.server.table.enlist_foreign(&name, Bytes::from_static(b"foreign"));
        self.checker.in_line(self.now, election, entry.token, None, None);
        self.after_step();
        self.later(self.scenario.ttl() * 4, Mishap::ForeignGone(election, Box::new(entry)));
    }

    fn change_clock(&mut self, process: usize) {
        if self.scenario.shape.one_clock {
            return;
        }
        let drift =
            self.scenario.settings.drift_ppm.max(if self.scenario.settings.margin.is_zero() { 50_000 } else { 0 });
        let ppm = self.rng.below(2 * u64::from(drift) + 1) as i64 - i64::from(drift);
        let back = -(self.rng.below(self.scenario.ttl()) as i64);
        let clock = &mut self.processes[process].clock;
        clock.set_rate(self.now, ppm);
        if self.variant.has(AroundFlaw::ClockSetBack) {
            clock.step(self.now, back);
        }
        if !self.processes[process].paused {
            self.set_alarm(process);
        }
    }

    /// Kills the leader of the first election that has one, and with it every leadership of that
    /// process.
    fn leaders_die(&mut self, certain: bool) {
        let Some(process) = self.checker.beliefs().first().map(|belief| belief.process) else {
            return self.fail("L1", "nobody leads before anything has gone wrong".into());
        };
        let stopped = self.stop_some_behind(process);
        let led = self.checker.beliefs().iter();
        let led = led.filter(|belief| belief.process == process || stopped.contains(&belief.process));
        let elections = led.fold(0, |set, belief| set | 1 << belief.election);
        let session = self.processes[process].session();
        trace!(self, "world", "p{process} dies, {stopped:?} are stopped");
        self.crash(process);
        if let Some(session) = session.filter(|_| certain) {
            self.server.table.close_session(session);
            self.after_step();
        }
        let silent = self.entries_of_the_silent();
        let by = self.replaced_within(silent + u64::from(!certain && silent == 0));
        self.after(by, Happening::Phase(Phase::Replaced(elections)));
        self.after(by + 1, Happening::Mishap(Mishap::Restart(process)));
        stopped.into_iter().for_each(|process| self.after(by + 1, Happening::Mishap(Mishap::GoOn(process))));
    }

    /// Where rivals forget the silent, half the time some of those who wait are stopped when a
    /// leader dies: all but one at most.
    fn stop_some_behind(&mut self, leader: usize) -> Vec<usize> {
        if self.scenario.shape.forgotten_by == ForgottenBy::Store || self.chance(500) {
            return Vec::new();
        }
        let mut behind: Vec<usize> = (0..self.processes.len()).filter(|process| *process != leader).collect();
        behind.remove(self.rng.below(behind.len() as u64) as usize);
        behind.iter().for_each(|process| self.stop(*process, false));
        behind
    }

    /// How long the office may stay empty in a run where nothing else goes wrong.
    fn replaced_within(&self, silent: u64) -> u64 {
        let granted = self.scenario.granted.as_nanos() as u64;
        let drift = u64::from(self.scenario.settings.drift_ppm);
        // A hint, a look, the fences: each there and back; an eviction and a look for each that is
        // silent.
        // Where terms are on record, two more: a look at the last one, and the opening.
        let opening = if self.recorded.contains(&true) { 4 } else { 0 };
        let trips = (8 + opening + 4 * silent) * self.weather.delay.1;
        let silence = match self.scenario.shape.forgotten_by {
            ForgottenBy::Store => granted * silent.min(1),
            // Their last signs of life were before the death, and everyone can read how long
            // before.
            ForgottenBy::Rivals if self.scenario.shape.one_clock => {
                silent.min(1) * (granted + granted * drift / 1_000_000)
            }
            // The last sign of life that was seen may be as old as the TTL when the leader dies,
            // and of several that are silent, each is seen only once the one behind it is gone.
            ForgottenBy::Rivals => silent * 2 * (granted + granted * 3 * drift / 1_000_000),
        };
        let polls = if self.scenario.shape.watches { 0 } else { granted / 10 + granted / 10 * drift / 1_000_000 * 2 };
        silence + polls + trips
    }

    pub(crate) fn on_phase(&mut self, phase: Phase) {
        trace!(self, "world", "{phase:?}");
        match phase {
            Phase::Heal => self.heal(),
            Phase::Settled => self.settled(),
            Phase::Stable => self.stable(),
            Phase::Over => self.all_gone(),
            Phase::Order => self.give_order(),
            Phase::Obeyed { election, operator, led_before } => self.obeyed(election, operator, led_before),
            Phase::Replaced(elections) => {
                if self.now + self.scenario.longest_ttl() * 12 < self.scenario.chaos {
                    self.plan_death();
                }
                // Where many were silent one after the other, the run may be over before their time
                // is.
                let elections = if self.closing { 0 } else { elections };
                for election in (0..self.names.len()).filter(|election| elections & 1 << election != 0) {
                    if self.believed_leader(election).is_none() {
                        self.fail("L1", format!("nobody leads e{election} in time after a death"));
                    }
                }
            }
        }
    }

    fn heal(&mut self) {
        self.stormy = false;
        self.under_operation = false;
        self.weather = Weather::calm();
        self.cut_off.clear();
        self.on_stale_server.clear();
        self.server_down = false;
        self.server_full = false;
        self.causes_end();
        let dead = self.entries_of_the_silent();
        for process in 0..self.processes.len() {
            self.resume(process);
            self.restart(process);
            let users: Vec<CandidacyId> = self.processes[process].users.keys().copied().collect();
            for candidacy in users {
                self.set_healthy(process, candidacy, true);
                // Where nobody is told of anything, or the dead stand between, a handover may take
                // longer than the calm.
                let is_calm = self.scenario.kind == Kind::Chaos && self.scenario.shape.watches && dead == 0;
                let unwell = is_calm && self.dice.below(3) == 0;
                self.set_unwell(process, candidacy, unwell);
            }
        }
        for election in 0..self.names.len() {
            self.tidy_office(election);
            // Those that do not stand may do so now; at least one does.
            let process = self.rng.below(self.processes.len() as u64) as usize;
            let boot = self.processes[process].boot;
            for wait in 1..4 {
                let delay = self.scenario.ttl() * wait;
                self.after(delay, Happening::Deed(Deed::Stand { process, boot, election }));
            }
        }
        let longest = self.scenario.longest_ttl();
        self.after(longest * (10 + 3 * dead), Happening::Phase(Phase::Settled));
    }

    fn entries_of_the_silent(&mut self) -> u64 {
        let mut silent = 0;
        for election in 0..self.names.len() {
            for entry in self.server.line(self.now, &self.names[election].clone()) {
                let maker = self.checker.maker(election, entry.token);
                let lives = |(process, boot, ..): super::checker::Maker| {
                    let process = &self.processes[process];
                    process.boot == boot && process.machine.is_some() && !process.paused
                };
                silent += u64::from(!maker.is_some_and(lives));
            }
        }
        if self.scenario.shape.forgotten_by == ForgottenBy::Rivals { silent } else { 0 }
    }

    /// Takes back most pauses and sends most foreign candidates home.
    fn tidy_office(&mut self, election: usize) {
        let name = self.names[election].clone();
        let office = self.server.office(self.now, &name);
        let to = self.with_one_benched(office.clone());
        let to = if self.chance(800) { to.with_paused(None) } else { to };
        if to != office {
            self.server.table.set_office(at(self.now), &name, office.version, &to);
        }
        if self.chance(800) {
            for entry in self.server.line(self.now, &name).into_iter().filter(Entry::is_foreign) {
                self.server.table.evict(at(self.now), &name, &entry);
            }
        }
        self.after_step();
    }

    /// Takes back what was ordered to the bench, and now and then benches one anew.
    fn with_one_benched(&mut self, office: Office) -> Office {
        let (nonce, process) = (self.dice.nonce(), self.dice.below(self.processes.len() as u64) as usize);
        let lasts = (self.dice.below(3) == 0).then_some(self.scenario.settings.ttl);
        let order = BenchOrder::new(name_of(process), nonce, lasts, "new disk").vacating(self.dice.below(2) == 0);
        // The others have time to hear of it, and to hand over.
        let is_calm = self.scenario.kind == Kind::Chaos && self.scenario.shape.watches;
        let benches = is_calm && self.scenario.shape.line == LineKind::Fair && self.dice.below(3) == 0;
        let benched = if benches { Benched::default().with(order) } else { Benched::default() };
        office.with_benched(benched)
    }

    pub(crate) fn believed_leader(&self, election: usize) -> Option<incumbent_core::Token> {
        let in_office = |belief: &&Belief| {
            belief.election == election && self.processes[belief.process].clock.read(self.now) < belief.deadline
        };
        self.checker.beliefs().iter().find(in_office).map(|belief| belief.token)
    }

    /// The store is reachable and nothing goes wrong: L1 and L4, and nobody blocks the line.
    fn settled(&mut self) {
        for election in 0..self.names.len() {
            self.settled_election(election);
        }
        self.changes_when_settled = (0..self.names.len()).map(|election| self.checker.changes(election)).collect();
        self.after(self.scenario.longest_ttl() * 5 / 2, Happening::Phase(Phase::Stable));
    }

    /// Every entry says how its candidate is, and one that is unwell leads only for want of a
    /// better one.
    fn check_fitness(&mut self, election: usize, line: &[Entry], office: &Office) {
        let is_unwell = |entry: &Entry| {
            let (process, boot, candidacy, _) = self.checker.maker(election, entry.token)?;
            let process = Some(&self.processes[process]).filter(|process| process.boot == boot)?;
            process.users.get(&candidacy).map(|user| user.unwell)
        };
        let wrong = line.iter().find(|entry| is_unwell(entry).is_some_and(|unwell| unwell != entry.merit.unwell));
        if let Some(token) = wrong.map(|entry| entry.token) {
            return self.checker.fitness(self.now, election, format!("{token:?} is not as its entry says"));
        }
        let Some((leader, behind)) = line.split_first() else { return };
        let ours = behind.iter().take_while(|entry| !entry.is_foreign());
        let mut fit = ours.filter(|entry| !entry.merit.unwell && self.owner_lives(election, entry));
        let held = office.frozen.is_some() || office.held_back.is_some();
        if leader.merit.unwell && !held && fit.next().is_some() {
            let text = format!("{:?} leads and is unwell, and others are fit", leader.token);
            self.checker.fitness(self.now, election, text);
        }
    }

    fn settled_election(&mut self, election: usize) {
        let name = self.names[election].clone();
        let line = self.server.line(self.now, &name);
        let office = self.server.office(self.now, &name);
        let leaders: Vec<_> =
            self.checker.beliefs().iter().filter(|belief| belief.election == election).cloned().collect();
        let first = office.paused.as_ref().and_then(|paused| paused.first.as_deref());
        // One that was benched since stays out, and so do the others.
        let first = first.filter(|first| office.benched.get(first).is_none());
        let first = (0..self.processes.len()).find(|process| first == Some(name_of(*process).as_str()));
        let may_lead = first.is_some_and(|first| self.processes[first].candidacy_in(election).is_some());
        if may_lead && !line.first().is_some_and(Entry::is_foreign) {
            let text =
                format!("e{election} waits for {first:?}, which stands, and the others are out; {leaders:?} lead");
            self.fail("PAUSE", text);
        }
        if office.paused.is_some() {
            if let Some(leader) = leaders.first() {
                self.fail("PAUSE", format!("p{} leads e{election}, which is paused", leader.process));
            }
            if let Some(entry) = line.iter().find(|entry| !entry.is_foreign() && self.owner_lives(election, entry)) {
                self.fail("PAUSE", format!("{:?} stands in e{election}, which is paused", entry.token));
            }
            return;
        }
        let head = line.first();
        if head.is_some_and(Entry::is_foreign) {
            return;
        }
        self.check_fitness(election, &line, &office);
        let stands = |process: &usize| self.processes[*process].candidacy_in(election).is_some();
        let is_free = |process: &usize| office.benched.get(&name_of(*process)).is_none();
        let standing = (0..self.processes.len()).filter(stands).filter(is_free).count();
        self.check_bench(election, &line, &office, leaders.first());
        if standing == 0 && leaders.is_empty() {
            return;
        }
        let [leader] = &leaders[..] else {
            let text =
                format!("e{election} has {} leaders and {standing} candidates; the line is {line:?}", leaders.len());
            return self.fail("L1", text);
        };
        if head.map(|head| head.token) != Some(leader.token) {
            let text = format!("p{} leads e{election} with {:?}, but first is {head:?}", leader.process, leader.token);
            return self.fail("L1", text);
        }
        if self.scenario.shape.line == LineKind::Fair {
            self.check_line(election, &line, &office);
        }
    }

    /// Who is benched for good is out of the line, or leads for want of one that could follow. What
    /// was for a while is over.
    fn check_bench(&mut self, election: usize, line: &[Entry], office: &Office, leader: Option<&Belief>) {
        let is_over = |order: &&BenchOrder| order.lasts.is_some() && leader.is_some();
        if let Some(over) = office.benched.iter().find(is_over) {
            let text = format!("{} is still benched in e{election}, longer than it was to be", over.name);
            return self.fail("BENCH", text);
        }
        let token = leader.map(|leader| leader.token);
        let benched = |entry: &Entry| entry.name.as_deref().and_then(|name| office.benched.get(name));
        let waits = |entry: &&Entry| benched(entry).is_some() && Some(entry.token) != token;
        if let Some(entry) = line.iter().find(|entry| waits(entry) && self.owner_lives(election, entry)) {
            return self.fail("BENCH", format!("{:?} is benched, and in the line of e{election}", entry.token));
        }
        let Some((head, behind)) = line.split_first().filter(|(head, _)| Some(head.token) == token) else { return };
        let is_fit = |entry: &&Entry| !entry.merit.unwell && self.owner_lives(election, entry);
        let mut ours = behind.iter().take_while(|entry| !entry.is_foreign());
        let stays = benched(head).filter(|order| order.vacates || ours.any(|entry| is_fit(&entry)));
        if stays.is_some() && office.frozen.is_none() {
            let text = format!("{:?} leads e{election}, and is benched, and could leave: {line:?}", head.token);
            self.fail("BENCH", text);
        }
    }

    fn owner_lives(&self, election: usize, entry: &Entry) -> bool {
        self.checker.maker(election, entry.token).is_some_and(|(process, boot, candidacy, _)| {
            self.processes[process].boot == boot && self.processes[process].users.contains_key(&candidacy)
        })
    }

    /// Everyone who stands and is not benched is in line, and nobody else is.
    fn check_line(&mut self, election: usize, line: &[Entry], office: &Office) {
        let owner = |entry: &Entry| self.checker.maker(election, entry.token);
        let mut missing = None;
        for (number, process) in self.processes.iter().enumerate() {
            // One that let its candidacy go while it led leads on, and the next one waits for that.
            let waits = process.users.values().any(|user| user.election == election && user.leaving);
            let benched = office.benched.get(&name_of(number)).is_some();
            if let Some(candidacy) = process.candidacy_in(election).filter(|_| !waits && !benched) {
                let ours = |entry: &&Entry| {
                    owner(entry).is_some_and(|(p, boot, s, _)| (p, boot, s) == (number, process.boot, candidacy))
                };
                if line.iter().filter(ours).count() != 1 {
                    missing = Some(format!(
                        "p{number} {candidacy:?} stands in e{election}, and is not in line once: {line:?}"
                    ));
                }
            }
        }
        if let Some(text) = missing {
            return self.fail("L4", text);
        }
        let store_forgets = self.scenario.shape.forgotten_by == ForgottenBy::Store;
        let stray =
            line.iter().find(|entry| store_forgets && !entry.is_foreign() && !self.owner_lives(election, entry));
        if let Some(stray) = stray {
            let text = format!("{:?} is in the line of e{election}, and nobody holds it", stray.token);
            self.fail("L1", text);
        }
    }

    /// Nothing went wrong for a while: nobody came into office or left it (L3). Then everyone
    /// leaves.
    fn stable(&mut self) {
        for election in 0..self.names.len() {
            let changes = self.checker.changes(election);
            if changes != self.changes_when_settled[election] {
                self.fail("L3", format!("leadership of e{election} changed although nothing happened"));
            }
            if self.scenario.kind == Kind::Quiet && changes != 1 {
                self.fail("L3", format!("e{election} had {changes} leaders in a run without faults"));
            }
        }
        self.closing = true;
        for process in 0..self.processes.len() {
            self.command(process, Input::Close);
        }
        self.after(self.scenario.longest_ttl() * 4, Happening::Phase(Phase::Over));
    }

    /// Everyone has left, and nothing is left of them.
    fn all_gone(&mut self) {
        if let Some(process) = self.processes.iter().position(|process| !process.closed) {
            self.fail("CLOSE", format!("p{process} did not close"));
        }
        for election in 0..self.names.len() {
            let name = self.names[election].clone();
            let line = self.server.line(self.now, &name);
            for entry in line {
                if entry.is_foreign() {
                    self.server.table.evict(at(self.now), &name, &entry);
                } else if self.scenario.shape.forgotten_by == ForgottenBy::Store || self.owner_lives(election, &entry) {
                    self.fail("CLOSE", format!("everyone has left e{election}, but {:?} is in line", entry.token));
                }
            }
            let office = self.server.office(self.now, &name);
            let is_open = |term: &&TermRecord| term.end == TermEnd::Open;
            let is_known = |term: &&TermRecord| self.left_open.contains(&(election, term.token));
            let forgotten: Vec<&TermRecord> =
                office.terms.iter().filter(is_open).filter(|term| !is_known(term)).collect();
            for term in forgotten {
                let maker = self.checker.maker(election, term.token);
                if maker.is_some_and(|(process, boot, ..)| self.processes[process].boot == boot) {
                    self.fail("TERMS", format!("everyone has left e{election}, and {:?} is open", term.token));
                }
            }
            let version = office.version;
            self.server.table.set_office(at(self.now), &name, version, &Office::default());
        }
        self.server.table.expire(at(self.now));
        if self.scenario.shape.forgotten_by == ForgottenBy::Store && !self.server.table.is_empty() {
            self.fail("CLOSE", "everyone has left, and the store is not empty".into());
        }
        self.end();
    }
}
