//! A fence whose mark is kept in a directory, for the processes of one host.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use incumbent_core::{ElectionName, StoreId};
use incumbent_store::fence::{Mark, check_election, log_reset};

use super::mark_file::{Locked, MarkFile, io_error, replace_file};
use super::{BoxFuture, Fence, FenceError, FencingToken};

/// Guards what the processes of one host write, for one election. Its mark survives crashes and
/// power cuts.
///
/// The mark is a small text file in a directory that may hold those of many elections. Checking a
/// token and writing happen under an exclusive lock, so no write of an older leader slips in
/// between.
///
/// ```
/// use incumbent::fence::{ElectionName, FenceError, FencingToken, FileFence, StoreId, Token};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = std::env::temp_dir().join(format!("incumbent-fence-doc-{}", std::process::id()));
/// # std::fs::create_dir(&folder)?;
/// let report = folder.join("report.txt");
/// let fence = FileFence::open(folder.join("fences"), &ElectionName::new("jobs/nightly")?)?;
/// let store = StoreId::new("store-1");
/// let earlier = FencingToken::new(Token::new(100).unwrap(), store.clone());
/// let later = FencingToken::new(Token::new(101).unwrap(), store);
///
/// fence.replace_file(&earlier, &report, b"by the first leader")?;
/// fence.replace_file(&later, &report, b"by the second leader")?;
///
/// let late = fence.replace_file(&earlier, &report, b"too late");
/// assert!(matches!(late, Err(FenceError::Stale { .. })));
/// assert_eq!(std::fs::read(&report)?, b"by the second leader");
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok(())
/// # }
/// ```
///
/// # What it does not do
/// - A process that is *stopped* in the middle of a write keeps the lock, and nobody else can write
///   or take office until it goes on or is killed: letting them in would let its write land after
///   theirs. Keep writes short.
/// - Locks of one host mean nothing to another: network and user-space file systems are refused.
/// - Its methods block, for about a second at most while another process has the lock; in async
///   code call them in `tokio::task::spawn_blocking`. [`Fence::raise`] does that by itself.
#[derive(Clone, Debug)]
pub struct FileFence {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    election: ElectionName,
    files: MarkFile,
    /// The mark that this handle itself has brought to disk.
    durable: Mutex<Option<Mark>>,
}

impl FileFence {
    /// Opens the fence of `election` in this directory, which is made if its parent is there.
    ///
    /// The directory must belong to us, be writable by nobody else, and lie on a file system that
    /// is known to be one host's own.
    pub fn open(directory: impl AsRef<Path>, election: &ElectionName) -> Result<FileFence, FenceError> {
        FileFence::open_with(directory.as_ref(), election, false)
    }

    /// As [`open`](FileFence::open), on any file system. Whether locks hold there, and whether what
    /// was synced stays, is then the caller's to know.
    pub fn open_on_any_filesystem(
        directory: impl AsRef<Path>,
        election: &ElectionName,
    ) -> Result<FileFence, FenceError> {
        FileFence::open_with(directory.as_ref(), election, true)
    }

    /// Checks the token and does `work`, in one step under the lock. A token above the mark raises
    /// it first.
    ///
    /// With an older token nothing happens: `work` is not called. What `work` did before a crash
    /// stays done; use [`replace_file`](FileFence::replace_file) for all or nothing.
    pub fn write<R>(&self, token: &FencingToken, work: impl FnOnce() -> R) -> Result<R, FenceError> {
        let locked = self.inner.files.lock()?;
        self.inner.admit(&locked, token)?;
        Ok(work())
    }

    /// Checks the token and replaces the file at `path`, in one step: after a crash it has all of
    /// `bytes` or what it had before. It keeps its permissions; a new one is for its owner alone.
    pub fn replace_file(&self, token: &FencingToken, path: impl AsRef<Path>, bytes: &[u8]) -> Result<(), FenceError> {
        let path = path.as_ref();
        self.write(token, || replace_file(path, bytes))?
            .map_err(|error| io_error(format!("replacing {}", path.display()), error))
    }

    /// The highest token that was shown, if there was one.
    pub fn mark(&self) -> Result<Option<FencingToken>, FenceError> {
        Ok(self.inner.files.lock()?.read()?.as_ref().and_then(Mark::fencing_token))
    }

    /// The mark of `election` in this directory, for those who only look: nothing is made or
    /// locked, and whose directory it is does not matter. `None`: there is none.
    pub fn look(directory: impl AsRef<Path>, election: &ElectionName) -> Result<Option<FencingToken>, FenceError> {
        Ok(MarkFile::look(directory.as_ref(), election)?.as_ref().and_then(Mark::fencing_token))
    }

