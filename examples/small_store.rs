//! A whole store, with a server that is a lock around three tables. `cargo run --example
//! small_store` holds an election on it; `cargo test` runs both suites against it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use incumbent::store::{
    BootClock, Cas, Clock, Cursor, ElectionName, Entry, EntryId, Fut, Held, Line, Liveness, NewEntry, Office, Place,
    Promises, Publication, Renewal, Seen, Session, Standing, Store, StoreError, StoreId, Timestamp, Token,
    TokenStrength, Version, Wake, Watched, check_candidate_name, check_value, lock,
};

/// The coordination system. What is done under its lock is one atomic step.
#[derive(Debug)]
struct Server {
    clock: Arc<dyn Clock>,
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    /// Grows with every change of anything, and never goes back: tokens and versions are drawn from
    /// it.
    changes: u64,
    /// The TTL of each session, and when it expires.
    sessions: BTreeMap<u64, (Duration, Timestamp)>,
    /// Each line, oldest entry first, with the session of each entry.
    lines: BTreeMap<ElectionName, BTreeMap<Token, (u64, Entry)>>,
    /// The office records, and when their tombstones go.
    offices: BTreeMap<ElectionName, (Office, Option<Timestamp>)>,
}

impl Server {
    /// One step, now: what has expired by then is gone before anything is looked at.
    fn step(&self) -> (MutexGuard<'_, Tables>, Timestamp) {
        let mut tables = lock(&self.tables);
        let now = self.clock.now();
        tables.expire(now);
        (tables, now)
    }
}

impl Tables {
    fn expire(&mut self, now: Timestamp) {
        let Tables { sessions, lines, offices, .. } = self;
        sessions.retain(|_, (_, expires)| *expires > now);
        for line in lines.values_mut() {
            line.retain(|_, (session, _)| sessions.contains_key(session));
        }
        lines.retain(|_, line| !line.is_empty());
        for (office, tombstone) in offices.values_mut() {
            if tombstone.take_if(|until| *until <= now).is_some() {
                office.ended = None;
            }
        }
        offices.retain(|_, (office, _)| !office.is_blank());
    }

    fn next_change(&mut self) -> u64 {
        self.changes += 1;
        self.changes
    }

    fn office(&self, election: &ElectionName) -> Office {
        self.offices.get(election).map(|(office, _)| office.clone()).unwrap_or_default()
    }

    /// Our entry, if it is there and still ours.
    fn owned(&mut self, session: u64, held: &Held) -> Option<&mut Entry> {
        let (owner, entry) = self.lines.get_mut(&held.election)?.get_mut(&held.token)?;
        (*owner == session && entry.is(held)).then_some(entry)
    }

    /// The only maker of leaders: ours is there, and nothing older is.
    fn standing(&mut self, session: u64, held: &Held) -> Standing {
        let published = self.owned(session, held).map(|entry| entry.version);
        let line = self.lines.get(&held.election);
        let ahead = line.and_then(|line| line.range(..held.token).next_back());
        let place = match (published, ahead) {
            (None, _) => Place::Gone,
            (Some(_), None) => Place::Leading(held.clone()),
            // Nobody is told of changes here, so those who wait look again.
            (Some(_), Some((_, (_, ahead)))) => Place::behind(Some(held.clone()), ahead.clone(), Some(LOOK_AGAIN)),
        };
        let mut standing = Standing::new(place, self.office(&held.election), Cursor(self.changes));
        standing.published = published.unwrap_or(Version::NONE);
        standing
    }

    fn remove(&mut self, election: &ElectionName, token: Token) {
        self.next_change();
        self.lines.entry(election.clone()).or_default().remove(&token);
    }
}

const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// How a client sees the server. Here that is the server itself; elsewhere it is a connection.
#[derive(Clone, Debug)]
struct SmallStore(Arc<Server>);

impl SmallStore {
    fn new(clock: Arc<dyn Clock>) -> SmallStore {
        SmallStore(Arc::new(Server { clock, tables: Mutex::default() }))
    }
}

fn id() -> StoreId {
    StoreId::new("small")
}

