//! The acts of an operator: transfer, resign, depose, pause, resume, freeze, unfreeze, ack, end.
//! Those about the bench are in `bench.rs`.
//!
//! Each returns once it has taken effect.

use std::cell::Cell;
use std::convert::Infallible;
use std::env;
use std::fmt;
use std::future::Future;
use std::time::{Duration, Instant};

use incumbent::{Election, ElectionName, Forecast, Operator, OperatorError, TransferPhase, Unfenced, Unfinished};
use serde::Serialize;

use super::read::{described, quoted};
use super::{election, last_error};
use crate::args::{
    AckArgs, ActArgs, DeposeArgs, EndArgs, FencedArgs, FreezeArgs, OrderArgs, PauseArgs, PeersAct, PeersArgs,
    ResignArgs, ResumeArgs, TransferArgs, UnfreezeArgs,
};
use crate::duration::show;
use crate::failure::{Code, Failure};
use crate::json::{CandidateJson, VERSION};
use crate::output::{Console, out, out_json};
use crate::store_url::StoreUrl;

/// How many characters of who gives an order are kept, each of four bytes at most.
const MOST_OF_A_NAME: usize = 60;
/// What to do when it is not known whether a single write was done.
pub(super) const OR_ELSE: &str = "check `incumbent status`, and repeat the command";

#[derive(Serialize)]
struct Done<'a> {
    v: u32,
    election: &'a str,
    done: &'static str,
    /// Who leads afterwards.
    leader: Option<CandidateJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
}

/// What a transfer would do.
#[derive(Serialize)]
struct WouldJson<'a> {
    v: u32,
    election: &'a str,
    would: &'static str,
    leader: CandidateJson,
    heir: CandidateJson,
    step_aside: Vec<CandidateJson>,
    leads_already: bool,
    /// What may keep it from coming about.
    doubts: Vec<&'static str>,
}

impl WouldJson<'_> {
    fn new<'a>(name: &'a ElectionName, forecast: &Forecast) -> WouldJson<'a> {
        WouldJson {
            v: VERSION,
            election: name.as_str(),
            would: "transfer",
            leader: CandidateJson::new(&forecast.leader),
            heir: CandidateJson::new(&forecast.heir),
            step_aside: forecast.step_aside.iter().map(CandidateJson::new).collect(),
            leads_already: forecast.leads_already,
            doubts: forecast.doubts.iter().map(|doubt| doubt.word()).collect(),
        }
    }
}

/// One act on one election.
pub(super) struct Act<'a> {
    verb: &'static str,
    pub(super) name: &'a ElectionName,
    pub(super) args: &'a ActArgs,
    pub(super) election: Election<Unfenced>,
    store: &'a StoreUrl,
    console: &'a Console,
    /// How far a transfer has come, and since when.
    phase: Cell<Option<(TransferPhase, Instant)>>,
}

/// What is left of a transfer that was not done in time.
struct LeftOfTransfer<'a>(&'a Act<'a>);

impl fmt::Display for LeftOfTransfer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = quoted(self.0.name);
        match self.0.phase.get() {
            Some((TransferPhase::Draining, _)) => write!(
                f,
                "the heir is ready and the request stands: the leader hands over once its work has stopped, or refuses; \
                 `incumbent status {name}` says how it went"
            ),
            _ => write!(f, "the request has been withdrawn, and `incumbent status {name}` says who leads"),
        }
    }
}

/// How long an operator waits without a word, and how often more is said.
const SILENCE: Duration = Duration::from_secs(3);

