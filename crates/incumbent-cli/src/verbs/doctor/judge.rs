//! What the evidence shows: findings, each with what was seen, what it means, what it cannot be
//! told from, and what to do next. No clock and no I/O: the same evidence gives the same findings.

use std::time::Duration;

use incumbent::TokenStrength;

use super::evidence::{Evidence, FenceSeen, Head, Heard, Look, Members, OpenTerm, Ordered};
use crate::claims::{Renewed, Work};
use crate::duration::show;
use crate::failure::fenced_command;
use crate::output::{printable, shell_word};
use crate::verbs::check::FORGOTTEN;
use crate::verbs::claims::lasts;

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    /// Nothing to do about it.
    Info,
    Warning,
    Wrong,
}

impl Severity {
    pub(super) fn word(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Wrong => "wrong",
        }
    }
}

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) code: &'static str,
    pub(super) severity: Severity,
    pub(super) what: String,
    /// The evidence: raw values, from where, and when.
    pub(super) seen: Vec<String>,
    pub(super) means: &'static str,
    pub(super) not_told_from: &'static str,
    pub(super) next: String,
    pub(super) runbook: &'static str,
}

/// Every question that is asked of the evidence, in the order of the codes.
const QUESTIONS: [fn(&Evidence) -> Vec<Finding>; 26] = [
    d01_two_claims,
    d02_unknown_claim,
    d03_work_after_its_term,
    d03_orphaned_work,
    d04_entry_that_stays,
    d05_silent_leader,
    d05_running_out,
    d05_suspended,
    d06_older_store,
    d06_replaced_store,
    d07_fence_behind,
    d08_tokens_went_back,
    d09_not_in_office,
    d10_nobody_stands,
    d11_forgotten_order,
    d11_held_back,
    d12_open_term,
    d13_lost_votes,
    d13_foreign_members,
    d14_no_majority,
    d15_unfenced_rivals,
    d15_different_fencing,
    d16_weak_promises,
    d17_two_stores,
    d18_late_renewals,
    d19_servers_missing,
];

/// All that is wrong, or may be.
pub(super) fn findings(evidence: &Evidence) -> Vec<Finding> {
    QUESTIONS.iter().flat_map(|question| question(evidence)).collect()
}

/// Who and what was not looked at, and why. Nobody is left out only if this is empty.
pub(super) fn not_looked_at(evidence: &Evidence) -> Vec<String> {
    let mut missing = Vec::new();
    for answer in &evidence.last().answers {
        match &answer.claims {
            Err(why) => missing.push(format!("{} ({why})", answer.host)),
            Ok(claims) => missing.extend(claims.unread.iter().map(|unread| format!("{}: {unread}", answer.host))),
        }
    }
    if !evidence.hosts_named && !evidence.one_host {
        missing.push("other hosts (name them with --host, or give --claims)".to_owned());
    }
    if !evidence.last().is_settled() {
        missing.push("claims, since the office is changing hands".to_owned());
    } else if let Some(head) = evidence.unclaimed() {
        missing.push(format!(
            "the process of {}: nobody who was asked claims it; its host was not asked, or its program keeps no claims",
            head.shown()
        ));
    }
    missing.extend(evidence.witness.as_ref().err().map(|why| format!("what this host has seen before ({why})")));
    let unread = |fence: &FenceSeen| match &fence.mark {
        Ok(Some(_)) => None,
        Ok(None) => Some(format!("the fence {} (it has no mark of this election: is it this one?)", fence.place)),
        Err(why) => Some(format!("the fence {} ({why})", fence.place)),
    };
    missing.extend(evidence.fences.iter().filter_map(unread));
    missing.iter().map(|missing| printable(missing)).collect()
}

/// Who and what was looked at: hosts, and fences that have a mark.
pub(super) fn looked_at(evidence: &Evidence) -> Vec<String> {
    let answered = evidence.last().answers.iter().filter(|answer| answer.claims.is_ok());
    let hosts = answered.map(|answer| printable(&answer.host));
    hosts.chain(marks(evidence).map(|(place, ..)| printable(&format!("the fence {place}")))).collect()
}

/// `db1 pid 4711  token 41  for another 9.8 s (asked at +0.21 s)`
fn said(heard: &Heard<'_>) -> String {
    let token = heard.claim.token.map_or_else(|| "no token".to_owned(), |token| format!("token {token}"));
    let at = heard.at.as_secs_f64();
    let (host, name) = (printable(heard.host), printable(&heard.claim.name));
    format!("{host} pid {} ({name})  {token}  {} (asked at +{at:.2} s)", heard.claim.pid, lasts(heard.claim))
}

