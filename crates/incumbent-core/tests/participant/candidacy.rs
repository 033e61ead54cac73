//! One process, driven by hand: what it does on each thing that can happen, in the order in which
//! it does it.

use std::time::Duration;

use incumbent_core::*;

use crate::driven::{CANDIDACY, Driven, TTL, candidate, election, other, token};

fn liveness() -> Liveness {
    Liveness::new(TTL)
}

/// What a session is granted where answers prove this.
fn proving(proof: Proof) -> Liveness {
    let mut liveness = liveness();
    liveness.proof = proof;
    liveness
}

/// The usual ones, changed.
fn settings(ttl: Duration, change: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = Settings::for_ttl(ttl);
    change(&mut settings);
    settings
}

#[test]
fn a_candidate_that_is_unfit_to_begin_with_gets_in_line_once_it_is_fit() {
    let mut driven = Driven::standing(Candidate { unfit: true, ..candidate() });
    assert_eq!(driven.events(), [Event::Out(LossReason::Unhealthy)]);
    assert_eq!(driven.calls(), 0, "it is not in line for a moment");
    driven.handle(Input::Command(CANDIDACY, Command::Healthy(true)));
    let held = driven.enlisted(5);
    driven.stands(Place::Leading(held), Office::default());
    assert!(driven.is_elected());
}

/// The same, read at another version.
fn at_version(version: u64, mut entry: Entry) -> Entry {
    entry.version = Version(version);
    entry
}

/// Our own entry, as others see it.
fn seen(held: &Held) -> Entry {
    let mut entry = other(held.token.get());
    entry.incarnation = Some(held.incarnation);
    entry
}

/// Somebody else's entry, as its owner holds it.
fn held_by_other(number: u64) -> Held {
    let incarnation = Incarnation::from_bits(u128::from(number));
    Held::new(election(), EntryId::new(number.to_string()), token(number), incarnation)
}

fn standing(place: Place, office: Office) -> Result<Answer, Fault> {
    Ok(Answer::Standing(Box::new(Standing::new(place, office, Cursor(7)))))
}

fn behind(held: &Held, ahead: Entry) -> Place {
    Place::behind(Some(held.clone()), ahead, None)
}

fn paused() -> Office {
    Office::default().with_version(Version(3)).with_paused(Paused::new("why"))
}

impl Driven {
    /// A driven whose candidate leads with token 5.
    fn leading(candidate: Candidate) -> (Driven, Held) {
        let mut driven = Driven::standing(candidate);
        let held = driven.enlisted(5);
        driven.stands(Place::Leading(held.clone()), Office::default());
        assert!(driven.is_elected());
        (driven, held)
    }

    /// The newest call, which may have been answered, and whose it is.
    fn newest_call(&self) -> (CandidacyId, CallId, Op) {
        let call = self.outputs.iter().rev().find_map(|output| match output {
            Output::Call(candidacy, id, _, op) => Some((*candidacy, *id, op.clone())),
            _ => None,
        });
        call.expect("a call is out")
    }

    fn calls(&self) -> usize {
        self.recent().iter().filter(|output| matches!(output, Output::Call(..))).count()
    }
}

fn proof() -> Renewal {
    Renewal::alive(TTL)
}

#[test]
fn the_deadline_counts_from_when_the_session_was_asked_for() {
    let mut driven = Driven::new(settings(TTL, |settings| (settings.drift_ppm, settings.margin) = (0, Duration::ZERO)));
    let asked = driven.now;
    driven.handle(Input::Stand(CANDIDACY, candidate()));
    driven.pass(Duration::from_secs(4));
    driven.open();
    let held = driven.enlisted(5);
    driven.stands(Place::Leading(held.clone()), Office::default());
    assert!(driven.events().contains(&Event::Elected {
        term: TermNo(1),
        title: Title::Entry(held),
        last_term: LastTerm::Unknown,
        deadline: asked + TTL
    }));
}

#[test]
fn where_a_shorter_ttl_is_granted_work_is_asked_to_stop_a_share_of_that_before_the_deadline() {
    let (asked, granted) = (Duration::from_secs(60), Duration::from_secs(40));
    let mut driven =
        Driven::new(settings(asked, |settings| (settings.drift_ppm, settings.margin) = (0, Duration::ZERO)));
    driven.handle(Input::Stand(CANDIDACY, candidate()));
    driven.open_with(Liveness::new(granted));
    let held = driven.enlisted(5);
    driven.stands(Place::Leading(held), Office::default());
    let deadline = driven.now + granted;
    let asked_to_stop = |driven: &Driven| {
        driven.events().contains(&Event::Stopping { why: LossReason::LocalDeadline, hard_stop: deadline })
    };
    driven.pass(granted - granted / 5 - Duration::from_nanos(1));
    assert!(!asked_to_stop(&driven));
    driven.pass(Duration::from_nanos(1));
    assert!(asked_to_stop(&driven));
}

#[test]
fn where_a_shorter_ttl_is_granted_calls_and_fences_are_waited_for_no_longer_than_that_allows() {
    let granted = Duration::from_secs(10);
    let mut driven = Driven::new(settings(6 * granted, |settings| settings.margin = Duration::ZERO));
    driven.handle(Input::Stand(CANDIDACY, Candidate { fenced: true, ..candidate() }));
    driven.open_with(Liveness::new(granted));
    let held = driven.enlisted(5);
    driven.stands(Place::Leading(held.clone()), Office::default());
    assert!(matches!(driven.newest_call().2, Op::RaiseFences(_)));
    let was_given_up = |driven: &Driven| driven.outputs.contains(&Output::GiveUpCall(CANDIDACY));
    for third in 1..=3 {
        assert!(third > 1 || !was_given_up(&driven), "the call is given up when the next renewal is due");
        driven.pass(granted / 3 + Duration::from_nanos(1));
        assert!(was_given_up(&driven));
        driven.renewed(Ok(Renewal::alive(granted)));
        if let Op::Standing(..) = driven.newest_call().2 {
            driven.stands(Place::Leading(held.clone()), Office::default());
        }
    }
    assert_eq!(driven.newest_call().2, Op::Withdraw(held, None), "others get their turn after a TTL");
}

#[test]
fn a_hint_is_verified_and_may_be_wrong() {
    let mut driven = Driven::standing(candidate());
    let held = driven.enlisted(5);
    driven.stands(behind(&held, other(4)), Office::default());
    let mut watched = Watched::new(held.clone(), Version::NONE);
    watched.ahead = Some(EntryId::new("4"));
    assert_eq!(driven.watch().1, WatchFor::Entry(Epoch(0), watched.clone()));
    driven.clear();
    driven.wake();
    assert_eq!(driven.newest_call().2, Op::Standing(held.clone(), Some(EntryId::new("4"))));
    // The predecessor is gone, but an older one is there.
    driven.stands(behind(&held, other(2)), Office::default());
    assert!(!driven.is_elected());
    watched.ahead = Some(EntryId::new("2"));
    assert_eq!(driven.watch().1, WatchFor::Entry(Epoch(0), watched));
}

#[test]
fn one_in_line_is_told_who_is_ahead_when_that_changes() {
    let mut driven = Driven::standing(candidate());
    let held = driven.enlisted(5);
    for (ahead, version, told) in [(4, 1, true), (4, 2, false), (2, 2, true)] {
        driven.clear();
        let ahead = at_version(version, other(ahead));
        driven.stands(behind(&held, ahead.clone()), Office::default());
        assert_eq!(driven.events().contains(&Event::Following(Box::new(ahead))), told, "{:?}", driven.events());
        driven.wake();
    }
}

#[test]
fn a_wake_up_from_any_but_the_newest_watch_is_ignored() {
    let mut driven = Driven::standing(candidate());
    let held = driven.enlisted(5);
    driven.stands(behind(&held, other(4)), Office::default());
    let (first, _) = driven.watch();
    driven.wake();
    driven.stands(behind(&held, other(2)), Office::default());
    let calls = driven.calls();
    driven.handle(Input::Wake(CANDIDACY, first, Hint::Changed));
    assert_eq!(driven.calls(), calls, "{:?}", driven.newest_call());
    driven.wake();
    assert_eq!(driven.calls(), calls + 1);
}

/// In a store without a line, where trying again makes sense in this time.
fn waiting_without_a_line(again: Duration) -> Driven {
    let mut driven = Driven::standing(candidate());
    driven.stands(Place::behind(None, other(4), Some(again)), Office::default());
    driven.clear();
    driven
}

#[test]
fn where_there_is_no_line_those_who_wait_watch_who_leads_and_try_again_when_that_makes_sense() {
    let again = Duration::from_secs(3);
    let mut driven = waiting_without_a_line(again);
    let mut seen = Seen::new(Version::NONE);
    seen.head = Head::Is(EntryId::new("4"));
    assert_eq!(driven.watch().1, WatchFor::Election(election(), seen));
    driven.pass(again - Duration::from_nanos(1));
    assert_eq!(driven.calls(), 0, "{:?}", driven.newest_call());
    driven.pass(Duration::from_nanos(1));
    assert!(matches!(driven.newest_call().2, Op::Enlist(..)));
    assert_eq!(driven.calls(), 1);
}

#[test]
fn where_there_is_no_line_one_that_waits_has_nothing_to_leave() {
    let mut driven = waiting_without_a_line(TTL);
    driven.handle(Input::Command(CANDIDACY, Command::Leave));
    assert_eq!((driven.events(), driven.calls()), (vec![Event::Done { certain: true }], 0));
}

#[test]
fn one_that_leaves_settles_its_enlistment_first() {
    let mut driven = Driven::standing(candidate());
    let held = driven.enlisted(5);
    driven.clear();
    driven.handle(Input::Command(CANDIDACY, Command::Leave));
    driven.answer(Err(Fault::OutcomeUnknown));
    driven.pass(Duration::from_secs(1));
    assert_eq!((driven.enlisted(5), driven.events()), (held.clone(), vec![]), "it may be in line");
    driven.stands(behind(&held, other(4)), Office::default());
    assert_eq!(driven.newest_call().2, Op::Withdraw(held, None));
    driven.answer(Ok(Answer::Cas(Cas::Done)));
    assert_eq!(driven.events().last(), Some(&Event::Done { certain: true }));
}

#[test]
fn an_enlistment_that_is_refused_for_good_is_not_repeated() {
    let mut driven = Driven::standing(candidate());
    driven.clear();
    driven.answer(Err(Fault::Permanent));
    assert_eq!((driven.events(), driven.calls()), (vec![Event::Failed, Event::Done { certain: true }], 0));
}

#[test]
fn an_enlistment_without_an_answer_is_repeated_as_the_same_incarnation() {
    for fault in [Fault::OutcomeUnknown, Fault::Unavailable] {
        let mut driven = Driven::standing(candidate());
        let first = driven.enlisted(5);
        driven.answer(Err(fault));
        driven.clear();
        driven.pass(Duration::from_secs(1));
        assert_eq!(driven.enlisted(5), first);
    }
}

