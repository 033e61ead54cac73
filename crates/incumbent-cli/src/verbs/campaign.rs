//! `campaign`: the office for programs in any language. Events go out, and the end of input gives
//! the office back. Hooks are run when it comes and goes.

mod hooks;

use std::future::{pending, ready};
use std::io;
use std::pin::pin;
use std::time::Duration;

use incumbent::{Candidacy, Election, ElectionName, Leadership, LossReason, Role, Timestamp, Unfenced};
use incumbent_guardian::Guardian;
use serde::Serialize;
use tokio::signal::unix::SignalKind;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::{
    candidate_name, close, equipped, last_error, leave_within, say_what_is_waited_for, standing_client, value_bytes,
    witness_term,
};
use crate::args::CampaignArgs;
use crate::block_on;
use crate::claims::{Claim, ClaimKeeper};
use crate::duration::show;
use crate::failure::{Code, Failure};
use crate::health;
use crate::heir::{self, HeirHooks};
use crate::json::{VERSION, reason};
use crate::output::{Console, out, out_json, printable};
use crate::reader_gone::reader_gone;
use crate::signal_listener::SignalListener;
use crate::store_url::StoreUrl;
use hooks::Hooks;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event {
    Following { ahead: Option<String>, token: Option<u64> },
    Elected { token: Option<u64>, remaining_ms: Option<u64> },
    Stopping { reason: &'static str },
    Lost { reason: &'static str },
    Out { reason: &'static str },
    Resigned,
    Ended,
}

impl Event {
    fn words(&self) -> String {
        match self {
            Event::Following { ahead: Some(ahead), token: Some(token) } => {
                format!("following  behind {} (token {token})", printable(ahead))
            }
            Event::Following { ahead: Some(ahead), token: None } => format!("following  {}", printable(ahead)),
            Event::Following { ahead: None, token: Some(token) } => format!("following  behind token {token}"),
            Event::Following { ahead: None, token: None } => "waiting    nobody leads".into(),
            Event::Elected { token, remaining_ms } => {
                let token = token.map_or_else(|| "no token".to_owned(), |token| format!("token {token}"));
                let lasts = remaining_ms.map(|ms| show(Duration::from_millis(ms)));
                let lasts =
                    lasts.map_or_else(|| "until further notice".to_owned(), |lasts| format!("for {lasts} at least"));
                format!("elected    {token}, {lasts}")
            }
            Event::Stopping { reason } => format!("stopping   {reason}"),
            Event::Lost { reason } => format!("lost       {reason}"),
            Event::Out { reason } => format!("out        {reason}"),
            Event::Resigned => "resigned".into(),
            Event::Ended => "ended".into(),
        }
    }
}

/// An event for programs.
#[derive(Serialize)]
struct EventJson<'a> {
    v: u32,
    election: &'a str,
    #[serde(flatten)]
    event: &'a Event,
}

/// Writes events, each only if it differs from the last.
struct EventWriter {
    election: ElectionName,
    json: bool,
    last: Option<Event>,
}

impl EventWriter {
    fn write(&mut self, event: Event) -> Result<(), Failure> {
        if self.last.as_ref() == Some(&event) {
            return Ok(());
        }
        if self.json {
            out_json(&EventJson { v: VERSION, election: self.election.as_str(), event: &event })?
        } else {
            out(&event.words())?
        }
        self.last = Some(event);
        Ok(())
    }

    fn write_role(&mut self, role: &Role) -> Result<(), Failure> {
        match role {
            Role::Following { ahead, token } => {
                let token = token.map(|token| token.get());
                self.write(Event::Following { ahead: ahead.as_deref().map(str::to_owned), token })
            }
            // A moment between two sessions, or between two places in line, is not worth an event.
            Role::Out(
                why @ (LossReason::Paused | LossReason::Benched | LossReason::Unhealthy | LossReason::Refused),
            ) => self.write(Event::Out { reason: reason(*why) }),
            _ => Ok(()),
        }
    }
}

pub(crate) fn campaign(args: CampaignArgs, store: StoreUrl, console: &Console) -> Result<u8, Failure> {
    let guardians = (hooks::guardian_for(&args.hooks)?, heir::guardian_for(&args.candidate.ready)?);
    block_on(take_part(args, store, guardians, console))
}

async fn take_part(
    args: CampaignArgs,
    store: StoreUrl,
    (guardian, heir_guardian): (Option<Guardian>, Option<Guardian>),
    console: &Console,
) -> Result<u8, Failure> {
    let client = standing_client(&args.candidate, &store).await?;
    let name = candidate_name(&args.candidate);
    let election = client.election(args.target.election.as_str()).map_err(|error| Failure::usage(error.to_string()))?;
    let checks = health::checks(&args.candidate.health);
    let candidate = election.candidate(name.as_str()).value(value_bytes(&args.candidate)).health(checks);
    // Its work is done by the program that reads what we say.
    let candidate = equipped(candidate.work_outlives_process(), &args.candidate);
    let mut quit = Quit::new()?;
    let grace = client.settings().grace;
    let leave_within = leave_within(&args.candidate, client.group().is_some());
    let ready = &args.candidate.ready;
    let heir = HeirHooks::start(ready, heir_guardian, &args.target.election, &name, grace, console);
    let candidate = heir.iter().fold(candidate, |candidate, heir| heir.equip(candidate));
    let mut hooks = Hooks::new(args.hooks, guardian, args.target.election.clone(), grace, console.clone());
    let mut writer = EventWriter { election: args.target.election, json: args.format.json, last: None };
    let outcome = async {
        let candidacy = tokio::select! {
            candidacy = candidate.stand() => candidacy?,
            () = quit.asked() => return left_before_it_was_in_line(),
            never = say_what_is_waited_for(console) => match never {},
        };
        let (hooks, writer, quit) = (&mut hooks, &mut writer, &mut quit);
        let heir = heir.as_ref();
        let mut campaign = Campaign { candidacy, hooks, heir, writer, quit, leave_within, console };
        campaign.hold(&election, &store).await
    };
    let outcome = outcome.await;
    // Also when the reader has gone, or something broke: the office is not left to expire.
    drop(election);
    close(client, console).await;
    hooks.close().await;
    if let Some(heir) = heir {
        heir.close().await;
    }
    writer.write(outcome?)?;
    Ok(0)
}

/// There is nothing to resign from; and if the store cannot be used, that is no success.
fn left_before_it_was_in_line() -> Result<Event, Failure> {
    match last_error() {
        known if known.is_empty() => Ok(Event::Resigned),
        error => Err(Failure::new(Code::Unavailable, format!("left before it was in line{error}"))),
    }
}

/// One who is in line.
struct Campaign<'a> {
    candidacy: Candidacy<Unfenced>,
    hooks: &'a mut Hooks,
    heir: Option<&'a HeirHooks>,
    writer: &'a mut EventWriter,
    quit: &'a mut Quit,
    /// How long an heir is looked for before it leaves.
    leave_within: Duration,
    console: &'a Console,
}

/// How a term ended for this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// Back in line.
    Lost,
    /// Its hook failed: out of line for now.
    Failed,
    /// Given back because we were asked to.
    Left,
}

