//! `doctor`, and what a host remembers of a store: findings on real processes and directories.

use std::fs;
use std::process::Command;

use incumbent::fence::{FencingToken, FileFence};
use incumbent::{ElectionName, StoreId, Token};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::host::{Host, Process, Said, eventually, stop};

/// Starts a campaign, and waits until it leads. Nothing expires while the test looks.
fn lead(host: &Host, name: &str) -> (Process, u64) {
    lead_in(host, &host.store(), name)
}

fn lead_in(host: &Host, store: &str, name: &str) -> (Process, u64) {
    let mut campaign = host.start(["--store", store, "campaign", "--name", name, "--ttl", "10m", "jobs/x", "--json"]);
    let event = eventually("an election", || Some(campaign.json()).filter(|event| event["event"] == "elected"));
    let token = event["token"].as_u64().unwrap();
    eventually("its claim", || claims(host).iter().any(|claim| claim["token"] == token).then_some(()));
    (campaign, token)
}

fn leave(mut campaign: Process) {
    drop(campaign.stdin.take());
    assert_eq!(campaign.wait(), Some(0));
}

fn claims(host: &Host) -> Vec<Value> {
    host.ok(["claims", "--json"]).json()["claims"].as_array().unwrap().clone()
}

/// The findings, the summary, and the exit code.
fn doctor(host: &Host, more: &[&str]) -> (Vec<Value>, Value, Option<i32>) {
    let said = host.run(["doctor", "jobs/x", "--json"].iter().chain(more));
    let mut lines: Vec<Value> = said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let summary = lines.pop().unwrap_or_else(|| panic!("{said:?}"));
    assert_eq!(summary["exit"], json!(said.code), "{said:?}");
    (lines, summary, said.code)
}

/// The codes that were found, and the exit code.
fn diagnosis(host: &Host, more: &[&str]) -> (Vec<String>, Option<i32>) {
    let (found, _, code) = doctor(host, more);
    (found.iter().map(|finding| finding["finding"].as_str().unwrap().to_owned()).collect(), code)
}

fn nothing() -> (Vec<String>, Option<i32>) {
    (Vec::new(), Some(0))
}

fn found(code: &str, exit: i32) -> (Vec<String>, Option<i32>) {
    (vec![code.to_owned()], Some(exit))
}

#[test]
fn an_election_that_is_as_it_should_be_shows_nothing() {
    let host = Host::new();
    assert_eq!(diagnosis(&host, &[]), nothing(), "nobody has ever stood");
    let (leader, _) = lead(&host, "a");
    assert_eq!(diagnosis(&host, &[]), nothing());
    let said = host.ok(["doctor", "jobs/x"]);
    assert!(said.out.starts_with("nothing found in jobs/x\nlooked at: "), "{said:?}");
    // Killed, it leaves a file behind, and that is all that it leaves.
    leader.signal(Signal::KILL);
    drop(leader);
    let (follower, token) = lead(&host, "b");
    assert_eq!(token, 2);
    assert_eq!(diagnosis(&host, &[]), nothing());
    leave(follower);
    assert_eq!(diagnosis(&host, &[]), found("D10", 10), "somebody led, and nobody stands");
    host.ok(["pause", "jobs/x", "--reason", "tea"]);
    assert_eq!(diagnosis(&host, &[]), nothing());
}

#[test]
fn a_stopped_leader_that_was_deposed_is_found_beside_the_next() {
    let host = Host::new();
    let (stopped, _) = lead(&host, "a");
    stop(stopped.pid());
    host.ok(["depose", "jobs/x"]);
    assert_eq!(diagnosis(&host, &[]), found("D02", 10), "its time runs out");
    let (_next, _) = lead(&host, "b");
    let (findings, summary, code) = doctor(&host, &[]);
    assert_eq!((findings.len(), &findings[0]["finding"], code), (1, &json!("D01"), Some(11)), "{findings:?}");
    let seen = findings[0]["seen"].to_string();
    for part in ["token 1  for another", "process suspended", "token 2  for another", "b (token 2) leads"] {
        assert!(seen.contains(part), "{part}: {seen}");
    }
    assert_eq!(findings[0]["runbook"], "docs/runbooks.md#two-claim-to-lead");
    assert_eq!(summary["not_looked_at"], json!([]));
    let text = host.run(["doctor", "jobs/x"]).out;
    assert!(text.contains("D01 WRONG  2 processes say that they lead") && text.contains("runbook: docs/"), "{text}");
    stopped.signal(Signal::CONT);
    eventually("one claim", || (claims(&host).len() == 1).then_some(()));
    assert_eq!(diagnosis(&host, &[]), nothing());
}

