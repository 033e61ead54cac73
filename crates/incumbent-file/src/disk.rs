//! The directory: every system call that this store makes on it, relative to one open descriptor of
//! its root.
//!
//! It knows paths and bytes, and nothing of elections. Every change passes a fault point first, so
//! that a test can kill or stop a process between any two of them.

use std::ffi::CStr;
use std::fmt;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use incumbent_store::StoreError;
use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, RawDir, Stat, flock, fstat, fsync, linkat, mkdirat, mkfifoat, openat,
    renameat, statat, unlinkat,
};
use rustix::io::{Errno, pread, pwrite, retry_on_intr, write};

use crate::fault::point;

/// Larger than any file of ours: the largest value, and room.
const MAX_FILE_BYTES: usize = 256 * 1024;
/// One call to the kernel returns this much of a directory: for most, all of it, and so one moment
/// of it.
const LIST_BYTES: usize = 32 * 1024;

/// The root of a store.
#[derive(Debug)]
pub(crate) struct Disk {
    root: OwnedFd,
    path: PathBuf,
    /// The device and the inode of the root. It is open, so no other directory can have the same
    /// ones.
    inode: (u64, u64),
}

/// Whether somebody holds the lock of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    Held,
    Free,
    /// There is no such file.
    Missing,
}

impl Disk {
    /// A directory that is already open.
    pub(crate) fn new(root: OwnedFd, path: PathBuf) -> Result<Disk, DiskError> {
        let unknown = |errno| DiskError { what: "look at", path: path.clone(), errno };
        let inode = fstat(&root).map(|stat| inode_of(&stat)).map_err(unknown)?;
        Ok(Disk { root, path, inode })
    }

    /// Whether the path still leads to this directory: it was neither moved nor removed, nothing is
    /// mounted over it, and its own file system is still mounted there.
    pub(crate) fn is_in_place(&self) -> Result<bool, DiskError> {
        match statat(CWD, &self.path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(inode_of(&stat) == self.inode),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(errno) => Err(self.error("look at", "", errno)),
        }
    }

