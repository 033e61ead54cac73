//! For those who write a store, and for tests of what stands on one.
//!
//! - [`mod@conformance`]: what every store must do, as a suite that a store runs against itself.
//! - [`mod@elections`]: what users must be able to do on every store, through the library.
//! - [`Memory`]: the memory store, for both suites.
//! - [`FaultStore`]: a store that loses, delays, doubles and refuses, on request or from a seed.
//! - [`mod@fuzz`]: what no honest writer would write, for decoders of what comes from outside.
//! - [`judge`]: whether what candidates in processes of their own wrote down breaks a rule.
//! - [`TempDir`]: a directory of a test's own. [`free_port`]: a port for a server that is about to
//!   start.
//! - [`candidates`] and [`patience`]: what tests of your own want of a store, and how long they
//!   wait for it.
//! - With the feature `servers`, `servers`: real servers on free ports; `proxy`: a connection that
//!   can be cut, stalled and delayed; `hostile`: what networks and servers do to a store, as a
//!   suite; `resource`: what leaders in processes of their own write to, behind a fence.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a suite speaks by panicking")]

pub mod candidates;
pub mod conformance;
pub mod elections;
mod fault;
pub mod fuzz;
#[cfg(feature = "servers")]
pub mod hostile;
pub mod judge;
mod memory;
pub mod patience;
mod ports;
#[cfg(feature = "servers")]
pub mod proxy;
#[cfg(feature = "servers")]
pub mod resource;
#[cfg(feature = "servers")]
pub mod servers;
mod temp_dir;

pub use fault::{Call, FaultStore, Faults, Mishap, Odds};
pub use memory::Memory;
pub use ports::{free_port, free_ports};
pub use temp_dir::TempDir;
