//! Terms on record, driven by hand: opened before the leader is elected, closed after its work has
//! stopped and before its entry goes.

use std::time::Duration;

use incumbent_core::*;

use crate::driven::{CANDIDACY, Driven, TTL, election, token};

/// When the store was told of an opening.
const OPENED_MS: u64 = 7000;

fn origin() -> Origin {
    Origin::new("node-1", "boot", "4711").with_target("plug-7")
}

impl Driven {
    /// A candidate that is enlisting, and the entry that it will have.
    fn enlisting(recorded: bool, hold_until_stopped: bool) -> (Driven, Held) {
        Driven::enlisting_with(recorded, hold_until_stopped, None)
    }

    /// The same; it may be one that stops the work of the last leader from outside.
    fn enlisting_with(recorded: bool, hold_until_stopped: bool, fence_delay: Option<Duration>) -> (Driven, Held) {
        let origin = origin().into();
        let candidate =
            Candidate { hold_until_stopped, recorded, fence_delay, origin, ..Candidate::new(election(), "a") };
        let driven = Driven::standing(candidate);
        let held = driven.enlisted(5);
        (driven, held)
    }

    /// A leader whose term is on record, and what is on record.
    fn on_record(hold_until_stopped: bool) -> (Driven, Held, Office) {
        let (mut driven, held) = Driven::enlisting(true, hold_until_stopped);
        driven.stands(Place::Leading(held.clone()), Office::default());
        let written = driven.written();
        let terms = written.terms.stamped(OPENED_MS);
        let office = written.with_version(Version(1)).with_terms(terms);
        driven.cas(Cas::Done);
        driven.stands(Place::Leading(held.clone()), office.clone());
        (driven, held, office)
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
        self.command(Command::Release);
    }

    /// What was put out since this was last asked.
    fn take(&mut self) -> Vec<Output> {
        let recent = self.recent().to_vec();
        self.clear();
        recent
    }

    /// What the user was told since this was last asked.
    fn told(&mut self) -> Vec<Event> {
        let events = self.events();
        self.clear();
        events
    }

    /// What it was told of the last term, when it was elected.
    fn last_term(&self) -> Option<LastTerm> {
        self.events().into_iter().find_map(|event| match event {
            Event::Elected { last_term, .. } => Some(last_term),
            _ => None,
        })
    }

    fn was_elected(&mut self) -> bool {
        let elected = self.is_elected();
        self.clear();
        elected
    }

