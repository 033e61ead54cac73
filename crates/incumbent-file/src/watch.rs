//! Waiting for a change, without a thread and without looking again and again.
//!
//! A watch first registers a wakeup on the inodes that it waits for, then looks whether anything
//! has changed already. The kernel wakes it when an entry leaves the line, when a session's file is
//! closed because its process died, when an office record appears. That is a hint: the file is
//! closed a moment before its lock is free, so after a close the watch looks a few times more, ever
//! more slowly, before it waits again.
//!
//! Where the host has no notifications left, deaths are told by a descriptor of the process, and
//! everything else by the process that changes it: see [`crate::wake_pipe`].

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use incumbent_store::{Cursor, ElectionName, Head, Seen, StoreError, Version, Watched};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use crate::directory::SESSIONS;
use crate::election_dir::{ElectionDir, PUBLICATIONS, cursor_of, number_of};
use crate::election_path::{ELECTIONS, above, path_of};
use crate::inotify::{InotifyWatch, Kind, Unwatched, Wakeup};
use crate::owner::{Owner, owner, session_name};
use crate::root::Opened;
use crate::sequence::Sequence;
use crate::wake_pipe::{News, Registration};
use crate::workers::Workers;

/// How long to wait for a lock that should be free already: doubled each time, half a second in
/// all.
const FIRST_SETTLE: Duration = Duration::from_millis(1);
const SETTLES: u32 = 9;
/// How often to look where a death is not told: the owner is in another pid namespace, or left its
/// lock to a child.
const LOOK_OFTEN: Duration = Duration::from_secs(1);

/// What is watched, and what of it was seen.
pub(crate) struct Watch {
    opened: Arc<Opened>,
    workers: Arc<Workers>,
    path: String,
    what: Awaited,
    from: Cursor,
}

/// What the caller has seen.
struct Awaited {
    office: Version,
    /// Entries that were there. `None`: one with a name that no entry has.
    there: Vec<Option<u64>>,
    /// The first in line, where it matters.
    head: Option<Option<u64>>,
    /// Whether it matters what candidates publish.
    publications: bool,
    /// A session tells its owner that the directory is no longer the one at its path; nobody else
    /// is told otherwise.
    has_session: bool,
}

/// What was found when the watch began.
enum Begun {
    Changed,
    /// The directory is no longer the one at its path.
    Displaced(StoreError),
    /// The kernel wakes it when something happens.
    ByKernel(Arc<Wakeup>, Vec<InotifyWatch>),
    /// The process that changes something wakes it, and these descriptors become readable when an
    /// owner dies. `false`: not all is told.
    ByOthers(Arc<Wakeup>, Vec<Registration>, Vec<OwnedFd>, bool),
}

impl Watch {
    /// For one who has an entry.
    pub(crate) fn of_entry(opened: Arc<Opened>, workers: Arc<Workers>, watched: &Watched, from: Cursor) -> Watch {
        let Watched { held, office, ahead, heir, .. } = watched;
        let there = [Some(&held.entry), ahead.as_ref(), heir.as_ref()].into_iter().flatten().map(number_of).collect();
        let what = Awaited { office: *office, there, head: None, publications: heir.is_some(), has_session: true };
        Watch { opened, workers, path: path_of(&held.election), what, from }
    }

    /// For one who has none.
    pub(crate) fn of_election(
        opened: Arc<Opened>,
        workers: Arc<Workers>,
        election: &ElectionName,
        seen: &Seen,
        from: Cursor,
    ) -> Watch {
        let head = match &seen.head {
            Head::Ignored => None,
            Head::Nobody => Some(None),
            Head::Is(id) => Some(number_of(id)),
        };
        let there = seen.last.iter().map(number_of).collect();
        let publications = matches!(seen.head, Head::Is(_));
        let what = Awaited { office: seen.office, there, head, publications, has_session: false };
        Watch { opened, workers, path: path_of(election), what, from }
    }

