//! One who stands in an election on a host: waits, works under `check`, and leaves in every way
//! that there is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use incumbent::{
    Candidacy, CandidacyError, Candidate, FenceError, Leadership, ResignError, StandError, Term, TransferError,
};
use incumbent_core::Rng;
use incumbent_store::{LineKind, lock};
use tokio::time::{sleep, timeout};

use super::checker::Checker;
use super::clock::LooksOn;
use super::fence::Resource;
use super::host::Boot;
use super::scenario::Kind;
use super::world::{Phase, World};

pub(crate) struct User {
    world: Arc<World>,
    boot: Arc<Boot>,
    election: usize,
    rng: Rng,
    stands: u64,
    /// The number of the value that was proclaimed last.
    values: Arc<AtomicU64>,
}

/// What a user does next.
enum Next {
    /// Waits to be elected again.
    Wait,
    /// Stands anew.
    Stand,
    /// This client is of no more use.
    Reboot,
}

impl User {
    pub(crate) fn new(world: Arc<World>, boot: Arc<Boot>, election: usize, rng: Rng) -> User {
        User { world, boot, election, rng, stands: 0, values: Arc::default() }
    }

    pub(crate) async fn live(mut self) {
        while self.world.phase() != Phase::Closing {
            match self.stand().await {
                Next::Reboot => return self.boot.fail(),
                Next::Stand | Next::Wait => {
                    let rest = self.within(self.world.scenario.ttl / 20);
                    sleep(rest).await;
                }
            }
        }
    }

    async fn stand(&mut self) -> Next {
        let Some(client) = self.boot.client() else { return Next::Reboot };
        let world = self.world.clone();
        // A new handle each time: an election that was ended starts afresh.
        let Ok(election) = client.election(world.checker.name(self.election).as_str()) else { return Next::Reboot };
        drop(client);
        self.stands += 1;
        let name = format!("{}{}.{}", self.boot.prefix(), self.election, self.stands);
        let holds = self.rng.below(4) == 0;
        let value = self.values.load(Ordering::Relaxed).to_string();
        let mut candidate = election.candidate(&name).value(value);
        drop(election);
        if holds {
            candidate = candidate.hold_until_stopped();
        }
        // One of the elections keeps a record of its terms.
        if self.election == 1 {
            candidate = candidate.recorded();
        }
        if let Some(resource) = world.resource(self.election) {
            candidate = candidate.fence(resource);
        }
        if world.scenario.shape.line == LineKind::Fair && self.rng.below(3) == 0 {
            candidate = self.preparing(candidate);
        }
        if self.in_storm() && self.rng.below(10) == 0 {
            return self.try_once(candidate, holds).await;
        }
        let limit = self.patience(10);
        let stood = tokio::select! {
            biased;
            () = world.closing() => return Next::Stand,
            stood = timeout(limit, candidate.stand()) => stood,
        };
        match stood {
            // Nobody waits for it any more: it is cancelled.
            Err(_) => Next::Stand,
            Ok(Err(error)) => self.refused(error),
            Ok(Ok(candidacy)) => {
                world.checker.say(&name, format_args!("stands"));
                world.note_name(self.election, &name);
                self.follow(candidacy, &name, holds).await
            }
        }
    }

    /// One that takes its time to get ready, and fails now and then. Whatever token it is told of
    /// it writes with, as any program would.
    fn preparing(&mut self, candidate: Candidate) -> Candidate {
        let (world, resource) = (self.world.clone(), self.world.resource(self.election));
        let longest = self.world.scenario.ttl;
        let rng = Mutex::new(self.rng.fork());
        candidate.ready_hook(move |request| {
            let (delay, fails) = {
                let mut rng = lock(&rng);
                (Duration::from_nanos(rng.below(longest.as_nanos() as u64)), rng.below(4) == 0)
            };
            if let (Some(resource), Some(token)) = (&resource, &request.token) {
                resource.write(token);
            }
            let fails = fails && world.phase() == Phase::Storm;
            async move {
                sleep(delay).await;
                if fails { Err("it does not get ready") } else { Ok(()) }
            }
        })
    }

    async fn try_once(&mut self, candidate: Candidate, holds: bool) -> Next {
        let limit = self.patience(4);
        let world = self.world.clone();
        let tried = tokio::select! {
            biased;
            () = world.closing() => return Next::Stand,
            tried = timeout(limit, candidate.try_once()) => tried,
        };
        match tried {
            Err(_) | Ok(Ok(None)) => Next::Stand,
            Ok(Err(error)) => self.refused(error),
            Ok(Ok(Some(office))) => match self.reign(None, office, "once", holds).await {
                Next::Wait => Next::Stand,
                next => next,
            },
        }
    }

