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

use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use incumbent::{Client, ConnectError, Election, ElectionName, Unfenced};

use crate::args::Standing;
use crate::failure::Failure;
use crate::place::Place;

/// How long a client may take to leave everything tidy.
const TIDY: Duration = Duration::from_secs(5);

/// The election, for somebody who does not stand in it, but may write.
async fn election(name: &ElectionName, place: &Place) -> Result<Election<Unfenced>, Failure> {
    let client = Client::builder().connect_unfenced(place.url()).await.map_err(|error| at(place, error))?;
    client.election(name.as_str()).map_err(|error| Failure::usage(error.to_string()))
}

/// The election, for somebody who only reads: a store that was named is not made, since its name may be mistyped.
async fn seen_election(name: &ElectionName, place: &Place) -> Result<Election<Unfenced>, Failure> {
    let mut builder = Client::builder();
    if place.was_named() {
        builder = builder.must_exist();
    }
    let client = builder.connect_unfenced(place.url()).await.map_err(|error| at(place, error))?;
    client.election(name.as_str()).map_err(|error| Failure::usage(error.to_string()))
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
    builder.connect_unfenced(place.url()).await.map_err(|error| at(place, error))
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
        let host = if host.is_empty() { "host".to_owned() } else { host };
        format!("{host}-{}", std::process::id())
    })
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
