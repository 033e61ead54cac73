//! What is read: leader, candidates, observe, status, explain; for people and for programs.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};

use crate::host::{Host, eventually, finish, in_time, stop};

#[test]
fn a_vacant_office_is_said_with_exit_code_3() {
    let host = Host::new();
    let said = host.run(["leader", "jobs/x", "--json"]);
    assert_eq!(said.code, Some(3), "{said:?}");
    let mut json = said.json();
    assert!(json["age_ms"].as_u64().is_some());
    json["age_ms"] = json!(0);
    assert_eq!(json, json!({"v": 1, "election": "jobs/x", "leader": null, "age_ms": 0}));

    let said = host.run(["leader", "jobs/x"]);
    assert_eq!((said.code, said.out.as_str()), (Some(3), ""));
    assert!(said.err.contains("incumbent status jobs/x"), "{said:?}");
}

#[test]
fn a_leader_is_shown_with_its_name_id_value_and_token() {
    let host = Host::new();
    let _leader = host.start(["run", "--name", "node-1", "--value", "10.0.0.7:80", "jobs/x", "--", "sleep", "1000"]);
    eventually("a leader", || host.leader("jobs/x"));
    let said = host.ok(["leader", "jobs/x", "--json"]);
    let leader = &said.json()["leader"];
    assert_eq!(leader["name"], "node-1");
    assert_eq!(leader["value"], "10.0.0.7:80");
    assert_eq!(leader["token"], 1);
    assert_eq!(leader["id"].as_str().unwrap().len(), 32);
    // The order is part of what people have seen in the documentation.
    assert!(said.out.starts_with(r#"{"v":1,"election":"jobs/x","leader":{"name":"node-1","id":""#), "{said:?}");
    assert_eq!(host.ok(["leader", "jobs/x"]).out, "node-1 (token 1, value 10.0.0.7:80)\n");
}

#[test]
fn candidates_come_in_the_order_of_the_line_with_their_roles() {
    let host = Host::new();
    let nobody = host.run(["candidates", "jobs/x", "--json"]);
    assert_eq!((nobody.code, &nobody.json()["candidates"]), (Some(3), &json!([])));
    let nobody = host.run(["candidates", "jobs/x"]);
    assert_eq!((nobody.code, nobody.out.as_str()), (Some(3), ""), "{nobody:?}");
    let mut processes = Vec::new();
    for name in ["c", "a", "b"] {
        processes.push(host.start(["run", "--name", name, "jobs/x", "--", "sleep", "1000"]));
        eventually(name, || host.line("jobs/x").contains(&name.to_owned()).then_some(()));
    }
    let json = host.ok(["candidates", "jobs/x", "--json"]).json();
    let seen: Vec<_> = json["candidates"].as_array().unwrap().iter().map(|one| (&one["name"], &one["role"])).collect();
    assert_eq!(json!(seen), json!([["c", "leader"], ["a", "follower"], ["b", "follower"]]));
    let tokens: Vec<_> =
        json["candidates"].as_array().unwrap().iter().map(|one| one["token"].as_u64().unwrap()).collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    let text = host.ok(["candidates", "jobs/x"]).out;
    assert_eq!(text.lines().count(), 3);
    assert!(text.lines().next().unwrap().starts_with("leader    c"), "{text}");
}

#[test]
fn a_value_that_is_not_text_comes_as_base64() {
    let host = Host::new();
    let value = OsStr::from_bytes(b"\xff\xfe");
    let args: Vec<&OsStr> = ["run", "--value"]
        .map(OsStr::new)
        .into_iter()
        .chain([value])
        .chain(["jobs/x", "--", "sleep", "1000"].map(OsStr::new))
        .collect();
    let _leader = host.start(args);
    eventually("a leader", || host.leader("jobs/x"));
    let json = host.ok(["leader", "jobs/x", "--json"]).json();
    assert_eq!(json["leader"]["value_base64"], "//4=");
    assert_eq!(json["leader"].get("value"), None);
    assert!(host.ok(["leader", "jobs/x"]).out.contains("base64://4="));
}

#[test]
fn what_candidates_call_themselves_cannot_play_tricks_with_a_terminal() {
    let host = Host::new();
    let (election, name) = ("jobs/\u{202e}x", "n\u{202e}m");
    let _leader = host.start(["run", "--name", name, "--value", "\x1b[2J\n", election, "--", "sleep", "1000"]);
    eventually("a leader", || host.leader(election));
    for verb in ["leader", "status", "candidates"] {
        let said = host.ok([verb, election]);
        assert!(!said.out.contains(['\x1b', '\u{202e}']), "{said:?}");
    }
    let leader = host.ok(["leader", election, "--json"]).json();
    assert_eq!((&leader["leader"]["value"], &leader["leader"]["name"]), (&json!("\x1b[2J\n"), &json!(name)));
}

#[test]
fn an_observer_sees_every_change_until_the_end() {
    let host = Host::new();
    let mut observer = host.start(["observe", "jobs/x", "--json"]);
    let mut people = host.start(["observe", "jobs/x"]);
    assert_eq!(observer.json(), json!({"event": "vacant"}));
    assert_eq!(people.line(), "vacant");

    let _leader = host.start(["run", "--name", "a", "--value", "v", "jobs/x", "--", "sleep", "1000"]);
    assert_eq!(observer.json(), json!({"event": "leader", "name": "a", "value": "v", "token": 1}));
    assert_eq!(people.line(), "leader  a (token 1, value v)");

    host.ok(["pause", "jobs/x", "--reason", "tea"]);
    let paused = json!({"event": "paused", "reason": "tea"});
    until(&mut || observer.json(), &paused, &[json!({"event": "vacant"})]);
    host.ok(["resume", "jobs/x"]);
    let leader = until_event(&mut || observer.json(), "leader");
    assert!(leader["token"].as_u64().unwrap() > 1, "{leader}");

    host.ok(["end", "jobs/x"]);
    until_event(&mut || observer.json(), "ended");
    assert_eq!(observer.wait(), Some(0));
    assert_eq!(people.wait(), Some(0));
}

/// Takes events until this one; only those that may come in between do.
fn until(next: &mut dyn FnMut() -> Value, wanted: &Value, between: &[Value]) {
    loop {
        let event = next();
        if event == *wanted {
            return;
        }
        assert!(between.contains(&event), "{event} instead of {wanted}");
    }
}

fn until_event(next: &mut dyn FnMut() -> Value, kind: &str) -> Value {
    loop {
        let event = next();
        if event["event"] == kind {
            return event;
        }
        assert_eq!(event["event"], "vacant", "{event} instead of {kind}");
    }
}

#[test]
fn an_observer_is_told_when_the_store_cannot_be_read_and_when_it_can_again() {
    let host = Host::new();
    let _leader = host.start(["run", "--name", "a", "jobs/x", "--", "sleep", "1000"]);
    eventually("a leader", || host.leader("jobs/x"));
    let mut observer = host.start(["observe", "jobs/x", "--json"]);
    let mut people = host.start(["observe", "jobs/x"]);
    assert_eq!(observer.json()["event"], "leader");
    assert!(people.line().starts_with("leader  a"));

    // Something else is in the place of the line, from one moment to the next: an empty place would
    // mean that nobody leads.
    let line = host.path("store/elections/jobs%2fx/line");
    let other = host.path("other");
    std::fs::write(&other, "not a directory").unwrap();
    let swap = || renameat_with(CWD, &line, CWD, &other, RenameFlags::EXCHANGE).unwrap();
    swap();
    assert_eq!(observer.json(), json!({"event": "stale"}));
    assert!(people.line().starts_with("stale"));

    swap();
    assert_eq!(observer.json(), json!({"event": "current"}));
    assert!(people.line().starts_with("current"));
}

#[test]
fn nobody_but_a_candidate_makes_a_directory_whose_name_is_mistyped() {
    let host = Host::new();
    let mistyped = host.path("stroe");
    let url = format!("file://{}", mistyped.display());
    let missing = format!("there is no directory {}", mistyped.display());
    let orders = ["resign", "depose", "pause", "resume", "freeze", "unfreeze", "end"];
    let orders = orders.map(|verb| vec![verb, "jobs/x"]).into_iter().chain([vec!["transfer", "jobs/x", "--to", "a"]]);
    for line in ["leader", "candidates", "status"].map(|verb| vec![verb, "jobs/x"]).into_iter().chain(orders) {
        let said = host.run(["--store", url.as_str()].iter().chain(&line));
        assert_eq!((said.code, said.out.as_str()), (Some(5), ""), "{said:?}");
        assert!(said.err.contains(&missing), "{said:?}");
        assert!(!mistyped.exists(), "{line:?}");
    }
    // An observer says so, and waits for it.
    let mut observer = host.start(["--store", url.as_str(), "observe", "jobs/x", "--json"]);
    assert!(observer.until_said(&missing).contains("waiting"));
    assert!(!mistyped.exists());
    // A candidate makes it, and then it can be read.
    let mut leader = host.start(["--store", url.as_str(), "campaign", "--name", "a", "jobs/x"]);
    while observer.json()["name"] != "a" {}
    drop(leader.stdin.take());
    assert_eq!(leader.wait(), Some(0));
    assert_eq!(host.run(["--store", url.as_str(), "leader", "jobs/x"]).code, Some(3));
}

#[test]
fn a_reader_makes_nothing_of_the_users_own() {
    let host = Host::new();
    let run = |args: &[&str]| {
        let mut command = host.command(args);
        command.env_remove("INCUMBENT_STORE").env("HOME", host.path("home"));
        finish(command)
    };
    assert_eq!(run(&["leader", "jobs/x", "--json"]).json()["leader"], Value::Null);
    assert_eq!(run(&["candidates", "jobs/x", "--json"]).json()["candidates"], json!([]));
    let status = run(&["status", "jobs/x", "--json"]);
    assert_eq!(status.code, Some(3), "{status:?}");
    assert_eq!(status.json()["vacant_because"], "no_candidates");
    let store = format!("file://{}", host.path("home/.local/state/incumbent").display());
    assert_eq!(status.json()["store"], store.as_str());
    let explained = run(&["explain"]);
    assert_eq!(explained.code, Some(5), "{explained:?}");
    assert!(
        explained.err.contains("there is no directory") && explained.err.contains("`incumbent run`"),
        "{explained:?}"
    );
    assert!(!host.path("home").exists());
    // A candidate makes it.
    assert_eq!(run(&["run", "jobs/x", "--", "true"]).code, Some(0));
    assert_eq!(run(&["explain"]).code, Some(0));
}

#[test]
fn an_observer_whose_reader_has_gone_ends_quietly_though_nothing_changes() {
    let host = Host::new();
    // A pipe, and a socket: both can be without a reader.
    let (socket, other_end) = std::os::unix::net::UnixStream::pair().unwrap();
    let (pipe, pipes_end) = std::io::pipe().unwrap();
    for (reader, output) in
        [(OwnedFd::from(pipe), OwnedFd::from(pipes_end)), (OwnedFd::from(socket), OwnedFd::from(other_end))]
    {
        let mut command = host.command(["observe", "jobs/x"]);
        command.stdout(output).stderr(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        // The command keeps a copy of its output.
        drop(command);
        let mut reader = BufReader::new(File::from(reader));
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert_eq!(line, "vacant\n");
        drop(reader);
        let ended = in_time(|| child.try_wait().unwrap()).is_some();
        // It has ended, or it must not outlive the test.
        let _ = child.kill();
        assert!(ended, "it goes on with nobody to read it");
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), b"".as_slice()));
    }
}

