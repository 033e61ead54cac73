//! The hooks of `campaign`: what it runs when an office comes and goes, one at a time.
//!
//! They run under a guardian: not in the thread that renews the session, and not beyond the term,
//! whatever becomes of this process. A hook can neither extend a term nor end one; what follows
//! from its failure is for the one who leads to say.

use std::future::pending;
use std::os::fd::AsFd;
use std::time::Duration;

use incumbent::store::{BootClock, Clock};
use incumbent::{ElectionName, LossReason, Term, Timestamp, Unfenced};
use incumbent_guardian::{CommandSpec, Event, Exit, Guardian, OrderError};
use tokio::time::{Instant, timeout, timeout_at};

use crate::args::HookArgs;
use crate::claims;
use crate::failure::Failure;
use crate::guarding;
use crate::json::reason;
use crate::output::Console;
use crate::store_url;

/// How long a guardian that has nothing left to do may take to end.
const GUARDIAN_END: Duration = Duration::from_secs(1);
/// How long something that was killed may take to end.
const KILLED: Duration = Duration::from_secs(1);
/// The rests of a candidate whose `elected` fails again and again.
const FIRST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(60);
const MOST_DOUBLINGS: u32 = 6;
/// Why a hook is run, in its environment.
const REASON: &str = "INCUMBENT_REASON";

/// One of the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hook {
    Elected,
    Stopping,
    Lost,
}

impl Hook {
    /// As on the command line, for messages: the line itself may hold a password.
    fn option(self) -> &'static str {
        match self {
            Hook::Elected => "--on-elected",
            Hook::Stopping => "--on-stopping",
            Hook::Lost => "--on-lost",
        }
    }
}

/// What is run, and the guardian that runs it.
pub(super) struct Hooks {
    lines: HookArgs,
    election: ElectionName,
    name: String,
    grace: Duration,
    console: Console,
    /// None where there is no hook, and after one was killed: the next hook starts another.
    guardian: Option<Guardian>,
    /// What was ordered, if something of it may be left.
    running: Option<Hook>,
    /// `elected` was ordered in this term, or tried to be.
    begun: bool,
    /// How often in a row it has failed.
    failures: u32,
}

/// Until when a hook may run.
#[derive(Clone, Copy)]
enum Limit<'a> {
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

/// Starts the guardian of those who have hooks. Before there are threads and descriptors that it
/// could inherit.
pub(super) fn guardian_for(lines: &HookArgs) -> Result<Option<Guardian>, Failure> {
    let any = [&lines.on_elected, &lines.on_stopping, &lines.on_lost].into_iter().any(Option::is_some);
    any.then(guarding::start).transpose()
}

impl Hooks {
    pub(super) fn new(
        lines: HookArgs,
        guardian: Option<Guardian>,
        election: ElectionName,
        grace: Duration,
        console: Console,
    ) -> Hooks {
        Hooks {
            lines,
            election,
            name: String::new(),
            grace,
            console,
            guardian,
            running: None,
            begun: false,
            failures: 0,
        }
    }

    /// The name under which others see this candidate.
    pub(super) fn set_name(&mut self, name: &str) {
        name.clone_into(&mut self.name);
    }

    /// Whether the end of a hook says that the work has stopped.
    pub(super) fn say_when_stopped(&self) -> bool {
        self.lines.on_stopping.is_some()
    }

    /// How long a candidate stays out of line whose `elected` has failed: alone in line, it would
    /// be elected again at once, for ever.
    pub(super) fn rest(&self) -> Duration {
        let doubled = FIRST_REST.saturating_mul(1 << self.failures.saturating_sub(1).min(MOST_DOUBLINGS));
        doubled.min(LONGEST_REST)
    }

    /// Runs what is to be run in office, and answers only if that has failed. Safe to cancel:
    /// [`stop`](Hooks::stop) and [`lost`](Hooks::lost) end what was begun.
    pub(super) async fn elected_has_failed(&mut self, term: &Term<Unfenced>) {
        let Some(line) = self.lines.on_elected.clone() else { return pending().await };
        let spec = self.spec(&line, term, None);
        self.begun = true;
        match self.run(Hook::Elected, &spec, Limit::Term(term)).await {
            Ok(()) => {
                self.failures = 0;
                pending().await
            }
            Err(why) => {
                self.failures = self.failures.saturating_add(1);
                self.console.warn(format!("{} {why}: the office is given back", Hook::Elected.option()));
            }
        }
    }

