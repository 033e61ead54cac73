//! `check`: one line and an exit code, as Nagios and those who imitate it read them.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use incumbent::{ElectionName, Reading, Status};
use tokio::time::Instant;

use super::list::followers;
use super::read::described;
use super::status::{Vacancy, age, is_late, servers_missing};
use super::watching_client;
use crate::args::CheckArgs;
use crate::duration::show;
use crate::failure::Failure;
use crate::output::{Console, out, printable};
use crate::store_url::StoreUrl;

/// After how long an order is called forgotten.
pub(super) const FORGOTTEN: Duration = Duration::from_secs(24 * 3600);
/// How often a vacancy is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// How bad it is: the exit codes of a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Ok = 0,
    Warning = 1,
    Critical = 2,
}

/// It is not known: the store cannot be chosen or read, nothing can be written, or the command line
/// is wrong.
pub(crate) const UNKNOWN: u8 = 3;

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Ok => "OK",
            State::Warning => "WARNING",
            State::Critical => "CRITICAL",
        }
    }
}

pub(crate) async fn check(args: CheckArgs, store: StoreUrl) -> Result<u8, Failure> {
    let wanted = wanted_followers(&args, &store)?;
    let (state, line) = verdict(&args.target.election, wanted, &looked_at(&args, &store).await?);
    out(&line)?;
    Ok(state as u8)
}

/// Something failed, whatever it was: nothing is known of the election. A plugin says everything on
/// standard output, as long as there is one.
pub(crate) fn unknown(election: &ElectionName, failure: &Failure, console: &Console) -> ExitCode {
    let said = say_unknown(&console.redacted(&format!("{election}: {failure}")));
    if let Err(unsaid) = said {
        console.failure(&unsaid);
    }
    ExitCode::from(UNKNOWN)
}

/// The line of a plugin that knows nothing.
pub(crate) fn say_unknown(why: &str) -> Result<(), Failure> {
    out(&plain(&format!("INCUMBENT UNKNOWN - {why}")))
}

/// How many should be in line behind the leader, where there is a line.
fn wanted_followers(args: &CheckArgs, store: &StoreUrl) -> Result<Option<usize>, Failure> {
    match (args.followers, store.keeps_line()) {
        (wanted, true) => Ok(Some(wanted.unwrap_or(1))),
        (None | Some(0), false) => Ok(None),
        (Some(_), false) => Err(Failure::usage("this store keeps no line, so that followers cannot be counted")
            .next("leave --followers out")),
    }
}

/// Reads the election; again, for as long as was asked for, while nobody leads it.
async fn looked_at(args: &CheckArgs, store: &StoreUrl) -> Result<Reading<Status>, Failure> {
    let election = watching_client(store).await?.election(args.target.election.as_str());
    let election = election.map_err(|error| Failure::usage(error.to_string()))?;
    let until = Instant::now() + args.wait.unwrap_or_default();
    loop {
        let reading = election.status().await?;
        if !reading.get().vacant || Instant::now() >= until {
            return Ok(reading);
        }
        tokio::time::sleep(LOOK_AGAIN.min(until - Instant::now())).await;
    }
}

/// How it is, and the line that says so.
fn verdict(name: &ElectionName, wanted: Option<usize>, reading: &Reading<Status>) -> (State, String) {
    let status = reading.get();
    let (mut state, mut text) = match (status.leader(), Vacancy::of(status)) {
        (Some(leader), _) => (State::Ok, format!("{} leads {name}", described(leader))),
        (None, Some(vacancy)) if vacancy.is_ordered() => {
            let order = paused(status).unwrap_or_else(|| vacancy.word().to_owned());
            (State::Warning, format!("nobody leads {name}: {order}"))
        }
        (None, vacancy) => {
            let why = match vacancy {
                Some(Vacancy::TakenOver(quiet)) => {
                    format!("another server of the store has taken over, and nobody does for another {}", show(quiet))
                }
                vacancy => vacancy.map_or("", Vacancy::word).replace('_', " "),
            };
            (State::Critical, format!("nobody leads {name}: {why}"))
        }
    };
    for concern in concerns(wanted, status) {
        state = state.max(State::Warning);
        // Writing to a string does not fail.
        let _ = write!(text, "; {concern}");
    }
    if let Some(runbook) = runbook(state, status) {
        let _ = write!(text, "; {runbook}");
    }
    let line = format!("INCUMBENT {} - {}", state.word(), plain(&text));
    (state, format!("{line} | {}", figures(wanted, reading)))
}

