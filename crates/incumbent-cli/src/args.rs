//! What can be written on the command line: the one definition that help, completions and the man
//! page come from.
//!
//! Nothing here does anything. What it says of stores comes from `incumbent::store_kinds`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use incumbent::health::HttpCheck;
use incumbent::store::check_candidate_name;
use incumbent::store::escape::unescape;
use incumbent::{ElectionName, NameError, Token};

use crate::duration::{parse_duration, parse_ttl, parse_wait};
use crate::health::{At, Sizes, parse_address, parse_http, parse_sizes, parse_sizes_at, parse_time_at};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

pub(crate) const EXIT_CODES: &str = "\
Exit codes:
    0  done, or somebody leads
    1  error: refused, or something is broken
    2  the command line is wrong
    3  no: nobody leads, or nothing of that name is there
    4  timed out, or the outcome is unknown
    5  the store is unavailable
`incumbent run` and `incumbent check` have their own: see their --help.";

const EXAMPLES: &str = "\
Examples:
    incumbent demo                                see it work, in 10 seconds
    incumbent run jobs/nightly -- ./nightly.sh    only one of them runs
    incumbent status jobs/nightly                 who leads, or why nobody does
    incumbent transfer jobs/nightly --to node-2   hand the office to node-2

";

/// A line for each kind of store, or of group, and how to get those that are not in this build.
fn kinds(are_peers: bool) -> String {
    let kinds = incumbent::store_kinds().iter().filter(|kind| (kind.feature == "peers") == are_peers);
    let width = if are_peers { 38 } else { 28 };
    let lines = kinds.map(|kind| match kind.is_built_in() {
        true => format!("    {:width$} {}\n", kind.example, kind.about),
        false => format!("    {:width$} not in this build: cargo feature `{}`\n", kind.example, kind.feature),
    });
    lines.collect()
}

fn stores() -> String {
    format!(
        "\
Stores:
{}Other dialects of ZooKeeper are curator-selector, kazoo and go-leaderelection.
With ?ttl=none, a leader in a directory that is stopped but alive is never
replaced. Without --store, --store-file or INCUMBENT_STORE the store is a
directory of this user: `incumbent` in $XDG_STATE_HOME, or in ~/.local/state.

",
        kinds(false)
    )
}

fn peers() -> String {
    format!(
        "\
Peers, with no store:
{}    consensus://?members=a=10.0.0.1:7411,b=...&rank=1&secret-file=/etc/secret
A store is the better choice where there is one. A group holds one election;
with bully and ring, two halves of a network have two leaders. `run --forever`
and `campaign` are members, and long-lived; all other verbs ask them. Options:
    members                    how many on this host, or NAME=HOST:PORT,...
    rank, listen               which member this is; or a --name in the list
    timeout                    how long a leader may be silent: 1500ms
    secret-file                needed where members are on several hosts
    tls-ca, tls-cert, tls-key  files for mutual TLS
    data                       the directory where consensus keeps its votes
    majority=yes, takeover=no  for bully and ring
Peers cannot pause, freeze, depose or end; bully and ring cannot transfer.
`incumbent explain` says what they promise.

",
        kinds(true)
    )
}

/// Leader election: one of many leads, and a leader that has lost office can do no harm.
///
/// The candidate that is first in line leads. When it dies, resigns or falls silent, the next one
/// does. Every leader has a fencing token that is higher than all before it, so that what it writes
/// to can refuse the late writes of a former leader.
#[derive(Debug, Parser)]
#[command(name = "incumbent", version, styles = STYLES, max_term_width = 110)]
#[command(after_long_help = format!("{EXAMPLES}{}{}{EXIT_CODES}", stores(), peers()))]
#[command(
    after_help = "`incumbent --help` has examples, stores and exit codes; `incumbent VERB --help` has those of a verb."
)]
#[command(subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print only errors on standard error
    #[arg(short, long, global = true, help_heading = "Global options")]
    pub(crate) quiet: bool,
    /// Also print what is retried, and why
    #[arg(short, long, global = true, conflicts_with = "quiet", help_heading = "Global options")]
    pub(crate) verbose: bool,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// Which store.
