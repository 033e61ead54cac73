//! A hundred faults at random: kill -9 and restart, stopping and going on, cuts, one-way cuts,
//! delays, handovers and disks that are lost. The seed is printed: `PEERS_SEED` makes the same
//! choices again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use incumbent_core::Rng;
use incumbent_peers::{Algorithm, MemberId, QueryClient};
use incumbent_testkit::proxy::Way;
use tokio::task::AbortHandle;

use crate::cluster::Cluster;
use incumbent_testkit::judge::Who;

const FAULTS: usize = 100;
/// The longest pause between two faults.
const BETWEEN_MS: u64 = 900;
/// Nobody is down for longer.
const LONGEST_DOWN_MS: u64 = 1_500;
/// Nobody is stopped for longer: it is twice the longest election timeout.
const LONGEST_STOP_MS: u64 = 2_400;

struct Storm {
    cluster: Cluster,
    rng: Rng,
    down_until: BTreeMap<Who, Instant>,
    stopped_until: BTreeMap<Who, Instant>,
    /// What was done, by kind.
    done: BTreeMap<&'static str, usize>,
}

impl Storm {
    fn ms(&mut self, longest: u64) -> Duration {
        Duration::from_millis(self.rng.below(longest))
    }

    fn anyone(&mut self) -> Who {
        let everyone = self.cluster.everyone();
        everyone[self.rng.below(everyone.len() as u64) as usize]
    }

    /// The leader in one case of two, else anybody.
    fn victim(&mut self) -> Who {
        let leader = self.cluster.look().in_office().map(|(who, _)| who);
        let anyone = self.anyone();
        if self.rng.below(2) == 0 { leader.unwrap_or(anyone) } else { anyone }
    }

    /// Some members, drawn: the leader is among them in one case of two.
    fn side(&mut self) -> Vec<Who> {
        let (first, bits) = (self.victim(), self.rng.next_u64());
        let others = self.cluster.everyone().into_iter().filter(|who| *who != first && bits >> who & 3 == 0);
        others.chain([first]).collect()
    }

    async fn fault(&mut self) -> &'static str {
        match self.rng.below(100) {
            0..22 => self.kill(),
            22..40 => self.stop(),
            40..54 => {
                let side = self.side();
                self.cluster.part(&side);
                "cut"
            }
            54..66 => self.cut_one_way(),
            66..71 => self.slow_down(),
            71..86 => {
                self.cluster.heal();
                "heal"
            }
            86..94 => self.hand_over().await,
            _ => self.lose_disk().await,
        }
    }

    fn kill(&mut self) -> &'static str {
        let who = self.victim();
        let down = self.ms(LONGEST_DOWN_MS);
        self.stopped_until.remove(&who);
        self.cluster.kill(who);
        self.down_until.insert(who, Instant::now() + down);
        "kill"
    }

    fn stop(&mut self) -> &'static str {
        let who = self.victim();
        let stopped = self.ms(LONGEST_STOP_MS);
        self.cluster.pause(who);
        self.stopped_until.insert(who, Instant::now() + stopped);
        "stop"
    }

    fn cut_one_way(&mut self) -> &'static str {
        let (who, other) = (self.victim(), self.anyone());
        let way = if self.rng.below(2) == 0 { Way::Stall } else { Way::Cut };
        match self.rng.below(3) {
            0 => self.cluster.links_out_of(&[who], way),
            1 => self.cluster.links_into(&[who], way),
            _ if who != other => self.cluster.link(who, other, way),
            _ => self.cluster.links_out_of(&[who], way),
        }
        "one-way cut"
    }

    fn slow_down(&mut self) -> &'static str {
        let (who, by) = (self.victim(), self.ms(500));
        self.cluster.links_into(&[who], Way::Delay(by));
        "delay"
    }

    async fn hand_over(&mut self) -> &'static str {
        let heir = self.anyone();
        // Whether it is taken, refused or lost on the way: the rules hold.
        let _ =
            tokio::time::timeout(Duration::from_millis(500), self.cluster.query_client.transfer(MemberId(heir))).await;
        "handover"
    }

    /// A member comes back by asking ALL others, so nobody else may be without its state at that
    /// time.
    async fn lose_disk(&mut self) -> &'static str {
        self.mend();
        self.cluster.whole().await;
        let who = self.victim();
        self.cluster.kill(who);
        self.cluster.wipe(who);
        self.cluster.start_member(who);
        "lost disk"
    }

    /// Those whose time has come go on.
    fn look_after(&mut self) {
        let now = Instant::now();
        let due = |until: &BTreeMap<Who, Instant>| -> Vec<Who> {
            until.iter().filter(|(_, until)| **until <= now).map(|(who, _)| *who).collect()
        };
        for who in due(&self.stopped_until) {
            self.stopped_until.remove(&who);
            self.cluster.resume(who);
        }
        for who in due(&self.down_until) {
            self.down_until.remove(&who);
            self.cluster.start_member(who);
        }
    }

    async fn rage(&mut self) {
        for _ in 0..FAULTS {
            let kind = self.fault().await;
            *self.done.entry(kind).or_default() += 1;
            let next = Instant::now() + self.ms(BETWEEN_MS);
            while Instant::now() < next {
                self.look_after();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            self.cluster.judge();
        }
    }

    fn mend(&mut self) {
        self.cluster.heal();
        std::mem::take(&mut self.stopped_until).into_keys().for_each(|who| self.cluster.resume(who));
        self.down_until.clear();
        self.cluster.start_all();
    }
}

/// Someone who is not a member, and whom it has seen leading.
struct Witness {
    seen: Arc<Mutex<Vec<(Who, u64)>>>,
    task: AbortHandle,
}

impl Witness {
    fn of(query_client: &QueryClient) -> Witness {
        let (query_client, seen) = (query_client.clone(), Arc::new(Mutex::new(Vec::new())));
        let notes = seen.clone();
        let task = tokio::spawn(async move {
            loop {
                if let Ok(Some(leader)) = query_client.leader().await {
                    notes.lock().unwrap().push((leader.member.0, leader.term.map_or(0, |term| term.get())));
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        Witness { seen, task: task.abort_handle() }
    }

    fn seen(&self) -> Vec<(Who, u64)> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn seed() -> u64 {
    let given = std::env::var("PEERS_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_faults_never_make_two_leaders_and_in_the_end_all_agree_on_one() {
    let seed = seed();
    println!("PEERS_SEED={seed}");
    let mut storm = Storm {
        cluster: Cluster::start(Algorithm::Consensus, 5).await,
        rng: Rng::from_number(seed),
        down_until: BTreeMap::new(),
        stopped_until: BTreeMap::new(),
        done: BTreeMap::new(),
    };
    let witness = Witness::of(&storm.cluster.query_client);
    storm.rage().await;
    storm.mend();
    let (leader, term) = storm.cluster.whole().await;
    let terms = storm.cluster.judge();
    println!("{:?}; {} terms, the last is {term} of member {leader}", storm.done, terms.len());
    assert!(terms.len() > 5, "too few terms for a test: {terms:?}");
    let seen = witness.seen();
    let elected = |(who, term): &(Who, u64)| terms.iter().any(|led| (led.who, led.term) == (*who, *term));
    assert!(
        !seen.is_empty() && seen.iter().all(elected),
        "somebody who asked was told of one who never led: {seen:?} in {terms:?}"
    );
}
