//! From the client's errors to ours: who has to act, and whether the request can have had an
//! effect.

use std::sync::Arc;

use incumbent_store::{Effect, StoreError};
use zookeeper_client::Error;

/// Sorts an error. What the caller expects (a node that is not there, say) it has dealt with
/// before.
pub(crate) fn classify(error: Error, effect: Effect, what: &str) -> StoreError {
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

/// For what only reads: see [`classify`].
pub(crate) fn reading(what: &str) -> impl Fn(Error) -> StoreError {
    move |error| classify(error, Effect::None, what)
}

/// For what writes: see [`classify`].
pub(crate) fn writing(what: &str) -> impl Fn(Error) -> StoreError {
    move |error| classify(error, Effect::Write, what)
}

/// What is not there is no error.
pub(crate) fn found<T>(answer: Result<T, Error>, what: &str) -> Result<Option<T>, StoreError> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(Error::NoNode) => Ok(None),
        Err(error) => Err(classify(error, Effect::None, what)),
    }
}

#[cfg(test)]
mod tests {
    use incumbent_store::Fault;

    use super::*;

    #[test]
    fn a_lost_connection_leaves_open_only_what_a_write_did() {
        assert_eq!(classify(Error::ConnectionLoss, Effect::None, "reading").fault(), Fault::Unavailable);
        assert_eq!(classify(Error::ConnectionLoss, Effect::Write, "writing").fault(), Fault::OutcomeUnknown);
        assert_eq!(classify(Error::NotReadOnly, Effect::Write, "writing").fault(), Fault::Unavailable);
    }

    #[test]
    fn an_expired_session_and_a_refusal_are_told_apart() {
        assert_eq!(classify(Error::SessionExpired, Effect::Write, "writing").fault(), Fault::SessionGone);
        assert!(matches!(classify(Error::NoAuth, Effect::Write, "writing"), StoreError::Denied { .. }));
    }
}
