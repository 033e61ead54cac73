//! Where things are in ZooKeeper's tree. Knows nothing of requests.

use incumbent_store::escape::{Digits, escape, unescape};
use incumbent_store::{ElectionName, EntryId, StoreError, Token};

use crate::dialect::{Dialect, looks_like_an_entry};

/// Ours. A `%` in the name of an election of ours is written `%25`, so that none is called this.
const OWN: &str = "%incumbent";

/// The places of a store.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    root: String,
    dialect: Dialect,
}

impl Paths {
    /// Everything is below `root`, which is empty or a path.
    pub(crate) fn new(root: &str, dialect: Dialect) -> Paths {
        Paths { root: root.trim_end_matches('/').to_owned(), dialect }
    }

    pub(crate) fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Above everything: a path that requests may name.
    pub(crate) fn root(&self) -> &str {
        if self.root.is_empty() { "/" } else { &self.root }
    }

    /// The node whose children are the line.
    pub(crate) fn election(&self, election: &ElectionName) -> Result<String, StoreError> {
        let name = election.as_str();
        let mut path = self.root.clone();
        for segment in name.split('/') {
            if looks_like_an_entry(segment) {
                return Err(refused(name, "a part of it looks like the name of an entry"));
            }
            path.push('/');
            if !self.dialect.is_foreign() {
                path.push_str(&node_name(segment));
            } else if segment.chars().any(is_refused) {
                return Err(refused(name, "it has a character that ZooKeeper does not take"));
            } else {
                path.push_str(segment);
            }
        }
        match name.split('/').next() {
            Some("zookeeper") if self.root.is_empty() => Err(refused(name, "/zookeeper is ZooKeeper's own")),
            Some(OWN) if self.dialect.is_foreign() => Err(refused(name, "this place is taken")),
            _ => Ok(path),
        }
    }

    /// Ours, which is never removed.
    pub(crate) fn own(&self) -> String {
        format!("{}/{OWN}", self.root)
    }

    /// The identity of the store.
    pub(crate) fn id(&self) -> String {
        format!("{}/id", self.own())
    }

    /// A node that is written to for the time of the write.
    pub(crate) fn clock(&self) -> String {
        format!("{}/clock", self.own())
    }

    /// The heartbeats of sessions.
    pub(crate) fn sessions(&self) -> String {
        format!("{}/sessions", self.own())
    }

    /// All office records. Its own data changes whenever one of them is removed.
    pub(crate) fn offices(&self) -> String {
        format!("{}/offices", self.own())
    }

    pub(crate) fn office(&self, election: &ElectionName) -> String {
        format!("{}/{}", self.offices(), node_name(election.as_str()))
    }

    /// The election whose office record is the node with this name.
    pub(crate) fn election_with_office(&self, node: &str) -> Option<ElectionName> {
        ElectionName::new(&String::from_utf8(unescape(node)?).ok()?).ok()
    }

    /// The election whose line is below this path. `None`: none of ours can be there.
    pub(crate) fn election_at(&self, path: &str) -> Option<ElectionName> {
        let below = path.strip_prefix(&self.root)?.strip_prefix('/')?;
        let name = match self.dialect.is_foreign() {
            true => below.to_owned(),
            false => {
                let segments = below.split('/').map(|node| String::from_utf8(unescape(node)?).ok());
                segments.collect::<Option<Vec<_>>>()?.join("/")
            }
        };
        let election = ElectionName::new(&name).ok()?;
        // Exactly as we write it: one election, one place.
        self.election(&election).ok().filter(|there| there == path).map(|_| election)
    }

    /// Whether elections may be at this path or below it: neither ours nor ZooKeeper's own.
    pub(crate) fn may_hold_elections(&self, path: &str) -> bool {
        path != self.own() && path != "/zookeeper"
    }

    /// What our candidates say about themselves where the entries follow another library's customs.
    pub(crate) fn candidates(&self, election: &ElectionName) -> String {
        format!("{}/candidates/{}", self.own(), node_name(election.as_str()))
    }

    /// The record of the entry with this name, which this session owns.
    pub(crate) fn candidate(&self, election: &ElectionName, name: &str, owner: i64) -> String {
        let candidates = self.candidates(election);
        match self.dialect.guid(name) {
            Some(guid) => format!("{candidates}/{guid}"),
            None => format!("{candidates}/{owner:x}"),
        }
    }
}

fn refused(name: &str, why: &str) -> StoreError {
    StoreError::Misuse { what: format!("no election can be called {name:?} here: {why}") }
}

/// ZooKeeper looks at UTF-16: it takes neither private characters nor any beyond the first 65,536.
fn is_refused(character: char) -> bool {
    character.is_control() || matches!(u32::from(character), 0xe000..=0xf8ff | 0xfff0..)
}

/// As one node's name.
fn node_name(name: &str) -> String {
    escape(name, Digits::Upper, |character| !matches!(character, '/' | '%') && !is_refused(character))
}

