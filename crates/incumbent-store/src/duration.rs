//! Durations as they are written in URLs and on command lines.

use std::time::Duration;

/// Reads `250ms`, `15s`, `1.5s`, `1m30s`, `2h` or `1d`. Every number needs a unit: what a bare one
/// would mean differs from system to system. What is too long for a clock becomes
/// [`Duration::MAX`].
///
/// ```
/// use std::time::Duration;
/// use incumbent_store::parse_duration;
///
/// assert_eq!(parse_duration("1m30s"), Some(Duration::from_secs(90)));
/// assert_eq!(parse_duration("5"), None);
/// ```
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let (number, tail) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.')?);
        let (unit, tail) = tail.split_at(tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len()));
        let unit_s = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        let number: f64 = number.parse().ok()?;
        let part = Duration::try_from_secs_f64(number * unit_s).unwrap_or(Duration::MAX);
        total = total.saturating_add(part);
        rest = tail;
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, ms) in [
            ("15s", 15_000),
            ("250ms", 250),
            ("1.5s", 1_500),
            ("1m30s", 90_000),
            ("2h", 7_200_000),
            ("1d", 86_400_000),
            ("0s", 0),
        ] {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(ms)), "{text}");
        }
        assert_eq!(parse_duration("99999999999999999999d"), Some(Duration::MAX));
        for bad in ["", "s", "5", "-1s", "15 s", "1.2.3s", "5y", "1s5", "1m5", ".", ".s", "1e3s"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }
}
