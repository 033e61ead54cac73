//! The store: a directory, opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use incumbent_store::{
    Cas, Clock, Cursor, ElectionName, Entry, ForgottenBy, Fut, Line, Office, Promises, Seen, Session, Store,
    StoreError, Token, Version, Wake,
};

use crate::election_dir::{ElectionDir, number_of};
use crate::election_path::path_of;
use crate::options::{FileOptions, Ttl};
use crate::root::{Opened, Root};
use crate::session::{FileSession, SMALLEST_TTL};
use crate::time::Time;
use crate::watch::Watch;

/// Elections in a directory, for the processes of one host.
///
/// ```no_run
/// # async fn example() -> Result<(), incumbent_store::StoreError> {
/// use incumbent_store::Store;
/// let store = incumbent_file::FileStore::open("/var/lib/jobs/elections")?;
/// let session = store.open_session(std::time::Duration::from_secs(15)).await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct FileStore {
    root: Arc<Root>,
}

impl FileStore {
    /// Opens a directory, and makes it if it is not there.
    pub fn open(path: impl AsRef<Path>) -> Result<FileStore, StoreError> {
        FileStore::open_with(path, FileOptions::default())
    }

    /// Opens a directory with options. It blocks for a few system calls.
    pub fn open_with(path: impl AsRef<Path>, options: FileOptions) -> Result<FileStore, StoreError> {
        Ok(FileStore { root: Arc::new(Root::open(path.as_ref(), options, Time::of_host())?) })
    }

    /// The same with another clock than the host's boot-time clock, e.g. one that a test moves by
    /// hand. It dates heartbeats and tombstones; stores that read other clocks are told of no
    /// silence, and time it themselves.
    pub fn with_clock(
        path: impl AsRef<Path>,
        options: FileOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<FileStore, StoreError> {
        Ok(FileStore { root: Arc::new(Root::open(path.as_ref(), options, Time::by(clock)?)?) })
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.root.path().to_owned()
    }
}

impl Store for FileStore {
    fn promises(&self) -> Fut<'_, Promises> {
        Box::pin(self.root.read("reading the promises", |opened| Ok(promised(opened))))
    }

    fn open_session(&self, ttl: Duration) -> Fut<'_, Arc<dyn Session>> {
        let workers = self.root.workers.clone();
        Box::pin(self.root.write("opening a session", move |opened| {
            let session: Arc<dyn Session> = Arc::new(FileSession::open(opened.clone(), workers, ttl)?);
            Ok(session)
        }))
    }

    fn elections(&self, limit: usize) -> Fut<'_, Vec<ElectionName>> {
        Box::pin(self.root.read("listing the elections", move |opened| {
            let mut names = opened.directory.elections()?;
            names.truncate(limit);
            Ok(names)
        }))
    }

    fn line<'a>(&'a self, election: &'a ElectionName, limit: usize) -> Fut<'a, Line> {
        let path = path_of(election);
        Box::pin(self.root.read("reading the line", move |opened| ElectionDir::at(&opened.directory, path).line(limit)))
    }

    fn watch(&self, election: &ElectionName, seen: &Seen, from: Cursor) -> Wake {
        let (opened, workers) = (self.root.opened(), self.root.workers.clone());
        Box::pin(Watch::of_election(opened, workers, election, seen, from).wait())
    }

    fn set_office<'a>(&'a self, election: &'a ElectionName, was: Version, to: &'a Office) -> Fut<'a, Cas> {
        let (path, to) = (path_of(election), to.clone());
        Box::pin(self.root.write("writing the office record", move |opened| {
            ElectionDir::at(&opened.directory, path).set_office(was, &to)
        }))
    }

    fn evict<'a>(&'a self, election: &'a ElectionName, seen: &'a Entry) -> Fut<'a, Cas> {
        let number = number_of(&seen.id).filter(|number| *number == seen.token.get());
        let (path, incarnation, version) = (path_of(election), seen.incarnation, seen.version);
        Box::pin(self.root.write("evicting", move |opened| match number {
            Some(number) => ElectionDir::at(&opened.directory, path).evict(number, incarnation, version),
            None => Ok(Cas::Done),
        }))
    }

    fn raise_tokens<'a>(&'a self, election: &'a ElectionName, floor: Token) -> Fut<'a, ()> {
        let path = path_of(election);
        Box::pin(self.root.write("raising the tokens", move |opened| {
            ElectionDir::at(&opened.directory, path).raise_tokens(floor.get())
        }))
    }
}

/// What this directory, opened like this, can keep.
fn promised(opened: &Opened) -> Promises {
    let mut promises = Promises::new(opened.directory.id.clone());
    promises.forgotten_by = ForgottenBy::Rivals;
    promises.smallest_ttl = SMALLEST_TTL;
    promises.caveats.push("One host: processes on other hosts do not see this directory's elections.".into());
    promises.caveats.push(
        "A process that dies is replaced at once, unless a child that it forked without exec is still there: \
         then after the TTL."
            .into(),
    );
    promises.caveats.push(
        "Containers with a boot id or a time namespace of their own share no clock: there each candidate that is stopped, \
         and not dead, is replaced within two TTLs."
            .into(),
    );
    promises.caveats.push(
        "If the directory is moved, removed or replaced while somebody leads, the kernel says so and the office is lost at \
         once. It does not if one above it is moved or its file system is unmounted: then the next renewal finds it, a third \
         of the TTL later at the latest, and until then there may be a leader in each. A container does not see its host \
         move a directory that is mounted into it: it goes on in the old one, so move none in use. Never put an old copy back."
            .into(),
    );
    if opened.directory.options.ttl == Ttl::None {
        promises.caveats.push(
            "A leader that is stopped and not dead is never replaced: eviction after the TTL is turned off.".into(),
        );
    }
    if opened.directory.options.allow_network_fs {
        promises.caveats.push(
            "The check for network file systems is turned off: if hosts share this directory, it promises nothing."
                .into(),
        );
    }
    if !opened.inotify.is_available() {
        promises.caveats.push(
            "The host has no file notification left for this user (fs.inotify.max_user_instances): a change whose \
             maker dies before it can say so is not told, and seen when candidates next look by themselves."
                .into(),
        );
    }
    promises
}
