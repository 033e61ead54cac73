//! What the evidence shows: findings, each with what was seen, what it means, what it cannot be
//! told from, and what to do next. No clock and no I/O: the same evidence gives the same findings.

use std::time::Duration;

use incumbent::TokenStrength;

use super::evidence::{Evidence, FenceSeen, Heard, Look, Members, Ordered};
use crate::duration::show;
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

/// Every question that is asked of the evidence.
const QUESTIONS: [fn(&Evidence) -> Vec<Finding>; 12] = [
    d01_two_claims,
    d02_unknown_claim,
    d03_work_after_its_term,
    d05_silent_leader,
    d06_older_store,
    d07_fence_behind,
    d08_tokens_went_back,
    d10_nobody_stands,
    d11_forgotten_order,
    d13_lost_votes,
    d14_no_majority,
    d17_two_stores,
];

/// All that is wrong, or may be, in the order of the codes.
pub(super) fn findings(evidence: &Evidence) -> Vec<Finding> {
    let mut found: Vec<_> = QUESTIONS.iter().flat_map(|question| question(evidence)).collect();
    found.extend(d16_weak_promises(evidence));
    found.sort_by_key(|finding| finding.code);
    found
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
    let unread = |fence: &FenceSeen| fence.mark.as_ref().err().map(|why| format!("the fence {} ({why})", fence.place));
    missing.extend(evidence.fences.iter().filter_map(unread));
    missing.iter().map(|missing| printable(missing)).collect()
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
    let said = |fence: &FenceSeen| {
        let (mark, _) = fence.mark.as_ref().ok()?.as_ref()?;
        let refused = if token? < *mark { "refused" } else { "NOT refused" };
        Some(format!("the fence {} is at {mark}: what is written there with {} is {refused}", fence.place, token?))
    };
    evidence.fences.iter().filter_map(said).collect()
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

fn d05_silent_leader(evidence: &Evidence) -> Vec<Finding> {
    let last = &evidence.last().after;
    let silent = last.silence.zip(last.head.as_ref()).filter(|((lasts, ttl), _)| lasts >= ttl);
    let finding = |((lasts, ttl), head): ((Duration, Duration), &super::evidence::Head)| Finding {
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

fn d06_older_store(evidence: &Evidence) -> Vec<Finding> {
    let leads = evidence.last().after.head_token();
    let mut older: Vec<String> = Vec::new();
    let mut replaced: Vec<String> = Vec::new();
    if let Some((seen, file)) = evidence.seen_later() {
        older.push(format!("this host has seen token {} here, and says so in {file}", seen.token));
    }
    for fence in &evidence.fences {
        let Ok(Some((mark, store))) = &fence.mark else { continue };
        match &evidence.identity {
            Some(identity) if identity != store => {
                replaced
                    .push(format!("the mark of the fence {} is {mark} of {store}; {identity} answers", fence.place));
            }
            Some(_) if leads.is_some_and(|leads| *mark > leads) => {
                older.push(format!(
                    "the mark of the fence {} is {mark}: what its leader writes is refused",
                    fence.place
                ));
            }
            _ => {}
        }
    }
    let finding = |what: &str, mut seen: Vec<String>, means, next: String| {
        seen.push(store_said(evidence));
        seen.extend(evidence.identity.iter().map(|identity| format!("the store's identity: {identity}")));
        Finding {
            code: "D06",
            severity: Severity::Wrong,
            what: what.to_owned(),
            seen: seen.iter().map(|line| printable(line)).collect(),
            means,
            not_told_from: "a fence, or a memory of this host, of another election or store: compare what they name",
            next,
            runbook: "the-store-was-restored",
        }
    };
    let pause = format!("incumbent pause {}", shell_word(&evidence.election));
    let mut found = Vec::new();
    if !older.is_empty() {
        found.push(finding(
            "the store is older than it was",
            older,
            "tokens that were given once are given again, and no fence can tell their holders apart",
            format!("{pause}  and then the runbook"),
        ));
    }
    if !replaced.is_empty() {
        found.push(finding(
            "the store was replaced",
            replaced,
            "numbers of two stores do not compare: the fence refuses every leader until it is reset",
            "make sure that no leader of the former store runs, and then the runbook".to_owned(),
        ));
    }
    found
}

fn d07_fence_behind(evidence: &Evidence) -> Vec<Finding> {
    let leads = evidence.last().after.head_token();
    let behind = |fence: &FenceSeen| {
        let (mark, store) = fence.mark.as_ref().ok()?.as_ref()?;
        let behind = Some(store) == evidence.identity.as_ref() && *mark < leads?;
        behind.then(|| format!("the fence {} is at {mark}, and {} leads", fence.place, leads.unwrap_or_default()))
    };
    let finding = |seen: String| Finding {
        code: "D07",
        severity: Severity::Info,
        what: "a fence has not heard of the leader yet".to_owned(),
        seen: vec![printable(&seen)],
        means: "the leader has not raised it, and has written nothing there: that is usual before its first write",
        not_told_from: "a leader that does not use this fence",
        next: "nothing".to_owned(),
        runbook: "",
    };
    evidence.fences.iter().filter_map(behind).map(finding).collect()
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

fn d10_nobody_stands(evidence: &Evidence) -> Vec<Finding> {
    let empty = |look: &Look| {
        look.head.is_none() && look.in_line == 0 && look.group.is_none() && look.paused.is_none() && !look.ended
    };
    let lasts = evidence.last_two().is_some_and(|(earlier, later)| empty(&earlier.before) && empty(&later.after));
    let Ok(Some((seen, _))) = &evidence.witness else { return Vec::new() };
    // One who claims the office stood a moment ago: that is another finding.
    if !lasts || !evidence.claims_in(evidence.last()).is_empty() {
        return Vec::new();
    }
    vec![Finding {
        code: "D10",
        severity: Severity::Warning,
        what: "nobody stands, and somebody led once".to_owned(),
        seen: vec![format!("this host has seen token {}; now nobody is in line, and no order says so", seen.token)],
        means: "no candidate runs, or all of them use another store or another name",
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
    paused.into_iter().chain(frozen).collect()
}

fn d13_lost_votes(evidence: &Evidence) -> Vec<Finding> {
    let Some(group) = &evidence.last().after.group else { return Vec::new() };
    let finding = |what: &str, seen: String, means, not_told_from, next: String| Finding {
        code: "D13",
        severity: Severity::Warning,
        what: what.to_owned(),
        seen: vec![printable(&seen)],
        means,
        not_told_from,
        next,
        runbook: "nobody-leads",
    };
    let mut found = Vec::new();
    if !group.not_voting.is_empty() {
        found.push(finding(
            "members have lost their votes",
            group.not_voting.join(", "),
            "the next failure may end the group: they count as missing until the others have told them the term",
            "a member that is being founded, or whose disk is full",
            format!("incumbent peers readmit {} --member NAME, after its --help", shell_word(&evidence.election)),
        ));
    }
    if !group.refusing.is_empty() {
        found.push(finding(
            "members take this group for another",
            group.refusing.join("; "),
            "they hold another election, or have another list of members or another secret",
            "a change of the list that is being rolled out",
            "give all members the same election, list and secret".to_owned(),
        ));
    }
    found
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

fn d16_weak_promises(evidence: &Evidence) -> Option<Finding> {
    let (_, caveats) = evidence.tokens.as_ref().filter(|(tokens, _)| *tokens < TokenStrength::Durable)?;
    Some(Finding {
        code: "D16",
        severity: Severity::Warning,
        what: "the store does not promise that tokens never go back".to_owned(),
        seen: caveats.iter().map(|caveat| printable(caveat)).collect(),
        means: "a crash or a failover of the store may give a token twice",
        not_told_from: "a store that was chosen for what it is",
        next: "incumbent explain  says what to set".to_owned(),
        runbook: "the-store-was-restored",
    })
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

#[cfg(test)]
mod tests;
