//! Elections among peers: members are real processes, and everybody else asks them.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use incumbent_testkit::{free_port, free_ports};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::host::{Host, Process, Said, eventually};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Three members on free ports, with a secret of their own.
struct Group {
    host: Host,
    url: String,
}

impl Group {
    fn new(algorithm: &str) -> Group {
        let host = Host::new();
        let list = list_at_free_ports();
        secret(&host, "secret", "a secret of this test alone");
        let secret = host.path("secret");
        // Long enough for a busy machine: nobody is deposed only because nobody let it speak.
        let url = format!("{algorithm}://?members={}&timeout=3s&secret-file={}", list, secret.display());
        Group { host, url }
    }

    /// What this member is started with.
    fn member_url(&self, name: &str) -> String {
        if self.url.starts_with("consensus") {
            return format!("{}&data={}", self.url, self.host.path(&format!("data-{name}")).display());
        }
        self.url.clone()
    }

    fn campaign(&self, name: &str) -> Process {
        let url = self.member_url(name);
        let value = format!("value of {name}");
        self.host.start(["--store", url.as_str(), "campaign", "--name", name, "--value", &value, "--json", "jobs/x"])
    }

    fn run(&self, name: &str, more: &[&str]) -> Process {
        let url = self.member_url(name);
        let args = ["--store", url.as_str(), "run", "--forever", "--name", name];
        self.host.start(args.into_iter().chain(more.iter().copied()))
    }

    fn all(&self) -> Vec<Process> {
        NAMES.map(|name| self.campaign(name)).into()
    }

    /// Somebody who is not a member.
    fn ask(&self, args: &[&str]) -> Said {
        self.host.run(["--store", self.url.as_str()].iter().chain(args))
    }

    fn leader(&self) -> Option<(String, Option<u64>)> {
        let said = self.ask(&["leader", "jobs/x", "--json"]);
        if said.code != Some(0) {
            return None;
        }
        let leader = &said.json()["leader"];
        Some((leader["name"].as_str()?.to_owned(), leader["token"].as_u64()))
    }

    fn until_led(&self) -> (String, Option<u64>) {
        eventually("a leader", || self.leader())
    }

    /// The codes of what a doctor finds who asks every process of this host, and the exit code.
    fn diagnosis(&self) -> (Vec<String>, Option<i32>) {
        let all = format!("{} claims --json", env!("CARGO_BIN_EXE_incumbent"));
        let said = self.ask(&["doctor", "jobs/x", "--claims", &all, "--json"]);
        let lines = said.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        (lines.filter_map(|line| line["finding"].as_str().map(str::to_owned)).collect(), said.code)
    }

    fn observe(&self) -> Process {
        self.host.start(["--store", self.url.as_str(), "observe", "jobs/x", "--json"])
    }
}

fn secret(host: &Host, name: &str, text: &str) {
    fs::write(host.path(name), text).unwrap();
    fs::set_permissions(host.path(name), fs::Permissions::from_mode(0o600)).unwrap();
}

fn place(name: &str) -> usize {
    NAMES.iter().position(|known| *known == name).unwrap()
}

/// Takes events until one of this kind.
fn until_event(process: &mut Process, kind: &str) -> Value {
    loop {
        let event = process.json();
        if event["event"] == kind {
            return event;
        }
    }
}

