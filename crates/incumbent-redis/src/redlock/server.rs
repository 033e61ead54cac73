//! One of the servers: what it is asked, what it answers, and how that is said to Redis.

use std::fmt;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use futures_util::future::join;
use incumbent_store::{
    BootClock, Effect, ElectionName, Entry, Fut, Held, Incarnation, StoreError, Token, Version, lock, random_id,
};
use redis::{Client, FromRedisValue, Value};

use crate::connection::Connection;
use crate::error::{classify, classify_script};
use crate::info::{NO_FSYNC_ON_REWRITE, field};
use crate::keys::{self, DIGITS, INCARNATION_BYTES, Keys, SESSION_BYTES};
use crate::primary::PrimaryLookup;
use crate::step::{Code, SERVER};
use crate::{entry, options};

/// It runs when memory is full, too: an election has one lock in all, and a candidate must be able
/// to take it.
pub(crate) static SCRIPT: LazyLock<Code> =
    LazyLock::new(|| Code::new(&["#!lua flags=allow-oom\n", SERVER, include_str!("../scripts/redlock.lua")]));

/// A server, which does what it is asked in one step, or not at all.
pub(crate) trait Server: fmt::Debug + Send + Sync + 'static {
    /// For messages.
    fn address(&self) -> String;

    /// Whether it writes every change to its disk before it answers, as was read last.
    fn keeps_everything(&self) -> bool;

    /// Asks once. An answer that was lost says nothing about what was done.
    fn ask<'a>(&'a self, request: &'a Request) -> Fut<'a, Answer>;
}

/// What a server is asked to do, if it belongs to this store.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Empty: whichever store it belongs to.
    pub(crate) store: String,
    pub(crate) verb: Verb,
}

#[derive(Clone, Debug)]
pub(crate) enum Verb {
    /// Nothing: it says which store it belongs to.
    Look,
    /// From now on it belongs to the request's store, if it is still as empty as when it said this
    /// name of itself.
    Seed {
        server: String,
        /// `None`: the store is being founded.
        counter: Option<u64>,
        /// Of the TTLs that were granted so far.
        longest: Duration,
    },
    /// It forgets all it knows, if it belongs to this store.
    Empty { of: String },
    /// The lock of an election.
    Read(ElectionName),
    /// The lock is this stay's, if it is free or was so before.
    Acquire { stay: Stay, attempt: u64, ttl: Duration, said: Vec<u8> },
    /// The lock has this token, if it is this stay's and no such token was given before.
    Number { stay: Stay, attempt: u64, token: Token },
    /// The locks that are named last for another TTL; those of the elections in `tried` are shown.
    Renew { session: String, ttl: Duration, named: Vec<Held>, tried: Vec<ElectionName> },
    /// The locks of a session go; with a stay, only what that gives up.
    Release { session: String, stay: Option<GivenUp>, elections: Vec<ElectionName> },
    /// What the candidate says becomes another, if it has this version, or an older one.
    Publish { session: String, held: Held, was: Version, version: Version, said: Vec<u8> },
    /// The lock with this token and incarnation goes, unless what it says is newer.
    Evict { election: ElectionName, token: Token, incarnation: Incarnation, version: Version },
}

/// Somebody who stands in an election.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stay {
    pub(crate) session: String,
    pub(crate) election: ElectionName,
    pub(crate) incarnation: Incarnation,
}

/// What a stay gives up: a lock with no higher token than this, or with none where this is `None`,
/// for which no later attempt than this has asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GivenUp {
    pub(crate) incarnation: Incarnation,
    pub(crate) token: Option<Token>,
    pub(crate) attempt: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    /// What it calls itself. It has another name each time that it is emptied.
    pub(crate) server: String,
    /// The store that it belongs to. `None`: it is empty.
    pub(crate) store: Option<String>,
    /// No token is higher that was given here.
    pub(crate) counter: u64,
    /// The longest TTL that it knows to have been granted.
    pub(crate) longest: Duration,
    pub(crate) reply: Reply,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reply {
    Done,
    Refused,
    /// It does not belong to the store: nothing was done.
    Other,
    /// It was emptied, and gives no locks for so long.
    Wait(Duration),
    Locks(Vec<Option<Lock>>),
}

