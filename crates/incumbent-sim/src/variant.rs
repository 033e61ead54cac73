//! What is simulated: which world, and the code as it is or one known-bad variant of it.

use std::fmt;

use incumbent::DriverFlaw;
use incumbent_core::peers::ConsensusFlaw;
use incumbent_core::{Flaw, known_flaws};

/// A simulated world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum World {
    /// The machines of candidates, around the memory store's table.
    Store,
    /// The library itself, around the memory store.
    Library,
    /// The machines of a group that elects by consensus.
    Peers,
}

/// The code as it is, or with one thing wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// As it is.
    Sound,
    /// A candidate's machine has a flaw.
    Core(Flaw),
    /// The store, the clock or a resource has one.
    Around(AroundFlaw),
    /// The library's driver or its handles have one.
    Driver(DriverFlaw),
    /// The machine of a member has one.
    Peers(ConsensusFlaw),
}

known_flaws! {
    /// One way in which what surrounds the machines can be wrong.
    pub enum AroundFlaw {
        /// A token is drawn first and becomes visible later.
        TokenDrawnEarly,
        /// A token is one more than the newest in line, so that it starts again when the line is
        /// empty.
        TokenFromTheLine,
        /// A stale server acknowledges renewals that change nothing, and that is taken for a proof
        /// of life.
        StaleServerBelieved,
        /// An answered renewal is taken for a proof of life in a store where it proves only the one
        /// before.
        AnswerTakenForProof,
        /// The opening of a session is taken for a proof of life where it is none.
        OpeningTakenForProof,
        /// A renewal is taken to prove the one before it, however soon it follows.
        RenewalsTooClose,
        /// A connection is lost and made again, to a server that counts a shorter TTL, and nobody
        /// notices.
        ReconnectUnnoticed,
        /// A renewal says from memory that the one ahead is there, when it is gone.
        AheadRemembered,
        /// The clock stops while the host is suspended.
        ClockStopsInSuspend,
        /// The clock is the wall clock, which people and daemons set back.
        ClockSetBack,
        /// Clocks run at different rates, and nobody accounts for it.
        DriftUnaccounted,
        /// Evicting compares no versions: one that has shown life since goes too.
        EvictionUnguarded,
        /// Evicting removes the first in line, not the entry that was seen.
        EvictionOfTheFirst,
        /// Withdrawing removes whatever entry the session has in that election.
        WithdrawalUnguarded,
        /// The office record is written without comparing its version.
        OfficeOverwritten,
        /// A fence is set to the token that comes, not to the largest that came.
        FenceSetBack,
        /// A resource compares no tokens.
        ResourceUnfenced,
    }
}

impl World {
    /// Every world.
    pub const ALL: [World; 3] = [World::Store, World::Library, World::Peers];

    /// The world of this name.
    pub fn named(name: &str) -> Option<World> {
        World::ALL.into_iter().find(|world| world.to_string() == name)
    }

    /// The known-bad variants that this world has to catch.
    pub fn variants(self) -> Vec<Variant> {
        match self {
            World::Store => {
                let core = Flaw::ALL.iter().copied().map(Variant::Core);
                core.chain(AroundFlaw::ALL.iter().copied().map(Variant::Around)).collect()
            }
            World::Library => DriverFlaw::ALL.iter().copied().map(Variant::Driver).collect(),
            World::Peers => ConsensusFlaw::ALL.iter().copied().map(Variant::Peers).collect(),
        }
    }
}

impl Variant {
    /// What it does wrong.
    pub fn what(self) -> &'static str {
        match self {
            Variant::Sound => "Nothing is wrong.",
            Variant::Core(flaw) => flaw.what(),
            Variant::Around(flaw) => flaw.what(),
            Variant::Driver(flaw) => flaw.what(),
            Variant::Peers(flaw) => flaw.what(),
        }
    }

    pub(crate) fn has(self, flaw: AroundFlaw) -> bool {
        self == Variant::Around(flaw)
    }
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            World::Store => "store",
            World::Library => "library",
            World::Peers => "peers",
        })
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Variant::Sound => f.write_str("Sound"),
            Variant::Core(flaw) => write!(f, "{flaw:?}"),
            Variant::Around(flaw) => write!(f, "{flaw:?}"),
            Variant::Driver(flaw) => write!(f, "{flaw:?}"),
            Variant::Peers(flaw) => write!(f, "{flaw:?}"),
        }
    }
}
