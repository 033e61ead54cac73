//! A mark in ZooKeeper that refuses older tokens, for what is written to ZooKeeper.

use incumbent_store::fence::{BoxFuture, Fence, FenceError, FencingToken, Mark, check_election, log_reset};
use incumbent_store::{Effect, ElectionName, StoreError, StoreId};
use zookeeper_client::{Client, CreateMode, Error, MultiWriter};

use crate::ZooKeeperStore;
use crate::error::{classify, found, reading, writing};
use crate::store::of_multi;

/// Guards what is written to ZooKeeper: every write checks the mark in the same transaction.
///
/// The mark may be in the same ensemble as the election or in another. In the same ensemble,
/// [`ZooKeeperStore::guard`] does without a mark. The mark's node must not be deleted.
///
/// ```no_run
/// # use incumbent_store::ElectionName;
/// # use incumbent_store::fence::FencingToken;
/// # use incumbent_zookeeper::{ZooKeeperFence, ZooKeeperStore};
/// # type Done = Result<(), Box<dyn std::error::Error>>;
/// # async fn example(store: ZooKeeperStore, election: ElectionName, token: FencingToken) -> Done {
/// let fence = ZooKeeperFence::new(&store, &election, "/orders/mark");
/// // Attached to a candidate, it is raised when that is elected. From then on:
/// fence.write(&token, |multi| multi.add_set_data("/orders/last", b"42", None)).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ZooKeeperFence {
    store: ZooKeeperStore,
    election: ElectionName,
    path: String,
}

/// What was done, or why the fence refused; what went wrong on the connection is the error around
/// it.
type Refusable<T> = Result<Result<T, FenceError>, StoreError>;

impl ZooKeeperFence {
    /// Keeps its mark at `path`, a path of the connection, for the leaders of `election`.
    pub fn new(store: &ZooKeeperStore, election: &ElectionName, path: impl Into<String>) -> ZooKeeperFence {
        ZooKeeperFence { store: store.clone(), election: election.clone(), path: path.into() }
    }

    /// Checks the token and commits the operations that `fill` adds, in one step. A token above the
    /// mark raises it.
    ///
    /// If the answer is lost, [`FenceError::Unavailable`] leaves open whether they were committed.
    pub async fn write<F>(&self, token: &FencingToken, fill: F) -> Result<(), FenceError>
    where
        F: Fn(&mut MultiWriter<'_>) -> Result<(), Error> + Send + Sync,
    {
        let write = |client| async move { self.write_on(&client, token, fill).await };
        self.store.inner.on_shared(Effect::Write, write).await?
    }

    /// An operator's act, for a store that was replaced or restored: from now on the tokens of
    /// `store` count, from the first one. Make sure that no leader of the old store still runs. It
    /// is logged as a warning, with the reason.
    pub async fn reset(&self, store: &StoreId, reason: &str) -> Result<(), FenceError> {
        let mark = &Mark::reset(store, reason)?;
        let reset = |client| async move {
            for _ in 0..Mark::MAX_RAISES {
                let node = self.read(&client).await?;
                let version = node.as_ref().map(|(_, version)| *version);
                if self.replace(&client, version, mark).await?.is_some() {
                    // One that cannot be read is replaced, too.
                    let was = node.and_then(|(data, _)| Mark::decode(&data, &self.election, &self.path).ok());
                    log_reset(&self.election, was.as_ref(), store, reason);
                    return Ok(Ok(()));
                }
            }
            Ok(Err(FenceError::mark_keeps_changing()))
        };
        self.store.inner.on_shared(Effect::Write, reset).await?
    }

    async fn write_on<F>(&self, client: &Client, token: &FencingToken, fill: F) -> Refusable<()>
    where
        F: Fn(&mut MultiWriter<'_>) -> Result<(), Error> + Send + Sync,
    {
        for _ in 0..Mark::MAX_RAISES {
            let version = match self.raise_on(client, token).await? {
                Ok(version) => version,
                Err(refused) => return Ok(Err(refused)),
            };
            let committed = {
                let mut writer = client.new_multi_writer();
                let filled = writer.add_check_version(&self.path, version).and_then(|()| fill(&mut writer));
                filled.map_err(reading("writing behind a mark"))?;
                writer.commit()
            };
            match committed.await.map_err(of_multi) {
                Ok(_) => return Ok(Ok(())),
                // It was raised meanwhile: whether past us, the next look tells.
                Err((Some(0), Error::BadVersion | Error::NoNode)) => {}
                Err((Some(index), error)) => {
                    let what =
                        format!("operation {} behind a mark is refused: {error}; nothing was written", index - 1);
                    return Err(StoreError::Misuse { what });
                }
                Err((None, error)) => return Err(classify(error, Effect::Write, "writing behind a mark")),
            }
        }
        Ok(Err(FenceError::mark_keeps_changing()))
    }

    /// Raises the mark: the version that its node has then.
    async fn raise_on(&self, client: &Client, token: &FencingToken) -> Refusable<i32> {
        for _ in 0..Mark::MAX_RAISES {
            let node = self.read(client).await?;
            let decode = |(data, version): (Vec<u8>, i32)| {
                Mark::decode(&data, &self.election, &self.path).map(|mark| (mark, version))
            };
            let admitted = node.map(decode).transpose().and_then(|found| {
                let mark = Mark::admit(found.as_ref().map(|(mark, _)| mark), token)?;
                Ok((found, mark))
            });
            let version = match admitted {
                Ok((Some((found, version)), mark)) if found == mark => return Ok(Ok(version)),
                Ok((found, mark)) => self.replace(client, found.map(|(_, version)| version), &mark).await?,
                Err(refused) => return Ok(Err(refused)),
            };
            if let Some(version) = version {
                return Ok(Ok(version));
            }
        }
        Ok(Err(FenceError::mark_keeps_changing()))
    }

    async fn read(&self, client: &Client) -> Result<Option<(Vec<u8>, i32)>, StoreError> {
        let (sync, node) = tokio::join!(client.sync(&self.path), client.get_data(&self.path));
        sync.map_err(reading("catching up"))?;
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
            Err(error) => Err(writing("raising a mark")(error)),
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

impl Fence for ZooKeeperFence {
    fn raise<'a>(&'a self, election: &'a ElectionName, to: FencingToken) -> BoxFuture<'a, Result<(), FenceError>> {
        Box::pin(async move {
            check_election(&self.election, election)?;
            let to = &to;
            let raise = |client| async move { self.raise_on(&client, to).await };
            self.store.inner.on_shared(Effect::Write, raise).await?.map(drop)
        })
    }
}
