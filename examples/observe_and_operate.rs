//! Watching who leads, and acting from outside: a transfer, a pause, an end.
//!
//! `cargo run --example observe_and_operate`

use std::time::Duration;

use incumbent::{Candidacy, Client, Election, Observation};

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
        // Each has a client, and so a session, of its own. Once it stands, the next one comes
        // behind it.
        let election = Client::connect(URL).await?.election("primary")?;
        let candidacy = election.candidate(name).stand().await?;
        replicas.push(tokio::spawn(replica(candidacy)));
    }
    let operator = election.operator();
    println!("transfer to c");
    operator.transfer("c", WITHIN).await?;
    println!("pause");
    operator.clone().reason("maintenance").pause(WITHIN).await?;
    println!("resume");
    operator.resume(WITHIN).await?;
    somebody_leads(&election).await;
    println!("end");
    operator.end(WITHIN).await?;
    for replica in replicas {
        replica.await??;
    }
    watching.await?;
    Ok(())
}

/// Leads when it is its turn, and stops when it is asked to.
async fn replica(mut candidacy: Candidacy) -> Result<(), BoxError> {
    let name = candidacy.name().to_owned();
    while let Some(leadership) = candidacy.elected().await? {
        let why = leadership.stopping().await;
        println!("  {name} stops: {}", why.reason());
        leadership.resign().await?;
    }
    println!("  {name} has heard that the election has ended");
    Ok(())
}

/// Waits for the next leader: an observer is woken by the store, and asks nothing in between.
async fn somebody_leads(election: &Election) {
    let mut observer = election.observe();
    while let Some(seen) = observer.next().await {
        if matches!(seen, Observation::Leader(_)) {
            return;
        }
    }
}
