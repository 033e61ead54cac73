//! `doctor --recover`: a store that was put back from an old copy, healed by following what it asks
//! for; interrupted at every question, and another operator beside it.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use incumbent::fence::{FencingToken, FileFence};
use incumbent::{ElectionName, StoreId, Token};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::doctoring::mark;
use crate::host::{Host, Process, Said, Spoken, eventually};
use crate::terminal::on_terminal;

/// Runs a term to its end, and waits until this host remembers it. Answers with its token.
fn led(host: &Host, more: &[&str]) -> u64 {
    let before = host.log().len();
    let mut run = host.start_lonely("a", more);
    let token = eventually("a term", || {
        let log = host.log();
        let mut lines = log[before..].iter();
        lines.find_map(|line| line.strip_prefix("start ")?.strip_suffix(" a")?.parse::<u64>().ok())
    });
    host.until_remembered(token);
    run.signal(Signal::TERM);
    run.wait();
    token
}

/// A store in which tokens 2 and 3 are given again, with two candidates: `c` leads.
fn restored(host: &Host) -> Vec<Process> {
    assert_eq!(led(host, &[]), 1);
    copy(&host.path("store"), &host.path("copy"));
    assert_eq!((led(host, &[]), led(host, &[])), (2, 3));
    put_back(&host.path("copy"), &host.path("store"));
    two_candidates(host, &[])
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

fn put_back(copy: &Path, place: &Path) {
    fs::remove_dir_all(place).unwrap();
    fs::rename(copy, place).unwrap();
}

/// Starts `c` and `d`, in this order.
fn two_candidates(host: &Host, more: &[&str]) -> Vec<Process> {
    let start = |name: &&str| {
        let process = host.start_lonely(name, more);
        eventually("a place in line", || {
            let said = host.run([&["candidates", "jobs/x"], more].concat());
            said.out.split_whitespace().any(|word| word == *name).then_some(())
        });
        process
    };
    ["c", "d"].iter().map(start).collect()
}

fn recover(host: &Host, more: &[&str]) -> Said {
    let folder = host.path("").display().to_string();
    host.run(["doctor", "jobs/x", "--recover", "--dir", &folder].iter().chain(more))
}

/// Begins a recovery, which stops at its first question: its id.
fn begun(host: &Host) -> String {
    let said = recover(host, &[]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("standard input is no terminal, and \"stop\" has to be answered"), "{said:?}");
    let rest = said.err.split("recovery ").nth(1).unwrap_or_else(|| panic!("{said:?}"));
    rest.chars().take(8).collect()
}

/// Goes on with it, with these answers.
fn go_on(host: &Host, id: &str, answers: &[(&str, &str)]) -> Said {
    let answers: serde_json::Map<String, Value> =
        [("recovery", id)].iter().chain(answers).map(|(key, word)| ((*key).to_owned(), json!(word))).collect();
    let file = host.path("answers.json");
    fs::write(&file, Value::Object(answers).to_string()).unwrap();
    recover(host, &["--resume", id, "--answers", file.to_str().unwrap()])
}

#[test]
fn a_directory_put_back_from_an_old_copy_is_healed_by_following_the_screen() {
    let host = Host::new();
    let _processes = restored(&host);
    let (leader, token) = host.leader("jobs/x").unwrap();
    assert_eq!((leader.as_str(), token), ("c", 2), "given a second time");
    let name = host.ok(["claims", "--json"]).json()["host"].as_str().unwrap().to_owned();
    let id = begun(&host);
    assert_eq!(host.leader("jobs/x"), Some((leader, token)), "nothing is touched before the word");
    let evidence = fs::read_to_string(host.path(&format!("recovery-{id}/findings.txt"))).unwrap();
    assert!(evidence.contains("D06"), "{evidence}");

    let said = go_on(&host, &id, &[("stop", "yes")]);
    assert_eq!(said.code, Some(3), "{said:?}");
    let said = go_on(&host, &id, &[("stop", "stop")]);
    assert!(said.code == Some(2) && said.err.contains("has none for \"survivor\""), "{said:?}");
    assert_eq!(host.line("jobs/x"), [""; 0]);
    let status = host.run(["status", "jobs/x", "--json"]).json();
    assert_eq!((&status["recovery"]["id"], &status["recovery"]["step"]), (&json!(id), &json!("3 reconcile")));

    let answers = [("survivor", &*name), ("floor", "2")];
    let said = go_on(&host, &id, &answers);
    assert!(said.code == Some(3) && said.err.contains("At least 3"), "{said:?}");
    let answers = [("survivor", &*name), ("floor", "1000"), ("elect", "d")];
    let said = go_on(&host, &id, &answers);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("nothing found"), "{said:?}");
    let (leader, token) = host.leader("jobs/x").unwrap();
    assert!(leader == "d" && token > 1000, "{leader} {token}");
    host.until_in_line("jobs/x", &["d", "c"]);
    let said = go_on(&host, &id, &answers);
    assert!(said.code == Some(0) && said.err.contains("is over already"), "{said:?}");
    assert!(host.ok(["status", "jobs/x", "--json"]).json().get("recovery").is_none());
}

