//! Which processes descend from which, as `/proc` shows it. Reads only.
//!
//! No reading of `/proc` is atomic: a process may be born or die meanwhile. So a listing is a hint
//! about what to signal next, and never proof that nothing is left; and before a signal is sent, a
//! pidfd is opened and the process is checked to be still the one that was listed.

use std::collections::{BTreeMap, BTreeSet};
use std::{fs, io};

use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use crate::fault;

/// One process, as its `stat` file shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    pub(crate) parent: Option<Pid>,
    pub(crate) group: Option<Pid>,
    pub(crate) session: Option<Pid>,
    /// Dead, and not yet waited for.
    pub(crate) zombie: bool,
    /// Clock ticks since boot: together with the pid, it names a process for all time.
    pub(crate) started: u64,
}

/// `/proc` could not be read, so nothing is known: for lack of descriptors, say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable;

/// `None`: it is gone.
fn unless_gone<T>(read: io::Result<T>) -> Result<Option<T>, Unreadable> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        // A process that goes while it is read.
        Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(None),
        Err(_) => Err(Unreadable),
    }
}

impl Process {
    /// Whether it neither handles nor ignores a signal that ends a process.
    pub(crate) fn dies_of(&self, signal: Signal) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid.as_raw_pid())).unwrap_or_default();
        let bit = 1_u64 << (signal.as_raw() - 1);
        let is_set = |name: &str| {
            let mask = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            Some(u64::from_str_radix(mask.trim(), 16).ok()? & bit != 0)
        };
        !self.zombie && is_set("SigCgt") == Some(false) && is_set("SigIgn") == Some(false)
    }

    /// `None`: it is gone.
    pub(crate) fn read(pid: Pid) -> Result<Option<Process>, Unreadable> {
        let stat = unless_gone(fs::read(format!("/proc/{}/stat", pid.as_raw_pid())))?;
        Ok(stat.and_then(|stat| Process::parse(&stat)))
    }

    fn parse(stat: &[u8]) -> Option<Process> {
        // The second field is the program's name in brackets; it may hold brackets and spaces
        // itself, and bytes of any kind.
        let name = stat.iter().position(|byte| *byte == b'(')?;
        let rest = stat.iter().rposition(|byte| *byte == b')')? + 1;
        let own = pid(str::from_utf8(&stat[..name]).ok()?.trim())??;
        let fields: Vec<&str> = str::from_utf8(&stat[rest..]).ok()?.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).copied();
        Some(Process {
            pid: own,
            parent: pid(field(4)?)?,
            group: pid(field(5)?)?,
            session: pid(field(6)?)?,
            zombie: matches!(field(3)?, "Z" | "X"),
            started: field(22)?.parse().ok()?,
        })
    }
}

/// What the kernel writes for a process: none, if it is no process; `None`, if it is no number. Of
/// one that is ending just now it says -1 for what it has left. Taken for a group, that would be
/// signalled as process 1.
fn pid(text: &str) -> Option<Option<Pid>> {
    text.parse().ok().map(|raw: i32| Pid::from_raw(raw.max(0)))
}

/// The children of a process.
pub(crate) fn children(of: Pid) -> Result<Vec<Process>, Unreadable> {
    if let Some(children) = children_by_kernel(of)? {
        return Ok(children);
    }
    Ok(scan()?.into_iter().filter(|process| process.parent == Some(of)).collect())
}

/// Everything below a process but what is below those that are spared. Parents come before their
/// children.
pub(crate) fn descendants(of: Pid, spare: impl Fn(&Process) -> bool) -> Result<Vec<Process>, Unreadable> {
    fault::point("look");
    if let Some(first) = children_by_kernel(of)? {
        return walk(first, spare, |pid| Ok(children_by_kernel(pid)?.unwrap_or_default()));
    }
    let mut families: BTreeMap<i32, Vec<Process>> = BTreeMap::new();
    for process in scan()? {
        families.entry(process.parent.map_or(0, Pid::as_raw_pid)).or_default().push(process);
    }
    let first = families.remove(&of.as_raw_pid()).unwrap_or_default();
    walk(first, spare, |pid| Ok(families.remove(&pid.as_raw_pid()).unwrap_or_default()))
}

