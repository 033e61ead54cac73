//! From the server's errors to ours: who has to act, and whether the statement can have had an
//! effect.

use std::fmt;
use std::io;
use std::sync::Arc;

use incumbent_store::{Effect, StoreError};
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity};

#[cfg(feature = "tls")]
use crate::tls::advice as tls_advice;
/// This build speaks no TLS, unless by a connector that others bring.
#[cfg(not(feature = "tls"))]
fn tls_advice(_: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    None
}

/// Ours: the token is below the mark.
pub(crate) const STALE: &str = "IN409";
/// Ours: the mark comes from another store.
pub(crate) const STORE_REPLACED: &str = "IN410";

/// Ours: the row with what is true of the whole store cannot be seen.
const NO_STORE_ROW: &str = "IN004";

/// Why a message brought no rows.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Nothing was sent: there are no random numbers.
    Nonce(io::Error),
    /// An error came. Only one that is `proven` is known to belong to what was asked.
    Said { error: Error, proven: bool },
    /// What was asked is done and committed, and its answer has not come.
    Unread(Error),
    /// The answer belongs to something else that was asked.
    Foreign,
}

/// An error of what is not a step: of connecting, or in a transaction of the user's.
impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Said { error, proven: true }
    }
}

pub(crate) fn code(error: &Error) -> Option<&str> {
    error.code().map(|state| state.code())
}

/// Sorts what came in place of rows.
pub(crate) fn classify(refusal: Refusal, effect: Effect, what: &str) -> StoreError {
    let (error, proven) = match refusal {
        Refusal::Said { error, proven } => (error, proven),
        Refusal::Unread(error) => {
            return match effect {
                Effect::Write => StoreError::unknown(what, Said(error)),
                Effect::None => StoreError::unavailable(what, Said(error)),
            };
        }
        Refusal::Nonce(error) => return StoreError::unavailable(what, error),
        Refusal::Foreign => {
            let what = format!(
                "{what}: the answer belongs to somebody else's question; does a pooler older than pgbouncer 1.21 give \
                 its connections to programs that send ahead?"
            );
            return match effect {
                Effect::Write => StoreError::OutcomeUnknown { what, source: None },
                Effect::None => StoreError::Unavailable { what, source: None },
            };
        }
    };
    let code = code(&error).unwrap_or_default().to_owned();
    match effect {
        Effect::Write if !proven || may_have_been_committed(&error) => return StoreError::unknown(what, Said(error)),
        Effect::None if !proven => return StoreError::unavailable(what, Said(error)),
        _ => {}
    }
    if let Some(refused) = refused_by_tls(&error, what).or_else(|| refused_by_pooler(&error, what)) {
        return refused;
    }
    if wants_a_password(&error) {
        let file = crate::options::passed_over().unwrap_or_else(|| {
            "there is no line that fits in the file that PGPASSFILE names (or in ~/.pgpass)".to_owned()
        });
        let what = format!("{what}: the server wants a password, there is none in the URL, and {file}");
        return StoreError::Denied { what, source: None };
    }
    match (code.get(..2).unwrap_or_default(), code.as_str()) {
        (_, "42501") | ("28", _) => {
            let what = format!("{what}{}", remedy(&error));
            StoreError::Denied { what, source: Some(Arc::new(Said(error))) }
        }
        (_, "42883" | "42P01" | "3F000") => StoreError::Misuse {
            what: format!("{what}: {}; was the schema removed? `incumbent schema postgres` prints it", Said(error)),
        },
        (_, NO_STORE_ROW) => StoreError::Corrupt { what: format!("{what}: {}", Said(error)) },
        (_, "3D000") => StoreError::Misuse { what: format!("{what}: {}", Said(error)) },
        // Rows that do not fit, wrong arguments: trying again changes nothing.
        ("22" | "23" | "42", _) => StoreError::Misuse { what: format!("{what}: {}", Said(error)) },
        // Deadlocks, locks that were not to be had, too many connections, a server that takes no
        // writes any more, and ours: nobody leads yet (IN003).
        _ => StoreError::unavailable(what, Said(error)),
    }
}

/// Whether there is no such function: in a schema that an older library has made, say.
pub(crate) fn is_undefined_function(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Said { error, proven: true } if code(error) == Some("42883"))
}

/// What to do where a role was refused, as far as that can be told.
fn remedy(error: &Error) -> &'static str {
    let said = error.as_db_error().map(DbError::message).unwrap_or_default();
    match code(error) {
        Some("42501") => ": this role lacks a right (`incumbent schema postgres` begins with the GRANTs that it needs)",
        // In a server's other languages this is not found, and what it said stands by itself.
        Some("28000") if said.contains("no encryption") => ": without TLS (?sslrootcert=FILE asks for it)",
        _ => "",
    }
}

/// The client found out before the server did. Nothing but the text says so.
fn wants_a_password(error: &Error) -> bool {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    error.as_db_error().is_none() && cause.as_deref() == Some("password missing")
}

/// What TLS will not let pass however often it is tried, with what to do about it. Only texts tell
/// what the client has found out by itself.
fn refused_by_tls(error: &Error, what: &str) -> Option<StoreError> {
    let cause = std::error::Error::source(error)?;
    let next = if cause.is::<io::Error>() {
        tls_advice(cause)?
    } else if error.to_string() != "error performing TLS handshake" {
        return None;
    } else if cause.to_string() == "server does not support TLS" {
        "sslmode, or sslrootcert, asks for it: switch it on there (`ssl = on`; client_tls_sslmode of pgbouncer), or say \
         sslmode=disable if nobody on the way can read or change what is sent"
    } else {
        "name the host as the server's certificate does, or say sslmode=disable for a socket of this host"
    };
    Some(StoreError::Denied { what: format!("{what}: {cause}; {next}"), source: None })
}

/// Its code (08P01) is that of all that pgbouncer says by itself, also of what passes. Its texts
/// are in one language.
fn refused_by_pooler(error: &Error, what: &str) -> Option<StoreError> {
    let said = error.as_db_error().filter(|said| said.code().code() == "08P01")?.message();
    let denied = |next: &str| StoreError::Denied { what: format!("{what}: {said}; {next}"), source: None };
    let misuse = |next: &str| StoreError::Misuse { what: format!("{what}: {said}; {next}") };
    if said.starts_with("unsupported startup parameter") {
        let next = "leave it out of the URL, or have the pooler pass it over (ignore_startup_parameters of pgbouncer)";
        return Some(misuse(next));
    }
    if said.starts_with("no such database") {
        return Some(misuse("the pooler knows its own ([databases] of pgbouncer)"));
    }
    if said.starts_with("no such user") || said.ends_with("authentication failed") {
        return Some(denied("check the user and the password in the URL, and whom the pooler lets in (auth_file)"));
    }
    if ["SSL required", "TLS connection required"].contains(&said) {
        return Some(denied("the pooler wants TLS (?sslrootcert=FILE asks for it)"));
    }
    None
}

/// Whether a connection was refused because there are too many: in all, or of this role or
/// database.
pub(crate) fn is_full(error: &StoreError) -> bool {
    let StoreError::Unavailable { source: Some(source), .. } = error else { return false };
    source.downcast_ref::<Said>().is_some_and(|Said(error)| code(error) == Some("53300"))
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
