//! Health checks of `run`: what is said, and who leads.

use std::fs;

use incumbent_testkit::free_port;
use rustix::process::Signal;

use crate::host::{Host, Process, Spoken, eventually};

/// Checks often, and is patient with a busy machine.
const OFTEN: [&str; 6] = ["--health-interval", "20ms", "--health-timeout", "60s", "--health-well-for", "20ms"];

/// A check that exits with the code in a file, and says why.
const CODE: &str = "echo as told; exit $(cat $FOLDER/code)";

fn start_checked(host: &Host, name: &str, more: &[&str]) -> Process {
    host.start_lonely(name, &[&OFTEN, more].concat())
}

fn tell(host: &Host, code: &str) {
    fs::write(host.path("new"), code).unwrap();
    fs::rename(host.path("new"), host.path("code")).unwrap();
}

#[test]
fn an_unfit_leader_is_replaced_and_gets_back_in_line() {
    let host = Host::new();
    tell(&host, "0");
    let ready = host.path("ready");
    let mut first = start_checked(&host, "a", &["--health-cmd", CODE, "--ready-file", ready.to_str().unwrap()]);
    host.until_logged("start 1 a");
    let _second = host.start_lonely("b", &[]);
    host.until_in_line("jobs/x", &["a", "b"]);

    tell(&host, "2");
    let said = first.until_said("a is unfit: ");
    assert!(said.contains("a is unfit: echo: as told") && !said.contains("FOLDER"), "{said}");
    // What the check found and what follows from it are said by two threads, in any order.
    first.until_ever_said("stopping the command: the candidate is unhealthy");
    host.until_logged("start 2 b");
    first.until_ever_said("a is unfit and not in line");
    assert_eq!(host.line("jobs/x"), ["b"]);
    eventually("the ready file", || (fs::read_to_string(&ready).ok()? == "unfit\n").then_some(()));

    tell(&host, "0");
    first.until_said("a is fit again");
    host.until_in_line("jobs/x", &["b", "a"]);
    eventually("the ready file", || (fs::read_to_string(&ready).ok()? == "following\n").then_some(()));
    assert_eq!(host.log().iter().filter(|line| line.starts_with("overlap")).count(), 0);
}

#[test]
fn one_that_is_unfit_from_the_start_is_never_in_line() {
    let host = Host::new();
    tell(&host, "3");
    let said = host.run(["run", "--try", "--name", "a", "--health-cmd", CODE, "jobs/x", "--", "echo", "ran"]);
    assert_eq!((said.code, said.out.as_str()), (Some(122), ""), "{said:?}");
    assert!(said.err.contains("a was not elected: it is unfit: ") && said.err.contains("as told"), "{said:?}");
    let mut waits = start_checked(&host, "a", &["--health-cmd", CODE]);
    waits.until_said("a is unfit and not in line");
    assert_eq!(host.line("jobs/x"), [""; 0]);
    tell(&host, "0");
    host.until_logged("start 1 a");
    waits.signal(Signal::TERM);
    waits.wait();
}

#[test]
fn a_full_disk_costs_the_office_until_there_is_space_again() {
    let host = Host::new();
    let disk = host.path("disk");
    fs::create_dir(&disk).unwrap();
    // A small file system that only this process sees. The command fills it, and frees it when it
    // is stopped.
    let script = r#"mount -t tmpfs -o size=4m small "$FOLDER/disk" && exec "$0" "$@""#;
    let line = r#"trap 'rm "$FOLDER/disk/fill"; exit 0' TERM
        echo leads $INCUMBENT_TOKEN; head -c 3500K /dev/zero >"$FOLDER/disk/fill"; sleep 1000 & wait"#;
    let limit = format!("{}=1M,2M", disk.display());
    let args = ["run", "--name", "a", "--ttl", "10m", "--min-disk", &limit].into_iter().chain(OFTEN);
    let args = args.chain(["jobs/x", "--shell", "--", line]);
    let options = ["--user", "--map-root-user", "--mount", "/bin/sh", "-c", script];
    let mut run = Process::start(host.by_way_of("unshare", &options, args));
    assert_eq!(run.line(), "leads 1");
    let said = run.until_ever_said("a is unfit: ");
    assert!(said.contains("KiB free, 1 MiB wanted"), "{said}");
    assert_eq!(run.line(), "leads 2");
    run.until_ever_said("a is fit again");
    run.signal(Signal::TERM);
    run.wait();
}

#[test]
fn a_check_that_does_not_end_is_killed_and_costs_the_office() {
    let host = Host::new();
    let line = "test ! -e $FOLDER/hang || exec sleep 1000";
    let args = ["--health-interval", "20ms", "--health-timeout", "5s", "--health-cmd", line];
    let mut first = host.start_lonely("a", &args);
    host.until_logged("start 1 a");
    let _second = host.start_lonely("b", &[]);
    host.until_in_line("jobs/x", &["a", "b"]);
    fs::write(host.path("hang"), "").unwrap();
    let said = first.until_said("a is unfit: ");
    assert!(said.contains("not done within 5s, and killed") || said.contains("no answer for"), "{said}");
    host.until_logged("start 2 b");
}

