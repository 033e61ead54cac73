//! Random histories of sessions that act at once: carried out one by one, in the order in which the
//! database did, their steps have the same answers in the table that is the model of every store.
//!
//! A step that writes draws a number under the lock of its election, and a trigger notes who drew
//! it. A step that reads answers the last number that it has seen drawn. Nothing expires meanwhile.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use incumbent_postgres::PostgresStore;
use incumbent_postgres::tokio_postgres::{Client, Row};
use incumbent_store::memory::{SessionKey, Shape, Table};
use incumbent_store::{
    Cursor, ElectionName, Entry, Held, Incarnation, Line, Merit, NewEntry, Nonce, Office, Paused, Publication, Session,
    Standing, Store, StoreError, StoreId, Timestamp, Version,
};
use incumbent_testkit::candidates::held_of;
use incumbent_testkit::fuzz::{Rng, seeds};

use crate::harness::{make, name, raw, shared, store};
use crate::histories::EARLY_NUMBER;
use crate::suites::pooler;

const STEPS: u64 = 40;
/// A variant that is not caught by then is not caught.
const SEEDS_UNTIL_CAUGHT: u64 = 40;
const TTL: Duration = Duration::from_secs(3_000);
const NOW: Timestamp = Timestamp::ZERO;

/// A step that keeps its lock for a while makes others wait: what they read before it is old then.
/// An election that is swept away would count from zero for those who read: it stays.
const NOTES: &str = "CREATE TABLE {schema}.drawn (who text, election bytea, number bigint);
    CREATE FUNCTION {schema}.note() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
        INSERT INTO {schema}.drawn VALUES (current_setting('application_name'), NEW.name, NEW.counter);
        PERFORM pg_sleep(random() * 0.003);
        RETURN NULL;
    END$$;
    CREATE TRIGGER note AFTER UPDATE OF counter ON {schema}.election FOR EACH ROW EXECUTE FUNCTION {schema}.note();
    CREATE RULE stay AS ON DELETE TO {schema}.election DO INSTEAD NOTHING";
/// The table has counted its sessions by then, and gets there soon: it is to draw the same numbers.
const NUMBERS: &str = "ALTER SEQUENCE {schema}.number RESTART 1001";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_act_at_once_are_answered_what_they_would_be_one_by_one() {
    assert_eq!(play("replay", "", seeds()).await, Ok(()));
}

/// A step that is first by its number is not first in what it sees.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_that_is_drawn_before_the_lock_is_caught() {
    play("replay_early_number", EARLY_NUMBER, 0..SEEDS_UNTIL_CAUGHT).await.expect_err("it is not caught");
}

/// Of two who replace one and the same record, both are told that they did.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_is_compared_before_the_lock_is_caught() {
    let sets_early = "ALTER FUNCTION {schema}.set_office_1(bytea, bigint, bytea, bytea, bigint, bigint) RENAME TO sets;
        CREATE FUNCTION {schema}.set_office_1(e bytea, was bigint, says bytea, afterwards bytea, ended bigint, keep bigint)
        RETURNS boolean LANGUAGE plpgsql AS $$
        DECLARE
            seen bigint := coalesce((SELECT version FROM {schema}.office_1 WHERE name = e), 0);
        BEGIN
            IF seen <> was THEN
                RETURN {schema}.sets(e, was, says, afterwards, ended, keep);
            END IF;
            PERFORM {schema}.begin_step_1();
            seen := {schema}.draw_1(e);
            UPDATE {schema}.election SET office = says, office_version = seen WHERE name = e;
            RETURN true;
        END
        $$";
    play("replay_early_look", sets_early, 0..SEEDS_UNTIL_CAUGHT).await.expect_err("it is not caught");
}

