//! What must always be true where users stand. It looks at the store and at every term, on global
//! time, after each step of the store, after each thing that a user was told, and at random
//! instants; and it stops the run at the first broken rule.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Arguments;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use incumbent::{FencingToken, Term};
use incumbent_core::{ElectionName, Entry, Incarnation, Timestamp, Token};
use incumbent_store::lock;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::clock::HostClock;
use super::server::{Server, generation_of};
use crate::trace::{Trace, Violation};

/// A token, and which of the stores gave it.
pub(crate) type TermId = (u32, Token);

/// A boot of a host: which host, and which of its lives.
pub(crate) type BootId = (usize, u32);

#[derive(Debug)]
pub(crate) struct Checker {
    start: Instant,
    elections: Vec<ElectionName>,
    server: Arc<Server>,
    /// How long an entry may stay in line after a user has seen its term end; `None` where the
    /// network may be slow.
    entry_goes_within: Option<Duration>,
    state: Mutex<State>,
    broken: Notify,
}

#[derive(Debug)]
struct State {
    trace: Trace,
    terms: Vec<Held>,
    records: Vec<Record>,
    looks: u64,
}

/// A term that a user was given.
#[derive(Debug)]
struct Held {
    boot: BootId,
    election: usize,
    term_id: TermId,
    deadline: Deadline,
    clock: Arc<HostClock>,
    /// The entry stays until the user lets go.
    holds: bool,
    /// When a user was told that it is over.
    over: Option<Duration>,
    /// The store has taken it away before its time.
    early: bool,
}

/// The deadline of a term. The term itself would keep its client alive.
struct Deadline(Box<dyn Fn() -> Timestamp + Send + Sync>);

impl std::fmt::Debug for Deadline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (self.0)().fmt(f)
    }
}

#[derive(Debug, Default)]
struct Record {
    owners: BTreeMap<TermId, Option<Incarnation>>,
    /// The highest number of a value that was seen in this entry.
    shown: BTreeMap<TermId, u64>,
    newest: BTreeMap<u32, Token>,
    /// Every entry that was ever seen first in line, and since when.
    heads: Vec<(Duration, TermId, Option<Arc<str>>)>,
    elected: BTreeSet<TermId>,
    released: BTreeSet<TermId>,
    removed_early: BTreeSet<TermId>,
}

impl Checker {
    pub(crate) fn new(
        server: Arc<Server>,
        elections: Vec<ElectionName>,
        entry_goes_within: Option<Duration>,
        trace: Trace,
    ) -> Arc<Checker> {
        let state = State {
            trace,
            terms: Vec::new(),
            records: elections.iter().map(|_| Record::default()).collect(),
            looks: 0,
        };
        let start = Instant::now();
        Arc::new(Checker {
            start,
            elections,
            server,
            entry_goes_within,
            state: Mutex::new(state),
            broken: Notify::new(),
        })
    }

    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// A line for the reader of the trace.
    pub(crate) fn say(&self, who: &str, what: Arguments<'_>) {
        let now = self.now().as_nanos() as u64;
        self.state().trace.line(now, who, what);
    }

    /// Notes the first broken rule, and ends the run.
    pub(crate) fn fail(&self, rule: &'static str, text: String) {
        let at = self.now().as_nanos() as u64;
        self.state().trace.fail(at, rule, text);
        self.broken.notify_one();
    }

    pub(crate) async fn broken(&self) {
        self.broken.notified().await;
    }

    /// The account, the first broken rule, and how many terms and looks there were.
    pub(crate) fn finish(&self) -> (String, Option<Violation>, u64, u64) {
        let mut state = self.state();
        let (text, violation) = state.trace.finish();
        let terms = state.records.iter().map(|record| record.elected.len() as u64).sum();
        (text, violation, terms, state.looks)
    }

    /// Which of the stores answers.
    pub(crate) fn generation(&self) -> u32 {
        self.server.generation()
    }

    pub(crate) fn name(&self, election: usize) -> &ElectionName {
        &self.elections[election]
    }

    pub(crate) fn number(&self, election: &ElectionName) -> usize {
        self.elections.iter().position(|name| name == election).unwrap_or(usize::MAX)
    }

    pub(crate) fn elections(&self) -> usize {
        self.elections.len()
    }

    pub(crate) fn look_at_all(&self) {
        (0..self.elections.len()).for_each(|election| self.look(election));
    }

