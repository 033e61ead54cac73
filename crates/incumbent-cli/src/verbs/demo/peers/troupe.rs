//! The processes of the demonstration: started, listened to, killed, and gone when it ends.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use incumbent_peers::{Algorithm, Secret};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::super::super::this_program;
use super::chronicle::{Chronicle, Deed};
use super::links::Links;
use super::member::Part;
use super::report::Report;
use crate::failure::Failure;

/// The members' names, by number: the first is number one.
pub(super) const NAMES: [&str; 5] = ["ada", "bob", "cyd", "dan", "eve"];

pub(super) fn name(member: u16) -> &'static str {
    NAMES.get(usize::from(member) - 1).copied().unwrap_or("?")
}

pub(super) struct Troupe {
    algorithm: Algorithm,
    folder: PathBuf,
    members: Vec<u16>,
    links: Links,
    processes: BTreeMap<u16, Process>,
    chronicle: Chronicle,
}

struct Process {
    child: Child,
    /// Listens to it until its output ends.
    listener: JoinHandle<()>,
}

impl Troupe {
    /// A group that has not started yet, with a secret of its own, in this folder.
    pub(super) async fn new(
        algorithm: Algorithm,
        members: usize,
        folder: &Path,
        chronicle: Chronicle,
    ) -> Result<Troupe, Failure> {
        let members: Vec<u16> = (1..).take(members).collect();
        Secret::read_or_create(&folder.join("secret")).map_err(|error| Failure::error(error.to_string()))?;
        let links = Links::between(&members).await;
        let links = links.map_err(|error| Failure::error(format!("cannot listen on loopback: {error}")))?;
        Ok(Troupe { algorithm, folder: folder.to_owned(), members, links, processes: BTreeMap::new(), chronicle })
    }

    pub(super) fn members(&self) -> &[u16] {
        &self.members
    }

    /// Starts a member's process, which is killed when the demonstration is dropped, and waits until it listens.
    pub(super) async fn start(&mut self, member: u16, deed: Deed, patience: Duration) -> Result<(), Failure> {
        let cannot = |what: &str| Failure::error(format!("cannot start {}: {what}", name(member)));
        let mut child = this_program()
            .args(self.part(member)?.arguments()?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| cannot(&error.to_string()))?;
        self.chronicle.note(deed);
        let stdout = child.stdout.take().ok_or_else(|| cannot("it has no output"))?;
        let chronicle = self.chronicle.clone();
        let listener = tokio::spawn(listen(member, stdout, chronicle));
        self.processes.insert(member, Process { child, listener });
        let port = self.chronicle.until(patience, "a member that listens", |state| state.port(member)).await?;
        self.links.arrives(member, port);
        Ok(())
    }

    fn part(&self, member: u16) -> Result<Part, Failure> {
        let address = |other: u16| match self.links.address(member, other) {
            Some(address) => address.to_string(),
            // Its own, which nobody dials.
            None => "127.0.0.1:0".to_owned(),
        };
        let data = self.folder.join(name(member));
        let data = self.algorithm.is_fenced().then_some(data);
        Ok(Part {
            algorithm: self.algorithm.to_string(),
            me: member,
            members: self.members.iter().map(|other| (*other, name(*other).to_owned(), address(*other))).collect(),
            secret: self.folder.join("secret"),
            data,
        })
    }

    /// Kills a member's process, as `kill -9` does, and reaps it.
    pub(super) async fn kill(&mut self, member: u16) -> Result<u64, Failure> {
        let process = self.processes.remove(&member);
        let Process { mut child, listener } =
            process.ok_or_else(|| Failure::error(format!("{} is gone", name(member))))?;
        let cannot = |error| Failure::error(format!("cannot kill {}: {error}", name(member)));
        child.start_kill().map_err(cannot)?;
        let at = self.chronicle.note(Deed::Killed(member));
        self.links.dies(member);
        child.wait().await.map_err(cannot)?;
        // What it said last is heard before it can be started again.
        let _ = listener.await;
        Ok(at)
    }

    /// Separates these from the others.
    pub(super) fn cut_off(&self, island: &[u16]) -> u64 {
        self.links.cut_off(island);
        self.chronicle.note(Deed::Cut)
    }

    pub(super) fn heal(&self) -> u64 {
        self.links.heal();
        self.chronicle.note(Deed::Healed)
    }

    /// Ends all processes by closing their input, and waits for it.
    pub(super) async fn leave(&mut self, within: Duration) -> Result<(), Failure> {
        let until = Instant::now() + within;
        for process in self.processes.values_mut() {
            // From here on its end is no news.
            process.listener.abort();
            drop(process.child.stdin.take());
        }
        for (member, process) in &mut self.processes {
            match timeout_at(until, process.child.wait()).await {
                Ok(Ok(status)) if status.success() => {}
                Ok(Ok(status)) => return Err(Failure::error(format!("{} ended with {status}", name(*member)))),
                Ok(Err(error)) => return Err(Failure::error(format!("{} is lost: {error}", name(*member)))),
                Err(_) => return Err(Failure::error(format!("{} did not leave", name(*member)))),
            }
        }
        Ok(())
    }
}

/// Writes down what a member says, until its output ends. Only one that was killed may end it.
async fn listen(member: u16, stdout: ChildStdout, chronicle: Chronicle) {
    let mut lines = BufReader::new(stdout).lines();
    let mut unread = None;
    while let Ok(Some(line)) = lines.next_line().await {
        let report = match (unread.take(), serde_json::from_str(&line)) {
            (None, Ok(report)) => report,
            (Some(what), _) => Report::Broken { what },
            // The last words of one that was killed may be cut short.
            (None, Err(_)) => {
                unread = Some(line);
                continue;
            }
        };
        chronicle.hear(member, report);
    }
    if chronicle.state().lives(member) {
        chronicle.hear(member, Report::Broken { what: "its process has ended by itself".to_owned() });
    }
}
