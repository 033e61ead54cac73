//! Servers for the tests: one that all share, three that all share, and ensembles of a test's own.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use incumbent::Candidacy;
use incumbent_store::{ElectionName, Entry, Held, Store};
pub(crate) use incumbent_testkit::candidates::{entry, held, lead};
use incumbent_testkit::conformance::Harness;
pub(crate) use incumbent_testkit::conformance::unique;
pub(crate) use incumbent_testkit::patience::{until, within};
use incumbent_testkit::servers::ZooKeeperEnsemble;
use incumbent_zookeeper::zookeeper_client::{Acls, Client, CreateMode, CreateOptions};
use incumbent_zookeeper::{Dialect, ZooKeeperOptions, ZooKeeperStore};
use tokio::sync::OnceCell;

/// Long enough for a slow machine.
pub(crate) const TTL: Duration = Duration::from_secs(4);
/// What the servers of the testkit count in.
pub(crate) const TICK: Duration = Duration::from_millis(200);

/// The server that tests share which leave it as it is.
pub(crate) async fn shared() -> &'static ZooKeeperEnsemble {
    static SERVER: OnceCell<ZooKeeperEnsemble> = OnceCell::const_new();
    SERVER.get_or_init(|| ZooKeeperEnsemble::start(1)).await
}

/// The same with three.
#[cfg(feature = "faults")]
pub(crate) async fn three() -> &'static ZooKeeperEnsemble {
    static ENSEMBLE: OnceCell<ZooKeeperEnsemble> = OnceCell::const_new();
    ENSEMBLE.get_or_init(|| ZooKeeperEnsemble::start(3)).await
}

/// Stores below a path of their own, each with connections of its own.
pub(crate) struct ZooKeeper {
    servers: Vec<String>,
    pub(crate) chroot: String,
    dialect: Dialect,
    stores: Mutex<Vec<ZooKeeperStore>>,
    strangers: Mutex<Vec<Client>>,
}

impl ZooKeeper {
    pub(crate) fn on(ensemble: &ZooKeeperEnsemble) -> ZooKeeper {
        ZooKeeper::at(ensemble.endpoints(), Dialect::Incumbent)
    }

    pub(crate) fn at(servers: Vec<String>, dialect: Dialect) -> ZooKeeper {
        let chroot = format!("/test-{:016x}", unique());
        ZooKeeper { servers, chroot, dialect, stores: Mutex::default(), strangers: Mutex::default() }
    }

    pub(crate) fn options(&self) -> ZooKeeperOptions {
        ZooKeeperOptions::new().chroot(&self.chroot).tick(TICK).dialect(self.dialect)
    }

    /// Those of another library are gone, as if their processes had been.
    pub(crate) fn strangers_leave(&self) {
        self.strangers.lock().unwrap().clear();
    }

    pub(crate) fn open(&self) -> ZooKeeperStore {
        let store = ZooKeeperStore::connect(&self.servers, &self.options()).unwrap();
        self.stores.lock().unwrap().push(store.clone());
        store
    }
}

impl Harness for ZooKeeper {
    async fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.open())
    }

    fn ttl(&self) -> Duration {
        TTL
    }

    /// As the other library does it, in its dialect. In ours there is no other library.
    async fn enlist_foreign(&self, election: &ElectionName, value: Bytes) -> Option<Entry> {
        let guid = format!("{:016x}{:016x}", unique(), unique());
        let uuid = format!("{}-{}-{}-{}-{}", &guid[..8], &guid[8..12], &guid[12..16], &guid[16..20], &guid[20..]);
        let name = match self.dialect {
            Dialect::CuratorLatch => format!("_c_{uuid}-latch-"),
            Dialect::CuratorSelector => format!("_c_{uuid}-lock-"),
            Dialect::Kazoo => format!("{guid}__lock__"),
            Dialect::GoLeaderElection => "le_".to_owned(),
            _ => return None,
        };
        let client = raw(&self.servers).await;
        let path = format!("{}/{election}", self.chroot);
        client.mkdir(&path, &PERSISTENT).await.unwrap();
        let mode = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        client.create(&format!("{path}/{name}"), &value, &mode).await.unwrap();
        // It stands as long as the test lasts.
        self.strangers.lock().unwrap().push(client);
        let line = self.open().line(election, 1000).await.unwrap();
        line.entries.into_iter().rev().find(|entry| entry.value == value)
    }

    fn watches(&self) -> Option<usize> {
        Some(self.stores.lock().unwrap().iter().map(ZooKeeperStore::watches).sum())
    }

    fn crowd(&self) -> usize {
        30
    }

    fn histories(&self) -> u32 {
        12
    }
}

/// A node that stays.
pub(crate) const PERSISTENT: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());

/// A client of somebody else, at a server that is up.
pub(crate) async fn raw(servers: &[String]) -> Client {
    within(Client::connector().with_session_timeout(Duration::from_secs(60)).connect(&servers.join(","))).await.unwrap()
}

/// A store below a path of its own.
pub(crate) fn store(ensemble: &ZooKeeperEnsemble) -> ZooKeeperStore {
    ZooKeeper::on(ensemble).open()
}

/// The library on a store.
pub(crate) async fn client(store: &ZooKeeperStore) -> incumbent::Client {
    incumbent::Client::builder().ttl(TTL).with_store(store.clone()).await.unwrap()
}

/// An election as a client of its own sees it.
pub(crate) async fn election(store: &ZooKeeperStore, name: &ElectionName) -> incumbent::Election {
    client(store).await.election(name.as_str()).unwrap()
}

/// A candidate with a client of its own.
pub(crate) async fn stand(store: &ZooKeeperStore, name: &ElectionName, candidate: &str) -> Candidacy {
    within(election(store, name).await.candidate(candidate).stand()).await.unwrap()
}

pub(crate) fn name(test: &str) -> ElectionName {
    ElectionName::new(test).unwrap()
}

/// Waits until so many are in line.
pub(crate) async fn in_line(store: &ZooKeeperStore, name: &ElectionName, count: usize) {
    let so = async || store.line(name, 5000).await.is_ok_and(|line| line.entries.len() == count);
    until(&format!("{count} are in line"), so).await;
}

/// The node of an entry, in our dialect and without a chroot's path.
pub(crate) fn node(held: &Held) -> String {
    held.entry.as_str().split('@').next().unwrap().to_owned()
}
