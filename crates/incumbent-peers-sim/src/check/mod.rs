//! Exhaustive checks within bounds.

pub mod consensus;
pub mod ranks;
