//! Every finding prepared and found, without a server; and every healthy situation, in which
//! nothing is.

use std::collections::BTreeSet;
use std::fs;

use incumbent::{Incarnation, Sighting, Token};

use super::super::evidence::{Answer, Head, Round, without_twins};
use super::super::exit_code;
use super::*;
use crate::claims::{HostClaims, LivingClaim};

const STORE: &str = "store-1";
const TTL: Duration = Duration::from_secs(15);

/// The leader with this token: `node-44` has token 44.
fn head(token: u64) -> Head {
    Head { name: Some(format!("node-{token}")), token: Some(token), id: Some(Incarnation::from_bits(token.into())) }
}

fn led_by(token: u64) -> Look {
    Look { head: Some(head(token)), first: Some(head(token)), in_line: 2, ..Look::default() }
}

fn vacant() -> Look {
    Look::default()
}

/// A process that has so many milliseconds left.
fn claim(token: u64, left: u64) -> LivingClaim {
    LivingClaim {
        pid: 4000 + u32::try_from(token).unwrap(),
        name: format!("node-{token}"),
        election: "jobs/x".into(),
        store: Some(STORE.into()),
        token: Some(token),
        remaining_ms: Some(left),
        stopping: false,
        suspended: false,
        work_gone: false,
        url: None,
        renewals: Vec::new(),
    }
}

fn answer(host: &str, claims: &[LivingClaim]) -> Answer {
    let claims = HostClaims {
        v: 1,
        host: host.into(),
        boot: "b".into(),
        claims: claims.to_vec(),
        unread: Vec::new(),
        work: Vec::new(),
    };
    Answer { host: host.into(), at: Duration::from_millis(210), claims: Ok(claims) }
}

/// The store shows the same before and after, and each of these is a host's word.
fn round(look: &Look, hosts: &[&[LivingClaim]]) -> Round {
    let names = ["db1", "db2", "db3"];
    let answers = names.iter().zip(hosts).map(|(name, claims)| answer(name, claims)).collect();
    Round { before: look.clone(), answers, after: look.clone() }
}

fn evidence(rounds: Vec<Round>) -> Evidence {
    Evidence {
        election: "jobs/x".into(),
        identity: Some(STORE.into()),
        tokens: Some((TokenStrength::Durable, Vec::new())),
        one_host: false,
        hosts_named: true,
        rounds,
        witness: Ok(None),
        fences: Vec::new(),
        found_before: None,
    }
}

/// The same for three rounds.
fn lasting(look: &Look, hosts: &[&[LivingClaim]]) -> Evidence {
    evidence(vec![round(look, hosts); 3])
}

/// What is found, and is still found and never exits with 0 if one more host gives no answer.
fn codes(evidence: &Evidence) -> Vec<(&'static str, Severity)> {
    let found = found_in_spite_of_one_that_is_silent(evidence);
    found.iter().map(|finding| (finding.code, finding.severity)).collect()
}

fn found_in_spite_of_one_that_is_silent(evidence: &Evidence) -> Vec<Finding> {
    let found = findings(evidence);
    let mut one_silent = evidence.clone();
    let silent = Answer { host: "db9".into(), at: Duration::from_secs(10), claims: Err("no answer".into()) };
    one_silent.rounds.iter_mut().for_each(|round| round.answers.push(silent.clone()));
    assert_eq!(findings(&one_silent), found);
    for finding in &found {
        // One that is usual has nothing to end.
        assert_eq!(finding.runbook.is_empty(), finding.code == "D07", "{finding:#?}");
        assert!(finding.runbook.is_empty() || runbooks().contains(finding.runbook), "{finding:#?}");
    }
    assert_ne!(exit_code(&found, &not_looked_at(&one_silent)), 0, "{found:#?}");
    found
}

