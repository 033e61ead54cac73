//! The names of our keys and channels, and how numbers are written in them. Knows nothing of
//! requests.

use incumbent_store::{ElectionName, EntryId, Held, Incarnation, StoreError, Token};

/// The digits of tokens, versions and cursors. Text of one width compares as the numbers do, and no
/// number in a script has to hold more digits than it can.
pub(crate) const DIGITS: usize = 16;
const TTL_DIGITS: usize = 11;
pub(crate) const SESSION_BYTES: usize = DIGITS + TTL_DIGITS;
pub(crate) const INCARNATION_BYTES: usize = 32;

/// What the keys end in, in the order in which scripts get them.
const KEYS: [&str; 8] = ["m", "s", "l", "e", "p", "o", "z", "h"];
/// And what each is.
const TYPES: [&str; 8] = ["hash", "zset", "zset", "hash", "zset", "hash", "zset", "hash"];

/// A key that a connection is for.
#[derive(Clone, Debug)]
pub(crate) struct OwnKey {
    pub(crate) name: Vec<u8>,
    /// What it is, if it is there.
    pub(crate) kind: &'static str,
    /// What to do if it is something else, and nothing shows that it was ours before.
    pub(crate) advice: &'static str,
}

/// Another prefix is another store: beside a leader of this one, there would be a second.
const OTHER_PREFIX: &str = "only if no candidate has ever used this store, give all of them another prefix \
    (?prefix=...). Else stop all of them and delete the key: what follows is another store, and fences have to be reset";
const EMPTIED: &str = "only if no candidate has ever used this server, give all of them another prefix (?prefix=...). \
    Else delete the key: then the server counts as one that was emptied";

impl OwnKey {
    fn of_store(name: &str, kind: &'static str) -> OwnKey {
        OwnKey { name: name.as_bytes().to_vec(), kind, advice: OTHER_PREFIX }
    }
}

/// The keys of one store. They share a hash tag, so that a cluster keeps them together.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: String,
    all: [String; 8],
}

impl Keys {
    /// The keys of the store with this name.
    pub(crate) fn new(name: &str) -> Result<Keys, StoreError> {
        let strange = |character: char| character.is_control() || matches!(character, '{' | '}');
        if name.is_empty() || name.len() > 255 || name.contains(strange) {
            let what = "a prefix has 1 to 255 bytes, no control characters and no braces".to_owned();
            return Err(StoreError::Misuse { what });
        }
        let prefix = format!("{{{name}}}:");
        Ok(Keys { all: KEYS.map(|key| format!("{prefix}{key}")), prefix })
    }

    /// All of them, for a script.
    pub(crate) fn all(&self) -> &[String] {
        &self.all
    }

    /// All of them, for a connection.
    pub(crate) fn own(&self) -> Vec<OwnKey> {
        self.all.iter().zip(TYPES).map(|(name, kind)| OwnKey::of_store(name, kind)).collect()
    }

    /// What a user's rights have to cover.
    pub(crate) fn pattern(&self) -> String {
        format!("{}*", self.prefix.trim_end_matches(':'))
    }

    /// The one key of a server of a Redlock, for a connection.
    pub(crate) fn own_redlock(&self) -> OwnKey {
        OwnKey { advice: EMPTIED, ..OwnKey::of_store(&self.redlock(), "hash") }
    }

    /// The one key of a server of a Redlock.
    pub(crate) fn redlock(&self) -> String {
        format!("{}redlock", self.prefix)
    }

    /// Tells that the store was founded anew. A user who may subscribe to it may subscribe to the
    /// others.
    pub(crate) fn store_channel(&self) -> Vec<u8> {
        format!("{}-", self.prefix).into_bytes()
    }

    /// Nobody is ever told anything on it. A user who may publish on it may publish on the others.
    pub(crate) fn silent_channel(&self) -> Vec<u8> {
        format!("{}?", self.prefix).into_bytes()
    }

