//! The terms of an election that are on record: who led, from when to when, and how it ended.
//!
//! A term is opened before its leader is elected, and closed after its work has confirmed that it
//! stopped. So one that is open tells the next leader what a mark at the end could not: that work
//! was begun, and nobody knows that it has stopped. What is written here for people (names, hosts,
//! times, reasons) decides nothing.

use std::sync::Arc;

use crate::entry::{Incarnation, Token};
use crate::machine::LossReason;
use crate::office::Order;

/// How many terms an election keeps.
pub const MAX_TERMS: usize = 32;

/// How much the terms of an election may take up, in bytes, before they are written down.
pub const MAX_TERMS_BYTES: usize = 12 * 1024;

/// What a term takes up beside its texts, about.
const BYTES_BESIDE_TEXTS: usize = 256;

/// The last terms of an election, oldest first. None: the election keeps no record of them.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Terms(Option<Arc<[TermRecord]>>);

impl Terms {
    /// Whether there are none: then the election keeps no record of its terms.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Oldest first.
    pub fn iter(&self) -> std::slice::Iter<'_, TermRecord> {
        self.0.as_deref().unwrap_or_default().iter()
    }

    /// The term with this token.
    pub fn get(&self, token: Token) -> Option<&TermRecord> {
        self.iter().find(|term| term.token == token)
    }

    /// The term before that of this leader, which may be opened by now. In a record that was copied
    /// from another store, its token may be another's.
    pub fn before(&self, token: Token, incarnation: Incarnation) -> Option<&TermRecord> {
        self.iter().rev().find(|term| !(term.token == token && term.incarnation == Some(incarnation)))
    }

    /// How the term before that of this leader ended.
    pub fn last_term(&self, token: Token, incarnation: Incarnation) -> LastTerm {
        match self.before(token, incarnation) {
            Some(last) => LastTerm::of(last),
            None if self.is_empty() => LastTerm::Unknown,
            None => LastTerm::None,
        }
    }

    /// The same, with this term, whatever was said of it before: in its place, or as the newest.
    /// The oldest go where there are too many, or too long ones.
    ///
    /// The order is that in which they were written down, and not that of their tokens: a record
    /// that was copied from another store has tokens of that store.
    pub fn with(&self, term: TermRecord) -> Terms {
        self.put(term, usize::MAX)
    }

    /// The same, with a term that is over, and may have been written down by nobody: in its place,
    /// or before the newest, which goes on and is what the next leader asks about.
    pub fn with_late(&self, term: TermRecord) -> Terms {
        self.put(term, self.iter().len().saturating_sub(1))
    }

    fn put(&self, term: TermRecord, new_at: usize) -> Terms {
        let is_it = |other: &TermRecord| other.token == term.token && other.incarnation == term.incarnation;
        let place = self.iter().position(is_it).unwrap_or(new_at);
        let others = self.iter().filter(|other| other.token != term.token);
        let mut terms: Vec<TermRecord> = others.cloned().collect();
        terms.insert(place.min(terms.len()), term.cut());
        let mut room = MAX_TERMS_BYTES;
        let fits = |term: &&TermRecord| {
            let left = room.checked_sub(term.bytes());
            room = left.unwrap_or(room);
            left.is_some()
        };
        let kept = terms.iter().rev().take(MAX_TERMS).take_while(fits).count();
        Terms(Some(terms.split_off(terms.len() - kept).into()))
    }

    /// The same, where what was opened or ended with no time said happened now: in milliseconds
    /// since 1970, by a wall clock.
    pub fn stamped(&self, now_ms: u64) -> Terms {
        let stamp = |at_ms: &mut u64| {
            if *at_ms == 0 {
                *at_ms = now_ms;
            }
        };
        let stamped = self.iter().cloned().map(|mut term| {
            if let Some(shot) = &mut term.fence {
                stamp(&mut shot.order.at_ms);
            }
            match &mut term.end {
                TermEnd::Closed { at_ms, .. } | TermEnd::Died { at_ms } => stamp(at_ms),
                TermEnd::Open => {}
                // Nobody knows when it began.
                TermEnd::Unknown => return term,
            }
            stamp(&mut term.opened_ms);
            term
        });
        Terms(self.0.as_ref().map(|_| stamped.collect()))
    }
}

