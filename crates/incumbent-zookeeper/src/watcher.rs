//! Watches: one-shot watches of the server, compared with the cursor when they are armed.
//!
//! Nodes say when they last changed, so a change between the cursor and the watch shows. What has
//! gone leaves a trace as well: a removed office record changes the node above all records, a
//! removed child the node that it was in.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use futures_util::future::select_all;
use incumbent_store::{Cursor, ElectionName, EntryId, StoreError, Target, Wake};
use zookeeper_client::{Client, Error, EventType, Stat};

use crate::armed::Armed;
use crate::dialect::Dialect;
use crate::fault::{Effect, sort};
use crate::link::{Lane, cut, is_after};
use crate::paths::{ancestors, parse_id, zxid};
use crate::store::Inner;

type Waiting<'a> = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send + 'a>>;

/// Waits until one of the targets has changed since the cursor.
///
/// No client is held while nothing happens: whoever waits does not keep a session alive.
pub(crate) fn watch(inner: Arc<Inner>, election: ElectionName, targets: Vec<Target>, from: Cursor) -> Wake {
    let counted = Counted::new(inner);
    Box::pin(async move {
        let inner = &*counted.0;
        let path = inner.paths.election(&election)?;
        let lane = inner.lane_of(&election, &targets).filter(|lane| lane.client().is_ok());
        let watch = Watch { inner, election: &election, path, lane, from };
        let client = watch.client().await?;
        let (mut state, session) = (client.state_watcher(), client.session_id());
        drop(client);
        let waiting: Vec<Waiting<'_>> = targets.iter().map(|target| watch.target(target)).collect();
        if waiting.is_empty() {
            return std::future::pending().await;
        }
        let done = tokio::select! {
            (done, _, _) = select_all(waiting) => done,
            // Whoever waits looks again then, and watches on the next connection: watches can lose
            // events when one is made again (ZOOKEEPER-4698).
            lost = cut(&mut state) => Err(lost),
        };
        if let (Ok(()), Some(lane)) = (&done, &watch.lane) {
            lane.wake(&election);
        }
        inner.on_shared(done, session).await
    })
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
    lane: Option<Arc<Lane>>,
    from: Cursor,
}

impl Watch<'_> {
    fn target<'b>(&'b self, target: &'b Target) -> Waiting<'b> {
        match target {
            Target::Gone(id) => Box::pin(self.gone(id)),
            Target::Entry(id) => Box::pin(self.entry(id)),
            Target::Head => Box::pin(self.head()),
            Target::Office => Box::pin(self.office()),
        }
    }

    fn dialect(&self) -> Dialect {
        self.inner.paths.dialect()
    }

    async fn client(&self) -> Result<Client, StoreError> {
        match &self.lane {
            Some(lane) => lane.client(),
            None => self.inner.client().await,
        }
    }

    fn is_new(&self, stat: &Stat) -> bool {
        is_after(stat.mzxid, self.from)
    }

    /// Looks at a node, and at it again when it has changed.
    async fn arm(&self, path: &str) -> Result<(Option<Stat>, Armed), StoreError> {
        let client = self.client().await?;
        let (stat, watcher) = client.check_and_watch_stat(path).await.map_err(lost)?;
        stat.iter().for_each(|stat| self.inner.seen.note(stat));
        Ok((stat, Armed::new(watcher)))
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
    async fn either(&self, watcher: Armed, name: &str, entry: &Stat) -> Result<(), StoreError> {
        tokio::select! {
            _ = watcher => Ok(()),
            done = self.beside(name, entry) => done,
        }
    }

    /// Until what our candidate says beside its entry changes. Never, where it says everything in
    /// the entry.
    async fn beside(&self, name: &str, entry: &Stat) -> Result<(), StoreError> {
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

    async fn office(&self) -> Result<(), StoreError> {
        let (stat, watcher) = self.arm(&self.inner.paths.office(self.election)).await?;
        let stat = match stat {
            Some(stat) => Some(stat),
            // A record that is not there was perhaps removed since: that shows above it.
            None => self.look(&self.inner.paths.offices()).await?,
        };
        if stat.is_some_and(|stat| self.is_new(&stat)) {
            return Ok(());
        }
        tokio::select! {
            _ = watcher => Ok(()),
            done = self.end() => done,
        }
    }

    async fn look(&self, path: &str) -> Result<Option<Stat>, StoreError> {
        let stat = self.client().await?.check_stat(path).await.map_err(lost)?;
        stat.iter().for_each(|stat| self.inner.seen.note(stat));
        Ok(stat)
    }

    /// The children, and a watch on them. `None`: there is no node.
    async fn arm_line(&self) -> Result<Option<(Vec<String>, Stat, Armed)>, StoreError> {
        let client = self.client().await?;
        match client.get_and_watch_children(&self.path).await {
            Ok((names, stat, watcher)) => {
                self.inner.seen.note(&stat);
                Ok(Some((names, stat, Armed::new(watcher))))
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
    async fn head(&self) -> Result<(), StoreError> {
        let mut first: Option<Option<String>> = None;
        loop {
            let Some((names, stat, watcher)) = self.arm_line().await? else {
                return self.begins(first.is_none()).await;
            };
            if first.is_none() && is_after(stat.pzxid, self.from) {
                return Ok(());
            }
            // Those who do not keep to the dialect are met when the line is read.
            let Ok(line) = self.dialect().line(&self.path, &names) else { return Ok(()) };
            let head = line.into_iter().next().map(|child| child.name);
            if first.as_ref().is_some_and(|first| *first != head) {
                return Ok(());
            }
            tokio::select! {
                _ = watcher => {}
                done = self.says(head.as_deref()) => return done,
            }
            first = Some(head);
        }
    }

    /// Until the first in line says something else.
    async fn says(&self, head: Option<&str>) -> Result<(), StoreError> {
        let Some(name) = head else { return std::future::pending().await };
        match self.arm(&self.path_of(name)).await? {
            (Some(stat), watcher) if !self.is_new(&stat) => self.either(watcher, name, &stat).await,
            _ => Ok(()),
        }
    }

    /// There is no line. Until there is; or at once if it is the last change that removed it.
    async fn begins(&self, at_first: bool) -> Result<(), StoreError> {
        let (stat, watcher) = self.arm(&self.path).await?;
        if stat.is_some() || !at_first {
            return Ok(());
        }
        for above in ancestors(&self.path) {
            if let Some(stat) = self.look(above).await? {
                if is_after(stat.pzxid, self.from) {
                    return Ok(());
                }
                break;
            }
        }
        watcher.await;
        Ok(())
    }
}

fn lost(error: Error) -> StoreError {
    sort(error, Effect::None, "watching")
}
