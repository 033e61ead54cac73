//! Random histories of several sessions: what the scripts answer is what the table answers, call by
//! call, while sessions and tombstones run out. The time is set by hand, now and then to the very
//! moment at which something is due. Variants of the scripts that get it wrong are noticed.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::sync::Arc;
use std::time::Duration;

use incumbent_redis::RedisStore;
use incumbent_store::memory::{SessionKey, Shape, Table};
use incumbent_store::{
    Deposed, ElectionName, Ended, Entry, EntryId, Held, Incarnation, Merit, NewEntry, Nonce, Office, Paused, Place,
    Publication, Renewal, Session, Standing, Store, StoreError, StoreId, Timestamp, Token, Version,
};
use incumbent_testkit::candidates::held_of;
use incumbent_testkit::fuzz::Rng;

use crate::harness::named;
use crate::timed::{Flaw, TimedServer, play};

const HISTORIES: u64 = if cfg!(feature = "faults") { 3_000 } else { 300 };
/// A variant that is not noticed by then is not noticed.
const UNTIL_NOTICED: u64 = 400;
const STEPS: u64 = 60;
/// In milliseconds.
const TTLS: [u64; 4] = [800, 1_100, 1_900, 4_000];
/// The store's clock follows steps of at most half the shortest TTL, an eighth of which it may have
/// left for later.
const LONGEST_STEP: Duration = Duration::from_millis(800 * 3 / 8);

#[tokio::test]
async fn what_the_scripts_answer_is_what_the_table_answers_while_sessions_and_tombstones_run_out() {
    play(&[], 0..HISTORIES, History::play).await.unwrap_or_else(|why| panic!("{why}"));
}

/// Each known-bad variant is what is written in a script, and what is put there instead.
const FLAWS: [&[Flaw]; 14] = [
    // A session whose time has passed makes steps.
    &[("if is_living and not is_unheard then", "if ends then")],
    &[("local is_living = ends and ends + 0 > clock", "local is_living = ends and ends + 0 >= clock")],
    // One that waits does so for a dead one.
    &[("if ends and ends + 0 > clock then\n      return sub(", "if ends then\n      return sub(")],
    // A renewal is none, and one counts for another session's TTL.
    &[(
        "extend(session)\nreturn {'ok', id, change, lineage, whole(clock), places,",
        "return {'ok', id, change, lineage, whole(clock), places,",
    )],
    &[(
        "call('ZADD', SESSIONS, whole(clock + ttl_of(session)), session)",
        "call('ZADD', SESSIONS, whole(clock + longest), session)",
    )],
    // A tombstone does not go; goes late; stays for longer when the record is written again; and
    // takes the record with it.
    &[("if ended_bytes + 0 > 0 and ends + 0 <= clock then", "if false then")],
    &[("if ended_bytes + 0 > 0 and ends + 0 <= clock then", "if ended_bytes + 0 > 0 and ends + 0 < clock then")],
    &[("ended_before == ended and ends_before or digits(clock + keep)", "digits(clock + keep)")],
    &[("sub(row, 49 + ended_bytes + record_bytes), '', digits(0), '')", "'', '', digits(0), '')")],
    // Less time passes than by the clock, and by the callers'.
    &[("math.floor(shortest / 2)", "math.floor(shortest / 4)"), ("and SHOWN or 0", "and 0 or 0")],
    // What was read is replaced, whoever has written since.
    &[("if not entry or sub(entry, 1, TOKEN) ~= was then", "if not entry then")],
    &[("if version ~= was then", "if false then")],
    &[("if entry and sub(entry, 1, TOKEN) ~= seen then", "if false then")],
    // A leader leaves to an heir that is gone.
    &[("if heir ~= '' and call('HEXISTS', ENTRIES, election .. '\\0' .. heir) == 0 then", "if false then")],
];

#[tokio::test]
async fn each_known_bad_variant_of_the_scripts_is_noticed() {
    for flaws in FLAWS {
        let played = play(flaws, 0..UNTIL_NOTICED, History::play).await;
        assert!(played.is_err(), "it is not noticed: {flaws:?}");
    }
}

