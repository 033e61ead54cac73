//! From a URL to what it names: the one list of schemes, and the cargo feature that adds each.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use incumbent_store::memory::{MemoryStore, Shape};
use incumbent_store::url::Parts;
use incumbent_store::{Store, StoreError, lock};

use crate::error::{ConnectError, UrlError};

/// A kind of store that a URL can name, or of group of peers.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct StoreKind {
    /// What comes before the colon.
    pub scheme: &'static str,
    /// A URL of this kind.
    pub example: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    /// The cargo feature that adds it; empty if it is always there.
    pub feature: &'static str,
    /// Whether the same words find the same store again. A group of peers is one only while its
    /// members answer, and memory goes with its process.
    pub is_place: bool,
    /// Whether those who wait write it down, so that they can be counted. The promises say so, too,
    /// but asking for them may found the store, and those who only read must not.
    pub keeps_line: bool,
    open: Option<Open>,
}

impl StoreKind {
    /// Whether this build can use it.
    pub fn is_built_in(&self) -> bool {
        self.open.is_some()
    }
}

/// The kind of a cargo feature: nothing opens it if this build was made without the feature.
macro_rules! kind {
    ($scheme:literal, $example:literal, $about:literal, $feature:literal, server $store:ty) => {
        kind!($scheme, $example, $about, $feature, store |location| of_url(<$store>::from_url(location.url)))
    };
    ($scheme:literal, $example:literal, $about:literal, $feature:literal, no line $store:ty) => {
        StoreKind { keeps_line: false, ..kind!($scheme, $example, $about, $feature, server $store) }
    };
    ($scheme:literal, $example:literal, $about:literal, $feature:literal, peers) => {
        StoreKind { is_place: false, ..kind!(@ $scheme, $example, $about, $feature, Open::Peers) }
    };
    ($scheme:literal, $example:literal, $about:literal, $feature:literal, store $open:expr) => {
        kind!(@ $scheme, $example, $about, $feature, Open::Store($open))
    };
    (@ $scheme:literal, $example:literal, $about:literal, $feature:literal, $open:expr) => {
        StoreKind {
            scheme: $scheme,
            example: $example,
            about: $about,
            feature: $feature,
            is_place: true,
            keeps_line: true,
            #[cfg(feature = $feature)]
            open: Some($open),
            #[cfg(not(feature = $feature))]
            open: None,
        }
    };
}

const MEMORY: StoreKind = StoreKind {
    scheme: "memory",
    example: "memory://name",
    about: "inside one process, for trying things out",
    feature: "",
    is_place: false,
    keeps_line: true,
    open: Some(Open::Store(memory)),
};

/// Every kind that there is. A new store is one line here.
#[rustfmt::skip]
const KINDS: &[StoreKind] = &[
    MEMORY,
    kind!("consensus", "consensus://127.0.0.1:7411?members=3", "a majority of the members votes", "peers", peers),
    kind!("bully", "bully://127.0.0.1:7411?members=3", "the highest rank leads, with no token", "peers", peers),
    kind!("ring", "ring://127.0.0.1:7411?members=3", "the highest rank leads, with no token", "peers", peers),
    kind!("file", "file:///path", "a directory on this host, of one user", "file", store file::open),
    kind!("etcd", "etcd://a:2379,b:2379", "etcd, shared with `etcdctl elect` and Go", "etcd", server incumbent_etcd::EtcdStore),
    kind!("etcds", "etcds://a:2379?ca=FILE", "over TLS; cert and key are files, too", "etcd-tls", server incumbent_etcd::EtcdStore),
    kind!("redis", "redis://host:6379/0", "Redis; a,b,c of a cluster, or ?sentinel=NAME", "redis", server incumbent_redis::RedisStore),
    kind!("rediss", "rediss://host:6379?ca=FILE", "over TLS; cert and key are files, too", "redis-tls", server incumbent_redis::RedisStore),
    kind!("redlock", "redlock://a:6379,b,c", "a majority of three or five Redis servers", "redis", no line incumbent_redis::RedlockStore),
    kind!("redlocks", "redlocks://a,b,c?ca=FILE", "over TLS; cert and key are files, too", "redis-tls", no line incumbent_redis::RedlockStore),
    kind!("zk", "zk://a:2181,b:2181/chroot", "ZooKeeper; ?dialect=curator-latch and others", "zookeeper", server incumbent_zookeeper::ZooKeeperStore),
    kind!("zks", "zks://a:2181?ca=FILE", "over TLS; cert and key are files, too", "zookeeper-tls", server incumbent_zookeeper::ZooKeeperStore),
    kind!("postgres", "postgres://user@a,b/database", "PostgreSQL; ?schema=NAME, ?sslrootcert=FILE", "postgres", server incumbent_postgres::PostgresStore),
    kind!("postgresql", "postgresql://...", "the same", "postgres", server incumbent_postgres::PostgresStore),
];

