//! What a fence can refuse or fail with, by who has to act.

use std::error::Error;
use std::sync::Arc;

use incumbent_core::{Fault, StoreId, Token};

use crate::{StoreError, with_causes};

/// Why a fence was not raised, or a write not made.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// A newer leader was here: this one's term is over, and nothing was written.
    #[error("superseded: token {token} is older than {mark}, which the fence has seen")]
    Stale {
        /// The token that was shown.
        token: Token,
        /// The mark that refuses it.
        mark: Token,
    },
    /// The mark comes from another store, or from a future that the store no longer knows: the
    /// store was replaced, or restored from a backup. Its tokens do not compare with the mark, so
    /// an operator decides: make sure that no leader of the old store still runs, then `reset` the
    /// fence.
    #[error(
        "the store was replaced or restored: the fence stands at {} of store {mark_store}, \
         and was shown {token} of store {store}; an operator has to reset it",
        mark.map_or_else(|| "no token".to_owned(), |mark| mark.to_string())
    )]
    StoreReplaced {
        /// Where the fence stands; `None` if it was reset and no token was shown since.
        mark: Option<Token>,
        /// The store that the mark came from.
        mark_store: StoreId,
        /// The token that was shown.
        token: Token,
        /// The store that it came from.
        store: StoreId,
    },
    /// The resource cannot be reached, or is busy. Try again.
    #[error("the fence is unavailable: {}", with_causes(.what, .source))]
    Unavailable {
        /// What was tried.
        what: String,
        /// What went wrong.
        #[source]
        source: Option<Arc<dyn Error + Send + Sync>>,
    },
    /// What the fence remembers is damaged, foreign, or of a newer version. Nothing was deleted.
    #[error("damaged fence: {what}")]
    Corrupt {
        /// What it is, and where.
        what: String,
    },
    /// The resource does not let us, or cannot be trusted.
    #[error("the fence is denied: {}", with_causes(.what, .source))]
    Denied {
        /// What was refused.
        what: String,
        /// What went wrong.
        #[source]
        source: Option<Arc<dyn Error + Send + Sync>>,
    },
    /// A stated bound was crossed.
    #[error("limit: {what}")]
    Limit {
        /// Which one, and by what.
        what: String,
    },
    /// The fence guards something else than it was used for.
    #[error("misuse: {what}")]
    Misuse {
        /// What it was.
        what: String,
    },
}

/// For a mark that is kept in a store. One that may or may not have been raised is raised again.
impl From<StoreError> for FenceError {
    fn from(error: StoreError) -> FenceError {
        match error {
            StoreError::Unavailable { what, source } | StoreError::OutcomeUnknown { what, source } => {
                FenceError::Unavailable { what, source }
            }
            StoreError::Corrupt { what } | StoreError::Foreign { what } => FenceError::Corrupt { what },
            StoreError::Denied { what, source } => FenceError::Denied { what, source },
            StoreError::Limit { what } => FenceError::Limit { what },
            other => FenceError::Misuse { what: other.to_string() },
        }
    }
}

impl FenceError {
    /// An [`Unavailable`](FenceError::Unavailable) with its cause.
    pub fn unavailable(what: impl Into<String>, source: impl Error + Send + Sync + 'static) -> FenceError {
        FenceError::Unavailable { what: what.into(), source: Some(Arc::new(source)) }
    }

    /// Whether trying again, inside the deadline, may help.
    pub fn is_transient(&self) -> bool {
        matches!(self, FenceError::Unavailable { .. })
    }

    /// What the machines have to know of it.
    pub fn fault(&self) -> Fault {
        if self.is_transient() { Fault::Unavailable } else { Fault::Permanent }
    }

    /// What this refusal means to somebody whom the store `store` has shown, **after** the refusal,
    /// to lead with the refused token.
    ///
    /// A fence cannot tell a late leader from a store that went back in time: both show a token
    /// below the mark. A leader can. The line is first in, first out, so a higher token leads only
    /// once ours is gone; if ours still leads, then the mark comes from a history that the store
    /// has lost.
    pub fn seen_leading(self, store: &StoreId) -> FenceError {
        match self {
            FenceError::Stale { token, mark } => {
                FenceError::StoreReplaced { mark: Some(mark), mark_store: store.clone(), token, store: store.clone() }
            }
            other => other,
        }
    }

    /// Others were faster, again and again.
    pub fn mark_keeps_changing() -> FenceError {
        FenceError::Unavailable { what: "the mark keeps changing".to_owned(), source: None }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn token(number: u64) -> Token {
        Token::new(number).unwrap()
    }

    #[test]
    fn only_an_unavailable_fence_is_worth_another_try() {
        let busy = FenceError::unavailable("reading", io::Error::other("disk"));
        assert!(busy.is_transient());
        assert_eq!(busy.to_string(), "the fence is unavailable: reading: disk");
        assert_eq!(busy.fault(), Fault::Unavailable);
        let stale = FenceError::Stale { token: token(1), mark: token(2) };
        assert!(!stale.is_transient());
        assert_eq!(stale.fault(), Fault::Permanent);
    }

    #[test]
    fn a_refused_token_that_still_leads_means_that_the_store_went_back() {
        let store = StoreId::new("s");
        let stale = FenceError::Stale { token: token(3), mark: token(9) };
        match stale.seen_leading(&store) {
            FenceError::StoreReplaced { mark, mark_store, token: shown, store: from } => {
                assert_eq!((mark, shown), (Some(token(9)), token(3)));
                assert_eq!((&mark_store, &from), (&store, &store));
            }
            other => panic!("{other}"),
        }
    }

    #[test]
    fn a_replaced_store_names_both_stores_and_who_has_to_act() {
        let error = FenceError::StoreReplaced {
            mark: Some(token(9)),
            mark_store: StoreId::new("old"),
            token: token(3),
            store: StoreId::new("new"),
        };
        let text = error.to_string();
        for part in ["9 of store old", "3 of store new", "operator"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
