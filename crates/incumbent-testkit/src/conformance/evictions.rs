//! Removing somebody else's entry: exactly the one that was seen, and its owner is told.

use incumbent_store::{Cas, Place, Watched};

use super::harness::Harness;
use super::scene::Scene;

/// Not another token's, not another election's, and not the next one of the same candidate.
pub async fn an_eviction_removes_exactly_what_was_seen<H: Harness>(harness: &H) {
    let scene = Scene::set(harness).await;
    let elsewhere = harness.election();
    let (first, second) = (scene.still_participant().await, scene.still_participant().await);
    let held = first.stand(&scene.election).await;
    let held_elsewhere = second.stand(&elsewhere).await;
    let seen = scene.seen(&held).await;

    let mut other_token = seen.clone();
    other_token.token = held_elsewhere.token;
    scene.store.evict(&scene.election, &other_token).await.unwrap();
    assert!(first.leads(&held).await, "it has another token");
    scene.store.evict(&elsewhere, &seen).await.unwrap();
    assert!(second.leads(&held_elsewhere).await, "it is in another election");
    assert!(first.leads(&held).await, "it is in another election");

    let behind = if scene.has_line() { Some(second.stand(&scene.election).await) } else { None };
    assert_eq!(scene.store.evict(&scene.election, &seen).await.unwrap(), Cas::Done);
    assert_eq!(first.place(&held).await, Place::Gone);
    assert_eq!(scene.store.evict(&scene.election, &seen).await.unwrap(), Cas::Done, "it is gone already");
    if let Some(behind) = &behind {
        assert!(second.leads(behind).await);
        second.withdraw(behind).await;
    }
    let again = first.stand(&scene.election).await;
    scene.store.evict(&scene.election, &seen).await.unwrap();
    assert!(first.leads(&again).await, "a late eviction does not reach the next entry");
    assert!(second.leads(&held_elsewhere).await);
}

/// What has changed since it was seen stays.
pub async fn an_eviction_is_refused_when_the_entry_has_changed<H: Harness>(harness: &H) {
    let scene = Scene::set(harness).await;
    let participant = scene.still_participant().await;
    let held = participant.stand(&scene.election).await;
    let seen = scene.seen(&held).await;
    assert!(participant.publish(&held, b"alive", None).await.is_some());
    assert_eq!(scene.store.evict(&scene.election, &seen).await.unwrap(), Cas::Refused);
    assert!(participant.leads(&held).await);
    let seen = scene.seen(&held).await;
    assert_eq!(scene.store.evict(&scene.election, &seen).await.unwrap(), Cas::Done);
    assert_eq!(participant.place(&held).await, Place::Gone);
}

/// Where rivals forget the dead, a renewal saves the living; where the store does, a renewal
/// changes no entry.
pub async fn an_eviction_of_what_was_renewed_meanwhile_is_refused_where_rivals_forget<H: Harness>(harness: &H) {
    let scene = Scene::set(harness).await;
    let participant = scene.still_participant().await;
    let held = participant.stand(&scene.election).await;
    let seen = scene.seen(&held).await;
    participant.session.renew(std::slice::from_ref(&held)).await.unwrap();
    if scene.is_leased() {
        assert_eq!(scene.seen(&held).await.version, seen.version);
    } else {
        assert_eq!(scene.store.evict(&scene.election, &seen).await.unwrap(), Cas::Refused);
        assert!(participant.leads(&held).await);
    }
    let seen = scene.seen(&held).await;
    assert_eq!(scene.store.evict(&scene.election, &seen).await.unwrap(), Cas::Done);
    assert_eq!(scene.tokens().await, []);
}

/// By the watch, by the next renewal and by the standing; and the session lives on.
pub async fn an_eviction_is_told_to_the_owner_in_every_way<H: Harness>(harness: &H) {
    let scene = Scene::set(harness).await;
    let participant = scene.still_participant().await;
    let held = participant.stand(&scene.election).await;
    let standing = participant.standing(&held).await;
    let wake = participant.session.watch(&Watched::new(held.clone(), standing.office.version), standing.cursor);
    let seen = scene.seen(&held).await;
    assert_eq!(harness.store().await.evict(&scene.election, &seen).await.unwrap(), Cas::Done);
    if scene.promises.watches {
        scene.woken("the owner of an evicted entry", wake).await;
    }
    let renewal = participant.session.renew(std::slice::from_ref(&held)).await.unwrap();
    assert_eq!((renewal.gone, renewal.stray), (vec![held.clone()], vec![]));
    assert_eq!(participant.place(&held).await, Place::Gone);
    let again = participant.stand(&scene.election).await;
    assert!(participant.leads(&again).await && again.token > held.token);
}