#[test]
fn a_call_that_is_never_answered_is_given_up_and_repeated() {
    let mut driven = Driven::standing(candidate());
    let (candidacy, late, _) = driven.newest_call();
    let first = driven.enlisted(5);
    driven.clear();
    driven.pass(TTL / 3);
    assert_eq!(driven.recent().first(), Some(&Output::GiveUpCall(CANDIDACY)), "dropped before anything else is done");
    driven.pass(TTL / 3);
    let (_, again, _) = driven.newest_call();
    assert_ne!(late, again);
    assert_eq!(driven.enlisted(5), first);
    // The answer to the first one comes at last, and means nothing any more.
    driven.clear();
    driven.handle(Input::Answer(candidacy, late, standing(Place::Leading(first), Office::default())));
    assert!(driven.events().is_empty());
}

#[test]
fn an_opening_and_a_renewal_that_are_never_answered_are_given_up_before_the_next() {
    let mut driven = Driven::new(Settings::for_ttl(TTL));
    driven.handle(Input::Stand(CANDIDACY, candidate()));
    let late = Attempt(0);
    assert!(matches!(driven.recent(), [Output::OpenSession(attempt, _)] if *attempt == late), "{:?}", driven.recent());
    driven.clear();
    driven.pass(TTL / 3);
    assert_eq!(driven.recent(), [Output::GiveUpAttempt(late)]);
    driven.pass(TTL / 3);
    // Its answer comes at last, and opens nothing.
    driven.handle(Input::Opened(late, Ok(liveness())));
    assert_eq!(driven.participant.session(), None);
    driven.open();
    assert_eq!(driven.participant.session(), Some(Epoch(1)));
    driven.pass(TTL / 3);
    let (renewal, _) = driven.renewal().expect("one is due");
    driven.clear();
    driven.pass(TTL / 3);
    assert!(driven.recent().contains(&Output::GiveUpAttempt(renewal)), "{:?}", driven.recent());
}

#[test]
fn a_session_is_opened_only_where_somebody_stands_and_not_again_once_it_was_refused() {
    let mut driven = Driven::new(Settings::for_ttl(TTL));
    driven.pass(TTL);
    assert_eq!((driven.recent(), driven.participant.poll_timeout()), (&[][..], None));
    driven.handle(Input::Stand(CANDIDACY, candidate()));
    driven.handle(Input::Opened(Attempt(0), Err(Fault::Permanent)));
    assert_eq!(driven.events(), [Event::Failed, Event::Done { certain: true }]);
    driven.clear();
    driven.pass(TTL);
    assert_eq!((driven.recent(), driven.participant.poll_timeout()), (&[][..], None));
}

#[test]
fn renewals_that_fail_are_repeated_several_times_before_the_work_has_to_stop() {
    let (mut driven, _) = Driven::leading(candidate());
    let settings = Settings::for_ttl(TTL);
    let stop_at = *deadlines(&driven).last().unwrap() - settings.grace;
    let shortest = settings.renew_every / 2 / 64;
    let mut last = None;
    driven.clear();
    while driven.now < stop_at {
        driven.now = driven.participant.poll_timeout().unwrap();
        driven.handle(Input::Tick);
        if driven.recent().iter().any(|output| matches!(output, Output::Renew { .. })) {
            let rested = last.map_or(Duration::ZERO, |last| driven.now.since(last));
            let left = last.map_or(Duration::ZERO, |last| stop_at.since(last));
            assert!(rested <= shortest.max(left / 4), "rests {rested:?} with {left:?} left");
            last = Some(driven.now);
            driven.renewed(Err(Fault::Unavailable));
        }
        driven.clear();
    }
    assert!(last.is_some());
}

#[test]
fn a_call_about_an_entry_that_is_gone_is_given_up() {
    let (mut driven, held) = Driven::leading(candidate());
    driven.handle(Input::Command(CANDIDACY, Command::Proclaim(1, "new".into())));
    assert!(matches!(driven.newest_call().2, Op::Publish(..)));
    driven.pass(TTL / 3 - Duration::from_secs(1));
    driven.clear();
    driven.pass(Duration::from_secs(1) - Duration::from_nanos(1));
    driven.handle(Input::Command(CANDIDACY, Command::Release));
    let given_up = driven.recent().iter().position(|output| *output == Output::GiveUpCall(CANDIDACY));
    let withdrawn = driven
        .recent()
        .iter()
        .position(|output| matches!(output, Output::Call(_, _, _, Op::Withdraw(gone, _)) if *gone == held));
    assert!(given_up.is_some() && given_up < withdrawn, "{:?}", driven.recent());
}

#[test]
fn a_proclamation_is_settled_by_its_own_value_or_a_later_one() {
    let (mut driven, _) = Driven::leading(candidate());
    driven.handle(Input::Command(CANDIDACY, Command::Proclaim(1, "one".into())));
    driven.handle(Input::Command(CANDIDACY, Command::Proclaim(2, "two".into())));
    driven.handle(Input::Command(CANDIDACY, Command::Proclaim(3, "three".into())));
    driven.clear();
    driven.answer(Ok(Answer::Published(Some(Version(8)))));
    assert_eq!(driven.events(), [Event::Proclaimed(1, Cas::Done)], "others see the first value, not the later ones");
    assert!(matches!(driven.newest_call().2, Op::Publish(_, Version(8), said) if said.value == "three"));
    driven.clear();
    driven.answer(Ok(Answer::Published(Some(Version(9)))));
    assert_eq!(driven.events(), [Event::Proclaimed(3, Cas::Done)]);
}

#[test]
fn a_publication_that_is_refused_is_repeated_on_what_is_there_now() {
    let (mut driven, held) = Driven::leading(candidate());
    driven.handle(Input::Command(CANDIDACY, Command::Proclaim(1, "one".into())));
    driven.clear();
    // An earlier try, of which nobody knew the outcome, has got through: what was there is
    // replaced.
    driven.answer(Ok(Answer::Published(None)));
    assert_eq!(driven.newest_call().2, Op::Standing(held.clone(), None));
    let mut here = Standing::new(Place::Leading(held.clone()), Office::default(), Cursor(9));
    here.published = Version(9);
    driven.answer(Ok(Answer::Standing(Box::new(here))));
    assert_eq!(driven.newest_call().2, Op::Publish(held.clone(), Version(9), Publication::new("one")));
    assert!(driven.events().is_empty(), "it is not settled: {:?}", driven.events());
    driven.answer(Ok(Answer::Published(None)));
    // The entry is no longer ours: so is the term.
    driven.stands(Place::Gone, Office::default());
    assert_eq!(driven.events(), [Event::Unelected(LossReason::EntryDeleted)]);
}

#[test]
fn an_unreachable_store_is_not_hammered() {
    let mut driven = Driven::standing(candidate());
    for _ in 0..600 {
        if driven.call.is_some() {
            driven.answer(Err(Fault::Unavailable));
        }
        driven.pass(Duration::from_millis(100));
    }
    // A minute with pauses that grow up to 2.5 s.
    assert!((20..60).contains(&driven.calls()), "{} calls", driven.calls());
}

#[test]
fn nobody_is_in_office_before_the_fences_are_raised() {
    let mut driven = Driven::standing(Candidate { fenced: true, ..candidate() });
    let held = driven.enlisted(5);
    driven.stands(Place::Leading(held.clone()), Office::default());
    assert_eq!(driven.newest_call().2, Op::RaiseFences(token(5)));
    assert!(!driven.is_elected());
    driven.answer(Err(Fault::Unavailable));
    driven.pass(Duration::from_secs(1));
    assert_eq!(driven.newest_call().2, Op::Standing(held.clone(), None), "are we first at all?");
    driven.stands(Place::Leading(held.clone()), Office::default());
    assert_eq!(driven.newest_call().2, Op::RaiseFences(token(5)));
    driven.answer(Ok(Answer::Raised));
    assert!(driven.is_elected());
}

#[test]
fn while_fences_are_raised_nothing_is_watched() {
    let proof = Proof::Earlier { apart: Duration::from_secs(1), opening_proves: false };
    let mut driven = Driven::new(Settings::for_ttl(TTL));
    driven.handle(Input::Stand(CANDIDACY, Candidate { fenced: true, ..candidate() }));
    driven.open_with(proving(proof));
    let held = driven.enlisted(5);
    driven.stands(Place::Leading(held.clone()), Office::default());
    assert!(matches!(driven.watch().1, WatchFor::Entry(..)), "until its session is proven");
    driven.pass(Duration::from_secs(1));
    driven.renewed(Ok(Renewal::alive(TTL)));
    driven.clear();
    driven.stands(Place::Leading(held.clone()), Office::default());
    assert_eq!(driven.newest_call().2, Op::RaiseFences(held.token));
    assert!(driven.recent().contains(&Output::Unwatch(CANDIDACY)), "{:?}", driven.recent());
}

#[test]
fn only_one_in_office_can_proclaim() {
    let refused = |driven: &mut Driven| {
        driven.clear();
        driven.handle(Input::Command(CANDIDACY, Command::Proclaim(1, "new".into())));
        driven.events() == [Event::Proclaimed(1, Cas::Refused)]
    };
    let mut driven = Driven::standing(Candidate { fenced: true, ..candidate() });
    let held = driven.enlisted(5);
    driven.stands(Place::Leading(held), Office::default());
    assert!(refused(&mut driven), "its fences are not raised yet");
    driven.answer(Ok(Answer::Raised));
    assert!(!refused(&mut driven));
    let (mut driven, _) = Driven::leading(Candidate { hold_until_stopped: true, ..candidate() });
    driven.handle(Input::Command(CANDIDACY, Command::Healthy(false)));
    driven.pass(TTL / 5);
    assert_eq!(driven.events().last(), Some(&Event::Unelected(LossReason::Unhealthy)));
    assert!(refused(&mut driven), "its place is only kept until its work has stopped");
}

#[test]
fn fences_that_took_too_long_to_raise_make_nobody_a_leader() {
    let mut driven = Driven::standing(Candidate { fenced: true, ..candidate() });
    let held = driven.enlisted(5);
    driven.stands(Place::Leading(held), Office::default());
    let (candidacy, id, _) = driven.newest_call();
    driven.now = driven.now + TTL;
    driven.handle(Input::Answer(candidacy, id, Ok(Answer::Raised)));
    assert!(!driven.is_elected());
}