/// Plays the seeds in a schema that is changed as `how` says, up to the first history that the
/// table does not agree with.
async fn play(schema: &str, how: &str, seeds: impl Iterator<Item = u64>) -> Result<(), String> {
    let (direct, pooled) = (shared().await.url(), pooler().await.url());
    let urls = (1..).zip([&direct, &pooled, &direct, &pooled, &direct, &pooled]);
    let named = |(who, url)| (who, store(&format!("{url}?schema={schema}&application_name={schema}-{who}")));
    let stores: Vec<(u64, PostgresStore)> = urls.map(named).collect();
    make(&stores[0].1).await;
    let notes = Arc::new(raw(&direct).await);
    notes.batch_execute(&format!("{NOTES}; {how}").replace("{schema}", schema)).await.unwrap();
    let notes = Notes { client: notes, schema: schema.to_owned() };
    for seed in seeds {
        notes.client.batch_execute(&NUMBERS.replace("{schema}", schema)).await.unwrap();
        let elections = [name("replay-a"), name("replay-b")];
        let mut tasks = Vec::new();
        for (who, store) in &stores {
            let player = Player::new(*who, store, &notes, &elections, Rng::from_number(seed << 8 | who)).await;
            tasks.push(tokio::spawn(player.play()));
        }
        let mut history = Vec::new();
        for task in tasks {
            history.extend(task.await.unwrap_or_else(|error| panic!("with seed {seed}: {error}")));
        }
        let mut last = Player::new(0, &stores[0].1, &notes, &elections, Rng::from_number(seed)).await;
        for election in &elections {
            last.look(election).await.unwrap();
            history.append(&mut last.history);
            let steps = history.extract_if(.., |step| step.election == *election).collect();
            replay(steps).map_err(|why| format!("with seed {seed}: {why}"))?;
        }
    }
    Ok(())
}

/// Who drew which number.
#[derive(Clone)]
struct Notes {
    client: Arc<Client>,
    schema: String,
}

type Replay = Box<dyn FnOnce(&mut Table, SessionKey) -> Result<(), String> + Send>;

/// What a session did or saw, and whether the table answers the same.
struct Step {
    election: ElectionName,
    number: u64,
    reads: bool,
    session: u128,
    what: String,
    replay: Replay,
}

fn replay(mut steps: Vec<Step>) -> Result<(), String> {
    steps.sort_by_key(|step| (step.number, step.reads));
    let mut table = Table::new(Shape::FAIR, StoreId::new("the table"));
    let mut keys = BTreeMap::new();
    for step in &steps {
        keys.entry(step.session).or_insert_with(|| table.open_session(NOW, TTL).0);
    }
    let (nobody, _) = table.open_session(NOW, TTL);
    let mut past = String::new();
    for Step { number, reads, session, what, replay, election } in steps {
        // The next number that the table draws is the one that was drawn.
        while !reads && table.line(NOW, &election, 0).cursor.0 + 1 < number {
            table.renew(NOW, nobody, &[]).unwrap();
        }
        past.push_str(&format!("{number} {what}\n"));
        replay(&mut table, keys[&session]).map_err(|why| format!("{why}\nafter\n{past}"))?;
    }
    Ok(())
}

/// Acts on what it was told lately, and on what is past.
struct Player {
    who: String,
    store: PostgresStore,
    notes: Notes,
    elections: [ElectionName; 2],
    random: Rng,
    session: Arc<dyn Session>,
    /// Names the session: its incarnations begin there.
    id: u128,
    /// The entries that it was told of, with their versions: its own, and all.
    own: Vec<(Held, Version)>,
    seen: Vec<(Held, Version)>,
    history: Vec<Step>,
}

impl Player {
    async fn new(
        number: u64,
        store: &PostgresStore,
        notes: &Notes,
        elections: &[ElectionName; 2],
        random: Rng,
    ) -> Player {
        let session = store.open_session(TTL).await.unwrap();
        let (who, id) = (format!("{}-{number}", notes.schema), u128::from(number) << 96);
        let (store, notes, elections) = (store.clone(), notes.clone(), elections.clone());
        let (own, seen, history) = (Vec::new(), Vec::new(), Vec::new());
        Player { who, store, notes, elections, random, session, id, own, seen, history }
    }

    async fn play(mut self) -> Vec<Step> {
        for _ in 0..STEPS {
            let election = self.elections[self.random.below(2) as usize].clone();
            let done = match self.random.below(16) {
                0..4 => self.enlist(election).await,
                4..6 => self.standing().await,
                6..8 => self.publish().await,
                8..10 => self.withdraw().await,
                10 => self.renew(election).await,
                11 => self.close().await,
                12..14 => self.evict(election).await,
                _ => self.set_office(election).await,
            };
            match done {
                Ok(()) => {}
                // A machine that is busy: nothing was done.
                Err(StoreError::Unavailable { .. }) => assert_eq!(self.drawn().await, []),
                Err(error) => panic!("{error:?}"),
            }
        }
        self.history
    }

