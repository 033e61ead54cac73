//! Connections to the server: dialled when they are needed, each used by one call at a time. Knows
//! SQL, and nothing of elections.
//!
//! A call is one message, which is answered as a whole: the transaction, and then its rows or what
//! is told of it. Nothing is sent before the answer to the message before has come. A client that
//! goes away with two answers under way leaves the second one, through pgbouncer before 1.21, to
//! the client that gets the server's connection next.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use incumbent_store::{Effect, StoreError, lock};
use tokio::sync::{Notify, Semaphore, SemaphorePermit, mpsc, oneshot};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::{AsyncMessage, Client, Notification, SimpleQueryRow};

use crate::connector::{Connecting, Connector, Messages, named};
use crate::error::{classify, is_full, is_undefined_function};
use crate::message::{Answer, ask, ask_and_commit_first, ask_and_tell};
use crate::schema::{Dialled, Found, Schema};

/// How long a connection may take to come up, the schema included.
pub(crate) const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a call that is given up, or a connection, has to finish what was sent.
const LINGER: Duration = Duration::from_secs(10);
/// How many calls are out at once: one that waits for an election's lock must not hold up those of
/// all other elections.
const TURNS: usize = 4;
/// How long a call waits for others to be done before it has a connection made of its own: longer
/// than nearly all of them take, so that one is enough for most clients.
const GROW_AFTER: Duration = Duration::from_millis(20);
/// The rest before another connection is tried where the server has no room for one.
const DIAL_AGAIN_AFTER: Duration = Duration::from_millis(200);
/// How often that is tried, before the call says why.
const TRIES_WHERE_FULL: u32 = 50;
/// How many connections are kept while there is nothing to do.
const KEPT: usize = 2;
const CONNECTING: &str = "connecting to PostgreSQL";
/// The routine of the server that warns of a commit which no standby has confirmed. The text is
/// translated.
const GAVE_UP_WAITING_FOR_STANDBY: &str = "SyncRepWaitForLSN";

/// Connections that are there when they are needed.
#[derive(Debug)]
pub(crate) struct Link {
    connector: Arc<dyn Connector>,
    schema: Arc<Schema>,
    turns: Semaphore,
    idle: Mutex<Vec<Open>>,
    put_back: Notify,
    /// The connection that is being made. That goes on when the call that began it is given up:
    /// over a slow link it takes longer than a call may, and the next one finds it made.
    dialling: tokio::sync::Mutex<Option<JoinHandle<Result<Open, StoreError>>>>,
}

/// A statement that is a transaction of its own, and when the rows of its answer are sent: see
/// [`ask_and_commit_first`].
pub(crate) enum Step {
    /// At once: it asks the server, and nothing of the schema.
    OfServer(String),
    /// At once: they are a word or two, which the server need not wait to send, and it has locked
    /// nothing that others wait for meanwhile.
    Short(String),
    /// Once it is committed: it has locked what others wait for, or it answers at length, and who
    /// changes the schema waits for all who read it.
    CommitsFirst(String),
    /// The same, with what asks a schema of an older version.
    Reads { newest: String, older: String },
    /// At once: they are a word or a number. What is told of it is sent with it, and runs as a
    /// transaction of its own once the step is committed.
    LocksAndTells { step: String, tell: String },
}

/// A connection that was made.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) client: Client,
    /// When its last answer came.
    answered: Instant,
    /// How often the server has said that no standby has confirmed a commit.
    unconfirmed: Arc<AtomicU64>,
    /// What it has found of the schema.
    found: Found,
    /// Dropped with it: the driver then ends.
    _held: oneshot::Sender<()>,
}

impl Link {
    pub(crate) fn new(connector: Arc<dyn Connector>, schema: Arc<Schema>) -> Link {
        Link {
            connector,
            schema,
            turns: Semaphore::new(TURNS),
            idle: Mutex::default(),
            put_back: Notify::new(),
            dialling: tokio::sync::Mutex::default(),
        }
    }

