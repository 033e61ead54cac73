//! What others do to our nodes, sessions and connections behind our back.

use std::time::Duration;

use incumbent_store::{
    Cas, ElectionName, NewEntry, Place, Proof, Publication, Session, Store, StoreError, Version, Watched,
};
use incumbent_testkit::candidates::publish;
use incumbent_testkit::proxy::{Proxy, Way};
use incumbent_zookeeper::zookeeper_client::{Acls, Client, CreateMode};
use incumbent_zookeeper::{Dialect, ZooKeeperStore};

use crate::harness::{
    TICK, TTL, ZooKeeper, entry, held, in_line, lead, name, node, raw, shared, stand, store, until, within,
};

/// Long enough that nothing expires here by itself.
const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn the_nodes_above_an_entry_are_made_again_when_they_have_vanished() {
    let zookeeper = ZooKeeper::on(shared().await);
    let (store, name) = (zookeeper.open(), name("deep/er"));
    let client = raw(&shared().await.endpoints()).await;
    let session = store.open_session(LONG).await.unwrap();
    let mut token = 0;
    for number in 1..=3 {
        let held = held(&session.enlist(&name, &entry(number)).await.unwrap());
        assert!(held.token.get() > token, "tokens grow although the parent is new");
        token = held.token.get();
        session.withdraw(&held, None).await.unwrap();
        // As ZooKeeper does with containers that are empty.
        client.delete(&format!("{}/deep/er", zookeeper.chroot), None).await.unwrap();
        client.delete(&format!("{}/deep", zookeeper.chroot), None).await.unwrap();
    }
}

