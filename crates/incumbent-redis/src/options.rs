//! How to reach a server: options, and the URL that holds them.

use incumbent_store::StoreError;
use incumbent_store::url::{Scheme, Url};
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};

use crate::error::classify_dial;
use crate::primary::PrimaryLookup;
use crate::redlock::RedlockOptions;

const SCHEME: Scheme = Scheme { name: "redis", store: "a Redis store", port: 6379 };
const REDLOCK: Scheme = Scheme { name: "redlock", store: "a Redlock", port: 6379 };

/// How elections are kept on a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedisOptions {
    pub(crate) prefix: String,
    pub(crate) allow_eviction: bool,
    pub(crate) wait: Option<u32>,
}

impl Default for RedisOptions {
    fn default() -> RedisOptions {
        RedisOptions::new()
    }
}

impl RedisOptions {
    /// Keys begin with `{incumbent}:`, and a server that evicts any key is refused.
    pub fn new() -> RedisOptions {
        RedisOptions { prefix: "incumbent".to_owned(), allow_eviction: false, wait: None }
    }

    /// The name of the store: its keys begin with it, in braces. Stores with different names know
    /// nothing of each other.
    pub fn prefix(mut self, prefix: impl Into<String>) -> RedisOptions {
        self.prefix = prefix.into();
        self
    }

    /// Whether a server will do that evicts any key when its memory is full (`maxmemory-policy
    /// allkeys-*`). Elections are then lost with their keys.
    pub fn allow_eviction(mut self, allow: bool) -> RedisOptions {
        self.allow_eviction = allow;
        self
    }

    /// Enlisting, standing, renewing, leaving, what operators do, the mark of a fence and what is
    /// written behind it count only when so many replicas have confirmed them (`WAIT`), within a
    /// quarter of the TTL (a fence: two seconds). It takes all of the replicas, connected or not,
    /// to keep a failover from losing one of these steps: fewer leave one that may take over
    /// without it. While a replica is down, there are no elections.
    pub fn wait(mut self, replicas: u32) -> RedisOptions {
        self.wait = (replicas > 0).then_some(replicas);
        self
    }
}

/// The servers and the options that a URL holds. What goes wrong is told without the password.
pub(crate) fn parse_url(url: &str) -> Result<(PrimaryLookup, RedisOptions), StoreError> {
    let url = SCHEME.read(url)?;
    let mut options = RedisOptions::new();
    let (mut sentinel, mut at_sentinels) = (None, RedisConnectionInfo::default());
    for (word, value) in &url.options {
        options = match (word.as_str(), value.as_str()) {
            ("prefix", prefix) => options.prefix(prefix),
            ("eviction", "allow") => options.allow_eviction(true),
            ("eviction", _) => return Err(SCHEME.wrong("the option eviction has one value: allow")),
            ("wait", replicas) => match replicas.parse() {
                Ok(replicas) if replicas > 0 => options.wait(replicas),
                _ => return Err(SCHEME.wrong("the option wait is the number of replicas, at least 1")),
            },
            ("sentinel", "") => return Err(SCHEME.wrong("the option sentinel is the name of a primary")),
            ("sentinel", name) => {
                sentinel = Some(name.to_owned());
                options
            }
            ("sentinel-user", user) => {
                at_sentinels = at_sentinels.set_username(user);
                options
            }
            ("sentinel-password", password) => {
                at_sentinels = at_sentinels.set_password(password);
                options
            }
            _ => return Err(url.unknown_option(word)),
        };
    }
    let names_us = at_sentinels.username().is_some() || at_sentinels.password().is_some();
    if names_us && (sentinel.is_none() || at_sentinels.password().is_none()) {
        return Err(SCHEME.wrong("sentinel-user needs sentinel-password, and both need sentinel=NAME"));
    }
    let clients = |settings: &RedisConnectionInfo| {
        url.servers.iter().map(|server| client(&url, SCHEME, server, settings.clone())).collect::<Result<Vec<_>, _>>()
    };
    let servers = clients(&settings(&url, SCHEME)?)?;
    let Some(name) = sentinel else { return Ok((PrimaryLookup::Servers(servers), options)) };
    // Who we are at the primary is nobody's business at the Sentinels.
    let sentinels = clients(&at_sentinels)?;
    let primary = servers.into_iter().next().ok_or_else(|| SCHEME.wrong("it names no server"))?;
    Ok((PrimaryLookup::Sentinels { sentinels, name, primary: Box::new(primary) }, options))
}

