//! `campaign`: the office for programs in any language. Events go out, and the end of input gives the office back.

use std::io;
use std::time::Duration;

use incumbent::{Candidacy, Leadership, Loss, Role, Timestamp, Unfenced};
use serde::Serialize;
use tokio::signal::unix::SignalKind;
use tokio::sync::oneshot;

use super::{TIDY, candidate_name, last_error, say_what_is_waited_for, standing_client, value_bytes};
use crate::args::CampaignArgs;
use crate::facts::reason;
use crate::failure::{Code, Failure};
use crate::heeded::Heeded;
use crate::place::Place;
use crate::reader_gone::reader_gone;
use crate::say::{Say, out, out_json, printable};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Happened {
    Following { ahead: Option<String>, token: Option<u64> },
    Elected { token: Option<u64>, remaining_ms: Option<u64> },
    Stopping { reason: &'static str },
    Lost { reason: &'static str },
    Out { reason: &'static str },
    Resigned,
    Ended,
}

impl Happened {
    fn words(&self) -> String {
        match self {
            Happened::Following { ahead: Some(ahead), token: Some(token) } => {
                format!("following  behind {} (token {token})", printable(ahead))
            }
            Happened::Following { ahead: Some(ahead), token: None } => format!("following  {}", printable(ahead)),
            Happened::Following { ahead: None, token: Some(token) } => format!("following  behind token {token}"),
            Happened::Following { ahead: None, token: None } => "waiting    nobody leads".into(),
            Happened::Elected { token, remaining_ms } => {
                let token = token.map_or_else(|| "no token".to_owned(), |token| format!("token {token}"));
                let lasts = remaining_ms.map(|ms| crate::span::show(Duration::from_millis(ms)));
                let lasts =
                    lasts.map_or_else(|| "until further notice".to_owned(), |lasts| format!("for {lasts} at least"));
                format!("elected    {token}, {lasts}")
            }
            Happened::Stopping { reason } => format!("stopping   {reason}"),
            Happened::Lost { reason } => format!("lost       {reason}"),
            Happened::Out { reason } => format!("out        {reason}"),
            Happened::Resigned => "resigned".into(),
            Happened::Ended => "ended".into(),
        }
    }
}

/// Tells what happens, each thing once.
struct Teller {
    json: bool,
    last: Option<Happened>,
}

impl Teller {
    fn tell(&mut self, happened: Happened) -> Result<(), Failure> {
        if self.last.as_ref() == Some(&happened) {
            return Ok(());
        }
        if self.json {
            out_json(&happened)?
        } else {
            out(&happened.words())?
        }
        self.last = Some(happened);
        Ok(())
    }

    fn tell_role(&mut self, role: &Role) -> Result<(), Failure> {
        match role {
            Role::Following { ahead, token } => {
                let token = token.map(|token| token.get());
                self.tell(Happened::Following { ahead: ahead.as_deref().map(str::to_owned), token })
            }
            // A moment between two sessions, or between two places in line, is nobody's business.
            Role::Out(why @ (Loss::Paused | Loss::Unhealthy | Loss::Refused)) => {
                self.tell(Happened::Out { reason: reason(*why) })
            }
            _ => Ok(()),
        }
    }
}

pub(crate) async fn campaign(args: CampaignArgs, place: Place, say: &Say) -> Result<u8, Failure> {
    let client = standing_client(&args.standing, &place).await?;
    let name = candidate_name(&args.standing);
    let election =
        client.election(args.contest.election.as_str()).map_err(|error| Failure::usage(error.to_string()))?;
    let candidate = election.candidate(name).value(value_bytes(&args.standing));
    let mut quit = Quit::new()?;
    let mut teller = Teller { json: args.format.json, last: None };
    let outcome = async {
        let seat = tokio::select! {
            seat = candidate.stand() => seat?,
            () = quit.asked() => return left_before_it_was_in_line(),
            never = say_what_is_waited_for(say) => match never {},
        };
        hold(seat, &mut teller, &mut quit).await
    };
    let outcome = outcome.await;
    // Also when nobody reads any more, or something broke: the office is not left to expire.
    drop(election);
    if !client.close(TIDY).await {
        say.warn("the store has not confirmed that this candidate left; what is left goes with its session");
    }
    teller.tell(outcome?)?;
    Ok(0)
}

/// There is nothing to resign from; and if the store cannot be used, that is no success.
fn left_before_it_was_in_line() -> Result<Happened, Failure> {
    match last_error() {
        known if known.is_empty() => Ok(Happened::Resigned),
        error => Err(Failure::new(Code::Unavailable, format!("left before it was in line{error}"))),
    }
}

/// Stands, leads, loses and stands again, until there is a reason to leave for good.
async fn hold(mut seat: Candidacy<Unfenced>, teller: &mut Teller, quit: &mut Quit) -> Result<Happened, Failure> {
    let mut roles = seat.roles();
    loop {
        tokio::select! {
            biased;
            () = quit.asked() => return Ok(Happened::Resigned),
            elected = seat.elected() => match elected? {
                Some(office) => {
                    if !lead(office, teller, quit).await? {
                        return Ok(Happened::Resigned);
                    }
                }
                None => return Ok(Happened::Ended),
            },
            role = roles.next() => teller.tell_role(&role)?,
        }
    }
}

/// One term. `false`: the office was given back because we were asked to.
async fn lead(office: Leadership<Unfenced>, teller: &mut Teller, quit: &mut Quit) -> Result<bool, Failure> {
    let bounded = office.deadline() != Timestamp::MAX;
    let remaining_ms = bounded.then(|| u64::try_from(office.remaining().as_millis()).unwrap_or(u64::MAX));
    let token = office.token_if_any().map(|token| token.get());
    teller.tell(Happened::Elected { token, remaining_ms })?;
    let term = office.term();
    let lost = tokio::select! {
        biased;
        () = quit.asked() => {
            // Whether it is certain is said when the client has closed.
            let _ = office.leave().await;
            return Ok(false);
        }
        lost = term.stopping() => lost,
    };
    if term.check().is_ok() {
        teller.tell(Happened::Stopping { reason: reason(lost.reason()) })?;
    }
    let lost = tokio::select! {
        biased;
        lost = term.lost() => lost,
        () = quit.asked() => {
            let _ = office.leave().await;
            return Ok(false);
        }
    };
    teller.tell(Happened::Lost { reason: reason(lost.reason()) })?;
    Ok(true)
}

/// The end of input, the end of the output's reader, SIGTERM or SIGINT.
struct Quit {
    input: oneshot::Receiver<()>,
    term: Heeded,
    int: Heeded,
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
        let (term, int) = (Heeded::new(SignalKind::terminate())?, Heeded::new(SignalKind::interrupt())?);
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
            // An office that nobody hears of is of no use to anybody.
            () = reader_gone() => {}
        }
        self.asked = true;
    }
}
