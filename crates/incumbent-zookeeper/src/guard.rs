//! Writes to ZooKeeper itself that only a sitting leader can make.

use incumbent_store::record::{Mark, Marked};
use incumbent_store::{ElectionName, StoreError, StoreId, Token};
use zookeeper_client::{Client, CreateMode, Error, MultiWriteResult, MultiWriter};

use crate::ZooKeeperStore;
use crate::connection::or_cut;
use crate::fault::{Effect, found, sort};
use crate::line::Reader;
use crate::paths::zxid;
use crate::store::of_multi;

/// How guarded operations went.
#[derive(Debug)]
pub enum Guarded {
    /// The leadership was there, and the operations were committed.
    Committed(Vec<MultiWriteResult>),
    /// The entry with this token is gone: nothing was written.
    Refused,
}

impl ZooKeeperStore {
    /// Commits the operations that `fill` adds only while the entry with this token is in line, in
    /// one step: if its leader has lost office, nothing is written. Paths are those of the
    /// connection, not below the store's chroot.
    ///
    /// The entry's own path is what is checked. In our dialect and in those of Curator and kazoo no
    /// path is ever used twice.
    ///
    /// ```no_run
    /// # use incumbent_store::{ElectionName, Token};
    /// # use incumbent_zookeeper::{Guarded, ZooKeeperStore};
    /// # async fn example(store: ZooKeeperStore, election: ElectionName, token: Token) -> Result<(), Box<dyn std::error::Error>> {
    /// let done = store.guard(&election, token, |writer| writer.add_set_data("/jobs-done/last", b"2031-04-01", None)).await?;
    /// if let Guarded::Refused = done {
    ///     // Another leads.
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn guard<F>(&self, election: &ElectionName, token: Token, fill: F) -> Result<Guarded, StoreError>
    where
        F: FnOnce(&mut MultiWriter<'_>) -> Result<(), Error> + Send,
    {
        let client = self.inner.client().await?;
        let done = or_cut(&client, Effect::Write, self.guard_on(&client, election, token, fill)).await;
        self.inner.on_shared(done, client.session_id()).await
    }

    async fn guard_on<F>(
        &self,
        client: &Client,
        election: &ElectionName,
        token: Token,
        fill: F,
    ) -> Result<Guarded, StoreError>
    where
        F: FnOnce(&mut MultiWriter<'_>) -> Result<(), Error> + Send,
    {
        let Some(path) = self.path_of(client, election, token).await? else { return Ok(Guarded::Refused) };
        let committed = {
            let mut writer = client.new_multi_writer();
            let filled = writer.add_check_version(&path, -1).and_then(|()| fill(&mut writer));
            filled.map_err(|error| sort(error, Effect::None, "writing under guard"))?;
            writer.commit()
        };
        match committed.await.map_err(of_multi) {
            Ok(mut results) => {
                // The check's own.
                results.remove(0);
                Ok(Guarded::Committed(results))
            }
            Err((Some(0), Error::NoNode)) => Ok(Guarded::Refused),
            Err((Some(index), error)) => Err(StoreError::Misuse {
                what: format!("operation {} under guard is refused: {error}; nothing was written", index - 1),
            }),
            Err((None, error)) => Err(sort(error, Effect::Write, "writing under guard")),
        }
    }

    /// The path that is there only while the entry with this token is in line, for transactions of
    /// one's own: check it with the version -1. `None`: it is not.
    pub async fn guarded_by(&self, election: &ElectionName, token: Token) -> Result<Option<String>, StoreError> {
        let client = self.inner.client().await?;
        let found = self.path_of(&client, election, token).await;
        self.inner.on_shared(found, client.session_id()).await
    }

    async fn path_of(
        &self,
        client: &Client,
        election: &ElectionName,
        token: Token,
    ) -> Result<Option<String>, StoreError> {
        let reader = Reader::new(&self.inner, client, election)?;
        if let Some(name) = self.inner.own_place(election, token).filter(|_| reader.dialect().has_guid()) {
            return Ok(Some(reader.path_of(&name)));
        }
        let (sync, children) = tokio::join!(client.sync(self.inner.paths.root()), client.get_children(&reader.path));
        sync.map_err(|error| sort(error, Effect::None, "catching up"))?;
        // A leader is first, but one who is about to be may ask, too.
        for child in reader.children(children)?.line {
            let path = reader.path_of(&child.name);
            let stat =
                client.check_stat(&path).await.map_err(|error| sort(error, Effect::None, "looking for the entry"))?;
            match stat {
                Some(stat) if stat.czxid == zxid(token) => return Ok(Some(path)),
                // The line is in the order of tokens.
                Some(stat) if stat.czxid > zxid(token) => return Ok(None),
                _ => {}
            }
        }
        Ok(None)
    }
}

/// A mark in ZooKeeper that keeps older leaders out: in the same ensemble as the election or in
/// another.
///
/// Every write checks the mark in the same step. `incumbent` makes a fence of it. The mark's node
/// must not be deleted.
#[derive(Clone, Debug)]
pub struct ZooKeeperMark {
    store: ZooKeeperStore,
    election: ElectionName,
    path: String,
}

impl ZooKeeperMark {
    /// A mark at `path`, a path of the connection, for the leaders of `election`.
    pub fn new(store: &ZooKeeperStore, election: &ElectionName, path: impl Into<String>) -> ZooKeeperMark {
        ZooKeeperMark { store: store.clone(), election: election.clone(), path: path.into() }
    }

    /// The election whose leaders it knows.
    pub fn election(&self) -> &ElectionName {
        &self.election
    }

    /// Raises the mark to `token`, if it is not there already.
    pub async fn raise(&self, store: &StoreId, token: Token) -> Result<Marked, StoreError> {
        let client = self.store.inner.client().await?;
        let done = or_cut(&client, Effect::Write, self.raised(&client, store, token)).await.map(|(marked, _)| marked);
        self.store.inner.on_shared(done, client.session_id()).await
    }

    /// Commits the operations that `fill` adds if the mark stands at `token`, in one step. A mark
    /// that is lower is raised first.
    pub async fn write<F>(&self, store: &StoreId, token: Token, fill: F) -> Result<Marked, StoreError>
    where
        F: Fn(&mut MultiWriter<'_>) -> Result<(), Error> + Send + Sync,
    {
        let client = self.store.inner.client().await?;
        let done = or_cut(&client, Effect::Write, self.write_on(&client, store, token, fill)).await;
        self.store.inner.on_shared(done, client.session_id()).await
    }

    async fn write_on<F>(&self, client: &Client, store: &StoreId, token: Token, fill: F) -> Result<Marked, StoreError>
    where
        F: Fn(&mut MultiWriter<'_>) -> Result<(), Error> + Send + Sync,
    {
        for _ in 0..Mark::MAX_RAISES {
            let (marked, version) = self.raised(client, store, token).await?;
            if !matches!(marked, Marked::Done) {
                return Ok(marked);
            }
            let committed = {
                let mut writer = client.new_multi_writer();
                let filled = writer.add_check_version(&self.path, version).and_then(|()| fill(&mut writer));
                filled.map_err(|error| sort(error, Effect::None, "writing behind a mark"))?;
                writer.commit()
            };
            match committed.await.map_err(of_multi) {
                Ok(_) => return Ok(Marked::Done),
                // It was raised meanwhile: whether past us, the next look tells.
                Err((Some(0), Error::BadVersion | Error::NoNode)) => {}
                Err((Some(index), error)) => {
                    let what =
                        format!("operation {} behind a mark is refused: {error}; nothing was written", index - 1);
                    return Err(StoreError::Misuse { what });
                }
                Err((None, error)) => return Err(sort(error, Effect::Write, "writing behind a mark")),
            }
        }
        Err(Mark::keeps_changing())
    }

    /// Raises it: what it says, and the version that its node has then.
    async fn raised(&self, client: &Client, store: &StoreId, token: Token) -> Result<(Marked, i32), StoreError> {
        for _ in 0..Mark::MAX_RAISES {
            let (mark, version) = self.read(client).await?;
            if let Some(said) = mark.and_then(|mark| mark.says(store, token)) {
                return Ok((said, version.unwrap_or_default()));
            }
            let mark = Mark { store: store.clone(), token: Some(token) };
            if let Some(version) = self.replace(client, version, &mark).await? {
                return Ok((Marked::Done, version));
            }
        }
        Err(Mark::keeps_changing())
    }

    /// An operator's act, for a store that was replaced or restored: from now on the tokens of
    /// `store` count, from the first one. Make sure that no leader of the old store still runs.
    pub async fn reset(&self, store: &StoreId) -> Result<(), StoreError> {
        let client = self.store.inner.client().await?;
        for _ in 0..Mark::MAX_RAISES {
            let node = self.read_node(&client).await?;
            let mark = Mark { store: store.clone(), token: None };
            if self.replace(&client, node.map(|(_, version)| version), &mark).await?.is_some() {
                return Ok(());
            }
        }
        Err(Mark::keeps_changing())
    }

    async fn read(&self, client: &Client) -> Result<(Option<Mark>, Option<i32>), StoreError> {
        let Some((data, version)) = self.read_node(client).await? else { return Ok((None, None)) };
        Ok((Some(Mark::decode(&data, &self.election, &self.path)?), Some(version)))
    }

    async fn read_node(&self, client: &Client) -> Result<Option<(Vec<u8>, i32)>, StoreError> {
        let (sync, node) = tokio::join!(client.sync(&self.path), client.get_data(&self.path));
        sync.map_err(|error| sort(error, Effect::None, "catching up"))?;
        Ok(found(node, "reading a mark")?.map(|(data, stat)| (data, stat.version)))
    }

    /// The version that it has then; `None`: it has changed meanwhile.
    async fn replace(&self, client: &Client, was: Option<i32>, mark: &Mark) -> Result<Option<i32>, StoreError> {
        let data = mark.encode(&self.election);
        let written = match was {
            Some(version) => client.set_data(&self.path, &data, Some(version)).await,
            None => self.create(client, &data).await,
        };
        match written {
            Ok(stat) => Ok(Some(stat.version)),
            Err(Error::BadVersion | Error::NodeExists | Error::NoNode) => Ok(None),
            Err(error) => Err(sort(error, Effect::Write, "raising a mark")),
        }
    }

    async fn create(&self, client: &Client, data: &[u8]) -> Result<zookeeper_client::Stat, Error> {
        let mode = self.store.inner.mode(CreateMode::Persistent);
        match client.create(&self.path, data, &mode).await {
            Err(Error::NoNode) => {
                let above = self.path.rsplit_once('/').map_or("/", |(above, _)| above);
                client.mkdir(above, &self.store.inner.mode_above()).await?;
                client.create(&self.path, data, &mode).await.map(|(stat, _)| stat)
            }
            other => other.map(|(stat, _)| stat),
        }
    }
}
