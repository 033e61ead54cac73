//! The connection that steps are made on. It is dialled when it is needed, carries everybody's
//! steps at the same time, and repeats nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use incumbent_store::{Clock, Effect, StoreError, StoreId, Timestamp, lock, random_id};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, Pipeline, RedisError, ToRedisArgs, Value};
use tokio::time::Instant;

use crate::answer::Answer;
use crate::error::{classify, classify_script, ends_connection, is_denied};
use crate::keys::{self, Keys, OwnKey};
use crate::on_demand::OnDemand;
use crate::primary::PrimaryLookup;
use crate::step::{Code, Step};

/// A connection on which nothing was heard for this long, while steps were given up, may be dead
/// without a word: the next step dials again.
const SILENT_FOR: Duration = Duration::from_secs(1);

/// By one part in so many our clock may be faster than a server's, or slower.
pub(crate) const DRIFT: u32 = 1_000;

/// How long replicas are waited for where no session says it.
const WAIT_AT_MOST: Duration = Duration::from_secs(2);

/// Where the server is, and what we know of the store there.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) primary: PrimaryLookup,
    pub(crate) keys: Keys,
    /// In a cluster their owner is the one to ask.
    own_keys: Arc<[OwnKey]>,
    allow_eviction: bool,
    /// How many replicas have to confirm each step.
    wait: Option<u32>,
    current: OnDemand<MultiplexedConnection>,
    /// On which connection nothing was heard, and since when.
    silence: Mutex<Option<(u64, Instant)>>,
    known: Mutex<Known>,
    fresh: Arc<FreshIds>,
    clock: Arc<dyn Clock>,
}

/// The store that answered last, and the newest change of it that was met. It decides nothing about
/// who leads: a server that knows less of the same store, in the same history, was put back, and
/// founds the store anew; in another one it was replaced, and is left.
#[derive(Debug, Default)]
struct Known {
    store: String,
    change: u64,
    /// The history of the server in which that was.
    lineage: String,
    /// What its clock showed there, and when that was heard.
    shown: Option<(Duration, Timestamp)>,
}

impl Known {
    /// What its clock shows by now at least. Ours may be faster.
    fn shown_by(&self, now: Timestamp) -> Duration {
        self.shown.map_or(Duration::ZERO, |(shown, heard)| {
            let since = now.since(heard);
            shown + since - since / DRIFT
        })
    }

    fn note(&mut self, answer: &Answer, now: Timestamp) {
        if self.store != answer.store.as_str() {
            *self = Known { store: answer.store.as_str().to_owned(), ..Known::default() };
        }
        // One that is older was late, or came from a primary that was replaced.
        if answer.change < self.change {
            return;
        }
        self.change = answer.change;
        if self.lineage != answer.lineage {
            (self.lineage, self.shown) = (answer.lineage.clone(), None);
        }
        if self.shown.is_none() || answer.clock > self.shown_by(now) {
            self.shown = Some((answer.clock, now));
        }
    }
}

/// On whose behalf a step is made.
#[derive(Clone, Copy, Default)]
pub(crate) struct Caller<'a> {
    /// The store that its session belongs to.
    pub(crate) store: Option<&'a StoreId>,
    /// Whether no server can have forgotten its session yet for lack of renewals.
    pub(crate) is_proven: Option<&'a (dyn Fn() -> bool + Sync)>,
    /// The TTL of its session.
    pub(crate) ttl: Option<Duration>,
}

impl Connection {
    pub(crate) fn new(
        primary: PrimaryLookup,
        keys: Keys,
        own_keys: Vec<OwnKey>,
        allow_eviction: bool,
        wait: Option<u32>,
        clock: Arc<dyn Clock>,
    ) -> Result<Connection, StoreError> {
        let (fresh, own_keys) = (Arc::new(FreshIds::new()?), own_keys.into());
        let (current, silence, known) = (OnDemand::new(), Mutex::default(), Mutex::default());
        Ok(Connection { primary, keys, own_keys, allow_eviction, wait, current, silence, known, fresh, clock })
    }