/// The store and the table, side by side.
struct History<'a> {
    server: &'a TimedServer,
    rng: Rng,
    now: Duration,
    stores: [RedisStore; 2],
    table: Table,
    elections: [ElectionName; 2],
    sessions: Vec<Side>,
    numbers: Numbers,
    /// What was seen in line, and of the office records, as the store numbers it.
    entries: Vec<(ElectionName, Entry)>,
    offices: Vec<(ElectionName, Version)>,
    past: String,
}

struct Side {
    real: Arc<dyn Session>,
    key: SessionKey,
    ttl: Duration,
    renewed: Duration,
    /// What it was told that it has, and what was published there.
    held: Vec<(Held, Version)>,
}

impl History<'_> {
    async fn begin(server: &TimedServer, seed: u64) -> History<'_> {
        let prefix = format!("history-{seed}");
        let now = Duration::ZERO;
        server.set_time(now).await;
        let mut history = History {
            server,
            rng: Rng::from_number(seed),
            now,
            stores: [server.open(&prefix), server.open(&prefix)],
            table: Table::new(Shape::FAIR, StoreId::new("the table")),
            // One begins as the other does.
            elections: ["jobs", "jobs/nightly"].map(named),
            sessions: Vec::new(),
            numbers: Numbers::default(),
            entries: Vec::new(),
            offices: Vec::new(),
            past: String::new(),
        };
        for _ in 0..3 {
            history.open().await.unwrap();
        }
        history
    }

    async fn play(server: &TimedServer, seed: u64) -> Result<(), String> {
        let mut history = History::begin(server, seed).await;
        for _ in 0..STEPS {
            history.step().await.map_err(|why| format!("{why}\nafter{}", history.past))?;
        }
        Ok(())
    }

    /// One call, after some time.
    async fn step(&mut self) -> Result<(), String> {
        self.pass().await;
        match self.rng.below(32) {
            0 => self.open().await,
            1 => self.close().await,
            2..10 => self.renew().await,
            10..16 => self.enlist().await,
            16..21 => self.standing().await,
            21..23 => self.withdraw().await,
            23..25 => self.publish().await,
            25 => self.evict().await,
            26..29 => self.set_office().await,
            _ => self.look().await,
        }
    }

    /// Often to when something is due, or to just before it.
    async fn pass(&mut self) {
        let due = self.table.next_expiry().map_or(Duration::MAX, |due| due.since(Timestamp::ZERO));
        let is_soon = due > self.now && due - self.now <= LONGEST_STEP;
        let millis = match self.rng.below(8) {
            0..2 => 0,
            2..5 => self.rng.below(120),
            _ if is_soon => (due - self.now).as_millis() as u64 - self.rng.below(2),
            _ => self.rng.below(LONGEST_STEP.as_millis() as u64 + 1),
        };
        self.now += Duration::from_millis(millis);
        self.server.set_time(self.now).await;
    }

    fn at(&self) -> Timestamp {
        Timestamp::ZERO + self.now
    }

    fn note(&mut self, what: impl Debug, answer: &impl Debug) {
        let _ = write!(self.past, "\n{:?} {what:?}: {answer:?}", self.now);
    }

    async fn open(&mut self) -> Result<(), String> {
        let ttl = Duration::from_millis(TTLS[self.rng.below(4) as usize]);
        let store = &self.stores[self.sessions.len() % 2];
        let real = store.open_session(ttl).await.unwrap();
        let (key, _) = self.table.open_session(self.at(), ttl);
        self.note("open", &(self.sessions.len(), ttl));
        self.sessions.push(Side { real, key, ttl, renewed: self.now, held: Vec::new() });
        Ok(())
    }

    /// Mostly one of the last.
    fn session(&mut self) -> usize {
        let open = self.sessions.len();
        let among = if self.rng.below(8) == 0 { open } else { open.min(4) };
        open - 1 - self.rng.below(among as u64) as usize
    }

    fn election(&mut self) -> ElectionName {
        self.elections[self.rng.below(2) as usize].clone()
    }

    /// A session, and mostly something that it has, or has had.
    fn held(&mut self) -> Option<(usize, Held, Version)> {
        let (session, other) = (self.session(), self.session());
        let whose = if self.rng.below(8) == 0 { other } else { session };
        let held = pick(&mut self.rng, &self.sessions[whose].held)?;
        Some((session, held.0, held.1))
    }

    async fn close(&mut self) -> Result<(), String> {
        let session = self.session();
        let Side { real, key, .. } = &self.sessions[session];
        real.close().await.unwrap();
        self.table.close_session(*key);
        self.note("close", &session);
        Ok(())
    }

    async fn renew(&mut self) -> Result<(), String> {
        let session = self.session();
        let named = self.sessions[session].held.iter().rev().take(self.rng.below(4) as usize);
        let named = Vec::from_iter(named.map(|(held, _)| held.clone()));
        let in_table = Vec::from_iter(named.iter().map(|held| self.numbers.held_in_table(held)));
        let now = self.at();
        let Side { real, key, .. } = &self.sessions[session];
        let real = real.renew(&named).await;
        let table = self.table.renew(now, *key, &in_table);
        self.note(("renew", session, &named), &real);
        if real.is_ok() {
            self.sessions[session].renewed = self.now;
        }
        self.same(real, table, Numbers::renewal)
    }

    async fn enlist(&mut self) -> Result<(), String> {
        let (session, election) = (self.session(), self.election());
        let which = self.rng.below(4);
        let incarnation = Incarnation::from_bits((session as u128) << 8 | u128::from(which / 3));
        let entry = NewEntry::new(incarnation, "node", vec![which as u8; 3]).merit(Merit::new(which == 2, 1));
        let now = self.at();
        let Side { real, key, .. } = &self.sessions[session];
        let real = real.enlist(&election, &entry).await;
        let table = self.table.enlist(now, *key, &election, &entry);
        self.note(("enlist", session, &election, incarnation), &real);
        self.same_standing(session, real, table)
    }

    async fn standing(&mut self) -> Result<(), String> {
        let Some((session, held, _)) = self.held() else { return self.look().await };
        let (now, in_table) = (self.at(), self.numbers.held_in_table(&held));
        let Side { real, key, .. } = &self.sessions[session];
        let real = real.standing(&held, None).await;
        let table = self.table.standing(now, *key, &in_table);
        self.note(("standing", session, &held), &real);
        self.same_standing(session, real, table)
    }

    fn same_standing(
        &mut self,
        session: usize,
        real: Result<Standing, StoreError>,
        table: Result<Standing, StoreError>,
    ) -> Result<(), String> {
        if let Ok(standing) = &real {
            self.sessions[session].held.extend(held_of(standing).map(|held| (held, standing.published)));
            self.looks_again_in_time(&standing.place)?;
        }
        self.same(real, table, Numbers::standing)
    }

    /// When the session of the one ahead ends, to the millisecond.
    fn looks_again_in_time(&self, place: &Place) -> Result<(), String> {
        let Place::Behind { ahead, look_again, .. } = place else { return Ok(()) };
        let has = |side: &&Side| side.held.iter().any(|(held, _)| held.token == ahead.token);
        let Some(ahead) = self.sessions.iter().find(has) else { return Err(format!("{ahead:?} is nobody's")) };
        let ends = ahead.renewed + ahead.ttl + Duration::from_millis(1);
        same(look_again, &ends.checked_sub(self.now))
    }

    async fn withdraw(&mut self) -> Result<(), String> {
        let Some((session, held, _)) = self.held() else { return self.look().await };
        let heir = self.held().map(|(_, heir, _)| heir).filter(|heir| heir.election == held.election);
        let (now, in_table) = (self.at(), self.numbers.held_in_table(&held));
        let heir_in_table = heir.as_ref().map(|heir| self.numbers.held_in_table(heir).entry);
        let Side { real, key, .. } = &self.sessions[session];
        let real = real.withdraw(&held, heir.as_ref().map(|heir| &heir.entry)).await;
        let table = self.table.withdraw(now, *key, &in_table, heir_in_table.as_ref());
        self.note(("withdraw", session, &held, &heir), &real);
        self.same(real, table, |_, real, table| same(real, table))
    }

    async fn publish(&mut self) -> Result<(), String> {
        let Some((session, held, was)) = self.held() else { return self.look().await };
        let value = self.rng.below(100);
        let said = Publication::new(value.to_string()).ready(Some(Nonce(value))).merit(Merit::new(value > 50, 2));
        let (now, in_table) = (self.at(), self.numbers.held_in_table(&held));
        let was_in_table = self.numbers.version_in_table(was);
        let Side { real, key, .. } = &self.sessions[session];
        let real = real.publish(&held, was, &said).await;
        let table = self.table.publish(now, *key, &in_table, was_in_table, &said);
        self.note(("publish", session, &held, was), &real);
        if let Ok(Some(version)) = real {
            self.sessions[session].held.push((held, version));
        }
        self.same(real, table, |numbers, real, table| match (real, table) {
            (Some(real), Some(table)) => numbers.version(real, *table),
            (real, table) => same(real, table),
        })
    }

    /// What was seen there, now and then as another incarnation.
    async fn evict(&mut self) -> Result<(), String> {
        let Some((election, mut seen)) = pick(&mut self.rng, &self.entries) else { return self.look().await };
        if self.rng.below(8) == 0 {
            seen.incarnation = Some(Incarnation::from_bits(u128::MAX));
        }
        let mut in_table = seen.clone();
        (in_table.id, in_table.token) = self.numbers.token_in_table(seen.token);
        in_table.version = self.numbers.version_in_table(seen.version);
        let real = self.stores[0].evict(&election, &seen).await;
        let table = self.table.evict(self.at(), &election, &in_table);
        self.note(("evict", &seen), &real);
        self.same(real, Ok(table), |_, real, table| same(real, table))
    }

    /// On what was seen there last; else on what was there before.
    async fn set_office(&mut self) -> Result<(), String> {
        let election = self.election();
        let seen = self.offices.iter().rev().filter(|(of, _)| *of == election).map(|(_, version)| *version);
        let was = seen.take(4).nth(if self.rng.below(4) == 0 { 1 } else { 0 }).unwrap_or(Version::NONE);
        let was_in_table = self.numbers.version_in_table(was);
        // One of two tombstones: which of them is there already may stay.
        let which = self.rng.below(4);
        let ended = Ended::new(Nonce(which), Duration::from_millis(500 + 200 * which));
        let office = Office::default()
            .with_paused(Some(Paused::new("a test")).filter(|_| self.rng.below(2) == 0))
            .with_deposed(Token::new(7).filter(|_| self.rng.below(4) == 0).map(Deposed::new))
            .with_ended(Some(ended).filter(|_| which < 2));
        let real = self.stores[1].set_office(&election, was, &office).await;
        let table = self.table.set_office(self.at(), &election, was_in_table, &office);
        self.note(("set_office", was, &office), &real);
        self.same(real, Ok(table), |_, real, table| same(real, table))?;
        self.look_at(election, 9).await
    }

    async fn look(&mut self) -> Result<(), String> {
        let (election, limit) = (self.election(), self.rng.below(9) as usize);
        self.look_at(election, limit).await
    }

    async fn look_at(&mut self, election: ElectionName, limit: usize) -> Result<(), String> {
        let mut real = self.stores[0].line(&election, limit).await.map_err(|error| error.to_string())?;
        let table = self.table.line(self.at(), &election, limit);
        self.note(("line", &election), &real);
        self.offices.push((election.clone(), real.office.version));
        self.entries.extend(real.entries.iter().map(|entry| (election.clone(), entry.clone())));
        self.numbers.version(&mut real.office.version, table.office.version)?;
        for (real, table) in real.entries.iter_mut().zip(&table.entries) {
            self.numbers.entry(real, table)?;
        }
        real.cursor = table.cursor;
        same(&real, &table)?;
        let elections = self.stores[1].elections(9).await.map_err(|error| error.to_string())?;
        same(&elections, &self.table.elections(self.at(), 9))
    }

    /// Whether the two say the same, once the store's numbers are the table's.
    fn same<T: Debug>(
        &mut self,
        real: Result<T, StoreError>,
        table: Result<T, StoreError>,
        compare: impl FnOnce(&mut Numbers, &mut T, &T) -> Result<(), String>,
    ) -> Result<(), String> {
        match (real, table) {
            (Ok(mut real), Ok(table)) => compare(&mut self.numbers, &mut real, &table),
            (Err(StoreError::AlreadyInLine(mut real)), Err(StoreError::AlreadyInLine(table))) => {
                self.numbers.held(&mut real, &table)?;
                same(&real, &table)
            }
            (Err(StoreError::SessionGone), Err(StoreError::SessionGone)) => Ok(()),
            (real, table) => Err(format!("the store says {real:?},\nthe table {table:?}")),
        }
    }
}