impl<'a> IntoIterator for &'a Terms {
    type Item = &'a TermRecord;
    type IntoIter = std::slice::Iter<'a, TermRecord>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// What is on record of one term. It is known by its token and its incarnation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct TermRecord {
    /// The leader's fencing token.
    pub token: Token,
    /// The leader's enlistment. `None`: it was of another library.
    pub incarnation: Option<Incarnation>,
    /// The leader's name. Empty: it had none.
    pub name: Arc<str>,
    /// Where its work was done.
    pub origin: Origin,
    /// When it was opened, by the leader's wall clock, in milliseconds since 1970. Zero: it was not
    /// said.
    pub opened_ms: u64,
    /// How it ended, as far as anybody knows.
    pub end: TermEnd,
    /// What was last done to stop its work from outside.
    pub fence: Option<Shot>,
}

impl TermRecord {
    /// An open term of this leader.
    pub fn open(token: Token, incarnation: Incarnation, name: Arc<str>, origin: Origin) -> TermRecord {
        TermRecord {
            token,
            incarnation: Some(incarnation),
            name,
            origin,
            opened_ms: 0,
            end: TermEnd::Open,
            fence: None,
        }
    }

    /// A term of which nothing is known but who led.
    pub fn unknown(token: Token, incarnation: Option<Incarnation>, name: Arc<str>) -> TermRecord {
        let (origin, end) = (Origin::default(), TermEnd::Unknown);
        TermRecord { token, incarnation, name, origin, opened_ms: 0, end, fence: None }
    }

    /// The same, opened at this time, in milliseconds since 1970.
    pub fn opened_at(self, opened_ms: u64) -> TermRecord {
        TermRecord { opened_ms, ..self }
    }

    /// The same, ended like this.
    pub fn ended(self, end: TermEnd) -> TermRecord {
        TermRecord { end, ..self }
    }

    /// The same, whose work was done there.
    pub fn of(self, origin: Origin) -> TermRecord {
        TermRecord { origin, ..self }
    }

    /// The same, with this as what was last done to stop its work from outside.
    pub fn with_fence(self, fence: impl Into<Option<Shot>>) -> TermRecord {
        TermRecord { fence: fence.into(), ..self }
    }

    /// Whether nobody has said that its work has stopped.
    pub fn is_at_large(&self) -> bool {
        let is_settled = self.fence.as_ref().is_some_and(|shot| shot.result.is_final());
        matches!(self.end, TermEnd::Open | TermEnd::Unknown) && !is_settled
    }

    /// Whether there is anything to aim at. Not so of one of ours that nobody has put on record,
    /// mostly since none was kept: it may never have led.
    pub(crate) fn has_target(&self) -> bool {
        self.end != TermEnd::Unknown || self.incarnation.is_none()
    }

    /// Whether it is of this enlistment, and not known to have ended.
    pub fn is_open_of(&self, incarnation: Incarnation) -> bool {
        self.incarnation == Some(incarnation) && self.end == TermEnd::Open
    }

    /// With texts that are not too long for a record that every candidate reads.
    fn cut(mut self) -> TermRecord {
        for (text, longest) in self.texts_mut() {
            if text.len() > longest {
                let end = (0..=longest).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
                *text = text[..end].into();
            }
        }
        self
    }

    fn bytes(&self) -> usize {
        let Origin { host, boot, process, target } = &self.origin;
        let closed_by = match &self.end {
            TermEnd::Closed { order, .. } => Some(order),
            _ => None,
        };
        let orders = closed_by.into_iter().chain(self.fence.as_ref().map(|shot| &shot.order));
        let order: usize = orders.map(|order| order.by.len() + order.reason.len()).sum();
        let texts = [&self.name, host, boot, process, target];
        BYTES_BESIDE_TEXTS + order + texts.into_iter().map(|text| text.len()).sum::<usize>()
    }

    /// Every text, and how long it may be.
    fn texts_mut(&mut self) -> Vec<(&mut Arc<str>, usize)> {
        let Origin { host, boot, process, target } = &mut self.origin;
        let mut texts = vec![(&mut self.name, 255), (host, 64), (boot, 40), (process, 64), (target, 64)];
        if let TermEnd::Closed { order, .. } = &mut self.end {
            texts.extend([(&mut order.by, 64), (&mut order.reason, 128)]);
        }
        if let Some(Shot { order, .. }) = &mut self.fence {
            texts.extend([(&mut order.by, 64), (&mut order.reason, 128)]);
        }
        texts
    }
}

/// What stands before a process whose work a guardian ends.
const GUARDED: &str = "guarded ";

/// Where the work of a term is done, and what to call it when it has to be stopped. Empty: it was
/// not said.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub struct Origin {
    /// The host's name.
    pub host: Arc<str>,
    /// Which start of the host.
    pub boot: Arc<str>,
    /// The process with which the work ends, told from every other of this start of the host; or
    /// the one whose guardian ends it ([`guarded`](Origin::guarded)).
    pub process: Arc<str>,
    /// What those who can stop it from outside call it: the name of a plug, for instance.
    pub target: Arc<str>,
}

