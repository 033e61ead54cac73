//! The pages of the documentation. Their code is compiled, and run where it says nothing else, by
//! `cargo test --doc`: so it cannot become untrue without notice.

#![cfg(doctest)]

#[doc = include_str!("../README.md")]
mod readme {}

#[doc = include_str!("../docs/concepts.md")]
mod concepts {}

#[doc = include_str!("../docs/choosing-a-store.md")]
mod choosing_a_store {}

#[doc = include_str!("../docs/fencing.md")]
mod fencing {}

#[doc = include_str!("../docs/health.md")]
mod health {}

#[doc = include_str!("../docs/operating.md")]
mod operating {}

#[doc = include_str!("../docs/peers.md")]
mod peers {}

#[doc = include_str!("../docs/writing-a-store.md")]
mod writing_a_store {}
