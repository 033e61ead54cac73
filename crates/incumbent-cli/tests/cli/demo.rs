//! The demonstrations: they check themselves, so that their exit codes say whether everything
//! happened as promised.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::{Signal, kill_process};

use crate::host::{Host, Process, Said, children, eventually, finish};

/// A demonstration with a temporary folder of its own.
fn demo(host: &Host, args: &[&str]) -> Command {
    fs::create_dir(host.path("tmp")).unwrap();
    // Whatever the tests were started with: one that ignores interrupts goes on.
    let mut command = host.by_way_of("env", &["--default-signal"], ["demo"].iter().chain(args));
    command.env("TMPDIR", host.path("tmp")).env_remove("INCUMBENT_STORE");
    command
}

/// Whether a process was started with something in this folder.
fn somebody_uses(folder: &Path) -> bool {
    let folder = folder.as_os_str().as_encoded_bytes();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.into_iter().any(|line| line.windows(folder.len()).any(|part| part == folder))
}

/// Runs to its end, leaves nothing behind, and fits a terminal.
fn run(mut command: Command, host: &Host) -> Said {
    command.stdin(std::process::Stdio::null());
    let said = finish(command);
    assert_eq!(said.code, Some(0), "{}\n{}", said.out, said.err);
    assert_eq!(said.err, "");
    for line in said.out.lines() {
        assert!(line.chars().count() <= 80, "{line}");
        assert!(!line.contains('\x1b'), "colour, and nobody sees it: {line}");
    }
    assert_eq!(fs::read_dir(host.path("tmp")).unwrap().count(), 0, "a folder is left");
    assert!(!somebody_uses(&host.path("tmp")), "a process is left");
    said
}

/// Whether all of this was said, wherever lines were broken.
fn has(said: &Said, words: &[&str]) {
    let text = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in words {
        assert!(text.contains(words), "{words}: {}", said.out);
    }
}

#[test]
fn the_demonstration_keeps_its_promises_and_cleans_up() {
    let host = Host::new();
    let said = finish(demo(&host, &[]));
    assert_eq!(said.code, Some(0), "{said:?}");
    has(
        &said,
        &["is killed", "is stopped", "is refused: token", "transfer", "paused", "a resignation", "All as promised"],
    );
    assert_eq!(fs::read_dir(host.path("tmp")).unwrap().count(), 0);
}

#[test]
fn consensus_never_has_two_leaders_and_shows_every_kind_of_message() {
    let host = Host::new();
    let said = run(demo(&host, &["--algorithm", "consensus"]), &host);
    has(&said, &["eve", " -> ", "pre-vote 1", "pre-voted yes", "vote 1", "voted yes", "(lost)", "heartbeat", " ack"]);
    has(&said, &["is killed", "had been over for", "is started again", "stepped down", "by a majority"]);
    has(&said, &["The network is whole again", "One leader again", "higher than the last", "All as promised"]);
}

#[test]
fn bully_shows_two_leaders_at_once_and_says_so() {
    let host = Host::new();
    let said = run(demo(&host, &["--algorithm", "bully"]), &host);
    has(&said, &["eve", "is killed", "election", "alive", "coordinator", " beat", "gave way"]);
    has(&said, &["two leaders at once", "its rank is the highest", "As expected, two led at once"]);
}

#[test]
fn ring_of_three_shows_two_leaders_at_once_and_says_so() {
    let host = Host::new();
    let said = run(demo(&host, &["--algorithm", "ring", "--members", "3"]), &host);
    has(&said, &["cyd", "is killed", "election 3", "coordinator 3", "gave way", " passed"]);
    has(&said, &["two leaders at once", "its rank is the highest", "As expected, two led at once"]);
    assert!(!said.out.contains("dan"), "there are three");
}

#[test]
fn an_interrupted_demonstration_takes_everything_with_it() {
    let host = Host::new();
    let mut process = Process::start(demo(&host, &["--algorithm", "consensus", "--members", "3"]));
    while !process.line().starts_with("2. ") {}
    assert!(somebody_uses(&host.path("tmp")), "there are members now");
    process.signal(Signal::INT);
    assert_eq!(process.wait(), Some(130));
    assert_eq!(fs::read_dir(host.path("tmp")).unwrap().count(), 0);
    eventually("no process is left", || (!somebody_uses(&host.path("tmp"))).then_some(()));
}

#[test]
fn members_do_not_outlive_a_demonstration_that_was_killed() {
    let host = Host::new();
    let mut process = Process::start(demo(&host, &["--algorithm", "bully", "--members", "3"]));
    while !process.line().starts_with("2. ") {}
    assert!(somebody_uses(&host.path("tmp")), "there are members now");
    process.signal(Signal::KILL);
    assert_eq!(process.wait(), None);
    eventually("no process is left", || (!somebody_uses(&host.path("tmp"))).then_some(()));
}

#[test]
fn a_demonstration_whose_member_dies_by_itself_fails_and_says_so() {
    let host = Host::new();
    let mut process = Process::start(demo(&host, &["--algorithm", "ring", "--members", "3"]));
    while !process.line().starts_with("1. ") {}
    let member = eventually("a member", || children(process.pid()).first().copied());
    kill_process(member, Signal::KILL).unwrap();
    process.until_said("its process has ended by itself");
    assert_eq!(process.wait(), Some(1));
    assert_eq!(fs::read_dir(host.path("tmp")).unwrap().count(), 0);
    eventually("no process is left", || (!somebody_uses(&host.path("tmp"))).then_some(()));
}

#[test]
fn a_group_that_cannot_be_shown_is_a_usage_error() {
    let host = Host::new();
    for args in [
        &["--algorithm", "consensus", "--members", "2"][..],
        &["--algorithm", "consensus", "--members", "6"],
        &["--algorithm", "paxos"],
        &["--members", "3"],
    ] {
        let said = finish(host.command(["demo"].iter().chain(args)));
        assert_eq!(said.code, Some(2), "{said:?}");
    }
}
