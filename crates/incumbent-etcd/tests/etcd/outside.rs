//! What others do to our keys and leases behind our back.

use std::time::Duration;

use incumbent::{Loss, SeatEvent};
use incumbent_store::{Cas, ElectionName, NewEntry, Nonce, Place, Store, StoreError, Target};

use crate::harness::{TTL, client, entry, held, lead, lease_of, name, raw, shared, store, until, within};

/// Ours leads, something happens to its key, and it is told, loses office and gets back in line with a greater token.
async fn a_leader_gets_over(test: &str, happens: impl AsyncFnOnce(&str, i64)) {
    let store = store(shared().await);
    let election = name(test);
    let ours = client(&store).await.election(election.as_str()).unwrap();
    let mut seat = ours.candidate("ours").stand().await.unwrap();
    let office = lead(&mut seat).await;
    let token = office.term().token().token;
    let mut watched = raw(&shared().await.endpoints()).await;
    let options = etcd_client::GetOptions::new().with_prefix();
    let found = watched.get(format!("{election}/"), Some(options)).await.unwrap();
    let kv = &found.kvs()[0];

    happens(kv.key_str().unwrap(), kv.lease()).await;

    within(office.term().lost()).await;
    drop(office);
    let again = lead(&mut seat).await;
    assert!(again.term().token().token > token);
    let line = store.line(&election, 9).await.unwrap().entries;
    assert_eq!(line.len(), 1, "nothing is left behind: {line:?}");
    again.resign().await.unwrap();
    seat.withdraw().await.unwrap();
    until("the line is empty", async || store.line(&election, 9).await.unwrap().entries.is_empty()).await;
}

#[tokio::test]
async fn a_leader_whose_lease_is_revoked_gets_a_new_one() {
    let cluster = shared().await;
    a_leader_gets_over("revoked", async |_, lease| {
        cluster.ctl(&["lease", "revoke", &format!("{lease:x}")]);
    })
    .await;
}

#[tokio::test]
async fn a_leader_whose_key_is_deleted_gets_back_in_line() {
    let cluster = shared().await;
    a_leader_gets_over("deleted", async |key, _| {
        cluster.ctl(&["del", key]);
    })
    .await;
}

#[tokio::test]
async fn a_leader_whose_key_is_overwritten_without_a_lease_gets_back_in_line() {
    let cluster = shared().await;
    a_leader_gets_over("overwritten", async |key, _| {
        cluster.ctl(&["put", key, "by hand"]);
    })
    .await;
}

