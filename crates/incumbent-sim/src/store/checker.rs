//! What must always be true, on global time. It sees everything and changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use incumbent_core::{
    CandidacyId, Held, Incarnation, LossReason, Nonce, Office, Shot, ShotResult, TermEnd, TermRecord, Terms, Timestamp,
    Token,
};

use crate::clock::LocalClock;
use crate::trace::Trace;

/// A leader's own belief: from being elected until it is told otherwise, gives the office back, or
/// its own clock reaches the deadline.
#[derive(Clone, Debug)]
pub(crate) struct Belief {
    pub(crate) election: usize,
    pub(crate) process: usize,
    pub(crate) boot: u32,
    pub(crate) candidacy: CandidacyId,
    pub(crate) token: Token,
    pub(crate) deadline: Timestamp,
}

/// Who made an entry: the process, its boot, the candidacy, and the number of the call.
pub(crate) type Maker = (usize, u32, CandidacyId, u64);

#[derive(Clone, Debug, Default)]
struct Record {
    /// Every token that was ever in line, and whose it was.
    owners: BTreeMap<Token, Option<Incarnation>>,
    /// Who made each entry, and when.
    makers: BTreeMap<Token, (Maker, u64)>,
    newest: Option<Token>,
    head: Option<Token>,
    /// The tokens that were ever in office.
    elected: BTreeSet<Token>,
    /// The tokens that were removed although their owners lived, and when.
    removed_early: BTreeMap<Token, u64>,
    /// The terms that ended with a transfer, and whether their guarded withdrawal was refused.
    transferred: BTreeMap<Token, bool>,
    /// The leaders that were ever asked to hand over.
    asked: BTreeSet<Token>,
    /// To whom leaders meant to hand over for their health, the last time.
    chosen: BTreeMap<Token, Token>,
    /// The leaders that have stopped their work since they are unwell.
    left_unwell: BTreeSet<Token>,
    /// The notice by which each first in line, before it was in office, has offered its place.
    offers: BTreeMap<Token, Nonce>,
    /// Those whose place was given to them by one that was not in office.
    given: BTreeSet<Token>,
    /// How often that was done since somebody led.
    given_since: u32,
    /// The terms that were ever open in the record.
    opened: BTreeSet<Token>,
    /// Who has claimed which shot at which term, and the shots that were fired.
    claims: BTreeSet<(Token, u32, Token)>,
    shots: BTreeSet<(Token, u32)>,
    changes: u64,
}

#[derive(Debug)]
pub(crate) struct Checker {
    elections: Vec<Record>,
    beliefs: Vec<Belief>,
    pub(crate) trace: Trace,
    pub(crate) terms: u64,
}

impl Checker {
    pub(crate) fn new(elections: usize, trace: Trace) -> Checker {
        Checker { elections: vec![Record::default(); elections], beliefs: Vec::new(), trace, terms: 0 }
    }

    pub(crate) fn fail(&mut self, now: u64, rule: &'static str, text: String) {
        self.trace.fail(now, rule, text);
    }

    pub(crate) fn beliefs(&self) -> &[Belief] {
        &self.beliefs
    }

    /// How often leadership changed in an election.
    pub(crate) fn changes(&self, election: usize) -> u64 {
        self.elections[election].changes
    }

    pub(crate) fn maker(&self, election: usize, token: Token) -> Option<Maker> {
        self.elections[election].makers.get(&token).map(|(maker, _)| *maker)
    }

    /// When an entry was made. None of those that nobody here made.
    pub(crate) fn made_at(&self, election: usize, token: Token) -> Option<u64> {
        self.elections[election].makers.get(&token).map(|(_, at)| *at)
    }

    /// An entry is in line. S1, S2.
    pub(crate) fn in_line(
        &mut self,
        now: u64,
        election: usize,
        token: Token,
        owner: Option<Incarnation>,
        maker: Option<Maker>,
    ) {
        let record = &mut self.elections[election];
        match record.owners.insert(token, owner) {
            Some(before) if before != owner => {
                self.fail(now, "S1", format!("{token:?} belongs to {owner:?}, and belonged to {before:?}"));
            }
            Some(_) => {}
            None => {
                let newest = record.newest;
                record.newest = newest.max(Some(token));
                if let Some(maker) = maker {
                    record.makers.insert(token, (maker, now));
                }
                if newest >= Some(token) {
                    self.fail(now, "S2", format!("{token:?} came into line after {newest:?}"));
                }
            }
        }
    }

