//! The store against real servers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod access;
mod clock;
mod connections;
#[cfg(feature = "faults")]
mod faults;
mod fence;
mod formats;
mod foundings;
mod harness;
mod histories;
mod hostile;
mod lineages;
mod memory;
mod outside;
mod primary;
mod redlock;
mod replicas;
mod restarts;
mod suites;
mod timed;
