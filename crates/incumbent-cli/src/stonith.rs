//! `--fence-cmd`: programs that stop the last leader from outside.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

use incumbent::fence::BoxFuture;
use incumbent::store::{BootClock, Clock, Timestamp};
use incumbent::{Candidate, Shooter, Shooting, Stonith, Target, Unfenced};
use incumbent_guardian::{CommandSpec, Event, Exit, Guardian, HEAD_START};
use rustix::fs::{Access, access};

use crate::args::FenceArgs;
use crate::claims;
use crate::guarding;
use crate::store_url;

/// With the programs that stop the last leader, if there are any.
pub(crate) fn armed(candidate: Candidate<Unfenced>, args: &FenceArgs) -> Candidate<Unfenced> {
    let candidate = match &args.fence_as {
        Some(name) => candidate.stopped_as(name.as_str()),
        None => candidate,
    };
    if args.fence_cmd.is_empty() {
        return candidate;
    }
    let programs = Programs { levels: args.fence_cmd.clone(), timeout: args.fence_timeout };
    let stonith = Stonith::new(programs, args.fence_targets.iter().map(String::as_str));
    let stonith = stonith.on_failure(args.on_fence_failure.into());
    // One process has one election, and a host that dies leaves many.
    let stonith = match claims::file_of_shots() {
        Ok(file) => stonith.counted_in(file),
        Err(error) => {
            tracing::warn!("other processes of this host may shoot as well: there is no file to count it in: {error}");
            stonith
        }
    };
    candidate.stonith(match args.fence_delay {
        Some(delay) => stonith.delay(delay),
        None => stonith,
    })
}

/// A program that can be executed: at this path, or by this name in PATH. When a leader has died it
/// is too late to find out.
pub(crate) fn parse_program(text: &str) -> Result<PathBuf, String> {
    let program = PathBuf::from(text);
    if text.contains('/') {
        is_program(&program)?;
    } else {
        let path = env::var_os("PATH").ok_or("PATH is not set: write where it is")?;
        let is_there = env::split_paths(&path).any(|folder| is_program(&folder.join(text)).is_ok());
        is_there.then_some(()).ok_or("no program of this name is in PATH")?;
    }
    Ok(program)
}

fn is_program(path: &Path) -> Result<(), String> {
    let kind = fs::metadata(path).map_err(|error| error.to_string())?;
    if !kind.is_file() {
        return Err("it is not a file".to_owned());
    }
    access(path, Access::EXEC_OK).map_err(|error| std::io::Error::from(error).to_string())
}

/// How long what a program has left behind may take to end.
const LEFTOVERS: Duration = Duration::from_secs(1);

/// Programs that are tried in this order until one says that the target has stopped.
#[derive(Debug)]
struct Programs {
    levels: Vec<PathBuf>,
    timeout: Duration,
}

impl Shooter for Programs {
    fn shoot<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Shooting> {
        Box::pin(async move {
            let mut outcome = Shooting::Failed("there is no program".into());
            for program in &self.levels {
                let came_of_it = self.run(program, target).await;
                tracing::warn!("{}: {came_of_it}", program.display());
                match came_of_it {
                    Shooting::Stopped => return Shooting::Stopped,
                    // One that may have stopped it is not forgotten for one that certainly has not.
                    Shooting::Failed(_) if matches!(outcome, Shooting::TimedOut(_)) => {}
                    other => outcome = other,
                }
            }
            outcome
        })
    }
}

impl Programs {
    /// Runs it under a guardian of its own: it does not outlive this process, however that ends,
    /// nor the place in line for which it is run (the guardian's handle is dropped then).
    async fn run(&self, program: &Path, target: &Target) -> Shooting {
        let failed = |why: &dyn std::fmt::Display| Shooting::Failed(format!("{} {why}", named(program)).into());
        let mut guardian = match guarding::start_aside().await {
            Ok(guardian) => guardian,
            Err(failure) => return failed(&format_args!("cannot be started: {failure}")),
        };
        // Counted on the guardian's clock, which goes on while the machine is suspended.
        let ends = BootClock.now() + self.timeout;
        let deadline = ends + HEAD_START;
        if let Err(error) = guardian.spawn(&self.command(program, target), deadline) {
            return failed(&format_args!("cannot be started: {error}"));
        }
        let outcome = self.outcome(&mut guardian, program, ends).await;
        // Of a killed guardian's program nobody knows how far it came.
        outcome.unwrap_or_else(|| Shooting::TimedOut(format!("{} was killed with its guardian", named(program)).into()))
    }

    /// What came of it, once nothing of it is left. `None`: nobody knows.
    async fn outcome(&self, guardian: &mut Guardian, program: &Path, ends: Timestamp) -> Option<Shooting> {
        let program = named(program);
        let mut outcome = None;
        while let Some(event) = guardian.event().await {
            match event {
                Event::NotStarted(why) => {
                    outcome = Some(Shooting::Failed(format!("{program} cannot be started: {why}").into()));
                }
                Event::CommandExited(Exit::Code(0)) => outcome = Some(Shooting::Stopped),
                // It was killed for it, or something that it had started was.
                Event::CommandExited(_) if BootClock.now() >= ends => {
                    let why = format!("{program} did not end within {}", crate::duration::show(self.timeout));
                    outcome = Some(Shooting::TimedOut(why.into()));
                }
                Event::CommandExited(Exit::Code(code)) => {
                    outcome = Some(Shooting::Failed(format!("{program} exited with {code}").into()));
                }
                Event::CommandExited(Exit::Signal(signal)) => {
                    outcome = Some(Shooting::Failed(format!("{program} died of signal {signal}").into()));
                }
                Event::Empty => break,
                _ => {}
            }
        }
        outcome
    }

    /// What it is told comes from the record, in its environment alone.
    fn command(&self, program: &Path, target: &Target) -> CommandSpec {
        let term = &target.term;
        CommandSpec::new([program])
            .quiet()
            .leftover_grace(LEFTOVERS)
            .env_remove(store_url::VARIABLE)
            .env_remove("NOTIFY_SOCKET")
            .env_remove(claims::TOKEN)
            .env_remove(claims::LAST_TERM)
            .env("INCUMBENT_ELECTION", target.election.as_str())
            .env("INCUMBENT_TARGET", &*target.name)
            .env("INCUMBENT_TARGET_NAME", without_control_characters(&term.name))
            .env("INCUMBENT_TARGET_HOST", without_control_characters(&term.origin.host))
            .env("INCUMBENT_TARGET_BOOT_ID", without_control_characters(&term.origin.boot))
            .env("INCUMBENT_TARGET_TOKEN", term.token.to_string())
            .env("INCUMBENT_TARGET_END", term.end.word())
            .env("INCUMBENT_ATTEMPT", target.attempt.to_string())
            .env("INCUMBENT_TIMEOUT_MS", self.timeout.as_millis().to_string())
    }
}

/// Without its directories: the record is short.
fn named(program: &Path) -> String {
    without_control_characters(&program.file_name().unwrap_or(program.as_os_str()).to_string_lossy())
}

/// Everybody who can write to the store can write these.
fn without_control_characters(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).collect()
}
