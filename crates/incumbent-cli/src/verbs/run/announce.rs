//! Tells the service manager, and readers of the ready file, whether this candidate follows or
//! leads.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;
use std::time::Duration;

use crate::output::Console;
use crate::whole_file::replace;

/// Followers are ready, too: they wait for their turn, which may never come.
pub(super) struct Announcer {
    manager: Option<SocketAddr>,
    ready_file: Option<PathBuf>,
    ready: bool,
    stopping: bool,
    console: Console,
}

impl Announcer {
    pub(super) fn new(ready_file: Option<PathBuf>, console: Console) -> Announcer {
        let manager = env::var_os("NOTIFY_SOCKET").and_then(|name| address(&name).ok());
        Announcer { manager, ready_file, ready: false, stopping: false, console }
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

    pub(super) fn unfit(&mut self) {
        self.announce("unfit, and not in line", "unfit\n");
    }

    /// We were asked to leave, and that may take so long: a manager that would be patient for less
    /// is to wait all the same.
    pub(super) fn stopping(&mut self, within: Duration) {
        let first = if std::mem::replace(&mut self.stopping, true) { "" } else { "STOPPING=1\n" };
        self.tell(&format!("{first}EXTEND_TIMEOUT_USEC={}", within.as_micros()));
    }

    /// Nothing is ready any more.
    pub(super) fn leave(&mut self) {
        if !std::mem::replace(&mut self.stopping, true) {
            self.tell("STOPPING=1");
        }
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