    /// The session is gone, and with it the entry. Another is opened.
    fn loses_session(&mut self) {
        self.pass(TTL / 3);
        self.renewed(Err(Fault::SessionGone));
        self.open();
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
    assert!(!driven.was_elected());
    driven.cas(Cas::Done);
    assert!(driven.was_elected());
}

#[test]
fn a_candidate_that_does_not_ask_for_a_record_writes_none_and_goes_on_with_one_that_is_there() {
    let (mut driven, held) = Driven::enlisting(false, false);
    driven.stands(Place::Leading(held), Office::default());
    assert!(driven.was_elected());
    driven.release();
    assert!(driven.withdraws());

    let (mut driven, held) = Driven::enlisting(false, false);
    let before = TermRecord::unknown(token(3), None, "b".into());
    driven.stands(Place::Leading(held), Office::default().with_terms(Terms::default().with(before)));
    assert_eq!(driven.end_written(), TermEnd::Open);
    assert!(!driven.was_elected());
}

#[test]
fn an_opening_that_was_refused_or_not_answered_is_looked_for_before_it_is_repeated() {
    for answer in [Ok(Answer::Cas(Cas::Refused)), Err(Fault::OutcomeUnknown)] {
        let (mut driven, held) = Driven::enlisting(true, false);
        driven.stands(Place::Leading(held.clone()), Office::default());
        let office = driven.written().with_version(Version(2));
        driven.answer(answer);
        driven.pass(TTL / 5);
        // It had got through.
        driven.stands(Place::Leading(held), office);
        assert!(driven.was_elected(), "{:?}", driven.call);
    }
}

#[test]
fn a_term_is_closed_when_its_work_has_stopped_and_only_then_the_entry_goes() {
    let (mut driven, _, _) = Driven::on_record(false);
    driven.release();
    assert_eq!(driven.end_written(), closed(LossReason::Resigned, Order::default()));
    assert_eq!(driven.written().terms.get(token(5)).unwrap().opened_ms, OPENED_MS, "as it was written then");
    driven.cas(Cas::Done);
    assert!(driven.withdraws());
}

#[test]
fn the_record_says_by_whose_order_a_term_ended() {
    let (mut driven, held, office) = Driven::on_record(false);
    let order = Order::new("ada@ops1", 7, "new disk");
    driven.wake();
    let paused = office.with_version(Version(2)).with_paused(Paused::new(order.clone()));
    driven.stands(Place::Leading(held), paused);
    driven.release();
    assert_eq!(driven.end_written(), closed(LossReason::Paused, order));
}

#[test]
fn a_closing_that_met_another_writer_is_repeated_with_what_that_one_wrote() {
    let (mut driven, _, office) = Driven::on_record(false);
    driven.release();
    driven.cas(Cas::Refused);
    let paused = office.with_version(Version(9)).with_paused(Paused::new("why"));
    driven.line(paused.clone());
    assert_eq!(driven.written().paused, paused.paused);
    assert!(matches!(driven.end_written(), TermEnd::Closed { .. }));
}

#[test]
fn a_closing_that_had_got_through_is_not_repeated() {
    let (mut driven, _, _) = Driven::on_record(false);
    driven.release();
    let office = driven.written().with_version(Version(9));
    driven.answer(Err(Fault::OutcomeUnknown));
    driven.pass(TTL / 5);
    driven.cas(Cas::Refused);
    driven.line(office);
    assert!(driven.withdraws(), "{:?}", driven.call);
}

#[test]
fn a_hard_stop_closes_nothing_and_the_word_that_the_work_has_stopped_does_so_late() {
    let (mut driven, held, office) = Driven::on_record(false);
    driven.wake();
    driven.stands(Place::Leading(held), office.with_version(Version(2)).with_paused(Paused::new("why")));
    driven.pass(TTL / 5);
    assert!(driven.told().contains(&Event::Unelected(LossReason::Paused)), "the grace is over");
    assert!(driven.withdraws());
    driven.cas(Cas::Done);
    driven.release();
    assert_eq!(driven.end_written(), closed(LossReason::Paused, Order::from("why")));
}

#[test]
fn a_held_entry_stays_until_the_work_has_stopped_and_its_term_is_closed() {
    let (mut driven, held, office) = Driven::on_record(true);
    driven.wake();
    driven.stands(Place::Leading(held), office.with_version(Version(2)).with_paused(Paused::new("why")));
    driven.pass(TTL / 5);
    let Some((_, Op::Publish(.., said))) = &driven.call else { panic!("{:?}", driven.call) };
    assert!(said.merit.holding, "the hard stop changes nothing else in the store");
    driven.release();
    assert!(matches!(driven.end_written(), TermEnd::Closed { .. }));
    driven.cas(Cas::Done);
    assert!(driven.withdraws());
}

#[test]
fn a_former_leader_closes_its_term_late_before_it_stands_again() {
    let (mut driven, _, office) = Driven::on_record(false);
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
    let (mut driven, _, _) = Driven::on_record(false);
    driven.loses_session();
    driven.command(Command::Leave);
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
    driven.command(Command::Leave);
    assert!(matches!(driven.end_written(), TermEnd::Closed { .. }), "compared with what the opening is compared with");
    driven.cas(Cas::Done);
    assert!(driven.withdraws());
    assert!(!driven.was_elected());
}

#[test]
fn nothing_is_written_of_a_term_that_is_no_longer_on_record() {
    let (mut driven, _, office) = Driven::on_record(false);
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
    driven.wake();
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

    let (mut driven, _, _) = Driven::on_record(false);
    driven.release();
    driven.answer(Err(Fault::Permanent));
    assert!(driven.withdraws(), "{:?}", driven.call);
    assert!(!driven.told().contains(&Event::Failed));
}

/// Lets time pass until the next tick is due, and no longer.
fn tick(driven: &mut Driven) {
    driven.now = driven.participant.poll_timeout().expect("something is due").max(driven.now);
    driven.handle(Input::Tick);
}

#[test]
fn an_entry_waits_for_a_renewal_interval_for_its_term_to_be_closed_and_then_goes() {
    for fault in [Some(Fault::Unavailable), None] {
        let (mut driven, _, _) = Driven::on_record(false);
        driven.release();
        let since = driven.now;
        while !driven.withdraws() {
            match (&driven.call, fault.clone()) {
                (Some(_), Some(fault)) => driven.answer(Err(fault)),
                _ => tick(&mut driven),
            }
        }
        let waited = driven.now.since(since);
        assert!(waited >= TTL / 3 && waited < TTL / 2, "{fault:?}: {waited:?}");
        driven.cas(Cas::Done);
        assert!(matches!(driven.end_written(), TermEnd::Closed { .. }), "late: {:?}", driven.call);
        assert!(driven.told().contains(&Event::Released));
    }
}

#[test]
fn one_that_cannot_close_its_term_stands_again_and_closes_it_with_the_next() {
    let (mut driven, _, office) = Driven::on_record(false);
    driven.loses_session();
    driven.release();
    driven.answer(Err(Fault::Unavailable));
    let Some((_, Op::Enlist(_, entry))) = &driven.call else { panic!("{:?}", driven.call) };
    let held = Held::new(election(), EntryId::new("6"), token(6), entry.incarnation);
    driven.stands(Place::Leading(held), office.with_version(Version(9)));
    let terms = driven.written().terms;
    let ends: Vec<&str> = terms.iter().map(|term| term.end.word()).collect();
    assert_eq!(ends, ["closed", "open"], "nobody has to be asked about a term of ours");
    driven.cas(Cas::Done);
    assert!(driven.was_elected());
}

#[test]
fn one_that_waits_in_line_closes_its_last_term_as_soon_as_it_can() {
    let (mut driven, _, office) = Driven::on_record(false);
    driven.loses_session();
    driven.release();
    driven.answer(Err(Fault::Unavailable));
    let Some((_, Op::Enlist(_, entry))) = &driven.call else { panic!("{:?}", driven.call) };
    let held = Held::new(election(), EntryId::new("7"), token(7), entry.incarnation);
    let ahead = Entry::new(EntryId::new("6"), token(6));
    driven.stands(Place::behind(Some(held), ahead, None), office);
    assert_eq!(driven.call, None, "it rests from the last try");
    tick(&mut driven);
    assert!(matches!(driven.end_written(), TermEnd::Closed { .. }));
}

#[test]
fn one_that_leaves_gives_up_after_a_ttl_and_says_which_term_stays_open() {
    let (mut driven, _, _) = Driven::on_record(false);
    driven.loses_session();
    driven.command(Command::Leave);
    driven.release();
    driven.told();
    let since = driven.now;
    let told = loop {
        match driven.call {
            Some(_) => driven.answer(Err(Fault::Unavailable)),
            None => tick(&mut driven),
        }
        let told = driven.told();
        if told.contains(&Event::Done { certain: true }) {
            break told;
        }
    };
    let waited = driven.now.since(since);
    assert!(waited >= TTL && waited < TTL * 3 / 2, "{waited:?}");
    assert!(told.contains(&Event::LeftOpen(token(5))), "{told:?}");
}

#[test]
fn a_record_that_takes_no_opening_is_tried_with_growing_rests_until_there_is_room_for_the_next() {
    let (mut driven, held) = Driven::enlisting(true, false);
    let since = driven.now;
    let mut tries = 0;
    while !driven.withdraws() {
        match &driven.call {
            Some((_, Op::SetOffice(..))) => {
                tries += 1;
                driven.answer(Err(Fault::Unavailable));
            }
            Some(_) => driven.stands(Place::Leading(held.clone()), Office::default()),
            None => {
                tick(&mut driven);
                let renewal = driven.take().into_iter().find_map(|output| match output {
                    Output::Renew { attempt, .. } => Some(attempt),
                    _ => None,
                });
                if let Some(attempt) = renewal {
                    driven.handle(Input::Renewed(attempt, Ok(Renewal::alive(TTL))));
                }
            }
        }
    }
    let waited = driven.now.since(since);
    // A renewal interval more: the last try may have got through, and would have to be closed.
    assert!(waited >= TTL * 4 / 3 && waited < TTL * 5 / 3, "{waited:?}");
    assert!((5..25).contains(&tries), "{tries} tries within a TTL");
}

#[test]
fn a_record_full_of_terms_with_higher_tokens_keeps_nobody_from_office() {
    let (mut driven, held) = Driven::enlisting(true, false);
    let copied = (0..MAX_TERMS as u64).map(|number| TermRecord::unknown(token(1_000 + number), None, "c".into()));
    let terms = copied.fold(Terms::default(), |all, term| all.with(term));
    driven.stands(Place::Leading(held), Office::default().with_terms(terms.clone()));
    let written: Vec<TermRecord> = driven.written().terms.iter().cloned().collect();
    let kept: Vec<TermRecord> = terms.iter().skip(1).cloned().collect();
    assert_eq!(written[..MAX_TERMS - 1], kept, "one makes room, as ever");
    assert_eq!(driven.end_written(), TermEnd::Open);
    driven.cas(Cas::Done);
    assert!(driven.was_elected());
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
        assert!(driven.was_elected());
    }
}

