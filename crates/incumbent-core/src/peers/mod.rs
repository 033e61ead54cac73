//! Peers with no store: processes that elect one of themselves.
//!
//! - [`consensus`]: a fixed group, a durable vote per term, a lease that a quorum has promised.
//!   Terms are tokens, and two leaders at a time are impossible while clocks keep within the drift.
//!   The choice for all that matters.
//! - [`bully`] and [`ring`]: the highest rank that answers leads. No token, no promise: a partition
//!   has two leaders.
//!
//! All are pure: time comes in as an argument, randomness as a seed, messages go in and come out.
//! [`wire`] gives the messages a form on the network; carrying and authenticating them is the
//! transport's work.

pub mod bully;
pub mod consensus;
mod group;
mod machine;
mod member_machine;
mod policy;
mod rank;
mod rank_state;
pub mod ring;
mod role;
pub mod wire;

pub use group::{Group, GroupError, MAX_MEMBERS, MemberId};
pub use machine::{Abstention, Input, OperatorRequest, Output, TermRules};
pub use member_machine::MemberMachine;
#[doc(hidden)]
pub use policy::{ConsensusFlaw, ConsensusPolicy, RankFlaw, RankPolicy};
pub use rank::RankMachine;
pub use rank_state::{RankMessage, RankSettings, RankSettingsError};