/// One of the last.
fn pick<T: Clone>(rng: &mut Rng, all: &[T]) -> Option<T> {
    let last = all.len().min(4) as u64;
    (last > 0).then(|| all[all.len() - 1 - rng.below(last) as usize].clone())
}

fn same<T: PartialEq + Debug>(real: &T, table: &T) -> Result<(), String> {
    if real == table { Ok(()) } else { Err(format!("the store says {real:?},\nthe table {table:?}")) }
}

/// Which number of the table is which of the store: tokens and versions, which both draw from one
/// counter.
#[derive(Default)]
struct Numbers {
    in_table: BTreeMap<u64, u64>,
    in_store: BTreeMap<u64, u64>,
    newest_token: u64,
}

impl Numbers {
    fn pair(&mut self, real: u64, table: u64) -> Result<(), String> {
        let (known, known_real) = (self.in_table.insert(real, table), self.in_store.insert(table, real));
        let is_new = (known, known_real) == (None, None) && (real == 0) == (table == 0);
        let is_known = (known, known_real) == (Some(table), Some(real));
        if is_new || is_known { Ok(()) } else { Err(format!("{real} was {known:?}, and is {table}")) }
    }

    fn version(&mut self, real: &mut Version, table: Version) -> Result<(), String> {
        self.pair(real.0, table.0)?;
        *real = table;
        Ok(())
    }