#[test]
fn status_says_why_nobody_leads_and_what_to_do() {
    let host = Host::new();
    let why = |host: &Host| {
        let said = host.run(["status", "jobs/x", "--json"]);
        assert_eq!(said.code, Some(3), "{said:?}");
        said.json()["vacant_because"].as_str().unwrap().to_owned()
    };
    assert_eq!(why(&host), "no_candidates");
    let text = host.run(["status", "jobs/x"]).out;
    assert!(text.contains("nobody is in line") && text.contains("incumbent run jobs/x -- COMMAND"), "{text}");

    host.ok(["pause", "jobs/x", "--reason", "tea"]);
    assert_eq!(why(&host), "paused");
    let text = host.run(["status", "jobs/x"]).out;
    assert!(text.contains("tea") && text.contains("incumbent resume jobs/x"), "{text}");
    assert_eq!(host.run(["status", "jobs/x", "--json"]).json()["paused"]["reason"], "tea");

    host.ok(["resume", "jobs/x"]);
    let mut leader = host.start(["run", "--record", "--exit-on-loss", "jobs/x", "--", "sleep", "1000"]);
    let (_, token) = eventually("a leader", || host.leader("jobs/x"));
    host.ok(["depose", "jobs/x", "--by", "ada", "--reason", "stuck"]);
    leader.wait();
    assert_eq!(why(&host), "deposed");
    let text = host.run(["status", "jobs/x"]).out;
    assert!(text.contains(&format!("The leader with token {token} was deposed by ada: stuck, ")), "{text}");
    // Somebody else led since, for too short a time to take out the note of it.
    host.ok(["run", "jobs/x", "--", "true"]);
    assert_eq!(why(&host), "no_candidates");

    host.ok(["end", "jobs/x"]);
    assert_eq!(why(&host), "ended");
    assert!(host.run(["status", "jobs/x"]).out.contains("was ended"));
}

