//! Where things are in etcd: Go's place for the line, a place of our own for everything else.

use std::sync::Arc;

use incumbent_store::escape::{Digits, escape, unescape};
use incumbent_store::{ElectionName, EntryId, Incarnation, Token};

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

    /// All entries of an election; those of elections whose name goes on after a `/` are in it,
    /// too.
    pub(crate) fn line(&self, election: &ElectionName) -> KeyRange {
        below(format!("{}{election}", self.prefix))
    }

    /// The key of an entry: Go's place, `<election>/<suffix>`.
    pub(crate) fn entry(&self, election: &ElectionName, suffix: &[u8]) -> Vec<u8> {
        join(format!("{}{election}/", self.prefix), suffix)
    }

    /// All entries of one session of ours in an election.
    pub(crate) fn entries_of(&self, election: &ElectionName, lease: i64) -> KeyRange {
        // '/' is the byte after '.'.
        let [start, end] = [b'.', b'/'].map(|end| {
            let mut key = self.entry(election, format!("{lease:x}").as_bytes());
            key.push(end);
            key
        });
        (start, end)
    }

    /// The election and the suffix of an entry's key. `None`: it is no entry of this store.
    pub(crate) fn split<'a>(&self, key: &'a [u8]) -> Option<(ElectionName, &'a [u8])> {
        let name = key.strip_prefix(self.prefix.as_bytes())?;
        let slash = name.iter().rposition(|byte| *byte == b'/')?;
        let election = ElectionName::new(std::str::from_utf8(&name[..slash]).ok()?).ok()?;
        Some((election, &name[slash + 1..]))
    }

    /// What an entry's key says after `<election>/`. `None`: it belongs to an election whose name
    /// begins with ours.
    pub(crate) fn suffix<'a>(&self, election: &ElectionName, key: &'a [u8]) -> Option<&'a [u8]> {
        let suffix = key.get(self.prefix.len() + election.as_str().len() + 1..)?;
        (!suffix.contains(&b'/')).then_some(suffix)
    }

    /// All that is ours in an election beside its line: the office record, and who is ready for a
    /// handover.
    pub(crate) fn beside(&self, election: &ElectionName) -> KeyRange {
        below(self.own(election))
    }

    /// Where the candidate with this entry says that it is ready for a handover, and its merit.
    pub(crate) fn ready(&self, election: &ElectionName, suffix: &[u8]) -> Vec<u8> {
        join(format!("{}/ready/", self.own(election)), suffix)
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

    /// Everything of this store: all lines, and all that is ours beside them.
    pub(crate) fn everything(&self) -> KeyRange {
        // No key is empty, and no name begins with \xff.
        let start = if self.prefix.is_empty() { "\0" } else { &self.prefix };
        (start.as_bytes().to_vec(), join(self.prefix.clone(), b"\xff"))
    }

    /// The election that a key of this store says something of: an entry on the lease that its name
    /// names, or an office record.
    pub(crate) fn election_of(&self, key: &[u8], lease: i64) -> Option<ElectionName> {
        if let Some((election, suffix)) = self.split(key) {
            return (lease != 0 && lease_of(suffix) == Some(lease)).then_some(election);
        }
        let own = key.strip_prefix(format!("{}//incumbent/", self.prefix).as_bytes())?;
        let name = std::str::from_utf8(own.strip_suffix(b"/office")?).ok()?;
        ElectionName::new(&String::from_utf8(unescape(name)?).ok()?).ok()
    }

    /// A key of ours that is never written, for reads that only want the answer's header.
    pub(crate) fn nothing(&self) -> Vec<u8> {
        format!("{}//incumbent/", self.prefix).into_bytes()
    }

    /// A key of a session that proves, by being written, that its lease is there. No election has
    /// an empty name.
    pub(crate) fn proof(&self, lease: i64) -> Vec<u8> {
        format!("{}//incumbent//{lease:x}", self.prefix).into_bytes()
    }

    /// The place of our own. No election's name can hold `//`, so no line of ours contains it; and
    /// what may follow a name after a `/` is escaped, so that one election's place does not contain
    /// another's.
    fn own(&self, election: &ElectionName) -> String {
        let name = escape(election.as_str(), Digits::Upper, |character| !matches!(character, '%' | '/'));
        format!("{}//incumbent/{name}", self.prefix)
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

/// What the key of an entry of ours says: `<election>/<lease>.<incarnation>.<name>`. Go's end with
/// the lease.
///
/// Go looks at prefixes and revisions, never at how another's key ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    /// The session's.
    pub(crate) lease: i64,
    pub(crate) incarnation: Incarnation,
    pub(crate) name: Arc<str>,
}

impl Owner {
    /// The last part of the key.
    pub(crate) fn suffix(&self) -> Vec<u8> {
        let stays = |character: char| character.is_ascii_graphic() && !matches!(character, '/' | '%');
        let name = escape(&*self.name, Digits::Lower, stays);
        format!("{:x}.{}.{name}", self.lease, self.incarnation).into_bytes()
    }

    /// `None`: it is the key of another library.
    pub(crate) fn read(suffix: &[u8]) -> Option<Owner> {
        let mut parts = std::str::from_utf8(suffix).ok()?.splitn(3, '.');
        let lease = i64::from_str_radix(parts.next()?, 16).ok()?;
        let incarnation = parts.next()?.parse().ok()?;
        let name = String::from_utf8(unescape(parts.next()?)?).ok()?;
        let owner = Owner { lease, incarnation, name: name.into() };
        // Exactly as we write it: one owner, one key.
        (owner.suffix() == suffix).then_some(owner)
    }
}

/// The lease that an entry's key names, ours or Go's; `None` if it is the key of another library.
pub(crate) fn lease_of(suffix: &[u8]) -> Option<i64> {
    Owner::read(suffix).map(|owner| owner.lease).or_else(|| {
        let lease = i64::from_str_radix(std::str::from_utf8(suffix).ok()?, 16).ok()?;
        (format!("{lease:x}").as_bytes() == suffix).then_some(lease)
    })
}

/// An entry's name: an enlistment that arrives twice makes the same key again, so the name holds
/// the token, too.
pub(crate) fn id_of(suffix: &[u8], token: Token) -> EntryId {
    let stays = |character: char| character.is_ascii_graphic() && !matches!(character, '%' | '@');
    EntryId::new(format!("{}@{token}", escape(suffix, Digits::Lower, stays)))
}

/// The last part of the entry's key, and its token. `None`: no store of this kind made this name.
pub(crate) fn parse_id(id: &EntryId) -> Option<(Vec<u8>, Token)> {
    let (suffix, token) = id.as_str().rsplit_once('@')?;
    Some((unescape(suffix)?, Token::new(token.parse().ok()?)?))
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

    fn owner(name: &str) -> Owner {
        Owner { lease: 0x694d_71dd, incarnation: Incarnation::from_bits(0xabc), name: name.into() }
    }

    #[test]
    fn an_election_is_known_by_its_entries_and_by_its_office_record() {
        for prefix in ["", "/team/"] {
            let keys = Keys::new(prefix);
            for name in ["jobs", "jobs/nightly", "100 %2f", "incumbent/office"] {
                let name = election(name);
                let (ours, gos) = (owner("n").suffix(), b"694d71dd".to_vec());
                for suffix in [&ours, &gos] {
                    let key = keys.entry(&name, suffix);
                    assert_eq!(keys.election_of(&key, 0x694d_71dd), Some(name.clone()));
                    assert_eq!(keys.election_of(&key, 0), None, "no lease holds it");
                }
                assert_eq!(keys.election_of(&keys.office(&name), 0), Some(name.clone()));
                for beside in [keys.tombstone(&name), keys.ready(&name, &ours), keys.nothing(), keys.proof(7)] {
                    assert_eq!(keys.election_of(&beside, 7), None, "{}", String::from_utf8_lossy(&beside));
                }
                for key in [keys.entry(&name, &ours), keys.office(&name)] {
                    assert!(contains(&keys.everything(), &key), "{}", String::from_utf8_lossy(&key));
                }
            }
            let config = format!("{prefix}config/port").into_bytes();
            assert_eq!(keys.election_of(&config, 7), None, "somebody else's, on a lease");
        }
    }

    #[test]
    fn an_entry_is_in_gos_place_and_says_whose_it_is() {
        let key = Keys::new("").entry(&election("jobs/nightly"), &owner("node-1").suffix());
        assert_eq!(key, b"jobs/nightly/694d71dd.00000000000000000000000000000abc.node-1");
        for name in ["node-1", "", "a.b.c", "a/b", "100 %2f", "ü\n\0", "x@y"] {
            let suffix = owner(name).suffix();
            assert_eq!(Owner::read(&suffix), Some(owner(name)));
            assert!(suffix.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'/'), "{suffix:?}");
            assert_eq!(lease_of(&suffix), Some(0x694d_71dd));
        }
    }

    #[test]
    fn what_we_would_write_otherwise_is_not_ours() {
        let zeros = "0".repeat(32);
        for foreign in [
            "694d71dd".to_owned(),
            format!("694d71dd.{zeros}"),
            format!("694D.{zeros}.a"),
            format!("0694d.{zeros}.a"),
            format!("694d.{}.a", &zeros[1..]),
            format!("694d.+{}.a", &zeros[1..]),
            format!("694d.{zeros}.%41"),
            format!("694d.{zeros}.%C3%BC"),
            format!("694d.{zeros}.\u{fc}"),
        ] {
            assert_eq!(Owner::read(foreign.as_bytes()), None, "{foreign}");
        }
    }

    #[test]
    fn a_sessions_entries_are_its_own_and_no_other_leases() {
        let keys = Keys::new("p/");
        let (jobs, range) = (election("jobs"), keys.entries_of(&election("jobs"), 0x694d_71dd));
        assert!(contains(&range, &keys.entry(&jobs, &owner("a").suffix())));
        for other in [&b"694d71dd"[..], b"694d71d.0.a", b"694d71dde.0.a", b"694d71dd/x"] {
            assert!(!contains(&range, &keys.entry(&jobs, other)), "{other:?}");
        }
        let key = keys.entry(&election("a/b"), &owner("n").suffix());
        assert_eq!(keys.split(&key), Some((election("a/b"), &owner("n").suffix()[..])));
        assert_eq!(keys.split(&keys.ready(&jobs, b"1f")), None);
        assert_eq!(keys.split(b"elsewhere/jobs/1f"), None);
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
            for name in ["incumbent", "jobs", "jobs/office", "ready"] {
                let line = keys.line(&election(name));
                for other in ["incumbent", "jobs", "a/b"].map(election) {
                    for key in [keys.office(&other), keys.tombstone(&other), keys.ready(&other, b"1f")] {
                        assert!(!contains(&line, &key), "{key:?} is in the line of {name}");
                    }
                }
            }
        }
    }

    #[test]
    fn places_of_different_elections_do_not_overlap() {
        let keys = Keys::new("");
        let names = ["a", "a/b", "a%2Fb", "a%b", "a/office", "a/ready"].map(election);
        for one in &names {
            for other in names.iter().filter(|other| *other != one) {
                assert!(!contains(&keys.beside(one), &keys.ready(other, b"1f")), "{one} {other}");
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
