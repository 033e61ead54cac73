//! One member of a group as a process of its own. It writes down everything that it is told, with the time, before anything
//! else can happen; it stops its work at once, and does what operators ask.
//!
//! What is written is what the tests judge: a line per event, in a file that only grows.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's own program: what fails shows in its log")]

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use incumbent_core::peers::{PeerFlaw, PeerFlaws};
use incumbent_core::{ElectionName, Timestamp, Token};
use incumbent_peers::{
    Algorithm, ConsensusSettings, GroupConfig, LinkSettings, MemberId, Members, Node, NodeConfig, OperatorRequest,
    PeerEvent, RankSettings, Rules, Secret, Sink, Wish,
};
use incumbent_store::{BootClock, Clock as _};
use tokio::sync::mpsc;

/// What the sink wants of the node, which it does not have.
enum Order {
    Release,
    Transfer(MemberId),
}

struct Diary {
    file: File,
    life: u32,
    orders: mpsc::Sender<Order>,
}

impl Diary {
    fn write(&self, at: Timestamp, what: &str) {
        let line = format!("{} {} {what}\n", at.as_nanos(), self.life);
        // One write, so that whoever kills us leaves whole lines.
        (&self.file).write_all(line.as_bytes()).expect("the diary takes it");
    }
}

impl Sink for Diary {
    fn event(&self, now: Timestamp, event: PeerEvent) {
        let term = |term: Option<Token>| term.map_or(0, Token::get);
        match event {
            PeerEvent::Elected { token, deadline } => {
                self.write(now, &format!("elected {} {}", term(token), deadline.as_nanos()));
            }
            PeerEvent::Deadline(deadline) => self.write(now, &format!("deadline {}", deadline.as_nanos())),
            PeerEvent::Stopping { why, .. } => {
                self.write(now, &format!("stopping {why:?}"));
                let _ = self.orders.try_send(Order::Release);
            }
            // The office is believed in until here, not until the machine's last look at the clock.
            PeerEvent::Unelected(why) => self.write(BootClock.now(), &format!("unelected {why:?}")),
            PeerEvent::NewLeader { leader, term: of, .. } => {
                self.write(now, &format!("leader {leader} {}", term(of)));
            }
            PeerEvent::Vacant => self.write(now, "vacant"),
            other => self.write(now, &format!("note {other:?}")),
        }
    }

    fn request(&self, request: OperatorRequest) {
        let order = match request.what {
            Wish::Resign => Order::Release,
            Wish::Transfer(heir) => Order::Transfer(heir),
        };
        if self.orders.try_send(order).is_ok() {
            request.accept();
        }
    }
}

/// One that is wrong on purpose shows that the tests look.
fn flaws(name: &str) -> PeerFlaws {
    let flaw = PeerFlaw::ALL.into_iter().find(|flaw| format!("{flaw:?}") == name);
    flaw.map_or(PeerFlaws::NONE, PeerFlaws::only)
}

/// Short, so that much happens in little time.
fn rules(algorithm: Algorithm, flaws: PeerFlaws) -> Rules {
    let ms = Duration::from_millis;
    let ranks = RankSettings {
        heartbeat: ms(100),
        leader_timeout: ms(600),
        answer_timeout: ms(250),
        grace: ms(100),
        ..RankSettings::default()
    };
    match algorithm {
        Algorithm::Bully => Rules::Bully(ranks),
        Algorithm::Ring => Rules::Ring(ranks),
        Algorithm::Consensus => Rules::Consensus(ConsensusSettings {
            election_min: ms(600),
            election_max: ms(1_200),
            heartbeat: ms(100),
            margin: ms(20),
            grace: ms(100),
            flaws,
            ..ConsensusSettings::default()
        }),
    }
}

fn config([algorithm, flaw, me, members, listen, folder]: &[String; 6]) -> NodeConfig {
    let folder = Path::new(folder);
    let algorithm: Algorithm = algorithm.parse().unwrap();
    let secret = Secret::read(&folder.join("secret")).unwrap();
    let members = Members::parse(members).unwrap();
    let mut group = GroupConfig::new(ElectionName::new("processes").unwrap(), members, algorithm, secret);
    group.link = LinkSettings {
        ping_every: Duration::from_millis(300),
        silent_after: Duration::from_millis(1_500),
        backoff_max: Duration::from_millis(300),
        ..LinkSettings::default()
    };
    let mut config = NodeConfig::new(group, MemberId(me.parse().unwrap()), rules(algorithm, flaws(flaw)));
    config.listen = Some(listen.clone());
    config.data = algorithm.is_fenced().then(|| folder.join(format!("data-{me}")));
    config.value = format!("value of {me}").into();
    config
}

async fn live(config: NodeConfig, file: File) {
    let (orders, mut ordered) = mpsc::channel(16);
    let diary = Diary { file, life: std::process::id(), orders };
    diary.write(BootClock.now(), "started");
    let node = Node::start(config, Arc::new(diary)).await.unwrap_or_else(|why| panic!("{why}"));
    while let Some(order) = ordered.recv().await {
        match order {
            Order::Release => node.release(),
            Order::Transfer(heir) => node.transfer(heir),
        };
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args = args.try_into().expect("ALGORITHM FLAW NUMBER MEMBERS LISTEN FOLDER");
    let [_, _, me, _, _, folder] = &args;
    let diary = Path::new(folder).join(format!("diary-{me}"));
    let file = OpenOptions::new().append(true).create(true).open(diary).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(live(config(&args), file));
}
