//! Where things are in etcd: Go's place for the line, a place of our own for everything else.

use std::fmt::Write;

use incumbent_store::{ElectionName, EntryId, Token};

/// The names of all keys. Knows nothing of requests.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: String,
}

/// The half-open range of keys `[start, end)`.
pub(crate) type KeyRange = (Vec<u8>, Vec<u8>);

impl Keys {
    pub(crate) fn new(prefix: &str) -> Keys {
        Keys { prefix: prefix.to_owned() }
    }

    /// All entries of an election; those of elections whose name goes on after a `/` are in it, too.
    pub(crate) fn line(&self, election: &ElectionName) -> KeyRange {
        below(format!("{}{election}", self.prefix))
    }

    /// The key of an entry: Go's `<election>/<lease>`.
    pub(crate) fn entry(&self, election: &ElectionName, suffix: &[u8]) -> Vec<u8> {
        join(format!("{}{election}/", self.prefix), suffix)
    }

    /// What an entry's key says after `<election>/`. `None`: it belongs to an election whose name begins with ours.
    pub(crate) fn suffix<'a>(&self, election: &ElectionName, key: &'a [u8]) -> Option<&'a [u8]> {
        let suffix = key.get(self.prefix.len() + election.as_str().len() + 1..)?;
        (!suffix.contains(&b'/')).then_some(suffix)
    }

    /// All that is ours in an election, beside the entries.
    pub(crate) fn all_own(&self, election: &ElectionName) -> KeyRange {
        below(self.own(election))
    }

    /// The records of all candidates of ours in an election.
    pub(crate) fn records(&self, election: &ElectionName) -> KeyRange {
        below(format!("{}/candidates", self.own(election)))
    }

    /// What we say about an entry beyond its value.
    pub(crate) fn record(&self, election: &ElectionName, suffix: &[u8]) -> Vec<u8> {
        join(format!("{}/candidates/", self.own(election)), suffix)
    }

    /// What a session says of itself. No election's name is empty, so that this is in no election's place.
    pub(crate) fn introduction(&self, suffix: &[u8]) -> Vec<u8> {
        join(format!("{}//incumbent//", self.prefix), suffix)
    }

    /// All sessions' introductions.
    pub(crate) fn introductions(&self) -> KeyRange {
        below(format!("{}//incumbent/", self.prefix))
    }

    /// The office record.
    pub(crate) fn office(&self, election: &ElectionName) -> Vec<u8> {
        format!("{}/office", self.own(election)).into_bytes()
    }

    /// Lives as long as the office record's tombstone counts.
    pub(crate) fn tombstone(&self, election: &ElectionName) -> Vec<u8> {
        format!("{}/office/ended", self.own(election)).into_bytes()
    }

    /// The office record and its tombstone.
    pub(crate) fn office_range(&self, election: &ElectionName) -> KeyRange {
        let start = self.office(election);
        let end = [&start[..], b"0"].concat();
        (start, end)
    }

    /// A key of ours that is never written, for reads that only want the answer's header.
    pub(crate) fn nothing(&self) -> Vec<u8> {
        format!("{}//incumbent/", self.prefix).into_bytes()
    }

    /// The place of our own. No election's name can hold `//`, so no line of ours contains it; and what may follow a
    /// name after a `/` is escaped, so that one election's place does not contain another's.
    fn own(&self, election: &ElectionName) -> String {
        format!("{}//incumbent/{}", self.prefix, election.as_str().replace('%', "%25").replace('/', "%2F"))
    }
}

/// Everything whose key begins with `parent/`.
fn below(parent: String) -> KeyRange {
    // '0' is the byte after '/'.
    (format!("{parent}/").into_bytes(), format!("{parent}0").into_bytes())
}

fn join(parent: String, suffix: &[u8]) -> Vec<u8> {
    let mut key = parent.into_bytes();
    key.extend_from_slice(suffix);
    key
}

/// The last part of the keys of a session: its lease, as Go writes it.
pub(crate) fn suffix_of(lease: i64) -> Vec<u8> {
    format!("{lease:x}").into_bytes()
}

/// The lease that an entry's key names; `None` if another library has other customs.
pub(crate) fn lease_of(suffix: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(suffix).ok()?;
    let lease = i64::from_str_radix(text, 16).ok()?;
    (suffix_of(lease) == suffix).then_some(lease)
}

