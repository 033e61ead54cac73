//! Signals to all descendants of a process, never to an unrelated one that was given a dead
//! process's number.

use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, getppid, kill_process_group, pidfd_open, pidfd_send_signal, wait,
};

use crate::tree::{self, Process};
use crate::{fault, process_ids};

/// After so many rounds something forks faster than it is killed one by one.
const ROUNDS_ONE_BY_ONE: u32 = 16;

/// Time between two rounds in which no process has died.
const PAUSE: Duration = Duration::from_millis(10);

/// Sends a signal to a process that was listed, if it is still that process.
pub(crate) fn signal(process: &Process, signal: Signal) {
    // With the pidfd in hand the process that it names cannot change any more; what is left is to
    // see that it is the listed one.
    let Ok(pidfd) = pidfd_open(process.pid, PidfdFlags::empty()) else { return };
    if matches!(Process::read(process.pid), Ok(Some(now)) if now.started == process.started) {
        // What fails here: the process is gone (good), or another user's (it is met again in the
        // next round).
        let _ = pidfd_send_signal(&pidfd, signal);
    }
}

/// Kills all descendants of this process and waits for them, until the kernel says that no child is
/// left. Needs no knowledge of what they were started for.
pub(crate) fn kill_all_below_us() {
    fault::point("abandon");
    for round in 0.. {
        let waited = wait(WaitOptions::NOHANG);
        if matches!(waited, Err(Errno::CHILD)) {
            return;
        }
        // Processes that cannot be listed now can be in the next round.
        kill(&tree::descendants(getpid(), |_| false).unwrap_or_default(), round);
        if !matches!(waited, Ok(Some(_))) {
            thread::sleep(PAUSE);
        }
    }
}

/// Kills all that are listed. To be repeated until the kernel says that no child is left.
pub(crate) fn kill(listed: &[Process], round: u32) {
    for process in listed.iter().filter(|process| !process.zombie) {
        signal(process, Signal::KILL);
    }
    if round >= ROUNDS_ONE_BY_ONE {
        kill_groups(listed);
    }
}

/// A chain of processes that fork and exit outruns a walk, but not a group's kill, which no fork in
/// flight can escape. A group's number cannot be another's while a member lives; it was seen alive
/// just now, and numbers are given out in turn.
fn kill_groups(listed: &[Process]) {
    let mut groups: Vec<Pid> = listed.iter().filter_map(|process| process.group).collect();
    groups.sort_unstable_by_key(|group| group.as_raw_pid());
    groups.dedup();
    // Our own group, and our parent's.
    let ours = [process_ids::group(), getppid().and_then(process_ids::group_of)];
    for group in groups.into_iter().filter(|group| !ours.contains(&Some(*group))) {
        group_signal(group, Signal::KILL);
    }
}

/// Sends a signal to a process group. The caller knows that the number is still its own.
pub(crate) fn group_signal(group: Pid, signal: Signal) {
    match kill_process_group(group, signal) {
        // The group is empty, or has only other users' processes: the walk deals with them.
        Ok(()) | Err(Errno::SRCH | Errno::PERM) => {}
        Err(error) => debug_assert!(false, "{error}"),
    }
}
