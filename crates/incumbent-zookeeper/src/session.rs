//! A session: one connection of its own (or a part in the user's), a heartbeat node, and the
//! requests that act on its entries.

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use incumbent_store::record::CandidateRecord;
use incumbent_store::{
    Cas, Cursor, Effect, ElectionName, EntryId, Fut, Held, Incarnation, Liveness, NewEntry, Place, Proof, Publication,
    Renewal, Session, Shortened, Standing, StoreError, StoreId, Token, Version, Wake, Watched, check_value, random_id,
};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use zookeeper_client::{Client, CreateMode, Error, Stat};

use crate::connection::{News, SessionConnection, or_cut};
use crate::error::{classify, reading, writing};
use crate::line::{Reader, View, ViewAhead};
use crate::node::{check_ephemeral, frame};
use crate::own_entries::{EntryState, OwnEntries, OwnEntry};
use crate::paths::{id_of, parse_id, zxid};
use crate::servers::Granted;
use crate::store::{GrantedConnection, Inner, TimeoutWatch, ended_by, of_multi};
use crate::watcher;

/// How often we look again because the one ahead went in between. Each time the line is shorter by
/// one.
const MAX_READS: usize = 64;
/// How often a place that vanished is made again.
pub(crate) const ATTEMPTS: usize = 8;

pub(crate) struct ZooKeeperSession {
    pub(crate) core: Arc<Core>,
    store_id: StoreId,
    liveness: Liveness,
    counted: Granted,
    timeout_watch: TimeoutWatch,
    watchdog: AbortHandle,
}

/// What the session and its watchdog share.
pub(crate) struct Core {
    pub(crate) inner: Arc<Inner>,
    connection: Arc<SessionConnection>,
    /// Whether the connection is ours to close.
    owned: bool,
    pub(crate) session_id: i64,
    pub(crate) heartbeat: String,
    pub(crate) entries: OwnEntries,
    renewed: Notify,
}

