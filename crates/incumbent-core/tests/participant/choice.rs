//! The first in line at a vacancy, driven by hand: it takes office, or hands its place to one that
//! is better, and never just goes away.

use std::time::Duration;

use incumbent_core::*;

use crate::driven::{TTL, token};
use crate::first_in_line::{FirstInLine, with_merit as other};

fn priority(priority: i32) -> Merit {
    Merit::new(false, priority)
}

fn unwell() -> Merit {
    Merit::new(true, 0)
}

fn foreign(number: u64) -> Entry {
    Entry::new(EntryId::new(number.to_string()), token(number))
}

impl FirstInLine {
    fn first(priority: Option<i32>, is_unwell: bool, behind: Vec<Entry>) -> FirstInLine {
        let mut driven = FirstInLine::enlisting(priority, is_unwell, behind);
        driven.stands();
        driven
    }

    /// The first in line, which has asked the one with this token to take its place: the notice.
    fn asking(behind: Vec<Entry>, heir: u64) -> (FirstInLine, Handover) {
        let mut driven = FirstInLine::first(Some(0), false, behind);
        driven.reads_line();
        let handover = driven.writes().handover.unwrap();
        assert_eq!((handover.from, handover.heir.as_ref().unwrap().token), (token(5), token(heir)));
        assert!(!handover.for_health && handover.within == Duration::from_secs(2));
        (driven, handover)
    }

    /// The same, once the heir is next, is ready, and was seen to be: its place is on its way.
    fn ceding() -> (FirstInLine, Handover) {
        let (mut driven, handover) = FirstInLine::asking(vec![other(7, priority(3))], 7);
        driven.behind[0].ready = Some(handover.nonce);
        driven.reads_line();
        assert!(driven.cedes_to("7"), "{:?}", driven.call);
        (driven, handover)
    }

    fn cedes_to(&self, heir: &str) -> bool {
        matches!(&self.call, Some((_, Op::Withdraw(held, Some(guard)))) if *held == self.held && guard.as_str() == heir)
    }

    /// In office, it takes back what it has asked for, and hands over to nobody.
    fn refuses(&mut self) -> Refusal {
        assert!(self.is_elected(), "{:?} {:?}", self.events(), self.call);
        let refused = self.writes().handover.unwrap().refused.unwrap();
        assert!(!self.events().iter().any(|event| matches!(event, Event::Stopping { .. })));
        refused
    }
}

#[test]
fn one_that_is_well_and_has_no_priority_takes_office_without_a_look_at_the_line() {
    assert!(FirstInLine::first(None, false, vec![other(7, priority(3))]).is_elected());
}

#[test]
fn with_nobody_better_behind_it_the_first_in_line_takes_office_after_one_look() {
    let lines = [
        vec![],
        vec![other(7, priority(0)), other(8, priority(0))],
        vec![other(7, priority(-1)), other(8, Merit::new(true, 9))],
        // Nobody gets past one of another library.
        vec![foreign(7), other(8, priority(3))],
    ];
    for behind in lines {
        let mut driven = FirstInLine::first(Some(0), false, behind);
        assert!(!driven.is_elected());
        driven.reads_line();
        assert!(driven.is_elected(), "{:?}", driven.call);
    }
    let mut driven = FirstInLine::first(None, true, vec![other(7, unwell())]);
    driven.reads_line();
    assert!(driven.is_elected(), "all are unwell");
}

#[test]
fn one_that_could_not_take_office_is_asked_again_by_nobody() {
    for is_unwell in [false, true] {
        let mut driven = FirstInLine::first(Some(0), is_unwell, vec![other(7, priority(9).gave_way(true))]);
        driven.reads_line();
        assert!(driven.is_elected(), "{:?}", driven.call);
    }
}

#[test]
fn where_terms_are_on_record_the_first_in_line_takes_office_as_it_comes() {
    let mut driven = FirstInLine::enlisting(Some(0), false, vec![other(7, priority(3))]);
    let before = TermRecord::unknown(token(3), None, "b".into());
    driven.office = Office::default().with_terms(Terms::default().with(before));
    driven.stands();
    let Some((_, Op::SetOffice(_, _, office))) = &driven.call else { panic!("{:?}", driven.call) };
    assert!(office.handover.is_none() && office.terms.iter().count() == 2, "its own term: {office:?}");
}

