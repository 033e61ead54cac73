//! The clock of one simulated host: a rate within the drift bound, an origin of its own.

use incumbent_core::Timestamp;

/// Reads local time off global time. Knows nothing of processes.
#[derive(Clone, Debug)]
pub(crate) struct LocalClock {
    since: u64,
    local: u64,
    ppm: i64,
    frozen: bool,
}

impl LocalClock {
    pub(crate) fn new(origin: u64, ppm: i64) -> LocalClock {
        LocalClock { since: 0, local: origin, ppm, frozen: false }
    }

    pub(crate) fn read(&self, now: u64) -> Timestamp {
        Timestamp::from_nanos(self.local_at(now))
    }

    /// The first global moment at which this clock shows `local`, if its rate stays as it is.
    pub(crate) fn when(&self, local: Timestamp) -> u64 {
        let need = local.as_nanos().saturating_sub(self.local);
        if need == 0 {
            return self.since;
        }
        if self.frozen {
            return u64::MAX;
        }
        let passed = u128::from(need) * 1_000_000 / (1_000_000 + self.ppm) as u128;
        let mut at = self.since.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX));
        while at < u64::MAX && self.local_at(at) < local.as_nanos() {
            at += 1;
        }
        at
    }

    pub(crate) fn set_rate(&mut self, now: u64, ppm: i64) {
        self.rebase(now);
        self.ppm = ppm;
    }

    pub(crate) fn freeze(&mut self, now: u64) {
        self.rebase(now);
        self.frozen = true;
    }

    pub(crate) fn thaw(&mut self, now: u64) {
        self.rebase(now);
        self.frozen = false;
    }

    pub(crate) fn step(&mut self, now: u64, by: i64) {
        self.rebase(now);
        self.local = self.local.saturating_add_signed(by);
    }

    fn rebase(&mut self, now: u64) {
        self.local = self.local_at(now);
        self.since = now;
    }

    fn local_at(&self, now: u64) -> u64 {
        if self.frozen {
            return self.local;
        }
        let passed = i128::from(now.saturating_sub(self.since));
        let shown = passed + passed * i128::from(self.ppm) / 1_000_000;
        self.local.saturating_add(u64::try_from(shown).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_on_the_local_clock_is_found_again_on_the_global_one() {
        for ppm in [-50_000, -1, 0, 7, 50_000] {
            let mut clock = LocalClock::new(1_000, ppm);
            clock.set_rate(5_000, ppm / 2);
            for global in [5_000, 77_777, 123_456_789] {
                let found = clock.when(clock.read(global));
                assert!(found <= global && clock.read(found) == clock.read(global));
            }
        }
    }

    #[test]
    fn a_frozen_clock_never_gets_there() {
        let mut clock = LocalClock::new(0, 0);
        clock.freeze(10);
        assert_eq!(clock.read(1_000), Timestamp::from_nanos(10));
        assert_eq!(clock.when(Timestamp::from_nanos(11)), u64::MAX);
        clock.thaw(1_000);
        assert_eq!(clock.when(Timestamp::from_nanos(11)), 1_001);
    }
}
