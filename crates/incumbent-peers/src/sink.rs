//! Where a node tells what happens, and a ready-made queue for it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use incumbent_core::peers::consensus::{Position, SealId};
use incumbent_core::peers::{MemberId, PeerEvent};
use incumbent_core::{Nonce, Timestamp, Token};
use tokio::sync::Notify;

use crate::link::outbox::Outbox;
use crate::orders::{Order, Orders};
use crate::packet::Packet;
use crate::status::{Answer, Refused};
use crate::trace::Meter;

/// Is told what happens, in order, by the task that runs the machine. It must not block.
pub trait Sink: Send + Sync + 'static {
    /// An event. One that ends a term is told before the message that lets another begin is sent, so the term has to be
    /// over for everybody in this process when this returns.
    fn event(&self, now: Timestamp, event: PeerEvent);

    /// An operator wants something of this member, which is in office.
    fn request(&self, request: OperatorRequest) {
        drop(request);
    }

    /// With [`positions`](incumbent_core::peers::consensus::ConsensusSettings::positions) only: refuse records of lower
    /// tokens from now on, durably, then read the position and tell it.
    fn seal(&self, token: Token, seal: Sealing) {
        let _ = (token, seal);
    }

    /// The node has ended, in whatever way: nothing follows. A term that has not ended before ends by its deadline.
    fn ended(&self) {}
}

/// What an operator wants of a leader.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Wish {
    /// Give the office back.
    Resign,
    /// Hand the office to this member.
    Transfer(MemberId),
}

/// An operator's wish, to be accepted or refused. Dropping it refuses it.
pub struct OperatorRequest {
    /// What is wanted.
    pub what: Wish,
    reply: Option<Reply>,
}

pub(crate) struct Reply {
    pub(crate) to: Arc<Outbox>,
    pub(crate) nonce: Nonce,
    pub(crate) meter: Arc<Meter>,
}

impl Reply {
    pub(crate) fn send(self, answer: Answer) {
        self.to.push(Packet::Answer(self.nonce, answer), &self.meter);
    }
}

impl OperatorRequest {
    pub(crate) fn new(what: Wish, reply: Reply) -> OperatorRequest {
        OperatorRequest { what, reply: Some(reply) }
    }

    /// It will be done: the operator sees it happen by watching who leads.
    pub fn accept(mut self) {
        self.answer(Answer::Accepted);
    }

    /// It will not be done.
    pub fn refuse(mut self, why: Refused) {
        self.answer(Answer::Refused(why));
    }

    fn answer(&mut self, answer: Answer) {
        if let Some(reply) = self.reply.take() {
            reply.send(answer);
        }
    }
}

impl Drop for OperatorRequest {
    fn drop(&mut self) {
        self.answer(Answer::Refused(Refused::NotTaken));
    }
}

impl fmt::Debug for OperatorRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperatorRequest").field("what", &self.what).finish_non_exhaustive()
    }
}

/// The data path is to be sealed. Without an answer this member neither votes nor stands in that term.
pub struct Sealing {
    id: SealId,
    orders: Arc<Orders>,
}

impl Sealing {
    pub(crate) fn new(id: SealId, orders: Arc<Orders>) -> Sealing {
        Sealing { id, orders }
    }

    /// Older tokens are refused from now on, durably, and the records reach this far.
    pub fn sealed(self, position: Position) {
        self.orders.push(Order::Sealed(self.id, position));
    }
}

impl fmt::Debug for Sealing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sealing").field(&self.id).finish()
    }
}

/// What a node tells through [`Events`].
#[derive(Debug)]
pub enum NodeEvent {
    /// The machine's own event.
    Peer(PeerEvent),
    /// An operator wants something.
    Request(OperatorRequest),
    /// The data path is to be sealed.
    Seal(Token, Sealing),
}

/// How many events wait for a reader that is behind. Beyond that, requests and seals are refused, and
/// events that a later one makes meaningless are left out.
const MAX_EVENTS: usize = 256;

/// A sink that keeps events for [`Events`] to take.
///
/// For programs that act on events a moment after they happened: they have to compare deadlines with the clock.
#[derive(Debug, Default)]
pub struct EventQueue {
    state: Mutex<State>,
    filled: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<NodeEvent>,
    closed: bool,
}

/// The reader's end of an [`EventQueue`].
#[derive(Debug)]
pub struct Events(Arc<EventQueue>);