#[tokio::test]
async fn a_heartbeat_node_that_somebody_deleted_is_made_again() {
    let zookeeper = ZooKeeper::on(shared().await);
    let (store, name) = (zookeeper.open(), name("pulse"));
    let session = store.open_session(LONG).await.unwrap();
    let held = held(&session.enlist(&name, &entry(1)).await.unwrap());
    let client = raw(&shared().await.endpoints()).await;
    let sessions = format!("{}/%incumbent/sessions", zookeeper.chroot);
    for beat in client.list_children(&sessions).await.unwrap() {
        client.delete(&format!("{sessions}/{beat}"), None).await.unwrap();
    }
    client.delete(&sessions, None).await.unwrap();
    let renewal = session.renew(std::slice::from_ref(&held)).await.unwrap();
    assert_eq!((renewal.gone, renewal.stray), (vec![], vec![]));
    assert_eq!(client.list_children(&sessions).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_heartbeat_is_a_write_to_a_node_of_its_own_and_never_to_an_entry() {
    let zookeeper = ZooKeeper::on(shared().await);
    let (store, name) = (zookeeper.open(), name("beat"));
    let session = store.open_session(LONG).await.unwrap();
    let held = held(&session.enlist(&name, &entry(1)).await.unwrap());
    let client = raw(&shared().await.endpoints()).await;
    let sessions = format!("{}/%incumbent/sessions", zookeeper.chroot);
    let beat = format!("{sessions}/{}", client.list_children(&sessions).await.unwrap()[0]);
    let before = client.check_stat(&beat).await.unwrap().unwrap();
    session.renew(std::slice::from_ref(&held)).await.unwrap();
    let after = client.check_stat(&beat).await.unwrap().unwrap();
    assert_eq!(after.version, before.version + 1);
    let own = client.check_stat(&format!("{}/beat/{}", zookeeper.chroot, node(&held))).await.unwrap().unwrap();
    assert_eq!((own.version, own.ephemeral_owner), (0, after.ephemeral_owner));
}

/// The ensemble's leader commits a session together with its connection. It learns later of what a
/// session does that is older.
#[tokio::test]
async fn only_a_session_that_is_opened_with_its_connection_is_proven_by_that() {
    let server = shared().await;
    let options = ZooKeeper::on(server).options();
    let ours = ZooKeeperStore::connect(&server.endpoints(), &options).unwrap();
    let theirs = ZooKeeperStore::with_client(raw(&server.endpoints()).await, &options).unwrap();
    for (store, opening_proves) in [(ours, true), (theirs, false)] {
        let session = store.open_session(LONG).await.unwrap();
        assert_eq!(session.liveness().proof, Proof::Earlier { apart: TICK, opening_proves });
    }
}

#[tokio::test]
async fn a_node_of_another_session_under_our_name_is_not_ours() {
    let zookeeper = ZooKeeper::on(shared().await);
    let (store, name) = (zookeeper.open(), name("stolen"));
    let session = store.open_session(LONG).await.unwrap();
    let held = held(&session.enlist(&name, &entry(1)).await.unwrap());
    let client = raw(&shared().await.endpoints()).await;
    let path = format!("{}/stolen/{}", zookeeper.chroot, node(&held));
    let (data, _) = client.get_data(&path).await.unwrap();
    client.delete(&path, None).await.unwrap();
    client.create(&path, &data, &CreateMode::Ephemeral.with_acls(Acls::anyone_all())).await.unwrap();

    assert_eq!(session.standing(&held, None).await.unwrap().place, Place::Gone);
    let renewal = session.renew(std::slice::from_ref(&held)).await.unwrap();
    assert_eq!((renewal.gone, renewal.stray), (vec![held], vec![]));
}

/// Enlists, and gives up when the entry is there and its answer is still on its way.
async fn is_doubtful(
    session: &dyn Session,
    others: &ZooKeeperStore,
    name: &ElectionName,
    proxy: &Proxy,
    new: &NewEntry,
) -> bool {
    // Longer where a slow machine did not look in time.
    for delay_millis in [300, 3_000, 20_000] {
        proxy.set(Way::Delay(Duration::from_millis(delay_millis)));
        let enlisting = session.enlist(name, new);
        let answered = tokio::select! {
            answer = enlisting => Some(answer.unwrap()),
            () = in_line(others, name, 1) => None,
        };
        proxy.set(Way::Forward);
        match answered {
            None => return true,
            Some(standing) => assert_eq!(session.withdraw(&held(&standing), None).await.unwrap(), Cas::Done),
        };
    }
    false
}

#[tokio::test]
async fn an_enlistment_whose_answer_was_lost_is_found_again_by_its_guid() {
    for dialect in [Dialect::Incumbent, Dialect::CuratorLatch, Dialect::GoLeaderElection] {
        let server = shared().await;
        let proxy = Proxy::start(&server.endpoints()[0]).await;
        let zookeeper = ZooKeeper::at(vec![proxy.endpoint()], dialect);
        let ours = zookeeper.open();
        let others = ZooKeeperStore::connect(&server.endpoints(), &zookeeper.options()).unwrap();
        let name = name("doubtful");
        let session = ours.open_session(LONG).await.unwrap();
        // The place is made, and left again.
        let first = held(&session.enlist(&name, &entry(1)).await.unwrap());
        session.withdraw(&first, None).await.unwrap();
        let new = entry(2);
        assert!(is_doubtful(&*session, &others, &name, &proxy, &new).await, "no answer is ever lost");
        proxy.reset();

        until("the connection is back", async || session.renew(&[]).await.is_ok()).await;
        let strays = session.renew(&[]).await.unwrap().stray;
        assert_eq!(strays.len(), 1, "{dialect:?}: it is brought to light: {strays:?}");
        let again = session.enlist(&name, &new).await.unwrap();
        assert_eq!(again.place, Place::Leading(strays[0].clone()), "{dialect:?}: and it is the same one");
        in_line(&others, &name, 1).await;
        match session.enlist(&name, &entry(3)).await {
            Err(StoreError::AlreadyInLine(held)) => assert_eq!(held, strays[0]),
            other => panic!("{dialect:?}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_cut_connection_ends_no_session_and_every_watch_is_told_to_look_again() {
    let server = shared().await;
    let proxy = Proxy::start(&server.endpoints()[0]).await;
    let ours = ZooKeeper::at(vec![proxy.endpoint()], Dialect::Incumbent).open();
    let name = name("cut");
    let session = ours.open_session(LONG).await.unwrap();
    let standing = session.enlist(&name, &entry(1)).await.unwrap();
    let line = ours.line(&name, 1).await.unwrap();
    // On the connection of the session, and on the one that all others share.
    let by_session = || session.watch(&Watched::new(held(&standing), Version::NONE), standing.cursor);
    let mut watches = vec![by_session(), ours.watch(&name, &line.seen(), line.cursor), by_session()];
    for wake in &mut watches {
        let early = tokio::time::timeout(Duration::from_millis(50), wake).await;
        assert!(early.is_err(), "nothing has happened yet: {early:?}");
    }

    proxy.reset();

    for wake in watches {
        let told = within(wake).await;
        assert!(matches!(told, Err(StoreError::Unavailable { .. })), "{told:?}");
    }
    assert_eq!(ours.watches(), 0);
    until("the connection is back", async || session.standing(&held(&standing), None).await.is_ok()).await;
    assert_eq!(session.standing(&held(&standing), None).await.unwrap().place, Place::Leading(held(&standing)));
    let wake = by_session();
    session.withdraw(&held(&standing), None).await.unwrap();
    within(wake).await.unwrap();
}

#[tokio::test]
async fn a_leader_outlives_cut_connections_and_a_follower_still_takes_over() {
    let server = shared().await;
    let proxy = Proxy::start(&server.endpoints()[0]).await;
    let ours = ZooKeeper::at(vec![proxy.endpoint()], Dialect::Incumbent).open();
    let name = name("blips");
    let long = || incumbent::Client::builder().ttl(LONG).with_store(ours.clone());
    let mut leading = long().await.unwrap().election(name.as_str()).unwrap().candidate("leader").stand().await.unwrap();
    let office = lead(&mut leading).await;
    let mut waiting = long().await.unwrap().election(name.as_str()).unwrap().candidate("next").stand().await.unwrap();
    in_line(&ours, &name, 2).await;
    for _ in 0..3 {
        proxy.reset();
        until("the line can be read", async || ours.line(&name, 9).await.is_ok()).await;
        office.term().check().unwrap();
    }
    until("the office is given back", async || ours.line(&name, 9).await.is_ok()).await;
    drop(office);
    drop(leading);
    lead(&mut waiting).await;
}

/// A session that is cut off is expired by the servers; its owner has stepped down before.
#[tokio::test]
async fn a_leader_that_is_cut_off_steps_down_before_another_leads_and_rejoins_by_itself() {
    let server = shared().await;
    let proxy = Proxy::start(&server.endpoints()[0]).await;
    let zookeeper = ZooKeeper::at(vec![proxy.endpoint()], Dialect::Incumbent);
    let ours = zookeeper.open();
    let name = name("off");
    let mut leading = stand(&ours, &name, "cut off").await;
    let office = lead(&mut leading).await;
    let others = ZooKeeperStore::connect(&server.endpoints(), &zookeeper.options()).unwrap();
    let mut waiting = stand(&others, &name, "next").await;
    in_line(&others, &name, 2).await;

    proxy.set(Way::Stall);

    let next = lead(&mut waiting).await;
    assert!(office.term().check().is_err(), "two lead at once");
    drop(office);
    proxy.set(Way::Forward);
    proxy.reset();
    in_line(&others, &name, 2).await;
    next.resign().await.unwrap();
    waiting.withdraw().await.unwrap();
    lead(&mut leading).await;
}

#[tokio::test]
async fn a_stopped_server_is_unavailable_and_a_resumed_one_goes_on() {
    let server = incumbent_testkit::servers::ZooKeeperEnsemble::start(1).await;
    let (store, name) = (store(&server), name("stopped"));
    let session = store.open_session(LONG).await.unwrap();
    let held = held(&session.enlist(&name, &entry(1)).await.unwrap());
    server.nodes()[0].pause();
    let silent =
        tokio::time::timeout(Duration::from_millis(300), session.publish(&held, Version::NONE, &Publication::new("")))
            .await;
    assert!(silent.is_err(), "nobody can have answered: {silent:?}");
    server.nodes()[0].resume();
    until("it answers", async || publish(&*session, &held, "", None).await.is_ok_and(|done| done.is_some())).await;
}

#[tokio::test]
async fn a_session_that_nobody_renews_ends_although_its_connection_is_up() {
    let store = store(shared().await);
    let name = name("silent");
    let session = store.open_session(TTL).await.unwrap();
    session.enlist(&name, &entry(1)).await.unwrap();
    in_line(&store, &name, 0).await;
    let late = session.renew(&[]).await;
    assert!(matches!(late, Err(StoreError::SessionGone)), "{late:?}");
}

#[tokio::test]
async fn a_client_of_the_users_own_that_nobody_renews_keeps_its_session_and_loses_its_entries() {
    let server = shared().await;
    let connection = Client::connector().with_session_timeout(TTL).connect(&server.endpoints()[0]).await.unwrap();
    let store = ZooKeeperStore::with_client(connection.clone(), &ZooKeeper::on(server).options()).unwrap();
    let name = name("unrenewed");
    let session = store.open_session(TTL).await.unwrap();
    session.enlist(&name, &entry(1)).await.unwrap();
    in_line(&store, &name, 0).await;
    assert!(!connection.state().is_terminated(), "the connection is the user's");
    let another = store.open_session(TTL).await.unwrap();
    assert!(matches!(another.enlist(&name, &entry(2)).await.unwrap().place, Place::Leading(_)));
}
