//! Leader election over a directory: many processes, one host, no server.
//!
//! ```text
//! <directory>/incumbent        whose it is: written once
//!             high-water-mark/<n>   the one counter: nothing is ever drawn at or below the largest name
//!             sessions/<id>    one file per session, locked for as long as its process lives; with a heartbeat
//!             elections/<name> one directory per election in which somebody stands or something is noted
//!             evictions/ trash/    on their way out
//!             waiters/         for stores that wait without notifications from the kernel
//! ```
//!
//! - **A process that dies is replaced at once.** Its session is an open file with a lock, which
//!   the kernel releases however the process ends. The next in line is woken by the kernel, sees
//!   the free lock, and removes the dead one's entry in the same step in which it takes its place.
//! - **A process that is stopped is replaced after its TTL.** Its heartbeat stands still, its
//!   rivals see that, and one of them evicts it: in one step that fails if the heartbeat has moved
//!   after all. Heartbeats are read off the one boot-time clock of the host, so that several that
//!   stopped are evicted at the same time. (Containers with a boot id or a time namespace of their
//!   own are timed one after the other, as each comes to be directly ahead.)
//! - **A token never comes twice and never goes back**: not after a crash, not after a reboot, not
//!   when an election is removed and made again. Before a token is given to anyone, the high-water
//!   mark is on the disk.
//! - **Nobody holds up anybody.** No lock is held across a step; a process that is stopped or
//!   killed between any two system calls leaves a directory in which all others go on. See the
//!   module `sequence`.
//! - **A directory that is no longer at its path has no leader.** Before every answer one `stat`
//!   says whether the path still leads to the directory that is open. Moved, removed, replaced or
//!   unmounted: its leader loses office, and observers are told that the store cannot be read. Once
//!   there is a store at the path, all go on in it if it is the same one; if it is another,
//!   observers say so and go on, and candidates end with `StoreReplaced`. Where one above it was
//!   moved, or its file system lazily unmounted, the next renewal finds that; until then there may
//!   be a leader in each. See the module `root`.
//! - **Nothing is left** at the end but the identity and the high-water mark.
//!
//! # From the seam to the directory
//! | method | what is done |
//! | --- | --- |
//! | `open_session` | create, lock, then make visible in `sessions/` |
//! | `renew` | write a heartbeat into the session file, take back what rivals were about to evict, look at the entries |
//! | `enlist` | stage a small directory, reserve a number above the high-water mark and the line, `rename` it to `line/<n>`; n + 1 if taken |
//! | `standing` | while the one that we were behind lives: that one; else list `line/`, drop the dead, compare |
//! | `publish` | write the next of the entry's numbered records, if the last one is the one that was seen |
//! | `withdraw` | `rename` the entry away; with an heir, into the heir's entry, which fails if that is gone |
//! | `close` | remove the entries, unlock, remove the session file |
//! | `line` | list and read `line/` |
//! | `watch` | inotify on single entries and session files; without it a pidfd and a pipe into which the changing process writes |
//! | `set_office` | a new numbered record by `rename`: the highest counts |
//! | `elections` | list `elections/`, and read the first in line and the office record of each: those that say nothing are left out |
//! | `evict` | `rename` to a name that carries the version seen; the next heartbeat takes it back, else it is final |
//! | `identity`, `promises` | what the file `incumbent` said when the directory was opened |
//!
//! It does not matter whether two stores are opened on one directory in two processes or in one.
//!
//! A process that forks without exec gives its child the session's lock: as long as the child
//! lives, the parent's death is not seen at once, but after the TTL. Descriptors are closed on
//! exec.

mod directory;
mod disk;
mod election_dir;
mod election_path;
mod fault;
#[cfg(test)]
mod fuzz;
mod high_water_mark;
mod inotify;
mod office;
mod options;
mod owner;
mod record;
mod root;
mod sequence;
mod session;
mod store;
mod time;
mod wake_pipe;
mod watch;
mod workers;

#[cfg(feature = "fault-points")]
#[doc(hidden)]
pub use fault::start_fault_points;
pub use options::{FileOptions, Ttl};
pub use store::FileStore;
