//! Whether a candidate is fit to lead, found out while it stands.
//!
//! A [`HealthCheck`] looks at one thing and says what it found; a candidate is given some
//! ([`Candidate::health`](crate::Candidate::health)), and is what the worst of them says:
//!
//! | fitness | what it says | what follows |
//! | --- | --- | --- |
//! | [`Fit`](Fitness::Fit) | all is well | nothing |
//! | [`Unwell`](Fitness::Unwell) | somebody else would be better | its entry says so, and a leader hands its office to the best in line that is still fit once others that share the cause would have noticed it; if there is none, it stays |
//! | [`Unfit`](Fitness::Unfit) | this candidate does harm | it leaves the line, and its office after draining; once fit, it gets back in line |
//!
//! A candidate with checks gets in line once each of them has said something, and not before.
//!
//! One bad result changes nothing, and neither does one good one: see [`HealthChecks`] for how many
//! it takes. Each check has a thread of its own, and so has the arithmetic: a check may block, and
//! hang, and neither the renewals of the session nor the runtime notice. One that hangs counts as
//! what it says itself ([`HealthCheck::when_late`]), and is not started again before it has ended:
//! a disk that does not answer holds one thread, for good, and no more.
//!
//! ```
//! use std::time::Duration;
//! use incumbent::health::{DiskCheck, HealthChecks, MemoryCheck, TcpCheck};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let checks = HealthChecks::new()
//!     .check(MemoryCheck::at_least(1 << 20)) // below 1 MiB: unfit; below 2 MiB: unwell
//!     .check(DiskCheck::at_least("/", 1 << 20).unwell_below(8 << 20))
//!     .check(TcpCheck::new("127.0.0.1:9")) // nothing listens there: unwell
//!     .every(Duration::from_secs(10));
//! let client = incumbent::Client::connect("memory://health").await?;
//! let candidacy = client.election("jobs")?.candidate("node-1").health(checks).stand().await?;
//! println!("{}", candidacy.health()); // unwell: TCP 127.0.0.1:9: Connection refused
//! # assert_ne!(candidacy.health().fitness, incumbent::health::Fitness::Fit);
//! # Ok(())
//! # }
//! ```

mod assessment;
mod command;
mod disk;
mod error_rate;
mod limits;
mod memory;
mod monitor;
mod probe;
mod runtime;
mod write;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use incumbent_store::lock;

use assessment::Timing;

pub use command::CommandCheck;
pub use disk::DiskCheck;
pub use error_rate::ErrorRate;
pub use memory::MemoryCheck;
pub(crate) use monitor::Monitor;
pub use probe::{HttpCheck, ProbeError, TcpCheck};
pub use runtime::RuntimeCheck;
pub use write::WriteCheck;

/// How long a reason may be, in bytes: longer ones are cut.
const LONGEST_REASON: usize = 200;

/// How fit a candidate is, the better ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fitness {
    /// All is well.
    Fit,
    /// Somebody else would be better.
    Unwell,
    /// It does harm.
    Unfit,
}

impl fmt::Display for Fitness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fitness::Fit => "fit",
            Fitness::Unwell => "unwell",
            Fitness::Unfit => "unfit",
        })
    }
}

/// What a check has found, and what a candidate is as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// How fit.
    pub fitness: Fitness,
    /// Why, for people: one line, at most 200 bytes for each check. Empty for one that is fit.
    pub reason: String,
}

impl Health {
    /// All is well.
    pub fn fit() -> Health {
        Health { fitness: Fitness::Fit, reason: String::new() }
    }

    /// Somebody else would be better.
    pub fn unwell(reason: impl AsRef<str>) -> Health {
        Health::new(Fitness::Unwell, reason)
    }

    /// It does harm.
    pub fn unfit(reason: impl AsRef<str>) -> Health {
        Health::new(Fitness::Unfit, reason)
    }

    /// With the first line of this reason, unless all is well.
    pub fn new(fitness: Fitness, reason: impl AsRef<str>) -> Health {
        if fitness == Fitness::Fit {
            return Health::fit();
        }
        let line = reason.as_ref().trim().lines().next().unwrap_or_default();
        let mut reason = String::new();
        for c in line.chars().filter(|c| !c.is_control()) {
            if reason.len() + c.len_utf8() > LONGEST_REASON {
                break;
            }
            reason.push(c);
        }
        Health { fitness, reason }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason.as_str() {
            "" => write!(f, "{}", self.fitness),
            reason => write!(f, "{}: {reason}", self.fitness),
        }
    }
}

