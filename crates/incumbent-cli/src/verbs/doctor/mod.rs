//! `doctor`: whether an election is as it should be, with everybody asked. It only reads,
//! unless it is to heal one (`--recover`).
//!
//! It gathers evidence (`look.rs`: the store read, everybody asked, the store read again), and
//! a pure function judges it (`judge.rs`), so every finding and every healthy situation is a
//! test without a server.
//!
//! Where both readings show the same head, nobody else led in between, since a token is given
//! once; a claim of another token that is valid then contradicts the store. It is said only if
//! the same claim does so in two rounds: a file may go a moment late.
//!
//! A command that asks a host and does not answer is killed with its process group, and the
//! host counts as not asked; so does one that answers under a second name.
//!
//! Nine situations that look odd and are well go on while the doctor looks
//! (`tests/cli/healthy.rs`: transfers, a rolling restart, a leader that stands still, a clock
//! that is wrong, ...), some rounds each, and a hundred with `make healthy`: nothing is found.
//!
//! What no runbook can end (a store that promises little) is said for the record, and is no
//! finding.

mod ask;
mod evidence;
mod judge;
mod look;
mod recover;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use incumbent::store::{BootClock, Clock};
use serde::Serialize;

use self::ask::interrupted;
use self::evidence::{Evidence, Head};
use self::judge::{Finding, Severity, findings, looked_at, not_looked_at};
use self::look::Doctor;
use super::{watching_client, witness_of_this_user};
use crate::args::DoctorArgs;
use crate::failure::{Code, Failure};
use crate::json::VERSION;
use crate::output::{Console, Paint, out, out_json, printable};
use crate::reader_gone::reader_gone;
use crate::store_url::StoreUrl;

/// Exit codes of this verb alone.
const WARNINGS: u8 = 10;
const WRONG: u8 = 11;

/// How often it looks, with `--watch`.
const EVERY: Duration = Duration::from_secs(5);

#[derive(Serialize)]
struct FindingJson<'a> {
    v: u32,
    finding: &'a str,
    severity: &'a str,
    what: &'a str,
    seen: &'a [String],
    means: &'a str,
    not_told_from: &'a str,
    next: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    runbook: Option<String>,
    /// With `--watch`: it is found no longer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    gone: bool,
}

/// With `--watch`: one that cannot be asked, or can again.
#[derive(Serialize)]
struct MissingJson<'a> {
    v: u32,
    not_looked_at: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    gone: bool,
}

#[derive(Serialize)]
struct SummaryJson<'a> {
    v: u32,
    election: &'a str,
    findings: usize,
    /// As it is shown to people. Null: nobody leads.
    leads: Option<String>,
    looked_at: Vec<String>,
    not_looked_at: Vec<String>,
    exit: u8,
}

pub(crate) async fn doctor(args: DoctorArgs, store: StoreUrl, console: &Console) -> Result<u8, Failure> {
    let asks_hosts = args.claims.as_ref().is_some_and(|command| command.contains("{host}"));
    if asks_hosts && args.hosts.is_empty() {
        return Err(Failure::usage("--claims has {host} in it, and no host is named").next("name each with --host"));
    }
    if !asks_hosts && !args.hosts.is_empty() {
        let why = match args.claims {
            Some(_) => "hosts are named, and --claims has no {host}: it would ask none of them",
            None => "hosts are named, and nothing says how to ask them",
        };
        return Err(Failure::usage(why).next("write --claims 'ssh {host} incumbent claims --json'"));
    }
    let client = watching_client(&store).await?;
    let witness = witness_of_this_user();
    let doctor = Doctor { args: &args, client, store: &store, witness, began: BootClock.now() };
    // Whatever is being asked is given up with this process.
    tokio::select! {
        code = interrupted() => code,
        done = examine(&doctor, console) => done,
    }
}

