//! One member of a group: its machine, its connections and its disk. It hands what happens to the
//! machine, and does what the machine says, in order. It decides nothing about elections.
//!
//! A [`Node`] has no task of its own: its owner polls it, and is told one thing at a time. What the
//! machine says after that is not done before the node is polled again, so a term that has ended is
//! over for everybody in this process before the message that lets another begin is sent.

mod persistence;
mod queries;
mod start;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use incumbent_core::peers::consensus::{PeerRole, Position, SealId};
use incumbent_core::peers::wire::{Body, Frame};
use incumbent_core::peers::{Abstention, Group, Input, MemberId, MemberMachine, OperatorRequest, Output, TermRules};
use incumbent_core::{Cas, Command, Event, Fault, LossReason, NameError, Rng, StoreId, Timestamp, Token, check_value};
use incumbent_store::{Alarm, Clock};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::config::{Algorithm, NodeConfig, Rules};
use crate::counters::Counters;
use crate::founding::Founding;
use crate::link::dial::{Dialler, LAST_WORDS};
use crate::link::listen::Inbound;
use crate::link::outbox::Outbox;
use crate::members::Members;
use crate::packet::Packet;
use crate::status::{Answer, HeldOffice, LeaderView, NodeState, Query, Stage};
use crate::trace::Meter;
use persistence::Persistence;
use queries::Reply;

pub use start::StartError;

/// How many messages are taken in before time is looked at again.
const BATCH: usize = 64;

/// What the one who has a node is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeEvent {
    /// An event. One that ends a term comes before the message that lets another begin is sent.
    Event(Event),
    /// Raise every fence to this token, then say [`Node::fences`].
    RaiseFences(Token),
    /// Drop the raise that is out, then say [`Node::fences`], too: not before nothing is left of
    /// it.
    GiveUpFences(Token),
    /// With [`positions`](incumbent_core::peers::consensus::ConsensusSettings::positions) only:
    /// refuse records of lower tokens from now on, durably, then read the position and say
    /// [`Node::sealed`]. Without an answer this member neither votes nor stands in that term.
    Seal(SealId, Token),
    /// The node has left. Nothing follows.
    Closed,
}

/// What a node shares with its connections.
#[derive(Clone, Debug)]
struct Shared {
    me: MemberId,
    algorithm: Algorithm,
    fingerprint: u64,
    outboxes: Arc<BTreeMap<MemberId, Arc<Outbox>>>,
    meter: Arc<Meter>,
    clock: Arc<dyn Clock>,
    identity: Arc<OnceLock<StoreId>>,
}

impl Shared {
    fn new(config: &NodeConfig, group: &Group, dialler: &Dialler) -> Shared {
        let link = config.group.link;
        let outbox = |to| (to, Arc::new(Outbox::new(to, link.queue, link.stale_after)));
        Shared {
            me: config.me,
            algorithm: config.group.algorithm,
            fingerprint: dialler.fingerprint,
            outboxes: Arc::new(group.others().map(outbox).collect()),
            meter: dialler.meter.clone(),
            clock: config.clock.clone(),
            identity: Arc::default(),
        }
    }
}

/// Where the member is in its life.
enum Phase {
    /// The group has not been founded.
    Forming(Founding),
    Running(MemberMachine),
    Over,
}

/// One member. Dropping it closes its port and all connections at once, and says nothing to
/// anybody: the others see it as they would see a crash. [`Node::close`] leaves in order.
///
/// It lives while it is polled: see [`Node::event`].
pub struct Node {
    shared: Shared,
    /// With their names.
    members: Members,
    address: SocketAddr,
    group: Group,
    rules: Rules,
    state: watch::Sender<NodeState>,
    inbound: mpsc::Receiver<Inbound>,
    alarm: Box<dyn Alarm>,
    rng: Rng,
    phase: Phase,
    value: Bytes,
    /// How the candidate stands, if there is one.
    candidate: Option<TermRules>,
    persistence: Option<Persistence>,
    view: View,
    /// Events that come from the node itself, not from its machine.
    events: VecDeque<NodeEvent>,
    tasks: JoinSet<()>,
    /// Ends when nobody holds the data directory any more.
    freed: mpsc::Receiver<()>,
}

