//! A group in one process: its members on sockets of their own, perhaps with proxies between them.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use incumbent_core::{Command, ElectionName, Event, StoreId, Successor, Timestamp, Token};
use incumbent_peers::{
    Algorithm, ConsensusSettings, Counters, GroupConfig, LeaderView, Member, MemberId, Members, Node, NodeConfig,
    NodeEvent, NodeState, NodeView, Position, QueryClient, RankSettings, Rules, Secret, StartError, TermRules,
};
use incumbent_store::{BootClock, Clock};
use incumbent_testkit::{TempDir, free_port};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;

/// Long enough for the busiest machine. Nothing waits for it unless it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
pub(crate) const SECRET: &str = "a secret that the members share";

/// Waits for something that has to happen.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("timed out: {what}"),
    }
}

/// Who was in office when, by true time: all clocks of one process are the same. A term counts
/// until it ended or its deadline passed, whichever comes first.
#[derive(Default)]
pub(crate) struct Ledger(Mutex<Vec<Term>>);

#[derive(Clone, Debug)]
pub(crate) struct Term {
    pub(crate) member: MemberId,
    pub(crate) token: Option<Token>,
    pub(crate) from: Timestamp,
    pub(crate) deadline: Timestamp,
    pub(crate) until: Option<Timestamp>,
    /// Its work has not stopped, and whether it was asked to.
    at_work: bool,
    asked: bool,
}

impl Term {
    fn end(&self) -> Timestamp {
        self.until.unwrap_or(Timestamp::MAX).min(self.deadline)
    }
}

impl Ledger {
    pub(crate) fn terms(&self) -> Vec<Term> {
        self.0.lock().unwrap().clone()
    }

    /// Tokens grow from leader to leader, and no two are in office at a time.
    pub(crate) fn check(&self) {
        let terms = self.terms();
        for pair in terms.windows(2) {
            assert!(pair[0].token < pair[1].token, "{pair:?}");
            assert!(pair[0].end() <= pair[1].from, "{pair:?}");
        }
    }
}

/// A user that stops its work at once, and writes everything down.
pub(crate) struct User {
    member: MemberId,
    ledger: Arc<Ledger>,
    seen: Mutex<Vec<Event>>,
    /// The lowest token whose records are taken, and how far the records reach.
    pub(crate) sealed: Mutex<(u64, Position)>,
    pub(crate) changed: Notify,
    /// How often it was said that the node has left, or has ended otherwise.
    pub(crate) ended: AtomicU64,
}

impl User {
    pub(crate) fn saw(&self, what: impl Fn(&Event) -> bool) -> bool {
        self.seen.lock().unwrap().iter().any(what)
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.seen.lock().unwrap().clone()
    }

    /// Takes in what the node tells. `true`: the work has just stopped.
    fn hear(&self, event: Event) -> bool {
        let now = BootClock.now();
        let mut terms = self.ledger.0.lock().unwrap();
        let mine = terms.iter_mut().rev().find(|term| term.member == self.member && term.at_work);
        let mut stopped = false;
        match (&event, mine) {
            (Event::Elected { title, deadline, .. }, _) => {
                let (token, deadline) = (title.token(), *deadline);
                terms.push(Term {
                    member: self.member,
                    token,
                    from: now,
                    deadline,
                    until: None,
                    at_work: true,
                    asked: false,
                });
            }
            (Event::Deadline(deadline), Some(term)) => term.deadline = *deadline,
            (Event::Stopping { .. }, Some(term)) => stopped = !std::mem::replace(&mut term.asked, true),
            (Event::Unelected(_), Some(term)) => {
                term.until = Some(now);
                term.at_work = false;
                stopped = !term.asked;
            }
            _ => {}
        }
        drop(terms);
        self.seen.lock().unwrap().push(event);
        self.changed.notify_waiters();
        stopped
    }
}

/// A member that runs in a task of its own.
pub(crate) struct Peer {
    view: NodeView,
    orders: mpsc::UnboundedSender<Order>,
    task: JoinHandle<()>,
}

enum Order {
    Do(Box<dyn FnOnce(&mut Node) + Send>),
    Kill,
}

impl Peer {
    fn run(node: Node, user: Arc<User>) -> Peer {
        let (orders, ordered) = mpsc::unbounded_channel();
        let view = node.view();
        Peer { view, orders, task: tokio::spawn(live(node, ordered, user)) }
    }

    /// Whether there is somebody to hear it.
    fn order(&self, order: impl FnOnce(&mut Node) + Send + 'static) -> bool {
        self.orders.send(Order::Do(Box::new(order))).is_ok()
    }

    pub(crate) fn command(&self, command: Command) -> bool {
        self.order(|node| node.command(command))
    }

    pub(crate) fn transfer(&self, heir: MemberId) -> bool {
        self.command(Command::Transfer(Successor::Member(heir), PATIENCE))
    }

    pub(crate) fn proclaim(&self, value: Bytes) -> bool {
        self.command(Command::Proclaim(1, value))
    }