impl<'a> Act<'a> {
    pub(super) async fn new(
        verb: &'static str,
        args: &'a ActArgs,
        store: &'a StoreUrl,
        console: &'a Console,
    ) -> Result<Act<'a>, Failure> {
        let name = &args.target.election;
        Ok(Act { verb, name, args, election: election(name, store).await?, store, console, phase: Cell::new(None) })
    }

    /// Someone who orders it, by name and with a reason.
    pub(super) fn operator(&self, order: &OrderArgs) -> Operator {
        self.election.operator().by(order.by.clone().unwrap_or_else(user_at_host)).reason(&order.reason)
    }

    /// Carries it out. What is left if it is written and not done in time is said in `or_else`.
    pub(super) async fn carry_out<T>(
        &self,
        act: impl Future<Output = Result<T, OperatorError>>,
        or_else: impl fmt::Display,
    ) -> Result<T, Failure> {
        // The act itself keeps the time; this is for a store that does not answer at all.
        let limit = self.args.timeout + Duration::from_secs(1);
        let done = tokio::select! {
            done = tokio::time::timeout(limit, act) => done,
            never = self.say_what_is_waited_for() => match never {},
        };
        let done = match done {
            Ok(done) => done.map_err(|error| {
                // What it says holds only for what is known to be written.
                let is_written =
                    matches!(error, OperatorError::TimedOut { missing, .. } if missing != Unfinished::RecordWritten);
                let failure = Failure::of_act(error, &quoted(self.name));
                if is_written { failure.next(or_else.to_string()) } else { failure }
            }),
            Err(_) => Err(Failure::new(Code::Timeout, format!("not done within {}", show(limit)))),
        };
        done.map_err(|failure| {
            let failure = failure.doing(self.cannot());
            if failure.code == Code::Timeout { failure.next(self.nobody_knows()) } else { failure }
        })
    }

    pub(super) fn cannot(&self) -> String {
        match self.verb {
            "fenced" => format!("cannot say that the last leader of {} has stopped", self.name),
            "cancel" => format!("cannot cancel a transfer of {}", self.name),
            verb => format!("cannot {verb} {}", self.name),
        }
    }

    /// What to do when the store did not say whether it was written.
    fn nobody_knows(&self) -> String {
        format!("nobody knows whether it was written: look at `incumbent status {}`, and repeat it", quoted(self.name))
    }

    /// Says that nobody is there to heed an order: the name may be mistyped. A store that does not
    /// answer soon is left to the order itself.
    pub(super) async fn note_if_unknown(&self) {
        let Ok(Ok(reading)) = tokio::time::timeout(SILENCE, self.election.status()).await else { return };
        let status = reading.get();
        let ordered = status.paused.is_some() || status.frozen.is_some() || status.ended || status.deposed.is_some();
        let ordered = ordered || !status.benched.is_empty();
        if self.store.keeps_line()
            && status.group.is_none()
            && status.candidates.is_empty()
            && status.terms.is_empty()
            && !ordered
        {
            self.console.note(format!("nobody stands in {}: is the name right?", self.name));
        }
    }

    /// Says how far a transfer has come.
    fn note_phase(&self, phase: TransferPhase, heir: &str) {
        let since = self.phase.replace(Some((phase, Instant::now()))).map(|(_, since)| since.elapsed());
        let after = since.map_or_else(String::new, |since| format!(" after {}", show(since)));
        self.console.note(match phase {
            TransferPhase::Asked => format!("asked: the leader hands over once {heir} is next in line and ready"),
            TransferPhase::Preparing => format!("{heir} gets ready, and the leader leads on"),
            TransferPhase::Draining => format!("{heir} is ready{after}: the leader stops its work"),
            TransferPhase::Released => format!("released{after}: {heir} is first in line"),
            _ => return,
        });
    }

    /// What is waited for, if that is known.
    fn waited_for(&self) -> String {
        let Some((phase, since)) = self.phase.get() else { return String::new() };
        let what = match phase {
            TransferPhase::Asked => "others step aside, or the heir has not answered",
            TransferPhase::Preparing => "the heir gets ready",
            TransferPhase::Draining => "the leader stops its work",
            _ => "the heir takes office",
        };
        format!(": {what}, for {}", show(since.elapsed()))
    }

    /// Says now and then that it is not done yet, and what the store last answered.
    async fn say_what_is_waited_for(&self) -> Infallible {
        let began = Instant::now();
        loop {
            tokio::time::sleep(SILENCE).await;
            let so_far = show(began.elapsed());
            let (verb, name, phase) = (self.verb, self.name, self.waited_for());
            self.console.note(format!("{verb} of {name} is not done after {so_far}{phase}{}", last_error()));
        }
    }

    /// Says what would be done.
    fn foretell(&self, forecast: &Forecast) -> Result<u8, Failure> {
        if self.args.format.json {
            out_json(&WouldJson::new(self.name, forecast))?;
            return Ok(0);
        }
        let Forecast { leader, heir, step_aside, leads_already, doubts, .. } = forecast;
        out(&match leads_already {
            true => format!("nothing would be done: {} leads already", described(heir)),
            false => format!("would transfer: {} hands over to {}", described(leader), described(heir)),
        })?;
        for between in step_aside {
            out(&format!("{} would step aside", described(between)))?;
        }
        for doubt in doubts {
            out(&format!("but {doubt}"))?;
        }
        Ok(0)
    }

    /// Says that it is done, and who leads now.
    pub(super) async fn report(&self, what: &str, token: Option<u64>) -> Result<u8, Failure> {
        let leader = self.election.leader().await?.into_inner();
        if self.args.format.json {
            let leader = leader.as_ref().map(CandidateJson::new);
            out_json(&Done { v: VERSION, election: self.name.as_str(), done: self.verb, leader, token })?;
        } else {
            let now = match leader {
                Some(leader) => format!("{} leads now", described(&leader)),
                None if matches!(self.verb, "resume" | "unbench") => "candidates come back by themselves".to_owned(),
                None => "nobody leads now".to_owned(),
            };
            out(&format!("{what}: {now}"))?;
        }
        Ok(0)
    }
}

