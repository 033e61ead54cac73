//! A leader whose program is about to leave, driven by hand: to whom it hands over first.

use std::time::Duration;

use incumbent_core::*;

use crate::driven::{TTL, token};
use crate::first_in_line::{FirstInLine, with_merit};

const WITHIN: Duration = Duration::from_secs(10);

/// A leader with these behind it, whose program is about to leave.
fn leaving(behind: Vec<Entry>) -> FirstInLine {
    let mut driven = FirstInLine::enlisting(None, false, behind);
    driven.stands();
    assert!(driven.is_elected(), "{:?}", driven.events());
    driven.command(Command::HandOver(Some(WITHIN)));
    driven
}

fn fit(number: u64) -> Entry {
    with_merit(number, Merit::default())
}

fn unwell(number: u64) -> Entry {
    with_merit(number, Merit::new(true, 0))
}

impl FirstInLine {
    /// Whom it asks, after it has read the line.
    fn asks(&mut self) -> Handover {
        self.reads_line();
        let handover = self.writes().handover.unwrap();
        assert_eq!((handover.from, handover.refused, handover.for_health), (token(5), None, false));
        assert_eq!(handover.order, Order::default(), "nobody ordered it");
        handover
    }

    /// Lets time pass until it writes the record: why it refuses.
    fn gives_up(&mut self) -> Option<Refusal> {
        for _ in 0..100 {
            match &self.call {
                Some((_, Op::SetOffice(..))) => return self.writes().handover.unwrap().refused,
                Some((_, Op::Line(..))) => self.reads_line(),
                Some(_) => self.stands(),
                None => self.pass(Duration::from_millis(500)),
            }
        }
        panic!("it writes nothing: {:?}", self.events())
    }

    fn no_heir(&self) -> Vec<Refusal> {
        let why = |event| match event {
            Event::NoHeir(why) => Some(why),
            _ => None,
        };
        self.events().into_iter().filter_map(why).collect()
    }

    fn stops_for(&self) -> Option<LossReason> {
        self.events().into_iter().find_map(|event| match event {
            Event::Stopping { why, .. } => Some(why),
            _ => None,
        })
    }
}

#[test]
fn it_hands_over_to_the_best_while_it_works_and_goes_on_only_once_that_is_next_and_ready() {
    let mut line = vec![unwell(6), fit(7), fit(8), fit(9)];
    line.iter_mut().zip([9, 0, 1, 1]).for_each(|(entry, priority)| entry.merit.priority = priority);
    let mut driven = leaving(line);
    let handover = driven.asks();
    assert_eq!((handover.heir.unwrap().token, handover.within), (token(8), WITHIN));
    driven.behind = vec![fit(8), fit(9)];
    driven.reads_line();
    assert_eq!((driven.stops_for(), driven.no_heir()), (None, vec![]), "it is next, and has said nothing yet");
    driven.behind[0].ready = Some(handover.nonce);
    driven.wakes();
    driven.reads_line();
    assert_eq!(driven.stops_for(), Some(LossReason::Transferred));
    driven.command(Command::Leave);
    driven.command(Command::Release);
    let Some((_, Op::Withdraw(_, Some(heir)))) = &driven.call else { panic!("{:?}", driven.call) };
    assert_eq!(heir.as_str(), "8", "guarded by the heir's entry");
    assert_eq!(driven.no_heir(), vec![]);
}

#[test]
fn where_all_are_unwell_the_best_of_them_is_asked_and_fit_comes_before_any_priority() {
    let mut driven = leaving(vec![unwell(6), with_merit(7, Merit::new(true, 3))]);
    assert_eq!(driven.asks().heir.unwrap().token, token(7));
    let mut driven = leaving(vec![with_merit(6, Merit::new(true, 9)), with_merit(7, Merit::new(false, -3))]);
    assert_eq!(driven.asks().heir.unwrap().token, token(7));
}

#[test]
fn nobody_in_line_or_only_behind_a_foreign_one_and_the_program_is_told_at_once() {
    let mut foreign = fit(6);
    foreign.incarnation = None;
    for behind in [vec![], vec![foreign, fit(7)]] {
        let mut driven = leaving(behind);
        driven.reads_line();
        assert_eq!(driven.no_heir(), [Refusal::NoHeir]);
        assert!(driven.call.is_none() && driven.is_elected(), "it leads on: {:?}", driven.call);
    }
}

