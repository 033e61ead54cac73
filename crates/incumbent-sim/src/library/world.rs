//! One world: hosts, a store, what goes wrong, and the order of the day: a storm, then calm, then
//! everyone leaves.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use incumbent::{Client, DriverFlaw};
use incumbent_core::{ElectionName, Entry, ForgottenBy, Rng, Token};
use incumbent_store::{Awaited, Clock, LineKind, TokioClock, lock};
use tokio::time::{Instant, sleep, timeout};

use super::bystander::{Orders, observe};
use super::checker::Checker;
use super::clock::HostClock;
use super::faults::Faults;
use super::fence::Resource;
use super::gate::{DriverGate, Gate};
use super::host::Boot;
use super::link::{Link, LinkOf, Way};
use super::scenario::{Kind, Scenario, Weather};
use super::server::Server;
use super::user::User;
use crate::trace::Trace;
use crate::variant::Variant;

/// What everybody knows of the day.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Phase {
    Storm,
    Calm,
    Closing,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) scenario: Scenario,
    pub(crate) checker: Arc<Checker>,
    pub(crate) server: Arc<Server>,
    variant: Variant,
    resources: Vec<Arc<Resource>>,
    phase: Awaited<Phase>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    rng: Rng,
    clocks: Vec<Arc<HostClock>>,
    /// The present boot of each host; the last one has no candidates.
    boots: Vec<Arc<Boot>>,
    all_boots: Vec<Arc<Boot>>,
    names: BTreeMap<(usize, usize), String>,
    seen: BTreeMap<(usize, usize), Option<Token>>,
}

impl World {
    pub(crate) fn new(seed: u64, variant: Variant, tracing: bool) -> Arc<World> {
        let mut rng = Rng::from_number(seed);
        let scenario = Scenario::draw(&mut rng);
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
        // Where rivals share one clock with the store, that is it.
        let origin = clock.now().as_nanos();
        let server = Arc::new(Server::new(scenario.shape, clock));
        let names = (0..scenario.elections).map(|number| match ElectionName::new(&format!("e{number}")) {
            Ok(name) => name,
            Err(error) => unreachable!("{error}"),
        });
        let entry_goes_within = (scenario.kind == Kind::Edge).then_some(scenario.ttl / 10);
        let checker = Checker::new(server.clone(), names.collect(), entry_goes_within, Trace::new(tracing));
        checker.say("world", format_args!("{scenario:?}"));
        let start = Instant::now();
        let clocks = (0..=scenario.hosts).map(|_| {
            let most = u64::from(scenario.drift_ppm);
            let ppm = rng.below(2 * most + 1) as i64 - most as i64;
            let own = rng.below(1 << 40);
            let (origin, ppm) = if scenario.shape.one_clock { (origin, 0) } else { (origin + own, ppm) };
            Arc::new(HostClock::new(start, origin, ppm))
        });
        let clocks = clocks.collect();
        let luck = if scenario.kind == Kind::Storm { (scenario.ttl / 10, 50) } else { (Duration::from_millis(2), 0) };
        let resources = (0..scenario.elections).filter(|_| scenario.fenced);
        let resources = resources.map(|election| Resource::new(&checker, election, rng.fork(), luck)).collect();
        let state = State {
            rng,
            clocks,
            boots: Vec::new(),
            all_boots: Vec::new(),
            names: BTreeMap::new(),
            seen: BTreeMap::new(),
        };
        let (phase, state) = (Awaited::new(Phase::Storm), Mutex::new(state));
        Arc::new(World { scenario, checker, server, variant, resources, phase, state })
    }

    /// The whole day.
    pub(crate) async fn live(self: Arc<World>) {
        for host in 0..=self.scenario.hosts {
            self.boot(host).await;
        }
        let bystander = self.bystander();
        for election in 0..self.scenario.elections {
            let (world, rng) = (self.clone(), self.fork());
            bystander.gate.spawn_user(observe(world, bystander.clone(), election, rng));
        }
        let orders = Orders { world: self.clone(), boot: bystander.clone(), rng: self.fork() };
        bystander.gate.spawn_user(orders.give());
        drop(bystander);
        tokio::spawn(look_now_and_then(self.clone(), self.fork()));
        match self.scenario.kind {
            Kind::Quiet | Kind::Edge => sleep(self.scenario.storm).await,
            Kind::Deaths => self.deaths().await,
            Kind::Storm => {
                let faults = Faults { world: self.clone(), rng: self.fork() };
                faults.make().await;
            }
        }
        self.heal().await;
        // What was late may still arrive and prolong a session of the dead, which then has to
        // expire; a hint that was lost is made up for by a re-read, twice the TTL after the last.
        let ttl = self.scenario.longest_ttl();
        sleep(if self.scenario.kind == Kind::Storm { ttl * 6 } else { ttl * 3 / 2 }).await;
        let changes = self.check_settled();
        sleep(ttl * 5 / 2).await;
        self.check_stable(&changes);
        self.close().await;
    }