    /// The first in line, whenever it changed. What every observer sees, so S7.
    pub(crate) fn head(&mut self, now: u64, election: usize, head: Option<Token>) {
        let record = &mut self.elections[election];
        if let Some(token) = head {
            let before = record.head.replace(token);
            if before > Some(token) {
                self.fail(now, "S7", format!("observers see {token:?} lead after {before:?}"));
            }
        }
    }

    /// Somebody other than its owner removed an entry while it may have been believed.
    pub(crate) fn removed_early(&mut self, now: u64, election: usize, token: Token) {
        self.elections[election].removed_early.entry(token).or_insert(now);
    }

    /// An eviction or a withdrawal was carried out. S9.
    pub(crate) fn removed(&mut self, now: u64, election: usize, asked: Token, before: &[Token], after: &[Token]) {
        if let Some(token) = before.iter().find(|token| **token != asked && !after.contains(token)) {
            self.fail(now, "S9", format!("removing {asked:?} of e{election} removed {token:?}"));
        }
    }

    /// The office record was written by someone who may change only some fields.
    pub(crate) fn office_written(&mut self, now: u64, election: usize, fields: Fields, was: &Office, is: &Office) {
        if let Some(handover) = &is.handover {
            self.elections[election].asked.insert(handover.from);
            if let Some(heir) = handover.heir.as_ref().filter(|_| handover.is_unasked()) {
                self.elections[election].chosen.insert(handover.from, heir.token);
            }
        }
        // A later leader may take out what was said about a term before.
        let head = self.elections[election].head;
        let over = is.deposed.is_none() && was.deposed.as_ref().map(|deposed| deposed.token) < head;
        // The leader takes out a freeze whose time is over.
        let thawed = is.frozen.is_none() && was.frozen.as_ref().is_some_and(|frozen| frozen.lasts.is_some());
        // The leader takes out an order to the bench whose time is over, and so does the benched
        // one.
        let mut benched = was.benched.iter();
        let unbenched = benched.any(|order| order.lasts.is_none() && is.benched.get(&order.name) != Some(order))
            || is.benched.iter().any(|order| was.benched.get(&order.name) != Some(order));
        let erased = [
            (!fields.handover && was.handover != is.handover, "handover"),
            (!fields.paused && was.paused != is.paused, "pause"),
            (!fields.ended && was.ended != is.ended, "tombstone"),
            (!fields.deposed && was.deposed != is.deposed && !over, "deposition"),
            (!fields.frozen && was.frozen != is.frozen && !thawed, "freeze"),
            (!fields.benched && unbenched, "bench"),
            (!fields.terms && was.terms != is.terms, "record of terms"),
            // A leader writes it down, and an operator takes it out.
            (!fields.recovery && was.recovery != is.recovery, "recovery"),
            (!fields.held_back && was.held_back.is_some() && was.held_back != is.held_back, "hold"),
        ];
        if let Some((_, field)) = erased.iter().find(|(erased, _)| *erased) {
            self.fail(now, "OFFICE", format!("the {field} of e{election} was overwritten by one who had no say in it"));
        }
    }

    /// The record of terms was written. What has ended is never written anew: says which terms have
    /// ended just now.
    pub(crate) fn terms_written(&mut self, now: u64, election: usize, was: &Terms, is: &Terms) -> Vec<Token> {
        let is_open = |term: &&TermRecord| term.end == TermEnd::Open;
        self.elections[election].opened.extend(is.iter().filter(is_open).map(|term| term.token));
        let changed = is.iter().filter(|term| was.get(term.token) != Some(term));
        let changed: Vec<&TermRecord> = changed.collect();
        for term in &changed {
            let known = was.get(term.token);
            let unfenced = |term: &TermRecord| term.clone().with_fence(None);
            if known.is_some_and(|known| known.end != TermEnd::Open && unfenced(known) != unfenced(term)) {
                self.fail(now, "TERMS", format!("{:?} of e{election} had ended, and is written anew", term.token));
            }
            let before = known.and_then(|known| known.fence.as_ref());
            if let Some(shot) = term.fence.as_ref().filter(|shot| Some(*shot) != before) {
                self.claimed(now, election, known, term, shot);
            }
        }
        let ended = |term: &&&TermRecord| {
            let stopped = term.fence.as_ref().is_some_and(|shot| shot.result == ShotResult::Stopped);
            stopped || matches!(term.end, TermEnd::Closed { .. } | TermEnd::Died { .. })
        };
        changed.iter().filter(ended).map(|term| term.token).collect()
    }

