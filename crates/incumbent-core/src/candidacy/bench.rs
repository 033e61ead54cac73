//! Orders to the bench: an operator keeps the candidates of a name out of the line.
//!
//! A follower of that name leaves the line, and one that is out stays out. A leader hands over
//! first, to the best that is fit, by the search and the notice of an unwell one
//! (`Handover::for_bench`). If nobody fit takes its office it leads on and goes on looking, unless
//! the order says that it leaves in any case (`BenchOrder::vacates`): then it leaves once nobody is
//! fit, or after a TTL.
//!
//! It is an operator's order, so it counts for no change for health, and an office that is held
//! back moves for it. A freeze is stronger for the leader, which stays; those that do not lead stay
//! out all the same. Pause, depose and end are stronger, and so is a leader's own unfitness.
//!
//! The order is by name, so that it meets one that is absent, and the next one of that name on that
//! host. What stands in the record is obeyed. Each candidate counts the time of each order from
//! when it first read it; the leader takes out those that are over, and so does the benched one
//! itself, which may be alone.

use std::mem;

use super::{Candidacy, CountedOrder, State};
use crate::bench::BenchOrder;
use crate::machine::{Event, LossReason, Op};
use crate::office::{Act, Office};
use crate::outbox::Outbox;
use crate::time::Timestamp;

/// What this candidacy knows of orders to the bench.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct BenchProgress {
    /// The orders in the record that are for a while.
    counted: Vec<CountedOrder>,
    /// As a benched leader that is to leave in any case: when.
    leaves_at: Option<Timestamp>,
    /// The user was told that this candidate is out for that.
    told: bool,
}

impl Candidacy {
    /// What an operator has ordered for our name.
    pub(super) fn bench_order(&self) -> Option<&BenchOrder> {
        let benched = &self.office.benched;
        let order = match self.settings.policy.benches_by_name() {
            true => benched.get(&self.who.name),
            false => benched.iter().next(),
        };
        order.filter(|_| self.settings.policy.heeds_benches())
    }

    pub(super) fn is_benched(&self) -> bool {
        self.bench_order().is_some()
    }

    /// The office record was read: counts the time of the orders in it. One that is new to a leader
    /// is told to its log, and makes it look for an heir at once.
    pub(super) fn count_benches(&mut self, now: Timestamp, before: &Office, out: &mut Outbox) {
        let orders = self.office.benched.iter();
        let known = |order: &BenchOrder| self.bench.counted.iter().find(|counted| counted.id == order.id).copied();
        let count = |order: &BenchOrder| {
            let until = now + order.lasts?;
            Some(known(order).unwrap_or(CountedOrder { id: order.id, until, stays: false }))
        };
        self.bench.counted = orders.filter_map(count).collect();
        let was = before.benched.get(&self.who.name).map(|order| order.id);
        if was != self.office.benched.get(&self.who.name).map(|order| order.id) {
            self.bench.told = false;
            self.bench.leaves_at = None;
            self.forget_search();
            if let (Some(order), Some(_)) = (self.bench_order(), self.term()) {
                self.event(Event::Ordered(Act::Bench, order.order.clone()), out);
            }
        }
    }

    /// When the first of the orders is over that we take out: any, as the leader; else our own.
    pub(super) fn bench_ends(&self) -> Option<Timestamp> {
        let leads = self.tenure.serves();
        let own = self.bench_order().map(|order| order.id);
        let ours = self.bench.counted.iter().filter(|counted| leads || Some(counted.id) == own);
        let ends = ours.map(|counted| counted.until).min();
        ends.filter(|_| self.settings.policy.ends_benches() && self.close_backoff.until().is_none())
    }

    /// Takes out of the record the orders that have lasted as long as they were to.
    pub(super) fn benches_that_are_over(&self, now: Timestamp) -> Option<Op> {
        self.bench_ends().filter(|ends| now >= *ends)?;
        let own = self.bench_order().map(|order| order.id);
        let is_over = |order: &BenchOrder| {
            let counted = self.bench.counted.iter().find(|counted| counted.id == order.id);
            let ours = self.tenure.serves() || own == Some(order.id);
            ours && counted.is_some_and(|counted| now >= counted.until)
        };
        let benched = self.office.benched.retain(|order| !is_over(order));
        Some(self.set_office(self.office.clone().with_benched(benched)))
    }

    /// The record may not be written. Orders that are over stay in it, and are obeyed; it is tried
    /// again now and then, since rights come back.
    pub(super) fn on_benches_stay(&mut self, now: Timestamp, out: &mut Outbox) {
        let again_at = now + self.settings.reread_every;
        let mut stay = Vec::new();
        for counted in self.bench.counted.iter_mut().filter(|counted| now >= counted.until) {
            counted.until = again_at;
            if !mem::replace(&mut counted.stays, true) {
                stay.push(counted.id);
            }
        }
        for order in self.office.benched.iter().filter(|order| stay.contains(&order.id)) {
            self.event(Event::OrderStays(Act::Bench, order.order.clone()), out);
        }
    }

    /// As one that is out of the line: tells the user, once for each order and session.
    pub(super) fn tell_benched(&mut self, out: &mut Outbox) {
        if self.session.is_none() || mem::replace(&mut self.bench.told, true) {
            return;
        }
        if let Some(order) = self.bench_order() {
            self.event(Event::Ordered(Act::Bench, order.order.clone()), out);
        }
        self.event(Event::Out(LossReason::Benched), out);
    }

    /// What was told of a bench is told again.
    pub(super) fn tell_benched_anew(&mut self) {
        self.bench.told = false;
    }

    /// Whether this leader is benched and has waited for an heir for as long as its order allows.
    pub(super) fn is_to_leave_for_bench(&mut self, now: Timestamp) -> bool {
        let must = self.bench_order().is_some_and(|order| order.vacates);
        if !must || self.is_frozen() || !self.settings.policy.leaves_when_benched() {
            self.bench.leaves_at = None;
            return false;
        }
        let by = *self.bench.leaves_at.get_or_insert(now + self.settings.ttl);
        now >= by
    }

    /// When that is.
    pub(super) fn leaves_for_bench_at(&self) -> Option<Timestamp> {
        self.bench.leaves_at.filter(|_| self.tenure.serves())
    }

    /// As a benched leader that finds nobody fit: leaves, if it is to leave in any case. Says
    /// whether it does.
    pub(super) fn leave_unfollowed(&mut self, now: Timestamp, out: &mut Outbox) -> bool {
        let leaves = self.bench.leaves_at.is_some() || (self.is_benched() && !self.settings.policy.waits_for_heirs());
        if leaves {
            self.drain(now, LossReason::Benched, None, out);
        }
        leaves
    }

    /// Whether a leader would rather have another lead.
    pub(super) fn would_rather_go(&self) -> bool {
        self.requested.unwell || self.is_benched()
    }

    /// In office, and what bars us from the line is only that we are benched: that does not end the
    /// term by itself.
    pub(super) fn leads_benched(&self, why: LossReason) -> bool {
        why == LossReason::Benched && matches!(self.state, State::Office(_)) && self.tenure.in_office()
    }
}
