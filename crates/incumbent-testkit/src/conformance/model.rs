//! Random histories: what a store answers is what the table answers, call by call.
//!
//! The table is the smallest thing that does what the seam says. Tokens, versions and the names of
//! entries differ from store to store; everything else must not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use incumbent_store::memory::{SessionKey, Shape, Table};
use incumbent_store::{
    Cas, Deposed, ElectionName, Entry, EntryId, Fault, Held, Incarnation, Merit, NewEntry, Nonce, Office, Paused,
    Place, Publication, Session, Standing, StoreError, StoreId, Timestamp, Token, Version,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};

use super::fixture::Fixture;
use super::harness::{Harness, unique};

/// A history that goes wrong is cut down to the shortest one that does.
pub async fn a_random_history_agrees_with_the_table<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let mut runner = TestRunner::new(Config::default());
    let histories = proptest::collection::vec(step(), 1..40);
    for _ in 0..harness.histories() {
        let mut tree = histories.new_tree(&mut runner).expect("a history");
        let Err(mut why) = compare(harness, &fixture, &tree.current()).await else { continue };
        let mut shortest = tree.current();
        // Every try costs a history on the real thing.
        for _ in 0..300 {
            let shrunk = match compare(harness, &fixture, &tree.current()).await {
                Err(reason) => {
                    (why, shortest) = (reason, tree.current());
                    tree.simplify()
                }
                Ok(()) => tree.complicate(),
            };
            if !shrunk {
                break;
            }
        }
        panic!("{why}\nafter {shortest:#?}");
    }
}

