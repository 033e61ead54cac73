//! Space that is left on a file system.

use std::path::PathBuf;
use std::time::Duration;

use super::limits::{Limits, show_bytes};
use super::{Health, HealthCheck};

/// Space on a file system that is left to this user.
#[derive(Clone, Debug)]
pub struct DiskCheck {
    path: PathBuf,
    limits: Limits,
}

impl DiskCheck {
    /// Unfit if fewer than so many bytes are free where `path` is, and unwell below twice as many.
    pub fn at_least(path: impl Into<PathBuf>, bytes: u64) -> DiskCheck {
        DiskCheck { path: path.into(), limits: Limits::at_least(bytes as f64 * 2.0, bytes as f64) }
    }

    /// Unwell below so many bytes.
    pub fn unwell_below(mut self, bytes: u64) -> DiskCheck {
        self.limits.set_unwell(bytes as f64);
        self
    }
}

impl HealthCheck for DiskCheck {
    fn name(&self) -> String {
        format!("disk space of {}", self.path.display())
    }

    fn check(&mut self, _within: Duration) -> Health {
        let free = match rustix::fs::statvfs(&self.path) {
            Ok(file_system) => file_system.f_bavail.saturating_mul(file_system.f_frsize) as f64,
            Err(error) => return Health::unfit(std::io::Error::from(error).to_string()),
        };
        let (fitness, limit) = self.limits.judge(free);
        Health::new(fitness, format!("{} free, {} wanted", show_bytes(free), show_bytes(limit)))
    }
}
