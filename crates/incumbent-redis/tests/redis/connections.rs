//! Connections that are cut, stalled and refused; servers that are stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use incumbent_store::{ElectionName, Store, StoreError, TokenStrength, Watched};
use incumbent_testkit::proxy::{Proxy, Way};
use incumbent_testkit::servers::RedisServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::harness::{LONG, Redis, connection, entry, held, jobs, shared, until, within};
use crate::outside::{KEYS, content};

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

/// How many bytes wait on this port that its server has not read.
fn unread(port: u16) -> u64 {
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let at_port = format!(":{port:04X}");
    let rows = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let established = rows.filter(|row| row[1].ends_with(&at_port) && row[3] == "01");
    established.map(|row| u64::from_str_radix(row[4].split_once(':').unwrap().1, 16).unwrap()).sum()
}

/// While one script runs the next one waits, and whether somebody still waits for its answer is not
/// asked. A server that is stopped stands for one that is in a script: it reads nothing.
#[tokio::test]
async fn a_write_that_has_arrived_is_made_though_its_connection_is_cut_before_the_server_comes_to_it() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server.endpoint()).await;
    let redis = Redis::at(&proxy.endpoint());
    let store = redis.open();
    let session = store.open_session(LONG).await.unwrap();
    // The server knows the script.
    session.enlist(&ElectionName::new("elsewhere").unwrap(), &entry(2)).await.unwrap();
    server.pause();
    let (election, new) = (jobs(), entry(1));
    let cut = async {
        until("it has arrived", async || unread(server.port()) > 0).await;
        proxy.reset();
        server.resume();
    };
    let (lost, ()) = tokio::join!(session.enlist(&election, &new), cut);
    assert!(matches!(lost, Err(StoreError::OutcomeUnknown { .. })), "{lost:?}");
    let onlooker = redis.moved_to(&server.endpoint()).open();
    until("it was made", async || !onlooker.line(&jobs(), 9).await.unwrap().entries.is_empty()).await;
    let again = held(&session.enlist(&election, &new).await.unwrap());
    let line = onlooker.line(&jobs(), 9).await.unwrap();
    assert!(line.entries.len() == 1 && line.entries[0].is(&again), "it was made once: {line:?}");
}

/// Passes everything on to a server until it is told to cut: then half of the next piece, and it is
/// gone.
async fn cut_in_half(server: &RedisServer) -> (String, Arc<AtomicBool>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let (endpoint, target) = (listener.local_addr().unwrap().to_string(), server.endpoint());
    let cut = Arc::new(AtomicBool::new(false));
    let now = cut.clone();
    tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut server = TcpStream::connect(target).await.unwrap();
        let (mut asked, mut said) = (vec![0; 1 << 16], vec![0; 1 << 16]);
        loop {
            tokio::select! {
                length = client.read(&mut asked) => {
                    let Ok(length @ 1..) = length else { return };
                    if now.load(Ordering::SeqCst) {
                        return server.write_all(&asked[..length / 2]).await.unwrap();
                    }
                    server.write_all(&asked[..length]).await.unwrap();
                }
                length = server.read(&mut said) => {
                    let Ok(length @ 1..) = length else { return };
                    client.write_all(&said[..length]).await.unwrap();
                }
            }
        }
    });
    (endpoint, cut)
}

#[tokio::test]
async fn of_a_write_that_arrived_by_half_nothing_is_made() {
    let server = RedisServer::start().await;
    let (endpoint, cut) = cut_in_half(&server).await;
    let redis = Redis::at(&endpoint);
    let store = redis.open();
    let session = store.open_session(LONG).await.unwrap();
    // The server knows the script.
    session.enlist(&ElectionName::new("elsewhere").unwrap(), &entry(2)).await.unwrap();
    let before = content(&server, &redis, &KEYS);
    let connected = || {
        let clients = server.cli(&["INFO", "clients"]);
        clients.lines().find_map(|line| line.strip_prefix("connected_clients:")?.trim().parse::<u32>().ok()).unwrap()
    };
    until("the store has a connection, and who asks", async || connected() == 2).await;
    cut.store(true, Ordering::SeqCst);
    let lost = session.enlist(&jobs(), &entry(1)).await;
    assert!(matches!(lost, Err(StoreError::OutcomeUnknown { .. })), "{lost:?}");
    until("the server has noticed", async || connected() == 1).await;
    assert_eq!(content(&server, &redis, &KEYS), before);
}

/// A script that runs for too long, of somebody else's.
#[tokio::test]
async fn what_a_server_refuses_that_is_busy_with_a_script_was_not_made() {
    let server = RedisServer::start_with(&["--busy-reply-threshold", "100"]).await;
    let redis = Redis::on(&server);
    let store = redis.open();
    let session = store.open_session(LONG).await.unwrap();
    let leading = held(&session.enlist(&jobs(), &entry(1)).await.unwrap());
    let before = content(&server, &redis, &KEYS);
    let mut other = connection(&server).await;
    let endless =
        tokio::spawn(async move { redis::cmd("EVAL").arg("while true do end").arg(0).exec_async(&mut other).await });
    until("it is busy", async || server.cli(&["PING"]).contains("BUSY")).await;
    let (elsewhere, new) = (ElectionName::new("elsewhere").unwrap(), entry(2));
    for refused in [
        session.enlist(&elsewhere, &new).await.map(drop),
        session.withdraw(&leading, None).await.map(drop),
        session.renew(std::slice::from_ref(&leading)).await.map(drop),
    ] {
        assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    }
    assert_eq!(server.cli(&["SCRIPT", "KILL"]), "OK");
    assert!(within(endless).await.unwrap().is_err(), "it was killed");
    assert_eq!(content(&server, &redis, &KEYS), before);
    session.renew(&[]).await.unwrap();
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
