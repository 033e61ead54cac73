//! One process, driven by hand: what it does on each thing that can happen, in the order in which
//! it does it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test speaks by panicking")]

use std::time::Duration;

use bytes::Bytes;
use incumbent_core::*;

const TTL: Duration = Duration::from_secs(15);
const CANDIDACY: CandidacyId = CandidacyId(1);

/// A participant, the time, and what it has put out.
struct Desk {
    participant: Participant,
    now: Timestamp,
    outputs: Vec<Output>,
    /// What was put out before this has been dealt with.
    seen: usize,
}

fn liveness() -> Liveness {
    Liveness::new(TTL)
}

/// What a session is granted where answers prove this.
fn proving(proof: Proof) -> Liveness {
    let mut liveness = liveness();
    liveness.proof = proof;
    liveness
}

fn election() -> ElectionName {
    ElectionName::new("e").unwrap()
}

fn candidate() -> Candidate {
    Candidate {
        election: election(),
        name: "a".into(),
        value: Bytes::from("value"),
        fenced: false,
        hold_until_stopped: false,
        first_contact: None,
    }
}

fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

/// Somebody else in line.
fn other(number: u64) -> Entry {
    let mut entry = Entry::new(EntryId::new(number.to_string()), token(number));
    entry.incarnation = Some(Incarnation::from_bits(u128::from(number)));
    entry.name = Some("other".into());
    entry.version = Version(number);
    entry
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
    Office { version: Version(3), paused: Some(Paused { reason: "why".into() }), ..Office::default() }
}

impl Desk {
    fn new(settings: Settings) -> Desk {
        let now = Timestamp::ZERO + Duration::from_secs(1000);
        Desk { participant: Participant::new(settings, [1, 2, 3, 4]), now, outputs: Vec::new(), seen: 0 }
    }

    /// A desk with a session and a candidate that is enlisting.
    fn standing(candidate: Candidate) -> Desk {
        let mut desk = Desk::new(Settings::for_ttl(TTL));
        desk.handle(Input::Stand(CANDIDACY, candidate));
        desk.open();
        desk
    }

    /// A desk whose candidate leads with token 5.
    fn leading(candidate: Candidate) -> (Desk, Held) {
        let mut desk = Desk::standing(candidate);
        let held = desk.enlisted(5);
        desk.answer(standing(Place::Leading(held.clone()), Office::default()));
        assert!(desk.events().iter().any(|event| matches!(event, Event::Elected { .. })));
        (desk, held)
    }

