//! The script against the model: random requests, answered by a real server and by the value that
//! the simulations run on, while time passes, clocks are stepped, and servers are emptied. Variants
//! of the script that get it wrong are noticed.

use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::time::Duration;

use incumbent_store::{ElectionName, Held, Incarnation, Token, Version};
use incumbent_testkit::fuzz::Rng;
use incumbent_testkit::patience::until;
use incumbent_testkit::servers::RedisServer;
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;

use super::model::Model;
use crate::keys;
use crate::redlock::server::{self, Answer, GivenUp, Reply, Request, SCRIPT, Server, Stay, Verb};
use crate::step::Code;

const HISTORIES: u64 = 8;
const REQUESTS: u64 = 1_500;
/// In seconds: so short that much of it passes in a history. No real time does.
const LONGEST_TTL: u64 = 9;
const STORE: &str = "redlock-a-b-c";
const OTHER: &str = "redlock-d-e-f";
const PREFIX: &str = "test";

/// The script, but that it reads the time where the test has written it.
static TIMED: LazyLock<Code> =
    LazyLock::new(|| changed(&SCRIPT.text, &[("call('TIME')", "call('MGET', 'seconds', 'micros')")]));
/// And that it tidies up no locks that it is not asked for: it draws those, and counts their time
/// when it looks.
static UNTIDY: LazyLock<Code> = LazyLock::new(|| changed(&TIMED.text, &[("call('HRANDFIELD', KEY, 3)", "{}")]));

/// What is written in the script, and what is put there instead.
type Flaw = (&'static str, &'static str);

fn changed(text: &str, flaws: &[Flaw]) -> Code {
    let text = flaws.iter().fold(text.to_owned(), |text, (right, wrong)| {
        assert_eq!(text.matches(right).count(), 1, "{right}");
        text.replace(right, wrong)
    });
    Code::new(&[&text])
}

/// A real server and the model, side by side.
struct Pair {
    real: server::RedisServer,
    model: Model,
    /// Past the script: the time is set there.
    direct: MultiplexedConnection,
    now: Duration,
    rng: Rng,
    /// What each calls itself.
    names: (String, String),
    highest: u64,
    /// Whom the last request was about.
    last: Stay,
}

impl Pair {
    async fn start(process: &RedisServer, code: &'static Code, seed: u64) -> Pair {
        let client = redis::Client::open(process.url()).unwrap();
        let real = server::RedisServer::new(&client, PREFIX, false).unwrap().with_script(code);
        // As busy as the machine may be.
        let patient = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        let direct = client.get_multiplexed_async_connection_with_config(&patient).await.unwrap();
        let (model, rng, now) = (Model::new(3, &[]), Rng::from_number(seed), Duration::from_secs(100_000));
        let last = Stay { session: "0".repeat(27), election: jobs(), incarnation: Incarnation::from_bits(1) };
        let mut pair = Pair { real, model, direct, now, rng, names: Default::default(), highest: 10, last };
        pair.flush().await;
        pair
    }

    /// All that the server knows is gone.
    async fn flush(&mut self) {
        redis::cmd("FLUSHALL").exec_async(&mut self.direct).await.unwrap();
        self.set_time().await;
    }

    /// Both read the same time.
    async fn set_time(&mut self) {
        let wall = self.model.wall(self.now);
        let (seconds, micros) = (wall / 1_000, wall % 1_000 * 1_000);
        let set = redis::cmd("MSET").arg("seconds").arg(seconds).arg("micros").arg(micros).to_owned();
        set.exec_async(&mut self.direct).await.unwrap();
    }

    /// Time passes, now and then so much that something is over at this very moment; and the wall
    /// clock may be stepped.
    async fn pass(&mut self) {
        match self.rng.below(24) {
            0 => self.model.stepped += 3_600_000,
            1 => self.model.stepped -= 3_600_000,
            2..5 => self.now += Duration::from_millis(self.rng.below(3_000)),
            5..8 => self.now += Duration::from_millis(500) * self.rng.below(7) as u32,
            8..12 => self.now += Duration::from_millis(self.rng.below(100)),
            _ => return,
        }
        self.set_time().await;
    }

