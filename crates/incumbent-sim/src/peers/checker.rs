//! What must always be true in a group, on global time. It sees everything and changes nothing.
//!
//! Beside the rules of ARCHITECTURE.md: an office is given up when its term is over, and where the
//! work is waited for not before it has stopped (STOPPED); nobody at work is shown that another
//! leads (SHOWN); what a member has voted stays so (VOTES); a leader has every committed record
//! (RECORDS), and is not told that the last term was closed whose work has not stopped, or that
//! there was none (CLOSED).

use std::collections::{BTreeMap, BTreeSet};

use incumbent_core::LastTerm;
use incumbent_core::peers::MemberId;
use incumbent_core::peers::consensus::Message;

use super::records::Record;
use crate::trace::Trace;

/// That a member believes to lead, until a true moment.
#[derive(Clone, Copy, Debug)]
struct Belief {
    token: u64,
    until: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Checker {
    holders: BTreeMap<u64, (usize, u32)>,
    beliefs: BTreeMap<usize, Belief>,
    votes: BTreeMap<(usize, u64), MemberId>,
    committed: Vec<Record>,
    /// The terms whose work has stopped.
    stopped: BTreeSet<u64>,
    /// The lowest token that the fences let pass.
    fence: u64,
    pub(crate) trace: Trace,
    /// Terms that began.
    pub(crate) terms: u64,
}

impl Checker {
    pub(crate) fn new(trace: Trace) -> Checker {
        Checker { trace, ..Checker::default() }
    }

    pub(crate) fn fail(&mut self, now: u64, rule: &'static str, text: String) {
        self.trace.fail(now, rule, text);
    }

    /// How many records were committed.
    pub(crate) fn records(&self) -> usize {
        self.committed.len()
    }

    /// Whether a log has every committed record.
    pub(crate) fn is_complete(&self, log: &[Record]) -> bool {
        log.starts_with(&self.committed)
    }

    /// The member that believes to lead, and its token, if there is exactly one.
    pub(crate) fn leader(&self, at: u64) -> Option<(usize, u64)> {
        let mut live = self.beliefs.iter().filter(|(_, belief)| at < belief.until);
        let (who, belief) = live.next()?;
        live.next().is_none().then_some((*who, belief.token))
    }

    fn look_for_rivals(&mut self, rule: &'static str, at: u64, who: usize, token: u64) {
        self.look_for_rivals_below(rule, at, who, token, u64::MAX);
    }

    fn look_for_rivals_below(&mut self, rule: &'static str, at: u64, who: usize, token: u64, below: u64) {
        let rival = |other: usize, belief: &Belief| other != who && at < belief.until && belief.token < below;
        let rival = self.beliefs.iter().find(|(other, belief)| rival(**other, belief));
        if let Some((other, belief)) = rival {
            let seen = format!(
                "m{who} with term {token}, while m{other} believes in its term {} for another {:.3} ms",
                belief.token,
                (belief.until - at) as f64 / 1e6
            );
            self.fail(at, rule, seen);
        }
    }

    /// A member has won a vote: the office may be handed on from here. (Winning an old term, with
    /// votes that came late, gives nothing: nobody will confirm it.)
    pub(crate) fn won(&mut self, at: u64, who: usize, token: u64) {
        self.look_for_rivals_below("S5", at, who, token, token);
    }

    /// A member is in office.
    pub(crate) fn elected(&mut self, at: u64, who: usize, life: u32, token: u64, until: u64, log: &[Record]) {
        self.terms += 1;
        self.look_for_rivals("S4", at, who, token);
        if let Some((other, _)) = self.holders.get(&token) {
            let seen = format!("term {token} belongs to m{other}, and m{who} was elected in it");
            self.fail(at, "S1", seen);
        }
        if let Some((last, _)) = self.holders.last_key_value().filter(|(last, _)| **last > token) {
            let seen = format!("m{who} was elected in term {token} after term {last}");
            self.fail(at, "S2", seen);
        }
        self.holders.insert(token, (who, life));
        self.beliefs.insert(who, Belief { token, until });
        let same = self.committed.iter().zip(log).take_while(|(ours, theirs)| ours == theirs).count();
        if same < self.committed.len() {
            let seen = format!("m{who} leads term {token} with {same} of {} committed records", self.committed.len());
            self.fail(at, "RECORDS", seen);
        }
    }

