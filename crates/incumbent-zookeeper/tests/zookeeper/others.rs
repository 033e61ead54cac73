//! Candidates that other people wrote: Curator's and kazoo's, each library in a process of its own.
//!
//! The processes say what happens with times of the machine's monotonic clock, which is the same
//! for all processes.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use incumbent_testkit::servers::{Scratch, ZooKeeperEnsemble};
use incumbent_zookeeper::Dialect;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::harness::{until, within};

/// An implementation that others wrote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    CuratorLatch,
    CuratorSelector,
    Kazoo,
}

impl Kind {
    pub(crate) fn dialect(self) -> Dialect {
        match self {
            Kind::CuratorLatch => Dialect::CuratorLatch,
            Kind::CuratorSelector => Dialect::CuratorSelector,
            Kind::Kazoo => Dialect::Kazoo,
        }
    }

    /// As the programs call it.
    fn word(self) -> &'static str {
        match self {
            Kind::CuratorLatch => "latch",
            Kind::CuratorSelector => "selector",
            Kind::Kazoo => "election",
        }
    }

    fn command(self) -> Command {
        if self == Kind::Kazoo {
            let mut python = Command::new("/usr/bin/python3");
            python.arg(peers().join("kazoo/peer.py"));
            return python;
        }
        let mut java = Command::new("java");
        java.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]);
        java.args(["-cp", &format!("{CURATOR}:/usr/share/java/slf4j-simple.jar:{}", classes()), "Peer"]);
        java
    }
}

/// Names the other libraries that it needs itself.
const CURATOR: &str = "/usr/share/java/curator-recipes.jar";

fn peers() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/peers"))
}

/// Where the compiled program is. Compiled once for all tests.
fn classes() -> String {
    static CLASSES: OnceLock<Scratch> = OnceLock::new();
    let scratch = CLASSES.get_or_init(|| {
        let scratch = Scratch::new("curator");
        let mut compile = Command::new("javac");
        compile.args(["-cp", CURATOR, "-d"]).arg(scratch.path()).arg(peers().join("curator/Peer.java"));
        assert!(compile.status().expect("javac; `scripts/setup curator` installs it").success());
        scratch
    });
    scratch.path().display().to_string()
}

/// What a candidate said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Said {
    Gained(Duration),
    Resigned(Duration),
    Lost(Duration),
}

type Listeners = Arc<Mutex<HashMap<String, UnboundedSender<Said>>>>;

/// One process with candidates of others. It ends with its standard input.
#[derive(Debug)]
pub(crate) struct Program {
    /// As servers write it.
    session: String,
    child: Child,
    orders: Mutex<ChildStdin>,
    listeners: Listeners,
}

impl Program {
    /// The one that tests share which let it live.
    pub(crate) fn shared(kind: Kind, ensemble: &ZooKeeperEnsemble) -> &'static Program {
        static CURATOR: OnceLock<Program> = OnceLock::new();
        static KAZOO: OnceLock<Program> = OnceLock::new();
        let program = if kind == Kind::Kazoo { &KAZOO } else { &CURATOR };
        program.get_or_init(|| Program::start(kind, ensemble, Duration::from_secs(60)))
    }

    /// One of its own, whose session ends so long after it was last heard of.
    pub(crate) fn start(kind: Kind, ensemble: &ZooKeeperEnsemble, session: Duration) -> Program {
        let mut command = kind.command();
        command.args([&ensemble.endpoints().join(","), "stand", &session.as_millis().to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program runs");
        let orders = Mutex::new(child.stdin.take().expect("a pipe"));
        let mut said = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut first = String::new();
        said.read_line(&mut first).expect("it speaks");
        let session = first.trim().strip_prefix("session ").expect("its session").to_owned();
        let listeners = Listeners::default();
        // Of no test's runtime, since tests share it.
        let tell = listeners.clone();
        std::thread::spawn(move || said.lines().map_while(Result::ok).for_each(|line| pass_on(&tell, &line)));
        Program { session, child, orders, listeners }
    }

    /// Puts a candidate in the line of the election at this path.
    pub(crate) fn stand(&self, kind: Kind, path: &str) -> Theirs<'_> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let id = format!("theirs-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let (tell, said) = unbounded_channel();
        self.listeners.lock().unwrap().insert(id.clone(), tell);
        self.order(&format!("campaign {} {path} {id}", kind.word()));
        Theirs { program: self, id, said }
    }

    /// Waits until one of its candidates watches this node.
    pub(crate) async fn watches(&self, ensemble: &ZooKeeperEnsemble, path: &str) {
        let so = async || {
            // Paths, and below each, indented, the sessions that watch it.
            let watched = ensemble.nodes()[0].ask("wchp").await.unwrap_or_default();
            let mut watchers = watched.lines().skip_while(|line| *line != path).skip(1);
            let session = format!("\t0x{}", self.session);
            watchers.by_ref().take_while(|line| line.starts_with('\t')).any(|line| line == session)
        };
        until(&format!("theirs watches {path}"), so).await;
    }

    fn order(&self, line: &str) {
        writeln!(self.orders.lock().unwrap(), "{line}").expect("it listens");
    }

    /// Ends it without warning.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

fn pass_on(listeners: &Listeners, line: &str) {
    let [what, id, nanos] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("what is {line:?}?") };
    let time = Duration::from_nanos(nanos.parse().expect("a time"));
    let said = match what {
        "gained" => Said::Gained(time),
        "resigned" => Said::Resigned(time),
        "lost" => Said::Lost(time),
        other => panic!("what is {other:?}?"),
    };
    if let Some(listener) = listeners.lock().unwrap().get(id) {
        // Nobody may listen any more.
        let _ = listener.send(said);
    }
}

/// A candidate of others.
#[derive(Debug)]
pub(crate) struct Theirs<'a> {
    program: &'a Program,
    pub(crate) id: String,
    said: UnboundedReceiver<Said>,
}

impl Theirs<'_> {
    /// Waits until it leads; since when it does.
    pub(crate) async fn gains(&mut self) -> Duration {
        match within(self.said.recv()).await.expect("it goes on") {
            Said::Gained(time) => time,
            other => panic!("{other:?} before it led"),
        }
    }

    /// Whether it has said nothing yet.
    pub(crate) fn waits(&self) -> bool {
        self.said.is_empty()
    }

    /// Lets go of its office, or of its place in line; when it began to.
    pub(crate) async fn resign(mut self) -> Duration {
        self.program.order(&format!("resign {}", self.id));
        match within(self.said.recv()).await.expect("it goes on") {
            Said::Resigned(time) => time,
            other => panic!("{other:?} before it resigned"),
        }
    }
}

/// The clock that all processes of this machine share.
pub(crate) fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.cast_unsigned(), u32::try_from(now.tv_nsec).unwrap())
}
