//! Groups of peers: founding one, and letting a member in again.

use clap::{Args, Subcommand};

use super::ActArgs;

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
