//! `doctor`, and what a host remembers of a store: findings on real processes and directories.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use incumbent::fence::{FencingToken, FileFence};
use incumbent::store::{BenchOrder, Benched, Cas, Frozen, HeldBack, Nonce, Office, Paused, Store};
use incumbent::{ElectionName, Order, StoreId, Token};
use incumbent_file::FileStore;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::host::{Host, Process, Said, children, eventually, stop};

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
    assert_eq!(diagnosis(&host, &[]), found("D10", 0), "nobody has ever stood, and nobody is missed");
    let said = host.ok(["doctor", "jobs/x"]);
    assert!(said.out.contains("nothing found in jobs/x; nobody leads\n"), "{said:?}");
    let (leader, _) = lead(&host, "a");
    assert_eq!(diagnosis(&host, &[]), nothing());
    let said = host.ok(["doctor", "jobs/x"]);
    assert!(said.out.starts_with("nothing found in jobs/x; a (token 1) leads\nlooked at: "), "{said:?}");
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

/// Stopped for less, somebody may just have looked at it.
#[test]
fn a_leader_that_is_suspended_for_more_than_half_its_ttl_is_found() {
    let host = Host::new();
    let leader = host.start(["run", "--ttl", "30s", "--name", "a", "jobs/x", "--", "sleep", "1000"]);
    until_claimed(&host, "a");
    stop(leader.pid());
    let silent = || host.run(["status", "jobs/x", "--json"]).json()["silent_ms"].as_u64();
    eventually("a silence", || silent().filter(|silent| *silent > 15_000));
    let look = || {
        let (findings, _, code) = doctor(&host, &[]);
        let severity = findings.first().map(|finding| finding["severity"].clone());
        (findings, severity, code)
    };
    let (findings, severity, code) = look();
    assert!(findings.len() == 1 && findings[0]["finding"] == "D05", "{findings:?}");
    assert!(findings[0]["seen"].to_string().contains("process suspended"), "{findings:?}");
    // A note, until its time is nearly over.
    let (note, warning) = ((Some(json!("info")), Some(0)), (Some(json!("warning")), Some(10)));
    let said = (severity, code);
    assert!(said == note || said == warning, "{said:?}");
    leader.signal(Signal::CONT);
    eventually("nothing", || (diagnosis(&host, &[]) == nothing()).then_some(()));
    leave_work(leader);
    // Nobody is there to take over.
    let next = host.start(["run", "--ttl", "3s", "--name", "b", "jobs/x", "--", "sleep", "1000"]);
    until_claimed(&host, "b");
    stop(next.pid());
    eventually("a warning", || {
        let (findings, severity, code) = look();
        let is_it = findings.len() == 1 && findings[0]["finding"] == "D05";
        (is_it && (severity, code) == warning).then_some(())
    });
}

/// Ends a `run`.
fn leave_work(mut run: Process) {
    run.signal(Signal::TERM);
    run.wait();
}

/// Its time is over, and it cannot say so; its guardian has stopped the work.
#[test]
fn work_that_was_stopped_for_a_suspended_leader_is_not_found() {
    let host = Host::new();
    let run = |name| host.start(["run", "--ttl", "4s", "--name", name, "jobs/x", "--", "sleep", "1000"]);
    let stopped = run("a");
    host.until_in_line("jobs/x", &["a"]);
    let _next = run("b");
    host.until_in_line("jobs/x", &["a", "b"]);
    stop(stopped.pid());
    let both = || Some(claims(&host)).filter(|claims| claims.len() == 2 && claims[0]["remaining_ms"] == 0);
    let over = eventually("the next leader", both);
    assert_eq!((&over[0]["suspended"], &over[0]["work_gone"]), (&json!(true), &json!(true)), "{over:?}");
    assert_eq!(diagnosis(&host, &[]), nothing());
    let text = host.ok(["claims"]).out;
    assert!(text.contains("over, and its work was stopped, process suspended"), "{text}");
}

