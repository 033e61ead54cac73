//! One message to the server and its answer, which proves itself.

use std::pin::pin;

use futures_util::StreamExt as _;
use incumbent_store::random_words;
use tokio_postgres::{Client, SimpleQueryMessage, SimpleQueryRow};

use crate::error::Refusal;

/// What a transaction begins with, whatever the defaults of the role and of the database are.
pub(crate) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;";
/// How many statements have been run, from the proof on: the proof,
const PROVEN: usize = 1;
/// the query behind it,
const QUERIED: usize = 2;
/// and the first one after that, which commits it. Then comes what is told of it.
const COMMITTED: usize = 3;

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
            Ok(SimpleQueryMessage::Row(row)) if completed == PROVEN => rows.push(row),
            Ok(SimpleQueryMessage::CommandComplete(_)) if proven => completed += 1,
            Ok(_) => {}
            // The transaction is committed: what was told of it is a hint.
            Err(error) if completed >= COMMITTED && error.as_db_error().is_some() => {}
            Err(_) if completed >= COMMITTED => break,
            Err(error) => return Err(Refusal::Said { error, proven }),
        }
    }
    let expected = if after.is_empty() { QUERIED } else { COMMITTED };
    if completed < expected { Err(Refusal::Foreign) } else { Ok(rows) }
}
