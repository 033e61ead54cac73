//! Those who stand: `run` and `campaign`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum, ValueHint};
use incumbent::OnFailure;
use incumbent::health::HttpCheck;

use super::{ElectionArg, Format, parse_name};
use crate::duration::{parse_duration, parse_limit, parse_ttl, parse_wait};
use crate::health::{At, Sizes, parse_address, parse_http, parse_sizes, parse_sizes_at, parse_time_at};
use crate::stonith::parse_program;

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
    /// With SIGTERM, a leader first hands its office to the best in line, while the work goes on:
    /// this is how long that may take; 0 leaves it out. A second SIGTERM cuts it short. What stops
    /// this process has to wait longer than this, the grace and 5 s together (TimeoutStopSec,
    /// terminationGracePeriodSeconds). Without effect with Redlock and peers
    #[arg(long, value_name = "TIME", value_parser = parse_limit, default_value = "10s", allow_hyphen_values = true)]
    pub(crate) leave_within: Duration,
    /// Keep a record of this election's terms, for `incumbent history`: who led, from when to when,
    /// and whether the work has certainly stopped. Not with Redlock or peers
    #[arg(long)]
    pub(crate) record: bool,
    /// Who is to lead when the office is vacant: of all in line that are fit, the candidate with
    /// the highest. Nobody is moved while somebody leads: one with a higher priority that comes
    /// back waits, unless you `incumbent transfer` the office to it. Give one to every candidate of
    /// the election. Not with Redlock or peers, and without effect where terms are on record
    #[arg(long, value_name = "NUMBER", value_parser = parse_priority, allow_hyphen_values = true)]
    pub(crate) priority: Option<i32>,
    #[command(flatten)]
    pub(crate) ready: ReadyArgs,
    #[command(flatten)]
    pub(crate) fence: FenceArgs,
    #[command(flatten)]
    pub(crate) health: HealthArgs,
}

/// Under which its options are listed.
const READY: &str = "Getting ready";

/// What is done before an office is taken over from a leader that hands over.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ReadyArgs {
    /// Run this with /bin/sh -c before taking over from a leader that hands over to this candidate,
    /// which leads on meanwhile: to fill a cache, say. If it fails, or takes longer than the
    /// handover may, the leader stays. It has INCUMBENT_HEIR=1 and no INCUMBENT_TOKEN. Not after a
    /// crash: then INCUMBENT_READY is no. Not with Redlock or peers
    #[arg(help_heading = READY, long, value_name = "LINE", value_parser = NonEmptyStringValueParser::new(), value_hint = ValueHint::CommandString)]
    pub(crate) ready_cmd: Option<String>,
    /// Run this to undo it when the handover comes to nothing. It has the grace
    #[arg(help_heading = READY, long, value_name = "LINE", value_parser = NonEmptyStringValueParser::new(), requires = "ready_cmd", value_hint = ValueHint::CommandString)]
    pub(crate) unready_cmd: Option<String>,
}

/// Under which its options are listed.
const STONITH: &str = "Stopping the last leader from outside";

/// How the last leader is stopped from outside.
#[derive(Clone, Debug, Args)]
pub(crate) struct FenceArgs {
    /// A program that stops the last leader, run before this candidate is in office where that
    /// leader's term is on record, and neither closed nor known to have died. Exit code 0: it has
    /// certainly stopped. What to stop is in INCUMBENT_TARGET and the other variables that
    /// docs/fencing.md lists. Can be given several times: tried in this order. Implies --record
    #[arg(long, value_name = "PROGRAM", value_parser = parse_program, requires = "fence_targets", help_heading = STONITH)]
    pub(crate) fence_cmd: Vec<PathBuf>,
    /// What --fence-cmd may stop: names as candidates give them with --fence-as, or hosts
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = parse_target, requires = "fence_cmd", help_heading = STONITH)]
    pub(crate) fence_targets: Vec<String>,
    /// What this candidate is called when it has to be stopped, e.g. the name of its plug
    /// [default: the host's name]
    #[arg(long, value_name = "NAME", value_parser = parse_target, help_heading = STONITH)]
    pub(crate) fence_as: Option<String>,
    /// How long each --fence-cmd may take; one that takes longer is killed, and may or may not have
    /// stopped it
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "60s", requires = "fence_cmd", help_heading = STONITH)]
    pub(crate) fence_timeout: Duration,
    /// How long the last leader has to say late that its work has stopped [default: the grace and
    /// two renewal intervals]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "fence_cmd", help_heading = STONITH)]
    pub(crate) fence_delay: Option<Duration>,
    /// What follows when it could not be stopped: retry (after 5, 15 and 45 seconds, then as
    /// refuse), refuse (nobody leads until it has stopped, or until `incumbent fenced`), or anyway
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = OnFenceFailure::Retry, requires = "fence_cmd", help_heading = STONITH)]
    pub(crate) on_fence_failure: OnFenceFailure,
}

