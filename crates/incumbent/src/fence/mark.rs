//! Where a fence stands, and the one comparison that all fences share. It does no I/O.

use incumbent_core::{ElectionName, MAX_REASON_BYTES, StoreId, Token};

use super::{FenceError, FencingToken};

/// The longest identity of a store that a fence remembers, in bytes.
pub(super) const MAX_STORE_ID_BYTES: usize = 255;

/// The highest token that was seen, and the store that it came from. `None`: reset, and no token seen since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) token: Option<Token>,
    pub(super) store: StoreId,
}

impl Mark {
    /// The mark that `token` leaves behind, if a fence that stands at `now` lets it through.
    pub(super) fn admit(now: Option<&Mark>, token: &FencingToken) -> Result<Mark, FenceError> {
        check_store_id(&token.store)?;
        let admitted = Mark { token: Some(token.token), store: token.store.clone() };
        match now {
            None => Ok(admitted),
            Some(mark) if mark.store != token.store => Err(FenceError::StoreReplaced {
                mark: mark.token,
                mark_store: mark.store.clone(),
                token: token.token,
                store: token.store.clone(),
            }),
            Some(Mark { token: Some(mark), .. }) if token.token < *mark => {
                Err(FenceError::Stale { token: token.token, mark: *mark })
            }
            Some(_) => Ok(admitted),
        }
    }

    /// The mark after an operator has said that from now on the tokens of `store` count.
    pub(super) fn reset(store: &StoreId, reason: &str) -> Result<Mark, FenceError> {
        check_store_id(store)?;
        if reason.is_empty() || reason.len() > MAX_REASON_BYTES {
            return Err(FenceError::Limit {
                what: format!("the reason has {} bytes: 1 to {MAX_REASON_BYTES} are allowed", reason.len()),
            });
        }
        Ok(Mark { token: None, store: store.clone() })
    }

    /// The token of this mark, if one was shown.
    pub(super) fn fencing_token(&self) -> Option<FencingToken> {
        self.token.map(|token| FencingToken::new(token, self.store.clone()))
    }
}

/// Says in the log that an operator took a fence back: the one moment at which its mark may go down.
pub(super) fn log_reset(election: &ElectionName, was: Option<&Mark>, store: &StoreId, reason: &str) {
    let was = was.map_or_else(
        || "nothing".to_owned(),
        |mark| mark.fencing_token().map_or_else(|| format!("no token of {}", mark.store), |token| token.to_string()),
    );
    tracing::warn!(%election, %was, %store, reason, "fence reset by an operator: it now follows this store");
}

/// A fence guards one election: tokens of another do not compare with its mark.
pub(super) fn check_election(guarded: &ElectionName, asked: &ElectionName) -> Result<(), FenceError> {
    if guarded == asked {
        return Ok(());
    }
    Err(FenceError::Misuse { what: format!("this fence guards the election {guarded:?}, not {asked:?}") })
}

fn check_store_id(store: &StoreId) -> Result<(), FenceError> {
    let id = store.as_str();
    if id.is_empty() || id.len() > MAX_STORE_ID_BYTES || id.chars().any(char::is_control) {
        return Err(FenceError::Limit {
            what: format!("a store's identity has 1 to {MAX_STORE_ID_BYTES} bytes and no control characters: {id:?}"),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(number: u64, store: &str) -> FencingToken {
        FencingToken::new(Token::new(number).unwrap(), StoreId::new(store))
    }

    #[test]
    fn equal_and_higher_tokens_pass_and_lower_ones_are_stale() {
        let mark = Mark::admit(None, &shown(5, "s")).unwrap();
        assert_eq!(Mark::admit(Some(&mark), &shown(5, "s")).unwrap(), mark);
        assert_eq!(Mark::admit(Some(&mark), &shown(6, "s")).unwrap().token, Token::new(6));
        let refused = Mark::admit(Some(&mark), &shown(4, "s"));
        assert!(
            matches!(refused, Err(FenceError::Stale { token, mark }) if token.get() == 4 && mark.get() == 5),
            "{refused:?}"
        );
    }

    #[test]
    fn a_token_of_another_store_is_refused_even_if_it_is_higher() {
        let mark = Mark::admit(None, &shown(5, "old")).unwrap();
        for number in [1, 5, 900] {
            let refused = Mark::admit(Some(&mark), &shown(number, "new"));
            assert!(matches!(refused, Err(FenceError::StoreReplaced { .. })), "{refused:?}");
        }
    }

    #[test]
    fn after_a_reset_the_new_store_counts_from_its_first_token_and_the_old_one_is_shut_out() {
        let mark = Mark::reset(&StoreId::new("new"), "restored from Tuesday's backup").unwrap();
        assert_eq!(Mark::admit(Some(&mark), &shown(1, "new")).unwrap().token, Token::new(1));
        let refused = Mark::admit(Some(&mark), &shown(900, "old"));
        assert!(matches!(refused, Err(FenceError::StoreReplaced { mark: None, .. })), "{refused:?}");
    }

    #[test]
    fn a_reset_without_a_reason_and_a_store_without_an_identity_are_refused() {
        let store = StoreId::new("s");
        assert!(matches!(Mark::reset(&store, ""), Err(FenceError::Limit { .. })));
        assert!(matches!(Mark::reset(&store, &"x".repeat(MAX_REASON_BYTES + 1)), Err(FenceError::Limit { .. })));
        for id in ["", "a\nb", &"x".repeat(MAX_STORE_ID_BYTES + 1)] {
            assert!(matches!(Mark::admit(None, &shown(1, id)), Err(FenceError::Limit { .. })), "{id:?}");
        }
    }
}
