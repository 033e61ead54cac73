//! What goes wrong, and when: drawn from the seed.

use incumbent_core::Rng;

use super::network::{MS, Network};

/// Something that happens to the world from outside.
#[derive(Clone, Debug)]
pub(crate) enum Mishap {
    /// A member stops; it restarts after this long.
    Crash {
        /// Which.
        who: usize,
        /// Whether its disk is lost too.
        wiped: bool,
        /// For how long, in nanoseconds.
        down: u64,
    },
    /// A member does nothing for this long, and does not know it.
    Pause {
        /// Which.
        who: usize,
        /// For how long, in nanoseconds.
        span: u64,
    },
    /// The network changes.
    Weather(Network),
    /// The leader of that moment hands over to this member.
    Transfer(usize),
    /// The leader gives the office back.
    Release,
    /// An operator wants the leader to give the office back, or to hand it to this member.
    OperatorRequest(Option<usize>),
    /// The candidate of a member leaves; another one comes after this long, in nanoseconds.
    Leave {
        /// Whose.
        who: usize,
        /// For how long.
        away: u64,
    },
    /// The candidate of a member is not fit to lead for this long, in nanoseconds.
    Unhealthy {
        /// Whose.
        who: usize,
        /// For how long.
        span: u64,
    },
    /// The leader proclaims another value.
    Proclaim(u64),
    /// Mishaps that belong together, each so many nanoseconds from now.
    Script(Vec<(u64, Mishap)>),
}

/// Draws a mishap among this many hosts. `leader` is a likely victim.
pub(crate) fn draw(rng: &mut Rng, hosts: usize, leader: Option<usize>, may_wipe: bool) -> Mishap {
    let anyone = rng.below(hosts as u64) as usize;
    let who = if rng.below(2) == 0 { leader.unwrap_or(anyone) } else { anyone };
    match rng.below(100) {
        0..14 => Mishap::Crash { who, wiped: may_wipe && rng.below(4) == 0, down: rng.below(4_000) * MS },
        // Gone for the blink of an eye: what was promised before still holds.
        14..24 => Mishap::Crash { who, wiped: false, down: rng.below(30) * MS },
        24..36 => Mishap::Pause { who, span: rng.below(5_000) * MS },
        36..48 => Mishap::Weather(weather(rng, hosts, who)),
        48..60 => script(rng, hosts, who, may_wipe),
        60..68 => Mishap::Weather(Network::default()),
        68..80 => Mishap::Transfer(anyone),
        80..84 => Mishap::OperatorRequest(Some(anyone)),
        84..86 => Mishap::OperatorRequest(None),
        86..89 => Mishap::Release,
        89..92 => Mishap::Leave { who, away: rng.below(3_000) * MS },
        92..95 => Mishap::Unhealthy { who, span: rng.below(3_000) * MS },
        _ => Mishap::Proclaim(rng.below(1_000_000)),
    }
}

fn weather(rng: &mut Rng, hosts: usize, victim: usize) -> Network {
    let mut network = Network::default();
    match rng.below(6) {
        0 => network = Network::isolate(victim, hosts),
        1 => {
            let sides = rng.next_u64();
            network.split(|host| sides >> host & 1 == 0, hosts);
        }
        2 => network = Network::mute(victim, hosts),
        3 => network.cut = (0..hosts).filter(|host| *host != victim).map(|host| (host, victim)).collect(),
        4 => {
            let cuts = 1 + rng.below(8);
            let draw = |rng: &mut Rng| rng.below(hosts as u64) as usize;
            network.cut = (0..cuts).map(|_| (draw(rng), draw(rng))).collect();
        }
        _ => network.lost = 50 + rng.below(400),
    }
    if rng.below(2) == 0 {
        network.late = 20 + rng.below(300);
        network.late_by_ms = 100 + rng.below(4_000);
    }
    network.doubled = rng.below(100);
    network
}

/// Mishaps that are rarely met by chance and that the protocol has a rule for.
fn script(rng: &mut Rng, hosts: usize, leader: usize, may_wipe: bool) -> Mishap {
    let others: Vec<_> = (1..hosts).map(|step| (leader + step) % hosts).collect();
    Mishap::Script(match rng.below(7) {
        0 => voters_forget(rng, hosts, leader, &others),
        1 => heir_is_cut_off(rng, hosts, &others),
        2 => answers_come_late(rng, hosts, leader),
        3 => order_to_stand_comes_late(rng, &others),
        4 => one_link_is_broken(rng, leader, &others),
        5 => heir_stands_still(rng, &others),
        _ => electors_restart(rng, hosts, leader, &others, may_wipe),
    })
}

