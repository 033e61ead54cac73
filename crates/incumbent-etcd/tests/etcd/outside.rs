//! What others do to our keys and leases behind our back.

use std::time::Duration;

use incumbent::{CandidacyEvent, LossReason};
use incumbent_store::{
    Cas, ElectionName, Incarnation, NewEntry, Nonce, Place, Publication, Store, StoreError, Version, Watched,
};

use crate::harness::{
    TTL, client, entry, grant, held, key_of, lead, lease_of, name, publish, put, raw, read_below, shared, store, until,
    within,
};

/// Ours leads, something happens to its key, and it is told, loses office and gets back in line
/// with a greater token.
async fn a_leader_gets_over(test: &str, happens: impl AsyncFnOnce(&str, i64)) {
    let store = store(shared().await);
    let election = name(test);
    let ours = client(&store).await.election(election.as_str()).unwrap();
    let mut candidacy = ours.candidate("ours").stand().await.unwrap();
    let office = lead(&mut candidacy).await;
    let token = office.term().token().token;
    let kv = read_below(&raw(&shared().await.endpoints()), election.as_str()).await.remove(0);

    happens(std::str::from_utf8(&kv.key).unwrap(), kv.lease).await;

    within(office.term().lost()).await;
    drop(office);
    let again = lead(&mut candidacy).await;
    assert!(again.term().token().token > token);
    let line = store.line(&election, 9).await.unwrap().entries;
    assert_eq!(line.len(), 1, "nothing is left behind: {line:?}");
    again.resign().await.unwrap();
    candidacy.withdraw().await.unwrap();
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
        let client = raw(&cluster.endpoints());
        put(&client, key, "by hand", grant(&client).await).await;
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
    let wake = session.watch(&Watched::new(held.clone(), Version::NONE), standing.cursor);
    let seen = store.line(&election, 1).await.unwrap().entries.remove(0);
    cluster.ctl(&["put", &key_of(&held), "by hand"]);

    within(wake).await.unwrap();
    assert_eq!(session.standing(&held, None).await.unwrap().place, Place::Gone);
    let renewal = session.renew(std::slice::from_ref(&held)).await.unwrap();
    assert_eq!(renewal.gone, std::slice::from_ref(&held));
    assert_eq!(session.publish(&held, seen.version, &Publication::new("again")).await.unwrap(), None);
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
    let line = store.line(&election, 9).await.unwrap().entries;
    assert!(line.len() == 1 && line[0].stays, "and nothing of ours is in line: {line:?}");

    let operated = client(&store).await.election(election.as_str()).unwrap();
    within(operated.operator().depose(None, Duration::MAX)).await.unwrap();

    assert!(matches!(session.enlist(&election, &entry(2)).await.unwrap().place, Place::Leading(_)));
}

#[tokio::test]
async fn a_follower_waits_for_the_owner_of_an_overwritten_entry_and_is_told_when_nobody_will_remove_it() {
    let cluster = shared().await;
    let (store, election) = (store(cluster), name("ahead-leaseless"));
    let (first, second) = (store.open_session(TTL * 5).await.unwrap(), store.open_session(TTL * 5).await.unwrap());
    let leading = held(&first.enlist(&election, &entry(1)).await.unwrap());
    let behind = held(&second.enlist(&election, &entry(2)).await.unwrap());
    let key = key_of(&leading);
    cluster.ctl(&["put", &key, "by hand"]);

    let standing = second.standing(&behind, None).await.unwrap();
    let Place::Behind { ahead, look_again, .. } = &standing.place else { panic!("{standing:?}") };
    assert!(ahead.is(&leading) && look_again.is_some_and(|after| after < TTL * 5), "{standing:?}");
    // One that comes now waits as well.
    let third = store.open_session(TTL * 5).await.unwrap();
    third.enlist(&election, &entry(3)).await.unwrap();

    first.close().await.unwrap();

    for told in [second.standing(&behind, None).await, third.enlist(&election, &entry(3)).await] {
        match told {
            Err(StoreError::Corrupt { what }) => assert!(what.contains(&key), "{what}"),
            // Right behind the other follower.
            Ok(standing) => assert!(matches!(&standing.place, Place::Behind { ahead, .. } if ahead.is(&behind))),
            other => panic!("{other:?}"),
        }
    }
    assert!(second.standing(&behind, None).await.is_err());
}

