//! Fitness, driven by hand: what an entry says of it, and what a leader does that is unwell.

use std::time::Duration;

use incumbent_core::*;

use crate::driven::{TTL, candidate, token};
use crate::first_in_line::{FirstInLine, with_merit};

/// Somebody else in line.
fn other(number: u64, unwell: bool) -> Entry {
    with_merit(number, Merit::new(unwell, 0))
}

impl FirstInLine {
    /// A leader with these behind it, which is unwell from now on, and has said so.
    fn unwell_before(behind: Vec<Entry>) -> FirstInLine {
        let mut driven = FirstInLine::enlisting(None, false, behind);
        driven.stands();
        assert!(driven.is_elected(), "{:?}", driven.events());
        driven.unwell(true);
        assert!(driven.publishes().merit.unwell);
        driven
    }

    /// What is published, which is done.
    fn publishes(&mut self) -> Publication {
        let Some((_, Op::Publish(_, _, said))) = self.call.clone() else { panic!("{:?}", self.call) };
        self.answer(Ok(Answer::Published(Some(Version(9)))));
        said
    }

    /// The leader with this token hands over for its health.
    fn sees_change(&mut self, number: u64, refused: Option<Refusal>) {
        for refused in [None, refused] {
            let heir = Heir::of(&other(4, false)).unwrap();
            let mut handover = Handover::new(token(number), heir, Nonce(number), TTL).for_health();
            handover.refused = refused;
            self.reads(self.office.clone().with_handover(handover));
        }
    }
}

#[test]
fn an_entry_says_how_its_candidate_is_from_the_beginning_and_again_when_that_changes() {
    let mut driven = FirstInLine::enlisting(None, true, vec![]);
    // The enlistment has no answer: it is sent again as it was, and only then is news told.
    driven.unwell(false);
    driven.answer(Err(Fault::OutcomeUnknown));
    driven.pass(TTL / 3);
    let Some((_, Op::Enlist(_, again))) = &driven.call else { panic!("{:?}", driven.call) };
    assert!(again.merit.unwell, "what the first one made says so");
    let ahead = other(3, false);
    let place = Place::behind(Some(driven.held.clone()), ahead, None);
    driven.answer(Ok(Answer::Standing(Box::new(Standing::new(place, Office::default(), Cursor(7))))));
    let said = driven.publishes();
    assert_eq!((said.merit.unwell, &said.value[..], said.ready), (false, &b"value"[..], None));
    assert!(driven.call.is_none(), "it has said so: {:?}", driven.call);
}

#[test]
fn what_was_said_with_no_answer_is_said_again_even_if_it_is_as_before() {
    let mut driven = FirstInLine::unwell_before(vec![]);
    driven.reads_line();
    driven.unwell(false);
    assert!(matches!(&driven.call, Some((_, Op::Publish(_, _, said))) if !said.merit.unwell));
    driven.unwell(true);
    // It may have got through.
    driven.answer(Err(Fault::OutcomeUnknown));
    driven.pass(TTL / 3);
    while !matches!(driven.call, Some((_, Op::Publish(..)))) {
        driven.stands();
    }
    assert!(driven.publishes().merit.unwell);
}

#[test]
fn an_unwell_leader_hands_over_to_the_best_that_is_fit() {
    let mut line = vec![other(6, true), other(7, false), other(8, false), other(9, false)];
    line.iter_mut().zip([9, 0, 1, 1]).for_each(|(entry, priority)| entry.merit.priority = priority);
    let mut driven = FirstInLine::unwell_before(line);
    driven.reads_line();
    let handover = driven.writes().handover.unwrap();
    assert_eq!((handover.from, handover.heir.unwrap().token, handover.for_health), (token(5), token(8), true));
    assert_eq!(handover.within, Duration::from_secs(2));
    // The one between has stepped aside, and the heir is ready.
    driven.behind = vec![other(8, false), other(9, false)];
    driven.behind[0].ready = Some(handover.nonce);
    driven.reads_line();
    assert_eq!(driven.is_told_to_stop(), Some(LossReason::Unwell));
    driven.command(Command::Release);
    assert!(
        matches!(&driven.call, Some((_, Op::Withdraw(_, Some(heir)))) if heir.as_str() == "8"),
        "{:?}",
        driven.call
    );
}

