//! Stopping the last leader from outside, through the library: in virtual time, on the memory
//! store.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test speaks by panicking")]

mod stonith_world;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use incumbent::{OnFailure, OperatorError, Pending, ShotResult, Stonith, Token};
use incumbent_testkit::TempDir;
use stonith_world::{Gun, Shared, TTL, World, until};
use tokio::sync::Notify;

#[tokio::test(start_paused = true)]
async fn a_command_slower_than_the_ttl_is_run_once_and_the_office_comes_after_it() {
    let world = World::after("node-1").await;
    let gun = Shared(Arc::new(Gun { held: Some(Notify::new()), ..Gun::default() }));
    let election = world.election().await;
    let candidate = election.candidate("b").stonith(Stonith::new(gun.clone(), ["node-1"]));
    let standing = tokio::spawn(candidate.stand());
    let looking = world.election().await;
    until(async || looking.status().await.unwrap().get().pending == Some(Pending::Fencing)).await;
    tokio::time::sleep(TTL * 5).await;
    let status = looking.status().await.unwrap().into_inner();
    assert_eq!((status.vacant, status.pending), (true, Some(Pending::Fencing)), "its place is kept");
    assert_eq!(world.result().await, Some(ShotResult::Claimed));
    gun.0.held.as_ref().unwrap().notify_one();
    let mut candidacy = standing.await.unwrap().unwrap();
    candidacy.elected().await.unwrap().expect("in office");
    assert_eq!(*gun.0.shots.lock().unwrap(), [("node-1".to_owned(), 1)]);
    assert_eq!(world.result().await, Some(ShotResult::Stopped));
}

/// Nothing is claimed yet. The next in line may stop nobody, and would lead at once.
#[tokio::test(start_paused = true)]
async fn one_that_waits_for_a_late_word_says_that_it_fences_and_keeps_its_place() {
    let (world, gun) = (World::after("node-6").await, Shared::default());
    // Counted by itself: the process has no more shots than the other tests take.
    let folder = TempDir::new("stonith");
    let stonith = Stonith::new(gun.clone(), ["node-6"]).delay(TTL * 10).counted_in(folder.path().join("shots"));
    let standing = tokio::spawn(world.election().await.candidate("b").stonith(stonith).stand());
    until(async || !world.line().await.entries.is_empty()).await;
    let election = world.election().await;
    let status = election.status().await.unwrap().into_inner();
    assert_eq!((status.vacant, status.pending), (true, Some(Pending::Fencing)));
    let _other = election.candidate("c").stand().await.unwrap();
    let operator = election.operator();
    let refused = [
        operator.depose(None, TTL).await.map(drop),
        operator.resign(TTL).await.map(drop),
        operator.transfer("c", TTL).await.map(drop),
    ];
    for refused in refused {
        assert!(matches!(refused, Err(OperatorError::Fencing { last: Some(_), .. })), "{refused:?}");
    }
    assert_eq!(world.result().await, None, "nothing is claimed");
    let mut candidacy = standing.await.unwrap().unwrap();
    candidacy.elected().await.unwrap().expect("in office");
    assert_eq!(world.result().await, Some(ShotResult::Stopped));
}

#[tokio::test(start_paused = true)]
async fn one_that_goes_on_anyway_leads_and_the_record_says_that_the_last_leader_was_not_stopped() {
    let world = World::after("node-2").await;
    let gun = Shared(Arc::new(Gun { fails: true, ..Gun::default() }));
    let stonith = Stonith::new(gun.clone(), ["node-2"]).on_failure(OnFailure::Anyway);
    let mut candidacy = world.election().await.candidate("b").stonith(stonith).stand().await.unwrap();
    candidacy.elected().await.unwrap().expect("in office");
    assert_eq!(gun.0.shots.lock().unwrap().len(), 1);
    let shot = world.shot().await.unwrap();
    assert_eq!((shot.result, &*shot.order.reason), (ShotResult::Failed, "it is locked"), "and why, in one line");
}

#[tokio::test(start_paused = true)]
async fn a_shot_is_dropped_when_its_candidate_leaves_and_the_claim_stays() {
    let world = World::after("node-3").await;
    let gun = Shared(Arc::new(Gun { held: Some(Notify::new()), ..Gun::default() }));
    let candidate = world.election().await.candidate("b").stonith(Stonith::new(gun.clone(), ["node-3"]));
    let standing = tokio::spawn(candidate.stand());
    until(async || !gun.0.shots.lock().unwrap().is_empty()).await;
    // Dropping the future leaves the line.
    standing.abort();
    until(async || gun.0.dropped.load(Ordering::SeqCst) > 0).await;
    assert_eq!(world.result().await, Some(ShotResult::Claimed), "it may have been fired");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_listed_is_not_shot_at_and_the_operators_word_lets_the_candidate_go_on() {
    let world = World::after("node-4").await;
    let gun = Shared::default();
    let candidate = world.election().await.candidate("b").stonith(Stonith::new(gun.clone(), ["node-5"]));
    let standing = tokio::spawn(candidate.stand());
    until(async || world.result().await == Some(ShotResult::Failed)).await;
    tokio::time::sleep(TTL * 3).await;
    let election = world.election().await;
    assert!(election.status().await.unwrap().get().vacant, "nobody leads without it");
    let operator = election.operator().by("ada@ops1").reason("switched off by hand");
    let other = operator.fenced(Token::new(7).unwrap(), TTL).await;
    assert!(matches!(other, Err(OperatorError::NotAtLarge { .. })), "{other:?}");
    operator.fenced(Token::new(1).unwrap(), TTL).await.unwrap();
    let mut candidacy = standing.await.unwrap().unwrap();
    candidacy.elected().await.unwrap().expect("in office");
    assert_eq!(world.result().await, Some(ShotResult::Released));
    assert!(gun.0.shots.lock().unwrap().is_empty());
}
