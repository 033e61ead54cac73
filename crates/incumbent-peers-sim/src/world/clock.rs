//! A host's clock: off true time by an offset and a rate.

use incumbent_core::Timestamp;

/// True time, in nanoseconds since the world began.
pub type True = u64;

/// The clock of one host.
#[derive(Clone, Copy, Debug)]
pub struct HostClock {
    /// What it shows when the world begins.
    pub offset: u64,
    /// How much faster than true time it runs, in parts per million.
    pub fast_ppm: i64,
}

impl HostClock {
    /// What it shows at a true moment.
    pub fn shows(&self, at: True) -> Timestamp {
        let passed = i128::from(at) * i128::from(1_000_000 + self.fast_ppm) / 1_000_000;
        Timestamp::from_nanos(self.offset.saturating_add(u64::try_from(passed).unwrap_or(0)))
    }

    /// The first true moment at which it shows at least this.
    pub fn true_time_of(&self, shown: Timestamp) -> True {
        let passed = i128::from(shown.as_nanos().saturating_sub(self.offset));
        let rate = i128::from(1_000_000 + self.fast_ppm);
        u64::try_from((passed * 1_000_000 + rate - 1) / rate).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_moment_at_which_a_clock_shows_a_time_is_the_first() {
        for fast_ppm in [-50_000, -1, 0, 7, 50_000] {
            let clock = HostClock { offset: 1_000, fast_ppm };
            for at in [1, 12_345, 9_999_999_999] {
                let found = clock.true_time_of(clock.shows(at));
                assert!(found <= at && clock.shows(found) >= clock.shows(at));
                assert!(found == 0 || clock.shows(found - 1) < clock.shows(at));
            }
        }
    }
}
