//! What is on its way to the disk, and what may not be said before it is there.

use std::collections::VecDeque;

use super::Output;
use super::message::PersistId;

/// The most messages that wait for the disk. More than that are dropped, oldest first, like
/// messages lost on the way.
const MAX_HELD: usize = 256;

/// The outputs of a member, in order. Messages wait until every state that was handed out before
/// them is durable.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Disk {
    out: VecDeque<Output>,
    held: VecDeque<(u64, Output)>,
    handed_out: u64,
    durable: u64,
}

impl Disk {
    pub(super) fn push(&mut self, output: Output) {
        self.out.push_back(output);
    }

    pub(super) fn pop(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// The number of the next state to hand out.
    pub(super) fn next_id(&mut self) -> PersistId {
        self.handed_out += 1;
        PersistId(self.handed_out)
    }

    /// Puts out a message once all that it may depend on is durable.
    pub(super) fn push_when_durable(&mut self, output: Output) {
        if self.is_settled() {
            return self.out.push_back(output);
        }
        if self.held.iter().any(|(_, waiting)| *waiting == output) {
            // A request that was doubled on its way needs one answer.
            return;
        }
        if self.held.len() == MAX_HELD {
            self.held.pop_front();
        }
        self.held.push_back((self.handed_out, output));
    }

    pub(super) fn on_persisted(&mut self, id: PersistId) {
        self.durable = self.durable.max(id.0.min(self.handed_out));
        let ready = self.held.partition_point(|(needs, _)| *needs <= self.durable);
        self.out.extend(self.held.drain(..ready).map(|(_, output)| output));
    }

    /// Whether everything is durable.
    pub(super) fn is_settled(&self) -> bool {
        self.durable == self.handed_out
    }

    /// Nothing that waits will ever be said.
    pub(super) fn drop_held(&mut self) {
        self.held.clear();
    }
}
