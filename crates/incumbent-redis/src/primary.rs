//! Which server is the one to ask: one that is named, the primary that Sentinels name, or the
//! member of a cluster that keeps our keys.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use futures_util::stream::{FuturesUnordered, StreamExt};
use incumbent_store::{Effect, StoreError, lock};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, RedisError};
use tokio::time::error::Elapsed;

use crate::error::{classify, classify_dial};
use crate::info::{field, refuse_eviction};
use crate::keys::OwnKey;

/// How long a connection may take to come up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long the first one that is named may be silent before the next is asked as well.
const HEAD_START: Duration = Duration::from_millis(300);

/// Where the primary is.
#[derive(Clone)]
pub(crate) enum PrimaryLookup {
    /// One of these. If there are several, they are members of a cluster.
    Servers(Vec<Client>),
    /// Whichever these Sentinels call the primary of this name.
    Sentinels {
        sentinels: Vec<Client>,
        name: String,
        /// Who we are there; its address does not matter.
        primary: Box<Client>,
    },
}

impl PrimaryLookup {
    /// Whether another server may take over: that is what Sentinels are for, whether or not a
    /// replica is connected just now.
    pub(crate) fn may_fail_over(&self) -> bool {
        matches!(self, PrimaryLookup::Sentinels { .. })
    }

    /// A connection to the primary, looked up anew, for steps: the server keeps what it is told,
    /// and nobody else uses our keys.
    pub(crate) async fn connect(
        self,
        keys: Arc<[OwnKey]>,
        allow_eviction: bool,
    ) -> Result<MultiplexedConnection, StoreError> {
        let named = self.named();
        self.first(move |server| reach(server, keys.clone(), allow_eviction, named)).await
    }

    /// A connection for news, which every member of a cluster hears.
    pub(crate) async fn connect_for_watches(
        self,
        config: AsyncConnectionConfig,
    ) -> Result<MultiplexedConnection, StoreError> {
        self.first(move |server| dial(server, config.clone())).await
    }

    fn named(&self) -> Named {
        match self {
            PrimaryLookup::Servers(servers) if servers.len() > 1 => Named::InCluster,
            PrimaryLookup::Servers(_) => Named::Alone,
            PrimaryLookup::Sentinels { .. } => Named::BySentinel,
        }
    }

    /// The first of the servers that is reached, or of those that Sentinels name: one that was cut
    /// off from the others may name a server that is no longer the primary. What several name is
    /// reached for once.
    async fn first<F>(self, reach: impl Fn(Client) -> F) -> Result<MultiplexedConnection, StoreError>
    where
        F: Future<Output = Result<MultiplexedConnection, StoreError>> + Send + 'static,
    {
        let (sentinels, name, primary) = match self {
            PrimaryLookup::Servers(servers) => return first_of(servers, reach).await,
            PrimaryLookup::Sentinels { sentinels, name, primary } => (sentinels, name, primary),
        };
        let reached: Mutex<BTreeMap<(String, u16), Reached>> = Mutex::default();
        let reach_named = async |sentinel| {
            let (host, port) = ask_sentinel(sentinel, name.clone()).await?;
            let server = at(&primary, &host, port)?;
            let reached = lock(&reached).entry((host, port)).or_insert_with(|| reach(server).boxed().shared()).clone();
            reached.await
        };
        first_of(sentinels, reach_named).await
    }
}

type Reached = Shared<BoxFuture<'static, Result<MultiplexedConnection, StoreError>>>;

/// How we have come to a server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Named {
    Alone,
    InCluster,
    BySentinel,
}

impl fmt::Debug for PrimaryLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses = |clients: &[Client]| {
            let addresses = clients.iter().map(|client| client.get_connection_info().addr().to_string());
            addresses.collect::<Vec<_>>().join(",")
        };
        match self {
            PrimaryLookup::Servers(servers) => f.write_str(&addresses(servers)),
            PrimaryLookup::Sentinels { sentinels, name, .. } => write!(f, "{name} at {}", addresses(sentinels)),
        }
    }
}

fn silent(elapsed: Elapsed) -> StoreError {
    StoreError::unavailable("the server says nothing", elapsed)
}

