//! The supervisor's side of the watch: a thread that reads the guardian's reports, and kills in its
//! place when it does not answer.
//!
//! A thread and not a task: a busy runtime must not delay the last line of defence.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use incumbent_core::Timestamp;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, pidfd_send_signal};
use tokio::sync::mpsc;

use crate::channel::{Channel, Received};
use crate::clock::{Timer, kill_at, now};
use crate::handle::Event;
use crate::orphans::Spared;
use crate::panic::{Mode, run_to_completion};
use crate::wire::{MAX_FRAME, Order, Report};
use crate::{fault, kill_tree, orphans, process_ids, terminal, tree};

/// How long the guardian may be silent about an order.
const HEARING_PATIENCE: Duration = Duration::from_secs(1);
/// How long the guardian may be silent when it should be killing.
const KILLING_PATIENCE: Duration = Duration::from_millis(250);
/// Time between two rounds of killing in the guardian's place.
const ROUND_PAUSE: Duration = Duration::from_millis(20);

/// What the handle and the watching thread share.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) channel: Channel,
    /// Written to when the state has changed.
    wake: OwnedFd,
    state: Mutex<State>,
}

/// What the guardian was told and what it said.
#[derive(Debug, Default)]
struct State {
    sent: u64,
    heard: u64,
    /// When the guardian last said anything.
    heard_at: Timestamp,
    /// When the oldest order was sent that it has not answered; or when it was last nudged.
    unheard_since: Timestamp,
    /// A command runs, as far as is known here.
    busy: bool,
    foreground: bool,
    /// When it must be gone.
    deadline: Timestamp,
    /// When an order to stop it should have had its effect.
    stop_by: Option<Timestamp>,
    /// The time has come and the guardian has not answered: the supervisor kills, too, until the
    /// guardian reports that no process is left. The number of the round.
    killing_round: Option<u32>,
    next_round: Timestamp,
    /// The handle was dropped.
    dropped: bool,
    /// The guardian is dead.
    gone: bool,
}

impl Link {
    pub(crate) fn new(channel: Channel) -> rustix::io::Result<Link> {
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let wake = rustix::event::eventfd(0, flags)?;
        let state = State { sent: 1, heard: 1, heard_at: now(), ..State::default() };
        Ok(Link { channel, wake, state: Mutex::new(state) })
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.state().gone
    }

    /// Sends an order, and remembers what must follow from it.
    pub(crate) fn send(&self, order: &Order, descriptor: Option<rustix::fd::BorrowedFd<'_>>) -> rustix::io::Result<()> {
        let mut state = self.state();
        let frame = order.encode();
        if frame.len() <= MAX_FRAME {
            self.channel.send(&frame, descriptor)?;
        } else {
            self.channel.send(&Order::InFile.encode(), Some(in_file(&frame)?.as_fd()))?;
        }
        let now = now();
        if state.sent == state.heard {
            state.unheard_since = now;
        }
        state.sent += 1;
        let stop_by = |state: &State, at: Timestamp| Some(state.stop_by.map_or(at, |before| before.min(at)));
        match order {
            Order::Spawn { deadline, foreground, .. } => {
                state.busy = true;
                state.foreground = *foreground;
                state.deadline = *deadline;
                state.stop_by = None;
                state.killing_round = None;
            }
            // What has begun is not taken back.
            Order::Deadline(deadline) if state.killing_round.is_none() => state.deadline = *deadline,
            Order::Terminate { grace } => state.stop_by = stop_by(&state, now + *grace + KILLING_PATIENCE),
            Order::Kill => state.stop_by = stop_by(&state, now + KILLING_PATIENCE),
            Order::Deadline(_)
            | Order::Hello { .. }
            | Order::Signal(_)
            | Order::Hold
            | Order::LetGo
            | Order::SignOff
            | Order::InFile => {}
        }
        drop(state);
        self.wake();
        Ok(())
    }

    pub(crate) fn lent_terminal(&self) -> bool {
        self.state().foreground
    }

    /// The handle is gone: the guardian has to kill everything and end.
    pub(crate) fn finish(&self) {
        let mut state = self.state();
        state.dropped = true;
        state.stop_by = Some(now() + KILLING_PATIENCE);
        drop(state);
        self.channel.finish();
        self.wake();
    }

    fn wake(&self) {
        // It fails only when it is full of wake-ups that were not read yet.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// When the guardian should have begun to kill, whatever it was told.
    fn end_by(&self) -> Timestamp {
        self.stop_by.unwrap_or(Timestamp::MAX).min(kill_at(self.deadline))
    }

    fn next_alarm(&self) -> Option<Timestamp> {
        let nudge = (self.sent > self.heard).then_some(self.unheard_since + HEARING_PATIENCE);
        let round = self.busy.then(|| if self.killing_round.is_some() { self.next_round } else { self.end_by() });
        nudge.into_iter().chain(round).min()
    }
}

/// The thread's own part.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) link: Arc<Link>,
    pub(crate) child: Child,
    pub(crate) pidfd: OwnedFd,
    pub(crate) timer: Timer,
    pub(crate) events: mpsc::Sender<Event>,
    /// The guardian is in our own session, for the terminal's sake.
    pub(crate) shared_session: bool,
}

