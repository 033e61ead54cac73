//! One run of the command: from its start until none of its processes is left.

use std::future::pending;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::time::Duration;

use incumbent::store::{BootClock, Clock};
use incumbent::{Leadership, LeadershipLost, LossReason, Term, Timestamp, TransferRefused, Unfenced};
use incumbent_guardian::{CommandSpec, Event, Exit, Guardian, HEAD_START, NotStarted, OrderError, Step};
use rustix::process::Signal;

use super::announce::Announcer;
use super::signals::{Asked, Signals};
use crate::args::RunArgs;
use crate::claims;
use crate::duration::show;
use crate::failure::Failure;
use crate::heir;
use crate::output::Console;
use crate::store_url;

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The command ended before it was stopped.
    ByItself(Exit),
    /// It could not be started.
    NotStarted(NotStarted),
    /// It was stopped because the term is over, or about to be.
    Lost(LossReason),
    /// It was stopped because we were asked to leave; the exit code.
    Left(u8),
    /// The guardian was killed, and so the command was.
    GuardianDied,
}

/// What is needed for one run.
pub(super) struct CommandRun<'a> {
    pub(super) leadership: &'a Leadership<Unfenced>,
    pub(super) term: &'a Term<Unfenced>,
    pub(super) spec: &'a CommandSpec,
    /// As it was written, for messages.
    pub(super) program: &'a str,
    pub(super) grace: Duration,
    /// How long an heir is looked for before we leave.
    pub(super) leave_within: Duration,
    pub(super) console: &'a Console,
}

/// Why the command was not even ordered.
enum NotBegun {
    /// The guardian is dead: another one may do it.
    Dead,
    Failed(Failure),
}

impl From<OrderError> for NotBegun {
    fn from(error: OrderError) -> NotBegun {
        match error {
            OrderError::Dead => NotBegun::Dead,
            error => NotBegun::Failed(Failure::system("the command cannot be started", &error)),
        }
    }
}

/// A deadline that is told so shortly before the guardian begins to kill may reach it too late.
const SLACK: Duration = Duration::from_millis(50);
/// What a service manager is asked for beyond the times that were set: for the store, and for the
/// guardian to reap what it has killed.
const LEAVE_SLACK: Duration = Duration::from_secs(5);

/// The exit code that stands for SIGTERM.
const BY_TERM: u8 = 143;

/// The search for one who takes the office before we leave: the work has to stop for it, or there
/// is nobody.
type Search<'a> = Pin<Box<dyn Future<Output = Result<LeadershipLost, TransferRefused>> + 'a>>;

/// What is known so far.
#[derive(Default)]
struct Progress {
    /// What the guardian was told last.
    deadline: Timestamp,
    /// The guardian was told of no later deadline in time, because we were stopped or starved. It
    /// has begun to kill on its own: its report comes later.
    overdue: bool,
    exit: Option<Exit>,
    not_started: Option<NotStarted>,
    /// Set when we stop it, while it still ran.
    lost: Option<LossReason>,
    /// We were asked to leave, and an heir is looked for; the exit code.
    departing: Option<u8>,
    /// We were asked to leave, and the command is being stopped; the exit code.
    leave: Option<u8>,
    killed: bool,
    guardian_died: bool,
}

impl Progress {
    fn is_stopping(&self) -> bool {
        self.lost.is_some() || self.leave.is_some()
    }

    /// To be called before the guardian is told of another deadline, and when something has ended.
    fn notice_time(&mut self, now: Timestamp) {
        // A term that is over has no deadline: that says nothing about what the guardian did.
        self.overdue |= self.deadline != Timestamp::ZERO && now >= self.deadline - HEAD_START - SLACK;
    }

    /// The term is over or about to be. The first reason stays. Whether the command still has to be
    /// told.
    fn lose(&mut self, why: LossReason) -> bool {
        let running = !self.has_ended() && !self.is_stopping();
        self.leave = self.leave.or(self.departing.take());
        self.lost.get_or_insert(why);
        running
    }

