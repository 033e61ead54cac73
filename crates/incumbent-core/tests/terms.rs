//! Terms on record, driven by hand: opened before the leader is elected, closed after its work has
//! stopped and before its entry goes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test speaks by panicking")]

use std::time::Duration;

use bytes::Bytes;
use incumbent_core::*;

const TTL: Duration = Duration::from_secs(15);
const CANDIDACY: CandidacyId = CandidacyId(1);

/// When the store was told of an opening.
const OPENED_MS: u64 = 7000;

fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

fn election() -> ElectionName {
    ElectionName::new("e").unwrap()
}

fn origin() -> Origin {
    Origin::new("node-1", "boot", "4711").with_target("plug-7")
}

/// A participant with one candidate, the time, and what it has put out since it was last asked.
struct Driven {
    participant: Participant,
    now: Timestamp,
    outputs: Vec<Output>,
    call: Option<(CallId, Op)>,
}

impl Driven {
    /// A candidate that is enlisting, and the entry that it will have.
    fn enlisting(recorded: bool, hold_until_stopped: bool) -> (Driven, Held) {
        let candidate = Candidate {
            election: election(),
            name: "a".into(),
            value: Bytes::new(),
            fenced: false,
            hold_until_stopped,
            unfit: false,
            recorded,
            origin: origin().into(),
            first_contact: None,
        };
        let (participant, now) = (Participant::new(Settings::for_ttl(TTL), [1; 4]), Timestamp::ZERO + TTL);
        let mut driven = Driven { participant, now, outputs: Vec::new(), call: None };
        driven.handle(Input::Stand(CANDIDACY, candidate));
        driven.handle(Input::Opened(Attempt(0), Ok(Liveness::new(TTL))));
        let Some((_, Op::Enlist(_, entry))) = &driven.call else { panic!("{:?}", driven.call) };
        let held = Held::new(election(), EntryId::new("5"), token(5), entry.incarnation);
        (driven, held)
    }

    /// A leader whose term is on record, and what is on record.
    fn leading(hold_until_stopped: bool) -> (Driven, Held, Office) {
        let (mut driven, held) = Driven::enlisting(true, hold_until_stopped);
        driven.stands(Place::Leading(held.clone()), Office::default());
        let written = driven.written();
        let terms = written.terms.stamped(OPENED_MS);
        let office = written.with_version(Version(1)).with_terms(terms);
        driven.cas(Cas::Done);
        driven.stands(Place::Leading(held.clone()), office.clone());
        (driven, held, office)
    }

    fn handle(&mut self, input: Input) {
        self.participant.handle(self.now, input);
        while let Some(output) = self.participant.poll_output() {
            match &output {
                Output::Call(_, id, _, op) => self.call = Some((*id, op.clone())),
                Output::GiveUpCall(_) => self.call = None,
                _ => {}
            }
            self.outputs.push(output);
        }
    }

    fn answer(&mut self, answer: Result<Answer, Fault>) {
        let (id, _) = self.call.take().expect("a call is out");
        self.handle(Input::Answer(CANDIDACY, id, answer));
    }

    /// The standing that was asked for.
    fn stands(&mut self, place: Place, office: Office) {
        self.answer(Ok(Answer::Standing(Box::new(Standing::new(place, office, Cursor(7))))));
    }

    fn cas(&mut self, cas: Cas) {
        self.answer(Ok(Answer::Cas(cas)));
    }

    fn line(&mut self, office: Office) {
        self.answer(Ok(Answer::Line(Box::new(Line::new(Vec::new(), false, office, Cursor(7))))));
    }

    /// What the call that is out writes into the office record.
    fn written(&self) -> Office {
        let Some((_, Op::SetOffice(_, _, office))) = &self.call else { panic!("{:?}", self.call) };
        Office::clone(office)
    }

    /// The same of the term with token 5.
    fn end_written(&self) -> TermEnd {
        self.written().terms.get(token(5)).expect("our term").end.clone()
    }