    /// An operator's act, for a store that was replaced or restored: from now on the tokens of
    /// `store` count, from the first one, and those of any other store are refused.
    ///
    /// Make sure that no leader of the old store still runs: where the identity of the store is the
    /// same (a restored backup), the fence can no longer tell that leader's token from a good one.
    /// It is logged as a warning. A damaged mark is not overwritten: look at the file that the
    /// error names, and move it away first.
    pub fn reset(&self, store: &StoreId, reason: &str) -> Result<(), FenceError> {
        let mark = Mark::reset(store, reason)?;
        let locked = self.inner.files.lock()?;
        let was = locked.read()?;
        log_reset(&self.inner.election, was.as_ref(), store, reason);
        self.inner.bring_to_disk(&locked, mark)
    }

    fn open_with(directory: &Path, election: &ElectionName, any_filesystem: bool) -> Result<FileFence, FenceError> {
        let files = MarkFile::open(directory, election, any_filesystem)?;
        Ok(FileFence { inner: Arc::new(Inner { election: election.clone(), files, durable: Mutex::new(None) }) })
    }
}

impl Inner {
    fn raise(&self, token: &FencingToken) -> Result<(), FenceError> {
        self.admit(&self.files.lock()?, token)
    }

    /// Lets the token through, and the mark is on disk when it returns.
    fn admit(&self, locked: &Locked<'_>, token: &FencingToken) -> Result<(), FenceError> {
        let found = locked.read()?;
        let mark = Mark::admit(found.as_ref(), token)?;
        // A mark that we find but did not write may have been renamed into place by a process that
        // died before it could sync the directory: a power cut would take it back after we have
        // relied on it. So it is written again.
        if found.as_ref() == Some(&mark) && *self.durable() == found {
            return Ok(());
        }
        self.bring_to_disk(locked, mark)
    }

    fn bring_to_disk(&self, locked: &Locked<'_>, mark: Mark) -> Result<(), FenceError> {
        *self.durable() = None;
        locked.replace(&mark)?;
        *self.durable() = Some(mark);
        Ok(())
    }

