//! How to reach an ensemble: options, and the URL that holds them.

use std::fmt;
use std::time::Duration;

use incumbent_store::url::Scheme;
use incumbent_store::{StoreError, parse_duration};
use zookeeper_client::{Acl, Acls, Client, Connector, Permission};

use crate::dialect::Dialect;

pub(crate) const SCHEME: Scheme = Scheme { name: "zk", store: "a ZooKeeper store", port: 2181 };

/// How to reach an ensemble, and in which dialect its elections are held.
#[derive(Clone, Default)]
pub struct ZooKeeperOptions {
    pub(crate) user: Option<(String, String)>,
    pub(crate) chroot: String,
    pub(crate) dialect: Dialect,
    pub(crate) tick: Option<Duration>,
    pub(crate) max_session_timeout: Option<Duration>,
    pub(crate) access: Option<Access>,
    tls: Option<Tls>,
}

/// Who may do what to the nodes that we make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Access {
    /// Everybody may do everything.
    Open,
    /// Only those with the same credentials may do anything. What is made above the chroot, because
    /// it was missing, others may look at, and make nodes of their own in.
    Creator,
}

/// Ours, but no obstacle to others.
static ABOVE: [Acl; 3] = [
    Acl::new_const(Permission::ALL, "auth", ""),
    Acl::new_const(Permission::READ, "world", "anyone"),
    Acl::new_const(Permission::CREATE, "world", "anyone"),
];

impl Access {
    pub(crate) fn acls(self) -> Acls<'static> {
        match self {
            Access::Open => Acls::anyone_all(),
            Access::Creator => Acls::creator_all(),
        }
    }

    /// For what is above all that is ours.
    pub(crate) fn acls_above(self) -> Acls<'static> {
        match self {
            Access::Open => Acls::anyone_all(),
            Access::Creator => Acls::new(&ABOVE),
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

    /// Who we are, in ZooKeeper's scheme `digest`. What we make is then ours alone, unless
    /// [`access`] says otherwise.
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

    /// In which dialect the elections are held.
    pub fn dialect(mut self, dialect: Dialect) -> ZooKeeperOptions {
        self.dialect = dialect;
        self
    }

    /// The servers' `tickTime`, the longest of all. Needed if their `minSessionTimeout` was set to
    /// less than two ticks, on a connection of your own, and where an answer takes 0.4 s or more:
    /// otherwise each of them is asked, with a session too short for a slower answer.
    pub fn tick(mut self, tick: Duration) -> ZooKeeperOptions {
        self.tick = Some(tick);
        self
    }

    /// The smallest `maxSessionTimeout` of all servers that a session may be moved to: what counts,
    /// whatever one of them grants. Without it each server is asked; on a connection of your own,
    /// where nobody can be asked, terms end when the connection is lost.
    pub fn max_session_timeout(mut self, timeout: Duration) -> ZooKeeperOptions {
        self.max_session_timeout = Some(timeout);
        self
    }

    /// Who may do what to the nodes that we make: those with our credentials, if we have any; else
    /// everybody.
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
        // With two of them in a program, which may come with other crates, rustls wants to be told.
        // The first one stays.
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
            .field("max_session_timeout", &self.max_session_timeout)
            .field("access", &self.access)
            .field("tls", &self.tls.is_some())
            .finish()
    }
}

/// The servers and options that a URL holds. What goes wrong is told without the password.
pub(crate) fn parse_url(url: &str) -> Result<(Vec<String>, ZooKeeperOptions), StoreError> {
    let url = SCHEME.read(url)?;
    let mut options = ZooKeeperOptions { user: url.user.clone(), ..ZooKeeperOptions::new() }.chroot(&url.path);
    options.checked_chroot()?;
    if let Some(tls) = &url.tls {
        options = options.ca(&tls.ca);
        if let Some((certificate, key)) = &tls.identity {
            options = options.identity(certificate, key);
        }
    }
    for (word, value) in &url.options {
        options = match word.as_str() {
            "dialect" => options.dialect(dialect(value)?),
            "tick" => options.tick(time(word, value)?),
            "max-session-timeout" => options.max_session_timeout(time(word, value)?),
            "acl" => options.access(access(value)?),
            _ => return Err(url.unknown_option(word)),
        };
    }
    Ok((url.servers, options))
}

