//! How to reach an ensemble: options, and the URL that holds them.

use std::fmt;
use std::time::Duration;

use incumbent_store::StoreError;
use incumbent_store::record::unescape;
use zookeeper_client::{Acls, Client, Connector};

use crate::dialect::Dialect;

const DEFAULT_PORT: u16 = 2181;

/// How to reach an ensemble, and by whose customs its elections are held.
#[derive(Clone, Default)]
pub struct ZooKeeperOptions {
    pub(crate) user: Option<(String, String)>,
    pub(crate) chroot: String,
    pub(crate) dialect: Dialect,
    pub(crate) tick: Option<Duration>,
    pub(crate) access: Option<Access>,
    tls: Option<Tls>,
}

/// Who may do what to the nodes that we make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Access {
    /// Everybody may do everything.
    Open,
    /// Only those with the same credentials may do anything.
    Creator,
}

impl Access {
    pub(crate) fn acls(self) -> Acls<'static> {
        match self {
            Access::Open => Acls::anyone_all(),
            Access::Creator => Acls::creator_all(),
        }
    }
}

#[derive(Clone, Default)]
struct Tls {
    ca: Option<String>,
    identity: Option<(String, String)>,
}

impl ZooKeeperOptions {
    /// No user, no TLS, no chroot, our own dialect.
    pub fn new() -> ZooKeeperOptions {
        ZooKeeperOptions::default()
    }

    /// Who we are, in ZooKeeper's scheme `digest`. What we make is then ours alone, unless [`access`] says otherwise.
    ///
    /// [`access`]: ZooKeeperOptions::access
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> ZooKeeperOptions {
        self.user = Some((name.into(), password.into()));
        self
    }

    /// Everything is below this path. It is made if it is not there.
    pub fn chroot(mut self, path: impl Into<String>) -> ZooKeeperOptions {
        self.chroot = path.into();
        self
    }

    /// Whose customs the elections follow.
    pub fn dialect(mut self, dialect: Dialect) -> ZooKeeperOptions {
        self.dialect = dialect;
        self
    }

    /// The servers' `tickTime`. Needed only if their `minSessionTimeout` was set to less than two ticks: otherwise it is
    /// read from them.
    pub fn tick(mut self, tick: Duration) -> ZooKeeperOptions {
        self.tick = Some(tick);
        self
    }

    /// Who may do what to the nodes that we make: those with our credentials, if we have any; else everybody.
    pub fn access(mut self, access: Access) -> ZooKeeperOptions {
        self.access = Some(access);
        self
    }

    /// Speaks TLS and trusts these certificates (PEM).
    pub fn ca(mut self, pem: impl Into<String>) -> ZooKeeperOptions {
        self.tls.get_or_insert_default().ca = Some(pem.into());
        self
    }

    /// Speaks TLS and shows this certificate, with its key (PEM).
    pub fn identity(mut self, certificate: impl Into<String>, key: impl Into<String>) -> ZooKeeperOptions {
        self.tls.get_or_insert_default().identity = Some((certificate.into(), key.into()));
        self
    }

    pub(crate) fn granted_access(&self) -> Access {
        let usual = if self.user.is_some() { Access::Creator } else { Access::Open };
        self.access.unwrap_or(usual)
    }

    pub(crate) fn checked_chroot(&self) -> Result<&str, StoreError> {
        let path = self.chroot.strip_suffix('/').unwrap_or(&self.chroot);
        let wrong = |segment: &str| matches!(segment, "" | "." | ".." | "zookeeper");
        if path.is_empty() {
            return Ok("");
        }
        let well_formed = path.strip_prefix('/').is_some_and(|path| !path.split('/').any(wrong));
        if !well_formed || path.chars().any(char::is_control) || path.len() > 255 {
            let what = "a chroot is a path such as /team/elections, of at most 255 bytes".to_owned();
            return Err(StoreError::Misuse { what });
        }
        Ok(path)
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    pub(crate) fn connector(&self) -> Result<Connector, StoreError> {
        let mut connector = Client::connector().with_fail_eagerly();
        if let Some((name, password)) = &self.user {
            connector = connector.with_auth("digest", format!("{name}:{password}").as_bytes());
        }
        match &self.tls {
            Some(tls) => tls.add_to(connector),
            None => Ok(connector),
        }
    }
}

impl Tls {
    #[cfg(feature = "tls")]
    fn add_to(&self, connector: Connector) -> Result<Connector, StoreError> {
        // With two of them in a program, which may come with other crates, rustls wants to be told. Whoever was first stays.
        _ = rustls::crypto::ring::default_provider().install_default();
        let mut options = zookeeper_client::TlsOptions::new();
        if let Some(ca) = &self.ca {
            options = options.with_pem_ca(ca).map_err(|error| wrong_tls(&error))?;
        }
        if let Some((certificate, key)) = &self.identity {
            options = options.with_pem_identity(certificate, key).map_err(|error| wrong_tls(&error))?;
        }
        Ok(connector.with_tls(options))
    }

