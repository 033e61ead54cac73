//! Writes to ZooKeeper itself that only a sitting leader can make.

use incumbent_store::{Effect, ElectionName, StoreError, Token};
use zookeeper_client::{Client, Error, MultiWriteResult, MultiWriter};

use crate::ZooKeeperStore;
use crate::error::{classify, reading};
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
        let guarded = |client| async move { self.guard_on(&client, election, token, fill).await };
        self.inner.on_shared(Effect::Write, guarded).await
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
            filled.map_err(reading("writing under guard"))?;
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
            Err((None, error)) => Err(classify(error, Effect::Write, "writing under guard")),
        }
    }

    /// The path that is there only while the entry with this token is in line, for transactions of
    /// your own: check it with the version -1. `None`: it is not.
    pub async fn guarded_by(&self, election: &ElectionName, token: Token) -> Result<Option<String>, StoreError> {
        self.inner.on_shared(Effect::None, |client| async move { self.path_of(&client, election, token).await }).await
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
        sync.map_err(reading("catching up"))?;
        // A leader is first, but one who is about to be may ask, too.
        for child in reader.children(children)?.line {
            let path = reader.path_of(&child.name);
            let stat = client.check_stat(&path).await.map_err(reading("looking for the entry"))?;
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
