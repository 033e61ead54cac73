//! A mark in Redis that refuses older tokens, for what is written to Redis.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use incumbent_store::fence::{BoxFuture, Fence, FenceError, FencingToken, Mark, check_election, log_reset};
use incumbent_store::{Effect, ElectionName, StoreError, StoreId, Token};
use redis::{FromRedisValue, RedisError, Value};

use crate::RedisStore;
use crate::connection::Connection;
use crate::error::classify;
use crate::keys::parse_so_many_digits;
use crate::step::Code;

/// What is written before every guarded script, and can be written before one in any language.
const FENCE: &str = include_str!("scripts/incumbent_fence.lua");

/// How many keys, and how many words, a script is given at most. Lua takes no list of 8,000 apart:
/// it would fail where the mark may have been raised and some of the writes been made.
const MOST: usize = 7_000;

/// A write that is made in one step with others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedisWrite {
    key: Vec<u8>,
    command: Vec<Vec<u8>>,
}

impl RedisWrite {
    /// `SET key value`.
    pub fn set(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> RedisWrite {
        RedisWrite::new("SET", key, [value.into()])
    }

    /// `HSET key field value`.
    pub fn hset(key: impl Into<Vec<u8>>, field: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> RedisWrite {
        RedisWrite::new("HSET", key, [field.into(), value.into()])
    }

    /// `DEL key`.
    pub fn del(key: impl Into<Vec<u8>>) -> RedisWrite {
        RedisWrite::new("DEL", key, [])
    }

    /// Any command on one key, which is its first argument: `RedisWrite::new("LPUSH", "queue",
    /// ["job".into()])`.
    pub fn new(command: &str, key: impl Into<Vec<u8>>, args: impl IntoIterator<Item = Vec<u8>>) -> RedisWrite {
        let key = key.into();
        let command = [command.as_bytes().to_vec(), key.clone()].into_iter().chain(args).collect();
        RedisWrite { key, command }
    }
}

/// A script that runs behind a fence.
#[derive(Clone, Debug)]
pub struct GuardedScript {
    code: Arc<Code>,
}

impl GuardedScript {
    /// The text of a script, in Lua. Its `KEYS` and `ARGV` are its own; every key that it uses is
    /// among its `KEYS`. Checks come before writes: what a script has written stays when it fails
    /// afterwards.
    pub fn new(text: &str) -> GuardedScript {
        GuardedScript { code: Code::new(&[FENCE, text]).into() }
    }
}

/// Guards what is written to Redis: every write compares the mark in the same script.
///
/// The mark may be on the same server as the election or on another. It is worth as much as that
/// server's persistence: a mark that goes back lets older leaders in. With
/// [`wait`](crate::RedisOptions::wait) replicas confirm it, and what is written behind it.
///
/// In a cluster a mark guards the keys of its own slot: give them one hash tag, as in
/// `{orders}:mark` and `{orders}:42`. A candidate may have several fences, one for each slot.
///
/// Cheap to clone; clones share a connection, which is the fence's own.
///
/// ```no_run
/// # use incumbent_redis::{GuardedScript, RedisFence, RedisStore, RedisWrite};
/// # use incumbent_store::ElectionName;
/// # use incumbent_store::fence::FencingToken;
/// # type Done = Result<(), Box<dyn std::error::Error>>;
/// # async fn example(store: RedisStore, election: ElectionName, token: FencingToken) -> Done {
/// let fence = RedisFence::new(&store, &election, "orders:mark");
/// // Attached to a candidate, it is raised when that is elected. From then on:
/// fence.write(&token, [RedisWrite::set("orders:last", "42"), RedisWrite::del("orders:next")]).await?;
/// // Or with a script of your own:
/// let take = GuardedScript::new("return redis.call('RPOPLPUSH', KEYS[1], KEYS[2])");
/// let taken = fence.run(&token, &take, &["orders".into(), "orders:taken".into()], &[]).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct RedisFence {
    store: RedisStore,
    connection: Arc<Connection>,
    /// The generation of the store's connections that this one follows: a mark is raised at the
    /// server that made the leader, and not at the primary before it.
    follows: Arc<AtomicU64>,
    election: ElectionName,
    key: Vec<u8>,
}

/// What a script does with the mark.
#[derive(Clone, Copy)]
enum Mode {
    /// A leader takes office: only that makes a mark.
    Raise,
    Write,
}

impl RedisFence {
    /// Keeps its mark at `key`, for the leaders of `election`.
    pub fn new(store: &RedisStore, election: &ElectionName, key: impl Into<Vec<u8>>) -> RedisFence {
        let key = key.into();
        let connection = Arc::new(store.inner.connection_for_mark(&key));
        RedisFence { store: store.clone(), connection, follows: Arc::default(), election: election.clone(), key }
    }

