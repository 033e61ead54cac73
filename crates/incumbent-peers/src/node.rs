//! One member of a group, as its process holds it.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use incumbent_core::peers::consensus::{Boot, PeerRole, Position};
use incumbent_core::peers::{Group, MemberId, PeerCommand};
use incumbent_core::{NameError, Rng, StoreId, Timestamp, check_value};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::config::{Algorithm, ConfigError, NodeConfig};
use crate::counters::Counters;
use crate::disk::{Disk, Found, Record};
use crate::founding::Founding;
use crate::link::dial::{Dialler, LAST_WORDS};
use crate::link::gate::Gate;
use crate::link::listen::Ear;
use crate::machine::{Happened, Machine};
use crate::members::Members;
use crate::orders::Order;
use crate::runner::{HeldDisk, Paper, Phase, Runner, Shared, View};
use crate::secret::random;
use crate::sink::Sink;
use crate::status::{NodeState, Stage};
use crate::trace::Meter;

/// How many messages of others wait for the runner. When it is full, connections are read no further.
const INBOUND: usize = 256;

/// One member. Dropping it closes its port and all connections at once, and says nothing to anybody: the others see it as
/// they would see a crash. [`Node::close`] leaves in order.
#[derive(Debug)]
pub struct Node {
    shared: Shared,
    members: Members,
    address: SocketAddr,
    state: watch::Receiver<NodeState>,
    tasks: Mutex<JoinSet<()>>,
    /// Ends when nobody holds the data directory any more.
    freed: tokio::sync::Mutex<mpsc::Receiver<()>>,
}

impl Node {
    /// Starts a member: it listens, and its directory is locked, when this returns.
    pub async fn start(config: NodeConfig, sink: Arc<dyn Sink>) -> Result<Node, StartError> {
        config.check()?;
        let own = config.group.members.get(config.me).map(|member| member.address.to_string());
        let at = config.listen.clone().or(own).unwrap_or_default();
        let listener = TcpListener::bind(&*at).await.map_err(|why| StartError::Listen { at, why })?;
        Node::begin(config, sink, listener).await
    }

    /// Starts a member on a socket that listens already.
    pub async fn start_on(
        config: NodeConfig,
        sink: Arc<dyn Sink>,
        listener: std::net::TcpListener,
    ) -> Result<Node, StartError> {
        config.check()?;
        let failed = |why| StartError::Listen { at: "the socket that was given".to_owned(), why };
        listener.set_nonblocking(true).map_err(failed)?;
        Node::begin(config, sink, TcpListener::from_std(listener).map_err(failed)?).await
    }

    async fn begin(config: NodeConfig, sink: Arc<dyn Sink>, listener: TcpListener) -> Result<Node, StartError> {
        let address = listener.local_addr().map_err(|why| StartError::Listen { at: "?".to_owned(), why })?;
        let group = config.group.members.group(config.me)?;
        let mut rng = Rng::from_seed(seed().map_err(StartError::Random)?);
        let meter = Arc::new(Meter::new(config.me, config.clock.clone(), config.trace.clone()));
        let line = Arc::new(Dialler::new(config.group.clone(), config.me, meter));
        let shared = Shared::new(&config, &group, &line);
        let (inbound, heard) = mpsc::channel(INBOUND);
        let (alive, freed) = mpsc::channel(1);
        let (state, watched) = watch::channel(first_state(&group));
        let start = Start { config: &config, group: &group, identity: &shared.identity };
        let (phase, paper) = start.phase(rng.fork(), alive).await?;
        let runner = Runner {
            shared: shared.clone(),
            members: config.group.members.clone(),
            group,
            rules: config.rules,
            sink,
            state,
            inbound: heard,
            alarm: config.clock.alarm().map_err(StartError::Alarm)?,
            rng: rng.fork(),
            phase,
            value: config.value.clone(),
            stands: config.stands,
            built_aside: !config.stands && !config.group.algorithm.is_fenced(),
            paper,
            view: View::default(),
        };
        let mut tasks = JoinSet::new();
        for (to, outbox) in shared.outboxes.iter() {
            tasks.spawn(Dialler::clone(&line).speak(*to, outbox.clone(), rng.fork()));
        }
        let gate = Arc::new(Gate::new(&config.group));
        tasks.spawn(Ear { line, gate, outboxes: shared.outboxes.clone(), inbound }.open(listener));
        tasks.spawn(runner.run());
        let (tasks, freed) = (Mutex::new(tasks), tokio::sync::Mutex::new(freed));
        Ok(Node { shared, members: config.group.members, address, state: watched, tasks, freed })
    }

