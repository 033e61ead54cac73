//! How a connection to one server is made: when it is needed, and again when it is lost.

use std::time::Duration;

use etcd_client::{Channel, Client, ConnectOptions};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use incumbent_store::StoreError;
use tonic::transport::Endpoint;
use tower::ServiceExt;

use crate::cork::Cork;

/// How long a connection may take to come up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How often a silent connection is asked for a sign of life: servers close those that ask more than every 5 s.
const PING_EVERY: Duration = Duration::from_secs(6);
const PING_TIMEOUT: Duration = Duration::from_secs(4);

/// One server, and what it is shown.
#[derive(Clone)]
pub(crate) struct Dial {
    endpoint: Endpoint,
    options: ConnectOptions,
}

impl Dial {
    pub(crate) fn new(url: &str, options: ConnectOptions) -> Result<Dial, StoreError> {
        let wrong = |error| StoreError::Misuse { what: format!("the endpoint {url:?}: {error}") };
        let endpoint = Endpoint::from_shared(url.to_owned()).map_err(wrong)?;
        let endpoint = endpoint
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(false);
        Ok(Dial { endpoint, options })
    }

    /// Speaks TLS.
    #[cfg(feature = "tls")]
    pub(crate) fn tls(mut self, tls: etcd_client::TlsOptions) -> Result<Dial, StoreError> {
        let wrong = |error| StoreError::Misuse { what: format!("the certificates for TLS: {error}") };
        self.endpoint = self.endpoint.tls_config(tls).map_err(wrong)?;
        Ok(self)
    }

    /// A client that connects with its first request, except that credentials are shown at once.
    pub(crate) async fn client(&self) -> Result<Client, etcd_client::Error> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let corked = tcp.map_response(|connection| TokioIo::new(Cork::new(connection.into_inner())));
        let channel = self.endpoint.connect_with_connector_lazy(corked);
        Client::from_channel(Channel::Tonic(channel), Some(self.options.clone())).await
    }

    pub(crate) fn uri(&self) -> String {
        self.endpoint.uri().to_string()
    }
}
