//! What networks and servers do to a store: the suite of all stores, on a server and through a
//! pooler.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use incumbent_postgres::PostgresStore;
use incumbent_store::{ElectionName, Session, Store};
use incumbent_testkit::hostile::{Case, Exception, Host, stand_in_line};
use incumbent_testkit::servers::{PgBouncer, PostgresServer, WallClock};

/// One server, with a pooler before it or without.
struct Postgres<const POOLED: bool> {
    pooler: Option<PgBouncer>,
    server: PostgresServer,
    wall_clock: WallClock,
    /// Sessions of a crowd: its entries stay as long as they do.
    crowd: Mutex<Vec<Arc<dyn Session>>>,
}

impl<const POOLED: bool> Host for Postgres<POOLED> {
    const EXCEPTIONS: &'static [Exception] = &[
        Exception::at_times(
            Case::HungEndpoint,
            "one database has one server that can be written to; several addresses are for finding it, one after \
                  the other",
        ),
        Exception::new(
            Case::OutOfSpace,
            "its servers end when they cannot write their log, and begin again when they can",
        ),
        Exception::new(
            Case::WallClock,
            "sessions end by the server's wall clock, which is the only one that all connections share: set it \
                  forward, and they have ended",
        ),
    ];
    const TTL: Duration = Duration::from_secs(4);

    async fn start() -> Postgres<POOLED> {
        let wall_clock = WallClock::new();
        let mut server = PostgresServer::start_with(&["fsync=off"]).await;
        server.set_environment(wall_clock.environment());
        server.restart().await;
        let pooler = if POOLED {
            // By itself it would let everybody wait for 15 s after a dial that failed.
            Some(PgBouncer::start_with(&server, 4, &["server_login_retry = 1"]).await)
        } else {
            None
        };
        Postgres { pooler, server, wall_clock, crowd: Mutex::default() }
    }

    fn addresses(&self) -> Vec<String> {
        vec![self.pooler.as_ref().map_or_else(|| self.server.endpoint(), PgBouncer::endpoint)]
    }

    fn store(&self, addresses: &[String]) -> Option<Arc<dyn Store>> {
        let url = format!("postgres://postgres@{}/postgres", addresses.join(","));
        Some(Arc::new(PostgresStore::from_url(&url).unwrap()))
    }

    async fn crowd(&self, election: &ElectionName, count: usize) {
        let crowd = stand_in_line(&*self.store(&[self.server.endpoint()]).unwrap(), election, count).await;
        self.crowd.lock().unwrap().extend(crowd);
    }

    async fn restart_with_less(&mut self) -> bool {
        self.server.configure("max_connections=20");
        self.server.restart().await;
        true
    }

    async fn set_wall_clock(&mut self, seconds_off: i64) -> bool {
        self.wall_clock.set(seconds_off);
        true
    }
}

incumbent_testkit::hostile!(store, Postgres<false>);
incumbent_testkit::hostile!(pooled, Postgres<true>);
