//! What each verb does.

pub(crate) mod bench;
pub(crate) mod campaign;
pub(crate) mod check;
pub(crate) mod claims;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod generate;
pub(crate) mod history;
pub(crate) mod list;
mod manual;
pub(crate) mod metrics;
pub(crate) mod observe;
pub(crate) mod operate;
pub(crate) mod read;
pub(crate) mod run;
mod screen;
pub(crate) mod status;

use std::convert::Infallible;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use incumbent::store::{Namespaces, random, state_directory};
use incumbent::{
    Candidate, Client, ClientBuilder, ConnectError, Election, ElectionName, Leadership, Sighting, StoreId, Unfenced,
    Witness,
};

use crate::args::CandidateArgs;
use crate::failure::{Code, Failure};
use crate::health;
use crate::logging::{self, LastError};
use crate::output::Console;
use crate::stonith;
use crate::store_url::{StoreUrl, in_container};

/// How long a client may take to leave everything tidy.
const TIDY: Duration = Duration::from_secs(5);
/// How often to look for a store that is not there yet.
const LOOK_FOR_STORE: Duration = Duration::from_millis(500);
/// A store in which nobody stands.
const EMPTY: &str = "memory://empty";
/// How long nothing is said while there is no session with the store: at first, and from then on.
const SILENCE: Duration = Duration::from_secs(3);
const LONG_SILENCE: Duration = Duration::from_secs(10);

/// Leaves everything tidy, also when something broke: the office is not left to expire.
async fn close(client: Client<Unfenced>, console: &Console) {
    if client.close(TIDY).await.is_err() {
        console.warn("the store has not confirmed that this candidate left; anything left expires with its session");
    }
}

/// Says now and then, while there is no session with the store, that it is waited for, and why.
async fn say_what_is_waited_for(console: &Console) -> Infallible {
    let mut silence = SILENCE;
    loop {
        tokio::time::sleep(silence).await;
        console.note(format!("still waiting for a session with the store{}", last_error()));
        silence = LONG_SILENCE;
    }
}

/// What the library last met, and what to do about it, as the end of a sentence.
fn last_error() -> String {
    match logging::last_error() {
        None => String::new(),
        Some(LastError { text, next: None }) => format!(": {text}"),
        Some(LastError { text, next: Some(next) }) => format!(": {text}; {next}"),
    }
}

/// The election, for a verb that writes, but is no candidate: an order in a directory that was not
/// there, whose name may be mistyped, would be heeded by nobody.
async fn election(name: &ElectionName, store: &StoreUrl) -> Result<Election<Unfenced>, Failure> {
    watching_client(store).await?.election(name.as_str()).map_err(|error| Failure::usage(error.to_string()))
}

/// The election, for a verb that only reads.
async fn seen_election(name: &ElectionName, store: &StoreUrl) -> Result<Election<Unfenced>, Failure> {
    seen_client(store).await?.election(name.as_str()).map_err(|error| Failure::usage(error.to_string()))
}

/// A client for a verb that only reads, once.
async fn seen_client(store: &StoreUrl) -> Result<Client<Unfenced>, Failure> {
    let client = match seeing_client(Client::builder(), store).await {
        // Nobody has ever stood on this host: nobody leads, and nobody is in line.
        Err(ConnectError::Missing { .. }) if !store.was_named() => Client::builder().connect_unfenced(EMPTY).await,
        client => client,
    };
    client.map_err(|error| at(store, error))
}

/// The same for those who watch or act from outside, often as another user: the store of one that
/// has none is not empty, but missing.
async fn watching_client(store: &StoreUrl) -> Result<Client<Unfenced>, Failure> {
    seeing_client(Client::builder(), store).await.map_err(|error| match error {
        ConnectError::Missing { .. } if !store.was_named() => {
            Failure::new(Code::Unavailable, format!("no store was named, and {error}")).next("name one with --store")
        }
        error => at(store, error),
    })
}

