//! What a member, or someone who asks one, has to be told before it starts; and why it is refused.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use incumbent_core::peers::consensus::{ConsensusSettings, ConsensusSettingsError};
use incumbent_core::peers::{GroupError, MAX_MEMBERS, MemberId, RankSettings, RankSettingsError, TermRules};
use incumbent_core::{ElectionName, NameError, check_value};
use incumbent_store::{BootClock, Clock};

use crate::members::{Members, check_address};
use crate::secret::{MAX_SECRET_BYTES, MIN_SECRET_BYTES, Secret};
#[cfg(feature = "tls")]
use crate::tls::Tls;
use crate::trace::Trace;

/// How the members elect one of themselves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Algorithm {
    /// The highest rank that answers leads. No token.
    Bully,
    /// A list goes round, the highest rank on it leads. No token.
    Ring,
    /// A majority votes. Terms are tokens.
    Consensus,
}

impl Algorithm {
    /// Whether leaders have tokens.
    pub fn is_fenced(self) -> bool {
        self == Algorithm::Consensus
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Algorithm::Bully => "bully",
            Algorithm::Ring => "ring",
            Algorithm::Consensus => "consensus",
        })
    }
}

impl FromStr for Algorithm {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Algorithm, ConfigError> {
        [Algorithm::Bully, Algorithm::Ring, Algorithm::Consensus]
            .into_iter()
            .find(|algorithm| algorithm.to_string() == text)
            .ok_or_else(|| ConfigError::Algorithm { name: text.to_owned() })
    }
}

/// An algorithm with its times and rules.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rules {
    /// A bully election.
    Bully(RankSettings),
    /// A ring election.
    Ring(RankSettings),
    /// A consensus group.
    Consensus(ConsensusSettings),
}

impl Rules {
    /// The algorithm's default settings.
    pub fn defaults(algorithm: Algorithm) -> Rules {
        match algorithm {
            Algorithm::Bully => Rules::Bully(RankSettings::default()),
            Algorithm::Ring => Rules::Ring(RankSettings::default()),
            Algorithm::Consensus => Rules::Consensus(ConsensusSettings::default()),
        }
    }

    /// Which algorithm it is.
    pub fn algorithm(&self) -> Algorithm {
        match self {
            Rules::Bully(_) => Algorithm::Bully,
            Rules::Ring(_) => Algorithm::Ring,
            Rules::Consensus(_) => Algorithm::Consensus,
        }
    }

    /// Refuses settings that cannot work.
    pub fn check(&self) -> Result<(), ConfigError> {
        match self {
            Rules::Bully(settings) | Rules::Ring(settings) => settings.check().map_err(ConfigError::Rank),
            Rules::Consensus(settings) => settings.check().map_err(ConfigError::Consensus),
        }
    }

    pub(crate) fn heartbeat(&self) -> Duration {
        match self {
            Rules::Bully(settings) | Rules::Ring(settings) => settings.heartbeat,
            Rules::Consensus(settings) => settings.heartbeat,
        }
    }
}

/// The times and bounds of connections.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LinkSettings {
    /// How long making a connection may take.
    pub dial_timeout: Duration,
    /// How long the other side may take to prove who it is.
    pub handshake_timeout: Duration,
    /// How long a write may be stuck before the connection is given up.
    pub write_timeout: Duration,
    /// How often a member shows on each connection that it is there.
    pub ping_every: Duration,
    /// After how much silence a connection between members is given up and made anew. TCP alone
    /// would wait for minutes after a partition has healed.
    pub silent_after: Duration,
    /// After how much silence a connection of someone who is not a member is closed.
    pub idle_after: Duration,
    /// How long a member may take to answer a question.
    pub answer_timeout: Duration,
    /// The first pause before a connection is tried again; it doubles, up to `backoff_max`.
    pub backoff_min: Duration,
    /// The longest pause before a connection is tried again.
    pub backoff_max: Duration,
    /// How many messages wait for one member. The oldest are dropped: the algorithms live with
    /// loss.
    pub queue: usize,
    /// A message that could not be sent for so long is dropped, and so are all when a member cannot
    /// be reached: what was said to a dead member must not be heard by the one that takes its
    /// place.
    pub stale_after: Duration,
    /// How many connections may be without a proof at a time, a quarter of them from one address. A
    /// further one ends the oldest of the address that has the most; those of members go last.
    pub half_open: usize,
    /// How many connections those who are not members may have, together.
    pub outsiders: usize,
}

