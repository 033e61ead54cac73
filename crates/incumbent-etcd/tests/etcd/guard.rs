//! Writes to etcd that only a sitting leader can make.

use incumbent::fence::EtcdFence;
use incumbent::{Fence, FenceError, FencingToken};
use incumbent_etcd::rpc::{Compare, RequestOp, TxnRequest, With};
use incumbent_etcd::{EtcdWrite, Guarded};
use incumbent_store::{ElectionName, Store, StoreId, Token};

use crate::harness::{TTL, client, entry, held, key_of, lead, name, raw, read, shared, store};

async fn value(key: &str) -> Option<String> {
    let found = read(&raw(&shared().await.endpoints()), key, "").await;
    found.into_iter().next().map(|kv| String::from_utf8(kv.value).unwrap())
}

#[tokio::test]
async fn operations_are_committed_only_while_the_entry_is_there() {
    let store = store(shared().await);
    let election = name("guard");
    let key = format!("data/{election}");
    let session = store.open_session(TTL).await.unwrap();
    let old = held(&session.enlist(&election, &entry(1)).await.unwrap());
    let put = |text: &str| [EtcdWrite::put(key.clone(), text)];
    let done = store.guard(&election, old.token, put("first")).await.unwrap();
    assert_eq!(done, Guarded::Committed);
    // The same session stands again.
    session.withdraw(&old, None).await.unwrap();
    let new = held(&session.enlist(&election, &entry(2)).await.unwrap());

    let late = store.guard(&election, old.token, put("late")).await.unwrap();

    assert_eq!(late, Guarded::Refused);
    assert_eq!(value(&key).await.as_deref(), Some("first"));
    assert_eq!(store.guard(&election, new.token, put("second")).await.unwrap(), Guarded::Committed);
    assert_eq!(value(&key).await.as_deref(), Some("second"));
}

#[tokio::test]
async fn an_entry_without_its_lease_guards_nothing() {
    let cluster = shared().await;
    let store = store(cluster);
    let election = name("guard-lease");
    let session = store.open_session(TTL).await.unwrap();
    let held = held(&session.enlist(&election, &entry(1)).await.unwrap());
    let guard = store.guards(&election, held.token).await.unwrap().unwrap();
    cluster.ctl(&["put", &key_of(&held), "by hand"]);

    let refused = store.guard(&election, held.token, []).await.unwrap();

    assert_eq!(refused, Guarded::Refused);
    let created = Compare::equal(guard.key.clone(), With::CreateRevision(guard.create_revision));
    let leased = Compare::equal(guard.key, With::Lease(guard.lease));
    for (compare, holds) in [(vec![created.clone()], true), (vec![created, leased], false)] {
        let txn = TxnRequest { compare, success: vec![RequestOp::delete("never")], failure: vec![] };
        assert_eq!(raw(&cluster.endpoints()).txn(txn).await.unwrap().succeeded, holds);
    }
}

fn token(number: u64, store: &str) -> FencingToken {
    FencingToken::new(Token::new(number).unwrap(), StoreId::new(store))
}

#[tokio::test]
async fn a_fence_in_etcd_refuses_older_tokens_other_stores_and_other_elections() {
    let election = name("fence");
    let key = format!("data/{election}");
    let fence = EtcdFence::new(&store(shared().await), &election, format!("mark/{election}"));
    let put = |text: &str| [EtcdWrite::put(key.clone(), text)];
    fence.write(&token(7, "s"), put("seven")).await.unwrap();
    fence.raise(&election, token(9, "s")).await.unwrap();
    fence.raise(&election, token(9, "s")).await.unwrap();

    let late = fence.write(&token(7, "s"), put("late")).await;
    assert!(matches!(late, Err(FenceError::Stale { .. })), "{late:?}");
    let late = fence.raise(&election, token(8, "s")).await;
    assert!(matches!(late, Err(FenceError::Stale { .. })), "{late:?}");
    let other = fence.write(&token(100, "other"), put("other")).await;
    assert!(matches!(other, Err(FenceError::StoreReplaced { .. })), "{other:?}");
    let elsewhere = fence.raise(&ElectionName::new("elsewhere").unwrap(), token(9, "s")).await;
    assert!(matches!(elsewhere, Err(FenceError::Misuse { .. })), "{elsewhere:?}");
    assert_eq!(value(&key).await.as_deref(), Some("seven"));

    fence.reset(&StoreId::new("other"), "the cluster was rebuilt").await.unwrap();
    fence.write(&token(1, "other"), put("anew")).await.unwrap();
    assert_eq!(value(&key).await.as_deref(), Some("anew"));
}

#[tokio::test]
async fn a_fence_is_raised_before_its_leader_sees_the_office() {
    let store = store(shared().await);
    let election = name("raised");
    let fence = EtcdFence::new(&store, &election, format!("mark/{election}"));
    let ours = client(&store).await.election(election.as_str()).unwrap();
    let mut candidacy = ours.candidate("a").fence(fence.clone()).stand().await.unwrap();
    let office = lead(&mut candidacy).await;
    let term = office.term();
    let older = FencingToken::new(Token::new(term.token().get() - 1).unwrap(), term.token().store.clone());
    assert!(matches!(fence.write(&older, []).await, Err(FenceError::Stale { .. })));
    fence.write(term.token(), []).await.unwrap();
}
