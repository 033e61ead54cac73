//! How many connections there may be, and which one has to go when there are more.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use incumbent_core::peers::MemberId;
use tokio::sync::Notify;

use crate::config::LinkSettings;

/// One member has one connection, and for a moment a second one when it has made it anew.
const PER_MEMBER: usize = 2;

#[derive(Debug)]
pub(crate) struct Gate {
    half_open: usize,
    outsiders: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    strangers: VecDeque<(u64, Arc<Notify>)>,
    members: BTreeMap<MemberId, VecDeque<(u64, Arc<Notify>)>>,
    outsiders: usize,
}

/// A connection's place. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Pass {
    gate: Arc<Gate>,
    number: u64,
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
    pub(crate) fn new(link: &LinkSettings) -> Gate {
        Gate { half_open: link.half_open, outsiders: link.outsiders, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is complete before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody has connected. If too many have not proven anything, the one who has had the most time for it goes:
    /// whoever opens connections for nothing keeps no member out. Says whether one has to go.
    pub(crate) fn enter(self: &Arc<Gate>) -> (Pass, bool) {
        let end = Arc::new(Notify::new());
        let mut state = self.state();
        state.next += 1;
        let number = state.next;
        let crowded = state.strangers.len() >= self.half_open;
        if crowded && let Some((_, oldest)) = state.strangers.pop_front() {
            oldest.notify_one();
        }
        state.strangers.push_back((number, end.clone()));
        drop(state);
        (Pass { gate: self.clone(), number, held: Held::Stranger, end }, crowded)
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
        state.strangers.retain(|(number, _)| *number != self.number);
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
        state.strangers.retain(|(number, _)| *number != self.number);
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
            Held::Stranger => state.strangers.retain(|(number, _)| *number != self.number),
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

    use super::*;

    fn gate() -> Arc<Gate> {
        Arc::new(Gate::new(&LinkSettings { half_open: 2, outsiders: 1, ..LinkSettings::default() }))
    }

    fn has_to_go(pass: &Pass) -> bool {
        pass.end.notified().now_or_never().is_some()
    }

    #[test]
    fn of_too_many_strangers_the_oldest_goes() {
        let gate = gate();
        let (first, second) = (gate.enter().0, gate.enter().0);
        assert!(!has_to_go(&first));
        let (third, crowded) = gate.enter();
        assert!(crowded && has_to_go(&first) && !has_to_go(&second) && !has_to_go(&third));
    }

    #[test]
    fn a_member_that_connects_anew_replaces_its_oldest_connection_only() {
        let gate = gate();
        let mut passes: Vec<_> = (0..3).map(|_| gate.enter().0.into_member(MemberId(1))).collect();
        let other = gate.enter().0.into_member(MemberId(2));
        assert_eq!(passes.iter().map(has_to_go).collect::<Vec<_>>(), [true, false, false]);
        assert!(!has_to_go(&other));
        passes.clear();
        let passes: Vec<_> = (0..2).map(|_| gate.enter().0.into_member(MemberId(1))).collect();
        assert!(passes.iter().all(|pass| !has_to_go(pass)), "the places are free again");
    }

    #[test]
    fn outsiders_are_bounded_and_their_places_are_freed() {
        let gate = gate();
        let first = gate.enter().0.into_outsider().unwrap();
        assert!(!gate.admits_outsider());
        assert!(gate.enter().0.into_outsider().is_none());
        drop(first);
        assert!(gate.admits_outsider());
        assert!(gate.enter().0.into_outsider().is_some());
    }
}
