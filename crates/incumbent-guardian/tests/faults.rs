//! Stopped, killed and misled: no process of a command outlives its leadership. Real processes,
//! real signals.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "all of this is a test, though it has no test harness")]

mod support;

use std::fs::File;
use std::io::Write;
use std::process::Command;

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use support::{HORDE, Scenario, alive, comes_true, is_running, kill, kinds, parent, state, stop_and_wait};

fn main() {
    incumbent_guardian::main_if_guardian();
    support::run_role();
    support::run(&[
        ("a_stopped_supervisor_does_not_keep_its_command_alive", a_stopped_supervisor_does_not_keep_its_command_alive),
        (
            "a_supervisor_stopped_for_less_than_the_deadline_goes_on",
            a_supervisor_stopped_for_less_than_the_deadline_goes_on,
        ),
        ("a_killed_command_takes_its_descendants_along", a_killed_command_takes_its_descendants_along),
        ("a_killed_guardian_leaves_nobody_behind", a_killed_guardian_leaves_nobody_behind),
        (
            "a_supervisor_that_cannot_look_does_not_say_that_nobody_is_left",
            a_supervisor_that_cannot_look_does_not_say_that_nobody_is_left,
        ),
        (
            "a_guardian_killed_at_the_very_start_leaves_nobody_behind",
            a_guardian_killed_at_the_very_start_leaves_nobody_behind,
        ),
        ("a_stopped_guardian_does_not_keep_its_command_alive", a_stopped_guardian_does_not_keep_its_command_alive),
        (
            "a_stopped_guardian_does_not_keep_an_order_from_its_effect",
            a_stopped_guardian_does_not_keep_an_order_from_its_effect,
        ),
        ("a_stopped_guardian_is_woken", a_stopped_guardian_is_woken),
        (
            "a_stopped_guardian_is_woken_by_the_death_of_its_supervisor",
            a_stopped_guardian_is_woken_by_the_death_of_its_supervisor,
        ),
        ("the_command_dies_with_its_guardian_also_unwatched", the_command_dies_with_its_guardian_also_unwatched),
        ("what_outlives_both_of_its_watchers_keeps_the_lock", what_outlives_both_of_its_watchers_keeps_the_lock),
        ("signals_to_the_guardian_do_nothing", signals_to_the_guardian_do_nothing),
        ("a_chain_of_forks_is_caught", a_chain_of_forks_is_caught),
        ("a_stopped_command_is_killed_like_any_other", a_stopped_command_is_killed_like_any_other),
        ("no_two_generations_are_ever_alive_at_once", no_two_generations_are_ever_alive_at_once),
        ("the_terminal_is_lent_and_taken_back", the_terminal_is_lent_and_taken_back),
        ("a_killed_guardian_gives_the_terminal_back", a_killed_guardian_gives_the_terminal_back),
        (
            "a_command_stopped_for_the_terminal_goes_on_when_its_job_has_it",
            a_command_stopped_for_the_terminal_goes_on_when_its_job_has_it,
        ),
        ("process_one_waits_for_every_orphan", process_one_waits_for_every_orphan),
        ("a_supervisor_killed_in_a_container_ends_it", a_supervisor_killed_in_a_container_ends_it),
        (
            "a_guardian_killed_in_a_container_leaves_nobody_behind",
            a_guardian_killed_in_a_container_leaves_nobody_behind,
        ),
    ])
}

fn a_stopped_supervisor_does_not_keep_its_command_alive() {
    let mut scenario = Scenario::of(&["ttl=5000", "renew"], "horde");
    scenario.processes_are(HORDE);
    stop_and_wait(scenario.pid());
    scenario.no_process_is_left();
    assert_eq!(state(scenario.pid()), Some('T'), "it had no part in this");
    // And when it wakes, it learns what has happened.
    kill(scenario.pid(), Signal::CONT);
    scenario.says("exited 137");
    scenario.says("empty");
    assert_eq!(scenario.code(), 137);
}

fn a_supervisor_stopped_for_less_than_the_deadline_goes_on() {
    let mut scenario = Scenario::of(&["renew"], "idle");
    scenario.command();
    scenario.processes_are(&["idle"]);
    stop_and_wait(scenario.pid());
    kill(scenario.pid(), Signal::CONT);
    kill(scenario.pid(), Signal::USR1);
    // The signal was passed on, so both have heard each other again.
    scenario.says("exited 138");
    scenario.says("empty");
    assert_eq!(scenario.code(), 138);
}

