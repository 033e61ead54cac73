//! The heir of a handover, driven by hand: what it does to get ready, and what it says of that.

use std::time::Duration;

use incumbent_core::*;

use crate::driven::{Driven, TTL, candidate, other, token};
use crate::first_in_line::{FirstInLine, with_merit};

/// Next in line behind the leader with token 1, and asked to take over.
struct NextInLine {
    driven: Driven,
    held: Held,
    office: Office,
}

impl NextInLine {
    fn new(prepares: bool) -> NextInLine {
        let mut driven = Driven::standing(Candidate { prepares, ..candidate() });
        let held = driven.enlisted(5);
        driven.stands(Place::behind(Some(held.clone()), other(1), None), Office::default());
        NextInLine { driven, held, office: Office::default() }
    }

    /// It reads a record that is another now.
    fn reads(&mut self, change: impl FnOnce(Office) -> Office) {
        self.reads_from(1, change);
    }

    /// The same, behind this one.
    fn reads_from(&mut self, ahead: u64, change: impl FnOnce(Office) -> Office) {
        let version = Version(self.office.version.0 + 1);
        self.office = change(self.office.clone()).with_version(version);
        self.driven.wake();
        let place = Place::behind(Some(self.held.clone()), other(ahead), None);
        self.driven.stands(place, self.office.clone());
    }

    /// The leader with token 1 is asked to hand over to it.
    fn is_asked(&mut self, nonce: u64) {
        let heir = Heir::new(self.held.incarnation, self.held.entry.clone(), self.held.token);
        let handover = Handover::new(token(1), heir, Nonce(nonce), TTL);
        self.reads(|office| office.with_handover(handover));
    }

    fn is_refused(&mut self, why: Refusal) {
        self.reads(|office| {
            let mut handover = office.handover.clone().unwrap();
            handover.refused = Some(why);
            office.with_handover(handover)
        });
    }

    /// What it publishes, which is done: that it is ready, and what it says instead.
    fn says(&mut self) -> (Option<Nonce>, Option<Preparation>) {
        let Some((_, Op::Publish(_, _, said))) = self.driven.call.clone() else { panic!("{:?}", self.driven.call) };
        self.driven.answer(Ok(Answer::Published(Some(Version(9)))));
        (said.ready, said.merit.preparation)
    }

    fn prepared(&mut self, nonce: u64, answer: Result<(), Decline>) {
        self.driven.command(Command::Prepared(Nonce(nonce), answer));
    }

    /// What its program was told of getting ready.
    fn told(&self) -> Vec<Event> {
        let of_heirs = |event: &Event| matches!(event, Event::Prepare { .. } | Event::CalledOff(_));
        self.driven.events().into_iter().filter(of_heirs).collect()
    }
}

fn prepare(nonce: u64) -> Event {
    Event::Prepare { nonce: Nonce(nonce), within: TTL }
}

const GETTING_READY: fn(u64) -> (Option<Nonce>, Option<Preparation>) =
    |nonce| (None, Some(Preparation::Preparing(Nonce(nonce))));

#[test]
fn it_gets_ready_once_for_each_request_and_says_so_before_and_after() {
    let mut heir = NextInLine::new(true);
    heir.is_asked(42);
    assert_eq!(heir.told(), [prepare(42)]);
    assert_eq!(heir.says(), GETTING_READY(42));
    heir.reads(|office| office);
    assert!(heir.driven.call.is_none(), "it has said so, and waits: {:?}", heir.driven.call);
    heir.prepared(42, Ok(()));
    assert_eq!(heir.says(), (Some(Nonce(42)), None));
    heir.reads(|office| office);
    assert_eq!((heir.told(), &heir.driven.call), (vec![prepare(42)], &None), "and it is not asked again");
}

#[test]
fn one_that_has_nothing_to_do_is_ready_at_once_and_so_is_one_that_is_asked_at_a_vacancy() {
    let mut heir = NextInLine::new(false);
    heir.is_asked(42);
    assert_eq!((heir.says(), heir.told()), ((Some(Nonce(42)), None), vec![]));

    let mut heir = NextInLine::new(true);
    let own = Heir::new(heir.held.incarnation, heir.held.entry.clone(), heir.held.token);
    heir.reads(|office| office.with_handover(Handover::new(token(1), own, Nonce(42), TTL).at_vacancy()));
    assert_eq!((heir.says(), heir.told()), ((Some(Nonce(42)), None), vec![]));
}