    fn handle(&mut self, input: Input) {
        self.participant.handle(self.now, input);
        while let Some(output) = self.participant.poll_output() {
            self.outputs.push(output);
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.handle(Input::Tick);
    }

    fn open(&mut self) {
        let attempt = self.outputs.iter().rev().find_map(|output| match output {
            Output::OpenSession(attempt, _) => Some(*attempt),
            _ => None,
        });
        self.handle(Input::Opened(attempt.expect("a session is wanted"), Ok(liveness())));
    }

    fn renewal(&self) -> Option<(Attempt, Vec<Held>)> {
        self.outputs.iter().rev().find_map(|output| match output {
            Output::Renew { attempt, held, .. } => Some((*attempt, held.clone())),
            _ => None,
        })
    }

    fn renewed(&mut self, answer: Result<Renewal, Fault>) {
        let (attempt, _) = self.renewal().expect("a renewal is under way");
        self.handle(Input::Renewed(attempt, answer));
    }

    /// The newest call, and whose it is.
    fn call(&self) -> (CandidacyId, CallId, Op) {
        let call = self.outputs.iter().rev().find_map(|output| match output {
            Output::Call(candidacy, id, _, op) => Some((*candidacy, *id, op.clone())),
            _ => None,
        });
        call.expect("a call is out")
    }

    fn calls(&self) -> usize {
        self.recent().iter().filter(|output| matches!(output, Output::Call(..))).count()
    }

    fn answer(&mut self, answer: Result<Answer, Fault>) {
        let (candidacy, id, _) = self.call();
        self.handle(Input::Answer(candidacy, id, answer));
    }

    /// The entry that the enlistment under way makes.
    fn enlisted(&self, number: u64) -> Held {
        let (_, _, Op::Enlist(election, entry)) = self.call() else { panic!("{:?}", self.call()) };
        let incarnation = entry.incarnation;
        Held::new(election, EntryId::new(number.to_string()), token(number), incarnation)
    }

    fn watch(&self) -> (WatchId, WatchFor) {
        let watch = self.outputs.iter().rev().find_map(|output| match output {
            Output::Watch { watch, what, .. } => Some((*watch, what.clone())),
            _ => None,
        });
        watch.expect("a watch is armed")
    }

    fn wake(&mut self) {
        let (watch, _) = self.watch();
        self.handle(Input::Wake(CANDIDACY, watch, Hint::Changed));
    }

    fn events(&self) -> Vec<Event> {
        let event = |output: &Output| match output {
            Output::Event(_, event) => Some(event.clone()),
            _ => None,
        };
        self.recent().iter().filter_map(event).collect()
    }

    /// What was put out since the last `clear`.
    fn recent(&self) -> &[Output] {
        &self.outputs[self.seen..]
    }

    fn clear(&mut self) {
        self.seen = self.outputs.len();
    }
}

fn proof() -> Renewal {
    Renewal::alive(TTL)
}

#[test]
fn the_deadline_counts_from_when_the_session_was_asked_for() {
    let mut desk = Desk::new(Settings { drift_ppm: 0, margin: Duration::ZERO, ..Settings::for_ttl(TTL) });
    let asked = desk.now;
    desk.handle(Input::Stand(CANDIDACY, candidate()));
    desk.pass(Duration::from_secs(4));
    desk.open();
    let held = desk.enlisted(5);
    desk.answer(standing(Place::Leading(held.clone()), Office::default()));
    assert!(desk.events().contains(&Event::Elected {
        term: TermNo(1),
        claim: Claim::Entry(held),
        deadline: asked + TTL
    }));
}

#[test]
fn a_hint_is_verified_and_may_be_wrong() {
    let mut desk = Desk::standing(candidate());
    let held = desk.enlisted(5);
    desk.answer(standing(behind(&held, other(4)), Office::default()));
    let mut watched = Watched::new(held.clone(), Version::NONE);
    watched.ahead = Some(EntryId::new("4"));
    assert_eq!(desk.watch().1, WatchFor::Entry(Epoch(0), watched.clone()));
    desk.clear();
    desk.wake();
    assert_eq!(desk.call().2, Op::Standing(held.clone(), Some(EntryId::new("4"))));
    // The predecessor is gone, but an older one is there.
    desk.answer(standing(behind(&held, other(2)), Office::default()));
    assert!(!desk.events().iter().any(|event| matches!(event, Event::Elected { .. })));
    watched.ahead = Some(EntryId::new("2"));
    assert_eq!(desk.watch().1, WatchFor::Entry(Epoch(0), watched));
}

#[test]
fn an_enlistment_without_an_answer_is_repeated_as_the_same_incarnation() {
    for fault in [Fault::OutcomeUnknown, Fault::Unavailable] {
        let mut desk = Desk::standing(candidate());
        let first = desk.enlisted(5);
        desk.answer(Err(fault));
        desk.clear();
        desk.pass(Duration::from_secs(1));
        assert_eq!(desk.enlisted(5), first);
    }
}

#[test]
fn a_call_that_is_never_answered_is_given_up_and_repeated() {
    let mut desk = Desk::standing(candidate());
    let (candidacy, late, _) = desk.call();
    let first = desk.enlisted(5);
    desk.clear();
    desk.pass(TTL / 3);
    assert_eq!(desk.recent().first(), Some(&Output::GiveUpCall(CANDIDACY)), "dropped before anything else is done");
    desk.pass(TTL / 3);
    let (_, again, _) = desk.call();
    assert_ne!(late, again);
    assert_eq!(desk.enlisted(5), first);
    // The answer to the first one comes at last, and means nothing any more.
    desk.clear();
    desk.handle(Input::Answer(candidacy, late, standing(Place::Leading(first), Office::default())));
    assert!(desk.events().is_empty());
}

#[test]
fn an_opening_and_a_renewal_that_are_never_answered_are_given_up_before_the_next() {
    let mut desk = Desk::new(Settings::for_ttl(TTL));
    desk.handle(Input::Stand(CANDIDACY, candidate()));
    let late = Attempt(0);
    assert!(matches!(desk.recent(), [Output::OpenSession(attempt, _)] if *attempt == late), "{:?}", desk.recent());
    desk.clear();
    desk.pass(TTL / 3);
    assert_eq!(desk.recent(), [Output::GiveUpAttempt(late)]);
    desk.pass(TTL / 3);
    // Its answer comes at last, and opens nothing.
    desk.handle(Input::Opened(late, Ok(liveness())));
    assert_eq!(desk.participant.session(), None);
    desk.open();
    assert_eq!(desk.participant.session(), Some(Epoch(1)));
    desk.pass(TTL / 3);
    let (renewal, _) = desk.renewal().expect("one is due");
    desk.clear();
    desk.pass(TTL / 3);
    assert!(desk.recent().contains(&Output::GiveUpAttempt(renewal)), "{:?}", desk.recent());
}

#[test]
fn a_call_about_an_entry_that_is_gone_is_given_up() {
    let (mut desk, held) = Desk::leading(candidate());
    desk.handle(Input::Command(CANDIDACY, Command::Proclaim(1, "new".into())));
    assert!(matches!(desk.call().2, Op::Publish(..)));
    desk.pass(TTL / 3 - Duration::from_secs(1));
    desk.clear();
    desk.pass(Duration::from_secs(1) - Duration::from_nanos(1));
    desk.handle(Input::Command(CANDIDACY, Command::Release));
    let given_up = desk.recent().iter().position(|output| *output == Output::GiveUpCall(CANDIDACY));
    let withdrawn = desk
        .recent()
        .iter()
        .position(|output| matches!(output, Output::Call(_, _, _, Op::Withdraw(gone, _)) if *gone == held));
    assert!(given_up.is_some() && given_up < withdrawn, "{:?}", desk.recent());
}

#[test]
fn a_proclamation_is_settled_by_its_own_value_or_a_later_one() {
    let (mut desk, _) = Desk::leading(candidate());
    desk.handle(Input::Command(CANDIDACY, Command::Proclaim(1, "one".into())));
    desk.handle(Input::Command(CANDIDACY, Command::Proclaim(2, "two".into())));
    desk.handle(Input::Command(CANDIDACY, Command::Proclaim(3, "three".into())));
    desk.clear();
    desk.answer(Ok(Answer::Published(Some(Version(8)))));
    assert_eq!(desk.events(), [Event::Proclaimed(1, Cas::Done)], "others see the first value, not the later ones");
    assert!(matches!(desk.call().2, Op::Publish(_, Version(8), value, _) if value == "three"));
    desk.clear();
    desk.answer(Ok(Answer::Published(Some(Version(9)))));
    assert_eq!(desk.events(), [Event::Proclaimed(3, Cas::Done)]);
}

#[test]
fn a_publication_that_is_refused_is_repeated_on_what_is_there_now() {
    let (mut desk, held) = Desk::leading(candidate());
    desk.handle(Input::Command(CANDIDACY, Command::Proclaim(1, "one".into())));
    desk.clear();
    // An earlier try, of which nobody knew the outcome, has got through: what was there is
    // replaced.
    desk.answer(Ok(Answer::Published(None)));
    assert_eq!(desk.call().2, Op::Standing(held.clone(), None));
    let mut here = Standing::new(Place::Leading(held.clone()), Office::default(), Cursor(9));
    here.published = Version(9);
    desk.answer(Ok(Answer::Standing(Box::new(here))));
    assert_eq!(desk.call().2, Op::Publish(held.clone(), Version(9), "one".into(), None));
    assert!(desk.events().is_empty(), "it is not settled: {:?}", desk.events());
    desk.answer(Ok(Answer::Published(None)));
    // The entry is no longer ours: so is the term.
    desk.answer(standing(Place::Gone, Office::default()));
    assert_eq!(desk.events(), [Event::Unelected(LossReason::EntryDeleted)]);
}

#[test]
fn an_unreachable_store_is_not_hammered() {
    let mut desk = Desk::standing(candidate());
    for _ in 0..600 {
        let before = desk.calls();
        if before > 0 {
            desk.answer(Err(Fault::Unavailable));
        }
        desk.pass(Duration::from_millis(100));
    }
    // A minute with pauses that grow up to 2.5 s.
    assert!((20..60).contains(&desk.calls()), "{} calls", desk.calls());
}

#[test]
fn nobody_is_in_office_before_the_fences_are_raised() {
    let mut desk = Desk::standing(Candidate { fenced: true, ..candidate() });
    let held = desk.enlisted(5);
    desk.answer(standing(Place::Leading(held.clone()), Office::default()));
    assert_eq!(desk.call().2, Op::RaiseFences(token(5)));
    assert!(!desk.events().iter().any(|event| matches!(event, Event::Elected { .. })));
    desk.answer(Err(Fault::Unavailable));
    desk.pass(Duration::from_secs(1));
    assert_eq!(desk.call().2, Op::Standing(held.clone(), None), "are we first at all?");
    desk.answer(standing(Place::Leading(held.clone()), Office::default()));
    assert_eq!(desk.call().2, Op::RaiseFences(token(5)));
    desk.answer(Ok(Answer::Raised));
    assert!(desk.events().iter().any(|event| matches!(event, Event::Elected { .. })));
}

#[test]
fn fences_that_took_too_long_to_raise_make_nobody_a_leader() {
    let mut desk = Desk::standing(Candidate { fenced: true, ..candidate() });
    let held = desk.enlisted(5);
    desk.answer(standing(Place::Leading(held), Office::default()));
    let (candidacy, id, _) = desk.call();
    desk.now = desk.now + TTL;
    desk.handle(Input::Answer(candidacy, id, Ok(Answer::Raised)));
    assert!(!desk.events().iter().any(|event| matches!(event, Event::Elected { .. })));
}

#[test]
fn fences_that_leave_no_time_to_stop_make_nobody_a_leader() {
    let mut desk = Desk::standing(Candidate { fenced: true, ..candidate() });
    let held = desk.enlisted(5);
    desk.now = desk.now + TTL / 3 - Duration::from_secs(1);
    desk.answer(standing(Place::Leading(held.clone()), Office::default()));
    assert_eq!(desk.call().2, Op::RaiseFences(token(5)));
    // No renewal is answered meanwhile. The deadline is still to come, but it is nearer than the
    // grace.
    desk.now = desk.now + TTL / 3 - Duration::from_millis(1);
    desk.answer(Err(Fault::Unavailable));
    desk.pass(Duration::from_secs(1));
    desk.answer(standing(Place::Leading(held), Office::default()));
    assert_eq!(desk.call().2, Op::RaiseFences(token(5)));
    desk.now = desk.now + Duration::from_millis(2500);
    desk.answer(Ok(Answer::Raised));
    assert!(!desk.events().iter().any(|event| matches!(event, Event::Elected { .. })), "{:?}", desk.events());
}

#[test]
fn a_renewal_that_is_answered_after_the_deadline_revives_nothing() {
    let (mut desk, held) = Desk::leading(candidate());
    desk.pass(TTL / 3);
    let (attempt, _) = desk.renewal().unwrap();
    desk.pass(TTL);
    assert!(desk.events().contains(&Event::Unelected(LossReason::LocalDeadline)), "{:?}", desk.events());
    desk.clear();
    desk.handle(Input::Renewed(attempt, Ok(proof())));
    let revived = |event: &Event| matches!(event, Event::Elected { .. } | Event::Deadline(_));
    assert!(!desk.events().iter().any(revived), "{:?}", desk.events());
    // The entry is withdrawn: its token never becomes valid again.
    assert!(matches!(desk.call().2, Op::Withdraw(gone, None) if gone == held));
}

#[test]
fn the_work_is_asked_to_stop_a_grace_before_the_deadline() {
    let (mut desk, _) = Desk::leading(candidate());
    let Some(Event::Elected { deadline, .. }) = desk.events().last().cloned() else { panic!() };
    desk.now = deadline - Settings::for_ttl(TTL).grace;
    desk.handle(Input::Tick);
    assert!(desk.events().contains(&Event::Stopping { why: LossReason::LocalDeadline, hard_stop: deadline }));
    assert!(!desk.events().contains(&Event::Unelected(LossReason::LocalDeadline)));
    desk.now = deadline;
    desk.handle(Input::Tick);
    assert!(desk.events().contains(&Event::Unelected(LossReason::LocalDeadline)));
}

#[test]
fn the_term_ends_before_the_withdrawal_is_sent() {
    let (mut desk, held) = Desk::leading(candidate());
    desk.clear();
    desk.handle(Input::Command(CANDIDACY, Command::Release));
    let over = desk
        .recent()
        .iter()
        .position(|output| *output == Output::Event(CANDIDACY, Event::Unelected(LossReason::Resigned)));
    let sent = desk.recent().iter().position(|output| matches!(output, Output::Call(_, _, _, Op::Withdraw(..))));
    assert!(over.unwrap() < sent.unwrap(), "{:?}", desk.outputs);
    desk.answer(Err(Fault::OutcomeUnknown));
    desk.clear();
    desk.pass(Duration::from_secs(1));
    assert_eq!(desk.call().2, Op::Withdraw(held.clone(), None), "driven to the end");
    desk.answer(Ok(Answer::Cas(Cas::Done)));
    assert!(desk.events().contains(&Event::Released));
    assert_ne!(desk.enlisted(9).incarnation, held.incarnation, "back in line, as another incarnation");
}

#[test]
fn a_paused_election_is_left_and_entered_again_when_it_goes_on() {
    let mut desk = Desk::standing(candidate());
    let held = desk.enlisted(5);
    desk.answer(standing(Place::Leading(held.clone()), paused()));
    assert!(!desk.events().iter().any(|event| matches!(event, Event::Elected { .. })));
    assert_eq!(desk.call().2, Op::Withdraw(held, None));
    desk.answer(Ok(Answer::Cas(Cas::Done)));
    let (watch, what) = desk.watch();
    assert_eq!(what, WatchFor::Election(election(), Seen::new(Version(3))), "the office record is all that matters");
    desk.handle(Input::Wake(CANDIDACY, watch, Hint::Changed));
    let resumed = Line::new(vec![], false, Office::default(), Cursor(9));
    desk.answer(Ok(Answer::Line(Box::new(resumed))));
    assert!(matches!(desk.call().2, Op::Enlist(..)));
}

#[test]
fn a_leader_drains_before_a_pause_takes_the_office() {
    let (mut desk, held) = Desk::leading(candidate());
    desk.wake();
    desk.answer(standing(Place::Leading(held.clone()), paused()));
    assert!(desk.events().iter().any(|event| matches!(event, Event::Stopping { why: LossReason::Paused, .. })));
    assert!(!matches!(desk.call().2, Op::Withdraw(..)), "the work has not stopped yet");
    desk.handle(Input::Command(CANDIDACY, Command::Release));
    assert_eq!(desk.call().2, Op::Withdraw(held, None));
}

#[test]
fn an_expired_session_ends_the_term_and_the_candidate_stands_again_once_its_work_has_stopped() {
    let (mut desk, held) = Desk::leading(candidate());
    desk.pass(TTL / 3);
    desk.renewed(Err(Fault::SessionGone));
    assert!(desk.events().contains(&Event::Unelected(LossReason::Expired)));
    let calls = desk.calls();
    desk.open();
    desk.pass(Duration::from_secs(1));
    assert_eq!(desk.calls(), calls, "the work of the last term may still run");
    desk.handle(Input::Command(CANDIDACY, Command::Release));
    assert_ne!(desk.enlisted(9).incarnation, held.incarnation);
}

#[test]
fn a_renewal_under_way_is_given_up_with_its_session() {
    let (mut desk, _) = Desk::leading(candidate());
    desk.pass(TTL / 3);
    let (renewal, _) = desk.renewal().unwrap();
    desk.handle(Input::Command(CANDIDACY, Command::Proclaim(1, "new".into())));
    desk.clear();
    desk.answer(Err(Fault::SessionGone));
    let given_up = desk.recent().iter().position(|output| *output == Output::GiveUpAttempt(renewal));
    let opening = desk.recent().iter().position(|output| matches!(output, Output::OpenSession(..)));
    assert!(given_up.is_some() && given_up < opening, "{:?}", desk.recent());
}

#[test]
fn an_entry_found_gone_by_a_renewal_ends_the_term() {
    let (mut desk, held) = Desk::leading(candidate());
    desk.pass(TTL / 3);
    assert_eq!(desk.renewal().unwrap().1, std::slice::from_ref(&held));
    let mut renewal = proof();
    renewal.gone.push(held);
    desk.renewed(Ok(renewal));
    assert!(desk.events().contains(&Event::Unelected(LossReason::EntryDeleted)));
}

#[test]
fn an_entry_that_a_renewal_did_not_prove_keeps_its_old_deadline() {
    let (mut desk, held) = Desk::leading(candidate());
    desk.pass(TTL / 3);
    let mut renewal = proof();
    renewal.unproven.push(held);
    desk.renewed(Ok(renewal));
    assert!(!desk.events().iter().any(|event| matches!(event, Event::Deadline(_))));
    desk.pass(TTL / 3);
    desk.renewed(Ok(proof()));
    assert!(desk.events().iter().any(|event| matches!(event, Event::Deadline(_))));
}

#[test]
fn a_renewal_proves_nothing_of_an_entry_that_was_being_enlisted() {
    let mut desk = Desk::standing(candidate());
    let held = desk.enlisted(5);
    desk.pass(TTL / 3 - Duration::from_secs(1));
    desk.answer(Err(Fault::OutcomeUnknown));
    desk.pass(Duration::from_secs(1));
    let (attempt, named) = desk.renewal().unwrap();
    assert_eq!(named, [], "nobody knows yet that the entry is there");
    desk.handle(Input::Renewed(attempt, Ok(proof())));
    // Of the enlistment that made the entry the answer is old: rivals may have seen it silent, and
    // evicted it.
    desk.now = desk.now + TTL / 3 - Duration::from_secs(1);
    desk.answer(Err(Fault::OutcomeUnknown));
    desk.pass(Duration::from_secs(1));
    desk.clear();
    desk.now = desk.now + TTL / 3 - Duration::from_secs(2);
    desk.answer(standing(Place::Leading(held.clone()), Office::default()));
    assert!(!desk.events().iter().any(|event| matches!(event, Event::Elected { .. })), "{:?}", desk.events());
    desk.renewed(Ok(proof()));
    assert!(!desk.events().iter().any(|event| matches!(event, Event::Elected { .. })), "{:?}", desk.events());
    let (_, named) = desk.renewal().unwrap();
    assert_eq!(named.as_slice(), std::slice::from_ref(&held), "the next one asks about it");
    desk.renewed(Ok(proof()));
    desk.answer(standing(Place::Leading(held), Office::default()));
    assert!(desk.events().iter().any(|event| matches!(event, Event::Elected { .. })), "{:?}", desk.events());
}

#[test]
fn a_leader_that_the_last_renewal_passed_over_is_renewed_at_once() {
    let mut desk = Desk::standing(candidate());
    desk.pass(TTL / 3 - Duration::from_secs(1));
    desk.answer(Err(Fault::OutcomeUnknown));
    desk.pass(Duration::from_secs(1));
    let held = desk.enlisted(5);
    let (passed_over, _) = desk.renewal().unwrap();
    desk.renewed(Ok(proof()));
    desk.answer(standing(Place::Leading(held.clone()), Office::default()));
    assert!(desk.events().iter().any(|event| matches!(event, Event::Elected { .. })), "{:?}", desk.events());
    let (attempt, named) = desk.renewal().unwrap();
    assert_ne!(attempt, passed_over);
    assert_eq!(named, [held]);
    desk.clear();
    desk.renewed(Ok(proof()));
    assert!(matches!(desk.recent(), [Output::Event(_, Event::Deadline(_))]), "{:?}", desk.recent());
}

#[test]
fn a_stray_entry_of_our_session_is_swept_away() {
    let (mut desk, _) = Desk::leading(candidate());
    desk.pass(TTL / 3);
    let stray = held_by_other(8);
    let mut renewal = proof();
    renewal.stray.push(stray.clone());
    desk.renewed(Ok(renewal));
    let (candidacy, _, op) = desk.call();
    assert_ne!(candidacy, CANDIDACY);
    assert_eq!(op, Op::Withdraw(stray, None));
    desk.answer(Ok(Answer::Cas(Cas::Done)));
    assert_eq!(desk.participant.candidacies(), 1);
}

#[test]
fn an_entry_of_an_earlier_incarnation_is_withdrawn_and_never_adopted() {
    let mut desk = Desk::standing(candidate());
    let stray = held_by_other(3);
    desk.answer(Err(Fault::AlreadyInLine(stray.clone())));
    assert_eq!(desk.call().2, Op::Withdraw(stray, None));
    desk.answer(Ok(Answer::Cas(Cas::Done)));
    assert!(matches!(desk.call().2, Op::Enlist(..)));
}

#[test]
fn a_silent_rival_is_evicted_when_its_ttl_has_passed_since_its_last_sign_of_life() {
    let mut desk = Desk::standing(candidate());
    let held = desk.enlisted(5);
    let mut ahead = other(4);
    ahead.observed = Some(Observed::new(TTL));
    desk.answer(standing(behind(&held, ahead.clone()), Office::default()));
    desk.pass(TTL - Duration::from_secs(1));
    // It shows life: the silence begins again, from when the answer is here.
    desk.wake();
    let renewed = at_version(77, ahead);
    desk.answer(standing(behind(&held, renewed.clone()), Office::default()));
    desk.clear();
    desk.pass(TTL);
    assert!(!desk.recent().iter().any(|output| matches!(output, Output::Call(_, _, _, Op::Evict(..)))));
    desk.pass(Duration::from_millis(100));
    // It may have renewed again: a look, and then the eviction.
    assert_eq!(desk.call().2, Op::Standing(held.clone(), Some(renewed.id.clone())));
    desk.answer(standing(behind(&held, renewed.clone()), Office::default()));
    assert_eq!(desk.call().2, Op::Evict(election(), Box::new(renewed)));
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
    let mut desk = Desk::standing(candidate());
    let held = desk.enlisted(5);
    // Both had their last beat a moment ago.
    desk.answer(standing(behind(&held, silent(4, Duration::ZERO)), Office::default()));
    let passed = TTL + Duration::from_millis(100);
    desk.pass(passed);
    desk.answer(standing(behind(&held, silent(4, passed)), Office::default()));
    assert_eq!(desk.call().2, Op::Evict(election(), Box::new(silent(4, passed))));
    desk.answer(Ok(Answer::Cas(Cas::Done)));
    desk.answer(standing(behind(&held, silent(3, passed)), Office::default()));
    assert_eq!(desk.call().2, Op::Evict(election(), Box::new(silent(3, passed))), "without waiting for another TTL");
}

#[test]
fn one_that_was_heard_of_a_moment_ago_is_left_alone_whatever_our_clock_shows() {
    let mut desk = Desk::standing(candidate());
    let held = desk.enlisted(5);
    desk.pass(TTL / 2);
    desk.answer(standing(behind(&held, silent(4, Duration::ZERO)), Office::default()));
    desk.clear();
    desk.pass(TTL - Duration::from_millis(1));
    assert!(!desk.recent().iter().any(|output| matches!(output, Output::Call(_, _, _, Op::Evict(..)))));
}

#[test]
fn a_look_that_finds_nothing_new_leaves_the_watch_as_it_is() {
    let mut desk = Desk::standing(candidate());
    let held = desk.enlisted(5);
    let office = Office { version: Version(3), ..Office::default() };
    desk.answer(standing(behind(&held, other(4)), office.clone()));
    desk.clear();
    let watches = |desk: &Desk| {
        let moves = |output: &&Output| matches!(output, Output::Watch { .. } | Output::Unwatch(_));
        desk.recent().iter().filter(moves).count()
    };
    desk.pass(TTL * 2 + TTL);
    desk.answer(standing(behind(&held, at_version(99, other(4))), office));
    assert_eq!(watches(&desk), 0, "{:?}", desk.recent());
    // A change whose hint was lost: the watch has had its say.
    desk.pass(TTL * 2 + TTL);
    desk.answer(standing(behind(&held, other(4)), Office { version: Version(4), ..Office::default() }));
    assert_eq!(watches(&desk), 2, "{:?}", desk.recent());
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
        let mut desk = Desk::new(Settings::for_ttl(ttl));
        desk.handle(Input::Stand(CANDIDACY, candidate()));
        desk.handle(Input::Opened(Attempt(0), Ok(Liveness::new(ttl))));
        let held = desk.enlisted(5);
        let mut beating = silent(4, ttl / 3);
        beating.observed.as_mut().unwrap().ttl = ttl;
        desk.answer(standing(behind(&held, beating.clone()), Office::default()));
        let renewal = showing(ttl, StillBehind::new(held.clone(), beating.clone(), Version::NONE));
        desk.pass(ttl / 3);
        // The look after enlisting may come before the first renewal.
        desk.answer(standing(behind(&held, beating.clone()), Office::default()));
        desk.renewed(Ok(renewal.clone()));
        let began = desk.now;
        for beat in 1..=60 {
            desk.clear();
            desk.now = desk.participant.poll_timeout().unwrap();
            desk.handle(Input::Tick);
            assert_eq!(desk.now, began + ttl / 3 * beat, "{ttl:?}: nothing but the heartbeat is due");
            assert!(matches!(desk.recent(), [Output::Renew { .. }]), "{ttl:?}: {:?}", desk.recent());
            desk.renewed(Ok(renewal.clone()));
        }
    }
}

