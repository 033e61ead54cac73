//! What signals ask of `run`: to leave, or to be passed on to the command.

use std::io::{self, IsTerminal};

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

use crate::failure::Failure;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Stop the command and leave. Carries the exit code for those who have no command.
    Leave(u8),
    /// Pass it on.
    PassOn(i32),
}

/// All signals that are heeded.
pub(super) struct Signals {
    term: unix::Signal,
    int: unix::Signal,
    hup: unix::Signal,
    quit: unix::Signal,
    usr1: unix::Signal,
    usr2: unix::Signal,
    winch: unix::Signal,
    /// There was a terminal when we started: once it has hung up, nobody can tell.
    interactive: bool,
}

impl Signals {
    pub(super) fn new() -> Result<Signals, Failure> {
        let listen =
            |kind| unix::signal(kind).map_err(|error| Failure::error(format!("cannot listen for signals: {error}")));
        Ok(Signals {
            term: listen(SignalKind::terminate())?,
            int: listen(SignalKind::interrupt())?,
            hup: listen(SignalKind::hangup())?,
            quit: listen(SignalKind::quit())?,
            usr1: listen(SignalKind::user_defined1())?,
            usr2: listen(SignalKind::user_defined2())?,
            winch: listen(SignalKind::window_change())?,
            interactive: io::stdin().is_terminal(),
        })
    }

    /// The next one. Safe to cancel.
    pub(super) async fn next(&mut self) -> Asked {
        let pass_on = |signal: Signal| Asked::PassOn(signal.as_raw());
        tokio::select! {
            biased;
            _ = self.term.recv() => Asked::Leave(143),
            _ = self.int.recv() => Asked::Leave(130),
            _ = self.hup.recv() => pass_on(Signal::HUP),
            _ = self.quit.recv() => pass_on(Signal::QUIT),
            _ = self.usr1.recv() => pass_on(Signal::USR1),
            _ = self.usr2.recv() => pass_on(Signal::USR2),
            _ = self.winch.recv() => pass_on(Signal::WINCH),
        }
    }

    /// The next one while there is no command to pass it on to: a closed terminal, or Ctrl-\ on one, then means to leave.
    pub(super) async fn next_when_idle(&mut self) -> Asked {
        match self.next().await {
            Asked::PassOn(signal) if self.interactive && signal == Signal::HUP.as_raw() => Asked::Leave(129),
            Asked::PassOn(signal) if self.interactive && signal == Signal::QUIT.as_raw() => Asked::Leave(131),
            asked => asked,
        }
    }
}
