//! One process of the demonstration: a member of the group, which reports on standard output every
//! message that it sends and every change of what it believes.
//!
//! It does no work, so an office that has to be given back is given back at once.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use incumbent::ElectionName;
use incumbent::store::{BootClock, Clock as _};
use incumbent_core::peers::consensus::Message;
use incumbent_core::peers::ring;
use incumbent_peers::{
    Algorithm, Body, Command, ConsensusSettings, Event, GroupConfig, LinkSettings, Member, MemberId, Members, Node,
    NodeConfig, NodeEvent, RankSettings, Rules, Secret, Trace, TraceRecord, Way,
};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use super::super::ELECTION;
use crate::failure::Failure;
use crate::output::out_json;

/// The first argument that makes this program a member.
const ROLE: &str = "__demo-member";
const HEARTBEAT: Duration = Duration::from_millis(200);
/// The silence after which a leader is suspected: short, so that people need not wait for it.
pub(super) const TIMEOUT: Duration = Duration::from_secs(1);
/// The longest timeout that a consensus member draws.
pub(super) const LONGEST_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a member may take to answer, where rank decides.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(300);
const GRACE: Duration = Duration::from_millis(200);

/// One line of a member's output. Times are nanoseconds of the host's clock, which all members
/// share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub(super) enum Report {
    /// It listens at this port.
    Ready { port: u16 },
    /// It has written a message to a connection. `about`: its term, answer or list.
    Sent { at: u64, to: u16, kind: String, about: String },
    /// It leads until the deadline; [`u64::MAX`] where nothing bounds its term.
    Elected { at: u64, term: Option<u64>, deadline: u64 },
    /// It leads until then.
    Deadline { until: u64 },
    /// It no longer leads.
    Unelected { at: u64 },
    /// It follows this member.
    Follows { leader: u16, term: Option<u64> },
    /// It follows nobody.
    Vacant,
    /// Whether it takes part in votes.
    Votes { does: bool },
    /// It cannot go on.
    Broken { what: String },
}

/// What a process has to know to be a member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MemberArgs {
    pub(super) algorithm: String,
    pub(super) me: u16,
    /// Number, name, and where this member reaches it.
    pub(super) members: Vec<(u16, String, String)>,
    pub(super) secret: PathBuf,
    /// Where it writes down its votes, if it votes.
    pub(super) data: Option<PathBuf>,
}

impl MemberArgs {
    /// Those of this process, if it was started to be a member.
    pub(crate) fn of_this_process() -> Option<MemberArgs> {
        let mut args = env::args_os().skip(1);
        if args.next()? != ROLE {
            return None;
        }
        serde_json::from_str(args.next()?.to_str()?).ok()
    }

    /// As a command line.
    pub(super) fn to_command_line(&self) -> Result<[OsString; 2], Failure> {
        let text = serde_json::to_string(self).map_err(|error| Failure::error(error.to_string()))?;
        Ok([ROLE.into(), text.into()])
    }

    /// Is a member until it is killed, or the demonstration is gone.
    pub(crate) async fn run(self) -> Result<u8, Failure> {
        // Ctrl-C on the terminal is for the demonstration, which ends its members.
        let _interrupt = signal(SignalKind::interrupt()).ok();
        let done = self.take_part().await;
        if let Err(failure) = &done {
            out_json(&Report::Broken { what: failure.to_string() })?;
        }
        done
    }

    async fn take_part(&self) -> Result<u8, Failure> {
        let reporter = Arc::new(Reporter::default());
        let mut config = self.config().map_err(|why| Failure::error(why.to_string()))?;
        config.trace = Some(reporter.clone());
        let mut node = Node::start(config).await.map_err(|why| Failure::error(why.to_string()))?;
        out_json(&Report::Ready { port: node.address().port() })?;
        let mut stdin = tokio::io::stdin();
        let mut nothing = [0; 16];
        let mut at_work = false;
        loop {
            tokio::select! {
                event = node.event() => if let NodeEvent::Event(event) = event {
                    at_work |= matches!(event, Event::Elected { .. });
                    reporter.event(&event);
                    if matches!(event, Event::Stopping { .. } | Event::Unelected(_)) && std::mem::take(&mut at_work) {
                        node.command(Command::Release);
                    }
                },
                () = reporter.reader_gone.notified() => return Ok(0),
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
            // A cut or a death must not also end connections: what is sent into it is to be seen.
            // Links are made anew as soon as it is over.
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

/// The same everywhere in the group.
fn rules(algorithm: Algorithm) -> Rules {
    let mut rank = RankSettings::default();
    rank.heartbeat = HEARTBEAT;
    rank.leader_timeout = TIMEOUT;
    rank.answer_timeout = ANSWER_TIMEOUT;
    rank.grace = GRACE;
    let mut consensus = ConsensusSettings::default();
    consensus.election_min = TIMEOUT;
    consensus.election_max = LONGEST_TIMEOUT;
    consensus.heartbeat = HEARTBEAT;
    consensus.grace = GRACE;
    match algorithm {
        Algorithm::Bully => Rules::Bully(rank),
        Algorithm::Ring => Rules::Ring(rank),
        Algorithm::Consensus => Rules::Consensus(consensus),
    }
}

/// Writes reports to standard output.
#[derive(Default)]
struct Reporter {
    /// Nothing can be written any more.
    reader_gone: Notify,
}

impl Reporter {
    fn write(&self, report: &Report) {
        if out_json(report).is_err() {
            self.reader_gone.notify_one();
        }
    }

    fn event(&self, event: &Event) {
        let at = BootClock.now().as_nanos();
        self.write(&match event {
            Event::Elected { title, deadline, .. } => {
                Report::Elected { at, term: title.token().map(|token| token.get()), deadline: deadline.as_nanos() }
            }
            Event::Deadline(until) => Report::Deadline { until: until.as_nanos() },
            Event::Unelected(_) => Report::Unelected { at },
            Event::Led { leader, term, .. } => Report::Follows { leader: leader.0, term: term.map(|term| term.get()) },
            Event::Vacant => Report::Vacant,
            Event::NotVoting(_) => Report::Votes { does: false },
            Event::Voting => Report::Votes { does: true },
            _ => return,
        });
    }
}

impl Trace for Reporter {
    fn frame(&self, record: &TraceRecord<'_>) {
        if let (Way::Sent, Some(to)) = (record.way, record.to) {
            let about = record.message().map_or_else(String::new, about);
            self.write(&Report::Sent { at: record.at.as_nanos(), to: to.0, kind: record.kind.to_owned(), about });
        }
    }
}

/// What is worth reading in a message, besides its kind.
fn about(body: &Body) -> String {
    let answer = |granted: &bool| if *granted { "yes" } else { "no" };
    match body {
        Body::Consensus(message) => match message {
            Message::PreVote { term, .. }
            | Message::Vote { term, .. }
            | Message::Heartbeat { term, .. }
            | Message::Ack { term, .. }
            | Message::Stale { term }
            | Message::Closed { term }
            | Message::TimeoutNow { term } => term.to_string(),
            Message::PreVoted { granted, .. } => answer(granted).to_owned(),
            Message::Voted { term, granted, .. } => format!("{} {term}", answer(granted)),
            Message::TellTerm { term, .. } => term.to_string(),
            Message::AskTerm { .. } | Message::LostToo { .. } => String::new(),
        },
        Body::Ring(ring::Message::Election { seen, .. }) => seen.iter().map(MemberId::to_string).collect(),
        Body::Ring(ring::Message::Coordinator { leader, .. }) => leader.to_string(),
        _ => String::new(),
    }
}