/// The same for a verb that goes on reading: it may come before the first candidate, which makes
/// the store.
async fn awaited_election(
    name: &ElectionName,
    store: &StoreUrl,
    console: &Console,
) -> Result<Election<Unfenced>, Failure> {
    let mut told = false;
    let client = loop {
        match seeing_client(Client::builder(), store).await {
            Ok(client) => break client,
            Err(missing @ ConnectError::Missing { .. }) => {
                if !std::mem::replace(&mut told, true) {
                    console
                        .note(format!("{missing} yet: waiting for `incumbent run` or `incumbent campaign` to make it"));
                }
                tokio::time::sleep(LOOK_FOR_STORE).await;
            }
            Err(error) => return Err(at(store, error)),
        }
    };
    client.election(name.as_str()).map_err(|error| Failure::usage(error.to_string()))
}

/// The client of a verb that only reads: it creates no directory, whose name may be mistyped.
async fn seeing_client(builder: ClientBuilder, store: &StoreUrl) -> Result<Client<Unfenced>, ConnectError> {
    let builder = match witness_of_this_user() {
        Some(witness) => builder.witness(witness),
        None => builder,
    };
    builder.must_exist().connect_unfenced(store.url()).await
}

/// What this user has seen from this host: beside the user's own store, not in it.
fn witness_of_this_user() -> Option<Witness> {
    state_directory().map(|directory| Witness::new(directory.with_file_name("incumbent-witness")))
}

/// Remembers who leads now and in which store, and warns if the store is older than what this host
/// has seen, or another one. The term goes on meanwhile, and whatever comes of this.
fn witness_term(election: &Election<Unfenced>, leadership: &Leadership<Unfenced>, store: &StoreUrl, console: &Console) {
    let (Some(witness), Some(token)) = (witness_of_this_user(), leadership.token_if_any().cloned()) else { return };
    let (election, place, console) = (election.clone(), store.place(), console.clone());
    tokio::spawn(async move {
        // The store knows under which id.
        let Ok(reading) = election.leader().await else { return };
        let leads = reading.get().as_ref().and_then(Sighting::of).filter(|leads| leads.token == token.token);
        let Some(leads) = leads else { return };
        let name = election.name().clone();
        let looked = tokio::task::spawn_blocking(move || {
            let seen = witness.seen(&token.store, &name);
            let noted = witness.note(&token.store, &name, leads);
            let before = place.and_then(|place| {
                let _ = witness.note_place(&place, &token.store).inspect_err(cannot_note);
                let before = witness.store_at(&place).ok()?.filter(|before| *before != token.store)?;
                Some((before, witness.path_of_place(&place)))
            });
            let _ = noted.inspect_err(cannot_note);
            (seen, before)
        });
        let Ok((seen, before)) = looked.await else { return };
        if let Some((before, file)) = before {
            console.warn(another_than_seen(election.name(), &before, &file));
        }
        if let Ok(Some(seen)) = seen
            && seen.is_later_than(&leads)
        {
            console.warn(older_than_seen(election.name(), seen));
        }
    });
}

fn cannot_note(error: &std::io::Error) {
    tracing::debug!(%error, "cannot write down who leads");
}

/// What is wrong with a store that is not the one which was found there before.
fn another_than_seen(election: &ElectionName, before: &StoreId, file: &std::path::Path) -> String {
    format!(
        "this host has seen another store here, {before}: tokens of the two do not compare; `incumbent doctor {}` looks \
         closer, docs/runbooks.md#the-store-was-restored says what to do; if it was replaced on purpose, remove {}",
        read::quoted(election),
        file.display()
    )
}

/// What is wrong with a store in which somebody leads that came before this one.
fn older_than_seen(election: &ElectionName, seen: Sighting) -> String {
    format!(
        "this host has seen token {} in this store: it is older than it was, and gives tokens again; \
         `incumbent doctor {}` looks closer, docs/runbooks.md#the-store-was-restored says what to do",
        seen.token,
        read::quoted(election)
    )
}

