//! A mark on disk: where its file is, what is in it, and how it is replaced so that no crash takes
//! it back.
//!
//! It compares no tokens: what may be written is decided above, under the lock that this file gives
//! out.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use incumbent_core::{ElectionName, StoreId, Token};
use incumbent_store::binary::checksum;
use incumbent_store::escape::{Digits, file_name, file_name_pieces};
use incumbent_store::fence::Mark;
use incumbent_store::{not_local, replace_durably};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, fstatfs, mkdirat, openat, statat};

use super::FenceError;
use crate::lock_wait::lock_within_a_second;

/// More than any mark needs.
const MAX_FILE_BYTES: u64 = 4096;
/// The longest part of an encoded name in one file name; with its suffix it stays below the 255 of
/// a file system.
const PIECE_BYTES: usize = 200;
const MAGIC: &str = "incumbent-fence";
const VERSION: u32 = 1;

/// The files of one election in a directory of fences.
#[derive(Debug)]
pub(super) struct MarkFile {
    election: ElectionName,
    /// The directory that holds the files. Held open, so that moving it away does not change what
    /// is guarded.
    dir: File,
    dir_path: PathBuf,
    stem: String,
}

/// The lock of one election. It is given back when dropped, and by the kernel when the process
/// dies.
#[derive(Debug)]
pub(super) struct Locked<'a> {
    files: &'a MarkFile,
    lock: File,
}

impl MarkFile {
    /// Finds or makes the directory. With `any_filesystem`, also on a file system that is not known
    /// to be one host's own.
    pub(super) fn open(root: &Path, election: &ElectionName, any_filesystem: bool) -> Result<MarkFile, FenceError> {
        let (mut dir, mut dir_path) = (open_root(root)?, root.to_owned());
        check_directory(&dir, root, any_filesystem)?;
        let mut pieces = file_name_pieces(&stem_of(election), PIECE_BYTES);
        let stem = pieces.pop().unwrap_or_default();
        for name in pieces {
            dir_path.push(&name);
            dir = open_child_directory(&dir, &name).map_err(|e| io_error(about("opening", &dir_path), e))?;
        }
        Ok(MarkFile { election: election.clone(), dir, dir_path, stem })
    }

    /// The mark as it is, of a file that is only ever replaced as a whole.
    pub(super) fn look(root: &Path, election: &ElectionName) -> Result<Option<Mark>, FenceError> {
        let mut path = root.to_owned();
        path.extend(file_name_pieces(&stem_of(election), PIECE_BYTES));
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".mark");
        path.set_file_name(name);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let opened = rustix::fs::open(&path, flags, Mode::empty()).map(File::from).map_err(io::Error::from);
        match opened {
            // One that was never raised has no mark; a directory that is not there is another's.
            Err(error) if error.kind() == io::ErrorKind::NotFound && root.is_dir() => Ok(None),
            opened => read_mark(opened, election, &path).map(Some),
        }
    }

    /// Waits for the lock, for a second at most: its holder has a few small writes to make.
    pub(super) fn lock(&self) -> Result<Locked<'_>, FenceError> {
        let path = self.path("lock");
        match lock_within_a_second(|| self.try_lock()) {
            Ok(Some(lock)) => Ok(Locked { files: self, lock }),
            Ok(None) => {
                let what = format!("{} is locked by another process or thread", path.display());
                Err(FenceError::Unavailable { what, source: None })
            }
            Err(error) => Err(io_error(about("locking", &path), error)),
        }
    }

    fn try_lock(&self) -> io::Result<Option<File>> {
        let lock = self.open_at("lock", OFlags::RDWR | OFlags::CREATE)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            other => other?,
        }
        // Somebody may have removed the lock file between our open and our lock: then others lock
        // another file.
        let named = match statat(&self.dir, self.name("lock"), AtFlags::SYMLINK_NOFOLLOW) {
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            other => other?,
        };
        let held = lock.metadata()?;
        Ok((named.st_ino == held.ino() && named.st_dev == held.dev()).then_some(lock))
    }

    fn open_at(&self, suffix: &str, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = File::from(openat(&self.dir, self.name(suffix), flags, Mode::RUSR | Mode::WUSR)?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "it is not a regular file"));
        }
        Ok(file)
    }

    fn name(&self, suffix: &str) -> String {
        format!("{}.{suffix}", self.stem)
    }

    fn path(&self, suffix: &str) -> PathBuf {
        self.dir_path.join(self.name(suffix))
    }
}