fn a_killed_command_takes_its_descendants_along() {
    let mut scenario = Scenario::of(&["grace=50"], "horde");
    let command = scenario.command();
    scenario.processes_are(HORDE);
    kill(command, Signal::KILL);
    scenario.says("exited 137");
    scenario.says("empty");
    assert_eq!(alive(&scenario.tag), []);
    assert_eq!(scenario.code(), 137);
}

fn a_killed_guardian_leaves_nobody_behind() {
    let mut scenario = Scenario::of(&["renew"], "horde");
    scenario.processes_are(HORDE);
    kill(scenario.guardian, Signal::KILL);
    scenario.ends_with_its_guardian();
}

/// Without a descriptor to spare, nobody is found in `/proc`, and nobody can be killed.
fn a_supervisor_that_cannot_look_does_not_say_that_nobody_is_left() {
    let mut scenario = Scenario::of(&["renew"], "horde");
    scenario.processes_are(HORDE);
    // Fewer than it has open, and more than it waits for at once.
    const FEW: u64 = 8;
    let open = std::fs::read_dir(format!("/proc/{}/fd", scenario.pid())).unwrap().count();
    assert!(open > FEW as usize, "{open}");
    let supervisor = Pid::from_raw(scenario.pid());
    let usual = getrlimit(Resource::Nofile);
    prlimit(supervisor, Resource::Nofile, Rlimit { current: Some(FEW), maximum: usual.maximum }).unwrap();
    kill(scenario.guardian, Signal::KILL);
    comes_true("the guardian is buried", || parent(scenario.guardian).is_none());
    prlimit(supervisor, Resource::Nofile, usual).unwrap();
    scenario.ends_with_its_guardian();
}

fn a_guardian_killed_at_the_very_start_leaves_nobody_behind() {
    // The horde is being raised while its guardian dies: each try cuts in elsewhere.
    for _ in 0..20 {
        let mut scenario = Scenario::of(&["renew"], "horde");
        comes_true("somebody is there", || !alive(&scenario.tag).is_empty());
        kill(scenario.guardian, Signal::KILL);
        scenario.says("guardian died");
        assert_eq!(alive(&scenario.tag), []);
        assert_eq!(scenario.code(), 70);
    }
}

fn a_stopped_guardian_does_not_keep_its_command_alive() {
    let mut scenario = Scenario::of(&["renew"], "horde");
    scenario.processes_are(HORDE);
    stop_and_wait(scenario.guardian);
    // The supervisor loses its office: the deadline is now, and the guardian does not answer.
    kill(scenario.pid(), Signal::USR2);
    scenario.ends_with_its_guardian();
}

fn a_stopped_guardian_does_not_keep_an_order_from_its_effect() {
    let mut scenario = Scenario::of(&["grace=50"], "horde");
    scenario.processes_are(HORDE);
    stop_and_wait(scenario.guardian);
    kill(scenario.pid(), Signal::TERM);
    scenario.says("guardian died");
    assert_eq!(alive(&scenario.tag), []);
    assert_eq!(scenario.code(), 70);
}

fn a_stopped_guardian_is_woken() {
    let scenario = Scenario::of(&["ttl=6000", "renew"], "idle");
    scenario.command();
    stop_and_wait(scenario.guardian);
    // An order without an answer, soon enough before the deadline.
    comes_true("it goes on", || state(scenario.guardian) != Some('T'));
    assert_eq!(kinds(&scenario.tag), ["idle"]);
}

fn a_stopped_guardian_is_woken_by_the_death_of_its_supervisor() {
    for both in [false, true] {
        let mut scenario = Scenario::of(&["renew"], "horde");
        scenario.processes_are(HORDE);
        if both {
            stop_and_wait(scenario.pid());
        }
        stop_and_wait(scenario.guardian);
        scenario.supervisor.kill().unwrap();
        scenario.no_process_is_left();
        comes_true("the guardian ends", || !is_running(scenario.guardian));
    }
}

fn the_command_dies_with_its_guardian_also_unwatched() {
    let scenario = Scenario::of(&["renew"], "horde");
    let command = scenario.command();
    scenario.processes_are(HORDE);
    stop_and_wait(scenario.pid());
    kill(scenario.guardian, Signal::KILL);
    comes_true("the command itself ends", || !is_running(command));
    // What it leaves behind is the documented remainder: the end of the scenario takes care of it
    // here.
}