#[test]
fn fences_that_leave_no_time_to_stop_make_nobody_a_leader() {
    let mut driven = Driven::standing(Candidate { fenced: true, ..candidate() });
    let held = driven.enlisted(5);
    driven.now = driven.now + TTL / 3 - Duration::from_secs(1);
    driven.stands(Place::Leading(held.clone()), Office::default());
    assert_eq!(driven.newest_call().2, Op::RaiseFences(token(5)));
    // No renewal is answered meanwhile. The deadline is still to come, but it is nearer than the
    // grace.
    driven.now = driven.now + TTL / 3 - Duration::from_millis(1);
    driven.answer(Err(Fault::Unavailable));
    driven.pass(Duration::from_secs(1));
    driven.stands(Place::Leading(held), Office::default());
    assert_eq!(driven.newest_call().2, Op::RaiseFences(token(5)));
    driven.now = driven.now + Duration::from_millis(2500);
    driven.answer(Ok(Answer::Raised));
    assert!(!driven.is_elected(), "{:?}", driven.events());
}

#[test]
fn a_renewal_that_is_answered_after_the_deadline_revives_nothing() {
    let (mut driven, held) = Driven::leading(candidate());
    driven.pass(TTL / 3);
    let (attempt, _) = driven.renewal().unwrap();
    driven.pass(TTL);
    assert!(driven.events().contains(&Event::Unelected(LossReason::LocalDeadline)), "{:?}", driven.events());
    driven.clear();
    driven.handle(Input::Renewed(attempt, Ok(proof())));
    let revived = |event: &Event| matches!(event, Event::Elected { .. } | Event::Deadline(_));
    assert!(!driven.events().iter().any(revived), "{:?}", driven.events());
    // The entry is withdrawn: its token never becomes valid again.
    assert!(matches!(driven.newest_call().2, Op::Withdraw(gone, None) if gone == held));
}

#[test]
fn the_work_is_asked_to_stop_a_grace_before_the_deadline() {
    let (mut driven, _) = Driven::leading(candidate());
    let Some(Event::Elected { deadline, .. }) = driven.events().last().cloned() else { panic!() };
    driven.now = deadline - Settings::for_ttl(TTL).grace;
    driven.handle(Input::Tick);
    assert!(driven.events().contains(&Event::Stopping { why: LossReason::LocalDeadline, hard_stop: deadline }));
    assert!(!driven.events().contains(&Event::Unelected(LossReason::LocalDeadline)));
    driven.now = deadline;
    driven.handle(Input::Tick);
    assert!(driven.events().contains(&Event::Unelected(LossReason::LocalDeadline)));
}

#[test]
fn the_term_ends_before_the_withdrawal_is_sent() {
    let (mut driven, held) = Driven::leading(candidate());
    driven.clear();
    driven.handle(Input::Command(CANDIDACY, Command::Release));
    let over = driven
        .recent()
        .iter()
        .position(|output| *output == Output::Event(CANDIDACY, Event::Unelected(LossReason::Resigned)));
    let sent = driven.recent().iter().position(|output| matches!(output, Output::Call(_, _, _, Op::Withdraw(..))));
    assert!(over.unwrap() < sent.unwrap(), "{:?}", driven.outputs);
    driven.answer(Err(Fault::OutcomeUnknown));
    driven.clear();
    driven.pass(Duration::from_secs(1));
    assert_eq!(driven.newest_call().2, Op::Withdraw(held.clone(), None), "driven to the end");
    driven.answer(Ok(Answer::Cas(Cas::Done)));
    assert!(driven.events().contains(&Event::Released));
    assert_ne!(driven.enlisted(9).incarnation, held.incarnation, "back in line, as another incarnation");
}

#[test]
fn an_entry_that_is_no_longer_ours_to_withdraw_has_left_the_line() {
    let (mut driven, _) = Driven::leading(candidate());
    driven.handle(Input::Command(CANDIDACY, Command::Release));
    driven.clear();
    driven.answer(Ok(Answer::Cas(Cas::Refused)));
    assert_eq!(driven.events(), [Event::Released]);
    assert!(matches!(driven.newest_call().2, Op::Enlist(..)), "{:?}", driven.newest_call());
}

#[test]
fn a_withdrawal_that_is_refused_for_good_leaves_it_open_whether_the_entry_is_gone() {
    let (mut driven, held) = Driven::leading(candidate());
    driven.handle(Input::Command(CANDIDACY, Command::Release));
    driven.clear();
    driven.answer(Err(Fault::Permanent));
    assert_eq!(driven.events(), [Event::Failed, Event::Done { certain: false }]);
    let mut driven = Driven::standing(candidate());
    driven.stands(behind(&held, other(4)), Office::default());
    driven.wake();
    driven.answer(Err(Fault::Permanent));
    driven.answer(Err(Fault::Permanent));
    let failed = |event: &&Event| **event == Event::Failed;
    assert_eq!(driven.events().iter().filter(failed).count(), 1, "{:?}", driven.events());
    assert_eq!(driven.events().last(), Some(&Event::Done { certain: false }));
}

#[test]
fn a_paused_election_is_left_and_entered_again_when_it_goes_on() {
    let mut driven = Driven::standing(candidate());
    let held = driven.enlisted(5);
    driven.stands(Place::Leading(held.clone()), paused());
    assert!(!driven.is_elected());
    assert_eq!(driven.newest_call().2, Op::Withdraw(held, None));
    driven.answer(Ok(Answer::Cas(Cas::Done)));
    let (watch, what) = driven.watch();
    assert_eq!(what, WatchFor::Election(election(), Seen::new(Version(3))), "the office record is all that matters");
    driven.handle(Input::Wake(CANDIDACY, watch, Hint::Changed));
    let resumed = Line::new(vec![], false, Office::default(), Cursor(9));
    driven.answer(Ok(Answer::Line(Box::new(resumed))));
    assert!(matches!(driven.newest_call().2, Op::Enlist(..)));
}

#[test]
fn one_that_a_pause_keeps_out_looks_now_and_then_whether_it_goes_on() {
    let mut driven = Driven::standing(candidate());
    let held = driven.enlisted(5);
    driven.stands(behind(&held, other(4)), paused());
    driven.answer(Ok(Answer::Cas(Cas::Done)));
    driven.clear();
    driven.pass(TTL * 2);
    assert_eq!(driven.newest_call().2, Op::Line(election(), 1));
}

#[test]
fn a_leader_drains_before_a_pause_takes_the_office() {
    let (mut driven, held) = Driven::leading(candidate());
    driven.wake();
    driven.stands(Place::Leading(held.clone()), paused());
    assert!(driven.events().iter().any(|event| matches!(event, Event::Stopping { why: LossReason::Paused, .. })));
    assert!(!matches!(driven.newest_call().2, Op::Withdraw(..)), "the work has not stopped yet");
    driven.handle(Input::Command(CANDIDACY, Command::Release));
    assert_eq!(driven.newest_call().2, Op::Withdraw(held, None));
}

#[test]
fn a_leader_that_finds_somebody_older_in_line_leads_no_longer() {
    let (mut driven, held) = Driven::leading(candidate());
    driven.wake();
    driven.clear();
    driven.stands(behind(&held, other(4)), Office::default());
    assert_eq!(driven.events(), [Event::Unelected(LossReason::Superseded)]);
    assert_eq!(driven.newest_call().2, Op::Withdraw(held, None));
}

#[test]
fn an_expired_session_ends_the_term_and_the_candidate_stands_again_once_its_work_has_stopped() {
    let (mut driven, held) = Driven::leading(candidate());
    driven.pass(TTL / 3);
    driven.renewed(Err(Fault::SessionGone));
    assert!(driven.events().contains(&Event::Unelected(LossReason::Expired)));
    let calls = driven.calls();
    driven.open();
    driven.pass(Duration::from_secs(1));
    assert_eq!(driven.calls(), calls, "the work of the last term may still run");
    driven.handle(Input::Command(CANDIDACY, Command::Release));
    assert_ne!(driven.enlisted(9).incarnation, held.incarnation);
}

/// What the user is told when the session of this one expires, and whether it stands again at once
/// with the next.
fn after_expiry(driven: &mut Driven) -> (Vec<Event>, bool) {
    while driven.renewal().is_none() {
        driven.now = driven.participant.poll_timeout().unwrap();
        driven.handle(Input::Tick);
    }
    driven.clear();
    driven.renewed(Err(Fault::SessionGone));
    let told = driven.events();
    driven.open();
    (told, matches!(driven.recent().last(), Some(Output::Call(_, _, _, Op::Enlist(..)))))
}

#[test]
fn an_entry_that_was_being_given_up_is_gone_with_its_session() {
    let (released, out) = (Event::Released, Event::Out(LossReason::NoSession));
    let (mut driven, _) = Driven::leading(candidate());
    driven.handle(Input::Command(CANDIDACY, Command::Release));
    assert_eq!(after_expiry(&mut driven), (vec![released.clone(), out.clone()], true), "it was being withdrawn");
    let (mut driven, _) = Driven::leading(Candidate { hold_until_stopped: true, ..candidate() });
    driven.handle(Input::Command(CANDIDACY, Command::Healthy(false)));
    driven.pass(TTL / 5);
    driven.handle(Input::Command(CANDIDACY, Command::Healthy(true)));
    assert_eq!(after_expiry(&mut driven), (vec![released, out.clone()], false), "it was kept until the work stops");
    driven.handle(Input::Command(CANDIDACY, Command::Release));
    assert!(matches!(driven.newest_call().2, Op::Enlist(..)), "{:?}", driven.newest_call());
    let mut driven = Driven::standing(Candidate { fenced: true, ..candidate() });
    let held = driven.enlisted(5);
    driven.pass(Duration::from_secs(1));
    driven.stands(Place::Leading(held), Office::default());
    let (_, raise, _) = driven.newest_call();
    assert_eq!(after_expiry(&mut driven), (vec![out], false), "nobody knew of it, and its fences are not free yet");
    driven.handle(Input::Answer(CANDIDACY, raise, Err(Fault::OutcomeUnknown)));
    assert!(matches!(driven.newest_call().2, Op::Enlist(..)), "{:?}", driven.newest_call());
}

#[test]
fn where_there_is_no_line_one_that_gave_the_office_back_lets_others_have_it_first() {
    let rest = Duration::from_secs(2);
    let mut liveness = liveness();
    liveness.rest = rest;
    let mut driven = Driven::new(Settings::for_ttl(TTL));
    driven.handle(Input::Stand(CANDIDACY, candidate()));
    driven.open_with(liveness);
    let held = driven.enlisted(5);
    driven.stands(Place::Leading(held), Office::default());
    driven.handle(Input::Command(CANDIDACY, Command::Release));
    driven.clear();
    driven.answer(Ok(Answer::Cas(Cas::Done)));
    driven.pass(rest - Duration::from_nanos(1));
    assert_eq!(driven.calls(), 0, "{:?}", driven.recent());
    driven.now = driven.participant.poll_timeout().unwrap();
    driven.handle(Input::Tick);
    assert!(matches!(driven.newest_call().2, Op::Enlist(..)), "{:?}", driven.recent());
}