    /// Looks at the line and at all who may believe that they lead.
    pub(crate) fn look(&self, election: usize) {
        let line = self.server.line(&self.elections[election]).entries;
        let generation = self.server.generation();
        let now = self.now();
        let mut state = self.state();
        state.looks += 1;
        let State { records, terms, .. } = &mut *state;
        let broken = records[election]
            .take_in(now, generation, &line)
            .or_else(|| check_terms(terms, election, generation, &line))
            .or_else(|| self.check_left_over(terms, now, election, generation, &line));
        drop(state);
        if let Some((rule, text)) = broken {
            self.fail(rule, format!("election {election}: {text}"));
        }
    }

    /// A user has been given an office.
    pub(crate) fn elected(&self, boot: BootId, election: usize, term: &Term, clock: &Arc<HostClock>, holds: bool) {
        let term_id = term_id(term.token());
        let mut state = self.state();
        let record = &mut state.records[election];
        let early = record.removed_early.contains(&term_id) || term_id.0 != self.server.generation();
        let newer = record.elected.range(term_id..).find(|old| old.0 == term_id.0).copied();
        record.elected.insert(term_id);
        let (deadline, clock) = (Deadline(Box::new(term.deadline_reader())), clock.clone());
        let held = Held { boot, election, term_id, deadline, clock, holds, over: None, early };
        // An office may lie about until its user has time for it, and be over by then.
        let valid = !early && held.lasts();
        state.terms.push(held);
        drop(state);
        if let Some(newer) = newer.filter(|newer| valid || *newer == term_id) {
            self.fail("S2", format!("election {election}: {term_id:?} is elected after {newer:?}"));
        }
        self.look(election);
    }

    /// A user has been told whether its term lasts.
    pub(crate) fn checked(&self, term: &Term, lasts: bool) {
        let (term_id, election) = (term_id(term.token()), self.number(term.election()));
        let now = self.now();
        let mut state = self.state();
        let held = state.terms.iter_mut().find(|held| held.term_id == term_id && held.election == election);
        let revived = match held {
            Some(held) if lasts => held.over.is_some(),
            Some(held) => {
                held.over.get_or_insert(now);
                false
            }
            None => false,
        };
        drop(state);
        if revived {
            self.fail("S6", format!("{term_id:?} was over, and check() says that it lasts"));
        }
    }

    /// A withdrawal of this entry is about to be sent.
    pub(crate) fn withdraws(&self, election: usize, term_id: TermId) {
        let lasts =
            self.state().terms.iter().any(|held| held.election == election && held.term_id == term_id && held.lasts());
        if lasts {
            self.fail("S4", format!("election {election}: {term_id:?} is withdrawn before its term is over"));
        }
    }

    /// A user was told that nothing of this term_id is left.
    pub(crate) fn released(&self, election: usize, token: &FencingToken) {
        self.state().records[election].released.insert(term_id(token));
        self.look(election);
    }

    /// A user was told that others can see this value.
    pub(crate) fn proclaimed(&self, election: usize, token: &FencingToken, number: u64) {
        let shown = self.state().records[election].shown.get(&term_id(token)).copied().unwrap_or(0);
        if shown < number {
            let text =
                format!("election {election}: {token} proclaimed {number}, and the store has seen {shown} at most");
            self.fail("PROCLAIM", text);
        }
    }

    /// A resource has accepted a write.
    pub(crate) fn written(&self, election: usize, token: &FencingToken) {
        let term_id = term_id(token);
        let (newer, was_elected) = {
            let elected = &self.state().records[election].elected;
            (elected.range((Excluded(term_id), Unbounded)).next().copied(), elected.contains(&term_id))
        };
        if !was_elected {
            let text = format!("election {election}: a write of {term_id:?} is accepted, which was never in office");
            self.fail("S3", text);
        }
        if let Some(newer) = newer.filter(|newer| newer.0 == term_id.0) {
            self.fail(
                "S3",
                format!("election {election}: a write of {term_id:?} is accepted while {newer:?} is in office"),
            );
        }
    }

    /// The store is about to lose all sessions, or to be replaced.
    pub(crate) fn all_removed_early(&self) {
        (0..self.elections.len()).for_each(|election| {
            let generation = self.server.generation();
            let line = self.server.line(&self.elections[election]).entries;
            line.iter().for_each(|entry| self.removed_early(election, (generation, entry.token)));
        });
    }

