//! What the simulation found, kept small: each test drives one participant by hand.

use std::time::Duration;

use bytes::Bytes;

use crate::{
    Act, Answer, Attempt, CallId, CandidacyId, Candidate, Cas, Command, Cursor, Deposed, ElectionName, Entry, EntryId,
    Epoch, Event, Fault, ForgottenBy, Frozen, Handover, Heir, Held, Hint, Incarnation, Input, Line, Liveness,
    LossReason, Nonce, Observed, Office, Op, Order, Output, Participant, Paused, Place, Proof, Refusal, Renewal,
    Settings, Standing, Successor, Timestamp, Token, Version, WatchFor, WatchId, Watched,
};

const CANDIDACY: CandidacyId = CandidacyId(7);
const SECOND: Duration = Duration::from_secs(1);

/// A participant with one candidate, and what it last put out.
struct Driven {
    machine: Participant,
    now: Timestamp,
    call: Option<(CallId, Op)>,
    calls: u32,
    renewal: Option<Attempt>,
    renewals: u32,
    watch: Option<WatchId>,
    watches: Option<WatchFor>,
    events: Vec<Event>,
}

impl Driven {
    /// In a session of ten seconds, with its enlistment on the way.
    fn standing(forgotten_by: ForgottenBy) -> Driven {
        Driven::standing_fenced(forgotten_by, false)
    }

    fn standing_fenced(forgotten_by: ForgottenBy, fenced: bool) -> Driven {
        let settings = Settings { drift_ppm: 0, margin: Duration::ZERO, ..Settings::for_ttl(SECOND * 10) };
        let mut driven = Driven {
            machine: Participant::new(settings, [1; 4]),
            now: Timestamp::ZERO + SECOND * 100,
            call: None,
            calls: 0,
            renewal: None,
            renewals: 0,
            watch: None,
            watches: None,
            events: Vec::new(),
        };
        let candidate = Candidate { fenced, ..Candidate::new(election(), "c") };
        driven.feed(Input::Stand(CANDIDACY, candidate));
        let liveness = Liveness {
            ttl: SECOND * 10,
            forgotten_by,
            proof: Proof::Answered,
            margin: Duration::ZERO,
            rest: Duration::ZERO,
        };
        driven.feed(Input::Opened(Attempt(0), Ok(liveness)));
        driven
    }

    /// In office with token 5.
    fn leading() -> (Driven, Held) {
        let mut driven = Driven::standing(ForgottenBy::Store);
        let held = driven.held(5);
        driven.answer(standing(Place::Leading(held.clone()), Office::default()));
        assert!(matches!(driven.events.last(), Some(Event::Elected { .. })));
        (driven, held)
    }

    fn feed(&mut self, input: Input) {
        self.machine.handle(self.now, input);
        while let Some(output) = self.machine.poll_output() {
            match output {
                Output::Call(CANDIDACY, id, _, op) => {
                    self.call = Some((id, op));
                    self.calls += 1;
                }
                Output::Renew { attempt, .. } => {
                    self.renewal = Some(attempt);
                    self.renewals += 1;
                }
                Output::Watch { watch, what, .. } => {
                    self.watch = Some(watch);
                    self.watches = Some(what);
                }
                Output::Event(CANDIDACY, event) => self.events.push(event),
                _ => {}
            }
        }
    }

    fn answer(&mut self, answer: Answer) {
        let (id, _) = self.call.take().expect("a call is out");
        self.feed(Input::Answer(CANDIDACY, id, Ok(answer)));
    }

    fn fails(&mut self, fault: Fault) {
        let (id, _) = self.call.take().expect("a call is out");
        self.feed(Input::Answer(CANDIDACY, id, Err(fault)));
    }

    fn wait(&mut self, duration: Duration) {
        self.now = self.now + duration;
        self.feed(Input::Tick);
    }

    fn renewed(&mut self) {
        let attempt = self.renewal.take().expect("a renewal is out");
        self.feed(Input::Renewed(attempt, Ok(Renewal::alive(SECOND * 10))));
    }

    fn asks(&self) -> &Op {
        &self.call.as_ref().expect("a call is out").1
    }

    /// The entry that the enlistment on the way makes, with this token.
    fn held(&self, token: u64) -> Held {
        let Op::Enlist(_, entry) = self.asks() else { panic!("no enlistment is on the way") };
        Held { election: election(), entry: EntryId::new("ours"), token: number(token), incarnation: entry.incarnation }
    }
}

fn election() -> ElectionName {
    ElectionName::new("e").unwrap()
}

fn number(token: u64) -> Token {
    Token::new(token).unwrap()
}

