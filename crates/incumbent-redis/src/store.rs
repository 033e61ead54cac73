//! The store: sessions, lines, watches and the office record.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use incumbent_store::record::encode_office;
use incumbent_store::{
    BootClock, Cas, Clock, Cursor, Effect, ElectionName, Entry, EntryId, Fut, Head, LONGEST, Line, Office, Promises,
    Seen, Session, Store, StoreError, StoreId, TokenStrength, Version, Wake, Watched,
};
use redis::{Client, FromRedisValue, Value};

use crate::answer::Answer;
use crate::connection::{Caller, Connection};
use crate::error::{classify, is_denied};
use crate::info::{NO_FSYNC_ON_REWRITE, Server};
use crate::keys::{self, Keys};
use crate::options::{self, RedisOptions};
use crate::primary::PrimaryLookup;
use crate::session::RedisSession;
use crate::step::{self, Step};
use crate::watcher::{Interest, On, Watcher, founded};

/// The smallest TTL: of a shorter one a round trip leaves too little.
const SMALLEST_TTL: Duration = Duration::from_millis(100);
/// After a restart everybody waits for the longest TTL in use: one candidate with a long one would
/// shut all elections.
const LONGEST_TTL: Duration = Duration::from_secs(3_600);
/// How many entries and bytes are read at a time: the server stands still meanwhile.
const PAGE_ENTRIES: usize = 500;
const PAGE_BYTES: usize = 1 << 20;
/// How often reading a long line begins again, each time with pages of twice the size.
const READINGS: u32 = 8;

/// Elections in Redis.
///
/// Cheap to clone; clones share their connections: one for steps, one for notifications, and with
/// `wait` one for the steps that replicas have to confirm.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use incumbent_redis::{RedisOptions, RedisStore};
///
/// // A server, which is dialled when it is needed.
/// let store = RedisStore::from_url("redis://:password@10.0.0.1:6379/0")?;
/// // Or as a client of your own reaches it.
/// let client = redis::Client::open("redis://10.0.0.1")?;
/// let store = RedisStore::new(&client, &RedisOptions::new().prefix("team"))?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct RedisStore {
    pub(crate) inner: Arc<Inner>,
}

/// What the handles, the sessions and the watches of one store share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) connection: Arc<Connection>,
    /// Where steps are made that replicas are to confirm: a step there waits for all before it.
    waited: Option<Connection>,
    watcher: Arc<Watcher>,
    /// By which a session knows when it was renewed.
    pub(crate) clock: Arc<dyn Clock>,
}

impl RedisStore {
    /// Elections on the server of this client. Connections are the store's own: the client says
    /// where to, and who we are.
    pub fn new(client: &Client, options: &RedisOptions) -> Result<RedisStore, StoreError> {
        RedisStore::with_clock(client, options, Arc::new(BootClock))
    }

    /// The same with another clock than the host's boot-time clock, e.g. one that a test moves by
    /// hand. After a failover it says whether a session was renewed less than a TTL ago.
    pub fn with_clock(
        client: &Client,
        options: &RedisOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<RedisStore, StoreError> {
        RedisStore::over(PrimaryLookup::Servers(vec![options::speaking_resp3(client)?]), options, clock)
    }

    fn over(route: PrimaryLookup, options: &RedisOptions, clock: Arc<dyn Clock>) -> Result<RedisStore, StoreError> {
        let keys = Keys::new(&options.prefix)?;
        let connect = |wait| {
            Connection::new(route.clone(), keys.clone(), keys.own(), options.allow_eviction, wait, clock.clone())
        };
        let waited = options.wait.map(|replicas| connect(Some(replicas))).transpose()?;
        let connection = Arc::new(connect(None)?);
        let watcher = Watcher::new(connection.clone());
        Ok(RedisStore { inner: Arc::new(Inner { connection, waited, watcher, clock }) })
    }

    /// Elections on the server that a URL names:
    /// `redis://[user:password@]host[:port][/database][?prefix=...&eviction=allow&wait=1]`, and
    /// with TLS `rediss://...?ca=FILE[&cert=FILE&key=FILE]`.
    ///
    /// Several servers, `redis://a,b,c`, are members of a cluster, of which the one that keeps our
    /// keys is asked. With `?sentinel=NAME` they are Sentinels, as in
    /// `redis://a:26379,b:26379?sentinel=mymaster`, and the primary that they call so is asked;
    /// user, password and database are the primary's. Who we are at the Sentinels
    /// `&sentinel-user=...&sentinel-password=...` say; a password alone is the default user's.
    pub fn from_url(url: &str) -> Result<RedisStore, StoreError> {
        let (route, options) = options::parse_url(url)?;
        RedisStore::over(route, &options, Arc::new(BootClock))
    }

    /// For tests: how many watches are armed now.
    #[doc(hidden)]
    pub fn watches(&self) -> usize {
        self.inner.watcher.len()
    }
}

impl Inner {
    /// Makes a step, once, where it belongs.
    pub(crate) async fn run(
        &self,
        step: &'static Step,
        caller: Caller<'_>,
        args: &[&[u8]],
    ) -> Result<Answer, StoreError> {
        match &self.waited {
            Some(waited) if step.needs_confirmation => self.confirmed(waited.run(step, caller, args).await),
            _ => self.connection.run(step, caller, args).await,
        }
    }

