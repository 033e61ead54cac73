//! What the record of terms says of this process, for people: where its work is done.

use std::fs::read_to_string;
use std::sync::{Arc, OnceLock};

use incumbent_core::Origin;
use incumbent_store::{BootClock, Namespaces, Process};

/// Work that ends with this process. What cannot be read is left out.
pub(crate) fn this_process() -> Arc<Origin> {
    static ORIGIN: OnceLock<Arc<Origin>> = OnceLock::new();
    ORIGIN.get_or_init(|| Arc::new(Origin::new(host(), boot(), process()))).clone()
}

/// Work on this host that may outlive this process.
pub(crate) fn this_host() -> Arc<Origin> {
    Arc::new(Origin::new(host(), boot(), ""))
}

/// Work on this host that a guardian ends once this process is gone.
pub(crate) fn this_guarded_process() -> Arc<Origin> {
    Arc::new((*this_process()).clone().guarded())
}

/// Asked of a process that is gone, by its number and its start (in the kernel's ticks): whether
/// its guardian has stopped all of its work.
pub(crate) type HasStopped = fn(u32, u64) -> bool;

/// Whether work that ends with its process, or is ended by its guardian, has certainly ended: the
/// process was one of this start of this host, in our namespaces, and is no more; and its guardian
/// has said that nothing is left. Of others nothing can be said from here: another start of a host
/// of the same name may be that of another host.
pub(crate) fn has_died(origin: &Origin, has_stopped: Option<HasStopped>) -> bool {
    let ours = this_process();
    let guarded = origin.guarded_process();
    let mut words = guarded.unwrap_or(&origin.process).splitn(3, ' ');
    let (Some(pid), Some(started), Some(namespaces)) = (words.next(), words.next(), words.next()) else { return false };
    let same_host = !origin.boot.is_empty() && origin.boot == ours.boot;
    let same_namespaces = ours.process.splitn(3, ' ').nth(2) == Some(namespaces);
    let (Ok(number), Ok(started)) = (pid.parse(), started.parse::<u64>()) else { return false };
    if !same_host || !same_namespaces {
        return false;
    }
    let is_gone = match Process::read(number) {
        Ok(Some(process)) => process.started != started || process.is_dead(),
        // It may be hidden from us.
        _ => Process::is_none_of(number),
    };
    is_gone && (guarded.is_none() || has_stopped.is_some_and(|has_stopped| has_stopped(number, started)))
}

fn host() -> String {
    read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim_end().to_owned()
}

fn boot() -> String {
    match BootClock::boot_id() {
        0 => String::new(),
        boot => format!("{boot:032x}"),
    }
}

/// Its number, when it started (in ticks since the host did), and in which namespaces of numbers
/// and of time it did.
fn process() -> String {
    let namespaces = Namespaces::this();
    match Process::this().filter(|_| namespaces.numbers != 0) {
        Some(Process { number, started, .. }) => {
            format!("{number} {started} pid:[{}] time:[{}]", namespaces.numbers, namespaces.time)
        }
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_of_this_start_of_the_host_and_of_our_namespace_is_known_to_have_died() {
        let ours = this_process();
        let of = |boot: &str, process: String| Origin::new("anywhere", boot, process);
        assert!(!has_died(&ours, None), "this one lives");
        let [pid, started, namespace] = ours.process.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{ours:?}") };
        assert!(
            has_died(&of(&ours.boot, format!("{pid} {started}0 {namespace}")), None),
            "another process has its number"
        );
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = child.id();
        child.wait().unwrap();
        assert!(has_died(&of(&ours.boot, format!("{gone} 7 {namespace}")), None), "there is none of that number");
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
            assert!(!has_died(&unknown, None), "{unknown:?}");
        }
    }

    #[test]
    fn guarded_work_has_ended_when_its_process_is_gone_and_its_guardian_has_said_so() {
        let ours = this_guarded_process();
        assert!(!has_died(&ours, Some(|_, _| true)), "this one lives");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = child.id();
        child.wait().unwrap();
        let namespace = ours.guarded_process().unwrap().splitn(3, ' ').nth(2).unwrap();
        let origin = Origin::new("anywhere", ours.boot.clone(), format!("{gone} 7 {namespace}")).guarded();
        assert!(has_died(&origin, Some(|_, started| started == 7)));
        assert!(!has_died(&origin, Some(|_, started| started != 7)), "its guardian has not said so");
        assert!(!has_died(&origin, None), "nobody knows where it would have said so");
        assert_eq!(*this_host(), (*this_host()).clone().guarded(), "of no process nothing can be known");
    }

    #[test]
    fn a_process_is_told_from_every_other_of_this_start_of_the_host() {
        let origin = this_process();
        assert!(!origin.host.is_empty());
        assert_eq!(origin.boot.len(), 32, "as a claim spells it");
        let words: Vec<&str> = origin.process.split(' ').collect();
        let [pid, started, namespace, time] = words[..] else { panic!("{origin:?}") };
        assert!(time.starts_with("time"), "{origin:?}");
        assert_eq!(pid, std::process::id().to_string());
        assert!(started.parse::<u64>().is_ok_and(|ticks| ticks > 0), "{origin:?}");
        assert!(namespace.starts_with("pid:["), "{origin:?}");
        assert_eq!(*this_host(), Origin::new(origin.host.clone(), origin.boot.clone(), ""));
    }
}