fn rival(token: u64, version: u64, ttl: Option<Duration>) -> Entry {
    Entry {
        id: EntryId::new(token.to_string()),
        token: number(token),
        incarnation: Some(Incarnation::from_bits(9)),
        name: None,
        value: Bytes::new(),
        ready: None,
        merit: Default::default(),
        version: Version(version),
        observed: ttl.map(|ttl| Observed { ttl, silent: None }),
        stays: false,
    }
}

fn standing(place: Place, office: Office) -> Answer {
    Answer::Standing(Box::new(Standing::new(place, office, Cursor(1))))
}

#[test]
fn after_an_eviction_the_next_thing_is_a_look() {
    let mut driven = Driven::standing(ForgottenBy::Rivals);
    let held = driven.held(5);
    let ahead = rival(4, 1, Some(SECOND * 10));
    let behind = Place::behind(Some(held.clone()), ahead.clone(), None);
    let (behind, ahead) = (standing(behind, Office::default()), Some(ahead.id));
    driven.answer(behind.clone());
    driven.wait(SECOND * 4);
    driven.renewed();
    driven.wait(SECOND * 4);
    driven.renewed();
    driven.wait(SECOND * 3);
    assert_eq!(driven.asks(), &Op::Standing(held.clone(), ahead.clone()), "it may have renewed since it was read");
    driven.answer(behind);
    assert!(matches!(driven.asks(), Op::Evict(..)));
    driven.answer(Answer::Cas(Cas::Done));
    assert_eq!(driven.asks(), &Op::Standing(held, ahead));
}

#[test]
fn one_ahead_that_was_read_when_its_time_was_up_is_evicted_without_another_look() {
    let mut driven = Driven::standing(ForgottenBy::Rivals);
    let held = driven.held(5);
    let behind = standing(Place::behind(Some(held), rival(4, 1, Some(SECOND * 10)), None), Office::default());
    driven.answer(behind.clone());
    for wait in [4, 4, 2] {
        driven.wait(SECOND * wait);
        if driven.renewal.is_some() {
            driven.renewed();
        }
    }
    assert!(matches!(driven.asks(), Op::Standing(..)), "{:?}", driven.asks());
    driven.answer(behind);
    assert!(matches!(driven.asks(), Op::Evict(..)), "{:?}", driven.asks());
}

#[test]
fn a_handover_that_was_refused_leaves_no_alarm_behind() {
    let (mut driven, held) = Driven::leading();
    let heir = Heir::new(Incarnation::from_bits(1), EntryId::new("heir"), number(6));
    let mut handover = Handover::new(held.token, heir, Nonce(1), SECOND);
    let asked = Office::default().with_version(Version(2)).with_handover(handover.clone());
    driven.feed(Input::Wake(CANDIDACY, driven.watch.unwrap(), Hint::Changed));
    driven.answer(standing(Place::Leading(held.clone()), asked.clone()));
    let entries = vec![Entry { id: held.entry.clone(), token: held.token, ..rival(5, 1, None) }];
    driven.answer(Answer::Line(Box::new(Line::new(entries, false, asked, Cursor(2)))));
    assert!(matches!(driven.asks(), Op::SetOffice(..)), "the heir is not there, and the leader says so");
    driven.answer(Answer::Cas(Cas::Done));
    handover.refused = Some(Refusal::HeirGone);
    let refused = Office::default().with_version(Version(3)).with_handover(handover);
    driven.answer(standing(Place::Leading(held), refused));
    driven.wait(SECOND * 2);
    assert!(driven.machine.poll_timeout().unwrap() > driven.now, "no alarm stays in the past");
}

/// Leads, and is asked to hand over to somebody.
fn asked_to_hand_over() -> (Driven, Held, Office) {
    let (mut driven, held) = Driven::leading();
    let heir = Heir::new(Incarnation::from_bits(1), EntryId::new("heir"), number(6));
    let handover = Handover::new(held.token, heir, Nonce(1), SECOND * 60);
    let asked = Office::default().with_version(Version(2)).with_handover(handover);
    driven.feed(Input::Wake(CANDIDACY, driven.watch.unwrap(), Hint::Changed));
    driven.answer(standing(Place::Leading(held.clone()), asked.clone()));
    assert!(matches!(driven.asks(), Op::Line(..)));
    (driven, held, asked)
}

#[test]
fn a_leader_that_cannot_read_its_line_refuses_the_handover_and_leads_on() {
    let (mut driven, held, _) = asked_to_hand_over();
    driven.fails(Fault::Permanent);
    let Op::SetOffice(_, _, office) = driven.asks() else { panic!("{:?}", driven.asks()) };
    assert_eq!(office.handover.as_ref().and_then(|handover| handover.refused), Some(Refusal::Unable));
    driven.answer(Answer::Cas(Cas::Done));
    assert_eq!(driven.asks(), &Op::Standing(held, None));
    assert!(matches!(driven.events.last(), Some(Event::Ordered(Act::Transfer, _))), "{:?}", driven.events);
}