/// Who gives an order, unless it is said: the one who became root, rather than root.
pub(super) fn user_at_host() -> String {
    let mut named = ["SUDO_USER", "USER", "LOGNAME"].into_iter().filter_map(|name| env::var(name).ok());
    let user = named.find(|name| !name.is_empty());
    let user = user.unwrap_or_else(|| format!("user {}", rustix::process::getuid().as_raw()));
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let text = format!("{user}@{host}").replace(char::is_control, "");
    // Names of hosts are short; a variable can hold anything.
    text.chars().take(MOST_OF_A_NAME).collect()
}

pub(crate) async fn transfer(args: TransferArgs, store: StoreUrl, console: &Console) -> Result<u8, Failure> {
    let Some(to) = args.to.as_deref() else {
        let act = Act::new("cancel", &args.act, &store, console).await?;
        act.carry_out(act.election.operator().call_off(act.args.timeout), OR_ELSE).await?;
        return act.report("the transfer was called off", None).await;
    };
    let act = Act::new("transfer", &args.act, &store, console).await?;
    let operator = act.operator(&args.order);
    if args.dry_run {
        let forecast = act.carry_out(operator.foresee_transfer(to, act.args.timeout), OR_ELSE).await?;
        return act.foretell(&forecast);
    }
    let transfer = operator.transfer_and_tell(to, act.args.timeout, |phase| act.note_phase(phase, to));
    act.carry_out(transfer, LeftOfTransfer(&act)).await?;
    act.report("transferred", None).await
}

pub(crate) async fn resign(args: ResignArgs, store: StoreUrl, console: &Console) -> Result<u8, Failure> {
    let act = Act::new("resign", &args.act, &store, console).await?;
    let operator = act.operator(&args.order);
    let or_else = format!(
        "the request has been withdrawn; `incumbent depose {}` removes a leader that does not answer; step by step: \
         docs/runbooks.md#the-leader-is-unwell",
        quoted(act.name)
    );
    act.carry_out(operator.resign(act.args.timeout), &or_else).await?;
    act.report("resigned", None).await
}

pub(crate) async fn depose(args: DeposeArgs, store: StoreUrl, console: &Console) -> Result<u8, Failure> {
    let act = Act::new("depose", &args.act, &store, console).await?;
    let operator = act.operator(&args.order);
    let token = act.carry_out(operator.depose(args.token, act.args.timeout), OR_ELSE).await?;
    act.report(&format!("deposed the leader with token {token}"), Some(token.get())).await
}

