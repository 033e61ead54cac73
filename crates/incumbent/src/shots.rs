//! How often may be shot: what was shot at, and when, counted by this process or, where a file is
//! named for it, by all processes of this host that name it.
//!
//! It keeps a store that was away, or a record that somebody has written, from having many hosts
//! stopped one after the other. It decides nothing about who leads.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use incumbent_core::{ElectionName, Timestamp, Token};
use incumbent_store::lock;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::lock_wait::lock_within_a_second;
use crate::origin::this_host;

/// No target is shot at for two terms within this time.
const PER_TARGET: Duration = Duration::from_secs(600);
/// There are so many shots within so long, at all targets in all elections together.
const MOST: usize = 3;
const WITHIN: Duration = Duration::from_secs(3600);
/// How long the file may take; its lock alone may take a second.
const ANSWERS_WITHIN: Duration = Duration::from_secs(3);
/// More than the file ever has.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// The term whose work is shot at, and what that is called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Aim {
    pub(crate) name: Arc<str>,
    pub(crate) election: ElectionName,
    pub(crate) token: Token,
}

/// Where shots are counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budget {
    /// `None`: by this process alone.
    file: Option<Arc<Path>>,
}

/// What this process has shot at.
static OWN: Mutex<Shots> = Mutex::new(Shots(Vec::new()));

impl Budget {
    /// In this file.
    pub(crate) fn in_file(file: impl Into<Arc<Path>>) -> Budget {
        Budget { file: Some(file.into()) }
    }

    /// Counts a shot, if there may be one. Where the file cannot be used this process counts by
    /// itself, and says so: those who wait for a leader are not to depend on a disk.
    pub(crate) async fn spend(&self, aim: Aim, now: Timestamp) -> bool {
        if let Some(file) = self.file.clone() {
            let (shown, wanted) = (file.clone(), aim.clone());
            let spent = tokio::task::spawn_blocking(move || spend_in(&file, &wanted, now));
            let spent = match tokio::time::timeout(ANSWERS_WITHIN, spent).await {
                Ok(spent) => spent.unwrap_or_else(|error| Err(io::Error::other(error))),
                Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the disk does not answer")),
            };
            match spent {
                Ok(spent) => return spent,
                Err(error) => tracing::warn!(
                    "{} cannot be used, and other processes of this host may shoot as well: {error}",
                    shown.display()
                ),
            }
        }
        lock(&OWN).spend(&aim, now)
    }
}

/// What was shot at, and when first.
#[derive(Debug, Default)]
struct Shots(Vec<(Aim, Timestamp)>);

impl Shots {
    /// Counts a shot, if there may be one. Further attempts at the same term are the same shot.
    fn spend(&mut self, aim: &Aim, now: Timestamp) -> bool {
        // One that is to come was noted by another clock, or is nonsense.
        self.0.retain(|(_, at)| now.since(*at) < WITHIN && at.since(now) < WITHIN);
        if self.0.iter().any(|(before, _)| before == aim) {
            return true;
        }
        let recently = self.0.iter().any(|(before, at)| before.name == aim.name && now.since(*at) < PER_TARGET);
        let may = !recently && self.0.len() < MOST;
        if may {
            self.0.push((aim.clone(), now));
        }
        may
    }

    /// Those of this start of the host. What nobody can read was written by nobody of ours, or by
    /// one that was killed over it.
    fn decode(text: &str, boot: &str) -> Shots {
        let shot = |line: &str| {
            let mut fields = line.splitn(5, ' ');
            let is_of_this_start = fields.next()? == boot;
            let at = Timestamp::from_nanos(fields.next()?.parse().ok()?);
            let token = Token::new(fields.next()?.parse().ok()?)?;
            let (name, election) = (fields.next()?.into(), ElectionName::new(fields.next()?).ok()?);
            is_of_this_start.then_some((Aim { name, election, token }, at))
        };
        Shots(text.split_inclusive('\n').filter_map(|line| shot(line.strip_suffix('\n')?)).collect())
    }

    fn encode(&self, boot: &str) -> String {
        let line = |(Aim { name, election, token }, at): &(Aim, Timestamp)| {
            format!("{boot} {} {token} {name} {election}\n", at.as_nanos())
        };
        self.0.iter().map(line).collect()
    }
}

/// The file, for this process alone. Closing it would give it back, but for a child that was forked
/// a moment ago and has not yet closed its copy.
struct Locked(File);