/// The headings of the runbooks, as they are linked to.
fn runbooks() -> BTreeSet<String> {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/runbooks.md")).unwrap();
    let headings = page.lines().filter_map(|line| line.strip_prefix("## "));
    headings.map(|heading| heading.to_lowercase().replace(' ', "-")).collect()
}

/// Nothing is found but what is said for the record.
fn healthy(evidence: &Evidence) {
    let found = found_in_spite_of_one_that_is_silent(evidence);
    assert!(found.iter().all(|finding| finding.severity == Severity::Info), "{found:#?}");
}

fn witnessed(token: u64, id: u128) -> Result<Option<(Sighting, String)>, String> {
    let id = Some(Incarnation::from_bits(id));
    Ok(Some((Sighting::new(Token::new(token).unwrap(), id), "/state/seen".into())))
}

fn fence(mark: u64, store: &str) -> Vec<FenceSeen> {
    vec![FenceSeen { place: "/srv/marks".into(), mark: Ok(Some((mark, store.into()))) }]
}

fn members(answering: usize) -> Members {
    Members { members: 3, answering, needed: 2, ..Members::default() }
}

#[test]
fn d01_two_valid_claims() {
    let mut two = lasting(&led_by(44), &[&[claim(41, 9800)], &[claim(44, 13_100)]]);
    two.fences = fence(44, STORE);
    assert_eq!(codes(&two), [("D01", Severity::Wrong)]);
    let seen = findings(&two).remove(0).seen.join("\n");
    for part in
        ["db1 pid 4041", "token 41  for another 9.8 s", "db2 pid 4044", "node-44 (token 44) leads", "41 is refused"]
    {
        assert!(seen.contains(part), "{part}: {seen}");
    }
    // With no tokens, as in a ring that is cut in two.
    let unnumbered = |name: &str, pid| LivingClaim {
        pid,
        name: name.into(),
        store: None,
        token: None,
        remaining_ms: None,
        ..claim(1, 1)
    };
    let ring = Look {
        head: Some(Head { name: Some("a".into()), token: None, id: None }),
        in_line: 3,
        group: Some(Members { needed: 1, ..members(2) }),
        ..Look::default()
    };
    let split = lasting(&ring, &[&[unnumbered("a", 1)], &[unnumbered("b", 2)]]);
    assert_eq!(codes(&split), [("D01", Severity::Wrong)]);
}

#[test]
fn d02_a_claim_that_the_store_does_not_know() {
    let running_out = |first, second| {
        evidence(vec![round(&vacant(), &[&[claim(41, first)]]), round(&vacant(), &[&[claim(41, second)]])])
    };
    assert_eq!(codes(&running_out(9800, 9200)), [("D02", Severity::Warning)]);
    assert_eq!(codes(&running_out(9800, 14_000)), [("D02", Severity::Wrong)], "it was renewed");
    let deposed = lasting(&Look { deposed: Some(41), ..vacant() }, &[&[claim(41, 9800)]]);
    assert!(findings(&deposed)[0].seen.iter().any(|line| line.contains("deposed")));
}

#[test]
fn d03_work_that_outlives_its_term() {
    let beside = lasting(&led_by(44), &[&[claim(41, 0)], &[claim(44, 9000)]]);
    assert_eq!(codes(&beside), [("D03", Severity::Wrong)]);
    let gone = LivingClaim { work_gone: true, suspended: true, ..claim(41, 0) };
    healthy(&lasting(&led_by(44), &[&[gone], &[claim(44, 9000)]]));
    let holding = lasting(&led_by(41), &[&[claim(41, 0)]]);
    assert_eq!(codes(&holding), [("D03", Severity::Warning)]);
}

