//! A session: one connection of its own (or a part in the user's), a heartbeat node, and the
//! requests that act on its entries.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use incumbent_store::record::CandidateRecord;
use incumbent_store::{
    Cas, Cursor, ElectionName, EntryId, Fut, Held, Incarnation, Liveness, NewEntry, Nonce, Place, Proof, Renewal,
    Session, Shortened, Standing, StoreError, StoreId, Token, Version, Wake, Watched, check_candidate_name,
    check_value, random_id,
};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use zookeeper_client::{Client, CreateMode, Error, MultiWriteResult, Stat};

use crate::connection::{Lane, News, or_cut};
use crate::fault::{Effect, found, sort};
use crate::line::{Look, LookAhead, Reader};
use crate::node::{check_ephemeral, frame};
use crate::paths::{Paths, ancestors, id_of, parse_id, token_of, zxid};
use crate::servers::Limit;
use crate::store::{Inner, SessionConnection, TimeoutWatch, ended_by, of_multi};
use crate::watcher;

/// An entry's name, and the number of the change that made it.
type Creation<'a> = Pin<Box<dyn Future<Output = Result<(String, i64), Error>> + Send + 'a>>;

/// How often we look again because the one ahead went in between. Each time the line is shorter by
/// one.
const LOOKS: usize = 64;
/// How often a place that vanished is made again.
const ATTEMPTS: usize = 8;

pub(crate) struct ZooKeeperSession {
    core: Arc<Core>,
    store_id: StoreId,
    liveness: Liveness,
    counted: Limit,
    timeout_watch: TimeoutWatch,
    watchdog: AbortHandle,
}

/// What the session and its watchdog share.
struct Core {
    inner: Arc<Inner>,
    lane: Arc<Lane>,
    /// Whether the connection is ours to close.
    owned: bool,
    session_id: i64,
    heartbeat: String,
    entries: Mutex<BTreeMap<ElectionName, Vec<OwnEntry>>>,
    renewed: Notify,
}

/// An entry that this session has made, or may have made.
#[derive(Clone, Debug)]
struct OwnEntry {
    incarnation: Incarnation,
    /// The candidate's name.
    name: Arc<str>,
    /// What it says of itself beside its entry, its value included. Empty where that is in the
    /// entry.
    said: Arc<[u8]>,
    /// How often it was about to publish something.
    publications: u64,
    state: EntryState,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum EntryState {
    /// The request is on its way, and somebody waits for the answer.
    Sent,
    /// Nobody waits any more, and nobody knows.
    Doubtful,
    /// The node's name.
    Known(String, Token),
}

impl ZooKeeperSession {
    pub(crate) async fn open(inner: Arc<Inner>, connection: SessionConnection) -> Result<ZooKeeperSession, StoreError> {
        let SessionConnection { client, owned, counted, timeout_watch } = connection;
        let store_id = inner.store_id(&client).await?;
        // A session that is opened with its connection is committed by the ensemble's leader. One
        // on a connection of the user's is older than what we write to it, and a write does not
        // tell the leader that the session lives.
        let mut liveness = Liveness::new(counted.longest);
        liveness.proof = Proof::Earlier { apart: counted.tick, opening_proves: owned };
        liveness.margin = counted.tick;
        let core = Core {
            heartbeat: format!("{}/{:032x}", inner.paths.sessions(), random_id()?),
            inner,
            session_id: client.session_id().0,
            lane: Arc::new(Lane::new(client.clone())),
            owned,
            entries: Mutex::default(),
            renewed: Notify::new(),
        };
        core.begin_heartbeat(&client).await?;
        let core = Arc::new(core);
        let watchdog = tokio::spawn(watch_over(core.clone(), liveness.ttl)).abort_handle();
        Ok(ZooKeeperSession { core, store_id, liveness, counted, timeout_watch, watchdog })
    }
}

/// The connection pings by itself, for ever. A session that nobody renews must end all the same:
/// its owner believes that it has.
async fn watch_over(core: Arc<Core>, ttl: Duration) {
    while tokio::time::timeout(ttl, core.renewed.notified()).await.is_ok() {}
    core.end();
}

impl Drop for ZooKeeperSession {
    fn drop(&mut self) {
        self.watchdog.abort();
        self.core.end();
    }
}

impl fmt::Debug for ZooKeeperSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let session = format_args!("{:x}", self.core.session_id).to_string();
        f.debug_struct("ZooKeeperSession").field("session", &session).finish_non_exhaustive()
    }
}

