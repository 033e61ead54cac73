//! What a supervised command sees and how it ends, with real processes. The faults are in
//! `faults.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "all of this is a test, though it has no test harness")]

mod support;

use std::io::Write;
use std::process::{Command, Stdio};

use incumbent_guardian::STOPPED;
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use support::{HORDE, Scenario, alive, comes_true, exits_with, is_running, kill};

fn main() {
    incumbent_guardian::main_if_guardian();
    support::run_role();
    support::run(&[
        ("the_exit_status_is_the_commands_own", the_exit_status_is_the_commands_own),
        ("an_ignored_sigchld_hides_nothing", an_ignored_sigchld_hides_nothing),
        ("a_command_that_cannot_be_run_ends_as_in_a_shell", a_command_that_cannot_be_run_ends_as_in_a_shell),
        ("the_command_has_our_input_environment_and_no_more", the_command_has_our_input_environment_and_no_more),
        ("a_quiet_command_has_no_input_and_is_not_heard", a_quiet_command_has_no_input_and_is_not_heard),
        ("a_command_that_hears_sigterm_ends_by_itself", a_command_that_hears_sigterm_ends_by_itself),
        ("a_command_deaf_to_sigterm_is_killed_after_the_grace", a_command_deaf_to_sigterm_is_killed_after_the_grace),
        ("a_second_sigterm_kills_at_once", a_second_sigterm_kills_at_once),
        ("signals_reach_the_command", signals_reach_the_command),
        ("a_deadline_that_is_not_renewed_kills_everyone", a_deadline_that_is_not_renewed_kills_everyone),
        ("a_renewed_command_outlives_its_deadlines", a_renewed_command_outlives_its_deadlines),
        ("a_deadline_in_the_past_starts_nothing", a_deadline_in_the_past_starts_nothing),
        ("leftovers_are_gone_before_empty_is_said", leftovers_are_gone_before_empty_is_said),
        ("what_a_command_starts_while_it_is_stopped_is_stopped", what_a_command_starts_while_it_is_stopped_is_stopped),
        ("a_killed_supervisor_takes_everyone_along", a_killed_supervisor_takes_everyone_along),
        ("a_dropped_handle_takes_everyone_along", a_dropped_handle_takes_everyone_along),
        ("a_held_lock_is_free_only_when_nobody_is_left", a_held_lock_is_free_only_when_nobody_is_left),
        ("the_last_word_of_a_guardian_is_that_nobody_is_left", the_last_word_of_a_guardian_is_that_nobody_is_left),
        ("a_guardian_that_was_killed_has_no_last_word", a_guardian_that_was_killed_has_no_last_word),
    ])
}

fn the_exit_status_is_the_commands_own() {
    exits_with(0, &[], &["true"]);
    exits_with(7, &[], &["sh", "-c", "exit 7"]);
    exits_with(127, &[], &["sh", "-c", "exit 127"]);
    exits_with(128 + 9, &[], &["sh", "-c", "kill -9 $$"]);
    // A real-time signal, which few libraries have a name for.
    exits_with(128 + 40, &[], &["sh", "-c", "kill -40 $$"]);
}

fn an_ignored_sigchld_hides_nothing() {
    let mut program = Command::new("env");
    program.arg("--ignore-signal=CHLD").arg(std::env::current_exe().unwrap());
    program.args(["supervise", "grace=50", "--", "sh", "-c", "sleep 1000 & exit 7"]);
    let mut scenario = Scenario::start("ignored", program);
    scenario.says("exited 7");
    scenario.says("empty");
    assert_eq!(scenario.code(), 7);
}

fn a_command_that_cannot_be_run_ends_as_in_a_shell() {
    exits_with(127, &[], &["there-is-no-such-program"]);
    exits_with(127, &[], &["/there/is/no/such/program"]);
    exits_with(126, &[], &["/dev/null"]);
    exits_with(126, &["cwd=/there/is/no/such/directory"], &["true"]);
    let mut scenario = Scenario::run(&["cwd=/proc"], &["sh", "-c", "pwd"]);
    scenario.says("/proc");
    assert_eq!(scenario.code(), 0);
}

