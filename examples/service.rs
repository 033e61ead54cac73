//! A service with two replicas: one leads, the other takes over.
//!
//! `cargo run --example service` runs both in one process, on a store in memory. With real replicas
//! each process has one of them, and the URL names a store that they share.

use std::time::Duration;

use incumbent::Client;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let first = tokio::spawn(replica("node-1", 3));
    let second = tokio::spawn(replica("node-2", 3));
    first.await??;
    second.await??;
    Ok(())
}

/// Stands for election, works in each term, and leaves after so many jobs.
async fn replica(name: &str, jobs: u32) -> Result<(), BoxError> {
    let client = Client::builder().ttl(Duration::from_secs(5)).connect("memory://example").await?;
    let election = client.election("jobs/nightly")?;
    // State that lives across terms.
    let mut done = 0;

    let mut candidacy = election.candidate(name).value(format!("{name}.internal:80")).stand().await?;
    while let Some(leadership) = candidacy.elected().await? {
        println!("{name} leads with token {}", leadership.token());
        let term = leadership.term();
        let work = leadership.guard(async {
            while done < jobs {
                tokio::select! {
                    // A transfer, a pause, a deadline that comes near: stop in time.
                    why = term.stopping() => {
                        println!("{name} stops: {why}");
                        break;
                    }
                    () = job(name, term.token().get()) => done += 1,
                }
            }
            Ok::<_, BoxError>(())
        });
        if work.await?.is_none() {
            println!("{name} lost the office, and is back in line");
        }
        if done >= jobs {
            leadership.leave().await?;
            break;
        }
        leadership.resign().await?;
    }
    client.close(Duration::from_secs(5)).await?;
    println!("{name} is done");
    Ok(())
}

async fn job(name: &str, token: u64) {
    tokio::time::sleep(Duration::from_millis(100)).await;
    println!("  {name} did a job under token {token}");
}
