//! One simulated process: the machine, its clock, its candidacies and their users. It does nothing
//! by itself.

use std::collections::{BTreeMap, VecDeque};

use incumbent_core::{
    Attempt, CallId, CandidacyId, Held, Input, Liveness, Nonce, Participant, TermNo, Timestamp, Token,
};
use incumbent_store::memory::SessionKey;

use crate::clock::LocalClock;

/// What arrives at a process.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    Opened(Attempt, Result<(SessionKey, Liveness), incumbent_core::Fault>),
    Input(Input),
}

/// A candidacy, as its user and its driver know it.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(crate) election: usize,
    pub(crate) fenced: bool,
    /// It asks for its terms to be on record.
    pub(crate) recorded: bool,
    pub(crate) term: Option<Term>,
    /// The token of a term whose stop the user has still to confirm.
    pub(crate) unconfirmed: Option<Token>,
    pub(crate) stopping: bool,
    pub(crate) leaving: bool,
    pub(crate) failed: bool,
    pub(crate) healthy: bool,
    /// The call that was sent last, and the one that the server carried out last.
    pub(crate) last_call: u64,
    /// The one that was sent last has been neither answered nor given up.
    pub(crate) awaits_answer: bool,
    /// The last answer that the candidacy took in said that the election is frozen.
    pub(crate) frozen: bool,
    /// The same of the answer before, until another call is made: an answer that comes when its
    /// call is due to be given up is not taken in.
    pub(crate) frozen_before: Option<bool>,
    /// When the one that was sent last was first answered.
    pub(crate) answered_at: Option<u64>,
    pub(crate) last_executed: u64,
    /// The raise of fences that is out.
    pub(crate) raise: Option<CallId>,
    pub(crate) last_withdrawn: Option<Held>,
    pub(crate) first_contact: Option<Option<Nonce>>,
    /// What the last answer said that put this candidacy first in line.
    pub(crate) first_in_line: Option<FirstInLine>,
}

#[derive(Clone, Debug)]
pub(crate) struct Term {
    pub(crate) number: TermNo,
    pub(crate) token: Token,
    pub(crate) deadline: Timestamp,
}

#[derive(Clone, Debug)]
pub(crate) struct FirstInLine {
    pub(crate) token: Token,
    pub(crate) paused: bool,
    pub(crate) ended: Option<Nonce>,
    /// The election keeps a record of its terms.
    pub(crate) recorded: bool,
}

pub(crate) struct Process {
    /// `None`: it has crashed.
    pub(crate) machine: Option<Participant>,
    pub(crate) boot: u32,
    pub(crate) clock: LocalClock,
    pub(crate) paused: bool,
    pub(crate) suspended: bool,
    /// What arrived while it was stopped.
    pub(crate) inbox: VecDeque<Message>,
    /// By the attempt that opened them, which is also their epoch.
    pub(crate) sessions: BTreeMap<u64, SessionKey>,
    /// The epoch that the machine used last.
    pub(crate) epoch: u64,
    pub(crate) users: BTreeMap<CandidacyId, User>,
    pub(crate) next_candidacy: u64,
    /// What this process met at first contact with each election, until it was told that the
    /// election has ended.
    pub(crate) contacts: BTreeMap<usize, Option<Nonce>>,
    /// The raise of fences of each election that is in the user's hands.
    pub(crate) raises: BTreeMap<usize, (CandidacyId, CallId)>,
    pub(crate) next_tick: Option<u64>,
    pub(crate) tick_serial: u64,
    /// Ticks at one moment: more than a few, and it spins.
    pub(crate) ticks_now: (u64, u32),
    /// Calls within one second.
    pub(crate) calls_in: (u64, u32),
    pub(crate) closed: bool,
}

impl Process {
    pub(crate) fn new(clock: LocalClock) -> Process {
        Process {
            machine: None,
            boot: 0,
            clock,
            paused: false,
            suspended: false,
            inbox: VecDeque::new(),
            sessions: BTreeMap::new(),
            epoch: 0,
            users: BTreeMap::new(),
            next_candidacy: 0,
            contacts: BTreeMap::new(),
            raises: BTreeMap::new(),
            next_tick: None,
            tick_serial: 0,
            ticks_now: (0, 0),
            calls_in: (0, 0),
            closed: false,
        }
    }

    pub(crate) fn start(&mut self, machine: Participant) {
        self.machine = Some(machine);
        self.sessions.clear();
        self.next_tick = None;
        self.closed = false;
    }

    pub(crate) fn crash(&mut self) {
        self.machine = None;
        self.boot += 1;
        self.paused = false;
        self.inbox.clear();
        self.users.clear();
        self.contacts.clear();
        self.raises.clear();
        self.next_tick = None;
        self.tick_serial += 1;
    }

    pub(crate) fn session(&self) -> Option<SessionKey> {
        self.sessions.get(&self.epoch).copied()
    }

    /// The candidacy that stands in an election for good, if there is one.
    pub(crate) fn candidacy_in(&self, election: usize) -> Option<CandidacyId> {
        self.users
            .iter()
            .find(|(_, user)| user.election == election && !user.leaving && !user.failed)
            .map(|(id, _)| *id)
    }
}
