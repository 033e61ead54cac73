//! Elections among peers, with no store: bully, ring and consensus over encrypted connections.
//!
//! The algorithms are pure machines in `incumbent-core`. Here a [`Node`] runs one of them: it
//! connects to the other members, writes votes down, and tells its owner what happens. A
//! [`QueryClient`] is someone who is not a member and wants to know who leads.
//!
//! ```no_run
//! use incumbent_core::{Command, ElectionName, Event};
//! use incumbent_peers::{Algorithm, GroupConfig, Members, Node, NodeConfig, NodeEvent, Rules, Secret};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let members = Members::parse("a=10.0.0.1:7400,b=10.0.0.2:7400,c=10.0.0.3:7400")?;
//! let me = members.by_name("a").ok_or("not in the list")?.id;
//! let secret = Secret::read("/etc/incumbent/secret".as_ref())?;
//! let group = GroupConfig::new(ElectionName::new("jobs/nightly")?, members, Algorithm::Consensus, secret);
//! let mut config = NodeConfig::new(group, me, Rules::defaults(Algorithm::Consensus));
//! config.data = Some("/var/lib/incumbent/nightly".into());
//!
//! let mut node = Node::start(config).await?;
//! let mut at_work = false;
//! loop {
//!     match node.event().await {
//!         NodeEvent::Event(Event::Elected { title, deadline, .. }) => {
//!             println!("elected: {:?} until {deadline:?}", title.token());
//!             at_work = true;
//!         }
//!         // The work has stopped: said once for each term, and no other begins before.
//!         NodeEvent::Event(Event::Stopping { .. } | Event::Unelected(_)) if std::mem::take(&mut at_work) => {
//!             node.command(Command::Release);
//!         }
//!         NodeEvent::Closed => break,
//!         _ => {}
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What the transport promises
//! Connections are Noise's (`NNpsk0`, with snow): both ends prove that they know the group's
//! secret, and all that follows is encrypted and authenticated, in order, with fresh keys of that
//! connection and direction. So a stranger, a replay, a forged or exchanged message, one that is
//! too long or cannot be read, another election and another version are refused, counted by reason
//! ([`Counters::refused`]) and logged at a bounded rate; none of it ends the process. A secret that
//! becomes known later opens no connection that was recorded before. In the clear are the members'
//! numbers, a hash that names the group, and how much is said when. Connections, queues and waits
//! are bounded ([`LinkSettings`]). A process that knows the secret can speak as any member: it is
//! the group's, not a member's. So choose a random one: a short one can be guessed from what passes
//! by. With TLS beneath (feature `tls`) it takes a certificate, too.
//!
//! # How a consensus group begins
//! A disk without votes is new, or was wiped: by itself a member cannot tell, and a wiped one that
//! voted again could make two leaders. So a group is founded once, when ALL members are up with
//! disks that never voted; from then on a majority is enough. A wiped member meets a group that
//! exists, and comes back by learning the highest term from all others.
//!
//! Two things only people can know, and say to a member that runs: that a group is new although
//! some members never came ([`QueryClient::found`]), and that a member which lost its state is to
//! come back although others do not answer, or have lost theirs, too ([`QueryClient::readmit`]).

mod config;
mod counters;
mod disk;
mod founding;
#[cfg(test)]
mod fuzz;
mod link;
mod members;
mod node;
mod packet;
mod query_client;
mod secret;
mod status;
#[cfg(feature = "tls")]
mod tls;
mod trace;

pub use config::{Algorithm, ConfigError, GroupConfig, LinkSettings, NodeConfig, Rules};
pub use counters::Counters;
pub use incumbent_core::peers::consensus::{ConsensusSettings, PeerRole, Position};
pub use incumbent_core::peers::wire::Body;
pub use incumbent_core::peers::{Abstention, MAX_MEMBERS, MemberId, OperatorRequest, RankSettings, TermRules};
pub use incumbent_core::{Command, Event, Fault, Refusal, Successor, TermNo, Title};
pub use members::{Member, Members};
pub use node::{Node, NodeEvent, NodeView, StartError};
pub use query_client::{AskError, QueryClient, Survey, leader_of};
pub use secret::{MAX_SECRET_BYTES, MIN_SECRET_BYTES, Secret};
pub use status::{HeldOffice, LeaderView, NodeState, Refused, Stage, Status};
#[cfg(feature = "tls")]
pub use tls::Tls;
pub use trace::{RefusedFrame, Trace, TraceRecord, Way};