#[test]
fn d03_work_whose_leader_is_gone() {
    let with_work = |look: &Look, store: &str, election: &str| {
        let mut round = round(look, &[&[claim(44, 9000)], &[]]);
        let (store, election) = (store.to_owned(), election.to_owned());
        let Ok(host) = &mut round.answers[1].claims else { unreachable!() };
        host.work.push(Work { pid: 7, program: "job".into(), election, store, token: 41 });
        round
    };
    let lasts = |look: &Look, store, election| evidence(vec![with_work(look, store, election); 2]);
    let beside = lasts(&led_by(44), STORE, "jobs/x");
    assert_eq!(codes(&beside), [("D03", Severity::Wrong)]);
    assert!(findings(&beside)[0].seen[0].contains("db2 pid 7 (job) was started with token 41"));
    healthy(&lasts(&led_by(44), "store-0", "jobs/x"));
    healthy(&lasts(&led_by(44), STORE, "jobs/y"));
    let once = round(&led_by(44), &[&[claim(44, 9000)], &[]]);
    healthy(&evidence(vec![with_work(&led_by(44), STORE, "jobs/x"), once.clone()]));
    healthy(&evidence(vec![once, with_work(&led_by(44), STORE, "jobs/x")]));
    // The entry of its leader is still in line.
    let alone = Round { answers: vec![answer("db1", &[])], ..round(&led_by(41), &[]) };
    let mut alone = evidence(vec![alone; 2]);
    for round in &mut alone.rounds {
        let Ok(host) = &mut round.answers[0].claims else { unreachable!() };
        let (store, election) = (STORE.into(), "jobs/x".into());
        host.work.push(Work { pid: 7, program: "job".into(), election, store, token: 41 });
    }
    assert_eq!(codes(&alone), [("D03", Severity::Warning)]);
}

#[test]
fn d04_an_entry_that_nothing_will_remove() {
    let foreign = Head { name: None, token: Some(9), id: None };
    let first = Some(foreign.clone());
    let first = Look { head: first.clone(), first, in_line: 2, stay: vec![foreign.clone()], ..Look::default() };
    assert_eq!(codes(&lasting(&first, &[&[]])), [("D04", Severity::Wrong)]);
    assert!(findings(&lasting(&first, &[&[]]))[0].next.ends_with("incumbent depose jobs/x --token 9"));
    let behind = Look { stay: vec![foreign], ..led_by(4) };
    assert_eq!(codes(&lasting(&behind, &[&[claim(4, 9000)]])), [("D04", Severity::Warning)]);
    let (with, without) = (round(&behind, &[&[claim(4, 9000)]]), round(&led_by(4), &[&[claim(4, 9000)]]));
    healthy(&evidence(vec![with.clone(), without.clone()]));
    healthy(&evidence(vec![without, with]));
}

#[test]
fn d05_a_leader_of_which_nothing_is_heard() {
    let silent = |for_| lasting(&Look { silence: Some((for_, TTL)), ..led_by(44) }, &[&[claim(44, 9000)]]);
    assert_eq!(codes(&silent(TTL)), [("D05", Severity::Warning)]);
    healthy(&silent(TTL * 5 / 6));
}

#[test]
fn d05_a_leader_whose_process_is_suspended() {
    let stopped = LivingClaim { suspended: true, ..claim(44, 7000) };
    let silent =
        |for_| codes(&lasting(&Look { silence: Some((for_, TTL)), ..led_by(44) }, &[std::slice::from_ref(&stopped)]));
    assert_eq!(silent(TTL / 2), [], "it may just have been looked at");
    assert_eq!(silent(TTL * 2 / 3), [("D05", Severity::Info)]);
    assert_eq!(silent(TTL * 5 / 6), [("D05", Severity::Info)]);
    assert_eq!(silent(TTL * 9 / 10), [("D05", Severity::Warning)]);
    assert_eq!(silent(TTL), [("D05", Severity::Warning)], "once");
    // Stopped for a moment, it was seen so only once.
    healthy(&evidence(vec![
        round(&led_by(44), &[std::slice::from_ref(&stopped)]),
        round(&led_by(44), &[&[claim(44, 9000)]]),
    ]));
}

