//! One candidate in one line: enlist, follow, verify, take office, lead, drain, hand over, lose,
//! rejoin.
//!
//! The machine is level-triggered. Every input first lets time pass ([`Candidacy::on_time`]), then
//! changes what is known, then [`Candidacy::step`] decides from the whole state what to do next. At
//! most one call is out at a time; an answer to an older one is ignored. So a lost, late or doubled
//! answer, a spurious wake-up or a wake-up that never came leads through the same code as the happy
//! path.

mod bench;
mod choice;
mod departure;
mod duties;
mod fencing;
mod fitness;
mod flawed;
mod heir;
mod progress;
mod record;
mod term;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::backoff::Backoff;
use crate::entry::{Entry, EntryId, Held, Incarnation, Merit, NewEntry, Nonce, Token, Version};
use crate::keeper::{Epoch, Session};
use crate::machine::{
    Answer, CallId, CandidacyId, Candidate, Command, Event, Hint, LossReason, Op, Output, WatchFor, WatchId,
};
use crate::office::{Heir, Office, Paused};
use crate::outbox::Outbox;
use crate::rng::Rng;
use crate::settings::{Settings, stretch};
use crate::standing::{Cursor, Fault, Head, Seen, StillBehind, Watched};
use crate::tenure::{Rules, Tenure};
use crate::terms::TermRecord;
use crate::time::Timestamp;
use bench::BenchProgress;
use choice::Choice;
use departure::Departure;
use fencing::Fencing;
use fitness::FitnessProgress;
use heir::Preparing;
use record::Unclosed;

/// One candidate in one line.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Candidacy {
    id: CandidacyId,
    who: Candidate,
    /// Shared with the other candidacies: there may be many thousands.
    settings: Arc<Settings>,
    rng: Rng,
    incarnation: Incarnation,
    session: Option<Epoch>,
    /// The session is about to be replaced: nothing new is begun on it, and entries on it are
    /// withdrawn.
    session_ends: bool,
    /// How long this candidate stays out after it gave a place back.
    rest: Duration,
    stay_out_until: Timestamp,
    /// The office. Its deadline says until when this candidacy's entry cannot have been forgotten
    /// by the store.
    tenure: Tenure<EntryId>,
    /// The entry that the last renewal was asked about.
    named: Option<Token>,
    /// A renewal was answered that did not ask about the entry: one that does is wanted before the
    /// next is due.
    passed_over: bool,
    state: State,
    /// What our entry said when it was last read or written.
    published: Version,
    office: Office,
    /// The freeze that the office record speaks of.
    freeze: Option<CountedOrder>,
    bench: BenchProgress,
    cursor: Cursor,
    call: Option<Call>,
    next_call: u64,
    /// The raise of fences that is out. It may have been given up, and is then being dropped: the
    /// next one waits for it, and so does the next entry.
    raise: Option<CallId>,
    /// When to make room for the next in line, if the fences are not raised by then, and the term
    /// is not open in the record.
    take_office_by: Option<Timestamp>,
    /// Our terms that may be open in the record: mostly none or one.
    unclosed: Vec<Unclosed>,
    /// Until when our withdrawal, or leaving, waits for them to be closed.
    close_by: Option<Timestamp>,
    /// From closings that failed. Nothing else waits for that.
    close_backoff: Backoff,
    /// Whom we followed before we were first, if no record says that it led.
    led_before: Option<Box<TermRecord>>,
    /// The last term on record before ours, and whether it has died.
    examined: Option<(Token, bool)>,
    fencing: Option<Box<Fencing>>,
    /// When the wait before the next shot is over.
    fence_at: Option<Timestamp>,
    backoff: Backoff,
    watch: Option<WatchId>,
    /// From watches that were lost. Reads go well meanwhile, and must not end it: each would arm a
    /// watch that is lost at once.
    watch_backoff: Backoff,
    next_watch: u64,
    /// Something may have changed since the last answer.
    look: bool,
    reread_at: Timestamp,
    requested: Requested,
    notices: NoticeProgress,
    fitness: FitnessProgress,
    /// As the first in line: who is to take the office.
    choice: Choice,
    /// As a leader whose program is about to leave: whom it hands over to.
    departure: Departure,
    /// As the heir of a handover: what it does to get ready.
    preparing: Preparing,
    /// We were first and could not take office, or were asked to resign, and have not led since.
    gave_way: bool,
}

