//! A store's directory: whether it may be used, whose it is, and what dead processes have left in
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use incumbent_store::{ElectionName, Namespaces, StoreError, StoreId, lock, not_local, random_id};
use rustix::fs::{Mode, OFlags, fstat, fstatfs};
use rustix::process::geteuid;

use crate::disk::{Disk, Lock};
use crate::election_dir::ElectionDir;
use crate::election_path::{ELECTIONS, election_of, goes_on};
use crate::high_water_mark::HighWaterMark;
use crate::options::FileOptions;
use crate::record::{Identity, Record, corrupt};
use crate::time::Time;
use crate::workers::Workers;

pub(crate) const SESSIONS: &str = "sessions";
pub(crate) const EVICTIONS: &str = "evictions";
pub(crate) const WAITERS: &str = "waiters";
const TRASH: &str = "trash";
const IDENTITY: &str = "incumbent";
/// What a new identity is called until it is linked to its name.
const NEW_IDENTITY: &str = "incumbent.new.";
/// How deep discarded directories can lie in each other before the rest waits for the next sweep.
const TRASH_DEPTH: usize = 16;

/// An open store.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) disk: Disk,
    pub(crate) high_water_mark: HighWaterMark,
    pub(crate) options: FileOptions,
    pub(crate) id: StoreId,
    pub(crate) time: Time,
    /// In which namespace this process's pid means something. Zero: unknown.
    pub(crate) pid_namespace: u64,
    cleanups: Mutex<Vec<Cleanup>>,
    /// Held while cleaning up: the next caller knows that what was left before is done.
    cleaning: Mutex<()>,
}

/// What no call has to wait for: deleting takes milliseconds on some disks, and changes nothing
/// that can be seen.
#[derive(Debug)]
enum Cleanup {
    Delete(String),
    Tidy { election: String, gone: u64 },
}

/// The entries that are gone, by election: each election is read once for all of them.
type Gone = BTreeMap<String, BTreeSet<u64>>;

impl Directory {
    /// Opens a directory, and makes it if it is not there.
    pub(crate) fn open(path: &Path, options: FileOptions, time: Time) -> Result<Directory, StoreError> {
        make_root(path)?;
        let disk = open_root(path)?;
        check(&disk, options)?;
        let id = match read_identity(&disk)? {
            Some(id) => id,
            None => create_store(&disk)?,
        };
        Directory::with(disk, id, options, time)
    }

