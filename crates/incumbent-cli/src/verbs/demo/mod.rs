//! `demo`: elections with real processes on this host, each act measured, every promise checked.

pub(crate) mod peers;
pub(crate) mod worker;
mod workers;

use std::fs;
use std::future::Future;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::signal::unix::SignalKind;
use tokio::time::timeout;

use crate::args::{DemoArgs, PeerAlgorithm};
use crate::duration::show;
use crate::failure::Failure;
use crate::output::{Paint, out};
use crate::signal_listener::SignalListener;
use worker::{Folder, Report};
use workers::{Heard, Workers};

/// The election of the demonstration.
pub(crate) const ELECTION: &str = "demo";
/// Short, so that a stopped leader is replaced while people watch.
pub(crate) const TTL: Duration = Duration::from_secs(3);
/// How long people get to read a heading.
const READING: Duration = Duration::from_millis(900);
/// How long anything may take before the demonstration has failed.
const PATIENCE: Duration = Duration::from_secs(8);
/// How long it may take in all.
const WHOLE: Duration = Duration::from_secs(19);

/// A demonstration under way.
type Running<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + 'a>>;

pub(crate) async fn demo(args: DemoArgs) -> Result<u8, Failure> {
    let folder = TempFolder::new()?;
    let members = usize::from(args.members.unwrap_or(DemoArgs::MEMBERS));
    let (whole, run): (Duration, Running<'_>) = match args.algorithm {
        None => (WHOLE, Box::pin(Demo::new(&folder.0)?.run())),
        Some(algorithm) => (peers::WHOLE, Box::pin(peers::run(algorithm.into(), members, &folder.0))),
    };
    let mut int = SignalListener::new(SignalKind::interrupt())?;
    let mut term = SignalListener::new(SignalKind::terminate())?;
    let done = tokio::select! {
        done = timeout(whole, run) => done,
        // The processes and the folder go in any case.
        () = int.heard() => return Ok(130),
        () = term.heard() => return Ok(143),
    };
    let done = done.unwrap_or_else(|_| Err(Failure::error(format!("it took longer than {}", show(whole)))));
    drop(folder);
    done.map(|()| 0).map_err(|failure| failure.doing("the demonstration failed"))
}

impl From<PeerAlgorithm> for incumbent_peers::Algorithm {
    fn from(algorithm: PeerAlgorithm) -> incumbent_peers::Algorithm {
        match algorithm {
            PeerAlgorithm::Bully => incumbent_peers::Algorithm::Bully,
            PeerAlgorithm::Ring => incumbent_peers::Algorithm::Ring,
            PeerAlgorithm::Consensus => incumbent_peers::Algorithm::Consensus,
        }
    }
}

/// A folder for this demonstration alone, which goes with it.
struct TempFolder(PathBuf);

impl TempFolder {
    fn new() -> Result<TempFolder, Failure> {
        use std::os::unix::fs::DirBuilderExt;
        let path = std::env::temp_dir().join(format!("incumbent-demo-{}", std::process::id()));
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|error| Failure::error(format!("cannot make {}: {error}", path.display())))?;
        Ok(TempFolder(path))
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        // What cannot be removed is in a folder for temporary things.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// How long something took, for the summary.
struct Measured {
    what: &'static str,
    took: Duration,
}

struct Demo {
    folder: Folder,
    workers: Workers,
    paint: Paint,
    began: Instant,
    /// The tokens of all leaders, in order.
    tokens: Vec<u64>,
    measured: Vec<Measured>,
}

impl Demo {
    fn new(folder: &Path) -> Result<Demo, Failure> {
        Ok(Demo {
            folder: Folder(folder.to_owned()),
            workers: Workers::new(folder),
            paint: Paint::for_stream(&io::stdout()),
            began: Instant::now(),
            tokens: Vec::new(),
            measured: Vec::new(),
        })
    }

    async fn run(mut self) -> Result<(), Failure> {
        self.heading("Three processes want the same office. One gets it, the others wait in line.").await?;
        self.gather().await?;
        self.heading("The leader is killed (kill -9). The kernel says so, and the next in line takes over.").await?;
        self.kill_the_leader().await?;
        self.heading("The leader is stopped (SIGSTOP) in the middle of a job. It is alive, so only its silence tells.")
            .await?;
        self.stop_the_leader().await?;
        self.heading("An operator acts: hands over, pauses, resumes, makes the leader resign.").await?;
        self.operate().await?;
        self.heading("What must be true in the end.").await?;
        self.settle().await?;
        self.summary()
    }

