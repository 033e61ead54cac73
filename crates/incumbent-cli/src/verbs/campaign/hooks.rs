//! The hooks of `campaign`: what it runs when an office comes and goes, one at a time.
//!
//! They run under a guardian: not in the thread that renews the session, and not beyond the term,
//! whatever becomes of this process. A hook can neither extend a term nor end one; what follows
//! from its failure is for the one who leads to say.

use std::future::pending;
use std::time::Duration;

use incumbent::store::{BootClock, Clock};
use incumbent::{ElectionName, LossReason, Term, Unfenced};
use incumbent_guardian::{CommandSpec, Guardian};
use tokio::time::{Instant, timeout_at};

use crate::args::HookArgs;
use crate::claims;
use crate::failure::Failure;
use crate::guarding;
use crate::heir;
use crate::hook_runner::{HookRunner, Limit};
use crate::json::reason;
use crate::output::Console;
use crate::store_url;

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
    runner: HookRunner,
    /// Whether this candidate had got ready for its term, if it does so.
    ready: Option<bool>,
    /// `elected` was ordered in this term, or tried to be.
    begun: bool,
    /// How often in a row it has failed.
    failures: u32,
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
        let runner = HookRunner::new(guardian, console.clone());
        Hooks { lines, election, name: String::new(), grace, console, runner, ready: None, begun: false, failures: 0 }
    }

    /// The name under which others see this candidate.
    pub(super) fn set_name(&mut self, name: &str) {
        name.clone_into(&mut self.name);
    }

    /// Whether this candidate had got ready for the term that begins.
    pub(super) fn set_ready(&mut self, ready: bool) {
        self.ready = Some(ready);
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
        match self.runner.run(Hook::Elected.option(), &spec, Limit::Term(term)).await {
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
        if !self.runner.end_running(Some(term), share, ends).await {
            return;
        }
        // After the term it would act beside the next leader.
        let Some(line) = line.filter(|_| self.has_begun() && term.check().is_ok()) else { return };
        let spec = self.spec(&line, term, Some(why));
        let ended = timeout_at(ends, self.runner.run(Hook::Stopping.option(), &spec, Limit::WithinTerm(term, ends_at)));
        if let Ok(Err(why)) = ended.await {
            self.console.warn(format!("{} {why}", Hook::Stopping.option()));
        }
    }

    /// The term is over: runs what is to be run for that, when nothing of an earlier hook is left.
    pub(super) async fn lost(&mut self, term: &Term<Unfenced>, why: LossReason) {
        self.runner.see_to_its_end().await;
        let has_begun = self.has_begun();
        self.begun = false;
        let Some(line) = self.lines.on_lost.clone().filter(|_| has_begun) else { return };
        let spec = self.spec(&line, term, Some(why));
        let (ends, ends_at) = (Instant::now() + self.grace, BootClock.now() + self.grace);
        let ended = timeout_at(ends, self.runner.run(Hook::Lost.option(), &spec, Limit::Until(ends_at)));
        if let Ok(Err(why)) = ended.await {
            self.console.warn(format!("{} {why}", Hook::Lost.option()));
        }
        self.runner.see_to_its_end().await;
    }

    /// A term that was over, or to be given back, before `elected` was begun has no other hook.
    fn has_begun(&self) -> bool {
        self.begun || self.lines.on_elected.is_none()
    }

    /// Ends the guardian.
    pub(super) async fn close(self) {
        self.runner.close().await;
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
            .env(claims::LAST_TERM, term.last_term().word())
            .env_remove(claims::STORE_ID)
            .env_remove(heir::HEIR)
            .env_remove("NOTIFY_SOCKET");
        let spec = match self.ready {
            Some(ready) => spec.env(heir::READY, if ready { "yes" } else { "no" }),
            None => spec.env_remove(heir::READY),
        };
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
