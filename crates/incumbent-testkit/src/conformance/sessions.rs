//! Sessions: what they carry, what keeps them, and what is left when they end.

use std::time::Duration;

use incumbent_store::{Cas, Fault, Held, Paused, Place, Publication, Standing, StoreError};

use super::fixture::{Fixture, Participant, new_entry};
use super::harness::Harness;
use crate::candidates::held_of;

/// What one session does to its entries does nothing to another's.
pub async fn two_sessions_are_independent<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let other_handle = harness.store().await;
    let (first, second) = (fixture.participant().await, fixture.participant().await);
    let (left, right) = (harness.election(), harness.election());
    let in_left = first.stand(&left).await;
    let in_right = second.stand(&right).await;
    assert!(first.leads(&in_left).await && second.leads(&in_right).await);
    first.session.close().await.unwrap();
    assert!(second.leads(&in_right).await);
    assert_eq!(fixture.line_of(&left).await.entries, []);
    let seen = other_handle.line(&right, 10).await.unwrap().entries;
    assert!(seen.len() == 1 && seen[0].is(&in_right), "every handle sees the same: {seen:?}");
}

/// One proof of life for all of them.
pub async fn one_session_stands_in_many_elections<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let participant = fixture.participant().await;
    let mut held = Vec::new();
    for _ in 0..20 {
        held.push(participant.stand(&harness.election()).await);
    }
    let renewal = participant.session.renew(&held).await.unwrap();
    assert_eq!((renewal.gone, renewal.unproven, renewal.stray), (vec![], vec![], vec![]));
    for held in &held {
        assert!(participant.leads(held).await);
    }
    let left = held.swap_remove(7);
    participant.withdraw(&left).await;
    assert_eq!(participant.place(&left).await, Place::Gone);
    for held in &held {
        assert!(participant.leads(held).await, "only one was withdrawn");
    }
}

/// Entries that are gone are found out with the next proof of life, and so are those that nobody
/// knew of.
pub async fn a_renewal_names_what_is_gone_and_what_was_not_named<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let participant = fixture.participant().await;
    let kept = participant.stand(&harness.election()).await;
    let old = participant.stand(&fixture.election).await;
    let named = |held: &[&Held]| held.iter().map(|held| (*held).clone()).collect::<Vec<_>>();
    let unnamed = participant.session.renew(&named(&[&kept])).await.unwrap();
    assert_eq!((unnamed.gone, unnamed.stray), (vec![], vec![old.clone()]));
    participant.withdraw(&old).await;
    let gone = participant.session.renew(&named(&[&kept, &old])).await.unwrap();
    assert_eq!((gone.gone, gone.stray), (vec![old.clone()], vec![]));
    let new = participant.stand(&fixture.election).await;
    let both = participant.session.renew(&named(&[&old, &kept])).await.unwrap();
    assert_eq!((both.gone, both.stray), (vec![old], vec![new.clone()]));
    let well = participant.session.renew(&named(&[&new, &kept])).await.unwrap();
    assert_eq!((well.gone, well.stray), (vec![], vec![]));
    assert!(!well.ttl.is_zero());
}

/// Where a renewal says that somebody still waits behind the same one, nobody looks for themselves.
pub async fn a_renewal_says_who_is_still_ahead_only_while_it_is_so<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    if !fixture.has_line() {
        return;
    }
    let participants = fixture.participants_in_line(3).await;
    let [(leader, first), (next, second), (last, third)] = &participants[..] else { panic!("three in line") };
    // Each time they look, as candidates do on a hint.
    let behind = async |participant: &Participant, held: &Held| {
        let Standing { place, office, .. } = participant.session.standing(held, None).await.unwrap();
        let seen = match place {
            Place::Behind { ahead, .. } => Some((ahead.token, office.version)),
            _ => None,
        };
        let said = participant.session.renew(std::slice::from_ref(held)).await.unwrap().behind;
        assert!(
            said.iter().all(|said| said.held == *held && seen == Some((said.ahead.token, said.office))),
            "{said:?}"
        );
    };
    behind(leader, first).await;
    behind(last, third).await;
    let office = fixture.line().await.office;
    let paused = office.clone().with_paused(Paused::new("why"));
    assert_eq!(fixture.store.set_office(&fixture.election, office.version, &paused).await.unwrap(), Cas::Done);
    // Not looked since: a follower that is told so sees that the record is another one.
    let said = last.session.renew(std::slice::from_ref(third)).await.unwrap().behind;
    assert!(said.iter().all(|said| said.office != office.version), "{said:?}");
    behind(last, third).await;
    next.withdraw(second).await;
    let said = last.session.renew(std::slice::from_ref(third)).await.unwrap().behind;
    assert!(said.iter().all(|said| said.ahead.token != second.token), "{said:?}");
    behind(last, third).await;
    leader.withdraw(first).await;
    let said = last.session.renew(std::slice::from_ref(third)).await.unwrap().behind;
    assert_eq!(said, [], "nobody is ahead");
}