#[test]
fn d05_a_leader_whose_time_runs_out() {
    let left = |left| {
        let renewals = vec![Renewed { left_ms: 9700, lasts_ms: 14_700 }];
        round(&led_by(44), &[&[LivingClaim { renewals, ..claim(44, left) }]])
    };
    assert_eq!(codes(&evidence(vec![left(1400), left(900)])), [("D05", Severity::Warning)]);
    healthy(&evidence(vec![left(1400), left(14_000)]));
    healthy(&evidence(vec![left(900), left(1400)]));
    // Stopped for half its time, right before a renewal.
    healthy(&evidence(vec![left(2500), left(2450)]));
    // What the store does not know is another finding.
    let unknown = |left_ms| {
        let Round { answers, .. } = left(left_ms);
        Round { answers, ..round(&vacant(), &[]) }
    };
    assert_eq!(codes(&evidence(vec![unknown(1400), unknown(900)])), [("D02", Severity::Warning)]);
}

#[test]
fn d15_candidates_that_raise_no_fence() {
    let mixed = Look { foreign: 1, ..led_by(44) };
    let leads: &[LivingClaim] = &[claim(44, 9000)];
    let guarded = |look: &Look| Evidence { fences: fence(44, STORE), ..lasting(look, &[leads]) };
    assert_eq!(codes(&guarded(&mixed)), [("D15", Severity::Warning)]);
    healthy(&guarded(&led_by(44)));
    healthy(&lasting(&mixed, &[leads]));
}

#[test]
fn d15_candidates_that_fence_differently() {
    let leads: &[LivingClaim] = &[claim(44, 9000)];
    let fencing = |fencing| Look { fencing, ..led_by(44) };
    assert_eq!(codes(&lasting(&fencing(1), &[leads])), [("D15", Severity::Warning)]);
    for all_or_none in [0, 2] {
        healthy(&lasting(&fencing(all_or_none), &[leads]));
    }
    // One that nothing keeps in line takes no office, and has its own finding.
    let stays = Look { stay: vec![head(45)], ..fencing(1) };
    assert_eq!(codes(&lasting(&stays, &[leads])), [("D04", Severity::Warning)]);
}

#[test]
fn d06_a_store_that_is_older_than_it_was() {
    let led = || lasting(&led_by(27), &[&[claim(27, 9000)]]);
    for (token, id) in [(31, 31), (27, 99)] {
        let seen = Evidence { witness: witnessed(token, id), ..led() };
        assert_eq!(codes(&seen), [("D06", Severity::Wrong)], "{token}");
    }
    let above = Evidence { fences: fence(31, STORE), ..led() };
    assert_eq!(codes(&above), [("D06", Severity::Wrong)]);
    assert_eq!(findings(&above)[0].what, "the store is older than it was");
    let replaced = Evidence { fences: fence(5, "store-0"), ..led() };
    assert_eq!(codes(&replaced), [("D06", Severity::Wrong)]);
    assert_eq!(findings(&replaced)[0].what, "the store was replaced");
    let remembered = |store: &str| Some((store.to_owned(), "/state/places/x.store".to_owned()));
    let another = Evidence { found_before: remembered("store-0"), ..led() };
    assert_eq!(codes(&another), [("D06", Severity::Wrong)]);
    assert_eq!(findings(&another)[0].what, "the store was replaced");
    assert!(findings(&another)[0].seen[0].contains("/state/places/x.store"));
    healthy(&Evidence { found_before: remembered(STORE), ..led() });
    healthy(&Evidence { found_before: remembered("store-0"), identity: None, ..led() });
    let both = Evidence { fences: fence(31, STORE), witness: witnessed(31, 31), ..led() };
    assert_eq!(codes(&both).len(), 1);

    // An answer of a server that lags behind.
    let mut lags = Evidence { witness: witnessed(31, 31), ..led() };
    lags.rounds.push(round(&led_by(31), &[&[claim(31, 9000)]]));
    healthy(&Evidence { rounds: lags.rounds[2..].to_vec(), ..lags });
    for (token, id) in [(27, 27), (26, 1)] {
        healthy(&Evidence { witness: witnessed(token, id), ..led() });
    }
    healthy(&Evidence { fences: fence(27, STORE), ..led() });
}

