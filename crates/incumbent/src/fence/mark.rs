//! What the fences of this library share around a [`Mark`]: what it lets through, what it refuses, and its reset. No I/O.

use incumbent_core::{ElectionName, MAX_REASON_BYTES, StoreId};
use incumbent_store::record::{Mark, Marked};

use super::{FenceError, FencingToken};

/// The longest identity of a store that a fence remembers, in bytes.
pub(super) const MAX_STORE_ID_BYTES: usize = 255;

/// The mark that `token` leaves behind, if a fence that stands at `now` lets it through.
pub(super) fn admit(now: Option<&Mark>, token: &FencingToken) -> Result<Mark, FenceError> {
    check_store_id(&token.store)?;
    if let Some(said) = now.and_then(|mark| mark.says(&token.store, token.token)) {
        answer(token, said)?;
    }
    Ok(Mark { token: Some(token.token), store: token.store.clone() })
}

/// What a mark has said to the token that was shown.
pub(super) fn answer(shown: &FencingToken, said: Marked) -> Result<(), FenceError> {
    match said {
        Marked::Done => Ok(()),
        Marked::Stale(mark) => Err(FenceError::Stale { token: shown.token, mark }),
        Marked::StoreReplaced { mark, store } => {
            Err(FenceError::StoreReplaced { mark, mark_store: store, token: shown.token, store: shown.store.clone() })
        }
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

/// The token of a mark, if one was shown.
pub(super) fn fencing_token(mark: &Mark) -> Option<FencingToken> {
    mark.token.map(|token| FencingToken::new(token, mark.store.clone()))
}

/// Says in the log that an operator took a fence back: the one moment at which its mark may go down.
pub(super) fn log_reset(election: &ElectionName, was: Option<&Mark>, store: &StoreId, reason: &str) {
    let was = was.map_or_else(
        || "nothing".to_owned(),
        |mark| fencing_token(mark).map_or_else(|| format!("no token of {}", mark.store), |token| token.to_string()),
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
    use incumbent_core::Token;

    use super::*;

    fn shown(number: u64, store: &str) -> FencingToken {
        FencingToken::new(Token::new(number).unwrap(), StoreId::new(store))
    }

    #[test]
    fn equal_and_higher_tokens_pass_and_lower_ones_are_stale() {
        let mark = admit(None, &shown(5, "s")).unwrap();
        assert_eq!(admit(Some(&mark), &shown(5, "s")).unwrap(), mark);
        assert_eq!(admit(Some(&mark), &shown(6, "s")).unwrap().token, Token::new(6));
        let refused = admit(Some(&mark), &shown(4, "s"));
        assert!(
            matches!(refused, Err(FenceError::Stale { token, mark }) if token.get() == 4 && mark.get() == 5),
            "{refused:?}"
        );
    }

    #[test]
    fn a_token_of_another_store_is_refused_even_if_it_is_higher() {
        let mark = admit(None, &shown(5, "old")).unwrap();
        for number in [1, 5, 900] {
            let refused = admit(Some(&mark), &shown(number, "new"));
            assert!(matches!(refused, Err(FenceError::StoreReplaced { .. })), "{refused:?}");
        }
    }

    #[test]
    fn after_a_reset_the_new_store_counts_from_its_first_token_and_the_old_one_is_shut_out() {
        let mark = reset(&StoreId::new("new"), "restored from Tuesday's backup").unwrap();
        assert_eq!(admit(Some(&mark), &shown(1, "new")).unwrap().token, Token::new(1));
        let refused = admit(Some(&mark), &shown(900, "old"));
        assert!(matches!(refused, Err(FenceError::StoreReplaced { mark: None, .. })), "{refused:?}");
    }

    #[test]
    fn a_reset_without_a_reason_and_a_store_without_an_identity_are_refused() {
        let store = StoreId::new("s");
        assert!(matches!(reset(&store, ""), Err(FenceError::Limit { .. })));
        assert!(matches!(reset(&store, &"x".repeat(MAX_REASON_BYTES + 1)), Err(FenceError::Limit { .. })));
        for id in ["", "a\nb", &"x".repeat(MAX_STORE_ID_BYTES + 1)] {
            assert!(matches!(admit(None, &shown(1, id)), Err(FenceError::Limit { .. })), "{id:?}");
        }
    }
}
