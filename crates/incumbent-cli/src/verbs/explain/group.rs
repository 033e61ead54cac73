//! What a group of peers promises: the lease arithmetic of consensus, and the best effort of bully
//! and ring.

use std::io;
use std::time::Duration;

use incumbent::peers::{ConsensusSettings, Group, RankSettings, Rules};
use incumbent::{Promises, Settings};
use incumbent_core::stretch;
use serde::Serialize;

use super::{Bounds, Explanation, notes, rows, tokens};
use crate::duration::{ms, show};
use crate::output::{Paint, printable};
use crate::store_url::StoreUrl;

#[derive(Serialize)]
pub(super) struct GroupJson<'a> {
    algorithm: String,
    /// `at_most_one` or `best_effort`.
    leaders: &'static str,
    members: Vec<MemberJson<'a>>,
    majority: usize,
    /// How many members a leader needs.
    needed: usize,
}

#[derive(Serialize)]
struct MemberJson<'a> {
    name: &'a str,
    address: &'a str,
    rank: u16,
}

/// What follows from the times of a consensus group.
struct Lease {
    /// How long members vote for nobody else after they heard the leader.
    promise: Duration,
    /// What is left of that for the leader: its clock may be slow, and theirs fast.
    lasts: Duration,
    /// How long the leader believes in its office after it sent a heartbeat that a majority
    /// answered.
    believes: Duration,
    outage: Duration,
}

impl Lease {
    fn new(rules: &ConsensusSettings) -> Lease {
        let lasts = rules.lease_of(rules.election_min);
        let believes = lasts.saturating_sub(rules.margin);
        let outage = believes.saturating_sub(rules.grace).saturating_sub(rules.heartbeat);
        Lease { promise: rules.election_min, lasts, believes, outage }
    }
}

/// Where a rounded number would hide what it is about.
fn precise(time: Duration) -> String {
    format!("{} ms", ms(time))
}

/// After so much silence the next one leads, but for the way of the messages.
fn failover(rules: &Rules) -> Duration {
    match rules {
        Rules::Consensus(rules) => stretch(rules.election_max, rules.drift_ppm),
        // Those asked may be as dead as the leader.
        Rules::Bully(rules) | Rules::Ring(rules) => rules.leader_timeout + rules.answer_timeout,
    }
}

pub(super) fn to_json<'a>(
    store: &StoreUrl,
    promises: &'a Promises,
    settings: &Settings,
    group: &'a Group,
) -> Explanation<'a> {
    let bounds = Bounds { believes: Duration::ZERO, failover: failover(group.rules()), outage: Duration::ZERO };
    let (believes, overlap, outage) = match group.rules() {
        Rules::Consensus(rules) => {
            let lease = Lease::new(rules);
            (Some(ms(lease.believes)), Some(0), Some(ms(lease.outage)))
        }
        Rules::Bully(rules) | Rules::Ring(rules) => (rules.majority.then(|| ms(rules.leader_timeout)), None, None),
    };
    let members = group.members().iter();
    let members = members.map(|one| MemberJson { name: &one.name, address: &one.address, rank: one.id.0 }).collect();
    Explanation {
        believes_ms: believes,
        worst_overlap_ms: overlap,
        tolerated_outage_ms: outage,
        group: Some(GroupJson {
            algorithm: group.algorithm().to_string(),
            leaders: if group.algorithm().is_fenced() { "at_most_one" } else { "best_effort" },
            members,
            majority: group.majority(),
            needed: group.needed(),
        }),
        ..super::to_json(store, promises, settings, &bounds)
    }
}

