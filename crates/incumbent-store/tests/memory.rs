//! What the memory store does beyond the seam: it expires by itself, wakes no herd, and leaves
//! nothing behind.

#![allow(clippy::unwrap_used, reason = "a test speaks by panicking")]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use incumbent_store::memory::{MemoryStore, Shape};
use incumbent_store::{
    Cas, ElectionName, Ended, Head, Held, Incarnation, NewEntry, Nonce, Office, Place, Seen, Session, Store,
    StoreError, TokenStrength, TokioClock, Version, Watched,
};
use tokio::time::Instant;

const TTL: Duration = Duration::from_secs(10);

fn virtual_store(shape: Shape) -> MemoryStore {
    MemoryStore::with_clock(shape, Arc::new(TokioClock::new()))
}

fn election(name: &str) -> ElectionName {
    ElectionName::new(name).unwrap()
}

fn entry(number: u128) -> NewEntry {
    NewEntry::new(Incarnation::from_bits(number), "node", "value")
}

async fn stand(session: &Arc<dyn Session>, name: &str, number: u128) -> Held {
    match session.enlist(&election(name), &entry(number)).await.unwrap().place {
        Place::Leading(held) | Place::Behind { held: Some(held), .. } => held,
        place => panic!("not in line: {place:?}"),
    }
}

/// Counts how often it was woken.
#[derive(Default)]
struct WakeCounter(AtomicUsize);

impl Wake for WakeCounter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn alive_tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

