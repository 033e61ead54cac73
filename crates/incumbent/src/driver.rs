//! Runs a [`Participant`] against a store: the only place where the machine, the clock and the network meet.
//!
//! One task per client. It makes the calls that the machine asks for, hands the answers back, and
//! tells the handles what has happened. It decides nothing: a session is in use if the machine says
//! so, and what the machine has given up is dropped before anything else begins.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{AbortHandle, Abortable, Aborted};
use futures_util::stream::{FuturesUnordered, Stream};
use incumbent_core::{
    Answer, Attempt, CallId, Cas, Command, Cursor, ElectionName, Epoch, Event, Fault, Hint, Input, Loss, Op, Output,
    Participant, Renewal, SeatId, Settings, Timestamp, WatchFor, WatchId,
};
use incumbent_store::{Alarm, Clock, Session, Store, StoreError, StoreId};
use tokio::sync::{mpsc, oneshot};

use crate::candidacy::{Role, SeatEvent};
use crate::error::SeatError;
use crate::fence::{Fence, FenceError, FencingToken};
use crate::flaw::{DriverFlaw, Flaws};
use crate::port::{Request, Seat, TermState};

#[cfg(feature = "flaws")]
mod distorted;
#[cfg(feature = "flaws")]
use distorted::Distorted;

/// How many things are taken in before other tasks get a turn.
const TURN: usize = 128;

/// Something that was waited for.
enum Done {
    Opened(Attempt, Result<Arc<dyn Session>, StoreError>),
    Renewed(Attempt, Result<Renewal, StoreError>),
    Answer(SeatId, CallId, Result<Answer, CallError>),
    Wake(SeatId, WatchId, Hint),
    /// The session is closed, if `true`; else it was not to be done, and it expires later.
    Closed(bool),
    /// A session that nobody uses is closed, or expires later.
    Discarded,
    /// The store may count this TTL from now on.
    Shortened(Epoch, Duration),
}

/// Why a call failed: the store or a fence said so.
enum CallError {
    Store(StoreError),
    Fence(FenceError),
}

type Work = Pin<Box<dyn Future<Output = Done> + Send>>;

pub(crate) struct Driver {
    participant: Participant,
    settings: Settings,
    store: Arc<dyn Store>,
    store_id: Option<StoreId>,
    clock: Arc<dyn Clock>,
    alarm: Box<dyn Alarm>,
    alarm_at: Option<Timestamp>,
    requests: mpsc::UnboundedReceiver<Request>,
    hung_up: bool,
    /// The session that the machine stands on.
    session: Option<(Epoch, Arc<dyn Session>)>,
    /// Waits for news of its TTL.
    news: Option<AbortHandle>,
    /// The session is being closed.
    closing_session: bool,
    /// The opening or renewal that is out.
    attempt: Option<AbortHandle>,
    /// The call of each seat that is out.
    calls: BTreeMap<SeatId, AbortHandle>,
    /// Every handle is gone: when to stop cleaning up, whether or not the store answers.
    give_up_at: Option<Timestamp>,
    seats: BTreeMap<SeatId, Chair>,
    /// Why no session can be had, for those who fail for it.
    session_error: Option<SeatError>,
    work: FuturesUnordered<Abortable<Work>>,
    /// Who has a watch that was not begun yet.
    to_watch: Vec<SeatId>,
    /// Since the first of them came, other tasks had a turn.
    others_had_a_turn: bool,
    closing: Vec<oneshot::Sender<bool>>,
    over: bool,
    flaws: Flaws,
    #[cfg(feature = "flaws")]
    distorted: Distorted,
}

/// What the driver keeps for a seat.
struct Chair {
    election: ElectionName,
    shared: Arc<Seat>,
    fences: Arc<[Arc<dyn Fence>]>,
    watch: Option<AbortHandle>,
    /// The watch that is to be begun next.
    to_watch: Option<ToWatch>,
    term: Option<Arc<TermState>>,
    error: Option<SeatError>,
    /// A fence has called the token stale that we are taking office with.
    called_stale: bool,
}

