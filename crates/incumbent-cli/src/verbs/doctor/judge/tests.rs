//! Every finding prepared and found, without a server; and every healthy situation, in which
//! nothing is.

use incumbent::{Incarnation, Sighting, Token};

use super::super::evidence::{Answer, Head, Round};
use super::*;
use crate::claims::{HostClaims, LivingClaim};

const STORE: &str = "store-1";
const TTL: Duration = Duration::from_secs(15);

/// The leader with this token: `node-44` has token 44.
fn head(token: u64) -> Head {
    Head { name: Some(format!("node-{token}")), token: Some(token), id: Some(Incarnation::from_bits(token.into())) }
}

fn led_by(token: u64) -> Look {
    Look { head: Some(head(token)), in_line: 2, ..Look::default() }
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
    }
}

fn answer(host: &str, claims: &[LivingClaim]) -> Answer {
    let claims = HostClaims { v: 1, host: host.into(), claims: claims.to_vec(), unread: Vec::new() };
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
    }
}

/// The same for three rounds.
fn lasting(look: &Look, hosts: &[&[LivingClaim]]) -> Evidence {
    evidence(vec![round(look, hosts); 3])
}

fn codes(evidence: &Evidence) -> Vec<(&'static str, Severity)> {
    findings(evidence).iter().map(|finding| (finding.code, finding.severity)).collect()
}

fn healthy(evidence: &Evidence) {
    let found = findings(evidence);
    assert!(found.is_empty(), "{found:#?}");
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
    let holding = lasting(&led_by(41), &[&[claim(41, 0)]]);
    assert_eq!(codes(&holding), [("D03", Severity::Warning)]);
}

#[test]
fn d05_a_leader_of_which_nothing_is_heard() {
    let silent = |for_| lasting(&Look { silence: Some((for_, TTL)), ..led_by(44) }, &[&[claim(44, 9000)]]);
    assert_eq!(codes(&silent(TTL)), [("D05", Severity::Warning)]);
    healthy(&silent(TTL * 5 / 6));
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
fn d10_nobody_stands_where_somebody_led() {
    let nobody = lasting(&vacant(), &[&[]]);
    assert_eq!(codes(&Evidence { witness: witnessed(41, 1), ..nobody.clone() }), [("D10", Severity::Warning)]);
    healthy(&nobody);
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
    assert_eq!(codes(&redis), [("D16", Severity::Warning)]);
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
    let fences = vec![FenceSeen { place: "/srv/marks".into(), mark: Err("denied".into()) }];
    missing(&Evidence { fences, ..led() }, "/srv/marks");
}
