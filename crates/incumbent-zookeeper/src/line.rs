//! Reading a line: who is in it, who is right ahead, and what the office record says.
//!
//! All answers come from one connection, in the order of the requests, so each shows a state that
//! is no older than the one before it. What is older than an entry only ever goes. The crate's
//! documentation says why that is enough.

use std::future::Future;
use std::pin::Pin;

use incumbent_store::{Cursor, Effect, ElectionName, Entry, Line, Office, StoreError};
use zookeeper_client::{Client, Error, MultiReadResult, Stat};

use crate::dialect::{Child, Dialect};
use crate::error::{classify, found, reading};
use crate::node::{self, Node};
use crate::store::Inner;

/// How often a line is read again because it has changed while it was read.
const MAX_READS: usize = 8;
/// How many nodes are asked for before the first answer is waited for.
const AT_ONCE: usize = 256;

/// A line on a connection.
pub(crate) struct Reader<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) client: &'a Client,
    pub(crate) election: &'a ElectionName,
    /// The node whose children the entries are.
    pub(crate) path: String,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(
        inner: &'a Inner,
        client: &'a Client,
        election: &'a ElectionName,
    ) -> Result<Reader<'a>, StoreError> {
        Ok(Reader { inner, client, election, path: inner.paths.election(election)? })
    }

    pub(crate) fn dialect(&self) -> Dialect {
        self.inner.paths.dialect()
    }

    pub(crate) fn path_of(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }

    /// The children that are entries, oldest first, from what was read.
    pub(crate) fn children(&self, read: Result<(Vec<String>, Stat), Error>) -> Result<Children, StoreError> {
        let Some((names, stat)) = found(read, "reading the line")? else { return Ok(Children::default()) };
        self.inner.seen.note(&stat);
        Ok(Children { changed: stat.pzxid, ..self.sorted(names)? })
    }

    fn sorted(&self, names: Vec<String>) -> Result<Children, StoreError> {
        let line = self.dialect().line(&self.path, &names)?;
        let done = names.into_iter().find(|name| self.dialect().is_end(name));
        Ok(Children { line, done, changed: 0 })
    }

    /// The entry with this name; `None`: it is not there any more.
    pub(crate) async fn entry(&self, name: &str) -> Result<Option<(Entry, Stat)>, StoreError> {
        let node = found(self.client.get_data(&self.path_of(name)).await, "reading an entry")?;
        let Some(node) = node else { return Ok(None) };
        self.inner.seen.note(&node.1);
        let record = self.candidate_record(name, &node).await?;
        let entry = node::entry(name, &node, record.as_ref())?;
        Ok(Some((entry, node.1)))
    }

    /// What our candidate says about itself, where the entry itself is in another library's
    /// dialect.
    pub(crate) async fn candidate_record(&self, name: &str, node: &Node) -> Result<Option<Node>, StoreError> {
        if !self.dialect().is_foreign() {
            return Ok(None);
        }
        let path = self.inner.paths.candidate(self.election, name, node.1.ephemeral_owner);
        let record = found(self.client.get_data(&path).await, "reading a candidate's record")?;
        record.iter().for_each(|(_, stat)| self.inner.seen.note(stat));
        Ok(record)
    }

    /// The oldest entries and the office record.
    ///
    /// The entries' nodes are read after the list of them, and the list's own number of changes
    /// after those: if it is the same, the line stood still in between, and the record was read
    /// then.
    pub(crate) async fn line(&self, limit: usize) -> Result<Line, StoreError> {
        let Reader { client, inner, election, path } = self;
        let office_path = inner.paths.office(election);
        let mut last = None;
        for _ in 0..MAX_READS {
            let before = inner.seen.cursor();
            let (sync, children) = tokio::join!(client.sync(inner.paths.root()), client.get_children(path));
            sync.map_err(reading("catching up"))?;
            let children = self.children(children)?;
            // What follows is no older than the list.
            let cursor = before.max(Cursor(children.changed.unsigned_abs()));
            let names: Vec<_> = children.line.iter().take(limit).map(|child| child.name.as_str()).collect();
            let mut entries = Vec::with_capacity(names.len());
            for names in names.chunks(AT_ONCE) {
                let read = futures_util::future::join_all(names.iter().map(|name| self.entry(name))).await;
                for entry in read {
                    entries.extend(entry?.map(|(entry, _)| entry));
                }
            }
            let (office, stat) = tokio::join!(client.get_data(&office_path), client.check_stat(path));
            let stat = stat.map_err(reading("reading the line"))?;
            let office = found(office, "reading the office record")?;
            let office = inner.office_from(client, election, office).await?;
            // With an end of ours the mark that others look at is ours, too.
            let (ended, mark) = (office.ended.is_some(), children.done.as_deref());
            let left = stat.map(|stat| stat.num_children);
            if ended && children.line.is_empty() && left == Some(i32::from(mark.is_some())) {
                self.clear_away(mark).await;
            }
            let office = self.with_end(office, &children).await?;
            let still = stat.map_or(0, |stat| stat.pzxid) == children.changed;
            let more = children.line.len() > limit;
            let line = Line::new(entries, more, office, cursor);
            if still {
                return Ok(line);
            }
            last = Some(line);
        }
        // A line that never stands still. What is in this one was there, and what has come since
        // wakes those who watch.
        last.ok_or_else(|| StoreError::Unavailable { what: "reading the line".to_owned(), source: None })
    }

    /// Nobody is left in an election that has ended: nothing else is to be left either. The next
    /// candidate makes the nodes anew, and a node that is not empty stays. If it fails, ZooKeeper
    /// itself removes the nodes: they are containers.
    async fn clear_away(&self, mark: Option<&str>) {
        if let Some(mark) = mark {
            _ = self.client.delete(&self.path_of(mark), None).await;
        }
        let records = self.inner.paths.candidates(self.election);
        _ = tokio::join!(self.client.delete(&self.path, None), self.client.delete(&records, None));
    }

    /// The office record, and what go-leaderelection's mark of the end adds to it.
    pub(crate) async fn with_end(&self, office: Office, children: &Children) -> Result<Office, StoreError> {
        let Some(done) = children.done.as_deref().filter(|_| office.ended.is_none()) else { return Ok(office) };
        let stat = self.client.check_stat(&self.path_of(done)).await;
        let stat = stat.map_err(reading("reading the mark of the end"))?;
        Ok(match stat {
            Some(stat) => office.with_ended(crate::store::ended_by(stat.czxid)),
            None => office,
        })
    }

    /// Reads list, office record and our own entry, in this order and with one request, which is on
    /// its way before this returns. With our own entry there in the end, it was there when the
    /// record was read, and nothing older than what the list shows was.
    pub(crate) fn read_once(&self, own: Option<&str>) -> Result<PendingRead<'a>, StoreError> {
        let mut reader = self.client.new_multi_reader();
        let mut added = reader
            .add_get_children(&self.path)
            .and_then(|()| reader.add_get_data(&self.inner.paths.office(self.election)));
        if let Some(own) = own {
            added = added.and_then(|()| reader.add_get_data(&self.path_of(own)));
        }
        added.map_err(reading(WHAT))?;
        let read = reader.commit();
        Ok(Box::pin(async move {
            let mut results = read.await.map_err(reading(WHAT))?.into_iter();
            let names = match results.next() {
                Some(MultiReadResult::Children { children }) => Some(children),
                other => {
                    node_of(other)?;
                    None
                }
            };
            Ok(LineRead {
                names,
                office: node_of(results.next())?,
                own: node_of(results.next())?.map(|(_, stat)| stat),
            })
        }))
    }

    /// What a candidate sees. `fresh`: the connection has told something that is newer than
    /// whatever the caller knows of.
    pub(crate) async fn view(&self, own: &str, fresh: bool) -> Result<View, StoreError> {
        let cursor = self.inner.seen.cursor();
        let read = match fresh {
            true => self.read_once(Some(own))?.await?,
            false => {
                let sync = self.client.sync(self.inner.paths.root());
                let (sync, read) = tokio::join!(sync, self.read_once(Some(own))?);
                sync.map_err(reading("catching up"))?;
                read?
            }
        };
        self.interpret(read, cursor).await
    }

    /// What a candidate sees that was behind `ahead`, with one request and without the line.
    /// `None`: the one ahead is gone, or our own entry is.
    pub(crate) async fn view_ahead(
        &self,
        own: &str,
        is_own: impl Fn(&Stat) -> bool,
        ahead: (&str, i64),
        fresh: bool,
    ) -> Result<Option<ViewAhead>, StoreError> {
        let cursor = self.inner.seen.cursor();
        let sync = (!fresh).then(|| self.client.sync(self.inner.paths.root()));
        let mut reader = self.client.new_multi_reader();
        let added = reader
            .add_get_data(&self.inner.paths.office(self.election))
            .and_then(|()| reader.add_get_data(&self.path_of(own)))
            .and_then(|()| reader.add_get_data(&self.path_of(ahead.0)));
        added.map_err(reading(WHAT))?;
        let read = reader.commit();
        if let Some(sync) = sync {
            sync.await.map_err(reading("catching up"))?;
        }
        let mut results = read.await.map_err(reading(WHAT))?.into_iter();
        let mut next = || node_of(results.next());
        let (office, own, node) = (next()?, next()?, next()?);
        let Some(node) = node.filter(|(_, stat)| stat.czxid == ahead.1) else { return Ok(None) };
        if !own.is_some_and(|(_, stat)| is_own(&stat)) {
            return Ok(None);
        }
        node::check_ephemeral(&self.path, ahead.0, &node.1)?;
        self.inner.seen.note(&node.1);
        let record = self.candidate_record(ahead.0, &node).await?;
        let entry = node::entry(ahead.0, &node, record.as_ref())?;
        let office = self.inner.office_from(self.client, self.election, office).await?;
        Ok(Some(ViewAhead { entry, office, cursor }))
    }

    pub(crate) async fn interpret(&self, read: LineRead, cursor: Cursor) -> Result<View, StoreError> {
        let vanished = read.names.is_none();
        let children = self.sorted(read.names.unwrap_or_default())?;
        let office = self.inner.office_from(self.client, self.election, read.office).await?;
        let office = self.with_end(office, &children).await?;
        Ok(View { children, office, own: read.own, cursor, vanished })
    }
}

