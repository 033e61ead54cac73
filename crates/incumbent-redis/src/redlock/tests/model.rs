//! A server of a Redlock as a plain value: what `scripts/redlock.lua` does, step by step; and a
//! network between it and clients. A test against a real server compares the two.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use incumbent_store::{Alarm, Clock, ElectionName, Fut, Incarnation, StoreError, Timestamp};
use incumbent_testkit::fuzz::Rng;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::keys;
use crate::redlock::server::{Answer, GivenUp, Lock, Reply, Request, Server, Stay, Verb};

/// What every wall clock says when a test begins, in milliseconds, unless it is stepped.
const BEGINNING: i64 = 1_700_000_000_000;

/// A rule of a server that a test leaves out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ServerRule {
    /// A token is taken only for a lock that is still its owner's.
    TokenForOwner,
    /// A token is taken only above the counter when the lock was taken.
    TokenAboveCounter,
    /// Both of these.
    TokenGuarded,
    /// What gives up an attempt does not reach what a later one has asked for.
    ReleaseByAttempt,
    /// A token is asked for by an attempt, too.
    TokenByAttempt,
    /// A renewal is for the owner of the lock.
    RenewalByOwner,
    /// A renewal makes no lock that is gone.
    RenewalMakesNothing,
    /// A restart is noticed.
    RestartNoticed,
    /// The time of a lock is counted in steps.
    BoundedSteps,
    /// A seed is for the emptiness that it names.
    SeedNamesLoss,
    /// After a founding nobody leads for the asker's TTL.
    HoldAfterFounding,
}

#[derive(Clone, Debug)]
struct Held {
    left: i64,
    wall: i64,
    ttl: i64,
    base: u64,
    attempt: u64,
    token: u64,
    version: u64,
    session: String,
    incarnation: Incarnation,
    said: Vec<u8>,
}

#[derive(Clone, Debug, Default)]
struct Hash {
    server: String,
    store: String,
    counter: u64,
    longest: i64,
    wait: i64,
    age: i64,
    aged: i64,
    asked: i64,
    locks: BTreeMap<ElectionName, Held>,
}

/// One server.
#[derive(Debug)]
pub(crate) struct Model {
    number: usize,
    left_out: Vec<ServerRule>,
    /// How fast its clock is, in millionths of the true one.
    pub(crate) rate: i64,
    /// How far it was stepped, in milliseconds.
    pub(crate) stepped: i64,
    pub(crate) down: bool,
    losses: u64,
    hash: Hash,
    /// What it had written to its disk.
    on_disk: Hash,
}

impl Model {
    pub(crate) fn new(number: usize, left_out: &[ServerRule]) -> Model {
        let hash = Hash { server: format!("{:04x}{:04x}", number, 0), ..Hash::default() };
        let (on_disk, rate, left_out) = (hash.clone(), 1_000_000, left_out.to_vec());
        Model { number, left_out, rate, stepped: 0, down: false, losses: 0, hash, on_disk }
    }

    fn keeps(&self, rule: ServerRule) -> bool {
        !self.left_out.contains(&rule)
    }

    /// Restarted, without all that was not on its disk; it notices.
    pub(crate) fn lose(&mut self) {
        if !self.keeps(ServerRule::RestartNoticed) {
            self.hash = self.on_disk.clone();
            return;
        }
        self.losses += 1;
        let server = format!("{:04x}{:04x}", self.number, self.losses);
        self.hash = Hash { server, ..Hash::default() };
    }

    /// What is known now is on the disk.
    pub(crate) fn sync(&mut self) {
        self.on_disk = self.hash.clone();
    }

    /// It has belonged to its store for long.
    pub(crate) fn season(&mut self) {
        self.hash.age = i64::MAX / 4;
    }

    /// This is the highest token that it knows.
    pub(crate) fn count_from(&mut self, token: u64) {
        self.hash.counter = token;
    }

    /// Which store it belongs to. Empty: none.
    pub(crate) fn store(&self) -> &str {
        &self.hash.store
    }

