//! How a member starts: its socket, its directory, and what it finds there.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use incumbent_core::peers::bully::Bully;
use incumbent_core::peers::consensus::{Boot, Consensus, PeerRole};
use incumbent_core::peers::ring::Ring;
use incumbent_core::peers::{Group, MemberId, MemberMachine};
use incumbent_core::{Rng, StoreId, Timestamp};
use incumbent_store::random_words;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::persistence::{HeldDisk, Persistence};
use super::{Node, Phase, Shared, View};
use crate::config::{Algorithm, ConfigError, NodeConfig, Rules};
use crate::disk::{Disk, Found, Record};
use crate::founding::Founding;
use crate::link::dial::Dialler;
use crate::link::limit::ConnectionLimit;
use crate::link::listen::Listener;
use crate::status::{NodeState, Stage};
use crate::trace::Meter;

/// How many messages of others wait for the node. When it is full, connections are read no further.
const INBOUND: usize = 256;

impl Node {
    /// Starts a member: it listens, and its directory is locked, when this returns.
    pub async fn start(config: NodeConfig) -> Result<Node, StartError> {
        config.check()?;
        let own = config.group.members.get(config.me).map(|member| member.address.to_string());
        let at = config.listen.clone().or(own).unwrap_or_default();
        let listener = TcpListener::bind(&*at).await.map_err(|why| StartError::Listen { at, why })?;
        Node::begin(config, listener).await
    }

    /// Starts a member on a socket that listens already.
    pub async fn start_on(config: NodeConfig, listener: std::net::TcpListener) -> Result<Node, StartError> {
        config.check()?;
        let failed = |why| StartError::Listen { at: "the socket that was given".to_owned(), why };
        listener.set_nonblocking(true).map_err(failed)?;
        Node::begin(config, TcpListener::from_std(listener).map_err(failed)?).await
    }

    async fn begin(config: NodeConfig, listener: TcpListener) -> Result<Node, StartError> {
        let address = listener.local_addr().map_err(|why| StartError::Listen { at: "?".to_owned(), why })?;
        let group = config.group.members.group(config.me)?;
        let mut rng = Rng::from_seed(random_words().map_err(StartError::Random)?);
        let meter = Arc::new(Meter::new(config.me, config.clock.clone(), config.trace.clone()));
        let dialler = Arc::new(Dialler::new(config.group.clone(), config.me, meter));
        let shared = Shared::new(&config, &group, &dialler);
        let (inbound, heard) = mpsc::channel(INBOUND);
        let (alive, freed) = mpsc::channel(1);
        let (state, _) = watch::channel(first_state(&group));
        let start = Start { config: &config, group: &group, identity: &shared.identity };
        let (phase, persistence) = start.phase(rng.fork(), alive).await?;
        let alarm = config.clock.alarm().map_err(StartError::Alarm)?;
        let mut tasks = JoinSet::new();
        for (to, outbox) in shared.outboxes.iter() {
            tasks.spawn(Dialler::clone(&dialler).speak(*to, outbox.clone(), rng.fork()));
        }
        let limit = Arc::new(ConnectionLimit::new(&config.group));
        tasks.spawn(Listener { dialler, limit, outboxes: shared.outboxes.clone(), inbound }.run(listener));
        let mut node = Node {
            shared,
            members: config.group.members,
            address,
            group,
            rules: config.rules,
            state,
            inbound: heard,
            alarm,
            rng,
            phase,
            value: config.value,
            candidate: config.stands,
            persistence,
            view: View::default(),
            events: VecDeque::new(),
            tasks,
            freed,
        };
        node.show_role();
        node.on_forming();
        Ok(node)
    }
}

fn first_state(group: &Group) -> NodeState {
    NodeState {
        stage: Stage::Forming { missing: group.others().collect() },
        term: 0,
        leader: None,
        office: None,
        not_voting: None,
    }
}

/// What a member finds at its start, and what it becomes.
struct Start<'a> {
    config: &'a NodeConfig,
    group: &'a Group,
    identity: &'a OnceLock<StoreId>,
}

