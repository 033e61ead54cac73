//! How to reach a cluster: options, and the URL that holds them.

use std::fmt;
use std::time::Duration;

use etcd_client::ConnectOptions;
use incumbent_store::StoreError;
use incumbent_store::record::unescape;

/// How long a connection may take to come up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How often a silent connection is asked for a sign of life: servers close those that ask more than every 5 s.
const PING_EVERY: Duration = Duration::from_secs(6);
const PING_TIMEOUT: Duration = Duration::from_secs(4);
const DEFAULT_PORT: u16 = 2379;

/// How to reach a cluster. Requests ask for a cluster with a leader, and expired credentials are renewed.
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

    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    pub(crate) fn checked_prefix(&self) -> Result<&str, StoreError> {
        if self.prefix.contains("//") || self.prefix.chars().any(char::is_control) || self.prefix.len() > 255 {
            let what = "a prefix has at most 255 bytes, no control characters and no //".to_owned();
            return Err(StoreError::Misuse { what });
        }
        Ok(&self.prefix)
    }

    pub(crate) fn connect_options(&self) -> Result<ConnectOptions, StoreError> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_keep_alive(PING_EVERY, PING_TIMEOUT)
            .with_keep_alive_while_idle(false)
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some((name, password)) = &self.user {
            options = options.with_user(name, password);
        }
        match &self.tls {
            Some(tls) => tls.add_to(options),
            None => Ok(options),
        }
    }
}

impl Tls {
    #[cfg(feature = "tls")]
    fn add_to(&self, options: ConnectOptions) -> Result<ConnectOptions, StoreError> {
        let mut tls = etcd_client::TlsOptions::new();
        if let Some(ca) = &self.ca {
            tls = tls.ca_certificate(etcd_client::Certificate::from_pem(ca));
        }
        if let Some((certificate, key)) = &self.identity {
            tls = tls.identity(etcd_client::Identity::from_pem(certificate, key));
        }
        if let Some(name) = &self.server_name {
            tls = tls.domain_name(name);
        }
        Ok(options.with_tls(tls))
    }

