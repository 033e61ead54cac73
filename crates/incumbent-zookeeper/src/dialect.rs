//! Dialects: how each library names its entries, and in which order it puts them. Knows no
//! requests.

use std::cmp::Ordering;
use std::fmt;

use incumbent_store::{Incarnation, StoreError};

/// How the nodes of an election are named and ordered: as we do, or as another library does. No
/// name fits two dialects, so all candidates of an election keep to one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Dialect {
    /// Our own.
    #[default]
    Incumbent,
    /// Apache Curator's `LeaderLatch`.
    CuratorLatch,
    /// Apache Curator's `LeaderSelector` and `InterProcessMutex`, Spring's leader election,
    /// go-zookeeper's `Lock`.
    CuratorSelector,
    /// kazoo's `Election` and `Lock`.
    Kazoo,
    /// Comcast's go-leaderelection.
    GoLeaderElection,
}

/// A child of an election's node that is an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Child {
    pub(crate) name: String,
    rank: Rank,
}

/// What decides a child's place in line.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Rank {
    /// A counter of 32 bits that goes round.
    Serial(i32),
    /// As the library sorts them.
    Text(String),
}

/// The digits at the end of a sequential node's name.
const DIGITS: usize = 10;

impl Dialect {
    const ALL: [Dialect; 5] = [
        Dialect::Incumbent,
        Dialect::CuratorLatch,
        Dialect::CuratorSelector,
        Dialect::Kazoo,
        Dialect::GoLeaderElection,
    ];

    /// The dialect with this name: `ours`, `curator-latch`, `curator-selector`, `kazoo` or
    /// `go-leaderelection`.
    pub fn from_name(name: &str) -> Option<Dialect> {
        Dialect::ALL.into_iter().find(|dialect| dialect.name() == name)
    }

    /// Its name, as in a URL.
    pub const fn name(self) -> &'static str {
        match self {
            Dialect::Incumbent => "ours",
            Dialect::CuratorLatch => "curator-latch",
            Dialect::CuratorSelector => "curator-selector",
            Dialect::Kazoo => "kazoo",
            Dialect::GoLeaderElection => "go-leaderelection",
        }
    }

    /// Whether it is another library's: then everything of ours is beside the election, not in it.
    pub(crate) fn is_foreign(self) -> bool {
        self != Dialect::Incumbent
    }

    /// Whether an entry's name says which enlistment made it.
    pub(crate) fn has_guid(self) -> bool {
        self != Dialect::GoLeaderElection
    }

    /// The name of a new entry, without the number that the server adds.
    pub(crate) fn prefix(self, incarnation: Incarnation) -> String {
        match self {
            Dialect::Incumbent => format!("incumbent-{incarnation}-"),
            Dialect::CuratorLatch => format!("_c_{}-latch-", hyphenated(incarnation)),
            Dialect::CuratorSelector => format!("_c_{}-lock-", hyphenated(incarnation)),
            Dialect::Kazoo => format!("{incarnation}__lock__"),
            Dialect::GoLeaderElection => "le_".to_owned(),
        }
    }

    /// The enlistment that an entry's name speaks of, if it was made as we make them.
    pub(crate) fn guid(self, name: &str) -> Option<Incarnation> {
        let guid = match self {
            Dialect::Incumbent => name.strip_prefix("incumbent-")?.get(..32)?.to_owned(),
            Dialect::CuratorLatch | Dialect::CuratorSelector => name.strip_prefix("_c_")?.get(..36)?.replace('-', ""),
            Dialect::Kazoo => name.get(..32)?.to_owned(),
            Dialect::GoLeaderElection => return None,
        };
        let bits = u128::from_str_radix(&guid, 16).ok()?;
        let incarnation = Incarnation::from_bits(bits);
        name.starts_with(&self.prefix(incarnation)).then_some(incarnation)
    }

    /// The entry with this name; `None`: it is no entry of this dialect.
    fn child(self, name: &str) -> Option<Child> {
        let rank = match self {
            Dialect::Incumbent => {
                Rank::Serial(serial_after(name, "-", self.guid(name).map(|_| "incumbent-".len() + 32)?)?)
            }
            Dialect::CuratorLatch => Rank::Text(sequence_after(name, "latch-")?),
            Dialect::CuratorSelector => Rank::Text(sequence_after(name, "lock-")?),
            Dialect::Kazoo => Rank::Text(sequence_after(name, "__lock__")?),
            // It sorts whole names, and takes every child for a candidate.
            Dialect::GoLeaderElection => Rank::Text(name.to_owned()),
        };
        Some(Child { name: name.to_owned(), rank })
    }

    /// The children that are entries, oldest first. An entry of another dialect is refused by name:
    /// neither side would follow the other.
    pub(crate) fn line(self, path: &str, children: &[String]) -> Result<Vec<Child>, StoreError> {
        let mut line = Vec::with_capacity(children.len());
        for name in children {
            if let Some(other) = kind_of(name).filter(|kind| *kind != Kind::Known(self)) {
                return Err(StoreError::Foreign {
                    what: format!(
                        "{path}/{name} is an entry of {other}, and this election is held in the dialect {}: all \
                         candidates of an election keep to one (?dialect=...)",
                        self.name()
                    ),
                });
            }
            if !self.is_end(name) {
                line.extend(self.child(name));
            }
        }
        // Whichever it is, all readers have to take the same: servers list children in any order.
        let serials = line.iter().filter_map(|child| match child.rank {
            Rank::Serial(number) => Some(number),
            Rank::Text(_) => None,
        });
        let reference = serials.min();
        line.sort_by(|one, other| one.cmp(other, reference.unwrap_or(0)));
        Ok(line)
    }

    /// Whether a node with this name is an entry of this dialect.
    pub(crate) fn is_entry(self, name: &str) -> bool {
        kind_of(name) == Some(Kind::Known(self))
    }

    /// Whether a child may say that the election is over.
    pub(crate) fn marks_the_end(self) -> bool {
        self == Dialect::GoLeaderElection
    }

    /// Whether this child says that the election is over.
    pub(crate) fn is_end(self, name: &str) -> bool {
        self.marks_the_end() && name.contains(DONE)
    }
}

