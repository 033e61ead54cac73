//! What goes into a [`Participant`](crate::Participant) and what comes out of it; and the commands
//! and events that a member of a group shares with it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::entry::{Decline, Entry, EntryId, Held, NewEntry, Nonce, Publication, Token, Version};
use crate::keeper::{Attempt, Epoch};
use crate::name::ElectionName;
use crate::office::{Act, Heir, Office, Order, Refusal};
use crate::peers::{Abstention, MemberId};
use crate::settings::SettingsError;
use crate::standing::{Cas, Cursor, Fault, Line, Liveness, Renewal, Seen, Standing, Watched};
use crate::terms::{LastTerm, Origin, ShotResult, TermRecord};
use crate::time::Timestamp;

/// Numbers the candidacies of one process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CandidacyId(pub u64);

/// Numbers the calls of one candidacy. An answer to any but the newest is ignored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CallId(pub u64);

/// Numbers the watches of one candidacy. A wake-up from any but the newest is ignored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WatchId(pub u64);

/// What a candidate stands for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Candidate {
    /// The election.
    pub election: ElectionName,
    /// The candidate's name, for people.
    pub name: Arc<str>,
    /// What it advertises.
    pub value: Bytes,
    /// Whether there are fences to raise before it is in office.
    pub fenced: bool,
    /// Whether the entry stays until the user has confirmed that the work has stopped, however long
    /// that takes. Otherwise the entry goes at the hard stop, with or without that confirmation.
    pub hold_until_stopped: bool,
    /// Whether it is unfit to begin with: then it gets in line once it is said to be fit.
    pub unfit: bool,
    /// For how long it has to be unwell, as a leader, before it looks for an heir: those that are
    /// so from the same cause know it by then.
    pub settles: Duration,
    /// Its priority, if it has one: at a vacancy the first in line gives its place to the best, fit
    /// before unwell, then by priority. One that has none, and is well, takes the office that comes
    /// to it; to others it counts as zero.
    pub priority: Option<i32>,
    /// Whether its program has something to do before it takes over from a leader that hands over:
    /// see [`Event::Prepare`].
    pub prepares: bool,
    /// Whether the election is to keep a record of its terms. One that keeps one goes on with it
    /// under every later candidate.
    pub recorded: bool,
    /// Whether the work of the last leader is stopped from outside before this one is in office,
    /// where its term is on record and not known to have ended: and for how long that waits for it
    /// to be closed late. Needs `recorded`.
    pub fence_delay: Option<Duration>,
    /// What is put on record of where its work is done.
    pub origin: Arc<Origin>,
    /// The tombstone that was there at first contact with this election, if first contact has been
    /// made.
    pub first_contact: Option<Option<Nonce>>,
}

impl Candidate {
    /// One that is fit and asks for nothing beyond the office.
    pub fn new(election: ElectionName, name: impl Into<Arc<str>>) -> Candidate {
        Candidate {
            election,
            name: name.into(),
            value: Bytes::new(),
            fenced: false,
            hold_until_stopped: false,
            unfit: false,
            settles: Duration::ZERO,
            priority: None,
            prepares: false,
            recorded: false,
            fence_delay: None,
            origin: Arc::default(),
            first_contact: None,
        }
    }
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Input {
    /// Time has passed.
    Tick,
    /// A candidate stands. The number of its candidacy must be new.
    Stand(CandidacyId, Candidate),
    /// The user of a candidacy wants something.
    Command(CandidacyId, Command),
    /// [`Output::OpenSession`] was answered.
    Opened(Attempt, Result<Liveness, Fault>),
    /// [`Output::Renew`] was answered.
    Renewed(Attempt, Result<Renewal, Fault>),
    /// From now on the store may count this session's TTL as this, or longer: what was proven
    /// counts with it.
    Shortened(Epoch, Duration),
    /// [`Output::Call`] was answered.
    Answer(CandidacyId, CallId, Result<Answer, Fault>),
    /// [`Output::Watch`] has something to say, or has been lost: both mean "look again".
    Wake(CandidacyId, WatchId, Hint),
    /// Every candidacy leaves: leaders drain first. When all are gone the session is closed.
    Close,
}

/// What a watch said.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Hint {
    /// Something may have changed.
    Changed,
    /// The watch itself was lost; something may have changed.
    Lost,
}