    /// Runs a step.
    ///
    /// In a task of its own: a call whose caller does not poll it, but has not given it up, would
    /// keep its turn from others. Given up, it gives its turn back, and is sent no more; what was
    /// sent already is finished, and its connection is then of use to the next.
    pub(crate) async fn call(
        self: &Arc<Self>,
        what: &'static str,
        effect: Effect,
        step: Step,
    ) -> Result<Vec<SimpleQueryRow>, StoreError> {
        let link = self.clone();
        // Dropped with this future.
        let (waits, mut given_up) = oneshot::channel();
        let mut awaited = Awaited { link: self, began: Instant::now(), answered: false, _call: waits };
        let call = tokio::spawn(async move {
            let (turn, open) = tokio::select! {
                biased;
                _ = &mut given_up => return Ok(Vec::new()),
                ready = link.ready_for(effect, &step) => ready?,
            };
            let what = named(what, &*link.connector);
            let Answer { rows, is_whole } = {
                let mut answer = pin!(open.step(&what, effect, &step, &link.schema));
                tokio::select! {
                    biased;
                    answered = &mut answer => answered?,
                    _ = &mut given_up => {
                        drop(turn);
                        timeout(LINGER, answer).await.map_err(|error| StoreError::unknown(&*what, error))??
                    }
                }
            };
            // It is back only with its answer: one that was refused in the middle of a transaction
            // leaves nothing to the next call.
            if is_whole {
                link.put_back(open);
            }
            Ok(rows)
        });
        let ended = call.await;
        awaited.answered = true;
        ended.map_err(|error: JoinError| match effect {
            Effect::Write => StoreError::unknown(what, error),
            Effect::None => StoreError::unavailable(what, error),
        })?
    }

    /// A turn, and a connection for it that has found what the step needs. Only what writes makes
    /// the schema, or brings it up to date: who makes it owns it, and who reads may do so in the
    /// wrong place.
    async fn ready_for(
        self: &Arc<Self>,
        effect: Effect,
        step: &Step,
    ) -> Result<(Option<SemaphorePermit<'_>>, Open), StoreError> {
        let (turn, mut open) = self.ready().await?;
        if open.found.is_ready() || matches!(step, Step::OfServer(_)) {
            return Ok((turn, open));
        }
        let link = self.clone();
        // A task, like that of a dial: what takes longer than a call may is found done by the next.
        let looked = tokio::spawn(async move {
            let connector = &*link.connector;
            let dialled = Dialled { client: &open.client, connector };
            let found = match effect {
                Effect::Write => in_time(&link.connecting(), link.schema.make(&dialled)).await?,
                Effect::None => in_time(&link.connecting(), link.schema.find(&dialled)).await?,
            };
            open.found = found;
            Ok::<_, StoreError>(open)
        });
        let open = looked.await.map_err(|error| StoreError::unavailable(CONNECTING, error))??;
        if matches!(open.found, Found::Missing) {
            self.put_back(open);
            return Err(self.schema.missing(&*self.connector));
        }
        Ok((turn, open))
    }

    /// A turn, and a connection for it.
    async fn ready(self: &Arc<Self>) -> Result<(Option<SemaphorePermit<'_>>, Open), StoreError> {
        // It is never closed.
        let turn = self.turns.acquire().await.ok();
        // A connection that has ended counts until the server has noticed, and others that are out
        // may be waiting as we are.
        let mut tries = 0;
        loop {
            let others_are_out = self.turns.available_permits() + 1 < TURNS;
            let dialled = async {
                if others_are_out {
                    sleep(GROW_AFTER).await;
                }
                self.dialled().await
            };
            tokio::select! {
                biased;
                open = self.idle() => return Ok((turn, open)),
                dialled = dialled => match dialled {
                    Err(full) if is_full(&full) && (others_are_out || tries > 0) && tries < TRIES_WHERE_FULL => {
                        tries += 1;
                    }
                    dialled => return Ok((turn, dialled?)),
                },
            }
            // There is no room for another one: those that are out come back, or make room.
            tokio::select! {
                biased;
                open = self.idle() => return Ok((turn, open)),
                () = sleep(DIAL_AGAIN_AFTER) => {}
            }
        }
    }