impl Locked<'_> {
    /// The mark, or `None` if there has never been one.
    pub(super) fn read(&self) -> Result<Option<Mark>, FenceError> {
        match self.files.open_at("mark", OFlags::RDONLY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => read_mark(opened, &self.files.election, &self.files.path("mark")).map(Some),
        }
    }

    /// Replaces the mark. When it returns well, no crash and no power cut brings the earlier one
    /// back. One draft is enough, since we hold the lock.
    pub(super) fn replace(&self, mark: &Mark) -> Result<(), FenceError> {
        let files = self.files;
        let bytes = encode(&files.election, mark);
        replace_durably(&files.dir, files.name("mark"), files.name("tmp"), bytes.as_bytes(), None)
            .map_err(|error| io_error(about("writing", &files.path("mark")), error))
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // Closing would do, but for a child that was forked a moment ago and has not yet closed its
        // copy. Nothing can be done if it fails: closing follows.
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

fn read_mark(opened: io::Result<File>, election: &ElectionName, path: &Path) -> Result<Mark, FenceError> {
    let mut text = String::new();
    match opened.and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)) {
        Ok(_) => {
            decode(election, &text).map_err(|why| FenceError::Corrupt { what: format!("{}: {why}", path.display()) })
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(FenceError::Corrupt { what: format!("{}: it is not text", path.display()) })
        }
        Err(error) => Err(io_error(about("reading", path), error)),
    }
}

/// Replaces `path` by a file with these bytes: all of them or none, also after a power cut.
pub(super) fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let dir = File::open(parent_of(path))?;
    let mut draft = name.to_owned();
    draft.push(".fence-tmp");
    let before = path.symlink_metadata().ok().filter(|before| before.is_file());
    replace_durably(&dir, name, draft, bytes, before.map(|before| before.permissions()))
}

/// Sorts an I/O error by whether waiting can cure it.
pub(super) fn io_error(what: impl Into<String>, source: io::Error) -> FenceError {
    use io::ErrorKind::*;
    let what = what.into();
    // A symbolic link where none may be.
    let linked = rustix::io::Errno::from_io_error(&source) == Some(rustix::io::Errno::LOOP);
    match source.kind() {
        _ if linked => FenceError::Denied { what, source: Some(Arc::new(source)) },
        PermissionDenied | ReadOnlyFilesystem | NotADirectory | IsADirectory | Unsupported => {
            FenceError::Denied { what, source: Some(Arc::new(source)) }
        }
        InvalidFilename => FenceError::Limit { what: format!("{what}: {source}") },
        _ => FenceError::Unavailable { what, source: Some(Arc::new(source)) },
    }
}

fn about(doing: &str, path: &Path) -> String {
    format!("{doing} {}", path.display())
}

fn open_root(root: &Path) -> Result<File, FenceError> {
    let open = || {
        let made = match rustix::fs::mkdir(root, Mode::RWXU) {
            Ok(()) => true,
            Err(rustix::io::Errno::EXIST) => false,
            Err(error) => return Err(error.into()),
        };
        // Also where it was there already: the process that made it may have died before this, and
        // a power cut would take it and every mark in it. A parent that we may not read was made by
        // somebody else, who looks after it.
        match File::open(parent_of(root)).and_then(|parent| parent.sync_all()) {
            Err(error) if made || error.kind() != io::ErrorKind::PermissionDenied => return Err(error),
            _ => {}
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(rustix::fs::open(root, flags, Mode::empty())?))
    };
    open().map_err(|error| io_error(about("opening the directory", root), error))
}

fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn open_child_directory(dir: &File, name: &str) -> io::Result<File> {
    match mkdirat(dir, name, Mode::RWXU) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    // Also where it was there already: the process that made it may have died before this.
    dir.sync_all()?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(openat(dir, name, flags, Mode::empty())?))
}

/// Refuses a directory in which somebody else could take the mark back, or where a lock may not
/// hold.
fn check_directory(dir: &File, path: &Path, any_filesystem: bool) -> Result<(), FenceError> {
    let denied = |why: &str| FenceError::Denied { what: format!("{} {why}", path.display()), source: None };
    let unreadable = |error| io_error(about("looking at", path), error);
    let seen = dir.metadata().map_err(unreadable)?;
    if seen.uid() != rustix::process::geteuid().as_raw() {
        return Err(denied("belongs to another user"));
    }
    if seen.mode() & 0o022 != 0 {
        return Err(denied("can be written by other users: take that right away (chmod 700)"));
    }
    let file_system = fstatfs(dir).map_err(|error| unreadable(error.into()))?;
    if any_filesystem { Ok(()) } else { check_file_system(file_system.f_type as u32, path) }
}

/// Refuses a file system on which the lock, or what was synced, may be another host's to break.
fn check_file_system(f_type: u32, path: &Path) -> Result<(), FenceError> {
    let Some(name) = not_local(f_type) else { return Ok(()) };
    let what = format!(
        "{} is on {name}: its locks are not known to be those of one host; use a directory on a local disk; if no \
         other host can reach it, FileFence::open_on_any_filesystem takes it",
        path.display()
    );
    Err(FenceError::Denied { what, source: None })
}

/// What the files of an election are called, and never the same for two.
fn stem_of(election: &ElectionName) -> String {
    file_name(election.as_str(), Digits::Upper, |character| character.is_ascii_alphanumeric())
}

/// Text, so that an operator can read it. The last line is the checksum of all that stands before
/// it.
fn encode(election: &ElectionName, mark: &Mark) -> String {
    let token = mark.token.map_or(0, Token::get);
    let mut text = format!("{MAGIC} {VERSION}\nelection {election}\nstore {}\ntoken {token}\n", mark.store);
    let sum = checksum(text.bytes());
    text.push_str(&format!("sum {sum:016x}\n"));
    text
}

