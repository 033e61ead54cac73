//! What can be written on the command line: the one definition that help, completions and the man
//! page come from.
//!
//! Nothing here does anything. What it says of stores comes from `incumbent::store_kinds`.

mod look;
mod order;
mod other;
mod peers;
mod stand;

use std::path::PathBuf;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, Parser, Subcommand, ValueHint};
use incumbent::store::check_candidate_name;
use incumbent::{ElectionName, NameError};

pub(crate) use look::{
    CandidatesArgs, CheckArgs, ClaimsArgs, DoctorArgs, HistoryArgs, LeaderArgs, ListArgs, MetricsArgs, ObserveArgs,
    StatusArgs,
};
pub(crate) use order::{
    AckArgs, ActArgs, BenchArgs, BenchedArgs, DeposeArgs, EndArgs, FencedArgs, FreezeArgs, OrderArgs, PauseArgs,
    ResignArgs, ResumeArgs, TransferArgs, UnbenchArgs, UnfreezeArgs,
};
pub(crate) use other::{CompletionsArgs, DemoArgs, ExplainArgs, ManArgs, PeerAlgorithm, SchemaArgs, SchemaOf};
pub(crate) use peers::{PeersAct, PeersArgs};
pub(crate) use stand::{CampaignArgs, CandidateArgs, FenceArgs, HealthArgs, HookArgs, ReadyArgs, RunArgs};

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
PostgreSQL also has ?listen=HOST:PORT, the server itself where the host is a
pooler, and takes a password from the file PGPASSFILE names, or ~/.pgpass.
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
Peers cannot pause, freeze, bench, depose or end; bully and ring cannot
transfer.
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
    Fenced(FencedArgs),
    Pause(PauseArgs),
    Resume(ResumeArgs),
    Freeze(FreezeArgs),
    Unfreeze(UnfreezeArgs),
    Bench(BenchArgs),
    Unbench(UnbenchArgs),
    Ack(AckArgs),
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
            | Verb::Fenced(_)
            | Verb::Pause(_)
            | Verb::Resume(_)
            | Verb::Freeze(_)
            | Verb::Unfreeze(_)
            | Verb::Bench(_)
            | Verb::Unbench(_)
            | Verb::Ack(_)
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

fn parse_name(text: &str) -> Result<String, NameError> {
    check_candidate_name(text).map(|()| text.to_owned())
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
