//! The connection that steps are made on. It is dialled when it is needed, carries everybody's
//! steps at the same time, and repeats nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use incumbent_store::{StoreError, StoreId, random_id};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ProtocolVersion, RedisError, ToRedisArgs, Value};
use tokio::time::Instant;

use crate::answer::Answer;
use crate::error::{ends_connection, sort, sort_dial};
use crate::info::refuse_eviction;
use crate::keys::{self, Keys, TYPES};
use crate::lazy::Lazy;
use crate::step::{Code, Step};

/// How long a connection may take to come up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// A connection on which a step was given up after this long may be dead without a word: the next
/// step dials again.
const SILENT_FOR: Duration = Duration::from_secs(1);

/// One server, and what we know of the store there.
#[derive(Debug)]
pub(crate) struct Link {
    client: Client,
    pub(crate) keys: Keys,
    allow_eviction: bool,
    connection: Lazy<MultiplexedConnection>,
    known: Mutex<Known>,
    fresh: FreshIds,
}

/// The store that answered last, and the newest change of it that was met. It decides nothing about
/// who leads: a server that knows less of the same store was put back, and founds the store anew.
#[derive(Debug, Default)]
struct Known {
    store: String,
    change: u64,
}

impl Link {
    pub(crate) fn new(client: &Client, keys: Keys, allow_eviction: bool) -> Result<Link, StoreError> {
        // News come as pushes, which the older protocol does not have.
        let info = client.get_connection_info();
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name();
        let client = Client::open(info.clone().set_redis_settings(settings));
        let client = client.map_err(|error| sort_dial(error, "the address of the server"))?;
        let fresh = FreshIds::new()?;
        Ok(Link { client, keys, allow_eviction, connection: Lazy::new(), known: Mutex::default(), fresh })
    }

    /// Makes a step, once. `session_store`: the store that the session of the caller belongs to.
    pub(crate) async fn run(
        &self,
        step: &'static Step,
        session_store: Option<&StoreId>,
        args: &[&[u8]],
    ) -> Result<Answer, StoreError> {
        let keys: Vec<_> = self.keys.all().collect();
        let (known, change) = self.known();
        let fresh = self.fresh.next();
        let session_store = session_store.map_or("", StoreId::as_str);
        let ours = [fresh.as_str(), session_store, &known, &change].map(str::as_bytes);
        let args = [&ours, args].concat();
        let answer = self.eval(&step.script, &keys, &args).await?;
        let answer = Answer::read(answer.map_err(|error| sort(error, step.effect, step.what))?, step.what)?;
        self.note(&answer);
        Ok(answer)
    }

    /// Runs a script, once. The inner error is the server's, or of the way to it; the outer one: it
    /// was not sent.
    pub(crate) async fn eval<K: ToRedisArgs, A: ToRedisArgs>(
        &self,
        code: &Code,
        keys: &[K],
        args: &[A],
    ) -> Result<Result<Value, RedisError>, StoreError> {
        let command = |by: &str, script: &str| {
            let mut command = redis::cmd(by);
            command.arg(script).arg(keys.len()).arg(keys).arg(args);
            command
        };
        let answer = self.ask(&command("EVALSHA", &code.hash)).await?;
        if answer.as_ref().is_err_and(|error| error.code() == Some("NOSCRIPT")) {
            // Nothing has happened. A server that was restarted or has taken over has to be told
            // the script once.
            return self.ask(&command("EVAL", &code.text)).await;
        }
        Ok(answer)
    }

    /// Sends a command, once. The inner error is the server's, or of the way to it; the outer one:
    /// it was not sent.
    pub(crate) async fn ask(&self, command: &Cmd) -> Result<Result<Value, RedisError>, StoreError> {
        let (generation, mut connection) = self.connection().await?;
        let mut call = Call { link: self, generation, since: Instant::now(), answered: false };
        let answer = command.query_async(&mut connection).await;
        call.answered = true;
        if answer.as_ref().is_err_and(ends_connection) {
            self.connection.forget(generation);
        }
        Ok(answer)
    }

    fn known(&self) -> (String, String) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        (known.store.clone(), keys::digits(known.change))
    }

    fn note(&self, answer: &Answer) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.store != answer.store.as_str() {
            *known = Known { store: answer.store.as_str().to_owned(), change: 0 };
        }
        known.change = known.change.max(answer.change);
    }

    async fn connection(&self) -> Result<(u64, MultiplexedConnection), StoreError> {
        let dial = |_| {
            let (client, keys, allow_eviction) = (self.client.clone(), self.keys.clone(), self.allow_eviction);
            async move {
                let mut connection = dial(&client, AsyncConnectionConfig::new()).await?;
                greet(&mut connection, &keys, allow_eviction).await?;
                Ok(connection)
            }
        };
        self.connection.get(dial).await
    }

    /// A connection of its own, for news.
    pub(crate) fn news(
        &self,
        hear: impl Fn(redis::PushInfo) -> Result<(), ()> + Send + Sync + 'static,
    ) -> impl Future<Output = Result<MultiplexedConnection, StoreError>> + Send + 'static {
        let client = self.client.clone();
        async move { dial(&client, AsyncConnectionConfig::new().set_push_sender(hear)).await }
    }
}

async fn dial(client: &Client, config: AsyncConnectionConfig) -> Result<MultiplexedConnection, StoreError> {
    // How long an answer may take is for the caller to say.
    let config = config.set_connection_timeout(Some(CONNECT_TIMEOUT)).set_response_timeout(None);
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    let what = || format!("connecting to {}", client.get_connection_info().addr());
    // The client's own limit does not count what is said after the connection is there.
    match tokio::time::timeout(CONNECT_TIMEOUT, connection).await {
        Ok(connection) => connection.map_err(|error| sort_dial(error, &what())),
        Err(elapsed) => Err(StoreError::unavailable(what(), elapsed)),
    }
}

/// What has to be so before the first step: the server keeps what it is told, and nobody else uses
/// our keys.
async fn greet(connection: &mut MultiplexedConnection, keys: &Keys, allow_eviction: bool) -> Result<(), StoreError> {
    let mut questions = redis::pipe();
    questions.cmd("INFO").arg("memory");
    keys.all().for_each(|key| {
        questions.cmd("TYPE").arg(key);
    });
    let answers: Result<Vec<String>, RedisError> = questions.query_async(connection).await;
    let answers = answers.map_err(|error| sort_dial(error, "looking at the server"))?;
    let (memory, types) = answers.split_first().unzip();
    if !allow_eviction {
        refuse_eviction(memory.map_or("", String::as_str))?;
    }
    for ((key, is), should) in keys.all().zip(types.into_iter().flatten()).zip(TYPES) {
        if is != "none" && is != should {
            let what = format!("the key {key:?} is a {is} of somebody else's; choose another prefix (?prefix=...)");
            return Err(StoreError::Foreign { what });
        }
    }
    Ok(())
}

/// A step under way. Given up after a while, it takes its connection with it.
struct Call<'a> {
    link: &'a Link,
    generation: u64,
    since: Instant,
    answered: bool,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if !self.answered && self.since.elapsed() >= SILENT_FOR {
            self.link.connection.forget(self.generation);
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
