//! Random worlds: five servers that are stopped, emptied and stepped, three candidates that are
//! paused, cut off and killed, and messages that are lost, late and doubled. The candidates are the
//! real client. With every rule nothing may go wrong; without one, something must.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use incumbent_store::{
    Clock, ElectionName, Held, Incarnation, NewEntry, Place, Session, Store, StoreError, Timestamp, Token,
};
use incumbent_testkit::fuzz::Rng;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::model::{Drifting, Group, Network, ServerRule, Shared, lock};
use crate::redlock::RedlockStore;
use crate::redlock::rules::{Rule, Rules};

const SERVERS: usize = 5;
const CANDIDATES: usize = 3;
const TTL: Duration = Duration::from_secs(1);
/// How long a world lasts.
const STORM: Duration = Duration::from_secs(40);
/// How often somebody leads in all worlds together.
const ACQUISITIONS: u64 = if cfg!(feature = "faults") { 10_000 } else { 1_000 };

/// What a world leaves out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flaw {
    None,
    Client(Rule),
    Server(ServerRule),
}

/// What candidates have believed.
#[derive(Debug, Default)]
struct Ledger {
    claims: u64,
    tokens: BTreeSet<Token>,
    /// Until when each term may be believed in.
    terms: Vec<Instant>,
    violation: Option<String>,
    /// Clocks are stepped: then only that no token comes twice is asked for.
    only_tokens: bool,
}

impl Ledger {
    fn violated(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// A term begins; its number.
    fn claim(&mut self, token: Token, until: Instant) -> usize {
        self.claims += 1;
        let highest = self.tokens.last().copied();
        if !self.tokens.insert(token) {
            self.violated(format!("{token} was given twice"));
        }
        if !self.only_tokens && highest.is_some_and(|highest| highest > token) {
            self.violated(format!("{token} came after {highest:?}"));
        }
        self.terms.push(Instant::now());
        self.believe(self.terms.len() - 1, until);
        self.terms.len() - 1
    }

    fn believe(&mut self, term: usize, until: Instant) {
        let now = Instant::now();
        let others = self.terms.iter().enumerate().filter(|(number, until)| *number != term && **until > now);
        if until > now && others.count() > 0 && !self.only_tokens {
            self.violated(format!("two lead at once, {:?} after the beginning", self.claims));
        }
        self.terms[term] = until;
    }

    fn end(&mut self, term: usize) {
        self.terms[term] = Instant::now();
    }
}

/// What the tasks of one world share.
#[derive(Clone)]
struct World {
    group: Group,
    ledger: Shared<Ledger>,
    /// Until when each candidate does nothing.
    paused: Shared<[Option<Instant>; CANDIDATES]>,
    election: ElectionName,
    rules: Rules,
}

impl World {
    fn dice(&self, sides: u64) -> u64 {
        lock(&self.group.network).rng.below(sides)
    }

    fn incarnation(&self) -> Incarnation {
        let (high, low) = (self.dice(u64::MAX), self.dice(u64::MAX));
        Incarnation::from_bits(u128::from(high) << 64 | u128::from(low))
    }

    fn random_millis(&self, most: u64) -> Duration {
        Duration::from_millis(self.dice(most))
    }