    fn withdraws(&self) -> bool {
        matches!(self.call, Some((_, Op::Withdraw(..))))
    }

    fn release(&mut self) {
        self.handle(Input::Command(CANDIDACY, Command::Release));
    }

    /// What the user was told since this was last asked.
    fn told(&mut self) -> Vec<Event> {
        let event = |output| match output {
            Output::Event(_, event) => Some(event),
            _ => None,
        };
        std::mem::take(&mut self.outputs).into_iter().filter_map(event).collect()
    }

    fn is_elected(&mut self) -> bool {
        self.told().iter().any(|event| matches!(event, Event::Elected { .. }))
    }

    /// The session is gone, and with it the entry. Another is opened.
    fn loses_session(&mut self) {
        self.now = self.now + TTL / 3;
        self.handle(Input::Tick);
        let renewal = self.outputs.iter().rev().find_map(|output| match output {
            Output::Renew { attempt, .. } => Some(*attempt),
            _ => None,
        });
        self.handle(Input::Renewed(renewal.expect("a renewal is under way"), Err(Fault::SessionGone)));
        let opening = self.outputs.iter().rev().find_map(|output| match output {
            Output::OpenSession(attempt, _) => Some(*attempt),
            _ => None,
        });
        self.handle(Input::Opened(opening.expect("another session is wanted"), Ok(Liveness::new(TTL))));
    }
}

fn closed(why: LossReason, order: Order) -> TermEnd {
    TermEnd::Closed { why, order, at_ms: 0 }
}

#[test]
fn nobody_is_elected_before_its_term_is_open_in_the_record() {
    let (mut driven, held) = Driven::enlisting(true, false);
    driven.stands(Place::Leading(held.clone()), Office::default());
    let opened = TermRecord::open(token(5), held.incarnation, "a".into(), origin());
    assert_eq!(driven.written().terms, Terms::default().with(opened));
    assert!(!driven.is_elected());
    driven.cas(Cas::Done);
    assert!(driven.is_elected());
}

#[test]
fn a_candidate_that_does_not_ask_for_a_record_writes_none_and_goes_on_with_one_that_is_there() {
    let (mut driven, held) = Driven::enlisting(false, false);
    driven.stands(Place::Leading(held), Office::default());
    assert!(driven.is_elected());
    driven.release();
    assert!(driven.withdraws());

    let (mut driven, held) = Driven::enlisting(false, false);
    let before = TermRecord::unknown(token(3), None, "b".into());
    driven.stands(Place::Leading(held), Office::default().with_terms(Terms::default().with(before)));
    assert_eq!(driven.end_written(), TermEnd::Open);
    assert!(!driven.is_elected());
}

#[test]
fn an_opening_that_was_refused_or_not_answered_is_looked_for_before_it_is_repeated() {
    for answer in [Ok(Answer::Cas(Cas::Refused)), Err(Fault::OutcomeUnknown)] {
        let (mut driven, held) = Driven::enlisting(true, false);
        driven.stands(Place::Leading(held.clone()), Office::default());
        let office = driven.written().with_version(Version(2));
        driven.answer(answer);
        driven.now = driven.now + TTL / 5;
        driven.handle(Input::Tick);
        // It had got through.
        driven.stands(Place::Leading(held), office);
        assert!(driven.is_elected(), "{:?}", driven.call);
    }
}

#[test]
fn a_term_is_closed_when_its_work_has_stopped_and_only_then_the_entry_goes() {
    let (mut driven, _, _) = Driven::leading(false);
    driven.release();
    assert_eq!(driven.end_written(), closed(LossReason::Resigned, Order::default()));
    assert_eq!(driven.written().terms.get(token(5)).unwrap().opened_ms, OPENED_MS, "as it was written then");
    driven.cas(Cas::Done);
    assert!(driven.withdraws());
}

