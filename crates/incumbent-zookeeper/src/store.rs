//! The store: connections, lines and the office record.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::FutureExt;
use incumbent_store::{
    Cas, Cursor, Effect, ElectionName, Ended, Entry, Fut, Line, Nonce, Office, Promises, Seen, Session, Store,
    StoreError, StoreId, Token, Version, Wake, lock, random_id,
};
use zookeeper_client::{
    Client, Connector, CreateMode, CreateOptions, Error, MultiWriteError, SessionId, Stat, StateWatcher,
};

use crate::connection::{HighestZxid, check_up, or_cut};
use crate::dialect::Dialect;
use crate::error::{classify, found, writing};
use crate::line::Reader;
use crate::node::is_about;
use crate::options::{Access, SCHEME, ZooKeeperOptions};
use crate::paths::{Paths, ancestors, parse_id, zxid};
use crate::servers::{Granted, Servers};
use crate::session::ZooKeeperSession;
use crate::watcher;

/// How long the servers remember the connection that is shared: watches outlive this much silence.
const SHARED_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a tombstone of go-leaderelection's counts: as long as it is there.
const FOR_GOOD: Duration = Duration::from_secs(24 * 3600);
/// How often nodes that are missing are made again.
const ATTEMPTS: usize = 8;
/// How many elections are remembered as having no entries of another dialect.
const MOST_CLEAN: usize = 10_000;

/// Elections in ZooKeeper, in our own dialect or in that of Curator, kazoo or go-leaderelection.
///
/// Cheap to clone; clones share their connection.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use incumbent_zookeeper::{Dialect, ZooKeeperOptions, ZooKeeperStore};
///
/// // A connection of your own. It carries any number of candidacies; when its session expires, they are over.
/// let client = zookeeper_client::Client::connector()
///     .with_session_timeout(std::time::Duration::from_secs(20))
///     .connect("127.0.0.1:2181")
///     .await?;
/// let tick = std::time::Duration::from_secs(2); // The servers' tickTime.
/// let store = ZooKeeperStore::new(client, tick);
///
/// // Or a URL. Connections are made when they are needed, and again when a session has expired.
/// let store = ZooKeeperStore::from_url("zk://10.0.0.1,10.0.0.2,10.0.0.3/team?dialect=curator-latch")?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ZooKeeperStore {
    pub(crate) inner: Arc<Inner>,
}

/// What the handles, the sessions and the watches of one store share.
pub(crate) struct Inner {
    source: Source,
    pub(crate) paths: Paths,
    access: Access,
    shared: tokio::sync::Mutex<Option<Client>>,
    pub(crate) seen: HighestZxid,
    pub(crate) watches: AtomicUsize,
    places: Mutex<Places>,
}

/// What is known of lines.
#[derive(Debug, Default)]
struct Places {
    /// The nodes of our own entries.
    own: BTreeMap<(ElectionName, Token), String>,
    /// Elections in which no other dialect was met.
    clean: BTreeMap<ElectionName, ()>,
}

/// Where connections come from.
enum Source {
    /// The user's own, the only one.
    Given(Box<Given>),
    Dialled(Arc<Servers>),
}

/// A connection of the user's.
struct Given {
    client: Client,
    /// As the user says: nobody can be asked.
    tick: Duration,
    /// As the user says: what every server grants that the connection may be made to.
    max_timeout: Option<Duration>,
    /// Since the store was made.
    lost: Mutex<Lost>,
}

/// Whether a connection was lost in the meantime.
struct Lost {
    state: StateWatcher,
    lost: bool,
}

impl Given {
    /// Whether the connection was lost since the store was made: then it may have been made again,
    /// with another timeout.
    fn was_lost(&self) -> bool {
        let mut known = lock(&self.lost);
        // A change that was followed by others counts, whatever they were.
        known.lost |= known.state.changed().now_or_never().is_some();
        known.lost
    }
}

/// What a session is opened on.
pub(crate) struct GrantedConnection {
    pub(crate) client: Client,
    /// Whether the connection is the session's own.
    pub(crate) owned: bool,
    /// What is counted on.
    pub(crate) counted: Granted,
    /// Who tells when that is no longer true.
    pub(crate) timeout_watch: TimeoutWatch,
}