struct ToWatch {
    watch: WatchId,
    what: WatchFor,
    from: Cursor,
}

impl Driver {
    pub(crate) fn new(
        settings: Settings,
        seed: [u64; 4],
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        requests: mpsc::UnboundedReceiver<Request>,
        flaws: Flaws,
    ) -> io::Result<Driver> {
        Ok(Driver {
            participant: Participant::new(settings, seed),
            settings,
            store,
            store_id: None,
            alarm: clock.alarm()?,
            alarm_at: None,
            clock,
            requests,
            hung_up: false,
            session: None,
            news: None,
            closing_session: false,
            attempt: None,
            calls: BTreeMap::new(),
            give_up_at: None,
            seats: BTreeMap::new(),
            session_error: None,
            work: FuturesUnordered::new(),
            to_watch: Vec::new(),
            others_had_a_turn: false,
            closing: Vec::new(),
            over: false,
            flaws,
            #[cfg(feature = "flaws")]
            distorted: Distorted::default(),
        })
    }

    pub(crate) async fn run(mut self) {
        poll_fn(|cx| self.poll(cx)).await;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        #[cfg(feature = "flaws")]
        self.tell_late(cx);
        for _ in 0..TURN {
            if self.over {
                return Poll::Ready(());
            }
            if !self.poll_once(cx) {
                return self.end_turn(cx);
            }
        }
        cx.waker().wake_by_ref();
        self.end_turn(cx)
    }