/// What to do about it, step by step. An order, or a follower that is missing, says it by itself.
fn runbook(state: State, status: &Status) -> Option<&'static str> {
    let is_unwell = status.leader().is_some_and(|leader| leader.unwell) || status.held_back.is_some();
    match state {
        State::Ok => None,
        State::Critical => Some("docs/runbooks.md#nobody-leads"),
        State::Warning => {
            let is_it = is_unwell || status.silence.is_some_and(is_late);
            is_it.then_some("docs/runbooks.md#the-leader-is-unwell")
        }
    }
}

/// What deserves a look although somebody leads, and what explains why nobody does.
fn concerns(wanted: Option<usize>, status: &Status) -> Vec<String> {
    let mut concerns = Vec::new();
    // A leader that cannot renew leads no longer than its TTL.
    concerns.extend(status.stalled.as_deref().map(str::to_owned));
    // It has not left yet.
    concerns.extend(paused(status).filter(|_| !status.vacant));
    if status.leader().is_some_and(|leader| leader.unwell) {
        concerns.push("the leader is unwell".to_owned());
    }
    if status.held_back.is_some() {
        concerns.push("held back: three changes for health within ten minutes".to_owned());
    }
    // Ordered a day ago, it may have been forgotten.
    if let Some(frozen) = status.frozen.as_ref().filter(|frozen| age(&frozen.order) > Some(FORGOTTEN)) {
        concerns.push(format!("frozen {}", frozen.order));
    }
    for order in status.benched.iter() {
        let leads = status.leader().is_some_and(|leader| leader.name.as_deref() == Some(&*order.name));
        if leads || age(&order.order) > Some(FORGOTTEN) {
            let who = if leads { "the leader" } else { &*order.name };
            concerns.push(format!("{who} is benched {}", order.order));
        }
    }
    let waiting = followers(status);
    if let Some(wanted) = wanted.filter(|wanted| !status.vacant && waiting < *wanted) {
        concerns.push(format!("{waiting} in line behind it, and not {wanted}"));
    }
    if let Some(silence) = status.silence.filter(|silence| is_late(*silence)) {
        concerns.push(format!("last heard of {} ago, with a TTL of {}", show(silence.lasts), show(silence.ttl)));
    }
    if let Some(group) = &status.group {
        if group.answering < group.members {
            concerns.push(format!("{} of {} members answer", group.answering, group.members));
        }
        if !group.not_voting.is_empty() {
            concerns.push(format!("{} without a vote", group.not_voting.join(" and ")));
        }
    }
    concerns.extend(status.servers.as_ref().and_then(servers_missing));
    concerns
}

fn paused(status: &Status) -> Option<String> {
    status.paused.as_ref().map(|order| format!("paused {order}"))
}

/// Performance data: `label=value;warn;crit;min`.
fn figures(wanted: Option<usize>, reading: &Reading<Status>) -> String {
    let status = reading.get();
    let mut figures = vec![format!("vacant={}", u8::from(status.vacant))];
    figures.extend(wanted.map(|wanted| format!("followers={};{wanted}:;;0", followers(status))));
    // It only grows: one that goes back is another store's.
    figures.extend(status.leader().and_then(|leader| leader.token).map(|token| format!("token={token}c")));
    figures.push(format!("age={:.3}s", reading.age().as_secs_f64()));
    if let Some(silence) = status.silence {
        let ttl = silence.ttl.as_secs_f64();
        figures.push(format!("silent={:.3}s;{:.3};{ttl:.3};0", silence.lasts.as_secs_f64(), ttl / 2.0));
    }
    if let Some(group) = &status.group {
        figures.push(format!("members={};{}:;{}:;0", group.answering, group.members, group.needed));
    }
    if let Some(servers) = &status.servers {
        figures.push(format!("members={};{}:;{}:;0", servers.answering(), servers.count, servers.needed));
    }
    figures.join(" ")
}

/// What follows a `|` would be taken for figures.
fn plain(text: &str) -> String {
    printable(text).replace('|', "/")
}