#[tokio::test]
async fn a_key_that_is_overwritten_by_hand_ends_no_follower() {
    let cluster = shared().await;
    let (store, election) = (store(cluster), name("overwritten-ahead"));
    let leader = client(&store).await.election(election.as_str()).unwrap();
    let follower = client(&store).await.election(election.as_str()).unwrap();
    let mut leading = leader.candidate("leader").stand().await.unwrap();
    let mut office = lead(&mut leading).await;
    let mut waiting = follower.candidate("follower").stand().await.unwrap();
    // The owner notices and steps back; then it is the follower's turn, and so on.
    for _ in 0..3 {
        let both = async || store.line(&election, 9).await.unwrap().entries.len() == 2;
        until("both are in line", both).await;
        let head = store.line(&election, 1).await.unwrap().entries.remove(0);
        cluster.ctl(&["put", &format!("{election}/{}", head.id.as_str().split('@').next().unwrap()), "by hand"]);
        within(office.term().lost()).await;
        drop(office);
        office = lead(&mut waiting).await;
        std::mem::swap(&mut leading, &mut waiting);
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
async fn a_session_whose_lease_was_revoked_is_gone_although_its_stream_is_open() {
    let cluster = shared().await;
    let store = store(cluster);
    let session = store.open_session(TTL * 5).await.unwrap();
    let held = held(&session.enlist(&name("revoked-stream"), &entry(1)).await.unwrap());
    session.renew(std::slice::from_ref(&held)).await.unwrap();
    cluster.ctl(&["lease", "revoke", &format!("{:x}", lease_of(&held))]);
    for _ in 0..2 {
        let renewal = session.renew(std::slice::from_ref(&held)).await;
        assert!(matches!(renewal, Err(StoreError::SessionGone)), "{renewal:?}");
    }
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
    assert!(matches!(third.standing(&held(&behind), None).await.unwrap().place, Place::Leading(_)));
}

#[tokio::test]
async fn a_lost_session_is_told_apart_from_a_lost_entry_by_the_events() {
    let cluster = shared().await;
    let store = store(cluster);
    let election = name("events");
    let ours = client(&store).await.election(election.as_str()).unwrap();
    let mut candidacy = ours.candidate("ours").stand().await.unwrap();
    let mut events = candidacy.events();
    let office = lead(&mut candidacy).await;
    cluster.ctl(&["del", "--prefix", &format!("{election}/")]);
    let why = loop {
        if let CandidacyEvent::Unelected(why) = within(events.next()).await.unwrap() {
            break why;
        }
    };
    assert_eq!(why, LossReason::EntryDeleted);
    drop(office);
}

/// The keys below this name and a `/`.
async fn keys_below(parent: &str) -> Vec<String> {
    let found = read_below(&raw(&shared().await.endpoints()), parent).await;
    found.into_iter().map(|kv| String::from_utf8(kv.key).unwrap()).collect()
}

#[tokio::test]
async fn an_entry_is_one_key_that_says_whose_it_is() {
    let (ours, theirs, election) = (store(shared().await), store(shared().await), name("one-key"));
    let session = ours.open_session(TTL * 5).await.unwrap();
    let seen = async || theirs.line(&election, 1).await.unwrap().entries.remove(0);
    let beside = format!("//incumbent/{}", election.as_str().replace('/', "%2F"));
    for (number, candidate, escaped) in [(1, "node-1", "node-1"), (2, "a/b %.c", "a%2fb%20%25.c")] {
        let entry = NewEntry::new(Incarnation::from_bits(number), candidate, "10.0.0.7:80");
        let held = held(&session.enlist(&election, &entry).await.unwrap());
        let key = format!("{election}/{:x}.{}.{escaped}", lease_of(&held), entry.incarnation);
        assert_eq!(keys_below(election.as_str()).await, [key]);
        assert_eq!(keys_below(&beside).await, [""; 0]);
        let said = seen().await;
        assert_eq!((said.incarnation, said.name.as_deref()), (Some(entry.incarnation), Some(candidate)));
        // Readiness is in nobody's line.
        publish(&*session, &held, "value", Some(Nonce(7))).await.unwrap();
        assert_eq!(keys_below(election.as_str()).await.len(), 1);
        let ready = seen().await;
        assert!(ready.ready == Some(Nonce(7)) && ready.is(&held), "{ready:?}");
        publish(&*session, &held, "value", None).await.unwrap();
        assert_eq!((seen().await.ready, keys_below(&beside).await.len()), (None, 0));
        publish(&*session, &held, "value", Some(Nonce(8))).await.unwrap();
        session.withdraw(&held, None).await.unwrap();
        assert_eq!(keys_below(&beside).await, [""; 0], "nothing is left");
    }
}

#[tokio::test]
async fn a_copy_of_an_entry_and_one_that_was_moved_to_another_lease_are_nobodys_of_ours() {
    let (store, election, copied) = (store(shared().await), name("copied"), name("copy"));
    let session = store.open_session(TTL * 5).await.unwrap();
    let held = held(&session.enlist(&election, &entry(1)).await.unwrap());
    let client = raw(&shared().await.endpoints());
    let lease = grant(&client).await;
    let copy = key_of(&held).replace(election.as_str(), copied.as_str());
    put(&client, &copy, "a mirror's", lease).await;
    put(&client, &key_of(&held), "taken over", lease).await;
    for election in [&election, &copied] {
        let seen = store.line(election, 1).await.unwrap().entries.remove(0);
        assert!(seen.is_foreign() && seen.name.is_none(), "{seen:?}");
    }
}

#[tokio::test]
async fn a_duplicate_that_arrives_after_the_withdrawal_is_another_entry() {
    let (store, election) = (store(shared().await), name("duplicate"));
    let session = store.open_session(TTL * 5).await.unwrap();
    let first = held(&session.enlist(&election, &entry(1)).await.unwrap());
    session.withdraw(&first, None).await.unwrap();
    // What a late duplicate of the enlistment does.
    let client = raw(&shared().await.endpoints());
    put(&client, &key_of(&first), "late", lease_of(&first)).await;
    let (lost, theirs) = (name("duplicate-lost"), entry(2));
    let mut dropped = session.enlist(&lost, &theirs);
    assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(dropped.as_mut().poll(cx).is_pending())).await);
    drop(dropped);

    let renewal = session.renew(std::slice::from_ref(&first)).await.unwrap();

    assert_eq!(renewal.gone, std::slice::from_ref(&first));
    let stray = renewal.stray.into_iter().find(|stray| stray.election == election).unwrap();
    assert!(stray.token > first.token && stray.entry != first.entry && stray.incarnation == first.incarnation);
    assert_eq!(session.standing(&first, None).await.unwrap().place, Place::Gone);
    assert_eq!(session.withdraw(&first, None).await.unwrap(), Cas::Done);
    assert_eq!(store.line(&election, 9).await.unwrap().entries.len(), 1, "the other one is still there");
    assert_eq!(session.withdraw(&stray, None).await.unwrap(), Cas::Done);
    assert!(store.line(&election, 9).await.unwrap().entries.is_empty());
}

