//! From the server's errors to ours: who has to act, and whether the statement can have had an
//! effect.

use std::fmt;
use std::sync::Arc;

use incumbent_store::{Effect, StoreError};
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity};

/// Ours: the transaction's isolation level is not READ COMMITTED.
pub(crate) const WRONG_ISOLATION: &str = "IN001";
/// Ours: the token is below the mark.
pub(crate) const STALE: &str = "IN409";
/// Ours: the mark comes from another store.
pub(crate) const STORE_REPLACED: &str = "IN410";
const READ_ONLY: &str = "25006";

/// Whether the defaults of the role or the database are in the way: the step runs in a transaction
/// that says what it needs.
pub(crate) fn needs_a_transaction_of_its_own(error: &Error) -> bool {
    matches!(code(error), Some(WRONG_ISOLATION | READ_ONLY))
}

/// Whether the server takes no writes: it has become a standby, or was one.
pub(crate) fn is_read_only(error: &Error) -> bool {
    code(error) == Some(READ_ONLY)
}

pub(crate) fn code(error: &Error) -> Option<&str> {
    error.code().map(|state| state.code())
}

/// Sorts an error of a statement that was sent.
pub(crate) fn classify(error: Error, effect: Effect, what: &str) -> StoreError {
    let code = code(&error).unwrap_or_default().to_owned();
    if effect == Effect::Write && may_have_been_committed(&error) {
        return StoreError::unknown(what, Said(error));
    }
    match (code.get(..2).unwrap_or_default(), code.as_str()) {
        (_, "42501") | ("28", _) => StoreError::Denied { what: what.to_owned(), source: Some(Arc::new(Said(error))) },
        (_, "42883" | "42P01" | "3F000") => StoreError::Misuse {
            what: format!("{what}: {}; was the schema removed? `incumbent schema postgres` prints it", Said(error)),
        },
        (_, "3D000") => StoreError::Misuse { what: format!("{what}: {}", Said(error)) },
        // Rows that do not fit, wrong arguments: trying again changes nothing.
        ("22" | "23" | "42", _) => StoreError::Misuse { what: format!("{what}: {}", Said(error)) },
        (_, READ_ONLY) => {
            let what = format!("{what}: the server takes no writes; the primary may be elsewhere");
            StoreError::unavailable(what, Said(error))
        }
        // Deadlocks, locks that were not to be had, too many connections, and ours: nobody leads
        // yet (IN003).
        _ => StoreError::unavailable(what, Said(error)),
    }
}

/// An ERROR comes before the commit, and ends its transaction. Whatever else ends a statement says
/// nothing of it: a server that goes away, a connection that is lost, and what a pooler says about
/// either (class 08).
fn may_have_been_committed(error: &Error) -> bool {
    // Not the text of the severity, which is translated.
    let certain = |said: &DbError| said.parsed_severity() == Some(Severity::Error);
    error.as_db_error().is_none_or(|said| !certain(said) || said.code().code().starts_with("08"))
}

/// What the server said, or why nothing came, in one line.
#[derive(Debug)]
pub(crate) struct Said(pub(crate) Error);

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(said) = self.0.as_db_error() else { return self.0.fmt(f) };
        write!(f, "{} ({})", said.message(), said.code().code())
    }
}

impl std::error::Error for Said {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // What the server said is in the text above.
        if self.0.as_db_error().is_some() { None } else { self.0.source() }
    }
}
