//! What the user of a peer is told and may ask for: the same words for bully, ring and consensus.

use bytes::Bytes;

use super::group::MemberId;
use crate::entry::Token;
use crate::machine::Loss;
use crate::time::Timestamp;

/// What the user of a member is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum PeerEvent {
    /// In office. [`PeerEvent::Unelected`] follows, exactly once.
    Elected {
        /// The term, where terms are tokens: consensus only.
        token: Option<Token>,
        /// Until when the leadership may be believed. [`Timestamp::MAX`] where nothing bounds it: bully and ring
        /// without the majority rule.
        deadline: Timestamp,
    },
    /// The deadline has moved.
    Deadline(Timestamp),
    /// Stop the work, then say [`PeerCommand::Release`].
    Stopping {
        /// Why.
        why: Loss,
        /// When the term is over, whether or not the work has stopped.
        hard_stop: Timestamp,
    },
    /// The term is over.
    Unelected(Loss),
    /// Another member leads, or the leader has proclaimed another value.
    NewLeader {
        /// Who leads.
        leader: MemberId,
        /// Its term, where terms are tokens.
        term: Option<Token>,
        /// What it proclaims.
        value: Bytes,
    },
    /// The leader has not been heard for too long.
    Vacant,
    /// The handover is refused: this member leads on.
    TransferRefused(TransferRefusal),
    /// This member takes no part in elections, and why.
    NotVoting(Abstention),
    /// This member takes part in elections again.
    Voting,
    /// The last event, after [`PeerCommand::Close`].
    Closed,
}

/// What the user of a member wants.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum PeerCommand {
    /// The work of the term has stopped; give the office back.
    Release,
    /// The work has stopped; hand the office to this member, or keep it.
    Transfer(MemberId),
    /// Advertise another value.
    Proclaim(Bytes),
    /// Whether this member is fit to lead. An unfit one still votes.
    Healthy(bool),
    /// Consensus: an operator's word to a member that lost its state. It need not wait for the
    /// others that do not answer, or that lost theirs, too.
    Readmit,
    /// Drain, leave office, and take no part from then on.
    Close,
}

/// Why a handover is refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferRefusal {
    /// This member is not in office, or is leaving it.
    #[error("this member is not in office")]
    NotInOffice,
    /// The heir is not another member of the group.
    #[error("the heir is not another member of the group")]
    NotAMember,
    /// The heir has not answered lately.
    #[error("the heir has not answered lately")]
    HeirSilent,
    /// The heir could not stand now: it is unfit to lead, or does not vote.
    #[error("the heir could not take office: it is unfit to lead, or does not vote yet")]
    HeirUnfit,
    /// Bully and ring elections have no heirs.
    #[error("rank decides who leads: a bully or ring election cannot hand over")]
    RankDecides,
    /// The heir lacks records that the leader has.
    #[error("the heir lacks records that the leader has")]
    HeirBehind,
}

/// Why a member takes no part in elections.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Abstention {
    /// Its state is lost or damaged: it may have voted in terms that it no longer knows.
    #[error(
        "the state is lost or damaged: this member waits until ALL others have told it the highest term, or an operator \
         readmits it"
    )]
    StateLost,
    /// Its state is lost, and there is nobody else who could know the term.
    #[error("the state is lost or damaged, and a group of one has nobody to learn the term from")]
    StateLostAlone,
    /// It has just restarted: it may have promised a lease that it forgot.
    #[error("just restarted: a promise made before may still hold")]
    Restarted,
    /// Its state could not be written.
    #[error("the votes could not be written to the disk, so none may be given any more; is it full, or read-only?")]
    CannotPersist,
}