    /// Returns when something may have changed.
    pub(crate) async fn wait(self) -> Result<(), StoreError> {
        let watch = Arc::new(self);
        loop {
            match watch.clone().begin().await? {
                Begun::Changed => return Ok(()),
                Begun::Displaced(_) if watch.what.has_session => return Ok(()),
                Begun::Displaced(error) => return Err(error),
                Begun::ByKernel(wakeup, _watches) => {
                    wakeup.woken().await;
                    wakeup.check()?;
                    if wakeup.was_closed() && watch.settles().await? {
                        return Ok(());
                    }
                }
                Begun::ByOthers(wakeup, _registrations, deaths, all_told) => {
                    let told = woken_or_died(&wakeup, deaths);
                    let died = if all_told { told.await } else { timeout(LOOK_OFTEN, told).await.unwrap_or(false) };
                    wakeup.check()?;
                    if died {
                        if watch.settles().await? {
                            return Ok(());
                        }
                        // Another process keeps the lock of the one that died: one of its children.
                        sleep(LOOK_OFTEN).await;
                    }
                }
            }
        }
    }

    /// Registers first and looks afterwards, so that nothing falls in between.
    async fn begin(self: Arc<Watch>) -> Result<Begun, StoreError> {
        let Ok(runtime) = Handle::try_current() else {
            return Err(StoreError::Misuse { what: "watching needs a tokio runtime".into() });
        };
        let watch = self.clone();
        let begun = self.workers.run("watching", move || {
            let wakeup = Arc::new(Wakeup::default());
            let begun = watch.register(&runtime, wakeup);
            let changed = watch.changed();
            // Whatever went wrong in a directory that is not there any more, that is why.
            if let Err(error) = watch.opened.directory.must_be_in_place() {
                return Ok(Begun::Displaced(error));
            }
            Ok(if changed? { Begun::Changed } else { begun? })
        });
        begun.await
    }

    fn register(&self, runtime: &Handle, wakeup: Arc<Wakeup>) -> Result<Begun, StoreError> {
        match self.register_with_kernel(runtime, &wakeup)? {
            Some(watches) => Ok(Begun::ByKernel(wakeup, watches)),
            None => self.register_with_others(runtime, wakeup),
        }
    }

    /// Whether something has changed, if not now then soon.
    async fn settles(self: &Arc<Watch>) -> Result<bool, StoreError> {
        for doubled in 0..SETTLES {
            let watch = self.clone();
            if self.workers.run("watching", move || watch.changed()).await? {
                return Ok(true);
            }
            sleep(FIRST_SETTLE * 2u32.pow(doubled)).await;
        }
        Ok(false)
    }