fn the_command_has_our_input_environment_and_no_more() {
    // The same signals blocked and ignored, and the same descriptors open, as without a guardian.
    let script = r#"read line; echo "$line $INCUMBENT_TOKEN"; grep -E 'Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd | tr '\n' ' '; echo"#;
    let mut alone = Command::new("sh");
    alone.args(["-c", script]).env("INCUMBENT_TOKEN", "17").stdin(Stdio::piped());
    let mut scenario = Scenario::run(&[], &["sh", "-c", script]);
    let mut alone = alone.stdout(Stdio::piped()).spawn().unwrap();
    alone.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    let expected = String::from_utf8(alone.wait_with_output().unwrap().stdout).unwrap();
    assert!(expected.starts_with("hello 17\nSigBlk:\t0000000000000000\nSigIgn:"), "{expected}");
    scenario.command();
    scenario.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    expected.lines().for_each(|line| assert_eq!(scenario.line(), line));
    assert_eq!(scenario.code(), 0);
}

fn a_quiet_command_has_no_input_and_is_not_heard() {
    // Our own input stays open: one that had it would never end.
    let mut scenario = Scenario::run(&["quiet"], &["sh", "-c", "echo heard; cat; exit 5"]);
    scenario.command();
    scenario.says("exited 5");
    scenario.says("empty");
    assert_eq!(scenario.code(), 5);
}

fn a_command_that_hears_sigterm_ends_by_itself() {
    let mut scenario =
        Scenario::run(&[], &["sh", "-c", "trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done"]);
    scenario.says("ready");
    kill(scenario.pid(), Signal::TERM);
    scenario.says("exited 3");
    scenario.says("empty");
    assert_eq!(scenario.code(), 3);
}

fn a_command_deaf_to_sigterm_is_killed_after_the_grace() {
    let mut scenario = Scenario::of(&["grace=50"], "parent");
    scenario.processes_are(&["closed", "deaf", "idle", "parent"]);
    kill(scenario.pid(), Signal::TERM);
    scenario.says("exited 137");
    scenario.says("empty");
    assert_eq!(alive(&scenario.tag), []);
    assert_eq!(scenario.code(), 137);
}

fn a_second_sigterm_kills_at_once() {
    let mut scenario = Scenario::of(&[], "parent");
    scenario.processes_are(&["closed", "deaf", "idle", "parent"]);
    kill(scenario.pid(), Signal::TERM);
    // The first has come through: the processes that could hear it have gone.
    scenario.processes_are(&["deaf", "parent"]);
    kill(scenario.pid(), Signal::INT);
    scenario.says("empty");
    assert_eq!(alive(&scenario.tag), []);
    assert_eq!(scenario.code(), 137);
}

fn signals_reach_the_command() {
    let mut scenario =
        Scenario::run(&[], &["sh", "-c", "trap 'echo heard; exit 4' USR1; echo ready; while :; do sleep 0.01; done"]);
    scenario.says("ready");
    kill(scenario.pid(), Signal::USR1);
    scenario.says("heard");
    assert_eq!(scenario.code(), 4);
}

fn a_deadline_that_is_not_renewed_kills_everyone() {
    let mut scenario = Scenario::of(&["ttl=5000"], "horde");
    scenario.says("exited 137");
    scenario.says("empty");
    assert_eq!(alive(&scenario.tag), []);
    assert_eq!(scenario.code(), 137);
}

fn a_renewed_command_outlives_its_deadlines() {
    // It counts the time-to-live by its own clock: more than two of them, and nobody has killed it.
    let mut scenario = Scenario::run(&["ttl=3000", "renew"], &["sh", "-c", "sleep 7; exit 5"]);
    scenario.says("exited 5");
    assert_eq!(scenario.code(), 5);
}