/// Two sessions, two elections; numbers choose among what there is at that moment.
#[derive(Clone, Debug)]
enum Step {
    Enlist { session: usize, election: usize, incarnation: u8 },
    Standing { session: usize, which: usize },
    Publish { session: usize, which: usize, value: u8, ready: Option<u8> },
    Withdraw { session: usize, which: usize, heir: Option<usize> },
    Renew { session: usize, named: usize },
    Reopen { session: usize },
    Look { election: usize, limit: usize },
    Evict { which: usize },
    SetOffice { election: usize, which: usize, paused: bool, deposed: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let (two, some) = (0..2usize, 0..8usize);
    prop_oneof![
        6 => (two.clone(), two.clone(), 0..2u8)
            .prop_map(|(session, election, incarnation)| Step::Enlist { session, election, incarnation }),
        3 => (two.clone(), some.clone()).prop_map(|(session, which)| Step::Standing { session, which }),
        2 => (two.clone(), some.clone(), any::<u8>(), any::<Option<u8>>())
            .prop_map(|(session, which, value, ready)| Step::Publish { session, which, value, ready }),
        3 => (two.clone(), some.clone(), proptest::option::weighted(0.3, some.clone()))
            .prop_map(|(session, which, heir)| Step::Withdraw { session, which, heir }),
        2 => (two.clone(), some.clone()).prop_map(|(session, named)| Step::Renew { session, named }),
        1 => two.clone().prop_map(|session| Step::Reopen { session }),
        4 => (two.clone(), 0..4usize).prop_map(|(election, limit)| Step::Look { election, limit }),
        2 => some.clone().prop_map(|which| Step::Evict { which }),
        2 => (two, some, any::<bool>(), any::<bool>())
            .prop_map(|(election, which, paused, deposed)| Step::SetOffice { election, which, paused, deposed }),
    ]
}

async fn compare<H: Harness>(harness: &H, fixture: &Fixture, steps: &[Step]) -> Result<(), String> {
    let mut comparison = Comparison::begin(harness, fixture).await;
    for (number, step) in steps.iter().enumerate() {
        comparison.step(step).await.map_err(|why| format!("step {number}, {step:?}: {why}"))?;
    }
    for session in &comparison.sessions {
        session.real.close().await.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The store and the table, side by side, and what corresponds to what.
struct Comparison<'a> {
    fixture: &'a Fixture,
    table: Table,
    elections: [ElectionName; 2],
    sessions: Vec<Side>,
    /// The store's tokens, and the table's.
    tokens: BTreeMap<Token, Token>,
    /// What others see of each stay in line: the same as long as it lasts.
    stays: BTreeMap<Token, Incarnation>,
    entries: Vec<(ElectionName, Entry, Entry)>,
    /// What each entry has published, as the store and the table number it.
    published: BTreeMap<Token, Vec<(Version, Version)>>,
    /// Whom each entry was behind when it was last looked at, if anybody.
    ahead: BTreeMap<Token, EntryId>,
    offices: BTreeMap<ElectionName, Vec<(Version, Version)>>,
}

struct Side {
    real: Arc<dyn Session>,
    key: SessionKey,
    bits: u128,
    held: Vec<(Held, Held)>,
}

/// Nothing expires while a history is compared.
const NOW: Timestamp = Timestamp::ZERO;

impl<'a> Comparison<'a> {
    async fn begin<H: Harness>(harness: &H, fixture: &'a Fixture) -> Comparison<'a> {
        let promises = &fixture.promises;
        let (line, watches, forgotten_by) = (promises.line, promises.watches, promises.forgotten_by);
        let shape = Shape { line, watches, forgotten_by, one_clock: false };
        let mut comparison = Comparison {
            fixture,
            table: Table::new(shape, StoreId::new("the table")),
            elections: [harness.election(), harness.election()],
            sessions: Vec::new(),
            tokens: BTreeMap::new(),
            stays: BTreeMap::new(),
            entries: Vec::new(),
            published: BTreeMap::new(),
            ahead: BTreeMap::new(),
            offices: BTreeMap::new(),
        };
        for _ in 0..2 {
            let side = comparison.open().await;
            comparison.sessions.push(side);
        }
        comparison
    }

    async fn open(&mut self) -> Side {
        // Long enough that a history on a slow machine does not outlive it.
        let ttl = 5 * self.fixture.ttl;
        let real = self.fixture.store.open_session(ttl).await.expect("a session");
        let (key, _) = self.table.open_session(NOW, ttl);
        Side { real, key, bits: u128::from(unique()) << 64, held: Vec::new() }
    }

    async fn step(&mut self, step: &Step) -> Result<(), String> {
        match *step {
            Step::Enlist { session, election, incarnation } => self.enlist(session, election, incarnation).await,
            Step::Standing { session, which } => self.standing(session, which).await,
            Step::Publish { session, which, value, ready } => self.publish(session, which, value, ready).await,
            Step::Withdraw { session, which, heir } => self.withdraw(session, which, heir).await,
            Step::Renew { session, named } => self.renew(session, named).await,
            Step::Look { election, limit } => self.look(election, limit).await,
            Step::Evict { which } => self.evict(which).await,
            Step::SetOffice { election, which, paused, deposed } => {
                self.set_office(election, which, paused, deposed).await
            }
            Step::Reopen { session } => {
                self.sessions[session].real.close().await.map_err(|error| error.to_string())?;
                self.table.close_session(self.sessions[session].key);
                self.sessions[session] = self.open().await;
                Ok(())
            }
        }
    }

    async fn enlist(&mut self, session: usize, election: usize, incarnation: u8) -> Result<(), String> {
        let side = &self.sessions[session];
        let name = if incarnation == 0 { "node" } else { "spare" };
        let incarnation = Incarnation::from_bits(side.bits | u128::from(incarnation));
        let entry = NewEntry::new(incarnation, name, "value").merit(Merit::new(name == "spare", 0));
        let election = self.elections[election].clone();
        let real = side.real.enlist(&election, &entry).await;
        let model = self.table.enlist(NOW, side.key, &election, &entry);
        if let (Some(real), Some(model)) = (held_in(&real), held_in(&model)) {
            self.learn(session, real, model)?;
        }
        self.same_standing(real, model)
    }

    /// A token that nobody has seen is greater than all before; one that is known belongs to the
    /// same entry.
    fn learn(&mut self, session: usize, real: Held, model: Held) -> Result<(), String> {
        match self.tokens.get(&real.token) {
            Some(known) => same("token", *known, model.token)?,
            None => {
                let newest = self.tokens.last_key_value().map(|(token, _)| *token);
                if newest.is_some_and(|newest| newest > real.token) {
                    return Err(format!("{:?} was drawn after {newest:?}", real.token));
                }
                self.tokens.insert(real.token, model.token);
            }
        }
        self.sessions[session].held.push((real, model));
        Ok(())
    }

    async fn standing(&mut self, session: usize, which: usize) -> Result<(), String> {
        let Some((real, model)) = self.held(session, which) else { return Ok(()) };
        let side = &self.sessions[session];
        let behind = self.ahead.get(&real.token).cloned();
        let real = side.real.standing(&real, behind.as_ref()).await;
        let model = self.table.standing(NOW, side.key, &model);
        self.same_standing(real, model)
    }

    async fn publish(&mut self, session: usize, which: usize, value: u8, ready: Option<u8>) -> Result<(), String> {
        let Some((real, model)) = self.held(session, which) else { return Ok(()) };
        let seen = self.published.entry(real.token).or_default();
        // On what was there last, or at first.
        let was = if value.is_multiple_of(2) { seen.last() } else { seen.first() };
        let (was, model_was) = was.copied().unwrap_or_default();
        let merit = Merit::new(value > 127, i32::from(value % 5) - 2);
        let said = Publication::new(vec![value; 3]).ready(ready.map(|nonce| Nonce(nonce.into()))).merit(merit);
        let side = &self.sessions[session];
        let published = side.real.publish(&real, was, &said).await;
        let in_table = self.table.publish(NOW, side.key, &model, model_was, &said);
        if let (Ok(Some(real)), Ok(Some(model))) = (&published, &in_table) {
            seen.push((*real, *model));
        }
        let cas = |version: Option<Version>| if version.is_some() { Cas::Done } else { Cas::Refused };
        same_result("publish", published.map(cas), in_table.map(cas))
    }

    async fn withdraw(&mut self, session: usize, which: usize, heir: Option<usize>) -> Result<(), String> {
        let Some((real, model)) = self.held(session, which) else { return Ok(()) };
        let heir = heir.and_then(|heir| self.held(1 - session, heir));
        // An heir in another election is nobody's heir; stores may differ in how they see that.
        let heir = heir.filter(|(heir, _)| heir.election == real.election);
        let side = &self.sessions[session];
        let done = side.real.withdraw(&real, heir.as_ref().map(|(real, _)| &real.entry)).await;
        let heir = heir.as_ref().map(|(_, model)| &model.entry);
        same_result("withdraw", done, self.table.withdraw(NOW, side.key, &model, heir))
    }

    async fn renew(&mut self, session: usize, named: usize) -> Result<(), String> {
        let side = &self.sessions[session];
        let (real, model): (Vec<_>, Vec<_>) = side.held.iter().rev().take(named).cloned().unzip();
        let real = side.real.renew(&real).await.map_err(|error| error.to_string())?;
        let model = self.table.renew(NOW, side.key, &model).map_err(|error| error.to_string())?;
        same("gone", self.translated(&real.gone)?, sorted_tokens(&model.gone))?;
        same("stray", self.translated(&real.stray)?, sorted_tokens(&model.stray))
    }

    async fn look(&mut self, election: usize, limit: usize) -> Result<(), String> {
        let election = self.elections[election].clone();
        let real = self.fixture.store.line(&election, limit).await.map_err(|error| error.to_string())?;
        let model = self.table.line(NOW, &election, limit);
        same("more", real.more, model.more)?;
        same("length", real.entries.len(), model.entries.len())?;
        for (real, model) in real.entries.iter().zip(&model.entries) {
            self.same_entry(real, model)?;
        }
        let stays: BTreeSet<_> = real.entries.iter().filter_map(|entry| entry.incarnation).collect();
        same("stays that are told apart", stays.len(), model.entries.len())?;
        let entries = real.entries.into_iter().zip(model.entries);
        self.entries.extend(entries.map(|(real, model)| (election.clone(), real, model)));
        self.offices.entry(election).or_default().push((real.office.version, model.office.version));
        same_office(real.office, model.office)
    }

    async fn evict(&mut self, which: usize) -> Result<(), String> {
        let Some((election, real, model)) = self.entries.iter().rev().nth(which) else { return Ok(()) };
        let done = self.fixture.store.evict(election, real).await;
        same_result("evict", done, Ok(self.table.evict(NOW, election, model)))
    }

    async fn set_office(&mut self, election: usize, which: usize, paused: bool, deposed: bool) -> Result<(), String> {
        if !self.fixture.promises.office_record {
            return Ok(());
        }
        let election = self.elections[election].clone();
        let seen = self.offices.get(&election).and_then(|seen| seen.iter().rev().nth(which));
        let (real, model) = seen.copied().unwrap_or_default();
        let office = Office::default()
            .with_paused(paused.then(|| Paused::new("a test")))
            .with_deposed(Token::new(7).filter(|_| deposed).map(Deposed::new));
        let done = self.fixture.store.set_office(&election, real, &office).await;
        same_result("set_office", done, Ok(self.table.set_office(NOW, &election, model, &office)))
    }

    fn held(&self, session: usize, which: usize) -> Option<(Held, Held)> {
        self.sessions[session].held.iter().rev().nth(which).cloned()
    }

    fn translated(&self, held: &[Held]) -> Result<Vec<Token>, String> {
        let known = |held: &Held| self.tokens.get(&held.token).copied().ok_or(format!("{held:?} is unknown"));
        let mut tokens = held.iter().map(known).collect::<Result<Vec<_>, _>>()?;
        tokens.sort();
        Ok(tokens)
    }

    fn same_entry(&mut self, real: &Entry, model: &Entry) -> Result<(), String> {
        same("token", self.tokens.get(&real.token), Some(&model.token))?;
        let what =
            |entry: &Entry| (entry.is_foreign(), entry.name.clone(), entry.value.clone(), entry.ready, entry.merit);
        same("entry", what(real), what(model))?;
        same("observed", real.observed.is_some(), model.observed.is_some())?;
        self.same_stay(real)
    }

    fn same_stay(&mut self, seen: &Entry) -> Result<(), String> {
        let Some(stay) = seen.incarnation else { return Ok(()) };
        same("stay", stay, *self.stays.entry(seen.token).or_insert(stay))
    }

    fn same_standing(
        &mut self,
        real: Result<Standing, StoreError>,
        model: Result<Standing, StoreError>,
    ) -> Result<(), String> {
        let (real, model) = match (real, model) {
            (Ok(real), Ok(model)) => (real, model),
            (real, model) => return same_result("standing", real.map(|_| Cas::Done), model.map(|_| Cas::Done)),
        };
        if let Place::Behind { held: Some(held), ahead, .. } = &real.place {
            self.ahead.insert(held.token, ahead.id.clone());
        }
        if let Place::Leading(held) | Place::Behind { held: Some(held), .. } = &real.place {
            self.published.entry(held.token).or_default().push((real.published, model.published));
        }
        same_office(real.office, model.office)?;
        match (&real.place, &model.place) {
            (Place::Leading(real), Place::Leading(model)) => {
                same("leader", self.tokens.get(&real.token), Some(&model.token))
            }
            (Place::Behind { held: real, ahead, .. }, Place::Behind { held: model, ahead: model_ahead, .. }) => {
                self.same_entry(ahead, model_ahead)?;
                let token = |held: &Held| self.tokens.get(&held.token).copied();
                same("follower", real.as_ref().map(token), model.as_ref().map(|held| Some(held.token)))
            }
            (Place::Gone, Place::Gone) => Ok(()),
            (real, model) => Err(format!("the store says {real:?}, the table {model:?}")),
        }
    }
}

fn held_in(standing: &Result<Standing, StoreError>) -> Option<Held> {
    match &standing.as_ref().ok()?.place {
        Place::Leading(held) => Some(held.clone()),
        Place::Behind { held, .. } => held.clone(),
        Place::Gone => None,
    }
}

fn sorted_tokens(held: &[Held]) -> Vec<Token> {
    let mut tokens: Vec<_> = held.iter().map(|held| held.token).collect();
    tokens.sort();
    tokens
}

fn same_office(real: Office, model: Office) -> Result<(), String> {
    same("whether there is a record", real.version != Version::NONE, model.version != Version::NONE)?;
    same("office", real.with_version(Version::NONE), model.with_version(Version::NONE))
}

fn same_result(what: &str, real: Result<Cas, StoreError>, model: Result<Cas, StoreError>) -> Result<(), String> {
    // Which entry is in the way is compared by its incarnation: its token has another number.
    let kind = |error: StoreError| match error.fault() {
        Fault::AlreadyInLine(held) => format!("already in line as {}", held.incarnation),
        fault => format!("{fault:?}"),
    };
    same(what, real.map_err(kind), model.map_err(kind))
}

fn same<T: PartialEq + Debug>(what: &str, real: T, model: T) -> Result<(), String> {
    if real == model { Ok(()) } else { Err(format!("{what}: the store says {real:?}, the table {model:?}")) }
}
