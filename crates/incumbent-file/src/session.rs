//! A session: a locked file that the kernel unlocks when we die, and a heartbeat in it for when we
//! are stopped.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use incumbent_store::{
    Cas, Cursor, ElectionName, EntryId, Fault, ForgottenBy, Fut, Held, LONGEST, Liveness, NewEntry, Place, Publication,
    Renewal, Session, Standing, StillBehind, StoreError, StoreId, Timestamp, Token, Version, Wake, Watched,
    check_candidate_name, check_value, lock, random_id,
};
use rustix::fd::OwnedFd;

use crate::directory::{Directory, EVICTIONS, SESSIONS};
use crate::disk::DiskError;
use crate::election_dir::{ElectionDir, id_of, number_of, published};
use crate::election_path::path_of;
use crate::options::Ttl;
use crate::owner::{Owners, session_name};
use crate::record::{EntryRecord, Record, SessionRecord, encode_beat};
use crate::root::{Opened, unknown};
use crate::sequence::{Sequence, TRIES};
use crate::watch::Watch;
use crate::workers::Workers;

/// Below this, waking up, writing and stopping in time take too large a part of it.
pub(crate) const SMALLEST_TTL: Duration = Duration::from_millis(200);
/// Calls about the same election wait for each other, at one of this many locks.
const ELECTION_LOCKS: usize = 64;

/// The session of one process in one directory.
pub(crate) struct FileSession {
    inner: Arc<Inner>,
    opened: Arc<Opened>,
    workers: Arc<Workers>,
    /// Renewals have a thread of their own: they wait for nobody else's work, and one that hangs is
    /// not followed by another before it has ended.
    renewals: Workers,
}

struct Inner {
    directory: Arc<Directory>,
    id: u128,
    ttl: Duration,
    /// The locked file. It stays open until all of this is dropped; once its name is gone, the lock
    /// means nothing.
    file: OwnedFd,
    /// Held for reading by a call that changes an entry, so that no change comes after the end.
    open: RwLock<bool>,
    /// Where the heartbeat stands in the file, and the last one written.
    beat_at: u64,
    beat: Mutex<u64>,
    entries: Mutex<BTreeMap<ElectionName, OwnEntry>>,
    election_locks: [Mutex<()>; ELECTION_LOCKS],
}

/// An entry of ours.
#[derive(Clone, Debug)]
struct OwnEntry {
    held: Held,
    /// The entry that was ahead when we last looked, for a renewal to look at: nothing ever comes
    /// between the two.
    ahead: Option<u64>,
}

impl FileSession {
    /// Locks a new file, writes it, and only then gives it the name under which others find it.
    pub(crate) fn open(opened: Arc<Opened>, workers: Arc<Workers>, ttl: Duration) -> Result<FileSession, StoreError> {
        let directory = opened.directory.clone();
        if ttl < SMALLEST_TTL {
            let what =
                format!("a TTL of {ttl:?}: a directory needs at least {SMALLEST_TTL:?}, or no heartbeat is in time");
            return Err(StoreError::Limit { what });
        }
        let renewals = Workers::start("incumbent-renew", 1)?;
        directory.sweep(false)?;
        let (ttl, observed) = match directory.options.ttl {
            Ttl::OfSession => (ttl, Some(ttl)),
            // Nobody may evict it: it has no deadline to stop its work by either.
            Ttl::None => (LONGEST, None),
        };
        for _ in 0..TRIES {
            let record = SessionRecord {
                id: random_id()?,
                pid: std::process::id(),
                pid_namespace: directory.pid_namespace,
                clock: directory.time.shared,
                observed,
            };
            let beat = directory.time.now().as_nanos();
            let mut bytes = record.encode();
            let beat_at = bytes.len() as u64;
            bytes.extend_from_slice(&encode_beat(beat));
            match publish_file(&directory, record.id, &bytes) {
                Ok(Some(file)) => {
                    let inner = Inner {
                        directory,
                        id: record.id,
                        ttl,
                        file,
                        open: RwLock::new(true),
                        beat_at,
                        beat: Mutex::new(beat),
                        entries: Mutex::default(),
                        election_locks: std::array::from_fn(|_| Mutex::default()),
                    };
                    return Ok(FileSession { inner: Arc::new(inner), opened, workers, renewals });
                }
                // A sweep has found it before it was locked, and took it for that of a dead
                // process.
                Ok(None) => {}
                Err(error) if error.is_missing() && directory.disk.exists(SESSIONS)? => {}
                Err(error) => return Err(error.into()),
            }
        }
        let what = format!("no session can be opened in {}", directory.disk.path().display());
        Err(StoreError::Unavailable { what, source: None })
    }