/// When a session can no longer count on the timeout that it was opened with.
#[derive(Clone)]
pub(crate) enum TimeoutWatch {
    /// Never: the user has said what to count on.
    Never,
    /// When the connection is lost: nobody can tell what the next server grants.
    Connection(StateWatcher),
    /// When a server says so.
    Servers(Arc<Servers>, StateWatcher, Duration),
}

impl ZooKeeperStore {
    /// Elections over a connection that the user owns and has set up, to servers whose `tickTime`
    /// is `tick`.
    ///
    /// Everything goes over it. When its session expires that is final: candidates are told, and
    /// standing again needs a new store. Its session timeout should be longer than the TTL by a
    /// tick or two.
    ///
    /// Losing the connection is as final: the next server may grant another timeout, and nobody can
    /// ask it. Terms end at once then. [`ZooKeeperStore::with_client`] with
    /// [`ZooKeeperOptions::max_session_timeout`] says what every server grants; then they go on. A
    /// connection that was lost before the store was made cannot be told from one that was not.
    pub fn new(client: Client, tick: Duration) -> ZooKeeperStore {
        ZooKeeperStore::over(Source::given(client, tick, None), "", &ZooKeeperOptions::new())
    }

    /// The same, in the dialect and below the path that `options` say, with their `tick`, which is
    /// needed, and their `max_session_timeout`. What else they say of connections does not count.
    pub fn with_client(client: Client, options: &ZooKeeperOptions) -> Result<ZooKeeperStore, StoreError> {
        let tick = options.tick.ok_or_else(|| StoreError::Misuse {
            what: "on a connection of your own nobody can ask for the servers' tickTime: say it with \
                   ZooKeeperOptions::tick"
                .to_owned(),
        })?;
        let source = Source::given(client, tick, options.max_session_timeout);
        Ok(ZooKeeperStore::over(source, options.checked_chroot()?, options))
    }

    /// Elections over these servers of one ensemble, e.g. `10.0.0.1:2181`.
    ///
    /// They are dialled when they are needed. Each session has a connection of its own, and there
    /// is one more for everything else. Servers let no session last longer than their
    /// `maxSessionTimeout`, 20 ticks unless it is set, and a session may be moved to any of them:
    /// settings that need a longer TTL than all of them grant are refused. Each is asked for that
    /// with a short connection, when a session is opened, when its connection is lost or made
    /// again, and once per TTL; or nobody is, if [`ZooKeeperOptions::max_session_timeout`] and
    /// [`ZooKeeperOptions::tick`] say it.
    pub fn connect<S: AsRef<str>>(servers: &[S], options: &ZooKeeperOptions) -> Result<ZooKeeperStore, StoreError> {
        ZooKeeperStore::with_connector(options.connector()?, servers, options)
    }

    /// The same with a connector of your own: for SASL, say. Its session timeout is replaced by
    /// the TTL.
    pub fn with_connector<S: AsRef<str>>(
        connector: Connector,
        servers: &[S],
        options: &ZooKeeperOptions,
    ) -> Result<ZooKeeperStore, StoreError> {
        if servers.is_empty() {
            return Err(StoreError::Misuse { what: "a ZooKeeper store needs at least one server".to_owned() });
        }
        let servers: Result<Vec<_>, _> = servers.iter().map(|server| SCHEME.server(server.as_ref())).collect();
        let servers = Servers::new(connector, servers?, options.is_tls(), options.max_session_timeout, options.tick);
        Ok(ZooKeeperStore::over(Source::Dialled(Arc::new(servers)), options.checked_chroot()?, options))
    }

    /// Elections over the ensemble that a URL names.
    ///
    /// `zk://[user:password@]host:port[,host:port ...][/chroot][?option=value&...]`, or `zks://`
    /// for TLS. The port is 2181 if it is not given. User, password, chroot and options are
    /// percent-encoded where they need to be. The options:
    ///
    /// - `dialect`: `ours`, `curator-latch`, `curator-selector`, `kazoo` or `go-leaderelection`
    /// - `acl`: `open` or `creator`; who may touch what we make. `creator` if there is a user, else
    ///   `open`
    /// - `tick`: the servers' `tickTime`, e.g. `2s`, if their `minSessionTimeout` was set to less
    ///   than two of them
    /// - `max-session-timeout`: the smallest `maxSessionTimeout` of all servers, e.g. `40s`; else
    ///   they are asked
    /// - `ca`, with TLS: a file with the certificates that are trusted (PEM)
    /// - `cert`, `key`: files with our own certificate and its key (PEM)
    pub fn from_url(url: &str) -> Result<ZooKeeperStore, StoreError> {
        let (servers, options) = crate::options::parse_url(url)?;
        ZooKeeperStore::connect(&servers, &options)
    }

