//! `run`: a command that runs while this process leads, and in no two places at once.
//!
//! The library says who leads and until when; the guardian runs the command and stops all its
//! processes in time. This joins the two: every deadline goes to the guardian, and the office is
//! given back only when the guardian says that nothing of the command is left.

mod announce;
mod command;
mod signals;

use std::pin::pin;
use std::time::Duration;

use incumbent::{Candidacy, Client, Election, Leadership, LossReason, ResignError, Role, Term, Unfenced};
use incumbent_guardian::{Event, Exit, Guardian};
use rustix::process::Signal;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::read::quoted;
use super::{
    candidate_name, close, equipped, last_error, leave_within, say_what_is_waited_for, standing_client, value_bytes,
    witness_term,
};
use crate::args::RunArgs;
use crate::claims::{self, ClaimKeeper, LastWord};
use crate::failure::Failure;
use crate::guarding;
use crate::health;
use crate::heir::{self, HeirHooks};
use crate::logging;
use crate::output::{Console, printable, shell_word};
use crate::store_url::StoreUrl;
use crate::{block_on, look_for_free_descriptors};
use announce::Announcer;
use command::{CommandRun, Ended};
use signals::{Death, Signals};

/// Exit codes that are ours: a command's own are below, or 128 and more.
const LOST: u8 = 120;
const ELECTION_ENDED: u8 = 121;
pub(crate) const OUR_FAILURE: u8 = 125;

/// How long a command has to run for its end not to look like a failure to start.
const SETTLED: Duration = Duration::from_secs(10);
/// The rests between the starts of a command that ends at once, with `--forever`.
const FIRST_REST: Duration = Duration::from_millis(100);
const LONGEST_REST: Duration = Duration::from_secs(10);
/// The same where Ctrl-C went to the command: a second one has so long to reach us.
const TYPED_REST: Duration = Duration::from_secs(1);
/// The rest before another guardian is started.
const GUARDIAN_REST: Duration = Duration::from_secs(1);
/// How long a guardian that has nothing left to do may take to end: process 1 may be one that waits
/// for no orphans.
const GUARDIAN_END: Duration = Duration::from_secs(1);
/// The longest argument that a program can be given.
const LONGEST_ARGUMENT: usize = 128 * 1024 - 1;
/// How many timeouts a group of peers has for an election, with `--try`.
const TRIES: u32 = 5;
/// How long a store has to let us in line, with `--try`.
const TRY: Duration = Duration::from_secs(10);
/// How long one that was not elected asks who is.
const ASK: Duration = Duration::from_secs(2);

pub(crate) fn run(args: RunArgs, store: StoreUrl, console: &Console) -> Result<u8, Failure> {
    let line = args.command.iter().map(|word| word.len() + 1).sum::<usize>();
    if args.shell && line > LONGEST_ARGUMENT {
        let what =
            format!("the line for --shell has {line} bytes, and no program can be given more than 128 KiB at once");
        return Err(Failure::usage(what).next("put it in a file and run that"));
    }
    look_for_free_descriptors()?;
    // Before there are threads and descriptors that it could inherit.
    let (guardian, heir_guardian) = (guarding::start()?, heir::guardian_for(&args.candidate.ready)?);
    let mut death = None;
    let code = block_on(supervise(&args, store, (guardian, heir_guardian), console, &mut death))?;
    if let Some(death) = death {
        death.die();
    }
    Ok(code)
}

async fn supervise(
    args: &RunArgs,
    store: StoreUrl,
    (mut guardian, heir_guardian): (Guardian, Option<Guardian>),
    console: &Console,
    death: &mut Option<Death>,
) -> Result<u8, Failure> {
    let done = take_part(args, store, (&mut guardian, heir_guardian), console, death).await;
    // It may be stopped: then it is left to the process that reaps our orphans.
    let _ = timeout(GUARDIAN_END, guardian.end()).await;
    done
}

