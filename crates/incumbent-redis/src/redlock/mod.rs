//! Redlock: three or five servers that know nothing of each other, and a lock that a majority of
//! them gives.
//!
//! # Where things are
//! Each server has one hash, `{incumbent}:redlock` unless the option `prefix` says otherwise.
//!
//! | field | what |
//! | --- | --- |
//! | `format`, `run`, `lineage`, `kept` | the format; the server's process, and its history, which is another after a promotion; whether all of it is on its disk |
//! | `server` | what the server calls itself: another name each time that it is emptied |
//! | `store` | the identity of the store that it belongs to: the names of the servers with which it was founded |
//! | `counter` | no token is higher that was given here |
//! | `longest`, `wait`, `age`, `aged`, `asked` | the longest TTL that was granted; how long it gives no locks after it was emptied, and how much of that has passed; the longest TTL of those who were told to wait |
//! | `/election` | the lock of an election: what is left of its time, its TTL, the counter when it was taken, the newest attempt that asked for it, token, version, session, incarnation, name, merit, readiness and value |
//!
//! # From the seam to the servers
//! Every request goes to all servers at once, and each has a tenth of the TTL to answer.
//!
//! | method | rounds |
//! | --- | --- |
//! | `open_session`, `identity` | one: which store do you belong to? With `open_session` more, if it is to be founded or mended |
//! | `enlist` | two: a majority gives the lock; then a majority, which still has it, takes a token above the highest counter of those that gave it |
//! | `renew` | one: each lock that is named lasts for another TTL. A majority, or the entry is `unproven`; or gone, if no majority can have it |
//! | `standing`, `line` | one: who has the lock? |
//! | `publish`, `withdraw`, `evict`, `close` | one |
//!
//! There is no line: the quickest gets the office, and those who wait look again after a tenth of
//! the TTL. Nor is there an office record, for which a majority of locks is no compare-and-set:
//! [`Unsupported`](incumbent_store::StoreError::Unsupported) is what pause, freeze, bench, end,
//! transfer, resign and depose come to, and a list of the elections.
//!
//! # What it takes care of
//! - **Tokens grow, whatever clocks do.** A server takes a token only for a lock that is still its
//!   owner's, and only one that is above its counter when the lock was taken. Two majorities share
//!   a server, and it takes each number once.
//! - **The second round counts.** A lock is claimed only if its TTL, less the drift, has not
//!   passed when the second round is over. What was taken in vain is given back, and the next
//!   attempt comes after a random rest. Each attempt has a number, and giving one back that
//!   arrives late does not reach what a later one has taken. A request for a lock that arrives
//!   after it was given back keeps that server's lock for a TTL, and nobody leads with it.
//! - **A lock that is gone is not made again** by a renewal, and a session that was not renewed for
//!   a TTL does not come back.
//! - **Emptied servers.** One that was restarted and did not write every change to its disk before
//!   it answers, or does not now and so may have read an older snapshot, or that was flushed, has
//!   forgotten locks and tokens. What it writes is read whenever it is asked for its store, and
//!   counts for the process that was asked only: the next one refuses to go by it, also where
//!   nobody was told of the restart. It says so, under a new name, until a client has read what a
//!   majority of the *others* knows, after it had seen the loss; its counter leaps above theirs, so
//!   that it is above tokens that were on their way to them; and it gives no locks before the
//!   longest TTL that they know of has passed. A majority that was emptied cannot be mended: the
//!   error says which word of an operator (`?refound=`) founds the store anew, with another
//!   identity. That names the servers which still have something, too: they are emptied, and no
//!   others. An old copy of a server's data must not be put back: what it says would be taken at
//!   its word.
//! - **Founding.** Where all servers are there and empty the first candidate founds the store, and
//!   candidates alone bring emptied servers back into it: who only reads may have mistyped an
//!   address, and leaves everything as it is. Its identity lists the names of the servers, so a
//!   client that finds it half founded knows which of them were never part of it, and completes it.
//!   Nobody leads for the TTL of the one who asks. An older leader whose TTL was longer may still
//!   believe in it: what its TTL was is lost with the servers. A server that is emptied in the
//!   middle of it may leave all of them in stores of which none has a majority: then, too, the
//!   error says which word of an operator empties them all and begins again.
//! - **Wall clocks.** What is left of a lock is counted in steps of at most half its TTL, so that a
//!   clock that jumps ends no lock which is renewed in time.
//! - **Addresses.** One server that is behind two addresses counts once, in every round: where an
//!   address leads may change while a leader is in office.
//! - **Replicas** are refused, and so is a server that has one: one that takes over does not know
//!   the newest locks. One that was promoted all the same counts as emptied, whatever is on its
//!   disk. A backup over the network (`redis-cli --rdb`) is a replica for as long as it takes:
//!   until then its server is as good as down, and has lost nothing when it is over.
//!
//! # What it rests on
//! That no two lead at once rests on time: a server's clock that runs faster than a candidate's by
//! more than a hundredth, or jumps while a leader does not renew, may end a lock before its leader
//! knows. Tokens do not rest on it.
//!
//! And on servers that are what their addresses say: one that was replaced while it still runs, and
//! somebody is connected to it, is two where one is counted, and nothing can see that.
//!
//! # Rights
//! `~{incumbent}* +evalsha +eval +info +time +type +del +hmget +hget +hset +hdel +hrandfield +hello
//! +ping`, and `+config|get`, without which every restart counts as a loss.