    async fn gather(&mut self) -> Result<(), Failure> {
        let began = Instant::now();
        let ada = self.workers.start("ada")?;
        self.say("ada", self.paint.dim(&format!("starts, process {ada}")))?;
        let token = self.until_elected("ada").await?;
        self.measure("a first leader", "ada", token, began)?;
        for name in ["bob", "cyd"] {
            let pid = self.workers.start(name)?;
            self.until(name, |report| matches!(report, Report::InLine)).await?;
            self.say(name, self.paint.dim(&format!("starts, process {pid}, and is in line")))?;
        }
        self.until_written("ada").await?;
        self.say("ada", format!("writes to the ledger, with token {token}"))
    }

    async fn kill_the_leader(&mut self) -> Result<(), Failure> {
        let began = Instant::now();
        self.workers.signal("ada", Signal::KILL)?;
        self.say("ada", self.paint.red("is killed"))?;
        let token = self.until_elected("bob").await?;
        self.measure("a killed leader replaced", "bob", token, began)?;
        let pid = self.workers.start("ada")?;
        self.until("ada", |report| matches!(report, Report::InLine)).await?;
        self.say("ada", self.paint.dim(&format!("is started again, process {pid}, and is at the end of the line")))
    }

    async fn stop_the_leader(&mut self) -> Result<(), Failure> {
        let old = self.until_thinking("bob").await?;
        let began = Instant::now();
        self.workers.signal("bob", Signal::STOP)?;
        self.say("bob", self.paint.yellow(&format!("is stopped, with token {old}, just before it writes")))?;
        let new = self.until_elected("cyd").await?;
        self.measure("a stopped leader replaced", "cyd", new, began)?;
        self.until_written("cyd").await?;
        self.say("cyd", format!("writes to the ledger, with token {new}"))?;
        let began = Instant::now();
        self.workers.signal("bob", Signal::CONT)?;
        self.say("bob", self.paint.yellow("goes on, thinks that it leads, and writes"))?;
        let late = self.until("bob", |report| matches!(report, Report::Refused { .. } | Report::Wrote { .. })).await?;
        let Report::Refused { token, mark } = late.report else {
            return Err(Failure::error("the late write of a former leader was not refused"));
        };
        if (token, mark) != (old, new) {
            return Err(Failure::error(format!("token {token} was refused by {mark}, instead of {old} by {new}")));
        }
        let words = format!("is refused: token {token} is older than {mark}");
        self.say("bob", self.paint.green(&words))?;
        self.measured.push(Measured { what: "a late write refused", took: began.elapsed() });
        self.until("bob", |report| matches!(report, Report::Stopped { .. })).await?;
        self.until_in_line("bob").await?;
        self.say("bob", self.paint.dim("has heard that it lost, and is at the end of the line"))
    }

    async fn operate(&mut self) -> Result<(), Failure> {
        let began = Instant::now();
        self.command(&["transfer", ELECTION, "--to", "bob"]).await?;
        let token = self.until_elected("bob").await?;
        self.measure("a transfer to somebody chosen", "bob", token, began)?;

        let began = Instant::now();
        self.command(&["pause", ELECTION, "--reason", "a demonstration"]).await?;
        let reading = self.command_says(&["leader", ELECTION], 3).await?;
        if !reading.is_empty() {
            return Err(Failure::error(format!("somebody leads a paused election: {reading}")));
        }
        self.say("", format!("nobody leads: paused in {}", show(began.elapsed())))?;
        self.measured.push(Measured { what: "a pause", took: began.elapsed() });
        let began = Instant::now();
        self.command(&["resume", ELECTION]).await?;
        let (name, token) = self.until_anybody_is_elected().await?;
        self.measure("somebody leads again after it", &name, token, began)?;

        self.until_all_are_in_line().await?;
        let began = Instant::now();
        self.command(&["resign", ELECTION]).await?;
        let (next, token) = self.until_anybody_is_elected().await?;
        if next == name {
            return Err(Failure::error(format!("{name} was to go to the end of the line, but leads again")));
        }
        self.measure("a resignation", &next, token, began)
    }

    async fn settle(&mut self) -> Result<(), Failure> {
        self.command(&["end", ELECTION]).await?;
        self.workers.leave(PATIENCE).await?;
        self.say("", "the election has ended, and all processes with it")?;
        if !self.tokens.is_sorted_by(|earlier, later| earlier < later) {
            return Err(Failure::error(format!("the tokens do not grow: {:?}", self.tokens)));
        }
        let shown: Vec<_> = self.tokens.iter().map(u64::to_string).collect();
        self.say("", format!("every leader had a higher token than the one before: {}", shown.join(" < ")))?;
        let ledger = self.folder.ledger();
        let ledger = fs::read_to_string(&ledger).map_err(|error| Failure::error(format!("no ledger: {error}")))?;
        let written: Vec<u64> = ledger.lines().filter_map(|line| line.split(' ').next()?.parse().ok()).collect();
        if written.len() != ledger.lines().count() || !written.is_sorted() {
            return Err(Failure::error(format!("an older token wrote after a newer one: {written:?}")));
        }
        self.say("", format!("{} entries in the ledger, and none by an older leader after a newer one", written.len()))
    }

