//! What networks and servers do to a store: the suite of all stores.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use incumbent_etcd::rpc::PutRequest;
use incumbent_etcd::{EtcdOptions, EtcdStore};
use incumbent_store::{ElectionName, Store};
use incumbent_testkit::hostile::{Case, Exception, Host};
use incumbent_testkit::servers::EtcdCluster;

use crate::harness::{compact, grant, put, raw, until};

/// One server, with space for a line of ten thousand and not for much more.
struct Etcd(EtcdCluster);

/// So many are put in line at a time.
const AT_ONCE: usize = 200;

impl Host for Etcd {
    const EXCEPTIONS: &'static [Exception] = &[Exception::new(
        Case::WallClock,
        "its servers ask the kernel for the time, and not the C library: no test can step it. They count leases by \
              the monotonic clock",
    )];
    const TTL: Duration = Duration::from_secs(6);

    async fn start() -> Etcd {
        Etcd(EtcdCluster::start_with(1, &["--quota-backend-bytes=50331648"]).await)
    }

    fn addresses(&self) -> Vec<String> {
        self.0.endpoints()
    }

    fn store(&self, addresses: &[String]) -> Option<Arc<dyn Store>> {
        Some(Arc::new(EtcdStore::connect(addresses, &EtcdOptions::new()).unwrap()))
    }

    /// As Go's library stands in line, each in a step of its own.
    async fn crowd(&self, election: &ElectionName, count: usize) {
        let client = raw(&self.0.endpoints());
        let lease = grant(&client).await;
        let numbers: Vec<_> = (0..count).collect();
        for numbers in numbers.chunks(AT_ONCE) {
            let keys: Vec<_> = numbers.iter().map(|number| format!("{election}/{lease:x}{number:x}")).collect();
            join_all(keys.iter().map(|key| put(&client, key, "value", lease))).await;
        }
    }

    async fn restart_with_less(&mut self) -> bool {
        self.0.node(0).configure("--max-txn-ops=16");
        self.0.node(0).restart().await;
        true
    }

    async fn fill(&mut self) -> bool {
        let client = raw(&self.0.endpoints());
        // How much is used is counted ten times in a second: until then there is space for more.
        until("there is no space left", async || {
            let put = PutRequest { key: "filler".into(), value: vec![b'x'; 1 << 20], lease: 0 };
            client.put(put).await.is_err()
        })
        .await;
        true
    }

    async fn make_room(&mut self) {
        let ctl = |args: &[&str]| self.0.etcdctl().args(args).status().is_ok_and(|status| status.success());
        // With the alarm on, nothing can be written that would say which revision is the last.
        ctl(&["alarm", "disarm"]);
        ctl(&["del", "filler"]);
        until("there is space again", async || {
            compact(&self.0);
            ctl(&["defrag"]) && ctl(&["alarm", "disarm"]) && ctl(&["put", "written", ""])
        })
        .await;
    }
}

incumbent_testkit::hostile!(store, Etcd);
#[cfg(feature = "faults")]
incumbent_testkit::hostile_catches!(flawed, Etcd);