/// Leader and guardian are both killed. The kernel kills the command then, but not what it started.
#[test]
fn work_that_outlives_its_leader_is_found_beside_the_next() {
    let host = Host::new();
    work_that_outlives_its_leader_is_found(&host, &host.store());
}

fn work_that_outlives_its_leader_is_found(host: &Host, store: &str) {
    let here = ["--store", store, "--claims", &everybody()];
    let run = ["--store", store, "run"];
    let line = ["--shell", "--", "sleep 1000 & wait"];
    let leader = host.start([&run[..], &["--ttl", "3s", "--name", "a", "jobs/x"], &line].concat());
    until_claimed(host, "a");
    let token = claims(host)[0]["token"].clone();
    let only_child = |of| eventually("a child", || <[_; 1]>::try_from(children(of)).ok())[0];
    let guardian = only_child(leader.pid());
    let work = only_child(only_child(guardian));
    let is_program = |name| fs::read_to_string(format!("/proc/{}/comm", work.as_raw_pid())).unwrap().trim() == name;
    eventually("its program", || is_program("sleep").then_some(()));
    stop(leader.pid());
    kill_process(guardian, Signal::KILL).unwrap();
    leader.signal(Signal::KILL);
    drop(leader);
    let next = host.start([&run[..], &["--ttl", "10m", "--name", "b", "jobs/x", "--", "sleep", "1000"]].concat());
    until_claimed(host, "b");
    let (findings, summary, code) = doctor(host, &here);
    let said = host.run(["claims"]);
    kill_process(work, Signal::KILL).unwrap();
    assert_eq!((findings.len(), code), (1, Some(11)), "{findings:?} {summary}");
    assert_eq!(findings[0]["what"], "work goes on whose leader is gone");
    let seen = format!("pid {} (sleep) was started with token {token}, which nobody claims", work.as_raw_pid());
    assert!(findings[0]["seen"][0].as_str().unwrap().contains(&seen), "{findings:?}");
    assert!(said.err.contains(&format!("works for jobs/x with token {token}, and nobody claims it")), "{said:?}");
    eventually("nothing", || (diagnosis(host, &here) == nothing()).then_some(()));
    drop(next);
}

/// Asks every process of this host, in the place of all hosts.
fn everybody() -> String {
    format!("{} claims --json", env!("CARGO_BIN_EXE_incumbent"))
}

/// Waits for the claim of the candidate with this name.
fn until_claimed(host: &Host, name: &str) {
    eventually("its claim", || claims(host).iter().any(|claim| claim["name"] == name).then_some(()));
}

#[test]
fn a_first_in_line_that_takes_no_office_and_a_term_that_was_left_open_are_found() {
    let host = Host::new();
    one_that_takes_no_office_and_an_open_term_are_found(&host, &host.store());
}

fn one_that_takes_no_office_and_an_open_term_are_found(host: &Host, store: &str) {
    let here = ["--store", store, "--claims", &everybody()];
    let stand = |name| {
        let args = ["--store", store, "campaign", "--record", "--name", name, "--ttl", "10m", "jobs/x", "--json"];
        let mut campaign = host.start(args);
        campaign.json();
        campaign
    };
    let (first, second) = (stand("a"), stand("b"));
    stop(second.pid());
    // It closes its term, and b is the first.
    leave(first);
    let (findings, _, code) = doctor(host, &here);
    assert_eq!((findings.len(), &findings[0]["finding"], code), (1, &json!("D09"), Some(10)), "{findings:?}");
    second.signal(Signal::CONT);
    eventually("its claim", || (!claims(host).is_empty()).then_some(()));
    assert_eq!(diagnosis(host, &here), nothing());
    // Killed, it closes nothing. Its host says that no process of it is left.
    second.signal(Signal::KILL);
    drop(second);
    // A server does not hear of its death. Of a directory it is gone already.
    host.run(["--store", store, "depose", "jobs/x"]);
    let third = stand("c");
    eventually("its claim", || (!claims(host).is_empty()).then_some(()));
    assert_eq!(diagnosis(host, &here), found("D12", 0));
    let elsewhere = format!("{} | sed s/'\"host\":\"[^\"]*\"/\"host\":\"db2\"'/", everybody());
    assert_eq!(diagnosis(host, &["--store", store, "--claims", &elsewhere]), found("D12", 10));
    leave(third);
}