#[test]
fn a_leader_is_told_how_the_last_term_ended_as_the_record_says() {
    let open = || TermRecord::open(token(3), Incarnation::from_bits(3), "b".into(), origin());
    let unknown = || TermRecord::unknown(token(3), None, "b".into());
    let shot = |result| Shot::claimed(token(4), 1).ended(result);
    for (last, told, word) in [
        (None, LastTerm::None, "none"),
        (Some(open().ended(closed(LossReason::Resigned, Order::default()))), LastTerm::Closed, "closed"),
        (Some(open().ended(TermEnd::Died { at_ms: 1 })), LastTerm::Died, "died"),
        (Some(open().with_fence(shot(ShotResult::Stopped))), LastTerm::Fenced, "fenced"),
        (Some(open().with_fence(shot(ShotResult::Released))), LastTerm::Fenced, "fenced"),
        (Some(unknown().with_fence(shot(ShotResult::Released))), LastTerm::Fenced, "fenced"),
        (Some(open()), LastTerm::Unfenced, "unfenced"),
        (Some(open().with_fence(shot(ShotResult::Claimed))), LastTerm::Unfenced, "unfenced"),
        (Some(unknown().with_fence(shot(ShotResult::TimedOut))), LastTerm::Unfenced, "unfenced"),
        (Some(unknown()), LastTerm::Unknown, "unknown"),
    ] {
        let (mut driven, held) = Driven::enlisting(true, false);
        let older = TermRecord::unknown(token(2), None, "c".into());
        let terms = last.map(|last| Terms::default().with(older).with(last)).unwrap_or_default();
        driven.stands(Place::Leading(held), Office::default().with_terms(terms));
        if let Some((_, Op::Examine(_))) = driven.call {
            driven.answer(Ok(Answer::Examined { died: false }));
        }
        driven.cas(Cas::Done);
        assert_eq!((driven.last_term(), told.word()), (Some(told), word));
    }
}