#[test]
fn d07_a_fence_behind_is_no_warning() {
    let behind = Evidence { fences: fence(41, STORE), ..lasting(&led_by(44), &[&[claim(44, 9000)]]) };
    assert_eq!(codes(&behind), [("D07", Severity::Info)]);
}

#[test]
fn d08_tokens_that_went_back() {
    let (first, second) = (round(&led_by(44), &[&[claim(44, 9000)]]), round(&led_by(41), &[&[claim(41, 9000)]]));
    assert_eq!(codes(&evidence(vec![first.clone(), second.clone()])), [("D08", Severity::Wrong)]);
    healthy(&evidence(vec![second, first]));
}

#[test]
fn d09_a_first_in_line_that_does_not_take_office() {
    let taking = Look { is_taking: true, head: None, ..led_by(44) };
    let stuck = lasting(&taking, &[&[]]);
    assert_eq!(codes(&stuck), [("D09", Severity::Warning)]);
    let fencing = lasting(&Look { is_fencing: true, ..taking.clone() }, &[&[]]);
    assert_eq!(codes(&fencing), [("D09", Severity::Warning)]);
    assert!(findings(&stuck)[0].next.contains("depose") && !findings(&fencing)[0].next.contains("depose"));
    healthy(&lasting(&taking, &[&[claim(44, 9000)]]));
    // It was seen to take office, and then it had.
    healthy(&evidence(vec![round(&taking, &[&[]]), round(&led_by(44), &[&[claim(44, 9000)]])]));
    healthy(&evidence(vec![round(&taking, &[&[]])]));
    let next = Look { first: Some(head(45)), ..taking.clone() };
    healthy(&evidence(vec![round(&taking, &[&[]]), round(&next, &[&[]])]));
}

#[test]
fn d12_a_term_that_was_left_open() {
    let open = |host: &str| {
        let (name, boot) = ("node-41".into(), "b".into());
        let term = OpenTerm { token: 41, name, host: host.into(), boot, claims: true, age: Some(TTL), shot: None };
        Look { left_open: Some(term), ..led_by(44) }
    };
    let but = |change: &dyn Fn(&mut OpenTerm)| {
        let mut look = open("db2");
        change(look.left_open.as_mut().unwrap());
        look
    };
    let leads: &[LivingClaim] = &[claim(44, 9000)];
    assert_eq!(codes(&lasting(&open("db3"), &[leads])), [("D12", Severity::Warning)], "db3 was not asked");
    let asked = lasting(&open("db2"), &[leads, &[]]);
    assert_eq!(codes(&asked), [("D12", Severity::Info)]);
    assert!(findings(&asked)[0].seen[0].contains("db2 says that no process of it is left"));
    let shot_at = but(&|term| term.shot = Some("attempt 2 failed: it is locked".into()));
    assert_eq!(findings(&lasting(&shot_at, &[leads, &[]]))[0].seen[1], "attempt 2 failed: it is locked");
    for other in [but(&|term| term.boot = "c".into()), but(&|term| term.claims = false)] {
        assert_eq!(codes(&lasting(&other, &[leads, &[]])), [("D12", Severity::Warning)], "nobody can say that");
    }
    let mut unread = asked.clone();
    let Ok(host) = &mut unread.rounds[2].answers[1].claims else { unreachable!() };
    host.unread.push("/run/incumbent: denied".into());
    assert_eq!(codes(&unread), [("D12", Severity::Warning)]);
    // Its process is there: that is another finding.
    assert_eq!(codes(&lasting(&open("db2"), &[leads, &[claim(41, 0)]])), [("D03", Severity::Wrong)]);
    // It was closed late.
    healthy(&evidence(vec![round(&open("db3"), &[leads]), round(&led_by(44), &[leads])]));
    healthy(&evidence(vec![round(&led_by(44), &[leads]), round(&open("db3"), &[leads])]));
}