    /// Whether it gives locks to those who ask with a TTL like this.
    pub(crate) fn counts(&self, ttl: Duration) -> bool {
        !self.hash.store.is_empty() && self.hash.age >= ttl.as_millis() as i64 && !self.down
    }

    /// What its clock says, in milliseconds.
    pub(crate) fn wall(&self, now: Duration) -> i64 {
        BEGINNING + (now.as_millis() as i64) * self.rate / 1_000_000 + self.stepped
    }

    fn passed_since(&self, wall: i64, since: i64, of: i64) -> i64 {
        let most = if self.keeps(ServerRule::BoundedSteps) { of / 2 } else { i64::MAX };
        (wall - since).clamp(0, most)
    }

    fn load(&mut self, wall: i64, election: &ElectionName) -> Option<Held> {
        let mut lock = self.hash.locks.get(election)?.clone();
        let passed = self.passed_since(wall, lock.wall, lock.ttl);
        if passed >= lock.left {
            self.hash.locks.remove(election);
            return None;
        }
        // Before so much has passed that the next step would have to cut something off.
        let is_due = wall < lock.wall || passed * 8 >= lock.ttl;
        lock.left -= passed;
        lock.wall = wall;
        if is_due {
            self.hash.locks.insert(election.clone(), lock.clone());
        }
        Some(lock)
    }

    fn answer(&self, reply: Reply) -> Answer {
        let store = Some(self.hash.store.clone()).filter(|store| !store.is_empty());
        let longest = Duration::from_millis(self.hash.longest as u64);
        Answer { server: self.hash.server.clone(), store, counter: self.hash.counter, longest, reply }
    }

    /// One step.
    pub(crate) fn ask(&mut self, now: Duration, request: &Request) -> Answer {
        let wall = self.wall(now);
        let reply = self.reply(wall, request);
        self.answer(reply)
    }

    fn reply(&mut self, wall: i64, request: &Request) -> Reply {
        match &request.verb {
            Verb::Look => return Reply::Done,
            Verb::Seed { server, counter, longest } => {
                let is_named = *server == self.hash.server || !self.keeps(ServerRule::SeedNamesLoss);
                if !self.hash.store.is_empty() || !is_named {
                    return Reply::Refused;
                }
                self.hash.store = request.store.clone();
                self.hash.counter = counter.unwrap_or_else(|| founding_counter(wall));
                self.hash.longest = longest.as_millis() as i64;
                (self.hash.wait, self.hash.age, self.hash.aged) = (self.hash.longest, 0, wall);
                return Reply::Done;
            }
            Verb::Empty { of } => {
                if !of.is_empty() && self.hash.store == *of {
                    self.lose();
                }
                return Reply::Done;
            }
            _ => {}
        }
        if self.hash.store.is_empty() || (!request.store.is_empty() && request.store != self.hash.store) {
            return Reply::Other;
        }
        match &request.verb {
            Verb::Look | Verb::Seed { .. } | Verb::Empty { .. } => Reply::Done,
            Verb::Read(election) => {
                let lock = self.load(wall, election);
                let needed = self.hash.wait.max(self.hash.asked) * 101 / 100;
                let counted = self.hash.age + (wall - self.hash.aged).max(0);
                if lock.is_none() && counted < needed {
                    return Reply::Wait(Duration::from_millis((needed - counted) as u64));
                }
                Reply::Locks(vec![shown(lock.as_ref())])
            }
            Verb::Acquire { stay, attempt, ttl, said } => {
                self.acquire(wall, stay, *attempt, ttl.as_millis() as i64, said)
            }
            Verb::Number { stay, attempt, token } => self.number(wall, stay, *attempt, token.get()),
            Verb::Renew { session, ttl, named, tried } => {
                let ttl = ttl.as_millis() as i64;
                let mut locks: Vec<_> = named.iter().map(|held| self.renew(wall, session, ttl, held)).collect();
                locks.extend(tried.iter().map(|election| shown(self.load(wall, election).as_ref())));
                Reply::Locks(locks)
            }
            Verb::Release { session, stay, elections } => {
                elections.iter().for_each(|election| self.release(wall, session, *stay, election));
                Reply::Done
            }
            Verb::Publish { session, held, was, version, said } => {
                let lock = self.load(wall, &held.election);
                let ours = |lock: &Held| lock.session == *session && lock.token == held.token.get();
                let Some(mut lock) = lock.filter(|lock| ours(lock) && lock.version <= was.0) else {
                    return Reply::Refused;
                };
                let digits = std::str::from_utf8(&lock.said[..4]).unwrap();
                let name = 4 + usize::from_str_radix(digits, 16).unwrap();
                lock.version = version.0;
                lock.said = [&lock.said[..name], said].concat();
                self.hash.locks.insert(held.election.clone(), lock);
                Reply::Done
            }
            Verb::Evict { election, token, incarnation, version } => {
                let seen = |lock: &Held| lock.token == token.get() && lock.incarnation == *incarnation;
                match self.load(wall, election).filter(seen) {
                    Some(lock) if lock.version > version.0 => return Reply::Refused,
                    Some(_) => self.hash.locks.remove(election),
                    None => None,
                };
                Reply::Done
            }
        }
    }

