//! The directory that a store has open, and what is done when it is no longer the one at its path.
//!
//! People move directories, delete them, restore copies and unmount file systems under processes
//! that use them. An open descriptor goes on working in what it was opened on, while newcomers
//! follow the path: two directories, and a leader in each. So every answer is given only after one
//! `stat` has shown that the path still leads to the directory that the answer is about. Where it
//! does not:
//!
//! - a session is gone, and with it its office, at once: see [`crate::session`];
//! - a reader is told that the store is unavailable, and the next call opens the directory that is
//!   at the path by then, if that is a store. None is founded that way: an empty mount point is no
//!   new store.
//!
//! The kernel tells those who wait when the directory itself is moved or removed: see
//! [`crate::inotify`]. It does not when one above it is, or when its file system is unmounted while
//! it is in use. Then the next renewal finds it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use incumbent_store::{StoreError, lock};

use crate::directory::Directory;
use crate::inotify::Inotify;
use crate::options::FileOptions;
use crate::time::Time;
use crate::wake_pipe::WakePipe;
use crate::workers::Workers;

/// How many calls are under way at once: on disks, much of a call is waiting.
const MOST_WORKERS: usize = 16;

/// A directory that is open, and those who wait for changes in it.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) directory: Arc<Directory>,
    pub(crate) inotify: Arc<Inotify>,
    pub(crate) wake_pipe: Arc<WakePipe>,
}

impl Opened {
    pub(crate) fn new(directory: Directory) -> Arc<Opened> {
        let directory = Arc::new(directory);
        let inotify = Inotify::new(!directory.options.without_notifications, directory.disk.path().to_owned());
        let wake_pipe = Arc::new(WakePipe::new(directory.clone()));
        Arc::new(Opened { directory, inotify: Arc::new(inotify), wake_pipe })
    }
}

/// The root of a store: a path, and the directory there.
#[derive(Debug)]
pub(crate) struct Root {
    path: PathBuf,
    options: FileOptions,
    time: Time,
    pub(crate) workers: Arc<Workers>,
    opened: Mutex<Arc<Opened>>,
    /// Held while the directory is opened again.
    opening: Mutex<()>,
}

impl Root {
    /// Opens the directory, and makes it if it is not there. It blocks.
    pub(crate) fn open(path: &Path, options: FileOptions, time: Time) -> Result<Root, StoreError> {
        let directory = Directory::open(path, options, time.clone())?;
        let path = directory.disk.path().to_owned();
        let workers = Arc::new(Workers::start("incumbent-file", MOST_WORKERS)?);
        let opened = Mutex::new(Opened::new(directory));
        Ok(Root { path, options, time, workers, opened, opening: Mutex::default() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory that is open. Whether it is the one at the path is for others to ask.
    pub(crate) fn opened(&self) -> Arc<Opened> {
        lock(&self.opened).clone()
    }

    /// Runs `job`, which reads, on the directory at the path, where it may block.
    pub(crate) async fn read<T: Send + 'static>(
        self: &Arc<Root>,
        what: &'static str,
        job: impl FnOnce(&Arc<Opened>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run(what, job, |displaced| displaced).await
    }

    /// Runs `job`, which writes, on the directory at the path, where it may block. What was written
    /// to a directory that is gone comes back with it.
    pub(crate) async fn write<T: Send + 'static>(
        self: &Arc<Root>,
        what: &'static str,
        job: impl FnOnce(&Arc<Opened>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run(what, job, unknown).await
    }

    /// Runs `job` and afterwards what it has left for later. `displaced`: what to answer if the
    /// directory is another one then.
    async fn run<T: Send + 'static>(
        self: &Arc<Root>,
        what: &'static str,
        job: impl FnOnce(&Arc<Opened>) -> Result<T, StoreError> + Send + 'static,
        displaced: fn(StoreError) -> StoreError,
    ) -> Result<T, StoreError> {
        let root = self.clone();
        let answer = self.workers.run(what, move || {
            let opened = root.in_place()?;
            let answer = job(&opened);
            // Whatever went wrong in a directory that is not there any more, that is why.
            opened.directory.must_be_in_place().map_err(displaced)?;
            answer
        });
        let answer = answer.await;
        self.opened().directory.clean_up_later(&self.workers);
        answer
    }

    /// The directory at the path: the one that is open, or else the one that has taken its place,
    /// opened now.
    fn in_place(&self) -> Result<Arc<Opened>, StoreError> {
        let opened = self.opened();
        if opened.directory.is_in_place()? {
            return Ok(opened);
        }
        let _opening = lock(&self.opening);
        let opened = self.opened();
        if opened.directory.is_in_place()? {
            return Ok(opened);
        }
        let opened = Opened::new(Directory::open_again(&self.path, self.options, self.time.clone())?);
        *lock(&self.opened) = opened.clone();
        Ok(opened)
    }
}

/// The same failure, after a write: its outcome is unknown.
pub(crate) fn unknown(error: StoreError) -> StoreError {
    match error {
        StoreError::Unavailable { what, source } => StoreError::OutcomeUnknown { what, source },
        error => error,
    }
}
