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
        /// Whoever proclaims is told of success when any value has been published, perhaps an older
        /// one.
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
    }
}

/// The flaw that is switched on. None, outside the simulation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flaws {
    #[cfg(feature = "flaws")]
    pub(crate) on: Option<DriverFlaw>,
}

impl Flaws {
    #[inline]
    pub(crate) fn has(self, flaw: DriverFlaw) -> bool {
        #[cfg(feature = "flaws")]
        return self.on == Some(flaw);
        #[cfg(not(feature = "flaws"))]
        {
            let _ = flaw;
            false
        }
    }
}