impl Start<'_> {
    async fn phase(&self, rng: Rng, alive: mpsc::Sender<()>) -> Result<(Phase, Option<Persistence>), StartError> {
        let (now, config) = (self.config.clock.now(), self.config);
        let parts = ((config.stands, config.value.clone()), rng);
        let Some(path) = config.data.clone() else {
            return Ok((Phase::Running(rank(now, self.group.clone(), &config.rules, parts)?), None));
        };
        let fingerprint = config.group.members.fingerprint(config.group.election.as_str());
        let (me, at) = (config.me, path.clone());
        let open = tokio::task::spawn_blocking(move || Disk::open(&at, fingerprint, me)).await;
        let (disk, found) = open.map_err(|why| StartError::Data { path, why: io::Error::other(why) })??;
        let (record, boot) = self.boot(found)?;
        let disk: HeldDisk = Arc::new((disk, alive));
        self.write_first(&disk, &record, boot).await?;
        let phase = match boot {
            None => {
                let (disk, charter) = (record.disk, record.charter.clone());
                Phase::Forming(Founding::new(now, self.group.clone(), disk, charter, config.rules.heartbeat()))
            }
            Some(boot) => {
                if let Some(charter) = &record.charter {
                    let _ = self.identity.set(charter.identity(fingerprint));
                }
                let machine = consensus(now, self.group.clone(), &config.rules, boot, parts)?;
                Phase::Running(machine)
            }
        };
        let persistence = Persistence {
            disk,
            record,
            writing: None,
            next: None,
            ask_at: Timestamp::ZERO,
            mixed_up: false,
            // A group whose members are started together needs no word about it.
            remind_at: now + Duration::from_secs(5),
        };
        Ok((phase, Some(persistence)))
    }

    /// What the disk says about how to start. `None`: the group may have to be founded first.
    fn boot(&self, found: Found) -> Result<(Record, Option<Boot>), StartError> {
        let blank = || Disk::new_id().map(|disk| Record { disk, charter: None, stored: None });
        Ok(match found {
            Found::Record(record @ Record { stored: Some(stored), .. }) => (record, Some(Boot::Restarted(stored))),
            Found::Record(record) => (record, None),
            Found::Nothing => (blank().map_err(StartError::Random)?, None),
            Found::Damaged(why) => {
                tracing::error!(
                    why,
                    "the state is damaged: this member does not vote until all others have told it the term"
                );
                (blank().map_err(StartError::Random)?, Some(Boot::Lost))
            }
        })
    }

    /// A new disk has its number written on it before anybody hears of it. What is damaged is left
    /// as it is.
    async fn write_first(&self, disk: &HeldDisk, record: &Record, boot: Option<Boot>) -> Result<(), StartError> {
        if boot.is_some() {
            return Ok(());
        }
        let path = self.config.data.clone().unwrap_or_default();
        let (disk, record) = (disk.clone(), record.clone());
        let written = tokio::task::spawn_blocking(move || disk.0.write(&record)).await;
        written.unwrap_or_else(|why| Err(io::Error::other(why))).map_err(|why| StartError::Data { path, why })
    }
}

/// How the candidate stands, what it advertises, and the randomness of the machine.
type Parts = ((Option<incumbent_core::peers::TermRules>, bytes::Bytes), Rng);

/// A bully or ring member that starts now.
fn rank(now: Timestamp, group: Group, rules: &Rules, (candidate, rng): Parts) -> Result<MemberMachine, ConfigError> {
    match rules {
        Rules::Bully(rules) => Bully::new(now, group, *rules, candidate, rng)
            .map(|machine| MemberMachine::Bully(Box::new(machine)))
            .map_err(ConfigError::Rank),
        Rules::Ring(rules) => Ring::new(now, group, *rules, candidate, rng)
            .map(|machine| MemberMachine::Ring(Box::new(machine)))
            .map_err(ConfigError::Rank),
        Rules::Consensus(_) => Err(ConfigError::Mixed { group: Algorithm::Bully, rules: Algorithm::Consensus }),
    }
}

/// A consensus member that starts now.
pub(super) fn consensus(
    now: Timestamp,
    group: Group,
    rules: &Rules,
    boot: Boot,
    (candidate, rng): Parts,
) -> Result<MemberMachine, ConfigError> {
    let Rules::Consensus(settings) = rules else {
        return Err(ConfigError::Mixed { group: Algorithm::Consensus, rules: rules.algorithm() });
    };
    let machine = Consensus::new(now, group, *settings, boot, candidate, rng).map_err(ConfigError::Consensus)?;
    Ok(MemberMachine::Consensus(Box::new(machine)))
}

/// Why a member cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Its settings cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// It cannot listen.
    #[error("cannot listen at {at}: {why}")]
    Listen {
        /// Where.
        at: String,
        /// Why.
        #[source]
        why: io::Error,
    },
    /// Its directory cannot be used.
    #[error("the data directory {path:?}: {why}")]
    Data {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        why: io::Error,
    },
    /// Another process uses its directory.
    #[error(
        "the data directory {path:?} is in use: one process runs one member, wherever it listens; a group of its own needs \
         other names, or directories of its own"
    )]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// Its directory belongs to somebody else.
    #[error(
        "the data directory {path:?} belongs to member {member} of {}: give each member a directory of its own, and a group with another \
         list of members a new one everywhere",
        if *.same_group { "this group" } else { "another group or election" }
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        member: MemberId,
        /// Whether it is of the same group.
        same_group: bool,
    },
    /// There is no timer.
    #[error("cannot make a timer: {0}")]
    Alarm(#[source] io::Error),
    /// There are no random numbers.
    #[error("the kernel gives no random numbers: {0}")]
    Random(#[source] io::Error),
}

/// What a member does at present, for those who look at [`NodeState`].
impl NodeState {
    /// Whether this member is in office.
    pub fn leads(&self) -> bool {
        self.office.is_some()
    }

    /// Its role, once it is a member.
    pub fn role(&self) -> Option<PeerRole> {
        match self.stage {
            Stage::Member(role) => Some(role),
            Stage::Forming { .. } | Stage::Closed => None,
        }
    }
}
