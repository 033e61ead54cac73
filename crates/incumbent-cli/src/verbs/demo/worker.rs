//! One process of the demonstration: it stands, and while it leads it writes to a ledger that a
//! fence guards.
//!
//! It is a careless worker on purpose: it looks at its term, then takes its time, then writes. A
//! process that is stopped in between wakes up long after it has lost its office, and writes. Only
//! the fence can refuse that.

use std::env;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use incumbent::fence::{FenceError, FencingToken, FileFence};
use incumbent::{Client, Term};
use serde::{Deserialize, Serialize};

use super::{ELECTION, TTL};
use crate::failure::Failure;
use crate::output::out_json;
use crate::store_url::StoreUrl;

/// The first argument that makes this program a worker.
const ROLE: &str = "__demo-worker";
/// Between looking at the term and writing.
const THINKING: Duration = Duration::from_millis(40);

/// What a worker says, one line each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Report {
    InLine,
    Elected {
        token: u64,
    },
    /// It may still lead, it found, and is about to write.
    Thinking {
        token: u64,
    },
    Wrote {
        token: u64,
    },
    Refused {
        token: u64,
        mark: u64,
    },
    Stopped {
        token: u64,
    },
    Broken {
        what: String,
    },
}

/// Where things are in the folder of a demonstration.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn store(&self) -> StoreUrl {
        StoreUrl::in_directory(&self.0.join("store"))
    }

    pub(super) fn ledger(&self) -> PathBuf {
        self.0.join("ledger")
    }

    fn fences(&self) -> PathBuf {
        self.0.join("fences")
    }
}

/// One worker, as it was asked for on the command line.
pub(crate) struct Worker {
    name: String,
    folder: Folder,
}

/// The arguments that make a worker.
pub(super) fn arguments(name: &str, folder: &Path) -> [std::ffi::OsString; 3] {
    [ROLE.into(), name.into(), folder.into()]
}

/// Whether this process was started to be a worker.
pub(crate) fn of_this_process() -> Option<Worker> {
    let mut args = env::args_os().skip(1);
    if args.next()? != ROLE {
        return None;
    }
    let name = args.next()?.into_string().ok()?;
    Some(Worker { name, folder: Folder(args.next()?.into()) })
}

impl Worker {
    /// Is a candidate until it is killed, or the demonstration ends.
    pub(crate) async fn run(self) -> Result<u8, Failure> {
        let done = self.stand().await;
        if let Err(failure) = &done {
            out_json(&Report::Broken { what: failure.to_string() })?;
        }
        done
    }

    async fn stand(&self) -> Result<u8, Failure> {
        let client = Client::builder().ttl(TTL).connect(self.folder.store().url()).await?;
        let election = client.election(ELECTION).map_err(|error| Failure::usage(error.to_string()))?;
        let fence = FileFence::open(self.folder.fences(), election.name()).map_err(broken)?;
        let mut candidacy = election.candidate(self.name.as_str()).fence(fence.clone()).stand().await?;
        out_json(&Report::InLine)?;
        while let Some(leadership) = candidacy.elected().await? {
            let term = leadership.term();
            let token = term.token().get();
            out_json(&Report::Elected { token })?;
            let writer =
                LedgerWriter { term, fence: fence.clone(), ledger: self.folder.ledger(), name: self.name.clone() };
            let done = tokio::task::spawn_blocking(move || writer.write_on()).await;
            done.map_err(|error| Failure::error(error.to_string()))??;
            out_json(&Report::Stopped { token })?;
        }
        Ok(0)
    }
}

/// The work of one term.
struct LedgerWriter {
    term: Term,
    fence: FileFence,
    ledger: PathBuf,
    name: String,
}

impl LedgerWriter {
    /// Looks, thinks, writes, and begins again.
    fn write_on(&self) -> Result<(), Failure> {
        let token = self.term.token();
        while !self.term.is_stopping() && self.term.check().is_ok() {
            out_json(&Report::Thinking { token: token.get() })?;
            thread::sleep(THINKING);
            match self.fence.write(token, || self.append(token)) {
                Ok(written) => {
                    written.map_err(|error| Failure::error(format!("cannot write the ledger: {error}")))?;
                    out_json(&Report::Wrote { token: token.get() })?;
                }
                Err(FenceError::Stale { mark, .. }) => {
                    out_json(&Report::Refused { token: token.get(), mark: mark.get() })?;
                    return Ok(());
                }
                // Another one is in the middle of a write: look again whether we still lead.
                Err(error) if error.is_transient() => {}
                Err(error) => return Err(broken(error)),
            }
        }
        Ok(())
    }

    fn append(&self, token: &FencingToken) -> std::io::Result<()> {
        let mut ledger = OpenOptions::new().create(true).append(true).open(&self.ledger)?;
        // In one piece: one that is killed in the middle of a line spoils the next.
        ledger.write_all(format!("{} {}\n", token.get(), self.name).as_bytes())
    }
}

fn broken(error: FenceError) -> Failure {
    Failure::error(error.to_string())
}