    /// A shot at a term is claimed, or has ended. F3: not at one that is known to have ended.
    fn claimed(&mut self, now: u64, election: usize, known: Option<&TermRecord>, term: &TermRecord, shot: &Shot) {
        if shot.result != ShotResult::Claimed {
            return;
        }
        if !known.unwrap_or(term).is_at_large() {
            self.fail(now, "F3", format!("a shot at {:?} of e{election} is claimed, which has ended", term.token));
        }
        self.elections[election].claims.insert((term.token, shot.attempt, shot.by));
    }

    /// The work of a term is being stopped from outside. F1: it was claimed in the record. F2: each
    /// attempt is fired once.
    pub(crate) fn shot(&mut self, now: u64, election: usize, term: Token, attempt: u32, by: Option<Token>) {
        let record = &mut self.elections[election];
        let is_claimed = by.is_some_and(|by| record.claims.contains(&(term, attempt, by)));
        if !record.shots.insert((term, attempt)) {
            self.fail(now, "F2", format!("attempt {attempt} at {term:?} of e{election} is fired twice"));
        }
        if !is_claimed {
            self.fail(now, "F1", format!("{by:?} fires attempt {attempt} at {term:?} of e{election}, unclaimed"));
        }
    }

    /// A term is closed while its work goes on.
    pub(crate) fn closed_early(&mut self, now: u64, election: usize, token: Token) {
        self.fail(
            now,
            "TERMS",
            format!("{token:?} of e{election} is said to have ended, and its work has not stopped"),
        );
    }

    /// A leader whose terms are to be on record takes office: is its term open there?
    pub(crate) fn opened(&mut self, now: u64, election: usize, token: Token) {
        if !self.elections[election].opened.contains(&token) {
            self.fail(now, "TERMS", format!("{token:?} of e{election} takes office, and was never on record"));
        }
    }

    /// One whose work has stopped gives its entry back, and has not tried for a renewal interval to
    /// close its term: nobody may find it open after that.
    pub(crate) fn withdraws(&mut self, now: u64, election: usize, held: &Held, terms: &Terms) {
        if terms.get(held.token).is_some_and(|term| term.is_open_of(held.incarnation)) {
            self.fail(now, "TERMS", format!("{:?} of e{election} is withdrawn before it is closed", held.token));
        }
    }

    /// A leader begins to believe. S4, S6.
    pub(crate) fn elected(&mut self, now: u64, belief: Belief, clocks: &dyn Fn(usize) -> Timestamp) {
        let election = belief.election;
        self.terms += 1;
        let record = &mut self.elections[election];
        record.changes += 1;
        record.given_since = 0;
        if !record.elected.insert(belief.token) {
            self.fail(now, "S6", format!("{:?} of e{election} is in office for the second time", belief.token));
        }
        let record = &self.elections[election];
        let rival = self.beliefs.iter().find(|other| {
            other.election == election
                && clocks(other.process) < other.deadline
                && !record.removed_early.contains_key(&other.token)
                && !record.removed_early.contains_key(&belief.token)
        });
        if let Some(rival) = rival {
            let text = format!(
                "p{} takes office in e{election} with {:?} while p{} believes to lead with {:?}, by its clock for another {:?}",
                belief.process,
                belief.token,
                rival.process,
                rival.token,
                rival.deadline.since(clocks(rival.process))
            );
            self.fail(now, "S4", text);
        }
        self.beliefs.push(belief);
    }

    /// A leader was told a later deadline. S6, and S5 for those that were deposed: no renewal
    /// proves them any more.
    pub(crate) fn extended(
        &mut self,
        now: u64,
        who: (usize, u32, CandidacyId),
        deadline: Timestamp,
        clock: &LocalClock,
        ttl: u64,
    ) {
        let Some(belief) =
            self.beliefs.iter_mut().find(|belief| (belief.process, belief.boot, belief.candidacy) == who)
        else {
            let text = format!("p{} is told a deadline for a term that is over", who.0);
            return self.fail(now, "S6", text);
        };
        let lapsed = clock.read(now) >= belief.deadline;
        let token = belief.token;
        belief.deadline = deadline;
        let removed_at = self.elections[belief.election].removed_early.get(&token);
        if removed_at.is_some_and(|removed_at| clock.when(deadline) > removed_at + ttl) {
            self.fail(now, "S5", format!("p{} goes on with {token:?}, which was deposed", who.0));
        }
        if lapsed {
            self.fail(now, "S6", format!("p{} revives {token:?}, whose deadline had passed", who.0));
        }
    }

