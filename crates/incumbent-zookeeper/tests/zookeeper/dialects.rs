//! Dialects: what is written where, who is refused, and what others may rely on.

use std::time::Duration;

use bytes::Bytes;
use incumbent::{CandidacyError, StandError};
use incumbent_store::{Cas, Nonce, Place, Store, StoreError, Watched};
use incumbent_testkit::candidates::publish;
use incumbent_testkit::conformance::Harness;
use incumbent_zookeeper::zookeeper_client::{Acls, Client, CreateMode, CreateOptions, EventType};
use incumbent_zookeeper::{Dialect, ZooKeeperStore};

use crate::harness::{
    PERSISTENT, TTL, ZooKeeper, election, entry, held, in_line, lead, name, node, raw, shared, stand, within,
};

const FOREIGN: [Dialect; 4] =
    [Dialect::CuratorLatch, Dialect::CuratorSelector, Dialect::Kazoo, Dialect::GoLeaderElection];

const EPHEMERAL: CreateOptions<'static> = CreateMode::Ephemeral.with_acls(Acls::anyone_all());

async fn fixture(dialect: Dialect) -> (ZooKeeper, ZooKeeperStore, Client) {
    let servers = shared().await.endpoints();
    let zookeeper = ZooKeeper::at(servers.clone(), dialect);
    let store = zookeeper.open();
    (zookeeper, store, raw(&servers).await)
}

#[tokio::test]
async fn an_entry_of_another_dialect_is_refused_by_name_in_every_dialect() {
    let (zookeeper, _, client) = fixture(Dialect::Incumbent).await;
    let name = name("mixed");
    let path = format!("{}/mixed", zookeeper.chroot);
    client.mkdir(&path, &PERSISTENT).await.unwrap();
    let kazoos = format!("{path}/0123456789abcdef0123456789abcdef__lock__0000000000");
    client.create(&kazoos, b"host-7", &EPHEMERAL).await.unwrap();
    for dialect in [Dialect::Incumbent, Dialect::CuratorLatch, Dialect::CuratorSelector, Dialect::GoLeaderElection] {
        let store =
            ZooKeeperStore::connect(&shared().await.endpoints(), &zookeeper.options().dialect(dialect)).unwrap();
        let session = store.open_session(TTL).await.unwrap();
        for refused in [session.enlist(&name, &entry(1)).await.err(), store.line(&name, 9).await.err()] {
            match refused {
                Some(StoreError::Foreign { what }) => {
                    assert!(what.contains(&kazoos) && what.contains("kazoo"), "{what}")
                }
                other => panic!("{dialect:?}: {other:?}"),
            }
        }
        assert_eq!(
            client.list_children(&path).await.unwrap().len(),
            1,
            "{dialect:?} was not in their line for a moment"
        );
        let stood = within(election(&store, &name).await.candidate("a").stand()).await;
        assert!(
            matches!(stood, Err(StandError::Candidacy(CandidacyError::Store(StoreError::Foreign { .. })))),
            "{stood:?}"
        );
    }
}

#[tokio::test]
async fn a_stranger_that_comes_later_is_met_at_the_next_look() {
    let (zookeeper, store, client) = fixture(Dialect::Incumbent).await;
    let name = name("later");
    let session = store.open_session(TTL * 5).await.unwrap();
    let held = held(&session.enlist(&name, &entry(1)).await.unwrap());
    let latch = format!("{}/later/_c_01234567-89ab-cdef-0123-456789abcdef-latch-0000000009", zookeeper.chroot);
    client.create(&latch, b"", &EPHEMERAL).await.unwrap();
    assert!(matches!(session.standing(&held, None).await, Err(StoreError::Foreign { .. })));
    session.withdraw(&held, None).await.unwrap();
    let again = session.enlist(&name, &entry(2)).await;
    assert!(matches!(again, Err(StoreError::Foreign { .. })), "{again:?}");
    let children = client.list_children(&format!("{}/later", zookeeper.chroot)).await.unwrap();
    assert_eq!(children.len(), 1, "only the stranger's is left: {children:?}");
}

