//! Which process group may read the terminal: it is lent to the command and taken back.

use std::os::fd::AsFd;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::process::Pid;
use rustix::stdio::stdin;
use rustix::termios::tcsetpgrp;

use crate::process_ids;

/// Standard input is the controlling terminal of our session. One that has no number here cannot be
/// given its terminal back by number, so it does not lend it; a command in a session of its own
/// reads it all the same.
pub(crate) fn is_ours() -> bool {
    process_ids::group().is_some()
        && process_ids::session().is_some_and(|own| process_ids::session_at(stdin()) == Some(own))
}

/// Our process group has it now. A job in the background has no terminal to lend.
pub(crate) fn is_in_foreground() -> bool {
    is_ours() && process_ids::group_at(stdin()) == process_ids::group()
}

/// Gives the terminal to a process group of our session, whichever has it now.
pub(crate) fn give_to(group: Pid) {
    // A process that does this from the background is stopped by SIGTTOU, unless it is blocked.
    let mut stops = SigSet::empty();
    stops.add(Signal::SIGTTOU);
    let Ok(before) = stops.thread_swap_mask(SigmaskHow::SIG_BLOCK) else { return };
    // It fails when the terminal has hung up or the group has ended: then there is nothing to give.
    let _ = tcsetpgrp(stdin().as_fd(), group);
    let _ = before.thread_set_mask();
}
