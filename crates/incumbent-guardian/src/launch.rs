//! The last steps before a program: the process that becomes the command sets itself up, then
//! executes it.
//!
//! It is a role of our own executable, since a safe program can run nothing between fork and exec.
//! Standard input is the channel to the guardian until the real one has come through it, after the
//! descriptors that the program is to keep open; the channel's end without a word means that the
//! program runs.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, IntoRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio, exit};

use nix::sys::signal::SigSet;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::FdFlags;
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};
use rustix::stdio::{dup2_stdin, stdin};

use crate::channel::{Channel, Received};
use crate::spec::{CommandSpec, NotStarted, Step};
use crate::wire::Report;
use crate::{entry, terminal};

/// What a descriptor that comes through the channel is for: to be kept open by the program, or its
/// standard input, which comes last.
const KEEP: &[u8] = b"keep";
const STDIN: &[u8] = b"stdin";

/// The lowest number of a descriptor that the program keeps: those below are the ones that scripts
/// and service managers count on.
const FIRST_KEPT: i32 = 10;

/// A process on its way to become the command.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) pid: Pid,
    pub(crate) channel: Channel,
}

impl Launch {
    /// Starts a process in a process group of its own that will become the command, and inherits
    /// copies of these descriptors.
    pub(crate) fn start(spec: &CommandSpec, foreground: bool, kept: &[OwnedFd]) -> Result<Launch, NotStarted> {
        let failed = |error: io::Error| {
            // A NUL byte in an argument has no number of its own.
            let errno = error.raw_os_error().unwrap_or(rustix::io::Errno::INVAL.raw_os_error());
            // It has the same arguments and environment as the program: what is too long for it is
            // too long for that.
            let too_long = errno == rustix::io::Errno::TOOBIG.raw_os_error();
            NotStarted { step: if too_long { Step::Program } else { Step::Process }, errno }
        };
        let (channel, theirs) = Channel::pair().map_err(|error| failed(error.into()))?;
        let nothing = spec.quiet.then(|| File::open("/dev/null")).transpose().map_err(failed)?;
        let mut command = entry::launcher();
        command.arg(getpid().as_raw_pid().to_string()).arg(if foreground { "foreground" } else { "background" });
        command.arg(spec.cwd.as_deref().unwrap_or(Path::new("")));
        command.args(&spec.argv).envs(spec.env.iter().map(|(name, value)| (name, value)));
        for name in &spec.env_removed {
            command.env_remove(name);
        }
        if spec.quiet {
            command.stdout(Stdio::null());
        }
        let child = command.process_group(0).stdin(theirs).spawn().map_err(failed)?;
        // If it is gone already, then its exit says so.
        for descriptor in kept {
            let _ = channel.send(KEEP, Some(descriptor.as_fd()));
        }
        let input = match &nothing {
            Some(nothing) => nothing.as_fd(),
            None => stdin(),
        };
        let _ = channel.send(STDIN, Some(input));
        Ok(Launch { pid: Pid::from_child(&child), channel })
    }

    /// What became of it: `None` while it is not known. To be asked when the channel is readable.
    pub(crate) fn outcome(&self) -> Option<Result<(), NotStarted>> {
        match self.channel.receive() {
            Ok(Received::Nothing) => None,
            Ok(Received::Frame(frame, _)) => match Report::decode(&frame) {
                Ok(Report::NotStarted(reason)) => Some(Err(reason)),
                _ => Some(Ok(())),
            },
            Ok(Received::End) | Err(_) => Some(Ok(())),
        }
    }
}

/// Runs as the launcher: becomes the command, or reports why it cannot.
pub(crate) fn main(mut args: impl Iterator<Item = OsString>) -> ! {
    let mut next = || args.next().unwrap_or_default();
    let (parent, place, cwd) = (next(), next(), next());
    let argv: Vec<OsString> = args.collect();
    let Ok(channel) = Channel::from_stdin() else {
        eprintln!("this is a part of the guardian, which only a guardian can start");
        exit(2)
    };
    let failed = match prepare(&channel, &parent, &place, &cwd) {
        Ok(()) => execute(&argv),
        Err(failed) => failed,
    };
    // It fails if the guardian is gone, and then it does not matter.
    let _ = channel.send(&Report::NotStarted(failed).encode(), None);
    exit(failed.code())
}

fn prepare(channel: &Channel, parent: &OsStr, place: &OsStr, cwd: &OsStr) -> Result<(), NotStarted> {
    let failed = |step: Step| move |errno: rustix::io::Errno| NotStarted { step, errno: errno.raw_os_error() };
    dup2_stdin(receive_stdin(channel).map_err(failed(Step::Process))?).map_err(failed(Step::Process))?;
    // The kernel kills this process the moment the guardian dies. Set first, asked after: a
    // guardian that died before is not missed.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed(Step::Process))?;
    let guardian = parent.to_str().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
    if getppid() != guardian {
        exit(1);
    }
    if place == "foreground" {
        terminal::give_to(getpid());
    }
    if !cwd.is_empty() {
        let errno =
            |error: io::Error| NotStarted { step: Step::Directory, errno: error.raw_os_error().unwrap_or_default() };
        env::set_current_dir(cwd).map_err(errno)?;
    }
    Ok(())
}

fn receive_stdin(channel: &Channel) -> rustix::io::Result<OwnedFd> {
    loop {
        match channel.receive()? {
            Received::Frame(purpose, Some(descriptor)) if purpose == KEEP => keep(&descriptor),
            Received::Frame(_, Some(descriptor)) => return Ok(descriptor),
            Received::Frame(_, None) => return Err(rustix::io::Errno::BADMSG),
            // The guardian died: so does this.
            Received::End => exit(1),
            Received::Nothing => {
                rustix::io::retry_on_intr(|| {
                    poll(&mut [PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::IN)], None)
                })?;
            }
        }
    }
}

/// A copy stays open in the program and in all that it starts, until they close it.
fn keep(descriptor: &OwnedFd) {
    // Without a number to spare it is not kept: the guardian's own copy is what is counted on.
    if let Ok(kept) = rustix::io::fcntl_dupfd_cloexec(descriptor, FIRST_KEPT)
        && rustix::io::fcntl_setfd(&kept, FdFlags::empty()).is_ok()
    {
        // It ends with this process or with the program that this becomes.
        let _ = kept.into_raw_fd();
    }
}

/// Returns only if it fails.
fn execute(argv: &[OsString]) -> NotStarted {
    let Some((program, args)) = argv.split_first() else {
        return NotStarted { step: Step::Program, errno: rustix::io::Errno::NOENT.raw_os_error() };
    };
    // The guardian blocks every signal, and a mask is inherited.
    if let Err(errno) = SigSet::empty().thread_set_mask() {
        return NotStarted { step: Step::Process, errno: errno as i32 };
    }
    let error = Command::new(program).args(args).exec();
    NotStarted { step: Step::Program, errno: error.raw_os_error().unwrap_or(rustix::io::Errno::INVAL.raw_os_error()) }
}
