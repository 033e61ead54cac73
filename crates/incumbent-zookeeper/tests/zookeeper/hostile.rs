//! What networks and servers do to a store: the suite of all stores.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::try_join_all;
use incumbent_store::{ElectionName, Store};
use incumbent_testkit::hostile::{Case, Exception, Host};
use incumbent_testkit::servers::{WallClock, ZooKeeperEnsemble};
use incumbent_zookeeper::zookeeper_client::{Acls, Client, CreateMode};
use incumbent_zookeeper::{ZooKeeperOptions, ZooKeeperStore};

use crate::harness::{TICK, raw, unique};

/// One server.
struct ZooKeeper {
    server: ZooKeeperEnsemble,
    wall_clock: WallClock,
    /// Clients of a crowd: its nodes stay as long as they do.
    crowd: Mutex<Vec<Client>>,
}

/// So many are put in line at a time.
const AT_ONCE: usize = 500;

impl Host for ZooKeeper {
    const EXCEPTIONS: &'static [Exception] = &[
        Exception::at_times(
            Case::HungEndpoint,
            "a client takes two fifths of the session's timeout to find that its server is silent, and as long \
                  again to be heard by another; a renewal proves the one before it, so the deadline comes first",
        ),
        Exception::new(
            Case::OutOfSpace,
            "its servers end when they cannot write their log, and leave a cluster without them",
        ),
    ];
    const TTL: Duration = Duration::from_secs(6);

    async fn start() -> ZooKeeper {
        let wall_clock = WallClock::new();
        let server = ZooKeeperEnsemble::builder().environment(wall_clock.environment()).start(1).await;
        ZooKeeper { server, wall_clock, crowd: Mutex::default() }
    }

    fn addresses(&self) -> Vec<String> {
        self.server.endpoints()
    }

    fn store(&self, addresses: &[String]) -> Option<Arc<dyn Store>> {
        // A store that is not told the tick asks for it, with sessions so short that a slow server
        // cannot answer in time.
        let options = ZooKeeperOptions::new().tick(TICK);
        Some(Arc::new(ZooKeeperStore::connect(addresses, &options).unwrap()))
    }

    /// As the store makes them: read back one by one while they are made, they would take minutes.
    async fn crowd(&self, election: &ElectionName, count: usize) {
        let client = raw(&self.server.endpoints()).await;
        let mode = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let create = async |_| {
            let path = format!("/{election}/incumbent-{:016x}{:016x}-", unique(), unique());
            client.create(&path, b"value", &mode).await.map(|_| ())
        };
        let numbers: Vec<_> = (0..count).collect();
        for numbers in numbers.chunks(AT_ONCE) {
            try_join_all(numbers.iter().map(create)).await.unwrap();
        }
        self.crowd.lock().unwrap().push(client);
    }

    /// Sessions last half as long at most.
    async fn restart_with_less(&mut self) -> bool {
        self.server.node(0).configure("maxSessionTimeout=3000");
        self.server.node(0).restart().await;
        true
    }

    async fn set_wall_clock(&mut self, seconds_off: i64) -> bool {
        self.wall_clock.set(seconds_off);
        true
    }
}

incumbent_testkit::hostile!(store, ZooKeeper);
