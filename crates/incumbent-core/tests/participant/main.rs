//! One process with its candidates, driven by hand.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test speaks by panicking")]

mod bench;
mod candidacy;
mod choice;
mod departure;
mod driven;
mod first_in_line;
mod fitness;
mod heir;
mod terms;