    /// Makes the connection now, to learn whether the servers are there.
    pub async fn ready(&self) -> Result<(), StoreError> {
        self.inner.client().await.map(|_| ())
    }

    /// In which dialect the elections are held.
    pub fn dialect(&self) -> Dialect {
        self.inner.paths.dialect()
    }

    /// For tests and benchmarks: how many watches wait now.
    #[doc(hidden)]
    pub fn watches(&self) -> usize {
        self.inner.watches.load(Relaxed)
    }

    fn over(source: Source, root: &str, options: &ZooKeeperOptions) -> ZooKeeperStore {
        let inner = Inner {
            source,
            paths: Paths::new(root, options.dialect),
            access: options.granted_access(),
            shared: tokio::sync::Mutex::default(),
            seen: HighestZxid::default(),
            watches: AtomicUsize::new(0),
            places: Mutex::default(),
        };
        ZooKeeperStore { inner: Arc::new(inner) }
    }
}

impl Source {
    fn given(client: Client, tick: Duration, max_timeout: Option<Duration>) -> Source {
        let lost = Mutex::new(Lost { state: client.state_watcher(), lost: false });
        Source::Given(Box::new(Given { client, tick, max_timeout, lost }))
    }
}

impl TimeoutWatch {
    /// Resolves when less can be counted on than `counted`: with how much.
    pub(crate) async fn shortened(self, counted: Granted) -> Duration {
        match self {
            TimeoutWatch::Never => std::future::pending().await,
            TimeoutWatch::Connection(mut state) => {
                state.changed().await;
                Duration::ZERO
            }
            TimeoutWatch::Servers(servers, state, ttl) => servers.shortened(state, counted, ttl).await,
        }
    }
}

fn check_given(client: &Client) -> Result<(), StoreError> {
    match check_up(client) {
        Err(StoreError::SessionGone) => Err(StoreError::Misuse {
            what: "the session of the ZooKeeper client that this store was given is over: make a new client and a \
                   new store"
                .to_owned(),
        }),
        other => other,
    }
}

fn nobody_knows() -> StoreError {
    StoreError::Misuse {
        what: "the connection of the ZooKeeper client that this store was given was lost, and nobody can tell which \
               session timeout counts since it was made again: make a new client and a new store, or say with \
               ZooKeeperOptions::max_session_timeout what every server grants"
            .to_owned(),
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Inner");
        match &self.source {
            Source::Given(given) => debug.field("session", &given.client.session_id()),
            Source::Dialled(servers) => debug.field("servers", &servers.names()),
        };
        debug.field("paths", &self.paths).finish_non_exhaustive()
    }
}

