//! A network that loses, delays, doubles and reorders, and that can be cut, also in one direction.

use std::collections::BTreeSet;

use incumbent_core::Rng;

/// A millisecond, in nanoseconds.
pub(crate) const MS: u64 = 1_000_000;

/// What the network does to messages at present.
#[derive(Clone, Debug, Default)]
pub(crate) struct Network {
    /// Directions that are cut: from, to.
    pub(crate) cut: BTreeSet<(usize, usize)>,
    /// Directions in which elections are not heard, but records are.
    pub(crate) muffled: BTreeSet<(usize, usize)>,
    /// A host that everything reaches late, by up to so many milliseconds.
    pub(crate) slow_to: Option<(usize, u64)>,
    /// Lost, of a thousand.
    pub(crate) lost: u64,
    /// Doubled, of a thousand.
    pub(crate) doubled: u64,
    /// Late, of a thousand.
    pub(crate) late: u64,
    /// How late a late message may be, in milliseconds.
    pub(crate) late_by_ms: u64,
}

impl Network {
    /// When a message arrives: not at all, once, or twice.
    pub(crate) fn arrivals(&self, rng: &mut Rng, now: u64, from: usize, to: usize, about_election: bool) -> Vec<u64> {
        let muffled = about_election && self.muffled.contains(&(from, to));
        if muffled || self.cut.contains(&(from, to)) || rng.below(1000) < self.lost {
            return Vec::new();
        }
        let copies = if rng.below(1000) < self.doubled { 2 } else { 1 };
        (0..copies).map(|_| now + self.delay(rng, to)).collect()
    }

    fn delay(&self, rng: &mut Rng, to: usize) -> u64 {
        let slow = self.slow_to.filter(|(host, _)| *host == to).map_or(0, |(_, by_ms)| rng.below(by_ms * MS));
        let usual = MS / 2 + rng.below(5 * MS) + slow;
        if rng.below(1000) < self.late { usual + rng.below(self.late_by_ms * MS) } else { usual }
    }

    /// Cuts the hosts in two.
    pub(crate) fn split(&mut self, side: impl Fn(usize) -> bool, hosts: usize) {
        let pairs = (0..hosts).flat_map(|from| (0..hosts).map(move |to| (from, to)));
        self.cut = pairs.filter(|(from, to)| side(*from) != side(*to)).collect();
    }

    /// Nobody hears this host.
    pub(crate) fn mute(host: usize, hosts: usize) -> Network {
        let cut = (0..hosts).filter(|other| *other != host).map(|other| (host, other)).collect();
        Network { cut, ..Network::default() }
    }

    /// Nobody hears this host, and it hears nobody.
    pub(crate) fn isolate(host: usize, hosts: usize) -> Network {
        let mut network = Network::default();
        network.split(|other| other == host, hosts);
        network
    }

    /// Whether somebody does not hear one by whom it is heard.
    pub(crate) fn is_one_way(&self) -> bool {
        self.cut.iter().any(|(from, to)| from != to && !self.cut.contains(&(*to, *from)))
    }

    /// As good as it gets.
    pub(crate) fn heal(&mut self) {
        *self = Network::default();
    }
}