/// go-leaderelection's mark of the end.
pub(crate) const DONE: &str = "DONE";

impl Child {
    /// Serial numbers are compared by their distance, so that one that went round is still the
    /// newer one. A line is far shorter than half the circle.
    fn cmp(&self, other: &Child, reference: i32) -> Ordering {
        let ranks = match (&self.rank, &other.rank) {
            (Rank::Serial(one), Rank::Serial(other)) => one.wrapping_sub(reference).cmp(&other.wrapping_sub(reference)),
            (Rank::Text(one), Rank::Text(other)) => one.cmp(other),
            (Rank::Serial(_), Rank::Text(_)) => Ordering::Less,
            (Rank::Text(_), Rank::Serial(_)) => Ordering::Greater,
        };
        // No server gives a number twice, but people can.
        ranks.then_with(|| self.name.cmp(&other.name))
    }
}

/// Whose entry a node is, by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Known(Dialect),
    /// ZooKeeper's own `LeaderElectionSupport`.
    LeaderElectionSupport,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Known(dialect) => write!(f, "the dialect {}", dialect.name()),
            Kind::LeaderElectionSupport => f.write_str("LeaderElectionSupport"),
        }
    }
}

/// Whose entry a node with this name is. `None`: nobody's; it may be the node of another election.
fn kind_of(name: &str) -> Option<Kind> {
    if Dialect::Incumbent.child(name).is_some() {
        return Some(Kind::Known(Dialect::Incumbent));
    }
    // Curator's own nodes are protected by a uuid; those of its imitators need not be.
    if sequence_after(name, "__lock__").is_some() {
        return Some(Kind::Known(Dialect::Kazoo));
    }
    if sequence_after(name, "latch-").is_some() {
        return Some(Kind::Known(Dialect::CuratorLatch));
    }
    if sequence_after(name, "lock-").is_some() {
        return Some(Kind::Known(Dialect::CuratorSelector));
    }
    if name.strip_prefix("le_").is_some_and(is_sequence) || name.contains(DONE) && name.starts_with("le_") {
        return Some(Kind::Known(Dialect::GoLeaderElection));
    }
    name.strip_prefix("n_").is_some_and(is_sequence).then_some(Kind::LeaderElectionSupport)
}

/// Whether a node with this name would be taken for an entry: then no election can have the name.
pub(crate) fn looks_like_an_entry(name: &str) -> bool {
    kind_of(name).is_some()
}

