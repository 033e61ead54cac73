//! How many connections there may be, and which one has to go when there are more.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use incumbent_core::peers::MemberId;
use incumbent_store::lock;
use tokio::sync::Notify;

use crate::config::GroupConfig;

/// One member has one connection, and for a moment a second one when it has made it anew.
const PER_MEMBER: usize = 2;
/// One address has at most this share of the connections without a proof.
const SHARE: usize = 4;

#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    half_open: usize,
    outsiders: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    unproven: VecDeque<Unproven>,
    members: BTreeMap<MemberId, VecDeque<(u64, Arc<Notify>)>>,
    /// From where members connect: as listed, or as last proven.
    addresses: BTreeMap<MemberId, IpAddr>,
    outsiders: usize,
}

/// A connection without a proof.
#[derive(Debug)]
struct Unproven {
    number: u64,
    from: IpAddr,
    end: Arc<Notify>,
}

impl State {
    /// Which connection has to go for one more from `from`: the oldest of that address if it has
    /// its share, else the oldest of the address with the most, members' addresses last.
    fn to_be_dropped(&self, from: IpAddr, half_open: usize) -> Option<usize> {
        let mut crowds: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for connection in &self.unproven {
            *crowds.entry(connection.from).or_default() += 1;
        }
        if crowds.get(&from).is_some_and(|count| *count >= (half_open / SHARE).max(1)) {
            return self.unproven.iter().position(|connection| connection.from == from);
        }
        if self.unproven.len() < half_open {
            return None;
        }
        let is_member = |address: &IpAddr| self.addresses.values().any(|known| known == address);
        let key = |connection: &Unproven| (!is_member(&connection.from), crowds.get(&connection.from).copied());
        // Of equals the last is taken, so from behind it is the oldest.
        self.unproven.iter().enumerate().rev().max_by_key(|(_, connection)| key(connection)).map(|(at, _)| at)
    }
}

/// A connection's place. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    limit: Arc<ConnectionLimit>,
    number: u64,
    from: IpAddr,
    held: Held,
    /// Rings when the connection has to go.
    pub(crate) end: Arc<Notify>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Held {
    Unproven,
    Member(MemberId),
    Outsider,
}