async fn examine(doctor: &Doctor<'_>, console: &Console) -> Result<u8, Failure> {
    if doctor.args.recover {
        return recover::run_recovery(doctor, console).await;
    }
    let json = doctor.args.format.json;
    if doctor.args.watch {
        return watch(doctor, console).await;
    }
    Ok(look_and_tell(doctor, json).await?.code)
}

/// One look, what was found in it, and the exit code that says so.
struct Examined {
    evidence: Evidence,
    found: Vec<Finding>,
    code: u8,
}

/// Looks, and tells what it has found.
async fn look_and_tell(doctor: &Doctor<'_>, json: bool) -> Result<Examined, Failure> {
    let evidence = doctor.look().await?;
    let found = findings(&evidence);
    found.iter().try_for_each(|finding| show(finding, json, false))?;
    let code = conclude(&evidence, &found, json)?;
    Ok(Examined { evidence, found, code })
}

/// Who was asked, who was not, and the exit code that says so.
fn conclude(evidence: &Evidence, found: &[Finding], json: bool) -> Result<u8, Failure> {
    let missing = not_looked_at(evidence);
    let exit = exit_code(found, &missing);
    let looked_at = looked_at(evidence);
    let leads = evidence.last().after.head.as_ref().map(Head::shown);
    if json {
        let election = &evidence.election;
        out_json(&SummaryJson {
            v: VERSION,
            election,
            findings: found.len(),
            leads,
            looked_at,
            not_looked_at: missing,
            exit,
        })?;
        return Ok(exit);
    }
    let nothing = found.iter().all(|finding| finding.severity == Severity::Info);
    if nothing {
        let leads = leads.unwrap_or_else(|| "nobody".to_owned());
        out(&printable(&format!("nothing found in {}; {leads} leads", evidence.election)))?;
    }
    out(&format!("looked at: {}", if looked_at.is_empty() { "nobody".to_owned() } else { looked_at.join(", ") }))?;
    for missing in missing {
        out(&format!("not looked at: {missing}"))?;
    }
    Ok(exit)
}

/// 0 only if nothing was found and nobody was left out.
fn exit_code(found: &[Finding], missing: &[String]) -> u8 {
    match found.iter().map(|finding| finding.severity).max() {
        Some(Severity::Wrong) => WRONG,
        _ if !missing.is_empty() => Code::Timeout as u8,
        Some(Severity::Warning) => WARNINGS,
        Some(Severity::Info) | None => 0,
    }
}

fn show(finding: &Finding, json: bool, gone: bool) -> Result<(), Failure> {
    let runbook = (!finding.runbook.is_empty()).then(|| format!("docs/runbooks.md#{}", finding.runbook));
    if json {
        return out_json(&FindingJson {
            v: VERSION,
            finding: finding.code,
            severity: finding.severity.word(),
            what: &finding.what,
            seen: &finding.seen,
            means: finding.means,
            not_told_from: finding.not_told_from,
            next: &finding.next,
            runbook,
            gone,
        });
    }
    let paint = Paint::for_stream(&io::stdout());
    let word = match finding.severity {
        Severity::Wrong => paint.red("WRONG"),
        Severity::Warning => paint.yellow("WARNING"),
        Severity::Info => paint.dim("info"),
    };
    let word = if gone { paint.green("no longer") } else { word };
    out(&format!("{} {word}  {}", paint.bold(finding.code), finding.what))?;
    if gone {
        return Ok(());
    }
    for line in &finding.seen {
        out(&format!("    {line}"))?;
    }
    out(&format!("    means: {}", finding.means))?;
    out(&format!("    not told apart from: {}", finding.not_told_from))?;
    out(&format!("    next: {}", finding.next))?;
    runbook.map_or(Ok(()), |runbook| out(&format!("    runbook: {runbook}")))
}