/// What follows when the last leader could not be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnFenceFailure {
    Retry,
    Refuse,
    Anyway,
}

impl From<OnFenceFailure> for OnFailure {
    fn from(what: OnFenceFailure) -> OnFailure {
        match what {
            OnFenceFailure::Retry => OnFailure::Retry,
            OnFenceFailure::Refuse => OnFailure::Refuse,
            OnFenceFailure::Anyway => OnFailure::Anyway,
        }
    }
}

fn parse_priority(text: &str) -> Result<i32, String> {
    text.parse().map_err(|_| format!("a whole number, e.g. 10 or -5, from {} to {}", i32::MIN, i32::MAX))
}

fn parse_target(text: &str) -> Result<String, String> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._:-".contains(letter);
    if text.is_empty() || text.len() > 64 || !text.chars().all(is_plain) {
        return Err("1 to 64 letters, digits and ._:-".to_owned());
    }
    Ok(text.to_owned())
}

/// Under which its options are listed.
const HEALTH: &str = "Health";

/// What tells whether this candidate is fit to lead.
#[derive(Clone, Debug, Args)]
pub(crate) struct HealthArgs {
    /// Run this with /bin/sh -c: exit code 0 is fit, 1 unwell, all else unfit; the first line that
    /// it writes is the reason. May be given several times, like most of these
    #[arg(help_heading = HEALTH, long, value_name = "LINE", value_parser = NonEmptyStringValueParser::new(), value_hint = ValueHint::CommandString)]
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
/// COMMAND finds INCUMBENT_ELECTION, INCUMBENT_NAME and INCUMBENT_TOKEN in its environment, and the
/// store's identity in INCUMBENT_STORE_ID. The token is higher than that of every earlier leader:
/// pass it to whatever COMMAND writes to, so that writes with an older token can be refused.
///
/// INCUMBENT_LAST_TERM says how the last term ended, for work that no fence guards: `closed` (its
/// work has stopped), `died` (no process of it is left), `fenced` (stopped from outside, or an
/// operator has said so), `unfenced` (nobody has said so: it may go on), `none` (there was none),
/// or `unknown`, as always in an election that keeps no record of its terms (--record). Consensus
/// among peers knows `closed`, `unfenced` and `none` without one.
///
/// Among peers (consensus, bully, ring) this process is a member of the group for as long as it
/// runs, and a group needs its members: use --forever there. With bully and ring there is no token,
/// and neither INCUMBENT_TOKEN nor INCUMBENT_STORE_ID is set.
///
/// SIGTERM and SIGINT stop COMMAND (SIGTERM, then SIGKILL after the grace), release the office, and
/// exit; a second one kills at once. Before that, with SIGTERM, the best in line is asked to take
/// the office, for --leave-within at most: COMMAND works on until that one is ready. Best is who is
/// fit, then who has the highest --priority, then who is first. If nobody can take it, COMMAND is
/// stopped all the same, and so it is by a second SIGTERM meanwhile; a third one kills. SIGHUP,
/// SIGUSR1, SIGUSR2, SIGQUIT and SIGWINCH are passed on to COMMAND. Signals that were ignored at
/// the start stay ignored. On a terminal, Ctrl-C and Ctrl-\ go to COMMAND alone: if they kill it,
/// `incumbent` ends too, even with --forever. A COMMAND that catches Ctrl-C and exits counts as
/// having ended by itself: with --forever it is restarted after a second, and a Ctrl-C within that
/// second ends `incumbent`. A COMMAND that ignores Ctrl-C can be ended with Ctrl-\. Ctrl-Z does not
/// suspend COMMAND, which would keep the office and do nothing: it goes on at once. A candidate
/// that waits is suspended like any program, and is passed over once it has been silent for the
/// TTL. Under systemd, Type=notify works: a follower counts as ready.
///
/// With health checks (--health-cmd, --min-memory and so on) this process gets in line once each
/// has said something and none that it is unfit. When one says so three times in a row, COMMAND is
/// stopped and the office goes to the next in line; it gets back in line when all has been well for
/// five results and --health-well-for. One that hangs counts as unfit, and is not run a second time
/// meanwhile. Unwell means that somebody else would be better: a leader hands over to the first in
/// line that is fit, and COMMAND is stopped for that; if nobody is fit, it stays. Probes over the
/// network say no more than unwell: what they ask is mostly shared by all candidates.
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
    122  not elected, with --try or --wait: somebody else leads, the election is
         paused, or a health check says that this one is unfit; -E sets another
         code
    125  `incumbent` itself failed, or the store does not answer
    126  COMMAND cannot be executed
    127  COMMAND was not found
    2    the command line is wrong")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) target: ElectionArg,
    #[command(flatten)]
    pub(crate) candidate: CandidateArgs,
    /// Do not wait: exit with 122 if somebody else leads, or this one is unfit
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

/// Under which its options are listed.
const HOOKS: &str = "Hooks";

/// What is run when the office comes and goes.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct HookArgs {
    /// Run this with /bin/sh -c once in office. If it fails, the office is given back, and this
    /// candidate stays out of line for a while
    #[arg(help_heading = HOOKS, long, value_name = "LINE", value_hint = ValueHint::CommandString)]
    pub(crate) on_elected: Option<String>,
    /// Run this when the work has to stop. The office goes once it has ended, and after the grace
    /// at the latest
    #[arg(help_heading = HOOKS, long, value_name = "LINE", value_hint = ValueHint::CommandString)]
    pub(crate) on_stopping: Option<String>,
    /// Run this when a term is over, once for each: by then, somebody else may lead
    #[arg(help_heading = HOOKS, long, value_name = "LINE", value_hint = ValueHint::CommandString)]
    pub(crate) on_lost: Option<String>,
}

