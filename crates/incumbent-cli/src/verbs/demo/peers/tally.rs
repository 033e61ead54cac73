//! What an election cost, act by act: messages by kind, how long nobody led, and whether two did.

use std::collections::BTreeMap;
use std::time::Duration;

use incumbent_peers::Algorithm;

use super::chronicle::{Entry, What};
use super::member::TIMEOUT;
use crate::span::show;

/// How wide the first column is.
const HEAD: usize = 22;

/// One act in numbers.
pub(super) struct Act {
    pub(super) title: &'static str,
    /// Messages by kind.
    pub(super) sent: BTreeMap<String, usize>,
    /// From what was done to a new leader in office, if there was a new one.
    pub(super) took: Option<Duration>,
    /// For how long two led at once.
    pub(super) two: Duration,
}

/// Counts messages by kind.
pub(super) fn count(entries: &[(Entry, bool)]) -> BTreeMap<String, usize> {
    let mut sent = BTreeMap::new();
    for (entry, _) in entries {
        if let What::Sent(frame) = &entry.what {
            *sent.entry(frame.kind.clone()).or_default() += 1;
        }
    }
    sent
}

/// The kinds that an election is made of, and those that keep a leader in office.
fn kinds(algorithm: Algorithm) -> (&'static [&'static str], [&'static str; 2]) {
    match algorithm {
        Algorithm::Bully => (&["election", "alive", "coordinator"], ["beat", "heard"]),
        Algorithm::Ring => (&["election", "coordinator", "passed"], ["beat", "heard"]),
        Algorithm::Consensus => {
            (&["pre-vote", "pre-voted", "vote", "voted", "timeout-now", "stale"], ["heartbeat", "ack"])
        }
    }
}

/// The table, line by line, no wider than this where that is possible.
pub(super) fn table(algorithm: Algorithm, acts: &[Act], width: usize) -> Vec<String> {
    let (election, upkeep) = kinds(algorithm);
    let cell = (width.saturating_sub(HEAD) / acts.len().max(1)).clamp(8, 11);
    let line = |head: &str, of: &dyn Fn(&Act) -> String| {
        let cells: String = acts.iter().map(|act| format!("{:>cell$}", of(act))).collect();
        format!("  {head:head_width$}{cells}", head_width = HEAD - 2)
    };
    let count = |act: &Act, kinds: &[&str]| match kinds.iter().filter_map(|kind| act.sent.get(*kind)).sum::<usize>() {
        0 => "-".to_owned(),
        count => count.to_string(),
    };
    let took = |act: &Act, show: &dyn Fn(Duration) -> String| act.took.map_or("-".to_owned(), show);
    let timeouts = |took: Duration| format!("{:.2}", took.as_secs_f64() / TIMEOUT.as_secs_f64());
    let mut lines = vec![line("", &|act| act.title.to_owned())];
    for kind in election.iter().filter(|kind| acts.iter().any(|act| act.sent.contains_key(**kind))) {
        lines.push(line(kind, &|act| count(act, &[kind])));
    }
    lines.push(line("election messages", &|act| count(act, election)));
    lines.push(line(&upkeep.join(", "), &|act| count(act, &upkeep)));
    lines.push(line("a leader after", &|act| took(act, &show)));
    lines.push(line(&format!("in timeouts ({})", show(TIMEOUT)), &|act| took(act, &timeouts)));
    lines.push(line("two led at once", &|act| if act.two.is_zero() { "never".to_owned() } else { show(act.two) }));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_adds_up_the_kinds_that_an_election_is_made_of() {
        let sent = [("election", 4), ("alive", 3), ("coordinator", 2), ("beat", 100), ("ping", 7)];
        let act = Act {
            title: "killed",
            sent: sent.into_iter().map(|(kind, count)| (kind.to_owned(), count)).collect(),
            took: Some(TIMEOUT * 3 / 2),
            two: Duration::ZERO,
        };
        let lines = table(Algorithm::Bully, &[act], 80);
        let cell = |head: &str| {
            let line = lines.iter().find(|line| line.trim_start().starts_with(head)).unwrap();
            line.rsplit("  ").next().unwrap().trim().to_owned()
        };
        assert_eq!(cell("election messages"), "9");
        assert_eq!(cell("beat, heard"), "100");
        assert_eq!(cell("in timeouts"), "1.50");
        assert_eq!(cell("two led"), "never");
    }
}
