//! Known-bad variants of the driver and of the handles. The simulation of the library must catch
//! every one.
//!
//! Without the `flaws` feature a [`Flaws`] takes no room and every question is answered `false` at
//! compile time.

incumbent_core::known_flaws! {
    /// One way in which the library around a sound machine can be wrong. Most of them it once was.
    pub enum DriverFlaw {
        /// An opening that was given up is not dropped, and its late answer takes the place of the
        /// session in use.
        LateOpeningAdopted,
        /// The same, and a renewal of a session that is no longer there is never answered.
        RenewalUnanswered,
        /// Renewals that were given up are not dropped, nor what they hold.
        RenewalsKept,
        /// Calls of a candidacy that were given up are not dropped, nor what they hold.
        CallsKept,
        /// What was given up is dropped once the next one has begun.
        DroppedLate,
        /// A client that could not be closed says that it was.
        ClosedAnyway,
        /// A user has seen a term end, and the machine is not told.
        LapseUntold,
        /// A renewal revives a term that a user has seen end.
        LapsedRevived,
        /// `proclaim` succeeds when any value has been published, perhaps an older one.
        ProclaimedByAnother,
        /// Publications replace whatever is there: one that arrives late puts an old value back.
        PublicationUnguarded,
        /// Handles are told in the next turn what the machine says in this one: a term ends after
        /// its withdrawal was sent.
        EventsLate,
        /// A driver that is dropped tells nobody.
        DropUntold,
        /// The office is shown while the fences are being raised.
        OfficeBeforeFences,
        /// A candidate that gets ready for an office is told the token that it is going to have.
        HeirKnowsToken,
    }
}

/// The flaw that is switched on. None, outside the simulation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flaws {
    #[cfg(feature = "flaws")]
    pub(crate) on: Option<DriverFlaw>,
}

/// The rules that handles and drivers ask for where they decide. Each is kept unless the variant
/// that breaks it is switched on.
impl Flaws {
    /// A client says that it was closed only if it was.
    pub(crate) fn owns_up_to_open_sessions(self) -> bool {
        !self.has(DriverFlaw::ClosedAnyway)
    }

    /// The machine hears that a user has seen a term end.
    pub(crate) fn tells_lapses(self) -> bool {
        !self.has(DriverFlaw::LapseUntold)
    }

    /// However a driver ends, nobody waits for it in vain.
    pub(crate) fn tells_when_dropped(self) -> bool {
        !self.has(DriverFlaw::DropUntold)
    }

    /// Only the session that the machine knows of is used.
    pub(crate) fn discards_late_openings(self) -> bool {
        !self.has(DriverFlaw::LateOpeningAdopted) && !self.has(DriverFlaw::RenewalUnanswered)
    }

    #[inline]
    fn has(self, flaw: DriverFlaw) -> bool {
        #[cfg(feature = "flaws")]
        return self.on == Some(flaw);
        #[cfg(not(feature = "flaws"))]
        {
            let _ = flaw;
            false
        }
    }
}
