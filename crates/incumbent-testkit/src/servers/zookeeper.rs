//! ZooKeeper: one server, or an ensemble whose servers can be cut off from each other.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::process::{Process, Scratch, comes_up};
use crate::free_port;
use crate::patience::found;
use crate::proxy::Way;

mod link;

use link::Link;

/// How often a start is tried: somebody else may take a port in between.
const STARTS: usize = 5;
/// How long a server may take to answer a question about itself.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Where distributions put Java's libraries. The server's names those that it needs itself, but for
/// some that TLS needs.
const CLASSES: &str = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar:/usr/share/java/netty-codec.jar:\
                       /usr/share/java/netty-resolver.jar:/usr/share/java/netty-transport-native-unix-common.jar";
/// Such servers live briefly: what counts is how fast they start.
const JAVA_FLAGS: [&str; 6] = [
    "-Xmx96m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-XX:-UsePerfData",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
];

/// How an ensemble is to be.
#[derive(Clone, Debug)]
pub struct ZooKeeperBuilder {
    tick: Duration,
    sync_ticks: u32,
    lines: Vec<String>,
    java_flags: Vec<String>,
    environment: Vec<String>,
    divisible: bool,
    on_disk: bool,
}

/// ZooKeeper servers. Dropping this kills them and removes their data.
#[derive(Debug)]
pub struct ZooKeeperEnsemble {
    nodes: Vec<ZooKeeperNode>,
    /// With the numbers of the servers at both ends, the caller's first.
    links: BTreeMap<[usize; 2], Link>,
    scratch: Scratch,
}

/// One server of an ensemble.
#[derive(Debug)]
pub struct ZooKeeperNode {
    args: Vec<String>,
    port: u16,
    secure_port: u16,
    config: PathBuf,
    data: PathBuf,
    log: PathBuf,
    process: Option<Process>,
}

/// The ports of one server.
#[derive(Clone, Copy, Debug)]
struct Ports {
    client: u16,
    secure: u16,
    quorum: u16,
    election: u16,
}

impl ZooKeeperBuilder {
    /// The server's unit of time: the leader expires sessions this often, and none is shorter than
    /// two of them.
    pub fn tick(mut self, tick: Duration) -> ZooKeeperBuilder {
        self.tick = tick;
        self
    }

    /// For so many ticks servers bear with each other's silence.
    pub fn sync_ticks(mut self, ticks: u32) -> ZooKeeperBuilder {
        self.sync_ticks = ticks;
        self
    }

    /// One more line of configuration. `{client}` and `{secure}` become the server's ports.
    pub fn line(mut self, line: &str) -> ZooKeeperBuilder {
        self.lines.push(line.to_owned());
        self
    }

    /// One more argument for Java itself.
    pub fn java_flag(mut self, flag: &str) -> ZooKeeperBuilder {
        self.java_flags.push(flag.to_owned());
        self
    }

    /// Environment variables, each as `NAME=value`.
    pub fn environment(mut self, variables: &[String]) -> ZooKeeperBuilder {
        self.environment = variables.to_vec();
        self
    }

    /// The servers speak with each other through proxies, so that they can be cut off. These live
    /// as long as the runtime in which they were started: such an ensemble belongs to one test.
    pub fn divisible(mut self) -> ZooKeeperBuilder {
        self.divisible = true;
        self
    }

    /// The data is on a disk: for benchmarks.
    pub fn on_disk(mut self) -> ZooKeeperBuilder {
        self.on_disk = true;
        self
    }

    /// Starts `count` servers and waits until each serves clients.
    pub async fn start(self, count: usize) -> ZooKeeperEnsemble {
        for _ in 0..STARTS {
            let mut ensemble = self.prepare(count).await;
            ensemble.nodes.iter_mut().for_each(ZooKeeperNode::run);
            if ensemble.all_serve().await {
                return ensemble;
            }
        }
        panic!("ZooKeeper does not start; is it installed (`scripts/setup zookeeper`)?");
    }

