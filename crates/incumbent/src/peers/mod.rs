//! Elections among peers, with no store: the processes elect one of themselves.
//!
//! A store is the better choice where there is one. Peers serve small clusters that must not depend
//! on anything else.
//!
//! - `consensus://`: a majority of a fixed list of members votes. The term is the fencing token,
//!   the deadline is a lease that a majority has promised: two leaders at a time are impossible
//!   while clocks keep within the drift.
//! - `bully://` and `ring://`: the highest rank that answers leads. There is no token and no
//!   promise: when the network falls into two halves, each has a leader. So they are
//!   [`Unfenced`](crate::Unfenced): connect with
//!   [`connect_unfenced`](crate::ClientBuilder::connect_unfenced).
//!
//! # Members, and those who ask them
//! One group holds one election. A client becomes a **member** with its first
//! [`stand`](crate::Candidate::stand): from then on it listens, keeps its votes, answers and votes,
//! until it is closed or its last handle is gone. It leads only while it has a candidate. Before
//! that, and for ever if nobody stands, it asks **from outside**: readers, observers and operators
//! ask the members, over the same authenticated connections. The first election that is used with a
//! client is the group's; another one is refused.
//!
//! # URLs
//! ```text
//! consensus://127.0.0.1:7411?members=3                          three members on this host, at ports 7411, 7412, 7413
//! consensus://?members=a=10.0.0.1:7411,b=10.0.0.2:7411,c=10.0.0.3:7411&listen=10.0.0.1:7411&secret-file=/etc/group.secret
//! ```
//! | setting | meaning | unless given |
//! | --- | --- | --- |
//! | `members` | the same list everywhere, in the same order: `NAME=HOST:PORT,..`, `HOST:PORT,..`, or how many there are, at ports in a row from the URL's host and port on | 3, from `127.0.0.1:7411` on |
//! | `listen` | where this member listens, and so which one it is | its address in the list |
//! | `rank` | which member this is, by its number: its place in the list, from 1. In bully and ring elections the highest leads | see below |
//! | `data` | where a consensus member writes down its votes: a directory of its own, which must outlive it | in the user's state folder, by election and the member's name |
//! | `secret-file` | what the members and those who ask them share: 16 bytes at least, in a file that others cannot read | with members on other hosts: needed. On one host: made, in the user's state folder |
//! | `tls-ca`, `tls-cert`, `tls-key` | certificates as well as the secret: mutual TLS beneath it, from PEM files (feature `peers-tls`) | none: connections are encrypted with keys from the secret |
//! | `timeout` | how long a leader may be silent, e.g. `1500ms`. The same everywhere; the other times are shares of it | 1.5 s |
//! | `majority` | bully, ring: `yes` to lead only while a majority answers. It narrows the time with two leaders, and does not exclude it | `no` |
//! | `takeover` | bully, ring: `no` to leave a healthy leader of lower rank in office | `yes` |
//!
//! Which member a process is follows from `rank`, else from `listen`, else from the candidate's
//! name if a member in the list has it; else, where all members are on this host, it is the first
//! one that does not run yet.
//!
//! # What only people can know
//! A consensus member without votes is new, or has lost them: by itself it cannot tell. So the
//! first election waits for all members, and one that lost its votes waits for all others. What to
//! do when some will not come, and what is asserted by it, is said at
//! [`Operator::found`](crate::Operator::found) and [`Operator::readmit`](crate::Operator::readmit).

mod group;
mod group_client;
mod promises;
mod start;
mod url;

pub use crate::error::MemberError;
pub use group::Group;
pub(crate) use group::GroupElection;
pub(crate) use group_client::GroupClient;
#[cfg(feature = "peers-tls")]
pub use incumbent_peers::Tls;
pub use incumbent_peers::{
    Algorithm, ConfigError, ConsensusSettings, Member, MemberId, Members, RankSettings, Rules, Secret, StartError,
};
pub(crate) use start::start;

use std::sync::Arc;

use incumbent_store::Clock;

use crate::driver::GroupSide;
use crate::hooks::Hooks;

/// The two sides of a client of a group: one that may become a member, and one that asks.
pub(crate) fn open(group: Group, clock: Arc<dyn Clock>, hooks: Hooks) -> (GroupSide, Arc<GroupClient>) {
    let group_election = Arc::new(GroupElection::new(group));
    (GroupSide::new(group_election.clone(), clock, hooks), Arc::new(GroupClient::new(group_election)))
}
