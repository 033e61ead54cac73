//! What a candidate does before it takes over: `--ready-cmd`, and `--unready-cmd` when that comes
//! to nothing.

use std::fs;

use rustix::process::Signal;

use crate::host::{Host, Process};

/// Says in the log which line it is and what it was told, then waits to be let go.
const READY: &str = r#"
echo "ready $INCUMBENT_ELECTION $INCUMBENT_NAME ${INCUMBENT_TOKEN-no} ${INCUMBENT_STORE_ID-no} $INCUMBENT_HEIR" >>"$FOLDER/log"
until test -e "$FOLDER/go"; do sleep 0.02; done"#;
const UNREADY: &str = r#"echo "unready ${INCUMBENT_TOKEN-no} $INCUMBENT_HEIR" >>"$FOLDER/log""#;
/// Says whether it was ready.
const WORK: &str = r#"echo "work ${INCUMBENT_READY-?} ${INCUMBENT_HEIR-no}" >>"$FOLDER/log"; exec sleep 1000"#;

/// A leader, and one behind it that gets ready with this line.
fn before_an_heir(host: &Host, ready: &str, unready: &str) -> (Process, Process) {
    let leader = host.start_lonely("a", &[]);
    host.until_logged("start 1 a");
    let lines = ["--ready-cmd", ready, "--unready-cmd", unready, "jobs/x", "--shell", "--", WORK];
    let run = ["run", "--name", "b", "--ttl", "10m"].into_iter().chain(lines);
    // What this process was told is not for its lines, nor for its command.
    let told = ["INCUMBENT_TOKEN=77", "INCUMBENT_STORE_ID=old", "INCUMBENT_READY=old", "INCUMBENT_HEIR=old"];
    let heir = host.start_with(&["--default-signal"].into_iter().chain(told).collect::<Vec<_>>(), run);
    host.until_in_line("jobs/x", &["a", "b"]);
    (leader, heir)
}

#[test]
fn an_heir_gets_ready_without_its_token_while_the_leader_works() {
    let host = Host::new();
    let (mut leader, _heir) = before_an_heir(&host, READY, UNREADY);
    let mut transfer = host.start(["transfer", "jobs/x", "--to", "b", "--timeout", "10m"]);
    host.until_logged("ready");
    transfer.until_said("asked: the leader hands over once b is next in line and ready");
    transfer.until_said("b gets ready, and the leader leads on");
    transfer.until_said(": the heir gets ready, for ");
    assert_eq!(host.log(), ["start 1 a", "ready jobs/x b no no 1"]);
    assert_eq!(host.line("jobs/x"), ["a", "b"]);
    fs::write(host.path("go"), "").unwrap();
    leader.until_said("stopping the command: the office was transferred");
    host.until_logged("work yes no");
    transfer.until_said("released after ");
    assert_eq!(transfer.wait(), Some(0));
    assert_eq!(host.log(), ["start 1 a", "ready jobs/x b no no 1", "stop 1 a", "work yes no"]);
}

#[test]
fn a_transfer_that_waits_for_the_leaders_work_says_so_and_that_it_will_happen_all_the_same() {
    let host = Host::new();
    let line = r#"trap 'echo asked' TERM; echo up; until test -e "$FOLDER/go"; do sleep 0.02; done"#;
    let run = ["run", "--name", "a", "--ttl", "2h", "--grace", "20m", "jobs/x", "--shell", "--", line];
    let mut leader = host.start(run);
    assert_eq!(leader.line(), "up");
    let _heir = host.start_lonely("b", &["--ttl", "2h"]);
    host.until_in_line("jobs/x", &["a", "b"]);
    let mut transfer = host.start(["transfer", "jobs/x", "--to", "b", "--timeout", "5s"]);
    assert_eq!(leader.line(), "asked");
    transfer.until_said("b is ready after ");
    transfer.until_said("the request stands: the leader hands over once its work has stopped");
    assert_ne!(transfer.wait(), Some(0));
    fs::write(host.path("go"), "").unwrap();
    host.until_logged("start 2 b");
}