impl Inner {
    fn places(&self) -> MutexGuard<'_, Places> {
        lock(&self.places)
    }

    /// The node of an entry of ours.
    pub(crate) fn own_place(&self, election: &ElectionName, token: Token) -> Option<String> {
        self.places().own.get(&(election.clone(), token)).cloned()
    }

    pub(crate) fn remember_place(&self, election: &ElectionName, token: Token, name: &str) {
        self.places().own.insert((election.clone(), token), name.to_owned());
    }

    pub(crate) fn forget_place(&self, election: &ElectionName, token: Token) {
        self.places().own.remove(&(election.clone(), token));
    }

    /// Whether entries of another dialect have been looked for in vain.
    pub(crate) fn is_clean(&self, election: &ElectionName) -> bool {
        self.places().clean.contains_key(election)
    }

    pub(crate) fn remember_clean(&self, election: &ElectionName, clean: bool) {
        let mut places = self.places();
        if !clean {
            places.clean.remove(election);
            return;
        }
        if places.clean.len() >= MOST_CLEAN {
            places.clean.clear();
        }
        places.clean.insert(election.clone(), ());
    }

    pub(crate) fn mode(&self, mode: CreateMode) -> CreateOptions<'static> {
        mode.with_acls(self.access.acls())
    }

    /// How nodes are made that others need, too.
    pub(crate) fn mode_above(&self) -> CreateOptions<'static> {
        CreateMode::Persistent.with_acls(self.access.acls_above())
    }

    /// Makes a node and all above it. The nodes of lines are containers: ZooKeeper removes them
    /// when they are empty.
    pub(crate) async fn make(&self, client: &Client, path: &str, mode: CreateMode) -> Result<(), StoreError> {
        for _ in 0..ATTEMPTS {
            match client.create(path, &[], &self.mode(mode)).await {
                Ok(_) | Err(Error::NodeExists) => return Ok(()),
                Err(Error::NoNode) => {}
                Err(error) => return Err(classify(error, Effect::None, "making a place for the election")),
            }
            let missing: Vec<_> = ancestors(path).filter(|path| *path != "/").collect();
            for above in missing.into_iter().rev() {
                let mode = if self.is_lasting(above) { CreateMode::Persistent } else { mode };
                let options = if self.is_above(above) { self.mode_above() } else { self.mode(mode) };
                match client.create(above, &[], &options).await {
                    Ok(_) | Err(Error::NodeExists | Error::NoNode) => {}
                    Err(error) => return Err(classify(error, Effect::None, "making a place for the election")),
                }
            }
        }
        Err(StoreError::Unavailable { what: format!("{path} keeps going away"), source: None })
    }

    /// What is above the root: others may have their own there.
    fn is_above(&self, path: &str) -> bool {
        ancestors(self.paths.root()).any(|above| above == path)
    }

    /// The root, what is above it, and what is ours.
    fn is_lasting(&self, path: &str) -> bool {
        self.paths.root().starts_with(path) || path.starts_with(&self.paths.own())
    }

    /// The connection that is not a session's.
    pub(crate) async fn client(&self) -> Result<Client, StoreError> {
        match &self.source {
            Source::Given(given) => {
                check_given(&given.client)?;
                Ok(given.client.clone())
            }
            Source::Dialled(servers) => {
                let mut shared = self.shared.lock().await;
                if let Some(client) = shared.as_ref().filter(|client| check_up(client).is_ok()) {
                    return Ok(client.clone());
                }
                // The old one would come back by itself, but takes longer and longer to try. There
                // is nothing on it that a new one has not.
                *shared = None;
                let client = servers.connect_to_one(SHARED_TIMEOUT).await?;
                Ok(shared.insert(client).clone())
            }
        }
    }

    /// The shared connection is of no use any more, whatever its state says: its runtime has ended,
    /// say.
    async fn give_up(&self, session: SessionId) {
        let mut shared = self.shared.lock().await;
        if shared.as_ref().is_some_and(|shared| shared.session_id() == session) {
            *shared = None;
        }
    }

    /// What a session with this TTL is opened on.
    pub(crate) async fn granted_connection(&self, ttl: Duration) -> Result<GrantedConnection, StoreError> {
        match &self.source {
            Source::Given(given) => {
                let client = given.client.clone();
                // Before the look at what has happened so far.
                let state = client.state_watcher();
                check_given(&client)?;
                let granted = client.session_timeout();
                let (timeout, timeout_watch) = match given.max_timeout {
                    Some(longest) => (longest.min(granted), TimeoutWatch::Never),
                    None if given.was_lost() => return Err(nobody_knows()),
                    None => (granted, TimeoutWatch::Connection(state)),
                };
                Ok(GrantedConnection {
                    client,
                    owned: false,
                    counted: Granted { timeout, tick: given.tick },
                    timeout_watch,
                })
            }
            Source::Dialled(servers) => {
                let limit = servers.limit(ttl).await?;
                // What the tick takes from it is asked for on top; and no more than all grant, so
                // that all grant the same.
                let client = servers.connect(ttl.saturating_add(limit.tick).min(limit.timeout)).await?;
                let counted = Granted { timeout: client.session_timeout().min(limit.timeout), ..limit };
                let timeout_watch = TimeoutWatch::Servers(servers.clone(), client.state_watcher(), ttl);
                Ok(GrantedConnection { client, owned: true, counted, timeout_watch })
            }
        }
    }

    /// The store's identity: written once, and then read.
    pub(crate) async fn store_id(&self, client: &Client) -> Result<StoreId, StoreError> {
        let path = self.paths.id();
        for _ in 0..ATTEMPTS {
            if let Some((data, _)) = found(client.get_data(&path).await, "asking who is there")? {
                let id = String::from_utf8(data).ok().filter(|id| !id.is_empty());
                let id = id.ok_or_else(|| StoreError::Corrupt { what: format!("{path} cannot be read") })?;
                return Ok(StoreId::new(id));
            }
            self.make(client, &self.paths.own(), CreateMode::Persistent).await?;
            let id = format!("zookeeper-{:032x}", random_id()?);
            match client.create(&path, id.as_bytes(), &self.mode(CreateMode::Persistent)).await {
                Ok(_) | Err(Error::NodeExists | Error::NoNode) => {}
                Err(error) => return Err(classify(error, Effect::None, "writing down who is there")),
            }
        }
        Err(StoreError::Unavailable { what: format!("{path} keeps going away"), source: None })
    }

    async fn promises(&self) -> Result<Promises, StoreError> {
        let client = self.client().await?;
        let mut promises = Promises::new(or_cut(&client, Effect::None, self.store_id(&client)).await?);
        let limit = match &self.source {
            Source::Given(given) => {
                let granted = given.client.session_timeout();
                Granted { timeout: given.max_timeout.map_or(granted, |longest| longest.min(granted)), tick: given.tick }
            }
            Source::Dialled(servers) => servers.longest().await?,
        };
        promises.smallest_ttl = limit.tick;
        promises.longest_ttl = limit.timeout;
        promises.margin = limit.tick;
        promises.granularity = limit.tick;
        promises.foreign_heed_end = self.paths.dialect().marks_the_end();
        promises.caveats = vec![
            "An ensemble's leader that stalls for longer than a tick may expire a session early: fence what matters."
                .to_owned(),
            self.caveat_of_timeouts(),
            "Restoring a snapshot may take tokens back, without changing the identity of the store.".to_owned(),
            "The paths of all entries of one session have to fit into jute.maxbuffer (1 MiB, some thousands of elections)."
                .to_owned(),
        ];
        if self.paths.dialect().is_foreign() {
            promises.caveats.push(format!(
                "The line is in the order of {}, whose numbers go round after two thousand million candidates.",
                self.paths.dialect().name()
            ));
        }
        Ok(promises)
    }

    /// What remains of it that each server has a longest session of its own.
    fn caveat_of_timeouts(&self) -> String {
        let (declared, asked) = match &self.source {
            Source::Given(given) => (given.max_timeout.is_some(), "Losing the connection ends every term on it."),
            Source::Dialled(servers) => (
                servers.is_declared(),
                "Each server is asked for the longest session that it grants (maxSessionTimeout). One that lowers it, and \
                 takes a session over before it is asked again, may expire it early: say max-session-timeout, and \
                 fence what matters.",
            ),
        };
        let declared =
            declared.then_some("A server that grants shorter sessions than max-session-timeout may expire one early.");
        declared.unwrap_or(asked).to_owned()
    }

    async fn evict(&self, election: &ElectionName, seen: &Entry) -> Result<Cas, StoreError> {
        self.on_shared(Effect::Write, |client| async move { self.evict_on(&client, election, seen).await }).await
    }

    async fn evict_on(&self, client: &Client, election: &ElectionName, seen: &Entry) -> Result<Cas, StoreError> {
        let Some((name, token)) = parse_id(&seen.id).filter(|(_, token)| *token == seen.token) else {
            return Ok(Cas::Done);
        };
        let reader = Reader::new(self, client, election)?;
        let Some((entry, stat)) = reader.entry(name).await? else { return Ok(Cas::Done) };
        if stat.czxid != zxid(token) || entry.incarnation != seen.incarnation {
            return Ok(Cas::Done);
        }
        if entry.version != seen.version {
            return Ok(Cas::Refused);
        }
        self.remove(&reader, name, &stat, Some(seen)).await
    }

    /// Removes an entry and what is beside it; exactly what was seen, if that is given.
    pub(crate) async fn remove(
        &self,
        reader: &Reader<'_>,
        name: &str,
        stat: &Stat,
        seen: Option<&Entry>,
    ) -> Result<Cas, StoreError> {
        let path = reader.path_of(name);
        let record_path = self.paths.candidate(reader.election, name, stat.ephemeral_owner);
        let foreign = self.paths.dialect().is_foreign();
        let record = match foreign {
            true => found(reader.client.check_stat(&record_path).await, "reading a candidate's record")?.flatten(),
            false => None,
        };
        // Left by another entry.
        let record = record.filter(|record| is_about(record, stat));
        let version = seen.map(|_| stat.version);
        let deleted = match record {
            None => reader.client.delete(&path, version).await,
            Some(record) => {
                let mut writer = reader.client.new_multi_writer();
                let added = writer
                    .add_delete(&path, version)
                    .and_then(|()| writer.add_delete(&record_path, seen.map(|_| record.version)));
                match added {
                    Ok(()) => writer.commit().await.map(|_| ()).map_err(Error::from),
                    Err(error) => Err(error),
                }
            }
        };
        match deleted {
            Ok(()) => Ok(Cas::Done),
            Err(Error::BadVersion) => Ok(Cas::Refused),
            // It went, or what is beside it did: then it is alone.
            Err(Error::NoNode) => match reader.client.delete(&path, version).await {
                Ok(()) | Err(Error::NoNode) => Ok(Cas::Done),
                Err(Error::BadVersion) => Ok(Cas::Refused),
                Err(error) => Err(writing("removing an entry")(error)),
            },
            Err(error) => Err(writing("removing an entry")(error)),
        }
    }

    /// Makes a call on the shared connection, and gives up with it.
    pub(crate) async fn on_shared<T, F: Future<Output = Result<T, StoreError>>>(
        &self,
        effect: Effect,
        call: impl FnOnce(Client) -> F,
    ) -> Result<T, StoreError> {
        let client = self.client().await?;
        let done = or_cut(&client, effect, call(client.clone())).await;
        self.shared_outcome(done, client.session_id()).await
    }

    /// What goes wrong on the shared connection is no session's end.
    pub(crate) async fn shared_outcome<T>(
        &self,
        done: Result<T, StoreError>,
        session: SessionId,
    ) -> Result<T, StoreError> {
        match done {
            Err(StoreError::SessionGone) => {
                self.give_up(session).await;
                let what = "the connection that is shared has lost its session; it is made anew".to_owned();
                Err(StoreError::Unavailable { what, source: None })
            }
            other => other,
        }
    }

    async fn line(&self, election: &ElectionName, limit: usize) -> Result<Line, StoreError> {
        let read = |client| async move { Reader::new(self, &client, election)?.line(limit).await };
        self.on_shared(Effect::None, read).await
    }

    async fn set_office(&self, election: &ElectionName, was: Version, to: &Office) -> Result<Cas, StoreError> {
        self.on_shared(Effect::Write, |client| async move { self.set_office_on(&client, election, was, to).await })
            .await
    }
}

