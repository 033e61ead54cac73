//! What has passed, in numbers: for tests, health pages and benchmarks.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::trace::RefusedFrame;

/// Every kind of message, in the order in which they are counted.
pub(crate) const KINDS: [&str; 25] = [
    "pre-vote",
    "pre-voted",
    "vote",
    "voted",
    "heartbeat",
    "ack",
    "stale",
    "closed",
    "timeout-now",
    "ask-term",
    "tell-term",
    "lost-too",
    "election",
    "alive",
    "passed",
    "coordinator",
    "beat",
    "heard",
    "leaving",
    "left",
    "founding",
    "query",
    "answer",
    "ping",
    "pong",
];

/// The counters of one node, as they are now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Messages written to a connection.
    pub sent: u64,
    /// Messages received that decrypt and can be read.
    pub received: u64,
    /// Messages that were never sent: the queue was full, or they grew stale in it.
    pub dropped: u64,
    /// Bytes written in frames.
    pub bytes_sent: u64,
    /// Bytes received in frames.
    pub bytes_received: u64,
    /// Connections made to others.
    pub dialled: u64,
    /// Attempts to connect that failed, proofs included.
    pub dial_failed: u64,
    /// Connections of others that have been proven.
    pub accepted: u64,
    /// Of those, how many are open.
    pub open: u64,
    /// States written down.
    pub persisted: u64,
    /// States that could not be written down.
    pub persist_failed: u64,
    refused: [u64; RefusedFrame::ALL.len()],
    kinds: [(u64, u64); KINDS.len()],
}

impl Counters {
    /// How many connections and frames were refused for this reason.
    pub fn refused(&self, why: RefusedFrame) -> u64 {
        self.refused[why as usize]
    }

    /// How many connections and frames were refused.
    pub fn refused_in_total(&self) -> u64 {
        self.refused.iter().sum()
    }

    /// How many messages of this kind were sent.
    pub fn sent_of(&self, kind: &str) -> u64 {
        self.kinds().find(|(name, ..)| *name == kind).map_or(0, |(_, sent, _)| sent)
    }

    /// Each kind of message, how many were sent and how many received.
    pub fn kinds(&self) -> impl Iterator<Item = (&'static str, u64, u64)> {
        KINDS.iter().zip(&self.kinds).map(|(kind, (sent, received))| (*kind, *sent, *received))
    }
}

/// Where it is counted.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) dropped: AtomicU64,
    pub(crate) bytes_sent: AtomicU64,
    pub(crate) bytes_received: AtomicU64,
    pub(crate) dialled: AtomicU64,
    pub(crate) dial_failed: AtomicU64,
    pub(crate) accepted: AtomicU64,
    pub(crate) open: AtomicU64,
    pub(crate) persisted: AtomicU64,
    pub(crate) persist_failed: AtomicU64,
    refused: [AtomicU64; RefusedFrame::ALL.len()],
    sent: [AtomicU64; KINDS.len()],
    received: [AtomicU64; KINDS.len()],
}

pub(crate) fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

impl Tally {
    pub(crate) fn sent(&self, kind: &str, bytes: usize) {
        count(&self.sent, kind);
        add(&self.bytes_sent, bytes as u64);
    }

    pub(crate) fn received(&self, kind: &str, bytes: usize) {
        count(&self.received, kind);
        add(&self.bytes_received, bytes as u64);
    }

    /// Counts it, and says how many there were before.
    pub(crate) fn refused(&self, why: RefusedFrame) -> u64 {
        self.refused[why as usize].fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn snapshot(&self) -> Counters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let kinds: [(u64, u64); KINDS.len()] =
            std::array::from_fn(|at| (read(&self.sent[at]), read(&self.received[at])));
        Counters {
            sent: kinds.iter().map(|(sent, _)| sent).sum(),
            received: kinds.iter().map(|(_, received)| received).sum(),
            dropped: read(&self.dropped),
            bytes_sent: read(&self.bytes_sent),
            bytes_received: read(&self.bytes_received),
            dialled: read(&self.dialled),
            dial_failed: read(&self.dial_failed),
            accepted: read(&self.accepted),
            open: read(&self.open),
            persisted: read(&self.persisted),
            persist_failed: read(&self.persist_failed),
            refused: std::array::from_fn(|at| read(&self.refused[at])),
            kinds,
        }
    }
}

fn count(counters: &[AtomicU64; KINDS.len()], kind: &str) {
    if let Some(at) = KINDS.iter().position(|name| *name == kind) {
        add(&counters[at], 1);
    }
}
