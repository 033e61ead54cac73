//! The store's URL: from the command line, a file, the environment, or the user's own directory. It
//! is printed without its passwords.

use std::env;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use incumbent::StoreKind;
use incumbent::store::escape::{Digits, escape, unescape};
use incumbent::store::state_directory;
use incumbent::store::url::{redacted, secrets};

use crate::args::StoreArgs;
use crate::failure::Failure;
use crate::output::{Console, shell_word};

/// Where the URL may come from when no option says it.
pub(crate) const VARIABLE: &str = "INCUMBENT_STORE";

/// A store's URL. It is shown without its passwords.
#[derive(Clone)]
pub(crate) struct StoreUrl {
    url: String,
    /// It was written by hand, and so may be mistyped.
    named: bool,
}

impl StoreUrl {
    /// The store that was named, or the user's own. For a verb that changes something, a note says
    /// which one was chosen; for one that only reads, the wrong store does no harm.
    pub(crate) fn choose(args: &StoreArgs, changes: bool, console: &mut Console) -> Result<StoreUrl, Failure> {
        let store = if let Some(url) = &args.store {
            StoreUrl { url: url.clone(), named: true }
        } else if let Some(file) = &args.store_file {
            StoreUrl::from_file(file, console)?
        } else if let Some(url) = env::var_os(VARIABLE).filter(|url| !url.is_empty()) {
            let url = url.into_string().map_err(|_| Failure::usage(format!("{VARIABLE} is not text")))?;
            StoreUrl { url, named: true }
        } else {
            let directory = directory_of_this_user()?;
            let store = StoreUrl::in_directory(&directory);
            if changes {
                make_parent(&directory)?;
                console.note(format!("no store was named: using {store}, for this user on this host"));
                warn_of_others(console);
            }
            store
        };
        console.keep_secret(store.secrets(), &store.to_string());
        Ok(store)
    }

    /// A file store in this directory.
    pub(crate) fn in_directory(directory: &Path) -> StoreUrl {
        let mut url = String::from("file://");
        let stays = |c: char| c.is_ascii_alphanumeric() || "/-_.~+,@=:".contains(c);
        url.push_str(&escape(directory.as_os_str().as_bytes(), Digits::Lower, stays));
        StoreUrl { url, named: false }
    }

    /// Whether it was written by hand.
    pub(crate) fn was_named(&self) -> bool {
        self.named
    }

    /// The whole URL, secrets included: for connecting.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// As what it is remembered where a store is, if it is one: the same words find the same store
    /// again.
    pub(crate) fn place(&self) -> Option<String> {
        self.kind().is_none_or(|kind| kind.is_place).then(|| self.to_string())
    }

    /// Whether those who wait write it down, so that they can be counted.
    pub(crate) fn keeps_line(&self) -> bool {
        self.kind().is_none_or(|kind| kind.keeps_line)
    }

    /// What it names, if this is known.
    fn kind(&self) -> Option<&'static StoreKind> {
        let (scheme, _) = self.url.split_once(':')?;
        incumbent::store_kinds().iter().find(|kind| kind.scheme == scheme)
    }

    fn from_file(file: &Path, console: &Console) -> Result<StoreUrl, Failure> {
        let text = fs::read_to_string(file)
            .map_err(|error| Failure::usage(format!("cannot read the store's URL from {}: {error}", file.display())))?;
        match text.lines().next().map(str::trim) {
            Some(url) if !url.is_empty() => {
                let store = StoreUrl { url: url.to_owned(), named: true };
                let mode = fs::metadata(file).map_or(0, |file| file.permissions().mode() & 0o777);
                if store.has_secret() && mode & 0o044 != 0 {
                    let file = file.display().to_string();
                    let cure = format!("`chmod 600 {}`", shell_word(&file));
                    console.warn(format!("others can read the password in {file} (mode {mode:o}): {cure}"));
                }
                Ok(store)
            }
            _ => Err(Failure::usage(format!("the first line of {} is empty", file.display()))
                .next("it must be the store's URL")),
        }
    }

    /// What must not be printed: the passwords, as they are written and as they are meant, and the
    /// URL as a whole if it has any.
    fn secrets(&self) -> Vec<String> {
        let mut secrets = secrets(&self.url);
        let meant: Vec<_> = secrets.iter().filter_map(|secret| String::from_utf8(unescape(secret)?).ok()).collect();
        secrets.extend(meant);
        if !secrets.is_empty() {
            secrets.push(self.url.clone());
        }
        secrets
    }

    /// Whether a program that can read the URL learns a password.
    pub(crate) fn has_secret(&self) -> bool {
        !self.secrets().is_empty()
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redacted(&self.url))
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Whether INCUMBENT_STORE has a password that COMMAND should not see.
pub(crate) fn variable_has_secret() -> bool {
    env::var_os(VARIABLE).is_some_and(|url| !secrets(&url.to_string_lossy()).is_empty())
}