#[test]
fn a_renewal_that_shows_another_one_ahead_or_another_record_changes_nothing() {
    for (ahead, office) in [(4, 4), (3, 3)] {
        let mut desk = Desk::standing(candidate());
        let held = desk.enlisted(5);
        let known = Office { version: Version(office), ..Office::default() };
        desk.answer(standing(behind(&held, silent(ahead, Duration::ZERO)), known));
        desk.pass(TTL / 3);
        let mut as_if_unsaid = desk.participant.clone();
        let (attempt, _) = desk.renewal().unwrap();
        as_if_unsaid.handle(desk.now, Input::Renewed(attempt, Ok(proof())));
        desk.renewed(Ok(still_behind(&held, Version(3))));
        assert_eq!(desk.participant, as_if_unsaid);
    }
}

#[test]
fn what_a_renewal_saw_does_not_stand_in_for_a_watch_that_was_lost() {
    let mut desk = Desk::standing(candidate());
    let held = desk.enlisted(5);
    desk.answer(standing(behind(&held, silent(4, Duration::ZERO)), Office::default()));
    desk.pass(TTL / 3);
    let (watch, _) = desk.watch();
    desk.handle(Input::Wake(CANDIDACY, watch, Hint::Lost));
    desk.clear();
    // It may have looked before the change that the watch did not tell.
    desk.renewed(Ok(still_behind(&held, Version::NONE)));
    desk.pass(TTL / 3);
    assert_eq!(desk.call().2, Op::Standing(held, Some(EntryId::new("4"))));
    assert_eq!(desk.calls(), 1);
}

