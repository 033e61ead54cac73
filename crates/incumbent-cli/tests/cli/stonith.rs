//! `--fence-cmd`: programs that stop a last leader on another host, under a guardian.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use incumbent::store::{ElectionName, Incarnation, Office, Store};
use incumbent::{Origin, TermRecord, Terms, Token};
use incumbent_file::FileStore;
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::host::{Host, Process, Spoken, eventually, finish};

/// A program that lasts, and what it has started. Of the lock nothing is left when none of them is.
const LASTS: &str = "exec 9>lock; flock 9; sleep 1000 & touch held; sleep 1000; true";

/// An election whose last leader, on another host, has left its term open.
fn left_open_elsewhere() -> Host {
    let host = Host::new();
    host.ok(["run", "jobs/x", "--", "true"]);
    left_open(&host, "jobs/x");
    host
}

/// Another election like that.
fn left_open(host: &Host, election: &str) {
    let origin = Origin::new("node-1", "another boot", "");
    let last = TermRecord::open(Token::new(1).unwrap(), Incarnation::from_bits(1), "z\ny".into(), origin);
    let office = Office::default().with_terms(Terms::default().with(last));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = FileStore::open(host.path("store")).unwrap();
        let election = ElectionName::new(election).unwrap();
        store.set_office(&election, Office::default().version, &office).await.unwrap();
    });
}

