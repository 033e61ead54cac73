//! What the results of one check come to. Arithmetic, nothing else: time comes in as an argument.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use incumbent_core::Rng;

use super::{Fitness, Health};

/// Within this time after the last, another episode counts as a further one, and being well has to
/// last twice as long.
const REMEMBERED: Duration = Duration::from_secs(3600);
/// For how long being well has to last at most.
const LONGEST_WELL_FOR: Duration = Duration::from_secs(600);

/// When a check runs, and how many results it takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(super) interval: Duration,
    pub(super) timeout: Duration,
    pub(super) down_after: usize,
    pub(super) up_after: usize,
    pub(super) well_for: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            down_after: 3,
            up_after: 5,
            well_for: Duration::from_secs(30),
        }
    }
}

impl Timing {
    /// For how long one of two candidates that ask the same may be unwell before the other is. One
    /// has asked just before the cause came, and waits longest before it asks again; the other asks
    /// at once, and soonest. One may have to wait for an answer where the other is refused.
    pub(crate) fn settles(self) -> Duration {
        let results = u32::try_from(self.down_after).unwrap_or(u32::MAX);
        let apart = (self.interval / 5).saturating_mul(results);
        apart.saturating_add(self.interval).saturating_add(self.timeout)
    }
}

/// One check. Monotonic time and not the boot clock's: a run that was suspended with its machine
/// did not hang.
#[derive(Debug)]
pub(super) struct Assessment {
    timing: Timing,
    /// What an answer that is late says.
    when_late: Fitness,
    rng: Rng,
    /// `None`: it has never answered.
    verdict: Option<Health>,
    /// The run that has not ended. There is one at a time.
    run: Option<Run>,
    runs: u64,
    next_run_at: Instant,
    /// The last results, the newest at the end.
    recent: VecDeque<Health>,
    /// Since when every result is better than the verdict.
    better_since: Option<Instant>,
    /// For how long that has to last.
    well_for: Duration,
    /// When the last episode of being less than fit began.
    worsened_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    number: u64,
    began: Instant,
    /// It has been silent for so long that this has counted.
    hangs: bool,
}

impl Assessment {
    pub(super) fn new(now: Instant, timing: Timing, when_late: Fitness, rng: Rng) -> Assessment {
        Assessment {
            timing,
            when_late,
            rng,
            verdict: None,
            run: None,
            runs: 0,
            next_run_at: now,
            recent: VecDeque::new(),
            better_since: None,
            well_for: timing.well_for,
            worsened_at: None,
        }
    }

    /// `None`: nothing is known yet.
    pub(super) fn verdict(&self) -> Option<&Health> {
        self.verdict.as_ref()
    }

    /// Whether all that it has found lately is better than its verdict, and only has to last.
    pub(super) fn is_improving(&self) -> bool {
        self.better_since.is_some()
    }