    fn durable(&self) -> std::sync::MutexGuard<'_, Option<Mark>> {
        // Nothing panics while it is held, and each change is one assignment.
        self.durable.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Fence for FileFence {
    fn raise<'a>(&'a self, election: &'a ElectionName, to: FencingToken) -> BoxFuture<'a, Result<(), FenceError>> {
        Box::pin(async move {
            check_election(&self.inner.election, election)?;
            let inner = Arc::clone(&self.inner);
            // Dropped half-way, the thread ends by itself within the wait for the lock.
            match tokio::task::spawn_blocking(move || inner.raise(&to)).await {
                Ok(raised) => raised,
                Err(error) => Err(FenceError::unavailable("raising the mark", io::Error::other(error))),
            }
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::env;
    use std::fs;
    use std::io::{BufRead, BufReader};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::path::PathBuf;
    use std::process::{Child, Command, Stdio};
    use std::thread;

    use incumbent_core::{Rng, Token};
    use incumbent_testkit::TempDir;

    use super::*;

    fn election() -> ElectionName {
        ElectionName::new("jobs/nightly").unwrap()
    }

    fn token(number: u64) -> FencingToken {
        FencingToken::new(Token::new(number).unwrap(), StoreId::new("store-1"))
    }

    fn open(folder: &TempDir) -> FileFence {
        FileFence::open(folder.path(), &election()).unwrap()
    }

    fn mark_path(folder: &TempDir) -> PathBuf {
        folder.path().join("jobs%2Fnightly.mark")
    }

    #[test]
    fn one_who_only_looks_makes_nothing_and_sees_the_mark() {
        let folder = TempDir::new("file-fence");
        let look = || FileFence::look(folder.path(), &election());
        assert_eq!(look().unwrap(), None);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let fence = open(&folder);
        fence.write(&token(5), || ()).unwrap();
        let _held = fence.inner.files.lock().unwrap();
        assert_eq!(look().unwrap(), Some(token(5)), "although somebody has the lock");
        fs::write(mark_path(&folder), "nonsense").unwrap();
        assert!(matches!(look(), Err(FenceError::Corrupt { .. })));
        let long = ElectionName::new(&"ü".repeat(120)).unwrap();
        FileFence::open(folder.path(), &long).unwrap().write(&token(7), || ()).unwrap();
        assert_eq!(FileFence::look(folder.path(), &long).unwrap(), Some(token(7)));
        let nowhere = FileFence::look(folder.path().join("nowhere"), &election());
        assert!(matches!(nowhere, Err(FenceError::Unavailable { .. })), "{nowhere:?}");
    }

    #[tokio::test]
    async fn once_raised_an_older_leader_cannot_write_from_any_handle() {
        let folder = TempDir::new("fence");
        let (ours, theirs) = (open(&folder), open(&folder));
        theirs.write(&token(100), || ()).unwrap();
        ours.raise(&election(), token(101)).await.unwrap();

        let late = theirs.write(&token(100), || panic!("must not be called"));

        assert!(matches!(late, Err(FenceError::Stale { .. })), "{late:?}");
        assert_eq!(theirs.mark().unwrap(), Some(token(101)));
    }

    #[tokio::test]
    async fn the_mark_outlives_its_handle_and_refuses_less() {
        let folder = TempDir::new("fence");
        open(&folder).raise(&election(), token(7)).await.unwrap();
        let again = open(&folder);
        assert!(matches!(again.raise(&election(), token(6)).await, Err(FenceError::Stale { .. })));
        again.raise(&election(), token(7)).await.unwrap();
        assert_eq!(again.mark().unwrap(), Some(token(7)));
    }

    #[tokio::test]
    async fn another_election_cannot_raise_it() {
        let folder = TempDir::new("fence");
        let other = ElectionName::new("jobs/hourly").unwrap();
        let refused = open(&folder).raise(&other, token(7)).await;
        assert!(matches!(refused, Err(FenceError::Misuse { .. })), "{refused:?}");
    }

    #[test]
    fn a_mark_that_another_process_left_is_written_again_before_it_is_relied_on() {
        let folder = TempDir::new("fence");
        open(&folder).write(&token(7), || ()).unwrap();
        let inode = || fs::metadata(mark_path(&folder)).unwrap().ino();
        let left = inode();

        let ours = open(&folder);
        ours.write(&token(7), || ()).unwrap();
        let rewritten = inode();
        assert_ne!(left, rewritten);

        // Our own is known to be on disk: a leader's every write does not pay for it.
        ours.write(&token(7), || ()).unwrap();
        assert_eq!(rewritten, inode());
    }

    #[test]
    fn a_damaged_mark_closes_the_fence_names_the_file_and_is_left_as_it_is() {
        let folder = TempDir::new("fence");
        let fence = open(&folder);
        fence.write(&token(7), || ()).unwrap();
        for damage in ["", "incumbent-fence 1\nelec", "incumbent-fence 2\n", "something else\n"] {
            fs::write(mark_path(&folder), damage).unwrap();
            let refused = fence.write(&token(8), || panic!("must not be called"));
            assert!(
                matches!(&refused, Err(FenceError::Corrupt { what }) if what.contains("jobs%2Fnightly.mark")),
                "{refused:?}"
            );
            assert!(matches!(fence.reset(&StoreId::new("new"), "why not"), Err(FenceError::Corrupt { .. })));
            assert_eq!(fs::read_to_string(mark_path(&folder)).unwrap(), damage);
        }
    }

    #[test]
    fn a_reset_is_durable_lets_the_new_store_in_and_keeps_the_old_one_out() {
        let folder = TempDir::new("fence");
        let fence = open(&folder);
        fence.write(&token(100), || ()).unwrap();
        let new = FencingToken::new(Token::new(1).unwrap(), StoreId::new("new"));
        assert!(matches!(fence.write(&new, || ()), Err(FenceError::StoreReplaced { .. })));

        fence.reset(&new.store, "the cluster was rebuilt").unwrap();

        let again = open(&folder);
        assert_eq!(again.mark().unwrap(), None);
        assert!(matches!(again.write(&token(100), || ()), Err(FenceError::StoreReplaced { mark: None, .. })));
        again.write(&new, || ()).unwrap();
        assert_eq!(fence.mark().unwrap(), Some(new));
    }

    #[test]
    fn while_one_writes_another_waits_for_a_bounded_time_and_then_says_that_it_is_busy() {
        let folder = TempDir::new("fence");
        let (ours, theirs) = (open(&folder), open(&folder));
        let refused = ours.write(&token(1), || theirs.write(&token(2), || ())).unwrap();
        assert!(matches!(&refused, Err(error) if error.is_transient()), "{refused:?}");
        theirs.write(&token(2), || ()).unwrap();
    }

    #[test]
    fn leaders_that_replace_a_file_at_once_leave_that_of_the_newest() {
        let folder = TempDir::new("fence");
        let report = folder.path().join("report");
        thread::scope(|scope| {
            for number in 1..=8 {
                let (fence, report) = (open(&folder), &report);
                // The lock is not fair: a call that found it busy for too long is made again, as
                // the library does.
                scope.spawn(move || {
                    let replace = || fence.replace_file(&token(number), report, number.to_string().as_bytes());
                    while matches!(replace(), Err(error) if error.is_transient()) {}
                });
            }
        });
        assert_eq!(fs::read_to_string(&report).unwrap(), "8");
    }

    #[test]
    fn a_replaced_file_keeps_its_permissions_and_a_new_one_is_private() {
        let folder = TempDir::new("fence");
        let (fence, report) = (open(&folder), folder.path().join("report"));
        let mode = || fs::metadata(&report).unwrap().mode() & 0o777;
        fence.replace_file(&token(1), &report, b"one").unwrap();
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&report, fs::Permissions::from_mode(0o644)).unwrap();
        fence.replace_file(&token(1), &report, b"two").unwrap();
        assert_eq!((mode(), fs::read(&report).unwrap()), (0o644, b"two".to_vec()));
    }

    const CHILD_FOLDER: &str = "INCUMBENT_TEST_FENCE_FOLDER";

    /// Runs this test once more, in a child process that finds the folder in its environment.
    fn run_in_child(test: &str, folder: &TempDir) -> Child {
        let (_, module) = module_path!().split_once("::").unwrap();
        Command::new(env::current_exe().unwrap())
            .args([&format!("{module}::{test}"), "--exact", "--nocapture", "--test-threads=1"])
            .env(CHILD_FOLDER, folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// The child raises the mark as fast as it can, and says on stderr what was acknowledged.
    #[test]
    fn a_mark_that_was_acknowledged_survives_kill_9_at_any_moment() {
        if let Some(folder) = env::var_os(CHILD_FOLDER) {
            return raise_until_killed(Path::new(&folder));
        }
        let folder = TempDir::new("fence");
        let mut rng = Rng::from_number(7);
        for round in 0..25 {
            let mut child = run_in_child("a_mark_that_was_acknowledged_survives_kill_9_at_any_moment", &folder);
            let acknowledged = kill_after(&mut child, 1 + rng.below(20));
            let mark = open(&folder).mark().unwrap().unwrap().get();
            // At most the one raise that was under way is ahead of what we have read.
            assert!(
                (acknowledged..=acknowledged + 1).contains(&mark),
                "round {round}: acknowledged {acknowledged}, but the mark is {mark}"
            );
        }
    }

    /// The child stays inside its write until it is killed.
    #[test]
    fn a_process_that_hangs_in_a_write_keeps_others_out_and_its_death_lets_them_in() {
        if let Some(folder) = env::var_os(CHILD_FOLDER) {
            let fence = FileFence::open(folder, &election()).unwrap();
            let hang = || {
                eprintln!("writing");
                io::stdin().read_line(&mut String::new())
            };
            fence.write(&token(1), hang).unwrap().unwrap();
            return;
        }
        let folder = TempDir::new("fence");
        let mut child =
            run_in_child("a_process_that_hangs_in_a_write_keeps_others_out_and_its_death_lets_them_in", &folder);
        let said = BufReader::new(child.stderr.take().unwrap()).lines().next();
        let refused = open(&folder).write(&token(2), || ());
        child.kill().unwrap();
        child.wait().unwrap();

        assert_eq!(said.unwrap().unwrap(), "writing");
        assert!(matches!(&refused, Err(error) if error.is_transient()), "{refused:?}");
        open(&folder).write(&token(2), || ()).unwrap();
    }

    /// Reads so many acknowledgements, kills the child, and answers with the last that it had
    /// given.
    fn kill_after(child: &mut Child, acks: u64) -> u64 {
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let number = |line: io::Result<String>| {
            let line = line.unwrap();
            line.parse::<u64>().unwrap_or_else(|_| panic!("the child failed: {line}"))
        };
        let mut last = 0;
        for _ in 0..acks {
            last = number(lines.next().expect("the child raises marks until it is killed"));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What it had said by then is still in the pipe.
        lines.map(number).last().unwrap_or(last)
    }

    fn raise_until_killed(folder: &Path) {
        let fence = FileFence::open(folder, &election()).unwrap();
        let from = fence.mark().unwrap().map_or(0, |mark| mark.get());
        // Bounded, should the parent die first.
        for number in from + 1..from + 100_000 {
            fence.inner.raise(&token(number)).unwrap();
            eprintln!("{number}");
        }
    }
}
