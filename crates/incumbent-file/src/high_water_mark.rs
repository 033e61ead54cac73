//! The high-water mark: the one number per directory up to which nothing is ever drawn again.
//!
//! It is kept as names of empty files, `high-water-mark/<n>`, and the largest counts. So raising it
//! is one atomic step that cannot be undone by a process that comes late: one that was stopped
//! while it raised the mark to 11 adds a name that no longer matters when others have raised it to
//! 50. A file that is replaced by rename would go back to 11. And nothing can be torn, since the
//! files are empty.

use std::sync::atomic::{AtomicU64, Ordering};

use incumbent_store::{StoreError, Token};

use crate::disk::Disk;
use crate::record::corrupt;

const DIR: &str = "high-water-mark";
/// A reading can come between a raise and the removal of the older names, and see neither.
const READS: usize = 100;

/// Whether a number can have been drawn: numbers are drawn one by one, and no store lives to see
/// the last ones. A forged entry with one of those would raise the mark to where nothing is left to
/// draw, for ever.
pub(crate) fn is_drawn(number: u64) -> bool {
    (1..=Token::MAX - (1 << 32)).contains(&number)
}

#[derive(Debug, Default)]
pub(crate) struct HighWaterMark {
    /// What this process knows it to be at least.
    seen: AtomicU64,
    /// What this process knows to be on the disk.
    durable: AtomicU64,
}

impl HighWaterMark {
    /// Makes that of a new directory.
    pub(crate) fn create(disk: &Disk) -> Result<(), StoreError> {
        disk.make_dir(DIR)?;
        if disk.list(DIR)?.is_some_and(|names| names.is_empty()) {
            disk.touch(&format!("{DIR}/0"))?;
        }
        Ok(disk.sync_dir(DIR)?)
    }

    pub(crate) fn read(&self, disk: &Disk) -> Result<u64, StoreError> {
        for _ in 0..READS {
            if let Some(largest) = numbers(disk)?.last() {
                let before = self.seen.fetch_max(*largest, Ordering::SeqCst);
                return Ok(before.max(*largest));
            }
        }
        Err(corrupt(disk, DIR, "it is empty: tokens could be given twice"))
    }

    /// Nothing up to `to` is drawn from now on, as long as the host runs.
    pub(crate) fn raise(&self, disk: &Disk, to: u64) -> Result<(), StoreError> {
        if self.seen.load(Ordering::SeqCst) >= to || self.read(disk)? >= to {
            return Ok(());
        }
        disk.touch(&format!("{DIR}/{to}"))?;
        self.seen.fetch_max(to, Ordering::SeqCst);
        Ok(())
    }

    /// Nothing up to `to` is drawn from now on, whatever happens to the host.
    pub(crate) fn raise_durably(&self, disk: &Disk, to: u64) -> Result<(), StoreError> {
        if self.durable.load(Ordering::SeqCst) >= to {
            return Ok(());
        }
        self.raise(disk, to)?;
        let names = numbers(disk)?;
        disk.sync_dir(DIR)?;
        let Some((largest, older)) = names.split_last() else {
            return Err(corrupt(disk, DIR, "it is empty: tokens could be given twice"));
        };
        self.durable.fetch_max(*largest, Ordering::SeqCst);
        // From the smallest up: a reader in between never sees less than was there before.
        older.iter().try_for_each(|number| Ok(disk.remove_file(&format!("{DIR}/{number}"))?))
    }
}

fn numbers(disk: &Disk) -> Result<Vec<u64>, StoreError> {
    let names = disk.list(DIR)?.ok_or_else(|| corrupt(disk, DIR, "it is missing: tokens could be given twice"))?;
    let number = |name: &String| {
        let number = name.parse::<u64>().ok().filter(|number| *number == 0 || is_drawn(*number));
        number.ok_or_else(|| corrupt(disk, &format!("{DIR}/{name}"), "it was not written by incumbent"))
    };
    let mut numbers = names.iter().map(number).collect::<Result<Vec<_>, _>>()?;
    numbers.sort_unstable();
    Ok(numbers)
}