    /// A term is over, as far as its leader knows.
    pub(crate) fn unelected(&mut self, who: (usize, u32, CandidacyId)) {
        self.beliefs.retain(|belief| (belief.process, belief.boot, belief.candidacy) != who);
    }

    /// The process is gone, and its beliefs with it.
    pub(crate) fn died(&mut self, process: usize) {
        self.beliefs.retain(|belief| belief.process != process);
    }

    /// A deadline was told. S5.
    pub(crate) fn deadline(&mut self, now: u64, process: usize, ends_at: u64, forgets_at: u64) {
        if ends_at > forgets_at {
            let by = (ends_at - forgets_at) as f64 / 1e9;
            self.fail(now, "S5", format!("p{process} believes {by:.6} s longer than the store has to remember it"));
        }
    }

    /// A rival removed an entry that had fallen silent. S5: never before its TTL has passed since
    /// its last renewal.
    pub(crate) fn silenced(&mut self, now: u64, rival: usize, token: Token, forgets_at: u64) {
        if now < forgets_at {
            let by = (forgets_at - now) as f64 / 1e9;
            self.fail(now, "S5", format!("p{rival} removed {token:?} {by:.6} s before it may be forgotten"));
        }
    }

    /// A write was accepted by a fenced resource. S3.
    pub(crate) fn accepted(&mut self, now: u64, election: usize, token: Token) {
        let newer = self.elections[election].elected.last().copied();
        if newer > Some(token) {
            self.fail(
                now,
                "S3",
                format!("a write with {token:?} got through in e{election} after {newer:?} took office"),
            );
        }
    }

    /// The fence stands at `level` as a leader takes office. S3.
    pub(crate) fn fence(&mut self, now: u64, election: usize, token: Token, level: u64) {
        if level < token.get() {
            self.fail(now, "S3", format!("{token:?} is in office in e{election} and its fence is still at {level}"));
        }
    }

    /// The fence moved to `level`: it still refuses all that came before the newest leader. S3.
    pub(crate) fn fence_moved(&mut self, now: u64, election: usize, level: u64) {
        if let Some(token) = self.elections[election].elected.last().copied() {
            self.fence(now, election, token, level);
        }
    }

    /// A term ended because the office was handed over.
    pub(crate) fn term_ended(&mut self, election: usize, token: Token, why: LossReason) {
        if matches!(why, LossReason::Transferred | LossReason::Unwell) {
            self.elections[election].transferred.insert(token, false);
        }
    }

    /// A leader stops because the office record asks it to: was it asked?
    pub(crate) fn asked_to_go(&mut self, now: u64, election: usize, token: Token) {
        if !self.elections[election].asked.contains(&token) {
            self.fail(
                now,
                "OFFICE",
                format!("{token:?} of e{election} carries out a handover that was meant for another"),
            );
        }
    }

    /// A leader stops because it is unwell: is its heir among those who said that they are fit, in
    /// the line that it read last?
    pub(crate) fn handed_over_for_health(&mut self, now: u64, election: usize, token: Token, fit: &[Token]) {
        let heir = self.elections[election].chosen.get(&token).copied();
        if !heir.is_some_and(|heir| fit.contains(&heir)) {
            let text = format!("{token:?} of e{election} hands over to {heir:?} for its health; fit are {fit:?}");
            self.fail(now, "FITNESS", text);
        }
    }

    /// The same. These leaders announced lately, as far as it was told, that they hand over for
    /// their health. Two of them at most did so: with its own change that makes three.
    pub(crate) fn changes_for_health(&mut self, now: u64, election: usize, token: Token, announced: &[Token]) {
        let left = &mut self.elections[election].left_unwell;
        let before = announced.iter().filter(|token| left.contains(token)).count();
        left.insert(token);
        if before >= 3 {
            let text = format!("{token:?} of e{election} hands over for its health after {before} others did");
            self.fail(now, "FITNESS", text);
        }
    }

    pub(crate) fn was_elected(&self, election: usize, token: Token) -> bool {
        self.elections[election].elected.contains(&token)
    }

    /// A candidate has written the record. One that is not in office offers its place to another:
    /// once, and not if it was given to it.
    pub(crate) fn place_offered(&mut self, now: u64, election: usize, was: &Office, is: &Office) {
        let nonce = |office: &Office| office.handover.as_ref().map(|handover| handover.nonce);
        let record = &mut self.elections[election];
        let Some(offer) = is.handover.as_ref().filter(|offer| Some(offer.nonce) != nonce(was)) else { return };
        if record.elected.contains(&offer.from) {
            return;
        }
        let is_second = record.offers.insert(offer.from, offer.nonce).is_some_and(|known| known != offer.nonce);
        // One whose notice an operator's order has replaced cannot know.
        let is_named = was.handover.as_ref().and_then(|known| known.heir.as_ref());
        let was_given = record.given.contains(&offer.from) && is_named.is_some_and(|heir| heir.token == offer.from);
        if is_second || was_given {
            let text = format!("{:?} of e{election} offers its place, which it has done or was given", offer.from);
            self.fail(now, "PLACE", text);
        }
    }