    /// Watches are begun a turn later: nobody who was just elected waits for them, and who resigns at once needs none.
    /// What happens meanwhile is not missed, since they say from where on.
    fn end_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.to_watch.is_empty() {
            if std::mem::replace(&mut self.others_had_a_turn, true) {
                self.others_had_a_turn = false;
                std::mem::take(&mut self.to_watch).into_iter().for_each(|seat| self.watch(seat));
            }
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    fn watch(&mut self, seat: SeatId) {
        let Some(chair) = self.seats.get_mut(&seat) else { return };
        let Some(ToWatch { watch, what, from }) = chair.to_watch.take() else { return };
        let wake = match &what {
            WatchFor::Entry(epoch, watched) => match self.session(*epoch) {
                Some(session) => session.watch(watched, from),
                None => Box::pin(std::future::ready(Err(StoreError::SessionGone))),
            },
            WatchFor::Election(election, seen) => self.store.watch(election, seen, from),
        };
        let handle = self.begin(Box::pin(awaken(seat, watch, wake)));
        if let Some(chair) = self.seats.get_mut(&seat) {
            replace(&mut chair.watch, Some(handle));
        }
    }

    /// Takes in one thing that has happened. `false`: nothing has.
    fn poll_once(&mut self, cx: &mut Context<'_>) -> bool {
        // Time first: a deadline that has passed is heeded before anything that came late.
        self.set_alarm();
        if self.alarm.poll_ring(cx).is_ready() {
            self.alarm_at = None;
            self.over |= self.give_up_at.is_some_and(|at| self.clock.now() >= at);
            self.take_in(cx, Input::Tick);
            return true;
        }
        if !self.hung_up
            && let Poll::Ready(request) = self.requests.poll_recv(cx)
        {
            self.on_request(cx, request);
            return true;
        }
        match Pin::new(&mut self.work).poll_next(cx) {
            Poll::Ready(Some(Ok(done))) => self.on_done(cx, done),
            Poll::Ready(Some(Err(Aborted))) => {}
            Poll::Ready(None) | Poll::Pending => return false,
        }
        true
    }

    /// An alarm that rings a little early does no harm, and is cheaper than setting it anew for each
    /// step. One that rings long before anything is due wakes a process that sleeps.
    fn set_alarm(&mut self) {
        let next = [self.participant.poll_timeout(), self.give_up_at].into_iter().flatten().min();
        let Some(at) = next else { return };
        let early = self.settings.renew_every / 4;
        if self.alarm_at.is_none_or(|set| at < set || set + early < at) {
            self.alarm_at = Some(at);
            self.alarm.set(Some(at));
        }
    }

    fn on_request(&mut self, cx: &mut Context<'_>, request: Option<Request>) {
        match request {
            Some(Request::Stand { seat, candidate, fences, shared }) => {
                if !self.participant.may_stand(&candidate.election) {
                    let error = SeatError::AlreadyInLine;
                    shared.change(|state| {
                        state.failed = Some(error);
                        state.done = Some(true);
                    });
                    return;
                }
                let chair = Chair {
                    election: candidate.election.clone(),
                    shared,
                    fences: fences.into(),
                    watch: None,
                    to_watch: None,
                    term: None,
                    error: None,
                    called_stale: false,
                };
                self.seats.insert(seat, chair);
                self.take_in(cx, Input::Stand(seat, candidate));
            }
            Some(Request::Command(seat, command)) => {
                if command == Command::Leave {
                    self.give_back_unclaimed(cx, seat);
                }
                let refused = matches!(command, Command::Transfer(..)).then(|| self.refused_transfers(seat));
                self.take_in(cx, Input::Command(seat, command));
                // Most of those that cannot be carried out are refused at once.
                if refused.is_some_and(|before| before == self.refused_transfers(seat)) {
                    self.note_ceding(seat, true);
                }
            }
            // Of peers, which have another runner.
            #[cfg(feature = "peers")]
            Some(Request::HandTo(..)) => {}
            Some(Request::Lapsed(seat, token)) => {
                if let Some(token) = token {
                    self.take_in(cx, Input::Command(seat, Command::Lapsed(token)));
                }
            }
            Some(Request::Close(reply)) => {
                self.closing.push(reply);
                self.take_in(cx, Input::Close);
            }
            None => {
                // Every handle is gone: clean up, and go, too.
                self.hung_up = true;
                self.give_up_at = Some(self.clock.now() + self.settings.ttl * 2);
                self.take_in(cx, Input::Close);
            }
        }
    }

    /// An office that nobody has taken, and nobody will, is given back.
    fn give_back_unclaimed(&mut self, cx: &mut Context<'_>, seat: SeatId) {
        let unclaimed = self.seats.get(&seat).and_then(|chair| chair.shared.state().elected.take());
        if unclaimed.is_some() {
            self.take_in(cx, Input::Command(seat, Command::Release));
        }
    }

    fn refused_transfers(&self, seat: SeatId) -> u64 {
        self.seats.get(&seat).map_or(0, |chair| chair.shared.state().refused.0)
    }

    fn note_ceding(&self, seat: SeatId, ceding: bool) {
        if let Some(term) = self.seats.get(&seat).and_then(|chair| chair.term.as_ref()) {
            term.ceding.store(ceding, Ordering::Release);
        }
    }

    fn on_done(&mut self, cx: &mut Context<'_>, done: Done) {
        match done {
            Done::Opened(attempt, result) => self.on_opened(cx, attempt, result),
            Done::Renewed(attempt, result) => {
                let answer = result.map_err(|error| {
                    tracing::debug!(%error, "renewal failed");
                    error.fault()
                });
                self.take_in(cx, Input::Renewed(attempt, answer));
            }
            Done::Answer(seat, call, result) => {
                self.calls.remove(&seat);
                let answer = result.map_err(|error| self.on_call_error(seat, error));
                self.take_in(cx, Input::Answer(seat, call, answer));
            }
            Done::Wake(seat, watch, hint) => self.take_in(cx, Input::Wake(seat, watch, hint)),
            Done::Closed(closed) => self.on_session_closed(closed),
            Done::Discarded => {}
            Done::Shortened(epoch, ttl) => {
                tracing::warn!(?ttl, "the store may count a shorter TTL: the session is replaced");
                self.take_in(cx, Input::Shortened(epoch, ttl));
            }
        }
    }

    /// A session that was opened is in use only if the machine takes it: it may refuse the TTL that
    /// was granted.
    fn on_opened(&mut self, cx: &mut Context<'_>, attempt: Attempt, result: Result<Arc<dyn Session>, StoreError>) {
        self.attempt = None;
        let session = match result {
            Ok(session) => session,
            Err(error) => {
                tracing::debug!(%error, "opening a session failed");
                let fault = error.fault();
                self.session_error = Some(error.into());
                return self.take_in(cx, Input::Opened(attempt, Err(fault)));
            }
        };
        let answer = self.same_store(&session).map(|()| session.liveness());
        self.participant.handle(self.clock.now(), Input::Opened(attempt, answer));
        let epoch = Epoch(attempt.0);
        let adopted = [DriverFlaw::LateOpeningAdopted, DriverFlaw::RenewalUnanswered].map(|flaw| self.flaws.has(flaw));
        if self.participant.session() == Some(epoch) || adopted != [false; 2] {
            let shortened = session.shortened();
            self.session = Some((epoch, session));
            let news = self.begin(Box::pin(async move { Done::Shortened(epoch, shortened.await) }));
            replace(&mut self.news, Some(news));
        } else {
            self.discard(session);
        }
        self.carry_out_all(cx);
    }

    /// Closes a session that nobody uses.
    fn discard(&mut self, session: Arc<dyn Session>) {
        let within = self.settings.renew_every;
        self.begin(Box::pin(async move {
            close(session, within).await;
            Done::Discarded
        }));
    }

    fn same_store(&mut self, session: &Arc<dyn Session>) -> Result<(), Fault> {
        let is = session.store_id();
        let was = self.store_id.get_or_insert_with(|| is.clone());
        if *was == is {
            return Ok(());
        }
        tracing::error!(%was, %is, "the store was replaced");
        self.session_error = Some(SeatError::StoreReplaced { was: was.clone(), is });
        Err(Fault::Permanent)
    }

    fn on_call_error(&mut self, seat: SeatId, error: CallError) -> Fault {
        let (fault, error) = match error {
            CallError::Store(error) => (error.fault(), SeatError::Store(error)),
            CallError::Fence(error) => self.on_fence_error(seat, error),
        };
        tracing::debug!(?seat, %error, "call failed");
        if fault == Fault::Permanent
            && let Some(chair) = self.seats.get_mut(&seat)
        {
            chair.error = Some(error);
        }
        fault
    }

    /// A fence that calls us stale knows a newer leader, or the history of another store. The machine looks once more
    /// whether we are first in line: if we are, then there is no newer leader.
    fn on_fence_error(&mut self, seat: SeatId, error: FenceError) -> (Fault, SeatError) {
        let stale = matches!(error, FenceError::Stale { .. });
        let (Some(chair), Some(store)) = (self.seats.get_mut(&seat), &self.store_id) else {
            return (error.fault(), SeatError::Fence(error));
        };
        let again = std::mem::replace(&mut chair.called_stale, stale);
        match (stale, again) {
            (true, false) => (Fault::Unavailable, SeatError::Fence(error)),
            (true, true) => (Fault::Permanent, SeatError::Fence(error.seen_leading(store))),
            (false, _) => (error.fault(), SeatError::Fence(error)),
        }
    }

    fn on_session_closed(&mut self, closed: bool) {
        for reply in self.closing.drain(..) {
            // Whoever asked may have stopped waiting.
            let _ = reply.send(closed);
        }
        self.over = true;
    }

    fn take_in(&mut self, cx: &mut Context<'_>, input: Input) {
        self.participant.handle(self.clock.now(), input);
        self.carry_out_all(cx);
    }

    fn carry_out_all(&mut self, cx: &mut Context<'_>) {
        while let Some(output) = self.participant.poll_output() {
            #[cfg(feature = "flaws")]
            let Some(output) = self.distort(cx, output) else { continue };
            self.carry_out(cx, output);
        }
    }

    fn carry_out(&mut self, cx: &mut Context<'_>, output: Output) {
        match output {
            Output::OpenSession(attempt, ttl) => {
                let store = self.store.clone();
                self.attempt(Box::pin(async move { Done::Opened(attempt, store.open_session(ttl).await) }));
            }
            Output::Renew { attempt, epoch, held } => {
                let session = self.session(epoch);
                self.attempt(Box::pin(async move {
                    let answer = match session {
                        Some(session) => session.renew(&held).await,
                        None => Err(StoreError::SessionGone),
                    };
                    Done::Renewed(attempt, answer)
                }));
            }
            Output::GiveUpAttempt(_) => replace(&mut self.attempt, None),
            Output::ReplaceSession(epoch) => {
                if let Some((_, session)) = self.session.take_if(|(known, _)| *known == epoch) {
                    self.discard(session);
                }
            }
            Output::CloseSession(epoch) => self.close_session(epoch),
            Output::Closed => {
                if !self.closing_session {
                    self.on_session_closed(true);
                }
            }
            Output::Call(seat, call, epoch, op) => self.call(seat, call, epoch, op),
            Output::GiveUpCall(seat) => self.give_up_call(seat),
            Output::Watch { seat, watch, what, from } => {
                let Some(chair) = self.seats.get_mut(&seat) else { return };
                replace(&mut chair.watch, None);
                if chair.to_watch.replace(ToWatch { watch, what, from }).is_none() {
                    self.to_watch.push(seat);
                }
            }
            Output::Unwatch(seat) => {
                if let Some(chair) = self.seats.get_mut(&seat) {
                    replace(&mut chair.watch, None);
                    chair.to_watch = None;
                }
            }
            Output::Event(seat, event) => self.tell(cx, seat, event),
            Output::SettingsRefused(error) => self.session_error = Some(error.into()),
        }
    }

    fn session(&self, epoch: Epoch) -> Option<Arc<dyn Session>> {
        self.session.as_ref().filter(|(known, _)| *known == epoch).map(|(_, session)| session.clone())
    }

    fn attempt(&mut self, work: Work) {
        self.attempt = Some(self.begin(work));
    }

    fn close_session(&mut self, epoch: Epoch) {
        if let Some(session) = self.session(epoch) {
            self.closing_session = true;
            let within = self.settings.renew_every;
            self.begin(Box::pin(async move { Done::Closed(close(session, within).await) }));
        }
    }

    fn give_up_call(&mut self, seat: SeatId) {
        if let Some(call) = self.calls.remove(&seat) {
            call.abort();
        }
    }

    fn call(&mut self, seat: SeatId, call: CallId, epoch: Option<Epoch>, op: Op) {
        let session = epoch.and_then(|epoch| self.session(epoch));
        let work: Work = match (op, self.seats.get(&seat), &self.store_id) {
            (Op::RaiseFences(token), Some(chair), Some(store)) => {
                let token = FencingToken::new(token, store.clone());
                let raise = raise(chair.election.clone(), chair.fences.clone(), token);
                Box::pin(async move { Done::Answer(seat, call, raise.await.map_err(CallError::Fence)) })
            }
            (op, ..) => {
                let store = self.store.clone();
                let ask = async move { ask(&*store, session, op).await.map_err(CallError::Store) };
                Box::pin(async move { Done::Answer(seat, call, ask.await) })
            }
        };
        let handle = self.begin(work);
        self.calls.insert(seat, handle);
    }

    fn begin(&mut self, work: Work) -> AbortHandle {
        let (handle, registration) = AbortHandle::new_pair();
        self.work.push(Abortable::new(work, registration));
        handle
    }

    fn tell(&mut self, cx: &mut Context<'_>, seat: SeatId, event: Event) {
        let Some(chair) = self.seats.get_mut(&seat) else { return };
        match event {
            Event::FirstContact(tombstone) => chair.shared.on_first_contact(tombstone),
            Event::Following(ahead) => {
                chair.called_stale = false;
                chair.role(Role::Following { ahead: ahead.name, token: Some(ahead.token) });
            }
            Event::Out(why) => chair.role(Role::Out(why)),
            Event::Elected { held, deadline } => {
                if let Some(store) = &self.store_id {
                    let session = self.session.as_ref().map(|(_, session)| Arc::downgrade(session));
                    chair.on_elected(FencingToken::new(held.token, store.clone()), deadline, session);
                }
            }
            Event::Deadline(deadline) => {
                if let Some(term) = &chair.term {
                    term.extend(deadline);
                }
            }
            Event::Stopping { why, hard_stop } => {
                if let Some(term) = &chair.term {
                    term.stop(why, hard_stop);
                }
                chair.shared.tell(|| SeatEvent::Stopping(why));
                self.give_back_unclaimed(cx, seat);
            }
            Event::Unelected(why) => {
                chair.on_unelected(why);
                self.give_back_unclaimed(cx, seat);
            }
            Event::Released => chair.released(true),
            Event::TransferRefused(why) => {
                self.note_ceding(seat, false);
                let Some(chair) = self.seats.get_mut(&seat) else { return };
                chair.shared.change(|state| state.refused = (state.refused.0 + 1, Some(why.into())))
            }
            Event::Proclaimed(number, cas) => {
                if let Some(term) = &chair.term {
                    term.proclaimed.change(|_| Some((number, cas == Cas::Done)));
                }
            }
            Event::Ended => {
                chair.shared.change(|state| state.ended = true);
                chair.shared.tell(|| SeatEvent::Ended);
            }
            Event::Failed => {
                let error = chair.error.take().or_else(|| self.session_error.clone()).unwrap_or(SeatError::Closed);
                chair.shared.change(|state| state.failed = Some(error));
            }
            Event::Done { certain } => {
                if let Some(chair) = self.seats.remove(&seat) {
                    chair.finish(certain);
                }
            }
        }
    }
}

impl Drop for Driver {
    /// However the driver ends (its work is done, the runtime goes, a store has panicked), nobody
    /// waits for it in vain.
    fn drop(&mut self) {
        if self.flaws.has(DriverFlaw::DropUntold) {
            return;
        }
        self.requests.close();
        while let Ok(request) = self.requests.try_recv() {
            if let Request::Stand { shared, .. } = request {
                shared.change(|state| state.done = Some(true));
            }
        }
        for chair in std::mem::take(&mut self.seats).into_values() {
            chair.finish(false);
        }
    }
}

impl Chair {
    fn role(&self, role: Role) {
        self.shared.change(|state| state.role = role.clone());
        self.shared.tell(|| SeatEvent::Role(role));
    }

