//! A process that is stopped in its tracks while an answer is on its way to it: the server cannot
//! send the rest, and waits for it without an end. Nobody else may have to.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use incumbent_postgres::tokio_postgres::{Config, NoTls};
use incumbent_postgres::{Connecting, Connector, PostgresOptions, PostgresStore, messages};
use incumbent_store::{ElectionName, Held, Place, Session, Store};
use incumbent_testkit::servers::PostgresServer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use crate::harness::{TTL, entry, held, name, shared, store, until, within};

/// More than fits into all buffers on the way, in elections with long names and in bytes of one
/// record.
const MANY: usize = 1_000;
const LONG: usize = 400_000;

/// Connections over the server's socket file: what waits there has a fixed limit.
#[derive(Clone, Debug)]
struct OverFile {
    file: PathBuf,
    /// From now on nothing is read.
    stopped: Arc<AtomicBool>,
}

impl Connector for OverFile {
    fn connect(&self) -> Connecting<'_> {
        Box::pin(async move {
            let stream = UnixStream::connect(&self.file).await.expect("the server listens there");
            let stream = Stopped { stream, stopped: self.stopped.clone() };
            let (client, connection) =
                Config::new().user("postgres").dbname("postgres").connect_raw(stream, NoTls).await?;
            Ok((client, messages(connection)))
        })
    }
}

struct Stopped {
    stream: UnixStream,
    stopped: Arc<AtomicBool>,
}

impl AsyncRead for Stopped {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.stopped.load(Ordering::SeqCst) {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stopped {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A process that is going to be stopped, and another one, in a schema of their own.
struct Case {
    server: &'static PostgresServer,
    schema: &'static str,
    election: ElectionName,
    stopped: Arc<AtomicBool>,
    observer: PostgresStore,
    member: Arc<dyn Session>,
    other: Arc<dyn Session>,
}

impl Case {
    async fn new(schema: &'static str) -> Case {
        let server = shared().await;
        let other = store(&format!("{}?schema={schema}", server.url())).open_session(100 * TTL).await.unwrap();
        let file = server.scratch().path().join(format!(".s.PGSQL.{}", server.port()));
        let over_file = OverFile { file, stopped: Arc::default() };
        let stopped = over_file.stopped.clone();
        let observer = PostgresStore::over(over_file, &PostgresOptions::new().schema(schema)).unwrap();
        let member = observer.open_session(100 * TTL).await.unwrap();
        Case { server, schema, election: name("stopped"), stopped, observer, member, other }
    }

    async fn enlist(&self, session: &Arc<dyn Session>, number: u128) -> Held {
        held(&within(session.enlist(&self.election, &entry(number))).await.unwrap())
    }

    fn sql(&self, sql: &str) -> String {
        self.server.sql(&sql.replace("{schema}", self.schema))
    }

    /// Its session stands in many more elections.
    fn stands_in_many(&self, held: &Held) {
        self.sql(&format!(
            "INSERT INTO {{schema}}.entry (election, token, session, incarnation, name, value, changed) \
             SELECT convert_to(repeat('many ', 50) || k, 'UTF8'), k, session, incarnation, name, value, changed \
             FROM {{schema}}.entry, generate_series(1, {MANY}) k WHERE token = {}",
            held.token
        ));
    }

    /// All answers of the election are long from now on.
    fn has_a_long_record(&self) {
        self.sql(&format!(
            "UPDATE {{schema}}.election SET office = convert_to(repeat('x', {LONG}), 'UTF8'), office_version = 1"
        ));
    }

    /// There are many more, with long names and short records.
    fn is_one_of_many(&self) {
        self.sql(&format!(
            "INSERT INTO {{schema}}.election (name, office, office_version) \
             SELECT convert_to(repeat('many ', 50) || k, 'UTF8'), 'x', 1 FROM generate_series(1, {MANY}) k"
        ));
    }