#[test]
fn it_does_nothing_before_it_is_next() {
    let mut heir = NextInLine::new(true);
    let own = Heir::new(heir.held.incarnation, heir.held.entry.clone(), heir.held.token);
    heir.reads_from(3, |office| office.with_handover(Handover::new(token(1), own, Nonce(42), TTL)));
    assert_eq!((heir.told(), &heir.driven.call), (vec![], &None));
    heir.reads(|office| office);
    assert_eq!(heir.told(), [prepare(42)]);
}

#[test]
fn one_that_could_not_get_ready_declines() {
    for why in Decline::ALL {
        let mut heir = NextInLine::new(true);
        heir.is_asked(42);
        heir.says();
        heir.prepared(42, Err(*why));
        assert_eq!(heir.says(), (None, Some(Preparation::Declined(Nonce(42), *why))));
        heir.prepared(42, Ok(()));
        assert!(heir.driven.call.is_none(), "its first word counts: {:?}", heir.driven.call);
    }
}

#[test]
fn a_late_answer_to_an_earlier_request_does_not_count() {
    let mut heir = NextInLine::new(true);
    heir.is_asked(42);
    heir.says();
    heir.is_asked(43);
    assert_eq!(heir.told(), [prepare(42), Event::CalledOff(Nonce(42)), prepare(43)]);
    assert_eq!(heir.says(), GETTING_READY(43));
    heir.prepared(42, Ok(()));
    assert!(heir.driven.call.is_none(), "{:?}", heir.driven.call);
    heir.prepared(43, Ok(()));
    assert_eq!(heir.says(), (Some(Nonce(43)), None));
}

#[test]
fn it_is_called_off_when_it_is_refused_or_taken_back_or_the_candidate_leaves() {
    let ways: [fn(&mut NextInLine); 3] = [
        |heir| heir.is_refused(Refusal::TimedOut),
        |heir| heir.reads(|office| office.with_handover(None)),
        |heir| heir.driven.command(Command::Leave),
    ];
    for has_answered in [false, true] {
        for way in ways {
            let mut heir = NextInLine::new(true);
            heir.is_asked(42);
            heir.says();
            if has_answered {
                heir.prepared(42, Ok(()));
                heir.says();
            }
            way(&mut heir);
            assert_eq!(heir.told(), [prepare(42), Event::CalledOff(Nonce(42))]);
        }
    }
}

#[test]
fn when_the_leader_dies_the_heir_takes_office_without_waiting_and_is_not_called_off() {
    for has_answered in [false, true] {
        let mut heir = NextInLine::new(true);
        heir.driven.renews = true;
        heir.is_asked(42);
        heir.says();
        if has_answered {
            heir.prepared(42, Ok(()));
            heir.says();
        }
        heir.driven.wake();
        // An operator has taken the request out already.
        let office = Office::default().with_version(Version(99));
        heir.driven.stands(Place::Leading(heir.held.clone()), office);
        assert!(heir.driven.is_elected(), "{:?}", heir.driven.events());
        heir.prepared(42, Ok(()));
        heir.driven.pass(Duration::from_secs(1));
        assert_eq!(heir.told(), [prepare(42)]);
    }
}

#[test]
fn a_leader_refuses_at_once_when_its_heir_declines_and_not_what_it_declined_before() {
    for (declined, is_refused) in [(Nonce(41), false), (Nonce(42), true)] {
        let mut driven = FirstInLine::enlisting(None, false, vec![]);
        driven.stands();
        let why = Some(Preparation::Declined(declined, Decline::Failed));
        driven.behind = vec![with_merit(7, Merit::default().preparation(why))];
        let heir = Heir::of(&driven.behind[0]).unwrap();
        driven.office =
            Office::default().with_version(Version(3)).with_handover(Handover::new(token(5), heir, Nonce(42), TTL));
        driven.wakes();
        driven.reads_line();
        if is_refused {
            let refused = driven.writes().handover.unwrap().refused;
            assert_eq!(refused, Some(Refusal::HeirDeclined(Decline::Failed)));
        }
        assert!(driven.call.is_none(), "{:?}", driven.call);
        assert!(!driven.events().iter().any(|event| matches!(event, Event::Stopping { .. })), "it leads on");
    }
}