#[tokio::test]
async fn in_a_foreign_dialect_the_node_holds_the_name_and_everything_of_ours_is_beside_the_election() {
    for dialect in FOREIGN {
        let (zookeeper, store, client) = fixture(dialect).await;
        let name = name("jobs/nightly");
        let session = store.open_session(TTL * 5).await.unwrap();
        let held = held(&session.enlist(&name, &entry(7)).await.unwrap());
        let path = format!("{}/jobs/nightly", zookeeper.chroot);
        let (data, stat) = client.get_data(&format!("{path}/{}", node(&held))).await.unwrap();
        assert_eq!(data, b"node-1", "{dialect:?}");
        assert_eq!(stat.czxid.unsigned_abs(), held.token.get());
        assert!(publish(&*session, &held, "new", Some(Nonce(3))).await.unwrap().is_some());
        let paused = incumbent_store::Paused::new("a test");
        let office = incumbent_store::Office::default().with_paused(paused);
        store.set_office(&name, incumbent_store::Version::NONE, &office).await.unwrap();
        assert_eq!(client.list_children(&path).await.unwrap(), [node(&held)], "{dialect:?}: nothing else is in line");
        let (data, after) = client.get_data(&format!("{path}/{}", node(&held))).await.unwrap();
        assert_eq!((data.as_slice(), after.version), (&b"node-1"[..], 0), "{dialect:?}: written once");
        let line = store.line(&name, 9).await.unwrap();
        let seen = &line.entries[0];
        assert_eq!(
            (seen.value.as_ref(), seen.ready, seen.name.as_deref()),
            (&b"new"[..], Some(Nonce(3)), Some("node-1"))
        );
        assert_eq!((seen.incarnation, line.office.paused.is_some()), (Some(held.incarnation), true));
    }
}

/// Curator's followers set a watch that any change uses up, and act only on a deletion.
#[tokio::test]
async fn a_proclamation_does_not_use_up_the_watch_of_a_curator_latch() {
    let (zookeeper, store, client) = fixture(Dialect::CuratorLatch).await;
    let name = name("latch");
    let mut candidacy = stand(&store, &name, "ours").await;
    let office = lead(&mut candidacy).await;
    let entry = store.line(&name, 1).await.unwrap().entries.remove(0);
    let path = format!("{}/latch/{}", zookeeper.chroot, entry.id.as_str().split('@').next().unwrap());
    let (_, _, watcher) = client.get_and_watch_data(&path).await.unwrap();

    office.term().proclaim("news").await.unwrap();
    assert_eq!(store.line(&name, 1).await.unwrap().entries[0].value, "news");
    office.resign().await.unwrap();

    assert_eq!(within(watcher.changed()).await.event_type, EventType::NodeDeleted);
}

#[tokio::test]
async fn those_who_watch_an_entry_are_told_of_what_is_said_beside_it() {
    for dialect in FOREIGN {
        let (_, store, _) = fixture(dialect).await;
        let name = name("beside");
        let session = store.open_session(TTL * 5).await.unwrap();
        let held = held(&session.enlist(&name, &entry(1)).await.unwrap());
        let heir = store.open_session(TTL * 5).await.unwrap();
        let heir_held = incumbent_testkit::candidates::held(&heir.enlist(&name, &entry(2)).await.unwrap());
        let (line, standing) = (store.line(&name, 1).await.unwrap(), session.standing(&held, None).await.unwrap());
        let observer = store.watch(&name, &line.seen(), line.cursor);
        let mut watched = Watched::new(held.clone(), standing.office.version);
        watched.heir = Some(heir_held.entry.clone());
        let leader = session.watch(&watched, standing.cursor);
        publish(&*session, &held, "said", None).await.unwrap();
        within(observer).await.unwrap();
        publish(&*heir, &heir_held, "said", None).await.unwrap();
        within(leader).await.unwrap();
    }
}

#[tokio::test]
async fn ours_and_theirs_stand_in_one_line_and_take_turns() {
    for dialect in FOREIGN {
        let (zookeeper, store, _) = fixture(dialect).await;
        let name = name("turns");
        let theirs = zookeeper.enlist_foreign(&name, Bytes::from_static(b"theirs")).await.unwrap();
        assert!(theirs.is_foreign() && theirs.name.as_deref() == Some("theirs"), "{theirs:?}");
        let mut candidacy = stand(&store, &name, "ours").await;
        in_line(&store, &name, 2).await;
        zookeeper.strangers_leave();
        let office = lead(&mut candidacy).await;
        assert!(office.term().token().token > theirs.token);
        let next = zookeeper.enlist_foreign(&name, Bytes::from_static(b"next")).await.unwrap();
        office.resign().await.unwrap();
        candidacy.withdraw().await.unwrap();
        let line = store.line(&name, 9).await.unwrap();
        assert_eq!(line.entries, [next], "{dialect:?}");
    }
}

#[tokio::test]
async fn the_end_in_go_leaderelection_is_the_end_for_ours() {
    let (zookeeper, store, client) = fixture(Dialect::GoLeaderElection).await;
    let name = name("over");
    let mut leading = stand(&store, &name, "leader").await;
    let office = lead(&mut leading).await;
    let mut waiting = stand(&store, &name, "follower").await;
    in_line(&store, &name, 2).await;
    let path = format!("{}/over", zookeeper.chroot);

    client.create(&format!("{path}/DONE"), b"", &PERSISTENT).await.unwrap();

    within(office.term().stopping()).await;
    drop(office);
    assert!(matches!(within(leading.elected()).await, Ok(None)));
    assert!(matches!(within(waiting.elected()).await, Ok(None)));
    assert_eq!(client.list_children(&path).await.unwrap(), ["DONE"]);
}

