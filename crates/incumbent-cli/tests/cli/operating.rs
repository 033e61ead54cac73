//! The acts of an operator, and how they are refused.

use rustix::process::{Signal, kill_process};
use serde_json::json;

use crate::host::{Host, Process, eventually, finish, stop};

/// Three candidates in this order, each with a command.
fn three(host: &Host) -> Vec<Process> {
    let mut processes = Vec::new();
    let mut names = Vec::new();
    for name in ["a", "b", "c"] {
        processes.push(host.start(["run", "--name", name, "jobs/x", "--", "sleep", "1000"]));
        names.push(name);
        host.until_in_line("jobs/x", &names);
    }
    processes
}

fn id_of(host: &Host, place: usize) -> String {
    let json = host.ok(["candidates", "jobs/x", "--json"]).json();
    json["candidates"][place]["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_transfer_returns_when_the_heir_leads() {
    let host = Host::new();
    let _processes = three(&host);
    let json = host.ok(["transfer", "jobs/x", "--to", "c", "--json"]).json();
    assert_eq!((&json["done"], &json["leader"]["name"]), (&json!("transfer"), &json!("c")));
    assert_eq!(host.leader("jobs/x").unwrap().0, "c");

    eventually("all back in line", || (host.line("jobs/x").len() == 3).then_some(()));
    let id = id_of(&host, 2);
    let said = host.ok(["transfer", "jobs/x", "--to", &id]);
    assert!(said.out.starts_with("transferred: "), "{said:?}");
    assert_eq!(host.run(["leader", "jobs/x", "--json"]).json()["leader"]["id"], id.as_str());
}

#[test]
fn a_transfer_to_a_name_that_two_have_lists_their_ids() {
    let host = Host::new();
    let mut processes = Vec::new();
    let mut names = Vec::new();
    for name in ["a", "twin", "twin"] {
        processes.push(host.start(["run", "--name", name, "jobs/x", "--", "sleep", "1000"]));
        names.push(name);
        host.until_in_line("jobs/x", &names);
    }
    let said = host.run(["transfer", "jobs/x", "--to", "twin"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    for place in [1, 2] {
        assert!(said.err.contains(&id_of(&host, place)), "{said:?}");
    }
    assert!(said.err.contains("by its id"), "{said:?}");
    assert_eq!(host.leader("jobs/x").unwrap().0, "a");
}

#[test]
fn a_transfer_to_nobody_or_of_nothing_is_answered_with_no() {
    let host = Host::new();
    let said = host.run(["transfer", "jobs/x", "--to", "b"]);
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.err.contains("nobody leads"), "{said:?}");
    let _a = host.start(["run", "--name", "a", "jobs/x", "--", "sleep", "1000"]);
    host.until_in_line("jobs/x", &["a"]);
    let said = host.run(["transfer", "jobs/x", "--to", "nobody"]);
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.err.contains("\"nobody\"") && said.err.contains("incumbent candidates"), "{said:?}");
}

#[test]
fn who_resigns_goes_to_the_end_of_the_line() {
    let host = Host::new();
    assert_eq!(host.run(["resign", "jobs/x"]).code, Some(3));
    let _processes = three(&host);
    let json = host.ok(["resign", "jobs/x", "--json"]).json();
    assert_eq!(json["leader"]["name"], "b");
    host.until_in_line("jobs/x", &["b", "c", "a"]);
}

#[test]
fn only_the_leader_with_that_token_is_deposed() {
    let host = Host::new();
    assert_eq!(host.run(["depose", "jobs/x"]).code, Some(3));
    let mut processes = three(&host);
    let (_, token) = host.leader("jobs/x").unwrap();
    let said = host.run(["depose", "jobs/x", "--token", &(token + 1).to_string()]);
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.err.contains(&format!("{token} does")), "{said:?}");
    assert_eq!(host.leader("jobs/x"), Some(("a".into(), token)));

    let json = host.ok(["depose", "jobs/x", "--token", &token.to_string(), "--json"]).json();
    assert_eq!(json["token"], token);
    assert_eq!(host.leader("jobs/x").unwrap().0, "b");
    processes[0].until_said("deposed by an operator");
    host.until_in_line("jobs/x", &["b", "c", "a"]);
}