impl Campaign<'_> {
    /// Stands, leads, loses and stands again, until there is a reason to leave for good.
    async fn hold(&mut self, election: &Election<Unfenced>, store: &StoreUrl) -> Result<Event, Failure> {
        let console = self.console;
        let mut roles = self.candidacy.roles();
        let mut claims = ClaimKeeper::new(store, console);
        let mut rests_until = None;
        // In a group of peers the list of members says how others call it.
        self.hooks.set_name(self.candidacy.name());
        loop {
            tokio::select! {
                biased;
                () = self.quit.asked() => return Ok(Event::Resigned),
                elected = self.candidacy.elected() => match elected? {
                    Some(leadership) => {
                        witness_term(election, &leadership, store, console);
                        let claim = claims.claim(&leadership.term(), self.candidacy.name(), None);
                        match self.lead(leadership, claim).await? {
                            Ended::Lost => {}
                            Ended::Failed => rests_until = Some(Instant::now() + self.hooks.rest()),
                            Ended::Left => return Ok(Event::Resigned),
                        }
                    }
                    None => return Ok(Event::Ended),
                },
                role = roles.next() => self.writer.write_role(&role)?,
                () = until(rests_until) => {
                    rests_until = None;
                    self.candidacy.set_healthy(true);
                }
            }
        }
    }

    /// In office, until something ends that: what, why, and whether we are to leave for good.
    async fn serve(&mut self, leadership: &Leadership<Unfenced>) -> (Ended, LossReason, bool) {
        let term = leadership.term();
        let mut failed = pin!(self.hooks.elected_has_failed(&term));
        tokio::select! {
            biased;
            () = self.quit.asked() => {}
            lost = term.stopping() => return (Ended::Lost, lost.reason(), false),
            () = &mut failed => return (Ended::Failed, LossReason::Unhealthy, false),
        }
        if self.leave_within.is_zero() || !self.quit.forget_sigterm() {
            return (Ended::Left, LossReason::Resigned, true);
        }
        let within = show(self.leave_within);
        self.console.note(format!("looking for one to take the office, for {within} at most"));
        tokio::select! {
            biased;
            found = leadership.hand_over(self.leave_within) => match found {
                Ok(lost) => (Ended::Lost, lost.reason(), true),
                Err(why) => {
                    self.console.note(format!("nobody takes the office: {why}"));
                    (Ended::Left, LossReason::Resigned, true)
                }
            },
            // A second SIGTERM waits for no heir.
            () = self.quit.asked() => (Ended::Left, LossReason::Resigned, true),
            () = &mut failed => (Ended::Left, LossReason::Resigned, true),
        }
    }

    /// One term, and its hooks: whatever becomes of it, `lost` comes last.
    async fn lead(&mut self, leadership: Leadership<Unfenced>, claim: Option<Claim>) -> Result<Ended, Failure> {
        if let Some(heir) = self.heir {
            heir.elected().await;
            self.hooks.set_ready(leadership.was_ready());
        }
        let bounded = leadership.term().deadline() != Timestamp::MAX;
        let remaining_ms = bounded.then(|| u64::try_from(leadership.remaining().as_millis()).unwrap_or(u64::MAX));
        let token = leadership.token_if_any().map(|token| token.get());
        self.writer.write(Event::Elected { token, remaining_ms })?;
        let term = leadership.term();
        let (ended, why, leaves) = self.serve(&leadership).await;
        if ended == Ended::Failed {
            // Out of line from now on: it would be elected again at once.
            self.candidacy.set_healthy(false);
        }
        let mut told = Ok(());
        if ended != Ended::Left && term.check().is_ok() {
            told = self.writer.write(Event::Stopping { reason: reason(why) });
        }
        self.hooks.stop(&term, why).await;
        let asked = if told.is_err() {
            // Nobody reads any more.
            true
        } else if ended == Ended::Lost && !self.hooks.say_when_stopped() {
            // The work is the reader's, and has the whole grace.
            tokio::select! {
                biased;
                _ = term.lost() => false,
                () = self.quit.asked() => true,
            }
        } else {
            self.quit.was_asked().await
        };
        let asked = asked || leaves;
        let released = give_back(leadership, claim, asked);
        let (hooks, writer) = (&mut *self.hooks, &mut *self.writer);
        let ending = async {
            let lost = term.lost().await;
            if asked {
                hooks.lost(&term, why).await;
                return told;
            }
            let told = told.and_then(|()| writer.write(Event::Lost { reason: reason(lost.reason()) }));
            hooks.lost(&term, lost.reason()).await;
            told
        };
        // What the store says of it holds up no hook.
        let ((), told) = tokio::join!(released, ending);
        told?;
        Ok(if asked { Ended::Left } else { ended })
    }
}