impl Store for SmallStore {
    fn promises(&self) -> Fut<'_, Promises> {
        Box::pin(async {
            let mut promises = Promises::new(id());
            promises.tokens = TokenStrength::Process; // nothing is on a disk
            promises.watches = false;
            Ok(promises)
        })
    }

    fn open_session(&self, ttl: Duration) -> Fut<'_, Arc<dyn Session>> {
        Box::pin(async move {
            let (mut tables, now) = self.0.step();
            let number = tables.next_change();
            tables.sessions.insert(number, (ttl, now + ttl));
            let session: Arc<dyn Session> = Arc::new(SmallSession { server: self.0.clone(), number, ttl });
            Ok(session)
        })
    }

    fn line<'a>(&'a self, election: &'a ElectionName, limit: usize) -> Fut<'a, Line> {
        Box::pin(async move {
            let (tables, _) = self.0.step();
            let mut all = tables.lines.get(election).into_iter().flat_map(BTreeMap::values);
            let entries = all.by_ref().take(limit).map(|(_, entry)| entry.clone()).collect();
            Ok(Line::new(entries, all.next().is_some(), tables.office(election), Cursor(tables.changes)))
        })
    }

    /// It promises none.
    fn watch(&self, _election: &ElectionName, _seen: &Seen, _from: Cursor) -> Wake {
        Box::pin(std::future::pending())
    }

    fn set_office<'a>(&'a self, election: &'a ElectionName, was: Version, to: &'a Office) -> Fut<'a, Cas> {
        Box::pin(async move {
            let (mut tables, now) = self.0.step();
            let before = tables.office(election);
            if before.version != was {
                return Ok(Cas::Refused);
            }
            let version = Version(tables.next_change());
            let (_, kept) = tables.offices.remove(election).unwrap_or_default();
            let tombstone = to
                .ended
                .as_ref()
                .and_then(|ended| if before.ended.as_ref() == Some(ended) { kept } else { Some(now + ended.keep) });
            if !to.is_blank() {
                tables.offices.insert(election.clone(), (to.clone().with_version(version), tombstone));
            }
            Ok(Cas::Done)
        })
    }

    fn evict<'a>(&'a self, election: &'a ElectionName, seen: &'a Entry) -> Fut<'a, Cas> {
        Box::pin(async move {
            let (mut tables, _) = self.0.step();
            match tables.lines.get(election).and_then(|line| line.get(&seen.token)) {
                // Made since by another store at the same place, which has counted alike.
                Some((_, entry)) if entry.incarnation != seen.incarnation => {}
                Some((_, entry)) if entry.version != seen.version => return Ok(Cas::Refused),
                Some(_) => tables.remove(election, seen.token),
                None => {}
            }
            Ok(Cas::Done)
        })
    }
}

#[derive(Debug)]
struct SmallSession {
    server: Arc<Server>,
    number: u64,
    ttl: Duration,
}

impl SmallSession {
    /// One step in which this session is certainly alive.
    fn step(&self) -> Result<(MutexGuard<'_, Tables>, Timestamp), StoreError> {
        let (tables, now) = self.server.step();
        if tables.sessions.contains_key(&self.number) { Ok((tables, now)) } else { Err(StoreError::SessionGone) }
    }
}

impl Session for SmallSession {
    fn liveness(&self) -> Liveness {
        Liveness::new(self.ttl)
    }

    fn store_id(&self) -> StoreId {
        id()
    }

    fn renew<'a>(&'a self, held: &'a [Held]) -> Fut<'a, Renewal> {
        Box::pin(async move {
            let (mut tables, now) = self.step()?;
            tables.sessions.insert(self.number, (self.ttl, now + self.ttl));
            let mut renewal = Renewal::alive(self.ttl);
            renewal.gone.extend(held.iter().filter(|held| tables.owned(self.number, held).is_none()).cloned());
            // An enlistment that was given up may have arrived all the same.
            for (election, line) in &tables.lines {
                let ours = line.values().filter(|(session, _)| *session == self.number);
                let all = ours.filter_map(|(_, entry)| held_as(election, entry));
                renewal.stray.extend(all.filter(|one| !held.contains(one)));
            }
            Ok(renewal)
        })
    }

