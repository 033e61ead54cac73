//! Situations that look odd and are well: the doctor looks again and again while they go on, and
//! finds nothing. Some rounds of each; `DOCTOR_ROUNDS` says how many, and `make healthy` asks for a
//! hundred.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::host::{Host, Process, Said, eventually, finish, stop};

fn rounds() -> usize {
    std::env::var("DOCTOR_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(3)
}

/// Nothing was found but what is said for the record. Who leads may have changed too often to ask.
fn assert_well(said: &Said) {
    let lines: Vec<Value> = said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (summary, findings) = lines.split_last().unwrap_or_else(|| panic!("{said:?}"));
    assert!(findings.iter().all(|finding| finding["severity"] == "info"), "{said:?}");
    assert!(summary["exit"] == 0 || summary["exit"] == 4, "{said:?}");
}

fn is_well(host: &Host, store: &str) {
    // Everybody is a process of this host.
    let everybody = format!("{} claims --json", env!("CARGO_BIN_EXE_incumbent"));
    assert_well(&host.run(["--store", store, "doctor", "jobs/x", "--json", "--claims", &everybody]));
}

fn follow(host: &Host, store: &str, name: &str) -> Process {
    let args = ["--store", store, "run", "--record", "--ttl", "10m", "--name", name, "jobs/x", "--", "sleep", "1000"];
    let process = host.start(args);
    eventually("its place in line", || {
        let line = host.run(["--store", store, "candidates", "jobs/x", "--json"]).json();
        line["candidates"].as_array().unwrap().iter().any(|one| one["name"] == name).then_some(())
    });
    process
}

/// Looks while this goes on, round after round.
fn while_it_goes_on(host: &Host, store: &str, mut step: impl FnMut() + Send) {
    let (over, steps) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        // Also where a round fails: the scope waits for what goes on.
        let _over = AtEnd(&over);
        let going = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                step();
                steps.fetch_add(1, Ordering::Relaxed);
            }
        });
        for _ in 0..rounds() {
            // Each round sees at least one more.
            let before = steps.load(Ordering::Relaxed);
            is_well(host, store);
            eventually("a step", || (steps.load(Ordering::Relaxed) > before || going.is_finished()).then_some(()));
        }
    });
}

/// Sets it when it is dropped.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn transfers_back_and_forth_as_fast_as_they_go() {
    let host = Host::new();
    let _both = ["a", "b"].map(|name| follow(&host, &host.store(), name));
    while_it_goes_on(&host, &host.store(), || {
        let heir = if host.leader("jobs/x").is_some_and(|(leader, _)| leader == "a") { "b" } else { "a" };
        host.ok(["transfer", "jobs/x", "--to", heir]);
    });
}

#[test]
fn a_rolling_restart() {
    let host = Host::new();
    let mut line = ["a", "b"].map(|name| (name, follow(&host, &host.store(), name)));
    while_it_goes_on(&host, &host.store(), || {
        for (name, process) in &mut line {
            process.signal(Signal::TERM);
            process.wait();
            *process = follow(&host, &host.store(), name);
        }
    });
}

#[test]
fn a_leader_that_was_stopped_for_half_its_time() {
    const TTL: u64 = 12_000;
    let host = Host::new();
    // Where the machine stood still for long, nobody leads for a moment.
    let silent = || host.run(["status", "jobs/x", "--json"]).json()["silent_ms"].as_u64().unwrap_or(TTL);
    let mut seen = 0;
    for _ in 0..20 * rounds() {
        if seen == rounds() {
            return;
        }
        // Another one each time: one that is stopped again and again renews late, which is found.
        let mut leader = host.start(["run", "--ttl", "12s", "--name", "a", "jobs/x", "--", "sleep", "1000"]);
        // A thread of its own writes the claim: one that is stopped before has work, and no claim.
        let claims = || host.ok(["claims", "--json"]).json()["claims"].as_array().map_or(0, Vec::len);
        eventually("a claim", || (claims() == 1).then_some(()));
        eventually("a renewal", || (silent() < TTL / 6).then_some(()));
        stop(leader.pid());
        eventually("half its time", || (silent() >= TTL / 2).then_some(()));
        while seen < rounds() && silent() < TTL * 4 / 6 {
            let said = host.run(["doctor", "jobs/x", "--json"]);
            // Where the machine stood still meanwhile, it was stopped for longer than that.
            if silent() < TTL * 5 / 6 {
                assert_well(&said);
                seen += 1;
            }
        }
        leader.signal(Signal::CONT);
        leader.signal(Signal::TERM);
        leader.wait();
    }
    panic!("seen only {seen} times: the machine is too slow for this");
}