    /// Asks both, each by its own name, and compares what they answer.
    async fn ask(&mut self, store: &str, verb: impl Fn(&str) -> Verb) -> Result<Reply, String> {
        let request = |name| Request { store: store.to_owned(), verb: verb(name) };
        let (to_real, to_model) = (request(&self.names.0), request(&self.names.1));
        self.compare(to_real, to_model).await
    }

    async fn compare(&mut self, to_real: Request, to_model: Request) -> Result<Reply, String> {
        let real = self.real.ask(&to_real).await.map_err(|error| format!("{to_real:?}: {error}"))?;
        let model = self.model.ask(self.now, &to_model);
        // What they call themselves is their own affair, but not when they have another name.
        let seen = |answer: &Answer, name: &str| {
            let Answer { server, store, counter, longest, reply } = answer.clone();
            (server != name, store, counter, longest, reply)
        };
        let both = (seen(&real, &self.names.0), seen(&model, &self.names.1));
        self.names = (real.server, model.server);
        self.highest = self.highest.max(model.counter);
        if both.0 == both.1 {
            return Ok(model.reply);
        }
        Err(format!("{to_real:?}:\nthe script says {:?},\nthe model {:?}", both.0, both.1))
    }

    /// Mostly of the store.
    async fn both(&mut self, verb: Verb) -> Result<Reply, String> {
        let store = if self.rng.below(20) == 0 { OTHER } else { STORE };
        self.ask(store, |_| verb.clone()).await
    }

    /// Empties both, and tells them what they belong to, before that and after it words that are
    /// for another store or come too late.
    async fn lose(&mut self) -> Result<(), String> {
        let earlier = self.names.clone();
        if self.rng.below(2) == 0 {
            self.flush().await;
            self.model.lose();
        }
        // The last finds nothing to empty.
        for of in [OTHER, STORE, STORE] {
            self.both(Verb::Empty { of: of.to_owned() }).await?;
        }
        for verb in [self.acquire(), Verb::Read(self.election())] {
            self.both(verb).await?;
        }
        let counter = Some(self.highest).filter(|_| self.rng.below(2) == 0);
        let longest = Duration::from_secs(self.rng.below(LONGEST_TTL + 1));
        let seed = |name: &str| Verb::Seed { server: name.to_owned(), counter, longest };
        let request = |name| Request { store: STORE.to_owned(), verb: seed(name) };
        self.compare(request(&earlier.0), request(&earlier.1)).await?;
        for _ in 0..2 {
            self.ask(STORE, seed).await?;
        }
        // Until it is known that nobody leads whom it has forgotten.
        for verb in [Verb::Read(self.election()), self.acquire(), Verb::Read(self.election())] {
            self.both(verb).await?;
        }
        Ok(())
    }

    fn election(&mut self) -> ElectionName {
        if self.rng.below(2) == 0 { jobs() } else { named("jobs/nightly") }
    }

    fn session(&mut self) -> String {
        format!("{:027}", self.rng.below(2))
    }

    /// Mostly that of the last request: one asks more than once.
    fn stay(&mut self) -> Stay {
        if self.rng.below(3) == 0 {
            let (session, election) = (self.session(), self.election());
            let incarnation = Incarnation::from_bits(u128::from(self.rng.below(2)) + 1);
            self.last = Stay { session, election, incarnation };
        }
        self.last.clone()
    }

    fn attempt(&mut self) -> u64 {
        self.rng.below(3)
    }

    fn ttl(&mut self) -> Duration {
        Duration::from_secs(1 + self.rng.below(LONGEST_TTL))
    }

    fn token(&mut self) -> Token {
        let token = self.highest.saturating_sub(self.rng.below(4)).max(1);
        Token::new(token).unwrap()
    }

    fn held(&mut self) -> Held {
        let (stay, token) = (self.stay(), self.token());
        Held::new(stay.election, keys::id_of(token), token, stay.incarnation)
    }

    fn version(&mut self) -> Version {
        Version(1 + self.rng.below(3))
    }

    fn acquire(&mut self) -> Verb {
        let (stay, attempt, ttl) = (self.stay(), self.attempt(), self.ttl());
        Verb::Acquire { stay, attempt, ttl, said: b"0002ab----------------\0\xff".to_vec() }
    }

