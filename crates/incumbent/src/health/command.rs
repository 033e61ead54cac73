//! A program that says with its exit code how things are.

use std::io::{self, PipeReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::{Fitness, Health, HealthCheck};

/// How much of the output is kept for its first line.
const KEPT: usize = 1024;

/// A program: exit code 0 says fit, 1 unwell, and everything else unfit, as for Nagios and Consul.
/// The first line that it writes is the reason.
///
/// It has a process group of its own, and is killed with it when its time is up.
#[derive(Debug)]
pub struct CommandCheck {
    name: String,
    command: Command,
}

impl CommandCheck {
    /// This command. Its input, output and process group are set here.
    pub fn new(command: Command) -> CommandCheck {
        let name = command.get_program().to_string_lossy().into_owned();
        CommandCheck { name, command }
    }

    /// A line for `/bin/sh -c`.
    pub fn shell(line: &str) -> CommandCheck {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", line]);
        CommandCheck { name: line.to_owned(), command }
    }

    /// What people know it by.
    pub fn named(mut self, name: impl Into<String>) -> CommandCheck {
        self.name = name.into();
        self
    }

    fn run(&mut self, within: Duration) -> io::Result<Health> {
        let (output, input) = io::pipe()?;
        self.command.stdin(Stdio::null()).stdout(input.try_clone()?).stderr(input).process_group(0);
        let until = Instant::now() + within;
        let started = self.command.spawn();
        // Our copies of the pipe's end.
        self.command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut running = Running { child: started?, output, said: Vec::new() };
        let ended = running.wait(until);
        // Before its number can be another's: it has not been waited for yet.
        running.kill_group();
        let status = running.child.wait()?;
        Ok(match ended? {
            true => running.judge(status),
            false => Health::unfit(format!("not done within {within:?}, and killed")),
        })
    }
}

impl HealthCheck for CommandCheck {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn check(&mut self, within: Duration) -> Health {
        self.run(within).unwrap_or_else(|error| Health::unfit(format!("cannot be run: {error}")))
    }
}

struct Running {
    child: Child,
    output: PipeReader,
    said: Vec<u8>,
}

impl Running {
    /// Waits until it has ended, and takes what it writes meanwhile, so that it is not held up.
    /// `false`: its time is up.
    fn wait(&mut self, until: Instant) -> io::Result<bool> {
        let Some(pid) = self.pid() else { return Ok(true) };
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        let mut writes = true;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut fds = vec![PollFd::new(&process, PollFlags::IN)];
            if writes {
                fds.push(PollFd::new(&self.output, PollFlags::IN));
            }
            let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            rustix::io::retry_on_intr(|| poll(&mut fds, Some(&limit)))?;
            let ended = fds.first().is_some_and(|fd| !fd.revents().is_empty());
            let readable = fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
            if readable {
                writes = self.read()?;
            }
            // What it has written is there before its end is seen, and one read is enough for a
            // line.
            if ended || left.is_zero() {
                return Ok(ended);
            }
        }
    }

    /// Takes what was written. `false`: nobody will write any more.
    fn read(&mut self) -> io::Result<bool> {
        let mut some = [0; 4096];
        let read = self.output.read(&mut some)?;
        let room = KEPT.saturating_sub(self.said.len()).min(read);
        self.said.extend_from_slice(&some[..room]);
        Ok(read > 0)
    }

    fn kill_group(&self) {
        if let Some(pid) = self.pid() {
            // Nothing may be left of it.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    fn judge(&self, status: ExitStatus) -> Health {
        let (fitness, ended) = match (status.code(), status.signal()) {
            (Some(0), _) => (Fitness::Fit, String::new()),
            (Some(1), _) => (Fitness::Unwell, "exit code 1".to_owned()),
            (Some(code), _) => (Fitness::Unfit, format!("exit code {code}")),
            (None, signal) => (Fitness::Unfit, format!("killed by signal {}", signal.unwrap_or_default())),
        };
        let said = String::from_utf8_lossy(&self.said);
        Health::new(fitness, if said.trim().is_empty() { &ended } else { said.as_ref() })
    }
}

#[cfg(test)]
mod tests {
    use incumbent_store::Process;

    use super::*;

    /// The machine is busy.
    const LONG: Duration = Duration::from_secs(60);

    fn check(line: &str) -> String {
        CommandCheck::shell(line).check(LONG).to_string()
    }

    #[test]
    fn exit_codes_are_those_of_nagios_and_the_first_line_is_the_reason() {
        assert_eq!(check("echo all is well"), "fit");
        assert_eq!(check("echo lags; echo more; exit 1"), "unwell: lags");
        assert_eq!(check("echo broken >&2; exit 2"), "unfit: broken");
        assert_eq!(check("exit 1"), "unwell: exit code 1");
        assert_eq!(check("exit 77"), "unfit: exit code 77");
        assert_eq!(check("kill -9 $$"), "unfit: killed by signal 9");
        let missing = CommandCheck::new(Command::new("/none")).check(LONG).to_string();
        assert_eq!(missing, "unfit: cannot be run: No such file or directory (os error 2)");
    }

    #[test]
    fn a_command_that_writes_more_than_a_pipe_holds_is_not_held_up() {
        assert_eq!(check("head -c 300000 /dev/zero | tr '\\0' x; exit 1").len(), "unwell: ".len() + 200);
    }

    #[test]
    fn a_command_that_does_not_end_is_killed_with_all_that_it_started() {
        // The pipe ends when nobody is left to write to it.
        let mut check = CommandCheck::shell("sleep 1000 & sleep 1000");
        let found = check.check(Duration::from_millis(50)).to_string();
        assert_eq!(found, "unfit: not done within 50ms, and killed");
        let mut check = CommandCheck::shell("sleep 1000 & echo $!; exit 1");
        let left = check.check(LONG).reason.parse().expect("a process");
        let is_gone = || Process::read(left).unwrap().is_none_or(|process| process.ended);
        let patience = Instant::now() + LONG;
        while !is_gone() {
            assert!(Instant::now() < patience, "{left} lives on");
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_same_check_runs_again_and_again() {
        let directory = incumbent_testkit::TempDir::new("command");
        let file = directory.path().join("ok");
        let mut check = CommandCheck::shell(&format!("test -e {}", file.display()));
        assert_eq!(check.check(LONG).fitness, Fitness::Unwell);
        std::fs::write(&file, "").unwrap();
        assert_eq!(check.check(LONG).fitness, Fitness::Fit);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(check.check(LONG).fitness, Fitness::Unwell);
    }
}