/// What the store said around it.
fn store_said(evidence: &Evidence) -> String {
    let last = evidence.last();
    let head =
        last.after.head.as_ref().map_or_else(|| "nobody leads".to_owned(), |head| format!("{} leads", head.shown()));
    let (from, to) = (last.before.at.as_secs_f64(), last.after.at.as_secs_f64());
    printable(&format!("the store: {head}, at +{from:.2} s and at +{to:.2} s"))
}

/// What each fence would say to that token.
fn fences_said(evidence: &Evidence, token: Option<u64>) -> Vec<String> {
    let said = |(place, mark, _): (&str, u64, &String)| {
        let refused = if token? < mark { "refused" } else { "NOT refused" };
        Some(format!("the fence {place} is at {mark}: what is written there with {} is {refused}", token?))
    };
    marks(evidence).filter_map(said).collect()
}

fn d01_two_claims(evidence: &Evidence) -> Vec<Finding> {
    let lasting = evidence.lasting(|round| evidence.contradictions(round));
    let claims: Vec<_> =
        evidence.claims_in(evidence.last()).into_iter().filter(|heard| heard.claim.is_valid()).collect();
    if lasting.is_empty() || claims.len() < 2 {
        return Vec::new();
    }
    let mut seen: Vec<_> = claims.iter().map(said).collect();
    seen.push(store_said(evidence));
    for (_, heard) in &lasting {
        seen.extend(fences_said(evidence, heard.claim.token));
    }
    let stale: Vec<_> = lasting.iter().map(|(_, heard)| format!("{} pid {}", heard.host, heard.claim.pid)).collect();
    vec![Finding {
        code: "D01",
        severity: Severity::Wrong,
        what: format!("{} processes say that they lead", claims.len()),
        seen,
        means: "their work may be done twice; only what checks the token refuses the older one",
        not_told_from: "a virtual machine whose clock stood still while the others' went on",
        next: format!("stop {} (its service, or its process), and ask again", printable(&stale.join(" and "))),
        runbook: "two-claim-to-lead",
    }]
}

fn d02_unknown_claim(evidence: &Evidence) -> Vec<Finding> {
    let lasting = evidence.lasting(|round| evidence.contradictions(round));
    let valid = evidence.claims_in(evidence.last()).iter().filter(|heard| heard.claim.is_valid()).count();
    // Two of them are D01.
    if valid > 1 {
        return Vec::new();
    }
    let finding = |(then, now): &(Heard<'_>, Heard<'_>)| {
        let deposed = now.claim.token.is_some() && evidence.last().after.deposed == now.claim.token;
        // One whose time runs out has not noticed yet. One whose time was prolonged never will.
        let prolonged = now.claim.remaining_ms.is_none() || now.claim.remaining_ms > then.claim.remaining_ms;
        let mut seen = vec![said(then), said(now), store_said(evidence)];
        seen.extend(deposed.then(|| "an operator has deposed it".to_owned()));
        seen.extend(fences_said(evidence, now.claim.token));
        Finding {
            code: "D02",
            severity: if prolonged { Severity::Wrong } else { Severity::Warning },
            what: "a process says that it leads, and the store does not know it".to_owned(),
            seen,
            means: "its entry is gone, and it has not noticed yet; it stops at its deadline at the latest",
            not_told_from: "an entry that was deleted, or a leader deposed, less than a renewal ago",
            next: "wait for its deadline and ask again; stop the process if its time is prolonged".to_owned(),
            runbook: "two-claim-to-lead",
        }
    };
    lasting.iter().map(finding).collect()
}

fn d03_work_after_its_term(evidence: &Evidence) -> Vec<Finding> {
    let finding = |(_, now): &(Heard<'_>, Heard<'_>)| {
        let beside = evidence.last().after.head.as_ref().is_some_and(|head| head.token != now.claim.token);
        Finding {
            code: "D03",
            severity: if beside { Severity::Wrong } else { Severity::Warning },
            what: "a term is over, and its work has not stopped".to_owned(),
            seen: vec![said(now), store_said(evidence)],
            means: if beside {
                "it may go on beside the next leader's"
            } else {
                "nobody else can lead until it has stopped, and nobody may rely on it"
            },
            not_told_from: "work that is about to stop: its grace is over, and its end is not confirmed yet",
            next: format!("stop process {} on {}, and all that it has started", now.claim.pid, printable(now.host)),
            runbook: "two-claim-to-lead",
        }
    };
    evidence.lasting(|round| evidence.overdue(round)).iter().map(finding).collect()
}