impl Core {
    fn client(&self) -> Result<Client, StoreError> {
        self.lane.client()
    }

    /// Makes a call while the connection is up.
    async fn guarded<T>(
        &self,
        effect: Effect,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let client = self.client()?;
        or_cut(&client, effect, call).await
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<ElectionName, Vec<OwnEntry>>> {
        lock(&self.entries)
    }

    async fn begin_heartbeat(&self, client: &Client) -> Result<Stat, StoreError> {
        for _ in 0..ATTEMPTS {
            match client.create(&self.heartbeat, &[], &self.inner.mode(CreateMode::Ephemeral)).await {
                Ok((stat, _)) => {
                    self.inner.seen.note(&stat);
                    return Ok(stat);
                }
                Err(Error::NoNode) => {
                    self.inner.make(client, &self.inner.paths.sessions(), CreateMode::Persistent).await?;
                }
                // Ours, from a request whose answer was lost.
                Err(Error::NodeExists) => {
                    let stat = client.set_data(&self.heartbeat, &[], None).await;
                    return stat.map_err(|error| sort(error, Effect::None, "proving that we live"));
                }
                Err(error) => return Err(sort(error, Effect::Write, "opening a session")),
            }
        }
        Err(StoreError::Unavailable { what: "the place of the heartbeats keeps going away".to_owned(), source: None })
    }

    /// Ends it without waiting. What it leaves is removed by the server with the connection, or,
    /// where that is the user's, by us.
    fn end(self: &Arc<Core>) {
        let Some(client) = self.lane.take() else { return };
        if !self.owned
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let core = self.clone();
            runtime.spawn(async move { core.clear(&client).await });
        }
    }

    /// Removes all that this session has made, and tries again until that is certain or the user's
    /// session is over.
    async fn clear(&self, client: &Client) {
        let mut state = client.state_watcher();
        loop {
            match self.clear_once(client).await {
                Ok(()) | Err(StoreError::SessionGone) => return,
                Err(_) if client.state().is_terminated() => return,
                // Once the connection is back, or a little later.
                Err(_) => {
                    _ = tokio::time::timeout(Duration::from_secs(1), state.changed()).await;
                }
            }
        }
    }

    async fn clear_once(&self, client: &Client) -> Result<(), StoreError> {
        let elections: Vec<_> = self.entries().keys().cloned().collect();
        for election in elections {
            let reader = Reader::new(&self.inner, client, &election)?;
            for held in self.settle(&reader).await? {
                self.withdraw_on(client, &held, None).await?;
            }
        }
        match client.delete(&self.heartbeat, None).await {
            Ok(()) | Err(Error::NoNode) => Ok(()),
            Err(error) => Err(sort(error, Effect::Write, "closing the session")),
        }
    }

    fn set_state(&self, election: &ElectionName, incarnation: Incarnation, state: Option<EntryState>) {
        let mut entries = self.entries();
        let Some(own_entries) = entries.get_mut(election) else { return };
        match state {
            Some(state) => {
                own_entries
                    .iter_mut()
                    .filter(|own_entry| own_entry.incarnation == incarnation)
                    .for_each(|own_entry| own_entry.state = state.clone());
            }
            None => own_entries.retain(|own_entry| own_entry.incarnation != incarnation),
        }
        if own_entries.is_empty() {
            entries.remove(election);
        }
    }

    /// What the candidate says of itself from now on.
    fn says(&self, held: &Held, said: &[u8]) {
        let Some((name, token)) = parse_id(&held.entry) else { return };
        let state = EntryState::Known(name.to_owned(), token);
        let mut entries = self.entries();
        let own_entries = entries.get_mut(&held.election).into_iter().flatten();
        own_entries.filter(|own_entry| own_entry.state == state).for_each(|own_entry| own_entry.said = said.into());
    }

    /// Makes the record beside an entry of ours again, while the entry is there.
    async fn restore(&self, reader: &Reader<'_>, name: &str, beside: &str, said: &[u8]) -> Result<(), Error> {
        let above = self.inner.paths.candidates(reader.election);
        _ = self.inner.make(reader.client, &above, CreateMode::Container).await;
        let mut writer = reader.client.new_multi_writer();
        writer.add_check_version(&reader.path_of(name), -1)?;
        writer.add_create(beside, said, &self.inner.mode(CreateMode::Ephemeral))?;
        writer.commit().await.map(|_| ()).map_err(Error::from)
    }

