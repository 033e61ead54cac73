//! How a connection to one server is made: when it is needed, and again when it is lost.

use std::fmt;
use std::time::Duration;

use incumbent_store::StoreError;
use tonic::transport::{Channel, Endpoint};

use crate::rpc::Client;

/// How long a connection may take to come up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How often a silent connection is asked for a sign of life: servers close those that ask more
/// than every 5 s.
const PING_EVERY: Duration = Duration::from_secs(6);
const PING_TIMEOUT: Duration = Duration::from_secs(4);

/// One server, and who we are there.
pub(crate) struct Connector {
    to: To,
    user: Option<(String, String)>,
}

enum To {
    Server(Box<Endpoint>),
    /// The user's own connection, which may choose among servers by itself.
    Given(Channel),
}

impl Connector {
    pub(crate) fn server(url: &str, user: Option<(String, String)>) -> Result<Connector, StoreError> {
        let wrong = |error| StoreError::Misuse { what: format!("the endpoint {url:?}: {error}") };
        let endpoint = Endpoint::from_shared(url.to_owned()).map_err(wrong)?;
        let endpoint = endpoint
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(false);
        Ok(Connector { to: To::Server(Box::new(endpoint)), user })
    }

    pub(crate) fn given(channel: Channel, user: Option<(String, String)>) -> Connector {
        Connector { to: To::Given(channel), user }
    }

    /// Speaks TLS.
    #[cfg(feature = "tls")]
    pub(crate) fn tls(self, tls: tonic::transport::ClientTlsConfig) -> Result<Connector, StoreError> {
        let wrong = |error| StoreError::Misuse { what: format!("the certificates for TLS: {error}") };
        let to = match self.to {
            To::Server(endpoint) => To::Server(Box::new(endpoint.tls_config(tls).map_err(wrong)?)),
            given @ To::Given(_) => given,
        };
        Ok(Connector { to, ..self })
    }

    /// The server, as `host:port`. `None`: only the user's own connection knows.
    pub(crate) fn server_name(&self) -> Option<&str> {
        match &self.to {
            To::Server(endpoint) => endpoint.uri().authority().map(|server| server.as_str()),
            To::Given(_) => None,
        }
    }

    /// A client that connects with its first request.
    pub(crate) fn client(&self) -> Client {
        let channel = match &self.to {
            To::Given(channel) => channel.clone(),
            To::Server(endpoint) => endpoint.connect_lazy(),
        };
        Client::new(channel, self.user.clone())
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.to {
            To::Server(endpoint) => write!(f, "{}", endpoint.uri()),
            To::Given(_) => f.write_str("(given)"),
        }
    }
}