fn d03_orphaned_work(evidence: &Evidence) -> Vec<Finding> {
    let Some((earlier, later)) = evidence.last_two() else { return Vec::new() };
    let before = evidence.orphans(earlier);
    let orphans: Vec<_> = evidence.orphans(later).into_iter().filter(|orphan| before.contains(orphan)).collect();
    if orphans.is_empty() {
        return Vec::new();
    }
    let beside =
        |(_, work): &(&str, &Work)| later.after.head.as_ref().is_some_and(|head| head.token != Some(work.token));
    let said = |(host, work): &(&str, &Work)| {
        let Work { pid, program, token, .. } = work;
        printable(&format!("{host} pid {pid} ({program}) was started with token {token}, which nobody claims"))
    };
    let mut seen: Vec<_> = orphans.iter().map(said).collect();
    seen.push(store_said(evidence));
    let is_beside = orphans.iter().any(beside);
    vec![Finding {
        code: "D03",
        severity: if is_beside { Severity::Wrong } else { Severity::Warning },
        what: if is_beside {
            "work goes on whose leader is gone"
        } else {
            "work goes on, and nobody claims its office"
        }
        .to_owned(),
        seen,
        means: if is_beside {
            "its guardian was stopped or killed, or it has escaped: it goes on beside the next leader's"
        } else {
            "its leader is gone, or could not write its claim, or claims as another user"
        },
        not_told_from: "a process that has its environment from such work and is none, like a shell",
        next: if is_beside {
            "stop these processes"
        } else {
            "look, as root, whether the `incumbent` that started them runs; if it does not, stop them"
        }
        .to_owned(),
        runbook: "two-claim-to-lead",
    }]
}

fn d04_entry_that_stays(evidence: &Evidence) -> Vec<Finding> {
    let Some((earlier, later)) = evidence.last_two() else { return Vec::new() };
    let (before, last) = (&earlier.before, &later.after);
    let finding = |entry: &Head| {
        let first = last.first.as_ref() == Some(entry);
        let place = if first { "it is first" } else { "it will be first one day" };
        let behind = last.in_line.saturating_sub(1);
        let name = entry.name.as_deref().unwrap_or("a candidate that names itself in no way of ours");
        let token = entry.token.map_or_else(String::new, |token| token.to_string());
        Finding {
            code: "D04",
            severity: if first { Severity::Wrong } else { Severity::Warning },
            what: "somebody stands in line whom nothing will remove".to_owned(),
            seen: vec![printable(&format!(
                "{name}, token {token}: no session keeps it; {place}, with {behind} others"
            ))],
            means: "nobody renews it, and nobody behind it can ever lead",
            not_told_from: "a program that wants it so: ask whose it is before you remove it",
            next: format!("when it is first:  incumbent depose {} --token {token}", shell_word(&evidence.election)),
            runbook: "nobody-leads",
        }
    };
    last.stay.iter().filter(|entry| before.stay.contains(entry)).map(finding).collect()
}

fn d05_silent_leader(evidence: &Evidence) -> Vec<Finding> {
    let last = &evidence.last().after;
    let silent = last.silence.zip(last.head.as_ref()).filter(|((lasts, ttl), _)| lasts >= ttl);
    let finding = |((lasts, ttl), head): ((Duration, Duration), &Head)| Finding {
        code: "D05",
        severity: Severity::Warning,
        what: "nothing is heard of the leader".to_owned(),
        seen: vec![printable(&format!(
            "{} was last heard of {} ago, with a TTL of {}",
            head.shown(),
            show(lasts),
            show(ttl)
        ))],
        means: "its process is stopped or stuck, and nobody is there to take over",
        not_told_from: "a host that was suspended and has just come back",
        next: format!("start another candidate; or remove it:  incumbent depose {}", shell_word(&evidence.election)),
        runbook: "the-leader-is-unwell",
    };
    silent.map(finding).into_iter().collect()
}

