//! The `incumbent` command. Here the verb is chosen; what it does is in `verbs`.

mod args;
mod facts;
mod failure;
mod heeded;
mod journal;
mod place;
mod reader_gone;
mod say;
mod span;
mod usage;
mod verbs;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use clap::Parser;

use args::{Line, PlaceArgs, Verb};
use failure::{Code, Failure};
use place::Place;
use say::Say;

fn main() -> ExitCode {
    // Before anything else: this process may have been started to be somebody's guardian.
    incumbent_guardian::main_if_guardian();
    if let Some(worker) = verbs::demo::worker::asked_for() {
        return finish(block_on(worker.work()), &Say::new(false), false);
    }
    if let Some(part) = verbs::demo::peers::member::asked_for() {
        return finish(block_on(part.play()), &Say::new(false), false);
    }
    let line = match Line::try_parse() {
        Ok(line) => line,
        Err(error) => return usage::explain(error),
    };
    let mut say = Say::new(line.quiet);
    let is_run = matches!(line.verb, Verb::Run(_));
    let done = catch_unwind(AssertUnwindSafe(|| act(line.verb, &line.place, line.verbose, &mut say)));
    // The library below panics where the system refuses it what it cannot do without: descriptors,
    // say.
    let done = done.unwrap_or_else(|_| Err(Failure::error("it cannot go on, for the reason above")));
    finish(done, &say, is_run)
}

fn finish(done: Result<u8, Failure>, say: &Say, is_run: bool) -> ExitCode {
    let failure = match done {
        Ok(code) => return ExitCode::from(code),
        Err(failure) => failure,
    };
    say.failure(&failure);
    // The low numbers are the command's own there, but for a command line that is wrong.
    let ours = is_run && failure.code != Code::Usage;
    ExitCode::from(if ours { verbs::run::OUR_FAILURE } else { failure.code as u8 })
}

fn act(verb: Verb, place: &PlaceArgs, verbose: bool, say: &mut Say) -> Result<u8, Failure> {
    let changes = verb.changes_something();
    let at = |say: &mut Say| Place::choose(place, changes, say).inspect(|_| journal::begin(verbose, say));
    match verb {
        Verb::Run(args) => verbs::run::run(args, at(say)?, say),
        Verb::Campaign(args) => block_on(verbs::campaign::campaign(args, at(say)?, say)),
        Verb::Leader(args) => block_on(verbs::read::leader(args, at(say)?, say)),
        Verb::Candidates(args) => block_on(verbs::read::candidates(args, at(say)?, say)),
        Verb::Observe(args) => block_on(verbs::observe::observe(args, at(say)?, say)),
        Verb::Status(args) => block_on(verbs::status::status(args, at(say)?)),
        Verb::Transfer(args) => block_on(verbs::operate::transfer(args, at(say)?)),
        Verb::Resign(args) => block_on(verbs::operate::resign(args, at(say)?)),
        Verb::Depose(args) => block_on(verbs::operate::depose(args, at(say)?)),
        Verb::Pause(args) => block_on(verbs::operate::pause(args, at(say)?)),
        Verb::Resume(args) => block_on(verbs::operate::resume(args, at(say)?)),
        Verb::End(args) => block_on(verbs::operate::end(args, at(say)?)),
        Verb::Peers(args) => block_on(verbs::operate::peers(args, at(say)?)),
        Verb::Explain(args) => block_on(verbs::explain::explain(args, at(say)?)),
        Verb::Demo(args) => block_on(verbs::demo::demo(args)),
        Verb::Completions(args) => verbs::paper::completions(args),
        Verb::Man(args) => verbs::paper::man(args),
    }
}

/// Runs a verb. One thread is enough: it waits most of the time.
pub(crate) fn block_on(verb: impl Future<Output = Result<u8, Failure>>) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::error(format!("cannot start the runtime: {error}")))?;
    let done = runtime.block_on(verb);
    // A thread that waits for input must not keep us.
    runtime.shutdown_background();
    done
}
