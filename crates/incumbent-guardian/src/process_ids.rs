//! The session and the process group of a process. Either may have no number here: its leader may
//! be outside this PID namespace, or the kernel itself, and then the system call answers 0. `nix`
//! is used for these calls, since `rustix` takes every answer for a number above 0.

use nix::unistd;
use rustix::fd::AsFd;
use rustix::process::Pid;

/// Our own session.
pub(crate) fn session() -> Option<Pid> {
    unistd::getsid(None).ok().and_then(numbered)
}

/// Our own process group.
pub(crate) fn group() -> Option<Pid> {
    numbered(unistd::getpgrp())
}

/// Another's process group.
pub(crate) fn group_of(process: Pid) -> Option<Pid> {
    unistd::getpgid(Some(unistd::Pid::from_raw(process.as_raw_pid()))).ok().and_then(numbered)
}

/// The session whose controlling terminal this is, if it is ours.
pub(crate) fn session_at(terminal: impl AsFd) -> Option<Pid> {
    nix::sys::termios::tcgetsid(terminal).ok().and_then(numbered)
}

/// The process group that may read from this terminal.
pub(crate) fn group_at(terminal: impl AsFd) -> Option<Pid> {
    unistd::tcgetpgrp(terminal).ok().and_then(numbered)
}

fn numbered(pid: unistd::Pid) -> Option<Pid> {
    Pid::from_raw(pid.as_raw())
}
