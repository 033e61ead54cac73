//! Where an election is held: the servers of a store, if it has any, and the links of candidates
//! to them or to each other.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use incumbent_peers::Secret;
use incumbent_testkit::free_port;
use incumbent_testkit::judge::Who;
use incumbent_testkit::proxy::{Proxy, Way};
use incumbent_testkit::servers::{EtcdCluster, PostgresServer, RedisServer, Scratch, ZooKeeperEnsemble};

/// What keeps the election.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A directory of this host.
    Directory,
    /// Three servers of etcd.
    Etcd,
    /// Three servers of ZooKeeper.
    ZooKeeper,
    /// One server of Redis that writes everything down before it answers.
    Redis,
    /// Five such servers, a majority of which gives the lock.
    Redlock,
    /// One server of PostgreSQL.
    Postgres,
    /// The candidates themselves.
    Consensus,
}

impl Kind {
    /// All of them, as they are called.
    pub const ALL: [(&str, Kind); 7] = [
        ("directory", Kind::Directory),
        ("etcd", Kind::Etcd),
        ("zookeeper", Kind::ZooKeeper),
        ("redis", Kind::Redis),
        ("redlock", Kind::Redlock),
        ("postgres", Kind::Postgres),
        ("consensus", Kind::Consensus),
    ];

    /// What it is called.
    pub fn name(self) -> &'static str {
        Kind::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// As short as it grants, or nearly: so that much happens. For peers, the longest time in which
    /// nobody asks to be elected.
    pub fn ttl(self) -> Duration {
        match self {
            Kind::Etcd | Kind::ZooKeeper | Kind::Consensus => Duration::from_secs(2),
            Kind::Directory | Kind::Redis | Kind::Redlock | Kind::Postgres => Duration::from_millis(1500),
        }
    }

    /// Whether the death of a process is known at once, and its office given to the next.
    pub fn learns_of_deaths(self) -> bool {
        self == Kind::Directory
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Kind, String> {
        let known = || Kind::ALL.map(|(name, _)| name).join(", ");
        let found = Kind::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, kind)| *kind).ok_or_else(|| format!("there is no {name:?}: there are {}", known()))
    }
}

enum Servers {
    None,
    Etcd(EtcdCluster),
    ZooKeeper(ZooKeeperEnsemble),
    Redis(Vec<RedisServer>),
    Postgres(Box<PostgresServer>),
}

/// The servers and the links.
pub struct Ground {
    kind: Kind,
    servers: Servers,
    /// From a candidate to a server, or to another candidate.
    links: BTreeMap<(Who, usize), Proxy>,
    /// Where members listen.
    members: BTreeMap<Who, String>,
    scratch: Scratch,
}

impl Ground {
    /// Starts what there is to start, for so many candidates.
    pub async fn start(kind: Kind, candidates: Who) -> Ground {
        let servers = match kind {
            Kind::Directory | Kind::Consensus => Servers::None,
            Kind::Etcd => Servers::Etcd(EtcdCluster::start(3).await),
            Kind::ZooKeeper => Servers::ZooKeeper(ZooKeeperEnsemble::start(3).await),
            Kind::Redis => Servers::Redis(redis_servers(1).await),
            Kind::Redlock => Servers::Redis(redis_servers(5).await),
            Kind::Postgres => Servers::Postgres(Box::new(PostgresServer::start().await)),
        };
        let scratch = Scratch::new("campaign");
        let everyone = 1..=candidates;
        let mut ground = Ground { kind, servers, links: BTreeMap::new(), members: BTreeMap::new(), scratch };
        if kind == Kind::Consensus {
            Secret::read_or_create(&ground.secret()).expect("a secret");
            ground.members = everyone.clone().map(|who| (who, member_address(who))).collect();
        }
        let servers = ground.addresses();
        for who in everyone.clone() {
            for (number, address) in servers.iter().enumerate() {
                ground.links.insert((who, number), Proxy::start(address).await);
            }
            for to in everyone.clone().filter(|to| kind == Kind::Consensus && *to != who) {
                ground.links.insert((who, to.into()), Proxy::start(&ground.members[&to]).await);
            }
        }
        ground
    }

    /// A folder that goes with it.
    pub fn folder(&self) -> PathBuf {
        self.scratch.path().to_owned()
    }

    fn secret(&self) -> PathBuf {
        self.scratch.path().join("secret")
    }

    fn addresses(&self) -> Vec<String> {
        match &self.servers {
            Servers::None => Vec::new(),
            Servers::Etcd(cluster) => cluster.endpoints(),
            Servers::ZooKeeper(ensemble) => ensemble.endpoints(),
            Servers::Redis(servers) => servers.iter().map(RedisServer::endpoint).collect(),
            Servers::Postgres(server) => vec![server.endpoint()],
        }
    }