    async fn follow(&mut self, mut candidacy: Candidacy, name: &str, holds: bool) -> Next {
        let world = self.world.clone();
        loop {
            candidacy.set_healthy(true);
            let limit = self.patience(5);
            let elected = tokio::select! {
                biased;
                () = world.closing() => return self.leave(candidacy).await,
                elected = timeout(limit, candidacy.elected()) => elected,
            };
            match elected {
                Err(_) => match self.rng.below(4) {
                    0 => return Next::Stand,
                    1 => return self.leave(candidacy).await,
                    2 => {
                        candidacy.set_healthy(false);
                        sleep(self.within(world.scenario.ttl / 2)).await;
                    }
                    _ => {}
                },
                Ok(Ok(None)) => return Next::Stand,
                Ok(Err(error)) => return self.refused(error.into()),
                Ok(Ok(Some(office))) => match self.reign(Some(&candidacy), office, name, holds).await {
                    Next::Wait => {}
                    next => return next,
                },
            }
        }
    }

    async fn leave(&mut self, candidacy: Candidacy) -> Next {
        if self.rng.below(2) == 0 {
            return Next::Stand;
        }
        match candidacy.withdraw().await {
            Ok(()) => Next::Stand,
            Err(error) => self.refused(error.into()),
        }
    }

    /// In office.
    async fn reign(&mut self, candidacy: Option<&Candidacy>, office: Leadership, name: &str, holds: bool) -> Next {
        let (world, term) = (self.world.clone(), office.term());
        world.checker.say(name, format_args!("is elected with {}", term.token()));
        world.checker.elected(self.boot.id, self.election, &term, &self.boot.clock, holds);
        let resource = world.resource(self.election);
        if let Some(resource) = &resource {
            resource.check_raised(term.token());
        }
        let _looks = self.look_on(&term);
        let mut office = office;
        loop {
            let step = self.step();
            let heeds = self.rng.below(2) == 0;
            tokio::select! {
                biased;
                () = world.closing() => return self.give_back(office).await,
                _ = term.stopping(), if heeds => {}
                () = sleep(step) => {}
            }
            if !check(&world.checker, &term) {
                world.checker.say(name, format_args!("has lost {}: {}", term.token(), lost(&term)));
                return self.lost(office).await;
            }
            if let Some(resource) = &resource {
                self.write(resource, &term);
            }
            if term.is_stopping() && self.rng.below(4) > 0 {
                return self.give_back(office).await;
            }
            if self.in_storm() {
                match self.act_at_random(candidacy, office, &term).await {
                    Ok(same) => office = same,
                    Err(next) => return next,
                }
            }
        }
    }

    /// Whatever comes to a leader's mind. The office, or what comes after it.
    async fn act_at_random(
        &mut self,
        candidacy: Option<&Candidacy>,
        office: Leadership,
        term: &Term,
    ) -> Result<Leadership, Next> {
        match self.rng.below(60) {
            0 | 1 => {
                drop(office);
                Err(Next::Wait)
            }
            2..5 => Err(self.give_back(office).await),
            5..8 => self.transfer(office, term).await,
            8..20 => {
                self.proclaim(term);
                Ok(office)
            }
            20 => {
                if let Some(candidacy) = candidacy {
                    candidacy.set_healthy(false);
                }
                Ok(office)
            }
            22..26 => self.depart(office).await,
            21 => {
                // The work hangs; it does not even look.
                let (hangs, world) = (self.within(self.world.scenario.ttl * 2), self.world.clone());
                let _ = timeout(hangs, world.healed()).await;
                Ok(office)
            }
            _ => Ok(office),
        }
    }

    async fn give_back(&mut self, office: Leadership) -> Next {
        let token = office.token().clone();
        let storm = self.in_storm();
        if self.rng.below(8) == 0 {
            return Next::Wait;
        }
        let limit = if storm { self.patience(6) } else { Duration::MAX };
        let leaves = self.rng.below(3) == 0;
        let given_back =
            if leaves { timeout(limit, office.leave()).await } else { timeout(limit, office.resign()).await };
        match given_back {
            Ok(Ok(())) => self.world.checker.released(self.election, &token),
            Ok(Err(ResignError::Closed)) => return Next::Reboot,
            Ok(Err(error)) if !storm => {
                self.world.checker.fail("CLOSE", format!("{token} cannot be given back on a good day: {error}"));
            }
            Ok(Err(_)) | Err(_) => {}
        }
        if leaves { Next::Stand } else { Next::Wait }
    }

    /// The term is over. Some take their time to let go.
    async fn lost(&mut self, office: Leadership) -> Next {
        let longest = match self.world.scenario.kind {
            Kind::Edge => self.world.scenario.ttl / 2,
            _ => self.world.scenario.ttl * 3,
        };
        if self.in_storm() && self.rng.below(2) == 0 {
            let (linger, world, boot) = (self.within(longest), self.world.clone(), self.boot.clone());
            tokio::select! {
                biased;
                () = world.healed() => {}
                () = boot.failed() => {}
                () = sleep(linger) => {}
            }
        }
        if self.rng.below(2) == 0 {
            return Next::Wait;
        }
        self.give_back(office).await
    }

