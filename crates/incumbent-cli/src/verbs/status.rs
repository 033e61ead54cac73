//! `status`: who leads and who waits; or why nobody leads, and what to do about it.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use incumbent::{
    BenchOrder, Benched, CandidateInfo, Deposed, Election, ElectionName, Frozen, GroupStatus, Handover, Order, Pending,
    Reading, Servers, Shot, Sighting, Silence, Status, TermRecord, Unfenced,
};
use serde::Serialize;

use super::history::what_came_of;
use super::list::followers;
use super::read::{described, priority, quoted};
use super::screen::{self, Shown};
use super::{awaited_election, older_than_seen, seen_election};
use crate::args::StatusArgs;
use crate::duration::{ms, show};
use crate::failure::{Code, Failure, fenced_command};
use crate::json::{self, CandidateJson, VERSION};
use crate::output::{Console, Paint, json_text, out, printable, said, shell_word};
use crate::store_url::StoreUrl;

/// How many followers are named before the rest is only counted.
const NAMED: usize = 10;

/// Who waits, where nobody can say.
const NO_LINE: &str = "unknown: this store keeps no line";

#[derive(Serialize)]
pub(super) struct StatusJson<'a> {
    v: u32,
    election: &'a str,
    store: String,
    leader: Option<CandidateJson>,
    /// Null: this store keeps no line.
    followers: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vacant_because: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fencing: Option<FencingJson>,
    paused: Option<OrderJson>,
    /// The one that may stand all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<String>,
    frozen: Option<FrozenJson>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    benched: Vec<BenchedJson>,
    handover: Option<HandoverJson>,
    ended: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    held_back: Option<HeldBackJson>,
    /// Somebody is healing it.
    #[serde(skip_serializing_if = "Option::is_none")]
    recovery: Option<RecoveryJson>,
    /// For how long nothing has been heard from the leader, where the store can say.
    #[serde(skip_serializing_if = "Option::is_none")]
    silent_ms: Option<u64>,
    /// For how long yet nobody takes office.
    #[serde(skip_serializing_if = "Option::is_none")]
    quiet_ms: Option<u64>,
    /// Why nothing is decided now.
    #[serde(skip_serializing_if = "Option::is_none")]
    stalled: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<GroupJson>,
    /// Of a store that a majority of servers keeps.
    #[serde(skip_serializing_if = "Option::is_none")]
    servers: Option<ServersJson>,
    /// This host has seen this token there: the store is older than it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    seen_token: Option<u64>,
    age_ms: u64,
}

/// The last leader that the first in line stops from outside, and what came of it.
#[derive(Serialize)]
struct FencingJson {
    token: u64,
    result: &'static str,
    attempt: u32,
    order: OrderJson,
}

/// A group of peers, as it answers.
#[derive(Serialize)]
struct GroupJson {
    members: usize,
    answering: usize,
    needed: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waits_for: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_voting: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refusing: Vec<String>,
}

/// The servers of a store that a majority of them keeps, as they answer.
#[derive(Serialize)]
struct ServersJson {
    servers: usize,
    answering: usize,
    needed: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<MissingJson>,
}

#[derive(Serialize)]
struct MissingJson {
    server: String,
    why: String,
}

impl ServersJson {
    fn new(servers: &Servers) -> ServersJson {
        let missing = servers.missing.iter();
        let missing = missing.map(|(server, why)| MissingJson { server: server.to_string(), why: why.to_string() });
        let (answering, needed) = (servers.answering(), servers.needed);
        ServersJson { servers: servers.count, answering, needed, missing: missing.collect() }
    }
}

/// Who ordered something, and why.
#[derive(Serialize)]
pub(super) struct OrderJson {
    reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_ms: Option<u64>,
}

impl OrderJson {
    pub(super) fn new(order: &Order) -> OrderJson {
        let at_ms = Some(order.at_ms).filter(|at| *at > 0);
        OrderJson { reason: order.reason.to_string(), by: order.by.to_string(), at_ms }
    }
}