#[test]
fn a_leader_that_may_not_even_refuse_leads_on_and_does_not_try_again_and_again() {
    let (mut driven, held, asked) = asked_to_hand_over();
    driven.fails(Fault::Permanent);
    driven.fails(Fault::Permanent);
    assert!(driven.call.is_none(), "{:?}", driven.call);
    driven.feed(Input::Wake(CANDIDACY, driven.watch.unwrap(), Hint::Changed));
    driven.answer(standing(Place::Leading(held.clone()), asked.clone()));
    assert!(driven.call.is_none(), "{:?}", driven.call);
    until_it_asks(&mut driven, SECOND * 60);
    driven.answer(standing(Place::Leading(held), asked));
    assert!(driven.call.is_none(), "not at its next look of its own either: {:?}", driven.call);
    assert!(matches!(driven.events.last(), Some(Event::Deadline(_))), "{:?}", driven.events);
    assert!(!driven.events.contains(&Event::Failed), "{:?}", driven.events);
}

#[test]
fn what_is_over_is_taken_out_of_the_office_record_at_the_leaders_next_look_of_its_own() {
    let (mut driven, held, mut office) = asked_to_hand_over();
    office.handover.as_mut().unwrap().refused = Some(Refusal::HeirGone);
    office.deposed = Some(Deposed::new(number(3)));
    let line = Line::new(vec![], false, office.clone(), Cursor(2));
    driven.answer(Answer::Line(Box::new(line)));
    driven.answer(standing(Place::Leading(held.clone()), office.clone()));
    assert!(driven.call.is_none(), "the one that it was written for may not have read it yet: {:?}", driven.call);
    for _ in 0..100 {
        driven.wait(SECOND * 3);
        if driven.renewal.is_some() {
            driven.renewed();
        }
        if driven.call.is_some() {
            break;
        }
    }
    assert_eq!(driven.asks(), &Op::Standing(held.clone(), None));
    driven.answer(standing(Place::Leading(held), office.clone()));
    let Op::SetOffice(_, version, tidied) = driven.asks() else { panic!("{:?}", driven.asks()) };
    assert!(*version == office.version && tidied.is_blank(), "{tidied:?}");
}

#[test]
fn a_leader_takes_out_a_request_to_an_earlier_one_but_not_that_it_is_deposed_itself() {
    let heir = Heir::new(Incarnation::from_bits(1), EntryId::new("heir"), number(6));
    let office = Office::default().with_version(Version(2)).with_deposed(Deposed::new(number(5)));
    let office = office.with_handover(Handover::new(number(4), heir, Nonce(1), SECOND));
    let (mut driven, held) = leads_and_has_read(&office);
    assert!(driven.call.is_none(), "{:?}", driven.call);
    until_it_asks(&mut driven, SECOND * 60);
    driven.answer(standing(Place::Leading(held), office.clone()));
    let Op::SetOffice(_, _, tidied) = driven.asks() else { panic!("{:?}", driven.asks()) };
    assert_eq!(**tidied, office.with_handover(None));
}

#[test]
fn one_that_is_out_because_it_is_unhealthy_answers_a_hint_with_a_look() {
    let (mut driven, _) = Driven::leading();
    driven.feed(Input::Command(CANDIDACY, Command::Healthy(false)));
    driven.feed(Input::Command(CANDIDACY, Command::Release));
    driven.answer(Answer::Cas(Cas::Done));
    assert!(driven.call.is_none());
    driven.feed(Input::Wake(CANDIDACY, driven.watch.unwrap(), Hint::Changed));
    assert!(matches!(driven.asks(), Op::Line(..)), "else the watch fires from the same cursor for ever");
}

#[test]
fn a_late_answer_about_an_older_session_leaves_the_new_one_alone() {
    let (mut driven, _) = Driven::leading();
    let elected = driven.events.len();
    driven.feed(Input::Answer(CANDIDACY, CallId(0), Err(Fault::SessionGone)));
    assert_eq!(driven.events.len(), elected, "the term goes on");
    driven.wait(SECOND * 4);
    assert!(driven.renewal.is_some(), "the session is renewed, not opened again");
}

#[test]
fn one_that_was_proven_waits_for_its_look_without_renewing_in_circles() {
    let mut driven = Driven::standing(ForgottenBy::Store);
    let held = driven.held(5);
    // Nothing is answered until its proof is too old to take office on.
    driven.wait(SECOND * 9);
    driven.wait(SECOND / 2);
    driven.answer(standing(Place::Leading(held.clone()), Office::default()));
    assert!(driven.events.iter().all(|event| !matches!(event, Event::Elected { .. })));
    // The first was sent before it was in line, and did not ask about its entry.
    driven.renewed();
    driven.renewed();
    assert_eq!(driven.asks(), &Op::Standing(held, None));
    let renewals = driven.renewals;
    driven.feed(Input::Tick);
    driven.feed(Input::Command(CANDIDACY, Command::Healthy(true)));
    assert_eq!(driven.renewals, renewals, "the proof is fresh");
}

