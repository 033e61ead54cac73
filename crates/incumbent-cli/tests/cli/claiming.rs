//! `claims`: which processes of this host say that they lead.

use std::fs;
use std::mem::MaybeUninit;

use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::host::{Host, Process, eventually, finish, stop};

/// What this host's processes claim.
fn claims(host: &Host) -> Vec<Value> {
    let said = host.ok(["claims", "--json"]).json();
    assert_eq!((&said["v"], &said["unread"]), (&json!(1), &json!([])), "{said}");
    assert!(said["host"].is_string(), "{said}");
    said["claims"].as_array().unwrap().clone()
}

/// Waits for the claim to this token.
fn until_claimed(host: &Host, token: u64) -> Value {
    eventually(&format!("a claim to token {token}"), || claims(host).into_iter().find(|claim| claim["token"] == token))
}

/// How many claims are on file, drafts included.
fn files(host: &Host) -> usize {
    let entries = fs::read_dir(host.path("incumbent")).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().contains(".claim")).count()
}

fn pid(process: &Process) -> u32 {
    process.pid().as_raw_pid().try_into().unwrap()
}

#[test]
fn those_in_office_claim_it_until_they_give_it_back() {
    let host = Host::new();
    assert!(claims(&host).is_empty());
    let mut leader = host.start(["run", "--name", "a", "jobs/x", "--", "sleep", "1000"]);
    let claim = until_claimed(&host, 1);
    let expected =
        json!({"pid": pid(&leader), "name": "a", "election": "jobs/x", "stopping": false, "suspended": false});
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&claim[key], value, "{key} of {claim}");
    }
    assert!(claim["remaining_ms"].as_u64().is_some_and(|left| left > 0 && left <= 15_000), "{claim}");
    let mut follower = host.start(["campaign", "--name", "b", "jobs/x", "--json"]);
    assert_eq!(follower.json()["event"], "following");
    assert_eq!(claims(&host).len(), 1, "one that follows claims nothing");
    let text = host.ok(["claims"]).out;
    assert!(
        text.starts_with("jobs/x  a  token 1  for another ") && text.contains(&format!("pid {}", pid(&leader))),
        "{text}"
    );

    leader.signal(Signal::TERM);
    assert_eq!(leader.wait(), Some(143));
    assert_eq!(follower.json()["event"], "elected");
    let second = until_claimed(&host, 2);
    assert_eq!((&second["name"], &second["store"]), (&json!("b"), &claim["store"]));
    assert_eq!(claims(&host).len(), 1);
    drop(follower.stdin.take());
    assert_eq!(follower.wait(), Some(0));
    assert_eq!(files(&host), 0);
    let said = host.ok(["claims"]);
    assert!(said.out.is_empty() && said.err.contains("no process of this host says that it leads"), "{said:?}");
}

#[test]
fn a_renewal_makes_a_claim_last_longer() {
    let host = Host::new();
    let _leader = host.start(["run", "--name", "a", "--ttl", "2s", "jobs/x", "--", "sleep", "1000"]);
    let left = |claim: &Value| claim["remaining_ms"].as_u64().unwrap();
    let mut least = left(&until_claimed(&host, 1));
    eventually("a renewal", || {
        let now = left(&until_claimed(&host, 1));
        let renewed = now > least;
        least = now.min(least);
        renewed.then_some(())
    });
}

#[test]
fn what_a_killed_process_left_behind_is_no_claim_and_is_swept_by_the_next() {
    let host = Host::new();
    let mut killed = host.start(["campaign", "--name", "a", "jobs/x", "--json"]);
    assert_eq!(killed.json()["event"], "elected");
    until_claimed(&host, 1);
    killed.signal(Signal::KILL);
    killed.wait();
    assert_eq!((claims(&host).len(), files(&host)), (0, 1));
    let _next = host.start(["campaign", "--name", "b", "jobs/x", "--json"]);
    until_claimed(&host, 2);
    assert_eq!((claims(&host).len(), files(&host)), (1, 1));
}

