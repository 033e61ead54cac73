//! What networks and servers do to a store: the suite of all stores.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use incumbent_redis::RedisStore;
use incumbent_store::{ElectionName, Session, Store};
use incumbent_testkit::hostile::{Case, Exception, Host, stand_in_line};
use incumbent_testkit::servers::{RedisServer, WallClock};

/// One server that keeps what it was told.
struct Redis {
    server: RedisServer,
    wall_clock: WallClock,
    /// Sessions of a crowd: its entries stay as long as they do.
    crowd: Mutex<Vec<Arc<dyn Session>>>,
}

impl Host for Redis {
    const EXCEPTIONS: &'static [Exception] = &[Exception::new(
        Case::HungEndpoint,
        "one server has one address; with several there are Sentinels, which say where the server is",
    )];
    const TTL: Duration = Duration::from_secs(4);

    async fn start() -> Redis {
        let wall_clock = WallClock::new();
        let mut server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
        server.set_environment(wall_clock.environment());
        server.restart().await;
        Redis { server, wall_clock, crowd: Mutex::default() }
    }

    fn addresses(&self) -> Vec<String> {
        vec![self.server.endpoint()]
    }

    fn store(&self, addresses: &[String]) -> Option<Arc<dyn Store>> {
        let [address] = addresses else { return None };
        Some(Arc::new(RedisStore::from_url(&format!("redis://{address}")).unwrap()))
    }

    async fn crowd(&self, election: &ElectionName, count: usize) {
        let crowd = stand_in_line(&*self.store(&self.addresses()).unwrap(), election, count).await;
        self.crowd.lock().unwrap().extend(crowd);
    }

    async fn restart_with_less(&mut self) -> bool {
        self.server.configure(&["--maxclients", "32"]);
        self.server.restart().await;
        true
    }

    async fn fill(&mut self) -> bool {
        self.server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
        true
    }

    async fn make_room(&mut self) {
        self.server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    }

    async fn set_wall_clock(&mut self, seconds_off: i64) -> bool {
        self.wall_clock.set(seconds_off);
        true
    }
}

incumbent_testkit::hostile!(store, Redis);