    fn held(&self, election: &ElectionName, name: &str, token: Token, incarnation: Incarnation) -> Held {
        Held::new(election.clone(), id_of(name, token), token, incarnation)
    }

    /// The entry of ours that `held` speaks of: nobody acts on another session's entries.
    fn own_entry_of(&self, held: &Held) -> Option<OwnEntry> {
        let (name, token) = parse_id(&held.entry)?;
        let entries = self.entries();
        let own_entries = entries.get(&held.election)?;
        let state = EntryState::Known(name.to_owned(), token);
        own_entries.iter().find(|own_entry| own_entry.state == state && held.token == token).cloned()
    }

    /// The entry, which is about to publish something, if it has published as much before as the
    /// caller knows of.
    fn publishes(&self, held: &Held, was: Version) -> Option<OwnEntry> {
        let (name, token) = parse_id(&held.entry)?;
        let state = EntryState::Known(name.to_owned(), token);
        let mut entries = self.entries();
        let own_entry = entries.get_mut(&held.election)?.iter_mut().find(|own_entry| own_entry.state == state)?;
        if held.token != token || own_entry.publications != was.0 {
            return None;
        }
        own_entry.publications += 1;
        Some(own_entry.clone())
    }

    /// Which of our entries in this election are in line. What was sent on this connection has
    /// arrived before a later answer, or never will: whoever reconnects elsewhere is a session that
    /// has moved, and what was sent before is refused.
    async fn settle(&self, reader: &Reader<'_>) -> Result<Vec<Held>, StoreError> {
        let election = reader.election;
        let own_entries = self.entries().get(election).cloned().unwrap_or_default();
        let (sync, ours) =
            tokio::join!(reader.client.sync(self.inner.paths.root()), reader.client.list_ephemerals(&reader.path));
        sync.map_err(|error| sort(error, Effect::None, "catching up"))?;
        let ours = paths(ours)?;
        let mut standing = Vec::new();
        for own_entry in own_entries {
            match self.find(reader, &own_entry, &ours).await? {
                Some((name, token)) => {
                    standing.push(self.held(election, &name, token, own_entry.incarnation));
                    self.know(election, own_entry.incarnation, name, token);
                }
                None => self.forget(election, &own_entry),
            }
        }
        Ok(standing)
    }

    fn know(&self, election: &ElectionName, incarnation: Incarnation, name: String, token: Token) {
        self.inner.remember_place(election, token, &name);
        self.set_state(election, incarnation, Some(EntryState::Known(name, token)));
    }

    fn forget(&self, election: &ElectionName, own_entry: &OwnEntry) {
        if let EntryState::Known(_, token) = &own_entry.state {
            self.inner.forget_place(election, *token);
        }
        self.set_state(election, own_entry.incarnation, None);
    }

    /// Finds an entry of ours among the paths of all nodes that our session owns.
    async fn find(
        &self,
        reader: &Reader<'_>,
        own_entry: &OwnEntry,
        ours: &BTreeSet<String>,
    ) -> Result<Option<(String, Token)>, StoreError> {
        if let EntryState::Known(name, token) = &own_entry.state {
            let there = ours.contains(&reader.path_of(name));
            return Ok(there.then(|| (name.clone(), *token)));
        }
        let prefix = reader.path_of(&reader.dialect().prefix(own_entry.incarnation));
        let known: Vec<_> = self
            .entries()
            .get(reader.election)
            .into_iter()
            .flatten()
            .map(|own_entry| own_entry.state.clone())
            .collect();
        for path in ours.iter().filter(|path| path.starts_with(&prefix)) {
            let name = &path[reader.path.len() + 1..];
            if known.iter().any(|state| matches!(state, EntryState::Known(known, _) if known == name)) {
                continue;
            }
            let Some((entry, stat)) = reader.entry(name).await? else { continue };
            // Where names do not say whose they are, the record beside an entry does: other
            // sessions of ours may be on this connection.
            let ours = reader.dialect().has_guid() || entry.incarnation == Some(own_entry.incarnation);
            if ours && stat.ephemeral_owner == self.session_id {
                return Ok(Some((name.to_owned(), entry.token)));
            }
        }
        Ok(None)
    }