    fn renew(&mut self, wall: i64, session: &str, ttl: i64, held: &incumbent_store::Held) -> Option<Lock> {
        let mut lock = self.load(wall, &held.election);
        if !self.keeps(ServerRule::RenewalMakesNothing) && lock.is_none() {
            let (left, base, attempt, token, version) = (0, 0, 0, held.token.get(), 1);
            let (session, incarnation) = (session.to_owned(), held.incarnation);
            let said = b"0001a----------------".to_vec();
            lock = Some(Held { left, wall, ttl, base, attempt, token, version, session, incarnation, said });
        }
        let any = !self.keeps(ServerRule::RenewalByOwner);
        let ours = |lock: &&mut Held| any || (lock.session == session && lock.token == held.token.get());
        if let Some(lock) = lock.as_mut().filter(ours) {
            (lock.left, lock.wall, lock.ttl) = (ttl, wall, ttl);
            if any {
                (lock.session, lock.token) = (session.to_owned(), held.token.get());
            }
            self.hash.locks.insert(held.election.clone(), lock.clone());
        }
        shown(lock.as_ref())
    }

    fn release(&mut self, wall: i64, session: &str, stay: Option<GivenUp>, election: &ElectionName) {
        let any = !self.keeps(ServerRule::ReleaseByAttempt);
        let is_meant = |lock: Held| {
            let meant = stay.is_none_or(|GivenUp { incarnation, token, attempt }| {
                incarnation == lock.incarnation
                    && lock.token <= token.map_or(0, |token| token.get())
                    && (any || lock.attempt <= attempt)
            });
            lock.session == session && meant
        };
        if self.load(wall, election).is_some_and(is_meant) {
            self.hash.locks.remove(election);
        }
    }

    fn acquire(&mut self, wall: i64, stay: &Stay, attempt: u64, ttl: i64, said: &[u8]) -> Reply {
        let asked = if self.keeps(ServerRule::HoldAfterFounding) { ttl } else { 0 };
        let needed = self.hash.wait.max(asked) * 101 / 100;
        if self.hash.age < needed {
            self.hash.age += self.passed_since(wall, self.hash.aged, needed);
            self.hash.aged = wall;
            self.hash.asked = self.hash.asked.max(asked);
            if self.hash.age < needed {
                return Reply::Wait(Duration::from_millis((needed - self.hash.age) as u64));
            }
        }
        let lock = self.load(wall, &stay.election);
        if let Some(lock) = &lock
            && (lock.session != stay.session || (lock.incarnation != stay.incarnation && lock.token != 0))
        {
            return Reply::Locks(vec![shown(Some(lock))]);
        }
        let same = lock.filter(|lock| lock.incarnation == stay.incarnation);
        let (session, incarnation) = (stay.session.clone(), stay.incarnation);
        let mut lock = same.unwrap_or_else(|| Held {
            left: 0,
            wall,
            ttl,
            base: 0,
            attempt,
            token: 0,
            version: 1,
            session,
            incarnation,
            said: said.to_vec(),
        });
        lock.attempt = lock.attempt.max(attempt);
        (lock.base, lock.left, lock.wall, lock.ttl) = (self.hash.counter, ttl, wall, ttl);
        self.hash.longest = self.hash.longest.max(ttl);
        self.hash.locks.insert(stay.election.clone(), lock.clone());
        Reply::Locks(vec![shown(Some(&lock))])
    }

