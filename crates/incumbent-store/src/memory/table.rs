//! What the memory store knows, and every step it can make: each method is one atomic step.
//!
//! It is pure: time comes in as an argument, and what a step touched comes out for whoever waits. The memory store
//! puts it behind a lock; the simulation puts it behind a network that loses, delays and doubles.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use incumbent_core::{
    Cas, Cursor, ElectionName, Entry, EntryId, ForgottenBy, Held, Incarnation, Line, Liveness, NewEntry, Nonce, Office,
    Place, Proof, Renewal, Standing, StoreId, Target, Timestamp, Token, Version, check_candidate_name, check_value,
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
}

impl Shape {
    /// A fair line with watches, like etcd, ZooKeeper, Redis and PostgreSQL.
    pub const FAIR: Shape = Shape { line: LineKind::Fair, watches: true, forgotten_by: ForgottenBy::Store };
    /// One record and no watch, like Redlock.
    pub const SINGLE: Shape = Shape { line: LineKind::Single, watches: false, forgotten_by: ForgottenBy::Store };
    /// Nothing expires by itself, like a directory or a Kubernetes Lease.
    pub const OBSERVED: Shape = Shape { line: LineKind::Fair, watches: true, forgotten_by: ForgottenBy::Rivals };
    /// All three.
    pub const ALL: [Shape; 3] = [Shape::FAIR, Shape::SINGLE, Shape::OBSERVED];
}

/// The memory store's name for a session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionKey(u64);