#[test]
fn status_says_that_an_election_was_ended_though_somebody_is_still_in_line() {
    let host = Host::new();
    assert_eq!(host.run(["status", "jobs/x", "--json"]).json()["ended"], false);
    let leader = host.start(["run", "--name", "a", "jobs/x", "--", "sleep", "1000"]);
    host.until_in_line("jobs/x", &["a"]);
    // It does not hear of it.
    stop(leader.pid());
    let said = host.run(["end", "jobs/x", "--timeout", "3s"]);
    assert_eq!(said.code, Some(4), "{said:?}");
    let json = host.ok(["status", "jobs/x", "--json"]).json();
    assert_eq!((&json["ended"], &json["leader"]["name"]), (&json!(true), &json!("a")));
    let text = host.ok(["status", "jobs/x"]).out;
    assert!(text.lines().any(|line| line.starts_with("ended ")), "{text}");
}

#[test]
fn status_says_how_long_the_leader_has_been_silent() {
    let host = Host::new();
    let leader = host.start(["run", "--ttl", "10m", "--name", "a", "jobs/x", "--", "sleep", "1000"]);
    host.until_in_line("jobs/x", &["a"]);
    assert!(host.ok(["status", "jobs/x"]).out.contains("\nlast seen "), "it is well, and was seen a while ago");
    stop(leader.pid());
    let silent = || host.ok(["status", "jobs/x", "--json"]).json()["silent_ms"].as_u64().unwrap();
    let before = silent();
    eventually("a longer silence", || (silent() > before + 20).then_some(()));
}