/// The same as its own claim shows it, on any store.
fn d05_running_out(evidence: &Evidence) -> Vec<Finding> {
    let finding = |(then, now): &(Heard<'_>, Heard<'_>)| Finding {
        code: "D05",
        severity: Severity::Warning,
        what: "the leader does not renew, and its time runs out".to_owned(),
        seen: vec![said(then), said(now), store_said(evidence)],
        means: "unless it renews, its work is stopped in a moment, and the next in line leads",
        not_told_from: "a leader that was stopped and has just gone on",
        next: "look at its process, and whether it reaches the store".to_owned(),
        runbook: "the-leader-is-unwell",
    };
    let lasting = evidence.lasting(|round| evidence.running_out(round));
    lasting.iter().filter(|(then, now)| now.claim.remaining_ms < then.claim.remaining_ms).map(finding).collect()
}

/// The same where its process is seen to be stopped. One that goes on in time has lost nothing.
fn d05_suspended(evidence: &Evidence) -> Vec<Finding> {
    // They say it, and more.
    if !d05_silent_leader(evidence).is_empty() || !d05_running_out(evidence).is_empty() {
        return Vec::new();
    }
    let is_late = evidence.last().after.silence.is_some_and(|(lasts, ttl)| lasts > ttl * 5 / 6);
    let finding = |(then, now): &(Heard<'_>, Heard<'_>)| Finding {
        code: "D05",
        severity: if is_late { Severity::Warning } else { Severity::Info },
        what: "the leader's process is suspended".to_owned(),
        seen: vec![said(then), said(now), store_said(evidence)],
        means: "it does nothing, and renews nothing: when its time is over, the next in line leads",
        not_told_from: "a process that somebody has stopped to look at it",
        next: format!("let it go on:  kill -CONT {}  on {}", now.claim.pid, printable(now.host)),
        runbook: "the-leader-is-unwell",
    };
    evidence.lasting(|round| evidence.suspended(round)).iter().map(finding).collect()
}

fn d06_older_store(evidence: &Evidence) -> Vec<Finding> {
    let leads = evidence.last().after.head_token();
    let mut seen = Vec::new();
    if let Some((latest, file)) = evidence.seen_later() {
        seen.push(format!("this host has seen token {} here, and says so in {file}", latest.token));
    }
    for (place, mark, store) in marks(evidence) {
        if evidence.identity.as_ref() == Some(store) && leads.is_some_and(|leads| mark > leads) {
            seen.push(format!("the mark of the fence {place} is {mark}: what its leader writes is refused"));
        }
    }
    if seen.is_empty() {
        return Vec::new();
    }
    vec![Finding {
        what: "the store is older than it was".to_owned(),
        means: "tokens that were given once are given again, and no fence can tell their holders apart",
        next: format!("incumbent pause {}  and then the runbook", shell_word(&evidence.election)),
        ..restored(evidence, seen)
    }]
}

fn d06_replaced_store(evidence: &Evidence) -> Vec<Finding> {
    let Some(identity) = &evidence.identity else { return Vec::new() };
    let mut seen = Vec::new();
    if let Some((before, file)) = evidence.replaced() {
        seen.push(format!("this host has found {before} here, and says so in {file}; {identity} answers"));
    }
    for (place, mark, store) in marks(evidence).filter(|(_, _, store)| *store != identity) {
        seen.push(format!("the mark of the fence {place} is {mark} of {store}; {identity} answers"));
    }
    if seen.is_empty() {
        return Vec::new();
    }
    vec![Finding {
        what: "the store was replaced".to_owned(),
        means: "numbers of two stores do not compare: a fence refuses every leader until it is reset, and a leader of \
                the former store may still run",
        next: "make sure that no leader of the former store runs, and then the runbook".to_owned(),
        ..restored(evidence, seen)
    }]
}

/// What both have in common.
fn restored(evidence: &Evidence, mut seen: Vec<String>) -> Finding {
    seen.push(store_said(evidence));
    seen.extend(evidence.identity.iter().map(|identity| format!("the store's identity: {identity}")));
    Finding {
        code: "D06",
        severity: Severity::Wrong,
        what: String::new(),
        seen: seen.iter().map(|line| printable(line)).collect(),
        means: "",
        not_told_from: "a fence, or a memory of this host, of another election or store: compare what they name",
        next: String::new(),
        runbook: "the-store-was-restored",
    }
}

/// The fences that have one: where, the token, and the identity of its store.
fn marks(evidence: &Evidence) -> impl Iterator<Item = (&str, u64, &String)> {
    evidence.fences.iter().filter_map(|fence| {
        let (mark, store) = fence.mark.as_ref().ok()?.as_ref()?;
        Some((&*fence.place, *mark, store))
    })
}

