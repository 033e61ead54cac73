//! The calls that are made to etcd, with messages of our own.
//!
//! They are written by hand, so nothing is generated and nobody needs `protoc`; the first answer of
//! a stream of keep-alives is ours to read; and no type of another etcd client is in the API, whose
//! every release would be a breaking one here.
//!
//! Tests and benchmarks use it, with the feature `rpc`, to do what others do. It is no part of the
//! API.

mod client;
mod messages;

pub use client::{Client, Stream};
pub use messages::*;
