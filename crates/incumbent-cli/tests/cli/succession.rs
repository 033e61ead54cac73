//! Whatever is killed or stopped, the next command starts, and never beside the one before.

use std::collections::BTreeMap;

use rustix::process::{Signal, kill_process};

use crate::host::{Host, Process, children, eventually, in_time, stop};

/// A leader whose command runs, and a follower.
fn pair(host: &Host) -> (Process, Process) {
    pair_with(host, &[])
}

fn pair_with(host: &Host, more: &[&str]) -> (Process, Process) {
    let a = host.start_lonely("a", more);
    host.until_logged("start 1 a");
    let b = host.start_lonely("b", more);
    host.until_in_line("jobs/x", &["a", "b"]);
    (a, b)
}

/// Waits for a command of b.
fn until_b_starts(host: &Host, a: &mut Process, b: &mut Process) {
    let started = |line: &String| line.starts_with("start ") && line.ends_with(" b");
    if in_time(|| host.log().iter().any(started).then_some(())).is_none() {
        let (said_a, said_b, line) = (a.everything(), b.everything(), host.run(["candidates", "jobs/x"]));
        panic!("b's command never started: {:?}; a said {said_a:?}, b said {said_b:?}; {line:?}", host.log());
    }
}

fn assert_never_two(host: &Host) {
    let log = host.log();
    assert!(!log.iter().any(|line| line.starts_with("overlap")), "{log:?}");
    let tokens: Vec<u64> = log.iter().filter(|line| line.starts_with("start")).map(|line| token(line)).collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{log:?}");
}