    async fn prepare(&self, count: usize) -> ZooKeeperEnsemble {
        let scratch = if self.on_disk { Scratch::on_disk("zookeeper") } else { Scratch::new("zookeeper") };
        let port = |_| Ports { client: free_port(), secure: free_port(), quorum: free_port(), election: free_port() };
        let ports: Vec<_> = (0..count).map(port).collect();
        let links = if self.divisible { link_all(&ports).await } else { BTreeMap::new() };
        let member = |from: usize, to: usize| match links.get(&[from, to]) {
            Some(link) => link.address(),
            None => format!("127.0.0.1:{}:{}", ports[to].quorum, ports[to].election),
        };
        // The ensemble as a server sees it: itself as it is, and the others at the ends of its
        // links.
        let members = |from| (0..count).map(|to| format!("server.{}={}\n", to + 1, member(from, to))).collect();
        let node = |number: usize| {
            let members = if count == 1 { String::new() } else { members(number) };
            self.node(number, ports[number], &members, scratch.path())
        };
        let nodes = (0..count).map(node).collect();
        ZooKeeperEnsemble { nodes, links, scratch }
    }

    fn node(&self, number: usize, ports: Ports, members: &str, folder: &Path) -> ZooKeeperNode {
        let data = folder.join(format!("n{number}"));
        std::fs::create_dir(&data).expect("a folder");
        std::fs::write(data.join("myid"), (number + 1).to_string()).expect("a file");
        let tick = self.tick.as_millis();
        let mut text = format!(
            "tickTime={tick}\ninitLimit={sync}\nsyncLimit={sync}\ndataDir={data}\nclientPortAddress=127.0.0.1\n\
             clientPort={port}\nmaxClientCnxns=0\nmaxSessionTimeout=300000\nadmin.enableServer=false\n\
             4lw.commands.whitelist=*\n{members}",
            sync = self.sync_ticks,
            data = data.display(),
            port = ports.client,
        );
        for line in &self.lines {
            let line = line.replace("{client}", &ports.client.to_string());
            let _ = writeln!(text, "{}", line.replace("{secure}", &ports.secure.to_string()));
        }
        let config = folder.join(format!("n{number}.cfg"));
        std::fs::write(&config, text).expect("a file");
        let java = self.environment.iter().cloned().chain(["java".to_owned()]);
        let flags = java.chain(JAVA_FLAGS.map(str::to_owned)).chain(self.java_flags.clone());
        let program = ["-cp", CLASSES, "org.apache.zookeeper.server.quorum.QuorumPeerMain"].map(str::to_owned);
        ZooKeeperNode {
            args: flags.chain(program).chain([config.display().to_string()]).collect(),
            port: ports.client,
            secure_port: ports.secure,
            config,
            data,
            log: folder.join(format!("n{number}.log")),
            process: None,
        }
    }
}

impl ZooKeeperEnsemble {
    /// Ticks of 200 ms; nothing else of note.
    pub fn builder() -> ZooKeeperBuilder {
        ZooKeeperBuilder {
            tick: Duration::from_millis(200),
            sync_ticks: 50,
            lines: Vec::new(),
            java_flags: Vec::new(),
            environment: Vec::new(),
            divisible: false,
            on_disk: false,
        }
    }

    /// Starts `count` servers and waits until each serves clients.
    pub async fn start(count: usize) -> ZooKeeperEnsemble {
        ZooKeeperEnsemble::builder().start(count).await
    }

    async fn all_serve(&self) -> bool {
        for node in &self.nodes {
            if !node.serves_soon().await {
                return false;
            }
        }
        true
    }

    /// The servers.
    pub fn nodes(&self) -> &[ZooKeeperNode] {
        &self.nodes
    }

    /// One of the servers.
    pub fn node(&mut self, number: usize) -> &mut ZooKeeperNode {
        &mut self.nodes[number]
    }

