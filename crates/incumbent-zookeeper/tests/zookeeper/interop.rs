//! In one line with candidates that other people wrote: Curator's `LeaderLatch` and
//! `LeaderSelector`, and kazoo's `Election`.

use std::time::Duration;

use incumbent::{Candidacy, Client};
use incumbent_store::{ElectionName, Store};
use incumbent_zookeeper::{ZooKeeperOptions, ZooKeeperStore};

use crate::harness::{TICK, in_line, lead, name, shared, within};
use crate::others::{Kind, Program, Theirs, monotonic};

/// Nothing here is about sessions that end, but where it is said.
const TTL: Duration = Duration::from_secs(20);
const REIGNS_EACH: usize = 4;

/// The same claims for each implementation.
macro_rules! with_candidates_of {
    ($module:ident, $kind:expr) => {
        mod $module {
            use super::*;

            #[tokio::test]
            async fn theirs_leads_and_ours_follows_and_takes_over() {
                super::theirs_leads_and_ours_follows_and_takes_over($kind).await;
            }

            #[tokio::test]
            async fn ours_leads_and_theirs_follows_and_takes_over() {
                super::ours_leads_and_theirs_follows_and_takes_over($kind).await;
            }

            #[tokio::test]
            async fn ours_proclaims_and_theirs_still_wakes() {
                super::ours_proclaims_and_theirs_still_wakes($kind).await;
            }

            #[tokio::test]
            async fn theirs_is_killed_and_ours_takes_over() {
                super::theirs_is_killed_and_ours_takes_over($kind).await;
            }

            #[tokio::test]
            async fn terms_of_ours_and_theirs_never_overlap() {
                super::terms_of_ours_and_theirs_never_overlap($kind).await;
            }
        }
    };
}

with_candidates_of!(curator_latch, Kind::CuratorLatch);
with_candidates_of!(curator_selector, Kind::CuratorSelector);
with_candidates_of!(kazoo, Kind::Kazoo);

/// One election, as ours and theirs see it.
struct Fixture {
    store: ZooKeeperStore,
    name: ElectionName,
    program: &'static Program,
}

impl Fixture {
    async fn new(kind: Kind, test: &str) -> Fixture {
        let ensemble = shared().await;
        let options = ZooKeeperOptions::new().dialect(kind.dialect()).tick(TICK);
        let store = ZooKeeperStore::connect(&ensemble.endpoints(), &options).unwrap();
        let program = tokio::task::spawn_blocking(move || Program::shared(kind, ensemble)).await.unwrap();
        Fixture { store, name: name(&format!("{test}-{kind:?}")), program }
    }

    fn path(&self) -> String {
        format!("/{}", self.name)
    }

    async fn client(&self) -> Client {
        Client::builder().ttl(TTL).with_store(self.store.clone()).await.unwrap()
    }

    /// One of ours, with a client of its own.
    async fn stand(&self, candidate: &str) -> Candidacy {
        let election = self.client().await.election(self.name.as_str()).unwrap();
        within(election.candidate(candidate).stand()).await.unwrap()
    }
}

async fn theirs_leads_and_ours_follows_and_takes_over(kind: Kind) {
    let fixture = Fixture::new(kind, "theirs-leads").await;
    let mut theirs = fixture.program.stand(kind, &fixture.path());
    theirs.gains().await;
    let ours = fixture.client().await.election(fixture.name.as_str()).unwrap();
    let mut candidacy = ours.candidate("ours").stand().await.unwrap();
    in_line(&fixture.store, &fixture.name, 2).await;
    let leader = ours.leader().await.unwrap().into_inner().unwrap();
    assert_eq!((leader.id, leader.name.as_deref()), (None, Some(&*theirs.id)));

    theirs.resign().await;

    let office = lead(&mut candidacy).await;
    assert!(Some(office.term().token().token) > leader.token);
    let leader = ours.leader().await.unwrap().into_inner().unwrap();
    assert_eq!(leader.name.as_deref(), Some("ours"));
}

async fn ours_leads_and_theirs_follows_and_takes_over(kind: Kind) {
    let fixture = Fixture::new(kind, "ours-leads").await;
    let ours = fixture.client().await.election(fixture.name.as_str()).unwrap();
    let mut candidacy = ours.candidate("ours").stand().await.unwrap();
    let office = lead(&mut candidacy).await;
    let token = office.term().token().token;
    let mut theirs = fixture.program.stand(kind, &fixture.path());
    in_line(&fixture.store, &fixture.name, 2).await;
    assert!(theirs.waits());

    let ended = monotonic();
    office.resign().await.unwrap();

    assert!(theirs.gains().await > ended);
    let leader = ours.leader().await.unwrap().into_inner().unwrap();
    assert!(leader.id.is_none() && leader.token > Some(token), "{leader:?}");
    theirs.resign().await;
    // Ours went to the end of the line, and is first again.
    lead(&mut candidacy).await;
}