#[test]
fn one_ahead_that_falls_silent_is_timed_from_its_last_beat_whatever_renewals_say() {
    let mut desk = Desk::standing(candidate());
    let held = desk.enlisted(5);
    desk.answer(standing(behind(&held, silent(4, Duration::ZERO)), Office::default()));
    let began = desk.now;
    for _ in 0..2 {
        desk.pass(TTL / 3);
        let ahead = silent(4, desk.now.since(began));
        desk.renewed(Ok(showing(TTL, StillBehind::new(held.clone(), ahead, Version::NONE))));
    }
    desk.clear();
    desk.pass(TTL / 3 + Duration::from_millis(100));
    let ahead = silent(4, desk.now.since(began));
    assert_eq!(desk.call().2, Op::Standing(held.clone(), Some(EntryId::new("4"))));
    desk.answer(standing(behind(&held, ahead.clone()), Office::default()));
    assert_eq!(desk.call().2, Op::Evict(election(), Box::new(ahead)));
}

fn handover(from: u64, heir: &Held) -> Handover {
    Handover {
        from: token(from),
        heir: Some(Heir { incarnation: heir.incarnation, entry: heir.entry.clone(), token: heir.token }),
        nonce: Nonce(42),
        within: Duration::from_secs(10),
        refused: None,
    }
}