    fn store(&self, client: usize, clock: Arc<Drifting>) -> RedlockStore {
        RedlockStore::with_servers(self.group.links(client), clock, None, self.rules)
    }
}

/// Stands, leads, renews, leaves or dies, again and again.
async fn candidate(world: World, number: usize, clock: Arc<Drifting>) {
    loop {
        let store = world.store(number, clock.clone());
        let Ok(session) = store.open_session(TTL).await else {
            sleep(world.random_millis(300)).await;
            continue;
        };
        let mut incarnation = world.incarnation();
        while world.dice(20) > 0 {
            let sent = clock.now();
            let entry = NewEntry::new(incarnation, "a", "");
            match session.enlist(&world.election, &entry).await.map(|standing| standing.place) {
                Ok(Place::Leading(held)) => {
                    if !serve(&world, &*session, &clock, sent, held).await {
                        break;
                    }
                    incarnation = world.incarnation();
                }
                Err(StoreError::SessionGone) => break,
                // As the library does: the same stay again.
                Ok(_) | Err(_) => sleep(world.random_millis(300)).await,
            }
            let held: Vec<Held> = Vec::new();
            _ = session.renew(&held).await;
        }
    }
}

/// One term. `false`: the process has died, with its session and its lock.
async fn serve(world: &World, session: &dyn Session, clock: &Drifting, sent: Timestamp, held: Held) -> bool {
    let deadline_from = |sent: Timestamp| sent + TTL - session.liveness().margin;
    let truly = |deadline: Timestamp| {
        let left = deadline.since(clock.now());
        Instant::now() + left.mul_f64(1_000_000.0 / clock.rate as f64)
    };
    let mut deadline = deadline_from(sent);
    let term = lock(&world.ledger).claim(held.token, truly(deadline));
    // Most are short, so that there are many.
    let renewals = if world.dice(4) == 0 { world.dice(6) } else { 0 };
    for _ in 0..renewals {
        sleep(world.random_millis(TTL.as_millis() as u64 / 2)).await;
        let sent = clock.now();
        let renewal = session.renew(std::slice::from_ref(&held)).await;
        if clock.now() >= deadline {
            break;
        }
        match renewal {
            Ok(renewal) if !renewal.gone.is_empty() => break,
            Ok(renewal) if renewal.unproven.is_empty() => {
                deadline = deadline_from(sent);
                lock(&world.ledger).believe(term, truly(deadline));
            }
            Ok(_) | Err(_) => {}
        }
    }
    if world.dice(10) == 0 {
        return false;
    }
    lock(&world.ledger).end(term);
    while world.dice(10) > 0 && session.withdraw(&held, None).await.is_err() {}
    true
}

/// Does not go on while its candidate is paused.
async fn pausable(world: World, number: usize, task: impl Future<Output = ()>) {
    let mut task = pin!(task);
    let mut rest = pin!(sleep(Duration::ZERO));
    poll_fn(|cx| {
        let until = lock(&world.paused)[number].filter(|until| *until > Instant::now());
        match until {
            None => task.as_mut().poll(cx),
            Some(until) => {
                rest.as_mut().reset(until);
                match rest.as_mut().poll(cx) {
                    Poll::Ready(()) => task.as_mut().poll(cx),
                    Poll::Pending => Poll::Pending,
                }
            }
        }
    })
    .await;
}

/// Mistreats servers, links and candidates.
async fn faults(world: World, steps: bool) {
    let mut later = JoinSet::new();
    loop {
        sleep(world.random_millis(250)).await;
        let server = world.dice(SERVERS as u64) as usize;
        let counting = world.group.servers.iter().filter(|server| lock(server).counts(TTL)).count();
        // Half of them are steps then: few would meet the moment between two rounds.
        match world.dice(if steps { 12 } else { 6 }) {
            // What a majority has lost nobody can mend.
            0 if counting == SERVERS
                || (counting == SERVERS - 1 && !lock(&world.group.servers[server]).counts(TTL)) =>
            {
                lock(&world.group.servers[server]).lose()
            }
            1 => {
                lock(&world.group.servers[server]).down = true;
                let (server, until) = (world.group.servers[server].clone(), world.random_millis(1_500));
                later.spawn(async move {
                    sleep(until).await;
                    lock(&server).down = false;
                });
            }
            2 => {
                let client = world.dice(CANDIDATES as u64) as usize;
                let cut: Vec<_> = (0..SERVERS).filter(|_| world.dice(2) == 0).map(|server| (client, server)).collect();
                lock(&world.group.network).cut.extend(cut.iter().copied());
                let (network, until) = (world.group.network.clone(), world.random_millis(2_000));
                later.spawn(async move {
                    sleep(until).await;
                    lock(&network).cut.retain(|link| !cut.contains(link));
                });
            }
            3 => {
                let until = Instant::now() + world.random_millis(2_500);
                let candidate = world.dice(CANDIDATES as u64) as usize;
                lock(&world.paused)[candidate] = Some(until);
            }
            4 => lock(&world.group.servers[server]).sync(),
            6.. => lock(&world.group.servers[server]).stepped += world.dice(4_000) as i64 - 2_000,
            _ => {}
        }
    }
}

/// Plays one world: how often somebody led, and what went wrong.
fn play(seed: u64, flaw: Flaw, steps: bool) -> (u64, Option<String>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(async {
        let mut rng = Rng::from_number(seed);
        let (rules, mut left_out) = match flaw {
            Flaw::None => (Rules::default(), Vec::new()),
            Flaw::Client(rule) => (Rules::without(rule), Vec::new()),
            Flaw::Server(rule) => (Rules::default(), vec![rule]),
        };
        if steps {
            // Otherwise steps would hardly end a lock too early.
            left_out.push(ServerRule::BoundedSteps);
        }
        let group = Group::new(SERVERS, &left_out, Network::new(seed, true));
        group.servers.iter().for_each(|server| lock(server).rate = 996_000 + rng.below(8_000) as i64);
        let ledger = Arc::new(Mutex::new(Ledger { only_tokens: steps, ..Ledger::default() }));
        let election = ElectionName::new("jobs").unwrap();
        let world = World { group, ledger, paused: Arc::default(), election, rules };
        let mut tasks = JoinSet::new();
        for number in 0..CANDIDATES {
            let clock = Drifting { began: Instant::now(), rate: 996_000 + rng.below(8_000) };
            tasks.spawn(pausable(world.clone(), number, candidate(world.clone(), number, Arc::new(clock))));
        }
        tasks.spawn(faults(world.clone(), steps));
        sleep_until(Instant::now() + STORM).await;
        tasks.shutdown().await;
        let ledger = lock(&world.ledger);
        (ledger.claims, ledger.violation.clone())
    })
}

#[test]
fn tokens_grow_and_no_two_lead_over_thousands_of_acquisitions_with_random_restarts() {
    let mut acquisitions = 0;
    let mut seed = 0;
    while acquisitions < ACQUISITIONS {
        let (claims, violation) = play(seed, Flaw::None, false);
        assert_eq!(violation, None, "seed {seed}");
        acquisitions += claims;
        seed += 1;
        assert!(seed < 2_000, "hardly anybody leads: {acquisitions} times in {seed} worlds");
    }
}

#[test]
fn no_token_comes_twice_even_where_wall_clocks_jump() {
    for seed in 0..ACQUISITIONS / 20 {
        assert_eq!(play(seed, Flaw::None, true).1, None, "seed {seed}");
    }
}

#[test]
fn a_rule_that_is_left_out_is_caught() {
    for flaw in [
        Flaw::Client(Rule::Majority),
        Flaw::Client(Rule::ValidityAfterSecondRound),
        Flaw::Client(Rule::RenewalByMajority),
        Flaw::Client(Rule::CounterAfterLoss),
        Flaw::Server(ServerRule::RestartNoticed),
    ] {
        assert_caught(flaw, false);
    }
}

#[test]
fn a_guard_of_the_tokens_that_is_left_out_is_caught_where_wall_clocks_jump() {
    assert_caught(Flaw::Server(ServerRule::TokenGuarded), true);
}

fn assert_caught(flaw: Flaw, steps: bool) {
    let seed = (0..300).find(|seed| play(*seed, flaw, steps).1.is_some());
    println!("{flaw:?} is caught at seed {seed:?}");
    assert!(seed.is_some(), "{flaw:?} is not caught");
}
