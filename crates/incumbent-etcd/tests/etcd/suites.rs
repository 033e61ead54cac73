//! What every store must do: on one server, on three, and on three whose leader was killed in
//! between.

use incumbent_store::{Place, Store};
use incumbent_testkit::conformance::Time;
use incumbent_testkit::servers::EtcdCluster;
use tokio::sync::OnceCell;

use crate::harness::{Etcd, TTL, entry, held, name, shared, store, until, within};

incumbent_testkit::conformance!(one_server, Time::Real, Etcd::on(shared().await));
incumbent_testkit::elections!(elections_on_one_server, Time::Real, Etcd::on(shared().await));
incumbent_testkit::conformance!(after_the_clusters_leader_was_killed, Time::Real, Etcd::on(bereft().await));
#[cfg(feature = "faults")]
incumbent_testkit::conformance!(three_servers, Time::Real, Etcd::on(three().await));
#[cfg(feature = "faults")]
incumbent_testkit::elections!(elections_on_three_servers, Time::Real, Etcd::on(three().await));
#[cfg(feature = "faults")]
incumbent_testkit::elections!(elections_after_the_clusters_leader_was_killed, Time::Real, Etcd::on(bereft().await));

#[cfg(feature = "faults")]
async fn three() -> &'static EtcdCluster {
    static CLUSTER: OnceCell<EtcdCluster> = OnceCell::const_new();
    CLUSTER.get_or_init(|| EtcdCluster::start(3)).await
}

/// Three servers, of which the one that led was killed while an election was held. Its address is
/// still known.
async fn bereft() -> &'static EtcdCluster {
    static CLUSTER: OnceCell<EtcdCluster> = OnceCell::const_new();
    CLUSTER
        .get_or_init(|| async {
            let mut cluster = EtcdCluster::start(3).await;
            let store = store(&cluster);
            let session = store.open_session(TTL).await.unwrap();
            let election = name("bereft");
            let leading = held(&session.enlist(&election, &entry(1)).await.unwrap());
            let leader = cluster.leader().await;
            cluster.node(leader).kill();
            cluster.leader().await;
            // Calls may fail while the connections to the dead one are given up.
            until("the survivors prove that the leader lives", async || {
                matches!(tokio::time::timeout(TTL, session.renew(std::slice::from_ref(&leading))).await, Ok(Ok(_)))
            })
            .await;
            let standing = within(session.standing(&leading, None)).await.unwrap();
            assert_eq!(standing.place, Place::Leading(leading));
            session.close().await.unwrap();
            cluster
        })
        .await
}