#[test]
fn what_becomes_of_the_last_leader_before_office_is_what_its_successor_is_told() {
    let (mut driven, held) = Driven::enlisting(true, false);
    driven.stands(Place::Leading(held), Office::default().with_terms(Terms::default().with(at_large())));
    driven.answer(Ok(Answer::Examined { died: true }));
    driven.cas(Cas::Done);
    assert_eq!(driven.last_term(), Some(LastTerm::Died));

    for (result, told) in [
        (ShotResult::Stopped, LastTerm::Fenced),
        (ShotResult::Failed, LastTerm::Unfenced),
        (ShotResult::TimedOut, LastTerm::Unfenced),
    ] {
        let (mut driven, held, office) = Driven::fencing(at_large());
        let claimed = driven.claims(&held, &office);
        driven.answer(Ok(Answer::Shot { result, again: None, why: "".into() }));
        driven.stands(Place::Leading(held), claimed);
        driven.cas(Cas::Done);
        assert_eq!(driven.last_term(), Some(told), "{result:?}");
    }
}

#[test]
fn where_no_record_is_kept_nobody_knows_how_the_last_term_ended() {
    let (mut driven, held) = Driven::enlisting(false, false);
    driven.stands(Place::Leading(held), Office::default());
    assert_eq!(driven.last_term(), Some(LastTerm::Unknown));
}

const DELAY: Duration = Duration::from_secs(8);

/// The last term: of another host, which crashed with it.
fn at_large() -> TermRecord {
    TermRecord::open(token(3), Incarnation::from_bits(3), "b".into(), origin())
}

impl Driven {
    /// One that stops the work of the last leader from outside, first in line after that one.
    fn fencing(last: TermRecord) -> (Driven, Held, Office) {
        let (mut driven, held) = Driven::enlisting_with(true, false, Some(DELAY));
        let office = Office::default().with_version(Version(1)).with_terms(Terms::default().with(last));
        driven.stands(Place::Leading(held.clone()), office.clone());
        if let Some((_, Op::Examine(_))) = driven.call {
            driven.answer(Ok(Answer::Examined { died: false }));
        }
        (driven, held, office)
    }

