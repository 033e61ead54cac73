//! How our own records are written: lines of a word and a value, readable with any tool.

use std::fmt::Write;

use crate::escape::{Digits, escape, unescape};

/// The first line of every record. Another number means another format.
const HEADER: &str = "incumbent 1";

/// Writes a record.
#[derive(Debug)]
pub struct Lines(String);

impl Default for Lines {
    fn default() -> Lines {
        Lines::new()
    }
}

impl Lines {
    /// One with nothing in it.
    pub fn new() -> Lines {
        Lines(format!("{HEADER}\n"))
    }

    /// Adds a word, which has no space in it, and any value.
    pub fn add(&mut self, word: &str, value: impl ToString) {
        let stays = |character: char| character != '%' && !character.is_ascii_control();
        _ = writeln!(self.0, "{word} {}", escape(value.to_string(), Digits::Lower, stays));
    }

    /// The record.
    pub fn finish(self) -> Vec<u8> {
        self.0.into_bytes()
    }
}

/// The words and values of a record; `None` if it is none of ours.
pub fn parse(record: &[u8]) -> Option<Vec<(&str, String)>> {
    let mut lines = std::str::from_utf8(record).ok()?.lines();
    if lines.next() != Some(HEADER) {
        return None;
    }
    lines
        .map(|line| {
            let (word, value) = line.split_once(' ')?;
            Some((word, String::from_utf8(unescape(value)?).ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_as_they_were() {
        let mut lines = Lines::new();
        let strange = "Wartung: \"später\" \\ 100 %0a\nsecond\r\n\tline ";
        lines.add("reason", strange);
        lines.add("empty", "");
        let record = lines.finish();
        assert_eq!(parse(&record), Some(vec![("reason", strange.to_owned()), ("empty", String::new())]));
    }

    #[test]
    fn what_is_not_ours_is_not_read() {
        for record in [&b""[..], b"incumbent 2\n", b"incumbent 1\nword\n", b"incumbent 1\na %f\n", b"\xff"] {
            assert_eq!(parse(record), None, "{record:?}");
        }
    }
}