/// Stopped for most of its time, again and again, it renews in the last third of it.
#[test]
fn a_leader_whose_renewals_come_late_is_found() {
    let host = Host::new();
    late_renewals_are_found(&host, &host.store(), "6s");
}

/// One that goes on too late for its time is elected again, and counts from the beginning.
fn late_renewals_are_found(host: &Host, store: &str, ttl: &str) {
    let leader = host.start(["--store", store, "campaign", "--ttl", ttl, "--name", "a", "jobs/x"]);
    let claim = || claims(host).into_iter().next().unwrap_or_default();
    let renewed = || claim()["renewals"].clone();
    // In the last third of its time, or over.
    let is_late = || {
        let claim = claim();
        let lasts = claim["renewals"].as_array().and_then(|renewals| renewals.last()?["lasts_ms"].as_u64());
        claim["remaining_ms"].as_u64().zip(lasts).is_none_or(|(left, lasts)| left * 3 < lasts)
    };
    let found = (0..20).any(|_| {
        eventually("a renewal", || renewed().as_array().filter(|renewals| !renewals.is_empty()).map(drop));
        stop(leader.pid());
        eventually("a long silence", || is_late().then_some(()));
        let before = renewed();
        leader.signal(Signal::CONT);
        eventually("a renewal", || (renewed() != before).then_some(()));
        let (codes, exit) = diagnosis(host, &["--store", store, "--claims", &everybody()]);
        codes == ["D18"] && exit == Some(10)
    });
    assert!(found, "{}", renewed());
}

/// A host that is asked what it claims hands the office on: it changes between the two looks at the
/// store, in every round.
#[test]
fn nothing_is_found_while_the_office_changes_hands() {
    let host = Host::new();
    let _both =
        ["a", "b"].map(|name| host.start(["run", "--ttl", "10m", "--name", name, "jobs/x", "--", "sleep", "1000"]));
    eventually("a line", || (host.line("jobs/x").len() == 2).then_some(()));
    let program = env!("CARGO_BIN_EXE_incumbent");
    let said = format!("said=$({program} claims --json) && echo \"$said\"");
    for asked in
        [format!("{program} -q resign jobs/x >&2 && {said}"), format!("{said} && {program} -q resign jobs/x >&2")]
    {
        let before = host.leader("jobs/x").unwrap().1;
        let (findings, summary, code) = doctor(&host, &["--claims", &asked]);
        assert!(findings.is_empty() && code == Some(4), "{findings:?} {summary}");
        assert!(summary["not_looked_at"].to_string().contains("the office is changing hands"), "{summary}");
        assert!(host.leader("jobs/x").unwrap().1 > before);
    }
    assert_eq!(diagnosis(&host, &[]), nothing());
}

#[test]
fn two_hosts_that_are_one_are_not_both_asked() {
    let host = Host::new();
    let _leader = lead(&host, "a");
    let here = format!("{} claims --json # {{host}}", env!("CARGO_BIN_EXE_incumbent"));
    assert_eq!(diagnosis(&host, &["--host", "db1", "--claims", &here]), nothing());
    let (findings, summary, code) = doctor(&host, &["--host", "db1,db2", "--claims", &here]);
    assert!(findings.is_empty() && code == Some(4), "{findings:?} {summary}");
    assert_eq!(summary["looked_at"], json!(["db1"]));
    assert!(summary["not_looked_at"][0].as_str().unwrap().contains("which has answered as db1 already"), "{summary}");
}

/// Whether nobody has this lock, which a command and all that it started hold while they live.
fn is_free(lock: &Path) -> bool {
    lock.exists() && flock(fs::File::open(lock).unwrap(), FlockOperation::NonBlockingLockExclusive).is_ok()
}

