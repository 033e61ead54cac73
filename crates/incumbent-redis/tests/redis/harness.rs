//! Servers for the tests: one that all share, and servers of a test's own.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use incumbent_redis::RedisStore;
use incumbent_redis::redis::aio::MultiplexedConnection;
use incumbent_redis::redis::{self, AsyncConnectionConfig};
use incumbent_store::{ElectionName, Held, Session, Store};
pub(crate) use incumbent_testkit::candidates::{entry, held, lead};
use incumbent_testkit::conformance::{Harness, unique};
pub(crate) use incumbent_testkit::patience::{until, within};
use incumbent_testkit::servers::RedisServer;
use tokio::sync::OnceCell;

/// Long enough for a slow machine.
pub(crate) const TTL: Duration = Duration::from_secs(2);
/// So long that nothing expires while a test runs.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// A connection that waits for its answers for as long as a busy machine takes.
pub(crate) async fn connection(server: &RedisServer) -> MultiplexedConnection {
    let client = redis::Client::open(server.url()).unwrap();
    let patient = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
    client.get_multiplexed_async_connection_with_config(&patient).await.unwrap()
}

/// The server that tests share which leave it as it is.
pub(crate) async fn shared() -> &'static RedisServer {
    static SERVER: OnceCell<RedisServer> = OnceCell::const_new();
    SERVER.get_or_init(RedisServer::start).await
}

/// Stores with keys of their own, each with connections of its own.
pub(crate) struct Redis {
    url: String,
    prefix: String,
    stores: Mutex<Vec<RedisStore>>,
}

impl Redis {
    pub(crate) fn on(server: &RedisServer) -> Redis {
        Redis::at(&server.endpoint())
    }

    /// At `host:port`.
    pub(crate) fn at(endpoint: &str) -> Redis {
        let prefix = format!("test-{:016x}", unique());
        Redis { url: format!("redis://{endpoint}?prefix={prefix}"), prefix, stores: Mutex::default() }
    }

    /// The same keys, at another address.
    pub(crate) fn moved_to(&self, endpoint: &str) -> Redis {
        let url = format!("redis://{endpoint}?prefix={}", self.prefix);
        Redis { url, prefix: self.prefix.clone(), stores: Mutex::default() }
    }

    pub(crate) fn open(&self) -> RedisStore {
        let store = RedisStore::from_url(&self.url).unwrap();
        self.stores.lock().unwrap().push(store.clone());
        store
    }

    /// One of our keys.
    pub(crate) fn key(&self, key: &str) -> String {
        format!("{{{}}}:{key}", self.prefix)
    }
}

impl Harness for Redis {
    async fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.open())
    }

    fn ttl(&self) -> Duration {
        TTL
    }

    fn watches(&self) -> Option<usize> {
        Some(self.stores.lock().unwrap().iter().map(RedisStore::watches).sum())
    }

    fn histories(&self) -> u32 {
        200
    }
}

/// The file to which the server appends, if it has written to one.
pub(crate) fn appended(server: &RedisServer) -> PathBuf {
    let folder = server.scratch().path().join("appendonlydir");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files.filter(|path| path.to_string_lossy().ends_with(".incr.aof")).max().unwrap()
}

/// Enlists once that is possible, and keeps the session alive until then.
pub(crate) async fn enlisted(session: &dyn Session) -> Held {
    let mut place = None;
    until("it is in line", async || {
        session.renew(&[]).await.unwrap();
        place = session.enlist(&jobs(), &entry(4)).await.ok().map(|standing| held(&standing));
        place.is_some()
    })
    .await;
    place.unwrap()
}

/// The library on a store.
pub(crate) async fn client(store: &RedisStore) -> incumbent::Client {
    incumbent::Client::builder().ttl(TTL).with_store(store.clone()).await.unwrap()
}

pub(crate) fn jobs() -> ElectionName {
    named("jobs/nightly")
}

pub(crate) fn named(election: &str) -> ElectionName {
    ElectionName::new(election).unwrap()
}