/// Says what appears and what goes, each once it was so twice in a row.
async fn watch(doctor: &Doctor<'_>, console: &Console) -> Result<u8, Failure> {
    let json = doctor.args.format.json;
    let watch = async {
        let (mut found, mut missing) = (Changes::default(), Changes::default());
        loop {
            match doctor.look().await {
                Ok(evidence) => {
                    let key = |finding: &Finding| (finding.code, finding.what.clone());
                    for (finding, gone) in found.after(findings(&evidence), key) {
                        show(&finding, json, gone)?;
                    }
                    for (line, gone) in missing.after(not_looked_at(&evidence), String::clone) {
                        show_missing(&line, json, gone)?;
                    }
                }
                Err(failure) if matches!(failure.code, Code::Unavailable | Code::Timeout) => {
                    console.note(format!("what was said last may be out of date: {failure}"));
                }
                Err(failure) => return Err(failure),
            }
            tokio::time::sleep(EVERY).await;
        }
    };
    tokio::select! {
        done = watch => done,
        () = reader_gone() => Ok(0),
    }
}

/// With `--watch`: what cannot be looked at, or can again.
fn show_missing(line: &str, json: bool, gone: bool) -> Result<(), Failure> {
    if json {
        return out_json(&MissingJson { v: VERSION, not_looked_at: line, gone });
    }
    out(&format!("{}: {line}", if gone { "no longer" } else { "not looked at" }))
}

/// What was told, and what was seen once since.
struct Changes<K, T> {
    told: BTreeMap<K, T>,
    last: BTreeSet<K>,
}

impl<K, T> Default for Changes<K, T> {
    fn default() -> Changes<K, T> {
        Changes { told: BTreeMap::new(), last: BTreeSet::new() }
    }
}

impl<K: Ord + Clone, T: Clone> Changes<K, T> {
    /// What is to be told now: what was seen, and whether it is gone.
    fn after(&mut self, seen: Vec<T>, key: impl Fn(&T) -> K) -> Vec<(T, bool)> {
        let now: BTreeMap<K, T> = seen.into_iter().map(|seen| (key(&seen), seen)).collect();
        let mut changes = Vec::new();
        for (key, seen) in &now {
            if self.last.contains(key) && !self.told.contains_key(key) {
                self.told.insert(key.clone(), seen.clone());
                changes.push((seen.clone(), false));
            }
        }
        let is_gone = |key: &&K| !now.contains_key(*key) && !self.last.contains(*key);
        let gone: Vec<_> = self.told.keys().filter(is_gone).cloned().collect();
        changes.extend(gone.iter().filter_map(|key| self.told.remove(key)).map(|seen| (seen, true)));
        self.last = now.into_keys().collect();
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(severity: Severity) -> Finding {
        let text = String::new;
        let (what, seen, next) = (text(), Vec::new(), text());
        Finding { code: "D01", severity, what, seen, means: "", not_told_from: "", next, runbook: "" }
    }

    #[test]
    fn only_one_who_looked_everywhere_and_found_nothing_says_so() {
        let silent = ["db3".to_owned()];
        for (severity, all_asked, one_silent) in [
            (None, 0, 4),
            (Some(Severity::Info), 0, 4),
            (Some(Severity::Warning), 10, 4),
            (Some(Severity::Wrong), 11, 11),
        ] {
            let found: Vec<_> = severity.map(finding).into_iter().collect();
            assert_eq!(exit_code(&found, &[]), all_asked, "{severity:?}");
            assert_eq!(exit_code(&found, &silent), one_silent, "{severity:?}");
        }
    }

    #[test]
    fn what_comes_and_goes_is_told_once_it_was_so_twice() {
        let mut changes = Changes::default();
        let mut told = |seen: &[&'static str]| changes.after(seen.to_vec(), |seen| *seen);
        assert!(told(&["db3"]).is_empty(), "seen once");
        assert_eq!(told(&["db3"]), [("db3", false)]);
        assert!(told(&["db3"]).is_empty(), "told already");
        assert!(told(&[]).is_empty(), "missed once");
        assert!(told(&["db3"]).is_empty(), "it was there all the time");
        assert!(told(&[]).is_empty());
        assert_eq!(told(&[]), [("db3", true)]);
        assert!(told(&[]).is_empty());
    }
}
