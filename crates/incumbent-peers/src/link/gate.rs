//! How many connections there may be, and which one has to go when there are more.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use incumbent_core::peers::MemberId;
use tokio::sync::Notify;

use crate::config::GroupConfig;

/// One member has one connection, and for a moment a second one when it has made it anew.
const PER_MEMBER: usize = 2;
/// One address has at most this share of the connections without a proof.
const SHARE: usize = 4;

#[derive(Debug)]
pub(crate) struct Gate {
    half_open: usize,
    outsiders: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    strangers: VecDeque<Stranger>,
    members: BTreeMap<MemberId, VecDeque<(u64, Arc<Notify>)>>,
    /// From where members connect: as listed, or as last proven.
    addresses: BTreeMap<MemberId, IpAddr>,
    outsiders: usize,
}

/// A connection without a proof.
#[derive(Debug)]
struct Stranger {
    number: u64,
    from: IpAddr,
    end: Arc<Notify>,
}

impl State {
    /// Which connection has to go for one more from `from`: the oldest of that address if it has
    /// its share, else the oldest of the address with the most, members' addresses last.
    fn who_yields(&self, from: IpAddr, half_open: usize) -> Option<usize> {
        let mut crowds: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for stranger in &self.strangers {
            *crowds.entry(stranger.from).or_default() += 1;
        }
        if crowds.get(&from).is_some_and(|count| *count >= (half_open / SHARE).max(1)) {
            return self.strangers.iter().position(|stranger| stranger.from == from);
        }
        if self.strangers.len() < half_open {
            return None;
        }
        let is_member = |address: &IpAddr| self.addresses.values().any(|known| known == address);
        let key = |stranger: &Stranger| (!is_member(&stranger.from), crowds.get(&stranger.from).copied());
        // Of equals the last is taken, so from behind it is the oldest.
        self.strangers.iter().enumerate().rev().max_by_key(|(_, stranger)| key(stranger)).map(|(at, _)| at)
    }
}

/// A connection's place. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Pass {
    gate: Arc<Gate>,
    number: u64,
    from: IpAddr,
    held: Held,
    /// Rings when the connection has to go.
    pub(crate) end: Arc<Notify>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Held {
    Stranger,
    Member(MemberId),
    Outsider,
}