impl Locked {
    fn open(path: &Path) -> io::Result<Locked> {
        let mut options = OpenOptions::new();
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
        let file =
            options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a file"));
        }
        let locked = lock_within_a_second(|| match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Ok(None),
            other => Ok(Some(other?)),
        })?;
        locked.map(|()| Locked(file)).ok_or_else(|| io::Error::new(io::ErrorKind::TimedOut, "another process has it"))
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Nothing can be done if it fails: closing follows.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// The same in a file. It blocks.
fn spend_in(path: &Path, aim: &Aim, now: Timestamp) -> io::Result<bool> {
    let locked = Locked::open(path)?;
    let mut bytes = Vec::new();
    (&locked.0).take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
    let host = this_host();
    let boot = if host.boot.is_empty() { "-" } else { &*host.boot };
    let mut shots = Shots::decode(&String::from_utf8_lossy(&bytes), boot);
    let may = shots.spend(aim, now);
    // In place: one that is killed over it leaves lines that nobody can read, and those that can.
    let text = shots.encode(boot);
    locked.0.write_all_at(text.as_bytes(), 0)?;
    locked.0.set_len(text.len() as u64)?;
    Ok(may)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use incumbent_testkit::TempDir;

    use super::*;

    fn aim(name: &str, token: u64) -> Aim {
        let (election, token) = (ElectionName::new("jobs/a b").unwrap(), Token::new(token).unwrap());
        Aim { name: name.into(), election, token }
    }

    fn at(minutes: u64) -> Timestamp {
        Timestamp::from_nanos(5_000_000_000_000) + Duration::from_secs(60 * minutes)
    }

    /// Who may shoot at what, after how many minutes.
    fn the_rules_hold(mut fire: impl FnMut(&str, u64, u64) -> bool) {
        assert!(fire("a", 1, 0) && !fire("a", 2, 9) && fire("b", 3, 9) && fire("a", 2, 10));
        assert!(fire("a", 1, 11), "another attempt at the same term");
        assert!(!fire("c", 4, 59), "three within the hour");
        assert!(fire("c", 4, 60));
    }

    #[test]
    fn a_target_is_shot_at_once_in_ten_minutes_and_all_of_them_three_times_in_an_hour() {
        let mut shots = Shots::default();
        the_rules_hold(|name, token, minutes| shots.spend(&aim(name, token), at(minutes)));
        let folder = TempDir::new("shots");
        let file = folder.path().join("shots");
        the_rules_hold(|name, token, minutes| spend_in(&file, &aim(name, token), at(minutes)).unwrap());
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text.lines().count(), 3, "those of the last hour: {text}");
    }

    #[test]
    fn what_another_start_of_the_host_or_nobody_of_ours_has_written_counts_for_nothing() {
        let folder = TempDir::new("shots");
        let file = folder.path().join("shots");
        let others = "0123 5000000000000 1 a jobs/x\nnonsense\n\n- 1 2 a\n5000000000000 9 a jobs/x";
        fs::write(&file, others).unwrap();
        assert!(spend_in(&file, &aim("a", 2), at(1)).unwrap());
        assert!(!spend_in(&file, &aim("a", 3), at(2)).unwrap());
        let boot = this_host().boot.clone();
        assert_eq!(fs::read_to_string(&file).unwrap(), format!("{boot} {} 2 a jobs/a b\n", at(1).as_nanos()));
        let to_come = format!("{boot} {} 1 b jobs/x\n", u64::MAX);
        fs::write(&file, to_come.repeat(3)).unwrap();
        assert!(spend_in(&file, &aim("b", 4), at(3)).unwrap(), "of another clock");
    }

    #[test]
    fn of_many_that_shoot_at_the_same_moment_no_more_may_than_one_after_the_other() {
        let folder = TempDir::new("shots");
        let file = folder.path().join("shots");
        let may = std::thread::scope(|scope| {
            let fire = |token| spend_in(&file, &aim(&format!("host-{token}"), token), at(0)).unwrap();
            let fired: Vec<_> = (1..=8).map(|token| scope.spawn(move || fire(token))).collect();
            fired.into_iter().map(|fired| fired.join().unwrap()).filter(|may| *may).count()
        });
        assert_eq!(may, MOST);
    }

    #[tokio::test]
    async fn where_the_file_cannot_be_used_this_process_counts_by_itself() {
        let folder = TempDir::new("shots");
        let budget = Budget::in_file(folder.path().join("missing/shots"));
        assert!(budget.spend(aim("alone", 1), at(0)).await);
        assert!(!budget.spend(aim("alone", 2), at(1)).await);
        let pipe = Budget::in_file(folder.path());
        assert!(!pipe.spend(aim("alone", 3), at(1)).await, "a directory is no file");
    }

    #[test]
    fn a_disk_that_hangs_keeps_nobody_from_a_shot() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let folder = TempDir::new("shots");
            let budget = Budget::in_file(folder.path().join("shots"));
            // It takes the only thread there is, as a file on such a disk does.
            let (release, hangs) = std::sync::mpsc::channel::<()>();
            tokio::task::spawn_blocking(move || {
                let _ = hangs.recv();
            });
            let spent = tokio::time::timeout(20 * ANSWERS_WITHIN, budget.spend(aim("x", 77), at(0))).await;
            drop(release);
            assert_eq!(spent, Ok(true), "it counts by itself");
        });
    }
}