/// The same by hand, and with a fence whose mark is of the store that was there before.
#[test]
fn what_is_asked_for_can_be_typed_on_a_terminal_and_a_fence_of_another_store_is_reset() {
    let host = Host::new();
    let fence = mark(&host, "fence", 77, "another store");
    let place = host.path("fence").display().to_string();
    let _processes = restored(&host);
    let name = host.ok(["claims", "--json"]).json()["host"].as_str().unwrap().to_owned();
    let folder = host.path("").display().to_string();
    let args = ["doctor", "jobs/x", "--recover", "--dir", &folder, "--fence", &fence];
    let asked_for = |recovery: &mut Process| -> String {
        let lines = recovery.everything().into_iter().map(|spoken| match spoken {
            Spoken::Out(line) | Spoken::Err(line) => line + "\n",
        });
        lines.collect()
    };
    let typed = |more: &[&str], words: &[&str], last_said: &str| {
        let (mut recovery, mut keys) = on_terminal(&host, &[], &[&args[..], more].concat());
        words.iter().for_each(|word| keys.write_all(format!("{word}\n").as_bytes()).unwrap());
        recovery.until_ever_said(last_said);
        (recovery.wait(), asked_for(&mut recovery))
    };

    let (code, said) = typed(&[], &["yes"], "Type `stop`");
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("Type `stop`"), "{said}");
    assert_eq!(host.leader("jobs/x").unwrap().1, 2, "another word does nothing");
    let id: String = said.split("recovery ").nth(1).unwrap().chars().take(8).collect();
    let (code, said) = typed(&["--resume", &id], &["stop", &name, "1000", &folder], &format!("Type {place}"));
    assert_eq!(code, Some(3), "another place is no answer: {said}");
    let of_before = || FileFence::look(&place, &ElectionName::new("jobs/x").unwrap()).unwrap().unwrap();
    assert_eq!((of_before().get(), of_before().store.to_string()), (77, "another store".to_owned()));

    let (_, said) = typed(&["--resume", &id], &["1000", &place, "d"], "d leads");
    for asked in ["Up to which token", &format!("Type {place}"), "Who is to lead first?", "d leads"] {
        assert!(said.contains(asked), "{asked}: {said}");
    }
    let (leader, token) = host.leader("jobs/x").unwrap();
    assert!(leader == "d" && token > 1000, "{leader} {token}");
    // It counts tokens of this store now, and refuses those of the other.
    let store = host.ok(["claims", "--json"]).json()["claims"][0]["store"].as_str().unwrap().to_owned();
    let fence = FileFence::open(&place, &ElectionName::new("jobs/x").unwrap()).unwrap();
    let token_of = |token, store: &str| FencingToken::new(Token::new(token).unwrap(), StoreId::new(store));
    fence.write(&token_of(token, &store), || ()).unwrap();
    assert!(fence.write(&token_of(u64::MAX / 2, "another store"), || ()).is_err());
}