/// What go-leaderelection's mark of the end means to us.
pub(crate) fn ended_by(zxid: i64) -> Ended {
    Ended::new(Nonce(zxid.unsigned_abs()), FOR_GOOD)
}

/// How a transaction failed, as one error.
pub(crate) fn of_multi(error: MultiWriteError) -> (Option<usize>, Error) {
    match error {
        MultiWriteError::RequestFailed { source } => (None, source),
        MultiWriteError::OperationFailed { index, source } => (Some(index), source),
    }
}

impl Store for ZooKeeperStore {
    fn promises(&self) -> Fut<'_, Promises> {
        Box::pin(self.inner.promises())
    }

    fn identity(&self) -> Fut<'_, StoreId> {
        Box::pin(self.inner.on_shared(Effect::None, move |client| async move { self.inner.store_id(&client).await }))
    }

    fn open_session(&self, ttl: Duration) -> Fut<'_, Arc<dyn Session>> {
        Box::pin(async move {
            let connection = self.inner.granted_connection(ttl).await?;
            let session = ZooKeeperSession::open(self.inner.clone(), connection).await?;
            Ok(Arc::new(session) as Arc<dyn Session>)
        })
    }

    fn elections(&self, limit: usize) -> Fut<'_, Vec<ElectionName>> {
        Box::pin(self.inner.elections(limit))
    }

    fn line<'a>(&'a self, election: &'a ElectionName, limit: usize) -> Fut<'a, Line> {
        Box::pin(self.inner.line(election, limit))
    }

    fn watch(&self, election: &ElectionName, seen: &Seen, from: Cursor) -> Wake {
        watcher::watch_election(self.inner.clone(), election.clone(), seen.clone(), from)
    }

    fn set_office<'a>(&'a self, election: &'a ElectionName, was: Version, to: &'a Office) -> Fut<'a, Cas> {
        Box::pin(self.inner.set_office(election, was, to))
    }

    fn evict<'a>(&'a self, election: &'a ElectionName, seen: &'a Entry) -> Fut<'a, Cas> {
        Box::pin(self.inner.evict(election, seen))
    }
}
