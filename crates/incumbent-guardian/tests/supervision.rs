//! What a supervised command sees and how it ends, with real processes. The faults are in `faults.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "all of this is a test, though it has no test harness")]

mod theatre;

use std::io::Write;
use std::process::{Command, Stdio};

use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use theatre::{HORDE, Show, alive, comes_true, exits_with, is_running, kill};

fn main() {
    incumbent_guardian::main_if_guardian();
    theatre::play_part();
    theatre::run(&[
        ("the_exit_status_is_the_commands_own", the_exit_status_is_the_commands_own),
        ("an_ignored_sigchld_hides_nothing", an_ignored_sigchld_hides_nothing),
        ("a_command_that_cannot_be_run_ends_as_in_a_shell", a_command_that_cannot_be_run_ends_as_in_a_shell),
        ("the_command_has_our_input_environment_and_no_more", the_command_has_our_input_environment_and_no_more),
        ("a_command_that_hears_sigterm_ends_by_itself", a_command_that_hears_sigterm_ends_by_itself),
        ("a_command_deaf_to_sigterm_is_killed_after_the_grace", a_command_deaf_to_sigterm_is_killed_after_the_grace),
        ("a_second_sigterm_kills_at_once", a_second_sigterm_kills_at_once),
        ("signals_reach_the_command", signals_reach_the_command),
        ("a_deadline_that_is_not_renewed_kills_everyone", a_deadline_that_is_not_renewed_kills_everyone),
        ("a_renewed_command_outlives_its_deadlines", a_renewed_command_outlives_its_deadlines),
        ("a_deadline_in_the_past_starts_nothing", a_deadline_in_the_past_starts_nothing),
        ("leftovers_are_gone_before_empty_is_said", leftovers_are_gone_before_empty_is_said),
        ("a_killed_supervisor_takes_everyone_along", a_killed_supervisor_takes_everyone_along),
        ("a_dropped_handle_takes_everyone_along", a_dropped_handle_takes_everyone_along),
        ("a_held_lock_is_free_only_when_nobody_is_left", a_held_lock_is_free_only_when_nobody_is_left),
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
    let mut show = Show::start("ignored", program);
    show.says("exited 7");
    show.says("empty");
    assert_eq!(show.code(), 7);
}

fn a_command_that_cannot_be_run_ends_as_in_a_shell() {
    exits_with(127, &[], &["there-is-no-such-program"]);
    exits_with(127, &[], &["/there/is/no/such/program"]);
    exits_with(126, &[], &["/dev/null"]);
    exits_with(126, &["cwd=/there/is/no/such/directory"], &["true"]);
    let mut show = Show::run(&["cwd=/proc"], &["sh", "-c", "pwd"]);
    show.says("/proc");
    assert_eq!(show.code(), 0);
}

fn the_command_has_our_input_environment_and_no_more() {
    // The same signals blocked and ignored, and the same descriptors open, as without a guardian.
    let script = r#"read line; echo "$line $INCUMBENT_TOKEN"; grep -E 'Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd | tr '\n' ' '; echo"#;
    let mut alone = Command::new("sh");
    alone.args(["-c", script]).env("INCUMBENT_TOKEN", "17").stdin(Stdio::piped());
    let mut show = Show::run(&[], &["sh", "-c", script]);
    let mut alone = alone.stdout(Stdio::piped()).spawn().unwrap();
    alone.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    let expected = String::from_utf8(alone.wait_with_output().unwrap().stdout).unwrap();
    assert!(expected.starts_with("hello 17\nSigBlk:\t0000000000000000\nSigIgn:"), "{expected}");
    show.command();
    show.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    expected.lines().for_each(|line| assert_eq!(show.line(), line));
    assert_eq!(show.code(), 0);
}

fn a_command_that_hears_sigterm_ends_by_itself() {
    let mut show = Show::run(&[], &["sh", "-c", "trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done"]);
    show.says("ready");
    kill(show.pid(), Signal::TERM);
    show.says("exited 3");
    show.says("empty");
    assert_eq!(show.code(), 3);
}

fn a_command_deaf_to_sigterm_is_killed_after_the_grace() {
    let mut show = Show::of(&["grace=50"], "parent");
    show.stage_is_set(&["closed", "deaf", "idle", "parent"]);
    kill(show.pid(), Signal::TERM);
    show.says("exited 137");
    show.says("empty");
    assert_eq!(alive(&show.tag), []);
    assert_eq!(show.code(), 137);
}

fn a_second_sigterm_kills_at_once() {
    let mut show = Show::of(&[], "parent");
    show.stage_is_set(&["closed", "deaf", "idle", "parent"]);
    kill(show.pid(), Signal::TERM);
    // The first has come through: whoever could hear it has gone.
    show.stage_is_set(&["deaf", "parent"]);
    kill(show.pid(), Signal::INT);
    show.says("empty");
    assert_eq!(alive(&show.tag), []);
    assert_eq!(show.code(), 137);
}

fn signals_reach_the_command() {
    let mut show =
        Show::run(&[], &["sh", "-c", "trap 'echo heard; exit 4' USR1; echo ready; while :; do sleep 0.01; done"]);
    show.says("ready");
    kill(show.pid(), Signal::USR1);
    show.says("heard");
    assert_eq!(show.code(), 4);
}

fn a_deadline_that_is_not_renewed_kills_everyone() {
    let mut show = Show::of(&["ttl=5000"], "horde");
    show.says("exited 137");
    show.says("empty");
    assert_eq!(alive(&show.tag), []);
    assert_eq!(show.code(), 137);
}

fn a_renewed_command_outlives_its_deadlines() {
    // It counts the time-to-live by its own clock: more than two of them, and nobody has killed it.
    let mut show = Show::run(&["ttl=3000", "renew"], &["sh", "-c", "sleep 7; exit 5"]);
    show.says("exited 5");
    assert_eq!(show.code(), 5);
}

fn a_deadline_in_the_past_starts_nothing() {
    let mut show = Show::run(&["ttl=0"], &["sh", "-c", "echo it ran"]);
    let line = show.line();
    assert!(line.starts_with("not started: its deadline has passed"), "{line}");
    assert_eq!(show.line(), "empty");
    assert_eq!(show.code(), 125);
}

fn leftovers_are_gone_before_empty_is_said() {
    let mut show = Show::of(&["grace=50", "runs=3"], "leaver");
    for _ in 0..3 {
        show.command();
        show.says("exited 7");
        // The next run comes after this, and only after this.
        assert_eq!(show.line(), "empty");
    }
    assert_eq!(alive(&show.tag), []);
    assert_eq!(show.code(), 7);
}

fn a_killed_supervisor_takes_everyone_along() {
    let mut show = Show::of(&[], "horde");
    show.stage_is_set(HORDE);
    show.supervisor.kill().unwrap();
    show.stage_is_empty();
    comes_true("the guardian ends", || !is_running(show.guardian));
}

fn a_dropped_handle_takes_everyone_along() {
    let mut show = Show::of(&["drop"], "horde");
    show.stage_is_set(HORDE);
    let mut stdin = show.stdin.take().unwrap();
    stdin.write_all(b"drop it\n").unwrap();
    show.says("dropped");
    show.stage_is_empty();
    comes_true("the guardian ends", || !is_running(show.guardian));
    // And is waited for: the supervisor lives on.
    comes_true("the guardian is no zombie", || !std::fs::exists(format!("/proc/{}", show.guardian)).unwrap());
    stdin.write_all(b"end\n").unwrap();
    assert_eq!(show.code(), 0);
}

fn a_held_lock_is_free_only_when_nobody_is_left() {
    let path = std::env::temp_dir().join(format!("incumbent-guardian-lock-{}", std::process::id()));
    let mut show = Show::of(&[&format!("lock={}", path.display())], "horde");
    show.stage_is_set(HORDE);
    let lock = std::fs::File::open(&path).unwrap();
    assert!(flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err(), "the office is taken");
    show.supervisor.kill().unwrap();
    comes_true("the office is free", || flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok());
    assert_eq!(alive(&show.tag), []);
    std::fs::remove_file(path).unwrap();
}
