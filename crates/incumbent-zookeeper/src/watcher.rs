//! Watches: one-shot watches of the server, compared with what was seen when they are armed.
//!
//! Those who wait say what they have seen, and nodes say when they last changed: so a change
//! between the look and the watch shows.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use incumbent_store::{Cursor, Effect, ElectionName, EntryId, Head, Seen, StoreError, Version, Wake, Watched};
use zookeeper_client::{Client, Error, EventType, SessionId, Stat, StateWatcher};

use crate::connection::{News, SessionConnection, cut, is_after};
use crate::dialect::Dialect;
use crate::error::classify;
use crate::lingering_watch::LingeringWatch;
use crate::paths::{parse_id, zxid};
use crate::store::Inner;

/// Waits for what concerns one who has an entry, on the connection of its session: news that come
/// on it need no catching up.
///
/// No client is held while nothing happens: a watch keeps no session alive.
pub(crate) fn watch_entry(
    inner: Arc<Inner>,
    connection: Arc<SessionConnection>,
    watched: Watched,
    from: Cursor,
) -> Wake {
    let counted = Counted::new(inner);
    Box::pin(async move {
        let election = &watched.held.election;
        let watch = Watch::new(&counted.0, election, Some(connection.clone()), from)?;
        let (mut state, _) = watch.state().await?;
        let Watched { held, office, ahead, heir, .. } = &watched;
        let others = async {
            tokio::select! {
                done = watch.gone(&held.entry) => done,
                done = watch.office(*office) => done,
                done = maybe(heir.as_ref().map(|heir| watch.entry(heir))) => done,
            }
        };
        let (done, news) = tokio::select! {
            done = maybe(ahead.as_ref().map(|ahead| watch.gone(ahead))) => (done, News::AheadIsGone),
            done = others => (done, News::Other),
            // The candidate looks again then, and watches on the next connection: watches can lose
            // events when one is made again (ZOOKEEPER-4698).
            lost = cut(&mut state) => (Err(lost), News::Other),
        };
        if done.is_ok() {
            connection.wake(election, news);
        }
        done
    })
}

/// Waits for what concerns one who has none, on the shared connection.
pub(crate) fn watch_election(inner: Arc<Inner>, election: ElectionName, seen: Seen, from: Cursor) -> Wake {
    let counted = Counted::new(inner);
    Box::pin(async move {
        let inner = &*counted.0;
        let watch = Watch::new(inner, &election, None, from)?;
        let (mut state, session) = watch.state().await?;
        let done = tokio::select! {
            done = watch.office(seen.office) => done,
            done = watch.head(&seen.head) => done,
            done = maybe(seen.last.as_ref().map(|last| watch.gone(last))) => done,
            lost = cut(&mut state) => Err(lost),
        };
        inner.shared_outcome(done, session).await
    })
}

/// Never, where there is nothing to wait for.
async fn maybe(waiting: Option<impl Future<Output = Result<(), StoreError>>>) -> Result<(), StoreError> {
    match waiting {
        Some(waiting) => waiting.await,
        None => std::future::pending().await,
    }
}

/// Somebody's wait, for those who count.
struct Counted(Arc<Inner>);

impl Counted {
    fn new(inner: Arc<Inner>) -> Counted {
        inner.watches.fetch_add(1, Relaxed);
        Counted(inner)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.watches.fetch_sub(1, Relaxed);
    }
}

struct Watch<'a> {
    inner: &'a Inner,
    election: &'a ElectionName,
    /// The node whose children the entries are.
    path: String,
    /// The connection to watch on; `None`: the shared one.
    connection: Option<Arc<SessionConnection>>,
    from: Cursor,
}