#[test]
fn a_host_that_does_not_answer_is_given_up_with_all_that_asks_it() {
    let host = Host::new();
    let _leader = lead(&host, "a");
    let lock = host.path("asking");
    let hangs = format!("exec 9>{0}; flock 9; echo {{host}} asked >&2; sleep 1000 & sleep 1000", lock.display());
    let mut doctor = host.start(["doctor", "jobs/x", "--host", "db1", "--claims", &hangs]);
    eventually("a question", || (lock.exists() && !is_free(&lock)).then_some(()));
    doctor.signal(Signal::TERM);
    assert_eq!(doctor.wait(), Some(143));
    eventually("nobody asks any more", || is_free(&lock).then_some(()));
    fs::remove_file(&lock).unwrap();

    // It is asked once, and not in each round again.
    let mut watch = host.start(["doctor", "jobs/x", "--host", "db1", "--claims", &hangs, "--watch", "--json"]);
    let said = watch.json();
    assert!(said["not_looked_at"].as_str().unwrap().contains("db1 (no answer within 10 s)"), "{said}");
    let said = watch.json();
    assert!(said["not_looked_at"].as_str().unwrap().contains("the process of a (token 1)"), "{said}");
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

/// Changes the record of the election, as somebody did long ago.
fn change_record(host: &Host, change: impl FnOnce(Office) -> Office) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (store, election) = (FileStore::open(host.path("store")).unwrap(), ElectionName::new("jobs/x").unwrap());
        let office = store.line(&election, 1).await.unwrap().office;
        let version = office.version;
        assert_eq!(store.set_office(&election, version, &change(office)).await.unwrap(), Cas::Done);
    });
}

#[test]
fn an_order_that_was_forgotten_is_found_with_who_gave_it_when_and_why() {
    let host = Host::new();
    host.ok(["run", "jobs/x", "--", "true"]);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let at = |hours: u64| u64::try_from((now - Duration::from_secs(hours * 3600)).as_millis()).unwrap();
    let paused = |hours| Paused::new(Order::new("ada@ops1", at(hours), "new disk"));
    change_record(&host, |office| office.with_paused(paused(1)));
    assert_eq!(diagnosis(&host, &[]), nothing(), "an hour ago");
    change_record(&host, |office| office.with_paused(paused(25)));
    let (findings, _, code) = doctor(&host, &[]);
    let seen = findings[0]["seen"][0].as_str().unwrap();
    assert_eq!((&findings[0]["finding"], code), (&json!("D11"), Some(10)));
    for words in ["ada@ops1", "new disk", "paused"] {
        assert!(seen.contains(words), "{words}: {seen}");
    }
    change_record(&host, |office| office.with_paused(None));
    let (_leader, token) = lead(&host, "a");
    let order = |hours| Order::new("ada@ops1", at(hours), "new switch");
    for (hours, then) in [(1, nothing()), (25, found("D11", 10))] {
        change_record(&host, |office| office.with_frozen(Frozen::new(Nonce(hours), None, order(hours))));
        assert_eq!(diagnosis(&host, &[]), then, "frozen {hours} h ago");
        change_record(&host, |office| office.with_frozen(None));
        let of_b = BenchOrder::new("b", Nonce(hours), None, order(hours));
        change_record(&host, |office| office.clone().with_benched(office.benched.with(of_b)));
        assert_eq!(diagnosis(&host, &[]), then, "benched {hours} h ago");
        change_record(&host, |office| office.with_benched(Benched::default()));
    }
    change_record(&host, |office| office.with_held_back(HeldBack::new(Token::new(token).unwrap())));
    let (findings, _, code) = doctor(&host, &[]);
    assert_eq!((&findings[0]["finding"], findings.len(), code), (&json!("D11"), 1, Some(10)), "{findings:?}");
    assert!(findings[0]["next"].as_str().unwrap().ends_with("incumbent ack jobs/x"), "{findings:?}");
    host.ok(["ack", "jobs/x"]);
    assert_eq!(diagnosis(&host, &[]), nothing());
}

