//! Where a fence stands: the highest token that it has seen, and the one comparison that all fences share. It does no I/O.

use incumbent_core::{ElectionName, StoreId, Token};

use super::{Lines, parse};
use crate::StoreError;

/// The highest token that was seen, and the store that it came from. `None`: reset, and no token seen since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The store that it came from.
    pub store: StoreId,
    /// The highest token of it.
    pub token: Option<Token>,
}

/// What a mark says to a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Marked {
    /// It stands at this token, and what was to be written has been.
    Done,
    /// A newer token was here: nothing was written.
    Stale(Token),
    /// The mark comes from another store. Nothing was written; an operator decides.
    StoreReplaced {
        /// Where the mark stands; `None` if it was reset and no token was shown since.
        mark: Option<Token>,
        /// The store that it came from.
        store: StoreId,
    },
}

impl Mark {
    /// How often raising a mark is tried: each failed attempt means that another leader got through, and there are not many.
    pub const MAX_RAISES: usize = 16;

    /// What it says to a token; `None`: it is lower, and may be raised to it.
    pub fn says(&self, store: &StoreId, token: Token) -> Option<Marked> {
        if self.store != *store {
            return Some(Marked::StoreReplaced { mark: self.token, store: self.store.clone() });
        }
        match self.token {
            Some(mark) if mark > token => Some(Marked::Stale(mark)),
            Some(mark) if mark == token => Some(Marked::Done),
            _ => None,
        }
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
    pub fn decode(record: &[u8], election: &ElectionName, place: &str) -> Result<Mark, StoreError> {
        let damaged = || StoreError::Corrupt { what: format!("the mark at {place} cannot be read") };
        let (of, mark) = read(record).ok_or_else(damaged)?;
        if of != election.as_str() {
            let what = format!("the mark of {of:?} was shown a token of {:?}", election.as_str());
            return Err(StoreError::Misuse { what });
        }
        Ok(mark)
    }

    /// Others were faster, again and again.
    pub fn keeps_changing() -> StoreError {
        StoreError::Unavailable { what: "the mark keeps changing".to_owned(), source: None }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(store: &str, token: Option<u64>) -> Mark {
        Mark { store: StoreId::new(store), token: token.and_then(Token::new) }
    }

    #[test]
    fn a_mark_comes_back_and_only_for_its_own_election() {
        let (jobs, other) = (ElectionName::new("jobs").unwrap(), ElectionName::new("other").unwrap());
        for mark in [mark("s", Some(7)), mark("a b", None)] {
            let record = mark.encode(&jobs);
            assert_eq!(Mark::decode(&record, &jobs, "here").unwrap(), mark);
            assert!(matches!(Mark::decode(&record, &other, "here"), Err(StoreError::Misuse { .. })));
        }
        for record in [&b""[..], b"incumbent 1\n", b"incumbent 1\nelection jobs\nstore s\ntoken 0\n"] {
            match Mark::decode(record, &jobs, "here") {
                Err(StoreError::Corrupt { what }) => assert!(what.contains("here"), "{what}"),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn lower_tokens_are_stale_higher_ones_raise_it_and_those_of_another_store_do_not_compare() {
        let store = StoreId::new("s");
        let says = |token| mark("s", Some(5)).says(&store, Token::new(token).unwrap());
        assert_eq!((says(4), says(5), says(6)), (Token::new(5).map(Marked::Stale), Some(Marked::Done), None));
        assert_eq!(mark("s", None).says(&store, Token::new(1).unwrap()), None);
        for token in [1, 5, 900] {
            let said = mark("old", Some(5)).says(&store, Token::new(token).unwrap());
            assert_eq!(said, Some(Marked::StoreReplaced { mark: Token::new(5), store: StoreId::new("old") }));
        }
    }
}
