//! Where a fence stands: what it lets through, what it refuses, and its reset. No I/O.

use incumbent_core::{ElectionName, MAX_REASON_BYTES, StoreId, Token};

use super::{FenceError, FencingToken};
use crate::record::{Lines, parse};

/// The longest identity of a store that a fence remembers, in bytes.
const MAX_STORE_ID_BYTES: usize = 255;

/// The highest token that was seen, and the store that it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The store that it came from.
    pub store: StoreId,
    /// The highest token of it. `None`: the fence was reset, and no token was shown since.
    pub token: Option<Token>,
}

impl Mark {
    /// How often raising a mark is tried: each failed attempt means that another leader got
    /// through, and there are not many.
    pub const MAX_RAISES: usize = 16;

    /// The mark that `token` leaves behind, if a fence that stands at `now` lets it through. The
    /// one comparison that all fences share.
    pub fn admit(now: Option<&Mark>, token: &FencingToken) -> Result<Mark, FenceError> {
        check_store_id(&token.store)?;
        match now {
            Some(now) if now.store != token.store => Err(FenceError::StoreReplaced {
                mark: now.token,
                mark_store: now.store.clone(),
                token: token.token,
                store: token.store.clone(),
            }),
            Some(Mark { token: Some(mark), .. }) if *mark > token.token => {
                Err(FenceError::Stale { token: token.token, mark: *mark })
            }
            _ => Ok(Mark { token: Some(token.token), store: token.store.clone() }),
        }
    }

    /// The mark after an operator has said that from now on the tokens of `store` count.
    pub fn reset(store: &StoreId, reason: &str) -> Result<Mark, FenceError> {
        check_store_id(store)?;
        if reason.is_empty() || reason.len() > MAX_REASON_BYTES {
            return Err(FenceError::Limit {
                what: format!("the reason has {} bytes: 1 to {MAX_REASON_BYTES} are allowed", reason.len()),
            });
        }
        Ok(Mark { token: None, store: store.clone() })
    }

    /// Its token, if one was shown.
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.token.map(|token| FencingToken::new(token, self.store.clone()))
    }

    /// As it is written down, for the leaders of `election`.
    pub fn encode(&self, election: &ElectionName) -> Vec<u8> {
        let mut lines = Lines::new();
        lines.add("election", election.as_str());
        lines.add("store", self.store.as_str());
        if let Some(token) = self.token {
            lines.add("token", token);
        }
        lines.finish()
    }

    /// What was written down at `place`, which must be about the leaders of `election`.
    pub fn decode(record: &[u8], election: &ElectionName, place: &str) -> Result<Mark, FenceError> {
        let damaged = || FenceError::Corrupt { what: format!("the mark at {place} cannot be read") };
        let (of, mark) = read(record).ok_or_else(damaged)?;
        if of != election.as_str() {
            let what = format!("the mark of {of:?} was shown a token of {:?}", election.as_str());
            return Err(FenceError::Misuse { what });
        }
        Ok(mark)
    }
}

fn read(record: &[u8]) -> Option<(String, Mark)> {
    match parse(record)?.as_slice() {
        [("election", election), ("store", store), rest @ ..] => {
            let token = match rest {
                [] => None,
                [("token", token)] => Some(Token::new(token.parse().ok()?)?),
                _ => return None,
            };
            Some((election.clone(), Mark { store: StoreId::new(store.as_str()), token }))
        }
        _ => None,
    }
}

/// Fails unless the election is the one that a fence guards: tokens of another do not compare with
/// its mark.
pub fn check_election(guarded: &ElectionName, asked: &ElectionName) -> Result<(), FenceError> {
    if guarded == asked {
        return Ok(());
    }
    Err(FenceError::Misuse { what: format!("this fence guards the election {guarded:?}, not {asked:?}") })
}

/// Says in the log that an operator took a fence back: the one moment at which its mark may go
/// down.
pub fn log_reset(election: &ElectionName, was: Option<&Mark>, store: &StoreId, reason: &str) {
    let was = was.map_or_else(
        || "nothing".to_owned(),
        |mark| mark.fencing_token().map_or_else(|| format!("no token of {}", mark.store), |token| token.to_string()),
    );
    tracing::warn!(%election, %was, %store, reason, "fence reset by an operator: it now follows this store");
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

    #[test]
    fn a_mark_comes_back_and_only_for_its_own_election() {
        let (jobs, other) = (ElectionName::new("jobs").unwrap(), ElectionName::new("other").unwrap());
        for (store, token) in [("s", Token::new(7)), ("a b", None)] {
            let mark = Mark { store: StoreId::new(store), token };
            let record = mark.encode(&jobs);
            assert_eq!(Mark::decode(&record, &jobs, "here").unwrap(), mark);
            assert!(matches!(Mark::decode(&record, &other, "here"), Err(FenceError::Misuse { .. })));
        }
        for record in [&b""[..], b"incumbent 1\n", b"incumbent 1\nelection jobs\nstore s\ntoken 0\n"] {
            match Mark::decode(record, &jobs, "here") {
                Err(FenceError::Corrupt { what }) => assert!(what.contains("here"), "{what}"),
                other => panic!("{other:?}"),
            }
        }
    }
}