#[tokio::test]
async fn the_end_of_ours_is_the_end_in_go_leaderelection_and_leaves_nothing() {
    let (zookeeper, store, client) = fixture(Dialect::GoLeaderElection).await;
    let name = name("ended");
    let mut leading = stand(&store, &name, "leader").await;
    let office = lead(&mut leading).await;
    zookeeper.enlist_foreign(&name, Bytes::from_static(b"theirs")).await.unwrap();
    let path = format!("{}/ended", zookeeper.chroot);
    let (there, mark) = client.check_and_watch_stat(&format!("{path}/DONE")).await.unwrap();
    assert_eq!(there, None);
    let works = async {
        within(office.term().stopping()).await;
        drop(office);
    };
    let theirs = async {
        // As it does: a watch on the mark, and its candidates leave.
        within(mark.changed()).await;
        zookeeper.strangers_leave();
    };
    let operator = election(&store, &name).await.operator();
    let (ended, (), ()) = tokio::join!(operator.end(Duration::from_secs(60)), works, theirs);
    ended.unwrap();
    assert!(matches!(within(leading.elected()).await, Ok(None)));
    assert_eq!(client.check_stat(&path).await.unwrap(), None, "neither the mark nor the line is left");
}

#[tokio::test]
async fn a_node_removed_by_go_leaderelection_ends_the_election() {
    let (zookeeper, store, client) = fixture(Dialect::GoLeaderElection).await;
    let name = name("removed");
    let mut candidacy = stand(&store, &name, "leader").await;
    let office = lead(&mut candidacy).await;
    let path = format!("{}/removed", zookeeper.chroot);
    let entry = client.list_children(&path).await.unwrap().remove(0);

    let mut writer = client.new_multi_writer();
    writer.add_delete(&format!("{path}/{entry}"), None).unwrap();
    writer.add_delete(&path, None).unwrap();
    writer.commit().await.unwrap();

    within(office.term().lost()).await;
    drop(office);
    assert!(matches!(within(candidacy.elected()).await, Ok(None)));
    assert_eq!(client.check_stat(&path).await.unwrap(), None, "it is not made again");
}

/// The counter of a parent has 32 bits. Names are made by hand, since nobody waits for two thousand
/// million candidates.
#[tokio::test]
async fn the_line_keeps_its_order_when_the_sequence_goes_round() {
    let (zookeeper, store, client) = fixture(Dialect::Incumbent).await;
    let name = name("round");
    let path = format!("{}/round", zookeeper.chroot);
    client.mkdir(&path, &PERSISTENT).await.unwrap();
    let sequences = ["2147483646", "2147483647", "-2147483648", "-2147483647"];
    let mut names = Vec::new();
    for (number, sequence) in sequences.iter().enumerate() {
        let node = format!("incumbent-{:032x}-{sequence}", 9 - number);
        client.create(&format!("{path}/{node}"), b"", &EPHEMERAL).await.unwrap();
        names.push(node);
    }
    let line = store.line(&name, 9).await.unwrap().entries;
    assert_eq!(line.iter().map(|entry| entry.id.as_str().split('@').next().unwrap()).collect::<Vec<_>>(), names);
    assert!(line.is_sorted_by(|one, other| one.token < other.token));
}

#[tokio::test]
async fn an_entry_that_nobodys_death_removes_is_named_and_can_be_deposed() {
    let (zookeeper, store, client) = fixture(Dialect::Incumbent).await;
    let name = name("stuck");
    let path = format!("{}/stuck", zookeeper.chroot);
    client.mkdir(&path, &PERSISTENT).await.unwrap();
    let node = format!("{path}/incumbent-{:032x}-0000000000", 1);
    client.create(&node, b"", &PERSISTENT).await.unwrap();
    let session = store.open_session(TTL * 5).await.unwrap();
    match session.enlist(&name, &entry(2)).await {
        Err(StoreError::Corrupt { what }) => assert!(what.contains(&node), "{what}"),
        other => panic!("{other:?}"),
    }
    let line = store.line(&name, 9).await.unwrap().entries;
    assert!(line[0].stays && line[1..].iter().all(|ours| !ours.stays), "{line:?}");
    election(&store, &name).await.operator().depose(None, Duration::MAX).await.unwrap();
    let standing = session.enlist(&name, &entry(2)).await.unwrap();
    assert!(matches!(standing.place, Place::Leading(_)), "{standing:?}");
    assert!(!store.line(&name, 9).await.unwrap().entries[0].stays);
}

