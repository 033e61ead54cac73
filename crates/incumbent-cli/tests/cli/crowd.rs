//! A hundred processes on one election, killed, stopped and resumed at random.
//!
//! Some are `incumbent run` with a command that shows whether it is alone; the others are the
//! workers of the demonstration, which write to a ledger behind a fence. The seed is printed:
//! `CROWD_SEED` runs the same choices again.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use crate::host::{Host, LONELY, Process, children, eventually};

const ELECTION: &str = "demo";
const RUNS: usize = 60;
const WORKERS: usize = 40;
const STORM: Duration = Duration::from_secs(60);
/// Between two acts.
const BETWEEN: Duration = Duration::from_millis(60);
/// Nobody is stopped for longer: it is more than twice the TTL.
const LONGEST_STOP_MS: u64 = 5_000;

/// One of the hundred.
struct Member {
    name: String,
    process: Process,
    is_run: bool,
    /// When it goes on.
    stopped_until: Option<Instant>,
    /// When its guardian was killed: it needs a moment to stop the command and to start another
    /// one.
    guardian_killed: Option<Instant>,
}

struct Crowd<'a> {
    host: &'a Host,
    members: Vec<Member>,
    next: usize,
    random: u64,
}

impl Crowd<'_> {
    fn random(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % below as u64) as usize
    }

    fn member(&mut self, is_run: bool) -> Member {
        self.next += 1;
        let name = format!("{}-{}", if is_run { "run" } else { "worker" }, self.next);
        let process = if is_run {
            self.host.start(["run", "--ttl", "2s", "--name", &name, ELECTION, "--shell", "--", LONELY])
        } else {
            let folder = self.host.path("");
            self.host.start(["__demo-worker", &name, folder.to_str().unwrap()])
        };
        Member { name, process, is_run, stopped_until: None, guardian_killed: None }
    }

    fn replace(&mut self, at: usize) {
        let is_run = self.members[at].is_run;
        let fresh = self.member(is_run);
        // The old one is killed with this, if it is not dead yet.
        self.members[at] = fresh;
    }

    /// The leader in one case of three, else anybody.
    fn pick(&mut self) -> usize {
        if self.random(3) == 0
            && let Some((leader, _)) = self.host.leader(ELECTION)
            && let Some(at) = self.members.iter().position(|member| member.name == leader)
        {
            return at;
        }
        let count = self.members.len();
        self.random(count)
    }

    fn act(&mut self) {
        let at = self.pick();
        // Killing or stopping both at the same moment is beyond what anybody can promise.
        if self.members[at].guardian_killed.is_some_and(|killed| killed.elapsed() < Duration::from_secs(5)) {
            return;
        }
        let stopped = self.members[at].stopped_until.is_some();
        match self.random(10) {
            0..3 => {
                self.members[at].process.signal(Signal::KILL);
                self.replace(at);
            }
            3..7 if !stopped => {
                let ms = self.random(LONGEST_STOP_MS as usize) as u64;
                self.members[at].process.signal(Signal::STOP);
                self.members[at].stopped_until = Some(Instant::now() + Duration::from_millis(ms));
            }
            7..9 if !stopped && self.members[at].is_run => self.kill_guardian(at),
            9 if !stopped => {
                self.members[at].process.signal(Signal::TERM);
                self.members[at].process.wait();
                self.replace(at);
            }
            _ => {}
        }
    }

    fn kill_guardian(&mut self, at: usize) {
        let member = &mut self.members[at];
        if let [guardian] = children(member.process.pid())[..] {
            // It may be gone already.
            let _ = kill_process(guardian, Signal::KILL);
            member.guardian_killed = Some(Instant::now());
        }
    }

    /// Those whose time has come go on.
    fn look_after(&mut self) {
        for member in &mut self.members {
            if member.stopped_until.take_if(|until| *until <= Instant::now()).is_some() {
                member.process.signal(Signal::CONT);
            }
        }
    }

    fn resume_all(&mut self) {
        for member in &mut self.members {
            if member.stopped_until.take().is_some() {
                member.process.signal(Signal::CONT);
            }
        }
    }
}

