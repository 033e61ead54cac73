//! A database without space: puts are refused, deletes are not, and the put that used up the last
//! of it was committed.

use std::time::Duration;

use incumbent::Observation;
use incumbent_etcd::rpc::PutRequest;
use incumbent_etcd::{EtcdWrite, Guarded};
use incumbent_store::{Cas, ElectionName, Store, StoreError};
use incumbent_testkit::servers::EtcdCluster;

use crate::harness::{client, entry, held, name, raw, read, store, until, within};

const LONG: Duration = Duration::from_secs(600);

/// A server that soon has no space.
async fn small() -> EtcdCluster {
    EtcdCluster::start_with(1, &["--quota-backend-bytes=4194304"]).await
}

async fn fill(cluster: &EtcdCluster) {
    let client = raw(&cluster.endpoints());
    // How much is used is counted ten times in a second: until then there is space for more.
    until("there is no space left", async || {
        let put = PutRequest { key: "filler".into(), value: vec![b'x'; 1 << 20], lease: 0 };
        client.put(put).await.is_err()
    })
    .await;
}

#[tokio::test]
async fn nobody_is_told_that_nothing_was_changed_when_something_was() {
    let cluster = small().await;
    let store = store(&cluster);
    let election = name("last-of-the-space");
    let session = store.open_session(LONG).await.unwrap();
    let token = held(&session.enlist(&election, &entry(1)).await.unwrap()).token;
    let write = |number: u32| {
        let (store, election) = (store.clone(), election.clone());
        tokio::spawn(async move {
            let put = EtcdWrite::put(format!("data-{number}"), vec![b'x'; 1 << 18]);
            (number, store.guard(&election, token, [put]).await)
        })
    };
    let mut refused = 0;
    // Many at once: some get past the door and find no space behind it.
    for wave in 0..100 {
        let writing: Vec<_> = (0..16).map(|number| write(wave * 16 + number)).collect();
        for written in writing {
            let (number, said) = within(written).await.unwrap();
            let there = !read(&raw(&cluster.endpoints()), &format!("data-{number}"), "").await.is_empty();
            match said {
                Ok(Guarded::Committed) => assert!(there),
                Err(StoreError::OutcomeUnknown { .. }) => refused += 1,
                other => panic!("{other:?}, and it is there: {there}"),
            }
        }
        if refused > 0 {
            break;
        }
    }
    assert!(refused > 0, "there is space for everything");
}

#[tokio::test]
async fn a_withdrawal_is_not_refused_along_with_the_puts_that_it_travels_with() {
    let cluster = small().await;
    let store = store(&cluster);
    let election = |number: u32| ElectionName::new(&format!("full-{number}")).unwrap();
    let session = store.open_session(LONG).await.unwrap();
    let leading = held(&session.enlist(&election(0), &entry(1)).await.unwrap());
    fill(&cluster).await;
    let enlist = |number: u32| {
        let session = session.clone();
        tokio::spawn(async move { session.enlist(&election(number), &entry(number.into())).await })
    };
    // The first few go alone, the others together.
    let enlisting: Vec<_> = (1..9).map(enlist).collect();
    let withdrawing = tokio::spawn({
        let session = session.clone();
        async move { session.withdraw(&leading, None).await }
    });
    assert_eq!(within(withdrawing).await.unwrap().unwrap(), Cas::Done);
    for enlisting in enlisting {
        let refused = within(enlisting).await.unwrap().unwrap_err();
        assert!(matches!(refused, StoreError::OutcomeUnknown { .. }), "{refused:?}");
    }
}

#[tokio::test]
async fn observers_that_come_now_see_who_leads() {
    let cluster = small().await;
    let store = store(&cluster);
    let election = name("observed-full");
    let session = store.open_session(LONG).await.unwrap();
    let leading = held(&session.enlist(&election, &entry(1)).await.unwrap());
    fill(&cluster).await;
    let mut observer = client(&crate::harness::store(&cluster)).await.election(election.as_str()).unwrap().observe();
    let Some(Observation::Leader(leader)) = within(observer.next()).await else { panic!("a leader is there to see") };
    assert_eq!(leader.token, Some(leading.token));
    session.withdraw(&leading, None).await.unwrap();
    assert_eq!(within(observer.next()).await, Some(Observation::Vacant(None)));
}
