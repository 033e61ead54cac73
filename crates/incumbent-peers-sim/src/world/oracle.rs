//! Sees everything in true time, and says when a rule is broken.

use std::collections::BTreeMap;
use std::fmt;

use incumbent_core::peers::MemberId;
use incumbent_core::peers::consensus::Message;

use super::clock::True;
use super::records::Record;

/// The rule that was broken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Rule {
    /// A token belongs to one life of one member.
    S1OneHolder,
    /// Tokens grow from leader to leader.
    S2TokensGrow,
    /// From the moment a leader is in office, its fences refuse every lower token.
    S3FencesFirst,
    /// No two members believe at the same time that they lead.
    S4NoOverlap,
    /// Nobody is elected while another's deadline is still to come.
    S5DeadlineInTime,
    /// A term that has ended stays so.
    S6NoRevival,
    /// An office is given up when its term is over; where the work is waited for, not before it has stopped.
    StoppedFirst,
    /// What a member has voted stays so.
    VoteKept,
    /// A leader has every committed record.
    RecordsKept,
    /// With the faults gone there is one leader, and all know it and its value.
    Progress,
}

/// A broken rule.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// When, in true time.
    pub at: True,
    /// What was seen.
    pub seen: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} broken at {:.6}s: {}", self.rule, self.at as f64 / 1e9, self.seen)
    }
}

/// That a member believes to lead, until a true moment.
#[derive(Clone, Copy, Debug)]
struct Belief {
    token: u64,
    until: True,
}

/// The one who sees everything.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    holders: BTreeMap<u64, (usize, u32)>,
    beliefs: BTreeMap<usize, Belief>,
    votes: BTreeMap<(usize, u64), MemberId>,
    committed: Vec<Record>,
    /// The lowest token that the fences let pass.
    fence: u64,
    broken: Option<Violation>,
    /// Terms that began.
    pub elections: u64,
}

impl Oracle {
    /// The first rule that was broken.
    pub fn broken(&self) -> Option<&Violation> {
        self.broken.as_ref()
    }

    /// Notes a broken rule; the first counts.
    pub fn breaks(&mut self, rule: Rule, at: True, seen: String) {
        self.broken.get_or_insert(Violation { rule, at, seen });
    }

    /// How many records were committed.
    pub fn records(&self) -> usize {
        self.committed.len()
    }

    /// Whether a log has every committed record.
    pub fn is_complete(&self, log: &[Record]) -> bool {
        log.starts_with(&self.committed)
    }

    /// The member that believes to lead, and its token, if there is exactly one.
    pub fn leader(&self, at: True) -> Option<(usize, u64)> {
        let mut live = self.beliefs.iter().filter(|(_, belief)| at < belief.until);
        let (who, belief) = live.next()?;
        live.next().is_none().then_some((*who, belief.token))
    }

    fn look_for_rivals(&mut self, rule: Rule, at: True, who: usize, token: u64) {
        self.look_for_rivals_below(rule, at, who, token, u64::MAX);
    }

    fn look_for_rivals_below(&mut self, rule: Rule, at: True, who: usize, token: u64, below: u64) {
        let rival = |other: usize, belief: &Belief| other != who && at < belief.until && belief.token < below;
        let rival = self.beliefs.iter().find(|(other, belief)| rival(**other, belief));
        if let Some((other, belief)) = rival {
            let seen = format!(
                "m{who} with term {token}, while m{other} believes in its term {} for another {:.3} ms",
                belief.token,
                (belief.until - at) as f64 / 1e6
            );
            self.breaks(rule, at, seen);
        }
    }

    /// A member has won a vote: the office may be handed on from here. (Winning an old term, with votes that came late,
    /// gives nothing: nobody will confirm it.)
    pub fn won(&mut self, at: True, who: usize, token: u64) {
        self.look_for_rivals_below(Rule::S5DeadlineInTime, at, who, token, token);
    }