/// Looks at one thing that a leader needs.
///
/// ```
/// use std::time::Duration;
/// use incumbent::health::{Health, HealthCheck};
///
/// struct LicenceFile;
///
/// impl HealthCheck for LicenceFile {
///     fn name(&self) -> String {
///         "licence".into()
///     }
///
///     fn check(&mut self, _within: Duration) -> Health {
///         match std::fs::metadata("/etc/licence") {
///             Ok(_) => Health::fit(),
///             Err(error) => Health::unfit(error.to_string()),
///         }
///     }
/// }
/// ```
pub trait HealthCheck: Send + 'static {
    /// What it looks at, in a few words for people.
    fn name(&self) -> String;

    /// Looks once, on a thread of its own: it may block. An answer that takes longer than `within`
    /// counts as [`when_late`](HealthCheck::when_late) says, or as what it says if that is worse.
    fn check(&mut self, within: Duration) -> Health;

    /// What it says about the candidate if there is no answer in time.
    fn when_late(&self) -> Fitness {
        Fitness::Unfit
    }
}

/// The checks of a candidate, and their times.
///
/// Each check runs every 5 s and has 2 s to answer. Three results in a row that are worse make the
/// candidate worse; five that are better make it better, if they have lasted for 30 s. A check that
/// makes it worse again within an hour doubles these 30 s, up to 10 min. The first result of all
/// counts at once. A run without an answer after three times its 2 s counts at once, too.
///
/// A leader that is unwell waits for an interval, the 2 s, and a fifth of the interval for each of
/// the three results, before it hands over: others that share the cause have noticed it by then, if
/// they are checked as often.
///
/// A clone shares the checks: those of two candidates take turns.
#[derive(Clone, Debug, Default)]
pub struct HealthChecks {
    pub(crate) checks: Vec<SharedCheck>,
    pub(crate) timing: Timing,
}

/// Locked while it runs.
#[derive(Clone)]
pub(crate) struct SharedCheck(Arc<Mutex<Box<dyn HealthCheck>>>);

impl SharedCheck {
    /// Its name, and what its silence says. Not for when it may be running.
    fn describe(&self) -> (String, Fitness) {
        let check = lock(&self.0);
        (check.name(), check.when_late())
    }

    fn run(&self, within: Duration) -> Health {
        lock(&self.0).check(within)
    }
}

impl fmt::Debug for SharedCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HealthCheck")
    }
}

impl HealthChecks {
    /// None yet.
    pub fn new() -> HealthChecks {
        HealthChecks::default()
    }

    /// One more.
    pub fn check(mut self, check: impl HealthCheck) -> HealthChecks {
        self.checks.push(SharedCheck(Arc::new(Mutex::new(Box::new(check)))));
        self
    }

    /// How often each of them runs, give or take a tenth; 10 ms at least.
    pub fn every(mut self, interval: Duration) -> HealthChecks {
        self.timing.interval = interval.max(Duration::from_millis(10));
        self
    }

    /// How long each has to answer.
    pub fn timeout(mut self, timeout: Duration) -> HealthChecks {
        self.timing.timeout = timeout;
        self
    }

    /// How many results in a row make the candidate worse; one at least.
    pub fn down_after(mut self, results: usize) -> HealthChecks {
        self.timing.down_after = results.max(1);
        self
    }

    /// How many results in a row make the candidate better; one at least.
    pub fn up_after(mut self, results: usize) -> HealthChecks {
        self.timing.up_after = results.max(1);
        self
    }

    /// For how long they must have lasted.
    pub fn well_for(mut self, well_for: Duration) -> HealthChecks {
        self.timing.well_for = well_for;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_short_line_without_control_characters() {
        assert_eq!(Health::unwell("  \u{1b}[31mfull\t\nmore").to_string(), "unwell: [31mfull");
        assert_eq!(Health::unfit("é".repeat(150)).reason.len(), LONGEST_REASON);
        assert_eq!(Health::unfit(format!("a{}", "é".repeat(150))).reason.len(), LONGEST_REASON - 1);
        assert_eq!(Health::new(Fitness::Fit, "5 GiB free"), Health::fit());
        assert_eq!(Health::unfit("").to_string(), "unfit");
    }
}
