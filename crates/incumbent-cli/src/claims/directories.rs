//! Where claims are: in a directory of the user's own.

use std::env;
use std::ffi::OsString;
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
/// Names the only directory of claims: one that containers and their host share, say.
pub(super) const NAMED: &str = "INCUMBENT_CLAIMS_DIR";

/// Where this user's processes put their claims.
pub(super) fn own() -> PathBuf {
    directory_of(|name| env::var_os(name), geteuid().as_raw())
}

/// The directory that was named for claims: then they are nowhere else.
pub(super) fn named() -> Option<PathBuf> {
    absolute(env::var_os(NAMED))
}

/// Where a process of this user with these variables puts its claims.
pub(super) fn directory_of(variable: impl Fn(&str) -> Option<OsString>, user: u32) -> PathBuf {
    let of_session = || absolute(variable("XDG_RUNTIME_DIR")).map(|runtime| runtime.join("incumbent"));
    let of_user = || match user {
        0 => OF_ROOT.into(),
        user => Path::new(OF_OTHERS).join(format!("{PREFIX}{user}")),
    };
    absolute(variable(NAMED)).or_else(of_session).unwrap_or_else(of_user)
}

/// In which this user's processes count what they have shot at.
pub(crate) fn file_of_shots() -> io::Result<PathBuf> {
    let directory = own();
    make(&directory)?;
    Ok(directory.join("shots"))
}

fn absolute(path: Option<OsString>) -> Option<PathBuf> {
    path.map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Every directory in which claims of this host's processes usually are. Not all of them exist.
pub(super) fn usual() -> Vec<PathBuf> {
    let mut all = vec![own(), OF_ROOT.into()];
    all.extend(children(OF_USERS).map(|user| user.join("incumbent")));
    all.extend(children(OF_OTHERS).filter(|path| {
        path.file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| name.strip_prefix(PREFIX))
            .is_some_and(is_number)
    }));
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
    fn claims_are_where_the_environment_says() {
        let of = |set: &[(&str, &str)], user| {
            let set: Vec<(String, OsString)> = set.iter().map(|(name, value)| ((*name).into(), value.into())).collect();
            let variable = move |name: &str| set.iter().find(|(set, _)| set == name).map(|(_, value)| value.clone());
            directory_of(variable, user).display().to_string()
        };
        assert_eq!(of(&[], 0), "/run/incumbent");
        assert_eq!(of(&[], 1000), "/tmp/incumbent-1000");
        assert_eq!(of(&[("XDG_RUNTIME_DIR", "/run/user/7")], 7), "/run/user/7/incumbent");
        assert_eq!(of(&[("XDG_RUNTIME_DIR", "relative")], 7), "/tmp/incumbent-7");
        assert_eq!(of(&[("XDG_RUNTIME_DIR", "/run/user/7"), (NAMED, "/shared")], 7), "/shared");
    }

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
