//! The store against real servers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod access;
mod batches;
mod cluster;
mod crowd;
mod guard;
#[cfg(feature = "faults")]
mod hangs;
mod harness;
mod hostile;
mod interop;
mod learner;
mod outside;
mod space;
#[cfg(feature = "faults")]
mod storm;
mod suites;
mod trips;
mod weather;