#[test]
fn hosts_are_stopped_and_compared_by_the_commands_that_were_named_and_what_they_say_is_kept() {
    let host = Host::new();
    let _process = host.start_lonely("c", &[]);
    host.until_logged("start 1 c");
    let claims = r#"echo '{"v":1,"host":"{host}","boot":"{host}","claims":[],"unread":[]}'"#;
    let stop = r#"echo {host} >>"$FOLDER/stopped"; test {host} = db1"#;
    let compare = r#"echo "rows of $INCUMBENT_HOST"; case {host} in db1) ;; db2) exit 1 ;; *) exit 7 ;; esac"#;
    let folder = host.path("").display().to_string();
    let hosts = ["--host", "db1", "--host", "db2", "--host", "db3", "--claims", claims];
    let commands = ["--stop-cmd", stop, "--compare-cmd", compare];
    let args = [&["doctor", "jobs/x", "--recover", "--dir", &folder][..], &hosts, &commands].concat();
    let said = host.run(&args);
    assert!(!host.path("stopped").exists(), "nothing is stopped before the word");
    let id: String = said.err.split("recovery ").nth(1).unwrap_or_else(|| panic!("{said:?}")).chars().take(8).collect();
    let file = answered(&host, &id);
    let said = host.run([&args[..], &["--resume", &id, "--answers", &file]].concat());
    assert!(said.code == Some(2) && said.err.contains("has none for \"survivor\""), "{said:?}");
    assert_eq!(fs::read_to_string(host.path("stopped")).unwrap(), "db1\ndb2\ndb3\n");
    let kept = |name: &str| fs::read_to_string(host.path(&format!("recovery-{id}/{name}"))).unwrap();
    for words in ["--stop-cmd of db2 ended with 1", "db1: same", "db2: differs: ", "db3: could not be compared"] {
        assert!(said.err.contains(words), "{words}: {said:?}");
    }
    assert!(!said.err.contains("--stop-cmd of db1"), "{said:?}");
    assert_eq!((kept("compare-db1.txt"), kept("compare-db2.txt")), ("rows of db1\n".into(), "rows of db2\n".into()));
    assert_eq!(host.line("jobs/x"), [""; 0], "its candidates are out, whatever the commands said");
}

#[test]
fn a_second_operator_is_refused_until_the_first_recovery_is_taken_over_or_over() {
    let host = Host::new();
    let _process = host.start_lonely("c", &[]);
    host.until_logged("start 1 c");
    let (ours, theirs) = (begun(&host), begun(&host));
    let said = go_on(&host, &ours, &[("stop", "stop")]);
    assert!(said.err.contains("survivor"), "{said:?}");
    let refused = [
        go_on(&host, &theirs, &[("stop", "stop")]),
        host.run(["resume", "jobs/x"]),
        host.run(["resume", "jobs/x", "--first", "c"]),
        host.run(["end", "jobs/x"]),
    ];
    for said in refused {
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(
            said.err.contains("is at step 3 reconcile") && said.err.contains(&format!("--take-over {ours}")),
            "{said:?}"
        );
    }
    assert_eq!(host.line("jobs/x"), [""; 0]);
    let said =
        recover(&host, &["--resume", &theirs, "--take-over", &ours, "--answers", answered(&host, &theirs).as_str()]);
    assert!(said.err.contains("survivor"), "{said:?}");
    let status = host.run(["status", "jobs/x", "--json"]).json();
    assert_eq!(status["recovery"]["id"], json!(theirs));
}

/// A file with the word that stops.
fn answered(host: &Host, id: &str) -> String {
    let file = host.path("stop.json");
    fs::write(&file, json!({"recovery": id, "stop": "stop"}).to_string()).unwrap();
    file.display().to_string()
}

#[test]
fn another_recoverys_answers_and_another_stores_journal_are_refused() {
    let host = Host::new();
    let _process = host.start_lonely("c", &[]);
    host.until_logged("start 1 c");
    let (first, second) = (begun(&host), begun(&host));
    let file = answered(&host, &second);
    let said = recover(&host, &["--resume", &first, "--answers", &file]);
    assert!(said.code == Some(2) && said.err.contains("they are not of this recovery"), "{said:?}");

    let elsewhere = format!("file://{}", host.path("elsewhere").display());
    let _other = host.start(["--store", &elsewhere, "run", "--name", "x", "jobs/x", "--", "sleep", "1000"]);
    eventually("another store", || {
        let said = host.run(["--store", &elsewhere, "leader", "jobs/x"]);
        (said.code == Some(0)).then_some(())
    });
    let file = answered(&host, &first);
    let folder = host.path("").display().to_string();
    let said = host.run([
        "--store",
        &elsewhere,
        "doctor",
        "jobs/x",
        "--recover",
        "--dir",
        &folder,
        "--resume",
        &first,
        "--answers",
        &file,
    ]);
    assert!(said.code == Some(1) && said.err.contains("the journal is about jobs/x in the store"), "{said:?}");
    assert_eq!(host.run(["--store", &elsewhere, "leader", "jobs/x"]).code, Some(0), "nothing was changed");
}