/// A lock, as a server shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Lock {
    pub(crate) session: String,
    pub(crate) incarnation: Incarnation,
    /// `None`: no token was written to it yet, and nobody leads with it.
    pub(crate) entry: Option<Entry>,
}

impl Lock {
    pub(crate) fn token(&self) -> Option<Token> {
        self.entry.as_ref().map(|entry| entry.token)
    }

    pub(crate) fn is_of(&self, stay: &Stay) -> bool {
        self.session == stay.session && self.incarnation == stay.incarnation
    }

    /// Token, version, session, incarnation, name and what else the candidate says. `None`: it is
    /// damaged.
    pub(crate) fn parse(shown: &[u8]) -> Option<Lock> {
        let (token, kept) = shown.split_at_checked(DIGITS)?;
        let part = |from: usize, bytes: usize| std::str::from_utf8(kept.get(from..from + bytes)?).ok();
        let session = part(DIGITS, SESSION_BYTES)?.to_owned();
        let incarnation = part(DIGITS + SESSION_BYTES, INCARNATION_BYTES)?.parse().ok()?;
        let entry = match keys::parse_digits(std::str::from_utf8(token).ok()?)? {
            0 => None,
            _ => Some(entry::parse(token, kept)?),
        };
        Some(Lock { session, incarnation, entry })
    }
}

/// A name for a session, as wide as those of a store on one server.
pub(crate) fn session_name() -> Result<String, StoreError> {
    let name = format!("{:032x}", random_id()?);
    Ok(name[..SESSION_BYTES].to_owned())
}

/// A Redis server, with a connection of its own.
#[derive(Debug)]
pub(crate) struct RedisServer {
    connection: Connection,
    script: &'static Code,
    address: String,
    key: String,
    /// Read again whenever it is asked which store it belongs to, since what it keeps can be
    /// changed while it runs.
    process: Mutex<Option<Process>>,
}

/// What is known of the process that answers there. Another one refuses to go by it: it may keep
/// less than the one before it did, and not every call that was lost on the way to it has told us.
#[derive(Clone, Debug)]
struct Process {
    /// Redis draws it at each start.
    run: String,
    /// Whether it writes to its disk before it answers; `None`: that is not known yet.
    keeps: Option<bool>,
}

impl RedisServer {
    pub(crate) fn new(client: &Client, prefix: &str, allow_eviction: bool) -> Result<RedisServer, StoreError> {
        let keys = Keys::new(prefix)?;
        let (address, key) = (client.get_connection_info().addr().to_string(), keys.redlock());
        let route = PrimaryLookup::Servers(vec![options::speaking_resp3(client)?]);
        let own = vec![keys.own_redlock()];
        let connection = Connection::new(route, keys, own, allow_eviction, None, Arc::new(BootClock))?;
        Ok(RedisServer { connection, script: &SCRIPT, address, key, process: Mutex::default() })
    }

    /// For tests: another script.
    #[cfg(test)]
    pub(crate) fn with_script(self, script: &'static Code) -> RedisServer {
        RedisServer { script, ..self }
    }

    async fn ask_once(&self, request: &Request) -> Result<Answer, StoreError> {
        let known = lock(&self.process).clone();
        let answer = match known {
            // One that was given up has learnt so much, and the next begins there: a server that is
            // far away would never be heard otherwise.
            Some(Process { run, keeps: None }) => self.read_and_tell(request, &run).await?,
            // Side by side, in one round trip: what is read counts from the next request on.
            Some(Process { run, keeps: Some(keeps) }) if matches!(request.verb, Verb::Look) => {
                let (answer, read) = join(self.tell(request, &run, keeps), self.read_keeps(&run)).await;
                read.and(answer)?
            }
            Some(Process { run, keeps: Some(keeps) }) => self.tell(request, &run, keeps).await?,
            None => None,
        };
        if let Some(answer) = answer {
            return Ok(answer);
        }
        // Nothing was done yet.
        match self.read_and_tell(request, &self.read_run().await?).await? {
            Some(answer) => Ok(answer),
            None => {
                let what = format!("{} at {}: it was restarted a moment ago", request.verb.what(), self.address);
                Err(StoreError::Unavailable { what, source: None })
            }
        }
    }