#[test]
fn an_election_of_the_same_name_in_another_directory_is_found_from_either() {
    let host = Host::new();
    let elsewhere = format!("file://{}", host.path("elsewhere").display());
    let _here = lead(&host, "a");
    assert_eq!(diagnosis(&host, &[]), nothing());
    let _there = host.start(["--store", &elsewhere, "campaign", "--name", "b", "--ttl", "10m", "jobs/x"]);
    until_claimed(&host, "b");
    assert_eq!(diagnosis(&host, &[]), found("D17", 10));
    assert_eq!(diagnosis(&host, &["--store", &elsewhere]), found("D17", 10));
}

/// Which of them comes first decides whether the last leader is stopped.
#[test]
fn candidates_of_which_only_some_stop_the_last_leader_from_outside_are_found() {
    let host = Host::new();
    let run = |name, more: &[&str]| {
        let run = ["run", "--record", "--ttl", "10m", "--name", name];
        host.start([&run[..], more, &["jobs/x", "--", "sleep", "1000"]].concat())
    };
    let fence = ["--fence-cmd", "true", "--fence-targets", "node-1"];
    let _first = run("a", &fence);
    until_claimed(&host, "a");
    assert_eq!(diagnosis(&host, &[]), nothing(), "all of them do");
    let second = run("b", &[]);
    host.until_in_line("jobs/x", &["a", "b"]);
    let (findings, _, code) = doctor(&host, &[]);
    assert_eq!((findings.len(), &findings[0]["finding"], code), (1, &json!("D15"), Some(10)), "{findings:?}");
    assert!(findings[0]["seen"][0].as_str().unwrap().starts_with("1 of 2 in line have"), "{findings:?}");
    // What it says to do.
    leave_work(second);
    let _second = run("b", &fence);
    host.until_in_line("jobs/x", &["a", "b"]);
    assert_eq!(diagnosis(&host, &[]), nothing());
}

#[test]
fn a_fence_that_has_not_heard_of_the_leader_yet_is_said_and_no_fault() {
    let host = Host::new();
    host.ok(["run", "jobs/x", "--", "true"]);
    let (_leader, token) = lead(&host, "a");
    let fence = mark(&host, "behind", token - 1, claims(&host)[0]["store"].as_str().unwrap());
    assert_eq!(diagnosis(&host, &["--fence", &fence]), found("D07", 0));
}

/// Everything that is in this folder, and how it is.
fn contents(folder: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(contents(&path));
        }
        let bytes = path.is_file().then(|| fs::read(&path).unwrap());
        all.push((path, bytes));
    }
    all.sort();
    all
}

#[test]
fn looking_changes_nothing_in_the_store_nor_at_the_fence() {
    let host = Host::new();
    host.ok(["run", "--record", "jobs/x", "--", "true"]);
    host.ok(["pause", "jobs/x"]);
    let fence = mark(&host, "fence", 99, "another store");
    let before = (contents(&host.path("store")), contents(&host.path("fence")));
    assert!(!before.0.is_empty() && !before.1.is_empty());
    let (findings, code) = diagnosis(&host, &["--fence", &fence]);
    assert_eq!(code, Some(11), "{findings:?}");
    assert_eq!((contents(&host.path("store")), contents(&host.path("fence"))), before);
}

/// A fence in this folder with this mark.
pub(crate) fn mark(host: &Host, folder: &str, token: u64, store: &str) -> String {
    let fence = FileFence::open(host.path(folder), &ElectionName::new("jobs/x").unwrap()).unwrap();
    fence.write(&FencingToken::new(Token::new(token).unwrap(), StoreId::new(store)), || ()).unwrap();
    format!("file://{}", host.path(folder).display())
}

