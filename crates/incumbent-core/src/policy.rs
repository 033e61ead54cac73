//! The rules that a candidate's machine keeps, and the known-bad variants that break them.
//!
//! The machine asks its policy where it decides. Each variant stands here with what it does wrong
//! and the rule that it breaks, and a simulation must catch every one: that is how we know that it
//! looks. Without the feature `flaws` a policy takes no room, and every rule is kept at compile
//! time.

use std::time::Duration;

use crate::time::Timestamp;

/// Declares known-bad variants, each with what it does wrong.
#[doc(hidden)]
#[macro_export]
macro_rules! known_flaws {
    ($(#[doc = $of:literal])+ pub enum $flaw:ident { $( $(#[doc = $what:literal])+ $name:ident, )+ }) => {
        $(#[doc = $of])+
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $flaw { $( $(#[doc = $what])+ $name, )+ }

        impl $flaw {
            /// Every one.
            pub const ALL: &'static [$flaw] = &[$( $flaw::$name, )+];

            /// What it does wrong.
            pub fn what(self) -> &'static str {
                match self { $( $flaw::$name => concat!($($what),+).trim_start(), )+ }
            }
        }
    };
}

/// Declares known-bad variants, and a policy with the rule that each of them breaks.
macro_rules! policy {
    (
        $(#[doc = $of:literal])+
        pub enum $flaw:ident against $policy:ident { $( $(#[doc = $what:literal])+ $name:ident breaks $rule:ident, )+ }
    ) => {
        $crate::known_flaws! { $(#[doc = $of])+ pub enum $flaw { $( $(#[doc = $what])+ $name, )+ } }

        /// The rules that are kept: all, outside of simulations.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub struct $policy {
            #[cfg(feature = "flaws")]
            broken: u64,
        }

        impl $policy {
            /// Every rule is kept.
            pub const SOUND: $policy = $policy {
                #[cfg(feature = "flaws")]
                broken: 0,
            };

            /// Every rule is kept but one, and those that were broken before.
            #[cfg(feature = "flaws")]
            pub const fn with(self, flaw: $flaw) -> $policy {
                $policy { broken: self.broken | 1 << flaw as u64 }
            }

            #[inline]
            const fn keeps(self, flaw: $flaw) -> bool {
                #[cfg(feature = "flaws")]
                return self.broken & (1 << flaw as u64) == 0;
                #[cfg(not(feature = "flaws"))]
                {
                    let _ = flaw;
                    true
                }
            }

            $(
                #[doc = concat!("Unless `", stringify!($name), "` is switched on.")]
                #[inline]
                pub(crate) const fn $rule(self) -> bool {
                    self.keeps($flaw::$name)
                }
            )+
        }
    };
}
pub(crate) use policy;

policy! {
    /// One way to get leader election wrong. Each has been shipped by somebody.
    pub enum Flaw against Policy {
        /// The deadline is counted from when the answer came, not from when the renewal was sent.
        DeadlineFromAnswer breaks counts_from_sending,
        /// The deadline is counted with the TTL that was asked for, not the one that was granted.
        TtlAsAsked breaks counts_granted_ttl,
        /// A renewal that is answered after the deadline revives the leadership.
        RenewalRevives breaks ends_at_the_deadline,
        /// "My predecessor is gone" is taken for "I lead".
        WinWithoutVerifying breaks verifies_wins,
        /// An entry found gone while leading is ignored.
        OwnEntryUnchecked breaks checks_own_entry,
        /// The user sees the leadership before the fences are raised.
        FencesRaisedLate breaks raises_fences_first,
        /// Fences are raised for a candidate while a raise for one that has left is not dropped
        /// yet.
        FencesRaisedBeside breaks raises_fences_once,
        /// A candidate that lost its entry does not get back in line.
        NoRejoin breaks rejoins,
        /// Lost hints are not covered by a slow re-read.
        NoPeriodicReread breaks rereads,
        /// A failed withdrawal is forgotten: the entry stays and blocks the line.
        WithdrawalForgotten breaks repeats_withdrawals,
        /// An enlistment with an unknown outcome is given up, not settled.
        EnlistmentUnsettled breaks settles_enlistments,
        /// The office is released before the work has stopped.
        ReleaseBeforeStop breaks stops_before_release,
        /// A paused election is entered all the same.
        PauseIgnored breaks heeds_pauses,
        /// The handover's withdrawal is not guarded by the heir's entry.
        HandoverUnguarded breaks guards_handovers,
        /// A handover that was meant for another leader is carried out.
        HandoverNotVoid breaks knows_void_handovers,
        /// A silent rival is timed from when the read was sent, not from when its answer came, and
        /// not read again.
        RivalTimedFromSend breaks reads_before_evicting,
        /// The tombstone of an ended election is ignored.
        EndIgnored breaks heeds_ends,
        /// The session is renewed so late that the work has to stop before.
        RenewsTooRarely breaks renews_in_time,
        /// The alarm for a handover stays set when the handover is over.
        AlarmLeftBehind breaks clears_alarms,
        /// Where there is no line, one that leaves does not wait for the answer to its last try.
        TryUnsettled breaks settles_tries,
        /// Those between leader and heir do not step aside.
        NobodyStepsAside breaks steps_aside,
        /// A leader that is unfit, or asked to hand over, leaves a frozen election's office.
        FreezeIgnored breaks heeds_freezes,
        /// A freeze whose time is over is never taken out of the record.
        FreezeForEver breaks ends_freezes,
        /// Of several that stopped in a row, each is timed only once the one behind it is gone.
        SilenceCountedInTurn breaks counts_silence_at_once,
        /// A leader is elected before its term is open in the record.
        ElectedBeforeOpening breaks opens_before_office,
        /// A term is closed in the record when its work is asked to stop.
        ClosesBeforeStop breaks closes_after_stop,
        /// The hard stop is taken for the word that the work has stopped, and the term is closed.
        HardStopCloses breaks hard_stop_is_no_close,
        /// The entry goes before the term is closed.
        WithdrawsBeforeClosing breaks closes_before_withdrawing,
        /// The work of the last leader is stopped from outside, and no record says who does so.
        ShotWithoutClaim breaks claims_before_shot,
        /// The last leader has no time to say late that its work has stopped.
        ShotAtOnce breaks waits_for_late_word,
        /// What stops it is cut off and begun anew at each renewal interval.
        ShotAtEachInterval breaks shoots_once,
        /// An unwell leader hands over to the next in line, fit or not. So does the first in line.
        UnfitHeir breaks picks_fit_heirs,
        /// A leader whose program leaves hands over to the next in line, fit or not.
        DepartsToUnfit breaks departs_to_the_best,
        /// A leader that is unwell looks for an heir before others that are so from the same cause
        /// know it.
        SearchesAtOnce breaks lets_others_notice,
        /// A leader that is unwell looks for an heir while what is found of it is better again.
        SearchesAsItImproves breaks heeds_improvement,
        /// The first in line goes to its end when one behind it is better.
        HeadGoesAway breaks keeps_its_place,
        /// The first in line asks one after the other to take its place, and so does one that was
        /// handed it.
        HandsOnAgain breaks hands_on_once,
        /// The first in line takes office while its place may still go to another: what hands it on
        /// has no answer yet.
        OfficeWhileCeding breaks settles_ceding,
        /// The first in line takes office after its place may have gone to another, since a later
        /// answer says that it has not.
        OfficeAfterCeding breaks cedes_for_good,
        /// An heir's late answer to an earlier request counts for the present one.
        LateAnswerCounts breaks matches_answers,
        /// What an earlier entry said of fitness counts for the next one, which says nothing.
        StaleFitness breaks forgets_fitness,
        /// An office changes hands for health as often as it comes.
        UnwellForEver breaks holds_back,
        /// When a paused election is to go on with a certain candidate, another one leads first.
        FirstIgnored breaks lets_first_lead,
        /// The one that was to lead first leads, and the others stay out.
        FirstForEver breaks lets_others_back,
        /// One whose name an operator has benched stands and leads all the same.
        BenchIgnored breaks heeds_benches,
        /// Where one name is benched, nobody stands.
        EverybodyBenched breaks benches_by_name,
        /// An order to the bench whose time is over is never taken out of the record.
        BenchForEver breaks ends_benches,
        /// A benched leader that is to leave in any case stays for want of an heir.
        BenchOutstayed breaks leaves_when_benched,
        /// A benched leader leaves the office vacant, though it is to wait for an heir.
        BenchVacates breaks waits_for_heirs,
    }
}

impl Policy {
    /// From when on the TTL of a renewal counts.
    pub(crate) fn deadline_from(self, sent_at: Timestamp, answered_at: Timestamp) -> Timestamp {
        if self.counts_from_sending() { sent_at } else { answered_at }
    }

    /// The TTL that counts.
    pub(crate) fn ttl(self, asked: Duration, granted: Duration) -> Duration {
        if self.counts_granted_ttl() { granted } else { asked }
    }

    /// How often a session with this TTL is renewed.
    pub(crate) fn renew_every(self, usual: Duration, ttl: Duration) -> Duration {
        if self.renews_in_time() { usual } else { ttl * 9 / 10 }
    }

    /// From when on a rival that was read counts as silent.
    pub(crate) fn rival_timed_from(self, sent_at: Timestamp, answered_at: Timestamp) -> Timestamp {
        if self.reads_before_evicting() { answered_at } else { sent_at }
    }
}