    pub(crate) fn set_healthy(&self, healthy: bool) -> bool {
        self.command(Command::Healthy(healthy))
    }

    pub(crate) fn stand(&self, value: Bytes) -> bool {
        self.order(|node| node.stand(TermRules::default(), value).unwrap())
    }

    pub(crate) fn set_position(&self, position: Position) -> bool {
        self.order(move |node| node.set_position(position))
    }

    pub(crate) fn state(&self) -> watch::Receiver<NodeState> {
        self.view.state()
    }

    pub(crate) fn counters(&self) -> Counters {
        self.view.counters()
    }

    pub(crate) fn identity(&self) -> Option<StoreId> {
        self.view.identity()
    }

    /// Leaves in order.
    pub(crate) async fn close(&mut self) {
        self.order(Node::close);
        let _ = (&mut self.task).await;
    }

    /// Ends it as a crash would.
    pub(crate) async fn kill(mut self) {
        let _ = self.orders.send(Order::Kill);
        let _ = (&mut self.task).await;
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Says, however the task ends, that it has.
struct Ends(Arc<User>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::SeqCst);
    }
}

async fn live(mut node: Node, mut orders: mpsc::UnboundedReceiver<Order>, user: Arc<User>) {
    let _ends = Ends(user.clone());
    loop {
        tokio::select! {
            event = node.event() => match event {
                NodeEvent::Event(event) => if user.hear(event) {
                    node.command(Command::Release);
                },
                NodeEvent::Seal(seal, token) => {
                    let mut sealed = user.sealed.lock().unwrap();
                    sealed.0 = sealed.0.max(token.get());
                    node.sealed(seal, sealed.1);
                }
                NodeEvent::RaiseFences(token) => node.fences(token, Ok(())),
                NodeEvent::GiveUpFences(_) => {}
                NodeEvent::Closed => return node.shut().await,
            },
            order = orders.recv() => match order {
                Some(Order::Do(order)) => order(&mut node),
                Some(Order::Kill) | None => return node.kill().await,
            },
        }
    }
}

/// One member that runs.
pub(crate) struct RunningMember {
    pub(crate) node: Peer,
    pub(crate) user: Arc<User>,
}

pub(crate) struct TestGroup {
    pub(crate) rules: Rules,
    pub(crate) members: Members,
    pub(crate) running: BTreeMap<MemberId, RunningMember>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) scratch: TempDir,
    /// How one member reaches another, where it is not the other's own address.
    pub(crate) ways: BTreeMap<(MemberId, MemberId), String>,
    /// How far the records of each member reach.
    pub(crate) positions: BTreeMap<MemberId, Position>,
    /// Sockets of members that have not been started.
    reserved: BTreeMap<MemberId, TcpListener>,
}

/// Fast enough for a test, and slow enough that a busy machine does not depose anybody all the
/// time.
pub(crate) fn rules(algorithm: Algorithm) -> Rules {
    let ms = Duration::from_millis;
    let mut rank = RankSettings::default();
    rank.heartbeat = ms(100);
    rank.leader_timeout = ms(1_500);
    rank.answer_timeout = ms(500);
    rank.grace = ms(300);
    let mut consensus = ConsensusSettings::default();
    consensus.election_min = ms(1_000);
    consensus.election_max = ms(2_000);
    consensus.heartbeat = ms(100);
    consensus.grace = ms(200);
    match algorithm {
        Algorithm::Bully => Rules::Bully(rank),
        Algorithm::Ring => Rules::Ring(rank),
        Algorithm::Consensus => Rules::Consensus(consensus),
    }
}

pub(crate) fn value_of(member: MemberId) -> Bytes {
    Bytes::from(format!("value of {member}"))
}

impl TestGroup {
    /// A group whose members have sockets, and do not run yet.
    pub(crate) fn new(algorithm: Algorithm, size: u16) -> TestGroup {
        let mut reserved = BTreeMap::new();
        let members = (1..=size).map(|number| {
            let listener = TcpListener::bind(("127.0.0.1", free_port())).unwrap();
            let address = listener.local_addr().unwrap().to_string();
            reserved.insert(MemberId(number), listener);
            Member { id: MemberId(number), name: format!("n{number}").into(), address: address.into() }
        });
        let members = Members::new(members.collect::<Vec<_>>()).unwrap();
        let (ledger, scratch) = (Arc::default(), TempDir::new("group"));
        TestGroup {
            rules: rules(algorithm),
            members,
            running: BTreeMap::new(),
            ledger,
            scratch,
            ways: BTreeMap::new(),
            positions: BTreeMap::new(),
            reserved,
        }
    }

    /// A group whose members all run.
    pub(crate) async fn start(algorithm: Algorithm, size: u16) -> TestGroup {
        let mut test_group = TestGroup::new(algorithm, size);
        for number in 1..=size {
            test_group.boot(number).await;
        }
        test_group
    }

