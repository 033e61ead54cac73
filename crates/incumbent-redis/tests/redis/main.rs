//! The store against real servers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod access;
mod clock;
mod fence;
mod harness;
mod hostile;
mod memory;
mod outside;
mod restarts;
mod route;
#[cfg(feature = "faults")]
mod storm;
mod suites;
mod weather;