/// What can be seen of a node. It keeps nothing alive.
#[derive(Clone, Debug)]
pub struct NodeView {
    shared: Shared,
    state: watch::Receiver<NodeState>,
}

impl NodeView {
    /// What the node is and what it knows, now and as it changes. It ends with the node.
    pub fn state(&self) -> watch::Receiver<NodeState> {
        self.state.clone()
    }

    /// What has passed, in numbers.
    pub fn counters(&self) -> Counters {
        self.shared.meter.tally.snapshot()
    }

    /// See [`Node::identity`].
    pub fn identity(&self) -> Option<StoreId> {
        self.shared.identity.get().cloned()
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("me", &self.shared.me).field("address", &self.address).finish_non_exhaustive()
    }
}

/// What this member knows of who leads, told by events.
#[derive(Default)]
struct View {
    leader: Option<LeaderView>,
    office: Option<HeldOffice>,
    not_voting: Option<Abstention>,
}

impl Node {
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

    /// What can be seen of it from elsewhere, while somebody else polls it.
    pub fn view(&self) -> NodeView {
        NodeView { shared: self.shared.clone(), state: self.state.subscribe() }
    }

    /// Which founding of a consensus group it belongs to. A group that was wiped and founded anew
    /// is another one, and its tokens begin anew. `None` while it is not known, and for bully and
    /// ring.
    pub fn identity(&self) -> Option<StoreId> {
        self.shared.identity.get().cloned()
    }

    /// This member has a candidate from now on. [`Command::Leave`] ends that, and [`Event::Done`]
    /// says so.
    pub fn stand(&mut self, rules: TermRules, value: Bytes) -> Result<(), NameError> {
        check_value(&value)?;
        self.candidate = Some(rules);
        self.value = value.clone();
        self.input(Input::Stand(rules, value));
        self.show_role();
        Ok(())
    }

    /// Shows the candidate of a group that has not been founded that nobody leads. Later the
    /// machine shows it whom it follows.
    pub(super) fn show_role(&mut self) {
        if let (Phase::Forming(_), Some(rules)) = (&self.phase, self.candidate) {
            self.events.push_back(NodeEvent::Event(match rules.unfit {
                false => Event::Follows { leader: None, term: None },
                true => Event::Out(LossReason::Unhealthy),
            }));
        }
    }

    /// What the user of the candidate wants.
    pub fn command(&mut self, command: Command) {
        match &command {
            Command::Proclaim(number, value) => {
                if check_value(value).is_err() {
                    return self.events.push_back(NodeEvent::Event(Event::Proclaimed(*number, Cas::Refused)));
                }
                self.value = value.clone();
            }
            Command::Healthy(healthy) => {
                if let Some(rules) = &mut self.candidate {
                    rules.unfit = !healthy;
                }
                self.show_role();
            }
            Command::Leave => {
                if let Phase::Forming(_) | Phase::Over = self.phase
                    && self.candidate.take().is_some()
                {
                    self.events.push_back(NodeEvent::Event(Event::Done { certain: true }));
                }
            }
            Command::Release | Command::Transfer(..) | Command::HandOver(_) => {}
            Command::Prepared(..) | Command::Unwell(_) | Command::Improving(_) | Command::Lapsed(_) => {}
        }
        self.input(Input::Command(command));
    }

    /// The answer to [`NodeEvent::RaiseFences`].
    pub fn fences(&mut self, token: Token, result: Result<(), Fault>) {
        self.input(Input::Fences(token, result));
    }

    /// The answer to [`NodeEvent::Seal`]: older tokens are refused from now on, durably, and the
    /// records reach this far.
    pub fn sealed(&mut self, seal: SealId, position: Position) {
        self.input(Input::Sealed(seal, position));
    }

