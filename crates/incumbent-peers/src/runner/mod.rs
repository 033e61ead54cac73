//! The task that runs one member: it hands what happens to the machine, and does what the machine says, in order. It decides
//! nothing about elections.

mod papers;
mod questions;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use incumbent_core::peers::consensus::PeerRole;
use incumbent_core::peers::wire::{Body, Frame};
use incumbent_core::peers::{Abstention, Group, MemberId, PeerCommand, PeerEvent};
use incumbent_core::{Rng, StoreId, Timestamp};
use incumbent_store::{Alarm, Clock};
use tokio::sync::{mpsc, watch};

use crate::config::{Algorithm, NodeConfig, Rules};
use crate::founding::Founding;
use crate::link::dial::Dialler;
use crate::link::listen::Inbound;
use crate::link::outbox::Outbox;
use crate::machine::{Act, Happened, Machine};
use crate::members::Members;
use crate::orders::{Order, Orders};
use crate::packet::Packet;
use crate::sink::{Reply, Sealing, Sink, Wish};
use crate::status::{Answer, LeaderView, NodeState, Office, Query, Stage};
use crate::trace::Meter;
use papers::written;

pub(crate) use papers::{HeldDisk, Paper};

/// How many messages are taken in before time is looked at again.
const BATCH: usize = 64;

/// What the runner shares with the node's handle and with the connections.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) me: MemberId,
    pub(crate) algorithm: Algorithm,
    pub(crate) fingerprint: u64,
    pub(crate) outboxes: Arc<BTreeMap<MemberId, Arc<Outbox>>>,
    pub(crate) orders: Arc<Orders>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) identity: Arc<OnceLock<StoreId>>,
}

impl Shared {
    pub(crate) fn new(config: &NodeConfig, group: &Group, line: &Dialler) -> Shared {
        let link = config.group.link;
        let outbox = |to| (to, Arc::new(Outbox::new(to, link.queue, link.stale_after)));
        Shared {
            me: config.me,
            algorithm: config.group.algorithm,
            fingerprint: line.fingerprint,
            outboxes: Arc::new(group.others().map(outbox).collect()),
            orders: Arc::default(),
            meter: line.meter.clone(),
            clock: config.clock.clone(),
            identity: Arc::default(),
        }
    }
}

/// Where the member is in its life.
pub(crate) enum Phase {
    /// The group has not been founded.
    Forming(Founding),
    Running(Machine),
    Over,
}

pub(crate) struct Runner {
    pub(crate) shared: Shared,
    /// With their names.
    pub(crate) members: Members,
    pub(crate) group: Group,
    pub(crate) rules: Rules,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) state: watch::Sender<NodeState>,
    pub(crate) inbound: mpsc::Receiver<Inbound>,
    pub(crate) alarm: Box<dyn Alarm>,
    pub(crate) rng: Rng,
    pub(crate) phase: Phase,
    pub(crate) value: Bytes,
    pub(crate) stands: bool,
    /// Whether a bully or ring machine was built for one who does not stand.
    pub(crate) built_aside: bool,
    pub(crate) paper: Option<Paper>,
    pub(crate) view: View,
}

/// What this member knows of who leads, told by events.
#[derive(Default)]
pub(crate) struct View {
    leader: Option<LeaderView>,
    office: Option<Office>,
    not_voting: Option<Abstention>,
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.shared.orders.close();
        self.sink.ended();
    }
}

impl Runner {
    /// Runs until the member has left, or the task is dropped.
    pub(crate) async fn run(mut self) {
        self.act_all();
        if let Phase::Forming(_) = self.phase {
            self.on_forming();
        }
        loop {
            self.publish();
            if let Phase::Over = self.phase {
                return;
            }
            self.alarm.set(self.next_timeout());
            tokio::select! {
                biased;
                Some(said) = self.inbound.recv() => {
                    self.on_inbound(said);
                    for _ in 1..BATCH {
                        let Ok(said) = self.inbound.try_recv() else { break };
                        self.on_inbound(said);
                    }
                }
                () = self.shared.orders.filled() => {}
                written = written(&mut self.paper) => self.on_written(written),
                () = poll_fn(|cx| self.alarm.poll_ring(cx)) => {}
            }
            while let Some(order) = self.shared.orders.take() {
                self.on_order(order);
            }
            self.on_time();
        }
    }

    fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    fn next_timeout(&self) -> Option<Timestamp> {
        match &self.phase {
            Phase::Forming(founding) => Some(founding.poll_timeout()),
            Phase::Running(machine) => {
                let ask = self.paper.as_ref().filter(|paper| paper.record.charter.is_none()).map(|paper| paper.ask_at);
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
                    let census = founding.census(true);
                    self.say_census(&census);
                    self.remind(now);
                }
            }
            Phase::Running(machine) => {
                if machine.poll_timeout().is_some_and(|due| now >= due) {
                    self.input(Happened::Tick);
                }
                self.ask_for_charter(now);
            }
            Phase::Over => {}
        }
    }

    fn on_order(&mut self, order: Order) {
        match order {
            Order::Look => self.input(Happened::Tick),
            Order::Position(position) => self.input(Happened::Position(position)),
            Order::Sealed(id, position) => self.input(Happened::Sealed(id, position)),
            Order::Command(command) => self.on_command(command),
        }
    }

    fn on_command(&mut self, command: PeerCommand) {
        match &command {
            PeerCommand::Proclaim(value) => {
                self.value = value.clone();
                if self.view.office.is_some()
                    && let Some(leader) = &mut self.view.leader
                {
                    leader.value = value.clone();
                }
            }
            PeerCommand::Healthy(fit) => {
                self.stands = *fit;
                if *fit && self.built_aside {
                    return self.build_rank();
                }
            }
            PeerCommand::Close => {
                let idle = match &self.phase {
                    Phase::Running(machine) => machine.role() == PeerRole::Out,
                    Phase::Forming(_) => true,
                    Phase::Over => false,
                };
                if idle {
                    return self.on_event(PeerEvent::Closed);
                }
            }
            PeerCommand::Release | PeerCommand::Transfer(_) | PeerCommand::Readmit => {}
        }
        self.input(Happened::Command(command));
    }

    /// A bully or ring member begins to stand: as if it had just been started, for it has nothing to remember.
    fn build_rank(&mut self) {
        self.built_aside = false;
        let parts = (self.value.clone(), self.rng.fork());
        match Machine::rank(self.now(), self.group.clone(), &self.rules, true, parts) {
            Ok(Some(machine)) => {
                self.phase = Phase::Running(machine);
                self.act_all();
            }
            // The same settings have been accepted before.
            Ok(None) | Err(_) => self.input(Happened::Command(PeerCommand::Healthy(true))),
        }
    }

    fn on_inbound(&mut self, said: Inbound) {
        match said {
            Inbound::Peer(from, body) => self.input(Happened::Said(from, body)),
            Inbound::Founding(from, census) => self.on_census(from, &census),
            Inbound::Query(to, nonce, query) => {
                let reply = Reply { to, nonce, meter: self.shared.meter.clone() };
                match query {
                    Query::Status => reply.send(Answer::Status(Box::new(self.status()))),
                    Query::Resign => self.on_wish(Wish::Resign, reply),
                    Query::Transfer(heir) => self.on_wish(Wish::Transfer(heir), reply),
                    Query::Found => self.on_found(reply),
                    Query::Readmit => self.on_readmit(reply),
                }
            }
        }
    }

    /// Hands something to the machine, if there is one, and does what it says.
    fn input(&mut self, happened: Happened) {
        let now = self.now();
        if let Phase::Running(machine) = &mut self.phase {
            machine.handle(now, happened);
            self.act_all();
        }
    }

    fn act_all(&mut self) {
        while let Phase::Running(machine) = &mut self.phase
            && let Some(act) = machine.poll_output()
        {
            match act {
                Act::Send(to, body) => self.send(to, body),
                Act::Persist(id, stored) => self.persist(id, stored),
                Act::Seal(id, token) => self.sink.seal(token, Sealing::new(id, self.shared.orders.clone())),
                Act::Event(event) => self.on_event(event),
            }
        }
    }

    fn send(&self, to: MemberId, body: Body) {
        let frame = Frame { group: self.shared.fingerprint, from: self.shared.me, body };
        if let Some(outbox) = self.shared.outboxes.get(&to) {
            outbox.push(Packet::Peer(frame), &self.shared.meter);
        }
    }

    fn on_event(&mut self, event: PeerEvent) {
        let now = self.now();
        // First of all: whoever believes that it leads must stop before another may begin.
        self.sink.event(now, event.clone());
        let me = self.shared.me;
        match event {
            PeerEvent::Elected { token, deadline } => {
                self.view.office = Some(Office { token, deadline });
                self.see_leader(Some(LeaderView { member: me, term: token, value: self.value.clone() }));
            }
            PeerEvent::Deadline(deadline) => {
                if let Some(office) = &mut self.view.office {
                    office.deadline = deadline;
                }
            }
            PeerEvent::Unelected(_) => {
                self.view.office = None;
                self.see_leader(None);
            }
            PeerEvent::NewLeader { leader, term, value } => {
                self.see_leader(Some(LeaderView { member: leader, term, value }));
            }
            PeerEvent::Vacant => self.see_leader(None),
            PeerEvent::NotVoting(why) => {
                tracing::warn!(member = %me, %why, "not voting");
                self.view.not_voting = Some(why);
            }
            PeerEvent::Voting => self.view.not_voting = None,
            PeerEvent::Closed => self.phase = Phase::Over,
            PeerEvent::Stopping { .. } | PeerEvent::TransferRefused(_) => {}
        }
    }

    fn see_leader(&mut self, leader: Option<LeaderView>) {
        self.view.leader = leader;
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