pub(crate) async fn fenced(args: FencedArgs, store: StoreUrl, console: &Console) -> Result<u8, Failure> {
    let act = Act::new("fenced", &args.act, &store, console).await?;
    let operator = act.operator(&args.order);
    act.carry_out(operator.fenced(args.token, act.args.timeout), OR_ELSE).await?;
    act.report(&format!("the work with token {} has stopped, says the record", args.token), Some(args.token.get()))
        .await
}

pub(crate) async fn pause(args: PauseArgs, store: StoreUrl, console: &Console) -> Result<u8, Failure> {
    let act = Act::new("pause", &args.act, &store, console).await?;
    act.note_if_unknown().await;
    let operator = act.operator(&args.order);
    let or_else = format!(
        "nobody new will lead, but a candidate is still in line: `incumbent depose {0}` removes it, `incumbent resume \
         {0}` undoes the pause; step by step: docs/runbooks.md#the-leader-is-unwell",
        quoted(act.name)
    );
    act.carry_out(operator.pause(act.args.timeout), &or_else).await?;
    act.report("paused", None).await
}

pub(crate) async fn resume(args: ResumeArgs, store: StoreUrl, console: &Console) -> Result<u8, Failure> {
    let act = Act::new("resume", &args.act, &store, console).await?;
    let operator = act.election.operator();
    let Some(first) = args.first else {
        act.carry_out(operator.resume(act.args.timeout), OR_ELSE).await?;
        return act.report("resumed", None).await;
    };
    let or_else = format!(
        "nobody else leads until {first:?} does: is it running, and fit? `incumbent resume {}` lets everybody stand",
        quoted(act.name)
    );
    let operator = operator.by(user_at_host());
    act.carry_out(operator.resume_first(first, act.args.timeout), &or_else).await?;
    act.report("resumed", None).await
}

pub(crate) async fn freeze(args: FreezeArgs, store: StoreUrl, console: &Console) -> Result<u8, Failure> {
    let act = Act::new("freeze", &args.act, &store, console).await?;
    act.note_if_unknown().await;
    let operator = act.operator(&args.order);
    act.carry_out(operator.freeze(args.lasts, act.args.timeout), OR_ELSE).await?;
    act.report("frozen", None).await
}

pub(crate) async fn unfreeze(args: UnfreezeArgs, store: StoreUrl, console: &Console) -> Result<u8, Failure> {
    let act = Act::new("unfreeze", &args.act, &store, console).await?;
    let operator = act.election.operator();
    act.carry_out(operator.unfreeze(act.args.timeout), OR_ELSE).await?;
    act.report("unfrozen", None).await
}

pub(crate) async fn ack(args: AckArgs, store: StoreUrl, console: &Console) -> Result<u8, Failure> {
    let act = Act::new("ack", &args.act, &store, console).await?;
    let operator = act.election.operator();
    act.carry_out(operator.acknowledge(act.args.timeout), OR_ELSE).await?;
    act.report("acknowledged", None).await
}

pub(crate) async fn end(args: EndArgs, store: StoreUrl, console: &Console) -> Result<u8, Failure> {
    let act = Act::new("end", &args.act, &store, console).await?;
    act.note_if_unknown().await;
    let operator = act.operator(&args.order);
    let or_else =
        "the election has ended; candidates still in line leave when they hear of it, or when their sessions expire";
    act.carry_out(operator.end(act.args.timeout), or_else).await?;
    act.report("ended", None).await
}

pub(crate) async fn peers(args: PeersArgs, store: StoreUrl, console: &Console) -> Result<u8, Failure> {
    let or_else = "the request was delivered; `incumbent status` shows what is still missing";
    match args.act {
        PeersAct::Found(args) => {
            let act = Act::new("found", &args.act, &store, console).await?;
            act.carry_out(act.election.operator().found(act.args.timeout), or_else).await?;
            act.report("founded", None).await
        }
        PeersAct::Readmit(args) => {
            let act = Act::new("readmit", &args.act, &store, console).await?;
            let operator = act.election.operator();
            act.carry_out(operator.readmit(args.member.as_str(), act.args.timeout), or_else).await?;
            act.report("readmitted", None).await
        }
    }
}