impl Origin {
    /// Work on this host, since this start of it, which ends with this process.
    pub fn new(host: impl Into<Arc<str>>, boot: impl Into<Arc<str>>, process: impl Into<Arc<str>>) -> Origin {
        Origin { host: host.into(), boot: boot.into(), process: process.into(), target: "".into() }
    }

    /// The same, where a guardian stops the work once the process is gone. Those who know nothing
    /// of guardians take it for no process at all.
    pub fn guarded(self) -> Origin {
        match self.process.is_empty() {
            true => self,
            false => Origin { process: format!("{GUARDED}{}", self.process).into(), ..self },
        }
    }

    /// The process whose guardian ends the work, if it is like that.
    pub fn guarded_process(&self) -> Option<&str> {
        self.process.strip_prefix(GUARDED)
    }

    /// The same, called this by those who can stop it from outside.
    pub fn with_target(self, target: impl Into<Arc<str>>) -> Origin {
        Origin { target: target.into(), ..self }
    }
}

/// How a term ended, as far as anybody knows.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum TermEnd {
    /// It goes on, or nobody knows that its work has stopped.
    Open,
    /// Its work has confirmed that it stopped.
    Closed {
        /// Why the term ended.
        why: LossReason,
        /// By whose order, if by anybody's.
        order: Order,
        /// When, by the leader's wall clock, in milliseconds since 1970. Zero: it was not said.
        at_ms: u64,
    },
    /// No process of it is left: the kernel or a guardian says so.
    Died {
        /// When that was noticed, in milliseconds since 1970. Zero: it was not said.
        at_ms: u64,
    },
    /// The leader was of another library, or led before the election kept a record.
    Unknown,
}

impl TermEnd {
    /// The word for it in a record.
    pub fn word(&self) -> &'static str {
        match self {
            TermEnd::Open => "open",
            TermEnd::Closed { .. } => "closed",
            TermEnd::Died { .. } => "died",
            TermEnd::Unknown => "unknown",
        }
    }
}

/// How the term before a leader's own ended, as far as the record says: what that leader may find.
///
/// Nothing decides by it. Every fence refuses the last leader, whatever has become of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum LastTerm {
    /// There was none, since terms are on record.
    None,
    /// Its work has confirmed that it stopped.
    Closed,
    /// No process of it is left: the kernel or a guardian says so.
    Died,
    /// Its work was stopped from outside, or an operator says that it has stopped.
    Fenced,
    /// Nobody has said that its work has stopped: it may go on.
    Unfenced,
    /// Nobody knows: that leader was of another library, or the election keeps no record.
    Unknown,
}

impl LastTerm {
    fn of(last: &TermRecord) -> LastTerm {
        match (&last.end, &last.fence) {
            (TermEnd::Closed { .. }, _) => LastTerm::Closed,
            (TermEnd::Died { .. }, _) => LastTerm::Died,
            (_, Some(shot)) if shot.result.is_final() => LastTerm::Fenced,
            (TermEnd::Unknown, None) => LastTerm::Unknown,
            (TermEnd::Open | TermEnd::Unknown, _) => LastTerm::Unfenced,
        }
    }

    /// The word for it, for programs.
    pub fn word(self) -> &'static str {
        match self {
            LastTerm::None => "none",
            LastTerm::Closed => "closed",
            LastTerm::Died => "died",
            LastTerm::Fenced => "fenced",
            LastTerm::Unfenced => "unfenced",
            LastTerm::Unknown => "unknown",
        }
    }
}

/// What was done to stop the work of a term from outside.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Shot {
    /// The token of the candidate that did it, or claimed it; the term's own, where nobody has
    /// tried.
    pub by: Token,
    /// Which attempt this is, counted from 1 across all candidates. Zero: nobody has tried, and a
    /// person has said that the work has stopped.
    pub attempt: u32,
    /// What came of it.
    pub result: ShotResult,
    /// When; for an operator's word by whom and why; and why it did not succeed.
    pub order: Order,
}

impl Shot {
    /// This candidate is about to fire this attempt.
    pub fn claimed(by: Token, attempt: u32) -> Shot {
        Shot { by, attempt, result: ShotResult::Claimed, order: Order::default() }
    }

    /// The same, with this result.
    pub fn ended(self, result: ShotResult) -> Shot {
        Shot { result, ..self }
    }

    /// The same, ordered like this.
    pub fn ordered(self, order: Order) -> Shot {
        Shot { order, ..self }
    }
}