    /// Checks the token and makes `writes`, in one step. A token above the mark raises it; without
    /// a mark nothing is written. If one of several writes fails, those before it are made.
    ///
    /// They have 7,000 words at most, counting each command's name and key and one more for each
    /// command. More are refused, and none is made.
    ///
    /// If the answer is lost, or replicas have not confirmed them, [`FenceError::Unavailable`]
    /// leaves open whether they were made.
    pub async fn write(&self, token: &FencingToken, writes: impl Into<Vec<RedisWrite>>) -> Result<(), FenceError> {
        static WRITE: LazyLock<Code> = LazyLock::new(|| Code::new(&[FENCE, include_str!("scripts/writes.lua")]));
        let (mut keys, mut args) = (Vec::new(), Vec::new());
        for RedisWrite { key, command } in writes.into() {
            keys.push(key);
            args.push(command.len().to_string().into_bytes());
            args.extend(command);
        }
        self.run_as(Mode::Write, token, &WRITE, &keys, &args).await.map(drop)
    }

    /// Checks the token and runs a script of your own, in one step: what it answers. It gets 7,000
    /// keys and as many arguments at most.
    pub async fn run(
        &self,
        token: &FencingToken,
        script: &GuardedScript,
        keys: &[Vec<u8>],
        args: &[Vec<u8>],
    ) -> Result<Value, FenceError> {
        self.run_as(Mode::Write, token, &script.code, keys, args).await
    }

    /// An operator's act, for a store that was replaced or restored, or a mark that was lost: from
    /// now on the tokens of `store` count, from the first one. Make sure that no leader of the old
    /// store still runs. It is logged as a warning, with the reason.
    pub async fn reset(&self, store: &StoreId, reason: &str) -> Result<(), FenceError> {
        static READ: LazyLock<Code> = LazyLock::new(|| Code::new(&["return redis.call('GET', KEYS[1])"]));
        static RESET: LazyLock<Code> = LazyLock::new(|| Code::new(&[include_str!("scripts/reset.lua")]));
        let (what, mark) = ("resetting a mark", self.encode(&Mark::reset(store, reason)?).into_bytes());
        let keys = std::slice::from_ref(&self.key);
        let was = self.eval(&READ, keys, &[], what).await?.map_err(|error| classify(error, Effect::None, what))?;
        let was = Vec::<u8>::from_redis_value(was).unwrap_or_default();
        let reset = self.eval(&RESET, keys, &[mark, was.clone()], what).await?;
        reset.map_err(|error| classify(error, Effect::Write, what))?;
        // One that cannot be read is replaced, too.
        let was = String::from_utf8(was).ok().and_then(|was| decode(&was));
        log_reset(&self.election, was.as_ref(), store, reason);
        Ok(())
    }

    async fn run_as(
        &self,
        mode: Mode,
        token: &FencingToken,
        code: &Code,
        keys: &[Vec<u8>],
        args: &[Vec<u8>],
    ) -> Result<Value, FenceError> {
        Mark::admit(None, token)?;
        if keys.len().max(args.len()) > MOST {
            let what = format!("one step behind a fence takes {MOST} keys and words at most: make several of it");
            return Err(FenceError::Misuse { what });
        }
        let digits = digits(Some(token.token));
        let (mode, what) = match mode {
            Mode::Raise => ("raise", "raising a mark"),
            Mode::Write if self.connection.wait().is_some() => ("waited", "writing behind a mark"),
            Mode::Write => ("write", "writing behind a mark"),
        };
        let ours = [mode, &digits, token.store.as_str(), self.election.as_str()].map(|arg| arg.as_bytes().to_vec());
        let keys = [std::slice::from_ref(&self.key), keys].concat();
        let args = [&ours, args].concat();
        let answer = self.eval(code, &keys, &args, what).await?;
        answer.map_err(|error| self.refused(error, token, what))
    }