#[test]
fn status_names_the_leader_and_those_in_line() {
    let host = Host::new();
    let _a = host.start(["run", "--name", "a", "jobs/x", "--", "sleep", "1000"]);
    host.until_in_line("jobs/x", &["a"]);
    let text = host.ok(["status", "jobs/x"]).out;
    assert!(text.contains("a (token 1)") && text.contains("nobody else"), "{text}");
    let _b = host.start(["run", "--name", "b", "jobs/x", "--", "sleep", "1000"]);
    host.until_in_line("jobs/x", &["a", "b"]);
    let json = host.ok(["status", "jobs/x", "--json"]).json();
    assert_eq!((&json["leader"]["name"], &json["followers"]), (&json!("a"), &json!(1)));
    assert_eq!(json.get("vacant_because"), None);
}

#[test]
fn explain_reckons_with_the_times_that_were_given() {
    let host = Host::new();
    let json = host.ok(["explain", "--ttl", "30s", "--grace", "5s", "--json"]).json();
    assert_eq!((&json["ttl_ms"], &json["grace_ms"]), (&json!(30_000), &json!(5_000)));
    assert_eq!(json["tokens"], "durable");
    assert_eq!(json["worst_overlap_ms"], 0);
    // One TTL, by a clock that may be slow by 0.1 %; two where candidates share no clock.
    assert_eq!(json["worst_failover_ms"], 30_030);
    let caveats = json["caveats"].to_string();
    assert!(caveats.contains("share no clock") && caveats.contains("two TTLs"), "{caveats}");
    // 30 s, less 0.1 % drift, less a fiftieth as margin.
    assert_eq!(json["believes_ms"], 29_370);
    assert_eq!(json["tolerated_outage_ms"], 29_370 - 5_000 - 10_000);
    let text = host.ok(["explain", "--ttl", "30s", "--grace", "5s"]).out;
    assert!(text.contains("with --fence-cmd") && text.contains("25 s more for --fence-delay"), "{text}");
    let json = host.ok(["explain", "jobs/x", "--json"]).json();
    assert_eq!((&json["ttl_ms"], &json["status"]["vacant_because"]), (&json!(15_000), &json!("no_candidates")));
    let text = host.ok(["explain", "jobs/x"]).out;
    for words in ["worst failover", "worst overlap", "store outage", "Nobody leads"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}
