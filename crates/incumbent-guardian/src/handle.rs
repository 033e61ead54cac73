//! The supervisor's handle on its guardian.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use incumbent_core::Timestamp;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, set_child_subreaper};
use rustix::stdio::stdin;
use tokio::sync::mpsc;

use crate::channel::{Channel, Received};
use crate::clock::Timer;
use crate::spec::{CommandSpec, Exit, NotStarted};
use crate::watch::{Link, Watch};
use crate::wire::{Order, Report};
use crate::{entry, orphans, terminal};

/// How long a new guardian may take to answer.
const START_PATIENCE_S: i64 = 10;
/// The events of one run and the guardian's death are six; the rest is room.
const EVENTS: usize = 8;

/// The last word of a guardian that has left nothing behind: see [`Guardian::sign_off`].
pub const STOPPED: &[u8] = b"stopped\n";

/// What the guardian reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The command runs.
    Started {
        /// Its process.
        pid: i32,
    },
    /// The command could not be started. [`Empty`](Event::Empty) follows.
    NotStarted(NotStarted),
    /// The command's own process has ended. What it left behind is being stopped;
    /// [`Empty`](Event::Empty) follows.
    CommandExited(Exit),
    /// The command's own process has ended, and so many that it has started have not: they are
    /// being stopped.
    LeftBehind {
        /// How many were found.
        processes: u64,
    },
    /// No descendant of the command is left: the office may be given up, or the next command
    /// started.
    Empty,
    /// The guardian is dead. If a command was running, it and its descendants have been killed, and
    /// [`Empty`](Event::Empty) follows. This handle is of no more use; start another guardian.
    GuardianDied,
}

/// Why there is no guardian.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The system refused something.
    #[error("the guardian cannot be started: {0}")]
    Io(#[from] io::Error),
    /// It ended at once. It has said why on standard error; or `main` does not begin with
    /// [`main_if_guardian`](crate::main_if_guardian).
    #[error("the guardian ended as soon as it was started")]
    Ended,
    /// It does not answer.
    #[error("the guardian was started but did not answer")]
    Silent,
    /// Processes that have to be stopped could not be found, and the guardian itself is started
    /// from there.
    #[error("/proc is not there, and no command can be guarded without it: mount it (`mount -t proc proc /proc`)")]
    NoProc,
}

/// Why an order was not given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OrderError {
    /// The guardian is dead: an event says so, too.
    #[error("the guardian is dead")]
    Dead,
    /// Something of the command before is left; wait for [`Event::Empty`].
    #[error("processes of the previous command are still running")]
    Busy,
    /// There is no such signal.
    #[error("there is no signal {0}")]
    NoSuchSignal(i32),
    /// The guardian does not listen. The deadline that it knows stays in force; if it is stopped,
    /// it is woken or replaced by killing.
    #[error("the guardian does not listen")]
    Deaf,
    /// The system refused something.
    #[error("the guardian cannot be reached: {0}")]
    Io(#[source] io::Error),
}

/// A guardian process, and through it at most one command at a time.
///
/// Orders never wait. Dropping the handle kills the command and its descendants, and ends the
/// guardian. It does not wait for that either, unless the thread panics: what is dropped after the
/// handle may be the office.
///
/// When a guardian dies, its orphans become this process's children. They are distinguished from
/// this process's own children by their process group: whatever else this process starts should
/// stay in its own group, where it is by default. Should the code that tells them apart panic, all
/// children but other guardians are killed.
#[derive(Debug)]
pub struct Guardian {
    link: Arc<Link>,
    events: mpsc::Receiver<Event>,
    pid: i32,
    /// `None` only while this is dropped.
    watch: Option<JoinHandle<()>>,
    /// A command was started and its [`Event::Empty`] was not taken yet.
    in_use: bool,
}

impl Guardian {
    /// Starts a guardian. It takes some milliseconds, during which the calling thread waits; no
    /// runtime is needed.
    ///
    /// This process becomes a child subreaper, so that a dead guardian's orphans come to it.
    pub fn start() -> Result<Guardian, StartError> {
        if !entry::can_start_again() {
            return Err(StartError::NoProc);
        }
        set_child_subreaper(Some(getpid())).map_err(io::Error::from)?;
        let shared_session = terminal::is_ours();
        let (channel, theirs) = Channel::pair().map_err(io::Error::from)?;
        let mut child = entry::guardian().stdin(theirs).spawn()?;
        let pid = Pid::from_child(&child);
        let greeted = (|| {
            let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(io::Error::from)?;
            let hello = Order::Hello { terminal: shared_session }.encode();
            channel.send(&hello, Some(stdin())).map_err(io::Error::from)?;
            await_greeting(&channel)?;
            Ok((pidfd, Timer::new().map_err(io::Error::from)?, Arc::new(Link::new(channel).map_err(io::Error::from)?)))
        })();
        let (pidfd, timer, link) = match greeted {
            Ok(greeted) => greeted,
            Err(error) => {
                // Not yet trusted with anything. Both fail only if it has ended by itself.
                let _ = child.kill();
                let _ = child.wait();
                return Err(error);
            }
        };
        orphans::register(pid);
        let (sender, events) = mpsc::channel(EVENTS);
        let watch = Watch { link: Arc::clone(&link), child, pidfd, timer, events: sender, shared_session };
        // Without the thread, the guardian still sees the channel's end when this returns, and
        // ends.
        let watch = thread::Builder::new().name("guardian-watch".into()).spawn(move || watch.run())?;
        Ok(Guardian { link, events, pid: pid.as_raw_pid(), watch: Some(watch), in_use: false })
    }

