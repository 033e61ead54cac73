//! Wake-ups by other processes, for stores that get no notifications from the kernel.
//!
//! The kernel gives each user few notification instances (128 by default), and one of a thousand
//! waiting processes may get none. Such a store has one pipe in `waiters/<id>`. Where it waits for
//! something, it registers a second name of that pipe:
//! `elections/<name>/waiters/<what>.<id>.<number>`. A process that changes something lists what is
//! registered there (mostly nothing), and writes the number into each pipe that asked for this
//! change. So no store looks again and again, and none is woken by what does not concern it.
//!
//! It is a hint that can be lost, where a process changes what is not its own and dies before it
//! writes. (If it was its own entry, its death is told by the kernel.) For such cases those who
//! wait look again by themselves now and then.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use incumbent_store::{lock, random_id};
use rustix::fd::OwnedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::directory::{Directory, WAITERS};
use crate::disk::DiskError;
use crate::election_dir::ElectionDir;
use crate::inotify::Wakeup;
use crate::sequence::TRIES;

/// What a store waits for in an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// The entry with this token left the line.
    Gone(u64),
    /// An entry came or left.
    Line,
    /// A candidate published something.
    Published,
    /// The office record changed.
    Office,
}

impl News {
    fn name(self) -> String {
        match self {
            News::Gone(number) => format!("gone-{number}"),
            News::Line => "line".into(),
            News::Published => "published".into(),
            News::Office => "office".into(),
        }
    }
}

/// The one pipe of a store, and the waits of this process on it.
#[derive(Debug)]
pub(crate) struct WakePipe {
    directory: Arc<Directory>,
    state: Mutex<State>,
    /// Apart from the state: a task that is spawned on a runtime which is ending is dropped at
    /// once, and takes the state's lock.
    reader: Mutex<Option<AbortHandle>>,
}

#[derive(Debug, Default)]
struct State {
    pipe: Option<Pipe>,
    wakeups: HashMap<u64, Arc<Wakeup>>,
    last: u64,
}

#[derive(Clone, Debug)]
struct Pipe {
    id: u128,
    end: Arc<OwnedFd>,
}

impl WakePipe {
    pub(crate) fn new(directory: Arc<Directory>) -> WakePipe {
        WakePipe { directory, state: Mutex::default(), reader: Mutex::default() }
    }

    /// Wakes `wakeup` at this news, until what is returned is dropped.
    pub(crate) fn register(
        self: &Arc<WakePipe>,
        runtime: &Handle,
        election_dir: &ElectionDir<'_>,
        news: News,
        wakeup: &Arc<Wakeup>,
    ) -> Result<Registration, DiskError> {
        let pipe = self.pipe()?;
        let registration = {
            let mut state = self.state();
            state.last += 1;
            let number = state.last;
            let path = election_dir.sub(&format!("{WAITERS}/{}.{:032x}.{number}", news.name(), pipe.id));
            self.directory.disk.link(&path_of(pipe.id), &path)?;
            state.wakeups.insert(number, wakeup.clone());
            Registration { wake_pipe: self.clone(), number, path, election_dir: election_dir.path().to_owned() }
        };
        let mut reader = self.reader();
        if reader.as_ref().is_none_or(AbortHandle::is_finished) {
            let task = runtime.spawn(read(LostOnDrop(Arc::downgrade(self)), pipe.end));
            *reader = Some(task.abort_handle());
        }
        Ok(registration)
    }

    /// The pipe, made when it is first needed.
    fn pipe(&self) -> Result<Pipe, DiskError> {
        let mut state = self.state();
        if let Some(pipe) = &state.pipe {
            return Ok(pipe.clone());
        }
        let mut tries = 0;
        let pipe = loop {
            // Without randomness, the second of two pipes finds its name taken, and is not made.
            let id = random_id().unwrap_or_default();
            match self.directory.disk.make_pipe(&path_of(id)) {
                // A sweep found it before it was open, and took it for that of a dead process.
                Err(error) if error.is_missing() && tries < TRIES => tries += 1,
                made => break Pipe { id, end: Arc::new(made?) },
            }
        };
        Ok(state.pipe.insert(pipe).clone())
    }

    fn reader(&self) -> MutexGuard<'_, Option<AbortHandle>> {
        lock(&self.reader)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn wake(&self, number: u64) {
        if let Some(wakeup) = self.state().wakeups.get(&number) {
            wakeup.wake();
        }
    }

    fn lose_all(&self) {
        self.state().wakeups.values().for_each(|wakeup| wakeup.lose());
    }
}

