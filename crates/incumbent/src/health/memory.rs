//! Memory that is left: the host's, or what the control groups of this process leave of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::limits::{Limits, show_bytes};
use super::{Health, HealthCheck};

/// Memory that this process can still get: what the kernel says is available on the host, or what
/// is left below the limit of a control group, if that is less (a container's, a service's).
///
/// Of what a group has in use, files that were read and not used lately count as available: the
/// kernel drops them before it kills.
#[derive(Clone, Debug)]
pub struct MemoryCheck {
    limits: Limits,
    /// Where `/proc` and the control groups are looked for.
    root: PathBuf,
}

impl MemoryCheck {
    /// Unfit below so many bytes, and unwell below twice as many.
    pub fn at_least(bytes: u64) -> MemoryCheck {
        MemoryCheck { limits: Limits::at_least(bytes as f64 * 2.0, bytes as f64), root: "/".into() }
    }

    /// Unwell below so many bytes.
    pub fn unwell_below(mut self, bytes: u64) -> MemoryCheck {
        self.limits.set_unwell(bytes as f64);
        self
    }

    fn available(&self) -> Result<u64, String> {
        let meminfo = self.read("proc/meminfo")?;
        let host = meminfo.lines().find_map(|line| {
            let kib = line.strip_prefix("MemAvailable:")?.trim().strip_suffix("kB")?;
            kib.trim().parse::<u64>().ok()?.checked_mul(1024)
        });
        let host = host.ok_or("/proc/meminfo does not say how much memory is available")?;
        Ok(self.groups().iter().filter_map(|group| group.available()).fold(host, u64::min))
    }

    /// The control groups that this process is in, each with those around it: any of them may have
    /// a limit. Where nothing can be read there is no limit that we could know of.
    fn groups(&self) -> Vec<Group> {
        let mounts = self.read("proc/self/mountinfo").unwrap_or_default();
        let memberships = self.read("proc/self/cgroup").unwrap_or_default();
        let mut groups = Vec::new();
        for membership in memberships.lines() {
            // hierarchy:controllers:path
            let mut parts = membership.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
            let files = match controllers {
                "" => &V2,
                controllers if controllers.split(',').any(|one| one == "memory") => &V1,
                _ => continue,
            };
            let Some(mount) = mounts.lines().find_map(|line| mount_point(line, files)) else { continue };
            let mount = self.root.join(mount.trim_start_matches('/'));
            // In a container the path may be the host's, and only the mount is ours: what does not
            // exist is passed over on the way up.
            let group = mount.join(path.trim_start_matches('/'));
            let around = group.ancestors().take_while(|directory| directory.starts_with(&mount));
            groups.extend(around.map(|directory| Group { directory: directory.to_owned(), files }));
        }
        groups
    }

    fn read(&self, file: &str) -> Result<String, String> {
        fs::read_to_string(self.root.join(file)).map_err(|error| format!("cannot read /{file}: {error}"))
    }
}

impl HealthCheck for MemoryCheck {
    fn name(&self) -> String {
        "memory".into()
    }

    fn check(&mut self, _within: Duration) -> Health {
        let available = match self.available() {
            Ok(available) => available as f64,
            Err(why) => return Health::unfit(why),
        };
        let (fitness, limit) = self.limits.judge(available);
        Health::new(fitness, format!("{} available, {} wanted", show_bytes(available), show_bytes(limit)))
    }
}

/// What the files of a kind of control group are called.
struct Files {
    file_system: &'static str,
    /// Among the options of the mount.
    option: Option<&'static str>,
    limit: &'static str,
    used: &'static str,
    droppable: &'static str,
}

const V1: Files = Files {
    file_system: "cgroup",
    option: Some("memory"),
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    droppable: "total_inactive_file ",
};
const V2: Files = Files {
    file_system: "cgroup2",
    option: None,
    limit: "memory.max",
    used: "memory.current",
    droppable: "inactive_file ",
};

/// Where a line of mountinfo says that these groups are mounted, if it does.
fn mount_point<'a>(line: &'a str, files: &Files) -> Option<&'a str> {
    // ID PARENT DEVICE ROOT MOUNT-POINT OPTIONS [TAGS] - FILE-SYSTEM SOURCE OPTIONS
    let (mount, file_system) = line.split_once(" - ")?;
    let mut file_system = file_system.split(' ');
    let is_kind = file_system.next() == Some(files.file_system);
    let mut options = file_system.nth(1).unwrap_or_default().split(',');
    let is_ours = files.option.is_none_or(|wanted| options.any(|option| option == wanted));
    mount.split(' ').nth(4).filter(|_| is_kind && is_ours)
}

struct Group {
    directory: PathBuf,
    files: &'static Files,
}