    /// How far the application's records reach, durably.
    pub fn set_position(&mut self, position: Position) {
        self.input(Input::Position(position));
    }

    /// Leaves in order: the term ends as after a resignation, and the office is given back.
    /// [`NodeEvent::Closed`] follows, and then it is time for [`Node::shut`].
    pub fn close(&mut self) {
        match &self.phase {
            Phase::Running(machine) if machine.role() != PeerRole::Out => self.input(Input::Close),
            Phase::Running(_) | Phase::Forming(_) => self.end(),
            Phase::Over => {}
        }
    }

    /// Sends the last words, for a moment at most, and tears all down. The port and the directory
    /// are free when this returns.
    pub async fn shut(self) {
        let words = async {
            for outbox in self.shared.outboxes.values() {
                outbox.idle().await;
            }
        };
        let _ = timeout(LAST_WORDS, words).await;
        self.kill().await;
    }

    /// Ends at once, as dropping it does. The port and the directory are free when this returns.
    pub async fn kill(self) {
        let Node { mut tasks, mut freed, persistence, .. } = self;
        drop(persistence);
        tasks.shutdown().await;
        freed.recv().await;
    }

    /// Runs the member until there is something to tell. Safe to cancel. After
    /// [`NodeEvent::Closed`] it waits for ever.
    pub async fn event(&mut self) -> NodeEvent {
        poll_fn(|cx| self.poll_event(cx)).await
    }

    /// Runs the member for as long as something happens, or until there is something to tell.
    pub fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<NodeEvent> {
        let mut messages = 0;
        loop {
            if let Some(event) = self.next_event() {
                return Poll::Ready(event);
            }
            self.publish();
            if let Phase::Over = self.phase {
                return Poll::Pending;
            }
            self.alarm.set(self.next_timeout());
            // What has arrived is heard before time is: after a pause it may say that nobody was
            // silent.
            if messages < BATCH
                && let Poll::Ready(Some(said)) = self.inbound.poll_recv(cx)
            {
                messages += 1;
                self.on_inbound(said);
            } else if let Poll::Ready(written) = persistence::poll_written(&mut self.persistence, cx) {
                self.on_written(written);
            } else if self.alarm.poll_ring(cx).is_ready() {
                messages = 0;
                self.on_time();
            } else if messages < BATCH {
                return Poll::Pending;
            } else {
                messages = 0;
            }
        }
    }