/// Nothing is claimed any more when the office goes. For good: the line is left, too.
async fn give_back(leadership: Leadership<Unfenced>, claim: Option<Claim>, for_good: bool) {
    if let Some(claim) = claim {
        claim.end().await;
    }
    if for_good {
        // Whether it is certain is said when the client has closed.
        let _ = leadership.leave().await;
    }
}

async fn until(limit: Option<Instant>) {
    match limit {
        Some(limit) => sleep_until(limit).await,
        None => pending().await,
    }
}

/// The end of input, the end of the output's reader, SIGTERM or SIGINT.
struct Quit {
    input: oneshot::Receiver<()>,
    term: SignalListener,
    int: SignalListener,
    asked: bool,
    by_sigterm: bool,
}

impl Quit {
    fn new() -> Result<Quit, Failure> {
        let (ended, input) = oneshot::channel();
        // A thread, since input may come from anything; it ends with the process.
        std::thread::Builder::new()
            .name("input".into())
            .spawn(move || {
                // An input that cannot be read has ended, too.
                let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
                let _ = ended.send(());
            })
            .map_err(|error| Failure::error(format!("cannot read standard input: {error}")))?;
        let (term, int) =
            (SignalListener::new(SignalKind::terminate())?, SignalListener::new(SignalKind::interrupt())?);
        Ok(Quit { input, term, int, asked: false, by_sigterm: false })
    }

    /// Safe to cancel, and answers again once it has.
    async fn asked(&mut self) {
        if self.asked {
            return;
        }
        tokio::select! {
            _ = &mut self.input => {}
            () = self.term.heard() => self.by_sigterm = true,
            () = self.int.heard() => {}
            // Without a reader, the office is of no use.
            () = reader_gone() => {}
        }
        self.asked = true;
    }

    /// If SIGTERM has asked: from now on something else would have to ask again.
    fn forget_sigterm(&mut self) -> bool {
        let forgotten = std::mem::take(&mut self.by_sigterm);
        self.asked &= !forgotten;
        forgotten
    }

    async fn was_asked(&mut self) -> bool {
        tokio::select! {
            biased;
            () = self.asked() => true,
            () = ready(()) => false,
        }
    }
}
