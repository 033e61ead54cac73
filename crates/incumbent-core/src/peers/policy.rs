//! The rules that members of a group keep, and the known-bad variants that break them. See
//! `crate::policy`.

use crate::policy::policy;
use crate::time::Timestamp;

policy! {
    /// One way to get an election by consensus wrong.
    pub enum ConsensusFlaw against ConsensusPolicy {
        /// A vote is answered without being written down: a restart forgets it.
        VoteNotPersisted breaks persists_votes,
        /// The lease is counted from when the acknowledgement came, not from when the heartbeat was
        /// sent.
        LeaseFromResponse breaks counts_from_sending,
        /// A restarted member votes at once, although it may have promised a lease that it forgot.
        NoAbstention breaks abstains,
        /// A voter that hears a leader grants a vote all the same (pre-vote alone does not protect
        /// the lease).
        NoStickyVoters breaks keeps_promises,
        /// The leader that sent TimeoutNow goes on leading in that term.
        LeaseKeptAfterTransfer breaks forfeits_the_lease,
        /// A forced candidate that was not elected tries again as a forced one.
        ForcedVoteRetried breaks stands_forced_once,
        /// Positions are compared by index alone: ten uncommitted records beat seven committed
        /// ones.
        IndexOnlyPosition breaks compares_tokens,
        /// The winner of a vote takes office at once, before a quorum has promised it a lease.
        ElectedUnconfirmed breaks waits_for_promises,
        /// A member that lost its state starts again from term zero.
        WipedStartsAfresh breaks rejoins_when_wiped,
        /// The lease is as long as the promise, as if all clocks ran at the same rate.
        DriftIgnored breaks counts_drift,
        /// A member that lost its state believes the first that tells it a term.
        FirstTermBelieved breaks asks_enough_members,
        /// The user sees the leadership before the fences are raised.
        FencesRaisedLate breaks raises_fences_first,
        /// A fence that hangs is waited for for as long as the lease is kept.
        HungFenceAwaited breaks gives_up_hung_fences,
        /// Fences are raised anew before an earlier raise is dropped.
        FencesRaisedBeside breaks raises_fences_once,
        /// The office is given up before the work has stopped.
        ReleasedBeforeStopped breaks stops_before_release,
        /// A candidate is shown whom it follows once its term is over, although its work goes on.
        FollowsAtWork breaks waits_for_the_work,
        /// A term is said to be closed when its work is asked to stop.
        ClosedBeforeStopped breaks closes_stopped_work,
        /// Followers do not write down that somebody is in office.
        LastOfficeForgotten breaks keeps_the_last_office,
    }
}

impl ConsensusPolicy {
    /// From when on a promise counts.
    pub(crate) fn lease_from(self, sent_at: Timestamp, answered_at: Timestamp) -> Timestamp {
        if self.counts_from_sending() { sent_at } else { answered_at }
    }
}

policy! {
    /// One way to get an election by rank (bully, ring) wrong.
    pub enum RankFlaw against RankPolicy {
        /// Ring: a result is followed before its winner is heard, and the winner learns of it only
        /// on the way round.
        ResultFollowed breaks waits_for_the_winner,
        /// A member takes over without waiting for the former leader, which gets no grace.
        TakenOverAtOnce breaks waits_for_the_loser,
        /// A leader that has resigned takes the office back after a rest.
        ResignationForgotten breaks remembers_resignations,
        /// The office is given up before the work has stopped.
        ReleasedBeforeStopped breaks stops_before_release,
        /// A candidate is shown whom it follows once its term is over, although its work goes on.
        FollowsAtWork breaks waits_for_the_work,
    }
}