    /// The command has ended. If the guardian killed it on its own: why the office is
    /// lost; `known` if the term knows.
    fn on_exit(&mut self, exit: Exit, now: Timestamp, known: Option<LossReason>) -> Option<LossReason> {
        self.exit = Some(exit);
        self.notice_time(now);
        let by_guardian = exit == Exit::Signal(Signal::KILL.as_raw()) && self.overdue && !self.is_stopping();
        self.lost = self.lost.or(by_guardian.then(|| known.unwrap_or(LossReason::LocalDeadline)));
        self.lost.filter(|_| by_guardian)
    }

    fn has_ended(&self) -> bool {
        self.exit.is_some() || self.not_started.is_some()
    }
}

impl CommandRun<'_> {
    /// Runs the command, and answers when none of its processes is left.
    pub(super) async fn run(
        &self,
        guardian: &mut Guardian,
        signals: &mut Signals,
        announcer: &mut Announcer,
    ) -> Result<Ended, Failure> {
        let mut search: Option<Search<'_>> = None;
        let mut course = Progress { deadline: self.term.deadline(), ..Progress::default() };
        match self.start(guardian, course.deadline) {
            Ok(()) => {}
            Err(NotBegun::Dead) => return Ok(Ended::GuardianDied),
            Err(NotBegun::Failed(failure)) => return Err(failure),
        }
        loop {
            tokio::select! {
                biased;
                event = guardian.event() => match event {
                    Some(Event::Empty) | None => break,
                    Some(event) => self.on_event(event, &mut course).await,
                },
                moved = self.term.deadline_after(course.deadline), if course.deadline != Timestamp::ZERO => {
                    self.heed(guardian, moved, &mut course).await;
                }
                lost = self.term.stopping(), if course.lost.is_none() => {
                    search = None;
                    self.on_stopping(guardian, lost.reason(), &mut course);
                }
                found = ended(&mut search) => {
                    search = None;
                    self.on_found(guardian, found, &mut course);
                }
                asked = signals.next() => match asked {
                    Asked::Leave(code) => self.on_leave(guardian, code, &mut course, &mut search, announcer),
                    Asked::PassOn(signal) => self.ordered(guardian.signal(signal)),
                },
            }
        }
        // Its copy of the lock is of no more use: there is nothing left that could outlive us.
        self.ordered(guardian.let_go());
        Ok(self.outcome(course))
    }

    fn start(&self, guardian: &mut Guardian, deadline: Timestamp) -> Result<(), NotBegun> {
        let lifeline = self
            .term
            .lifeline()
            .map_err(|error| NotBegun::Failed(Failure::system("cannot copy the session's lock", &error)))?;
        if let Some(lifeline) = lifeline {
            guardian.hold(lifeline.as_fd())?;
        }
        Ok(guardian.spawn(self.spec, deadline)?)
    }

    async fn on_event(&self, event: Event, course: &mut Progress) {
        match event {
            Event::CommandExited(exit) => {
                if let Some(why) = course.on_exit(exit, BootClock.now(), self.known_loss().await) {
                    self.console.note(format!("the command was killed: {why}"));
                }
            }
            Event::NotStarted(reason) => {
                self.console.failure(&Failure::error(format!("{} was not started: {reason}", self.program)));
                course.not_started = Some(reason);
                if reason.step == Step::Deadline {
                    course.lose(self.known_loss().await.unwrap_or(LossReason::LocalDeadline));
                }
            }
            Event::LeftBehind { processes } if processes > 0 && !course.is_stopping() => {
                let left = if processes == 1 { "one process".into() } else { format!("{processes} processes") };
                self.console.note(format!(
                    "{} exited and left {left} running, which will be stopped now: a command has to stay in the foreground",
                    self.program
                ));
            }
            Event::GuardianDied => course.guardian_died = true,
            _ => {}
        }
    }

    /// Another deadline, or none: then the term is over, and there is no grace either.
    async fn heed(&self, guardian: &Guardian, deadline: Timestamp, course: &mut Progress) {
        course.notice_time(BootClock.now());
        course.deadline = deadline;
        if deadline != Timestamp::ZERO {
            return self.ordered(guardian.set_deadline(deadline));
        }
        let why = self.known_loss().await.unwrap_or(LossReason::LocalDeadline);
        if course.lose(why) {
            self.console.note(format!("stopping the command: {why}"));
        }
        if !std::mem::replace(&mut course.killed, true) {
            self.ordered(guardian.kill());
        }
    }

    fn on_stopping(&self, guardian: &Guardian, why: LossReason, course: &mut Progress) {
        if course.lose(why) {
            self.console.note(format!("stopping the command: {why}"));
            self.ordered(guardian.terminate(self.grace));
        }
    }

    /// Why the term is over or about to be, if it is: the same answer whichever of the events is
    /// heard of first.
    async fn known_loss(&self) -> Option<LossReason> {
        tokio::select! {
            biased;
            lost = self.term.stopping() => Some(lost.reason()),
            () = std::future::ready(()) => None,
        }
    }

    /// The first time we are asked by SIGTERM, an heir is looked for; the second time, or by
    /// another signal, the command is stopped; after that it is killed.
    fn on_leave<'s>(
        &'s self,
        guardian: &Guardian,
        code: u8,
        course: &mut Progress,
        search: &mut Option<Search<'s>>,
        announcer: &mut Announcer,
    ) {
        if course.leave.is_some() {
            self.console.note("killing the command");
            course.killed = true;
            return self.ordered(guardian.kill());
        }
        let is_first = search.take().is_none() && code == BY_TERM;
        if is_first && !self.leave_within.is_zero() && course.lost.is_none() && !course.has_ended() {
            let within = show(self.leave_within);
            self.console
                .note(format!("looking for one to take the office, for {within} at most; the command works on"));
            announcer.stopping(self.leave_within + self.grace + LEAVE_SLACK);
            course.departing = Some(code);
            *search = Some(Box::pin(self.leadership.hand_over(self.leave_within)));
            return;
        }
        announcer.stopping(self.grace + LEAVE_SLACK);
        self.stop(guardian, course.departing.unwrap_or(code), course);
    }

    /// The search for an heir is over.
    fn on_found(&self, guardian: &Guardian, found: Result<LeadershipLost, TransferRefused>, course: &mut Progress) {
        match (found, course.departing) {
            (Ok(lost), _) => self.on_stopping(guardian, lost.reason(), course),
            (Err(why), Some(code)) => {
                self.console.note(format!("nobody takes the office: {why}"));
                self.stop(guardian, code, course);
            }
            (Err(_), None) => {}
        }
    }

    /// We leave, and the command is stopped for that.
    fn stop(&self, guardian: &Guardian, code: u8, course: &mut Progress) {
        self.console.note("stopping the command");
        course.leave = Some(code);
        self.ordered(guardian.terminate(self.grace));
    }

    /// A guardian that is dead or deaf has been seen to already: an event follows, and the deadline
    /// that it knows stands.
    fn ordered(&self, order: Result<(), OrderError>) {
        match order {
            Ok(()) | Err(OrderError::Dead) => {}
            Err(error) => self.console.warn(error.to_string()),
        }
    }

    fn outcome(&self, mut course: Progress) -> Ended {
        // The command has ended while an heir was looked for.
        course.leave = course.leave.or(course.departing);
        match course {
            Progress { not_started: Some(reason), lost: None, leave: None, .. } => Ended::NotStarted(reason),
            // A guardian that was too slow to kill, and was killed for it, has not told how the
            // command ended: like this.
            Progress { leave: Some(_), exit: None, killed: true, guardian_died: true, .. } => {
                Ended::Left(super::code(Exit::Signal(Signal::KILL.as_raw()).code()))
            }
            Progress { leave: Some(code), exit, .. } => Ended::Left(exit.map_or(code, |exit| super::code(exit.code()))),
            Progress { exit: Some(exit), lost: None, guardian_died: false, .. } => Ended::ByItself(exit),
            Progress { lost: Some(why), .. } => Ended::Lost(why),
            Progress { guardian_died: true, .. } => Ended::GuardianDied,
            // Not even its death was heard of.
            _ => Ended::GuardianDied,
        }
    }
}

