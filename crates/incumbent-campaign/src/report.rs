//! What became of a campaign: numbers, a row of a table, a chart.

use std::collections::BTreeMap;

use incumbent_bench::plot::Plot;
use incumbent_testkit::judge::{Term, Who, Write};

use crate::campaign::Settings;
use crate::resource::Unfenced;

/// One fault.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// When, in nanoseconds of the boot-time clock.
    pub at: u64,
    /// What was done.
    pub kind: &'static str,
}

/// What became of a campaign in which no rule was broken.
#[derive(Clone, Debug)]
pub struct Report {
    name: &'static str,
    seed: u64,
    ttl_ms: u128,
    faults: usize,
    terms: usize,
    /// Writes to the fenced resource that it took, and that it refused.
    accepted: usize,
    refused: usize,
    unfenced: Unfenced,
    /// Times without a leader in TTLs, with the last fault before their end.
    empty: Vec<(&'static str, f64)>,
}

impl Report {
    pub(crate) fn new(
        settings: &Settings,
        terms: &[Term],
        kills: &[(Who, u64)],
        faults: &[Fault],
        writes: &[Write],
        unfenced: Unfenced,
    ) -> Report {
        let ttl = settings.kind.ttl();
        let led: Vec<_> = terms.iter().filter(|term| term.from < term.until()).collect();
        let in_ttls = |nanos: u64| nanos as f64 / ttl.as_nanos() as f64;
        let empty = empty_times(&led, kills).into_iter().map(|(from, nanos)| {
            let last = faults.iter().rfind(|fault| fault.at <= from + nanos);
            (last.map_or("none", |fault| fault.kind), in_ttls(nanos))
        });
        let accepted = writes.iter().filter(|write| write.accepted).count();
        Report {
            name: settings.kind.name(),
            seed: settings.seed,
            ttl_ms: ttl.as_millis(),
            faults: faults.len(),
            terms: led.len(),
            accepted,
            refused: writes.len() - accepted,
            unfenced,
            empty: empty.collect(),
        }
    }

    /// How many terms there were.
    pub fn terms(&self) -> usize {
        self.terms
    }

    /// The heading of a table of campaigns.
    pub const HEADING: &str = "\
| store | faults | terms | overlaps | fenced writes | stale, refused | stale, accepted | unfenced writes | of these stale | \
empty, median | empty, worst | TTL | seed |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |";

    /// Its row. A broken rule would have ended the campaign: overlaps and stale writes that were
    /// accepted are none.
    pub fn row(&self) -> String {
        let (median, worst) = middle_and_worst(self.empty.iter().map(|(_, ttls)| *ttls));
        format!(
            "| {} | {} | {} | 0 | {} | {} | 0 | {} | {} | {median:.2} TTL | {worst:.2} TTL | {} ms | {} |",
            self.name,
            self.faults,
            self.terms,
            self.accepted,
            self.refused,
            self.unfenced.writes,
            self.unfenced.stale,
            self.ttl_ms,
            self.seed
        )
    }

    /// How long the office was empty after each kind of fault, as SVG.
    pub fn chart(&self) -> String {
        let title = format!("{}: time without a leader after {} faults, in TTLs", self.name, self.faults);
        let mut plot = Plot::new(&title, ["median", "worst"]);
        let mut by_kind: BTreeMap<_, Vec<_>> = BTreeMap::new();
        self.empty.iter().for_each(|(kind, ttls)| by_kind.entry(*kind).or_default().push(*ttls));
        for (kind, times) in by_kind {
            let (median, worst) = middle_and_worst(times.iter().copied());
            // Nothing has no place on its axis.
            plot.pair(format!("{kind} ({} times)", times.len()), [median.max(0.001), worst.max(0.001)]);
        }
        plot.render()
    }
}

/// When each time without a leader began, and how long it was. A leader that was killed works no
/// more, whatever its deadline is.
fn empty_times(led: &[&Term], kills: &[(Who, u64)]) -> Vec<(u64, u64)> {
    let works_until = |term: &Term| {
        let killed = kills.iter().find(|(who, at)| *who == term.who && *at >= term.from).map(|(_, at)| *at);
        term.until().min(killed.unwrap_or(u64::MAX))
    };
    let mut until = None::<u64>;
    let mut empty = Vec::new();
    for term in led {
        if let Some(until) = until.filter(|until| *until < term.from) {
            empty.push((until, term.from - until));
        }
        until = Some(until.unwrap_or(0).max(works_until(term)));
    }
    empty
}

/// Zero if there are none.
fn middle_and_worst(times: impl Iterator<Item = f64>) -> (f64, f64) {
    let mut times: Vec<_> = times.collect();
    times.sort_by(f64::total_cmp);
    (times.get(times.len() / 2).copied().unwrap_or_default(), times.last().copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_office_is_empty_from_the_end_of_one_term_or_its_leaders_death_until_the_next_begins() {
        let term = |who, term, from, deadline, ended| Term { who, term, from, deadline, ended };
        let terms = [
            term(1, 1, 10, 40, Some(20)),
            term(2, 2, 25, 60, None),
            term(1, 3, 61, 90, None),
            term(3, 4, 95, 120, None),
        ];
        let led: Vec<_> = terms.iter().collect();
        assert_eq!(empty_times(&led, &[]), [(20, 5), (60, 1), (90, 5)]);
        assert_eq!(empty_times(&led, &[(2, 30), (1, 5)]), [(20, 5), (30, 31), (90, 5)]);
    }

    #[test]
    fn the_middle_of_nothing_is_nothing() {
        assert_eq!(middle_and_worst([].into_iter()), (0.0, 0.0));
        assert_eq!(middle_and_worst([3.0, 1.0, 2.0].into_iter()), (2.0, 3.0));
    }
}