    pub(crate) fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// Where a file is, for people and for the kernel's watches.
    pub(crate) fn full(&self, path: &str) -> PathBuf {
        self.path.join(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a directory. Whether it was not there before.
    pub(crate) fn make_dir(&self, path: &str) -> Result<bool, DiskError> {
        point("make_dir", path);
        match mkdirat(&self.root, path, Mode::RWXU) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(self.error("make the directory", path, errno)),
        }
    }

    /// Removes an empty directory.
    pub(crate) fn remove_dir(&self, path: &str) -> Result<(), DiskError> {
        point("remove_dir", path);
        unlinkat(&self.root, path, AtFlags::REMOVEDIR).map_err(|e| self.error("remove the directory", path, e))
    }

    /// Removes a file, if it is there.
    pub(crate) fn remove_file(&self, path: &str) -> Result<(), DiskError> {
        point("remove_file", path);
        match unlinkat(&self.root, path, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.error("remove", path, errno)),
        }
    }

    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        point("rename", to);
        renameat(&self.root, from, &self.root, to).map_err(|errno| self.error("move", from, errno))
    }

    /// Gives a file a second name; fails if the name is taken.
    pub(crate) fn link(&self, from: &str, to: &str) -> Result<(), DiskError> {
        point("link", to);
        linkat(&self.root, from, &self.root, to, AtFlags::empty()).map_err(|errno| self.error("link", to, errno))
    }

    /// Makes a file that was not there.
    pub(crate) fn create(&self, path: &str) -> Result<OwnedFd, DiskError> {
        self.open_new(path, OFlags::EXCL)
    }

    /// Makes an empty file, or finds it there.
    pub(crate) fn touch(&self, path: &str) -> Result<(), DiskError> {
        self.open_new(path, OFlags::empty()).map(drop)
    }

    fn open_new(&self, path: &str, how: OFlags) -> Result<OwnedFd, DiskError> {
        point("create", path);
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | how;
        let open = || openat(&self.root, path, flags, Mode::RUSR | Mode::WUSR);
        retry_on_intr(open).map_err(|errno| self.error("create", path, errno))
    }

    /// Appends all of `bytes`.
    pub(crate) fn write(&self, file: &OwnedFd, path: &str, mut bytes: &[u8]) -> Result<(), DiskError> {
        point("write", path);
        while !bytes.is_empty() {
            let written = retry_on_intr(|| write(file, bytes)).map_err(|e| self.error("write", path, e))?;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    /// Overwrites a few bytes in place.
    pub(crate) fn overwrite(&self, file: &OwnedFd, path: &str, at: u64, bytes: &[u8]) -> Result<(), DiskError> {
        point("overwrite", path);
        match retry_on_intr(|| pwrite(file, bytes, at)) {
            Ok(written) if written == bytes.len() => Ok(()),
            Ok(_) => Err(self.error("write", path, Errno::NOSPC)),
            Err(errno) => Err(self.error("write", path, errno)),
        }
    }

    /// Returns once the bytes of a file are on the disk.
    pub(crate) fn sync(&self, file: &OwnedFd, path: &str) -> Result<(), DiskError> {
        point("sync", path);
        retry_on_intr(|| fsync(file)).map_err(|errno| self.error("sync", path, errno))
    }

    /// Returns once the names in a directory are on the disk.
    pub(crate) fn sync_dir(&self, path: &str) -> Result<(), DiskError> {
        let dir = self.open_dir(path).map_err(|errno| self.error("open", path, errno))?;
        self.sync(&dir, path)
    }

    /// The bytes of a file; `None` if there is no such file.
    pub(crate) fn read(&self, path: &str) -> Result<Option<Vec<u8>>, DiskError> {
        match self.open_file(path) {
            Ok(file) => self.read_open(&file, path).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.error("open", path, errno)),
        }
    }

    fn read_open(&self, file: &OwnedFd, path: &str) -> Result<Vec<u8>, DiskError> {
        let mut bytes = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            let at = bytes.len() as u64;
            match retry_on_intr(|| pread(file, &mut chunk, at)) {
                Ok(0) => return Ok(bytes),
                Ok(read) => bytes.extend_from_slice(&chunk[..read]),
                Err(errno) => return Err(self.error("read", path, errno)),
            }
            if bytes.len() > MAX_FILE_BYTES {
                return Err(self.error("read", path, Errno::FBIG));
            }
        }
    }

    /// The names in a directory; `None` if there is no such directory.
    ///
    /// A name that is there from before the call until after it is always returned.
    pub(crate) fn list(&self, path: &str) -> Result<Option<Vec<String>>, DiskError> {
        let dir = match self.open_dir(path) {
            Ok(dir) => dir,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(self.error("open", path, errno)),
        };
        let mut buffer = vec![MaybeUninit::uninit(); LIST_BYTES];
        let mut entries = RawDir::new(dir, &mut buffer);
        let mut names = Vec::new();
        while let Some(entry) = entries.next() {
            match entry {
                Ok(entry) => names.extend(visible(entry.file_name())),
                // The directory was removed while it was read.
                Err(Errno::NOENT) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.error("list", path, errno)),
            }
        }
        Ok(Some(names))
    }

    pub(crate) fn exists(&self, path: &str) -> Result<bool, DiskError> {
        match statat(&self.root, path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(self.error("look at", path, errno)),
        }
    }

    /// How long ago a file was written, on the wall clock; `None` if that is still to come.
    pub(crate) fn age(&self, path: &str) -> Result<Option<Duration>, DiskError> {
        let stat = statat(&self.root, path, AtFlags::SYMLINK_NOFOLLOW).map_err(|e| self.error("look at", path, e))?;
        let written = u64::try_from(stat.st_mtime).map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds));
        Ok(written.ok().and_then(|written| written.elapsed().ok()))
    }

    /// How many names an open file has. Zero: it was removed.
    pub(crate) fn names_of(&self, file: &OwnedFd, path: &str) -> Result<u64, DiskError> {
        #[allow(clippy::useless_conversion, reason = "its width differs between machines")]
        fstat(file).map(|stat| stat.st_nlink.into()).map_err(|errno| self.error("look at", path, errno))
    }

    /// Locks a file for as long as its descriptor is open. Whether nobody else had it.
    ///
    /// The lock belongs to the open file description: two stores in one process exclude each other
    /// as two processes do, and the kernel releases it when the process dies, however it dies.
    pub(crate) fn lock(&self, file: &OwnedFd, path: &str) -> Result<bool, DiskError> {
        self.try_lock(file, path, FlockOperation::NonBlockingLockExclusive)
    }

    /// Makes a pipe, open at both ends: it never ends, and never blocks. It is open before it has
    /// its name: one that nobody has open is that of a dead process.
    pub(crate) fn make_pipe(&self, path: &str) -> Result<OwnedFd, DiskError> {
        let new = format!("{path}.new");
        point("make_pipe", &new);
        mkfifoat(&self.root, &new, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| self.error("make the pipe", &new, errno))?;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || openat(&self.root, &new, flags, Mode::empty());
        let pipe = retry_on_intr(open).map_err(|errno| self.error("open", &new, errno))?;
        self.rename(&new, path)?;
        Ok(pipe)
    }

    /// Writes to a pipe of another process, if it has room. Whether somebody is there to read it.
    pub(crate) fn write_pipe(&self, path: &str, bytes: &[u8]) -> Result<bool, DiskError> {
        point("write_pipe", path);
        let open = |how| {
            let flags = how | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            retry_on_intr(|| openat(&self.root, path, flags, Mode::empty()))
        };
        // To write, it is opened for reading, too: else, if the reader goes now, a signal would
        // kill us.
        match open(OFlags::WRONLY) {
            Ok(_) if bytes.is_empty() => Ok(true),
            Ok(_) => match open(OFlags::RDWR).and_then(|pipe| write(pipe, bytes)) {
                Ok(_) | Err(Errno::AGAIN) => Ok(true),
                Err(errno) => Err(self.error("write", path, errno)),
            },
            Err(Errno::NXIO) => Ok(false),
            Err(errno) => Err(self.error("open", path, errno)),
        }
    }

    /// Whether somebody holds the lock of a file, and its bytes if so.
    ///
    /// The question takes a shared lock for a moment. That disturbs nobody: owners lock before they
    /// are visible.
    pub(crate) fn probe(&self, path: &str) -> Result<(Lock, Vec<u8>), DiskError> {
        let file = match self.open_file(path) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok((Lock::Missing, Vec::new())),
            Err(errno) => return Err(self.error("open", path, errno)),
        };
        if self.try_lock(&file, path, FlockOperation::NonBlockingLockShared)? {
            return Ok((Lock::Free, Vec::new()));
        }
        Ok((Lock::Held, self.read_open(&file, path)?))
    }

    fn try_lock(&self, file: &OwnedFd, path: &str, how: FlockOperation) -> Result<bool, DiskError> {
        match retry_on_intr(|| flock(file, how)) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(errno) => Err(self.error("lock", path, errno)),
        }
    }

    fn open_file(&self, path: &str) -> Result<OwnedFd, Errno> {
        // Not blocking: a pipe that somebody puts here must not hold us up.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        retry_on_intr(|| openat(&self.root, path, flags, Mode::empty()))
    }

    fn open_dir(&self, path: &str) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        retry_on_intr(|| openat(&self.root, path, flags, Mode::empty()))
    }

    fn error(&self, what: &'static str, path: &str, errno: Errno) -> DiskError {
        DiskError { what, path: self.full(path), errno }
    }
}

