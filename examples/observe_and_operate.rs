//! Watching who leads, and acting from outside: a transfer, a pause, an end.
//!
//! `cargo run -p incumbent-examples --bin observe_and_operate`

use std::time::Duration;

use incumbent::{Client, Election, Observation};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

const URL: &str = "memory://operate";
const WITHIN: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let election = Client::connect(URL).await?.election("primary")?;
    let mut observer = election.observe();
    let watching = tokio::spawn(async move {
        while let Some(seen) = observer.next().await {
            match seen {
                Observation::Leader(leader) => println!("  observer: {leader} leads"),
                other => println!("  observer: {other:?}"),
            }
        }
    });
    let mut replicas = Vec::new();
    for name in ["a", "b", "c"] {
        let election = Client::connect(URL).await?.election("primary")?;
        replicas.push(tokio::spawn(replica(election, name)));
        while election_len(&Client::connect(URL).await?.election("primary")?).await? < replicas.len() {
            tokio::task::yield_now().await;
        }
    }
    let operator = election.operator();
    println!("transfer to c");
    operator.transfer("c", WITHIN).await?;
    println!("pause");
    operator.pause("maintenance", WITHIN).await?;
    println!("resume");
    operator.resume(WITHIN).await?;
    while election.leader().await?.is_none() {
        tokio::task::yield_now().await;
    }
    println!("end");
    operator.end(WITHIN).await?;
    for replica in replicas {
        replica.await??;
    }
    watching.await?;
    Ok(())
}

/// Leads when it is its turn, and stops when it is asked to.
async fn replica(election: Election, name: &'static str) -> Result<(), BoxError> {
    let mut seat = election.candidate(name).stand().await?;
    while let Some(office) = seat.elected().await? {
        let why = office.stopping().await;
        println!("  {name} stops: {}", why.reason());
        office.resign().await?;
    }
    println!("  {name} has heard that the election has ended");
    Ok(())
}

async fn election_len(election: &Election) -> Result<usize, BoxError> {
    Ok(election.candidates().await?.len())
}