impl Group {
    /// `None`: it has no limit.
    fn available(&self) -> Option<u64> {
        let limit = number(&self.directory.join(self.files.limit))?;
        let used = number(&self.directory.join(self.files.used))?;
        let stat = fs::read_to_string(self.directory.join("memory.stat")).unwrap_or_default();
        let droppable = stat.lines().find_map(|line| line.strip_prefix(self.files.droppable)?.trim().parse().ok());
        Some(limit.saturating_sub(used.saturating_sub(droppable.unwrap_or(0))))
    }
}

/// `None` also for `max`.
fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Fitness;
    use incumbent_testkit::TempDir;

    const MIB: u64 = 1 << 20;

    /// A host with 1000 MiB available, as files.
    struct Host(TempDir);

    impl Host {
        fn new(cgroup: &str) -> Host {
            let host = Host(TempDir::new("memory"));
            host.write("proc/meminfo", "MemTotal: 4096000 kB\nMemAvailable:  1024000 kB\n");
            host.write("proc/self/cgroup", cgroup);
            host.write(
                "proc/self/mountinfo",
                "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
                 35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
                 41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n",
            );
            host
        }

        fn write(&self, file: &str, text: &str) {
            let path = self.0.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn available(&self) -> u64 {
            self.check(1).available().unwrap() / MIB
        }

        fn check(&self, bytes: u64) -> MemoryCheck {
            MemoryCheck { root: self.0.path().to_owned(), ..MemoryCheck::at_least(bytes) }
        }
    }

    #[test]
    fn without_a_limit_it_is_the_hosts_that_counts() {
        let host = Host::new("0::/app\n4:memory:/app\n");
        assert_eq!(host.available(), 1000);
        host.write("sys/fs/cgroup/unified/app/memory.max", "max\n");
        host.write("sys/fs/cgroup/memory/app/memory.limit_in_bytes", "9223372036854771712\n");
        host.write("sys/fs/cgroup/memory/app/memory.usage_in_bytes", "1048576\n");
        assert_eq!(host.available(), 1000);
    }

    #[test]
    fn the_least_that_a_group_or_one_around_it_leaves_counts() {
        let host = Host::new("0::/pod/app\n");
        let files = |group: &str, max: u64, used: u64, inactive: u64| {
            let file = |name: &str| format!("sys/fs/cgroup/unified{group}/{name}");
            host.write(&file("memory.max"), &(max * MIB).to_string());
            host.write(&file("memory.current"), &(used * MIB).to_string());
            host.write(&file("memory.stat"), &format!("anon 5\nfile 9\ninactive_file {}\n", inactive * MIB));
        };
        files("/pod/app", 600, 500, 50);
        assert_eq!(host.available(), 150);
        files("/pod", 700, 690, 10);
        assert_eq!(host.available(), 20);
        files("/pod", 700, 790, 10);
        assert_eq!(host.available(), 0, "more in use than the limit");
    }

    #[test]
    fn in_a_container_that_sees_only_its_own_group_the_mount_is_that_group() {
        let host = Host::new("4:cpu,cpuacct:/docker/1234\n5:memory:/docker/1234\n");
        host.write("sys/fs/cgroup/memory/memory.limit_in_bytes", &(300 * MIB).to_string());
        host.write("sys/fs/cgroup/memory/memory.usage_in_bytes", &(100 * MIB).to_string());
        host.write("sys/fs/cgroup/memory/memory.stat", &format!("inactive_file 7\ntotal_inactive_file {}\n", 5 * MIB));
        assert_eq!(host.available(), 205);
    }

    #[test]
    fn it_is_unwell_below_twice_what_is_wanted_and_unfit_below_it_and_comes_back() {
        let host = Host::new("0::/app\n");
        let mut check = host.check(100 * MIB);
        let mut with = |available: u64| {
            host.write("proc/meminfo", &format!("MemAvailable: {} kB\n", available * 1024));
            check.check(Duration::ZERO)
        };
        let said = [1000, 150, 90, 105, 120, 250].map(|available| with(available).fitness);
        use Fitness::{Fit, Unfit, Unwell};
        assert_eq!(said, [Fit, Unwell, Unfit, Unfit, Unwell, Fit]);
        assert_eq!(with(50).to_string(), "unfit: 50 MiB available, 100 MiB wanted");
    }

    #[test]
    fn what_cannot_be_read_is_no_proof_of_fitness() {
        let host = Host::new("");
        host.write("proc/meminfo", "nothing\n");
        assert_eq!(host.check(1).check(Duration::ZERO).fitness, Fitness::Unfit);
        fs::remove_file(host.0.path().join("proc/meminfo")).unwrap();
        let said = host.check(1).check(Duration::ZERO).to_string();
        assert!(said.starts_with("unfit: cannot read /proc/meminfo: "), "{said}");
    }
}
