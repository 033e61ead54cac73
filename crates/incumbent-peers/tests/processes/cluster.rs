//! A group of member processes with a link of its own in each direction between every two, and what
//! a test does to them.
//!
//! A member speaks to another only on the connection that it has dialled itself. So a proxy for
//! each pair, in each direction, can cut one direction alone.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use incumbent_core::ElectionName;
use incumbent_core::peers::ConsensusFlaw;
use incumbent_peers::{Algorithm, GroupConfig, MemberId, Members, PeerRole, QueryClient, Secret};
use incumbent_testkit::free_port;
use incumbent_testkit::proxy::{Proxy, Way};
use incumbent_testkit::servers::{Process, Scratch};

use incumbent_testkit::judge::{Report, Term, Timeline, Who};

/// Long enough for the busiest machine. Nothing waits for it unless it fails.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks.
const BETWEEN: Duration = Duration::from_millis(10);

pub(crate) struct Cluster {
    algorithm: Algorithm,
    flaw: Option<ConsensusFlaw>,
    addresses: BTreeMap<Who, String>,
    links: BTreeMap<(Who, Who), Proxy>,
    /// Those that run, stopped or not.
    processes: BTreeMap<Who, Process>,
    /// What has been read of each diary.
    read: BTreeMap<Who, usize>,
    pub(crate) timeline: Timeline,
    pub(crate) query_client: QueryClient,
    /// Goes last, when nobody writes into it any more.
    scratch: Scratch,
}

impl Cluster {
    /// Starts members 1 to `count`, and waits until they agree on a leader.
    pub(crate) async fn start(algorithm: Algorithm, count: Who) -> Cluster {
        Cluster::start_flawed(algorithm, count, None).await
    }

    /// The same with members that are wrong on purpose.
    pub(crate) async fn start_flawed(algorithm: Algorithm, count: Who, flaw: Option<ConsensusFlaw>) -> Cluster {
        let scratch = Scratch::new("peers");
        let secret = Secret::read_or_create(&scratch.path().join("secret")).unwrap();
        let addresses: BTreeMap<Who, String> = (1..=count).map(|who| (who, address(who))).collect();
        let mut links = BTreeMap::new();
        for from in 1..=count {
            for to in (1..=count).filter(|to| *to != from) {
                links.insert((from, to), Proxy::start(&addresses[&to]).await);
            }
        }
        let members = Members::parse(&list(addresses.iter())).unwrap();
        let group = GroupConfig::new(ElectionName::new("processes").unwrap(), members, algorithm, secret);
        let query_client = QueryClient::new(group).unwrap();
        let mut cluster = Cluster {
            algorithm,
            flaw,
            addresses,
            links,
            processes: BTreeMap::new(),
            read: BTreeMap::new(),
            timeline: Timeline::default(),
            query_client,
            scratch,
        };
        cluster.start_all();
        cluster.agreed().await;
        cluster
    }

    pub(crate) fn everyone(&self) -> Vec<Who> {
        self.addresses.keys().copied().collect()
    }

    /// Starts a member that does not run.
    pub(crate) fn start_member(&mut self, who: Who) {
        if self.processes.contains_key(&who) {
            return;
        }
        let towards = |to: Who| if to == who { self.addresses[&to].clone() } else { self.links[&(who, to)].endpoint() };
        let members: BTreeMap<Who, String> = self.addresses.keys().map(|to| (*to, towards(*to))).collect();
        let folder = self.scratch.path();
        let args = [
            self.algorithm.to_string(),
            self.flaw.map_or("none".to_owned(), |flaw| format!("{flaw:?}")),
            who.to_string(),
            list(members.iter()),
            self.addresses[&who].clone(),
            folder.display().to_string(),
        ];
        let log = folder.join(format!("log-{who}"));
        self.processes.insert(who, Process::start(env!("CARGO_BIN_EXE_incumbent-peers-member"), &args, &log));
    }

    pub(crate) fn start_all(&mut self) {
        self.everyone().into_iter().for_each(|who| self.start_member(who));
    }

    /// kill -9.
    pub(crate) fn kill(&mut self, who: Who) {
        if let Some(process) = self.processes.remove(&who) {
            process.kill();
        }
    }

    pub(crate) fn pause(&self, who: Who) {
        if let Some(process) = self.processes.get(&who) {
            process.pause();
        }
    }

    pub(crate) fn resume(&self, who: Who) {
        if let Some(process) = self.processes.get(&who) {
            process.resume();
        }
    }

    /// Removes all that a member has ever voted. It must not run.
    pub(crate) fn wipe(&mut self, who: Who) {
        assert!(!self.processes.contains_key(&who), "a running member holds on to its disk");
        fs::remove_dir_all(self.scratch.path().join(format!("data-{who}"))).unwrap();
    }

    /// What one member says to another goes this way.
    pub(crate) fn link(&self, from: Who, to: Who, way: Way) {
        self.links[&(from, to)].set(way);
    }

    /// What goes from these to all others, in this direction, goes this way.
    pub(crate) fn links_out_of(&self, these: &[Who], way: Way) {
        let leaving = self.links.iter().filter(|((from, to), _)| these.contains(from) && !these.contains(to));
        leaving.for_each(|(_, link)| link.set(way));
    }

