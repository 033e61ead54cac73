//! The fixed list of members: their numbers, names and addresses. It knows nothing of connections.

use std::collections::BTreeSet;
use std::sync::Arc;

use incumbent_core::check_candidate_name;
use incumbent_core::peers::wire::Frame;
use incumbent_core::peers::{Group, GroupError, MAX_MEMBERS, MemberId};

use crate::config::ConfigError;

/// One member of a group.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Member {
    /// Its number. In bully and ring elections it is its rank, too: the highest leads.
    pub id: MemberId,
    /// Its name, for people.
    pub name: Arc<str>,
    /// Where the others reach it, as `host:port`.
    pub address: Arc<str>,
}

/// A fixed list of members, sorted by number. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Members(Arc<[Member]>);

impl Members {
    /// Checks the list: 1 to [`MAX_MEMBERS`] members, each number, name and address once.
    pub fn new(list: impl IntoIterator<Item = Member>) -> Result<Members, ConfigError> {
        let mut list: Vec<Member> = list.into_iter().collect();
        list.sort_by_key(|member| member.id);
        let (mut names, mut addresses) = (BTreeSet::new(), BTreeSet::new());
        for member in &list {
            check_candidate_name(&member.name)
                .map_err(|why| ConfigError::Name { name: member.name.to_string(), why })?;
            check_address(&member.address)?;
            if member.id == Frame::OUTSIDER {
                return Err(ConfigError::Number { name: member.name.to_string() });
            }
            if !names.insert(member.name.clone()) || !addresses.insert(member.address.clone()) {
                return Err(ConfigError::ListedTwice { member: format!("{}={}", member.name, member.address) });
            }
        }
        let Some(first) = list.first() else { return Err(ConfigError::NoMembers) };
        Group::new(first.id, list.iter().map(|member| member.id)).map_err(ConfigError::Group)?;
        Ok(Members(list.into()))
    }

    /// Reads `a=host:port,b=host:port` or `host:port,host:port`, where the address is the name,
    /// too.
    ///
    /// If all names are numbers, these number the members. Otherwise they are numbered from 1 by
    /// their place in the list: every member has to give the same list in the same order, and one
    /// that does not is refused by the others.
    pub fn parse(text: &str) -> Result<Members, ConfigError> {
        let parts: Vec<&str> = text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
        if parts.len() > MAX_MEMBERS {
            return Err(ConfigError::Group(GroupError::TooMany { members: parts.len() }));
        }
        let named: Vec<(&str, &str)> = parts.iter().map(|part| part.split_once('=').unwrap_or((part, part))).collect();
        let numbers: Option<Vec<u16>> = named.iter().map(|(name, _)| name.parse().ok()).collect();
        if numbers.is_none() && named.iter().any(|(name, _)| name.parse::<u16>().is_ok()) {
            // Otherwise the member that is called 2 might be number 1.
            return Err(ConfigError::MixedNames);
        }
        Members::new(named.iter().enumerate().map(|(place, (name, address))| {
            let id = numbers.as_ref().map_or(place as u16 + 1, |numbers| numbers[place]);
            Member { id: MemberId(id), name: (*name).into(), address: (*address).into() }
        }))
    }

    /// All members, by number.
    pub fn iter(&self) -> impl Iterator<Item = &Member> + Clone {
        self.0.iter()
    }

    /// How many there are.
    #[allow(clippy::len_without_is_empty, reason = "a group without members does not exist")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The member with this number.
    pub fn get(&self, id: MemberId) -> Option<&Member> {
        self.0.binary_search_by_key(&id, |member| member.id).ok().map(|at| &self.0[at])
    }

    /// The member with this name.
    pub fn by_name(&self, name: &str) -> Option<&Member> {
        self.0.iter().find(|member| *member.name == *name)
    }

    /// The member with this address.
    pub fn by_address(&self, address: &str) -> Option<&Member> {
        self.0.iter().find(|member| *member.address == *address)
    }

    /// A member's name, for people; `?` if there is no such member.
    pub fn name(&self, id: MemberId) -> &str {
        self.get(id).map_or("?", |member| &member.name)
    }

    /// The list as the core sees it, seen by `me`.
    pub(crate) fn group(&self, me: MemberId) -> Result<Group, ConfigError> {
        Group::new(me, self.0.iter().map(|member| member.id)).map_err(ConfigError::Group)
    }

    /// The core's number for this group and election. It does not depend on who looks.
    pub(crate) fn fingerprint(&self, election: &str) -> u64 {
        self.0.first().and_then(|first| self.group(first.id).ok()).map_or(0, |group| group.fingerprint(election))
    }
}

/// A host and a port, with no opinion about whether anybody is there.
pub(crate) fn check_address(address: &str) -> Result<(), ConfigError> {
    let sound = address.len() <= 300
        && !address.chars().any(|c| c.is_control() || c.is_whitespace())
        && address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if sound { Ok(()) } else { Err(ConfigError::Address { address: address.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(members: &Members) -> Vec<(u16, &str)> {
        members.iter().map(|member| (member.id.0, &*member.name)).collect()
    }

    #[test]
    fn names_that_are_numbers_number_the_members_and_others_are_numbered_by_place() {
        let numbered = Members::parse("7=127.0.0.1:1, 3=127.0.0.1:2").unwrap();
        assert_eq!(ids(&numbered), [(3, "3"), (7, "7")]);
        let named = Members::parse("b=127.0.0.1:1,a=127.0.0.1:2").unwrap();
        assert_eq!(ids(&named), [(1, "b"), (2, "a")]);
        let bare = Members::parse("10.0.0.1:70,[::1]:70").unwrap();
        assert_eq!(ids(&bare), [(1, "10.0.0.1:70"), (2, "[::1]:70")]);
        assert_eq!(bare.by_address("[::1]:70").unwrap().id, MemberId(2));
    }

    #[test]
    fn lists_that_make_no_group_are_refused_with_the_reason() {
        let long = (1..=MAX_MEMBERS + 1).map(|n| format!("{n}=h:{n}")).collect::<Vec<_>>().join(",");
        for (text, part) in [
            ("", "no members"),
            ("a=host", "host:port"),
            ("a=:70", "host:port"),
            ("a=h:99999", "host:port"),
            ("1=h:1,b=h:2", "all names are numbers"),
            ("a=h:1,a=h:2", "twice"),
            ("a=h:1,b=h:1", "twice"),
            ("1=h:1,1=h:2", "twice"),
            ("65535=h:1", "65534"),
            (&*long, "at most"),
        ] {
            let why = Members::parse(text).unwrap_err().to_string();
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