#[test]
fn d18_renewals_that_come_late() {
    let renewed = |late: usize| {
        let renewal = |number| Renewed { left_ms: if number < late { 3000 } else { 9700 }, lasts_ms: 14_700 };
        let claim = LivingClaim { renewals: (0..20).map(renewal).collect(), ..claim(44, 9000) };
        lasting(&led_by(44), &[&[claim]])
    };
    assert_eq!(codes(&renewed(3)), [("D18", Severity::Warning)]);
    let seen = findings(&renewed(3)).remove(0).seen.join("\n");
    assert!(seen.contains("of its last 20 renewals 3 came late; left: 9.7 s of 14.7 s, at worst 3 s"), "{seen}");
    healthy(&renewed(2));
}

#[test]
fn d10_nobody_stands_where_somebody_led() {
    let nobody = lasting(&vacant(), &[&[]]);
    assert_eq!(codes(&Evidence { witness: witnessed(41, 1), ..nobody.clone() }), [("D10", Severity::Warning)]);
    assert_eq!(codes(&nobody), [("D10", Severity::Info)], "nobody is missed, and yet it is said");
    let deposed = lasting(&Look { deposed: Some(41), ..vacant() }, &[&[]]);
    assert!(findings(&deposed)[0].seen[0].contains("token 41 was deposed"));
    let quiet = lasting(&Look { quiet: Some(Duration::from_secs(12)), deposed: Some(41), ..vacant() }, &[&[]]);
    assert_eq!(findings(&quiet)[0].what, "nobody leads for another 12 s");
    let order = Ordered { text: "by ada".into(), age: Some(Duration::from_secs(60)) };
    let benched = lasting(&Look { benched: vec![("a".into(), order)], ..vacant() }, &[&[]]);
    assert!(findings(&benched)[0].seen[0].contains("benched a"));
    let order = Some(Ordered { text: "by ada".into(), age: Some(Duration::from_secs(3600)) });
    healthy(&Evidence { witness: witnessed(41, 1), ..lasting(&Look { paused: order, ..vacant() }, &[&[]]) });
    healthy(&Evidence { witness: witnessed(41, 1), ..lasting(&Look { ended: true, ..vacant() }, &[&[]]) });
}

#[test]
fn d11_an_order_that_was_forgotten() {
    let order = |hours: u64| Some(Ordered { text: "by ada@ops1".into(), age: Some(Duration::from_secs(hours * 3600)) });
    let paused = |hours| lasting(&Look { paused: order(hours), ..vacant() }, &[&[]]);
    let frozen = |hours| lasting(&Look { frozen: order(hours), ..led_by(44) }, &[&[claim(44, 9000)]]);
    assert_eq!(codes(&paused(25)), [("D11", Severity::Warning)]);
    assert_eq!(codes(&frozen(25)), [("D11", Severity::Warning)]);
    healthy(&paused(1));
    healthy(&frozen(1));
    let benched = |hours| {
        let benched = vec![("node 3".to_owned(), order(hours).unwrap())];
        lasting(&Look { benched, ..led_by(44) }, &[&[claim(44, 9000)]])
    };
    assert_eq!(codes(&benched(25)), [("D11", Severity::Warning)]);
    let found = &findings(&benched(25))[0];
    assert!(found.next.ends_with("'node 3'") && found.seen[0].contains("by ada@ops1"), "{found:?}");
    healthy(&benched(1));
}