    /// A connection like this one, and apart from it, for a mark and what it guards: in a cluster
    /// another member may keep them.
    pub(crate) fn for_mark(&self, mark: &[u8], wait: Option<u32>) -> Connection {
        let mark = OwnKey { name: mark.to_vec(), kind: "string", advice: "choose another key for the mark" };
        Connection {
            primary: self.primary.clone(),
            keys: self.keys.clone(),
            own_keys: [mark].into(),
            allow_eviction: self.allow_eviction,
            wait,
            current: OnDemand::new(),
            silence: Mutex::default(),
            known: Mutex::default(),
            fresh: self.fresh.clone(),
            clock: self.clock.clone(),
        }
    }

    /// How many replicas have to confirm each step.
    pub(crate) fn wait(&self) -> Option<u32> {
        self.wait
    }

    /// Makes a step, once.
    pub(crate) async fn run(
        &self,
        step: &'static Step,
        caller: Caller<'_>,
        args: &[&[u8]],
    ) -> Result<Answer, StoreError> {
        let [known, change, lineage, shown] = self.known();
        let fresh = self.fresh.next();
        let session_store = caller.store.map_or("", StoreId::as_str);
        // After what is known was read: a session that outlived a change of history was renewed
        // less than a TTL before we knew of it.
        let proven = if caller.is_proven.is_some_and(|is_proven| is_proven()) { "proven" } else { "" };
        let waited = if self.wait.is_some() { "waited" } else { "" };
        let ours = [&fresh, session_store, &known, &change, &lineage, proven, waited, &shown];
        let ours = ours.map(str::as_bytes);
        let args = [&ours, args].concat();
        let wait = self.wait_within(caller.ttl.map_or(WAIT_AT_MOST, |ttl| ttl / 4));
        let answer = self.eval_and_wait(&step.script, self.keys.all(), &args, wait).await?;
        let (answer, confirmed_by) = answer
            .map_err(|error| classify_script(error, step.effect, step.what, &step.script, &self.keys.pattern()))?;
        let answer = Answer::read(answer, step.what)?;
        lock(&self.known).note(&answer, self.clock.now());
        match (wait, confirmed_by) {
            (Some(wait), Some(confirmed_by)) if answer.word != "again" => {
                wait.check(step.what, step.effect, confirmed_by)?
            }
            _ => {}
        }
        Ok(answer)
    }

    /// Runs a script that writes, once. The inner error is the server's, or of the way to it; the
    /// outer one: it was not sent, or replicas that have to confirm it have not.
    pub(crate) async fn eval<K: ToRedisArgs, A: ToRedisArgs>(
        &self,
        code: &Code,
        keys: &[K],
        args: &[A],
        what: &str,
    ) -> Result<Result<Value, RedisError>, StoreError> {
        let wait = self.wait_within(WAIT_AT_MOST);
        let (answer, confirmed_by) = match self.eval_and_wait(code, keys, args, wait).await? {
            Ok(confirmed) => confirmed,
            Err(error) => return Ok(Err(error)),
        };
        if let (Some(wait), Some(confirmed_by)) = (wait, confirmed_by) {
            wait.check(what, Effect::Write, confirmed_by)?;
        }
        Ok(Ok(answer))
    }

    fn wait_within(&self, at_most: Duration) -> Option<Wait> {
        self.wait.map(|replicas| Wait { replicas, at_most })
    }

