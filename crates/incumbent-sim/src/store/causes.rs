//! What makes every candidate of an election unwell, each a while after the others: no office
//! changes hands for it, neither when it comes nor when it goes.

use std::time::Duration;

use incumbent_core::{CandidacyId, Command, Input, Nonce, Office, Rng, Token};

use super::scenario::{Kind, Scenario};
use super::users::Deed;
use super::world::{Happening, World};
use crate::trace::trace;

/// How far it has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Acts,
    /// What the candidates find is better again, and only has to last.
    Fades,
}

#[derive(Debug)]
pub(crate) struct Cause {
    /// How long a leader waits for the others to notice. Zero: there will be nothing to notice.
    pub(crate) settles: Duration,
    stage: Option<(Stage, u64)>,
    /// When the last one ended, or a candidate was made unwell, or well again, for a reason of its
    /// own.
    disturbed_at: Option<u64>,
    dice: Rng,
}

/// What happens to a candidacy, or to all of an election.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shared {
    Begins(usize),
    Noticed(usize, u32, CandidacyId),
    Fades(usize),
    Improves(usize, u32, CandidacyId),
    Lasted(usize, u32, CandidacyId),
    Ends(usize),
}

impl Cause {
    pub(crate) fn new(scenario: &Scenario, mut dice: Rng) -> Cause {
        let waits = scenario.kind == Kind::Chaos && dice.below(3) > 0;
        let settles = if waits { scenario.settings.ttl / 2 } else { Duration::ZERO };
        Cause { settles, stage: None, disturbed_at: None, dice }
    }

    pub(crate) fn is_there(&self) -> bool {
        self.stage.is_some()
    }

    /// In which time all notice. Clocks that are fast do not make the wait any shorter than that.
    fn spread(&self) -> u64 {
        self.settles.as_nanos() as u64 * 3 / 4
    }
}

impl World {
    pub(crate) fn plan_causes(&mut self) {
        // Where all leaders fall ill, each has a reason of its own.
        let times = if self.flapping { 0 } else { 2 };
        for election in 0..self.causes.len() {
            for _ in 0..times {
                let at = self.causes[election].dice.below(self.scenario.chaos);
                self.after(at, Happening::Deed(Deed::Shared(Shared::Begins(election))));
            }
        }
    }

    pub(crate) fn on_shared(&mut self, shared: Shared) {
        if !self.stormy {
            return;
        }
        match shared {
            Shared::Begins(election) => self.cause_begins(election),
            Shared::Noticed(process, boot, candidacy) if self.runs(process, boot) => {
                self.set_unwell(process, candidacy, true);
            }
            Shared::Fades(election) => self.cause_fades(election),
            Shared::Improves(process, boot, candidacy) if self.runs(process, boot) => {
                self.set_improving(process, candidacy, true);
            }
            Shared::Lasted(process, boot, candidacy) if self.runs(process, boot) => {
                self.set_unwell(process, candidacy, false);
            }
            Shared::Noticed(..) | Shared::Improves(..) | Shared::Lasted(..) => {}
            Shared::Ends(election) => {
                for (process, _, candidacy) in self.those_in(election) {
                    self.set_unwell(process, candidacy, false);
                }
                let cause = &mut self.causes[election];
                (cause.stage, cause.disturbed_at) = (None, Some(self.now));
            }
        }
    }

    /// Only where nobody is unwell, or was lately: what was written for that may still be on its
    /// way.
    fn cause_begins(&mut self, election: usize) {
        let cause = &self.causes[election];
        let quiet = self.scenario.ttl() * 4;
        let is_disturbed = cause.disturbed_at.is_some_and(|at| self.now - at < quiet);
        let those = self.those_in(election);
        let is_unwell = |process: usize, candidacy| self.processes[process].users[&candidacy].unwell;
        let any_unwell = those.iter().any(|(process, _, candidacy)| is_unwell(*process, *candidacy));
        if cause.settles.is_zero() || cause.is_there() || is_disturbed || any_unwell {
            return;
        }
        trace!(self, "world", "e{election}: something makes all unwell");
        self.causes[election].stage = Some((Stage::Acts, self.now));
        for (process, boot, candidacy) in those {
            self.within_spread(election, Shared::Noticed(process, boot, candidacy));
        }
        let cause = &mut self.causes[election];
        let lasts = self.scenario.ttl() + cause.dice.below(self.scenario.ttl() * 3);
        self.after(lasts, Happening::Deed(Deed::Shared(Shared::Fades(election))));
    }