fn with(handover: Handover) -> Office {
    Office { version: Version(3), handover: Some(handover), ..Office::default() }
}

#[test]
fn an_heir_says_that_it_is_ready_only_when_it_is_next() {
    let mut desk = Desk::standing(candidate());
    let held = desk.enlisted(5);
    let office = with(handover(1, &held));
    desk.answer(standing(behind(&held, other(3)), office.clone()));
    assert!(!matches!(desk.call().2, Op::Publish(..)), "3 stands between");
    desk.wake();
    desk.answer(standing(behind(&held, other(1)), office));
    assert!(matches!(desk.call().2, Op::Publish(ours, _, _, Some(Nonce(42))) if ours == held));
}

/// What others see in the place of an incarnation is the store's to choose.
#[test]
fn an_heir_knows_itself_by_its_entry_its_token_and_its_incarnation() {
    let says_ready = |change: &dyn Fn(&mut Held)| {
        let mut desk = Desk::standing(candidate());
        let held = desk.enlisted(5);
        let mut heir = held.clone();
        change(&mut heir);
        desk.answer(standing(behind(&held, other(1)), with(handover(1, &heir))));
        matches!(desk.call().2, Op::Publish(ours, _, _, Some(Nonce(42))) if ours == held)
    };
    assert!(says_ready(&|_| {}));
    assert!(!says_ready(&|heir| heir.entry = EntryId::new("7")));
    assert!(!says_ready(&|heir| heir.token = token(7)));
    // Another store may give the same token, and a name made of it, to somebody else.
    assert!(!says_ready(&|heir| heir.incarnation = Incarnation::from_bits(7)));
    // A leader that is told to hand over to itself says so.
    let (mut desk, held) = Desk::leading(candidate());
    let heir = Heir { incarnation: held.incarnation, entry: held.entry.clone(), token: held.token };
    desk.handle(Input::Command(CANDIDACY, Command::Transfer(Successor::Candidate(heir), TTL)));
    let refused = Event::TransferRefused(Refusal::LeadsAlready);
    assert!(desk.recent().iter().any(|output| matches!(output, Output::Event(_, event) if *event == refused)));
}

