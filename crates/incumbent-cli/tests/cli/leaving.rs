//! A leader that is asked to leave: it hands its office to the best in line first, while its work
//! goes on.

use std::os::unix::net::UnixDatagram;

use rustix::process::Signal;

use crate::host::{Host, PATIENCE, Process, stop};

/// Beyond the patience of any test: it fails if this is waited for.
const FOR_EVER: &str = "20m";

/// A leader at work, whose heir is stopped and does not get ready.
fn before_a_stopped_heir(host: &Host, more: &[&str]) -> (Process, Process) {
    let leader = host.start_lonely("a", more);
    host.until_logged("start 1 a");
    let heir = host.start_lonely("b", &[]);
    host.until_in_line("jobs/x", &["a", "b"]);
    stop(heir.pid());
    (leader, heir)
}

#[test]
fn sigterm_hands_the_office_to_the_best_in_line_while_the_command_works() {
    let host = Host::new();
    let mut leader = host.start_lonely("a", &["--leave-within", FOR_EVER]);
    host.until_logged("start 1 a");
    let names = ["a", "b", "c", "d"];
    let mut others = Vec::new();
    for (place, (name, priority)) in [("b", "0"), ("c", "5"), ("d", "-1")].into_iter().enumerate() {
        others.push(host.start_lonely(name, &["--priority", priority]));
        host.until_in_line("jobs/x", &names[..place + 2]);
    }
    leader.signal(Signal::TERM);
    leader.until_said("looking for one to take the office");
    leader.until_said("stopping the command: the office was transferred");
    assert_eq!(leader.wait(), Some(0), "as its command did");
    // Not b, which was next; and it is back in line.
    host.until_logged("start 3 c");
    host.until_in_line("jobs/x", &["c", "d", "b"]);
    assert_eq!(host.log(), ["start 1 a", "stop 1 a", "start 3 c"]);
}

#[test]
fn one_with_nobody_behind_it_leaves_at_once() {
    let host = Host::new();
    let mut leader = host.start_lonely("a", &["--leave-within", FOR_EVER]);
    host.until_logged("start 1 a");
    leader.signal(Signal::TERM);
    leader.until_said("nobody takes the office: nobody else in line could take the office");
    assert_eq!(leader.wait(), Some(0));
    assert_eq!(host.log(), ["start 1 a", "stop 1 a"]);
}

#[test]
fn an_heir_that_does_not_get_ready_is_not_waited_for_longer_than_that() {
    let host = Host::new();
    let (mut leader, _heir) = before_a_stopped_heir(&host, &["--leave-within", "300ms"]);
    leader.signal(Signal::TERM);
    leader.until_said("nobody takes the office: the heir was not next in line and ready in time");
    assert_eq!(leader.wait(), Some(0));
    assert_eq!(host.log(), ["start 1 a", "stop 1 a"]);
}

#[test]
fn a_second_sigterm_skips_the_heir_and_a_third_one_kills() {
    let host = Host::new();
    let (mut leader, _heir) = before_a_stopped_heir(&host, &["--leave-within", FOR_EVER]);
    leader.signal(Signal::TERM);
    leader.until_said("looking for one to take the office");
    assert_eq!(host.log(), ["start 1 a"], "it works on");
    leader.signal(Signal::TERM);
    assert_eq!(leader.wait(), Some(0));
    assert_eq!(host.log(), ["start 1 a", "stop 1 a"]);
    // What it had asked for is of no use to anybody.
    host.until_in_line("jobs/x", &["b"]);

    let host = Host::new();
    let line = "trap 'echo asked' TERM; echo up; while :; do sleep 0.05; done";
    let run = ["run", "--name", "a", "--ttl", "2h", "--grace", FOR_EVER, "--leave-within", FOR_EVER, "jobs/x"];
    let mut leader = host.start(run.into_iter().chain(["--shell", "--", line]));
    assert_eq!(leader.line(), "up");
    let heir = host.start_lonely("b", &["--ttl", "2h"]);
    host.until_in_line("jobs/x", &["a", "b"]);
    stop(heir.pid());
    leader.signal(Signal::TERM);
    leader.until_said("looking for one to take the office");
    leader.signal(Signal::TERM);
    assert_eq!(leader.line(), "asked");
    leader.signal(Signal::TERM);
    assert_eq!(leader.wait(), Some(137));
}