#[test]
fn an_unwell_leader_hands_over_to_one_that_is_fit_and_stays_where_there_is_none() {
    let host = Host::new();
    tell(&host, "1");
    // It waits that long for others that may share the cause.
    let checks = ["--health-interval", "20ms", "--health-timeout", "10s", "--health-cmd", CODE];
    let mut first = host.start_lonely("a", &checks);
    host.until_logged("start 1 a");
    first.until_ever_said("unwell, and in office all the same: nobody else in line is fit");
    let shown = |args: &[&str]| host.run(args.iter().copied()).out;
    let status = shown(&["status", "jobs/x"]);
    assert!(status.contains("a (token 1, unwell)") && status.contains("nobody in line can take over"), "{status}");
    assert!(shown(&["status", "jobs/x", "--json"]).contains(r#""unwell":true"#));
    assert!(shown(&["candidates", "jobs/x"]).contains("  unwell"));
    let checked = host.run(["check", "jobs/x", "--followers", "0"]);
    assert_eq!(checked.code, Some(1), "{checked:?}");
    assert!(
        checked.out.contains("WARNING")
            && checked.out.contains("; the leader is unwell; docs/runbooks.md#the-leader-is-unwell |"),
        "{checked:?}"
    );

    let _second = host.start_lonely("b", &[]);
    first.until_ever_said("stopping the command: the leader was unwell, and handed over");
    host.until_logged("start 2 b");
    host.until_in_line("jobs/x", &["b", "a"]);
    let status = shown(&["status", "jobs/x"]);
    assert!(status.contains("b (token 2)") && status.contains(" unwell\n"), "{status}");
    assert_eq!(host.log().iter().filter(|line| line.starts_with("overlap")).count(), 0);
}

#[test]
fn probes_say_unwell_and_move_nothing_where_nobody_else_is() {
    let host = Host::new();
    // Nobody else gets it while it is closed.
    let listener = std::net::TcpListener::bind(("127.0.0.1", free_port())).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut run = start_checked(&host, "a", &["--health-tcp", &address]);
    host.until_logged("start 1 a");
    drop(listener);
    let said = run.until_said("a is unwell: ");
    assert!(said.contains(&format!("TCP {address}: Connection refused")), "{said}");
    let listener = std::net::TcpListener::bind(&address).unwrap();
    run.until_said("a is fit again");
    drop(listener);
    assert_eq!(host.log(), ["start 1 a"], "one term, all the while");
    assert!(!run.everything().iter().any(|spoken| matches!(spoken, Spoken::Err(line) if line.contains("unfit"))));
}

#[test]
fn what_cannot_be_checked_is_refused_with_the_way_out() {
    let host = Host::new();
    for (args, words) in [
        (["--health-http", "https://a/"], "curl -fsS"),
        (["--health-tcp", "db"], "HOST:PORT"),
        (["--min-memory", "lots"], "512M"),
        (["--min-disk", "/var=2G,1G"], "the smaller one"),
        (["--max-write-time", "/var"], "15s"),
    ] {
        let said = host.run(["run", "jobs/x"].into_iter().chain(args).chain(["--", "true"]));
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.err.contains(words), "{said:?}");
    }
}

#[test]
fn a_leader_that_is_kept_in_office_though_it_is_unfit_is_seen_to_be_unwell() {
    let host = Host::new();
    tell(&host, "0");
    // It has read that before it is in office.
    host.ok(["freeze", "jobs/x", "--reason", "firmware"]);
    let _leader = start_checked(&host, "a", &["--health-cmd", CODE]);
    host.until_logged("start 1 a");
    assert_eq!(host.run(["check", "jobs/x", "--followers", "0"]).code, Some(0));
    tell(&host, "2");
    eventually("it is seen", || host.run(["status", "jobs/x"]).out.contains("a (token 1, unwell)").then_some(()));
    assert_eq!(host.run(["check", "jobs/x", "--followers", "0"]).code, Some(1));
    assert_eq!(host.log(), ["start 1 a"], "it goes on");
}

#[test]
fn a_priority_is_shown_and_refused_where_nobody_stands_in_line() {
    let host = Host::new();
    let _first = host.start_lonely("a", &["--priority", "0"]);
    host.until_logged("start 1 a");
    let _second = host.start_lonely("b", &["--priority", "7"]);
    let _third = host.start_lonely("c", &["--priority", "-2"]);
    eventually("everybody in line", || (host.line("jobs/x").len() == 3).then_some(()));
    let shown = |args: &[&str]| host.run(args.iter().copied()).out;
    let candidates = shown(&["candidates", "jobs/x"]);
    assert!(candidates.contains("  priority 7") && candidates.contains("  priority -2"), "{candidates}");
    assert_eq!(candidates.matches("priority").count(), 2, "{candidates}");
    assert!(shown(&["candidates", "jobs/x", "--json"]).contains(r#""priority":7"#));
    let status = shown(&["status", "jobs/x"]);
    assert!(status.contains("a (token 1)") && status.contains(" priority 7"), "a leads on: {status}");

    for (store, why) in [("bully://?members=3", "rank of a member"), ("consensus://?members=3", "majority")] {
        let said = host.run(["--store", store, "run", "--priority", "1", "jobs/x", "--", "true"]);
        assert!(said.code == Some(125) && said.err.contains("priority") && said.err.contains(why), "{said:?}");
    }
}

#[test]
fn what_is_said_of_checks_needs_one_and_an_empty_one_is_refused() {
    let host = Host::new();
    for option in ["--health-interval", "--health-timeout", "--health-well-for"] {
        let said = host.run(["run", option, "1s", "jobs/x", "--", "true"]);
        assert!(said.code == Some(2) && said.err.contains(option) && said.err.contains("--health-cmd"), "{said:?}");
    }
    let said = host.run(["run", "--health-cmd", "", "jobs/x", "--", "true"]);
    assert!(said.code == Some(2) && said.err.contains("--health-cmd"), "{said:?}");
}
