//! Leader election for people who run replicas.
//!
//! Every leader holds a **fencing token**, which grows from leader to leader, and a **deadline**, so that a leader
//! that has lost office can do no harm.
//!
//! ```
//! # use std::time::Duration;
//! # type BoxError = Box<dyn std::error::Error + Send + Sync>;
//! # #[derive(Clone)] struct Db;
//! # impl Db { async fn write(&self, _job: u32, _token: &incumbent::FencingToken) -> Result<(), BoxError> { Ok(()) } }
//! # async fn next_job() -> u32 { 7 }
//! # fn done() -> bool { true }
//! # async fn example(db: Db) -> Result<(), BoxError> {
//! let client = incumbent::Client::builder().ttl(Duration::from_secs(15)).connect("memory://docs").await?;
//! let election = client.election("jobs/nightly")?;
//!
//! // A place in line. It rejoins by itself.
//! let mut seat = election.candidate("node-1").value("10.0.0.7:80").stand().await?;
//! while let Some(office) = seat.elected().await? { // None: the election has ended
//!     let term = office.term(); // Clone + Send + 'static, for spawned work
//!     office.guard(async { // dropped when leadership is lost
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
//!         office.leave().await?; // gives up the office and the place in line
//!         break;
//!     }
//!     office.resign().await?; // back in line. Dropping it does the same; this says whether it is certain
//! }
//! # Ok(()) }
//! # let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
//! # runtime.block_on(async { tokio::spawn(example(Db)).await.unwrap().unwrap() });
//! ```
//!
//! Elections are held in a store, which a URL names: `memory://`, and with a cargo feature each `file://` (the default),
//! `etcd://` and others. With the feature `peers`, processes elect one of themselves with no store: `consensus://`, which has tokens and
//! deadlines like a store, and `bully://` and `ring://`, which have no tokens ([`Unfenced`]).
//!
//! Where to go from here: [`Client`] for the settings, [`Candidate`] for standing once or for running a closure in
//! each term, [`Term`] for what spawned work needs, [`fence`] for guarding a resource, [`Observer`] for those who only
//! want to know who leads, [`Operator`] for acting from outside.

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
mod hooks;
mod leadership;
mod ledger;
mod observer;
mod operator;
#[cfg(feature = "peers")]
pub mod peers;
mod port;
mod roll;
mod term;
#[cfg(feature = "test-util")]
pub mod testing;
mod watched;

/// What `deadline` is made of. Its model check has others.
mod atomics {
    pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
}

pub use candidacy::{Candidacy, Events, Role, Roles, SeatEvent};
pub use candidate::Candidate;
pub use client::{Client, ClientBuilder};
pub use election::{Election, Fenced, Fencing, Unfenced};
pub use error::{
    ConnectError, Lost, OperatorError, ProclaimError, ReadError, ResignError, SeatError, StandError, TransferError,
    TransferRefused, Unfinished,
};
pub use fence::{Fence, FenceError, FencingToken};
#[doc(hidden)]
pub use flaw::DriverFlaw;
#[doc(hidden)]
pub use hooks::Spawn;
pub use incumbent_core::peers::TransferRefusal;
pub use incumbent_core::{
    ElectionName, Incarnation, Loss, NameError, Refusal, Settings, SettingsError, Shortfall, Timestamp, Token,
    TokenOutOfRange,
};
pub use incumbent_store as store;
pub use incumbent_store::{Promises, StoreError, StoreId, TokenStrength};
pub use leadership::Leadership;
pub use observer::{GroupStatus, Leader, Observation, Observer, Reading, Silence, Status};
pub use operator::{Member, Operator};
pub use term::Term;
