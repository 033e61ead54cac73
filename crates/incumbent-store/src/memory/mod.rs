//! A store in this process's memory: for tests, for the simulation, and for candidates that share a process.

mod table;

pub use table::{SessionKey, Shape, Table};
