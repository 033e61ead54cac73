//! Files that are replaced as a whole, and stay replaced; directories that stay made.

use std::fs::{DirBuilder, File, Permissions};
use std::io::ErrorKind::{InvalidInput, PermissionDenied};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;

/// Replaces the file `name` in `dir` by one with these bytes: after a crash or a power cut it has
/// all of them or what it had before, and once this returns well it has all of them.
///
/// They are written to `draft`, beside it, by one caller at a time; what a crash, or anybody else,
/// left there is removed first. The file is for its owner alone, unless `permissions` say
/// otherwise.
pub fn replace_durably(
    dir: &File,
    name: impl AsRef<Path>,
    draft: impl AsRef<Path>,
    bytes: &[u8],
    permissions: Option<Permissions>,
) -> io::Result<()> {
    replace(dir, (name.as_ref(), draft.as_ref()), bytes, permissions, &mut File::sync_all)
}

/// Makes a directory for its owner alone, and those above it that are missing. Once this returns
/// well they outlive a power cut.
pub fn make_dir_durably(path: &Path) -> io::Result<()> {
    make_dir(path, &mut |parent| File::open(parent)?.sync_all())
}

fn replace(
    dir: &File,
    (name, draft): (&Path, &Path),
    bytes: &[u8],
    permissions: Option<Permissions>,
    sync: &mut dyn FnMut(&File) -> io::Result<()>,
) -> io::Result<()> {
    match unlinkat(dir, draft, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(why) => return Err(why.into()),
    }
    // A file of our own making: a link that somebody puts there leads nowhere.
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(dir, draft, flags, Mode::RUSR | Mode::WUSR)?);
    if let Some(permissions) = permissions {
        file.set_permissions(permissions)?;
    }
    file.write_all(bytes)?;
    sync(&file)?;
    renameat(dir, draft, dir, name)?;
    // Only now does the new name outlive a power cut.
    sync(dir)
}

/// From the top down, each synced before the next is made: so where the last one is found, all
/// above it are there to stay. The first that is found is synced, too: the process that made it may
/// have died before that. Where that is not for us to do, it was made by somebody else, who looks
/// after it.
fn make_dir(path: &Path, sync: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Ok(()),
    };
    let found = path.is_dir();
    if !found {
        make_dir(parent, sync)?;
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    }
    match sync(parent) {
        Err(why) if found && matches!(why.kind(), PermissionDenied | InvalidInput) => Ok(()),
        synced => synced,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    use incumbent_testkit::TempDir;

    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_what_a_crash_left_is_removed() {
        let scratch = TempDir::new("durable");
        let folder = scratch.path();
        let dir = File::open(folder).unwrap();
        let mode = || fs::metadata(folder.join("file")).unwrap().permissions().mode() & 0o777;
        fs::write(folder.join("draft"), "a much longer text that a crash has left here").unwrap();

        replace_durably(&dir, "file", "draft", b"first", None).unwrap();
        assert_eq!((fs::read(folder.join("file")).unwrap(), mode()), (b"first".to_vec(), 0o600));
        replace_durably(&dir, "file", "draft", b"second", Some(Permissions::from_mode(0o640))).unwrap();
        assert_eq!((fs::read(folder.join("file")).unwrap(), mode()), (b"second".to_vec(), 0o640));
        assert_eq!(fs::read_dir(folder).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn a_link_at_the_draft_leads_nowhere() {
        let scratch = TempDir::new("durable");
        let folder = scratch.path();
        let dir = File::open(folder).unwrap();
        fs::write(folder.join("elsewhere"), "untouched").unwrap();
        symlink("elsewhere", folder.join("draft")).unwrap();
        replace_durably(&dir, "file", "draft", b"first", None).unwrap();
        fs::hard_link(folder.join("elsewhere"), folder.join("draft")).unwrap();
        replace_durably(&dir, "file", "draft", b"second", None).unwrap();
        assert_eq!(fs::read(folder.join("elsewhere")).unwrap(), b"untouched");
        assert_eq!(fs::read(folder.join("file")).unwrap(), b"second");
        fs::create_dir(folder.join("draft")).unwrap();
        replace_durably(&dir, "file", "draft", b"third", None).unwrap_err();
        assert_eq!(fs::read(folder.join("file")).unwrap(), b"second");
    }

    /// A power cut keeps what was synced: all bytes before the name, and the name before it is
    /// said.
    #[test]
    fn the_bytes_are_synced_before_the_name_and_the_name_before_it_is_said() {
        let scratch = TempDir::new("durable");
        let dir = File::open(scratch.path()).unwrap();
        let file = || fs::read(scratch.path().join("file")).ok();
        let names = (Path::new("file"), Path::new("draft"));
        let mut synced = Vec::new();
        let mut sync = |it: &File| {
            let bytes = fs::read(scratch.path().join("draft")).ok();
            synced.push((it.metadata()?.is_dir(), bytes, file()));
            Ok(())
        };
        replace(&dir, names, b"bytes", None, &mut sync).unwrap();
        let bytes = || Some(b"bytes".to_vec());
        assert_eq!(synced, [(false, bytes(), None), (true, None, bytes())]);
        let mut fails = |_: &File| Err(io::Error::other("no space"));
        replace(&dir, names, b"other", None, &mut fails).unwrap_err();
        assert_eq!(file(), bytes(), "what is not durable takes no name");
    }

    #[test]
    fn every_directory_that_is_made_is_synced_before_the_next_one() {
        let scratch = TempDir::new("durable");
        let path = scratch.path().join("made/on/the/way");
        let mut synced = Vec::new();
        let mut sync = |parent: &Path| {
            let made = fs::read_dir(parent)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
            let empty = made.iter().all(|made| fs::read_dir(made).is_ok_and(|mut below| below.next().is_none()));
            synced.push((parent.strip_prefix(scratch.path()).map(Path::to_owned).ok(), empty));
            Ok(())
        };
        make_dir(&path, &mut sync).unwrap();
        // The one that was there, by what is above it; its neighbours are not ours.
        assert_eq!(synced.remove(0).0, None);
        let expected = ["", "made", "made/on", "made/on/the"].map(|parent| (Some(PathBuf::from(parent)), true));
        assert_eq!(synced, expected);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        make_dir_durably(&path).unwrap();
    }

    #[test]
    fn a_directory_that_is_found_is_synced_where_we_may() {
        let scratch = TempDir::new("durable");
        fs::create_dir(scratch.path().join("made")).unwrap();
        let mut synced = Vec::new();
        let mut denied = |parent: &Path| {
            synced.push(parent.strip_prefix(scratch.path()).unwrap().to_owned());
            if parent == scratch.path() { Err(PermissionDenied.into()) } else { Ok(()) }
        };
        make_dir(&scratch.path().join("made/on"), &mut denied).unwrap();
        assert_eq!(synced, ["", "made"].map(PathBuf::from));
        make_dir(&scratch.path().join("other"), &mut |_| Err(PermissionDenied.into())).unwrap_err();
    }
}
