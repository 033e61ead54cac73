//! Where in the directory an election is held: names of elections as names of files.

use incumbent_store::ElectionName;
use incumbent_store::escape::{Digits, file_name, file_name_pieces, unescape};

/// The directory that holds all elections.
pub(crate) const ELECTIONS: &str = "elections";
/// File systems allow 255 bytes in a name.
const PIECE_BYTES: usize = 240;

/// The directory of an election, relative to the root.
///
/// Lower-case letters, digits, `-`, `_` and dots stand for themselves and everything else is `%xx`,
/// so that no two names meet on a file system that folds case or Unicode. What is too long for one
/// name goes on in a directory below; a `+` at the end says so. Nothing is hashed: two elections
/// never share a directory.
pub(crate) fn path_of(election: &ElectionName) -> String {
    let plain = |character: char| character.is_ascii_lowercase() || character.is_ascii_digit();
    let name = file_name(election.as_str(), Digits::Lower, plain);
    format!("{ELECTIONS}/{}", file_name_pieces(&name, PIECE_BYTES).join("/"))
}

/// The election whose directory this is, from its path below `elections`. `None`: something else
/// lies there.
pub(crate) fn election_of(path: &str) -> Option<ElectionName> {
    let pieces: Vec<_> = path.split('/').collect();
    let (last, cut) = pieces.split_last()?;
    let mut name = String::new();
    for piece in cut {
        name.push_str(piece.strip_suffix('+')?);
    }
    name.push_str(last);
    let election = ElectionName::new(&String::from_utf8(unescape(&name)?).ok()?).ok()?;
    // Exactly as we write it: one election, one directory.
    (path_of(&election).strip_prefix(ELECTIONS)?.strip_prefix('/')? == path).then_some(election)
}

/// Whether a directory below `elections` only leads to longer names.
pub(crate) fn goes_on(name: &str) -> bool {
    name.ends_with('+')
}

/// The directories above an election's own, down from `elections`, outermost first.
pub(crate) fn above(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    let inner = path.get(ELECTIONS.len() + 1..).unwrap_or_default();
    let cuts: Vec<_> = inner.match_indices('/').map(|(at, _)| ELECTIONS.len() + 1 + at).collect();
    cuts.into_iter().map(|at| &path[..at])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn path(name: &str) -> String {
        path_of(&ElectionName::new(name).unwrap())
    }

    #[test]
    fn a_plain_name_is_readable_and_a_strange_one_is_escaped() {
        assert_eq!(path("jobs/nightly"), "elections/jobs%2fnightly");
        assert_eq!(path(".hidden+"), "elections/%2ehidden%2b");
        assert_eq!(path("v1.2"), "elections/v1.2");
    }

    #[test]
    fn the_longest_names_fit_and_no_two_share_a_directory() {
        let mut seen = BTreeSet::new();
        for character in ["a", "A", "é", "/x"] {
            let mut name = String::from("n");
            while name.len() + character.len() <= 255 {
                name.push_str(character);
                let path = path(&name);
                assert!(path.split('/').all(|piece| piece.len() <= 255), "{path}");
                assert!(seen.insert(path.to_lowercase()), "{name}");
                let below = path.strip_prefix("elections/").unwrap();
                assert_eq!(election_of(below), Some(ElectionName::new(&name).unwrap()), "{path}");
            }
        }
    }

    #[test]
    fn what_no_election_is_called_is_not_taken_for_one() {
        for path in ["", "Jobs", "jobs%2Fnightly", "jobs+/nightly", "%zz", "a%2f%2fb", ".hidden"] {
            assert_eq!(election_of(path), None, "{path}");
        }
        assert_eq!(election_of("jobs%2fnightly"), Some(ElectionName::new("jobs/nightly").unwrap()));
    }

    #[test]
    fn the_directories_above_are_those_that_have_to_be_made_first() {
        let long = path(&"A".repeat(255));
        let above: Vec<_> = above(&long).collect();
        assert_eq!(above.len(), 3);
        assert!(above.iter().all(|path| goes_on(path)));
        assert_eq!(super::above(&path("jobs")).count(), 0);
    }
}
