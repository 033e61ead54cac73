//! From Redis' errors to ours: who has to act, and whether the step can have been made.

use std::sync::Arc;

use incumbent_store::{Effect, StoreError};
use redis::{ErrorKind, RedisError};

/// Refused by the server before anything was done.
const REFUSED: [&str; 14] = [
    "READONLY",
    "INCREPLICA",
    "INCREPLACED",
    "INCREPLICATED",
    "LOADING",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "MOVED",
    "ASK",
    "TRYAGAIN",
    "BUSY",
    "OOM",
    "NOREPLICAS",
    "MISCONF",
];

/// Sorts what a step failed with.
pub(crate) fn classify(error: RedisError, effect: Effect, what: &str) -> StoreError {
    if is_denied(&error) {
        return StoreError::Denied { what: what.to_owned(), source: Some(Arc::new(error)) };
    }
    match error.code() {
        Some(code) if REFUSED.contains(&code) => StoreError::unavailable(what, error),
        Some("INCFORMAT") => StoreError::Foreign {
            what: format!(
                "the elections in this Redis are written in format {}, which this version does not know: use the one \
                 that wrote them, or a newer one",
                error.detail().unwrap_or("unknown")
            ),
        },
        Some("INCDAMAGED") => StoreError::Corrupt {
            what: format!("{what}: {}", error.detail().unwrap_or("what the server keeps cannot be read")),
        },
        Some("INCHIGHEST") => {
            let what = format!(
                "{what}: the next token would be {}, and Redis counts exactly up to 2^53 only. Set the server's clock \
                 right; if it is right, delete the keys of the store, restart its candidates and reset its fences",
                error.detail().unwrap_or("higher")
            );
            StoreError::Unavailable { what, source: None }
        }
        Some("INCRAISED") => StoreError::Unavailable {
            what: format!("{what}: somebody has raised or reset it in this moment; look who leads, and try again"),
            source: None,
        },
        // It was as it should be when the connection was made.
        Some("WRONGTYPE") => {
            StoreError::Corrupt { what: format!("{what}: somebody has overwritten a key of ours: {error}") }
        }
        // It does not know a command or an argument, or refuses such keys in one script.
        Some("ERR" | "CROSSSLOT") => StoreError::Misuse { what: format!("{what}: {error}") },
        // Whether it was sent cannot be told from whether its answer was lost, and a server that
        // says what we do not know may say something else next time.
        _ if effect == Effect::Write => StoreError::unknown(what, error),
        _ => StoreError::unavailable(what, error),
    }
}

/// Sorts what a dial failed with: nothing was asked for yet. What a server says then for no other
/// reason than that it is busy (it has too many clients, say) passes.
pub(crate) fn classify_dial(error: RedisError, what: &str) -> StoreError {
    if error.kind() == ErrorKind::InvalidClientConfig {
        return StoreError::Misuse { what: format!("{what}: {error}") };
    }
    // The client drops the code of what it was refused while it chose a database.
    if is_denied(&error) || error.to_string().contains("has no permissions to run") {
        return StoreError::Denied { what: what.to_owned(), source: Some(Arc::new(error)) };
    }
    if error.to_string().contains("DB index is out of range") {
        let what = format!("{what}: the server has no such database (the number after the / of the URL): {error}");
        return StoreError::Misuse { what };
    }
    StoreError::unavailable(what, error)
}

/// Whether somebody has to give us a right, or another password.
pub(crate) fn is_denied(error: &RedisError) -> bool {
    let by_code = matches!(error.code(), Some("NOPERM" | "NOAUTH" | "WRONGPASS"));
    // Inside of a script a missing right has no code of its own.
    let in_script = error.detail().is_some_and(|said| said.starts_with("The user executing the script can't"));
    by_code || in_script || error.kind() == ErrorKind::AuthenticationFailed
}

/// Whether the connection is of no use any more: it is lost, or leads to a server that is not the
/// primary of our keys.
pub(crate) fn ends_connection(error: &RedisError) -> bool {
    error.code().is_none() || matches!(error.code(), Some("READONLY" | "INCREPLICA" | "INCREPLACED" | "MOVED"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: &str) -> RedisError {
        redis::make_extension_error(code.to_owned(), Some("details".to_owned()))
    }

    fn cut() -> RedisError {
        RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe))
    }

    #[test]
    fn a_write_that_may_have_arrived_has_an_unknown_outcome_and_a_read_has_none() {
        assert!(matches!(classify(cut(), Effect::Write, "w"), StoreError::OutcomeUnknown { .. }));
        assert!(matches!(classify(cut(), Effect::None, "r"), StoreError::Unavailable { .. }));
        assert!(ends_connection(&cut()));
        // What the server says then is not known to pass, nor to stay.
        assert!(matches!(classify(said("UNBLOCKED"), Effect::Write, "w"), StoreError::OutcomeUnknown { .. }));
        assert!(matches!(classify(said("UNBLOCKED"), Effect::None, "r"), StoreError::Unavailable { .. }));
    }

    #[test]
    fn what_the_server_refused_changed_nothing() {
        for code in REFUSED {
            let sorted = classify(said(code), Effect::Write, "w");
            assert!(matches!(sorted, StoreError::Unavailable { .. }), "{code}: {sorted:?}");
        }
        assert!(
            ends_connection(&said("INCREPLICA"))
                && ends_connection(&said("INCREPLACED"))
                && !ends_connection(&said("OOM"))
        );
    }

    #[test]
    fn what_trying_again_cannot_cure_says_who_has_to_act() {
        for code in ["NOPERM", "NOAUTH", "WRONGPASS"] {
            assert!(matches!(classify(said(code), Effect::Write, "w"), StoreError::Denied { .. }), "{code}");
        }
        let in_script = "The user executing the script can't run this command or subcommand";
        let in_script = redis::make_extension_error("ERR".into(), Some(in_script.into()));
        assert!(matches!(classify(in_script, Effect::Write, "w"), StoreError::Denied { .. }));
        assert!(matches!(classify(said("INCFORMAT"), Effect::Write, "w"), StoreError::Foreign { .. }));
        assert!(matches!(classify(said("WRONGTYPE"), Effect::Write, "w"), StoreError::Corrupt { .. }));
        let newer = classify(redis::make_extension_error("INCFORMAT".into(), Some("2".into())), Effect::None, "r");
        assert!(newer.to_string().contains("format 2"), "{newer}");
        assert!(matches!(classify(said("ERR"), Effect::Write, "w"), StoreError::Misuse { .. }));
    }
}
