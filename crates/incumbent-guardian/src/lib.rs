//! Keeps a command's processes from outliving the leadership that they run under.
//!
//! A leader whose work is a program (`incumbent run ... -- COMMAND`) must stop that program before
//! another candidate may take office, also when the leader's own process is stopped, starved or
//! killed. So the program is not its child. A small process with one thread, the *guardian*, stands
//! between them:
//!
//! ```text
//! supervisor (tokio, holds the office)  <-- socket, pidfd -->  guardian (one thread)  -->  COMMAND  -->  its children
//!   subreaper, watches the guardian from a thread of its own     subreaper, boot-time timer
//! ```
//!
//! * The supervisor sends each new deadline. If none comes in time, the guardian kills COMMAND and
//!   all its descendants on its own, from [`HEAD_START`] before the deadline on. It does the same
//!   when the socket ends (the supervisor died), and when ordered.
//! * The guardian is the *child subreaper* of everything that COMMAND starts: whatever forks twice,
//!   calls `setsid`, closes its descriptors or ignores SIGTERM is still found below it, and the
//!   kernel itself says when none is left ("no child").
//! * If the guardian is killed, its orphans become children of the supervisor, which kills them;
//!   COMMAND's own process is killed by the kernel at once (parent-death signal: sound here, as the
//!   guardian has one thread). If the guardian is stopped, the supervisor kills by itself when the
//!   time has come, first the descendants, then the guardian.
//! * A new COMMAND is started only when nothing is left of the one before: [`Event::Empty`] is the
//!   moment to give up the office.
//! * A panic in here, which is a mistake of ours, ends no watch. A guardian kills everything below
//!   it before it ends; the supervisor's thread has the guardian end, and kills what that has left,
//!   before it says [`Event::Empty`]. If even this panics, it is tried again and again, and nothing
//!   that stands for the office is let go meanwhile. A [`Guardian`] that is dropped by a panic of
//!   its owner waits until no process is left.
//! * Descriptors that stand for the office (a lock) can be given to the guardian
//!   ([`Guardian::hold`]): they stay open until the last descendant is gone, even if the supervisor
//!   is killed.
//! * A guardian that ends because its supervisor is gone can say so where others find it
//!   ([`Guardian::sign_off`]): nothing of its commands is left.
//!
//! # What remains
//! A fencing token is the answer to these; no process can be:
//! * Supervisor and guardian are both stopped (or the whole machine is): no process runs that could
//!   kill. If the supervisor dies then, the kernel wakes the guardian, which kills.
//! * Supervisor and guardian are both killed, or the supervisor is stopped and the guardian killed:
//!   COMMAND's own process dies with the guardian, its descendants do not. Those that have kept the
//!   inherited copy of the lock keep it from being free: the next leader waits until they end, or
//!   for its TTL. The guardian goes by another name than its supervisor, so that no kill by name
//!   finds both; one by executable file (`fuser -k`, `start-stop-daemon --exec`, `killall` with a
//!   path) does. As process 1 of a container, the end of [`main_if_guardian`]'s init ends the
//!   container, and so everything. A PID namespace for COMMAND would do the same anywhere, but
//!   COMMAND would see other process numbers than the rest of the host, and other users where it
//!   takes a user namespace. A control group does not help: see below.
//! * A program that is built so that a panic aborts, or whose panic hook ends it, is as good as
//!   killed by one.
//! * A process in uninterruptible sleep dies only when the kernel lets it. A descendant that
//!   changed its user cannot be killed by a guardian without privileges. In both cases
//!   [`Event::Empty`] does not come until they are gone.
//! * Work that COMMAND hands to another program (a service manager, a container daemon, `at`) is
//!   not among its descendants.
//! * A descendant that forks and exits forever, in a new session each time, can outrun the walk
//!   over `/proc`.
//!
//! # Why not `cgroup.kill`
//! It would be the better way for a guardian that lives to kill everything at once, forks included.
//! It is not used, since it takes a control group of our own to put COMMAND into: root, or a
//! delegated subtree in which this process is allowed to make one, which is what few cron jobs,
//! terminals and containers have. So the walk has to be there and right anyway, and a second way
//! that only some hosts take would be the one that nobody has tried when it is needed. Nor would it
//! help where the guardian cannot: a control group ends nobody by itself, the file has to be
//! written by a process that lives and runs. A service manager has such groups, and uses them
//! already: systemd kills what a service has left behind.
//!
//! # Use
//! The guardian is the same executable, started again: `main` begins with [`main_if_guardian`].
//!
//! ```no_run
//! use std::time::Duration;
//! use incumbent_guardian::{CommandSpec, Event, Guardian, main_if_guardian};
//! # fn deadline() -> incumbent_core::Timestamp { incumbent_core::Timestamp::MAX }
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     main_if_guardian();
//!     let mut guardian = Guardian::start()?;
//!     let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//!     runtime.block_on(async {
//!         guardian.spawn(&CommandSpec::new(["nightly", "--all"]), deadline())?;
//!         while let Some(event) = guardian.event().await {
//!             match event {
//!                 Event::CommandExited(exit) => println!("the command ended with {}", exit.code()),
//!                 Event::Empty => break, // now the office may be given up
//!                 _ => {}
//!             }
//!         }
//!         Ok(())
//!     })
//! }
//! ```
//!
//! Linux only: it needs `/proc`, pidfds (5.4) and boot-time timers.

mod channel;
mod clock;
mod command_run;
mod entry;
mod fault;
mod handle;
mod init;
mod kill_tree;
mod launch;
mod main_loop;
mod orphans;
mod panic;
mod process_ids;
mod spec;
mod terminal;
mod tree;
mod watch;
mod wire;

pub use clock::HEAD_START;
pub use entry::main_if_guardian;
pub use handle::{Event, Guardian, OrderError, STOPPED, StartError};
pub use spec::{CommandSpec, Exit, NotStarted, Step};
