//! How a store behaves.

/// How a [`FileStore`](crate::FileStore) behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FileOptions {
    /// Whether a process that is stopped, but not dead, loses its entries.
    pub ttl: Ttl,
    /// Opens a directory on a file system that is not known to be local, too: a network's, one in
    /// user space, a rare one. Only for those who know that its locks, renames and watches are
    /// those of one host.
    pub allow_network_fs: bool,
    /// Waits without the kernel's file notifications, as when the host has none left: deaths are
    /// still told by the kernel, everything else by the process that changes it.
    pub without_notifications: bool,
}

impl FileOptions {
    /// The usual behaviour.
    pub fn new() -> FileOptions {
        FileOptions::default()
    }

    /// See [`FileOptions::ttl`].
    pub fn ttl(self, ttl: Ttl) -> FileOptions {
        FileOptions { ttl, ..self }
    }

    /// See [`FileOptions::allow_network_fs`].
    pub fn allow_network_fs(self, allow: bool) -> FileOptions {
        FileOptions { allow_network_fs: allow, ..self }
    }

    /// See [`FileOptions::without_notifications`].
    pub fn without_notifications(self, without: bool) -> FileOptions {
        FileOptions { without_notifications: without, ..self }
    }
}

/// What the TTL of a session is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Ttl {
    /// Rivals evict a session's entries after that much silence: a stopped leader is replaced.
    #[default]
    OfSession,
    /// Rivals evict nobody who lives: a leader that is stopped (a debugger, SIGSTOP, a frozen
    /// cgroup) keeps its place for as long as it is stopped, and has no deadline. A dead one is
    /// replaced at once all the same.
    None,
}