fn dialect(name: &str) -> Result<Dialect, StoreError> {
    let known = "the dialects are ours, curator-latch, curator-selector, kazoo and go-leaderelection";
    Dialect::from_name(name).ok_or_else(|| SCHEME.wrong(known))
}

fn access(word: &str) -> Result<Access, StoreError> {
    match word {
        "open" => Ok(Access::Open),
        "creator" => Ok(Access::Creator),
        _ => Err(SCHEME.wrong("acl is open or creator")),
    }
}

/// What servers can be set to.
const TIMES: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(86_400);

fn time(option: &str, text: &str) -> Result<Duration, StoreError> {
    let time = parse_duration(text).filter(|time| TIMES.contains(time));
    time.ok_or_else(|| SCHEME.wrong(format!("{option} is a time such as 2s or 500ms")))
}

#[cfg(test)]
mod tests {
    use incumbent_testkit::servers::Certificates;

    use super::*;

    fn refusal(url: &str) -> String {
        parse_url(url).expect_err(url).to_string()
    }

    #[test]
    fn a_url_says_no_more_than_it_has_to() {
        let (servers, options) = parse_url("zk://a,[::1]:3").unwrap();
        assert_eq!(servers, ["a:2181", "[::1]:3"]);
        assert_eq!((options.checked_chroot().unwrap(), options.dialect), ("", Dialect::Incumbent));
        assert_eq!((options.is_tls(), options.user), (false, None));
    }

    #[test]
    fn with_tls_a_url_says_whom_we_trust() {
        let certificates = Certificates::new("DNS:a");
        let [ca, cert, key] = ["ca.pem", "client.pem", "client.key"].map(|file| certificates.file(file));
        let tls = parse_url(&format!("zks://a?ca={ca}&cert={cert}&key={key}")).unwrap().1.tls.unwrap();
        let [ca, cert, key] = [ca, cert, key].map(|file| std::fs::read_to_string(file).unwrap());
        assert_eq!((tls.ca, tls.identity), (Some(ca), Some((cert, key))));
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
        let options = parse_url("zk://a/?tick=2s&max-session-timeout=40s").unwrap().1;
        assert_eq!(
            (options.tick, options.max_session_timeout),
            (Some(Duration::from_secs(2)), Some(Duration::from_secs(40)))
        );
    }

    #[test]
    fn what_we_make_is_ours_alone_if_we_say_who_we_are() {
        assert_eq!(parse_url("zk://a").unwrap().1.granted_access(), Access::Open);
        assert_eq!(parse_url("zk://u:p@a").unwrap().1.granted_access(), Access::Creator);
    }

    #[test]
    fn what_a_url_of_ours_cannot_say_is_refused() {
        let certificates = Certificates::new("DNS:a");
        for (url, why) in [
            ("etcd://host", "begins with zk:// or zks://"),
            ("zk://host?dialect=latin", "the dialects are"),
            ("zk://host?tick=2", "tick is a time such as"),
            ("zk://host?max-session-timeout=0s", "max-session-timeout is a time such as"),
            ("zk://host?acl=me", "acl is"),
            ("zk://host?colour=red", "\"colour\" is not known, or needs zks://"),
            ("zk://host?ca=/nowhere", "\"ca\" is not known, or needs zks://"),
            (&format!("zks://host?ca={}&colour=red", certificates.file("ca.pem")), "\"colour\" is not known"),
        ] {
            let said = refusal(url);
            assert!(said.contains("the URL of a ZooKeeper store: ") && said.contains(why), "{url}: {said}");
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
