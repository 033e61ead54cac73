//! The entry points: the same executable is supervisor, guardian, launcher and init. The first
//! argument says which.

use std::env;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nix::sys::signal::SigSet;

use crate::{init, launch, main_loop};

/// The first argument of the guardian.
const GUARDIAN: &str = "__guardian";
/// The first argument of a process that is about to become the command.
const LAUNCH: &str = "__guardian-exec";

/// Must be the first thing in `main`: does not return if this process was started to be a guardian,
/// or to become its command.
///
/// As process 1 it does not return either: the program is then started again as a child, and this
/// process stays behind as its init, which passes signals on, waits for every orphan, and ends as
/// the child ends.
pub fn main_if_guardian() {
    let mut args = env::args_os().skip(1);
    match args.next() {
        Some(role) if role == GUARDIAN => main_loop::main(),
        Some(role) if role == LAUNCH => launch::main(args),
        _ if rustix::process::getpid().is_init() => init::main(),
        _ => {}
    }
}

/// Blocks every signal, and makes sure that the death of a child is seen.
pub(crate) fn take_signals() -> io::Result<()> {
    // An ignored SIGCHLD is inherited, and children would then vanish without a word. Any handler
    // ends that, and no program that this process starts inherits it.
    signal_hook::flag::register(signal_hook::consts::SIGCHLD, Arc::new(AtomicBool::new(false)))?;
    Ok(SigSet::all().thread_block()?)
}

/// The guardian, yet to be started.
pub(crate) fn guardian() -> Command {
    again(GUARDIAN)
}

/// A process that is to become a command, yet to be started.
pub(crate) fn launcher() -> Command {
    again(LAUNCH)
}

/// Not by its path: the file may have been replaced by an upgrade since.
const OURSELVES: &str = "/proc/self/exe";

/// Whether our own executable can be found, which takes `/proc`.
pub(crate) fn can_start_again() -> bool {
    std::fs::exists(OURSELVES).unwrap_or(false)
}

fn again(role: &str) -> Command {
    let mut command = Command::new(OURSELVES);
    // Not by its name either: `pkill incumbent` must not take the guardian together with the
    // supervisor that it guards against.
    command.arg0("guardian").arg(role);
    command
}
