//! What signals to `incumbent run` do.

use rustix::process::Signal;

use crate::host::{Host, Process, children, stop};

#[test]
fn sigterm_stops_the_command_then_releases_the_office() {
    let host = Host::new();
    let mut leader = host.start_lonely("a", &[]);
    host.until_logged("start 1 a");
    leader.signal(Signal::TERM);
    assert_eq!(leader.wait(), Some(0), "its command ends with 0 when it is stopped");
    assert_eq!(host.log(), ["start 1 a", "stop 1 a"]);
    assert_eq!(host.leader("jobs/x"), None);

    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 143)] {
        let mut plain = host.start(["run", "jobs/x", "--", "sh", "-c", "echo up; exec sleep 1000"]);
        assert_eq!(plain.line(), "up");
        plain.signal(signal);
        assert_eq!(plain.wait(), Some(code), "the command is stopped by SIGTERM, whatever was asked for");
    }
}

/// As a service manager stops a process that is suspended.
#[test]
fn a_suspended_leader_that_is_asked_to_leave_leaves_when_it_goes_on() {
    let host = Host::new();
    let mut leader = host.start_lonely("a", &["--ttl", "1s"]);
    host.until_logged("start 1 a");
    let mut next = host.start_lonely("b", &["--ttl", "1s"]);
    host.until_in_line("jobs/x", &["a", "b"]);
    leader.signal(Signal::STOP);
    host.until_logged("start 2 b");
    leader.signal(Signal::TERM);
    leader.signal(Signal::CONT);
    assert!(leader.wait().is_some(), "it was asked once, and that is enough");
    next.signal(Signal::TERM);
    next.wait();
}

#[test]
fn a_command_that_ignores_sigterm_is_killed_after_the_grace() {
    let host = Host::new();
    let line = "trap '' TERM; echo up; while :; do sleep 1000; done";
    let mut leader = host.start(["run", "--grace", "200ms", "jobs/x", "--shell", "--", line]);
    assert_eq!(leader.line(), "up");
    leader.signal(Signal::TERM);
    assert_eq!(leader.wait(), Some(137));
    assert_eq!(host.leader("jobs/x"), None);
}

/// A leader whose command was asked to end, and does not.
fn asked_in_vain(host: &Host) -> Process {
    // So long a grace that a test would fail if it were waited for.
    let line = "trap 'echo asked' TERM; echo up; while :; do sleep 0.05; done";
    let mut leader = host.start(["run", "--ttl", "2h", "--grace", "20m", "jobs/x", "--shell", "--", line]);
    assert_eq!(leader.line(), "up");
    leader.signal(Signal::TERM);
    assert_eq!(leader.line(), "asked");
    leader
}

#[test]
fn a_second_signal_kills_at_once() {
    let host = Host::new();
    let mut leader = asked_in_vain(&host);
    leader.signal(Signal::INT);
    assert_eq!(leader.wait(), Some(137));
}

#[test]
fn a_second_signal_kills_at_once_even_if_the_guardian_does_not() {
    let host = Host::new();
    let mut leader = asked_in_vain(&host);
    stop(children(leader.pid())[0]);
    leader.signal(Signal::INT);
    assert_eq!(leader.wait(), Some(137));
}

#[test]
fn a_follower_that_is_asked_to_leave_does() {
    let host = Host::new();
    let _leader = host.start(["run", "--name", "a", "jobs/x", "--", "sleep", "1000"]);
    host.until_in_line("jobs/x", &["a"]);
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let mut follower = host.start(["run", "--name", "b", "jobs/x", "--", "true"]);
        host.until_in_line("jobs/x", &["a", "b"]);
        follower.signal(signal);
        assert_eq!(follower.wait(), Some(code));
        assert_eq!(host.line("jobs/x"), ["a"]);
    }
}

#[test]
fn other_signals_are_passed_on() {
    let host = Host::new();
    let line = "for s in HUP USR1 USR2 QUIT WINCH; do trap \"echo $s\" $s; done; echo up; while :; do sleep 0.02; done";
    let mut leader = host.start(["run", "jobs/x", "--", "sh", "-c", line]);
    assert_eq!(leader.line(), "up");
    for (signal, name) in [
        (Signal::HUP, "HUP"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::QUIT, "QUIT"),
        (Signal::WINCH, "WINCH"),
    ] {
        leader.signal(signal);
        assert_eq!(leader.line(), name);
    }
    leader.signal(Signal::TERM);
    leader.wait();
}

#[test]
fn a_follower_without_a_terminal_outlives_a_hangup() {
    let host = Host::new();
    let leader = host.start(["run", "--name", "a", "jobs/x", "--", "sleep", "1000"]);
    host.until_in_line("jobs/x", &["a"]);
    let mut follower = host.start(["run", "--name", "b", "jobs/x", "--", "echo", "done"]);
    host.until_in_line("jobs/x", &["a", "b"]);
    follower.signal(Signal::HUP);
    drop(leader);
    assert_eq!(follower.line(), "done");
    assert_eq!(follower.wait(), Some(0));
}

#[test]
fn what_was_ignored_at_the_start_stays_ignored() {
    let host = Host::new();
    let ignoring = ["--ignore-signal=INT,QUIT,HUP"];
    let mut leader = host.start_with(&ignoring, ["run", "jobs/x", "--", "sh", "-c", "echo up; exec sleep 1000"]);
    assert_eq!(leader.line(), "up");
    let mut campaign = host.start_with(&ignoring, ["campaign", "jobs/y"]);
    campaign.line();
    for process in [&leader, &campaign] {
        let ignored = ignored_by(process);
        for signal in [Signal::INT, Signal::QUIT, Signal::HUP] {
            assert!(ignored & (1 << (signal.as_raw() - 1)) != 0, "{signal:?} {ignored:x}");
        }
        process.signal(Signal::INT);
    }
    leader.signal(Signal::TERM);
    assert_eq!(leader.wait(), Some(143));
}

/// The kernel's set of signals that it ignores.
fn ignored_by(process: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid().as_raw_pid())).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap()
}