    /// A new connection.
    async fn dialled(self: &Arc<Self>) -> Result<Open, StoreError> {
        let mut dialling = self.dialling.lock().await;
        // What went wrong while nobody waited for it may be over.
        if let Some(ended) = dialling.take_if(|dialling| dialling.is_finished())
            && let Ok(Ok(open)) = ended.await
            && open.is_usable()
        {
            return Ok(open);
        }
        let link = self.clone();
        let dial = dialling.get_or_insert_with(|| tokio::spawn(async move { link.dial().await }));
        let dialled = dial.await;
        *dialling = None;
        dialled.map_err(|error| StoreError::unavailable(CONNECTING, error))?
    }

    /// Makes a connection to a server that takes writes, and looks for the schema.
    async fn dial(&self) -> Result<Open, StoreError> {
        let connector = &*self.connector;
        let (unheard, _) = mpsc::unbounded_channel();
        let dialled = async {
            let mut open = connect(&self.connecting(), connector.connect(), unheard).await?;
            open.found = self.schema.find(&Dialled { client: &open.client, connector }).await?;
            Ok(open)
        };
        in_time(&self.connecting(), dialled).await
    }

    /// What is being done while a connection is made.
    fn connecting(&self) -> String {
        connecting_to(self.connector.servers().as_deref())
    }

    /// The next connection that nobody uses.
    async fn idle(&self) -> Open {
        loop {
            let put_back = self.put_back.notified();
            if let Some(open) = self.take_idle() {
                return open;
            }
            put_back.await;
        }
    }

    fn take_idle(&self) -> Option<Open> {
        let mut idle = lock(&self.idle);
        idle.retain(Open::is_usable);
        idle.pop()
    }

    fn put_back(&self, open: Open) {
        let mut idle = lock(&self.idle);
        if idle.len() < KEPT {
            idle.push(Open { answered: Instant::now(), ..open });
            self.put_back.notify_one();
        }
    }

    /// Drops what nobody uses and nothing has come from since: where one connection hangs, those
    /// that are as old may hang with it, and each would cost another call.
    fn drop_silent_since(&self, began: Instant) {
        lock(&self.idle).retain(|open| open.answered >= began);
        // Locked, it is being made for somebody.
        if let Ok(mut dialling) = self.dialling.try_lock() {
            dialling.take_if(|dialling| dialling.is_finished());
        }
    }
}

/// A call that somebody waits for. Dropped without its answer, it was given up; at once, so that a
/// call in its place finds no connection that may hang, too.
struct Awaited<'a> {
    link: &'a Link,
    began: Instant,
    answered: bool,
    /// Dropped with it: the call then knows.
    _call: oneshot::Sender<()>,
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        // Given up sooner, it says nothing of its connection.
        if !self.answered && self.began.elapsed() > GROW_AFTER {
            self.link.drop_silent_since(self.began);
        }
    }
}

impl Open {
    fn is_usable(&self) -> bool {
        !self.client.is_closed()
    }

    async fn step(&self, what: &str, effect: Effect, step: &Step, schema: &Schema) -> Result<Answer, StoreError> {
        let unconfirmed = self.unconfirmed.load(Ordering::SeqCst);
        let answer = match step {
            Step::OfServer(step) | Step::Short(step) => ask(&self.client, step).await,
            Step::CommitsFirst(step) => ask_and_commit_first(&self.client, step).await,
            Step::Reads { newest, older } => {
                let step = if self.found.is_ready() { newest } else { older };
                ask_and_commit_first(&self.client, step).await
            }
            Step::LocksAndTells { step, tell } => ask_and_tell(&self.client, step, tell).await,
        };
        let answer = answer.map_err(|refusal| match &self.found {
            Found::Older { version, owner, .. } if is_undefined_function(&refusal) => {
                schema.too_old(what, *version, owner)
            }
            _ => classify(refusal, effect, what),
        })?;
        if self.unconfirmed.load(Ordering::SeqCst) != unconfirmed {
            let what =
                format!("{what}: the wait for a standby was cancelled, and the change may be lost with the server");
            return Err(StoreError::OutcomeUnknown { what, source: None });
        }
        Ok(answer)
    }
}

