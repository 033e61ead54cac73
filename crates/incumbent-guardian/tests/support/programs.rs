//! The programs of a scenario: a supervisor, as `incumbent run` is one, and commands with every bad
//! habit.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio, exit};
use std::thread;
use std::time::Duration;

use incumbent_core::Timestamp;
use incumbent_guardian::{CommandSpec, Event, Guardian, OrderError};
use nix::sys::signal::SigSet;
use rustix::time::{ClockId, clock_gettime};
use tokio::signal::unix::{SignalKind, signal};

/// Does not return if this process was started to be one of these programs.
pub(crate) fn run_role() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["supervise", rest @ ..] => supervise(rest),
        ["session", terminal, rest @ ..] => {
            lead_session(terminal);
            supervise(rest)
        }
        ["session-shell", terminal, rest @ ..] => be_a_shell(terminal, rest),
        ["nasty", kind, tag] => misbehave(kind, tag),
        _ => {}
    }
}

/// Becomes the leader of a session with this controlling terminal.
fn lead_session(terminal: &str) {
    rustix::process::setsid().unwrap();
    // The first terminal that a session's leader opens becomes the session's.
    let terminal = File::options().read(true).write(true).open(terminal).unwrap();
    rustix::stdio::dup2_stdin(&terminal).unwrap();
}

/// A shell that starts a supervisor in the background, and brings it to the foreground at SIGUSR1.
/// Such a job is told nothing.
fn be_a_shell(terminal: &str, rest: &[&str]) -> ! {
    lead_session(terminal);
    let mut job = Command::new(std::env::current_exe().unwrap());
    let mut job = job.arg("supervise").args(rest).process_group(0).spawn().unwrap();
    let mut asked = SigSet::empty();
    asked.add(nix::sys::signal::Signal::SIGUSR1);
    asked.thread_block().unwrap();
    asked.wait().unwrap();
    rustix::termios::tcsetpgrp(rustix::stdio::stdin(), rustix::process::Pid::from_child(&job)).unwrap();
    exit(job.wait().unwrap().code().unwrap())
}

fn after(duration: Duration) -> Timestamp {
    let now = clock_gettime(ClockId::Boottime);
    Timestamp::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64) + duration
}

