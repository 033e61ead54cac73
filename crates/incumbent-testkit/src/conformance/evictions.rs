//! Removing somebody else's entry: exactly the one that was seen, and its owner is told.

use incumbent_store::{Cas, Incarnation, Place, Watched};

use super::fixture::Fixture;
use super::harness::Harness;

/// Not another token's or incarnation's, not another election's, and not the next one of the same
/// candidate.
pub async fn an_eviction_removes_exactly_what_was_seen<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let elsewhere = harness.election();
    let (first, second) = (fixture.still_participant().await, fixture.still_participant().await);
    let held = first.stand(&fixture.election).await;
    let held_elsewhere = second.stand(&elsewhere).await;
    let seen = fixture.seen(&held).await;

    let mut other_token = seen.clone();
    other_token.token = held_elsewhere.token;
    fixture.store.evict(&fixture.election, &other_token).await.unwrap();
    assert!(first.leads(&held).await, "it has another token");
    // As an entry of the store that was here before, and that began to count at one, too.
    let mut other_incarnation = seen.clone();
    other_incarnation.incarnation = Some(Incarnation::from_bits(held.incarnation.to_bits() ^ 1));
    assert_eq!(fixture.store.evict(&fixture.election, &other_incarnation).await.unwrap(), Cas::Done);
    assert!(first.leads(&held).await, "it has another incarnation");
    fixture.store.evict(&elsewhere, &seen).await.unwrap();
    assert!(second.leads(&held_elsewhere).await, "it is in another election");
    assert!(first.leads(&held).await, "it is in another election");

    let behind = if fixture.has_line() { Some(second.stand(&fixture.election).await) } else { None };
    assert_eq!(fixture.store.evict(&fixture.election, &seen).await.unwrap(), Cas::Done);
    assert_eq!(first.place(&held).await, Place::Gone);
    assert_eq!(fixture.store.evict(&fixture.election, &seen).await.unwrap(), Cas::Done, "it is gone already");
    if let Some(behind) = &behind {
        assert!(second.leads(behind).await);
        second.withdraw(behind).await;
    }
    let again = first.stand(&fixture.election).await;
    fixture.store.evict(&fixture.election, &seen).await.unwrap();
    assert!(first.leads(&again).await, "a late eviction does not reach the next entry");
    assert!(second.leads(&held_elsewhere).await);
}

/// What has changed since it was seen stays.
pub async fn an_eviction_is_refused_when_the_entry_has_changed<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let participant = fixture.still_participant().await;
    let held = participant.stand(&fixture.election).await;
    let seen = fixture.seen(&held).await;
    assert!(participant.publish(&held, b"alive", None).await.is_some());
    assert_eq!(fixture.store.evict(&fixture.election, &seen).await.unwrap(), Cas::Refused);
    assert!(participant.leads(&held).await);
    let seen = fixture.seen(&held).await;
    assert_eq!(fixture.store.evict(&fixture.election, &seen).await.unwrap(), Cas::Done);
    assert_eq!(participant.place(&held).await, Place::Gone);
}

/// Where rivals forget the dead, a renewal saves the living; where the store does, a renewal
/// changes no entry.
pub async fn an_eviction_of_what_was_renewed_meanwhile_is_refused_where_rivals_forget<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let participant = fixture.still_participant().await;
    let held = participant.stand(&fixture.election).await;
    let seen = fixture.seen(&held).await;
    participant.session.renew(std::slice::from_ref(&held)).await.unwrap();
    if fixture.is_leased() {
        assert_eq!(fixture.seen(&held).await.version, seen.version);
    } else {
        assert_eq!(fixture.store.evict(&fixture.election, &seen).await.unwrap(), Cas::Refused);
        assert!(participant.leads(&held).await);
    }
    let seen = fixture.seen(&held).await;
    assert_eq!(fixture.store.evict(&fixture.election, &seen).await.unwrap(), Cas::Done);
    assert_eq!(fixture.tokens().await, []);
}

/// By the watch, by the next renewal and by the standing; and the session lives on.
pub async fn an_eviction_is_told_to_the_owner_in_every_way<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let participant = fixture.still_participant().await;
    let held = participant.stand(&fixture.election).await;
    let standing = participant.standing(&held).await;
    let wake = participant.session.watch(&Watched::new(held.clone(), standing.office.version), standing.cursor);
    let seen = fixture.seen(&held).await;
    assert_eq!(harness.store().await.evict(&fixture.election, &seen).await.unwrap(), Cas::Done);
    if fixture.promises.watches {
        fixture.woken("the owner of an evicted entry", wake).await;
    }
    let renewal = participant.session.renew(std::slice::from_ref(&held)).await.unwrap();
    assert_eq!((renewal.gone, renewal.stray), (vec![held.clone()], vec![]));
    assert_eq!(participant.place(&held).await, Place::Gone);
    let again = participant.stand(&fixture.election).await;
    assert!(participant.leads(&again).await && again.token > held.token);
}