mod rounds;
mod rules;
mod server;
mod session;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use incumbent_store::{
    BootClock, Cas, Clock, Cursor, ElectionName, Entry, Fut, Line, LineKind, Office, Promises, Seen, Session, Store,
    StoreError, StoreId, TokenStrength, Version, Wake,
};
use redis::Client;

use self::rounds::{Asker, GRANULARITY, Rounds};
use self::rules::Rules;
#[cfg(test)]
pub(crate) use self::server::Lock;
use self::server::{RedisServer, Server};
use self::session::RedlockSession;
use crate::options;

/// The smallest TTL: a server has a tenth of it to answer.
const SMALLEST_TTL: Duration = Duration::from_secs(1);
/// An emptied server is left out for the longest TTL in use.
const LONGEST_TTL: Duration = Duration::from_secs(3_600);
/// How long a server has to answer one who has no session, and so no TTL.
const WITHIN: Duration = Duration::from_secs(1);

/// Elections by a majority of independent Redis servers.
///
/// Cheap to clone; clones share their connections, one to each server.
///
/// ```no_run
/// # fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use incumbent_redis::RedlockStore;
///
/// let store = RedlockStore::from_url("redlock://:password@10.0.0.1,10.0.0.2,10.0.0.3")?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RedlockStore {
    rounds: Arc<Rounds>,
}

/// How the servers of a Redlock are used.
#[derive(Clone, Debug)]
pub(crate) struct RedlockOptions {
    pub(crate) prefix: String,
    pub(crate) allow_eviction: bool,
    pub(crate) refound: Option<String>,
}

impl RedlockStore {
    /// Elections by the servers that a URL names:
    /// `redlock://[user:password@]a[:port],b,c[,d,e][/database][?prefix=...&eviction=allow]`, and
    /// with TLS `redlocks://...?ca=FILE[&cert=FILE&key=FILE]`.
    ///
    /// There are three or five, primaries without replicas, and everybody names the same ones. With
    /// `&refound=IDENTITY` a candidate founds the store anew where a majority of them was emptied,
    /// by the word of an operator: the error of a candidate that says so names the identity. One
    /// who only reads founds nothing.
    pub fn from_url(url: &str) -> Result<RedlockStore, StoreError> {
        let (clients, options) = options::parse_redlock_url(url)?;
        RedlockStore::over(&clients, &options)
    }

    fn over(clients: &[Client], options: &RedlockOptions) -> Result<RedlockStore, StoreError> {
        let server = |client| -> Result<Arc<dyn Server>, StoreError> {
            Ok(Arc::new(RedisServer::new(client, &options.prefix, options.allow_eviction)?))
        };
        let servers = clients.iter().map(server).collect::<Result<Vec<_>, _>>()?;
        Ok(RedlockStore::with_servers(servers, Arc::new(BootClock), options.refound.clone(), Rules::default()))
    }

