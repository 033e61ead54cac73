//! `claims`: which processes of this host say that they lead, and for how much longer.

use std::time::Duration;

use crate::args::ClaimsArgs;
use crate::claims::{LivingClaim, Work, read_claims};
use crate::duration::show;
use crate::failure::Failure;
use crate::output::{Console, lined_up, out_json, out_lines, printable};

pub(crate) fn claims(args: ClaimsArgs, console: &Console) -> Result<u8, Failure> {
    let host = read_claims(None);
    if args.format.json {
        out_json(&host)?;
        return Ok(0);
    }
    out_lines(&table(&host.claims))?;
    if host.claims.is_empty() {
        console.note("no process of this host says that it leads");
    }
    for Work { pid, program, election, token, .. } in &host.work {
        let what = format!("process {pid} ({program}) works for {election} with token {token}, and nobody claims it");
        console.warn(printable(&what));
    }
    for unread in &host.unread {
        console.warn(format!("claims may be missing: {}", printable(unread)));
    }
    Ok(0)
}

/// A row for each: the election, who leads it, its token, for how long, which process it is, and in
/// which store.
fn table(claims: &[LivingClaim]) -> Vec<String> {
    let row = |claim: &LivingClaim| {
        let token = claim.token.map_or_else(|| "no token".to_owned(), |token| format!("token {token}"));
        let store = claim.url.as_ref().map_or_else(String::new, |url| format!("  in {}", printable(url)));
        let process = format!("pid {}{store}", claim.pid);
        [printable(&claim.election), printable(&claim.name), token, lasts(claim), process]
    };
    lined_up(&claims.iter().map(row).collect::<Vec<_>>())
}

/// `for another 9.8 s`, and what keeps the process from noticing that it is over.
pub(super) fn lasts(claim: &LivingClaim) -> String {
    let mut text = match claim.remaining_ms {
        None => "without a bound".to_owned(),
        Some(0) if claim.work_gone => "over, and its work was stopped".to_owned(),
        Some(0) => "over, and its work has not stopped yet".to_owned(),
        Some(left) => format!("for another {}", show(Duration::from_millis(left))),
    };
    if claim.stopping && claim.is_valid() {
        text.push_str(", stopping");
    }
    if claim.suspended {
        text.push_str(", process suspended");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_lines_up() {
        let claim = LivingClaim {
            pid: 4711,
            name: "node-1".into(),
            election: "jobs/x".into(),
            store: None,
            token: Some(7),
            remaining_ms: Some(9800),
            stopping: false,
            suspended: false,
            work_gone: false,
            url: Some("etcd://h".into()),
            renewals: Vec::new(),
        };
        let over = LivingClaim { pid: 1, token: None, remaining_ms: Some(0), suspended: true, ..claim.clone() };
        let stopping = LivingClaim { stopping: true, remaining_ms: None, ..claim.clone() };
        assert_eq!(table(&[claim]), ["jobs/x  node-1  token 7  for another 9.8 s  pid 4711  in etcd://h"]);
        let stopped = LivingClaim { work_gone: true, ..over.clone() };
        assert_eq!(lasts(&stopped), "over, and its work was stopped, process suspended");
        assert_eq!(lasts(&over), "over, and its work has not stopped yet, process suspended");
        assert_eq!(lasts(&stopping), "without a bound, stopping");
    }
}
