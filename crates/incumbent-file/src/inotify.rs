//! One file notification instance per store, for any number of waiters, read by one task.
//!
//! It knows inodes and bells. What is watched is always the one inode that matters (an entry, a session's file, an
//! office sequence), never a directory in which others come and go, so that only those are woken who wait for what changed.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use incumbent_store::StoreError;
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
    /// Apart from the state: a task that is spawned on a runtime which is ending says its last words at once.
    reader: Mutex<Option<AbortHandle>>,
}

#[derive(Debug, Default)]
struct State {
    inotify: Option<Arc<OwnedFd>>,
    /// The watch on the root.
    root: Option<i32>,
    bells: HashMap<i32, Vec<Arc<Bell>>>,
}

/// What a waiter waits on. It stays rung until it is thrown away.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: Notify,
    /// A file was closed by who had it open for writing: perhaps its owner died.
    closed: AtomicBool,
    /// Nobody will ring any more.
    lost: AtomicBool,
}

impl Bell {
    pub(crate) async fn rung(&self) {
        self.rung.notified().await;
    }

    pub(crate) fn ring(&self) {
        self.rung.notify_one();
    }

    /// Says that nobody will ring any more.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::SeqCst);
        self.ring();
    }

    pub(crate) fn was_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Fails if nobody will ring any more.
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
    /// Whoever has this file open closes it, or it is removed.
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

    /// Rings `bell` whenever something happens to the inode at `path`, until what is returned is dropped.
    pub(crate) fn arm(
        self: &Arc<Inotify>,
        runtime: &Handle,
        path: PathBuf,
        what: Kind,
        bell: &Arc<Bell>,
    ) -> Result<Armed, Unwatched> {
        if !self.enabled {
            return Err(Unwatched::Exhausted);
        }
        let (inotify, armed) = {
            let mut state = self.state();
            let inotify = state.instance(&self.root).map_err(|_| Unwatched::Exhausted)?;
            let flags = what.flags() | WatchFlags::MASK_ADD | WatchFlags::DONT_FOLLOW;
            let watch = add_watch(&inotify, path, flags).map_err(|errno| match errno {
                Errno::NOENT | Errno::NOTDIR => Unwatched::Missing,
                _ => Unwatched::Exhausted,
            })?;
            state.bells.entry(watch).or_default().push(bell.clone());
            (inotify, Armed { inotify: self.clone(), watch, bell: bell.clone() })
        };
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if reader.as_ref().is_none_or(AbortHandle::is_finished) {
            let task = runtime.spawn(read(LastWords(Arc::downgrade(self)), inotify));
            *reader = Some(task.abort_handle());
        }
        Ok(armed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self, watch: i32, events: ReadFlags) {
        let mut state = self.state();
        let root = state.root == Some(watch);
        if root && events.contains(ReadFlags::IGNORED) {
            state.root = None;
        }
        if root || events.contains(ReadFlags::QUEUE_OVERFLOW) {
            state.bells.values().flatten().for_each(|bell| bell.ring());
            return;
        }
        for bell in state.bells.get(&watch).into_iter().flatten() {
            if events.contains(ReadFlags::CLOSE_WRITE) {
                bell.closed.store(true, Ordering::SeqCst);
            }
            bell.ring();
        }
        if events.contains(ReadFlags::IGNORED) {
            // The inode is gone, and the kernel has forgotten the watch.
            state.bells.remove(&watch);
        }
    }

    fn lose_all(&self) {
        self.state().bells.values().flatten().for_each(|bell| bell.lose());
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
                // Whoever waits finds that by itself, after arming.
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
        let reader = self.reader.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(reader) = reader.take() {
            reader.abort();
        }
    }
}

/// A bell on an inode.
#[derive(Debug)]
pub(crate) struct Armed {
    inotify: Arc<Inotify>,
    watch: i32,
    bell: Arc<Bell>,
}

impl Drop for Armed {
    fn drop(&mut self) {
        let mut state = self.inotify.state();
        let Some(bells) = state.bells.get_mut(&self.watch) else { return };
        // One only: a waiter may wait for the same inode twice.
        if let Some(at) = bells.iter().position(|bell| Arc::ptr_eq(bell, &self.bell)) {
            bells.swap_remove(at);
        }
        if bells.is_empty() {
            state.bells.remove(&self.watch);
            if let Some(inotify) = &state.inotify {
                // It fails if the inode is gone: then the kernel has forgotten the watch by itself.
                let _ = remove_watch(inotify, self.watch);
            }
        }
    }
}

/// Tells everyone if the task ends, be it because its runtime does.
struct LastWords(Weak<Inotify>);

impl Drop for LastWords {
    fn drop(&mut self) {
        if let Some(inotify) = self.0.upgrade() {
            inotify.lose_all();
        }
    }
}

/// Reads events for as long as there is somebody to tell.
async fn read(told: LastWords, inotify: Arc<OwnedFd>) {
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
                told.ring(event.wd(), event.events());
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
    fn bells_are_lost_when_the_runtime_ends_that_reads_for_them_and_the_next_one_is_served_anew() {
        let inotify = Arc::new(Inotify::new(true, "/".into()));
        let (first, second) = (runtime(), runtime());
        let bell = Arc::new(Bell::default());
        let armed = inotify.arm(first.handle(), std::env::temp_dir(), Kind::Arrivals, &bell).unwrap();
        drop(first);
        second.block_on(bell.rung());
        assert!(bell.check().is_err());
        drop(armed);

        let bell = Arc::new(Bell::default());
        let path = std::env::temp_dir().join(format!("incumbent-inotify-{}", std::process::id()));
        let _armed = inotify.arm(second.handle(), std::env::temp_dir(), Kind::Arrivals, &bell).unwrap();
        std::fs::write(&path, "").unwrap();
        second.block_on(bell.rung());
        std::fs::remove_file(&path).unwrap();
        assert!(bell.check().is_ok());
    }

    #[test]
    fn a_bell_that_is_armed_on_a_runtime_that_has_ended_is_lost_at_once() {
        let inotify = Arc::new(Inotify::new(true, "/".into()));
        let (first, second) = (runtime(), runtime());
        let ended = first.handle().clone();
        drop(first);
        let bell = Arc::new(Bell::default());
        let _armed = inotify.arm(&ended, std::env::temp_dir(), Kind::Itself, &bell).unwrap();
        second.block_on(bell.rung());
        assert!(bell.check().is_err());
    }

    #[test]
    fn bells_that_were_dropped_leave_no_watch_behind() {
        let inotify = Arc::new(Inotify::new(true, "/".into()));
        let runtime = runtime();
        let bell = Arc::new(Bell::default());
        let arm = || inotify.arm(runtime.handle(), std::env::temp_dir(), Kind::Itself, &bell).unwrap();
        let armed = [arm(), arm()];
        assert_eq!(inotify.state().bells.values().map(Vec::len).sum::<usize>(), 2);
        drop(armed);
        assert!(inotify.state().bells.is_empty());
    }

    #[test]
    fn what_is_not_there_and_what_is_turned_off_are_told_apart() {
        let runtime = runtime();
        let bell = Arc::new(Bell::default());
        for (enabled, why) in [(true, Unwatched::Missing), (false, Unwatched::Exhausted)] {
            let inotify = Arc::new(Inotify::new(enabled, "/".into()));
            let armed = inotify.arm(runtime.handle(), "/no/such/file".into(), Kind::Holder, &bell);
            assert_eq!(armed.unwrap_err(), why);
        }
    }
}