#[test]
fn nobody_fit_or_only_behind_a_foreign_candidate_and_it_stays_and_looks_again_after_a_ttl() {
    let mut foreign = other(7, false);
    foreign.incarnation = None;
    for behind in [vec![], vec![other(7, true)], vec![foreign, other(8, false)]] {
        let mut driven = FirstInLine::unwell_before(behind);
        driven.reads_line();
        assert_eq!(driven.events().last(), Some(&Event::Stays(Stay::NobodyFit)));
        let told = driven.events().len();
        for _ in 1..TTL.as_secs() {
            driven.pass(Duration::from_secs(1));
            while let Some((_, Op::Standing(..))) = driven.call {
                driven.stands();
            }
            assert!(driven.call.is_none(), "{:?}", driven.call);
        }
        driven.pass(Duration::from_secs(1));
        driven.reads_line();
        assert_eq!(driven.events()[told..].iter().filter(|event| matches!(event, Event::Stays(_))).count(), 0, "once");
        assert_eq!(driven.is_told_to_stop(), None);
    }
}

#[test]
fn an_heir_that_is_unwell_by_now_or_a_leader_that_is_well_again_ends_the_handover() {
    for recovers in [false, true] {
        let mut driven = FirstInLine::unwell_before(vec![other(7, false)]);
        driven.reads_line();
        let nonce = driven.writes().handover.unwrap().nonce;
        driven.behind = vec![other(7, !recovers)];
        driven.behind[0].ready = Some(nonce);
        if recovers {
            // Before the line was read.
            driven.answer(Err(Fault::Unavailable));
            driven.unwell(false);
            driven.pass(TTL / 3);
            while let Some((_, Op::Standing(..))) = driven.call {
                driven.stands();
            }
            assert!(!driven.publishes().merit.unwell);
        } else {
            driven.reads_line();
        }
        let why = driven.writes().handover.unwrap().refused;
        assert_eq!(why, Some(if recovers { Refusal::Recovered } else { Refusal::HeirUnfit }));
        assert_eq!(driven.is_told_to_stop(), None);
        let stays = Event::Stays(Stay::Refused(Refusal::HeirUnfit));
        assert_eq!(driven.events().contains(&stays), !recovers, "{:?}", driven.events());
    }
}

/// Unfit is unwell, too: the one that has been asked may be ready just now.
#[test]
fn a_leader_that_gets_unfit_while_it_hands_over_leaves_and_refuses_nothing() {
    let mut driven = FirstInLine::unwell_before(vec![other(7, false)]);
    driven.reads_line();
    let nonce = driven.writes().handover.unwrap().nonce;
    driven.reads_line();
    driven.behind[0].ready = Some(nonce);
    let from = driven.outputs.len();
    driven.command(Command::Healthy(false));
    assert_eq!(driven.is_told_to_stop(), Some(LossReason::Unhealthy));
    driven.pass(Duration::from_secs(3));
    driven.command(Command::Release);
    let calls = driven.outputs[from..].iter().filter_map(|output| match output {
        Output::Call(.., op) => Some(op),
        _ => None,
    });
    assert!(matches!(calls.collect::<Vec<_>>()[..], [Op::Withdraw(..)]), "{:?}", &driven.outputs[from..]);
}

#[test]
fn one_that_was_tried_in_vain_is_tried_again_after_the_others() {
    let mut driven = FirstInLine::unwell_before(vec![other(7, false), other(8, true), other(9, false)]);
    let mut chosen = Vec::new();
    for _ in 0..3 {
        driven.reads_line();
        let handover = driven.writes().handover.unwrap();
        chosen.push((handover.heir.unwrap().token, handover.within));
        // It never says that it is ready.
        while !matches!(driven.call, Some((_, Op::SetOffice(..)))) {
            match &driven.call {
                Some((_, Op::Line(..))) => driven.reads_line(),
                Some(_) => driven.stands(),
                None => driven.pass(Duration::from_millis(500)),
            }
        }
        assert_eq!(driven.writes().handover.unwrap().refused, Some(Refusal::TimedOut));
        while !matches!(driven.call, Some((_, Op::Line(..)))) {
            driven.pass(Duration::from_secs(1));
            if let Some((_, Op::Standing(..))) = driven.call {
                driven.stands();
            }
            if let Some((_, Op::SetOffice(..))) = driven.call {
                driven.writes();
            }
        }
    }
    let (soon, patient) = (Duration::from_secs(2), 4 * Settings::for_ttl(TTL).reread_every);
    assert_eq!(chosen, [(token(7), soon), (token(9), soon), (token(7), patient)]);
}

/// A leader with one that is fit behind it.
fn well() -> FirstInLine {
    let mut driven = FirstInLine::enlisting(None, false, vec![other(7, false)]);
    driven.stands();
    driven
}

/// It falls ill: what it writes down.
fn falls_ill(driven: &mut FirstInLine) -> Office {
    driven.unwell(true);
    assert!(driven.publishes().merit.unwell);
    driven.reads_line();
    driven.writes()
}