#[test]
fn where_there_is_no_line_one_that_leaves_settles_the_try_under_way_first() {
    let mut driven = Driven::standing(ForgottenBy::Store);
    let behind = Place::Behind { held: None, ahead: rival(4, 1, None), look_again: Some(SECOND) };
    driven.answer(standing(behind.clone(), Office::default()));
    driven.wait(SECOND);
    let held = driven.held(5);
    driven.feed(Input::Command(CANDIDACY, Command::Leave));
    assert!(!driven.events.iter().any(|event| matches!(event, Event::Done { .. })), "the try may have made an entry");
    driven.answer(standing(Place::Leading(held.clone()), Office::default()));
    assert_eq!(driven.asks(), &Op::Withdraw(held, None));
    driven.answer(Answer::Cas(Cas::Done));
    assert_eq!(driven.events.last(), Some(&Event::Done { certain: true }));
}

#[test]
fn a_renewal_that_did_not_ask_about_the_entry_does_not_prove_it() {
    let mut driven = Driven::standing(ForgottenBy::Store);
    let held = driven.held(5);
    driven.wait(SECOND * 4);
    driven.wait(SECOND / 2);
    assert!(driven.renewal.is_some() && matches!(driven.asks(), Op::Enlist(..)), "sent while it was not in line");
    driven.answer(standing(Place::Leading(held), Office::default()));
    assert!(matches!(driven.events.last(), Some(Event::Elected { .. })));
    driven.renewed();
    assert!(matches!(driven.events.last(), Some(Event::Elected { .. })), "no later deadline is told");
    driven.wait(SECOND * 3);
    driven.renewed();
    assert!(matches!(driven.events.last(), Some(Event::Deadline(_))), "the next renewal asked about it");
}

/// Lets a minute pass in which every watch is lost as soon as it is armed and every look is
/// answered at once: how often it looks.
fn looks_while_watches_are_lost(driven: &mut Driven, answer: &Answer) -> u32 {
    let (until, before) = (driven.now + SECOND * 60, driven.calls);
    while driven.now < until {
        while let Some(watch) = driven.watch.take() {
            driven.feed(Input::Wake(CANDIDACY, watch, Hint::Lost));
        }
        if driven.renewal.is_some() {
            driven.renewed();
        }
        if driven.call.is_some() {
            driven.answer(answer.clone());
        } else if driven.watch.is_none() {
            driven.now = driven.machine.poll_timeout().unwrap().max(driven.now);
            driven.feed(Input::Tick);
        }
        assert!(driven.calls - before < 10_000, "it does nothing but look");
    }
    driven.calls - before
}

#[test]
fn where_every_watch_is_lost_at_once_looks_come_at_the_longest_rest_and_no_faster() {
    let mut driven = Driven::standing(ForgottenBy::Store);
    let held = driven.held(5);
    let behind = Place::Behind { held: Some(held), ahead: rival(4, 1, None), look_again: None };
    let behind = standing(behind, Office::default());
    driven.answer(behind.clone());
    let follower = looks_while_watches_are_lost(&mut driven, &behind);
    let (mut driven, held) = Driven::leading();
    let leader = looks_while_watches_are_lost(&mut driven, &standing(Place::Leading(held), Office::default()));
    // The longest rest is 1.7 s here, of which jitter leaves half at least.
    for looks in [follower, leader] {
        assert!((30..120).contains(&looks), "{follower} and {leader} looks in a minute");
    }
}

#[test]
fn a_watch_that_lasted_makes_the_next_loss_a_first_one() {
    let mut driven = Driven::standing(ForgottenBy::Store);
    let held = driven.held(5);
    let behind = Place::Behind { held: Some(held), ahead: rival(4, 1, None), look_again: None };
    let behind = standing(behind, Office::default());
    driven.answer(behind.clone());
    looks_while_watches_are_lost(&mut driven, &behind);
    // The next watch is told of a change.
    while driven.watch.is_none() {
        if driven.call.is_some() {
            driven.answer(behind.clone());
        } else {
            driven.now = driven.machine.poll_timeout().unwrap().max(driven.now);
            driven.feed(Input::Tick);
        }
    }
    let watch = driven.watch.take().unwrap();
    driven.feed(Input::Wake(CANDIDACY, watch, Hint::Changed));
    driven.answer(behind);
    let (watch, lost_at) = (driven.watch.take().unwrap(), driven.now);
    driven.feed(Input::Wake(CANDIDACY, watch, Hint::Lost));
    while driven.call.is_none() {
        driven.now = driven.machine.poll_timeout().unwrap().max(driven.now);
        driven.feed(Input::Tick);
    }
    assert!(driven.now.since(lost_at) <= SECOND / 30, "it looks again after {:?}", driven.now.since(lost_at));
}