#[derive(Serialize)]
pub(super) struct FrozenJson {
    #[serde(flatten)]
    order: OrderJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    lasts_ms: Option<u64>,
}

impl FrozenJson {
    pub(super) fn new(frozen: &Frozen) -> FrozenJson {
        let lasts_ms = frozen.lasts.map(ms);
        FrozenJson { order: OrderJson::new(&frozen.order), lasts_ms }
    }
}

/// A name that is kept out of the line.
#[derive(Serialize)]
pub(super) struct BenchedJson {
    name: String,
    #[serde(flatten)]
    order: OrderJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    lasts_ms: Option<u64>,
    /// Only where it is so.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    leaves_anyway: bool,
}

impl BenchedJson {
    fn new(order: &BenchOrder) -> BenchedJson {
        let (name, lasts_ms) = (order.name.to_string(), order.lasts.map(ms));
        BenchedJson { name, order: OrderJson::new(&order.order), lasts_ms, leaves_anyway: order.vacates }
    }
}

#[derive(Serialize)]
struct HandoverJson {
    from: u64,
    to: Option<u64>,
    /// Only where it is so.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    for_health: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    for_bench: bool,
    #[serde(flatten)]
    order: OrderJson,
}

#[derive(Serialize)]
struct RecoveryJson {
    id: String,
    step: String,
    #[serde(flatten)]
    order: OrderJson,
}

#[derive(Serialize)]
struct HeldBackJson {
    token: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_ms: Option<u64>,
}