fn d07_fence_behind(evidence: &Evidence) -> Vec<Finding> {
    let Some(leads) = evidence.last().after.head_token() else { return Vec::new() };
    let behind = marks(evidence).filter(|(_, mark, store)| evidence.identity.as_ref() == Some(*store) && *mark < leads);
    let finding = |(place, mark, _): (&str, u64, &String)| Finding {
        code: "D07",
        severity: Severity::Info,
        what: "a fence has not heard of the leader yet".to_owned(),
        seen: vec![printable(&format!("the fence {place} is at {mark}, and {leads} leads"))],
        means: "the leader has not raised it, and has written nothing there: that is usual before its first write",
        not_told_from: "a leader that does not use this fence",
        next: "nothing".to_owned(),
        // There is nothing to end.
        runbook: "",
    };
    behind.map(finding).collect()
}

fn d08_tokens_went_back(evidence: &Evidence) -> Vec<Finding> {
    let looks = evidence.rounds.iter().flat_map(|round| [&round.before, &round.after]);
    let tokens: Vec<_> = looks.filter_map(|look| Some((look.head_token()?, look.at))).collect();
    // A single answer may come from the past: the newest look has to agree.
    let Some(&(newest, _)) = tokens.last() else { return Vec::new() };
    let settled = evidence.last().is_settled();
    let Some(&(highest, at)) = tokens.iter().max().filter(|(highest, _)| settled && *highest > newest) else {
        return Vec::new();
    };
    vec![Finding {
        code: "D08",
        severity: Severity::Wrong,
        what: "the leader's token went back".to_owned(),
        seen: vec![format!("token {highest} led at +{:.2} s", at.as_secs_f64()), store_said(evidence)],
        means: "the store was put back, or another one answers, while it was looked at",
        not_told_from: "a server that answers with what it knew a while ago",
        next: "ask again; if it stays so, the runbook".to_owned(),
        runbook: "the-store-was-restored",
    }]
}

fn d09_not_in_office(evidence: &Evidence) -> Vec<Finding> {
    let is_fencing = evidence.last().after.is_fencing;
    let election = shell_word(&evidence.election);
    let finding = |head: &Head| Finding {
        code: "D09",
        severity: Severity::Warning,
        what: "the first in line is not in office".to_owned(),
        seen: vec![
            printable(&format!("{} is first, and the record has no open term of it", head.shown())),
            store_said(evidence),
        ],
        means: if is_fencing {
            "nobody leads until the work of the last leader was stopped from outside, or a person says that it has"
        } else {
            "nobody leads: its process is stopped or stuck, cannot raise a fence, or the store takes no writes of it"
        },
        not_told_from: if is_fencing {
            "a fence command that is about to succeed"
        } else {
            "the first moments of a term: it takes office within a TTL, or makes room"
        },
        next: if is_fencing {
            format!(
                "incumbent history {election}  shows what came of it; once you have checked:  {}",
                fenced_command(&election, evidence.last().after.at_large)
            )
        } else {
            format!("look at its log; remove it:  incumbent depose {election}")
        },
        runbook: "nobody-leads",
    };
    evidence.taking().map(finding).into_iter().collect()
}

fn d10_nobody_stands(evidence: &Evidence) -> Vec<Finding> {
    let empty = |look: &Look| {
        look.head.is_none() && look.in_line == 0 && look.group.is_none() && look.paused.is_none() && !look.ended
    };
    let lasts = evidence.last_two().is_some_and(|(earlier, later)| empty(&earlier.before) && empty(&later.after));
    // One who claims the office stood a moment ago: that is another finding.
    if !lasts || !evidence.claims_in(evidence.last()).is_empty() {
        return Vec::new();
    }
    if let Some(quiet) = evidence.last().after.quiet {
        return vec![Finding {
            code: "D10",
            severity: Severity::Warning,
            what: format!("nobody leads for another {}", show(quiet)),
            seen: vec!["the store says that another of its servers has taken over".to_owned()],
            means: "whoever led before may believe so for that long; candidates wait for that",
            not_told_from: "a store that was restored from a copy of itself",
            next: format!("wait, and ask again; incumbent status {}", shell_word(&evidence.election)),
            runbook: "nobody-leads",
        }];
    }
    let seen = evidence.witness.as_ref().ok().and_then(Option::as_ref);
    let led = seen.map_or_else(
        || "this host has seen nobody lead here".to_owned(),
        |(seen, _)| format!("this host has seen token {} here", seen.token),
    );
    let deposed = evidence.last().after.deposed;
    let deposed = deposed.map_or_else(String::new, |token| format!("; the leader with token {token} was deposed"));
    let benched: Vec<_> = evidence.last().after.benched.iter().map(|(name, _)| printable(name)).collect();
    let benched = match &benched[..] {
        [] => String::new(),
        names => format!("; an operator has benched {}", names.join(" and ")),
    };
    vec![Finding {
        code: "D10",
        // Where nobody ever led, nobody is missed.
        severity: if seen.is_some() { Severity::Warning } else { Severity::Info },
        what: if seen.is_some() { "nobody stands, and somebody led once" } else { "nobody stands" }.to_owned(),
        seen: vec![format!("{led}; now nobody is in line, and it is neither paused nor ended{deposed}{benched}")],
        means: "no candidate runs, all of them are unfit (their logs say so), or they use another store or another name",
        not_told_from: "an election whose work is done now and then, by `incumbent run --try` in cron",
        next: format!("start a candidate; incumbent status {}", shell_word(&evidence.election)),
        runbook: "nobody-leads",
    }]
}

