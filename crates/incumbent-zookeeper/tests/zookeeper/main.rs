//! The store against real servers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod access;
mod dialects;
#[cfg(feature = "faults")]
mod ensemble;
mod guard;
mod harness;
mod hostile;
mod interop;
mod others;
mod outside;
#[cfg(feature = "faults")]
mod process;
mod scenarios;
#[cfg(feature = "faults")]
mod storm;
mod suites;
mod timeouts;
