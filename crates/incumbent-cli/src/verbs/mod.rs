//! What each verb does.

pub(crate) mod campaign;
pub(crate) mod demo;
pub(crate) mod explain;
mod manual;
pub(crate) mod observe;
pub(crate) mod operate;
pub(crate) mod paper;
pub(crate) mod read;
pub(crate) mod run;
pub(crate) mod status;

use std::convert::Infallible;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use incumbent::{Client, ConnectError, Election, ElectionName, Unfenced};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::args::Standing;
use crate::failure::Failure;
use crate::journal;
use crate::place::{Place, in_container};
use crate::say::Say;

/// How long a client may take to leave everything tidy.
const TIDY: Duration = Duration::from_secs(5);
/// How often to look for a store that is not there yet.
const LOOK_FOR_STORE: Duration = Duration::from_millis(500);
/// How long nothing is said while there is no session with the store: at first, and from then on.
const SILENCE: Duration = Duration::from_secs(3);
const LONG_SILENCE: Duration = Duration::from_secs(10);

/// Says now and then, while there is no session with the store, that it is waited for, and why.
async fn say_what_is_waited_for(say: &Say) -> Infallible {
    let mut silence = SILENCE;
    loop {
        tokio::time::sleep(silence).await;
        say.note(format!("still waiting for a session with the store{}", last_error()));
        silence = LONG_SILENCE;
    }
}

/// What the library last met, as the end of a sentence.
fn last_error() -> String {
    journal::last_error().map_or_else(String::new, |error| format!(": {error}"))
}

/// The election, for somebody who does not stand in it, but may write.
async fn election(name: &ElectionName, place: &Place) -> Result<Election<Unfenced>, Failure> {
    let client = Client::builder().connect_unfenced(place.url()).await.map_err(|error| at(place, error))?;
    client.election(name.as_str()).map_err(|error| Failure::usage(error.to_string()))
}

/// The election, for somebody who only reads.
async fn seen_election(name: &ElectionName, place: &Place) -> Result<Election<Unfenced>, Failure> {
    let client = seeing_client(place).await.map_err(|error| at(place, error))?;
    client.election(name.as_str()).map_err(|error| Failure::usage(error.to_string()))
}

/// The same for somebody who stays: it may have come before the first candidate, who makes the
/// store.
async fn awaited_election(name: &ElectionName, place: &Place, say: &Say) -> Result<Election<Unfenced>, Failure> {
    let mut told = false;
    let client = loop {
        match seeing_client(place).await {
            Ok(client) => break client,
            Err(missing @ ConnectError::Missing { .. }) => {
                if !std::mem::replace(&mut told, true) {
                    say.note(format!("{missing} yet: waiting for `incumbent run` or `incumbent campaign` to make it"));
                }
                tokio::time::sleep(LOOK_FOR_STORE).await;
            }
            Err(error) => return Err(at(place, error)),
        }
    };
    client.election(name.as_str()).map_err(|error| Failure::usage(error.to_string()))
}

/// A store that was named is not made by those who only read, since its name may be mistyped.
async fn seeing_client(place: &Place) -> Result<Client<Unfenced>, ConnectError> {
    let builder = Client::builder();
    let builder = if place.was_named() { builder.must_exist() } else { builder };
    builder.connect_unfenced(place.url()).await
}

/// A client for somebody who stands.
async fn standing_client(standing: &Standing, place: &Place) -> Result<Client<Unfenced>, Failure> {
    let mut builder = Client::builder();
    if let Some(ttl) = standing.ttl {
        builder = builder.ttl(ttl);
    }
    if let Some(grace) = standing.grace {
        builder = builder.grace(grace);
    }
    if place.url().starts_with("consensus:") && !place.url().contains("data=") && in_container() {
        tracing::warn!(
            "this seems to be a container: if its votes go with it, this member cannot vote when it is started again until all \
             others answer it; keep them on a volume, named with &data="
        );
    }
    let client = builder.connect_unfenced(place.url()).await.map_err(|error| at(place, error))?;
    check_member_name(standing, &client)?;
    Ok(client)
}

/// A member is called as the list of members says: any other name would be ignored.
fn check_member_name(standing: &Standing, client: &Client<Unfenced>) -> Result<(), Failure> {
    let (Some(name), Some(group)) = (&standing.name, client.group()) else { return Ok(()) };
    if group.members().by_name(name).is_some() {
        return Ok(());
    }
    let names: Vec<_> = group.members().iter().map(|member| &*member.name).collect();
    let what = format!("no member of this group is called {name:?}: its members are {}", names.join(", "));
    Err(Failure::usage(what)
        .next("leave --name out, or name the members in the URL, as in members=NAME=HOST:PORT,NAME=HOST:PORT"))
}

/// What the store says comes with the store's name; what is wrong on the command line speaks for itself.
fn at(place: &Place, error: ConnectError) -> Failure {
    let by_store = matches!(error, ConnectError::Store(_));
    let failure = Failure::from(error);
    if by_store { failure.doing(format!("the store {place}")) } else { failure }
}

/// The candidate's name: what was given, or where and which process this is.
fn candidate_name(standing: &Standing) -> String {
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
    let mut lot = [0; 2];
    let _ = getrandom(&mut lot, GetRandomFlags::empty());
    format!("{host}-{pid}-{:04x}", u16::from_ne_bytes(lot))
}

/// Whether process numbers are those of the host, and not of a container.
fn numbers_are_the_hosts() -> bool {
    // The kernel's first namespace of process numbers always has this one (PROC_PID_INIT_INO).
    const HOSTS: u64 = 0xeffffffc;
    std::fs::metadata("/proc/self/ns/pid").is_ok_and(|namespace| namespace.ino() == HOSTS)
}

/// What is advertised need not be text.
fn value_bytes(standing: &Standing) -> Vec<u8> {
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