#[test]
fn d11_an_election_that_health_moves_no_more() {
    let held_back = Some((41, Some(Duration::from_secs(60))));
    let evidence = lasting(&Look { held_back, ..led_by(44) }, &[&[claim(44, 9000)]]);
    assert_eq!(codes(&evidence), [("D11", Severity::Warning)]);
    let finding = &findings(&evidence)[0];
    assert!(finding.seen[0].contains("token 41") && finding.next.ends_with("incumbent ack jobs/x"), "{finding:?}");
}

#[test]
fn d13_and_d14_members_that_are_missing_wiped_or_foreign() {
    let group = |group: Members, leads: bool| {
        let look = if leads { led_by(44) } else { vacant() };
        lasting(&Look { group: Some(group), ..look }, &[&[claim(44, 900)]])
    };
    let wiped = Members { not_voting: vec!["b".into()], ..members(3) };
    assert_eq!(codes(&group(wiped, true)), [("D13", Severity::Warning)]);
    let foreign = Members { refusing: vec!["c: another list".into()], ..members(2) };
    assert_eq!(codes(&group(foreign, true)), [("D13", Severity::Warning)]);
    // A majority may lead where we cannot see it: its claim is no contradiction.
    assert_eq!(codes(&group(members(1), false)), [("D14", Severity::Wrong)]);
    healthy(&group(members(2), true));
}

#[test]
fn d16_a_store_that_promises_less() {
    let weak = (TokenStrength::Volatile, vec!["appendonly is off".to_owned()]);
    let redis = Evidence { tokens: Some(weak), ..lasting(&led_by(44), &[&[claim(44, 9000)]]) };
    assert_eq!(codes(&redis), [("D16", Severity::Info)], "no runbook ends it");
    assert_eq!(findings(&redis)[0].seen, ["appendonly is off"]);
}

#[test]
fn d17_an_election_of_the_same_name_in_another_store() {
    let elsewhere = LivingClaim { store: Some("store-2".into()), ..claim(7, 9000) };
    let two = lasting(&led_by(44), &[&[claim(44, 9000)], std::slice::from_ref(&elsewhere)]);
    assert_eq!(codes(&two), [("D17", Severity::Warning)]);
    let other = LivingClaim { election: "mail".into(), ..elsewhere };
    healthy(&lasting(&led_by(44), &[&[claim(44, 9000)], &[other]]));
}

#[test]
fn d19_servers_of_a_store_that_are_missing() {
    let missing = Look { servers_missing: Some("4 of 5 servers answer: ... (refused)".to_owned()), ..led_by(44) };
    let lost = lasting(&missing, &[&[claim(44, 9000)]]);
    assert_eq!(codes(&lost), [("D19", Severity::Warning)]);
    assert!(findings(&lost)[0].seen[0].contains("refused"));
    // It answered a moment ago, or does again.
    for (before, after) in [(led_by(44), missing.clone()), (missing, led_by(44))] {
        let once = Round { before, after, ..round(&led_by(44), &[&[claim(44, 9000)]]) };
        healthy(&evidence(vec![once; 3]));
    }
}

#[test]
fn a_handover_while_everybody_is_asked_is_nothing() {
    // One was asked before it, and the other after it.
    let both: &[&[LivingClaim]] = &[&[claim(41, 9000)], &[claim(44, 14_000)]];
    let moving = Round { before: led_by(41), after: led_by(44), ..round(&led_by(44), both) };
    healthy(&evidence(vec![moving.clone()]));
    healthy(&evidence(vec![moving.clone(); 5]));
    // A claim that was taken back a moment too late is heard once.
    let late = round(&led_by(44), both);
    let settled = round(&led_by(44), &[&[], &[claim(44, 13_000)]]);
    healthy(&evidence(vec![moving.clone(), late.clone(), settled.clone()]));
    healthy(&evidence(vec![late.clone(), moving, settled]));
    healthy(&evidence(vec![late]));
    // One that led for a moment, between two looks that showed nobody.
    healthy(&evidence(vec![round(&vacant(), &[&[claim(41, 9000)]]), round(&vacant(), &[&[claim(42, 9000)]])]));
}

