//! One process of the demonstration: a member of the group, which tells all that it hears, says and becomes.
//!
//! Its work is nothing, so it has always stopped at once when the office is to be given back.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use incumbent::store::BootClock;
use incumbent::{ElectionName, Loss};
use incumbent_core::Timestamp;
use incumbent_core::peers::consensus::Message;
use incumbent_core::peers::ring;
use incumbent_peers::{
    Algorithm, Body, ConsensusSettings, GroupConfig, LinkSettings, Member, MemberId, Members, Node, NodeConfig,
    PeerEvent, RankSettings, Rules, Secret, Sink, Trace, TraceRecord, Way,
};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use super::super::ELECTION;
use super::report::{Frame, News, Report, Why};
use crate::failure::Failure;
use crate::say::out_json;

/// The first argument that makes this program a member.
const STAGE: &str = "__demo-member";
/// How often a leader shows that it is there.
const HEARTBEAT: Duration = Duration::from_millis(200);
/// After how much silence a leader is suspected, at the earliest: short, so that people need not wait for it.
pub(super) const TIMEOUT: Duration = Duration::from_secs(1);
/// After how much silence the slowest member suspects it, where members draw their timeouts.
pub(super) const LONGEST_TIMEOUT: Duration = Duration::from_secs(2);
/// How long somebody who is asked may take to answer, where rank decides.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_millis(300);
/// How long work may take to stop.
const GRACE: Duration = Duration::from_millis(200);

/// What a process has to know to be a member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(super) algorithm: String,
    pub(super) me: u16,
    /// Number, name, and where this member reaches it.
    pub(super) members: Vec<(u16, String, String)>,
    pub(super) secret: PathBuf,
    /// Where it writes down its votes, if it votes.
    pub(super) data: Option<PathBuf>,
}

/// Whether this process was started to be a member.
pub(crate) fn asked_for() -> Option<Part> {
    let mut args = env::args_os().skip(1);
    if args.next()? != STAGE {
        return None;
    }
    serde_json::from_str(args.next()?.to_str()?).ok()
}

/// The same everywhere in the group.
fn rules(algorithm: Algorithm) -> Rules {
    let rank = RankSettings {
        heartbeat: HEARTBEAT,
        leader_timeout: TIMEOUT,
        answer_timeout: ANSWER_TIMEOUT,
        grace: GRACE,
        ..RankSettings::default()
    };
    match algorithm {
        Algorithm::Bully => Rules::Bully(rank),
        Algorithm::Ring => Rules::Ring(rank),
        Algorithm::Consensus => Rules::Consensus(ConsensusSettings {
            election_min: TIMEOUT,
            election_max: LONGEST_TIMEOUT,
            heartbeat: HEARTBEAT,
            grace: GRACE,
            ..ConsensusSettings::default()
        }),
    }
}

impl Part {
    /// The arguments that make this member.
    pub(super) fn arguments(&self) -> Result<[OsString; 2], Failure> {
        let part = serde_json::to_string(self).map_err(|error| Failure::error(error.to_string()))?;
        Ok([STAGE.into(), part.into()])
    }

    /// Is a member until it is killed, or the demonstration is gone.
    pub(crate) async fn play(self) -> Result<u8, Failure> {
        // Ctrl-C on the terminal is for the demonstration, which ends its members.
        let _interrupt = signal(SignalKind::interrupt()).ok();
        let played = self.take_part().await;
        if let Err(failure) = &played {
            out_json(&Report::Broken { what: failure.to_string() })?;
        }
        played
    }

    async fn take_part(&self) -> Result<u8, Failure> {
        let herald = Arc::new(Herald::default());
        let mut config = self.config().map_err(|why| Failure::error(why.to_string()))?;
        config.trace = Some(herald.clone());
        let node = Node::start(config, herald.clone()).await.map_err(|why| Failure::error(why.to_string()))?;
        out_json(&Report::Ready { port: node.address().port() })?;
        let mut stdin = tokio::io::stdin();
        let mut nothing = [0; 16];
        loop {
            tokio::select! {
                () = herald.stopping.notified() => { node.release(); }
                () = herald.unheard.notified() => return Ok(0),
                // Its end says that the demonstration is gone, however it ended.
                read = stdin.read(&mut nothing) => if !matches!(read, Ok(1..)) { return Ok(0) },
            }
        }
    }