    fn number(&mut self, wall: i64, stay: &Stay, attempt: u64, token: u64) -> Reply {
        let unguarded = !self.keeps(ServerRule::TokenGuarded);
        let for_owner = self.keeps(ServerRule::TokenForOwner) && !unguarded;
        let above = self.keeps(ServerRule::TokenAboveCounter) && !unguarded;
        let lock = self.load(wall, &stay.election);
        let ours = |lock: &Held| lock.session == stay.session && lock.incarnation == stay.incarnation;
        let is_above = match &lock {
            Some(lock) if ours(lock) => token > lock.base,
            _ => token > self.hash.counter,
        };
        if (for_owner && !lock.as_ref().is_some_and(ours)) || (above && !is_above) {
            return Reply::Refused;
        }
        if let Some(mut lock) = lock.filter(ours) {
            if self.keeps(ServerRule::TokenByAttempt) && attempt < lock.attempt {
                return Reply::Refused;
            }
            (lock.token, lock.base) = (token, token);
            if self.keeps(ServerRule::TokenByAttempt) {
                lock.attempt = lock.attempt.max(attempt);
            }
            self.hash.locks.insert(stay.election.clone(), lock);
        }
        self.hash.counter = self.hash.counter.max(token);
        Reply::Done
    }
}

/// 2^20 tokens for each second since 1970.
fn founding_counter(wall: i64) -> u64 {
    (wall as f64 / 1_000.0 * 1_048_576.0).round_ties_even() as u64
}

fn shown(lock: Option<&Held>) -> Option<Lock> {
    let lock = lock?;
    let (token, version) = (keys::digits(lock.token), keys::digits(lock.version));
    let incarnation = lock.incarnation.to_string();
    let parts = [token.as_bytes(), version.as_bytes(), lock.session.as_bytes(), incarnation.as_bytes(), &lock.said];
    Some(Lock::parse(&parts.concat()).expect("a lock"))
}

/// What the network does, and the dice that it is decided with.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) rng: Rng,
    pub(crate) began: Instant,
    /// From which client to which server nothing comes through.
    pub(crate) cut: BTreeSet<(usize, usize)>,
    /// Whether messages are lost, late and doubled.
    pub(crate) rough: bool,
    /// Whose messages take long.
    pub(crate) slow: Option<usize>,
    /// How long what a client asks of a server is on its way, and whether it is answered: where a
    /// test says so.
    pub(crate) carry: Option<Carry>,
    /// Where an address of a client leads, if not to its own server.
    pub(crate) redirected: BTreeMap<(usize, usize), Shared<Model>>,
}

pub(crate) type Carry = fn(usize, usize, &Verb) -> Option<(Duration, bool)>;

/// How long that is, one way.
pub(crate) const SLOW: Duration = Duration::from_millis(400);

impl Network {
    pub(crate) fn new(seed: u64, rough: bool) -> Network {
        Network {
            rng: Rng::from_number(seed),
            began: Instant::now(),
            cut: BTreeSet::new(),
            rough,
            slow: None,
            carry: None,
            redirected: BTreeMap::new(),
        }
    }

    fn travel(&mut self) -> Duration {
        match self.rng.below(if self.rough { 200 } else { 1 }) {
            1 => Duration::from_millis(self.rng.below(3_000)),
            2..6 => Duration::from_millis(self.rng.below(120)),
            _ => Duration::from_micros(100 + self.rng.below(4_000)),
        }
    }
}

/// What all have in common.
pub(crate) type Shared<T> = Arc<Mutex<T>>;

pub(crate) fn lock<T>(shared: &Shared<T>) -> MutexGuard<'_, T> {
    shared.lock().expect("nothing panics in here")
}

