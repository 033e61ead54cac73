//! What refuses the writes of a leader that has lost office.
//!
//! A fence remembers the highest token that it has seen, its *mark*, and refuses every lower one.
//! Checking the token and writing is one atomic step at the resource. A fence knows nothing of
//! sessions, deadlines or lines: a token and a mark are all that it compares.
//!
//! Stores bring fences of their own; the library has one in memory and one in a directory.

mod error;
mod mark;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

pub use error::FenceError;
pub use incumbent_core::{ElectionName, StoreId, Token};
pub use mark::{Mark, check_election, log_reset};

/// A future on the heap, as a trait object needs it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A resource that refuses older tokens.
///
/// Attach it to a candidate; it is raised each time that the candidate is elected, inside the
/// term's deadline and before the candidate sees its office. If it cannot be raised, the candidate
/// is not in office.
///
/// # A database
/// A row for each election keeps the mark and the store that it came from. Raising it is one
/// statement, a maximum; each transaction of a leader begins by looking, with a shared lock,
/// whether the mark is still its own token. (The page `docs/fencing.md` of the repository has the
/// SQL of both.)
///
/// ```
/// use incumbent_store::fence::{BoxFuture, ElectionName, Fence, FenceError, FencingToken, StoreId, Token};
///
/// # use std::io::Error as DatabaseError;
/// # #[derive(Debug, Default)] struct Database { row: std::sync::Mutex<Option<(String, u64)>> }
/// # impl Database {
/// #     async fn raise(&self, _: &str, _: &str, store: &str, token: u64) -> Result<(String, u64), DatabaseError> {
/// #         let mut row = self.row.lock().unwrap();
/// #         if row.as_ref().is_none_or(|(of, mark)| of == store && *mark <= token) {
/// #             *row = Some((store.to_owned(), token));
/// #         }
/// #         row.clone().ok_or_else(|| DatabaseError::other("no row"))
/// #     }
/// # }
/// #[derive(Debug)]
/// struct DatabaseFence(Database);
///
/// impl Fence for DatabaseFence {
///     fn raise<'a>(&'a self, election: &'a ElectionName, to: FencingToken) -> BoxFuture<'a, Result<(), FenceError>> {
///         Box::pin(async move {
///             // Raised or not, it answers with the row as it is now.
///             let sql = "INSERT INTO fence (election, store, mark) VALUES ($1, $2, $3)
///                 ON CONFLICT (election) DO UPDATE SET mark = excluded.mark
///                 WHERE fence.store = excluded.store AND fence.mark <= excluded.mark;
///                 SELECT store, mark FROM fence WHERE election = $1";
///             let row = self.0.raise(sql, election.as_str(), to.store.as_str(), to.get()).await;
///             let (store, mark) = row.map_err(|error| FenceError::unavailable("raising the mark", error))?;
///             let corrupt = |error| FenceError::Corrupt { what: format!("the mark of {election}: {error}") };
///             let mark = Token::try_from(mark).map_err(corrupt)?;
///             match store == to.store.as_str() {
///                 true if mark == to.token => Ok(()),
///                 true => Err(FenceError::Stale { token: to.token, mark }),
///                 false => Err(FenceError::StoreReplaced {
///                     mark: Some(mark),
///                     mark_store: StoreId::new(store),
///                     token: to.token,
///                     store: to.store,
///                 }),
///             }
///         })
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let fence = DatabaseFence(Database::default());
/// let election = ElectionName::new("accounts")?;
/// let token = |number| FencingToken::new(Token::new(number).unwrap(), StoreId::new("store-1"));
/// fence.raise(&election, token(42)).await?;
/// fence.raise(&election, token(42)).await?;
/// assert!(matches!(fence.raise(&election, token(41)).await, Err(FenceError::Stale { .. })));
/// # Ok(())
/// # }
/// ```
///
/// # What an implementation must keep
/// - The mark never goes back, whatever crashes, and it is durable before `raise` answers.
/// - A lower token is refused by `raise` and by every write, and the write's check is part of the
///   write.
/// - The mark remembers which store its token came from. Numbers of two stores do not compare: a
///   token of another store is [`FenceError::StoreReplaced`], which an operator has to settle.
/// - Calls may be repeated, and dropped half-way.
pub trait Fence: fmt::Debug + Send + Sync + 'static {
    /// Raises the mark to `to`, if it is not there already. From then on lower tokens are refused.
    ///
    /// It is a maximum: repeating it changes nothing, and a token below the mark is
    /// [`FenceError::Stale`].
    fn raise<'a>(&'a self, election: &'a ElectionName, to: FencingToken) -> BoxFuture<'a, Result<(), FenceError>>;
}

impl<F: Fence + ?Sized> Fence for Arc<F> {
    fn raise<'a>(&'a self, election: &'a ElectionName, to: FencingToken) -> BoxFuture<'a, Result<(), FenceError>> {
        (**self).raise(election, to)
    }
}

/// What a leader shows to a resource: a number that strictly grows from leader to leader, and the
/// store that made it.
///
/// Numbers of two stores do not compare, so there is no order on this type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FencingToken {
    /// The number, which the resource compares.
    pub token: Token,
    /// The identity of the store that made it.
    pub store: StoreId,
}

impl FencingToken {
    /// Puts the two together.
    pub fn new(token: Token, store: StoreId) -> FencingToken {
        FencingToken { token, store }
    }

    /// The bare number, for a column or a header. It fits a signed 64-bit integer.
    pub fn get(&self) -> u64 {
        self.token.get()
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.token, self.store)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_as_its_number_and_its_store() {
        let token = FencingToken::new(Token::new(41).unwrap(), StoreId::new("etcd-cdf8"));
        assert_eq!(token.to_string(), "41@etcd-cdf8");
        assert_eq!(token.get(), 41);
    }
}
