//! The end of an election while a thousand candidates race for it.

use std::time::Duration;

use incumbent::{CandidacyError, StandError};
use incumbent_store::Store;
use incumbent_testkit::servers::ZooKeeperEnsemble;
use incumbent_zookeeper::ZooKeeperStore;
use tokio::task::JoinSet;

use crate::harness::{ZooKeeper, election, in_line, name, raw, until};

/// Before the end is asked for, and while it goes on.
const CANDIDATES: usize = 500;
const CONNECTIONS: usize = 4;
/// Less than the connections' own: the session's time is theirs.
const TTL: Duration = Duration::from_secs(30);
const LONG: Duration = Duration::from_secs(120);

/// Stands, and leads when it is its turn, until the election is over. Whether it was told that it
/// has ended.
async fn campaign(store: ZooKeeperStore, election: String) -> Result<(), String> {
    let client = incumbent::Client::builder().ttl(TTL).with_store(store).await.map_err(|error| error.to_string())?;
    let election = client.election(&election).unwrap();
    let mut candidacy = match election.candidate("racer").stand().await {
        Ok(candidacy) => candidacy,
        Err(StandError::Candidacy(CandidacyError::Ended)) => return Ok(()),
        Err(error) => return Err(error.to_string()),
    };
    loop {
        match candidacy.elected().await {
            Ok(None) | Err(CandidacyError::Ended) => break,
            Ok(Some(office)) => {
                office.term().stopping().await;
                drop(office);
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    // What this one leaves behind is looked for at the end.
    let _ = client.close(LONG).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_races_with_a_thousand_candidates_and_leaves_nothing() {
    let server = ZooKeeperEnsemble::start(1).await;
    let zookeeper = ZooKeeper::on(&server);
    let name = name("race");
    let mut stores = Vec::new();
    for _ in 0..CONNECTIONS {
        let connection = raw(&server.endpoints()).await;
        stores.push(ZooKeeperStore::with_client(connection, &zookeeper.options()).unwrap());
    }
    let mut racers = JoinSet::new();
    for number in 0..CANDIDATES {
        racers.spawn(campaign(stores[number % CONNECTIONS].clone(), name.to_string()));
    }
    let reader = zookeeper.open();
    in_line(&reader, &name, CANDIDATES).await;

    let operator = election(&reader, &name).await.operator().keep_tombstone(LONG);
    let ending = tokio::spawn(async move { operator.end(LONG).await });
    // These knew the election before its end, or come after it: then they stand in a new one, which
    // is ended as well.
    for number in 0..CANDIDATES {
        racers.spawn(campaign(stores[number % CONNECTIONS].clone(), name.to_string()));
    }
    let first = ending.await.unwrap();
    assert!(first.is_ok() || first.as_ref().is_err_and(|error| error.to_string().contains("line")), "{first:?}");
    let mut told = 0;
    while told < 2 * CANDIDATES {
        // Latecomers start afresh, and wait for their own end.
        let operator = election(&reader, &name).await.operator().keep_tombstone(LONG);
        let again = tokio::spawn(async move { operator.end(Duration::from_secs(10)).await });
        while let Ok(Some(racer)) = tokio::time::timeout(Duration::from_secs(5), racers.join_next()).await {
            racer.unwrap().expect("only an end");
            told += 1;
        }
        again.abort();
    }
    assert!(racers.is_empty());

    in_line(&reader, &name, 0).await;
    let client = raw(&server.endpoints()).await;
    let node = format!("{}/race", zookeeper.chroot);
    until("the node is gone", async || {
        reader.line(&name, 1).await.unwrap();
        client.check_stat(&node).await.unwrap().is_none()
    })
    .await;
    let sessions = format!("{}/%incumbent/sessions", zookeeper.chroot);
    // The operators' own connections have none.
    until("no heartbeat is left", async || client.list_children(&sessions).await.unwrap().is_empty()).await;
}
