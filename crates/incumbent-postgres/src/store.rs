//! The store: sessions, lines, watches and the office record.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use incumbent_store::record::encode_office;
use incumbent_store::{
    Cas, Cursor, Effect, ElectionName, Ended, Entry, Fut, LONGEST, Line, Nonce, Office, Promises, Seen, Session, Store,
    StoreError, StoreId, TokenStrength, Version, Wake,
};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Config, NoTls, SimpleQueryRow, Socket};

use crate::answer::{self, MISSING_STANDBY, column, number, number_of, one, value};
use crate::connection::{Link, Step};
use crate::connector::{Configured, Connector, Servers};
use crate::literal::Literal as _;
use crate::options::{Parsed, PostgresOptions, patient};
use crate::schema::Schema;
use crate::session::PostgresSession;
use crate::watcher::{Change, Listening, Wanted, Watcher, wait};

/// The shortest time that a session is granted.
const SMALLEST_TTL: Duration = Duration::from_millis(100);
/// How long a hint may keep calls waiting.
const TELL_WITHIN: Duration = Duration::from_secs(1);
/// In place of an identity, in the promises of a database that holds no elections yet.
const NOT_MADE: &str = "none yet";
/// After a failover everybody waits for the longest TTL that was ever granted.
const LONGEST_TTL: Duration = Duration::from_secs(3_600);

/// Elections in a PostgreSQL database.
///
/// Cheap to clone; clones share their connections: for calls, for renewals, for what raises or
/// resets the marks of fences, and one that listens. Each is made when it is needed: a second one
/// for calls where one has kept another waiting. At most four calls are out at once, as many
/// renewals, and as many raises, where a fifth waits for one of those that wait for transactions of
/// earlier leaders (two seconds at most); one that is given up keeps its connection, beyond those,
/// until it is answered or ten seconds have passed. Two of each kind stay
/// while there is nothing to do, and for a while one that was made and then not needed.
///
/// ```no_run
/// # fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use incumbent_postgres::PostgresStore;
///
/// let store = PostgresStore::from_url("postgres://jobs@10.0.0.1,10.0.0.2/app")?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct PostgresStore {
    pub(crate) inner: Arc<Inner>,
}

/// What the handles, the sessions and the watches of one store share.
pub(crate) struct Inner {
    pub(crate) calls: Arc<Link>,
    /// Answers come in order: a renewal must not wait behind a call that waits for a lock.
    pub(crate) renewals: Arc<Link>,
    /// The raise of a fence waits for transactions of an earlier leader, which take as long as they
    /// take: other elections have nothing to do with that.
    pub(crate) raises: Arc<Link>,
    pub(crate) watcher: Watcher,
    pub(crate) schema: Arc<Schema>,
    /// Its URL prefers TLS, and does not say whom to trust.
    in_the_clear: bool,
}

impl PostgresStore {
    /// Elections in the database that a URL names: `postgres://user@host/database`, with `schema`,
    /// `listen`, `sslmode`, `sslrootcert`, `sslcert` and `sslkey` as options. `listen` is where the
    /// connection goes that listens, if the host is a pooler.
    pub fn from_url(url: &str) -> Result<PostgresStore, StoreError> {
        let Parsed { calls, listen, options, tls, in_the_clear } = crate::options::parse_url(url)?;
        let patient = |servers: Servers| Servers { config: patient(servers.config), ..servers };
        let (calls, listen) = (patient(calls), listen.map(patient));
        match tls {
            None => PostgresStore::made(Arc::new(Configured { calls, listen, tls: NoTls }), &options, in_the_clear),
            #[cfg(feature = "tls")]
            Some(tls) => PostgresStore::over(Configured { calls, listen, tls }, &options),
            #[cfg(not(feature = "tls"))]
            Some(never) => match never {},
        }
    }

    /// Elections in the database that a configuration names, without TLS.
    pub fn connect(config: Config, options: &PostgresOptions) -> Result<PostgresStore, StoreError> {
        PostgresStore::connect_tls(config, NoTls, options)
    }

