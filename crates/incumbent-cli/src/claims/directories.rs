//! Where claims are: in a directory of the user's own.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

/// Claims of root, where it has no runtime directory: a service, say.
const OF_ROOT: &str = "/run/incumbent";
/// The parent of the runtime directories of users.
const OF_USERS: &str = "/run/user";
/// The parent of the directories of those who have no runtime directory.
const OF_OTHERS: &str = "/tmp";
const PREFIX: &str = "incumbent-";

/// Where this user's processes put their claims.
pub(super) fn own() -> PathBuf {
    match (of_session(), geteuid()) {
        (Some(directory), _) => directory,
        (None, user) if user.is_root() => OF_ROOT.into(),
        (None, user) => Path::new(OF_OTHERS).join(format!("{PREFIX}{}", user.as_raw())),
    }
}

fn of_session() -> Option<PathBuf> {
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    runtime.map(|runtime| runtime.join("incumbent"))
}

/// Every directory in which claims of this host's processes may be, each once. Not all of them
/// exist.
pub(super) fn all() -> Vec<PathBuf> {
    let mut all = vec![own(), OF_ROOT.into()];
    all.extend(children(OF_USERS).map(|user| user.join("incumbent")));
    all.extend(children(OF_OTHERS).filter(|path| {
        path.file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| name.strip_prefix(PREFIX))
            .is_some_and(is_number)
    }));
    all.sort();
    all.dedup();
    all
}

fn children(parent: &str) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(parent).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Makes the directory, if it is not there. What another user could write to is refused.
pub(super) fn make(directory: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(directory)?;
    let ours = found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o022 == 0;
    ours.then_some(()).ok_or_else(|| {
        io::Error::new(io::ErrorKind::PermissionDenied, "it is not a directory that this user alone can write to")
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use incumbent_testkit::TempDir;

    use super::*;

    #[test]
    fn a_directory_that_others_could_write_to_is_refused() {
        let folder = TempDir::new("claims");
        let ours = folder.path().join("ours");
        make(&ours).unwrap();
        make(&ours).unwrap();
        symlink(&ours, folder.path().join("link")).unwrap();
        make(&folder.path().join("link")).unwrap_err();
        fs::set_permissions(&ours, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(make(&ours).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        make(&folder.path().join("no/parent")).unwrap_err();
    }
}
