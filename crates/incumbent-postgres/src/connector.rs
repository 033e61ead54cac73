//! How a connection to a server is made. Knows nothing of elections.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};

use futures_util::{Stream, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_postgres::config::{Host, TargetSessionAttrs};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Error, SimpleQueryMessage, Socket};

use crate::connection::DIAL_TIMEOUT;
use crate::options::{CONNECT_TIMEOUT, SCHEME};

/// What a connection says besides its answers. It has to be polled for anything to happen on the
/// connection.
pub type Messages = Pin<Box<dyn Stream<Item = Result<AsyncMessage, Error>> + Send>>;

/// The answer of a [`Connector`].
pub type Connecting<'a> = Pin<Box<dyn Future<Output = Result<(Client, Messages), Error>> + Send + 'a>>;

/// Makes connections to the database. Implement it to bring a way to connect of your own: a tunnel,
/// say, or passwords that change.
///
/// ```
/// use incumbent_postgres::{Connecting, Connector, messages};
///
/// #[derive(Debug)]
/// struct FreshPasswords;
///
/// impl Connector for FreshPasswords {
///     fn connect(&self) -> Connecting<'_> {
///         Box::pin(async move {
///             let mut config: tokio_postgres::Config = "host=10.0.0.1 user=jobs".parse()?;
///             config.password("from somewhere");
///             let (client, connection) = config.connect(tokio_postgres::NoTls).await?;
///             Ok((client, messages(connection)))
///         })
///     }
/// }
/// ```
pub trait Connector: fmt::Debug + Send + Sync + 'static {
    /// Makes a connection. One attempt, which may go through several servers.
    fn connect(&self) -> Connecting<'_>;

    /// Makes the connection that listens for what is told. Where [`connect`](Connector::connect)
    /// goes through a transaction pooler, which tells nothing, this one has to go past it.
    fn connect_to_listen(&self) -> Connecting<'_> {
        self.connect()
    }

    /// Where it connects to, as `host:port`, for messages. `None`: they do not say.
    fn servers(&self) -> Option<String> {
        None
    }

    /// Where [`connect_to_listen`](Connector::connect_to_listen) connects to, if that is elsewhere:
    /// for messages, too.
    fn listens_at(&self) -> Option<String> {
        None
    }
}

/// What was tried, and at which server.
pub(crate) fn named(what: &str, connector: &dyn Connector) -> String {
    connector.servers().map_or_else(|| what.to_owned(), |servers| format!("{what} at {servers}"))
}

/// The messages of a connection, for a [`Connector`] of one's own.
pub fn messages<S, T>(mut connection: Connection<S, T>) -> Messages
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    Box::pin(futures_util::stream::poll_fn(move |cx| connection.poll_message(cx)))
}

/// Connections as a `tokio_postgres::Config` describes them.
pub(crate) struct Configured<T> {
    pub(crate) calls: Servers,
    /// For the connection that listens, if that is made in another way.
    pub(crate) listen: Option<Servers>,
    pub(crate) tls: T,
}

/// Servers, of which one is the primary.
pub(crate) struct Servers {
    pub(crate) config: Config,
    /// What each of them is told in place of the configuration's password, if there are any: they
    /// come from a file, and no server is told that of another.
    pub(crate) passwords: Vec<Option<String>>,
}

impl From<Config> for Servers {
    fn from(config: Config) -> Servers {
        Servers { config, passwords: Vec::new() }
    }
}

impl<T> Configured<T>
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::TlsConnect: Send,
    T::Stream: Send + 'static,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    fn connect_as<'a>(&'a self, servers: &'a Servers) -> Connecting<'a> {
        let config = &servers.config;
        if config.get_target_session_attrs() == TargetSessionAttrs::Any && count(config) > 1 {
            Box::pin(self.connect_to_primary(servers))
        } else {
            Box::pin(self.connect_once(config.clone()))
        }
    }

    async fn connect_once(&self, config: Config) -> Result<(Client, Messages), Error> {
        let (client, connection) = config.connect(self.tls.clone()).await?;
        Ok((client, messages(connection)))
    }

    /// Asks one server after the other, and not as `target_session_attrs` does, whether
    /// transactions are read-only by default: that may be a setting of the role's. If none is the
    /// primary, the answer is the last one.
    async fn connect_to_primary(&self, servers: &Servers) -> Result<(Client, Messages), Error> {
        let config = &servers.config;
        let last = count(config) - 1;
        for number in 0..last {
            let tried = async {
                let (client, mut messages) = self.connect_once(only(servers, number)).await.ok()?;
                is_primary(&client, &mut messages).await.then_some((client, messages))
            };
            // One that accepts and says nothing does not keep us from the next: all have their turn
            // before the dial is given up.
            let within = config.get_connect_timeout().copied().unwrap_or(CONNECT_TIMEOUT);
            let within = within.min(DIAL_TIMEOUT / u32::try_from(last + 1).unwrap_or(u32::MAX));
            if let Ok(Some(connected)) = timeout(within, tried).await {
                return Ok(connected);
            }
        }
        self.connect_once(only(servers, last)).await
    }
}

/// How many servers there are to choose from.
pub(crate) fn count(config: &Config) -> usize {
    config.get_hosts().len().max(config.get_hostaddrs().len())
}

