//! Who may read the terminal: it is lent to the command and taken back.

use std::os::fd::AsFd;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::process::Pid;
use rustix::stdio::stdin;
use rustix::termios::tcsetpgrp;

use crate::standing;

/// Standard input is the controlling terminal of our session. One that has no number here cannot be given its terminal back by number,
/// so it does not lend it; a command in a session of its own reads it all the same.
pub(crate) fn is_ours() -> bool {
    standing::group().is_some() && standing::session().is_some_and(|own| standing::session_at(stdin()) == Some(own))
}

/// Our process group has it now. A job in the background has no terminal to lend.
pub(crate) fn is_in_foreground() -> bool {
    is_ours() && standing::group_at(stdin()) == standing::group()
}

/// Gives the terminal to a process group of our session, whoever has it.
pub(crate) fn give_to(group: Pid) {
    // Whoever does this from the background is stopped by SIGTTOU, unless it is blocked.
    let mut stops = SigSet::empty();
    stops.add(Signal::SIGTTOU);
    let Ok(before) = stops.thread_swap_mask(SigmaskHow::SIG_BLOCK) else { return };
    // It fails when the terminal has hung up or the group has ended: then there is nobody to give it to.
    let _ = tcsetpgrp(stdin().as_fd(), group);
    let _ = before.thread_set_mask();
}
