//! How to reach a cluster: options, and the URL that holds them.

use std::fmt;

use incumbent_store::StoreError;
use incumbent_store::url::Scheme;
use tonic::transport::Channel;

use crate::connect::Connector;

const SCHEME: Scheme = Scheme { name: "etcd", store: "an etcd store", port: 2379 };

/// How to reach a cluster. Requests ask for a cluster with a leader, and expired credentials are
/// renewed.
#[derive(Clone, Default)]
pub struct EtcdOptions {
    user: Option<(String, String)>,
    prefix: String,
    tls: Option<Tls>,
}

#[derive(Clone, Default)]
struct Tls {
    ca: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
    server_name: Option<String>,
}

impl EtcdOptions {
    /// No user, no TLS, no prefix.
    pub fn new() -> EtcdOptions {
        EtcdOptions::default()
    }

    /// Who we are.
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> EtcdOptions {
        self.user = Some((name.into(), password.into()));
        self
    }

    /// Comes before the name of every election.
    pub fn prefix(mut self, prefix: impl Into<String>) -> EtcdOptions {
        self.prefix = prefix.into();
        self
    }

    /// Speaks TLS.
    pub fn tls(mut self) -> EtcdOptions {
        self.tls.get_or_insert_default();
        self
    }

    /// Speaks TLS and trusts these certificates (PEM).
    pub fn ca(mut self, pem: impl Into<Vec<u8>>) -> EtcdOptions {
        self.tls.get_or_insert_default().ca = Some(pem.into());
        self
    }

    /// Speaks TLS and shows this certificate, with its key (PEM).
    pub fn identity(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> EtcdOptions {
        self.tls.get_or_insert_default().identity = Some((certificate.into(), key.into()));
        self
    }

    /// Speaks TLS and expects this name in the servers' certificates.
    pub fn server_name(mut self, name: impl Into<String>) -> EtcdOptions {
        self.tls.get_or_insert_default().server_name = Some(name.into());
        self
    }

    /// No user, and no certificate that could stand for one.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.user.is_none() && self.tls.is_none()
    }

    pub(crate) fn checked_prefix(&self) -> Result<&str, StoreError> {
        if self.prefix.contains("//") || self.prefix.chars().any(char::is_control) || self.prefix.len() > 255 {
            let what = "a prefix has at most 255 bytes, no control characters and no //".to_owned();
            return Err(StoreError::Misuse { what });
        }
        Ok(&self.prefix)
    }

    /// How to reach this server.
    pub(crate) fn connector(&self, server: &str) -> Result<Connector, StoreError> {
        let server = SCHEME.server(server)?;
        match &self.tls {
            Some(tls) => tls.add_to(Connector::server(&format!("https://{server}"), self.user.clone())?),
            None => Connector::server(&format!("http://{server}"), self.user.clone()),
        }
    }

    /// Who we are on a connection that is there already.
    pub(crate) fn connector_over(&self, channel: Channel) -> Result<Connector, StoreError> {
        if self.tls.is_some() {
            let what = "a connection of your own is made with TLS or without: it takes no options for TLS".to_owned();
            return Err(StoreError::Misuse { what });
        }
        Ok(Connector::given(channel, self.user.clone()))
    }
}

impl Tls {
    #[cfg(feature = "tls")]
    fn add_to(&self, connector: Connector) -> Result<Connector, StoreError> {
        use tonic::transport::{Certificate, ClientTlsConfig, Identity};

        let mut tls = ClientTlsConfig::new();
        if let Some(ca) = &self.ca {
            tls = tls.ca_certificate(Certificate::from_pem(ca));
        }
        if let Some((certificate, key)) = &self.identity {
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        if let Some(name) = &self.server_name {
            tls = tls.domain_name(name);
        }
        connector.tls(tls)
    }

    #[cfg(not(feature = "tls"))]
    fn add_to(&self, _connector: Connector) -> Result<Connector, StoreError> {
        let Tls { ca: _, identity: _, server_name: _ } = self;
        Err(StoreError::Misuse { what: "this build does not speak TLS: it lacks the feature `tls`".to_owned() })
    }
}

impl fmt::Debug for EtcdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdOptions")
            .field("user", &self.user.as_ref().map(|(name, _)| name))
            .field("prefix", &self.prefix)
            .field("tls", &self.tls.is_some())
            .finish()
    }
}

