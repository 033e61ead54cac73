//! Runs the checks of a candidate, each on a thread of its own, and reports what they come to.
//!
//! Plain threads, and no task of a runtime: a runtime that hangs is one of the things to be found
//! out, and renewals must not wait for a disk.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use incumbent_core::Rng;

use super::assessment::{Assessment, overall};
use super::{Fitness, Health, HealthChecks, SharedCheck};

/// Checks until it is dropped. A check that hangs then keeps its thread until it ends.
#[derive(Debug)]
pub(crate) struct Monitor(Sender<Told>);

/// What the monitor is told.
#[derive(Debug)]
enum Told {
    Found { check: usize, run: u64, health: Health },
    Stop,
}

struct Checked {
    name: String,
    assessment: Assessment,
    /// The numbers of runs that are to begin.
    runs: Sender<u64>,
}

impl Monitor {
    /// `report` is called on a thread of its own when the candidate's health is known, and whenever
    /// it has changed; and with whether what was found lately is better, and only has to last.
    pub(crate) fn start(
        checks: HealthChecks,
        mut rng: Rng,
        mut report: impl FnMut(&Health, bool) + Send + 'static,
    ) -> io::Result<Monitor> {
        let (told, inbox) = channel();
        let mut checked = Vec::new();
        for (index, check) in checks.checks.into_iter().enumerate() {
            let (name, when_late) = check.describe();
            let (runs, to_run) = channel();
            start_thread("health check", {
                let (told, within) = (told.clone(), checks.timing.timeout);
                move || answer_runs(index, &check, within, &to_run, &told)
            })?;
            let assessment = Assessment::new(Instant::now(), checks.timing, when_late, rng.fork());
            checked.push(Checked { name, assessment, runs });
        }
        start_thread("health", move || watch(checked, &inbox, &mut report))?;
        Ok(Monitor(told))
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // One that is gone needs no telling.
        let _ = self.0.send(Told::Stop);
    }
}

fn start_thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.into()).spawn(work).map(drop)
}

/// The thread of one check.
fn answer_runs(index: usize, check: &SharedCheck, within: Duration, runs: &Receiver<u64>, told: &Sender<Told>) {
    for run in runs {
        let health = catch_unwind(AssertUnwindSafe(|| check.run(within)))
            .unwrap_or_else(|_| Health::unfit("the check panicked"));
        if told.send(Told::Found { check: index, run, health }).is_err() {
            return;
        }
    }
}

/// Whether all that make the candidate what it is find lately that it is better.
fn is_improving(checked: &[Checked], fitness: Fitness) -> bool {
    let says_so = |check: &&Checked| check.assessment.verdict().is_some_and(|verdict| verdict.fitness == fitness);
    fitness != Fitness::Fit && checked.iter().filter(says_so).all(|check| check.assessment.is_improving())
}

/// The monitor's thread.
fn watch(mut checked: Vec<Checked>, inbox: &Receiver<Told>, report: &mut dyn FnMut(&Health, bool)) {
    let mut reported = None;
    loop {
        let now = Instant::now();
        for Checked { assessment, runs, .. } in &mut checked {
            if let Some(run) = assessment.tick(now) {
                // Its thread lasts as long as this end of the channel.
                let _ = runs.send(run);
            }
        }
        let health = overall(checked.iter().map(|check| (check.name.as_str(), check.assessment.verdict())));
        let news = health.map(|health| (is_improving(&checked, health.fitness), health));
        if let Some((improves, health)) = news.filter(|news| reported.as_ref() != Some(news)) {
            report(&health, improves);
            reported = Some((improves, health));
        }
        let next = checked.iter().filter_map(|check| check.assessment.next_timeout()).min();
        let wait = next.map_or(Duration::from_secs(3600), |next| next.saturating_duration_since(Instant::now()));
        match inbox.recv_timeout(wait) {
            Ok(Told::Found { check, run, health }) => {
                if let Some(check) = checked.get_mut(check) {
                    check.assessment.on_result(Instant::now(), run, health);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Ok(Told::Stop) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
