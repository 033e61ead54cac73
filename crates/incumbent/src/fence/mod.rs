//! Fences: resources that refuse the writes of a leader that has lost office.
//!
//! A leader can be paused, cut off or slow, lose its office, and only then send its last write. No
//! clock and no lock stops that write: the resource has to. So every leader holds a
//! [`FencingToken`], tokens grow from leader to leader, and a resource remembers the highest token
//! that it has seen, its *mark*, and refuses every lower one. Checking the token and writing is
//! **one atomic step** at the resource; a check before the write is not a fence.
//!
//! A fence that is attached to a candidate is raised before the candidate sees its office, so the
//! leader before it is shut out even if the new one has not written yet.
//!
//! - [`MemoryFence`] guards a value in this process.
//! - [`FileFence`] keeps its mark in a directory, across crashes, for files and for work of this
//!   host.
//! - `EtcdFence` (with the feature `etcd`) keeps its mark in etcd, and guards what is written
//!   there; so does `ZooKeeperFence` (with the feature `zookeeper`) in ZooKeeper and `RedisFence`
//!   (with the feature `redis`) in Redis.
//! - `PostgresFence` (with the feature `postgres`) keeps its mark in PostgreSQL, and is asked
//!   inside your own transactions.
//! - A database is its own best fence: implement [`Fence`] with one row per election that
//!   holds the store's identity and the mark, and check both in the transaction of every write. The
//!   page docs/fencing.md has the SQL.
//!
//! A fence knows nothing of sessions, deadlines or lines: a token and a mark are all that it
//! compares.

mod file;
mod mark_file;
mod memory;

pub use file::FileFence;
#[cfg(feature = "etcd")]
pub use incumbent_etcd::EtcdFence;
#[cfg(feature = "postgres")]
pub use incumbent_postgres::PostgresFence;
#[cfg(feature = "redis")]
pub use incumbent_redis::RedisFence;
pub use incumbent_store::fence::{BoxFuture, ElectionName, Fence, FenceError, FencingToken, StoreId, Token};
#[cfg(feature = "zookeeper")]
pub use incumbent_zookeeper::ZooKeeperFence;
pub use memory::MemoryFence;