    async fn read_and_tell(&self, request: &Request, run: &str) -> Result<Option<Answer>, StoreError> {
        let keeps = self.read_keeps(run).await?;
        self.tell(request, run, keeps).await
    }

    /// `None`: it is another process, and has done nothing.
    async fn tell(&self, request: &Request, run: &str, keeps: bool) -> Result<Option<Answer>, StoreError> {
        let what = || format!("{} at {}", request.verb.what(), self.address);
        let keeps = if keeps { "always" } else { "" };
        // What an empty server is called: nothing but a test depends on who chose it.
        let fresh = format!("{:08x}", random_id()? >> 96);
        let ours = [fresh.as_str(), run, keeps, &request.store, request.verb.word()];
        let args = [ours.map(|arg| arg.as_bytes().to_vec()).to_vec(), request.verb.args()].concat();
        let answer = self.connection.eval(self.script, std::slice::from_ref(&self.key), &args, &what()).await?;
        if answer.as_ref().is_err_and(|error| error.code() == Some("INCRESTARTED")) {
            return Ok(None);
        }
        let answer = answer.map_err(|error| {
            classify_script(error, request.verb.effect(), &what(), self.script, &self.connection.keys.pattern())
        })?;
        let corrupt = || StoreError::Corrupt { what: format!("{}: the answer cannot be read", what()) };
        read(answer).ok_or_else(corrupt).map(Some)
    }

    async fn read_run(&self) -> Result<String, StoreError> {
        let what = "asking which process it is";
        let info = self.connection.ask(redis::cmd("INFO").arg("server")).await?;
        let info = info.and_then(|info| Ok(String::from_redis_value(info)?));
        let info = info.map_err(|error| classify(error, Effect::None, what))?;
        let Some(run) = field(&info, "run_id") else {
            let what = format!("{what}: the server at {} does not say it (run_id)", self.address);
            return Err(StoreError::Unavailable { what, source: None });
        };
        *lock(&self.process) = Some(Process { run: run.to_owned(), keeps: None });
        Ok(run.to_owned())
    }

    /// What it keeps, of the process that was met before: if it is the same when it is told so, it
    /// was the same in between.
    async fn read_keeps(&self, run: &str) -> Result<bool, StoreError> {
        let settings = ["appendonly", "appendfsync", NO_FSYNC_ON_REWRITE];
        // Not everybody may ask for this: then it is not believed.
        let config = self.connection.ask(redis::cmd("CONFIG").arg("GET").arg(&settings)).await?;
        let config = config.ok().and_then(|config| std::collections::HashMap::from_redis_value(config).ok());
        let is = |name: &str, value: &str| config.as_ref().is_some_and(|config| is_set(config, name, value));
        let keeps = is("appendonly", "yes") && is("appendfsync", "always") && !is(NO_FSYNC_ON_REWRITE, "yes");
        *lock(&self.process) = Some(Process { run: run.to_owned(), keeps: Some(keeps) });
        Ok(keeps)
    }
}

fn is_set(config: &std::collections::HashMap<String, String>, name: &str, value: &str) -> bool {
    config.get(name).is_some_and(|is| is == value)
}

impl Server for RedisServer {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn keeps_everything(&self) -> bool {
        lock(&self.process).as_ref().is_some_and(|process| process.keeps == Some(true))
    }

    fn ask<'a>(&'a self, request: &'a Request) -> Fut<'a, Answer> {
        Box::pin(self.ask_once(request))
    }
}

