//! What can go wrong, per operation, by who has to act.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use incumbent_core::{
    LossReason, MAX_BENCHED, MAX_BENCHED_BYTES, MAX_NAME_BYTES, MAX_REASON_BYTES, NameError, Order, Recovery, Refusal,
    SettingsError, Token,
};
use incumbent_store::{StoreError, TokenStrength};

use crate::election::{Fenced, Fencing};
use crate::fence::FenceError;
use crate::health::Health;
use crate::leadership::Leadership;
use crate::observer::CandidateInfo;

/// A leadership is over, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the leadership is over: {why}")]
pub struct LeadershipLost {
    why: LossReason,
}

impl LeadershipLost {
    pub(crate) fn new(why: LossReason) -> LeadershipLost {
        LeadershipLost { why }
    }

    /// Why.
    pub fn reason(&self) -> LossReason {
        self.why
    }
}

/// Why a client could not be made.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The settings cannot be safe. The message has the arithmetic.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The URL names a kind of store that this build was made without.
    #[error("this build does not know {scheme}://; build it with the cargo feature `{feature}`")]
    NotBuiltIn {
        /// The part before the colon.
        scheme: String,
        /// What adds it.
        feature: &'static str,
    },
    /// The URL names a kind of store that nobody knows.
    #[error("unknown store {scheme:?}: this build knows {known}")]
    UnknownScheme {
        /// The part before the colon.
        scheme: String,
        /// What could be written instead.
        known: String,
    },
    /// The URL is malformed.
    #[error("malformed store URL: {0}")]
    Url(#[from] UrlError),
    /// There is no such directory, and a client that only reads does not make one.
    #[error("there is no directory {}", .path.display())]
    Missing {
        /// Where it would be.
        path: std::path::PathBuf,
    },
    /// The tokens of this store are weaker than
    /// [`ClientBuilder::require`](crate::ClientBuilder::require) asks for.
    #[error("the store's tokens are {promised:?}, but at least {required:?} is required")]
    WeakTokens {
        /// What was asked for.
        required: TokenStrength,
        /// What the store promises.
        promised: TokenStrength,
    },
    /// A group of peers has no TTL.
    #[error("a group of peers has no TTL; how long a leader may be silent stands in the URL, as in &timeout=5s")]
    NoTtl,
    /// The grace is longer than a year.
    #[error("a grace of {} days is too long", .grace.as_secs() / 86_400)]
    GraceTooLong {
        /// What was asked for.
        grace: Duration,
    },
    /// These settings are invalid for a group of peers.
    #[cfg(feature = "peers")]
    #[error(transparent)]
    Group(#[from] incumbent_peers::ConfigError),
    /// Bully and ring give no fencing tokens, and the caller needs them.
    #[cfg(feature = "peers")]
    #[error(
        "a {algorithm} election gives no fencing tokens: two leaders at a time are possible, and nothing can tell them apart. \
         Code that gets along without tokens connects with `connect_unfenced`"
    )]
    Unfenced {
        /// How the group elects.
        algorithm: incumbent_peers::Algorithm,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system gives this process no timer, or no randomness.
    #[error("the system gives this process no timer or no randomness: {0}")]
    System(#[source] Arc<io::Error>),
}

/// What is wrong with the URL of a store or of a group of peers. It never holds the URL itself,
/// which may carry a password.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// Nothing says which kind of store it is.
    #[error("it has no scheme; write e.g. {example}")]
    NoScheme {
        /// What could be written instead.
        example: &'static str,
    },
    /// What follows the scheme names no place where such a store can be.
    #[error("{expected}")]
    Place {
        /// What has to be written there.
        expected: String,
    },
    /// This kind of store has no such option.
    #[error("it has no option {option:?}: it knows {known}")]
    UnknownOption {
        /// Its name.
        option: String,
        /// The options that it has.
        known: &'static str,
    },
    /// An option cannot have this value, or cannot be given here.
    #[error("{option}: {expected}")]
    Option {
        /// Its name.
        option: String,
        /// What it has to be.
        expected: String,
    },
    /// An option is needed.
    #[error("it needs the option {option}: {why}")]
    MissingOption {
        /// Its name.
        option: &'static str,
        /// What for.
        why: &'static str,
    },
    /// What it says makes no group of peers, or a file that it names cannot be used.
    #[cfg(feature = "peers")]
    #[error(transparent)]
    Group(#[from] incumbent_peers::ConfigError),
    /// The store, which reads its own URLs, refuses it.
    #[error("{what}")]
    Refused {
        /// Why.
        what: String,
    },
}

/// Why a candidate could not stand.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StandError {
    /// The candidate's name or value is not acceptable.
    #[error(transparent)]
    Name(#[from] NameError),
    /// What the candidacy says.
    #[error(transparent)]
    Candidacy(#[from] CandidacyError),
    /// It was to lead at once or not at all, and its checks say that it may not.
    #[error("the candidate is {0}")]
    Unfit(Health),
    /// Its checks cannot be run.
    #[error("cannot start a thread for the health checks: {0}")]
    Checks(#[source] Arc<io::Error>),
}

/// Why a candidacy is over.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CandidacyError {
    /// The election has ended. Those who open it anew start afresh.
    #[error("the election has ended")]
    Ended,
    /// The client is closed.
    #[error("the client is closed")]
    Closed,
    /// This client has a candidate in this election already. Another one needs its own client.
    #[error("this client already has a candidate in this election; a second one needs a client of its own")]
    AlreadyInLine,
    /// The store refused for good.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A fence refused for good.
    #[error("cannot take office: {0}")]
    Fence(#[from] FenceError),
    /// The TTL that the store grants makes the settings unsafe.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// This process cannot be a member of the group of peers.
    #[cfg(feature = "peers")]
    #[error("this process cannot be a member of the group: {0}")]
    Member(#[from] MemberError),
    /// Another store answers under the same address: tokens of the old one cannot be compared with
    /// its own.
    #[error(
        "the store was replaced: it was {was}, and is {is} now; whether old tokens still count is an operator's decision"
    )]
    StoreReplaced {
        /// The identity that was seen first.
        was: incumbent_store::StoreId,
        /// The identity now.
        is: incumbent_store::StoreId,
    },
}

/// Why a process cannot be a member of a group of peers.
#[cfg(feature = "peers")]
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemberError {
    /// The candidate has the name of another member than the one that this process is.
    #[error("it is {is:?}, and {named:?} is another member")]
    AnotherName {
        /// What this process is, by `rank` or `listen`, or since an earlier candidate stood.
        is: String,
        /// The candidate's name.
        named: String,
    },
    /// Nothing says which member this process is.
    #[error("it has to say which one it is: by &rank= or &listen= in the URL, or by a name that is in the list")]
    Unnamed,
    /// Every member runs already, in other processes of this host.
    #[error("all {members} members are already running")]
    AllRun {
        /// How many there are.
        members: usize,
    },
    /// It cannot start. [`StartError`](incumbent_peers::StartError) says whether its address or its
    /// directory are in use.
    #[error(transparent)]
    Start(Arc<incumbent_peers::StartError>),
    /// It has ended by itself. A candidate that stands again starts it anew.
    #[error("it has ended")]
    Ended,
}

#[cfg(feature = "peers")]
impl MemberError {
    /// Whether another process is this member, so that waiting, or another member, may help.
    pub fn is_taken(&self) -> bool {
        match self {
            MemberError::AllRun { .. } => true,
            MemberError::Start(error) => is_taken(error),
            _ => false,
        }
    }
}

/// Whether another process is the member that did not start.
#[cfg(feature = "peers")]
pub(crate) fn is_taken(error: &incumbent_peers::StartError) -> bool {
    use incumbent_peers::StartError;
    match error {
        StartError::Listen { why, .. } => why.kind() == io::ErrorKind::AddrInUse,
        StartError::Locked { .. } => true,
        _ => false,
    }
}

/// Why giving the office back is not certain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResignError {
    /// The store has not confirmed it. It goes on in the background, and ends with the session at
    /// the latest.
    #[error(
        "the outcome is unknown after {waited:.1?}: the entry leaves the line in the background, with the session at the latest"
    )]
    OutcomeUnknown {
        /// How long it was waited for.
        waited: Duration,
    },
    /// The client is closed. The entry leaves the line with the session.
    #[error("the client is closed: the entry leaves the line when the session expires")]
    Closed,
}

