//! The hooks of `campaign`: what is run when an office comes and goes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::host::{Host, Process, Spoken, children, eventually, in_time};

/// Says in the log which hook it is, and all that it was told.
const TELL: &str =
    r#"echo "$INCUMBENT_ELECTION $INCUMBENT_NAME ${INCUMBENT_TOKEN-no} ${INCUMBENT_REASON-no}" >>"$FOLDER/log""#;

/// Holds the lock for as long as anything of it lives, and cannot be asked to end.
const DEAF: &str = r#"exec 9>>"$FOLDER/lock"; flock 9; trap '' TERM; echo elected >>"$FOLDER/log"; sleep 1000; :"#;

/// Whether something of `elected` is left.
const ALONE: &str =
    r#"exec 9>>"$FOLDER/lock"; flock -n 9 && how=alone || how=beside; echo "lost $how" >>"$FOLDER/log""#;

/// How a term comes to its end.
type Way = fn(&Host, &mut Process);

fn told(hook: &str) -> String {
    TELL.replace("echo \"", &format!("echo \"{hook} "))
}

/// Starts one that is in office, so far as its first event says.
fn elected(host: &Host, name: &str, more: &[&str]) -> Process {
    let args = ["campaign", "--name", name, "jobs/x", "--json"].into_iter().chain(more.iter().copied());
    // What this process was told is not for its hooks.
    let mut campaign = host.start_with(&["--default-signal", "INCUMBENT_REASON=old", "INCUMBENT_STORE_ID=old"], args);
    assert_eq!(campaign.json()["event"], "elected");
    campaign
}

fn events_until(campaign: &mut Process, last: &str) -> Vec<Value> {
    let mut events = Vec::new();
    while events.last().is_none_or(|event: &Value| event["event"] != last) {
        events.push(campaign.json());
        assert!(events.len() < 10, "{events:?}");
    }
    events
}

#[test]
fn hooks_come_in_order_and_are_told_of_whom_and_why() {
    let host = Host::new();
    let [on_elected, on_stopping, on_lost] = ["elected", "stopping", "lost"].map(told);
    let noisy = format!("{on_elected}; echo noise; cat; env >\"$FOLDER/env\"; echo ready >>\"$FOLDER/log\"");
    // The grace is longer than any test is patient: the office goes because `stopping` has ended.
    let hooks = ["--ttl", "10m", "--on-elected", &noisy, "--on-stopping", &on_stopping, "--on-lost", &on_lost];
    let mut a = elected(&host, "a", &hooks);
    host.until_logged("ready");
    let mut b = host.start(["campaign", "--name", "b", "jobs/x", "--json"]);
    assert_eq!(b.json()["event"], "following");
    host.ok(["transfer", "jobs/x", "--to", "b"]);
    let events = events_until(&mut a, "following");
    assert_eq!(events[0]["event"], "stopping");
    assert_eq!((&events[1]["event"], &events[1]["reason"]), (&json!("lost"), &json!("transferred")));
    let expected = ["elected jobs/x a 1 no", "ready", "stopping jobs/x a 1 transferred", "lost jobs/x a 1 transferred"];
    host.until_logged("lost");
    assert_eq!(host.log(), expected);

    a.until_ever_said("noise");
    let written = |spoken: &Spoken| matches!(spoken, Spoken::Out(line) if line.contains("noise"));
    assert!(!a.everything().iter().any(written), "standard output is for events");
    let env = fs::read_to_string(host.path("env")).unwrap();
    assert!(!env.contains("INCUMBENT_STORE_ID"), "{env}");
}

#[test]
fn the_office_is_held_until_stopping_has_ended_when_the_input_ends() {
    let host = Host::new();
    let wait = format!("{}; until test -e \"$FOLDER/go\"; do sleep 0.01; done", told("stopping"));
    let on_lost = told("lost");
    let mut a = elected(&host, "a", &["--ttl", "10m", "--on-stopping", &wait, "--on-lost", &on_lost]);
    drop(a.stdin.take());
    assert_eq!(host.until_logged("stopping"), "stopping jobs/x a 1 resigned");
    // It is held as long as the hook runs, and not for the time that it takes to look.
    assert_eq!(host.leader("jobs/x"), Some(("a".into(), 1)));
    assert_eq!(host.log().len(), 1);
    fs::write(host.path("go"), "").unwrap();
    assert_eq!(a.json()["event"], "resigned");
    assert_eq!(a.wait(), Some(0));
    assert_eq!(host.leader("jobs/x"), None);
    assert_eq!(host.log(), ["stopping jobs/x a 1 resigned", "lost jobs/x a 1 resigned"]);
}