    async fn withdraw_on(&self, client: &Client, held: &Held, heir: Option<&EntryId>) -> Result<Cas, StoreError> {
        let Some(own_entry) = self.own_entry_of(held) else { return Ok(Cas::Done) };
        let reader = Reader::new(&self.inner, client, &held.election)?;
        let Some((name, token)) = parse_id(&held.entry) else { return Ok(Cas::Done) };
        let done = match heir {
            None => self.remove_own(&reader, name, token).await?,
            Some(heir) => self.remove_for(&reader, name, token, heir).await?,
        };
        if done == Cas::Done {
            self.forget(&held.election, &own_entry);
        }
        Ok(done)
    }

    async fn remove_own(&self, reader: &Reader<'_>, name: &str, token: Token) -> Result<Cas, StoreError> {
        // Where the name says whose it is, it need not be looked at.
        if !reader.dialect().is_foreign() {
            return match reader.client.delete(&reader.path_of(name), None).await {
                Ok(()) | Err(Error::NoNode) => Ok(Cas::Done),
                Err(error) => Err(sort(error, Effect::Write, "withdrawing")),
            };
        }
        let stat = reader.client.check_stat(&reader.path_of(name)).await;
        let stat = stat.map_err(|error| sort(error, Effect::None, "withdrawing"))?;
        match stat.filter(|stat| stat.czxid == zxid(token)) {
            Some(stat) => self.inner.remove(reader, name, &stat, None).await,
            None => Ok(Cas::Done),
        }
    }

    /// In one step: only while the heir is there.
    async fn remove_for(
        &self,
        reader: &Reader<'_>,
        name: &str,
        token: Token,
        heir: &EntryId,
    ) -> Result<Cas, StoreError> {
        let path = reader.path_of(name);
        let own = reader.client.check_stat(&path).await.map_err(|error| sort(error, Effect::None, "withdrawing"))?;
        let Some(own) = own.filter(|own| own.czxid == zxid(token)) else { return Ok(Cas::Done) };
        let Some((heir_name, heir_token)) = parse_id(heir) else { return Ok(Cas::Refused) };
        let heir_path = reader.path_of(heir_name);
        let heir = reader.client.check_stat(&heir_path).await;
        let heir = heir.map_err(|error| sort(error, Effect::None, "withdrawing"))?;
        if heir.is_none_or(|heir| heir.czxid != zxid(heir_token)) {
            return Ok(Cas::Refused);
        }
        let beside = self.inner.paths.candidate(reader.election, name, own.ephemeral_owner);
        // Once more without what is beside our entry, if somebody has removed that: the entry
        // decides.
        for with_record in [reader.dialect().is_foreign(), false] {
            let mut writer = reader.client.new_multi_writer();
            let mut added = writer.add_check_version(&heir_path, -1).and_then(|()| writer.add_delete(&path, None));
            if with_record {
                added = added.and_then(|()| writer.add_delete(&beside, None));
            }
            added.map_err(|error| sort(error, Effect::None, "withdrawing"))?;
            match writer.commit().await.map_err(of_multi) {
                Ok(_) => return Ok(Cas::Done),
                Err((Some(0), Error::NoNode)) => return Ok(Cas::Refused),
                Err((Some(1), Error::NoNode)) => return Ok(Cas::Done),
                Err((Some(2), Error::NoNode)) => {}
                Err((_, error)) => return Err(sort(error, Effect::Write, "withdrawing")),
            }
        }
        Ok(Cas::Refused)
    }
}

/// An enlistment on its way. Unless it is settled, it may arrive whenever it likes.
struct PendingEnlistment<'a> {
    core: &'a Core,
    election: &'a ElectionName,
    incarnation: Incarnation,
}

impl PendingEnlistment<'_> {
    fn settle(self, state: Option<EntryState>) {
        self.core.set_state(self.election, self.incarnation, state);
        std::mem::forget(self);
    }
}

impl Drop for PendingEnlistment<'_> {
    fn drop(&mut self) {
        self.core.set_state(self.election, self.incarnation, Some(EntryState::Doubtful));
    }
}

impl ZooKeeperSession {
    async fn enlist(&self, election: &ElectionName, entry: &NewEntry) -> Result<Standing, StoreError> {
        check_candidate_name(&entry.name)?;
        check_value(&entry.value)?;
        let client = self.core.client()?;
        let reader = Reader::new(&self.core.inner, &client, election)?;
        if let Some(standing) = self.stands_already(&reader, entry).await? {
            return Ok(standing);
        }
        // In our own dialect the place is made in one step with the first entry, if that is all
        // that is missing.
        let mut with_place = self.check_dialect(&reader).await? && !reader.dialect().is_foreign();
        for _ in 0..ATTEMPTS {
            if let Some(standing) = self.enlist_once(&reader, entry, with_place).await? {
                return Ok(standing);
            }
            with_place = false;
            self.core.inner.make(&client, &reader.path, CreateMode::Container).await?;
            if reader.dialect().is_foreign() {
                let beside = self.core.inner.paths.candidates(election);
                self.core.inner.make(&client, &beside, CreateMode::Container).await?;
            }
        }
        Err(StoreError::Unavailable { what: format!("{} keeps going away", reader.path), source: None })
    }