    fn verb(&mut self) -> Verb {
        match self.rng.below(12) {
            0..3 => self.acquire(),
            3..6 => {
                self.highest += self.rng.below(2);
                // Mostly of the newest attempt.
                let attempt = if self.rng.below(4) == 0 { self.attempt() } else { 2 };
                Verb::Number { stay: self.stay(), attempt, token: self.token() }
            }
            6 => {
                let (session, ttl, named) = (self.stay().session, self.ttl(), vec![self.held(), self.held()]);
                Verb::Renew { session, ttl, named, tried: vec![self.election()] }
            }
            7 => {
                let Stay { session, election, incarnation } = self.stay();
                let token = Some(self.token()).filter(|_| self.rng.below(2) == 0);
                let stay = GivenUp { incarnation, token, attempt: self.attempt() };
                let stay = Some(stay).filter(|_| self.rng.below(3) > 0);
                Verb::Release { session, stay, elections: vec![election] }
            }
            8 | 9 => {
                let (session, held, was) = (self.stay().session, self.held(), self.version());
                let said = b"00000000000000ffnew".to_vec();
                Verb::Publish { session, held, was, version: Version(was.0 + 1), said }
            }
            10 => {
                let (Stay { election, incarnation, .. }, token, version) = (self.stay(), self.token(), self.version());
                Verb::Evict { election, token, incarnation, version }
            }
            _ => Verb::Read(self.election()),
        }
    }
}

fn jobs() -> ElectionName {
    named("jobs")
}

fn named(election: &str) -> ElectionName {
    ElectionName::new(election).unwrap()
}

/// Plays the histories up to the first in which the two answer differently.
async fn play(process: &RedisServer, code: &'static Code) -> Result<(), String> {
    for seed in 0..HISTORIES {
        let mut pair = Pair::start(process, code, seed).await;
        let played = async {
            pair.lose().await?;
            for _ in 0..REQUESTS {
                if pair.rng.below(100) == 0 {
                    pair.lose().await?;
                }
                pair.pass().await;
                let verb = pair.verb();
                pair.both(verb).await?;
            }
            Ok(())
        };
        played.await.map_err(|why: String| format!("with seed {seed}: {why}"))?;
    }
    Ok(())
}

#[tokio::test]
async fn the_script_does_what_the_model_does() {
    let process = RedisServer::start().await;
    play(&process, &UNTIDY).await.unwrap_or_else(|why| panic!("{why}"));
}

