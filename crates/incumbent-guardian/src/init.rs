//! Process 1 of a container: starts the program itself as a child, passes signals on, and waits for
//! every orphan.
//!
//! A program of many threads makes a poor init: it would have to wait for children that are not its
//! own, and the kernel gives process 1 no default actions for signals. When this process ends, the
//! kernel ends everything in the container.

use std::env;
use std::process::exit;

use nix::sys::signal::{SigSet, Signal};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, kill_process, wait};

use crate::handle::StartError;
use crate::launch::Launch;
use crate::spec::{CommandSpec, Exit, OUR_FAILURE};
use crate::{entry, terminal};

/// Runs the program as process 1 of its container.
pub(crate) fn main() -> ! {
    let signals = SigSet::all();
    if !entry::can_start_again() {
        eprintln!("init: {}", StartError::NoProc);
        exit(OUR_FAILURE);
    }
    let executable = env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    let argv = [executable.into_os_string()].into_iter().chain(env::args_os().skip(1));
    let spec = CommandSpec::new(argv);
    if let Err(error) = entry::take_signals() {
        eprintln!("init: {error}");
        exit(OUR_FAILURE);
    }
    let launch = match Launch::start(&spec, terminal::is_in_foreground(), &[]) {
        Ok(launch) => launch,
        Err(reason) => {
            eprintln!("init: {reason}");
            exit(reason.code())
        }
    };
    let child = launch.pid;
    loop {
        if let Some(exit_of_child) = reap(child) {
            exit(exit_of_child.code());
        }
        match signals.wait() {
            // A suspended container would lose its office; the terminal's other stops do not reach
            // us.
            Ok(Signal::SIGCHLD | Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU) | Err(_) => {}
            // It fails if the child is gone: the next turn sees that.
            Ok(signal) => {
                let signal = rustix::process::Signal::from_named_raw(signal as i32);
                let _ = signal.map(|signal| kill_process(child, signal));
            }
        }
    }
}

/// Waits for all that have ended; says how the child ended, if it has.
fn reap(child: Pid) -> Option<Exit> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == child => {
                let killed = status.terminating_signal().map(Exit::Signal);
                return Some(killed.unwrap_or(Exit::Code(status.exit_status().unwrap_or_default())));
            }
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return None,
            // No child at all: it cannot be, as the child's own end is seen above.
            Err(_) => return Some(Exit::Code(1)),
        }
    }
}