impl Watch {
    pub(crate) fn run(mut self) {
        run_to_completion(|mode| match mode {
            Mode::Normal => self.watch(),
            // A guardian without a watch must not go on.
            Mode::Fallback => self.dismiss(),
        });
        run_to_completion(|mode| self.reap_guardian(mode));
    }

    /// Until the guardian is dead.
    fn watch(&mut self) {
        while !self.wait() {
            fault::point("watch");
            self.hear();
            self.act();
        }
    }

    /// Waits for something to happen. True if the guardian is dead.
    fn wait(&mut self) -> bool {
        let alarm = self.link.state().next_alarm();
        // It cannot fail with a timer of our own.
        let _ = self.timer.set(alarm);
        let wake = self.link.wake.as_fd();
        let sources = [self.pidfd.as_fd(), self.link.channel.as_fd(), wake, self.timer.as_fd()];
        let mut ready = sources.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let waited = rustix::io::retry_on_intr(|| poll(&mut ready, None));
        let dead = !ready[0].revents().is_empty();
        // The channel ends a moment before the process does; from then on only the process is worth
        // waiting for.
        if waited.is_ok() && !dead && ready[1].revents().intersects(PollFlags::HUP) {
            self.hear();
            self.dismiss();
        }
        let _ = rustix::io::read(wake, &mut [0; 8]);
        dead
    }

    /// Has the guardian kill everything and end. If that takes too long, it is killed, and the rest
    /// is left to the supervisor.
    fn dismiss(&self) {
        self.link.channel.hang_up();
        let mut death = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let patience = rustix::time::Timespec { tv_sec: 0, tv_nsec: KILLING_PATIENCE.as_nanos() as _ };
        if rustix::io::retry_on_intr(|| poll(&mut death, Some(&patience))) != Ok(1) {
            let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        }
    }

    fn hear(&self) {
        while let Ok(Received::Frame(frame, _)) = self.link.channel.receive() {
            let mut state = self.link.state();
            state.heard_at = now();
            let event = match Report::decode(&frame) {
                Ok(Report::Heard(orders)) => {
                    state.heard = orders;
                    state.unheard_since = state.heard_at;
                    None
                }
                Ok(Report::Started { pid }) => Some(Event::Started { pid }),
                Ok(Report::NotStarted(reason)) => Some(Event::NotStarted(reason)),
                Ok(Report::Exited(exit)) => Some(Event::CommandExited(exit)),
                Ok(Report::LeftBehind(processes)) => Some(Event::LeftBehind { processes }),
                Ok(Report::Lent) => {
                    state.foreground = true;
                    None
                }
                Ok(Report::Empty) => {
                    state.busy = false;
                    Some(Event::Empty)
                }
                Ok(Report::Killing) | Err(_) => None,
            };
            drop(state);
            event.into_iter().for_each(|event| self.tell(event));
        }
    }

    /// Does what the guardian should have done.
    fn act(&self) {
        let mut state = self.link.state();
        let now = now();
        if state.sent > state.heard && now >= state.unheard_since + HEARING_PATIENCE {
            // Most likely it was stopped.
            let _ = pidfd_send_signal(&self.pidfd, Signal::CONT);
            state.unheard_since = now;
        }
        let due = state.busy && now >= if state.killing_round.is_some() { state.next_round } else { state.end_by() };
        if !due {
            return;
        }
        let round = state.killing_round.map_or(0, |round| round.saturating_add(1));
        state.killing_round = Some(round);
        state.next_round = now + ROUND_PAUSE;
        let silent = now >= state.end_by().max(state.heard_at) + KILLING_PATIENCE;
        drop(state);
        // Processes that cannot be listed now can be in the next round.
        let found = tree::descendants(Pid::from_child(&self.child), |_| false);
        kill_tree::kill(&found.unwrap_or_default(), round);
        if silent {
            let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        }
    }

    /// The guardian is dead. Unless it ended by itself, there may be orphans, which are now
    /// children of this process.
    fn reap_guardian(&mut self, mode: Mode) {
        self.hear();
        let guardian = Pid::from_child(&self.child);
        // Dead already, or as good as: there is nothing to wait for but the kernel.
        let _ = self.child.wait();
        orphans::unregister(guardian);
        let mut state = self.link.state();
        let (busy, foreground) = (state.busy, state.foreground);
        state.gone = true;
        drop(state);
        if busy {
            orphans::sweep(match mode {
                Mode::Normal => Spared::OurOwn { shared_session: self.shared_session },
                Mode::Fallback => Spared::Guardians,
            });
            // A terminal is not worth another panic.
            if foreground && mode == Mode::Normal {
                process_ids::group().into_iter().for_each(terminal::give_to);
            }
        }
        self.tell(Event::GuardianDied);
        if busy {
            self.link.state().busy = false;
            self.tell(Event::Empty);
        }
    }

    /// The queue holds every event of one run, and the next run is not started before the last
    /// event was taken: there is always room.
    fn tell(&self, event: Event) {
        let told = self.events.try_send(event);
        debug_assert!(!matches!(told, Err(mpsc::error::TrySendError::Full(_))));
    }
}

/// A file in memory, without a name, with these bytes.
fn in_file(bytes: &[u8]) -> rustix::io::Result<File> {
    let mut file = File::from(memfd_create(c"order", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(file)
}