#[tokio::test]
async fn keys_that_somebody_makes_under_our_sessions_name_are_removed_one_by_one() {
    let (store, election) = (store(shared().await), name("made-by-hand"));
    let session = store.open_session(TTL * 5).await.unwrap();
    let lease = lease_of(&held(&session.enlist(&name("lease"), &entry(1)).await.unwrap()));
    let client = raw(&shared().await.endpoints());
    put(&client, &format!("{election}/{lease:x}.by-hand"), "", lease).await;
    put(&client, &format!("{election}/{lease:x}.{}.x", entry(7).incarnation), "", lease).await;
    let mut incarnations = Vec::new();
    while let Err(StoreError::AlreadyInLine(old)) = session.enlist(&election, &entry(2)).await {
        incarnations.push(old.incarnation);
        assert_eq!(session.withdraw(&old, None).await.unwrap(), Cas::Done);
    }
    incarnations.sort();
    assert_eq!(incarnations, [Incarnation::from_bits(0), entry(7).incarnation]);
    assert_eq!(store.line(&election, 9).await.unwrap().entries[0].incarnation, Some(entry(2).incarnation));
}

#[tokio::test]
async fn an_enlistment_that_arrives_late_is_told_from_those_that_came_after_it() {
    let (ours, theirs, election) = (store(shared().await), store(shared().await), name("late"));
    let session = ours.open_session(TTL * 5).await.unwrap();
    let (first, second) = (entry(2), entry(3));
    let mut call = session.enlist(&election, &first);
    // It is sent, and nobody waits for the answer.
    assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(call.as_mut().poll(cx).is_pending())).await);
    until("it has arrived", async || !theirs.line(&election, 1).await.unwrap().entries.is_empty()).await;
    drop(call);
    // The one that was dropped is found by the renewal, and in the way of the next.
    let stray = session.renew(&[]).await.unwrap().stray;
    assert_eq!(stray.iter().map(|held| held.incarnation).collect::<Vec<_>>(), [first.incarnation]);
    match session.enlist(&election, &second).await {
        Err(StoreError::AlreadyInLine(old)) => assert_eq!(old, stray[0]),
        other => panic!("{other:?}"),
    }
    session.withdraw(&stray[0], None).await.unwrap();
    let standing = session.enlist(&election, &second).await.unwrap();
    assert_eq!(held(&standing).incarnation, second.incarnation);
    let again = session.enlist(&election, &second).await.unwrap();
    assert_eq!(held(&again), held(&standing));
}