/// An entry's name: a session uses the same key each time it stands, so the name holds the token, too.
pub(crate) fn id_of(suffix: &[u8], token: Token) -> EntryId {
    let mut id = String::with_capacity(suffix.len() + 21);
    for byte in suffix {
        match byte {
            b'%' | b'@' | 0..=0x20 | 0x7f.. => _ = write!(id, "%{byte:02x}"),
            _ => id.push(char::from(*byte)),
        }
    }
    _ = write!(id, "@{token}");
    EntryId::new(id)
}

/// The last part of the entry's key, and its token. `None`: no store of this kind made this name.
pub(crate) fn parse_id(id: &EntryId) -> Option<(Vec<u8>, Token)> {
    let (suffix, token) = id.as_str().rsplit_once('@')?;
    Some((incumbent_store::record::unescape(suffix)?, Token::new(token.parse().ok()?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn election(name: &str) -> ElectionName {
        ElectionName::new(name).unwrap()
    }

    fn token(number: u64) -> Token {
        Token::new(number).unwrap()
    }

    fn contains((start, end): &KeyRange, key: &[u8]) -> bool {
        start.as_slice() <= key && key < end.as_slice()
    }

    #[test]
    fn entries_are_where_go_puts_them() {
        let keys = Keys::new("");
        assert_eq!(keys.entry(&election("jobs/nightly"), &suffix_of(0x694d_71dd)), b"jobs/nightly/694d71dd");
    }

    #[test]
    fn a_line_holds_its_entries_and_not_those_of_a_longer_name() {
        let keys = Keys::new("");
        let line = keys.line(&election("jobs"));
        assert!(contains(&line, b"jobs/1f"));
        assert!(!contains(&line, b"jobs-2/1f"));
        assert_eq!(keys.suffix(&election("jobs"), b"jobs/1f"), Some(&b"1f"[..]));
        assert_eq!(keys.suffix(&election("jobs"), b"jobs/nightly/1f"), None);
    }

    #[test]
    fn nothing_of_our_own_is_in_anybodys_line() {
        for prefix in ["", "team/"] {
            let keys = Keys::new(prefix);
            for name in ["incumbent", "jobs", "jobs/office", "candidates"] {
                let line = keys.line(&election(name));
                for other in ["incumbent", "jobs", "a/b"].map(election) {
                    let own = [keys.office(&other), keys.tombstone(&other), keys.record(&other, b"1f")];
                    for key in own.iter().chain([&keys.introduction(b"1f")]) {
                        assert!(!contains(&line, key), "{key:?} is in the line of {name}");
                    }
                    for key in &own {
                        assert!(!contains(&keys.introductions(), key), "{key:?} is no introduction");
                    }
                    assert!(!contains(&keys.all_own(&other), &keys.introduction(b"1f")));
                    assert!(contains(&keys.introductions(), &keys.introduction(b"1f")));
                }
            }
        }
    }

    #[test]
    fn places_of_different_elections_do_not_overlap() {
        let keys = Keys::new("");
        let names = ["a", "a/b", "a%2Fb", "a%b", "a/office", "a/candidates"].map(election);
        for one in &names {
            for other in names.iter().filter(|other| *other != one) {
                assert!(!contains(&keys.records(one), &keys.record(other, b"1f")), "{one} {other}");
                assert!(!contains(&keys.office_range(one), &keys.office(other)), "{one} {other}");
                assert!(!contains(&keys.office_range(one), &keys.tombstone(other)), "{one} {other}");
            }
        }
    }

    #[test]
    fn an_id_gives_back_its_key_and_token_whatever_the_key_is() {
        for suffix in [&b"694d71dd"[..], b"", b"a@b%c", b"\xff\x00 \n", "ü".as_bytes()] {
            let id = id_of(suffix, token(42));
            assert_eq!(parse_id(&id), Some((suffix.to_vec(), token(42))), "{id:?}");
        }
        assert_eq!(parse_id(&EntryId::new("entry/7")), None);
        assert_eq!(id_of(b"694d", token(7)).as_str(), "694d@7");
    }

    #[test]
    fn a_lease_is_read_only_as_go_writes_it() {
        assert_eq!(lease_of(b"694d71dd"), Some(0x694d_71dd));
        for foreign in [&b"0694d"[..], b"694D", b"node-1", b"", b"+1f", b"\xff"] {
            assert_eq!(lease_of(foreign), None, "{foreign:?}");
        }
    }
}
