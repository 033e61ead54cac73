//! A file that others read while it is written: the ready file, and that of a collector.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use incumbent::store::random_words;

/// All of it or what was there before: readers never see half a word. What is there and is not a
/// regular file stays: a device or a pipe is meant to be written to, and a link to be followed.
pub(crate) fn replace(file: &Path, text: &str) -> io::Result<()> {
    match fs::symlink_metadata(file) {
        Ok(there) if !there.is_file() => {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        // Where nothing is, or nothing can be seen, writing says so.
        _ => {}
    }
    // A name that cannot be guessed: another user can put nothing in its place.
    let [number] = random_words()?;
    replace_by_way_of(&format!("{number:016x}"), file, text)
}

fn replace_by_way_of(suffix: &str, file: &Path, text: &str) -> io::Result<()> {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{suffix}"));
    let draft = file.with_file_name(name);
    // A new file, or none: what is there already is neither written to nor followed.
    let mut new = OpenOptions::new().write(true).create_new(true).open(&draft)?;
    new.write_all(text.as_bytes()).and_then(|()| fs::rename(&draft, file)).inspect_err(|_| {
        let _ = fs::remove_file(&draft);
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use incumbent_testkit::TempDir;

    use super::*;

    fn names(folder: &TempDir) -> Vec<String> {
        let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_whole_and_nothing_but_a_file() {
        let folder = TempDir::new("whole-file");
        let ready = folder.path().join("ready");
        replace(&ready, "following\n").unwrap();
        replace(&ready, "leading 7\n").unwrap();
        assert_eq!(fs::read_to_string(&ready).unwrap(), "leading 7\n");
        assert_eq!(names(&folder), ["ready"]);
        fs::create_dir(folder.path().join("taken")).unwrap();
        replace_by_way_of("draft", &folder.path().join("taken"), "x").unwrap_err();
        assert_eq!(names(&folder), ["ready", "taken"], "what could not be put in place is gone");
        symlink(&ready, folder.path().join("link")).unwrap();
        for name in ["taken", "link"] {
            let refused = replace(&folder.path().join(name), "x").unwrap_err();
            assert_eq!(refused.to_string(), "it is not a regular file", "{name}");
        }
        assert_eq!(fs::read_to_string(&ready).unwrap(), "leading 7\n");
    }

    #[test]
    fn what_others_planted_beside_the_file_is_not_written_to() {
        let folder = TempDir::new("whole-file");
        let (ready, precious) = (folder.path().join("ready"), folder.path().join("precious"));
        fs::write(&precious, "precious").unwrap();
        for suffix in [std::process::id().to_string(), "guessed".into()] {
            symlink(&precious, folder.path().join(format!("ready.{suffix}"))).unwrap();
        }
        let refused = replace_by_way_of("guessed", &ready, "leading 1\n").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        replace(&ready, "leading 1\n").unwrap();
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
        assert!(fs::symlink_metadata(&ready).unwrap().is_file());
    }
}