impl ZooKeeperSession {
    pub(crate) async fn open(inner: Arc<Inner>, connection: GrantedConnection) -> Result<ZooKeeperSession, StoreError> {
        let GrantedConnection { client, owned, counted, timeout_watch } = connection;
        let store_id = inner.store_id(&client).await?;
        // A session that is opened with its connection is committed by the ensemble's leader. One
        // on a connection of the user's is older than what we write to it, and a write does not
        // tell the leader that the session lives.
        let mut liveness = Liveness::new(counted.timeout);
        liveness.proof = Proof::Earlier { apart: counted.tick, opening_proves: owned };
        liveness.margin = counted.tick;
        let core = Core {
            heartbeat: format!("{}/{:032x}", inner.paths.sessions(), random_id()?),
            inner,
            session_id: client.session_id().0,
            connection: Arc::new(SessionConnection::new(client.clone())),
            owned,
            entries: OwnEntries::default(),
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
    pub(crate) fn client(&self) -> Result<Client, StoreError> {
        self.connection.client()
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
                    return stat.map_err(reading("proving that we live"));
                }
                Err(error) => return Err(classify(error, Effect::Write, "opening a session")),
            }
        }
        Err(StoreError::Unavailable { what: "the place of the heartbeats keeps going away".to_owned(), source: None })
    }

    /// Ends it without waiting. What it leaves is removed by the server with the connection, or,
    /// where that is the user's, by us.
    fn end(self: &Arc<Core>) {
        let Some(client) = self.connection.take() else { return };
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
        let elections: Vec<_> = self.entries.all().into_keys().collect();
        for election in elections {
            let reader = Reader::new(&self.inner, client, &election)?;
            for held in self.settle(&reader).await? {
                self.withdraw_on(client, &held, None).await?;
            }
        }
        match client.delete(&self.heartbeat, None).await {
            Ok(()) | Err(Error::NoNode) => Ok(()),
            Err(error) => Err(writing("closing the session")(error)),
        }
    }

    /// Makes the record beside an entry of ours again, while the entry is there.
    async fn restore(&self, reader: &Reader<'_>, name: &str, record: &str, data: &[u8]) -> Result<(), Error> {
        let above = self.inner.paths.candidates(reader.election);
        _ = self.inner.make(reader.client, &above, CreateMode::Container).await;
        let mut writer = reader.client.new_multi_writer();
        writer.add_check_version(&reader.path_of(name), -1)?;
        writer.add_create(record, data, &self.inner.mode(CreateMode::Ephemeral))?;
        writer.commit().await.map(|_| ()).map_err(Error::from)
    }

    pub(crate) fn held(&self, election: &ElectionName, name: &str, token: Token, incarnation: Incarnation) -> Held {
        Held::new(election.clone(), id_of(name, token), token, incarnation)
    }

    /// Which of our entries in this election are in line. What was sent on this connection has
    /// arrived before a later answer, or never will: a session that reconnects elsewhere has moved,
    /// and what it sent before is refused.
    pub(crate) async fn settle(&self, reader: &Reader<'_>) -> Result<Vec<Held>, StoreError> {
        let election = reader.election;
        let own_entries = self.entries.of(election);
        let (sync, ours) =
            tokio::join!(reader.client.sync(self.inner.paths.root()), reader.client.list_ephemerals(&reader.path));
        sync.map_err(reading("catching up"))?;
        let ours = paths(ours)?;
        let mut standing = Vec::new();
        for own_entry in own_entries {
            match self.find(reader, &own_entry, &ours).await? {
                Some((name, token)) => {
                    standing.push(self.held(election, &name, token, own_entry.incarnation));
                    self.know(election, own_entry.number, name, token);
                }
                None => self.forget(election, &own_entry),
            }
        }
        Ok(standing)
    }

    /// Whether an entry of ours is still there, and its record beside it.
    async fn renew_entry(
        &self,
        reader: &Reader<'_>,
        own_entry: &OwnEntry,
        ours: &BTreeSet<String>,
    ) -> Result<Option<Held>, StoreError> {
        let election = reader.election;
        let Some((name, token)) = self.find(reader, own_entry, ours).await? else {
            self.forget(election, own_entry);
            return Ok(None);
        };
        if own_entry.state == EntryState::Doubtful {
            self.know(election, own_entry.number, name.clone(), token);
        }
        let record = self.inner.paths.candidate(election, &name, self.session_id);
        if reader.dialect().is_foreign() && !ours.contains(&record) {
            // Others would take our candidate for another library's. If it fails, the next renewal
            // tries again.
            _ = self.restore(reader, &name, &record, &own_entry.record).await;
        }
        Ok(Some(self.held(election, &name, token, own_entry.incarnation)))
    }

    fn know(&self, election: &ElectionName, number: u64, name: String, token: Token) {
        self.inner.remember_place(election, token, &name);
        self.entries.set_state(election, number, Some(EntryState::Known(name, token)));
    }

    fn forget(&self, election: &ElectionName, own_entry: &OwnEntry) {
        if let EntryState::Known(_, token) = &own_entry.state {
            self.inner.forget_place(election, *token);
        }
        self.entries.set_state(election, own_entry.number, None);
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
        let known = self.entries.of(reader.election);
        for path in ours.iter().filter(|path| path.starts_with(&prefix)) {
            let name = &path[reader.path.len() + 1..];
            if known.iter().any(|entry| matches!(&entry.state, EntryState::Known(known, _) if known == name)) {
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

    pub(crate) async fn withdraw_on(
        &self,
        client: &Client,
        held: &Held,
        heir: Option<&EntryId>,
    ) -> Result<Cas, StoreError> {
        let Some(own_entry) = self.entries.get(held) else { return Ok(Cas::Done) };
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
                Err(error) => Err(writing("withdrawing")(error)),
            };
        }
        let stat = reader.client.check_stat(&reader.path_of(name)).await;
        let stat = stat.map_err(reading("withdrawing"))?;
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
        let own = reader.client.check_stat(&path).await.map_err(reading("withdrawing"))?;
        let Some(own) = own.filter(|own| own.czxid == zxid(token)) else { return Ok(Cas::Done) };
        let Some((heir_name, heir_token)) = parse_id(heir) else { return Ok(Cas::Refused) };
        let heir_path = reader.path_of(heir_name);
        let heir = reader.client.check_stat(&heir_path).await;
        let heir = heir.map_err(reading("withdrawing"))?;
        if heir.is_none_or(|heir| heir.czxid != zxid(heir_token)) {
            return Ok(Cas::Refused);
        }
        let record = self.inner.paths.candidate(reader.election, name, own.ephemeral_owner);
        // Once more without what is beside our entry, if somebody has removed that: the entry
        // decides.
        for with_record in [reader.dialect().is_foreign(), false] {
            let mut writer = reader.client.new_multi_writer();
            let mut added = writer.add_check_version(&heir_path, -1).and_then(|()| writer.add_delete(&path, None));
            if with_record {
                added = added.and_then(|()| writer.add_delete(&record, None));
            }
            added.map_err(reading("withdrawing"))?;
            match writer.commit().await.map_err(of_multi) {
                Ok(_) => return Ok(Cas::Done),
                Err((Some(0), Error::NoNode)) => return Ok(Cas::Refused),
                Err((Some(1), Error::NoNode)) => return Ok(Cas::Done),
                Err((Some(2), Error::NoNode)) => {}
                Err((_, error)) => return Err(classify(error, Effect::Write, "withdrawing")),
            }
        }
        Ok(Cas::Refused)
    }
}

