//! How many messages an election takes, by the counters of all members: in one process, over real
//! sockets.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use incumbent_bench::Table;
use incumbent_bench::members::{addresses, list};
use incumbent_bench::plot::Plot;
use incumbent_peers::{Algorithm, Command, Node, NodeEvent, NodeState, NodeView};
use incumbent_testkit::servers::Scratch;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::member;

/// Elections of each kind.
pub(crate) const ELECTIONS: usize = 5;
const SIZES: [u16; 4] = [3, 5, 9, 25];
const TIMEOUT: Duration = Duration::from_millis(1_500);
const PATIENCE: Duration = Duration::from_secs(120);
/// Not part of any algorithm.
const UPKEEP: [&str; 5] = ["ping", "pong", "query", "answer", "founding"];

/// A member in a task of its own.
struct Running {
    view: NodeView,
    kill: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    fn new(mut node: Node) -> Running {
        let view = node.view();
        let (kill, mut killed) = oneshot::channel();
        let task = tokio::spawn(async move {
            let mut work = member::Work::default();
            loop {
                tokio::select! {
                    event = node.event() => if let NodeEvent::Event(event) = event && work.stops(&event) {
                        node.command(Command::Release);
                    },
                    _ = &mut killed => return node.kill().await,
                }
            }
        });
        Running { view, kill, task }
    }

    async fn kill(self) {
        let _ = self.kill.send(());
        let _ = self.task.await;
    }
}

pub(crate) async fn count() -> (Table, Plot<3>) {
    let mut table = Table::new("Messages per election", &["members", "consensus", "of them votes", "bully", "ring"]);
    let mut plot = Plot::new("Messages per election", ["consensus", "bully", "ring"]);
    for size in SIZES {
        let (consensus, bully, ring) = tokio::join!(
            median(Algorithm::Consensus, size),
            median(Algorithm::Bully, size),
            median(Algorithm::Ring, size),
        );
        let all = [consensus.all, bully.all, ring.all].map(|count| count as f64);
        plot.group(format!("{size} members"), all);
        let cells = [u64::from(size), consensus.all, consensus.votes, bully.all, ring.all];
        table.row(cells.map(|number| number.to_string()));
    }
    (table, plot)
}

/// What one election took.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Messages {
    all: u64,
    votes: u64,
}

async fn median(algorithm: Algorithm, size: u16) -> Messages {
    let scratch = Scratch::new("bench-messages");
    let mut group = Group { algorithm, list: list(&addresses(size)), nodes: BTreeMap::new() };
    for who in 1..=size {
        group.start(who, scratch.path()).await;
    }
    let mut counts = Vec::new();
    for _ in 0..ELECTIONS {
        let leader = group.settled().await;
        group.nodes.remove(&leader).expect("it runs").kill().await;
        let before = group.sent();
        group.settled().await;
        let after = group.sent();
        counts.push(Messages { all: after.all - before.all, votes: after.votes - before.votes });
        group.start(leader, scratch.path()).await;
    }
    counts.sort_unstable();
    counts[counts.len() / 2]
}

struct Group {
    algorithm: Algorithm,
    list: String,
    nodes: BTreeMap<u16, Running>,
}

impl Group {
    async fn start(&mut self, who: u16, folder: &Path) {
        let group = member::group(self.algorithm, &self.list);
        let config = member::config(group, incumbent_peers::MemberId(who), TIMEOUT, folder);
        let node = Node::start(config).await.unwrap_or_else(|why| panic!("{why}"));
        self.nodes.insert(who, Running::new(node));
    }

    /// Waits until all that run follow one of them and take part, and says which.
    async fn settled(&self) -> u16 {
        let settled = async {
            loop {
                let mut leaders = BTreeMap::new();
                for node in self.nodes.values() {
                    let state = node.view.state();
                    let state = state.borrow();
                    *leaders.entry(leader(&state)).or_insert(0) += 1;
                }
                if let [(Some(leader), _)] = leaders.into_iter().collect::<Vec<_>>()[..]
                    && self.nodes.get(&leader).is_some_and(|node| node.view.state().borrow().office.is_some())
                {
                    return leader;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(PATIENCE, settled).await.expect("they agree in time")
    }

    /// What all that run have sent so far, the upkeep of connections aside.
    fn sent(&self) -> Messages {
        let counters: Vec<_> = self.nodes.values().map(|node| node.view.counters()).collect();
        let sum = |counts: &dyn Fn(&str) -> bool| {
            let kinds = counters.iter().flat_map(|counters| counters.kinds());
            kinds.filter(|(kind, ..)| counts(kind)).map(|(_, sent, _)| sent).sum()
        };
        Messages { all: sum(&|kind| !UPKEEP.contains(&kind)), votes: sum(&|kind| kind.contains("vote")) }
    }
}

/// Whom a member follows, if it takes part.
fn leader(state: &NodeState) -> Option<u16> {
    state.leader.as_ref().filter(|_| state.not_voting.is_none()).map(|leader| leader.member.0)
}