fn seed() -> u64 {
    let given = std::env::var("CROWD_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64
    }) | 1
}

/// Commands that were started, by token, in the order in which they were.
fn started(log: &[String]) -> Vec<u64> {
    let starts = log.iter().filter(|line| line.starts_with("start "));
    starts.map(|line| line.split(' ').nth(1).unwrap().parse().unwrap()).collect()
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else {
                found.push(entry.path());
            }
        }
    }
    found
}

#[test]
fn a_hundred_processes_in_a_storm_never_have_two_commands_and_always_a_leader_again() {
    let host = Host::new();
    let random = seed();
    println!("CROWD_SEED={random}");
    let mut crowd = Crowd { host: &host, members: Vec::new(), next: 0, random };
    for number in 0..RUNS + WORKERS {
        let member = crowd.member(number < RUNS);
        crowd.members.push(member);
    }
    let until = Instant::now() + STORM;
    let mut acts = 0;
    while Instant::now() < until {
        crowd.act();
        crowd.look_after();
        acts += 1;
        std::thread::sleep(BETWEEN);
    }
    crowd.resume_all();

    // Both kinds lead again: each leader is killed until both have been seen to lead.
    let before = started(&host.log()).last().copied().unwrap_or(0);
    let mut kinds = BTreeMap::new();
    eventually("leaders of both kinds", || {
        let (leader, token) = host.leader(ELECTION)?;
        let at = crowd.members.iter().position(|member| member.name == leader)?;
        let is_run = crowd.members[at].is_run;
        let works = if is_run {
            host.log().contains(&format!("start {token} {leader}"))
        } else {
            ledger(&host).iter().any(|(written, name)| *written == token && *name == leader)
        };
        if works && token > before {
            kinds.insert(is_run, token);
        }
        if works {
            crowd.members[at].process.signal(Signal::KILL);
            crowd.members.remove(at);
        }
        (kinds.len() == 2).then_some(())
    });

    // The workers first: they are killed and leave something behind, which those who leave sweep
    // up. In the record it is the next leader who does: one that is asked to take the office while
    // it leaves itself leaves the question there. So the last one leads before it leaves.
    for member in crowd.members.extract_if(.., |member| !member.is_run) {
        drop(member);
    }
    let mut last = crowd.members.pop().unwrap();
    for member in &crowd.members {
        member.process.signal(Signal::TERM);
    }
    for member in &mut crowd.members {
        member.process.wait();
    }
    eventually("the last one to lead", || {
        let (leader, token) = host.leader(ELECTION)?;
        host.log().contains(&format!("start {token} {}", last.name)).then_some(())?;
        (leader == last.name).then_some(())
    });
    last.process.signal(Signal::TERM);
    last.process.wait();

    let log = host.log();
    let tokens = started(&log);
    println!("{acts} acts, {} commands, {} entries in the ledger", tokens.len(), ledger(&host).len());
    assert!(!log.iter().any(|line| line.starts_with("overlap")), "two commands at once: {log:#?}");
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "tokens do not grow: {tokens:?}");
    assert!(tokens.len() > 10, "too few commands for a test: {tokens:?}");
    let written = ledger(&host);
    assert!(written.is_sorted_by_key(|(token, _)| *token), "the fence let an older token through: {written:?}");
    for kind in ["sessions", "evictions", "elections", "trash"] {
        let left = files_below(&host.path("store").join(kind));
        let said =
            left.iter().map(|path| (path, fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())));
        assert!(left.is_empty(), "left in the directory: {:#?}", said.collect::<Vec<_>>());
    }
}

fn ledger(host: &Host) -> Vec<(u64, String)> {
    let ledger = fs::read_to_string(host.path("ledger")).unwrap_or_default();
    let entries = ledger.lines().map(|line| line.split_once(' ').unwrap());
    entries.map(|(token, name)| (token.parse().unwrap(), name.to_owned())).collect()
}
