//! An heir that gets ready: what its program does there stops no other candidacy, and is not undone
//! while the office may still come.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test speaks by panicking")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use incumbent::store::TokioClock;
use incumbent::store::memory::{MemoryStore, Shape};
use incumbent::{Client, LossReason, OperatorError};
use incumbent_testkit::patience::within;

/// So long that a busy machine costs nobody an office.
const TTL: Duration = Duration::from_secs(300);

async fn client(store: &MemoryStore) -> Client {
    Client::builder().ttl(TTL).with_store(store.clone()).await.unwrap()
}

/// A client leads in one election, and is asked to take over in another: for that it calls `hook`,
/// which makes no future. As soon as that has begun, it gives up its office.
async fn another_office_is_given_up_while(hook: impl Fn() + Send + Sync + 'static) {
    let store = MemoryStore::with_clock(Shape::FAIR, Arc::new(incumbent::store::BootClock));
    let leader = client(&store).await;
    let mut leads = leader.election("e").unwrap().candidate("a").stand().await.unwrap();
    let _office = leads.elected().await.unwrap().unwrap();
    let both = client(&store).await;
    let mut other = both.election("other").unwrap().candidate("b").stand().await.unwrap();
    let office = other.elected().await.unwrap().unwrap();
    let (begins, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let heir = both.election("e").unwrap().candidate("b").ready_hook(move |_| {
        begins.send(()).unwrap();
        hook();
        async { Ok::<_, String>(()) }
    });
    let _heir = heir.stand().await.unwrap();
    let operator = leader.election("e").unwrap().operator();
    let transfer = tokio::spawn(async move { operator.transfer("b", TTL).await });
    within(begun.recv()).await.unwrap();
    within(office.resign()).await.unwrap();
    within(other.elected()).await.unwrap().unwrap();
    transfer.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_ready_hook_that_panics_stops_no_other_candidacy() {
    another_office_is_given_up_while(|| panic!("a test wanted a panic here")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_ready_hook_that_blocks_stops_no_other_candidacy() {
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    another_office_is_given_up_while(move || assert!(released.lock().unwrap().recv().is_err())).await;
    drop(release);
}

/// What was got ready, with a word when it is undone.
struct Ready(Arc<AtomicBool>);

impl Drop for Ready {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A leader that has begun to stop its work hands over all the same.
#[tokio::test(start_paused = true)]
async fn what_an_heir_got_ready_is_kept_when_the_operators_time_ends_while_the_leader_stops() {
    let store = MemoryStore::with_clock(Shape::FAIR, Arc::new(TokioClock::new()));
    let stand = async |name: &str| {
        let client = client(&store).await;
        client.election("e").unwrap().candidate(name)
    };
    let mut leads = stand("a").await.stand().await.unwrap();
    let office = leads.elected().await.unwrap().unwrap();
    let undone = Arc::new(AtomicBool::new(false));
    let gets = undone.clone();
    let heir = stand("b").await.ready_hook(move |_| {
        let ready = Ready(gets.clone());
        async move { Ok::<_, String>(ready) }
    });
    let mut heir = heir.stand().await.unwrap();
    let operator = client(&store).await.election("e").unwrap().operator();
    let transfer = operator.transfer("b", Duration::from_secs(1)).await;
    assert!(matches!(transfer, Err(OperatorError::TimedOut { .. })), "{transfer:?}");
    assert_eq!(office.stopping().await.reason(), LossReason::Transferred);
    // For longer than an heir waits that is told nothing before it looks for itself.
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(!undone.load(Ordering::SeqCst));
    office.resign().await.unwrap();
    assert!(heir.elected().await.unwrap().unwrap().was_ready());
}