/// What a URL can name: every kind of store and of group that there is, also those that need a
/// cargo feature which this build does not have.
///
/// ```
/// let memory = incumbent::store_kinds().iter().find(|kind| kind.scheme == "memory");
/// assert!(memory.is_some_and(|memory| memory.is_built_in()));
/// ```
pub fn store_kinds() -> &'static [StoreKind] {
    KINDS
}

/// What a scheme stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Open {
    Store(fn(Location<'_>) -> Result<Arc<dyn Store>, ConnectError>),
    #[cfg(feature = "peers")]
    Peers,
}

/// Where a store is.
#[derive(Clone, Copy)]
pub(crate) struct Location<'a> {
    pub(crate) url: &'a str,
    /// Whether it is made if it is not there yet.
    #[cfg_attr(not(feature = "file"), allow(dead_code, reason = "only a directory can be made"))]
    pub(crate) make: bool,
}

/// What the URL's scheme stands for.
pub(crate) fn find(url: &str) -> Result<Open, ConnectError> {
    let Some(Parts { scheme, .. }) = Parts::split(url) else {
        let example = if cfg!(feature = "file") { "file:///path for a directory" } else { MEMORY.example };
        return Err(UrlError::NoScheme { example }.into());
    };
    let scheme = scheme.to_owned();
    match KINDS.iter().find(|kind| kind.scheme == scheme) {
        Some(StoreKind { open: Some(open), .. }) => Ok(*open),
        Some(StoreKind { feature, .. }) => Err(ConnectError::NotBuiltIn { scheme, feature }),
        // Capitals are the same elsewhere. Here the URL is also what a store is known by.
        None if KINDS.iter().any(|kind| kind.scheme.eq_ignore_ascii_case(&scheme)) => {
            let what = format!("its scheme is written in small letters: {}:", scheme.to_ascii_lowercase());
            Err(UrlError::Refused { what }.into())
        }
        None => Err(ConnectError::UnknownScheme { scheme, known: known().collect::<Vec<_>>().join(", ") }),
    }
}

/// The schemes that this build knows.
fn known() -> impl Iterator<Item = &'static str> {
    KINDS.iter().filter(|kind| kind.open.is_some()).map(|kind| kind.scheme)
}

/// A store in this process's memory, by name: two clients with the same URL meet in the same
/// elections.
fn memory(location: Location<'_>) -> Result<Arc<dyn Store>, ConnectError> {
    static STORES: Mutex<BTreeMap<String, MemoryStore>> = Mutex::new(BTreeMap::new());
    let rest = location.url.split_once(':').map_or("", |(_, rest)| rest);
    let name = rest.strip_prefix("//").unwrap_or(rest);
    let mut stores = lock(&STORES);
    let store = stores.entry(name.to_owned()).or_insert_with(|| MemoryStore::new(Shape::FAIR));
    Ok(Arc::new(store.clone()))
}

/// A store of servers, as its URL says. Misused by its URL, it says that the URL is malformed.
#[allow(dead_code, reason = "a build may have no store of servers")]
fn of_url<S: Store + 'static>(read: Result<S, StoreError>) -> Result<Arc<dyn Store>, ConnectError> {
    match read {
        Ok(store) => Ok(Arc::new(store)),
        Err(StoreError::Misuse { what }) => Err(UrlError::Refused { what }.into()),
        Err(error) => Err(error.into()),
    }
}

/// `file:///absolute/path?ttl=none&network=allow`
#[cfg(feature = "file")]
mod file {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    use std::path::PathBuf;
    use std::sync::Arc;

    use incumbent_file::{FileOptions, FileStore, Ttl};
    use incumbent_store::Store;
    use incumbent_store::escape::unescape;
    use incumbent_store::url::Parts;

    use super::Location;
    use crate::error::{ConnectError, UrlError};

    pub(super) fn open(location: Location<'_>) -> Result<Arc<dyn Store>, ConnectError> {
        let (path, options) = parse(location.url)?;
        // Whatever else keeps us from it is for the store to say.
        let missing = || path.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
        if !location.make && missing() {
            return Err(ConnectError::Missing { path });
        }
        Ok(Arc::new(FileStore::open_with(path, options)?))
    }

    fn parse(url: &str) -> Result<(PathBuf, FileOptions), UrlError> {
        let relative =
            || location("a file store needs an absolute path, with three slashes: file:///path/to/directory");
        let parts = Parts::split(url).filter(|parts| matches!(parts.authority, "" | "localhost"));
        let parts = parts.filter(|parts| !parts.path.is_empty()).ok_or_else(relative)?;
        let mut options = FileOptions::new();
        for option in parts.options() {
            options = match option {
                ("ttl", Some("none")) => options.ttl(Ttl::None),
                ("network", Some("allow")) => options.allow_network_fs(true),
                (word, value) => {
                    let option = value.map_or_else(|| word.to_owned(), |value| format!("{word}={value}"));
                    return Err(UrlError::UnknownOption { option, known: "ttl=none and network=allow" });
                }
            };
        }
        Ok((PathBuf::from(OsString::from_vec(decode(parts.path)?)), options))
    }

