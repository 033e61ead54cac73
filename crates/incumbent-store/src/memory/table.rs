//! What the memory store knows, and every step it can make: each method is one atomic step.
//!
//! It is pure: time comes in as an argument, and what a step touched comes out, for watches. The
//! memory store puts it behind a lock; the simulation puts it behind a network that loses, delays
//! and doubles.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use incumbent_core::{
    Cas, Cursor, ElectionName, Entry, EntryId, ForgottenBy, Head, Held, Incarnation, Line, Liveness, Merit, NewEntry,
    Nonce, Observed, Office, Place, Publication, Renewal, Seen, Standing, StillBehind, StoreId, Timestamp, Token,
    Version, WatchFor, Watched, check_candidate_name, check_value,
};

use crate::{LineKind, StoreError};

/// How a memory store behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Whether there is a line.
    pub line: LineKind,
    /// Whether changes are told.
    pub watches: bool,
    /// Who removes those that fell silent.
    pub forgotten_by: ForgottenBy,
    /// Whether rivals who time the silent share one clock with them.
    pub one_clock: bool,
}

impl Shape {
    /// A fair line with watches, like etcd, ZooKeeper, Redis and PostgreSQL.
    pub const FAIR: Shape =
        Shape { line: LineKind::Fair, watches: true, forgotten_by: ForgottenBy::Store, one_clock: false };
    /// One record and no watch, like Redlock.
    pub const SINGLE: Shape = Shape { line: LineKind::Single, watches: false, ..Shape::FAIR };
    /// Nothing expires by itself, and everyone has a clock of its own.
    pub const OBSERVED: Shape = Shape { forgotten_by: ForgottenBy::Rivals, ..Shape::FAIR };
    /// Nothing expires by itself, and everyone has the same clock, like a directory of one host.
    pub const ONE_HOST: Shape = Shape { one_clock: true, ..Shape::OBSERVED };
    /// All four.
    pub const ALL: [Shape; 4] = [Shape::FAIR, Shape::SINGLE, Shape::OBSERVED, Shape::ONE_HOST];
}

/// The memory store's name for a session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionKey(u64);

/// All that the memory store knows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Table {
    shape: Shape,
    id: StoreId,
    /// Grows with every change. Tokens, versions and cursors are all points on it, so none ever
    /// comes back.
    change: u64,
    sessions: BTreeMap<SessionKey, SessionRow>,
    /// Which entry a session has in which election. One map for all: most sessions stand in few
    /// elections, and a map for each would be mostly empty room. `None` comes before every
    /// election, for ranges to begin with.
    places: BTreeMap<(SessionKey, Option<ElectionName>), Token>,
    elections: BTreeMap<ElectionName, ElectionRow>,
    /// The sessions that the store forgets, by when: every step looks for those that are due.
    session_ends: BTreeSet<(Timestamp, SessionKey)>,
    /// The tombstones, by when they go.
    tombstone_ends: BTreeSet<(Timestamp, ElectionName)>,
    touched: Vec<(ElectionName, Touch)>,
}

/// What a step has touched in an election: what those who wait are found by.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Touch {
    /// The office record.
    Office,
    /// Another entry is first, or the first says something else.
    Head,
    /// This entry is gone.
    Gone(EntryId),
    /// This entry is gone, or says something else.
    Entry(EntryId),
}

impl Touch {
    /// What a watch waits for.
    pub fn of(what: &WatchFor) -> Vec<Touch> {
        match what {
            WatchFor::Entry(_, watched) => Touch::of_entry(watched),
            WatchFor::Election(_, seen) => Touch::of_election(seen),
        }
    }

    /// What one who has an entry waits for.
    pub fn of_entry(watched: &Watched) -> Vec<Touch> {
        let Watched { held, ahead, heir, .. } = watched;
        let mut touches = vec![Touch::Office, Touch::Gone(held.entry.clone())];
        touches.extend(ahead.clone().map(Touch::Gone));
        touches.extend(heir.clone().map(Touch::Entry));
        touches
    }