fn token(line: &str) -> u64 {
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn kill_9_of_the_leader_starts_the_followers_command() {
    let host = Host::new();
    let (mut a, mut b) = pair(&host);
    a.signal(Signal::KILL);
    assert_eq!(a.wait(), None);
    until_b_starts(&host, &mut a, &mut b);
    assert_never_two(&host);
}

#[test]
fn kill_9_of_a_leader_whose_command_hides_is_no_different() {
    let host = Host::new();
    // It forks twice, has a session of its own, ignores SIGTERM, and keeps only the lock open.
    let line = r#"
        exec 9>>"$FOLDER/lock"
        flock -n 9 || { echo "overlap $INCUMBENT_TOKEN" >>"$FOLDER/log"; exit 99; }
        ( setsid sh -c 'trap "" TERM HUP INT; echo "start $INCUMBENT_TOKEN $INCUMBENT_NAME" >>"$FOLDER/log"; sleep 1000' \
            </dev/null >/dev/null 2>&1 & )
        sleep 1000"#;
    let start = |name: &str| host.start(["run", "--ttl", "10m", "--name", name, "jobs/x", "--shell", "--", line]);
    let mut a = start("a");
    host.until_logged("start 1 a");
    let mut b = start("b");
    host.until_in_line("jobs/x", &["a", "b"]);
    a.signal(Signal::KILL);
    until_b_starts(&host, &mut a, &mut b);
    assert_never_two(&host);
}

#[test]
fn kill_9_of_the_guardian_ends_the_command_and_the_leader_goes_back_in_line() {
    let host = Host::new();
    let (mut a, mut b) = pair(&host);
    let guardian = children(a.pid());
    assert_eq!(guardian.len(), 1, "{guardian:?}");
    kill_process(guardian[0], Signal::KILL).unwrap();
    a.until_said("the guardian was killed");
    until_b_starts(&host, &mut a, &mut b);
    host.until_in_line("jobs/x", &["b", "a"]);
    // With another guardian it can lead again.
    host.ok(["transfer", "jobs/x", "--to", "a"]);
    eventually("a second command of a", || {
        host.log().iter().any(|line| line.starts_with("start") && line.ends_with('a') && token(line) > 1).then_some(())
    });
    assert_never_two(&host);
}

#[test]
fn kill_9_of_the_command_ends_its_leader_and_starts_the_followers() {
    let host = Host::new();
    let (mut a, mut b) = pair(&host);
    let guardian = children(a.pid());
    let command = children(guardian[0]);
    assert_eq!(command.len(), 1, "{command:?}");
    kill_process(command[0], Signal::KILL).unwrap();
    assert_eq!(a.wait(), Some(137));
    until_b_starts(&host, &mut a, &mut b);
    assert_never_two(&host);
}

#[test]
fn a_stopped_leader_is_replaced_after_the_ttl_and_its_command_is_gone_by_then() {
    let host = Host::new();
    let (mut a, mut b) = pair_with(&host, &["--ttl", "5s"]);
    stop(a.pid());
    // Its guardian has killed the command: else the follower's would not get the lock.
    until_b_starts(&host, &mut a, &mut b);
    a.signal(Signal::CONT);
    a.until_said("a is in line for jobs/x, behind b");
    host.until_in_line("jobs/x", &["b", "a"]);
    assert_never_two(&host);
}

#[test]
fn a_leader_that_is_stopped_for_less_than_the_ttl_leads_on() {
    let host = Host::new();
    let mut a = host.start_lonely("a", &[]);
    host.until_logged("start 1 a");
    stop(a.pid());
    let mut b = host.start_lonely("b", &[]);
    host.until_in_line("jobs/x", &["a", "b"]);
    a.signal(Signal::CONT);
    host.ok(["transfer", "jobs/x", "--to", "b"]);
    until_b_starts(&host, &mut a, &mut b);
    assert_eq!(host.log()[..2], ["start 1 a", "stop 1 a"]);
    assert_never_two(&host);
}

#[test]
fn a_transfer_back_and_forth_never_has_two_commands() {
    let host = Host::new();
    let (_a, _b) = pair(&host);
    for heir in ["b", "a", "b"] {
        let led = host.ok(["transfer", "jobs/x", "--to", heir, "--json"]).json();
        assert_eq!(led["leader"]["name"], heir);
        // A term can be over before its command was started: the next transfer waits for that.
        host.until_logged(&format!("start {} {heir}", led["leader"]["token"]));
        eventually("both in line", || (host.line("jobs/x").len() == 2).then_some(()));
    }
    let log = host.log();
    assert_eq!(log.iter().filter(|line| line.starts_with("start")).count(), 4, "{log:?}");
    assert_never_two(&host);
}

#[test]
fn a_guardian_that_was_stopped_still_ends_the_command_of_a_killed_leader() {
    let host = Host::new();
    let (mut a, mut b) = pair(&host);
    let guardian = children(a.pid())[0];
    stop(guardian);
    a.signal(Signal::KILL);
    assert_eq!(a.wait(), None);
    // With so long a TTL, the office is free only if the guardian has given it up.
    until_b_starts(&host, &mut a, &mut b);
    assert_never_two(&host);
}

#[test]
fn what_outlives_its_killed_leader_and_guardian_keeps_the_office_from_the_next() {
    let host = Host::new();
    let (mut a, b) = pair(&host);
    let guardian = children(a.pid())[0];
    let command = children(guardian)[0];
    let child = eventually("a child of the command", || children(command).first().copied());
    // Both at once, as far as anybody can tell: a leader that is stopped cannot clean up after its
    // guardian.
    stop(a.pid());
    kill_process(guardian, Signal::KILL).unwrap();
    a.signal(Signal::KILL);
    assert_eq!(a.wait(), None);
    for _ in 0..20 {
        assert_eq!(host.leader("jobs/x"), Some(("a".into(), 1)));
    }
    assert_eq!(host.log(), ["start 1 a"]);
    kill_process(child, Signal::KILL).unwrap();
    // The descriptors of a dying process are closed one after the other: the office may be free a
    // moment before the lock that its command took itself, so that b's may call this an overlap.
    eventually("a command of b", || (host.log().len() > 1).then_some(()));
    assert!(host.log()[1].ends_with(" b"), "{:?}", host.log());
    drop(b);
}

/// Restarts five candidates one after the other, in the order that `candidates` lists them with
/// these options, and says how often the office has changed.
fn rolling_restart(options: &[&str]) -> usize {
    let host = Host::new();
    let mut line = vec!["a", "b", "c", "d", "e"];
    let mut running = BTreeMap::new();
    for (place, name) in line.iter().enumerate() {
        running.insert(*name, host.start_lonely(name, &[]));
        host.until_in_line("jobs/x", &line[..=place]);
    }
    let listed = host.ok(["candidates", "jobs/x", "--json"].iter().chain(options)).json();
    for one in listed["candidates"].as_array().unwrap() {
        let place = line.iter().position(|name| *name == one["name"]).unwrap();
        let name = line.remove(place);
        let mut restarted = running.remove(name).unwrap();
        restarted.signal(Signal::TERM);
        restarted.wait();
        if place == 0 {
            restarted.until_ever_said("the office was transferred");
        }
        host.until_in_line("jobs/x", &line);
        eventually("the first in line at work", || {
            let started = host.log().into_iter().rfind(|said| said.starts_with("start"))?;
            started.ends_with(&format!(" {}", line[0])).then_some(())
        });
        running.insert(name, host.start_lonely(name, &[]));
        line.push(name);
        host.until_in_line("jobs/x", &line);
    }
    assert_never_two(&host);
    host.log().iter().filter(|said| said.starts_with("start")).count() - 1
}

#[test]
fn a_rolling_restart_of_five_moves_the_office_once_with_the_leader_last_and_five_times_in_line_order() {
    assert_eq!(rolling_restart(&["--restart-order"]), 1);
    assert_eq!(rolling_restart(&[]), 5);
}

#[test]
fn status_shows_the_priority_of_the_leader() {
    let host = Host::new();
    let _leader = host.start(["run", "--name", "a", "--priority", "5", "jobs/x", "--", "sleep", "1000"]);
    host.until_in_line("jobs/x", &["a"]);
    let said = host.ok(["status", "jobs/x"]);
    assert!(said.out.contains("a (token 1), priority 5"), "{said:?}");
}