#[test]
fn a_stopped_process_claims_its_office_until_its_time_is_over() {
    let host = Host::new();
    let mut stopped = host.start(["campaign", "--name", "a", "--ttl", "2s", "jobs/x", "--json"]);
    assert_eq!(stopped.json()["event"], "elected");
    until_claimed(&host, 1);
    stop(stopped.pid());
    assert_eq!(until_claimed(&host, 1)["suspended"], true);
    eventually("the end of its time", || (until_claimed(&host, 1)["remaining_ms"] == 0).then_some(()));
    stopped.signal(Signal::CONT);
}

#[test]
fn a_leader_that_cannot_write_its_claim_leads_all_the_same() {
    let host = Host::new();
    let mut command = host.command(["campaign", "--name", "a", "jobs/x", "--json"]);
    command.env("INCUMBENT_CLAIMS_DIR", host.path("nowhere/claims"));
    let mut leader = Process::start(command);
    assert_eq!(leader.json()["event"], "elected");
    leader.until_ever_said("`incumbent claims` will not show this process");
    drop(leader.stdin.take());
    assert_eq!(leader.wait(), Some(0));
}

/// A service with a directory of its own for temporary files, and one whose /run nobody else sees.
#[test]
fn claims_that_are_kept_elsewhere_are_found_by_their_processes() {
    let host = Host::new();
    for (way, options) in [
        ("env", &[][..]),
        (
            "unshare",
            &[
                "--user",
                "--map-root-user",
                "--mount",
                "/bin/sh",
                "-c",
                r#"mount -t tmpfs none "$FOLDER/run" && exec "$0" "$@""#,
            ],
        ),
    ] {
        fs::create_dir_all(host.path("run")).unwrap();
        // All that lead on this host are listed, those of other tests, too.
        let election = format!("{way}/{}", std::process::id());
        let mut leader = host.by_way_of(way, options, ["campaign", "--name", "a", &election, "--json"]);
        let mut leader = Process::start({
            leader.env_remove("INCUMBENT_CLAIMS_DIR").env("XDG_RUNTIME_DIR", host.path("run"));
            leader
        });
        assert_eq!(leader.json()["event"], "elected");
        let listed = || {
            let mut command = host.command(["claims", "--json"]);
            command.env_remove("INCUMBENT_CLAIMS_DIR").env("XDG_RUNTIME_DIR", host.path("other"));
            let claims = finish(command).json()["claims"].as_array().unwrap().clone();
            claims.into_iter().find(|claim| claim["election"] == election.as_str())
        };
        assert_eq!(eventually("its claim", listed)["url"], host.store(), "{way}");
        drop(leader.stdin.take());
        assert_eq!(leader.wait(), Some(0));
        assert_eq!(listed(), None, "{way}");
    }
}

/// Otherwise each handover would look like two leaders for a moment. The kernel tells the order in
/// which the claim and the entry went.
#[test]
fn a_claim_goes_before_the_office_does() {
    let host = Host::new();
    for verb in [&["run", "jobs", "--", "sleep", "1000"][..], &["campaign", "jobs"]] {
        let mut leader = host.start(verb);
        eventually("its claim", || claims(&host).first().cloned());
        let inotify = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        let gone = WatchFlags::DELETE | WatchFlags::MOVED_FROM;
        let claim = add_watch(&inotify, host.path("incumbent"), WatchFlags::DELETE).unwrap();
        add_watch(&inotify, host.path("store/elections/jobs/line"), gone).unwrap();
        leader.signal(Signal::TERM);
        leader.wait();
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&inotify, &mut buffer);
        let mut went = Vec::new();
        while let Ok(event) = reader.next() {
            // What the guardian leaves behind goes when all is over.
            let is_word = event.file_name().is_some_and(|name| name.to_bytes().ends_with(b".stopped"));
            went.extend((!is_word).then_some(event.wd() == claim));
        }
        let first = went.split_first().map(|(claim, entry)| *claim && !entry.is_empty() && !entry.contains(&true));
        assert_eq!(first, Some(true), "{verb:?}: the claim, and then the entry: {went:?}");
    }
}
