//! One connection to the server: dialled when it is needed, given up with a call that was given up.
//! Knows SQL, and nothing of elections.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join3;
use incumbent_store::{Effect, StoreError};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Error, Notification, Row};

use crate::connector::{Connector, Messages};
use crate::error::{Said, classify, is_read_only, needs_a_transaction_of_its_own};
use crate::schema::{About, Schema};

/// How long a connection may take to come up, the schema included.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection that is given up has to finish what was sent on it.
const LINGER: Duration = Duration::from_secs(10);
/// The routine of the server that warns of a commit which no standby has confirmed. The text is
/// translated.
const GAVE_UP_WAITING_FOR_STANDBY: &str = "SyncRepWaitForLSN";
/// For roles and databases whose defaults are other ones. A cut in the middle leaves nothing locked
/// for long.
pub(crate) const BEGIN: &str =
    "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL idle_in_transaction_session_timeout = 5000";

pub(crate) type Params<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

/// A statement and its parameters. It is sent unnamed, and all types are built in: named ones do
/// not pass a transaction pooler.
#[derive(Clone, Copy)]
pub(crate) struct Statement<'a> {
    pub(crate) sql: &'a str,
    pub(crate) params: Params<'a>,
}

/// A connection that is there when it is needed.
#[derive(Debug)]
pub(crate) struct Link {
    connector: Arc<dyn Connector>,
    schema: Arc<Schema>,
    open: Mutex<Option<Arc<Open>>>,
    dialling: tokio::sync::Mutex<()>,
}

/// A connection that was made.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) client: Client,
    pub(crate) about: About,
    /// How often the server has said that no standby has confirmed a commit.
    unconfirmed: Arc<AtomicU64>,
    /// Steps need a transaction that says what it is.
    explicit: AtomicBool,
    /// A call was given up before it was answered: others would wait behind it.
    given_up: AtomicBool,
    /// Dropped with it: the driver then ends.
    _held: oneshot::Sender<()>,
}

impl Link {
    pub(crate) fn new(connector: Arc<dyn Connector>, schema: Arc<Schema>) -> Link {
        Link { connector, schema, open: Mutex::default(), dialling: tokio::sync::Mutex::default() }
    }

    /// Runs a step: a statement that is a transaction of its own. `tell` is sent right behind it,
    /// as another.
    pub(crate) async fn call(
        &self,
        what: &str,
        effect: Effect,
        step: Statement<'_>,
        tell: Option<Statement<'_>>,
    ) -> Result<Vec<Row>, StoreError> {
        let open = self.connect().await?;
        let mut given_up = GivenUp(Some(&open));
        let unconfirmed = open.unconfirmed.load(Ordering::SeqCst);
        let mut answer = open.run(step, tell).await;
        if answer.as_ref().is_err_and(needs_a_transaction_of_its_own) && !open.explicit.swap(true, Ordering::SeqCst) {
            answer = open.run(step, tell).await;
        }
        // A server that takes no writes even so is given up: the primary is elsewhere.
        if !answer.as_ref().is_err_and(is_read_only) {
            given_up.0 = None;
        }
        if open.unconfirmed.load(Ordering::SeqCst) != unconfirmed && answer.is_ok() {
            let what =
                format!("{what}: the wait for a standby was cancelled, and the change may be lost with the server");
            return Err(StoreError::OutcomeUnknown { what, source: None });
        }
        answer.map_err(|error| classify(error, effect, what))
    }

    /// Sends a statement whose answer nobody waits for.
    pub(crate) async fn send(&self, statement: Statement<'_>) {
        let open = self.open();
        let Some(open) = open else { return };
        let mut sent = pin!(open.client.query_typed(statement.sql, statement.params));
        poll_fn(|cx| {
            let _ = sent.as_mut().poll(cx);
            Poll::Ready(())
        })
        .await;
    }

    /// The connection, which is made if there is none.
    pub(crate) async fn connect(&self) -> Result<Arc<Open>, StoreError> {
        if let Some(open) = self.open() {
            return Ok(open);
        }
        let _dialling = self.dialling.lock().await;
        if let Some(open) = self.open() {
            return Ok(open);
        }
        let (unheard, _) = mpsc::unbounded_channel();
        let open = Arc::new(dial(&*self.connector, &self.schema, unheard).await?);
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = Some(open.clone());
        Ok(open)
    }

    fn open(&self) -> Option<Arc<Open>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.take_if(|open| open.client.is_closed() || open.given_up.load(Ordering::SeqCst));
        open.clone()
    }
}

/// A call that is dropped before its answer takes its connection with it: the next one must not
/// wait behind it.
struct GivenUp<'a>(Option<&'a Open>);

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        if let Some(open) = self.0 {
            open.given_up.store(true, Ordering::SeqCst);
        }
    }
}

impl Open {
    async fn run(&self, step: Statement<'_>, tell: Option<Statement<'_>>) -> Result<Vec<Row>, Error> {
        if !self.explicit.load(Ordering::SeqCst) {
            return self.send_both(self.client.query_typed(step.sql, step.params), tell).await;
        }
        let step = async {
            let step = self.client.query_typed(step.sql, step.params);
            // All three are sent at once, in this order.
            let (began, rows, ended) =
                join3(self.client.batch_execute(BEGIN), step, self.client.batch_execute("COMMIT")).await;
            began?;
            let rows = rows?;
            ended.map(|()| rows)
        };
        self.send_both(step, tell).await
    }

    /// Sends both, and answers with the first one's.
    async fn send_both(
        &self,
        step: impl Future<Output = Result<Vec<Row>, Error>>,
        tell: Option<Statement<'_>>,
    ) -> Result<Vec<Row>, Error> {
        let tell = async {
            if let Some(Statement { sql, params }) = tell {
                // It is a hint.
                let _ = self.client.query_typed(sql, params).await;
            }
        };
        let (mut step, mut tell) = (pin!(step), pin!(tell));
        let mut told = false;
        poll_fn(|cx| {
            if let Poll::Ready(answer) = step.as_mut().poll(cx) {
                return Poll::Ready(answer);
            }
            told = told || tell.as_mut().poll(cx).is_ready();
            Poll::Pending
        })
        .await
    }
}

/// Makes a connection to a server that takes writes, and the schema if it is missing. What it is
/// notified of goes to `heard`.
pub(crate) async fn dial(
    connector: &dyn Connector,
    schema: &Schema,
    heard: mpsc::UnboundedSender<Notification>,
) -> Result<Open, StoreError> {
    let what = "connecting to PostgreSQL";
    let dialled = timeout(DIAL_TIMEOUT, async {
        let (client, messages) = connector.connect().await.map_err(|error| classify(error, Effect::None, what))?;
        let unconfirmed = Arc::new(AtomicU64::new(0));
        let (held, holder) = oneshot::channel();
        tokio::spawn(drive(messages, unconfirmed.clone(), heard, holder));
        let about = schema.find_or_make(&client).await?;
        let explicit = AtomicBool::new(false);
        Ok(Open { client, about, unconfirmed, explicit, given_up: AtomicBool::new(false), _held: held })
    });
    let no_answer =
        || StoreError::Unavailable { what: format!("{what}: no answer within {DIAL_TIMEOUT:?}"), source: None };
    dialled.await.map_err(|_| no_answer())?
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

/// An error of a statement that is part of dialling.
pub(crate) fn while_dialling(what: &str) -> impl FnOnce(Error) -> StoreError + '_ {
    move |error| match needs_a_transaction_of_its_own(&error) {
        true => StoreError::unavailable(what, Said(error)),
        false => classify(error, Effect::None, what),
    }
}