    /// Opens the directory that is at the path of one that was open before. It has to be a store
    /// already.
    pub(crate) fn open_again(path: &Path, options: FileOptions, time: Time) -> Result<Directory, StoreError> {
        if path.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
            return Err(not_in_place(path));
        }
        let disk = open_root(path)?;
        // Whose it is comes second: an empty mount point is usually not ours, and the store is
        // mounted there again later.
        let Some(id) = read_identity(&disk)? else { return Err(not_in_place(path)) };
        check(&disk, options)?;
        Directory::with(disk, id, options, time)
    }

    fn with(disk: Disk, id: u128, options: FileOptions, time: Time) -> Result<Directory, StoreError> {
        forget_other_identities(&disk)?;
        let high_water_mark = HighWaterMark::default();
        high_water_mark.read(&disk)?;
        let pid_namespace = Namespaces::this().numbers;
        let id = StoreId::new(format!("{id:032x}"));
        Ok(Directory {
            disk,
            high_water_mark,
            options,
            id,
            time,
            pid_namespace,
            cleanups: Mutex::default(),
            cleaning: Mutex::default(),
        })
    }

    /// Whether it is still the one at its path.
    pub(crate) fn is_in_place(&self) -> Result<bool, StoreError> {
        Ok(self.disk.is_in_place()?)
    }

    /// Fails if it is no longer the one at its path.
    pub(crate) fn must_be_in_place(&self) -> Result<(), StoreError> {
        if self.is_in_place()? { Ok(()) } else { Err(not_in_place(self.disk.path())) }
    }

    /// Takes something out of sight in one step; deleting it is left for later. Whether it was
    /// there.
    pub(crate) fn discard(&self, path: &str) -> Result<bool, StoreError> {
        let trash = format!("{TRASH}/{:032x}", random_id()?);
        match self.disk.rename(path, &trash) {
            Ok(()) => {}
            Err(error) if error.is_missing() => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        self.cleanups().push(Cleanup::Delete(trash));
        Ok(true)
    }

    /// Leaves it for later to tidy up after an entry.
    pub(crate) fn tidy_later(&self, election: &str, gone: u64) {
        self.cleanups().push(Cleanup::Tidy { election: election.to_owned(), gone });
    }

    /// Has a worker do what was left for later, if anything was.
    pub(crate) fn clean_up_later(self: &Arc<Directory>, workers: &Workers) {
        if !self.cleanups().is_empty() {
            let directory = self.clone();
            workers.later(move || directory.clean_up());
        }
    }

    /// Does what was left for later. If it does not come to it, a sweep does.
    pub(crate) fn clean_up(&self) {
        let _cleaning = lock(&self.cleaning);
        // Tidying up takes things out of sight, too; it leaves nothing to tidy up.
        for _ in 0..2 {
            let cleanups = std::mem::take(&mut *self.cleanups());
            let mut gone_from = Gone::new();
            for cleanup in cleanups {
                match cleanup {
                    Cleanup::Delete(path) => self.delete(&path, TRASH_DEPTH),
                    Cleanup::Tidy { election, gone } => drop(gone_from.entry(election).or_default().insert(gone)),
                }
            }
            gone_from.into_iter().for_each(|(election, gone)| ElectionDir::at(self, election).tidy(&gone));
        }
    }

    fn cleanups(&self) -> MutexGuard<'_, Vec<Cleanup>> {
        lock(&self.cleanups)
    }

    /// Deletes what nobody can see any more. What cannot be deleted now is left for the next sweep.
    fn delete(&self, path: &str, depth: usize) {
        let names = self.disk.list(path).ok().flatten();
        let Some(names) = names else {
            let _ = self.disk.remove_file(path);
            return;
        };
        if depth == 0 {
            return;
        }
        names.iter().for_each(|name| self.delete(&format!("{path}/{name}"), depth - 1));
        let _ = self.disk.remove_dir(path);
    }

    /// Removes what processes left that are certainly dead. With `all`, looks into every election
    /// for it.
    ///
    /// A session's file goes last: it is what says that there is something to look for.
    pub(crate) fn sweep(&self, all: bool) -> Result<(), StoreError> {
        self.clean_up();
        let (dead, living) = self.sessions()?;
        for name in self.disk.list(EVICTIONS)?.unwrap_or_default() {
            let of_living = name.split('.').next().is_some_and(|session| living.contains(session));
            if !of_living {
                // It blocks nothing.
                let _ = self.discard(&format!("{EVICTIONS}/{name}"));
            }
        }
        for name in self.disk.list(WAITERS)?.unwrap_or_default() {
            let path = format!("{WAITERS}/{name}");
            if let Ok(false) = self.disk.write_pipe(&path, &[]) {
                self.disk.remove_file(&path)?;
            }
        }
        if (all || !dead.is_empty()) && self.sweep_elections(ELECTIONS, TRASH_DEPTH)? {
            dead.iter().try_for_each(|name| self.disk.remove_file(&format!("{SESSIONS}/{name}")))?;
        }
        let trash = self.disk.list(TRASH)?.unwrap_or_default();
        self.cleanups().extend(trash.into_iter().map(|name| Cleanup::Delete(format!("{TRASH}/{name}"))));
        Ok(())
    }

    /// The names of dead sessions and of living ones.
    fn sessions(&self) -> Result<(BTreeSet<String>, BTreeSet<String>), StoreError> {
        let (mut dead, mut living) = (BTreeSet::new(), BTreeSet::new());
        for name in self.disk.list(SESSIONS)?.unwrap_or_default() {
            match self.disk.probe(&format!("{SESSIONS}/{name}"))?.0 {
                Lock::Free => dead.insert(name),
                Lock::Held => living.insert(name),
                Lock::Missing => false,
            };
        }
        Ok((dead, living))
    }

    /// Whether no session lives here.
    pub(crate) fn is_deserted(&self) -> Result<bool, StoreError> {
        Ok(self.sessions()?.1.is_empty())
    }

    /// The elections in which somebody stands or an order counts, in order. One that cannot be read
    /// is among them: those who look at it are told why.
    pub(crate) fn elections(&self) -> Result<Vec<ElectionName>, StoreError> {
        let mut names = Vec::new();
        self.list_elections("", TRASH_DEPTH, &mut names)?;
        names.sort();
        Ok(names)
    }

    fn list_elections(&self, below: &str, depth: usize, names: &mut Vec<ElectionName>) -> Result<(), StoreError> {
        for name in self.disk.list(&format!("{ELECTIONS}/{below}"))?.unwrap_or_default() {
            match goes_on(&name) {
                true if depth > 0 => self.list_elections(&format!("{below}{name}/"), depth - 1, names)?,
                true => {}
                false => {
                    let path = format!("{below}{name}");
                    let says_nothing = || ElectionDir::at(self, format!("{ELECTIONS}/{path}")).says_nothing();
                    names.extend(election_of(&path).filter(|_| !says_nothing().unwrap_or(false)));
                }
            }
        }
        Ok(())
    }

    /// Whether all could be swept. An election that cannot be does not keep candidates from the
    /// others; those that stand in it are told why.
    fn sweep_elections(&self, path: &str, depth: usize) -> Result<bool, StoreError> {
        let mut all = true;
        for name in self.disk.list(path)?.unwrap_or_default() {
            let inner = format!("{path}/{name}");
            match goes_on(&name) {
                true if depth > 0 => all &= self.sweep_elections(&inner, depth - 1)?,
                true => {}
                false => all &= ElectionDir::at(self, inner).sweep().is_ok(),
            }
        }
        Ok(all)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.clean_up();
    }
}

