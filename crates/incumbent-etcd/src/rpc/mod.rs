//! The calls that are made to etcd, with messages of our own.
//!
//! Tests and benchmarks use it to do what others do. It is no part of the API.

mod client;
mod messages;

pub use client::{Client, Stream};
pub use messages::*;
