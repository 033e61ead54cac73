//! The script against the model: random requests, answered by a real server and by the value that
//! the simulations run on, while time passes and clocks are stepped.

use std::sync::LazyLock;
use std::time::Duration;

use incumbent_store::{ElectionName, Held, Incarnation, Token, Version};
use incumbent_testkit::fuzz::Rng;
use incumbent_testkit::servers::RedisServer;
use redis::AsyncConnectionConfig;

use super::model::Model;
use crate::keys;
use crate::redlock::server::{self, Answer, GivenUp, Reply, Request, SCRIPT, Server, Stay, Verb};
use crate::step::Code;

/// Short enough that much of it passes while a history is compared. No real time does.
const TTL: Duration = Duration::from_secs(3);
/// The script, but that it reads the time where the test has written it, and tidies up no locks
/// that it is not asked for: it draws those, and counts their time when it looks.
static TIMED: LazyLock<Code> = LazyLock::new(|| {
    let mut timed = SCRIPT.text.clone();
    for (call, instead) in [("call('TIME')", "call('MGET', 'seconds', 'micros')"), ("call('HRANDFIELD', KEY, 3)", "{}")]
    {
        assert_eq!(timed.matches(call).count(), 1, "{call}");
        timed = timed.replace(call, instead);
    }
    Code::new(&[&timed])
});
const STORE: &str = "redlock-a-b-c";

/// A real server and the model, side by side.
struct Pair {
    real: server::RedisServer,
    model: Model,
    process: RedisServer,
    /// On which the time is set.
    clock: redis::aio::MultiplexedConnection,
    now: Duration,
    rng: Rng,
    /// What each called itself when it was last empty.
    names: (String, String),
    highest: u64,
}

impl Pair {
    async fn start() -> Pair {
        let process = RedisServer::start().await;
        let client = redis::Client::open(process.url()).unwrap();
        let real = server::RedisServer::new(&client, "test", false).unwrap().with_script(&TIMED);
        // As busy as the machine may be.
        let patient = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        let clock = client.get_multiplexed_async_connection_with_config(&patient).await.unwrap();
        let (model, rng, now) = (Model::new(3, &[]), Rng::from_number(7), Duration::from_secs(100_000));
        let mut pair = Pair { real, model, process, clock, now, rng, names: Default::default(), highest: 10 };
        pair.set_time().await;
        pair
    }

    /// Both read the same time.
    async fn set_time(&mut self) {
        let wall = self.now.as_millis() as i64 + self.model.stepped;
        let (seconds, micros) = (wall / 1_000, wall % 1_000 * 1_000);
        let set = redis::cmd("MSET").arg("seconds").arg(seconds).arg("micros").arg(micros).to_owned();
        set.exec_async(&mut self.clock).await.unwrap();
    }

    /// Time passes, and the wall clock may be stepped.
    async fn pass(&mut self) {
        match self.rng.below(24) {
            0 => self.model.stepped += 3_600_000,
            1 => self.model.stepped -= 3_600_000,
            2..8 => self.now += Duration::from_millis(self.rng.below(TTL.as_millis() as u64)),
            8..12 => self.now += Duration::from_millis(self.rng.below(100)),
            _ => return,
        }
        self.set_time().await;
    }

    async fn ask(&mut self, store: &str, real: Verb, model: Verb) -> (Answer, Answer) {
        let request = |verb| Request { store: store.to_owned(), verb };
        let answer = self.real.ask(&request(real)).await.unwrap();
        (answer, self.model.ask(self.now, &request(model)))
    }

    async fn both(&mut self, verb: Verb) {
        let store = if self.rng.below(20) == 0 { "redlock-d-e-f" } else { STORE };
        let (real, model) = self.ask(store, verb.clone(), verb.clone()).await;
        let seen = |answer: &Answer| (answer.store.clone(), answer.counter, answer.longest, answer.reply.clone());
        assert_eq!(seen(&real), seen(&model), "{verb:?}");
        self.names = (real.server, model.server);
    }

    /// Empties both, and tells them what they belong to, perhaps after a word that is too late.
    async fn lose(&mut self) {
        let earlier = self.names.clone();
        self.process.cli(&["FLUSHALL"]);
        self.model.lose();
        self.set_time().await;
        self.both(Verb::Look).await;
        assert_ne!(self.names, earlier);
        let (counter, longest) = (Some(self.highest), Duration::from_secs(5));
        let seed = |server: &str| Verb::Seed { server: server.to_owned(), counter, longest };
        let late = self.ask(STORE, seed(&earlier.0), seed(&earlier.1)).await;
        assert_eq!((late.0.reply, late.1.reply), (Reply::Refused, Reply::Refused));
        let names = self.names.clone();
        let done = self.ask(STORE, seed(&names.0), seed(&names.1)).await;
        assert_eq!((done.0.reply, done.1.reply), (Reply::Done, Reply::Done));
        // Until it is known that nobody leads whom it has forgotten.
        for verb in [self.acquire(), Verb::Read(self.election())] {
            let (real, model) = self.ask(STORE, verb.clone(), verb).await;
            assert!(matches!(real.reply, Reply::Wait(_)) && real.reply == model.reply, "{real:?}, {model:?}");
        }
    }

    fn election(&mut self) -> ElectionName {
        ElectionName::new(["jobs", "jobs/nightly"][self.rng.below(2) as usize]).unwrap()
    }

    fn session(&mut self) -> String {
        format!("{:027}", self.rng.below(2))
    }

    fn stay(&mut self) -> Stay {
        let (session, election) = (self.session(), self.election());
        Stay { session, election, incarnation: Incarnation::from_bits(u128::from(self.rng.below(2)) + 1) }
    }

    fn attempt(&mut self) -> u64 {
        self.rng.below(3)
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
        Version(1 + self.rng.below(5))
    }

    fn acquire(&mut self) -> Verb {
        Verb::Acquire {
            stay: self.stay(),
            attempt: self.attempt(),
            ttl: TTL,
            said: b"0002ab----------------\0\xff".to_vec(),
        }
    }

    fn verb(&mut self) -> Verb {
        match self.rng.below(12) {
            0..3 => self.acquire(),
            3..6 => {
                self.highest += self.rng.below(2);
                Verb::Number { stay: self.stay(), attempt: self.attempt(), token: self.token() }
            }
            6 => {
                let (session, named) = (self.session(), vec![self.held(), self.held()]);
                Verb::Renew { session, ttl: TTL, named, tried: vec![self.election()] }
            }
            7 => {
                let Stay { session, election, incarnation } = self.stay();
                let token = Some(self.token()).filter(|_| self.rng.below(2) == 0);
                let stay = GivenUp { incarnation, token, attempt: self.attempt() };
                let stay = Some(stay).filter(|_| self.rng.below(3) > 0);
                Verb::Release { session, stay, elections: vec![election] }
            }
            8 | 9 => {
                let (session, held, was) = (self.session(), self.held(), self.version());
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

#[tokio::test]
async fn the_script_does_what_the_model_does() {
    let mut pair = Pair::start().await;
    pair.both(Verb::Look).await;
    pair.lose().await;
    for _ in 0..4_000 {
        if pair.rng.below(300) == 0 {
            pair.lose().await;
        }
        pair.pass().await;
        let verb = pair.verb();
        pair.both(verb).await;
    }
}