#[test]
fn a_fence_of_another_store_or_of_a_later_leader_is_found() {
    let host = Host::new();
    let _leader = lead(&host, "a");
    let store = claims(&host)[0]["store"].as_str().unwrap().to_owned();
    let mark = |folder: &str, token: u64, store: &str| mark(&host, folder, token, store);
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
    let (findings, summary, code) = doctor(&host, &["--fence", &empty]);
    assert!(findings.is_empty() && code == Some(4), "{findings:?} {summary}");
    assert!(summary["not_looked_at"][0].as_str().unwrap().contains("it has no mark of this election"), "{summary}");
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
    for token in [2, 3] {
        let (leader, led) = lead(&host, "b");
        assert_eq!(led, token);
        host.until_remembered(token);
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
fn a_store_that_was_replaced_is_noticed_until_an_operator_has_settled_it() {
    let host = Host::new();
    let (leader, _) = lead(&host, "a");
    let places = host.path(".local/state/incumbent-witness/places");
    let is_whole = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "store");
    let remembered = || fs::read_dir(&places).ok()?.flatten().map(|entry| entry.path()).find(is_whole);
    let file = eventually("a memory of the place", remembered);
    leave(leader);
    fs::remove_dir_all(host.path("store")).unwrap();
    let (mut again, token) = lead(&host, "b");
    assert_eq!(token, 1, "given a second time, by another");
    let warning = again.until_ever_said("this host has seen another store here");
    assert!(warning.contains(&*file.to_string_lossy()), "{warning}");
    let (findings, _, code) = doctor(&host, &[]);
    assert_eq!((findings.len(), &findings[0]["what"], code), (1, &json!("the store was replaced"), Some(11)));
    assert!(findings[0]["seen"].to_string().contains(&*file.to_string_lossy()), "{findings:?}");
    fs::remove_file(file).unwrap();
    assert_eq!(diagnosis(&host, &[]), nothing());
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
#[cfg(any(feature = "etcd", feature = "postgres", feature = "redis", feature = "zookeeper"))]
fn two_leaders_are_found(store: &str, always: &[&str]) {
    let host = Host::new();
    let all = everybody();
    let codes = || diagnosis(&host, &["--store", store, "--claims", &all]).0;
    let (stopped, token) = lead_in(&host, store, "a");
    host.until_remembered(token);
    assert_eq!(codes(), always);
    stop(stopped.pid());
    host.ok(["--store", store, "depose", "jobs/x"]);
    assert_eq!(codes(), [&["D02"], always].concat(), "its time runs out");
    let next = lead_in(&host, store, "b");
    assert_eq!(codes(), [&["D01"], always].concat());
    // Without a word of the other hosts, nobody knows.
    assert_eq!(diagnosis(&host, &["--store", store]).1, Some(11));
    drop(stopped);
    assert_eq!(diagnosis(&host, &["--store", store]).1, Some(4));
    eventually("one claim", || (claims(&host).len() == 1).then_some(()));
    assert_eq!(diagnosis(&host, &["--store", store, "--claims", &all]).1, Some(0), "what is always so is no finding");
    leave(next.0);
    let (found, exit) = diagnosis(&host, &["--store", store, "--claims", &all]);
    assert!(found.contains(&"D10".to_owned()) && exit == Some(10), "{found:?} {exit:?}");
}

#[cfg(feature = "etcd")]
#[tokio::test]
async fn two_leaders_are_found_on_etcd() {
    let cluster = incumbent_testkit::servers::EtcdCluster::start(1).await;
    two_leaders_are_found(&cluster.url(), &[]);
}

#[cfg(feature = "etcd")]
#[tokio::test]
async fn a_first_in_line_that_takes_no_office_and_a_term_that_was_left_open_are_found_on_etcd() {
    let cluster = incumbent_testkit::servers::EtcdCluster::start(1).await;
    one_that_takes_no_office_and_an_open_term_are_found(&Host::new(), &cluster.url());
}

#[cfg(feature = "etcd")]
#[tokio::test]
async fn work_that_outlives_its_leader_is_found_beside_the_next_on_etcd() {
    let cluster = incumbent_testkit::servers::EtcdCluster::start(1).await;
    work_that_outlives_its_leader_is_found(&Host::new(), &cluster.url());
}

#[cfg(feature = "etcd")]
#[tokio::test]
async fn a_leader_whose_renewals_come_late_is_found_on_etcd() {
    let cluster = incumbent_testkit::servers::EtcdCluster::start(1).await;
    late_renewals_are_found(&Host::new(), &cluster.url(), "12s");
}

#[cfg(feature = "etcd")]
#[tokio::test]
async fn rivals_that_raise_no_fence_are_found_on_etcd() {
    let cluster = incumbent_testkit::servers::EtcdCluster::start(1).await;
    let (host, url) = (Host::new(), cluster.url());
    let (_leader, token) = lead_in(&host, &url, "a");
    let fence = mark(&host, "fence", token, claims(&host)[0]["store"].as_str().unwrap());
    let all = everybody();
    let codes = |more: &[&str]| diagnosis(&host, &[&["--store", &url, "--claims", &all], more].concat());
    assert_eq!(codes(&["--fence", &fence]), nothing());
    let mut etcdctl = cluster.etcdctl();
    etcdctl.args(["elect", "jobs/x", "theirs"]);
    let _theirs = Process::start(etcdctl);
    let in_line =
        || host.ok(["--store", &url, "candidates", "jobs/x", "--json"]).json()["candidates"].as_array().unwrap().len();
    eventually("a second one in line", || (in_line() == 2).then_some(()));
    assert_eq!(codes(&["--fence", &fence]), found("D15", 10));
    assert_eq!(codes(&[]), nothing());
}

/// A server says nothing of a leader that is silent. Its own claim does.
#[cfg(feature = "etcd")]
#[tokio::test]
async fn a_leader_that_is_suspended_is_found_on_etcd() {
    let cluster = incumbent_testkit::servers::EtcdCluster::start(1).await;
    let (host, url) = (Host::new(), cluster.url());
    let leader = host.start(["--store", &url, "campaign", "--ttl", "20s", "--name", "a", "jobs/x"]);
    // It says how long its time was.
    let has_renewed = |claim: &Value| claim["renewals"].as_array().is_some_and(|renewals| !renewals.is_empty());
    eventually("a renewal", || claims(&host).iter().any(has_renewed).then_some(()));
    stop(leader.pid());
    eventually("D05", || {
        let (codes, _) = diagnosis(&host, &["--store", &url, "--claims", &everybody()]);
        (codes == ["D05"]).then_some(())
    });
}

/// Not even a lease, which changes no key: the server's log of what it was asked to do stays as it
/// is. So a doctor can look where nothing can be written.
#[cfg(feature = "etcd")]
#[tokio::test]
async fn looking_changes_nothing_on_etcd_and_needs_no_space_there() {
    let cluster = incumbent_testkit::servers::EtcdCluster::start_with(1, &["--quota-backend-bytes=4194304"]).await;
    let (host, url) = (Host::new(), cluster.url());
    let _leader = lead_in(&host, &url, "a");
    let here = ["--store", &url, "--claims", &everybody()];
    let log = || {
        let status: Value = serde_json::from_str(&cluster.ctl(&["endpoint", "status", "--write-out=json"])).unwrap();
        status[0]["Status"]["raftIndex"].as_u64().unwrap()
    };
    // A server writes something of its own soon after its start.
    eventually("a look that changes nothing", || {
        let before = log();
        assert_eq!(diagnosis(&host, &here), nothing());
        (log() == before).then_some(())
    });
    let filler = "x".repeat(100_000);
    let is_full = || !cluster.etcdctl().args(["put", "filler", &filler]).output().unwrap().status.success();
    eventually("no space left", || is_full().then_some(()));
    assert_eq!(diagnosis(&host, &here), nothing());
}

/// As a backup brings it back, or another program writes it.
#[cfg(feature = "etcd")]
#[tokio::test]
async fn an_entry_that_nothing_will_remove_is_found_on_etcd() {
    let cluster = incumbent_testkit::servers::EtcdCluster::start(1).await;
    let (host, url) = (Host::new(), cluster.url());
    cluster.ctl(&["put", "jobs/x/1f", "for ever"]);
    an_entry_that_stays_is_found_and_removed(&host, &url);
}

#[cfg(any(feature = "etcd", feature = "zookeeper"))]
fn an_entry_that_stays_is_found_and_removed(host: &Host, url: &str) {
    let here = ["--store", url, "--claims", &everybody()];
    let (findings, _, code) = doctor(host, &here);
    assert_eq!((findings.len(), &findings[0]["finding"], code), (1, &json!("D04"), Some(11)), "{findings:?}");
    // What it says to do helps.
    let next = findings[0]["next"].as_str().unwrap().rsplit_once("incumbent ").unwrap().1;
    host.ok(["--store", url].into_iter().chain(next.split(' ')));
    assert_eq!(diagnosis(host, &here), found("D10", 0));
}

/// A persistent node where ephemeral ones belong.
#[cfg(feature = "zookeeper")]
#[tokio::test]
async fn an_entry_that_nothing_will_remove_is_found_on_zookeeper() {
    let server = incumbent_testkit::servers::ZooKeeperEnsemble::start(1).await;
    let node = format!("/jobs/x/incumbent-{:032x}-0000000000", 1);
    for path in ["/jobs", "/jobs/x", &node] {
        server.cli(&["create", path]);
    }
    // Of this library nobody was here, and nobody who only looks makes a store of it.
    let (host, before) = (Host::new(), shown(&server, &["ls", "-R", "/"]));
    assert_eq!(diagnosis(&host, &["--store", &server.url(), "--claims", &everybody()]), found("D04", 11));
    assert_eq!(shown(&server, &["ls", "-R", "/"]), before);
    an_entry_that_stays_is_found_and_removed(&host, &server.url());
}

/// Nobody reads there without a session. Nodes are left as they are, and so is when and how often
/// each was changed.
#[cfg(feature = "zookeeper")]
#[tokio::test]
async fn looking_changes_nothing_on_zookeeper_but_for_the_session_that_everybody_needs_who_reads() {
    let builder = incumbent_testkit::servers::ZooKeeperEnsemble::builder().line("maxSessionTimeout=3600000");
    let server = builder.start(1).await;
    let (host, url) = (Host::new(), server.url());
    let _leader = lead_in(&host, &url, "a");
    let nodes =
        || [&["ls", "-R", "/"][..], &["stat", "/jobs/x"], &["stat", "/%incumbent/id"]].map(|args| shown(&server, args));
    let before = nodes();
    assert!(before.iter().all(|lines| lines.len() > 2), "{before:?}");
    assert_eq!(diagnosis(&host, &["--store", &url, "--claims", &everybody()]), nothing());
    assert_eq!(nodes(), before);
}

/// What it says of nodes, without what it says of its connection.
#[cfg(feature = "zookeeper")]
fn shown(server: &incumbent_testkit::servers::ZooKeeperEnsemble, args: &[&str]) -> Vec<String> {
    let said = server.cli(args);
    let of_nodes = said.lines().filter(|line| line.starts_with('/') || line.contains(" = "));
    of_nodes.map(str::to_owned).collect()
}

#[cfg(feature = "zookeeper")]
#[tokio::test]
async fn two_leaders_are_found_on_zookeeper() {
    // Nothing expires while the test looks.
    let server = incumbent_testkit::servers::ZooKeeperEnsemble::builder().line("maxSessionTimeout=3600000");
    two_leaders_are_found(&server.start(1).await.url(), &[]);
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn two_leaders_are_found_on_postgres() {
    let server = incumbent_testkit::servers::PostgresServer::start().await;
    two_leaders_are_found(&server.url(), &[]);
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn two_leaders_and_weak_promises_are_found_on_a_postgres_that_does_not_wait_for_its_disk() {
    let server = incumbent_testkit::servers::PostgresServer::start_with(&["fsync=off"]).await;
    two_leaders_are_found(&server.url(), &["D16"]);
}

/// One that keeps nothing across a restart.
#[cfg(feature = "redis")]
#[tokio::test]
async fn two_leaders_and_weak_promises_are_found_on_redis() {
    let server = incumbent_testkit::servers::RedisServer::start().await;
    two_leaders_are_found(&server.url(), &["D16"]);
}
