//! One process: its session, and its candidacies in any number of elections.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::candidacy::{Candidacy, CandidacyInput};
use crate::entry::Held;
use crate::keeper::{Change, Epoch, Keeper, Order};
use crate::machine::{CallId, CandidacyId, Candidate, Event, Input, Output};
use crate::name::ElectionName;
use crate::outbox::Outbox;
use crate::rng::Rng;
use crate::settings::Settings;
use crate::standing::{Fault, Renewal};
use crate::time::Timestamp;

/// Sweepers have numbers from here on, so that they meet no user's.
const FIRST_SWEEPER: u64 = 1 << 63;

/// The strays that one renewal may bring to light are withdrawn, this many at a time.
const MAX_STRAYS: usize = 64;

/// One process in any number of elections, on one session.
///
/// After each [`handle`](Participant::handle), take [`poll_output`](Participant::poll_output) until
/// it answers `None`, then ask [`poll_timeout`](Participant::poll_timeout) when to come back with
/// [`Input::Tick`]. Ticks that come too early do nothing.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Participant {
    settings: Arc<Settings>,
    rng: Rng,
    keeper: Keeper,
    /// Boxed: the nodes of a tree are not always full.
    candidacies: BTreeMap<CandidacyId, Box<Candidacy>>,
    /// Who stands in each election: one candidacy each.
    standing: BTreeMap<ElectionName, CandidacyId>,
    /// Who stands in an election once the present candidacy there, which is leaving, has gone.
    queued: BTreeMap<ElectionName, CandidacyId>,
    /// Raises of fences that were given up, of candidacies that are gone. Each is in its user's
    /// hands until it is dropped, and the next candidacy in its election waits for that.
    raises: BTreeMap<ElectionName, (CandidacyId, CallId)>,
    timeouts: BTreeSet<(Timestamp, CandidacyId)>,
    timeout_of: BTreeMap<CandidacyId, Timestamp>,
    next_sweeper: u64,
    closing: bool,
    out: Outbox,
}

impl Participant {
    /// A process that has no session yet. The seed makes its incarnations unique: give it real
    /// randomness.
    pub fn new(settings: Settings, seed: [u64; 4]) -> Participant {
        Participant {
            keeper: Keeper::new(settings),
            settings: Arc::new(settings),
            rng: Rng::from_seed(seed),
            candidacies: BTreeMap::new(),
            standing: BTreeMap::new(),
            queued: BTreeMap::new(),
            raises: BTreeMap::new(),
            timeouts: BTreeSet::new(),
            timeout_of: BTreeMap::new(),
            next_sweeper: FIRST_SWEEPER,
            closing: false,
            out: Outbox::default(),
        }
    }

    /// Whether a candidate may stand in this election: at most one candidacy each, and one waiting
    /// for it to leave.
    pub fn may_stand(&self, election: &ElectionName) -> bool {
        let leaving = match self.standing.get(election).and_then(|id| self.candidacies.get(id)) {
            None => true,
            Some(candidacy) => candidacy.is_leaving(),
        };
        leaving && !self.queued.contains_key(election) && !self.closing
    }

    /// Takes in what happened.
    pub fn handle(&mut self, now: Timestamp, input: Input) {
        match input {
            Input::Tick => {}
            Input::Stand(id, candidate) => self.on_stand(now, id, candidate),
            Input::Command(id, command) => self.tell(now, id, CandidacyInput::Command(command)),
            Input::Opened(attempt, answer) => {
                let change = self.keeper.on_opened(now, &mut self.rng, attempt, answer);
                self.on_change(now, change);
            }
            Input::Renewed(attempt, answer) => {
                let change = self.keeper.on_renewed(now, &mut self.rng, attempt, answer);
                self.on_change(now, change);
            }
            Input::Shortened(epoch, ttl) => {
                let change = self.keeper.on_shortened(epoch, ttl);
                self.on_change(now, change);
            }
            Input::Answer(id, call, answer) => {
                // An answer to an older call speaks of an older session.
                let awaited = self.candidacies.get(&id).is_some_and(|candidacy| candidacy.awaits(call));
                let session_gone = awaited && answer == Err(Fault::SessionGone);
                self.on_raise_dropped(now, (id, call));
                self.tell(now, id, CandidacyInput::Answer(call, answer));
                if session_gone && self.keeper.epoch().is_some() {
                    self.give_up_attempt();
                    let change = self.keeper.gone();
                    self.on_change(now, change);
                }
            }
            Input::Wake(id, watch, hint) => self.tell(now, id, CandidacyInput::Wake(watch, hint)),
            Input::Close => {
                self.closing = true;
                self.tell_all(now, &CandidacyInput::Close);
            }
        }
        self.on_time(now);
        self.close_if_empty();
    }