fn d11_forgotten_order(evidence: &Evidence) -> Vec<Finding> {
    let last = &evidence.last().after;
    let finding = |order: &Ordered, done: &str, undo: &str| Finding {
        code: "D11",
        severity: Severity::Warning,
        what: format!("the election is {done} for more than a day"),
        seen: vec![printable(&format!("{done} {}, {} ago", order.text, order.age.map_or_else(String::new, show)))],
        means: "an order that was meant for a while may have been forgotten",
        not_told_from: "an order that is meant; and hosts whose wall clocks differ by a day",
        next: format!("incumbent {undo} {}", shell_word(&evidence.election)),
        runbook: "maintenance-of-a-host",
    };
    let old = |order: &&Ordered| order.age > Some(FORGOTTEN);
    let paused = last.paused.as_ref().filter(old).map(|order| finding(order, "paused", "resume"));
    let frozen = last.frozen.as_ref().filter(old).map(|order| finding(order, "frozen", "unfreeze"));
    let benched = last.benched.iter().filter(|(_, order)| old(&order)).map(|(name, order)| Finding {
        what: format!("{} is benched for more than a day", printable(name)),
        seen: vec![printable(&format!(
            "{name} benched {}, {} ago",
            order.text,
            order.age.map_or_else(String::new, show)
        ))],
        next: format!("incumbent unbench {} {}", shell_word(&evidence.election), shell_word(name)),
        ..finding(order, "", "")
    });
    paused.into_iter().chain(frozen).chain(benched).collect()
}

/// Not an order, but what waits for one.
fn d11_held_back(evidence: &Evidence) -> Vec<Finding> {
    let finding = |(token, age): (u64, Option<Duration>)| Finding {
        code: "D11",
        severity: Severity::Warning,
        what: "health moves the office no more, and waits for an operator".to_owned(),
        seen: vec![format!(
            "three changes of office for health within ten minutes, as token {token} has counted{}",
            age.map_or_else(String::new, |age| format!(", {} ago", show(age)))
        )],
        means: "a leader that is unwell stays where it is, although somebody else may be fit",
        not_told_from: "a cause that is gone by now, and that nobody has acknowledged",
        next: format!("find what they share, or who flaps; then incumbent ack {}", shell_word(&evidence.election)),
        runbook: "the-leader-is-unwell",
    };
    evidence.last().after.held_back.map(finding).into_iter().collect()
}

fn d12_open_term(evidence: &Evidence) -> Vec<Finding> {
    let finding = |(term, asked): (&OpenTerm, bool)| {
        let OpenTerm { token, name, host, age, shot, .. } = term;
        let opened = age.map_or_else(String::new, |age| format!(", opened {} ago", show(age)));
        let host = if host.is_empty() { "a host that it did not name" } else { host };
        let said = if asked { "says that no process of it is left" } else { "was not asked" };
        let left_open = format!("{name} (token {token}) on {host}{opened}: not closed; {host} {said}");
        let seen = [Some(left_open), shot.clone()];
        Finding {
            code: "D12",
            severity: if asked { Severity::Info } else { Severity::Warning },
            what: "the last term was left open".to_owned(),
            seen: seen.into_iter().flatten().map(|line| printable(&line)).collect(),
            means: "nobody has said that its work has stopped: it may go on beside the next leader's",
            not_told_from: if asked {
                "work that has outlived its process"
            } else {
                "a crash, after which nothing of it is left; and a leader that is about to close it late"
            },
            next: format!("make sure of its host; incumbent history {}", shell_word(&evidence.election)),
            runbook: "two-claim-to-lead",
        }
    };
    evidence.left_open().map(finding).into_iter().collect()
}

