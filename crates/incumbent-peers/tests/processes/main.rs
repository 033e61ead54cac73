//! Groups of real processes, killed, stopped, cut off and wiped; with what they wrote down as the
//! evidence.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod cluster;
mod consensus;
mod flawed;
mod ranks;
mod storm;
