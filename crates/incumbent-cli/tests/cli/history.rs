//! Terms on record: what `history` says of them, on a directory and on a server.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::host::{Host, Process, children, eventually, on, stop};

/// Candidates in this order, the first of which asks for a record of terms and is at work: before
/// its command was begun, nothing keeps the next one from leading while its guardian still stops.
fn line_of(host: &Host, names: &[&str]) -> Vec<Process> {
    let mut processes = Vec::new();
    for (place, name) in names.iter().enumerate() {
        let record: &[&str] = if place == 0 { &["--record"] } else { &[] };
        let work = "echo \"work $INCUMBENT_NAME\" >>\"$FOLDER/log\"; exec sleep 1000";
        let rest = ["--name", name, "jobs/x", "--", "sh", "-c", work];
        processes.push(host.start([&["run"], record, &rest].concat()));
        host.until_in_line("jobs/x", &names[..=place]);
        host.until_logged(&format!("work {}", names[0]));
    }
    processes
}

fn terms(host: &Host) -> Vec<Value> {
    host.run(["history", "jobs/x", "--json"]).json()["terms"].as_array().unwrap().clone()
}

#[test]
fn an_election_that_keeps_no_record_says_so_and_how_one_begins() {
    let host = Host::new();
    let _leader = host.start(["run", "--name", "a", "jobs/x", "--", "sleep", "1000"]);
    eventually("a leader", || host.leader("jobs/x"));
    let said = host.run(["history", "jobs/x"]);
    assert_eq!((said.code, said.out.as_str()), (Some(3), ""), "{said:?}");
    assert!(said.err.contains("incumbent run --record jobs/x"), "{said:?}");
    assert_eq!(host.run(["history", "jobs/x", "--json"]).json()["terms"], json!([]));
}

#[test]
fn history_says_who_led_from_when_to_when_and_by_whose_order_it_ended() {
    let host = Host::new();
    let _processes = line_of(&host, &["a", "b"]);
    let order = ["--by", "ada@ops1", "--reason", "new disk"];
    host.ok([&["transfer", "jobs/x", "--to", "b"][..], &order].concat());
    eventually("b is in office", || (terms(&host).len() == 2).then_some(()));
    let terms = terms(&host);
    let named = |term: &Value| json!([term["name"], term["end"], term["why"], term["leads"]]);
    assert_eq!(named(&terms[0]), json!(["a", "closed", "transferred", false]));
    assert_eq!(named(&terms[1]), json!(["b", "open", null, true]));
    assert_eq!((&terms[0]["order"]["by"], &terms[0]["order"]["reason"]), (&json!("ada@ops1"), &json!("new disk")));
    let (from, to) = (terms[0]["from_ms"].as_u64().unwrap(), terms[0]["to_ms"].as_u64().unwrap());
    assert!(from > 0 && from <= to, "{terms:?}");
    assert!(!terms[0]["host"].as_str().unwrap().is_empty(), "{terms:?}");
    let process = terms[0]["process"].as_str().unwrap();
    assert!(process.starts_with("guarded "), "the work may outlive the process that is told of the office: {process}");
    let text = host.ok(["history", "jobs/x"]).out;
    let rows: Vec<&str> = text.lines().collect();
    assert!(rows[0].contains("closed: the office was transferred, by ada@ops1: new disk"), "{text}");
    assert!(rows[1].ends_with("leads"), "{text}");
}

/// Kills it together with its guardian, so that nobody can say what became of its work.
fn kill_with_guardian(leader: &Process) {
    let guardian = children(leader.pid())[0];
    // One that is stopped cannot clean up after its guardian.
    stop(leader.pid());
    kill_process(guardian, Signal::KILL).unwrap();
    leader.signal(Signal::KILL);
}

#[test]
fn a_leader_that_is_killed_has_died_once_its_guardian_has_stopped_its_work() {
    let host = Host::new();
    let processes = line_of(&host, &["a", "b"]);
    processes[0].signal(Signal::KILL);
    eventually("b is in office", || (terms(&host).len() == 2).then_some(()));
    let ends: Vec<Value> = terms(&host).iter().map(|term| term["end"].clone()).collect();
    assert_eq!(ends, ["died", "open"]);
}

#[test]
fn a_leader_that_is_killed_with_its_guardian_leaves_its_term_open() {
    let host = Host::new();
    let processes = line_of(&host, &["a", "b"]);
    kill_with_guardian(&processes[0]);
    eventually("b is in office", || (terms(&host).len() == 2).then_some(()));
    let ends: Vec<Value> = terms(&host).iter().map(|term| term["end"].clone()).collect();
    assert_eq!(ends, ["open", "open"]);
    let text = host.ok(["history", "jobs/x"]).out;
    assert!(text.lines().next().unwrap().ends_with("open: nobody has said that its work has stopped"), "{text}");
}

/// Says in the log how the last term ended.
const SAY_LAST: &str = "echo \"last $INCUMBENT_LAST_TERM\" >>\"$FOLDER/log\"";

#[test]
fn a_command_is_told_how_the_last_term_ended_and_not_what_its_leader_was_told() {
    let host = Host::new();
    let work = format!("{SAY_LAST}; exec sleep 1000");
    let starts = |options: &[&str]| {
        let args = [&["run"], options, &["jobs/x", "--shell", "--", &work]].concat();
        host.start_with(&["INCUMBENT_LAST_TERM=old"], args)
    };
    let said = |count: usize, last: &str| {
        let lines = eventually("it says how the last one ended", || Some(host.log()).filter(|log| log.len() == count));
        assert_eq!(lines[count - 1], format!("last {last}"));
    };
    let leaves = |mut leader: Process| {
        leader.signal(Signal::TERM);
        leader.wait();
    };
    let leader = starts(&[]);
    said(1, "unknown");
    leaves(leader);
    let leader = starts(&["--record"]);
    said(2, "none");
    leaves(leader);
    let leader = starts(&[]);
    said(3, "closed");
    leader.signal(Signal::KILL);
    let leader = starts(&[]);
    said(4, "died");
    kill_with_guardian(&leader);
    let leader = starts(&[]);
    said(5, "unfenced");
    leaves(leader);
}

