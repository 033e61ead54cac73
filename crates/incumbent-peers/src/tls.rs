//! Mutual TLS beneath the handshake, for those whose hosts have certificates: the secret alone is
//! then not enough to connect, a member answers only at the host that its certificate names, and
//! certificates expire. It comes before the secret, not in its place: a certificate says that a
//! process belongs to the same organisation, the secret that it belongs to this group. Connections
//! are encrypted with or without it.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use crate::config::ConfigError;

/// Certificates for both directions: a member serves and dials, a
/// [`QueryClient`](crate::QueryClient) only dials.
#[derive(Clone)]
pub struct Tls {
    connector: TlsConnector,
    acceptor: TlsAcceptor,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls(..)")
    }
}

impl Tls {
    /// From PEM texts: the CA that both ends trust, and this process's own certificate chain and
    /// key.
    ///
    /// A member's certificate has to name the host part of its address.
    pub fn new(ca: &[u8], chain: &[u8], key: &[u8]) -> Result<Tls, ConfigError> {
        let refused = |why: &dyn fmt::Display| ConfigError::Tls(why.to_string());
        let mut roots = RootCertStore::empty();
        for certificate in certificates(ca)? {
            roots.add(certificate).map_err(|why| refused(&why))?;
        }
        let roots = Arc::new(roots);
        let (chain, key) = (certificates(chain)?, PrivateKeyDer::from_pem_slice(key).map_err(|why| refused(&why))?);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions = &[&rustls::version::TLS13];
        let client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)
            .map_err(|why| refused(&why))?
            .with_root_certificates(roots.clone())
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .map_err(|why| refused(&why))?;
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone()).build();
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(|why| refused(&why))?
            .with_client_cert_verifier(verifier.map_err(|why| refused(&why))?)
            .with_single_cert(chain, key)
            .map_err(|why| refused(&why))?;
        Ok(Tls { connector: Arc::new(client).into(), acceptor: Arc::new(server).into() })
    }

    /// The same, from files.
    pub fn read(ca: &Path, chain: &Path, key: &Path) -> Result<Tls, ConfigError> {
        let read = |path: &Path| std::fs::read(path).map_err(|why| ConfigError::Tls(format!("{path:?}: {why}")));
        Tls::new(&read(ca)?, &read(chain)?, &read(key)?)
    }

    pub(crate) async fn connect(&self, address: &str, stream: TcpStream) -> io::Result<client::TlsStream<TcpStream>> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
        self.connector.connect(name, stream).await
    }

    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<server::TlsStream<TcpStream>> {
        self.acceptor.accept(stream).await
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match read {
        Ok(certificates) if certificates.is_empty() => {
            Err(ConfigError::Tls("there is no certificate in it".to_owned()))
        }
        Ok(certificates) => Ok(certificates),
        Err(why) => Err(ConfigError::Tls(why.to_string())),
    }
}
