//! One connection to the server: dialled when it is needed, used by one call at a time, dropped
//! with a call that was given up. Knows SQL, and nothing of elections.
//!
//! A call is one message, which is answered as a whole: the transaction and what is told of it.
//! Nothing is sent before the answer to the message before has come. A client that goes away with
//! two answers under way leaves the second one, through pgbouncer before 1.21, to whoever gets the
//! server's connection next.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use incumbent_store::{Effect, StoreError, random_words};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::timeout;
use tokio_postgres::{AsyncMessage, Client, Notification, SimpleQueryMessage, SimpleQueryRow};

use crate::connector::{Connector, Messages};
use crate::error::{Refusal, classify};
use crate::schema::{About, Schema};

/// How long a connection may take to come up, the schema included.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection that is given up has to finish what was sent on it.
const LINGER: Duration = Duration::from_secs(10);
/// The routine of the server that warns of a commit which no standby has confirmed. The text is
/// translated.
const GAVE_UP_WAITING_FOR_STANDBY: &str = "SyncRepWaitForLSN";
/// What a transaction begins with, whatever the defaults of the role and of the database are.
pub(crate) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;";

/// A connection that is there when it is needed.
#[derive(Debug)]
pub(crate) struct Link {
    connector: Arc<dyn Connector>,
    schema: Arc<Schema>,
    slot: Mutex<Slot>,
}

/// The connection while no call has it.
#[derive(Debug, Default)]
struct Slot {
    idle: Option<Open>,
    /// It is being made. That goes on when the call that began it is given up: over a slow link it
    /// takes longer than a call may, and the next one finds it made.
    dialling: Option<JoinHandle<Result<Open, StoreError>>>,
}

/// A connection that was made.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) client: Client,
    pub(crate) about: About,
    /// How often the server has said that no standby has confirmed a commit.
    unconfirmed: Arc<AtomicU64>,
    /// Dropped with it: the driver then ends.
    _held: oneshot::Sender<()>,
}

impl Link {
    pub(crate) fn new(connector: Arc<dyn Connector>, schema: Arc<Schema>) -> Link {
        Link { connector, schema, slot: Mutex::default() }
    }

    /// Runs a step: a statement that is a transaction of its own. `tell` is sent with it, and runs
    /// as another one once the step is committed.
    ///
    /// In a task of its own, which ends with the one who waits for it: a call whose caller does not
    /// poll it, but has not given it up, would keep the connection from all others.
    pub(crate) async fn call(
        self: &Arc<Self>,
        what: &'static str,
        effect: Effect,
        step: String,
        tell: Option<String>,
    ) -> Result<Vec<SimpleQueryRow>, StoreError> {
        let link = self.clone();
        let mut call = GivenUp(tokio::spawn(async move {
            let mut slot = link.slot.lock().await;
            let open = link.take(&mut slot).await?;
            // It is back only with its answer: a call that is given up, or refused in the middle of
            // a transaction, leaves nothing to the next one.
            let rows = open.step(&named(what, &*link.connector), effect, &step, tell.as_deref()).await?;
            slot.idle = Some(open);
            Ok(rows)
        }));
        let lost = |error: JoinError| match effect {
            Effect::Write => StoreError::unknown(what, error),
            Effect::None => StoreError::unavailable(what, error),
        };
        (&mut call.0).await.map_err(lost)?
    }

    /// The connection, which is made if there is none.
    async fn take(self: &Arc<Self>, slot: &mut Slot) -> Result<Open, StoreError> {
        let usable = |open: &Open| !open.client.is_closed();
        if let Some(open) = slot.idle.take().filter(usable) {
            return Ok(open);
        }
        // What went wrong while nobody waited for it may be over.
        if let Some(ended) = slot.dialling.take_if(|dialling| dialling.is_finished())
            && let Ok(Ok(open)) = ended.await
            && usable(&open)
        {
            return Ok(open);
        }
        let link = self.clone();
        let dialling = slot.dialling.get_or_insert_with(|| {
            let (unheard, _) = mpsc::unbounded_channel();
            tokio::spawn(async move { dial(&*link.connector, &link.schema, unheard).await })
        });
        let dialled = dialling.await;
        slot.dialling = None;
        dialled.map_err(|error| StoreError::unavailable("connecting to PostgreSQL", error))?
    }
}

/// A call ends with the one who waits for it.
struct GivenUp<T>(JoinHandle<T>);

impl<T> Drop for GivenUp<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Open {
    async fn step(
        &self,
        what: &str,
        effect: Effect,
        step: &str,
        tell: Option<&str>,
    ) -> Result<Vec<SimpleQueryRow>, StoreError> {
        let unconfirmed = self.unconfirmed.load(Ordering::SeqCst);
        let after = format!("COMMIT;{}", tell.unwrap_or_default());
        let rows = ask(&self.client, BEGIN, step, &after).await.map_err(|refusal| classify(refusal, effect, what))?;
        if self.unconfirmed.load(Ordering::SeqCst) != unconfirmed {
            let what =
                format!("{what}: the wait for a standby was cancelled, and the change may be lost with the server");
            return Err(StoreError::OutcomeUnknown { what, source: None });
        }
        Ok(rows)
    }
}