/// The client of a candidate.
async fn standing_client(standing: &CandidateArgs, store: &StoreUrl) -> Result<Client<Unfenced>, Failure> {
    health::check_usage(&standing.health)?;
    let mut builder = Client::builder();
    if let Some(ttl) = standing.ttl {
        builder = builder.ttl(ttl);
    }
    if let Some(grace) = standing.grace {
        builder = builder.grace(grace);
    }
    if store.url().starts_with("consensus:") && !store.url().contains("data=") && in_container() {
        tracing::warn!(
            "this seems to be a container: if its votes go with it, this member cannot vote when it is started again until all \
             others answer it; keep them on a volume, named with &data="
        );
    }
    let client = builder.connect_unfenced(store.url()).await.map_err(|error| at(store, error))?;
    check_member_name(standing, &client)?;
    Ok(client)
}

/// A member is called as the list of members says: any other name would be ignored.
fn check_member_name(standing: &CandidateArgs, client: &Client<Unfenced>) -> Result<(), Failure> {
    let (Some(name), Some(group)) = (&standing.name, client.group()) else { return Ok(()) };
    if group.members().by_name(name).is_some() {
        return Ok(());
    }
    let names: Vec<_> = group.members().iter().map(|member| &*member.name).collect();
    let what = format!("no member of this group is called {name:?}: its members are {}", names.join(", "));
    Err(Failure::usage(what)
        .next("leave --name out, or name the members in the URL, as in members=NAME=HOST:PORT,NAME=HOST:PORT"))
}

/// What the store says comes with the store's name; what is wrong on the command line speaks for
/// itself.
fn at(store: &StoreUrl, error: ConnectError) -> Failure {
    let by_store = matches!(error, ConnectError::Store(_));
    let failure = Failure::from(error);
    if by_store { failure.doing(format!("the store {store}")) } else { failure }
}

/// The candidate's name: what was given, or where and which process this is.
fn candidate_name(standing: &CandidateArgs) -> String {
    standing.name.clone().unwrap_or_else(|| {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        default_name(&host, std::process::id(), numbers_are_the_hosts())
    })
}

/// Containers of one host may share its name, and each has a process 1 of its own: there a random
/// number is added.
fn default_name(host: &str, pid: u32, unique_pid: bool) -> String {
    let host = if host.is_empty() { "host" } else { host };
    if unique_pid {
        return format!("{host}-{pid}");
    }
    // Without random numbers it stays zero: names need not be unique, and this is no reason to
    // fail.
    let number = u16::from_ne_bytes(random().unwrap_or_default());
    format!("{host}-{pid}-{number:04x}")
}

/// Whether process numbers are those of the host, and not of a container.
fn numbers_are_the_hosts() -> bool {
    // The kernel's first namespace of process numbers always has this one (PROC_PID_INIT_INO).
    const HOSTS: u64 = 0xeffffffc;
    Namespaces::this().numbers == HOSTS
}

/// With its priority, what is to be on record of it, and what stops the last leader.
fn equipped(candidate: Candidate<Unfenced>, standing: &CandidateArgs) -> Candidate<Unfenced> {
    let candidate = stonith::armed(candidate, &standing.fence);
    let candidate = standing.priority.into_iter().fold(candidate, Candidate::priority);
    if standing.record { candidate.recorded() } else { candidate }
}

/// How long a leader looks for an heir before it leaves. A member of a group has none to look for:
/// its group sees to that when it gives the office back.
fn leave_within(standing: &CandidateArgs, among_peers: bool) -> Duration {
    if among_peers { Duration::ZERO } else { standing.leave_within }
}

/// What is advertised need not be text.
fn value_bytes(standing: &CandidateArgs) -> Vec<u8> {
    standing.value.as_bytes().to_vec()
}

/// Our own executable once more, however its file has been moved or replaced since.
fn this_program() -> tokio::process::Command {
    let mut command = tokio::process::Command::new("/proc/self/exe");
    command.arg0("incumbent");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_name_says_where_and_which_and_is_drawn_by_lot_in_a_container() {
        assert_eq!(default_name("vm", 7, true), "vm-7");
        assert_eq!(default_name("", 7, true), "host-7");
        let names: std::collections::BTreeSet<_> = (0..50).map(|_| default_name("vm", 1, false)).collect();
        assert!(names.iter().all(|name| name.starts_with("vm-1-") && name.len() == 9), "{names:?}");
        assert!(names.len() > 40, "{names:?}");
    }
}
