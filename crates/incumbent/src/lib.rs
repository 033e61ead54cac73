//! Leader election for people who run replicas.
//!
//! Every leader holds a **fencing token**, which grows from leader to leader, and a **deadline**,
//! so that a leader that has lost office can do no harm.
//!
//! ```
//! # type BoxError = Box<dyn std::error::Error + Send + Sync>;
//! # #[derive(Clone)] struct Db;
//! # impl Db { async fn write(&self, _job: u32, _token: &incumbent::FencingToken) -> Result<(), BoxError> { Ok(()) } }
//! # async fn next_job() -> u32 { 7 }
//! # fn done() -> bool { true }
//! # async fn example(db: Db) -> Result<(), BoxError> {
//! let client = incumbent::Client::connect("memory://docs").await?; // or file:///path, etcd://host:2379
//! let election = client.election("jobs/nightly")?;
//!
//! // A place in line. It rejoins by itself.
//! let mut candidacy = election.candidate("node-1").value("10.0.0.7:80").stand().await?;
//! while let Some(leadership) = candidacy.elected().await? { // None: the election has ended
//!     let term = leadership.term(); // Clone + Send + 'static, for spawned work
//!     leadership.guard(async { // dropped when leadership is lost
//!         loop {
//!             tokio::select! {
//!                 _ = term.stopping() => break, // soft: drain, within the grace
//!                 job = next_job() => db.write(job, term.token()).await?, // the database refuses an older token
//!             }
//! #           break;
//!         }
//!         Ok::<_, BoxError>(())
//!     }).await?;
//!     if done() {
//!         leadership.leave().await?; // gives up the office and the place in line
//!         break;
//!     }
//!     leadership.resign().await?; // back in line. Dropping it does the same; this says whether it is certain
//! }
//! # Ok(()) }
//! # let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
//! # runtime.block_on(async { tokio::spawn(example(Db)).await.unwrap().unwrap() });
//! ```
//!
//! # The ideas
//! - A **session** is what proves to a store that this process lives. It is renewed until the
//!   process stops; then the store forgets it, after the TTL. A [`Client`] has one, for all its
//!   elections.
//! - An **entry** is a candidate's place in the line of an election ([`Candidacy`]). It belongs to
//!   a session and goes with it. The oldest living entry leads.
//! - A **term** is one stay in office, from election to loss ([`Leadership`], and [`Term`] for the
//!   work under it). Its token is the number of its entry, which the store draws in the same step
//!   in which the entry becomes visible. Its deadline is counted from when the last renewal that
//!   succeeded was *sent*: it passes before the store hands the office on.
//!
//! # `check`, or a fence?
//! [`Term::check`] fails once the term is over, by the clock. Ask it before each step that is
//! wasted if somebody else leads. It says nothing about the next moment: between a check and the
//! write that follows, a process can be paused for any length of time. Where a late write does
//! harm, the resource has to refuse it: give it [`Term::token`], and let it compare and write in
//! one atomic step. The module [`fence`] has fences for memory and files, and a trait for yours.
//!
//! # Stores and features
//! A URL names where the elections are held. A feature adds a scheme, and changes nothing else.
//!
//! | URL | feature | what it is |
//! | --- | --- | --- |
//! | `file:///path` | `file` (default) | a directory: many processes, one host, no server |
//! | `etcd://a:2379,b:2379` | `etcd` | etcd, in one line with Go's `concurrency.Election` and `etcdctl elect`; `etcds://` with `etcd-tls` |
//! | `redis://host:6379/0` | `redis` | Redis 7.0 or newer; `rediss://` with `redis-tls` |
//! | `redlock://a,b,c` | `redis` | a majority of three or five Redis servers; `redlocks://` with `redis-tls` |
//! | `postgres://user@host/database` | `postgres` | PostgreSQL 13 or newer; TLS by `?sslrootcert=` with `postgres-tls` |
//! | `zk://a:2181,b:2181/chroot` | `zookeeper` | ZooKeeper, with Curator and kazoo by `?dialect=`; `zks://` with `zookeeper-tls` |
//! | `consensus://...` | `peers` | no store: a majority of the processes votes; mutual TLS with `peers-tls` |
//! | `bully://...`, `ring://...` | `peers` | no store and no tokens ([`Unfenced`]): for work that is harmless when done twice |
//! | `memory://name` | | inside one process, for tests and for trying things out |
//!
//! The feature `test-util` adds `testing`: a client on a clock that a test winds forward, and a
//! leadership with no store. A store that the caller made comes in through
//! [`ClientBuilder::with_store`]; [`store`] has the traits.
//!
//! # What it needs
//! - **tokio**, with time and I/O enabled, single- or multi-threaded: see [`Client`].
//! - **Linux**: the boot-time clock, which counts while a machine is suspended, and timers on it
//!   have no portable form.
//!
//! Dropping a future never leaks an entry or a task: waits are safe to cancel, and handles say what
//! their drop does.
//!
//! # Where to go from here
//! [`ClientBuilder`] for the settings, [`Candidate`] for standing once or for running a closure in
//! each term, [`Candidacy`] for the loop, [`fence`] for guarding a resource, [`Observer`] for those
//! who only want to know who leads, [`Operator`] for acting from outside.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod backend;
mod candidacy;
mod candidate;
mod client;
mod connect;
mod deadline;
mod driver;
mod election;
mod error;
pub mod fence;
mod flaw;
mod forecast;
pub mod health;
mod heir;
mod hooks;
mod leadership;
mod lock_wait;
mod observer;
mod office_record;
mod operator;
mod origin;
#[cfg(feature = "peers")]
pub mod peers;
mod port;
mod shots;
mod stonith;
mod term;
#[cfg(feature = "test-util")]
pub mod testing;
mod witness;

/// What `deadline` is made of. Its model check has others.
mod atomics {
    pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
}

pub use candidacy::{Candidacy, CandidacyEvent, Events, Role, Roles};
pub use candidate::Candidate;
pub use client::{Client, ClientBuilder};
pub use connect::{StoreKind, store_kinds};
pub use election::{Election, Fenced, Fencing, Unfenced};
pub use error::{
    CandidacyError, CloseError, ConnectError, LeadershipLost, OperatorError, ProclaimError, ReadError, ResignError,
    StandError, TransferError, TransferRefused, Unfinished, UrlError,
};
pub use fence::{Fence, FenceError, FencingToken};
#[doc(hidden)]
pub use flaw::DriverFlaw;
pub use forecast::{Doubt, Forecast};
pub use heir::HeirRequest;
#[doc(hidden)]
pub use hooks::Spawn;
pub use incumbent_core::{
    BenchOrder, Benched, Deposed, ElectionName, Frozen, Handover, HeldBack, Incarnation, LastTerm, LossReason,
    NameError, Order, Origin, Pending, Recovery, Refusal, Servers, Settings, SettingsError, Shortfall, Shot,
    ShotResult, TermEnd, TermRecord, Terms, Timestamp, Token, TokenOutOfRange,
};
pub use incumbent_store as store;
pub use incumbent_store::{Promises, StoreError, StoreId, TokenStrength};
pub use leadership::Leadership;
pub use observer::{CandidateInfo, GroupStatus, Observation, Observer, Reading, Silence, Status};
pub use operator::{BenchForecast, CandidateRef, Operator, TransferPhase};
pub use stonith::{OnFailure, Shooter, Shooting, Stonith, Target};
pub use term::Term;
pub use witness::{Sighting, Witness};
