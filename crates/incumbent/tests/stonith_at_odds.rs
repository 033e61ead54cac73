//! Stopping the last leader from outside, where something comes in between: a shot that blocks its
//! thread, an operator. In a process of its own: a process fires three shots in an hour.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test speaks by panicking")]

mod stonith_world;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use incumbent::fence::BoxFuture;
use incumbent::store::{Line, Store};
use incumbent::{OperatorError, Shooter, Shooting, ShotResult, Stonith, Target};
use stonith_world::{Gun, Shared, TTL, World, until};
use tokio::sync::Notify;

/// Blocks its thread until it is told to go on: it can be given up, but not dropped.
#[derive(Debug, Clone, Default)]
struct Blocking {
    begun: Arc<AtomicU32>,
    goes_on: Arc<(Mutex<bool>, Condvar)>,
}

impl Blocking {
    fn let_go(&self) {
        *self.goes_on.0.lock().unwrap() = true;
        self.goes_on.1.notify_all();
    }
}

/// Lets it go on however the test ends: the runtime waits for its threads.
struct LetGo(Blocking);

impl Drop for LetGo {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

impl Shooter for Blocking {
    fn shoot<'a>(&'a self, _: &'a Target) -> BoxFuture<'a, Shooting> {
        Box::pin(async move {
            self.begun.fetch_add(1, Ordering::SeqCst);
            let (told, changed) = &*self.goes_on;
            drop(changed.wait_while(told.lock().unwrap(), |told| !*told).unwrap());
            Shooting::Stopped
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_shot_is_fired_beside_one_that_blocks_its_thread() {
    let world = World::after("node-6").await;
    let gun = Blocking::default();
    let _let_go = LetGo(gun.clone());
    let short = Duration::from_millis(1);
    let candidate = async |name: &'static str| {
        let stonith = Stonith::new(gun.clone(), ["node-6"]).delay(short);
        world.election().await.candidate(name).stonith(stonith)
    };
    let first = tokio::spawn(candidate("b").await.stand());
    while gun.begun.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    // It leaves, and another candidate of this process comes.
    first.abort();
    let second = tokio::spawn(candidate("c").await.stand());
    let is_told =
        async || world.shot().await.is_some_and(|shot| shot.attempt == 2 && shot.result != ShotResult::Claimed);
    while gun.begun.load(Ordering::SeqCst) == 1 && !is_told().await {
        tokio::task::yield_now().await;
    }
    assert_eq!(gun.begun.load(Ordering::SeqCst), 1, "not beside the first");
    let shot = world.shot().await.unwrap();
    assert_eq!((shot.attempt, shot.result), (2, ShotResult::Failed));
    assert!(shot.order.reason.contains("has not ended"), "{shot:?}");
    second.abort();
}

#[tokio::test(start_paused = true)]
async fn one_that_is_stopping_the_last_leader_is_neither_asked_to_resign_nor_deposed_by_the_way() {
    let world = World::after("node-7").await;
    let gun = Shared(Arc::new(Gun { held: Some(Notify::new()), ..Gun::default() }));
    let candidate = world.election().await.candidate("b").stonith(Stonith::new(gun.clone(), ["node-7"]));
    let _standing = tokio::spawn(candidate.stand());
    until(async || !gun.0.shots.lock().unwrap().is_empty()).await;
    let operator = world.election().await.operator();
    let line: Line = world.store.line(&world.name, 1).await.unwrap();
    let head = line.entries[0].token;
    let refused = operator.resign(TTL).await;
    assert!(matches!(refused, Err(OperatorError::Fencing { token, last: Some(_) }) if token == head), "{refused:?}");
    let refused = operator.depose(None, TTL).await;
    assert!(matches!(refused, Err(OperatorError::Fencing { token, last: Some(_) }) if token == head), "{refused:?}");
    let line: Line = world.store.line(&world.name, 1).await.unwrap();
    assert_eq!((line.entries.len(), line.office.handover, line.office.deposed), (1, None, None), "nothing is written");
    // An operator that names it knows what it is at.
    assert_eq!(operator.depose(Some(head), TTL).await.unwrap(), head);
}