/// The same for `redlock://a,b,c`: one client for each server.
pub(crate) fn parse_redlock_url(url: &str) -> Result<(Vec<Client>, RedlockOptions), StoreError> {
    let url = REDLOCK.read(url)?;
    if ![3, 5].contains(&url.servers.len()) {
        return Err(REDLOCK.wrong("it names three servers or five, as in redlock://a,b,c"));
    }
    let mut options = RedlockOptions { prefix: "incumbent".to_owned(), allow_eviction: false, refound: None };
    for (word, value) in &url.options {
        match (word.as_str(), value.as_str()) {
            ("prefix", prefix) => options.prefix = prefix.to_owned(),
            ("eviction", "allow") => options.allow_eviction = true,
            ("eviction", _) => return Err(REDLOCK.wrong("the option eviction has one value: allow")),
            ("refound", identity) => options.refound = Some(identity.to_owned()),
            _ => return Err(url.unknown_option(word)),
        }
    }
    let settings = settings(&url, REDLOCK)?;
    let clients = url.servers.iter().map(|server| client(&url, REDLOCK, server, settings.clone()));
    Ok((clients.collect::<Result<_, _>>()?, options))
}

/// Watches come as pushes, which the older protocol does not have.
pub(crate) fn speaking_resp3(client: &Client) -> Result<Client, StoreError> {
    let info = client.get_connection_info();
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name();
    let client = Client::open(info.clone().set_redis_settings(settings));
    client.map_err(|error| classify_dial(error, "the address of the server"))
}

fn client(url: &Url, scheme: Scheme, server: &str, settings: RedisConnectionInfo) -> Result<Client, StoreError> {
    let wrong = |error| classify_dial(error, &format!("the URL of {}", scheme.store));
    let (host, port) = server.rsplit_once(':').unwrap_or((server, ""));
    // An address of IPv6 stands in brackets only where a port follows.
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = port.parse().map_err(|_| scheme.wrong("every server is host:port"))?;
    let address = match &url.tls {
        None => ConnectionAddr::Tcp(host, port),
        Some(_) => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
    };
    let info = address.into_connection_info().map_err(wrong)?.set_redis_settings(settings);
    speaking_resp3(&open(info, url)?)
}

fn settings(url: &Url, scheme: Scheme) -> Result<RedisConnectionInfo, StoreError> {
    let mut settings = RedisConnectionInfo::default();
    if let Some((user, password)) = &url.user {
        settings = settings.set_password(password);
        // `:password@` is the default user.
        if !user.is_empty() {
            settings = settings.set_username(user);
        }
    }
    let database = url.path.trim_start_matches('/');
    if !database.is_empty() {
        let number = database.parse::<u32>();
        let number = number.map_err(|_| scheme.wrong("its path is the number of a database, as in redis://host/2"))?;
        settings = settings.set_db(number.into());
    }
    Ok(settings)
}

#[cfg(feature = "tls")]
fn open(info: ConnectionInfo, url: &Url) -> Result<Client, StoreError> {
    use redis::{ClientTlsConfig, TlsCertificates};

    let Some(tls) = &url.tls else { return Client::open(info).map_err(|error| classify_dial(error, "the URL")) };
    // With several kinds of cryptography in one program somebody has to choose. If the program has,
    // this does nothing.
    _ = rustls::crypto::ring::default_provider().install_default();
    let client_tls = tls.identity.as_ref().map(|(certificate, key)| ClientTlsConfig {
        client_cert: certificate.clone().into_bytes(),
        client_key: key.clone().into_bytes(),
    });
    let certificates = TlsCertificates { client_tls, root_cert: Some(tls.ca.clone().into_bytes()) };
    Client::build_with_tls(info, certificates).map_err(|error| classify_dial(error, "the certificates for TLS"))
}