#[test]
fn the_best_is_asked_and_gets_the_place_once_it_is_next_and_ready() {
    let line =
        vec![other(7, Merit::new(true, 9)), other(8, priority(1)), other(9, priority(2)), other(10, priority(2))];
    let (mut driven, handover) = FirstInLine::asking(line, 9);
    assert_eq!((&*handover.order.by, handover.refused), ("a", None));
    driven.reads_line();
    assert!(driven.call.is_none() && !driven.is_elected(), "it waits: {:?}", driven.call);
    let (_, WatchFor::Entry(_, watched)) = driven.watch() else { panic!("{:?}", driven.watch()) };
    assert_eq!(watched.heir.as_ref().unwrap().as_str(), "9", "for the heir's word");
    driven.behind = vec![other(9, priority(2))];
    driven.behind[0].ready = Some(handover.nonce);
    driven.wakes();
    driven.reads_line();
    assert!(driven.cedes_to("9"), "{:?}", driven.call);
    driven.answer(Ok(Answer::Cas(Cas::Done)));
    assert!(matches!(driven.call, Some((_, Op::Enlist(..)))), "and goes to the line's end: {:?}", driven.call);
    assert!(!driven.is_elected());
}

#[test]
fn one_that_is_unwell_asks_one_that_is_fit_also_without_a_priority() {
    let mut driven = FirstInLine::first(None, true, vec![other(7, unwell()), other(8, priority(-3))]);
    driven.reads_line();
    assert_eq!(driven.writes().handover.unwrap().heir.unwrap().token, token(8));
}

#[test]
fn an_heir_that_is_gone_no_better_any_more_or_behind_a_foreign_one_does_not_get_it() {
    let ready = |mut entry: Entry, nonce| {
        entry.ready = Some(nonce);
        entry
    };
    for (why, case) in [(Refusal::HeirGone, 0), (Refusal::HeirUnfit, 1), (Refusal::ForeignBetween, 2)] {
        let (mut driven, handover) = FirstInLine::asking(vec![other(7, priority(3))], 7);
        driven.behind = match case {
            0 => vec![other(8, priority(9))],
            1 => vec![ready(other(7, Merit::new(true, 3)), handover.nonce)],
            _ => vec![foreign(6), other(7, priority(3))],
        };
        driven.reads_line();
        assert_eq!(driven.refuses(), why);
    }
}

#[test]
fn an_heir_that_is_not_ready_in_time_does_not_get_it_and_nobody_else_is_asked() {
    let (mut driven, _) = FirstInLine::asking(vec![other(7, priority(3)), other(8, priority(2))], 7);
    driven.reads_line();
    driven.pass(Duration::from_millis(1_900));
    assert!(driven.call.is_none() && !driven.is_elected(), "{:?}", driven.call);
    driven.pass(Duration::from_millis(200));
    driven.stands();
    assert_eq!(driven.refuses(), Refusal::TimedOut);
}

#[test]
fn a_guarded_withdrawal_that_is_refused_leaves_it_first_and_it_takes_office() {
    let (mut driven, _) = FirstInLine::ceding();
    // It was certainly not carried out.
    driven.answer(Err(Fault::Unavailable));
    while driven.call.is_none() {
        driven.pass(Duration::from_millis(100));
    }
    assert!(driven.cedes_to("7") && !driven.is_elected(), "{:?}", driven.call);
    driven.behind.clear();
    driven.answer(Ok(Answer::Cas(Cas::Refused)));
    driven.stands();
    assert_eq!(driven.refuses(), Refusal::HeirGone);
}

#[test]
fn a_place_that_may_have_gone_to_another_is_given_up_whatever_is_said_later() {
    let (mut driven, _) = FirstInLine::ceding();
    // The heir may lead by now. A store that loses its last moment would put us back in our place.
    driven.answer(Err(Fault::OutcomeUnknown));
    while driven.call.is_none() {
        driven.pass(Duration::from_millis(100));
    }
    assert!(driven.cedes_to("7") && !driven.is_elected(), "{:?}", driven.call);
    driven.behind.clear();
    driven.answer(Ok(Answer::Cas(Cas::Refused)));
    assert!(matches!(driven.call, Some((_, Op::Withdraw(_, None)))), "{:?}", driven.call);
    driven.answer(Ok(Answer::Cas(Cas::Done)));
    assert!(!driven.is_elected() && matches!(driven.call, Some((_, Op::Enlist(..)))), "{:?}", driven.call);
}

#[test]
fn one_that_has_to_leave_meanwhile_leaves_whatever_becomes_of_the_heir() {
    let (mut driven, _) = FirstInLine::ceding();
    driven.command(Command::Healthy(false));
    driven.answer(Ok(Answer::Cas(Cas::Refused)));
    assert!(matches!(driven.call, Some((_, Op::Withdraw(_, None)))), "{:?}", driven.call);
    assert!(!driven.is_elected());
}

