//! Drives a [`Participant`] against a store: makes the calls that it asks for, and hands the
//! answers back.
//!
//! A session is in use if the machine says so, and what the machine has given up is dropped before
//! anything else begins.

use std::collections::BTreeMap;
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{AbortHandle, Abortable, Aborted};
use futures_util::stream::{FuturesUnordered, Stream};
use incumbent_core::peers::MemberId;
use incumbent_core::{
    Answer, Attempt, CallId, CandidacyId, Command, Cursor, Epoch, Event, Fault, Hint, Input, Liveness, Nonce, Op,
    Origin, Output, Participant, Renewal, Settings, Timestamp, Title, Token, WatchFor, WatchId,
};
use incumbent_store::{Clock, Session, Store, StoreError, StoreId, wall_clock_ms};

use super::fences::{Fences, in_task};
use super::readying::{Readied, Readying, discard};
use super::{Side, SideEvent, replace};
use crate::error::CandidacyError;
use crate::fence::{FenceError, FencingToken};
use crate::flaw::Flaws;
use crate::heir::{HeirRequest, ReadyHook};
use crate::hooks::Hooks;
use crate::origin::{HasStopped, has_died};
use crate::port::Stand;
use crate::stonith::Stonith;

#[cfg(feature = "flaws")]
mod distorted;
#[cfg(feature = "flaws")]
use distorted::Distorted;

/// Something that was waited for.
enum Done {
    Opened(Attempt, Result<Arc<dyn Session>, StoreError>),
    Renewed(Attempt, Result<Renewal, StoreError>),
    Answer(CandidacyId, CallId, Result<Answer, CallError>),
    Wake(CandidacyId, WatchId, Hint),
    /// A candidate has got ready for this handover, or has not.
    Readied(CandidacyId, Nonce, Readied),
    /// The session, or one that it replaced, is closed, if `true`; else closing failed and it
    /// expires later.
    Closed(bool),
    /// A session that nobody uses is closed, or expires later.
    Discarded,
    /// The store may count this TTL from now on.
    Shortened(Epoch, Duration),
}

/// Why a call failed: the store or a fence said so.
enum CallError {
    Store(StoreError),
    Fence(Token, FenceError),
}

type Work = Pin<Box<dyn Future<Output = Done> + Send>>;

pub(crate) struct StoreSide {
    participant: Participant,
    settings: Settings,
    store: Arc<dyn Store>,
    store_id: Option<StoreId>,
    clock: Arc<dyn Clock>,
    hooks: Hooks,
    /// The session that the machine stands on.
    session: Option<(Epoch, Arc<dyn Session>)>,
    /// Waits for news of its TTL.
    news: Option<AbortHandle>,
    /// How many sessions are being closed on which candidacies stood.
    closing_sessions: usize,
    /// No session is in use any more, nor will be.
    machine_closed: bool,
    /// Of the sessions that were being closed then, none could not be.
    certain: bool,
    /// All is over; and nothing is left, if `true`.
    closed: Option<bool>,
    /// The opening or renewal that is out.
    attempt: Option<AbortHandle>,
    /// The call of each candidacy that is out and wanted.
    calls: BTreeMap<CandidacyId, (CallId, AbortHandle)>,
    candidacies: BTreeMap<CandidacyId, DrivenCandidacy>,
    /// Why no session can be had, for those who fail for it.
    session_error: Option<CandidacyError>,
    work: FuturesUnordered<Abortable<Work>>,
    /// Who has a watch that was not begun yet.
    to_watch: Vec<CandidacyId>,
    /// Since the first of them came, other tasks had a turn.
    others_had_a_turn: bool,
    flaws: Flaws,
    #[cfg(feature = "flaws")]
    distorted: Distorted,
}

/// What is kept for a candidacy.
struct DrivenCandidacy {
    fences: Fences,
    stonith: Option<Arc<Stonith>>,
    ready_hook: Option<ReadyHook>,
    /// What it has begun as an heir, until its term is over or that is called off.
    readying: Option<Readying>,
    has_stopped: Option<HasStopped>,
    /// What the record says of where its work is done.
    origin: Arc<Origin>,
    watch: Option<AbortHandle>,
    /// The watch that is to be begun next.
    to_watch: Option<ToWatch>,
    error: Option<CandidacyError>,
}