impl Default for LinkSettings {
    fn default() -> LinkSettings {
        LinkSettings {
            dial_timeout: Duration::from_secs(2),
            handshake_timeout: Duration::from_secs(5),
            write_timeout: Duration::from_secs(5),
            ping_every: Duration::from_secs(1),
            silent_after: Duration::from_secs(5),
            idle_after: Duration::from_secs(60),
            answer_timeout: Duration::from_secs(5),
            backoff_min: Duration::from_millis(20),
            backoff_max: Duration::from_secs(1),
            queue: 64,
            stale_after: Duration::from_millis(500),
            half_open: 256,
            outsiders: 64,
        }
    }
}

impl LinkSettings {
    fn check(&self) -> Result<(), ConfigError> {
        let times = [
            self.dial_timeout,
            self.handshake_timeout,
            self.write_timeout,
            self.ping_every,
            self.idle_after,
            self.answer_timeout,
            self.backoff_min,
            self.backoff_max,
            self.stale_after,
        ];
        if times.iter().any(Duration::is_zero) {
            return Err(ConfigError::Link("no time may be zero"));
        }
        if self.queue == 0 || self.half_open == 0 || self.outsiders == 0 {
            return Err(ConfigError::Link("no bound may be zero"));
        }
        if self.silent_after < self.ping_every.saturating_mul(2) {
            return Err(ConfigError::Link("silence must be at least two pings long, or one late ping ends it"));
        }
        Ok(())
    }
}

/// A group, as its members and those who ask them have to know it.
#[derive(Clone, Debug)]
pub struct GroupConfig {
    /// The election that the group holds. One group holds one.
    pub election: ElectionName,
    /// Who is in it. The same list everywhere, but for addresses.
    pub members: Members,
    /// How they elect.
    pub algorithm: Algorithm,
    /// What they share.
    pub secret: Secret,
    /// The times and bounds of connections.
    pub link: LinkSettings,
    /// Certificates as well as the secret: mutual TLS beneath the handshake.
    #[cfg(feature = "tls")]
    pub tls: Option<Tls>,
}

impl GroupConfig {
    /// With the defaults for the rest.
    pub fn new(election: ElectionName, members: Members, algorithm: Algorithm, secret: Secret) -> GroupConfig {
        GroupConfig {
            election,
            members,
            algorithm,
            secret,
            link: LinkSettings::default(),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.link.check()
    }
}

/// All that a member has to be told.
#[derive(Clone)]
pub struct NodeConfig {
    /// The group.
    pub group: GroupConfig,
    /// Which of the members this is.
    pub me: MemberId,
    /// The algorithm's settings.
    pub rules: Rules,
    /// Where to listen, as `host:port`. `None`: at this member's address in the list.
    pub listen: Option<String>,
    /// What it proclaims when it leads.
    pub value: Bytes,
    /// How its candidate stands, if it has one from the start. A member without one still votes and
    /// answers.
    pub stands: Option<TermRules>,
    /// Where a consensus member writes down its votes: a directory of its own, made if it is
    /// missing.
    pub data: Option<PathBuf>,
    /// Is shown every message.
    pub trace: Option<Arc<dyn Trace>>,
    /// The clock of all deadlines.
    pub clock: Arc<dyn Clock>,
}

impl fmt::Debug for NodeConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeConfig")
            .field("group", &self.group)
            .field("me", &self.me)
            .field("rules", &self.rules)
            .field("listen", &self.listen)
            .field("stands", &self.stands)
            .field("data", &self.data)
            .finish_non_exhaustive()
    }
}

impl NodeConfig {
    /// With the defaults for the rest.
    pub fn new(group: GroupConfig, me: MemberId, rules: Rules) -> NodeConfig {
        NodeConfig {
            group,
            me,
            rules,
            listen: None,
            value: Bytes::new(),
            stands: Some(TermRules::default()),
            data: None,
            trace: None,
            clock: Arc::new(BootClock),
        }
    }

    /// Refuses what cannot work, and says why.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.group.check()?;
        self.group.members.group(self.me)?;
        self.rules.check()?;
        if self.rules.algorithm() != self.group.algorithm {
            return Err(ConfigError::Mixed { group: self.group.algorithm, rules: self.rules.algorithm() });
        }
        if let Some(listen) = &self.listen {
            check_address(listen)?;
        }
        match (&self.data, self.group.algorithm) {
            (None, Algorithm::Consensus) => return Err(ConfigError::NoData),
            (Some(_), Algorithm::Bully | Algorithm::Ring) => {
                return Err(ConfigError::NeedlessData { algorithm: self.group.algorithm });
            }
            _ => {}
        }
        check_value(&self.value).map_err(ConfigError::Value)
    }
}

