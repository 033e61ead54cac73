//! What the node's user wants of the runner, in order. Bounded: what a later order replaces is replaced.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use incumbent_core::peers::PeerCommand;
use incumbent_core::peers::consensus::{Position, SealId};
use tokio::sync::Notify;

/// What the user wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    Command(PeerCommand),
    Position(Position),
    Sealed(SealId, Position),
    /// Somebody saw a deadline pass.
    Look,
}

/// More than any sane user has to say while the runner is busy.
const MAX_ORDERS: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Orders {
    state: Mutex<State>,
    filled: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Order>,
    closed: bool,
}

impl Orders {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is complete before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is somebody to hear it.
    pub(crate) fn push(&self, order: Order) -> bool {
        use Order::{Command, Look, Position};
        use PeerCommand::{Healthy, Proclaim};
        let mut state = self.state();
        if state.closed {
            return false;
        }
        let full = state.waiting.len() >= MAX_ORDERS;
        match (state.waiting.back_mut(), &order) {
            (Some(last @ Look), Look)
            | (Some(last @ Position(_)), Position(_))
            | (Some(last @ Command(Proclaim(_))), Command(Proclaim(_)))
            | (Some(last @ Command(Healthy(_))), Command(Healthy(_))) => *last = order,
            _ if full => return false,
            _ => state.waiting.push_back(order),
        }
        drop(state);
        self.filled.notify_one();
        true
    }

    pub(crate) fn take(&self) -> Option<Order> {
        self.state().waiting.pop_front()
    }

    /// Waits until there may be something to take. Safe to cancel.
    pub(crate) async fn filled(&self) {
        let filled = self.filled.notified();
        if !self.state().waiting.is_empty() {
            return;
        }
        filled.await;
    }

    pub(crate) fn close(&self) {
        self.state().closed = true;
    }
}
