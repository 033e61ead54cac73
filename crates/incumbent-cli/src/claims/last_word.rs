//! The last word of a guardian: a file which says that nothing is left of what it was told to run.
//!
//! `run` makes it, the guardian writes into it as its last act, and the first in line reads it when
//! both are gone, on the same start of the same host. A file that is not there or empty
//! says nothing: the guardian was killed, is still at it, or belongs to another user.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use incumbent::store::{BootClock, Namespaces, Process};
use incumbent_guardian::{Guardian, STOPPED};

use super::directories;

const ENDING: &str = "stopped";
/// As many are kept, the newest.
const MOST: usize = 100;

/// The file. Dropping it removes it, unless a term of this process may be on record as open.
pub(crate) struct LastWord {
    path: PathBuf,
    kept: bool,
}

impl LastWord {
    /// Has this guardian say it.
    pub(crate) fn asked_of(guardian: &Guardian) -> io::Result<LastWord> {
        let this = Process::this().ok_or_else(|| io::Error::other("the kernel does not say which process this is"))?;
        let directory = directories::own();
        directories::make(&directory)?;
        sweep(&directory, MOST - 1);
        let path = directory.join(file_name(this.number, this.started));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        guardian.sign_off(file.as_fd()).map_err(io::Error::other)?;
        Ok(LastWord { path, kept: false })
    }

    /// Whether it stays when this process ends: a term of it may be on record as open.
    pub(crate) fn keep(&mut self, kept: bool) {
        self.kept = kept;
    }

    /// Removes it, and makes sure of it.
    pub(crate) fn take_back(mut self) -> io::Result<()> {
        self.kept = true;
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

impl Drop for LastWord {
    fn drop(&mut self) {
        if !self.kept {
            // One that stays is true, and is swept in the end.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether the guardian of this process has said that nothing is left. The process is one of this
/// user, of this start of the host, and in our namespaces.
pub(crate) fn has_stopped(number: u32, started: u64) -> bool {
    static LOOKING: AtomicBool = AtomicBool::new(false);
    // A disk that hangs costs one thread.
    if LOOKING.swap(true, Ordering::AcqRel) {
        return false;
    }
    let directory = directories::own();
    let said = directories::make(&directory).and_then(|()| fs::read(directory.join(file_name(number, started))));
    LOOKING.store(false, Ordering::Release);
    said.is_ok_and(|said| said == STOPPED)
}

/// Told from every other process of every start of this host.
fn file_name(number: u32, started: u64) -> String {
    let Namespaces { numbers, time, .. } = Namespaces::this();
    format!("{number}-{started}-{numbers}-{time}-{:032x}.{ENDING}", BootClock::boot_id())
}

/// Whether this is the file of a process that lives.
fn is_of_living(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let mut fields = name.split('-');
    let mut field = || fields.next()?.parse::<u64>().ok();
    let (Some(number), Some(started)) = (field().and_then(|number| u32::try_from(number).ok()), field()) else {
        return false;
    };
    let lives = || Process::read(number).is_ok_and(|found| found.is_some_and(|process| process.started == started));
    file_name(number, started) == name && lives()
}

/// Removes all but the newest of those whose process is gone.
fn sweep(directory: &Path, most: usize) {
    let files = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let words = files.filter(|path| path.extension().is_some_and(|ending| ending == ENDING) && !is_of_living(path));
    let mut words: Vec<_> = words.filter_map(|path| Some((fs::metadata(&path).ok()?.modified().ok()?, path))).collect();
    words.sort();
    let surplus = words.len().saturating_sub(most);
    for (_, path) in words.drain(..surplus) {
        // Another one may sweep, too.
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use incumbent_testkit::TempDir;

    use super::*;

    #[test]
    fn the_newest_words_and_those_of_living_processes_are_kept_and_nothing_else_is_touched() {
        let folder = TempDir::new("words");
        let put = |name: &str, seconds| {
            let file = fs::File::create(folder.path().join(name)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
        };
        for (name, age) in [("a.stopped", 1), ("b.stopped", 3), ("c.stopped", 2), ("d.claim", 0)] {
            put(name, age);
        }
        let this = Process::this().unwrap();
        let ours = file_name(this.number, this.started);
        put(&ours, 0);
        sweep(folder.path(), 2);
        let mut left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [&*ours, "b.stopped", "c.stopped", "d.claim"]);
    }

    #[test]
    fn a_process_that_left_no_word_has_not_said_that_it_stopped() {
        assert!(!has_stopped(u32::MAX, 7));
    }
}