    /// The same over TLS, with a connector such as those of `postgres-native-tls`. What the
    /// configuration says of `sslmode` counts.
    pub fn connect_tls<T>(config: Config, tls: T, options: &PostgresOptions) -> Result<PostgresStore, StoreError>
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::TlsConnect: Send,
        T::Stream: Send + 'static,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        PostgresStore::over(Configured { calls: patient(config).into(), listen: None, tls }, options)
    }

    /// Elections over connections that are made in a way of one's own.
    pub fn over(connector: impl Connector, options: &PostgresOptions) -> Result<PostgresStore, StoreError> {
        PostgresStore::made(Arc::new(connector), options, false)
    }

    fn made(
        connector: Arc<dyn Connector>,
        options: &PostgresOptions,
        in_the_clear: bool,
    ) -> Result<PostgresStore, StoreError> {
        let schema = Arc::new(Schema::new(&options.schema)?);
        let link = || Arc::new(Link::new(connector.clone(), schema.clone()));
        let calls = link();
        let watcher = Watcher::new(connector.clone(), schema.clone(), calls.clone());
        let inner = Inner { calls, renewals: link(), raises: link(), watcher, schema, in_the_clear };
        Ok(PostgresStore { inner: Arc::new(inner) })
    }

    /// For tests and benchmarks: how many watches wait now.
    #[doc(hidden)]
    pub fn watches(&self) -> usize {
        self.inner.watcher.len()
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("calls", &self.inner.calls).finish_non_exhaustive()
    }
}

impl Inner {
    pub(crate) async fn write(&self, what: &'static str, sql: String) -> Result<Vec<SimpleQueryRow>, StoreError> {
        self.calls.call(what, Effect::Write, Step::CommitsFirst(sql)).await
    }

    /// What is asked again if it has failed, and answered in a word or two.
    pub(crate) async fn read(&self, what: &'static str, sql: String) -> Result<Vec<SimpleQueryRow>, StoreError> {
        self.calls.call(what, Effect::None, Step::Short(sql)).await
    }

    /// A write, and what is told of it, in one round trip.
    pub(crate) async fn write_and_tell(
        &self,
        what: &'static str,
        sql: String,
        election: &ElectionName,
        change: Change,
        token: Option<i64>,
    ) -> Result<Vec<SimpleQueryRow>, StoreError> {
        let tell = self.telling(bytes(election), change, token);
        self.calls.call(what, Effect::Write, Step::LocksAndTells { step: sql, tell }).await
    }

    fn telling(&self, election: &[u8], change: Change, token: Option<i64>) -> String {
        self.schema.call("tell_1", &[&election, &change.letter(), &token])
    }

    /// Tells what was seen only in an answer. Nobody waits for it.
    pub(crate) fn tell(&self, election: &[u8], change: Change, token: Option<i64>) {
        tokio::spawn(tell(self.calls.clone(), self.telling(election, change, token)));
    }

    /// Tells of the entries that went with a session, and comes back when that is done: a process
    /// that has closed its session may exit.
    pub(crate) async fn tell_gone(&self, gone: &[(Vec<u8>, i64)]) {
        if gone.is_empty() {
            return;
        }
        let row = |(election, token): &(Vec<u8>, i64)| {
            let mut row = String::from("(");
            (&election[..]).write(&mut row);
            row.push_str(", ");
            token.write(&mut row);
            row + ")"
        };
        let rows = Vec::from_iter(gone.iter().map(row)).join(", ");
        let (schema, letter) = (self.schema.name(), Change::Gone.letter());
        let sql =
            format!("SELECT \"{schema}\".tell_1(e::bytea, '{letter}', t::bigint) FROM (VALUES {rows}) AS gone (e, t)");
        tell(self.calls.clone(), sql).await;
    }

