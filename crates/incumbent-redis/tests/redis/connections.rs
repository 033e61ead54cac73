//! Connections that are cut, stalled and refused; servers that are stopped.

use std::time::Duration;

use futures_util::future::join_all;
use incumbent_store::{ElectionName, Store, StoreError, TokenStrength, Watched};
use incumbent_testkit::proxy::{Proxy, Way};
use incumbent_testkit::servers::RedisServer;

use crate::harness::{LONG, Redis, entry, held, jobs, shared, until, within};

#[tokio::test]
async fn a_write_whose_answer_is_lost_has_an_unknown_outcome_and_can_be_repeated() {
    let server = shared().await;
    let proxy = Proxy::start(&server.endpoint()).await;
    let redis = Redis::at(&proxy.endpoint());
    let (store, onlooker) = (redis.open(), redis.moved_to(&server.endpoint()).open());
    let session = store.open_session(LONG).await.unwrap();
    // The server knows the script: it does not ask for it while its answers are held.
    let elsewhere = ElectionName::new("elsewhere").unwrap();
    session.enlist(&elsewhere, &entry(2)).await.unwrap();
    proxy.set(Way::HoldAnswers);
    let (election, new) = (jobs(), entry(1));
    let cut = async {
        until("it has arrived", async || !onlooker.line(&jobs(), 1).await.unwrap().entries.is_empty()).await;
        proxy.reset();
    };
    let (lost, ()) = tokio::join!(session.enlist(&election, &new), cut);
    assert!(matches!(lost, Err(StoreError::OutcomeUnknown { .. })), "{lost:?}");

    // Nobody there: nothing was sent.
    proxy.set(Way::Cut);
    let refused = session.enlist(&election, &new).await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    proxy.set(Way::Forward);
    let again = held(&session.enlist(&election, &new).await.unwrap());
    let line = onlooker.line(&jobs(), 9).await.unwrap();
    assert!(line.entries.len() == 1 && line.entries[0].is(&again), "it was made once: {line:?}");
}

#[tokio::test]
async fn a_renewal_whose_answer_is_lost_changed_nothing_that_counts() {
    let proxy = Proxy::start(&shared().await.endpoint()).await;
    let session = Redis::at(&proxy.endpoint()).open().open_session(LONG).await.unwrap();
    proxy.set(Way::HoldAnswers);
    let cut = async {
        tokio::task::yield_now().await;
        proxy.reset();
    };
    let (lost, ()) = tokio::join!(session.renew(&[]), cut);
    assert!(matches!(lost, Err(StoreError::Unavailable { .. })), "{lost:?}");
}

#[tokio::test]
async fn a_connection_that_went_silent_is_not_used_again() {
    let proxy = Proxy::start(&shared().await.endpoint()).await;
    let session = Redis::at(&proxy.endpoint()).open().open_session(LONG).await.unwrap();
    let before = proxy.connections();
    proxy.set(Way::Stall);
    // However short the patience for each of them is.
    for _ in 0..5 {
        let given_up = tokio::time::timeout(Duration::from_millis(300), session.renew(&[])).await;
        assert!(given_up.is_err(), "nothing passes");
    }
    proxy.set(Way::Forward);
    within(session.renew(&[])).await.unwrap();
    assert_eq!(proxy.connections(), before + 1);
}

/// The server stands still for each request: none is long.
#[tokio::test]
async fn a_renewal_names_all_places_page_by_page() {
    let server = RedisServer::start().await;
    let session = Redis::on(&server).open().open_session(LONG).await.unwrap();
    let names: Vec<_> = (0..1_001).map(|number| ElectionName::new(&format!("many-{number}")).unwrap()).collect();
    let all = join_all(names.iter().map(async |name| held(&session.enlist(name, &entry(1)).await.unwrap()))).await;
    session.withdraw(&all[7], None).await.unwrap();
    // So that the server knows the script.
    session.renew(&[]).await.unwrap();
    let requests = || server.cli(&["INFO", "commandstats"]);
    assert_eq!(server.cli(&["CONFIG", "RESETSTAT"]), "OK");
    let renewal = session.renew(&all[..8]).await.unwrap();
    assert_eq!(renewal.gone, [all[7].clone()]);
    assert_eq!(renewal.stray.len(), 993);
    assert!(requests().contains("cmdstat_evalsha:calls=3,"), "{}", requests());
    session.enlist(&names[7], &entry(2)).await.unwrap();
    assert_eq!(session.renew(&all[..8]).await.unwrap().stray.len(), 994);
    assert!(requests().contains("cmdstat_evalsha:calls=7,"), "{}", requests());
}

