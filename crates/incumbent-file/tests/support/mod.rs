//! Processes that do what they are told, from the side of the test that tells them.

#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

pub(crate) struct TestProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    ended: bool,
}

/// How a process stands after it was told something.
#[derive(Debug, PartialEq)]
pub(crate) enum Told {
    Answer(String),
    /// It ended before it answered.
    Ended,
}

impl TestProcess {
    pub(crate) fn start(store: &Path) -> TestProcess {
        TestProcess::start_with(store, None, &[])
    }

    pub(crate) fn start_with(store: &Path, fault: Option<String>, arguments: &[&str]) -> TestProcess {
        let mut command = Command::new(env!("CARGO_BIN_EXE_incumbent-file-test-process"));
        command.arg(store).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        match fault {
            Some(fault) => command.env("INCUMBENT_FAULT", fault),
            None => command.env_remove("INCUMBENT_FAULT"),
        };
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        TestProcess { child, stdin, stdout, ended: false }
    }

    /// One that goes through a script by itself, and has stopped at a fault on the way, or ended.
    pub(crate) fn stopped_at(store: &Path, fault: &str, script: &[&str]) -> TestProcess {
        let mut process = TestProcess::start_with(store, Some(fault.to_owned()), &[]);
        process.read_on(script);
        process
    }

    /// The rest of its input, up to where it stops or ends.
    pub(crate) fn read_on(&mut self, script: &[&str]) {
        script.iter().for_each(|line| self.tell(line));
        self.end_of_input();
        self.wait_stopped();
    }

    /// Waits until it has stopped or ended. Whether it has stopped.
    pub(crate) fn wait_stopped(&mut self) -> bool {
        let (_, status) = waitpid(Some(self.pid()), WaitOptions::UNTRACED).unwrap().unwrap();
        self.ended = !status.stopped();
        status.stopped()
    }

    /// Lets it go on to its end. Whether it had stopped, and what it answered.
    pub(crate) fn go_on(mut self) -> (bool, Vec<String>) {
        let had_stopped = !self.ended;
        if had_stopped {
            self.signal(Signal::CONT);
        }
        let answers = std::iter::from_fn(|| match self.answer() {
            Told::Answer(answer) => Some(answer),
            Told::Ended => None,
        });
        let answers = answers.collect();
        self.finish();
        (had_stopped, answers)
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Tells it something, without waiting for the answer.
    pub(crate) fn tell(&mut self, what: &str) {
        // It may be dead by now: then there is no answer either.
        let _ = writeln!(self.stdin.as_mut().unwrap(), "{what}");
    }

    pub(crate) fn answer(&mut self) -> Told {
        let mut line = String::new();
        match self.stdout.read_line(&mut line) {
            Ok(0) | Err(_) => Told::Ended,
            Ok(_) => Told::Answer(line.trim_end().to_owned()),
        }
    }

    pub(crate) fn ask(&mut self, what: &str) -> Told {
        self.tell(what);
        self.answer()
    }

    /// Asks for something that must be answered.
    pub(crate) fn must(&mut self, what: &str) -> String {
        match self.ask(what) {
            Told::Answer(answer) => answer,
            Told::Ended => panic!("it ended at {what:?}"),
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Nothing more will be told.
    pub(crate) fn end_of_input(&mut self) {
        self.stdin = None;
    }

    pub(crate) fn kill(mut self) {
        self.end(true);
    }

    /// Lets it end by itself, with its input.
    pub(crate) fn finish(mut self) {
        self.end(false);
    }

    fn end(&mut self, kill: bool) {
        // First of all: at the end of its input it would leave in peace.
        if kill && !self.ended {
            self.signal(Signal::KILL);
        }
        self.stdin = None;
        if self.ended {
            return;
        }
        waitpid(Some(self.pid()), WaitOptions::empty()).unwrap();
        self.ended = true;
    }
}

impl Drop for TestProcess {
    fn drop(&mut self) {
        self.end(true);
    }
}

/// The token in an answer of `enlist`, `standing` or `lead`.
pub(crate) fn token(answer: &str) -> Option<u64> {
    answer.strip_prefix("leading ").or_else(|| answer.strip_prefix("behind ")).and_then(|token| token.parse().ok())
}

/// What is left in a store's directory, except for its identity, its high-water mark and its empty
/// skeleton.
pub(crate) fn leftovers(store: &Path) -> Vec<String> {
    let mut left = Vec::new();
    for entry in std::fs::read_dir(store).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        match name.as_str() {
            "incumbent" => {}
            "high-water-mark" => {
                let names = std::fs::read_dir(entry.path()).unwrap().count();
                assert!(names > 0, "the high-water mark is gone");
            }
            "sessions" | "elections" | "evictions" | "trash" | "waiters" => {
                let inside = std::fs::read_dir(entry.path()).unwrap();
                left.extend(inside.map(|inner| format!("{name}/{:?}", inner.unwrap().file_name())));
            }
            other => left.push(other.to_owned()),
        }
    }
    left
}