/// Each known-bad variant is one of these.
const FLAWS: &[Flaw] = &[
    // Each emptiness has a name of its own. It is told what it belongs to by this name, and once.
    (
        "server, store, counter, longest, wait, age, aged = FRESH",
        "server, store, counter, longest, wait, age, aged = server or FRESH",
    ),
    ("if store ~= '' or server ~= named then", "if server ~= named then"),
    ("if store ~= '' or server ~= named then", "if store ~= '' then"),
    // It goes on from what it is told, or from the clock where the store is founded.
    ("higher ~= '' and higher or digits(wall / 1000 * 2 ^ 20)", "higher ~= '' and higher or digits(0)"),
    ("higher ~= '' and higher or digits(wall / 1000 * 2 ^ 20)", "digits(wall / 1000 * 2 ^ 20)"),
    ("longest, wait, age, aged = known_longest,", "longest, wait, age, aged = millis(0),"),
    // All that it knew is forgotten, and all that it is told is kept.
    ("  call('DEL', KEY)\n", ""),
    ("'wait', wait, 'age', age, 'aged', aged, 'lineage', lineage,", "'wait', wait, 'lineage', lineage,"),
    ("call('HSET', KEY, 'store', store, 'counter', counter,", "call('HSET', KEY, 'counter', counter,"),
    ("call('HSET', KEY, 'longest', longest)", ""),
    ("call('HSET', KEY, 'counter', counter)", ""),
    ("  if is_due then\n    save(election, lock)\n  end\n", ""),
    ("  lock.left, lock.wall, lock.ttl = ttl, wall, ttl\n  save(election, lock)\n", ""),
    ("  asked_by(lock, attempt)\n  save(election, lock)\n", ""),
    ("argument(6)\n  save(election, lock)\n", "argument(6)\n"),
    ("      call('HDEL', KEY, '/' .. argument(at))\n", ""),
    ("  call('HDEL', KEY, '/' .. election)\n  return answer('ok')", "  return answer('ok')"),
    // Only the store that is meant is emptied, and an empty one is not emptied again.
    ("if store ~= '' and store == argument(1) then", "if store ~= '' then"),
    ("if store ~= '' and store == argument(1) then", "if store == '' or store == argument(1) then"),
    ("if store ~= '' and store == argument(1) then", "if false then"),
    ("if store == '' or (STORE ~= '' and STORE ~= store) then", "if store == '' then"),
    (
        "if store == '' or (STORE ~= '' and STORE ~= store) then",
        "if STORE ~= '' and store ~= '' and STORE ~= store then",
    ),
    // It waits for those that it has forgotten: with the longest TTL that is known, and with the
    // asker's; by a clock that may be faster than theirs; and in steps.
    ("math.max(tonumber(wait), ttl_millis) * DRIFT", "tonumber(wait) * DRIFT"),
    ("math.max(tonumber(wait), ttl_millis) * DRIFT", "ttl_millis * DRIFT"),
    ("local DRIFT = 1.01", "local DRIFT = 1"),
    ("if tonumber(age) < needed then\n      return", "if false then\n      return"),
    (
        "age, aged = whole(tonumber(age) + passed_since(tonumber(aged), needed)), whole(wall)",
        "age, aged = whole(tonumber(age) + math.max(0, wall - aged)), whole(wall)",
    ),
    (
        "age, aged = whole(tonumber(age) + passed_since(tonumber(aged), needed)), whole(wall)",
        "age = whole(tonumber(age) + passed_since(tonumber(aged), needed))",
    ),
    ("call('HSET', KEY, 'age', age, 'aged', aged, 'asked', asked)", ""),
    // Nor does it say until then that nobody leads; but who leads is known.
    ("if not lock and counted < needed then", "if false then"),
    ("if not lock and counted < needed then", "if counted < needed then"),
    ("math.max(wait, asked) * DRIFT", "wait * DRIFT"),
    ("asked = whole(math.max(asked, ttl_millis))", ""),
    ("asked = whole(math.max(asked, ttl_millis))", "asked = whole(ttl_millis)"),
    ("  asked = '0'\n", ""),
    ("local counted = age + math.max(0, wall - aged)", "local counted = age + wall - aged"),
    ("local counted = age + math.max(0, wall - aged)", "local counted = tonumber(age)"),
    // The time of a lock passes, in steps, and not backwards; it is over when it has passed.
    ("math.max(0, math.min(wall - since, math.floor(of / 2)))", "math.max(0, wall - since)"),
    ("math.max(0, math.min(wall - since, math.floor(of / 2)))", "math.min(wall - since, math.floor(of / 2))"),
    ("if passed >= lock.left then", "if passed > lock.left then"),
    ("if passed >= lock.left then", "if false then"),
    ("local is_due = wall < lock.wall or passed * 8 >= lock.ttl", "local is_due = passed * 8 >= lock.ttl"),
    ("local is_due = wall < lock.wall or passed * 8 >= lock.ttl", "local is_due = wall < lock.wall"),
    ("lock.left, lock.wall = lock.left - passed, wall", "lock.wall = wall"),
    ("lock.left, lock.wall, lock.ttl = ttl, wall, ttl", "lock.left, lock.wall, lock.ttl = lock.left or ttl, wall, ttl"),
    ("lock.left, lock.wall, lock.ttl = ttl, wall, ttl", "lock.left, lock.wall, lock.ttl = ttl, wall, lock.ttl or ttl"),
    // Somebody else's lock is not taken, nor one with a token by another stay; one without is.
    ("if lock and (lock.session ~= session or (", "if lock and (("),
    (
        "lock.session ~= session or (lock.incarnation ~= incarnation and lock.token ~= digits(0))",
        "lock.session ~= session",
    ),
    (" and lock.token ~= digits(0))) then", ")) then"),
    ("if not lock or lock.incarnation ~= incarnation then\n    lock =", "if not lock then\n    lock ="),
    ("if not lock or lock.incarnation ~= incarnation then\n    lock =", "if true then\n    lock ="),
    // What is given up is what was asked for by then.
    ("asked_by(lock, attempt)\n  restart(", "restart("),
    ("asked_by(lock, attempt)\n  save(", "save("),
    ("if lock.attempt < attempt then", "if true then"),
    ("lock.base = counter\n", "lock.base = lock.base or counter\n"),
    ("if longest < ttl then", "if false then"),
    ("if longest < ttl then", "if true then"),
    // A token is for the owner, and is higher than all that were given.
    (
        "if not lock or lock.session ~= session or lock.incarnation ~= incarnation or token <= lock.base then",
        "if not lock or lock.incarnation ~= incarnation or token <= lock.base then",
    ),
    (
        "if not lock or lock.session ~= session or lock.incarnation ~= incarnation or token <= lock.base then",
        "if not lock or lock.session ~= session or token <= lock.base then",
    ),
    (
        "if not lock or lock.session ~= session or lock.incarnation ~= incarnation or token <= lock.base then",
        "if not lock or lock.session ~= session or lock.incarnation ~= incarnation then",
    ),
    ("or token <= lock.base then", "or token < lock.base then"),
    ("if attempt < lock.attempt then\n    return", "if false then\n    return"),
    ("lock.token, lock.base = token, token", "lock.token = token"),
    ("if counter < token then", "if false then"),
    ("if counter < token then", "if true then"),
    // A renewal is the owner's, for the term that it names.
    (
        "if lock and lock.session == session and lock.token == argument(at + 1) then",
        "if lock and lock.token == argument(at + 1) then",
    ),
    (
        "if lock and lock.session == session and lock.token == argument(at + 1) then",
        "if lock and lock.session == session then",
    ),
    ("if lock and lock.session == session and lock.token == argument(at + 1) then", "if false then"),
    ("locks[#locks + 1], at = shown(load(argument(at))), at + 1", "locks[#locks + 1], at = '', at + 1"),
    // A release is the owner's, and reaches what it gives up.
    ("if lock and lock.session == session and is_meant then", "if lock and is_meant then"),
    ("if lock and lock.session == session and is_meant then", "if lock and lock.session == session then"),
    ("incarnation == '' or (", "("),
    ("lock.incarnation == incarnation and lock.token <= token and", "lock.token <= token and"),
    ("lock.incarnation == incarnation and lock.token <= token and", "lock.incarnation == incarnation and"),
    ("lock.attempt <= attempt)", "true)"),
    ("lock.attempt <= attempt)", "lock.attempt < attempt)"),
    // So is what is published, and it replaces nothing newer, nor the name.
    (
        "if not lock or lock.session ~= session or lock.token ~= token or lock.version > was then",
        "if not lock or lock.token ~= token or lock.version > was then",
    ),
    (
        "if not lock or lock.session ~= session or lock.token ~= token or lock.version > was then",
        "if not lock or lock.session ~= session or lock.version > was then",
    ),
    (
        "if not lock or lock.session ~= session or lock.token ~= token or lock.version > was then",
        "if not lock or lock.session ~= session or lock.token ~= token then",
    ),
    ("or lock.version > was then", "or lock.version >= was then"),
    ("sub(lock.said, 1, name) .. argument(6)", "'0002xy' .. argument(6)"),
    ("lock.version, lock.said = argument(5),", "lock.said ="),
    // An eviction is of the term and the version that were seen.
    (
        "if not lock or lock.token ~= token or lock.incarnation ~= incarnation then",
        "if not lock or lock.incarnation ~= incarnation then",
    ),
    (
        "if not lock or lock.token ~= token or lock.incarnation ~= incarnation then",
        "if not lock or lock.token ~= token then",
    ),
    ("if lock.version > version then", "if false then"),
    ("if lock.version > version then", "if lock.version >= version then"),
];

