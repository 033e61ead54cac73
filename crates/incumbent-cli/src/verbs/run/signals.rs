//! What signals ask of `run`: to leave, or to be passed on to the command.

use std::io::{self, IsTerminal};

use rustix::process::{Signal, kill_current_process_group};
use tokio::signal::unix::SignalKind;

use crate::failure::Failure;
use crate::signal_listener::SignalListener;

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
    term: SignalListener,
    int: SignalListener,
    hup: SignalListener,
    quit: SignalListener,
    usr1: SignalListener,
    usr2: SignalListener,
    winch: SignalListener,
    /// There was a terminal at the start: once it has hung up, it cannot be asked for any more.
    interactive: bool,
}

impl Signals {
    pub(super) fn new() -> Result<Signals, Failure> {
        Ok(Signals {
            term: SignalListener::new(SignalKind::terminate())?,
            int: SignalListener::new(SignalKind::interrupt())?,
            hup: SignalListener::new(SignalKind::hangup())?,
            quit: SignalListener::new(SignalKind::quit())?,
            usr1: SignalListener::new(SignalKind::user_defined1())?,
            usr2: SignalListener::new(SignalKind::user_defined2())?,
            winch: SignalListener::new(SignalKind::window_change())?,
            interactive: io::stdin().is_terminal(),
        })
    }

    /// The next one. Safe to cancel.
    pub(super) async fn next(&mut self) -> Asked {
        let pass_on = |signal: Signal| Asked::PassOn(signal.as_raw());
        tokio::select! {
            biased;
            () = self.term.heard() => Asked::Leave(143),
            () = self.int.heard() => Asked::Leave(130),
            () = self.hup.heard() => pass_on(Signal::HUP),
            () = self.quit.heard() => pass_on(Signal::QUIT),
            () = self.usr1.heard() => pass_on(Signal::USR1),
            () = self.usr2.heard() => pass_on(Signal::USR2),
            () = self.winch.heard() => pass_on(Signal::WINCH),
        }
    }

    /// The next one while there is no command to pass it on to: a closed terminal, or Ctrl-\ on
    /// one, then means to leave.
    pub(super) async fn next_when_idle(&mut self) -> Asked {
        match self.next().await {
            Asked::PassOn(signal) if self.interactive && signal == Signal::HUP.as_raw() => Asked::Leave(129),
            Asked::PassOn(signal) if self.interactive && signal == Signal::QUIT.as_raw() => Asked::Leave(131),
            asked => asked,
        }
    }

    /// Waits until one asks to leave, while there is no command; the exit code. Safe to cancel.
    pub(super) async fn leave_when_idle(&mut self) -> u8 {
        loop {
            if let Asked::Leave(code) = self.next_when_idle().await {
                return code;
            }
        }
    }

    /// The signal of a key, Ctrl-C or Ctrl-\, that this exit code of an idle process stands for.
    pub(super) fn typed(&self, code: u8) -> Option<Signal> {
        [Signal::INT, Signal::QUIT].into_iter().find(|key| self.interactive && 128 + key.as_raw() == i32::from(code))
    }
}

/// How to end after Ctrl-C or Ctrl-\ was typed: of that signal, so that a shell that runs us
/// in a loop ends the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Death {
    pub(super) by: Signal,
    /// The key went to the command's process group and not to ours, whose other processes (a
    /// script, the rest of a pipeline) would have heard it, too, if the command had run in it.
    pub(super) tell_group: bool,
}

impl Death {
    /// Returns only if it fails: an exit code is left then.
    pub(super) fn die(self) {
        if self.tell_group {
            let _ = kill_current_process_group(self.by);
        }
        let _ = signal_hook::low_level::emulate_default_handler(self.by.as_raw());
    }
}
