//! Every outcome of stopping the last leader from outside, with everything that may follow: through
//! the library, in virtual time, on the memory store.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test speaks by panicking")]

mod stonith_world;

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use incumbent::fence::BoxFuture;
use incumbent::store::Incarnation;
use incumbent::{
    Candidacy, LastTerm, Leadership, LossReason, OnFailure, Order, Origin, Pending, Shooter, Shooting, ShotResult,
    Stonith, Target, TermEnd, TermRecord, Token,
};
use incumbent_testkit::TempDir;
use stonith_world::{Gun, Shared, TTL, World, until};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

const ALL: [OnFailure; 3] = [OnFailure::Retry, OnFailure::Refuse, OnFailure::Anyway];

/// What each attempt comes to, and when they were made.
#[derive(Debug, Clone)]
struct Comes {
    to: Shooting,
    shots: Arc<Mutex<Vec<(Instant, u32)>>>,
}

impl Comes {
    fn to(outcome: Shooting) -> Comes {
        Comes { to: outcome, shots: Arc::default() }
    }

    fn count(&self) -> usize {
        self.shots.lock().unwrap().len()
    }

    /// How long after each attempt the next one was made, in seconds. They are counted from 1.
    fn pauses(&self) -> Vec<u64> {
        let shots = self.shots.lock().unwrap();
        assert!(shots.iter().zip(1..).all(|((_, attempt), number)| *attempt == number), "{shots:?}");
        shots.windows(2).map(|pair| (pair[1].0 - pair[0].0).as_secs()).collect()
    }
}

impl Shooter for Comes {
    fn shoot<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Shooting> {
        Box::pin(async move {
            self.shots.lock().unwrap().push((Instant::now(), target.attempt));
            self.to.clone()
        })
    }
}

type Elected = JoinHandle<(Candidacy, Leadership)>;

/// A candidate with this, which waits for its office. Each test counts its shots by itself, and has
/// a host of its own: a process fires no two shots at one at the same time.
async fn standing(world: &World, folder: &TempDir, shooter: impl Shooter, then: OnFailure) -> Elected {
    let stonith = Stonith::new(shooter, [world.host.as_str()]).on_failure(then).counted_in(folder.path().join("shots"));
    let candidate = world.election().await.candidate("b").stonith(stonith);
    tokio::spawn(async move {
        let mut candidacy = candidate.stand().await.unwrap();
        let leadership = candidacy.elected().await.unwrap().expect("in office");
        (candidacy, leadership)
    })
}

/// Nobody is in office, and everybody can see why.
async fn nobody_leads(world: &World, standing: &Elected, why: &str) {
    let status = world.election().await.status().await.unwrap().into_inner();
    assert_eq!((status.vacant, status.pending), (true, Some(Pending::Fencing)), "{why}");
    assert!(!standing.is_finished(), "{why}");
}

/// What the leader was told of the last one, and what is on record of the shot.
async fn in_office(world: &World, standing: Elected) -> (LastTerm, ShotResult) {
    let (_candidacy, leadership) = standing.await.unwrap();
    (leadership.last_term(), world.result().await.unwrap())
}