impl ZooKeeperSession {
    /// Our place, given what was seen. `None`: it has to be looked at again.
    pub(crate) async fn place(
        &self,
        reader: &Reader<'_>,
        held: &Held,
        view: &View,
    ) -> Result<Option<Place>, StoreError> {
        let Some((name, _)) = parse_id(&held.entry) else { return Ok(Some(Place::Gone)) };
        let Some(ahead) = view.children.ahead_of(name) else { return Ok(None) };
        let Some(ahead) = ahead else { return Ok(Some(Place::Leading(held.clone()))) };
        let Some((ahead, stat)) = reader.entry(ahead).await? else { return Ok(None) };
        if let Some((name, _)) = parse_id(&ahead.id) {
            check_ephemeral(&reader.path, name, &stat)?;
        }
        Ok(Some(Place::behind(Some(held.clone()), ahead, None)))
    }

    pub(crate) async fn standing(&self, held: &Held, behind: Option<&EntryId>) -> Result<Standing, StoreError> {
        let client = self.core.client()?;
        let reader = Reader::new(&self.core.inner, &client, &held.election)?;
        let ours = self.core.entries.get(held);
        let name = parse_id(&held.entry).map_or("-", |(name, _)| name);
        let owned = |own: &Stat| own.ephemeral_owner == self.core.session_id && own.czxid == zxid(held.token);
        let published = Version(ours.as_ref().map_or(0, |own_entry| own_entry.publications));
        let stand = |place, office, cursor| {
            let mut standing = Standing::new(place, office, cursor);
            standing.published = published;
            Ok(standing)
        };
        let mut news = self.core.connection.take_news(&held.election);
        // A mark of the end is in the list.
        let behind = behind.and_then(parse_id).filter(|_| ours.is_some() && !reader.dialect().marks_the_end());
        if let Some((ahead, token)) = behind.filter(|(_, token)| *token < held.token && news != Some(News::AheadIsGone))
        {
            let view = reader.view_ahead(name, owned, (ahead, zxid(token)), news.take().is_some()).await?;
            if let Some(ViewAhead { entry, office, cursor }) = view {
                return stand(Place::behind(Some(held.clone()), entry, None), office, cursor);
            }
        }
        for _ in 0..MAX_READS {
            let view = reader.view(name, news.take().is_some()).await?;
            if ours.is_none() || !view.own.as_ref().is_some_and(owned) {
                return self.gone(&reader, held, view.cursor).await;
            }
            if let Some(place) = self.place(&reader, held, &view).await? {
                return stand(place, view.office, view.cursor);
            }
        }
        Err(StoreError::Unavailable { what: format!("the line at {} keeps changing", reader.path), source: None })
    }

    /// Our entry is not there, and never comes back. What the office record says now.
    async fn gone(&self, reader: &Reader<'_>, held: &Held, cursor: Cursor) -> Result<Standing, StoreError> {
        let view = reader.interpret(reader.read_once(None)?.await?, cursor).await?;
        let mut office = view.office;
        if reader.dialect().marks_the_end() && office.ended.is_none() && view.vanished {
            // go-leaderelection ends an election by removing its node; its mark is there only for a
            // moment before.
            office.ended = Some(ended_by(zxid(held.token)));
        }
        Ok(Standing::new(Place::Gone, office, cursor))
    }