    fn on_elected(&mut self, token: FencingToken, deadline: Timestamp, session: Option<Weak<dyn Session>>) {
        let number = token.token;
        let term = Arc::new(TermState::new(self.election.clone(), Some(token), deadline, session));
        self.term = Some(term.clone());
        self.shared.change(|state| {
            state.role = Role::Leading { token: Some(number) };
            state.elected = Some(term);
        });
        self.shared.tell(|| SeatEvent::Elected(Some(number)));
    }

    fn on_unelected(&mut self, why: Loss) {
        if let Some(term) = &self.term {
            term.end(why);
        }
        if matches!(why, Loss::Expired | Loss::EntryDeleted | Loss::Deposed) {
            self.released(true);
        }
        self.shared.change(|state| state.role = Role::Out(why));
        self.shared.tell(|| SeatEvent::Unelected(why));
    }

    /// The entry of the last term has left the line, if `certain`; else nobody will ever know.
    fn released(&mut self, certain: bool) {
        if let Some(term) = &self.term {
            term.release(certain);
        }
    }

    /// The seat is over.
    fn finish(mut self, certain: bool) {
        replace(&mut self.watch, None);
        if let Some(term) = &self.term {
            term.end(Loss::Closing);
        }
        self.released(certain);
        self.shared.change(|state| state.done = Some(certain));
    }
}

fn replace(slot: &mut Option<AbortHandle>, by: Option<AbortHandle>) {
    if let Some(before) = std::mem::replace(slot, by) {
        before.abort();
    }
}

async fn awaken(seat: SeatId, watch: WatchId, wake: incumbent_store::Wake) -> Done {
    let hint = match wake.await {
        Ok(()) => Hint::Changed,
        Err(error) => {
            tracing::debug!(?seat, %error, "watch lost");
            Hint::Lost
        }
    };
    Done::Wake(seat, watch, hint)
}

/// Closes a session. One that cannot be closed now expires later.
async fn close(session: Arc<dyn Session>, within: Duration) -> bool {
    match tokio::time::timeout(within, session.close()).await {
        Ok(Ok(())) => return true,
        Ok(Err(error)) => tracing::debug!(%error, "closing the session failed"),
        Err(_) => tracing::debug!("closing the session took too long"),
    }
    false
}

async fn ask(store: &dyn Store, session: Option<Arc<dyn Session>>, op: Op) -> Result<Answer, StoreError> {
    let session = || session.as_deref().ok_or(StoreError::SessionGone);
    Ok(match op {
        Op::Enlist(election, entry) => Answer::Standing(Box::new(session()?.enlist(&election, &entry).await?)),
        Op::Standing(held, behind) => Answer::Standing(Box::new(session()?.standing(&held, behind.as_ref()).await?)),
        Op::Withdraw(held, heir) => Answer::Cas(session()?.withdraw(&held, heir.as_ref()).await?),
        Op::Publish(held, was, value, ready) => Answer::Published(session()?.publish(&held, was, &value, ready).await?),
        Op::Line(election, limit) => Answer::Line(Box::new(store.line(&election, limit).await?)),
        Op::SetOffice(election, was, to) => Answer::Cas(store.set_office(&election, was, &to).await?),
        Op::Evict(election, seen) => Answer::Cas(store.evict(&election, &seen).await?),
        // Only a seat that we know has fences, and only with a session that told us which store it is.
        Op::RaiseFences(_) => return Err(StoreError::SessionGone),
    })
}

async fn raise(
    election: ElectionName,
    fences: Arc<[Arc<dyn Fence>]>,
    token: FencingToken,
) -> Result<Answer, FenceError> {
    for fence in fences.iter() {
        fence.raise(&election, token.clone()).await?;
    }
    Ok(Answer::Raised)
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use incumbent_store::TokioClock;
    use incumbent_store::memory::{MemoryStore, Shape};

    use super::*;

    #[tokio::test]
    async fn a_renewal_of_a_session_that_is_not_there_is_answered() {
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
        let store = Arc::new(MemoryStore::with_clock(Shape::FAIR, clock.clone()));
        let (_handles, requests) = mpsc::unbounded_channel();
        let made = Driver::new(Settings::default(), [1; 4], store, clock, requests, Flaws::default());
        let mut driver = made.unwrap_or_else(|error| panic!("{error}"));
        let mut cx = Context::from_waker(Waker::noop());
        driver.carry_out(&mut cx, Output::Renew { attempt: Attempt(7), epoch: Epoch(3), held: Vec::new() });
        let Poll::Ready(Some(Ok(answer))) = Pin::new(&mut driver.work).poll_next(&mut cx) else { panic!("no answer") };
        assert!(matches!(answer, Done::Renewed(Attempt(7), Err(StoreError::SessionGone))));
    }
}