#[test]
fn with_no_time_for_it_or_by_ctrl_c_nobody_is_asked() {
    for (signal, within) in [(Signal::TERM, "0"), (Signal::INT, FOR_EVER)] {
        let host = Host::new();
        let (mut leader, _heir) = before_a_stopped_heir(&host, &["--leave-within", within]);
        leader.signal(signal);
        leader.until_said("stopping the command");
        assert_eq!(leader.wait(), Some(0));
        let looked = leader.everything().iter().any(|said| format!("{said:?}").contains("looking for"));
        assert!(!looked, "{:?}", leader.everything());
    }
}

#[test]
fn a_command_that_ends_while_an_heir_is_looked_for_is_not_started_again() {
    let host = Host::new();
    let line = r#"echo up; until test -e "$FOLDER/go"; do sleep 0.02; done; exit 7"#;
    let run = ["run", "--forever", "--name", "a", "--ttl", "10m", "--leave-within", FOR_EVER, "jobs/x"];
    let mut leader = host.start(run.into_iter().chain(["--shell", "--", line]));
    assert_eq!(leader.line(), "up");
    let heir = host.start_lonely("b", &[]);
    host.until_in_line("jobs/x", &["a", "b"]);
    stop(heir.pid());
    leader.signal(Signal::TERM);
    leader.until_said("looking for one to take the office");
    std::fs::write(host.path("go"), "").unwrap();
    assert_eq!(leader.wait(), Some(7));
}

#[test]
fn the_service_manager_is_asked_for_the_time_that_leaving_may_take() {
    let host = Host::new();
    let socket = UnixDatagram::bind(host.path("notify")).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let hear = || {
        let mut bytes = [0; 1024];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    };
    let times = ["--ttl", "10m", "--grace", "90s", "--leave-within", "120s"];
    let run = ["run", "--name", "a"].into_iter().chain(times).chain(["jobs/x", "--shell", "--"]);
    let mut command = host.command(run.chain(["echo up; exec sleep 1000"]));
    command.env("NOTIFY_SOCKET", host.path("notify"));
    let mut leader = Process::start(command);
    assert_eq!(leader.line(), "up");
    let heir = host.start_lonely("b", &[]);
    host.until_in_line("jobs/x", &["a", "b"]);
    stop(heir.pid());
    assert!(hear().starts_with("READY=1\nSTATUS=leading"));
    leader.signal(Signal::TERM);
    assert_eq!(hear(), "STOPPING=1\nEXTEND_TIMEOUT_USEC=215000000", "120 s, the grace and 5 s");
    leader.signal(Signal::TERM);
    assert_eq!(hear(), "EXTEND_TIMEOUT_USEC=95000000");
    assert_eq!(leader.wait(), Some(143));
}

#[test]
fn a_campaign_tells_its_reader_to_stop_once_an_heir_is_ready() {
    let host = Host::new();
    let campaign = ["campaign", "--name", "a", "--ttl", "10m", "--leave-within", FOR_EVER, "jobs/x", "--json"];
    let mut leader = host.start(campaign);
    assert_eq!(leader.json()["event"], "elected");
    let mut heir = host.start(["campaign", "--name", "b", "jobs/x", "--json"]);
    assert_eq!(heir.json()["event"], "following");
    leader.signal(Signal::TERM);
    let stopping = leader.json();
    assert_eq!((&stopping["event"], &stopping["reason"]), (&"stopping".into(), &"transferred".into()));
    // The grace is longer than any test is patient: the reader says that its work has stopped.
    assert_eq!(host.line("jobs/x"), ["a", "b"]);
    drop(leader.stdin.take());
    assert_eq!(leader.json()["event"], "resigned");
    assert_eq!(leader.wait(), Some(0));
    assert_eq!(heir.json()["event"], "elected");
}

#[test]
fn a_campaign_with_nobody_behind_it_resigns_at_once_and_so_does_one_that_is_asked_twice() {
    let host = Host::new();
    let campaign = ["campaign", "--name", "a", "--ttl", "10m", "--leave-within", FOR_EVER, "jobs/x", "--json"];
    for has_heir in [false, true] {
        let mut leader = host.start(campaign);
        assert_eq!(leader.json()["event"], "elected");
        let heir = has_heir.then(|| host.start_lonely("b", &[]));
        if let Some(heir) = &heir {
            host.until_in_line("jobs/x", &["a", "b"]);
            stop(heir.pid());
        }
        leader.signal(Signal::TERM);
        if has_heir {
            leader.until_said("looking for one to take the office");
            leader.signal(Signal::TERM);
        }
        assert_eq!(leader.json()["event"], "resigned");
        assert_eq!(leader.wait(), Some(0));
    }
}
