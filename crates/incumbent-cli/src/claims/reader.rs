//! Reads the claims of this host's processes. It removes and changes nothing.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use incumbent::Timestamp;
use incumbent::store::{BootClock, Clock, Namespaces};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::process::{Alive, alive, has_stopped_all};
use super::{ClaimOnFile, ENDING, HostClaims, LivingClaim, candidates, directories, work};
use crate::json::VERSION;

/// More than any claim needs.
const MAX_BYTES: u64 = 16 * 1024;
/// More than a host has processes in office.
const MAX_CLAIMS: usize = 1000;

/// What this host's processes claim now: all of them, or those of one user.
pub(crate) fn read_claims(of: Option<u32>) -> HostClaims {
    let (directories, hidden) = match directories::named() {
        Some(named) => (vec![named], BTreeSet::new()),
        None => {
            let (of_candidates, hidden) = candidates::directories();
            (directories::usual().into_iter().chain(of_candidates).collect(), hidden)
        }
    };
    let mut host = read_in(directories, of, &Here::now());
    let hidden = hidden.into_iter().filter(|user| of.is_none_or(|of| of == *user));
    host.work = work::orphaned(&host.claims, directories::named().map(PathBuf::into_os_string));
    host.unread.extend(hidden.map(|user| format!("candidates of user {user}: only root sees where they keep claims")));
    host
}

/// Who reads, and when.
struct Here {
    boot: String,
    clock: String,
    pid_namespace: u64,
    now: Timestamp,
}

impl Here {
    fn now() -> Here {
        Here {
            boot: format!("{:032x}", BootClock::boot_id()),
            clock: format!("{:032x}", BootClock::id()),
            pid_namespace: Namespaces::this().numbers,
            now: BootClock.now(),
        }
    }
}

fn read_in(directories: Vec<PathBuf>, of: Option<u32>, here: &Here) -> HostClaims {
    let (mut claims, mut unread, mut known) = (Vec::new(), Vec::new(), BTreeSet::new());
    for directory in directories {
        match fs::metadata(&directory) {
            // The same by another way, or another user's.
            Ok(found) if !known.insert((found.dev(), found.ino())) || of.is_some_and(|of| of != found.uid()) => {
                continue;
            }
            // One's own can be reached.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && of.is_some() => continue,
            _ => {}
        }
        let files = match files(&directory) {
            Ok(files) => files,
            Err(error) if is_gone(&error) => continue,
            Err(error) => {
                unread.push(format!("{}: {error}", directory.display()));
                continue;
            }
        };
        for file in files {
            match read(&file).and_then(|(claim, owner)| living(&claim, owner, alive(claim.pid), here)) {
                Ok(claim) => claims.extend(claim),
                // It was taken back a moment ago.
                Err(error) if is_gone(&error) => {}
                Err(error) => unread.push(format!("{}: {error}", file.display())),
            }
        }
    }
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    claims.sort_by(|a, b| (&a.election, a.token, a.pid).cmp(&(&b.election, b.token, b.pid)));
    HostClaims { v: VERSION, host, boot: here.boot.clone(), claims, unread, work: Vec::new() }
}

/// It is not there, or no longer: the process by whose way it was looked at may have ended, too.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}

fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.as_os_str().as_encoded_bytes().ends_with(ENDING.as_bytes()) {
            files.push(path);
        }
        if files.len() > MAX_CLAIMS {
            return Err(io::Error::other(format!("more than {MAX_CLAIMS} claims are in there")));
        }
    }
    Ok(files)
}

/// The claim, and whose file it is.
fn read(path: &Path) -> io::Result<(ClaimOnFile, u32)> {
    let mut options = OpenOptions::new();
    // Neither a link nor a pipe of another user's making.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file: File = options.read(true).custom_flags(flags.bits() as i32).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    file.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    Ok((decode(&text)?, found.uid()))
}

fn decode(text: &str) -> io::Result<ClaimOnFile> {
    let claim: ClaimOnFile =
        serde_json::from_str(text).map_err(|error| io::Error::other(format!("no claim: {error}")))?;
    match claim.v {
        VERSION => Ok(claim),
        other => Err(io::Error::other(format!("a claim of version {other}, which this build does not know"))),
    }
}