fn blink(rng: &mut Rng, who: usize) -> Mishap {
    Mishap::Crash { who, wiped: false, down: rng.below(30) * MS }
}

/// A member that hears no leader meets voters that forgot theirs, while the leader is cut off with
/// a fresh lease.
fn voters_forget(rng: &mut Rng, hosts: usize, leader: usize, others: &[usize]) -> Vec<(u64, Mishap)> {
    let muffled = [(leader, others[0])].into();
    let at = (2_000 + rng.below(3_000)) * MS;
    let mut steps = vec![
        (0, Mishap::Weather(Network { muffled, ..Network::default() })),
        (at, Mishap::Weather(Network::isolate(leader, hosts))),
        (at + 4_000 * MS, Mishap::Weather(Network::default())),
    ];
    steps.extend(others[1..].iter().map(|who| (at, blink(rng, *who))));
    steps
}

/// The heir is cut off as it stands, and comes back when another leads.
fn heir_is_cut_off(rng: &mut Rng, hosts: usize, others: &[usize]) -> Vec<(u64, Mishap)> {
    let heir = others[rng.below(others.len() as u64) as usize];
    vec![
        (0, Mishap::Transfer(heir)),
        (rng.below(30) * MS, Mishap::Weather(Network::isolate(heir, hosts))),
        ((1_500 + rng.below(6_000)) * MS, Mishap::Weather(Network::default())),
    ]
}

/// The heir has asked for votes and stands still: it finds them when another leads.
fn heir_stands_still(rng: &mut Rng, others: &[usize]) -> Vec<(u64, Mishap)> {
    let heir = others[rng.below(others.len() as u64) as usize];
    let pause = Mishap::Pause { who: heir, span: (2_000 + rng.below(3_000)) * MS };
    vec![(0, Mishap::Transfer(heir)), ((10 + rng.below(30)) * MS, pause)]
}

/// Acknowledgements reach the leader late, also after it is no longer heard.
fn answers_come_late(rng: &mut Rng, hosts: usize, leader: usize) -> Vec<(u64, Mishap)> {
    let slow_to = Some((leader, 1_000 + rng.below(1_500)));
    let at = (500 + rng.below(3_000)) * MS;
    vec![
        (0, Mishap::Weather(Network { slow_to, ..Network::default() })),
        (at, Mishap::Weather(Network { slow_to, ..Network::mute(leader, hosts) })),
        (at + 5_000 * MS, Mishap::Weather(Network::default())),
    ]
}

/// What is said to the heir is slow from the moment of the handover on: it may hear of it when
/// another leads.
fn order_to_stand_comes_late(rng: &mut Rng, others: &[usize]) -> Vec<(u64, Mishap)> {
    let heir = others[rng.below(others.len() as u64) as usize];
    let slow_to = Some((heir, 1_000 + rng.below(5_000)));
    vec![
        (0, Mishap::Weather(Network { slow_to, ..Network::default() })),
        (0, Mishap::Transfer(heir)),
        ((500 + rng.below(6_000)) * MS, Mishap::Weather(Network::default())),
    ]
}

/// The leader and one member do not hear each other, and everybody else hears both: that member
/// stands, and the voters are bound by what they promised.
fn one_link_is_broken(rng: &mut Rng, leader: usize, others: &[usize]) -> Vec<(u64, Mishap)> {
    let member = others[rng.below(others.len() as u64) as usize];
    let muffled = [(leader, member), (member, leader)].into();
    vec![
        (0, Mishap::Weather(Network { muffled, ..Network::default() })),
        ((3_000 + rng.below(4_000)) * MS, Mishap::Weather(Network::default())),
    ]
}

/// A leader is elected by a bare majority; the rest of it restarts; then it meets those who never
/// heard of that leader.
fn electors_restart(
    rng: &mut Rng,
    hosts: usize,
    leader: usize,
    others: &[usize],
    may_wipe: bool,
) -> Vec<(u64, Mishap)> {
    let (away, electors) = others.split_at(hosts / 2);
    let mut split = Network::default();
    split.split(|host| away.contains(&host), hosts);
    let at = (4_000 + rng.below(5_000)) * MS;
    let mut steps = vec![
        (0, Mishap::Weather(split)),
        (1_000 * MS, blink(rng, leader)),
        (at, Mishap::Weather(Network::isolate(leader, hosts))),
        (at + 8_000 * MS, Mishap::Weather(Network::default())),
    ];
    steps.extend(electors.iter().map(|who| (at, blink(rng, *who))));
    if may_wipe
        && rng.below(2) == 0
        && let Some((_, Mishap::Crash { wiped, .. })) = steps.last_mut()
    {
        *wiped = true;
    }
    steps
}
