//! What goes into a member of a group and what comes out of it: the same for bully, ring and
//! consensus. `M` is what members say to each other.

use bytes::Bytes;

use super::consensus::{PersistId, Position, SealId, Stored};
use super::group::MemberId;
use crate::entry::Token;
use crate::machine::{Command, Event};
use crate::standing::Fault;

/// How the candidate of a member stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TermRules {
    /// Whether there are fences to raise before it is in office. Only where terms are tokens:
    /// consensus.
    pub fenced: bool,
    /// Whether the office is kept until the user has confirmed that the work has stopped, however
    /// long that takes. Otherwise it goes at the hard stop, with or without that confirmation.
    pub hold_until_stopped: bool,
    /// Whether it is unfit to begin with: then it stands once it is said to be fit. It votes all
    /// the same.
    pub unfit: bool,
}

/// What happened. What is of no use to an algorithm is passed over.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Input<M> {
    /// Time has passed.
    Tick,
    /// A member says something. Who it is has been authenticated.
    Message(MemberId, M),
    /// This member has a candidate from now on, advertising this value. [`Command::Leave`] ends
    /// that.
    Stand(TermRules, Bytes),
    /// The user wants something.
    Command(Command),
    /// The answer to [`Output::RaiseFences`]: nothing of that raise is left.
    Fences(Token, Result<(), Fault>),
    /// Drain, leave office, and take no part from then on. [`Output::Closed`] follows.
    Close,
    /// Consensus: an operator's word to a member that lost its state. It need not wait for the
    /// others that do not answer, or that lost theirs, too.
    Readmit,
    /// Consensus: this state and all before it are durable.
    Persisted(PersistId),
    /// Consensus: this state could not be written. The member takes no part from then on.
    PersistFailed(PersistId),
    /// Consensus: the answer to [`Output::Seal`].
    Sealed(SealId, Position),
    /// Consensus: the records of this member reach this far, durably. For pre-votes, transfers, and
    /// to see whether a member that lost its records has caught up; votes ask with
    /// [`Output::Seal`].
    Position(Position),
}

impl<M> Input<M> {
    /// The same for those who say it in other words; `None` if they do not say it at all.
    pub(super) fn map<N>(self, message: impl FnOnce(M) -> Option<N>) -> Option<Input<N>> {
        Some(match self {
            Input::Tick => Input::Tick,
            Input::Message(from, said) => Input::Message(from, message(said)?),
            Input::Stand(rules, value) => Input::Stand(rules, value),
            Input::Command(command) => Input::Command(command),
            Input::Fences(token, result) => Input::Fences(token, result),
            Input::Close => Input::Close,
            Input::Readmit => Input::Readmit,
            Input::Persisted(id) => Input::Persisted(id),
            Input::PersistFailed(id) => Input::PersistFailed(id),
            Input::Sealed(id, position) => Input::Sealed(id, position),
            Input::Position(position) => Input::Position(position),
        })
    }
}

/// What is to be done, in this order: an event that ends a term comes before the message that lets
/// another begin.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Output<M> {
    /// Say this to a member. May be lost, late, doubled or overtaken.
    Send(MemberId, M),
    /// Write this down durably, then say [`Input::Persisted`]. States may be skipped for a later
    /// one, never reordered.
    Persist(PersistId, Stored),
    /// Refuse records of lower tokens from now on, durably, then read the position: one step. See
    /// [`Position`].
    Seal(SealId, Token),
    /// Raise every fence of the candidate to this token, then say [`Input::Fences`]. One raise is
    /// out at a time.
    RaiseFences(Token),
    /// The raise that is out is no longer wanted: drop it. [`Input::Fences`] says when that is
    /// done, not before.
    GiveUpFences(Token),
    /// Tell the user.
    Event(Event),
    /// This member takes no part any more. Nothing follows.
    Closed,
}

impl<M> Output<M> {
    /// The same for those who say it in other words.
    pub(super) fn map<N>(self, message: impl FnOnce(M) -> N) -> Output<N> {
        match self {
            Output::Send(to, said) => Output::Send(to, message(said)),
            Output::Persist(id, stored) => Output::Persist(id, stored),
            Output::Seal(id, token) => Output::Seal(id, token),
            Output::RaiseFences(token) => Output::RaiseFences(token),
            Output::GiveUpFences(token) => Output::GiveUpFences(token),
            Output::Event(event) => Output::Event(event),
            Output::Closed => Output::Closed,
        }
    }
}

/// What an operator wants of the member in office.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum OperatorRequest {
    /// Give the office back.
    Resign,
    /// Hand the office to this member.
    Transfer(MemberId),
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
