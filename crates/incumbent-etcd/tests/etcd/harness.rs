//! Servers for the tests: one that all share, and clusters of one's own.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use etcd_client::{Client, PutOptions};
use incumbent_etcd::{EtcdOptions, EtcdStore};
use incumbent_store::{ElectionName, Entry, Held, Store};
pub(crate) use incumbent_testkit::candidates::{entry, held, lead};
use incumbent_testkit::conformance::Harness;
pub(crate) use incumbent_testkit::patience::{until, within};
use incumbent_testkit::servers::EtcdCluster;
use tokio::sync::OnceCell;

/// Long enough for a slow machine; etcd grants no less than two seconds.
pub(crate) const TTL: Duration = Duration::from_secs(4);

/// The server that tests share which leave it as it is.
pub(crate) async fn shared() -> &'static EtcdCluster {
    static CLUSTER: OnceCell<EtcdCluster> = OnceCell::const_new();
    CLUSTER.get_or_init(|| EtcdCluster::start(1)).await
}

/// Stores on a cluster, each with connections of its own.
pub(crate) struct Etcd {
    endpoints: Vec<String>,
    stores: Mutex<Vec<EtcdStore>>,
}

impl Etcd {
    pub(crate) fn on(cluster: &EtcdCluster) -> Etcd {
        Etcd { endpoints: cluster.endpoints(), stores: Mutex::default() }
    }

    pub(crate) fn open(&self) -> EtcdStore {
        let store = EtcdStore::connect(&self.endpoints, &EtcdOptions::new()).unwrap();
        self.stores.lock().unwrap().push(store.clone());
        store
    }
}

impl Harness for Etcd {
    async fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.open())
    }

    fn ttl(&self) -> Duration {
        TTL
    }

    async fn enlist_foreign(&self, election: &ElectionName, value: Bytes) -> Option<Entry> {
        let mut client = raw(&self.endpoints).await;
        let lease = client.lease_grant(600, None).await.unwrap().id();
        let key = format!("{election}/{lease:x}");
        let options = PutOptions::new().with_lease(lease);
        client.put(key, value.to_vec(), Some(options)).await.unwrap();
        let line = self.open().line(election, 1000).await.unwrap();
        line.entries.into_iter().rev().find(|entry| entry.value == value)
    }

    fn watches(&self) -> Option<usize> {
        Some(self.stores.lock().unwrap().iter().map(EtcdStore::watches).sum())
    }

    fn crowd(&self) -> usize {
        40
    }

    fn histories(&self) -> u32 {
        12
    }
}

/// The library on a store.
pub(crate) async fn client(store: &EtcdStore) -> incumbent::Client {
    incumbent::Client::builder().ttl(TTL).with_store(store.clone()).await.unwrap()
}

/// A store with connections of its own.
pub(crate) fn store(cluster: &EtcdCluster) -> EtcdStore {
    EtcdStore::connect(&cluster.endpoints(), &EtcdOptions::new()).unwrap()
}

/// A name that no other test uses.
pub(crate) fn name(test: &str) -> ElectionName {
    ElectionName::new(&format!("{test}/{:x}", std::process::id())).unwrap()
}

/// Where an entry is.
pub(crate) fn key_of(held: &Held) -> String {
    let suffix = held.entry.as_str().split('@').next().expect("a suffix");
    format!("{}/{suffix}", held.election)
}

/// The lease that carries an entry of ours.
pub(crate) fn lease_of(held: &Held) -> i64 {
    i64::from_str_radix(held.entry.as_str().split('.').next().expect("a lease"), 16).unwrap()
}

/// Puts a key with a lease, as anybody could.
pub(crate) async fn put(client: &mut Client, key: &str, value: &str, lease: i64) {
    client.put(key, value, Some(PutOptions::new().with_lease(lease))).await.unwrap();
}

/// A client of somebody else, at a server that is up.
pub(crate) async fn raw(endpoints: &[String]) -> Client {
    let up = endpoints.iter().find(|endpoint| std::net::TcpStream::connect(endpoint).is_ok());
    Client::connect([up.expect("a server")], None).await.unwrap()
}
