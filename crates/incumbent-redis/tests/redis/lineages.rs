//! Random histories in which another history of the server goes on now and then, often one that
//! lacks the newest steps, as a replica does that lagged: tokens grow, no two lead at once, entries
//! that never led are gone, and no leader loses its office that was known. Variants of the scripts
//! that get it wrong are noticed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Write};
use std::sync::Arc;
use std::time::Duration;

use incumbent_redis::RedisStore;
use incumbent_store::{
    Cas, ElectionName, Held, Incarnation, NewEntry, Place, Session, Standing, Store, StoreError, StoreId, Token,
};
use incumbent_testkit::candidates::held_of;
use incumbent_testkit::fuzz::Rng;

use crate::harness::named;
use crate::timed::{Flaw, TimedServer, play};

const HISTORIES: u64 = if cfg!(feature = "faults") { 3_000 } else { 100 };
/// A variant that is not noticed by then is not noticed.
const UNTIL_NOTICED: u64 = 400;
const STEPS: u64 = 120;
const PARTICIPANTS: usize = 4;
/// In milliseconds.
const TTLS: [u64; 4] = [500, 800, 1_100, 1_900];
const LONGEST_STEP: u64 = 200;

#[tokio::test]
async fn whatever_a_failover_loses_tokens_grow_and_no_two_lead_at_once() {
    play(&[], 0..HISTORIES, History::play).await.unwrap_or_else(|why| panic!("{why}"));
}

/// Each known-bad variant is what is written in a script, and what is put there instead; and what
/// is noticed of it.
const FLAWS: [(&[Flaw], &str); 7] = [
    // Tokens do not leap.
    (&[("going_on = math.max(going_on + LOST_AT_MOST + since, change_by_clock)", "")], "founded anew"),
    // Nor does it count that others knew more.
    (
        &[
            ("going_on = math.max(going_on + LOST_AT_MOST + since, change_by_clock)", ""),
            ("or knows_more or newest > going_on", ""),
            ("if knows_more and not is_taken_over and KNOWN_LINEAGE ~= lineage then", "if false then"),
        ],
        "was drawn after",
    ),
    // Entries stay that never led.
    (&[("if call('HGET', LED, election) ~= token then\n      remove(", "if false then\n      remove(")], "never led"),
    // Nobody waits for a leader that may be forgotten.
    (&[("return math.max(hold, taken_over + ttl_of(session)) - clock", "return 0")], "and so does"),
    // A session lives on that may have been succeeded; and none gets its TTL again.
    (&[("if is_living and PROVEN then", "if is_living then")], " after "),
    (&[("extend(session)\n    call('ZADD', SESSIONS, '+inf'", "call('ZADD', SESSIONS, '+inf'")], "is gone"),
    // It is not kept who was told that it leads.
    (&[("call('HSET', LED, election, token)\n  end\n  return standing(", "end\n  return standing(")], "is gone"),
];

#[tokio::test]
async fn each_rule_of_a_new_lineage_that_is_left_out_is_noticed() {
    for (flaws, what) in FLAWS {
        let Err(why) = play(flaws, 0..UNTIL_NOTICED, History::play).await else {
            panic!("it is not noticed: {flaws:?}")
        };
        assert!(why.lines().next().is_some_and(|why| why.contains(what)), "{flaws:?}: {why}");
    }
}

struct History<'a> {
    server: &'a TimedServer,
    prefix: String,
    rng: Rng,
    now: Duration,
    step: u64,
    stores: [RedisStore; 2],
    id: StoreId,
    elections: [ElectionName; 2],
    participants: Vec<Participant>,
    /// All have the same. `None`: each has one of its own. Then the first has the longest, and
    /// stays alive: a forgotten leader with a longer TTL than all who are known cannot be waited
    /// for.
    ttl: Option<Duration>,
    /// At which step the store was kept as it was, unless an operator has ordered something since.
    kept: Option<u64>,
    /// The highest token that was drawn, now and when this history of the server began.
    newest: u64,
    newest_before: u64,
    /// Who was told that it leads.
    told: BTreeSet<Token>,
    /// The highest of those.
    led: BTreeMap<ElectionName, Token>,
    past: String,
}