async fn take_part(
    args: &RunArgs,
    store: StoreUrl,
    (guardian, heir_guardian): (&mut Guardian, Option<Guardian>),
    console: &Console,
    death: &mut Option<Death>,
) -> Result<u8, Failure> {
    let mut signals = Signals::new()?;
    let began = Instant::now();
    let limit = wait_of(args).map(|wait| began + wait);
    let client = tokio::select! {
        client = standing_client(&args.candidate, &store) => client?,
        code = signals.leave_when_idle() => {
            *death = signals.typed(code).map(|by| Death { by, tell_group: false });
            return Ok(code);
        }
        () = until(limit) => return Err(no_answer_of_store()),
    };
    let name = candidate_name(&args.candidate);
    let announcer = Announcer::new(args.ready_file.clone(), console.clone());
    let grace = client.settings().grace;
    if client.group().is_some() && !args.forever {
        console
            .warn("a member of a group is long-lived: this one leaves the group when the command ends; use --forever");
    }
    let among_peers = client.group().is_some();
    let claims = ClaimKeeper::new(&store, console);
    let last_word = last_word_of(guardian);
    let ready = &args.candidate.ready;
    let heir = HeirHooks::start(ready, heir_guardian, &args.target.election, &name, grace, console);
    let mut supervisor = Supervisor {
        store,
        name,
        grace,
        began,
        among_peers,
        guardian,
        signals,
        announcer,
        claims,
        last_word,
        heir,
        args,
        console,
        death: None,
    };
    let done = supervisor.run(&client).await;
    supervisor.announcer.leave();
    *death = supervisor.death;
    let heir = supervisor.heir;
    close(client, console).await;
    if let Some(heir) = heir {
        heir.close().await;
    }
    done
}

/// How long to wait for the first election.
fn wait_of(args: &RunArgs) -> Option<Duration> {
    args.wait.or(args.try_once.then_some(TRY))
}

struct Supervisor<'a> {
    args: &'a RunArgs,
    console: &'a Console,
    store: StoreUrl,
    name: String,
    grace: Duration,
    /// Since when it waits for its first election.
    began: Instant,
    /// There is no store: this process is a member of a group.
    among_peers: bool,
    guardian: &'a mut Guardian,
    signals: Signals,
    announcer: Announcer,
    claims: ClaimKeeper,
    /// Where the guardian says that nothing of the command is left.
    last_word: Option<LastWord>,
    /// What is done before it takes over from a leader that hands over.
    heir: Option<HeirHooks>,
    /// Ctrl-C or Ctrl-\ was typed: how to end.
    death: Option<Death>,
}

/// What comes of waiting for the office.
enum Waited {
    Elected(Box<Leadership<Unfenced>>),
    Exit(u8),
}