    /// What goes from all others to these, in this direction, goes this way.
    pub(crate) fn links_into(&self, these: &[Who], way: Way) {
        let coming = self.links.iter().filter(|((from, to), _)| !these.contains(from) && these.contains(to));
        coming.for_each(|(_, link)| link.set(way));
    }

    /// These and the others hear nothing of each other.
    pub(crate) fn part(&self, these: &[Who]) {
        self.links_out_of(these, Way::Stall);
        self.links_into(these, Way::Stall);
    }

    pub(crate) fn heal(&self) {
        self.links.values().for_each(|link| link.set(Way::Forward));
    }

    /// Reads what the members have written since.
    pub(crate) fn look(&mut self) -> &Timeline {
        for who in self.everyone() {
            let diary = fs::read(self.scratch.path().join(format!("diary-{who}"))).unwrap_or_default();
            let read = self.read.entry(who).or_default();
            let whole = diary.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let news = String::from_utf8(diary[*read..whole].to_vec()).unwrap();
            *read = whole;
            for line in news.lines() {
                let report = Report::parse(who, line).unwrap_or_else(|| panic!("member {who} wrote: {line}"));
                self.timeline.add(report);
            }
        }
        &self.timeline
    }

    /// Waits for something that the members write.
    pub(crate) async fn until<T>(&mut self, what: &str, mut seen: impl FnMut(&Timeline) -> Option<T>) -> T {
        let patience = Instant::now() + PATIENCE;
        loop {
            if let Some(seen) = seen(self.look()) {
                return seen;
            }
            assert!(Instant::now() < patience, "never: {what}\n{}", self.account());
            tokio::time::sleep(BETWEEN).await;
        }
    }

    /// Waits until all members know the same leader, and says which.
    pub(crate) async fn agreed(&mut self) -> (Who, u64) {
        let everyone = self.everyone();
        self.agreed_among(&everyone).await
    }

    pub(crate) async fn agreed_among(&mut self, these: &[Who]) -> (Who, u64) {
        let agreed = |timeline: &Timeline| {
            let known = timeline.known_by(these[0])?;
            let led = timeline.known_by(known.0) == Some(known) && these.contains(&known.0);
            (led && these.iter().all(|who| timeline.known_by(*who) == Some(known))).then_some(known)
        };
        self.until(&format!("{these:?} agree"), agreed).await
    }

    /// Waits until some of these is in office in a later term than `term`, and says who and in
    /// which.
    pub(crate) async fn elected_after(&mut self, term: u64, among: &[Who]) -> (Who, u64) {
        let later = |timeline: &Timeline| timeline.in_office().filter(|(who, now)| *now > term && among.contains(who));
        self.until(&format!("one of {among:?} leads after term {term}"), later).await
    }

    /// Waits until a member has said that its term is over, or has it no more.
    pub(crate) async fn stepped_down(&mut self, who: Who, term: u64) {
        let over = |timeline: &Timeline| (timeline.known_by(who) != Some((who, term))).then_some(());
        self.until(&format!("member {who} leaves term {term}"), over).await;
    }

    /// Waits until all members run, vote, and agree on a leader, with which someone who is not a
    /// member agrees.
    pub(crate) async fn whole(&mut self) -> (Who, u64) {
        let patience = Instant::now() + PATIENCE;
        loop {
            let (leader, term) = self.agreed().await;
            let survey = self.query_client.survey().await;
            let votes = survey.iter().all(|(_, status)| {
                status.as_ref().is_ok_and(|status| {
                    let role = !matches!(status.role, PeerRole::Rejoining | PeerRole::Out);
                    role && !status.forming && status.not_voting.is_none()
                })
            });
            let seen = self.query_client.leader().await.ok().flatten();
            let same = seen.is_some_and(|seen| {
                (seen.member, seen.term.map_or(0, |term| term.get())) == (MemberId(leader), term)
                    && seen.value == format!("value of {leader}")
            });
            // Once more, for it may have changed while we asked.
            if votes && same && self.agreed().await == (leader, term) {
                return (leader, term);
            }
            assert!(Instant::now() < patience, "never whole again: {survey:?}\n{}", self.account());
            tokio::time::sleep(BETWEEN).await;
        }
    }

    /// Judges all that was written so far.
    pub(crate) fn judge(&mut self) -> Vec<Term> {
        let judged = self.look().check();
        judged.unwrap_or_else(|broken| panic!("{broken}\n{}", self.account()))
    }

    /// What happened last, for people.
    pub(crate) fn account(&self) -> String {
        let mut account = self.timeline.tail(60);
        for who in self.everyone() {
            let log = fs::read_to_string(self.scratch.path().join(format!("log-{who}"))).unwrap_or_default();
            if !log.is_empty() {
                account += &format!("member {who} said: {log}\n");
            }
        }
        account
    }
}

/// An address that only this member uses, and whose port nobody gets while it is down.
fn address(who: Who) -> String {
    format!("127.0.0.{}:{}", 100 + who, free_port())
}

fn list<'a>(members: impl Iterator<Item = (&'a Who, &'a String)>) -> String {
    members.map(|(who, address)| format!("{who}={address}")).collect::<Vec<_>>().join(",")
}