    /// Lets so much time pass, renews the session meanwhile, and answers every look.
    fn passes(&mut self, time: Duration, held: &Held, office: &Office) {
        let until = self.now + time;
        loop {
            match self.call {
                Some((_, Op::Standing(..))) => self.stands(Place::Leading(held.clone()), office.clone()),
                Some((_, Op::Examine(_))) => self.answer(Ok(Answer::Examined { died: false })),
                _ => {}
            }
            if let Some((_, Op::Standing(..) | Op::Examine(_))) = self.call {
                continue;
            }
            let renewals: Vec<Attempt> = self
                .take()
                .into_iter()
                .filter_map(|output| match output {
                    Output::Renew { attempt, .. } => Some(attempt),
                    _ => None,
                })
                .collect();
            if let Some(attempt) = renewals.last() {
                self.handle(Input::Renewed(*attempt, Ok(Renewal::alive(TTL))));
                continue;
            }
            match self.participant.poll_timeout() {
                Some(at) if at <= until && !matches!(self.call, Some((_, Op::SetOffice(..)))) => {
                    self.now = at.max(self.now);
                    self.handle(Input::Tick);
                }
                _ => break,
            }
        }
        // What is written is answered when it is asked for.
        if !matches!(self.call, Some((_, Op::SetOffice(..)))) {
            self.now = until;
        }
    }

    /// What the call that is out writes of the shot at the last term.
    fn shot_written(&self) -> Option<Shot> {
        self.written().terms.get(token(3)).expect("the last term").fence.clone()
    }

    /// The shot that is out: which attempt it is.
    fn fires(&self) -> Option<u32> {
        match &self.call {
            Some((_, Op::Shoot(term, attempt))) if term.token == token(3) => Some(*attempt),
            _ => None,
        }
    }

    /// Waits out the delay, and claims: the record as it is then.
    fn claims(&mut self, held: &Held, office: &Office) -> Office {
        self.passes(DELAY, held, office);
        let claimed = self.written().with_version(Version(2));
        self.cas(Cas::Done);
        claimed
    }
}

#[test]
fn the_work_of_a_last_leader_that_did_not_close_its_term_is_stopped_before_office() {
    let (mut driven, held, office) = Driven::fencing(at_large());
    assert_eq!(driven.call, None, "it may still be closed late");
    driven.passes(DELAY - TTL / 100, &held, &office);
    assert_eq!(driven.call, None);
    driven.passes(TTL / 50, &held, &office);
    assert_eq!(driven.shot_written(), Some(Shot::claimed(held.token, 1)));
    assert_eq!(driven.fires(), None, "not before it is on record who does it");
    let claimed = driven.written().with_version(Version(2));
    driven.cas(Cas::Done);
    assert_eq!(driven.fires(), Some(1));
    driven.answer(Ok(Answer::Shot { result: ShotResult::Stopped, again: None, why: "".into() }));
    assert!(!driven.was_elected(), "it looks again first");
    driven.stands(Place::Leading(held.clone()), claimed);
    assert_eq!(driven.shot_written(), Some(Shot::claimed(held.token, 1).ended(ShotResult::Stopped)));
    assert_eq!(driven.end_written(), TermEnd::Open, "in the same step");
    driven.cas(Cas::Done);
    assert!(driven.was_elected());
}

#[test]
fn fences_are_raised_before_the_work_of_the_last_leader_is_stopped() {
    let fence_delay = Some(Duration::ZERO);
    let candidate = Candidate { fenced: true, recorded: true, fence_delay, ..Candidate::new(election(), "a") };
    let mut driven = Driven::standing(candidate);
    let held = driven.enlisted(5);
    let office = Office::default().with_version(Version(1)).with_terms(Terms::default().with(at_large()));
    driven.stands(Place::Leading(held.clone()), office);
    assert!(matches!(driven.call, Some((_, Op::RaiseFences(raised))) if raised == held.token), "{:?}", driven.call);
    driven.answer(Ok(Answer::Raised));
    driven.answer(Ok(Answer::Examined { died: false }));
    assert_eq!(driven.shot_written(), Some(Shot::claimed(held.token, 1)));
    let claimed = driven.written().with_version(Version(2));
    driven.cas(Cas::Done);
    assert_eq!(driven.fires(), Some(1));
    driven.answer(Ok(Answer::Shot { result: ShotResult::Stopped, again: None, why: "".into() }));
    driven.stands(Place::Leading(held), claimed);
    assert!(matches!(driven.call, Some((_, Op::RaiseFences(_)))), "and again for the office: {:?}", driven.call);
}