    fn election_dir(&self) -> ElectionDir<'_> {
        ElectionDir::at(&self.opened.directory, self.path.clone())
    }

    /// `None`: one of the inodes cannot be watched.
    fn register_with_kernel(
        &self,
        runtime: &Handle,
        wakeup: &Arc<Wakeup>,
    ) -> Result<Option<Vec<InotifyWatch>>, StoreError> {
        let mut watches = Vec::new();
        for (path, what) in self.inodes()? {
            // What is not there yet is made in a directory above it.
            let dirs =
                [path.as_str(), self.path.as_str()].into_iter().chain(above(&self.path).rev()).chain([ELECTIONS]);
            for (at, dir) in dirs.enumerate() {
                let what = if at == 0 { what } else { Kind::Arrivals };
                match self.opened.inotify.watch(runtime, self.opened.directory.disk.full(dir), what, wakeup) {
                    Ok(watch) => {
                        watches.push(watch);
                        break;
                    }
                    Err(Unwatched::Missing) => {}
                    Err(Unwatched::Exhausted) => return Ok(None),
                }
            }
        }
        Ok(Some(watches))
    }

    /// Where it cannot be registered, the watch looks often.
    fn register_with_others(&self, runtime: &Handle, wakeup: Arc<Wakeup>) -> Result<Begun, StoreError> {
        let election_dir = self.election_dir();
        let mut registrations = Vec::new();
        let (deaths, mut all_told) = self.deaths()?;
        for news in self.news() {
            let register = || self.opened.wake_pipe.register(runtime, &election_dir, news, &wakeup);
            let made = match register() {
                Err(error) if error.is_missing() => {
                    election_dir.make()?;
                    register()
                }
                made => made,
            };
            match made {
                Ok(registration) => registrations.push(registration),
                Err(_) => all_told = false,
            }
        }
        Ok(Begun::ByOthers(wakeup, registrations, deaths, all_told))
    }

    fn news(&self) -> Vec<News> {
        let gone = self.what.there.iter().flatten().copied().map(News::Gone);
        let line = self.what.head.map(|_| News::Line);
        let published = self.what.publications.then_some(News::Published);
        [News::Office].into_iter().chain(gone).chain(line).chain(published).collect()
    }

    fn inodes(&self) -> Result<Vec<(String, Kind)>, StoreError> {
        let election_dir = self.election_dir();
        let mut inodes = vec![(election_dir.sub(Sequence::Office.name()), Kind::Arrivals)];
        if self.what.head.is_some() {
            inodes.push((election_dir.sub(Sequence::Line.name()), Kind::Traffic));
        }
        if self.what.publications {
            inodes.push((election_dir.sub(PUBLICATIONS), Kind::Arrivals));
        }
        for number in self.entries() {
            inodes.push((election_dir.numbered(Sequence::Line, number), Kind::Itself));
            if let Some(record) = election_dir.entry_record(number)? {
                inodes.push((format!("{SESSIONS}/{}", session_name(record.session)), Kind::Holder));
            }
        }
        Ok(inodes)
    }

    /// The entries whose owners' deaths matter.
    fn entries(&self) -> impl Iterator<Item = u64> {
        self.what.there.iter().copied().chain(self.what.head).flatten()
    }

    /// Descriptors of the owners' processes, and whether there is one for each owner that is not
    /// this process.
    fn deaths(&self) -> Result<(Vec<OwnedFd>, bool), StoreError> {
        let (mut deaths, mut all) = (Vec::new(), true);
        for number in self.entries() {
            let Some(entry) = self.election_dir().entry_record(number)? else { continue };
            let Owner::Living { record, .. } = owner(&self.opened.directory, entry.session)? else { continue };
            let known = record.pid_namespace != 0 && record.pid_namespace == self.opened.directory.pid_namespace;
            if known && record.pid == std::process::id() {
                continue;
            }
            let pid = i32::try_from(record.pid).ok().and_then(Pid::from_raw).filter(|_| known);
            // The owner is found alive after this (or the watch returns), so the pid is still its
            // own.
            match pid.map(|pid| pidfd_open(pid, PidfdFlags::NONBLOCK)) {
                Some(Ok(death)) => deaths.push(death),
                _ => all = false,
            }
        }
        Ok((deaths, all))
    }

    /// Whether what was seen is no longer so. A directory keeps no history to ask what has happened
    /// since.
    fn changed(&self) -> Result<bool, StoreError> {
        let election_dir = self.election_dir();
        for number in &self.what.there {
            if !number.map_or(Ok(false), |number| election_dir.lives(number))? {
                return Ok(true);
            }
        }
        if let Some(head) = self.what.head
            && (election_dir.head()? != head || !head.map_or(Ok(true), |head| election_dir.lives(head))?)
        {
            return Ok(true);
        }
        Ok((self.what.publications && cursor_of(&election_dir.publications()?) != self.from)
            || election_dir.office_differs(self.what.office)?)
    }
}

/// Returns when the wakeup is woken, or (with `true`) when one of the descriptors becomes readable.
async fn woken_or_died(wakeup: &Wakeup, descriptors: Vec<OwnedFd>) -> bool {
    #[allow(deprecated, reason = "its successor is unsafe, for descriptors that change hands; an OwnedFd cannot")]
    let readable = |fd| AsyncFd::with_interest(fd, Interest::READABLE);
    let descriptors: Vec<_> = descriptors.into_iter().filter_map(|fd| readable(fd).ok()).collect();
    let mut woken = pin!(wakeup.woken());
    poll_fn(|cx| {
        if woken.as_mut().poll(cx).is_ready() {
            return Poll::Ready(false);
        }
        let ready = |fd: &AsyncFd<OwnedFd>| fd.poll_read_ready(cx).is_ready();
        if descriptors.iter().any(ready) { Poll::Ready(true) } else { Poll::Pending }
    })
    .await
}