#[cfg(not(feature = "tls"))]
fn open(info: ConnectionInfo, url: &Url) -> Result<Client, StoreError> {
    if url.tls.is_some() {
        return Err(StoreError::Misuse {
            what: "this build does not speak TLS: it lacks the feature `tls`".to_owned(),
        });
    }
    Client::open(info).map_err(|error| classify_dial(error, "the URL"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(url: &str) -> Vec<Client> {
        match parse_url(url).unwrap().0 {
            PrimaryLookup::Servers(servers) => servers,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_url_says_where_the_servers_are_who_we_are_and_which_database() {
        let url = "redis://us%3Aer:p%40ss@a:1,b/2?prefix=team&eviction=allow&wait=2";
        let options = RedisOptions::new().prefix("team").allow_eviction(true).wait(2);
        assert_eq!(parse_url(url).unwrap().1, options);
        let named = servers(url);
        let infos: Vec<_> = named.iter().map(Client::get_connection_info).collect();
        assert_eq!(infos.iter().map(|info| info.addr().to_string()).collect::<Vec<_>>(), ["a:1", "b:6379"]);
        let settings = infos[1].redis_settings();
        assert_eq!((settings.username(), settings.password(), settings.db()), (Some("us:er"), Some("p@ss"), 2));

        let alone = servers("redis://:secret@[::1]").remove(0);
        let info = alone.get_connection_info();
        assert_eq!(*info.addr(), ConnectionAddr::Tcp("::1".to_owned(), 6379));
        assert_eq!((info.redis_settings().username(), info.redis_settings().password()), (None, Some("secret")));
    }

    #[test]
    fn sentinels_are_not_told_who_we_are_at_the_primary() {
        match parse_url("redis://:secret@a:26379,b:26379/3?sentinel=mymaster").unwrap().0 {
            PrimaryLookup::Sentinels { sentinels, name, primary } => {
                assert_eq!((sentinels.len(), name.as_str()), (2, "mymaster"));
                let password = |client: &Client| client.get_connection_info().redis_settings().password().is_some();
                assert!(password(&primary) && !sentinels.iter().any(password));
                assert_eq!(primary.get_connection_info().redis_settings().db(), 3);
            }
            other => panic!("{other:?}"),
        }
        match parse_url("redis://:secret@a?sentinel=m&sentinel-user=me&sentinel-password=p%26w").unwrap().0 {
            PrimaryLookup::Sentinels { sentinels, .. } => {
                let settings = sentinels[0].get_connection_info().redis_settings().clone();
                assert_eq!((settings.username(), settings.password()), (Some("me"), Some("p&w")));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_a_url_of_ours_cannot_say_is_refused() {
        for (url, why) in [
            ("etcd://host", "begins with redis:// or rediss://"),
            ("redis://host/jobs", "number of a database"),
            ("redis://host?colour=red", "\"colour\" is not known"),
            ("redis://host?eviction=yes", "eviction has one value"),
            ("redis://host?wait=all", "the number of replicas"),
            ("redis://host?wait=0", "at least 1"),
            ("redis://host?sentinel=", "the name of a primary"),
            ("redis://host?prefix=a&prefix=b", "\"prefix\" is named twice"),
            ("rediss://host", "needs the option ca"),
            ("redis://host?sentinel=m&sentinel-user=me", "needs sentinel-password"),
            ("redis://host?sentinel-password=secret", "need sentinel=NAME"),
        ] {
            let said = parse_url(url).map(|_| ()).expect_err(url).to_string();
            assert!(said.contains("the URL of a Redis store: ") && said.contains(why), "{url}: {said}");
        }
    }

    #[test]
    fn a_redlock_has_three_servers_or_five() {
        let (clients, options) =
            parse_redlock_url("redlock://me:p%40ss@a,b:1,c/2?prefix=team&refound=redlock-1").unwrap();
        let addresses: Vec<_> = clients.iter().map(|client| client.get_connection_info().addr().to_string()).collect();
        assert_eq!(addresses, ["a:6379", "b:1", "c:6379"]);
        assert_eq!((options.prefix.as_str(), options.refound.as_deref()), ("team", Some("redlock-1")));
        let settings = clients[2].get_connection_info().redis_settings();
        assert_eq!((settings.username(), settings.password(), settings.db()), (Some("me"), Some("p@ss"), 2));
        for (url, why) in [
            ("redlock://a,b", "three servers or five"),
            ("redlock://a,b,c,d", "three servers or five"),
            ("redis://a,b,c", "begins with redlock:// or redlocks://"),
            ("redlock://a,b,c?wait=1", "\"wait\" is not known"),
            ("redlock://a,b,c?eviction=no", "eviction has one value"),
            ("redlocks://a,b,c", "needs the option ca"),
        ] {
            let said = parse_redlock_url(url).map(|_| ()).expect_err(url).to_string();
            assert!(said.contains("the URL of a Redlock: ") && said.contains(why), "{url}: {said}");
        }
    }

    #[test]
    fn a_password_is_not_printed() {
        let (route, _) = parse_url("redis://me:hunter2@host").unwrap();
        assert!(!format!("{route:?}").contains("hunter2"), "{route:?}");
        let store = crate::RedlockStore::from_url("redlock://me:hunter2@a,b,c").unwrap();
        assert!(!format!("{store:?}").contains("hunter2"), "{store:?}");
    }
}
