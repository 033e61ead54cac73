//! One run of the command: from its start until no descendant is left.
//!
//! It lives in the guardian, the subreaper of all of them, and relies on two facts. *A subreaper
//! without children has no descendants*: orphans become its children, so that the kernel's "no
//! child" proves that none is left. *A zombie keeps its number*: the command's own process is
//! waited for last, so that its process group's number cannot be given to another group meanwhile.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use incumbent_core::Timestamp;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, wait, waitid, waitpid};

use crate::clock::{kill_at, now};
use crate::launch::Launch;
use crate::spec::{CommandSpec, Exit, NotStarted, Step};
use crate::tree::{self, Process};
use crate::wire::Report;
use crate::{kill_tree, process_ids, terminal};

/// Orphans waited for in one turn.
const REAPED_PER_TURN: usize = 1024;
/// Time between two rounds of killing: doubled from the first to the last. The death of a child
/// starts one at once.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(100);
/// Time between two looks at who has the terminal, while the command is stopped for want of it.
const TERMINAL_PAUSE: Duration = Duration::from_millis(100);

/// The command and what descends from it.
#[derive(Debug)]
pub(crate) struct CommandRun {
    /// When it is killed, so as to be gone by its deadline.
    kill_at: Timestamp,
    command: Pid,
    /// Until the program is known to run.
    launch: Option<Launch>,
    /// It never became the program: its exit is no exit of the command.
    refused: bool,
    foreground: bool,
    /// It was stopped because it touched the terminal from the background.
    wants_terminal: bool,
    leftover_grace: Duration,
    /// The command's own process has ended.
    exit: Option<Exit>,
    /// It has been waited for: its number may be given to another process now.
    released: bool,
    stop: Stop,
    look_again: Option<Timestamp>,
}

/// How far the end has come. It never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    No,
    /// SIGTERM was sent; SIGKILL comes then.
    Asked(Timestamp),
    Killing {
        round: u32,
    },
}

impl CommandRun {
    /// `kept`: descriptors that the command is to inherit.
    pub(crate) fn start(
        spec: &CommandSpec,
        deadline: Timestamp,
        foreground: bool,
        kept: &[OwnedFd],
    ) -> Result<CommandRun, NotStarted> {
        let kill_at = kill_at(deadline);
        if now() >= kill_at {
            return Err(NotStarted { step: Step::Deadline, errno: Errno::TIME.raw_os_error() });
        }
        let launch = Launch::start(spec, foreground, kept)?;
        Ok(CommandRun {
            kill_at,
            command: launch.pid,
            launch: Some(launch),
            refused: false,
            foreground,
            wants_terminal: false,
            leftover_grace: spec.leftover_grace,
            exit: None,
            released: false,
            stop: Stop::No,
            look_again: None,
        })
    }

    /// It may live until then.
    pub(crate) fn set_deadline(&mut self, deadline: Timestamp) {
        self.kill_at = kill_at(deadline);
    }

