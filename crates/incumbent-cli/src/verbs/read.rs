//! `leader` and `candidates`: what the store says now.

use incumbent::{CandidateInfo, ElectionName};
use serde::Serialize;

use super::seen_election;
use crate::args::{CandidatesArgs, LeaderArgs};
use crate::duration::ms;
use crate::failure::{Code, Failure};
use crate::json::{self, CandidateJson, VERSION, Value};
use crate::output::{Console, lined_up, out, out_json, out_lines, shell_word, widest};
use crate::store_url::StoreUrl;

#[derive(Serialize)]
struct LeaderJson<'a> {
    v: u32,
    election: &'a str,
    leader: Option<CandidateJson>,
    age_ms: u64,
}

#[derive(Serialize)]
struct CandidatesJson<'a> {
    v: u32,
    election: &'a str,
    candidates: Vec<CandidateJson>,
}

pub(crate) async fn leader(args: LeaderArgs, store: StoreUrl, console: &Console) -> Result<u8, Failure> {
    let name = &args.target.election;
    let reading = seen_election(name, &store).await?.leader().await?;
    let leader = reading.get().as_ref();
    if args.format.json {
        let age_ms = ms(reading.age());
        let person = leader.map(CandidateJson::new);
        out_json(&LeaderJson { v: VERSION, election: name.as_str(), leader: person, age_ms })?;
    } else if let Some(leader) = leader {
        out(&described(leader))?;
    }
    match leader {
        Some(_) => Ok(0),
        None => {
            console.note(format!("nobody leads {name}; `incumbent status {}` says why", quoted(name)));
            Ok(Code::No as u8)
        }
    }
}

pub(crate) async fn candidates(args: CandidatesArgs, store: StoreUrl, console: &Console) -> Result<u8, Failure> {
    let name = &args.target.election;
    let status = seen_election(name, &store).await?.status().await?.into_inner();
    let line = &status.candidates;
    let leads = |place: usize| place == 0 && !status.vacant;
    // From the end: a candidate that is restarted goes there, and the office moves only with the
    // last.
    let reversed = args.restart_order;
    if args.format.json {
        let mut candidates: Vec<_> =
            line.iter().enumerate().map(|(place, one)| CandidateJson::with_role(one, leads(place))).collect();
        if reversed {
            candidates.reverse();
        }
        out_json(&CandidatesJson { v: VERSION, election: name.as_str(), candidates })?;
    } else {
        let mut rows = table(line, !status.vacant);
        if reversed {
            rows.reverse();
        }
        out_lines(&rows)?;
        if line.is_empty() && store.keeps_line() {
            console.note(format!("nobody is in line; `incumbent status {}` says why", quoted(name)));
        } else if status.vacant {
            console.note(format!("nobody leads; `incumbent status {}` says why", quoted(name)));
        }
    }
    Ok(if line.is_empty() { Code::No as u8 } else { 0 })
}

/// `node-1 (token 7, value 10.0.0.7:80)`
pub(crate) fn described(leader: &CandidateInfo) -> String {
    let token = leader.token.map_or_else(|| "no token".to_owned(), |token| format!("token {token}"));
    let value = Value::shown(&leader.value).map_or_else(String::new, |value| format!(", value {value}"));
    let unwell = if leader.unwell { ", unwell" } else { "" };
    format!("{} ({token}{value}{unwell})", json::name(leader))
}

/// The priority, where it is not that of one that has none.
pub(crate) fn priority(one: &CandidateInfo, before: &str) -> String {
    if one.priority == 0 { String::new() } else { format!("{before}priority {}", one.priority) }
}

/// One row for each, in the order of the line.
pub(crate) fn table(line: &[CandidateInfo], first_leads: bool) -> Vec<String> {
    let tokens: Vec<_> =
        line.iter().map(|one| one.token.map_or_else(|| "-".to_owned(), |token| token.to_string())).collect();
    let tokens_width = widest(&tokens);
    // Members of a group have names of their own, and no ids.
    let without_ids = line.iter().all(|one| one.id.is_none());
    let row = |(place, one): (usize, &CandidateInfo)| {
        let role = if place == 0 && first_leads { "leader  " } else { "follower" };
        let id = match one.id {
            Some(id) => format!("  id {id}"),
            None if without_ids => String::new(),
            None => format!("  id {}", "-".repeat(32)),
        };
        let value = Value::shown(&one.value).unwrap_or_default();
        let unwell = if one.unwell { "  unwell" } else { "" };
        let priority = priority(one, "  ");
        let rest = format!("token {:>tokens_width$}{id}{unwell}{priority}  {value}", tokens[place]);
        [role.to_owned(), json::name(one), rest.trim_end().to_owned()]
    };
    lined_up(&line.iter().enumerate().map(row).collect::<Vec<_>>())
}

/// The name as it can be pasted into a shell.
pub(crate) fn quoted(name: &ElectionName) -> String {
    shell_word(name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_can_be_pasted_into_a_shell() {
        let quote = |name: &str| quoted(&ElectionName::new(name).unwrap());
        assert_eq!(quote("jobs/nightly"), "jobs/nightly");
        assert_eq!(quote("it's $HOME"), "'it'\\''s $HOME'");
        assert_eq!(quote("a=b;c"), "'a=b;c'");
    }
}
