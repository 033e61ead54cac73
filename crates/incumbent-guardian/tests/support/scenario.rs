//! One scenario: a supervisor and its command, and what can be seen of them from outside.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// No wait is longer; none should come near.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What a horde consists of. Its daemon's first fork has gone.
pub(crate) const HORDE: &[&str] = &["closed", "closed", "daemon", "deaf", "deaf", "horde", "idle", "parent"];

static SCENARIOS: AtomicU32 = AtomicU32::new(0);

/// A supervisor process under observation. Ends with everything that belongs to it.
#[allow(dead_code, reason = "each test program uses some of these")]
pub(crate) struct Scenario {
    pub(crate) supervisor: Child,
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) guardian: i32,
    pub(crate) tag: String,
    lines: Receiver<String>,
}

#[allow(dead_code, reason = "each test program uses some of these")]
impl Scenario {
    /// A supervisor with these words and a command of this kind.
    pub(crate) fn of(words: &[&str], kind: &str) -> Scenario {
        let tag = new_tag();
        let exe = std::env::current_exe().unwrap();
        Scenario::with(&tag, &[], words, &[exe.to_str().unwrap(), "nasty", kind, &tag])
    }

    /// A supervisor with these words and any command.
    pub(crate) fn run(words: &[&str], command: &[&str]) -> Scenario {
        Scenario::with(&new_tag(), &[], words, command)
    }

    /// `prefix` comes before the supervisor's own words.
    pub(crate) fn with(tag: &str, prefix: &[&str], words: &[&str], command: &[&str]) -> Scenario {
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(if prefix.is_empty() { &["supervise"] } else { prefix }).args(words).arg("--").args(command);
        Scenario::start(tag, program)
    }

    pub(crate) fn start(tag: &str, mut program: Command) -> Scenario {
        let mut supervisor = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdin = supervisor.stdin.take();
        let stdout = BufReader::new(supervisor.stdout.take().unwrap());
        let (sender, lines) = channel();
        // Ends with the last process that has the pipe.
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut scenario = Scenario { supervisor, stdin, guardian: 0, tag: tag.to_owned(), lines };
        let line = scenario.line();
        scenario.guardian = line.strip_prefix("guardian ").expect(&line).parse().unwrap();
        scenario
    }

    /// The next line that the supervisor or the command prints.
    pub(crate) fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("a line")
    }

    /// Nothing was printed that was not read.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self.lines.try_recv(), Err(TryRecvError::Empty))
    }

    /// Lines up to this one come, and it does.
    pub(crate) fn says(&self, expected: &str) {
        loop {
            let line = self.line();
            if line == expected {
                return;
            }
            assert!(!line.starts_with("empty"), "it ended without {expected:?}");
        }
    }

    /// The guardian dies; by the time that is said nobody is left, and then the supervisor ends.
    pub(crate) fn ends_with_its_guardian(&mut self) {
        self.says("guardian died");
        assert_eq!(alive(&self.tag), []);
        assert_eq!(self.line(), "empty");
        assert_eq!(self.code(), 70);
    }

    /// The command's own process, once it runs.
    pub(crate) fn command(&self) -> i32 {
        let line = self.line();
        line.strip_prefix("started ").expect(&line).parse().unwrap()
    }

    pub(crate) fn pid(&self) -> i32 {
        self.supervisor.id() as i32
    }

    /// The supervisor's exit status.
    pub(crate) fn code(&mut self) -> i32 {
        let mut status = None;
        comes_true("the supervisor ends", || {
            status = self.supervisor.try_wait().unwrap();
            status.is_some()
        });
        status.and_then(|status| status.code()).expect("an exit status")
    }

    /// These kinds of processes are there, and nobody else, and each has settled.
    pub(crate) fn processes_are(&self, expected: &[&str]) {
        let ready = |pid| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "ready\n");
        comes_true(&format!("{expected:?} are there"), || {
            kinds(&self.tag) == expected && alive(&self.tag).into_iter().all(|(pid, _)| ready(pid))
        });
    }

    /// Nobody is left.
    pub(crate) fn no_process_is_left(&self) {
        comes_true("nobody is left", || alive(&self.tag).is_empty());
    }
}

impl Drop for Scenario {
    fn drop(&mut self) {
        let _ = self.supervisor.kill();
        let _ = self.supervisor.wait();
        for pid in [self.guardian].into_iter().chain(alive(&self.tag).into_iter().map(|(pid, _)| pid)) {
            if pid > 0 && is_running(pid) {
                kill(pid, Signal::KILL);
            }
        }
    }
}

fn new_tag() -> String {
    format!("scenario-{}-{}", std::process::id(), SCENARIOS.fetch_add(1, Ordering::Relaxed))
}

/// Living processes with this tag: pid and kind. The supervisor itself is none of them.
pub(crate) fn alive(tag: &str) -> Vec<(i32, String)> {
    let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: i32| {
        // A zombie's is empty.
        let line = fs::read_to_string(PathBuf::from(format!("/proc/{pid}/cmdline"))).ok()?;
        let words: Vec<&str> = line.split_terminator('\0').collect();
        let kind = words.iter().position(|word| *word == "nasty").and_then(|at| words.get(at + 1))?;
        let counts =
            words.contains(&tag) && !words.iter().any(|word| ["supervise", "session", "session-shell"].contains(word));
        counts.then(|| (pid, kind.to_string()))
    })
    .collect()
}

/// Their kinds, in order.
pub(crate) fn kinds(tag: &str) -> Vec<String> {
    let mut kinds: Vec<String> = alive(tag).into_iter().map(|(_, kind)| kind).collect();
    kinds.sort_unstable();
    kinds
}

/// Polls until it is so.
pub(crate) fn comes_true(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "timed out: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Neither gone nor a zombie.
pub(crate) fn is_running(pid: i32) -> bool {
    !matches!(state(pid), None | Some('Z' | 'X'))
}

/// The letter that `ps` shows.
pub(crate) fn state(pid: i32) -> Option<char> {
    field(pid, 0)?.chars().next()
}

/// The process that would have to wait for it; none if it is gone, and has been waited for.
#[allow(dead_code, reason = "only faults need it")]
pub(crate) fn parent(pid: i32) -> Option<i32> {
    field(pid, 1)?.parse().ok()
}

/// A field after the name.
fn field(pid: i32, number: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat[stat.rfind(')')? + 1..].split_ascii_whitespace().nth(number).map(str::to_owned)
}

pub(crate) fn kill(pid: i32, signal: Signal) {
    rustix::process::kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// SIGSTOP, until it is seen to be stopped.
#[allow(dead_code, reason = "only faults need it")]
pub(crate) fn stop_and_wait(pid: i32) {
    kill(pid, Signal::STOP);
    comes_true("it is stopped", || state(pid) == Some('T'));
}

/// A supervisor of this command ends with this status.
#[allow(dead_code, reason = "each test program uses some of these")]
pub(crate) fn exits_with(code: i32, words: &[&str], command: &[&str]) {
    let mut scenario = Scenario::run(words, command);
    scenario.says("empty");
    assert_eq!(scenario.code(), code, "{command:?}");
}