#[test]
fn one_that_cannot_take_office_yet_does_not_watch_an_heir() {
    let mut driven = Driven::standing(ForgottenBy::Store);
    let held = driven.held(5);
    let heir = Heir::new(Incarnation::from_bits(1), EntryId::new("heir"), number(6));
    let handover = Handover::new(held.token, heir, Nonce(1), SECOND);
    let asked = Office::default().with_version(Version(2)).with_handover(handover);
    driven.wait(SECOND * 9);
    driven.wait(SECOND / 2);
    driven.answer(standing(Place::Leading(held.clone()), asked));
    assert_eq!(driven.watches, Some(WatchFor::Entry(Epoch(0), Watched::new(held, Version(2)))));
}

#[test]
fn a_lost_hint_about_the_heir_is_made_up_for_by_the_periodic_look() {
    let (mut driven, held, asked) = asked_to_hand_over();
    let heir = asked.handover.as_ref().unwrap().heir.clone().unwrap();
    let ours =
        Entry { id: held.entry.clone(), token: held.token, incarnation: Some(held.incarnation), ..rival(5, 1, None) };
    let theirs = Entry { id: heir.entry, token: heir.token, incarnation: Some(heir.incarnation), ..rival(6, 1, None) };
    let entries = vec![ours, theirs];
    driven.answer(Answer::Line(Box::new(Line::new(entries, false, asked.clone(), Cursor(2)))));
    assert!(driven.call.is_none(), "{:?}", driven.call);
    // The heir says that it is ready now, and the hint is lost.
    let (mut looks, mut lines) = (0, 0);
    for _ in 0..600 {
        driven.wait(SECOND / 10);
        if driven.renewal.is_some() {
            driven.renewed();
        }
        match driven.call.as_ref().map(|(_, op)| op.clone()) {
            Some(Op::Standing(..)) => {
                looks += 1;
                driven.answer(standing(Place::Leading(held.clone()), asked.clone()));
            }
            Some(Op::Line(..)) => lines += 1,
            Some(op) => panic!("after {looks} looks and {lines} lines: {op:?}"),
            None => {}
        }
        if lines > 0 {
            return;
        }
    }
    panic!("{looks} looks, {lines} lines");
}

#[test]
fn a_proclamation_that_is_refused_is_not_published_later() {
    let mut driven = Driven::standing(ForgottenBy::Store);
    driven.feed(Input::Command(CANDIDACY, Command::Proclaim(1, "new".into())));
    assert_eq!(driven.events.last(), Some(&Event::Proclaimed(1, Cas::Refused)));
    driven.fails(Fault::Unavailable);
    driven.wait(SECOND * 2);
    assert!(matches!(driven.asks(), Op::Enlist(_, entry) if entry.value.is_empty()), "{:?}", driven.asks());
}

/// First in line, with its fences being raised: who makes that call, and what it holds.
fn raising() -> (Driven, Held, CallId) {
    let mut driven = Driven::standing_fenced(ForgottenBy::Store, true);
    let held = driven.held(5);
    driven.answer(standing(Place::Leading(held.clone()), Office::default()));
    assert_eq!(*driven.asks(), Op::RaiseFences(held.token));
    let raise = driven.call.take().unwrap().0;
    (driven, held, raise)
}

/// Lets this much time pass, with a session that lives and a store that says that we are first. The
/// first call that is not a look.
fn next_call(driven: &mut Driven, held: &Held, within: Duration) -> Option<Op> {
    let until = driven.now + within;
    while driven.now < until {
        driven.wait(SECOND / 10);
        if driven.renewal.is_some() {
            driven.renewed();
        }
        match driven.call.as_ref().map(|(_, op)| op.clone()) {
            Some(Op::Standing(..)) => driven.answer(standing(Place::Leading(held.clone()), Office::default())),
            Some(op) => return Some(op),
            None => {}
        }
    }
    None
}

#[test]
fn a_fence_that_hangs_is_raised_again_once_it_is_dropped() {
    let (mut driven, held, raise) = raising();
    assert_eq!(next_call(&mut driven, &held, SECOND * 5), None, "the first is not dropped yet");
    driven.feed(Input::Answer(CANDIDACY, raise, Err(Fault::OutcomeUnknown)));
    let again = driven.call.as_ref().map(|(_, op)| op.clone()).or_else(|| next_call(&mut driven, &held, SECOND * 5));
    assert_eq!(again, Some(Op::RaiseFences(held.token)));
    driven.answer(Answer::Raised);
    assert!(matches!(driven.events.last(), Some(Event::Elected { .. })));
}

