//! The servers: how they are dialled, how long each lets a session last, and its tick. Knows
//! nothing of elections.
//!
//! A server takes a session over with a timeout of its own choice: it never lasts longer than that
//! server's `maxSessionTimeout`, whatever was granted before. It counts from the attempt to
//! connect, whether or not its answer arrives, and the client connects again by itself. So what a
//! session is granted is worth no more than the smallest limit of all servers that it may be moved
//! to. No server tells its limit, but each shows it: by what it grants.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use incumbent_store::{Effect, StoreError, lock, random_words};
use tokio::net::TcpStream;
use zookeeper_client::{Client, Connector, Error, SessionInfo, StateWatcher};

use crate::error::classify;

/// The shortest session that is asked for, to learn which is the shortest that is granted: two
/// ticks, unless somebody has set it otherwise.
const SHORTEST: Duration = Duration::from_secs(1);
/// Nobody is told of a limit that is longer than this.
const LONGEST_NEEDED: Duration = Duration::from_secs(3600);
/// A session that a server was asked with stays for as long as it was granted, but no longer than
/// this.
const STAYS: Duration = Duration::from_secs(60);
/// Servers count milliseconds in 32 bits.
const LONGEST: Duration = Duration::from_millis(i32::MAX as u64);
/// An opening waits this part of the TTL, and at most [`LONGEST_PATIENCE`], for servers that do not
/// answer.
const PATIENCE_SHARE: u32 = 10;
const LONGEST_PATIENCE: Duration = Duration::from_secs(1);

/// How long a dial goes unanswered before another one is begun beside it.
const STAGGER: Duration = Duration::from_secs(1);

/// What one server grants, or all of them do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Granted {
    /// The longest session.
    pub(crate) timeout: Duration,
    /// The unit in which its time passes.
    pub(crate) tick: Duration,
}

impl Granted {
    /// What both of two servers grant.
    fn and(self, other: Granted) -> Granted {
        Granted { timeout: self.timeout.min(other.timeout), tick: self.tick.max(other.tick) }
    }

    /// What is left of a TTL that was counted on, if a server has this limit. A longer tick takes
    /// more of it.
    fn leaves(self, counted: Granted) -> Duration {
        self.timeout.min(counted.timeout).saturating_sub(self.tick.saturating_sub(counted.tick))
    }
}

/// The servers, and what each of them last granted.
pub(crate) struct Servers {
    connector: Connector,
    names: Vec<String>,
    tls: bool,
    /// As the user says: then no server is asked for it.
    max_timeout: Option<Duration>,
    tick: Option<Duration>,
    /// By address.
    asked: Mutex<BTreeMap<String, Asked>>,
}

/// What is known of a server.
struct Asked {
    /// The most that it granted, until it grants less than is wanted: then that.
    limit: Granted,
    /// With which it was asked. To take a session over costs the ensemble no write, to open one
    /// does.
    session: SessionInfo,
}

impl Servers {
    pub(crate) fn new(
        connector: Connector,
        names: Vec<String>,
        tls: bool,
        max_timeout: Option<Duration>,
        tick: Option<Duration>,
    ) -> Servers {
        Servers { connector, names, tls, max_timeout, tick, asked: Mutex::default() }
    }

    pub(crate) fn names(&self) -> String {
        self.names.join(",")
    }

    /// A connection for a session of this length. When it is lost it is made again, to any server
    /// whose limit is known: one that was never heard may cut the session to a limit of its own all
    /// the same.
    pub(crate) async fn connect(&self, timeout: Duration) -> Result<Client, StoreError> {
        let known: Vec<_> = self.asked().keys().cloned().collect();
        // Each dial takes the servers in an order of its own.
        let servers = if self.is_declared() { self.names() } else { known.join(",") };
        self.first_of(&[&servers, &servers], timeout).await
    }

    /// A connection to one of them, which is of no use any more when it is lost.
    pub(crate) async fn connect_to_one(&self, timeout: Duration) -> Result<Client, StoreError> {
        let mut names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let [random] = random_words().unwrap_or_default();
        let first = random as usize % names.len().max(1);
        names.rotate_left(first);
        // The first one may not have been ready.
        names.extend(names.first().copied());
        self.first_of(&names, timeout).await
    }

