//! Operators' orders.

use std::time::Duration;

use clap::Args;
use incumbent::{ElectionName, Token};

use super::{ElectionArg, Format, parse_name};
use crate::duration::parse_duration;

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
    incumbent transfer jobs/nightly --to node-2 --dry-run
    incumbent transfer jobs/nightly --cancel
    incumbent transfer jobs/nightly --to 5a9c...    by id")]
pub(crate) struct TransferArgs {
    /// The name or id of the candidate that should lead
    #[arg(long, value_name = "NAME_OR_ID", required_unless_present = "cancel")]
    pub(crate) to: Option<String>,
    /// Take back a transfer or a resignation that was ordered and is under way. A leader that has
    /// begun to stop its work hands over all the same
    #[arg(long, conflicts_with_all = ["to", "dry_run", "reason", "by"])]
    pub(crate) cancel: bool,
    /// Say what would happen, and do nothing. Exits as the transfer would if it were refused at
    /// once
    #[arg(long)]
    pub(crate) dry_run: bool,
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

/// Say that the work of a former leader has certainly stopped
///
/// For a term that is on record as open or unknown: a candidate with --fence-cmd that waits for
/// that work to be stopped takes office. This is your word alone: if that work goes on, two do it.
#[derive(Debug, Args)]
pub(crate) struct FencedArgs {
    /// The term, as `incumbent history` shows it
    #[arg(long, value_name = "TOKEN", value_parser = parse_token)]
    pub(crate) token: Token,
    /// That its host is off, or its work has ended, was looked at, and not only supposed
    #[arg(long, required = true)]
    pub(crate) i_have_checked: bool,
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
///
/// All candidates come back by themselves, and the first in line leads. With --first only the one
/// of that name stands until it leads, and the others come back after that. Returns once it leads;
/// if it does not within --timeout, the others still wait for it.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Example:
    incumbent resume db/main --first node-2    the others' data is older")]
pub(crate) struct ResumeArgs {
    /// The name of the candidate that leads before anybody else does
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    pub(crate) first: Option<String>,
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

/// Whom an order to the bench means.
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchedArgs {
    /// The election
    #[arg(value_name = "ELECTION", value_parser = ElectionName::new, required_unless_present = "all", conflicts_with = "all")]
    pub(crate) election: Option<ElectionName>,
    /// The name of the candidates
    #[arg(value_name = "NAME", value_parser = parse_name, required_unless_present = "host", conflicts_with = "host")]
    pub(crate) name: Option<String>,
    /// All of this host instead: those that are called after it, as candidates without a --name
    /// are, and in line now
    #[arg(long, value_name = "HOST", value_parser = parse_name)]
    pub(crate) host: Option<String>,
    /// In every election of the store
    #[arg(long, requires = "host")]
    pub(crate) all: bool,
    /// Not in this one; can be given several times
    #[arg(long, value_name = "ELECTION", value_parser = ElectionName::new, requires = "all")]
    pub(crate) except: Vec<ElectionName>,
    /// Give up after this long, with each
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration, allow_hyphen_values = true)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Keep candidates of a name out of the line until `incumbent unbench`
///
/// For a host that is to be worked on, say. It counts for a name, also while nobody has it: one
/// that is started later stays out, too. One that leads hands over first, to the best in line that
/// is fit; if there is nobody, the order is refused, unless --force says that the office may be
/// vacant. Returns once nobody of that name is in line.
///
/// With --for it ends by itself: the leader counts from when it first read it, and so does the
/// benched one. In a frozen election it is refused for the one that leads. Not with Redlock or
/// peers: there is no line. Candidates that run without a --name are called after their host and
/// process: started again, they have another name, and stand. Name those that you want to bench.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Example:
    incumbent bench db/main node-3 --for 2h --reason 'new disk'
    incumbent bench --host db1 --all --for 2h --reason 'new disk' --dry-run
    incumbent bench --host db1 --all --reason 'new disk' --except api/leader")]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) who: BenchedArgs,
    /// For how long [default: until it is taken back]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    pub(crate) lasts: Option<Duration>,
    /// Bench a leader although nobody can follow it: it tries to hand over for as long as its TTL,
    /// and leaves the office vacant then
    #[arg(long)]
    pub(crate) force: bool,
    /// Say what would happen, and do nothing. Exits as the order would if it were refused at once
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) order: OrderArgs,
}

/// Let candidates of a benched name stand again
///
/// They come back by themselves, at the end of the line.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Example:
    incumbent unbench db/main node-3
    incumbent unbench --host db1 --all")]
pub(crate) struct UnbenchArgs {
    #[command(flatten)]
    pub(crate) who: BenchedArgs,
}

/// Let health move an office again that has changed hands for it too often
///
/// A leader that is unwell hands over to a candidate that is fit. After three such changes within
/// ten minutes none follows until this is said: look first at what the candidates share. One that
/// is unfit leaves all the same.
#[derive(Debug, Args)]
pub(crate) struct AckArgs {
    #[command(flatten)]
    pub(crate) act: ActArgs,
}

/// End an election for all who take part
///
/// All candidates stop, leave and do not come back: `incumbent run` exits with 121. A candidate
/// that comes later starts afresh; its token is still higher than all before. The record of terms
/// goes, too: where --fence-cmd is used, make sure first that the last leader's work has stopped.
#[derive(Debug, Args)]
pub(crate) struct EndArgs {
    #[command(flatten)]
    pub(crate) order: OrderArgs,
    #[command(flatten)]
    pub(crate) act: ActArgs,
}

fn parse_token(text: &str) -> Result<Token, String> {
    let number: u64 = text.parse().map_err(|_| "a token is a number".to_owned())?;
    Token::new(number).ok_or_else(|| format!("a token is between 1 and {}", Token::MAX))
}