pub(super) fn page(store: &StoreUrl, promises: &Promises, group: &Group) -> Vec<String> {
    let paint = Paint::for_stream(&io::stdout());
    let row = rows(paint);
    let members: Vec<_> =
        group
            .members()
            .iter()
            .map(|one| {
                if one.name == one.address { one.name.to_string() } else { format!("{} at {}", one.name, one.address) }
            })
            .collect();
    let mut page = vec![
        row("group", format!("{} (identity {})", printable(&store.to_string()), printable(promises.store.as_str()))),
        row("members", format!("{}; {} are a majority", printable(&members.join(", ")), group.majority())),
        row("elected by", super::line(promises.line).trim_start_matches("none: ").to_owned()),
    ];
    match group.rules() {
        Rules::Consensus(rules) => {
            page.push(row("tokens", "durable: the term, written down by a majority before it counts".into()));
            page.push(String::new());
            page.extend(consensus(rules, paint));
        }
        Rules::Bully(rules) | Rules::Ring(rules) => {
            page.push(row("tokens", tokens(promises.tokens).into()));
            page.push(row("promise", format!("{}: two leaders at a time are possible", paint.bold("best effort"))));
            page.push(String::new());
            page.extend(ranks(rules, failover(group.rules()), paint));
        }
    }
    page.extend(notes(promises, paint));
    page
}

fn consensus(rules: &ConsensusSettings, paint: Paint) -> Vec<String> {
    let row = rows(paint);
    let number = |time: Duration| paint.bold(&show(time));
    let lease = Lease::new(rules);
    vec![
        row(
            "times",
            format!(
                "timeout {} to {}, a heartbeat every {}, grace {}, margin {}",
                show(rules.election_min),
                show(rules.election_max),
                show(rules.heartbeat),
                show(rules.grace),
                show(rules.margin)
            ),
        ),
        row(
            "worst failover",
            format!(
                "{}: after this much silence a member asks for votes; two that ask at once may have to ask again",
                number(failover(&Rules::Consensus(*rules)))
            ),
        ),
        row(
            "worst overlap",
            format!(
                "{}: members that heard the leader vote for nobody else for {}; by the leader's clock {} of that",
                paint.bold("none"),
                precise(lease.promise),
                precise(lease.lasts)
            ),
        ),
        row(
            "",
            format!(
                "count, from when it sent the heartbeat that a majority answered, less the margin: {}",
                precise(lease.believes)
            ),
        ),
        row("", format!("(as long as each clock drifts by at most {} ppm)", rules.drift_ppm)),
        row(
            "cut off",
            format!("{}: a leader stays in office if a majority answers again within this time", number(lease.outage)),
        ),
    ]
}

fn ranks(rules: &RankSettings, failover: Duration, paint: Paint) -> Vec<String> {
    let row = rows(paint);
    let overlap = if rules.majority {
        "possible: the majority rule ends a leader's term when it no longer hears from a majority, but by no deadline"
    } else {
        "unbounded: two halves of a network have two leaders, for as long as that lasts"
    };
    vec![
        row(
            "times",
            format!(
                "timeout {}, answers within {}, a heartbeat every {}, grace {}",
                show(rules.leader_timeout),
                show(rules.answer_timeout),
                show(rules.heartbeat),
                show(rules.grace)
            ),
        ),
        row(
            "usual failover",
            format!(
                "{}: silence, then an election; longer if those that answered die as well",
                paint.bold(&show(failover))
            ),
        ),
        row("worst overlap", overlap.into()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_believes_for_less_than_its_voters_promise() {
        let rules = ConsensusSettings::default();
        let lease = Lease::new(&rules);
        assert!(lease.believes < lease.lasts && lease.lasts < lease.promise);
        // 1.5 s * 0.999 / 1.001, less 50 ms.
        assert_eq!(ms(lease.believes), 1_447);
        assert_eq!(ms(lease.outage), 1_447 - 500 - 250);
    }

    #[test]
    fn the_next_leader_comes_after_the_timeouts() {
        assert_eq!(ms(failover(&Rules::Consensus(ConsensusSettings::default()))), 3_003);
        assert_eq!(ms(failover(&Rules::Bully(RankSettings::default()))), 2_000);
    }
}
