//! Which process it is, and whether it still lives, as the kernel says.

use incumbent::store::Process;

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
    let process = Process::read(pid).ok()?.filter(|process| !process.ended)?;
    Some(Alive { start: process.started, user: process.user()?, suspended: process.suspended })
}

/// Whether this guardian lives and has nothing left to stop. It is the parent of all that its
/// command has started, however often that forks.
pub(super) fn has_stopped_all(pid: u32, start: u64) -> bool {
    let guardian = Process::read(pid).ok().flatten().filter(|process| process.started == start && !process.ended);
    guardian.is_some_and(|guardian| guardian.children().is_ok_and(|left| left.is_empty()))
}