    /// Runs a script, once: what it answered, and how many replicas have confirmed it, if that is
    /// to be waited for.
    async fn eval_and_wait<K: ToRedisArgs, A: ToRedisArgs>(
        &self,
        code: &Code,
        keys: &[K],
        args: &[A],
        wait: Option<Wait>,
    ) -> Result<Result<Confirmed, RedisError>, StoreError> {
        let commands = |by: &str, script: &str| {
            let mut commands = redis::pipe();
            commands.cmd(by).arg(script).arg(keys.len()).arg(keys).arg(args);
            if let Some(wait) = wait {
                commands.cmd("WAIT").arg(wait.replicas).arg(wait.millis());
            }
            commands
        };
        let answer = self.ask_in_order(commands("EVALSHA", &code.hash)).await?;
        if answer.as_ref().is_err_and(|error| error.code() == Some("NOSCRIPT")) {
            // Nothing has happened. A server that was restarted or has taken over has to be told
            // the script once.
            return self.ask_in_order(commands("EVAL", &code.text)).await;
        }
        Ok(answer)
    }

    /// Sends a command, once. The inner error is the server's, or of the way to it; the outer one:
    /// it was not sent.
    ///
    /// A member of a cluster that no longer keeps our keys has done nothing: then the one that does
    /// is asked, once.
    pub(crate) async fn ask(&self, command: &Cmd) -> Result<Result<Value, RedisError>, StoreError> {
        let mut commands = redis::pipe();
        commands.add_command(command.clone());
        Ok(self.ask_in_order(commands).await?.map(|(answer, _)| answer))
    }

    /// A command, and perhaps a `WAIT` behind it.
    async fn ask_in_order(&self, mut commands: Pipeline) -> Result<Result<Confirmed, RedisError>, StoreError> {
        commands.ignore_errors();
        let answer = self.ask_once(&commands).await?;
        if answer.as_ref().is_err_and(|error| error.code() == Some("MOVED")) {
            return self.ask_once(&commands).await;
        }
        Ok(answer)
    }

    async fn ask_once(&self, commands: &Pipeline) -> Result<Result<Confirmed, RedisError>, StoreError> {
        let (generation, mut connection) = self.current().await?;
        let mut call = Call { connection: self, generation, since: Instant::now(), answered: false };
        let answers: Result<Vec<Result<Value, RedisError>>, RedisError> = commands.query_async(&mut connection).await;
        call.answered = true;
        let answer = answers.and_then(|answers| {
            let mut answers = answers.into_iter();
            let answer = answers.next().unwrap_or(Ok(Value::Nil))?;
            let confirmed_by = answers.next().map(|count| Ok(u32::from_redis_value(count?)?));
            Ok((answer, confirmed_by))
        });
        if answer.as_ref().is_err_and(ends_connection) {
            self.current.forget(generation);
        }
        Ok(answer)
    }

    /// What a script is told of that.
    fn known(&self) -> [String; 4] {
        let known = lock(&self.known);
        let shown = known.shown_by(self.clock.now()).as_millis();
        [known.store.clone(), keys::digits(known.change), known.lineage.clone(), shown.to_string()]
    }

    /// The store that answered last.
    pub(crate) fn known_store(&self) -> Option<StoreId> {
        let known = lock(&self.known);
        (!known.store.is_empty()).then(|| StoreId::new(known.store.clone()))
    }

    /// The next step dials again.
    pub(crate) fn leave(&self) {
        self.current.forget_current();
    }

    pub(crate) fn generation(&self) -> u64 {
        self.current.generation()
    }

    async fn current(&self) -> Result<(u64, MultiplexedConnection), StoreError> {
        let dial = |_| self.primary.clone().connect(self.own_keys.clone(), self.allow_eviction);
        self.current.get(dial).await
    }

    /// A connection of its own, for news.
    pub(crate) fn for_watches(
        &self,
        hear: impl Fn(redis::PushInfo) -> Result<(), ()> + Send + Sync + 'static,
    ) -> impl Future<Output = Result<MultiplexedConnection, StoreError>> + Send + 'static {
        self.primary.clone().connect_for_watches(AsyncConnectionConfig::new().set_push_sender(hear))
    }
}

/// What a command answered, and how many replicas have confirmed it, if they were asked.
type Confirmed = (Value, Option<Result<u32, RedisError>>);