    pub(crate) fn group_config(&self) -> GroupConfig {
        let election = ElectionName::new("jobs/nightly").unwrap();
        let secret = Secret::new(SECRET).unwrap();
        GroupConfig::new(election, self.members.clone(), self.rules.algorithm(), secret)
    }

    pub(crate) fn data(&self, number: u16) -> PathBuf {
        self.scratch.path().join(format!("member-{number}"))
    }

    pub(crate) fn config(&self, number: u16) -> NodeConfig {
        let mut config = NodeConfig::new(self.group_config(), MemberId(number), self.rules);
        config.value = value_of(MemberId(number));
        config.listen = self.members.get(MemberId(number)).map(|member| member.address.to_string());
        let members = self.members.iter().cloned().map(|mut member| {
            if let Some(way) = self.ways.get(&(MemberId(number), member.id)) {
                member.address = way.as_str().into();
            }
            member
        });
        config.group.members = Members::new(members).unwrap();
        config.data = (self.rules.algorithm() == Algorithm::Consensus).then(|| self.data(number));
        config
    }

    pub(crate) async fn boot(&mut self, number: u16) {
        let config = self.config(number);
        self.boot_with(config).await.unwrap();
    }

    pub(crate) async fn boot_with(&mut self, config: NodeConfig) -> Result<(), StartError> {
        let member = config.me;
        let user = Arc::new(User {
            member,
            ledger: self.ledger.clone(),
            seen: Mutex::default(),
            sealed: Mutex::new((0, self.positions.get(&member).copied().unwrap_or(Position::NONE))),
            changed: Notify::new(),
            ended: AtomicU64::new(0),
        });
        let node = match self.reserved.remove(&member) {
            Some(listener) => Node::start_on(config, listener).await?,
            None => Node::start(config).await?,
        };
        let node = Peer::run(node, user.clone());
        node.set_position(user.sealed.lock().unwrap().1);
        self.running.insert(member, RunningMember { node, user });
        Ok(())
    }

    /// Ends a member as a crash would.
    pub(crate) async fn kill(&mut self, member: MemberId) {
        let running = self.running.remove(&member).unwrap();
        running.node.kill().await;
        let mut terms = self.ledger.0.lock().unwrap();
        for term in terms.iter_mut().filter(|term| term.member == member && term.until.is_none()) {
            (term.until, term.at_work) = (Some(BootClock.now()), false);
        }
    }

    pub(crate) fn node(&self, member: MemberId) -> &Peer {
        &self.running[&member].node
    }

    pub(crate) fn user(&self, member: MemberId) -> &User {
        &self.running[&member].user
    }

    /// Waits until a member's state is as wanted.
    pub(crate) async fn until(&self, member: MemberId, what: &str, wanted: impl Fn(&NodeState) -> bool) -> NodeState {
        let mut state = self.node(member).state();
        let seen = within(&format!("{what} at member {member}"), state.wait_for(|state| wanted(state))).await;
        seen.expect("the node runs").clone()
    }

    /// Waits until somebody is in office and all that run know it; answers who, as they see it.
    pub(crate) async fn agreed(&self) -> LeaderView {
        self.agreed_on("a leader that all know", |_| true).await
    }

    /// The same, for a leader that is as wanted.
    pub(crate) async fn agreed_on(&self, what: &str, wanted: impl Fn(&LeaderView) -> bool) -> LeaderView {
        within(what, async {
            let mut states: Vec<_> = self.running.values().map(|running| running.node.state()).collect();
            loop {
                let seen: Vec<_> = states.iter_mut().map(|state| state.borrow_and_update().clone()).collect();
                let leaders: Vec<_> = self.running.keys().zip(&seen).filter(|(_, state)| state.leads()).collect();
                if let [(leader, _)] = leaders[..]
                    && let Some(view) = seen[0].leader.clone()
                    && view.member == *leader
                    && wanted(&view)
                    && seen.iter().all(|state| state.leader.as_ref() == Some(&view))
                {
                    return view;
                }
                let changes = states.iter_mut().map(|state| Box::pin(state.changed()));
                futures_util::future::select_all(changes).await.0.expect("the node runs");
            }
        })
        .await
    }

    pub(crate) fn query_client(&self) -> QueryClient {
        QueryClient::new(self.query_config()).unwrap()
    }

    /// For someone who asks, and has the patience to wait for a member that is starved.
    pub(crate) fn query_config(&self) -> GroupConfig {
        let mut config = self.group_config();
        config.link.dial_timeout = PATIENCE;
        config.link.handshake_timeout = PATIENCE;
        config.link.answer_timeout = PATIENCE;
        config
    }

    pub(crate) fn others(&self, member: MemberId) -> Vec<MemberId> {
        self.running.keys().copied().filter(|other| *other != member).collect()
    }
}

/// Waits until a counter of a node has reached a number.
pub(crate) async fn counted(node: &Peer, what: &str, wanted: impl Fn(&Counters) -> bool) {
    within(what, async {
        while !wanted(&node.counters()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