/// What the user of a candidacy wants.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Command {
    /// The work of the term has stopped; give the office back. Also confirms the stop of a term
    /// that was lost.
    Release,
    /// Do not stand again: leave the line now, or when the present term is over.
    Leave,
    /// Advertise another value. The number is higher than that of the candidacy's last one.
    Proclaim(u64, Bytes),
    /// The work has stopped; hand the office over within this time, or keep it.
    Transfer(Successor, Duration),
    /// The program is about to leave: hand the office to the best in line while the work goes on.
    /// [`Event::Stopping`] follows once the heir is ready, or [`Event::NoHeir`]. `None`: not any
    /// more. The heir has this time at most; how long all of it may take is for the program to
    /// count. Peers look for nobody.
    HandOver(Option<Duration>),
    /// The program has got ready for this handover, or has not: the answer to [`Event::Prepare`].
    Prepared(Nonce, Result<(), Decline>),
    /// Whether the candidate is fit to lead. An unfit one leaves the line.
    Healthy(bool),
    /// Whether the candidate would rather have another lead. It stays in line, and hands its office
    /// to one that is fit. One that is unfit is unwell, too. Peers do nothing about it.
    Unwell(bool),
    /// Whether what is found of one that is unwell is better by now, and only has to last. Until it
    /// is not, a leader looks for nobody. Peers do nothing about it.
    Improving(bool),
    /// Someone looked at the clock and saw that this term is over.
    Lapsed(TermNo),
}

/// Numbers the terms of one candidacy or member, from 1 on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TermNo(pub u64);

/// To whom an office is handed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Successor {
    /// A candidate in the line of a store.
    Candidate(Heir),
    /// A member of a group.
    Member(MemberId),
}

/// What an office is held by.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Title {
    /// The first entry in line; its token is the fencing token.
    Entry(Held),
    /// A term that a quorum of a group has promised: it is the fencing token.
    Term(Token),
    /// The highest rank: there is no token.
    Rank,
}

impl Title {
    /// The fencing token.
    pub fn token(&self) -> Option<Token> {
        match self {
            Title::Entry(held) => Some(held.token),
            Title::Term(token) => Some(*token),
            Title::Rank => None,
        }
    }
}

/// What is to be done, or has taken effect.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Output {
    /// Open a session with this TTL.
    OpenSession(Attempt, Duration),
    /// Renew this session.
    Renew {
        /// Names the attempt in the answer.
        attempt: Attempt,
        /// The session.
        epoch: Epoch,
        /// The entries that we believe we hold.
        held: Vec<Held>,
    },
    /// The answer to this opening or renewal is no longer wanted: drop it, with all that it holds.
    /// At most one is out at a time: it is answered or given up before the next one begins.
    GiveUpAttempt(Attempt),
    /// Close this session, and make no more calls on it; no answer is needed. Another one is
    /// opened.
    ReplaceSession(Epoch),
    /// Close this session; no answer is needed.
    CloseSession(Epoch),
    /// Make one call. The candidacy's earlier one has been answered or given up.
    Call(CandidacyId, CallId, Option<Epoch>, Op),
    /// The answer to the candidacy's call is no longer wanted: drop it, with all that it holds.
    /// That [`Op::RaiseFences`] is dropped is said all the same, with [`Input::Answer`]: fences are
    /// the user's, and may take their time.
    GiveUpCall(CandidacyId),
    /// Watch. It replaces the candidacy's earlier watch.
    Watch {
        /// Whose watch it is.
        candidacy: CandidacyId,
        /// Names the watch in the wake-up.
        watch: WatchId,
        /// What to wait for.
        what: WatchFor,
        /// From where.
        from: Cursor,
    },
    /// Stop the candidacy's watch.
    Unwatch(CandidacyId),
    /// Tell the user of the candidacy.
    Event(CandidacyId, Event),
    /// A session was refused because these settings cannot be safe with the TTL that the store
    /// grants.
    SettingsRefused(SettingsError),
    /// All candidacies are gone and the session is closed or was never open. The answer to
    /// [`Input::Close`].
    Closed,
}

/// What a watch waits for, and who is asked.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum WatchFor {
    /// `Session::watch`, of this session.
    Entry(Epoch, Watched),
    /// `Store::watch`
    Election(ElectionName, Seen),
}

impl WatchFor {
    /// The election in which something may happen.
    pub fn election(&self) -> &ElectionName {
        match self {
            WatchFor::Entry(_, watched) => &watched.held.election,
            WatchFor::Election(election, _) => election,
        }
    }
}

