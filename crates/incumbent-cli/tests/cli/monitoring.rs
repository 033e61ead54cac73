//! What those who watch elections from outside use: list, check, metrics and `status --watch`.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use incumbent_testkit::free_port;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};

use crate::host::{Host, Process, Said, eventually, finish, in_time, stop};

/// Starts a leader of this election.
fn lead(host: &Host, store: &str, election: &str, name: &str) -> Process {
    let leader = host.start(["--store", store, "run", "--name", name, election, "--", "sleep", "1000"]);
    eventually("a leader", || (host.run(["--store", store, "leader", election]).code == Some(0)).then_some(()));
    leader
}

/// The figures in the text format of Prometheus: each line's name with its labels, and its value.
fn figures(text: &str) -> Vec<(String, f64)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let figure = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        (name.to_owned(), value.parse().unwrap_or_else(|error| panic!("{line}: {error}")))
    };
    lines.map(figure).collect()
}

/// A figure of an election, as it is written.
fn of(store: &str, figure: &str, election: &str) -> String {
    format!("incumbent_{figure}{{store=\"{store}\",election=\"{election}\"}}")
}

fn figure(text: &str, name: &str) -> Option<f64> {
    figures(text).into_iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

/// Whether each verb sees an election that is led and one that has nothing but an order, on this
/// store.
fn elections_are_seen(host: &Host, store: &str) {
    let on = |args: &[&str]| host.run(["--store", store].iter().chain(args));
    let _leader = lead(host, store, "jobs/x \"1\"", "node-1");
    assert_eq!(on(&["pause", "mail", "--reason", "upgrade"]).code, Some(0));

    let said = on(&["list", "--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let listed = said.json();
    let rows = listed["elections"].as_array().unwrap();
    let row = |row: &Value| (row["election"].clone(), row["leader"]["name"].clone(), row["vacant_because"].clone());
    let expected =
        [(json!("jobs/x \"1\""), json!("node-1"), Value::Null), (json!("mail"), Value::Null, json!("paused"))];
    assert_eq!(rows.iter().map(row).collect::<Vec<_>>(), expected, "{listed}");
    let text = on(&["list"]).out;
    let lines: Vec<_> = text.lines().collect();
    assert!(
        lines[0].starts_with("jobs/x \"1\"  node-1           ") && lines[0].ends_with("0 in line behind"),
        "{text}"
    );
    assert!(lines[1].starts_with("mail        nobody (paused)  "), "{text}");

    let said = on(&["check", "jobs/x \"1\"", "--followers", "0"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.starts_with("INCUMBENT OK - node-1 (token "), "{said:?}");
    assert_eq!(on(&["check", "mail"]).code, Some(1));

    let text = on(&["metrics"]).out;
    assert_eq!(figure(&text, &of(store, "vacant", r#"jobs/x \"1\""#)), Some(0.0), "{text}");
    assert_eq!(figure(&text, &of(store, "paused", "mail")), Some(1.0), "{text}");
}

#[test]
fn a_directory_shows_its_elections() {
    let host = Host::new();
    elections_are_seen(&host, &host.store());
}

#[cfg(feature = "etcd")]
#[tokio::test]
async fn etcd_shows_its_elections() {
    let cluster = incumbent_testkit::servers::EtcdCluster::start(1).await;
    elections_are_seen(&Host::new(), &cluster.url());
    elections_are_seen(&Host::new(), &format!("{}?prefix=team", cluster.url()));
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn redis_shows_its_elections() {
    let server = incumbent_testkit::servers::RedisServer::start().await;
    elections_are_seen(&Host::new(), &server.url());
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn postgres_shows_its_elections() {
    let server = incumbent_testkit::servers::PostgresServer::start().await;
    elections_are_seen(&Host::new(), &server.url());
}

#[cfg(feature = "zookeeper")]
#[tokio::test]
async fn zookeeper_shows_its_elections() {
    let ensemble = incumbent_testkit::servers::ZooKeeperEnsemble::builder().start(1).await;
    elections_are_seen(&Host::new(), &ensemble.url());
}

#[test]
fn a_store_without_elections_lists_none_and_one_that_is_not_there_is_an_error() {
    let host = Host::new();
    let said = host.ok(["list"]);
    assert!(said.out.is_empty() && said.err.contains("nobody stands in any election"), "{said:?}");
    assert_eq!(host.ok(["list", "--json"]).json()["elections"], json!([]));
    let nowhere = format!("{}/nowhere", host.store());
    assert_eq!(host.run(["--store", &nowhere, "list"]).code, Some(5));
    let said = host.run(["--store", "bully://?members=3", "list"]);
    assert!(said.code == Some(1) && said.err.contains("holds one election"), "{said:?}");
}

#[test]
fn an_election_that_cannot_be_read_hides_no_other() {
    let host = Host::new();
    let _leader = lead(&host, &host.store(), "jobs/x", "node-1");
    host.ok(["pause", "broken"]);
    for office in fs::read_dir(host.path("store/elections/broken/office")).unwrap() {
        damage(&office.unwrap().path());
    }
    let said = host.run(["list", "--json"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    let listed = said.json();
    assert!(listed["elections"][0]["error"].as_str().is_some_and(|error| error.contains("damaged")), "{listed}");
    assert_eq!(listed["elections"][1]["leader"]["name"], "node-1", "{listed}");
    let said = host.run(["metrics"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    for (election, readable) in [("broken", 0.0), ("jobs/x", 1.0)] {
        assert_eq!(figure(&said.out, &of(&host.store(), "readable", election)), Some(readable), "{said:?}");
    }
}

/// A record of terms outlives those who stood; nobody is missed where the work is done.
#[test]
fn an_election_of_which_only_a_record_is_left_is_listed_by_its_name_alone() {
    let host = Host::new();
    host.ok(["run", "--record", "jobs/x", "--", "true"]);
    assert_eq!(host.ok(["history", "jobs/x", "--json"]).json()["terms"].as_array().unwrap().len(), 1);
    assert_eq!(host.ok(["list", "--json"]).json()["elections"], json!([]));
    let vacant = of(&host.store(), "vacant", "jobs/x");
    assert_eq!(figure(&host.ok(["metrics"]).out, &vacant), None);
    assert_eq!(figure(&host.ok(["metrics", "jobs/x"]).out, &vacant), Some(1.0));
}

/// An order is why an election may be listed in which nobody stands.
#[test]
fn a_list_says_what_was_ordered_and_forgets_what_was_taken_back() {
    let host = Host::new();
    let _leader = lead(&host, &host.store(), "jobs/x", "node-1");
    host.ok(["freeze", "jobs/x", "--by", "ada", "--reason", "new disk", "--for", "1h"]);
    host.ok(["freeze", "typo"]);
    let text = host.ok(["list"]).out;
    assert!(text.lines().all(|line| line.ends_with("0 in line behind, frozen")), "{text}");
    let listed = host.ok(["list", "--json"]).json();
    let frozen = &listed["elections"][0]["frozen"];
    assert!(frozen["by"] == "ada" && frozen["reason"] == "new disk" && frozen["lasts_ms"] == 3_600_000, "{listed}");
    assert!(listed["elections"][0]["paused"].is_null(), "{listed}");
    host.ok(["unfreeze", "typo"]);
    let listed = host.ok(["list", "--json"]).json();
    assert_eq!(listed["elections"].as_array().unwrap().len(), 1, "{listed}");
    host.ok(["pause", "mail", "--by", "ada"]);
    let listed = host.ok(["list", "--json"]).json();
    assert_eq!(listed["elections"][1]["paused"]["by"], "ada", "{listed}");
}

/// Those who take a verdict from the exit code are told the same.
#[test]
fn a_reader_that_has_gone_changes_no_verdict() {
    let host = Host::new();
    let nowhere = format!("{}/nowhere", host.store());
    let unread = |args: &[&str]| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let mut command = host.command(args);
        command.stdout(OwnedFd::from(ours)).stderr(Stdio::null());
        command.spawn().unwrap().wait().unwrap().code()
    };
    assert_eq!(unread(&["status", "jobs/x"]), Some(3), "nobody leads");
    assert_eq!(unread(&["status", "jobs/x", "--json"]), Some(3), "nobody leads");
    assert_eq!(unread(&["--store", &nowhere, "metrics"]), Some(5), "there is no store");
    assert_eq!(unread(&["metrics"]), Some(0), "it can be read");
    assert_eq!(unread(&["list"]), Some(0), "it has no verdict");
}

/// Writes nonsense to every file in there.
fn damage(path: &std::path::Path) {
    if path.is_dir() {
        fs::read_dir(path).unwrap().for_each(|inner| damage(&inner.unwrap().path()));
    } else {
        fs::write(path, "nonsense").unwrap();
    }
}

fn assert_state(said: &Said, code: i32, words: &[&str]) {
    assert_eq!((said.code, said.out.lines().count(), said.err.as_str()), (Some(code), 1, ""), "{said:?}");
    for word in words {
        assert!(said.out.contains(word), "{word:?} is missing: {said:?}");
    }
}

#[test]
fn a_check_answers_with_the_codes_of_a_plugin() {
    let host = Host::new();
    let vacant = [
        "INCUMBENT CRITICAL - nobody leads jobs/x: no candidates; docs/runbooks.md#nobody-leads | vacant=1 followers=0;1:;;0 age=",
    ];
    assert_state(&host.run(["check", "jobs/x"]), 2, &vacant);
    let _leader = lead(&host, &host.store(), "jobs/x", "a|b");
    let alone = [
        "INCUMBENT WARNING - a/b (token 1) leads jobs/x; 0 in line behind it, and not 1 | vacant=0 ",
        " followers=0;1:;;0 token=1c age=0.",
        "s silent=",
    ];
    assert_state(&host.run(["check", "jobs/x"]), 1, &alone);
    let fine = ["INCUMBENT OK - a/b (token 1) leads jobs/x | vacant=0 followers=0;0:;;0 token=1c"];
    assert_state(&host.run(["check", "jobs/x", "--followers", "0"]), 0, &fine);
    host.ok(["pause", "jobs/x", "--reason", "tea", "--by", "ada"]);
    assert_state(&host.run(["check", "jobs/x"]), 1, &["INCUMBENT WARNING - nobody leads jobs/x: paused by ada: tea |"]);
}

#[test]
fn a_check_that_cannot_know_says_unknown() {
    let host = Host::new();
    let nowhere = format!("{}/nowhere", host.store());
    assert_state(&host.run(["--store", &nowhere, "check", "jobs/x"]), 3, &["INCUMBENT UNKNOWN - jobs/x: "]);
    for args in [&["check"][..], &["check", "a//b"], &["--store", "status", "check", "jobs/x", "--nonsense"]] {
        assert_eq!(host.run(args).code, Some(3), "{args:?}");
    }
    assert_eq!(host.run(["status", "check", "--nonsense"]).code, Some(2), "of an election that is called so");
}

/// Whatever goes wrong, those who run a plugin take a lower number for a state of the election.
#[test]
fn a_check_without_a_store_or_a_reader_says_unknown() {
    let host = Host::new();
    let nowhere = host.path("nowhere");
    let said = host.run(["--store-file", nowhere.to_str().unwrap(), "check", "jobs/x"]);
    assert_state(&said, 3, &["INCUMBENT UNKNOWN - jobs/x: cannot read the store's URL from", "nowhere"]);
    let mut command = host.command(["check", "jobs/x"]);
    command.env_remove("INCUMBENT_STORE").env_remove("HOME");
    assert_state(&finish(command), 3, &["INCUMBENT UNKNOWN - jobs/x: no store was named"]);
    let said = host.run(["check", "jobs/x", "--nonsense"]);
    assert!(said.code == Some(3) && said.out.starts_with("INCUMBENT UNKNOWN - unexpected argument"), "{said:?}");
    let said = host.run(["check"]);
    let missing = "INCUMBENT UNKNOWN - the following required arguments were not provided: <ELECTION>\n";
    assert_eq!((said.code, said.out.as_str()), (Some(3), missing), "{said:?}");
    assert_eq!(said.out.lines().count(), 1, "{said:?}");

    let (ours, theirs) = UnixStream::pair().unwrap();
    drop(theirs);
    let mut command = host.command(["check", "jobs/x"]);
    command.stdout(OwnedFd::from(ours)).stderr(Stdio::piped());
    assert_eq!(command.spawn().unwrap().wait().unwrap().code(), Some(3), "nobody reads it");
    let full = ["-c", "ulimit -f 0; exec \"$@\" >\"$FOLDER/full\"", "sh"];
    let said = finish(host.by_way_of("sh", &full, ["check", "jobs/x"]));
    assert!(said.code == Some(3) && said.err.contains("cannot write to standard output"), "{said:?}");
}

/// Those who run timers and plugins are other users than those whose candidates stand.
#[test]
fn monitoring_that_names_no_store_says_which_one_it_misses() {
    let host = Host::new();
    let without_store = |args: &[&str]| {
        let mut command = host.command(args);
        command.env_remove("INCUMBENT_STORE").env("HOME", host.path("home"));
        finish(command)
    };
    let missed = host.path("home/.local/state/incumbent").display().to_string();
    let unknown = ["INCUMBENT UNKNOWN - jobs/x: ", &missed, "no store was named"];
    assert_state(&without_store(&["check", "jobs/x"]), 3, &unknown);
    let said = without_store(&["metrics"]);
    assert_eq!(figures(&said.out), [(format!("incumbent_up{{store=\"file://{missed}\"}}"), 0.0)], "{said:?}");
    assert!(said.code == Some(5) && said.err.contains(&missed) && said.err.contains("no store was named"), "{said:?}");
    assert_eq!(without_store(&["status", "jobs/x"]).code, Some(3), "a person sees the store");
}

#[test]
fn a_check_warns_of_a_leader_that_has_fallen_silent() {
    let host = Host::new();
    let leader = host.start(["run", "--ttl", "3s", "jobs/x", "--", "sleep", "1000"]);
    eventually("a leader", || host.leader("jobs/x"));
    stop(leader.pid());
    let said = eventually("it is silent", || {
        let said = host.run(["check", "jobs/x", "--followers", "0"]);
        (said.code == Some(1)).then_some(said)
    });
    assert_state(&said, 1, &["last heard of", "with a TTL of 3 s"]);
}

#[test]
fn a_check_looks_again_for_as_long_as_it_is_told_while_nobody_leads() {
    let host = Host::new();
    let began = Instant::now();
    assert_state(&host.run(["check", "jobs/x", "--wait", "1s"]), 2, &["nobody leads"]);
    assert!(began.elapsed() >= Duration::from_secs(1));
    let mut check = host.start(["check", "jobs/x", "--followers", "0", "--wait", "60s"]);
    let _leader = lead(&host, &host.store(), "jobs/x", "a");
    assert_eq!(check.wait(), Some(0), "{:?}", check.everything());
}

#[test]
fn metrics_say_who_leads_and_what_was_ordered() {
    let host = Host::new();
    let _leader = lead(&host, &host.store(), "jobs/x", "a\\b");
    let _follower = host.start(["run", "--name", "b", "jobs/x", "--", "sleep", "1000"]);
    host.until_in_line("jobs/x", &["a\\b", "b"]);
    let text = host.ok(["metrics", "jobs/x", "jobs/nobody"]).out;
    for (name, value) in [
        (format!("incumbent_up{{store=\"{}\"}}", host.store()), 1.0),
        (of(&host.store(), "vacant", "jobs/x"), 0.0),
        (of(&host.store(), "vacant", "jobs/nobody"), 1.0),
        (of(&host.store(), "leader_token", "jobs/x"), 1.0),
        (of(&host.store(), "followers", "jobs/x"), 1.0),
        (of(&host.store(), "leader_info", "jobs/x").replace('}', r#",name="a\\b"}"#), 1.0),
        (of(&host.store(), "leader_ttl_seconds", "jobs/x"), 15.0),
    ] {
        assert_eq!(figure(&text, &name), Some(value), "{name} in {text}");
    }
    // Each name is explained once, before all its figures.
    let helped: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next()).collect();
    assert_eq!(helped.len(), helped.iter().collect::<BTreeSet<_>>().len(), "{text}");
    for (name, _) in figures(&text) {
        assert!(helped.contains(&name.split('{').next().unwrap()), "{name} in {text}");
    }
}

#[test]
fn metrics_replace_a_file_in_one_step_and_say_when_the_store_cannot_be_read() {
    let host = Host::new();
    let (folder, store) = (host.path("collector"), host.store());
    fs::create_dir(&folder).unwrap();
    let file = folder.join("incumbent.prom");
    let metrics = |store: &str| host.run(["--store", store, "metrics", "--output", file.to_str().unwrap()]);
    host.ok(["pause", "mail"]);
    let said = metrics(&store);
    assert_eq!((said.code, said.out.as_str()), (Some(0), ""), "{said:?}");
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(figure(&text, &of(&store, "paused", "mail")), Some(1.0), "{text}");

    let nowhere = format!("{store}/nowhere");
    assert_eq!(metrics(&nowhere).code, Some(5));
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(figures(&text), [(format!("incumbent_up{{store=\"{nowhere}\"}}"), 0.0)], "{text}");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing else is left there");

    let said = host.run(["metrics", "--output", folder.join("no/such/folder.prom").to_str().unwrap()]);
    assert!(said.code == Some(1) && said.err.contains("folder.prom"), "{said:?}");
}

/// What is not a file is meant to be written to, and not to be replaced.
#[test]
fn metrics_replace_nothing_but_files() {
    let host = Host::new();
    let (folder, file) = (host.path("collector"), host.path("file"));
    fs::create_dir(&folder).unwrap();
    fs::write(&file, "precious").unwrap();
    assert!(Command::new("mkfifo").arg(folder.join("pipe")).status().unwrap().success());
    symlink(&file, folder.join("link")).unwrap();
    symlink(host.path("nowhere"), folder.join("dangling")).unwrap();
    fs::create_dir(folder.join("folder")).unwrap();
    let _socket = UnixListener::bind(folder.join("socket")).unwrap();
    for name in ["pipe", "link", "dangling", "folder", "socket"] {
        let path = folder.join(name);
        let before = fs::symlink_metadata(&path).unwrap();
        let said = host.run(["metrics", "--output", path.to_str().unwrap()]);
        assert!(
            said.code == Some(1) && said.err.contains("not a regular file; leave --output out"),
            "{name}: {said:?}"
        );
        let after = fs::symlink_metadata(&path).unwrap();
        assert_eq!((before.ino(), before.file_type()), (after.ino(), after.file_type()), "{name}");
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 5, "nothing else is left there");
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    let mut command = host.command(["metrics", "--output", "-"]);
    command.current_dir(&folder);
    let said = finish(command);
    assert!(said.code == Some(2) && said.err.contains("leave --output out"), "{said:?}");
    assert!(!folder.join("-").exists());
}

#[test]
fn metrics_of_a_store_that_lists_no_elections_need_their_names() {
    let host = Host::new();
    let file = host.path("incumbent.prom");
    let said = host.run(["--store", "bully://?members=3", "metrics", "--output", file.to_str().unwrap()]);
    assert!(said.code == Some(2) && said.err.contains("`incumbent metrics ELECTION...`"), "{said:?}");
    assert!(!file.exists() && said.out.is_empty(), "nothing is wrong with the store: {said:?}");
}

#[test]
fn metrics_write_an_election_once_however_often_it_was_named() {
    let host = Host::new();
    let text = host.ok(["metrics", "b", "a", "b"]).out;
    let names: Vec<_> = figures(&text).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), names.iter().collect::<BTreeSet<_>>().len(), "{text}");
    assert!(names.contains(&of(&host.store(), "vacant", "b")), "{text}");
}

/// A rule about a figure that nobody exports never fires.
#[test]
fn the_rules_that_are_shipped_ask_for_figures_that_there_are() {
    let host = Host::new();
    let _leader = lead(&host, &host.store(), "jobs/x", "a");
    let of_store = host.ok(["metrics"]).out;
    let secret = host.path("secret");
    fs::write(&secret, "a secret of this test alone").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let members = ["a", "b"].map(|name| format!("{name}=127.0.0.1:{}", free_port()));
    let group = format!("bully://?members={}&secret-file={}", members.join(","), secret.display());
    let _member = host.start(["--store", &group, "campaign", "--name", "a", "jobs/x"]);
    let of_group = eventually("a member answers", || {
        let said = host.run(["--store", &group, "metrics", "jobs/x"]);
        (said.code == Some(0)).then_some(said.out)
    });
    let name = |(name, _): (String, f64)| name.split('{').next().unwrap().to_owned();
    let exported: BTreeSet<_> = [of_store, of_group].iter().flat_map(|text| figures(text)).map(name).collect();

    let rules = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/alerts.yml")).unwrap();
    let words = rules.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let asked: BTreeSet<_> = words.filter(|word| word.starts_with("incumbent_")).map(str::to_owned).collect();
    assert!(asked.len() > 5, "{asked:?}");
    let unknown: Vec<_> = asked.difference(&exported).collect();
    assert!(unknown.is_empty(), "{unknown:?} is not among {exported:?}");
    // Where two hosts collect, the election alone finds two partners, and the rule fails.
    let narrow: Vec<_> = rules.lines().filter(|line| line.contains(" on (")).collect();
    assert!(narrow.is_empty(), "{narrow:#?}");
}

#[test]
fn a_status_is_shown_again_whenever_it_has_changed() {
    let host = Host::new();
    let mut status = host.start(["status", "jobs/x", "--watch", "--json"]);
    let mut list = host.start(["list", "--watch", "--json"]);
    assert_eq!(status.json()["vacant_because"], "no_candidates");
    assert_eq!(list.json()["elections"], json!([]));
    let _leader = lead(&host, &host.store(), "jobs/x", "a");
    assert_eq!(until(&mut status, |json| json["leader"]["name"] == "a")["followers"], 0);
    until(&mut list, |json| json["elections"][0]["leader"]["name"] == "a");
    let _follower = host.start(["run", "--name", "b", "jobs/x", "--", "sleep", "1000"]);
    until(&mut status, |json| json["followers"] == 1);
    until(&mut list, |json| json["elections"][0]["followers"] == 1);
    host.ok(["pause", "jobs/x", "--reason", "tea"]);
    until(&mut status, |json| json["paused"]["reason"] == "tea" && json["leader"].is_null());
}

/// Takes what is shown until it is so. Nothing is shown twice in a row.
fn until(process: &mut Process, so: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    loop {
        let mut shown = process.json();
        if so(&shown) {
            return shown;
        }
        for age in ["age_ms", "silent_ms"] {
            shown.as_object_mut().unwrap().remove(age);
        }
        assert_ne!(shown, last);
        last = shown;
    }
}

#[test]
fn on_a_terminal_it_is_shown_in_place() {
    let host = Host::new();
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let other_end = OpenOptions::new().write(true).open(name.to_str().unwrap()).unwrap();
    let mut command = host.command(["status", "jobs/x", "--watch"]);
    command.env("TERM", "xterm").stdout(other_end);
    let mut watching = command.spawn().unwrap();
    let mut terminal = File::from(terminal);
    let mut seen = Vec::new();
    let shown = in_time(|| {
        let mut some = [0; 1024];
        let count = terminal.read(&mut some).unwrap();
        seen.extend_from_slice(&some[..count]);
        String::from_utf8_lossy(&seen).contains("nobody is in line").then_some(())
    });
    watching.kill().unwrap();
    watching.wait().unwrap();
    let seen = String::from_utf8_lossy(&seen);
    assert!(shown.is_some() && seen.starts_with("\x1b[H\x1b[2J"), "{seen:?}");
}
