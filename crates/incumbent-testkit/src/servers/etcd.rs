//! etcd: one node or several.

use std::fmt::Write as _;
use std::future::ready;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::process::{Process, Scratch, comes_up};
use crate::free_port;
use crate::patience::found;

/// How often a start is tried: somebody else may take a port in between.
const STARTS: usize = 5;

/// A cluster of etcd servers. Dropping it kills them and removes their data.
#[derive(Debug)]
pub struct EtcdCluster {
    nodes: Vec<EtcdNode>,
    scratch: Scratch,
}

/// One server of a cluster.
#[derive(Debug)]
pub struct EtcdNode {
    args: Vec<String>,
    port: u16,
    log: PathBuf,
    process: Option<Process>,
}

impl EtcdCluster {
    /// Starts `count` servers and waits until each can answer with the whole cluster's knowledge.
    pub async fn start(count: usize) -> EtcdCluster {
        EtcdCluster::start_with(count, &[]).await
    }

    /// The same, with further arguments for each server.
    pub async fn start_with(count: usize, args: &[&str]) -> EtcdCluster {
        EtcdCluster::start_in(count, args, || Scratch::new("etcd")).await
    }

    /// The same as [`start`](EtcdCluster::start), with its data on a disk: for benchmarks.
    pub async fn start_on_disk(count: usize) -> EtcdCluster {
        EtcdCluster::start_in(count, &[], || Scratch::on_disk("etcd")).await
    }

    async fn start_in(count: usize, args: &[&str], scratch: impl Fn() -> Scratch) -> EtcdCluster {
        for _ in 0..STARTS {
            let mut cluster = EtcdCluster::prepare(count, args, scratch());
            cluster.nodes.iter_mut().for_each(EtcdNode::run);
            if cluster.all_healthy().await {
                return cluster;
            }
        }
        panic!("etcd does not start; is it installed (`scripts/setup etcd`)?");
    }

    fn prepare(count: usize, extra: &[&str], scratch: Scratch) -> EtcdCluster {
        let ports: Vec<_> = (0..count).map(|_| (free_port(), free_port())).collect();
        let mut members = String::new();
        for (number, (_, peer)) in ports.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            let _ = write!(members, "{comma}n{number}=http://127.0.0.1:{peer}");
        }
        let node = |(number, ports)| EtcdNode::prepare(number, ports, &members, extra, &scratch);
        let nodes = ports.into_iter().enumerate().map(node).collect();
        EtcdCluster { nodes, scratch }
    }

    /// Adds a server that learns what the others decide: it has no vote yet, and refuses nearly all
    /// requests. Waits until it is up.
    pub async fn add_learner(&mut self) -> &EtcdNode {
        let (number, ports) = (self.nodes.len(), (free_port(), free_port()));
        let (name, peer) = (format!("n{number}"), format!("--peer-urls=http://127.0.0.1:{}", ports.1));
        let said = self.ctl(&["member", "add", &name, &peer, "--learner"]);
        let members = said.split_once("ETCD_INITIAL_CLUSTER=\"").and_then(|(_, rest)| rest.split('"').next());
        let members = members.expect("the members");
        let mut learner =
            EtcdNode::prepare(number, ports, members, &["--initial-cluster-state=existing"], &self.scratch);
        learner.restart().await;
        self.nodes.push(learner);
        &self.nodes[number]
    }

    async fn all_healthy(&self) -> bool {
        for node in &self.nodes {
            if !node.is_tls() && !node.is_healthy_soon().await {
                return false;
            }
        }
        true
    }

    /// The servers.
    pub fn nodes(&self) -> &[EtcdNode] {
        &self.nodes
    }

    /// One of the servers.
    pub fn node(&mut self, number: usize) -> &mut EtcdNode {
        &mut self.nodes[number]
    }

    /// Where the servers listen, as `host:port`.
    pub fn endpoints(&self) -> Vec<String> {
        self.nodes.iter().map(EtcdNode::endpoint).collect()
    }

    /// A URL for all of them.
    pub fn url(&self) -> String {
        format!("etcd://{}", self.endpoints().join(","))
    }

    /// The number of the server that leads the cluster.
    pub async fn leader(&self) -> usize {
        let leads = |node: &EtcdNode| node.process.is_some() && node.leads();
        let leader = found(|| ready(self.nodes.iter().position(leads))).await;
        leader.unwrap_or_else(|| panic!("the cluster has no leader: {}", self.logs()))
    }

    /// etcd's own command, for this cluster.
    pub fn etcdctl(&self) -> Command {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").arg(format!("--endpoints={}", self.endpoints().join(",")));
        command
    }

    /// Runs etcd's own command, and what it said.
    pub fn ctl(&self, args: &[&str]) -> String {
        let output = self.etcdctl().args(args).output().expect("etcdctl");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "etcdctl {args:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
        said
    }

    /// A folder that goes with the cluster.
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// What the servers had to say.
    pub fn logs(&self) -> String {
        self.nodes.iter().filter_map(|node| std::fs::read_to_string(&node.log).ok()).collect()
    }
}