fn decode(election: &ElectionName, text: &str) -> Result<Mark, &'static str> {
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err("it is too long to be a fence's mark");
    }
    let mut lines = text.lines();
    let version = lines.next().and_then(|line| line.strip_prefix(MAGIC)).ok_or("it is not a fence's mark, or torn")?;
    match version.strip_prefix(' ').and_then(|number| number.parse::<u32>().ok()) {
        Some(VERSION) => {}
        Some(_) => return Err("it was written by another version of this library"),
        None => return Err("it is not a fence's mark, or torn"),
    }
    let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
    let torn = "it is torn or was changed by hand";
    let named = field("election").ok_or(torn)?;
    let store = field("store").ok_or(torn)?;
    let number = field("token").and_then(|number| number.parse::<u64>().ok()).ok_or(torn)?;
    let token = if number == 0 { None } else { Some(Token::new(number).ok_or(torn)?) };
    let mark = Mark { token, store: StoreId::new(store) };
    let written_for = ElectionName::new(named).map_err(|_| torn)?;
    // What we would write ourselves, to the byte: that covers the sum, and anything before, between
    // or after.
    if encode(&written_for, &mark) != text {
        return Err(torn);
    }
    if written_for != *election {
        return Err("it belongs to another election");
    }
    Ok(mark)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use incumbent_testkit::TempDir;

    use super::*;

    fn election(name: &str) -> ElectionName {
        ElectionName::new(name).unwrap()
    }

    fn mark(number: u64) -> Mark {
        Mark { token: Token::new(number), store: StoreId::new("store-1") }
    }

    fn open(folder: &TempDir, name: &str) -> MarkFile {
        MarkFile::open(folder.path(), &election(name), false).unwrap()
    }

    /// What is read was written so, to the byte, for this election.
    #[test]
    fn fuzz_a_mark_is_read_whole_or_refused() {
        let name = |number: u64| election(["jobs", "jobs/nightly"][number as usize % 2]);
        let good = |rng: &mut incumbent_core::Rng| {
            let text = encode(&name(rng.next_u64()), &mark(rng.next_u64() >> rng.below(64)));
            // A forged mark can have a sum that fits.
            let body = text
                .rsplit_once("sum ")
                .map_or("", |(body, _)| body)
                .replace("token ", ["token ", "token 0"][rng.below(2) as usize]);
            format!("{body}sum {:016x}\n", checksum(body.bytes())).into_bytes()
        };
        incumbent_testkit::fuzz::fuzz(good, |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else { return false };
            let read = decode(&name(1), text);
            if let Ok(mark) = &read {
                assert_eq!(encode(&name(1), mark), text);
            }
            read.is_ok()
        });
    }

    #[test]
    fn a_full_disk_is_transient_and_a_missing_permission_is_not() {
        assert!(io_error("writing", io::ErrorKind::StorageFull.into()).is_transient());
        assert!(!io_error("writing", io::ErrorKind::PermissionDenied.into()).is_transient());
    }

    #[test]
    fn what_is_written_is_read_back() {
        let name = election("jobs/nightly");
        for mark in [mark(1), mark(Token::MAX), Mark { token: None, store: StoreId::new("a b") }] {
            assert_eq!(decode(&name, &encode(&name, &mark)), Ok(mark));
        }
    }

    #[test]
    fn a_mark_with_any_byte_missing_or_changed_is_refused() {
        let name = election("jobs/nightly");
        let good = encode(&name, &mark(41));
        for end in 0..good.len() {
            assert!(decode(&name, &good[..end]).is_err(), "cut after {end} bytes");
        }
        for at in 0..good.len() {
            let mut bytes = good.clone().into_bytes();
            bytes[at] ^= 1;
            let text = String::from_utf8(bytes).unwrap();
            assert!(decode(&name, &text).is_err(), "byte {at} changed: {text:?}");
        }
        assert!(decode(&name, &format!("{good}\n")).is_err());
    }

    #[test]
    fn a_newer_version_and_another_election_are_told_apart_from_damage() {
        let name = election("jobs/nightly");
        let newer = encode(&name, &mark(41)).replacen("fence 1", "fence 2", 1);
        assert_eq!(decode(&name, &newer), Err("it was written by another version of this library"));
        let other = encode(&election("jobs/hourly"), &mark(41));
        assert_eq!(decode(&name, &other), Err("it belongs to another election"));
    }

    #[test]
    fn no_two_elections_share_a_file_and_every_name_fits_a_file_system() {
        let folder = TempDir::new("fence");
        let long = "/é".repeat(85).trim_start_matches('/').to_owned();
        let mut names = vec!["a", "a/b", "a%2Fb", "a+b", "a.b", ".a", "a.mark", "a.lock", "a.tmp", "A", "é", "a b"]
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>();
        // Around the lengths at which a name goes on below a directory, and the longest of all.
        names.extend([199, 200, 201, 255].map(|length| "x".repeat(length)));
        names.extend([long.clone(), format!("{long}x"), "é".repeat(127)]);
        let mut seen = BTreeSet::new();
        for (number, name) in (1..).zip(&names) {
            let files = open(&folder, name);
            let locked = files.lock().unwrap();
            assert_eq!(locked.read().unwrap(), None, "{name}");
            locked.replace(&mark(number)).unwrap();
            assert!(seen.insert(files.path("mark")), "{name}");
        }
        for (number, name) in (1..).zip(&names) {
            assert_eq!(open(&folder, name).lock().unwrap().read().unwrap(), Some(mark(number)), "{name}");
        }
    }

    #[test]
    fn a_crash_before_the_rename_keeps_the_old_mark_and_does_not_hinder_the_next() {
        let folder = TempDir::new("fence");
        let files = open(&folder, "e");
        files.lock().unwrap().replace(&mark(5)).unwrap();

        fs::write(files.path("tmp"), encode(&election("e"), &mark(6))).unwrap();
        assert_eq!(files.lock().unwrap().read().unwrap(), Some(mark(5)));

        // A crash in the middle of that write.
        fs::write(files.path("tmp"), "incumbent-f").unwrap();
        assert_eq!(files.lock().unwrap().read().unwrap(), Some(mark(5)));
        files.lock().unwrap().replace(&mark(7)).unwrap();
        assert_eq!(files.lock().unwrap().read().unwrap(), Some(mark(7)));
    }

    #[test]
    fn a_crash_after_the_rename_keeps_the_new_mark() {
        let folder = TempDir::new("fence");
        let files = open(&folder, "e");
        files.lock().unwrap().replace(&mark(5)).unwrap();
        fs::write(files.path("tmp"), encode(&election("e"), &mark(6))).unwrap();
        fs::rename(files.path("tmp"), files.path("mark")).unwrap();
        assert_eq!(open(&folder, "e").lock().unwrap().read().unwrap(), Some(mark(6)));
    }

    #[test]
    fn a_lock_file_that_was_replaced_no_longer_counts() {
        let folder = TempDir::new("fence");
        let files = open(&folder, "e");
        let held = files.lock().unwrap();
        fs::remove_file(files.path("lock")).unwrap();
        fs::write(files.path("lock"), "").unwrap();
        // The old lock is still held, but by a file without a name: the new one is free.
        assert!(files.try_lock().unwrap().is_some());
        drop(held);
    }

    #[test]
    fn files_and_directories_are_for_their_owner_alone() {
        let folder = TempDir::new("fence");
        let root = folder.path().join("fences");
        let files = MarkFile::open(&root, &election(&"x".repeat(255)), false).unwrap();
        files.lock().unwrap().replace(&mark(1)).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&root), 0o700);
        assert_eq!(mode(&files.dir_path), 0o700);
        assert_eq!(mode(&files.path("mark")), 0o600);
        assert_eq!(mode(&files.path("lock")), 0o600);
    }

    #[test]
    fn a_directory_that_others_can_write_is_refused() {
        let folder = TempDir::new("fence");
        let root = folder.path().join("open");
        fs::create_dir(&root).unwrap();
        fs::set_permissions(&root, fs::Permissions::from_mode(0o770)).unwrap();
        let refused = MarkFile::open(&root, &election("e"), false);
        assert!(matches!(&refused, Err(FenceError::Denied { what, .. }) if what.contains("chmod")), "{refused:?}");
    }

    #[test]
    fn symbolic_links_are_not_followed() {
        let folder = TempDir::new("fence");
        let files = open(&folder, "e");
        files.lock().unwrap().replace(&mark(5)).unwrap();
        fs::rename(files.path("mark"), folder.path().join("elsewhere")).unwrap();
        symlink(folder.path().join("elsewhere"), files.path("mark")).unwrap();
        let refused = files.lock().unwrap().read();
        assert!(matches!(refused, Err(FenceError::Denied { .. })), "{refused:?}");

        symlink(folder.path(), folder.path().join("link")).unwrap();
        let refused = MarkFile::open(&folder.path().join("link"), &election("e"), false);
        assert!(matches!(refused, Err(FenceError::Denied { .. })), "{refused:?}");
    }

    #[test]
    fn only_file_systems_that_are_known_to_be_local_are_trusted() {
        let check = |f_type| check_file_system(f_type, Path::new("/srv/fences"));
        for (f_type, name) in [(0x6969, "NFS"), (0x1983_0326, "a file system of type 0x19830326")] {
            let Err(FenceError::Denied { what, .. }) = check(f_type) else { panic!("{name} is trusted") };
            assert!(what.starts_with(&format!("/srv/fences is on {name}: ")), "{what}");
        }
        for local in [0xef53, 0x0102_1994, 0x5846_5342, 0x794c_7630] {
            check(local).unwrap();
        }
    }
}
