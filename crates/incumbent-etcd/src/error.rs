//! From etcd's errors to ours: who has to act, and whether the request can have had an effect.

use std::error::Error;
use std::sync::Arc;

use incumbent_store::{Effect, StoreError};
use tonic::{Code, ConnectError, Status};

/// Whether another endpoint, or the same one later, may answer.
pub(crate) fn is_transient(status: &Status) -> bool {
    is_not_serving(status)
        || matches!(
            status.code(),
            Code::Unavailable
                | Code::DeadlineExceeded
                | Code::Cancelled
                | Code::Aborted
                | Code::Unknown
                | Code::Internal
                | Code::ResourceExhausted
                | Code::DataLoss
        )
}

/// Whether the server did not know our token: it has expired, or the users have changed since it
/// was made.
pub(crate) fn wants_new_token(status: &Status) -> bool {
    status.code() == Code::Unauthenticated || is_about_a_token(status.message())
}

pub(crate) fn is_about_a_token(message: &str) -> bool {
    message.contains("invalid auth token") || message.contains("revision of auth store is old")
}

/// Sorts an error.
pub(crate) fn classify(status: Status, effect: Effect, what: &str) -> StoreError {
    let certain = effect == Effect::None || cannot_have_arrived(&status) || wants_new_token(&status);
    if is_transient(&status) || wants_new_token(&status) {
        return match certain {
            true => StoreError::unavailable(what, Said(status)),
            false => StoreError::unknown(what, Said(status)),
        };
    }
    let message = status.message();
    match status.code() {
        Code::NotFound if message.contains("lease not found") => StoreError::SessionGone,
        Code::PermissionDenied | Code::FailedPrecondition => denied(what, status),
        Code::InvalidArgument if message.contains("auth") || message.contains("user name") => denied(what, status),
        // Only a reading in pages asks for the past: it begins again.
        Code::OutOfRange if message.contains("has been compacted") => StoreError::unavailable(what, Said(status)),
        Code::InvalidArgument | Code::OutOfRange => StoreError::Limit { what: format!("{what}: {message}") },
        _ => StoreError::Misuse { what: format!("{what}: {message}") },
    }
}

fn denied(what: &str, status: Status) -> StoreError {
    StoreError::Denied { what: what.to_owned(), source: Some(Arc::new(Said(status))) }
}

/// Whether the request was never sent, or was turned away at the door.
///
/// A database without space turns requests away, too, but says the same of one that it has just
/// committed: the one that used up the last of it.
fn cannot_have_arrived(status: &Status) -> bool {
    let turned_away = ["etcdserver: no leader", "etcdserver: too many requests"];
    turned_away.iter().any(|reason| status.message().contains(reason)) || is_not_serving(status)
}

/// Whether the database had no space for what was to be put.
pub(crate) fn is_out_of_space(error: &StoreError) -> bool {
    let cause = Error::source(error);
    matches!(error, StoreError::OutcomeUnknown { .. })
        && cause.is_some_and(|cause| cause.to_string().contains("database space exceeded"))
}

/// Whether another endpoint has to be asked: this one cannot be connected to, or has no vote yet
/// and serves no requests.
pub(crate) fn is_not_serving(status: &Status) -> bool {
    status.message().contains("not supported for learner") || was_not_connected(status)
}

/// Whether there was no connection to send it on.
fn was_not_connected(status: &Status) -> bool {
    let mut cause = status.source();
    // A chain of causes has a handful of links.
    for _ in 0..16 {
        let Some(error) = cause else { return false };
        if error.is::<ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// What the server said, or why nothing came. A status as such prints all its metadata.
#[derive(Debug)]
struct Said(Status);

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.0.code(), self.0.message())
    }
}

impl Error for Said {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: Code, message: &str) -> Status {
        Status::new(code, message)
    }

    #[test]
    fn a_write_that_may_have_arrived_has_an_unknown_outcome_and_a_read_has_none() {
        let timeout = || status(Code::Unavailable, "etcdserver: request timed out");
        assert!(matches!(classify(timeout(), Effect::Write, "w"), StoreError::OutcomeUnknown { .. }));
        assert!(matches!(classify(timeout(), Effect::None, "r"), StoreError::Unavailable { .. }));
    }

    #[test]
    fn a_write_that_was_turned_away_changed_nothing() {
        for error in [
            status(Code::Unavailable, "etcdserver: no leader"),
            status(Code::ResourceExhausted, "etcdserver: too many requests"),
            status(Code::FailedPrecondition, "etcdserver: rpc not supported for learner"),
            status(Code::Unauthenticated, "etcdserver: invalid auth token"),
            status(Code::InvalidArgument, "etcdserver: revision of auth store is old"),
        ] {
            assert!(matches!(classify(error, Effect::Write, "w"), StoreError::Unavailable { .. }));
        }
    }

    #[test]
    fn a_database_without_space_may_have_taken_the_last_write() {
        let full = || status(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded");
        let sorted = classify(full(), Effect::Write, "w");
        assert!(matches!(sorted, StoreError::OutcomeUnknown { .. }) && is_out_of_space(&sorted), "{sorted:?}");
        assert!(matches!(classify(full(), Effect::None, "r"), StoreError::Unavailable { .. }));
    }

    #[test]
    fn what_trying_again_cannot_cure_says_who_has_to_act() {
        let sorted = |code, message| classify(status(code, message), Effect::Write, "w");
        let gone = sorted(Code::NotFound, "etcdserver: requested lease not found");
        assert!(matches!(gone, StoreError::SessionGone));
        for (code, message) in [
            (Code::PermissionDenied, "etcdserver: permission denied"),
            (Code::InvalidArgument, "etcdserver: user name is empty"),
            (Code::InvalidArgument, "etcdserver: authentication failed, invalid user ID or password"),
            (Code::FailedPrecondition, "etcdserver: authentication is not enabled"),
        ] {
            assert!(matches!(sorted(code, message), StoreError::Denied { .. }), "{message}");
        }
        let large = sorted(Code::InvalidArgument, "etcdserver: request is too large");
        assert!(matches!(large, StoreError::Limit { .. }));
    }
}