    /// Where the servers listen, as `host:port`.
    pub fn endpoints(&self) -> Vec<String> {
        self.nodes.iter().map(ZooKeeperNode::endpoint).collect()
    }

    /// A URL for all of them.
    pub fn url(&self) -> String {
        format!("zk://{}", self.endpoints().join(","))
    }

    /// The number of a server that says that it leads the ensemble. One that has just been cut off
    /// or was stopped until now may say so for a while, too.
    pub async fn leader(&self) -> usize {
        found(|| self.leader_now()).await.unwrap_or_else(|| panic!("the ensemble has no leader: {}", self.logs()))
    }

    async fn leader_now(&self) -> Option<usize> {
        for (number, node) in self.nodes.iter().enumerate() {
            if node.leads().await {
                return Some(number);
            }
        }
        None
    }

    /// The number of the server to which the client with this session is connected.
    pub async fn server_of(&self, session: i64) -> Option<usize> {
        for (number, node) in self.nodes.iter().enumerate() {
            let connections = node.ask("cons").await.unwrap_or_default();
            if connections.contains(&format!("sid=0x{session:x},")) {
                return Some(number);
            }
        }
        None
    }

    /// From now on nothing passes between this server and the others, as if the network dropped it.
    /// Clients still reach it, and connections stay open: it notices only when the others have been
    /// silent for too long.
    pub fn cut_off(&self, number: usize) {
        self.set_links(number, Way::Stall);
    }

    /// The others and this server hear from each other again.
    pub fn rejoin(&self, number: usize) {
        self.set_links(number, Way::Forward);
    }

    /// What happens from now on to what this server and the others say to each other.
    pub fn set_links(&self, number: usize, way: Way) {
        assert!(!self.links.is_empty(), "only the servers of a divisible ensemble can be cut off");
        self.links.iter().filter(|(ends, _)| ends.contains(&number)).for_each(|(_, link)| link.set(way));
    }

    /// Runs ZooKeeper's own command line, and what it said.
    pub fn cli(&self, args: &[&str]) -> String {
        let classes = format!("{CLASSES}:/usr/share/java/commons-cli.jar");
        let mut command = Command::new("java");
        command.args(JAVA_FLAGS).args(["-cp", &classes, "org.apache.zookeeper.ZooKeeperMain"]);
        let output = command.arg("-server").arg(self.endpoints().join(",")).args(args).output().expect("java");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "zkCli {args:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
        said
    }

    /// A folder that goes with the ensemble.
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// What the servers had to say.
    pub fn logs(&self) -> String {
        self.nodes.iter().filter_map(|node| std::fs::read_to_string(&node.log).ok()).collect()
    }
}

impl ZooKeeperNode {
    /// Where it listens, as `host:port`.
    pub fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The port on which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A port for TLS, which it uses if a line of configuration says so.
    pub fn secure_port(&self) -> u16 {
        self.secure_port
    }

    /// Kills it without warning.
    pub fn kill(&mut self) {
        drop(self.process.take());
    }

    /// Starts it again on the same ports with the same data, and waits until it serves clients.
    pub async fn restart(&mut self) {
        for _ in 0..STARTS {
            self.kill();
            self.run();
            if self.serves_soon().await {
                return;
            }
        }
        panic!("it does not start again");
    }

    /// Adds a line to its configuration, which counts from its next start on. A later line of the
    /// same name wins.
    pub fn configure(&self, line: &str) {
        let mut text = std::fs::read_to_string(&self.config).expect("a file");
        let _ = writeln!(text, "{line}");
        std::fs::write(&self.config, text).expect("a file");
    }

    /// Starts it again, without waiting: with too few others it cannot serve clients yet.
    pub fn run(&mut self) {
        self.process = Some(Process::start("env", &self.args, &self.log));
    }