/// Why settings are refused.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The list is empty.
    #[error("no members are listed: give them as NAME=HOST:PORT,NAME=HOST:PORT,... (1 to {MAX_MEMBERS})")]
    NoMembers,
    /// A name cannot be one.
    #[error("{name:?} cannot be a member's name: {why}")]
    Name {
        /// The name.
        name: String,
        /// Why.
        why: NameError,
    },
    /// Some names are numbers and some are not.
    #[error("either all names are numbers, which then number the members, or none is")]
    MixedNames,
    /// A number cannot be a member's.
    #[error("member {name}: numbers go from 0 to 65534")]
    Number {
        /// The member.
        name: String,
    },
    /// An address cannot be one.
    #[error("{address:?} is not an address: it has to be host:port")]
    Address {
        /// The address.
        address: String,
    },
    /// A name or an address is used by two.
    #[error("{member}: a name or an address is listed twice")]
    ListedTwice {
        /// The member.
        member: String,
    },
    /// The list makes no group.
    #[error(transparent)]
    Group(GroupError),
    /// There is no such algorithm.
    #[error("unknown algorithm {name:?}: use bully, ring or consensus")]
    Algorithm {
        /// What was asked for.
        name: String,
    },
    /// The settings are for another algorithm.
    #[error("this is a {group} group, and the settings are for {rules}")]
    Mixed {
        /// The group's.
        group: Algorithm,
        /// The settings'.
        rules: Algorithm,
    },
    /// The settings of a bully or ring election cannot work.
    #[error(transparent)]
    Rank(RankSettingsError),
    /// The settings of a consensus group cannot be safe.
    #[error(transparent)]
    Consensus(ConsensusSettingsError),
    /// The settings of connections cannot work.
    #[error("the settings of connections cannot work: {0}")]
    Link(&'static str),
    /// Votes have to be written down.
    #[error("a consensus member needs a directory of its own: a vote that is forgotten makes two leaders")]
    NoData,
    /// Nothing would be written there.
    #[error("a {algorithm} election writes nothing down: it takes no data directory")]
    NeedlessData {
        /// The algorithm.
        algorithm: Algorithm,
    },
    /// The value is too long.
    #[error(transparent)]
    Value(NameError),
    /// The secret is too short or too long.
    #[error("the secret has {bytes} bytes: it needs {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES}")]
    SecretLength {
        /// How long it is.
        bytes: usize,
    },
    /// The file cannot be read or made.
    #[error("the secret in {path:?}: {why}")]
    SecretFile {
        /// The file.
        path: PathBuf,
        /// Why.
        why: Arc<io::Error>,
    },
    /// Everybody can read it.
    #[error("{path:?} is not secret, everybody can read it: chmod 600 it")]
    SecretOpen {
        /// The file.
        path: PathBuf,
    },
    /// A certificate or key cannot be used.
    #[error("TLS: {0}")]
    Tls(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(algorithm: Algorithm) -> NodeConfig {
        let election = ElectionName::new("jobs/nightly").unwrap();
        let members = Members::parse("1=127.0.0.1:7001,2=127.0.0.1:7002").unwrap();
        let group = GroupConfig::new(election, members, algorithm, Secret::new([7; 16]).unwrap());
        NodeConfig::new(group, MemberId(1), Rules::defaults(algorithm))
    }

    fn refused(config: &NodeConfig, part: &str) {
        let why = config.check().unwrap_err().to_string();
        assert!(why.contains(part), "{why}");
    }

    #[test]
    fn what_cannot_work_is_refused_with_the_reason() {
        let bully = config(Algorithm::Bully);
        bully.check().unwrap();
        refused(&config(Algorithm::Consensus), "directory of its own");
        refused(&NodeConfig { data: Some("x".into()), ..bully.clone() }, "writes nothing down");
        refused(&NodeConfig { me: MemberId(3), ..bully.clone() }, "not in the list");
        refused(&NodeConfig { rules: Rules::defaults(Algorithm::Ring), ..bully.clone() }, "settings are for ring");
        refused(&NodeConfig { listen: Some("7001".into()), ..bully.clone() }, "host:port");
        refused(&NodeConfig { value: vec![0; 70_000].into(), ..bully.clone() }, "70000");
        let mut hasty = RankSettings::default();
        hasty.leader_timeout = Duration::from_millis(1);
        refused(&NodeConfig { rules: Rules::Bully(hasty), ..bully.clone() }, "cannot miss a heartbeat");
        let mut deaf = bully;
        deaf.group.link.silent_after = deaf.group.link.ping_every;
        refused(&deaf, "two pings");
    }

    #[test]
    fn algorithms_are_read_as_they_are_written() {
        for algorithm in [Algorithm::Bully, Algorithm::Ring, Algorithm::Consensus] {
            assert_eq!(algorithm.to_string().parse::<Algorithm>().unwrap(), algorithm);
        }
        assert!("raft".parse::<Algorithm>().unwrap_err().to_string().contains("bully, ring or consensus"));
    }
}