    #[cfg(not(feature = "tls"))]
    fn add_to(&self, _options: ConnectOptions) -> Result<ConnectOptions, StoreError> {
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
    let mut options = EtcdOptions::new();
    let rest = match url.split_once("://") {
        Some(("etcd", rest)) => rest,
        Some(("etcds", rest)) => {
            options = options.tls();
            rest
        }
        _ => return Err(wrong("it begins with etcd:// or etcds://")),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains('/') {
        return Err(wrong("it has no path; a prefix for names is an option: ?prefix=..."));
    }
    let hosts = match rest.rsplit_once('@') {
        Some((user, hosts)) => {
            let (name, password) = user.split_once(':').ok_or_else(|| wrong("before the @ there is user:password"))?;
            options = options.user(decoded(name)?, decoded(password)?);
            hosts
        }
        None => rest,
    };
    for option in query.split('&').filter(|option| !option.is_empty()) {
        options = with_option(options, option)?;
    }
    let endpoints = hosts.split(',').map(endpoint).collect::<Result<_, _>>()?;
    Ok((endpoints, with_trust(with_identity(options)?)?))
}

fn with_option(options: EtcdOptions, option: &str) -> Result<EtcdOptions, StoreError> {
    let (word, value) = option.split_once('=').ok_or_else(|| wrong("an option is option=value"))?;
    let value = decoded(value)?;
    if word == "prefix" {
        return Ok(options.prefix(value));
    }
    if options.tls.is_none() {
        return Err(wrong(&format!("the option {word:?} is not known, or needs etcds://")));
    }
    let (_, key) = options.tls.as_ref().and_then(|tls| tls.identity.clone()).unwrap_or_default();
    let (certificate, _) = options.tls.as_ref().and_then(|tls| tls.identity.clone()).unwrap_or_default();
    match word {
        "ca" => Ok(options.ca(file(&value)?)),
        "cert" => Ok(options.identity(file(&value)?, key)),
        "key" => Ok(options.identity(certificate, file(&value)?)),
        "server-name" => Ok(options.server_name(value)),
        _ => Err(wrong(&format!("the option {word:?} is not known"))),
    }
}

/// A certificate comes with its key.
fn with_identity(options: EtcdOptions) -> Result<EtcdOptions, StoreError> {
    let identity = options.tls.as_ref().and_then(|tls| tls.identity.as_ref());
    if identity.is_some_and(|(certificate, key)| certificate.is_empty() || key.is_empty()) {
        return Err(wrong("the options cert and key go together"));
    }
    Ok(options)
}

/// There are no certificates that everybody trusts.
fn with_trust(options: EtcdOptions) -> Result<EtcdOptions, StoreError> {
    if options.tls.as_ref().is_some_and(|tls| tls.ca.is_none()) {
        return Err(wrong("etcds:// needs the option ca, a file with the certificates that are trusted"));
    }
    Ok(options)
}

fn endpoint(host: &str) -> Result<String, StoreError> {
    let bare = host.is_empty() || host.starts_with(':');
    if bare || host.contains(|character: char| character.is_whitespace() || character.is_control()) {
        return Err(wrong("every endpoint is host:port"));
    }
    // Not the colons of an IPv6 address.
    let after_address = host.rsplit(']').next().unwrap_or(host);
    match after_address.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => Ok(host.to_owned()),
        Some(_) => Err(wrong("a port is a number up to 65535")),
        None => Ok(format!("{host}:{DEFAULT_PORT}")),
    }
}

fn decoded(text: &str) -> Result<String, StoreError> {
    let bytes = unescape(text).ok_or_else(|| wrong("a % is followed by two hexadecimal digits"))?;
    String::from_utf8(bytes).map_err(|_| wrong("what is percent-encoded is UTF-8"))
}

fn file(path: &str) -> Result<Vec<u8>, StoreError> {
    let bytes = std::fs::read(path).map_err(|error| wrong(&format!("the file {path:?} cannot be read: {error}")))?;
    if bytes.is_empty() { Err(wrong(&format!("the file {path:?} is empty"))) } else { Ok(bytes) }
}

fn wrong(what: &str) -> StoreError {
    StoreError::Misuse { what: format!("the URL of an etcd store: {what}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> String {
        parse_url(url).expect_err(url).to_string()
    }

    #[test]
    fn hosts_have_a_port_of_their_own_or_the_usual_one() {
        let (endpoints, options) = parse_url("etcd://a:1,b,[::1]:3,[::1]").unwrap();
        assert_eq!(endpoints, ["a:1", "b:2379", "[::1]:3", "[::1]:2379"]);
        assert_eq!((options.scheme(), options.user), ("http", None));
    }

    #[test]
    fn user_password_and_prefix_are_decoded() {
        let (_, options) = parse_url("etcd://us%3Aer:p%40ss%2Fw@host/?prefix=team%2f").unwrap();
        assert_eq!(options.user, Some(("us:er".into(), "p@ss/w".into())));
        assert_eq!(options.checked_prefix().unwrap(), "team/");
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for url in [
            "http://host",
            "etcd://",
            "etcd://:1",
            "etcd://user@host",
            "etcd://host:port",
            "etcd://host:65536",
            "etcd://host/path",
            "etcd://a, b",
            "etcd://host?prefix",
            "etcd://host?colour=red",
            "etcd://host?ca=/etc/hosts",
            "etcds://host?ca=/nowhere/ca.pem",
            "etcds://host",
            "etcds://host?ca=/etc/hosts&cert=/etc/hosts",
            "etcd://user:se%zzcret@host",
        ] {
            let said = refusal(url);
            assert!(said.contains("URL") && !said.contains("cret"), "{url}: {said}");
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