/// All that the memory store knows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Table {
    shape: Shape,
    id: StoreId,
    /// Grows with every change. Tokens, versions and cursors are all points on it, so none ever comes back.
    change: u64,
    sessions: BTreeMap<SessionKey, SessionRow>,
    elections: BTreeMap<ElectionName, ElectionRow>,
    /// When an election was last forgotten because nothing was left of it.
    last_forgotten: u64,
    touched: Vec<(ElectionName, Target)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SessionRow {
    ttl: Duration,
    expires_at: Timestamp,
    renewed: u64,
    entries: BTreeMap<ElectionName, Token>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
struct ElectionRow {
    entries: BTreeMap<Token, EntryRow>,
    head_changed: u64,
    office: Office,
    office_changed: u64,
    tombstone_until: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct EntryRow {
    /// `None`: a foreign candidate, which stays until it is removed.
    owner: Option<(SessionKey, Incarnation)>,
    name: Option<std::sync::Arc<str>>,
    value: Bytes,
    ready: Option<Nonce>,
    changed: u64,
}

impl Table {
    /// An empty table.
    pub fn new(shape: Shape, id: StoreId) -> Table {
        Table {
            shape,
            id,
            change: 0,
            sessions: BTreeMap::new(),
            elections: BTreeMap::new(),
            last_forgotten: 0,
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
    pub fn take_touched(&mut self) -> Vec<(ElectionName, Target)> {
        std::mem::take(&mut self.touched)
    }

    /// When the next session or tombstone is due to go, if nothing happens before.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        let sessions = self.sessions.values().map(|session| session.expires_at).filter(|_| self.store_forgets());
        sessions.chain(self.elections.values().filter_map(|election| election.tombstone_until)).min()
    }

    /// Removes the sessions and tombstones whose time has passed.
    pub fn expire(&mut self, now: Timestamp) {
        if self.store_forgets() {
            let over = |session: &SessionRow| session.expires_at <= now;
            let expired: Vec<_> = self.sessions.iter().filter(|(_, row)| over(row)).map(|(key, _)| *key).collect();
            expired.into_iter().for_each(|key| self.drop_session(key));
        }
        let over = |row: &ElectionRow| row.tombstone_until.is_some_and(|until| until <= now);
        let ended: Vec<_> = self.elections.iter().filter(|(_, row)| over(row)).map(|(name, _)| name.clone()).collect();
        for election in ended {
            let mut office = self.office(&election);
            office.ended = None;
            self.write_office(now, &election, office);
        }
    }

    /// Starts every session's TTL again, as a failover of the server does.
    pub fn extend_all(&mut self, now: Timestamp, by: Duration) {
        for session in self.sessions.values_mut() {
            session.expires_at = now + session.ttl + by;
        }
    }

    /// Opens a session.
    pub fn open_session(&mut self, now: Timestamp, ttl: Duration) -> (SessionKey, Liveness) {
        self.expire(now);
        let renewed = self.next_change();
        let key = SessionKey(renewed);
        self.sessions.insert(key, SessionRow { ttl, expires_at: now + ttl, renewed, entries: BTreeMap::new() });
        let forgotten_by = self.shape.forgotten_by;
        (key, Liveness { ttl, forgotten_by, proof: Proof::Answered, margin: Duration::ZERO })
    }

    /// Ends a session and removes its entries.
    pub fn close_session(&mut self, key: SessionKey) {
        self.drop_session(key);
    }

    /// Proof of life. See [`Session::renew`](crate::Session::renew).
    pub fn renew(&mut self, now: Timestamp, key: SessionKey, held: &[Held]) -> Result<Renewal, StoreError> {
        self.expire(now);
        let renewed = self.next_change();
        let session = self.sessions.get_mut(&key).ok_or(StoreError::SessionGone)?;
        session.expires_at = now + session.ttl;
        session.renewed = renewed;
        let ttl = session.ttl;
        let named =
            |election: &ElectionName, token| held.iter().any(|held| held.token == token && held.election == *election);
        let strays: Vec<_> = session
            .entries
            .iter()
            .filter(|(election, token)| !named(election, **token))
            .map(|(e, t)| (e.clone(), *t))
            .collect();
        let stray = strays.into_iter().filter_map(|(election, token)| self.held(&election, token)).collect();
        let gone = held.iter().filter(|held| !self.owns(key, held)).cloned().collect();
        Ok(Renewal { ttl, gone, unproven: Vec::new(), stray })
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
        if let Some(token) = session.entries.get(election).copied() {
            let held = self.held(election, token).ok_or(StoreError::SessionGone)?;
            if held.incarnation != entry.incarnation {
                return Err(StoreError::AlreadyInLine(held));
            }
            return Ok(self.standing_of(key, &held));
        }
        if self.shape.line == LineKind::Single
            && let Some((token, _)) = self.first(election)
        {
            let ahead = self.entry(election, token);
            let look_again = Some(session.ttl / 10);
            return Ok(self.stand(election, Place::Behind { held: None, ahead, look_again }));
        }
        let token = self.next_token();
        Ok(self.insert(key, election, entry, token))
    }

    /// Where an entry stands. See [`Session::standing`](crate::Session::standing).
    pub fn standing(&mut self, now: Timestamp, key: SessionKey, held: &Held) -> Result<Standing, StoreError> {
        self.expire(now);
        if !self.sessions.contains_key(&key) {
            return Err(StoreError::SessionGone);
        }
        Ok(self.standing_of(key, held))
    }

    /// Changes an entry. See [`Session::publish`](crate::Session::publish).
    pub fn publish(
        &mut self,
        now: Timestamp,
        key: SessionKey,
        held: &Held,
        value: &Bytes,
        ready: Option<Nonce>,
    ) -> Result<Cas, StoreError> {
        check_value(value)?;
        self.expire(now);
        if !self.owns(key, held) {
            return Ok(Cas::Refused);
        }
        let changed = self.next_change();
        let leads = self.first(&held.election).is_some_and(|(token, _)| token == held.token);
        if let Some(row) = self.elections.get_mut(&held.election) {
            if let Some(entry) = row.entries.get_mut(&held.token) {
                entry.value = value.clone();
                entry.ready = ready;
                entry.changed = changed;
            }
            self.touched.push((held.election.clone(), Target::Entry(held.entry.clone())));
            if leads {
                row.head_changed = changed;
                self.touched.push((held.election.clone(), Target::Head));
            }
        }
        Ok(Cas::Done)
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

    /// Who is in line. See [`Store::line`](crate::Store::line).
    pub fn line(&mut self, now: Timestamp, election: &ElectionName, limit: usize) -> Line {
        self.expire(now);
        let tokens: Vec<_> =
            self.elections.get(election).into_iter().flat_map(|row| row.entries.keys().copied()).collect();
        let entries = tokens.iter().take(limit).map(|token| self.entry(election, *token)).collect();
        Line { entries, more: tokens.len() > limit, office: self.office(election), cursor: Cursor(self.change) }
    }

    /// Whether a watch that starts at `from` has something to say already.
    pub fn changed_since(&self, election: &ElectionName, targets: &[Target], from: Cursor) -> bool {
        let row = self.elections.get(election);
        targets.iter().any(|target| match target {
            Target::Gone(id) => !self.has_entry(election, id),
            Target::Entry(id) => match row.and_then(|row| row.entries.get(&token_of(id)?)) {
                Some(entry) => entry.changed > from.0,
                None => true,
            },
            Target::Head => row.map_or(self.last_forgotten, |row| row.head_changed) > from.0,
            Target::Office => row.map_or(self.last_forgotten, |row| row.office_changed) > from.0,
        })
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
        if token_of(&seen.id) != Some(seen.token) || !self.has_entry(election, &seen.id) {
            return Cas::Done;
        }
        if self.entry(election, seen.token).version != seen.version {
            return Cas::Refused;
        }
        self.remove(election, seen.token);
        Cas::Done
    }

    /// Puts a candidate of another library in line: no incarnation, no name, no session.
    pub fn enlist_foreign(&mut self, election: &ElectionName, value: Bytes) -> Entry {
        let token = self.next_token();
        let row = EntryRow { owner: None, name: None, value, ready: None, changed: token.get() };
        self.insert_row(election, token, row);
        self.entry(election, token)
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

    fn insert(&mut self, key: SessionKey, election: &ElectionName, entry: &NewEntry, token: Token) -> Standing {
        let row = EntryRow {
            owner: Some((key, entry.incarnation)),
            name: Some(entry.name.clone()),
            value: entry.value.clone(),
            ready: None,
            changed: token.get(),
        };
        self.insert_row(election, token, row);
        if let Some(session) = self.sessions.get_mut(&key) {
            session.entries.insert(election.clone(), token);
        }
        let incarnation = entry.incarnation;
        let held = Held { election: election.clone(), entry: id_of(token), token, incarnation };
        self.standing_of(key, &held)
    }

    fn insert_row(&mut self, election: &ElectionName, token: Token, entry: EntryRow) {
        let changed = entry.changed;
        let row = self.elections.entry(election.clone()).or_default();
        row.entries.insert(token, entry);
        if row.entries.keys().next() == Some(&token) {
            row.head_changed = changed;
            self.touched.push((election.clone(), Target::Head));
        }
    }

    fn remove(&mut self, election: &ElectionName, token: Token) {
        let changed = self.next_change();
        let Some(row) = self.elections.get_mut(election) else { return };
        let led = row.entries.keys().next() == Some(&token);
        let Some(entry) = row.entries.remove(&token) else { return };
        if led {
            row.head_changed = changed;
            self.touched.push((election.clone(), Target::Head));
        }
        self.touched.push((election.clone(), Target::Gone(id_of(token))));
        self.touched.push((election.clone(), Target::Entry(id_of(token))));
        if let Some((key, _)) = entry.owner
            && let Some(session) = self.sessions.get_mut(&key)
        {
            session.entries.remove(election);
        }
        self.forget_if_empty(election);
    }

    fn forget_if_empty(&mut self, election: &ElectionName) {
        if self.elections.get(election).is_some_and(|row| row.entries.is_empty() && row.office.is_blank()) {
            self.elections.remove(election);
            self.last_forgotten = self.change;
        }
    }

    fn drop_session(&mut self, key: SessionKey) {
        if let Some(session) = self.sessions.remove(&key) {
            session.entries.iter().for_each(|(election, token)| self.remove(election, *token));
        }
    }

    fn write_office(&mut self, now: Timestamp, election: &ElectionName, mut office: Office) {
        let changed = self.next_change();
        office.version = if office.is_blank() { Version::NONE } else { Version(changed) };
        let row = self.elections.entry(election.clone()).or_default();
        let same_end = row.office.ended == office.ended;
        row.tombstone_until = match &office.ended {
            Some(_) if same_end => row.tombstone_until,
            Some(ended) => Some(now + ended.keep),
            None => None,
        };
        row.office = office;
        row.office_changed = changed;
        self.touched.push((election.clone(), Target::Office));
        self.forget_if_empty(election);
    }

    fn office(&self, election: &ElectionName) -> Office {
        self.elections.get(election).map(|row| row.office.clone()).unwrap_or_default()
    }

    fn first(&self, election: &ElectionName) -> Option<(Token, &EntryRow)> {
        let (token, entry) = self.elections.get(election)?.entries.first_key_value()?;
        Some((*token, entry))
    }

    fn has_entry(&self, election: &ElectionName, id: &EntryId) -> bool {
        token_of(id)
            .is_some_and(|token| self.elections.get(election).is_some_and(|row| row.entries.contains_key(&token)))
    }

    fn owns(&self, key: SessionKey, held: &Held) -> bool {
        self.sessions.get(&key).is_some_and(|session| session.entries.get(&held.election) == Some(&held.token))
    }

    fn held(&self, election: &ElectionName, token: Token) -> Option<Held> {
        let (_, incarnation) = self.elections.get(election)?.entries.get(&token)?.owner?;
        Some(Held { election: election.clone(), entry: id_of(token), token, incarnation })
    }

    fn standing_of(&self, key: SessionKey, held: &Held) -> Standing {
        if !self.owns(key, held) {
            return self.stand(&held.election, Place::Gone);
        }
        let older = self.elections.get(&held.election).and_then(|row| row.entries.range(..held.token).next_back());
        let place = match older {
            None => Place::Leading(held.clone()),
            Some((token, _)) => {
                let ahead = self.entry(&held.election, *token);
                Place::Behind { held: Some(held.clone()), ahead, look_again: None }
            }
        };
        self.stand(&held.election, place)
    }

    fn stand(&self, election: &ElectionName, place: Place) -> Standing {
        Standing { place, office: self.office(election), cursor: Cursor(self.change) }
    }

    /// The entry as others see it; a blank foreign one if it is not there.
    fn entry(&self, election: &ElectionName, token: Token) -> Entry {
        let row = self.elections.get(election).and_then(|row| row.entries.get(&token));
        let session = row.and_then(|row| row.owner).and_then(|(key, _)| self.sessions.get(&key));
        let renewed = session.filter(|_| !self.store_forgets()).map(|session| session.renewed);
        Entry {
            id: id_of(token),
            token,
            incarnation: row.and_then(|row| row.owner).map(|(_, incarnation)| incarnation),
            name: row.and_then(|row| row.name.clone()),
            value: row.map(|row| row.value.clone()).unwrap_or_default(),
            ready: row.and_then(|row| row.ready),
            version: Version(row.map_or(0, |row| row.changed).max(renewed.unwrap_or(0))),
            observed: session.filter(|_| !self.store_forgets()).map(|session| session.ttl),
        }
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
        let session = self.sessions.get(&key).ok_or(StoreError::SessionGone)?;
        if session.entries.contains_key(election) {
            return self.enlist(now, key, election, entry);
        }
        Ok(self.insert(key, election, entry, token))
    }
}

fn id_of(token: Token) -> EntryId {
    EntryId::new(token.to_string())
}

fn token_of(id: &EntryId) -> Option<Token> {
    id.as_str().parse().ok().and_then(Token::new)
}
