//! A panic in the supervisor or in the guardian: a mistake of ours lets no process of a command outlive its leadership either.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "all of this is a test, though it has no test harness")]

mod theatre;

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use theatre::{HORDE, Show, alive, comes_true, kill, stop_and_wait};

fn main() {
    incumbent_guardian::main_if_guardian();
    theatre::play_part();
    theatre::run(&[
        ("a_watch_that_panics_leaves_nobody_behind", a_watch_that_panics_leaves_nobody_behind),
        ("a_sweep_that_panics_leaves_nobody_behind", a_sweep_that_panics_leaves_nobody_behind),
        ("a_sweep_that_panics_again_and_again_ends_nothing", a_sweep_that_panics_again_and_again_ends_nothing),
        ("a_guardian_that_panics_leaves_nobody_behind", a_guardian_that_panics_leaves_nobody_behind),
        ("a_guardian_that_panics_again_and_again_is_replaced", a_guardian_that_panics_again_and_again_is_replaced),
        ("a_guardian_that_panics_alone_frees_no_lock_too_early", a_guardian_that_panics_alone_frees_no_lock_too_early),
        ("a_guardian_that_panics_again_and_again_frees_no_lock", a_guardian_that_panics_again_and_again_frees_no_lock),
        (
            "a_supervisor_that_panics_releases_nothing_while_anybody_is_left",
            a_supervisor_that_panics_releases_nothing_while_anybody_is_left,
        ),
    ])
}

fn a_watch_that_panics_leaves_nobody_behind() {
    let stage = Stage::new();
    let mut show = stage.horde();
    stage.panic_at("watch");
    stage.wake(&show);
    show.ends_with_its_guardian();
}

/// It once did, where a session has no number.
fn a_sweep_that_panics_leaves_nobody_behind() {
    let stage = Stage::new();
    let mut show = stage.horde();
    stage.panic_at("judge");
    kill(show.guardian, Signal::KILL);
    show.ends_with_its_guardian();
}

fn a_sweep_that_panics_again_and_again_ends_nothing() {
    let stage = Stage::new();
    let mut show = stage.horde();
    stage.panic_at("look");
    kill(show.guardian, Signal::KILL);
    comes_true("it has tried again", || stage.panics_at("look") >= 3);
    assert!(!alive(&show.tag).is_empty(), "nobody could be found, and so nobody killed");
    assert!(show.is_silent());
    assert!(!stage.office_is_free());
    stage.no_panic_at("look");
    show.ends_with_its_guardian();
}

fn a_guardian_that_panics_leaves_nobody_behind() {
    let stage = Stage::new();
    let mut show = stage.horde();
    stage.panic_at("warden");
    stage.wake(&show);
    show.ends_with_its_guardian();
}

/// Its supervisor kills in its place.
fn a_guardian_that_panics_again_and_again_is_replaced() {
    let stage = Stage::new();
    let mut show = stage.horde();
    stage.panic_at("abandon");
    stage.panic_at("warden");
    stage.wake(&show);
    show.ends_with_its_guardian();
    assert!(stage.panics_at("abandon") > 0);
}

fn a_guardian_that_panics_alone_frees_no_lock_too_early() {
    let stage = Stage::new();
    let mut show = stage.horde();
    stage.panic_at("warden");
    show.supervisor.kill().unwrap();
    comes_true("the office is free", || stage.office_is_free());
    assert_eq!(alive(&show.tag), []);
    assert!(stage.panics_at("warden") > 0);
}

fn a_guardian_that_panics_again_and_again_frees_no_lock() {
    let stage = Stage::new();
    let mut show = stage.horde();
    stage.panic_at("look");
    show.supervisor.kill().unwrap();
    comes_true("it has tried again", || stage.panics_at("look") >= 3);
    assert!(!alive(&show.tag).is_empty(), "nobody could be found, and so not everybody killed");
    assert!(!stage.office_is_free());
    stage.no_panic_at("look");
    comes_true("the office is free", || stage.office_is_free());
    assert_eq!(alive(&show.tag), []);
}

fn a_supervisor_that_panics_releases_nothing_while_anybody_is_left() {
    let mut show = Show::of(&["renew", "office"], "horde");
    show.stage_is_set(HORDE);
    // So that nobody but the supervisor itself can kill.
    stop_and_wait(show.guardian);
    kill(show.pid(), Signal::HUP);
    show.says("released");
    assert_eq!(alive(&show.tag), []);
    assert_eq!(show.code(), 101);
}

/// A directory with the places that panic, and the lock that stands for the office.
struct Stage {
    directory: PathBuf,
}

impl Stage {
    fn new() -> Stage {
        static STAGES: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("incumbent-guardian-panics-{}-{}", std::process::id(), STAGES.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory).unwrap();
        Stage { directory }
    }

    /// A horde that runs, and whose start was read about.
    fn horde(&self) -> Show {
        let tag = self.directory.file_name().unwrap().to_str().unwrap();
        let exe = std::env::current_exe().unwrap();
        let mut program = Command::new(&exe);
        program.args(["supervise", "renew"]).arg(format!("lock={}", self.directory.join("office").display())).arg("--");
        program.arg(&exe).args(["nasty", "horde", tag]).env("INCUMBENT_GUARDIAN_FAULTS", &self.directory);
        let show = Show::start(tag, program);
        show.command();
        show.stage_is_set(HORDE);
        assert!(!self.office_is_free());
        show
    }

    /// An order, so that both processes have something to do. The horde is deaf to this signal.
    fn wake(&self, show: &Show) {
        kill(show.pid(), Signal::USR1);
    }

    fn panic_at(&self, place: &str) {
        File::create_new(self.directory.join(place)).unwrap();
    }

    fn no_panic_at(&self, place: &str) {
        fs::remove_file(self.directory.join(place)).unwrap();
    }

    fn panics_at(&self, place: &str) -> u64 {
        fs::metadata(self.directory.join(place)).unwrap().len()
    }

    fn office_is_free(&self) -> bool {
        let lock = File::open(self.directory.join("office")).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}
