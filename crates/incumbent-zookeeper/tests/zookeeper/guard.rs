//! Writes to ZooKeeper that only a sitting leader can make.

use incumbent::fence::ZooKeeperFence;
use incumbent::{Fence, FenceError, FencingToken};
use incumbent_store::{ElectionName, Store, StoreError, StoreId, Token};
use incumbent_zookeeper::zookeeper_client::{Error, MultiWriter};
use incumbent_zookeeper::{Dialect, Guarded, ZooKeeperStore};

use crate::harness::{PERSISTENT, TTL, ZooKeeper, client, entry, held, lead, name, raw, shared, unique};

async fn node(test: &str) -> String {
    let path = format!("/data-{test}-{:x}", unique());
    raw(&shared().await.endpoints()).await.create(&path, b"", &PERSISTENT).await.unwrap();
    path
}

async fn value(path: &str) -> String {
    let (data, _) = raw(&shared().await.endpoints()).await.get_data(path).await.unwrap();
    String::from_utf8(data).unwrap()
}

fn set<'a>(path: &'a str, text: &'a str) -> impl Fn(&mut MultiWriter<'_>) -> Result<(), Error> + 'a {
    move |writer| writer.add_set_data(path, text.as_bytes(), None)
}

#[tokio::test]
async fn operations_are_committed_only_while_the_entry_is_there() {
    for dialect in [Dialect::Incumbent, Dialect::CuratorLatch, Dialect::GoLeaderElection] {
        let zookeeper = ZooKeeper::at(shared().await.endpoints(), dialect);
        let (store, name, path) = (zookeeper.open(), name("guard"), node("guard").await);
        let session = store.open_session(TTL * 5).await.unwrap();
        let old = held(&session.enlist(&name, &entry(1)).await.unwrap());
        // Another process knows the token and nothing else.
        for writer in [&store, &zookeeper.open()] {
            let done = writer.guard(&name, old.token, set(&path, "first")).await.unwrap();
            assert!(matches!(&done, Guarded::Committed(results) if results.len() == 1), "{done:?}");
        }
        session.withdraw(&old, None).await.unwrap();
        let new = held(&session.enlist(&name, &entry(2)).await.unwrap());
        for writer in [&store, &zookeeper.open()] {
            let late = writer.guard(&name, old.token, set(&path, "late")).await.unwrap();
            assert!(matches!(late, Guarded::Refused), "{late:?}");
            assert_eq!(value(&path).await, "first");
        }
        assert!(matches!(store.guard(&name, new.token, set(&path, "second")).await.unwrap(), Guarded::Committed(_)));
        assert_eq!(value(&path).await, "second");
        assert_eq!(store.guarded_by(&name, old.token).await.unwrap(), None);
        assert!(store.guarded_by(&name, new.token).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn an_entry_that_somebody_removed_guards_nothing() {
    let zookeeper = ZooKeeper::on(shared().await);
    let (store, name, path) = (zookeeper.open(), name("removed"), node("removed").await);
    let session = store.open_session(TTL * 5).await.unwrap();
    let held = held(&session.enlist(&name, &entry(1)).await.unwrap());
    let entry = store.guarded_by(&name, held.token).await.unwrap().unwrap();
    raw(&shared().await.endpoints()).await.delete(&entry, None).await.unwrap();
    assert!(matches!(store.guard(&name, held.token, set(&path, "late")).await.unwrap(), Guarded::Refused));
    assert_eq!(value(&path).await, "");
}

#[tokio::test]
async fn an_operation_that_zookeeper_refuses_is_an_error_and_nothing_is_written() {
    let (store, name, path) = (ZooKeeper::on(shared().await).open(), name("wrong"), node("wrong").await);
    let session = store.open_session(TTL * 5).await.unwrap();
    let held = held(&session.enlist(&name, &entry(1)).await.unwrap());
    let both = |writer: &mut MultiWriter<'_>| {
        writer.add_set_data(&path, b"half", None)?;
        writer.add_set_data("/no-such-node", b"", None)
    };
    let refused = store.guard(&name, held.token, both).await;
    assert!(matches!(refused, Err(StoreError::Misuse { .. })), "{refused:?}");
    assert_eq!(value(&path).await, "");
}

fn token(number: u64, store: &str) -> FencingToken {
    FencingToken::new(Token::new(number).unwrap(), StoreId::new(store))
}

#[tokio::test]
async fn a_fence_in_zookeeper_refuses_older_tokens_other_stores_and_other_elections() {
    let (store, name, path) = (ZooKeeper::on(shared().await).open(), name("fence"), node("fence").await);
    let fence = ZooKeeperFence::new(&store, &name, format!("/marks/{:x}/fence", unique()));
    fence.write(&token(7, "s"), set(&path, "seven")).await.unwrap();
    fence.raise(&name, token(9, "s")).await.unwrap();
    fence.raise(&name, token(9, "s")).await.unwrap();

    let late = fence.write(&token(7, "s"), set(&path, "late")).await;
    assert!(matches!(late, Err(FenceError::Stale { .. })), "{late:?}");
    let late = fence.raise(&name, token(8, "s")).await;
    assert!(matches!(late, Err(FenceError::Stale { .. })), "{late:?}");
    let other = fence.write(&token(100, "other"), set(&path, "other")).await;
    assert!(matches!(other, Err(FenceError::StoreReplaced { .. })), "{other:?}");
    let elsewhere = fence.raise(&ElectionName::new("elsewhere").unwrap(), token(9, "s")).await;
    assert!(matches!(elsewhere, Err(FenceError::Misuse { .. })), "{elsewhere:?}");
    assert_eq!(value(&path).await, "seven");

    fence.reset(&StoreId::new("other"), "the ensemble was rebuilt").await.unwrap();
    fence.write(&token(1, "other"), set(&path, "anew")).await.unwrap();
    assert_eq!(value(&path).await, "anew");
}

#[tokio::test]
async fn a_fence_is_raised_before_its_leader_sees_the_office() {
    let store: ZooKeeperStore = ZooKeeper::on(shared().await).open();
    let name = name("raised");
    let fence = ZooKeeperFence::new(&store, &name, format!("/marks/{:x}", unique()));
    let ours = client(&store).await.election(name.as_str()).unwrap();
    let mut candidacy = ours.candidate("a").fence(fence.clone()).stand().await.unwrap();
    let office = lead(&mut candidacy).await;
    let term = office.term();
    let older = FencingToken::new(Token::new(term.token().get() - 1).unwrap(), term.token().store.clone());
    assert!(matches!(fence.write(&older, |_| Ok(())).await, Err(FenceError::Stale { .. })));
    fence.write(term.token(), |_| Ok(())).await.unwrap();
}