    /// Runs `job` on `workers`, in a directory that is still the one at its path: if it is not, the
    /// session and all that it stands for are gone, whatever `job` says.
    async fn run<T: Send + 'static>(
        &self,
        workers: &Workers,
        what: &'static str,
        job: impl FnOnce(&Inner) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let inner = self.inner.clone();
        let answer = workers.run(what, move || {
            let answer = job(&inner);
            if inner.directory.is_in_place().map_err(unknown)? { answer } else { Err(StoreError::SessionGone) }
        });
        self.and_clean_up(answer.await)
    }

    /// Runs `job` in the directory, wherever it is by now: for taking back what is ours.
    async fn run_anywhere<T: Send + 'static>(
        &self,
        what: &'static str,
        job: impl FnOnce(&Inner) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let inner = self.inner.clone();
        self.and_clean_up(self.workers.run(what, move || job(&inner)).await)
    }

    fn and_clean_up<T>(&self, answer: T) -> T {
        self.inner.directory.clean_up_later(&self.workers);
        answer
    }
}

fn publish_file(directory: &Directory, id: u128, bytes: &[u8]) -> Result<Option<OwnedFd>, DiskError> {
    let disk = &directory.disk;
    let path = format!("{SESSIONS}/{}", session_name(id));
    let new = format!("{path}.new");
    let file = disk.create(&new)?;
    if !disk.lock(&file, &new)? {
        return Ok(None);
    }
    disk.write(&file, &new, bytes)?;
    disk.sync(&file, &new)?;
    disk.rename(&new, &path)?;
    Ok(Some(file))
}

impl Session for FileSession {
    fn liveness(&self) -> Liveness {
        let mut liveness = Liveness::new(self.inner.ttl);
        liveness.forgotten_by = ForgottenBy::Rivals;
        liveness
    }

    fn store_id(&self) -> StoreId {
        self.inner.directory.id.clone()
    }

    fn renew<'a>(&'a self, held: &'a [Held]) -> Fut<'a, Renewal> {
        let held = held.to_vec();
        // Not when the disk gets to it: its owner counts from now, too.
        let sent_at = self.inner.directory.time.now();
        Box::pin(self.run(&self.renewals, "renewing the session", move |inner| inner.renew(sent_at, &held)))
    }

    fn enlist<'a>(&'a self, election: &'a ElectionName, entry: &'a NewEntry) -> Fut<'a, Standing> {
        let (election, entry) = (election.clone(), entry.clone());
        Box::pin(self.run(&self.workers, "enlisting", move |inner| inner.enlist(&election, &entry)))
    }

    fn standing<'a>(&'a self, held: &'a Held, behind: Option<&'a EntryId>) -> Fut<'a, Standing> {
        let (held, behind) = (held.clone(), behind.and_then(number_of));
        Box::pin(self.run(&self.workers, "reading the line", move |inner| inner.standing(&held, behind)))
    }

    fn watch(&self, watched: &Watched, from: Cursor) -> Wake {
        Box::pin(Watch::of_entry(self.opened.clone(), self.workers.clone(), watched, from).wait())
    }

    fn publish<'a>(&'a self, held: &'a Held, was: Version, said: &'a Publication) -> Fut<'a, Option<Version>> {
        let (held, publication) = (held.clone(), said.clone());
        Box::pin(self.run(&self.workers, "publishing", move |inner| inner.publish(&held, was, &publication)))
    }

    fn withdraw<'a>(&'a self, held: &'a Held, heir: Option<&'a EntryId>) -> Fut<'a, Cas> {
        let (held, heir) = (held.clone(), heir.cloned());
        Box::pin(self.run_anywhere("withdrawing", move |inner| inner.withdraw(&held, heir.as_ref())))
    }

    fn lifeline(&self) -> Option<BorrowedFd<'_>> {
        Some(self.inner.file.as_fd())
    }

    fn close(&self) -> Fut<'_, ()> {
        Box::pin(self.run_anywhere("closing the session", Inner::close))
    }
}

