//! The health checks of `run` and `campaign`, as they are written on the command line.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use incumbent::health::{CommandCheck, DiskCheck, HealthChecks, HttpCheck, MemoryCheck, TcpCheck, WriteCheck};

use crate::args::HealthArgs;
use crate::claims;
use crate::duration::parse_duration;
use crate::failure::Failure;
use crate::store_url;

/// Below which size a candidate is unfit, and below which it is unwell, if that was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    unfit: u64,
    unwell: Option<u64>,
}

/// Something about a place: this directory, unless another was named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct At<T> {
    place: PathBuf,
    limit: T,
}

/// What was asked for.
pub(crate) fn checks(args: &HealthArgs) -> HealthChecks {
    let mut checks = HealthChecks::new();
    if let Some(interval) = args.health_interval {
        checks = checks.every(interval);
    }
    if let Some(timeout) = args.health_timeout {
        checks = checks.timeout(timeout);
    }
    if let Some(well_for) = args.health_well_for {
        checks = checks.well_for(well_for);
    }
    if let Some(Sizes { unfit, unwell }) = args.min_memory {
        let check = MemoryCheck::at_least(unfit);
        checks = checks.check(unwell.into_iter().fold(check, MemoryCheck::unwell_below));
    }
    for At { place, limit: Sizes { unfit, unwell } } in &args.min_disk {
        let check = DiskCheck::at_least(place, *unfit);
        checks = checks.check(unwell.iter().copied().fold(check, DiskCheck::unwell_below));
    }
    for At { place, limit } in &args.max_write_time {
        checks = checks.check(WriteCheck::at_most(place, *limit));
    }
    for line in &args.health_cmd {
        checks = checks.check(command(line));
    }
    for check in &args.health_http {
        checks = checks.check(check.clone());
    }
    for address in &args.health_tcp {
        checks = checks.check(TcpCheck::new(address));
    }
    checks
}

/// What is said of checks has an effect only where there is one.
pub(crate) fn check_usage(args: &HealthArgs) -> Result<(), Failure> {
    let said = [
        ("--health-interval", args.health_interval.is_some()),
        ("--health-timeout", args.health_timeout.is_some()),
        ("--health-well-for", args.health_well_for.is_some()),
    ];
    let lists = [args.health_cmd.len(), args.health_http.len(), args.health_tcp.len(), args.min_disk.len()];
    let many = lists.into_iter().sum::<usize>() + args.max_write_time.len() + usize::from(args.min_memory.is_some());
    match said.into_iter().find(|(_, is_there)| *is_there) {
        Some((option, _)) if many == 0 => {
            Err(Failure::usage(format!("{option} means nothing here: nothing is checked"))
                .next("name a check, e.g. --health-cmd ./fit, or leave it out"))
        }
        _ => Ok(()),
    }
}

/// It is told no more than COMMAND is.
fn command(line: &str) -> CommandCheck {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]).env_remove("NOTIFY_SOCKET").env_remove(claims::TOKEN).env_remove(claims::LAST_TERM);
    if store_url::variable_has_secret() {
        command.env_remove(store_url::VARIABLE);
    }
    CommandCheck::new(command).named(program_of(line))
}

/// What the line is called in logs and where health is shown: its program alone, since the rest may
/// hold a password. A line that begins with anything but a plain word is called by its shell.
fn program_of(line: &str) -> &str {
    let word = line.split_whitespace().next().unwrap_or_default();
    let is_plain = |letter: char| letter.is_alphanumeric() || "_./+-".contains(letter);
    let name = word.trim_end_matches(';').rsplit('/').next().unwrap_or_default();
    if !name.is_empty() && word.trim_end_matches(';').chars().all(is_plain) { name } else { "sh" }
}

/// `512M`, or `512M,1G`.
pub(crate) fn parse_sizes(text: &str) -> Result<Sizes, String> {
    let (unfit, unwell) = match text.split_once(',') {
        Some((unfit, unwell)) => (parse_size(unfit)?, Some(parse_size(unwell)?)),
        None => (parse_size(text)?, None),
    };
    if unwell.is_some_and(|unwell| unwell < unfit) {
        return Err("the first size is the smaller one: unfit below it, unwell below the second".into());
    }
    Ok(Sizes { unfit, unwell })
}

