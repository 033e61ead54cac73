//! `--ready-cmd` and `--unready-cmd`: what a candidate does before it takes over from a leader that
//! hands over to it.
//!
//! The lines run under a guardian of their own, one at a time, in a task that is told when to begin
//! and when it is called off. Neither is given a token. `--unready-cmd` undoes what `--ready-cmd`
//! has begun, whether or not that went well; never once this candidate is in office: there, what is
//! left of either is killed before COMMAND begins.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use incumbent::store::{BootClock, Clock};
use incumbent::{Candidate, ElectionName, Unfenced};
use incumbent_guardian::{CommandSpec, Guardian};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::args::ReadyArgs;
use crate::claims;
use crate::failure::Failure;
use crate::guarding;
use crate::hook_runner::{HookRunner, Limit};
use crate::output::Console;
use crate::store_url;

/// Says to COMMAND and to the hooks of a term whether this candidate had got ready for it.
pub(crate) const READY: &str = "INCUMBENT_READY";
/// Says to a line that it runs for one who is not in office.
pub(crate) const HEIR: &str = "INCUMBENT_HEIR";

/// How much later than the library the guardian stops a line that takes too long: should this
/// process be stopped.
const SLACK: Duration = Duration::from_secs(1);
/// How long the end of all may take beyond the grace.
const END: Duration = Duration::from_secs(3);

enum Message {
    /// Get ready; the number tells this request from every other.
    Prepare(u64, Duration, oneshot::Sender<Result<(), String>>),
    /// That request is of no use any more.
    CalledOff(u64),
    /// In office. Answered when nothing of the lines is left.
    Elected(oneshot::Sender<()>),
    Close,
}

/// The lines, and the task that runs them.
pub(crate) struct HeirHooks {
    messages: mpsc::UnboundedSender<Message>,
    task: JoinHandle<()>,
    grace: Duration,
}

/// Starts the guardian of those who get ready first. Before there are threads and descriptors that
/// it could inherit.
pub(crate) fn guardian_for(lines: &ReadyArgs) -> Result<Option<Guardian>, Failure> {
    lines.ready_cmd.is_some().then(guarding::start).transpose()
}

/// Calls a request off when it is dropped.
struct CallOff(u64, mpsc::UnboundedSender<Message>);

impl Drop for CallOff {
    fn drop(&mut self) {
        // The task may have ended with the candidate.
        let _ = self.1.send(Message::CalledOff(self.0));
    }
}

impl HeirHooks {
    /// None if there is nothing to do first.
    pub(crate) fn start(
        lines: &ReadyArgs,
        guardian: Option<Guardian>,
        election: &ElectionName,
        name: &str,
        grace: Duration,
        console: &Console,
    ) -> Option<HeirHooks> {
        let ready = lines.ready_cmd.as_deref()?;
        let spec = |line: &str| spec(line, election, name, grace);
        let (messages, received) = mpsc::unbounded_channel();
        let runner = Runner {
            ready: spec(ready),
            unready: lines.unready_cmd.as_deref().map(spec),
            grace,
            runner: HookRunner::new(guardian, console.clone()),
            console: console.clone(),
            messages: received,
            begun: None,
        };
        Some(HeirHooks { messages, task: tokio::spawn(runner.run()), grace })
    }

    /// A candidate that gets ready so.
    pub(crate) fn equip(&self, candidate: Candidate<Unfenced>) -> Candidate<Unfenced> {
        let (messages, requests) = (self.messages.clone(), AtomicU64::new(0));
        candidate.ready_hook(move |request| {
            let number = requests.fetch_add(1, Ordering::Relaxed);
            let (call_off, messages) = (CallOff(number, messages.clone()), messages.clone());
            async move {
                let (reply, answer) = oneshot::channel();
                let gone = || "this process is leaving".to_owned();
                messages.send(Message::Prepare(number, request.within, reply)).map_err(|_| gone())?;
                answer.await.map_err(|_| gone())??;
                Ok::<_, String>(call_off)
            }
        })
    }

