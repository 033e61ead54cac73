//! Orders of an operator when nothing goes wrong: each must be obeyed within a bound, and what it
//! asks for come true.

use incumbent_core::Token;
use incumbent_store::LineKind;

use super::operator::{Act, Operator};
use super::process::name_of;
use super::world::{Happening, Phase, World};

impl World {
    pub(crate) fn give_order(&mut self) {
        let election = self.rng.below(self.names.len() as u64) as usize;
        let acts =
            [Act::Transfer, Act::Transfer, Act::Resign, Act::Depose, Act::Pause, Act::End, Act::Freeze, Act::Bench];
        // Nobody follows from a line that is none.
        let has_line = self.scenario.shape.line == LineKind::Fair;
        let mut act = acts[self.rng.below(acts.len() as u64 - u64::from(!has_line)) as usize];
        let office = self.server.office(self.now, &self.names[election].clone());
        if office.frozen.is_some() {
            // Until now an unfit leader has stayed.
            self.set_leader_healthy(election, true);
            act = Act::Unfreeze;
        } else if !office.benched.is_empty() {
            act = Act::Unbench;
        } else if office.paused.is_some() {
            act = self.resumption();
        }
        let led_before = self.believed_leader(election);
        let operator = self.hire(act, election);
        if let Some(order) = office.benched.iter().next() {
            let benched = (0..self.processes.len()).find(|process| name_of(*process) == *order.name);
            self.operators[operator].first = benched.unwrap_or_default();
        }
        if act == Act::Transfer && self.chance(500) {
            // The leader's own user hands over.
            self.operators[operator].heir = self.transfer_by_leader(election);
        } else {
            self.retry_operation(operator, 0);
        }
        let is_for_a_while = matches!(act, Act::Freeze | Act::Bench);
        let lasts = self.operators[operator].lasts.filter(|_| is_for_a_while).unwrap_or_default();
        let by = self.obeyed_within() + lasts.as_nanos() as u64;
        self.after(by, Happening::Phase(Phase::Obeyed { election, operator, led_before }));
    }

    fn transfer_by_leader(&mut self, election: usize) -> Option<Token> {
        let leader = self.checker.beliefs().iter().find(|belief| belief.election == election)?;
        let (process, candidacy, token) = (leader.process, leader.candidacy, leader.token);
        self.transfer(process, candidacy, election).filter(|heir| *heir != token)
    }

    fn set_leader_healthy(&mut self, election: usize, healthy: bool) {
        let leader = self.checker.beliefs().iter().find(|belief| belief.election == election);
        if let Some((process, candidacy)) = leader.map(|leader| (leader.process, leader.candidacy)) {
            self.set_healthy(process, candidacy, healthy);
        }
    }

    /// The grace, and some trips there and back; where nobody is told, everyone has to look first.
    fn obeyed_within(&self) -> u64 {
        let grace = self.scenario.settings.grace.as_nanos() as u64;
        let reread = self.scenario.settings.reread_every.as_nanos() as u64;
        let looks = if self.scenario.shape.watches { 0 } else { 2 * reread + reread / 5 };
        let stand_again = self.scenario.ttl();
        grace * 2 + stand_again + looks + 40 * self.weather.delay.1
    }

    pub(crate) fn obeyed(&mut self, election: usize, operator: usize, led_before: Option<Token>) {
        let leads = self.believed_leader(election);
        let line = self.server.tokens(self.now, &self.names[election].clone());
        let office = self.server.office(self.now, &self.names[election].clone());
        let frozen = office.frozen.is_some();
        let entries = self.server.line(self.now, &self.names[election].clone());
        let Operator { act, heir, lasts, first, .. } = self.operators[operator];
        let mut beliefs = self.checker.beliefs().iter().filter(|belief| belief.election == election);
        let stands = entries.iter().any(|entry| entry.name.as_deref() == Some(name_of(first).as_str()));
        let first_leads = beliefs.any(|belief| belief.process == first);
        let obeyed = match act {
            Act::Transfer => heir.is_none() || leads == heir,
            Act::Resign | Act::Depose | Act::End => leads.is_some() && leads > led_before,
            Act::Resume => leads.is_some(),
            // And the others are back.
            Act::ResumeFirst => first_leads && office.paused.is_none(),
            Act::Pause => leads.is_none() && line.is_empty(),
            Act::Freeze => leads.is_some() && leads == led_before && frozen == lasts.is_none(),
            Act::Unfreeze | Act::Acknowledge => leads.is_some() && leads == led_before && !frozen,
            // What was for a while is over, and it is back. A leader has handed over before, where
            // it is told in time.
            Act::Bench => {
                let led = led_before.and_then(|token| self.checker.maker(election, token)).map(|(process, ..)| process);
                let goes = led == Some(first) && (lasts.is_none() || self.scenario.shape.watches);
                let moved = if led == Some(first) { !goes || leads > led_before } else { leads == led_before };
                let is_over = lasts.is_some();
                leads.is_some() && moved && stands == is_over && office.benched.is_empty() == is_over
            }
            Act::Unbench => leads.is_some() && leads == led_before && stands && office.benched.is_empty(),
        };
        if !obeyed {
            let text = format!(
                "{act:?} of e{election} with heir {heir:?}: {leads:?} leads, before it {led_before:?}; {line:?}"
            );
            self.fail("ORDERS", text);
        }
        if act == Act::Freeze && frozen {
            self.set_leader_healthy(election, false);
        }
        if self.now + self.obeyed_within() + self.scenario.longest_ttl() < self.scenario.chaos {
            self.after(self.scenario.ttl() / 2, Happening::Phase(Phase::Order));
        }
    }
}