fn d13_lost_votes(evidence: &Evidence) -> Vec<Finding> {
    let group = evidence.last().after.group.as_ref().filter(|group| !group.not_voting.is_empty());
    let finding = |group: &Members| Finding {
        code: "D13",
        severity: Severity::Warning,
        what: "members have lost their votes".to_owned(),
        seen: vec![printable(&group.not_voting.join(", "))],
        means: "the next failure may end the group: they count as missing until the others have told them the term",
        not_told_from: "a member that is being founded, or whose disk is full",
        next: format!("incumbent peers readmit {} --member NAME, after its --help", shell_word(&evidence.election)),
        runbook: "nobody-leads",
    };
    group.map(finding).into_iter().collect()
}

fn d13_foreign_members(evidence: &Evidence) -> Vec<Finding> {
    let group = evidence.last().after.group.as_ref().filter(|group| !group.refusing.is_empty());
    let finding = |group: &Members| Finding {
        code: "D13",
        severity: Severity::Warning,
        what: "members take this group for another".to_owned(),
        seen: vec![printable(&group.refusing.join("; "))],
        means: "they hold another election, or have another list of members or another secret",
        not_told_from: "a change of the list that is being rolled out",
        next: "give all members the same election, list and secret".to_owned(),
        runbook: "nobody-leads",
    };
    group.map(finding).into_iter().collect()
}

fn d14_no_majority(evidence: &Evidence) -> Vec<Finding> {
    let last = &evidence.last().after;
    let Some(group) = last.group.as_ref().filter(|group| group.answering < group.needed) else { return Vec::new() };
    let Members { members, answering, needed, .. } = group;
    let waits = if group.waits_for.is_empty() {
        String::new()
    } else {
        format!("; they wait for {}", group.waits_for.join(", "))
    };
    vec![Finding {
        code: "D14",
        severity: Severity::Wrong,
        what: "too few members answer to elect a leader".to_owned(),
        seen: vec![printable(&format!("{answering} of {members} members answer, and {needed} are needed{waits}"))],
        means: "nobody can lead, as far as can be seen from here",
        not_told_from: "a network that is cut between here and the others: a majority may lead there",
        next: "start the others, or look from one of their hosts".to_owned(),
        runbook: "nobody-leads",
    }]
}

fn d15_unfenced_rivals(evidence: &Evidence) -> Vec<Finding> {
    let Some((earlier, later)) = evidence.last_two() else { return Vec::new() };
    let (before, foreign) = (earlier.before.foreign, later.after.foreign);
    if before == 0 || foreign == 0 || marks(evidence).next().is_none() {
        return Vec::new();
    }
    let mut seen = vec![format!("{foreign} of {} in line are of another library", later.after.in_line)];
    seen.extend(marks(evidence).map(|(place, mark, _)| printable(&format!("the fence {place} is at {mark}"))));
    vec![Finding {
        code: "D15",
        severity: Severity::Warning,
        what: "candidates of another library stand where a fence guards".to_owned(),
        seen,
        means: "they raise no fence: when one of them leads, nothing refuses what an earlier leader writes",
        not_told_from: "programs that raise it by themselves",
        next: "have all of them use the fence, or stand in another election".to_owned(),
        runbook: "two-claim-to-lead",
    }]
}

fn d15_different_fencing(evidence: &Evidence) -> Vec<Finding> {
    let Some((earlier, later)) = evidence.last_two() else { return Vec::new() };
    if !earlier.before.fence_differently() || !later.after.fence_differently() {
        return Vec::new();
    }
    let Look { fencing, in_line, .. } = &later.after;
    vec![Finding {
        code: "D15",
        severity: Severity::Warning,
        what: "some candidates stop the last leader from outside, and others do not".to_owned(),
        seen: vec![format!("{fencing} of {in_line} in line have a --fence-cmd, or a shooter of the library's")],
        means: "one of the others takes office although the last leader's work may go on",
        not_told_from: "a change of settings that is being rolled out",
        next: "start all of them with the same --fence-cmd and --fence-targets".to_owned(),
        runbook: "two-claim-to-lead",
    }]
}