#[test]
fn lost_comes_once_and_never_beside_an_elected_that_cannot_be_asked_to_end() {
    let ways: [(&str, Way); 6] = [
        ("the input ends", |_, a| drop(a.stdin.take())),
        ("SIGTERM", |_, a| a.signal(Signal::TERM)),
        ("SIGINT", |_, a| a.signal(Signal::INT)),
        ("ended", |host, _| drop(host.ok(["end", "jobs/x"]))),
        ("deposed", |host, _| drop(host.ok(["depose", "jobs/x"]))),
        ("paused", |host, _| drop(host.ok(["pause", "jobs/x"]))),
    ];
    for (way, go) in ways {
        let host = Host::new();
        let mut a = elected(&host, "a", &["--grace", "500ms", "--on-elected", DEAF, "--on-lost", ALONE]);
        host.until_logged("elected");
        go(&host, &mut a);
        host.until_logged("lost");
        if way == "paused" {
            drop(a.stdin.take());
        }
        // One that was deposed is back in line, and in office.
        if way != "deposed" {
            assert_eq!(a.wait(), Some(0), "{way}");
            assert_eq!(host.log(), ["elected", "lost alone"], "{way}");
        }
        assert_eq!(host.log()[..2], ["elected", "lost alone"], "{way}");
    }
}

#[test]
fn an_elected_that_runs_on_is_asked_to_end_before_stopping_begins() {
    let host = Host::new();
    // Once it has said so, all of it heeds SIGTERM.
    let waiting = format!("({}; exec sleep 1000) & wait", told("elected"));
    let on_elected = format!("trap 'echo asked >>\"$FOLDER/log\"; exit 0' TERM; {waiting}");
    let on_stopping = told("stopping");
    let on_lost = told("lost");
    let hooks = ["--ttl", "10m", "--on-elected", &on_elected, "--on-stopping", &on_stopping, "--on-lost", &on_lost];
    let mut a = elected(&host, "a", &hooks);
    host.until_logged("elected");
    a.signal(Signal::TERM);
    assert_eq!(a.wait(), Some(0));
    let expected = ["elected jobs/x a 1 no", "asked", "stopping jobs/x a 1 resigned", "lost jobs/x a 1 resigned"];
    assert_eq!(host.log(), expected);
}

#[test]
fn a_stopping_that_hangs_has_the_grace_and_no_more() {
    let host = Host::new();
    let hang = format!("trap '' TERM; {}; sleep 1000; echo never >>\"$FOLDER/log\"", told("stopping"));
    let on_lost = told("lost");
    let mut a = elected(&host, "a", &["--grace", "300ms", "--on-stopping", &hang, "--on-lost", &on_lost]);
    let mut b = host.start(["campaign", "--name", "b", "jobs/x", "--json"]);
    assert_eq!(b.json()["event"], "following");
    host.ok(["transfer", "jobs/x", "--to", "b"]);
    assert_eq!(b.json()["event"], "elected");
    host.until_logged("lost");
    assert_eq!(host.log(), ["stopping jobs/x a 1 transferred", "lost jobs/x a 1 transferred"]);
    assert_eq!(events_until(&mut a, "following").len(), 3);
}

#[test]
fn an_elected_that_hangs_holds_up_no_renewal() {
    let host = Host::new();
    let _a = elected(&host, "a", &["--ttl", "1s", "--on-elected", DEAF]);
    host.until_logged("elected");
    eventually("renewals", || {
        let claims = host.ok(["claims", "--json"]).json();
        (claims["claims"][0]["renewals"].as_array()?.len() >= 5).then_some(())
    });
    assert_eq!(host.leader("jobs/x"), Some(("a".into(), 1)));
}

#[test]
fn a_leader_whose_elected_fails_gives_the_office_back_and_tries_again_later() {
    let host = Host::new();
    let on_elected = format!("{}; test -e \"$FOLDER/fine\" || exit 7", told("elected"));
    let (on_stopping, on_lost) = (told("stopping"), told("lost"));
    // Not one of these waits is the grace's.
    let hooks = ["--ttl", "10m", "--on-elected", &on_elected, "--on-stopping", &on_stopping, "--on-lost", &on_lost];
    let mut a = elected(&host, "a", &hooks);
    let events = events_until(&mut a, "out");
    a.until_ever_said("--on-elected exited with 7: the office is given back");
    let words: Vec<_> = events.iter().map(|event| (event["event"].as_str(), event["reason"].as_str())).collect();
    let of = |event| (Some(event), Some("unhealthy"));
    assert_eq!(words, [of("stopping"), of("lost"), of("out")]);
    fs::write(host.path("fine"), "").unwrap();
    let again = a.json();
    assert_eq!((&again["event"], &again["token"]), (&json!("elected"), &json!(2)));
    host.until_logged("elected jobs/x a 2");
    drop(a.stdin.take());
    assert_eq!(a.wait(), Some(0));
    let expected = [
        "elected jobs/x a 1 no",
        "stopping jobs/x a 1 unhealthy",
        "lost jobs/x a 1 unhealthy",
        "elected jobs/x a 2 no",
        "stopping jobs/x a 2 resigned",
        "lost jobs/x a 2 resigned",
    ];
    assert_eq!(host.log(), expected);
}

