//! One file notification instance per store, for any number of waiters, read by one task.
//!
//! It knows inodes and wakeups. What is watched is always the one inode that matters (an entry, a
//! session's file, an office sequence), never a directory in which others come and go, so that only
//! those waits are woken that concern what changed.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use incumbent_store::{StoreError, lock};
use rustix::fd::OwnedFd;
use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init, remove_watch};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

#[derive(Debug)]
pub(crate) struct Inotify {
    enabled: bool,
    /// The root of the store: when it goes, everybody is told.
    root: PathBuf,
    state: Mutex<State>,
    /// Apart from the state: a task that is spawned on a runtime which is ending is dropped at
    /// once, and takes the state's lock.
    reader: Mutex<Option<AbortHandle>>,
}

#[derive(Debug, Default)]
struct State {
    inotify: Option<Arc<OwnedFd>>,
    /// The watch on the root.
    root: Option<i32>,
    wakeups: HashMap<i32, Vec<Arc<Wakeup>>>,
}

/// What a wait waits on. It stays woken until it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Wakeup {
    woken: Notify,
    /// A file that was open for writing was closed: perhaps its owner died.
    closed: AtomicBool,
    /// Nothing will wake it any more.
    lost: AtomicBool,
}

impl Wakeup {
    pub(crate) async fn woken(&self) {
        self.woken.notified().await;
    }

    pub(crate) fn wake(&self) {
        self.woken.notify_one();
    }

    /// Says that nothing will wake it any more.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::SeqCst);
        self.wake();
    }

    pub(crate) fn was_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Fails if nothing will wake it any more.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match self.lost.load(Ordering::SeqCst) {
            true => Err(StoreError::Unavailable { what: "the watch was lost".into(), source: None }),
            false => Ok(()),
        }
    }
}

/// What about an inode is of interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Something is put into this directory.
    Arrivals,
    /// Something is put into this directory or taken out of it.
    Traffic,
    /// This directory itself goes.
    Itself,
    /// A process that has this file open closes it, or it is removed.
    Holder,
}

impl Kind {
    fn flags(self) -> WatchFlags {
        let own = WatchFlags::MOVE_SELF | WatchFlags::DELETE_SELF;
        let arrivals = WatchFlags::MOVED_TO | WatchFlags::CREATE;
        match self {
            Kind::Arrivals => arrivals | own | WatchFlags::ONLYDIR,
            Kind::Traffic => arrivals | WatchFlags::MOVED_FROM | own | WatchFlags::ONLYDIR,
            Kind::Itself => own | WatchFlags::ONLYDIR,
            Kind::Holder => WatchFlags::CLOSE_WRITE | WatchFlags::ATTRIB | WatchFlags::DELETE_SELF,
        }
    }
}

/// Why nothing could be watched.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unwatched {
    /// There is no such file.
    Missing,
    /// The host has no notifications left, or they are turned off.
    Exhausted,
}

impl Inotify {
    pub(crate) fn new(enabled: bool, root: PathBuf) -> Inotify {
        Inotify { enabled, root, state: Mutex::default(), reader: Mutex::default() }
    }

    /// Whether the host has notifications for us.
    pub(crate) fn is_available(&self) -> bool {
        self.enabled && self.state().instance(&self.root).is_ok()
    }