#[test]
fn a_last_term_that_is_closed_late_is_not_shot_at() {
    let (mut driven, held, office) = Driven::fencing(at_large());
    driven.passes(DELAY / 2, &held, &office);
    let closed = at_large().ended(closed(LossReason::Expired, Order::default()));
    let since = office.with_version(Version(2)).with_terms(Terms::default().with(closed));
    driven.passes(DELAY, &held, &since);
    assert_eq!(driven.shot_written(), None);
    driven.cas(Cas::Done);
    assert!(driven.was_elected());
}

#[test]
fn a_shot_takes_as_long_as_it_takes_and_is_fired_once() {
    let (mut driven, held, office) = Driven::fencing(at_large());
    let claimed = driven.claims(&held, &office);
    let (call, _) = driven.call.clone().expect("the shot");
    driven.passes(TTL * 4, &held, &claimed);
    assert_eq!(driven.call.as_ref().map(|(id, _)| *id), Some(call), "neither given up nor begun anew");
    driven.answer(Ok(Answer::Shot { result: ShotResult::Stopped, again: None, why: "".into() }));
    driven.stands(Place::Leading(held), claimed);
    driven.cas(Cas::Done);
    assert!(driven.was_elected());
}

#[test]
fn a_shot_that_failed_is_on_record_and_tried_again_after_a_while() {
    let (mut driven, held, office) = Driven::fencing(at_large());
    let claimed = driven.claims(&held, &office);
    driven.answer(Ok(Answer::Shot { result: ShotResult::Failed, again: Some(TTL * 2), why: "it is locked".into() }));
    driven.stands(Place::Leading(held.clone()), claimed);
    let why = Order::new("", 0, "it is locked");
    assert_eq!(driven.shot_written(), Some(Shot::claimed(held.token, 1).ended(ShotResult::Failed).ordered(why)));
    assert!(driven.written().terms.get(held.token).is_none(), "it is not in office");
    let failed = driven.written().with_version(Version(3));
    driven.cas(Cas::Done);
    driven.passes(TTL * 2 - TTL / 100, &held, &failed);
    assert_eq!((driven.fires(), driven.withdraws()), (None, false), "it stays where it is: {:?}", driven.call);
    driven.passes(TTL / 50, &held, &failed);
    assert_eq!(driven.shot_written(), Some(Shot::claimed(held.token, 2)));
}

#[test]
fn one_that_goes_on_without_having_stopped_the_last_leader_says_so_in_the_record() {
    let (mut driven, held, office) = Driven::fencing(at_large());
    let claimed = driven.claims(&held, &office);
    driven.answer(Ok(Answer::Shot { result: ShotResult::TimedOut, again: None, why: "".into() }));
    driven.stands(Place::Leading(held.clone()), claimed);
    assert_eq!(driven.shot_written(), Some(Shot::claimed(held.token, 1).ended(ShotResult::TimedOut)));
    assert_eq!(driven.end_written(), TermEnd::Open);
}

#[test]
fn a_claim_of_another_counts_since_its_shot_may_have_been_fired() {
    let (mut driven, held, office) = Driven::fencing(at_large().with_fence(Shot::claimed(token(4), 1)));
    driven.claims(&held, &office);
    assert_eq!(driven.fires(), Some(2));
}

#[test]
fn what_is_known_to_have_stopped_is_not_shot_at() {
    let by_word = Shot::claimed(token(4), 1).ended(ShotResult::Released);
    let by_shot = Shot::claimed(token(4), 1).ended(ShotResult::Stopped);
    for last in
        [at_large().with_fence(by_word), at_large().with_fence(by_shot), at_large().ended(TermEnd::Died { at_ms: 1 })]
    {
        let (mut driven, _, _) = Driven::fencing(last);
        assert_eq!(driven.end_written(), TermEnd::Open);
        driven.cas(Cas::Done);
        assert!(driven.was_elected());
    }
    let (mut driven, held) = Driven::enlisting_with(true, false, Some(DELAY));
    driven.stands(Place::Leading(held), Office::default().with_terms(Terms::default().with(at_large())));
    driven.answer(Ok(Answer::Examined { died: true }));
    assert_eq!(driven.end_written(), TermEnd::Open, "the kernel says that nothing of it is left");
}