#[tokio::test]
async fn each_known_bad_variant_of_the_script_is_noticed() {
    let process = RedisServer::start().await;
    for flaw in FLAWS {
        let code = Box::leak(Box::new(changed(&UNTIDY.text, &[*flaw])));
        let Err(why) = play(&process, code).await else { panic!("it is not noticed: {flaw:?}") };
        assert!(why.contains("the script says"), "the case is no case: {flaw:?}: {why}");
    }
}

/// The locks that are left when those of elections that nobody asks for any more are over, but for
/// one, and many other requests were made.
async fn left_over(process: &RedisServer, code: &'static Code) -> BTreeSet<String> {
    const SHORT: Duration = Duration::from_secs(1);
    let mut pair = Pair::start(process, code, 0).await;
    let acquire = async |pair: &mut Pair, election: &str, ttl| {
        let stay = Stay { election: named(election), ..pair.last.clone() };
        let verb = Verb::Acquire { stay, attempt: 1, ttl, said: b"0001a----------------".to_vec() };
        pair.real.ask(&Request { store: STORE.to_owned(), verb }).await.unwrap().reply
    };
    pair.ask(STORE, |_| Verb::Look).await.unwrap();
    let seed = |name: &str| Verb::Seed { server: name.to_owned(), counter: Some(1), longest: Duration::ZERO };
    assert_eq!(pair.ask(STORE, seed).await, Ok(Reply::Done));
    while matches!(acquire(&mut pair, "lasting", SHORT * 60).await, Reply::Wait(_)) {
        pair.now += SHORT * 10;
        pair.set_time().await;
    }
    for number in 0..20 {
        acquire(&mut pair, &format!("left/{number}"), SHORT).await;
    }
    // The time of a lock is counted in steps of at most half of it.
    for _ in 0..2 {
        pair.now += SHORT / 2;
        pair.set_time().await;
        for _ in 0..400 {
            acquire(&mut pair, "jobs", SHORT).await;
        }
    }
    let key = keys::Keys::new(PREFIX).unwrap().redlock();
    let fields: BTreeSet<String> = redis::cmd("HKEYS").arg(key).query_async(&mut pair.direct).await.unwrap();
    fields.into_iter().filter(|field| field.starts_with('/')).collect()
}

