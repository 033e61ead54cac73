//! Files that are replaced as a whole, and stay replaced.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::path::Path;

use rustix::fs::{Mode, OFlags, openat, renameat};

/// Replaces the file `name` in `dir` by one with these bytes: after a crash or a power cut it has
/// all of them or what it had before, and once this returns well it has all of them.
///
/// They are written to `draft`, beside it, by one caller at a time; what a crash left there is
/// overwritten, and a link there is not followed. The file is for its owner alone, unless
/// `permissions` say otherwise.
pub fn replace_durably(
    dir: &File,
    name: impl AsRef<Path>,
    draft: impl AsRef<Path>,
    bytes: &[u8],
    permissions: Option<Permissions>,
) -> io::Result<()> {
    let draft = draft.as_ref();
    // Not blocking: a pipe that somebody has put there must not hold us up.
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mut file = File::from(openat(dir, draft, flags, Mode::RUSR | Mode::WUSR)?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "it is not a regular file"));
    }
    if let Some(permissions) = permissions {
        file.set_permissions(permissions)?;
    }
    file.write_all(bytes)?;
    file.sync_all()?;
    renameat(dir, draft, dir, name.as_ref())?;
    // Only now does the new name outlive a power cut.
    dir.sync_all()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::random_id;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_what_a_crash_left_is_overwritten() {
        let folder = std::env::temp_dir().join(format!("incumbent-durable-{:x}", random_id().unwrap()));
        fs::create_dir(&folder).unwrap();
        let dir = File::open(&folder).unwrap();
        let mode = || fs::metadata(folder.join("file")).unwrap().permissions().mode() & 0o777;
        fs::write(folder.join("draft"), "a much longer text that a crash has left here").unwrap();
        fs::set_permissions(folder.join("draft"), Permissions::from_mode(0o600)).unwrap();

        replace_durably(&dir, "file", "draft", b"first", None).unwrap();
        assert_eq!((fs::read(folder.join("file")).unwrap(), mode()), (b"first".to_vec(), 0o600));
        replace_durably(&dir, "file", "draft", b"second", Some(Permissions::from_mode(0o640))).unwrap();
        assert_eq!((fs::read(folder.join("file")).unwrap(), mode()), (b"second".to_vec(), 0o640));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "no draft is left");

        fs::write(folder.join("elsewhere"), "untouched").unwrap();
        symlink("elsewhere", folder.join("draft")).unwrap();
        replace_durably(&dir, "file", "draft", b"third", None).unwrap_err();
        assert_eq!(fs::read(folder.join("elsewhere")).unwrap(), b"untouched");
        assert_eq!(fs::read(folder.join("file")).unwrap(), b"second");
        fs::remove_dir_all(&folder).unwrap();
    }
}