#[tokio::test(start_paused = true)]
async fn what_was_stopped_lets_its_successor_in_after_one_shot_whatever_was_to_follow_a_failure() {
    for then in ALL {
        let (world, folder, gun) = (World::after("node-1").await, TempDir::new("shots"), Comes::to(Shooting::Stopped));
        let standing = standing(&world, &folder, gun.clone(), then).await;
        assert_eq!(in_office(&world, standing).await, (LastTerm::Fenced, ShotResult::Stopped), "{then:?}");
        assert_eq!(gun.count(), 1, "{then:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_not_stopped_is_followed_by_what_was_asked_for() {
    let failed = (Shooting::Failed("it is locked".into()), ShotResult::Failed);
    let timed_out = (Shooting::TimedOut("no answer".into()), ShotResult::TimedOut);
    for (outcome, result) in [failed, timed_out] {
        for (then, pauses) in [(OnFailure::Retry, &[5, 15, 45, 300, 300][..]), (OnFailure::Refuse, &[300, 300])] {
            let case = format!("{outcome:?}, {then:?}");
            let (world, folder, gun) =
                (World::after("node-2").await, TempDir::new("shots"), Comes::to(outcome.clone()));
            let standing = standing(&world, &folder, gun.clone(), then).await;
            for shots in 1..=pauses.len() + 1 {
                until(async || gun.count() == shots && world.result().await == Some(result)).await;
                nobody_leads(&world, &standing, &case).await;
            }
            assert_eq!(gun.pauses(), pauses, "{case}");
            // Somebody has looked, and says so.
            let operator = world.election().await.operator().by("ada@ops1").reason("it is off");
            operator.fenced(world.last, TTL).await.unwrap();
            assert_eq!(in_office(&world, standing).await, (LastTerm::Fenced, ShotResult::Released), "{case}");
            assert_eq!(gun.count(), pauses.len() + 1, "{case}");
        }
        let (world, folder, gun) = (World::after("node-2").await, TempDir::new("shots"), Comes::to(outcome));
        let standing = standing(&world, &folder, gun.clone(), OnFailure::Anyway).await;
        assert_eq!(in_office(&world, standing).await, (LastTerm::Unfenced, result));
        assert_eq!(gun.count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_target_that_was_shot_at_lately_is_not_shot_at_for_another_term_until_its_time_has_come() {
    for then in ALL {
        let folder = TempDir::new("shots");
        let (world, first) = (World::after("node-3").await, Comes::to(Shooting::Stopped));
        let leads = standing(&world, &folder, first.clone(), then).await;
        in_office(&world, leads).await;
        let began = Instant::now();
        // Of another store, with the budget of the same host.
        let (other, second) = (world.other(2).await, Comes::to(Shooting::Stopped));
        let waits = standing(&other, &folder, second.clone(), then).await;
        if then == OnFailure::Anyway {
            assert_eq!(in_office(&other, waits).await, (LastTerm::Unfenced, ShotResult::Failed));
            assert_eq!(second.count(), 0);
            continue;
        }
        until(async || other.result().await == Some(ShotResult::Failed)).await;
        nobody_leads(&other, &waits, "the budget is spent").await;
        assert!(other.shot().await.unwrap().order.reason.contains("less than ten minutes ago"));
        assert_eq!(second.count(), 0);
        assert_eq!(in_office(&other, waits).await, (LastTerm::Fenced, ShotResult::Stopped));
        let waited = began.elapsed().as_secs();
        assert!((600..910).contains(&waited), "tried every five minutes: {waited} s");
        assert_eq!(second.count(), 1);
    }
}

/// A last term that nobody shoots at, and what is on record of why.
fn not_shot_at(last: Token) -> [(TermRecord, &'static str); 4] {
    let open = |origin: Origin| TermRecord::open(last, Incarnation::from_bits(1), "a".into(), origin);
    let own_host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    [
        (open(Origin::new("node-9", "another boot", "")), "not among the targets"),
        (open(Origin::new(own_host.trim_end(), "another boot", "")), "on this very host"),
        (open(Origin::default()), "does not say where it worked"),
        // Of another library: it wrote nothing of itself down.
        (TermRecord::unknown(last, None, "theirs".into()), "does not say where it worked"),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_may_not_be_shot_at_counts_as_one_that_was_not_stopped() {
    for then in ALL {
        for case in 0..4 {
            let (world, folder, gun) =
                (World::after("node-7").await, TempDir::new("shots"), Comes::to(Shooting::Stopped));
            let (last, why) = not_shot_at(world.last)[case].clone();
            world.note_last(last).await;
            let standing = standing(&world, &folder, gun.clone(), then).await;
            until(async || world.result().await == Some(ShotResult::Failed)).await;
            let said = world.shot().await.unwrap().order.reason;
            assert!(said.contains(why), "{said}");
            if then == OnFailure::Anyway {
                assert_eq!(in_office(&world, standing).await, (LastTerm::Unfenced, ShotResult::Failed), "{why}");
            } else {
                tokio::time::sleep(TTL * 3).await;
                nobody_leads(&world, &standing, why).await;
                world.election().await.operator().fenced(world.last, TTL).await.unwrap();
                assert_eq!(in_office(&world, standing).await, (LastTerm::Fenced, ShotResult::Released), "{why}");
            }
            assert_eq!(gun.count(), 0, "{why}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_term_has_ended_is_followed_at_once_and_not_shot_at() {
    let why = TermEnd::Closed { why: LossReason::Resigned, order: Order::default(), at_ms: 0 };
    for then in ALL {
        for (end, told) in [(why.clone(), LastTerm::Closed), (TermEnd::Died { at_ms: 0 }, LastTerm::Died)] {
            let (world, folder, gun) =
                (World::after("node-8").await, TempDir::new("shots"), Comes::to(Shooting::Stopped));
            let last = world.line().await.office.terms.get(world.last).unwrap().clone();
            world.note_last(last.ended(end)).await;
            let began = Instant::now();
            let (_candidacy, leadership) = standing(&world, &folder, gun.clone(), then).await.await.unwrap();
            assert_eq!((leadership.last_term(), world.result().await, gun.count()), (told, None, 0), "{then:?}");
            assert!(began.elapsed() < TTL / 3, "{:?}", began.elapsed());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_paused_while_it_stops_the_last_leader_does_not_lead_and_begins_anew_when_it_may() {
    let (world, folder) = (World::after("node-4").await, TempDir::new("shots"));
    let gun = Shared(Arc::new(Gun { held: Some(Notify::new()), ..Gun::default() }));
    let standing = standing(&world, &folder, gun.clone(), OnFailure::Refuse).await;
    let fired = |attempt: u32| {
        let gun = gun.clone();
        async move || gun.0.shots.lock().unwrap().last() == Some(&("node-4".to_owned(), attempt))
    };
    until(fired(1)).await;
    let (operator, resuming) = (world.election().await.operator(), world.election().await.operator());
    let pausing = tokio::spawn(async move { operator.pause(TTL * 10).await });
    until(async || world.line().await.office.paused.is_some()).await;
    // A shot that is under way is not cut off by it.
    gun.0.held.as_ref().unwrap().notify_one();
    pausing.await.unwrap().unwrap();
    assert!(world.line().await.entries.is_empty());
    tokio::time::sleep(TTL * 3).await;
    assert!(!standing.is_finished());
    assert_eq!(world.result().await, Some(ShotResult::Claimed), "it may have been fired");
    resuming.resume(TTL).await.unwrap();
    until(fired(2)).await;
    gun.0.held.as_ref().unwrap().notify_one();
    assert_eq!(in_office(&world, standing).await, (LastTerm::Fenced, ShotResult::Stopped));
}

#[tokio::test(start_paused = true)]
async fn the_next_in_line_after_one_that_died_with_its_shot_under_way_counts_on_from_it() {
    let (world, folder) = (World::after("node-5").await, TempDir::new("shots"));
    let held = Shared(Arc::new(Gun { held: Some(Notify::new()), ..Gun::default() }));
    let first = standing(&world, &folder, held.clone(), OnFailure::Refuse).await;
    until(async || !held.0.shots.lock().unwrap().is_empty()).await;
    let gun = Comes::to(Shooting::Stopped);
    let next = standing(&world, &folder, gun.clone(), OnFailure::Refuse).await;
    until(async || world.line().await.entries.len() == 2).await;
    first.abort();
    assert_eq!(in_office(&world, next).await, (LastTerm::Fenced, ShotResult::Stopped));
    let attempts: Vec<u32> = gun.shots.lock().unwrap().iter().map(|(_, attempt)| *attempt).collect();
    assert_eq!(attempts, [2], "the first one may have been fired");
    assert_eq!(world.shot().await.unwrap().attempt, 2);
}

#[tokio::test(start_paused = true)]
async fn the_delay_before_a_shot_is_the_grace_and_two_renewal_intervals() {
    let (world, folder, gun) = (World::after("node-6").await, TempDir::new("shots"), Comes::to(Shooting::Stopped));
    let began = Instant::now();
    let standing = standing(&world, &folder, gun.clone(), OnFailure::Refuse).await;
    in_office(&world, standing).await;
    let (delay, waited) = (TTL / 5 + TTL / 3 * 2, gun.shots.lock().unwrap()[0].0 - began);
    assert!(delay <= waited && waited < delay + Duration::from_secs(1), "{waited:?}");
}