/// When the search for an heir ends, if there is one.
async fn ended(search: &mut Option<Search<'_>>) -> Result<LeadershipLost, TransferRefused> {
    match search {
        Some(search) => search.await,
        None => pending().await,
    }
}

/// The command with its environment.
pub(super) fn command(
    args: &RunArgs,
    name: &str,
    term: &Term<Unfenced>,
    grace: Duration,
    was_ready: bool,
) -> CommandSpec {
    let words = args.command.iter();
    let spec = if args.shell {
        let line: Vec<_> = words.map(|word| word.as_os_str()).collect();
        CommandSpec::shell(line.join(std::ffi::OsStr::new(" ")))
    } else {
        CommandSpec::new(words)
    };
    let spec = spec
        .env(claims::ELECTION, args.target.election.as_str())
        .env("INCUMBENT_NAME", name)
        .env(claims::LAST_TERM, term.last_term().word())
        .env_remove(heir::HEIR)
        // We speak to the service manager for both.
        .env_remove("NOTIFY_SOCKET")
        .leftover_grace(grace);
    // One that was inherited is not this term's.
    let spec = match term.token_if_any() {
        Some(token) => spec.env(claims::TOKEN, token.get().to_string()).env(claims::STORE_ID, token.store.to_string()),
        None => spec.env_remove(claims::TOKEN).env_remove(claims::STORE_ID),
    };
    let spec = match args.candidate.ready.ready_cmd {
        Some(_) => spec.env(heir::READY, if was_ready { "yes" } else { "no" }),
        None => spec.env_remove(heir::READY),
    };
    if store_url::variable_has_secret() { spec.env_remove(store_url::VARIABLE) } else { spec }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILLED: Exit = Exit::Signal(9);
    const DEADLINE: Timestamp = Timestamp::from_nanos(1_000_000_000_000);

    fn course() -> Progress {
        Progress { deadline: DEADLINE, ..Progress::default() }
    }

    #[test]
    fn a_command_killed_in_a_term_that_is_over_was_killed_for_what_ended_the_term() {
        let mut course = course();
        let long_before = DEADLINE - Duration::from_secs(100);
        // As `heed` does, when the term has ended and the kill is ordered.
        course.notice_time(long_before);
        course.deadline = Timestamp::ZERO;
        assert!(course.lose(LossReason::Deposed), "the command runs");
        assert_eq!(course.on_exit(KILLED, long_before, None), None);
        assert_eq!((course.lost, course.overdue), (Some(LossReason::Deposed), false));
        // Heard of after the exit, the reason is the same.
        assert!(!course.lose(LossReason::LocalDeadline));
        assert_eq!(course.lost, Some(LossReason::Deposed));
    }

    #[test]
    fn a_command_killed_at_its_deadline_was_killed_by_the_guardian() {
        let after = DEADLINE + Duration::from_secs(1);
        assert_eq!(course().on_exit(KILLED, after, None), Some(LossReason::LocalDeadline));
        assert_eq!(course().on_exit(KILLED, after, Some(LossReason::Expired)), Some(LossReason::Expired));
        // It may have been told of a later deadline since, too late.
        let mut course = course();
        course.notice_time(after);
        course.deadline = DEADLINE + Duration::from_secs(100);
        assert_eq!(course.on_exit(KILLED, after, None), Some(LossReason::LocalDeadline));
    }

    #[test]
    fn the_guardian_kills_from_its_head_start_before_the_deadline_on() {
        let begins = DEADLINE - HEAD_START;
        assert_eq!(course().on_exit(KILLED, begins, None), Some(LossReason::LocalDeadline));
        assert_eq!(course().on_exit(KILLED, begins - SLACK, None), Some(LossReason::LocalDeadline));
        assert_eq!(course().on_exit(KILLED, begins - SLACK - Duration::from_nanos(1), None), None);
    }

    #[test]
    fn a_command_that_somebody_else_kills_has_ended_by_itself() {
        let mut course = course();
        assert_eq!(course.on_exit(KILLED, DEADLINE - Duration::from_secs(100), None), None);
        assert_eq!(course.lost, None);
        let mut course = self::course();
        assert_eq!(course.on_exit(Exit::Code(0), DEADLINE, None), None);
        assert_eq!(course.lost, None);
    }
}