#[test]
fn a_renewal_under_way_is_given_up_with_its_session() {
    let (mut driven, _) = Driven::leading(candidate());
    driven.pass(TTL / 3);
    let (renewal, _) = driven.renewal().unwrap();
    driven.handle(Input::Command(CANDIDACY, Command::Proclaim(1, "new".into())));
    driven.clear();
    driven.answer(Err(Fault::SessionGone));
    let given_up = driven.recent().iter().position(|output| *output == Output::GiveUpAttempt(renewal));
    let opening = driven.recent().iter().position(|output| matches!(output, Output::OpenSession(..)));
    assert!(given_up.is_some() && given_up < opening, "{:?}", driven.recent());
}

#[test]
fn an_entry_found_gone_by_a_renewal_ends_the_term() {
    let (mut driven, held) = Driven::leading(candidate());
    driven.pass(TTL / 3);
    assert_eq!(driven.renewal().unwrap().1, std::slice::from_ref(&held));
    let mut renewal = proof();
    renewal.gone.push(held);
    driven.renewed(Ok(renewal));
    assert!(driven.events().contains(&Event::Unelected(LossReason::EntryDeleted)));
}

#[test]
fn an_entry_that_a_renewal_did_not_prove_keeps_its_old_deadline() {
    let (mut driven, held) = Driven::leading(candidate());
    driven.pass(TTL / 3);
    let mut renewal = proof();
    renewal.unproven.push(held);
    driven.renewed(Ok(renewal));
    assert!(!driven.events().iter().any(|event| matches!(event, Event::Deadline(_))));
    driven.pass(TTL / 3);
    driven.renewed(Ok(proof()));
    assert!(driven.events().iter().any(|event| matches!(event, Event::Deadline(_))));
}

#[test]
fn a_renewal_proves_nothing_of_an_entry_that_was_being_enlisted() {
    let mut driven = Driven::standing(candidate());
    let held = driven.enlisted(5);
    driven.pass(TTL / 3 - Duration::from_secs(1));
    driven.answer(Err(Fault::OutcomeUnknown));
    driven.pass(Duration::from_secs(1));
    let (attempt, named) = driven.renewal().unwrap();
    assert_eq!(named, [], "nobody knows yet that the entry is there");
    driven.handle(Input::Renewed(attempt, Ok(proof())));
    // Of the enlistment that made the entry the answer is old: rivals may have seen it silent, and
    // evicted it.
    driven.now = driven.now + TTL / 3 - Duration::from_secs(1);
    driven.answer(Err(Fault::OutcomeUnknown));
    driven.pass(Duration::from_secs(1));
    driven.clear();
    driven.now = driven.now + TTL / 3 - Duration::from_secs(2);
    driven.stands(Place::Leading(held.clone()), Office::default());
    assert!(!driven.is_elected(), "{:?}", driven.events());
    driven.renewed(Ok(proof()));
    assert!(!driven.is_elected(), "{:?}", driven.events());
    let (_, named) = driven.renewal().unwrap();
    assert_eq!(named.as_slice(), std::slice::from_ref(&held), "the next one asks about it");
    driven.renewed(Ok(proof()));
    driven.stands(Place::Leading(held), Office::default());
    assert!(driven.is_elected(), "{:?}", driven.events());
}

#[test]
fn a_leader_that_the_last_renewal_passed_over_is_renewed_at_once() {
    let mut driven = Driven::standing(candidate());
    driven.pass(TTL / 3 - Duration::from_secs(1));
    driven.answer(Err(Fault::OutcomeUnknown));
    driven.pass(Duration::from_secs(1));
    let held = driven.enlisted(5);
    let (passed_over, _) = driven.renewal().unwrap();
    driven.renewed(Ok(proof()));
    driven.stands(Place::Leading(held.clone()), Office::default());
    assert!(driven.is_elected(), "{:?}", driven.events());
    let (attempt, named) = driven.renewal().unwrap();
    assert_ne!(attempt, passed_over);
    assert_eq!(named, [held]);
    driven.clear();
    driven.renewed(Ok(proof()));
    assert!(matches!(driven.recent(), [Output::Event(_, Event::Deadline(_))]), "{:?}", driven.recent());
}

#[test]
fn a_stray_entry_of_our_session_is_swept_away() {
    let (mut driven, _) = Driven::leading(candidate());
    driven.pass(TTL / 3);
    let stray = held_by_other(8);
    let mut renewal = proof();
    renewal.stray.push(stray.clone());
    driven.renewed(Ok(renewal));
    let (candidacy, _, op) = driven.newest_call();
    assert_ne!(candidacy, CANDIDACY);
    assert_eq!(op, Op::Withdraw(stray, None));
    driven.answer(Ok(Answer::Cas(Cas::Done)));
    assert_eq!(driven.participant.candidacies(), 1);
}

#[test]
fn each_stray_entry_is_swept_away_under_a_number_that_no_user_has() {
    let (mut driven, _) = Driven::leading(candidate());
    driven.pass(TTL / 3);
    driven.clear();
    let mut renewal = proof();
    renewal.stray.extend([8, 9].map(held_by_other));
    driven.renewed(Ok(renewal));
    let withdrawals = driven.recent().iter().filter_map(|output| match output {
        Output::Call(sweeper, _, _, Op::Withdraw(stray, None)) => Some((*sweeper, stray.clone())),
        _ => None,
    });
    let first = 1 << 63;
    let expected = [(CandidacyId(first), held_by_other(8)), (CandidacyId(first + 1), held_by_other(9))];
    assert_eq!(withdrawals.collect::<Vec<_>>(), expected);
}

#[test]
fn an_entry_that_one_of_our_candidacies_waits_for_or_has_is_no_stray() {
    // The enlistment is not answered yet, and the entry is there.
    let mut driven = Driven::standing(candidate());
    let held = driven.enlisted(5);
    let swept = |driven: &mut Driven, stray: &Held| {
        driven.pass(TTL / 3);
        driven.clear();
        let mut renewal = proof();
        renewal.stray.push(stray.clone());
        driven.renewed(Ok(renewal));
        driven.recent().iter().any(|output| matches!(output, Output::Call(id, ..) if *id != CANDIDACY))
    };
    assert!(!swept(&mut driven, &held), "it is awaited");
    let mut driven = Driven::standing(candidate());
    assert!(swept(&mut driven, &held_by_other(8)), "another one is not");
    let (mut driven, held) = Driven::leading(candidate());
    assert!(!swept(&mut driven, &held), "it is the one that leads");
}

#[test]
fn an_entry_of_an_earlier_incarnation_is_withdrawn_and_never_adopted() {
    let mut driven = Driven::standing(candidate());
    let stray = held_by_other(3);
    driven.answer(Err(Fault::AlreadyInLine(stray.clone())));
    assert_eq!(driven.newest_call().2, Op::Withdraw(stray, None));
    driven.answer(Ok(Answer::Cas(Cas::Done)));
    assert!(matches!(driven.newest_call().2, Op::Enlist(..)));
}

#[test]
fn a_silent_rival_is_evicted_when_its_ttl_has_passed_since_its_last_sign_of_life() {
    let mut driven = Driven::standing(candidate());
    let held = driven.enlisted(5);
    let mut ahead = other(4);
    ahead.observed = Some(Observed::new(TTL));
    driven.stands(behind(&held, ahead.clone()), Office::default());
    driven.pass(TTL - Duration::from_secs(1));
    // It shows life: the silence begins again, from when the answer is here.
    driven.wake();
    let renewed = at_version(77, ahead);
    driven.stands(behind(&held, renewed.clone()), Office::default());
    driven.clear();
    driven.pass(TTL);
    assert!(!driven.recent().iter().any(|output| matches!(output, Output::Call(_, _, _, Op::Evict(..)))));
    driven.pass(Duration::from_millis(100));
    // It may have renewed again: a look, and then the eviction.
    assert_eq!(driven.newest_call().2, Op::Standing(held.clone(), Some(renewed.id.clone())));
    driven.stands(behind(&held, renewed.clone()), Office::default());
    assert_eq!(driven.newest_call().2, Op::Evict(election(), Box::new(renewed)));
}

#[test]
fn silence_counts_from_when_this_version_of_this_entry_was_first_seen() {
    let observed = |number, version| {
        let mut entry = at_version(version, other(number));
        entry.observed = Some(Observed::new(TTL));
        entry
    };
    for (number, version, is_silent) in [(4, 1, true), (4, 2, false), (3, 1, false)] {
        let mut driven = Driven::standing(candidate());
        let held = driven.enlisted(5);
        driven.stands(behind(&held, observed(4, 1)), Office::default());
        driven.pass(TTL / 2);
        driven.wake();
        driven.stands(behind(&held, observed(number, version)), Office::default());
        driven.clear();
        driven.pass(TTL / 2 + Duration::from_millis(100));
        assert_eq!(driven.calls() > 0, is_silent, "{number} at version {version}: {:?}", driven.recent());
    }
}

/// Somebody ahead who had been silent for so long when it was read.
fn silent(token: u64, silent: Duration) -> Entry {
    let mut observed = Observed::new(TTL);
    observed.silent = Some(silent);
    let mut entry = other(token);
    entry.observed = Some(observed);
    entry
}

#[test]
fn several_that_stopped_in_a_row_have_been_silent_at_the_same_time() {
    let mut driven = Driven::standing(candidate());
    let held = driven.enlisted(5);
    // Both had their last beat a moment ago.
    driven.stands(behind(&held, silent(4, Duration::ZERO)), Office::default());
    let passed = TTL + Duration::from_millis(100);
    driven.pass(passed);
    driven.stands(behind(&held, silent(4, passed)), Office::default());
    assert_eq!(driven.newest_call().2, Op::Evict(election(), Box::new(silent(4, passed))));
    driven.answer(Ok(Answer::Cas(Cas::Done)));
    driven.stands(behind(&held, silent(3, passed)), Office::default());
    assert_eq!(
        driven.newest_call().2,
        Op::Evict(election(), Box::new(silent(3, passed))),
        "without waiting for another TTL"
    );
}

#[test]
fn one_that_was_heard_of_a_moment_ago_is_left_alone_whatever_our_clock_shows() {
    let mut driven = Driven::standing(candidate());
    let held = driven.enlisted(5);
    driven.pass(TTL / 4);
    driven.stands(behind(&held, silent(4, Duration::ZERO)), Office::default());
    driven.clear();
    driven.pass(TTL - Duration::from_millis(1));
    assert!(!driven.recent().iter().any(|output| matches!(output, Output::Call(_, _, _, Op::Evict(..)))));
}

