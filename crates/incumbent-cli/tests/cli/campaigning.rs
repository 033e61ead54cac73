//! `campaign`: the office for programs in any language.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::host::{Host, in_time};

/// As each event comes.
fn event(event: Value) -> Value {
    let mut all = json!({"v": 1, "election": "jobs/x"});
    all.as_object_mut().unwrap().extend(event.as_object().unwrap().clone());
    all
}

#[test]
fn the_end_of_input_resigns() {
    let host = Host::new();
    let mut campaign = host.start(["campaign", "--name", "a", "jobs/x", "--json"]);
    let elected = campaign.json();
    assert_eq!((&elected["event"], &elected["token"]), (&json!("elected"), &json!(1)));
    assert!(elected["remaining_ms"].as_u64().unwrap() > 0);
    assert_eq!(host.leader("jobs/x"), Some(("a".into(), 1)));
    drop(campaign.stdin.take());
    assert_eq!(campaign.json(), event(json!({"event": "resigned"})));
    assert_eq!(campaign.wait(), Some(0));
    assert_eq!(host.leader("jobs/x"), None);
    // That was one term: the next token is the next number.
    assert_eq!(host.start(["campaign", "--name", "b", "jobs/x", "--json"]).json()["token"], 2);
}

#[test]
fn a_follower_hears_of_its_turn_and_a_leader_of_its_loss() {
    let host = Host::new();
    // Long enough for a busy machine to say that it stops before that is over.
    let mut a = host.start(["campaign", "--name", "a", "--grace", "2s", "jobs/x", "--json"]);
    assert_eq!(a.json()["event"], "elected");
    let mut b = host.start(["campaign", "--name", "b", "jobs/x", "--json"]);
    assert_eq!(b.json(), event(json!({"event": "following", "ahead": "a", "token": 1})));
    host.ok(["transfer", "jobs/x", "--to", "b"]);
    assert_eq!(a.json(), event(json!({"event": "stopping", "reason": "transferred"})));
    assert_eq!(a.json(), event(json!({"event": "lost", "reason": "transferred"})));
    assert_eq!(a.json()["event"], "following");
    assert_eq!(b.json()["event"], "elected");

    b.signal(Signal::TERM);
    assert_eq!(b.json(), event(json!({"event": "stopping", "reason": "transferred"})));
    assert_eq!(b.json(), event(json!({"event": "resigned"})));
    assert_eq!(b.wait(), Some(0));
    assert_eq!(a.json()["event"], "elected");
    host.ok(["end", "jobs/x"]);
    assert_eq!(a.json(), event(json!({"event": "stopping", "reason": "ended"})));
    assert_eq!(a.json(), event(json!({"event": "lost", "reason": "ended"})));
    assert_eq!(a.json(), event(json!({"event": "ended"})));
    assert_eq!(a.wait(), Some(0));
}

#[test]
fn a_store_that_cannot_be_used_is_said_and_leaving_it_is_no_success() {
    let host = Host::new();
    host.ok(["pause", "jobs/x"]);
    fs::remove_dir_all(host.path("store/sessions")).unwrap();
    let mut campaign = host.start(["campaign", "jobs/x", "--json"]);
    let said = campaign.until_said("still waiting for a session with the store");
    assert!(said.contains("No such file"), "{said}");
    drop(campaign.stdin.take());
    assert_eq!(campaign.wait(), Some(5));
    campaign.until_said("left before it was in line");
}

#[test]
fn a_paused_election_is_said_and_people_get_words() {
    let host = Host::new();
    host.ok(["pause", "jobs/x"]);
    let mut campaign = host.start(["campaign", "--name", "a", "jobs/x"]);
    assert_eq!(campaign.line(), "out        paused");
    host.ok(["resume", "jobs/x"]);
    assert!(campaign.line().starts_with("elected    token "));
}

#[test]
fn when_nobody_reads_any_more_the_office_is_given_back_though_nothing_happens() {
    let host = Host::new();
    let mut command = host.command(["campaign", "--name", "a", "jobs/x"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("elected "), "{line}");
    // The reader is gone with that, and the input is still open.
    let ended = in_time(|| child.try_wait().unwrap());
    // It has ended, or it must not outlive the test.
    let _ = child.kill();
    assert_eq!(ended.and_then(|status| status.code()), Some(0));
    assert_eq!(std::io::read_to_string(child.stderr.take().unwrap()).unwrap(), "");
    assert_eq!(host.leader("jobs/x"), None);
}