    /// When [`tick`](Assessment::tick) is due. `None`: a run has been found to hang, and only its
    /// end is waited for.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        match self.run {
            None => Some(self.next_run_at),
            Some(run) => (!run.hangs).then(|| run.began + self.hangs_after()),
        }
    }

    /// Time has passed. The number of the run that is to begin, if one is.
    pub(super) fn tick(&mut self, now: Instant) -> Option<u64> {
        match self.run {
            Some(run) if !run.hangs && now >= run.began + self.hangs_after() => {
                self.run = Some(Run { hangs: true, ..run });
                self.on_hanging(now, now - run.began);
                None
            }
            Some(_) => None,
            None if now < self.next_run_at => None,
            None => {
                self.runs += 1;
                self.run = Some(Run { number: self.runs, began: now, hangs: false });
                self.next_run_at = now + self.jittered_interval();
                Some(self.runs)
            }
        }
    }

    fn on_hanging(&mut self, now: Instant, silent: Duration) {
        let hangs = Health::new(self.when_late, format!("no answer for {} s", silent.as_secs()));
        self.recent.clear();
        self.better_since = None;
        if self.verdict.as_ref().is_none_or(|verdict| verdict.fitness <= hangs.fitness) {
            self.set(now, hangs);
        }
    }

    /// A run has ended. What was found so late says how things were, and not how they are.
    pub(super) fn on_result(&mut self, now: Instant, run: u64, found: Health) {
        let Some(run) = self.run.filter(|current| current.number == run) else { return };
        self.run = None;
        let took = now - run.began;
        if took <= self.timing.timeout {
            return self.count(now, found);
        }
        let slow = format!("took {:.1} s to answer, {:.1} s is the limit", took.as_secs_f64(), self.timeout_secs());
        let late = Health::new(self.when_late, slow);
        self.count(now, if found.fitness >= late.fitness { found } else { late });
    }

    fn count(&mut self, now: Instant, found: Health) {
        let Some(verdict) = &self.verdict else { return self.set(now, found) };
        let was = verdict.fitness;
        if found.fitness == was {
            // Nothing changes but the figures in the reason.
            self.verdict = Some(found.clone());
        }
        self.better_since = (found.fitness < was).then(|| self.better_since.unwrap_or(now));
        self.recent.push_back(found);
        while self.recent.len() > self.timing.down_after.max(self.timing.up_after) {
            self.recent.pop_front();
        }
        let lasted = self.better_since.is_some_and(|since| now - since >= self.well_for);
        let worse = self.last(self.timing.down_after).filter(|(best, _)| best.fitness > was).map(|(best, _)| best);
        let better = self.last(self.timing.up_after).filter(|(_, worst)| worst.fitness < was && lasted);
        if let Some(verdict) = worse.or(better.map(|(_, worst)| worst)).cloned() {
            self.set(now, verdict);
        }
    }

    /// The best and the worst of so many results, each the newest of its kind, if there were so
    /// many.
    fn last(&self, results: usize) -> Option<(&Health, &Health)> {
        let from = self.recent.len().checked_sub(results)?;
        let last = || self.recent.range(from..);
        let best = last().rev().min_by_key(|found| found.fitness)?;
        Some((best, last().max_by_key(|found| found.fitness)?))
    }

    fn set(&mut self, now: Instant, verdict: Health) {
        let was = self.verdict.as_ref().map_or(Fitness::Fit, |verdict| verdict.fitness);
        if was == Fitness::Fit && verdict.fitness > Fitness::Fit {
            let further = self.worsened_at.is_some_and(|at| now - at < REMEMBERED);
            let longest = LONGEST_WELL_FOR.max(self.timing.well_for);
            self.well_for = if further { (self.well_for * 2).min(longest) } else { self.timing.well_for };
            self.worsened_at = Some(now);
        }
        self.better_since = None;
        self.verdict = Some(verdict);
    }

    /// For how long a run may be silent before that counts, however many results there were. The
    /// first one has as long as a candidate waits to be known.
    fn hangs_after(&self) -> Duration {
        let Timing { interval, timeout, down_after, .. } = self.timing;
        let patience = timeout * u32::try_from(down_after).unwrap_or(u32::MAX);
        if self.verdict.is_none() { patience.min(interval + timeout) } else { patience }
    }

    /// Candidates that were started together do not ask what they share together for ever.
    fn jittered_interval(&mut self) -> Duration {
        let tenth = u64::try_from(self.timing.interval.as_nanos() / 10).unwrap_or(u64::MAX / 2);
        self.timing.interval - Duration::from_nanos(tenth) + Duration::from_nanos(self.rng.below(2 * tenth))
    }

    fn timeout_secs(&self) -> f64 {
        self.timing.timeout.as_secs_f64()
    }
}