    /// What is to be done, oldest first.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.pop()
    }

    /// When [`Input::Tick`] is due.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let candidacies = self.timeouts.first().map(|(at, _)| *at);
        [self.keeper.next_timeout(), candidacies].into_iter().flatten().min()
    }

    /// The session that the candidacies stand on, if there is one.
    pub fn session(&self) -> Option<Epoch> {
        self.keeper.epoch()
    }

    /// How many candidacies there are, those that are leaving included.
    pub fn candidacies(&self) -> usize {
        self.candidacies.len()
    }

    fn on_stand(&mut self, now: Timestamp, id: CandidacyId, candidate: Candidate) {
        debug_assert!(!self.candidacies.contains_key(&id), "numbers are never used twice");
        if !self.may_stand(&candidate.election) {
            self.out.push(Output::Event(id, Event::Failed));
            self.out.push(Output::Event(id, Event::Done { certain: true }));
            return;
        }
        let election = candidate.election.clone();
        let candidacy = Box::new(Candidacy::new(id, candidate, self.settings.clone(), self.rng.fork()));
        self.candidacies.insert(id, candidacy);
        self.keeper.want(true);
        self.queued.insert(election.clone(), id);
        self.begin_queued(now, &election);
    }

    /// Starts the candidacy that is queued for this election, if the election is free.
    fn begin_queued(&mut self, now: Timestamp, election: &ElectionName) {
        if self.standing.contains_key(election) || self.raises.contains_key(election) {
            return;
        }
        if let Some((election, next)) = self.queued.remove_entry(election) {
            self.standing.insert(election, next);
            self.begin(now, next);
        }
    }

    /// The election is free for this candidacy now.
    fn begin(&mut self, now: Timestamp, id: CandidacyId) {
        match self.keeper.session() {
            Some(session) => self.tell(now, id, CandidacyInput::SessionUp(session)),
            None => self.tell(now, id, CandidacyInput::Tick),
        }
    }

    fn on_change(&mut self, now: Timestamp, change: Change) {
        match change {
            Change::Nothing => {}
            Change::Up(session) => self.tell_all(now, &CandidacyInput::SessionUp(session)),
            Change::Shortened(deadline) => self.tell_all(now, &CandidacyInput::Shortened(deadline)),
            Change::Down => self.tell_all(now, &CandidacyInput::SessionDown),
            Change::Renewed { epoch, deadline, renewal } => self.on_renewal(now, epoch, deadline, renewal),
            Change::Refused(error) => {
                if let Some(error) = error {
                    self.out.push(Output::SettingsRefused(error));
                }
                self.tell_all(now, &CandidacyInput::Refused);
            }
        }
    }

    fn on_renewal(&mut self, now: Timestamp, epoch: Epoch, deadline: Timestamp, renewal: Renewal) {
        let looks = self.settings.policy.checks_own_entry();
        let gone: BTreeSet<&Held> = renewal.gone.iter().filter(|_| looks).collect();
        let unproven: BTreeSet<&Held> = renewal.unproven.iter().collect();
        for id in self.ids() {
            let entry = self.candidacies.get(&id).and_then(|candidacy| candidacy.entry());
            let input = match entry {
                Some(held) if gone.contains(held) => CandidacyInput::Gone(held.clone()),
                Some(held) if unproven.contains(held) => continue,
                _ => CandidacyInput::Proven(deadline),
            };
            self.tell(now, id, input);
        }
        for seen in renewal.behind {
            if let Some(id) = self.standing.get(&seen.held.election).copied() {
                self.tell(now, id, CandidacyInput::StillBehind(seen));
            }
        }
        if !self.settings.policy.settles_enlistments() {
            return;
        }
        for stray in renewal.stray.into_iter().take(MAX_STRAYS) {
            if !self.candidacies.values().any(|candidacy| candidacy.accounts_for(&stray)) {
                let id = CandidacyId(self.next_sweeper);
                self.next_sweeper += 1;
                let sweeper = Box::new(Candidacy::sweeper(id, stray, epoch, self.settings.clone(), self.rng.fork()));
                self.candidacies.insert(id, sweeper);
                self.tell(now, id, CandidacyInput::Tick);
            }
        }
    }

    fn on_time(&mut self, now: Timestamp) {
        // Each candidacy is told at most once: a timeout that stays in the past would otherwise
        // never let go.
        let due: Vec<CandidacyId> = self.timeouts.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| *id).collect();
        for id in due {
            self.tell(now, id, CandidacyInput::Tick);
        }
        if let Some(epoch) = self.keeper.outlived(now)
            && !self.candidacies.values().any(|candidacy| candidacy.needs_session())
        {
            self.give_up_attempt();
            let change = self.keeper.gone();
            self.on_change(now, change);
            self.out.push(Output::ReplaceSession(epoch));
        }
        while let Some(order) = self.keeper.due(now, &mut self.rng) {
            self.out.push(match order {
                Order::GiveUp(attempt) => Output::GiveUpAttempt(attempt),
                Order::Open(attempt) => Output::OpenSession(attempt, self.settings.ttl),
                Order::Renew(attempt, epoch) => {
                    let held =
                        self.candidacies.values_mut().filter_map(|candidacy| candidacy.name_entry().cloned()).collect();
                    Output::Renew { attempt, epoch, held }
                }
            });
        }
    }

    fn ids(&self) -> Vec<CandidacyId> {
        self.candidacies.keys().copied().collect()
    }

    fn tell_all(&mut self, now: Timestamp, input: &CandidacyInput) {
        for id in self.ids() {
            // One that waits for its election to be free gets the session when it is.
            if !self.is_queued(id) || matches!(input, CandidacyInput::Close | CandidacyInput::Refused) {
                self.tell(now, id, input.clone());
            }
        }
    }

    fn is_queued(&self, id: CandidacyId) -> bool {
        self.candidacies.get(&id).is_some_and(|candidacy| self.queued.get(candidacy.election()) == Some(&id))
    }

    fn tell(&mut self, now: Timestamp, id: CandidacyId, input: CandidacyInput) {
        let Some(candidacy) = self.candidacies.get_mut(&id) else { return };
        candidacy.handle(now, input, &mut self.out);
        if candidacy.needs_proof(now) {
            self.keeper.renew_soon(now);
        }
        let done = candidacy.is_done();
        let timeout = candidacy.next_timeout().filter(|_| !done);
        self.set_timeout(id, timeout);
        if done {
            self.remove(now, id);
        }
    }

    fn set_timeout(&mut self, id: CandidacyId, timeout: Option<Timestamp>) {
        let before = match timeout {
            Some(at) => self.timeout_of.insert(id, at),
            None => self.timeout_of.remove(&id),
        };
        if before == timeout {
            return;
        }
        if let Some(at) = before {
            self.timeouts.remove(&(at, id));
        }
        if let Some(at) = timeout {
            self.timeouts.insert((at, id));
        }
    }

    /// The candidacy is over; the one that waited for its election comes next.
    fn remove(&mut self, now: Timestamp, id: CandidacyId) {
        let Some(candidacy) = self.candidacies.remove(&id) else { return };
        let election = candidacy.election();
        if self.queued.get(election) == Some(&id) {
            self.queued.remove(election);
        }
        if self.standing.get(election) == Some(&id) {
            self.standing.remove(election);
            let raise = candidacy.raise().filter(|_| self.settings.policy.raises_fences_once());
            self.raises.extend(raise.map(|call| (election.clone(), (id, call))));
            self.begin_queued(now, election);
        }
    }

    /// Nothing is left of this raise, if it is one that a candidacy which is gone had given up.
    fn on_raise_dropped(&mut self, now: Timestamp, dropped: (CandidacyId, CallId)) {
        let election = self.raises.iter().find(|(_, raise)| **raise == dropped).map(|(election, _)| election.clone());
        if let Some(election) = election {
            self.raises.remove(&election);
            self.begin_queued(now, &election);
        }
    }

    fn give_up_attempt(&mut self) {
        if let Some(attempt) = self.keeper.give_up() {
            self.out.push(Output::GiveUpAttempt(attempt));
        }
    }

    fn close_if_empty(&mut self) {
        if !self.closing || !self.candidacies.is_empty() {
            return;
        }
        self.closing = false;
        self.give_up_attempt();
        if let Some(epoch) = self.keeper.close() {
            self.out.push(Output::CloseSession(epoch));
        }
        self.out.push(Output::Closed);
    }
}
