//! Runs lines of shell under a guardian, one at a time: the hooks of those who stand.
//!
//! Not in the thread that renews the session, and not beyond a limit, whatever becomes of this
//! process. What a hook is for, and what follows from its failure, its owner knows.

use std::future::pending;
use std::os::fd::AsFd;
use std::time::Duration;

use incumbent::{Term, Timestamp, Unfenced};
use incumbent_guardian::{CommandSpec, Event, Exit, Guardian, OrderError};
use tokio::time::{Instant, timeout, timeout_at};

use crate::failure::Failure;
use crate::guarding;
use crate::output::Console;

/// How long a guardian that has nothing left to do may take to end.
const GUARDIAN_END: Duration = Duration::from_secs(1);
/// How long something that was killed may take to end.
const KILLED: Duration = Duration::from_secs(1);

/// Until when a hook may run.
#[derive(Clone, Copy)]
pub(crate) enum Limit<'a> {
    /// As long as the term lasts.
    Term(&'a Term<Unfenced>),
    /// As long as the term lasts, and until then at most.
    WithinTerm(&'a Term<Unfenced>, Timestamp),
    Until(Timestamp),
}

impl<'a> Limit<'a> {
    fn term(self) -> Option<&'a Term<Unfenced>> {
        match self {
            Limit::Term(term) | Limit::WithinTerm(term, _) => Some(term),
            Limit::Until(_) => None,
        }
    }

    /// What the guardian is told when the term lasts until `deadline`.
    fn at(self, deadline: Timestamp) -> Timestamp {
        match self {
            Limit::Term(_) => deadline,
            Limit::WithinTerm(_, until) => deadline.min(until),
            Limit::Until(until) => until,
        }
    }
}

/// A guardian, and what it runs. Each hook is called after its option, in messages: the line itself
/// may hold a password.
pub(crate) struct HookRunner {
    console: Console,
    /// None after one was killed: the next hook starts another.
    guardian: Option<Guardian>,
    /// What was ordered, if something of it may be left.
    running: Option<&'static str>,
}

impl HookRunner {
    pub(crate) fn new(guardian: Option<Guardian>, console: Console) -> HookRunner {
        HookRunner { console, guardian, running: None }
    }

    /// Ends the guardian.
    pub(crate) async fn close(self) {
        if let Some(guardian) = self.guardian {
            // It may be stopped: then it is left to the process that reaps our orphans.
            let _ = timeout(GUARDIAN_END, guardian.end()).await;
        }
    }

    /// Kills what is left of a hook. One that has not ended after that is in the kernel, and does
    /// nothing by itself any more: its guardian is left to see it to its end.
    pub(crate) async fn see_to_its_end(&mut self) {
        if !self.end_running(None, Duration::ZERO, Instant::now() + KILLED).await
            && let Some(hook) = self.running.take()
        {
            self.console.warn(format!("{} was killed, and has not ended yet", hook));
            self.guardian = None;
        }
    }

    /// What was begun is told to stop, and killed after `share`, or when the term is over. Waits
    /// until `ends` at most; whether nothing of it is left.
    pub(crate) async fn end_running(&mut self, term: Option<&Term<Unfenced>>, share: Duration, ends: Instant) -> bool {
        let (Some(hook), Some(guardian)) = (self.running, &self.guardian) else { return true };
        let is_over = share.is_zero() || term.is_some_and(|term| term.check().is_err());
        self.ordered(if is_over { guardian.kill() } else { guardian.terminate(share) });
        let limit = term.map_or(Limit::Until(Timestamp::MAX), Limit::Term);
        timeout_at(ends, self.until_gone(hook, limit)).await.is_ok()
    }

