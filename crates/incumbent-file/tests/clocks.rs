//! Clients whose clock is not the host's: what rivals know of each other's silence does not depend
//! on it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test speaks by panicking")]

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use incumbent::Client;
use incumbent_file::FileStore;
use incumbent_store::{Alarm, BootClock, Clock, Timestamp};

mod dirs;

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
    let dir = dirs::TempDir::new();
    let stand = async |name: &str| {
        let store = FileStore::open(dir.path().join("store")).unwrap();
        let client = Client::builder().ttl(TTL).clock(Arc::new(Ahead)).with_store(store).await.unwrap();
        client.election("e").unwrap().candidate(name).stand().await.unwrap()
    };
    let mut first = stand("first").await;
    let office = first.elected().await.unwrap().unwrap();
    let mut second = stand("second").await;
    // Whoever took the leader for silent would remove it at once.
    tokio::time::timeout(Duration::from_millis(500), second.elected()).await.unwrap_err();
    office.check().unwrap();
    office.resign().await.unwrap();
    second.elected().await.unwrap().unwrap().check().unwrap();
}
