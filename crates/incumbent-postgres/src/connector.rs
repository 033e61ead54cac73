//! How a connection to a server is made. Knows nothing of elections.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use futures_util::Stream;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::config::Host;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Error, Socket};

use crate::options::SCHEME;

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
    pub(crate) config: Config,
    /// For the connection that listens, if that is made in another way.
    pub(crate) listen: Option<Config>,
    pub(crate) tls: T,
}

impl<T> Configured<T>
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::TlsConnect: Send,
    T::Stream: Send + 'static,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    fn connect_as<'a>(&'a self, config: &'a Config) -> Connecting<'a> {
        Box::pin(async move {
            let (client, connection) = config.connect(self.tls.clone()).await?;
            Ok((client, messages(connection)))
        })
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
        self.connect_as(&self.config)
    }

    fn connect_to_listen(&self) -> Connecting<'_> {
        self.connect_as(self.listen.as_ref().unwrap_or(&self.config))
    }

    fn servers(&self) -> Option<String> {
        let ports = self.config.get_ports();
        // One port for each host, or one for all.
        let port = |number: usize| ports.get(number).or(ports.last()).copied().unwrap_or(SCHEME.port);
        let named = self.config.get_hosts().iter().enumerate().map(|(number, host)| match host {
            Host::Tcp(host) => format!("{host}:{}", port(number)),
            Host::Unix(folder) => format!("{}:{}", folder.display(), port(number)),
        });
        Some(Vec::from_iter(named).join(",")).filter(|servers| !servers.is_empty())
    }
}

/// Without the password.
impl<T> fmt::Debug for Configured<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hosts, ports) = (self.config.get_hosts(), self.config.get_ports());
        f.debug_struct("Configured").field("hosts", &hosts).field("ports", &ports).finish_non_exhaustive()
    }
}