    /// A member is in office.
    pub fn elected(&mut self, at: True, who: usize, life: u32, token: u64, until: True, log: &[Record]) {
        self.elections += 1;
        self.look_for_rivals(Rule::S4NoOverlap, at, who, token);
        if let Some((other, _)) = self.holders.get(&token) {
            let seen = format!("term {token} belongs to m{other}, and m{who} was elected in it");
            self.breaks(Rule::S1OneHolder, at, seen);
        }
        if let Some((last, _)) = self.holders.last_key_value().filter(|(last, _)| **last > token) {
            let seen = format!("m{who} was elected in term {token} after term {last}");
            self.breaks(Rule::S2TokensGrow, at, seen);
        }
        self.holders.insert(token, (who, life));
        self.beliefs.insert(who, Belief { token, until });
        let same = self.committed.iter().zip(log).take_while(|(ours, theirs)| ours == theirs).count();
        if same < self.committed.len() {
            let seen = format!("m{who} leads term {token} with {same} of {} committed records", self.committed.len());
            self.breaks(Rule::RecordsKept, at, seen);
        }
    }

    /// A fence is raised to a token, unless it knows a higher one.
    pub fn raise_fence(&mut self, token: u64) -> bool {
        self.fence = self.fence.max(token);
        self.fence == token
    }

    /// A member with fences is in office.
    pub fn fenced(&mut self, at: True, who: usize, token: u64) {
        if self.fence < token {
            let seen = format!("m{who} leads term {token}, and its fences let {} pass", self.fence);
            self.breaks(Rule::S3FencesFirst, at, seen);
        }
    }

    /// A member lets another stand. `at_work`: it waits for work that has not stopped.
    pub fn gives_up(&mut self, at: True, who: usize, at_work: bool) {
        let believes = self.beliefs.get(&who).is_some_and(|belief| at < belief.until);
        if believes || at_work {
            let seen = format!("m{who} gives its office up before its work has stopped");
            self.breaks(Rule::StoppedFirst, at, seen);
        }
    }

    /// The deadline of a member in office has moved.
    pub fn extended(&mut self, at: True, who: usize, until: True) {
        let Some(belief) = self.beliefs.get_mut(&who) else {
            return self.breaks(Rule::S6NoRevival, at, format!("m{who} got a deadline without being in office"));
        };
        let (token, over) = (belief.token, at >= belief.until);
        belief.until = until;
        if over {
            self.breaks(
                Rule::S6NoRevival,
                at,
                format!("the deadline of term {token} moved at m{who} after it had passed"),
            );
        }
        self.look_for_rivals(Rule::S4NoOverlap, at, who, token);
    }

    /// A term has ended, or the member that led it has.
    pub fn ended(&mut self, who: usize) -> bool {
        self.beliefs.remove(&who).is_some()
    }

    /// A member says something that may be a vote.
    pub fn said(&mut self, at: True, who: usize, to: MemberId, message: &Message) {
        let (term, voted) = match message {
            Message::Voted { term, granted: true } => (term.get(), to),
            Message::Vote { term, .. } => (term.get(), MemberId(who as u16)),
            _ => return,
        };
        let before = *self.votes.entry((who, term)).or_insert(voted);
        if before != voted {
            let seen = format!("m{who} voted for {before:?} and for {voted:?} in term {term}");
            self.breaks(Rule::VoteKept, at, seen);
        }
    }

    /// A member has lost its disk. Its votes for itself are gone with its candidacies.
    pub fn wiped(&mut self, who: usize) {
        self.votes.retain(|(voter, _), voted| *voter != who || usize::from(voted.0) != who);
    }

    /// A leader knows that this much of its log is stored by a majority.
    pub fn committed(&mut self, at: True, who: usize, log: &[Record]) {
        let same = self.committed.iter().zip(log).take_while(|(ours, theirs)| ours == theirs).count();
        if same < self.committed.len().min(log.len()) {
            let seen = format!("m{who} commits {} records, of which number {same} was committed as another", log.len());
            return self.breaks(Rule::RecordsKept, at, seen);
        }
        if log.len() > self.committed.len() {
            self.committed = log.to_vec();
        }
    }
}