/// The same for one of its servers. What `Config` has got since is missing here.
fn only(servers: &Servers, number: usize) -> Config {
    let Servers { config, passwords } = servers;
    let mut only = Config::new();
    config.get_user().map(|user| only.user(user));
    match passwords.get(number) {
        Some(password) => drop(password.as_ref().map(|password| only.password(password))),
        None => drop(config.get_password().map(|password| only.password(password))),
    }
    config.get_dbname().map(|name| only.dbname(name));
    config.get_options().map(|options| only.options(options));
    config.get_application_name().map(|name| only.application_name(name));
    match config.get_hosts().get(number) {
        Some(Host::Tcp(host)) => drop(only.host(host)),
        Some(Host::Unix(folder)) => drop(only.host_path(folder)),
        None => {}
    }
    config.get_hostaddrs().get(number).map(|address| only.hostaddr(*address));
    // One port for each, or one for all.
    let ports = config.get_ports();
    ports.get(number).or(ports.first()).map(|port| only.port(*port));
    config.get_connect_timeout().map(|timeout| only.connect_timeout(*timeout));
    config.get_tcp_user_timeout().map(|timeout| only.tcp_user_timeout(*timeout));
    config.get_keepalives_interval().map(|interval| only.keepalives_interval(interval));
    config.get_keepalives_retries().map(|retries| only.keepalives_retries(retries));
    only.keepalives(config.get_keepalives()).keepalives_idle(config.get_keepalives_idle());
    only.ssl_mode(config.get_ssl_mode()).ssl_negotiation(config.get_ssl_negotiation());
    only.channel_binding(config.get_channel_binding()).load_balance_hosts(config.get_load_balance_hosts());
    only
}

/// Whether it says that it is no standby.
async fn is_primary(client: &Client, messages: &mut Messages) -> bool {
    let mut asked = pin!(client.simple_query("SELECT pg_catalog.pg_is_in_recovery()"));
    loop {
        tokio::select! {
            biased;
            said = &mut asked => {
                let parts = said.unwrap_or_default();
                return parts.iter().any(|part| matches!(part, SimpleQueryMessage::Row(row) if row.get(0) == Some("f")));
            }
            said = messages.next() => if !matches!(said, Some(Ok(_))) { return false },
        }
    }
}

impl<T> Connector for Configured<T>
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::TlsConnect: Send,
    T::Stream: Send + 'static,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    fn connect(&self) -> Connecting<'_> {
        self.connect_as(&self.calls)
    }

    fn connect_to_listen(&self) -> Connecting<'_> {
        self.connect_as(self.listen.as_ref().unwrap_or(&self.calls))
    }

    fn servers(&self) -> Option<String> {
        names(&self.calls.config)
    }

    fn listens_at(&self) -> Option<String> {
        self.listen.as_ref().and_then(|servers| names(&servers.config))
    }
}

/// Its servers, as `host:port`.
fn names(config: &Config) -> Option<String> {
    let ports = config.get_ports();
    // One port for each host, or one for all.
    let port = |number: usize| ports.get(number).or(ports.last()).copied().unwrap_or(SCHEME.port);
    let named = config.get_hosts().iter().enumerate().map(|(number, host)| match host {
        Host::Tcp(host) => format!("{host}:{}", port(number)),
        Host::Unix(folder) => format!("{}:{}", folder.display(), port(number)),
    });
    Some(Vec::from_iter(named).join(",")).filter(|servers| !servers.is_empty())
}

/// Without the password.
impl<T> fmt::Debug for Configured<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hosts, ports) = (self.calls.config.get_hosts(), self.calls.config.get_ports());
        f.debug_struct("Configured").field("hosts", &hosts).field("ports", &ports).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tokio_postgres::config::{ChannelBinding, LoadBalanceHosts, SslMode, SslNegotiation};

    use super::*;

    /// What is left out would count for one server alone, and not where there are several.
    #[test]
    fn a_configuration_for_one_of_its_servers_says_all_that_it_said() {
        let mut config: Config = "user=me password=p dbname=d options=o application_name=x keepalives=0 \
             keepalives_idle=3 keepalives_interval=4 keepalives_retries=5 connect_timeout=6 tcp_user_timeout=7"
            .parse()
            .unwrap();
        config.ssl_mode(SslMode::Require).ssl_negotiation(SslNegotiation::Direct);
        config.channel_binding(ChannelBinding::Require).load_balance_hosts(LoadBalanceHosts::Random);
        let with = |host: &str, address: [u8; 4], port: u16| {
            let mut with = config.clone();
            with.host(host).hostaddr(address.into()).port(port);
            with
        };
        let mut both = with("a", [10, 0, 0, 1], 1);
        both.host("b").hostaddr([10, 0, 0, 2].into()).port(2);
        assert_eq!(count(&both), 2);
        let mut both = Servers::from(both);
        assert!(only(&both, 0) == with("a", [10, 0, 0, 1], 1), "{:?}", only(&both, 0));
        assert!(only(&both, 1) == with("b", [10, 0, 0, 2], 2), "{:?}", only(&both, 1));
        both.passwords = vec![None, Some("of b".to_owned())];
        let passwords = [0, 1].map(|number| only(&both, number).get_password().map(<[u8]>::to_vec));
        assert_eq!(passwords, [None, Some(b"of b".to_vec())]);
    }
}