    /// What is sent on a connection arrives in this order or not at all, and nobody else publishes
    /// for our entry. So it is enough that no two publications are sent as the successor of the
    /// same one.
    async fn publish(&self, held: &Held, was: Version, said: &Publication) -> Result<Option<Version>, StoreError> {
        check_value(&said.value)?;
        let client = self.core.client()?;
        let Some(own_entry) = self.core.entries.publish(held, was) else { return Ok(None) };
        let EntryState::Known(name, token) = &own_entry.state else { return Ok(None) };
        let published = Some(Version(own_entry.publications));
        let reader = Reader::new(&self.core.inner, &client, &held.election)?;
        let path = reader.path_of(name);
        let record = CandidateRecord {
            incarnation: own_entry.incarnation,
            name: own_entry.name.clone(),
            ready: said.ready,
            merit: said.merit,
        };
        let data = frame(&record, &said.value);
        if !reader.dialect().is_foreign() {
            return match client.set_data(&path, &data, None).await {
                Ok(stat) => {
                    self.core.inner.seen.note(&stat);
                    Ok(published)
                }
                Err(Error::NoNode) => Ok(None),
                Err(error) => Err(writing("publishing")(error)),
            };
        }
        // Never on the entry itself: Curator's followers wait for it to go, with a watch that any
        // change uses up.
        let there = client.check_stat(&path).await.map_err(reading("publishing"))?;
        let Some(there) = there.filter(|there| there.czxid == zxid(*token)) else { return Ok(None) };
        let record = self.core.inner.paths.candidate(&held.election, name, there.ephemeral_owner);
        let mut writer = client.new_multi_writer();
        let added = writer.add_check_version(&path, -1).and_then(|()| writer.add_set_data(&record, &data, None));
        added.map_err(reading("publishing"))?;
        self.core.entries.set_record(held, &data);
        match writer.commit().await.map_err(of_multi) {
            Ok(_) => Ok(published),
            Err((Some(0), Error::NoNode)) => Ok(None),
            // Somebody has removed it: it is made again, as it is now to be.
            Err((Some(_), Error::NoNode)) => match self.core.restore(&reader, name, &record, &data).await {
                Ok(()) => Ok(published),
                Err(error) => Err(writing("publishing")(error)),
            },
            Err((_, error)) => Err(classify(error, Effect::Write, "publishing")),
        }
    }

    /// A write to the heartbeat node, and behind it the list of all that our session owns.
    async fn renew(&self, held: &[Held]) -> Result<Renewal, StoreError> {
        let client = self.core.client()?;
        let own_entries = self.core.entries.all();
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
            Err(error) => return Err(classify(error, Effect::None, "proving that we live")),
        }
        let ours = paths(ours)?;
        let mut found = Vec::new();
        for (election, own_entries) in &own_entries {
            let reader = Reader::new(&self.core.inner, &client, election)?;
            for own_entry in own_entries.iter().filter(|own_entry| own_entry.state != EntryState::Sent) {
                found.extend(self.core.renew_entry(&reader, own_entry, &ours).await?);
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
        let Some(client) = self.core.connection.take() else { return Ok(()) };
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
    let paths = answer.map_err(reading("looking for our entries"))?;
    Ok(paths.into_iter().collect())
}

fn entry_of(held: &Held) -> (&ElectionName, &EntryId) {
    (&held.election, &held.entry)
}

fn entries_of(held: &[Held]) -> BTreeSet<(&ElectionName, &EntryId)> {
    held.iter().map(entry_of).collect()
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
        watcher::watch_entry(self.core.inner.clone(), self.core.connection.clone(), watched.clone(), from)
    }

    fn publish<'a>(&'a self, held: &'a Held, was: Version, said: &'a Publication) -> Fut<'a, Option<Version>> {
        Box::pin(self.core.guarded(Effect::Write, self.publish(held, was, said)))
    }

    fn withdraw<'a>(&'a self, held: &'a Held, heir: Option<&'a EntryId>) -> Fut<'a, Cas> {
        let withdraw = async move { self.core.withdraw_on(&self.core.client()?, held, heir).await };
        Box::pin(self.core.guarded(Effect::Write, withdraw))
    }

    fn close(&self) -> Fut<'_, ()> {
        Box::pin(self.close())
    }
}
