//! Processes as the kernel shows them: which one it is, and whether it lives. Reads only.

use std::os::unix::fs::MetadataExt;
use std::{fs, io};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// One process, as its `stat` file shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Process {
    /// Its number, in the namespace of the one who reads.
    pub number: u32,
    /// When it was started, in the kernel's ticks since boot: numbers come again, and with this
    /// they do not. Another time namespace shows another start of the same process.
    pub started: u64,
    /// Stopped by a signal, or by a debugger.
    pub suspended: bool,
    /// Its first thread has ended: unless others go on, it is dead and not yet waited for.
    pub ended: bool,
}

impl Process {
    /// This process. `None`: `/proc` is not there, or is that of another namespace.
    pub fn this() -> Option<Process> {
        let this = fs::read("/proc/self/stat").ok().as_deref().and_then(Process::parse);
        this.filter(|process| process.number == std::process::id())
    }

    /// The process with this number. `None`: there is none, or it is hidden from us (`hidepid`).
    pub fn read(number: u32) -> io::Result<Option<Process>> {
        match fs::read(format!("/proc/{number}/stat")) {
            Ok(stat) => Ok(Process::parse(&stat)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            // It went while it was read.
            Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether there is certainly no process of this number: only the kernel's own word counts,
    /// since what another user runs may be hidden.
    pub fn is_none_of(number: u32) -> bool {
        let number = i32::try_from(number).ok().and_then(Pid::from_raw);
        number.is_some_and(|number| test_kill_process(number) == Err(Errno::SRCH))
    }

    /// Whether nothing of it runs any more: it has ended, with all its threads, and was only not
    /// waited for yet.
    pub fn is_dead(&self) -> bool {
        let threads = || fs::read_dir(format!("/proc/{}/task", self.number));
        // The one that has ended is among them.
        self.ended && threads().is_ok_and(|threads| threads.count() <= 1)
    }

    /// As whom it acts. `None`: it is gone.
    pub fn user(&self) -> Option<u32> {
        effective_user(&fs::read_to_string(format!("/proc/{}/status", self.number)).ok()?)
    }

    /// The numbers of its children, as they were while this was read. An error: nobody can tell,
    /// since not every kernel does.
    pub fn children(&self) -> io::Result<Vec<u32>> {
        let mut children = Vec::new();
        // Each thread has children of its own.
        for task in fs::read_dir(format!("/proc/{}/task", self.number))? {
            let task = task?.path();
            let list = match fs::read_to_string(task.join("children")) {
                // The thread has ended meanwhile.
                Err(_) if !task.exists() => continue,
                list => list?,
            };
            children.extend(list.split_ascii_whitespace().filter_map(|number| number.parse::<u32>().ok()));
        }
        Ok(children)
    }

    /// `4711 (a (strange) name) S 1 ...`: the name may hold anything, also what is no text.
    fn parse(stat: &[u8]) -> Option<Process> {
        let name = stat.iter().position(|byte| *byte == b'(')?;
        let rest = stat.iter().rposition(|byte| *byte == b')')? + 1;
        let number = str::from_utf8(&stat[..name]).ok()?.trim().parse().ok()?;
        let mut fields = str::from_utf8(&stat[rest..]).ok()?.split_ascii_whitespace();
        // The third field, and the 22nd.
        let state = fields.next()?;
        let started = fields.nth(18)?.parse().ok()?;
        let (suspended, ended) = (matches!(state, "T" | "t"), matches!(state, "Z" | "X" | "x"));
        Some(Process { number, started, suspended, ended })
    }
}

/// In which namespaces this process is. Zero: unknown, as it is where the kernel has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Namespaces {
    /// Numbers of processes mean something only within one of these.
    pub numbers: u64,
    /// Starts of processes, and the boot-time clock, mean something only within one of these.
    pub time: u64,
}

impl Namespaces {
    /// Those of this process.
    pub fn this() -> Namespaces {
        let of = |name: &str| fs::metadata(format!("/proc/self/ns/{name}")).map_or(0, |namespace| namespace.ino());
        Namespaces { numbers: of("pid"), time: of("time") }
    }
}

/// `Uid: 1000 1000 1000 1000`: real, effective, saved, of the file system.
fn effective_user(status: &str) -> Option<u32> {
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use rustix::process::{WaitId, WaitIdOptions, waitid};

    use super::*;

    #[test]
    fn a_process_is_told_from_one_that_had_its_number_before() {
        let us = Process::this().unwrap();
        assert_eq!(us.user(), Some(rustix::process::geteuid().as_raw()));
        assert!(us.started > 0 && !us.suspended && !us.ended);
        assert_eq!(Process::read(us.number).unwrap().map(|process| process.started), Some(us.started));
        assert_eq!(Process::read(u32::MAX).unwrap(), None);
        assert!(!Process::is_none_of(us.number) && !Process::is_none_of(u32::MAX));
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let number = child.id();
        assert!(us.children().unwrap().contains(&number));
        assert!(!Process::read(number).unwrap().unwrap().is_dead());
        drop(child.stdin.take());
        // Its end is awaited, and its number not given back.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&child)), options).unwrap();
        assert!(Process::read(number).unwrap().unwrap().is_dead());
        child.wait().unwrap();
        assert!(!us.children().unwrap().contains(&number));
        assert!(Process::is_none_of(number));
    }

    #[test]
    fn a_name_with_parentheses_or_of_no_text_hides_no_field() {
        let tail = (4..=52).map(|number| number.to_string()).collect::<Vec<_>>().join(" ");
        let stat = |state: &str| [b"7 (a) T (\xff) ", state.as_bytes(), b" ", tail.as_bytes(), b"\n"].concat();
        for (state, suspended, ended) in [("S", false, false), ("T", true, false), ("Z", false, true)] {
            let expected = Process { number: 7, started: 22, suspended, ended };
            assert_eq!(Process::parse(&stat(state)), Some(expected));
        }
        for stat in [&b""[..], b"7", b"7 (x", b"7 (short) S 1 2", b") 7 ("] {
            assert_eq!(Process::parse(stat), None, "{stat:?}");
        }
        assert_eq!(effective_user("Name:\tx\nUid:\t1\t2\t3\t4\n"), Some(2));
    }
}
