//! The secret that the members of a group, and those who ask them, share.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use incumbent_store::random_words;

use crate::config::ConfigError;

/// The shortest secret. A shorter one could be guessed from what passes by on the network.
pub const MIN_SECRET_BYTES: usize = 16;
/// The longest secret.
pub const MAX_SECRET_BYTES: usize = 4096;

/// What proves that somebody belongs to the group. Its value is never shown.
#[derive(Clone)]
pub struct Secret(Arc<[u8]>);

impl Secret {
    /// Checks its length: [`MIN_SECRET_BYTES`] to [`MAX_SECRET_BYTES`].
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Secret, ConfigError> {
        let bytes = bytes.into();
        match bytes.len() {
            MIN_SECRET_BYTES..=MAX_SECRET_BYTES => Ok(Secret(bytes.into())),
            bytes => Err(ConfigError::SecretLength { bytes }),
        }
    }

    /// Reads it from a file that only its owner (and group) may read. White space at the end does
    /// not count.
    pub fn read(path: &Path) -> Result<Secret, ConfigError> {
        let failed = |why: io::Error| ConfigError::SecretFile { path: path.to_owned(), why: Arc::new(why) };
        let file = std::fs::File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.mode() & 0o007 != 0 {
            return Err(ConfigError::SecretOpen { path: path.to_owned() });
        }
        let mut bytes = Vec::new();
        file.take(MAX_SECRET_BYTES as u64 + 2).read_to_end(&mut bytes).map_err(failed)?;
        Secret::new(bytes.trim_ascii_end().to_vec())
    }

    /// Reads it, or makes one if there is no such file: for groups on one host. Of several that
    /// make one at the same time, the first wins and all read the same.
    pub fn read_or_create(path: &Path) -> Result<Secret, ConfigError> {
        let failed = |why: io::Error| ConfigError::SecretFile { path: path.to_owned(), why: Arc::new(why) };
        match Secret::read(path) {
            Err(ConfigError::SecretFile { why, .. }) if why.kind() == io::ErrorKind::NotFound => {}
            read => return read,
        }
        let text = random_words::<4>().map_err(failed)?.map(|word| format!("{word:016x}")).concat();
        // Complete before it has its name: nobody ever reads half of it.
        let mut draft = path.as_os_str().to_owned();
        let [number] = random_words().map_err(failed)?;
        draft.push(format!(".{number}"));
        let written = write_private(Path::new(&draft), text.as_bytes()).and_then(|()| std::fs::hard_link(&draft, path));
        let _ = std::fs::remove_file(&draft);
        match written {
            Err(why) if why.kind() != io::ErrorKind::AlreadyExists => Err(failed(why)),
            _ => Secret::read(path),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.write_all(b"\n")?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use incumbent_testkit::TempDir;

    use super::*;

    #[test]
    fn a_secret_is_neither_short_nor_shown() {
        assert!(matches!(Secret::new("short"), Err(ConfigError::SecretLength { bytes: 5 })));
        assert!(matches!(Secret::new([7; 5000]), Err(ConfigError::SecretLength { bytes: 5000 })));
        assert_eq!(format!("{:?}", Secret::new("not to be printed").unwrap()), "Secret(..)");
    }

    #[test]
    fn a_file_that_everybody_can_read_holds_no_secret() {
        let dir = TempDir::new("peers");
        let path = dir.path().join("secret");
        std::fs::write(&path, "correct horse battery staple\n\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(Secret::read(&path), Err(ConfigError::SecretOpen { .. })));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(Secret::read(&path).unwrap().bytes(), b"correct horse battery staple");
    }

    #[test]
    fn those_who_make_a_secret_at_the_same_time_get_the_same_one() {
        let dir = TempDir::new("peers");
        let path = dir.path().join("secret");
        let made: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| Secret::read_or_create(&path).unwrap())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(made.iter().all(|secret| secret.bytes() == made[0].bytes()));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no drafts are left");
    }
}