/// Nobody can raise an etcd's tokens: it says so, and waits until they have passed what was seen.
#[cfg(feature = "etcd")]
#[tokio::test]
async fn an_etcd_put_back_from_an_old_copy_is_healed_by_following_the_screen() {
    let mut cluster = incumbent_testkit::servers::EtcdCluster::start(1).await;
    let (host, url) = (Host::new(), cluster.url());
    let on_etcd = ["--store", &*url];
    led(&host, &on_etcd);
    let (data, copied) = (cluster.scratch().path().join("n0"), cluster.scratch().path().join("copy"));
    cluster.node(0).kill();
    copy(&data, &copied);
    cluster.node(0).restart().await;
    led(&host, &on_etcd);
    let last = led(&host, &on_etcd);
    cluster.node(0).kill();
    put_back(&copied, &data);
    cluster.node(0).restart().await;
    let _processes = two_candidates(&host, &on_etcd);
    let claims = format!("{} claims --json # {{host}}", env!("CARGO_BIN_EXE_incumbent"));
    let named = [&on_etcd[..], &["--host", "db1", "--claims", &claims]].concat();

    let said = recover(&host, &on_etcd);
    assert!(said.code == Some(2) && said.err.contains("nothing says how to ask those"), "{said:?}");
    let said = recover(&host, &named);
    assert!(said.code == Some(2) && said.out.contains("D06"), "{said:?}");
    let id: String = said.err.split("recovery ").nth(1).unwrap().chars().take(8).collect();
    let go_on = |answers: Value| {
        let file = host.path("answers.json");
        fs::write(&file, answers.to_string()).unwrap();
        recover(&host, &[&named[..], &["--resume", &id, "--answers", file.to_str().unwrap()]].concat())
    };
    let said = go_on(json!({"recovery": id, "stop": "stop", "survivor": "db1"}));
    assert!(said.code == Some(2) && said.err.contains("has none for \"counter\""), "{said:?}");
    assert!(said.err.contains(&format!("Token {last} was seen")), "{last}: {said:?}");
    assert!(said.err.contains("--bump-revision"), "{said:?}");
    // What is written there lets its revision pass.
    for _ in 0..last {
        cluster.ctl(&["put", "other", "value"]);
    }
    let said = go_on(json!({"recovery": id, "counter": "wait", "elect": "d"}));
    assert_eq!(said.code, Some(0), "{said:?}");
    let status = host.ok([&["status", "jobs/x", "--json"], &on_etcd[..]].concat()).json();
    assert_eq!(status["leader"]["name"], "d");
    assert!(status["leader"]["token"].as_u64().unwrap() > last, "{status}");
}

/// Nobody knows how far the command came: it is run again only on the word, and is told so.
#[test]
fn killed_while_it_reconciles_it_asks_for_the_host_again_and_says_so_to_the_command() {
    let host = Host::new();
    let _process = host.start_lonely("c", &[]);
    host.until_logged("start 1 c");
    let claims = r#"echo '{"v":1,"host":"{host}","boot":"{host}","claims":[],"unread":[]}'"#;
    let reconcile = r#"echo {host} $INCUMBENT_SURVIVOR $INCUMBENT_AGAIN >>"$FOLDER/reconciled"; until [ -e "$FOLDER/go" ]; do sleep 0.1; done"#;
    let folder = host.path("").display().to_string();
    let file = host.path("answers.json").display().to_string();
    let hosts = ["--host", "db1", "--host", "db2", "--claims", claims, "--reconcile-cmd", reconcile];
    let args = [&["doctor", "jobs/x", "--recover", "--dir", &folder][..], &hosts].concat();
    let said = host.run(&args);
    let id: String = said.err.split("recovery ").nth(1).unwrap_or_else(|| panic!("{said:?}")).chars().take(8).collect();
    let again = [&args[..], &["--resume", &id, "--answers", &file]].concat();
    let mut answers = json!({"recovery": id, "stop": "stop", "survivor": "db2", "elect": "c"});
    fs::write(&file, answers.to_string()).unwrap();

    let mut recovery = host.start(&again);
    let reconciled = || fs::read_to_string(host.path("reconciled")).unwrap_or_default();
    eventually("the command", || (reconciled() == "db1 db2 0\n").then_some(()));
    recovery.signal(Signal::KILL);
    recovery.status();
    fs::write(host.path("go"), "").unwrap();
    let said = host.run(&again);
    assert!(said.code == Some(2) && said.err.contains("has none for \"again:db1\""), "{said:?}");
    answers["again:db1"] = json!("db1");
    fs::write(&file, answers.to_string()).unwrap();
    let said = host.run(&again);
    assert_eq!(reconciled(), "db1 db2 0\ndb1 db2 1\n", "{said:?}");
    assert_eq!(host.leader("jobs/x").unwrap().0, "c", "{said:?}");
    assert!(host.ok(["status", "jobs/x", "--json"]).json().get("recovery").is_none());
}