#[test]
fn the_record_says_by_whose_order_a_term_ended() {
    let (mut driven, held, office) = Driven::leading(false);
    let order = Order::new("ada@ops1", 7, "new disk");
    driven.handle(Input::Wake(CANDIDACY, watch(&driven), Hint::Changed));
    let paused = office.with_version(Version(2)).with_paused(Paused::new(order.clone()));
    driven.stands(Place::Leading(held), paused);
    driven.release();
    assert_eq!(driven.end_written(), closed(LossReason::Paused, order));
}

fn watch(driven: &Driven) -> WatchId {
    let watch = driven.outputs.iter().rev().find_map(|output| match output {
        Output::Watch { watch, .. } => Some(*watch),
        _ => None,
    });
    watch.expect("a watch is armed")
}

#[test]
fn a_closing_that_met_another_writer_is_repeated_with_what_that_one_wrote() {
    let (mut driven, _, office) = Driven::leading(false);
    driven.release();
    driven.cas(Cas::Refused);
    let paused = office.with_version(Version(9)).with_paused(Paused::new("why"));
    driven.line(paused.clone());
    assert_eq!(driven.written().paused, paused.paused);
    assert!(matches!(driven.end_written(), TermEnd::Closed { .. }));
}

#[test]
fn a_closing_that_had_got_through_is_not_repeated() {
    let (mut driven, _, _) = Driven::leading(false);
    driven.release();
    let office = driven.written().with_version(Version(9));
    driven.answer(Err(Fault::OutcomeUnknown));
    driven.now = driven.now + TTL / 5;
    driven.handle(Input::Tick);
    driven.cas(Cas::Refused);
    driven.line(office);
    assert!(driven.withdraws(), "{:?}", driven.call);
}

#[test]
fn a_hard_stop_closes_nothing_and_the_word_that_the_work_has_stopped_does_so_late() {
    let (mut driven, held, office) = Driven::leading(false);
    driven.handle(Input::Wake(CANDIDACY, watch(&driven), Hint::Changed));
    driven.stands(Place::Leading(held), office.with_version(Version(2)).with_paused(Paused::new("why")));
    driven.now = driven.now + TTL / 5;
    driven.handle(Input::Tick);
    assert!(driven.told().contains(&Event::Unelected(LossReason::Paused)), "the grace is over");
    assert!(driven.withdraws());
    driven.cas(Cas::Done);
    driven.release();
    assert_eq!(driven.end_written(), closed(LossReason::Paused, Order::from("why")));
}

#[test]
fn a_held_entry_stays_until_the_work_has_stopped_and_its_term_is_closed() {
    let (mut driven, held, office) = Driven::leading(true);
    driven.handle(Input::Wake(CANDIDACY, watch(&driven), Hint::Changed));
    driven.stands(Place::Leading(held), office.with_version(Version(2)).with_paused(Paused::new("why")));
    driven.now = driven.now + TTL / 5;
    driven.handle(Input::Tick);
    assert_eq!(driven.call, None, "the hard stop changes nothing in the store");
    driven.release();
    assert!(matches!(driven.end_written(), TermEnd::Closed { .. }));
    driven.cas(Cas::Done);
    assert!(driven.withdraws());
}

#[test]
fn a_former_leader_closes_its_term_late_before_it_stands_again() {
    let (mut driven, _, office) = Driven::leading(false);
    driven.loses_session();
    assert_eq!(driven.call, None, "its work has not stopped");
    driven.release();
    // Somebody else has led since.
    driven.cas(Cas::Refused);
    let next = TermRecord::open(token(6), Incarnation::from_bits(6), "b".into(), Origin::default());
    let since = office.terms.with(next.clone());
    driven.line(office.with_version(Version(9)).with_terms(since));
    assert_eq!(driven.end_written(), closed(LossReason::Expired, Order::default()));
    assert_eq!(driven.written().terms.get(token(6)), Some(&next));
    driven.cas(Cas::Done);
    assert!(matches!(driven.call, Some((_, Op::Enlist(..)))), "{:?}", driven.call);
}

