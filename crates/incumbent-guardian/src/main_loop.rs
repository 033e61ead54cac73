//! The guardian process: one thread that waits for orders, the clock, and its children, and kills
//! when it is time.
//!
//! It knows nothing of elections. Each of these is enough for it to begin killing: the timer, the
//! end of the channel, and the supervisor's pidfd.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::exit;
use std::time::Duration;

use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, getppid, pidfd_open, set_child_subreaper, set_parent_process_death_signal,
    setpgid, setsid,
};

use crate::channel::{Channel, Received};
use crate::clock::{Timer, now};
use crate::command_run::CommandRun;
use crate::handle::STOPPED;
use crate::panic::{Mode, run_to_completion};
use crate::tree::Process;
use crate::wire::{Order, Report};
use crate::{entry, fault, kill_tree, process_ids};

/// Orders taken in one turn, so that a flood of them cannot keep the guardian from its clock.
const ORDERS_PER_TURN: usize = 64;
/// Descriptors kept for the supervisor.
const MAX_HELD: usize = 64;
/// How long the supervisor may take to say hello.
const FIRST_ORDER: Duration = Duration::from_secs(10);

/// Runs as the guardian.
pub(crate) fn main() -> ! {
    let Ok(channel) = Channel::from_stdin() else {
        eprintln!("this is the guardian, which only its supervisor can start");
        exit(2)
    };
    match MainLoop::enter(channel) {
        Ok(mut main_loop) => {
            run_to_completion(|mode| match mode {
                Mode::Normal => main_loop.run(),
                Mode::Fallback => main_loop.abandon(),
            });
            exit(0)
        }
        Err(error) => {
            eprintln!("guardian: {error}");
            exit(1)
        }
    }
}

struct MainLoop {
    channel: Channel,
    signals: SignalFd,
    timer: Timer,
    supervisor: OwnedFd,
    /// The supervisor's process group: the terminal's home.
    home: Option<Pid>,
    orders_heard: u64,
    /// What a supervisor that does not read must still learn once it goes on. At most the reports
    /// of one run.
    unsent: VecDeque<Report>,
    held: Vec<OwnedFd>,
    /// Where to say at the end that nothing is left.
    last_word: Option<File>,
    command_run: Option<CommandRun>,
    /// The supervisor is gone: end with the last descendant.
    leaving: bool,
}

impl MainLoop {
    fn enter(channel: Channel) -> std::io::Result<MainLoop> {
        // From here on, no signal but KILL and STOP does anything: a signal to a whole group,
        // session or control group is meant for the command, and the supervisor passes it on.
        entry::take_signals()?;
        // The name that `ps` and `pkill` see. Only for people: failing is no harm.
        let _ = rustix::thread::set_name(c"guardian");
        set_child_subreaper(Some(getpid()))?;
        // If the supervisor dies while this process is stopped, the kernel wakes it: a guardian
        // that stays stopped would let the command outlive the supervisor. Blocked as it is, the
        // signal does nothing else. It also comes when the thread that started us ends, and does no
        // harm.
        set_parent_process_death_signal(Some(Signal::CONT))?;
        let parent = getppid().ok_or(io::Errno::SRCH)?;
        let supervisor = pidfd_open(parent, PidfdFlags::empty())?;
        // Opened after a death and a reuse of the number, it would name another process: that the
        // parent is still the same rules that out.
        if getppid() != Some(parent) {
            return Err(io::Errno::SRCH.into());
        }
        if !matches!(Process::read(getpid()), Ok(Some(found)) if found.parent == Some(parent)) {
            return Err(std::io::Error::other(
                "/proc does not show this process: it must be mounted for its namespace",
            ));
        }
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let mut main_loop = MainLoop {
            channel,
            signals: SignalFd::with_flags(&SigSet::all(), flags)?,
            timer: Timer::new()?,
            supervisor,
            home: process_ids::group_of(parent),
            orders_heard: 0,
            unsent: VecDeque::new(),
            held: Vec::new(),
            last_word: None,
            command_run: None,
            leaving: false,
        };
        main_loop.greet()?;
        Ok(main_loop)
    }

    /// Waits for the first order, and settles in a session of our own, out of reach of the
    /// terminal's signals; or only in a process group of our own, where the command needs the
    /// terminal.
    fn greet(&mut self) -> std::io::Result<()> {
        self.timer.set(Some(now() + FIRST_ORDER))?;
        let (frame, descriptor) = loop {
            match self.channel.receive()? {
                Received::Frame(frame, descriptor) => break (frame, descriptor),
                Received::End => exit(0),
                Received::Nothing if self.rung() => return Err(io::Errno::TIMEDOUT.into()),
                Received::Nothing => self.wait()?,
            }
        };
        let (Ok(Order::Hello { terminal }), Some(stdin)) = (Order::decode(&frame), descriptor) else {
            return Err(io::Errno::BADMSG.into());
        };
        rustix::stdio::dup2_stdin(stdin)?;
        if terminal {
            setpgid(None, None)?
        } else {
            setsid().map(drop)?
        }
        self.orders_heard = 1;
        self.report(Report::Heard(1));
        Ok(())
    }

    /// Until the supervisor is gone, and with it the last descendant.
    fn run(&mut self) {
        loop {
            fault::point("main_loop");
            self.take_orders();
            self.send_unsent();
            if let Some(command_run) = &mut self.command_run {
                let reports = command_run.advance(now(), self.home);
                let ended = reports.contains(&Report::Empty);
                if ended {
                    self.command_run = None;
                }
                reports.into_iter().for_each(|report| self.report(report));
            }
            if self.leaving && self.command_run.is_none() {
                return self.sign_off();
            }
            let alarm = self.command_run.as_ref().and_then(CommandRun::next_alarm);
            // Neither can fail with descriptors of our own; if they do, killing all is the one safe
            // thing left.
            if self.timer.set(alarm).and_then(|()| self.wait()).is_err() {
                self.leave();
            }
            // Only the wake-up matters: what it was is found out by asking.
            while let Ok(Some(_)) = self.signals.read_signal() {}
        }
    }

