//! What is simulated: the protocol as it is, or one known-bad variant of it.

use std::fmt;

use incumbent::DriverFlaw;
use incumbent_core::{Flaw, Flaws};

/// The protocol as it is, or with one thing wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// As it is.
    Sound,
    /// The machines of the core have a flaw.
    Core(Flaw),
    /// The store, the clock or a resource has one.
    World(WorldFlaw),
    /// The library around the machines, in a world of its own: as it is, or its driver or its
    /// handles have a flaw.
    Library(Option<DriverFlaw>),
}

/// One way in which what surrounds the machines can be wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorldFlaw {
    /// A token is drawn first and becomes visible later.
    TokenDrawnEarly,
    /// A token is one more than the newest in line, so that it starts again when the line is empty.
    TokenFromTheLine,
    /// A stale server acknowledges renewals that change nothing, and that is taken for a proof of life.
    StaleServerBelieved,
    /// An answered renewal is taken for a proof of life in a store where it proves only the one before.
    AnswerTakenForProof,
    /// The opening of a session is taken for a proof of life where it is none.
    OpeningTakenForProof,
    /// A renewal is taken to prove the one before it, however soon it follows.
    RenewalsTooClose,
    /// A connection is lost and made again, to a server that counts a shorter TTL, and nobody
    /// notices.
    ReconnectUnnoticed,
    /// The clock stops while the host is suspended.
    ClockStopsInSuspend,
    /// The clock is the wall clock, which people and daemons set back.
    ClockSetBack,
    /// Clocks run at different rates, and nobody accounts for it.
    DriftUnaccounted,
    /// Evicting compares no versions: one that has shown life since goes too.
    EvictionUnguarded,
    /// Evicting removes whoever is first, not the one that was seen.
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

impl WorldFlaw {
    const ALL: [WorldFlaw; 16] = [
        WorldFlaw::TokenDrawnEarly,
        WorldFlaw::TokenFromTheLine,
        WorldFlaw::StaleServerBelieved,
        WorldFlaw::AnswerTakenForProof,
        WorldFlaw::OpeningTakenForProof,
        WorldFlaw::RenewalsTooClose,
        WorldFlaw::ReconnectUnnoticed,
        WorldFlaw::ClockStopsInSuspend,
        WorldFlaw::ClockSetBack,
        WorldFlaw::DriftUnaccounted,
        WorldFlaw::EvictionUnguarded,
        WorldFlaw::EvictionOfTheFirst,
        WorldFlaw::WithdrawalUnguarded,
        WorldFlaw::OfficeOverwritten,
        WorldFlaw::FenceSetBack,
        WorldFlaw::ResourceUnfenced,
    ];
}

impl Variant {
    /// Every known-bad variant of the library around the machines.
    pub fn all_bad_libraries() -> impl Iterator<Item = Variant> {
        DriverFlaw::ALL.into_iter().map(|flaw| Variant::Library(Some(flaw)))
    }

    /// Every known-bad variant of the machines and of what surrounds them in their own world.
    pub fn all_bad() -> impl Iterator<Item = Variant> {
        let core = Flaw::ALL.into_iter().map(Variant::Core);
        core.chain(WorldFlaw::ALL.into_iter().map(Variant::World))
    }

    /// The known-bad variant of this name.
    pub fn named(name: &str) -> Option<Variant> {
        Variant::all_bad().chain(Variant::all_bad_libraries()).find(|variant| variant.to_string() == name)
    }

    pub(crate) fn flaws(self) -> Flaws {
        match self {
            Variant::Core(flaw) => Flaws::only(flaw),
            Variant::Sound | Variant::World(_) | Variant::Library(_) => Flaws::NONE,
        }
    }

    pub(crate) fn has(self, flaw: WorldFlaw) -> bool {
        self == Variant::World(flaw)
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Variant::Sound => f.write_str("Sound"),
            Variant::Core(flaw) => write!(f, "{flaw:?}"),
            Variant::World(flaw) => write!(f, "{flaw:?}"),
            Variant::Library(None) => f.write_str("Library"),
            Variant::Library(Some(flaw)) => write!(f, "{flaw:?}"),
        }
    }
}
