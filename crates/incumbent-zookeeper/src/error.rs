//! From the client's errors to ours: who has to act, and whether the request can have had an
//! effect.

use std::sync::Arc;

use incumbent_store::StoreError;
use zookeeper_client::Error;

/// Whether a request has side effects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    /// It reads, or repeating it is the same as doing it once.
    None,
    /// It writes.
    Write,
}

/// Sorts an error. What the caller expects (a node that is not there, say) it has dealt with
/// before.
pub(crate) fn sort(error: Error, effect: Effect, what: &str) -> StoreError {
    match error {
        Error::SessionExpired | Error::SessionMoved => StoreError::SessionGone,
        // Said by a server before it does anything.
        Error::NotReadOnly | Error::Throttled | Error::NoHosts => StoreError::unavailable(what, error),
        Error::NoAuth | Error::AuthFailed | Error::InvalidAcl => {
            StoreError::Denied { what: what.to_owned(), source: Some(Arc::new(error)) }
        }
        Error::QuotaExceeded => StoreError::Limit { what: format!("{what}: {error}") },
        Error::Unimplemented => StoreError::Misuse { what: format!("{what}: this needs ZooKeeper 3.6 or newer") },
        Error::BadArguments(_) | Error::MarshallingError => StoreError::Misuse { what: format!("{what}: {error}") },
        // A node that went or came in between: look again.
        Error::NoNode | Error::NodeExists | Error::BadVersion | Error::NotEmpty => StoreError::unavailable(what, error),
        error => match effect {
            Effect::None => StoreError::unavailable(what, error),
            Effect::Write => StoreError::unknown(what, error),
        },
    }
}

/// For what only reads: see [`sort`].
pub(crate) fn reading(what: &str) -> impl Fn(Error) -> StoreError {
    move |error| sort(error, Effect::None, what)
}

/// For what writes: see [`sort`].
pub(crate) fn writing(what: &str) -> impl Fn(Error) -> StoreError {
    move |error| sort(error, Effect::Write, what)
}

/// What is not there is no error.
pub(crate) fn found<T>(answer: Result<T, Error>, what: &str) -> Result<Option<T>, StoreError> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(Error::NoNode) => Ok(None),
        Err(error) => Err(sort(error, Effect::None, what)),
    }
}

#[cfg(test)]
mod tests {
    use incumbent_store::Fault;

    use super::*;

    #[test]
    fn a_lost_connection_leaves_open_only_what_a_write_did() {
        assert_eq!(sort(Error::ConnectionLoss, Effect::None, "reading").fault(), Fault::Unavailable);
        assert_eq!(sort(Error::ConnectionLoss, Effect::Write, "writing").fault(), Fault::OutcomeUnknown);
        assert_eq!(sort(Error::NotReadOnly, Effect::Write, "writing").fault(), Fault::Unavailable);
    }

    #[test]
    fn an_expired_session_and_a_refusal_are_told_apart() {
        assert_eq!(sort(Error::SessionExpired, Effect::Write, "writing").fault(), Fault::SessionGone);
        assert!(matches!(sort(Error::NoAuth, Effect::Write, "writing"), StoreError::Denied { .. }));
    }
}