/// Some of theirs watch the data of the node before them, once, and act on nothing but its
/// deletion.
async fn ours_proclaims_and_theirs_still_wakes(kind: Kind) {
    let fixture = Fixture::new(kind, "proclaims").await;
    let ours = fixture.client().await.election(fixture.name.as_str()).unwrap();
    let mut candidacy = ours.candidate("ours").value("first").stand().await.unwrap();
    let office = lead(&mut candidacy).await;
    let mut theirs = fixture.program.stand(kind, &fixture.path());
    in_line(&fixture.store, &fixture.name, 2).await;
    let line = fixture.store.line(&fixture.name, 1).await.unwrap();
    let (node, _) = line.entries[0].id.as_str().split_once('@').unwrap();
    fixture.program.watches(shared().await, &format!("{}/{node}", fixture.path())).await;
    for value in ["second", "third"] {
        office.term().proclaim(value).await.unwrap();
        let leader = ours.leader().await.unwrap().into_inner().unwrap();
        assert_eq!(leader.value, value);
    }
    assert!(theirs.waits());

    office.resign().await.unwrap();

    theirs.gains().await;
    theirs.resign().await;
}

async fn theirs_is_killed_and_ours_takes_over(kind: Kind) {
    let fixture = Fixture::new(kind, "killed").await;
    let ensemble = shared().await;
    let start = move || Program::start(kind, ensemble, Duration::from_secs(4));
    let mut program = tokio::task::spawn_blocking(start).await.unwrap();
    let mut theirs = program.stand(kind, &fixture.path());
    theirs.gains().await;
    drop(theirs);
    let ours = fixture.client().await.election(fixture.name.as_str()).unwrap();
    let mut candidacy = ours.candidate("ours").stand().await.unwrap();
    in_line(&fixture.store, &fixture.name, 2).await;
    let leader = ours.leader().await.unwrap().into_inner().unwrap();
    assert!(leader.id.is_none(), "{leader:?}");

    program.kill();

    let office = lead(&mut candidacy).await;
    assert!(Some(office.term().token().token) > leader.token);
}

/// From when to when somebody led, by the clock that all processes share, and whether it was one of
/// ours.
type Reign = (Duration, Duration, bool);

async fn terms_of_ours_and_theirs_never_overlap(kind: Kind) {
    let fixture = Fixture::new(kind, "overlap").await;
    let keeper = fixture.client().await.election(fixture.name.as_str()).unwrap();
    // Keeps the office until all are in line.
    let kept = within(keeper.candidate("keeper").try_once()).await.unwrap().expect("nobody else stands");
    let theirs = || fixture.program.stand(kind, &fixture.path());
    let (one, another) = (fixture.stand("one").await, fixture.stand("another").await);
    let (theirs, more_of_theirs) = (theirs(), theirs());
    in_line(&fixture.store, &fixture.name, 5).await;

    kept.resign().await.unwrap();
    let reigns = async {
        tokio::join!(
            our_reigns(one),
            our_reigns(another),
            their_reigns(&fixture, kind, theirs),
            their_reigns(&fixture, kind, more_of_theirs)
        )
    };
    let (a, b, c, d) = within(reigns).await;

    let mut reigns = [a, b, c, d].concat();
    reigns.sort_unstable();
    assert!(reigns.is_sorted_by(|earlier, later| earlier.1 < later.0), "{reigns:?}");
    let handed = |to_ours: bool| reigns.windows(2).any(|pair| pair[0].2 != to_ours && pair[1].2 == to_ours);
    assert!(handed(true) && handed(false), "{reigns:?}");
}

async fn our_reigns(mut candidacy: Candidacy) -> Vec<Reign> {
    let mut reigns = Vec::new();
    while reigns.len() < REIGNS_EACH {
        let office = lead(&mut candidacy).await;
        reigns.push((monotonic(), monotonic(), true));
        office.resign().await.unwrap();
    }
    candidacy.withdraw().await.unwrap();
    reigns
}

async fn their_reigns(fixture: &Fixture, kind: Kind, mut candidate: Theirs<'static>) -> Vec<Reign> {
    let mut reigns = Vec::new();
    loop {
        let begun = candidate.gains().await;
        reigns.push((begun, candidate.resign().await, false));
        if reigns.len() == REIGNS_EACH {
            return reigns;
        }
        candidate = fixture.program.stand(kind, &fixture.path());
    }
}