impl EtcdNode {
    fn prepare(
        number: usize,
        (client, peer): (u16, u16),
        members: &str,
        extra: &[&str],
        scratch: &Scratch,
    ) -> EtcdNode {
        let data = scratch.path().join(format!("n{number}"));
        let mut args = vec![
            format!("--name=n{number}"),
            format!("--data-dir={}", data.display()),
            format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
            format!("--initial-advertise-peer-urls=http://127.0.0.1:{peer}"),
            format!("--initial-cluster={members}"),
            "--logger=zap".to_owned(),
            "--log-level=warn".to_owned(),
        ];
        if !extra.iter().any(|arg| arg.starts_with("--listen-client-urls")) {
            args.push(format!("--listen-client-urls=http://127.0.0.1:{client}"));
            args.push(format!("--advertise-client-urls=http://127.0.0.1:{client}"));
        }
        args.extend(extra.iter().map(|arg| arg.replace("{client}", &client.to_string())));
        EtcdNode { args, port: client, log: scratch.path().join(format!("n{number}.log")), process: None }
    }

    /// Where it listens, as `host:port`.
    pub fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The port on which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills it without warning.
    pub fn kill(&mut self) {
        drop(self.process.take());
    }

    /// Starts it again on the same ports with the same data, and waits until it answers.
    pub async fn restart(&mut self) {
        self.kill();
        for _ in 0..STARTS {
            self.run();
            if self.is_healthy_soon().await {
                return;
            }
            self.kill();
        }
        panic!("it does not start again");
    }

    /// Adds an argument, which counts from its next start on. Of two of the same name the later one
    /// counts.
    pub fn configure(&mut self, arg: &str) {
        self.args.push(arg.to_owned());
    }

    /// Starts it again, without waiting: with too few others it cannot answer yet.
    pub fn run(&mut self) {
        self.process = Some(Process::start("etcd", &self.args, &self.log));
    }

    /// Stops it in its tracks: connections stay, nothing answers.
    pub fn pause(&self) {
        self.process.iter().for_each(Process::pause);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.process.iter().for_each(Process::resume);
    }

    /// Waits until it answers with the whole cluster's knowledge.
    pub async fn healthy(&self) {
        assert!(self.is_healthy_soon().await, "it does not answer");
    }

    async fn is_healthy_soon(&self) -> bool {
        let health = || self.ask("GET", "/health");
        let is_healthy = || ready(health().is_some_and(|answer| answer.contains("\"health\":\"true\"")));
        comes_up(self.process.as_ref(), is_healthy).await
    }

    /// Whether it says of itself that it leads the cluster.
    fn leads(&self) -> bool {
        let Some(status) = self.ask("POST", "/v3/maintenance/status") else { return false };
        let number = |field: &str| {
            let (_, rest) = status.split_once(&format!("\"{field}\":\""))?;
            rest.split('"').next()
        };
        number("leader").is_some_and(|leader| Some(leader) == number("member_id"))
    }

    fn is_tls(&self) -> bool {
        self.args.iter().any(|arg| arg.starts_with("--cert-file"))
    }

    fn ask(&self, method: &str, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{{}}");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }
}