#[test]
fn after_three_changes_for_health_an_operator_has_to_acknowledge_them() {
    let mut driven = well();
    (1..=3).for_each(|number| driven.sees_change(number, None));
    let office = falls_ill(&mut driven);
    assert_eq!(office.held_back, Some(HeldBack::new(token(5))));
    assert_eq!(office.handover.as_ref().unwrap().from, token(3), "it hands over to nobody");
    assert_eq!(driven.events().last(), Some(&Event::Stays(Stay::HeldBack)));
    for _ in 0..TTL.as_secs() * 2 {
        driven.pass(Duration::from_secs(1));
        while let Some((_, Op::Standing(..))) = driven.call {
            driven.stands();
        }
        assert!(!matches!(driven.call, Some((_, Op::Line(..)))), "it looks for nobody");
        if let Some((_, Op::SetOffice(..))) = driven.call {
            assert!(driven.writes().held_back.is_some(), "what is tidied is something else");
        }
    }
    driven.reads(driven.office.clone().with_held_back(None));
    driven.reads_line();
    assert!(driven.writes().handover.unwrap().for_health, "and counts anew");
    assert_eq!(driven.is_told_to_stop(), None);
}

#[test]
fn a_change_that_was_refused_and_one_of_ten_minutes_ago_do_not_count() {
    let mut driven = well();
    (1..=3).for_each(|number| driven.sees_change(number, (number == 2).then_some(Refusal::TimedOut)));
    assert_eq!(falls_ill(&mut driven).handover.unwrap().from, token(5), "two have been seen");
    let mut driven = well();
    (1..=3).for_each(|number| driven.sees_change(number, None));
    for _ in 0..600 {
        driven.pass(Duration::from_secs(1));
        while let Some((_, op)) = &driven.call {
            match op {
                Op::SetOffice(..) => drop(driven.writes()),
                _ => driven.stands(),
            }
        }
    }
    assert_eq!(falls_ill(&mut driven).handover.unwrap().from, token(5), "they were long ago");
}

#[test]
fn a_change_that_was_refused_takes_no_other_from_the_count() {
    let mut driven = well();
    (1..=4).for_each(|number| driven.sees_change(number, (number == 4).then_some(Refusal::TimedOut)));
    assert!(falls_ill(&mut driven).held_back.is_some(), "three have been seen");
}

const SETTLES: Duration = Duration::from_secs(4);

/// A leader that waits so long before it looks for an heir, with one that is fit behind it.
fn settling() -> FirstInLine {
    let candidate = Candidate { settles: SETTLES, ..candidate() };
    let mut driven = FirstInLine::enlisting_as(candidate, false, vec![other(7, false)]);
    driven.stands();
    driven
}

/// After how many seconds it looks for an heir, of so many at most.
fn looks_within(driven: &mut FirstInLine, most: u64) -> Option<u64> {
    for second in 0..=most {
        while let Some((_, Op::Standing(..))) = driven.call {
            driven.stands();
        }
        if let Some((_, Op::Line(..))) = driven.call {
            return Some(second);
        }
        assert!(driven.call.is_none(), "{:?}", driven.call);
        driven.pass(Duration::from_secs(1));
    }
    None
}

fn says(driven: &mut FirstInLine, unwell: bool) {
    driven.unwell(unwell);
    assert_eq!(driven.publishes().merit.unwell, unwell);
}

#[test]
fn what_all_notice_one_after_the_other_moves_no_office() {
    let mut driven = settling();
    says(&mut driven, true);
    // The other notices last of all.
    driven.pass(SETTLES - Duration::from_secs(1));
    driven.behind = vec![other(7, true)];
    assert_eq!(looks_within(&mut driven, 9), Some(1));
    driven.reads_line();
    assert_eq!(driven.events().last(), Some(&Event::Stays(Stay::NobodyFit)));
    assert!(driven.call.is_none(), "{:?}", driven.call);
}

#[test]
fn one_that_stays_unwell_alone_hands_over_once_all_others_would_have_noticed() {
    let mut driven = settling();
    says(&mut driven, true);
    assert_eq!(looks_within(&mut driven, 9), Some(SETTLES.as_secs()));
    driven.reads_line();
    assert!(driven.writes().handover.unwrap().for_health);
}

#[test]
fn an_order_to_the_bench_waits_for_nobody_to_notice() {
    let mut driven = settling();
    says(&mut driven, true);
    let order = BenchOrder::new("a", Nonce(1), None, "new disk");
    driven.reads(driven.office.clone().with_benched(Benched::default().with(order)));
    driven.reads_line();
    assert!(driven.writes().handover.unwrap().for_bench);
}

