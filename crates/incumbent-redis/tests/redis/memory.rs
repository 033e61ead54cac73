//! A server whose memory is full, and one that would evict what it holds.

use incumbent_redis::RedisFence;
use incumbent_store::fence::{Fence, FenceError, FencingToken};
use incumbent_store::{Cas, Office, Paused, Place, Store, StoreError, TokenStrength, Version};
use incumbent_testkit::servers::RedisServer;

use crate::harness::{LONG, Redis, entry, held, jobs};

#[tokio::test]
async fn with_full_memory_leaders_stay_everybody_may_leave_and_nobody_comes() {
    let server = RedisServer::start().await;
    let store = Redis::on(&server).open();
    let promised = store.promises().await.unwrap().caveats.join(" ");
    assert!(promised.contains("While the server's memory is full, leaders stay in office"), "{promised}");
    let (first, second) = (store.open_session(LONG).await.unwrap(), store.open_session(LONG).await.unwrap());
    let third = store.open_session(LONG).await.unwrap();
    let leading = held(&first.enlist(&jobs(), &entry(1)).await.unwrap());
    let next = held(&second.enlist(&jobs(), &entry(2)).await.unwrap());
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);

    first.renew(std::slice::from_ref(&leading)).await.unwrap();
    assert_eq!(first.standing(&leading, None).await.unwrap().place, Place::Leading(leading.clone()));
    let paused = Office::default().with_paused(Paused::new("a test"));
    assert!(store.set_office(&jobs(), Version::NONE, &paused).await.is_err(), "no order is written");
    let fence = RedisFence::new(&store, &jobs(), "mark");
    let raised = fence.raise(&jobs(), FencingToken::new(leading.token, first.store_id())).await;
    assert!(matches!(raised, Err(FenceError::Unavailable { .. })), "{raised:?}");
    for refused in [store.open_session(LONG).await.map(|_| ()), third.enlist(&jobs(), &entry(3)).await.map(|_| ())] {
        assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    }
    let line = store.line(&jobs(), 9).await.unwrap();
    assert_eq!(line.entries.len(), 2, "nothing was changed");
    assert_eq!(first.withdraw(&leading, None).await.unwrap(), Cas::Done);
    // Told for the first time that it leads, which is written down.
    assert_eq!(second.standing(&next, None).await.unwrap().place, Place::Leading(next.clone()));
    assert_eq!(store.evict(&jobs(), &line.entries[1]).await.unwrap(), Cas::Done);
    second.close().await.unwrap();
    assert_eq!(store.line(&jobs(), 9).await.unwrap().entries, []);
}

#[tokio::test]
async fn a_server_that_evicts_any_key_is_refused_unless_that_is_allowed() {
    let server = RedisServer::start_with(&["--maxmemory-policy", "allkeys-lru"]).await;
    match Redis::on(&server).open().identity().await {
        Err(StoreError::Misuse { what }) => assert!(what.contains("allkeys-lru"), "{what}"),
        other => panic!("{other:?}"),
    }
    let allowed = incumbent_redis::RedisStore::from_url(&format!("{}?eviction=allow", server.url())).unwrap();
    let promises = allowed.promises().await.unwrap();
    assert!(promises.caveats.iter().any(|caveat| caveat.contains("allkeys-lru")), "{promises:?}");
    server.cli(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]);
    Redis::on(&server).open().identity().await.unwrap();
}

#[tokio::test]
async fn what_is_promised_is_read_from_the_server() {
    let tokens = async |args: &[&str]| {
        let server = RedisServer::start_with(args).await;
        Redis::on(&server).open().promises().await.unwrap()
    };
    let always = tokens(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    assert_eq!(always.tokens, TokenStrength::Durable, "{always:?}");
    for (args, said) in [
        (&["--appendonly", "yes", "--appendfsync", "everysec"][..], "up to a second"),
        (&[], "a restart deletes all keys"),
    ] {
        let promises = tokens(args).await;
        assert_eq!(promises.tokens, TokenStrength::Volatile, "{promises:?}");
        assert!(promises.caveats.join(" ").contains(said), "{promises:?}");
    }
}
