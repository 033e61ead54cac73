//! Orders to the bench, driven by hand: the candidate is called `a`.

use std::time::Duration;

use incumbent_core::*;

use crate::driven::{CANDIDACY, Driven, TTL, candidate, other, token};
use crate::first_in_line::{FirstInLine, with_merit};

const SECOND: Duration = Duration::from_secs(1);

/// The record with an order for this name.
fn benched(name: &str, id: u64, lasts: Option<Duration>, vacates: bool) -> Office {
    let order = BenchOrder::new(name, Nonce(id), lasts, Order::new("ada@ops1", 7, "new disk")).vacating(vacates);
    Office::default().with_version(Version(id)).with_benched(Benched::default().with(order))
}

/// A leader with these behind it that reads of an order.
fn leads_benched(behind: Vec<Entry>, order: Office) -> FirstInLine {
    let mut driven = FirstInLine::enlisting(None, false, behind);
    driven.stands();
    assert!(driven.is_elected(), "{:?}", driven.events());
    driven.reads(order);
    driven
}

fn out() -> [Event; 2] {
    [Event::Ordered(Act::Bench, Order::new("ada@ops1", 7, "new disk")), Event::Out(LossReason::Benched)]
}

/// Answers looks with what there is, until something else is asked for.
fn until_it_asks(driven: &mut FirstInLine, longest: Duration) -> Op {
    let began = driven.now;
    loop {
        assert!(driven.now.since(began) <= longest, "nothing is asked for");
        match driven.call.clone() {
            Some((_, Op::Standing(..))) => driven.stands(),
            Some((_, op)) => return op,
            None => driven.pass(SECOND / 4),
        }
    }
}

#[test]
fn a_follower_leaves_the_line_and_stays_out_until_it_is_taken_back() {
    let mut driven = Driven::standing(candidate());
    let held = driven.enlisted(5);
    driven.stands(Place::behind(Some(held.clone()), other(4), None), Office::default());
    driven.wake();
    driven.stands(Place::behind(Some(held.clone()), other(4), None), benched("a", 1, None, false));
    assert!(matches!(&driven.call, Some((_, Op::Withdraw(gone, None))) if *gone == held), "{:?}", driven.call);
    driven.answer(Ok(Answer::Cas(Cas::Done)));
    assert_eq!(driven.events()[driven.events().len() - 2..], out());
    assert!(driven.call.is_none(), "{:?}", driven.call);
    driven.wake();
    let line = |office| Answer::Line(Box::new(Line::new(vec![other(4)], false, office, Cursor(9))));
    driven.answer(Ok(line(benched("b", 2, None, false))));
    assert!(matches!(driven.call, Some((_, Op::Enlist(..)))), "another is benched: {:?}", driven.call);
}

#[test]
fn one_that_is_benched_and_comes_behind_another_is_not_told_that_it_waits() {
    let mut driven = Driven::standing(candidate());
    let held = driven.enlisted(5);
    driven.stands(Place::behind(Some(held), other(4), None), benched("a", 1, None, false));
    driven.answer(Ok(Answer::Cas(Cas::Done)));
    let [Event::FirstContact(None), Event::Released, told @ ..] = &driven.events()[..] else {
        panic!("{:?}", driven.events())
    };
    assert_eq!(told, out());
}

#[test]
fn one_that_comes_first_and_is_benched_makes_room() {
    for office in [benched("a", 1, None, false), benched("a", 1, None, true)] {
        let mut driven = Driven::standing(candidate());
        let held = driven.enlisted(5);
        driven.stands(Place::Leading(held.clone()), office);
        assert!(matches!(&driven.call, Some((_, Op::Withdraw(gone, None))) if *gone == held), "{:?}", driven.call);
        assert!(!driven.is_elected());
    }
}

#[test]
fn a_leader_hands_over_to_one_that_is_fit_before_it_leaves() {
    let behind = vec![with_merit(7, Merit::new(true, 0)), with_merit(8, Merit::new(false, 0))];
    let mut driven = leads_benched(behind, benched("a", 1, None, false));
    assert_eq!(driven.events().last(), Some(&out()[0]), "its log is told");
    driven.reads_line();
    let handover = driven.writes().handover.unwrap();
    assert_eq!((handover.heir.unwrap().token, handover.for_bench, handover.for_health), (token(8), true, false));
    assert_eq!(driven.is_told_to_stop(), None);
    driven.behind = vec![with_merit(8, Merit::new(false, 0))];
    driven.behind[0].ready = Some(handover.nonce);
    driven.reads_line();
    assert_eq!(driven.is_told_to_stop(), Some(LossReason::Benched));
    driven.command(Command::Release);
    let Some((_, Op::Withdraw(_, Some(heir)))) = &driven.call else { panic!("{:?}", driven.call) };
    assert_eq!(heir.as_str(), "8");
    driven.answer(Ok(Answer::Cas(Cas::Done)));
    assert_eq!(driven.events()[driven.events().len() - 2..], out());
    assert!(driven.call.is_none(), "it does not come back: {:?}", driven.call);
}