/// Makes the directory, for nobody but us, and those above it as people have them made.
fn make_root(path: &Path) -> Result<(), StoreError> {
    let make = || {
        if let Some(above) = path.parent() {
            std::fs::create_dir_all(above)?;
        }
        match std::fs::DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
    };
    make().map_err(|error| cannot_open(path, error))
}

fn open_root(path: &Path) -> Result<Disk, StoreError> {
    let path = std::path::absolute(path).map_err(|error| cannot_open(path, error))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = rustix::fs::open(&path, flags, Mode::empty()).map_err(|errno| cannot_open(&path, errno.into()))?;
    Ok(Disk::new(root, path)?)
}

fn cannot_open(path: &Path, error: std::io::Error) -> StoreError {
    match error.kind() {
        std::io::ErrorKind::NotADirectory if path.is_symlink() => StoreError::Misuse { what: is_symlink(path) },
        std::io::ErrorKind::AlreadyExists | std::io::ErrorKind::NotADirectory => {
            StoreError::Misuse { what: format!("{} is not a directory", path.display()) }
        }
        std::io::ErrorKind::PermissionDenied => {
            let source = Some(Arc::new(error) as _);
            StoreError::Denied { what: format!("cannot open the directory {}", path.display()), source }
        }
        _ => StoreError::unavailable(format!("cannot open the directory {}", path.display()), error),
    }
}

/// A link can be pointed elsewhere while some use the old directory and others the new one: two
/// leaders.
fn is_symlink(path: &Path) -> String {
    let shown = path.display();
    match std::fs::canonicalize(path) {
        Ok(target) => format!(
            "{shown} is a symbolic link, which may lead elsewhere tomorrow: name the directory itself, {}",
            target.display()
        ),
        Err(error) => format!("{shown} is a symbolic link that leads nowhere: {error}; name a directory"),
    }
}

fn not_in_place(path: &Path) -> StoreError {
    let what = format!(
        "the directory {} is gone: it was moved, removed, replaced or unmounted while it was in use; put it back, or \
         start a process that makes a new one",
        path.display()
    );
    StoreError::Unavailable { what, source: None }
}