impl Supervisor<'_> {
    async fn run(&mut self, client: &Client<Unfenced>) -> Result<u8, Failure> {
        let election = &self.args.target.election;
        let handle = client.election(election.as_str()).map_err(|error| Failure::usage(error.to_string()))?;
        let candidate = handle
            .candidate(self.name.as_str())
            .value(value_bytes(&self.args.candidate))
            .health(health::checks(&self.args.candidate.health))
            .hold_until_stopped()
            .work_is_guarded(claims::has_stopped);
        let candidate = equipped(candidate, &self.args.candidate);
        let candidate = self.heir.iter().fold(candidate, |candidate, heir| heir.equip(candidate));
        let mut limit = self.limit(client);
        let mut candidacy = match self.stand(candidate.stand(), limit).await? {
            Ok(candidacy) => candidacy,
            Err(code) => return Ok(code),
        };
        // In a group of peers the list of members says how others call it.
        self.name = candidacy.name().to_owned();
        let mut only_try = self.args.try_once;
        loop {
            let leadership =
                match self.await_office(&handle, &mut candidacy, limit.take(), std::mem::take(&mut only_try)).await? {
                    Waited::Elected(leadership) => *leadership,
                    Waited::Exit(code) => return Ok(code),
                };
            self.keep_last_word(true);
            if let Some(heir) = &self.heir {
                heir.elected().await;
            }
            witness_term(&handle, &leadership, &self.store, self.console);
            let guardian = u32::try_from(self.guardian.pid()).ok();
            let claim = self.claims.claim(&leadership.term(), &self.name, guardian);
            let ended = self.serve(&leadership).await?;
            if let Some(claim) = claim {
                claim.end().await;
            }
            if matches!(ended, Ended::GuardianDied) {
                self.console.warn("the guardian was killed, and the command with it");
            }
            let code = self.exit_code(&ended);
            let asked = match code {
                // One step: a candidate that resigns and leaves afterwards is elected once more in
                // between.
                Some(_) => self.give_back(leadership.leave()).await,
                None => self.give_back(leadership.resign()).await,
            };
            if let Some(code) = code {
                return Ok(code);
            }
            // The office was lost before the signal was heard: it asks to leave all the same.
            if let Some(code) = asked {
                return Ok(self.leave(code));
            }
            if matches!(ended, Ended::GuardianDied) {
                self.replace_guardian().await?;
                self.console.note(format!("{} goes back in line with another guardian", self.name));
            }
        }
    }

    /// Until when to wait for the first election. Peers have no line to look at: with `--try`
    /// they still get the time to elect a leader.
    fn limit(&self, client: &Client<Unfenced>) -> Option<Instant> {
        let only_tries_peers = self.args.wait.is_none() && self.args.try_once && self.among_peers;
        let wait = if only_tries_peers { Some(client.settings().ttl * TRIES) } else { wait_of(self.args) };
        wait.map(|wait| self.began + wait)
    }

    /// Gets in line. `Err`: the exit code.
    async fn stand(
        &mut self,
        standing: impl Future<Output = Result<Candidacy<Unfenced>, incumbent::StandError>>,
        limit: Option<Instant>,
    ) -> Result<Result<Candidacy<Unfenced>, u8>, Failure> {
        let mut standing = pin!(standing);
        let mut waiting = pin!(say_what_is_waited_for(self.console));
        loop {
            tokio::select! {
                candidacy = &mut standing => return Ok(Ok(candidacy?)),
                code = self.signals.leave_when_idle() => return Ok(Err(self.leave(code))),
                () = until(limit) => return Err(self.no_answer()),
                never = &mut waiting => match never {},
                event = self.guardian.event() => self.on_idle_guardian(event).await?,
            }
        }
    }

    /// Waits in line.
    async fn await_office(
        &mut self,
        election: &Election<Unfenced>,
        candidacy: &mut Candidacy<Unfenced>,
        limit: Option<Instant>,
        only_try: bool,
    ) -> Result<Waited, Failure> {
        let mut roles = candidacy.roles();
        loop {
            tokio::select! {
                biased;
                elected = candidacy.elected() => return match elected? {
                    Some(leadership) => Ok(Waited::Elected(Box::new(leadership))),
                    None => {
                        self.console.note(format!("{} has ended", self.args.target.election));
                        Ok(Waited::Exit(ELECTION_ENDED))
                    }
                },
                code = self.signals.leave_when_idle() => return Ok(Waited::Exit(self.leave(code))),
                // 122 says that somebody else leads, that it is paused, or that this one is not fit
                // for it. If none of these is known, the store or the group has not answered: a
                // failure.
                () = until(limit) => return match Obstacle::of(&candidacy.role(), candidacy) {
                    Some(obstacle) => Ok(Waited::Exit(self.not_elected(election, &obstacle).await)),
                    None => Err(self.no_answer()),
                },
                role = roles.next() => {
                    if only_try && let Some(obstacle) = Obstacle::of(&role, candidacy) {
                        return Ok(Waited::Exit(self.not_elected(election, &obstacle).await));
                    }
                    self.narrate(&role);
                }
                event = self.guardian.event() => self.on_idle_guardian(event).await?,
            }
        }
    }

    fn narrate(&mut self, role: &Role) {
        let election = &self.args.target.election;
        match role {
            Role::Following { ahead: None, token: None } => {
                self.console.note(format!("{} waits: nobody leads {election} yet", self.name));
                self.announcer.following("nobody yet");
            }
            Role::Following { ahead, token } => {
                let ahead = ahead.as_deref().map_or_else(|| "somebody".to_owned(), printable);
                let token = token.map_or_else(String::new, |token| format!(" (token {token})"));
                let text = match self.store.keeps_line() || self.among_peers {
                    true => format!("{} is in line for {election}, behind {ahead}{token}", self.name),
                    // There is no place to have.
                    false => format!("{} waits for {election}, which {ahead}{token} leads", self.name),
                };
                self.console.note(text);
                self.announcer.following(&ahead);
            }
            Role::Out(LossReason::Paused) => {
                let resume = format!("`incumbent resume {}` resumes it", quoted(election));
                self.console.note(format!("{election} is paused: nobody leads; {resume}"));
                self.announcer.following("nobody: the election is paused");
            }
            Role::Out(LossReason::Benched) => {
                let unbench = format!("`incumbent unbench {} {}`", quoted(election), shell_word(&self.name));
                self.console.note(format!("{} is benched and not in line, until {unbench}", self.name));
                self.announcer.following("nobody: it is benched");
            }
            // Why has been said when it was found out.
            Role::Out(LossReason::Unhealthy) => {
                self.console.note(format!("{} is unfit and not in line; it goes back once it is fit", self.name));
                self.announcer.unfit();
            }
            Role::Out(why @ (LossReason::Expired | LossReason::EntryDeleted | LossReason::LocalDeadline)) => {
                self.console.note(format!("{} is out of line, and goes back: {why}", self.name));
            }
            _ => {}
        }
    }

    /// Runs the command for as long as the term lasts. Answers when none of its processes is left.
    async fn serve(&mut self, leadership: &Leadership<Unfenced>) -> Result<Ended, Failure> {
        let term = leadership.term();
        let token = term.token_if_any().map(|token| token.get());
        let with = token.map_or_else(|| "without a token".to_owned(), |token| format!("with token {token}"));
        self.console.note(format!("{} leads {} {with}", self.name, self.args.target.election));
        self.announcer.leading(token);
        let spec = command::command(self.args, &self.name, &term, self.grace, leadership.was_ready());
        let mut rest = FIRST_REST;
        loop {
            let began = Instant::now();
            let program = self.args.command.first().map(|word| word.to_string_lossy()).unwrap_or_default();
            let stint = CommandRun {
                leadership,
                term: &term,
                spec: &spec,
                program: &program,
                grace: self.grace,
                leave_within: leave_within(&self.args.candidate, self.among_peers),
                console: self.console,
            };
            let ended = stint.run(self.guardian, &mut self.signals, &mut self.announcer).await?;
            let what = match ended {
                Ended::ByItself(exit) if !self.was_typed_at(exit) => format!("the command ended with {}", exit.code()),
                Ended::NotStarted(reason) if reason.is_transient() => "the command was not started".into(),
                _ => return Ok(ended),
            };
            if !self.args.forever {
                return Ok(ended);
            }
            rest = if began.elapsed() >= SETTLED { FIRST_REST } else { rest };
            let (least, leave) = match self.guardian.lent_terminal() {
                true => (TYPED_REST, ", unless you press Ctrl-C before"),
                false => (FIRST_REST, ""),
            };
            rest = rest.max(least);
            self.console.note(format!("{what}; it starts again in {rest:?}{leave}"));
            if let Some(ended) = self.rest(&term, rest).await? {
                return Ok(ended);
            }
            rest = (rest * 2).min(LONGEST_REST);
        }
    }

    /// Between two commands of one term. Something: the term is over, or we were asked to leave.
    async fn rest(&mut self, term: &Term<Unfenced>, rest: Duration) -> Result<Option<Ended>, Failure> {
        let mut rest = pin!(sleep(rest));
        loop {
            tokio::select! {
                biased;
                lost = term.stopping() => return Ok(Some(Ended::Lost(lost.reason()))),
                code = self.signals.leave_when_idle() => return Ok(Some(Ended::Left(self.leave(code)))),
                event = self.guardian.event() => self.on_idle_guardian(event).await?,
                () = &mut rest => return Ok(None),
            }
        }
    }

    /// The command is gone: the office can go. The exit code, if a signal asks not to wait for
    /// certainty.
    async fn give_back(&mut self, giving: impl Future<Output = Result<(), ResignError>>) -> Option<u8> {
        tokio::select! {
            biased;
            code = self.signals.leave_when_idle() => {
                self.console.note("not waiting for the store");
                Some(code)
            }
            given = giving => {
                match given {
                    Ok(()) => self.keep_last_word(false),
                    Err(error) => self.console.warn(error.to_string()),
                }
                None
            }
        }
    }

    /// Whether the record may say that a term of ours is open: then the guardian's word says that
    /// it is over, for the next one on this host.
    fn keep_last_word(&mut self, kept: bool) {
        self.last_word.iter_mut().for_each(|word| word.keep(kept));
    }

    /// We were asked to leave while no command runs.
    fn leave(&mut self, code: u8) -> u8 {
        self.death = self.signals.typed(code).map(|by| Death { by, tell_group: false });
        code
    }

    /// Whether Ctrl-C or Ctrl-\ was typed at the command and ended it: then it is not to run again.
    fn was_typed_at(&mut self, exit: Exit) -> bool {
        let key = [Signal::INT, Signal::QUIT].into_iter().find(|key| exit.code() == 128 + key.as_raw());
        let Some(key) = key.filter(|_| self.guardian.lent_terminal()) else { return false };
        // A command that catches the signal and exits with its code hides it from the shell, and so
        // do we.
        if exit == Exit::Signal(key.as_raw()) {
            self.death = Some(Death { by: key, tell_group: true });
        }
        true
    }

    fn exit_code(&self, ended: &Ended) -> Option<u8> {
        match *ended {
            Ended::ByItself(exit) => Some(code(exit.code())),
            Ended::NotStarted(reason) => Some(code(reason.code())),
            Ended::Left(code) => Some(code),
            Ended::Lost(LossReason::Ended) => {
                self.console.note(format!("{} has ended", self.args.target.election));
                Some(ELECTION_ENDED)
            }
            Ended::Lost(_) | Ended::GuardianDied if self.args.exit_on_loss => Some(LOST),
            Ended::Lost(_) | Ended::GuardianDied => None,
        }
    }

    async fn not_elected(&self, election: &Election<Unfenced>, obstacle: &Obstacle) -> u8 {
        let why = match obstacle {
            Obstacle::Unfit(how) => format!("it is {how}"),
            Obstacle::Paused => "the election is paused".to_owned(),
            Obstacle::Benched => "it is benched".to_owned(),
            Obstacle::Ahead(ahead) => match self.who_leads(election).await {
                Some(leader) => format!("{leader} leads"),
                None => format!("{ahead} is ahead"),
            },
        };
        let turn = if self.args.wait.is_some() { "its turn has not come: " } else { "" };
        self.console.note(format!("{} was not elected: {turn}{why}", self.name));
        self.args.conflict_exit_code
    }

    /// The candidate ahead in line need not lead. `None`: the store does not say at once, or it is
    /// this candidate by now.
    async fn who_leads(&self, election: &Election<Unfenced>) -> Option<String> {
        let leader = timeout(ASK, election.leader()).await.ok()?.ok()?.into_inner()?;
        let name = leader.name.as_deref().map_or_else(|| "a candidate of another library".to_owned(), printable);
        Some(name).filter(|name| *name != self.name)
    }

    /// This candidate did not get in line in time, so it is unknown whether another one does the
    /// work.
    fn no_answer(&self) -> Failure {
        if !self.among_peers {
            return no_answer_of_store();
        }
        let status = format!("`incumbent status {}`", quoted(&self.args.target.election));
        Failure::error(format!("the group elected nobody in time{}", last_error()))
            .next(format!("{status}, with the same --store, says which members are missing"))
    }

    /// No command runs, so a dead guardian does no harm; but the next command needs one.
    async fn on_idle_guardian(&mut self, event: Option<Event>) -> Result<(), Failure> {
        if matches!(event, Some(Event::GuardianDied) | None) {
            self.console.warn("the guardian was killed; starting another one");
            self.replace_guardian().await?;
        }
        Ok(())
    }

    async fn replace_guardian(&mut self) -> Result<(), Failure> {
        sleep(GUARDIAN_REST).await;
        // What the last one has said is not true of what the next one runs.
        if let Some(last_word) = self.last_word.take() {
            last_word
                .take_back()
                .map_err(|error| Failure::system("cannot take back a guardian's last word", &error))?;
        }
        *self.guardian = guarding::start_aside().await?;
        self.last_word = last_word_of(self.guardian);
        Ok(())
    }
}