    fn config(&self) -> Result<NodeConfig, incumbent_peers::ConfigError> {
        let algorithm: Algorithm = self.algorithm.parse()?;
        let members = Members::new(self.members.iter().map(|(id, name, address)| Member {
            id: MemberId(*id),
            name: name.as_str().into(),
            address: address.as_str().into(),
        }))?;
        #[allow(clippy::expect_used, reason = "a constant")]
        let election = ElectionName::new(ELECTION).expect("a name");
        let mut group = GroupConfig::new(election, members, algorithm, Secret::read(&self.secret)?);
        group.link = LinkSettings {
            // A cut or a death must not also end connections: what is sent into it is to be seen. Links are made
            // anew as soon as it is over.
            silent_after: Duration::from_secs(600),
            backoff_max: Duration::from_millis(100),
            ..LinkSettings::default()
        };
        let mut config = NodeConfig::new(group, MemberId(self.me), rules(algorithm));
        config.listen = Some("127.0.0.1:0".to_owned());
        config.data = self.data.clone();
        config.clock = Arc::new(BootClock);
        Ok(config)
    }
}

/// Tells everything on standard output.
#[derive(Default)]
struct Herald {
    /// The work is to stop, which it has.
    stopping: Notify,
    /// Nobody listens any more.
    unheard: Notify,
}

impl Herald {
    fn tell(&self, report: &Report) {
        if out_json(report).is_err() {
            self.unheard.notify_one();
        }
    }
}

impl Sink for Herald {
    fn event(&self, now: Timestamp, event: PeerEvent) {
        let news = match event {
            PeerEvent::Elected { token, deadline } => {
                News::Elected { term: token.map(|token| token.get()), deadline: deadline.as_nanos() }
            }
            PeerEvent::Deadline(until) => News::Deadline { until: until.as_nanos() },
            PeerEvent::Stopping { .. } => return self.stopping.notify_one(),
            PeerEvent::Unelected(why) => News::Unelected {
                why: match why {
                    Loss::LocalDeadline => Why::Deadline,
                    Loss::Superseded => Why::Superseded,
                    _ => Why::Other,
                },
            },
            PeerEvent::NewLeader { leader, term, .. } => {
                News::NewLeader { leader: leader.0, term: term.map(|term| term.get()) }
            }
            PeerEvent::Vacant => News::Vacant,
            PeerEvent::NotVoting(_) => News::NotVoting,
            PeerEvent::Voting => News::Voting,
            PeerEvent::TransferRefused(_) | PeerEvent::Closed => return,
        };
        self.tell(&Report::News { at: now.as_nanos(), news });
    }
}

impl Trace for Herald {
    fn frame(&self, record: &TraceRecord<'_>) {
        let (Some(from), Some(to)) = (record.from, record.to) else { return };
        let (term, about) = record.message().map_or((None, String::new()), gist);
        let frame = Frame { from: from.0, to: to.0, kind: record.kind.to_owned(), term, about };
        let at = record.at.as_nanos();
        match record.way {
            Way::Sent => self.tell(&Report::Sent { at, frame }),
            Way::Received => self.tell(&Report::Received { at, frame }),
            Way::Refused(_) | Way::Dropped => {}
        }
    }
}

/// The term, and what else is worth reading.
fn gist(body: &Body) -> (Option<u64>, String) {
    let answer = |granted: &bool| if *granted { "yes" } else { "no" }.to_owned();
    match body {
        Body::Consensus(message) => match message {
            Message::PreVote { term, .. }
            | Message::Vote { term, .. }
            | Message::Heartbeat { term, .. }
            | Message::Ack { term, .. }
            | Message::Stale { term }
            | Message::TimeoutNow { term } => (Some(term.get()), String::new()),
            Message::PreVoted { granted, .. } => (None, answer(granted)),
            Message::Voted { term, granted } => (Some(term.get()), answer(granted)),
            Message::TellTerm { term, .. } => (Some(*term), String::new()),
            Message::AskTerm { .. } | Message::LostToo { .. } => (None, String::new()),
        },
        Body::Ring(ring::Message::Election { seen, .. }) => {
            (None, seen.iter().map(MemberId::to_string).collect::<String>())
        }
        Body::Ring(ring::Message::Coordinator { leader, .. }) => (None, leader.to_string()),
        _ => (None, String::new()),
    }
}