    /// Runs a script, once. What replicas have not confirmed may have been asked of a primary that
    /// was replaced, and was not told: the next script asks whichever is the primary then.
    async fn eval(
        &self,
        code: &Code,
        keys: &[Vec<u8>],
        args: &[Vec<u8>],
        what: &str,
    ) -> Result<Result<Value, RedisError>, StoreError> {
        let generation = self.store.inner.generation();
        if self.follows.swap(generation, Ordering::SeqCst) != generation {
            self.connection.leave();
        }
        let answer = self.connection.eval(code, keys, args, what).await;
        if answer.is_err() {
            self.connection.leave();
        }
        answer
    }

    /// What the mark says, or why it says nothing.
    fn refused(&self, error: RedisError, token: &FencingToken, what: &str) -> FenceError {
        let place = String::from_utf8_lossy(&self.key);
        let said = error.detail().unwrap_or_default();
        let mark = match error.code() {
            Some("FENCED") => parse_digits(said).map(|seen| Mark { store: token.store.clone(), token: seen }),
            Some("FENCEREPLACED") => said
                .split_once(' ')
                .and_then(|(seen, store)| Some(Mark { store: StoreId::new(store), token: parse_digits(seen)? })),
            Some("FENCEELECTION") => {
                let election = self.election.as_str();
                return FenceError::Misuse { what: format!("the mark of {said:?} was shown a token of {election:?}") };
            }
            Some("FENCENOMARK") => {
                let what = format!(
                    "there is no mark at {place:?}: attach the fence to the candidate, which raises it when it is \
                     elected; if the mark was deleted, make sure that no older leader runs and reset the fence"
                );
                return FenceError::Misuse { what };
            }
            Some("FENCEDAMAGED") => None,
            Some("CROSSSLOT") => {
                let what = format!(
                    "{what}: in a cluster the mark {place:?} guards the keys of its own slot, and these are in several: \
                     give them and the mark one hash tag, as in {{orders}}:mark and {{orders}}:42"
                );
                return FenceError::Misuse { what };
            }
            code => {
                let (has_code, said) = (code.is_some(), format!("{what}: {error}"));
                return match classify(error, Effect::Write, what) {
                    // A script of one's own says so, and its author knows what it means.
                    StoreError::OutcomeUnknown { .. } if has_code => FenceError::Misuse { what: said },
                    sorted => sorted.into(),
                };
            }
        };
        // The one comparison that all fences share says what it means.
        let refusal = mark.and_then(|mark| Mark::admit(Some(&mark), token).err());
        refusal.unwrap_or_else(|| FenceError::Corrupt { what: format!("the mark at {place:?} cannot be read") })
    }

    fn encode(&self, mark: &Mark) -> String {
        format!("{}\n{}\n{}", digits(mark.token), mark.store, self.election)
    }
}

impl Fence for RedisFence {
    fn raise<'a>(&'a self, election: &'a ElectionName, to: FencingToken) -> BoxFuture<'a, Result<(), FenceError>> {
        static RAISE: LazyLock<Code> = LazyLock::new(|| Code::new(&[FENCE, "return redis.status_reply('OK')"]));
        Box::pin(async move {
            check_election(&self.election, election)?;
            self.run_as(Mode::Raise, &to, &RAISE, &[], &[]).await.map(drop)
        })
    }
}

/// As the script compares them. All zeros: the mark was reset, and no token was seen since.
pub(crate) fn digits(token: Option<Token>) -> String {
    format!("{:019}", token.map_or(0, Token::get))
}

/// `None`: they are damaged.
fn parse_digits(digits: &str) -> Option<Option<Token>> {
    parse_so_many_digits(digits, 19).map(Token::new)
}

/// As the script takes it apart.
pub(crate) fn decode(mark: &str) -> Option<Mark> {
    let mut lines = mark.splitn(3, '\n');
    let token = parse_digits(lines.next()?)?;
    let mut named = || lines.next().filter(|name| !name.is_empty());
    let (store, _election) = (named()?, named()?);
    Some(Mark { token, store: StoreId::new(store) })
}
