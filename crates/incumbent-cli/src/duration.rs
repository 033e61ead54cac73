//! Durations as people write and read them: `15s`, `1m30s`, `250ms`.

use std::time::Duration;

use incumbent::store::{LONGEST, parse_duration as parse_with_unit};

/// A duration that is not zero.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let span = read(text)?;
    if span.is_zero() { Err("it must not be zero; write e.g. 15s".into()) } else { Ok(span) }
}

/// The guardian begins to kill a command a little before its deadline
/// ([`HEAD_START`](incumbent_guardian::HEAD_START)), so that it is surely dead by then: not enough
/// is left of a shorter TTL.
const SHORTEST_TTL: Duration = Duration::from_millis(200);

/// How long a leader may be silent.
pub(crate) fn parse_ttl(text: &str) -> Result<Duration, String> {
    let ttl = parse_duration(text)?;
    if ttl < SHORTEST_TTL {
        Err("a TTL is at least 200ms: a shorter one leaves no time for any work".into())
    } else {
        Ok(ttl)
    }
}

/// How long to wait for one's turn. Not waiting at all is an option of its own.
pub(crate) fn parse_wait(text: &str) -> Result<Duration, String> {
    let span = read(text)?;
    if span.is_zero() { Err("to not wait at all, use --try".into()) } else { Ok(span) }
}

/// How long something may take that can be left out.
pub(crate) fn parse_limit(text: &str) -> Result<Duration, String> {
    read(text)
}

/// As programs read it.
pub(crate) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A number alone is seconds, as for sleep(1) and flock(1).
fn read(text: &str) -> Result<Duration, String> {
    if text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '.')) {
        return Err("a time cannot be negative; write e.g. 15s".into());
    }
    let is_number = text.chars().all(|c| c.is_ascii_digit() || c == '.');
    let duration = if is_number { parse_with_unit(&format!("{text}s")) } else { parse_with_unit(text) };
    match duration {
        None => Err(format!("write a time like 15s, 250ms or 1m30s, not {text:?}")),
        Some(duration) if duration > LONGEST => Err("a year is the maximum".into()),
        Some(duration) => Ok(duration),
    }
}

/// `3.2 ms`, `14.7 s`: three digits are enough for people.
pub(crate) fn show(span: Duration) -> String {
    let seconds = span.as_secs_f64();
    let (number, unit) = match seconds {
        s if s < 0.000_999_5 => (s * 1e6, "µs"),
        s if s < 0.999_5 => (s * 1e3, "ms"),
        s if s < 120.0 => (s, "s"),
        s if s < 7200.0 => (s / 60.0, "min"),
        s => (s / 3600.0, "h"),
    };
    let digits = if number >= 99.95 {
        0
    } else if number >= 9.995 {
        1
    } else {
        2
    };
    let number = format!("{number:.digits$}");
    let number = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { &number };
    format!("{number} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_alone_is_seconds_and_there_is_a_shortest_and_a_longest_time() {
        for (text, ms) in [("1m30s", 90_000), ("250ms", 250), ("5", 5_000), ("0.5", 500)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for bad in ["", "s", "0s", "0", "5y", "400d", "99999999999999999999d", "1m5", "."] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_negative_time_is_called_so() {
        for negative in ["-1s", "-1", "-0.5", "-.5m"] {
            assert!(parse_ttl(negative).unwrap_err().contains("negative"), "{negative}");
            assert!(parse_wait(negative).unwrap_err().contains("negative"), "{negative}");
        }
        assert!(parse_ttl("--grace").unwrap_err().contains("write a time like"));
    }

    #[test]
    fn a_ttl_leaves_time_for_work() {
        for short in ["1ms", "60ms", "199ms", "0.1"] {
            assert!(parse_ttl(short).unwrap_err().contains("at least 200ms"), "{short}");
        }
        assert_eq!(parse_ttl("200ms"), Ok(SHORTEST_TTL));
    }

    #[test]
    fn not_waiting_at_all_has_an_option_of_its_own() {
        for nothing in ["0", "0s", "0.0", "00ms"] {
            assert!(parse_wait(nothing).unwrap_err().contains("--try"), "{nothing}");
        }
        assert_eq!(parse_wait("5"), Ok(Duration::from_secs(5)));
        for bad in ["", "s", "x"] {
            assert!(!parse_wait(bad).unwrap_err().contains("--try"), "{bad}");
        }
    }

    #[test]
    fn spans_are_shown_with_three_digits() {
        for (us, text) in [
            (0, "0 µs"),
            (12, "12 µs"),
            (3_210, "3.21 ms"),
            (999_999, "1 s"),
            (14_685_000, "14.7 s"),
            (600_000_000, "10 min"),
        ] {
            assert_eq!(show(Duration::from_micros(us)), text);
        }
    }
}