    /// The work has to stop: stops what still runs of `elected`, then runs what is to be run for
    /// it. Answers when that has ended, or when the grace or the term is over.
    pub(super) async fn stop(&mut self, term: &Term<Unfenced>, why: LossReason) {
        let (ends, ends_at) = (Instant::now() + self.grace, BootClock.now() + self.grace);
        let line = self.lines.on_stopping.clone();
        // The other half is for the hook that comes next.
        let share = if line.is_some() { self.grace / 2 } else { self.grace };
        if !self.end_running(Some(term), share, ends).await {
            return;
        }
        // After the term it would act beside the next leader.
        let Some(line) = line.filter(|_| self.has_begun() && term.check().is_ok()) else { return };
        let spec = self.spec(&line, term, Some(why));
        let ended = timeout_at(ends, self.run(Hook::Stopping, &spec, Limit::WithinTerm(term, ends_at)));
        if let Ok(Err(why)) = ended.await {
            self.console.warn(format!("{} {why}", Hook::Stopping.option()));
        }
    }

    /// The term is over: runs what is to be run for that, when nothing of an earlier hook is left.
    pub(super) async fn lost(&mut self, term: &Term<Unfenced>, why: LossReason) {
        self.see_to_its_end().await;
        let has_begun = self.has_begun();
        self.begun = false;
        let Some(line) = self.lines.on_lost.clone().filter(|_| has_begun) else { return };
        let spec = self.spec(&line, term, Some(why));
        let (ends, ends_at) = (Instant::now() + self.grace, BootClock.now() + self.grace);
        let ended = timeout_at(ends, self.run(Hook::Lost, &spec, Limit::Until(ends_at)));
        if let Ok(Err(why)) = ended.await {
            self.console.warn(format!("{} {why}", Hook::Lost.option()));
        }
        self.see_to_its_end().await;
    }

    /// A term that was over, or to be given back, before `elected` was begun has no other hook.
    fn has_begun(&self) -> bool {
        self.begun || self.lines.on_elected.is_none()
    }

    /// Ends the guardian.
    pub(super) async fn close(self) {
        if let Some(guardian) = self.guardian {
            // It may be stopped: then it is left to the process that reaps our orphans.
            let _ = timeout(GUARDIAN_END, guardian.end()).await;
        }
    }

    /// Kills what is left of a hook. One that has not ended after that is in the kernel, and does
    /// nothing by itself any more: its guardian is left to see it to its end.
    async fn see_to_its_end(&mut self) {
        if !self.end_running(None, Duration::ZERO, Instant::now() + KILLED).await
            && let Some(hook) = self.running.take()
        {
            self.console.warn(format!("{} was killed, and has not ended yet", hook.option()));
            self.guardian = None;
        }
    }

    /// What was begun is told to stop, and killed after `share`, or when the term is over. Waits
    /// until `ends` at most; whether nothing of it is left.
    async fn end_running(&mut self, term: Option<&Term<Unfenced>>, share: Duration, ends: Instant) -> bool {
        let (Some(hook), Some(guardian)) = (self.running, &self.guardian) else { return true };
        let is_over = share.is_zero() || term.is_some_and(|term| term.check().is_err());
        self.ordered(if is_over { guardian.kill() } else { guardian.terminate(share) });
        let limit = term.map_or(Limit::Until(Timestamp::MAX), Limit::Term);
        timeout_at(ends, self.until_gone(hook, limit)).await.is_ok()
    }

    /// Runs one to its end, and answers when nothing of it is left: how it failed, if it did. Safe
    /// to cancel; what was begun goes on then.
    async fn run(&mut self, hook: Hook, spec: &CommandSpec, limit: Limit<'_>) -> Result<(), String> {
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
    async fn until_gone(&mut self, hook: Hook, limit: Limit<'_>) -> Result<(), String> {
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
                        hook.option()
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

    /// With its environment. No store's identity: by that, those who look for work which has
    /// outlived its term would take `lost` for such.
    fn spec(&self, line: &str, term: &Term<Unfenced>, why: Option<LossReason>) -> CommandSpec {
        // Events are on standard output, and it is not for anything else.
        let spec = CommandSpec::shell(format!("exec >&2; {line}"))
            .quiet()
            .leftover_grace(self.grace / 2)
            .env(claims::ELECTION, self.election.as_str())
            .env("INCUMBENT_NAME", &self.name)
            .env_remove(claims::STORE_ID)
            .env_remove("NOTIFY_SOCKET");
        let spec = match term.token_if_any() {
            Some(token) => spec.env(claims::TOKEN, token.get().to_string()),
            None => spec.env_remove(claims::TOKEN),
        };
        let spec = match why {
            Some(why) => spec.env(REASON, reason(why)),
            None => spec.env_remove(REASON),
        };
        if store_url::variable_has_secret() { spec.env_remove(store_url::VARIABLE) } else { spec }
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
