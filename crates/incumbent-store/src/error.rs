//! What a store can fail with, by who has to act.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use incumbent_core::{Fault, Held, NameError};

type Source = Arc<dyn Error + Send + Sync>;

/// What was tried and what went wrong, down to the last cause, each said once:
/// `cannot write a/b: No space left on device`.
pub fn with_causes(what: &str, source: &Option<Arc<dyn Error + Send + Sync>>) -> String {
    let mut text = what.to_owned();
    let mut cause = source.as_ref().map(|source| &**source as &(dyn Error + 'static));
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

/// Why a call to a store failed. Its `Display` ends with the causes, so a caller that prints
/// [`source`](Error::source) as well prints them twice.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store cannot be reached or cannot answer. Nothing was changed; try again.
    #[error("the store is unavailable: {}", with_causes(.what, .source))]
    Unavailable {
        /// What was tried.
        what: String,
        /// What went wrong.
        #[source]
        source: Option<Source>,
    },
    /// There is no store at this place yet. Whoever stands makes it, and whoever only reads does
    /// not: there, nobody stands in any election.
    #[error("there is no store yet: {what}")]
    Missing {
        /// What is not there, and where.
        what: String,
    },
    /// The call may or may not have had its effect. Repeat it.
    #[error("the outcome is unknown: {}", with_causes(.what, .source))]
    OutcomeUnknown {
        /// What was tried.
        what: String,
        /// What went wrong.
        #[source]
        source: Option<Source>,
    },
    /// The store has forgotten the session, and with it its entries.
    #[error("the session has expired")]
    SessionGone,
    /// This session stands in this election already.
    #[error("this session is already in the line of {:?}, with token {}", .0.election, .0.token)]
    AlreadyInLine(Held),
    /// Something of another library, or of another dialect, is in the way.
    #[error("foreign data: {what}")]
    Foreign {
        /// What it is and where.
        what: String,
    },
    /// Something is damaged. Nothing was deleted.
    #[error("damaged data: {what}")]
    Corrupt {
        /// What it is and where.
        what: String,
    },
    /// The store does not let us.
    #[error("denied: {}", with_causes(.what, .source))]
    Denied {
        /// What was refused.
        what: String,
        /// What the store said.
        #[source]
        source: Option<Source>,
    },
    /// A stated bound was crossed.
    #[error("limit: {what}")]
    Limit {
        /// Which one, and by what.
        what: String,
    },
    /// This kind of store cannot do it: [`Promises`](crate::Promises) says so beforehand.
    #[error("unsupported: {what}")]
    Unsupported {
        /// What it cannot do, and why.
        what: String,
    },
    /// The caller asked for something that makes no sense.
    #[error("misuse: {what}")]
    Misuse {
        /// What it was.
        what: String,
    },
}

impl StoreError {
    /// An [`Unavailable`](StoreError::Unavailable) with its cause.
    pub fn unavailable(what: impl Into<String>, source: impl Error + Send + Sync + 'static) -> StoreError {
        StoreError::Unavailable { what: what.into(), source: Some(Arc::new(source)) }
    }

    /// An [`OutcomeUnknown`](StoreError::OutcomeUnknown) with its cause.
    pub fn unknown(what: impl Into<String>, source: impl Error + Send + Sync + 'static) -> StoreError {
        StoreError::OutcomeUnknown { what: what.into(), source: Some(Arc::new(source)) }
    }

    /// Whether it says what to do about it: see [`Advised`].
    pub fn is_advised(&self) -> bool {
        let (StoreError::Unavailable { source, .. }
        | StoreError::OutcomeUnknown { source, .. }
        | StoreError::Denied { source, .. }) = self
        else {
            return false;
        };
        source.as_ref().is_some_and(|source| Advised::is_in(&**source))
    }

    /// What the machines have to know of it.
    pub fn fault(&self) -> Fault {
        match self {
            StoreError::Unavailable { .. } | StoreError::Missing { .. } => Fault::Unavailable,
            StoreError::OutcomeUnknown { .. } => Fault::OutcomeUnknown,
            StoreError::SessionGone => Fault::SessionGone,
            StoreError::AlreadyInLine(held) => Fault::AlreadyInLine(held.clone()),
            StoreError::Foreign { .. }
            | StoreError::Corrupt { .. }
            | StoreError::Denied { .. }
            | StoreError::Limit { .. }
            | StoreError::Unsupported { .. }
            | StoreError::Misuse { .. } => Fault::Permanent,
        }
    }
}

/// A cause that comes with what to do about it. Who shows it to people adds no advice of their own.
#[derive(Debug)]
pub struct Advised {
    cause: Option<Source>,
    next: String,
}

impl Advised {
    /// What to do, where what was tried says all else.
    pub fn new(next: impl Into<String>) -> Advised {
        Advised { cause: None, next: next.into() }
    }

    /// What to do about this cause.
    pub fn about(cause: impl Error + Send + Sync + 'static, next: impl Into<String>) -> Advised {
        Advised { cause: Some(Arc::new(cause)), next: next.into() }
    }

    /// Whether this cause, or one below it, says what to do.
    fn is_in(error: &(dyn Error + 'static)) -> bool {
        error.is::<Advised>() || error.source().is_some_and(Advised::is_in)
    }
}

impl fmt::Display for Advised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Some(cause) => write!(f, "{}; {}", with_causes(&cause.to_string(), &Some(cause.clone())), self.next),
            None => f.write_str(&self.next),
        }
    }
}

impl Error for Advised {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_ref().map(|cause| &**cause as &(dyn Error + 'static))
    }
}

/// Whether a request to a server has effects that its caller depends on: whether the outcome is
/// unknown when the answer is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// It reads, or repeating it is the same as doing it once.
    None,
    /// It writes.
    Write,
}

impl From<NameError> for StoreError {
    fn from(error: NameError) -> StoreError {
        StoreError::Limit { what: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the disk said no")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn an_error_says_all_its_causes_once() {
        let full = || std::io::Error::from(std::io::ErrorKind::StorageFull);
        let error = StoreError::unavailable("cannot write a/b", Outer(full()));
        assert_eq!(
            error.to_string(),
            format!("the store is unavailable: cannot write a/b: the disk said no: {}", full())
        );
        let unknown = StoreError::unknown("writing", full());
        assert_eq!(unknown.to_string(), format!("the outcome is unknown: writing: {}", full()));
        let source: Option<Source> = Some(Arc::new(full()));
        let denied = StoreError::Denied { what: format!("cannot write: {}", full()), source };
        assert_eq!(denied.to_string(), format!("denied: cannot write: {}", full()), "said once");
        let advised = StoreError::unavailable("writing", Advised::about(Outer(full()), "make room"));
        assert_eq!(
            advised.to_string(),
            format!("the store is unavailable: writing: the disk said no: {}; make room", full())
        );
        let waits = StoreError::unavailable("nobody leads yet", Advised::new("it passes"));
        assert_eq!(waits.to_string(), "the store is unavailable: nobody leads yet: it passes");
        assert!(waits.is_advised() && advised.is_advised() && !unknown.is_advised());
        let bare = StoreError::Unavailable { what: "no answer".into(), source: None };
        assert_eq!(bare.to_string(), "the store is unavailable: no answer");
    }
}