    async fn transfer(&mut self, office: Leadership, term: &Term) -> Result<Leadership, Next> {
        let Some(heir) = self.world.any_name(self.election, &mut self.rng) else { return Ok(office) };
        let (began, within) = (self.world.checker.now(), self.within(self.world.scenario.ttl));
        self.world.checker.say("user", format_args!("transfers {} to {heir}", term.token()));
        match office.transfer_to(heir.as_str(), within).await {
            Ok(()) => {
                if !self.world.checker.led_since(self.election, began, &heir) {
                    let text = format!("{} was handed to {heir}, which never led", term.token());
                    self.world.checker.fail("S8", text);
                }
                Err(Next::Wait)
            }
            Err(TransferError::Refused { leadership: office, .. }) => Ok(office),
            Err(_) => Err(Next::Wait),
        }
    }

    /// It is about to leave, and works on until somebody can take the office. Some think better of
    /// it.
    async fn depart(&mut self, office: Leadership) -> Result<Leadership, Next> {
        let (limit, within) = (self.within(self.world.scenario.ttl), self.within(self.world.scenario.ttl));
        self.world.checker.say("user", format_args!("is about to leave with {}", office.token()));
        match timeout(limit, office.hand_over(within)).await {
            Ok(Ok(_)) => Err(self.give_back(office).await),
            Ok(Err(_)) if self.rng.below(2) == 0 => Err(self.give_back(office).await),
            Ok(Err(_)) | Err(_) => Ok(office),
        }
    }

    /// Two tasks proclaim at the same time.
    fn proclaim(&mut self, term: &Term) {
        for _ in 0..2 {
            let (term, values, checker, election) =
                (term.clone(), self.values.clone(), self.world.checker.clone(), self.election);
            self.boot.gate.spawn_user(async move {
                let number = values.fetch_add(1, Ordering::Relaxed) + 1;
                if term.proclaim(number.to_string()).await.is_ok() {
                    checker.proclaimed(election, term.token(), number);
                }
            });
        }
    }

    /// Writes now, and now and then sends a write that arrives long after.
    fn write(&mut self, resource: &Arc<Resource>, term: &Term) {
        resource.write(term.token());
        if self.in_storm() && self.rng.below(20) == 0 {
            let (resource, token) = (resource.clone(), term.token().clone());
            let later = self.within(self.world.scenario.ttl * 2);
            self.boot.gate.spawn_user(async move {
                sleep(later).await;
                resource.write(&token);
            });
        }
    }

    /// Another thread that works under the same term.
    fn look_on(&self, term: &Term) -> LooksOn {
        let (checker, term) = (self.world.checker.clone(), term.clone());
        self.boot.clock.look_on(move || {
            check(&checker, &term);
        })
    }

    /// What a user may be told, and what not.
    fn refused(&self, error: StandError) -> Next {
        match error {
            StandError::Candidacy(CandidacyError::AlreadyInLine | CandidacyError::Ended) => Next::Stand,
            StandError::Candidacy(CandidacyError::Closed) if self.world.may_be_closed(&self.boot) => Next::Reboot,
            StandError::Candidacy(
                CandidacyError::StoreReplaced { .. } | CandidacyError::Fence(FenceError::StoreReplaced { .. }),
            ) if self.world.was_replaced() => Next::Reboot,
            // After `leave` the candidacy is over.
            error => {
                self.world.checker.fail("ERROR", format!("{} was told: {error}", self.boot.prefix()));
                Next::Reboot
            }
        }
    }

    fn in_storm(&self) -> bool {
        self.world.phase() == Phase::Storm && !matches!(self.world.scenario.kind, Kind::Quiet | Kind::Deaths)
    }

    /// How long it waits for something: for ever, mostly; in a storm one of `share` is impatient.
    fn patience(&mut self, share: u64) -> Duration {
        let impatient = self.in_storm() && self.rng.below(share) == 0;
        if impatient { self.within(self.world.scenario.ttl) } else { Duration::MAX }
    }

    fn step(&mut self) -> Duration {
        let share = if self.world.scenario.kind == Kind::Edge { 50 } else { 8 };
        Duration::from_millis(1) + self.within(self.world.scenario.ttl / share)
    }

    fn within(&mut self, longest: Duration) -> Duration {
        Duration::from_nanos(self.rng.below(longest.as_nanos() as u64 + 1))
    }
}

fn check(checker: &Checker, term: &Term) -> bool {
    let lasts = term.check().is_ok();
    checker.checked(term, lasts);
    lasts
}

fn lost(term: &Term) -> String {
    term.check().err().map_or_else(|| "not at all".to_owned(), |lost| lost.reason().to_string())
}
