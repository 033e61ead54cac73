//! A candidate as a process of its own, told what to do line by line, for trying out what happens
//! when it is stopped or killed.
//!
//! ```sh
//! cargo run -p incumbent-zookeeper --example candidate -- zk://127.0.0.1:2181 jobs/nightly node-1 4 /last-run
//! ```
//!
//! It stands, and says `elected TOKEN`. Then it answers: `check` with `leading` or `lost: ...`,
//! `write TEXT` with `written` or `refused`: a write to the node that the last argument names,
//! which ZooKeeper takes only from a sitting leader.

use std::error::Error;
use std::time::Duration;

use incumbent::Term;
use incumbent_store::ElectionName;
use incumbent_zookeeper::{Guarded, ZooKeeperStore};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let [url, election, name, ttl_seconds, path] = args.as_slice() else {
        return Err("candidate URL ELECTION NAME TTL_SECONDS PATH".into());
    };
    let store = ZooKeeperStore::from_url(url)?;
    let ttl = Duration::from_secs(ttl_seconds.parse()?);
    let client = incumbent::Client::builder().ttl(ttl).with_store(store.clone()).await?;
    let mut candidacy = client.election(election)?.candidate(name.as_str()).stand().await?;
    let Some(office) = candidacy.elected().await? else { return Ok(()) };
    let term = office.term();
    println!("elected {}", term.token().get());
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        match line.split_once(' ') {
            Some(("write", text)) => println!("{}", write(&store, &term, path, text).await),
            _ => match term.check() {
                Ok(()) => println!("leading"),
                Err(lost) => println!("lost: {}", lost.reason()),
            },
        }
    }
    office.resign().await?;
    Ok(())
}

/// Until it is certain whether it was written: a connection that was cut meanwhile is made again.
async fn write(store: &ZooKeeperStore, term: &Term, path: &str, text: &str) -> &'static str {
    let election: &ElectionName = term.election();
    for _ in 0..600 {
        let done = store.guard(election, term.token().token, |writer| writer.add_set_data(path, text.as_bytes(), None));
        match done.await {
            Ok(Guarded::Committed(_)) => return "written",
            Ok(Guarded::Refused) => return "refused",
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    "unavailable"
}