/// A program with this line.
fn program(host: &Host, name: &str, line: &str) -> String {
    let path = host.path(name);
    fs::write(&path, format!("#!/bin/sh\ncd {}\n{line}\n", host.path("").display())).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A candidate that stops the last leader with these programs.
fn start(host: &Host, more: &[&str], programs: &[String]) -> Process {
    let mut args = vec!["run", "--name", "b", "--fence-targets", "node-1", "--fence-delay", "10ms"];
    args.extend(more);
    args.extend(programs.iter().flat_map(|program| ["--fence-cmd", program.as_str()]));
    args.extend(["jobs/x", "--", "sleep", "1000"]);
    host.start(args)
}

/// The next leader, whose command says in the log how the last term ended.
fn told_of_the_last(host: &Host, more: &[&str]) -> Process {
    let mut args = vec!["run", "--name", "b"];
    args.extend(more);
    args.extend(["jobs/x", "--shell", "--", "echo \"last $INCUMBENT_LAST_TERM\" >>\"$FOLDER/log\""]);
    host.start(args)
}

#[test]
fn a_command_is_told_whether_the_last_leader_was_stopped_from_outside() {
    let host = left_open_elsewhere();
    let failing = program(&host, "fails", "exit 1");
    let armed = |program, then| {
        ["--fence-targets", "node-1", "--fence-delay", "10ms", "--fence-cmd", program, "--on-fence-failure", then]
    };
    let _next = told_of_the_last(&host, &armed(&failing, "anyway"));
    host.until_logged("last unfenced");

    let host = left_open_elsewhere();
    let stopping = program(&host, "stops", "exit 0");
    let _next = told_of_the_last(&host, &armed(&stopping, "refuse"));
    host.until_logged("last fenced");

    let host = left_open_elsewhere();
    let failing = program(&host, "fails", "exit 1");
    let _next = told_of_the_last(&host, &armed(&failing, "refuse"));
    until_result(&host, "failed");
    host.ok(["fenced", "jobs/x", "--token", "1", "--i-have-checked"]);
    host.until_logged("last fenced");
}

/// A process has one election: what a host shoots at is counted by all of them together.
#[test]
fn two_processes_of_a_host_count_their_shots_together() {
    let host = left_open_elsewhere();
    left_open(&host, "jobs/y");
    let programs = [program(&host, "switch-off", "echo shot >> ran")];
    let _first = start(&host, &[], &programs);
    until_result(&host, "stopped");
    let args = ["run", "--fence-targets", "node-1", "--fence-delay", "10ms", "--fence-cmd", &programs[0]];
    let _second = host.start(args.iter().chain(&["jobs/y", "--", "sleep", "1000"]));
    let failed = |shot: &Value| shot["result"] == "failed";
    let shot = eventually("no second shot", || Some(shot_of(&host, "jobs/y")).filter(failed));
    assert!(shot["order"]["reason"].as_str().unwrap().contains("shot at less than ten minutes ago"), "{shot}");
    assert_eq!(fs::read_to_string(host.path("ran")).unwrap(), "shot\n");
}

/// What is on record of the shot at the last leader.
fn shot(host: &Host) -> Value {
    shot_of(host, "jobs/x")
}

fn shot_of(host: &Host, election: &str) -> Value {
    host.run(["history", election, "--json"]).json()["terms"][0]["fence"].clone()
}

fn until_result(host: &Host, result: &str) -> Value {
    eventually(result, || Some(shot(host)).filter(|shot| shot["result"] == result))
}

fn lock_is_free(host: &Host) {
    let lock = fs::File::open(host.path("lock")).unwrap();
    eventually("nothing of it is left", || flock(&lock, FlockOperation::NonBlockingLockExclusive).ok());
}

#[test]
fn levels_are_tried_in_order_until_one_has_stopped_it() {
    let host = left_open_elsewhere();
    let lines = ["echo 1 >> ran; exit 1", "echo 2 >> ran; env > said; echo noise; cat", "echo 3 >> ran"];
    let names = ["level-1", "level-2", "level-3"];
    let programs: Vec<_> = names.iter().zip(lines).map(|(name, line)| program(&host, name, line)).collect();
    let mut next = start(&host, &[], &programs);
    eventually("b leads", || host.leader("jobs/x"));
    assert_eq!(shot(&host)["result"], "stopped");
    assert_eq!(fs::read_to_string(host.path("ran")).unwrap(), "1\n2\n");
    let said = fs::read_to_string(host.path("said")).unwrap();
    for line in [
        "INCUMBENT_ELECTION=jobs/x",
        "INCUMBENT_TARGET=node-1",
        "INCUMBENT_TARGET_NAME=zy",
        "INCUMBENT_TARGET_HOST=node-1",
        "INCUMBENT_TARGET_TOKEN=1",
        "INCUMBENT_TARGET_END=open",
        "INCUMBENT_ATTEMPT=1",
        "INCUMBENT_TIMEOUT_MS=60000",
    ] {
        assert!(said.lines().any(|said| said == line), "{line} in {said}");
    }
    assert!(!said.contains("INCUMBENT_STORE="), "{said}");
    next.signal(Signal::TERM);
    next.wait();
    assert!(!next.everything().iter().any(|spoken| matches!(spoken, Spoken::Out(line) if line.contains("noise"))));
}

#[test]
fn why_it_failed_is_on_record_and_is_said_where_somebody_looks() {
    let host = left_open_elsewhere();
    let _next = start(&host, &["--on-fence-failure", "refuse"], &[program(&host, "switch-off", "exit 7")]);
    assert_eq!(until_result(&host, "failed")["order"]["reason"], "switch-off exited with 7");
    let text = host.ok(["history", "jobs/x"]).out;
    assert!(text.contains("to stop it from outside, by token 2, failed: switch-off exited with 7"), "{text}");
    let status = host.run(["status", "jobs/x", "--json"]).json();
    assert_eq!((&status["vacant_because"], &status["fencing"]["token"]), (&json!("fencing"), &json!(1)));
    assert_eq!(status["fencing"]["order"]["reason"], "switch-off exited with 7");
    let text = host.run(["status", "jobs/x"]).out;
    assert!(text.contains("failed: switch-off exited with 7"), "{text}");
    let mut observer = host.start(["observe", "jobs/x", "--json"]);
    assert_eq!(observer.json(), json!({"event": "vacant", "because": "fencing"}));
}

#[test]
fn a_program_that_cannot_be_started_has_stopped_nothing() {
    for then in ["retry", "refuse", "anyway"] {
        let host = left_open_elsewhere();
        let broken = program(&host, "broken", "");
        fs::write(&broken, "#!/missing/sh\n").unwrap();
        let _next = start(&host, &["--on-fence-failure", then], &[broken]);
        let why = until_result(&host, "failed")["order"]["reason"].to_string();
        assert!(why.contains("broken cannot be started: "), "{why}");
        match then {
            "anyway" => drop(eventually("b leads", || host.leader("jobs/x"))),
            _ => assert_eq!(host.run(["status", "jobs/x", "--json"]).json()["vacant_because"], "fencing"),
        }
    }
}

#[test]
fn a_program_that_dies_of_a_signal_has_stopped_nothing() {
    let host = left_open_elsewhere();
    let _next = start(&host, &["--on-fence-failure", "refuse"], &[program(&host, "kills-itself", "kill -9 $$")]);
    assert_eq!(until_result(&host, "failed")["order"]["reason"], "kills-itself died of signal 9");
    assert_eq!(host.run(["status", "jobs/x", "--json"]).json()["vacant_because"], "fencing");
}

/// Found out when a leader has died, it would be too late.
#[test]
fn a_program_that_is_missing_or_cannot_be_executed_is_refused_at_once() {
    let host = Host::new();
    let plain = host.path("plain");
    fs::write(&plain, "").unwrap();
    let missing = host.path("missing");
    for (wrong, why) in [
        (missing.to_str().unwrap(), "No such file"),
        (plain.to_str().unwrap(), "Permission denied"),
        (host.path("").to_str().unwrap(), "not a file"),
        ("no-such-program-anywhere", "PATH"),
    ] {
        let said = host.run(["run", "--fence-targets", "node-1", "--fence-cmd", wrong, "jobs/x", "--", "true"]);
        assert!(said.code == Some(2) && said.err.contains(why), "{said:?}");
        assert!(said.err.contains("--fence-cmd"), "{said:?}");
    }
    host.ok(["run", "--fence-targets", "node-1", "--fence-cmd", "true", "jobs/x", "--", "true"]);
}

#[test]
fn what_is_said_of_stopping_the_last_leader_needs_a_program_that_stops_it() {
    let host = Host::new();
    for alone in [
        ["--fence-delay", "1s"],
        ["--fence-timeout", "1s"],
        ["--fence-targets", "node-1"],
        ["--on-fence-failure", "refuse"],
    ] {
        let said = host.run(["run"].iter().chain(&alone).chain(&["jobs/x", "--", "true"]));
        assert!(said.code == Some(2) && said.err.contains("--fence-cmd"), "{said:?}");
    }
    // Whoever can write to the store says what the last leader is called.
    let said = host.run(["run", "--fence-cmd", "true", "jobs/x", "--", "true"]);
    assert!(said.code == Some(2) && said.err.contains("--fence-targets"), "{said:?}");
    // The one that is stopped need not be one that stops others.
    host.ok(["run", "--record", "--fence-as", "plug-1", "jobs/x", "--", "true"]);
    let terms = host.run(["history", "jobs/x", "--json"]).json()["terms"].clone();
    assert_eq!(terms[0]["target"], "plug-1", "{terms}");
    assert_eq!(terms[0]["boot"].as_str().unwrap().len(), 32, "{terms}");
}

#[test]
fn a_doctor_who_finds_the_term_left_open_says_what_came_of_stopping_it() {
    let host = left_open_elsewhere();
    let _next = start(&host, &["--on-fence-failure", "anyway"], &[program(&host, "switch-off", "exit 7")]);
    eventually("b leads", || host.leader("jobs/x"));
    let said = host.run(["doctor", "jobs/x"]);
    assert!(said.out.contains("D12") && said.out.contains("failed: switch-off exited with 7"), "{said:?}");
}

/// Nothing is claimed yet, and the next in line would lead at once.
#[test]
fn while_it_waits_for_a_late_word_everybody_can_see_that_it_fences_and_nobody_removes_it() {
    let host = left_open_elsewhere();
    let options = ["--fence-targets", "node-1", "--fence-delay", "10m", "--fence-cmd", "true"];
    let args = ["run", "--name", "b", "--ttl", "10m"].iter().chain(&options).chain(&["jobs/x", "--", "sleep", "1000"]);
    let _waiting = host.start(args);
    host.until_in_line("jobs/x", &["b"]);
    let _other = host.start(["run", "--name", "c", "--ttl", "10m", "jobs/x", "--", "sleep", "1000"]);
    host.until_in_line("jobs/x", &["b", "c"]);
    assert_eq!(host.run(["status", "jobs/x", "--json"]).json()["vacant_because"], "fencing");
    let command = "incumbent fenced jobs/x --token 1 --i-have-checked";
    for act in [&["resign"][..], &["depose"], &["transfer", "--to", "c"]] {
        let said = host.run([act, &["jobs/x"]].concat());
        assert!(said.code == Some(3) && said.err.contains(command), "{said:?}");
    }
    let said = host.run(["doctor", "jobs/x"]);
    assert!(said.out.contains("D09") && said.out.contains(command), "{said:?}");
    assert_eq!(shot(&host), Value::Null);
}

/// Everything that says so can be copied as it is.
#[test]
fn who_waits_for_the_last_leader_is_told_the_whole_command_that_ends_the_wait() {
    let host = left_open_elsewhere();
    let _next = start(&host, &["--on-fence-failure", "refuse"], &[program(&host, "switch-off", "exit 7")]);
    until_result(&host, "failed");
    let command = "incumbent fenced jobs/x --token 1 --i-have-checked";
    let status = host.run(["status", "jobs/x"]);
    assert!(status.out.contains(command), "{status:?}");
    for act in ["resign", "depose"] {
        let said = host.run([act, "jobs/x"]);
        assert!(said.code == Some(3) && said.err.contains(command), "{said:?}");
    }
    let said = host.run(["doctor", "jobs/x"]);
    assert!(said.out.contains("D09") && said.out.contains(command), "{said:?}");
}

#[test]
fn a_target_that_is_not_listed_is_named_with_those_that_are() {
    let host = left_open_elsewhere();
    let program = program(&host, "switch-off", "");
    let options = ["--fence-delay", "10ms", "--fence-targets", "node-2,node-3", "--fence-cmd", &program];
    let mut next = host.start(["run", "--name", "b"].iter().chain(&options).chain(&["jobs/x", "--", "sleep", "1000"]));
    let why = "\"node-1\" is not among the targets (node-2, node-3)";
    next.until_said(why);
    assert_eq!(until_result(&host, "failed")["order"]["reason"], why);
}

/// The one that is first does not lead, and hands over to nobody.
#[test]
fn a_transfer_from_one_that_stops_the_last_leader_is_refused_at_once() {
    let host = left_open_elsewhere();
    let _next = start(&host, &["--on-fence-failure", "refuse"], &[program(&host, "switch-off", "exit 7")]);
    until_result(&host, "failed");
    let _other = host.start(["run", "--name", "c", "jobs/x", "--", "sleep", "1000"]);
    host.until_in_line("jobs/x", &["b", "c"]);
    let said = host.run(["transfer", "jobs/x", "--to", "c", "--timeout", "3s"]);
    assert!(said.code == Some(3) && said.err.contains("does not lead yet"), "{said:?}");
}

#[test]
fn what_came_of_a_shot_is_logged_in_plain_words_with_when_it_is_tried_again() {
    let host = left_open_elsewhere();
    let mut next = start(&host, &[], &[program(&host, "switch-off", "exit 7")]);
    let line = next.until_said("stopping node-1 from outside failed");
    assert!(line.contains("switch-off exited with 7") && line.contains("again in 5 s"), "{line}");
    next.signal(Signal::TERM);
    next.wait();
    for spoken in next.everything() {
        let (Spoken::Out(line) | Spoken::Err(line)) = spoken;
        assert!(!line.contains("Failed("), "{line}");
    }
}

#[test]
fn what_does_not_end_in_time_is_killed_and_may_have_stopped_it() {
    let host = left_open_elsewhere();
    let programs = [program(&host, "lasts", LASTS), program(&host, "fails", "exit 1")];
    let _next = start(&host, &["--on-fence-failure", "refuse", "--fence-timeout", "3s"], &programs);
    assert_eq!(until_result(&host, "timed_out")["order"]["reason"], "lasts did not end within 3 s");
    // It may have been killed before it got anywhere.
    if host.path("held").exists() {
        lock_is_free(&host);
    }
}

#[test]
fn a_program_does_not_outlive_the_one_that_was_killed_while_it_ran() {
    let host = left_open_elsewhere();
    let mut next = start(&host, &["--fence-timeout", "10m"], &[program(&host, "lasts", LASTS)]);
    eventually("the program runs", || host.path("held").exists().then_some(()));
    next.signal(Signal::KILL);
    next.wait();
    lock_is_free(&host);
    assert_eq!(shot(&host)["result"], "claimed", "it may have been fired");
}

#[test]
fn the_next_one_after_one_that_died_over_its_shot_says_that_it_may_have_been_fired() {
    let host = left_open_elsewhere();
    let mut first = start(&host, &["--fence-timeout", "10m"], &[program(&host, "lasts", LASTS)]);
    eventually("the program runs", || host.path("held").exists().then_some(()));
    first.signal(Signal::KILL);
    first.wait();
    let text = host.ok(["history", "jobs/x"]).out;
    assert!(text.contains("attempt 1 to stop it from outside, by token 2, may have been made"), "{text}");
    let stops = program(&host, "stops", "echo attempt $INCUMBENT_ATTEMPT >> ran");
    let mut next = start(&host, &[], &[stops]);
    next.until_said("stopping node-1 from outside, which may have been shot at before");
    until_result(&host, "stopped");
    assert_eq!(fs::read_to_string(host.path("ran")).unwrap(), "attempt 2\n");
}

#[test]
fn a_program_does_not_outlive_the_place_for_which_it_runs() {
    let host = left_open_elsewhere();
    let mut next = start(&host, &["--fence-timeout", "10m"], &[program(&host, "lasts", LASTS)]);
    eventually("the program runs", || host.path("held").exists().then_some(()));
    next.signal(Signal::TERM);
    next.wait();
    lock_is_free(&host);
    assert_eq!(shot(&host)["result"], "claimed");
}

/// Another attempt may follow, by the same candidate: this one is over.
#[test]
fn a_program_does_not_outlive_the_entry_of_one_that_is_deposed_while_it_runs() {
    let host = left_open_elsewhere();
    let lasts = program(&host, "lasts", "echo $$ > draft; mv draft pid-$INCUMBENT_ATTEMPT; sleep 1000; true");
    let _next = start(&host, &["--fence-timeout", "10m"], &[lasts]);
    let pid = eventually("the program runs", || fs::read_to_string(host.path("pid-1")).ok());
    let process = Path::new("/proc").join(pid.trim());
    assert!(process.exists());
    host.ok(["depose", "jobs/x", "--token", "2"]);
    eventually("it is killed", || (!process.exists()).then_some(()));
    assert_eq!(shot(&host)["result"], "claimed", "it may have been fired");
    assert_eq!(host.leader("jobs/x"), None);
}

/// As somebody would copy them, with what they call in the place of a device, a cloud and a host.
#[test]
fn the_programs_on_the_page_say_that_it_is_off_only_if_what_they_ask_says_so() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/fencing.md")).unwrap();
    let scripts = page.split("```sh\n#!/bin/sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut called = Vec::new();
    for script in scripts {
        let host = Host::new();
        let tool = script.lines().find(|line| !line.starts_with('#')).unwrap().split(' ').next().unwrap();
        called.push(tool);
        let ran = |says: &str| {
            program(&host, tool, says);
            let path = format!("{}:{}", host.path("").display(), std::env::var("PATH").unwrap());
            let mut command = Command::new(program(&host, "script", script));
            command.env("PATH", path).env("INCUMBENT_TARGET", "node-1");
            finish(command).code
        };
        assert_eq!(ran("echo Chassis Power is off"), Some(0), "{script}");
        assert_ne!(ran("echo Chassis Power is off; exit 1"), Some(0), "{script}");
        let first_fails = "echo Chassis Power is off; test -e asked || { touch asked; exit 1; }";
        assert_ne!(ran(first_fails), Some(0), "it may not have been asked to go off: {script}");
        if tool == "ipmitool" {
            assert_ne!(ran("echo Chassis Power is on"), Some(0), "asked to go off, and still on: {script}");
        }
    }
    assert_eq!(called, ["ipmitool", "aws", "ssh"]);
}