    #[cfg(not(feature = "tls"))]
    fn add_to(&self, _connector: Connector) -> Result<Connector, StoreError> {
        let Tls { ca: _, identity: _ } = self;
        Err(StoreError::Misuse { what: "this build does not speak TLS: it lacks the feature `tls`".to_owned() })
    }
}

#[cfg(feature = "tls")]
fn wrong_tls(error: &zookeeper_client::Error) -> StoreError {
    StoreError::Misuse { what: format!("the certificates for TLS: {error}") }
}

impl fmt::Debug for ZooKeeperOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeperOptions")
            .field("user", &self.user.as_ref().map(|(name, _)| name))
            .field("chroot", &self.chroot)
            .field("dialect", &self.dialect)
            .field("tick", &self.tick)
            .field("access", &self.access)
            .field("tls", &self.tls.is_some())
            .finish()
    }
}

/// The servers and options that a URL holds. What goes wrong is told without the password.
pub(crate) fn parse_url(url: &str) -> Result<(Vec<String>, ZooKeeperOptions), StoreError> {
    let mut options = ZooKeeperOptions::new();
    let rest = match url.split_once("://") {
        Some(("zk", rest)) => rest,
        Some(("zks", rest)) => {
            options.tls = Some(Tls::default());
            rest
        }
        _ => return Err(wrong("it begins with zk:// or zks://")),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (user, rest) = match rest.rsplit_once('@') {
        Some((user, rest)) => (Some(user), rest),
        None => (None, rest),
    };
    if let Some(user) = user {
        let (name, password) = user.split_once(':').ok_or_else(|| wrong("before the @ there is user:password"))?;
        options = options.user(decoded(name)?, decoded(password)?);
    }
    let (hosts, chroot) = match rest.find('/') {
        Some(at) => (&rest[..at], decoded(&rest[at..])?),
        None => (rest, String::new()),
    };
    options = options.chroot(chroot);
    options.checked_chroot()?;
    for option in query.split('&').filter(|option| !option.is_empty()) {
        options = with_option(options, option)?;
    }
    let servers = hosts.split(',').map(server).collect::<Result<_, _>>()?;
    Ok((servers, with_trust(options)?))
}

fn with_option(mut options: ZooKeeperOptions, option: &str) -> Result<ZooKeeperOptions, StoreError> {
    let (word, value) = option.split_once('=').ok_or_else(|| wrong("an option is option=value"))?;
    let value = decoded(value)?;
    match word {
        "dialect" => {
            let names = "ours, curator-latch, curator-selector, kazoo and go-leaderelection";
            let dialect = Dialect::from_name(&value).ok_or_else(|| wrong(&format!("the dialects are {names}")))?;
            return Ok(options.dialect(dialect));
        }
        "tick" => return Ok(options.tick(millis(&value)?)),
        "acl" => {
            return match value.as_str() {
                "open" => Ok(options.access(Access::Open)),
                "creator" => Ok(options.access(Access::Creator)),
                _ => Err(wrong("acl is open or creator")),
            };
        }
        _ => {}
    }
    let Some(tls) = &mut options.tls else {
        return Err(wrong(&format!("the option {word:?} is not known, or needs zks://")));
    };
    let (certificate, key) = tls.identity.clone().unwrap_or_default();
    match word {
        "ca" => tls.ca = Some(file(&value)?),
        "cert" => tls.identity = Some((file(&value)?, key)),
        "key" => tls.identity = Some((certificate, file(&value)?)),
        _ => return Err(wrong(&format!("the option {word:?} is not known"))),
    }
    Ok(options)
}

fn millis(text: &str) -> Result<Duration, StoreError> {
    let millis: Option<u64> = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(millis), _) => millis.parse().ok(),
        (None, Some(seconds)) => seconds.parse().ok().and_then(|seconds: u64| seconds.checked_mul(1000)),
        (None, None) => None,
    };
    let millis = millis.filter(|millis| (1..=3_600_000).contains(millis));
    millis.map(Duration::from_millis).ok_or_else(|| wrong("a tick is a time such as 2s or 500ms"))
}