fn check(disk: &Disk, options: FileOptions) -> Result<(), StoreError> {
    check_owner(disk)?;
    if options.allow_network_fs { Ok(()) } else { check_file_system(disk) }
}

fn check_owner(disk: &Disk) -> Result<(), StoreError> {
    let stat = fstat(disk.root()).map_err(|errno| {
        StoreError::unavailable(format!("cannot look at {}", disk.path().display()), std::io::Error::from(errno))
    })?;
    let denied = |why: String| StoreError::Denied { what: format!("{}: {why}", disk.path().display()), source: None };
    let (owner, us) = (stat.st_uid, geteuid().as_raw());
    if owner != us {
        let act = format!("act as that user (as root: `sudo -u '#{owner}' ...`)");
        return Err(denied(format!("it belongs to user {owner}, and we are user {us}: {act}")));
    }
    if stat.st_mode & 0o022 != 0 {
        let mode = stat.st_mode & 0o777;
        return Err(denied(format!("others may write to it (mode {mode:o}): use a directory of mode 700")));
    }
    Ok(())
}

fn check_file_system(disk: &Disk) -> Result<(), StoreError> {
    let stat = fstatfs(disk.root()).map_err(|errno| {
        StoreError::unavailable(format!("cannot look at {}", disk.path().display()), std::io::Error::from(errno))
    })?;
    match not_local(stat.f_type as u32) {
        None => Ok(()),
        Some(name) => Err(StoreError::Denied {
            what: format!(
                "{} is on {name}: its locks and watches are not known to be those of one host; use a directory on a \
                 local disk, or a store that is made for many hosts; if no other host can reach it, `?network=allow` \
                 (FileOptions::allow_network_fs) says so",
                disk.path().display()
            ),
            source: None,
        }),
    }
}

fn read_identity(disk: &Disk) -> Result<Option<u128>, StoreError> {
    let Some(bytes) = disk.read(IDENTITY)? else { return Ok(None) };
    Identity::decode(&bytes, disk, IDENTITY).map(|identity| Some(identity.id))
}

/// Makes a store of an empty directory. Of those who race to do it, one identity wins.
///
/// Everything else is made first: a directory with an identity and no high-water mark is damaged,
/// not new.
fn create_store(disk: &Disk) -> Result<u128, StoreError> {
    let ours = |name: &str| {
        [SESSIONS, EVICTIONS, TRASH, WAITERS, ELECTIONS, "high-water-mark", IDENTITY].contains(&name)
            || name.starts_with(NEW_IDENTITY)
    };
    if let Some(name) = disk.list(".")?.unwrap_or_default().iter().find(|name| !ours(name)) {
        let what = format!("{} holds {name}: it is neither empty nor a store", disk.path().display());
        return Err(StoreError::Foreign { what });
    }
    for dir in [SESSIONS, EVICTIONS, TRASH, WAITERS, ELECTIONS] {
        disk.make_dir(dir)?;
    }
    HighWaterMark::create(disk)?;
    let path = format!("{NEW_IDENTITY}{:032x}", random_id()?);
    let file = disk.create(&path)?;
    disk.write(&file, &path, &Identity { id: random_id()? }.encode())?;
    disk.sync(&file, &path)?;
    match disk.link(&path, IDENTITY) {
        // Missing: somebody found the winner's identity in place and removed ours.
        Err(error) if !error.is_taken() && !error.is_missing() => return Err(error.into()),
        _ => disk.sync_dir(".")?,
    }
    // The directory's own name, as far as we may: if a power cut takes it away, the next store here
    // is another one.
    if let Some(above) = disk.path().parent() {
        let _ = std::fs::File::open(above).and_then(|above| above.sync_all());
    }
    read_identity(disk)?.ok_or_else(|| corrupt(disk, IDENTITY, "it was removed"))
}

/// Removes the identities that lost, and those of processes that died on the way. There is one in
/// place by now.
fn forget_other_identities(disk: &Disk) -> Result<(), StoreError> {
    for name in disk.list(".")?.unwrap_or_default().iter().filter(|name| name.starts_with(NEW_IDENTITY)) {
        disk.remove_file(name)?;
    }
    Ok(())
}
