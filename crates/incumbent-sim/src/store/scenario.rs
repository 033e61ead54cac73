//! What one seed stands for: how many processes, on what store, with what luck. Chosen before
//! anything runs.

use std::time::Duration;

use incumbent_core::{ForgottenBy, Policy, Proof, Rng, Settings};
use incumbent_store::memory::Shape;

use crate::variant::{AroundFlaw, Variant};

/// What a run is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// No faults, and users do nothing by themselves: leadership never changes.
    Quiet,
    /// No faults but the death of leaders, certain (the session is closed) or silent, and, where
    /// rivals forget the silent, candidates behind them that are stopped: the bounds are tight.
    Deaths,
    /// No faults but an operator with orders, one after the other: each is obeyed at once.
    Orders,
    /// No faults but a store that is gone for three TTLs: every term in every election ends in it,
    /// nobody dies, and nobody is shot at.
    Outage,
    /// Everything at once, then healing.
    Chaos,
}

/// How messages fare. Shares are in thousandths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    /// The shortest and the longest usual delay, in nanoseconds.
    pub(crate) delay: (u64, u64),
    pub(crate) late: u64,
    /// The longest delay of a late message.
    pub(crate) latest: u64,
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) hints_lost: u64,
}

/// How often, in a run, each thing happens.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Luck {
    pub(crate) crashes: u64,
    pub(crate) pauses: u64,
    pub(crate) partitions: u64,
    pub(crate) outages: u64,
    pub(crate) failovers: u64,
    pub(crate) stale_servers: u64,
    /// Connections that are lost and made again, to a server that counts a shorter TTL.
    pub(crate) reconnects: u64,
    pub(crate) clock_changes: u64,
    pub(crate) acts: u64,
    pub(crate) operations: u64,
    pub(crate) foreigners: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) kind: Kind,
    pub(crate) shape: Shape,
    pub(crate) processes: usize,
    pub(crate) elections: usize,
    pub(crate) settings: Settings,
    /// The TTL that the server grants.
    pub(crate) granted: Duration,
    /// Which renewal an answer proves.
    pub(crate) proof: Proof,
    pub(crate) weather: Weather,
    pub(crate) luck: Luck,
    /// How long the bad part lasts, in nanoseconds.
    pub(crate) chaos: u64,
    /// How late timers may be, in nanoseconds.
    pub(crate) timer_slack: u64,
}

const MILLISECOND: u64 = 1_000_000;

impl Scenario {
    pub(crate) fn draw(rng: &mut Rng, variant: Variant) -> Scenario {
        let kind = match rng.below(10) {
            0 => Kind::Quiet,
            1 => Kind::Deaths,
            2 => Kind::Orders,
            3 => Kind::Outage,
            _ => Kind::Chaos,
        };
        let shape = match rng.below(8) {
            0 | 1 => Shape::SINGLE,
            2 | 3 => Shape::OBSERVED,
            4 => Shape::ONE_HOST,
            _ => Shape::FAIR,
        };
        let ttl = Duration::from_millis([1_000, 3_000, 5_000, 15_000][rng.below(4) as usize]);
        let drift_ppm = [1_000, 10_000, 50_000][rng.below(3) as usize];
        let mut settings = Settings::for_ttl(ttl);
        settings.drift_ppm = drift_ppm;
        if let Variant::Core(flaw) = variant {
            settings = settings.with_policy(Policy::SOUND.with(flaw));
        }
        if variant.has(AroundFlaw::DriftUnaccounted) {
            (settings.drift_ppm, settings.margin) = (0, Duration::ZERO);
        }
        let granted = match (kind, rng.below(6)) {
            (Kind::Quiet, _) => ttl,
            (_, 0) => ttl * 85 / 100,
            (_, 1) => ttl * 13 / 10,
            _ => ttl,
        };
        let earlier = kind == Kind::Chaos && shape.forgotten_by == ForgottenBy::Store && rng.below(4) == 0;
        let ttl_nanos = ttl.as_nanos() as u64;
        let calm = kind != Kind::Chaos;
        let most = if rng.below(4) == 0 { 6 } else { 3 };
        Scenario {
            kind,
            shape,
            processes: match (2 + rng.below(most) as usize, kind) {
                (_, Kind::Outage) => 3,
                (drawn, _) => drawn,
            },
            elections: match (1 + (rng.below(4) / 2 * (1 + rng.below(2))) as usize, kind) {
                (_, Kind::Outage) => 5,
                (drawn, _) => drawn,
            },
            settings,
            granted,
            proof: if earlier { Scenario::earlier(rng, ttl) } else { Proof::Answered },
            weather: if calm { Weather::calm() } else { Weather::foul(rng, ttl_nanos) },
            luck: if calm { Luck::default() } else { Luck::draw(rng) },
            chaos: match kind {
                Kind::Quiet => ttl_nanos * 8,
                Kind::Deaths | Kind::Orders => ttl_nanos * 30,
                Kind::Outage => ttl_nanos * 20,
                Kind::Chaos => ttl_nanos * (8 + rng.below(12)),
            },
            timer_slack: if calm { 0 } else { [0, MILLISECOND, ttl_nanos / 20][rng.below(3) as usize] },
        }
    }

    fn earlier(rng: &mut Rng, ttl: Duration) -> Proof {
        let apart = [Duration::ZERO, ttl / 20, ttl / 7][rng.below(3) as usize];
        Proof::Earlier { apart, opening_proves: rng.below(2) == 0 }
    }

    pub(crate) fn ttl(&self) -> u64 {
        self.settings.ttl.as_nanos() as u64
    }

    /// The longest TTL that anyone goes by.
    pub(crate) fn longest_ttl(&self) -> u64 {
        self.ttl().max(self.granted.as_nanos() as u64)
    }
}

impl Weather {
    pub(crate) fn calm() -> Weather {
        Weather { delay: (MILLISECOND, 5 * MILLISECOND), late: 0, latest: 0, lost: 0, doubled: 0, hints_lost: 0 }
    }

    /// Each run has its own mix, so that faults which mask each other also come apart.
    fn foul(rng: &mut Rng, ttl: u64) -> Weather {
        let longest = [4 * MILLISECOND, ttl / 50, ttl / 8][rng.below(3) as usize];
        Weather {
            delay: (MILLISECOND, MILLISECOND + longest),
            late: [0, 20, 100][rng.below(3) as usize],
            latest: ttl * 2,
            lost: [0, 10, 100][rng.below(3) as usize],
            doubled: [0, 20, 100][rng.below(3) as usize],
            hints_lost: [0, 100, 500][rng.below(3) as usize],
        }
    }
}

impl Luck {
    fn draw(rng: &mut Rng) -> Luck {
        let mut up_to = |most: u64| if rng.below(2) == 0 { 0 } else { rng.below(most + 1) };
        Luck {
            crashes: up_to(5),
            pauses: up_to(8),
            partitions: up_to(6),
            outages: up_to(3),
            failovers: up_to(3),
            stale_servers: up_to(4),
            reconnects: up_to(4),
            clock_changes: up_to(4),
            acts: up_to(30),
            operations: up_to(8),
            foreigners: up_to(2),
        }
    }
}