async fn no_task_is_left() {
    for _ in 0..1000 {
        if alive_tasks() == 0 {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("{} tasks are left", alive_tasks());
}

fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test(start_paused = true)]
async fn a_follower_is_woken_when_the_leader_falls_silent_though_nobody_calls_the_store() {
    let store = virtual_store(Shape::FAIR);
    let began = Instant::now();
    let leader = store.open_session(TTL).await.unwrap();
    let held = stand(&leader, "a", 1).await;
    drop(leader);
    let seen = store.line(&election("a"), 1).await.unwrap();
    assert_eq!(seen.seen().head, Head::Is(held.entry));
    let calls = store.calls();
    let wake = store.watch(&election("a"), &seen.seen(), seen.cursor);
    assert_eq!(store.watches(), 1);
    wake.await.unwrap();
    assert!(began.elapsed() >= TTL);
    assert_eq!(store.calls(), calls + 1, "the watch itself");
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_session_that_expires_before_the_others_is_removed_in_time() {
    let store = virtual_store(Shape::FAIR);
    let long = store.open_session(100 * TTL).await.unwrap();
    stand(&long, "long", 1).await;
    tokio::task::yield_now().await;
    let short = store.open_session(TTL).await.unwrap();
    stand(&short, "short", 2).await;
    let began = Instant::now();
    let seen = store.line(&election("short"), 1).await.unwrap();
    store.watch(&election("short"), &seen.seen(), seen.cursor).await.unwrap();
    assert!(began.elapsed() >= TTL && began.elapsed() < 2 * TTL, "{:?}", began.elapsed());
    assert!(matches!(short.renew(&[]).await, Err(StoreError::SessionGone)));
    assert!(long.renew(&[]).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_renewed_session_stays() {
    let store = virtual_store(Shape::FAIR);
    let session = store.open_session(TTL).await.unwrap();
    let held = [stand(&session, "a", 1).await];
    for _ in 0..10 {
        tokio::time::advance(TTL * 9 / 10).await;
        assert_eq!(session.renew(&held).await.unwrap().gone, []);
    }
    assert!(matches!(session.standing(&held[0], None).await.unwrap().place, Place::Leading(_)));
}

#[tokio::test(start_paused = true)]
async fn a_tombstone_goes_by_itself_and_its_watchers_are_told() {
    for shape in [Shape::FAIR, Shape::OBSERVED] {
        let store = virtual_store(shape);
        let office = Office::default().with_ended(Ended::new(Nonce(1), TTL));
        assert_eq!(store.set_office(&election("a"), Version::NONE, &office).await.unwrap(), Cas::Done);
        let seen = store.line(&election("a"), 1).await.unwrap();
        store.watch(&election("a"), &Seen::new(seen.office.version), seen.cursor).await.unwrap();
        assert!(store.is_empty(), "{shape:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_ten_thousand_followers_the_one_behind_the_entry_that_left_is_woken() {
    const FOLLOWERS: usize = 10_000;
    let store = virtual_store(Shape::FAIR);
    let mut line = Vec::new();
    for number in 0..FOLLOWERS {
        let session = store.open_session(TTL).await.unwrap();
        let held = stand(&session, "a", number as u128).await;
        line.push((session, held));
    }
    let cursor = store.line(&election("a"), 0).await.unwrap().cursor;
    let counters: Vec<_> = line.iter().map(|_| Arc::new(WakeCounter::default())).collect();
    let mut watches: Vec<_> = line
        .windows(2)
        .map(|pair| {
            let [ahead, own] = pair else { unreachable!() };
            let mut watched = Watched::new(own.1.clone(), Version::NONE);
            watched.ahead = Some(ahead.1.entry.clone());
            own.0.watch(&watched, cursor)
        })
        .collect();
    for (watch, counter) in watches.iter_mut().zip(&counters[1..]) {
        let waker = Waker::from(counter.clone());
        assert!(watch.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    assert_eq!(store.watches(), FOLLOWERS - 1);
    let middle = FOLLOWERS / 2;
    // Its own watch is dropped first, as its candidate does when it leaves: what is left is the one
    // that follows it.
    drop(watches.remove(middle - 1));
    line[middle].0.withdraw(&line[middle].1, None).await.unwrap();
    let woken: Vec<_> = (0..FOLLOWERS).filter(|number| counters[*number].0.load(Ordering::Relaxed) > 0).collect();
    assert_eq!(woken, [middle + 1]);
    assert_eq!(store.wakes(), 1);
    drop(watches);
    assert_eq!(store.watches(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_watch_is_forgotten_whether_or_not_it_was_polled() {
    let store = virtual_store(Shape::FAIR);
    let session = store.open_session(TTL).await.unwrap();
    let held = stand(&session, "a", 1).await;
    let seen = store.line(&election("a"), 1).await.unwrap();
    let unpolled = session.watch(&Watched::new(held, Version::NONE), seen.cursor);
    let mut polled = store.watch(&election("a"), &seen.seen(), seen.cursor);
    assert!(poll_once(&mut polled).is_pending());
    assert_eq!(store.watches(), 2);
    drop((unpolled, polled));
    assert_eq!(store.watches(), 0);
    session.close().await.unwrap();
    assert_eq!(store.wakes(), 0);
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_before_an_election_was_forgotten_and_held_again_is_told() {
    let store = virtual_store(Shape::FAIR);
    let session = store.open_session(TTL).await.unwrap();
    let deposed = Office::default().with_deposed(incumbent_store::Token::new(1).map(incumbent_store::Deposed::new));
    store.set_office(&election("a"), Version::NONE, &deposed).await.unwrap();
    let seen = store.line(&election("a"), 1).await.unwrap();
    store.set_office(&election("a"), seen.office.version, &Office::default()).await.unwrap();
    stand(&session, "a", 1).await;
    assert!(poll_once(store.watch(&election("a"), &Seen::new(seen.office.version), seen.cursor)).is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_store_without_watches_never_wakes_and_holds_nothing_for_those_who_ask() {
    let store = virtual_store(Shape::SINGLE);
    let session = store.open_session(TTL).await.unwrap();
    let held = stand(&session, "a", 1).await;
    let mut watch = session.watch(&Watched::new(held.clone(), Version::NONE), Default::default());
    assert_eq!(store.watches(), 0);
    session.withdraw(&held, None).await.unwrap();
    assert!(poll_once(&mut watch).is_pending());
    assert_eq!(store.wakes(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_observed_session_that_was_dropped_goes_with_its_last_entry() {
    let store = virtual_store(Shape::OBSERVED);
    let session = store.open_session(TTL).await.unwrap();
    stand(&session, "a", 1).await;
    drop(session);
    tokio::time::advance(100 * TTL).await;
    let seen = store.line(&election("a"), 2).await.unwrap().entries;
    assert_eq!(seen.len(), 1, "nothing expires by itself");
    assert_eq!(store.evict(&election("a"), &seen[0]).await.unwrap(), Cas::Done);
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_store_ends_its_expiry_task() {
    let store = virtual_store(Shape::FAIR);
    drop(store.open_session(TTL).await.unwrap());
    let session = store.open_session(TTL).await.unwrap();
    stand(&session, "a", 1).await;
    assert_eq!(alive_tasks(), 1);
    drop((store, session));
    no_task_is_left().await;
}

#[tokio::test(start_paused = true)]
async fn the_expiry_task_ends_when_nothing_can_expire_and_starts_again_when_something_can() {
    let store = virtual_store(Shape::FAIR);
    for _ in 0..3 {
        drop(stand(&store.open_session(TTL).await.unwrap(), "a", 1).await);
        assert_eq!(alive_tasks(), 1);
        tokio::time::sleep(TTL).await;
        no_task_is_left().await;
        assert!(store.is_empty());
    }
}

#[test]
fn a_store_outlives_the_runtime_that_its_expiry_task_ran_in() {
    let store = MemoryStore::new(Shape::FAIR);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let session = runtime().block_on(store.open_session(100 * TTL)).unwrap();
    let held = runtime().block_on(async {
        let held = stand(&session, "a", 1).await;
        let brief = store.open_session(Duration::from_millis(5)).await.unwrap();
        stand(&brief, "b", 2).await;
        let seen = store.line(&election("b"), 1).await.unwrap();
        store.watch(&election("b"), &seen.seen(), seen.cursor).await.unwrap();
        held
    });
    assert!(matches!(runtime().block_on(session.standing(&held, None)).unwrap().place, Place::Leading(_)));
}

#[tokio::test(start_paused = true)]
async fn every_store_has_its_own_identity_and_says_what_it_can_keep() {
    let stores = Shape::ALL.map(virtual_store);
    for (store, shape) in stores.iter().zip(Shape::ALL) {
        let promises = store.promises().await.unwrap();
        assert_eq!(promises.tokens, TokenStrength::Process);
        assert_eq!(
            (promises.line, promises.watches, promises.forgotten_by),
            (shape.line, shape.watches, shape.forgotten_by)
        );
        let session = store.open_session(TTL).await.unwrap();
        assert_eq!(session.store_id(), promises.store);
        assert_eq!(session.liveness().forgotten_by, shape.forgotten_by);
    }
    let mut ids: Vec<_> = Vec::new();
    for store in &stores {
        ids.push(store.promises().await.unwrap().store);
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), Shape::ALL.len());
}
