//! Those who only look: who leads, who led, who is in line, and what is wrong.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use incumbent::ElectionName;
use incumbent::store::escape::unescape;

use super::{ElectionArg, Format};
use crate::duration::parse_duration;

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
\"order\". Where somebody tried to stop its work from outside, \"fence\" says what
came of it: {\"result\":\"claimed\", stopped, failed, timed_out or released (a
person's word), \"token\":8 (who tried),\"attempt\":1,\"order\":{...}}.")]
pub(crate) struct HistoryArgs {
    #[command(flatten)]
    pub(crate) target: ElectionArg,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// List the candidates in line, the leader first
///
/// Exits with 3 when nobody is in line.
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
    {\"event\":\"vacant\"}         \"because\": taking, fencing, leaving or
                               holding, if the first in line says so
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
\"leader\" has \"unwell\":true where it says so, and \"priority\" where it is not
zero; \"handover\" has \"for_health\":true where the leader hands over for that,
and \"for_bench\":true where it is benched.
\"benched\" lists the names that are kept out of the line, with by whom, when and
why, for how long (\"lasts_ms\"), and \"leaves_anyway\":true where a leader leaves
though nobody follows.
\"held_back\":{\"token\":7,\"at_ms\":...} is there when it has done so too often:
`incumbent ack` lets it go on.
\"recovery\":{\"id\":...,\"step\":...} is there while somebody heals it.
\"paused\", \"frozen\" and \"handover\" say by whom, when and why; \"first\" is there
when only the candidate of that name may stand until it leads. \"frozen\" says
for how long, in \"lasts_ms\". \"followers\" is null where the store keeps no line.
\"ended\": it was ended a while ago; those in line do not know yet, or came
later. \"vacant_because\" is there when nobody leads: paused, ended, benched,
deposed or no_candidates; taken_over: another server of the store has taken
over, and nobody leads for \"quiet_ms\" yet; holding: the first in line leads
no more, and keeps its place until its work has stopped; where terms are on
record also taking, fencing or leaving: it is not in office yet, or no longer;
among peers forming, no_majority, state_lost, refused or electing. \"fencing\"
says of the last leader (\"token\") what came of stopping it (\"result\"), and in
\"order\" why. \"stalled\" is there while the store answers and takes no writes,
and says why. With a directory, \"silent_ms\" says how long ago the leader was
last heard from. With peers there is also
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
/// A warning: an operator has paused or ended it, too few are in line behind the leader, the leader
/// is unwell or benched, or has been silent for half its TTL (a directory knows that), health has
/// moved the office too often, a member of a group does not answer. Critical: nobody leads.
/// Unknown: the store cannot be read. After a `|` come the figures.
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
    incumbent_benched                 how many names are kept out of the line
    incumbent_held_back               1: health has moved it too often
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
/// believe it; what a killed process left behind is not shown. A leader in a program that uses the
/// library says nothing here. It is read, and no store is asked: two claims to one office, or one
/// that the store does not know, are what `incumbent doctor` looks for. Without root's rights the
/// claims of other users cannot be read, and that is said.
#[derive(Debug, Args)]
#[command(after_long_help = "\
With --json, on one line:
    {\"v\":1,\"host\":\"db1\",\"boot\":\"...\",\"claims\":[{\"pid\":4711,
    \"name\":\"node-1\",\"election\":\"jobs/nightly\",\"store\":\"...\",\"token\":7,
    \"remaining_ms\":9800,\"stopping\":false,\"suspended\":false,\"work_gone\":false,
    \"url\":\"...\",\"renewals\":[{\"left_ms\":9800,\"lasts_ms\":14685}]}],
    \"unread\":[],\"work\":[]}
\"store\" is the store's identity, \"url\" where it is. \"remaining_ms\" is null where
nothing bounds the term, and 0 when it is over and the work has not stopped yet.
\"stopping\": the work was asked to stop. \"suspended\": the process is stopped by a
signal.
\"work_gone\": it is over, and its guardian has stopped the work. \"renewals\": the
last 20, with what was left of the time, and what there was then.
\"unread\" names what could not be read; claims may be missing then. \"work\" has
the processes that work under an office which nobody claims any more.

Claims are kept in $XDG_RUNTIME_DIR/incumbent; without that variable in
/run/incumbent (root) or in /tmp/incumbent-UID. Those of services and containers
with a /run or /tmp of their own are found by their processes; only root sees
those of other users. INCUMBENT_CLAIMS_DIR names one directory instead, for
writing and for reading: a volume that containers share, say.")]
pub(crate) struct ClaimsArgs {
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Look for what is wrong with an election, with everybody asked
///
/// Reads the store, asks which processes claim to lead, and reads the store again; what is odd is
/// looked at again before it is said. Each finding comes with what was seen, what it means, what it
/// cannot be told from and what to do next; docs/runbooks.md has the rest. Without --recover it
/// writes nothing, but for the session without which ZooKeeper lets nobody read; it is never a
/// candidate.
///
/// With --recover it heals: it keeps the evidence, stops everybody and asks every host that you
/// name whether it has stopped, compares and reconciles data by your commands, keeps tokens from
/// being given twice, and lets the candidate that you name lead first. It asks for a word before
/// whatever cannot be undone, and no option says yes for you. The journal in recovery-ID lets you
/// go on after any interruption.
///
/// Without --host the processes of this host are asked. That is everybody with a directory as the
/// store; elsewhere it is not, and that is said; --recover does not begin then.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
    incumbent doctor jobs/nightly
    incumbent doctor db/main --host db1 --host db2 --fence file:///srv/marks \\
        --claims 'ssh {host} incumbent claims --json'
    incumbent doctor db/main --claims 'cat /tmp/claims-of-*.json'
    incumbent doctor db/main --recover --host db1 --host db2 \\
        --claims 'ssh {host} incumbent claims --json' \\
        --compare-cmd 'ssh {host} checksum /srv/db' \\
        --reconcile-cmd 'ssh {host} rebuild-from $INCUMBENT_SURVIVOR'

Findings:
    D01  two processes say that they lead     D02  one that the store denies
    D03  work goes on after its term          D04  an entry that nothing removes
    D05  a leader silent, or out of time      D06  an older store, or another
    D07  a fence behind the leader: info      D08  tokens went back
    D09  the first in line takes no office    D10  nobody stands in line
    D11  an order was forgotten, or is due    D12  the last term was left open
    D13  members lost votes, or differ        D14  too few members answer
    D15  rivals that fence differently        D16  what is not promised: info
    D17  led in two stores                    D18  renewals come late
    D19  servers of a Redlock are missing
With --json, one object a line for each: {\"v\":1,\"finding\":\"D01\",
\"severity\":\"wrong\",\"what\":...,\"seen\":[...],\"means\":...,\"not_told_from\":...,
\"next\":...,\"runbook\":...}; and at last {\"v\":1,\"election\":...,\"findings\":1,
\"leads\":\"node-1 (token 7)\",\"looked_at\":[...],\"not_looked_at\":[...],\"exit\":11}.
With --watch there is no such last line: who cannot be asked comes as
{\"v\":1,\"not_looked_at\":...}, and what is no longer so again with \"gone\":true.

Exit codes, the first that is so:
    11  something is wrong
    4   not everybody was asked; warnings are printed all the same
    10  warnings
    0   everybody was asked, and nothing was found but what is said for the
        record (info)
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
    /// given several times. Marks in etcd, Redis, PostgreSQL and ZooKeeper are not looked at
    #[arg(long = "fence", value_name = "URL", value_parser = parse_fence)]
    pub(crate) fences: Vec<PathBuf>,
    /// Look every five seconds, and say what appears and what goes, until interrupted
    #[arg(long)]
    pub(crate) watch: bool,
    /// Heal what went wrong, step by step: stop, compare, reconcile, elect. Asks before whatever
    /// cannot be undone
    #[arg(long)]
    pub(crate) recover: bool,
    /// Go on with this recovery where it was left
    #[arg(long, value_name = "ID", value_parser = parse_recovery, requires = "recover")]
    pub(crate) resume: Option<String>,
    /// Replace this recovery of another operator, who cannot go on with it
    #[arg(long, value_name = "ID", value_parser = parse_recovery, requires = "recover")]
    pub(crate) take_over: Option<String>,
    /// How to stop what does not heed a pause: a shell command for each --host
    #[arg(long, value_name = "COMMAND", requires = "recover")]
    pub(crate) stop_cmd: Option<String>,
    /// Compares the data of each --host: exits with 0 if it is the same, with 1 if it differs
    #[arg(long, value_name = "COMMAND", requires = "recover")]
    pub(crate) compare_cmd: Option<String>,
    /// Makes the data of a --host like that of $INCUMBENT_SURVIVOR
    #[arg(long, value_name = "COMMAND", requires = "recover")]
    pub(crate) reconcile_cmd: Option<String>,
    /// What is typed otherwise, as a JSON object that names the recovery
    #[arg(long, value_name = "FILE", requires = "resume", value_hint = ValueHint::FilePath)]
    pub(crate) answers: Option<PathBuf>,
    /// Where the recovery keeps its journal, in a directory of its own
    #[arg(long, value_name = "DIRECTORY", default_value = ".", requires = "recover", value_hint = ValueHint::DirPath)]
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// It becomes a part of a file's name.
fn parse_recovery(text: &str) -> Result<String, String> {
    let is_id = text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_id { Ok(text.to_owned()) } else { Err("the id of a recovery has eight hexadecimal digits".to_owned()) }
}

fn parse_fence(text: &str) -> Result<PathBuf, String> {
    let path = text.strip_prefix("file://").and_then(unescape).filter(|path| path.starts_with(b"/"));
    path.map(|path| PathBuf::from(OsString::from_vec(path)))
        .ok_or_else(|| "the mark of a file fence is in a directory: file:///path/to/directory".to_owned())
}