    /// One that nobody has seen is greater than all before.
    fn token(&mut self, id: &mut EntryId, real: &mut Token, table: (&EntryId, Token)) -> Result<(), String> {
        let number = real.get();
        if number < self.newest_token && !self.in_table.contains_key(&number) {
            return Err(format!("{number} was drawn after {}", self.newest_token));
        }
        self.newest_token = self.newest_token.max(number);
        same(id, &EntryId::new(format!("{number:016}")))?;
        self.pair(number, table.1.get())?;
        (*id, *real) = (table.0.clone(), table.1);
        Ok(())
    }

    fn held(&mut self, real: &mut Held, table: &Held) -> Result<(), String> {
        self.token(&mut real.entry, &mut real.token, (&table.entry, table.token))
    }

    fn entry(&mut self, real: &mut Entry, table: &Entry) -> Result<(), String> {
        self.token(&mut real.id, &mut real.token, (&table.id, table.token))?;
        self.version(&mut real.version, table.version)
    }

    fn standing(&mut self, real: &mut Standing, table: &Standing) -> Result<(), String> {
        match (&mut real.place, &table.place) {
            (Place::Leading(real), Place::Leading(table)) => self.held(real, table)?,
            (
                Place::Behind { held: Some(held), ahead, look_again, .. },
                Place::Behind { held: Some(held_in_table), ahead: ahead_in_table, look_again: looks_again, .. },
            ) => {
                self.held(held, held_in_table)?;
                self.entry(ahead, ahead_in_table)?;
                *look_again = *looks_again;
            }
            _ => {}
        }
        self.version(&mut real.published, table.published)?;
        self.version(&mut real.office.version, table.office.version)?;
        real.cursor = table.cursor;
        same(real, table)
    }

    fn renewal(&mut self, real: &mut Renewal, table: &Renewal) -> Result<(), String> {
        let (all, in_table) = (real.gone.iter_mut().chain(&mut real.stray), table.gone.iter().chain(&table.stray));
        for (real, table) in all.zip(in_table) {
            self.held(real, table)?;
        }
        // What this store leaves to `standing`.
        real.behind = table.behind.clone();
        same(real, table)
    }

    fn held_in_table(&self, held: &Held) -> Held {
        let (entry, token) = self.token_in_table(held.token);
        Held::new(held.election.clone(), entry, token, held.incarnation)
    }

    fn token_in_table(&self, token: Token) -> (EntryId, Token) {
        let token = Token::new(self.in_table[&token.get()]).unwrap();
        (EntryId::new(token.to_string()), token)
    }

    fn version_in_table(&self, version: Version) -> Version {
        self.in_table.get(&version.0).copied().map_or(Version::NONE, Version)
    }
}
