//! What members tell those who ask, and the words for it. It knows nothing of connections.

use bytes::Bytes;
use incumbent_core::peers::consensus::PeerRole;
use incumbent_core::peers::{Abstention, MemberId};
use incumbent_core::{Refusal, StoreId, Timestamp, Token};

use crate::config::Algorithm;

/// Who leads, as somebody sees it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LeaderView {
    /// Who leads.
    pub member: MemberId,
    /// Its term, where terms are tokens.
    pub term: Option<Token>,
    /// What it proclaims.
    pub value: Bytes,
}

/// The office, while a member is in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HeldOffice {
    /// The term, where terms are tokens.
    pub token: Option<Token>,
    /// Until when the leadership may be believed.
    pub deadline: Timestamp,
}

/// What a member is, as its own process sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeState {
    /// Where it is in its life.
    pub stage: Stage,
    /// The highest term that it knows; zero where terms are no tokens.
    pub term: u64,
    /// Who leads, as far as it knows. It may be itself.
    pub leader: Option<LeaderView>,
    /// The office, while it is in it.
    pub office: Option<HeldOffice>,
    /// Why it does not vote, if so.
    pub not_voting: Option<Abstention>,
}

/// Where a member is in its life.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stage {
    /// The group has not been founded: it waits for these.
    Forming {
        /// Members that have not been heard yet.
        missing: Vec<MemberId>,
    },
    /// It is a member. In bully and ring elections it leads or follows; there is nothing else.
    Member(PeerRole),
    /// It takes no part any more.
    Closed,
}

/// One member's own view, as it tells those who ask.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// Who says it.
    pub member: MemberId,
    /// How it elects.
    pub algorithm: Algorithm,
    /// What it does at present.
    pub role: PeerRole,
    /// The highest term that it knows; zero where terms are no tokens.
    pub term: u64,
    /// The newest term in which it knows of a leader; zero if there was none, or terms are no
    /// tokens.
    pub led_term: u64,
    /// Who leads, as far as it knows: the leader of that term, unless it has left or was not heard
    /// for too long.
    pub leader: Option<LeaderView>,
    /// Whether it is in office itself.
    pub in_office: bool,
    /// Whether it is fit to lead.
    pub stands: bool,
    /// Why it does not vote, if so.
    pub not_voting: Option<Abstention>,
    /// Whether its group has yet to be founded.
    pub forming: bool,
    /// Members that it has not heard of while its group is being founded.
    pub waits_for: Vec<MemberId>,
    /// What it proclaims when it leads.
    pub value: Bytes,
    /// Which founding of the group it belongs to.
    pub identity: Option<StoreId>,
}

/// What someone who is not a member wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Query {
    Status,
    Resign,
    Transfer(MemberId),
    /// Found the group with those who are up, without the others.
    Found,
    /// Come back although others do not answer, or have lost their state, too.
    Readmit,
}

/// What it gets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Accepted,
    Refused(Refused),
    Status(Box<Status>),
}

/// Why an operator's request is refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The member that was asked does not lead.
    #[error("this member is not in office")]
    NotInOffice,
    /// There are no heirs where rank decides.
    #[error("rank decides who leads: a bully or ring election cannot hand over")]
    RankDecides,
    /// The heir is not another member of the group.
    #[error("the heir is not another member of the group")]
    NotAMember,
    /// The heir has not answered lately.
    #[error("the heir has not answered lately")]
    HeirSilent,
    /// The heir lacks records that the leader has.
    #[error("the heir lacks records that the leader has")]
    HeirBehind,
    /// The heir could not stand now.
    #[error("the heir could not take office: it is unfit to lead, or does not vote yet")]
    HeirUnfit,
    /// Another request is being granted.
    #[error("the leader is busy with another request")]
    Busy,
    /// There is nothing to found.
    #[error("this group is already founded, or does not need to be")]
    Founded,
    /// There are too few to found a group with.
    #[error("a majority of the members has to be up, with disks that have not voted")]
    TooFew,
    /// It had agreed to a founding that cannot be completed, and has given it up.
    #[error("the founding that it had agreed to cannot be completed: it starts over, ask again")]
    StartedOver,
    /// It is being founded.
    #[error("the group is being founded: all members that agreed to it are up")]
    InProgress,
    /// It votes, or is about to.
    #[error("this member has not lost its state")]
    NotLost,
}

impl Refused {
    /// All reasons, by their number on the wire.
    pub const ALL: [Refused; 12] = [
        Refused::NotInOffice,
        Refused::RankDecides,
        Refused::NotAMember,
        Refused::HeirSilent,
        Refused::HeirBehind,
        Refused::HeirUnfit,
        Refused::Busy,
        Refused::Founded,
        Refused::TooFew,
        Refused::StartedOver,
        Refused::InProgress,
        Refused::NotLost,
    ];
}

impl From<Refusal> for Refused {
    fn from(why: Refusal) -> Refused {
        match why {
            Refusal::NotAMember => Refused::NotAMember,
            Refusal::HeirSilent => Refused::HeirSilent,
            Refusal::RankDecides => Refused::RankDecides,
            Refusal::HeirBehind => Refused::HeirBehind,
            Refusal::HeirUnfit => Refused::HeirUnfit,
            Refusal::Busy | Refusal::Leaving => Refused::Busy,
            _ => Refused::NotInOffice,
        }
    }
}