    /// What replicas have not confirmed may have been asked of a primary that was replaced, and was
    /// not told. All connections to it are left: the next ones are made to whichever is the primary
    /// then, and a session that is opened is where it will be enlisted.
    fn confirmed<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        if matches!(answer, Err(StoreError::Unavailable { .. } | StoreError::OutcomeUnknown { .. })) {
            self.waited.iter().for_each(Connection::leave);
            self.connection.leave();
            self.watcher.leave();
        }
        answer
    }

    /// For a mark and what is written behind it, which replicas confirm if they confirm steps: no
    /// renewal waits for that, nor breaks off with it.
    pub(crate) fn connection_for_mark(&self, mark: &[u8]) -> Connection {
        self.connection.for_mark(mark, self.waited.as_ref().and_then(Connection::wait))
    }

    /// Grows whenever steps are made on another connection.
    pub(crate) fn generation(&self) -> u64 {
        self.connection.generation() + self.waited.as_ref().map_or(0, Connection::generation)
    }

    async fn identity(&self) -> Result<StoreId, StoreError> {
        Ok(self.run(&step::IDENTITY, Caller::default(), &[]).await?.store)
    }

    async fn promises(&self) -> Result<Promises, StoreError> {
        let server = self.server().await?;
        let mut promises = Promises::new(self.identity().await?);
        if !server.keeps_everything() {
            promises.tokens = TokenStrength::Volatile;
        }
        promises.smallest_ttl = SMALLEST_TTL;
        promises.longest_ttl = LONGEST_TTL;
        // Scripts count whole milliseconds, and a follower looks when the time of the one ahead has
        // passed.
        promises.granularity = Duration::from_millis(1);
        promises.caveats = server.caveats();
        Ok(promises)
    }

    async fn server(&self) -> Result<Server, StoreError> {
        let what = "reading the server's configuration";
        let info = self.connection.ask(redis::cmd("INFO").arg("everything")).await?;
        let info: Value = info.map_err(|error| classify(error, Effect::None, what))?;
        let info = String::from_redis_value(info).unwrap_or_default();
        let settings = ["appendfsync", NO_FSYNC_ON_REWRITE, "save", "min-replicas-to-write", "min-replicas-max-lag"];
        // Not everybody may ask for this.
        let config = self.connection.ask(redis::cmd("CONFIG").arg("GET").arg(&settings)).await?;
        let config = config.ok().and_then(|config| HashMap::from_redis_value(config).ok());
        let wait = self.waited.as_ref().and_then(Connection::wait);
        let mut server = Server::read(&info, config, wait);
        let told =
            self.connection.ask(redis::cmd("PUBLISH").arg(self.connection.keys.silent_channel()).arg("")).await?;
        server.is_mute = told.is_err_and(|error| is_denied(&error));
        if self.connection.primary.may_fail_over() {
            server.replicas = server.replicas.max(1);
        }
        Ok(server)
    }

    /// Page after page: the server stands still for each.
    async fn elections(&self, limit: usize) -> Result<Vec<ElectionName>, StoreError> {
        let mut names = BTreeSet::new();
        let (mut after, mut cursor, mut read) = (String::new(), "0".to_owned(), 0);
        let (mut page, records) = (PAGE_ENTRIES, PAGE_ENTRIES.to_string());
        loop {
            let lines = page.to_string();
            let args = [after.as_bytes(), lines.as_bytes(), cursor.as_bytes(), records.as_bytes()];
            let mut answer = self.run(&step::ELECTIONS, Caller::default(), &args).await?;
            let in_line = answer.list()?;
            cursor = answer.text()?;
            let with_record = answer.list()?;
            let name = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(|_| answer.strange());
            let in_line = in_line.into_iter().map(name).collect::<Result<Vec<_>, _>>()?;
            let with_record = with_record.into_iter().map(name).collect::<Result<Vec<_>, _>>()?;
            read += in_line.len();
            if in_line.len() < page || read >= limit {
                page = 0;
            }
            after = in_line.last().cloned().unwrap_or_default();
            // Each key holds a member that says nothing.
            let all = in_line.into_iter().chain(with_record).filter(|name| !name.is_empty());
            for name in all {
                names.insert(ElectionName::new(&name)?);
            }
            if page == 0 && cursor.is_empty() {
                return Ok(names.into_iter().take(limit).collect());
            }
        }
    }