#[test]
fn a_consensus_group_elects_hands_over_and_survives_a_killed_leader() {
    let group = Group::new("consensus");
    let mut observer = group.observe();
    let mut members = group.all();
    let (leader, token) = group.until_led();
    let first = place(&leader);
    let elected = until_event(&mut members[first], "elected");
    assert_eq!(elected["token"].as_u64(), token);
    assert!(elected["remaining_ms"].as_u64().unwrap() <= 3_000);
    let seen = until_event(&mut observer, "leader");
    assert_eq!((&seen["name"], seen["token"].as_u64()), (&json!(leader), token));
    assert_eq!(seen["value"], format!("value of {leader}"));

    everybody_else_can_ask(&group, &leader);

    let heir = NAMES[(first + 1) % 3];
    let would = group.ask(&["transfer", "jobs/x", "--to", heir, "--dry-run", "--json"]).json();
    assert_eq!((&would["leader"]["name"], &would["heir"]["name"]), (&json!(leader), &json!(heir)));
    assert_eq!(would["heir"]["value"], format!("value of {heir}"));
    let done = group.ask(&["transfer", "jobs/x", "--to", heir, "--json"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(done.json()["leader"]["name"], heir);
    assert_eq!(until_event(&mut members[first], "stopping")["reason"], "transferred");
    assert_eq!(until_event(&mut members[first], "lost")["reason"], "transferred");
    let next = until_event(&mut members[place(heir)], "elected");
    assert!(next["token"].as_u64() > token);

    // Without a word, as far as the others can tell.
    let killed = place(heir);
    members[killed].signal(Signal::KILL);
    members[killed].wait();
    let (successor, later) = eventually("another leader", || group.leader().filter(|(name, _)| *name != heir));
    assert!(later > next["token"].as_u64());
    assert_eq!(until_event(&mut members[place(&successor)], "elected")["token"].as_u64(), later);

    // It comes back with what it has written down.
    members[killed] = group.campaign(heir);
    let following = loop {
        let event = members[killed].json();
        if event["ahead"] == json!(successor) {
            break event;
        }
    };
    assert_eq!((&following["event"], following["token"].as_u64()), (&json!("following"), later));

    let resigned = group.ask(&["resign", "jobs/x"]);
    assert_eq!(resigned.code, Some(0), "{resigned:?}");
    assert_eq!(until_event(&mut members[place(&successor)], "stopping")["reason"], "resigned");
    let (_, last) = eventually("a leader with a higher token", || group.leader().filter(|(_, token)| *token > later));
    assert!(last > later);

    // The end of input resigns, and leaves the group.
    drop(members[place(&successor)].stdin.take());
    until_event(&mut members[place(&successor)], "resigned");
    assert_eq!(members[place(&successor)].wait(), Some(0));
}

/// leader, candidates, status, explain.
fn everybody_else_can_ask(group: &Group, leader: &str) {
    let json = group.ask(&["leader", "jobs/x", "--json"]).json();
    assert_eq!((&json["leader"]["name"], &json["leader"]["id"]), (&json!(leader), &json!(null)));
    assert!(group.ask(&["leader", "jobs/x"]).out.starts_with(&format!("{leader} (token ")));

    let people = eventually("all members", || {
        let json = group.ask(&["candidates", "jobs/x", "--json"]).json();
        Some(json["candidates"].as_array().unwrap().clone()).filter(|people| people.len() == 3)
    });
    assert_eq!((&people[0]["name"], &people[0]["role"]), (&json!(leader), &json!("leader")));
    for one in &people[1..] {
        assert_eq!((&one["role"], &one["token"]), (&json!("follower"), &json!(null)));
    }
    let text = group.ask(&["candidates", "jobs/x"]).out;
    assert!(text.starts_with("leader    ") && text.contains("value of"), "{text}");

    let status = group.ask(&["status", "jobs/x", "--json"]);
    assert_eq!(status.code, Some(0), "{status:?}");
    let json = status.json();
    assert_eq!((&json["leader"]["name"], &json["followers"]), (&json!(leader), &json!(2)));
    assert_eq!(json["group"], json!({"members": 3, "answering": 3, "needed": 2}));
    assert!(group.ask(&["status", "jobs/x"]).out.contains("3 of 3 answer"));

    let text = group.ask(&["explain", "jobs/x"]).out;
    for words in ["a store is the better choice", "long-lived", "2 are a majority", "less the margin", "the term"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let json = group.ask(&["explain", "--json"]).json();
    assert_eq!((&json["group"]["leaders"], &json["worst_overlap_ms"]), (&json!("at_most_one"), &json!(0)));

    for (args, act) in [
        (&["pause", "jobs/x"][..], "pause"),
        (&["resume", "jobs/x"], "resume"),
        (&["depose", "jobs/x"], "depose"),
        (&["end", "jobs/x"], "end"),
    ] {
        let said = group.ask(args);
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.err.contains(&format!("a consensus election cannot {act}")), "{said:?}");
    }
    let said = group.ask(&["transfer", "jobs/x", "--to", "nobody"]);
    assert_eq!(said.code, Some(3), "{said:?}");

    strangers_are_refused(group);
}

/// Another secret, another election: neither gets an answer, and no secret is shown.
fn strangers_are_refused(group: &Group) {
    secret(&group.host, "other", "another secret altogether");
    let other = group.url.replace("/secret", "/other");
    let said = group.host.run(["--store", other.as_str(), "leader", "jobs/x"]);
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{said:?}");
    assert!(said.err.contains("the secrets differ"), "{said:?}");
    let said = group.ask(&["leader", "jobs/y"]);
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{said:?}");
    assert!(said.err.contains("another election"), "{said:?}");
    for text in ["a secret of this test alone", "another secret altogether"] {
        assert!(!said.err.contains(text), "{said:?}");
    }
}

#[test]
fn a_command_runs_under_one_member_at_a_time_and_never_sees_the_secret() {
    let group = Group::new("consensus");
    let script = r#"
exec 9>>"$FOLDER/lock"
flock -n 9 || { echo "overlap $INCUMBENT_NAME" >>"$FOLDER/log"; exit 99; }
echo "start $INCUMBENT_TOKEN $INCUMBENT_NAME" >>"$FOLDER/log"
env >>"$FOLDER/env"
sleep 1000 & wait
"#;
    let mut members: Vec<_> = NAMES.iter().map(|name| group.run(name, &["jobs/x", "--shell", "--", script])).collect();
    let first = group.host.until_logged("start ");
    let leader = first.rsplit(' ').next().unwrap();
    members[place(leader)].signal(Signal::KILL);
    members[place(leader)].wait();
    eventually("the next start", || (group.host.log().len() >= 2).then_some(()));
    let log = group.host.log();
    let token_of = |line: &str| line.split(' ').nth(1).unwrap().parse::<u64>().unwrap();
    assert!(log[1].starts_with("start ") && token_of(&log[1]) > token_of(&log[0]), "{log:?}");
    let environment = fs::read_to_string(group.host.path("env")).unwrap();
    assert!(!environment.contains("a secret of this test alone"));

    // `--try` does not wait for its turn.
    let killed = log[0].rsplit(' ').next().unwrap();
    let url = group.member_url(killed);
    let said = group.host.run(["--store", url.as_str(), "run", "--try", "--name", killed, "jobs/x", "--", "true"]);
    assert_eq!(said.code, Some(122), "{said:?}");
    assert!(said.err.contains(" leads\n") && said.err.contains("--forever"), "{said:?}");

    // A leader that is asked to end stops the command first.
    let (leader, _) =
        eventually("another leader", || group.leader().filter(|(name, _)| !log[0].ends_with(name.as_str())));
    members[place(&leader)].signal(Signal::TERM);
    assert_eq!(members[place(&leader)].wait(), Some(143));
}

#[test]
fn a_bully_and_a_ring_have_no_tokens_and_no_transfers() {
    for algorithm in ["bully", "ring"] {
        let group = Group::new(algorithm);
        let mut members = group.all();
        let highest = || group.leader().filter(|(name, _)| name == "c");
        let (_, token) = eventually("the highest rank leads", highest);
        assert_eq!(token, None);
        let elected = until_event(&mut members[2], "elected");
        assert_eq!(
            elected,
            json!({"v": 1, "election": "jobs/x", "event": "elected", "token": null, "remaining_ms": null})
        );
        let said = group.ask(&["leader", "jobs/x"]);
        assert_eq!(said.out, "c (no token, value value of c)\n");
        let leader = &group.ask(&["leader", "jobs/x", "--json"]).json()["leader"];
        assert_eq!(*leader, json!({"name": "c", "id": null, "value": "value of c", "token": null}));
        let mut observer = group.observe();
        let seen = until_event(&mut observer, "leader");
        assert_eq!(seen, json!({"event": "leader", "name": "c", "value": "value of c", "token": null}));

        for (args, act) in [
            (&["transfer", "jobs/x", "--to", "a"][..], "transfer"),
            (&["transfer", "jobs/x", "--to", "a", "--dry-run"], "transfer"),
            (&["pause", "jobs/x"], "pause"),
            (&["depose", "jobs/x"], "depose"),
        ] {
            let said = group.ask(args);
            assert_eq!(said.code, Some(1), "{said:?}");
            assert!(said.err.contains(&format!("a {algorithm} election cannot {act}")), "{said:?}");
        }
        let text = group.ask(&["explain"]).out;
        for words in ["best effort", "two halves", "a store is the better choice"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let json = group.ask(&["explain", "--json"]).json();
        assert_eq!((&json["tokens"], &json["worst_overlap_ms"]), (&json!("none"), &json!(null)));

        assert_eq!(group.ask(&["resign", "jobs/x"]).code, Some(0));
        assert_eq!(until_event(&mut members[2], "stopping")["reason"], "resigned");
        members[2].signal(Signal::KILL);
        members[2].wait();
        eventually("the next rank leads", || group.leader().filter(|(name, _)| name == "b"));
    }
}

#[test]
fn an_observer_is_told_when_no_member_answers_and_when_one_does_again() {
    let group = Group::new("bully");
    let mut only = group.campaign("c");
    eventually("a leader", || group.leader());
    let mut observer = group.observe();
    until_event(&mut observer, "leader");
    only.signal(Signal::KILL);
    only.wait();
    until_event(&mut observer, "stale");
    let said = group.ask(&["leader", "jobs/x"]);
    assert_eq!((said.code, said.out.as_str()), (Some(5), ""), "{said:?}");
    assert!(said.err.contains("no member of the group answers"), "{said:?}");
    let _again = group.campaign("c");
    until_event(&mut observer, "current");
}

#[test]
fn a_name_that_is_not_in_the_list_of_members_is_refused() {
    let group = Group::new("consensus");
    for verb in [&["campaign", "--name", "zed", "jobs/x"][..], &["run", "--name", "zed", "jobs/x", "--", "true"]] {
        let said = group.ask(verb);
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.err.contains("\"zed\": its members are a, b, c"), "{said:?}");
    }
}

#[test]
fn members_that_hold_another_election_are_named_and_nobody_is_told_to_begin_without_them() {
    let group = Group::new("consensus");
    let _one = group.campaign("a");
    let url = group.member_url("b");
    let _other = group.host.start(["--store", url.as_str(), "campaign", "--name", "b", "jobs/y"]);
    let json = eventually("a refusal", || {
        let said = group.ask(&["status", "jobs/x", "--json"]);
        (said.code == Some(3)).then(|| said.json()).filter(|json| json["vacant_because"] == "refused")
    });
    assert_eq!(json["group"]["refusing"], json!(["b"]));
    let text = group.ask(&["status", "jobs/x"]).out;
    assert!(
        text.contains("b refuses to: it holds another election") && text.contains("1 of 3 members answer"),
        "{text}"
    );
    assert!(!text.contains("peers found"), "{text}");
    assert_eq!(group.diagnosis(), (vec!["D13".to_owned(), "D14".to_owned()], Some(11)));
}

#[test]
fn a_member_that_waits_in_vain_does_not_blame_a_store() {
    let group = Group::new("consensus");
    let url = group.member_url("a");
    let wait = ["--store", url.as_str(), "run", "--name", "a", "--wait", "2s", "jobs/x", "--", "echo", "ran"];
    let said = group.host.run(wait);
    assert_eq!((said.code, said.out.as_str()), (Some(125), ""), "{said:?}");
    let last = said.err.lines().last().unwrap();
    assert!(last.contains("the group elected nobody in time") && last.contains("incumbent status jobs/x"), "{said:?}");
    assert!(!last.contains("the store"), "{said:?}");
}

#[test]
fn too_few_members_are_said_with_what_is_missing_and_how_to_begin_without() {
    let group = Group::new("consensus");
    let mut one = group.campaign("a");
    let status = eventually("an answer", || {
        Some(group.ask(&["status", "jobs/x", "--json"])).filter(|said| said.code == Some(3))
    });
    let json = status.json();
    assert_eq!(json["group"]["answering"], 1);
    assert_eq!(json["group"]["waits_for"], json!(["b", "c"]));
    assert_eq!((&json["leader"], &json["vacant_because"]), (&json!(null), &json!("forming")));
    let said = group.ask(&["leader", "jobs/x"]);
    assert_eq!(said.code, Some(5), "{said:?}");
    assert!(said.err.contains("1 of 3 members answer"), "{said:?}");
    let text = group.ask(&["status", "jobs/x"]).out;
    assert!(text.contains("wait for b and c") && text.contains("incumbent peers found jobs/x"), "{text}");
    assert!(one.until_said("waits for").contains("b and c"), "the member says so, too, unasked");
    assert_eq!(group.diagnosis(), (vec!["D14".to_owned()], Some(11)));
    let said = group.ask(&["doctor", "jobs/x", "--recover"]);
    assert!(said.code == Some(2) && said.err.contains("docs/runbooks.md#two-claim-to-lead"), "{said:?}");
    let said = group.ask(&["peers", "found", "jobs/x"]);
    assert_eq!(said.code, Some(5), "one of three is no majority: {said:?}");

    let _two = group.campaign("b");
    eventually("the two begin", || {
        Some(group.ask(&["peers", "found", "jobs/x", "--timeout", "60s"])).filter(|said| said.code == Some(0))
    });
    group.until_led();
    let said = group.ask(&["peers", "found", "jobs/x"]);
    assert_eq!(said.code, Some(3), "{said:?}");
    let _three = group.campaign("c");
    eventually("all three", || {
        let json = group.ask(&["status", "jobs/x", "--json"]).json();
        (json["group"]["answering"] == 3 && json["group"].get("not_voting").is_none()).then_some(())
    });
}

/// Each half of a network that is cut would have a leader: these have none in the smaller one.
#[test]
fn too_few_members_of_a_bully_or_a_ring_that_wants_a_majority_are_found_until_there_are_enough() {
    for algorithm in ["bully", "ring"] {
        let mut group = Group::new(algorithm);
        group.url.push_str("&majority=yes");
        let _one = group.campaign("a");
        eventually("it is found", || (group.diagnosis() == (vec!["D14".to_owned()], Some(11))).then_some(()));
        let _two = group.campaign("b");
        group.until_led();
        eventually("nothing is found", || (group.diagnosis() == (Vec::new(), Some(0))).then_some(()));
    }
}

#[test]
fn a_directory_that_is_lost_while_the_group_is_founded_is_got_over_by_an_operators_word() {
    let mut group = Group::new("consensus");
    let right = group.url.clone();
    let address_of_c = right.split("c=").nth(1).unwrap().split('&').next().unwrap().to_owned();
    let c = group.campaign("c");
    // The other two hear of the third and cannot tell it anything, so they agree to a founding that
    // it does not hear of.
    group.url = right.replace(&address_of_c, "127.0.0.1:9");
    let two = ["a", "b"].map(|name| group.campaign(name));
    for name in ["a", "b"] {
        let file = group.host.path(&format!("data-{name}/member"));
        // It grows from 52 bytes to 108 with the numbers of three directories.
        eventually("it agrees", || fs::metadata(&file).ok().filter(|file| file.len() > 90));
    }
    two.into_iter().chain([c]).for_each(|process| {
        process.signal(Signal::KILL);
    });
    fs::remove_dir_all(group.host.path("data-c")).unwrap();
    group.url = right;
    let _members = group.all();
    let status = eventually("all answer", || {
        let json = group.ask(&["status", "jobs/x", "--json"]).json();
        (json["group"]["answering"] == 3 && json["group"].get("waits_for").is_none()).then_some(json)
    });
    assert_eq!(status["vacant_because"], "forming");
    let said = group.ask(&["peers", "found", "jobs/x", "--timeout", "60s"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    group.until_led();
}

#[test]
fn members_that_lost_their_votes_are_named_and_come_back_by_an_operators_word() {
    let group = Group::new("consensus");
    let mut members = group.all();
    let (_, token) = group.until_led();
    let mut wipe = |name: &str| {
        let member = &mut members[place(name)];
        member.signal(Signal::KILL);
        member.wait();
        fs::remove_dir_all(group.host.path(&format!("data-{name}"))).unwrap();
    };
    ["a", "b"].into_iter().for_each(&mut wipe);
    for name in ["a", "b"] {
        members[place(name)] = group.campaign(name);
    }
    // One is heard before the other, and the third may lead until its deadline.
    let said = eventually("both are named", || {
        let said = group.ask(&["status", "jobs/x", "--json"]);
        let (vacant_because, not_voting) = (&said.json()["vacant_because"], &said.json()["group"]["not_voting"]);
        (*vacant_because == "state_lost" && *not_voting == json!(["a", "b"])).then_some(said)
    });
    assert_eq!(said.code, Some(3), "{said:?}");
    let text = group.ask(&["status", "jobs/x"]).out;
    for words in ["a and b", "1 of 3 members vote", "incumbent peers readmit jobs/x --member NAME"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert_eq!(group.diagnosis(), (vec!["D13".to_owned()], Some(10)));
    let said = group.ask(&["peers", "readmit", "jobs/x", "--member", "c"]);
    assert_eq!(said.code, Some(3), "{said:?}");
    let said = group.ask(&["peers", "readmit", "jobs/x", "--member", "b", "--timeout", "60s"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let (_, later) = group.until_led();
    assert!(later > token);
    eventually("the other one follows", || {
        let json = group.ask(&["status", "jobs/x", "--json"]).json();
        (json["group"].get("not_voting").is_none()).then_some(())
    });
    eventually("nothing is found", || (group.diagnosis() == (Vec::new(), Some(0))).then_some(()));
}

#[test]
fn a_member_that_does_not_vote_yet_is_no_heir_and_the_leader_leads_on() {
    let group = Group::new("consensus");
    let mut members = group.all();
    let (leader, token) = group.until_led();
    let heir = NAMES[(place(&leader) + 1) % 3];
    members[place(heir)].signal(Signal::KILL);
    members[place(heir)].wait();
    // With a timeout of a minute it abstains for two after its start.
    let url = format!("{}&timeout=60s", group.member_url(heir));
    members[place(heir)] = group.host.start(["--store", url.as_str(), "campaign", "--name", heir, "jobs/x"]);
    eventually("it answers", || {
        let said = group.ask(&["candidates", "jobs/x", "--json"]);
        let people = said.json()["candidates"].as_array()?.clone();
        people.iter().any(|one| one["name"] == heir).then_some(())
    });
    let said = group.ask(&["transfer", "jobs/x", "--to", heir]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("does not vote yet"), "{said:?}");
    assert_eq!(group.leader(), Some((leader, token)));
}

#[test]
fn in_a_container_votes_without_a_place_come_with_a_warning() {
    let host = Host::new();
    let url = format!("consensus://?members={}", list_at_free_ports());
    let mut command = host.command(["--store", url.as_str(), "campaign", "jobs/x", "--name", "a"]);
    command.env("container", "podman").env("XDG_STATE_HOME", host.path("state"));
    Process::start(command).until_said("&data=");
}

#[test]
fn on_one_host_a_count_of_ports_is_enough_and_each_process_takes_the_next_member() {
    let host = Host::new();
    let url = format!("bully://127.0.0.1:{}?members=3&timeout=3s", free_ports(3));
    let with_state = |args: &[&str]| {
        let mut command = host.command(["--store", url.as_str()].iter().chain(args));
        command.env("XDG_STATE_HOME", host.path("state"));
        command
    };
    let said = crate::host::finish(with_state(&["leader", "jobs/x"]));
    assert_eq!(said.code, Some(5), "{said:?}");
    assert!(said.err.contains("no member has ever run"), "{said:?}");
    assert!(!host.path("state").exists(), "a verb that only reads makes no secret");

    let mut members = Vec::new();
    for place in 1..=3 {
        members.push(Process::start(with_state(&["campaign", "jobs/x", "--json"])));
        eventually("one more member", || {
            let said = crate::host::finish(with_state(&["status", "jobs/x", "--json"]));
            (said.code != Some(5) && said.json()["group"]["answering"] == place).then_some(())
        });
    }
    let mut fourth = Process::start(with_state(&["campaign", "jobs/x"]));
    fourth.until_said("all 3 members are already running");
    assert_eq!(fourth.wait(), Some(1));
    let mode = fs::metadata(host.path("state/incumbent/peers/secret")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// Three names at free ports.
fn list_at_free_ports() -> String {
    NAMES.map(|name| format!("{name}=127.0.0.1:{}", free_port())).join(",")
}

#[test]
fn members_that_move_to_other_ports_are_the_same_group_with_the_same_votes() {
    let host = Host::new();
    let at = |list: &str, args: &[&str]| {
        let url = format!("consensus://?members={list}&timeout=3s");
        let mut command = host.command(["--store", url.as_str()].iter().chain(args));
        command.env("XDG_STATE_HOME", host.path("state"));
        command
    };
    let start = |list: &str| NAMES.map(|name| Process::start(at(list, &["campaign", "jobs/x", "--name", name])));
    let token = |list: &str| {
        eventually("a leader", || {
            let said = crate::host::finish(at(list, &["leader", "jobs/x", "--json"]));
            (said.code == Some(0)).then(|| said.json()["leader"]["token"].as_u64())
        })
    };
    let (before, after) = (list_at_free_ports(), list_at_free_ports());
    let mut members = start(&before);
    let first = token(&before);
    // Both at a time would be two groups, each with a leader.
    let mut second = Process::start(at(&after, &["campaign", "jobs/x", "--name", "a"]));
    second.until_said("is in use");
    assert_eq!(second.wait(), Some(1));
    for member in &mut members {
        member.signal(Signal::KILL);
        member.wait();
    }
    let _members = start(&after);
    assert!(token(&after) > first, "tokens go on");
}

#[test]
fn a_url_that_makes_no_group_exits_with_2_and_says_why() {
    let host = Host::new();
    secret(&host, "open", "everybody can read this one");
    fs::set_permissions(host.path("open"), fs::Permissions::from_mode(0o644)).unwrap();
    let open = format!("consensus://?secret-file={}", host.path("open").display());
    for (url, why) in [
        ("consensus://?members=a=nowhere", "host:port"),
        ("consensus://?members=a=127.0.0.1:1,a=127.0.0.1:2", "twice"),
        ("consensus://?members=10.0.0.1:1,10.0.0.2:1", "secret-file"),
        ("consensus://?secret-file=/nonexistent", "/nonexistent"),
        (open.as_str(), "everybody can read it"),
        ("consensus://?majority=yes", "bully and ring"),
        ("bully://?data=/tmp", "writes nothing down"),
        ("ring://?timeout=soon", "1500ms"),
        ("ring://?rank=7", "1, 2, 3"),
        ("bully://?colour=blue", "\"colour\""),
    ] {
        for verb in [&["leader", "jobs/x"][..], &["campaign", "jobs/x"], &["run", "jobs/x", "--", "true"], &["explain"]]
        {
            let said = host.run(["--store", url].iter().chain(verb));
            assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{url}: {said:?}");
            assert!(said.err.contains(why), "{url}: {said:?}");
        }
    }
    let said = host.run(["--store", "consensus://", "campaign", "--ttl", "15s", "jobs/x"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("&timeout="), "{said:?}");
}
