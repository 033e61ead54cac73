//! A place for one test: a folder, a store in it, and processes that do not outlive the test.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use incumbent_testkit::TempDir;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// How long anything may take before a test fails. Nothing waits so long unless it is broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A command that shows whether it is alone: it holds a lock for its lifetime, and so does
/// everything that it starts. Once it has said that it starts, SIGTERM is heeded by all of it: a
/// shell's child that was not yet its own program would lose it.
pub(crate) const LONELY: &str = r#"
exec 9>>"$FOLDER/lock"
flock -n 9 || { echo "overlap $INCUMBENT_TOKEN $INCUMBENT_NAME" >>"$FOLDER/log"; exit 99; }
trap 'echo "stop $INCUMBENT_TOKEN $INCUMBENT_NAME" >>"$FOLDER/log"; exit 0' TERM
sh -c 'echo "start $INCUMBENT_TOKEN $INCUMBENT_NAME" >>"$FOLDER/log"; exec sleep 1000' &
wait
"#;

/// What a command said, and how it ended.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// One JSON object on one line.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.out.lines().count(), 1, "{self:?}");
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

pub(crate) struct Host {
    folder: TempDir,
}

impl Host {
    pub(crate) fn new() -> Host {
        let folder = TempDir::new("cli");
        // The store is there, as it is wherever a candidate has been: a command that only reads
        // does not make it.
        fs::DirBuilder::new().mode(0o700).create(folder.path().join("store")).unwrap();
        Host { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn store(&self) -> String {
        format!("file://{}", self.path("store").display())
    }

    /// The command, with a store of its own and nothing of the environment that could matter.
    pub(crate) fn command<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_incumbent"));
        command.args(args).env("INCUMBENT_STORE", self.store()).env("FOLDER", self.folder.path());
        // What other tests claim and have seen is another host's.
        command.env("INCUMBENT_CLAIMS_DIR", self.path("incumbent")).env("HOME", self.folder.path());
        for name in ["KUBERNETES_SERVICE_HOST", "NOTIFY_SOCKET", "NO_COLOR", "container", "XDG_STATE_HOME"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null());
        command
    }

    /// Runs the command to its end.
    pub(crate) fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Said {
        finish(self.command(args))
    }

    /// Runs it, and it must go well.
    pub(crate) fn ok<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Said {
        let said = self.run(args);
        assert_eq!(said.code, Some(0), "{said:?}");
        said
    }

    /// Starts the command, and listens to it. What was ignored at the start stays ignored, and the
    /// tests may be started with interrupts or hang-ups ignored (in the background of a script,
    /// say): the command is not.
    pub(crate) fn start<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Process {
        self.start_with(&["--default-signal"], args)
    }

    /// Starts it by way of `env` with these options.
    pub(crate) fn start_with<A: AsRef<OsStr>>(&self, env: &[&str], args: impl IntoIterator<Item = A>) -> Process {
        Process::start(self.by_way_of("env", env, args))
    }

    /// The command, started by another program.
    pub(crate) fn by_way_of<A: AsRef<OsStr>>(
        &self,
        program: &str,
        options: &[&str],
        args: impl IntoIterator<Item = A>,
    ) -> Command {
        let inner = self.command(args);
        let mut outer = Command::new(program);
        outer.args(options).arg(inner.get_program()).args(inner.get_args()).stdin(Stdio::null());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => outer.env(name, value),
                None => outer.env_remove(name),
            };
        }
        outer
    }

    /// Starts `run` with a command that shows whether it is alone. Unless told, its TTL is so long
    /// that what happens soon has another reason, and so is its grace: a busy machine lets the
    /// command say that it stops.
    pub(crate) fn start_lonely(&self, name: &str, more: &[&str]) -> Process {
        let ttl: &[&str] = if more.contains(&"--ttl") { &[] } else { &["--ttl", "10m"] };
        let args = ["run", "--name", name].into_iter().chain([ttl, more].concat());
        self.start(args.chain(["jobs/x", "--shell", "--", LONELY]))
    }

    pub(crate) fn log(&self) -> Vec<String> {
        let log = fs::read_to_string(self.path("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// Waits until this host remembers the leader with this token: a task writes that, for which
    /// nobody waits. What is found in a draft may never get into its place.
    pub(crate) fn until_remembered(&self, token: u64) {
        let (folder, pattern) = (self.path(".local/state/incumbent-witness"), format!("token {token}$"));
        eventually("a memory of it", || {
            let find = Command::new("grep").args(["-rlq", "--include=*.seen", &pattern]).arg(&folder).status();
            find.unwrap().success().then_some(())
        });
    }

    /// Waits until the log has a line that starts like this, and answers with it.
    pub(crate) fn until_logged(&self, start: &str) -> String {
        eventually(&format!("{start:?} in the log"), || self.log().into_iter().find(|line| line.starts_with(start)))
    }

    /// Who leads, by its token.
    pub(crate) fn leader(&self, election: &str) -> Option<(String, u64)> {
        let json = self.run(["leader", election, "--json"]).json();
        let leader = json.get("leader").filter(|leader| !leader.is_null())?;
        Some((leader["name"].as_str()?.to_owned(), leader["token"].as_u64()?))
    }

    /// The names of those in line.
    pub(crate) fn line(&self, election: &str) -> Vec<String> {
        // With nobody in line it exits with 3.
        let json = self.run(["candidates", election, "--json"]).json();
        let candidates = json["candidates"].as_array().unwrap();
        candidates.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn until_in_line(&self, election: &str, names: &[&str]) {
        eventually(&format!("{names:?} in line"), || (self.line(election) == names).then_some(()));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // A guardian may still be at work below.
        let removed = in_time(|| fs::remove_dir_all(self.folder.path()).ok());
        assert!(removed.is_some() || thread::panicking(), "{} cannot be removed", self.folder.path().display());
    }
}

/// Runs a command to its end.
pub(crate) fn finish(mut command: Command) -> Said {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// The command's arguments, with the store that they are about.
pub(crate) fn on(url: &str, args: &[&str]) -> Vec<String> {
    [&["--store", url], args].concat().into_iter().map(str::to_owned).collect()
}

/// Asks again and again until there is an answer.
pub(crate) fn eventually<T>(what: &str, ask: impl FnMut() -> Option<T>) -> T {
    in_time(ask).unwrap_or_else(|| panic!("never: {what}"))
}

/// Asks again and again until there is an answer, or the patience is at its end.
pub(crate) fn in_time<T>(mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let until = Instant::now() + PATIENCE;
    loop {
        let answer = ask();
        if answer.is_some() || Instant::now() >= until {
            return answer;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// A line, and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Spoken {
    Out(String),
    Err(String),
}

#[derive(Clone, Copy)]
enum Stream {
    Out,
    Err,
}

/// A process that is killed with the test.
pub(crate) struct Process {
    child: Child,
    lines: Receiver<Spoken>,
    heard: Vec<Spoken>,
    /// As many of those heard were looked at for each stream.
    passed: [usize; 2],
    pub(crate) stdin: Option<ChildStdin>,
}

impl Process {
    pub(crate) fn start(command: Command) -> Process {
        Process::with_input(command, Stdio::piped())
    }

    pub(crate) fn with_input(mut command: Command, input: Stdio) -> Process {
        let mut child = command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        listen(child.stdout.take().unwrap(), sender.clone(), Spoken::Out);
        listen(child.stderr.take().unwrap(), sender, Spoken::Err);
        let stdin = child.stdin.take();
        Process { child, lines, heard: Vec::new(), passed: [0; 2], stdin }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// The next line on standard output.
    pub(crate) fn line(&mut self) -> String {
        self.until_spoken("a line on standard output", Stream::Out, |spoken| match spoken {
            Spoken::Out(line) => Some(line.clone()),
            Spoken::Err(_) => None,
        })
    }

    /// The next line on standard output, as JSON.
    pub(crate) fn json(&mut self) -> Value {
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Waits for a line on standard error that has these words.
    pub(crate) fn until_said(&mut self, words: &str) -> String {
        self.until_spoken(words, Stream::Err, |spoken| match spoken {
            Spoken::Err(line) if line.contains(words) => Some(line.clone()),
            _ => None,
        })
    }

    /// The same for words that may have been said before those that were waited for last.
    pub(crate) fn until_ever_said(&mut self, words: &str) -> String {
        eventually(words, || {
            self.everything().into_iter().find_map(|spoken| match spoken {
                Spoken::Err(line) if line.contains(words) => Some(line),
                _ => None,
            })
        })
    }

    /// The next line of one stream that is wanted. Nothing of the other is passed over for it:
    /// which of two lines came first is not known if they came by different streams.
    fn until_spoken<T>(&mut self, what: &str, stream: Stream, want: impl Fn(&Spoken) -> Option<T>) -> T {
        let until = Instant::now() + PATIENCE;
        loop {
            let passed = &mut self.passed[stream as usize];
            while let Some(spoken) = self.heard.get(*passed) {
                *passed += 1;
                if let Some(wanted) = want(spoken) {
                    return wanted;
                }
            }
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(spoken) => self.heard.push(spoken),
                Err(_) => panic!("never heard {what}: {:?}", self.heard),
            }
        }
    }

    /// Waits for its end; the exit code, `None` if a signal ended it.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.status().code()
    }

    /// Waits for its end.
    pub(crate) fn status(&mut self) -> ExitStatus {
        let ended = self.ended_within(PATIENCE);
        ended.unwrap_or_else(|| panic!("it does not end: {:?}", self.everything()))
    }

    /// Waits for its end, but no longer than this.
    pub(crate) fn ended_within(&mut self, patience: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + patience;
        loop {
            let ended = self.child.try_wait().unwrap();
            if ended.is_some() || Instant::now() >= until {
                return ended;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// All that was heard until now.
    pub(crate) fn everything(&mut self) -> Vec<Spoken> {
        self.heard.extend(self.lines.try_iter());
        self.heard.clone()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listen(stream: impl Read + Send + 'static, sender: std::sync::mpsc::Sender<Spoken>, wrap: fn(String) -> Spoken) {
    thread::spawn(move || {
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { return };
            if sender.send(wrap(line)).is_err() {
                return;
            }
        }
    });
}

/// Stops a process. A signal takes effect some time after it was sent: this returns when every
/// thread has stopped, and can do nothing more.
pub(crate) fn stop(pid: Pid) {
    kill_process(pid, Signal::STOP).unwrap();
    let stopped = |task: fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // The name before it is in parentheses, and may contain anything.
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 'Z']))
    };
    eventually("all threads stopped", || {
        let tasks = fs::read_dir(format!("/proc/{}/task", pid.as_raw_pid())).unwrap();
        tasks.flatten().all(stopped).then_some(())
    });
}

/// The guardian of a process, and whatever else it has started.
pub(crate) fn children(pid: Pid) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{}/task", pid.as_raw_pid())).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|pid| pid.parse().ok().and_then(Pid::from_raw))
        .collect()
}