impl Inner {
    /// The new heartbeat first, then whatever stands against us is removed, then we look what is
    /// left: see [`crate::election_dir`]. Nothing is synced: a session does not outlive the host's
    /// uptime.
    fn renew(&self, sent_at: Timestamp, held: &[Held]) -> Result<Renewal, StoreError> {
        let _alive = self.alive()?;
        let path = format!("{SESSIONS}/{}", session_name(self.id));
        {
            let mut beat = lock(&self.beat);
            *beat = sent_at.as_nanos().max(*beat + 1);
            self.directory.disk.overwrite(&self.file, &path, self.beat_at, &encode_beat(*beat))?;
        }
        if self.directory.disk.names_of(&self.file, &path)? == 0 {
            return Err(StoreError::SessionGone);
        }
        self.cancel_evictions()?;
        let mut renewal = Renewal::alive(self.ttl);
        for held in held {
            if !self.still_has(held)? {
                renewal.gone.push(held.clone());
            }
        }
        let others: Vec<_> =
            lock(&self.entries).values().map(|own| &own.held).filter(|own| !held.contains(own)).cloned().collect();
        for other in others {
            if self.still_has(&other)? {
                renewal.stray.push(other);
            }
        }
        let there = held.iter().filter(|held| !renewal.gone.contains(held));
        renewal.behind = there.filter_map(|held| self.still_behind(held).ok().flatten()).collect();
        Ok(renewal)
    }

    /// Looks at the one entry that was ahead, and at the office record: so those who wait need no
    /// wake-up for it beside the heartbeat, however long the line is. What is not as it was, or
    /// cannot be read, the candidate finds for itself.
    fn still_behind(&self, held: &Held) -> Result<Option<StillBehind>, StoreError> {
        let ahead = lock(&self.entries).get(&held.election).filter(|own| own.held == *held).and_then(|own| own.ahead);
        let Some(ahead) = ahead else { return Ok(None) };
        let election_dir = self.election_dir(&held.election);
        let office = election_dir.tip()?.office.version;
        let ahead = election_dir.living_entry(ahead, &election_dir.publications()?, &Owners::default())?;
        Ok(ahead.map(|ahead| StillBehind::new(held.clone(), ahead, office)))
    }