/// A session lives as long as it is renewed, however long that is.
pub async fn a_renewed_session_stays<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let participant = fixture.participant().await;
    let held = participant.stand(&fixture.election).await;
    if fixture.is_leased() {
        // One that is not renewed shows when the TTL has passed, twice.
        for _ in 0..2 {
            let silent = fixture.session().await;
            let election = harness.election();
            silent.enlist(&election, &new_entry()).await.unwrap();
            fixture.until("the silent one goes", async || fixture.line_of(&election).await.entries.is_empty()).await;
        }
    } else {
        let before = fixture.seen(&held).await.version;
        participant.session.renew(std::slice::from_ref(&held)).await.unwrap();
        assert_ne!(fixture.seen(&held).await.version, before, "rivals see that it lives");
    }
    assert!(participant.leads(&held).await);
    assert_eq!(participant.session.renew(std::slice::from_ref(&held)).await.unwrap().gone, []);
}

/// Nothing is left, and nothing comes back.
pub async fn closing_a_session_removes_its_entries<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let (participant, other) = (fixture.participant().await, fixture.participant().await);
    let elsewhere = harness.election();
    participant.stand(&fixture.election).await;
    participant.stand(&elsewhere).await;
    participant.session.close().await.unwrap();
    assert_eq!(fixture.tokens().await, []);
    assert_eq!(fixture.line_of(&elsewhere).await.entries, []);
    let late = participant.session.enlist(&fixture.election, &new_entry()).await;
    assert!(late.is_err(), "a closed session stands nowhere: {late:?}");
    assert!(participant.session.renew(&[]).await.is_err());
    participant.session.close().await.expect("closing again is no error");
    let held = other.stand(&fixture.election).await;
    assert!(other.leads(&held).await);
}

/// The store forgets the silent, or leaves that to rivals, who see that no version changes.
pub async fn a_silent_session_is_forgotten_by_whom_the_store_says<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let silent = fixture.session().await;
    let elsewhere = harness.election();
    let mut held = Vec::new();
    for election in [&fixture.election, &elsewhere] {
        held.push(held_of(&silent.enlist(election, &new_entry()).await.unwrap()).unwrap());
    }
    if fixture.is_leased() {
        assert_eq!(fixture.seen(&held[0]).await.observed, None);
        let was = silent.standing(&held[0], None).await.unwrap().published;
        fixture
            .until("all its entries go", async || {
                fixture.tokens().await.is_empty() && fixture.line_of(&elsewhere).await.entries.is_empty()
            })
            .await;
        let fault = |error: StoreError| error.fault();
        assert_eq!(silent.renew(&held).await.map_err(fault), Err(Fault::SessionGone));
        assert_eq!(silent.standing(&held[0], None).await.map_err(fault), Err(Fault::SessionGone));
        assert_eq!(silent.enlist(&fixture.election, &new_entry()).await.map_err(fault), Err(Fault::SessionGone));
        let published = silent.publish(&held[0], was, &Publication::new("")).await;
        assert!(matches!(published, Ok(None) | Err(StoreError::SessionGone)), "{published:?}");
        let withdrawn = silent.withdraw(&held[0], None).await;
        assert!(matches!(withdrawn, Ok(Cas::Done) | Err(StoreError::SessionGone)), "{withdrawn:?}");
        assert_eq!(fixture.tokens().await, []);
    } else {
        let seen = fixture.seen(&held[0]).await;
        assert_eq!(seen.observed.map(|observed| observed.ttl), Some(silent.liveness().ttl));
        assert_eq!(fixture.seen(&held[0]).await.version, seen.version, "reading is no sign of life");
        assert_eq!(fixture.store.evict(&fixture.election, &seen).await.unwrap(), Cas::Done);
        let renewal = silent.renew(&held).await.unwrap();
        assert_eq!((renewal.gone, renewal.stray), (vec![held[0].clone()], vec![]));
        assert_eq!(silent.standing(&held[0], None).await.unwrap().place, Place::Gone);
        assert!(matches!(silent.standing(&held[1], None).await.unwrap().place, Place::Leading(_)));
    }
}

/// Identity and forgetting: promised, granted and shown alike, on every handle.
pub async fn a_session_and_its_store_say_the_same_about_themselves<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let other = harness.store().await.promises().await.unwrap();
    let session = fixture.session().await;
    let liveness = session.liveness();
    assert_eq!(session.store_id(), fixture.promises.store);
    assert_eq!(other.store, fixture.promises.store);
    assert_eq!(liveness.forgotten_by, fixture.promises.forgotten_by);
    assert!(liveness.ttl >= fixture.promises.smallest_ttl && !liveness.ttl.is_zero());
    assert!(liveness.margin < liveness.ttl, "nothing would be left of the TTL");
    session.close().await.unwrap();
}

/// Who is told a time after which a dead leader is replaced counts on it: `explain` says it before
/// there is a session.
pub async fn a_ttl_of_a_month_is_granted_as_far_as_was_said_beforehand<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let month = Duration::from_secs(30 * 86_400);
    let session = fixture.store.open_session(month).await.unwrap();
    assert_eq!(session.liveness().ttl, fixture.promises.liveness(month).ttl);
    session.close().await.unwrap();
}