    /// Which member this is.
    pub fn me(&self) -> MemberId {
        self.shared.me
    }

    /// The list of members.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// How the members elect.
    pub fn algorithm(&self) -> Algorithm {
        self.shared.algorithm
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it is and what it knows, now and as it changes.
    pub fn state(&self) -> watch::Receiver<NodeState> {
        self.state.clone()
    }

    /// Which founding of a consensus group it belongs to. A group that was wiped and founded anew is another one, and its
    /// tokens begin anew. `None` while it is not known, and for bully and ring.
    pub fn identity(&self) -> Option<StoreId> {
        self.shared.identity.get().cloned()
    }

    /// What has passed, in numbers.
    pub fn counters(&self) -> Counters {
        self.shared.meter.tally.snapshot()
    }

    /// The work of the term has stopped: gives the office back. `false`, here and below: the node has ended.
    pub fn release(&self) -> bool {
        self.command(PeerCommand::Release)
    }

    /// The work has stopped: hands the office to this member.
    /// [`TransferRefused`](incumbent_core::peers::PeerEvent::TransferRefused) or the end of the term follows.
    pub fn transfer(&self, heir: MemberId) -> bool {
        self.command(PeerCommand::Transfer(heir))
    }

    /// Advertises another value, at once if it leads.
    pub fn proclaim(&self, value: Bytes) -> Result<bool, NameError> {
        check_value(&value)?;
        Ok(self.command(PeerCommand::Proclaim(value)))
    }

    /// Whether it is fit to lead. One that is not leaves the office, and still votes.
    pub fn set_healthy(&self, fit: bool) -> bool {
        self.command(PeerCommand::Healthy(fit))
    }

    /// How far the application's records reach, durably.
    pub fn set_position(&self, position: Position) -> bool {
        self.shared.orders.push(Order::Position(position))
    }

    /// Somebody has seen a deadline pass: the machine looks at the clock now.
    pub fn look(&self) -> bool {
        self.shared.orders.push(Order::Look)
    }

    fn command(&self, command: PeerCommand) -> bool {
        self.shared.orders.push(Order::Command(command))
    }

    /// Leaves in order: the term ends as after a resignation, the last words are sent, and all is torn down, at
    /// the latest after `within`. Says whether it was in time.
    pub async fn close(&self, within: Duration) -> bool {
        let until = Instant::now() + within;
        self.command(PeerCommand::Close);
        let mut state = self.state.clone();
        // An error says that the runner has ended: then there is nothing left to wait for.
        let closed = timeout_at(until, state.wait_for(|state| state.stage == Stage::Closed)).await.is_ok();
        let words = async {
            for outbox in self.shared.outboxes.values() {
                outbox.idle().await;
            }
        };
        let _ = timeout_at(until.min(Instant::now() + LAST_WORDS), words).await;
        self.tear_down().await;
        closed
    }

    /// Ends at once, as dropping it does, and returns when the port and the directory are free.
    pub async fn kill(self) {
        self.tear_down().await;
    }

    async fn tear_down(&self) {
        let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        tasks.shutdown().await;
        self.freed.lock().await.recv().await;
    }
}

fn seed() -> io::Result<[u64; 4]> {
    let bytes: [u8; 32] = random()?;
    let (numbers, _) = bytes.as_chunks::<8>();
    Ok(std::array::from_fn(|at| u64::from_le_bytes(numbers[at])))
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
    async fn phase(&self, rng: Rng, alive: mpsc::Sender<()>) -> Result<(Phase, Option<Paper>), StartError> {
        let (now, config) = (self.config.clock.now(), self.config);
        let parts = (config.value.clone(), rng);
        let Some(path) = config.data.clone() else {
            let machine = Machine::rank(now, self.group.clone(), &config.rules, config.stands, parts)?;
            return Ok((machine.map_or(Phase::Over, Phase::Running), None));
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
                let mut machine = Machine::consensus(now, self.group.clone(), &config.rules, boot, parts)?;
                if !config.stands {
                    machine.handle(now, Happened::Command(PeerCommand::Healthy(false)));
                }
                Phase::Running(machine)
            }
        };
        let paper = Paper {
            disk,
            record,
            writing: None,
            next: None,
            ask_at: Timestamp::ZERO,
            mixed_up: false,
            // A group whose members are started together needs no word about it.
            remind_at: now + Duration::from_secs(5),
        };
        Ok((phase, Some(paper)))
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

    /// A new disk has its number written on it before anybody hears of it. What is damaged is left as it is.
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