    /// Runs one to its end, and answers when nothing of it is left: how it failed, if it did. Safe
    /// to cancel; what was begun goes on then.
    pub(crate) async fn run(&mut self, hook: &'static str, spec: &CommandSpec, limit: Limit<'_>) -> Result<(), String> {
        let deadline = limit.at(limit.term().map_or(Timestamp::MAX, Term::deadline));
        if let Err(error) = self.begin(spec, deadline, limit.term()).await {
            return Err(format!("cannot be started: {error}"));
        }
        self.running = Some(hook);
        self.until_gone(hook, limit).await
    }

    async fn begin(
        &mut self,
        spec: &CommandSpec,
        deadline: Timestamp,
        term: Option<&Term<Unfenced>>,
    ) -> Result<(), Failure> {
        // One that was killed while it had nothing to do is noticed only now.
        for _ in 0..2 {
            let guardian = match self.guardian.take() {
                Some(guardian) => self.guardian.insert(guardian),
                None => self.guardian.insert(guarding::start_aside().await?),
            };
            match order(guardian, spec, deadline, term) {
                Err(OrderError::Dead) => self.guardian = None,
                Err(error) => return Err(Failure::error(error.to_string())),
                Ok(()) => return Ok(()),
            }
        }
        Err(Failure::error("its guardian was killed"))
    }

    /// Waits until nothing is left of what was begun, which is killed when its limit is reached.
    async fn until_gone(&mut self, hook: &'static str, limit: Limit<'_>) -> Result<(), String> {
        let mut outcome = Err("was killed with its guardian".to_owned());
        let Some(guardian) = &mut self.guardian else { return outcome };
        let mut seen = limit.term().map_or(Timestamp::MAX, Term::deadline);
        loop {
            let moved = async {
                match limit.term() {
                    Some(term) if seen != Timestamp::ZERO => term.deadline_after(seen).await,
                    _ => pending().await,
                }
            };
            tokio::select! {
                biased;
                event = guardian.event() => match event {
                    Some(Event::CommandExited(Exit::Code(0))) => outcome = Ok(()),
                    Some(Event::CommandExited(Exit::Code(code))) => outcome = Err(format!("exited with {code}")),
                    Some(Event::CommandExited(Exit::Signal(signal))) => {
                        outcome = Err(format!("died of signal {signal}"));
                    }
                    Some(Event::NotStarted(why)) => outcome = Err(format!("was not started: {why}")),
                    Some(Event::LeftBehind { processes }) if processes > 0 => self.console.note(format!(
                        "{} left {processes} running, which will be stopped now: leave it to a service manager",
                        hook
                    )),
                    // What it had started has been killed.
                    Some(Event::GuardianDied) => outcome = Err("was killed with its guardian".to_owned()),
                    Some(Event::Empty) | None => break,
                    Some(_) => {}
                },
                deadline = moved => {
                    seen = deadline;
                    let told = match deadline {
                        Timestamp::ZERO => guardian.kill(),
                        deadline => guardian.set_deadline(limit.at(deadline)),
                    };
                    if let Err(error) = told {
                        tracing::debug!(%error, "the guardian of a hook was not told");
                    }
                }
            }
        }
        self.running = None;
        // Nothing is left that could outlive the office.
        let let_go = guardian.let_go();
        self.ordered(let_go);
        outcome
    }

    /// A guardian that is dead or deaf has been seen to already: an event follows, and the deadline
    /// that it knows stands.
    fn ordered(&self, order: Result<(), OrderError>) {
        match order {
            Ok(()) | Err(OrderError::Dead) => {}
            Err(error) => self.console.warn(error.to_string()),
        }
    }
}

/// Has the guardian run it. Under a term it holds the session's lock as well, so that nobody else
/// leads before it has stopped the hook, should this process be killed.
fn order(
    guardian: &mut Guardian,
    spec: &CommandSpec,
    deadline: Timestamp,
    term: Option<&Term<Unfenced>>,
) -> Result<(), OrderError> {
    let lifeline = term.map(Term::lifeline).transpose().map_err(OrderError::Io)?.flatten();
    if let Some(lifeline) = lifeline {
        guardian.hold(lifeline.as_fd())?;
    }
    guardian.spawn(spec, deadline)
}
