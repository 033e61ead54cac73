//! What needs no election: explanations, demonstrations, and what is printed for other programs.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};
use incumbent::ElectionName;

use super::Format;
use crate::duration::{parse_duration, parse_ttl};

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
    incumbent schema postgres > schema.sql
    psql -1 -v ON_ERROR_STOP=1 -f schema.sql postgres://admin@host/database

Without ON_ERROR_STOP psql goes on after an error and exits with 0.")]
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
