//! What every store must do: on one server and on three, in our dialect and in those of others.

use incumbent_testkit::conformance::Time;
#[cfg(feature = "faults")]
use incumbent_zookeeper::Dialect;

#[cfg(feature = "faults")]
use crate::harness::three;
use crate::harness::{ZooKeeper, shared};

incumbent_testkit::conformance!(one_server, Time::Real, ZooKeeper::on(shared().await));
incumbent_testkit::elections!(elections_on_one_server, Time::Real, ZooKeeper::on(shared().await));
#[cfg(feature = "faults")]
incumbent_testkit::conformance!(three_servers, Time::Real, ZooKeeper::on(three().await));
#[cfg(feature = "faults")]
incumbent_testkit::elections!(elections_on_three_servers, Time::Real, ZooKeeper::on(three().await));
#[cfg(feature = "faults")]
incumbent_testkit::conformance!(curator_latch, Time::Real, by(Dialect::CuratorLatch).await);
#[cfg(feature = "faults")]
incumbent_testkit::elections!(elections_curator_latch, Time::Real, by(Dialect::CuratorLatch).await);
#[cfg(feature = "faults")]
incumbent_testkit::conformance!(curator_selector, Time::Real, by(Dialect::CuratorSelector).await);
#[cfg(feature = "faults")]
incumbent_testkit::conformance!(kazoo, Time::Real, by(Dialect::Kazoo).await);
// go-leaderelection takes every child for a candidate, another election's node as well: that is not
// for the seam's suite.
#[cfg(feature = "faults")]
incumbent_testkit::elections!(elections_go_leaderelection, Time::Real, by(Dialect::GoLeaderElection).await);

#[cfg(feature = "faults")]
async fn by(dialect: Dialect) -> ZooKeeper {
    ZooKeeper::at(shared().await.endpoints(), dialect)
}