    /// The kernel has said that no descendant is left, and none will come. It is read later, when
    /// supervisor and guardian are gone. A word that cannot be written is none.
    fn sign_off(&mut self) {
        if let Some(last_word) = &mut self.last_word {
            let _ = last_word.write_all(STOPPED);
        }
    }

    /// After a panic no state of this value is trusted any more. Held descriptors stay open until
    /// no descendant is left.
    fn abandon(&self) {
        // A living supervisor sees it, and kills in the guardian's place if this takes long.
        self.channel.hang_up();
        kill_tree::kill_all_below_us();
    }

    /// Waits for anything to happen. Spurious returns do no harm.
    fn wait(&self) -> io::Result<()> {
        let launch = self.command_run.as_ref().and_then(CommandRun::launching);
        let sources = [Some(self.timer.as_fd()), Some(self.signals.as_fd()), launch];
        let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut ready: Vec<PollFd<'_>> = sources.into_iter().flatten().map(readable).collect();
        // Once the supervisor is gone, both would be ready for ever.
        if !self.leaving {
            let full = if self.unsent.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            ready.push(PollFd::from_borrowed_fd(self.channel.as_fd(), PollFlags::IN | full));
            ready.push(readable(self.supervisor.as_fd()));
        }
        io::retry_on_intr(|| poll(&mut ready, None)).map(drop)
    }

    fn rung(&self) -> bool {
        let nothing = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.timer, PollFlags::IN)], Some(&nothing)).is_ok_and(|ready| ready > 0)
    }

    fn take_orders(&mut self) {
        let before = self.orders_heard;
        for _ in 0..ORDERS_PER_TURN {
            if self.leaving {
                return;
            }
            match self.channel.receive() {
                Ok(Received::Nothing) => break,
                Ok(Received::Frame(frame, descriptor)) => match read_order(&frame, descriptor) {
                    Some((order, descriptor)) => self.obey(order, descriptor),
                    None => self.leave(),
                },
                Ok(Received::End) | Err(_) => self.leave(),
            }
        }
        if self.orders_heard > before {
            self.report(Report::Heard(self.orders_heard));
        }
        if self.supervisor_is_dead() {
            self.leave();
        }
    }

    /// A socket ends when its last holder closes it; the process itself is what counts.
    fn supervisor_is_dead(&self) -> bool {
        let nothing = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.supervisor, PollFlags::IN)], Some(&nothing)).is_ok_and(|ready| ready > 0)
    }

    fn obey(&mut self, order: Order, descriptor: Option<OwnedFd>) {
        self.orders_heard += 1;
        let command_run = self.command_run.as_mut();
        match order {
            Order::Spawn { spec, deadline, foreground } => {
                // The supervisor's side refuses this already; two commands at once are what must
                // never be.
                if command_run.is_some() {
                    return self.leave();
                }
                match CommandRun::start(&spec, deadline, foreground, &self.held) {
                    Ok(command_run) => self.command_run = Some(command_run),
                    Err(reason) => {
                        self.report(Report::NotStarted(reason));
                        self.report(Report::Empty);
                    }
                }
            }
            Order::Deadline(deadline) => command_run.into_iter().for_each(|it| it.set_deadline(deadline)),
            Order::Terminate { grace } => command_run.into_iter().for_each(|it| it.terminate(now() + grace)),
            Order::Kill => command_run.into_iter().for_each(CommandRun::kill),
            Order::Signal(signal) => {
                if let (Some(command_run), Some(signal)) = (command_run, Signal::from_named_raw(signal)) {
                    command_run.signal(signal);
                }
            }
            Order::Hold => self.held.extend(descriptor.filter(|_| self.held.len() < MAX_HELD)),
            Order::LetGo => self.held.clear(),
            Order::SignOff => self.last_word = descriptor.map(File::from),
            // One is said once, and the other was opened before it came here.
            Order::Hello { .. } | Order::InFile => self.leave(),
        }
    }

    fn leave(&mut self) {
        self.leaving = true;
        if let Some(command_run) = &mut self.command_run {
            command_run.kill();
        }
    }

    /// A supervisor that is stopped reads nothing, and the socket fills: what happened is kept for
    /// later, the rest is not worth it.
    fn report(&mut self, report: Report) {
        self.send_unsent();
        let full = !self.unsent.is_empty() || self.channel.send(&report.encode(), None) == Err(io::Errno::AGAIN);
        if full && !matches!(report, Report::Heard(_) | Report::Killing) {
            self.unsent.push_back(report);
        }
    }

    fn send_unsent(&mut self) {
        while let Some(report) = self.unsent.front() {
            if self.channel.send(&report.encode(), None) == Err(io::Errno::AGAIN) {
                return;
            }
            self.unsent.pop_front();
        }
    }
}

/// `None`: the frame is malformed.
fn read_order(frame: &[u8], descriptor: Option<OwnedFd>) -> Option<(Order, Option<OwnedFd>)> {
    match (Order::decode(frame).ok()?, descriptor) {
        (Order::InFile, Some(file)) => {
            let mut bytes = Vec::new();
            let mut file = File::from(file);
            // Writing has left it at its end.
            file.rewind().and_then(|()| file.read_to_end(&mut bytes)).ok()?;
            Some((Order::decode(&bytes).ok()?, None))
        }
        (order, descriptor) => Some((order, descriptor)),
    }
}
