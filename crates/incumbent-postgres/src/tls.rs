//! TLS over rustls, as tokio-postgres wants it.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use incumbent_store::StoreError;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

/// Whom we trust and who we are.
#[derive(Clone)]
pub(crate) struct Rustls(Arc<ClientConfig>);

impl Rustls {
    /// With certificates in PEM: those that are trusted, and our own with its key.
    pub(crate) fn new(root: &[u8], identity: Option<(&[u8], &[u8])>) -> Result<Rustls, StoreError> {
        let wrong =
            |error: &dyn fmt::Display| StoreError::Misuse { what: format!("the certificates for TLS: {error}") };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(root) {
            roots.add(certificate.map_err(|error| wrong(&error))?).map_err(|error| wrong(&error))?;
        }
        if roots.is_empty() {
            return Err(wrong(&"sslrootcert holds none (it begins with -----BEGIN CERTIFICATE-----)"));
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(&error))?
            .with_root_certificates(roots);
        let config = match identity {
            None => config.with_no_client_auth(),
            Some((certificates, key)) => {
                let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates).collect();
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| wrong(&error))?;
                let chain = chain.map_err(|error| wrong(&error))?;
                config.with_client_auth_cert(chain, key).map_err(|error| wrong(&error))?
            }
        };
        Ok(Rustls(Arc::new(config)))
    }
}

/// What to do about what no waiting mends. A certificate whose time is over, or is still to come,
/// is not that: it is renewed, or the clock of this host is set.
pub(crate) fn advice(cause: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    use CertificateError as Certificate;
    let inside = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref)?;
    match inside.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(why) => match why {
            Certificate::UnknownIssuer => Some("sslrootcert has to hold the authority behind the server's certificate"),
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => {
                Some("name the host as the server's certificate does: names are always checked")
            }
            Certificate::Expired
            | Certificate::ExpiredContext { .. }
            | Certificate::NotValidYet
            | Certificate::NotValidYetContext { .. } => None,
            _ => Some("the server needs another certificate"),
        },
        rustls::Error::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateRequired,
        ) => Some("the server does not trust our certificate (sslcert, and ssl_ca_file of the server)"),
        _ => None,
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Rustls {
    type Stream = Stream<S>;
    type TlsConnect = Handshake;
    type Error = InvalidDnsNameError;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Handshake, InvalidDnsNameError> {
        Ok(Handshake { config: self.0.clone(), server: ServerName::try_from(domain)?.to_owned() })
    }
}

pub(crate) struct Handshake {
    config: Arc<ClientConfig>,
    server: ServerName<'static>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Handshake {
    type Stream = Stream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        let connector = tokio_rustls::TlsConnector::from(self.config);
        Box::pin(async move { Ok(Stream(connector.connect(self.server, stream).await?)) })
    }
}

/// A connection over TLS.
pub(crate) struct Stream<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Stream<S> {
    /// None: the hash of a certificate depends on how it was signed, and a password that is
    /// exchanged with SCRAM is safe on a connection whose certificate was checked.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
