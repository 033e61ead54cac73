//! The fence: a mark in the database that refuses older tokens, inside the transactions of its
//! users.

use incumbent_store::fence::{BoxFuture, Fence, FenceError, FencingToken, Mark, check_election, log_reset};
use incumbent_store::{Effect, ElectionName, StoreError, StoreId, Token};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, SimpleQueryRow, Transaction};

use crate::PostgresStore;
use crate::answer::{column, number, one};
use crate::connection::Step;
use crate::error::{STALE, STORE_REPLACED, classify, code};
use crate::store::bytes;

/// Guards what is written to a database: each transaction of a leader begins with
/// [`check`](PostgresFence::check), or with the same in SQL, `SELECT incumbent.fence('jobs', 42)`.
///
/// The mark may be in the database that holds the elections or in another. The server ends
/// transactions that have asked the fence and then stay idle for half the leader's TTL (7.5 s where
/// the leader has no entry in this database): a leader that is paused before its COMMIT would
/// otherwise keep its successor out of office.
///
/// ```no_run
/// use incumbent_postgres::{PostgresFence, PostgresStore};
/// use incumbent_store::fence::{ElectionName, FencingToken};
///
/// # async fn example(mut client: tokio_postgres::Client, token: FencingToken) -> Result<(), Box<dyn std::error::Error>> {
/// let store = PostgresStore::from_url("postgres://jobs@10.0.0.1/app")?;
/// let fence = PostgresFence::new(&store, &ElectionName::new("jobs")?);
/// // Attach it to the candidate: `.fence(fence.clone())`. Then, with the token of the leadership:
/// let transaction = client.transaction().await?;
/// fence.check(&transaction, &token).await?;
/// transaction.execute("UPDATE job SET state = 'done' WHERE id = 7", &[]).await?;
/// transaction.commit().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct PostgresFence {
    store: PostgresStore,
    election: ElectionName,
}

impl PostgresFence {
    /// Keeps its mark in the schema of `store`, for the leaders of `election`.
    pub fn new(store: &PostgresStore, election: &ElectionName) -> PostgresFence {
        PostgresFence { store: store.clone(), election: election.clone() }
    }

    /// Checks the token, as the first statement of a transaction and outside of its savepoints.
    /// What the transaction then writes is in one step with the check: the mark does not rise
    /// before it has ended. A token above the mark raises it, and waits for that until transactions
    /// of the leader before have ended: for as long as `lock_timeout` says, or 10 s if none is set.
    ///
    /// Above READ COMMITTED a token that is stale may also show as a serialization failure
    /// (40001), here [`FenceError::Unavailable`]: run the transaction again, as always, and it is
    /// refused. So does one that raises the mark, if the transaction may not see all that the
    /// leader before has written: attach the fence to the candidate, and the mark stands there
    /// already.
    ///
    /// A client is no transaction: each statement would be one of its own, and the check over
    /// before the next.
    ///
    /// ```compile_fail,E0308
    /// # use incumbent_postgres::PostgresFence;
    /// # use incumbent_store::fence::FencingToken;
    /// async fn check(fence: PostgresFence, client: tokio_postgres::Client, token: FencingToken) {
    ///     fence.check(&client, &token).await;
    /// }
    /// ```
    pub async fn check(&self, transaction: &Transaction<'_>, token: &FencingToken) -> Result<(), FenceError> {
        check_token(token)?;
        let (number, store) = (number(token.token), token.store.as_str());
        let params: [(&(dyn ToSql + Sync), Type); 3] =
            [(&self.election.as_str(), Type::TEXT), (&number, Type::INT8), (&store, Type::TEXT)];
        let asked = transaction.query_typed(&self.store.inner.schema.fence(), &params).await;
        match asked {
            Ok(_) => Ok(()),
            Err(error) => {
                Mark::admit(refusing(&error, &token.store).as_ref(), token)?;
                Err(classify(error.into(), Effect::None, "asking the fence").into())
            }
        }
    }

    /// An operator's act, for a store that was replaced or restored: from now on the tokens of
    /// `store` count, from the first one. Make sure that no leader of the old store still runs. It
    /// is logged as a warning, with the reason.
    pub async fn reset(&self, store: &StoreId, reason: &str) -> Result<(), FenceError> {
        // It checks its arguments.
        let _ = Mark::reset(store, reason)?;
        let inner = &self.store.inner;
        let sql = inner.schema.call("reset_mark_1", &[&bytes(&self.election), &store.as_str()]);
        let rows = inner.raises.call("resetting the mark", Effect::Write, Step::CommitsFirst(sql)).await?;
        let was = rows.first().map(read).transpose()?;
        log_reset(&self.election, was.as_ref(), store, reason);
        Ok(())
    }

    async fn raise_to(&self, to: &FencingToken) -> Result<(), FenceError> {
        check_token(to)?;
        let inner = &self.store.inner;
        // Once it is wanted, lower tokens are refused: the raise waits for those that are let
        // through already, and a leader of the past cannot keep it waiting with new ones.
        for (what, function) in [("announcing the mark", "want_mark_1"), ("raising the mark", "raise_mark_1")] {
            let sql = inner.schema.call(function, &[&bytes(&self.election), &number(to.token), &to.store.as_str()]);
            let rows = inner.raises.call(what, Effect::Write, Step::CommitsFirst(sql)).await?;
            Mark::admit(Some(&read(one(&rows)?)?), to)?;
        }
        Ok(())
    }
}

impl Fence for PostgresFence {
    fn raise<'a>(&'a self, election: &'a ElectionName, to: FencingToken) -> BoxFuture<'a, Result<(), FenceError>> {
        Box::pin(async move {
            check_election(&self.election, election)?;
            self.raise_to(&to).await
        })
    }
}

fn read(row: &SimpleQueryRow) -> Result<Mark, StoreError> {
    Ok(Mark { token: token(column(row, "token")?), store: StoreId::new(column::<&str>(row, "store")?) })
}

/// Before the database takes the name of its store for one, and keeps it.
fn check_token(token: &FencingToken) -> Result<(), FenceError> {
    Mark::admit(None, token).map(drop)
}

/// A mark that was reset stands at zero.
fn token(number: i64) -> Option<Token> {
    u64::try_from(number).ok().and_then(Token::new)
}

/// The mark that refuses, which the fence names in its error's detail.
fn refusing(error: &Error, shown: &StoreId) -> Option<Mark> {
    let detail = error.as_db_error()?.detail().unwrap_or_default();
    matches!(code(error)?, STALE | STORE_REPLACED).then(|| mark_in(detail, shown))
}

/// Its store is named where it is not the one that was shown.
pub(crate) fn mark_in(detail: &str, shown: &StoreId) -> Mark {
    let (mark, of) = detail.split_once(' ').unwrap_or((detail, shown.as_str()));
    Mark { store: StoreId::new(of), token: mark.parse().ok().and_then(token) }
}