#[test]
fn a_look_that_finds_nothing_new_leaves_the_watch_as_it_is() {
    let mut driven = Driven::standing(candidate());
    let held = driven.enlisted(5);
    let office = Office::default().with_version(Version(3));
    driven.stands(behind(&held, other(4)), office.clone());
    driven.clear();
    let watches = |driven: &Driven| {
        let moves = |output: &&Output| matches!(output, Output::Watch { .. } | Output::Unwatch(_));
        driven.recent().iter().filter(moves).count()
    };
    driven.pass(TTL * 2 + TTL);
    driven.answer(standing(behind(&held, at_version(99, other(4))), office));
    assert_eq!(watches(&driven), 0, "{:?}", driven.recent());
    // A change whose hint was lost: the watch has had its say.
    driven.pass(TTL * 2 + TTL);
    driven.stands(behind(&held, other(4)), Office::default().with_version(Version(4)));
    assert_eq!(watches(&driven), 2, "{:?}", driven.recent());
}

fn showing(ttl: Duration, seen: StillBehind) -> Renewal {
    let mut renewal = Renewal::alive(ttl);
    renewal.behind.push(seen);
    renewal
}

/// What a renewal says of an entry that waits behind token 4, which had its last beat a moment ago.
fn still_behind(held: &Held, office: Version) -> Renewal {
    showing(TTL, StillBehind::new(held.clone(), silent(4, TTL / 3), office))
}

#[test]
fn those_who_wait_wake_for_their_heartbeat_only_where_it_shows_who_is_ahead() {
    for ttl in [1, 15, 60, 80].map(Duration::from_secs) {
        let mut driven = Driven::new(Settings::for_ttl(ttl));
        driven.handle(Input::Stand(CANDIDACY, candidate()));
        driven.handle(Input::Opened(Attempt(0), Ok(Liveness::new(ttl))));
        let held = driven.enlisted(5);
        let mut beating = silent(4, ttl / 3);
        beating.observed.as_mut().unwrap().ttl = ttl;
        driven.stands(behind(&held, beating.clone()), Office::default());
        let renewal = showing(ttl, StillBehind::new(held.clone(), beating.clone(), Version::NONE));
        driven.pass(ttl / 3);
        // The look after enlisting may come before the first renewal.
        if driven.call.is_some() {
            driven.stands(behind(&held, beating.clone()), Office::default());
        }
        driven.renewed(Ok(renewal.clone()));
        let began = driven.now;
        for beat in 1..=60 {
            driven.clear();
            driven.now = driven.participant.poll_timeout().unwrap();
            driven.handle(Input::Tick);
            assert_eq!(driven.now, began + ttl / 3 * beat, "{ttl:?}: nothing but the heartbeat is due");
            assert!(matches!(driven.recent(), [Output::Renew { .. }]), "{ttl:?}: {:?}", driven.recent());
            driven.renewed(Ok(renewal.clone()));
        }
    }
}

#[test]
fn a_renewal_that_shows_another_one_ahead_or_another_record_changes_nothing() {
    for (ahead, office) in [(4, 4), (3, 3)] {
        let mut driven = Driven::standing(candidate());
        let held = driven.enlisted(5);
        let known = Office::default().with_version(Version(office));
        driven.stands(behind(&held, silent(ahead, Duration::ZERO)), known);
        driven.pass(TTL / 3);
        let mut as_if_unsaid = driven.participant.clone();
        let (attempt, _) = driven.renewal().unwrap();
        as_if_unsaid.handle(driven.now, Input::Renewed(attempt, Ok(proof())));
        driven.renewed(Ok(still_behind(&held, Version(3))));
        assert_eq!(driven.participant, as_if_unsaid);
    }
}

#[test]
fn what_a_renewal_saw_does_not_stand_in_for_a_watch_that_was_lost() {
    let mut driven = Driven::standing(candidate());
    let held = driven.enlisted(5);
    driven.stands(behind(&held, silent(4, Duration::ZERO)), Office::default());
    driven.pass(TTL / 3);
    let (watch, _) = driven.watch();
    driven.handle(Input::Wake(CANDIDACY, watch, Hint::Lost));
    driven.clear();
    // It may have looked before the change that the watch did not tell.
    driven.renewed(Ok(still_behind(&held, Version::NONE)));
    driven.pass(TTL / 3);
    assert_eq!(driven.newest_call().2, Op::Standing(held, Some(EntryId::new("4"))));
    assert_eq!(driven.calls(), 1);
}

#[test]
fn one_ahead_that_falls_silent_is_timed_from_its_last_beat_whatever_renewals_say() {
    let mut driven = Driven::standing(candidate());
    let held = driven.enlisted(5);
    driven.stands(behind(&held, silent(4, Duration::ZERO)), Office::default());
    let began = driven.now;
    for _ in 0..2 {
        driven.pass(TTL / 3);
        let ahead = silent(4, driven.now.since(began));
        driven.renewed(Ok(showing(TTL, StillBehind::new(held.clone(), ahead, Version::NONE))));
    }
    driven.clear();
    driven.pass(TTL / 3 + Duration::from_millis(100));
    let ahead = silent(4, driven.now.since(began));
    assert_eq!(driven.newest_call().2, Op::Standing(held.clone(), Some(EntryId::new("4"))));
    driven.stands(behind(&held, ahead.clone()), Office::default());
    assert_eq!(driven.newest_call().2, Op::Evict(election(), Box::new(ahead)));
}

#[test]
fn one_ahead_that_a_renewal_shows_to_be_silent_for_too_long_is_evicted_as_it_was_seen() {
    let mut driven = Driven::standing(candidate());
    let held = driven.enlisted(5);
    driven.stands(behind(&held, silent(4, Duration::ZERO)), Office::default());
    driven.pass(TTL / 3);
    driven.clear();
    let ahead = at_version(77, silent(4, TTL + Duration::from_millis(100)));
    driven.renewed(Ok(showing(TTL, StillBehind::new(held, ahead.clone(), Version::NONE))));
    assert_eq!(driven.newest_call().2, Op::Evict(election(), Box::new(ahead)));
}

fn handover(from: u64, heir: &Held) -> Handover {
    let heir = Heir::new(heir.incarnation, heir.entry.clone(), heir.token);
    Handover::new(token(from), heir, Nonce(42), Duration::from_secs(10))
}

fn with(handover: Handover) -> Office {
    Office::default().with_version(Version(3)).with_handover(handover)
}

#[test]
fn an_heir_says_that_it_is_ready_only_when_it_is_next() {
    let mut driven = Driven::standing(candidate());
    let held = driven.enlisted(5);
    let office = with(handover(1, &held));
    driven.stands(behind(&held, other(3)), office.clone());
    assert!(!matches!(driven.newest_call().2, Op::Publish(..)), "3 stands between");
    driven.wake();
    driven.stands(behind(&held, other(1)), office);
    assert!(
        matches!(driven.newest_call().2, Op::Publish(ours, _, said) if ours == held && said.ready == Some(Nonce(42)))
    );
}

#[test]
fn an_heir_watches_the_leader_before_it_says_that_it_is_ready() {
    let mut driven = Driven::standing(candidate());
    let held = driven.enlisted(5);
    driven.clear();
    driven.stands(behind(&held, other(1)), with(handover(1, &held)));
    let place = |is: &dyn Fn(&Output) -> bool| driven.recent().iter().position(is).expect("it is there");
    let watches = place(
        &|output| matches!(output, Output::Watch { what: WatchFor::Entry(_, watched), .. } if watched.ahead == Some(EntryId::new("1"))),
    );
    let says = place(&|output| matches!(output, Output::Call(_, _, _, Op::Publish(..))));
    assert!(watches < says, "{:?}", driven.recent());
}

/// What others see in the place of an incarnation is the store's to choose.
#[test]
fn an_heir_knows_itself_by_its_entry_its_token_and_its_incarnation() {
    let says_ready = |change: &dyn Fn(&mut Held)| {
        let mut driven = Driven::standing(candidate());
        let held = driven.enlisted(5);
        let mut heir = held.clone();
        change(&mut heir);
        driven.stands(behind(&held, other(1)), with(handover(1, &heir)));
        matches!(driven.newest_call().2, Op::Publish(ours, _, said) if ours == held && said.ready == Some(Nonce(42)))
    };
    assert!(says_ready(&|_| {}));
    assert!(!says_ready(&|heir| heir.entry = EntryId::new("7")));
    assert!(!says_ready(&|heir| heir.token = token(7)));
    // Another store may give the same token, and a name made of it, to somebody else.
    assert!(!says_ready(&|heir| heir.incarnation = Incarnation::from_bits(7)));
    // A leader that is told to hand over to itself says so.
    let (mut driven, held) = Driven::leading(candidate());
    let heir = Heir::new(held.incarnation, held.entry.clone(), held.token);
    driven.handle(Input::Command(CANDIDACY, Command::Transfer(Successor::Candidate(heir), TTL)));
    let refused = Event::TransferRefused(Refusal::LeadsAlready);
    assert!(driven.recent().iter().any(|output| matches!(output, Output::Event(_, event) if *event == refused)));
}

#[test]
fn one_between_steps_aside_once_and_only_for_a_leader_that_leads() {
    let heir = held_by_other(7);
    for (head, steps_aside) in [(1, true), (2, false)] {
        let mut driven = Driven::standing(candidate());
        let held = driven.enlisted(5);
        let office = with(handover(1, &heir));
        driven.stands(behind(&held, other(3)), office.clone());
        assert_eq!(driven.newest_call().2, Op::Line(election(), 1));
        let line = Line::new(vec![other(head)], true, office.clone(), Cursor(8));
        driven.answer(Ok(Answer::Line(Box::new(line))));
        if !steps_aside {
            assert!(!matches!(driven.newest_call().2, Op::Withdraw(..)), "the request is void");
            continue;
        }
        assert_eq!(driven.newest_call().2, Op::Withdraw(held, None));
        driven.answer(Ok(Answer::Cas(Cas::Done)));
        let again = driven.enlisted(6);
        let calls = driven.calls();
        driven.stands(behind(&again, other(3)), office);
        assert_eq!(driven.calls(), calls, "once for each request");
    }
}

#[test]
fn a_leader_hands_over_to_an_heir_that_is_next_and_ready_and_guards_the_last_step() {
    let (mut driven, held) = Driven::leading(candidate());
    let heir = held_by_other(7);
    driven.wake();
    driven.stands(Place::Leading(held.clone()), with(handover(5, &heir)));
    assert!(matches!(driven.newest_call().2, Op::Line(..)));
    let line = |ready| {
        let mut next = other(7);
        next.ready = ready;
        Line::new(vec![seen(&held), next], false, with(handover(5, &heir)), Cursor(8))
    };
    driven.answer(Ok(Answer::Line(Box::new(line(None)))));
    assert!(!driven.events().iter().any(|event| matches!(event, Event::Stopping { .. })), "the heir is not ready");
    let mut watched = Watched::new(held.clone(), Version(3));
    watched.heir = Some(heir.entry.clone());
    assert_eq!(driven.watch().1, WatchFor::Entry(Epoch(0), watched), "it will say so in its entry");
    driven.wake();
    driven.stands(Place::Leading(held.clone()), with(handover(5, &heir)));
    driven.answer(Ok(Answer::Line(Box::new(line(Some(Nonce(42)))))));
    assert!(driven.events().iter().any(|event| matches!(event, Event::Stopping { why: LossReason::Transferred, .. })));
    driven.handle(Input::Command(CANDIDACY, Command::Release));
    assert_eq!(driven.newest_call().2, Op::Withdraw(held.clone(), Some(heir.entry)));
    // The heir has vanished. The term is over all the same: make room.
    driven.answer(Ok(Answer::Cas(Cas::Refused)));
    assert_eq!(driven.newest_call().2, Op::Withdraw(held, None));
}

