//! Groups of processes whose leaders are killed and handed over, and how long that takes by what
//! the members say.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use incumbent::Timestamp;
use incumbent_bench::members::{addresses, list};
use incumbent_peers::{Algorithm, MemberId, QueryClient};
use incumbent_testkit::servers::Scratch;
use tokio::sync::mpsc;

use crate::member;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Something that a member says.
struct Said {
    who: u16,
    /// Which of its processes says it.
    life: u32,
    at: Timestamp,
    what: What,
}

enum What {
    Elected(u64),
    Leader(u16, u64),
    Unelected,
    Vacant,
    /// It leads on: the heir was not heard lately.
    Refused,
}

pub(crate) struct Processes {
    algorithm: Algorithm,
    timeout: Duration,
    list: String,
    members: BTreeMap<u16, Child>,
    /// Who leads in which term, as far as each knows.
    known: BTreeMap<u16, Option<(u16, u64)>>,
    saying: mpsc::UnboundedSender<Said>,
    said: mpsc::UnboundedReceiver<Said>,
    query_client: QueryClient,
    rounds: u32,
    scratch: Scratch,
}

impl Drop for Processes {
    fn drop(&mut self) {
        for member in self.members.values_mut() {
            let _ = member.kill();
            let _ = member.wait();
        }
    }
}

impl Processes {
    pub(crate) async fn start(algorithm: Algorithm, count: u16, timeout: Duration) -> Processes {
        let list = list(&addresses(count));
        let query_client = QueryClient::new(member::group(algorithm, &list)).expect("a group");
        let (saying, said) = mpsc::unbounded_channel();
        let scratch = Scratch::on_disk("bench-peers");
        let (members, known) = Default::default();
        let mut group =
            Processes { algorithm, timeout, list, members, known, saying, said, query_client, rounds: 0, scratch };
        (1..=count).for_each(|who| group.start_member(who));
        group
    }

    fn start_member(&mut self, who: u16) {
        let this = std::env::current_exe().expect("a path");
        let mut command = Command::new(this);
        command.args(["member", &self.algorithm.to_string(), &who.to_string(), &self.list]);
        command.arg(self.timeout.as_millis().to_string()).arg(self.scratch.path());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
        let (life, stdout) = (child.id(), child.stdout.take().expect("a pipe"));
        let saying = self.saying.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let Some((at, what)) = parse(&line) else { panic!("a member said: {line}") };
                let _ = saying.send(Said { who, life, at, what });
            }
        });
        self.known.insert(who, None);
        self.members.insert(who, child);
    }

    /// Waits until a member that runs says something, and takes note of it.
    async fn hear(&mut self) -> Said {
        loop {
            let said = tokio::time::timeout(PATIENCE, self.said.recv()).await.expect("somebody says something");
            if let Some(said) = self.note(said.expect("we hold a sender")) {
                return said;
            }
        }
    }

    /// Takes note of what was said. The last words of one that was killed are of no use.
    fn note(&mut self, said: Said) -> Option<Said> {
        if self.members.get(&said.who).is_none_or(|child| child.id() != said.life) {
            return None;
        }
        let known = match said.what {
            What::Elected(term) => Some((said.who, term)),
            What::Leader(leader, term) => Some((leader, term)),
            What::Unelected | What::Vacant => None,
            What::Refused => return Some(said),
        };
        self.known.insert(said.who, known);
        Some(said)
    }

    /// Waits until all agree, and all take part.
    async fn settled(&mut self) -> (u16, u64) {
        let settled = async {
            loop {
                let leader = self.known.get(&1).copied().flatten();
                match leader {
                    Some(leader) if self.known.values().all(|known| *known == Some(leader)) => {
                        let survey = self.query_client.survey().await;
                        let votes = |status: &incumbent_peers::Status| !status.forming && status.not_voting.is_none();
                        if survey.iter().all(|(_, status)| status.as_ref().is_ok_and(votes)) {
                            return leader;
                        }
                        tokio::time::sleep(Duration::from_millis(5)).await;
                        while let Ok(said) = self.said.try_recv() {
                            self.note(said);
                        }
                    }
                    _ => {
                        self.hear().await;
                    }
                }
            }
        };
        tokio::time::timeout(PATIENCE, settled).await.expect("they agree in time")
    }

    /// From kill -9 of the leader to the next one in office.
    pub(crate) async fn failover(&mut self) -> Duration {
        let (leader, term) = self.settled().await;
        // At any moment between two heartbeats, each as likely as another.
        self.rounds += 1;
        tokio::time::sleep(self.timeout.mul_f64(0.618 * f64::from(self.rounds) % 1.0)).await;
        let mut child = self.members.remove(&leader).expect("it runs");
        let killed = member::now();
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
        let taken = loop {
            let said = self.hear().await;
            if let What::Elected(newer) = said.what
                && (newer > term || newer == 0)
            {
                break said.at.since(killed);
            }
        };
        self.start_member(leader);
        taken
    }

    /// From the end of the leader's term to the next one in office.
    pub(crate) async fn transfer(&mut self) -> Duration {
        loop {
            let (leader, term) = self.settled().await;
            let count = u16::try_from(self.members.len()).expect("few");
            if self.query_client.transfer(MemberId(leader % count + 1)).await.is_ok()
                && let Some(taken) = self.handed_over(leader, term).await
            {
                return taken;
            }
        }
    }

    /// `None`: the handover was refused. The two may be heard of in any order, for each has a pipe
    /// of its own.
    async fn handed_over(&mut self, leader: u16, term: u64) -> Option<Duration> {
        let (mut left, mut elected) = (None, None);
        loop {
            let said = self.hear().await;
            match said.what {
                What::Unelected if said.who == leader => left = Some(said.at),
                What::Elected(newer) if newer > term => elected = Some(said.at),
                What::Refused => return None,
                _ => {}
            }
            if let (Some(left), Some(elected)) = (left, elected) {
                return Some(elected.since(left));
            }
        }
    }
}

fn parse(line: &str) -> Option<(Timestamp, What)> {
    let words: Vec<&str> = line.split(' ').collect();
    let (at, what) = words.split_first()?;
    let what = match what {
        ["elected", term] => What::Elected(term.parse().ok()?),
        ["leader", leader, term] => What::Leader(leader.parse().ok()?, term.parse().ok()?),
        ["unelected"] => What::Unelected,
        ["vacant"] => What::Vacant,
        ["refused"] => What::Refused,
        _ => return None,
    };
    Some((Timestamp::from_nanos(at.parse().ok()?), what))
}