#[test]
fn while_paused_nobody_leads_and_they_come_back_by_themselves() {
    let host = Host::new();
    let mut processes = three(&host);
    let (_, before) = host.leader("jobs/x").unwrap();
    let json = host.ok(["pause", "jobs/x", "--reason", "tea", "--json"]).json();
    assert_eq!((&json["done"], &json["leader"]), (&json!("pause"), &json!(null)));
    assert_eq!(host.line("jobs/x"), [""; 0]);
    processes[0].until_said("paused");
    let said = host.run(["run", "--try", "jobs/x", "--", "true"]);
    assert_eq!(said.code, Some(122), "{said:?}");
    assert!(said.err.contains("paused"), "{said:?}");

    host.ok(["resume", "jobs/x"]);
    let (_, after) = eventually("a leader", || host.leader("jobs/x"));
    assert!(after > before);
    let said = host.run(["resume", "jobs/x"]);
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.err.contains("not paused"), "{said:?}");
}

#[test]
fn a_paused_election_goes_on_with_the_one_that_is_to_lead_first() {
    let host = Host::new();
    let _processes = three(&host);
    host.ok(["pause", "jobs/x"]);
    let said = host.run(["resume", "jobs/x", "--first", "d", "--timeout", "5s"]);
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(said.err.contains("incumbent resume jobs/x"), "{said:?}");
    let status = host.run(["status", "jobs/x", "--json"]).json();
    assert_eq!((&status["vacant_because"], &status["first"]), (&json!("paused"), &json!("d")));
    let said = host.run(["status", "jobs/x"]);
    assert!(said.out.contains("paused until d leads"), "{said:?}");

    let json = host.ok(["resume", "jobs/x", "--first", "c", "--json"]).json();
    assert_eq!(json["leader"]["name"], "c");
    eventually("the others", || (host.line("jobs/x").len() == 3).then_some(()));
    assert_eq!(host.leader("jobs/x").unwrap().0, "c");
}

#[test]
fn a_pause_that_the_leader_does_not_obey_in_time_exits_with_4_and_says_what_to_do() {
    let host = Host::new();
    let leader = host.start(["run", "--ttl", "10m", "--name", "a", "jobs/x", "--", "sleep", "1000"]);
    host.until_in_line("jobs/x", &["a"]);
    stop(leader.pid());
    let said = host.run(["pause", "jobs/x", "--timeout", "300ms"]);
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(said.err.contains("incumbent depose jobs/x"), "{said:?}");
    let said = host.run(["resign", "jobs/x", "--timeout", "300ms"]);
    assert_eq!(said.code, Some(4), "{said:?}");
    host.ok(["depose", "jobs/x"]);
    assert_eq!(host.leader("jobs/x"), None);
}

#[test]
fn a_reason_that_is_too_long_is_refused() {
    let host = Host::new();
    let said = host.run(["pause", "jobs/x", "--reason", &"x".repeat(2000)]);
    assert_eq!(said.code, Some(2), "{said:?}");
}

#[test]
fn after_the_end_everyone_is_gone_and_who_comes_later_starts_afresh() {
    let host = Host::new();
    let mut processes = three(&host);
    let (_, before) = host.leader("jobs/x").unwrap();
    let json = host.ok(["end", "jobs/x", "--json"]).json();
    assert_eq!((&json["done"], &json["leader"]), (&json!("end"), &json!(null)));
    for process in &mut processes {
        assert_eq!(process.wait(), Some(121));
    }
    let said = host.ok(["run", "jobs/x", "--shell", "--", "echo $INCUMBENT_TOKEN"]);
    assert!(said.out.trim().parse::<u64>().unwrap() > before, "{said:?}");
}

#[test]
fn an_act_that_the_store_refuses_for_a_while_says_so_before_it_gives_up() {
    let host = Host::new();
    let script = r#"
        mount -t tmpfs -o size=64k,mode=700 none "$FOLDER/store" || exit 9
        "$0" run jobs/x -- true || exit 8
        cat /dev/zero >"$FOLDER/store/full" 2>/dev/null
        exec "$0" pause jobs/x --timeout 10s"#;
    let options = ["--user", "--map-root-user", "--mount", "sh", "-c", script];
    let said = finish(host.by_way_of("unshare", &options, [""; 0]));
    assert_eq!(said.code, Some(5), "{said:?}");
    let progress = said.err.lines().find(|line| line.contains("pause of jobs/x is not done after"));
    assert!(progress.is_some_and(|line| line.contains("No space left on device")), "{said:?}");
    assert!(said.err.lines().last().unwrap().contains("make room"), "{said:?}");
}