    /// Whether something has changed of what is wanted, and when to look again.
    pub(crate) async fn changed(
        &self,
        election: &ElectionName,
        wanted: &Wanted,
        from: Cursor,
    ) -> Result<(bool, Option<Duration>), StoreError> {
        let sql = self.schema.call(
            "changed_1",
            &[
                &bytes(election),
                &from.0.cast_signed(),
                &wanted.office,
                &wanted.own,
                &wanted.ahead,
                &wanted.heir,
                &wanted.last,
                &wanted.watches_head,
                &wanted.head,
            ],
        );
        match unless_missing(self.read("looking whether something has changed", sql).await)? {
            Some(rows) => answer::changed(&rows),
            None => Ok((wanted.sees_somebody(), None)),
        }
    }

    async fn identity(&self) -> Result<StoreId, StoreError> {
        let rows = self.read("asking who is there", self.schema.call("about", &[])).await?;
        Ok(StoreId::new(column::<&str>(one(&rows)?, "id")?))
    }

    async fn open_session(self: &Arc<Self>, ttl: Duration) -> Result<Arc<dyn Session>, StoreError> {
        let open = self.schema.call("open_1", &[&micros(ttl)]);
        let rows = self.write("opening a session", open).await?;
        let (id, granted, store_id) = answer::session(&rows)?;
        Ok(Arc::new(PostgresSession::new(self.clone(), id, store_id, granted)))
    }

    async fn elections(&self, limit: usize) -> Result<Vec<ElectionName>, StoreError> {
        let sql = self.schema.call("elections_1", &[&i64::try_from(limit).unwrap_or(i64::MAX)]);
        let read = self.calls.call("listing the elections", Effect::None, Step::CommitsFirst(sql)).await;
        let rows = unless_missing(read)?.unwrap_or_default();
        rows.iter().map(|row| answer::election(column(row, "name")?)).collect()
    }

    async fn line(&self, election: &ElectionName, limit: usize) -> Result<Line, StoreError> {
        // One more tells whether there are more.
        let at_most = i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX);
        let [newest, older] = ["line_4", "line_3"].map(|function| {
            let line = self.schema.call(function, &[&bytes(election), &at_most]);
            format!("SELECT line.*, {MISSING_STANDBY} FROM ({line}) line")
        });
        let read = self.calls.call("reading the line", Effect::None, Step::Reads { newest, older });
        match unless_missing(read.await)? {
            Some(rows) => answer::line(&rows, limit),
            None => Ok(Line::new(Vec::new(), false, Office::default(), Cursor(0))),
        }
    }

    async fn evict(&self, election: &ElectionName, seen: &Entry) -> Result<Cas, StoreError> {
        let token = number(seen.token);
        if number_of(&seen.id) != token {
            return Ok(Cas::Done);
        }
        // Every entry has one here.
        let Some(incarnation) = seen.incarnation else { return Ok(Cas::Done) };
        let (incarnation, version) = (incarnation.to_bits().to_be_bytes(), seen.version.0.cast_signed());
        let sql = self.schema.call("evict_2", &[&bytes(election), &token, &&incarnation[..], &version]);
        let rows = self.write_and_tell("evicting", sql, election, Change::Gone, Some(token)).await?;
        cas(&rows)
    }

    async fn set_office(&self, election: &ElectionName, was: Version, to: &Office) -> Result<Cas, StoreError> {
        let record = |office: &Office| (!office.is_blank()).then(|| encode_office(office));
        let afterwards = to.ended.as_ref().and_then(|_| record(&to.clone().with_ended(None)));
        let ended = to.ended.as_ref();
        let sql = self.schema.call(
            "set_office_1",
            &[
                &bytes(election),
                &was.0.cast_signed(),
                &record(to).as_deref(),
                &afterwards.as_deref(),
                &ended.map(|Ended { id: Nonce(id), .. }| id.cast_signed()),
                &ended.map(|Ended { keep, .. }| micros(*keep)),
            ],
        );
        let rows = self.write_and_tell("writing the office record", sql, election, Change::Office, None).await?;
        cas(&rows)
    }

    async fn promises(&self) -> Result<Promises, StoreError> {
        let sql = format!(
            "SELECT current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes, \
             current_setting('synchronous_standby_names') AS waits_for, \
             current_setting('synchronous_commit') AS waits_until, \
             (SELECT count(*) FROM pg_catalog.pg_stat_replication) AS standbys, {MISSING_STANDBY}"
        );
        let asked = self.calls.call("reading what the server can keep", Effect::None, Step::OfServer(sql));
        let rows = asked.await?;
        let row = one(&rows)?;
        let identity = unless_missing(self.identity().await)?;
        let mut promises = Promises::new(identity.unwrap_or_else(|| StoreId::new(NOT_MADE)));
        let server = Server {
            fsync: column::<&str>(row, "fsync")? == "on",
            full_page_writes: column::<&str>(row, "full_page_writes")? == "on",
            waits_for_standbys: !column::<&str>(row, "waits_for")?.is_empty(),
            waits_for_their_disks: column::<&str>(row, "waits_until")? != "remote_write",
            standbys: column(row, "standbys")?,
        };
        let listening = self.watcher.listens().await;
        promises.watches = listening == Listening::Yes;
        promises.smallest_ttl = SMALLEST_TTL;
        promises.longest_ttl = LONGEST_TTL;
        promises
            .caveats
            .extend(answer::missing_standby(row)?.map(|missing| format!("Nothing is decided now: {missing}.")));
        server.lower(&mut promises, self.schema.name());
        if self.in_the_clear {
            promises.caveats.push(
                "Nothing is encrypted: sslmode=prefer without sslrootcert does not ask for TLS, whatever the server can. \
                 sslrootcert=FILE does."
                    .into(),
            );
        }
        promises.caveats.extend(listening.caveat(self.watcher.goes_past_to().as_deref()));
        Ok(promises)
    }
}

