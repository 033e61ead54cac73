//! Keeps one session: opens it, renews it, and opens another when the store has forgotten it.
//!
//! It owns no entries. [`Participant`](crate::Participant) tells the candidacies what a renewal
//! proved.

use std::sync::Arc;
use std::time::Duration;

use crate::backoff::Backoff;
use crate::lease::Lease;
use crate::rng::Rng;
use crate::settings::{Settings, SettingsError};
use crate::standing::{Fault, Liveness, Proof, Renewal};
use crate::time::Timestamp;

/// Tells the sessions of one process apart: a session has the number of the attempt that opened it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Epoch(pub u64);

/// Numbers the attempts to open or renew.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Attempt(pub u64);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Keeper {
    settings: Settings,
    state: State,
    backoff: Backoff,
    next_attempt: u64,
    wanted: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum State {
    Closed,
    Opening(Try),
    Open {
        epoch: Epoch,
        lease: Box<Lease>,
        rest: Duration,
        settings: Arc<Settings>,
        renew_every: Duration,
        renew_at: Timestamp,
        renewing: Option<Try>,
        ends: Ends,
    },
}

/// When a session is to be replaced by another, since the TTL in force may be shorter than the one
/// that it was opened with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Ends {
    Never,
    At(Timestamp),
    /// Its time has come: it is replaced as soon as no candidacy needs it.
    Overdue,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Try {
    attempt: Attempt,
    sent_at: Timestamp,
    until: Timestamp,
}

/// A session as candidacies know it.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) epoch: Epoch,
    /// Until when the store cannot have forgotten it.
    pub(crate) deadline: Timestamp,
    /// How long one who gave the office back stays out of the line.
    pub(crate) rest: Duration,
    /// The settings, with the TTL that was granted.
    pub(crate) settings: Arc<Settings>,
}

/// What the keeper wants done.
pub(crate) enum Order {
    Open(Attempt),
    Renew(Attempt, Epoch),
    /// Its answer is late, and no longer wanted.
    GiveUp(Attempt),
}

/// What an answer changed.
pub(crate) enum Change {
    Nothing,
    Up(Session),
    Renewed {
        epoch: Epoch,
        deadline: Timestamp,
        renewal: Renewal,
    },
    /// The deadline has moved back, to this.
    Shortened(Timestamp),
    Down,
    Refused(Option<SettingsError>),
}

impl Keeper {
    pub(crate) fn new(settings: Settings) -> Keeper {
        Keeper { settings, state: State::Closed, backoff: Backoff::default(), next_attempt: 0, wanted: false }
    }

    /// Whether a session is to be kept at all.
    pub(crate) fn want(&mut self, wanted: bool) {
        self.wanted = wanted;
    }

    pub(crate) fn epoch(&self) -> Option<Epoch> {
        match &self.state {
            State::Open { epoch, .. } => Some(*epoch),
            State::Closed | State::Opening(_) => None,
        }
    }

    /// The session, if there is one that something new may be begun with.
    pub(crate) fn session(&self) -> Option<Session> {
        match &self.state {
            State::Open { epoch, lease, rest, settings, ends: Ends::Never, .. } => {
                Some(Session { epoch: *epoch, deadline: lease.deadline(), rest: *rest, settings: settings.clone() })
            }
            State::Closed | State::Opening(_) | State::Open { .. } => None,
        }
    }

    /// A proof of life is needed before the next one is due.
    pub(crate) fn renew_soon(&mut self, now: Timestamp) {
        if let State::Open { renew_at, lease, ends: Ends::Never, .. } = &mut self.state {
            // Sooner it would prove nothing new, and would be asked for again and again.
            *renew_at = (*renew_at).min(lease.proves_more_from().max(now));
        }
    }

    /// From now on the store may count this TTL, or a longer one. The session is replaced when the
    /// deadline has come that follows from it: the one that it was opened with, and all that
    /// follows from that, is no longer true.
    pub(crate) fn on_shortened(&mut self, which: Epoch, ttl: Duration) -> Change {
        match &mut self.state {
            State::Open { epoch, lease, ends, .. } if *epoch == which => {
                lease.shorten(ttl);
                *ends = Ends::At(lease.deadline());
                Change::Shortened(lease.deadline())
            }
            _ => Change::Nothing,
        }
    }

    /// The session whose time has come to be replaced, as soon as no candidacy needs it.
    pub(crate) fn outlived(&mut self, now: Timestamp) -> Option<Epoch> {
        let State::Open { epoch, ends, .. } = &mut self.state else { return None };
        if *ends == Ends::Never || matches!(ends, Ends::At(at) if now < *at) {
            return None;
        }
        *ends = Ends::Overdue;
        Some(*epoch)
    }

    /// What is due now. Ask until it answers `None`.
    pub(crate) fn due(&mut self, now: Timestamp, rng: &mut Rng) -> Option<Order> {
        if let Some(late) = self.give_up_late_attempt(now, rng) {
            return Some(Order::GiveUp(late));
        }
        if self.backoff.resting(now) {
            return None;
        }
        let patience = self.settings.renew_every;
        match &mut self.state {
            State::Closed if self.wanted => {
                let attempt = Attempt(self.next_attempt);
                self.next_attempt += 1;
                self.state = State::Opening(Try { attempt, sent_at: now, until: now + patience });
                Some(Order::Open(attempt))
            }
            State::Open { epoch, renew_every, renew_at, renewing: renewing @ None, .. } if now >= *renew_at => {
                let attempt = Attempt(self.next_attempt);
                self.next_attempt += 1;
                *renewing = Some(Try { attempt, sent_at: now, until: now + *renew_every });
                *renew_at = now + *renew_every;
                Some(Order::Renew(attempt, *epoch))
            }
            State::Closed | State::Opening(_) | State::Open { .. } => None,
        }
    }