#[tokio::test]
async fn a_handover_needs_no_record_that_somebody_has_removed() {
    for dialect in FOREIGN {
        let (zookeeper, store, client) = fixture(dialect).await;
        let name = name("handover");
        let (leader, heir) = (store.open_session(TTL * 5).await.unwrap(), store.open_session(TTL * 5).await.unwrap());
        let leading = held(&leader.enlist(&name, &entry(1)).await.unwrap());
        let next = held(&heir.enlist(&name, &entry(2)).await.unwrap());
        let records = format!("{}/%incumbent/candidates/{name}", zookeeper.chroot);
        for record in client.list_children(&records).await.unwrap() {
            client.delete(&format!("{records}/{record}"), None).await.unwrap();
        }
        assert_eq!(leader.withdraw(&leading, Some(&next.entry)).await.unwrap(), Cas::Done, "{dialect:?}");
        assert_eq!(heir.standing(&next, None).await.unwrap().place, Place::Leading(next), "{dialect:?}");
    }
}

/// Its entries have no names of their own: what is beside them tells which session of ours they
/// belong to.
#[tokio::test]
async fn in_go_leaderelection_nobody_takes_the_entry_of_another_on_the_same_connection_for_ones_own() {
    let servers = shared().await.endpoints();
    let zookeeper = ZooKeeper::at(servers.clone(), Dialect::GoLeaderElection);
    let store = ZooKeeperStore::with_client(raw(&servers).await, &zookeeper.options()).unwrap();
    let name = name("same");
    let (first, second) = (store.open_session(TTL * 5).await.unwrap(), store.open_session(TTL * 5).await.unwrap());
    let leading = held(&first.enlist(&name, &entry(1)).await.unwrap());
    let new = entry(2);
    // It is sent, and nobody waits for the answer.
    tokio::select! {
        biased;
        answer = second.enlist(&name, &new) => panic!("nobody can have answered: {answer:?}"),
        () = std::future::ready(()) => {}
    }

    assert_eq!(second.renew(&[]).await.unwrap().stray, [], "the first one's entry is none of the second's");

    let again = second.enlist(&name, &new).await;
    assert!(matches!(again, Err(StoreError::Misuse { .. })), "one connection has one place: {again:?}");
    assert_eq!(first.standing(&leading, None).await.unwrap().place, Place::Leading(leading));
}

#[tokio::test]
async fn a_line_is_not_entered_through_the_place_of_another_store() {
    let servers = shared().await.endpoints();
    let zookeeper = ZooKeeper::at(servers.clone(), Dialect::Incumbent);
    let inner = zookeeper.options().chroot(format!("{}/team", zookeeper.chroot));
    let (inner, outer) = (ZooKeeperStore::connect(&servers, &inner).unwrap(), zookeeper.open());
    let session = inner.open_session(TTL * 5).await.unwrap();
    session.enlist(&name("jobs"), &entry(1)).await.unwrap();
    let session = outer.open_session(TTL * 5).await.unwrap();
    match session.enlist(&name("team/jobs"), &entry(2)).await {
        Err(StoreError::Misuse { what }) => assert!(what.contains("/team"), "{what}"),
        other => panic!("{other:?}"),
    }
    assert!(session.enlist(&name("teams/jobs"), &entry(3)).await.is_ok());
}

/// Without it others take our candidate for another library's: nobody could hand over to it, or end
/// its election.
#[tokio::test]
async fn what_our_candidate_says_beside_its_entry_is_said_again_if_somebody_removes_it() {
    for dialect in FOREIGN {
        let (zookeeper, store, client) = fixture(dialect).await;
        let name = name("beside");
        let session = store.open_session(TTL * 5).await.unwrap();
        let held = held(&session.enlist(&name, &entry(1)).await.unwrap());
        let records = format!("{}/%incumbent/candidates/{name}", zookeeper.chroot);
        let seen = async || store.line(&name, 9).await.unwrap().entries.remove(0);
        let before = seen().await;
        let remove = async || {
            for record in client.list_children(&records).await.unwrap() {
                client.delete(&format!("{records}/{record}"), None).await.unwrap();
            }
        };
        remove().await;
        assert_eq!(seen().await.incarnation, None, "{dialect:?}");

        session.renew(std::slice::from_ref(&held)).await.unwrap();
        let after = seen().await;
        assert_eq!((after.incarnation, after.value), (before.incarnation, before.value), "{dialect:?}");

        remove().await;
        client.delete(&records, None).await.unwrap();
        assert!(publish(&*session, &held, "new", None).await.unwrap().is_some());
        session.renew(std::slice::from_ref(&held)).await.unwrap();
        let after = seen().await;
        assert_eq!((after.incarnation, after.value), (before.incarnation, Bytes::from("new")), "{dialect:?}");
    }
}