/// What is read of a schema that is not there: nothing. Nobody stands in any election.
fn unless_missing<T>(read: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match read {
        Err(StoreError::Missing { .. }) => Ok(None),
        read => read.map(Some),
    }
}

/// A hint: those whom it does not reach look for themselves. Calls may wait behind it, so it is
/// given up where nobody else would.
async fn tell(calls: Arc<Link>, tell: String) {
    let told = calls.call("telling others", Effect::None, Step::Short(tell));
    let _ = tokio::time::timeout(TELL_WITHIN, told).await;
}

/// How a server is set up, as far as it matters.
struct Server {
    fsync: bool,
    full_page_writes: bool,
    waits_for_standbys: bool,
    waits_for_their_disks: bool,
    standbys: i64,
}

impl Server {
    fn lower(&self, promises: &mut Promises, schema: &str) {
        if !self.fsync {
            promises.tokens = TokenStrength::Volatile;
            promises.caveats.push("fsync is off: when the host crashes, tokens and renewals can be lost.".into());
        } else if !self.full_page_writes {
            promises.caveats.push(
                "full_page_writes is off: on a disk that tears pages, a crash of the host can damage what is here."
                    .into(),
            );
        }
        let waits = self.waits_for_standbys && self.waits_for_their_disks;
        if waits {
            promises.caveats.push(
                "A failover is safe if a standby takes over that has confirmed what was committed. While the server \
                 waits for one, nothing is decided; a wait that is cancelled counts as an unknown outcome."
                    .into(),
            );
        } else if self.standbys > 0 || self.waits_for_standbys {
            promises.caveats.push(
                "Standbys follow without being waited for. When one takes over, tokens leap above all that were given, if \
                 the servers' clocks are in step, and nobody leads for the longest TTL that it knows of: of one that was \
                 granted right before it may know nothing. While the old primary goes on beside it, each has a leader."
                    .into(),
            );
        }
        promises.caveats.push(format!(
            "A copy of the server's files that is started beside it, an older state of its disk, and data that is \
             restored into tables which are there cannot be told from the original: tokens are given twice, unless \
             UPDATE {schema}.store SET history = '' is run there first."
        ));
        promises.caveats.push(
            "Sessions expire by the server's wall clock: if it is set forward by more than the margin, a leader can be \
             replaced before it knows. Nobody's clock vouches for the server's; a fence refuses the former leader."
                .into(),
        );
    }
}

