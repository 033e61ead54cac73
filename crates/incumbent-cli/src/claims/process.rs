//! Which process it is, and whether it still lives, as the kernel says.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// A process that is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alive {
    /// When it was started, in the kernel's ticks since boot.
    pub(super) start: u64,
    /// As whom it acts.
    pub(super) user: u32,
    /// Stopped by a signal, or by a debugger.
    pub(super) suspended: bool,
}

/// The process with this number, unless there is none or it has died already.
pub(super) fn alive(pid: u32) -> Option<Alive> {
    let (state, start) = state_and_start(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
    let user = effective_user(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)?;
    let dead = matches!(state, 'Z' | 'X' | 'x');
    (!dead).then_some(Alive { start, user, suspended: matches!(state, 'T' | 't') })
}

/// Numbers of processes mean something only within a namespace. Zero: unknown.
pub(super) fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

/// The start of a process means something only within one of these: the kernel counts from when the
/// reader's began. Zero: unknown.
pub(super) fn time_namespace() -> u64 {
    fs::metadata("/proc/self/ns/time").map_or(0, |namespace| namespace.ino())
}

/// `4711 (a (strange) name) S 1 ...`: the third field, and the 22nd.
fn state_and_start(stat: &str) -> Option<(char, u64)> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// `Uid: 1000 1000 1000 1000`: real, effective, saved, of the file system.
fn effective_user(status: &str) -> Option<u32> {
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_from_one_that_had_its_number_before() {
        let us = alive(std::process::id()).unwrap();
        assert_eq!(us.user, rustix::process::geteuid().as_raw());
        assert!(us.start > 0 && !us.suspended);
        assert_eq!(alive(u32::MAX), None);
    }

    #[test]
    fn a_name_with_parentheses_hides_no_field() {
        let tail = (4..=52).map(|number| number.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(state_and_start(&format!("7 (a) T (b) S {tail}\n")), Some(('S', 22)));
        assert_eq!(state_and_start("7 (short) S 1 2"), None);
        assert_eq!(effective_user("Name:\tx\nUid:\t1\t2\t3\t4\n"), Some(2));
    }
}