/// Makes a connection. What it is notified of goes to `heard`.
pub(crate) async fn connect(
    what: &str,
    connecting: Connecting<'_>,
    heard: mpsc::UnboundedSender<Notification>,
) -> Result<Open, StoreError> {
    let connected = connecting.await.map_err(|error| classify(error.into(), Effect::None, what));
    let (client, messages) = connected?;
    let unconfirmed = Arc::new(AtomicU64::new(0));
    let (held, holder) = oneshot::channel();
    tokio::spawn(drive(messages, unconfirmed.clone(), heard, holder));
    Ok(Open { client, answered: Instant::now(), unconfirmed, found: Found::Missing, _held: held })
}

/// That a connection is made, for messages, and where to if that is said.
pub(crate) fn connecting_to(servers: Option<&str>) -> String {
    servers.map_or_else(|| CONNECTING.to_owned(), |servers| format!("{CONNECTING} at {servers}"))
}

/// A connection with what is asked on it before it is used, unless that takes too long.
pub(crate) async fn in_time<T>(
    what: &str,
    dialled: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let no_answer = || {
        let what = format!("{what}: no answer within {DIAL_TIMEOUT:?}");
        StoreError::Unavailable { what, source: None }
    };
    timeout(DIAL_TIMEOUT, dialled).await.map_err(|_| no_answer())?
}