/// Without it, a term that is left open waits for a person's word.
fn last_word_of(guardian: &Guardian) -> Option<LastWord> {
    let asked = LastWord::asked_of(guardian);
    asked.inspect_err(|error| tracing::debug!(%error, "the guardian cannot leave a last word")).ok()
}

fn no_answer_of_store() -> Failure {
    let last = logging::last_error();
    let why = last.as_ref().map_or_else(String::new, |error| format!(": {}", error.text));
    let failure = Failure::error(format!("the store has not answered in time{why}"));
    // An error that says what to do by itself has no other advice.
    let silent = Some("check that it is running and can be reached, then try again");
    match last.map_or(silent, |error| error.next) {
        Some(next) => failure.next(next),
        None => failure,
    }
}

/// Why waiting would be needed.
enum Obstacle {
    /// Somebody is ahead in line, or leads.
    Ahead(String),
    Paused,
    /// An operator keeps it out of the line.
    Benched,
    /// Its own health keeps it out of the line: who leads is another question.
    Unfit(String),
}

impl Obstacle {
    fn of(role: &Role, candidacy: &Candidacy<Unfenced>) -> Option<Obstacle> {
        match role {
            Role::Out(LossReason::Unhealthy) => Some(Obstacle::Unfit(candidacy.health().to_string())),
            // Among peers: nobody leads yet, and it may be this one.
            Role::Following { ahead: None, token: None } => None,
            Role::Following { ahead, .. } => {
                Some(Obstacle::Ahead(ahead.as_deref().map_or_else(|| "somebody".to_owned(), printable)))
            }
            Role::Out(LossReason::Paused) => Some(Obstacle::Paused),
            Role::Out(LossReason::Benched) => Some(Obstacle::Benched),
            _ => None,
        }
    }
}

async fn until(limit: Option<Instant>) {
    match limit {
        Some(limit) => sleep_until(limit).await,
        None => std::future::pending().await,
    }
}

/// As a process can report it.
fn code(code: i32) -> u8 {
    (code & 0xff) as u8
}