    fn summary(&self) -> Result<(), Failure> {
        out("")?;
        for Measured { what, took } in &self.measured {
            out(&format!("  {} {what:32} {:>8}", self.paint.green("✓"), show(*took)))?;
        }
        let whole = show(self.began.elapsed());
        out("")?;
        out(&format!(
            "All as promised, in {whole}. The TTL here is {}: on one host, a stopped leader is replaced after that long;\na dead one is replaced at once.",
            show(TTL)
        ))?;
        out(&format!("Next: {}", self.paint.bold("incumbent run my-job -- COMMAND")))
    }

    async fn until(&mut self, name: &str, want: impl Fn(&Report) -> bool) -> Result<Heard, Failure> {
        let heard = self.workers.until(PATIENCE, |heard| heard.name == name && want(&heard.report)).await;
        heard.map_err(|failure| failure.doing(format!("waiting for {name}")))
    }

    async fn until_elected(&mut self, name: &str) -> Result<u64, Failure> {
        let (elected, token) = self.until_anybody_is_elected().await?;
        if elected != name {
            return Err(Failure::error(format!("{elected} was elected, not {name}")));
        }
        Ok(token)
    }

    async fn until_anybody_is_elected(&mut self) -> Result<(String, u64), Failure> {
        let heard = self.workers.until(PATIENCE, |heard| matches!(heard.report, Report::Elected { .. })).await;
        let heard = heard.map_err(|failure| failure.doing("waiting for a leader"))?;
        let Report::Elected { token } = heard.report else { return Err(Failure::error("somebody else was heard")) };
        self.tokens.push(token);
        Ok((heard.name, token))
    }

    async fn until_written(&mut self, name: &str) -> Result<(), Failure> {
        self.until(name, |report| matches!(report, Report::Wrote { .. })).await.map(drop)
    }

    async fn until_thinking(&mut self, name: &str) -> Result<u64, Failure> {
        let heard = self.until(name, |report| matches!(report, Report::Thinking { .. })).await?;
        match heard.report {
            Report::Thinking { token } => Ok(token),
            other => Err(Failure::error(format!("{name} said {other:?}"))),
        }
    }

    /// As the store sees it.
    async fn until_in_line(&mut self, name: &str) -> Result<(), Failure> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            let line = self.command_says(&["candidates", ELECTION], 0).await?;
            if line.lines().any(|row| row.split_whitespace().nth(1) == Some(name)) {
                return Ok(());
            }
            self.workers.drain(Duration::from_millis(20)).await;
        }
        Err(Failure::error(format!("{name} did not get back in line")))
    }

    async fn until_all_are_in_line(&mut self) -> Result<(), Failure> {
        for name in ["ada", "bob", "cyd"] {
            self.until_in_line(name).await?;
        }
        Ok(())
    }

    /// Runs this very command, as an operator would, and shows it.
    async fn command(&mut self, args: &[&str]) -> Result<(), Failure> {
        let quoted: Vec<_> =
            args.iter().map(|arg| if arg.contains(' ') { format!("'{arg}'") } else { (*arg).to_owned() }).collect();
        self.say("", self.paint.cyan(&format!("$ incumbent {}", quoted.join(" "))))?;
        self.command_says(args, 0).await.map(drop)
    }

    async fn command_says(&mut self, args: &[&str], expected: i32) -> Result<String, Failure> {
        let run = super::this_program()
            .args(["--quiet", "--store", self.folder.store().url()])
            .args(args)
            .kill_on_drop(true)
            .output();
        let output =
            timeout(PATIENCE, run).await.map_err(|_| Failure::error(format!("`{}` did not end", args.join(" "))))?;
        let output = output.map_err(|error| Failure::error(format!("cannot run `{}`: {error}", args.join(" "))))?;
        if output.status.code() != Some(expected) {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(Failure::error(format!("`{}` ended with {}: {}", args.join(" "), output.status, said.trim())));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn measure(&mut self, what: &'static str, name: &str, token: u64, began: Instant) -> Result<(), Failure> {
        let took = began.elapsed();
        self.measured.push(Measured { what, took });
        let words = format!("leads, with token {token}");
        self.say(name, format!("{} {}", self.paint.green(&words), self.paint.bold(&format!("after {}", show(took)))))
    }

    /// On a terminal, people get the time to read it.
    async fn heading(&self, text: &str) -> Result<(), Failure> {
        out("")?;
        out(&self.paint.bold(text))?;
        if io::stdout().is_terminal() {
            tokio::time::sleep(READING).await;
        }
        Ok(())
    }

    fn say(&self, name: &str, text: impl AsRef<str>) -> Result<(), Failure> {
        let at = format!("{:7.3} s", self.began.elapsed().as_secs_f64());
        out(&format!("{}  {:3}  {}", self.paint.dim(&at), name, text.as_ref()))
    }
}