    /// Dials the first of these, and the next whenever one has failed or has not answered for a
    /// while: a server that takes connections and says nothing would hold up a dial for two fifths
    /// of the timeout. The first that answers is taken.
    async fn first_of(&self, targets: &[&str], timeout: Duration) -> Result<Client, StoreError> {
        let connector = self.connector.clone().with_fail_eagerly().with_session_timeout(timeout.min(LONGEST));
        let mut dialling = FuturesUnordered::new();
        let mut refusal = Error::NoHosts;
        for target in targets {
            dialling.push(self.dial(connector.clone(), target));
            match tokio::time::timeout(STAGGER, dialling.next()).await {
                Ok(Some(Ok(client))) => return Ok(client),
                Ok(Some(Err(error))) => refusal = error,
                Ok(None) | Err(_) => {}
            }
        }
        while let Some(answer) = dialling.next().await {
            match answer {
                Ok(client) => return Ok(client),
                Err(error) => refusal = error,
            }
        }
        Err(self.sorted(refusal).await)
    }

    async fn dial(&self, connector: Connector, servers: &str) -> Result<Client, Error> {
        if self.tls { secure(connector, servers).await } else { connector.connect(servers).await }
    }

    async fn sorted(&self, error: Error) -> StoreError {
        let what = format!("dialling {}", self.names());
        match error {
            // There was no session before.
            Error::SessionExpired => StoreError::unavailable(what, error),
            // All that the client tells of a server that it cannot reach.
            Error::NoHosts | Error::ConnectionLoss => match self.why_unreached().await {
                Some(why) => StoreError::unavailable(what, why),
                None => StoreError::unavailable(what, error),
            },
            error => classify(error, Effect::None, &what),
        }
    }

    /// What is in the way of each server: its name is unknown, it refuses connections, or it takes
    /// them and does not serve.
    async fn why_unreached(&self) -> Option<io::Error> {
        let tries = self.names.iter().map(async |name| {
            match tokio::time::timeout(LONGEST_PATIENCE, TcpStream::connect(name)).await {
                Ok(Ok(_)) => io::Error::other(format!("{name} takes connections, but serves no ZooKeeper session")),
                Ok(Err(error)) => io::Error::new(error.kind(), format!("{name}: {error}")),
                Err(_) => io::Error::new(io::ErrorKind::TimedOut, format!("{name}: no answer")),
            }
        });
        let mut causes = join_all(tries).await;
        match causes.len() {
            0 | 1 => causes.pop(),
            _ => {
                let said: Vec<_> = causes.iter().map(io::Error::to_string).collect();
                Some(io::Error::new(causes[0].kind(), said.join("; ")))
            }
        }
    }

    /// Whether the user has said it all, so that no server is asked.
    pub(crate) fn is_declared(&self) -> bool {
        self.max_timeout.is_some() && self.tick.is_some()
    }

    /// What all servers grant, as far as they can be asked. Sessions of up to `ttl` and a tick are
    /// of interest.
    ///
    /// One that does not answer costs a moment. What it said last counts then; one that has never
    /// said anything does not count, and no session is moved to it.
    pub(crate) async fn limit(&self, ttl: Duration) -> Result<Granted, StoreError> {
        if let (Some(timeout), Some(tick)) = (self.max_timeout, self.tick) {
            return Ok(Granted { timeout, tick });
        }
        let patience = (ttl / PATIENCE_SHARE).min(LONGEST_PATIENCE);
        let addresses = self.addresses(patience).await;
        let mut asking: FuturesUnordered<_> = addresses.iter().map(|address| self.ask(address, ttl)).collect();
        let mut refusal = None;
        // The first answer is needed; the others are waited for a little.
        while let Some(answer) = asking.next().await {
            match answer {
                Ok(_) => break,
                Err(error) => refusal = Some(error),
            }
        }
        let others = async { while asking.next().await.is_some() {} };
        _ = tokio::time::timeout(patience, others).await;
        match self.known(&addresses) {
            Some(limit) => Ok(limit),
            None => Err(self.sorted(refusal.unwrap_or(Error::NoHosts)).await),
        }
    }

    /// What is known of the servers at these addresses. The others are forgotten, their names
    /// having moved; unless a name could not be looked up, and any of them may be behind it.
    fn known(&self, addresses: &[String]) -> Option<Granted> {
        let mut asked = self.asked();
        let unresolved = |address: &String| !self.tls && address.parse::<SocketAddr>().is_err();
        if !addresses.iter().any(unresolved) {
            asked.retain(|address, _| addresses.contains(address));
        }
        asked.values().map(|asked| asked.limit).reduce(Granted::and)
    }