#[test]
fn hooks_are_told_how_the_last_term_ended() {
    let host = Host::new();
    host.ok(["run", "--record", "jobs/x", "--", "true"]);
    let hooks = ["--on-elected", SAY_LAST, "--on-stopping", SAY_LAST, "--on-lost", SAY_LAST];
    let mut leader =
        host.start_with(&["INCUMBENT_LAST_TERM=old"], [&["campaign", "jobs/x", "--json"][..], &hooks].concat());
    assert_eq!(leader.json()["event"], "elected");
    host.until_logged("last closed");
    drop(leader.stdin.take());
    leader.wait();
    assert_eq!(host.log(), ["last closed"; 3]);
}

#[cfg(feature = "etcd")]
#[tokio::test]
async fn terms_are_on_record_on_a_server_too() {
    let cluster = incumbent_testkit::servers::EtcdCluster::start(1).await;
    let (host, url) = (Host::new(), cluster.url());
    let on_etcd = |args: &[&str]| on(&url, args);
    for name in ["a", "b"] {
        host.ok(on_etcd(&["run", "--record", "--name", name, "jobs/x", "--", "true"]));
    }
    let terms = host.ok(on_etcd(&["history", "jobs/x", "--json"])).json()["terms"].clone();
    let named = |term: &Value| json!([term["name"], term["end"], term["why"], term["leads"]]);
    let named: Vec<Value> = terms.as_array().unwrap().iter().map(named).collect();
    assert_eq!(named, [json!(["a", "closed", "resigned", false]), json!(["b", "closed", "resigned", false])]);
}

#[test]
fn where_no_record_can_be_kept_a_candidate_that_asks_for_one_is_told_so() {
    let host = Host::new();
    for group in ["bully", "ring", "consensus"] {
        for asks in [&["--record"][..], &["--fence-cmd", "true", "--fence-targets", "node-1"]] {
            let url = format!("{group}://?members=3");
            let run = ["--store", &url, "run", "--forever"];
            let said = host.run([&run[..], asks, &["jobs/x", "--", "true"]].concat());
            assert_eq!(said.code, Some(125), "{said:?}");
            assert!(said.err.contains("keeps no record of terms"), "{said:?}");
        }
    }
}

#[test]
fn one_that_is_killed_and_started_again_on_its_host_leads_again_with_no_shot() {
    let host = Host::new();
    let shot = host.path("shot");
    let program = host.path("shoot");
    fs::write(&program, format!("#!/bin/sh\ntouch {}\n", shot.display())).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let start = || {
        let fence = ["--fence-cmd", program.to_str().unwrap(), "--fence-targets", "node-1", "--fence-delay", "10ms"];
        let rest = ["--name", "a", "jobs/x", "--", "sleep", "1000"];
        host.start([&["run"][..], &fence, &rest].concat())
    };
    for round in 1..=3 {
        let leader = start();
        eventually("in office", || (terms(&host).len() == round).then_some(()));
        eventually("leads", || host.leader("jobs/x"));
        leader.signal(Signal::KILL);
    }
    let ends: Vec<Value> = terms(&host).iter().map(|term| json!([term["end"], term["fence"]])).collect();
    assert_eq!(ends, [json!(["died", null]), json!(["died", null]), json!(["open", null])]);
    assert!(!shot.exists());
}

#[test]
fn a_last_leader_on_the_same_host_is_not_shot_at_and_a_persons_word_lets_the_next_one_lead() {
    let host = Host::new();
    let processes = line_of(&host, &["a"]);
    eventually("a is in office", || (terms(&host).len() == 1).then_some(()));
    kill_with_guardian(&processes[0]);
    let fence = ["--fence-cmd", "/bin/true", "--fence-targets", "node-1", "--fence-delay", "10ms"];
    let rest = ["--name", "b", "jobs/x", "--", "sleep", "1000"];
    let _next = host.start([&["run"][..], &fence, &rest].concat());
    let result = || terms(&host)[0]["fence"]["result"].as_str().map(str::to_owned);
    eventually("it is not shot at", || (result().as_deref() == Some("failed")).then_some(()));
    let status = host.run(["status", "jobs/x", "--json"]).json();
    assert_eq!((&status["leader"], &status["vacant_because"]), (&Value::Null, &json!("fencing")));
    let token = terms(&host)[0]["token"].to_string();
    let word = ["fenced", "jobs/x", "--token", token.as_str(), "--by", "ada@ops1", "--reason", "looked at it"];
    assert_eq!(host.run(word).code, Some(2), "not without having checked");
    host.ok([&word[..], &["--i-have-checked"]].concat());
    eventually("b is in office", || (terms(&host).len() == 2).then_some(()));
    assert_eq!(result().as_deref(), Some("released"));
    let text = host.ok(["history", "jobs/x"]).out;
    assert!(text.contains("has stopped, says a person (by ada@ops1: looked at it)"), "{text}");
    let said = host.run([&word[..], &["--i-have-checked"]].concat());
    assert_eq!(said.code, Some(0), "it is said already: {said:?}");
}