impl Verb {
    fn word(&self) -> &'static str {
        match self {
            Verb::Look => "look",
            Verb::Seed { .. } => "seed",
            Verb::Empty { .. } => "empty",
            Verb::Read(_) => "read",
            Verb::Acquire { .. } => "acquire",
            Verb::Number { .. } => "number",
            Verb::Renew { .. } => "renew",
            Verb::Release { .. } => "release",
            Verb::Publish { .. } => "publish",
            Verb::Evict { .. } => "evict",
        }
    }

    /// For messages.
    fn what(&self) -> &'static str {
        match self {
            Verb::Look => "asking which store it is",
            Verb::Seed { .. } | Verb::Empty { .. } => "telling which store it is",
            Verb::Read(_) => "reading who leads",
            Verb::Acquire { .. } => "taking the lock",
            Verb::Number { .. } => "writing the token",
            Verb::Renew { .. } => "renewing",
            Verb::Release { .. } => "releasing the lock",
            Verb::Publish { .. } => "publishing",
            Verb::Evict { .. } => "evicting",
        }
    }

    fn effect(&self) -> Effect {
        match self {
            Verb::Look | Verb::Read(_) | Verb::Renew { .. } => Effect::None,
            _ => Effect::Write,
        }
    }

    fn args(&self) -> Vec<Vec<u8>> {
        let text = |text: &str| text.as_bytes().to_vec();
        let name = |election: &ElectionName| text(election.as_str());
        let token = |token: Token| text(&keys::digits(token.get()));
        let version = |version: Version| text(&keys::digits(version.0));
        let number = |number: u64| text(&keys::digits(number));
        match self {
            Verb::Look => Vec::new(),
            Verb::Seed { server, counter, longest } => {
                let counter = counter.map(keys::digits).unwrap_or_default();
                vec![text(server), text(&counter), millis(*longest)]
            }
            Verb::Empty { of } => vec![text(of)],
            Verb::Read(election) => vec![name(election)],
            Verb::Acquire { stay, attempt, ttl, said } => {
                let Stay { session, election, incarnation } = stay;
                let incarnation = text(&incarnation.to_string());
                vec![name(election), text(session), incarnation, number(*attempt), millis(*ttl), said.clone()]
            }
            Verb::Number { stay, attempt, token: given } => {
                let Stay { session, election, incarnation } = stay;
                let incarnation = text(&incarnation.to_string());
                vec![name(election), text(session), incarnation, number(*attempt), token(*given)]
            }
            Verb::Renew { session, ttl, named, tried } => {
                let mut args = vec![text(session), millis(*ttl), text(&named.len().to_string())];
                args.extend(named.iter().flat_map(|held| [name(&held.election), token(held.token)]));
                args.extend(tried.iter().map(name));
                args
            }
            Verb::Release { session, stay, elections } => {
                let given_up = stay.map(|GivenUp { incarnation, token, attempt }| {
                    [text(&incarnation.to_string()), number(token.map_or(0, Token::get)), number(attempt)]
                });
                let mut args = vec![text(session)];
                args.extend(given_up.unwrap_or_default());
                args.extend(elections.iter().map(name));
                args
            }
            Verb::Publish { session, held, was, version: to, said } => {
                vec![name(&held.election), text(session), token(held.token), version(*was), version(*to), said.clone()]
            }
            Verb::Evict { election, token: of, incarnation, version: seen } => {
                vec![name(election), token(*of), text(&incarnation.to_string()), version(*seen)]
            }
        }
    }
}

/// Whole milliseconds, as scripts count them.
fn millis(time: Duration) -> Vec<u8> {
    keys::ttl_digits(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)).into_bytes()
}

/// `None`: it has another form than this version gives it.
fn read(answer: Value) -> Option<Answer> {
    let Value::Array(parts) = answer else { return None };
    let mut parts = parts.into_iter();
    let mut text = || match parts.next()? {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        _ => None,
    };
    let (word, server, store) = (text()?, text()?, text()?);
    let (counter, longest) = (keys::parse_digits(&text()?)?, Duration::from_millis(text()?.parse().ok()?));
    let reply = match word.as_str() {
        "ok" => Reply::Done,
        "refused" => Reply::Refused,
        "other" => Reply::Other,
        "wait" => Reply::Wait(Duration::from_millis(text()?.parse().ok()?)),
        "locks" => {
            let Value::Array(locks) = parts.next()? else { return None };
            Reply::Locks(locks.into_iter().map(read_lock).collect::<Option<_>>()?)
        }
        _ => return None,
    };
    Some(Answer { server, store: Some(store).filter(|store| !store.is_empty()), counter, longest, reply })
}

fn read_lock(shown: Value) -> Option<Option<Lock>> {
    match shown {
        Value::BulkString(shown) if shown.is_empty() => Some(None),
        Value::BulkString(shown) => Lock::parse(&shown).map(Some),
        _ => None,
    }
}