    /// What all servers grant one who asks for as much as anybody needs.
    pub(crate) async fn longest(&self) -> Result<Granted, StoreError> {
        let limit = self.limit(LONGEST_NEEDED).await?;
        if limit.timeout > STAYS {
            _ = self.limit(SHORTEST).await;
        }
        let timeout = if limit.timeout < LONGEST_NEEDED { limit.timeout } else { Duration::MAX };
        Ok(Granted { timeout, ..limit })
    }

    /// A session may be moved to whatever is behind a name. A certificate, though, is for a name:
    /// with TLS a name is one server.
    async fn addresses(&self, patience: Duration) -> Vec<String> {
        if self.tls {
            return self.names.clone();
        }
        let resolved = self.names.iter().map(async |name| {
            let addresses = tokio::time::timeout(patience, tokio::net::lookup_host(name)).await;
            let addresses = addresses.ok().and_then(Result::ok).into_iter().flatten();
            let addresses: Vec<_> = addresses.map(|address| address.to_string()).collect();
            if addresses.is_empty() { vec![name.clone()] } else { addresses }
        });
        join_all(resolved).await.concat()
    }

    /// Asks one server, with a connection that ends at once.
    async fn ask(&self, address: &str, ttl: Duration) -> Result<Granted, Error> {
        let mut session = self.asked().get(address).map(|asked| asked.session.clone());
        let tick = match self.tick {
            Some(tick) => tick,
            None => self.granted(address, SHORTEST, &mut session).await? / 2,
        };
        // No tick that leaves anything of the TTL is longer than the TTL itself.
        let wanted = ttl.saturating_mul(2).min(LONGEST);
        let timeout = match self.max_timeout {
            Some(timeout) => timeout,
            None => self.granted(address, wanted, &mut session).await?,
        };
        let limit = Granted { timeout, tick };
        if let Some(session) = session {
            self.note(address, limit, wanted, session);
        }
        Ok(limit)
    }

    /// A server that grants all that is wanted has shown no limit: if it has granted more to one
    /// that wanted more, that still counts.
    fn note(&self, address: &str, mut limit: Granted, wanted: Duration, session: SessionInfo) {
        let mut asked = self.asked();
        if let Some(known) = asked.get(address)
            && limit.timeout >= wanted
        {
            limit.timeout = limit.timeout.max(known.limit.timeout);
        }
        asked.insert(address.to_owned(), Asked { limit, session });
    }

    /// What a server makes of this timeout.
    async fn granted(
        &self,
        address: &str,
        timeout: Duration,
        session: &mut Option<SessionInfo>,
    ) -> Result<Duration, Error> {
        let connector = self.connector.clone().with_fail_eagerly().with_session_timeout(timeout).with_detached();
        let again = session.take().map(|session| connector.clone().with_session(session));
        let client = match again {
            None => self.dial(connector, address).await?,
            Some(again) => match self.dial(again, address).await {
                Err(Error::SessionExpired) => self.dial(connector, address).await?,
                dialled => dialled?,
            },
        };
        let granted = client.session_timeout();
        *session = Some(client.into_session());
        Ok(granted)
    }

    /// Asks again and again, until some server leaves less of a TTL than was counted on: how much
    /// that is.
    ///
    /// Whenever the connection is lost or made again, and once per TTL. Never, where the user has
    /// said what to count on.
    pub(crate) async fn shortened(&self, mut state: StateWatcher, counted: Granted, ttl: Duration) -> Duration {
        if self.is_declared() {
            return std::future::pending().await;
        }
        loop {
            tokio::select! {
                left = until_some(ttl, || self.leaves_less(counted, ttl)) => return left,
                _ = state.changed() => {}
            }
        }
    }

    /// Asks all servers once, and no longer than for the TTL.
    async fn leaves_less(&self, counted: Granted, ttl: Duration) -> Option<Duration> {
        let asking = async {
            let addresses = self.addresses(ttl / PATIENCE_SHARE).await;
            let mut asking: FuturesUnordered<_> = addresses.iter().map(|address| self.ask(address, ttl)).collect();
            while let Some(answer) = asking.next().await {
                let left = answer.ok().map(|limit| limit.leaves(counted));
                if let Some(left) = left.filter(|left| *left < counted.timeout) {
                    return Some(left);
                }
            }
            None
        };
        tokio::time::timeout(ttl, asking).await.ok().flatten()
    }