#[test]
fn who_cannot_raise_its_fences_for_a_ttl_makes_room_and_stands_again_once_they_are_free() {
    let (mut driven, held, raise) = raising();
    assert_eq!(next_call(&mut driven, &held, SECOND * 11), Some(Op::Withdraw(held.clone(), None)));
    driven.answer(Answer::Cas(Cas::Done));
    assert_eq!(next_call(&mut driven, &held, SECOND * 60), None, "it would be first again, and in the way");
    driven.feed(Input::Answer(CANDIDACY, raise, Err(Fault::OutcomeUnknown)));
    let Op::Enlist(_, entry) = driven.asks() else { panic!("{:?}", driven.asks()) };
    assert!(entry.merit.gave_way, "those who choose do not ask it again");
    assert!(!driven.events.iter().any(|event| matches!(event, Event::Elected { .. })));
}

#[test]
fn who_cannot_raise_its_fences_for_a_ttl_makes_room_also_where_they_answer_each_time() {
    let (mut driven, held, raise) = raising();
    driven.feed(Input::Answer(CANDIDACY, raise, Err(Fault::Unavailable)));
    let began = driven.now;
    while next_call(&mut driven, &held, SECOND * 11) == Some(Op::RaiseFences(held.token)) {
        driven.fails(Fault::Unavailable);
    }
    assert_eq!(*driven.asks(), Op::Withdraw(held, None));
    assert!(driven.now.since(began) <= SECOND * 11);
}

/// The record of an election that is frozen, for this long or until that is taken back.
fn frozen(version: u64, lasts: Option<Duration>) -> Office {
    let order = Order::new("ada@ops1", 7, "new disk");
    Office::default().with_version(Version(version)).with_frozen(Frozen::new(Nonce(version), lasts, order))
}

/// In office, and has read this record.
fn leads_and_has_read(office: &Office) -> (Driven, Held) {
    let (mut driven, held) = Driven::leading();
    driven.feed(Input::Wake(CANDIDACY, driven.watch.unwrap(), Hint::Changed));
    driven.answer(standing(Place::Leading(held.clone()), office.clone()));
    (driven, held)
}

#[test]
fn an_unfit_leader_stays_in_a_frozen_office_and_leaves_when_it_is_no_longer_frozen() {
    let (mut driven, held) = leads_and_has_read(&frozen(2, None));
    driven.feed(Input::Command(CANDIDACY, Command::Healthy(false)));
    let Op::Publish(_, _, said) = driven.asks() else { panic!("{:?}", driven.asks()) };
    assert!(said.merit.unwell, "those who look see how it is");
    driven.answer(Answer::Published(Some(Version(7))));
    driven.wait(SECOND);
    let is_stopping = |driven: &Driven| driven.events.iter().any(|event| matches!(event, Event::Stopping { .. }));
    assert!(!is_stopping(&driven), "{:?}", driven.events);
    driven.feed(Input::Wake(CANDIDACY, driven.watch.unwrap(), Hint::Changed));
    driven.answer(standing(Place::Leading(held), Office::default().with_version(Version(3))));
    assert!(is_stopping(&driven), "{:?}", driven.events);
}

#[test]
fn an_unfit_follower_leaves_the_line_of_a_frozen_election() {
    let mut driven = Driven::standing(ForgottenBy::Store);
    let held = driven.held(5);
    driven.answer(standing(Place::behind(Some(held.clone()), rival(4, 1, None), None), frozen(2, None)));
    driven.feed(Input::Command(CANDIDACY, Command::Healthy(false)));
    assert_eq!(driven.asks(), &Op::Withdraw(held, None));
}

#[test]
fn a_frozen_leader_refuses_every_request_to_hand_over() {
    let heir = Heir::new(Incarnation::from_bits(1), EntryId::new("heir"), number(6));
    for heir in [None, Some(heir.clone())] {
        let asked = frozen(2, None).with_handover(Handover::new(number(5), heir, Nonce(1), SECOND));
        let (driven, _) = leads_and_has_read(&asked);
        let Op::SetOffice(_, Version(2), refused) = driven.asks() else { panic!("{:?}", driven.asks()) };
        assert_eq!(refused.handover.as_ref().unwrap().refused, Some(Refusal::Frozen));
        assert!(refused.frozen.is_some());
    }
    let (mut driven, _) = leads_and_has_read(&frozen(2, None));
    driven.feed(Input::Command(CANDIDACY, Command::Transfer(Successor::Candidate(heir), SECOND)));
    assert_eq!(driven.events.last(), Some(&Event::TransferRefused(Refusal::Frozen)));
    assert!(driven.call.is_none(), "nothing is written down: {:?}", driven.call);
}