#[test]
fn a_frozen_office_moves_only_when_it_is_unfrozen() {
    let host = Host::new();
    let mut processes = three(&host);
    let json = host.ok(["freeze", "jobs/x", "--reason", "new switch", "--by", "ada", "--json"]).json();
    assert_eq!((&json["done"], &json["leader"]["name"]), (&json!("freeze"), &json!("a")));
    processes[0].until_said("ordered: freeze by ada: new switch");
    for act in [&["transfer", "jobs/x", "--to", "b"][..], &["resign", "jobs/x"]] {
        let said = host.run(act);
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.err.contains("frozen") && said.err.contains("`incumbent unfreeze jobs/x` ends it"), "{said:?}");
    }
    let frozen = &host.ok(["status", "jobs/x", "--json"]).json()["frozen"];
    assert_eq!(
        (&frozen["by"], &frozen["reason"], &frozen["lasts_ms"]),
        (&json!("ada"), &json!("new switch"), &json!(null))
    );
    let status = host.ok(["status", "jobs/x"]).out;
    assert!(status.contains("frozen    yes: new switch (by ada, ") && status.contains(" ago)"), "{status}");
    let frozen = format!("incumbent_frozen{{store=\"{}\",election=\"jobs/x\"}} 1\n", host.store());
    assert!(host.ok(["metrics"]).out.contains(&frozen));
    assert_eq!(host.run(["check", "jobs/x"]).code, Some(0), "a freeze of today is no warning");

    // A crash is followed.
    drop(processes.remove(0));
    eventually("b leads", || (host.leader("jobs/x")?.0 == "b").then_some(()));
    host.ok(["unfreeze", "jobs/x"]);
    let said = host.run(["unfreeze", "jobs/x"]);
    assert_eq!(said.code, Some(3), "{said:?}");
    host.ok(["transfer", "jobs/x", "--to", "c"]);
}

#[test]
fn a_benched_leader_hands_over_and_stays_out_until_it_is_taken_back() {
    let host = Host::new();
    let mut processes = three(&host);
    let said = host.run(["bench", "jobs/x", "a"]);
    assert!(said.code == Some(2) && said.err.contains("needs a --reason"), "{said:?}");
    let said = host.ok(["bench", "jobs/x", "a", "--dry-run"]);
    assert!(said.out.starts_with("jobs/x: a (token 1) leads: would hand over to b (token 2)"), "{said:?}");
    let order = ["--reason", "new disk", "--by", "ada", "--json"];
    let json = host.ok([&["bench", "jobs/x", "a", "--for", "2h"], &order[..]].concat()).json();
    assert_eq!((&json["done"], &json["leader"]["name"]), (&json!("bench"), &json!("b")));
    processes[0].until_said("ordered: bench by ada: new disk");
    processes[0].until_said("a is benched and not in line, until `incumbent unbench jobs/x a`");
    assert_eq!(host.line("jobs/x"), ["b", "c"]);
    let benched = &host.ok(["status", "jobs/x", "--json"]).json()["benched"][0];
    let read = (&benched["name"], &benched["by"], &benched["reason"], &benched["lasts_ms"]);
    assert_eq!(read, (&json!("a"), &json!("ada"), &json!("new disk"), &json!(7_200_000)));
    let status = host.ok(["status", "jobs/x"]).out;
    assert!(
        status.contains("benched   a: new disk (by ada, ") && status.contains("; for 2 h; until `incumbent"),
        "{status}"
    );
    assert!(host.ok(["list"]).out.contains("1 in line behind, 1 benched"));
    let benched = format!("incumbent_benched{{store=\"{}\",election=\"jobs/x\"}} 1\n", host.store());
    assert!(host.ok(["metrics"]).out.contains(&benched));
    assert_eq!(host.run(["check", "jobs/x"]).code, Some(0), "a bench of today is no warning");

    // By its name: a new process of that name waits, too, and one that only tries gives up.
    let tried = host.run(["run", "--try", "--name", "a", "jobs/x", "--", "true"]);
    assert!(tried.code == Some(122) && tried.err.contains("a was not elected: it is benched"), "{tried:?}");
    host.ok(["unbench", "jobs/x", "a"]);
    host.until_in_line("jobs/x", &["b", "c", "a"]);
    let said = host.run(["unbench", "jobs/x", "a"]);
    assert!(said.code == Some(3) && said.err.contains("\"a\" is not benched"), "{said:?}");
}

