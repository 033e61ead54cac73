//! One member of a group as a process of its own. It writes down everything that it is told, with
//! the time, before anything else can happen; it stops its work at once, and does what operators
//! ask.
//!
//! What is written is what the tests judge: a line per event, in a file that only grows.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's own program: what fails shows in its log")]

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use incumbent_core::peers::{ConsensusFlaw, ConsensusPolicy};
use incumbent_core::{Command, ElectionName, Event, Timestamp, Token};
use incumbent_peers::{
    Algorithm, ConsensusSettings, GroupConfig, LinkSettings, MemberId, Members, Node, NodeConfig, NodeEvent,
    RankSettings, Rules, Secret,
};
use incumbent_store::{BootClock, Clock as _};

struct Diary {
    file: File,
    life: u32,
    at_work: bool,
}

impl Diary {
    fn write(&self, at: Timestamp, what: &str) {
        let line = format!("{} {} {what}\n", at.as_nanos(), self.life);
        // One write, so that a kill leaves whole lines.
        (&self.file).write_all(line.as_bytes()).expect("the diary takes it");
    }

    /// Writes an event down. `true`: the work has just stopped.
    fn event(&mut self, event: &Event) -> bool {
        let now = BootClock.now();
        let term = |term: Option<Token>| term.map_or(0, Token::get);
        match event {
            Event::Elected { title, deadline, .. } => {
                self.at_work = true;
                self.write(now, &format!("elected {} {}", term(title.token()), deadline.as_nanos()));
                return false;
            }
            Event::Deadline(deadline) => self.write(now, &format!("deadline {}", deadline.as_nanos())),
            Event::Stopping { why, .. } => {
                self.write(now, &format!("stopping {why:?}"));
                return std::mem::take(&mut self.at_work);
            }
            Event::Unelected(why) => {
                self.write(now, &format!("unelected {why:?}"));
                return std::mem::take(&mut self.at_work);
            }
            Event::Led { leader, term: of, .. } => self.write(now, &format!("leader {leader} {}", term(*of))),
            Event::Vacant => self.write(now, "vacant"),
            other => self.write(now, &format!("note {other:?}")),
        }
        false
    }
}

/// One that is wrong on purpose shows that the tests look.
fn policy(name: &str) -> ConsensusPolicy {
    let flaw = ConsensusFlaw::ALL.iter().find(|flaw| format!("{flaw:?}") == name);
    flaw.map_or(ConsensusPolicy::SOUND, |flaw| ConsensusPolicy::SOUND.with(*flaw))
}

/// Short, so that much happens in little time.
fn rules(algorithm: Algorithm, policy: ConsensusPolicy) -> Rules {
    let ms = Duration::from_millis;
    let mut rank = RankSettings::default();
    rank.heartbeat = ms(100);
    rank.leader_timeout = ms(600);
    rank.answer_timeout = ms(250);
    rank.grace = ms(100);
    let mut consensus = ConsensusSettings::default().with_policy(policy);
    consensus.election_min = ms(600);
    consensus.election_max = ms(1_200);
    consensus.heartbeat = ms(100);
    consensus.margin = ms(20);
    consensus.grace = ms(100);
    match algorithm {
        Algorithm::Bully => Rules::Bully(rank),
        Algorithm::Ring => Rules::Ring(rank),
        Algorithm::Consensus => Rules::Consensus(consensus),
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
    let mut config = NodeConfig::new(group, MemberId(me.parse().unwrap()), rules(algorithm, policy(flaw)));
    config.listen = Some(listen.clone());
    config.data = algorithm.is_fenced().then(|| folder.join(format!("data-{me}")));
    config.value = format!("value of {me}").into();
    config
}

async fn live(config: NodeConfig, file: File) {
    let mut diary = Diary { file, life: std::process::id(), at_work: false };
    diary.write(BootClock.now(), "started");
    let mut node = Node::start(config).await.unwrap_or_else(|why| panic!("{why}"));
    loop {
        if let NodeEvent::Event(event) = node.event().await
            && diary.event(&event)
        {
            node.command(Command::Release);
        }
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