    fn asked(&self) -> MutexGuard<'_, BTreeMap<String, Asked>> {
        lock(&self.asked)
    }
}

/// Asks until there is an answer, each time so long after it was last begun, however long it took.
async fn until_some<T, F: Future<Output = Option<T>>>(every: Duration, mut ask: impl FnMut() -> F) -> T {
    loop {
        // It counts from here.
        let rest = tokio::time::sleep(every);
        if let Some(answer) = ask().await {
            return answer;
        }
        rest.await;
    }
}

#[cfg(feature = "tls")]
async fn secure(connector: Connector, servers: &str) -> Result<Client, Error> {
    connector.secure_connect(servers).await
}

#[cfg(not(feature = "tls"))]
async fn secure(_connector: Connector, _servers: &str) -> Result<Client, Error> {
    Err(Error::Unimplemented)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn limit(timeout: u64, tick: u64) -> Granted {
        Granted { timeout: Duration::from_secs(timeout), tick: Duration::from_secs(tick) }
    }

    #[test]
    fn all_servers_grant_the_shortest_of_sessions_and_the_longest_of_ticks() {
        assert_eq!(limit(40, 2).and(limit(60, 3)), limit(40, 3));
        assert_eq!(limit(60, 3).and(limit(40, 2)), limit(40, 3));
    }

    #[test]
    fn what_a_server_leaves_of_a_ttl_is_its_own_limit_less_what_a_longer_tick_takes() {
        let counted = limit(17, 2);
        for (server, left) in
            [(limit(40, 2), 17), (limit(6, 2), 6), (limit(40, 1), 17), (limit(40, 6), 13), (limit(3, 9), 0)]
        {
            assert_eq!(server.leaves(counted), Duration::from_secs(left), "{server:?}");
        }
    }

    /// A server that says nothing takes up all the time that there is for asking.
    #[tokio::test(start_paused = true)]
    async fn servers_are_asked_once_per_ttl_however_long_they_take() {
        const TTL: Duration = Duration::from_secs(10);
        for takes in [Duration::ZERO, TTL / 2, TTL] {
            let begun = tokio::time::Instant::now();
            let mut asked = 0;
            let ask = || {
                asked += 1;
                async move {
                    tokio::time::sleep(takes).await;
                    (asked == 5).then_some(())
                }
            };
            until_some(TTL, ask).await;
            assert_eq!(begun.elapsed(), TTL * 4 + takes);
        }
    }

    #[tokio::test]
    async fn what_cannot_be_reached_is_named_with_its_cause() {
        let listens = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let refuses = format!("127.0.0.1:{}", incumbent_testkit::free_port());
        let names = [refuses.clone(), "nowhere.invalid:2181".to_owned()];
        let servers = Servers::new(Client::connector(), names.to_vec(), false, None, None);
        for error in [
            servers.limit(Duration::from_secs(4)).await.unwrap_err(),
            servers.connect_to_one(Duration::from_secs(4)).await.unwrap_err(),
        ] {
            let said = error.to_string();
            assert!(said.contains(&format!("{refuses}: Connection refused")), "{said}");
            assert!(said.contains("nowhere.invalid:2181: failed to lookup address"), "{said}");
            assert!(!said.contains("no available hosts"), "{said}");
        }
        let silent = listens.local_addr().unwrap().to_string();
        let servers = Servers::new(Client::connector(), vec![silent.clone()], false, None, None);
        let said = servers.sorted(Error::NoHosts).await.to_string();
        assert!(said.contains(&format!("{silent} takes connections")), "{said}");
    }

    #[tokio::test]
    async fn every_address_behind_a_name_is_a_server_and_a_name_that_says_nothing_is_one() {
        let servers = |tls| {
            let names = ["localhost:1".to_owned(), "nowhere.invalid:2".to_owned()];
            Servers::new(Client::connector(), names.to_vec(), tls, None, None)
        };
        let addresses = servers(false).addresses(Duration::from_secs(60)).await;
        assert!(addresses.contains(&"127.0.0.1:1".to_owned()) && !addresses.contains(&"localhost:1".to_owned()));
        assert!(addresses.contains(&"nowhere.invalid:2".to_owned()), "{addresses:?}");
        let addresses = servers(true).addresses(Duration::from_secs(60)).await;
        assert_eq!(addresses, ["localhost:1", "nowhere.invalid:2"], "a certificate is for a name");
    }
}