const WHAT: &str = "looking at the line";

/// One answer of several.
fn node_of(result: Option<MultiReadResult>) -> Result<Option<Node>, StoreError> {
    match result {
        Some(MultiReadResult::Data { data, stat }) => Ok(Some((data, stat))),
        Some(MultiReadResult::Error { err: Error::NoNode }) | None => Ok(None),
        Some(MultiReadResult::Error { err }) => Err(classify(err, Effect::None, WHAT)),
        Some(other) => Err(StoreError::Foreign { what: format!("an answer to another question: {other:?}") }),
    }
}

/// A look at a line that is on its way.
type PendingRead<'a> = Pin<Box<dyn Future<Output = Result<LineRead, StoreError>> + Send + 'a>>;

/// What was read with one request.
#[derive(Debug)]
pub(crate) struct LineRead {
    /// `None`: there is no node.
    names: Option<Vec<String>>,
    office: Option<Node>,
    own: Option<Stat>,
}

/// The children of an election's node.
#[derive(Debug, Default)]
pub(crate) struct Children {
    /// Oldest first.
    pub(crate) line: Vec<Child>,
    /// go-leaderelection's mark of the end.
    pub(crate) done: Option<String>,
    /// When a child last came or went. Zero: there is no node.
    pub(crate) changed: i64,
}

impl Children {
    /// Who is right ahead of the entry with this name. `None`: it is not in line.
    pub(crate) fn ahead_of(&self, name: &str) -> Option<Option<&str>> {
        let place = self.line.iter().position(|child| child.name == name)?;
        Some(place.checked_sub(1).map(|ahead| self.line[ahead].name.as_str()))
    }
}

/// What a follower sees while the one ahead is there.
#[derive(Debug)]
pub(crate) struct ViewAhead {
    pub(crate) entry: Entry,
    pub(crate) office: Office,
    pub(crate) cursor: Cursor,
}

/// What a candidate sees.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) children: Children,
    pub(crate) office: Office,
    pub(crate) own: Option<Stat>,
    pub(crate) cursor: Cursor,
    /// There is no node.
    pub(crate) vanished: bool,
}