/// A sink and its reader.
pub fn events() -> (Arc<EventQueue>, Events) {
    let queue = Arc::new(EventQueue::default());
    (queue.clone(), Events(queue))
}

impl EventQueue {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is complete before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, event: NodeEvent) {
        let mut state = self.state();
        match (state.waiting.back_mut(), &event) {
            // Only the newest of a row counts.
            (Some(NodeEvent::Peer(last @ PeerEvent::Deadline(_))), NodeEvent::Peer(next @ PeerEvent::Deadline(_)))
            | (
                Some(NodeEvent::Peer(last @ (PeerEvent::NewLeader { .. } | PeerEvent::Vacant))),
                NodeEvent::Peer(next @ (PeerEvent::NewLeader { .. } | PeerEvent::Vacant)),
            ) => *last = next.clone(),
            _ => {
                if state.waiting.len() >= MAX_EVENTS {
                    make_room(&mut state.waiting);
                }
                state.waiting.push_back(event);
            }
        }
        drop(state);
        self.filled.notify_one();
    }
}

/// Leaves out what a reader that is so far behind can do without: first what happened to others, then whole terms.
fn make_room(waiting: &mut VecDeque<NodeEvent>) {
    let essential = |event: &NodeEvent| {
        matches!(event, NodeEvent::Peer(PeerEvent::Elected { .. } | PeerEvent::Unelected(_) | PeerEvent::Closed))
    };
    waiting.retain(essential);
    // What is left are terms, one after the other: the oldest that are over are of no use any more.
    while waiting.len() >= MAX_EVENTS {
        waiting.pop_front();
    }
}

impl Sink for EventQueue {
    fn event(&self, _now: Timestamp, event: PeerEvent) {
        self.push(NodeEvent::Peer(event));
    }

    fn request(&self, request: OperatorRequest) {
        self.push(NodeEvent::Request(request));
    }

    fn seal(&self, token: Token, seal: Sealing) {
        self.push(NodeEvent::Seal(token, seal));
    }

    fn ended(&self) {
        self.state().closed = true;
        self.filled.notify_one();
    }
}

impl Events {
    /// The next event; `None` once the node has ended. Safe to cancel.
    pub async fn next(&mut self) -> Option<NodeEvent> {
        loop {
            let filled = self.0.filled.notified();
            {
                let mut state = self.0.state();
                if let Some(event) = state.waiting.pop_front() {
                    return Some(event);
                }
                if state.closed {
                    return None;
                }
            }
            filled.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use incumbent_core::Loss;

    use super::*;

    fn deadline(nanos: u64) -> PeerEvent {
        PeerEvent::Deadline(Timestamp::from_nanos(nanos))
    }

    #[tokio::test]
    async fn a_slow_reader_gets_the_newest_deadline_and_every_begin_and_end_in_order() {
        let (queue, mut events) = events();
        let now = Timestamp::ZERO;
        let elected = PeerEvent::Elected { token: Token::new(4), deadline: Timestamp::from_nanos(1) };
        queue.event(now, elected.clone());
        (2..5).for_each(|nanos| queue.event(now, deadline(nanos)));
        queue.event(now, PeerEvent::Unelected(Loss::Resigned));
        queue.event(now, PeerEvent::Closed);
        queue.ended();
        let mut seen = Vec::new();
        while let Some(event) = events.next().await {
            match event {
                NodeEvent::Peer(event) => seen.push(event),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(seen, [elected, deadline(4), PeerEvent::Unelected(Loss::Resigned), PeerEvent::Closed]);
    }

    #[test]
    fn the_queue_is_bounded_and_ends_with_the_newest() {
        let (queue, mut events) = events();
        for term in 1..=1_000 {
            let token = Token::new(term);
            queue.event(Timestamp::ZERO, PeerEvent::Elected { token, deadline: Timestamp::MAX });
            queue.event(Timestamp::ZERO, PeerEvent::Stopping { why: Loss::Resigned, hard_stop: Timestamp::MAX });
            queue.event(Timestamp::ZERO, PeerEvent::Unelected(Loss::Resigned));
        }
        let mut seen = Vec::new();
        while let Some(Some(NodeEvent::Peer(event))) = events.next().now_or_never() {
            seen.push(event);
        }
        assert!(seen.len() <= MAX_EVENTS);
        assert_eq!(seen.last(), Some(&PeerEvent::Unelected(Loss::Resigned)));
        assert!(
            seen.iter().any(|event| matches!(event, PeerEvent::Elected { token, .. } if *token == Token::new(1_000)))
        );
    }
}