    /// An entry of ours from before, whether or not its answer has come.
    async fn stands_already(&self, reader: &Reader<'_>, entry: &NewEntry) -> Result<Option<Standing>, StoreError> {
        if !self.core.entries().contains_key(reader.election) {
            return Ok(None);
        }
        match self.core.settle(reader).await?.into_iter().next() {
            None => Ok(None),
            Some(held) if held.incarnation == entry.incarnation => self.standing(&held, None).await.map(Some),
            Some(held) => Err(StoreError::AlreadyInLine(held)),
        }
    }

    /// Before we stand anywhere for the first time: whoever keeps to other customs would take us
    /// for something else. Whether there is no place for a line at all.
    async fn check_dialect(&self, reader: &Reader<'_>) -> Result<bool, StoreError> {
        if self.core.inner.is_clean(reader.election) {
            return Ok(false);
        }
        self.check_place(reader).await?;
        // An old state is enough: whoever came since is seen once we are in line.
        let children = reader.children(reader.client.get_children(&reader.path).await)?;
        self.core.inner.remember_clean(reader.election, true);
        Ok(children.changed == 0)
    }

    /// A line that is reached through two stores would have two office records.
    async fn check_place(&self, reader: &Reader<'_>) -> Result<(), StoreError> {
        let root = self.core.inner.paths.root();
        for above in ancestors(&reader.path).take_while(|above| *above != root) {
            let own = Paths::new(above, reader.dialect()).own();
            if found(reader.client.check_stat(&own).await, "looking for other stores")?.flatten().is_some() {
                let what = format!(
                    "{} is in the store whose chroot is {above}: stand there, as those do who use it, since a line has one \
                     office record",
                    reader.path
                );
                return Err(StoreError::Misuse { what });
            }
        }
        Ok(())
    }

    /// `None`: there is no place for it yet.
    async fn enlist_once(
        &self,
        reader: &Reader<'_>,
        entry: &NewEntry,
        with_place: bool,
    ) -> Result<Option<Standing>, StoreError> {
        let Reader { client, inner, election, path } = reader;
        let record = CandidateRecord { incarnation: entry.incarnation, name: entry.name.clone(), ready: None };
        let said = frame(&record, &entry.value);
        let beside: &[u8] = if reader.dialect().is_foreign() { &said } else { &[] };
        let own_entry = OwnEntry {
            incarnation: entry.incarnation,
            name: entry.name.clone(),
            said: beside.into(),
            publications: 0,
            state: EntryState::Sent,
        };
        self.core.entries().entry((*election).clone()).or_default().push(own_entry);
        let pending = PendingEnlistment { core: &self.core, election, incarnation: entry.incarnation };
        let cursor = inner.seen.cursor();
        let in_line = reader.path_of(&reader.dialect().prefix(entry.incarnation));
        // The answers behind the new entry are no older than it.
        let created = self.create(reader, entry, &said, &in_line, with_place);
        let (created, glance) = tokio::join!(created, reader.glance(None)?);
        let (name, created) = match created {
            Ok(created) => created,
            Err(Error::NoNode) => {
                pending.settle(None);
                return Ok(None);
            }
            // Somebody else has made it.
            Err(Error::NodeExists) if with_place => {
                pending.settle(None);
                return Ok(None);
            }
            Err(Error::NodeExists) => {
                pending.settle(None);
                return Err(one_place(path));
            }
            Err(error) => {
                let error = sort(error, Effect::Write, "enlisting");
                if !matches!(error, StoreError::OutcomeUnknown { .. }) {
                    pending.settle(None);
                }
                return Err(error);
            }
        };
        let token = token_of(created)?;
        pending.settle(Some(EntryState::Known(name.clone(), token)));
        inner.remember_place(election, token, &name);
        inner.seen.note_change(zxid(token));
        let held = self.core.held(election, &name, token, entry.incarnation);
        let look = match reader.looked(glance?, cursor).await {
            Err(foreign @ StoreError::Foreign { .. }) => {
                inner.remember_clean(election, false);
                self.core.withdraw_on(client, &held, None).await?;
                return Err(foreign);
            }
            look => look?,
        };
        match self.place(reader, &held, &look).await? {
            Some(place) => Ok(Some(Standing::new(place, look.office, cursor))),
            None => self.standing(&held, None).await.map(Some),
        }
    }