/// What a function says that answers whether it was done.
pub(crate) fn cas(rows: &[SimpleQueryRow]) -> Result<Cas, StoreError> {
    Ok(if value(rows)? { Cas::Done } else { Cas::Refused })
}

/// The name as it stands in the tables.
pub(crate) fn bytes(election: &ElectionName) -> &[u8] {
    election.as_str().as_bytes()
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.min(LONGEST).as_micros()).unwrap_or(i64::MAX)
}

impl Store for PostgresStore {
    fn promises(&self) -> Fut<'_, Promises> {
        Box::pin(self.inner.promises())
    }

    fn identity(&self) -> Fut<'_, StoreId> {
        Box::pin(self.inner.identity())
    }

    fn open_session(&self, ttl: Duration) -> Fut<'_, Arc<dyn Session>> {
        Box::pin(self.inner.open_session(ttl))
    }

    fn elections(&self, limit: usize) -> Fut<'_, Vec<ElectionName>> {
        Box::pin(self.inner.elections(limit))
    }

    fn line<'a>(&'a self, election: &'a ElectionName, limit: usize) -> Fut<'a, Line> {
        Box::pin(self.inner.line(election, limit))
    }

    fn watch(&self, election: &ElectionName, seen: &Seen, from: Cursor) -> Wake {
        Box::pin(wait(self.inner.clone(), election.clone(), Wanted::by_others(seen), from, None))
    }

    fn set_office<'a>(&'a self, election: &'a ElectionName, was: Version, to: &'a Office) -> Fut<'a, Cas> {
        Box::pin(self.inner.set_office(election, was, to))
    }

    fn evict<'a>(&'a self, election: &'a ElectionName, seen: &'a Entry) -> Fut<'a, Cas> {
        Box::pin(self.inner.evict(election, seen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAFE: Server = Server {
        fsync: true,
        full_page_writes: true,
        waits_for_standbys: false,
        waits_for_their_disks: true,
        standbys: 0,
    };

    /// What is promised, and the first words of what is said against it.
    fn lowered(server: &Server) -> (TokenStrength, Vec<String>) {
        let mut promises = Promises::new(StoreId::new("postgres-1"));
        server.lower(&mut promises, "incumbent");
        let first_words = |caveat: &str| caveat.split(' ').take(3).collect::<Vec<_>>().join(" ");
        (promises.tokens, promises.caveats.iter().map(|caveat| first_words(caveat)).collect())
    }

    #[test]
    fn each_configuration_promises_what_it_keeps() {
        let always = ["A copy of", "Sessions expire by"];
        for (server, tokens, caveat) in [
            (SAFE, TokenStrength::Durable, None),
            (Server { fsync: false, ..SAFE }, TokenStrength::Volatile, Some("fsync is off:")),
            (Server { full_page_writes: false, ..SAFE }, TokenStrength::Durable, Some("full_page_writes is off:")),
            (Server { standbys: 1, ..SAFE }, TokenStrength::Durable, Some("Standbys follow without")),
            (Server { waits_for_standbys: true, standbys: 1, ..SAFE }, TokenStrength::Durable, Some("A failover is")),
            (
                Server { waits_for_standbys: true, waits_for_their_disks: false, ..SAFE },
                TokenStrength::Durable,
                Some("Standbys follow without"),
            ),
        ] {
            let caveats = Vec::from_iter(caveat.into_iter().chain(always).map(str::to_owned));
            assert_eq!(lowered(&server), (tokens, caveats));
        }
    }
}
