//! The store against real servers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod access;
mod clock;
mod failover;
mod fence;
mod harness;
mod histories;
mod hostile;
mod leftovers;
mod locks;
mod pooler;
mod replay;
mod snapshots;
mod stopped;
#[cfg(feature = "faults")]
mod storm;
mod suites;
mod sweep;
mod waking;