#[test]
fn one_that_does_not_get_ready_or_has_fallen_ill_is_passed_over_and_each_is_asked_once() {
    let mut driven = leaving(vec![fit(6), fit(7)]);
    assert_eq!(driven.asks().heir.unwrap().token, token(6));
    let asked_at = driven.now;
    assert_eq!(driven.gives_up(), Some(Refusal::TimedOut));
    assert!(driven.now.since(asked_at) >= WITHIN / 2 && driven.now.since(asked_at) < WITHIN, "half of the time each");
    let second = driven.asks();
    assert_eq!(second.heir.unwrap().token, token(7));
    driven.behind = vec![unwell(7), fit(6), fit(8)];
    driven.behind[0].ready = Some(second.nonce);
    driven.reads_line();
    assert_eq!(driven.writes().handover.unwrap().refused, Some(Refusal::HeirUnfit));
    let third = driven.asks();
    assert_eq!(third.heir.unwrap().token, token(8), "one that has come since");
    driven.behind = vec![unwell(7), fit(6)];
    driven.reads_line();
    assert_eq!(driven.writes().handover.unwrap().refused, Some(Refusal::HeirGone));
    driven.reads_line();
    assert_eq!(driven.writes().handover, None, "it leaves nothing in the record");
    driven.reads_line();
    assert_eq!(driven.no_heir(), [Refusal::HeirGone], "why the last one did not");
    assert_eq!(driven.stops_for(), None);
}

#[test]
fn an_heir_that_has_fallen_ill_takes_the_office_if_nobody_else_is_fit() {
    let mut driven = leaving(vec![fit(6), unwell(7)]);
    let handover = driven.asks();
    driven.behind[0] = unwell(6);
    driven.behind[0].ready = Some(handover.nonce);
    driven.reads_line();
    assert_eq!(driven.stops_for(), Some(LossReason::Transferred));
}

#[test]
fn a_program_that_thinks_better_of_it_has_its_notice_taken_out_and_leads_on() {
    let mut driven = leaving(vec![fit(6)]);
    let handover = driven.asks();
    driven.command(Command::HandOver(None));
    // The heir was ready when the line was read.
    driven.behind[0].ready = Some(handover.nonce);
    if let Some((_, Op::Line(..))) = driven.call {
        driven.answer(Err(Fault::Unavailable));
        driven.pass(TTL / 3);
    }
    while !matches!(driven.call, Some((_, Op::SetOffice(..)))) {
        driven.stands();
    }
    assert_eq!(driven.writes().handover, None);
    assert_eq!((driven.stops_for(), driven.no_heir()), (None, vec![]));
    driven.command(Command::HandOver(Some(WITHIN)));
    assert_eq!(driven.asks().heir.unwrap().token, token(6), "it can be asked for again");
}

#[test]
fn a_frozen_office_stays_and_so_does_one_whose_record_cannot_be_written() {
    let mut driven = leaving(vec![fit(6)]);
    driven.reads_line();
    driven.answer(Err(Fault::Permanent));
    assert_eq!(driven.no_heir(), [Refusal::Unable]);
    let mut frozen = FirstInLine::enlisting(None, false, vec![fit(6)]);
    frozen.office = Office::default().with_version(Version(1)).with_frozen(Frozen::new(Nonce(3), None, "firmware"));
    frozen.stands();
    frozen.command(Command::HandOver(Some(WITHIN)));
    assert_eq!(frozen.no_heir(), [Refusal::Frozen]);
    assert!(driven.is_elected() && frozen.is_elected());
}

#[test]
fn an_operators_transfer_that_is_under_way_is_as_good() {
    let mut driven = FirstInLine::enlisting(None, false, vec![fit(6), fit(7)]);
    driven.stands();
    let ordered = Handover::new(token(5), Heir::of(&fit(6)).unwrap(), Nonce(77), TTL);
    driven.office = Office::default().with_version(Version(3)).with_handover(ordered);
    driven.wakes();
    driven.command(Command::HandOver(Some(WITHIN)));
    driven.behind[0].ready = Some(Nonce(77));
    driven.reads_line();
    assert_eq!((driven.stops_for(), driven.no_heir()), (Some(LossReason::Transferred), vec![]));
}

#[test]
fn a_notice_that_may_not_be_taken_back_is_not_taken_back_again_and_again() {
    let mut driven = leaving(vec![fit(6)]);
    driven.asks();
    driven.command(Command::HandOver(None));
    let mut tries = 0;
    while let Some((_, op)) = driven.call.clone() {
        match op {
            Op::Line(..) => driven.reads_line(),
            Op::SetOffice(..) => {
                tries += 1;
                assert_eq!(tries, 1, "no time has passed");
                driven.answer(Err(Fault::Permanent));
            }
            _ => driven.stands(),
        }
    }
    assert_eq!(tries, 1);
}

#[test]
fn one_that_is_not_in_office_has_nothing_to_hand_over() {
    let mut driven = FirstInLine::enlisting(None, false, vec![]);
    driven.command(Command::HandOver(Some(WITHIN)));
    assert_eq!(driven.no_heir(), [Refusal::Leaving]);
}