    /// How many servers there are.
    pub fn servers(&self) -> usize {
        self.addresses().len()
    }

    /// Whether candidates have links to lose.
    pub fn has_links(&self) -> bool {
        !self.links.is_empty()
    }

    /// The store as this candidate reaches it.
    pub fn url(&self, who: Who) -> String {
        let links = self.links.iter().filter(|((from, _), _)| *from == who);
        let servers = links.map(|(_, link)| link.endpoint()).collect::<Vec<_>>().join(",");
        match self.kind {
            Kind::Directory => format!("file://{}/store", self.scratch.path().display()),
            Kind::Etcd => format!("etcd://{servers}"),
            Kind::ZooKeeper => format!("zk://{servers}?tick=200ms"),
            Kind::Redis => format!("redis://{servers}"),
            Kind::Redlock => format!("redlock://{servers}"),
            Kind::Postgres => format!("postgres://postgres@{servers}/postgres"),
            Kind::Consensus => self.member_url(who),
        }
    }

    fn member_url(&self, who: Who) -> String {
        let towards = |to: &Who| match self.links.get(&(who, usize::from(*to))) {
            Some(link) => format!("{to}={}", link.endpoint()),
            None => format!("{to}={}", self.members[to]),
        };
        let members = self.members.keys().map(towards).collect::<Vec<_>>().join(",");
        format!(
            "consensus://?members={members}&rank={who}&listen={}&timeout={}ms&secret-file={}&data={}/data-{who}",
            self.members[&who],
            (self.kind.ttl() / 2).as_millis(),
            self.secret().display(),
            self.scratch.path().display(),
        )
    }

    /// What happens from now on to what this candidate says, and, among peers, to what it is told.
    pub fn set_links(&self, who: Who, way: Way) {
        let of = |(from, to): &(Who, usize)| *from == who || (self.kind == Kind::Consensus && *to == usize::from(who));
        self.links.iter().filter(|(ends, _)| of(ends)).for_each(|(_, link)| link.set(way));
    }

    /// Kills a server without warning.
    pub fn kill_server(&mut self, number: usize) {
        match &mut self.servers {
            Servers::None => {}
            Servers::Etcd(cluster) => cluster.node(number).kill(),
            Servers::ZooKeeper(ensemble) => ensemble.node(number).kill(),
            Servers::Redis(servers) => servers[number].kill(),
            Servers::Postgres(server) => server.kill(),
        }
    }

    /// Starts it again.
    pub async fn start_server(&mut self, number: usize) {
        match &mut self.servers {
            Servers::None => {}
            Servers::Etcd(cluster) => cluster.node(number).restart().await,
            Servers::ZooKeeper(ensemble) => ensemble.node(number).restart().await,
            Servers::Redis(servers) => servers[number].restart().await,
            Servers::Postgres(server) => server.restart().await,
        }
    }

    /// Whether sessions that are renewed outlive a server that is stopped and goes on. Not on
    /// etcd: a member that led the cluster ends, when it goes on, what others have renewed
    /// meanwhile (etcd#15247), and no client can help it.
    pub fn may_stop_servers(&self) -> bool {
        !matches!(self.servers, Servers::Etcd(_))
    }

    /// Stops a server in its tracks.
    pub fn stop_server(&self, number: usize) {
        match &self.servers {
            Servers::None => {}
            Servers::Etcd(cluster) => cluster.nodes()[number].pause(),
            Servers::ZooKeeper(ensemble) => ensemble.nodes()[number].pause(),
            Servers::Redis(servers) => servers[number].pause(),
            Servers::Postgres(server) => server.pause(),
        }
    }

    /// Lets it go on.
    pub fn continue_server(&self, number: usize) {
        match &self.servers {
            Servers::None => {}
            Servers::Etcd(cluster) => cluster.nodes()[number].resume(),
            Servers::ZooKeeper(ensemble) => ensemble.nodes()[number].resume(),
            Servers::Redis(servers) => servers[number].resume(),
            Servers::Postgres(server) => server.resume(),
        }
    }
}

/// Each writes everything down before it answers.
async fn redis_servers(count: usize) -> Vec<RedisServer> {
    let mut servers = Vec::new();
    for _ in 0..count {
        servers.push(RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await);
    }
    servers
}

/// An address that only this member uses, and whose port nobody gets while it is down.
fn member_address(who: Who) -> String {
    format!("127.0.0.{}:{}", 100 + who, free_port())
}