/// What the user wants of this candidacy.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Requested {
    leave: bool,
    close: bool,
    unhealthy: bool,
    unwell: bool,
    /// A value to publish, with its number.
    proclaim: Option<(u64, Bytes)>,
    /// The number of the value in the publication that was sent last, if it was sent for that.
    proclaiming: Option<u64>,
    transfer: Option<(Heir, Duration, Nonce)>,
    /// Something failed for good.
    failed: bool,
}

/// An order for a while, as this candidacy counts its time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct CountedOrder {
    id: Nonce,
    /// When it is over, and is taken out of the record.
    until: Timestamp,
    /// The store has refused that, and the log was told.
    stays: bool,
}

/// What this candidacy has done about notices in the office record.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct NoticeProgress {
    /// As the leader: the request being carried out, and when to give it up.
    seen: Option<(Nonce, Timestamp)>,
    /// As the leader: the request whose heir was given longer, since it is getting ready.
    prepares: Option<Nonce>,
    /// As the leader: the line has been read since the last hint.
    line_read: bool,
    /// As the leader: what the office record says about terms that are over may go.
    tidies: bool,
    /// As the leader: this request can neither be carried out nor refused.
    unable: Option<Nonce>,
    /// As the leader for whom the others wait: the record refused to let them back.
    keeps_others_out: bool,
    /// As one between leader and heir: stepped aside for this request.
    stepped_aside: Option<Nonce>,
    /// As one between: the leader was read, and the request was void then.
    found_void: Option<Nonce>,
    /// As the heir: said to be ready for this request.
    said_ready: Option<Nonce>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum State {
    /// Not in line.
    Out,
    /// An entry of ours may be there: the enlistment has not been answered.
    Enlisting { stray: Option<Held>, sent: bool },
    /// In line behind somebody, or trying again where there is no line.
    Following(Following),
    /// First in line and on no way into office: the last proof of life is too old, a step failed
    /// and is looked at again, or it is too early to stop the last leader.
    Unproven(Held),
    /// First in line: taking office, in office, or keeping the entry until the work has stopped.
    /// The tenure says which.
    Office(Held),
    /// The entry is being removed; with an heir, only if the heir's entry is there.
    Withdrawing(Held, Option<EntryId>),
    /// Over.
    Done,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Following {
    held: Option<Held>,
    ahead: Box<Entry>,
    /// Since when `ahead` has been silent: its last beat, or when this version of it was first
    /// seen.
    since: Timestamp,
    /// When the answer came that showed it.
    read_at: Timestamp,
    look_again_at: Option<Timestamp>,
    /// Where there is no line: another try is under way, and may have made us an entry.
    trying: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Call {
    id: CallId,
    op: Op,
    sent_at: Timestamp,
    until: Timestamp,
}

/// What a candidacy is told.
#[derive(Clone, Debug)]
pub(crate) enum CandidacyInput {
    Tick,
    Command(Command),
    Close,
    Answer(CallId, Result<Answer, Fault>),
    Wake(WatchId, Hint),
    SessionUp(Session),
    SessionDown,
    /// A renewal proved that the entries of this session live.
    Proven(Timestamp),
    /// The session is believed only until then, and replaced.
    Shortened(Timestamp),
    /// A renewal found this entry gone.
    Gone(Held),
    /// A renewal found this entry where it stood.
    StillBehind(StillBehind),
    /// There will be no session.
    Refused,
}

impl Candidacy {
    pub(crate) fn new(id: CandidacyId, who: Candidate, settings: Arc<Settings>, mut rng: Rng) -> Candidacy {
        let rules = Rules { grace: settings.grace, hold_until_stopped: who.hold_until_stopped };
        let unhealthy = who.unfit;
        Candidacy {
            id,
            who,
            settings,
            incarnation: rng.incarnation(),
            rng,
            session: None,
            session_ends: false,
            rest: Duration::ZERO,
            stay_out_until: Timestamp::ZERO,
            tenure: Tenure::new(rules),
            named: None,
            passed_over: false,
            state: State::Out,
            published: Version::NONE,
            office: Office::default(),
            freeze: None,
            bench: BenchProgress::default(),
            cursor: Cursor::default(),
            call: None,
            next_call: 0,
            raise: None,
            take_office_by: None,
            unclosed: Vec::new(),
            close_by: None,
            close_backoff: Backoff::default(),
            led_before: None,
            examined: None,
            fencing: None,
            fence_at: None,
            backoff: Backoff::default(),
            watch: None,
            watch_backoff: Backoff::default(),
            next_watch: 0,
            look: false,
            reread_at: Timestamp::ZERO,
            requested: Requested {
                leave: false,
                close: false,
                unhealthy,
                unwell: false,
                proclaim: None,
                proclaiming: None,
                transfer: None,
                failed: false,
            },
            notices: NoticeProgress::default(),
            fitness: FitnessProgress::default(),
            choice: Choice::default(),
            departure: Departure::default(),
            preparing: Preparing::default(),
            gave_way: false,
        }
    }

    /// A candidacy that only removes an entry which a late write left behind.
    pub(crate) fn sweeper(id: CandidacyId, stray: Held, epoch: Epoch, settings: Arc<Settings>, rng: Rng) -> Candidacy {
        let who = Candidate::new(stray.election.clone(), "");
        let mut sweeper = Candidacy::new(id, who, settings, rng);
        sweeper.incarnation = stray.incarnation;
        sweeper.session = Some(epoch);
        sweeper.requested.leave = true;
        sweeper.state = State::Withdrawing(stray, None);
        sweeper
    }

    /// The entry that this candidacy believes to have, for the next renewal to look at.
    pub(crate) fn entry(&self) -> Option<&Held> {
        match &self.state {
            State::Following(following) => following.held.as_ref(),
            State::Unproven(held) | State::Office(held) | State::Withdrawing(held, _) => Some(held),
            State::Out | State::Enlisting { .. } | State::Done => None,
        }
    }

    /// The same, and notes that the renewal which is now sent will be about it.
    pub(crate) fn name_entry(&mut self) -> Option<&Held> {
        self.named = self.entry().map(|held| held.token);
        self.entry()
    }

    /// Whether an entry of this incarnation is accounted for here.
    pub(crate) fn accounts_for(&self, stray: &Held) -> bool {
        let awaited = matches!(self.state, State::Enlisting { .. } | State::Following(_))
            && self.incarnation == stray.incarnation;
        awaited || self.entry().is_some_and(|held| held.incarnation == stray.incarnation)
    }

    /// Whether this is the call whose answer is wanted.
    pub(crate) fn awaits(&self, id: CallId) -> bool {
        self.call.as_ref().is_some_and(|call| call.id == id)
    }

    /// The raise of fences that is out, or is being dropped.
    pub(crate) fn raise(&self) -> Option<CallId> {
        self.raise
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Whether it is on its way out for good, so that another may stand in the same election after
    /// it.
    pub(crate) fn is_leaving(&self) -> bool {
        self.requested.leave || self.is_done()
    }

    pub(crate) fn election(&self) -> &crate::name::ElectionName {
        &self.who.election
    }

    /// Whether a proof of life is wanted before the next one is due: to take office, where only the
    /// next look is missing with a fresh one; or because the last one passed the entry over.
    pub(crate) fn needs_proof(&self, now: Timestamp) -> bool {
        let waits = matches!(self.state, State::Unproven(_)) && !self.tenure.has_time(now);
        waits || (self.passed_over && self.entry().is_some())
    }

    /// Whether something has to be brought to its end with the present session: an entry that is
    /// there, or an enlistment that may have made one.
    pub(crate) fn needs_session(&self) -> bool {
        !matches!(self.state, State::Out | State::Done)
    }

    pub(crate) fn handle(&mut self, now: Timestamp, input: CandidacyInput, out: &mut Outbox) {
        self.on_time(now, out);
        match input {
            CandidacyInput::Tick => {}
            CandidacyInput::Command(command) => self.on_command(now, command, out),
            CandidacyInput::Close => {
                self.requested.leave = true;
                self.requested.close = true;
            }
            CandidacyInput::Answer(id, answer) => self.on_answer(now, id, answer, out),
            CandidacyInput::Wake(id, hint) => self.on_wake(now, id, hint, out),
            CandidacyInput::SessionUp(session) => {
                self.session = Some(session.epoch);
                self.session_ends = false;
                self.tenure.prove(session.deadline);
                self.tenure.set_grace(session.settings.grace);
                self.settings = session.settings;
                self.rest = session.rest;
                // A session is there, and all the same it does not get in line.
                if self.state == State::Out && self.barred() == Some(LossReason::Unhealthy) {
                    self.event(Event::Out(LossReason::Unhealthy), out);
                }
            }
            CandidacyInput::SessionDown => self.on_session_down(now, out),
            CandidacyInput::Proven(deadline) => self.on_proven(deadline, out),
            CandidacyInput::Shortened(deadline) => self.on_shortened(deadline, out),
            CandidacyInput::Gone(held) => {
                if self.entry() == Some(&held) {
                    self.on_entry_gone(now, out);
                }
            }
            CandidacyInput::StillBehind(seen) => self.on_still_behind(now, seen),
            CandidacyInput::Refused => self.fail(now, out),
        }
        self.step(now, out);
    }

    /// When [`CandidacyInput::Tick`] is due.
    pub(crate) fn next_timeout(&self) -> Option<Timestamp> {
        let work = match self.call_ends_at() {
            Some(until) => Some(until),
            None => {
                let (watch, close) = (self.watch_backoff.until(), self.close_backoff.until());
                self.backoff.until().or_else(|| [watch, close, self.next_look()].into_iter().flatten().min())
            }
        };
        let ends = [self.tenure.next_timeout(), self.leaves_for_bench_at(), self.take_office_by];
        ends.into_iter().flatten().chain(work).min()
    }

    /// When the call that is out is given up.
    fn call_ends_at(&self) -> Option<Timestamp> {
        let call = self.call.as_ref()?;
        // Until then nobody else is first in line. Later it might hit a host that has come back.
        let shoots = matches!(call.op, Op::Shoot(..)) && self.settings.policy.shoots_once();
        Some(if shoots { self.tenure.deadline() } else { call.until })
    }

    /// When to look again although nothing told us to.
    fn next_look(&self) -> Option<Timestamp> {
        let reread = self.settings.policy.rereads().then_some(self.reread_at);
        match &self.state {
            // It stays to close a term, and looks at nothing else.
            State::Out if self.requested.leave => None,
            State::Out => match self.barred() {
                Some(LossReason::Paused) => reread,
                Some(LossReason::Benched) => [reread, self.bench_ends()].into_iter().flatten().min(),
                Some(_) => None,
                None => self.may_rejoin().then_some(self.stay_out_until),
            },
            State::Following(following) => {
                [reread, following.look_again_at, self.evict_at(following)].into_iter().flatten().min()
            }
            State::Office(held) if self.tenure.serves() => {
                let handover = self.notices.seen.map(|(_, until)| until);
                let orders = [self.freeze_ends(), self.bench_ends()];
                let looks = [reread, handover, self.next_search(held)];
                looks.into_iter().chain(orders).flatten().min()
            }
            State::Unproven(_) => [reread, self.fence_at, self.choice.ends_at()].into_iter().flatten().min(),
            State::Enlisting { .. } | State::Office(_) | State::Withdrawing(..) | State::Done => None,
        }
    }

    /// When the silence of the entry ahead is long enough to remove it.
    fn evict_at(&self, following: &Following) -> Option<Timestamp> {
        let observed = following.ahead.observed?;
        Some(following.since + stretch(observed.ttl, self.settings.drift_ppm))
    }

    /// Why this candidate may not be in line, if it may not.
    fn barred(&self) -> Option<LossReason> {
        if self.has_ended() {
            Some(LossReason::Ended)
        } else if self.requested.failed {
            Some(LossReason::Refused)
        } else if self.requested.close {
            Some(LossReason::Closing)
        } else if self.office.paused.as_ref().is_some_and(|paused| self.is_barred_by(paused)) {
            Some(LossReason::Paused)
        } else if self.requested.unhealthy {
            Some(LossReason::Unhealthy)
        } else if self.is_benched() {
            Some(LossReason::Benched)
        } else {
            None
        }
    }

    /// Whether this pause is one for this candidate, too.
    fn is_barred_by(&self, paused: &Paused) -> bool {
        let policy = self.settings.policy;
        let waits = paused.first.is_none() || policy.lets_first_lead();
        paused.bars(&self.who.name) && waits && policy.heeds_pauses()
    }

    /// Why no entry of this candidate may stay in line, if none may. One on a session that is to be
    /// replaced goes while that session can still remove it.
    fn must_leave_line(&self) -> Option<LossReason> {
        let resigned = self.requested.leave.then_some(LossReason::Resigned);
        self.barred().or(resigned).or(self.session_ends.then_some(LossReason::NoSession))
    }

    /// Whether only time keeps this candidate out of the line.
    fn may_rejoin(&self) -> bool {
        let first_time = self.next_call == 0;
        let free = self.tenure.is_settled() && self.raise.is_none();
        self.session.is_some() && !self.session_ends && free && (first_time || self.settings.policy.rejoins())
    }

    /// Whether the election ended after our first contact with it.
    fn has_ended(&self) -> bool {
        let tombstone = self.office.ended.as_ref().map(|ended| ended.id);
        let at_first = self.who.first_contact.flatten();
        tombstone.is_some() && tombstone != at_first && self.settings.policy.heeds_ends()
    }

    fn new_entry(&self) -> NewEntry {
        let entry = NewEntry::new(self.incarnation, self.who.name.clone(), self.who.value.clone());
        entry.merit(Merit { unwell: self.enlists_unwell(), ..self.merit() })
    }

    fn call(&mut self, now: Timestamp, op: Op, out: &mut Outbox) {
        let id = CallId(self.next_call);
        self.next_call += 1;
        if let Op::RaiseFences(_) = op {
            self.raise = Some(id);
        }
        if let Op::Publish(..) = op {
            self.fitness.said_unwell = None;
        }
        let shoots = matches!(op, Op::Shoot(..));
        if shoots {
            // Nobody else is to lead meanwhile.
            self.take_office_by = None;
        } else if self.tenure.is_taking() {
            self.take_office_by.get_or_insert(now + self.settings.ttl);
        }
        out.push(Output::Call(self.id, id, self.session, op.clone()));
        let close_by = self.close_by.filter(|by| now < *by && !matches!(op, Op::Withdraw(..)));
        let until = match close_by {
            Some(by) => by.min(now + self.settings.renew_every),
            None => now + self.settings.renew_every,
        };
        self.call = Some(Call { id, op, sent_at: now, until });
    }

    /// The answer to the call that is out is no longer wanted.
    fn give_up_call(&mut self, out: &mut Outbox) -> Option<Call> {
        let call = self.call.take()?;
        out.push(Output::GiveUpCall(self.id));
        Some(call)
    }

    fn event(&self, event: Event, out: &mut Outbox) {
        out.push(Output::Event(self.id, event));
    }

    /// Arms the watch that this state needs, unless it is armed already or the last one was lost a
    /// moment ago.
    fn arm(&mut self, now: Timestamp, out: &mut Outbox) {
        if self.watch.is_some() || self.watch_backoff.resting(now) {
            return;
        }
        let Some(what) = self.watch_for() else { return };
        let watch = WatchId(self.next_watch);
        self.next_watch += 1;
        self.watch = Some(watch);
        out.push(Output::Watch { candidacy: self.id, watch, what, from: self.cursor });
    }

    /// What there is to wait for in this state, if anything.
    fn watch_for(&self) -> Option<WatchFor> {
        let (held, ahead, heir) = match &self.state {
            State::Following(Following { held: Some(held), ahead, .. }) => (held, Some(ahead.id.clone()), None),
            State::Following(Following { held: None, ahead, .. }) => {
                return Some(self.watch_election(Head::Is(ahead.id.clone())));
            }
            // To watch an heir that is gone would fire at once, again and again: only while it is
            // waited for.
            State::Unproven(held) => (held, None, self.heir_waited_for(held)),
            State::Office(held) if self.tenure.serves() => {
                let heir = self.office.handover_from(held.token).and_then(|handover| handover.heir.as_ref());
                (held, None, heir.map(|heir| heir.entry.clone()))
            }
            State::Out => return Some(self.watch_election(Head::Ignored)),
            _ => return None,
        };
        let watched = Watched { ahead, heir, ..Watched::new(held.clone(), self.office.version) };
        Some(WatchFor::Entry(self.session?, watched))
    }

    fn watch_election(&self, head: Head) -> WatchFor {
        WatchFor::Election(self.who.election.clone(), Seen { head, ..Seen::new(self.office.version) })
    }

    fn disarm(&mut self, out: &mut Outbox) {
        if self.watch.take().is_some() {
            // It was not lost for as long as it was needed.
            self.watch_backoff.succeeded();
            out.push(Output::Unwatch(self.id));
        }
    }

    fn back_off(&mut self, now: Timestamp) {
        let remaining = self.tenure.in_office().then(|| self.tenure.deadline().since(now));
        self.backoff.failed(now, &mut self.rng, self.settings.longest_rest(), remaining);
    }

    /// What a lost watch would have told is looked for soon: later each time that one is lost at
    /// once. Nothing else waits for that.
    fn on_watch_lost(&mut self, now: Timestamp) {
        let remaining = self.tenure.in_office().then(|| self.tenure.deadline().since(now));
        self.watch_backoff.failed(now, &mut self.rng, self.settings.longest_rest(), remaining);
        self.reread_at = self.watch_backoff.until().map_or(self.reread_at, |until| until.min(self.reread_at));
    }

    /// The token of the term that is under way.
    fn term(&self) -> Option<Token> {
        match &self.state {
            State::Office(held) if self.tenure.in_office() => Some(held.token),
            _ => None,
        }
    }
}