#[test]
fn the_operators_word_ends_the_wait_after_a_shot_that_failed() {
    let (mut driven, held, office) = Driven::fencing(at_large());
    let claimed = driven.claims(&held, &office);
    driven.answer(Ok(Answer::Shot { result: ShotResult::Failed, again: Some(TTL * 100), why: "".into() }));
    driven.stands(Place::Leading(held.clone()), claimed);
    let failed = driven.written().with_version(Version(3));
    driven.cas(Cas::Done);
    driven.passes(TTL, &held, &failed);
    let released = Shot::claimed(held.token, 1).ended(ShotResult::Released);
    let word = failed.with_version(Version(4)).with_terms(Terms::default().with(at_large().with_fence(released)));
    driven.passes(TTL, &held, &word);
    assert_eq!(driven.end_written(), TermEnd::Open);
}

#[test]
fn one_that_leaves_gives_its_shot_up_and_the_claim_stays() {
    let (mut driven, held, office) = Driven::fencing(at_large());
    driven.claims(&held, &office);
    driven.command(Command::Leave);
    assert!(driven.recent().contains(&Output::GiveUpCall(CANDIDACY)));
    assert!(driven.withdraws(), "{:?}", driven.call);
}

#[test]
fn a_leader_of_another_library_is_put_on_record_with_the_claim() {
    let (mut driven, held) = Driven::enlisting_with(true, false, Some(DELAY));
    let mut foreign = Entry::new(EntryId::new("3"), token(3));
    foreign.version = Version(4);
    driven.stands(Place::behind(Some(held.clone()), foreign, None), Office::default());
    driven.wake();
    driven.stands(Place::Leading(held.clone()), Office::default());
    driven.claims(&held, &Office::default());
    assert_eq!(driven.fires(), Some(1), "{:?}", driven.call);
}

impl Driven {
    /// Goes on for so long: renews the session, answers looks and writes, and every shot like this.
    /// How many shots and how many writes there were.
    fn goes_on(&mut self, time: Duration, held: &Held, office: Office, shot: &Result<Answer, Fault>) -> (u32, u32) {
        let (until, mut office, mut shots, mut writes) = (self.now + time, office, 0, 0);
        while self.now < until && shots + writes < 1000 {
            match self.call.clone() {
                Some((_, Op::Shoot(..))) => {
                    shots += 1;
                    self.answer(shot.clone());
                }
                Some((_, Op::SetOffice(..))) => {
                    writes += 1;
                    office = self.written().with_version(Version(u64::from(writes) + 10));
                    self.cas(Cas::Done);
                }
                Some((_, Op::Standing(..))) => self.stands(Place::Leading(held.clone()), office.clone()),
                Some((_, Op::Examine(_))) => self.answer(Ok(Answer::Examined { died: false })),
                other => {
                    assert!(other.is_none(), "{other:?}");
                    self.passes_one();
                }
            }
        }
        (shots, writes)
    }
}

#[test]
fn a_shot_that_ends_without_an_answer_is_not_fired_again_before_a_ttl_has_passed() {
    let (mut driven, held, office) = Driven::fencing(at_large());
    let office = driven.claims(&held, &office);
    let (shots, _) = driven.goes_on(TTL * 4, &held, office, &Err(Fault::OutcomeUnknown));
    assert!((2..=5).contains(&shots), "{shots}");
}

#[test]
fn a_shot_is_given_up_when_nothing_proves_any_longer_that_its_candidate_is_first() {
    let (mut driven, held, office) = Driven::fencing(at_large());
    driven.claims(&held, &office);
    assert_eq!(driven.fires(), Some(1));
    let until = driven.now + TTL;
    while driven.now < until && driven.fires().is_some() {
        tick(&mut driven);
    }
    assert_eq!(driven.fires(), None, "{:?}", driven.now);
}