#[test]
fn an_election_that_is_as_it_should_be_shows_nothing() {
    let led = lasting(&led_by(44), &[&[claim(44, 9000)], &[]]);
    healthy(&led);
    assert_eq!(not_looked_at(&led), [""; 0]);
    let foreign = Look { head: Some(Head { name: None, token: Some(9), id: None }), in_line: 1, ..Look::default() };
    let foreign = lasting(&foreign, &[&[]]);
    healthy(&foreign);
    assert_eq!(not_looked_at(&foreign), [""; 0], "nobody of another library claims anything");
    let draining = LivingClaim { stopping: true, ..claim(44, 2000) };
    healthy(&lasting(&led_by(44), &[&[draining]]));
    let stopped = LivingClaim { suspended: true, ..claim(44, 7000) };
    healthy(&lasting(&Look { silence: Some((TTL / 2, TTL)), ..led_by(44) }, &[&[stopped]]));
    healthy(&lasting(&Look { in_line: 1000, ..led_by(44) }, &[&[claim(44, 9000)]]));
}

#[test]
fn one_that_was_not_asked_is_named() {
    let led = || lasting(&led_by(44), &[&[claim(44, 9000)], &[]]);
    let missing = |evidence: &Evidence, words: &str| {
        let missing = not_looked_at(evidence);
        assert!(missing.len() == 1 && missing[0].contains(words), "{words}: {missing:?}");
    };
    let mut silent = led();
    silent.rounds[2].answers[1].claims = Err("ssh: timed out".into());
    missing(&silent, "db2 (ssh: timed out)");
    let mut unread = led();
    let Ok(host) = &mut unread.rounds[2].answers[1].claims else { unreachable!() };
    host.unread.push("/run/user/7/incumbent: Permission denied".into());
    missing(&unread, "db2: /run/user/7");
    missing(&Evidence { hosts_named: false, ..led() }, "--host");
    assert!(not_looked_at(&Evidence { hosts_named: false, one_host: true, ..led() }).is_empty());
    missing(&lasting(&led_by(44), &[&[], &[]]), "the process of node-44 (token 44)");
    let moving = Round { before: led_by(41), ..round(&led_by(44), &[&[claim(44, 9000)]]) };
    missing(&evidence(vec![moving]), "changing hands");
    missing(&Evidence { witness: Err("damaged".into()), ..led() }, "damaged");
    for mark in [Err("denied".into()), Ok(None)] {
        let fences = vec![FenceSeen { place: "/srv/marks".into(), mark }];
        missing(&Evidence { fences, ..led() }, "the fence /srv/marks");
    }
    assert_eq!(looked_at(&Evidence { fences: fence(44, STORE), ..led() }), ["db1", "db2", "the fence /srv/marks"]);
}

#[test]
fn a_host_that_answers_for_two_was_asked_once() {
    let mut answers = vec![answer("db1", &[claim(44, 9000)]), answer("db2", &[]), answer("alias", &[claim(44, 9000)])];
    let Ok(said) = &mut answers[2].claims else { unreachable!() };
    said.host = "db1".into();
    let mut another_boot = answers.clone();
    without_twins(&mut answers);
    assert!(answers[..2].iter().all(|answer| answer.claims.is_ok()));
    let why = answers[2].claims.as_ref().unwrap_err();
    assert_eq!(why, "db1 answered, which has answered as db1 already");
    // Two containers, or two hosts of one name.
    for boot in ["other", ""] {
        let Ok(said) = &mut another_boot[2].claims else { unreachable!() };
        said.boot = boot.into();
        without_twins(&mut another_boot);
        assert!(another_boot.iter().all(|answer| answer.claims.is_ok()), "{boot:?}");
    }
}