/// A note and no warning: it was so when the store was chosen, and nothing that a runbook does ends
/// it.
fn d16_weak_promises(evidence: &Evidence) -> Vec<Finding> {
    let weak = evidence.tokens.as_ref().filter(|(tokens, _)| *tokens < TokenStrength::Durable);
    let finding = |(_, caveats): &(TokenStrength, Vec<String>)| Finding {
        code: "D16",
        severity: Severity::Info,
        what: "a crash or a failover may take its newest writes from this store; what follows, it says itself"
            .to_owned(),
        seen: caveats.iter().map(|caveat| printable(caveat)).collect(),
        means: "what was seen here is what the store says of itself; a fence notices a token that is given twice",
        not_told_from: "a store that was chosen for what it is",
        next: "incumbent explain  says what to set".to_owned(),
        runbook: "the-store-was-restored",
    };
    weak.map(finding).into_iter().collect()
}

fn d17_two_stores(evidence: &Evidence) -> Vec<Finding> {
    let elsewhere = evidence.lasting(|round| {
        let heard = round.heard(&evidence.election).into_iter();
        heard.filter(|heard| heard.claim.is_valid() && evidence.is_elsewhere(heard)).collect()
    });
    if elsewhere.is_empty() {
        return Vec::new();
    }
    let place = |heard: &Heard<'_>| {
        let store = heard.claim.store.as_deref().unwrap_or_default();
        printable(&format!("{}, in the store {store}", said(heard)))
    };
    let mut seen: Vec<_> = elsewhere.iter().map(|(_, now)| place(now)).collect();
    seen.extend(evidence.identity.iter().map(|identity| format!("the store that was asked: {identity}")));
    vec![Finding {
        code: "D17",
        severity: Severity::Warning,
        what: "an election of this name is led in another store, too".to_owned(),
        seen,
        means: "if both are meant to be one, there are two leaders, and their tokens do not compare",
        not_told_from: "two elections that are meant to be two",
        next: "give all candidates the same --store; another $XDG_STATE_HOME or database number is another store"
            .to_owned(),
        runbook: "two-claim-to-lead",
    }]
}

fn d18_late_renewals(evidence: &Evidence) -> Vec<Finding> {
    let finding = |heard: Heard<'_>| {
        let renewals = &heard.claim.renewals;
        let late = renewals.iter().filter(|renewed| is_late(renewed)).count();
        let mut left: Vec<u64> = renewals.iter().map(|renewed| renewed.left_ms).collect();
        left.sort_unstable();
        let lasts = renewals.iter().map(|renewed| renewed.lasts_ms).max().unwrap_or_default();
        let [least, median, lasts] =
            [left.first().copied().unwrap_or_default(), left.get(left.len() / 2).copied().unwrap_or_default(), lasts]
                .map(|ms| show(Duration::from_millis(ms)));
        let seen = format!(
            "of its last {} renewals {late} came late; left: {median} of {lasts}, at worst {least}",
            left.len()
        );
        (late >= TOO_MANY).then(|| Finding {
            code: "D18",
            severity: Severity::Warning,
            what: "the leader's renewals come late".to_owned(),
            seen: vec![said(&heard), seen],
            means: "one that comes a little later costs the office",
            not_told_from: "a process that was stopped again and again",
            next: "look at the store's load, at the network between, and at the leader's host; or a longer --ttl"
                .to_owned(),
            runbook: "the-leader-is-unwell",
        })
    };
    evidence.claims_in(evidence.last()).into_iter().filter(|heard| heard.claim.is_valid()).filter_map(finding).collect()
}

/// What a majority keeps, more than one look may have missed for a moment.
fn d19_servers_missing(evidence: &Evidence) -> Vec<Finding> {
    let last = evidence.last();
    let lasts = last.before.servers_missing.is_some();
    let finding = |missing: &String| Finding {
        code: "D19",
        severity: Severity::Warning,
        what: "not all servers of the store answer".to_owned(),
        seen: vec![printable(missing)],
        means: "the store goes on with the others, as long as they are a majority",
        not_told_from: "a server that is slow, that cannot be reached from here, or that was restarted a moment ago",
        next: "start those that are named, or mend the way to them".to_owned(),
        runbook: "nobody-leads",
    };
    last.after.servers_missing.iter().filter(|_| lasts).map(finding).collect()
}

/// How many of the last twenty renewals may be late: one stop, or one change of a server's leader,
/// makes one or two.
const TOO_MANY: usize = 3;

/// A renewal is sent after a third of the time; this one came in the last third.
fn is_late(renewed: &Renewed) -> bool {
    renewed.left_ms.saturating_mul(3) < renewed.lasts_ms
}

#[cfg(test)]
mod tests;
