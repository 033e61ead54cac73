//! A store in this process's memory: for tests, for the simulation, and for candidates that share a
//! process.

mod expiry;
mod session;
mod store;
mod table;
mod waiters;

pub use store::MemoryStore;
pub use table::{SessionKey, Shape, Table, Touch};
