//! How long a small write takes until it is on the disk.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use incumbent_store::random;

use super::limits::Limits;
use super::{Health, HealthCheck};

/// What is written: a page.
const PAGE: [u8; 4096] = [0; 4096];

/// How long it takes to write a small file and have it on the disk. The file is removed again.
#[derive(Clone, Debug)]
pub struct WriteCheck {
    directory: PathBuf,
    limits: Limits,
}

impl WriteCheck {
    /// Unwell if a write in `directory` takes longer than `limit`. Unfit if it fails, or does not
    /// end in the time that checks have.
    pub fn at_most(directory: impl Into<PathBuf>, limit: Duration) -> WriteCheck {
        WriteCheck { directory: directory.into(), limits: Limits::at_most(limit.as_secs_f64(), f64::INFINITY) }
    }

    /// Unfit if a write takes longer than this.
    pub fn unfit_above(mut self, limit: Duration) -> WriteCheck {
        self.limits.set_unfit(limit.as_secs_f64());
        self
    }

    fn judge(&mut self, took: Duration) -> Health {
        let (fitness, limit) = self.limits.judge(took.as_secs_f64());
        let (took, limit) = (took.as_secs_f64() * 1e3, limit * 1e3);
        Health::new(fitness, format!("{took:.0} ms, {limit:.0} ms is the limit"))
    }
}

impl HealthCheck for WriteCheck {
    fn name(&self) -> String {
        format!("a write in {}", self.directory.display())
    }

    fn check(&mut self, _within: Duration) -> Health {
        // Not the name of a file that somebody has: it would be overwritten.
        let name = random().map(|bytes| format!(".incumbent-write-{:016x}", u64::from_ne_bytes(bytes)));
        let file = match name {
            Ok(name) => self.directory.join(name),
            Err(error) => return Health::unfit(error.to_string()),
        };
        let took = write(&file);
        // One that was not made need not be removed; one that stays does no harm.
        let _ = fs::remove_file(&file);
        match took {
            Ok(took) => self.judge(took),
            Err(error) => Health::unfit(error.to_string()),
        }
    }
}

/// How long it takes.
fn write(path: &Path) -> io::Result<Duration> {
    let began = Instant::now();
    let mut file = File::create_new(path)?;
    file.write_all(&PAGE)?;
    file.sync_all()?;
    Ok(began.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Fitness;
    use incumbent_testkit::TempDir;

    #[test]
    fn a_slow_write_is_unwell_and_a_failed_one_unfit_and_no_file_stays() {
        let directory = TempDir::new("write");
        let limit = Duration::from_millis(200);
        let mut check = WriteCheck::at_most(directory.path(), limit).unfit_above(limit * 2);
        let said = [100, 201, 190, 180, 500, 100].map(|ms| check.judge(Duration::from_millis(ms)).fitness);
        use Fitness::{Fit, Unfit, Unwell};
        assert_eq!(said, [Fit, Unwell, Unwell, Fit, Unfit, Fit]);
        assert_eq!(check.judge(limit * 3 / 2).to_string(), "unwell: 300 ms, 200 ms is the limit");

        let mut patient = WriteCheck::at_most(directory.path(), Duration::from_secs(600));
        assert_eq!(patient.check(Duration::ZERO), Health::fit());
        let mut impatient = WriteCheck::at_most(directory.path(), Duration::ZERO);
        assert_eq!(impatient.check(Duration::ZERO).fitness, Unwell);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        let mut nowhere = WriteCheck::at_most(directory.path().join("none"), limit);
        assert_eq!(nowhere.check(Duration::ZERO).to_string(), "unfit: No such file or directory (os error 2)");
    }
}