struct Participant {
    session: Arc<dyn Session>,
    ttl: Duration,
    renewed: Duration,
    held: Vec<Held>,
    leads: BTreeMap<ElectionName, Belief>,
}

/// Of one that was told that it leads, and nothing else since.
#[derive(Clone, Copy, Debug)]
struct Belief {
    token: Token,
    /// At which step it was told so first.
    since: u64,
    /// By the history that goes on.
    is_forgotten: bool,
}

impl Participant {
    /// Until when it may believe that it leads.
    fn deadline(&self) -> Duration {
        self.renewed + self.ttl
    }
}

impl History<'_> {
    async fn play(server: &TimedServer, seed: u64) -> Result<(), String> {
        let mut history = History::begin(server, seed).await;
        for _ in 0..STEPS {
            history.step().await.map_err(|why| format!("{why}\nafter{}", history.past))?;
        }
        history.end().await.map_err(|why| format!("{why}\nafter{}", history.past))
    }

    async fn begin(server: &TimedServer, seed: u64) -> History<'_> {
        let (prefix, now, mut rng) = (format!("lineage-{seed}"), Duration::ZERO, Rng::from_number(seed));
        server.set_time(now).await;
        let stores = [server.open(&prefix), server.open(&prefix)];
        let ttl = (rng.below(2) == 0).then(|| random_ttl(&mut rng));
        let mut history = History {
            id: stores[0].identity().await.unwrap(),
            stores,
            server,
            prefix,
            rng,
            now,
            step: 0,
            elections: ["jobs", "jobs/nightly"].map(named),
            participants: Vec::new(),
            ttl,
            kept: None,
            newest: 0,
            newest_before: 0,
            told: BTreeSet::new(),
            led: BTreeMap::new(),
            past: String::new(),
        };
        for number in 0..PARTICIPANTS {
            let participant = history.open(number).await;
            history.participants.push(participant);
        }
        history
    }

    async fn open(&mut self, number: usize) -> Participant {
        let ttl = self
            .ttl
            .unwrap_or_else(|| if number == 0 { Duration::from_millis(TTLS[3]) } else { random_ttl(&mut self.rng) });
        let session = self.stores[number % 2].open_session(ttl).await.unwrap();
        self.note(("open", number), &ttl);
        Participant { session, ttl, renewed: self.now, held: Vec::new(), leads: BTreeMap::new() }
    }

    fn note(&mut self, what: impl Debug, answer: &impl Debug) {
        let _ = write!(self.past, "\n{:?} {what:?}: {answer:?}", self.now);
    }

    async fn step(&mut self) -> Result<(), String> {
        self.step += 1;
        let passes = if self.rng.below(3) == 0 { 0 } else { self.rng.below(LONGEST_STEP) };
        self.pass(passes).await;
        let first = &self.participants[0];
        if self.ttl.is_none() && self.now - first.renewed >= first.ttl / 2 {
            self.renew(0).await?;
        }
        let number = self.rng.below(PARTICIPANTS as u64) as usize;
        let election = self.elections[self.rng.below(2) as usize].clone();
        match self.rng.below(32) {
            0 if number > 0 => self.close(number).await,
            1..10 => self.renew(number).await,
            10..15 => self.enlist(number, election).await,
            15..24 => match self.pick(number) {
                None => self.renew(number).await,
                Some(held) if self.rng.below(4) > 0 => self.standing(number, held).await,
                Some(held) => self.withdraw(number, held).await,
            },
            24 => self.evict(election).await,
            25..27 => self.look(election).await,
            27..30 => self.keep().await,
            _ => self.fail_over().await,
        }
    }

    async fn pass(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
        self.server.set_time(self.now).await;
    }

    async fn keep(&mut self) -> Result<(), String> {
        self.server.keep(&self.prefix).await;
        self.kept = Some(self.step);
        self.note("keep", &());
        Ok(())
    }

    async fn fail_over(&mut self) -> Result<(), String> {
        // Of two that go on from the same change the later one gives the higher tokens: no two take
        // over in the same millisecond.
        self.pass(1).await;
        let kept = self.kept.take().filter(|_| self.rng.below(4) > 0);
        self.server.fail_over(&self.prefix, kept.is_some()).await;
        self.newest_before = self.newest;
        let beliefs = self.participants.iter_mut().flat_map(|participant| participant.leads.values_mut());
        beliefs.for_each(|belief| belief.is_forgotten |= kept.is_some_and(|kept| kept < belief.since));
        self.note("fail over to", &kept);
        Ok(())
    }

    async fn close(&mut self, number: usize) -> Result<(), String> {
        self.participants[number].session.close().await.map_err(|error| error.to_string())?;
        self.note("close", &number);
        self.participants[number] = self.open(number).await;
        Ok(())
    }

    /// What the session is told, unless it is gone, or nobody takes office yet.
    async fn answered<T: Debug>(
        &mut self,
        number: usize,
        what: impl Debug,
        answer: Result<T, StoreError>,
    ) -> Result<Option<T>, String> {
        self.note((what, number), &answer);
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(StoreError::Unavailable { .. }) => Ok(None),
            Err(StoreError::SessionGone) => {
                let held = std::mem::take(&mut self.participants[number].held);
                held.iter().try_for_each(|held| self.gone(number, held))?;
                self.participants[number] = self.open(number).await;
                Ok(None)
            }
            Err(error) => Err(format!("{error:?}")),
        }
    }

    /// It is told that it has lost its place. No leader is that was renewed in time, unless it was
    /// forgotten.
    fn gone(&mut self, number: usize, held: &Held) -> Result<(), String> {
        let participant = &mut self.participants[number];
        participant.held.retain(|other| other.token != held.token);
        let Some(belief) = participant.leads.get(&held.election).filter(|belief| belief.token == held.token) else {
            return Ok(());
        };
        if self.now + participant.ttl / 1_000 < participant.deadline() && !belief.is_forgotten {
            return Err(format!("{belief:?} of {number} is gone"));
        }
        participant.leads.remove(&held.election);
        Ok(())
    }

    async fn renew(&mut self, number: usize) -> Result<(), String> {
        let named = self.participants[number].held.clone();
        let renewal = self.participants[number].session.renew(&named).await;
        let Some(renewal) = self.answered(number, "renew", renewal).await? else { return Ok(()) };
        renewal.gone.iter().try_for_each(|held| self.gone(number, held))?;
        self.participants[number].renewed = self.now;
        for stray in renewal.stray {
            let withdrawn = self.participants[number].session.withdraw(&stray, None).await;
            self.answered(number, "withdraw", withdrawn).await?;
        }
        Ok(())
    }

    async fn enlist(&mut self, number: usize, election: ElectionName) -> Result<(), String> {
        let held = self.participants[number].held.iter().find(|held| held.election == election);
        if let Some(held) = held.cloned() {
            return self.standing(number, held).await;
        }
        let entry = NewEntry::new(Incarnation::from_bits(self.step.into()), "node", "value");
        let session = self.participants[number].session.clone();
        let standing = match session.enlist(&election, &entry).await {
            Err(StoreError::AlreadyInLine(held)) => {
                let withdrawn = session.withdraw(&held, None).await;
                return self.answered(number, "withdraw", withdrawn).await.map(|_| ());
            }
            standing => standing,
        };
        let Some(standing) = self.answered(number, "enlist", standing).await? else { return Ok(()) };
        let Some(held) = held_of(&standing) else { return Err(format!("it enlists, and is told {standing:?}")) };
        if held.token.get() <= self.newest {
            return Err(format!("{} was drawn after {}", held.token, self.newest));
        }
        self.newest = held.token.get();
        self.participants[number].held.push(held);
        self.stands(number, standing)
    }

    async fn standing(&mut self, number: usize, held: Held) -> Result<(), String> {
        let standing = self.participants[number].session.standing(&held, None).await;
        let Some(standing) = self.answered(number, ("standing", held.token), standing).await? else { return Ok(()) };
        if standing.place == Place::Gone {
            return self.gone(number, &held);
        }
        self.stands(number, standing)
    }

    fn pick(&mut self, number: usize) -> Option<Held> {
        let held = &self.participants[number].held;
        let at = self.rng.below(held.len().max(1) as u64) as usize;
        held.get(at).cloned()
    }

    fn stands(&mut self, number: usize, standing: Standing) -> Result<(), String> {
        let Place::Leading(Held { election, token, .. }) = standing.place else { return Ok(()) };
        for (other, participant) in self.participants.iter().enumerate().filter(|(other, _)| *other != number) {
            if participant.leads.contains_key(&election) && self.now < participant.deadline() {
                return Err(format!("{number} leads {election} with {token}, and so does {other}"));
            }
        }
        let led = self.led.entry(election.clone()).or_insert(token);
        if *led > token {
            return Err(format!("{token} leads {election} after {led}"));
        }
        *led = token;
        self.told.insert(token);
        let belief = Belief { token, since: self.step, is_forgotten: false };
        let beliefs = &mut self.participants[number].leads;
        if beliefs.get(&election).is_none_or(|known| known.token != token || known.is_forgotten) {
            beliefs.insert(election, belief);
        }
        Ok(())
    }

    async fn withdraw(&mut self, number: usize, held: Held) -> Result<(), String> {
        let withdrawn = self.participants[number].session.withdraw(&held, None).await;
        self.answered(number, ("withdraw", held.token), withdrawn).await?;
        let participant = &mut self.participants[number];
        participant.held.retain(|other| other.token != held.token);
        participant.leads.retain(|_, belief| belief.token != held.token);
        Ok(())
    }

    /// One that a failover loses leads on, which only the fence refuses: no eviction is lost here.
    async fn evict(&mut self, election: ElectionName) -> Result<(), String> {
        let Ok(line) = self.stores[0].line(&election, 9).await else { return Ok(()) };
        let Some(seen) = line.entries.first() else { return Ok(()) };
        let evicted = self.stores[0].evict(&election, seen).await;
        self.note(("evict", seen.token), &evicted);
        if !matches!(evicted, Ok(Cas::Done)) {
            return Err(format!("{evicted:?}"));
        }
        self.kept = None;
        for participant in &mut self.participants {
            participant.leads.retain(|_, belief| belief.token != seen.token);
        }
        Ok(())
    }

    /// It is the same store still, and nothing came over that never led.
    async fn look(&mut self, election: ElectionName) -> Result<(), String> {
        let (line, id) = (self.stores[0].line(&election, 9).await, self.stores[1].identity().await.unwrap());
        self.note(("line", &election), &line);
        if id != self.id {
            return Err("the store was founded anew".to_owned());
        }
        let line = match line {
            Ok(line) => line,
            Err(StoreError::Unavailable { .. }) => return Ok(()),
            Err(error) => return Err(format!("{error:?}")),
        };
        let came_over = line
            .entries
            .iter()
            .find(|entry| entry.token.get() <= self.newest_before && !self.told.contains(&entry.token));
        came_over.map_or(Ok(()), |entry| Err(format!("{} never led, and is there", entry.token)))
    }

    /// Nothing is stuck: when all others are gone, and all have been waited for that may be
    /// forgotten, one who comes leads.
    async fn end(&mut self) -> Result<(), String> {
        let (step, longest) = (TTLS[0] * 3 / 8, TTLS[3]);
        for _ in 0..2 * longest.div_ceil(step) {
            self.pass(step).await;
            self.renew(0).await?;
        }
        for election in self.elections.clone() {
            self.enlist(0, election.clone()).await?;
            if !self.participants[0].leads.contains_key(&election) {
                return Err(format!("nobody leads {election}"));
            }
        }
        Ok(())
    }
}

fn random_ttl(rng: &mut Rng) -> Duration {
    Duration::from_millis(TTLS[rng.below(4) as usize])
}