struct ToWatch {
    watch: WatchId,
    what: WatchFor,
    from: Cursor,
}

impl StoreSide {
    pub(crate) fn new(
        settings: Settings,
        seed: [u64; 4],
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        hooks: Hooks,
    ) -> StoreSide {
        StoreSide {
            participant: Participant::new(settings, seed),
            settings,
            store,
            store_id: None,
            clock,
            flaws: hooks.flaws,
            hooks,
            session: None,
            news: None,
            closing_sessions: 0,
            machine_closed: false,
            certain: true,
            closed: None,
            attempt: None,
            calls: BTreeMap::new(),
            candidacies: BTreeMap::new(),
            session_error: None,
            work: FuturesUnordered::new(),
            to_watch: Vec::new(),
            others_had_a_turn: false,
            #[cfg(feature = "flaws")]
            distorted: Distorted::default(),
        }
    }

    fn take_in(&mut self, input: Input) {
        self.participant.handle(self.clock.now(), input);
    }

    fn on_done(&mut self, done: Done) {
        match done {
            Done::Opened(attempt, result) => self.on_opened(attempt, result),
            Done::Renewed(attempt, result) => {
                let answer = result.map_err(|error| {
                    tracing::debug!(error = &error as &dyn Error, "renewal failed");
                    error.fault()
                });
                self.take_in(Input::Renewed(attempt, answer));
            }
            Done::Answer(id, call, result) => {
                let wanted = self.calls.get(&id).is_some_and(|(out, _)| *out == call);
                if wanted {
                    self.calls.remove(&id);
                }
                let answer = result.map_err(|error| match wanted {
                    true => self.on_call_error(id, error),
                    false => Fault::OutcomeUnknown,
                });
                self.take_in(Input::Answer(id, call, answer));
            }
            Done::Wake(id, watch, hint) => self.take_in(Input::Wake(id, watch, hint)),
            Done::Readied(id, nonce, readied) => self.on_readied(id, nonce, readied),
            Done::Closed(closed) => self.on_session_closed(closed),
            Done::Discarded => {}
            Done::Shortened(epoch, ttl) => {
                tracing::warn!(?ttl, "the store may count a shorter TTL: the session is replaced");
                self.take_in(Input::Shortened(epoch, ttl));
            }
        }
    }

    /// A session that was opened is in use only if the machine takes it: it may refuse the TTL that
    /// was granted.
    fn on_opened(&mut self, attempt: Attempt, result: Result<Arc<dyn Session>, StoreError>) {
        self.attempt = None;
        let session = match result {
            Ok(session) => session,
            Err(error) => {
                tracing::debug!(error = &error as &dyn Error, "opening a session failed");
                let fault = error.fault();
                self.session_error = Some(error.into());
                return self.take_in(Input::Opened(attempt, Err(fault)));
            }
        };
        let answer = self.same_store(&session).map(|()| session.liveness());
        self.take_in(Input::Opened(attempt, answer));
        let epoch = Epoch(attempt.0);
        if self.participant.session() == Some(epoch) || !self.flaws.discards_late_openings() {
            let shortened = session.shortened();
            self.say_what_is_granted(&session.liveness());
            self.session = Some((epoch, session));
            let news = self.begin(Box::pin(async move { Done::Shortened(epoch, shortened.await) }));
            replace(&mut self.news, Some(news));
        } else {
            self.discard(session);
        }
    }

    fn say_what_is_granted(&self, liveness: &Liveness) {
        if liveness.ttl < self.settings.ttl
            && let Ok(granted) = self.settings.granted(liveness)
        {
            let (asked, ttl, grace) = (self.settings.ttl, granted.ttl, granted.grace);
            tracing::warn!("the store grants a TTL of {ttl:?}, and not {asked:?}: work has {grace:?} to stop");
        }
    }