    /// Leaders die, and are replaced within the TTL and a moment.
    async fn deaths(self: &Arc<World>) {
        let ttl = self.scenario.ttl;
        for _ in 0..3 {
            sleep(ttl).await;
            let [((host, _), _)] = self.checker.leaders(0)[..] else {
                let text = format!("election 0 has {} leaders on a good day", self.checker.leaders(0).len());
                return self.checker.fail("L1", text);
            };
            self.checker.say("world", format_args!("host {host} dies"));
            self.current(host).kill();
            sleep(ttl * 11 / 10 + Duration::from_millis(50)).await;
            for election in 0..self.scenario.elections {
                let leaders = self.checker.leaders(election);
                if leaders.len() != 1 {
                    let text = format!("election {election} has {leaders:?} a TTL after its leader died");
                    return self.checker.fail("L1", text);
                }
            }
            self.boot(host).await;
        }
    }

    async fn heal(self: &Arc<World>) {
        self.checker.say("world", format_args!("everything is well again"));
        self.phase.set(Phase::Calm);
        self.resources.iter().for_each(|resource| resource.heal());
        for boot in self.all_boots() {
            boot.link.set_weather(Weather::calm());
            boot.link.set_way(Way::Open);
            boot.gate.delay((0, Duration::ZERO), (0, Duration::ZERO));
            boot.gate.resume();
        }
        // The orders under way are given up or carried out first.
        let bystander = self.bystander();
        let observers = self.scenario.elections;
        let obeyed = async {
            while bystander.gate.tasks() > observers + 1 {
                sleep(self.scenario.ttl / 4).await;
            }
        };
        if timeout(self.scenario.ttl * 4 + Duration::from_secs(20), obeyed).await.is_err() {
            return self.checker.fail("ERROR", "an order is neither carried out nor refused".to_owned());
        }
        self.restart_failed().await;
        // Somebody may hear only now that the store was replaced.
        if self.was_replaced() {
            sleep(self.scenario.ttl).await;
            self.restart_failed().await;
        }
    }

    async fn restart_failed(self: &Arc<World>) {
        for host in 0..self.scenario.hosts {
            let boot = self.current(host);
            let gone = boot.gate.is_dead() || boot.gate.driver_is_dead() || boot.client().is_none();
            if boot.has_failed() || gone {
                boot.kill();
                self.boot(host).await;
            }
        }
    }

    /// L1, L4: everybody who stands is in line once, nobody else is, and the first one leads.
    fn check_settled(&self) -> Vec<usize> {
        self.checker.look_at_all();
        for election in 0..self.scenario.elections {
            let line = self.line(election);
            let leaders = self.checker.leaders(election);
            let first = line.first().map(|head| (self.server.generation(), head.token));
            if leaders.len() != 1 || leaders.first().map(|(_, term_id)| *term_id) != first {
                let text = format!("election {election} is led by {leaders:?}, and the line is {}", shown(&line));
                return self.broken("L1", text);
            }
            let seen = self.state().seen.get(&(self.scenario.hosts, election)).copied().flatten();
            if seen != line.first().map(|head| head.token) {
                let text =
                    format!("an observer of election {election} sees {seen:?}, and the line is {}", shown(&line));
                return self.broken("S7", text);
            }
            let shape = self.server.shape();
            if shape.line == LineKind::Fair
                && let Some((rule, text)) = self.check_line(election, &line)
            {
                return self.broken(rule, text);
            }
        }
        (0..self.scenario.elections).map(|election| self.checker.changes(election)).collect()
    }

    fn check_line(&self, election: usize, line: &[Entry]) -> Option<(&'static str, String)> {
        let prefixes: Vec<_> = (0..self.scenario.hosts).map(|host| self.current(host).prefix()).collect();
        let of = |entry: &Entry, prefix: &str| entry.name.as_deref().is_some_and(|name| name.starts_with(prefix));
        for prefix in &prefixes {
            let entries = line.iter().filter(|entry| of(entry, prefix)).count();
            if entries != 1 {
                let text = format!("{prefix} is {entries} times in the line of {election}: {}", shown(line));
                return Some(("L4", text));
            }
        }
        let stray = line.iter().find(|entry| !prefixes.iter().any(|prefix| of(entry, prefix)))?;
        let store_forgets = self.server.shape().forgotten_by == ForgottenBy::Store;
        store_forgets.then(|| ("L1", format!("nobody holds {} of election {election}", stray.token)))
    }