    /// Does what the machine says, in order, up to the first thing that has to be told.
    fn next_event(&mut self) -> Option<NodeEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        while let Phase::Running(machine) = &mut self.phase
            && let Some(output) = machine.poll_output()
        {
            match output {
                Output::Send(to, body) => self.send(to, body),
                Output::Persist(id, stored) => self.persist(id, stored),
                Output::Seal(id, token) => return Some(NodeEvent::Seal(id, token)),
                Output::RaiseFences(token) => return Some(NodeEvent::RaiseFences(token)),
                Output::GiveUpFences(token) => return Some(NodeEvent::GiveUpFences(token)),
                Output::Event(event) => {
                    self.note(&event);
                    return Some(NodeEvent::Event(event));
                }
                Output::Closed => self.end(),
            }
        }
        self.events.pop_front()
    }

    fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    fn next_timeout(&self) -> Option<Timestamp> {
        match &self.phase {
            Phase::Forming(founding) => Some(founding.poll_timeout()),
            Phase::Running(machine) => {
                let ask =
                    self.persistence.as_ref().filter(|kept| kept.record.charter.is_none()).map(|kept| kept.ask_at);
                [machine.poll_timeout(), ask].into_iter().flatten().min()
            }
            Phase::Over => None,
        }
    }

    fn on_time(&mut self) {
        let now = self.now();
        match &mut self.phase {
            Phase::Forming(founding) => {
                if founding.on_time(now) {
                    let report = founding.report(true);
                    self.send_report(&report);
                    self.remind(now);
                }
            }
            Phase::Running(machine) => {
                if machine.poll_timeout().is_some_and(|due| now >= due) {
                    self.input(Input::Tick);
                }
                self.ask_for_charter(now);
            }
            Phase::Over => {}
        }
    }

    fn on_inbound(&mut self, said: Inbound) {
        match said {
            Inbound::Peer(from, body) => self.input(Input::Message(from, body)),
            Inbound::Founding(from, report) => self.on_report(from, &report),
            Inbound::Query(to, nonce, query) => {
                let reply = Reply { to, nonce, meter: self.shared.meter.clone() };
                match query {
                    Query::Status => reply.send(Answer::Status(Box::new(self.status()))),
                    Query::Resign => self.on_operator_request(OperatorRequest::Resign, reply),
                    Query::Transfer(heir) => self.on_operator_request(OperatorRequest::Transfer(heir), reply),
                    Query::Found => self.on_found(reply),
                    Query::Readmit => self.on_readmit(reply),
                }
            }
        }
    }

    /// Hands something to the machine, if there is one. What it says is done when the node is
    /// polled next.
    fn input(&mut self, input: Input<Body>) {
        let now = self.now();
        if let Phase::Running(machine) = &mut self.phase {
            machine.handle(now, input);
        }
    }

    fn send(&self, to: MemberId, body: Body) {
        let frame = Frame { group: self.shared.fingerprint, from: self.shared.me, body };
        if let Some(outbox) = self.shared.outboxes.get(&to) {
            outbox.push(Packet::Peer(frame), &self.shared.meter);
        }
    }

    /// Keeps what those who ask this member are told.
    fn note(&mut self, event: &Event) {
        let me = self.shared.me;
        match event {
            Event::Elected { title, deadline, .. } => {
                let token = title.token();
                self.view.office = Some(HeldOffice { token, deadline: *deadline });
                self.see_leader(Some(LeaderView { member: me, term: token, value: self.value.clone() }));
            }
            Event::Deadline(deadline) => {
                if let Some(office) = &mut self.view.office {
                    office.deadline = *deadline;
                }
            }
            Event::Unelected(_) => {
                self.view.office = None;
                self.see_leader(None);
            }
            Event::Proclaimed(_, Cas::Done) => {
                if let Some(leader) = self.view.leader.clone() {
                    self.see_leader(Some(LeaderView { value: self.value.clone(), ..leader }));
                }
            }
            Event::Led { leader, term, value } => {
                self.see_leader(Some(LeaderView { member: *leader, term: *term, value: value.clone() }));
            }
            Event::Vacant => self.see_leader(None),
            Event::NotVoting(why) => {
                tracing::warn!(member = %me, %why, "not voting");
                self.view.not_voting = Some(*why);
            }
            Event::Voting => self.view.not_voting = None,
            Event::Done { .. } => self.candidate = None,
            _ => {}
        }
    }

    fn see_leader(&mut self, leader: Option<LeaderView>) {
        self.view.leader = leader;
    }

    /// This member takes no part any more.
    fn end(&mut self) {
        self.phase = Phase::Over;
        self.publish();
        self.events.push_back(NodeEvent::Closed);
    }

    fn publish(&self) {
        let state = NodeState {
            stage: match &self.phase {
                Phase::Forming(founding) => Stage::Forming { missing: founding.missing() },
                Phase::Running(machine) => Stage::Member(machine.role()),
                Phase::Over => Stage::Closed,
            },
            term: self.term(),
            leader: self.view.leader.clone(),
            office: self.view.office,
            not_voting: self.view.not_voting,
        };
        self.state.send_if_modified(|known| {
            let changed = *known != state;
            *known = state;
            changed
        });
    }

    fn term(&self) -> u64 {
        if let Phase::Running(machine) = &self.phase { machine.term() } else { 0 }
    }
}