#[derive(Clone, Debug, Args)]
pub(crate) struct StoreArgs {
    /// The store, e.g. zk://host:2181. A password written here is visible to every user of this
    /// host
    #[arg(long, global = true, value_name = "URL", help_heading = "Global options")]
    pub(crate) store: Option<String>,
    /// A file whose first line is the store's URL: use it for a URL with a password
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "store", value_hint = ValueHint::FilePath)]
    #[arg(help_heading = "Global options")]
    pub(crate) store_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Run(RunArgs),
    Campaign(CampaignArgs),
    Leader(LeaderArgs),
    Candidates(CandidatesArgs),
    Observe(ObserveArgs),
    Status(StatusArgs),
    History(HistoryArgs),
    List(ListArgs),
    Check(CheckArgs),
    Metrics(MetricsArgs),
    Claims(ClaimsArgs),
    Doctor(DoctorArgs),
    Transfer(TransferArgs),
    Resign(ResignArgs),
    Depose(DeposeArgs),
    Pause(PauseArgs),
    Resume(ResumeArgs),
    Freeze(FreezeArgs),
    Unfreeze(UnfreezeArgs),
    End(EndArgs),
    Peers(PeersArgs),
    Explain(ExplainArgs),
    Schema(SchemaArgs),
    Demo(DemoArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

impl Verb {
    /// Whether it writes to the store, and so has to find the one that others use.
    pub(crate) fn changes_something(&self) -> bool {
        match self {
            Verb::Run(_)
            | Verb::Campaign(_)
            | Verb::Transfer(_)
            | Verb::Resign(_)
            | Verb::Depose(_)
            | Verb::Pause(_)
            | Verb::Resume(_)
            | Verb::Freeze(_)
            | Verb::Unfreeze(_)
            | Verb::End(_)
            | Verb::Peers(_) => true,
            Verb::Leader(_)
            | Verb::Candidates(_)
            | Verb::Observe(_)
            | Verb::Status(_)
            | Verb::History(_)
            | Verb::List(_)
            | Verb::Check(_)
            | Verb::Metrics(_)
            | Verb::Claims(_)
            | Verb::Doctor(_)
            | Verb::Explain(_)
            | Verb::Schema(_)
            | Verb::Demo(_)
            | Verb::Completions(_)
            | Verb::Man(_) => false,
        }
    }
}

/// The election's name.
#[derive(Clone, Debug, Args)]
pub(crate) struct ElectionArg {
    /// The election, e.g. jobs/nightly: 1 to 255 bytes, segments joined by slashes
    #[arg(value_name = "ELECTION", value_parser = ElectionName::new)]
    pub(crate) election: ElectionName,
}

/// Text or JSON.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Format {
    /// Write JSON on standard output, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// Who this candidate is, and its times.
#[derive(Clone, Debug, Args)]
pub(crate) struct CandidateArgs {
    /// A name for this candidate that people recognize [default: host name and process id, in a
    /// container with four random digits]. Among peers, the name of a member in the list
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    pub(crate) name: Option<String>,
    /// What this candidate advertises to others, e.g. its address
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) value: OsString,
    /// How long this process may be silent before the next in line takes over [default: 15s]. Not
    /// for peers, whose URL has a timeout
    #[arg(long, value_name = "TIME", value_parser = parse_ttl, allow_hyphen_values = true)]
    pub(crate) ttl: Option<Duration>,
    /// How long the work may take to stop [default: a fifth of the TTL; for peers, a third of the
    /// timeout]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    pub(crate) grace: Option<Duration>,
    /// Keep a record of this election's terms, for `incumbent history`: who led, from when to when,
    /// and whether the work has certainly stopped. Not with Redlock or peers
    #[arg(long)]
    pub(crate) record: bool,
    #[command(flatten)]
    pub(crate) health: HealthArgs,
}

/// Under which its options are listed.
const HEALTH: &str = "Health";

/// What tells whether this candidate is fit to lead.
#[derive(Clone, Debug, Args)]
pub(crate) struct HealthArgs {
    /// Run this with /bin/sh -c: exit code 0 is fit, 1 unwell, all else unfit; the first line that
    /// it writes is the reason. May be given several times, like most of these
    #[arg(help_heading = HEALTH, long, value_name = "LINE", value_hint = ValueHint::CommandString)]
    pub(crate) health_cmd: Vec<String>,
    /// Unwell unless this http:// URL answers with a status of 200 to 399
    #[arg(help_heading = HEALTH, long, value_name = "URL", value_parser = parse_http, value_hint = ValueHint::Url)]
    pub(crate) health_http: Vec<HttpCheck>,
    /// Unwell unless connections are taken there
    #[arg(help_heading = HEALTH, long, value_name = "HOST:PORT", value_parser = parse_address)]
    pub(crate) health_tcp: Vec<String>,
    /// Unfit if less memory is available, on this host or to this container; unwell below the
    /// second size, or twice the first
    #[arg(help_heading = HEALTH, long, value_name = "SIZE[,SIZE]", value_parser = parse_sizes)]
    pub(crate) min_memory: Option<Sizes>,
    /// The same for the free space where DIR is, or here
    #[arg(help_heading = HEALTH, long, value_name = "[DIR=]SIZE[,SIZE]", value_parser = parse_sizes_at)]
    pub(crate) min_disk: Vec<At<Sizes>>,
    /// Unwell if a small file takes longer to be on the disk where DIR is, or here; unfit if it
    /// cannot be written
    #[arg(help_heading = HEALTH, long, value_name = "[DIR=]TIME", value_parser = parse_time_at)]
    pub(crate) max_write_time: Vec<At<Duration>>,
    /// How often each check runs [default: 5s]
    #[arg(help_heading = HEALTH, long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    pub(crate) health_interval: Option<Duration>,
    /// How long a check may take [default: 2s]
    #[arg(help_heading = HEALTH, long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    pub(crate) health_timeout: Option<Duration>,
    /// How long all must have been well before it counts as well again [default: 30s]
    #[arg(help_heading = HEALTH, long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    pub(crate) health_well_for: Option<Duration>,
}

