//! Work that was begun under an office, found by what its processes were started with: also where
//! the process that led is gone.

use std::ffi::OsString;
use std::fs;

use super::candidates::{environment, numbers};
use super::directories::NAMED;
use super::{LivingClaim, Work};

/// More than anybody can look at.
const MOST: usize = 100;

/// What `incumbent run` tells its command.
pub(crate) const ELECTION: &str = "INCUMBENT_ELECTION";
pub(crate) const TOKEN: &str = "INCUMBENT_TOKEN";
pub(crate) const STORE_ID: &str = "INCUMBENT_STORE_ID";
pub(crate) const LAST_TERM: &str = "INCUMBENT_LAST_TERM";

/// The processes of this host that work under an office which nobody claims. Those of other users
/// are seen by root alone.
pub(super) fn orphaned(claims: &[LivingClaim], named: Option<OsString>) -> Vec<Work> {
    let is_claimed = |work: &Work| {
        let is_of = |claim: &LivingClaim| {
            claim.election == work.election
                && claim.token == Some(work.token)
                && claim.store.as_ref() == Some(&work.store)
        };
        claims.iter().any(is_of)
    };
    numbers().filter_map(|number| of(number, &named)).filter(|work| !is_claimed(work)).take(MOST).collect()
}

/// What this process works at, if it was started under an office by one that keeps claims here.
fn of(number: u32, named: &Option<OsString>) -> Option<Work> {
    let variable = environment(number).ok()?;
    let text = |name: &str| variable(name)?.into_string().ok();
    let token = text(TOKEN)?.parse().ok()?;
    let (election, store) = (text(ELECTION)?, text(STORE_ID)?);
    let program = fs::read_to_string(format!("/proc/{number}/comm")).unwrap_or_default().trim_end().to_owned();
    (variable(NAMED) == *named).then_some(Work { pid: number, program, election, store, token })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn work_is_found_by_its_environment_unless_its_office_is_claimed() {
        let named = Some(OsString::from(format!("/nowhere/{}", std::process::id())));
        let mut work = Command::new("cat");
        work.env(ELECTION, "jobs/x").env(TOKEN, "41").env(STORE_ID, "s").env(NAMED, named.as_ref().unwrap());
        let mut work = work.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // One that has just been started may show no environment yet.
        let mut asked = work.stdin.take().unwrap();
        asked.write_all(b"up\n").unwrap();
        let mut said = [0; 3];
        work.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        let found = orphaned(&[], named.clone());
        let expected =
            Work { pid: work.id(), program: "cat".into(), election: "jobs/x".into(), store: "s".into(), token: 41 };
        assert_eq!(found, [expected]);
        assert!(orphaned(&[], None).iter().all(|other| other.pid != work.id()), "of another world");
        let claim: LivingClaim = serde_json::from_value(serde_json::json!({
            "pid": 1, "name": "a", "election": "jobs/x", "store": "s", "token": 41, "remaining_ms": 0,
            "stopping": true, "suspended": false,
        }))
        .unwrap();
        assert!(orphaned(std::slice::from_ref(&claim), named.clone()).is_empty());
        assert_eq!(orphaned(&[LivingClaim { token: Some(42), ..claim }], named).len(), 1);
        drop(asked);
        work.wait().unwrap();
    }
}
