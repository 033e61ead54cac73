//! The `incumbent` command. Here the verb is chosen; what it does is in `verbs`.

mod args;
mod claims;
mod duration;
mod failure;
mod guarding;
mod health;
mod heir;
mod hook_runner;
mod json;
mod logging;
mod output;
mod process_group;
mod reader_gone;
mod signal_listener;
mod stonith;
mod store_url;
mod usage;
mod verbs;
mod whole_file;

use std::fs::File;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, StoreArgs, Verb};
use failure::{Code, Failure};
use output::Console;
use store_url::StoreUrl;

fn main() -> ExitCode {
    // Before anything else: this process may have been started to be a guardian.
    incumbent_guardian::main_if_guardian();
    if let Some(worker) = verbs::demo::worker::of_this_process() {
        return finish(block_on(worker.run()), &Console::new(false), false);
    }
    if let Some(member) = verbs::demo::peers::member::MemberArgs::of_this_process() {
        return finish(block_on(member.run()), &Console::new(false), false);
    }
    signal_listener::let_long_files_fail();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage::explain(error),
    };
    let mut console = Console::new(cli.quiet);
    let is_run = matches!(cli.verb, Verb::Run(_));
    let checked = if let Verb::Check(args) = &cli.verb { Some(args.target.election.clone()) } else { None };
    let done = catch_unwind(AssertUnwindSafe(|| act(cli.verb, &cli.store, cli.verbose, &mut console)));
    // Libraries below panic where the system refuses them what they cannot do without.
    let done = done.unwrap_or_else(|_| Err(Failure::error("cannot continue, for the reason above")));
    match (checked, done) {
        (Some(election), Err(failure)) => verbs::check::unknown(&election, &failure, &console),
        (_, done) => finish(done, &console, is_run),
    }
}

fn finish(done: Result<u8, Failure>, console: &Console, is_run: bool) -> ExitCode {
    let failure = match done {
        Ok(code) => return ExitCode::from(code),
        Err(failure) => failure,
    };
    console.failure(&failure);
    // The low numbers are the command's own there, but for a command line that is wrong.
    let ours = is_run && failure.code != Code::Usage;
    ExitCode::from(if ours { verbs::run::OUR_FAILURE } else { failure.code as u8 })
}

fn act(verb: Verb, store: &StoreArgs, verbose: bool, console: &mut Console) -> Result<u8, Failure> {
    let changes = verb.changes_something();
    let at =
        |console: &mut Console| StoreUrl::choose(store, changes, console).inspect(|_| logging::begin(verbose, console));
    match verb {
        Verb::Run(args) => verbs::run::run(args, at(console)?, console),
        Verb::Campaign(args) => verbs::campaign::campaign(args, at(console)?, console),
        Verb::Leader(args) => block_on(verbs::read::leader(args, at(console)?, console)),
        Verb::Candidates(args) => block_on(verbs::read::candidates(args, at(console)?, console)),
        Verb::Observe(args) => block_on(verbs::observe::observe(args, at(console)?, console)),
        Verb::Status(args) => block_on(verbs::status::status(args, at(console)?, console)),
        Verb::History(args) => block_on(verbs::history::history(args, at(console)?, console)),
        Verb::List(args) => block_on(verbs::list::list(args, at(console)?, console)),
        Verb::Check(args) => block_on(verbs::check::check(args, at(console)?)),
        Verb::Metrics(args) => block_on(verbs::metrics::metrics(args, at(console)?)),
        Verb::Claims(args) => verbs::claims::claims(args, console),
        Verb::Doctor(args) => block_on(verbs::doctor::doctor(args, at(console)?, console)),
        Verb::Transfer(args) => block_on(verbs::operate::transfer(args, at(console)?, console)),
        Verb::Resign(args) => block_on(verbs::operate::resign(args, at(console)?, console)),
        Verb::Depose(args) => block_on(verbs::operate::depose(args, at(console)?, console)),
        Verb::Fenced(args) => block_on(verbs::operate::fenced(args, at(console)?, console)),
        Verb::Pause(args) => block_on(verbs::operate::pause(args, at(console)?, console)),
        Verb::Resume(args) => block_on(verbs::operate::resume(args, at(console)?, console)),
        Verb::Freeze(args) => block_on(verbs::operate::freeze(args, at(console)?, console)),
        Verb::Unfreeze(args) => block_on(verbs::operate::unfreeze(args, at(console)?, console)),
        Verb::Bench(args) => block_on(verbs::bench::bench(args, at(console)?, console)),
        Verb::Unbench(args) => block_on(verbs::bench::unbench(args, at(console)?, console)),
        Verb::Ack(args) => block_on(verbs::operate::ack(args, at(console)?, console)),
        Verb::End(args) => block_on(verbs::operate::end(args, at(console)?, console)),
        Verb::Peers(args) => block_on(verbs::operate::peers(args, at(console)?, console)),
        Verb::Explain(args) => block_on(verbs::explain::explain(args, at(console)?)),
        Verb::Demo(args) => block_on(verbs::demo::demo(args)),
        Verb::Schema(args) => verbs::generate::schema(args),
        Verb::Completions(args) => verbs::generate::completions(args),
        Verb::Man(args) => verbs::generate::man(args),
    }
}

/// How many files the runtime opens for itself and for signals, with some to spare.
const FILES_OF_RUNTIME: usize = 10;

/// Runs a verb. One thread is enough: it waits most of the time.
pub(crate) fn block_on(verb: impl Future<Output = Result<u8, Failure>>) -> Result<u8, Failure> {
    look_for_free_descriptors()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::error(format!("cannot start the runtime: {error}")))?;
    let done = runtime.block_on(verb);
    // A thread that waits for input must not keep us.
    runtime.shutdown_background();
    done
}

/// The runtime panics where it cannot open what it needs for signals, and a guardian mistakes it
/// for a host without /proc: better to know before.
pub(crate) fn look_for_free_descriptors() -> Result<(), Failure> {
    let opened: Result<Vec<File>, _> = (0..FILES_OF_RUNTIME).map(|_| File::open("/dev/null")).collect();
    opened.map(drop).map_err(|error| Failure::system(format_args!("cannot open {FILES_OF_RUNTIME} more files"), &error))
}
