//! Groups of members in one process, over real sockets on loopback.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod consensus;
mod cuts;
mod disks;
mod ranks;
mod strangers;
mod test_group;
