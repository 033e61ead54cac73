//! `campaign`: the office for programs in any language. Events go out, and the end of input gives
//! the office back.

use std::io;
use std::time::Duration;

use incumbent::{Candidacy, Election, ElectionName, Leadership, LossReason, Role, Timestamp, Unfenced};
use serde::Serialize;
use tokio::signal::unix::SignalKind;
use tokio::sync::oneshot;

use super::{
    candidate_name, close, equipped, last_error, say_what_is_waited_for, standing_client, value_bytes, witness_term,
};
use crate::args::CampaignArgs;
use crate::claims::{Claim, ClaimKeeper};
use crate::failure::{Code, Failure};
use crate::health;
use crate::json::{VERSION, reason};
use crate::output::{Console, out, out_json, printable};
use crate::reader_gone::reader_gone;
use crate::signal_listener::SignalListener;
use crate::store_url::StoreUrl;

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
                let lasts = remaining_ms.map(|ms| crate::duration::show(Duration::from_millis(ms)));
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
            Role::Out(why @ (LossReason::Paused | LossReason::Unhealthy | LossReason::Refused)) => {
                self.write(Event::Out { reason: reason(*why) })
            }
            _ => Ok(()),
        }
    }
}

pub(crate) async fn campaign(args: CampaignArgs, store: StoreUrl, console: &Console) -> Result<u8, Failure> {
    let client = standing_client(&args.candidate, &store).await?;
    let name = candidate_name(&args.candidate);
    let election = client.election(args.target.election.as_str()).map_err(|error| Failure::usage(error.to_string()))?;
    let checks = health::checks(&args.candidate.health);
    let candidate = election.candidate(name).value(value_bytes(&args.candidate)).health(checks);
    // Its work is done by whoever reads what we say.
    let candidate = equipped(candidate.work_outlives_process(), &args.candidate);
    let mut quit = Quit::new()?;
    let mut writer = EventWriter { election: args.target.election, json: args.format.json, last: None };
    let outcome = async {
        let candidacy = tokio::select! {
            candidacy = candidate.stand() => candidacy?,
            () = quit.asked() => return left_before_it_was_in_line(),
            never = say_what_is_waited_for(console) => match never {},
        };
        hold(&election, candidacy, &store, console, &mut writer, &mut quit).await
    };
    let outcome = outcome.await;
    // Also when the reader has gone, or something broke: the office is not left to expire.
    drop(election);
    close(client, console).await;
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

/// Stands, leads, loses and stands again, until there is a reason to leave for good.
async fn hold(
    election: &Election<Unfenced>,
    mut candidacy: Candidacy<Unfenced>,
    store: &StoreUrl,
    console: &Console,
    writer: &mut EventWriter,
    quit: &mut Quit,
) -> Result<Event, Failure> {
    let mut roles = candidacy.roles();
    let mut claims = ClaimKeeper::new(store, console);
    loop {
        tokio::select! {
            biased;
            () = quit.asked() => return Ok(Event::Resigned),
            elected = candidacy.elected() => match elected? {
                Some(leadership) => {
                    witness_term(election, &leadership, store, console);
                    let claim = claims.claim(&leadership.term(), candidacy.name(), None);
                    if !lead(leadership, claim, writer, quit).await? {
                        return Ok(Event::Resigned);
                    }
                }
                None => return Ok(Event::Ended),
            },
            role = roles.next() => writer.write_role(&role)?,
        }
    }
}

/// One term. `false`: the office was given back because we were asked to.
async fn lead(
    leadership: Leadership<Unfenced>,
    claim: Option<Claim>,
    writer: &mut EventWriter,
    quit: &mut Quit,
) -> Result<bool, Failure> {
    let bounded = leadership.term().deadline() != Timestamp::MAX;
    let remaining_ms = bounded.then(|| u64::try_from(leadership.remaining().as_millis()).unwrap_or(u64::MAX));
    let token = leadership.token_if_any().map(|token| token.get());
    writer.write(Event::Elected { token, remaining_ms })?;
    let term = leadership.term();
    let lost = tokio::select! {
        biased;
        () = quit.asked() => {
            leave(leadership, claim).await;
            return Ok(false);
        }
        lost = term.stopping() => lost,
    };
    if term.check().is_ok() {
        writer.write(Event::Stopping { reason: reason(lost.reason()) })?;
    }
    let lost = tokio::select! {
        biased;
        lost = term.lost() => lost,
        () = quit.asked() => {
            leave(leadership, claim).await;
            return Ok(false);
        }
    };
    writer.write(Event::Lost { reason: reason(lost.reason()) })?;
    Ok(true)
}

/// Nothing is claimed any more when the office goes.
async fn leave(leadership: Leadership<Unfenced>, claim: Option<Claim>) {
    if let Some(claim) = claim {
        claim.end().await;
    }
    // Whether it is certain is said when the client has closed.
    let _ = leadership.leave().await;
}

/// The end of input, the end of the output's reader, SIGTERM or SIGINT.
struct Quit {
    input: oneshot::Receiver<()>,
    term: SignalListener,
    int: SignalListener,
    asked: bool,
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
        Ok(Quit { input, term, int, asked: false })
    }

    /// Safe to cancel, and answers again once it has.
    async fn asked(&mut self) {
        if self.asked {
            return;
        }
        tokio::select! {
            _ = &mut self.input => {}
            () = self.term.heard() => {}
            () = self.int.heard() => {}
            // Without a reader, the office is of no use.
            () = reader_gone() => {}
        }
        self.asked = true;
    }
}