#[test]
fn a_reader_whose_wall_clock_is_an_hour_off() {
    let host = Host::new();
    let _leader = follow(&host, &host.store(), "a");
    host.ok(["freeze", "jobs/x", "--reason", "new switch"]);
    let clock = incumbent_testkit::servers::WallClock::new();
    for round in 0..rounds() {
        clock.set(if round % 2 == 0 { 3600 } else { -3600 });
        let mut doctor = host.command(["doctor", "jobs/x", "--json"]);
        doctor.envs(clock.environment().iter().filter_map(|variable| variable.split_once('=')));
        assert_well(&finish(doctor));
    }
}

#[test]
fn a_pause_with_a_reason_and_a_first_start() {
    let host = Host::new();
    for _ in 0..rounds() {
        is_well(&host, &host.store());
    }
    let _leader = follow(&host, &host.store(), "a");
    host.ok(["pause", "jobs/x", "--reason", "new disk"]);
    for _ in 0..rounds() {
        is_well(&host, &host.store());
    }
    for _ in 0..rounds() {
        // Another one each time: nobody has ever stood there.
        let empty = Host::new();
        let said = empty.run(["doctor", "jobs/x", "--json"]);
        assert_well(&said);
        assert_eq!(said.code, Some(0), "{said:?}");
    }
}

#[cfg(feature = "etcd")]
mod on_etcd {
    use std::io::Write;
    use std::process::Stdio;

    use incumbent_testkit::servers::EtcdCluster;

    use super::*;

    #[tokio::test]
    async fn an_etcd_whose_leader_moves() {
        let cluster = EtcdCluster::start(3).await;
        let (host, url) = (Host::new(), cluster.url());
        let _leader = follow(&host, &url, "a");
        let members: Value = serde_json::from_str(&cluster.ctl(&["member", "list", "-w", "json"])).unwrap();
        let members: Vec<u64> =
            members["members"].as_array().unwrap().iter().map(|member| member["ID"].as_u64().unwrap()).collect();
        let (mut next, mut moved) = (members.iter().cycle(), 0);
        while_it_goes_on(&host, &url, || {
            let to = format!("{:x}", next.next().unwrap());
            // Only its leader can be asked to move it, and this one may be it already.
            moved += usize::from(cluster.etcdctl().args(["move-leader", &to]).output().unwrap().status.success());
        });
        assert!(moved > 0);
    }

    #[tokio::test]
    async fn a_leader_of_another_library_and_a_line_of_a_thousand() {
        let cluster = EtcdCluster::start(1).await;
        let (host, url) = (Host::new(), cluster.url());
        let mut etcdctl = cluster.etcdctl();
        etcdctl.args(["elect", "jobs/x", "theirs"]);
        let mut theirs = Process::start(etcdctl);
        let leads = || host.run(["--store", &url, "status", "--json", "jobs/x"]).json()["leader"]["value"].clone();
        eventually("etcdctl leads", || (leads() == json!("theirs")).then_some(()));
        for _ in 0..rounds() {
            is_well(&host, &url);
        }
        theirs.signal(Signal::INT);
        theirs.wait();

        let _leader = follow(&host, &url, "a");
        eventually("a leads", || (leads() == json!("")).then_some(()));
        let granted = cluster.ctl(&["lease", "grant", "3600"]);
        let lease = granted.split(' ').nth(1).unwrap();
        for hundred in 0..10 {
            let mut txn = cluster.etcdctl();
            let mut txn = txn.arg("txn").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
            let puts: String =
                (0..100).map(|number| format!("put jobs/x/{hundred}x{number} x --lease={lease}\n")).collect();
            txn.stdin.take().unwrap().write_all(format!("\n{puts}\n\n").as_bytes()).unwrap();
            assert!(txn.wait().unwrap().success());
        }
        let line = host.ok(["--store", &url, "candidates", "jobs/x", "--json"]).json();
        assert_eq!(line["candidates"].as_array().unwrap().len(), 1001);
        for _ in 0..rounds() {
            is_well(&host, &url);
        }
    }
}