/// Why nobody leads.
#[derive(Clone, Copy)]
pub(super) enum Vacancy<'a> {
    Paused,
    /// The same, until the candidate of this name leads.
    WaitsFor(&'a str),
    Ended,
    /// Another server of the store has taken over, and nobody takes office for so long yet.
    TakenOver(Duration),
    /// An operator removed a leader, and none is known to have come after it.
    Deposed(&'a Deposed),
    NoCandidates,
    /// The same, and these names are kept out of the line.
    Benched(&'a Benched),
    /// The first in line is not in office yet, or no longer.
    Pending(&'a CandidateInfo, Pending),
    /// Of peers: too few answer.
    NoMajority(&'a GroupStatus),
    /// Of peers: they have never been complete.
    Forming(&'a GroupStatus),
    /// Of peers: too many have lost their votes.
    StateLost(&'a GroupStatus),
    /// Of peers: some of them take us for a member of another group.
    Refused(&'a GroupStatus),
    /// Of peers: they are at it.
    Electing,
}

impl<'a> Vacancy<'a> {
    pub(super) fn of(status: &'a Status) -> Option<Vacancy<'a>> {
        if !status.vacant {
            return None;
        }
        if let Some(group) = &status.group {
            return Some(match group {
                group if !group.refusing.is_empty() && (group.forming || group.answering < group.needed) => {
                    Vacancy::Refused(group)
                }
                group if group.forming => Vacancy::Forming(group),
                group if group.answering < group.needed => Vacancy::NoMajority(group),
                group if group.answering < group.needed + group.not_voting.len() => Vacancy::StateLost(group),
                _ => Vacancy::Electing,
            });
        }
        // Before what was ordered, which goes on to count: its work has not stopped for it yet.
        if let (Some(head), Some(Pending::Holding)) = (status.candidates.first(), status.pending) {
            Some(Vacancy::Pending(head, Pending::Holding))
        } else if status.paused.is_some() {
            Some(status.first.as_deref().map_or(Vacancy::Paused, Vacancy::WaitsFor))
        } else if status.ended {
            Some(Vacancy::Ended)
        } else if let Some(quiet) = status.quiet {
            Some(Vacancy::TakenOver(quiet))
        } else if let (Some(head), Some(pending)) = (status.candidates.first(), status.pending) {
            Some(Vacancy::Pending(head, pending))
        } else if let Some(deposed) = last_deposed(status) {
            Some(Vacancy::Deposed(deposed))
        } else if !status.benched.is_empty() {
            Some(Vacancy::Benched(&status.benched))
        } else {
            Some(Vacancy::NoCandidates)
        }
    }

    /// Whether an operator wants it so.
    pub(super) fn is_ordered(self) -> bool {
        matches!(self, Vacancy::Paused | Vacancy::WaitsFor(_) | Vacancy::Ended)
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Vacancy::Paused | Vacancy::WaitsFor(_) => "paused",
            Vacancy::Ended => "ended",
            Vacancy::TakenOver(_) => "taken_over",
            Vacancy::Deposed(_) => "deposed",
            Vacancy::NoCandidates => "no_candidates",
            Vacancy::Benched(_) => "benched",
            Vacancy::Pending(_, pending) => pending_word(pending),
            Vacancy::NoMajority(_) => "no_majority",
            Vacancy::Forming(_) => "forming",
            Vacancy::StateLost(_) => "state_lost",
            Vacancy::Refused(_) => "refused",
            Vacancy::Electing => "electing",
        }
    }

    /// `at_large`: the token of a last leader that is not known to have stopped.
    fn sentence(self, name: &ElectionName, store: &StoreUrl, at_large: Option<u64>) -> String {
        let name = quoted(name);
        match self {
            Vacancy::Paused => {
                format!("Nobody leads because the election is paused. `incumbent resume {name}` resumes it.")
            }
            Vacancy::WaitsFor(first) => format!(
                "Nobody leads because the election is paused until {} leads: is it running, and fit? `incumbent resume \
                 {name}` lets everybody stand.",
                printable(first)
            ),
            Vacancy::Ended => format!(
                "Nobody leads because the election was ended, and nobody has stood since. The next candidate starts \
                 afresh: `incumbent run {name} -- COMMAND`."
            ),
            Vacancy::TakenOver(quiet) => format!(
                "Nobody leads for another {}: another server of the store has taken over, and whoever led before may \
                 believe so for that long. Candidates wait for that, and lead again by themselves.",
                show(quiet)
            ),
            // One that leads for a moment leaves the note of it behind.
            Vacancy::Deposed(deposed) => format!(
                "Nobody leads because nobody is in line. The leader with token {} was deposed{}. Is a candidate running? \
                 `incumbent run {name} -- COMMAND`.",
                deposed.token,
                when_and_why(&deposed.order)
            ),
            Vacancy::NoMajority(group) => format!(
                "Nobody leads, as far as can be seen: {} of {} members answer, and {} are needed. Start the others, or check \
                 that they can be reached.",
                group.answering, group.members, group.needed
            ),
            Vacancy::Forming(group) => is_forming(group, &name),
            Vacancy::StateLost(group) => has_lost_votes(group, &name),
            Vacancy::Refused(group) => format!(
                "Nobody leads, as far as can be seen: {} of {} members answer. {}. One group holds one election: all its \
                 members, and all who ask them, have to name the same election, members and secret.",
                group.answering,
                group.members,
                refusals(&group.refusing)
            ),
            Vacancy::Electing => {
                "Nobody leads at the moment: the members are about to elect somebody, unless none of them stands."
                    .to_owned()
            }
            Vacancy::Pending(head, Pending::Leaving) => {
                format!(
                    "Nobody leads at the moment: {} has stopped its work, and its place in line goes next.",
                    described(head)
                )
            }
            Vacancy::Pending(head, Pending::Holding) => format!(
                "Nobody leads at the moment: {} leads no more, and keeps its place until its work has stopped, as it was \
                 told to (hold_until_stopped). Its log says why it had to stop; its place goes as soon as the work has \
                 ended, or its process has.",
                described(head)
            ),
            Vacancy::Pending(head, Pending::Fencing) => format!(
                "Nobody leads yet: {} is first in line, and stops the work of the last leader from outside first. \
                 `incumbent history {name}` shows what came of it; once you have checked that this work has stopped, \
                 `{}` says so.",
                described(head),
                fenced_command(&name, at_large)
            ),
            Vacancy::Pending(head, _) => format!(
                "Nobody leads yet: {} is first in line and takes office once its fences are raised and its term is on \
                 record. If that lasts, its log says what it waits for; does the store take writes?",
                described(head)
            ),
            Vacancy::Benched(benched) => {
                let names: Vec<_> = benched.iter().map(|order| printable(&order.name)).collect();
                let first = benched.iter().next().map_or_else(String::new, |order| shell_word(&order.name));
                format!(
                    "Nobody leads because nobody is in line, and {} may not stand: `incumbent unbench {name} {first}` lets \
                     it. Is any other candidate running, and fit?",
                    names.join(" and ")
                )
            }
            Vacancy::NoCandidates => {
                let why = if store.keeps_line() { " because nobody is in line" } else { "" };
                format!(
                    "Nobody leads{why}. Is a candidate running, with exactly this store and this name, and is it fit? \
                     `incumbent run {name} -- COMMAND` starts one."
                )
            }
        }
    }
}

/// The last leader, while the first in line stops its work from outside, and what came of that so
/// far.
fn shot_at(status: &Status) -> Option<(&TermRecord, &Shot)> {
    status.pending.filter(|pending| *pending == Pending::Fencing)?;
    let term = status.terms.iter().rev().find(|term| term.is_at_large())?;
    Some((term, term.fence.as_ref()?))
}

/// The token of the last leader whose work may go on.
pub(super) fn at_large(status: &Status) -> Option<u64> {
    status.terms.iter().rev().find(|term| term.is_at_large()).map(|term| term.token.get())
}

/// The leader that was removed, unless it is on record that another one led since.
fn last_deposed(status: &Status) -> Option<&Deposed> {
    let since = |deposed: &&Deposed| status.terms.iter().all(|term| term.token <= deposed.token);
    status.deposed.as_ref().filter(since)
}

/// ` by ada@ops1: new disk, 3 min ago`
fn when_and_why(order: &Order) -> String {
    let ago = age(order).map_or_else(String::new, |age| format!(", {} ago", show(age)));
    printable(&format!(" {order}{ago}"))
}

fn is_forming(group: &GroupStatus, name: &str) -> String {
    let waits_for = match &group.waits_for[..] {
        [] => String::new(),
        missing => format!(", and they wait for {}", listed(missing)),
    };
    format!(
        "Nobody leads because the group has never been complete: {} of {} members answer{waits_for}. Its first election \
         waits until all of them have been up at the same time, once. If some will not come, and nobody has ever voted in \
         this group, `incumbent peers found {name}` lets the others begin: see its --help.",
        group.answering, group.members
    )
}

fn has_lost_votes(group: &GroupStatus, name: &str) -> String {
    format!(
        "Nobody leads because {} cannot vote: what they had written down is lost, or cannot be written. {} of {} members \
         vote, and {} are needed. `incumbent peers readmit {name} --member NAME` lets one that lost its votes come back, \
         and the others follow: see its --help first.",
        listed(&group.not_voting),
        group.answering - group.not_voting.len(),
        group.members,
        group.needed
    )
}

pub(crate) async fn status(args: StatusArgs, store: StoreUrl, console: &Console) -> Result<u8, Failure> {
    let name = &args.target.election;
    let shown = |reading: &Reading<Status>, seen: Option<Sighting>| match args.format.json {
        true => {
            json_text(&StatusJson { seen_token: seen.map(|seen| seen.token.get()), ..to_json(name, &store, reading) })
        }
        false => {
            let warning = seen.map(|seen| warning(&older_than_seen(name, seen)));
            Ok(page(name, &store, reading.get()).into_iter().chain(warning).collect::<Vec<_>>().join("\n"))
        }
    };
    if args.watch.watch {
        let election = awaited_election(name, &store, console).await?;
        let read = async || {
            let reading = election.status().await?;
            let seen = seen_later(&election, reading.get()).await;
            Ok(Shown { text: shown(&reading, seen)?, news: format!("{:?}{seen:?}", without_ages(reading.get())) })
        };
        return screen::watch(console, read).await;
    }
    let election = seen_election(name, &store).await?;
    let reading = election.status().await?;
    said(out(&shown(&reading, seen_later(&election, reading.get()).await)?))?;
    Ok(if Vacancy::of(reading.get()).is_some() { Code::No as u8 } else { 0 })
}

/// Whom this host has seen that came after the one who leads. It is asked for beside the status,
/// and its failure is none of the status.
async fn seen_later(election: &Election<Unfenced>, status: &Status) -> Option<Sighting> {
    status.leader()?;
    election.seen_later().await.ok().flatten()
}

fn warning(text: &str) -> String {
    let paint = Paint::for_stream(&io::stdout());
    paint.row(9, "warning", &paint.red(text))
}

/// What was read, without what is another at every look.
pub(super) fn without_ages(status: &Status) -> Status {
    let mut status = status.clone();
    status.silence = None;
    status.quiet = status.quiet.map(|_| Duration::ZERO);
    // Why one does not count may say for how long.
    let missing = status.servers.iter_mut().flat_map(|servers| &mut servers.missing);
    missing.for_each(|(_, why)| *why = Arc::default());
    status
}

/// The state for programs.
pub(super) fn to_json<'a>(name: &'a ElectionName, store: &StoreUrl, reading: &Reading<Status>) -> StatusJson<'a> {
    let status = reading.get();
    StatusJson {
        v: VERSION,
        election: name.as_str(),
        store: store.to_string(),
        leader: status.leader().map(CandidateJson::new),
        followers: store.keeps_line().then(|| followers(status)),
        vacant_because: Vacancy::of(status).map(Vacancy::word),
        fencing: shot_at(status).map(|(term, shot)| FencingJson {
            token: term.token.get(),
            result: shot.result.word(),
            attempt: shot.attempt,
            order: OrderJson::new(&shot.order),
        }),
        paused: status.paused.as_ref().map(OrderJson::new),
        first: status.first.as_deref().map(str::to_owned),
        frozen: status.frozen.as_ref().map(FrozenJson::new),
        benched: status.benched.iter().map(BenchedJson::new).collect(),
        handover: status.handover.as_ref().map(|handover| HandoverJson {
            from: handover.from.get(),
            to: handover.heir.as_ref().map(|heir| heir.token.get()),
            for_health: handover.for_health,
            for_bench: handover.for_bench,
            order: OrderJson::new(&handover.order),
        }),
        ended: status.ended,
        held_back: status.held_back.map(|held_back| HeldBackJson {
            token: held_back.token.get(),
            at_ms: Some(held_back.at_ms).filter(|at| *at > 0),
        }),
        recovery: status.recovery.as_ref().map(|recovery| RecoveryJson {
            id: recovery.id.to_string(),
            step: recovery.step.to_string(),
            order: OrderJson::new(&recovery.order),
        }),
        silent_ms: status.silence.map(|silence| ms(silence.lasts)),
        quiet_ms: status.quiet.map(ms),
        stalled: status.stalled.as_deref().map(str::to_owned),
        group: status.group.as_ref().map(|group| GroupJson {
            members: group.members,
            answering: group.answering,
            needed: group.needed,
            waits_for: group.waits_for.iter().map(ToString::to_string).collect(),
            not_voting: group.not_voting.iter().map(ToString::to_string).collect(),
            refusing: group.refusing.iter().map(|(name, _)| name.to_string()).collect(),
        }),
        servers: status.servers.as_ref().map(ServersJson::new),
        seen_token: None,
        age_ms: ms(reading.age()),
    }
}

/// The state for people.
pub(super) fn page(name: &ElectionName, store: &StoreUrl, status: &Status) -> Vec<String> {
    let mut page = Page { paint: Paint::for_stream(&io::stdout()), rows: Vec::new() };
    page.row("election", &page.paint.bold(&printable(name.as_str())));
    page.row("store", &printable(&store.to_string()));
    page.leader(store, status);
    page.orders(name, status);
    if let Some(why) = &status.stalled {
        page.notable("stalled", &printable(why));
    }
    if let Some(vacancy) = Vacancy::of(status) {
        let runbook = if vacancy.is_ordered() { "" } else { "\nStep by step: docs/runbooks.md#nobody-leads" };
        page.rows.push(format!("\n{}{runbook}", vacancy.sentence(name, store, at_large(status))));
    }
    page.rows
}

struct Page {
    paint: Paint,
    rows: Vec<String>,
}

impl Page {
    fn row(&mut self, label: &str, text: &str) {
        self.rows.push(self.paint.row(9, label, text));
    }

    /// What is not as it mostly is.
    fn notable(&mut self, label: &str, text: &str) {
        self.row(label, &self.paint.yellow(text));
    }

    /// Who leads, and who else is there.
    fn leader(&mut self, store: &StoreUrl, status: &Status) {
        match status.candidates.split_first().filter(|_| !status.vacant) {
            Some((leader, followers)) => {
                let text = format!("{}{}", described(leader), priority(leader, ", "));
                self.row("leader", &self.paint.green(&text));
                match status.silence {
                    Some(silence) if is_late(silence) => self.notable("last seen", &heard_of(silence)),
                    Some(silence) => self.row("last seen", &heard_of(silence)),
                    None => {}
                }
                self.row("in line", &if store.keeps_line() { in_line(followers) } else { NO_LINE.to_owned() });
                if let Some(why) = why_it_stays(status, followers) {
                    self.notable("stays", &why);
                }
            }
            None => self.notable("leader", "nobody"),
        }
        if let Some((term, shot)) = shot_at(status) {
            self.notable("fencing", &format!("token {}: {}", term.token, what_came_of(shot)));
        }
        if let Some(group) = &status.group {
            self.row("members", &format!("{} of {} answer", group.answering, group.members));
            if !group.not_voting.is_empty() {
                let text = format!("{}: their votes are lost, or cannot be written", listed(&group.not_voting));
                self.notable("no vote", &text);
            }
        }
        if let Some(servers) = &status.servers {
            match servers_missing(servers) {
                Some(text) => self.notable("servers", &printable(&text)),
                None => self.row("servers", &format!("all {} answer", servers.count)),
            }
        }
    }

    /// What was ordered, and what health has come to.
    fn orders(&mut self, name: &ElectionName, status: &Status) {
        if let Some(order) = &status.paused {
            self.notable("paused", &ordered(order));
        }
        if let Some(recovery) = &status.recovery {
            let (id, step, order) = (&recovery.id, &recovery.step, &recovery.order);
            let text = format!("{id} is at step {step} (by {}{})", order.by, ago(order.at_ms));
            self.notable("recovery", &printable(&text));
        }
        if let Some(frozen) = &status.frozen {
            let lasts = frozen.lasts.map_or_else(String::new, |lasts| format!("; for {}", show(lasts)));
            self.notable("frozen", &format!("{}{lasts}", ordered(&frozen.order)));
        }
        for order in status.benched.iter() {
            let lasts = order.lasts.map_or_else(String::new, |lasts| format!("; for {}", show(lasts)));
            let (who, said) = (printable(&order.name), ordered(&order.order));
            let said = said.strip_prefix("yes: ").unwrap_or(&said);
            let undo = format!("incumbent unbench {} {}", quoted(name), shell_word(&order.name));
            self.notable("benched", &format!("{who}: {said}{lasts}; until `{undo}`"));
        }
        if let Some(held_back) = status.held_back {
            let (ago, name) = (ago(held_back.at_ms), quoted(name));
            let what = "three changes for health within ten minutes";
            self.notable("held back", &format!("{what}{ago}: health moves nothing until `incumbent ack {name}`"));
        }
        if let Some(handover) = &status.handover {
            self.row("handover", &under_way(handover));
        }
        if status.ended && !status.vacant {
            self.notable("ended", "yes: candidates from before leave as they hear of it; those that came later stay");
        }
    }
}

fn under_way(handover: &Handover) -> String {
    let heir = handover.heir.as_ref();
    let to = heir.map_or_else(|| "the next in line".to_owned(), |heir| format!("token {}", heir.token));
    let by = match handover {
        handover if handover.for_health => ", since the leader is unwell".to_owned(),
        handover if handover.for_bench => ", since the leader is benched".to_owned(),
        handover if handover.order.by.is_empty() => String::new(),
        handover => format!(", {}", printable(&handover.order.to_string())),
    };
    format!("from token {} to {to}, under way{by}", handover.from)
}

/// `, 3 min ago`, as far as that is known.
fn ago(at_ms: u64) -> String {
    since(at_ms).map_or_else(String::new, |since| format!(", {} ago", show(since)))
}

/// `yes: new disk (by ada@ops1, 3 min ago)`
pub(super) fn ordered(order: &Order) -> String {
    let reason = if order.reason.is_empty() { "yes".to_owned() } else { format!("yes: {}", order.reason) };
    let by = Some(format!("by {}", order.by)).filter(|_| !order.by.is_empty());
    let ago = age(order).map(|age| format!("{} ago", show(age)));
    let known: Vec<_> = by.into_iter().chain(ago).collect();
    let known = if known.is_empty() { String::new() } else { format!(" ({})", known.join(", ")) };
    printable(&format!("{reason}{known}"))
}

/// How long ago it was ordered, as far as the wall clock here and the one there agree.
pub(super) fn age(order: &Order) -> Option<Duration> {
    since(order.at_ms)
}

/// How long ago that was, in milliseconds since 1970.
pub(super) fn since(at_ms: u64) -> Option<Duration> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    (at_ms > 0).then(|| now.saturating_sub(Duration::from_millis(at_ms)))
}

/// It is renewed every third of the TTL: by now it should have been.
pub(super) fn is_late(silence: Silence) -> bool {
    silence.lasts > silence.ttl / 2
}

fn heard_of(silence: Silence) -> String {
    let lasts = show(silence.lasts);
    if is_late(silence) {
        format!("{lasts} ago: is it stopped? After {} of silence the next one in line takes over", show(silence.ttl))
    } else {
        format!("{lasts} ago")
    }
}

/// What the first in line is at that is not in office.
pub(super) fn pending_word(pending: Pending) -> &'static str {
    match pending {
        Pending::Leaving => "leaving",
        Pending::Fencing => "fencing",
        Pending::Holding => "holding",
        _ => "taking",
    }
}

/// Which servers of a store that a majority keeps are missing, why, and how many more it can do
/// without.
pub(super) fn servers_missing(servers: &Servers) -> Option<String> {
    let missing: Vec<_> = servers.missing.iter().map(|(server, why)| format!("{server} ({why})")).collect();
    let (count, spare) = (servers.count, servers.spare());
    let rest = match spare {
        0 => "if another one is lost, there are no elections".to_owned(),
        _ => format!("{spare} more may be lost"),
    };
    let answering = servers.answering();
    (!missing.is_empty()).then(|| format!("{answering} of {count} servers answer: {rest}; {}", missing.join("; ")))
}

fn listed(names: &[Arc<str>]) -> String {
    printable(&names.join(" and "))
}

fn refusals(refusing: &[(Arc<str>, &'static str)]) -> String {
    let each: Vec<_> = refusing.iter().map(|(name, why)| format!("{} refuses to: {why}", printable(name))).collect();
    each.join("; ")
}

fn named(one: &CandidateInfo) -> String {
    let token = one.token.map_or_else(String::new, |token| format!(" ({token})"));
    let unwell = if one.unwell { " unwell" } else { "" };
    format!("{}{token}{unwell}{}", json::name(one), priority(one, " "))
}

/// Why a leader that is unwell or benched is still there. What holds it has a row of its own.
fn why_it_stays(status: &Status, followers: &[CandidateInfo]) -> Option<String> {
    let held = status.frozen.is_some() || status.held_back.is_some();
    let is_benched =
        |leader: &CandidateInfo| leader.name.as_deref().and_then(|name| status.benched.get(name)).is_some();
    let benched = status.frozen.is_none() && status.leader().is_some_and(is_benched);
    let unwell = benched || (status.leader().is_some_and(|leader| leader.unwell) && !held);
    // Nobody gets past one of another library.
    let mut ours = followers.iter().take_while(|one| one.id.is_some());
    let nobody_fit = unwell && ours.all(|one| one.unwell);
    nobody_fit.then(|| match followers.iter().any(|one| one.unwell) {
        true => "nobody in line is better: look at what they share".to_owned(),
        false => "nobody in line can take over".to_owned(),
    })
}

fn in_line(followers: &[CandidateInfo]) -> String {
    let named: Vec<_> = followers.iter().take(NAMED).map(named).collect();
    match followers.len() {
        0 => "nobody else: if the leader leaves, nobody takes over".to_owned(),
        count if count > NAMED => format!("{}, and {} more", named.join(", "), count - NAMED),
        _ => named.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use incumbent::store::memory::{MemoryStore, Shape};
    use incumbent::store::{Clock, TokioClock};
    use incumbent::{Client, LossReason};
    use incumbent_testkit::patience::until;

    use super::*;

    #[tokio::test]
    async fn a_leader_that_missed_its_renewals_is_said_to() {
        let client = Client::builder().with_store(MemoryStore::new(Shape::ONE_HOST)).await.unwrap();
        let election = client.election("e").unwrap();
        let _candidacy = election.candidate("a").stand().await.unwrap();
        let mut silence = election.status().await.unwrap().get().silence.unwrap();
        assert_eq!(silence.ttl, Duration::from_secs(15));
        silence.lasts = Duration::from_secs(5);
        assert_eq!(heard_of(silence), "5 s ago");
        silence.lasts = Duration::from_secs(9);
        assert_eq!(heard_of(silence), "9 s ago: is it stopped? After 15 s of silence the next one in line takes over");
    }

    #[tokio::test(start_paused = true)]
    async fn one_whose_work_does_not_stop_for_a_pause_is_what_nobody_leads_for() {
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
        let store = Arc::new(MemoryStore::with_clock(Shape::FAIR, clock.clone()));
        let client = || Client::builder().clock(clock.clone()).with_store(store.clone());
        let election = client().await.unwrap().election("e").unwrap();
        let mut candidacy = election.candidate("a").hold_until_stopped().stand().await.unwrap();
        let office = candidacy.elected().await.unwrap().unwrap();
        let token = office.token().get();
        let pausing = tokio::spawn(async move { election.operator().pause(Duration::from_secs(3_600)).await });
        assert_eq!(office.lost().await.reason(), LossReason::Paused);
        let looking = client().await.unwrap().election("e").unwrap();
        let url = StoreUrl::in_directory(std::path::Path::new("/nowhere"));
        let name = looking.name().clone();
        until("it says so before anything else", async || {
            let status = looking.status().await.unwrap().into_inner();
            Vacancy::of(&status).map(Vacancy::word) == Some("holding")
        })
        .await;
        let status = looking.status().await.unwrap().into_inner();
        let sentence = Vacancy::of(&status).unwrap().sentence(&name, &url, None);
        assert!(
            status.paused.is_some()
                && sentence.contains(&format!("a (token {token})"))
                && sentence.contains("until its work has stopped"),
            "{sentence}"
        );
        drop(office);
        pausing.await.unwrap().unwrap();
        let status = looking.status().await.unwrap().into_inner();
        assert_eq!(Vacancy::of(&status).map(Vacancy::word), Some("paused"));
    }
}