#[test]
fn one_that_fails_declines_at_once_and_undoes_what_it_did() {
    let host = Host::new();
    let (leader, mut heir) = before_an_heir(&host, "exit 3", UNREADY);
    let said = host.run(["transfer", "jobs/x", "--to", "b", "--timeout", "10m"]);
    assert_ne!(said.code, Some(0), "{said:?}");
    assert!(said.err.contains("the heir declined: it could not get ready; its log says why"), "{said:?}");
    heir.until_said("--ready-cmd exited with 3: the office is declined");
    host.until_logged("unready no 1");
    assert_eq!(host.log(), ["start 1 a", "unready no 1"], "the leader leads on");
    drop(leader);
}

#[test]
fn one_that_is_called_off_is_stopped_and_undoes_what_it_did() {
    let host = Host::new();
    let (_leader, _heir) = before_an_heir(&host, READY, UNREADY);
    let mut transfer = host.start(["transfer", "jobs/x", "--to", "b", "--timeout", "10m"]);
    host.until_logged("ready");
    host.ok(["transfer", "jobs/x", "--cancel"]);
    host.until_logged("unready no 1");
    assert_ne!(transfer.wait(), Some(0));
    assert_eq!(host.log(), ["start 1 a", "ready jobs/x b no no 1", "unready no 1"]);
}

#[test]
fn when_the_leader_dies_the_heir_does_not_wait_and_nothing_is_undone_beside_its_command() {
    let host = Host::new();
    let ready = format!("trap '' TERM; {READY}");
    let (leader, mut heir) = before_an_heir(&host, &ready, UNREADY);
    let transfer = host.start(["transfer", "jobs/x", "--to", "b", "--timeout", "10m"]);
    host.until_logged("ready");
    leader.signal(Signal::KILL);
    host.until_logged("work no no");
    heir.signal(Signal::TERM);
    heir.wait();
    assert!(!host.log().iter().any(|line| line.starts_with("unready")), "{:?}", host.log());
    drop(transfer);
}

#[test]
fn an_heir_that_leaves_undoes_what_it_did() {
    let host = Host::new();
    let (_leader, mut heir) = before_an_heir(&host, READY, UNREADY);
    let transfer = host.start(["transfer", "jobs/x", "--to", "b", "--timeout", "10m"]);
    host.until_logged("ready");
    heir.signal(Signal::TERM);
    assert_eq!(heir.wait(), Some(143));
    assert_eq!(host.log().last().map(String::as_str), Some("unready no 1"), "before its process ends");
    drop(transfer);
}

#[test]
fn a_leader_that_leaves_waits_for_an_heir_that_gets_ready() {
    let host = Host::new();
    let (mut leader, _heir) = before_an_heir(&host, &format!("{READY}; sleep 3"), UNREADY);
    leader.signal(Signal::TERM);
    host.until_logged("ready");
    fs::write(host.path("go"), "").unwrap();
    leader.until_said("stopping the command: the office was transferred");
    host.until_logged("work yes no");
}

#[test]
fn the_hooks_of_a_campaign_are_told_whether_it_was_ready() {
    let host = Host::new();
    let leader = host.start_lonely("a", &[]);
    host.until_logged("start 1 a");
    let hook = r#"echo "elected ${INCUMBENT_READY-?} ${INCUMBENT_HEIR-no}" >>"$FOLDER/log""#;
    let campaign = ["campaign", "--name", "b", "--ready-cmd", "true", "--on-elected", hook, "jobs/x", "--json"];
    let mut heir = host.start(campaign);
    assert_eq!(heir.json()["event"], "following");
    host.ok(["transfer", "jobs/x", "--to", "b"]);
    host.until_logged("elected yes no");
    drop(leader);
}

#[test]
fn where_nobody_is_asked_to_get_ready_such_a_candidate_is_refused() {
    let host = Host::new();
    for store in ["bully://?members=3", "consensus://?members=3"] {
        let said = host.run(["--store", store, "run", "--ready-cmd", "true", "jobs/x", "--", "true"]);
        assert!(said.code == Some(125) && said.err.contains("--ready-cmd"), "{said:?}");
    }
    let said = host.run(["run", "--unready-cmd", "true", "jobs/x", "--", "true"]);
    assert!(said.code == Some(2) && said.err.contains("--ready-cmd"), "{said:?}");
}