    fn enlist<'a>(&'a self, election: &'a ElectionName, new: &'a NewEntry) -> Fut<'a, Standing> {
        Box::pin(async move {
            check_candidate_name(&new.name)?;
            check_value(&new.value)?;
            let (mut tables, _) = self.step()?;
            let line = tables.lines.get(election).into_iter().flat_map(BTreeMap::values);
            let ours =
                line.filter(|(session, _)| *session == self.number).find_map(|(_, entry)| held_as(election, entry));
            if let Some(held) = ours {
                let is_same = held.incarnation == new.incarnation;
                return if is_same {
                    Ok(tables.standing(self.number, &held))
                } else {
                    Err(StoreError::AlreadyInLine(held))
                };
            }
            // Drawing the token and becoming visible is one step.
            let number = tables.next_change();
            let token = Token::try_from(number).map_err(|error| StoreError::Limit { what: error.to_string() })?;
            let mut entry = Entry::new(EntryId::new(number.to_string()), token);
            entry.incarnation = Some(new.incarnation);
            entry.name = Some(new.name.clone());
            (entry.value, entry.merit) = (new.value.clone(), new.merit);
            entry.version = Version(number);
            let held = Held::new(election.clone(), entry.id.clone(), token, new.incarnation);
            tables.lines.entry(election.clone()).or_default().insert(token, (self.number, entry));
            Ok(tables.standing(self.number, &held))
        })
    }

    fn standing<'a>(&'a self, held: &'a Held, _behind: Option<&'a EntryId>) -> Fut<'a, Standing> {
        Box::pin(async move { Ok(self.step()?.0.standing(self.number, held)) })
    }

    fn watch(&self, _watched: &Watched, _from: Cursor) -> Wake {
        Box::pin(std::future::pending())
    }

    fn publish<'a>(&'a self, held: &'a Held, was: Version, said: &'a Publication) -> Fut<'a, Option<Version>> {
        Box::pin(async move {
            check_value(&said.value)?;
            let (mut tables, _) = self.server.step();
            let version = Version(tables.next_change());
            let Some(entry) = tables.owned(self.number, held).filter(|entry| entry.version == was) else {
                return Ok(None);
            };
            (entry.value, entry.ready, entry.merit) = (said.value.clone(), said.ready, said.merit);
            entry.version = version;
            Ok(Some(version))
        })
    }

    fn withdraw<'a>(&'a self, held: &'a Held, heir: Option<&'a EntryId>) -> Fut<'a, Cas> {
        Box::pin(async move {
            let (mut tables, _) = self.server.step();
            if tables.owned(self.number, held).is_none() {
                return Ok(Cas::Done);
            }
            let mut line = tables.lines.get(&held.election).into_iter().flat_map(BTreeMap::values);
            if heir.is_some_and(|heir| !line.any(|(_, entry)| entry.id == *heir)) {
                return Ok(Cas::Refused);
            }
            tables.remove(&held.election, held.token);
            Ok(Cas::Done)
        })
    }

    fn close(&self) -> Fut<'_, ()> {
        Box::pin(async move {
            let (mut tables, now) = self.server.step();
            tables.sessions.remove(&self.number);
            tables.expire(now);
            Ok(())
        })
    }
}

/// An entry as its owner holds it. Another library's has no incarnation.
fn held_as(election: &ElectionName, entry: &Entry) -> Option<Held> {
    Some(Held::new(election.clone(), entry.id.clone(), entry.token, entry.incarnation?))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = SmallStore::new(Arc::new(BootClock));
    let client = incumbent::Client::builder().with_store(store).await?;
    let mut candidacy = client.election("jobs")?.candidate("node-1").stand().await?;
    let leadership = candidacy.elected().await?.ok_or("the election has ended")?;
    println!("node-1 leads under token {}", leadership.token().get());
    leadership.leave().await?;
    Ok(())
}

#[cfg(test)]
mod suites {
    use incumbent::store::TokioClock;
    use incumbent_testkit::conformance::{Harness, Time};

    use super::*;

    struct Small(SmallStore);

    impl Harness for Small {
        async fn store(&self) -> Arc<dyn Store> {
            Arc::new(self.0.clone())
        }

        fn ttl(&self) -> Duration {
            Duration::from_secs(2)
        }
    }

    fn small(clock: impl Clock) -> Small {
        Small(SmallStore::new(Arc::new(clock)))
    }

    incumbent_testkit::conformance!(conformance, Time::Virtual, small(TokioClock::new()));
    incumbent_testkit::elections!(elections, Time::Virtual, small(TokioClock::new()));
    incumbent_testkit::conformance!(threads, Time::Real, small(BootClock));

    #[test]
    fn the_page_quotes_this_file() {
        let file = include_str!("small_store.rs");
        let quoted = file.split_once("#[cfg(test)]").map(|(store, _)| store.trim_end());
        let page = include_str!("../docs/writing-a-store.md");
        let block = page.split_once("```rust\n//! A whole store").and_then(|(_, rest)| rest.split_once("\n```"));
        let block = block.map(|(block, _)| format!("//! A whole store{block}"));
        assert!(block.as_deref() == quoted, "copy examples/small_store.rs, up to its tests, into the page");
    }
}