    /// The numbers that the last step has drawn.
    async fn drawn(&mut self) -> Vec<(ElectionName, u64)> {
        let Notes { client, schema } = &self.notes;
        let take =
            format!("DELETE FROM {schema}.drawn WHERE who = $1 RETURNING convert_from(election, 'UTF8'), number");
        let rows = client.query(&take, &[&self.who]).await.unwrap();
        let drawn = |row: &Row| (ElectionName::new(row.get(0)).unwrap(), row.get::<_, i64>(1).unsigned_abs());
        rows.iter().map(drawn).collect()
    }

    async fn wrote<T: PartialEq + Debug + Send + 'static>(
        &mut self,
        what: String,
        answer: T,
        ask: impl FnOnce(&mut Table, SessionKey) -> T + Send + 'static,
    ) {
        let drawn = self.drawn().await;
        let [(election, number)] = &drawn[..] else { panic!("{what} drew {drawn:?}") };
        self.note(election, (*number, false), what, answer, |real, table| real == table, ask);
    }

    fn note<T: Debug + Send + 'static>(
        &mut self,
        election: &ElectionName,
        (number, reads): (u64, bool),
        what: String,
        answer: T,
        agree: fn(&T, &T) -> bool,
        ask: impl FnOnce(&mut Table, SessionKey) -> T + Send + 'static,
    ) {
        let what = format!("{} {what}: {answer:?}", self.who);
        let replay = move |table: &mut Table, key: SessionKey| {
            let table = ask(table, key);
            let agree = agree(&answer, &table);
            agree.then_some(()).ok_or_else(|| format!("the store says {answer:?},\nthe table {table:?}"))
        };
        let (election, session, replay) = (election.clone(), self.id, Box::new(replay));
        self.history.push(Step { election, number, reads, session, what, replay });
    }

    /// One of the last that were seen in an election; else mostly one of its own.
    fn pick(&mut self, election: Option<&ElectionName>) -> Option<(Held, Version)> {
        let all = if election.is_none() && self.random.below(6) > 0 { &self.own } else { &self.seen };
        let fits = |(held, _): &&(Held, Version)| election.is_none_or(|election| held.election == *election);
        let last = Vec::from_iter(all.iter().rev().filter(fits).take(4));
        let at = self.random.below(last.len().max(1) as u64) as usize;
        last.get(at).copied().cloned()
    }

    async fn enlist(&mut self, election: ElectionName) -> Result<(), StoreError> {
        let choice = self.random.below(4);
        let incarnation = Incarnation::from_bits(self.id + u128::from(choice / 3));
        let entry = NewEntry::new(incarnation, "node", "value").merit(Merit::new(choice == 2, 1));
        let answer = or_in_line(self.session.enlist(&election, &entry).await)?;
        self.own.extend(answer.iter().filter_map(|standing| Some((held_of(standing)?, standing.published))));
        self.wrote(format!("enlist {entry:?}"), answer, move |table, key| {
            or_in_line(table.enlist(NOW, key, &election, &entry)).unwrap()
        })
        .await;
        Ok(())
    }

    async fn standing(&mut self) -> Result<(), StoreError> {
        let Some((held, _)) = self.pick(None) else { return Ok(()) };
        let answer = self.session.standing(&held, None).await?;
        self.own.extend(held_of(&answer).map(|held| (held, answer.published)));
        let (election, cursor) = (held.election.clone(), answer.cursor.0);
        let answer = without_cursor(answer);
        self.note(&election, (cursor, true), format!("standing {held:?}"), answer, PartialEq::eq, move |table, key| {
            without_cursor(table.standing(NOW, key, &held).unwrap())
        });
        Ok(())
    }

    async fn publish(&mut self) -> Result<(), StoreError> {
        let Some((held, was)) = self.pick(None) else { return Ok(()) };
        let value = self.random.below(100);
        let said = Publication::new(value.to_string()).ready(Some(Nonce(value))).merit(Merit::new(value > 50, 2));
        let answer = self.session.publish(&held, was, &said).await?;
        self.own.extend(answer.map(|version| (held.clone(), version)));
        self.wrote(format!("publish {held:?} on {was:?}"), answer, move |table, key| {
            table.publish(NOW, key, &held, was, &said).unwrap()
        })
        .await;
        Ok(())
    }

    async fn withdraw(&mut self) -> Result<(), StoreError> {
        let Some((held, _)) = self.pick(None) else { return Ok(()) };
        let heir = self.pick(Some(&held.election)).filter(|_| self.random.below(2) == 0).map(|(heir, _)| heir.entry);
        let answer = self.session.withdraw(&held, heir.as_ref()).await?;
        self.wrote(format!("withdraw {held:?} for {heir:?}"), answer, move |table, key| {
            table.withdraw(NOW, key, &held, heir.as_ref()).unwrap()
        })
        .await;
        Ok(())
    }

    /// It has no number: what is there in it was there before, and what is there afterwards was
    /// there in it.
    async fn renew(&mut self, election: ElectionName) -> Result<(), StoreError> {
        let named = Vec::from_iter(self.own.iter().rev().take(4).map(|(held, _)| held.clone()));
        let before = self.look(&election).await?.cursor.0;
        let renewal = self.session.renew(&named).await?;
        let after = self.look(&election).await?.cursor.0;
        let kept = named.into_iter().filter(|held| !renewal.gone.contains(held));
        let there = kept.chain(renewal.stray).find(|held| held.election == election);
        let is_or_was: fn(&Option<Held>, &Option<Held>) -> bool = |real, table| real.is_none() || real == table;
        let is_or_goes: fn(&Option<Held>, &Option<Held>) -> bool = |real, table| table.is_none() || real == table;
        for (cursor, agree) in [(before, is_or_was), (after, is_or_goes)] {
            let here = election.clone();
            self.note(&election, (cursor, true), "renew".into(), there.clone(), agree, move |table, key| {
                let own = table.clone().renew(NOW, key, &[]).unwrap().stray;
                own.into_iter().find(|held| held.election == here)
            });
        }
        Ok(())
    }

    async fn close(&mut self) -> Result<(), StoreError> {
        let next = self.store.open_session(TTL).await?;
        self.session.close().await?;
        for (election, number) in self.drawn().await {
            let close = |table: &mut Table, key| table.close_session(key);
            self.note(&election, (number, false), "close".into(), (), PartialEq::eq, close);
        }
        (self.session, self.id) = (next, self.id + 2);
        Ok(())
    }

    async fn look(&mut self, election: &ElectionName) -> Result<Line, StoreError> {
        let line = self.store.line(election, 4).await?;
        for Entry { id, token, incarnation, version, .. } in &line.entries {
            self.seen.push((Held::new(election.clone(), id.clone(), *token, incarnation.unwrap()), *version));
        }
        let (here, answer) = (election.clone(), (line.entries.clone(), line.more, line.office.clone()));
        self.note(election, (line.cursor.0, true), "line".into(), answer, PartialEq::eq, move |table, _| {
            let line = table.line(NOW, &here, 4);
            (line.entries, line.more, line.office)
        });
        Ok(line)
    }

    async fn evict(&mut self, election: ElectionName) -> Result<(), StoreError> {
        if self.random.below(2) == 0 {
            self.look(&election).await?;
        }
        let Some((held, version)) = self.pick(Some(&election)) else { return Ok(()) };
        let mut entry = Entry::new(held.entry, held.token);
        (entry.incarnation, entry.version) = (Some(held.incarnation), version);
        let answer = self.store.evict(&election, &entry).await?;
        self.wrote(format!("evict {entry:?}"), answer, move |table, _| table.evict(NOW, &election, &entry)).await;
        Ok(())
    }

    async fn set_office(&mut self, election: ElectionName) -> Result<(), StoreError> {
        let was = self.look(&election).await?.office.version;
        let paused = [None, Some("for a while"), Some("for long")][self.random.below(3) as usize];
        let office = Office::default().with_paused(paused.map(Paused::new));
        let answer = self.store.set_office(&election, was, &office).await?;
        self.wrote(format!("set_office {paused:?} on {was:?}"), answer, move |table, _| {
            table.set_office(NOW, &election, was, &office)
        })
        .await;
        Ok(())
    }
}

/// The entry that is in the way is an answer, too.
fn or_in_line(answer: Result<Standing, StoreError>) -> Result<Result<Standing, Held>, StoreError> {
    match answer {
        Err(StoreError::AlreadyInLine(held)) => Ok(Err(held)),
        answer => Ok(Ok(without_cursor(answer?))),
    }
}

/// A step that changes nothing draws a number, too, and the table does not.
fn without_cursor(mut standing: Standing) -> Standing {
    standing.cursor = Cursor(0);
    standing
}