#[test]
fn nothing_is_found_while_the_office_changes_hands() {
    let host = Host::new();
    let run = |name| host.start(["run", "--name", name, "jobs/x", "--", "sleep", "1000"]);
    let _both = [run("a"), run("b")];
    eventually("a line", || (host.line("jobs/x").len() == 2).then_some(()));
    for _ in 0..3 {
        let (leader, _) = host.leader("jobs/x").unwrap();
        let heir = if leader == "a" { "b" } else { "a" };
        let mut transfer = host.start(["transfer", "jobs/x", "--to", heir]);
        let (findings, summary, code) = doctor(&host, &[]);
        assert!(findings.is_empty() && matches!(code, Some(0 | 4)), "{findings:?} {summary}");
        assert_eq!(transfer.wait(), Some(0));
    }
}

#[test]
fn a_host_that_does_not_answer_is_named_and_nothing_found_is_not_said() {
    let host = Host::new();
    let _leader = lead(&host, "a");
    let program = env!("CARGO_BIN_EXE_incumbent");
    let only_db1 = format!("test {{host}} = db1 || {{ echo timed out >&2; exit 255; }}; {program} claims --json");
    let (findings, summary, code) = doctor(&host, &["--host", "db1", "--host", "db2", "--claims", &only_db1]);
    assert!(findings.is_empty() && code == Some(4), "{summary}");
    assert_eq!(summary["looked_at"], json!(["db1"]));
    let missing = summary["not_looked_at"].to_string();
    assert!(missing.contains("db2") && missing.contains("timed out"), "{missing}");
    assert_eq!(diagnosis(&host, &["--host", "db1", "--claims", &only_db1]), nothing());
    // The leader's host was not asked.
    let (_, summary, code) = doctor(&host, &["--claims", r#"echo '{"v":1,"host":"db3","claims":[],"unread":[]}'"#]);
    assert!(code == Some(4) && summary["not_looked_at"].to_string().contains("a (token 1)"), "{summary}");
    let (_, summary, code) = doctor(&host, &["--claims", "echo nonsense"]);
    assert!(code == Some(4) && summary["not_looked_at"].to_string().contains("no claims"), "{summary}");
    for wrong in [["--host", "db1"], ["--claims", "ssh {host} x"], ["--fence", "redis://x"]] {
        let said: Said = host.run(["doctor", "jobs/x"].iter().chain(&wrong));
        assert_eq!(said.code, Some(2), "{said:?}");
    }
}

#[test]
fn a_fence_of_another_store_or_of_a_later_leader_is_found() {
    let host = Host::new();
    let _leader = lead(&host, "a");
    let store = claims(&host)[0]["store"].as_str().unwrap().to_owned();
    let mark = |folder: &str, token: u64, store: &str| {
        let fence = FileFence::open(host.path(folder), &ElectionName::new("jobs/x").unwrap()).unwrap();
        fence.write(&FencingToken::new(Token::new(token).unwrap(), StoreId::new(store)), || ()).unwrap();
        format!("file://{}", host.path(folder).display())
    };
    let (equal, above) = (mark("equal", 1, &store), mark("above", 99, &store));
    let other = mark("other", 1, "another store");
    assert_eq!(diagnosis(&host, &["--fence", &equal]), nothing());
    let (findings, ..) = doctor(&host, &["--fence", &above]);
    assert!(findings[0]["what"].as_str().unwrap().contains("older"), "{findings:?}");
    let (findings, ..) = doctor(&host, &["--fence", &other]);
    assert!(findings[0]["what"].as_str().unwrap().contains("replaced"), "{findings:?}");
    assert_eq!(diagnosis(&host, &["--fence", &above, "--fence", &other]).1, Some(11));
    // Looking makes nothing.
    fs::create_dir(host.path("empty")).unwrap();
    let empty = format!("file://{}", host.path("empty").display());
    assert_eq!(diagnosis(&host, &["--fence", &empty]), nothing());
    assert_eq!(fs::read_dir(host.path("empty")).unwrap().count(), 0);
    let nowhere = format!("file://{}", host.path("nowhere").display());
    assert_eq!(diagnosis(&host, &["--fence", &nowhere]), (Vec::new(), Some(4)));
    assert!(!host.path("nowhere").exists());
}

#[test]
fn a_directory_that_was_copied_back_is_noticed_by_those_who_saw_it_before() {
    let host = Host::new();
    leave(lead(&host, "a").0);
    let copied = Command::new("cp").arg("-a").args([host.path("store"), host.path("copy")]).status().unwrap();
    assert!(copied.success());
    let remembered = |token: u64| {
        let find = |folder: &std::path::Path| {
            let found = Command::new("grep").args(["-rl", &format!("token {token}$")]).arg(folder).output().unwrap();
            found.status.success().then_some(())
        };
        eventually("a memory of it", || find(&host.path(".local/state/incumbent-witness")));
    };
    for token in [2, 3] {
        let (leader, led) = lead(&host, "b");
        assert_eq!(led, token);
        remembered(token);
        leave(leader);
    }
    fs::remove_dir_all(host.path("store")).unwrap();
    fs::rename(host.path("copy"), host.path("store")).unwrap();

    let (mut again, token) = lead(&host, "c");
    assert_eq!(token, 2, "given a second time");
    let warning = again.until_ever_said("this host has seen token 3");
    assert!(warning.contains("docs/runbooks.md#the-store-was-restored"), "{warning}");
    let said = host.ok(["status", "jobs/x"]);
    assert!(said.out.contains("warning") && said.out.contains("this host has seen token 3"), "{said:?}");
    assert_eq!(host.ok(["status", "jobs/x", "--json"]).json()["seen_token"], 3);
    let mut observer = host.start(["observe", "jobs/x", "--json"]);
    assert_eq!(observer.json()["event"], "store_reset");
    assert_eq!(observer.json()["token"], 2);
    assert_eq!(diagnosis(&host, &[]), found("D06", 11));
    // When the tokens have passed what was seen, nothing is given twice any more.
    leave(again);
    leave(lead(&host, "c").0);
    let (_later, token) = lead(&host, "c");
    assert_eq!(token, 4);
    assert_eq!(diagnosis(&host, &[]), nothing());
    assert!(host.ok(["status", "jobs/x", "--json"]).json().get("seen_token").is_none());
}

#[test]
fn what_appears_and_goes_is_told_to_those_who_watch() {
    let host = Host::new();
    let (stopped, _) = lead(&host, "a");
    let mut watch = host.start(["doctor", "jobs/x", "--watch", "--json"]);
    stop(stopped.pid());
    host.ok(["depose", "jobs/x"]);
    let finding = watch.json();
    assert_eq!((&finding["finding"], finding.get("gone")), (&json!("D02"), None), "{finding}");
    stopped.signal(Signal::CONT);
    assert_eq!(watch.json()["gone"], true);
}

/// Whether a leader that does not know yet that it was deposed is found on this store, beside what
/// is always found there.
#[cfg(any(feature = "etcd", feature = "postgres", feature = "redis"))]
fn two_leaders_are_found(store: &str, always: &[&str]) {
    let host = Host::new();
    let all = format!("{} claims --json", env!("CARGO_BIN_EXE_incumbent"));
    let codes = || diagnosis(&host, &["--store", store, "--claims", &all]).0;
    let (stopped, _) = lead_in(&host, store, "a");
    assert_eq!(codes(), always);
    stop(stopped.pid());
    host.ok(["--store", store, "depose", "jobs/x"]);
    let _next = lead_in(&host, store, "b");
    assert_eq!(codes(), [&["D01"], always].concat());
    // Without a word of the other hosts, nobody knows.
    assert_eq!(diagnosis(&host, &["--store", store]).1, Some(11));
    drop(stopped);
    assert_eq!(diagnosis(&host, &["--store", store]).1, Some(4));
}

#[cfg(feature = "etcd")]
#[tokio::test]
async fn two_leaders_are_found_on_etcd() {
    let cluster = incumbent_testkit::servers::EtcdCluster::start(1).await;
    two_leaders_are_found(&cluster.url(), &[]);
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn two_leaders_are_found_on_postgres() {
    let server = incumbent_testkit::servers::PostgresServer::start().await;
    two_leaders_are_found(&server.url(), &[]);
}

/// One that keeps nothing across a restart.
#[cfg(feature = "redis")]
#[tokio::test]
async fn two_leaders_and_weak_promises_are_found_on_redis() {
    let server = incumbent_testkit::servers::RedisServer::start().await;
    two_leaders_are_found(&server.url(), &["D16"]);
}