/// One client's way to one server.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) client: usize,
    pub(crate) number: usize,
    pub(crate) server: Shared<Model>,
    pub(crate) network: Shared<Network>,
}

impl Link {
    /// When a message arrives, unless it never does.
    fn sent(&self) -> Option<Duration> {
        let mut network = lock(&self.network);
        let lost = network.rough && network.rng.below(60) == 0;
        let is_cut = network.cut.contains(&(self.client, self.number));
        match network.slow == Some(self.client) {
            _ if lost || is_cut => None,
            true => Some(SLOW),
            false => Some(network.travel()),
        }
    }

    async fn deliver(&self, request: Request, answered: oneshot::Sender<Answer>) {
        let carry = lock(&self.network).carry;
        if let Some((there, heard)) = carry.and_then(|carry| carry(self.client, self.number, &request.verb)) {
            sleep(there).await;
            if let Some(answer) = self.arrive(&request).filter(|_| heard) {
                _ = answered.send(answer);
            }
            return;
        }
        let Some(there) = self.sent() else { return };
        let doubled = {
            let mut network = lock(&self.network);
            (network.rough && network.rng.below(50) == 0).then(|| network.travel() * 4)
        };
        sleep(there).await;
        let Some(answer) = self.arrive(&request) else { return };
        if let Some(back) = self.sent() {
            sleep(back).await;
            // It may no longer be waited for.
            _ = answered.send(answer);
        }
        if let Some(later) = doubled {
            sleep(later).await;
            self.arrive(&request);
        }
    }

    fn arrive(&self, request: &Request) -> Option<Answer> {
        let (now, server) = {
            let network = lock(&self.network);
            let redirected = network.redirected.get(&(self.client, self.number));
            (network.began.elapsed(), redirected.unwrap_or(&self.server).clone())
        };
        let mut server = lock(&server);
        if server.down { None } else { Some(server.ask(now, request)) }
    }
}

impl Server for Arc<Link> {
    fn address(&self) -> String {
        format!("server-{}", self.number)
    }

    fn keeps_everything(&self) -> bool {
        false
    }

    fn ask<'a>(&'a self, request: &'a Request) -> Fut<'a, Answer> {
        let (answered, answer) = oneshot::channel();
        let (link, request) = (self.clone(), request.clone());
        // What was sent arrives, whether or not its answer is waited for.
        tokio::spawn(async move { link.deliver(request, answered).await });
        Box::pin(async move {
            match answer.await {
                Ok(answer) => Ok(answer),
                // Nothing comes back: the caller has a limit.
                Err(_) => std::future::pending::<Result<Answer, StoreError>>().await,
            }
        })
    }
}

/// Servers, and what lies between them and clients.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) servers: Vec<Shared<Model>>,
    pub(crate) network: Shared<Network>,
}

impl Group {
    pub(crate) fn new(count: usize, left_out: &[ServerRule], network: Network) -> Group {
        let servers = (0..count).map(|number| Arc::new(Mutex::new(Model::new(number, left_out)))).collect();
        Group { servers, network: Arc::new(Mutex::new(network)) }
    }

    /// The servers, as this client reaches them.
    pub(crate) fn links(&self, client: usize) -> Vec<Arc<dyn Server>> {
        let link = |(number, server): (usize, &Shared<Model>)| {
            let (server, network) = (server.clone(), self.network.clone());
            Arc::new(Arc::new(Link { client, number, server, network })) as Arc<dyn Server>
        };
        self.servers.iter().enumerate().map(link).collect()
    }
}

/// A client's clock, in millionths of the true one.
#[derive(Debug)]
pub(crate) struct Drifting {
    pub(crate) began: Instant,
    pub(crate) rate: u64,
}

impl Clock for Drifting {
    fn now(&self) -> Timestamp {
        let nanos = self.began.elapsed().as_nanos() as u64;
        Timestamp::from_nanos(1_000_000_000_000 + nanos / 1_000 * self.rate / 1_000)
    }

    fn alarm(&self) -> std::io::Result<Box<dyn Alarm>> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}
