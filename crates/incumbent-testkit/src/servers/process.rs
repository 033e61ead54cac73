//! A server's process and its folder. Both go when their handle goes, and also when the test is
//! killed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use crate::TempDir;
use crate::patience::{LOOK_EVERY, PATIENCE, found};

/// Starts its arguments and reports their pid. When its standard input ends, the test that holds
/// the other end is gone, or wants them gone. Reaping comes last, so that the pid cannot become
/// another process's before.
const KEEPER: &str = r#"log=$1; shift
"$@" </dev/null >>"$log" 2>&1 &
echo $!
read -r _
kill -9 $!
wait $!
"#;

/// A server that runs until this is dropped.
#[derive(Debug)]
pub struct Process {
    keeper: Child,
    leash: Option<ChildStdin>,
    pid: Pid,
}

impl Process {
    /// Starts a program; what it says goes to the end of `log`.
    pub fn start(program: &str, args: &[String], log: &Path) -> Process {
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper"])
            .arg(log)
            .arg(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A shell reports what it has killed.
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        let leash = keeper.stdin.take();
        let mut pid = String::new();
        let stdout = keeper.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut pid).expect("the pid of the server");
        let pid = pid.trim().parse().ok().and_then(Pid::from_raw).expect("the pid of the server");
        Process { keeper, leash, pid }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Whether it has ended by itself. Nobody has reaped it yet, so its pid is still its own.
    pub fn has_ended(&self) -> bool {
        incumbent_store::Process::read(self.pid()).ok().flatten().is_some_and(|process| process.ended)
    }

    /// Stops it in its tracks: connections stay, nothing answers. Each of its threads heeds the
    /// signal by itself, and on a busy machine the last one may answer a while after the first.
    pub fn pause(&self) {
        kill_process(self.pid, Signal::STOP).expect("it is ours");
        let patience = Instant::now() + PATIENCE;
        while !self.stands_still() {
            assert!(Instant::now() < patience, "process {} does not stop", self.pid());
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn stands_still(&self) -> bool {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", self.pid())) else { return true };
        threads.flatten().all(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            // A thread that is gone answers nothing either.
            stat.rsplit(") ").next().is_none_or(|rest| rest.starts_with(['T', 't', 'Z', 'X']) || rest.is_empty())
        })
    }

    /// Lets it go on.
    pub fn resume(&self) {
        kill_process(self.pid, Signal::CONT).expect("it is ours");
    }

    /// Kills it without warning, and waits until it is gone.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.leash = None;
        // The keeper ends once it has reaped the server.
        let _ = self.keeper.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Looks until a server answers. `false`: its process has ended, or it never does.
pub(super) async fn comes_up<F: Future<Output = bool>>(process: Option<&Process>, answers: impl Fn() -> F) -> bool {
    let look = || {
        let answer = answers();
        async move { if answer.await { Some(true) } else { process.is_none_or(Process::has_ended).then_some(false) } }
    };
    found(look).await.unwrap_or_default()
}

/// Removes a folder when the test that holds the other end of its standard input is gone, and has
/// taken its servers with it.
const SWEEPER: &str = r#"read -r _; sleep 1; rm -rf "$1""#;

/// A new folder, in memory where there is such a place. Removed with everything in it, even if the
/// test is killed.
#[derive(Debug)]
pub struct Scratch {
    dir: TempDir,
    _sweeper: Child,
}

impl Scratch {
    /// A new folder whose name begins with `name`.
    pub fn new(name: &str) -> Scratch {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { Scratch::within(memory, name) } else { Scratch::on_disk(name) }
    }

    /// The same where temporary files go, for those who want to pay for what a disk costs.
    pub fn on_disk(name: &str) -> Scratch {
        Scratch::within(&std::env::temp_dir(), name)
    }

    fn within(parent: &Path, name: &str) -> Scratch {
        // Some servers run as a user of their own.
        let dir = TempDir::within(parent, name, 0o755);
        let mut sweeper = Command::new("sh");
        sweeper.args(["-c", SWEEPER, "sweeper"]).arg(dir.path()).stdin(Stdio::piped());
        Scratch { dir, _sweeper: sweeper.spawn().expect("a shell") }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}
