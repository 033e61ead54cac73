//! A wall clock that a test can step, for servers that read theirs through the C library: a small
//! library that is loaded before it adds so many seconds to what the system says.

use std::fs::File;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use super::process::Scratch;

/// Processes see at once what is written to the file, which they have mapped into their memory.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *seconds_off;

__attribute__((constructor)) static void map_file(void) {
    const char *path = getenv("INCUMBENT_WALL_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(0, sizeof *seconds_off, PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) seconds_off = mapped;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    int wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    if (!failed && wall && seconds_off) now->tv_sec += *seconds_off;
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec precise;
    int failed = clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *where) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (where) *where = now.tv_sec;
    return now.tv_sec;
}
"#;

/// The wall clock of the processes that are started in its environment.
#[derive(Debug)]
pub struct WallClock {
    seconds_off: File,
    environment: Vec<String>,
    _scratch: Scratch,
}

impl WallClock {
    /// One that is right.
    pub fn new() -> WallClock {
        let scratch = Scratch::new("wall-clock");
        open_to_all(scratch.path(), 0o755);
        let path = scratch.path().join("seconds-off");
        let seconds_off = File::options().create(true).truncate(true).write(true).open(&path).expect("a file");
        open_to_all(&path, 0o644);
        let environment = vec![
            format!("LD_PRELOAD={}", library().path().join("library.so").display()),
            format!("INCUMBENT_WALL_CLOCK={}", path.display()),
        ];
        let clock = WallClock { seconds_off, environment, _scratch: scratch };
        clock.set(0);
        clock
    }

    /// For the processes that are to live by it: environment variables, each as `NAME=value`.
    pub fn environment(&self) -> &[String] {
        &self.environment
    }

    /// From now on it is so many seconds off.
    pub fn set(&self, seconds_off: i64) {
        self.seconds_off.write_all_at(&seconds_off.to_ne_bytes(), 0).expect("our file");
    }
}

impl Default for WallClock {
    fn default() -> WallClock {
        WallClock::new()
    }
}

/// The folder of the library, which is compiled once.
fn library() -> &'static Scratch {
    static LIBRARY: OnceLock<Scratch> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let scratch = Scratch::new("wall-clock-library");
        open_to_all(scratch.path(), 0o755);
        let (source, library) = (scratch.path().join("source.c"), scratch.path().join("library.so"));
        std::fs::write(&source, SOURCE).expect("a file");
        let compiled = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).args([&library, &source]).output();
        let compiled = compiled.expect("a C compiler (`scripts/setup build`)");
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        open_to_all(&library, 0o755);
        scratch
    })
}

/// Servers may run as another user.
fn open_to_all(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("our own");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_sees_the_wall_clock_step_and_another_does_not() {
        let clock = WallClock::new();
        let year = |environment: &[String]| -> i32 {
            let said = Command::new("env").args(environment).args(["date", "+%Y"]).output().unwrap();
            String::from_utf8(said.stdout).unwrap().trim().parse().unwrap()
        };
        let now = year(&[]);
        assert!((now..=now + 1).contains(&year(clock.environment())));
        clock.set(10 * 366 * 86_400);
        assert!(year(clock.environment()) >= now + 10);
        assert!((now..=now + 1).contains(&year(&[])));
    }
}