    /// Makes the entry: its name, and the number of the change. The request is on its way before
    /// this returns.
    fn create<'a>(
        &'a self,
        reader: &'a Reader<'_>,
        entry: &NewEntry,
        data: &[u8],
        path: &'a str,
        with_place: bool,
    ) -> Creation<'a> {
        let Reader { client, inner, election, .. } = reader;
        let in_line = inner.mode(CreateMode::EphemeralSequential);
        let prefix = reader.dialect().prefix(entry.incarnation);
        let foreign = reader.dialect().is_foreign();
        if !foreign && !with_place {
            let created = client.create(path, data, &in_line);
            return Box::pin(async move {
                let (stat, sequence) = created.await?;
                Ok((format!("{prefix}{sequence}"), stat.czxid))
            });
        }
        let mut writer = client.new_multi_writer();
        let mut add = || {
            if with_place {
                writer.add_create(&reader.path, &[], &inner.mode(CreateMode::Container))?;
            }
            writer.add_create(path, if foreign { entry.name.as_bytes() } else { data }, &in_line)?;
            if foreign {
                let beside = inner.paths.candidate(election, &format!("{prefix}0000000000"), self.core.session_id);
                writer.add_create(&beside, data, &inner.mode(CreateMode::Ephemeral))?;
            }
            // All changes of a transaction have one number. Servers tell it for this one only
            // (ZOOKEEPER-4026, -4667).
            writer.add_set_data(&self.core.heartbeat, &[], None)
        };
        if let Err(error) = add() {
            return Box::pin(std::future::ready(Err(error)));
        }
        let committed = writer.commit();
        Box::pin(async move {
            let results = committed.await?;
            let entry = match results.get(usize::from(with_place)) {
                Some(MultiWriteResult::Create { path, .. }) => path.rsplit('/').next().map(str::to_owned),
                _ => None,
            };
            match (entry, results.last()) {
                (Some(entry), Some(MultiWriteResult::SetData { stat })) => Ok((entry, stat.mzxid)),
                _ => Err(Error::UnexpectedError("a transaction with other answers than questions".to_owned())),
            }
        })
    }

    /// Our place, given what was seen. `None`: it has to be looked at again.
    async fn place(&self, reader: &Reader<'_>, held: &Held, look: &Look) -> Result<Option<Place>, StoreError> {
        let Some((name, _)) = parse_id(&held.entry) else { return Ok(Some(Place::Gone)) };
        let Some(ahead) = look.children.ahead_of(name) else { return Ok(None) };
        let Some(ahead) = ahead else { return Ok(Some(Place::Leading(held.clone()))) };
        let Some((ahead, stat)) = reader.entry(ahead).await? else { return Ok(None) };
        if let Some((name, _)) = parse_id(&ahead.id) {
            check_ephemeral(&reader.path, name, &stat)?;
        }
        Ok(Some(Place::behind(Some(held.clone()), ahead, None)))
    }

    async fn standing(&self, held: &Held, behind: Option<&EntryId>) -> Result<Standing, StoreError> {
        let client = self.core.client()?;
        let reader = Reader::new(&self.core.inner, &client, &held.election)?;
        let ours = self.core.own_entry_of(held);
        let name = parse_id(&held.entry).map_or("-", |(name, _)| name);
        let owned = |own: &Stat| own.ephemeral_owner == self.core.session_id && own.czxid == zxid(held.token);
        let published = Version(ours.as_ref().map_or(0, |own_entry| own_entry.publications));
        let stand = |place, office, cursor| {
            let mut standing = Standing::new(place, office, cursor);
            standing.published = published;
            Ok(standing)
        };
        let mut news = self.core.lane.take_news(&held.election);
        // A mark of the end is in the list.
        let behind = behind.and_then(parse_id).filter(|_| ours.is_some() && !reader.dialect().marks_the_end());
        if let Some((ahead, token)) = behind.filter(|(_, token)| *token < held.token && news != Some(News::AheadIsGone))
        {
            let look = reader.look_ahead(name, owned, (ahead, zxid(token)), news.take().is_some()).await?;
            if let Some(LookAhead { entry, office, cursor }) = look {
                return stand(Place::behind(Some(held.clone()), entry, None), office, cursor);
            }
        }
        for _ in 0..LOOKS {
            let look = reader.look(name, news.take().is_some()).await?;
            if ours.is_none() || !look.own.as_ref().is_some_and(owned) {
                return self.gone(&reader, held, look.cursor).await;
            }
            if let Some(place) = self.place(&reader, held, &look).await? {
                return stand(place, look.office, look.cursor);
            }
        }
        Err(StoreError::Unavailable { what: format!("the line at {} keeps changing", reader.path), source: None })
    }

    /// Our entry is not there, and never comes back. What the office record says now.
    async fn gone(&self, reader: &Reader<'_>, held: &Held, cursor: Cursor) -> Result<Standing, StoreError> {
        let look = reader.looked(reader.glance(None)?.await?, cursor).await?;
        let mut office = look.office;
        if reader.dialect().marks_the_end() && office.ended.is_none() && look.vanished {
            // go-leaderelection ends an election by removing its node; its mark is there only for a
            // moment before.
            office.ended = Some(ended_by(zxid(held.token)));
        }
        Ok(Standing::new(Place::Gone, office, cursor))
    }

    /// What is sent on a connection arrives in this order or not at all, and nobody else publishes
    /// for our entry. So it is enough that no two publications are sent as the successor of the
    /// same one.
    async fn publish(
        &self,
        held: &Held,
        was: Version,
        value: &Bytes,
        ready: Option<Nonce>,
    ) -> Result<Option<Version>, StoreError> {
        check_value(value)?;
        let client = self.core.client()?;
        let Some(own_entry) = self.core.publishes(held, was) else { return Ok(None) };
        let EntryState::Known(name, token) = &own_entry.state else { return Ok(None) };
        let published = Some(Version(own_entry.publications));
        let reader = Reader::new(&self.core.inner, &client, &held.election)?;
        let path = reader.path_of(name);
        let data =
            frame(&CandidateRecord { incarnation: own_entry.incarnation, name: own_entry.name.clone(), ready }, value);
        if !reader.dialect().is_foreign() {
            return match client.set_data(&path, &data, None).await {
                Ok(stat) => {
                    self.core.inner.seen.note(&stat);
                    Ok(published)
                }
                Err(Error::NoNode) => Ok(None),
                Err(error) => Err(sort(error, Effect::Write, "publishing")),
            };
        }
        // Never on the entry itself: Curator's followers wait for it to go, with a watch that any
        // change uses up.
        let there = client.check_stat(&path).await.map_err(|error| sort(error, Effect::None, "publishing"))?;
        let Some(there) = there.filter(|there| there.czxid == zxid(*token)) else { return Ok(None) };
        let beside = self.core.inner.paths.candidate(&held.election, name, there.ephemeral_owner);
        let mut writer = client.new_multi_writer();
        let added = writer.add_check_version(&path, -1).and_then(|()| writer.add_set_data(&beside, &data, None));
        added.map_err(|error| sort(error, Effect::None, "publishing"))?;
        self.core.says(held, &data);
        match writer.commit().await.map_err(of_multi) {
            Ok(_) => Ok(published),
            Err((Some(0), Error::NoNode)) => Ok(None),
            // Somebody has removed it: it is made again, as it is now to be.
            Err((Some(_), Error::NoNode)) => match self.core.restore(&reader, name, &beside, &data).await {
                Ok(()) => Ok(published),
                Err(error) => Err(sort(error, Effect::Write, "publishing")),
            },
            Err((_, error)) => Err(sort(error, Effect::Write, "publishing")),
        }
    }

    /// A write to the heartbeat node, and behind it the list of all that our session owns.
    async fn renew(&self, held: &[Held]) -> Result<Renewal, StoreError> {
        let client = self.core.client()?;
        let own_entries = self.core.entries().clone();
        let (beat, ours) = tokio::join!(
            client.set_data(&self.core.heartbeat, &[], None),
            client.list_ephemerals(self.core.inner.paths.root())
        );
        match beat {
            Ok(stat) => self.core.inner.seen.note(&stat),
            // Somebody has removed it.
            Err(Error::NoNode) => {
                self.core.begin_heartbeat(&client).await?;
            }
            Err(error) => return Err(sort(error, Effect::None, "proving that we live")),
        }
        let ours = paths(ours)?;
        let mut found = Vec::new();
        for (election, own_entries) in &own_entries {
            let reader = Reader::new(&self.core.inner, &client, election)?;
            for own_entry in own_entries.iter().filter(|own_entry| own_entry.state != EntryState::Sent) {
                match self.core.find(&reader, own_entry, &ours).await? {
                    Some((name, token)) => {
                        if own_entry.state == EntryState::Doubtful {
                            self.core.know(election, own_entry.incarnation, name.clone(), token);
                        }
                        let beside = self.core.inner.paths.candidate(election, &name, self.core.session_id);
                        if reader.dialect().is_foreign() && !ours.contains(&beside) {
                            // Others would take our candidate for another library's. If it fails,
                            // the next renewal tries again.
                            _ = self.core.restore(&reader, &name, &beside, &own_entry.said).await;
                        }
                        found.push(self.core.held(election, &name, token, own_entry.incarnation));
                    }
                    None => self.core.forget(election, own_entry),
                }
            }
        }
        let (there, named) = (entries_of(&found), entries_of(held));
        let mut renewal = Renewal::alive(self.liveness.ttl);
        renewal.gone.extend(held.iter().filter(|held| !there.contains(&entry_of(held))).cloned());
        renewal.stray.extend(found.iter().filter(|there| !named.contains(&entry_of(there))).cloned());
        Ok(renewal)
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.watchdog.abort();
        let Some(client) = self.core.lane.take() else { return Ok(()) };
        if !self.core.owned {
            // In a task of its own: it goes on if nobody waits any more.
            let core = self.core.clone();
            let cleared = tokio::spawn(async move { core.clear(&client).await }).await;
            return cleared.map_err(|error| StoreError::unknown("closing the session", error));
        }
        let mut state = client.state_watcher();
        drop(client);
        // The connection says goodbye by itself, again if it has to, and ends once it was answered.
        while !state.state().is_terminated() {
            state.changed().await;
        }
        Ok(())
    }
}

