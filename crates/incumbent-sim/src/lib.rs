//! Simulation of elections: seeded, on virtual time, with the code that production runs.
//!
//! One seed stands for one run: some processes, what they elect with, and what goes wrong. The
//! network, the clocks and the users are simulated; a checker sees everything on global time and
//! stops at the first broken rule. There are three worlds ([`World`]):
//!
//! - `store`: [`incumbent_core::Participant`] around the memory store's own table. Fast, so that
//!   many seeds are run, and with servers, clocks and resources that can be wrong themselves.
//! - `library`: the real `Client` with its driver, handles and fences, on tokio's paused clock.
//! - `peers`: groups that elect by consensus, with clocks, disks, records and a hostile network.
//!
//! [`ranks`] has bully and ring, over links that may be cut. The tests explore small elections of
//! every kind in every order of events (`tests/exhaustive`).

mod clock;
mod library;
mod peers;
mod queue;
pub mod ranks;
mod report;
mod store;
mod trace;
mod variant;

pub use report::{Counts, Outcome, Summary, catch, run, run_many};
pub use trace::Violation;
pub use variant::{AroundFlaw, Variant, World};
