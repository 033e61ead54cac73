//! `run` on a terminal: what is typed goes to the command, and Ctrl-C ends whatever runs it, too.

use std::fs::File;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::host::{Host, Process, Spoken, eventually};

const CTRL_C: &[u8] = b"\x03";
const CTRL_BACKSLASH: &[u8] = b"\x1c";

/// The words after `--`.
const SLEEPER: [&str; 4] = ["--", "sh", "-c", "echo up; exec sleep 1000"];

/// Starts it, by way of another program if there is one, in a session with a terminal of its own;
/// and that terminal's other side.
pub(crate) fn on_terminal(host: &Host, by_way_of: &[&str], args: &[&str]) -> (Process, File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let theirs = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    // The tests may have been started with these signals ignored.
    let options = [&["--default-signal=INT,QUIT", "setsid", "--ctty", "--wait"], by_way_of].concat();
    let session = host.by_way_of("env", &options, args);
    (Process::with_input(session, Stdio::from(theirs)), File::from(ours))
}

#[test]
fn ctrl_c_that_ends_the_command_ends_run_forever_of_the_same_signal() {
    for (key, signal) in [(CTRL_C, Signal::INT), (CTRL_BACKSLASH, Signal::QUIT)] {
        let host = Host::new();
        let (mut run, mut keys) = on_terminal(&host, &[], &[&["run", "--forever", "jobs/x"][..], &SLEEPER].concat());
        assert_eq!(run.line(), "up");
        keys.write_all(key).unwrap();
        assert_eq!(run.status().signal(), Some(signal.as_raw()));
        assert_eq!(host.leader("jobs/x"), None);
    }
}

#[test]
fn ctrl_c_that_ends_the_command_ends_the_loop_that_runs_it() {
    let host = Host::new();
    let script = r#"for i in 1 2 3; do "$0" "$@"; done; echo survived"#;
    let (mut shell, mut keys) = on_terminal(&host, &["sh", "-c", script], &[&["run", "jobs/x"][..], &SLEEPER].concat());
    assert_eq!(shell.line(), "up");
    keys.write_all(CTRL_C).unwrap();
    assert_eq!(shell.status().signal(), Some(Signal::INT.as_raw()));
    let said: Vec<_> = shell.everything().into_iter().filter(|spoken| matches!(spoken, Spoken::Out(_))).collect();
    assert_eq!(said, [Spoken::Out("up".into())]);
}

#[test]
fn ctrl_c_ends_a_follower_of_the_same_signal() {
    let host = Host::new();
    let _leader = host.start(["run", "--name", "a", "jobs/x", "--", "sleep", "1000"]);
    host.until_in_line("jobs/x", &["a"]);
    let (mut follower, mut keys) = on_terminal(&host, &[], &[&["run", "--name", "b", "jobs/x"][..], &SLEEPER].concat());
    host.until_in_line("jobs/x", &["a", "b"]);
    keys.write_all(CTRL_C).unwrap();
    assert_eq!(follower.status().signal(), Some(Signal::INT.as_raw()));
    assert_eq!(host.line("jobs/x"), ["a"]);
}

#[test]
fn a_command_that_catches_ctrl_c_and_exits_starts_again_unless_another_ctrl_c_comes_before() {
    let host = Host::new();
    let line = "trap 'exit 0' INT; echo up; while :; do sleep 0.05; done";
    let (mut run, mut keys) = on_terminal(&host, &[], &["run", "--forever", "jobs/x", "--shell", "--", line]);
    assert_eq!(run.line(), "up");
    keys.write_all(CTRL_C).unwrap();
    assert_eq!(run.line(), "up");
    run.until_ever_said("it starts again in 1s, unless you press Ctrl-C before");
    // On a busy machine the second one may come too late, and be the first of the next command.
    let ended = eventually("an end", || {
        keys.write_all(CTRL_C).unwrap();
        run.until_said("it starts again");
        keys.write_all(CTRL_C).unwrap();
        run.ended_within(Duration::from_millis(900))
    });
    assert_eq!(ended.signal(), Some(Signal::INT.as_raw()));
}

#[test]
fn a_command_that_says_130_after_ctrl_c_is_not_started_again() {
    let host = Host::new();
    let line = "trap 'exit 130' INT; echo up; while :; do sleep 0.05; done";
    let (mut run, mut keys) = on_terminal(&host, &[], &["run", "--forever", "jobs/x", "--shell", "--", line]);
    assert_eq!(run.line(), "up");
    keys.write_all(CTRL_C).unwrap();
    assert_eq!(run.wait(), Some(130));
}