/// Hold the office without a command: prints events, and resigns at the end of its input
///
/// For programs that are not written in Rust: start this, read its output line by line, and close
/// its input to resign. After `stopping`, the work has the grace period to stop; after `lost`,
/// somebody else may lead. Exits with 0 when it has resigned or the election has ended.
///
/// With SIGTERM the best in line is asked to take the office first, for --leave-within at most:
/// `stopping` comes once that one is ready. If nobody can take it, or SIGTERM comes again, the
/// office is given back at once.
///
/// For a service that runs all the time and only changes its role, hooks do what has to be done:
/// --on-elected, --on-stopping, --on-lost. They run one at a time, each to its end or until it is
/// stopped, and never hold up what keeps the office. They find INCUMBENT_ELECTION,
/// INCUMBENT_NAME, INCUMBENT_TOKEN and INCUMBENT_LAST_TERM in their environment, as COMMAND of
/// `run` does, and from `stopping` on INCUMBENT_REASON, the reason of the event. Their input is
/// empty, and what they write goes to standard error. What a hook leaves running when it exits is
/// stopped: leave it to a service manager.
///
/// `elected` may take as long as the term lasts; the line can set a limit with timeout(1). If it
/// still runs when the work has to stop, it is stopped first: SIGTERM, then SIGKILL after half of
/// the grace, or all of it without --on-stopping. `stopping` has what is left of the grace, and
/// `lost` the grace; what takes longer is killed. Where an office is lost at once (deposed, or the
/// session has expired) there is no `stopping`. Every term in which --on-elected was begun has one
/// `lost`, also when `elected` failed, the input ends or a signal comes, but not when this process
/// is killed: no safety may hang on it. What the next leader must not meet belongs into `stopping`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Events with --json, one object a line, each with \"v\":1 and the election:
    {\"v\":1,\"election\":\"jobs/nightly\",\"event\":...
    \"following\",\"ahead\":\"node-1\",\"token\":7}     behind node-1
    \"elected\",\"token\":8,\"remaining_ms\":14685}   in office
    \"stopping\",\"reason\":\"transferred\"}          stop the work
    \"lost\",\"reason\":\"transferred\"}              the term is over
    \"out\",\"reason\":\"paused\"}                    not in line for now
    \"resigned\"} or \"ended\"}                       nothing follows
Among peers \"ahead\" is the leader, and null while there is none. With bully and
ring \"token\" is null, and so is \"remaining_ms\" where nothing bounds the term.

Examples:
    mkfifo hold && incumbent campaign jobs/nightly --json < hold
    incumbent campaign db/main --on-elected './address add' \\
        --on-stopping './address remove' --on-lost './address remove' < hold")]
pub(crate) struct CampaignArgs {
    #[command(flatten)]
    pub(crate) target: ElectionArg,
    #[command(flatten)]
    pub(crate) candidate: CandidateArgs,
    #[command(flatten)]
    pub(crate) hooks: HookArgs,
    #[command(flatten)]
    pub(crate) format: Format,
}
