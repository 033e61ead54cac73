//! Claims: what the processes of this host that are in office say about it, in a file each.
//!
//! A claim is for those who look from outside. It decides nothing, and a leader that cannot write
//! one leads all the same. A claim counts only while its process lives; a file that a killed
//! process has left behind does not.
//!
//! Claims are written by a thread of their own, so that a disk that hangs holds up no renewal.
//! A leader that gives its office back takes its claim back first, and waits a second at most
//! for the file to go; one that has lost its office shows a deadline of zero until its work has
//! stopped.
//!
//! A suspended process cannot take its claim back: whether its work is gone is seen by its
//! guardian, which is the parent of all of it.
//!
//! Readers look where claims usually are, and where each running candidate would put them by
//! its own environment and file system (`/proc/PID/root`), since a service's `/tmp` may be its
//! own. Work is known by what it was started with (election, token, the store's identity), so
//! what has outlived its leader and its guardian is found, too.

mod candidates;
mod directories;
mod keeper;
mod last_word;
mod process;
mod reader;
mod work;

use serde::{Deserialize, Serialize};

pub(crate) use directories::file_of_shots;
pub(crate) use keeper::{Claim, ClaimKeeper};
pub(crate) use last_word::{LastWord, has_stopped};
pub(crate) use reader::read_claims;
pub(crate) use work::{ELECTION, LAST_TERM, STORE_ID, TOKEN};

/// How a file of a claim ends.
const ENDING: &str = ".claim";

/// A claim as it is on file. Moments are those of the boot-time clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ClaimOnFile {
    v: u32,
    pid: u32,
    /// When the process was started, in the kernel's ticks: numbers of processes come again.
    start: u64,
    /// Where the number is that of the process.
    pid_namespace: u64,
    boot: String,
    /// Processes with the same one read the same clock.
    clock: String,
    name: String,
    election: String,
    /// The identity of the store.
    store: Option<String>,
    token: Option<u64>,
    /// Zero: the term is over, and the work has not said yet that it has stopped. Nothing: nothing
    /// bounds the term.
    deadline_ns: Option<u64>,
    /// The work was asked to stop.
    stopping: bool,
    /// The URL of the store, without passwords.
    #[serde(default)]
    url: Option<String>,
    /// The process that stops the work when the time is over, whatever becomes of this one: its
    /// number, and its start.
    #[serde(default)]
    guardian: Option<(u32, u64)>,
    /// The last renewals, oldest first.
    #[serde(default)]
    renewals: Vec<Renewed>,
}

/// A renewal as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Renewed {
    /// How much of the time was left.
    pub(crate) left_ms: u64,
    /// How much there was afterwards.
    pub(crate) lasts_ms: u64,
}

/// What the processes of one host claim, as it was when it was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HostClaims {
    pub(crate) v: u32,
    pub(crate) host: String,
    /// Which boot of it this is: two hosts may have one name. Empty: unknown.
    #[serde(default)]
    pub(crate) boot: String,
    pub(crate) claims: Vec<LivingClaim>,
    /// What could not be looked at, and why: claims may be missing.
    pub(crate) unread: Vec<String>,
    /// Processes that work under an office which none of these claims.
    #[serde(default)]
    pub(crate) work: Vec<Work>,
}

/// A process that was started under an office.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) pid: u32,
    pub(crate) program: String,
    pub(crate) election: String,
    /// The identity of the store.
    pub(crate) store: String,
    pub(crate) token: u64,
}

/// What a living process says of its office.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LivingClaim {
    pub(crate) pid: u32,
    pub(crate) name: String,
    pub(crate) election: String,
    /// The identity of the store.
    pub(crate) store: Option<String>,
    pub(crate) token: Option<u64>,
    /// How much longer it may believe so if it is not renewed. Nothing: nothing bounds it.
    pub(crate) remaining_ms: Option<u64>,
    /// Its work was asked to stop.
    pub(crate) stopping: bool,
    /// The process is stopped (SIGSTOP, Ctrl-Z), and can notice nothing.
    pub(crate) suspended: bool,
    /// Its time is over, and its guardian has stopped all that it had started.
    #[serde(default)]
    pub(crate) work_gone: bool,
    /// The URL of the store, without passwords.
    #[serde(default)]
    pub(crate) url: Option<String>,
    /// The last renewals, oldest first.
    #[serde(default)]
    pub(crate) renewals: Vec<Renewed>,
}

impl LivingClaim {
    /// Whether it still says that it leads.
    pub(crate) fn is_valid(&self) -> bool {
        self.remaining_ms != Some(0)
    }
}