/// What several checks come to: the worst of them, with the names of those that say so. `None`: not
/// all of them are known yet, and none of those that are says that the candidate is unfit.
pub(super) fn overall<'a>(all: impl Iterator<Item = (&'a str, Option<&'a Health>)> + Clone) -> Option<Health> {
    let worst = all.clone().filter_map(|(_, verdict)| verdict).map(|verdict| verdict.fitness).max();
    let known = all.clone().all(|(_, verdict)| verdict.is_some());
    let fitness = worst.filter(|worst| known || *worst == Fitness::Unfit)?;
    let reasons = all.filter_map(|(name, verdict)| {
        let verdict = verdict.filter(|verdict| verdict.fitness == fitness)?;
        Some(if verdict.reason.is_empty() { name.to_owned() } else { format!("{name}: {}", verdict.reason) })
    });
    let reason = if fitness == Fitness::Fit { String::new() } else { reasons.collect::<Vec<_>>().join("; ") };
    Some(Health { fitness, reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Fitness::{Fit, Unfit, Unwell};

    /// One check whose runs answer at once, in virtual time.
    struct Checked {
        now: Instant,
        assessment: Assessment,
    }

    impl Checked {
        fn new() -> Checked {
            let now = Instant::now();
            Checked { now, assessment: Assessment::new(now, Timing::default(), Unfit, Rng::from_number(1)) }
        }

        /// Waits until the next run begins.
        fn begin(&mut self) -> u64 {
            loop {
                if let Some(run) = self.assessment.tick(self.now) {
                    return run;
                }
                self.now = self.assessment.next_timeout().expect("a run is due");
            }
        }

        fn answer(&mut self, run: u64, fitness: Fitness) -> Fitness {
            self.assessment.on_result(self.now, run, Health::new(fitness, "because"));
            self.fitness()
        }

        fn check(&mut self, fitness: Fitness) -> Fitness {
            let run = self.begin();
            self.answer(run, fitness)
        }

        fn fitness(&self) -> Fitness {
            self.assessment.verdict().expect("known").fitness
        }

        /// Checks that all is well until it counts. How many results and how much time it took.
        fn recover(&mut self) -> (usize, Duration) {
            let mut began = None;
            for results in 1..1000 {
                let fitness = self.check(Fit);
                let since = *began.get_or_insert(self.now);
                if fitness == Fit {
                    return (results, self.now - since);
                }
            }
            panic!("never fit again");
        }

        fn sicken(&mut self) {
            for _ in 0..3 {
                self.check(Unwell);
            }
            assert_eq!(self.fitness(), Unwell);
        }
    }

    #[test]
    fn the_first_result_counts_at_once() {
        for first in [Fit, Unwell, Unfit] {
            let mut checked = Checked::new();
            assert_eq!(checked.assessment.verdict(), None);
            assert_eq!(checked.check(first), first);
        }
    }

    #[test]
    fn three_worse_results_in_a_row_make_it_worse_and_two_do_not() {
        let mut checked = Checked::new();
        let said = [Fit, Unwell, Unwell, Fit, Unwell, Unwell, Unwell].map(|found| checked.check(found));
        assert_eq!(said, [Fit, Fit, Fit, Fit, Fit, Fit, Unwell]);
    }

    #[test]
    fn it_becomes_no_worse_than_the_mildest_of_the_three() {
        let mut checked = Checked::new();
        let said = [Fit, Unfit, Unwell, Unfit, Unfit, Unfit].map(|found| checked.check(found));
        assert_eq!(said, [Fit, Fit, Fit, Unwell, Unwell, Unfit]);
    }

    #[test]
    fn five_better_results_that_last_make_it_better_and_one_bad_one_begins_anew() {
        let mut checked = Checked::new();
        checked.check(Fit);
        checked.sicken();
        for _ in 0..4 {
            assert_eq!(checked.check(Fit), Unwell);
        }
        assert_eq!(checked.check(Unwell), Unwell);
        let (results, lasted) = checked.recover();
        assert!(results >= 5, "{results}");
        assert!(lasted >= Duration::from_secs(30), "{lasted:?}");
        assert!(lasted < Duration::from_secs(36), "{lasted:?}: the first result after 30 s is enough");
    }

    #[test]
    fn five_better_results_are_needed_however_rarely_they_come() {
        let mut checked = Checked::new();
        checked.assessment.timing.interval = Duration::from_secs(60);
        checked.check(Fit);
        checked.sicken();
        assert_eq!(checked.recover().0, 5);
    }

    #[test]
    fn each_further_episode_within_an_hour_doubles_how_long_being_well_must_last() {
        let mut checked = Checked::new();
        checked.check(Fit);
        let mut lasted = Vec::new();
        for _ in 0..7 {
            checked.sicken();
            lasted.push(checked.assessment.well_for.as_secs());
            checked.recover();
        }
        assert_eq!(lasted, [30, 60, 120, 240, 480, 600, 600]);
        checked.now += REMEMBERED;
        checked.sicken();
        assert_eq!(checked.assessment.well_for.as_secs(), 30, "forgotten after an hour");
    }

    #[test]
    fn a_flapping_check_changes_its_mind_less_and_less_often() {
        let mut checked = Checked::new();
        let (mut changes, mut last, began) = (0, checked.check(Fit), checked.now);
        while checked.now - began < Duration::from_secs(600) {
            // Three bad ones, then as many good ones as it takes and no more.
            let found = if last == Fit { Unwell } else { Fit };
            let said = checked.check(found);
            changes += usize::from(said != last);
            last = said;
        }
        assert!((6..=10).contains(&changes), "{changes} in 10 min");
    }

    #[test]
    fn a_run_that_hangs_counts_after_three_times_its_limit_and_no_other_begins() {
        let mut checked = Checked::new();
        checked.check(Fit);
        let run = checked.begin();
        checked.now += Duration::from_millis(5_999);
        assert_eq!(checked.assessment.tick(checked.now), None);
        assert_eq!(checked.fitness(), Fit);
        checked.now += Duration::from_millis(1);
        assert_eq!(checked.assessment.tick(checked.now), None);
        assert_eq!(checked.assessment.verdict().unwrap().to_string(), "unfit: no answer for 6 s");
        for _ in 0..100 {
            checked.now += Duration::from_secs(5);
            assert_eq!(checked.assessment.tick(checked.now), None, "the first has not ended");
            assert_eq!(checked.assessment.next_timeout(), None);
        }
        // It ends after all: what it says is old.
        assert_eq!(checked.answer(run, Fit), Unfit);
        assert!(checked.recover().0 >= 5, "and is none of the five");
    }

    #[test]
    fn a_late_answer_says_nothing_good_and_keeps_what_is_worse() {
        let mut checked = Checked::new();
        checked.assessment.when_late = Unwell;
        checked.check(Fit);
        for found in [Fit, Fit, Unfit] {
            let run = checked.begin();
            checked.now += Duration::from_millis(2_001);
            checked.answer(run, found);
        }
        let verdict = checked.assessment.verdict().unwrap().to_string();
        assert_eq!(verdict, "unwell: took 2.0 s to answer, 2.0 s is the limit");
    }

    #[test]
    fn it_improves_from_the_first_better_result_to_the_next_bad_one() {
        let mut checked = Checked::new();
        checked.check(Fit);
        checked.sicken();
        let improves = [Fit, Fit, Unwell, Fit].map(|found| {
            checked.check(found);
            checked.assessment.is_improving()
        });
        assert_eq!(improves, [true, true, false, true]);
        checked.recover();
        assert!(!checked.assessment.is_improving(), "it is well");
    }

    /// The cause comes just before one of them asks, and just after the other has.
    #[test]
    fn the_last_to_notice_a_cause_does_so_before_the_first_has_settled() {
        for down_after in [1, 3, 10] {
            for took in [0, 2, 4].map(Duration::from_secs) {
                let timing = Timing { down_after, ..Timing::default() };
                let (soonest, latest) = (timing.interval.mul_f64(0.9), timing.interval.mul_f64(1.1));
                let further = u32::try_from(down_after - 1).expect("few");
                let first = soonest.max(took) * further + took;
                let last = latest + latest.max(took) * further + took;
                assert!(last - first <= timing.settles(), "{:?} {:?}", last - first, timing.settles());
            }
        }
        assert_eq!(Timing::default().settles(), Duration::from_secs(10));
    }

    #[test]
    fn an_answer_of_an_earlier_run_does_not_count() {
        let mut checked = Checked::new();
        let first = checked.begin();
        checked.answer(first, Unfit);
        let second = checked.begin();
        assert_eq!(checked.answer(first, Fit), Unfit);
        assert_eq!(checked.assessment.run.map(|run| run.number), Some(second), "and ends no other run");
        assert_eq!(checked.assessment.recent.len(), 0);
    }

    #[test]
    fn one_that_never_answers_is_known_to_be_unfit_after_a_while() {
        let mut checked = Checked::new();
        checked.assessment.timing.timeout = Duration::from_secs(10);
        checked.begin();
        checked.now += Duration::from_secs(15);
        checked.assessment.tick(checked.now);
        assert_eq!(checked.fitness(), Unfit, "after the interval and its limit, not three times 10 s");
    }

    #[test]
    fn runs_begin_an_interval_apart_give_or_take_a_tenth() {
        let mut checked = Checked::new();
        let mut waits = Vec::new();
        for _ in 0..50 {
            let before = checked.now;
            checked.check(Fit);
            waits.push((checked.now - before).as_millis());
        }
        assert!(waits[1..].iter().all(|wait| (4_500..=5_500).contains(wait)), "{waits:?}");
        assert!(waits[1..].iter().collect::<std::collections::BTreeSet<_>>().len() > 10, "{waits:?}");
    }

    #[test]
    fn the_worst_check_speaks_for_all_and_unknown_is_not_fit() {
        let (fit, unwell, unfit) = (Health::fit(), Health::unwell("slow"), Health::unfit("full"));
        let said = |all: &[(&'static str, Option<&Health>)]| overall(all.iter().copied()).map(|all| all.to_string());
        assert_eq!(said(&[("a", Some(&fit)), ("b", None)]), None);
        assert_eq!(said(&[("a", Some(&unwell)), ("b", None)]), None);
        assert_eq!(said(&[("a", Some(&unfit)), ("b", None)]).as_deref(), Some("unfit: a: full"));
        assert_eq!(said(&[("a", Some(&fit)), ("b", Some(&unwell))]).as_deref(), Some("unwell: b: slow"));
        let both = [("a", Some(&unfit)), ("b", Some(&unwell)), ("c", Some(&unfit))];
        assert_eq!(said(&both).as_deref(), Some("unfit: a: full; c: full"));
        assert_eq!(said(&[("a", Some(&fit))]).as_deref(), Some("fit"));
    }
}
