//! The processes of a demonstration: started, heard, signalled, and gone when it ends.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::super::this_program;
use super::worker::{Report, arguments};
use crate::failure::Failure;

/// How many reports wait to be heard before workers wait.
const REPORTS: usize = 1024;

/// A report, and the worker that made it.
pub(super) struct Heard {
    pub(super) name: String,
    pub(super) report: Report,
}

pub(super) struct Workers {
    folder: PathBuf,
    workers: BTreeMap<String, Child>,
    reports: mpsc::Receiver<Heard>,
    sender: mpsc::Sender<Heard>,
}

impl Workers {
    pub(super) fn new(folder: &Path) -> Workers {
        let (sender, reports) = mpsc::channel(REPORTS);
        Workers { folder: folder.to_owned(), workers: BTreeMap::new(), reports, sender }
    }

    /// Starts a process, which is killed when the demonstration is dropped. Answers with its
    /// number.
    pub(super) fn start(&mut self, name: &str) -> Result<u32, Failure> {
        let cannot = |what: &str| Failure::error(format!("cannot start {name}: {what}"));
        let mut child = this_program()
            .args(arguments(name, &self.folder))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| cannot(&error.to_string()))?;
        let pid = child.id().ok_or_else(|| cannot("it is gone already"))?;
        let stdout = child.stdout.take().ok_or_else(|| cannot("it has no output"))?;
        let (sender, name) = (self.sender.clone(), name.to_owned());
        self.workers.insert(name.clone(), child);
        tokio::spawn(async move {
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let report = serde_json::from_str(&line).unwrap_or(Report::Broken { what: line });
                if sender.send(Heard { name: name.clone(), report }).await.is_err() {
                    return;
                }
            }
        });
        Ok(pid)
    }

    pub(super) fn signal(&mut self, name: &str, signal: Signal) -> Result<(), Failure> {
        let pid = self.workers.get(name).and_then(Child::id).and_then(|pid| Pid::from_raw(pid as i32));
        let pid = pid.ok_or_else(|| Failure::error(format!("{name} is gone")))?;
        kill_process(pid, signal).map_err(|error| Failure::error(format!("cannot signal {name}: {error}")))
    }

    /// Waits for the report that is wanted; all others are passed over.
    pub(super) async fn until(&mut self, within: Duration, want: impl Fn(&Heard) -> bool) -> Result<Heard, Failure> {
        let until = Instant::now() + within;
        loop {
            let heard = match timeout_at(until, self.reports.recv()).await {
                Ok(Some(heard)) => heard,
                Ok(None) | Err(_) => return Err(Failure::error(format!("nothing came within {within:?}"))),
            };
            if let Report::Broken { what } = &heard.report {
                return Err(Failure::error(format!("{} failed: {what}", heard.name)));
            }
            if want(&heard) {
                return Ok(heard);
            }
        }
    }

    /// Lets some time pass.
    pub(super) async fn drain(&mut self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Waits until all have left by themselves.
    pub(super) async fn leave(&mut self, within: Duration) -> Result<(), Failure> {
        let until = Instant::now() + within;
        for (name, child) in &mut self.workers {
            match timeout_at(until, child.wait()).await {
                Ok(Ok(status)) if status.success() => {}
                Ok(Ok(status)) => return Err(Failure::error(format!("{name} ended with {status}"))),
                Ok(Err(error)) => return Err(Failure::error(format!("{name} is lost: {error}"))),
                Err(_) => return Err(Failure::error(format!("{name} did not leave"))),
            }
        }
        Ok(())
    }
}