/// Sends one message, a query with what comes `before` and `after` it, and reads the query's rows.
///
/// Each answer proves itself: in front of the query the server is asked to repeat a random number.
/// An answer without it, be it rows or an error, is somebody else's, and says nothing of what was
/// asked. Nor does one that ends before the first statement `after` the query, which commits it.
pub(crate) async fn ask(
    client: &Client,
    before: &str,
    query: &str,
    after: &str,
) -> Result<Vec<SimpleQueryRow>, Refusal> {
    let [nonce] = random_words::<1>().map_err(Refusal::Nonce)?;
    let nonce = nonce.to_string();
    // Whatever the role's defaults are, bytes are written in hexadecimal, and the warning that no
    // standby has confirmed a commit is sent.
    let proof = format!(
        "SELECT '{nonce}', pg_catalog.set_config('bytea_output', 'hex', true), \
         pg_catalog.set_config('client_min_messages', 'warning', true)"
    );
    let message = format!("{before} {proof}; {query}; {after}");
    let unproven = |error| Refusal::Said { error, proven: false };
    let mut answer = pin!(client.simple_query_raw(&message).await.map_err(unproven)?);
    let (mut proven, mut completed, mut rows) = (false, 0, Vec::new());
    while let Some(part) = answer.next().await {
        match part {
            Ok(SimpleQueryMessage::Row(row)) if !proven => {
                proven = row.try_get(0).is_ok_and(|said| said == Some(&*nonce));
                if !proven {
                    return Err(Refusal::Foreign);
                }
            }
            Ok(SimpleQueryMessage::Row(row)) if completed == 1 => rows.push(row),
            Ok(SimpleQueryMessage::CommandComplete(_)) if proven => completed += 1,
            Ok(_) => {}
            // The transaction is committed: what was told of it is a hint.
            Err(error) if completed > 2 && error.as_db_error().is_some() => {}
            Err(_) if completed > 2 => break,
            Err(error) => return Err(Refusal::Said { error, proven }),
        }
    }
    let expected = if after.is_empty() { 2 } else { 3 };
    if completed < expected { Err(Refusal::Foreign) } else { Ok(rows) }
}

/// Makes a connection to a server that takes writes, and the schema if it is missing. What it is
/// notified of goes to `heard`.
pub(crate) async fn dial(
    connector: &dyn Connector,
    schema: &Schema,
    heard: mpsc::UnboundedSender<Notification>,
) -> Result<Open, StoreError> {
    let what = named("connecting to PostgreSQL", connector);
    let dialled = timeout(DIAL_TIMEOUT, async {
        let (client, messages) =
            connector.connect().await.map_err(|error| classify(error.into(), Effect::None, &what))?;
        let unconfirmed = Arc::new(AtomicU64::new(0));
        let (held, holder) = oneshot::channel();
        tokio::spawn(drive(messages, unconfirmed.clone(), heard, holder));
        let about = schema.find_or_make(&client).await?;
        Ok(Open { client, about, unconfirmed, _held: held })
    });
    let no_answer =
        || StoreError::Unavailable { what: format!("{what}: no answer within {DIAL_TIMEOUT:?}"), source: None };
    dialled.await.map_err(|_| no_answer())?
}

/// What was tried, and at which server.
fn named(what: &str, connector: &dyn Connector) -> String {
    connector.servers().map_or_else(|| what.to_owned(), |servers| format!("{what} at {servers}"))
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

    /// What comes of a query whose answer is well, but for the `completed` statements that it says
    /// were run behind the one that it repeats the number for.
    async fn answered(completed: usize, after: &str) -> Result<Vec<SimpleQueryRow>, Refusal> {
        let (ours, mut server) = tokio::io::duplex(4096);
        let ready = message(b'Z', b"I");
        let serve = tokio::spawn(async move {
            heard(&mut server).await;
            let welcome = [message(b'R', &[0; 4]), ready.clone()].concat();
            server.write_all(&welcome).await.unwrap();
            assert_eq!(server.read_u8().await.unwrap(), b'Q');
            let query = String::from_utf8(heard(&mut server).await).unwrap();
            let nonce = query.split('\'').nth(1).unwrap();
            let done = message(b'C', b"SELECT 1\0");
            let mut answer = [row(nonce), done.clone()].concat();
            for _ in 0..completed {
                answer.extend([row("t"), done.clone()].concat());
            }
            server.write_all(&[answer, ready].concat()).await.unwrap();
            server
        });
        let (client, connection) = Config::new().user("a").connect_raw(ours, NoTls).await.unwrap();
        let driver = tokio::spawn(connection);
        let answer = ask(&client, "", "SELECT true", after).await;
        driver.abort();
        serve.await.unwrap();
        answer
    }

    #[tokio::test]
    async fn a_step_whose_commit_is_not_answered_is_not_believed() {
        assert!(matches!(answered(1, "COMMIT").await, Err(Refusal::Foreign)));
        assert_eq!(answered(2, "COMMIT").await.unwrap().len(), 1);
        assert_eq!(answered(1, "").await.unwrap().len(), 1);
    }
}