#[test]
fn one_that_was_handed_its_place_asks_nobody() {
    for refused in [None, Some(Refusal::TimedOut)] {
        let mut driven = FirstInLine::enlisting(Some(0), false, vec![other(7, priority(3))]);
        let heir = Heir::new(driven.held.incarnation, driven.held.entry.clone(), token(5));
        let mut handover = Handover::new(token(4), heir, Nonce(1), TTL);
        handover.refused = refused;
        driven.office = Office::default().with_version(Version(3)).with_handover(handover);
        driven.stands();
        assert_eq!(driven.is_elected(), refused.is_none(), "{:?}", driven.call);
    }
}

/// It could not take office, and its program has it stand again: asked by each that comes first, it
/// would keep the office empty for ever.
#[test]
fn one_that_comes_after_a_place_was_handed_on_asks_nobody() {
    for (refused, from) in [(None, 4), (Some(Refusal::TimedOut), 4), (None, 6)] {
        let mut driven = FirstInLine::enlisting(Some(0), false, vec![other(9, priority(3))]);
        let heir = Heir::of(&other(3, priority(3))).unwrap();
        let mut handover = Handover::new(token(from), heir, Nonce(1), TTL);
        handover.refused = refused;
        driven.office = Office::default().with_version(Version(3)).with_handover(handover);
        driven.stands();
        assert_eq!(driven.is_elected(), refused.is_none() && from == 4, "{:?}", driven.call);
    }
}

#[test]
fn what_was_asked_of_it_meanwhile_and_an_office_that_nothing_moves_keep_it_from_asking() {
    let heir = Heir::of(&other(8, priority(0))).unwrap();
    let office = Office::default().with_version(Version(3));
    for office in [
        office.clone().with_handover(Handover::new(token(5), heir, Nonce(1), TTL)),
        office.clone().with_frozen(Frozen::new(Nonce(1), None, "firmware")),
        office.with_held_back(HeldBack::new(token(3))),
    ] {
        let mut driven = FirstInLine::enlisting(Some(0), false, vec![other(7, priority(3)), other(8, priority(0))]);
        driven.office = office;
        driven.stands();
        assert!(driven.is_elected(), "{:?}", driven.call);
    }
}

#[test]
fn a_line_that_cannot_be_read_or_a_record_that_cannot_be_written_keeps_nobody_from_office() {
    for fault in [Fault::Permanent, Fault::Unavailable] {
        for writes in [false, true] {
            let mut driven = FirstInLine::first(Some(0), false, vec![other(7, priority(3))]);
            if writes {
                driven.reads_line();
                assert!(matches!(driven.call, Some((_, Op::SetOffice(..)))), "{:?}", driven.call);
            }
            driven.answer(Err(fault.clone()));
            while driven.call.is_none() {
                driven.pass(Duration::from_millis(100));
            }
            driven.stands();
            assert!(driven.is_elected(), "{fault:?} {:?}", driven.call);
        }
    }
}

#[test]
fn a_record_that_has_moved_on_is_read_again_and_the_choice_made_anew() {
    let mut driven = FirstInLine::first(Some(0), false, vec![other(7, priority(3))]);
    driven.reads_line();
    driven.answer(Ok(Answer::Cas(Cas::Refused)));
    driven.office = Office::default().with_version(Version(4));
    driven.stands();
    driven.reads_line();
    assert_eq!(driven.writes().handover.unwrap().heir.unwrap().token, token(7));
    // Frozen while the heir was waited for: nothing moves the office.
    driven.office = driven.office.clone().with_frozen(Frozen::new(Nonce(1), None, "")).with_version(Version(6));
    driven.behind[0].ready = driven.office.handover.as_ref().map(|handover| handover.nonce);
    driven.reads_line();
    driven.stands();
    assert_eq!(driven.refuses(), Refusal::TimedOut);
}

#[test]
fn one_that_is_better_and_comes_while_somebody_leads_waits() {
    let mut driven = FirstInLine::first(Some(0), false, vec![]);
    driven.reads_line();
    assert!(driven.is_elected());
    driven.behind = vec![other(7, priority(9))];
    for _ in 0..4 * TTL.as_secs() {
        driven.pass(Duration::from_secs(1));
        while driven.call.is_some() {
            driven.stands();
        }
    }
    assert!(!driven.events().iter().any(|event| matches!(event, Event::Stopping { .. } | Event::Unelected(_))));
}
