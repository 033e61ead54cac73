//! A look at every message that passes, for people who want to see an election happen.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use incumbent_core::Timestamp;
use incumbent_core::peers::MemberId;
use incumbent_core::peers::wire::{Body, Frame};
use incumbent_store::Clock;

use crate::counters::{Tally, add};
use crate::packet::Packet;

/// Is shown every message. Called where messages are carried: it must not block.
pub trait Trace: Send + Sync + 'static {
    /// A message was sent, received, refused or dropped.
    fn frame(&self, record: &TraceRecord<'_>);
}

/// One message on its way.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TraceRecord<'a> {
    /// When, by the node's clock.
    pub at: Timestamp,
    /// What became of it.
    pub way: Way,
    /// Who says it; `None` for someone who is not a member, or has not proven it.
    pub from: Option<MemberId>,
    /// To whom; `None` for someone who is not a member.
    pub to: Option<MemberId>,
    /// What kind of message, in one word; empty if it could not be read.
    pub kind: &'static str,
    packet: Option<&'a Packet>,
    why: &'a str,
}

impl<'a> TraceRecord<'a> {
    /// The algorithm's message, if it is one.
    pub fn message(&self) -> Option<&'a Body> {
        match self.packet {
            Some(Packet::Peer(frame)) => Some(&frame.body),
            _ => None,
        }
    }

    /// The message in one line.
    pub fn summary(&self) -> String {
        match self.packet {
            Some(packet) => packet.summary(),
            None => self.why.to_owned(),
        }
    }
}

/// What became of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Way {
    /// Written to a connection.
    Sent,
    /// Received, and it is what it says.
    Received,
    /// Received and refused.
    Refused(RefusedFrame),
    /// Never sent: the queue was full, or it grew stale in it.
    Dropped,
}

/// Why a connection or a frame was refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RefusedFrame {
    /// What came first is no greeting.
    Garbage,
    /// It is longer than any frame may be.
    TooLong,
    /// It is of another version.
    Version,
    /// It is of another election, another algorithm or another list of members.
    OtherGroup,
    /// It says that it is a member, and the list has none such.
    Stranger,
    /// It could not prove that it knows the secret.
    Proof,
    /// It does not decrypt: it was forged, replayed, reordered or changed on the way.
    Forged,
    /// Its sender is genuine, and it cannot be read.
    Malformed,
    /// It can be read, and its sender has no business sending it.
    Misplaced,
    /// There are too many connections.
    TooMany,
    /// It did not prove anything in time.
    TooSlow,
}

impl RefusedFrame {
    /// All reasons.
    pub const ALL: [RefusedFrame; 11] = [
        RefusedFrame::Garbage,
        RefusedFrame::TooLong,
        RefusedFrame::Version,
        RefusedFrame::OtherGroup,
        RefusedFrame::Stranger,
        RefusedFrame::Proof,
        RefusedFrame::Forged,
        RefusedFrame::Malformed,
        RefusedFrame::Misplaced,
        RefusedFrame::TooMany,
        RefusedFrame::TooSlow,
    ];

    /// The reason in one word, for metrics.
    pub fn name(self) -> &'static str {
        match self {
            RefusedFrame::Garbage => "garbage",
            RefusedFrame::TooLong => "too-long",
            RefusedFrame::Version => "version",
            RefusedFrame::OtherGroup => "other-group",
            RefusedFrame::Stranger => "stranger",
            RefusedFrame::Proof => "proof",
            RefusedFrame::Forged => "forged",
            RefusedFrame::Malformed => "malformed",
            RefusedFrame::Misplaced => "misplaced",
            RefusedFrame::TooMany => "too-many",
            RefusedFrame::TooSlow => "too-slow",
        }
    }
}

/// How often one reason is logged at most: garbage that is sent to us must not fill the disk.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Counts, shows and logs what passes at one node.
pub(crate) struct Meter {
    pub(crate) tally: Tally,
    me: MemberId,
    clock: Arc<dyn Clock>,
    trace: Option<Arc<dyn Trace>>,
    /// When each reason was logged last, in nanoseconds; zero for never.
    logged: [AtomicU64; RefusedFrame::ALL.len()],
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tally.fmt(f)
    }
}

impl Meter {
    pub(crate) fn new(me: MemberId, clock: Arc<dyn Clock>, trace: Option<Arc<dyn Trace>>) -> Meter {
        Meter { tally: Tally::default(), me, clock, trace, logged: Default::default() }
    }

    pub(crate) fn sent(&self, to: MemberId, packet: &Packet, bytes: usize) {
        self.tally.sent(packet.kind(), bytes);
        self.show(Way::Sent, self.me, to, Some(packet), "");
    }

    pub(crate) fn received(&self, from: MemberId, packet: &Packet, bytes: usize) {
        self.tally.received(packet.kind(), bytes);
        self.show(Way::Received, from, self.me, Some(packet), "");
    }

    pub(crate) fn dropped(&self, to: MemberId, packet: &Packet) {
        add(&self.tally.dropped, 1);
        self.show(Way::Dropped, self.me, to, Some(packet), "");
    }

    /// Counts a refusal and logs it, though not each one. `who` is the name that the sender gives,
    /// or where it is from.
    pub(crate) fn refused(
        &self,
        why: RefusedFrame,
        from: Option<MemberId>,
        packet: Option<&Packet>,
        who: &dyn fmt::Display,
    ) {
        let before = self.tally.refused(why);
        self.show(Way::Refused(why), from.unwrap_or(Frame::OUTSIDER), self.me, packet, why.name());
        let (now, last) = (self.clock.now().as_nanos().max(1), self.logged[why as usize].load(Ordering::Relaxed));
        let due = last == 0 || now.saturating_sub(last) >= LOG_EVERY.as_nanos() as u64;
        let logged = &self.logged[why as usize];
        if due && logged.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            tracing::warn!(from = %who, why = why.name(), so_far = before + 1, "refused");
        }
    }

    fn show(&self, way: Way, from: MemberId, to: MemberId, packet: Option<&Packet>, why: &str) {
        let Some(trace) = &self.trace else { return };
        let member = |id: MemberId| (id != Frame::OUTSIDER).then_some(id);
        let kind = packet.map_or("", Packet::kind);
        let at = self.clock.now();
        trace.frame(&TraceRecord { at, way, from: member(from), to: member(to), kind, packet, why });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_counted_in_its_own_place() {
        for (place, why) in RefusedFrame::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, place);
            let tally = Tally::default();
            tally.refused(why);
            let counters = tally.snapshot();
            assert_eq!((counters.refused(why), counters.refused_in_total()), (1, 1));
        }
    }
}