#[test]
fn a_leader_without_an_heir_is_benched_only_by_force_and_status_says_why_nobody_leads() {
    let host = Host::new();
    let _a = host.start(["run", "--name", "a", "jobs/x", "--", "sleep", "1000"]);
    host.until_in_line("jobs/x", &["a"]);
    let order = ["bench", "jobs/x", "a", "--reason", "new disk"];
    for dry in [&[][..], &["--dry-run"]] {
        let said = host.run([&order[..], dry].concat());
        assert!(said.code == Some(1) && said.err.contains("--force leaves the office vacant"), "{said:?}");
        assert_eq!(said.out.contains("NO HEIR: --force would leave it vacant"), !dry.is_empty(), "{said:?}");
    }
    assert_eq!(host.line("jobs/x"), ["a"]);
    let said = host.ok([&order[..], &["--force", "--dry-run"]].concat());
    assert!(said.out.contains("NO HEIR: it would leave the office vacant"), "{said:?}");
    host.ok([&order[..], &["--force"]].concat());
    let said = host.run(["status", "jobs/x"]);
    assert_eq!(said.code, Some(3));
    assert!(said.out.contains("a may not stand: `incumbent unbench jobs/x a` lets it"), "{said:?}");
    let json = host.run(["status", "jobs/x", "--json"]).json();
    assert_eq!(json["vacant_because"], "benched", "{json}");
    // For as long as was said.
    host.ok(["bench", "jobs/x", "a", "--reason", "less", "--for", "10ms"]);
    eventually("a leads again", || (host.leader("jobs/x")?.0 == "a").then_some(()));
}

#[test]
fn all_of_a_host_are_benched_in_every_election_but_where_it_is_not_wanted() {
    let host = Host::new();
    let mut processes = Vec::new();
    for (election, name) in
        [("a", "db1-7"), ("a", "db2-9"), ("b", "db1-8"), ("c", "db1"), ("c", "db10-7"), ("d", "db2-9")]
    {
        processes.push(host.start(["run", "--name", name, election, "--", "sleep", "1000"]));
        eventually("it is in line", || host.line(election).iter().any(|other| other == name).then_some(()));
    }
    let order = ["bench", "--host", "db1", "--all", "--reason", "new disk"];
    let said = host.run([&order[..], &["--dry-run"]].concat());
    assert_eq!(said.code, Some(1), "b has nobody to follow: {said:?}");
    let lines: Vec<_> = said.out.lines().map(|line| line.split(" (").next().unwrap()).collect();
    assert_eq!(lines, ["a: db1-7", "b: db1-8", "c: db1"], "{said:?}");
    let said = host.ok([&order[..], &["--except", "b"]].concat());
    assert_eq!(said.out.lines().count(), 2, "{said:?}");
    for (election, names) in [("a", &["db2-9"][..]), ("b", &["db1-8"]), ("c", &["db10-7"]), ("d", &["db2-9"])] {
        assert_eq!(host.line(election), names, "{election}");
    }
    host.ok(["unbench", "--host", "db1", "--all"]);
    host.until_in_line("a", &["db2-9", "db1-7"]);
    host.until_in_line("c", &["db10-7", "db1"]);
    let said = host.run(["unbench", "--host", "db1", "--all"]);
    assert!(said.code == Some(3) && said.err.contains("nobody of host db1"), "{said:?}");
}

#[test]
fn a_freeze_for_a_while_ends_by_itself() {
    let host = Host::new();
    let _processes = three(&host);
    host.ok(["freeze", "jobs/x", "--for", "1h"]);
    let status = host.ok(["status", "jobs/x", "--json"]).json();
    assert_eq!(status["frozen"]["lasts_ms"], 3_600_000, "{status}");
    host.ok(["freeze", "jobs/x", "--for", "10ms"]);
    eventually("the end of it", || host.ok(["status", "jobs/x", "--json"]).json()["frozen"].is_null().then_some(()));
    assert_eq!(host.leader("jobs/x").unwrap().0, "a");
}