impl Drop for WakePipe {
    fn drop(&mut self) {
        let reader = self.reader().take();
        if let Some(reader) = reader {
            reader.abort();
        }
        let pipe = self.state().pipe.take();
        if let Some(pipe) = pipe {
            // What is left is swept: no process has it open.
            let _ = self.directory.disk.remove_file(&path_of(pipe.id));
        }
    }
}

/// A wakeup that is registered in an election.
#[derive(Debug)]
pub(crate) struct Registration {
    wake_pipe: Arc<WakePipe>,
    number: u64,
    path: String,
    election_dir: String,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.wake_pipe.state().wakeups.remove(&self.number);
        let _ = self.wake_pipe.directory.disk.remove_file(&self.path);
        // It may have been all that was left in the election.
        let election_dir = ElectionDir::at(&self.wake_pipe.directory, self.election_dir.clone());
        if self.wake_pipe.directory.disk.remove_dir(&election_dir.sub(WAITERS)).is_ok() {
            election_dir.tidy(&BTreeSet::new());
        }
    }
}

impl ElectionDir<'_> {
    /// Wakes the stores that wait for this. One that cannot be woken is dead, and its registration
    /// is removed.
    pub(crate) fn wake(&self, news: &[News]) {
        let wanted: Vec<_> = news.iter().map(|news| news.name()).collect();
        for (name, number) in self.waiters() {
            if name.split('.').next().is_some_and(|what| wanted.iter().any(|wanted| wanted == what)) {
                let path = self.sub(&format!("{WAITERS}/{name}"));
                if let Ok(false) = self.disk().write_pipe(&path, &number.to_le_bytes()) {
                    let _ = self.disk().remove_file(&path);
                }
            }
        }
    }

    /// Removes the registrations of dead processes. Whether any is left.
    pub(crate) fn remove_dead_waiters(&self) -> bool {
        let mut left = false;
        for (name, _) in self.waiters() {
            let path = self.sub(&format!("{WAITERS}/{name}"));
            match self.disk().write_pipe(&path, &[]) {
                Ok(false) => drop(self.disk().remove_file(&path)),
                _ => left = true,
            }
        }
        left
    }

    fn waiters(&self) -> Vec<(String, u64)> {
        let names = self.disk().list(&self.sub(WAITERS)).ok().flatten().unwrap_or_default();
        names.into_iter().filter_map(|name| Some((name.clone(), name.rsplit('.').next()?.parse().ok()?))).collect()
    }
}

fn path_of(id: u128) -> String {
    format!("{WAITERS}/{id:032x}")
}

/// Tells all waits if the task ends, be it because its runtime does.
struct LostOnDrop(Weak<WakePipe>);

impl Drop for LostOnDrop {
    fn drop(&mut self) {
        if let Some(wake_pipe) = self.0.upgrade() {
            wake_pipe.lose_all();
        }
    }
}

/// Reads numbers for as long as the pipe is there.
async fn read(wake_pipe: LostOnDrop, pipe: Arc<OwnedFd>) {
    #[allow(deprecated, reason = "its successor is unsafe, for descriptors that change hands; an OwnedFd cannot")]
    let Ok(pipe) = AsyncFd::with_interest(pipe, Interest::READABLE) else { return };
    let mut numbers = [0; 8 * 512];
    loop {
        let Ok(mut ready) = pipe.readable().await else { return };
        let read = ready.try_io(|pipe| rustix::io::read(pipe.get_ref(), &mut numbers).map_err(io::Error::from));
        let read = match read {
            Ok(Ok(read)) => read,
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(Err(_)) => return,
            Err(_) => continue,
        };
        let Some(wake_pipe) = wake_pipe.0.upgrade() else { return };
        // Numbers are written whole, so that they are read whole.
        for number in numbers[..read].chunks_exact(8) {
            wake_pipe.wake(number.try_into().map_or(0, u64::from_le_bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use incumbent_testkit::TempDir;

    use super::*;
    use crate::options::FileOptions;
    use crate::time::Time;

    #[test]
    fn nobody_sweeps_away_the_pipe_of_a_living_process() {
        let temp_dir = TempDir::new("pipes");
        let path = temp_dir.path();
        let directory = Arc::new(Directory::open(path, FileOptions::new(), Time::of_host()).unwrap());
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    directory.sweep(false).unwrap();
                }
            });
            for made in 0..2_000 {
                let wake_pipe = WakePipe::new(directory.clone());
                let pipe = wake_pipe.pipe().unwrap();
                directory.sweep(false).unwrap();
                let there = directory.disk.exists(&path_of(pipe.id)).unwrap();
                over.store(!there || made == 1_999, Ordering::Relaxed);
                assert!(there, "swept after {made}");
            }
        });
    }
}
