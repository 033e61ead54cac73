//! Known-bad variants of the protocol. The simulation must catch every one: that is how we know that it looks.
//!
//! Without the `flaws` feature a [`Flaws`] takes no room and every question is answered `false` at compile time.

/// One way to get leader election wrong. Each has been shipped by somebody.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Flaw {
    /// The deadline is counted from when the answer came, not from when the renewal was sent.
    DeadlineFromAnswer,
    /// The deadline is counted with the TTL that was asked for, not the one that was granted.
    TtlAsAsked,
    /// A renewal that is answered after the deadline revives the leadership.
    RenewalRevives,
    /// "My predecessor is gone" is taken for "I lead".
    WinWithoutVerifying,
    /// An entry found gone while leading is ignored.
    OwnEntryUnchecked,
    /// The user sees the leadership before the fences are raised.
    FencesRaisedLate,
    /// A candidate that lost its entry does not get back in line.
    NoRejoin,
    /// Lost hints are not covered by a slow re-read.
    NoPeriodicReread,
    /// A failed withdrawal is forgotten: the entry stays and blocks the line.
    WithdrawalForgotten,
    /// An enlistment with an unknown outcome is given up, not settled.
    EnlistmentUnsettled,
    /// The office is released before the work has stopped.
    ReleaseBeforeStop,
    /// A paused election is entered all the same.
    PauseIgnored,
    /// The handover's withdrawal is not guarded by the heir's entry.
    HandoverUnguarded,
    /// A handover that was meant for another leader is carried out.
    HandoverNotVoid,
    /// A silent rival is timed from when the read was sent, not from when its answer came, and not
    /// read again.
    RivalTimedFromSend,
    /// The tombstone of an ended election is ignored.
    EndIgnored,
    /// The session is renewed so late that the work has to stop before.
    RenewsTooRarely,
    /// The alarm for a handover stays set when the handover is over.
    AlarmLeftBehind,
    /// Where there is no line, one that leaves does not wait for the answer to its last try.
    TryUnsettled,
    /// Those between leader and heir do not step aside.
    NobodyStepsAside,
    /// Of several that stopped in a row, each is timed only once the one behind it is gone.
    SilenceCountedInTurn,
}

impl Flaw {
    /// Every flaw.
    pub const ALL: [Flaw; 21] = [
        Flaw::DeadlineFromAnswer,
        Flaw::TtlAsAsked,
        Flaw::RenewalRevives,
        Flaw::WinWithoutVerifying,
        Flaw::OwnEntryUnchecked,
        Flaw::FencesRaisedLate,
        Flaw::NoRejoin,
        Flaw::NoPeriodicReread,
        Flaw::WithdrawalForgotten,
        Flaw::EnlistmentUnsettled,
        Flaw::ReleaseBeforeStop,
        Flaw::PauseIgnored,
        Flaw::HandoverUnguarded,
        Flaw::HandoverNotVoid,
        Flaw::RivalTimedFromSend,
        Flaw::EndIgnored,
        Flaw::RenewsTooRarely,
        Flaw::AlarmLeftBehind,
        Flaw::TryUnsettled,
        Flaw::NobodyStepsAside,
        Flaw::SilenceCountedInTurn,
    ];
}

/// The flaws that are switched on. None, outside tests.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Flaws {
    #[cfg(feature = "flaws")]
    bits: u32,
}

impl Flaws {
    /// None.
    pub const NONE: Flaws = Flaws {
        #[cfg(feature = "flaws")]
        bits: 0,
    };

    /// Exactly one.
    #[cfg(feature = "flaws")]
    pub const fn only(flaw: Flaw) -> Flaws {
        Flaws { bits: 1 << flaw as u8 }
    }

    /// Whether this one is switched on.
    #[inline]
    pub const fn has(self, flaw: Flaw) -> bool {
        #[cfg(feature = "flaws")]
        return self.bits & (1 << flaw as u8) != 0;
        #[cfg(not(feature = "flaws"))]
        {
            let _ = flaw;
            false
        }
    }
}