    /// In office: nothing of the lines runs beside what is done there.
    pub(crate) async fn elected(&self) {
        let (done, ended) = oneshot::channel();
        if self.messages.send(Message::Elected(done)).is_ok() {
            // It may have panicked, and its guardian with it.
            let _ = ended.await;
        }
    }

    /// Undoes what is to be undone, and ends the guardian.
    pub(crate) async fn close(self) {
        // It may have ended.
        let _ = self.messages.send(Message::Close);
        let _ = timeout(self.grace + END, self.task).await;
    }
}

struct Runner {
    ready: CommandSpec,
    unready: Option<CommandSpec>,
    grace: Duration,
    runner: HookRunner,
    console: Console,
    messages: mpsc::UnboundedReceiver<Message>,
    /// The request for which something was begun that was not undone.
    begun: Option<u64>,
}

impl Runner {
    async fn run(mut self) {
        let mut next = None;
        loop {
            let message = match next.take() {
                Some(message) => message,
                None => self.messages.recv().await.unwrap_or(Message::Close),
            };
            match message {
                Message::Prepare(number, within, reply) => {
                    self.begun = Some(number);
                    next = self.prepare(within, reply).await;
                }
                Message::CalledOff(number) => {
                    if self.begun.take_if(|begun| *begun == number).is_some() {
                        next = self.undo().await;
                    }
                }
                Message::Elected(done) => {
                    self.begun = None;
                    // Nobody may wait for it.
                    let _ = done.send(());
                }
                Message::Close => break,
            }
        }
        if self.begun.take().is_some() {
            self.undo().await;
        }
        self.runner.close().await;
    }

    /// Whatever comes meanwhile ends it, and is seen to next.
    async fn prepare(&mut self, within: Duration, reply: oneshot::Sender<Result<(), String>>) -> Option<Message> {
        let ends_at = Limit::Until(BootClock.now() + within.saturating_add(SLACK));
        let message = tokio::select! {
            biased;
            message = self.messages.recv() => message,
            outcome = self.runner.run("--ready-cmd", &self.ready, ends_at) => {
                if let Err(why) = &outcome {
                    self.console.warn(format!("--ready-cmd {why}: the office is declined"));
                }
                // Nobody may wait for it.
                let _ = reply.send(outcome);
                return None;
            }
        };
        self.runner.see_to_its_end().await;
        Some(message.unwrap_or(Message::Close))
    }

    /// Only an office ends it before its time: what comes meanwhile is seen to next.
    async fn undo(&mut self) -> Option<Message> {
        let spec = self.unready.as_ref()?;
        let ends_at = Limit::Until(BootClock.now() + self.grace);
        let mut next = None;
        {
            let mut line = std::pin::pin!(self.runner.run("--unready-cmd", spec, ends_at));
            loop {
                tokio::select! {
                    biased;
                    outcome = &mut line => {
                        if let Err(why) = outcome {
                            self.console.warn(format!("--unready-cmd {why}"));
                        }
                        return next;
                    }
                    message = self.messages.recv(), if next.is_none() => {
                        next = Some(message.unwrap_or(Message::Close));
                        if let Some(Message::Elected(_)) = next {
                            break;
                        }
                    }
                }
            }
        }
        self.runner.see_to_its_end().await;
        next
    }
}

/// A line with its environment: of the token that this candidate is going to have it knows nothing.
fn spec(line: &str, election: &ElectionName, name: &str, grace: Duration) -> CommandSpec {
    // What COMMAND or a campaign says is on standard output, and it is not for anything else.
    let spec = CommandSpec::shell(format!("exec >&2; {line}"))
        .quiet()
        .leftover_grace(grace / 2)
        .env(claims::ELECTION, election.as_str())
        .env("INCUMBENT_NAME", name)
        .env(HEIR, "1")
        .env_remove(READY)
        .env_remove(claims::TOKEN)
        .env_remove(claims::STORE_ID)
        .env_remove("NOTIFY_SOCKET");
    if store_url::variable_has_secret() { spec.env_remove(store_url::VARIABLE) } else { spec }
}
