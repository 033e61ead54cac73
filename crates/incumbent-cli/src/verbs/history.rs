//! `history`: who led, from when to when, and how each term ended, where the election keeps a
//! record of its terms.

use incumbent::{Shot, ShotResult, Status, TermEnd, TermRecord};
use serde::Serialize;

use super::read::quoted;
use super::seen_election;
use super::status::OrderJson;
use crate::args::HistoryArgs;
use crate::failure::{Code, Failure};
use crate::json::VERSION;
use crate::output::{Console, lined_up, out_json, out_lines, printable};
use crate::store_url::StoreUrl;

#[derive(Serialize)]
struct HistoryJson<'a> {
    v: u32,
    election: &'a str,
    terms: Vec<TermJson<'a>>,
}

#[derive(Serialize)]
struct TermJson<'a> {
    token: u64,
    name: Option<&'a str>,
    id: Option<String>,
    host: &'a str,
    boot: &'a str,
    process: &'a str,
    target: &'a str,
    from_ms: Option<u64>,
    to_ms: Option<u64>,
    end: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    order: Option<OrderJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fence: Option<FenceJson>,
    leads: bool,
}

/// What was last done to stop its work from outside.
#[derive(Serialize)]
struct FenceJson {
    result: &'static str,
    token: u64,
    attempt: u32,
    order: OrderJson,
}

impl<'a> TermJson<'a> {
    fn new(term: &'a TermRecord, leads: bool) -> TermJson<'a> {
        let (why, order) = match &term.end {
            TermEnd::Closed { why, order, .. } => {
                (Some(why.word()), Some(order).filter(|order| **order != Default::default()))
            }
            _ => (None, None),
        };
        TermJson {
            token: term.token.get(),
            name: Some(&*term.name).filter(|name| !name.is_empty()),
            id: term.incarnation.map(|incarnation| incarnation.to_string()),
            host: &term.origin.host,
            boot: &term.origin.boot,
            process: &term.origin.process,
            target: &term.origin.target,
            from_ms: said(term.opened_ms),
            to_ms: ended_at(term),
            end: term.end.word(),
            why,
            order: order.map(OrderJson::new),
            fence: term.fence.as_ref().map(|shot| FenceJson {
                result: shot.result.word(),
                token: shot.by.get(),
                attempt: shot.attempt,
                order: OrderJson::new(&shot.order),
            }),
            leads,
        }
    }
}

pub(crate) async fn history(args: HistoryArgs, store: StoreUrl, console: &Console) -> Result<u8, Failure> {
    let name = &args.target.election;
    let status = seen_election(name, &store).await?.status().await?.into_inner();
    if args.format.json {
        let terms = status.terms.iter().map(|term| TermJson::new(term, leads(&status, term))).collect();
        out_json(&HistoryJson { v: VERSION, election: name.as_str(), terms })?;
    } else {
        out_lines(&table(&status))?;
    }
    if !status.terms.is_empty() {
        return Ok(0);
    }
    if !store.keeps_line() {
        console.note(format!("{name} has no history: this store keeps no record of terms"));
        return Ok(Code::No as u8);
    }
    console.note(format!(
        "{name} keeps no record of its terms: it begins with the first candidate that stands with --record, \
         e.g. `incumbent run --record {} -- COMMAND`",
        quoted(name)
    ));
    Ok(Code::No as u8)
}

/// Whether this is the term of the one who leads now.
fn leads(status: &Status, term: &TermRecord) -> bool {
    status.leader().is_some_and(|leader| leader.token == Some(term.token) && leader.id == term.incarnation)
}

/// One row for each term, oldest first.
fn table(status: &Status) -> Vec<String> {
    let row = |term: &TermRecord| {
        let name = if term.name.is_empty() { "(no name)".to_owned() } else { printable(&term.name) };
        let (from, to) = (moment(said(term.opened_ms)), moment(ended_at(term)));
        [format!("token {}", term.token), name, from, to, how_it_ended(term, leads(status, term))]
    };
    lined_up(&status.terms.iter().map(row).collect::<Vec<_>>())
}

fn how_it_ended(term: &TermRecord, leads: bool) -> String {
    let shot = match &term.fence {
        None => String::new(),
        Some(shot) => format!("; {}", what_came_of(shot)),
    };
    format!("{}{shot}", end_of(term, leads))
}

/// What came of stopping it from outside.
pub(in crate::verbs) fn what_came_of(shot: &Shot) -> String {
    let (attempt, by) = (shot.attempt, shot.by);
    let why = match shot.order.reason.is_empty() {
        true => String::new(),
        false => printable(&format!(": {}", shot.order.reason)),
    };
    match shot.result {
        ShotResult::Claimed => format!("attempt {attempt} to stop it from outside, by token {by}, may have been made"),
        ShotResult::Stopped => format!("stopped from outside by token {by}"),
        ShotResult::TimedOut => {
            format!("attempt {attempt} to stop it from outside, by token {by}, did not end in time{why}")
        }
        ShotResult::Released => printable(&format!("has stopped, says a person ({})", shot.order)),
        _ => format!("attempt {attempt} to stop it from outside, by token {by}, failed{why}"),
    }
}

fn end_of(term: &TermRecord, leads: bool) -> String {
    match &term.end {
        TermEnd::Open if leads => "leads".into(),
        TermEnd::Open if term.is_at_large() => "open: nobody has said that its work has stopped".into(),
        TermEnd::Open => "open".into(),
        TermEnd::Closed { why, order, .. } if *order == Default::default() => format!("closed: {why}"),
        TermEnd::Closed { why, order, .. } => printable(&format!("closed: {why}, {order}")),
        TermEnd::Died { .. } => "died: no process of it is left".into(),
        _ => "unknown: it led before the record began, or is of another library".into(),
    }
}

/// Zero stands for "not said".
fn said(at_ms: u64) -> Option<u64> {
    Some(at_ms).filter(|at| *at > 0)
}

fn ended_at(term: &TermRecord) -> Option<u64> {
    match term.end {
        TermEnd::Closed { at_ms, .. } | TermEnd::Died { at_ms } => said(at_ms),
        _ => None,
    }
}

/// `2026-11-16 13:45:14 UTC`
fn moment(at_ms: Option<u64>) -> String {
    let Some(at_ms) = at_ms else { return "-".into() };
    let (days, second) = (at_ms / 86_400_000, at_ms / 1_000 % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Year, month and day, so many days after the first of January 1970. Years are counted from March
/// here, so that the day that leap years add is their last.
fn date(days: u64) -> (u64, u64, u64) {
    const ERA: u64 = 146_097;
    let days = days + 719_468;
    let (era, day_of_era) = (days / ERA, days % ERA);
    let year = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / (ERA - 1)) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next_year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates_and_times_in_utc() {
        assert_eq!(moment(None), "-");
        assert_eq!(moment(Some(1)), "1970-01-01 00:00:00 UTC");
        assert_eq!(moment(Some(951_782_399_999)), "2000-02-28 23:59:59 UTC");
        assert_eq!(moment(Some(951_782_400_000)), "2000-02-29 00:00:00 UTC");
        assert_eq!(moment(Some(4_107_542_400_000)), "2100-03-01 00:00:00 UTC");
        assert_eq!(moment(Some(1_794_836_714_000)), "2026-11-16 13:45:14 UTC");
    }
}