impl<'a> Watch<'a> {
    fn new(
        inner: &'a Inner,
        election: &'a ElectionName,
        connection: Option<Arc<SessionConnection>>,
        from: Cursor,
    ) -> Result<Watch<'a>, StoreError> {
        Ok(Watch { inner, election, path: inner.paths.election(election)?, connection, from })
    }

    /// Who tells when the connection is lost.
    async fn state(&self) -> Result<(StateWatcher, SessionId), StoreError> {
        let client = self.client().await?;
        Ok((client.state_watcher(), client.session_id()))
    }

    fn dialect(&self) -> Dialect {
        self.inner.paths.dialect()
    }

    async fn client(&self) -> Result<Client, StoreError> {
        match &self.connection {
            Some(connection) => connection.client(),
            None => self.inner.client().await,
        }
    }

    fn is_new(&self, stat: &Stat) -> bool {
        is_after(stat.mzxid, self.from)
    }

    /// Looks at a node, and at it again when it has changed.
    async fn arm(&self, path: &str) -> Result<(Option<Stat>, LingeringWatch), StoreError> {
        let client = self.client().await?;
        let (stat, watcher) = client.check_and_watch_stat(path).await.map_err(lost)?;
        stat.iter().for_each(|stat| self.inner.seen.note(stat));
        Ok((stat, LingeringWatch::new(watcher)))
    }

    fn path_of(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }

    /// Until the entry goes. What it says meanwhile does not count.
    async fn gone(&self, id: &EntryId) -> Result<(), StoreError> {
        // An entry with another kind of name is not there: it is gone.
        let Some((name, token)) = parse_id(id) else { return Ok(()) };
        loop {
            let (stat, watcher) = self.arm(&self.path_of(name)).await?;
            if stat.is_none_or(|stat| stat.czxid != zxid(token)) {
                return Ok(());
            }
            if watcher.await.event_type == EventType::NodeDeleted {
                return Ok(());
            }
        }
    }

    /// Until the entry goes, or says something else.
    async fn entry(&self, id: &EntryId) -> Result<(), StoreError> {
        let Some((name, token)) = parse_id(id) else { return Ok(()) };
        let (stat, watcher) = self.arm(&self.path_of(name)).await?;
        match stat.filter(|stat| stat.czxid == zxid(token)) {
            Some(stat) if !self.is_new(&stat) => self.either(watcher, name, &stat).await,
            _ => Ok(()),
        }
    }

    /// Until the entry changes, or what our candidate says beside it.
    async fn either(&self, watcher: LingeringWatch, name: &str, entry: &Stat) -> Result<(), StoreError> {
        tokio::select! {
            _ = watcher => Ok(()),
            done = self.candidate_record(name, entry) => done,
        }
    }

    /// Until what our candidate says beside its entry changes. Never, where it says everything in
    /// the entry.
    async fn candidate_record(&self, name: &str, entry: &Stat) -> Result<(), StoreError> {
        if !self.dialect().is_foreign() {
            return std::future::pending().await;
        }
        let path = self.inner.paths.candidate(self.election, name, entry.ephemeral_owner);
        let (stat, watcher) = self.arm(&path).await?;
        if !stat.is_some_and(|stat| self.is_new(&stat)) {
            watcher.await;
        }
        Ok(())
    }

    /// Until the office record has another version.
    async fn office(&self, seen: Version) -> Result<(), StoreError> {
        let (stat, watcher) = self.arm(&self.inner.paths.office(self.election)).await?;
        if stat.map_or(0, |stat| stat.mzxid.unsigned_abs()) != seen.0 {
            return Ok(());
        }
        tokio::select! {
            _ = watcher => Ok(()),
            done = self.end() => done,
        }
    }

    /// The children, and a watch on them. `None`: there is no node.
    async fn arm_line(&self) -> Result<Option<(Vec<String>, Stat, LingeringWatch)>, StoreError> {
        let client = self.client().await?;
        match client.get_and_watch_children(&self.path).await {
            Ok((names, stat, watcher)) => {
                self.inner.seen.note(&stat);
                Ok(Some((names, stat, LingeringWatch::new(watcher))))
            }
            Err(Error::NoNode) => Ok(None),
            Err(error) => Err(lost(error)),
        }
    }

    /// Until go-leaderelection's mark of the end is there, in its dialect.
    async fn end(&self) -> Result<(), StoreError> {
        if !self.dialect().marks_the_end() {
            return std::future::pending().await;
        }
        loop {
            let watcher = match self.arm_line().await? {
                Some((names, stat, watcher)) => {
                    let done = names.iter().any(|name| self.dialect().is_end(name));
                    if done && is_after(stat.pzxid, self.from) {
                        return Ok(());
                    }
                    watcher
                }
                None => self.arm(&self.path).await?.1,
            };
            watcher.await;
        }
    }

    /// Until another entry is first, or the first says something else.
    async fn head(&self, seen: &Head) -> Result<(), StoreError> {
        let seen = match seen {
            Head::Ignored => return std::future::pending().await,
            Head::Nobody => None,
            Head::Is(id) => Some(id),
        };
        loop {
            let Some((names, _, watcher)) = self.arm_line().await? else {
                let (stat, watcher) = self.arm(&self.path).await?;
                match (seen, stat) {
                    (Some(_), _) => return Ok(()),
                    (None, None) => drop(watcher.await),
                    (None, Some(_)) => {}
                }
                continue;
            };
            // Those who do not keep to the dialect are met when the line is read.
            let Ok(line) = self.dialect().line(&self.path, &names) else { return Ok(()) };
            let head = line.into_iter().next().map(|child| child.name);
            if head.as_deref() != seen.and_then(parse_id).map(|(name, _)| name) {
                return Ok(());
            }
            tokio::select! {
                _ = watcher => {}
                done = maybe(seen.map(|seen| self.entry(seen))) => return done,
            }
        }
    }
}

fn lost(error: Error) -> StoreError {
    classify(error, Effect::None, "watching")
}