    /// L3: nothing went wrong, so nothing has changed.
    fn check_stable(&self, changes: &[usize]) {
        for (election, before) in changes.iter().enumerate() {
            let after = self.checker.changes(election);
            if after != *before || (self.scenario.kind == Kind::Quiet && after != 1) {
                let text =
                    format!("leadership of {election} has changed {} times for no reason", after - before.min(&1));
                self.checker.fail("L3", text);
            }
        }
    }

    /// Everyone leaves, and nothing is left: no task, no call, no watch, no entry.
    async fn close(self: &Arc<World>) {
        let ttl = self.scenario.longest_ttl();
        self.checker.say("world", format_args!("everyone leaves"));
        self.phase.set(Phase::Closing);
        for host in 0..=self.scenario.hosts {
            let boot = self.current(host);
            let users_left = async {
                while boot.gate.tasks() > 1 {
                    sleep(ttl / 20).await;
                }
            };
            if timeout(ttl * 3, users_left).await.is_err() {
                let text = format!("{} tasks of {} wait in vain", boot.gate.tasks() - 1, boot.prefix());
                return self.checker.fail("TOLD", text);
            }
            let Some(client) = boot.take_client() else { continue };
            // The others are dropped: their driver cleans up, and goes.
            if self.fork().below(2) == 0 && client.close(ttl * 2).await.is_err() {
                return self.checker.fail("CLOSE", format!("{} cannot be closed on a good day", boot.prefix()));
            }
        }
        sleep(ttl * 4).await;
        self.check_nothing_left();
        for election in 0..self.scenario.elections {
            self.server.clear_office(self.checker.name(election));
        }
        // As long as the tombstone of an ended election stays.
        sleep((self.scenario.ttl * 2).max(Duration::from_secs(61))).await;
        let forgets = self.server.shape().forgotten_by == ForgottenBy::Store;
        if forgets && !self.server.store().is_empty() {
            self.checker.fail("CLOSE", "everyone has left, and the store is not empty".to_owned());
        }
    }

    fn check_nothing_left(&self) {
        for boot in self.all_boots() {
            let (under_way, on_the_way) = boot.link.left_over();
            let tasks = boot.gate.tasks();
            if tasks > 0 || under_way > 0 || on_the_way > 0 {
                let text =
                    format!("{} has left {tasks} tasks, {under_way} calls and {on_the_way} messages", boot.prefix());
                return self.checker.fail("LEFT", text);
            }
        }
        let watches = self.server.store().watches();
        if watches > 0 {
            return self.checker.fail("LEFT", format!("{watches} watches are armed, and nobody is there"));
        }
        let forgets = self.server.shape().forgotten_by == ForgottenBy::Store;
        for election in 0..self.scenario.elections {
            let line = self.line(election);
            let of_now = |entry: &&Entry| {
                let name = entry.name.as_deref().unwrap_or_default();
                forgets || (0..self.scenario.hosts).any(|host| name.starts_with(&self.current(host).prefix()))
            };
            if let Some(entry) = line.iter().find(of_now) {
                return self
                    .checker
                    .fail("CLOSE", format!("everyone has left {election}, and {} is in line", entry.token));
            }
        }
    }

