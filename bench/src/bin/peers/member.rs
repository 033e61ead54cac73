//! A member in a process of its own. It says on standard output who leads, with the time, and ends
//! with its standard input.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::time::Duration;

use incumbent::store::{BootClock, Clock as _};
use incumbent::{ElectionName, Timestamp, Token};
use incumbent_peers::{
    Algorithm, Command, Event, GroupConfig, MemberId, Members, Node, NodeConfig, NodeEvent, Rules, Secret,
};

/// What is measured knows no more of the group than this.
pub(crate) fn group(algorithm: Algorithm, members: &str) -> GroupConfig {
    let secret = Secret::new("nobody else is on this loopback").expect("long enough");
    let members = Members::parse(members).expect("a list");
    GroupConfig::new(ElectionName::new("bench").expect("a name"), members, algorithm, secret)
}

/// The settings of a member whose data is in a folder of its own within `folder`.
pub(crate) fn config(group: GroupConfig, me: MemberId, timeout: Duration, folder: &Path) -> NodeConfig {
    let (algorithm, link) = (group.algorithm, group.link);
    let rules = match algorithm {
        Algorithm::Consensus => crate::consensus_rules(timeout),
        Algorithm::Bully | Algorithm::Ring => Rules::defaults(algorithm),
    };
    let mut config = NodeConfig::new(group, me, rules);
    // A member that comes back is reached at once, so that no round waits for it.
    config.group.link.backoff_max = link.backoff_min * 5;
    config.data = algorithm.is_fenced().then(|| folder.join(format!("data-{me}")));
    config
}

/// Work that has always stopped at once.
#[derive(Default)]
pub(crate) struct Work(bool);

impl Work {
    /// Whether it has just stopped: once for each term.
    pub(crate) fn stops(&mut self, event: &Event) -> bool {
        match event {
            Event::Elected { .. } => {
                self.0 = true;
                false
            }
            Event::Stopping { .. } | Event::Unelected(_) => std::mem::take(&mut self.0),
            _ => false,
        }
    }
}

fn say(event: &Event) {
    let term = |term: Option<Token>| term.map_or(0, Token::get);
    let said = match event {
        Event::Elected { title, .. } => format!("elected {}", term(title.token())),
        Event::Led { leader, term: of, .. } => format!("leader {leader} {}", term(*of)),
        Event::Unelected(_) => "unelected".to_owned(),
        Event::Vacant => "vacant".to_owned(),
        Event::TransferRefused(_) => "refused".to_owned(),
        _ => return,
    };
    let line = format!("{} {said}\n", now().as_nanos());
    let _ = std::io::stdout().write_all(line.as_bytes());
}

/// Lives until it is killed, or nobody holds the other end of its standard input.
pub(crate) async fn live(args: &[String]) {
    let [algorithm, me, members, millis, folder] = args else { panic!("ALGORITHM NUMBER MEMBERS MILLIS FOLDER") };
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let group = group(algorithm.parse().expect("an algorithm"), members);
    let timeout = Duration::from_millis(millis.parse().expect("a number"));
    let config = config(group, MemberId(me.parse().expect("a number")), timeout, Path::new(folder));
    let mut node = Node::start(config).await.unwrap_or_else(|why| panic!("{why}"));
    let mut work = Work::default();
    loop {
        if let NodeEvent::Event(event) = node.event().await {
            say(&event);
            if work.stops(&event) {
                node.command(Command::Release);
            }
        }
    }
}

/// Now, by the clock that all processes of a host share.
pub(crate) fn now() -> Timestamp {
    BootClock.now()
}
