//! A panic in the supervisor or in the guardian: a mistake of ours lets no process of a command
//! outlive its leadership either.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "all of this is a test, though it has no test harness")]

mod support;

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use support::{HORDE, Scenario, alive, comes_true, kill, stop_and_wait};

fn main() {
    incumbent_guardian::main_if_guardian();
    support::run_role();
    support::run(&[
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
    let faults = FaultPoints::new();
    let mut scenario = faults.horde();
    faults.panic_at("watch");
    faults.wake(&scenario);
    scenario.ends_with_its_guardian();
}

/// It once did, where a session has no number.
fn a_sweep_that_panics_leaves_nobody_behind() {
    let faults = FaultPoints::new();
    let mut scenario = faults.horde();
    faults.panic_at("judge");
    kill(scenario.guardian, Signal::KILL);
    scenario.ends_with_its_guardian();
}

fn a_sweep_that_panics_again_and_again_ends_nothing() {
    let faults = FaultPoints::new();
    let mut scenario = faults.horde();
    faults.panic_at("look");
    kill(scenario.guardian, Signal::KILL);
    comes_true("it has tried again", || faults.panics_at("look") >= 3);
    assert!(!alive(&scenario.tag).is_empty(), "nobody could be found, and so nobody killed");
    assert!(scenario.is_silent());
    assert!(!faults.office_is_free());
    faults.no_panic_at("look");
    scenario.ends_with_its_guardian();
}

fn a_guardian_that_panics_leaves_nobody_behind() {
    let faults = FaultPoints::new();
    let mut scenario = faults.horde();
    faults.panic_at("main_loop");
    faults.wake(&scenario);
    scenario.ends_with_its_guardian();
}

/// Its supervisor kills in its place.
fn a_guardian_that_panics_again_and_again_is_replaced() {
    let faults = FaultPoints::new();
    let mut scenario = faults.horde();
    faults.panic_at("abandon");
    faults.panic_at("main_loop");
    faults.wake(&scenario);
    scenario.ends_with_its_guardian();
    assert!(faults.panics_at("abandon") > 0);
}

fn a_guardian_that_panics_alone_frees_no_lock_too_early() {
    let faults = FaultPoints::new();
    let mut scenario = faults.horde();
    faults.panic_at("main_loop");
    scenario.supervisor.kill().unwrap();
    comes_true("the office is free", || faults.office_is_free());
    assert_eq!(alive(&scenario.tag), []);
    assert!(faults.panics_at("main_loop") > 0);
}

fn a_guardian_that_panics_again_and_again_frees_no_lock() {
    let faults = FaultPoints::new();
    let mut scenario = faults.horde();
    faults.panic_at("look");
    scenario.supervisor.kill().unwrap();
    comes_true("it has tried again", || faults.panics_at("look") >= 3);
    assert!(!alive(&scenario.tag).is_empty(), "nobody could be found, and so not everybody killed");
    assert!(!faults.office_is_free());
    faults.no_panic_at("look");
    comes_true("the office is free", || faults.office_is_free());
    assert_eq!(alive(&scenario.tag), []);
}

fn a_supervisor_that_panics_releases_nothing_while_anybody_is_left() {
    let mut scenario = Scenario::of(&["renew", "office"], "horde");
    scenario.processes_are(HORDE);
    // So that nobody but the supervisor itself can kill.
    stop_and_wait(scenario.guardian);
    kill(scenario.pid(), Signal::HUP);
    scenario.says("released");
    assert_eq!(alive(&scenario.tag), []);
    assert_eq!(scenario.code(), 101);
}

/// A directory with the places that panic, and the lock that stands for the office.
struct FaultPoints {
    directory: PathBuf,
}

impl FaultPoints {
    fn new() -> FaultPoints {
        static STAGES: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("incumbent-guardian-panics-{}-{}", std::process::id(), STAGES.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory).unwrap();
        FaultPoints { directory }
    }

    /// A horde that runs, and whose start was read about.
    fn horde(&self) -> Scenario {
        let tag = self.directory.file_name().unwrap().to_str().unwrap();
        let exe = std::env::current_exe().unwrap();
        let mut program = Command::new(&exe);
        program.args(["supervise", "renew"]).arg(format!("lock={}", self.directory.join("office").display())).arg("--");
        program.arg(&exe).args(["nasty", "horde", tag]).env("INCUMBENT_GUARDIAN_FAULTS", &self.directory);
        let scenario = Scenario::start(tag, program);
        scenario.command();
        scenario.processes_are(HORDE);
        assert!(!self.office_is_free());
        scenario
    }

    /// An order, so that both processes have something to do. The horde is deaf to this signal.
    fn wake(&self, scenario: &Scenario) {
        kill(scenario.pid(), Signal::USR1);
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

impl Drop for FaultPoints {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}