    fn cancel_evictions(&self) -> Result<(), StoreError> {
        let disk = &self.directory.disk;
        let ours = format!("{}.", session_name(self.id));
        for name in disk.list(EVICTIONS)?.unwrap_or_default().iter().filter(|name| name.starts_with(&ours)) {
            match disk.remove_dir(&format!("{EVICTIONS}/{name}")) {
                Ok(()) => {}
                // The entry is in there: it was evicted, and we shall find it gone.
                Err(error) if error.is_taken() || error.is_missing() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn enlist(&self, election: &ElectionName, entry: &NewEntry) -> Result<Standing, StoreError> {
        check_candidate_name(&entry.name)?;
        check_value(&entry.value)?;
        let _alive = self.alive()?;
        let _locked = self.lock_election(election);
        let election_dir = self.election_dir(election);
        if let Some(held) = self.entry_in(election)
            && self.still_has(&held)?
        {
            if held.incarnation != entry.incarnation {
                return Err(StoreError::AlreadyInLine(held));
            }
            return self.durable_standing(&election_dir, &held);
        }
        let record = EntryRecord {
            session: self.id,
            incarnation: entry.incarnation,
            name: entry.name.clone(),
            value: entry.value.clone(),
            enlisted_at: self.directory.time.now().as_nanos(),
            merit: entry.merit,
        };
        let number = election_dir.append(Sequence::Line, &record.encode(), || Ok(true))?;
        let Some(token) = number.and_then(Token::new) else { return Err(election_dir.too_busy()) };
        let held = Held::new(election.clone(), id_of(token), token, entry.incarnation);
        lock(&self.entries).insert(election.clone(), OwnEntry { held: held.clone(), ahead: None });
        self.durable_standing(&election_dir, &held).inspect_err(|error| {
            // Trying again will not help, so nobody will: an entry of which its owner knows nothing
            // must not stay.
            if error.fault() == Fault::Permanent && election_dir.remove(held.token.get()).is_ok() {
                self.forget(&held);
            }
        })
    }

    /// Where we stand, once our token is one that is never given again. It is in line already, so
    /// what fails here leaves the outcome unknown.
    fn durable_standing(&self, election_dir: &ElectionDir<'_>, held: &Held) -> Result<Standing, StoreError> {
        let durable = self.directory.high_water_mark.raise_durably(&self.directory.disk, held.token.get());
        durable.and_then(|()| self.note_standing(election_dir, held, None)).map_err(unknown)
    }

    /// Where an entry of ours stands, and notes who is ahead of it.
    fn note_standing(
        &self,
        election_dir: &ElectionDir<'_>,
        held: &Held,
        behind: Option<u64>,
    ) -> Result<Standing, StoreError> {
        let standing = election_dir.standing(held, behind)?;
        if let Some(own) = lock(&self.entries).get_mut(&held.election).filter(|own| own.held == *held) {
            own.ahead = match &standing.place {
                Place::Behind { ahead, .. } => Some(ahead.token.get()),
                Place::Leading(_) | Place::Gone => None,
            };
        }
        Ok(standing)
    }

    fn standing(&self, held: &Held, behind: Option<u64>) -> Result<Standing, StoreError> {
        let _alive = self.alive()?;
        let election_dir = self.election_dir(&held.election);
        if self.entry_in(&held.election).as_ref() == Some(held) {
            return self.note_standing(&election_dir, held, behind);
        }
        election_dir.standing_gone(held)
    }

    /// Nobody else publishes for our entry, and calls about one election come one after the other:
    /// what is there now is still there when it is replaced.
    fn publish(&self, held: &Held, was: Version, publication: &Publication) -> Result<Option<Version>, StoreError> {
        check_value(&publication.value)?;
        let _alive = self.alive()?;
        let _locked = self.lock_election(&held.election);
        let election_dir = self.election_dir(&held.election);
        if !self.still_has(held)? || published(held.token.get(), &election_dir.publications()?) != was {
            return Ok(None);
        }
        let times = was.0 + 1;
        election_dir.publish(held.token.get(), times, publication)?;
        // Who evicts compares this, too.
        self.cancel_evictions()?;
        if !self.still_has(held)? {
            self.directory.tidy_later(election_dir.path(), held.token.get());
            return Ok(None);
        }
        Ok(Some(Version(times)))
    }

    fn withdraw(&self, held: &Held, heir: Option<&EntryId>) -> Result<Cas, StoreError> {
        let _alive = self.alive()?;
        let _locked = self.lock_election(&held.election);
        if !self.still_has(held)? {
            return Ok(Cas::Done);
        }
        let election_dir = self.election_dir(&held.election);
        let cas = match heir.map(number_of) {
            None => election_dir.remove(held.token.get()).map(|()| Cas::Done)?,
            Some(Some(heir)) => election_dir.remove_before(held.token.get(), heir)?,
            Some(None) => Cas::Refused,
        };
        if cas == Cas::Done {
            self.forget(held);
        }
        Ok(cas)
    }

    fn close(&self) -> Result<(), StoreError> {
        // Waits for calls that are changing an entry.
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        if !*open {
            return Ok(());
        }
        let entries: Vec<_> = lock(&self.entries).values().map(|own| own.held.clone()).collect();
        for held in entries {
            self.election_dir(&held.election).remove(held.token.get())?;
            self.forget(&held);
        }
        self.directory.disk.remove_file(&format!("{SESSIONS}/{}", session_name(self.id)))?;
        *open = false;
        drop(open);
        // The last session to close sweeps every election.
        let deserted = self.directory.is_deserted()?;
        self.directory.sweep(deserted)?;
        self.directory.clean_up();
        Ok(())
    }

    fn alive(&self) -> Result<RwLockReadGuard<'_, bool>, StoreError> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        if *open { Ok(open) } else { Err(StoreError::SessionGone) }
    }

    fn election_dir(&self, election: &ElectionName) -> ElectionDir<'_> {
        ElectionDir::at(&self.directory, path_of(election))
    }

    /// A call whose future was dropped goes on: the next about the same election waits for it.
    fn lock_election(&self, election: &ElectionName) -> MutexGuard<'_, ()> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(election);
        lock(&self.election_locks[(hash % ELECTION_LOCKS as u64) as usize])
    }