    /// The work of a term has stopped, or its process has died.
    pub(crate) fn stopped(&mut self, token: u64) {
        self.stopped.insert(token);
    }

    /// A leader is told how the term before its own has ended. Says whether that was closed.
    pub(crate) fn told(&mut self, at: u64, who: usize, token: u64, last: LastTerm) -> bool {
        let before = self.holders.range(..token).next_back().map(|(token, _)| *token);
        let is_so = match (last, before) {
            (LastTerm::None, before) => before.is_none(),
            (LastTerm::Closed, before) => before.is_none_or(|before| self.stopped.contains(&before)),
            (LastTerm::Unfenced, _) => true,
            _ => false,
        };
        if !is_so {
            let seen = format!("m{who} leads term {token} and is told {last:?}, after term {before:?}");
            self.fail(at, "CLOSED", seen);
        }
        last == LastTerm::Closed
    }

    /// A fence is raised to a token, unless it knows a higher one.
    pub(crate) fn raise_fence(&mut self, token: u64) -> bool {
        self.fence = self.fence.max(token);
        self.fence == token
    }

    /// A member with fences is in office.
    pub(crate) fn fenced(&mut self, at: u64, who: usize, token: u64) {
        if self.fence < token {
            let seen = format!("m{who} leads term {token}, and its fences let {} pass", self.fence);
            self.fail(at, "S3", seen);
        }
    }

    /// A member lets another stand. `at_work`: it waits for work that has not stopped.
    pub(crate) fn gives_up(&mut self, at: u64, who: usize, at_work: bool) {
        let believes = self.beliefs.get(&who).is_some_and(|belief| at < belief.until);
        if believes || at_work {
            let seen = format!("m{who} gives its office up before its work has stopped");
            self.fail(at, "STOPPED", seen);
        }
    }

    /// The deadline of a member in office has moved.
    pub(crate) fn extended(&mut self, at: u64, who: usize, until: u64) {
        let Some(belief) = self.beliefs.get_mut(&who) else {
            return self.fail(at, "S6", format!("m{who} got a deadline without being in office"));
        };
        let (token, over) = (belief.token, at >= belief.until);
        belief.until = until;
        if over {
            self.fail(at, "S6", format!("the deadline of term {token} moved at m{who} after it had passed"));
        }
        self.look_for_rivals("S4", at, who, token);
    }

    /// A term has ended, or the member that led it has.
    pub(crate) fn ended(&mut self, who: usize) -> bool {
        self.beliefs.remove(&who).is_some()
    }

    /// A member says something that may be a vote.
    pub(crate) fn said(&mut self, at: u64, who: usize, to: MemberId, message: &Message) {
        let (term, voted) = match message {
            Message::Voted { term, granted: true, .. } => (term.get(), to),
            Message::Vote { term, .. } => (term.get(), MemberId(who as u16)),
            _ => return,
        };
        let before = *self.votes.entry((who, term)).or_insert(voted);
        if before != voted {
            let seen = format!("m{who} voted for {before:?} and for {voted:?} in term {term}");
            self.fail(at, "VOTES", seen);
        }
    }

    /// A member has lost its disk. Its votes for itself are gone with its candidacies.
    pub(crate) fn wiped(&mut self, who: usize) {
        self.votes.retain(|(voter, _), voted| *voter != who || usize::from(voted.0) != who);
    }

    /// A leader knows that this much of its log is stored by a majority.
    pub(crate) fn committed(&mut self, at: u64, who: usize, log: &[Record]) {
        let same = self.committed.iter().zip(log).take_while(|(ours, theirs)| ours == theirs).count();
        if same < self.committed.len().min(log.len()) {
            let seen = format!("m{who} commits {} records, of which number {same} was committed as another", log.len());
            return self.fail(at, "RECORDS", seen);
        }
        if log.len() > self.committed.len() {
            self.committed = log.to_vec();
        }
    }
}
