//! Checks of the peer elections in `incumbent-core`: the machines themselves are driven, not a model of them.
//!
//! - [`check`] explores every interleaving of small groups within stated bounds (stateright). [`check::consensus`] and
//!   [`check::ranks`] say what a step is; the tests say which bounds are explored.
//! - [`world`] simulates groups, of five unless told otherwise, with clocks, disks, records and a hostile network, from a
//!   seed. The command runs it.
//! - [`links`] runs bully and ring groups in virtual time over links that may be cut.
//!
//! # What the exhaustive checks of consensus cover
//! Three members; a promise lasts two units of time, a heartbeat is sent every unit; the exploration starts when the first
//! timers are due. In every state: any message ever sent may arrive, again and again, or never; a timer that is due fires
//! or does not; where the bounds say so, a disk finishes a write or does not yet, a member crashes (with what was not
//! yet written), starts again, or loses its disk, the leader hands over to anyone. The bounds are on terms, units of time,
//! crashes, lost disks and transfers: the tests name them.
//!
//! Three reductions keep the number of states in hand; that they hide nothing is argued where they are made, not checked:
//! members that have done nothing are interchangeable, messages that can have no effect any more are forgotten, and which
//! value a follower knows is left out. Pre-votes are off, which lets members stand more freely than production does.
//!
//! # What they do not cover
//! Clocks that run at different rates, more than three members, positions, values and observers: the simulation does. After
//! a restart a member abstains longer than the explored time; so votes after a restart are explored with abstention
//! switched off, which only allows more, and there leases are not looked at.

pub mod check;
pub mod links;
pub mod world;