#[test]
fn one_between_steps_aside_once_and_only_for_a_leader_that_leads() {
    let heir = held_by_other(7);
    for (head, steps_aside) in [(1, true), (2, false)] {
        let mut desk = Desk::standing(candidate());
        let held = desk.enlisted(5);
        let office = with(handover(1, &heir));
        desk.answer(standing(behind(&held, other(3)), office.clone()));
        assert_eq!(desk.call().2, Op::Line(election(), 1));
        let line = Line::new(vec![other(head)], true, office.clone(), Cursor(8));
        desk.answer(Ok(Answer::Line(Box::new(line))));
        if !steps_aside {
            assert!(!matches!(desk.call().2, Op::Withdraw(..)), "the request is void");
            continue;
        }
        assert_eq!(desk.call().2, Op::Withdraw(held, None));
        desk.answer(Ok(Answer::Cas(Cas::Done)));
        let again = desk.enlisted(6);
        let calls = desk.calls();
        desk.answer(standing(behind(&again, other(3)), office));
        assert_eq!(desk.calls(), calls, "once for each request");
    }
}

#[test]
fn a_leader_hands_over_to_an_heir_that_is_next_and_ready_and_guards_the_last_step() {
    let (mut desk, held) = Desk::leading(candidate());
    let heir = held_by_other(7);
    desk.wake();
    desk.answer(standing(Place::Leading(held.clone()), with(handover(5, &heir))));
    assert!(matches!(desk.call().2, Op::Line(..)));
    let line = |ready| {
        let mut next = other(7);
        next.ready = ready;
        Line::new(vec![seen(&held), next], false, with(handover(5, &heir)), Cursor(8))
    };
    desk.answer(Ok(Answer::Line(Box::new(line(None)))));
    assert!(!desk.events().iter().any(|event| matches!(event, Event::Stopping { .. })), "the heir is not ready");
    let mut watched = Watched::new(held.clone(), Version(3));
    watched.heir = Some(heir.entry.clone());
    assert_eq!(desk.watch().1, WatchFor::Entry(Epoch(0), watched), "it will say so in its entry");
    desk.wake();
    desk.answer(standing(Place::Leading(held.clone()), with(handover(5, &heir))));
    desk.answer(Ok(Answer::Line(Box::new(line(Some(Nonce(42)))))));
    assert!(desk.events().iter().any(|event| matches!(event, Event::Stopping { why: LossReason::Transferred, .. })));
    desk.handle(Input::Command(CANDIDACY, Command::Release));
    assert_eq!(desk.call().2, Op::Withdraw(held.clone(), Some(heir.entry)));
    // The heir has vanished. The term is over all the same: make room.
    desk.answer(Ok(Answer::Cas(Cas::Refused)));
    assert_eq!(desk.call().2, Op::Withdraw(held, None));
}

#[test]
fn a_handover_that_was_meant_for_another_leader_is_void() {
    let (mut desk, held) = Desk::leading(candidate());
    let heir = held_by_other(7);
    desk.wake();
    let calls = desk.calls();
    desk.answer(standing(Place::Leading(held), with(handover(4, &heir))));
    assert_eq!(desk.calls(), calls);
    assert!(!desk.events().iter().any(|event| matches!(event, Event::Stopping { .. })));
}