    fn has_expired(&self, held: &Held) {
        self.sql(&format!(
            "UPDATE {{schema}}.session SET expires_at = clock_timestamp() \
             WHERE id = (SELECT session FROM {{schema}}.entry WHERE election = '{}' AND token = {})",
            held.election, held.token
        ));
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    /// The server cannot send the answer of a step, and what the step has done is done: nothing is
    /// locked.
    async fn is_over_though_its_answer_hangs<T>(&self, step: &str, asking: &JoinHandle<T>) {
        let hangs = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'ClientWrite' AND query LIKE '%{}\".{step}(%'",
            self.schema
        );
        until("the answer hangs", async || self.sql(&hangs) == "1" || asking.is_finished()).await;
        assert!(!asking.is_finished(), "the case is no case: it is answered");
        let [rows, free] = ["", "FOR UPDATE SKIP LOCKED"].map(|lock| {
            ["store", "election", "session", "entry"]
                .map(|table| self.sql(&format!("SELECT count(*) FROM (SELECT FROM {{schema}}.{table} {lock}) AS rows")))
        });
        assert_eq!(rows, free, "{step}: what others need is locked, in the order store, election, session, entry");
        let by = hangs.replace("count(*)", "pid");
        let tables = format!("SELECT count(*) FROM pg_locks WHERE relation IS NOT NULL AND pid IN ({by})");
        assert_eq!(self.sql(&tables), "0", "{step}: nobody can bring the schema up to date");
        let looks_back = hangs.replace("count(*)", "count(backend_xmin)");
        assert_eq!(self.sql(&looks_back), "0", "{step}: what is renewed meanwhile cannot be cleaned up");
        assert_eq!(self.sql(&hangs), "1", "the case is no case: the answer hangs no longer");
        assert!(!asking.is_finished());
    }
}

#[tokio::test]
async fn a_leader_that_is_stopped_while_its_renewal_is_answered_is_followed() {
    let case = Case::new("stopped_renewal").await;
    let leads = case.enlist(&case.member, 1).await;
    let follows = case.enlist(&case.other, 2).await;
    case.stands_in_many(&leads);
    // Renewals have a connection of their own, which is there now.
    within(case.member.renew(std::slice::from_ref(&leads))).await.unwrap();
    case.stop();
    let (member, named) = (case.member.clone(), leads.clone());
    let renewal = tokio::spawn(async move { member.renew(&[named]).await });
    case.is_over_though_its_answer_hangs("renew_1", &renewal).await;
    case.has_expired(&leads);
    let standing = within(case.other.standing(&follows, None)).await.unwrap();
    assert!(matches!(standing.place, Place::Leading(_)), "{standing:?}");
    assert!(!renewal.is_finished());
}

/// It had the election locked, and the session of the leader ahead of it, which was just looked at.
#[tokio::test]
async fn one_that_is_stopped_while_its_enlistment_is_answered_holds_up_neither_the_leader_nor_the_election() {
    let case = Case::new("stopped_enlistment").await;
    let leads = case.enlist(&case.other, 1).await;
    case.has_a_long_record();
    case.stop();
    let (member, election) = (case.member.clone(), case.election.clone());
    let enlistment = tokio::spawn(async move { member.enlist(&election, &entry(2)).await });
    case.is_over_though_its_answer_hangs("enlist_3", &enlistment).await;
    within(case.other.renew(std::slice::from_ref(&leads))).await.unwrap();
    within(case.other.withdraw(&leads, None)).await.unwrap();
}

#[tokio::test]
async fn one_that_is_stopped_while_it_asks_where_it_stands_holds_up_nobody() {
    let case = Case::new("stopped_standing").await;
    let leads = case.enlist(&case.other, 1).await;
    let follows = case.enlist(&case.member, 2).await;
    case.has_a_long_record();
    // It removes it.
    case.has_expired(&leads);
    case.stop();
    let member = case.member.clone();
    let standing = tokio::spawn(async move { member.standing(&follows, None).await });
    case.is_over_though_its_answer_hangs("standing_1", &standing).await;
    let left = case.sql("SELECT count(*) FROM {schema}.entry");
    assert_eq!(left, "1", "the case is no case: nothing was written");
}

#[tokio::test]
async fn one_that_is_stopped_while_it_closes_its_session_holds_up_nobody() {
    let case = Case::new("stopped_closing").await;
    // First in line it would tell that, on the connection that is to be stopped later.
    case.enlist(&case.other, 1).await;
    let follows = case.enlist(&case.member, 2).await;
    case.stands_in_many(&follows);
    case.stop();
    let member = case.member.clone();
    let closing = tokio::spawn(async move { member.close().await });
    case.is_over_though_its_answer_hangs("close_1", &closing).await;
    assert_eq!(case.sql("SELECT count(*) FROM {schema}.entry"), "1");
}

/// Whoever brings the schema up to date would wait for it, and all others behind that.
#[tokio::test]
async fn an_observer_that_is_stopped_while_it_reads_holds_up_no_newer_version() {
    let case = Case::new("stopped_line").await;
    case.enlist(&case.other, 1).await;
    case.has_a_long_record();
    case.stop();
    let (observer, election) = (case.observer.clone(), case.election.clone());
    let line = tokio::spawn(async move { observer.line(&election, 9).await });
    case.is_over_though_its_answer_hangs("line_4", &line).await;

    let case = Case::new("stopped_elections").await;
    case.is_one_of_many();
    case.stop();
    let observer = case.observer.clone();
    let elections = tokio::spawn(async move { observer.elections(MANY).await });
    case.is_over_though_its_answer_hangs("elections_1", &elections).await;
}