/// The claim as it is now; nothing, if its process is gone. An error: nobody can tell.
fn living(claim: &ClaimOnFile, owner: u32, process: Option<Alive>, here: &Here) -> io::Result<Option<LivingClaim>> {
    if claim.boot != here.boot {
        return Ok(None);
    }
    let same_clock = claim.clock == here.clock;
    let suspended = if claim.pid_namespace == here.pid_namespace {
        // Where the time is another one, the kernel shows another start of the same process.
        let is_it = |process: &Alive| process.start == claim.start || !same_clock;
        // A user speaks for processes of its own, and for no others.
        match process.filter(|process| is_it(process) && process.user == owner) {
            Some(process) => process.suspended,
            None => return Ok(None),
        }
    } else {
        false
    };
    if claim.pid_namespace != here.pid_namespace && !same_clock {
        return Err(io::Error::other("it is of a container with processes and a clock of its own: ask in there"));
    }
    let remaining = |deadline: u64| {
        let left = Timestamp::from_nanos(deadline).since(here.now);
        // The last millisecond counts as one: only what is over is zero.
        u64::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
    };
    let remaining_ms = match claim.deadline_ns {
        Some(0) => Some(0),
        deadline => deadline.filter(|_| same_clock).map(remaining),
    };
    let same_numbers = claim.pid_namespace == here.pid_namespace && same_clock;
    let guardian = claim.guardian.filter(|_| same_numbers && remaining_ms == Some(0));
    Ok(Some(LivingClaim {
        pid: claim.pid,
        name: claim.name.clone(),
        election: claim.election.clone(),
        store: claim.store.clone(),
        token: claim.token,
        remaining_ms,
        stopping: claim.stopping,
        suspended,
        work_gone: guardian.is_some_and(|(pid, start)| has_stopped_all(pid, start)),
        url: claim.url.clone(),
        renewals: claim.renewals.clone(),
    }))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::{Command, Stdio};

    use incumbent_testkit::TempDir;
    use incumbent_testkit::fuzz::{Rng, fuzz};

    use super::super::Renewed;
    use super::*;

    fn here() -> Here {
        Here { boot: "b".into(), clock: "c".into(), pid_namespace: 7, now: Timestamp::from_nanos(10_000_000_000) }
    }

    fn claim() -> ClaimOnFile {
        ClaimOnFile {
            v: VERSION,
            pid: 4711,
            start: 100,
            pid_namespace: 7,
            boot: "b".into(),
            clock: "c".into(),
            name: "node-1".into(),
            election: "jobs/x".into(),
            store: Some("s".into()),
            token: Some(41),
            deadline_ns: Some(18_200_000_000),
            stopping: false,
            url: None,
            guardian: None,
            renewals: Vec::new(),
        }
    }

    const PROCESS: Alive = Alive { start: 100, user: 1000, suspended: false };

    fn seen(claim: &ClaimOnFile, process: Option<Alive>) -> Option<LivingClaim> {
        living(claim, 1000, process, &here()).unwrap()
    }

    #[test]
    fn the_time_that_is_left_is_counted_when_it_is_asked_for() {
        let left = |deadline_ns| seen(&ClaimOnFile { deadline_ns, ..claim() }, Some(PROCESS)).unwrap().remaining_ms;
        assert_eq!(left(Some(18_200_000_000)), Some(8200));
        assert_eq!(left(Some(10_000_000_001)), Some(1));
        assert_eq!(left(Some(10_000_000_000)), Some(0));
        assert_eq!(left(Some(0)), Some(0));
        assert_eq!(left(None), None);
    }

    #[test]
    fn a_file_of_a_process_that_is_gone_is_no_claim() {
        assert!(seen(&claim(), Some(PROCESS)).is_some());
        assert!(seen(&claim(), Some(Alive { suspended: true, ..PROCESS })).unwrap().suspended);
        assert_eq!(seen(&claim(), None), None);
        assert_eq!(seen(&claim(), Some(Alive { start: 101, ..PROCESS })), None, "another has its number now");
        assert_eq!(seen(&claim(), Some(Alive { user: 1001, ..PROCESS })), None, "nobody speaks for another's process");
        assert_eq!(seen(&ClaimOnFile { boot: "before".into(), ..claim() }, Some(PROCESS)), None);
    }

    #[test]
    fn a_claim_of_a_container_goes_by_its_deadline_or_is_not_known() {
        let elsewhere = ClaimOnFile { pid_namespace: 8, ..claim() };
        assert_eq!(seen(&elsewhere, None).unwrap().remaining_ms, Some(8200));
        living(&ClaimOnFile { clock: "other".into(), ..elsewhere }, 1000, None, &here()).unwrap_err();
        let other_clock = ClaimOnFile { clock: "other".into(), ..claim() };
        let shown_there = Alive { start: 100_100, ..PROCESS };
        assert_eq!(seen(&other_clock, Some(shown_there)).unwrap().remaining_ms, None);
        assert_eq!(seen(&other_clock, None), None);
    }

    #[test]
    fn fuzz_a_claim_is_shown_as_it_stands_there_or_refused() {
        let good = |rng: &mut Rng| {
            let deadline_ns = (rng.below(3) > 0).then(|| rng.next_u64() >> rng.below(64));
            let renewals = vec![Renewed { left_ms: rng.next_u64(), lasts_ms: rng.below(9) }];
            serde_json::to_vec(&ClaimOnFile { deadline_ns, renewals, guardian: Some((1, 7)), ..claim() }).unwrap()
        };
        fuzz(good, |bytes| {
            let Some(claim) = std::str::from_utf8(bytes).ok().and_then(|text| decode(text).ok()) else { return false };
            let again = serde_json::to_string(&claim).unwrap();
            assert_eq!(decode(&again).unwrap(), claim);
            // No number that stands there is too much for who reads it.
            if let Ok(Some(shown)) = living(&ClaimOnFile { guardian: None, ..claim.clone() }, 1000, None, &here()) {
                assert!(shown.token == claim.token && shown.election == claim.election && !shown.work_gone);
            }
            true
        });
    }

    #[test]
    fn what_cannot_be_read_is_said_and_hides_nothing() {
        let folder = TempDir::new("claims");
        let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        let namespace = Namespaces::this().numbers;
        let us = alive(std::process::id()).unwrap();
        let ours = ClaimOnFile { pid: std::process::id(), start: us.start, pid_namespace: namespace, ..claim() };
        let here = Here { pid_namespace: namespace, ..here() };
        put("a.claim", &serde_json::to_string(&ours).unwrap());
        put("b.claim", "nonsense");
        put("c.claim", &serde_json::to_string(&ClaimOnFile { v: 99, ..ours }).unwrap());
        put("d.claim.draft", "half");
        symlink("/etc/passwd", folder.path().join("e.claim")).unwrap();
        fs::create_dir(folder.path().join("f.claim")).unwrap();
        let twice = folder.path().join("f.claim/..");
        let directories = vec![folder.path().into(), twice, folder.path().join("nowhere")];
        let read = read_in(directories.clone(), None, &here);
        assert_eq!(read.claims.len(), 1, "{read:?}");
        for name in ["b.claim", "c.claim", "e.claim", "f.claim"] {
            assert!(read.unread.iter().any(|line| line.contains(name)), "{name}: {read:?}");
        }
        assert_eq!(read.unread.len(), 4, "{read:?}");
        assert_eq!(read_in(directories.clone(), Some(us.user), &here).claims.len(), 1);
        let of_another = read_in(directories, Some(us.user + 1), &here);
        assert!(of_another.claims.is_empty() && of_another.unread.is_empty(), "{of_another:?}");
    }

    #[test]
    fn work_that_a_guardian_has_stopped_is_gone_though_its_leader_cannot_say_so() {
        // One with nothing to do, and one with a command that lasts until its input ends.
        for (line, gone) in [("echo; read end", true), ("exec 3<&0; cat <&3 & echo; wait", false)] {
            let mut shell = Command::new("sh");
            let mut guardian = shell.args(["-c", line]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let mut started = [0];
            guardian.stdout.as_mut().unwrap().read_exact(&mut started).unwrap();
            let start = alive(guardian.id()).unwrap().start;
            let over = ClaimOnFile { deadline_ns: Some(0), guardian: Some((guardian.id(), start)), ..claim() };
            let is_gone = |claim: &ClaimOnFile| seen(claim, Some(PROCESS)).unwrap().work_gone;
            assert_eq!(is_gone(&over), gone, "{line}");
            assert!(!is_gone(&ClaimOnFile { guardian: Some((guardian.id(), start + 1)), ..over.clone() }), "another's");
            assert!(!is_gone(&ClaimOnFile { guardian: None, ..over.clone() }), "nobody knows");
            assert!(!is_gone(&ClaimOnFile { deadline_ns: claim().deadline_ns, ..over }), "it may begin yet");
            drop(guardian.stdin.take());
            guardian.wait().unwrap();
        }
    }
}