/// It looks at a few at each request.
#[tokio::test]
async fn locks_of_elections_that_nobody_asks_for_are_tidied_up_when_their_time_has_passed() {
    static KEEPING: LazyLock<Code> =
        LazyLock::new(|| changed(&TIMED.text, &[("call('HDEL', KEY, '/' .. election)\n    return", "return")]));
    let process = RedisServer::start().await;
    let left = left_over(&process, &TIMED).await;
    assert_eq!(Vec::from_iter(&left), ["/jobs", "/lasting"]);
    for flawed in [&UNTIDY, &KEEPING] {
        assert!(left_over(&process, flawed).await.len() > 20, "it is not noticed");
    }
}

/// A copy of their data is begun as soon as somebody asks for it.
const NO_DISK: &[&str] = &["--repl-diskless-sync-delay", "0"];
const DISK: &[&str] = &["--repl-diskless-sync-delay", "0", "--appendonly", "yes", "--appendfsync", "always"];

/// What happens to a server, how it writes to its disk, and whether it counts as emptied after it.
const EVENTS: [(&str, &[&str], bool); 9] = [
    ("it is restarted with all that it knew", DISK, false),
    ("it is restarted with what it had saved before", DISK, true),
    ("it is restarted with what it had saved", NO_DISK, true),
    ("its data is copied to a backup", NO_DISK, false),
    ("what it kept for replicas is thrown away", NO_DISK, false),
    ("it becomes a replica and is promoted", DISK, true),
    ("it is a copy that is promoted", DISK, true),
    ("an earlier version wrote what it knows", NO_DISK, false),
    ("an earlier version wrote what it knows, and it is restarted", NO_DISK, true),
];