/// What every act of an operator takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct ActArgs {
    #[command(flatten)]
    pub(crate) target: ElectionArg,
    /// Give up after this long
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration, allow_hyphen_values = true)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Run a command while this process leads, and never in two places at once
///
/// Waits in line, runs COMMAND when this process's turn comes, and exits as COMMAND did. If the
/// office is lost, handed over or paused in the meantime, COMMAND and everything it started are
/// stopped, and this process goes back in line. The office is released only once no process of
/// COMMAND is left, even if `incumbent` itself is killed or stopped.
///
/// A guardian process enforces this. If both are killed at once, or `incumbent` is stopped and its
/// guardian killed, COMMAND's own process still dies, but processes it started may live on beside
/// the next leader. With a directory as the store, they keep the office for up to the TTL, unless
/// they have closed the descriptor that they inherited for this purpose. Elsewhere only the token
/// protects you. In a container where `incumbent` is process 1, everything ends with it.
///
/// COMMAND finds INCUMBENT_ELECTION, INCUMBENT_NAME and INCUMBENT_TOKEN in its environment. The
/// token is higher than that of every earlier leader: pass it to whatever COMMAND writes to, so
/// that writes with an older token can be refused.
///
/// Among peers (consensus, bully, ring) this process is a member of the group for as long as it
/// runs, and a group needs its members: use --forever there. With bully and ring there is no token,
/// and INCUMBENT_TOKEN is not set.
///
/// SIGTERM and SIGINT stop COMMAND (SIGTERM, then SIGKILL after the grace), release the office, and
/// exit; a second one kills at once. SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT and SIGWINCH are passed on
/// to COMMAND. Signals that were ignored at the start stay ignored. On a terminal, Ctrl-C and
/// Ctrl-\ go to COMMAND alone: if they kill it, `incumbent` ends too, even with --forever. A
/// COMMAND that catches Ctrl-C and exits counts as having ended by itself: with --forever it is
/// restarted after a second, and a Ctrl-C within that second ends `incumbent`. A COMMAND that
/// ignores Ctrl-C can be ended with Ctrl-\. Ctrl-Z does not suspend COMMAND, which would keep the
/// office and do nothing: it goes on at once. A candidate that waits is suspended like any program,
/// and is passed over once it has been silent for the TTL. Under systemd, Type=notify works: a
/// follower counts as ready.
///
/// With health checks (--health-cmd, --min-memory and so on) this process gets in line once each
/// has said something and none that it is unfit. When one says so three times in a row, COMMAND is
/// stopped and the office goes to the next in line; it gets back in line when all has been well for
/// five results and --health-well-for. One that hangs counts as unfit, and is not run a second time
/// meanwhile. Unwell (somebody else would be better) is said, and changes nothing else. Probes over
/// the network say no more than that: what they ask is mostly shared by all candidates.
///
/// COMMAND has to stay in the foreground: anything it leaves running when it exits is stopped.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
    incumbent run jobs/nightly -- ./nightly.sh --all
    incumbent run --try jobs/nightly -- ./nightly.sh   for cron
    incumbent run --shell db/primary -- 'promote && exec serve'
    incumbent run --forever --value 10.0.0.7:80 api/leader -- ./serve
    incumbent run --forever --min-disk /var=1G --health-cmd ./fit x -- ./work

Exit codes:
    COMMAND's own, or 128 + the signal that ended it
    120  the office was lost (with --exit-on-loss)
    121  the election has ended
    122  not elected, with --try or --wait: somebody else leads, or the election
         is paused; -E sets another code
    125  `incumbent` itself failed, or the store does not answer
    126  COMMAND cannot be executed
    127  COMMAND was not found
    2    the command line is wrong")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) target: ElectionArg,
    #[command(flatten)]
    pub(crate) candidate: CandidateArgs,
    /// Do not wait: exit with 122 if somebody else leads
    #[arg(long = "try", conflicts_with = "wait")]
    pub(crate) try_once: bool,
    /// Exit with 122 unless elected for the first time within this time
    #[arg(long, value_name = "TIME", value_parser = parse_wait, allow_hyphen_values = true)]
    pub(crate) wait: Option<Duration>,
    /// The exit code for "not elected" with --try and --wait, instead of 122
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = 122, hide_default_value = true)]
    pub(crate) conflict_exit_code: u8,
    /// Exit with 120 when the office is lost, instead of going back in line
    #[arg(long)]
    pub(crate) exit_on_loss: bool,
    /// Restart COMMAND whenever it exits
    #[arg(long)]
    pub(crate) forever: bool,
    /// Keep this file up to date while in line or in office: `following` or `leading TOKEN`;
    /// `unfit` while a health check keeps this process out of the line
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) ready_file: Option<PathBuf>,
    /// Run COMMAND with /bin/sh -c
    #[arg(long)]
    pub(crate) shell: bool,
    /// The program and its arguments
    #[arg(value_name = "COMMAND", required = true, last = true, value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Hold the office without a command: prints events, and resigns at the end of its input