    async fn line(&self, election: &ElectionName, limit: usize) -> Result<Line, StoreError> {
        for reading in 0..READINGS {
            if let Some(line) = self.read_line(election, limit, reading).await? {
                return Ok(line);
            }
        }
        let what = format!("reading the line of {election:?}: it changes faster than it can be read");
        Err(StoreError::Unavailable { what, source: None })
    }

    /// Page after page. `None`: something has changed meanwhile, and what was read is not one
    /// moment's.
    async fn read_line(&self, election: &ElectionName, limit: usize, reading: u32) -> Result<Option<Line>, StoreError> {
        let (page, bytes) = (PAGE_ENTRIES << reading, (PAGE_BYTES << reading).to_string());
        let mut line: Option<(StoreId, Line)> = None;
        loop {
            let entries = line.as_ref().map_or(&[][..], |(_, line)| &line.entries);
            let after = entries.last().map_or("", |entry| entry.id.as_str());
            let size = page.min(limit - entries.len()).to_string();
            let args = [election.as_str().as_bytes(), after.as_bytes(), size.as_bytes(), bytes.as_bytes()];
            let mut answer = self.run(&step::LINE, Caller::default(), &args).await?;
            if answer.word == "hold" {
                return Err(answer.hold()?);
            }
            let (store, cursor) = (answer.store.clone(), answer.cursor());
            let (office, more, rows) = (answer.office()?, answer.text()? == "more", answer.list()?);
            let rows = rows.chunks_exact(2).map(|row| answer.entry(&row[0], &row[1]));
            let rows = rows.collect::<Result<Vec<_>, _>>()?;
            let line = match &mut line {
                None => &mut line.insert((store, Line::new(rows, more, office, cursor))).1,
                Some((first, line)) => {
                    if *first != store || line.cursor != cursor {
                        return Ok(None);
                    }
                    line.entries.extend(rows);
                    line.more = more;
                    line
                }
            };
            if !line.more || line.entries.len() >= limit {
                return Ok(Some(line.clone()));
            }
        }
    }

    async fn set_office(&self, election: &ElectionName, was: Version, to: &Office) -> Result<Cas, StoreError> {
        let record = |office: &Office| if office.is_blank() { Vec::new() } else { encode_office(office) };
        let was = if was == Version::NONE { String::new() } else { keys::digits(was.0) };
        let (ended, keep) = to.ended.as_ref().map_or_else(Default::default, |ended| {
            let keep = ended.keep.min(LONGEST).as_millis();
            (format!("{} {keep}", ended.id.0), keep.to_string())
        });
        let after = record(&to.clone().with_ended(None));
        let args: [&[u8]; 6] =
            [election.as_str().as_bytes(), was.as_bytes(), &record(to), ended.as_bytes(), keep.as_bytes(), &after];
        self.run(&step::SET_OFFICE, Caller::default(), &args).await?.cas()
    }

    async fn evict(&self, election: &ElectionName, seen: &Entry) -> Result<Cas, StoreError> {
        if keys::token_of(&seen.id) != Some(seen.token) {
            // No entry is called so, and so it is not there.
            return Ok(Cas::Done);
        }
        // Every entry has one here.
        let Some(incarnation) = seen.incarnation else { return Ok(Cas::Done) };
        let (incarnation, version) = (incarnation.to_string(), keys::digits(seen.version.0));
        let args =
            [election.as_str().as_bytes(), seen.id.as_str().as_bytes(), incarnation.as_bytes(), version.as_bytes()];
        self.run(&step::EVICT, Caller::default(), &args).await?.cas()
    }

    fn office_changes(&self, election: &ElectionName) -> Interest {
        Interest { channel: self.connection.keys.office_channel(election), on: On::Any }
    }