    fn cause_fades(&mut self, election: usize) {
        trace!(self, "world", "e{election}: what made all unwell is over");
        self.causes[election].stage = Some((Stage::Fades, self.now));
        for (process, boot, candidacy) in self.those_in(election) {
            self.within_spread(election, Shared::Improves(process, boot, candidacy));
            self.well_after_a_while(election, (process, boot, candidacy));
        }
        let longest = self.causes[election].settles.as_nanos() as u64 + self.scenario.ttl() * 2;
        self.after(longest, Happening::Deed(Deed::Shared(Shared::Ends(election))));
    }

    fn within_spread(&mut self, election: usize, what: Shared) {
        let cause = &mut self.causes[election];
        let delay = cause.dice.below(cause.spread());
        self.after(delay, Happening::Deed(Deed::Shared(what)));
    }

    /// All find that it is better before the first of them counts as well.
    fn well_after_a_while(&mut self, election: usize, (process, boot, candidacy): (usize, u32, CandidacyId)) {
        let cause = &mut self.causes[election];
        let delay = cause.settles.as_nanos() as u64 + cause.dice.below(self.scenario.ttl() * 2);
        self.after(delay, Happening::Deed(Deed::Shared(Shared::Lasted(process, boot, candidacy))));
    }

    /// One that comes while the cause is there finds it before it is in line.
    pub(crate) fn find_cause(&mut self, process: usize, candidacy: CandidacyId, election: usize) {
        let Some((stage, _)) = self.causes[election].stage else { return };
        self.set_unwell(process, candidacy, true);
        if stage == Stage::Fades {
            self.set_improving(process, candidacy, true);
            let boot = self.processes[process].boot;
            self.well_after_a_while(election, (process, boot, candidacy));
        }
        self.set_healthy(process, candidacy, true);
    }

    /// A candidate is made unwell, or well again, for a reason of its own. That counts for nothing
    /// while there is one that all share.
    pub(crate) fn set_unwell_alone(&mut self, process: usize, candidacy: CandidacyId, unwell: bool) {
        let Some(user) = self.processes[process].users.get(&candidacy) else { return };
        let cause = &mut self.causes[user.election];
        if !cause.is_there() {
            cause.disturbed_at = Some(self.now);
            self.set_unwell(process, candidacy, unwell);
        }
    }

    fn set_improving(&mut self, process: usize, candidacy: CandidacyId, improving: bool) {
        self.command(process, Input::Command(candidacy, Command::Improving(improving)));
    }

    /// The storm is over, and so is everything that was shared.
    pub(crate) fn causes_end(&mut self) {
        for election in 0..self.causes.len() {
            for (process, _, candidacy) in self.those_in(election) {
                self.set_improving(process, candidacy, false);
            }
            self.causes[election].stage = None;
        }
    }

    /// A leader writes down that it hands over for its health: when it did so first.
    pub(crate) fn note_unwell_choice(&mut self, process: usize, candidacy: CandidacyId, office: &Office) {
        let chosen = office.handover.as_ref().filter(|handover| handover.for_health).map(|handover| handover.nonce);
        let Some(user) = self.processes[process].users.get_mut(&candidacy) else { return };
        let is_known = |nonce: &Nonce| user.chose.is_some_and(|(known, _)| known == *nonce);
        if let Some(nonce) = chosen.filter(|nonce| !is_known(nonce)) {
            user.chose = Some((nonce, self.now));
        }
    }

    /// A leader stops since it is unwell: not for a cause that all share. When that fades, one that
    /// chose its heir before it found so may go on.
    pub(crate) fn check_cause(&mut self, process: usize, candidacy: CandidacyId, election: usize, token: Token) {
        let cause = &self.causes[election];
        let Some((stage, since)) = cause.stage else { return };
        let all_know = if stage == Stage::Fades { since + cause.spread() } else { since };
        let chose_at = self.processes[process].users.get(&candidacy).and_then(|user| user.chose).map(|(_, at)| at);
        if chose_at.is_some_and(|at| at >= all_know) {
            let text = format!("{token:?} hands over for its health, and all are unwell from the same cause");
            self.checker.fitness(self.now, election, text);
        }
    }

    fn those_in(&self, election: usize) -> Vec<(usize, u32, CandidacyId)> {
        let processes = self.processes.iter().enumerate();
        let users = processes.flat_map(|(number, process)| {
            process.users.iter().map(move |(candidacy, user)| (number, process.boot, *candidacy, user.election))
        });
        let there = users.filter(|(.., of)| *of == election);
        there.map(|(process, boot, candidacy, _)| (process, boot, candidacy)).collect()
    }
}
