//! From a URL to a store. Each kind of store has a cargo feature that only adds its scheme here.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use incumbent_core::Settings;
use incumbent_store::Store;
use incumbent_store::memory::{MemoryStore, Shape};

use crate::error::ConnectError;

/// The schemes that this build knows.
const KNOWN: &[&str] = &[
    "memory",
    #[cfg(feature = "peers")]
    "consensus",
    #[cfg(feature = "peers")]
    "bully",
    #[cfg(feature = "peers")]
    "ring",
    #[cfg(feature = "file")]
    "file",
    #[cfg(feature = "etcd")]
    "etcd",
    #[cfg(feature = "etcd-tls")]
    "etcds",
    #[cfg(feature = "zookeeper")]
    "zk",
    #[cfg(feature = "zookeeper-tls")]
    "zks",
];

/// Stores in this process's memory, by name: two clients with the same URL meet in the same elections.
static MEMORY: Mutex<BTreeMap<String, MemoryStore>> = Mutex::new(BTreeMap::new());

/// `make`: whether a place that is not there yet is made.
#[cfg_attr(not(feature = "file"), allow(unused_variables, reason = "only a directory can be made"))]
pub(crate) async fn connect(url: &str, _settings: &Settings, make: bool) -> Result<Arc<dyn Store>, ConnectError> {
    let Some((scheme, rest)) = url.split_once(':') else {
        let example = KNOWN.last().unwrap_or(&"memory");
        let directory = if KNOWN.contains(&"file") { ", or file:///path for a directory" } else { "" };
        return Err(ConnectError::Url { what: format!("it has no scheme; write e.g. {example}://...{directory}") });
    };
    if !KNOWN.contains(&scheme) {
        return Err(unknown(scheme));
    }
    match scheme {
        "memory" => {
            let name = rest.strip_prefix("//").unwrap_or(rest);
            let mut stores = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
            let store = stores.entry(name.to_owned()).or_insert_with(|| MemoryStore::new(Shape::FAIR));
            Ok(Arc::new(store.clone()))
        }
        #[cfg(feature = "file")]
        "file" => file::open(rest, make).await,
        #[cfg(feature = "etcd")]
        "etcd" | "etcds" => Ok(Arc::new(incumbent_etcd::EtcdStore::from_url(url)?)),
        #[cfg(feature = "zookeeper")]
        "zk" | "zks" => Ok(Arc::new(incumbent_zookeeper::ZooKeeperStore::from_url(url)?)),
        _ => Err(unknown(scheme)),
    }
}

/// Tells what nobody knows from what was only not built in.
fn unknown(scheme: &str) -> ConnectError {
    let features =
        [("etcd", "etcd"), ("zookeeper", "zk"), ("file", "file"), ("peers", "consensus"), ("peers", "bully")];
    let features = features.into_iter().chain([("etcd-tls", "etcds"), ("zookeeper-tls", "zks"), ("peers", "ring")]);
    match features.into_iter().find(|(_, known)| *known == scheme) {
        Some((feature, _)) => ConnectError::NotBuiltIn { scheme: scheme.to_owned(), feature },
        None => ConnectError::UnknownScheme { scheme: scheme.to_owned(), known: KNOWN.join(", ") },
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
    use incumbent_store::record::unescape;

    use crate::error::ConnectError;

    pub(super) async fn open(rest: &str, make: bool) -> Result<Arc<dyn Store>, ConnectError> {
        let (path, options) = parse(rest).map_err(|what| ConnectError::Url { what })?;
        // Whatever else keeps us from it is for the store to say.
        let missing = || path.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
        if !make && missing() {
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
        assert_eq!(
            unknown("etcds").to_string(),
            "this build does not know etcds://; build it with the cargo feature `etcd-tls`"
        );
        assert!(unknown("gopher").to_string().starts_with("unknown store \"gopher\": this build knows memory"));
    }
}