/// `1G`, `/var=1G` or `/var=1G,5G`.
pub(crate) fn parse_sizes_at(text: &str) -> Result<At<Sizes>, String> {
    at(text, parse_sizes)
}

/// `200ms` or `/var=200ms`.
pub(crate) fn parse_time_at(text: &str) -> Result<At<Duration>, String> {
    at(text, parse_duration)
}

fn at<T>(text: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<At<T>, String> {
    let (place, limit) = text.rsplit_once('=').unwrap_or((".", text));
    if place.is_empty() {
        return Err("name a directory before the =".into());
    }
    Ok(At { place: place.into(), limit: parse(limit)? })
}

/// A URL that can be probed.
pub(crate) fn parse_http(text: &str) -> Result<HttpCheck, String> {
    HttpCheck::new(text).map_err(|error| error.to_string())
}

/// `HOST:PORT`.
pub(crate) fn parse_address(text: &str) -> Result<String, String> {
    let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
    match port {
        Some(Ok(_)) => Ok(text.to_owned()),
        _ => Err("write HOST:PORT, e.g. 10.0.0.7:5432".into()),
    }
}

/// Bytes, or with K, M, G or T: powers of 1024.
fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("write a size like 512M or 1.5G, not {text:?}");
    let trimmed = text.strip_suffix("iB").or(text.strip_suffix('B')).unwrap_or(text);
    let shift = trimmed.chars().last().and_then(|unit| "KMGT".find(unit.to_ascii_uppercase()));
    let number = if shift.is_some() { &trimmed[..trimmed.len() - 1] } else { trimmed };
    if number.is_empty() || !number.chars().all(|c| c.is_ascii_digit() || c == '.') {
        return Err(wrong());
    }
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let bytes = number * (1u64 << shift.map_or(0, |power| 10 * (power + 1))) as f64;
    if (1.0..1e18).contains(&bytes) {
        Ok(bytes as u64)
    } else {
        Err("it must be a byte at least, and less than 800 PiB".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("1", 1),
            ("4096", 4096),
            ("1K", 1024),
            ("512M", 512 << 20),
            ("1.5g", 3 << 29),
            ("2GiB", 2 << 30),
            ("1TB", 1 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for bad in ["", "M", "-1", "1X", "1 G", "0", "0.1", "1e9", "NaN", "inf", "1..5G", "99999999T", "ü"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_second_size_says_from_where_on_it_is_unwell() {
        assert_eq!(parse_sizes("1K"), Ok(Sizes { unfit: 1024, unwell: None }));
        assert_eq!(parse_sizes("1K,3K"), Ok(Sizes { unfit: 1024, unwell: Some(3072) }));
        assert!(parse_sizes("3K,1K").unwrap_err().contains("the smaller one"));
        assert!(parse_sizes("1K,").is_err());
    }

    #[test]
    fn a_place_comes_before_the_limit_and_is_this_directory_if_there_is_none() {
        assert_eq!(parse_sizes_at("1K").unwrap().place, PathBuf::from("."));
        assert_eq!(parse_sizes_at("/a=b=1K,2K").unwrap().place, PathBuf::from("/a=b"));
        let at = At { place: "/var".into(), limit: Duration::from_millis(200) };
        assert_eq!(parse_time_at("/var=200ms"), Ok(at));
        assert!(parse_sizes_at("=1K").is_err());
        assert!(parse_time_at("/var").is_err());
    }

    #[test]
    fn an_address_has_a_port() {
        assert!(parse_address("db:5432").is_ok() && parse_address("[::1]:80").is_ok());
        for bad in ["db", ":80", "db:", "db:x", "db:99999"] {
            assert!(parse_address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_command_is_called_by_its_program_and_nothing_more_of_its_line() {
        assert_eq!(program_of("/usr/bin/curl -fsS -u ops:secret http://localhost/"), "curl");
        assert_eq!(program_of("  ./fit; exit 2"), "fit");
        for line in ["PASSWORD=secret ./fit", "'secret' x", "$(secret)", "", "secret|x", "/"] {
            assert_eq!(program_of(line), "sh", "{line}");
        }
    }
}