#[tokio::test]
async fn a_watch_ends_with_an_error_when_its_connection_is_lost() {
    let proxy = Proxy::start(&shared().await.endpoint()).await;
    let store = Redis::at(&proxy.endpoint()).open();
    let session = store.open_session(LONG).await.unwrap();
    let standing = session.enlist(&jobs(), &entry(1)).await.unwrap();
    let watched = Watched::new(held(&standing), standing.office.version);
    let wake = tokio::spawn(session.watch(&watched, standing.cursor));
    until("it waits", async || store.watches() == 1 && proxy.connections() == 2).await;
    proxy.reset();
    let told = within(wake).await.unwrap();
    assert!(matches!(told, Err(StoreError::Unavailable { .. })), "{told:?}");
    assert_eq!(store.watches(), 0);
    // And the next watch is made on another connection.
    until("steps are made again", async || session.renew(&[]).await.is_ok()).await;
    let mut wake = tokio::spawn(session.watch(&watched, standing.cursor));
    until("it waits again", async || store.watches() == 1 && proxy.connections() == 4).await;
    session.withdraw(&watched.held, None).await.unwrap();
    within(&mut wake).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_watch_ends_with_an_error_when_the_end_of_another_is_not_confirmed() {
    // Of its own: others would have channels, too.
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server.endpoint()).await;
    let store = Redis::at(&proxy.endpoint()).open();
    let session = store.open_session(LONG).await.unwrap();
    let mut wakes = Vec::new();
    for name in ["one", "other"] {
        let election = ElectionName::new(name).unwrap();
        let standing = session.enlist(&election, &entry(1)).await.unwrap();
        let watched = Watched::new(held(&standing), standing.office.version);
        wakes.push(tokio::spawn(session.watch(&watched, standing.cursor)));
        let its_own = format!("*{name}*");
        until("it is subscribed", async || !server.cli(&["PUBSUB", "CHANNELS", &its_own]).is_empty()).await;
    }
    proxy.set(Way::Stall);
    wakes.pop().unwrap().abort();
    let told = within(wakes.pop().unwrap()).await.unwrap();
    assert!(matches!(told, Err(StoreError::Unavailable { .. })), "{told:?}");
}

#[tokio::test]
async fn a_server_that_was_stopped_goes_on_with_what_it_had() {
    let server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let store = Redis::on(&server).open();
    assert_eq!(store.promises().await.unwrap().tokens, TokenStrength::Durable, "nothing is lost");
    let session = store.open_session(LONG).await.unwrap();
    let leading = held(&session.enlist(&jobs(), &entry(1)).await.unwrap());
    server.pause();
    let given_up = tokio::time::timeout(Duration::from_millis(100), session.renew(&[])).await;
    assert!(given_up.is_err(), "it is stopped");
    server.resume();
    let renewal = within(session.renew(std::slice::from_ref(&leading))).await.unwrap();
    assert_eq!((renewal.gone, renewal.stray), (vec![], vec![]));
}

/// A server that has no room for another connection now is busy, and not misused: a leader that was
/// cut off dials again.
#[tokio::test]
async fn a_server_with_too_many_clients_is_unavailable() {
    let server = RedisServer::start().await;
    let session = Redis::on(&server).open().open_session(LONG).await.unwrap();
    let others = redis::Client::open(format!("redis://{}", server.endpoint())).unwrap();
    server.cli(&["CONFIG", "SET", "maxclients", "4"]);
    server.cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    let mut crowd = Vec::new();
    while let Ok(connection) = others.get_multiplexed_async_connection().await {
        crowd.push(connection);
        assert!(crowd.len() < 9, "there is room for four");
    }
    for _ in 0..3 {
        let refused = session.renew(&[]).await;
        assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    }
    drop(crowd);
    until("there is room again", async || session.renew(&[]).await.is_ok()).await;
}
