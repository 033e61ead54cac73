//! `doctor`: whether an election is as it should be, with everybody asked. It only reads.

mod evidence;
mod judge;
mod look;

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use incumbent::store::{BootClock, Clock};
use serde::Serialize;

use self::evidence::Evidence;
use self::judge::{Finding, Severity, findings, not_looked_at};
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

#[derive(Serialize)]
struct SummaryJson<'a> {
    v: u32,
    election: &'a str,
    findings: usize,
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
        return Err(Failure::usage("hosts are named, and nothing says how to ask them")
            .next("add --claims 'ssh {host} incumbent claims --json'"));
    }
    let client = watching_client(&store).await?;
    let witness = witness_of_this_user();
    let doctor = Doctor { args: &args, client, store: &store, witness, began: BootClock.now() };
    if args.watch {
        return watch(&doctor, console).await;
    }
    let evidence = doctor.look().await?;
    let found = findings(&evidence);
    for finding in &found {
        show(finding, args.format.json, false)?;
    }
    conclude(&evidence, &found, args.format.json)
}

/// Who was asked, who was not, and the exit code that says so.
fn conclude(evidence: &Evidence, found: &[Finding], json: bool) -> Result<u8, Failure> {
    let missing = not_looked_at(evidence);
    let exit = exit_code(found, &missing);
    let answered = evidence.last().answers.iter().filter(|answer| answer.claims.is_ok());
    let looked_at: Vec<_> = answered.map(|answer| printable(&answer.host)).collect();
    if json {
        let election = &evidence.election;
        out_json(&SummaryJson {
            v: VERSION,
            election,
            findings: found.len(),
            looked_at,
            not_looked_at: missing,
            exit,
        })?;
        return Ok(exit);
    }
    let nothing = found.iter().all(|finding| finding.severity == Severity::Info);
    if nothing {
        out(&format!("nothing found in {}", printable(&evidence.election)))?;
    }
    out(&format!("looked at: {}", if looked_at.is_empty() { "nobody".to_owned() } else { looked_at.join(" ") }))?;
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
        let mut changes = Changes::default();
        loop {
            match doctor.look().await {
                Ok(evidence) => {
                    for (finding, gone) in changes.after(findings(&evidence)) {
                        show(&finding, json, gone)?;
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

/// What was told, and what was seen once since.
#[derive(Default)]
struct Changes {
    told: BTreeMap<(&'static str, String), Finding>,
    last: BTreeMap<(&'static str, String), Finding>,
}

impl Changes {
    /// What is to be told now: a finding, and whether it is gone.
    fn after(&mut self, found: Vec<Finding>) -> Vec<(Finding, bool)> {
        let now: BTreeMap<_, _> = found.into_iter().map(|found| ((found.code, found.what.clone()), found)).collect();
        let mut changes = Vec::new();
        for (key, finding) in &now {
            if self.last.contains_key(key) && !self.told.contains_key(key) {
                self.told.insert(key.clone(), finding.clone());
                changes.push((finding.clone(), false));
            }
        }
        let gone: Vec<_> =
            self.told.keys().filter(|key| !now.contains_key(*key) && !self.last.contains_key(*key)).cloned().collect();
        changes.extend(gone.iter().filter_map(|key| self.told.remove(key)).map(|finding| (finding, true)));
        self.last = now;
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
        let found = || vec![finding(Severity::Wrong)];
        let told = |changes: Vec<(Finding, bool)>| changes.into_iter().map(|(_, gone)| gone).collect::<Vec<_>>();
        assert!(changes.after(found()).is_empty(), "seen once");
        assert_eq!(told(changes.after(found())), [false]);
        assert!(changes.after(found()).is_empty(), "told already");
        assert!(changes.after(Vec::new()).is_empty(), "missed once");
        assert!(changes.after(found()).is_empty(), "it was there all the time");
        assert!(changes.after(Vec::new()).is_empty());
        assert_eq!(told(changes.after(Vec::new())), [true]);
        assert!(changes.after(Vec::new()).is_empty());
    }
}