#[test]
fn a_candidate_that_leaves_waits_for_the_word_that_its_last_work_has_stopped() {
    let (mut driven, _, _) = Driven::leading(false);
    driven.loses_session();
    driven.handle(Input::Command(CANDIDACY, Command::Leave));
    driven.told();
    driven.release();
    assert!(matches!(driven.end_written(), TermEnd::Closed { .. }));
    assert!(!driven.told().contains(&Event::Done { certain: true }));
    driven.cas(Cas::Done);
    assert!(driven.told().contains(&Event::Done { certain: true }));
}

#[test]
fn an_opening_that_may_still_come_is_kept_from_coming_by_a_term_that_never_was() {
    let (mut driven, held) = Driven::enlisting(true, false);
    driven.stands(Place::Leading(held), Office::default());
    driven.handle(Input::Command(CANDIDACY, Command::Leave));
    assert!(matches!(driven.end_written(), TermEnd::Closed { .. }), "compared with what the opening is compared with");
    driven.cas(Cas::Done);
    assert!(driven.withdraws());
    assert!(!driven.is_elected());
}

#[test]
fn nothing_is_written_of_a_term_that_is_no_longer_on_record() {
    let (mut driven, _, office) = Driven::leading(false);
    driven.loses_session();
    driven.release();
    driven.cas(Cas::Refused);
    // The election was ended, and its record went with it.
    driven.line(office.with_version(Version(9)).with_terms(Terms::default()));
    assert!(matches!(driven.call, Some((_, Op::Enlist(..)))), "{:?}", driven.call);
}

#[test]
fn one_that_followed_another_library_puts_on_record_that_it_does_not_know_how_that_ended() {
    let (mut driven, held) = Driven::enlisting(true, false);
    let mut foreign = Entry::new(EntryId::new("4"), token(4));
    foreign.version = Version(4);
    driven.stands(Place::behind(Some(held.clone()), foreign, None), Office::default());
    driven.handle(Input::Wake(CANDIDACY, watch(&driven), Hint::Changed));
    driven.stands(Place::Leading(held), Office::default());
    let terms = driven.written().terms;
    let ends: Vec<&TermEnd> = terms.iter().map(|term| &term.end).collect();
    assert_eq!(ends, [&TermEnd::Unknown, &TermEnd::Open]);
}

#[test]
fn a_record_that_may_not_be_written_bars_the_office_but_not_the_way_out() {
    let (mut driven, held) = Driven::enlisting(true, false);
    driven.stands(Place::Leading(held), Office::default());
    driven.answer(Err(Fault::Permanent));
    assert!(driven.withdraws(), "{:?}", driven.call);
    assert!(driven.told().contains(&Event::Failed));

    let (mut driven, _, _) = Driven::leading(false);
    driven.release();
    driven.answer(Err(Fault::Permanent));
    assert!(driven.withdraws(), "{:?}", driven.call);
    assert!(!driven.told().contains(&Event::Failed));
}

#[test]
fn a_last_term_that_is_open_is_looked_at_before_ours_is_opened_and_may_have_died() {
    for died in [false, true] {
        let (mut driven, held) = Driven::enlisting(true, false);
        let last = TermRecord::open(token(3), Incarnation::from_bits(3), "b".into(), origin());
        let older = TermRecord::open(token(2), Incarnation::from_bits(2), "c".into(), origin());
        let terms = Terms::default().with(older).with(last.clone());
        driven.stands(Place::Leading(held), Office::default().with_terms(terms));
        assert!(matches!(&driven.call, Some((_, Op::Examine(term))) if **term == last), "{:?}", driven.call);
        driven.answer(Ok(Answer::Examined { died }));
        let terms = driven.written().terms;
        let ends: Vec<&str> = terms.iter().map(|term| term.end.word()).collect();
        assert_eq!(ends, ["open", if died { "died" } else { "open" }, "open"]);
        driven.cas(Cas::Done);
        assert!(driven.is_elected());
    }
}