fn what_outlives_both_of_its_watchers_keeps_the_lock() {
    let path = std::env::temp_dir().join(format!("incumbent-guardian-kept-{}", std::process::id()));
    let mut scenario = Scenario::of(&[&format!("lock={}", path.display())], "parent");
    scenario.processes_are(&["closed", "deaf", "idle", "parent"]);
    let lock = File::open(&path).unwrap();
    let is_free = || flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
    stop_and_wait(scenario.pid());
    kill(scenario.guardian, Signal::KILL);
    scenario.supervisor.kill().unwrap();
    scenario.supervisor.wait().unwrap();
    // Its own process has died with the guardian.
    scenario.processes_are(&["closed", "deaf", "idle"]);
    assert!(!is_free());
    for (pid, _) in alive(&scenario.tag).into_iter().filter(|(_, kind)| kind != "closed") {
        assert!(!is_free());
        kill(pid, Signal::KILL);
    }
    comes_true("the lock is free", is_free);
    assert_eq!(kinds(&scenario.tag), ["closed"]);
    std::fs::remove_file(path).unwrap();
}

fn signals_to_the_guardian_do_nothing() {
    let mut scenario = Scenario::of(&["renew", "grace=50"], "idle");
    scenario.command();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::TSTP, Signal::ABORT] {
        kill(scenario.guardian, signal);
    }
    // It still obeys.
    kill(scenario.pid(), Signal::TERM);
    scenario.says("exited 143");
    assert_eq!(scenario.line(), "empty");
    assert_eq!(scenario.code(), 143);
}

fn a_chain_of_forks_is_caught() {
    let mut scenario = Scenario::of(&["grace=600000"], "rabbit");
    scenario.says("exited 0");
    comes_true("it runs", || !alive(&scenario.tag).is_empty());
    kill(scenario.pid(), Signal::TERM);
    kill(scenario.pid(), Signal::INT);
    scenario.says("empty");
    assert_eq!(alive(&scenario.tag), []);
    assert_eq!(scenario.code(), 0);
}

fn a_stopped_command_is_killed_like_any_other() {
    let mut scenario = Scenario::of(&["ttl=5000"], "horde");
    let command = scenario.command();
    stop_and_wait(command);
    scenario.says("exited 137");
    assert_eq!(scenario.line(), "empty");
    assert_eq!(alive(&scenario.tag), []);
    assert_eq!(scenario.code(), 137);
}

fn no_two_generations_are_ever_alive_at_once() {
    // Each run asks whether anybody of the one before can still be seen, and leaves a daemon that
    // is deaf to SIGTERM.
    let exe = std::env::current_exe().unwrap();
    let tag = format!("generations-{}", std::process::id());
    let script = format!(
        "for f in /proc/[0-9]*/cmdline; do {{ tr '\\0' ' ' <$f; }} 2>/dev/null | grep -q '^/proc/self/exe nasty [a-z]* {tag} $' && echo overlap; done
        {} nasty leaver {tag}",
        exe.display()
    );
    let mut scenario = Scenario::with(&tag, &[], &["grace=20", "runs=10"], &["sh", "-c", &script]);
    for _ in 0..10 {
        scenario.command();
        assert_eq!(scenario.line(), "exited 7");
        assert_eq!(scenario.line(), "empty");
    }
    assert_eq!(scenario.code(), 7);
}

/// A new pseudo-terminal: our side, and the other's name.
fn terminal() -> (File, String) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
    (File::from(ours), name)
}