/// It was unwell before it led: whoever shares the cause has noticed.
#[test]
fn one_that_comes_into_office_unwell_looks_at_once() {
    let candidate = Candidate { settles: SETTLES, ..candidate() };
    let mut driven = FirstInLine::enlisting_as(candidate, true, vec![other(7, false)]);
    driven.pass(SETTLES);
    driven.behind = vec![];
    driven.stands();
    driven.reads_line();
    assert!(driven.is_elected(), "nobody is better: {:?}", driven.events());
    assert_eq!(looks_within(&mut driven, 9), Some(0));
}

/// Of those that share a cause, the leader may be the last that counts as fit again.
#[test]
fn while_what_is_found_of_it_is_better_a_leader_looks_for_nobody() {
    let mut driven = settling();
    says(&mut driven, true);
    driven.command(Command::Improving(true));
    assert_eq!(looks_within(&mut driven, 9), None);
    // The cause is back, and the others have to notice again.
    driven.command(Command::Improving(false));
    assert_eq!(looks_within(&mut driven, 9), Some(SETTLES.as_secs()));
}

/// A check that goes up and down keeps no office.
#[test]
fn what_is_better_for_a_moment_puts_the_search_off_for_that_moment_only() {
    let mut driven = settling();
    says(&mut driven, true);
    driven.command(Command::Improving(true));
    driven.pass(SETTLES - Duration::from_secs(1));
    driven.command(Command::Improving(false));
    assert_eq!(looks_within(&mut driven, 9), Some(1));
}

#[test]
fn whoever_improves_or_falls_ill_anew_while_the_line_is_read_chooses_nobody_by_it() {
    for improves in [true, false] {
        let mut driven = settling();
        says(&mut driven, true);
        assert!(looks_within(&mut driven, 9).is_some());
        if improves {
            driven.command(Command::Improving(true));
        } else {
            driven.unwell(false);
            driven.unwell(true);
        }
        driven.reads_line();
        assert!(driven.call.is_none(), "{:?}", driven.call);
    }
}

#[test]
fn one_that_falls_ill_again_looks_as_soon_as_it_may_and_says_again_why_it_stays() {
    let mut driven = settling();
    driven.behind = vec![];
    for _ in 0..2 {
        says(&mut driven, true);
        assert_eq!(looks_within(&mut driven, 9), Some(SETTLES.as_secs()), "before the next look of the last time");
        driven.reads_line();
        says(&mut driven, false);
        assert!(driven.call.is_none(), "{:?}", driven.call);
    }
    let said = driven.events().iter().filter(|event| **event == Event::Stays(Stay::NobodyFit)).count();
    assert_eq!(said, 2);
}

#[test]
fn one_that_cannot_read_its_line_says_that_it_stays_for_that() {
    let mut driven = FirstInLine::unwell_before(vec![other(7, false)]);
    assert!(matches!(driven.call, Some((_, Op::Line(..)))), "{:?}", driven.call);
    driven.answer(Err(Fault::Permanent));
    assert_eq!(driven.events().last(), Some(&Event::Stays(Stay::Refused(Refusal::Unable))));
    assert_eq!(driven.is_told_to_stop(), None);
}

/// Those that step aside each time would never see that the one ahead of them is dead.
#[test]
fn attempts_in_vain_become_rarer() {
    let mut driven = FirstInLine::unwell_before(vec![other(7, false)]);
    let mut rests = Vec::new();
    for _ in 0..5 {
        driven.reads_line();
        driven.writes();
        // The heir is gone, and comes back.
        driven.behind.clear();
        driven.reads_line();
        assert_eq!(driven.writes().handover.unwrap().refused, Some(Refusal::HeirGone));
        driven.behind = vec![other(7, false)];
        let mut rest = 0;
        while !matches!(driven.call, Some((_, Op::Line(..)))) {
            match &driven.call {
                Some((_, Op::SetOffice(..))) => drop(driven.writes()),
                Some(_) => driven.stands(),
                None => {
                    driven.pass(Duration::from_secs(1));
                    rest += 1;
                }
            }
        }
        rests.push(rest);
    }
    let ttl = TTL.as_secs();
    assert_eq!(rests, [ttl, 2 * ttl, 4 * ttl, 8 * ttl, 8 * ttl]);
}

#[test]
fn in_a_frozen_election_nothing_is_looked_for() {
    let mut driven = FirstInLine::enlisting(None, false, vec![]);
    driven.office = Office::default().with_version(Version(3)).with_frozen(Frozen::new(Nonce(1), None, "firmware"));
    driven.behind = vec![other(7, false)];
    driven.stands();
    driven.unwell(true);
    assert!(driven.publishes().merit.unwell);
    assert_eq!(driven.events().last(), Some(&Event::Stays(Stay::Frozen)));
    assert!(driven.call.is_none(), "{:?}", driven.call);
}
