//! Servers for the tests: one that all share, and clusters of a test's own.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use incumbent_etcd::rpc::{
    Client, KeyValue, LeaseGrantRequest, PutRequest, RangeRequest, RequestOp, Response, TxnRequest,
};
use incumbent_etcd::{Channel, EtcdOptions, EtcdStore};
use incumbent_store::{ElectionName, Entry, Held, Store};
pub(crate) use incumbent_testkit::candidates::{entry, held, lead, publish};
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
        let client = raw(&self.endpoints);
        let lease = grant(&client).await;
        write(&client, vec![RequestOp::put(format!("{election}/{lease:x}"), value.to_vec(), lease)]).await;
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

/// A client of somebody else, at a server that is up.
pub(crate) fn raw(endpoints: &[String]) -> Client {
    let up = endpoints.iter().find(|endpoint| std::net::TcpStream::connect(endpoint).is_ok());
    Client::new(channel(up.expect("a server")), None)
}

/// A connection of somebody else.
pub(crate) fn channel(endpoint: &str) -> Channel {
    Channel::from_shared(format!("http://{endpoint}")).unwrap().connect_lazy()
}

/// A lease of somebody else.
pub(crate) async fn grant(client: &Client) -> i64 {
    client.lease_grant(LeaseGrantRequest { ttl: 600, id: 0 }).await.unwrap().id
}

/// Writes, as anybody could.
pub(crate) async fn write(client: &Client, success: Vec<RequestOp>) {
    client.txn(TxnRequest { success, ..TxnRequest::default() }).await.unwrap();
}

/// Puts a key with a lease.
pub(crate) async fn put(client: &Client, key: &str, value: &str, lease: i64) {
    client.put(PutRequest { key: key.into(), value: value.into(), lease }).await.unwrap();
}

/// What is there, from this key up to the other; with an empty one, the one key.
pub(crate) async fn read(client: &Client, key: &str, range_end: &str) -> Vec<KeyValue> {
    let range = RangeRequest { key: key.into(), range_end: range_end.into(), ..RangeRequest::default() };
    let txn = TxnRequest { success: vec![RequestOp::range(range)], ..TxnRequest::default() };
    match client.txn(txn).await.unwrap().responses.remove(0).response {
        Some(Response::Range(found)) => found.kvs,
        other => panic!("{other:?}"),
    }
}

/// What is below this name and a `/`.
pub(crate) async fn read_below(client: &Client, parent: &str) -> Vec<KeyValue> {
    // '0' is the byte after '/'.
    read(client, &format!("{parent}/"), &format!("{parent}0")).await
}

/// Forgets everything that was. Whether there was a server to do it.
pub(crate) fn compact(cluster: &EtcdCluster) -> bool {
    let ctl = |args: &[&str]| cluster.etcdctl().args(args).output().expect("etcdctl");
    let put = ctl(&["put", "compacted", "", "--write-out=json"]);
    let said = String::from_utf8_lossy(&put.stdout);
    let revision = said.split("\"revision\":").nth(1).and_then(|rest| rest.split([',', '}']).next());
    revision.is_some_and(|revision| ctl(&["compact", "--physical", revision]).status.success())
}