    /// What one without an entry waits for.
    pub fn of_election(seen: &Seen) -> Vec<Touch> {
        let mut touches = vec![Touch::Office];
        touches.extend((seen.head != Head::Ignored).then_some(Touch::Head));
        touches.extend(seen.last.clone().map(Touch::Gone));
        touches
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SessionRow {
    ttl: Duration,
    expires_at: Timestamp,
    renewed_at: Timestamp,
    renewed: u64,
    /// Nobody will call for it any more: it goes with its last entry.
    abandoned: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct ElectionRow {
    /// Boxed, like the record: with ten thousand elections most lines are short and most offices
    /// say nothing.
    entries: BTreeMap<Token, Box<EntryRow>>,
    /// `None`: there is no record.
    office: Option<Box<OfficeRow>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OfficeRow {
    office: Office,
    tombstone_until: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct EntryRow {
    id: EntryId,
    /// `None`: a foreign candidate, which stays until it is removed.
    owner: Option<(SessionKey, Incarnation)>,
    name: Option<Arc<str>>,
    value: Bytes,
    ready: Option<Nonce>,
    merit: Merit,
    changed: u64,
    enlisted_at: Timestamp,
}

impl Table {
    /// An empty table.
    pub fn new(shape: Shape, id: StoreId) -> Table {
        Table {
            shape,
            id,
            change: 0,
            sessions: BTreeMap::new(),
            places: BTreeMap::new(),
            elections: BTreeMap::new(),
            session_ends: BTreeSet::new(),
            tombstone_ends: BTreeSet::new(),
            touched: Vec::new(),
        }
    }

    /// How it behaves.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Which store it is.
    pub fn id(&self) -> &StoreId {
        &self.id
    }

    /// Whether nothing is left: no entry, no office record, no session.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.elections.is_empty()
    }

    /// What the steps so far have touched, for those who wait.
    pub fn take_touched(&mut self) -> Vec<(ElectionName, Touch)> {
        std::mem::take(&mut self.touched)
    }

    /// When the next session or tombstone is due to go, if nothing happens before.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        let session = self.session_ends.first().map(|(at, _)| *at);
        let tombstone = self.tombstone_ends.first().map(|(at, _)| *at);
        session.into_iter().chain(tombstone).min()
    }

    /// Removes the sessions and tombstones whose time has passed.
    pub fn expire(&mut self, now: Timestamp) {
        while let Some((_, key)) = self.session_ends.first().copied().filter(|(at, _)| *at <= now) {
            self.drop_session(key);
        }
        while let Some((at, election)) = self.tombstone_ends.first().filter(|(at, _)| *at <= now).cloned() {
            let mut office = self.office(&election);
            office.ended = None;
            self.write_office(now, &election, office);
            debug_assert!(!self.tombstone_ends.contains(&(at, election)), "a tombstone goes once");
        }
    }

    /// Starts every session's TTL again, as a failover of the server does.
    pub fn extend_all(&mut self, now: Timestamp, by: Duration) {
        for (key, session) in &mut self.sessions {
            if self.session_ends.remove(&(session.expires_at, *key)) {
                self.session_ends.insert((now + session.ttl + by, *key));
            }
            session.expires_at = now + session.ttl + by;
        }
    }

    /// Forgets every session, and with them their entries.
    pub fn forget_sessions(&mut self) {
        let keys: Vec<_> = self.sessions.keys().copied().collect();
        keys.into_iter().for_each(|key| self.drop_session(key));
    }

    /// Opens a session.
    pub fn open_session(&mut self, now: Timestamp, ttl: Duration) -> (SessionKey, Liveness) {
        self.expire(now);
        let renewed = self.next_change();
        let key = SessionKey(renewed);
        let expires_at = now + ttl;
        self.sessions.insert(key, SessionRow { ttl, expires_at, renewed_at: now, renewed, abandoned: false });
        if self.store_forgets() {
            self.session_ends.insert((expires_at, key));
        }
        let mut liveness = Liveness::new(ttl);
        liveness.forgotten_by = self.shape.forgotten_by;
        if self.shape.line == LineKind::Single {
            // Twice the time after which those who wait look again.
            liveness.rest = ttl / 5;
        }
        (key, liveness)
    }

    /// The store counts another TTL for this session, from now on: a connection that was made again
    /// may do that.
    pub fn change_ttl(&mut self, now: Timestamp, key: SessionKey, ttl: Duration) {
        self.expire(now);
        let Some(session) = self.sessions.get_mut(&key) else { return };
        session.ttl = ttl;
        let was = std::mem::replace(&mut session.expires_at, now + ttl);
        if self.session_ends.remove(&(was, key)) {
            self.session_ends.insert((now + ttl, key));
        }
    }

    /// Nobody will use the session any more, and nobody has closed it: its entries stay until they
    /// expire or rivals remove them, as those of a process that died. The session itself is then
    /// forgotten, too.
    pub fn abandon_session(&mut self, key: SessionKey) {
        if let Some(session) = self.sessions.get_mut(&key) {
            session.abandoned = true;
        }
        self.forget_if_abandoned(key);
    }

    /// Ends a session and removes its entries.
    pub fn close_session(&mut self, key: SessionKey) {
        self.drop_session(key);
    }

    /// Proof of life. See [`Session::renew`](crate::Session::renew).
    pub fn renew(&mut self, now: Timestamp, key: SessionKey, held: &[Held]) -> Result<Renewal, StoreError> {
        self.expire(now);
        let store_forgets = self.store_forgets();
        let renewed = self.next_change();
        let session = self.sessions.get_mut(&key).ok_or(StoreError::SessionGone)?;
        let was = std::mem::replace(&mut session.expires_at, now + session.ttl);
        session.renewed_at = now;
        session.renewed = renewed;
        if store_forgets && was != session.expires_at {
            self.session_ends.remove(&(was, key));
            self.session_ends.insert((session.expires_at, key));
        }
        let ttl = session.ttl;
        let (owned, gone): (Vec<_>, Vec<_>) = held.iter().partition(|held| self.owns(key, held));
        let named: HashSet<Token> = owned.iter().map(|held| held.token).collect();
        let stray = self.places_of(key).filter(|(_, token)| !named.contains(token));
        let mut renewal = Renewal::alive(ttl);
        renewal.stray.extend(stray.filter_map(|(election, token)| self.held(election, token)));
        renewal.gone.extend(gone.into_iter().cloned());
        renewal.behind.extend(owned.iter().filter_map(|held| self.still_behind(now, key, held)));
        Ok(renewal)
    }

    /// Enters the line. See [`Session::enlist`](crate::Session::enlist).
    pub fn enlist(
        &mut self,
        now: Timestamp,
        key: SessionKey,
        election: &ElectionName,
        entry: &NewEntry,
    ) -> Result<Standing, StoreError> {
        check_candidate_name(&entry.name)?;
        check_value(&entry.value)?;
        self.expire(now);
        let session = self.sessions.get(&key).ok_or(StoreError::SessionGone)?;
        if let Some(token) = self.place(key, election) {
            let held = self.held(election, token).ok_or(StoreError::SessionGone)?;
            if held.incarnation != entry.incarnation {
                return Err(StoreError::AlreadyInLine(held));
            }
            return Ok(self.standing_of(now, key, &held));
        }
        if self.shape.line == LineKind::Single
            && let Some((token, row)) = self.first(election)
        {
            let ahead = self.entry(now, token, row);
            let look_again = Some(session.ttl / 10);
            return Ok(self.stand(election, Place::behind(None, ahead, look_again)));
        }
        let token = self.next_token();
        Ok(self.insert(now, key, election, entry, token))
    }

    /// Where an entry stands. See [`Session::standing`](crate::Session::standing).
    pub fn standing(&mut self, now: Timestamp, key: SessionKey, held: &Held) -> Result<Standing, StoreError> {
        self.expire(now);
        if !self.sessions.contains_key(&key) {
            return Err(StoreError::SessionGone);
        }
        Ok(self.standing_of(now, key, held))
    }

    /// Changes an entry. See [`Session::publish`](crate::Session::publish).
    pub fn publish(
        &mut self,
        now: Timestamp,
        key: SessionKey,
        held: &Held,
        was: Version,
        said: &Publication,
    ) -> Result<Option<Version>, StoreError> {
        check_value(&said.value)?;
        self.expire(now);
        if !self.owns(key, held) || self.published(held) != was {
            return Ok(None);
        }
        let changed = self.next_change();
        let leads = self.first(&held.election).is_some_and(|(token, _)| token == held.token);
        let row = self.elections.get_mut(&held.election).and_then(|row| row.entries.get_mut(&held.token));
        if let Some(entry) = row {
            (entry.value, entry.ready, entry.merit) = (said.value.clone(), said.ready, said.merit);
            entry.changed = changed;
            self.touched.push((held.election.clone(), Touch::Entry(held.entry.clone())));
            if leads {
                self.touched.push((held.election.clone(), Touch::Head));
            }
        }
        Ok(Some(Version(changed)))
    }

    fn published(&self, held: &Held) -> Version {
        self.entry_row(&held.election, &held.entry).map_or(Version::NONE, |(_, row)| Version(row.changed))
    }

    /// Leaves the line. See [`Session::withdraw`](crate::Session::withdraw).
    pub fn withdraw(
        &mut self,
        now: Timestamp,
        key: SessionKey,
        held: &Held,
        heir: Option<&EntryId>,
    ) -> Result<Cas, StoreError> {
        self.expire(now);
        if !self.owns(key, held) {
            return Ok(Cas::Done);
        }
        if let Some(heir) = heir
            && !self.has_entry(&held.election, heir)
        {
            return Ok(Cas::Refused);
        }
        self.remove(&held.election, held.token);
        Ok(Cas::Done)
    }

    /// Which elections there are. See [`Store::elections`](crate::Store::elections).
    pub fn elections(&mut self, now: Timestamp, limit: usize) -> Vec<ElectionName> {
        self.expire(now);
        self.elections.keys().take(limit).cloned().collect()
    }

    /// Who is in line. See [`Store::line`](crate::Store::line).
    pub fn line(&mut self, now: Timestamp, election: &ElectionName, limit: usize) -> Line {
        self.expire(now);
        let row = self.elections.get(election);
        let mut rows = row.into_iter().flat_map(|row| &row.entries);
        let entries = rows.by_ref().take(limit).map(|(token, row)| self.entry(now, *token, row)).collect();
        let more = rows.next().is_some();
        Line::new(entries, more, self.office(election), Cursor(self.change))
    }

    /// Whether a watch that starts at `from` has something to say already.
    pub fn wakes(&self, what: &WatchFor, from: Cursor) -> bool {
        match what {
            WatchFor::Entry(_, watched) => self.has_changed(watched, from),
            WatchFor::Election(election, seen) => self.looks_different(election, seen, from),
        }
    }

    /// Whether one who has an entry has something to look at. See
    /// [`Session::watch`](crate::Session::watch).
    pub fn has_changed(&self, watched: &Watched, from: Cursor) -> bool {
        let Watched { held, office, ahead, heir, .. } = watched;
        let election = &held.election;
        let gone = |id: &EntryId| !self.has_entry(election, id);
        self.office(election).version != *office
            || gone(&held.entry)
            || ahead.as_ref().is_some_and(gone)
            || heir.as_ref().is_some_and(|heir| self.says_something_else(election, heir, from))
    }

    /// Whether the election is no longer as it was seen. See [`Store::watch`](crate::Store::watch).
    pub fn looks_different(&self, election: &ElectionName, seen: &Seen, from: Cursor) -> bool {
        let first = self.first(election).map(|(_, row)| &row.id);
        let other_head = match &seen.head {
            Head::Ignored => false,
            Head::Nobody => first.is_some(),
            Head::Is(head) => first != Some(head) || self.says_something_else(election, head, from),
        };
        let last_is_gone = || seen.last.as_ref().is_some_and(|last| !self.has_entry(election, last));
        self.office(election).version != seen.office || other_head || last_is_gone()
    }

    fn says_something_else(&self, election: &ElectionName, id: &EntryId, from: Cursor) -> bool {
        self.entry_row(election, id).is_none_or(|(_, entry)| entry.changed > from.0)
    }

    /// Writes the office record. See [`Store::set_office`](crate::Store::set_office).
    pub fn set_office(&mut self, now: Timestamp, election: &ElectionName, was: Version, to: &Office) -> Cas {
        self.expire(now);
        if self.office(election).version != was {
            return Cas::Refused;
        }
        self.write_office(now, election, to.clone());
        Cas::Done
    }

    /// Removes exactly what was seen. See [`Store::evict`](crate::Store::evict).
    pub fn evict(&mut self, now: Timestamp, election: &ElectionName, seen: &Entry) -> Cas {
        self.expire(now);
        match self.entry_row(election, &seen.id) {
            Some((token, row)) if token == seen.token => {
                let there = self.entry(now, token, row);
                if there.incarnation != seen.incarnation {
                    return Cas::Done;
                }
                if there.version != seen.version {
                    return Cas::Refused;
                }
                self.remove(election, token);
                Cas::Done
            }
            _ => Cas::Done,
        }
    }

    /// Puts a candidate of another library in line: no incarnation, no name, no session.
    pub fn enlist_foreign(&mut self, election: &ElectionName, value: Bytes) -> Entry {
        let token = self.next_token();
        // It has no session, and so there is nothing to time.
        let enlisted_at = Timestamp::ZERO;
        let (id, changed) = (id_of(token), token.get());
        let row =
            EntryRow { id, owner: None, name: None, value, ready: None, merit: Merit::default(), changed, enlisted_at };
        let entry = self.entry(enlisted_at, token, &row);
        self.insert_row(election, token, row);
        entry
    }

    fn store_forgets(&self) -> bool {
        self.shape.forgotten_by == ForgottenBy::Store
    }

    fn next_change(&mut self) -> u64 {
        self.change += 1;
        self.change
    }

    fn next_token(&mut self) -> Token {
        // A change a nanosecond would take 292 years to get there.
        #[expect(clippy::expect_used, reason = "a counter that starts at zero cannot reach 2^63")]
        Token::new(self.next_change()).expect("the counter is below the largest token")
    }

    fn insert(
        &mut self,
        now: Timestamp,
        key: SessionKey,
        election: &ElectionName,
        entry: &NewEntry,
        token: Token,
    ) -> Standing {
        let id = id_of(token);
        let row = EntryRow {
            id: id.clone(),
            owner: Some((key, entry.incarnation)),
            name: Some(entry.name.clone()),
            value: entry.value.clone(),
            ready: None,
            merit: entry.merit,
            changed: token.get(),
            enlisted_at: now,
        };
        self.insert_row(election, token, row);
        self.places.insert((key, Some(election.clone())), token);
        let incarnation = entry.incarnation;
        let held = Held::new(election.clone(), id, token, incarnation);
        self.standing_of(now, key, &held)
    }

    fn insert_row(&mut self, election: &ElectionName, token: Token, entry: EntryRow) {
        let row = self.elections.entry(election.clone()).or_default();
        row.entries.insert(token, Box::new(entry));
        if row.entries.keys().next() == Some(&token) {
            self.touched.push((election.clone(), Touch::Head));
        }
    }

    fn remove(&mut self, election: &ElectionName, token: Token) {
        self.next_change();
        let Some(row) = self.elections.get_mut(election) else { return };
        let led = row.entries.keys().next() == Some(&token);
        let Some(entry) = row.entries.remove(&token) else { return };
        if led {
            self.touched.push((election.clone(), Touch::Head));
        }
        self.touched.push((election.clone(), Touch::Gone(entry.id.clone())));
        self.touched.push((election.clone(), Touch::Entry(entry.id)));
        if let Some((key, _)) = entry.owner {
            self.places.remove(&(key, Some(election.clone())));
            self.forget_if_abandoned(key);
        }
        self.forget_if_empty(election);
    }

    fn forget_if_empty(&mut self, election: &ElectionName) {
        if self.elections.get(election).is_some_and(|row| row.entries.is_empty() && row.office.is_none()) {
            self.elections.remove(election);
        }
    }

    fn forget_if_abandoned(&mut self, key: SessionKey) {
        let abandoned = self.sessions.get(&key).is_some_and(|session| session.abandoned);
        if abandoned && self.places_of(key).next().is_none() {
            self.drop_session(key);
        }
    }

    fn drop_session(&mut self, key: SessionKey) {
        if let Some(session) = self.sessions.remove(&key) {
            self.session_ends.remove(&(session.expires_at, key));
            let entries: Vec<_> = self.places_of(key).map(|(election, token)| (election.clone(), token)).collect();
            entries.iter().for_each(|(election, token)| self.remove(election, *token));
        }
    }

    fn write_office(&mut self, now: Timestamp, election: &ElectionName, mut office: Office) {
        let changed = self.next_change();
        office.version = if office.is_blank() { Version::NONE } else { Version(changed) };
        let row = self.elections.entry(election.clone()).or_default();
        let was = row.office.take();
        let was_until = was.as_ref().and_then(|was| was.tombstone_until);
        let until = match &office.ended {
            Some(_) if was.is_some_and(|was| was.office.ended == office.ended) => was_until,
            Some(ended) => Some(now + ended.keep),
            None => None,
        };
        row.office = (!office.is_blank()).then(|| Box::new(OfficeRow { office, tombstone_until: until }));
        if until != was_until {
            if let Some(at) = was_until {
                self.tombstone_ends.remove(&(at, election.clone()));
            }
            self.tombstone_ends.extend(until.map(|at| (at, election.clone())));
        }
        self.touched.push((election.clone(), Touch::Office));
        self.forget_if_empty(election);
    }

    fn office(&self, election: &ElectionName) -> Office {
        let row = self.elections.get(election).and_then(|row| row.office.as_ref());
        row.map(|row| row.office.clone()).unwrap_or_default()
    }

    fn first(&self, election: &ElectionName) -> Option<(Token, &EntryRow)> {
        let (token, entry) = self.elections.get(election)?.entries.first_key_value()?;
        Some((*token, entry))
    }

    fn entry_row(&self, election: &ElectionName, id: &EntryId) -> Option<(Token, &EntryRow)> {
        let token = token_of(id)?;
        let row = self.elections.get(election)?.entries.get(&token)?;
        // `7` and `07` are the same token, but only one of them is the entry's name.
        (row.id == *id).then_some((token, row))
    }

    /// Whether this entry is there.
    pub fn has_entry(&self, election: &ElectionName, id: &EntryId) -> bool {
        self.entry_row(election, id).is_some()
    }

    fn owns(&self, key: SessionKey, held: &Held) -> bool {
        self.place(key, &held.election) == Some(held.token)
    }

    fn place(&self, key: SessionKey, election: &ElectionName) -> Option<Token> {
        self.places.get(&(key, Some(election.clone()))).copied()
    }

    fn places_of(&self, key: SessionKey) -> impl Iterator<Item = (&ElectionName, Token)> {
        let places = self.places.range((key, None)..(SessionKey(key.0 + 1), None));
        places.filter_map(|((_, election), token)| Some((election.as_ref()?, *token)))
    }

    fn held(&self, election: &ElectionName, token: Token) -> Option<Held> {
        let row = self.elections.get(election)?.entries.get(&token)?;
        let (_, incarnation) = row.owner?;
        Some(Held::new(election.clone(), row.id.clone(), token, incarnation))
    }

    fn standing_of(&self, now: Timestamp, key: SessionKey, held: &Held) -> Standing {
        if !self.owns(key, held) {
            return self.stand(&held.election, Place::Gone);
        }
        let older = self.elections.get(&held.election).and_then(|row| row.entries.range(..held.token).next_back());
        let place = match older {
            None => Place::Leading(held.clone()),
            Some((token, row)) => {
                let ahead = self.entry(now, *token, row);
                Place::behind(Some(held.clone()), ahead, None)
            }
        };
        let mut standing = self.stand(&held.election, place);
        standing.published = self.published(held);
        standing
    }

    fn still_behind(&self, now: Timestamp, key: SessionKey, held: &Held) -> Option<StillBehind> {
        let Standing { place: Place::Behind { ahead, .. }, office, .. } = self.standing_of(now, key, held) else {
            return None;
        };
        Some(StillBehind::new(held.clone(), ahead, office.version))
    }

    fn stand(&self, election: &ElectionName, place: Place) -> Standing {
        Standing::new(place, self.office(election), Cursor(self.change))
    }

    /// The entry as others see it.
    fn entry(&self, now: Timestamp, token: Token, row: &EntryRow) -> Entry {
        let observed_session = || self.sessions.get(&row.owner?.0);
        let session = if self.store_forgets() { None } else { observed_session() };
        let mut entry = Entry::new(row.id.clone(), token);
        entry.incarnation = row.owner.map(|(_, incarnation)| incarnation);
        entry.name = row.name.clone();
        entry.value = row.value.clone();
        (entry.ready, entry.merit) = (row.ready, row.merit);
        entry.version = Version(session.map_or(0, |session| session.renewed).max(row.changed));
        entry.observed = session.map(|session| {
            let mut observed = Observed::new(session.ttl);
            // Enlisting is a sign of life, too, however late the next renewal is.
            observed.silent = self.shape.one_clock.then(|| now.since(session.renewed_at.max(row.enlisted_at)));
            observed
        });
        entry
    }
}

/// Known-bad steps, for the simulation to catch.
#[cfg(feature = "flaws")]
impl Table {
    /// Draws a token without becoming visible.
    pub fn draw_token(&mut self) -> Token {
        self.next_token()
    }

    /// Becomes visible with a token that was drawn before.
    pub fn enlist_with_token(
        &mut self,
        now: Timestamp,
        key: SessionKey,
        election: &ElectionName,
        entry: &NewEntry,
        token: Token,
    ) -> Result<Standing, StoreError> {
        self.expire(now);
        if !self.sessions.contains_key(&key) {
            return Err(StoreError::SessionGone);
        }
        if self.place(key, election).is_some() {
            return self.enlist(now, key, election, entry);
        }
        Ok(self.insert(now, key, election, entry, token))
    }
}

fn id_of(token: Token) -> EntryId {
    EntryId::new(token.to_string())
}

fn token_of(id: &EntryId) -> Option<Token> {
    id.as_str().parse().ok().and_then(Token::new)
}