    /// Closes a session that nobody uses.
    fn discard(&mut self, session: Arc<dyn Session>) {
        let within = self.settings.renew_every;
        self.begin(Box::pin(async move {
            if tokio::time::timeout(within, close(session)).await.is_err() {
                tracing::debug!("closing a session that nobody uses took too long");
            }
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
        self.session_error = Some(CandidacyError::StoreReplaced { was: was.clone(), is });
        Err(Fault::Permanent)
    }

    fn on_call_error(&mut self, id: CandidacyId, error: CallError) -> Fault {
        let candidacy = self.candidacies.get_mut(&id);
        let (fault, error) = match (error, &self.store_id) {
            (CallError::Store(error), _) => (error.fault(), CandidacyError::Store(error)),
            (CallError::Fence(token, error), Some(store)) => match candidacy {
                Some(candidacy) => candidacy.fences.on_error(store, token, error),
                None => (error.fault(), CandidacyError::Fence(error)),
            },
            (CallError::Fence(_, error), None) => (error.fault(), CandidacyError::Fence(error)),
        };
        tracing::debug!(?id, error = &error as &dyn Error, "call failed");
        if fault == Fault::Permanent
            && let Some(candidacy) = self.candidacies.get_mut(&id)
        {
            candidacy.error = Some(error);
        }
        fault
    }

    /// Does what the machine says. An event comes back, to be told before anything else is done.
    fn carry_out(&mut self, output: Output) -> Option<SideEvent> {
        match output {
            Output::OpenSession(attempt, ttl) => {
                let store = self.store.clone();
                self.attempt(Box::pin(async move { Done::Opened(attempt, store.open_session(ttl).await) }));
            }
            Output::Renew { attempt, epoch, held } => {
                let session = self.session_of(epoch);
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
                    let limit = self.settings.renew_every;
                    self.close_used(async move { tokio::time::timeout(limit, close(session)).await.unwrap_or(false) });
                }
            }
            Output::CloseSession(epoch) => self.close_session(epoch),
            Output::Closed => {
                self.machine_closed = true;
                self.end_once_closed(true);
            }
            Output::Call(id, call, epoch, op) => self.call(id, call, epoch, op),
            Output::GiveUpCall(id) => self.give_up_call(id),
            Output::Watch { candidacy: id, watch, what, from } => {
                let candidacy = self.candidacies.get_mut(&id)?;
                replace(&mut candidacy.watch, None);
                if candidacy.to_watch.replace(ToWatch { watch, what, from }).is_none() {
                    self.to_watch.push(id);
                }
            }
            Output::Unwatch(id) => {
                let candidacy = self.candidacies.get_mut(&id)?;
                replace(&mut candidacy.watch, None);
                candidacy.to_watch = None;
            }
            Output::Event(id, event) => {
                self.note(id, &event);
                return Some(SideEvent::Event(id, event));
            }
            Output::SettingsRefused(error) => self.session_error = Some(error.into()),
        }
        None
    }

    fn note(&mut self, id: CandidacyId, event: &Event) {
        match event {
            Event::Following(_) => {
                if let Some(candidacy) = self.candidacies.get_mut(&id) {
                    candidacy.fences.forget();
                }
            }
            Event::Prepare { nonce, within } => self.get_ready(id, *nonce, *within),
            Event::CalledOff(nonce) => {
                if let Some(candidacy) = self.candidacies.get_mut(&id) {
                    candidacy.readying.take_if(|readying| readying.is_for(*nonce));
                }
            }
            // What was got ready was for that term.
            Event::Unelected(_) => {
                if let Some(candidacy) = self.candidacies.get_mut(&id) {
                    candidacy.readying = None;
                }
            }
            Event::Done { .. } => {
                if let Some(mut candidacy) = self.candidacies.remove(&id) {
                    replace(&mut candidacy.watch, None);
                }
            }
            _ => {}
        }
    }

    fn get_ready(&mut self, id: CandidacyId, nonce: Nonce, within: Duration) {
        #[cfg(feature = "flaws")]
        let token = self.token_given_away(id);
        let Some(candidacy) = self.candidacies.get_mut(&id) else { return };
        let Some(hook) = &candidacy.ready_hook else { return };
        let request = HeirRequest {
            election: candidacy.fences.election.clone(),
            within,
            #[cfg(feature = "flaws")]
            token,
        };
        let (readying, readied) = Readying::begin(&self.hooks, hook, nonce, request);
        candidacy.readying = Some(readying);
        self.begin(Box::pin(async move { Done::Readied(id, nonce, readied.await) }));
    }

    fn on_readied(&mut self, id: CandidacyId, nonce: Nonce, readied: Readied) {
        let readying = self.candidacies.get_mut(&id).and_then(|candidacy| candidacy.readying.as_mut());
        let Some(readying) = readying else { return discard(&self.hooks, readied.ok()) };
        if let Some(answer) = readying.end(nonce, readied) {
            self.take_in(Input::Command(id, Command::Prepared(nonce, answer)));
        }
    }

    fn session_of(&self, epoch: Epoch) -> Option<Arc<dyn Session>> {
        self.session.as_ref().filter(|(known, _)| *known == epoch).map(|(_, session)| session.clone())
    }

    fn attempt(&mut self, work: Work) {
        self.attempt = Some(self.begin(work));
    }

    fn close_session(&mut self, epoch: Epoch) {
        if let Some(session) = self.session_of(epoch) {
            // No bound of its own: `Client::close` says how long to wait, and once every handle is
            // gone the driver goes, too.
            self.machine_closed = true;
            self.close_used(close(session));
        }
    }

    /// Closes a session on which candidacies stood. An enlistment that was given up may still
    /// arrive there, so nobody is told that nothing is left before it is closed, replaced or not.
    fn close_used(&mut self, closing: impl Future<Output = bool> + Send + 'static) {
        self.closing_sessions += 1;
        self.begin(Box::pin(async move { Done::Closed(closing.await) }));
    }

    fn on_session_closed(&mut self, closed: bool) {
        self.closing_sessions -= 1;
        self.end_once_closed(closed);
    }

    /// One that could not be closed while others were in use expires, and nobody waits for that.
    fn end_once_closed(&mut self, closed: bool) {
        if self.machine_closed {
            self.certain &= closed;
            if self.closing_sessions == 0 {
                self.closed = Some(self.certain);
            }
        }
    }

    fn give_up_call(&mut self, id: CandidacyId) {
        if let Some((_, call)) = self.calls.remove(&id) {
            call.abort();
        }
    }

    fn call(&mut self, id: CandidacyId, call: CallId, epoch: Option<Epoch>, op: Op) {
        let session = epoch.and_then(|epoch| self.session_of(epoch));
        let handle = match (op, self.candidacies.get(&id), &self.store_id) {
            (Op::RaiseFences(token), Some(candidacy), Some(store)) => {
                let (handle, raised) = candidacy.fences.raise(&self.hooks, FencingToken::new(token, store.clone()));
                // Given up, it is answered all the same, once nothing is left of it.
                self.begin(Box::pin(async move {
                    let raised = raised.await.map(|()| Answer::Raised);
                    Done::Answer(id, call, raised.map_err(|error| CallError::Fence(token, error)))
                }));
                handle
            }
            (Op::Shoot(term, attempt), Some(DrivenCandidacy { fences, stonith: Some(stonith), origin, .. }), _) => {
                let (election, stonith, clock) = (fences.election.clone(), stonith.clone(), self.clock.clone());
                let (own, unanswered) = (origin.clone(), stonith.after_no_answer(attempt));
                let shot = async move { stonith.fire(election, *term, attempt, &own, &*clock).await };
                // The user's code, as a fence is. Given up, it is aborted, and nobody waits for its
                // end: the claim on record says that it may have been fired, and no other is fired
                // beside it.
                let (_, shot) = in_task(&self.hooks, shot);
                self.begin(Box::pin(async move {
                    let (result, again, why) = shot.await.unwrap_or(unanswered);
                    Done::Answer(id, call, Ok(Answer::Shot { result, again, why }))
                }))
            }
            (Op::Examine(term), Some(DrivenCandidacy { has_stopped: Some(has_stopped), .. }), _) => {
                let has_stopped = *has_stopped;
                // The user's code again, which may read from a disk that hangs.
                let looked = tokio::task::spawn_blocking(move || has_died(&term.origin, Some(has_stopped)));
                self.begin(Box::pin(async move {
                    let died = looked.await.unwrap_or(false);
                    Done::Answer(id, call, Ok(Answer::Examined { died }))
                }))
            }
            (op, ..) => {
                let store = self.store.clone();
                let ask = async move { ask(&*store, session, op).await.map_err(CallError::Store) };
                self.begin(Box::pin(async move { Done::Answer(id, call, ask.await) }))
            }
        };
        self.calls.insert(id, (call, handle));
    }

    fn begin(&mut self, work: Work) -> AbortHandle {
        let (handle, registration) = AbortHandle::new_pair();
        self.work.push(Abortable::new(work, registration));
        handle
    }

    fn watch(&mut self, id: CandidacyId) {
        let Some(candidacy) = self.candidacies.get_mut(&id) else { return };
        let Some(ToWatch { watch, what, from }) = candidacy.to_watch.take() else { return };
        let wake = match &what {
            WatchFor::Entry(epoch, watched) => match self.session_of(*epoch) {
                Some(session) => session.watch(watched, from),
                None => Box::pin(std::future::ready(Err(StoreError::SessionGone))),
            },
            WatchFor::Election(election, seen) => self.store.watch(election, seen, from),
        };
        let handle = self.begin(Box::pin(awaken(id, watch, wake)));
        if let Some(candidacy) = self.candidacies.get_mut(&id) {
            replace(&mut candidacy.watch, Some(handle));
        }
    }
}

impl Side for StoreSide {
    fn stand(&mut self, stand: Stand) -> Result<(), CandidacyError> {
        let Stand { id, mut candidate, fences, stonith, ready_hook, has_stopped, .. } = stand;
        if !self.participant.may_stand(&candidate.election) {
            return Err(CandidacyError::AlreadyInLine);
        }
        let fences = Fences::new(candidate.election.clone(), fences);
        candidate.fence_delay =
            stonith.as_ref().map(|stonith| stonith.delay.unwrap_or_else(|| self.settings.fence_delay()));
        let origin = candidate.origin.clone();
        candidate.prepares = ready_hook.is_some();
        let driven = DrivenCandidacy {
            fences,
            stonith,
            ready_hook,
            readying: None,
            has_stopped,
            origin,
            watch: None,
            to_watch: None,
            error: None,
        };
        self.candidacies.insert(id, driven);
        self.take_in(Input::Stand(id, candidate));
        Ok(())
    }

    fn command(&mut self, id: CandidacyId, command: Command) {
        self.take_in(Input::Command(id, command));
    }

    fn close(&mut self) {
        self.take_in(Input::Close);
    }

    fn tick(&mut self) {
        self.take_in(Input::Tick);
    }

    fn next_timeout(&self) -> Option<Timestamp> {
        self.participant.poll_timeout()
    }

    fn poll_work(&mut self, cx: &mut Context<'_>) -> bool {
        match Pin::new(&mut self.work).poll_next(cx) {
            Poll::Ready(Some(Ok(done))) => self.on_done(done),
            Poll::Ready(Some(Err(Aborted))) => {}
            Poll::Ready(None) | Poll::Pending => return false,
        }
        true
    }

    fn next_event(&mut self, _: &mut Context<'_>) -> Option<SideEvent> {
        while let Some(output) = self.participant.poll_output() {
            #[cfg(feature = "flaws")]
            let Some(output) = self.distort(output) else { continue };
            if let Some(event) = self.carry_out(output) {
                return Some(event);
            }
        }
        self.closed.take().map(SideEvent::Closed)
    }

    /// Watches are begun a turn later: nobody who was just elected waits for them, and who resigns
    /// at once needs none. What happens meanwhile is not missed, since they say from where on.
    fn end_turn(&mut self) -> bool {
        if self.to_watch.is_empty() {
            return false;
        }
        if std::mem::replace(&mut self.others_had_a_turn, true) {
            self.others_had_a_turn = false;
            std::mem::take(&mut self.to_watch).into_iter().for_each(|id| self.watch(id));
        }
        true
    }

    fn fencing_token(&self, title: &Title) -> Option<FencingToken> {
        Some(FencingToken::new(title.token()?, self.store_id.clone()?))
    }

    fn session(&self) -> Option<Weak<dyn Session>> {
        self.session.as_ref().map(|(_, session)| Arc::downgrade(session))
    }

    fn is_ready(&self, id: CandidacyId) -> bool {
        let readying = self.candidacies.get(&id).and_then(|candidacy| candidacy.readying.as_ref());
        readying.is_some_and(Readying::is_ready)
    }

    fn name_of(&self, member: MemberId) -> Arc<str> {
        member.to_string().into()
    }

    fn error(&mut self, id: CandidacyId) -> CandidacyError {
        let own = self.candidacies.get_mut(&id).and_then(|candidacy| candidacy.error.take());
        own.or_else(|| self.session_error.clone()).unwrap_or(CandidacyError::Closed)
    }

    fn patience(&self) -> Duration {
        self.settings.ttl * 2
    }
}

async fn awaken(id: CandidacyId, watch: WatchId, wake: incumbent_store::Wake) -> Done {
    let hint = match wake.await {
        Ok(()) => Hint::Changed,
        Err(error) => {
            tracing::debug!(?id, %error, "watch lost");
            Hint::Lost
        }
    };
    Done::Wake(id, watch, hint)
}

/// Closes a session. One that cannot be closed now expires later.
async fn close(session: Arc<dyn Session>) -> bool {
    let closed = session.close().await;
    if let Err(error) = &closed {
        tracing::debug!(%error, "closing the session failed");
    }
    closed.is_ok()
}

async fn ask(store: &dyn Store, session: Option<Arc<dyn Session>>, op: Op) -> Result<Answer, StoreError> {
    let session = || session.as_deref().ok_or(StoreError::SessionGone);
    Ok(match op {
        Op::Enlist(election, entry) => Answer::Standing(Box::new(session()?.enlist(&election, &entry).await?)),
        Op::Standing(held, behind) => Answer::Standing(Box::new(session()?.standing(&held, behind.as_ref()).await?)),
        Op::Withdraw(held, heir) => Answer::Cas(session()?.withdraw(&held, heir.as_ref()).await?),
        Op::Publish(held, was, said) => Answer::Published(session()?.publish(&held, was, &said).await?),
        Op::Line(election, limit) => Answer::Line(Box::new(store.line(&election, limit).await?)),
        Op::SetOffice(election, was, mut to) => {
            if !to.terms.is_empty() {
                to.terms = to.terms.stamped(wall_clock_ms());
            }
            to.held_back = to.held_back.map(|held_back| held_back.stamped(wall_clock_ms()));
            Answer::Cas(store.set_office(&election, was, &to).await?)
        }
        Op::Evict(election, seen) => Answer::Cas(store.evict(&election, &seen).await?),
        Op::Examine(term) => Answer::Examined { died: has_died(&term.origin, None) },
        // Only a candidacy that we know has fences or can stop others, and only with a session that
        // told us which store it is.
        Op::RaiseFences(_) | Op::Shoot(..) => return Err(StoreError::SessionGone),
    })
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
        let mut side = StoreSide::new(Settings::default(), [1; 4], store, clock, Hooks::default());
        let mut cx = Context::from_waker(Waker::noop());
        let renew = Output::Renew { attempt: Attempt(7), epoch: Epoch(3), held: Vec::new() };
        assert!(side.carry_out(renew).is_none());
        let Poll::Ready(Some(Ok(answer))) = Pin::new(&mut side.work).poll_next(&mut cx) else { panic!("no answer") };
        assert!(matches!(answer, Done::Renewed(Attempt(7), Err(StoreError::SessionGone))));
    }
}