/// Where the store of this user is, if none was named. Nothing is created.
fn directory_of_this_user() -> Result<PathBuf, Failure> {
    if env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        let what = "no store was named, and a directory does not work inside a Kubernetes pod: each replica would lead \
                    on its own disk";
        return Err(
            Failure::usage(what).next(format!("name a store that all replicas share, with --store or {VARIABLE}"))
        );
    }
    state_directory().ok_or_else(|| {
        Failure::usage("no store was named, and neither XDG_STATE_HOME nor HOME is set to locate this user's own")
            .next("name one with --store")
    })
}

/// The store itself makes the last directory of its path, and no more.
fn make_parent(directory: &Path) -> Result<(), Failure> {
    let Some(parent) = directory.parent() else { return Ok(()) };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(|error| {
        Failure::error(format!("cannot create the directory {}: {error}", parent.display()))
            .next("name a store with --store")
    })
}

/// Where the user's own store may not be the one that others use.
fn warn_of_others(console: &Console) {
    if in_container() {
        console.warn(
            "this seems to be a container: unless its replicas share this directory, each will lead on its own disk; \
             name a shared store with --store",
        );
    }
    let home = env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state/incumbent"));
    let ours = state_directory();
    if let Some(other) = home.filter(|home| home.is_absolute() && home.exists() && Some(home) != ours.as_ref()) {
        console.warn(format!(
            "XDG_STATE_HOME is set here, but {} is there, too: a candidate that was \
             started without that variable, from cron for example, is in line there; name the store with --store",
            other.display()
        ));
    }
}

/// Whether what is written to disk is likely to go with this process.
pub(crate) fn in_container() -> bool {
    let marked = Path::new("/.dockerenv").exists() || Path::new("/run/.containerenv").exists();
    marked || env::var_os("container").is_some_and(|kind| !kind.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_secret_as_it_is_written_and_as_it_is_meant() {
        let store = StoreUrl { url: "etcd://u:p%40ss@h".into(), named: true };
        assert_eq!(store.secrets(), ["p%40ss", "p@ss", "etcd://u:p%40ss@h"]);
    }

    #[test]
    fn a_redlock_keeps_no_line() {
        let keeps_line = |url: &str| StoreUrl { url: url.into(), named: true }.keeps_line();
        assert!(!keeps_line("redlock://a,b,c") && !keeps_line("redlocks://a,b,c?ca=x") && keeps_line("redis://a"));
    }

    #[test]
    fn a_group_of_peers_is_no_place() {
        let is_place = |url: &str| StoreUrl { url: url.into(), named: true }.place().is_some();
        assert!(is_place("etcd://a") && is_place("file:///var/a"));
        assert!(!is_place("bully://?members=3") && !is_place("consensus://a?members=3") && !is_place("memory://a"));
    }

    #[test]
    fn directories_with_strange_names_become_urls() {
        assert_eq!(StoreUrl::in_directory(Path::new("/a b/ü?")).url(), "file:///a%20b/%c3%bc%3f");
    }
}