/// Keeps a connection going until it is lost, or for a moment longer than anybody holds it.
async fn drive(
    mut messages: Messages,
    unconfirmed: Arc<AtomicU64>,
    heard: mpsc::UnboundedSender<Notification>,
    held: oneshot::Receiver<()>,
) {
    let mut drive = pin!(async {
        while let Some(Ok(message)) = messages.next().await {
            match message {
                // It comes before the answer of its statement.
                AsyncMessage::Notice(notice) if notice.routine() == Some(GAVE_UP_WAITING_FOR_STANDBY) => {
                    unconfirmed.fetch_add(1, Ordering::SeqCst);
                }
                AsyncMessage::Notification(notification) => drop(heard.send(notification)),
                _ => {}
            }
        }
    });
    tokio::select! {
        () = &mut drive => return,
        _ = held => {}
    }
    // Nobody waits for it. What was sent is finished, unless the server hangs.
    let _ = timeout(LINGER, drive).await;
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
    use tokio_postgres::{Config, NoTls};

    use super::*;
    use crate::connector::messages;
    use crate::error::Refusal;

    /// One message of the server's.
    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = i32::try_from(body.len() + 4).unwrap().to_be_bytes();
        [&[kind], &length[..], body].concat()
    }

    /// A row of one column, with what describes it.
    fn row(text: &str) -> Vec<u8> {
        let column = [&1_i16.to_be_bytes()[..], b"said\0", &[0; 18]].concat();
        let length = i32::try_from(text.len()).unwrap().to_be_bytes();
        let value = [&1_i16.to_be_bytes()[..], &length, text.as_bytes()].concat();
        [message(b'T', &column), message(b'D', &value)].concat()
    }

    /// What the client says next, without its length.
    async fn heard(server: &mut DuplexStream) -> Vec<u8> {
        let length = usize::try_from(server.read_i32().await.unwrap()).unwrap();
        let mut body = vec![0; length - 4];
        server.read_exact(&mut body).await.unwrap();
        body
    }

    /// A connection, and the server's end of it.
    async fn connected() -> (Open, DuplexStream) {
        let (ours, mut server) = tokio::io::duplex(4096);
        let welcome = async {
            heard(&mut server).await;
            let welcome = [message(b'R', &[0; 4]), message(b'Z', b"I")].concat();
            server.write_all(&welcome).await.unwrap();
        };
        let mut config = Config::new();
        let (connected, ()) = tokio::join!(config.user("a").connect_raw(ours, NoTls), welcome);
        let (client, connection) = connected.unwrap();
        let (unheard, _) = mpsc::unbounded_channel();
        let (held, holder) = oneshot::channel();
        let unconfirmed = Arc::new(AtomicU64::new(0));
        tokio::spawn(drive(messages(connection), unconfirmed.clone(), unheard, holder));
        let found = Found::Ready { id: "a".to_owned() };
        (Open { client, answered: Instant::now(), unconfirmed, found, _held: held }, server)
    }

    /// The query that comes next.
    async fn asked(server: &mut DuplexStream) -> String {
        assert_eq!(server.read_u8().await.unwrap(), b'Q');
        String::from_utf8(heard(server).await).unwrap()
    }

    /// Answers a query, and says that so many statements were run behind the one that repeats its
    /// number.
    async fn answer(server: &mut DuplexStream, query: &str, completed: usize) {
        answer_and(server, query, completed, &[]).await;
    }

    /// The same, and then this.
    async fn answer_and(server: &mut DuplexStream, query: &str, completed: usize, last: &[u8]) {
        let nonce = query.split('\'').nth(1).unwrap();
        let done = message(b'C', b"SELECT 1\0");
        let mut answer = [row(nonce), done.clone()].concat();
        for _ in 0..completed {
            answer.extend([row("t"), done.clone()].concat());
        }
        answer.extend([last, &message(b'Z', b"I")].concat());
        server.write_all(&answer).await.unwrap();
    }

    /// What comes of a query whose answer is well, but for the number of statements that were run.
    async fn answered(completed: usize) -> Result<Answer, Refusal> {
        let (open, mut server) = connected().await;
        let serve = async {
            let query = asked(&mut server).await;
            answer(&mut server, &query, completed).await;
        };
        tokio::join!(ask(&open.client, "SELECT true"), serve).0
    }

    #[tokio::test]
    async fn a_step_whose_commit_is_not_answered_is_not_believed() {
        assert!(matches!(answered(1).await, Err(Refusal::Foreign)));
        assert_eq!(answered(2).await.unwrap().rows.len(), 1);
    }

    fn schema() -> Schema {
        Schema::new("incumbent").unwrap()
    }

    /// What comes of a step that locks, if the server gives it up after so many statements.
    async fn given_up_after(completed: usize, effect: Effect) -> Result<Answer, StoreError> {
        let (open, mut server) = connected().await;
        let (step, schema) = (Step::CommitsFirst("SELECT step()".to_owned()), schema());
        let serve = async {
            let query = asked(&mut server).await;
            let error = message(b'E', b"SERROR\0VERROR\0C57014\0Mit took too long\0\0");
            answer_and(&mut server, &query, completed, &error).await;
        };
        tokio::join!(open.step("a step", effect, &step, &schema), serve).0
    }

    #[tokio::test]
    async fn a_step_that_locks_is_committed_before_its_rows_are_sent_and_one_whose_rows_are_lost_is_not_said_to_be_undone()
     {
        let (open, mut server) = connected().await;
        let (step, schema) = (Step::CommitsFirst("SELECT step()".to_owned()), schema());
        let serve = async {
            let query = asked(&mut server).await;
            answer(&mut server, &query, 8).await;
            query
        };
        let (answered, query) = tokio::join!(open.step("a step", Effect::Write, &step, &schema), serve);
        let answered = answered.unwrap();
        assert_eq!((answered.rows.len(), answered.is_whole), (1, true), "other statements answer, too");
        let words = |statement: &str| statement.split_whitespace().next().map(str::to_owned);
        let statements = Vec::from_iter(query.trim_end_matches('\0').split(';').filter_map(words));
        let sends_rows_late =
            ["BEGIN", "SELECT", "CLOSE", "DECLARE", "MOVE", "COMMIT", "SELECT", "FETCH", "CLOSE", "COMMIT"];
        assert_eq!(statements, sends_rows_late, "{query}");

        // Behind the proof: CLOSE, DECLARE, MOVE, COMMIT, SELECT, FETCH.
        let outcomes = [3, 4, 5].map(|completed| (completed, Effect::Write));
        for (completed, effect) in [(2, Effect::Write), (4, Effect::None)].into_iter().chain(outcomes) {
            let undone = completed < 4 || effect == Effect::None;
            match given_up_after(completed, effect).await.unwrap_err() {
                StoreError::Unavailable { .. } if undone => {}
                StoreError::OutcomeUnknown { .. } if !undone => {}
                error => panic!("after {completed}: {error:?}"),
            }
        }
        let all_rows = given_up_after(6, Effect::Write).await.unwrap();
        assert_eq!((all_rows.rows.len(), all_rows.is_whole), (1, false), "all of it has come");
    }

    /// There is no server.
    #[derive(Debug)]
    struct Nowhere;

    impl Connector for Nowhere {
        fn connect(&self) -> Connecting<'_> {
            Box::pin(std::future::pending())
        }
    }

    /// A link with these connections, which are used from the last to the first.
    fn link(idle: impl IntoIterator<Item = Open>) -> Arc<Link> {
        let link = Link::new(Arc::new(Nowhere), Arc::new(schema()));
        link.idle.lock().unwrap().extend(idle);
        Arc::new(link)
    }

    async fn read(link: &Arc<Link>) -> Result<usize, StoreError> {
        let rows = link.call("reading", Effect::None, Step::Short("SELECT true".to_owned())).await;
        rows.map(|rows| rows.len())
    }

    /// Two transactions, in one round trip: inside the step, what is told would take a lock of the
    /// whole cluster through the commit.
    #[tokio::test(start_paused = true)]
    async fn what_is_told_of_a_step_goes_with_it_in_one_message_and_behind_its_commit() {
        let (open, mut server) = connected().await;
        let link = link([open]);
        let step = Step::LocksAndTells { step: "SELECT step()".to_owned(), tell: "SELECT tell()".to_owned() };
        let call = link.call("writing", Effect::Write, step);
        let serve = async {
            let query = asked(&mut server).await;
            answer(&mut server, &query, 4).await;
            query
        };
        let both = timeout(LINGER, async { tokio::join!(call, serve) });
        let (rows, query) = both.await.expect("one answer is all that it waits for");
        assert_eq!(rows.unwrap().len(), 1, "what is told answers nothing");
        let statements = Vec::from_iter(query.trim_end_matches('\0').split(';').map(str::trim));
        let [begin, _, rest @ ..] = &statements[..] else { panic!("{query}") };
        assert!(begin.starts_with("BEGIN "), "{query}");
        assert_eq!(rest, ["SELECT step()", "COMMIT AND CHAIN", "SELECT tell()", "COMMIT"]);
        let silent = timeout(Duration::from_secs(1), server.read_u8()).await;
        assert!(silent.is_err(), "nothing else is sent: {silent:?}");
        assert_eq!(link.idle.lock().unwrap().len(), 1);
    }

    /// What has failed is still open on it.
    #[tokio::test(start_paused = true)]
    async fn a_hint_or_a_cursor_that_fails_behind_the_commit_costs_its_connection_and_not_the_answer() {
        let tells = Step::LocksAndTells { step: "SELECT step()".to_owned(), tell: "SELECT tell()".to_owned() };
        for (step, completed) in [(tells, 2), (Step::CommitsFirst("SELECT step()".to_owned()), 6)] {
            let (open, mut server) = connected().await;
            let link = link([open]);
            let serve = async {
                let query = asked(&mut server).await;
                let error = message(b'E', b"SERROR\0VERROR\0C55P03\0Mit took too long\0\0");
                answer_and(&mut server, &query, completed, &error).await;
            };
            let (rows, ()) = tokio::join!(link.call("writing", Effect::Write, step), serve);
            assert_eq!(rows.unwrap().len(), 1, "{completed}");
            assert_eq!(link.idle.lock().unwrap().len(), 0, "{completed}: others are given what is left");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_hang_and_are_given_up_hold_up_no_other() {
        let (last, mut answers) = connected().await;
        let (mut idle, mut servers) = (vec![last], Vec::new());
        for _ in 0..TURNS {
            let (open, server) = connected().await;
            idle.push(open);
            servers.push(server);
        }
        let link = link(idle);
        for server in servers.iter_mut().rev() {
            tokio::select! {
                biased;
                _ = read(&link) => panic!("nobody answers"),
                _ = asked(server) => {}
            }
        }
        let began = Instant::now();
        let serve = async {
            let query = asked(&mut answers).await;
            answer(&mut answers, &query, 2).await;
        };
        let (rows, ()) = tokio::join!(read(&link), serve);
        assert_eq!((rows.unwrap(), began.elapsed()), (1, Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_given_up_costs_no_connection_once_it_is_answered() {
        let (open, mut server) = connected().await;
        let link = link([open]);
        for _ in 0..3 {
            let query = tokio::select! {
                biased;
                _ = read(&link) => panic!("nobody answers yet"),
                query = asked(&mut server) => query,
            };
            assert_eq!(link.idle.lock().unwrap().len(), 0, "its answer is still to come");
            answer(&mut server, &query, 2).await;
            let back = timeout(LINGER, link.idle()).await.expect("it is back");
            link.put_back(back);
        }
    }

    /// A firewall that forgets connections forgets all of them: a leader that loses one renewal to
    /// each does not keep its office.
    #[tokio::test(start_paused = true)]
    async fn a_call_that_hangs_and_is_given_up_takes_those_connections_along_that_are_as_silent() {
        let [(idle, _a), (hangs, _b), (unneeded, _c), (answers, _d)] =
            [connected().await, connected().await, connected().await, connected().await];
        let link = link([idle, hangs]);
        let dialled = tokio::spawn(async { Ok(unneeded) });
        while !dialled.is_finished() {
            tokio::task::yield_now().await;
        }
        *link.dialling.lock().await = Some(dialled);
        tokio::time::advance(Duration::from_secs(1)).await;
        let hung = timeout(Duration::from_secs(1), async {
            let (rows, ()) = tokio::join!(read(&link), async {
                sleep(Duration::from_millis(500)).await;
                link.put_back(answers);
            });
            rows
        });
        assert!(hung.await.is_err(), "nobody answers");
        assert!(link.dialling.lock().await.is_none(), "a connection that was not needed is as old");
        let kept = Vec::from_iter(link.idle.lock().unwrap().drain(..).map(|open| open.answered.elapsed()));
        assert_eq!(kept, [Duration::from_millis(500)], "what has answered since is well");
    }

    /// Such as that of a watch which is no longer wanted.
    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_given_up_at_once_costs_no_connection() {
        let [(idle, _a), (sent, mut server)] = [connected().await, connected().await];
        let link = link([idle, sent]);
        tokio::time::advance(Duration::from_secs(1)).await;
        tokio::select! {
            biased;
            _ = read(&link) => panic!("nobody answers yet"),
            _ = asked(&mut server) => {}
        }
        assert_eq!(link.idle.lock().unwrap().len(), 1);
    }

    /// There is one connection, and no other to be had.
    #[tokio::test(start_paused = true)]
    async fn a_call_goes_on_the_first_connection_that_there_is_though_another_is_being_made() {
        let (open, mut server) = connected().await;
        let link = link([open]);
        let serve = async {
            for _ in 0..2 {
                let query = asked(&mut server).await;
                sleep(2 * GROW_AFTER).await;
                answer(&mut server, &query, 2).await;
            }
        };
        let both = async { tokio::join!(read(&link), read(&link), serve) };
        let (first, second, ()) = timeout(DIAL_TIMEOUT, both).await.expect("both are answered");
        assert_eq!((first.unwrap(), second.unwrap()), (1, 1));
    }

    /// What its caller has forgotten must not be done.
    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_given_up_while_it_waits_for_a_turn_is_never_sent() {
        let (open, mut server) = connected().await;
        let link = link([open]);
        let turns = link.turns.acquire_many(u32::try_from(TURNS).unwrap()).await.unwrap();
        let waits = timeout(Duration::from_secs(1), read(&link)).await;
        assert!(waits.is_err(), "{waits:?}");
        drop(turns);
        let silent = timeout(Duration::from_secs(1), server.read_u8()).await;
        assert!(silent.is_err(), "{silent:?}");
        assert_eq!(link.idle.lock().unwrap().len(), 1);
    }
}