///
/// For programs that are not written in Rust: start this, read its output line by line, and close
/// its input to resign. After `stopping`, the work has the grace period to stop; after `lost`,
/// somebody else may lead. Exits with 0 when it has resigned or the election has ended.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Events with --json, one object a line:
    {\"event\":\"following\",\"ahead\":\"node-1\",\"token\":7}      behind node-1
    {\"event\":\"elected\",\"token\":8,\"remaining_ms\":14685}    in office
    {\"event\":\"stopping\",\"reason\":\"transferred\"}           stop the work
    {\"event\":\"lost\",\"reason\":\"transferred\"}               the term is over
    {\"event\":\"out\",\"reason\":\"paused\"}                     not in line for now
    {\"event\":\"resigned\"} or {\"event\":\"ended\"}             nothing follows
Among peers \"ahead\" is the leader, and null while there is none. With bully and
ring \"token\" is null, and so is \"remaining_ms\" where nothing bounds the term.

Example:
    mkfifo hold && incumbent campaign jobs/nightly --json < hold")]
pub(crate) struct CampaignArgs {
    #[command(flatten)]
    pub(crate) target: ElectionArg,
    #[command(flatten)]
    pub(crate) candidate: CandidateArgs,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Show who leads
///
/// Prints the leader's name, token and value. Exits with 3 when nobody leads.
#[derive(Debug, Args)]
#[command(after_long_help = "\
With --json:
    {\"v\":1,\"election\":\"jobs/nightly\",\"leader\":{\"name\":\"node-1\",
    \"id\":\"...\",\"value\":\"10.0.0.7:80\",\"token\":7},\"age_ms\":3}
on one line. \"leader\" is null when nobody leads. A value that is not text
comes as \"value_base64\". For members of a group of peers \"id\" is null, and with
bully and ring so is \"token\".

Example:
    incumbent leader api/leader --json | jq -r .leader.value")]
pub(crate) struct LeaderArgs {
    #[command(flatten)]
    pub(crate) target: ElectionArg,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Show the last 32 terms: who led, from when to when, and how each ended
///
/// Elections keep a record of their terms once a candidate has stood with --record. A term is
/// opened before its leader is elected, and closed when its work has stopped. Exits with 3 where no
/// record is kept.
#[derive(Debug, Args)]
#[command(after_long_help = "\
How a term ended:
    leads     it goes on
    closed    its work has stopped: why the term ended, and by whose order
    open      nobody has said that its work has stopped: a crash, a process that
              was cut off, or one that the hard stop overtook
    died      no process of it is left
    unknown   it led before the record began, or is of another library
Times are by the wall clocks of those who led.

With --json, on one line, oldest first:
    {\"v\":1,\"election\":\"jobs/nightly\",\"terms\":[{\"token\":7,
    \"name\":\"node-1\",\"id\":\"...\",\"host\":\"a1\",\"boot\":\"...\",\"process\":\"\",
    \"target\":\"\",\"from_ms\":1794836714000,\"to_ms\":1794836719000,
    \"end\":\"closed\",\"why\":\"transferred\",\"order\":{\"reason\":\"new disk\",
    \"by\":\"ada@ops1\",\"at_ms\":1794836713000},\"leads\":false}]}
What was not said is null or empty; a term that nobody ordered to end has no
\"order\".")]
pub(crate) struct HistoryArgs {
    #[command(flatten)]
    pub(crate) target: ElectionArg,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// List the candidates in line, the leader first
#[derive(Debug, Args)]
#[command(after_long_help = "\
With --json, on one line:
    {\"v\":1,\"election\":\"jobs/nightly\",\"candidates\":[
    {\"name\":\"node-1\",\"id\":\"...\",\"value\":\"\",\"token\":7,\"role\":\"leader\"},
    {\"name\":\"node-2\",\"id\":\"...\",\"value\":\"\",\"token\":9,\"role\":\"follower\"}]}
Name and id are null for a candidate of another library that has none.
Among peers these are the members that answer, the leader first if there is
one; \"id\" is null, and \"token\" is null except for the leader with consensus.")]
pub(crate) struct CandidatesArgs {
    #[command(flatten)]
    pub(crate) target: ElectionArg,
    #[command(flatten)]
    pub(crate) format: Format,
    /// In the order in which to restart them, the leader last: then the office changes once
    #[arg(long)]
    pub(crate) restart_order: bool,
}

/// Follow who leads, until the election ends
///
/// Prints one line per change, flushed at once. A change that is reverted between two reads is not
/// seen. It also ends when nobody reads its output any more.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Events with --json, one object a line:
    {\"event\":\"leader\",\"name\":\"node-1\",\"value\":\"10.0.0.7:80\",\"token\":7}
    {\"event\":\"vacant\"}
    {\"event\":\"paused\",\"reason\":\"maintenance\"}
    {\"event\":\"ended\"}          nothing follows; exits with 0
    {\"event\":\"stale\"}          the store cannot be read: may be out of date
    {\"event\":\"current\"}        it can be read again
    {\"event\":\"store_reset\"}    another store, or an older one: tokens start anew")]
pub(crate) struct ObserveArgs {
    #[command(flatten)]
    pub(crate) target: ElectionArg,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Show who leads and who waits; or why nobody leads, and what to do
///
/// Exits with 0 when somebody leads, and with 3 when nobody does.
#[derive(Debug, Args)]
#[command(after_long_help = "\
With --json, on one line:
    {\"v\":1,\"election\":\"jobs/nightly\",\"store\":\"file:///...\",\"leader\":null,
    \"followers\":0,\"vacant_because\":\"paused\",\"paused\":{\"reason\":\"tea\",
    \"by\":\"ada@ops1\",\"at_ms\":1790000000000},\"frozen\":null,
    \"handover\":null,\"ended\":false,\"age_ms\":3}
\"paused\", \"frozen\" and \"handover\" say by whom, when and why; \"frozen\" also
for how long, in \"lasts_ms\". \"followers\" is null where the store keeps no line.
\"ended\": it was ended a while ago; those in line do not know yet, or came
later. \"vacant_because\" is there when nobody leads: paused, ended,
deposed or no_candidates; among peers forming, no_majority, state_lost,
refused or electing. With a directory, \"silent_ms\" says how long ago the
leader was last heard from. With peers there is also
\"group\":{\"members\":3,\"answering\":2,\"needed\":2}, with \"waits_for\",
\"not_voting\" and \"refusing\" where members are missing, have lost their votes
or hold another election. \"seen_token\" is there when this host has seen that
higher token in this store: then the store is older than it was.")]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) target: ElectionArg,
    #[command(flatten)]
    pub(crate) watch: WatchArg,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Once, or until nobody reads it any more.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct WatchArg {
    /// Look every second, and show it again whenever it has changed, until interrupted
    #[arg(long)]
    pub(crate) watch: bool,
}

/// List the elections of the store, each with who leads it
///
/// Lists every election in which somebody stands or an operator's order counts. With --watch this
/// is one screen for all of them. A group of peers holds one election, and cannot be asked which.
#[derive(Debug, Args)]
#[command(after_long_help = "\
With --json, on one line:
    {\"v\":1,\"store\":\"file:///...\",\"elections\":[
    {\"election\":\"jobs/nightly\",\"leader\":{\"name\":\"node-1\",...},\"followers\":2},
    {\"election\":\"mail\",\"leader\":null,\"followers\":0,\"vacant_because\":\"paused\"}]}
One that cannot be read has an \"error\" that says why, and ends the command
with an exit code other than 0; the others are listed all the same.")]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) watch: WatchArg,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Say on one line how an election is, for Nagios and Icinga
///
/// A warning: an operator has paused or ended it, too few are in line behind the leader, the
/// leader has been silent for half its TTL (a directory knows that), a member of a group does not
/// answer. Critical: nobody leads. Unknown: the store cannot be read. After a `|` come the figures.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Example:
    $ incumbent check jobs/nightly --followers 2
    INCUMBENT WARNING - node-1 (token 7) leads jobs/nightly; 1 in line behind
    it, and not 2 | vacant=0 followers=1;2:;;0 token=7c age=0.002s
on one line.

Exit codes:
    0  ok
    1  warning
    2  critical
    3  unknown: the store cannot be read, or the command line is wrong")]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) target: ElectionArg,
    /// Warn if fewer than this many are in line behind the leader [default: 1, if there is a line]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) followers: Option<usize>,
    /// While nobody leads, look again for this long before saying so [default: not at all]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    pub(crate) wait: Option<Duration>,
}

/// Print the state of elections for Prometheus
///
/// In its text format, for a textfile collector: run it every minute, by a timer or by cron. What
/// needs a memory (how often the office changed, since when nobody leads) is asked of Prometheus:
/// docs/alerts.yml has rules for it. Where the store cannot be read, `incumbent_up` is 0, and the
/// exit code says why.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Example:
    incumbent metrics --output /var/lib/node_exporter/incumbent.prom

For each election:
    incumbent_vacant                  1: nobody leads
    incumbent_leader_token            another one: the office has changed hands
    incumbent_leader_info             who leads, in the label \"name\"
    incumbent_followers               how many wait behind the leader, where the
                                      store keeps a line
    incumbent_paused, _frozen, _ended 1: an operator has ordered so
    incumbent_handover                1: the leader is asked to hand over
    incumbent_leader_silent_seconds   and _ttl_seconds, with a directory
    incumbent_read_age_seconds        how old the store's answer was
    incumbent_readable                0: it could not be read
    incumbent_members                 and _answering, _needed, _without_vote,
                                      of a group of peers
And incumbent_up for the store as a whole.")]
pub(crate) struct MetricsArgs {
    /// These elections only [default: all that the store knows]
    #[arg(value_name = "ELECTION", value_parser = ElectionName::new)]
    pub(crate) elections: Vec<ElectionName>,
    /// Replace this regular file, in one step, instead of printing
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
}

/// List the processes of this host that say they lead
///
/// Each `incumbent run` and `incumbent campaign` in office says so in a file, with how long it may
/// believe it; what a killed process left behind is not shown. It is read, and no store is asked:
/// two claims to one office, or one that the store does not know, are what `incumbent doctor` looks
/// for. Without root's rights the claims of other users cannot be read, and that is said.
#[derive(Debug, Args)]
#[command(after_long_help = "\
With --json, on one line:
    {\"v\":1,\"host\":\"db1\",\"claims\":[{\"pid\":4711,\"name\":\"node-1\",
    \"election\":\"jobs/nightly\",\"store\":\"...\",\"token\":7,\"remaining_ms\":9800,
    \"stopping\":false,\"suspended\":false}],\"unread\":[]}
\"store\" is the store's identity. \"remaining_ms\" is null where nothing bounds the
term, and 0 when it is over and the work has not stopped yet. \"stopping\": the
work was asked to stop. \"suspended\": the process is stopped by a signal.
\"unread\" names what could not be read; claims may be missing then.

Claims are kept in $XDG_RUNTIME_DIR/incumbent; without that variable in
/run/incumbent (root) or in /tmp/incumbent-UID.")]
pub(crate) struct ClaimsArgs {
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Look for what is wrong with an election, with everybody asked
///
/// Reads the store, asks which processes claim to lead, and reads the store again; what is odd is
/// looked at again before it is said. Each finding comes with what was seen, what it means, what it
/// cannot be told from and what to do next; docs/runbooks.md has the rest. It writes nothing, and
/// is no candidate.
///
/// Without --host the processes of this host are asked. That is everybody with a directory as the
/// store; elsewhere it is not, and that is said.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
    incumbent doctor jobs/nightly
    incumbent doctor db/main --host db1 --host db2 --fence file:///srv/marks \\
        --claims 'ssh {host} incumbent claims --json'
    incumbent doctor db/main --claims 'cat /tmp/claims-of-*.json'

Findings:
    D01  two processes say that they lead        D02  one that the store denies
    D03  work goes on after its term             D05  a leader that is silent
    D06  the store is older than it was, or another
    D07  a fence behind the leader: usual        D08  tokens went back
    D10  nobody stands where somebody led        D11  an order was forgotten
    D13  members lost their votes, or differ     D14  too few members answer
    D16  the store promises too little           D17  led in two stores
With --json, one object a line for each: {\"v\":1,\"finding\":\"D01\",
\"severity\":\"wrong\",\"what\":...,\"seen\":[...],\"means\":...,\"not_told_from\":...,
\"next\":...,\"runbook\":...}; and at last {\"v\":1,\"election\":...,\"findings\":1,
\"looked_at\":[...],\"not_looked_at\":[...],\"exit\":11}. With --watch there is no
such last line, and what is found no longer comes again with \"gone\":true.

Exit codes:
    0   everybody was asked, and nothing was found
    4   nothing is known to be wrong, but not everybody was asked
    10  warnings
    11  something is wrong
    5   the store is unavailable
    2   the command line is wrong")]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) target: ElectionArg,
    /// A host to ask, by way of --claims; can be given several times
    #[arg(long = "host", value_name = "NAME", value_delimiter = ',')]
    pub(crate) hosts: Vec<String>,
    /// How to ask: a shell command that prints what `incumbent claims --json` prints there. {host}
    /// stands for each --host; without it, it is run once and may print a line for each host
    #[arg(long, value_name = "COMMAND")]
    pub(crate) claims: Option<String>,
    /// A directory of file fences whose mark is to be compared, e.g. file:///srv/marks; can be
    /// given several times
    #[arg(long = "fence", value_name = "URL", value_parser = parse_fence)]
    pub(crate) fences: Vec<PathBuf>,
    /// Look every five seconds, and say what appears and what goes, until interrupted
    #[arg(long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Who orders something, and why.
#[derive(Clone, Debug, Args)]
pub(crate) struct OrderArgs {
    /// Why: shown to everyone who asks, and in the leader's log. A group of peers keeps no record
    /// of it
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) reason: String,
    /// Who orders it [default: this user at this host]
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    pub(crate) by: Option<String>,
}

/// Make another candidate the leader
///
/// Candidates between them step aside, and the leader stops its work and hands over. Returns once
/// the heir leads; if the transfer is refused, the leader stays in office.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Example:
    incumbent transfer jobs/nightly --to node-2
    incumbent transfer jobs/nightly --to 5a9c...    by id")]
pub(crate) struct TransferArgs {
    /// The name or id of the candidate that should lead
    #[arg(long, value_name = "NAME_OR_ID")]
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) order: OrderArgs,
    #[command(flatten)]
    pub(crate) act: ActArgs,
}

/// Make the leader step down and go to the end of the line
///
/// Returns once it no longer leads. If nobody else is in line, it is elected again, with a new
/// token.
///
/// With bully and ring, rank decides who leads next: the highest of the others. Whatever its own
/// rank, the member that resigned does not take over from that leader, and stands again when nobody
/// leads. A member that is restarted takes over by its rank.
#[derive(Debug, Args)]
pub(crate) struct ResignArgs {
    #[command(flatten)]
    pub(crate) order: OrderArgs,
    #[command(flatten)]
    pub(crate) act: ActArgs,
}

/// Remove the leader without asking it
///
/// For a leader that does not respond. Exactly the entry that was read is removed. The former
/// leader may go on until it notices, at its deadline at the latest; only resources that check its
/// token refuse it right away. `incumbent resign` asks the leader instead.
#[derive(Debug, Args)]
pub(crate) struct DeposeArgs {
    /// Only if the leader's token is this one
    #[arg(long, value_name = "TOKEN", value_parser = parse_token)]
    pub(crate) token: Option<Token>,
    #[command(flatten)]
    pub(crate) order: OrderArgs,
    #[command(flatten)]
    pub(crate) act: ActArgs,
}

/// Let no candidate lead until `incumbent resume`
///
/// The leader stops its work and leaves the line, and so do the others. Returns once the line is
/// empty. After `incumbent resume` they come back by themselves.
///
/// This STOPS the leader. What other systems call pause or maintenance mode, where the leader goes
/// on and nothing happens by itself, is `incumbent freeze`.
#[derive(Debug, Args)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    pub(crate) order: OrderArgs,
    #[command(flatten)]
    pub(crate) act: ActArgs,
}

/// Let a paused election go on
#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    pub(crate) act: ActArgs,
}

/// Keep the office where it is until `incumbent unfreeze`
///
/// The leader stays and goes on working. It leaves neither because it is unfit nor because it is
/// asked to: `transfer` and `resign` are refused. A leader that crashes, is stopped or exits is
/// followed by the next in line as ever. `pause`, `depose` and `end` are stronger, and take effect.
/// This is what other systems call pause or maintenance mode.
///
/// With --for it ends by itself: the leader counts from when it first read it. Freezing again
/// replaces the order.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Example:
    incumbent freeze jobs/nightly --for 2h --reason 'new switch'")]
pub(crate) struct FreezeArgs {
    /// For how long [default: until it is taken back]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    pub(crate) lasts: Option<Duration>,
    #[command(flatten)]
    pub(crate) order: OrderArgs,
    #[command(flatten)]
    pub(crate) act: ActArgs,
}

/// Let the office of a frozen election move again
#[derive(Debug, Args)]
pub(crate) struct UnfreezeArgs {
    #[command(flatten)]
    pub(crate) act: ActArgs,
}

/// End an election for all who take part
///
/// All candidates stop, leave and do not come back: `incumbent run` exits with 121. A candidate
/// that comes later starts afresh; its token is still higher than all before.
#[derive(Debug, Args)]
pub(crate) struct EndArgs {
    #[command(flatten)]
    pub(crate) order: OrderArgs,
    #[command(flatten)]
    pub(crate) act: ActArgs,
}

/// Tell a group of peers what only people can know
///
/// A consensus group is safe because its members write down their votes. Where a member finds
/// nothing written, it cannot tell whether it never voted or its votes were lost; you may know.
#[derive(Debug, Args)]
pub(crate) struct PeersArgs {
    #[command(subcommand)]
    pub(crate) act: PeersAct,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PeersAct {
    Found(FoundArgs),
    Readmit(ReadmitArgs),
}

/// Begin without the members that never came
///
/// The first election of a consensus group waits until all its members have been up at the same
/// time, once. This lets the members that are up begin without the others; they must be a majority.
/// A member that comes later joins by itself.
///
/// It is also the way out if a member lost its directory while the group was being founded: the
/// others give up what they had agreed on with it, and begin anew.
///
/// By doing so you assert that no member of this group has ever voted with a directory that still
/// exists: neither one that is down now nor one whose directory is elsewhere. If one has, there are
/// two groups of the same name, each with a leader.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Example:
    incumbent --store 'consensus://...' peers found jobs/nightly")]
pub(crate) struct FoundArgs {
    #[command(flatten)]
    pub(crate) act: ActArgs,
}

/// Have a member that lost its votes come back without the others
///
/// A consensus member that has lost its directory votes again once ALL others have told it the
/// highest term, or a majority has, if the others say that they lost theirs, too. If that is
/// impossible (two of three were wiped, or one was wiped and another is gone for good), this lets
/// it come back with what the members that answer know; one is enough. Readmit one member: the
/// others follow by themselves. Tokens continue a million above the highest known one, and the
/// member votes for nobody until every promise that it may have made is over.
///
/// By doing so you assert that the process that had the lost votes is dead, and that fewer than a
/// million elections were held that no answering member has heard of. If more were held, a token
/// may be used twice.
///
/// If no member has its votes any more, there is nothing to come back to: empty the directories of
/// all members, and the group is founded anew, with another identity and with tokens from 1.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Example:
    incumbent --store 'consensus://...' status jobs/nightly    names them
    incumbent --store 'consensus://...' peers readmit jobs/nightly --member b")]
pub(crate) struct ReadmitArgs {
    /// The member, by its name in the list
    #[arg(long, value_name = "NAME")]
    pub(crate) member: String,
    #[command(flatten)]
    pub(crate) act: ActArgs,
}

/// Show what this store and these times promise
///
/// How long the office can stay empty after a crash, how long two leaders can overlap, how long an
/// outage of the store a leader survives, and how far its tokens can be trusted.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Also show the state of this election
    #[arg(value_name = "ELECTION", value_parser = ElectionName::new)]
    pub(crate) election: Option<ElectionName>,
    /// The TTL to calculate with [default: 15s]. Not for peers, whose URL has a timeout
    #[arg(long, value_name = "TIME", value_parser = parse_ttl, allow_hyphen_values = true)]
    pub(crate) ttl: Option<Duration>,
    /// The grace to calculate with [default: a fifth of the TTL; for peers, a third of the timeout]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    pub(crate) grace: Option<Duration>,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// See it work: real processes, a killed leader, a stopped one, a refused late write
///
/// Needs no server and no argument, takes less than 20 seconds, and leaves nothing behind. Exits
/// with 1 if anything did not happen as promised.
///
/// With --algorithm the processes elect one of themselves, with no store, and their messages are
/// shown: a first election, a killed leader that comes back, a network that is cut in two and
/// healed.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
    incumbent demo
    incumbent demo --algorithm consensus
    incumbent demo --algorithm ring --members 3")]
pub(crate) struct DemoArgs {
    /// Show an election among peers instead, message by message
    #[arg(long, value_enum)]
    pub(crate) algorithm: Option<PeerAlgorithm>,
    /// How many peers: 3 to 5 [default: 5]
    #[arg(long, value_name = "NUMBER", requires = "algorithm", value_parser = clap::value_parser!(u8).range(3..=5))]
    pub(crate) members: Option<u8>,
}

impl DemoArgs {
    /// How many peers there are unless said otherwise: enough for a minority of two.
    pub(crate) const MEMBERS: u8 = 5;
}

/// How peers elect one of themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PeerAlgorithm {
    /// The highest rank that answers leads
    Bully,
    /// A list goes round, and the highest rank on it leads
    Ring,
    /// A majority votes; never two leaders at once
    Consensus,
}

/// Print completions for a shell
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
    incumbent completions bash > /etc/bash_completion.d/incumbent
    incumbent completions zsh  > ~/.zfunc/_incumbent
    incumbent completions fish > ~/.config/fish/completions/incumbent.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

/// Print the SQL that creates the schema, for administrators who run it by hand
///
/// Where the role may create a schema, the library does it by itself.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
    incumbent schema postgres | psql -1 postgres://admin@host/database")]
pub(crate) struct SchemaArgs {
    /// The store that needs a schema
    #[arg(value_name = "STORE")]
    pub(crate) of: SchemaOf,
    /// The schema's name, as in ?schema= of the store's URL
    #[arg(long, value_name = "NAME", default_value = "incumbent")]
    pub(crate) name: String,
}

/// The stores that have tables.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum SchemaOf {
    /// PostgreSQL
    Postgres,
}

/// Print the manual page
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
    incumbent man | man -l -
    incumbent man run | man -l -
    incumbent man --dir /usr/local/share/man/man1")]
pub(crate) struct ManArgs {
    /// The page of one verb, instead of the command's
    #[arg(value_name = "VERB", conflicts_with = "dir")]
    pub(crate) verb: Option<String>,
    /// Write all pages to this directory
    #[arg(long, value_name = "DIRECTORY", value_hint = ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,
}

fn parse_name(text: &str) -> Result<String, NameError> {
    check_candidate_name(text).map(|()| text.to_owned())
}

fn parse_fence(text: &str) -> Result<PathBuf, String> {
    let path = text.strip_prefix("file://").and_then(unescape).filter(|path| path.starts_with(b"/"));
    path.map(|path| PathBuf::from(OsString::from_vec(path)))
        .ok_or_else(|| "the mark of a file fence is in a directory: file:///path/to/directory".to_owned())
}

fn parse_token(text: &str) -> Result<Token, String> {
    let number: u64 = text.parse().map_err(|_| "a token is a number".to_owned())?;
    Token::new(number).ok_or_else(|| format!("a token is between 1 and {}", Token::MAX))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_option_that_a_group_knows_is_named() {
        use incumbent::peers::Group;
        use incumbent::{ConnectError, UrlError};

        let help = peers();
        for scheme in ["consensus", "bully", "ring"] {
            let refused = Group::from_url(&format!("{scheme}://?nonsense=1")).unwrap_err();
            let ConnectError::Url(UrlError::UnknownOption { known, .. }) = refused else { panic!("{refused}") };
            for option in known.split([',', ' ']).filter(|word| !matches!(*word, "" | "and")) {
                assert!(help.contains(option), "{option}");
            }
            assert!(help.contains(&format!("{scheme}://")), "{scheme}");
        }
    }

    #[test]
    fn examples_and_tables_fit_a_narrow_terminal() {
        let command = Cli::command();
        let verbs = command.get_subcommands().filter_map(|verb| verb.get_after_long_help());
        for text in verbs.chain(command.get_after_long_help()).map(ToString::to_string) {
            for line in text.lines() {
                assert!(line.chars().count() <= 80, "{line}");
            }
        }
    }

    #[test]
    fn every_verb_and_every_option_is_explained() {
        let command = Cli::command();
        for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            assert!(verb.get_about().is_some(), "{}", verb.get_name());
            for arg in verb.get_arguments() {
                assert!(arg.get_help().is_some(), "{} {}", verb.get_name(), arg.get_id());
            }
        }
    }
}