fn a_deadline_in_the_past_starts_nothing() {
    let mut scenario = Scenario::run(&["ttl=0"], &["sh", "-c", "echo it ran"]);
    let line = scenario.line();
    assert!(line.starts_with("not started: its deadline has passed"), "{line}");
    assert_eq!(scenario.line(), "empty");
    assert_eq!(scenario.code(), 125);
}

fn leftovers_are_gone_before_empty_is_said() {
    let mut scenario = Scenario::of(&["grace=50", "runs=3"], "leaver");
    for _ in 0..3 {
        scenario.command();
        scenario.says("exited 7");
        // The next run comes after this, and only after this.
        assert_eq!(scenario.line(), "empty");
    }
    assert_eq!(alive(&scenario.tag), []);
    assert_eq!(scenario.code(), 7);
}

/// It was not there when SIGTERM was sent, and would last for the whole grace.
fn what_a_command_starts_while_it_is_stopped_is_stopped() {
    let line = "trap 'sleep 1000 & exit 3' TERM; echo ready; while sleep 0.02; do :; done";
    let mut scenario = Scenario::run(&["grace=3600000"], &["sh", "-c", line]);
    scenario.says("ready");
    kill(scenario.pid(), Signal::TERM);
    scenario.says("exited 3");
    scenario.says("empty");
    assert_eq!(scenario.code(), 3);
}

fn a_killed_supervisor_takes_everyone_along() {
    let mut scenario = Scenario::of(&[], "horde");
    scenario.processes_are(HORDE);
    scenario.supervisor.kill().unwrap();
    scenario.no_process_is_left();
    comes_true("the guardian ends", || !is_running(scenario.guardian));
}

fn a_dropped_handle_takes_everyone_along() {
    let mut scenario = Scenario::of(&["drop"], "horde");
    scenario.processes_are(HORDE);
    let mut stdin = scenario.stdin.take().unwrap();
    stdin.write_all(b"drop it\n").unwrap();
    scenario.says("dropped");
    scenario.no_process_is_left();
    comes_true("the guardian ends", || !is_running(scenario.guardian));
    // And is waited for: the supervisor lives on.
    comes_true("the guardian is no zombie", || !std::fs::exists(format!("/proc/{}", scenario.guardian)).unwrap());
    stdin.write_all(b"end\n").unwrap();
    assert_eq!(scenario.code(), 0);
}

fn a_held_lock_is_free_only_when_nobody_is_left() {
    let path = std::env::temp_dir().join(format!("incumbent-guardian-lock-{}", std::process::id()));
    let mut scenario = Scenario::of(&[&format!("lock={}", path.display())], "horde");
    scenario.processes_are(HORDE);
    let lock = std::fs::File::open(&path).unwrap();
    assert!(flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err(), "the office is taken");
    scenario.supervisor.kill().unwrap();
    comes_true("the office is free", || flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok());
    assert_eq!(alive(&scenario.tag), []);
    std::fs::remove_file(path).unwrap();
}

fn the_last_word_of_a_guardian_is_that_nobody_is_left() {
    let path = std::env::temp_dir().join(format!("incumbent-guardian-word-{}", std::process::id()));
    let mut scenario = Scenario::of(&[&format!("word={}", path.display())], "horde");
    scenario.processes_are(HORDE);
    assert_eq!(std::fs::read(&path).unwrap(), b"", "it has not ended");
    scenario.supervisor.kill().unwrap();
    comes_true("the guardian has said so", || std::fs::read(&path).unwrap() == STOPPED);
    assert_eq!(alive(&scenario.tag), []);
    std::fs::remove_file(path).unwrap();
}

fn a_guardian_that_was_killed_has_no_last_word() {
    let path = std::env::temp_dir().join(format!("incumbent-guardian-silent-{}", std::process::id()));
    let mut scenario = Scenario::of(&[&format!("word={}", path.display())], "horde");
    scenario.processes_are(HORDE);
    kill(scenario.guardian, Signal::KILL);
    scenario.says("guardian died");
    scenario.says("empty");
    assert_eq!(scenario.code(), 70);
    assert_eq!(std::fs::read(&path).unwrap(), b"");
    std::fs::remove_file(path).unwrap();
}