#[tokio::test]
async fn a_leader_whose_key_is_moved_to_another_lease_gets_back_in_line() {
    let cluster = shared().await;
    a_leader_gets_over("moved", async |key, _| {
        let mut client = raw(&cluster.endpoints()).await;
        let lease = client.lease_grant(600, None).await.unwrap().id();
        let options = etcd_client::PutOptions::new().with_lease(lease);
        client.put(key, "by hand", Some(options)).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn an_overwritten_entry_neither_leads_nor_passes_for_ours() {
    let cluster = shared().await;
    let (store, election) = (store(cluster), name("not-ours"));
    let session = store.open_session(TTL).await.unwrap();
    let standing = session.enlist(&election, &entry(1)).await.unwrap();
    let held = held(&standing);
    let wake = store.watch(&election, &[Target::Gone(held.entry.clone())], standing.cursor);
    let seen = store.line(&election, 1).await.unwrap().entries.remove(0);
    let suffix = lease_of(&held);
    cluster.ctl(&["put", &format!("{election}/{suffix}"), "by hand"]);

    within(wake).await.unwrap();
    assert_eq!(session.standing(&held).await.unwrap().place, Place::Gone);
    let renewal = session.renew(std::slice::from_ref(&held)).await.unwrap();
    assert_eq!(renewal.gone, std::slice::from_ref(&held));
    assert_eq!(session.publish(&held, &"again".into(), None).await.unwrap(), Cas::Refused);
    assert_eq!(store.evict(&election, &seen).await.unwrap(), Cas::Refused, "it has changed since it was seen");
    // It was ours, so it is ours to remove: nobody else's death would.
    assert!(matches!(session.enlist(&election, &entry(2)).await, Err(StoreError::AlreadyInLine(old)) if old == held));
    assert_eq!(session.withdraw(&held, None).await.unwrap(), Cas::Done);
    assert!(matches!(session.enlist(&election, &entry(2)).await.unwrap().place, Place::Leading(_)));
}

#[tokio::test]
async fn an_entry_without_a_lease_is_named_and_can_be_deposed() {
    let cluster = shared().await;
    let (store, election) = (store(cluster), name("leaseless"));
    let key = format!("{election}/1f");
    cluster.ctl(&["put", &key, "for ever"]);
    let session = store.open_session(TTL).await.unwrap();
    match session.enlist(&election, &entry(1)).await {
        Err(StoreError::Corrupt { what }) => assert!(what.contains(&key), "{what}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(store.line(&election, 9).await.unwrap().entries.len(), 1, "and nothing of ours is in line");

    let operated = client(&store).await.election(election.as_str()).unwrap();
    within(operated.operator().depose(None)).await.unwrap();

    assert!(matches!(session.enlist(&election, &entry(2)).await.unwrap().place, Place::Leading(_)));
}

#[tokio::test]
async fn a_follower_is_told_that_the_one_ahead_will_never_go() {
    let cluster = shared().await;
    let (store, election) = (store(cluster), name("ahead-leaseless"));
    let (first, second) = (store.open_session(TTL).await.unwrap(), store.open_session(TTL).await.unwrap());
    let leading = held(&first.enlist(&election, &entry(1)).await.unwrap());
    let behind = held(&second.enlist(&election, &entry(2)).await.unwrap());
    let suffix = lease_of(&leading);
    let key = format!("{election}/{suffix}");
    cluster.ctl(&["put", &key, "by hand"]);
    match second.standing(&behind).await {
        Err(StoreError::Corrupt { what }) => assert!(what.contains(&key), "{what}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_ttl_that_is_too_small_is_raised_and_the_raised_one_counts() {
    let store = store(shared().await);
    let promises = store.promises().await.unwrap();
    assert!(promises.smallest_ttl > Duration::from_secs(1), "{promises:?}");
    let session = store.open_session(Duration::from_millis(100)).await.unwrap();
    assert_eq!(session.liveness().ttl, promises.smallest_ttl);
    assert_eq!(session.renew(&[]).await.unwrap().ttl, promises.smallest_ttl);
    session.close().await.unwrap();
}

#[tokio::test]
async fn an_enlistment_that_was_not_awaited_is_found_as_a_stray() {
    let store = store(shared().await);
    let session = store.open_session(TTL).await.unwrap();
    let election = name("stray");
    let entry = entry(7);
    let mut call = session.enlist(&election, &entry);
    // It is sent, and nobody waits for the answer.
    until("it has arrived", async || {
        let _ = tokio::time::timeout(Duration::from_millis(1), &mut call).await.is_ok_and(|done| done.is_ok());
        !store.line(&election, 1).await.unwrap().entries.is_empty()
    })
    .await;
    drop(call);
    let stray = session.renew(&[]).await.unwrap().stray;
    assert_eq!(stray.iter().map(|held| held.incarnation).collect::<Vec<_>>(), [entry.incarnation]);
    assert_eq!(session.withdraw(&stray[0], None).await.unwrap(), Cas::Done);
    assert_eq!(session.renew(&[]).await.unwrap().stray, []);
}

#[tokio::test]
async fn elections_below_ours_neither_lead_nor_wake_us() {
    let store = store(shared().await);
    let (upper, lower) = (name("nested"), ElectionName::new(&format!("{}/lower", name("nested"))).unwrap());
    let (first, second, third) = (
        store.open_session(TTL).await.unwrap(),
        store.open_session(TTL).await.unwrap(),
        store.open_session(TTL).await.unwrap(),
    );
    first.enlist(&lower, &entry(1)).await.unwrap();
    let leading = first.enlist(&upper, &entry(2)).await.unwrap();
    assert!(matches!(leading.place, Place::Leading(_)), "{leading:?}");
    second.enlist(&lower, &entry(3)).await.unwrap();
    let behind = third.enlist(&upper, &entry(4)).await.unwrap();
    let Place::Behind { ahead, .. } = &behind.place else { panic!("{behind:?}") };
    assert!(ahead.is(&held(&leading)) && ahead.name.is_some());
    assert_eq!(store.line(&upper, 1).await.unwrap().entries.len(), 1);
    assert_eq!(store.line(&upper, 9).await.unwrap().entries.len(), 2);
    first.withdraw(&held(&leading), None).await.unwrap();
    assert!(matches!(third.standing(&held(&behind)).await.unwrap().place, Place::Leading(_)));
}

#[tokio::test]
async fn a_lost_session_is_told_apart_from_a_lost_entry_by_the_events() {
    let cluster = shared().await;
    let store = store(cluster);
    let election = name("events");
    let ours = client(&store).await.election(election.as_str()).unwrap();
    let mut seat = ours.candidate("ours").stand().await.unwrap();
    let mut events = seat.events();
    let office = lead(&mut seat).await;
    cluster.ctl(&["del", "--prefix", &format!("{election}/")]);
    let why = loop {
        if let SeatEvent::Unelected(why) = within(events.next()).await.unwrap() {
            break why;
        }
    };
    assert_eq!(why, Loss::EntryDeleted);
    drop(office);
}

/// What is there of ours beside the entries, by key.
async fn beside(election: &ElectionName, session: &str) -> (Vec<String>, bool) {
    let mut client = raw(&shared().await.endpoints()).await;
    let prefix = || Some(etcd_client::GetOptions::new().with_prefix().with_keys_only());
    let place = format!("//incumbent/{}/", election.as_str().replace('/', "%2F"));
    let found = client.get(place, prefix()).await.unwrap();
    let introduced = client.get(format!("//incumbent//{session}"), None).await.unwrap();
    (found.kvs().iter().map(|kv| kv.key_str().unwrap().to_owned()).collect(), introduced.count() == 1)
}

#[tokio::test]
async fn a_session_introduces_itself_once_and_writes_only_what_is_not_known() {
    let (ours, theirs, election) = (store(shared().await), store(shared().await), name("introduced"));
    let session = ours.open_session(TTL * 5).await.unwrap();
    let seen = async || theirs.line(&election, 1).await.unwrap().entries.remove(0);
    let mut stays = Vec::new();
    for number in 1..=2 {
        let held = held(&session.enlist(&election, &entry(number)).await.unwrap());
        let lease = lease_of(&held);
        assert_eq!(beside(&election, lease).await, (vec![], true));
        let before = seen().await;
        assert!(before.is(&held) && before.name.as_deref() == Some("node-1"), "{before:?}");
        // Readiness is more than was said before.
        session.publish(&held, &"value".into(), Some(Nonce(7))).await.unwrap();
        assert_eq!(beside(&election, lease).await.0.len(), 1);
        let after = seen().await;
        assert_eq!((after.ready, after.incarnation, &after.name), (Some(Nonce(7)), before.incarnation, &before.name));
        session.withdraw(&held, None).await.unwrap();
        assert_eq!(beside(&election, lease).await, (vec![], true), "nothing of the entry is left");
        stays.push(after.incarnation);
    }
    assert_ne!(stays[0], stays[1], "two stays of one session");
    // Another name is said beside the entry.
    let spare = NewEntry { name: "spare".into(), ..entry(3) };
    let spare = held(&session.enlist(&election, &spare).await.unwrap());
    assert_eq!(seen().await.name.as_deref(), Some("spare"));
    let lease = lease_of(&spare).to_owned();
    assert_eq!(beside(&election, &lease).await.0.len(), 1);
    session.close().await.unwrap();
    assert_eq!(beside(&election, &lease).await, (vec![], false));
}

#[tokio::test]
async fn an_introduction_that_somebody_deletes_comes_back_with_the_next_renewal() {
    let cluster = shared().await;
    let (prefix, election) = (format!("deleted-{:x}/", std::process::id()), name("deleted-introduction"));
    let apart = || store(cluster).with_prefix(&prefix).unwrap();
    let session = apart().open_session(TTL * 5).await.unwrap();
    let leading = held(&session.enlist(&election, &entry(1)).await.unwrap());
    let lease = lease_of(&leading);
    let friend = apart();
    assert!(!friend.line(&election, 1).await.unwrap().entries[0].is_foreign());
    cluster.ctl(&["del", &format!("{prefix}//incumbent//{lease}")]);
    let rival = friend.open_session(TTL * 5).await.unwrap();
    let behind = rival.enlist(&election, &entry(2)).await.unwrap();
    assert!(matches!(&behind.place, Place::Behind { ahead, .. } if !ahead.is_foreign()), "they have met: {behind:?}");
    let stranger = apart().line(&election, 1).await.unwrap().entries.remove(0);
    assert!(stranger.is_foreign(), "whoever has not met us cannot know us: {stranger:?}");
    let renewal = session.renew(std::slice::from_ref(&leading)).await.unwrap();
    assert!(renewal.gone.is_empty() && renewal.stray.is_empty(), "{renewal:?}");
    let seen = apart().line(&election, 1).await.unwrap().entries.remove(0);
    assert!(seen.is(&leading) && seen.name.as_deref() == Some("node-1"), "{seen:?}");
}

#[tokio::test]
async fn an_enlistment_that_arrives_late_is_told_from_those_that_came_after_it() {
    let (ours, theirs, election) = (store(shared().await), store(shared().await), name("late"));
    let session = ours.open_session(TTL * 5).await.unwrap();
    // The session is known already.
    let known = held(&session.enlist(&name("late-known"), &entry(1)).await.unwrap());
    let (first, second) = (entry(2), entry(3));
    let mut call = session.enlist(&election, &first);
    // It is sent, and nobody waits for the answer.
    assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(call.as_mut().poll(cx).is_pending())).await);
    until("it has arrived", async || !theirs.line(&election, 1).await.unwrap().entries.is_empty()).await;
    drop(call);
    // The one that was dropped is found by the renewal, and in the way of the next.
    let stray = session.renew(std::slice::from_ref(&known)).await.unwrap().stray;
    assert_eq!(stray.iter().map(|held| held.incarnation).collect::<Vec<_>>(), [first.incarnation]);
    match session.enlist(&election, &second).await {
        Err(StoreError::AlreadyInLine(old)) => assert_eq!(old, stray[0]),
        other => panic!("{other:?}"),
    }
    session.withdraw(&stray[0], None).await.unwrap();
    // From now on each says which it is.
    let standing = session.enlist(&election, &second).await.unwrap();
    assert_eq!(held(&standing).incarnation, second.incarnation);
    let again = session.enlist(&election, &second).await.unwrap();
    assert_eq!(held(&again), held(&standing));
    let lease = lease_of(&known);
    assert_eq!(beside(&election, lease).await.0.len(), 1, "the other could come again");
}
