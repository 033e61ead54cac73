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
use super::member::{MemberArgs, Report};
use super::network::Network;
use super::timeline::{Timeline, now};
use crate::failure::Failure;

/// The members' names, by number: the first is number one.
const NAMES: [&str; 5] = ["ada", "bob", "cyd", "dan", "eve"];

pub(super) fn name(member: u16) -> &'static str {
    NAMES.get(usize::from(member) - 1).copied().unwrap_or("?")
}

pub(super) struct Group {
    algorithm: Algorithm,
    folder: PathBuf,
    pub(super) members: Vec<u16>,
    pub(super) network: Network,
    processes: BTreeMap<u16, Process>,
    timeline: Timeline,
}

struct Process {
    child: Child,
    /// Listens to it until its output ends.
    listener: JoinHandle<()>,
}

impl Group {
    /// A group that has not started yet, with a secret of its own, in this folder.
    pub(super) async fn new(
        algorithm: Algorithm,
        members: usize,
        folder: &Path,
        timeline: Timeline,
    ) -> Result<Group, Failure> {
        let members: Vec<u16> = (1..).take(members).collect();
        Secret::read_or_create(&folder.join("secret")).map_err(|error| Failure::error(error.to_string()))?;
        let network = Network::between(&members).await;
        let network = network.map_err(|error| Failure::error(format!("cannot listen on loopback: {error}")))?;
        Ok(Group { algorithm, folder: folder.to_owned(), members, network, processes: BTreeMap::new(), timeline })
    }

    /// Starts a member's process, which is killed when the demonstration is dropped, and waits
    /// until it listens.
    pub(super) async fn start(&mut self, member: u16, patience: Duration) -> Result<(), Failure> {
        let cannot = |what: &str| Failure::error(format!("cannot start {}: {what}", name(member)));
        let mut child = this_program()
            .args(self.args_of(member).to_command_line()?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| cannot(&error.to_string()))?;
        self.timeline.change(|state| state.on_started(member));
        let stdout = child.stdout.take().ok_or_else(|| cannot("it has no output"))?;
        let listener = tokio::spawn(listen(member, stdout, self.timeline.clone()));
        self.processes.insert(member, Process { child, listener });
        let port = self.timeline.until(patience, "a member that listens", |state| state.port(member)).await?;
        self.network.arrives(member, port);
        Ok(())
    }

    fn args_of(&self, member: u16) -> MemberArgs {
        let address = |other: u16| match self.network.address(member, other) {
            Some(address) => address.to_string(),
            // Its own, which no member dials.
            None => "127.0.0.1:0".to_owned(),
        };
        MemberArgs {
            algorithm: self.algorithm.to_string(),
            me: member,
            members: self.members.iter().map(|other| (*other, name(*other).to_owned(), address(*other))).collect(),
            secret: self.folder.join("secret"),
            data: self.algorithm.is_fenced().then(|| self.folder.join(name(member))),
        }
    }

    /// Kills a member's process, as `kill -9` does, and reaps it. Answers with the moment.
    pub(super) async fn kill(&mut self, member: u16) -> Result<u64, Failure> {
        let process = self.processes.remove(&member);
        let Process { mut child, listener } =
            process.ok_or_else(|| Failure::error(format!("{} is gone", name(member))))?;
        let cannot = |error| Failure::error(format!("cannot kill {}: {error}", name(member)));
        child.start_kill().map_err(cannot)?;
        let at = now();
        self.timeline.change(|state| state.on_killed(at, member));
        self.network.dies(member);
        child.wait().await.map_err(cannot)?;
        // Its last reports are read before it can be started again.
        let _ = listener.await;
        Ok(at)
    }

    /// Ends all processes by closing their input, and waits for it.
    pub(super) async fn leave(&mut self, within: Duration) -> Result<(), Failure> {
        let until = Instant::now() + within;
        for process in self.processes.values_mut() {
            // From here on its end is no failure.
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

/// Takes in what a member reports until its output ends, which only a kill may do.
async fn listen(member: u16, stdout: ChildStdout, timeline: Timeline) {
    let mut lines = BufReader::new(stdout).lines();
    let mut unread = None;
    while let Ok(Some(line)) = lines.next_line().await {
        let report = match (unread.take(), serde_json::from_str(&line)) {
            (None, Ok(report)) => report,
            (Some(what), _) => Report::Broken { what },
            // The last line of a member that was killed may be cut short.
            (None, Err(_)) => {
                unread = Some(line);
                continue;
            }
        };
        timeline.change(|state| state.on_report(member, report));
    }
    if timeline.state().lives(member) {
        let what = "its process has ended by itself".to_owned();
        timeline.change(|state| state.on_report(member, Report::Broken { what }));
    }
}