    /// The first in line, which was never in office, gives its place to an heir: S8, and to one
    /// that is better by the line that it read last.
    pub(crate) fn gives_place(&mut self, now: u64, election: usize, token: Token, is_better: bool) {
        self.elections[election].transferred.insert(token, false);
        if !is_better {
            self.fail(now, "PLACE", format!("{token:?} of e{election} gives its place to one that is no better"));
        }
    }

    /// A guarded withdrawal was carried out. Once in a vacancy, whoever is first in line.
    pub(crate) fn place_given(&mut self, now: u64, election: usize, token: Token, heir: Token) {
        if self.was_elected(election, token) {
            return;
        }
        let record = &mut self.elections[election];
        record.given.insert(heir);
        record.given_since += 1;
        if record.given_since > 1 {
            let text =
                format!("{token:?} of e{election} gives its place to {heir:?}, which is not the first to get it");
            self.fail(now, "PLACE", text);
        }
    }

    /// An operator's order has replaced the notice by which a place was given: nobody can know.
    pub(crate) fn notice_replaced(&mut self, election: usize, was: &Office, is: &Office) {
        if was.handover.is_some() && was.handover != is.handover {
            self.elections[election].given_since = 0;
        }
    }

    /// Something is wrong with what an entry says of its candidate's fitness, or with who leads for
    /// all that.
    pub(crate) fn fitness(&mut self, now: u64, election: usize, text: String) {
        self.fail(now, "FITNESS", format!("e{election}: {text}"));
    }

    /// An entry was withdrawn, or its withdrawal was refused for want of the heir. S8.
    pub(crate) fn withdrawn(&mut self, now: u64, election: usize, token: Token, outcome: Withdrawal) {
        let Some(refused) = self.elections[election].transferred.get_mut(&token) else { return };
        match outcome {
            Withdrawal::Refused => *refused = true,
            Withdrawal::Done { heir_first: true } => {}
            Withdrawal::Done { heir_first: false } if *refused => {}
            Withdrawal::Done { heir_first: false } => {
                self.fail(now, "S8", format!("{token:?} of e{election} was handed over, but the heir is not first"));
            }
        }
    }

    /// Something is wrong with what a leader does that is benched.
    pub(crate) fn benched(&mut self, now: u64, election: usize, token: Token, what: &str) {
        self.fail(now, "BENCH", format!("{token:?} of e{election}, which is benched, {what}"));
    }

    /// A leader stops because it is unfit or is asked to: did the last answer that it read say that
    /// it stays?
    pub(crate) fn moved(&mut self, now: u64, election: usize, token: Token, why: LossReason, frozen: bool) {
        if frozen {
            self.fail(now, "FREEZE", format!("{token:?} of e{election} leaves a frozen office: {why}"));
        }
    }

    /// A leader takes office on an answer that stood against it.
    pub(crate) fn barred(&mut self, now: u64, paused: bool, benched: bool, ended: Option<Nonce>) {
        if benched {
            self.fail(now, "BENCH", "a candidate took office on an answer that said benched".into());
        }
        if paused {
            self.fail(now, "PAUSE", "a candidate took office on an answer that said paused".into());
        }
        if ended.is_some() {
            self.fail(now, "END", "a candidate took office on an answer that said ended".into());
        }
    }
}

/// What became of a withdrawal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Withdrawal {
    Refused,
    Done { heir_first: bool },
}

/// Which fields of the office record a writer has a say in.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fields {
    pub(crate) handover: bool,
    pub(crate) paused: bool,
    pub(crate) ended: bool,
    pub(crate) deposed: bool,
    pub(crate) frozen: bool,
    pub(crate) benched: bool,
    pub(crate) terms: bool,
    pub(crate) held_back: bool,
    pub(crate) recovery: bool,
}

impl Fields {
    pub(crate) const ALL: Fields = Fields {
        handover: true,
        paused: true,
        ended: true,
        deposed: true,
        frozen: true,
        benched: true,
        terms: true,
        held_back: true,
        recovery: true,
    };
}