/// A call to the store, or to the fences.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// `Session::enlist`
    Enlist(ElectionName, NewEntry),
    /// `Session::standing`
    Standing(Held, Option<EntryId>),
    /// `Session::withdraw`
    Withdraw(Held, Option<EntryId>),
    /// `Session::publish`
    Publish(Held, Version, Publication),
    /// `Store::line`
    Line(ElectionName, usize),
    /// `Store::set_office`
    SetOffice(ElectionName, Version, Box<Office>),
    /// `Store::evict`
    Evict(ElectionName, Box<Entry>),
    /// Look whether anything of this term, which is open in the record, can still be at work.
    Examine(Box<TermRecord>),
    /// Stop the work of this term from outside: the attempt with this number. It is claimed in the
    /// record, takes as long as it takes, and is given up with our place in line, or when nothing
    /// proves any longer that we have it.
    Shoot(Box<TermRecord>, u32),
    /// Raise every fence of this candidacy to this token. It is answered when nothing of it is
    /// left, and not before.
    RaiseFences(Token),
}

/// The answer to an [`Op`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Answer {
    /// To [`Op::Enlist`] and [`Op::Standing`].
    Standing(Box<Standing>),
    /// To [`Op::Withdraw`], [`Op::SetOffice`] and [`Op::Evict`].
    Cas(Cas),
    /// To [`Op::Publish`]: the version that is there now; `None`: refused.
    Published(Option<Version>),
    /// To [`Op::Line`].
    Line(Box<Line>),
    /// To [`Op::Examine`]: whether no process of it is left, for certain.
    Examined {
        /// The kernel says so.
        died: bool,
    },
    /// To [`Op::Shoot`].
    Shot {
        /// What came of it.
        result: ShotResult,
        /// After how long to try again, before anybody is in office. `None`: not again.
        again: Option<Duration>,
        /// Why it did not succeed, for people. Empty: there is nothing to say.
        why: Arc<str>,
    },
    /// To [`Op::RaiseFences`]: all are raised.
    Raised,
}

/// What the user of a candidacy, or of a member, is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// In line, behind this entry.
    Following(Box<Entry>),
    /// Another member leads, or the leader has proclaimed another value.
    Led {
        /// Who leads.
        leader: MemberId,
        /// Its term, where terms are tokens.
        term: Option<Token>,
        /// What it proclaims.
        value: Bytes,
    },
    /// No member leads: the leader has left office, or has not been heard for too long.
    Vacant,
    /// The candidate of a member does not lead, and nothing is left of its last term: it waits for
    /// the office of this leader, if one is known. What its member knows meanwhile is said with
    /// [`Event::Led`] and [`Event::Vacant`].
    Follows {
        /// Who leads.
        leader: Option<MemberId>,
        /// Its term, where terms are tokens.
        term: Option<Token>,
    },
    /// Out of the line for now, and why.
    Out(LossReason),
    /// In office: the fences are raised, the deadline is in the future. [`Event::Unelected`]
    /// follows, exactly once.
    Elected {
        /// Names the term in [`Command::Lapsed`].
        term: TermNo,
        /// What the office is held by.
        title: Title,
        /// How the term before this one ended. Peers keep no record of that.
        last_term: LastTerm,
        /// Until when the leadership may be believed. [`Timestamp::MAX`] where nothing bounds it:
        /// bully and ring without the majority rule.
        deadline: Timestamp,
    },
    /// The deadline has moved.
    Deadline(Timestamp),
    /// Stop the work, then say [`Command::Release`].
    Stopping {
        /// Why.
        why: LossReason,
        /// When the term is over, whether or not the work has stopped.
        hard_stop: Timestamp,
    },
    /// The term is over. No other begins before the user has said [`Command::Release`], once for
    /// each term.
    Unelected(LossReason),
    /// What the office of the last term was held by is certainly gone: the entry, or the promises
    /// of a group.
    Released,
    /// The handover that [`Command::Transfer`] asked for is refused: the leader leads on.
    TransferRefused(Refusal),
    /// There is nobody whom [`Command::HandOver`] could hand the office to: the leader leads on.
    /// Why the last one that was asked did not take it, or why nobody was asked.
    NoHeir(Refusal),
    /// This candidate is to take over from a leader that leads on until it is ready: get ready,
    /// then say [`Command::Prepared`]. The candidate has no office yet. [`Event::CalledOff`]
    /// follows, or [`Event::Elected`], whether or not it got ready.
    Prepare {
        /// The handover.
        nonce: Nonce,
        /// How long the leader waits, counted by its own clock since it read the request.
        within: Duration,
    },
    /// What [`Event::Prepare`] asked for is of no use any more.
    CalledOff(Nonce),
    /// The value with this number has been published, or a later one; or the entry was no longer
    /// ours.
    Proclaimed(u64, Cas),
    /// First contact with the election: the tombstone that was there.
    FirstContact(Option<Nonce>),
    /// The election has ended.
    Ended,
    /// This member takes no part in elections, and why.
    NotVoting(Abstention),
    /// This member takes part in elections again.
    Voting,
    /// An operator has ordered this leader to do something. For logs: what follows from it is said
    /// with other events.
    Ordered(Act, Order),
    /// The time of this freeze or bench is over, and the store refuses to take it out of the
    /// record. For logs: it is tried again, and the order is obeyed.
    OrderStays(Act, Order),
    /// The term with this token is over, and stays open in the record: the store did not take the
    /// word for it. For logs.
    LeftOpen(Token),
    /// This leader is unwell, and stays in office for now. For logs: it goes on looking
    /// for an heir.
    Stays(Stay),
    /// This leader is benched, and stays in office for now. For logs: it goes on looking for an
    /// heir.
    StaysBenched(Stay),
    /// Something that trying again cannot mend. The candidate leaves.
    Failed,
    /// The candidate has left: its entry has certainly left the line, if `certain`. The last event
    /// of a candidacy.
    Done {
        /// Whether nothing of it is left in the store.
        certain: bool,
    },
}

