//! What the machines have put out and nobody has taken yet.

use std::collections::VecDeque;

use crate::machine::Output;

/// A queue of outputs. Bounded by what one input can cause, since it is emptied after each.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Outbox(VecDeque<Output>);

impl Outbox {
    pub(crate) fn push(&mut self, output: Output) {
        self.0.push_back(output);
    }

    pub(crate) fn pop(&mut self) -> Option<Output> {
        self.0.pop_front()
    }
}
