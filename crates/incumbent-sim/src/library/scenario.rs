//! What one seed stands for: how many hosts, on what store, with what luck. Chosen before anything
//! runs.

use std::time::Duration;

use incumbent_core::{ForgottenBy, Rng};
use incumbent_store::memory::Shape;

/// What a run is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// No faults, and nobody asks for anything: leadership never changes.
    Quiet,
    /// No faults but the death of leaders: each is replaced in time.
    Deaths,
    /// A good network, on which renewals are answered in the last moment, or a moment too late.
    Edge,
    /// Everything at once, then healing.
    Storm,
}

/// How calls fare. Shares are in thousandths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    /// The longest usual delay of a request, and of an answer.
    pub(crate) delay: Duration,
    pub(crate) late: u64,
    /// The longest delay of what is late.
    pub(crate) latest: Duration,
    pub(crate) lost: u64,
    pub(crate) refused: u64,
    pub(crate) doubled: u64,
    pub(crate) hints_lost: u64,
    /// Renewals are answered when the caller is about to give up, or never.
    pub(crate) renewals_at_the_edge: bool,
}

/// How often each thing happens in a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Luck {
    pub(crate) kills: u64,
    pub(crate) pauses: u64,
    pub(crate) cuts: u64,
    pub(crate) outages: u64,
    pub(crate) forgotten: u64,
    pub(crate) replaced: u64,
    pub(crate) drivers_killed: u64,
    pub(crate) closes: u64,
    pub(crate) operations: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) kind: Kind,
    pub(crate) shape: Shape,
    pub(crate) hosts: usize,
    pub(crate) elections: usize,
    pub(crate) ttl: Duration,
    /// The TTL that the store grants.
    pub(crate) granted: Duration,
    pub(crate) drift_ppm: u32,
    pub(crate) fenced: bool,
    pub(crate) weather: Weather,
    pub(crate) luck: Luck,
    /// How long the bad part lasts.
    pub(crate) storm: Duration,
    /// How often, of a thousand, a task is polled late, and how late at most.
    pub(crate) delayed: (u64, Duration),
    /// How often, of a thousand turns, a driver is interrupted after it has read the clock, and for
    /// how long at most.
    pub(crate) interrupted: (u64, Duration),
}

impl Scenario {
    pub(crate) fn draw(rng: &mut Rng) -> Scenario {
        let kind = match rng.below(20) {
            0 => Kind::Quiet,
            1 | 2 => Kind::Deaths,
            3 | 4 => Kind::Edge,
            _ => Kind::Storm,
        };
        let storm = kind == Kind::Storm;
        let shape = match rng.below(8) {
            0 => Shape::SINGLE,
            1 => Shape::OBSERVED,
            2 => Shape::ONE_HOST,
            _ => Shape::FAIR,
        };
        let shape = if storm { shape } else { Shape::FAIR };
        let ttl =
            Duration::from_millis([1_000, 3_000, 15_000][rng.below(if kind == Kind::Edge { 1 } else { 3 }) as usize]);
        let granted = match rng.below(6) {
            0 if storm => ttl * 85 / 100,
            1 if storm => ttl * 13 / 10,
            _ => ttl,
        };
        Scenario {
            kind,
            shape,
            hosts: 2 + rng.below(3) as usize,
            elections: 1 + (rng.below(3) / 2) as usize,
            ttl,
            granted,
            drift_ppm: if shape.one_clock { 1_000 } else { [1_000, 10_000, 50_000][rng.below(3) as usize] },
            fenced: rng.below(3) > 0,
            weather: match kind {
                Kind::Quiet | Kind::Deaths => Weather::calm(),
                Kind::Edge => Weather { renewals_at_the_edge: true, ..Weather::calm() },
                Kind::Storm => Weather::foul(rng, ttl),
            },
            luck: if storm { Luck::draw(rng) } else { Luck::default() },
            storm: match kind {
                Kind::Quiet | Kind::Deaths => ttl * 6,
                Kind::Edge => ttl * 12,
                Kind::Storm => ttl * (6 + rng.below(10) as u32),
            },
            delayed: if storm { ([0, 20, 100][rng.below(3) as usize], ttl / 20) } else { (0, Duration::ZERO) },
            interrupted: match kind {
                Kind::Quiet | Kind::Deaths => (0, Duration::ZERO),
                Kind::Edge => (100, ttl * 2 / 5),
                // A jump ahead makes a rival that times the silence of others impatient.
                Kind::Storm if shape.forgotten_by == ForgottenBy::Rivals => (0, Duration::ZERO),
                Kind::Storm => ([0, 5, 20][rng.below(3) as usize], ttl * 2 / 5),
            },
        }
    }

    pub(crate) fn longest_ttl(&self) -> Duration {
        self.ttl.max(self.granted)
    }
}

impl Weather {
    pub(crate) fn calm() -> Weather {
        Weather {
            delay: Duration::from_millis(3),
            late: 0,
            latest: Duration::ZERO,
            lost: 0,
            refused: 0,
            doubled: 0,
            hints_lost: 0,
            renewals_at_the_edge: false,
        }
    }

    /// Each run has its own mix, so that faults which mask each other also come apart.
    fn foul(rng: &mut Rng, ttl: Duration) -> Weather {
        let mut share = |shares: [u64; 3]| shares[rng.below(3) as usize];
        let (late, lost, refused, doubled, hints_lost) =
            (share([0, 30, 120]), share([0, 20, 100]), share([0, 20, 100]), share([0, 30, 120]), share([0, 100, 500]));
        let delay = [Duration::from_millis(2), ttl / 50, ttl / 8][rng.below(3) as usize];
        Weather { delay, late, latest: ttl * 3 / 2, lost, refused, doubled, hints_lost, renewals_at_the_edge: false }
    }
}

impl Luck {
    fn draw(rng: &mut Rng) -> Luck {
        let mut up_to = |most: u64| if rng.below(2) == 0 { 0 } else { rng.below(most + 1) };
        Luck {
            kills: up_to(4),
            pauses: up_to(6),
            cuts: up_to(6),
            outages: up_to(3),
            forgotten: up_to(2),
            replaced: if up_to(3) == 3 { 1 } else { 0 },
            drivers_killed: up_to(2),
            closes: up_to(3),
            operations: up_to(8),
        }
    }
}