    fn entry_in(&self, election: &ElectionName) -> Option<Held> {
        lock(&self.entries).get(election).map(|own| own.held.clone())
    }

    /// Whether the entry is ours and still there. No token comes twice: if it is there, it is the
    /// same one.
    fn still_has(&self, held: &Held) -> Result<bool, StoreError> {
        if self.entry_in(&held.election).as_ref() != Some(held) {
            return Ok(false);
        }
        let there = self.election_dir(&held.election).has(held.token.get())?;
        if !there {
            self.forget(held);
        }
        Ok(there)
    }

    fn forget(&self, held: &Held) {
        let mut entries = lock(&self.entries);
        if entries.get(&held.election).is_some_and(|own| own.held == *held) {
            entries.remove(&held.election);
        }
    }
}

impl Drop for Inner {
    /// A session that is dropped without being closed is gone at once, too. What fails here is
    /// swept up by others.
    fn drop(&mut self) {
        let _ = self.close();
    }
}

impl fmt::Debug for FileSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileSession").field("id", &session_name(self.inner.id)).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use incumbent_store::{Incarnation, Version};
    use incumbent_testkit::TempDir;

    use super::*;
    use crate::options::FileOptions;
    use crate::time::Time;

    #[tokio::test]
    async fn a_renewal_looks_at_the_one_ahead_so_that_those_who_wait_need_not() {
        let temp_dir = TempDir::new("ahead");
        let path = temp_dir.path();
        let opened = Opened::new(Directory::open(path, FileOptions::new(), Time::of_host()).unwrap());
        let workers = Arc::new(Workers::start("incumbent-file", 1).unwrap());
        let open = || FileSession::open(opened.clone(), workers.clone(), Duration::from_secs(15)).unwrap();
        let (first, second) = (open(), open());
        let election = ElectionName::new("e").unwrap();
        let entry = NewEntry::new(Incarnation::from_bits(1), "a", "");
        let leading = first.enlist(&election, &entry).await.unwrap().place;
        let Place::Leading(leads) = leading else { panic!("{leading:?}") };
        let behind = second.enlist(&election, &entry).await.unwrap().place;
        let Place::Behind { held: Some(waits), ahead, .. } = behind else { panic!("{behind:?}") };
        first.renew(std::slice::from_ref(&leads)).await.unwrap();
        let seen = second.renew(std::slice::from_ref(&waits)).await.unwrap().behind;
        let [seen] = &seen[..] else { panic!("{seen:?}") };
        assert_eq!((&seen.held, seen.ahead.token, seen.office), (&waits, leads.token, Version::NONE));
        assert!(seen.ahead.version > ahead.version, "its newest heartbeat");
        assert_eq!(first.renew(std::slice::from_ref(&leads)).await.unwrap().behind, [], "nobody is ahead of it");
        second.close().await.unwrap();
        first.close().await.unwrap();
        drop((first, second, opened));
    }

    #[tokio::test]
    async fn silence_is_told_only_to_those_who_share_the_clock() {
        let temp_dir = TempDir::new("silence");
        let path = temp_dir.path();
        let ours = Opened::new(Directory::open(path, FileOptions::new(), Time::of_host()).unwrap());
        let workers = Arc::new(Workers::start("incumbent-file", 1).unwrap());
        let session = FileSession::open(ours.clone(), workers, Duration::from_secs(15)).unwrap();
        let election = ElectionName::new("e").unwrap();
        let entry = NewEntry::new(Incarnation::from_bits(1), "a", "");
        session.enlist(&election, &entry).await.unwrap();
        let silent = |directory: &Directory| {
            let line = ElectionDir::at(directory, path_of(&election)).line(1).unwrap();
            line.entries[0].observed.unwrap().silent
        };
        assert!(silent(&ours.directory).is_some());
        // A container with a boot id or a time namespace of its own.
        let mut theirs = Directory::open(path, FileOptions::new(), Time::of_host()).unwrap();
        theirs.time.shared ^= 1;
        assert_eq!(silent(&theirs), None);
        session.close().await.unwrap();
        drop((session, ours, theirs));
    }
}