impl Gate {
    pub(crate) fn new(group: &GroupConfig) -> Gate {
        let listed = |address: &str| address.rsplit_once(':')?.0.trim_matches(['[', ']']).parse::<IpAddr>().ok();
        let addresses = group.members.iter().filter_map(|member| Some((member.id, listed(&member.address)?)));
        let state = State { addresses: addresses.collect(), ..State::default() };
        Gate { half_open: group.link.half_open, outsiders: group.link.outsiders, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is complete before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection was made. If too many are without a proof, the address with the most of them
    /// loses its oldest: a flood keeps out those who share its address, and no others. Says whether
    /// one has to go.
    pub(crate) fn enter(self: &Arc<Gate>, from: IpAddr) -> (Pass, bool) {
        let (end, from) = (Arc::new(Notify::new()), from.to_canonical());
        let mut state = self.state();
        state.next += 1;
        let number = state.next;
        let gone = state.who_yields(from, self.half_open).and_then(|at| state.strangers.remove(at));
        if let Some(gone) = &gone {
            gone.end.notify_one();
        }
        state.strangers.push_back(Stranger { number, from, end: end.clone() });
        drop(state);
        (Pass { gate: self.clone(), number, from, held: Held::Stranger, end }, gone.is_some())
    }

    /// Whether there is room for one more who is not a member.
    pub(crate) fn admits_outsider(&self) -> bool {
        self.state().outsiders < self.outsiders
    }
}

impl Pass {
    /// It has proven that it is this member. Of its earlier connections the oldest goes.
    pub(crate) fn into_member(mut self, member: MemberId) -> Pass {
        let gate = self.gate.clone();
        let mut state = gate.state();
        state.strangers.retain(|stranger| stranger.number != self.number);
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
    pub(crate) fn into_outsider(mut self) -> Option<Pass> {
        let gate = self.gate.clone();
        let mut state = gate.state();
        state.strangers.retain(|stranger| stranger.number != self.number);
        if state.outsiders >= gate.outsiders {
            return None;
        }
        state.outsiders += 1;
        self.held = Held::Outsider;
        drop(state);
        Some(self)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut state = self.gate.state();
        match self.held {
            Held::Stranger => state.strangers.retain(|stranger| stranger.number != self.number),
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

    fn gate() -> Arc<Gate> {
        gate_of(2)
    }

    fn gate_of(half_open: usize) -> Arc<Gate> {
        let members = Members::parse("a=10.0.0.1:70,b=10.0.0.2:70").unwrap();
        let secret = Secret::new([7; 16]).unwrap();
        let election = ElectionName::new("jobs/x").unwrap();
        let mut group = GroupConfig::new(election, members, Algorithm::Bully, secret);
        group.link = LinkSettings { half_open, outsiders: 1, ..LinkSettings::default() };
        Arc::new(Gate::new(&group))
    }

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn has_to_go(pass: &Pass) -> bool {
        pass.end.notified().now_or_never().is_some()
    }

    #[test]
    fn of_too_many_strangers_the_oldest_of_the_address_with_the_most_goes() {
        let gate = gate_of(12);
        let first = gate.enter(address(50)).0;
        let crowd: Vec<_> = (0..3).map(|_| gate.enter(address(60)).0).collect();
        let rest: Vec<_> = (0..8).map(|last| gate.enter(address(70 + last)).0).collect();
        assert!(crowd.iter().chain(&rest).all(|pass| !has_to_go(pass)));
        let (last, crowded) = gate.enter(address(80));
        assert!(crowded && has_to_go(&crowd[0]) && !has_to_go(&crowd[1]));
        assert!(!has_to_go(&first) && !has_to_go(&last));
    }

    #[test]
    fn a_flood_from_one_address_or_from_many_keeps_no_member_out() {
        let gate = gate_of(32);
        let (by_list, elsewhere) = (gate.enter(address(2)).0, gate.enter(address(9)).0);
        let mut flood = VecDeque::new();
        let mut enter = |from: IpAddr| {
            flood.push_back(gate.enter(from).0);
            flood.retain(|pass| !has_to_go(pass));
            assert!(flood.len() <= 32, "it is bounded");
        };
        (0..10_000).for_each(|_| enter(address(66)));
        assert!(!has_to_go(&by_list) && !has_to_go(&elsewhere), "only that address suffers");
        let proven = gate.enter(address(3)).0.into_member(MemberId(1));
        let again = gate.enter(address(3)).0;
        (0..10_000_u16).for_each(|number| enter(IpAddr::from([172, 16, (number / 256) as u8, number as u8])));
        assert!(!has_to_go(&by_list) && !has_to_go(&again) && !has_to_go(&proven));
        assert!(has_to_go(&elsewhere), "nobody knows that one");
    }

    #[test]
    fn a_member_that_connects_anew_replaces_its_oldest_connection_only() {
        let gate = gate();
        let mut passes: Vec<_> = (0..3).map(|_| gate.enter(address(50)).0.into_member(MemberId(1))).collect();
        let other = gate.enter(address(50)).0.into_member(MemberId(2));
        assert_eq!(passes.iter().map(has_to_go).collect::<Vec<_>>(), [true, false, false]);
        assert!(!has_to_go(&other));
        passes.clear();
        let passes: Vec<_> = (0..2).map(|_| gate.enter(address(50)).0.into_member(MemberId(1))).collect();
        assert!(passes.iter().all(|pass| !has_to_go(pass)), "the places are free again");
    }

    #[test]
    fn outsiders_are_bounded_and_their_places_are_freed() {
        let gate = gate();
        let first = gate.enter(address(50)).0.into_outsider().unwrap();
        assert!(!gate.admits_outsider());
        assert!(gate.enter(address(50)).0.into_outsider().is_none());
        drop(first);
        assert!(gate.admits_outsider());
        assert!(gate.enter(address(50)).0.into_outsider().is_some());
    }
}