/// The paths of all nodes that a session owns.
fn paths(answer: Result<Vec<String>, Error>) -> Result<BTreeSet<String>, StoreError> {
    let paths = answer.map_err(|error| sort(error, Effect::None, "looking for our entries"))?;
    Ok(paths.into_iter().collect())
}

fn entry_of(held: &Held) -> (&ElectionName, &EntryId) {
    (&held.election, &held.entry)
}

fn entries_of(held: &[Held]) -> BTreeSet<(&ElectionName, &EntryId)> {
    held.iter().map(entry_of).collect()
}

fn one_place(path: &str) -> StoreError {
    let what = format!("in this dialect one connection has one place in the line at {path}");
    StoreError::Misuse { what }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is whole before anything can panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session for ZooKeeperSession {
    fn liveness(&self) -> Liveness {
        self.liveness
    }

    fn store_id(&self) -> StoreId {
        self.store_id.clone()
    }

    fn renew<'a>(&'a self, held: &'a [Held]) -> Fut<'a, Renewal> {
        self.core.renewed.notify_one();
        Box::pin(self.core.guarded(Effect::None, self.renew(held)))
    }

    fn shortened(&self) -> Shortened {
        Box::pin(self.timeout_watch.clone().shortened(self.counted))
    }

    fn enlist<'a>(&'a self, election: &'a ElectionName, entry: &'a NewEntry) -> Fut<'a, Standing> {
        Box::pin(self.core.guarded(Effect::Write, self.enlist(election, entry)))
    }

    fn standing<'a>(&'a self, held: &'a Held, behind: Option<&'a EntryId>) -> Fut<'a, Standing> {
        Box::pin(self.core.guarded(Effect::None, self.standing(held, behind)))
    }

    fn watch(&self, watched: &Watched, from: Cursor) -> Wake {
        watcher::watch_entry(self.core.inner.clone(), self.core.lane.clone(), watched.clone(), from)
    }

    fn publish<'a>(
        &'a self,
        held: &'a Held,
        was: Version,
        value: &'a Bytes,
        ready: Option<Nonce>,
    ) -> Fut<'a, Option<Version>> {
        Box::pin(self.core.guarded(Effect::Write, self.publish(held, was, value, ready)))
    }

    fn withdraw<'a>(&'a self, held: &'a Held, heir: Option<&'a EntryId>) -> Fut<'a, Cas> {
        let withdraw = async move { self.core.withdraw_on(&self.core.client()?, held, heir).await };
        Box::pin(self.core.guarded(Effect::Write, withdraw))
    }

    fn close(&self) -> Fut<'_, ()> {
        Box::pin(self.close())
    }
}