#[test]
fn a_leader_that_nobody_can_follow_leads_on_and_goes_on_looking() {
    let mut driven = leads_benched(vec![with_merit(7, Merit::new(true, 0))], benched("a", 1, None, false));
    driven.reads_line();
    assert_eq!(driven.events().last(), Some(&Event::StaysBenched(Stay::NobodyFit)));
    driven.behind = vec![with_merit(7, Merit::default())];
    assert!(matches!(until_it_asks(&mut driven, TTL + SECOND), Op::Line(..)));
    driven.reads_line();
    assert!(driven.writes().handover.unwrap().for_bench);
    assert_eq!(driven.is_told_to_stop(), None);
}

#[test]
fn one_that_is_to_leave_in_any_case_leaves_when_nobody_is_fit_or_after_a_ttl() {
    let mut driven = leads_benched(vec![], benched("a", 1, None, true));
    assert_eq!(driven.is_told_to_stop(), None, "it looks first");
    driven.reads_line();
    assert_eq!(driven.is_told_to_stop(), Some(LossReason::Benched));

    let mut driven = leads_benched(vec![with_merit(7, Merit::default())], benched("a", 1, None, true));
    let began = driven.now;
    // Its heir never says that it is ready.
    while driven.is_told_to_stop().is_none() {
        assert!(driven.now.since(began) <= TTL, "for how long does it wait?");
        match &driven.call {
            Some((_, Op::SetOffice(..))) => drop(driven.writes()),
            Some((_, Op::Line(..))) => driven.reads_line(),
            Some(_) => driven.stands(),
            None => driven.pass(SECOND / 4),
        }
    }
    assert_eq!(driven.now.since(began), TTL);
    assert_eq!(driven.is_told_to_stop(), Some(LossReason::Benched));
}

#[test]
fn in_a_frozen_election_a_benched_leader_stays_and_hands_over_when_it_is_no_longer_frozen() {
    let order = benched("a", 1, None, true);
    let frozen = order.clone().with_frozen(Frozen::new(Nonce(9), None, "maintenance"));
    let mut driven = leads_benched(vec![with_merit(7, Merit::default())], frozen);
    assert_eq!(driven.events().last(), Some(&Event::StaysBenched(Stay::Frozen)));
    for _ in 0..TTL.as_secs() * 2 {
        driven.pass(SECOND);
        while driven.call.is_some() {
            driven.stands();
        }
    }
    assert_eq!(driven.is_told_to_stop(), None);
    driven.reads(order);
    driven.reads_line();
    assert!(driven.writes().handover.unwrap().for_bench, "it has not given up before it began");
}

#[test]
fn one_that_is_benched_no_longer_refuses_its_own_handover() {
    let mut driven = leads_benched(vec![with_merit(7, Merit::default())], benched("a", 1, None, false));
    driven.reads_line();
    let asked = driven.writes();
    driven.reads_line();
    driven.reads(asked.with_benched(Benched::default()));
    let Op::SetOffice(_, _, to) = until_it_asks(&mut driven, SECOND) else { panic!("{:?}", driven.call) };
    assert_eq!(to.handover.unwrap().refused, Some(Refusal::Unbenched));
}

#[test]
fn a_bench_moves_an_office_that_health_moves_no_more_and_is_no_change_for_health() {
    let held_back = benched("a", 1, None, false).with_held_back(HeldBack::new(token(3)));
    let mut driven = leads_benched(vec![with_merit(7, Merit::default())], held_back);
    driven.command(Command::Unwell(true));
    let began = driven.now;
    while !matches!(driven.call, Some((_, Op::Line(..)))) {
        assert!(driven.now.since(began) <= TTL, "it looks for nobody");
        match &driven.call {
            Some((_, Op::Publish(..))) => driven.answer(Ok(Answer::Published(Some(Version(9))))),
            Some(_) => driven.stands(),
            None => driven.pass(SECOND / 4),
        }
    }
    driven.reads_line();
    assert!(driven.writes().handover.unwrap().for_bench);
}

