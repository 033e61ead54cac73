//! Terms on record: what `history` says of them, on a directory and on a server.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::host::{Host, Process, eventually};

/// Candidates in this order, the first of which asks for a record of terms.
fn line_of(host: &Host, names: &[&str]) -> Vec<Process> {
    let mut processes = Vec::new();
    for (place, name) in names.iter().enumerate() {
        let record: &[&str] = if place == 0 { &["--record"] } else { &[] };
        let rest = ["--name", name, "jobs/x", "--", "sleep", "1000"];
        processes.push(host.start([&["run"], record, &rest].concat()));
        host.until_in_line("jobs/x", &names[..=place]);
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
    assert_eq!(terms[0]["process"], "", "the work may outlive the process that is told of the office");
    let text = host.ok(["history", "jobs/x"]).out;
    let rows: Vec<&str> = text.lines().collect();
    assert!(rows[0].contains("closed: the office was transferred, by ada@ops1: new disk"), "{text}");
    assert!(rows[1].ends_with("leads"), "{text}");
}

#[test]
fn a_leader_that_is_killed_leaves_its_term_open() {
    let host = Host::new();
    let processes = line_of(&host, &["a", "b"]);
    processes[0].signal(Signal::KILL);
    eventually("b is in office", || (terms(&host).len() == 2).then_some(()));
    let ends: Vec<Value> = terms(&host).iter().map(|term| term["end"].clone()).collect();
    assert_eq!(ends, ["open", "open"]);
    let text = host.ok(["history", "jobs/x"]).out;
    assert!(text.lines().next().unwrap().ends_with("open: nobody has said that its work has stopped"), "{text}");
}

#[cfg(feature = "etcd")]
#[tokio::test]
async fn terms_are_on_record_on_a_server_too() {
    let cluster = incumbent_testkit::servers::EtcdCluster::start(1).await;
    let (host, url) = (Host::new(), cluster.url());
    let on_etcd =
        |args: &[&str]| [&["--store", &url], args].concat().into_iter().map(str::to_owned).collect::<Vec<_>>();
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
    let said = host.run(["--store", "bully://?members=3", "run", "--forever", "--record", "jobs/x", "--", "true"]);
    assert_eq!(said.code, Some(125), "{said:?}");
    assert!(said.err.contains("keeps no record of terms"), "{said:?}");
}
