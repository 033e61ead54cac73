//! Enlisting: the entry, its place if there is none yet, and the look behind it, in one round.

use std::future::Future;
use std::pin::Pin;

use incumbent_store::record::CandidateRecord;
use incumbent_store::{ElectionName, NewEntry, Standing, StoreError, check_candidate_name, check_value};
use zookeeper_client::{CreateMode, Error, MultiWriteResult};

use crate::error::{found, writing};
use crate::line::Reader;
use crate::node::frame;
use crate::own_entries::EntryState;
use crate::paths::{Paths, ancestors, token_of, zxid};
use crate::session::{ATTEMPTS, ZooKeeperSession};

/// An entry's name, and the number of the change that made it.
type Creation<'a> = Pin<Box<dyn Future<Output = Result<(String, i64), Error>> + Send + 'a>>;

impl ZooKeeperSession {
    pub(crate) async fn enlist(&self, election: &ElectionName, entry: &NewEntry) -> Result<Standing, StoreError> {
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
                let records = self.core.inner.paths.candidates(election);
                self.core.inner.make(&client, &records, CreateMode::Container).await?;
            }
        }
        Err(StoreError::Unavailable { what: format!("{} keeps going away", reader.path), source: None })
    }

    /// An entry of ours from before, whether or not its answer has come.
    async fn stands_already(&self, reader: &Reader<'_>, entry: &NewEntry) -> Result<Option<Standing>, StoreError> {
        if self.core.entries.of(reader.election).is_empty() {
            return Ok(None);
        }
        match self.core.settle(reader).await?.into_iter().next() {
            None => Ok(None),
            Some(held) if held.incarnation == entry.incarnation => self.standing(&held, None).await.map(Some),
            Some(held) => Err(StoreError::AlreadyInLine(held)),
        }
    }

    /// Before we stand in an election for the first time: candidates of another dialect would not
    /// see our entry as one. `true`: there is no node for a line yet.
    async fn check_dialect(&self, reader: &Reader<'_>) -> Result<bool, StoreError> {
        if self.core.inner.is_clean(reader.election) {
            return Ok(false);
        }
        self.check_place(reader).await?;
        // An old state is enough: candidates that came since are seen once we are in line.
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
        let NewEntry { incarnation, name, merit, .. } = entry;
        let record = CandidateRecord { incarnation: *incarnation, name: name.clone(), ready: None, merit: *merit };
        let data = frame(&record, &entry.value);
        let beside = if reader.dialect().is_foreign() { data.as_slice().into() } else { [].into() };
        let pending = self.core.entries.begin(election, entry.incarnation, entry.name.clone(), beside);
        let cursor = inner.seen.cursor();
        let in_line = reader.path_of(&reader.dialect().prefix(entry.incarnation));
        // The answers behind the new entry are no older than it.
        let created = self.create(reader, entry, &data, &in_line, with_place);
        let (created, read) = tokio::join!(created, reader.read_once(None)?);
        let (name, created) = match created {
            Ok(created) => created,
            Err(error) => {
                // With its place: somebody else has made that.
                let again = error == Error::NoNode || (with_place && error == Error::NodeExists);
                let error = if error == Error::NodeExists { one_place(path) } else { writing("enlisting")(error) };
                if !matches!(error, StoreError::OutcomeUnknown { .. }) {
                    pending.settle(None);
                }
                return if again { Ok(None) } else { Err(error) };
            }
        };
        let token = token_of(created)?;
        pending.settle(Some(EntryState::Known(name.clone(), token)));
        inner.remember_place(election, token, &name);
        inner.seen.note_change(zxid(token));
        let held = self.core.held(election, &name, token, entry.incarnation);
        let view = match reader.interpret(read?, cursor).await {
            Err(foreign @ StoreError::Foreign { .. }) => {
                inner.remember_clean(election, false);
                self.core.withdraw_on(client, &held, None).await?;
                return Err(foreign);
            }
            view => view?,
        };
        match self.place(reader, &held, &view).await? {
            Some(place) => Ok(Some(Standing::new(place, view.office, cursor))),
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
                let record = inner.paths.candidate(election, &format!("{prefix}0000000000"), self.core.session_id);
                writer.add_create(&record, data, &inner.mode(CreateMode::Ephemeral))?;
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
}

fn one_place(path: &str) -> StoreError {
    let what = format!("in this dialect one connection has one place in the line at {path}");
    StoreError::Misuse { what }
}