#[test]
fn a_handover_that_was_meant_for_another_leader_is_void() {
    let (mut driven, held) = Driven::leading(candidate());
    let heir = held_by_other(7);
    driven.wake();
    let calls = driven.calls();
    driven.stands(Place::Leading(held), with(handover(4, &heir)));
    assert_eq!(driven.calls(), calls);
    assert!(!driven.events().iter().any(|event| matches!(event, Event::Stopping { .. })));
}

#[test]
fn a_handover_to_somebody_who_left_is_refused_and_the_leader_leads_on() {
    let (mut driven, held) = Driven::leading(candidate());
    let heir = held_by_other(7);
    driven.wake();
    let office = with(handover(5, &heir));
    driven.stands(Place::Leading(held.clone()), office.clone());
    let line = Line::new(vec![seen(&held)], false, office, Cursor(8));
    driven.answer(Ok(Answer::Line(Box::new(line))));
    let (_, _, Op::SetOffice(_, was, to)) = driven.newest_call() else { panic!("{:?}", driven.newest_call()) };
    assert_eq!(was, Version(3));
    assert_eq!(to.handover.unwrap().refused, Some(Refusal::HeirGone));
    assert!(!driven.events().iter().any(|event| matches!(event, Event::Unelected(_))));
}

/// Leads with token 5, has read this record, and has asked for the line that it speaks of.
fn asked_with(office: &Office) -> (Driven, Held) {
    let (mut driven, held) = Driven::leading(candidate());
    driven.wake();
    driven.stands(Place::Leading(held.clone()), office.clone());
    assert!(matches!(driven.newest_call().2, Op::Line(..)), "{:?}", driven.newest_call());
    (driven, held)
}

fn line(entries: Vec<Entry>, more: bool, office: &Office) -> Result<Answer, Fault> {
    Ok(Answer::Line(Box::new(Line::new(entries, more, office.clone(), Cursor(8)))))
}

/// What the leader writes down about the handover that it was asked for, if it has answered it.
fn refusal(driven: &Driven) -> Option<Refusal> {
    match driven.newest_call().2 {
        Op::SetOffice(_, _, office) => office.handover.and_then(|handover| handover.refused),
        _ => None,
    }
}

#[test]
fn a_leader_says_why_it_does_not_hand_over_and_waits_for_an_heir_that_may_still_become_next() {
    let office = with(handover(5, &held_by_other(7)));
    let mut foreign = other(6);
    foreign.incarnation = None;
    for (behind, more, why) in [
        (vec![], false, Some(Refusal::HeirGone)),
        (vec![other(6)], true, Some(Refusal::TooFar)),
        (vec![foreign, other(7)], false, Some(Refusal::ForeignBetween)),
        (vec![other(6), other(7)], false, None),
        (vec![other(7)], false, None),
    ] {
        let (mut driven, held) = asked_with(&office);
        let entries = [vec![seen(&held)], behind].concat();
        driven.answer(line(entries.clone(), more, &office));
        assert_eq!(refusal(&driven), why, "{entries:?}");
        assert!(!driven.events().iter().any(|event| matches!(event, Event::Stopping { .. })));
    }
}

#[test]
fn a_leader_that_is_stopping_answers_a_handover_and_does_not_fail_for_it() {
    let office = with(handover(5, &held_by_other(7)));
    for gone in [true, false] {
        let (mut driven, held) = asked_with(&office);
        driven.handle(Input::Command(CANDIDACY, Command::Healthy(false)));
        assert!(matches!(driven.events().last(), Some(Event::Stopping { why: LossReason::Unhealthy, .. })));
        driven.answer(if gone { line(vec![seen(&held)], false, &office) } else { Err(Fault::Permanent) });
        assert_eq!(refusal(&driven), Some(if gone { Refusal::HeirGone } else { Refusal::Unable }));
        driven.answer(Err(Fault::Permanent));
        assert!(matches!(driven.events().last(), Some(Event::Stopping { .. })), "{:?}", driven.events());
        driven.handle(Input::Command(CANDIDACY, Command::Release));
        assert_eq!(driven.newest_call().2, Op::Withdraw(held, None));
    }
}

#[test]
fn a_request_that_takes_the_place_of_another_has_all_of_its_own_time() {
    let first = with(handover(5, &held_by_other(7)));
    let mut second = with(handover(5, &held_by_other(8))).with_version(Version(4));
    second.handover.as_mut().unwrap().nonce = Nonce(43);
    let (mut driven, held) = asked_with(&first);
    let entries = vec![seen(&held), other(7), other(8)];
    driven.answer(line(entries.clone(), false, &first));
    let wait = |driven: &mut Driven, seconds| {
        for _ in 0..seconds {
            driven.pass(Duration::from_secs(1));
            if driven.recent().iter().any(|output| matches!(output, Output::Renew { .. })) {
                driven.renewed(Ok(proof()));
            }
        }
    };
    wait(&mut driven, 7);
    driven.wake();
    driven.stands(Place::Leading(held), second.clone());
    driven.answer(line(entries, false, &second));
    wait(&mut driven, 9);
    assert_eq!(refusal(&driven), None, "it has ten seconds from when it was read");
    wait(&mut driven, 1);
    assert_eq!(refusal(&driven), Some(Refusal::TimedOut));
}

/// The heir with this token, as the user of a leader names it.
fn successor(number: u64) -> Command {
    let heir = Heir::of(&other(number)).unwrap();
    Command::Transfer(Successor::Candidate(heir), Duration::from_secs(10))
}

/// Leads with token 5, and its user wants to hand over to token 7: the record that says so has been
/// written, read back, and the line asked for.
fn hands_over() -> (Driven, Held, Office) {
    let (mut driven, held) = Driven::leading(candidate());
    driven.handle(Input::Command(CANDIDACY, successor(7)));
    let (_, _, Op::SetOffice(_, Version::NONE, asked)) = driven.newest_call() else {
        panic!("{:?}", driven.newest_call())
    };
    driven.answer(Ok(Answer::Cas(Cas::Done)));
    let asked = asked.with_version(Version(3));
    driven.stands(Place::Leading(held.clone()), asked.clone());
    assert!(matches!(driven.newest_call().2, Op::Line(..)), "{:?}", driven.newest_call());
    driven.clear();
    (driven, held, asked)
}

#[test]
fn a_leader_that_hands_over_itself_has_stopped_its_work_already() {
    let (mut driven, held, asked) = hands_over();
    let mut heir = other(7);
    heir.ready = asked.handover.as_ref().map(|handover| handover.nonce);
    driven.answer(line(vec![seen(&held), heir.clone()], false, &asked));
    assert_eq!(driven.events(), [Event::Unelected(LossReason::Transferred)]);
    assert_eq!(driven.newest_call().2, Op::Withdraw(held, Some(heir.id)));
}

#[test]
fn a_user_whose_handover_is_refused_is_told_why_once_that_is_on_record() {
    let (mut driven, held, asked) = hands_over();
    driven.answer(line(vec![seen(&held)], false, &asked));
    let (_, _, Op::SetOffice(_, _, refused)) = driven.newest_call() else { panic!("{:?}", driven.newest_call()) };
    driven.answer(Ok(Answer::Cas(Cas::Done)));
    assert!(driven.events().is_empty(), "{:?}", driven.events());
    let calls = driven.calls();
    driven.stands(Place::Leading(held.clone()), *refused);
    assert_eq!(driven.events(), [Event::TransferRefused(Refusal::HeirGone)]);
    assert_eq!(driven.calls(), calls, "{:?}", driven.newest_call());
    // What is left of it stands in the way of no other.
    driven.handle(Input::Command(CANDIDACY, successor(8)));
    assert!(
        matches!(driven.newest_call().2, Op::SetOffice(_, _, to) if to.handover.as_ref().unwrap().refused.is_none())
    );
    assert_eq!(driven.events().len(), 1, "{:?}", driven.events());
}

#[test]
fn a_user_hands_over_once_at_a_time_and_not_while_the_work_is_stopping() {
    let (mut driven, _, _) = hands_over();
    driven.handle(Input::Command(CANDIDACY, successor(8)));
    assert_eq!(driven.events(), [Event::TransferRefused(Refusal::Busy)]);
    let (mut driven, _) = Driven::leading(candidate());
    driven.handle(Input::Command(CANDIDACY, Command::Healthy(false)));
    driven.clear();
    driven.handle(Input::Command(CANDIDACY, successor(7)));
    assert_eq!(driven.events(), [Event::TransferRefused(Refusal::Leaving)]);
}

#[test]
fn a_user_cannot_hand_over_while_an_operators_request_is_under_way() {
    let office = with(handover(5, &held_by_other(7)));
    let (mut driven, held) = asked_with(&office);
    driven.answer(line(vec![seen(&held), other(7)], false, &office));
    driven.clear();
    driven.handle(Input::Command(CANDIDACY, successor(8)));
    assert_eq!(driven.events(), [Event::TransferRefused(Refusal::Busy)]);
}

#[test]
fn only_one_between_the_leader_that_is_asked_and_its_heir_looks_who_leads() {
    let asks = |from, heir: &Held| {
        let mut driven = Driven::standing(candidate());
        let held = driven.enlisted(5);
        driven.stands(behind(&held, other(3)), with(handover(from, heir)));
        matches!(driven.newest_call().2, Op::Line(..))
    };
    assert!(asks(1, &held_by_other(7)));
    assert!(!asks(1, &held_by_other(4)), "the heir is ahead");
    assert!(!asks(1, &held_by_other(5)), "another store gave somebody the same token");
    assert!(!asks(6, &held_by_other(7)), "the leader that was asked is behind");
    assert!(!asks(5, &held_by_other(7)), "and this one does not lead");
}

#[test]
fn one_between_stays_unless_the_request_still_stands_when_the_line_is_read() {
    let asked = handover(1, &held_by_other(7));
    let mut another = asked.clone();
    another.nonce = Nonce(43);
    let mut refused = asked.clone();
    refused.refused = Some(Refusal::HeirGone);
    for (now, goes) in [(Some(asked.clone()), true), (Some(another), false), (Some(refused), false), (None, false)] {
        let mut driven = Driven::standing(candidate());
        let held = driven.enlisted(5);
        driven.stands(behind(&held, other(3)), with(asked.clone()));
        driven.answer(line(vec![other(1)], true, &with(asked.clone()).with_handover(now.clone())));
        assert_eq!(matches!(driven.newest_call().2, Op::Withdraw(..)), goes, "{now:?}");
    }
}

