//! The application of a member: a log of records that the leader writes and the others take over,
//! kept to the rules of `Position`. Here to see whether the election restriction keeps what was
//! committed.

use std::collections::BTreeMap;
use std::sync::Arc;

use incumbent_core::peers::consensus::Position;

/// One record: the token under which it was written, and what tells it from every other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    /// The token of the leader that wrote it.
    pub(crate) token: u64,
    /// Unique.
    pub(crate) id: u64,
}

/// What members say to each other about records.
#[derive(Clone, Debug)]
pub(crate) enum Data {
    /// The leader's whole log, under its token.
    Log(u64, Arc<Vec<Record>>),
    /// That log is durable here, up to this position.
    Stored(u64, Position),
}

/// The data path of one member. All of it is durable.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records {
    log: Arc<Vec<Record>>,
    /// Records sent under lower tokens are refused.
    floor: u64,
}

impl Records {
    /// How far the log reaches.
    pub(crate) fn position(&self) -> Position {
        position(&self.log)
    }

    /// The log.
    pub(crate) fn log(&self) -> &Arc<Vec<Record>> {
        &self.log
    }

    /// Refuses lower tokens from now on, and reads the position, in one step.
    pub(crate) fn seal(&mut self, token: u64) -> Position {
        self.floor = self.floor.max(token);
        self.position()
    }

    /// Writes a record as the leader. Refused if a vote was given to a later one.
    pub(crate) fn write(&mut self, token: u64, id: u64) -> bool {
        if token < self.floor {
            return false;
        }
        Arc::make_mut(&mut self.log).push(Record { token, id });
        true
    }

    /// Takes over a leader's log. The answer is what to acknowledge.
    pub(crate) fn take_over(&mut self, token: u64, log: &Arc<Vec<Record>>) -> Option<Position> {
        if token < self.floor {
            return None;
        }
        self.floor = token;
        // A log of the same leader that was overtaken on its way is shorter: what was acknowledged
        // stays.
        if position(log) > self.position() {
            self.log = log.clone();
        }
        Some(position(log).min(self.position()))
    }
}

fn position(log: &[Record]) -> Position {
    log.last().map_or(Position::NONE, |last| Position { token: last.token, index: log.len() as u64 })
}

/// What a leader knows of who has stored its records.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    /// The leader's token.
    pub(crate) token: u64,
    stored: BTreeMap<usize, u64>,
}

impl Ledger {
    /// The ledger of a leader that has just been elected.
    pub(crate) fn new(token: u64) -> Ledger {
        Ledger { token, stored: BTreeMap::new() }
    }

    /// Notes that a member has stored records up to here. Only a record of the leader's own token
    /// counts.
    pub(crate) fn note(&mut self, member: usize, position: Position) {
        if position.token == self.token {
            let index = self.stored.entry(member).or_default();
            *index = (*index).max(position.index);
        }
    }

    /// How many records are committed, with this many members a majority.
    pub(crate) fn committed(&self, quorum: usize) -> usize {
        let mut indexes: Vec<_> = self.stored.values().copied().collect();
        indexes.sort_unstable_by(|a, b| b.cmp(a));
        indexes.get(quorum - 1).map_or(0, |index| *index as usize)
    }
}
