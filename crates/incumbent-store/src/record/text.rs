//! How our own records are written: lines of a word and a value, readable with any tool.

use std::fmt::Write;

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
        _ = writeln!(self.0, "{word} {}", escape(&value.to_string()));
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

fn escape(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for character in value.chars() {
        if character == '%' || (character.is_ascii_control()) {
            _ = write!(escaped, "%{:02x}", character as u32);
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// Undoes `%` followed by two hexadecimal digits.
pub fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        if *first != b'%' {
            bytes.push(*first);
            rest = tail;
            continue;
        }
        let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &tail[2..];
    }
    Some(bytes)
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

    #[test]
    fn a_percent_sign_needs_two_hexadecimal_digits() {
        assert_eq!(unescape("%41b"), Some(b"Ab".to_vec()));
        for bad in ["%", "%4", "%zz", "%+1", "%é"] {
            assert_eq!(unescape(bad), None, "{bad}");
        }
    }
}
