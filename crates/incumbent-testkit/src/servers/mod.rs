//! Real servers for tests: on free ports of the loopback address, in folders of their own, gone
//! with the test.

mod certificates;
mod etcd;
mod postgres;
mod process;
mod redis;
mod wall_clock;
mod zookeeper;

pub use certificates::Certificates;
pub use etcd::{EtcdCluster, EtcdNode};
pub use postgres::{PgBouncer, PostgresServer};
pub use process::{Process, Scratch};
pub use redis::RedisServer;
pub use wall_clock::WallClock;
pub use zookeeper::{ZooKeeperBuilder, ZooKeeperEnsemble, ZooKeeperNode};
