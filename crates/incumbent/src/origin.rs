//! What the record of terms says of this process, for people: where its work is done, and when
//! something happened.

use std::fs::{read_link, read_to_string};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use incumbent_core::Origin;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// Work that ends with this process. What cannot be read is left out.
pub(crate) fn this_process() -> Arc<Origin> {
    static ORIGIN: OnceLock<Arc<Origin>> = OnceLock::new();
    ORIGIN.get_or_init(|| Arc::new(Origin::new(host(), boot(), process()))).clone()
}

/// Work on this host that may outlive this process.
pub(crate) fn this_host() -> Arc<Origin> {
    Arc::new(Origin::new(host(), boot(), ""))
}

/// Whether work that ends with its process has certainly ended: the process was one of this start
/// of this host, in our namespaces, and is no more. Of others nothing can be said from here:
/// another start of a host of the same name may be that of another host.
pub(crate) fn has_died(origin: &Origin) -> bool {
    let ours = this_process();
    let mut words = origin.process.splitn(3, ' ');
    let (Some(pid), Some(started), Some(namespaces)) = (words.next(), words.next(), words.next()) else { return false };
    let same_host = !origin.boot.is_empty() && origin.boot == ours.boot;
    let same_namespaces = ours.process.splitn(3, ' ').nth(2) == Some(namespaces);
    let number = pid.parse().ok().and_then(Pid::from_raw);
    let Some(number) = number.filter(|_| same_host && same_namespaces && started.parse::<u64>().is_ok()) else {
        return false;
    };
    match read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => started_at(&stat).is_some_and(|at| at != started),
        // What another user runs may be hidden from us there: only the kernel's word counts.
        Err(_) => test_kill_process(number) == Err(Errno::SRCH),
    }
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

/// Its number, when it started (in ticks since the host did), and in which namespaces of numbers
/// and of time it did.
fn process() -> String {
    let stat = read_to_string("/proc/self/stat").unwrap_or_default();
    let namespace = |of: &str| read_link(format!("/proc/self/ns/{of}")).ok()?.into_os_string().into_string().ok();
    // A /proc of other namespaces than ours speaks of another process.
    if stat.split(' ').next() != Some(std::process::id().to_string().as_str()) {
        return String::new();
    }
    // Kernels before 5.6 have one time.
    let time = namespace("time").unwrap_or_else(|| "time".to_owned());
    match (started_at(&stat), namespace("pid")) {
        (Some(started), Some(numbers)) => format!("{} {started} {numbers} {time}", std::process::id()),
        _ => String::new(),
    }
}

/// When a process started, from its `stat`.
fn started_at(stat: &str) -> Option<&str> {
    // The name before it may have anything in it, parentheses and spaces as well.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_of_this_start_of_the_host_and_of_our_namespace_is_known_to_have_died() {
        let ours = this_process();
        let of = |boot: &str, process: String| Origin::new("anywhere", boot, process);
        assert!(!has_died(&ours), "this one lives");
        let [pid, started, namespace] = ours.process.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{ours:?}") };
        assert!(has_died(&of(&ours.boot, format!("{pid} {started}0 {namespace}"))), "another process has its number");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = child.id();
        child.wait().unwrap();
        assert!(has_died(&of(&ours.boot, format!("{gone} 7 {namespace}"))), "there is none of that number");
        for unknown in [
            of("another boot", format!("{gone} 7 {namespace}")),
            of("", format!("{gone} 7 {namespace}")),
            of(&ours.boot, format!("{gone} 7 pid:[1]")),
            // Where the time is another one, a living process has another start.
            of(&ours.boot, format!("{pid} {started}0 {namespace}0")),
            of(&ours.boot, format!("{gone} 7")),
            of(&ours.boot, format!("../1 7 {namespace}")),
            of(&ours.boot, String::new()),
        ] {
            assert!(!has_died(&unknown), "{unknown:?}");
        }
    }

    #[test]
    fn a_process_is_told_from_every_other_of_this_start_of_the_host() {
        let origin = this_process();
        assert!(!origin.host.is_empty());
        assert_eq!(origin.boot.len(), 36);
        let words: Vec<&str> = origin.process.split(' ').collect();
        let [pid, started, namespace, time] = words[..] else { panic!("{origin:?}") };
        assert!(time.starts_with("time"), "{origin:?}");
        assert_eq!(pid, std::process::id().to_string());
        assert!(started.parse::<u64>().is_ok_and(|ticks| ticks > 0), "{origin:?}");
        assert!(namespace.starts_with("pid:["), "{origin:?}");
        assert_eq!(*this_host(), Origin::new(origin.host.clone(), origin.boot.clone(), ""));
    }
}