/// A certificate comes with its key, and there are no certificates that everybody trusts.
fn with_trust(options: ZooKeeperOptions) -> Result<ZooKeeperOptions, StoreError> {
    let Some(tls) = &options.tls else { return Ok(options) };
    if tls.identity.as_ref().is_some_and(|(certificate, key)| certificate.is_empty() || key.is_empty()) {
        return Err(wrong("the options cert and key go together"));
    }
    if tls.ca.is_none() {
        return Err(wrong("zks:// needs the option ca, a file with the certificates that are trusted"));
    }
    Ok(options)
}

pub(crate) fn server(host: &str) -> Result<String, StoreError> {
    let bare = host.is_empty() || host.starts_with(':');
    let strange = |character: char| character.is_whitespace() || character.is_control() || character == '/';
    if bare || host.contains(strange) {
        return Err(wrong("every server is host:port"));
    }
    // Not the colons of an IPv6 address.
    let after_address = host.rsplit(']').next().unwrap_or(host);
    match after_address.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok_and(|port| port > 0) => Ok(host.to_owned()),
        Some(_) => Err(wrong("a port is a number from 1 to 65535")),
        None => Ok(format!("{host}:{DEFAULT_PORT}")),
    }
}

fn decoded(text: &str) -> Result<String, StoreError> {
    let bytes = unescape(text).ok_or_else(|| wrong("a % is followed by two hexadecimal digits"))?;
    String::from_utf8(bytes).map_err(|_| wrong("what is percent-encoded is UTF-8"))
}

fn file(path: &str) -> Result<String, StoreError> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| wrong(&format!("the file {path:?} cannot be read: {error}")))?;
    if text.is_empty() { Err(wrong(&format!("the file {path:?} is empty"))) } else { Ok(text) }
}

fn wrong(what: &str) -> StoreError {
    StoreError::Misuse { what: format!("the URL of a ZooKeeper store: {what}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> String {
        parse_url(url).expect_err(url).to_string()
    }

    #[test]
    fn hosts_have_a_port_of_their_own_or_the_usual_one() {
        let (servers, options) = parse_url("zk://a:1,b,[::1]:3,[::1]").unwrap();
        assert_eq!(servers, ["a:1", "b:2181", "[::1]:3", "[::1]:2181"]);
        assert_eq!((options.checked_chroot().unwrap(), options.dialect), ("", Dialect::Incumbent));
        assert_eq!(options.user, None);
    }

    #[test]
    fn user_chroot_and_options_are_decoded() {
        let url = "zk://us%3Aer:p%40ss%2Fw@a:1,b:2/team/el%20ections?dialect=curator-latch&tick=500ms&acl=open";
        let (servers, options) = parse_url(url).unwrap();
        assert_eq!(servers, ["a:1", "b:2"]);
        assert_eq!(options.user, Some(("us:er".into(), "p@ss/w".into())));
        assert_eq!(options.checked_chroot().unwrap(), "/team/el ections");
        assert_eq!(options.dialect, Dialect::CuratorLatch);
        assert_eq!(options.tick, Some(Duration::from_millis(500)));
        assert_eq!(options.granted_access(), Access::Open);
        assert_eq!(parse_url("zk://a/?tick=2s").unwrap().1.tick, Some(Duration::from_secs(2)));
    }

    #[test]
    fn what_we_make_is_ours_alone_if_we_say_who_we_are() {
        assert_eq!(parse_url("zk://a").unwrap().1.granted_access(), Access::Open);
        assert_eq!(parse_url("zk://u:p@a").unwrap().1.granted_access(), Access::Creator);
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for url in [
            "http://host",
            "zk://",
            "zk://:1",
            "zk://user@host",
            "zk://host:port",
            "zk://host:0",
            "zk://a, b",
            "zk://host?dialect",
            "zk://host?dialect=latin",
            "zk://host?tick=2",
            "zk://host?acl=me",
            "zk://host?colour=red",
            "zk://host?ca=/etc/hosts",
            "zks://host?ca=/nowhere/ca.pem",
            "zks://host",
            "zks://host?ca=/etc/hosts&cert=/etc/hosts",
            "zk://user:se%zzcret@host",
        ] {
            let said = refusal(url);
            assert!(said.contains("URL") && !said.contains("cret"), "{url}: {said}");
        }
        for url in ["zk://host//a", "zk://host/a/../b", "zk://host/zookeeper"] {
            assert!(refusal(url).contains("chroot"), "{url}");
        }
    }

    #[test]
    fn a_password_is_not_printed() {
        let options = ZooKeeperOptions::new().user("me", "secret");
        assert!(!format!("{options:?}").contains("secret"));
    }
}
