//! From a URL to what it names: the one list of schemes, and the cargo feature that adds each.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use incumbent_store::Store;
use incumbent_store::memory::{MemoryStore, Shape};

use crate::error::ConnectError;

/// A scheme, the cargo feature that adds it, and what opens it: nothing, if this build was made without the feature.
macro_rules! kind {
    ($scheme:literal, $feature:literal, $open:expr) => {
        Kind {
            scheme: $scheme,
            feature: $feature,
            #[cfg(feature = $feature)]
            open: Some($open),
            #[cfg(not(feature = $feature))]
            open: None,
        }
    };
}

/// Every scheme that there is. A new store is one line here.
const KINDS: &[Kind] = &[
    Kind { scheme: "memory", feature: "", open: Some(Open::Store(memory)) },
    kind!("consensus", "peers", Open::Peers),
    kind!("bully", "peers", Open::Peers),
    kind!("ring", "peers", Open::Peers),
    kind!("file", "file", Open::Store(file::open)),
    kind!("etcd", "etcd", Open::Store(etcd)),
    kind!("etcds", "etcd-tls", Open::Store(etcd)),
    kind!("zk", "zookeeper", Open::Store(zookeeper)),
    kind!("zks", "zookeeper-tls", Open::Store(zookeeper)),
];

struct Kind {
    scheme: &'static str,
    feature: &'static str,
    open: Option<Open>,
}

/// What a scheme stands for.
#[derive(Clone, Copy)]
pub(crate) enum Open {
    Store(fn(Place<'_>) -> Result<Arc<dyn Store>, ConnectError>),
    #[cfg(feature = "peers")]
    Peers,
}

/// Where a store is.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) url: &'a str,
    /// Whether it is made if it is not there yet.
    #[cfg_attr(not(feature = "file"), allow(dead_code, reason = "only a directory can be made"))]
    pub(crate) make: bool,
}

impl Place<'_> {
    /// What comes after the scheme.
    fn rest(&self) -> &str {
        self.url.split_once(':').map_or("", |(_, rest)| rest)
    }
}

/// What the URL's scheme stands for.
pub(crate) fn find(url: &str) -> Result<Open, ConnectError> {
    let Some((scheme, _)) = url.split_once(':') else {
        let example = known().last().unwrap_or("memory");
        let directory = if cfg!(feature = "file") { ", or file:///path for a directory" } else { "" };
        return Err(ConnectError::Url { what: format!("it has no scheme; write e.g. {example}://...{directory}") });
    };
    let scheme = scheme.to_owned();
    match KINDS.iter().find(|kind| kind.scheme == scheme) {
        Some(Kind { open: Some(open), .. }) => Ok(*open),
        Some(Kind { feature, .. }) => Err(ConnectError::NotBuiltIn { scheme, feature }),
        None => Err(ConnectError::UnknownScheme { scheme, known: known().collect::<Vec<_>>().join(", ") }),
    }
}

/// The schemes that this build knows.
fn known() -> impl Iterator<Item = &'static str> {
    KINDS.iter().filter(|kind| kind.open.is_some()).map(|kind| kind.scheme)
}

/// A store in this process's memory, by name: two clients with the same URL meet in the same elections.
fn memory(place: Place<'_>) -> Result<Arc<dyn Store>, ConnectError> {
    static STORES: Mutex<BTreeMap<String, MemoryStore>> = Mutex::new(BTreeMap::new());
    let name = place.rest().strip_prefix("//").unwrap_or(place.rest());
    let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
    let store = stores.entry(name.to_owned()).or_insert_with(|| MemoryStore::new(Shape::FAIR));
    Ok(Arc::new(store.clone()))
}

#[cfg(feature = "etcd")]
fn etcd(place: Place<'_>) -> Result<Arc<dyn Store>, ConnectError> {
    Ok(Arc::new(incumbent_etcd::EtcdStore::from_url(place.url)?))
}

#[cfg(feature = "zookeeper")]
fn zookeeper(place: Place<'_>) -> Result<Arc<dyn Store>, ConnectError> {
    Ok(Arc::new(incumbent_zookeeper::ZooKeeperStore::from_url(place.url)?))
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
    use incumbent_store::record::unescape;

    use super::Place;
    use crate::error::ConnectError;

    pub(super) fn open(place: Place<'_>) -> Result<Arc<dyn Store>, ConnectError> {
        let (path, options) = parse(place.rest()).map_err(|what| ConnectError::Url { what })?;
        // Whatever else keeps us from it is for the store to say.
        let missing = || path.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
        if !place.make && missing() {
            return Err(ConnectError::Missing { path });
        }
        Ok(Arc::new(FileStore::open_with(path, options)?))
    }

    fn parse(rest: &str) -> Result<(PathBuf, FileOptions), String> {
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let path = match path.strip_prefix("//") {
            Some(path) => path.strip_prefix("localhost").unwrap_or(path),
            None => path,
        };
        if !path.starts_with('/') {
            return Err("a file store needs an absolute path, with three slashes: file:///path/to/directory".into());
        }
        let mut options = FileOptions::new();
        for setting in query.split('&').filter(|setting| !setting.is_empty()) {
            options = match setting {
                "ttl=none" => options.ttl(Ttl::None),
                "network=allow" => options.allow_network_fs(true),
                _ => return Err(format!("a file store knows ttl=none and network=allow, not {setting:?}")),
            };
        }
        Ok((PathBuf::from(OsString::from_vec(decode(path)?)), options))
    }

    /// `%20` and the like. No path has a zero byte in it.
    fn decode(path: &str) -> Result<Vec<u8>, String> {
        let what = "a percent sign in the path needs two hexadecimal digits after it, as in %20";
        unescape(path).filter(|bytes| !bytes.contains(&0)).ok_or_else(|| what.into())
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn paths_are_absolute_and_may_be_escaped() {
            assert_eq!(parse("///var/lib/a%20b").unwrap().0, PathBuf::from("/var/lib/a b"));
            assert_eq!(parse("//localhost/var").unwrap().0, PathBuf::from("/var"));
            assert_eq!(parse("/var").unwrap().0, PathBuf::from("/var"));
            for bad in ["//var", "var", "", "///a%2", "///a%zz", "///a%00"] {
                assert!(parse(bad).is_err(), "{bad}");
            }
        }

        #[test]
        fn settings_are_known_ones() {
            assert_eq!(parse("///var?ttl=none").unwrap().1.ttl, Ttl::None);
            assert!(parse("///var?network=allow&ttl=none").unwrap().1.allow_network_fs);
            assert!(parse("///var?ttl=5s").unwrap_err().contains("ttl=5s"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_built_in_is_told_from_what_nobody_knows() {
        for kind in KINDS {
            let found = find(&format!("{}://somewhere", kind.scheme));
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
        let unknown = find("gopher://hole").map(|_| ()).unwrap_err().to_string();
        assert!(unknown.starts_with("unknown store \"gopher\": this build knows memory"), "{unknown}");
    }
}
