//! A program that was started in a process group of its own, and that leaves nothing behind when it
//! is given up.

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;

/// The process group of a child. Dropped before it is told of the child's end, it is killed.
pub(crate) struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    /// Of a child that leads it. Until the child has been waited for, its number is nobody else's.
    pub(crate) fn of(child: &Child) -> ProcessGroup {
        ProcessGroup(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)))
    }

    /// The child has been waited for.
    pub(crate) fn has_ended(&mut self) {
        self.0 = None;
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // It may have ended by itself. The runtime waits for the end of the child.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}