    /// Wakes `wakeup` whenever something happens to the inode at `path`, until what is returned is
    /// dropped.
    pub(crate) fn watch(
        self: &Arc<Inotify>,
        runtime: &Handle,
        path: PathBuf,
        what: Kind,
        wakeup: &Arc<Wakeup>,
    ) -> Result<InotifyWatch, Unwatched> {
        if !self.enabled {
            return Err(Unwatched::Exhausted);
        }
        let (inotify, guard) = {
            let mut state = self.state();
            let inotify = state.instance(&self.root).map_err(|_| Unwatched::Exhausted)?;
            let flags = what.flags() | WatchFlags::MASK_ADD | WatchFlags::DONT_FOLLOW;
            let watch = add_watch(&inotify, path, flags).map_err(|errno| match errno {
                Errno::NOENT | Errno::NOTDIR => Unwatched::Missing,
                _ => Unwatched::Exhausted,
            })?;
            state.wakeups.entry(watch).or_default().push(wakeup.clone());
            (inotify, InotifyWatch { inotify: self.clone(), watch, wakeup: wakeup.clone() })
        };
        let mut reader = lock(&self.reader);
        if reader.as_ref().is_none_or(AbortHandle::is_finished) {
            let task = runtime.spawn(read(LostOnDrop(Arc::downgrade(self)), inotify));
            *reader = Some(task.abort_handle());
        }
        Ok(guard)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn wake(&self, watch: i32, events: ReadFlags) {
        let mut state = self.state();
        let root = state.root == Some(watch);
        if root && events.contains(ReadFlags::IGNORED) {
            state.root = None;
        }
        if root || events.contains(ReadFlags::QUEUE_OVERFLOW) {
            state.wakeups.values().flatten().for_each(|wakeup| wakeup.wake());
            return;
        }
        for wakeup in state.wakeups.get(&watch).into_iter().flatten() {
            if events.contains(ReadFlags::CLOSE_WRITE) {
                wakeup.closed.store(true, Ordering::SeqCst);
            }
            wakeup.wake();
        }
        if events.contains(ReadFlags::IGNORED) {
            // The inode is gone, and the kernel has forgotten the watch.
            state.wakeups.remove(&watch);
        }
    }

    fn lose_all(&self) {
        self.state().wakeups.values().flatten().for_each(|wakeup| wakeup.lose());
    }
}

impl State {
    /// The notification instance, with a watch on the root.
    fn instance(&mut self, root: &Path) -> Result<Arc<OwnedFd>, Errno> {
        let inotify = match &self.inotify {
            Some(inotify) => inotify.clone(),
            None => Arc::new(init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?),
        };
        if self.root.is_none() {
            let flags = Kind::Itself.flags() | WatchFlags::DONT_FOLLOW;
            match add_watch(&inotify, root, flags) {
                Ok(watch) => self.root = Some(watch),
                // The watch looks after arming, and finds that by itself.
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(errno) => return Err(errno),
            }
        }
        self.inotify = Some(inotify.clone());
        Ok(inotify)
    }
}

impl Drop for Inotify {
    fn drop(&mut self) {
        if let Some(reader) = lock(&self.reader).take() {
            reader.abort();
        }
    }
}

/// A wakeup on an inode.
#[derive(Debug)]
pub(crate) struct InotifyWatch {
    inotify: Arc<Inotify>,
    watch: i32,
    wakeup: Arc<Wakeup>,
}

impl Drop for InotifyWatch {
    fn drop(&mut self) {
        let mut state = self.inotify.state();
        let Some(wakeups) = state.wakeups.get_mut(&self.watch) else { return };
        // One only: a waiter may wait for the same inode twice.
        if let Some(at) = wakeups.iter().position(|wakeup| Arc::ptr_eq(wakeup, &self.wakeup)) {
            wakeups.swap_remove(at);
        }
        if wakeups.is_empty() {
            state.wakeups.remove(&self.watch);
            if let Some(inotify) = &state.inotify {
                // It fails if the inode is gone: then the kernel has forgotten the watch by itself.
                let _ = remove_watch(inotify, self.watch);
            }
        }
    }
}

/// Tells everyone if the task ends, be it because its runtime does.
struct LostOnDrop(Weak<Inotify>);

impl Drop for LostOnDrop {
    fn drop(&mut self) {
        if let Some(inotify) = self.0.upgrade() {
            inotify.lose_all();
        }
    }
}

/// Reads events for as long as there is somebody to tell.
async fn read(told: LostOnDrop, inotify: Arc<OwnedFd>) {
    #[allow(deprecated, reason = "its successor is unsafe, for descriptors that change hands; an OwnedFd cannot")]
    let Ok(events) = AsyncFd::with_interest(inotify, Interest::READABLE) else { return };
    loop {
        let Ok(mut ready) = events.readable().await else { return };
        let read = ready.try_io(|inotify| {
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut reader = Reader::new(inotify.get_ref(), &mut buffer);
            loop {
                let event = reader.next().map_err(io::Error::from)?;
                let Some(told) = told.0.upgrade() else { return Ok(()) };
                told.wake(event.wd(), event.events());
            }
        });
        match read {
            // Nothing left to read: wait for more.
            Err(_) => {}
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
    }

    #[test]
    fn waiters_are_lost_when_the_runtime_ends_that_reads_for_them_and_the_next_one_is_served_anew() {
        let inotify = Arc::new(Inotify::new(true, "/".into()));
        let (first, second) = (runtime(), runtime());
        let wakeup = Arc::new(Wakeup::default());
        let watch = inotify.watch(first.handle(), std::env::temp_dir(), Kind::Arrivals, &wakeup).unwrap();
        drop(first);
        second.block_on(wakeup.woken());
        assert!(wakeup.check().is_err());
        drop(watch);

        let wakeup = Arc::new(Wakeup::default());
        let path = std::env::temp_dir().join(format!("incumbent-inotify-{}", std::process::id()));
        let _watch = inotify.watch(second.handle(), std::env::temp_dir(), Kind::Arrivals, &wakeup).unwrap();
        std::fs::write(&path, "").unwrap();
        second.block_on(wakeup.woken());
        std::fs::remove_file(&path).unwrap();
        assert!(wakeup.check().is_ok());
    }

    #[test]
    fn a_wakeup_on_a_runtime_that_has_ended_is_lost_at_once() {
        let inotify = Arc::new(Inotify::new(true, "/".into()));
        let (first, second) = (runtime(), runtime());
        let ended = first.handle().clone();
        drop(first);
        let wakeup = Arc::new(Wakeup::default());
        let _watch = inotify.watch(&ended, std::env::temp_dir(), Kind::Itself, &wakeup).unwrap();
        second.block_on(wakeup.woken());
        assert!(wakeup.check().is_err());
    }

    #[test]
    fn wakeups_that_were_dropped_leave_no_watch_behind() {
        let inotify = Arc::new(Inotify::new(true, "/".into()));
        let runtime = runtime();
        let wakeup = Arc::new(Wakeup::default());
        let begin = || inotify.watch(runtime.handle(), std::env::temp_dir(), Kind::Itself, &wakeup).unwrap();
        let watch = [begin(), begin()];
        assert_eq!(inotify.state().wakeups.values().map(Vec::len).sum::<usize>(), 2);
        drop(watch);
        assert!(inotify.state().wakeups.is_empty());
    }

    #[test]
    fn what_is_not_there_and_what_is_turned_off_are_told_apart() {
        let runtime = runtime();
        let wakeup = Arc::new(Wakeup::default());
        for (enabled, why) in [(true, Unwatched::Missing), (false, Unwatched::Exhausted)] {
            let inotify = Arc::new(Inotify::new(enabled, "/".into()));
            let watch = inotify.watch(runtime.handle(), "/no/such/file".into(), Kind::Holder, &wakeup);
            assert_eq!(watch.unwrap_err(), why);
        }
    }
}