    /// An entry is removed although its owner lives.
    pub(crate) fn removed_early(&self, election: usize, term_id: TermId) {
        let mut state = self.state();
        state.records[election].removed_early.insert(term_id);
        let of_it = |held: &&mut Held| held.election == election && held.term_id == term_id;
        state.terms.iter_mut().filter(of_it).for_each(|held| held.early = true);
    }

    /// The process is dead: it believes nothing.
    pub(crate) fn killed(&self, boot: BootId) {
        self.state().terms.retain(|held| held.boot != boot);
    }

    /// Who was first in line since then, by name.
    pub(crate) fn led_since(&self, election: usize, since: Duration, name: &str) -> bool {
        let state = self.state();
        let heads = &state.records[election].heads;
        let first = heads.iter().rposition(|(at, ..)| *at <= since).unwrap_or(0);
        heads[first..].iter().any(|(.., head)| head.as_deref() == Some(name))
    }

    /// How often somebody else was first in line.
    pub(crate) fn changes(&self, election: usize) -> usize {
        self.state().records[election].heads.len()
    }

    /// Those who may believe that they lead now, and whom the store has not taken their office.
    pub(crate) fn leaders(&self, election: usize) -> Vec<(BootId, TermId)> {
        let state = self.state();
        let leads = state.terms.iter().filter(|held| held.election == election && !held.early && held.lasts());
        leads.map(|held| (held.boot, held.term_id)).collect()
    }

    fn check_left_over(
        &self,
        terms: &[Held],
        now: Duration,
        election: usize,
        generation: u32,
        line: &[Entry],
    ) -> Option<(&'static str, String)> {
        let within = self.entry_goes_within?;
        let blocks = |held: &&Held| {
            let late = held.over.is_some_and(|over| now > over + within);
            let there = || line.iter().any(|entry| (generation, entry.token) == held.term_id);
            held.election == election && !held.holds && late && there()
        };
        let held = terms.iter().find(blocks)?;
        Some(("L1", format!("the term of {:?} was over {:?} ago, and its entry is in line", held.term_id, within)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn check_terms(terms: &[Held], election: usize, generation: u32, line: &[Entry]) -> Option<(&'static str, String)> {
    let here = || terms.iter().filter(|held| held.election == election);
    if let Some(held) = here().find(|held| held.over.is_some() && held.lasts()) {
        return Some(("S6", format!("{:?} was over, and has a deadline again", held.term_id)));
    }
    let head = line.first().map(|entry| (generation, entry.token));
    let mut believing = here().filter(|held| !held.early && held.lasts());
    let first = believing.next()?;
    if let Some(second) = believing.next() {
        return Some(("S4", format!("{:?} and {:?} may both believe that they lead", first.term_id, second.term_id)));
    }
    let ahead = (first.deadline.0)().since(first.clock.read());
    (head != Some(first.term_id))
        .then(|| ("S5", format!("{:?} has {ahead:?} left, and {head:?} is first in line", first.term_id)))
}

impl Held {
    fn lasts(&self) -> bool {
        self.clock.read() < (self.deadline.0)()
    }
}

impl Record {
    fn take_in(&mut self, now: Duration, generation: u32, line: &[Entry]) -> Option<(&'static str, String)> {
        for entry in line {
            let term_id = (generation, entry.token);
            match self.owners.insert(term_id, entry.incarnation) {
                Some(before) if before != entry.incarnation => {
                    return Some(("S1", format!("{term_id:?} belongs to two incarnations")));
                }
                Some(_) => {}
                None => {
                    let newest = self.newest.insert(generation, entry.token);
                    if newest.is_some_and(|newest| newest >= entry.token) {
                        return Some(("S2", format!("{term_id:?} came into line after {newest:?}")));
                    }
                }
            }
            let (shown, number) = (self.shown.entry(term_id).or_default(), number_of(&entry.value));
            if number < *shown {
                return Some(("S7", format!("{term_id:?} has shown {shown}, and shows {number} again")));
            }
            *shown = number;
            if self.released.contains(&term_id) {
                return Some(("S8", format!("{term_id:?} was given back for certain, and is in line")));
            }
        }
        if let Some(head) = line.first() {
            let term_id = (generation, head.token);
            if self.heads.last().is_none_or(|(_, last, _)| *last != term_id) {
                self.heads.push((now, term_id, head.name.clone()));
            }
        }
        None
    }
}

pub(crate) fn term_id(token: &FencingToken) -> TermId {
    (generation_of(&token.store), token.token)
}

/// Values are numbers: later ones of a term are higher.
pub(crate) fn number_of(value: &Bytes) -> u64 {
    std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}