/// The first good answer, or the refusal of one that can be reached. The next is asked when those
/// before it have failed, or have said nothing for a while: one that takes connections and hangs
/// would hold up a leader that has to renew. Asking another is no repetition: nothing has been done
/// yet.
async fn first_of<T, F>(clients: Vec<Client>, ask: impl Fn(Client) -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut failure = StoreError::Misuse { what: "no server is named".to_owned() };
    let mut clients = clients.into_iter();
    let mut asked = FuturesUnordered::new();
    loop {
        asked.extend(clients.next().map(&ask));
        let answer = match clients.len() {
            0 => asked.next().await,
            _ => match tokio::time::timeout(HEAD_START, asked.next()).await {
                Ok(answer) => answer,
                Err(_) => continue,
            },
        };
        match answer {
            Some(Err(error @ StoreError::Unavailable { .. })) => failure = error,
            Some(done) => return done,
            None => return Err(failure),
        }
    }
}

/// A connection to this server; or, since a member of a cluster knows who keeps our keys, to that
/// one.
async fn reach(
    mut server: Client,
    keys: Arc<[OwnKey]>,
    allow_eviction: bool,
    named: Named,
) -> Result<MultiplexedConnection, StoreError> {
    for _ in 0..2 {
        let mut connection = dial(server.clone(), AsyncConnectionConfig::new()).await?;
        let address = server.get_connection_info().addr().to_string();
        let looked = look_at(&mut connection, &address, &keys, allow_eviction, named);
        match tokio::time::timeout(CONNECT_TIMEOUT, looked).await.map_err(silent)?? {
            Looked::Ready => return Ok(connection),
            Looked::Moved(host, port) => server = at(&server, &host, port)?,
        }
    }
    let what = "the members of the cluster do not agree who keeps our keys".to_owned();
    Err(StoreError::Unavailable { what, source: None })
}

/// Where the primary of this name is.
async fn ask_sentinel(sentinel: Client, name: String) -> Result<(String, u16), StoreError> {
    let mut connection = dial(sentinel.clone(), AsyncConnectionConfig::new()).await?;
    let mut question = redis::cmd("SENTINEL");
    question.arg("get-master-addr-by-name").arg(&name);
    let answer = tokio::time::timeout(CONNECT_TIMEOUT, question.query_async(&mut connection)).await;
    let answer: Result<Option<(String, u16)>, RedisError> = answer.map_err(silent)?;
    let address = answer.map_err(|error| classify(error, Effect::None, "asking a Sentinel for the primary"))?;
    address.ok_or_else(|| StoreError::Unavailable {
        what: format!("the Sentinel at {} knows no primary called {name:?}", sentinel.get_connection_info().addr()),
        source: None,
    })
}

/// The same as `client`, at another address. An empty host: at the same host.
fn at(client: &Client, host: &str, port: u16) -> Result<Client, StoreError> {
    let info = client.get_connection_info().clone();
    let moved = |was: &str| if host.is_empty() { was.to_owned() } else { host.to_owned() };
    let address = match info.addr() {
        ConnectionAddr::TcpTls { host: was, insecure, tls_params, .. } => {
            let (insecure, tls_params) = (*insecure, tls_params.clone());
            ConnectionAddr::TcpTls { host: moved(was), port, insecure, tls_params }
        }
        ConnectionAddr::Tcp(was, _) => ConnectionAddr::Tcp(moved(was), port),
        _ => ConnectionAddr::Tcp(moved("localhost"), port),
    };
    Client::open(info.set_addr(address)).map_err(|error| classify_dial(error, "the address of a server"))
}

async fn dial(client: Client, config: AsyncConnectionConfig) -> Result<MultiplexedConnection, StoreError> {
    // How long an answer may take is for the caller to say.
    let config = config.set_connection_timeout(Some(CONNECT_TIMEOUT)).set_response_timeout(None);
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    let what = || format!("connecting to {}", client.get_connection_info().addr());
    // The client's own limit does not count what is said after the connection is there.
    match tokio::time::timeout(CONNECT_TIMEOUT, connection).await {
        Ok(connection) => connection.map_err(|error| classify_dial(error, &what())),
        Err(elapsed) => Err(StoreError::unavailable(what(), elapsed)),
    }
}

enum Looked {
    Ready,
    /// Another member of the cluster keeps our keys.
    Moved(String, u16),
}

