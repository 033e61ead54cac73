//! Where a user's own store, and what its groups of peers keep, is by default.

use std::env;
use std::path::PathBuf;

/// `incumbent` in `$XDG_STATE_HOME`, or else in `~/.local/state`. Nothing is created, and paths
/// that are not absolute do not count. `None`: neither `XDG_STATE_HOME` nor `HOME` says where that
/// is.
pub fn state_directory() -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("incumbent"))
}