    /// Stops it in its tracks: connections stay, nothing answers.
    pub fn pause(&self) {
        self.process.iter().for_each(Process::pause);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.process.iter().for_each(Process::resume);
    }

    /// Waits until it serves clients.
    pub async fn healthy(&self) {
        assert!(self.serves_soon().await, "it does not serve clients");
    }

    async fn serves_soon(&self) -> bool {
        comes_up(self.process.as_ref(), || self.serves()).await
    }

    /// Whether it serves clients now: alone, or as a member of an ensemble that has a leader.
    pub async fn serves(&self) -> bool {
        // Somebody else's server may have got the port.
        let is_it = |answer: String| answer.contains(&format!("dataDir={}", self.data.display()));
        self.mode().await.is_some() && self.ask("conf").await.is_some_and(is_it)
    }

    /// Whether it says of itself that it leads the ensemble.
    pub async fn leads(&self) -> bool {
        self.mode().await.is_some_and(|mode| mode == "leader")
    }

    /// What it says that it is: `standalone`, `leader` or `follower`. Nothing while it serves no
    /// clients.
    pub async fn mode(&self) -> Option<String> {
        let answer = self.ask("srvr").await?;
        answer.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned)
    }

    /// Its answer to one of ZooKeeper's four-letter questions, if it answers.
    pub async fn ask(&self, word: &str) -> Option<String> {
        let answer = async {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.ok()?;
            stream.write_all(word.as_bytes()).await.ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.ok()?;
            Some(answer)
        };
        tokio::time::timeout(ANSWER_WITHIN, answer).await.ok().flatten()
    }
}

/// A link from every server to every other.
async fn link_all(ports: &[Ports]) -> BTreeMap<[usize; 2], Link> {
    let mut listeners = BTreeMap::new();
    for (from, to) in (0..ports.len()).flat_map(|from| (0..ports.len()).map(move |to| (from, to))) {
        if from != to {
            listeners.insert([from, to], TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port"));
        }
    }
    let port = |listener: &TcpListener| listener.local_addr().expect("an address").port();
    let ways: BTreeMap<_, _> = listeners.iter().map(|(ends, listener)| (*ends, port(listener))).collect();
    let mut links = BTreeMap::new();
    for ([from, to], listener) in listeners {
        let link = Link::start(listener, ports[to].quorum, ports[to].election, ways[&[to, from]]).await;
        links.insert([from, to], link);
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::patience::{LOOK_EVERY, LOOKS};

    async fn until(what: &str, ensemble: &ZooKeeperEnsemble, mut so: impl AsyncFnMut() -> bool) {
        for _ in 0..LOOKS {
            if so().await {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        panic!("timed out: {what}: {}", ensemble.logs());
    }

    #[tokio::test]
    async fn a_killed_server_is_gone_and_a_restarted_one_is_back() {
        let mut ensemble = ZooKeeperEnsemble::start(1).await;
        assert_eq!(ensemble.nodes()[0].mode().await.as_deref(), Some("standalone"));
        ensemble.node(0).kill();
        assert!(!ensemble.nodes()[0].serves().await);
        ensemble.node(0).restart().await;
        assert!(ensemble.nodes()[0].serves().await);
    }

    #[tokio::test]
    async fn a_server_that_is_cut_off_serves_no_more_until_it_rejoins_whether_it_led_or_not() {
        let ensemble = ZooKeeperEnsemble::builder().sync_ticks(10).divisible().start(3).await;
        let (leader, nodes) = (ensemble.leader().await, ensemble.nodes());
        for cut in [(leader + 1) % 3, leader] {
            ensemble.cut_off(cut);
            until("it serves no more", &ensemble, async || !nodes[cut].serves().await).await;
            for other in (0..3).filter(|number| *number != cut) {
                until("the others serve", &ensemble, async || nodes[other].serves().await).await;
            }
            ensemble.rejoin(cut);
            until("it serves again", &ensemble, async || nodes[cut].serves().await).await;
        }
    }
}