/// Words, then `--`, then the command: `ttl=MS`, `renew`, `grace=MS`, `cwd=DIR`, `runs=N`,
/// `lock=FILE`, `word=FILE`, `quiet`, `drop`,
/// `office`.
fn supervise(args: &[&str]) -> ! {
    let split = args.iter().position(|arg| *arg == "--").unwrap();
    let (words, command) = (&args[..split], &args[split + 1..]);
    let value = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let millis = |name: &str, default| Duration::from_millis(value(name).map_or(default, |ms| ms.parse().unwrap()));
    let (ttl, grace) = (millis("ttl", 600_000), millis("grace", 600_000));
    let mut spec = CommandSpec::new(command.iter().copied()).leftover_grace(grace).env("INCUMBENT_TOKEN", "17");
    if let Some(cwd) = value("cwd") {
        spec = spec.cwd(cwd);
    }
    if words.contains(&"quiet") {
        spec = spec.quiet();
    }
    // Dropped after the supervisor below, as a session is.
    let _office = words.contains(&"office").then(|| Office);
    let guardian = Guardian::start().unwrap();
    println!("guardian {}", guardian.pid());
    let lock = value("lock").map(|path| File::create(path).unwrap());
    if let Some(lock) = &lock {
        rustix::fs::flock(lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
        guardian.hold(lock.as_fd()).unwrap();
    }
    if let Some(path) = value("word") {
        guardian.sign_off(File::create(path).unwrap().as_fd()).unwrap();
    }
    let mut supervisor = Supervisor {
        guardian,
        spec,
        ttl,
        grace,
        renew: words.contains(&"renew"),
        runs: value("runs").map_or(1, |runs| runs.parse().unwrap()),
        code: 0,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    if words.contains(&"drop") {
        supervisor.guardian.spawn(&supervisor.spec, after(ttl)).unwrap();
        println!("{:?}", runtime.block_on(supervisor.guardian.event()).unwrap());
        std::io::stdin().read_line(&mut String::new()).unwrap();
        drop(supervisor);
        println!("dropped");
        std::io::stdin().read_line(&mut String::new()).unwrap();
        exit(0);
    }
    exit(runtime.block_on(supervisor.run()))
}

/// Gives up what it stands for as soon as it is dropped: a session that closes itself.
struct Office;

impl Drop for Office {
    fn drop(&mut self) {
        println!("released");
    }
}

struct Supervisor {
    guardian: Guardian,
    spec: CommandSpec,
    ttl: Duration,
    grace: Duration,
    renew: bool,
    runs: u32,
    code: i32,
}

impl Supervisor {
    /// What `incumbent run` does while it is in office. SIGUSR2 stands for its loss, SIGHUP for a
    /// mistake in it.
    async fn run(&mut self) -> i32 {
        let mut stop = [SignalKind::terminate(), SignalKind::interrupt()].map(|kind| signal(kind).unwrap());
        let mut user = signal(SignalKind::user_defined1()).unwrap();
        let mut lose = signal(SignalKind::user_defined2()).unwrap();
        let mut mistake = signal(SignalKind::hangup()).unwrap();
        let mut renewal = tokio::time::interval((self.ttl / 3).max(Duration::from_millis(1)));
        let mut stops = 0;
        self.spawn();
        loop {
            let [terminate, interrupt] = &mut stop;
            tokio::select! {
                event = self.guardian.event() => {
                    if let Some(code) = self.on_event(event) {
                        return code;
                    }
                }
                _ = renewal.tick(), if self.renew => drop(self.guardian.set_deadline(after(self.ttl))),
                _ = terminate.recv() => self.stop(&mut stops),
                _ = interrupt.recv() => self.stop(&mut stops),
                _ = lose.recv() => {
                    self.renew = false;
                    self.guardian.set_deadline(after(Duration::ZERO)).unwrap();
                }
                _ = mistake.recv() => panic!("a test wanted a panic in the supervisor"),
                // A guardian that has died says so in an event.
                _ = user.recv() => drop(self.guardian.signal(SignalKind::user_defined1().as_raw_value())),
            }
        }
    }

    fn spawn(&mut self) {
        self.runs -= 1;
        self.guardian.spawn(&self.spec, after(self.ttl)).unwrap();
        assert!(matches!(self.guardian.spawn(&self.spec, after(self.ttl)), Err(OrderError::Busy)));
    }

    fn stop(&mut self, stops: &mut u32) {
        *stops += 1;
        let told = if *stops == 1 { self.guardian.terminate(self.grace) } else { self.guardian.kill() };
        told.unwrap();
    }

    fn on_event(&mut self, event: Option<Event>) -> Option<i32> {
        match event {
            Some(Event::Started { pid }) => println!("started {pid}"),
            Some(Event::NotStarted(reason)) => {
                self.code = reason.code();
                println!("not started: {reason}");
            }
            Some(Event::CommandExited(exit)) => {
                self.code = exit.code();
                println!("exited {}", exit.code());
            }
            Some(Event::GuardianDied) => {
                self.code = 70;
                self.runs = 0;
                println!("guardian died");
            }
            Some(Event::Empty) => {
                let ours = nix::unistd::tcgetpgrp(std::io::stdin()) == Ok(nix::unistd::getpgrp());
                println!("{}", if ours { "empty, and the terminal is ours" } else { "empty" });
                if self.runs == 0 {
                    return Some(self.code);
                }
                self.spawn();
            }
            Some(Event::LeftBehind { .. }) => {}
            Some(_) | None => return Some(71),
        }
        None
    }
}

/// Commands with bad habits. The tag is how a test finds them.
#[allow(clippy::zombie_processes, reason = "one of the bad habits")]
fn misbehave(kind: &str, tag: &str) -> ! {
    let start = |kind: &str| {
        Command::new("/proc/self/exe").args(["nasty", kind, tag]).stdin(Stdio::null()).spawn().unwrap();
    };
    match kind {
        "idle" => {}
        // SIGTERM means nothing to it.
        "deaf" => SigSet::all().thread_block().unwrap(),
        // It may be the last one that has heard of its ancestors.
        "closed" => close_all(),
        "parent" => {
            ["idle", "deaf", "closed"].into_iter().for_each(start);
            // Not before: a mask is inherited.
            SigSet::all().thread_block().unwrap();
        }
        // The second of two forks: a new session, then a grandchild, and away.
        "fork" => {
            rustix::process::setsid().unwrap();
            start("deaf");
            start("closed");
            exit(0);
        }
        "daemon" => fork_twice(tag),
        // All of it at once.
        "horde" => {
            start("parent");
            start("daemon");
            SigSet::all().thread_block().unwrap();
            close_all();
        }
        // Ends, and leaves a daemon behind.
        "leaver" => {
            fork_twice(tag);
            exit(7);
        }
        // Each lives just long enough to start the next.
        "rabbit" => {
            SigSet::all().thread_block().unwrap();
            start("rabbit");
            exit(0);
        }
        other => panic!("no such part: {other}"),
    }
    // Its habits are settled: an audience that looks for it may begin.
    rustix::thread::set_name(c"ready").unwrap();
    loop {
        thread::park();
    }
}

fn fork_twice(tag: &str) {
    assert!(Command::new("/proc/self/exe").args(["nasty", "fork", tag]).status().unwrap().success());
}

fn close_all() {
    for descriptor in 0..1024 {
        // Most are not open.
        let _ = nix::unistd::close(descriptor);
    }
}
