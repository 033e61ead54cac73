//! Simulation of elections: seeded, on virtual time, with the machines that production runs.
//!
//! One seed stands for one run: some processes, one store, some elections, and what goes wrong. The processes run
//! [`incumbent_core::Participant`] itself, the server is the memory store's own table; the network between them, the
//! clocks and the users are simulated. A checker sees everything on global time and stops at the first broken rule.
//!
//! The library around those machines has a world of its own, in `library`.

mod checker;
mod clock;
mod faults;
mod library;
mod network;
mod operator;
mod orders;
mod process;
mod report;
mod scenario;
mod server;
mod trace;
mod users;
mod variant;
mod world;

pub use checker::Violation;
pub use report::{Catch, Summary, catch, run_many};
pub use variant::{Variant, WorldFlaw};
pub use world::{Outcome, run};
