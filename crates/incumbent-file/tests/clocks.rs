//! Clients and stores whose clock is not the host's: what rivals know of each other's silence does
//! not depend on the one, and is dated by the other.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test speaks by panicking")]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use incumbent::Client;
use incumbent_file::{FileOptions, FileStore};
use incumbent_store::{
    Alarm, BootClock, Clock, ElectionName, Ended, Incarnation, NewEntry, Nonce, Office, Place, Store, Timestamp,
    Version,
};
use incumbent_testkit::TempDir;

const TTL: Duration = Duration::from_secs(60);
const DAYS: Duration = Duration::from_secs(10 * 86_400);

/// The host's clock, some days on.
#[derive(Debug)]
struct Ahead;

struct AheadAlarm(Box<dyn Alarm>);

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        BootClock.now() + DAYS
    }

    fn alarm(&self) -> io::Result<Box<dyn Alarm>> {
        Ok(Box::new(AheadAlarm(BootClock.alarm()?)))
    }
}

impl Alarm for AheadAlarm {
    fn set(&mut self, at: Option<Timestamp>) {
        self.0.set(at.map(|at| at - DAYS));
    }

    fn poll_ring(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll_ring(cx)
    }
}

#[tokio::test]
async fn a_leader_that_lives_is_not_evicted_by_one_whose_clock_is_ahead() {
    let dir = TempDir::new("file");
    let stand = async |name: &str| {
        let store = FileStore::open(dir.path().join("store")).unwrap();
        let client = Client::builder().ttl(TTL).clock(Arc::new(Ahead)).with_store(store).await.unwrap();
        client.election("e").unwrap().candidate(name).stand().await.unwrap()
    };
    let mut first = stand("first").await;
    let office = first.elected().await.unwrap().unwrap();
    let mut second = stand("second").await;
    // A candidate that took the leader for silent would remove it at once.
    tokio::time::timeout(Duration::from_millis(500), second.elected()).await.unwrap_err();
    office.check().unwrap();
    office.resign().await.unwrap();
    second.elected().await.unwrap().unwrap().check().unwrap();
}

/// A clock that a test moves by hand.
#[derive(Debug, Default)]
struct ByHand(AtomicU64);

impl ByHand {
    fn pass(&self, time: Duration) {
        self.0.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Clock for ByHand {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.0.load(Ordering::Relaxed))
    }

    fn alarm(&self) -> io::Result<Box<dyn Alarm>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[tokio::test]
async fn heartbeats_and_tombstones_are_dated_by_the_clock_that_the_store_was_given() {
    let dir = TempDir::new("file");
    let clock = Arc::new(ByHand::default());
    let path = dir.path().join("store");
    let store = FileStore::with_clock(&path, FileOptions::new(), clock.clone()).unwrap();
    let session = store.open_session(TTL).await.unwrap();
    let election = ElectionName::new("e").unwrap();
    let entry = NewEntry::new(Incarnation::from_bits(1), "node", "");
    let Place::Leading(held) = session.enlist(&election, &entry).await.unwrap().place else { panic!("nobody else") };
    let silent = async |store: &FileStore| store.line(&election, 1).await.unwrap().entries[0].observed.unwrap().silent;
    clock.pass(TTL / 4);
    assert_eq!(silent(&store).await, Some(TTL / 4));
    // A heartbeat is as old as the request for it, however late it is written.
    let renewal = session.renew(std::slice::from_ref(&held));
    clock.pass(TTL / 5);
    renewal.await.unwrap();
    assert_eq!(silent(&store).await, Some(TTL / 5));
    assert_eq!(silent(&FileStore::open(&path).unwrap()).await, None, "the host's clock is another one");
    let office = Office::default().with_ended(Ended::new(Nonce(1), TTL));
    store.set_office(&election, Version::NONE, &office).await.unwrap();
    assert!(store.line(&election, 1).await.unwrap().office.ended.is_some());
    clock.pass(TTL);
    assert_eq!(store.line(&election, 1).await.unwrap().office.ended, None);
    session.close().await.unwrap();
}