/// The endpoints and options that a URL holds. What goes wrong is told without the password.
pub(crate) fn parse_url(url: &str) -> Result<(Vec<String>, EtcdOptions), StoreError> {
    let url = SCHEME.read(url)?;
    if !matches!(url.path.as_str(), "" | "/") {
        return Err(SCHEME.wrong("it has no path; a prefix for names is an option: ?prefix=..."));
    }
    let mut options = EtcdOptions { user: url.user.clone(), ..EtcdOptions::new() };
    if let Some(tls) = &url.tls {
        options = options.ca(tls.ca.as_str());
        if let Some((certificate, key)) = &tls.identity {
            options = options.identity(certificate.as_str(), key.as_str());
        }
    }
    for (word, value) in &url.options {
        options = match word.as_str() {
            "prefix" => options.prefix(value),
            "server-name" if url.tls.is_some() => options.server_name(value),
            _ => return Err(url.unknown_option(word)),
        };
    }
    Ok((url.servers, options))
}

#[cfg(test)]
mod tests {
    use incumbent_testkit::servers::Certificates;

    use super::*;

    #[test]
    fn a_url_says_where_the_servers_are_and_who_we_are() {
        let (endpoints, options) = parse_url("etcd://us%3Aer:p%40ss@a:1,b/?prefix=team%2f").unwrap();
        assert_eq!(endpoints, ["a:1", "b:2379"]);
        assert_eq!((options.tls.is_some(), options.user.clone()), (false, Some(("us:er".into(), "p@ss".into()))));
        assert_eq!(options.checked_prefix().unwrap(), "team/");
    }

    #[test]
    fn with_tls_a_url_says_whom_we_trust_and_what_the_servers_are_called() {
        let certificates = Certificates::new("DNS:b");
        let [ca, cert, key] = ["ca.pem", "client.pem", "client.key"].map(|file| certificates.file(file));
        let url = format!("etcds://a?server-name=b&ca={ca}&cert={cert}&key={key}");
        let (endpoints, options) = parse_url(&url).unwrap();
        assert_eq!((endpoints, options.tls.is_some()), (vec!["a:2379".to_owned()], true));
        let [ca, cert, key] = [ca, cert, key].map(|file| std::fs::read(file).unwrap());
        let tls = options.tls.unwrap();
        assert_eq!((tls.ca, tls.server_name), (Some(ca), Some("b".to_owned())));
        assert_eq!(tls.identity, Some((cert, key)));
    }

    #[test]
    fn what_a_url_of_ours_cannot_say_is_refused() {
        let certificates = Certificates::new("DNS:b");
        for (url, why) in [
            ("zk://host", "begins with etcd:// or etcds://"),
            ("etcd://host/path", "no path"),
            ("etcd://host?colour=red", "\"colour\" is not known, or needs etcds://"),
            ("etcd://host?server-name=b", "\"server-name\" is not known, or needs etcds://"),
            ("etcd://host?ca=/nowhere", "\"ca\" is not known, or needs etcds://"),
            (&format!("etcds://host?ca={}&colour=red", certificates.file("ca.pem")), "\"colour\" is not known"),
        ] {
            let said = parse_url(url).expect_err(url).to_string();
            assert!(said.contains("the URL of an etcd store: ") && said.contains(why), "{url}: {said}");
        }
    }

    #[test]
    fn a_prefix_cannot_reach_into_the_place_of_our_own() {
        assert!(EtcdOptions::new().prefix("a//").checked_prefix().is_err());
        assert!(EtcdOptions::new().prefix("a\n").checked_prefix().is_err());
        assert!(EtcdOptions::new().prefix("/a/").checked_prefix().is_ok());
    }

    #[test]
    fn a_password_is_not_printed() {
        let options = EtcdOptions::new().user("me", "secret");
        assert!(!format!("{options:?}").contains("secret"));
    }
}
