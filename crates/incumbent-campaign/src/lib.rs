//! Candidates in processes of their own hold an election on a real store and write to two
//! resources, one fenced and one not, while processes, servers and links suffer random faults.
//! What they wrote down, stamped with one boot-time clock, is judged by `incumbent_testkit::judge`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a campaign speaks by panicking")]

pub mod campaign;
pub mod candidate;
pub mod ground;
pub mod report;
pub mod resource;