/// Why it is not certain that a client left nothing behind. What is left expires with its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseError {
    /// Not everything was given back in time: work that has not stopped, or a store that does not
    /// answer. It goes on in the background.
    #[error("not closed within {waited:.1?}: what is left goes on in the background, and expires with the session")]
    TimedOut {
        /// How long it was waited for.
        waited: Duration,
    },
    /// The client has ended, and the store has not confirmed that nothing of it is left.
    #[error("the store has not confirmed that this client left: what is left expires with its session")]
    Unconfirmed,
}

/// Why a value could not be proclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProclaimError {
    /// The value is too large.
    #[error(transparent)]
    Value(NameError),
    /// The leadership is over.
    #[error(transparent)]
    Lost(#[from] LeadershipLost),
}

/// How handing over failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError<F: Fencing = Fenced> {
    /// The leader leads on; here is its leadership.
    #[error("the transfer was refused and the leader stays in office: {why}")]
    Refused {
        /// The leadership, as it was.
        leadership: Leadership<F>,
        /// Why.
        why: TransferRefused,
    },
    /// The office was lost on the way.
    #[error(transparent)]
    Lost(#[from] LeadershipLost),
    /// The office was given up for the heir, but somebody else leads now.
    #[error("the office was given up, but {} leads now, not the heir", .leader.as_ref().map_or_else(|| "nobody".into(), |leader| leader.to_string()))]
    Other {
        /// Who leads.
        leader: Option<CandidateInfo>,
    },
    /// The office was given up for the heir, and nobody could be read as leading in time.
    #[error("the office was given up, but it is not known who leads now: {0}")]
    Unknown(ReadError),
}