#[test]
fn a_leader_that_is_unwell_waits_a_minute_for_an_heir_that_is_getting_ready() {
    let minute = Duration::from_secs(60);
    for prepares in [false, true] {
        let mut driven = FirstInLine::enlisting(None, false, vec![other(7)]);
        driven.stands();
        driven.unwell(true);
        driven.answer(Ok(Answer::Published(Some(Version(9)))));
        driven.reads_line();
        let nonce = driven.writes().handover.unwrap().nonce;
        let asked_at = driven.now;
        let says = prepares.then_some(Preparation::Preparing(nonce));
        driven.behind = vec![with_merit(7, Merit::default().preparation(says))];
        let refused = loop {
            match &driven.call {
                Some((_, Op::SetOffice(..))) => break driven.writes().handover.unwrap().refused,
                Some((_, Op::Line(..))) => driven.reads_line(),
                Some(_) => driven.stands(),
                None => driven.pass(Duration::from_millis(500)),
            }
        };
        let waited = driven.now.since(asked_at);
        assert_eq!((refused, waited >= minute), (Some(Refusal::TimedOut), prepares), "{waited:?}");
        assert!(waited <= minute + Duration::from_secs(1), "{waited:?}");
    }
    // And so long it may be at it.
    let mut heir = NextInLine::new(true);
    let own = Heir::new(heir.held.incarnation, heir.held.entry.clone(), heir.held.token);
    heir.reads(|office| office.with_handover(Handover::new(token(1), own, Nonce(42), TTL / 10).for_health()));
    assert_eq!(heir.told(), [Event::Prepare { nonce: Nonce(42), within: minute }]);
}

#[test]
fn a_leader_that_leaves_waits_longer_for_an_heir_that_is_getting_ready() {
    let within = TTL;
    for prepares in [false, true] {
        let mut driven = FirstInLine::enlisting(None, false, vec![other(7)]);
        driven.stands();
        driven.command(Command::HandOver(Some(within)));
        driven.reads_line();
        let nonce = driven.writes().handover.unwrap().nonce;
        let asked_at = driven.now;
        let says = prepares.then_some(Preparation::Preparing(nonce));
        driven.behind = vec![with_merit(7, Merit::default().preparation(says))];
        let refused = loop {
            match &driven.call {
                Some((_, Op::SetOffice(..))) => break driven.writes().handover.unwrap().refused,
                Some((_, Op::Line(..))) => driven.reads_line(),
                Some(_) => driven.stands(),
                None => driven.pass(Duration::from_millis(500)),
            }
        };
        let waited = driven.now.since(asked_at);
        assert_eq!((refused, waited >= within), (Some(Refusal::TimedOut), prepares), "{waited:?}");
        assert!(waited <= within + Duration::from_secs(1), "{waited:?}");
    }
}

/// As one that hands over for its health: nobody has said how long it may take.
#[test]
fn what_is_got_ready_for_a_benched_leader_may_take_a_minute() {
    let mut heir = NextInLine::new(true);
    let own = Heir::new(heir.held.incarnation, heir.held.entry.clone(), heir.held.token);
    let handover = Handover::new(token(1), own, Nonce(42), Duration::from_secs(2)).for_bench();
    heir.reads(|office| office.with_handover(handover));
    assert_eq!(heir.told(), [Event::Prepare { nonce: Nonce(42), within: Duration::from_secs(60) }]);
}

#[test]
fn a_benched_leader_waits_for_an_heir_that_is_getting_ready() {
    let takes = Duration::from_secs(20);
    let mut driven = FirstInLine::enlisting(None, false, vec![other(7)]);
    driven.stands();
    let order = BenchOrder::new("a", Nonce(1), None, Order::new("ada@ops1", 7, "new disk"));
    driven.reads(Office::default().with_benched(Benched::default().with(order)));
    let began = driven.now;
    let mut asked = None;
    while driven.is_told_to_stop().is_none() {
        assert!(driven.now.since(began) < takes * 2, "it asks again and again");
        match driven.call.clone() {
            Some((_, Op::SetOffice(..))) => {
                let handover = driven.writes().handover.unwrap();
                assert_eq!(handover.refused, None);
                assert_eq!(asked.replace(handover.nonce), None, "it asks once");
                let says = Some(Preparation::Preparing(handover.nonce));
                driven.behind = vec![with_merit(7, Merit::default().preparation(says))];
            }
            Some((_, Op::Line(..))) => driven.reads_line(),
            Some(_) => driven.stands(),
            None => driven.pass(Duration::from_millis(500)),
        }
        if let Some(nonce) = asked
            && driven.now.since(began) >= takes
        {
            driven.behind[0].ready = Some(nonce);
            driven.behind[0].merit = Merit::default();
        }
    }
}
