//! Who the peers are: a fixed list of members, and which of them this process is.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::binary::checksum;

/// The most members that a group may have: a quorum of more costs more than it saves.
pub const MAX_MEMBERS: usize = 32;

/// A member's number in its group. In bully and ring elections it is also its rank: the highest
/// wins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u16);

impl fmt::Debug for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m{}", self.0)
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A fixed list of members, seen by one of them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Group {
    me: MemberId,
    members: Arc<[MemberId]>,
}

impl Group {
    /// The group with these members, seen by `me`.
    pub fn new(me: MemberId, members: impl IntoIterator<Item = MemberId>) -> Result<Group, GroupError> {
        let mut sorted = BTreeSet::new();
        for member in members {
            if !sorted.insert(member) {
                return Err(GroupError::Twice { member });
            }
        }
        if sorted.len() > MAX_MEMBERS {
            return Err(GroupError::TooMany { members: sorted.len() });
        }
        if !sorted.contains(&me) {
            return Err(GroupError::NotListed { me });
        }
        Ok(Group { me, members: sorted.into_iter().collect() })
    }

    /// This process.
    pub fn me(&self) -> MemberId {
        self.me
    }

    /// All members, by number.
    pub fn members(&self) -> &[MemberId] {
        &self.members
    }

    /// All members but this one.
    pub fn others(&self) -> impl Iterator<Item = MemberId> + use<> {
        let (me, members) = (self.me, self.members.clone());
        (0..members.len()).map(move |at| members[at]).filter(move |member| *member != me)
    }

    /// Whether this is one of the members.
    pub fn contains(&self, member: MemberId) -> bool {
        self.members.binary_search(&member).is_ok()
    }

    /// How many members are a majority.
    pub fn quorum(&self) -> usize {
        self.members.len() / 2 + 1
    }

    /// The members after this one, in ring order: the nearest first.
    pub fn after_me(&self) -> impl Iterator<Item = MemberId> + use<> {
        let (me, members) = (self.me, self.members.clone());
        let start = members.partition_point(|member| *member <= me);
        (0..members.len()).map(move |step| members[(start + step) % members.len()]).filter(move |member| *member != me)
    }

    /// A number that tells this group, holding this election, from others. Not a secret and not a
    /// proof: it catches a wrong address, not an attacker.
    pub fn fingerprint(&self, election: &str) -> u64 {
        let members = self.members.iter().flat_map(|member| member.0.to_le_bytes());
        checksum(election.bytes().chain([0xff]).chain(members))
    }
}

/// Why a list of members is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// A member is listed twice.
    #[error("member {member} is listed twice")]
    Twice {
        /// The member.
        member: MemberId,
    },
    /// There are more than [`MAX_MEMBERS`].
    #[error("{members} members are listed: at most {MAX_MEMBERS} are allowed")]
    TooMany {
        /// How many there are.
        members: usize,
    },
    /// This process is not in the list.
    #[error("this process is member {me}, which is not in the list of members")]
    NotListed {
        /// This process.
        me: MemberId,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(numbers: &[u16]) -> Vec<MemberId> {
        numbers.iter().copied().map(MemberId).collect()
    }

    #[test]
    fn lists_that_make_no_group_are_refused() {
        let me = MemberId(1);
        assert_eq!(Group::new(me, ids(&[1, 2, 1])), Err(GroupError::Twice { member: me }));
        assert_eq!(Group::new(me, ids(&[2, 3])), Err(GroupError::NotListed { me }));
        assert_eq!(Group::new(me, (0..33).map(MemberId)), Err(GroupError::TooMany { members: 33 }));
    }

    #[test]
    fn a_majority_is_more_than_half() {
        for (members, quorum) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)] {
            assert_eq!(Group::new(MemberId(0), (0..members).map(MemberId)).unwrap().quorum(), quorum);
        }
    }

    #[test]
    fn the_ring_goes_upwards_and_round() {
        let group = Group::new(MemberId(5), ids(&[1, 3, 5, 7])).unwrap();
        assert_eq!(group.after_me().collect::<Vec<_>>(), ids(&[7, 1, 3]));
    }

    #[test]
    fn a_fingerprint_tells_elections_and_lists_apart_and_not_the_members_of_one_list() {
        let seen_by =
            |me, list: &[u16], election: &str| Group::new(MemberId(me), ids(list)).unwrap().fingerprint(election);
        assert_eq!(seen_by(1, &[1, 2, 3], "a"), seen_by(2, &[3, 2, 1], "a"));
        assert_ne!(seen_by(1, &[1, 2, 3], "a"), seen_by(1, &[1, 2, 3], "b"));
        assert_ne!(seen_by(1, &[1, 2, 3], "a"), seen_by(1, &[1, 2, 4], "a"));
    }
}