/// How many replicas are waited for, and how long.
#[derive(Clone, Copy)]
struct Wait {
    replicas: u32,
    at_most: Duration,
}

impl Wait {
    /// Zero would be for ever.
    fn millis(self) -> u64 {
        u64::try_from(self.at_most.as_millis()).unwrap_or(u64::MAX).max(1)
    }

    /// The step was made. Whether it counts is for the replicas to say, and if the server cannot
    /// ask them (it has become one itself, say), it does not.
    fn check(self, what: &str, effect: Effect, confirmed_by: Result<u32, RedisError>) -> Result<(), StoreError> {
        let (count, source) = match confirmed_by {
            Ok(count) if count >= self.replicas => return Ok(()),
            Ok(count) => (count, None),
            Err(error) if is_denied(&error) => {
                return Err(classify(error, effect, "waiting for replicas (?wait=)"));
            }
            Err(error) => (0, Some(Arc::new(error) as _)),
        };
        let Wait { replicas, at_most } = self;
        let what =
            format!("{what}: {count} of {replicas} replicas have confirmed it within {at_most:?} (?wait={replicas})");
        Err(match effect {
            Effect::Write => StoreError::OutcomeUnknown { what, source },
            Effect::None => StoreError::Unavailable { what, source },
        })
    }
}

/// A step under way. Steps that are given up take their connection with them, once nothing was
/// heard on it for a while.
struct Call<'a> {
    connection: &'a Connection,
    generation: u64,
    since: Instant,
    answered: bool,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let mut silence = lock(&self.connection.silence);
        if self.answered {
            *silence = None;
            return;
        }
        let since = match *silence {
            Some((generation, since)) if generation == self.generation => since,
            _ => self.since,
        };
        *silence = Some((self.generation, since));
        if since.elapsed() >= SILENT_FOR {
            self.connection.current.forget(self.generation);
        }
    }
}

/// Identities that no other store was founded with.
#[derive(Debug)]
struct FreshIds {
    random: u128,
    count: AtomicU64,
}

impl FreshIds {
    fn new() -> Result<FreshIds, StoreError> {
        Ok(FreshIds { random: random_id()?, count: AtomicU64::new(0) })
    }

    fn next(&self) -> String {
        format!("redis-{:032x}-{}", self.random, self.count.fetch_add(1, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(store: &str, change: u64, lineage: &str, shows: u64) -> Answer {
        let parts = ["ok", store, &keys::digits(change), lineage, &shows.to_string()];
        let parts = parts.map(|part| Value::BulkString(part.as_bytes().to_vec()));
        Answer::read(Value::Array(parts.to_vec()), "testing").unwrap()
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    /// What came late, or from a primary that was replaced, is no news.
    #[test]
    fn what_is_known_of_a_store_is_the_newest_that_was_met() {
        let mut known = Known::default();
        known.note(&answer("one", 7, "first", 1_000), at(0));
        known.note(&answer("one", 9, "second", 5_000), at(1));
        known.note(&answer("one", 8, "first", 90_000), at(2));
        assert_eq!((known.change, &*known.lineage, known.shown_by(at(1))), (9, "second", Duration::from_secs(5)));
        // Ours may be faster than the store's, and an answer that was long on its way shows less.
        assert_eq!(known.shown_by(at(1_001)), Duration::from_secs(5 + 999));
        known.note(&answer("one", 9, "second", 5_500), at(11));
        assert_eq!(known.shown_by(at(11)), Duration::from_millis(14_990));
        known.note(&answer("one", 9, "second", 16_000), at(12));
        assert_eq!(known.shown_by(at(12)), Duration::from_secs(16));
        // Another store has another clock, and so has another history.
        known.note(&answer("one", 10, "third", 2_000), at(13));
        assert_eq!(known.shown_by(at(13)), Duration::from_secs(2));
        known.note(&answer("two", 1, "third", 0), at(14));
        assert_eq!((known.change, known.shown_by(at(14))), (1, Duration::ZERO));
    }
}