#[test]
fn a_last_leader_that_dies_while_its_successor_waits_is_looked_at_again() {
    let (mut driven, held, office) = Driven::fencing(at_large());
    let office = driven.claims(&held, &office);
    driven.answer(Ok(Answer::Shot { result: ShotResult::Failed, again: Some(TTL * 20), why: "".into() }));
    driven.stands(Place::Leading(held.clone()), office);
    let failed = driven.written().with_version(Version(3));
    driven.cas(Cas::Done);
    for _ in 0..20 {
        match driven.call.clone() {
            Some((_, Op::Standing(..))) => driven.stands(Place::Leading(held.clone()), failed.clone()),
            Some((_, Op::Examine(_))) => driven.answer(Ok(Answer::Examined { died: true })),
            Some((_, Op::SetOffice(..))) => break,
            _ => driven.passes_one(),
        }
    }
    assert!(matches!(driven.written().terms.get(token(3)).unwrap().end, TermEnd::Died { .. }));
    driven.cas(Cas::Done);
    assert!(driven.was_elected());
}

impl Driven {
    /// Lets time pass until something is due, and renews the session.
    fn passes_one(&mut self) {
        tick(self);
        let renewal = self.take().into_iter().rev().find_map(|output| match output {
            Output::Renew { attempt, .. } => Some(attempt),
            _ => None,
        });
        if let Some(attempt) = renewal {
            self.handle(Input::Renewed(attempt, Ok(Renewal::alive(TTL))));
        }
    }
}

#[test]
fn an_attempt_that_nobody_can_count_on_from_is_no_reason_for_haste() {
    let last = at_large().with_fence(Shot::claimed(token(4), u32::MAX));
    let (mut driven, held, office) = Driven::fencing(last);
    let failed = Ok(Answer::Shot { result: ShotResult::Failed, again: Some(TTL * 20), why: "".into() });
    let (shots, writes) = driven.goes_on(TTL * 10, &held, office, &failed);
    assert_eq!((shots, writes), (0, 0));
}

#[test]
fn one_that_was_ahead_where_no_record_was_kept_is_not_waited_for() {
    let (mut driven, held) = Driven::enlisting_with(true, false, Some(DELAY));
    let mut ahead = Entry::new(EntryId::new("3"), token(3));
    (ahead.incarnation, ahead.version) = (Some(Incarnation::from_bits(3)), Version(4));
    driven.stands(Place::behind(Some(held.clone()), ahead, None), Office::default());
    driven.wake();
    driven.stands(Place::Leading(held), Office::default());
    assert_eq!(driven.written().terms.get(token(3)).unwrap().end, TermEnd::Unknown);
    driven.cas(Cas::Done);
    assert!(driven.was_elected());
}

#[test]
fn a_term_that_is_closed_late_hides_no_newer_one_that_is_open() {
    let (mut driven, held) = Driven::enlisting(true, false);
    driven.stands(Place::Leading(held), Office::default());
    // No answer; the session is gone, and another leads that has never followed us.
    driven.loses_session();
    let other = TermRecord::open(token(6), Incarnation::from_bits(6), "b".into(), origin());
    let office = Office::default().with_version(Version(1)).with_terms(Terms::default().with(other));
    while !matches!(driven.call, Some((_, Op::SetOffice(_, Version(1), _)))) {
        match driven.call {
            Some((_, Op::Line(..))) => driven.line(office.clone()),
            Some((_, Op::SetOffice(..))) => driven.cas(Cas::Refused),
            _ => panic!("{:?}", driven.call),
        }
    }
    let written: Vec<(u64, &str)> =
        driven.written().terms.iter().map(|term| (term.token.get(), term.end.word())).collect();
    assert_eq!(written, [(5, "closed"), (6, "open")]);
}

#[test]
fn a_claim_that_the_store_refuses_for_good_ends_the_candidacy() {
    let (mut driven, held, office) = Driven::fencing(at_large());
    driven.passes(DELAY, &held, &office);
    assert!(driven.shot_written().is_some());
    driven.told();
    driven.answer(Err(Fault::Permanent));
    assert!(driven.told().iter().any(|event| matches!(event, Event::Failed)), "{:?}", driven.call);
}

#[test]
fn the_more_often_it_was_tried_the_longer_the_next_one_waits() {
    for (attempt, waits) in [(1, DELAY), (2, TTL), (5, TTL * 4), (1000, TTL * 20)] {
        let last = at_large().with_fence(Shot::claimed(token(4), attempt));
        let (mut driven, held, office) = Driven::fencing(last);
        let since = driven.now;
        driven.passes(TTL * 30, &held, &office);
        assert_eq!(driven.shot_written().unwrap().attempt, attempt + 1);
        assert_eq!(driven.now.since(since), waits);
    }
}