#[test]
fn the_leader_takes_out_every_order_that_is_over_and_no_other() {
    let order = |name: &str, id, lasts| BenchOrder::new(name, Nonce(id), lasts, "");
    let (over, later, good) = (order("b", 2, Some(SECOND * 5)), order("c", 3, Some(SECOND * 50)), order("d", 4, None));
    let all = [over, later.clone(), good.clone()].into_iter().fold(Benched::default(), |all, order| all.with(order));
    let mut driven = leads_benched(vec![], Office::default().with_benched(all.clone()));
    let began = driven.now;
    // It is read again meanwhile, and counts on.
    driven.pass(SECOND * 3);
    driven.reads(Office::default().with_benched(all.clone()));
    let Op::SetOffice(_, _, to) = until_it_asks(&mut driven, SECOND * 6) else { panic!("{:?}", driven.call) };
    assert_eq!(driven.now.since(began), SECOND * 5);
    assert_eq!(to.benched, all.retain(|order| *order == later || *order == good));
    // The store refuses: it leads on, says so once, and tries again.
    driven.answer(Err(Fault::Permanent));
    assert!(driven.call.is_none(), "{:?}", driven.call);
    assert!(matches!(until_it_asks(&mut driven, TTL * 4), Op::SetOffice(..)));
    driven.answer(Err(Fault::Permanent));
    let told = driven.events().iter().filter(|event| matches!(event, Event::OrderStays(Act::Bench, _))).count();
    assert_eq!((told, driven.is_told_to_stop()), (1, None));
}

#[test]
fn the_benched_one_takes_out_its_own_order_and_comes_back() {
    let order = |name: &str, id| BenchOrder::new(name, Nonce(id), Some(SECOND * 5), "");
    let both = Office::default().with_benched(Benched::default().with(order("a", 1)).with(order("b", 2)));
    let mut driven = Driven::new(Settings::for_ttl(TTL));
    driven.renews = true;
    driven.handle(Input::Stand(CANDIDACY, candidate()));
    driven.open();
    let held = driven.enlisted(5);
    driven.stands(Place::Leading(held), both.clone());
    driven.answer(Ok(Answer::Cas(Cas::Done)));
    let began = driven.now;
    let line = |office: &Office| Ok(Answer::Line(Box::new(Line::new(vec![], false, office.clone(), Cursor(9)))));
    let takes_out = |driven: &mut Driven| loop {
        assert!(driven.now.since(began) < TTL * 8, "it stays out");
        match driven.call.clone() {
            Some((_, Op::Line(..))) => driven.answer(line(&both)),
            Some((_, Op::SetOffice(_, _, to))) => return to,
            Some(other) => panic!("{other:?}"),
            None => driven.pass(SECOND / 4),
        }
    };
    let to = takes_out(&mut driven);
    assert_eq!(driven.now.since(began), SECOND * 5);
    assert_eq!(to.benched.iter().map(|order| &*order.name).collect::<Vec<_>>(), ["b"], "the other is the leader's");
    // Neither a store that refuses nor one that is away ends the candidacy or makes it spin.
    for fault in [Fault::Permanent, Fault::Unavailable] {
        driven.answer(Err(fault));
        let next = driven.participant.poll_timeout().unwrap();
        assert!(driven.call.is_none() && next > driven.now, "{:?}", driven.call);
        takes_out(&mut driven);
    }
    driven.answer(Ok(Answer::Cas(Cas::Done)));
    assert!(matches!(driven.call, Some((_, Op::Line(..)))), "{:?}", driven.call);
    driven.answer(line(&both.clone().with_benched(both.benched.retain(|order| &*order.name == "b"))));
    assert!(matches!(driven.call, Some((_, Op::Enlist(..)))), "{:?}", driven.call);
    assert!(!driven.events().contains(&Event::Failed), "{:?}", driven.events());
}

#[test]
fn an_unfit_leader_that_is_benched_leaves_at_once_as_any_other() {
    let mut driven = leads_benched(vec![], benched("a", 1, None, false));
    driven.reads_line();
    driven.command(Command::Healthy(false));
    assert_eq!(driven.is_told_to_stop(), Some(LossReason::Unhealthy));
}
