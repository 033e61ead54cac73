//! The world of candidates: the machines of the core, around the memory store's own table.
//!
//! Processes run [`incumbent_core::Participant`] itself. It is fed by hand here: so it runs fast,
//! each answer can be late, lost and doubled, and the server, the clocks and the resources can be
//! wrong in ways of their own.

mod causes;
mod checker;
mod faults;
mod network;
mod operator;
mod orders;
mod places;
mod process;
mod scenario;
mod server;
mod users;
mod world;

pub(crate) use world::run;
