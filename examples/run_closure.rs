//! The short form: a closure that runs in each term until it returns.
//!
//! `cargo run --example run_closure`

use std::time::Duration;

use incumbent::Client;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let client = Client::connect("memory://run").await?;
    let election = client.election("migrations")?;
    let mut attempts = 0;
    let migrated = election.candidate("node-1").run(async |term| {
        // Borrowed from around the closure: it counts across terms.
        attempts += 1;
        for step in 1..=3 {
            // Right before each step that only a leader may take.
            term.check()?;
            println!("step {step} under token {}", term.token());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok::<_, BoxError>(3)
    });
    match migrated.await? {
        Some(steps) => println!("{steps} steps in {attempts} term(s)"),
        None => println!("the election has ended"),
    }
    Ok(())
}
