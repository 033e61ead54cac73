//! Known-bad variants of the peer algorithms. The checks must catch every one: that is how we know that they look.
//!
//! Without the `flaws` feature a [`PeerFlaws`] takes no room and every question is answered `false` at compile time.

/// One way to get an election among peers wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum PeerFlaw {
    /// A vote is answered without being written down: a restart forgets it.
    VoteNotPersisted,
    /// The lease is counted from when the acknowledgement came, not from when the heartbeat was sent.
    LeaseFromResponse,
    /// A restarted member votes at once, although it may have promised a lease that it forgot.
    NoAbstention,
    /// A voter that hears a leader grants a vote all the same (pre-vote alone does not protect the lease).
    NoStickyVoters,
    /// The leader that sent TimeoutNow goes on leading in that term.
    LeaseKeptAfterTransfer,
    /// A forced candidate that was not elected tries again as a forced one.
    ForcedVoteRetried,
    /// Positions are compared by index alone: ten uncommitted records beat seven committed ones.
    IndexOnlyPosition,
    /// The winner of a vote takes office at once, before a quorum has promised it a lease.
    ElectedUnconfirmed,
    /// A member that lost its state starts again from term zero.
    WipedStartsAfresh,
    /// The lease is as long as the promise, as if all clocks ran at the same rate.
    DriftIgnored,
    /// A member that lost its state believes the first that tells it a term.
    FirstTermBelieved,
    /// The user sees the leadership before the fences are raised.
    FencesRaisedLate,
    /// A fence that hangs is waited for for as long as the lease is kept.
    HungFenceAwaited,
    /// Fences are raised anew before an earlier raise is dropped.
    FencesRaisedBeside,
    /// The office is given up before the work has stopped.
    ReleasedBeforeStopped,
    /// Ring: a result is followed before its winner is heard, and the winner learns of it only on
    /// the way round.
    ResultFollowed,
    /// Bully, ring: a member takes over without waiting for the former leader, which gets no grace.
    TakenOverAtOnce,
    /// Bully, ring: a leader that has resigned takes the office back after a rest.
    ResignationForgotten,
}

impl PeerFlaw {
    /// Every flaw of consensus.
    pub const ALL: [PeerFlaw; 15] = [
        PeerFlaw::VoteNotPersisted,
        PeerFlaw::LeaseFromResponse,
        PeerFlaw::NoAbstention,
        PeerFlaw::NoStickyVoters,
        PeerFlaw::LeaseKeptAfterTransfer,
        PeerFlaw::ForcedVoteRetried,
        PeerFlaw::IndexOnlyPosition,
        PeerFlaw::ElectedUnconfirmed,
        PeerFlaw::WipedStartsAfresh,
        PeerFlaw::DriftIgnored,
        PeerFlaw::FirstTermBelieved,
        PeerFlaw::FencesRaisedLate,
        PeerFlaw::HungFenceAwaited,
        PeerFlaw::FencesRaisedBeside,
        PeerFlaw::ReleasedBeforeStopped,
    ];
    /// Every flaw of bully and ring.
    pub const RANKS: [PeerFlaw; 4] = [
        PeerFlaw::ResultFollowed,
        PeerFlaw::TakenOverAtOnce,
        PeerFlaw::ResignationForgotten,
        PeerFlaw::ReleasedBeforeStopped,
    ];
}

/// The flaws that are switched on. None, outside tests.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PeerFlaws {
    #[cfg(feature = "flaws")]
    bits: u32,
}

impl PeerFlaws {
    /// None.
    pub const NONE: PeerFlaws = PeerFlaws {
        #[cfg(feature = "flaws")]
        bits: 0,
    };

    /// Exactly one.
    #[cfg(feature = "flaws")]
    pub const fn only(flaw: PeerFlaw) -> PeerFlaws {
        PeerFlaws { bits: 1 << flaw as u8 }
    }

    /// These, and one more.
    #[cfg(feature = "flaws")]
    pub const fn and(self, flaw: PeerFlaw) -> PeerFlaws {
        PeerFlaws { bits: self.bits | 1 << flaw as u8 }
    }

    /// Whether this one is switched on.
    #[inline]
    pub const fn has(self, flaw: PeerFlaw) -> bool {
        #[cfg(feature = "flaws")]
        return self.bits & (1 << flaw as u8) != 0;
        #[cfg(not(feature = "flaws"))]
        {
            let _ = flaw;
            false
        }
    }
}