#[test]
fn one_between_that_may_not_read_the_line_stays_and_asks_no_more() {
    let mut driven = Driven::standing(candidate());
    let held = driven.enlisted(5);
    let office = with(handover(1, &held_by_other(7)));
    driven.stands(behind(&held, other(3)), office.clone());
    assert!(matches!(driven.newest_call().2, Op::Line(..)));
    driven.clear();
    driven.answer(Err(Fault::Permanent));
    driven.wake();
    driven.stands(behind(&held, other(3)), office);
    assert_eq!((driven.events(), driven.calls()), (vec![], 1), "{:?}", driven.recent());
}

#[test]
fn a_tombstone_met_at_first_contact_is_somebody_elses_and_a_later_one_is_ours() {
    let ended = |id| Office::default().with_version(Version(id)).with_ended(Ended::new(Nonce(id), TTL));
    let mut driven = Driven::standing(candidate());
    let held = driven.enlisted(5);
    driven.stands(behind(&held, other(4)), ended(1));
    assert!(driven.events().contains(&Event::FirstContact(Some(Nonce(1)))));
    assert!(!driven.events().contains(&Event::Ended));
    driven.wake();
    driven.stands(behind(&held, other(4)), ended(2));
    assert_eq!(driven.newest_call().2, Op::Withdraw(held, None));
    driven.answer(Ok(Answer::Cas(Cas::Done)));
    assert!(driven.events().ends_with(&[Event::Released, Event::Ended, Event::Done { certain: true }]));
    assert_eq!(driven.participant.candidacies(), 0);
}

#[test]
fn one_who_stands_after_one_who_leaves_waits_until_the_entry_is_gone() {
    let (mut driven, _) = Driven::leading(candidate());
    assert!(!driven.participant.may_stand(&election()));
    driven.handle(Input::Command(CANDIDACY, Command::Leave));
    assert!(driven.participant.may_stand(&election()));
    let calls = driven.calls();
    driven.handle(Input::Stand(CandidacyId(2), candidate()));
    assert_eq!(driven.calls(), calls, "one candidacy at a time");
    assert!(!driven.participant.may_stand(&election()));
    driven.handle(Input::Command(CANDIDACY, Command::Release));
    driven.answer(Ok(Answer::Cas(Cas::Done)));
    let (candidacy, _, op) = driven.newest_call();
    assert_eq!(candidacy, CandidacyId(2));
    assert!(matches!(op, Op::Enlist(..)));
}

#[test]
fn closing_drains_leaders_withdraws_everyone_and_ends_the_session() {
    let (mut driven, _) = Driven::leading(candidate());
    driven.handle(Input::Close);
    assert!(driven.events().iter().any(|event| matches!(event, Event::Stopping { why: LossReason::Closing, .. })));
    driven.handle(Input::Command(CANDIDACY, Command::Release));
    driven.answer(Ok(Answer::Cas(Cas::Done)));
    assert!(matches!(driven.outputs[..], [.., Output::CloseSession(_), Output::Closed]), "{:?}", driven.outputs.last());
}

#[test]
fn a_held_place_stays_after_the_hard_stop_until_the_work_has_stopped() {
    let (mut driven, held) = Driven::leading(Candidate { hold_until_stopped: true, ..candidate() });
    driven.wake();
    driven.stands(Place::Leading(held.clone()), paused());
    driven.pass(TTL / 5);
    assert!(driven.events().contains(&Event::Unelected(LossReason::Paused)), "the grace is over");
    let says_why = |op: &Op| matches!(op, Op::Publish(ours, _, said) if *ours == held && said.merit.holding);
    assert!(says_why(&driven.newest_call().2), "but the place is kept: {:?}", driven.newest_call());
    // With or without an answer to that.
    driven.handle(Input::Command(CANDIDACY, Command::Release));
    assert_eq!(driven.newest_call().2, Op::Withdraw(held, None));
}

/// Of whom our entry goes on to say that it leads, those who look believe it.
#[test]
fn one_that_holds_its_place_says_so_once_and_learns_if_the_place_is_gone() {
    let (mut driven, held) = Driven::leading(Candidate { hold_until_stopped: true, ..candidate() });
    driven.handle(Input::Command(CANDIDACY, Command::Healthy(false)));
    driven.pass(TTL / 5);
    let says_why = |op: &Op| matches!(op, Op::Publish(ours, _, said) if *ours == held && said.merit.holding);
    assert!(says_why(&driven.newest_call().2), "{:?}", driven.newest_call());
    // It had said something else meanwhile, whose answer was lost.
    driven.answer(Ok(Answer::Published(None)));
    assert_eq!(driven.newest_call().2, Op::Standing(held.clone(), None));
    let mut again = Standing::new(Place::Leading(held.clone()), Office::default(), Cursor::default());
    again.published = Version(7);
    driven.answer(Ok(Answer::Standing(Box::new(again))));
    let (.., op) = driven.newest_call();
    assert!(says_why(&op) && matches!(op, Op::Publish(_, Version(7), _)), "{op:?}");
    let calls = driven.calls();
    driven.answer(Ok(Answer::Published(Some(Version(8)))));
    for _ in 0..8 {
        driven.pass(TTL / 3);
        driven.renewed(Ok(proof()));
    }
    assert_eq!(driven.calls(), calls, "once: {:?}", driven.newest_call());
    assert!(!driven.events().contains(&Event::Released));

    // One that must not say it keeps its place, too, and asks no more.
    let (mut driven, held) = Driven::leading(Candidate { hold_until_stopped: true, ..candidate() });
    driven.handle(Input::Command(CANDIDACY, Command::Healthy(false)));
    driven.pass(TTL / 5);
    let calls = driven.calls();
    driven.answer(Err(Fault::Permanent));
    driven.pass(TTL / 3);
    assert!(driven.calls() == calls && !driven.events().contains(&Event::Failed), "{:?}", driven.newest_call());
    driven.handle(Input::Command(CANDIDACY, Command::Release));
    assert_eq!(driven.newest_call().2, Op::Withdraw(held, None));

    // And one whose place is gone learns it with the look.
    let (mut driven, _) = Driven::leading(Candidate { hold_until_stopped: true, ..candidate() });
    driven.handle(Input::Command(CANDIDACY, Command::Healthy(false)));
    driven.pass(TTL / 5);
    driven.answer(Ok(Answer::Published(None)));
    driven.stands(Place::Gone, Office::default());
    driven.handle(Input::Command(CANDIDACY, Command::Release));
    assert!(driven.events().contains(&Event::Released), "{:?}", driven.events());
    assert!(!matches!(driven.newest_call().2, Op::Withdraw(..)), "there is nothing to withdraw");
}

#[test]
fn a_look_that_is_answered_when_the_term_is_over_gives_no_held_place_back_and_begins_no_term() {
    for healthy in [true, false] {
        let (mut driven, held) = Driven::leading(Candidate { hold_until_stopped: true, ..candidate() });
        driven.wake();
        driven.handle(Input::Command(CANDIDACY, Command::Healthy(false)));
        driven.pass(TTL / 5);
        driven.handle(Input::Command(CANDIDACY, Command::Healthy(healthy)));
        assert!(driven.events().contains(&Event::Unelected(LossReason::Unhealthy)));
        let (_, id, op) = driven.newest_call();
        assert_eq!(op, Op::Standing(held.clone(), None));
        driven.clear();
        driven.handle(Input::Answer(CANDIDACY, id, standing(Place::Leading(held.clone()), Office::default())));
        let [Output::Call(.., Op::Publish(_, _, said))] = driven.recent() else { panic!("{:?}", driven.recent()) };
        assert!(said.merit.holding, "the work has not stopped");
        driven.handle(Input::Command(CANDIDACY, Command::Release));
        assert_eq!(driven.newest_call().2, Op::Withdraw(held, None));
    }
}

#[test]
fn a_ttl_that_the_store_cannot_grant_safely_is_refused() {
    let mut driven = Driven::new(settings(TTL, |settings| settings.grace_is_share = false));
    driven.handle(Input::Stand(CANDIDACY, candidate()));
    let short = Liveness::new(Duration::from_secs(4));
    driven.handle(Input::Opened(Attempt(0), Ok(short)));
    let refused = driven.outputs.iter().find_map(|output| match output {
        Output::SettingsRefused(error) => Some(error),
        _ => None,
    });
    let Some(SettingsError::Granted { asked, shortfall }) = refused else { panic!("{:?}", driven.outputs) };
    assert_eq!((*asked, shortfall.ttl), (TTL, short.ttl));
    assert!(driven.events().ends_with(&[Event::Failed, Event::Done { certain: true }]), "{:?}", driven.events());
}

#[test]
fn where_an_answer_proves_only_the_renewal_before_there_are_twice_as_many() {
    let settings = Settings::for_ttl(TTL);
    let earlier = Proof::Earlier { apart: Duration::ZERO, opening_proves: true };
    for (proof, first) in [(Proof::Answered, settings.renew_every), (earlier, settings.renew_every / 2)] {
        let mut driven = Driven::new(settings);
        driven.handle(Input::Stand(CANDIDACY, candidate()));
        driven.handle(Input::Opened(Attempt(0), Ok(proving(proof))));
        driven.pass(first - Duration::from_nanos(1));
        assert_eq!(driven.renewal(), None, "{proof:?}");
        driven.pass(Duration::from_nanos(1));
        assert!(driven.renewal().is_some(), "{proof:?}");
    }
}

/// The deadlines that the user of the candidacy was told, oldest first.
fn deadlines(driven: &Driven) -> Vec<Timestamp> {
    let told = driven.events().into_iter().filter_map(|event| match event {
        Event::Elected { deadline, .. } | Event::Deadline(deadline) => Some(deadline),
        _ => None,
    });
    told.collect()
}

fn opened_sessions(driven: &Driven) -> usize {
    driven.outputs.iter().filter(|output| matches!(output, Output::OpenSession(..))).count()
}