#[test]
fn a_handover_to_somebody_who_left_is_refused_and_the_leader_leads_on() {
    let (mut desk, held) = Desk::leading(candidate());
    let heir = held_by_other(7);
    desk.wake();
    let office = with(handover(5, &heir));
    desk.answer(standing(Place::Leading(held.clone()), office.clone()));
    let line = Line::new(vec![seen(&held)], false, office, Cursor(8));
    desk.answer(Ok(Answer::Line(Box::new(line))));
    let (_, _, Op::SetOffice(_, was, to)) = desk.call() else { panic!("{:?}", desk.call()) };
    assert_eq!(was, Version(3));
    assert_eq!(to.handover.unwrap().refused, Some(Refusal::HeirGone));
    assert!(!desk.events().iter().any(|event| matches!(event, Event::Unelected(_))));
}

#[test]
fn a_tombstone_met_at_first_contact_is_somebody_elses_and_a_later_one_is_ours() {
    let ended =
        |id| Office { version: Version(id), ended: Some(Ended { id: Nonce(id), keep: TTL }), ..Office::default() };
    let mut desk = Desk::standing(candidate());
    let held = desk.enlisted(5);
    desk.answer(standing(behind(&held, other(4)), ended(1)));
    assert!(desk.events().contains(&Event::FirstContact(Some(Nonce(1)))));
    assert!(!desk.events().contains(&Event::Ended));
    desk.wake();
    desk.answer(standing(behind(&held, other(4)), ended(2)));
    assert_eq!(desk.call().2, Op::Withdraw(held, None));
    desk.answer(Ok(Answer::Cas(Cas::Done)));
    assert!(desk.events().ends_with(&[Event::Released, Event::Ended, Event::Done { certain: true }]));
    assert_eq!(desk.participant.candidacies(), 0);
}

#[test]
fn one_who_stands_after_one_who_leaves_waits_until_the_entry_is_gone() {
    let (mut desk, _) = Desk::leading(candidate());
    assert!(!desk.participant.may_stand(&election()));
    desk.handle(Input::Command(CANDIDACY, Command::Leave));
    assert!(desk.participant.may_stand(&election()));
    let calls = desk.calls();
    desk.handle(Input::Stand(CandidacyId(2), candidate()));
    assert_eq!(desk.calls(), calls, "one candidacy at a time");
    assert!(!desk.participant.may_stand(&election()));
    desk.handle(Input::Command(CANDIDACY, Command::Release));
    desk.answer(Ok(Answer::Cas(Cas::Done)));
    let (candidacy, _, op) = desk.call();
    assert_eq!(candidacy, CandidacyId(2));
    assert!(matches!(op, Op::Enlist(..)));
}

#[test]
fn closing_drains_leaders_withdraws_everyone_and_ends_the_session() {
    let (mut desk, _) = Desk::leading(candidate());
    desk.handle(Input::Close);
    assert!(desk.events().iter().any(|event| matches!(event, Event::Stopping { why: LossReason::Closing, .. })));
    desk.handle(Input::Command(CANDIDACY, Command::Release));
    desk.answer(Ok(Answer::Cas(Cas::Done)));
    assert!(matches!(desk.outputs[..], [.., Output::CloseSession(_), Output::Closed]), "{:?}", desk.outputs.last());
}

#[test]
fn a_held_place_stays_after_the_hard_stop_until_the_work_has_stopped() {
    let (mut desk, held) = Desk::leading(Candidate { hold_until_stopped: true, ..candidate() });
    desk.wake();
    desk.answer(standing(Place::Leading(held.clone()), paused()));
    let calls = desk.calls();
    desk.pass(TTL / 5);
    assert!(desk.events().contains(&Event::Unelected(LossReason::Paused)), "the grace is over");
    assert_eq!(desk.calls(), calls, "but the place is kept");
    desk.handle(Input::Command(CANDIDACY, Command::Release));
    assert_eq!(desk.call().2, Op::Withdraw(held, None));
}

#[test]
fn a_ttl_that_the_store_cannot_grant_safely_is_refused() {
    let mut desk = Desk::new(Settings::for_ttl(TTL));
    desk.handle(Input::Stand(CANDIDACY, candidate()));
    let short = Liveness::new(Duration::from_secs(4));
    desk.handle(Input::Opened(Attempt(0), Ok(short)));
    let refused = desk.outputs.iter().find_map(|output| match output {
        Output::SettingsRefused(error) => Some(error),
        _ => None,
    });
    let Some(SettingsError::Granted { asked, shortfall }) = refused else { panic!("{:?}", desk.outputs) };
    assert_eq!((*asked, shortfall.ttl), (TTL, short.ttl));
    assert!(desk.events().ends_with(&[Event::Failed, Event::Done { certain: true }]), "{:?}", desk.events());
}

#[test]
fn where_an_answer_proves_only_the_renewal_before_there_are_twice_as_many() {
    let settings = Settings::for_ttl(TTL);
    let earlier = Proof::Earlier { apart: Duration::ZERO, opening_proves: true };
    for (proof, first) in [(Proof::Answered, settings.renew_every), (earlier, settings.renew_every / 2)] {
        let mut desk = Desk::new(settings);
        desk.handle(Input::Stand(CANDIDACY, candidate()));
        desk.handle(Input::Opened(Attempt(0), Ok(proving(proof))));
        desk.pass(first - Duration::from_nanos(1));
        assert_eq!(desk.renewal(), None, "{proof:?}");
        desk.pass(Duration::from_nanos(1));
        assert!(desk.renewal().is_some(), "{proof:?}");
    }
}

/// The deadlines that the user of the candidacy was told, oldest first.
fn deadlines(desk: &Desk) -> Vec<Timestamp> {
    let told = desk.events().into_iter().filter_map(|event| match event {
        Event::Elected { deadline, .. } | Event::Deadline(deadline) => Some(deadline),
        _ => None,
    });
    told.collect()
}

fn opened_sessions(desk: &Desk) -> usize {
    desk.outputs.iter().filter(|output| matches!(output, Output::OpenSession(..))).count()
}

