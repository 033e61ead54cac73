//! One message to the server and its answer, which proves itself.

use std::pin::pin;

use futures_util::StreamExt as _;
use incumbent_store::random_words;
use tokio_postgres::{Client, SimpleQueryMessage, SimpleQueryRow};

use crate::error::Refusal;

/// What a transaction begins with, whatever the defaults of the role and of the database are.
pub(crate) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;";
/// Bytes are written in hexadecimal, whatever the role's defaults are.
const HEX: &str = "pg_catalog.set_config('bytea_output', 'hex', true)";

/// What a message asks, and how many of its statements have been run by when. `BEGIN` is not
/// counted: the first statement is the one that proves the answer.
struct Message {
    nonce: String,
    text: String,
    /// Before the one that answers,
    asked: usize,
    /// once what was done is committed,
    committed: usize,
    /// and at the end. What comes after that is a hint, or only tidies up.
    done: usize,
}

/// The rows that a query has brought.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) rows: Vec<SimpleQueryRow>,
    /// All of the message was run. If not, its connection is of no use to others: a cursor was left
    /// on it, or a transaction that has failed.
    pub(crate) is_whole: bool,
}

/// Sends one message, a query in a transaction of its own, and reads the query's rows.
///
/// Each answer proves itself: in front of the query the server is asked to repeat a random number.
/// An answer without it, be it rows or an error, is somebody else's, and says nothing of what was
/// asked. Nor does one that ends before the transaction is committed.
pub(crate) async fn ask(client: &Client, query: &str) -> Result<Answer, Refusal> {
    let nonce = nonce()?;
    let text = format!("{BEGIN} {}; {query}; COMMIT", proof(&nonce));
    send(client, Message { nonce, text, asked: 1, committed: 3, done: 3 }).await
}

/// The same, and then a hint, in a transaction of its own. Chained, it begins as the one before:
/// with the defaults of the role it might wait without an end (`SERIALIZABLE READ ONLY DEFERRABLE`
/// waits for everybody's transactions), or may not do what it does.
pub(crate) async fn ask_and_tell(client: &Client, query: &str, tell: &str) -> Result<Answer, Refusal> {
    let nonce = nonce()?;
    let text = format!("{BEGIN} {}; {query}; COMMIT AND CHAIN; {tell}; COMMIT", proof(&nonce));
    send(client, Message { nonce, text, asked: 1, committed: 3, done: 3 }).await
}

/// The same without a hint, and without a transaction of its own: in one that was begun already, or
/// on a server that may be a standby, where none begins that writes.
pub(crate) async fn look(client: &Client, query: &str) -> Result<Vec<SimpleQueryRow>, Refusal> {
    let nonce = nonce()?;
    let text = format!("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; {}; {query}", proof(&nonce));
    Ok(send(client, Message { nonce, text, asked: 1, committed: 2, done: 2 }).await?.rows)
}

/// Runs a query in a transaction of its own, and reads its rows once that is committed.
///
/// The server sends what does not fit into its buffer (8 KiB) while it computes the rest, and waits
/// without an end where nobody reads: a process that is stopped, a link that is cut. Were the
/// transaction still open then, all that it has locked would stay so: the session that is renewed,
/// which nobody could find expired, an election, or the tables, which nobody could change. So the
/// query fills a cursor that outlives the transaction (`MOVE` sends no row), and until the commit a
/// few hundred bytes have come. A function in FROM is run once: what it has answered is kept, and
/// not computed again at the commit.
///
/// So the rows say what they would say if they came at once, what was so under the locks, and prove
/// the same: they come later, when the renewal or the place in line that they tell of is already
/// durable, and a deadline counts from the moment at which the question was sent.
///
/// What comes behind the commit is chained to it, see [`ask_and_tell`].
///
/// Backwards, since that is where the cursor stands. Its name is always the same: each statement
/// about another one would be another one for `pg_stat_statements`, which keeps 5,000 in all. So
/// one that was left behind, on a connection of a pooler's, is closed first; behind the proof,
/// since that is where statements are counted from.
pub(crate) async fn ask_and_commit_first(client: &Client, query: &str) -> Result<Answer, Refusal> {
    let nonce = nonce()?;
    let text = format!(
        "{BEGIN} {}; CLOSE ALL; DECLARE answer SCROLL CURSOR WITH HOLD FOR {query}; MOVE ALL IN answer; \
         COMMIT AND CHAIN; SELECT {HEX}; FETCH BACKWARD ALL FROM answer; CLOSE answer; COMMIT",
        proof(&nonce)
    );
    let mut answer = send(client, Message { nonce, text, asked: 6, committed: 5, done: 7 }).await?;
    answer.rows.reverse();
    Ok(answer)
}

fn nonce() -> Result<String, Refusal> {
    let [nonce] = random_words::<1>().map_err(Refusal::Nonce)?;
    Ok(nonce.to_string())
}

/// And the warning that no standby has confirmed a commit is sent, whatever the role's defaults.
fn proof(nonce: &str) -> String {
    format!("SELECT '{nonce}', {HEX}, pg_catalog.set_config('client_min_messages', 'warning', true)")
}

async fn send(client: &Client, message: Message) -> Result<Answer, Refusal> {
    let Message { nonce, text, asked, committed, done } = message;
    let unproven = |error| Refusal::Said { error, proven: false };
    let mut answer = pin!(client.simple_query_raw(&text).await.map_err(unproven)?);
    let (mut proven, mut completed, mut rows, mut is_whole) = (false, 0, Vec::new(), true);
    while let Some(part) = answer.next().await {
        match part {
            Ok(SimpleQueryMessage::Row(row)) if !proven => {
                proven = row.try_get(0).is_ok_and(|said| said == Some(&*nonce));
                if !proven {
                    return Err(Refusal::Foreign);
                }
            }
            Ok(SimpleQueryMessage::Row(row)) if completed == asked => rows.push(row),
            Ok(SimpleQueryMessage::CommandComplete(_)) if proven => completed += 1,
            Ok(_) => {}
            Err(_) if completed >= done => {
                is_whole = false;
                break;
            }
            Err(error) if completed >= committed => return Err(Refusal::Unread(error)),
            Err(error) => return Err(Refusal::Said { error, proven }),
        }
    }
    if completed < done { Err(Refusal::Foreign) } else { Ok(Answer { rows, is_whole }) }
}