fn walk(
    first: Vec<Process>,
    spare: impl Fn(&Process) -> bool,
    mut children: impl FnMut(Pid) -> Result<Vec<Process>, Unreadable>,
) -> Result<Vec<Process>, Unreadable> {
    let mut found: Vec<Process> = first.into_iter().filter(|process| !spare(process)).collect();
    let mut seen: BTreeSet<i32> = found.iter().map(|process| process.pid.as_raw_pid()).collect();
    let mut next = 0;
    while let Some(process) = found.get(next).copied() {
        // A reused pid could close a circle in a listing that was read over time: no process is
        // visited twice.
        found.extend(children(process.pid)?.into_iter().filter(|child| seen.insert(child.pid.as_raw_pid())));
        next += 1;
    }
    Ok(found)
}

/// `None` if this kernel does not list children (CONFIG_PROC_CHILDREN), or the process is gone.
fn children_by_kernel(of: Pid) -> Result<Option<Vec<Process>>, Unreadable> {
    let mut found = Vec::new();
    let Some(tasks) = unless_gone(fs::read_dir(format!("/proc/{}/task", of.as_raw_pid())))? else { return Ok(None) };
    // Each thread has children of its own.
    for task in tasks {
        let Some(task) = unless_gone(task)? else { continue };
        match unless_gone(fs::read_to_string(task.path().join("children")))? {
            Some(list) => found.extend(listed(list.split_ascii_whitespace())?),
            // The thread has ended while we looked.
            None if !task.path().exists() => {}
            None => return Ok(None),
        }
    }
    Ok(Some(found))
}

/// Every process there is.
fn scan() -> Result<Vec<Process>, Unreadable> {
    let entries = fs::read_dir("/proc").map_err(|_| Unreadable)?;
    let names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    listed(names.iter().filter_map(|name| name.to_str()))
}

/// The processes of these numbers that are still there. What is no number is passed over.
fn listed<'a>(numbers: impl Iterator<Item = &'a str>) -> Result<Vec<Process>, Unreadable> {
    let pids = numbers.filter_map(|number| pid(number)?);
    pids.filter_map(|pid| Process::read(pid).transpose()).collect()
}

#[cfg(test)]
mod tests {
    use rustix::process::getpid;

    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_shift_the_fields() {
        let stat = b"42 (a) S 1 (b) R 7 42 41 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987654 10 11\n";
        let pid = |raw| Pid::from_raw(raw);
        let process = Process::parse(stat).unwrap();
        assert_eq!(process.pid, pid(42).unwrap());
        assert_eq!((process.parent, process.group, process.session), (pid(7), pid(42), pid(41)));
        assert_eq!((process.zombie, process.started), (false, 987654));
    }

    #[test]
    fn a_process_that_is_ending_has_no_group_and_no_session_any_more() {
        let stat = b"42 (sleep) Z 7 -1 -1 0 -1 4228108 1 2 3 4 5 6 7 8 20 0 1 0 987654 10 11\n";
        let process = Process::parse(stat).unwrap();
        assert_eq!((process.parent, process.group, process.session), (Pid::from_raw(7), None, None));
        assert!(process.zombie);
    }

    #[test]
    fn a_malformed_stat_file_is_no_process() {
        for stat in [&b""[..], b"42", b"42 (x", b"42 (x) S", b"0 (x) S 1 1 1", b") 42 ("] {
            assert_eq!(Process::parse(stat), None, "{stat:?}");
        }
    }

    #[test]
    fn a_child_is_listed_below_its_parent_and_a_whole_scan_agrees() {
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = Pid::from_child(&child);
        let found = children(getpid()).unwrap();
        assert!(found.iter().any(|process| process.pid == pid), "{found:?}");
        let scanned = scan().unwrap();
        let same = scanned.iter().find(|process| process.pid == pid).unwrap();
        assert_eq!(same.parent, Some(getpid()));
        assert!(descendants(getpid(), |_| false).unwrap().iter().any(|process| process.pid == pid));
        assert!(!descendants(getpid(), |process| process.pid == pid).unwrap().iter().any(|process| process.pid == pid));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(Process::read(pid).unwrap().filter(|process| process.parent == Some(getpid())), None);
    }
}
