//! What the record of terms says of this process, for people: where its work is done, and when
//! something happened.

use std::fs::{read_link, read_to_string};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use incumbent_core::Origin;

/// Work that ends with this process. What cannot be read is left out.
pub(crate) fn this_process() -> Arc<Origin> {
    static ORIGIN: OnceLock<Arc<Origin>> = OnceLock::new();
    ORIGIN.get_or_init(|| Arc::new(Origin::new(host(), boot(), process()))).clone()
}

/// Work on this host that may outlive this process.
pub(crate) fn this_host() -> Arc<Origin> {
    Arc::new(Origin::new(host(), boot(), ""))
}

/// By the wall clock, in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
}

fn host() -> String {
    line_of("/proc/sys/kernel/hostname")
}

fn boot() -> String {
    line_of("/proc/sys/kernel/random/boot_id")
}

fn line_of(file: &str) -> String {
    read_to_string(file).unwrap_or_default().trim_end().to_owned()
}

/// Its number, when it started (in ticks since the host did), and in which namespace it has that
/// number.
fn process() -> String {
    let stat = read_to_string("/proc/self/stat").unwrap_or_default();
    // The name before it may have anything in it, parentheses and spaces as well.
    let started = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(19));
    let namespace = read_link("/proc/self/ns/pid").ok();
    match (started, namespace.as_ref().and_then(|namespace| namespace.to_str())) {
        (Some(started), Some(namespace)) => format!("{} {started} {namespace}", std::process::id()),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_from_every_other_of_this_start_of_the_host() {
        let origin = this_process();
        assert!(!origin.host.is_empty());
        assert_eq!(origin.boot.len(), 36);
        let words: Vec<&str> = origin.process.split(' ').collect();
        let [pid, started, namespace] = words[..] else { panic!("{origin:?}") };
        assert_eq!(pid, std::process::id().to_string());
        assert!(started.parse::<u64>().is_ok_and(|ticks| ticks > 0), "{origin:?}");
        assert!(namespace.starts_with("pid:["), "{origin:?}");
        assert_eq!(*this_host(), Origin::new(origin.host.clone(), origin.boot.clone(), ""));
    }
}