#[test]
fn an_election_that_was_frozen_since_the_request_was_read_is_looked_at_before_anybody_goes() {
    let (mut driven, held, asked) = asked_to_hand_over();
    let mut heir = rival(6, 1, None);
    heir.id = EntryId::new("heir");
    heir.incarnation = Some(Incarnation::from_bits(1));
    heir.ready = Some(Nonce(1));
    let first = Entry { id: held.entry.clone(), incarnation: Some(held.incarnation), ..rival(5, 1, None) };
    let office = frozen(3, None).with_handover(asked.handover.clone());
    let line = Line::new(vec![first, heir], false, office, Cursor(2));
    driven.answer(Answer::Line(Box::new(line)));
    assert_eq!(driven.asks(), &Op::Standing(held, None));
    assert!(!driven.events.iter().any(|event| matches!(event, Event::Stopping { .. })), "{:?}", driven.events);
}

/// Lets time pass, with renewals, until a call is out.
fn until_it_asks(driven: &mut Driven, longest: Duration) -> Duration {
    let began = driven.now;
    while driven.call.is_none() {
        assert!(driven.now.since(began) < longest, "nothing is asked for");
        driven.wait(SECOND / 4);
        if driven.renewal.is_some() {
            driven.renewed();
        }
    }
    driven.now.since(began)
}

#[test]
fn a_leader_takes_out_a_freeze_whose_time_is_over_counted_from_when_it_first_read_it() {
    let mut driven = Driven::standing(ForgottenBy::Store);
    let held = driven.held(5);
    let office = frozen(2, Some(SECOND * 5));
    driven.answer(standing(Place::behind(Some(held.clone()), rival(4, 1, None), None), office.clone()));
    driven.wait(SECOND * 3);
    // As a follower it has read it, and counts on.
    driven.feed(Input::Wake(CANDIDACY, driven.watch.unwrap(), Hint::Changed));
    driven.answer(standing(Place::Leading(held.clone()), office.clone()));
    let [.., Event::Elected { .. }, Event::Ordered(Act::Freeze, _)] = &driven.events[..] else {
        panic!("it takes office, and says what it found: {:?}", driven.events)
    };
    let waited = until_it_asks(&mut driven, SECOND * 4);
    assert!(waited >= SECOND * 2, "{waited:?}");
    let Op::SetOffice(_, Version(2), thawed) = driven.asks() else { panic!("{:?}", driven.asks()) };
    assert!(thawed.is_blank(), "{thawed:?}");
    // Another order counts anew.
    driven.answer(Answer::Cas(Cas::Refused));
    driven.answer(standing(Place::Leading(held), frozen(3, Some(SECOND * 5))));
    assert!(driven.call.is_none(), "{:?}", driven.call);
}

#[test]
fn a_leader_that_may_not_take_out_a_freeze_leads_on_says_so_once_and_tries_again_later() {
    let record = frozen(2, Some(SECOND));
    let (mut driven, held) = leads_and_has_read(&record);
    until_it_asks(&mut driven, SECOND * 3);
    driven.fails(Fault::Permanent);
    for _ in 0..8 {
        driven.wait(SECOND / 4);
        assert!(driven.call.is_none(), "{:?}", driven.call);
    }
    until_it_takes_out(&mut driven, &held, &record);
    driven.fails(Fault::Permanent);
    let stays = driven.events.iter().filter(|event| matches!(event, Event::OrderStays(Act::Freeze, _)));
    assert_eq!(stays.count(), 1, "{:?}", driven.events);
    assert!(!driven.events.iter().any(|event| matches!(event, Event::Stopping { .. } | Event::Failed)));
    // The rights are back.
    until_it_takes_out(&mut driven, &held, &record);
}

/// A write that was refused for another reason says nothing of a freeze that still counts.
#[test]
fn a_freeze_that_is_not_over_ends_in_time_though_another_write_was_refused() {
    let (mut driven, held) = leads_and_has_read(&frozen(2, Some(SECOND * 4)));
    let asked = frozen(2, Some(SECOND * 4)).with_version(Version(3));
    let asked = asked.with_handover(Handover::new(held.token, None, Nonce(1), SECOND));
    driven.feed(Input::Wake(CANDIDACY, driven.watch.unwrap(), Hint::Changed));
    driven.answer(standing(Place::Leading(held.clone()), asked.clone()));
    assert!(matches!(driven.asks(), Op::SetOffice(..)), "it refuses: {:?}", driven.asks());
    driven.fails(Fault::Permanent);
    assert!(
        !driven.events.iter().any(|event| matches!(event, Event::OrderStays(Act::Freeze, _))),
        "{:?}",
        driven.events
    );
    until_it_takes_out(&mut driven, &held, &asked);
}