    /// Starts a host, once more.
    pub(crate) async fn boot(self: &Arc<World>, host: usize) {
        let scenario = &self.scenario;
        let bystander = host == scenario.hosts;
        let lives = self.state().all_boots.iter().filter(|boot| boot.id.0 == host).count() as u32;
        let clock = self.state().clocks[host].clone();
        let stormy = self.phase() == Phase::Storm;
        let weather = if stormy { scenario.weather } else { Weather::calm() };
        let gate = Gate::new(self.fork(), clock.clone(), self.checker.clone());
        if stormy && !bystander {
            gate.delay(scenario.delayed, scenario.interrupted);
        }
        let who = format!("h{host}b{lives}");
        let (server, checker) = (self.server.clone(), self.checker.clone());
        let (ttl, granted, counted) = (scenario.ttl, scenario.granted, self.counts_calls());
        let unguarded = self.variant == Variant::Driver(DriverFlaw::PublicationUnguarded);
        let of = LinkOf { weather, ttl, granted, operator: bystander, counted, unguarded };
        let link = Link::new(who, server, checker, self.fork(), of);
        let mut builder = Client::builder().ttl(scenario.ttl).drift_ppm(scenario.drift_ppm).clock(clock.clone());
        let mut rng = self.fork();
        builder = builder.seed(std::array::from_fn(|_| rng.next_u64())).spawn_on(Arc::new(DriverGate(gate.clone())));
        if let Variant::Driver(flaw) = self.variant {
            builder = builder.flaw(flaw);
        }
        let client = match builder.with_store(link.clone()).await {
            Ok(client) => client,
            Err(error) => return self.checker.fail("ERROR", format!("no client can be made: {error}")),
        };
        let boot = Boot::new((host, lives), gate, link, clock, self.checker.clone(), client);
        let boot = Arc::new(boot);
        self.checker.say("world", format_args!("host {host} starts"));
        let mut state = self.state();
        state.all_boots.push(boot.clone());
        if host < state.boots.len() {
            state.boots[host] = boot.clone();
        } else {
            state.boots.push(boot.clone());
        }
        drop(state);
        for election in (0..scenario.elections).filter(|_| !bystander) {
            let user = User::new(self.clone(), boot.clone(), election, self.fork());
            boot.gate.spawn_user(user.live());
        }
    }

    /// What an adopted session does to users is to be seen, not that its opening was kept.
    fn counts_calls(&self) -> bool {
        !matches!(self.variant, Variant::Driver(DriverFlaw::LateOpeningAdopted | DriverFlaw::RenewalUnanswered))
    }

    pub(crate) fn current(&self, host: usize) -> Arc<Boot> {
        self.state().boots[host].clone()
    }

    pub(crate) fn all_boots(&self) -> Vec<Arc<Boot>> {
        self.state().all_boots.clone()
    }

    fn bystander(&self) -> Arc<Boot> {
        self.current(self.scenario.hosts)
    }

    pub(crate) fn line(&self, election: usize) -> Vec<Entry> {
        self.server.line(self.checker.name(election)).entries
    }

    pub(crate) fn resource(&self, election: usize) -> Option<Arc<Resource>> {
        self.resources.get(election).cloned()
    }

    pub(crate) fn resources(&self) -> &[Arc<Resource>] {
        &self.resources
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase.get()
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.phase() != Phase::Storm
    }

    pub(crate) async fn closing(&self) {
        self.phase.wait_for(|phase| phase == Phase::Closing).await;
    }

    pub(crate) async fn healed(&self) {
        self.phase.wait_for(|phase| phase != Phase::Storm).await;
    }

    pub(crate) fn was_replaced(&self) -> bool {
        self.server.generation() > 0
    }

    /// Whether a user of this boot may be told that its client is closed.
    pub(crate) fn may_be_closed(&self, boot: &Boot) -> bool {
        boot.client().is_none() || boot.gate.driver_is_dead()
    }

    pub(crate) fn note_name(&self, election: usize, name: &str) {
        let host = name[1..].split('b').next().and_then(|host| host.parse().ok()).unwrap_or(0);
        self.state().names.insert((election, host), name.to_owned());
    }

    pub(crate) fn any_name(&self, election: usize, rng: &mut Rng) -> Option<String> {
        let host = rng.below(self.scenario.hosts as u64) as usize;
        self.state().names.get(&(election, host)).cloned()
    }

    pub(crate) fn note_seen(&self, host: usize, election: usize, token: Option<Token>) {
        self.state().seen.insert((host, election), token);
    }

    pub(crate) fn fork(&self) -> Rng {
        self.state().rng.fork()
    }

    fn broken(&self, rule: &'static str, text: String) -> Vec<usize> {
        self.checker.fail(rule, text);
        Vec::new()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// Looks at random instants, whether or not anything has happened.
async fn look_now_and_then(world: Arc<World>, mut rng: Rng) {
    while world.phase() != Phase::Closing {
        let longest = (world.scenario.ttl / 10).as_nanos() as u64;
        sleep(Duration::from_nanos(rng.below(longest))).await;
        world.checker.look_at_all();
    }
}

fn shown(line: &[Entry]) -> String {
    let entries = line.iter().map(|entry| format!("{} {}", entry.token, entry.name.as_deref().unwrap_or("?")));
    format!("{:?}", entries.collect::<Vec<_>>())
}
