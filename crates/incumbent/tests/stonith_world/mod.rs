//! An election whose last leader did not close its term, and what stops it.

#![allow(dead_code, reason = "no test needs all of it")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use incumbent::fence::BoxFuture;
use incumbent::store::memory::{MemoryStore, Shape};
use incumbent::store::{Cas, Clock, ElectionName, Incarnation, Line, Office, Store, TokioClock};
use incumbent::{Client, Election, Origin, Shooter, Shooting, Shot, ShotResult, Target, TermRecord, Terms, Token};
use tokio::sync::Notify;

pub(crate) const TTL: Duration = Duration::from_secs(15);

/// Notes what it is called with, and does what it is told.
#[derive(Debug, Default)]
pub(crate) struct Gun {
    pub(crate) shots: Mutex<Vec<(String, u32)>>,
    pub(crate) dropped: AtomicU32,
    /// It ends when this comes, if anything.
    pub(crate) held: Option<Notify>,
    pub(crate) fails: bool,
}

struct Dropped<'a>(&'a AtomicU32);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Shared(pub(crate) Arc<Gun>);

impl Shooter for Shared {
    fn shoot<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Shooting> {
        Box::pin(async move {
            self.0.shots.lock().unwrap().push((target.name.to_string(), target.attempt));
            let _dropped = Dropped(&self.0.dropped);
            if let Some(held) = &self.0.held {
                held.notified().await;
            }
            if self.0.fails { Shooting::Failed("it is\nlocked".into()) } else { Shooting::Stopped }
        })
    }
}

/// An election whose last leader, on this host, did not close its term.
pub(crate) struct World {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) name: ElectionName,
    pub(crate) clock: Arc<dyn Clock>,
    /// The token of that leader, and its host.
    pub(crate) last: Token,
    pub(crate) host: String,
}

impl World {
    pub(crate) async fn after(host: &str) -> World {
        World::with_clock(Arc::new(TokioClock::new()), host, 1).await
    }

    /// One on another store, by the same clock, whose last leader had this token on the same host.
    pub(crate) async fn other(&self, last: u64) -> World {
        World::with_clock(self.clock.clone(), &self.host, last).await
    }

    async fn with_clock(clock: Arc<dyn Clock>, host: &str, last: u64) -> World {
        let store = Arc::new(MemoryStore::with_clock(Shape::FAIR, clock.clone()));
        let world = World {
            store,
            name: ElectionName::new("jobs").unwrap(),
            clock,
            last: Token::new(last).unwrap(),
            host: host.into(),
        };
        let origin = Origin::new(host, "another boot", "");
        world.note_last(TermRecord::open(world.last, Incarnation::from_bits(1), "a".into(), origin)).await;
        world
    }

    /// Writes this down as the last term, whatever was said of it before.
    pub(crate) async fn note_last(&self, last: TermRecord) {
        let before = self.line().await.office.version;
        let office = Office::default().with_terms(Terms::default().with(last));
        assert_eq!(self.store.set_office(&self.name, before, &office).await.unwrap(), Cas::Done);
    }

    pub(crate) async fn election(&self) -> Election {
        let builder = Client::builder().ttl(TTL).clock(self.clock.clone());
        builder.with_store(self.store.clone()).await.unwrap().election("jobs").unwrap()
    }

    pub(crate) async fn line(&self) -> Line {
        self.store.line(&self.name, 10).await.unwrap()
    }

    /// The shot at the last leader, as it is on record.
    pub(crate) async fn shot(&self) -> Option<Shot> {
        self.line().await.office.terms.get(self.last).unwrap().fence.clone()
    }

    /// What is on record of the shot at the last leader.
    pub(crate) async fn result(&self) -> Option<ShotResult> {
        self.shot().await.map(|shot| shot.result)
    }
}

/// Waits in virtual time, and not for ever.
pub(crate) async fn until(so: impl AsyncFn() -> bool) {
    for _ in 0..5000 {
        if so().await {
            return;
        }
        tokio::time::sleep(TTL / 50).await;
    }
    panic!("it never is so");
}