/// Whether a server counts as emptied after each of the events, for one who was not told of them.
async fn seen_after_events(code: &'static Code) -> Vec<(&'static str, &'static [&'static str], bool)> {
    let mut seen = Vec::new();
    for (event, disk, _) in EVENTS {
        let mut process = RedisServer::start_with(disk).await;
        let client = redis::Client::open(process.url()).unwrap();
        let real = server::RedisServer::new(&client, PREFIX, false).unwrap().with_script(code);
        let key = keys::Keys::new(PREFIX).unwrap().redlock();
        let name = async || {
            let mut name = String::new();
            until("it answers", async || {
                // No look, with which it would be read anew what it keeps.
                let answer = real.ask(&Request { store: STORE.to_owned(), verb: Verb::Read(jobs()) }).await;
                answer.is_ok_and(|answer| {
                    name = answer.server;
                    true
                })
            })
            .await;
            name
        };
        let before = name().await;
        let lineage = |process: &RedisServer| field(&process.cli(&["INFO", "replication"]), "master_replid");
        let was = lineage(&process);
        let forget_process = |process: &RedisServer| assert_eq!(process.cli(&["HDEL", &key, "run"]), "1");
        match event {
            "it is restarted with all that it knew" => process.restart().await,
            "it is restarted with what it had saved before" => {
                assert_eq!(process.cli(&["SAVE"]), "OK");
                process.configure(&["--appendonly", "no"]);
                process.restart().await;
            }
            "it is restarted with what it had saved" => {
                assert_eq!(process.cli(&["SAVE"]), "OK");
                process.restart().await;
            }
            "its data is copied to a backup" => {
                let file = process.scratch().path().join("backup.rdb");
                process.cli(&["--rdb", &file.display().to_string()]);
                assert_ne!(lineage(&process), was);
            }
            "what it kept for replicas is thrown away" => {
                let file = process.scratch().path().join("backup.rdb");
                process.cli(&["--rdb", &file.display().to_string()]);
                name().await;
                let was = lineage(&process);
                assert_eq!(process.cli(&["CONFIG", "SET", "repl-backlog-ttl", "1"]), "OK");
                until("it is thrown away", async || lineage(&process) != was).await;
            }
            "it becomes a replica and is promoted" => {
                assert_eq!(process.cli(&["REPLICAOF", "127.0.0.1", "1"]), "OK");
                assert_eq!(process.cli(&["REPLICAOF", "NO", "ONE"]), "OK");
            }
            "it is a copy that is promoted" => {
                let copy = RedisServer::start_with(disk).await;
                assert_eq!(copy.cli(&["REPLICAOF", "127.0.0.1", &process.port().to_string()]), "OK");
                until("it has everything", async || copy.cli(&["HGETALL", &key]) == process.cli(&["HGETALL", &key]))
                    .await;
                assert_eq!(copy.cli(&["REPLICAOF", "NO", "ONE"]), "OK");
                let client = redis::Client::open(copy.url()).unwrap();
                let real = server::RedisServer::new(&client, PREFIX, false).unwrap().with_script(code);
                let answer = real.ask(&Request { store: STORE.to_owned(), verb: Verb::Look }).await.unwrap();
                seen.push((event, disk, answer.server != before));
                continue;
            }
            "an earlier version wrote what it knows" => forget_process(&process),
            "an earlier version wrote what it knows, and it is restarted" => {
                forget_process(&process);
                assert_eq!(process.cli(&["SAVE"]), "OK");
                process.restart().await;
            }
            other => panic!("{other}"),
        }
        seen.push((event, disk, name().await != before));
    }
    seen
}

fn field(info: &str, name: &str) -> String {
    crate::info::field(info, name).expect("it says so").to_owned()
}

#[tokio::test]
async fn a_process_that_may_know_less_than_it_was_told_counts_as_emptied_and_no_other() {
    assert_eq!(seen_after_events(&SCRIPT).await, EVENTS);
}

#[tokio::test]
async fn each_known_bad_variant_that_tells_a_loss_where_there_is_none_or_none_where_there_is_one_is_noticed() {
    let flaws: &[Flaw] = &[
        // What was read of a process is not believed of the next.
        ("if run ~= RUN then", "if false then"),
        ("(meta[10] ~= 'always' or KEPT ~= 'always')", "meta[10] ~= 'always'"),
        ("(meta[10] ~= 'always' or KEPT ~= 'always')", "true"),
        // Another lineage alone is no loss, and is one where nothing else was written.
        ("if meta[12] then\n", "if false then\n"),
        ("is_restarted = meta[12] ~= run", "is_restarted = false"),
        ("local is_restarted = is_other_lineage\n", "local is_restarted = false\n"),
        ("local is_restarted = is_other_lineage\n", "local is_restarted = true\n"),
        ("if not is_whole or is_promoted or is_behind then", "if not is_whole or is_behind then"),
        ("if not is_whole or is_promoted or is_behind then", "if not is_whole or is_promoted then"),
        ("local is_promoted = is_other_lineage and not find", "local is_promoted = is_other_lineage or not find"),
    ];
    for flaw in flaws {
        let code = Box::leak(Box::new(changed(&SCRIPT.text, &[*flaw])));
        assert_ne!(seen_after_events(code).await, EVENTS, "it is not noticed: {flaw:?}");
    }
}