fn the_terminal_is_lent_and_taken_back() {
    let (mut ours, name) = terminal();
    // It can read what is typed, Ctrl-C reaches it and nobody else, and Ctrl-Z does not suspend it.
    let script = "trap 'echo interrupted' INT; echo ready; read line; echo got $line
        until [ \"$line\" = world ]; do read line; done; echo got $line; exit 9";
    // A shell cannot trap what was ignored when it started, and the tests may have been started
    // with interrupts ignored.
    let command = ["env", "--default-signal", "sh", "-c", script];
    let mut scenario = Scenario::with("terminal", &["session", &name], &["grace=50", "runs=2"], &command);
    for _ in 0..2 {
        scenario.says("ready");
        ours.write_all(b"hello\n").unwrap();
        scenario.says("got hello");
        ours.write_all(b"\x03").unwrap();
        scenario.says("interrupted");
        ours.write_all(b"\x1a").unwrap();
        ours.write_all(b"\nworld\n").unwrap();
        scenario.says("got world");
        scenario.says("exited 9");
        assert_eq!(scenario.line(), "empty, and the terminal is ours");
    }
    assert_eq!(scenario.code(), 9);
}

fn a_killed_guardian_gives_the_terminal_back() {
    let (_ours, name) = terminal();
    let script = "echo ready; setsid sleep 1000 & read line";
    let mut scenario = Scenario::with("terminal", &["session", &name], &[], &["sh", "-c", script]);
    scenario.says("ready");
    kill(scenario.guardian, Signal::KILL);
    scenario.says("guardian died");
    assert_eq!(scenario.line(), "empty, and the terminal is ours");
    assert_eq!(scenario.code(), 70);
}

fn a_command_stopped_for_the_terminal_goes_on_when_its_job_has_it() {
    let (mut ours, name) = terminal();
    let script = "read line; echo got $line; exit 9";
    let mut scenario = Scenario::with("job", &["session-shell", &name], &["grace=50"], &["sh", "-c", script]);
    let command = scenario.command();
    comes_true("it is stopped", || state(command) == Some('T'));
    kill(scenario.pid(), Signal::USR1);
    ours.write_all(b"hello\n").unwrap();
    scenario.says("got hello");
    scenario.says("exited 9");
    assert_eq!(scenario.line(), "empty, and the terminal is ours");
    assert_eq!(scenario.code(), 9);
}

/// This program as process 1 of a new PID namespace, and its pid out here.
fn contained(tag: &str, words: &[&str], command: &[&str]) -> (Scenario, i32) {
    let mut program = Command::new("unshare");
    program.args(["--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"]);
    program.arg(std::env::current_exe().unwrap()).arg("supervise").args(words).arg("--").args(command);
    let mut scenario = Scenario::start(tag, program);
    // Its number means something else out here.
    scenario.guardian = 0;
    let init = only_child(scenario.pid());
    (scenario, init)
}

fn only_child(of: i32) -> i32 {
    let children = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap();
    children.trim().parse().expect(&children)
}

fn process_one_waits_for_every_orphan() {
    let exe = std::env::current_exe().unwrap();
    let tag = format!("container-{}", std::process::id());
    let (mut scenario, init) =
        contained(&tag, &[], &["sh", "-c", "trap 'exit 6' TERM; echo ready; while :; do sleep 0.01; done"]);
    scenario.says("ready");
    // Somebody enters the container and leaves an orphan: it can only come to process 1.
    let enter = format!("{} nasty idle {tag} >/dev/null </dev/null &", exe.display());
    let mut enter_namespace = Command::new("nsenter");
    enter_namespace.args([
        "--user",
        "--preserve-credentials",
        "--pid",
        "--target",
        &init.to_string(),
        "sh",
        "-c",
        &enter,
    ]);
    assert!(enter_namespace.status().unwrap().success());
    scenario.processes_are(&["idle"]);
    let orphan = alive(&tag)[0].0;
    comes_true("process 1 has it", || parent(orphan) == Some(init));
    kill(orphan, Signal::KILL);
    comes_true("it is not even a zombie", || parent(orphan).is_none());
    // A signal to process 1 is one to the supervisor, and its exit status that of the container.
    kill(init, Signal::TERM);
    scenario.says("exited 6");
    assert_eq!(scenario.line(), "empty");
    assert_eq!(scenario.code(), 6);
}

fn a_supervisor_killed_in_a_container_ends_it() {
    let exe = std::env::current_exe().unwrap();
    let tag = format!("container-{}", std::process::id());
    let (mut scenario, init) = contained(&tag, &[], &[exe.to_str().unwrap(), "nasty", "horde", &tag]);
    scenario.processes_are(HORDE);
    kill(only_child(init), Signal::KILL);
    assert_eq!(scenario.code(), 137);
    scenario.no_process_is_left();
}

/// In there the supervisor's session and process group have no number: they were made out here.
fn a_guardian_killed_in_a_container_leaves_nobody_behind() {
    let exe = std::env::current_exe().unwrap();
    let tag = format!("container-{}", std::process::id());
    let (mut scenario, init) = contained(&tag, &[], &[exe.to_str().unwrap(), "nasty", "horde", &tag]);
    scenario.processes_are(HORDE);
    kill(only_child(only_child(init)), Signal::KILL);
    scenario.says("guardian died");
    assert_eq!(scenario.line(), "empty");
    scenario.no_process_is_left();
    assert_eq!(scenario.code(), 70);
}