/// What has to be so before the first step.
async fn look_at(
    connection: &mut MultiplexedConnection,
    address: &str,
    keys: &[OwnKey],
    allow_eviction: bool,
    named: Named,
) -> Result<Looked, StoreError> {
    let what = "looking at the server";
    let (mut ours, mut other) = (0, None);
    for key in keys {
        let is: Result<String, RedisError> = redis::cmd("TYPE").arg(&key.name).query_async(connection).await;
        match is {
            Ok(is) if is == "none" => {}
            Ok(is) if is == key.kind => ours += 1,
            Ok(is) => other = other.or(Some((key, is))),
            Err(error) => match moved_to(&error) {
                Some((host, port)) => return Ok(Looked::Moved(host, port)),
                None => {
                    let name = String::from_utf8_lossy(&key.name);
                    return Err(classify_dial(error, &format!("{what}: the key {name:?}")));
                }
            },
        }
    }
    if let Some((OwnKey { name, advice, .. }, is)) = other {
        let name = String::from_utf8_lossy(name);
        return Err(match ours {
            0 => StoreError::Foreign { what: format!("the key {name:?} is a {is} of somebody else's; {advice}") },
            // There is a store here, and this key was overwritten.
            _ => StoreError::Corrupt {
                what: format!(
                    "the key {name:?}, of a store of ours, is a {is} by now: somebody has overwritten it. Once all \
                     candidates are stopped, delete it: what follows is another store, and fences have to be reset \
                     (docs/runbooks.md#the-store-was-restored)"
                ),
            },
        });
    }
    let info: Result<String, RedisError> = redis::cmd("INFO").arg("everything").query_async(connection).await;
    let info = info.map_err(|error| classify_dial(error, what))?;
    if named == Named::BySentinel && field(&info, "role") != Some("master") {
        // Another Sentinel may know of another.
        let what = format!("the server at {address}, which a Sentinel calls the primary, is a replica");
        return Err(StoreError::Unavailable { what, source: None });
    }
    if !allow_eviction {
        refuse_eviction(&info)?;
    }
    if named == Named::InCluster && field(&info, "cluster_enabled") != Some("1") {
        // Each would have elections of its own, and a leader of its own.
        let what = "several servers are named, and one of them is no member of a cluster: name one, or Sentinels and the \
                    name of their primary (?sentinel=...)";
        return Err(StoreError::Misuse { what: what.to_owned() });
    }
    Ok(Looked::Ready)
}

/// Where a member of a cluster says that a key is: `host:port` stands beside its slot. An IPv6
/// address has colons of its own, and a host that is not said is the same.
fn moved_to(error: &RedisError) -> Option<(String, u16)> {
    let (address, _slot) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    Some((host.to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use incumbent_testkit::servers::Certificates;
    use redis::{ConnectionInfo, RedisConnectionInfo};

    use super::*;
    use crate::options::parse_url;

    /// Who we are there, and with which certificates: all of it but where to.
    fn apart_from_the_address(info: &ConnectionInfo) -> (String, [Option<&str>; 2], i64, String) {
        let settings: &RedisConnectionInfo = info.redis_settings();
        let tls = match info.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params: Some(params), .. } => format!("{insecure} {params:?}"),
            other => other.to_string(),
        };
        let protocol = format!("{:?} {}", settings.protocol(), settings.skip_set_lib_name());
        (tls, [settings.username(), settings.password()], settings.db(), protocol)
    }

    #[test]
    fn another_server_is_reached_in_the_same_way_as_the_one_that_named_it() {
        let certificates = Certificates::new("IP:127.0.0.1");
        let [ca, cert, key] = ["ca.pem", "client.pem", "client.key"].map(|file| certificates.file(file));
        let url = format!("rediss://us:secret@named:1/3?ca={ca}&cert={cert}&key={key}");
        let Ok((PrimaryLookup::Servers(named), _)) = parse_url(&url) else { panic!("{url}") };
        let info = named[0].get_connection_info();
        let ConnectionAddr::TcpTls { tls_params: Some(params), .. } = info.addr() else { panic!("{info:?}") };
        // As a program may reach its server, though no URL of ours says so.
        let unchecked = |host: &str, port| ConnectionAddr::TcpTls {
            host: host.to_owned(),
            port,
            insecure: true,
            tls_params: Some(params.clone()),
        };
        let client = Client::open(info.clone().set_addr(unchecked("named", 1))).unwrap();
        let expected = apart_from_the_address(client.get_connection_info());
        assert_eq!((expected.1, expected.2), ([Some("us"), Some("secret")], 3));

        for (said, host) in [("other", "other"), ("", "named"), ("::1", "::1")] {
            let moved = at(&client, said, 2).unwrap();
            assert_eq!(*moved.get_connection_info().addr(), unchecked(host, 2), "{said:?}");
            assert_eq!(apart_from_the_address(moved.get_connection_info()), expected, "{said:?}");
        }
        let plain = at(&Client::open("redis://named:1").unwrap(), "other", 2).unwrap();
        assert_eq!(*plain.get_connection_info().addr(), ConnectionAddr::Tcp("other".to_owned(), 2));
    }
}