impl ConnectionLimit {
    pub(crate) fn new(group: &GroupConfig) -> ConnectionLimit {
        let listed = |address: &str| address.rsplit_once(':')?.0.trim_matches(['[', ']']).parse::<IpAddr>().ok();
        let addresses = group.members.iter().filter_map(|member| Some((member.id, listed(&member.address)?)));
        let state = State { addresses: addresses.collect(), ..State::default() };
        ConnectionLimit { half_open: group.link.half_open, outsiders: group.link.outsiders, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Takes in a new connection. If too many are without a proof, the address with the most of
    /// them loses its oldest: a flood keeps out connections from its own address, and no others.
    /// The flag says whether one has to go.
    pub(crate) fn admit(self: &Arc<ConnectionLimit>, from: IpAddr) -> (Permit, bool) {
        let (end, from) = (Arc::new(Notify::new()), from.to_canonical());
        let mut state = self.state();
        state.next += 1;
        let number = state.next;
        let gone = state.to_be_dropped(from, self.half_open).and_then(|at| state.unproven.remove(at));
        if let Some(gone) = &gone {
            gone.end.notify_one();
        }
        state.unproven.push_back(Unproven { number, from, end: end.clone() });
        drop(state);
        (Permit { limit: self.clone(), number, from, held: Held::Unproven, end }, gone.is_some())
    }

    /// Whether there is room for one more who is not a member.
    pub(crate) fn admits_outsider(&self) -> bool {
        self.state().outsiders < self.outsiders
    }
}

impl Permit {
    /// It has proven that it is this member. Of its earlier connections the oldest goes.
    pub(crate) fn into_member(mut self, member: MemberId) -> Permit {
        let limit = self.limit.clone();
        let mut state = limit.state();
        state.unproven.retain(|connection| connection.number != self.number);
        state.addresses.insert(member, self.from);
        let connections = state.members.entry(member).or_default();
        if connections.len() >= PER_MEMBER
            && let Some((_, oldest)) = connections.pop_front()
        {
            oldest.notify_one();
        }
        connections.push_back((self.number, self.end.clone()));
        self.held = Held::Member(member);
        drop(state);
        self
    }

    /// It has proven that it knows the secret. `None`: there are too many of its kind.
    pub(crate) fn into_outsider(mut self) -> Option<Permit> {
        let limit = self.limit.clone();
        let mut state = limit.state();
        state.unproven.retain(|connection| connection.number != self.number);
        if state.outsiders >= limit.outsiders {
            return None;
        }
        state.outsiders += 1;
        self.held = Held::Outsider;
        drop(state);
        Some(self)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.limit.state();
        match self.held {
            Held::Unproven => state.unproven.retain(|connection| connection.number != self.number),
            Held::Outsider => state.outsiders -= 1,
            Held::Member(member) => {
                if let Some(connections) = state.members.get_mut(&member) {
                    connections.retain(|(number, _)| *number != self.number);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use incumbent_core::ElectionName;

    use super::*;
    use crate::config::{Algorithm, LinkSettings};
    use crate::members::Members;
    use crate::secret::Secret;

    fn limit() -> Arc<ConnectionLimit> {
        limit_of(2)
    }

    fn limit_of(half_open: usize) -> Arc<ConnectionLimit> {
        let members = Members::parse("a=10.0.0.1:70,b=10.0.0.2:70").unwrap();
        let secret = Secret::new([7; 16]).unwrap();
        let election = ElectionName::new("jobs/x").unwrap();
        let mut group = GroupConfig::new(election, members, Algorithm::Bully, secret);
        group.link = LinkSettings { half_open, outsiders: 1, ..LinkSettings::default() };
        Arc::new(ConnectionLimit::new(&group))
    }

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn has_to_go(permit: &Permit) -> bool {
        permit.end.notified().now_or_never().is_some()
    }

    #[test]
    fn of_too_many_without_a_proof_the_oldest_of_the_address_with_the_most_goes() {
        let limit = limit_of(12);
        let first = limit.admit(address(50)).0;
        let crowd: Vec<_> = (0..3).map(|_| limit.admit(address(60)).0).collect();
        let rest: Vec<_> = (0..8).map(|last| limit.admit(address(70 + last)).0).collect();
        assert!(crowd.iter().chain(&rest).all(|permit| !has_to_go(permit)));
        let (last, crowded) = limit.admit(address(80));
        assert!(crowded && has_to_go(&crowd[0]) && !has_to_go(&crowd[1]));
        assert!(!has_to_go(&first) && !has_to_go(&last));
    }

    #[test]
    fn a_flood_from_one_address_or_from_many_keeps_no_member_out() {
        let limit = limit_of(32);
        let (by_list, elsewhere) = (limit.admit(address(2)).0, limit.admit(address(9)).0);
        let mut flood = VecDeque::new();
        let mut admit = |from: IpAddr| {
            flood.push_back(limit.admit(from).0);
            flood.retain(|permit| !has_to_go(permit));
            assert!(flood.len() <= 32, "it is bounded");
        };
        (0..10_000).for_each(|_| admit(address(66)));
        assert!(!has_to_go(&by_list) && !has_to_go(&elsewhere), "only that address suffers");
        let proven = limit.admit(address(3)).0.into_member(MemberId(1));
        let again = limit.admit(address(3)).0;
        (0..10_000_u16).for_each(|number| admit(IpAddr::from([172, 16, (number / 256) as u8, number as u8])));
        assert!(!has_to_go(&by_list) && !has_to_go(&again) && !has_to_go(&proven));
        assert!(has_to_go(&elsewhere), "nobody knows that one");
    }

    #[test]
    fn a_member_that_connects_anew_replaces_its_oldest_connection_only() {
        let limit = limit();
        let mut permits: Vec<_> = (0..3).map(|_| limit.admit(address(50)).0.into_member(MemberId(1))).collect();
        let other = limit.admit(address(50)).0.into_member(MemberId(2));
        assert_eq!(permits.iter().map(has_to_go).collect::<Vec<_>>(), [true, false, false]);
        assert!(!has_to_go(&other));
        permits.clear();
        let permits: Vec<_> = (0..2).map(|_| limit.admit(address(50)).0.into_member(MemberId(1))).collect();
        assert!(permits.iter().all(|permit| !has_to_go(permit)), "the places are free again");
    }

    #[test]
    fn outsiders_are_bounded_and_their_places_are_freed() {
        let limit = limit();
        let first = limit.admit(address(50)).0.into_outsider().unwrap();
        assert!(!limit.admits_outsider());
        assert!(limit.admit(address(50)).0.into_outsider().is_none());
        drop(first);
        assert!(limit.admits_outsider());
        assert!(limit.admit(address(50)).0.into_outsider().is_some());
    }
}
