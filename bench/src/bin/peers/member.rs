//! A member in a process of its own. It says on standard output who leads, with the time, and ends with its standard input.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use incumbent::store::{BootClock, Clock as _};
use incumbent::{ElectionName, Timestamp, Token};
use incumbent_peers::{
    Algorithm, GroupConfig, MemberId, Members, Node, NodeConfig, OperatorRequest, PeerEvent, Rules, Secret, Sink, Wish,
};
use tokio::sync::mpsc;

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

enum Order {
    Release,
    Transfer(MemberId),
}

struct Voice(mpsc::Sender<Order>);

impl Sink for Voice {
    fn event(&self, now: Timestamp, event: PeerEvent) {
        let term = |term: Option<Token>| term.map_or(0, Token::get);
        let said = match event {
            PeerEvent::Elected { token, .. } => format!("elected {}", term(token)),
            PeerEvent::NewLeader { leader, term: of, .. } => format!("leader {leader} {}", term(of)),
            PeerEvent::Unelected(_) => "unelected".to_owned(),
            PeerEvent::Vacant => "vacant".to_owned(),
            PeerEvent::TransferRefused(_) => "refused".to_owned(),
            PeerEvent::Stopping { .. } => {
                let _ = self.0.try_send(Order::Release);
                return;
            }
            _ => return,
        };
        let line = format!("{} {said}\n", now.as_nanos());
        let _ = std::io::stdout().write_all(line.as_bytes());
    }

    fn request(&self, request: OperatorRequest) {
        if let Wish::Transfer(heir) = request.what
            && self.0.try_send(Order::Transfer(heir)).is_ok()
        {
            request.accept();
        }
    }
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
    let (orders, mut ordered) = mpsc::channel(16);
    let node = Node::start(config, Arc::new(Voice(orders))).await.unwrap_or_else(|why| panic!("{why}"));
    while let Some(order) = ordered.recv().await {
        match order {
            Order::Release => node.release(),
            Order::Transfer(heir) => node.transfer(heir),
        };
    }
}

/// Now, by the clock that all processes of a host share.
pub(crate) fn now() -> Timestamp {
    BootClock.now()
}