#[test]
fn every_order_says_by_whom_and_why_in_the_record_and_in_the_log_of_the_leader() {
    let host = Host::new();
    let mut processes = three(&host);
    let order = ["--by", "ada@ops1", "--reason", "new disk"];
    let act = |args: &[&str]| host.ok([args, &order].concat());
    act(&["transfer", "jobs/x", "--to", "b"]);
    processes[0].until_said("ordered: transfer by ada@ops1: new disk");
    act(&["resign", "jobs/x"]);
    processes[1].until_said("ordered: resign by ada@ops1: new disk");
    let (leader, _) = host.leader("jobs/x").unwrap();
    act(&["depose", "jobs/x"]);
    let place = ["a", "b", "c"].iter().position(|name| *name == leader).unwrap();
    processes[place].until_said("ordered: depose by ada@ops1: new disk");
    act(&["pause", "jobs/x"]);
    let status = host.run(["status", "jobs/x", "--json"]).json();
    let paused = &status["paused"];
    assert_eq!((&paused["by"], &paused["reason"]), (&json!("ada@ops1"), &json!("new disk")), "{status}");
    assert!(paused["at_ms"].as_u64().unwrap() > 1_700_000_000_000, "{status}");
    let text = host.run(["status", "jobs/x"]).out;
    assert!(text.contains("paused    yes: new disk (by ada@ops1, "), "{text}");
    host.ok(["resume", "jobs/x"]);

    // Unless it is said: who became root, at this host.
    let mut command = host.command(["pause", "jobs/x"]);
    command.env("SUDO_USER", "grace").env("USER", "root");
    assert_eq!(finish(command).code, Some(0));
    let status = host.run(["status", "jobs/x", "--json"]).json();
    assert!(status["paused"]["by"].as_str().unwrap().starts_with("grace@"), "{status}");
}