fn sequence_after(name: &str, tag: &str) -> Option<String> {
    let (_, sequence) = name.rsplit_once(tag)?;
    is_sequence(sequence).then(|| sequence.to_owned())
}

fn serial_after(name: &str, tag: &str, at: usize) -> Option<i32> {
    let sequence = name.get(at..)?.strip_prefix(tag)?;
    is_sequence(sequence).then(|| sequence.parse().ok()).flatten()
}

/// Ten digits, and a sign once the counter has gone round.
fn is_sequence(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    (DIGITS..=DIGITS + 1).contains(&text.len()) && digits.bytes().all(|digit| digit.is_ascii_digit())
}

fn hyphenated(incarnation: Incarnation) -> String {
    let hex = incarnation.to_string();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUID: Incarnation = Incarnation::from_bits(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);

    fn named(dialect: Dialect, sequence: &str) -> String {
        format!("{}{sequence}", dialect.prefix(GUID))
    }

    fn names(line: &[Child]) -> Vec<&str> {
        line.iter().map(|child| child.name.as_str()).collect()
    }

    #[test]
    fn entries_are_named_as_each_library_names_them() {
        assert_eq!(Dialect::Incumbent.prefix(GUID), "incumbent-0123456789abcdef0123456789abcdef-");
        assert_eq!(Dialect::CuratorLatch.prefix(GUID), "_c_01234567-89ab-cdef-0123-456789abcdef-latch-");
        assert_eq!(Dialect::CuratorSelector.prefix(GUID), "_c_01234567-89ab-cdef-0123-456789abcdef-lock-");
        assert_eq!(Dialect::Kazoo.prefix(GUID), "0123456789abcdef0123456789abcdef__lock__");
        assert_eq!(Dialect::GoLeaderElection.prefix(GUID), "le_");
        for dialect in Dialect::ALL {
            assert_eq!(Dialect::from_name(dialect.name()), Some(dialect));
        }
    }

    #[test]
    fn a_name_gives_back_the_enlistment_that_made_it() {
        for dialect in Dialect::ALL.into_iter().filter(|dialect| dialect.has_guid()) {
            assert_eq!(dialect.guid(&named(dialect, "0000000007")), Some(GUID), "{dialect:?}");
            assert_eq!(dialect.guid("lock-0000000007"), None, "{dialect:?}");
        }
    }

    #[test]
    fn an_entry_of_another_dialect_is_refused_by_name() {
        for dialect in Dialect::ALL {
            for other in Dialect::ALL {
                let name = named(other, "0000000007");
                let line = dialect.line("/jobs", std::slice::from_ref(&name));
                match line {
                    Ok(line) => assert!(dialect == other && names(&line) == [name.as_str()], "{dialect:?} {name}"),
                    Err(StoreError::Foreign { what }) => {
                        assert!(dialect != other && what.contains(&format!("/jobs/{name}")), "{what}");
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            assert!(dialect.line("/jobs", &["n_0000000001".to_owned()]).is_err());
        }
    }

    #[test]
    fn nodes_of_elections_with_longer_names_are_no_entries() {
        let children = ["nightly", "2031", "lock-step", "le_mans", "incumbent-1"].map(str::to_owned);
        assert_eq!(Dialect::Incumbent.line("/jobs", &children).unwrap(), []);
        assert!(children.iter().all(|name| !looks_like_an_entry(name)));
    }

    #[test]
    fn the_order_survives_a_counter_that_goes_round() {
        let ours = |sequence: &str| named(Dialect::Incumbent, sequence);
        let children = [ours("-2147483647"), ours("2147483646"), ours("-2147483648"), ours("2147483647")];
        let line = Dialect::Incumbent.line("/jobs", &children).unwrap();
        assert_eq!(names(&line), [&children[1], &children[3], &children[2], &children[0]].map(String::as_str));
    }

    #[test]
    fn each_library_sorts_by_its_own_rule() {
        let children = ["_c_b-lock-0000000001", "_c_a-lock-0000000002"].map(str::to_owned);
        let line = Dialect::CuratorSelector.line("/jobs", &children).unwrap();
        assert_eq!(names(&line), children);
        let children = ["le_0000000002", "le_0000000001"].map(str::to_owned);
        let line = Dialect::GoLeaderElection.line("/jobs", &children).unwrap();
        assert_eq!(names(&line), ["le_0000000001", "le_0000000002"]);
    }
}