/// Why a transfer never began, or was given up.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferRefused {
    /// No candidate has this name or id.
    #[error("no candidate {0:?} is in line")]
    NoSuchCandidate(String),
    /// Several candidates have this name: use an id.
    #[error("several candidates are named {name:?} ({}): use an id", .ids.join(", "))]
    Ambiguous {
        /// The name.
        name: String,
        /// The ids of the candidates with this name.
        ids: Vec<String>,
    },
    /// The candidate is another library's, and does not take part in handovers.
    #[error("the candidate was made by another library, which does not support handovers")]
    Foreign,
    /// The leader refused.
    #[error(transparent)]
    Leader(#[from] Refusal),
    /// The line could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Why nothing could be read.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The store, or the group of peers, did not answer in time.
    #[error("no answer within {waited:.1?}: {last}")]
    TimedOut {
        /// How long it was tried.
        waited: Duration,
        /// The last error.
        last: StoreError,
    },
    /// The store refused for good.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why an operator's act failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OperatorError {
    /// Nobody leads.
    #[error("nobody leads")]
    Vacant,
    /// The first in line is stopping the work of the last leader from outside. It is not in office,
    /// and the next one, which may not stop anybody, must not lead before that has stopped.
    #[error("token {token} does not lead yet: it is stopping the work of the last leader from outside")]
    Fencing {
        /// The token of the first in line.
        token: Token,
        /// The token of the last leader, whose work may go on.
        last: Option<Token>,
    },
    /// The one that was named does not lead.
    #[error("token {asked} does not lead{}", .leads.map_or_else(|| ": nobody does".to_owned(), |token| format!(": {token} does")))]
    NotLeading {
        /// The token that was named.
        asked: Token,
        /// The token that leads.
        leads: Option<Token>,
    },
    /// The transfer was refused: the leader leads on.
    #[error("refused, and the leader stays in office: {0}")]
    Refused(#[from] TransferRefused),
    /// Somebody else leads now.
    #[error("the office was given up, but {} leads now, not the heir", .leader.as_ref().map_or_else(|| "nobody".into(), |leader| leader.to_string()))]
    Other {
        /// Who.
        leader: Option<CandidateInfo>,
    },
    /// Another operator has called it off.
    #[error("the request was taken back by another operator")]
    CalledOff,
    /// There is nothing to call off.
    #[error("no transfer is under way")]
    NotHandingOver,
    /// Candidates of another library are in line: they obey no notices.
    #[error("candidates of another library are in line and will not obey: {}", .entries.join(", "))]
    Foreign {
        /// Their entries.
        entries: Vec<String>,
    },
    /// It has not taken effect in time. What was written stays, unless the message says otherwise.
    #[error("not done within {waited:.1?}: {missing}")]
    TimedOut {
        /// How long it was waited for.
        waited: Duration,
        /// What is missing.
        missing: Unfinished,
    },
    /// There is nothing to resume.
    #[error("the election is not paused")]
    NotPaused,
    /// The election goes on, but not with the one that was to lead first.
    #[error("the election goes on, but {} leads, not the one that was to lead first", .leader.as_ref().map_or_else(|| "nobody".into(), |leader| leader.to_string()))]
    NotFirst {
        /// Who leads.
        leader: Option<CandidateInfo>,
    },
    /// Somebody else is healing this election.
    #[error("a recovery {} is at step {}", .0.order, .0.step)]
    Recovering(Box<Recovery>),
    /// There is nothing to unfreeze.
    #[error("the election is not frozen")]
    NotFrozen,
    /// No term with this token is on record whose work may go on.
    #[error("no term with token {token} is on record whose leader is gone and whose work may still run")]
    NotAtLarge {
        /// The token that was named.
        token: Token,
    },
    /// The one that is to be benched leads, and nobody could follow it.
    #[error("{leader} leads, and nobody in line is fit to follow it{}", unwell_too(.unwell))]
    NoHeir {
        /// Who leads.
        leader: Box<CandidateInfo>,
        /// Those behind it that have said that they are unwell.
        unwell: Vec<CandidateInfo>,
    },
    /// Too much is benched already.
    #[error("at most {MAX_BENCHED} names can be benched in an election, with all that is said of them in {} KiB", MAX_BENCHED_BYTES / 1024)]
    BenchFull,
    /// The one that is to lead is benched.
    #[error("{name:?} is benched {}", .order)]
    IsBenched {
        /// The name.
        name: String,
        /// By whom and why.
        order: Order,
    },
    /// There is nothing to take back.
    #[error("{name:?} is not benched")]
    NotBenched {
        /// The name.
        name: String,
    },
    /// No candidate can have this name.
    #[error(transparent)]
    CandidateName(NameError),
    /// There is nothing to acknowledge.
    #[error("health does not hold the office back")]
    NotHeldBack,
    /// There is nothing to found.
    #[error("this group is already founded, or does not need to be")]
    AlreadyFounded,
    /// There is nobody to readmit.
    #[error("this member has not lost its state")]
    NotLost,
    /// No member of the group has this name.
    #[error("there is no member {0:?} in the list")]
    NoSuchMember(String),
    /// Only peers are founded and readmitted: what a store keeps, it keeps by itself.
    #[error("this election is kept by a store: only a group of peers is founded, and only its members are readmitted")]
    NotAGroup,
    /// The program of the leader, a member of a group, does not listen to operators.
    #[error("the leader's program does not accept operator requests")]
    TakesNoRequests,
    /// What is said of an order is too long, or has control characters.
    #[error(
        "the reason for an order has at most {MAX_REASON_BYTES} bytes, who gives it at most {MAX_NAME_BYTES}, and both have \
         no control characters"
    )]
    Reason,
    /// Those who elect in this way cannot do that.
    #[error("a {algorithm} election cannot {act}: {why}")]
    Unsupported {
        /// How they elect.
        algorithm: &'static str,
        /// What was asked for.
        act: &'static str,
        /// Why not, and what can be done instead.
        why: &'static str,
    },
    /// The store failed.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// What an operator's act still lacks when its time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unfinished {
    /// The heir does not lead yet. The request has been taken back.
    #[error("the heir does not lead yet")]
    HeirLeads,
    /// The leader has not stepped down yet. The request has been taken back.
    #[error("the leader has not stepped down yet")]
    LeaderLeft,
    /// Candidates are still in line. The election is paused or has ended all the same.
    #[error("candidates are still in line")]
    LineEmpty,
    /// One that is benched is still in line. It stays benched.
    #[error("one that is benched is still in line")]
    BenchedLeft,
    /// The one that is to lead first does not lead yet. Nobody else may until it does.
    #[error("the one that is to lead first does not lead yet")]
    FirstLeads,
    /// Others kept changing the office record. Nothing was written.
    #[error("others kept changing the office record")]
    RecordWritten,
    /// The entry kept changing. It is still there.
    #[error("the entry kept changing")]
    EntryRemoved,
    /// Not all members with which the group is founded have agreed yet.
    #[error("not all who founded it have agreed yet")]
    Founded,
    /// No member that still knows a term has answered the one that lost its state.
    #[error("no member that still knows a term has answered it")]
    Readmitted,
}

/// `: node-4 (token 7) is unwell`
fn unwell_too(unwell: &[CandidateInfo]) -> String {
    let names: Vec<String> = unwell.iter().map(CandidateInfo::to_string).collect();
    match &names[..] {
        [] => String::new(),
        [one] => format!(": {one} is unwell"),
        all => format!(": {} are unwell", all.join(" and ")),
    }
}

impl From<StoreError> for OperatorError {
    fn from(error: StoreError) -> OperatorError {
        OperatorError::Read(ReadError::Store(error))
    }
}