    pub(crate) fn on_opened(
        &mut self,
        now: Timestamp,
        rng: &mut Rng,
        attempt: Attempt,
        answer: Result<Liveness, Fault>,
    ) -> Change {
        let State::Opening(tried) = &self.state else { return Change::Nothing };
        if tried.attempt != attempt {
            return Change::Nothing;
        }
        let sent_at = tried.sent_at;
        self.state = State::Closed;
        let liveness = match answer {
            Ok(liveness) => liveness,
            Err(Fault::Permanent) => return self.refuse(None),
            Err(_) => {
                self.failed(now, rng);
                return Change::Nothing;
            }
        };
        let settings = match self.settings.granted(&liveness) {
            Ok(granted) => Arc::new(granted),
            Err(error) => return self.refuse(Some(error)),
        };
        self.backoff.succeeded();
        let epoch = Epoch(attempt.0);
        let lease = Box::new(Lease::opened(&self.settings, &liveness, sent_at, now));
        let session = Session { epoch, deadline: lease.deadline(), rest: liveness.rest, settings: settings.clone() };
        // Where an answer proves only an earlier renewal, twice as many keep the newest proof as
        // fresh.
        let often = if matches!(liveness.proof, Proof::Earlier { .. }) { 2 } else { 1 };
        let renew_every = self.settings.policy.renew_every(settings.renew_every / often, liveness.ttl);
        let (rest, renew_at) = (liveness.rest, sent_at + renew_every);
        self.state =
            State::Open { epoch, lease, rest, settings, renew_every, renew_at, renewing: None, ends: Ends::Never };
        Change::Up(session)
    }

    pub(crate) fn on_renewed(
        &mut self,
        now: Timestamp,
        rng: &mut Rng,
        attempt: Attempt,
        answer: Result<Renewal, Fault>,
    ) -> Change {
        let State::Open { epoch, lease, renewing, ends, .. } = &mut self.state else { return Change::Nothing };
        let Some(tried) = renewing.take_if(|tried| tried.attempt == attempt) else { return Change::Nothing };
        match answer {
            Ok(renewal) => {
                // One that is to be replaced is kept for what is still to be removed, and believed
                // no longer.
                if *ends == Ends::Never {
                    lease.renewed(self.settings.policy.deadline_from(tried.sent_at, now), now, renewal.ttl);
                }
                self.backoff.succeeded();
                Change::Renewed { epoch: *epoch, deadline: lease.deadline(), renewal }
            }
            Err(Fault::SessionGone) => self.gone(),
            Err(Fault::Unavailable | Fault::OutcomeUnknown | Fault::AlreadyInLine(_) | Fault::Permanent) => {
                self.failed(now, rng);
                self.renew_soon(now);
                Change::Nothing
            }
        }
    }

    /// The answer to the opening or renewal that is out, if one is, is no longer wanted.
    pub(crate) fn give_up(&mut self) -> Option<Attempt> {
        match &mut self.state {
            State::Closed => None,
            State::Opening(tried) => {
                let attempt = tried.attempt;
                self.state = State::Closed;
                Some(attempt)
            }
            State::Open { renewing, .. } => renewing.take().map(|tried| tried.attempt),
        }
    }

    /// The store has forgotten the session: open another at once.
    pub(crate) fn gone(&mut self) -> Change {
        self.state = State::Closed;
        self.backoff.succeeded();
        Change::Down
    }

    /// Ends the session, if there is one.
    pub(crate) fn close(&mut self) -> Option<Epoch> {
        let epoch = self.epoch();
        self.state = State::Closed;
        self.wanted = false;
        epoch
    }

    pub(crate) fn next_timeout(&self) -> Option<Timestamp> {
        let due = match &self.state {
            State::Closed => self.wanted.then(|| self.after_rest(Timestamp::ZERO)),
            State::Opening(tried) => Some(tried.until),
            State::Open { renewing: Some(tried), .. } => Some(tried.until),
            State::Open { renew_at, .. } => Some(self.after_rest(*renew_at)),
        };
        let ends = match &self.state {
            State::Open { ends: Ends::At(at), .. } => Some(*at),
            _ => None,
        };
        [due, ends].into_iter().flatten().min()
    }

    fn after_rest(&self, at: Timestamp) -> Timestamp {
        self.backoff.until().map_or(at, |until| until.max(at))
    }

    fn refuse(&mut self, error: Option<SettingsError>) -> Change {
        self.wanted = false;
        Change::Refused(error)
    }

    fn give_up_late_attempt(&mut self, now: Timestamp, rng: &mut Rng) -> Option<Attempt> {
        let (State::Opening(tried) | State::Open { renewing: Some(tried), .. }) = &self.state else { return None };
        if now < tried.until {
            return None;
        }
        let late = self.give_up();
        self.failed(now, rng);
        self.renew_soon(now);
        late
    }

    fn failed(&mut self, now: Timestamp, rng: &mut Rng) {
        // What counts is when a leader has to begin to stop, not when it has to have stopped.
        let remaining = self.session().map(|session| (session.deadline - session.settings.grace).since(now));
        self.backoff.failed(now, rng, self.settings.longest_rest(), remaining);
    }
}