#[test]
fn a_dry_run_says_what_a_transfer_would_do_and_does_nothing() {
    let host = Host::new();
    let said = host.run(["transfer", "jobs/x", "--to", "b", "--dry-run"]);
    assert_eq!(said.code, Some(3), "{said:?}");
    let _processes = three(&host);
    let json = host.ok(["transfer", "jobs/x", "--to", "c", "--dry-run", "--json"]).json();
    let names = [&json["leader"], &json["heir"], &json["step_aside"][0]].map(|one| one["name"].as_str().unwrap());
    assert_eq!((&json["would"], names), (&json!("transfer"), ["a", "c", "b"]));
    assert_eq!((&json["leads_already"], &json["doubts"]), (&json!(false), &json!([])));
    let text = host.ok(["transfer", "jobs/x", "--to", "c", "--dry-run"]).out;
    let lines: Vec<_> = text.lines().collect();
    let expected = ["would transfer: a (token 1) hands over to c (token 3)", "b (token 2) would step aside"];
    assert_eq!(lines, expected);
    let text = host.ok(["transfer", "jobs/x", "--to", "a", "--dry-run"]).out;
    assert!(text.contains("nothing would be done: a (token 1) leads already"), "{text}");
    assert_eq!(host.run(["transfer", "jobs/x", "--to", "nobody", "--dry-run"]).code, Some(3));

    host.ok(["freeze", "jobs/x"]);
    let said = host.run(["transfer", "jobs/x", "--to", "c", "--dry-run"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("`incumbent unfreeze jobs/x` ends it"), "{said:?}");
    assert_eq!(host.line("jobs/x"), ["a", "b", "c"]);
    let status = host.ok(["status", "jobs/x", "--json"]).json();
    assert_eq!((&status["handover"], &status["leader"]["token"]), (&json!(null), &json!(1)));
}

#[test]
fn a_dry_run_doubts_an_heir_that_is_unwell_or_has_fallen_silent() {
    let host = Host::new();
    let _a = host.start(["run", "--name", "a", "jobs/x", "--", "sleep", "1000"]);
    host.until_in_line("jobs/x", &["a"]);
    let heir = ["run", "--name", "b", "--ttl", "20s", "--health-cmd", "exit 1", "--health-interval", "500ms"];
    let limits = ["--health-timeout", "400ms", "jobs/x", "--", "sleep", "1000"];
    let b = host.start(heir.into_iter().chain(limits));
    let doubts = |said: &str| {
        let json = host.run(["transfer", "jobs/x", "--to", "b", "--dry-run", "--json"]).json();
        json["doubts"].as_array().unwrap().contains(&json!(said)).then_some(())
    };
    host.until_in_line("jobs/x", &["a", "b"]);
    eventually("it is unwell", || doubts("heir_unwell"));
    let text = host.ok(["transfer", "jobs/x", "--to", "b", "--dry-run"]).out;
    assert!(text.contains("but the heir is unwell"), "{text}");
    stop(b.pid());
    // For half of its TTL; then it is removed.
    eventually("it is silent", || doubts("heir_silent"));
}

#[test]
fn a_transfer_that_is_called_off_is_told_to_the_one_who_waits_for_it() {
    let host = Host::new();
    let said = host.run(["transfer", "jobs/x", "--cancel"]);
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.err.contains("no transfer is under way, so there is nothing to do"), "{said:?}");
    let a = host.start(["run", "--ttl", "10m", "--name", "a", "jobs/x", "--", "sleep", "1000"]);
    host.until_in_line("jobs/x", &["a"]);
    let _b = host.start(["run", "--ttl", "10m", "--name", "b", "jobs/x", "--", "sleep", "1000"]);
    host.until_in_line("jobs/x", &["a", "b"]);
    // One that does not look cannot begin to hand over.
    stop(a.pid());
    for order in [&["transfer", "jobs/x", "--to", "b"][..], &["resign", "jobs/x"]] {
        let mut waiting = host.start(order.iter().copied().chain(["--timeout", "10m", "--by", "ada"]));
        let handover = || host.ok(["status", "jobs/x", "--json"]).json()["handover"].clone();
        eventually("the request", || (!handover().is_null()).then_some(()));
        let json = host.ok(["transfer", "jobs/x", "--cancel", "--json"]).json();
        assert_eq!((&json["done"], &json["leader"]["name"]), (&json!("cancel"), &json!("a")));
        assert!(handover().is_null());
        waiting.until_said("the request was taken back by another operator; `incumbent status jobs/x` says who leads");
        assert_eq!(waiting.wait(), Some(1));
    }
    kill_process(a.pid(), Signal::CONT).unwrap();
    assert_eq!(host.leader("jobs/x"), Some(("a".into(), 1)));
    for args in [["--to", "b", "--cancel"], ["--cancel", "--dry-run", "--json"]] {
        assert_eq!(host.run(["transfer", "jobs/x"].into_iter().chain(args)).code, Some(2), "{args:?}");
    }
}

/// A name that is mistyped is obeyed by nobody.
#[test]
fn an_order_to_an_election_that_nobody_knows_says_so() {
    let host = Host::new();
    let said = host.ok(["bench", "db/bench", "a", "--reason", "new disk"]);
    assert!(said.err.contains("nobody stands in db/bench: is the name right?"), "{said:?}");
    for order in ["pause", "freeze", "end"] {
        let election = format!("db/{order}");
        let said = host.ok([order, &election]);
        assert!(said.err.contains(&format!("nobody stands in {election}: is the name right?")), "{said:?}");
    }
    let said = host.ok(["pause", "db/pause"]);
    assert!(!said.err.contains("is the name right?"), "{said:?}");
    let _a = host.start(["run", "--name", "a", "jobs/x", "--", "sleep", "1000"]);
    host.until_in_line("jobs/x", &["a"]);
    let said = host.ok(["freeze", "jobs/x"]);
    assert!(!said.err.contains("is the name right?"), "{said:?}");
}

#[test]
fn what_cannot_be_said_of_the_last_leader_is_a_sentence() {
    let host = Host::new();
    let said = host.run(["fenced", "jobs/x", "--token", "7", "--i-have-checked"]);
    assert!(said.code == Some(3) && said.err.contains("cannot say that the last leader of jobs/x"), "{said:?}");
}