    fn with_servers(
        servers: Vec<Arc<dyn Server>>,
        clock: Arc<dyn Clock>,
        refound: Option<String>,
        rules: Rules,
    ) -> RedlockStore {
        RedlockStore { rounds: Arc::new(Rounds::new(servers, clock, refound, rules)) }
    }

    async fn promises(&self) -> Result<Promises, StoreError> {
        let mut promises = Promises::new(self.identity().await?);
        // As was read when it was asked who it is: one that did not answer is not believed.
        if !self.rounds.all_keep_everything() {
            promises.tokens = TokenStrength::Volatile;
        }
        promises.line = LineKind::Single;
        promises.office_record = false;
        promises.watches = false;
        promises.smallest_ttl = SMALLEST_TTL;
        promises.longest_ttl = LONGEST_TTL;
        promises.granularity = GRANULARITY;
        let count = self.rounds.count();
        promises.caveats = vec![
            format!(
                "A majority of {count} servers gives the lock ({}): with {} of them away there are elections, with more \
                 there are none. All clients must name the same servers.",
                self.rounds.addresses(),
                count / 2
            ),
            "That no two lead at once rests on time: on servers' clocks that run at most a hundredth faster than those \
             of candidates, and do not jump while a leader fails to renew. Tokens grow whatever clocks do: attach a \
             fence to what must not be written by two."
                .to_owned(),
            "A server that was restarted or flushed is left out until the longest TTL has passed, unless it writes \
             every change to its disk before it answers (appendonly yes, appendfsync always, no-appendfsync-on-rewrite \
             no), before the restart and after it. If a majority has lost \
             its data, there are no elections until an operator founds the store anew (refound)."
                .to_owned(),
            "There is no line and no office record: pause, freeze, bench, end, transfer, resign and depose are refused, \
             and no election is listed. To move the office, stop the leader's process. Those who wait look for a free lock \
             every tenth of the TTL. While one of the servers hangs, each round takes as long as that, and the next \
             leader comes up to three quarters of a TTL later."
                .to_owned(),
        ];
        Ok(promises)
    }

    async fn identity(&self) -> Result<StoreId, StoreError> {
        Ok(StoreId::new(self.rounds.settle(WITHIN, Asker::Reader).await?))
    }

    async fn line(&self, election: &ElectionName, limit: usize) -> Result<Line, StoreError> {
        let (leader, servers) = self.rounds.read(election, WITHIN).await?;
        let more = leader.is_some() && limit == 0;
        let mut line = Line::new(leader.into_iter().take(limit).collect(), more, Office::default(), Cursor::default());
        line.servers = servers;
        Ok(line)
    }
}

/// Without anything that may be secret.
impl fmt::Debug for RedlockStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedlockStore").field(&self.rounds.addresses()).finish()
    }
}

impl Store for RedlockStore {
    fn promises(&self) -> Fut<'_, Promises> {
        Box::pin(self.promises())
    }

    fn identity(&self) -> Fut<'_, StoreId> {
        Box::pin(self.identity())
    }

    fn open_session(&self, ttl: Duration) -> Fut<'_, Arc<dyn Session>> {
        Box::pin(async move {
            let ttl = ttl.clamp(SMALLEST_TTL, LONGEST_TTL);
            let session = RedlockSession::open(self.rounds.clone(), ttl).await?;
            Ok(Arc::new(session) as Arc<dyn Session>)
        })
    }

    fn line<'a>(&'a self, election: &'a ElectionName, limit: usize) -> Fut<'a, Line> {
        Box::pin(self.line(election, limit))
    }

    fn watch(&self, _election: &ElectionName, _seen: &Seen, _from: Cursor) -> Wake {
        Box::pin(std::future::pending())
    }

    fn set_office<'a>(&'a self, _election: &'a ElectionName, _was: Version, _to: &'a Office) -> Fut<'a, Cas> {
        let what = "a Redlock has no office record: operators cannot pause, freeze, bench, end, transfer, resign or \
                    depose; to move the office, stop the leader's process";
        Box::pin(std::future::ready(Err(StoreError::Unsupported { what: what.to_owned() })))
    }

    fn evict<'a>(&'a self, election: &'a ElectionName, seen: &'a Entry) -> Fut<'a, Cas> {
        Box::pin(self.rounds.evict(election, seen, WITHIN))
    }
}