    /// What to wait for while it is not known whether the program runs.
    pub(crate) fn launching(&self) -> Option<BorrowedFd<'_>> {
        self.launch.as_ref().map(|launch| launch.channel.as_fd())
    }

    /// When [`advance`](CommandRun::advance) has something to do, if nothing happens before.
    pub(crate) fn next_alarm(&self) -> Option<Timestamp> {
        let stop = match self.stop {
            Stop::No => self.kill_at,
            Stop::Asked(kill_at) => kill_at.min(self.kill_at),
            Stop::Killing { .. } => Timestamp::MAX,
        };
        Some(self.look_again.map_or(stop, |at| at.min(stop)))
    }

    /// SIGTERM to all processes, once; SIGKILL then.
    pub(crate) fn terminate(&mut self, kill_at: Timestamp) {
        match self.stop {
            Stop::No => {
                self.stop = Stop::Asked(kill_at);
                self.signal_all(Signal::TERM);
                // A stopped process hears nothing until it goes on.
                self.signal_all(Signal::CONT);
            }
            Stop::Asked(before) => self.stop = Stop::Asked(kill_at.min(before)),
            Stop::Killing { .. } => {}
        }
    }

    /// SIGTERM once more to those that would have died of it. A shell that heard it while it was
    /// starting a process leaves that one behind: it was not there yet, or had the shell's handler
    /// at that moment. Those that handle it themselves may be busy with that: nobody hurries them.
    fn ask_again(&self) {
        for process in descendants().iter().filter(|process| process.dies_of(Signal::TERM)) {
            kill_tree::signal(process, Signal::TERM);
        }
    }

    /// SIGKILL to all processes, until none is left. The next [`advance`](CommandRun::advance)
    /// begins with it.
    pub(crate) fn kill(&mut self) {
        if !matches!(self.stop, Stop::Killing { .. }) {
            self.stop = Stop::Killing { round: 0 };
        }
    }

    /// Passes a signal on to the command's own process: what it means for its children is for the
    /// command to say.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.exit.is_none() {
            // Not yet waited for, so the number is its own. It fails if it runs as another user
            // now, and we may not.
            let _ = rustix::process::kill_process(self.command, signal);
        }
    }

    /// Does what is due and reports what has happened; [`Report::Empty`] is the last report.
    /// Calling it too often does no harm.
    pub(crate) fn advance(&mut self, now: Timestamp, home: Option<Pid>) -> Vec<Report> {
        let mut reports = Vec::new();
        self.look_again = None;
        self.settle_launch(&mut reports);
        let ended_now = self.reap(&mut reports);
        if ended_now && self.foreground {
            home.into_iter().for_each(terminal::give_to);
        }
        let due = matches!(self.stop, Stop::Asked(kill_at) if now >= kill_at) || now >= self.kill_at;
        if due {
            self.kill();
        }
        if self.exit.is_some() && self.is_empty() {
            reports.push(Report::Empty);
            return reports;
        }
        if let Stop::Killing { round } = self.stop {
            self.kill_round(round);
            reports.push(Report::Killing);
            self.stop = Stop::Killing { round: round.saturating_add(1) };
            let pause = FIRST_PAUSE.saturating_mul(1 << round.min(10)).min(LAST_PAUSE);
            self.look_again = Some(now + pause);
        } else if ended_now {
            let left = descendants().iter().filter(|process| !process.zombie).count();
            reports.push(Report::LeftBehind(left as u64));
            self.terminate(now + self.leftover_grace);
            self.look_again = Some(now);
        } else if self.exit.is_some() {
            self.ask_again();
            self.look_again = Some(now + LAST_PAUSE);
        } else {
            self.lend_terminal(now, home, &mut reports);
        }
        reports
    }

    fn settle_launch(&mut self, reports: &mut Vec<Report>) {
        let Some(outcome) = self.launch.as_ref().and_then(Launch::outcome) else { return };
        self.launch = None;
        self.refused = outcome.is_err();
        reports.push(match outcome {
            Ok(()) => Report::Started { pid: self.command.as_raw_pid() },
            Err(reason) => Report::NotStarted(reason),
        });
    }

    /// Waits for dead children, if possible except for the command's own process. True if that one
    /// has just ended.
    fn reap(&mut self, reports: &mut Vec<Report>) -> bool {
        if self.exit.is_some() {
            self.reap_orphans();
            return false;
        }
        let Some(exit) = self.seen_exit().or_else(|| self.reap_until_exit()) else {
            self.go_on_if_suspended();
            return false;
        };
        // The launch channel has ended before its process did: what there is to say about it comes
        // first.
        self.settle_launch(reports);
        self.exit = Some(exit);
        if !self.refused {
            reports.push(Report::Exited(exit));
        }
        // Children that it never waited for became ours in the same moment, already dead: no
        // further SIGCHLD announces them.
        self.reap_orphans();
        true
    }

    /// How the command's own process ended, if it has. It stays a zombie.
    fn seen_exit(&self) -> Option<Exit> {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(self.command), look).ok()??;
        let killed = status.terminating_signal().map(Exit::Signal);
        Some(killed.unwrap_or(Exit::Code(status.exit_status().unwrap_or_default())))
    }

    /// Waits for orphans while the command runs. Should it end just now, it is waited for like
    /// them, and loses its number early.
    fn reap_until_exit(&mut self) -> Option<Exit> {
        for _ in 0..REAPED_PER_TURN {
            let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) else { return None };
            if pid == self.command {
                self.released = true;
                let killed = status.terminating_signal().map(Exit::Signal);
                return Some(killed.unwrap_or(Exit::Code(status.exit_status().unwrap_or_default())));
            }
        }
        // There is more to wait for than one turn may take.
        self.look_again = Some(Timestamp::ZERO);
        None
    }

    /// Ctrl-Z would leave the office with a command that does nothing: as long as it has the
    /// terminal, it goes on. One that has not, and is stopped for touching it, waits for it.
    fn go_on_if_suspended(&mut self) {
        let stopped = waitid(WaitId::Pid(self.command), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG);
        let by = stopped.ok().flatten().and_then(|status| status.stopping_signal());
        if by == Some(Signal::TSTP.as_raw()) && self.foreground {
            kill_tree::group_signal(self.command, Signal::CONT);
        }
        self.wants_terminal |= by == Some(Signal::TTIN.as_raw()) || by == Some(Signal::TTOU.as_raw());
    }

    /// A command that waits for the terminal gets it as soon as our supervisor's job has it: `fg`
    /// does not tell a job that runs.
    fn lend_terminal(&mut self, now: Timestamp, home: Option<Pid>, reports: &mut Vec<Report>) {
        if !self.wants_terminal {
            return;
        }
        if home.is_some() && process_ids::group_at(rustix::stdio::stdin()) == home {
            self.wants_terminal = false;
            self.foreground = true;
            terminal::give_to(self.command);
            kill_tree::group_signal(self.command, Signal::CONT);
            reports.push(Report::Lent);
        } else {
            self.look_again = Some(self.look_again.map_or(now + TERMINAL_PAUSE, |at| at.min(now + TERMINAL_PAUSE)));
        }
    }

    fn reap_orphans(&mut self) {
        if !self.released {
            // Any child's status would be the command's own, again and again: the others are asked
            // for by number.
            for child in children().iter().filter(|child| child.zombie && child.pid != self.command) {
                let _ = waitpid(Some(child.pid), WaitOptions::NOHANG);
            }
            return;
        }
        for _ in 0..REAPED_PER_TURN {
            if !matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {
                return;
            }
        }
        self.look_again = Some(Timestamp::ZERO);
    }

    /// No descendant is left: the kernel says so.
    fn is_empty(&mut self) -> bool {
        if !self.released {
            if children().iter().any(|child| child.pid != self.command) {
                return false;
            }
            let _ = waitpid(Some(self.command), WaitOptions::NOHANG);
            self.released = true;
        }
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        matches!(waitid(WaitId::All, look), Err(Errno::CHILD))
    }

    fn kill_round(&self, round: u32) {
        if !self.released {
            kill_tree::group_signal(self.command, Signal::KILL);
        }
        kill_tree::kill(&descendants(), round);
    }

    fn signal_all(&self, signal: Signal) {
        // The group in one step, then the processes that have left it.
        if !self.released {
            kill_tree::group_signal(self.command, signal);
        }
        for process in descendants().iter().filter(|process| self.released || process.group != Some(self.command)) {
            kill_tree::signal(process, signal);
        }
    }
}

/// Those that can be listed. That none is left is for the kernel to say in any case.
fn children() -> Vec<Process> {
    tree::children(getpid()).unwrap_or_default()
}

fn descendants() -> Vec<Process> {
    tree::descendants(getpid(), |_| false).unwrap_or_default()
}
