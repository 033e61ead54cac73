//! One simulated process: the machine, its clock, its candidacies and their users. It does nothing
//! by itself.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use incumbent_core::{
    Attempt, CallId, CandidacyId, Entry, Held, Incarnation, Input, Liveness, Nonce, Office, Participant, TermNo,
    Timestamp, Token,
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
    pub(crate) unwell: bool,
    /// By which notice it has chosen an heir for its health, the last time, and when.
    pub(crate) chose: Option<(Nonce, u64)>,
    /// It is about to leave: whom it has asked to take its office, and by which notices.
    pub(crate) departure: Option<Vec<(Nonce, Token)>>,
    /// It does something before it takes over, and has done so for these handovers.
    pub(crate) prepares: bool,
    pub(crate) readied: BTreeSet<Nonce>,
    /// It has asked to hand over itself, and was not refused.
    pub(crate) transferring: bool,
    pub(crate) priority: Option<i32>,
    /// What the answers have said that the candidacy took in.
    pub(crate) told: Told,
    /// The same before the last answer, until another call is made: an answer that comes when its
    /// call is due to be given up is not taken in.
    pub(crate) told_before: Option<Told>,
    /// What it has enlisted as, the last time.
    pub(crate) enlisted: Option<Incarnation>,
    /// The call that was sent last, and the one that the server carried out last.
    pub(crate) last_call: u64,
    /// The one that was sent last has been neither answered nor given up.
    pub(crate) awaits_answer: bool,
    /// When the one that was sent last was first answered.
    pub(crate) answered_at: Option<u64>,
    pub(crate) last_executed: u64,
    /// The raise of fences that is out.
    pub(crate) raise: Option<CallId>,
    pub(crate) last_withdrawn: Option<Held>,
    /// Which place is on its way to an heir, by the call that is out; and which one may have got
    /// there, since such a call had no answer.
    pub(crate) ceding: Option<Token>,
    pub(crate) ceded: Option<Token>,
    /// The shot at the last leader that is out.
    pub(crate) shot: Option<CallId>,
    /// Since when it says of which terms that they are closed.
    pub(crate) closing: BTreeMap<Token, u64>,
    pub(crate) first_contact: Option<Option<Nonce>>,
}

/// What a candidacy has been told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// What the last answer said that put this candidacy first in line.
    pub(crate) first_in_line: Option<FirstInLine>,
    /// The last answer that it took in said that the election is frozen.
    pub(crate) frozen: bool,
    /// The last answer that it took in said that it is benched, and whether it leaves in any case.
    pub(crate) benched: Option<(Nonce, bool)>,
    /// Since when answers that it took in while it led say that it leaves in any case, and that
    /// nothing is frozen.
    pub(crate) is_to_leave_since: Option<(Nonce, Timestamp)>,
    /// The last line that it took in, up to the first of another library.
    pub(crate) line: Vec<Entry>,
    /// The handovers for health that it has read of, by which leader and when, since an operator
    /// has acknowledged those before.
    pub(crate) changes: Vec<(Token, Timestamp)>,
    pub(crate) held_back: bool,
    /// The notices of those first in line that were not in office.
    pub(crate) at_vacancy: BTreeSet<Nonce>,
}

impl Told {
    /// Those in line who said that they are fit.
    pub(crate) fn fit_in_line(&self) -> Vec<Token> {
        self.line.iter().filter(|entry| !entry.merit.unwell).map(|entry| entry.token).collect()
    }

    /// What the record says of the one of this name, which leads or does not.
    pub(crate) fn note_bench(&mut self, now: Timestamp, office: &Office, name: &str, leads: bool) {
        self.benched = office.benched.get(name).map(|order| (order.id, order.vacates));
        let must = self.benched.filter(|(_, vacates)| *vacates && leads && office.frozen.is_none()).map(|(id, _)| id);
        let known = self.is_to_leave_since.filter(|(id, _)| Some(*id) == must);
        self.is_to_leave_since = known.or(must.map(|id| (id, now)));
    }

    /// What an operator has acknowledged counts no more.
    pub(crate) fn note_hold(&mut self, office: &Office) {
        if std::mem::replace(&mut self.held_back, office.held_back.is_some()) && !self.held_back {
            self.changes.clear();
        }
    }

    /// Counts the changes for health that the candidacy reads of.
    pub(crate) fn count_changes(&mut self, now: Timestamp, office: &Office) {
        self.note_hold(office);
        let Some(handover) = office.handover.as_ref().filter(|handover| handover.for_health) else { return };
        let known = self.changes.iter().position(|(from, _)| *from == handover.from);
        match (known, handover.refused) {
            (None, None) => self.changes.push((handover.from, now)),
            (Some(known), Some(_)) => drop(self.changes.remove(known)),
            _ => {}
        }
    }

    /// By which other leaders they were lately, before the term with this token ends.
    pub(crate) fn changes_lately(&self, now: Timestamp, token: Token) -> Vec<Token> {
        let lately = |at: Timestamp| now.since(at) < Duration::from_secs(600);
        self.changes.iter().filter(|(from, at)| *from != token && lately(*at)).map(|(from, _)| *from).collect()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Term {
    pub(crate) number: TermNo,
    pub(crate) token: Token,
    pub(crate) deadline: Timestamp,
}

/// What the candidates of a process are called.
pub(crate) fn name_of(process: usize) -> String {
    format!("p{process}")
}

#[derive(Clone, Debug)]
pub(crate) struct FirstInLine {
    pub(crate) token: Token,
    pub(crate) paused: bool,
    pub(crate) benched: bool,
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