#[test]
fn a_session_whose_ttl_may_have_become_shorter_ends_its_terms_in_time_and_is_replaced() {
    let (mut desk, held) = Desk::leading(candidate());
    let was = *deadlines(&desk).last().unwrap();

    desk.handle(Input::Shortened(Epoch(0), TTL * 2 / 3));

    let is = *deadlines(&desk).last().unwrap();
    assert_eq!(was.since(is), TTL / 3 - TTL / 3000, "a third of the TTL, and of what drift may take of it");
    desk.pass(TTL / 3);
    desk.renewed(Ok(proof()));
    assert_eq!(*deadlines(&desk).last().unwrap(), is, "no renewal moves it any more");
    desk.pass(is.since(desk.now) - TTL / 5);
    assert!(matches!(desk.events().last(), Some(Event::Stopping { why: LossReason::LocalDeadline, .. })));
    desk.handle(Input::Command(CANDIDACY, Command::Release));
    assert_eq!(desk.call().2, Op::Withdraw(held, None));
    desk.answer(Ok(Answer::Cas(Cas::Done)));
    let calls = desk.calls();
    assert_eq!((opened_sessions(&desk), desk.events().last()), (1, Some(&Event::Released)), "its time has not come");
    desk.pass(is.since(desk.now));
    assert_eq!(desk.calls(), calls, "nobody goes back in line with it");
    let closed = desk.outputs.iter().position(|output| *output == Output::ReplaceSession(Epoch(0)));
    let opened = desk.outputs.iter().rposition(|output| matches!(output, Output::OpenSession(..)));
    assert!(closed.is_some() && closed < opened && opened_sessions(&desk) == 2, "{:?}", desk.outputs);
    desk.open();
    assert!(matches!(desk.call().2, Op::Enlist(..)));
}

#[test]
fn a_session_of_which_nothing_is_known_any_more_ends_its_terms_at_once() {
    let (mut desk, held) = Desk::leading(candidate());
    desk.handle(Input::Shortened(Epoch(0), Duration::ZERO));
    assert_eq!(desk.events().last(), Some(&Event::Unelected(LossReason::LocalDeadline)));
    assert_eq!((desk.call().2, opened_sessions(&desk)), (Op::Withdraw(held, None), 1), "its entry goes first");
    desk.answer(Err(Fault::Unavailable));
    assert_eq!(opened_sessions(&desk), 1);
    assert!(desk.participant.poll_timeout().unwrap() > desk.now, "it does not spin");
    desk.pass(TTL);
    desk.handle(Input::Command(CANDIDACY, Command::Release));
    desk.answer(Ok(Answer::Cas(Cas::Done)));
    assert!(desk.outputs.contains(&Output::ReplaceSession(Epoch(0))));
    assert_eq!(opened_sessions(&desk), 2);
}

#[test]
fn whoever_stands_while_a_session_is_being_replaced_waits_for_the_next() {
    let mut desk = Desk::standing(candidate());
    let held = desk.enlisted(5);
    desk.answer(standing(behind(&held, other(3)), Office::default()));
    desk.handle(Input::Shortened(Epoch(0), TTL / 2));
    desk.answer(Ok(Answer::Cas(Cas::Done)));
    let calls = desk.calls();
    let another = Candidate { election: ElectionName::new("another").unwrap(), ..candidate() };
    desk.handle(Input::Stand(CandidacyId(2), another));
    assert_eq!(desk.calls(), calls);
    desk.pass(TTL / 2);
    assert!(desk.outputs.contains(&Output::ReplaceSession(Epoch(0))), "nobody needs it");
    desk.open();
    assert_eq!(desk.calls(), calls + 2, "both enlist with the new one");
}

#[test]
fn the_ttl_of_an_earlier_session_is_of_no_interest() {
    let (mut desk, _) = Desk::leading(candidate());
    let outputs = desk.outputs.len();
    desk.handle(Input::Shortened(Epoch(7), Duration::ZERO));
    assert_eq!(desk.outputs.len(), outputs);
}

#[test]
fn where_the_opening_proves_nothing_office_is_taken_after_the_renewal_that_proves_it() {
    let apart = Duration::from_secs(1);
    let proof = Proof::Earlier { apart, opening_proves: false };
    let mut desk = Desk::new(Settings::for_ttl(TTL));
    desk.handle(Input::Stand(CANDIDACY, candidate()));
    desk.handle(Input::Opened(Attempt(0), Ok(proving(proof))));
    let held = desk.enlisted(5);
    let leading = || standing(Place::Leading(held.clone()), Office::default());
    desk.answer(leading());
    assert!(deadlines(&desk).is_empty(), "nothing is proven");
    assert_eq!(desk.renewal(), None, "a renewal would prove nothing yet");
    desk.pass(apart);
    desk.renewed(Ok(Renewal::alive(TTL)));
    assert_eq!(desk.call().2, Op::Standing(held.clone(), None));
    desk.answer(leading());
    assert!(matches!(desk.events().last(), Some(Event::Elected { .. })), "{:?}", desk.events());
}

#[test]
fn a_shorter_ttl_never_lengthens_what_was_proven_of_an_entry() {
    let (mut desk, held) = Desk::leading(candidate());
    desk.pass(TTL / 3);
    let (attempt, _) = desk.renewal().unwrap();
    // The session is proven, the entry is not.
    let mut renewal = proof();
    renewal.unproven.push(held);
    desk.handle(Input::Renewed(attempt, Ok(renewal)));
    let before = desk.outputs.iter().rev().find_map(|output| match output {
        Output::Event(_, Event::Elected { deadline, .. } | Event::Deadline(deadline)) => Some(*deadline),
        _ => None,
    });
    desk.clear();
    desk.handle(Input::Shortened(Epoch(0), TTL - Duration::from_secs(1)));
    let [Event::Deadline(after)] = desk.events()[..] else { panic!("{:?}", desk.events()) };
    assert!(Some(after) <= before, "{after:?} is later than {before:?}");
}

#[test]
fn a_session_is_replaced_only_when_no_entry_of_it_is_left_in_line() {
    let mut desk = Desk::standing(candidate());
    let held = desk.enlisted(5);
    desk.answer(standing(behind(&held, other(4)), Office::default()));
    desk.clear();
    desk.handle(Input::Shortened(Epoch(0), Duration::ZERO));
    assert_eq!(desk.call().2, Op::Withdraw(held, None));
    let replaced = |desk: &Desk| desk.recent().contains(&Output::ReplaceSession(Epoch(0)));
    desk.handle(Input::Command(CANDIDACY, Command::Leave));
    assert!(!replaced(&desk) && desk.events().is_empty(), "{:?}", desk.recent());
    desk.answer(Ok(Answer::Cas(Cas::Done)));
    assert!(replaced(&desk), "{:?}", desk.recent());
    assert!(desk.events().contains(&Event::Done { certain: true }));
}