    /// The guardian's process.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Starts a command that must be gone by the deadline (on the boot-time clock). Killing begins
    /// [`HEAD_START`](crate::HEAD_START) before it; a command whose time has come before it could
    /// be started is [`Event::NotStarted`].
    ///
    /// Refused while anything of the command before is left, that is, until [`Event::Empty`] was
    /// taken. It gets the terminal if this process has it, unless it is
    /// [quiet](CommandSpec::quiet).
    pub fn spawn(&mut self, spec: &CommandSpec, deadline: Timestamp) -> Result<(), OrderError> {
        if self.in_use {
            return Err(OrderError::Busy);
        }
        let foreground = !spec.quiet && terminal::is_in_foreground();
        self.order(&Order::Spawn { spec: spec.clone(), deadline, foreground })?;
        self.in_use = true;
        Ok(())
    }

    /// The command may live until then. A deadline that comes after the last one has passed changes
    /// nothing any more.
    pub fn set_deadline(&self, deadline: Timestamp) -> Result<(), OrderError> {
        self.order(&Order::Deadline(deadline))
    }

    /// SIGTERM to the command and all its descendants; SIGKILL to those that are left after the
    /// grace.
    pub fn terminate(&self, grace: Duration) -> Result<(), OrderError> {
        self.order(&Order::Terminate { grace })
    }

    /// SIGKILL to the command and all its descendants.
    pub fn kill(&self) -> Result<(), OrderError> {
        self.order(&Order::Kill)
    }

    /// Passes a signal on to the command's own process.
    pub fn signal(&self, signal: i32) -> Result<(), OrderError> {
        Signal::from_named_raw(signal).ok_or(OrderError::NoSuchSignal(signal))?;
        self.order(&Order::Signal(signal))
    }

    /// Gives the guardian a copy of a descriptor, to keep open until [`let_go`](Guardian::let_go)
    /// or until it ends, which is after the last descendant's end: for a lock that stands for the
    /// office. At most 64; more are not kept.
    ///
    /// Commands that are started from then on inherit a copy, too, and so does what they start,
    /// unless it closes what it was not told of: should supervisor and guardian both be killed,
    /// such a process keeps the lock until it ends.
    pub fn hold(&self, descriptor: BorrowedFd<'_>) -> Result<(), OrderError> {
        self.link.send(&Order::Hold, Some(descriptor)).map_err(|errno| self.refusal(errno))
    }

    /// Closes the guardian's copies.
    pub fn let_go(&self) -> Result<(), OrderError> {
        self.order(&Order::LetGo)
    }

    /// Gives the guardian a copy of a descriptor, in which it writes [`STOPPED`] as its last act,
    /// once it has to end and the kernel says that no descendant is left. So somebody who comes
    /// when both processes are gone can tell a guardian that has done its work from one that was
    /// killed, which writes nothing; nor does one of ours that has panicked.
    pub fn sign_off(&self, descriptor: BorrowedFd<'_>) -> Result<(), OrderError> {
        self.link.send(&Order::SignOff, Some(descriptor)).map_err(|errno| self.refusal(errno))
    }

    /// Whether the command that was started last had the terminal: what is typed there, Ctrl-C for
    /// one, went to it and not to us.
    pub fn lent_terminal(&self) -> bool {
        self.link.lent_terminal()
    }

    /// Ends the guardian, and with it whatever is left of a command, and waits until it is gone and
    /// no zombie is left of it.
    pub async fn end(mut self) {
        self.link.finish();
        // The thread that watches it has the other end, and lets go of it when it has waited for
        // the guardian's process.
        while self.events.recv().await.is_some() {}
    }

    /// The next event; `None` after [`Event::GuardianDied`] and what follows it. Dropping the
    /// future loses no event.
    pub async fn event(&mut self) -> Option<Event> {
        let event = self.events.recv().await;
        if matches!(event, Some(Event::Empty) | None) {
            self.in_use = false;
        }
        event
    }

    fn order(&self, order: &Order) -> Result<(), OrderError> {
        self.link.send(order, None).map_err(|errno| self.refusal(errno))
    }

    fn refusal(&self, errno: rustix::io::Errno) -> OrderError {
        use rustix::io::Errno;
        match errno {
            Errno::AGAIN => OrderError::Deaf,
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => OrderError::Dead,
            _ if self.link.is_gone() => OrderError::Dead,
            _ => OrderError::Io(errno.into()),
        }
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        self.link.finish();
        // The last event is not awaited any more. The thread needs nothing that this one has.
        if thread::panicking() {
            let _ = self.watch.take().map(JoinHandle::join);
        }
    }
}

fn await_greeting(channel: &Channel) -> Result<(), StartError> {
    let patience = rustix::time::Timespec { tv_sec: START_PATIENCE_S, tv_nsec: 0 };
    let mut ready = [PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::IN)];
    if rustix::io::retry_on_intr(|| poll(&mut ready, Some(&patience))).map_err(io::Error::from)? == 0 {
        return Err(StartError::Silent);
    }
    match channel.receive().map_err(io::Error::from)? {
        Received::Frame(frame, _) if Report::decode(&frame) == Ok(Report::Heard(1)) => Ok(()),
        _ => Err(StartError::Ended),
    }
}