#[allow(clippy::useless_conversion, reason = "their widths differ between machines")]
fn inode_of(stat: &Stat) -> (u64, u64) {
    (stat.st_dev.into(), stat.st_ino.into())
}

fn visible(name: &CStr) -> Option<String> {
    let name = name.to_string_lossy();
    (name != "." && name != "..").then(|| name.into_owned())
}

/// A system call that failed.
#[derive(Debug)]
pub(crate) struct DiskError {
    what: &'static str,
    path: PathBuf,
    errno: Errno,
}

impl DiskError {
    /// Something on the way was not there: moved, removed, or not made yet.
    pub(crate) fn is_missing(&self) -> bool {
        self.errno == Errno::NOENT
    }

    /// The name is taken, or the directory is not empty.
    pub(crate) fn is_taken(&self) -> bool {
        matches!(self.errno, Errno::EXIST | Errno::NOTEMPTY)
    }

    /// The same failure, of a step after which the effect may or may not last.
    pub(crate) fn unknown(self) -> StoreError {
        let error = std::io::Error::from(self.errno);
        StoreError::unknown(self.to_string(), error)
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, path, why) = (self.what, self.path.display(), std::io::Error::from(self.errno));
        write!(f, "cannot {what} {path}: {why}")?;
        match self.errno {
            Errno::XDEV => f.write_str(
                "; it is part of a lower layer of an overlay file system, where no directory can be moved: remove it by \
                 hand, or keep the store outside of the image",
            ),
            _ => Ok(()),
        }
    }
}

impl From<DiskError> for StoreError {
    fn from(error: DiskError) -> StoreError {
        let what = error.to_string();
        let source = std::io::Error::from(error.errno);
        match error.errno {
            Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::XDEV => {
                StoreError::Denied { what, source: Some(std::sync::Arc::new(source)) }
            }
            // A write that is too large has met a limit of this process.
            Errno::FBIG if error.what != "read" => StoreError::unavailable(what, source),
            Errno::LOOP | Errno::NOTDIR | Errno::ISDIR | Errno::FBIG | Errno::NXIO => {
                StoreError::Corrupt { what: format!("{what}; once nothing uses the store, remove it") }
            }
            _ => StoreError::unavailable(what, source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(errno: Errno) -> (StoreError, String) {
        let error: StoreError = DiskError { what: "write", path: "/store/x".into(), errno }.into();
        let said = error.to_string();
        (error, said)
    }

    #[test]
    fn an_error_says_what_failed_where_and_why() {
        let (error, full) = said(Errno::NOSPC);
        assert!(matches!(error, StoreError::Unavailable { .. }));
        assert!(full.contains("cannot write /store/x: No space left on device"), "{full}");
        let (error, read_only) = said(Errno::ROFS);
        assert!(matches!(error, StoreError::Denied { .. }) && read_only.contains("Read-only"), "{read_only}");
    }

    #[test]
    fn what_lies_in_a_lower_layer_is_told_with_what_to_do() {
        let (error, said) = said(Errno::XDEV);
        assert!(matches!(error, StoreError::Denied { .. }), "trying again does not help");
        assert!(said.contains("overlay file system") && said.contains("remove it by hand"), "{said}");
    }
}
