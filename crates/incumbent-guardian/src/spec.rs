//! What is run, and how it ended. Plain data.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;

/// What `env`, `timeout` and other programs that run a program exit with when the failure is their
/// own.
pub(crate) const OUR_FAILURE: i32 = 125;

/// A command to run under the guardian.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandSpec {
    pub(crate) argv: Vec<OsString>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) env_removed: Vec<OsString>,
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) leftover_grace: Duration,
    pub(crate) quiet: bool,
}

impl CommandSpec {
    /// A program and its arguments. The program is looked up in `PATH`.
    pub fn new<A: Into<OsString>>(argv: impl IntoIterator<Item = A>) -> CommandSpec {
        let argv = argv.into_iter().map(Into::into).collect();
        CommandSpec {
            argv,
            env: Vec::new(),
            env_removed: Vec::new(),
            cwd: None,
            leftover_grace: Duration::from_secs(3),
            quiet: false,
        }
    }

    /// A line for `/bin/sh -c`.
    pub fn shell(line: impl Into<OsString>) -> CommandSpec {
        CommandSpec::new([OsString::from("/bin/sh"), OsString::from("-c"), line.into()])
    }

    /// One more variable in its environment, which is otherwise the supervisor's own.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> CommandSpec {
        self.env.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// One variable less in its environment.
    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> CommandSpec {
        self.env_removed.push(name.as_ref().to_owned());
        self
    }

    /// The directory that it runs in, instead of the supervisor's.
    pub fn cwd(mut self, directory: impl Into<PathBuf>) -> CommandSpec {
        self.cwd = Some(directory.into());
        self
    }

    /// Its input is empty, its output goes nowhere, and it does not get the terminal: for a program
    /// beside the one that a user has started. What it says on standard error is still seen.
    pub fn quiet(mut self) -> CommandSpec {
        self.quiet = true;
        self
    }

    /// How long processes that the command leaves behind have between SIGTERM and SIGKILL. 3 s
    /// unless told.
    pub fn leftover_grace(mut self, grace: Duration) -> CommandSpec {
        self.leftover_grace = grace;
        self
    }
}

/// How the command's own process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It exited by itself.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
}

impl Exit {
    /// The exit status as a shell reports it: its own, or 128 + the signal.
    pub fn code(self) -> i32 {
        match self {
            Exit::Code(code) => code,
            Exit::Signal(signal) => 128 + signal,
        }
    }
}

/// Why the command could not be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotStarted {
    /// What failed.
    pub step: Step,
    /// The system's error number.
    pub errno: i32,
}

/// One step on the way to a running command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Being in time: its deadline had passed before it could be started.
    Deadline,
    /// Making a process.
    Process,
    /// Going to the directory.
    Directory,
    /// Executing the program.
    Program,
}

impl NotStarted {
    /// The exit status as a shell reports it: 127 if there is no such program, 126 if it cannot be
    /// executed; 125 if it did not even come to that.
    pub fn code(self) -> i32 {
        let missing = io::Error::from_raw_os_error(self.errno).kind() == io::ErrorKind::NotFound;
        match self.step {
            Step::Deadline | Step::Process => OUR_FAILURE,
            Step::Program if missing => 127,
            Step::Directory | Step::Program => 126,
        }
    }

    /// Whether the system lacked something, for now: processes, descriptors, memory. It may have it
    /// later.
    pub fn is_transient(self) -> bool {
        let lacking = [Errno::AGAIN, Errno::NOMEM, Errno::MFILE, Errno::NFILE];
        self.step == Step::Process && lacking.iter().any(|errno| errno.raw_os_error() == self.errno)
    }
}

impl fmt::Display for NotStarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.step {
            Step::Deadline => "its deadline has passed",
            Step::Process => "no process could be made",
            Step::Directory => "its directory cannot be entered",
            Step::Program => "it cannot be executed",
        };
        write!(f, "{what}: {}", io::Error::from_raw_os_error(self.errno))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_statuses_are_those_of_a_shell() {
        assert_eq!(Exit::Code(3).code(), 3);
        assert_eq!(Exit::Signal(15).code(), 143);
        let code = |step, errno: Errno| NotStarted { step, errno: errno.raw_os_error() }.code();
        assert_eq!(code(Step::Program, Errno::NOENT), 127);
        assert_eq!(code(Step::Program, Errno::ACCESS), 126);
        assert_eq!(code(Step::Directory, Errno::NOENT), 126);
        assert_eq!(code(Step::Process, Errno::AGAIN), 125);
        assert_eq!(code(Step::Deadline, Errno::TIME), 125);
    }
}