    /// `%20` and the like. No path has a zero byte in it.
    fn decode(path: &str) -> Result<Vec<u8>, UrlError> {
        let what = || location("a percent sign in the path needs two hexadecimal digits after it, as in %20");
        unescape(path).filter(|bytes| !bytes.contains(&0)).ok_or_else(what)
    }

    fn location(expected: &str) -> UrlError {
        UrlError::Place { expected: expected.to_owned() }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn paths_are_absolute_and_may_be_escaped() {
            assert_eq!(parse("file:///var/lib/a%20b").unwrap().0, PathBuf::from("/var/lib/a b"));
            assert_eq!(parse("file://localhost/var").unwrap().0, PathBuf::from("/var"));
            assert_eq!(parse("file:/var").unwrap().0, PathBuf::from("/var"));
            for bad in ["file://var", "file:var", "file:", "file:///a%2", "file:///a%zz", "file:///a%00"] {
                assert!(parse(bad).is_err(), "{bad}");
            }
        }

        #[test]
        fn settings_are_known_ones() {
            assert_eq!(parse("file:///var?ttl=none").unwrap().1.ttl, Ttl::None);
            assert!(parse("file:///var?network=allow&ttl=none").unwrap().1.allow_network_fs);
            assert!(parse("file:///var?ttl=5s").unwrap_err().to_string().contains("ttl=5s"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(all(feature = "file", feature = "etcd", feature = "zookeeper", feature = "peers"))]
    fn a_program_can_tell_what_is_wrong_with_a_url() {
        let refused = |url: &str| match find(url) {
            Ok(Open::Store(open)) => open(Location { url, make: false }).map(|_| ()).unwrap_err(),
            Ok(Open::Peers) => crate::peers::Group::from_url(url).map(|_| ()).unwrap_err(),
            Err(error) => error,
        };
        for url in ["etcd://host:99999", "zk://host:port", "etcds://host"] {
            assert!(matches!(refused(url), ConnectError::Url(UrlError::Refused { .. })), "{url}");
        }
        assert!(matches!(refused("nonsense"), ConnectError::Url(UrlError::NoScheme { .. })));
        assert!(matches!(refused("file://relative"), ConnectError::Url(UrlError::Place { .. })));
        for url in ["file:///var?colour=red", "ring://?colour=red"] {
            let ConnectError::Url(UrlError::UnknownOption { option, .. }) = refused(url) else { panic!("{url}") };
            assert!(option.starts_with("colour"), "{option}");
        }
        let ConnectError::Url(UrlError::Option { option, .. }) = refused("ring://?rank=x") else { panic!() };
        assert_eq!(option, "rank");
        let elsewhere = refused("consensus://?members=10.0.0.1:1,10.0.0.2:1");
        assert!(matches!(elsewhere, ConnectError::Url(UrlError::MissingOption { option: "secret-file", .. })));
        let no_file = refused("consensus://?secret-file=/nonexistent/secret");
        assert!(matches!(no_file, ConnectError::Url(UrlError::Group(crate::peers::ConfigError::SecretFile { .. }))));
    }

    #[test]
    fn every_store_of_servers_says_when_its_url_is_malformed() {
        for kind in KINDS.iter().filter(|kind| !["memory", "file"].contains(&kind.scheme)) {
            let Some(Open::Store(open)) = kind.open else { continue };
            let url = format!("{}://host:99999", kind.scheme);
            let error = open(Location { url: &url, make: false }).map(|_| ()).unwrap_err();
            assert!(matches!(error, ConnectError::Url(UrlError::Refused { .. })), "{url}: {error:?}");
        }
    }

    #[test]
    fn what_was_not_built_in_is_distinguished_from_what_does_not_exist() {
        for kind in KINDS {
            assert_eq!(Parts::split(kind.example).map(|parts| parts.scheme), Some(kind.scheme));
            let found = find(kind.example);
            match kind.open {
                Some(_) => assert!(found.is_ok(), "{}", kind.scheme),
                None => assert_eq!(
                    found.map(|_| ()).unwrap_err().to_string(),
                    format!(
                        "this build does not know {0}://; build it with the cargo feature `{1}`",
                        kind.scheme, kind.feature
                    )
                ),
            }
        }
        let capitals = find("REDIS://host").map(|_| ()).unwrap_err().to_string();
        assert!(capitals.contains("small letters: redis:"), "{capitals}");
        let unknown = find("gopher://hole").map(|_| ()).unwrap_err().to_string();
        assert!(unknown.starts_with("unknown store \"gopher\": this build knows memory"), "{unknown}");
    }
}
