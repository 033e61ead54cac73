//! Bully and ring in virtual time: broken links, take-overs and resignations.

use std::time::Duration;

use incumbent_core::peers::bully::Bully;
use incumbent_core::peers::ring::Ring;
use incumbent_core::peers::{RankFlaw, RankPolicy, RankSettings};
use incumbent_sim::ranks::{Outcome, Scenario, run};

const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Algorithm {
    Bully,
    Ring,
}

const BOTH: [Algorithm; 2] = [Algorithm::Bully, Algorithm::Ring];

fn play(algorithm: Algorithm, scenario: Scenario) -> Outcome {
    match algorithm {
        Algorithm::Bully => run::<Bully>(scenario),
        Algorithm::Ring => run::<Ring>(scenario),
    }
}

fn flawed(flaw: Option<RankFlaw>) -> RankSettings {
    RankSettings::default().with_policy(flaw.map_or(RankPolicy::SOUND, |flaw| RankPolicy::SOUND.with(flaw)))
}

/// The most elections in two minutes, of all groups with one link that is broken in one or in both
/// directions before the highest rank starts.
fn most_elections(algorithm: Algorithm, flaw: Option<RankFlaw>) -> (usize, String) {
    let mut most = (0, String::new());
    for members in [3, 5] {
        for majority in [false, true] {
            for (from, to) in (1..=members).flat_map(|from| (1..=members).map(move |to| (from, to))) {
                if from == to {
                    continue;
                }
                for cut in [vec![(from, to)], vec![(from, to), (to, from)]] {
                    let mut scenario = Scenario::new(members, flawed(flaw));
                    scenario.settings.majority = majority;
                    scenario.starts.insert(members, SECOND * 5);
                    scenario.cut = cut.clone();
                    let elections = play(algorithm, scenario).elected.len();
                    if elections > most.0 {
                        most = (elections, format!("{members} members, {cut:?} cut, majority: {majority}"));
                    }
                }
            }
        }
    }
    most
}

#[test]
fn one_broken_link_does_not_make_leaders_change_for_ever() {
    for algorithm in BOTH {
        let (elections, scenario) = most_elections(algorithm, None);
        assert!((2..=3).contains(&elections), "{algorithm:?}: {elections} elections in two minutes: {scenario}");
    }
}

#[test]
fn a_ring_that_follows_results_before_the_winner_is_heard_is_caught() {
    let (elections, _) = most_elections(Algorithm::Ring, Some(RankFlaw::ResultFollowed));
    assert!(elections > 20, "{elections}");
}

/// The highest rank comes later than the others, and takes over.
fn take_over(algorithm: Algorithm, members: u16, work: Duration, flaw: Option<RankFlaw>) -> Outcome {
    let mut scenario = Scenario::new(members, flawed(flaw));
    scenario.starts.insert(members, SECOND * 5);
    scenario.work = work;
    play(algorithm, scenario)
}

#[test]
fn who_takes_over_waits_for_the_work_of_the_one_before_which_gets_its_grace() {
    let grace = RankSettings::default().grace;
    for algorithm in BOTH {
        for members in [2, 3, 5] {
            for work in [Duration::ZERO, grace / 2, grace * 10] {
                let outcome = take_over(algorithm, members, work, None);
                assert_eq!(outcome.overlap, Duration::ZERO, "{algorithm:?}, {members} members, {work:?}: {outcome:?}");
                assert_eq!(outcome.unasked, [], "{algorithm:?}");
                assert_eq!(outcome.shown_at_work, [], "{algorithm:?}, {members} members, {work:?}");
                let leaders: Vec<_> = outcome.elected.iter().map(|(_, who)| *who).collect();
                assert_eq!(leaders, [members - 1, members], "{algorithm:?}: {outcome:?}");
            }
        }
    }
}

#[test]
fn a_take_over_at_once_is_caught() {
    for algorithm in BOTH {
        let outcome = take_over(algorithm, 3, SECOND / 10, Some(RankFlaw::TakenOverAtOnce));
        assert!(outcome.overlap > Duration::ZERO && !outcome.unasked.is_empty(), "{algorithm:?}: {outcome:?}");
    }
}

#[test]
fn a_candidate_that_is_shown_another_leader_while_it_is_at_work_is_caught() {
    let work = RankSettings::default().grace * 10;
    for algorithm in BOTH {
        let outcome = take_over(algorithm, 3, work, Some(RankFlaw::FollowsAtWork));
        assert!(!outcome.shown_at_work.is_empty(), "{algorithm:?}: {outcome:?}");
    }
}

/// The highest rank leads and resigns; the one that leads after it ends a minute later.
fn resignation(algorithm: Algorithm, members: u16, flaw: Option<RankFlaw>) -> Outcome {
    let mut scenario = Scenario::new(members, flawed(flaw));
    scenario.resigns.push((members, SECOND * 10));
    scenario.crashes.insert(members - 1, SECOND * 70);
    play(algorithm, scenario)
}

#[test]
fn a_resignation_lasts_for_as_long_as_the_next_one_leads() {
    for algorithm in BOTH {
        for members in [2, 3, 5] {
            let outcome = resignation(algorithm, members, None);
            let leaders: Vec<_> = outcome.elected.iter().map(|(_, who)| *who).collect();
            assert_eq!(leaders, [members, members - 1, members], "{algorithm:?}: {outcome:?}");
            assert!(outcome.elected[2].0 > SECOND * 70, "{algorithm:?}: {outcome:?}");
            assert_eq!(outcome.overlap, Duration::ZERO, "{algorithm:?}: {outcome:?}");
        }
    }
}

#[test]
fn a_resignation_that_is_forgotten_is_caught() {
    for algorithm in BOTH {
        let outcome = resignation(algorithm, 3, Some(RankFlaw::ResignationForgotten));
        assert!(outcome.elected.iter().filter(|(_, who)| *who == 3).count() > 1, "{algorithm:?}");
        assert!(outcome.elected[2].0 < SECOND * 70, "{algorithm:?}: {outcome:?}");
    }
}

/// The highest rank leads, and is asked to give the office back; its work takes long to stop.
fn asked_to_resign(algorithm: Algorithm, hold: bool, flaw: Option<RankFlaw>) -> Outcome {
    let mut scenario = Scenario::new(3, flawed(flaw));
    scenario.settings.grace = SECOND * 3;
    scenario.asked.push((3, SECOND * 10));
    scenario.work = if hold { SECOND * 20 } else { SECOND * 2 };
    scenario.hold = hold;
    scenario.until = SECOND * 60;
    play(algorithm, scenario)
}

#[test]
fn a_leader_that_is_asked_to_resign_is_followed_by_another_when_its_work_has_stopped() {
    for algorithm in BOTH {
        for hold in [false, true] {
            let outcome = asked_to_resign(algorithm, hold, None);
            let leaders: Vec<_> = outcome.elected.iter().map(|(_, who)| *who).collect();
            assert_eq!(leaders, [3, 2], "{algorithm:?}: {outcome:?}");
            assert_eq!((outcome.overlap, outcome.both_work), Default::default(), "{algorithm:?}: {outcome:?}");
        }
    }
}

#[test]
fn an_office_given_up_before_the_work_has_stopped_is_caught() {
    for algorithm in BOTH {
        let outcome = asked_to_resign(algorithm, false, Some(RankFlaw::ReleasedBeforeStopped));
        assert!(outcome.overlap > Duration::ZERO, "{algorithm:?}: {outcome:?}");
    }
}