#[test]
fn a_session_whose_ttl_may_have_become_shorter_ends_its_terms_in_time_and_is_replaced() {
    let (mut driven, held) = Driven::leading(candidate());
    let was = *deadlines(&driven).last().unwrap();

    driven.handle(Input::Shortened(Epoch(0), TTL * 2 / 3));

    let is = *deadlines(&driven).last().unwrap();
    assert_eq!(was.since(is), TTL / 3 - TTL / 3000, "a third of the TTL, and of what drift may take of it");
    driven.pass(TTL / 3);
    driven.renewed(Ok(proof()));
    assert_eq!(*deadlines(&driven).last().unwrap(), is, "no renewal moves it any more");
    driven.pass(is.since(driven.now) - TTL / 5);
    assert!(matches!(driven.events().last(), Some(Event::Stopping { why: LossReason::LocalDeadline, .. })));
    driven.handle(Input::Command(CANDIDACY, Command::Release));
    assert_eq!(driven.newest_call().2, Op::Withdraw(held, None));
    driven.answer(Ok(Answer::Cas(Cas::Done)));
    let calls = driven.calls();
    assert_eq!(
        (opened_sessions(&driven), driven.events().last()),
        (1, Some(&Event::Released)),
        "its time has not come"
    );
    driven.pass(is.since(driven.now));
    assert_eq!(driven.calls(), calls, "nobody goes back in line with it");
    let closed = driven.outputs.iter().position(|output| *output == Output::ReplaceSession(Epoch(0)));
    let opened = driven.outputs.iter().rposition(|output| matches!(output, Output::OpenSession(..)));
    assert!(closed.is_some() && closed < opened && opened_sessions(&driven) == 2, "{:?}", driven.outputs);
    driven.open();
    assert!(matches!(driven.newest_call().2, Op::Enlist(..)));
}

#[test]
fn a_session_of_which_nothing_is_known_any_more_ends_its_terms_at_once() {
    let (mut driven, held) = Driven::leading(candidate());
    driven.handle(Input::Shortened(Epoch(0), Duration::ZERO));
    assert_eq!(driven.events().last(), Some(&Event::Unelected(LossReason::LocalDeadline)));
    assert_eq!(
        (driven.newest_call().2, opened_sessions(&driven)),
        (Op::Withdraw(held, None), 1),
        "its entry goes first"
    );
    driven.answer(Err(Fault::Unavailable));
    assert_eq!(opened_sessions(&driven), 1);
    assert!(driven.participant.poll_timeout().unwrap() > driven.now, "it does not spin");
    driven.pass(TTL);
    driven.handle(Input::Command(CANDIDACY, Command::Release));
    driven.answer(Ok(Answer::Cas(Cas::Done)));
    assert!(driven.outputs.contains(&Output::ReplaceSession(Epoch(0))));
    assert_eq!(opened_sessions(&driven), 2);
}

#[test]
fn a_session_is_replaced_when_its_time_has_come_though_nothing_else_is_due() {
    let mut driven = Driven::standing(candidate());
    let held = driven.enlisted(5);
    driven.stands(behind(&held, other(3)), Office::default());
    driven.handle(Input::Shortened(Epoch(0), TTL / 6));
    driven.answer(Ok(Answer::Cas(Cas::Done)));
    driven.clear();
    let opened = driven.now;
    driven.now = driven.participant.poll_timeout().unwrap();
    driven.handle(Input::Tick);
    assert!(driven.now.since(opened) <= TTL / 6, "{:?}", driven.now.since(opened));
    assert!(driven.recent().contains(&Output::ReplaceSession(Epoch(0))), "{:?}", driven.recent());
}

#[test]
fn a_candidate_that_stands_while_a_session_is_being_replaced_waits_for_the_next() {
    let mut driven = Driven::standing(candidate());
    let held = driven.enlisted(5);
    driven.stands(behind(&held, other(3)), Office::default());
    driven.handle(Input::Shortened(Epoch(0), TTL / 2));
    driven.answer(Ok(Answer::Cas(Cas::Done)));
    let calls = driven.calls();
    let another = Candidate { election: ElectionName::new("another").unwrap(), ..candidate() };
    driven.handle(Input::Stand(CandidacyId(2), another));
    assert_eq!(driven.calls(), calls);
    driven.pass(TTL / 2);
    assert!(driven.outputs.contains(&Output::ReplaceSession(Epoch(0))), "nobody needs it");
    driven.open();
    assert_eq!(driven.calls(), calls + 2, "both enlist with the new one");
}

#[test]
fn the_ttl_of_an_earlier_session_is_of_no_interest() {
    let (mut driven, _) = Driven::leading(candidate());
    let outputs = driven.outputs.len();
    driven.handle(Input::Shortened(Epoch(7), Duration::ZERO));
    assert_eq!(driven.outputs.len(), outputs);
}

#[test]
fn where_the_opening_proves_nothing_office_is_taken_after_the_renewal_that_proves_it() {
    let apart = Duration::from_secs(1);
    let proof = Proof::Earlier { apart, opening_proves: false };
    let mut driven = Driven::new(Settings::for_ttl(TTL));
    driven.handle(Input::Stand(CANDIDACY, candidate()));
    driven.handle(Input::Opened(Attempt(0), Ok(proving(proof))));
    let held = driven.enlisted(5);
    let leading = || standing(Place::Leading(held.clone()), Office::default());
    driven.answer(leading());
    assert!(deadlines(&driven).is_empty(), "nothing is proven");
    assert_eq!(driven.renewal(), None, "a renewal would prove nothing yet");
    driven.pass(apart);
    driven.renewed(Ok(Renewal::alive(TTL)));
    assert_eq!(driven.newest_call().2, Op::Standing(held.clone(), None));
    driven.answer(leading());
    assert!(matches!(driven.events().last(), Some(Event::Elected { .. })), "{:?}", driven.events());
}

#[test]
fn those_who_wait_are_not_proven_sooner_than_their_renewal_is_due() {
    let apart = Duration::from_secs(1);
    let proof = Proof::Earlier { apart, opening_proves: false };
    let mut driven = Driven::new(Settings::for_ttl(TTL));
    driven.handle(Input::Stand(CANDIDACY, candidate()));
    driven.handle(Input::Opened(Attempt(0), Ok(proving(proof))));
    let held = driven.enlisted(5);
    driven.stands(behind(&held, other(1)), Office::default());
    driven.pass(apart);
    assert_eq!(driven.renewal(), None, "only the first in line has a use for it");
}

#[test]
fn a_leader_that_stops_its_work_wakes_for_its_deadline_and_not_to_look() {
    let (mut driven, _) = Driven::leading(Candidate { hold_until_stopped: true, ..candidate() });
    driven.handle(Input::Command(CANDIDACY, Command::Healthy(false)));
    driven.pass(TTL / 3);
    driven.answer(Ok(Answer::Published(Some(Version(1)))));
    driven.renewed(Ok(proof()));
    driven.clear();
    for _ in 0..8 {
        driven.pass(TTL / 3);
        driven.renewed(Ok(proof()));
        assert!(driven.participant.poll_timeout() > Some(driven.now), "what is due stays due");
    }
    assert_eq!(driven.calls(), 0, "{:?}", driven.newest_call());
}

#[test]
fn a_shorter_ttl_never_lengthens_what_was_proven_of_an_entry() {
    let (mut driven, held) = Driven::leading(candidate());
    driven.pass(TTL / 3);
    let (attempt, _) = driven.renewal().unwrap();
    // The session is proven, the entry is not.
    let mut renewal = proof();
    renewal.unproven.push(held);
    driven.handle(Input::Renewed(attempt, Ok(renewal)));
    let before = driven.outputs.iter().rev().find_map(|output| match output {
        Output::Event(_, Event::Elected { deadline, .. } | Event::Deadline(deadline)) => Some(*deadline),
        _ => None,
    });
    driven.clear();
    driven.handle(Input::Shortened(Epoch(0), TTL - Duration::from_secs(1)));
    let [Event::Deadline(after)] = driven.events()[..] else { panic!("{:?}", driven.events()) };
    assert!(Some(after) <= before, "{after:?} is later than {before:?}");
}

#[test]
fn a_session_is_replaced_only_when_no_entry_of_it_is_left_in_line() {
    let mut driven = Driven::standing(candidate());
    let held = driven.enlisted(5);
    driven.stands(behind(&held, other(4)), Office::default());
    driven.clear();
    driven.handle(Input::Shortened(Epoch(0), Duration::ZERO));
    assert_eq!(driven.newest_call().2, Op::Withdraw(held, None));
    let replaced = |driven: &Driven| driven.recent().contains(&Output::ReplaceSession(Epoch(0)));
    driven.handle(Input::Command(CANDIDACY, Command::Leave));
    assert!(!replaced(&driven) && driven.events().is_empty(), "{:?}", driven.recent());
    driven.answer(Ok(Answer::Cas(Cas::Done)));
    assert!(replaced(&driven), "{:?}", driven.recent());
    assert!(driven.events().contains(&Event::Done { certain: true }));
}

#[test]
fn the_next_candidacy_does_not_begin_before_the_raise_of_the_last_one_is_dropped() {
    let fenced = || Candidate { fenced: true, ..candidate() };
    let mut driven = Driven::standing(fenced());
    let held = driven.enlisted(5);
    driven.stands(Place::Leading(held.clone()), Office::default());
    let (_, raise, op) = driven.newest_call();
    assert_eq!(op, Op::RaiseFences(held.token));
    // It hangs, and blocks its thread. Its user gives up and stands anew.
    driven.handle(Input::Command(CANDIDACY, Command::Leave));
    assert_eq!(driven.newest_call().2, Op::Withdraw(held, None));
    driven.answer(Ok(Answer::Cas(Cas::Done)));
    assert!(driven.events().contains(&Event::Done { certain: true }), "leaving waits for no fence");
    driven.clear();
    let next = CandidacyId(2);
    driven.handle(Input::Stand(next, fenced()));
    driven.pass(TTL / 3);
    driven.handle(Input::Answer(next, raise, Err(Fault::OutcomeUnknown)));
    let calls = driven.recent().iter().any(|output| matches!(output, Output::Call(..)));
    assert!(!calls, "{:?} while the raise is still in the user's hands", driven.recent());
    assert!(!driven.participant.may_stand(&election()), "one waits already");
    driven.handle(Input::Answer(CANDIDACY, raise, Err(Fault::OutcomeUnknown)));
    assert!(matches!(driven.newest_call(), (id, _, Op::Enlist(..)) if id == next), "{:?}", driven.recent());
}

#[test]
fn another_session_lets_nobody_begin_before_that_raise_is_dropped() {
    let fenced = || Candidate { fenced: true, ..candidate() };
    let mut driven = Driven::standing(fenced());
    let held = driven.enlisted(5);
    driven.stands(Place::Leading(held), Office::default());
    let (_, raise, _) = driven.newest_call();
    driven.handle(Input::Command(CANDIDACY, Command::Leave));
    driven.answer(Ok(Answer::Cas(Cas::Done)));
    driven.handle(Input::Stand(CandidacyId(2), fenced()));
    driven.pass(TTL / 3);
    driven.clear();
    driven.renewed(Err(Fault::SessionGone));
    driven.open();
    assert_eq!((driven.calls(), driven.events()), (0, vec![]), "{:?}", driven.recent());
    driven.handle(Input::Answer(CANDIDACY, raise, Err(Fault::OutcomeUnknown)));
    assert!(matches!(driven.newest_call(), (CandidacyId(2), _, Op::Enlist(..))), "{:?}", driven.recent());
}