/// What came of stopping the work of a term from outside.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ShotResult {
    /// It may have been fired.
    Claimed,
    /// The work has certainly stopped.
    Stopped,
    /// It was tried, and failed; or it could not be tried.
    Failed,
    /// It did not end in time: nobody knows whether the work has stopped.
    TimedOut,
    /// An operator says that the work has stopped.
    Released,
}

impl ShotResult {
    const ALL: [ShotResult; 5] =
        [ShotResult::Claimed, ShotResult::Stopped, ShotResult::Failed, ShotResult::TimedOut, ShotResult::Released];

    /// Whether the work is known to have stopped, so that nothing more is tried.
    pub fn is_final(self) -> bool {
        matches!(self, ShotResult::Stopped | ShotResult::Released)
    }

    /// The word for it in a record.
    pub fn word(self) -> &'static str {
        match self {
            ShotResult::Claimed => "claimed",
            ShotResult::Stopped => "stopped",
            ShotResult::Failed => "failed",
            ShotResult::TimedOut => "timed_out",
            ShotResult::Released => "released",
        }
    }

    /// What [`word`](ShotResult::word) stands for.
    pub fn from_word(word: &str) -> Option<ShotResult> {
        ShotResult::ALL.into_iter().find(|result| result.word() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(number: u64, name: &str) -> TermRecord {
        let token = Token::new(number).unwrap();
        TermRecord::open(token, Incarnation::from_bits(number.into()), name.into(), Origin::default())
    }

    fn tokens(terms: &Terms) -> Vec<u64> {
        terms.iter().map(|term| term.token.get()).collect()
    }

    #[test]
    fn the_last_32_terms_are_kept_in_the_order_in_which_they_were_written_down() {
        let numbers: Vec<u64> = (100..=140).chain(1..=4).collect();
        let terms = numbers.iter().fold(Terms::default(), |terms, number| terms.with(term(*number, "a")));
        assert_eq!(tokens(&terms), numbers[numbers.len() - MAX_TERMS..]);
    }

    #[test]
    fn a_term_of_another_enlistment_with_the_same_token_is_another_one() {
        let terms = Terms::default().with(term(1, "a")).with(term(2, "b"));
        let other = TermRecord { incarnation: Some(Incarnation::from_bits(9)), ..term(1, "c") };
        assert_eq!(tokens(&terms.with(other)), [2, 1]);
    }

    #[test]
    fn a_term_replaces_what_was_said_of_it_before() {
        let terms = Terms::default().with(term(1, "a")).with(term(2, "b"));
        let died = term(1, "a").ended(TermEnd::Died { at_ms: 7 });
        let terms = terms.with(died.clone());
        assert_eq!(tokens(&terms), [1, 2]);
        assert_eq!(terms.get(Token::new(1).unwrap()), Some(&died));
    }

    #[test]
    fn long_texts_are_cut_and_the_oldest_make_room_for_the_newest() {
        let long = "ü".repeat(5_000);
        let origin = Origin::new(&*long, &*long, &*long).with_target(&*long);
        let order = Order::new(&*long, 1, &*long);
        let closed = TermEnd::Closed { why: LossReason::Resigned, order, at_ms: 1 };
        let make = |number| TermRecord { origin: origin.clone(), ..term(number, &long) }.ended(closed.clone());
        let terms = (1..=20).fold(Terms::default(), |terms, number| terms.with(make(number)));
        assert!(terms.iter().map(TermRecord::bytes).sum::<usize>() <= MAX_TERMS_BYTES);
        let last = terms.iter().last().unwrap();
        assert_eq!((last.token.get(), last.name.len(), last.origin.host.len()), (20, 254, 64));
        let kept = tokens(&terms);
        assert_eq!(kept, (21 - kept.len() as u64..=20).collect::<Vec<_>>());
        assert!(kept.len() > 10);
    }

    #[test]
    fn only_what_has_no_time_yet_is_stamped() {
        let opened = term(1, "a").opened_at(5);
        let died = term(2, "b").ended(TermEnd::Died { at_ms: 0 });
        let unknown = TermRecord::unknown(Token::new(3).unwrap(), None, "".into());
        let terms =
            [opened.clone(), died, unknown.clone()].into_iter().fold(Terms::default(), |all, term| all.with(term));
        let stamped = terms.stamped(9);
        let expected = [opened, term(2, "b").opened_at(9).ended(TermEnd::Died { at_ms: 9 }), unknown];
        assert_eq!(stamped.iter().cloned().collect::<Vec<_>>(), expected);
        assert!(Terms::default().stamped(9).is_empty());
    }
}
