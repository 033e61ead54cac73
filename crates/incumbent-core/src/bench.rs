//! Whom operators keep out of the line, by name.

use std::sync::Arc;
use std::time::Duration;

use crate::entry::Nonce;
use crate::office::Order;

/// How many names of an election may be benched.
pub const MAX_BENCHED: usize = 32;

/// How much the orders to the bench may take up, in bytes, before they are written down: every look
/// reads them.
pub const MAX_BENCHED_BYTES: usize = 12 * 1024;

/// What an order takes up beside its texts, about.
const BYTES_BESIDE_TEXTS: usize = 192;

/// An operator keeps the candidates of this name out of the line, also those that come later.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct BenchOrder {
    /// The name.
    pub name: Arc<str>,
    /// Tells this order from every other.
    pub id: Nonce,
    /// How long it lasts, counted by each candidate from when it first read it: hosts share no
    /// clock. The leader, or the benched one itself, takes it out of the record then. `None`: until
    /// it is taken back.
    pub lasts: Option<Duration>,
    /// Whether one that leads leaves in any case. Otherwise it leads on until one that is fit can
    /// take its office.
    pub vacates: bool,
    /// Who ordered it, and why.
    pub order: Order,
}

impl BenchOrder {
    /// Keeps out the candidates of this name, for this long or until it is taken back.
    pub fn new(name: impl Into<Arc<str>>, id: Nonce, lasts: Option<Duration>, order: impl Into<Order>) -> BenchOrder {
        BenchOrder { name: name.into(), id, lasts, vacates: false, order: order.into() }
    }

    /// The same, where one that leads leaves although nobody may follow.
    pub fn vacating(self, vacates: bool) -> BenchOrder {
        BenchOrder { vacates, ..self }
    }

    fn bytes(&self) -> usize {
        BYTES_BESIDE_TEXTS + self.name.len() + self.order.by.len() + self.order.reason.len()
    }
}

/// The names that operators keep out of the line, in the order in which they were benched.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Benched(Option<Arc<[BenchOrder]>>);

impl Benched {
    /// Whether nobody is benched.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// One for each name.
    pub fn iter(&self) -> std::slice::Iter<'_, BenchOrder> {
        self.0.as_deref().unwrap_or_default().iter()
    }

    /// What was ordered for this name.
    pub fn get(&self, name: &str) -> Option<&BenchOrder> {
        self.iter().find(|order| *order.name == *name)
    }

    /// The same, with this order instead of what was ordered for that name before.
    pub fn with(&self, order: BenchOrder) -> Benched {
        let others = self.iter().filter(|other| other.name != order.name).cloned();
        Benched::of(others.chain([order.clone()]).collect())
    }

    /// The same, without those that are not to be kept.
    pub fn retain(&self, keep: impl Fn(&BenchOrder) -> bool) -> Benched {
        Benched::of(self.iter().filter(|order| keep(order)).cloned().collect())
    }

    /// Whether a record has room for them.
    pub fn fits(&self) -> bool {
        self.iter().len() <= MAX_BENCHED && self.iter().map(BenchOrder::bytes).sum::<usize>() <= MAX_BENCHED_BYTES
    }

    fn of(orders: Vec<BenchOrder>) -> Benched {
        Benched((!orders.is_empty()).then(|| orders.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(name: &str, id: u64) -> BenchOrder {
        BenchOrder::new(name, Nonce(id), None, "new disk")
    }

    #[test]
    fn a_name_is_benched_once_by_its_last_order() {
        let benched = Benched::default().with(order("a", 1)).with(order("b", 2)).with(order("a", 3));
        assert_eq!(benched.iter().map(|order| order.id.0).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(benched.get("a").unwrap().id, Nonce(3));
        assert_eq!(benched.get("c"), None);
        let rest = benched.retain(|order| order.id != Nonce(2));
        assert!(rest.get("b").is_none() && rest.get("a").is_some());
        assert_eq!(rest.retain(|_| false), Benched::default(), "none is none, however it came about");
    }

    #[test]
    fn there_is_room_for_so_many_names_and_for_so_much_said_of_them() {
        let many = |number: usize, reason: &str| {
            let names = (0..number).map(|name| BenchOrder::new(name.to_string(), Nonce(1), None, reason));
            names.fold(Benched::default(), |all, order| all.with(order))
        };
        assert!(many(MAX_BENCHED, "short").fits() && !many(MAX_BENCHED + 1, "short").fits());
        let long = "x".repeat(1024);
        assert!(many(9, &long).fits() && !many(11, &long).fits());
    }
}