    fn entry_changes(&self, election: &ElectionName, id: &EntryId, on: On) -> Interest {
        Interest { channel: self.connection.keys.entry_channel(election, id), on }
    }

    /// What one who has an entry waits for.
    pub(crate) fn watch_entry(self: &Arc<Inner>, watched: &Watched, from: Cursor, store: StoreId) -> Wake {
        let Watched { held, office, ahead, heir, .. } = watched;
        let mut interests = vec![self.office_changes(&held.election)];
        let gone: Vec<EntryId> = [Some(&held.entry), ahead.as_ref()].into_iter().flatten().cloned().collect();
        interests.extend(gone.iter().map(|id| self.entry_changes(&held.election, id, On::Gone)));
        interests.extend(heir.iter().map(|id| self.entry_changes(&held.election, id, On::Any)));
        let seen = LookedAt { office: *office, from, head: String::new(), said: heir.clone(), gone };
        self.watch(held.election.clone(), interests, seen, Some(store))
    }

    /// What one without an entry waits for.
    fn watch_election(self: &Arc<Inner>, election: &ElectionName, seen: &Seen, from: Cursor) -> Wake {
        let mut interests = vec![self.office_changes(election)];
        if seen.head != Head::Ignored {
            interests.push(Interest { channel: self.connection.keys.head_channel(election), on: On::Any });
        }
        interests.extend(seen.last.iter().map(|id| self.entry_changes(election, id, On::Gone)));
        let (head, said) = match &seen.head {
            Head::Ignored => (String::new(), None),
            Head::Nobody => ("nobody".to_owned(), None),
            Head::Is(id) => (id.as_str().to_owned(), Some(id.clone())),
        };
        let gone = seen.last.iter().cloned().collect();
        let seen = LookedAt { office: seen.office, from, head, said, gone };
        self.watch(election.clone(), interests, seen, None)
    }

    fn watch(
        self: &Arc<Inner>,
        election: ElectionName,
        interests: Vec<Interest>,
        seen: LookedAt,
        store: Option<StoreId>,
    ) -> Wake {
        let (connection, watcher) = (self.connection.clone(), self.watcher.clone());
        let is_session = store.is_some();
        // One without a session saw the store that answered last.
        let store = store.or_else(|| connection.known_store());
        Box::pin(async move {
            let args = seen.args(&election);
            let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
            let has_changed = async {
                let answer = connection
                    .run(&step::CHANGED, Caller { store: store.as_ref(), ..Caller::default() }, &args)
                    .await?;
                // Another store is another line. A session is told by its next step.
                match answer.word.as_str() {
                    "reset" if !is_session => Err(founded()),
                    word => Ok(word != "same"),
                }
            };
            watcher.wait(interests, has_changed).await
        })
    }
}

/// What somebody saw who now waits for it to change.
struct LookedAt {
    office: Version,
    from: Cursor,
    /// The id of the first one; `nobody`, or nothing where it does not matter.
    head: String,
    /// This entry says something else.
    said: Option<EntryId>,
    /// One of these is gone.
    gone: Vec<EntryId>,
}

impl LookedAt {
    fn args(&self, election: &ElectionName) -> Vec<Vec<u8>> {
        let office = if self.office == Version::NONE { String::new() } else { keys::digits(self.office.0) };
        let said = self.said.as_ref().map_or("", EntryId::as_str);
        let parts = [election.as_str(), &office, &keys::digits(self.from.0), &self.head, said];
        let gone = self.gone.iter().map(EntryId::as_str);
        parts.into_iter().chain(gone).map(|part| part.as_bytes().to_vec()).collect()
    }
}

impl Store for RedisStore {
    fn promises(&self) -> Fut<'_, Promises> {
        Box::pin(self.inner.promises())
    }

    fn identity(&self) -> Fut<'_, StoreId> {
        Box::pin(self.inner.identity())
    }

    fn open_session(&self, ttl: Duration) -> Fut<'_, Arc<dyn Session>> {
        Box::pin(async move {
            let session = RedisSession::open(self.inner.clone(), ttl.clamp(SMALLEST_TTL, LONGEST_TTL)).await?;
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
        self.inner.watch_election(election, seen, from)
    }

    fn set_office<'a>(&'a self, election: &'a ElectionName, was: Version, to: &'a Office) -> Fut<'a, Cas> {
        Box::pin(self.inner.set_office(election, was, to))
    }

    fn evict<'a>(&'a self, election: &'a ElectionName, seen: &'a Entry) -> Fut<'a, Cas> {
        Box::pin(self.inner.evict(election, seen))
    }
}