/// Why a leader that is unwell or benched stays in office.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Stay {
    /// Nobody else in line is fit, or those who are stand behind a candidate of another library.
    #[error("nobody else in line is fit")]
    NobodyFit,
    /// An operator has ordered so.
    #[error("the election is frozen")]
    Frozen,
    /// The office has changed hands for health too often, and an operator has to acknowledge that.
    #[error("the office has changed hands for health too often: `incumbent ack` lets it go on")]
    HeldBack,
    /// It has tried.
    #[error("{0}")]
    Refused(Refusal),
}

/// Why a term ended, or why a candidate is out of the line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LossReason {
    /// There is no session yet.
    #[error("there is no session with the store")]
    NoSession,
    /// The store has forgotten the session.
    #[error("the session expired")]
    Expired,
    /// No proof of life came in time: the store may have handed the office on.
    #[error("the local deadline passed without a proof of life")]
    LocalDeadline,
    /// Somebody deleted the entry.
    #[error("the entry was deleted by somebody else")]
    EntryDeleted,
    /// An operator removed the leader.
    #[error("deposed by an operator")]
    Deposed,
    /// Another leader stands before this one: an older entry in the line, or a newer term among
    /// peers.
    #[error("superseded by another leader")]
    Superseded,
    /// The election has ended.
    #[error("the election has ended")]
    Ended,
    /// The election is paused.
    #[error("the election is paused")]
    Paused,
    /// The candidate is not fit to lead.
    #[error("the candidate is unhealthy")]
    Unhealthy,
    /// The leader gave the office back, or was asked to.
    #[error("resigned")]
    Resigned,
    /// The office was handed to another candidate.
    #[error("the office was transferred")]
    Transferred,
    /// The leader was unwell, and handed its office to a candidate that is fit.
    #[error("the leader was unwell, and handed over")]
    Unwell,
    /// An operator keeps candidates of this name out of the line.
    #[error("benched by an operator")]
    Benched,
    /// The client is being closed.
    #[error("the client is closing")]
    Closing,
    /// The store refused something for good.
    #[error("the store refused for good")]
    Refused,
}

impl LossReason {
    const ALL: [LossReason; 15] = [
        LossReason::NoSession,
        LossReason::Expired,
        LossReason::LocalDeadline,
        LossReason::EntryDeleted,
        LossReason::Deposed,
        LossReason::Superseded,
        LossReason::Ended,
        LossReason::Paused,
        LossReason::Unhealthy,
        LossReason::Resigned,
        LossReason::Transferred,
        LossReason::Unwell,
        LossReason::Benched,
        LossReason::Closing,
        LossReason::Refused,
    ];

    /// The word for it in a record.
    pub fn word(self) -> &'static str {
        match self {
            LossReason::NoSession => "no_session",
            LossReason::Expired => "expired",
            LossReason::LocalDeadline => "local_deadline",
            LossReason::EntryDeleted => "entry_deleted",
            LossReason::Deposed => "deposed",
            LossReason::Superseded => "superseded",
            LossReason::Ended => "ended",
            LossReason::Paused => "paused",
            LossReason::Unhealthy => "unhealthy",
            LossReason::Resigned => "resigned",
            LossReason::Transferred => "transferred",
            LossReason::Unwell => "unwell",
            LossReason::Benched => "benched",
            LossReason::Closing => "closing",
            LossReason::Refused => "refused",
        }
    }

    /// What [`word`](LossReason::word) stands for.
    pub fn from_word(word: &str) -> Option<LossReason> {
        LossReason::ALL.into_iter().find(|reason| reason.word() == word)
    }
}