/// Lets time pass, with renewals and looks that find this record, until it takes the freeze out.
fn until_it_takes_out(driven: &mut Driven, held: &Held, record: &Office) {
    for _ in 0..400 {
        match &driven.call {
            Some((_, Op::SetOffice(_, _, thawed))) if thawed.frozen.is_none() => return,
            Some((_, Op::Standing(..))) => driven.answer(standing(Place::Leading(held.clone()), record.clone())),
            Some((_, op)) => panic!("{op:?}"),
            None => driven.wait(SECOND / 4),
        }
        if driven.renewal.is_some() {
            driven.renewed();
        }
    }
    panic!("it stays: {:?}", driven.events);
}

#[test]
fn an_order_is_told_to_the_log_of_the_leader_once() {
    let ordered = |driven: &Driven| {
        let orders = driven.events.iter().filter_map(|event| match event {
            Event::Ordered(act, order) => Some((*act, order.to_string())),
            _ => None,
        });
        orders.collect::<Vec<_>>()
    };
    let (mut driven, held) = leads_and_has_read(&frozen(2, None));
    let freeze = (Act::Freeze, "by ada@ops1: new disk".to_owned());
    assert_eq!(ordered(&driven), std::slice::from_ref(&freeze));
    let handover = Handover::new(held.token, None, Nonce(1), SECOND).ordered("enough".into());
    let deposed = Deposed::new(held.token).ordered(Order::new("bob", 1, ""));
    let office = frozen(2, None).with_version(Version(3)).with_handover(handover).with_deposed(deposed);
    driven.feed(Input::Wake(CANDIDACY, driven.watch.unwrap(), Hint::Changed));
    driven.answer(standing(Place::Leading(held.clone()), office));
    let resign = (Act::Resign, "by an operator: enough".to_owned());
    assert_eq!(ordered(&driven), [freeze.clone(), resign.clone()]);
    driven.feed(Input::Renewed(Attempt(99), Ok(Renewal::alive(SECOND))));
    driven.answer(Answer::Cas(Cas::Refused));
    driven.answer(standing(Place::Gone, frozen(2, None).with_deposed(Deposed::new(held.token))));
    assert_eq!(ordered(&driven), [freeze, resign, (Act::Depose, "by an operator".to_owned())]);
}

/// Everyone but the candidate of this name is to stay out until it leads.
fn waits_for(name: &str) -> Office {
    Office::default().with_version(Version(2)).with_paused(Paused::new("why").until_leads(name))
}

#[test]
fn one_that_another_is_to_lead_before_leaves_the_line_as_in_any_pause() {
    let mut driven = Driven::standing(ForgottenBy::Store);
    let held = driven.held(5);
    driven.answer(standing(Place::Leading(held.clone()), waits_for("d")));
    assert_eq!(driven.asks(), &Op::Withdraw(held, None));
    assert_eq!(driven.events, [Event::FirstContact(None), Event::Out(LossReason::Paused)]);
}

#[test]
fn one_that_is_to_lead_first_leads_and_lets_the_others_back() {
    let mut driven = Driven::standing(ForgottenBy::Store);
    let held = driven.held(5);
    driven.answer(standing(Place::Leading(held.clone()), waits_for("c")));
    assert!(matches!(driven.events.last(), Some(Event::Elected { .. })), "{:?}", driven.events);
    let Op::SetOffice(_, version, office) = driven.asks() else { panic!("{:?}", driven.asks()) };
    assert!(*version == Version(2) && office.is_blank(), "{office:?}");
    driven.answer(Answer::Cas(Cas::Done));
    driven.answer(standing(Place::Leading(held), Office::default().with_version(Version(3))));
    assert!(driven.call.is_none(), "{:?}", driven.call);
}

#[test]
fn one_that_may_not_let_the_others_back_leads_on_and_tries_again_at_its_next_look() {
    let mut driven = Driven::standing(ForgottenBy::Store);
    let held = driven.held(5);
    driven.answer(standing(Place::Leading(held.clone()), waits_for("c")));
    driven.fails(Fault::Permanent);
    assert!(driven.call.is_none(), "not again and again: {:?}", driven.call);
    until_it_asks(&mut driven, SECOND * 60);
    driven.answer(standing(Place::Leading(held), waits_for("c")));
    let Op::SetOffice(_, _, office) = driven.asks() else { panic!("{:?}", driven.asks()) };
    assert!(office.is_blank(), "{office:?}");
    assert!(!driven.events.contains(&Event::Failed), "{:?}", driven.events);
}
