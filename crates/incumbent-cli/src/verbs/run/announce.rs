//! Tells the service manager, and readers of the ready file, whether this candidate follows or
//! leads.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};

use incumbent::store::random_words;

use crate::output::Console;

/// Followers are ready, too: they wait for their turn, which may never come.
pub(super) struct Announcer {
    manager: Option<SocketAddr>,
    ready_file: Option<PathBuf>,
    ready: bool,
    console: Console,
}

impl Announcer {
    pub(super) fn new(ready_file: Option<PathBuf>, console: Console) -> Announcer {
        let manager = env::var_os("NOTIFY_SOCKET").and_then(|name| address(&name).ok());
        Announcer { manager, ready_file, ready: false, console }
    }

    pub(super) fn following(&mut self, ahead: &str) {
        self.announce(&format!("following {ahead}"), "following\n");
    }

    pub(super) fn leading(&mut self, token: Option<u64>) {
        match token {
            Some(token) => self.announce(&format!("leading with token {token}"), &format!("leading {token}\n")),
            None => self.announce("leading", "leading\n"),
        }
    }

    /// Nothing is ready any more.
    pub(super) fn leave(&mut self) {
        self.tell("STOPPING=1");
        if let Some(file) = self.ready_file.as_ref().filter(|_| self.ready) {
            // It may have been removed already.
            let _ = fs::remove_file(file);
        }
    }

    fn announce(&mut self, status: &str, text: &str) {
        let first = if std::mem::replace(&mut self.ready, true) { "" } else { "READY=1\n" };
        // A newline would begin another assignment.
        self.tell(&format!("{first}STATUS={}", status.replace('\n', " ")));
        if let Some(file) = &self.ready_file {
            // A leader must not fall over it.
            if let Err(error) = replace(file, text) {
                self.console.warn(format!("cannot write the ready file {}: {error}", file.display()));
            }
        }
    }

    fn tell(&self, message: &str) {
        let Some(manager) = &self.manager else { return };
        // A manager that does not listen, or not fast enough, must not hold us up.
        let _ = (|| {
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            socket.send_to_addr(message.as_bytes(), manager)
        })();
    }
}

/// A path, or `@` and an abstract name.
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes().split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name),
        Some((b'/', _)) => SocketAddr::from_pathname(name),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// All of it or what was there before: readers never see half a word.
fn replace(file: &Path, text: &str) -> io::Result<()> {
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
    use super::*;
    use std::os::unix::fs::symlink;

    /// A folder of its own, which goes with the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let folder = env::temp_dir().join(format!("incumbent-announce-{name}-{}", std::process::id()));
            fs::create_dir(&folder).unwrap();
            Folder(folder)
        }

        fn names(&self) -> Vec<String> {
            let names = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name());
            let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_ready_file_is_replaced_whole_and_leaves_nothing_else() {
        let folder = Folder::new("whole");
        let ready = folder.0.join("ready");
        replace(&ready, "following\n").unwrap();
        replace(&ready, "leading 7\n").unwrap();
        assert_eq!(fs::read_to_string(&ready).unwrap(), "leading 7\n");
        assert_eq!(folder.names(), ["ready"]);
        fs::create_dir(folder.0.join("taken")).unwrap();
        replace(&folder.0.join("taken"), "x").unwrap_err();
        assert_eq!(folder.names(), ["ready", "taken"], "what could not be put in place is gone");
    }

    #[test]
    fn what_others_planted_beside_the_ready_file_is_not_written_to() {
        let folder = Folder::new("planted");
        let (ready, precious) = (folder.0.join("ready"), folder.0.join("precious"));
        fs::write(&precious, "precious").unwrap();
        for suffix in [std::process::id().to_string(), "guessed".into()] {
            symlink(&precious, folder.0.join(format!("ready.{suffix}"))).unwrap();
        }
        let refused = replace_by_way_of("guessed", &ready, "leading 1\n").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        replace(&ready, "leading 1\n").unwrap();
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
        assert!(fs::symlink_metadata(&ready).unwrap().is_file());
    }
}