/// An entry's name for everyone else: the node and the change that made it. Another node of the
/// same name is another entry.
pub(crate) fn id_of(name: &str, token: Token) -> EntryId {
    EntryId::new(format!("{name}@{token}"))
}

/// The node's name and its token. `None`: no store of this kind made this name.
pub(crate) fn parse_id(id: &EntryId) -> Option<(&str, Token)> {
    let (name, token) = id.as_str().rsplit_once('@')?;
    if name.is_empty() || name.contains('/') {
        return None;
    }
    Some((name, Token::new(token.parse().ok()?)?))
}

/// A token as ZooKeeper counts.
pub(crate) fn zxid(token: Token) -> i64 {
    i64::try_from(token.get()).unwrap_or(i64::MAX)
}

pub(crate) fn token_of(czxid: i64) -> Result<Token, StoreError> {
    u64::try_from(czxid)
        .ok()
        .and_then(Token::new)
        .ok_or_else(|| StoreError::Foreign { what: format!("a node that was created with change {czxid}") })
}

/// The paths above this one, nearest first.
pub(crate) fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    let mut rest = path;
    std::iter::from_fn(move || {
        let (above, _) = rest.rsplit_once('/')?;
        rest = above;
        Some(if above.is_empty() { "/" } else { above })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> ElectionName {
        ElectionName::new(name).unwrap()
    }

    #[test]
    fn elections_are_where_other_libraries_look_for_them() {
        for dialect in [Dialect::Incumbent, Dialect::CuratorLatch] {
            assert_eq!(Paths::new("", dialect).election(&name("jobs/nightly")).unwrap(), "/jobs/nightly");
            assert_eq!(Paths::new("/team/", dialect).election(&name("jobs")).unwrap(), "/team/jobs");
        }
        assert_eq!(Paths::new("", Dialect::Kazoo).election(&name("100%")).unwrap(), "/100%");
    }

    #[test]
    fn what_zookeeper_does_not_take_is_escaped_or_refused() {
        let strange = name("a%/\u{e000}/\u{1F600}");
        assert_eq!(Paths::new("", Dialect::Incumbent).election(&strange).unwrap(), "/a%25/%EE%80%80/%F0%9F%98%80");
        assert!(matches!(Paths::new("", Dialect::Kazoo).election(&strange), Err(StoreError::Misuse { .. })));
    }

    #[test]
    fn no_election_is_in_the_way_of_anything_else() {
        for dialect in [Dialect::Incumbent, Dialect::Kazoo] {
            let paths = Paths::new("", dialect);
            assert!(paths.election(&name("zookeeper/quota")).is_err());
            assert!(paths.election(&name("jobs/le_0000000001")).is_err());
            let own = paths.election(&name("%incumbent/offices"));
            assert!(own.is_err() || own.unwrap() == "/%25incumbent/offices");
            assert!(Paths::new("/team", dialect).election(&name("zookeeper")).is_ok());
        }
    }

    #[test]
    fn offices_of_similar_names_are_apart() {
        let paths = Paths::new("", Dialect::Incumbent);
        let offices = ["a/b", "a%2Fb", "a%2fb", "a"].map(|election| paths.office(&name(election)));
        assert_eq!(offices[0], "/%incumbent/offices/a%2Fb");
        assert_eq!(offices.iter().collect::<std::collections::BTreeSet<_>>().len(), 4);
    }

    #[test]
    fn an_election_is_known_by_its_place_and_by_its_office_record() {
        for (root, dialect) in [("", Dialect::Incumbent), ("/team", Dialect::Incumbent), ("/team", Dialect::Kazoo)] {
            let paths = Paths::new(root, dialect);
            for election in ["jobs", "jobs/nightly", "100%", "a b/\u{e4}"].map(name) {
                let path = paths.election(&election).unwrap();
                assert_eq!(paths.election_at(&path), Some(election.clone()), "{path}");
                let office = paths.office(&election);
                let node = office.rsplit_once('/').unwrap().1;
                assert_eq!(paths.election_with_office(node), Some(election));
            }
            for elsewhere in ["/", root, "/other", "/team%2Fjobs"] {
                let found = paths.election_at(elsewhere);
                assert!(found.is_none() || root.is_empty() && elsewhere == "/other", "{elsewhere}: {found:?}");
            }
            assert!(!paths.may_hold_elections(&paths.own()) && !paths.may_hold_elections("/zookeeper"));
        }
    }

    #[test]
    fn an_id_gives_back_its_node_and_token() {
        let token = Token::new(42).unwrap();
        assert_eq!(parse_id(&id_of("le_0000000001", token)), Some(("le_0000000001", token)));
        for wrong in ["entry/7", "7", "a@0", "a/b@7", "@7"] {
            assert_eq!(parse_id(&EntryId::new(wrong)), None, "{wrong}");
        }
    }

    #[test]
    fn ancestors_lead_to_the_root() {
        assert_eq!(ancestors("/a/b/c").collect::<Vec<_>>(), ["/a/b", "/a", "/"]);
        assert_eq!(ancestors("/a").collect::<Vec<_>>(), ["/"]);
    }
}
