//! The orphans of a dead guardian: the kernel makes them children of the supervisor, which is a
//! subreaper, too. They are distinguished from the supervisor's own children, and killed.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, WaitOptions, getpid, waitpid};

use crate::tree::{self, Process};
use crate::{fault, kill_tree, process_ids};

/// Guardians of this process that are alive: one's death is no reason to kill another.
static GUARDIANS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Time between two rounds of killing.
const PAUSE: Duration = Duration::from_millis(2);
/// The same when `/proc` cannot be read, which may last.
const BLIND_PAUSE: Duration = Duration::from_millis(50);
/// One look into `/proc` may miss a process that is born meanwhile. Two in a row do not, unless a
/// process forks as fast as they follow each other.
const LOOKS: u32 = 2;

/// Descendants that are no orphans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spared {
    /// Living guardians and our own children. `shared_session`: the dead guardian was in our
    /// session, for the terminal's sake.
    OurOwn { shared_session: bool },
    /// Living guardians only: the fallback, when our own children cannot be distinguished from
    /// orphans.
    Guardians,
}

pub(crate) fn register(guardian: Pid) {
    guardians().insert(guardian.as_raw_pid());
}

pub(crate) fn unregister(guardian: Pid) {
    guardians().remove(&guardian.as_raw_pid());
}

fn guardians() -> MutexGuard<'static, BTreeSet<i32>> {
    GUARDIANS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills and waits until no orphan is left. The guardian must have been waited for: its orphans are
/// ours from that moment on.
pub(crate) fn sweep(spared: Spared) {
    let mut clean_looks = 0;
    for round in 0.. {
        let Ok(found) = tree::descendants(getpid(), |process| spared.spares(process)) else {
            // What could not be listed was not seen to be empty.
            clean_looks = 0;
            thread::sleep(BLIND_PAUSE);
            continue;
        };
        let orphans = found.iter().filter(|process| process.parent == Some(getpid()));
        for orphan in orphans.filter(|process| process.zombie) {
            let _ = waitpid(Some(orphan.pid), WaitOptions::NOHANG);
        }
        clean_looks = if found.is_empty() { clean_looks + 1 } else { 0 };
        if clean_looks == LOOKS {
            return;
        }
        kill_tree::kill(&found, round);
        if !found.is_empty() {
            thread::sleep(PAUSE);
        }
    }
}

impl Spared {
    fn spares(self, process: &Process) -> bool {
        let guardian = guardians().contains(&process.pid.as_raw_pid());
        guardian || matches!(self, Spared::OurOwn { shared_session } if is_our_own(process, shared_session))
    }
}

/// Our own children are in our process group, or at least in our session if the guardian had
/// another: a process can leave a session but never enter one. Where ours has no number here, what
/// has none either is in ours: every other was made in here.
fn is_our_own(process: &Process, shared_session: bool) -> bool {
    fault::point("judge");
    let in_session = !shared_session && process.session == process_ids::session();
    in_session || process.group == process_ids::group()
}
