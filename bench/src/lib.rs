//! What the benchmarks share: taking times, and saying them as a table.
//!
//! These machines are noisy and differ from each other, so a number alone says little: each line
//! has a yardstick that runs in the same process, turn and turn about with ours, and the ratio is
//! what to compare.

pub mod handover;
pub mod members;
pub mod ours;
pub mod plot;

use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

/// Times of one thing.
#[derive(Clone, Debug, Default)]
pub struct Times(Vec<Duration>);

impl Times {
    /// Adds one.
    pub fn push(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The time that so many percent are below. Zero if there is none.
    pub fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let last = sorted.len().saturating_sub(1);
        sorted.get(last * percent / 100).copied().unwrap_or_default()
    }

    /// The same, in milliseconds.
    pub fn millis(&self, percent: usize) -> f64 {
        self.percentile(percent).as_secs_f64() * 1000.0
    }

    /// Runs a program to compare with, and adds what it has measured by its own clock: it says
    /// `times`, and nanoseconds.
    ///
    /// # Panics
    ///
    /// If it fails, or says something else: then there is nothing to compare with.
    #[allow(clippy::expect_used, reason = "a benchmark that cannot measure stops")]
    pub fn add_from(&mut self, peer: &mut Command) {
        let output = peer.output().expect("the peer runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        let numbers = said.strip_prefix("times ").expect("times").split_whitespace();
        self.0.extend(numbers.map(|number| Duration::from_nanos(number.parse().expect("a number"))));
    }
}

/// A table with a heading, columns aligned.
#[derive(Debug)]
pub struct Table {
    title: String,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub fn new(title: &str, columns: &[&str]) -> Table {
        Table { title: title.to_owned(), rows: vec![columns.iter().map(|column| (*column).to_owned()).collect()] }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The table as Markdown that is also aligned for a terminal, under its title.
    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width =
            |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
        let widths: Vec<_> = (0..columns).map(|column| width(column).unwrap_or(0).max(3)).collect();
        let mut text = format!("\n{}:\n\n", self.title);
        for (number, row) in self.rows.iter().enumerate() {
            for (cell, width) in row.iter().zip(&widths) {
                let _ = write!(text, "| {cell:<width$} ");
            }
            text.push_str("|\n");
            if number == 0 {
                widths.iter().for_each(|width| text.push_str(&format!("| {} ", "-".repeat(*width))));
                text.push_str("|\n");
            }
        }
        text
    }
}

/// Bytes of this process that are in memory now.
pub fn resident_bytes() -> std::io::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let kib = text.lines().find_map(|line| line.strip_prefix("Rss:")).and_then(|rest| rest.split_whitespace().next());
    let kib: u64 = kib.and_then(|kib| kib.parse().ok()).ok_or(std::io::ErrorKind::InvalidData)?;
    Ok(kib * 1024)
}