    /// Tells that the office record has changed.
    pub(crate) fn office_channel(&self, election: &ElectionName) -> Vec<u8> {
        format!("{}o:{election}", self.prefix).into_bytes()
    }

    /// Tells that another entry is first, or that the first says something else.
    pub(crate) fn head_channel(&self, election: &ElectionName) -> Vec<u8> {
        format!("{}h:{election}", self.prefix).into_bytes()
    }

    /// Tells that this entry is gone or says something else.
    pub(crate) fn entry_channel(&self, election: &ElectionName, id: &EntryId) -> Vec<u8> {
        format!("{}e:{election}\0{}", self.prefix, id.as_str()).into_bytes()
    }
}

/// As scripts write it.
pub(crate) fn digits(number: u64) -> String {
    format!("{number:0width$}", width = DIGITS)
}

/// A number that a script wrote.
pub(crate) fn parse_digits(text: &str) -> Option<u64> {
    parse_so_many_digits(text, DIGITS)
}

/// The same, where it has another width.
pub(crate) fn parse_so_many_digits(text: &str, width: usize) -> Option<u64> {
    let is_digits = text.len() == width && text.bytes().all(|digit| digit.is_ascii_digit());
    if is_digits { text.parse().ok() } else { None }
}

/// The TTL, in milliseconds, as it stands in a session's name.
pub(crate) fn ttl_digits(millis: u64) -> String {
    format!("{millis:0width$}", width = TTL_DIGITS)
}

/// An entry is called after its token.
pub(crate) fn id_of(token: Token) -> EntryId {
    EntryId::new(digits(token.get()))
}

/// The token that an entry is called after. `None`: no entry has such a name.
pub(crate) fn token_of(id: &EntryId) -> Option<Token> {
    parse_digits(id.as_str()).and_then(Token::new)
}

/// `session \0 election \0 token incarnation`, as a script names what a session holds.
pub(crate) fn parse_place(place: &[u8]) -> Option<Held> {
    let place = std::str::from_utf8(place).ok()?;
    let rest = place.get(SESSION_BYTES..)?.strip_prefix('\0')?;
    let (rest, incarnation) = rest.split_at_checked(rest.len().checked_sub(INCARNATION_BYTES)?)?;
    let (election, token) = rest.rsplit_once('\0')?;
    held(election, token, incarnation)
}

/// What a script says of an entry that we hold.
pub(crate) fn held(election: &str, token: &str, incarnation: &str) -> Option<Held> {
    let token = Token::new(parse_digits(token)?)?;
    let incarnation: Incarnation = incarnation.parse().ok()?;
    Some(Held::new(ElectionName::new(election).ok()?, id_of(token), token, incarnation))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_one_width_compares_as_the_numbers_do() {
        let numbers = [0, 9, 10, (1 << 53) - 1, 1 << 53];
        assert!(numbers.map(digits).is_sorted());
        assert!(numbers.iter().all(|number| parse_digits(&digits(*number)) == Some(*number)));
        for bad in ["", "7", "00000000000000007", "000000000000000x", "+000000000000007"] {
            assert_eq!(parse_digits(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_place_is_read_from_behind_whatever_the_election_is_called() {
        let session = format!("{}{}", digits(5), ttl_digits(4000));
        let incarnation = Incarnation::from_bits(77);
        let place = format!("{session}\0jobs/nightly\0{}{incarnation}", digits(8));
        let held = parse_place(place.as_bytes()).unwrap();
        assert_eq!((held.election.as_str(), held.token.get(), held.incarnation), ("jobs/nightly", 8, incarnation));
        assert_eq!(token_of(&held.entry), Some(held.token));
        assert_eq!(parse_place(&place.as_bytes()[1..]), None);
    }

    #[test]
    fn a_prefix_cannot_break_out_of_its_hash_tag() {
        assert_eq!(Keys::new("incumbent").unwrap().all()[0], "{incumbent}:m");
        for bad in ["", "a}b", "{", "a\0b"] {
            assert!(Keys::new(bad).is_err(), "{bad:?}");
        }
    }
}