#[test]
fn an_elected_that_cannot_be_started_has_its_lost_all_the_same() {
    let host = Host::new();
    // As long as an argument of ours can be, and too long for a line with anything before it.
    let begins = "echo elected >>\"$FOLDER/log\"; : ";
    let too_long = format!("{begins}{}", "x".repeat(128 * 1024 - 4 - begins.len()));
    let on_lost = told("lost");
    let mut a = elected(&host, "a", &["--on-elected", &too_long, "--on-lost", &on_lost]);
    a.until_said("--on-elected was not started");
    assert_eq!(host.until_logged(""), "lost jobs/x a 1 unhealthy");
}

#[test]
fn a_guardian_that_is_killed_is_replaced_for_the_next_hook() {
    let host = Host::new();
    let on_lost = told("lost");
    let mut a = elected(&host, "a", &["--on-elected", DEAF, "--on-lost", &on_lost]);
    host.until_logged("elected");
    let [guardian] = children(a.pid())[..] else { panic!("one guardian") };
    kill_process(guardian, Signal::KILL).unwrap();
    a.until_said("--on-elected was killed with its guardian");
    host.until_logged("lost jobs/x a 1 unhealthy");
}

#[test]
fn a_process_that_is_killed_takes_its_hook_along_before_the_next_one_leads() {
    let host = Host::new();
    let on_elected = format!("readlink /proc/$$/fd/* >\"$FOLDER/files\"; {DEAF}");
    let a = elected(&host, "a", &["--ttl", "10m", "--on-elected", &on_elected]);
    host.until_logged("elected");
    // The session's lock, of which the guardian has a copy, too.
    let files = fs::read_to_string(host.path("files")).unwrap();
    assert!(files.contains("/store/sessions/"), "{files}");
    let mut b = host.start(["campaign", "--name", "b", "jobs/x", "--json", "--on-elected", ALONE]);
    assert_eq!(b.json()["event"], "following");
    a.signal(Signal::KILL);
    assert_eq!(host.until_logged("lost"), "lost alone");
}

#[test]
fn the_next_term_begins_when_what_is_run_for_the_last_one_has_ended() {
    let host = Host::new();
    let on_elected = told("elected");
    let slow = format!("{}; until test -e \"$FOLDER/go\"; do sleep 0.01; done; {}", told("lost"), told("end of lost"));
    let mut a = elected(&host, "a", &["--ttl", "10m", "--on-elected", &on_elected, "--on-lost", &slow]);
    host.until_logged("elected");
    host.ok(["depose", "jobs/x"]);
    host.until_logged("lost");
    // By now it leads again.
    eventually("a second term", || host.leader("jobs/x").filter(|(_, token)| *token == 2));
    assert_eq!(host.log().len(), 2, "{:?}", host.log());
    fs::write(host.path("go"), "").unwrap();
    host.until_logged("elected jobs/x a 2");
    assert_eq!(host.log()[1..3], ["lost jobs/x a 1 deposed", "end of lost jobs/x a 1 deposed"]);
    drop(a.stdin.take());
    assert_eq!(a.wait(), Some(0));
}

#[test]
fn what_a_hook_leaves_running_is_stopped_and_said() {
    let host = Host::new();
    let on_elected = "exec 9>>\"$FOLDER/lock\"; flock 9; sleep 1000 & echo $! >>\"$FOLDER/log\"";
    let mut a = elected(&host, "a", &["--on-elected", on_elected]);
    a.until_said("--on-elected left 1 running");
    let left = host.until_logged("").parse().ok().and_then(Pid::from_raw).unwrap();
    eventually("nothing is left", || (!fs::exists(format!("/proc/{}", left.as_raw_pid())).unwrap()).then_some(()));
    assert_eq!(host.leader("jobs/x"), Some(("a".into(), 1)));
}

#[test]
fn when_nobody_reads_any_more_the_hooks_still_run() {
    let host = Host::new();
    let (on_stopping, on_lost) = (told("stopping"), told("lost"));
    let hooks = ["--on-stopping", &on_stopping, "--on-lost", &on_lost];
    let mut command = host.command(["campaign", "--name", "a", "jobs/x"].into_iter().chain(hooks));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("elected "), "{line}");
    let ended = in_time(|| child.try_wait().unwrap());
    // It has ended, or it must not outlive the test.
    let _ = child.kill();
    assert_eq!(ended.and_then(|status| status.code()), Some(0));
    assert_eq!(host.log(), ["stopping jobs/x a 1 resigned", "lost jobs/x a 1 resigned"]);
}
